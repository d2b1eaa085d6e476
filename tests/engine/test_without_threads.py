"""A Python that starts no threads, such as one in a browser: what runs on a thread elsewhere runs on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tqdm.auto
from thread_tools import python_without_threads

import agentlab as lab
from agentlab._internal import asyncio_tools as threads
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError
from agentlab.experiments import status
from agentlab.storage import writer
from agentlab.testing import ScriptedProvider, call, say


@pytest.fixture(autouse=True)
def _no_threads() -> Iterator[None]:
    with python_without_threads():
        yield


@lab.tool
def look(place: str = "here") -> str:
    """Look."""
    assert threading.current_thread() is threading.main_thread()
    return f"nothing {place}"


@lab.tool
def broken() -> str:
    """Raise."""
    raise KeyError("broken")


def run_of(*script: Any, **more: Any) -> Any:
    return lab.Agent(ScriptedProvider(list(script)), tools=[look, broken], **more).run("Go.")


async def end_of(run: Any) -> Any:
    return await run


def test_whether_threads_start_is_tried_once_and_not_read_from_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    refuse = threading.Thread.start
    with monkeypatch.context() as patch:  # undone before the fixture lets threads start again
        patch.setattr(threading.Thread, "start", lambda thread: (tries.append(thread.name), refuse(thread)))
        assert [threads.can_start_threads() for _ in range(3)] == [False] * 3
    assert tries == ["agentlab-trial"]


def test_sync_tools_run_on_the_loop_and_the_model_reads_their_results() -> None:
    result = asyncio.run(end_of(run_of(call("look", {"place": "there"}), call("broken"), "end")))
    assert [step.tool_results[0].content for step in result.history[:2]] == ["nothing there", "broken raised KeyError: 'broken'"]
    assert (result.text, result.stop_reason) == ("end", lab.StopReason.COMPLETED)


def test_start_is_a_task_on_the_running_loop() -> None:
    async def main() -> None:
        run = run_of(call("look"), "end").start()
        assert (run.state, len(run.history)) == (RunState.RUNNING, 0), "it returns before the first step"
        with pytest.raises(ConfigurationError, match="would block the event loop that the run uses: `await run` instead"):
            run.wait()
        while run.result is None:
            await asyncio.sleep(0)
        assert (run.result.text, run.state) == ("end", RunState.ENDED)
        assert run.wait() is run.result

    asyncio.run(main())


def test_other_work_on_the_loop_gets_its_turn_between_two_steps() -> None:
    turns: list[int] = []

    async def main() -> None:
        run = run_of(*[call("look")] * 5, "end").start()
        while run.result is None:
            turns.append(len(run.history))
            await asyncio.sleep(0)

    asyncio.run(main())
    assert set(range(6)) <= set(turns)


def test_a_started_run_can_be_awaited_paused_and_stopped() -> None:
    async def main() -> lab.RunResult:
        run = run_of(*[call("look")] * 9, "end").start()
        run.pause()
        await asyncio.sleep(0.01)
        assert (run.state, len(run.history)) == (RunState.PAUSED, 0)
        run.resume()
        while len(run.history) < 3:
            await asyncio.sleep(0)
        run.stop("enough")
        return await run  # type: ignore[no-any-return]

    result = asyncio.run(main())
    assert result.stop_reason is lab.StopReason.EXPLICIT_STOP
    assert 3 <= len(result.history) < 10


@pytest.mark.parametrize("front_end", ["none", "widgets"])
def test_without_a_loop_start_says_what_to_do_and_the_run_stays_usable(front_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", front_end)
    run = run_of("end")
    with pytest.raises(ConfigurationError, match="can't start threads, as in a browser, and no event loop is running"):
        run.start()
    assert run.state is RunState.READY
    assert asyncio.run(end_of(run)).text == "end"


def test_a_lockstep_starts_on_the_loop() -> None:
    async def main() -> list[str]:
        both = lab.Lockstep([run_of(call("look"), "end"), run_of("end")])
        both.start()
        return [result.text for result in await both]

    assert asyncio.run(main()) == ["end", "end"]


def test_an_experiment_with_progress_bars(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "_can_be_seen", lambda: True)
    monkeypatch.setattr(tqdm.auto.tqdm, "monitor_interval", 10)  # tqdm's default: a thread that looks for bars that stand still
    agent = lab.Agent(ScriptedProvider([call("look"), "end"]), tools=[look], name="looking")
    study = lab.Experiment([agent], ["a", "b"], repeats=2, score=lambda result: result.text == "end")

    async def main() -> Any:
        return await study.run(concurrency=2, progress=True)

    results = asyncio.run(main())
    assert list(results.runs["steps"]) == [2] * 4
    assert "4/4" in capsys.readouterr().err


def test_a_scorer_that_starts_a_process() -> None:
    result = asyncio.run(end_of(run_of("def two(): return 2")))
    task = lab.Task("Write two().", target="assert two() == 2")

    async def main() -> Any:
        return await lab.scorers.Code()(result, task)

    assert asyncio.run(main()).value is True


async def at_length(history: Any) -> bool:
    return len(history) >= 2


def test_a_backtest_of_an_async_condition_needs_no_loop_or_says_so() -> None:
    result = asyncio.run(end_of(run_of(*[call("look")] * 4, "end")))
    assert lab.backtest(result, lab.Custom(at_length))["step_mean"].item() == 2

    async def main() -> None:
        with pytest.raises(ConfigurationError, match="not async, or a Python with threads"):
            lab.backtest(result, lab.Custom(at_length))
        assert lab.backtest(result, lab.StepCountIs(3))["step_mean"].item() == 3

    asyncio.run(main())


def test_the_store_keeps_resumes_and_lists_runs(tmp_path: Path) -> None:
    agent = lab.Agent(ScriptedProvider([call("look"), call("look"), say("end", cost="0.01")]), tools=[look], name="looking")
    path = tmp_path / "runs.db"

    async def main() -> None:
        with lab.Store(path) as store:
            begun = agent.run("Go.", observers=[store])
            await begun.step()
            store.let_go(begun)
            ended = await agent.run("Go again.", observers=[store]).start()
        with lab.Store(path) as store:
            assert store.load(ended.run_id).history[-1].cost == ended.history[-1].cost
            assert len((await store.resume(begun.id, agent)).history) == 3
            assert list(store.frame()["steps"]) == [3, 3]

    asyncio.run(main())


def test_frames_and_plots() -> None:
    result = asyncio.run(end_of(run_of(call("look"), say("end", tokens=(100, 20), cost="0.001"))))
    frame = result.to_frame()
    assert len(frame) == 2
    for plot in (lab.plots.tokens, lab.plots.cost):
        plot(frame).figure.canvas.draw()


def forget_process() -> None:
    writer._start_reader.cache_clear()
    writer._this_process.cache_clear()


def test_in_a_browser_each_page_is_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process has the same id every time, so the page that wrote an unfinished run may be gone."""
    monkeypatch.setattr(writer.sys, "platform", "emscripten")
    forget_process()
    try:
        here = writer.new_writer_name()
        assert (writer.is_writer_here(here), writer.is_writer_alive(here)) == (True, True)
        monkeypatch.setattr(writer, "_this_page", "another page")
        writer._this_process.cache_clear()
        assert (writer.is_writer_here(here), writer.is_writer_alive(here)) == (False, False)
    finally:
        forget_process()
