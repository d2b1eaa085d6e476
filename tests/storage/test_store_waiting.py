"""A step that waits for approval survives its process: with its calls, its decisions, and no call that runs twice unasked."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab import StopReason
from agentlab.engine.worker import RunState
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.storage.store import Store
from agentlab.testing import Said, ScriptedProvider, call, say

CALLS = [ToolCall("c1", "look", '{"q":"a"}'), ToolCall("c2", "pay", '{"amount":1}'), ToolCall("c3", "pay", '{"amount":2}')]


def script(request: ModelRequest, index: int) -> Said:
    asked = len(request.messages) // 2 + 1
    if asked == 1:
        return call("look", {"q": "first"}, id="c0", cost="0.01")
    return say(finish=lab.FinishReason.TOOL_CALLS, calls=CALLS, cost="0.01") if asked == 2 else say("Done.", cost="0.01")


def agent(log: Path, *, kill_at: int | None = None, **more: Any) -> lab.Agent:
    """An agent whose tools write a line before they do anything; `pay` with `kill_at` kills the process after that."""

    def note(line: str) -> None:
        with log.open("a") as file:
            file.write(f"{line}\n")

    @lab.tool(inline=True)
    def look(q: str) -> str:
        """Look something up."""
        note(f"look {q}")
        return f"saw {q}"

    @lab.tool(inline=True, idempotent=False)
    def pay(amount: int) -> str:
        """Pay."""
        note(f"pay {amount}")
        if amount == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid {amount}"

    return lab.Agent(ScriptedProvider(script), tools=[look, pay], approve=["pay"], **more)


def killed(work: Callable[[], Any]) -> None:
    """Do the work in another process, which is then killed."""
    process = os.fork()
    if not process:
        try:
            work()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


async def to_the_end(run: lab.Run) -> lab.RunResult:
    return await run


def begin(path: Path, log: Path, **more: Any) -> lab.Run:
    """Run until the second step waits."""
    store = Store(path)
    run = agent(log, observers=[store], **more).run("go").with_id("one")
    asyncio.run(to_the_end(run))
    return run


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_the_calls_that_wait_are_loaded(path: Path, log: Path) -> None:
    killed(lambda: begin(path, log))
    with Store(path) as store:
        run = store.load("one", agent(log))
        assert [(one.call_id, one.tool, one.step, one.why) for one in run.pending] == [
            ("c2", "pay", 2, "approve has 'pay'"), ("c3", "pay", 2, "approve has 'pay'"),
        ]  # fmt: skip
        assert run.state is RunState.WAITING
        assert len(run.history) == 1
        assert run.limits.approve == ("pay",)
        assert asyncio.run(to_the_end(run)).stop_reason is StopReason.AWAITING_APPROVAL


def test_continues_the_same_step_in_another_process(path: Path, log: Path, tmp_path: Path) -> None:
    killed(lambda: begin(path, log))
    with Store(path) as store:
        run = store.resume("one", agent(log))
        run.approve("c2", arguments={"amount": 7})
        run.approve("c3", refuse="Once is enough.")
        result = asyncio.run(to_the_end(run))
        assert result.stop_reason is StopReason.COMPLETED
        assert lines(log) == ["look first", "look a", "pay 7"]  # nothing twice
        frame = store.frame("tools", ["one"])
        assert frame["approval"].fillna("").tolist() == ["", "", "edited", "refused"]
        again = store.load("one")
        assert again.result is not None and again.pending == ()
    other = tmp_path / "other"
    at_once = agent(other, approver=lambda one: lab.Approval.refuse("No.") if one.call_id == "c3" else True).run("go")
    asyncio.run(to_the_end(at_once))
    same = ["step", "calls", "tool_calls", "tools", "total_tokens", "cost_usd", "cumulative_cost_usd", "text", "action"]
    assert run.to_frame()[same].equals(at_once.to_frame()[same])
    assert [message.role for message in run.messages] == [message.role for message in at_once.messages]


def test_a_decision_that_was_not_carried_out_is_kept(path: Path, log: Path) -> None:
    def decide() -> None:
        run = begin(path, log)
        run.approve("c3", answer="Paid by hand.")
        run.approve("c2")

    killed(decide)
    with Store(path) as store:
        run = store.resume("one", agent(log))
        assert run.pending == ()
        assert run.state is RunState.READY
        result = asyncio.run(to_the_end(run))
    assert [one.content for one in result.history[1].tool_results] == ["saw a", "paid 1", "Paid by hand."]
    assert lines(log) == ["look first", "look a", "pay 1"]
    given = [event for event in result.events if isinstance(event, lab.events.ApprovalGiven)]
    assert [(one.call_id, one.decision) for one in given] == [("c3", "answered"), ("c2", "approved")]


def test_a_call_that_had_begun_is_asked_about_again(path: Path, log: Path) -> None:
    def die_within_the_call() -> None:
        run = begin(path, log, kill_at=1)
        run.approve()
        asyncio.run(to_the_end(run))

    killed(die_within_the_call)
    with Store(path) as store:
        run = store.resume("one", agent(log))
        assert [one.call_id for one in run.pending] == ["c2"]
        assert "may have run already" in run.pending[0].why
        asyncio.run(to_the_end(run))
        assert lines(log) == ["look first", "look a", "pay 1"]
        run.approve()
        result = asyncio.run(to_the_end(run))
    assert lines(log)[3:] == ["pay 1", "pay 2"]  # a person allowed it
    assert result.stop_reason is StopReason.COMPLETED


def test_a_call_that_was_executed_is_not_executed_again(path: Path, log: Path) -> None:
    def die_within_the_second() -> None:
        run = begin(path, log, kill_at=2)
        run.approve()
        asyncio.run(to_the_end(run))

    killed(die_within_the_second)
    with Store(path) as store:
        run = store.resume("one", agent(log))
        assert [one.call_id for one in run.pending] == ["c3"]
        run.approve(answer="It was paid.")
        result = asyncio.run(to_the_end(run))
    assert lines(log) == ["look first", "look a", "pay 1", "pay 2"]
    assert [one.approval for one in result.history[1].tool_results] == ["", "approved", "answered"]


def test_can_be_resumed_here_branched_and_stopped(path: Path, log: Path) -> None:
    first = begin(path, log)
    with Store(path) as store:
        branch = store.load("one", agent(log)).fork(at=1, approve=[])
        assert asyncio.run(to_the_end(branch)).stop_reason is StopReason.COMPLETED
        first.stop("enough")
        ended = store.load("one")
        assert ended.result is not None and ended.result.stop_reason is StopReason.EXPLICIT_STOP
        assert len(ended.history) == 2
        assert ended.pending == ()


def test_conditions_and_older_stores(path: Path, log: Path) -> None:
    with Store(path) as store:
        run = agent(log, observers=[store]).run("go", approve=["pay", lab.MaxCost(0.5)]).with_id("new")
        asyncio.run(to_the_end(run))
        run.stop()
        assert store.load("new").limits.approve == ("pay", lab.MaxCost(0.5))
        plain = agent(log, observers=[store]).run("go", approve=[]).with_id("plain")
        asyncio.run(to_the_end(plain))
        stored = store.storage.runs(["plain"])[0]
        texts = [stored.head.body, stored.end or "", *(one.body for one in store.storage.steps("plain"))]
        assert not any("approv" in text for text in texts)  # as an older version wrote it
        assert store.load("plain").limits.approve == ()


def test_what_asks_a_person_is_set_anew_in_another_process(path: Path, log: Path) -> None:
    """A function is stored by its name only: it, or something else, is passed again."""

    def paid_before(history: lab.RunHistory) -> bool:
        return len(history) > 1

    def begin_with_a_function() -> None:
        run = agent(log).run("go", approve=[paid_before], observers=[Store(path)]).with_id("one")
        asyncio.run(to_the_end(run))

    killed(begin_with_a_function)
    with Store(path) as store:
        with pytest.raises(lab.errors.ConfigurationError, match=r"'paid_before' was stored: .* resume\(…, approve=…\)"):
            store.resume("one", agent(log))
        with pytest.raises(lab.errors.LimitError, match="no tool of the agent fits 'fly'"):
            store.resume("one", agent(log), approve=["fly"])
        assert store.load("one", agent(log), approve=True).limits.approve == ("*",)
        run = store.resume("one", agent(log), approve=[paid_before, "pay"])
        assert [one.call_id for one in run.pending] == ["c1", "c2", "c3"]  # they waited before
        run.approve()
        assert asyncio.run(to_the_end(run)).stop_reason is StopReason.COMPLETED
    assert lines(log) == ["look first", "look a", "pay 1", "pay 2"]


def test_an_approver_of_another_process_decides(path: Path, log: Path) -> None:
    killed(lambda: begin(path, log))
    asked = []

    async def approver(one: lab.PendingCall) -> lab.Approval:
        asked.append(one.call_id)
        return lab.Approval.refuse("No.") if one.call_id == "c3" else lab.Approval.allow()

    with Store(path) as store:
        run = store.resume("one", agent(log, approver=approver))
        assert asyncio.run(to_the_end(run)).stop_reason is StopReason.COMPLETED
    assert asked == ["c2", "c3"]
    assert lines(log) == ["look first", "look a", "pay 1"]


# The timeout --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("timeout_s", "is_over"), [(0.5, True), (60, False)])
def test_the_time_since_the_run_asked_counts_in_another_process(path: Path, log: Path, timeout_s: float, is_over: bool) -> None:
    killed(lambda: begin(path, log))
    time.sleep(0.6)
    with Store(path) as store:
        run = store.resume("one", agent(log))
        assert run.timeline.clock.elapsed_s() > 0.6
        run.limits.timeout = timeout_s
        run.approve()
        result = asyncio.run(to_the_end(run))
        assert result.stop_reason is (StopReason.TIMEOUT if is_over else StopReason.COMPLETED)
        assert lines(log) == ["look first", "look a"] + ["pay 1", "pay 2"] * (not is_over)
        assert result.history[1].duration_s > 0.6
        frame = store.frame("steps", ["one"])
        assert frame["duration_s"].tolist() == pytest.approx([step.duration_s for step in result.history])


def test_a_pause_stops_the_clock_across_processes(path: Path, log: Path) -> None:
    def pause() -> None:
        begin(path, log).pause()

    killed(pause)
    time.sleep(0.6)
    with Store(path) as store:
        run = store.resume("one", agent(log))
        assert run.timeline.clock.elapsed_s() < 0.6
        before_s = run.timeline.clock.elapsed_s()
        time.sleep(0.05)
        assert run.timeline.clock.elapsed_s() >= before_s + 0.05, "it counts again from here"


def test_a_stored_run_that_waited_to_its_timeout_asks_again(path: Path, log: Path) -> None:
    with Store(path) as store:
        run = agent(log, observers=[store]).run("go", budget=lab.Budget(timeout=0.4)).with_id("one")
        asyncio.run(to_the_end(run))
        run.approve("c2")
        asyncio.run(to_the_end(run))
        assert [one.call_id for one in run.pending] == ["c3"]
        time.sleep(0.5)
        assert asyncio.run(to_the_end(run)).stop_reason is StopReason.TIMEOUT
    with Store(path) as store:
        ended = store.load("one", agent(log, observers=[store]))
        assert ended.history[1].calls and ended.history.calls == 2

        def begin_a_branch() -> None:
            with Store(path) as other:
                branch = other.load("one", agent(log)).apply().with_id("two")
                branch.observe(other)
                branch.limits.timeout = 60
                asyncio.run(to_the_end(branch))

        killed(begin_a_branch)
        resumed = store.resume("two", agent(log))
        assert [(one.call_id, one.run_id, one.arguments) for one in resumed.pending] == [("c3", "two", '{"amount":2}')]
        resumed.approve(refuse="No.")
        result = asyncio.run(to_the_end(resumed))
    assert result.stop_reason is StopReason.COMPLETED
    assert lines(log) == ["look first", "look a", "pay 1"]
    assert [one.approval for one in result.history[1].tool_results] == ["", "approved", "refused"]
    assert result.history.calls == 3


def test_a_decision_during_a_call_does_not_hide_that_the_call_had_begun(path: Path, log: Path) -> None:
    def die_within_the_first() -> None:
        run = begin(path, log, kill_at=1)
        run.observe(lambda event: run.approve("c3") if isinstance(event, lab.events.ToolStarted) else None)
        run.approve("c2")
        asyncio.run(to_the_end(run))

    killed(die_within_the_first)
    with Store(path) as store:
        run = store.resume("one", agent(log))
        assert [one.call_id for one in run.pending] == ["c2"]
        assert "may have run already" in run.pending[0].why
