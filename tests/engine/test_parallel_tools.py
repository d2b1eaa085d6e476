"""Tool calls of one answer that run at the same time: order, failures, cancels, approval, and the shares of sub-agents."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import Budget, StopReason
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.plots.run_timeline import timeline_data
from agentlab.records.events import ToolFinished, ToolStarted
from agentlab.testing import ScriptedProvider, call, say

from .builders import Slow, agent, assert_is_whole, finalize, go, look, until


def asks(*names: str, **more: Any) -> ModelResponse:
    """An answer that calls these tools; the ids are a, b, c, …"""
    calls = [ToolCall("abcdefgh"[place], name, json.dumps({"mark": "abcdefgh"[place]})) for place, name in enumerate(names)]
    return say(finish=lab.FinishReason.TOOL_CALLS, calls=calls, **more)


class Meeting:
    """Tools that end only once `parties` of them run at the same time."""

    def __init__(self, parties: int = 2) -> None:
        self.parties, self.here, self.most, self.running = parties, asyncio.Event(), 0, 0
        self.barrier = threading.Barrier(parties)
        self.log: list[str] = []

    async def meet(self, mark: str) -> str:
        """Wait for the others."""
        self.running += 1
        self.most = max(self.most, self.running)
        self.log.append(f"{mark} began")
        if self.running == self.parties:
            self.here.set()
        async with asyncio.timeout(30):
            await self.here.wait()
        await asyncio.sleep(0.02 if mark == "a" else 0)  # the first call ends last
        self.running -= 1
        self.log.append(f"{mark} ended")
        return f"met {mark}"

    def meet_on_a_thread(self, mark: str) -> str:
        """Wait for the others, on a thread."""
        self.barrier.wait(30)
        return f"met {mark}"


async def alone(mark: str) -> str:
    """Run alone."""
    return f"alone {mark}"


async def _end(run: lab.Run) -> lab.RunResult:
    return await run


def done(run: lab.Run) -> lab.RunResult:
    result = go(_end(run))
    if run.result is not None:
        assert_is_whole(run)
    return result


def contents(run: lab.Run) -> list[str]:
    return [result.content for result in run.history[0].tool_results]


# At the same time, in order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["meet", "meet_on_a_thread"])
def test_calls_of_parallel_tools_run_at_the_same_time(name: str) -> None:
    meeting = Meeting(3)
    tool = lab.tool(getattr(meeting, name), parallel=True)
    run = agent([asks(name, name, name), "end"], tools=[tool]).run("go")
    assert done(run).text == "end"
    assert contents(run) == ["met a", "met b", "met c"]
    assert [result.call_id for result in run.messages[-2].tool_results] == ["a", "b", "c"]
    order = [(type(event).__name__, event.tool_call.id if isinstance(event, ToolStarted) else event.result.call_id)
             for event in run.events if isinstance(event, ToolStarted | ToolFinished)]  # fmt: skip
    assert order[:3] == [("ToolStarted", "a"), ("ToolStarted", "b"), ("ToolStarted", "c")]
    if name == "meet":
        assert order[-1] == ("ToolFinished", "a")
    assert all(result.duration_s <= run.history[0].duration_s for result in run.history[0].tool_results)


def test_two_different_parallel_tools_meet() -> None:
    meeting = Meeting()
    tools = [lab.tool(meeting.meet, parallel=True), lab.tool(meeting.meet, name="greet", parallel=True)]
    assert contents_of(tools, "meet", "greet") == ["met a", "met b"]


def contents_of(tools: list[lab.Tool], *names: str) -> list[str]:
    run = agent([asks(*names), "end"], tools=tools).run("go")
    done(run)
    return contents(run)


def test_without_parallel_calls_run_one_by_one() -> None:
    meeting = Meeting(1)
    assert contents_of([lab.tool(meeting.meet)], "meet", "meet") == ["met a", "met b"]
    assert meeting.log == ["a began", "a ended", "b began", "b ended"]


def test_a_call_that_is_not_parallel_runs_alone_in_its_place() -> None:
    log: list[str] = []

    async def beside(mark: str) -> str:
        """Run beside others."""
        log.append(f"{mark} began")
        await asyncio.sleep(0.01)
        log.append(f"{mark} ended")
        return mark

    tools = [lab.tool(beside, parallel=True), lab.tool(beside, name="single")]
    assert contents_of(tools, "beside", "beside", "single", "beside", "beside") == list("abcde")
    assert log[:2] == ["a began", "b began"]
    assert log[4:6] == ["c began", "c ended"]
    assert log[6:8] == ["d began", "e began"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["p", "s", "none", "bad"]), max_size=6), st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_results_are_in_the_order_of_the_calls_as_without_parallel(kinds: list[str], ticks: list[int]) -> None:
    async def work(mark: str) -> str:
        for _ in range(ticks["abcdef".index(mark)]):
            await asyncio.sleep(0)
        if ticks["abcdef".index(mark)] == 5:
            raise ValueError(mark)
        return mark

    def results(parallel: bool) -> list[tuple[str, str | None, str]]:
        tools = [lab.tool(work, name="p", parallel=parallel), lab.tool(work, name="s")]
        tools.append(lab.tool(lambda: "", name="bad", description="x", parallel=parallel))
        run = agent([asks(*kinds) if kinds else say("x"), "end"], tools=tools).run("go")
        done(run)
        return [(one.call_id, one.error, one.content) for one in run.history[0].tool_results]

    assert results(True) == results(False)


# One of them fails, stops or is cut ---------------------------------------------------------------------------------------------


def test_a_failure_keeps_the_results_of_the_others() -> None:
    meeting = Meeting()

    async def fail(mark: str) -> str:
        """Fail at once."""
        raise ValueError(mark)

    run = agent(
        [asks("fail", "meet", "meet"), "end"], tools=[lab.tool(fail, parallel=True), lab.tool(meeting.meet, parallel=True)]
    )
    begun = run.run("go")
    assert done(begun).text == "end"
    assert [(one.content, one.error) for one in begun.history[0].tool_results] == [
        ("fail raised ValueError: a", "exception"),
        ("met b", None),
        ("met c", None),
    ]


def test_a_stop_keeps_the_results_of_the_others_and_starts_no_later_call() -> None:
    meeting = Meeting()

    async def stop(mark: str) -> str:
        """Stop the run."""
        raise lab.StopRequested("enough", output=mark)

    tools = [lab.tool(meeting.meet, parallel=True), lab.tool(stop, parallel=True), lab.tool(alone)]
    run = agent([asks("meet", "stop", "meet", "alone"), "end"], tools=tools).run("go")
    result = done(run)
    assert (result.stop_reason, result.output) == (StopReason.EXPLICIT_STOP, "b")
    assert contents(run) == ["met a", "b", "met c"]
    assert [one.error for one in run.messages[-1].tool_results] == [None, None, None, "not_executed"]


def test_a_terminating_tool_runs_alone() -> None:
    meeting = Meeting()
    ends = lab.tool(alone, name="ends", parallel=True)
    tools = [lab.tool(meeting.meet, parallel=True), ends]
    run = agent([asks("meet", "meet", "ends", "meet"), "end"], tools=tools).run("go", terminating=["ends"])
    result = done(run)
    assert (result.stop_reason, result.output) == (StopReason.TERMINATING_TOOL, "alone c")
    assert [one.call_id for one in run.messages[-1].tool_results] == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["cancel", "task", "timeout"])
def test_a_cut_keeps_results_and_marks_the_others(how: str) -> None:
    begun: list[str] = []
    ended: list[str] = []

    async def quick(mark: str) -> str:
        """End at once."""
        return f"quick {mark}"

    async def slow(mark: str) -> str:
        """Never end."""
        begun.append(mark)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(mark)
        return ""

    async def wait(mark: str) -> str:
        """Finish even if the run is cancelled."""
        begun.append(mark)
        await asyncio.sleep(0.05)
        return f"waited {mark}"

    tools = [
        lab.tool(quick, parallel=True),
        lab.tool(slow, parallel=True),
        lab.tool(wait, parallel=True, on_cancel="wait"),
        alone,
    ]
    limit = Budget(timeout=0.03) if how == "timeout" else None
    run = agent([asks("quick", "slow", "wait", "slow", "alone"), "end"], tools=tools).run("go", budget=limit)

    async def main() -> None:
        task = asyncio.ensure_future(_end(run))
        await until(lambda: len(begun) == 3)
        if how == "cancel":
            run.cancel()
        elif how == "task":
            task.cancel()
        await asyncio.wait([task])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    go(main())
    assert_is_whole(run)
    assert run.result is not None
    assert run.result.stop_reason is (StopReason.TIMEOUT if how == "timeout" else StopReason.CANCELLED)
    assert [(one.call_id, one.error) for one in run.history[0].tool_results] == [
        ("a", None), ("b", "interrupted"), ("c", None), ("d", "interrupted"),
    ]  # fmt: skip
    assert contents(run)[2] == "waited c"
    assert ended == ["b", "d"]
    assert [one.error for one in run.messages[-1].tool_results][-1] == "not_executed"


def test_an_interrupt_in_one_cancels_the_others() -> None:
    async def interrupt(mark: str) -> str:
        """A person presses Ctrl-C."""
        raise KeyboardInterrupt

    async def slow(mark: str) -> str:
        """Never end."""
        await asyncio.sleep(60)
        return ""

    run = agent([asks("slow", "interrupt")], tools=[lab.tool(slow, parallel=True), lab.tool(interrupt, parallel=True)]).run("go")
    with pytest.raises(KeyboardInterrupt):
        go(_end(run))
    assert [one.error for one in run.history[0].tool_results] == ["interrupted", "interrupted"]
    assert_is_whole(run)


# Approval ---------------------------------------------------------------------------------------------------------------------


def test_calls_that_need_approval_run_at_the_same_time_once_all_are_decided() -> None:
    meeting = Meeting()
    tool = lab.tool(meeting.meet, parallel=True)
    run = agent([asks("meet", "meet", "meet"), "end"], tools=[tool], approve=["meet"]).run("go")

    async def main() -> None:
        assert (await run).stop_reason is StopReason.AWAITING_APPROVAL
        assert [one.call_id for one in run.pending] == ["a", "b", "c"]
        run.approve("a")
        assert (await run).stop_reason is StopReason.AWAITING_APPROVAL
        assert meeting.log == []
        run.approve("b", refuse="no")
        run.approve("c")
        assert (await run).text == "end"

    go(main())
    assert contents(run) == ["met a", "The person refused: no", "met c"]
    assert_is_whole(run)


def test_two_sub_agents_wait_for_approval_at_the_same_time() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    def script(request: ModelRequest, index: int) -> ModelResponse:
        return (
            call("pay", {"amount": len(request.messages[0].text)})
            if index == 1
            else say(request.messages[-1].tool_results[0].content)
        )

    clerk = agent(script, tools=[pay], approve=["pay"]).as_tool("clerk", parallel=True)
    tasks = [ToolCall(name, "clerk", json.dumps({"task": task})) for name, task in (("a", "x"), ("b", "yy"))]
    run = agent([say(finish=lab.FinishReason.TOOL_CALLS, calls=tasks), "end"], tools=[clerk]).run("go")

    async def main() -> None:
        result = await run
        assert result.stop_reason is StopReason.AWAITING_APPROVAL
        assert len(result.history[0].children) == 2
        assert 'pay({"amount": 1}) and pay({"amount": 2})' in result.detail
        first, second = run.children
        second.approve()
        assert (await run).stop_reason is StopReason.AWAITING_APPROVAL
        assert [one.call_id for one in run.stepper.context.builder.tool_results] == ["b"]  # type: ignore[union-attr]
        first.approve()
        assert (await run).text == "end"

    go(main())
    assert [text.splitlines()[0] for text in contents(run)] == ["paid 1", "paid 2"]
    assert [child.handle for child in run.history[0].children] == ["clerk-1", "clerk-2"]
    assert_is_whole(run)


# Sub-agents -------------------------------------------------------------------------------------------------------------------


def boss(sub: lab.Agent, number: int, **more: Any) -> lab.Agent:
    calls = [ToolCall(f"c{place}", "worker", json.dumps({"task": "t" * (place + 1)})) for place in range(number)]
    script = [say(finish=lab.FinishReason.TOOL_CALLS, calls=calls, tokens=(20, 10), cost="0.02"), say("done", cost="0")]
    return lab.Agent(ScriptedProvider(script), tools=[sub.as_tool("worker", parallel=more.pop("parallel", True))], **more)


def endless(delays: bool = False) -> lab.Agent:
    """An agent that always looks, for 15 tokens per call; with `delays`, the later in the order, the sooner."""
    script = lambda request, index: call("look", {"q": str(index)}, cost="0.01")  # noqa: E731
    return agent(script) if not delays else lab.Agent(Slow(script, 0.001), tools=[look])


def test_sub_agents_work_at_the_same_time() -> None:
    meeting = Meeting()
    sub = agent([call("meet", {"mark": "a"}), "found"], tools=[lab.tool(meeting.meet)])
    run = boss(sub, 2).run("go")
    assert done(run).text == "done"
    assert meeting.most == 2
    assert [child.handle for child in run.history[0].children] == ["worker-1", "worker-2"]


@pytest.mark.parametrize("limit", ["max_tokens", "max_calls", "max_cost"])
def test_each_sub_agent_has_its_share_of_the_rest(limit: str) -> None:
    values: dict[str, Any] = {"max_tokens": 30 + 200, "max_calls": 1 + 7, "max_cost": Decimal("0.02") + Decimal("0.06")}
    run = boss(endless(), 2).run("go", budget=Budget(**{limit: values[limit]}))
    done(run)
    first, second = run.history[0].children
    used = {"max_tokens": (105, 105), "max_calls": (4, 3), "max_cost": (Decimal("0.03"), Decimal("0.03"))}
    read = {"max_tokens": "known_tokens", "max_calls": "calls", "max_cost": "known_cost_usd"}
    assert (getattr(first, read[limit]), getattr(second, read[limit])) == used[limit]  # each: its share, plus one call at most


def test_a_sub_agent_that_uses_little_changes_nothing_for_the_others() -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        return say("short") if len(request.messages[0].text) == 1 else call("look", {"q": str(index)})

    run = boss(agent(script), 2).run("go", budget=Budget(max_tokens=30 + 200))
    done(run)
    assert [child.known_tokens for child in run.history[0].children] == [15, 105]
    assert "Left of its share of yours: 85 tokens." in contents(run)[0]
    assert 'continue_run="worker-2"' in contents(run)[1]


def test_a_limit_lowered_meanwhile_lowers_the_shares() -> None:
    runs: list[lab.Run] = []

    def script(request: ModelRequest, index: int) -> ModelResponse:
        if index == 3 and len(request.messages[0].text) == 1:
            runs[0].limits.max_tokens = 30 + 100
        return call("look", {"q": str(index)})

    runs.append(boss(agent(script), 2).run("go", budget=Budget(max_tokens=30 + 400)))
    done(runs[0])
    assert [child.known_tokens for child in runs[0].history[0].children] == [60, 60]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(31, 400), st.integers(2, 30))
def test_parallel_sub_agents_exceed_the_budget_by_one_call_each_at_most(number: int, tokens: int, calls: int) -> None:
    run = boss(endless(), number).run("go", budget=Budget(max_tokens=tokens, max_calls=calls))
    result = done(run)
    assert result.history.calls <= calls
    assert result.history.known_tokens < tokens + 15 * number


def test_how_far_a_sub_agent_gets_does_not_depend_on_the_speed_of_the_others() -> None:
    def used(delays: bool) -> list[Any]:
        run = boss(endless(delays), 3).run("go", budget=Budget(max_tokens=30 + 400))
        done(run)
        return [*contents(run), *[(child.handle, child.known_tokens, child.calls) for child in run.history[0].children]]

    assert used(False) == used(True)


def test_two_groups_in_one_answer_have_names_in_order() -> None:
    sub = agent(lambda request, index: say(request.messages[0].text))
    names = ["worker", "worker", "alone", "worker", "worker"]
    calls = [
        ToolCall(f"c{at}", name, json.dumps({"task": "x"} if name == "worker" else {"mark": "m"}))
        for at, name in enumerate(names)
    ]
    tools = [sub.as_tool("worker", parallel=True), lab.tool(alone)]
    run = agent([say(finish=lab.FinishReason.TOOL_CALLS, calls=calls), "end"], tools=tools).run(
        "go", budget=Budget(max_tokens=900)
    )
    done(run)
    assert [child.handle for child in run.history[0].children] == [f"worker-{n}" for n in (1, 2, 3, 4)]


def test_cancelling_the_caller_cancels_all_its_sub_agents() -> None:
    slow = lab.Agent(Slow(["never"], 60.0))
    run = boss(slow, 2).run("go")

    async def main() -> None:
        task = asyncio.ensure_future(_end(run))
        await until(lambda: len(run.children) == 2)
        await asyncio.sleep(0.01)
        run.cancel()
        await asyncio.wait([task])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    go(main())
    assert_is_whole(run)
    assert [child.result.stop_reason for child in run.children if child.result] == [StopReason.CANCELLED] * 2
    assert len(run.history[0].children) == 2


# What surrounds it ------------------------------------------------------------------------------------------------------------


def test_spans_on_the_page_and_in_the_timeline_overlap() -> None:
    meeting = Meeting()
    run = agent([asks("meet", "meet"), "end"], tools=[lab.tool(meeting.meet, parallel=True)]).run("go")
    result = done(run)
    rows = timeline_data(result)
    tools = rows[rows["lane"] == "tool"]
    assert len(tools) == 2
    assert tools["start_s"].max() < tools["end_s"].min()


def test_a_stored_run_has_the_results_in_order(tmp_path: Path) -> None:
    meeting = Meeting()
    with lab.Store(tmp_path / "runs.db") as store:
        maker = agent(
            [asks("meet", "meet", "look"), "end"], tools=[lab.tool(meeting.meet, parallel=True), look], observers=[store]
        )
        run = maker.run("go")
        done(run)
        kept = store.load(run.id)
        assert [one.content for one in kept.history[0].tool_results] == contents(run)


def test_the_setting_survives_pickling_and_is_of_each_tool() -> None:
    made = lab.tool(
        json.dumps, name="as_json", schema={"type": "object", "properties": {"obj": {}}, "required": ["obj"]}, parallel=True
    )
    assert pickle.loads(pickle.dumps(made)).parallel is True
    assert not finalize.parallel
    assert agent(["x"]).as_tool("sub").parallel is False


def test_middleware_is_around_each_of_them() -> None:
    meeting = Meeting()
    seen: list[str] = []

    async def logged(tool_call: ToolCall, next_: Any) -> Any:
        seen.append(f"in {tool_call.id}")
        result = await next_(tool_call)
        seen.append(f"out {tool_call.id}")
        return result

    tool = lab.tool(meeting.meet, parallel=True)
    run = agent([asks("meet", "meet"), "end"], tools=[tool], tool_middleware=[logged]).run("go")
    assert done(run).text == "end"
    assert seen == ["in a", "in b", "out b", "out a"]
