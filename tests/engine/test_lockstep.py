"""Lockstep: rounds, ends, errors, and control from another thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from thread_tools import wait_until

import agentlab as lab
from agentlab import Budget, Lockstep, RunState, StepCountIs, StopReason, errors
from agentlab.engine import worker
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.testing import call, say

from .builders import agent, assert_is_whole, go, looping, names, run_of

SOON_S = 60.0


def steps_of(number: int, **more: Any) -> lab.Run:
    """A run of this many steps."""
    return run_of([*[call("look")] * (number - 1), "end"], **more)


class Gate:
    """Tools that wait until they are released, round after round; counts how many are waiting at once."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.entered: list[str] = []

    def agent(self, name: str, steps: int = 99) -> lab.Agent:
        async def wait() -> str:
            self.inside += 1
            self.entered.append(name)
            while not self.open.is_set():
                await asyncio.sleep(0.002)
            self.inside -= 1
            return "through"

        return agent(lambda request, index: call("wait") if index < steps else say("end"), tools=[wait], name=name)


async def to_the_end(both: Lockstep) -> tuple[lab.RunResult, ...]:
    return await both


# Rounds -----------------------------------------------------------------------------------------------------------------------


def test_a_round_is_one_step_of_each_run_in_order() -> None:
    async def main() -> None:
        both = Lockstep([steps_of(3), steps_of(2)])
        assert (both.state, both.round, len(both)) == (RunState.READY, 0, 2)
        first = await both.step()
        assert [step and step.index for step in first] == [1, 1]
        assert (both.state, both.round, both.results) == (RunState.READY, 1, (None, None))
        second = await both.step()
        assert [step and step.stop_reason for step in second] == [None, StopReason.COMPLETED]
        third = await both.step()
        assert third[1] is None
        assert third[0] is both.runs[0].history[2]
        assert (both.ended, both.round, both.state) == (True, 3, RunState.ENDED)
        with pytest.raises(errors.RunEndedError, match=r"All runs.*completed, completed"):
            await both.step()
        assert await both == both.results
        for run in both.runs:
            assert_is_whole(run)

    go(main())


def test_all_runs_take_their_step_concurrently() -> None:
    gate = Gate()

    async def main() -> None:
        both = Lockstep([gate.agent(name).run("go") for name in "abc"])
        taking = asyncio.ensure_future(both.step())
        while gate.inside < 3:
            await asyncio.sleep(0.002)
        assert both.rounds.is_stepping
        assert [run.state for run in both.runs] == [RunState.RUNNING] * 3
        gate.open.set()
        assert [step and step.index for step in await taking] == [1, 1, 1]
        assert not both.rounds.is_stepping

    go(main())


def test_a_finished_step_waits_for_the_others_in_its_round() -> None:
    gate = Gate()

    async def main() -> None:
        both = Lockstep([gate.agent("slow", 3).run("go"), steps_of(3)])
        ending = asyncio.ensure_future(to_the_end(both))
        while not both.runs[1].history:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.03)
        assert [len(run.history) for run in both.runs] == [0, 1]
        assert both.runs[1].state is RunState.RUNNING, "its step is done, and the round continues"
        gate.open.set()
        assert [result.text for result in await ending] == ["end", "end"]

    go(main())


def test_runs_of_different_lengths_round_by_round() -> None:
    async def main() -> None:
        several = Lockstep([steps_of(1), steps_of(4), steps_of(2)])
        seen = [[step and step.index for step in steps] async for steps in several]
        assert seen == [[1, 1, 1], [None, 2, 2], [None, 3, None], [None, 4, None]]
        assert [len(result.history) for result in await several] == [1, 4, 2]

    go(main())


def test_each_run_keeps_its_own_limits() -> None:
    runs = [
        looping().run("go", budget=Budget(max_turns=2)),
        looping().run("go", stop=StepCountIs(4)),
        looping().run("go", budget=Budget(max_tokens=40)),
    ]
    results = go(to_the_end(Lockstep(runs)))
    assert [(result.stop_reason, len(result.history)) for result in results] == [
        (StopReason.TURN_LIMIT, 2),
        (StopReason.STOP_CONDITION, 4),
        (StopReason.TOKEN_BUDGET, 3),
    ]
    for run in runs:
        assert_is_whole(run)


def test_a_round_in_which_all_runs_end_without_a_step_does_not_count() -> None:
    async def main() -> None:
        both = Lockstep([looping().run("go"), looping().run("go")])
        await both.step()
        for run in both.runs:
            run.limits.max_turns = 1
        assert [steps async for steps in both] == []
        assert (both.round, both.ended) == (1, True)

    go(main())


def test_a_branch_can_join_its_run_and_an_ended_run_is_skipped() -> None:
    async def main() -> None:
        run, ended = looping().run("go", budget=Budget(max_turns=3)), steps_of(1)
        await ended
        await run.step()
        both = Lockstep([run, ended, run.fork(1, message="and?")])
        assert [step and step.index for step in await both.step()] == [2, None, 2]
        assert len(await both) == 3

    go(main())


def test_the_frame_has_all_runs() -> None:
    both = Lockstep([steps_of(2), steps_of(1)])
    go(to_the_end(both))
    assert both.to_frame()["step"].tolist() == [1, 2, 1]
    assert both.to_frame("runs")["run_id"].tolist() == [run.id for run in both.runs]
    assert repr(both) == "Lockstep([scripted:script, scripted:script], ended, 2 rounds)"


# Invalid members ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        (lambda run: [], "at least one run"),
        (lambda run: [run, run], "is listed twice"),
        (lambda run: [run, "run"], "'run' is not a run"),
        (lambda run: run, r"in a list"),
        (lambda run: 5, r"Lockstep\(5\)"),
    ],
    ids=["none", "twice", "other", "bare", "number"],
)
def test_invalid_members_are_refused(runs: Callable[[lab.Run], Any], reason: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=reason):
        Lockstep(runs(steps_of(1)))


# Errors of one run --------------------------------------------------------------------------------------------------------------


def broken_condition(history: Any) -> bool:
    raise KeyError("typo")


async def broken_middleware(request: ModelRequest, ask: Any) -> ModelResponse:
    raise ZeroDivisionError("bug")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: run_of([call("look")]), id="fixture"),
        pytest.param(lambda: run_of([call("look"), errors.MissingKeyError("no key")]), id="configuration"),
        pytest.param(lambda: run_of([call("look"), errors.ProviderStatusError("busy", status=500)]), id="provider"),
        pytest.param(lambda: run_of(["x"], stop=broken_condition), id="condition"),
        pytest.param(lambda: run_of(["x"], middleware=[broken_middleware]), id="middleware"),
    ],
)
def test_an_error_ends_only_its_own_run(make: Callable[[], lab.Run]) -> None:
    both = Lockstep([make(), steps_of(4)])
    failed, fine = go(to_the_end(both))
    assert (failed.stop_reason, fine.stop_reason, len(fine.history)) == (StopReason.ERROR, StopReason.COMPLETED, 4)
    assert failed.error is not None
    assert both.runs[0].history[-1].stop_reason is StopReason.ERROR


def test_a_failed_step_is_emitted() -> None:
    async def main() -> None:
        both = Lockstep([run_of([]), steps_of(2)])
        failed, fine = await both.step()
        assert failed is not None
        assert fine is not None
        assert (failed.stop_reason, failed.index) == (StopReason.ERROR, 1)
        assert [step and step.index for step in await both.step()] == [None, 2]

    go(main())


def test_an_unrequested_cancel_ends_only_its_own_run() -> None:
    async def give_up(request: ModelRequest, ask: Any) -> ModelResponse:
        raise asyncio.CancelledError

    both = Lockstep([agent(["end"], middleware=[give_up]).run("go"), steps_of(3)])
    failed, fine = go(to_the_end(both))
    assert (failed.stop_reason, fine.stop_reason) == (StopReason.CANCELLED, StopReason.COMPLETED)


async def cut_off_inside(gate: Gate, both: Lockstep) -> None:
    """Cancel the task that awaits the lockstep while both runs are in their tools."""
    taking = asyncio.ensure_future(to_the_end(both))
    while gate.inside < 2:
        await asyncio.sleep(0.002)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert [result and result.stop_reason for result in both.results] == [StopReason.CANCELLED] * 2


def test_an_outer_cancel_propagates_and_the_steps_are_kept() -> None:
    gate = Gate()

    async def main() -> None:
        both = Lockstep([gate.agent(name).run("go") for name in "ab"])
        await cut_off_inside(gate, both)
        for run in both.runs:
            assert_is_whole(run)

    go(main())


def test_an_outer_cancel_waits_until_every_run_has_cleaned_up() -> None:
    gate, tidied = Gate(), []

    async def hold() -> None:
        gate.inside += 1
        try:
            await asyncio.sleep(SOON_S)
        finally:
            await asyncio.sleep(0.05)
            tidied.append(True)

    async def main() -> None:
        both = Lockstep([gate.agent("quick").run("go"), agent([call("hold")], tools=[hold]).run("go")])
        await cut_off_inside(gate, both)
        assert tidied == [True]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    go(main())


# Control -----------------------------------------------------------------------------------------------------------------------


def test_a_background_lockstep_is_paused_and_resumed_from_another_thread() -> None:
    gate = Gate()
    both = Lockstep([gate.agent(name, 4).run("go") for name in "ab"])
    both.worker.launch()
    wait_until(lambda: gate.inside == 2)
    assert (both.state, both.rounds.is_stepping) == (RunState.RUNNING, True)
    both.pause()
    assert both.pausing
    assert both.state is RunState.RUNNING, "the pause takes effect after the round"
    gate.open.set()
    wait_until(lambda: both.state is RunState.PAUSED)
    assert [len(run.history) for run in both.runs] == [1, 1]
    assert [run.state for run in both.runs] == [RunState.PAUSED] * 2
    time.sleep(0.05)
    assert both.round == 1
    both.worker.launch_step()
    wait_until(lambda: both.round == 2)
    assert both.state is RunState.PAUSED
    both.resume()
    results = both.wait(SOON_S)
    assert results is not None
    assert [len(result.history) for result in results] == [4, 4]
    for run in both.runs:
        assert names(run.events).count("RunPaused") == names(run.events).count("RunResumed") == 1
        assert_is_whole(run)


def test_a_run_paused_individually_holds_the_others() -> None:
    gate = Gate()
    both = Lockstep([gate.agent(name, 3).run("go") for name in "ab"])
    both.worker.launch()
    wait_until(lambda: gate.inside == 2)
    both.runs[1].pause()
    gate.open.set()
    wait_until(lambda: both.round == 1)
    time.sleep(0.05)
    assert [len(run.history) for run in both.runs] == [1, 1]
    both.runs[1].resume()
    results = both.wait(SOON_S)
    assert results is not None
    assert [len(result.history) for result in results] == [3, 3]


@pytest.mark.parametrize("act", ["stop", "cancel"])
@pytest.mark.parametrize("paused", [True, False], ids=["paused", "in a round"])
def test_all_runs_are_ended_from_another_thread(act: str, paused: bool) -> None:
    gate = Gate()
    both = Lockstep([gate.agent(name).run("go") for name in "ab"])
    both.worker.launch()
    wait_until(lambda: gate.inside == 2)
    if paused:
        both.pause()
        gate.open.set()
        wait_until(lambda: both.state is RunState.PAUSED)
    both.stop("enough") if act == "stop" else both.cancel()
    if act == "stop" and not paused:
        time.sleep(0.02)
        assert not both.ended, "the current round is finished first"
        gate.open.set()
    results = both.wait(SOON_S)
    assert results is not None
    expected = StopReason.EXPLICIT_STOP if act == "stop" else StopReason.CANCELLED
    assert [result.stop_reason for result in results] == [expected] * 2
    wait_until(lambda: not both.rounds.affinity.is_busy)
    both.stop()
    both.cancel()
    for run in both.runs:
        assert len(run.history) == 1
        assert_is_whole(run)


def test_one_run_is_stopped_and_the_others_continue() -> None:
    gate = Gate()
    gate.open.set()
    both = Lockstep([gate.agent(name, 4).run("go") for name in "ab"])

    async def main() -> None:
        await both.step()
        both.runs[0].stop("enough")
        await both

    go(main())
    assert [result and result.stop_reason for result in both.results] == [StopReason.EXPLICIT_STOP, StopReason.COMPLETED]
    assert [len(run.history) for run in both.runs] == [1, 4]


def test_a_run_is_stopped_within_a_round_after_its_step() -> None:
    gate = Gate()
    both = Lockstep([gate.agent("slow", 3).run("go"), looping().run("go")])
    both.worker.launch()
    wait_until(lambda: len(both.runs[1].history) == 1)
    both.runs[1].stop("enough")
    gate.open.set()
    results = both.wait(SOON_S)
    assert results is not None
    assert [(result.stop_reason, len(result.history)) for result in results] == [
        (StopReason.COMPLETED, 3),
        (StopReason.EXPLICIT_STOP, 1),
    ]


def test_stopping_the_last_run_ends_a_pause() -> None:
    both = Lockstep([looping().run("go"), looping().run("go")])
    both.pause()
    both.worker.launch()
    time.sleep(0.02)
    assert both.round == 0
    for run in both.runs:
        run.stop("enough")
    assert both.wait(SOON_S) is not None
    wait_until(lambda: not both.rounds.affinity.is_busy)
    with pytest.raises(errors.RunEndedError):
        both.pause()


def test_start_without_a_front_end_returns_after_all_runs() -> None:
    both = Lockstep([steps_of(2), steps_of(3)])
    assert both.start() is both
    assert [result and len(result.history) for result in both.results] == [2, 3]
    with pytest.raises(errors.RunEndedError):
        both.start()
    assert both.wait() == both.results


def test_start_with_a_front_end_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    gate = Gate()
    both = Lockstep([gate.agent(name, 2).run("go") for name in "ab"]).start()
    assert not both.ended
    assert both.wait(0.01) is None
    gate.open.set()
    assert both.wait(SOON_S) is not None


def test_waiting_for_an_unstarted_lockstep_or_on_its_own_loop_is_refused() -> None:
    both = Lockstep([steps_of(1)])
    with pytest.raises(errors.ConfigurationError, match="not been started"):
        both.wait()
    gate = Gate()
    going = Lockstep([gate.agent("a").run("go")])

    async def main() -> None:
        going.wait()

    going.worker.launch()
    with pytest.raises(errors.ConfigurationError, match="would block"):
        worker.submit(main()).result(SOON_S)
    going.cancel()
    assert going.wait(SOON_S) is not None


def test_a_background_lockstep_can_be_awaited_from_a_loop() -> None:
    gate = Gate()
    both = Lockstep([gate.agent(name, 3).run("go") for name in "ab"])
    both.worker.launch()
    wait_until(lambda: gate.inside == 2)
    gate.open.set()
    results = go(to_the_end(both))
    assert [len(result.history) for result in results] == [3, 3]
    assert gate.entered.count("a") == gate.entered.count("b") == 2
