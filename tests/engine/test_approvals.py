"""The run asks a person before it calls a tool: by an approver, at a run that waits, or between two awaits."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from thread_tools import wait_until as until

import agentlab as lab
from agentlab import Approval, StopReason, errors, events
from agentlab.engine.worker import RunState
from agentlab.experiments.experiment import Experiment
from agentlab.model.messages import ToolCall, ToolResult
from agentlab.model.responses import ModelResponse
from agentlab.testing import ScriptedProvider, call, say
from engine.builders import go

UNSAID = "The person refused this call. It was not executed."


class Desk:
    """Tools that record their calls, and an agent that pays, and then is done."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def pay(self, amount: int) -> str:
        """Pay."""
        self.done.append(amount)
        return f"paid {amount}"

    def look(self, q: str) -> str:
        """Look something up."""
        self.done.append(q)
        return f"saw {q}"

    def agent(self, *answers: Any, **more: Any) -> lab.Agent:
        script = [*(answers or [call("pay", {"amount": 5})]), "Done."]
        return lab.Agent(ScriptedProvider(script), tools=[self.pay, self.look], **more)


def several(*named: tuple[str, dict[str, Any]]) -> ModelResponse:
    """An answer with several tool calls: c1, c2, …"""
    calls = [ToolCall(f"c{number}", name, json.dumps(given)) for number, (name, given) in enumerate(named, 1)]
    return say(finish=lab.FinishReason.TOOL_CALLS, calls=calls)


async def end_of(run: lab.Run) -> lab.RunResult:
    return await run


def kinds(run: lab.Run) -> list[str]:
    return [type(event).__name__ for event in run.events]


# Who is asked, and about what ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approve", "asks"),
    [
        pytest.param(["pay"], True, id="the name"),
        pytest.param("p*", True, id="one pattern"),
        pytest.param(True, True, id="True"),
        pytest.param(["*"], True, id="every tool"),
        pytest.param(["look"], False, id="another tool"),
        pytest.param([], False, id="an empty list"),
        pytest.param(False, False, id="False"),
        pytest.param(None, False, id="None"),
        pytest.param([lab.StepCountIs(1)], True, id="a condition that is met with this step"),
        pytest.param([lab.StepCountIs(2)], False, id="a condition that is not met"),
        pytest.param(["look", lambda history: True], True, id="a function"),
        pytest.param([lambda history: 1 / 0], True, id="a condition that raises"),
    ],
)
def test_asks_before_tools_that_fit(approve: Any, asks: bool) -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=approve)
    result = go(end_of(run))
    assert result.stop_reason is (StopReason.AWAITING_APPROVAL if asks else StopReason.COMPLETED)
    assert [one.tool for one in run.pending] == ["pay"] * asks
    assert desk.done == ([] if asks else [5])
    assert (run.result is None) is asks


def test_why_it_asks() -> None:
    run = Desk().agent().run("?", approve=["p*"])
    go(end_of(run))
    assert run.pending[0].why == "approve has 'p*'"
    failing = Desk().agent().run("?", approve=[lambda history: 1 / 0])
    go(end_of(failing))
    assert "ZeroDivisionError" in failing.pending[0].why


@pytest.mark.parametrize(("approve", "why"), [(True, "every tool is asked about"), (["pay", "*"], "every tool is asked about")])
def test_why_it_asks_about_every_tool(approve: object, why: str) -> None:
    run = Desk().agent().run("?", approve=approve)
    go(end_of(run))
    assert run.pending[0].why == why


def test_asks_if_it_is_unknown_whether_a_condition_is_met() -> None:
    never = lab.StepCountIs(9)
    for condition, parts in (
        (lab.MaxCost(0.5), "MaxCost unknown of $0.50"),
        (lab.MaxCost(0.5) | never, "MaxCost unknown of $0.50"),
        (~lab.MaxCost(0.5), "MaxCost unknown of $0.50"),
    ):
        run = Desk().agent(call("look", {"q": "a"}, tokens=(None, None))).run("?", approve=[never, condition])
        go(end_of(run))
        assert [one.why for one in run.pending] == [f"unknown whether this condition is met: {parts}"]
    off = Desk().agent().run("?", approve=[lab.Off(lab.MaxCost(0.5))])
    assert go(end_of(off)).stop_reason is StopReason.COMPLETED


def test_a_tool_of_the_agent_means_its_name() -> None:
    class Answer(pydantic.BaseModel):
        """The answer."""

        text: str

    desk = Desk()
    paid = lab.tool(name="transfer")(desk.pay)
    agent = lab.Agent(ScriptedProvider([]), tools=[paid, desk.look, Answer], approve=[desk.look])
    assert agent.settings.approve == ("look",)
    assert agent.run("?", approve=[desk.pay, desk.look, Answer]).limits.approve == ("transfer", "look", "Answer")
    assert agent.run("?", approve=paid).limits.approve == ("transfer",)
    run = agent.run("?", approve=desk.pay)
    assert run.limits.approve == ("transfer",)
    run.limits.approve = [desk.look, "transfer"]
    assert run.limits.approve == ("look", "transfer")
    assert run.fork(0, approve=[Answer]).limits.approve == ("Answer",)
    (condition,) = agent.run("?", approve=[lambda history: True]).limits.approve
    assert isinstance(condition, lab.Custom)


@pytest.mark.parametrize("wrong", [5, None, ""])
def test_bad_parts_of_approve(wrong: object) -> None:
    with pytest.raises(errors.LimitError, match=r"approve has .*: give names or patterns of tools"):
        Desk().agent().run("?", approve=[wrong])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Approval("refuse"), r"'refuse'.*'approved', 'edited', 'answered', 'refused'"),  # type: ignore[arg-type]
        (lambda: Approval("nonsense"), r"'nonsense'.*'approved', 'edited'"),  # type: ignore[arg-type]
        (lambda: Approval(["refused"]), "refused"),  # type: ignore[arg-type]
        (lambda: Approval("edited"), "arguments=None"),
        (lambda: Approval("edited", "[1]"), "arguments='\\[1\\]'"),
        (lambda: Approval("approved", "{}"), "no other decision"),
        (lambda: Approval("refused", None, 5), "text=5"),  # type: ignore[arg-type]
        (lambda: Approval.allow({"a": object()}), "cannot be written as JSON"),
        (lambda: Approval.allow("[1]"), "as a dict"),
    ],
)
def test_bad_approvals(make: Callable[[], Approval], message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=message):
        make()


def test_arguments_that_do_not_fit_leave_the_call_waiting() -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"])
    go(end_of(run))
    with pytest.raises(errors.ConfigurationError, match="do not fit the tool 'pay': amount: Field required"):
        run.approve(arguments={})
    with pytest.raises(errors.ConfigurationError, match="cannot be written as JSON"):
        run.approve(arguments={"amount": object()})
    assert len(run.pending) == 1
    run.approve(arguments={"amount": 2})
    go(end_of(run))
    assert desk.done == [2]


def test_names_the_tools_if_a_pattern_fits_none() -> None:
    desk = Desk()
    with pytest.raises(errors.LimitError, match=r"no tool of the agent fits 'book_\*'. Its tools: pay, look"):
        desk.agent().run("?", approve=["book_*"])
    with pytest.raises(errors.LimitError, match="fits 'book'"):
        desk.agent(approve=["book"])
    run = desk.agent().run("?")
    with pytest.raises(errors.LimitError, match="fits 'book'"):
        run.limits.approve = "book"
    with pytest.raises(errors.ConfigurationError):
        desk.agent().run("?", approve=[7])
    with pytest.raises(errors.ConfigurationError, match="approver"):
        desk.agent().run("?", approver=7)  # type: ignore[arg-type]


def test_is_a_default_of_the_agent_a_live_limit_and_kept_by_a_fork() -> None:
    desk = Desk()
    agent = desk.agent(approve=["pay"])
    assert agent.run("?").limits.approve == ("pay",)
    assert agent.run("?", approve=()).limits.approve == ()
    run = agent.run("?")
    assert run.fork(at=0).limits.approve == ("pay",)
    assert run.fork(at=0, approve=[]).limits.approve == ()
    run.limits.approve = None
    assert go(end_of(run)).stop_reason is StopReason.COMPLETED
    (changed,) = [event for event in run.events if isinstance(event, events.LimitsChanged)]
    assert (changed.before.approve, changed.after.approve) == (("pay",), ())
    assert "approve ('pay',) -> ()" in run.to_frame("events")["detail"].tolist()[0]


# Nobody there -------------------------------------------------------------------------------------------------------------------


def test_continues_the_same_step_without_asking_the_model_again() -> None:
    def ended(*, first_wait: bool) -> tuple[lab.Run, Desk]:
        desk = Desk()
        run = desk.agent().run("?", approve=["pay"], approver=None if first_wait else lambda pending: True)
        if first_wait:
            result = go(end_of(run))
            assert (result.stop_reason, result.truncated, len(run.history)) == (StopReason.AWAITING_APPROVAL, True, 0)
            assert run.state is RunState.WAITING
            assert go(end_of(run)).stop_reason is StopReason.AWAITING_APPROVAL  # nothing happens until somebody decides
            run.approve()
            assert run.pending == ()
        go(end_of(run))
        return run, desk

    (waited, desk), (at_once, other) = ended(first_wait=True), ended(first_wait=False)
    assert desk.done == other.done == [5]
    assert kinds(waited) == kinds(at_once)
    assert len(waited.history) == len(at_once.history) == 2
    assert waited.messages[2].tool_results[0].content == "paid 5"
    for what in ("steps", "calls", "tools"):
        ours, theirs = waited.to_frame(what), at_once.to_frame(what)
        same = [name for name in ours if not name.endswith(("_s", "_at", "run_id"))]
        assert ours[same].equals(theirs[same])


def test_step_and_iteration_leave_a_run_that_waits() -> None:
    async def scenario() -> None:
        run = Desk().agent().run("?", approve=True)
        assert await run.step() is None
        assert [step async for step in run] == []
        run.approve()
        step = await run.step()
        assert step is not None and step.index == 1

    go(scenario())


@pytest.mark.parametrize(
    ("decision", "content", "error", "approval", "executed", "done"),
    [
        pytest.param({}, "paid 5", None, "approved", None, [5], id="approved"),
        pytest.param({"arguments": {"amount": 3}}, "paid 3", None, "edited", '{"amount": 3}', [3], id="edited"),
        pytest.param({"arguments": '{"amount":3}'}, "paid 3", None, "edited", '{"amount":3}', [3], id="edited as JSON"),
        pytest.param({"answer": "By phone."}, "By phone.", None, "answered", None, [], id="answered"),
        pytest.param({"refuse": "Too much."}, "The person refused: Too much.", "refused", "refused", None, [], id="refused"),
        pytest.param({"refuse": ""}, UNSAID, "refused", "refused", None, [], id="no word"),
    ],
)
def test_decisions(decision: Any, content: str, error: str | None, approval: str, executed: str | None, done: list[int]) -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"])
    go(end_of(run))
    run.approve(**decision)
    assert go(end_of(run)).stop_reason is StopReason.COMPLETED
    (result,) = run.history[0].tool_results
    assert (result.content, result.error, result.approval, result.executed_arguments) == (content, error, approval, executed)
    assert json.loads(result.arguments) == {"amount": 5}
    assert result.waited_s is not None and result.waited_s >= 0
    assert desk.done == done
    row = run.to_frame("tools").iloc[0]
    assert row["approval"] == approval
    assert row["waited_s"] == result.waited_s


def test_calls_are_decided_one_by_one_in_any_order() -> None:
    desk = Desk()
    answer = several(("look", {"q": "a"}), ("pay", {"amount": 1}), ("look", {"q": "b"}), ("pay", {"amount": 2}))
    run = desk.agent(answer).run("?", approve=["pay"])
    go(end_of(run))
    assert desk.done == ["a"]  # what nobody has to approve runs before the first that waits
    assert [one.call_id for one in run.pending] == ["c2", "c4"]
    run.approve("c4")
    go(end_of(run))
    assert desk.done == ["a"]  # in order: c2 is next
    run.approve(run.pending[0])
    go(end_of(run))
    assert desk.done == ["a", 1, "b", 2]
    assert run.to_frame("tools")["approval"].fillna("").tolist() == ["", "approved", "", "approved"]


def test_errors_name_what_is_pending() -> None:
    run = Desk().agent(several(("pay", {"amount": 1}), ("pay", {"amount": 2}))).run("?", approve=["pay"])
    with pytest.raises(errors.ConfigurationError, match="Pending: none"):
        run.approve()
    go(end_of(run))
    with pytest.raises(errors.ConfigurationError, match=r"Pending: 'c1' \(pay\), 'c2' \(pay\)"):
        run.approve("c3")
    with pytest.raises(errors.ConfigurationError, match="2 calls wait"):
        run.approve(answer="Done.")
    with pytest.raises(errors.ConfigurationError, match="pass one of them"):
        run.approve("c1", answer="a", refuse="b")
    with pytest.raises(errors.ConfigurationError, match="as a dict"):
        run.approve("c1", arguments="[1")
    assert len(run.pending) == 2
    run.approve("c1")
    with pytest.raises(errors.ConfigurationError, match="no such call"):
        run.approve("c1")


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_stop_and_cancel_end_a_run_that_waits(how: str) -> None:
    desk = Desk()
    run = desk.agent(several(("look", {"q": "a"}), ("pay", {"amount": 1}))).run("?", approve=["pay"])
    go(end_of(run))
    getattr(run, how)()
    assert run.result is not None
    assert run.result.stop_reason is (StopReason.EXPLICIT_STOP if how == "stop" else StopReason.CANCELLED)
    assert run.pending == ()
    assert [result.name for result in run.history[0].tool_results] == ["look"]
    assert [result.error for result in run.messages[-1].tool_results] == [None, "not_executed"]
    assert kinds(run)[-2:] == ["StepCompleted", "RunEnded"]
    assert run.history[0].calls
    with pytest.raises(errors.ConfigurationError):
        run.approve()


def test_terminating_tool_that_waits() -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"], terminating=["pay"])
    go(end_of(run))
    run.approve()
    assert (go(end_of(run)).stop_reason, run.history.last.tool_results[0].value) == (StopReason.TERMINATING_TOOL, "paid 5")  # type: ignore[union-attr]


def test_the_result_of_a_run_that_waits_counts_the_step_that_waits() -> None:
    desk = Desk()
    answers = [call("look", {"q": "a"}, cost=0.5), several(("look", {"q": "b"}), ("pay", {"amount": 1}))]
    run = desk.agent(*answers).run("?", approve=["pay"])
    waiting = go(end_of(run))
    assert (len(waiting.history), len(run.history)) == (2, 1)
    assert [result.content for result in waiting.history[1].tool_results] == ["saw b"]
    assert waiting.history[1].stop_reason is StopReason.AWAITING_APPROVAL
    assert (waiting.usage.total_tokens, waiting.history.calls) == (30, 2)
    assert (waiting.cost.usd, waiting.cost.known_usd) == (None, Decimal("0.5"))
    assert waiting.to_frame()["total_tokens"].tolist() == [15, 15]
    assert waiting.to_frame("tools")["tool"].tolist() == ["look", "look"]
    run.approve()
    result = go(end_of(run))
    assert (result.usage.total_tokens, len(result.history), result.history[1].stop_reason) == (45, 3, None)
    assert waiting.usage.total_tokens == 30


def test_the_result_of_a_caller_that_waits_counts_its_child_run() -> None:
    desk = Desk()
    run = with_child(desk)
    waiting = go(end_of(run))
    (use,) = waiting.history[0].children
    assert (use.run_id, use.calls, use.stop_reason) == (run.children[0].id, 1, StopReason.AWAITING_APPROVAL)
    assert (waiting.usage.total_tokens, waiting.history.own_usage.total_tokens, len(run.history)) == (30, 15, 0)
    run.approve()
    result = go(end_of(run))
    assert (result.usage.total_tokens, [use.calls for use in result.history[0].children]) == (60, [2])


def test_middleware_comes_after_the_approval() -> None:
    seen: list[str] = []

    async def double(tool_call: ToolCall, execute: Callable[[ToolCall], Any]) -> ToolResult:
        seen.append(tool_call.arguments)
        amount = json.loads(tool_call.arguments)["amount"]
        return await execute(replace(tool_call, arguments=json.dumps({"amount": 2 * amount})))

    desk = Desk()
    run = desk.agent(tool_middleware=[double]).run("?", approve=["pay"])
    go(end_of(run))
    assert seen == []
    run.approve(arguments={"amount": 7})
    go(end_of(run))
    (result,) = run.history[0].tool_results
    assert desk.done == [14]
    assert (result.arguments, result.executed_arguments) == ('{"amount": 5}', '{"amount": 14}')
    assert (result.approval, result.middleware) == ("edited", "arguments")


def test_calls_that_cannot_be_executed_are_not_asked_about() -> None:
    result = go(end_of(Desk().agent(call("fly", {})).run("?", approve=True)))
    assert result.history[0].tool_results[0].error == "unknown_tool"


# An approver --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "content"),
    [
        (True, "paid 5"),
        (False, UNSAID),
        (Approval.allow({"amount": 2}), "paid 2"),
        (Approval.answer("No need."), "No need."),
        (Approval.refuse("No."), "The person refused: No."),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
def test_an_approver_decides(decision: bool | Approval, content: str, is_async: bool) -> None:
    async def later(pending: lab.PendingCall) -> bool | Approval:
        await asyncio.sleep(0)
        return decision

    approver: Any = later if is_async else lambda pending: decision
    result = go(end_of(Desk().agent().run("?", approve=["pay"], approver=approver)))
    assert result.history[0].tool_results[0].content == content


@pytest.mark.parametrize("approver", [lambda pending: 1 / 0, lambda pending: "yes"], ids=["raises", "returns something else"])
def test_an_approver_that_fails_refuses(approver: Any) -> None:
    desk = Desk()
    with pytest.warns(errors.AgentlabWarning, match="approver"):
        result = go(end_of(desk.agent(approver=approver).run("?", approve=["pay"])))
    assert desk.done == []
    assert result.history[0].tool_results[0].error == "refused"


def test_an_approver_without_approve_warns_once_at_the_start() -> None:
    desk = Desk()
    run = desk.agent(approver=lambda pending: True).run("?")
    with pytest.warns(errors.AgentlabWarning, match="nothing to decide: pass approve=") as warned:
        go(end_of(run))
    assert len(warned) == 1
    edited = desk.agent().run("?", approver=lambda pending: False)
    edited.limits.approve = True
    assert go(end_of(edited)).history[0].tool_results[0].error == "refused"  # without a warning, which would be an error here


def test_each_call_is_asked_about_once() -> None:
    asked: list[str] = []

    async def approver(pending: lab.PendingCall) -> bool:
        asked.append(pending.call_id)
        await asyncio.sleep(0.001)
        return True

    desk = Desk()
    go(end_of(desk.agent(several(*[("pay", {"amount": n}) for n in range(4)])).run("?", approve=True, approver=approver)))
    assert asked == ["c1", "c2", "c3", "c4"]
    assert desk.done == [0, 1, 2, 3]


def test_cancel_ends_a_hanging_approver() -> None:
    async def scenario() -> None:
        async def approver(pending: lab.PendingCall) -> bool:
            await asyncio.sleep(60)
            return True

        run = Desk().agent().run("?", approve=True, approver=approver)
        work = asyncio.ensure_future(end_of(run))
        while not run.pending:
            await asyncio.sleep(0.001)
        assert run.state is RunState.WAITING
        run.cancel()
        assert (await asyncio.wait_for(work, 5)).stop_reason is StopReason.CANCELLED

    go(scenario())


def test_an_approver_that_fails_is_no_person() -> None:
    for approver, cause in (
        (lambda pending: 1 / 0, "The approver raised ZeroDivisionError: division by zero."),
        (lambda pending: "yes", "The approver returned 'yes': return True, False, or lab.Approval.allow(), for example."),
    ):
        run = Desk().agent().run("?", approve=["pay"], approver=approver)  # type: ignore[arg-type]
        with pytest.warns(errors.AgentlabWarning) as warned:
            result = go(end_of(run))
        assert [str(one.message) for one in warned] == [f"{cause} The call of pay is refused."]
        content = "This call could not be approved. It was not executed."
        assert result.history[0].tool_results[0].content == content
        assert [event.text for event in run.events if isinstance(event, events.ApprovalGiven)] == [cause]


def test_arguments_of_an_approver_that_do_not_fit_refuse_the_call() -> None:
    desk = Desk()
    with pytest.warns(
        errors.AgentlabWarning, match=r"do not fit the tool 'pay': amount: Field required.*The call of pay is refused"
    ):
        result = go(end_of(desk.agent().run("?", approve=["pay"], approver=lambda pending: Approval.allow({"sum": 1}))))
    assert (desk.done, result.history[0].tool_results[0].error) == ([], "refused")


# A person there -----------------------------------------------------------------------------------------------------------------


def test_a_run_in_the_background_waits_for_the_person() -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"], budget=lab.Budget(timeout=60))
    run.worker.launch()
    until(lambda: bool(run.pending))
    time.sleep(0.25)
    assert run.state is RunState.WAITING
    assert desk.done == []
    run.approve()
    result = run.wait(timeout_s=5)
    assert result is not None and result.stop_reason is StopReason.COMPLETED
    assert result.history.elapsed_s > 0.25
    assert result.history[0].duration_s > 0.25


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_stop_and_cancel_end_the_wait(how: str) -> None:
    run = Desk().agent().run("?", approve=["pay"])
    run.worker.launch()
    until(lambda: bool(run.pending))
    run.pause()
    getattr(run, how)()
    result = run.wait(timeout_s=5)
    assert result is not None and result.stop_reason in (StopReason.EXPLICIT_STOP, StopReason.CANCELLED)
    assert len(run.history) == 1


def test_a_paused_run_executes_the_call_and_then_waits() -> None:
    run = Desk().agent().run("?", approve=["pay"])
    run.worker.launch()
    until(lambda: bool(run.pending))
    run.pause()
    run.approve()
    until(lambda: len(run.history) == 1 and run.state is RunState.PAUSED)
    assert run.events[-1].step.index == 1
    run.resume()
    assert run.wait(timeout_s=5) is not None


def test_one_decision_counts_if_two_threads_decide() -> None:
    for _ in range(20):
        desk = Desk()
        run = desk.agent().run("?", approve=["pay"])
        go(end_of(run))
        call_id, start = run.pending[0].call_id, threading.Barrier(2)

        def decide(approval: Approval, start: threading.Barrier = start, run: lab.Run = run, call_id: str = call_id) -> None:
            start.wait()
            run.stepper.decide(call_id, approval)

        threads = [threading.Thread(target=decide, args=(one,)) for one in (Approval.allow(), Approval.refuse("No."))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (given,) = [event for event in run.events if isinstance(event, events.ApprovalGiven)]
        go(end_of(run))
        assert run.history[0].tool_results[0].approval == given.decision


def test_start_without_a_page_returns_with_a_run_that_waits() -> None:
    run = Desk().agent().run("?", approve=["pay"]).start()
    assert run.state is RunState.WAITING
    waiting = run.wait()
    assert waiting is not None and waiting.stop_reason is StopReason.AWAITING_APPROVAL
    run.approve()
    assert run.start().result is not None


# The timeout --------------------------------------------------------------------------------------------------------------------


def approver_after(seconds: float) -> Callable[[lab.PendingCall], Any]:
    async def approver(pending: lab.PendingCall) -> bool:
        await asyncio.sleep(seconds)
        return True

    return approver


PAY_WAITED = "Budget reached: timeout 1 s, while the call of pay waited for approval."


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize(("timeout_s", "is_in_time"), [(3.0, True), (2.5, False), (1.0, False)])
def test_the_wait_counts_as_time_and_against_the_timeout(timeout_s: float, is_in_time: bool) -> None:
    desk = Desk()
    agent = desk.agent(call("pay", {"amount": 5}, cost="0.01"))
    run = agent.run("?", approve=["pay"], approver=approver_after(2.5), budget=lab.Budget(timeout=timeout_s))
    result = go(end_of(run))
    assert result.stop_reason is (StopReason.COMPLETED if is_in_time else StopReason.TIMEOUT)
    assert desk.done == [5] * is_in_time
    assert run.history.elapsed_s == pytest.approx(min(timeout_s, 2.5), abs=0.01)
    assert result.history[0].calls and result.history[0].usage.total_tokens
    assert run.to_frame()["duration_s"].sum() == pytest.approx(min(timeout_s, 2.5), abs=0.01)


@pytest.mark.usefixtures("fake_time")
def test_the_step_that_waited_at_the_timeout_is_recorded() -> None:
    desk = Desk()
    answer = several(("look", {"q": "a"}), ("pay", {"amount": 1}), ("look", {"q": "b"}))
    run = desk.agent(answer).run("?", approve=["pay"], approver=approver_after(60), budget=lab.Budget(timeout=1))
    result = go(end_of(run))
    assert (result.stop_reason, result.detail) == (StopReason.TIMEOUT, PAY_WAITED)
    with pytest.raises(errors.TimeoutReached):
        result.raise_for_stop()
    (step,) = run.history
    assert (len(step.calls), step.stop_reason, step.remaining.time_s) == (1, StopReason.TIMEOUT, 0)
    assert [one.content for one in step.tool_results] == ["saw a"]
    assert [one.error for one in run.messages[-1].tool_results] == [None, "not_executed", "not_executed"]
    assert (run.pending, desk.done, run.state) == ((), ["a"], RunState.ENDED)
    assert kinds(run)[-2:] == ["StepCompleted", "RunEnded"]
    run.stepper.decide("c2", Approval.allow())  # too late
    assert run.timeline.clock.elapsed_s() == pytest.approx(1, abs=0.01)


@pytest.mark.usefixtures("fake_time")
def test_an_approver_that_blocks_past_the_timeout_decides_too_late() -> None:
    def approver(pending: lab.PendingCall) -> bool:
        time.sleep(2.5)
        return True

    desk = Desk()
    result = go(end_of(desk.agent().run("?", approve=["pay"], approver=approver, budget=lab.Budget(timeout=1))))
    assert (result.stop_reason, desk.done) == (StopReason.TIMEOUT, [])


@pytest.mark.parametrize("decided_late", [True, False])
@pytest.mark.usefixtures("fake_time")
def test_time_counts_between_two_awaits(decided_late: bool) -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"], budget=lab.Budget(timeout=1))
    assert go(end_of(run)).stop_reason is StopReason.AWAITING_APPROVAL
    time.sleep(0.7)
    assert run.timeline.clock.elapsed_s() == pytest.approx(0.7, abs=0.01)
    result = go(end_of(run))
    assert (result.stop_reason, result.history.elapsed_s) == (StopReason.AWAITING_APPROVAL, pytest.approx(0.7, abs=0.01))
    if decided_late:
        run.approve()
    time.sleep(0.5)
    result = go(end_of(run))
    assert (result.stop_reason, desk.done) == (StopReason.TIMEOUT, [])
    assert result.detail == ("Budget reached: timeout 1 s." if decided_late else PAY_WAITED)
    assert run.result is result


@pytest.mark.usefixtures("fake_time")
def test_time_between_steps_that_no_call_waits_for_does_not_count() -> None:
    async def scenario() -> None:
        run = Desk().agent().run("?", approve=["pay"])
        await run.step()
        run.approve()
        assert await run.step() is not None
        before_s = run.timeline.clock.elapsed_s()
        time.sleep(5)
        assert run.timeline.clock.elapsed_s() == before_s

    go(scenario())


@pytest.mark.usefixtures("fake_time")
def test_a_pause_stops_the_clock_of_a_run_that_waits() -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"], budget=lab.Budget(timeout=1))
    go(end_of(run))
    time.sleep(0.5)
    run.pause()
    time.sleep(3600)
    assert run.timeline.clock.elapsed_s() == pytest.approx(0.5, abs=0.01)
    run.resume()
    time.sleep(0.3)
    run.approve()
    result = go(end_of(run))
    assert (result.stop_reason, desk.done) == (StopReason.COMPLETED, [5])
    assert result.history.elapsed_s == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("nested", [False, True], ids=["the run", "its caller"])
def test_a_pause_stops_the_clock_while_a_person_is_there(nested: bool) -> None:
    desk, budget = Desk(), lab.Budget(timeout=1)
    run = with_child(desk, budget=budget) if nested else desk.agent().run("?", approve=["pay"], budget=budget)
    run.worker.launch()
    until(lambda: bool(run.pending))
    run.pause()
    waiting = run.children[0] if nested else run
    before_s = run.timeline.clock.elapsed_s(), waiting.timeline.clock.elapsed_s()
    time.sleep(1.2)
    assert (run.timeline.clock.elapsed_s(), waiting.timeline.clock.elapsed_s()) == before_s
    assert bool(run.pending) and desk.done == []
    run.resume()
    run.approve()
    result = run.wait(timeout_s=5)
    assert result is not None and (result.stop_reason, desk.done) == (StopReason.COMPLETED, [5])


def test_after_a_pause_the_rest_of_the_time_is_left() -> None:
    run = Desk().agent().run("?", approve=["pay"], budget=lab.Budget(timeout=0.5))
    run.worker.launch()
    until(lambda: bool(run.pending))
    run.pause()
    time.sleep(0.6)
    run.resume()
    result = run.wait(timeout_s=5)
    assert result is not None and result.stop_reason is StopReason.TIMEOUT
    assert result.history.elapsed_s == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("raised", [60, None])
def test_a_timeout_that_is_raised_while_a_call_waits_holds_at_once(raised: float | None) -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"], budget=lab.Budget(max_turns=5, timeout=0.6))
    run.worker.launch()
    until(lambda: bool(run.pending))
    run.limits.timeout = raised
    time.sleep(0.8)
    run.approve()
    result = run.wait(timeout_s=5)
    assert result is not None and (result.stop_reason, desk.done) == (StopReason.COMPLETED, [5])
    assert result.history[0].settings.budget.timeout == raised


def test_a_timeout_that_is_lowered_while_a_call_waits_ends_the_run_at_once() -> None:
    run = Desk().agent().run("?", approve=["pay"], budget=lab.Budget(timeout=60))
    run.worker.launch()
    until(lambda: bool(run.pending))
    run.limits.timeout = 0.01
    result = run.wait(timeout_s=5)
    assert result is not None and result.stop_reason is StopReason.TIMEOUT


@pytest.mark.usefixtures("fake_time")
def test_the_share_for_a_last_answer_is_held_back_from_the_wait() -> None:
    desk = Desk()
    budget = lab.Budget(timeout=10, last_answer=0.2)
    run = desk.agent().run("?", approve=["pay"], approver=approver_after(60), budget=budget)
    result = go(end_of(run))
    assert (result.stop_reason, result.text, desk.done) == (StopReason.TIMEOUT, "Done.", [])
    assert [bool(step.last_answer) for step in run.history] == [False, True]
    assert run.history[0].duration_s == pytest.approx(8, abs=0.01)


@pytest.mark.usefixtures("fake_time")
def test_the_wait_of_a_child_run_counts_for_its_caller() -> None:
    desk = Desk()
    run = with_child(desk, approver=approver_after(2.5), budget=lab.Budget(timeout=1))
    result = go(end_of(run))
    assert (result.stop_reason, result.detail, desk.done) == (StopReason.TIMEOUT, PAY_WAITED, [])
    assert result.history.elapsed_s == pytest.approx(1, abs=0.01)
    (use,) = result.history[0].children
    assert (use.calls, result.history.calls) == (1, 2)
    assert run.children[0].result is not None
    assert len(run.children[0].history) == 1


@pytest.mark.usefixtures("fake_time")
def test_a_child_run_ends_at_its_own_timeout_and_its_caller_goes_on() -> None:
    desk = Desk()
    scout = desk.agent(approve=["pay"]).as_tool("scout", budget=lab.Budget(timeout=1))
    top = lab.Agent(ScriptedProvider([call("scout", {"task": "Pay."}), "All done."]), tools=[scout])
    for approver in (approver_after(2.5), None):
        run = top.run("?", approver=approver)
        result = go(end_of(run))
        if approver is None:
            time.sleep(1.1)
            result = go(end_of(run))
        assert (result.text, desk.done) == ("All done.", [])
        child = run.children[0].result
        assert child is not None and (child.stop_reason, child.detail) == (StopReason.TIMEOUT, PAY_WAITED)
        assert result.history.elapsed_s == pytest.approx(1 if approver else 1.1, abs=0.01)


@pytest.mark.usefixtures("fake_time")
def test_time_counts_for_a_caller_between_two_awaits() -> None:
    desk = Desk()
    run = with_child(desk, budget=lab.Budget(timeout=1))
    go(end_of(run))
    time.sleep(0.5)
    run.pause()
    time.sleep(3600)
    run.resume()
    assert run.timeline.clock.elapsed_s() == pytest.approx(0.5, abs=0.01)
    assert run.children[0].timeline.clock.elapsed_s() == pytest.approx(0.5, abs=0.01)
    time.sleep(0.6)
    result = go(end_of(run))
    assert (result.stop_reason, result.detail, desk.done) == (StopReason.TIMEOUT, PAY_WAITED, [])
    assert result.history.calls == 2


def test_a_raised_timeout_of_a_caller_holds_at_once() -> None:
    desk = Desk()
    run = with_child(desk, budget=lab.Budget(timeout=0.8))
    run.worker.launch()
    until(lambda: bool(run.pending))
    for one in (run, run.children[0]):  # the child began with what was left of its caller's
        one.limits.timeout = 60
    time.sleep(1)
    run.approve()
    result = run.wait(timeout_s=5)
    assert result is not None and (result.text, desk.done) == ("All done.", [5])


@pytest.mark.usefixtures("fake_time")
def test_a_branch_with_a_higher_timeout_asks_about_the_same_call() -> None:
    desk = Desk()
    answer = several(("look", {"q": "a"}), ("pay", {"amount": 1}), ("pay", {"amount": 2}), ("look", {"q": "b"}))
    run = desk.agent(call("look", {"q": "first"}), answer).run("?", approve=["pay"], budget=lab.Budget(timeout=1))
    go(end_of(run))
    asked = run.pending
    run.approve("c2")
    run.approve("c3", refuse="No.")
    time.sleep(1.1)
    assert go(end_of(run)).stop_reason is StopReason.TIMEOUT
    (action,) = run.next_actions
    assert action.label.startswith("Raise the time limit to 2.") and action.label.endswith(" s and continue")
    assert "waits for the decision on the call of pay" in action.why
    branch = run.apply().with_id("again")
    assert (branch.origin.forked_at, len(branch.history), branch.state) == (1, 1, RunState.WAITING)
    assert [replace(one, since=asked[0].since) for one in branch.pending] == [
        replace(one, run_id="again", since=asked[0].since) for one in asked
    ]
    time.sleep(60)  # before it begins
    assert branch.timeline.clock.elapsed_s() == pytest.approx(1.1, abs=0.01)
    seen: list[events.Event] = []
    branch.observe(seen.append)
    assert go(end_of(branch)).stop_reason is StopReason.AWAITING_APPROVAL
    branch.approve("c2")
    branch.approve("c3", refuse="No.")
    time.sleep(0.5)
    result = go(end_of(branch))
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "Done.")
    assert desk.done == ["first", "a", 1, "b"], "what was executed before is not executed again"
    assert [one.content for one in branch.history[1].tool_results] == ["saw a", "paid 1", "The person refused: No.", "saw b"]
    assert branch.history[1].calls == run.history[1].calls
    assert branch.history.calls == 3
    assert branch.history[1].duration_s == pytest.approx(1.6, abs=0.01)
    assert [message.role for message in branch.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert run.history[1].stop_reason is StopReason.TIMEOUT, "the run stays as it is"


@pytest.mark.usefixtures("fake_time")
def test_a_branch_that_waits_to_its_timeout_can_be_continued_once_more() -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"], approver=approver_after(1.5), budget=lab.Budget(timeout=1))
    for _ in range(2):
        assert go(end_of(run)).stop_reason is StopReason.TIMEOUT
        run = run.apply()
    assert 4 <= run.limits.timeout < 5
    assert (go(end_of(run)).text, desk.done, run.history.calls) == ("Done.", [5], 2)


@pytest.mark.usefixtures("fake_time")
def test_a_fork_of_a_run_that_waited_tells_the_model_that_the_call_was_not_executed() -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"], approver=approver_after(2.5), budget=lab.Budget(timeout=1))
    go(end_of(run))
    branch = run.fork(at=1, budget=lab.Budget(timeout=9))
    assert (go(end_of(branch)).text, desk.done) == ("Done.", [])
    assert branch.messages[2].tool_results[0].error == "not_executed"


# Child runs, locksteps, experiments ---------------------------------------------------------------------------------------------


def with_child(desk: Desk, **more: Any) -> lab.Run:
    scout = desk.agent(approve=["pay"]).as_tool("scout", "Pays.")
    top = lab.Agent(ScriptedProvider([call("scout", {"task": "Pay."}), "All done."]), tools=[scout])
    return top.run("?", **more)


def test_a_child_run_waits_without_a_person() -> None:
    desk = Desk()
    run = with_child(desk)
    assert go(end_of(run)).stop_reason is StopReason.AWAITING_APPROVAL
    assert [(one.tool, one.run_id) for one in run.pending] == [("pay", run.children[0].id)]
    assert run.state is RunState.WAITING
    run.approve()
    result = go(end_of(run))
    assert (result.text, desk.done, len(run.children)) == ("All done.", [5], 1)
    assert kinds(run).count("ToolStarted") == kinds(run).count("ChildStarted") == kinds(run).count("ChildEnded") == 1
    assert [use.calls for use in run.history[0].children] == [2]
    assert run.history.calls == 4


def test_the_error_for_a_sub_agents_tool_says_where_its_approval_is_set() -> None:
    run = with_child(Desk())
    for ask in (lambda: with_child(Desk(), approve=["pay"]), lambda: setattr(run.limits, "approve", ["pay"])):
        with pytest.raises(
            errors.LimitError, match=r"fits 'pay'. Its tools: scout. For tools of its sub-agents, pass approve to their"
        ):
            ask()
    with pytest.raises(errors.LimitError, match=r"Its tools: pay, look\.$"):
        Desk().agent(approve=["book"])


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("child_first", [False, True])
def test_a_child_run_waits_beside_a_plain_tool(child_first: bool, parallel: bool) -> None:
    desk = Desk()
    scout = desk.agent(approve=["pay"]).as_tool("scout", "Pays.", parallel=parallel)
    calls = [("look", {"q": "x"}), ("scout", {"task": "Pay."})]
    answer = several(*(reversed(calls) if child_first else calls))
    top = lab.Agent(ScriptedProvider([answer, "All done."]), tools=[lab.tool(parallel=parallel)(desk.look), scout])
    run = top.run("?")
    go(end_of(run))
    run.approve()
    assert go(asyncio.wait_for(end_of(run), 10)).text == "All done."
    assert [result.call_id for result in run.history[0].tool_results] == ["c1", "c2"]


def test_a_call_that_has_begun_is_not_asked_about() -> None:
    desk = Desk()
    run = with_child(desk)
    go(end_of(run))
    run.limits.approve = True
    run.approve(refuse="No.")
    result = go(asyncio.wait_for(end_of(run), 10))
    assert (result.text, desk.done, run.pending) == ("All done.", [], ())


def test_results_stay_with_their_calls_if_a_run_that_waits_is_stopped() -> None:
    desk = Desk()
    scout = desk.agent(approve=["pay"]).as_tool("scout", "Pays.", parallel=True)
    answer = several(("scout", {"task": "Pay."}), ("look", {"q": "x"}))
    run = lab.Agent(ScriptedProvider([answer, "All done."]), tools=[lab.tool(parallel=True)(desk.look), scout]).run("?")
    go(end_of(run))
    run.stop("not now")
    (scouted, looked) = run.messages[-1].tool_results
    assert (scouted.call_id, scouted.error, looked.call_id, looked.content) == ("c1", "not_executed", "c2", "saw x")


def test_the_approver_of_the_outermost_run_decides_for_its_children() -> None:
    desk = Desk()
    result = go(end_of(with_child(desk, approver=lambda pending: True)))
    assert (result.stop_reason, desk.done) == (StopReason.COMPLETED, [5])


def test_the_end_of_the_caller_ends_a_child_that_waits() -> None:
    desk = Desk()
    run = with_child(desk)
    go(end_of(run))
    run.stop("enough")
    assert run.children[0].result is not None
    assert run.pending == ()
    assert len(run.history[0].children) == 1
    assert desk.done == []


def test_a_lockstep_takes_the_others_to_their_end() -> None:
    async def scenario() -> None:
        waits, other = Desk().agent().run("?", approve=["pay"]), Desk().agent().run("?")
        both = lab.Lockstep([waits, other])
        results = await both
        assert [result.stop_reason for result in results] == [StopReason.AWAITING_APPROVAL, StopReason.COMPLETED]
        assert both.results[0] is None
        waits.approve()
        assert [result.stop_reason for result in await both] == [StopReason.COMPLETED] * 2

    go(scenario())


def test_an_experiment_ends_the_run() -> None:
    desk = Desk()
    experiment = Experiment({"careful": desk.agent(approve=["pay"])}, ["?"], store=lab.Store())
    results = go(experiment.run())
    (row,) = results.frame("runs").to_dict("records")
    assert (row["stop_reason"], row["truncated"]) == ("awaiting_approval", True)
    assert desk.done == []


def test_a_chat_gives_a_truncated_answer() -> None:
    async def scenario() -> None:
        desk = Desk()
        with lab.Chat(desk.agent(approve=["pay"])) as chat:
            reply = await chat.chat("anna", "Pay.")
            assert reply.stop_reason is StopReason.AWAITING_APPROVAL
            assert reply.notice in reply.response and "a chat has no one to ask" in reply.notice
            assert desk.done == []
            assert reply.result is not None and reply.result.messages[-1].role == "tool"
            assert (await chat.chat("anna", "And now?")).stop_reason is StopReason.AWAITING_APPROVAL  # a conversation as before

    go(scenario())


def test_an_ended_run_that_waited_can_be_continued() -> None:
    desk = Desk()
    run = desk.agent().run("?", approve=["pay"])
    go(end_of(run))
    run.stepper.end_waiting()
    assert run.result is not None and run.result.stop_reason is StopReason.AWAITING_APPROVAL
    with pytest.raises(errors.AwaitingApproval):
        run.result.raise_for_stop()
    assert run.next_actions[0].at == 0


def test_a_person_is_there_while_a_live_panel_is_shown() -> None:
    run = Desk().agent().run("?", approve=["pay"])
    panel = lab.panel(run)
    assert panel.widget is not None
    assert not run.control.attended, "no page shows it yet"
    panel.carry_out({"do": "hello", "page": "one"})
    assert run.control.attended
    panel.carry_out({"do": "bye", "page": "one"})
    assert not run.control.attended
