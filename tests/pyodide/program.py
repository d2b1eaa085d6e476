"""Runs in Pyodide, where agentlab is in /wheel and its requirements in /site, and prints one line of JSON for each check."""

# ruff: noqa: E402, F704, PLE1142, PT017  Pyodide runs a program as a coroutine, and pytest is not there

import asyncio
import json
import sys
import traceback
from datetime import date

sys.dont_write_bytecode = True
sys.path[:0] = ["/wheel", "/site"]

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.testing import ScriptedProvider, call, say

WEATHER = "Do I need an umbrella in Graz on Saturday, 12 June 2027?"


def get_weather(city: str, day: date) -> dict[str, object]:
    """The weather forecast for a city.

    Args:
        city: name of the city
        day: day of the forecast
    """
    return {"city": city, "sky": "rain", "high_c": 17}


@lab.tool
def look() -> str:
    """Look."""
    return "nothing"


def replayed(model: str) -> lab.Run:
    with lab.replay("/fixtures/question"):
        return lab.Agent(model, tools=[get_weather]).run(WEATHER)


def looking(looks: int) -> lab.Agent:
    return lab.Agent(ScriptedProvider([*[call("look")] * looks, say("end", cost="0.001")]), tools=[look], name="looking")


async def check_import() -> None:
    import httpx  # installs and imports there; only a call finds no sockets

    from agentlab._internal.asyncio_tools import can_start_threads

    assert sys.platform == "emscripten"
    assert not can_start_threads()
    assert lab.__file__.startswith("/wheel/")
    assert httpx.__file__.startswith("/site/")


async def check_replay_with_a_sync_tool_and_prices() -> None:
    for model in ("anthropic:claude-sonnet-4-6", "openai:gpt-5.4-mini"):
        result = await replayed(model)
        assert "rain" in result.history[0].tool_results[0].content
        assert result.stop_reason is lab.StopReason.COMPLETED
        assert result.text
        assert result.cost.usd is not None and result.cost.usd > 0, result.cost


async def check_step_by_step() -> None:
    run = replayed("anthropic:claude-sonnet-4-6")
    first = await run.step()
    assert {one.name for one in first.tool_calls} == {"get_weather"}
    assert [step.index async for step in run] == [2]
    assert run.result.text


async def check_start_is_a_task() -> None:
    run = looking(5).run("Go.").start()
    assert str(run.state) == "running" and not run.history
    try:
        run.wait()
    except ConfigurationError as error:
        assert "`await run` instead" in str(error)
    else:
        raise AssertionError("it would wait for itself")
    while run.result is None:
        await asyncio.sleep(0)
    assert run.result.text == "end" and len(run.history) == 6


async def check_pause_edit_and_stop() -> None:
    run = looking(400).run("Go.", budget=lab.Budget(max_turns=500)).start()
    while len(run.history) < 2:
        await asyncio.sleep(0)
    run.pause()
    while str(run.state) != "paused":
        await asyncio.sleep(0)
    run.limits.max_turns = 300
    run.resume()
    run.stop("enough")
    result = await run
    assert result.stop_reason is lab.StopReason.EXPLICIT_STOP
    assert len(result.history) < 300


async def check_store() -> None:
    agent = looking(2)
    with lab.Store("/tmp/runs.db") as store:
        begun = agent.run("Go.", observers=[store])
        await begun.step()
        assert store.state(begun.id) == "open"
        ended = agent.run("Go again.", observers=[store])
        await ended.start()
        store.let_go(begun)
    with lab.Store("/tmp/runs.db") as store:
        assert set(store.run_ids()) == {begun.id, ended.id}
        assert store.load(ended.id).history[-1].cost == ended.history[-1].cost
        assert store.state(begun.id) == "interrupted"
        assert len((await store.resume(begun.id, agent)).history) == 3


async def check_store_of_a_page_that_is_gone() -> None:
    from agentlab.storage import writer

    agent = looking(2)
    with lab.Store("/tmp/gone.db") as store:
        run = agent.run("Go.", observers=[store])
        await run.step()
        writer._this_page = "another page"
        writer._this_process.cache_clear()
        assert store.state(run.id) == "interrupted"
        assert len((await store.resume(run.id, agent)).history) == 3


async def check_lockstep_and_fork() -> None:
    run = looking(2).run("Go.")
    await run
    both = lab.Lockstep([run.fork(at=1), looking(1).run("Go.")])
    assert [result.text for result in await both] == ["end", "end"]


async def check_live_calls_are_refused_in_words() -> None:
    try:
        await lab.Agent(lab.Provider("compatible", base_url="http://127.0.0.1:9/v1", model="m")).run("Go.")
    except ConfigurationError as error:
        assert "a browser has no sockets" in str(error), error
    else:
        raise AssertionError("a browser has no sockets")


CHECKS = {name: check for name, check in globals().items() if name.startswith("check_")}
for name, check in CHECKS.items():
    try:
        await check()
        fault = ""
    except Exception:
        fault = traceback.format_exc()
    print(json.dumps({"check": name, "fault": fault}), flush=True)
