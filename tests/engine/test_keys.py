"""Without a key no request is sent; a key that is set is sent and shown nowhere."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from providers.bodies import Answer

import agentlab as lab
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.model.finish_reasons import StopReason
from agentlab.records import events
from agentlab.testing import ScriptedProvider, call, say

from .call_builders import (
    HELLO,
    KEY,
    KEY_VARIABLE,
    QUICK,
    agent,
    before_the_end,
    everything_shown,
    finished,
    go,
    is_streamed,
    looking_for,
    reply_to,
)
from .server import Asked, Reply, raw, serving, status, stream, whole

HEADER = {"anthropic": "x-api-key", "gemini": "x-goog-api-key", "azure": "api-key"}


@pytest.mark.parametrize("wire", KEY_VARIABLE)
@pytest.mark.parametrize("value", [None, "", "  \n"], ids=["unset", "empty", "blank"])
@pytest.mark.parametrize("recording", [False, True], ids=["live", "record"])
def test_without_a_key_no_request_is_sent(
    wire: str, value: str | None, recording: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if value is not None:
        monkeypatch.setenv(KEY_VARIABLE[wire], value)

    async def main() -> lab.Run:
        transport = lab.record(tmp_path) if recording else None
        run = agent(server, wire, key=None).run("go", transport=transport)
        with pytest.raises(MissingKeyError, match=rf"{KEY_VARIABLE[wire]}.*lab\.replay"):
            await run
        return run

    with serving() as server:
        run = go(main())
    assert server.asked == []
    assert (run.state, len(run.history), run.events) == (RunState.READY, 0, [])
    assert list(tmp_path.iterdir()) == []


async def stepped(run: lab.Run) -> None:
    """By `run.step()` to the end."""
    while run.result is None:
        await run.step()


async def looped(run: lab.Run) -> None:
    """By `async for`."""
    async for _ in run:
        pass


async def on_the_kernel_loop(run: lab.Run) -> None:
    """By `run.start(loop="kernel")`."""
    await run.start(loop="kernel")


async def among_others(run: lab.Run) -> None:
    """In a lockstep with a run that needs no key."""
    other = lab.Agent(ScriptedProvider(["fine"])).run("go")
    try:
        await lab.Lockstep([other, run])
    finally:
        assert len(other.history) == len(run.history)


async def without_a_front_end(run: lab.Run) -> None:
    """By `run.start()` in a script without a front end."""
    await asyncio.to_thread(run.start)


async def launched(run: lab.Run) -> None:
    """As the panel's Run button starts it."""
    run.worker.launch()
    assert await asyncio.to_thread(run.wait, 60) is not None


WAYS = [finished, stepped, looped, on_the_kernel_loop, among_others, without_a_front_end, launched]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_missing_key_is_reported_before_the_first_step_and_setting_it_helps(
    way: Callable[[lab.Run], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[events.Event] = []

    async def main() -> lab.Run:
        run = agent(server, "openai", key=None, observers=[seen.append]).run("go", budget=lab.Budget(max_turns=1))
        for _ in range(2):
            with pytest.raises(MissingKeyError, match=r"OPENAI_API_KEY"):
                await way(run)
            assert (run.state, run.result, len(run.history), seen) == (RunState.READY, None, 0, [])
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        await way(run)
        return run

    with serving(reply_to("openai", HELLO, streaming=False)) as server:
        result = go(main()).result
    assert result is not None
    assert (result.stop_reason, result.text, len(result.history), len(server.asked)) == (
        StopReason.COMPLETED, "Hello there", 1, 1,
    )  # fmt: skip


def test_a_mistyped_model_gets_a_hint_before_the_first_step() -> None:
    with pytest.raises(MissingKeyError, match=r"No API key for openai.*did you mean 'gpt-5.4-mini'"):
        lab.Agent("openai:gpt-5.4-mni").run("go").start()


def test_a_replay_or_an_answering_middleware_needs_no_key(tmp_path: Path) -> None:
    async def cached(request: Any, ask: Any) -> Any:
        return say("known")

    run = agent("http://127.0.0.1:9", "openai", key=None, middleware=[cached]).run("go")
    assert go(finished(run)).text == "known"
    with serving(reply_to("openai", HELLO, streaming=False)) as server, lab.record(tmp_path):
        go(finished(agent(server, "openai").run("go")))
    with lab.replay(tmp_path):
        assert go(finished(agent(server, "openai", key=None).run("go"))).text == "Hello there"


def test_a_sub_agents_missing_key_is_reported_to_the_callers_model() -> None:
    helper = agent("http://127.0.0.1:9", "openai", key=None).as_tool("helper")
    caller = lab.Agent(ScriptedProvider([call("helper", {"task": "go"}), "done"]), tools=[helper])
    run = caller.run("go")
    result = go(finished(run))
    assert (result.text, run.children[0].result.stop_reason) == ("done", StopReason.ERROR)  # type: ignore[union-attr]
    assert "OPENAI_API_KEY" in result.history[0].tool_results[0].content


def test_an_experiment_without_a_key_starts_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        agents = {
            "fine": lab.Agent(ScriptedProvider(lambda request, index: "fine")),
            "keyless": agent(server, "openai", key=None),
        }
        study = lab.Experiment(agents, ["?"], repeats=2)
        with pytest.raises(MissingKeyError, match="OPENAI_API_KEY"):
            await study.run(progress=False)
        assert study.results().states == {"not started": 4}
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert (await study.run(progress=False)).states == {"ended": 4}
        monkeypatch.delenv("OPENAI_API_KEY")
        assert (await study.run(progress=False)).states == {"ended": 4}  # no run is left, so no key is needed

    with serving(*[reply_to("openai", HELLO, streaming=False)] * 2) as server:
        go(main())


def test_a_key_that_no_header_can_carry_is_refused_and_not_shown() -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match="Copy it again") as caught:
            await agent(server, key=f"{KEY}\u2013").run("go")
        assert KEY not in "".join(traceback.format_exception(caught.value))

    with serving() as server:
        go(main())
    assert server.asked == []


def test_a_compatible_server_needs_no_key_and_gets_no_other_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY_VARIABLE.values():
        monkeypatch.setenv(name, KEY)
    with serving(reply_to("compatible", HELLO, streaming=False)) as server:
        assert go(finished(agent(server, key=None).run("go"))).text == "Hello there"
    assert not any(KEY in value for value in server.asked[0].headers.values())


# Keys are shown nowhere -----------------------------------------------------------------------------------------------------


def repeated_key(asked: Asked, wire: str) -> str:
    """A server's message that repeats the key, as some gateways send."""
    return f"invalid key {asked.headers[HEADER.get(wire, 'authorization')]} (that is {KEY})"


def refused(asked: Asked, wire: str) -> Reply:
    return status(401, {"error": {"message": repeated_key(asked, wire)}})


def refused_again_and_again(asked: Asked, wire: str) -> Reply:
    return status(503, {"error": {"message": repeated_key(asked, wire)}})


def refused_in_a_page(asked: Asked, wire: str) -> Reply:
    return raw(f"<p>{repeated_key(asked, wire)}</p>".encode(), ("content-type", "text/html"), code=403)


def sent_elsewhere(asked: Asked, wire: str) -> Reply:
    return raw(b"", ("location", f"https://elsewhere.example/?key={KEY}"), code=302)


def error_under_200(asked: Asked, wire: str) -> Reply:
    return whole({"error": {"message": repeated_key(asked, wire)}})


def error_text_under_200(asked: Asked, wire: str) -> Reply:
    return whole({"error": repeated_key(asked, wire)})


def page_under_200(asked: Asked, wire: str) -> Reply:
    return raw(f"<p>{repeated_key(asked, wire)}</p>".encode(), ("content-type", "text/html"))


def error_in_mid_stream(asked: Asked, wire: str) -> Reply:
    before, _ = before_the_end(wire, HELLO)
    return stream(before, f'event: error\ndata: {{"error": {{"message": "{repeated_key(asked, wire)}"}}}}\n\n'.encode())


def answered(asked: Asked, wire: str) -> Reply:
    return looking_for(lambda _: ["tea", "milk"], wire)(asked)


SERVERS: dict[str, tuple[Callable[[Asked, str], Reply], StopReason]] = {
    "an answer": (answered, StopReason.COMPLETED),
    "401": (refused, StopReason.ERROR),
    "503 four times": (refused_again_and_again, StopReason.ERROR),
    "a page, 403": (refused_in_a_page, StopReason.ERROR),
    "302": (sent_elsewhere, StopReason.ERROR),
    "an error under 200": (error_under_200, StopReason.ERROR),
    "an error text under 200": (error_text_under_200, StopReason.ERROR),
    "a page under 200": (page_under_200, StopReason.ERROR),
    "an error in mid-stream": (error_in_mid_stream, StopReason.ERROR),
}


@pytest.mark.parametrize(
    ("wire", "streaming"),
    [("openai", True), ("compatible", False), ("azure", True), ("openrouter", False), ("anthropic", True), ("gemini", False)],
)
def test_a_key_is_shown_nowhere(
    wire: str,
    streaming: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    if wire in KEY_VARIABLE:
        monkeypatch.setenv(KEY_VARIABLE[wire], KEY)
    shown, results = [], []
    for name, (reply, expected) in SERVERS.items():
        with serving(script=partial(_answer, reply, wire)) as server:
            one = agent(server, wire, key=None if wire in KEY_VARIABLE else KEY, stream=streaming, retry=QUICK)
            with lab.record(tmp_path / name) as recording:
                run = one.run("go")
            result = go(finished(run))
        assert result.stop_reason is expected, name
        assert KEY in server.asked[0].headers[HEADER.get(wire, "authorization")], name
        shown += [(name, repr(each)) for each in (run, one, one.model, recording)]
        for error in filter(None, (result.error, *(step.error for step in result.history))):
            shown.append((name, "".join(traceback.format_exception(error))))
        (file,) = (tmp_path / name).iterdir()
        shown.append((name, file.read_text(encoding="utf-8")))
        shown += [(name, text) for text in (*capfd.readouterr(), caplog.text)]
        results.append(result)
    shown.append(("frames and reprs", everything_shown(*results)))  # of all at once: frames take longer than runs
    for name, text in shown:
        assert KEY not in text, name
        assert KEY[4:] not in text, name


def _answer(reply: Callable[[Asked, str], Reply], wire: str, asked: Asked) -> Reply:
    return reply(asked, wire)


def test_runs_with_two_keys_show_neither(tmp_path: Path) -> None:
    """The key of one run, repeated to another run, is redacted in the recording."""
    keys = [f"{KEY}-{number}" for number in range(2)]

    async def main() -> list[lab.RunResult]:
        with lab.record(tmp_path):
            runs = [agent(server, key=key).run(f"task {key[-1]}") for key in keys]
        first = await runs[0]
        return [first, *await asyncio.gather(*(finished(run) for run in runs[1:]))]

    words = Answer(text=(f"The other key is {keys[0]}",))
    with serving(script=lambda asked: reply_to("compatible", words, streaming=is_streamed(asked))) as server:
        results = go(main())
    assert [result.stop_reason for result in results] == [StopReason.COMPLETED] * 2
    written = "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    assert KEY not in written
    assert "The other key is REDACTED" in written
