"""What happens to a tool call when its run is cut short: cancelled, left behind or awaited, as the tool declares."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import agentlab as lab
from agentlab import Budget, StopReason
from agentlab._internal.asyncio_tools import GRACE_S, sheltered
from agentlab.errors import AgentlabWarning, ToolDefinitionError
from agentlab.model.finish_reasons import FinishReason
from agentlab.records.events import ToolStarted, Warned
from agentlab.testing import call, say

from .builders import assert_is_whole, go, look, run_of, until

pytestmark = pytest.mark.usefixtures("fake_time")
let_go = threading.Event()
"""Set when a call on a thread may end: after the cut, however long that takes."""


def booking(
    on_cancel: Any, *, thread: bool = False, limit_s: float | None = None, takes_s: float = 0.05
) -> tuple[lab.Tool, list[str]]:
    """A tool that takes this long, and a list of what it did."""
    did: list[str] = []

    async def book() -> str:
        """Book a train."""
        did.append("began")
        try:
            await asyncio.sleep(takes_s)
        except asyncio.CancelledError:
            did.append("cut")
            raise
        did.append("ended")
        return "booked"

    def book_on_a_thread() -> str:
        """Book a train."""
        did.append("began")
        time.sleep(takes_s)
        let_go.wait(60)
        did.append("ended")
        return "booked"

    let_go.clear()
    made = lab.tool(name="book", on_cancel=on_cancel, timeout_s=limit_s)(book_on_a_thread if thread else book)
    return made, did


async def _end(run: lab.Run) -> lab.RunResult:
    return await run


def by_run_cancel(run: lab.Run, task: asyncio.Task[Any]) -> None:
    run.cancel()


def by_the_task(run: lab.Run, task: asyncio.Task[Any]) -> None:
    task.cancel()


def by_a_thread(run: lab.Run, task: asyncio.Task[Any]) -> None:
    pressing = threading.Thread(target=run.cancel)
    pressing.start()
    pressing.join()


def cut(
    tool: lab.Tool, did: list[str], how: Callable[[lab.Run, Any], None] = by_run_cancel, times: int = 1, **more: Any
) -> lab.Run:
    """A run that is cut short this many times while the tool is working."""
    both = say(finish=FinishReason.TOOL_CALLS, calls=[*call("book", id="a").tool_calls, *call("look", id="b").tool_calls])

    async def main() -> lab.Run:
        run = run_of([both, "end"], tools=[tool, look], **more)
        task = asyncio.ensure_future(_end(run))
        await until(lambda: did)
        for _ in range(times):
            how(run, task)
            await asyncio.sleep(0.005)
        let_go.set()
        await asyncio.wait([task])
        assert task.cancelled() == (how is by_the_task)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return run

    run = go(main())
    assert_is_whole(run)
    return run


def results(run: lab.Run) -> list[tuple[str, str | None]]:
    """The results of the calls in the conversation."""
    return [(one.call_id, one.error) for one in run.messages[-1].tool_results]


@pytest.mark.parametrize("how", [by_run_cancel, by_the_task, by_a_thread])
@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
def test_a_run_waits_for_its_current_call_and_starts_no_other(how: Any, thread: bool) -> None:
    tool, did = booking("wait", thread=thread)
    run = cut(tool, did, how)
    assert did == ["began", "ended"]
    assert run.result is not None
    assert run.result.stop_reason is StopReason.CANCELLED
    assert [(one.content, one.error) for one in run.history[-1].tool_results] == [("booked", None)]
    assert results(run) == [("a", None), ("b", "not_executed")]


def test_without_on_cancel_the_call_is_cancelled() -> None:
    tool, did = booking("cancel")
    run = cut(tool, did)
    assert did == ["began", "cut"]
    assert results(run) == [("a", "interrupted"), ("b", "not_executed")]


def test_without_on_cancel_a_thread_is_left_behind() -> None:
    tool, did = booking("cancel", thread=True)
    run = cut(tool, did)
    assert results(run) == [("a", "interrupted"), ("b", "not_executed")]
    for thread in threading.enumerate():
        if thread.name.startswith("agentlab-tool-"):
            thread.join(60)
    assert did == ["began", "ended"]


@pytest.mark.parametrize("how", [by_run_cancel, by_the_task, by_a_thread])
def test_a_second_cancel_does_not_wait(how: Any) -> None:
    tool, did = booking("wait", takes_s=30)
    run = cut(tool, did, how, times=2)
    assert did == ["began", "cut"]
    assert results(run) == [("a", "interrupted"), ("b", "not_executed")]


def test_the_tools_time_limit_still_applies() -> None:
    tool, did = booking("wait", takes_s=30, limit_s=0.05)
    run = cut(tool, did)
    assert did == ["began", "cut"]
    assert results(run) == [("a", "timeout"), ("b", "not_executed")]


@pytest.mark.usefixtures("fake_time")  # otherwise the time limit may be reached before the tool starts
@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
def test_a_call_is_awaited_past_the_runs_time_limit(thread: bool) -> None:
    tool, did = booking("wait", thread=thread, takes_s=90)
    let_go.set()
    run = run_of([call("book"), "end"], tools=[tool], budget=Budget(timeout=60))
    result = go(_end(run))
    assert_is_whole(run)
    assert (result.stop_reason, did) == (StopReason.TIMEOUT, ["began", "ended"])
    assert [one.content for one in run.history[-1].tool_results] == ["booked"]


@pytest.mark.parametrize(
    ("outcome", "error"),
    [(ValueError("no seat"), "exception"), (lab.StopRequested("enough"), None), (SystemExit(3), "exception")],
    ids=["an-error", "a-stop", "an-exit"],
)
def test_exceptions_of_the_awaited_call_are_kept_too(outcome: BaseException, error: str | None) -> None:
    did: list[str] = []

    async def book() -> str:
        """Book a train."""
        did.append("began")
        await asyncio.sleep(0.02)
        raise outcome

    run = cut(lab.tool(on_cancel="wait")(book), did)
    assert run.result is not None
    assert run.result.stop_reason is StopReason.CANCELLED
    assert results(run)[0] == ("a", error)


def test_an_awaited_terminating_tool_does_not_undo_the_cancel() -> None:
    tool, did = booking("wait")

    async def main() -> lab.Run:
        run = lab.Agent(lab.testing.ScriptedProvider([call("book")]), tools=[tool]).run("go", terminating=["book"])
        task = asyncio.ensure_future(_end(run))
        await until(lambda: did)
        run.cancel()
        await task
        return run

    run = go(main())
    assert run.result is not None
    assert (run.result.stop_reason, run.history[-1].tool_results[0].value) == (StopReason.CANCELLED, "booked")
    assert_is_whole(run)


def test_stop_waits_for_the_step_as_before() -> None:
    tool, did = booking("cancel")
    run = cut(tool, did, lambda run, task: run.stop("enough"))
    assert did == ["began", "ended"]
    assert run.result is not None
    assert run.result.stop_reason is StopReason.EXPLICIT_STOP


@pytest.mark.parametrize("wrong", ["abandon", None, True], ids=repr)
def test_an_unknown_value_is_refused(wrong: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"on_cancel=.*: choose 'cancel' or 'wait'"):
        lab.tool(on_cancel=wrong)(results)


def kept(q: str) -> str:
    """A function of this module."""
    return q


def test_on_cancel_is_pickled_with_the_tool() -> None:
    made = lab.tool(on_cancel="wait", name="other", timeout_s=3)(kept)
    back = pickle.loads(pickle.dumps(made))
    assert (back.on_cancel, back.name, back.timeout_s, back.inline) == ("wait", "other", 3, False)
    assert lab.tool(kept).on_cancel == "cancel"


def test_a_call_that_is_not_started_says_so() -> None:
    tool, did = booking("wait")
    run = run_of([call("book", id="a"), "end"], tools=[tool])
    run.observe(lambda event: run.cancel() if isinstance(event, ToolStarted) else None)
    result = go(_end(run))
    assert_is_whole(run)
    assert (result.stop_reason, did, results(run)) == (StopReason.CANCELLED, [], [("a", "not_executed")])


def stubborn(takes_s: float, did: list[str]) -> Callable[[], Any]:
    """An async function that ignores every cancel."""

    async def book() -> str:
        """Book a train."""
        did.append("began")
        until_s = time.monotonic() + takes_s
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                await asyncio.sleep(left_s)
            except asyncio.CancelledError:
                did.append("swallowed")
        did.append("ended")
        return "booked"

    return book


def cut_short(takes_s: float, how: str) -> tuple[lab.Run, list[str], float]:
    """A run whose tool swallows its cancel: the tool's actions, and the duration of the run."""
    did: list[str] = []
    limits: dict[str, Any] = {"timeout_s": 1} if how == "the tool's limit" else {}
    made = lab.tool(name="book", **limits)(stubborn(takes_s, did))
    more: dict[str, Any] = {"budget": Budget(timeout=1)} if "the run's limit" in how else {}
    if "below" in how:
        made = lab.Agent(lab.testing.ScriptedProvider([call("book"), "end"]), tools=[made]).as_tool("book")
    run = run_of([call("book", {"task": "go"} if "below" in how else {}), "end"], tools=[made], **more)

    async def main() -> float:
        began_s = time.monotonic()
        if how == "a cancel":
            asyncio.get_running_loop().call_later(1, run.cancel)
        await run
        return time.monotonic() - began_s

    return run, did, go(main())


HOW = ["the tool's limit", "the run's limit", "a cancel", "the run's limit, below"]


@pytest.mark.parametrize("how", HOW)
def test_a_tool_that_swallows_its_cancel_is_left_behind_after_a_grace_period(how: str) -> None:
    with pytest.warns(AgentlabWarning, match="'book' did not end within 2 s of its cancel and was left behind") as warned:
        run, did, took_s = cut_short(60, how)
    assert 1 + GRACE_S <= took_s < 60
    assert did[:2] == ["began", "swallowed"]
    assert len(warned) == 1
    assert_is_whole(run)
    result = (run.children[0] if "below" in how else run).history[0].tool_results[0]
    assert result.error == ("timeout" if how == "the tool's limit" else "interrupted")
    assert "was left behind: it may still be running" in result.content
    if "below" not in how:
        assert [event.message for event in run.events if isinstance(event, Warned)] == [str(warned[0].message)]


@pytest.mark.parametrize("how", HOW)
def test_a_call_that_ends_within_the_grace_period_is_kept_and_the_run_still_ends(how: str) -> None:
    run, did, took_s = cut_short(2, how)
    assert (did, took_s < 1 + GRACE_S) == (["began", "swallowed", "ended"], True)
    assert_is_whole(run)
    result = run.history[0].tool_results[0]
    if "below" not in how:
        assert (result.content, result.error) == ("booked", None)
    reason = {"the tool's limit": StopReason.COMPLETED, "a cancel": StopReason.CANCELLED}.get(how, StopReason.TIMEOUT)
    assert run.result is not None
    assert run.result.stop_reason is reason


def test_a_second_cancel_keeps_the_tools_grace_period() -> None:
    did: list[str] = []
    run = run_of([call("book"), "end"], tools=[lab.tool(name="book")(stubborn(60, did))])

    async def main() -> float:
        task = asyncio.ensure_future(_end(run))
        await until(lambda: did)
        began_s = time.monotonic()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.1)
        await asyncio.wait([task])
        assert task.cancelled()
        return time.monotonic() - began_s

    with pytest.warns(AgentlabWarning, match="left behind"):
        assert GRACE_S <= go(main()) < 60
    assert_is_whole(run)


def test_a_condition_that_swallows_its_cancel_is_left_behind_too() -> None:
    did: list[str] = []
    waits = stubborn(60, did)

    async def decide(history: object) -> bool:
        return bool(await waits())

    run = run_of([call("look"), "end"], tools=[look], stop=decide, budget=Budget(timeout=1))
    with pytest.warns(AgentlabWarning, match="A stop condition did not end within 2 s of its cancellation"):
        result = go(_end(run))
    assert result.stop_reason is StopReason.TIMEOUT
    assert "ended" not in did[:2]


def test_work_that_cancels_itself_does_not_cancel_the_caller() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await sheltered(work())
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    go(main())
