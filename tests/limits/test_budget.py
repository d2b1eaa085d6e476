"""The effect of a budget on a run: at most one call above it, the order of stop reasons, and unreported usage."""

from __future__ import annotations

import asyncio
import pickle
import time
import warnings
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from engine.builders import Slow, agent, assert_is_whole, finalize, go, look, looping, result_of, run_of
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import (
    Budget,
    FinishReasonIs,
    HasToolCall,
    MaxCost,
    MaxTokensUsed,
    Reading,
    StepCountIs,
    StopReason,
    TerminatingTools,
)
from agentlab.engine.client import CallContext
from agentlab.engine.limit_increases import raised_limits
from agentlab.errors import AgentlabWarning, MissingUsageError, ProviderConnectionError, ProviderStatusError
from agentlab.limits.budget import DefaultTurns
from agentlab.limits.reading import Action
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest, NativeContent
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import UsageSource
from agentlab.testing import Said, ScriptedProvider, call, say, usage

# Both sides of each limit ---------------------------------------------------------------------------------------------------

LIMITS = {
    "turns": (Budget(max_turns=3), StopReason.TURN_LIMIT, 3),
    "one-turn": (Budget(max_turns=1), StopReason.TURN_LIMIT, 1),
    "default-turns": (Budget(), StopReason.TURN_LIMIT, 20),
    "calls": (Budget(max_calls=3), StopReason.CALL_LIMIT, 3),
    "tokens-below-a-multiple": (Budget(max_tokens=44), StopReason.TOKEN_BUDGET, 3),
    "tokens-at-a-multiple": (Budget(max_tokens=45), StopReason.TOKEN_BUDGET, 3),
    "tokens-above-a-multiple": (Budget(max_tokens=46), StopReason.TOKEN_BUDGET, 4),
    "cost-below-a-multiple": (Budget(max_cost="0.029"), StopReason.COST_BUDGET, 3),
    "cost-at-a-multiple": (Budget(max_cost="0.03"), StopReason.COST_BUDGET, 3),
    "cost-above-a-multiple": (Budget(max_cost="0.031"), StopReason.COST_BUDGET, 4),
    "the-nearest-of-several": (Budget(max_turns=5, max_calls=4, max_tokens=30), StopReason.TOKEN_BUDGET, 2),
    "turns-before-calls": (Budget(max_turns=2, max_calls=2), StopReason.TURN_LIMIT, 2),
}


@pytest.mark.parametrize(("budget", "reason", "taken"), LIMITS.values(), ids=LIMITS.keys())
def test_a_run_ends_at_its_limit_with_every_step(budget: Budget, reason: StopReason, taken: int) -> None:
    run = looping().run("go", budget=budget)
    result = go(_end(run))
    assert result.stop_reason is reason
    assert len(result.history) == taken
    assert result.truncated
    assert not result.terminated
    assert not result.stopped_by_condition
    assert_is_whole(run)
    with pytest.raises(lab.errors.RunStopped) as caught:
        result.raise_for_stop()
    assert caught.value.result is result


async def _end(run: lab.Run) -> lab.RunResult:
    return await run


# The default of max_turns yields to limits that the user sets -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rounds(lab.StopCondition):
    """A custom condition on calls."""

    calls: int = lab.limit_field(unit="calls", minimum=1, help="stop after so many calls")

    def read(self, history: lab.RunHistory) -> Reading:
        return Reading("Rounds", history.calls, self.calls, history.calls >= self.calls)


ENDLESS_BUT_FOR: dict[str, tuple[dict[str, Any], int, StopReason, int]] = {
    "terminating": ({"terminating": ["finalize"]}, 64, StopReason.CALL_LIMIT, 64),
    "invocations": ({"terminating": TerminatingTools(["finalize"], max_invocations=21)}, 21, StopReason.CALL_LIMIT, 21),
    "few-invocations": ({"terminating": TerminatingTools(["finalize"], max_invocations=3)}, 3, StopReason.CALL_LIMIT, 20),
    "steps": ({"stop": StepCountIs(30)}, 30, StopReason.STOP_CONDITION, 30),
    "calls": ({"budget": Budget(max_calls=50)}, 50, StopReason.CALL_LIMIT, 50),
    "own-condition": ({"stop": Rounds(25) | HasToolCall("finalize")}, 25, StopReason.STOP_CONDITION, 25),
    "steps-that-do-not-end-it": ({"stop": StepCountIs(30) & HasToolCall("finalize")}, 30, StopReason.TURN_LIMIT, 30),
    "steps-turned-off": ({"stop": lab.Off(StepCountIs(30))}, 20, StopReason.TURN_LIMIT, 20),
    "the-largest": ({"stop": StepCountIs(22), "budget": Budget(max_calls=50)}, 22, StopReason.STOP_CONDITION, 50),
    "tokens-may-be-unknown": ({"budget": Budget(max_tokens=10**6, max_cost=100, timeout=600)}, 20, StopReason.TURN_LIMIT, 20),
    "twenty-set-by-the-user": ({"stop": StepCountIs(30), "budget": Budget(max_turns=20)}, 20, StopReason.TURN_LIMIT, 20),
    "turns-set-by-the-user": ({"budget": Budget(max_turns=25, max_calls=50)}, 25, StopReason.TURN_LIMIT, 25),
}


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
@pytest.mark.parametrize(("limits", "taken", "reason", "turns"), ENDLESS_BUT_FOR.values(), ids=ENDLESS_BUT_FOR.keys())
@pytest.mark.parametrize("given", ["agent", "run", "edit", "fork", "tool", "pickle"])
def test_the_default_never_overrides_a_limit_that_the_user_set(
    limits: dict[str, Any], taken: int, reason: StopReason, turns: int, given: str
) -> None:
    async def main() -> lab.Run:
        made = lab.Agent(looping().model, tools=[look, finalize], **(limits if given in ("agent", "tool") else {}))
        run = made.run("go", **(limits if given in ("run", "pickle") else {}))
        if given == "edit":
            await run.step()
            run.limits.edit(**limits)
        if given == "fork":
            await run
            run = run.fork(at=2, **limits)
        if given == "tool":
            planner = lab.Agent(ScriptedProvider([call("deeper", {"task": "go"}), "Done."]), tools=[made.as_tool("deeper")])
            caller = planner.run("go")
            await caller
            (run,) = caller.children
        if given == "pickle":
            run.limits.edit(**vars_of(pickle.loads(pickle.dumps(run.limits.snapshot()))))
        assert run.limits.max_turns == turns
        assert f"Budget(max_turns={turns}" in repr(run)
        await run
        return run

    run = go(main())
    result = run.result
    assert result is not None
    assert (len(result.history), result.stop_reason) == (taken, reason)
    assert result.history[-1].remaining.turns == turns - taken
    assert (", the default: Budget(max_turns=…) raises it." in result.detail) is (
        reason is StopReason.TURN_LIMIT and type(run.limits.max_turns) is DefaultTurns
    )


def vars_of(kept: lab.RunSettings) -> dict[str, Any]:
    return {"budget": kept.budget, "stop": kept.stop, "terminating": kept.terminating}


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_the_default_follows_each_edit_and_the_user_may_set_the_same_number() -> None:
    limits = agent([], stop=StepCountIs(8)).run("go").limits
    assert limits.max_turns == 20
    limits.edit_condition("StepCountIs", steps=30)
    assert limits.max_turns == 30
    limits.edit_condition("StepCountIs", steps=8)
    assert limits.max_turns == 20
    limits.max_turns = 20  # the current value, now set explicitly
    limits.edit_condition("StepCountIs", steps=30)
    assert limits.max_turns == 20


@pytest.mark.parametrize(
    ("limits", "edits"),
    [
        ({"terminating": TerminatingTools(["finalize"], max_invocations=21)}, {"max_invocations": 42}),
        ({"budget": Budget(max_calls=21)}, {"max_calls": 42}),
        ({"budget": Budget(max_tokens=20 * 15)}, {"max_tokens": 600, "max_turns": 40}),
    ],
    ids=["invocations", "calls", "tokens"],
)
def test_a_proposal_raises_the_default_only_if_it_does_not_yield(limits: dict[str, Any], edits: dict[str, int]) -> None:
    run = looping().run("go", **limits)
    result = go(_end(run))
    assert raised_limits(run.limits.snapshot(), result.history).edits == edits
    branch = run.apply()
    assert branch.limits.max_turns == max(edits.values()) if "max_turns" not in edits else 40


@pytest.mark.parametrize(("callers", "turns"), [(Budget(), 30), (Budget(max_turns=20), 20), (Budget(max_turns=40), 30)])
def test_a_callers_default_does_not_limit_its_sub_agent(callers: Budget, turns: int) -> None:
    async def main() -> lab.Run:
        deeper = looping().as_tool("deeper", stop=StepCountIs(30))
        caller = agent([call("deeper", {"task": "go"}), "Done."], tools=[deeper]).run("go", budget=callers)
        await caller
        return caller.children[0]

    assert len(go(main()).history) == turns


def test_the_callers_remaining_budget_does_not_raise_the_sub_agents_default() -> None:
    async def main() -> lab.Run:
        script = [call("deeper", {"task": "go"}), "Done."]
        caller = agent(script, tools=[looping().as_tool("deeper")]).run("go", budget=Budget(max_calls=100))
        await caller
        return caller.children[0]

    result = go(main()).result
    assert result is not None
    assert (len(result.history), result.stop_reason) == (20, StopReason.TURN_LIMIT)


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
@pytest.mark.parametrize(("settings", "turns"), [({"stop": StepCountIs(30)}, 30), ({"budget": Budget(max_turns=20)}, 20)])
def test_a_store_distinguishes_a_default_from_a_set_limit(settings: dict[str, Any], turns: int, tmp_path: Path) -> None:
    made = looping()
    with lab.Store(tmp_path / "runs.sqlite") as store:

        async def main() -> tuple[lab.Run, lab.Run]:
            run = made.run("go", observers=[store], **settings)
            await run.step()
            return run, store.resume(run.id, made)

        run, resumed = go(main())
        assert run.limits.max_turns == resumed.limits.max_turns == turns
        resumed.limits.stop = StepCountIs(40)
        assert resumed.limits.max_turns == (40 if turns == 30 else 20)


def test_the_remaining_budget_is_on_every_step() -> None:
    budget = Budget(max_turns=3, max_calls=9, max_tokens=40, max_cost="0.5", timeout=60)
    history = go(_end(looping().run("go", budget=budget))).history
    left = [each.remaining for each in history]
    assert [(each.turns, each.calls, each.tokens, each.cost_usd) for each in left] == [
        (2, 8, 25, Decimal("0.49")),
        (1, 7, 10, Decimal("0.48")),
        (0, 6, 0, Decimal("0.47")),
    ]
    assert all(0 < (each.time_s or 0) < 60 for each in left)


# At most one call above the budget ---------------------------------------------------------------------------------------------

tokens = st.one_of(st.none(), st.integers(0, 40))
answers: st.SearchStrategy[Said] = st.builds(
    lambda kind, used, cost: kind(used, cost),
    st.sampled_from(
        [
            lambda used, cost: call("look", tokens=used, cost=cost),
            lambda used, cost: call("look", tokens=used, cost=cost),
            lambda used, cost: call("nobody", tokens=used, cost=cost),
            lambda used, cost: say("…", finish=FinishReason.PAUSED, tokens=used, cost=cost),
            lambda used, cost: say("end", tokens=used, cost=cost),
            lambda used, cost: ProviderStatusError("no", status=500),
        ]
    ),
    st.tuples(tokens, tokens),
    st.one_of(st.none(), st.sampled_from(["0", "0.01", "0.02", "0.1"])),
)
budgets = st.builds(
    Budget,
    max_turns=st.one_of(st.none(), st.integers(1, 6)),
    max_calls=st.one_of(st.none(), st.integers(1, 6)),
    max_tokens=st.one_of(st.none(), st.integers(1, 120)),
    max_tokens_per_turn=st.one_of(st.none(), st.integers(1, 50)),
    max_cost=st.one_of(st.none(), st.sampled_from(["0.01", "0.05", "0.15"])),
    missing_usage=st.sampled_from(["warn", "estimate", "charge_cap", "fail"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(answers, max_size=8), budgets, st.sampled_from([None, StepCountIs(4), HasToolCall("nobody"), MaxTokensUsed(60)]))
def test_never_more_than_the_budget_and_one_call(script: list[Said], budget: Budget, stop: Any) -> None:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest, index: int) -> Said:
        asked.append(request)
        return script[index - 1] if index <= len(script) else "end"

    async def main() -> lab.Run:
        run = run_of(answer, budget=budget, stop=stop)
        await run
        return run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentlabWarning)  # limits that cannot be enforced are tested below
        run = go(main())
    result, history = run.result, run.history
    assert result is not None
    calls = [each for one in history for each in one.calls]
    refused = sum(isinstance(each, Exception) for each in script[: len(asked)])
    assert len(asked) == len(calls) + refused
    assert [each.index for each in calls] == list(range(1, len(calls) + 1))
    if budget.max_turns is not None:
        assert len(history) <= budget.max_turns
    if budget.max_calls is not None:
        assert len(asked) <= budget.max_calls
    before_the_last = calls[:-1]
    if budget.max_tokens is not None and calls:
        assert sum(each.usage.known_tokens for each in before_the_last) < budget.max_tokens
    if budget.max_cost is not None and calls:
        assert sum(each.cost.usd or 0 for each in before_the_last) < budget.max_cost
    for each in calls:
        if budget.max_tokens_per_turn is not None:
            assert 1 <= (each.requested_cap or 0) <= budget.max_tokens_per_turn
    assert_is_whole(run)
    reached = budget.exhausted(history, 0.0)
    by_budget = (StopReason.TURN_LIMIT, StopReason.CALL_LIMIT, StopReason.TOKEN_BUDGET, StopReason.COST_BUDGET)
    assert (reached is not None) or result.stop_reason not in by_budget
    assert result.stopped_by_condition is bool(history[-1].readings and history[-1].readings.met)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8)), max_size=4))
def test_a_limit_changed_during_the_run_applies_from_the_next_reading(changes: list[tuple[int, int]]) -> None:
    at = dict(changes)
    limits: dict[int, int] = {}

    def edit(event: lab.events.Event) -> None:
        if isinstance(event, lab.events.StepStarted) and event.step in at:
            run.limits.max_turns = at[event.step]
        if isinstance(event, lab.events.StepCompleted):
            limits[event.step.index] = event.step.settings.budget.max_turns or 0

    run = looping().run("go", budget=Budget(max_turns=5), observers=[edit])
    go(_end(run))
    held = 5
    for index, limit in limits.items():
        held = at.get(index, held)
        assert limit == held
    last = len(run.history)
    assert last >= limits[last]
    assert all(index < limit for index, limit in limits.items() if index != last)


# The output cap ----------------------------------------------------------------------------------------------------------------


def test_max_tokens_per_turn_is_sent_and_lowered_to_the_remaining_tokens() -> None:
    caps = []

    def answer(request: ModelRequest, index: int) -> Said:
        caps.append(request.max_output_tokens)
        return call("look", tokens=(10, 5))

    history = result_of(answer, budget=Budget(max_tokens_per_turn=20, max_tokens=50)).history
    assert caps == [20, 20, 20, 16]  # not 5, which OpenAI's Responses API rejects
    assert [each.calls[0].requested_cap for each in history] == caps


@pytest.mark.parametrize("budget", [Budget(), Budget(max_tokens=50)], ids=repr)
def test_without_max_tokens_per_turn_the_provider_chooses_the_cap(budget: Budget) -> None:
    """A provider refuses a cap above its model's maximum, so a large remaining budget is not sent."""
    caps = []

    def answer(request: ModelRequest, index: int) -> Said:
        caps.append(request.max_output_tokens)
        return call("look")

    result_of(answer, budget=budget)
    assert set(caps) == {None}


# Further calls inside a step --------------------------------------------------------------------------------------------------

PAUSED = say("…", finish=FinishReason.PAUSED, cost="0.01")


@pytest.mark.parametrize(
    ("budget", "reason", "calls"),
    [
        pytest.param(Budget(max_calls=2), StopReason.CALL_LIMIT, 2, id="calls"),
        pytest.param(Budget(max_calls=4), StopReason.COMPLETED, 4, id="just-enough-calls"),
        pytest.param(Budget(max_tokens=30), StopReason.TOKEN_BUDGET, 2, id="tokens-at"),
        pytest.param(Budget(max_tokens=31), StopReason.TOKEN_BUDGET, 3, id="tokens-above"),
        pytest.param(Budget(max_cost="0.02"), StopReason.COST_BUDGET, 2, id="cost-at"),
        pytest.param(Budget(max_cost="0.021"), StopReason.COST_BUDGET, 3, id="cost-above"),
        pytest.param(Budget(max_turns=1), StopReason.COMPLETED, 4, id="turns-are-not-calls"),
    ],
)
def test_the_budget_is_read_before_each_further_call_within_a_step(budget: Budget, reason: StopReason, calls: int) -> None:
    run = run_of([PAUSED, PAUSED, PAUSED, "end"], budget=budget)
    result = go(_end(run))
    assert (result.stop_reason, result.history.calls, len(result.history)) == (reason, calls, 1)
    assert_is_whole(run)


def test_endless_pauses_of_a_provider_are_resumed_a_limited_number_of_times() -> None:
    result = result_of(lambda request, index: PAUSED)
    assert result.stop_reason is StopReason.TRUNCATED
    assert result.history.calls == 9
    assert "not resumed after 9 calls" in result.detail


# Order of stop reasons --------------------------------------------------------------------------------------------------------


@lab.tool(inline=True)
def quit_it() -> lab.Stop:
    """End the run."""
    return lab.Stop("found it", {"answer": 42})


async def hang() -> str:
    """Never come back."""
    await asyncio.sleep(60)
    return ""


async def guard(request: ModelRequest, ask: Any) -> ModelResponse:
    raise lab.StopRequested("not on my watch")


TOOLS = [look, quit_it, hang]
ALL = Budget(max_turns=1, max_calls=1, max_tokens=15, max_cost="0.01")
PRIORITY: dict[str, tuple[Said, Any, Budget, StopReason, list[str]]] = {
    "tool-stop-over-condition-and-budget": (
        call("quit_it", cost="0.01"), StepCountIs(1), ALL, StopReason.EXPLICIT_STOP, ["StepCountIs"],
    ),
    "completion-over-condition-and-budget": (
        say("end", cost="0.01"), StepCountIs(1), ALL, StopReason.COMPLETED, ["StepCountIs"],
    ),
    "completion-without-condition": (say("end", cost="0.01"), StepCountIs(2), ALL, StopReason.COMPLETED, []),
    "stop-sequence-is-completion": (
        say("end", finish=FinishReason.STOP_SEQUENCE), StepCountIs(1), Budget(), StopReason.COMPLETED, ["StepCountIs"],
    ),
    "end-turn-with-a-call-pending-is-no-end": (
        replace(call("look"), signal=say("").signal), StepCountIs(1), Budget(), StopReason.STOP_CONDITION, ["StepCountIs"],
    ),
    "condition-over-budget": (
        call("look", cost="0.01"), StepCountIs(1) | HasToolCall("look"), ALL, StopReason.STOP_CONDITION,
        ["StepCountIs", "HasToolCall"],
    ),
    "truncation-over-condition": (
        say("…", finish=FinishReason.MAX_TOKENS, cost="0.01"), FinishReasonIs("max_tokens"), ALL, StopReason.TRUNCATED,
        ["FinishReasonIs"],
    ),
    "filter-over-condition": (
        say("", finish=FinishReason.CONTENT_FILTERED, cost="0.01"), StepCountIs(1), ALL, StopReason.CONTENT_FILTERED, ["StepCountIs"],
    ),
    "error-over-condition": (ProviderConnectionError("gone"), StepCountIs(1), Budget(), StopReason.ERROR, ["StepCountIs"]),
    "condition-over-timeout": (
        call("hang"), HasToolCall("hang"), Budget(timeout=0.05), StopReason.STOP_CONDITION, ["HasToolCall"],
    ),
    "timeout-without-condition": (call("hang"), StepCountIs(2), Budget(timeout=0.05), StopReason.TIMEOUT, []),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize(("answer", "stop", "budget", "reason", "fired"), PRIORITY.values(), ids=PRIORITY.keys())
def test_which_stop_reason_wins(answer: Said, stop: Any, budget: Budget, reason: StopReason, fired: list[str]) -> None:
    run = run_of([answer], stop=stop, budget=replace(budget, missing_usage="estimate"), tools=TOOLS)
    result = go(_end(run))
    assert result.stop_reason is reason
    assert [each.name for each in result.conditions_met] == fired
    assert result.stopped_by_condition is bool(fired)
    assert len(result.history) == 1
    assert_is_whole(run)


def test_a_middlewares_stop_wins_like_a_tools() -> None:
    result = result_of(["end"], stop=StepCountIs(1), middleware=[guard])
    assert (result.stop_reason, result.stopped_by) == (StopReason.EXPLICIT_STOP, "middleware")
    assert result.stopped_by_condition
    assert "not on my watch" in result.detail


def test_the_users_stop_wins_over_completion() -> None:
    async def main() -> lab.RunResult:
        run = agent(lambda request, index: (run.stop("enough"), "end")[1]).run("go", stop=StepCountIs(1))
        return await run

    result = go(main())
    assert (result.stop_reason, result.stopped_by) == (StopReason.EXPLICIT_STOP, "person")
    assert result.stopped_by_condition
    assert result.text == "end"


@pytest.mark.parametrize(
    ("answer", "stop", "terminated"),
    [
        pytest.param("end", None, True, id="completed"),
        pytest.param(call("quit_it"), None, True, id="tool-stop"),
        pytest.param(call("look"), HasToolCall("look"), True, id="goal-condition"),
        pytest.param(call("look"), HasToolCall("look") | StepCountIs(1), True, id="goal-and-limit"),
        pytest.param(call("look"), StepCountIs(1), False, id="limit-condition"),
        pytest.param(call("look"), ~HasToolCall("hang"), False, id="not-a-goal"),
        pytest.param(say("", finish=FinishReason.MAX_TOKENS), HasToolCall("look"), False, id="truncated"),
    ],
)
def test_a_run_is_terminated_or_truncated_never_both(answer: Said, stop: Any, terminated: bool) -> None:
    result = result_of([answer], stop=stop, tools=TOOLS)
    assert (result.terminated, result.truncated) == (terminated, not terminated)
    if terminated:
        assert result.raise_for_stop() is result
    else:
        with pytest.raises(lab.errors.RunStopped):
            result.raise_for_stop()


# Time -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fake_time")
def test_a_timeout_cuts_a_call_and_the_step_is_recorded() -> None:
    async def main() -> lab.Run:
        model = Slow([call("look"), "end"])
        run = lab.Agent(model, tools=[look]).run("go", budget=Budget(timeout=0.2, max_tokens=1000))
        await run.step()
        model.delay_s = 30
        await run
        return run

    started = time.monotonic()
    run = go(main())
    assert time.monotonic() - started == pytest.approx(0.2, abs=0.01)
    result = run.result
    assert result is not None
    assert result.stop_reason is StopReason.TIMEOUT
    cut = result.history[-1]
    assert (cut.index, cut.calls, cut.response, cut.finish_reason, cut.text) == (2, (), None, None, "")
    assert cut.decision.action is Action.ABORT
    assert cut.usage.total_tokens is None, "the call may have been paid for"
    assert (result.history.tokens, result.history.known_tokens) == (None, 15)
    assert (cut.remaining.time_s, cut.remaining.tokens) == (0.0, None)
    assert cut.duration_s > 0
    assert_is_whole(run)


@pytest.mark.usefixtures("fake_time")
def test_a_timeout_cuts_a_tool_whose_result_is_interrupted() -> None:
    run = run_of(
        [
            say(
                finish=FinishReason.TOOL_CALLS,
                calls=[*call("look").tool_calls, *call("hang").tool_calls, *call("quit_it").tool_calls],
            )
        ],
        budget=Budget(timeout=0.1),
        tools=TOOLS,
    )
    result = go(_end(run))
    assert result.stop_reason is StopReason.TIMEOUT
    assert [(each.name, each.error) for each in result.history[-1].tool_results] == [("look", None), ("hang", "interrupted")]
    answers = result.messages[-1].tool_results
    assert [(each.name, each.error) for each in answers] == [("look", None), ("hang", "interrupted"), ("quit_it", "not_executed")]
    assert result.history.tokens == 15, "the call itself returned"
    assert_is_whole(run)


@pytest.mark.usefixtures("fake_time")
def test_paused_time_does_not_count() -> None:
    async def main() -> tuple[lab.Run, float]:
        run = looping().run("go", budget=Budget(timeout=0.3, max_turns=3))
        await run.step()
        run.pause()
        waiting = asyncio.ensure_future(_end(run))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        assert run.state is lab.RunState.PAUSED
        run.resume()
        await waiting
        return run, run.control.paused_s

    run, paused_s = go(main())
    assert run.result is not None
    assert run.result.stop_reason is StopReason.TURN_LIMIT
    assert paused_s >= 0.5
    assert run.history.elapsed_s < 0.3
    resumed = next(event for event in run.events if isinstance(event, lab.events.RunResumed))
    assert resumed.paused_s == pytest.approx(paused_s)


@pytest.mark.usefixtures("fake_time")
def test_time_between_manual_steps_does_not_count() -> None:
    async def main() -> lab.Run:
        run = looping().run("go", budget=Budget(timeout=0.25, max_turns=2))
        await run.step()
        await asyncio.sleep(0.4)
        await run.step()
        return run

    run = go(main())
    assert run.result is not None
    assert run.result.stop_reason is StopReason.TURN_LIMIT


@pytest.mark.usefixtures("fake_time")
def test_the_time_of_tools_counts() -> None:
    @lab.tool
    def slow() -> str:
        time.sleep(0.3)
        return "slept"

    result = result_of([call("slow"), call("slow"), call("slow"), "end"], tools=[slow], budget=Budget(timeout=0.5))
    assert result.stop_reason is StopReason.TIMEOUT
    assert len(result.history) == 2


def test_a_timeout_error_raised_by_a_middleware_is_its_error() -> None:
    async def impatient(request: ModelRequest, ask: Any) -> ModelResponse:
        raise TimeoutError("mine")

    run = run_of(["end"], budget=Budget(timeout=30), middleware=[impatient])
    result = go(_end(run))
    assert (result.stop_reason, result.detail) == (StopReason.ERROR, "The middleware impatient raised TimeoutError: mine")
    assert_is_whole(run)


# No limit, and no usage -------------------------------------------------------------------------------------------------------


def test_a_budget_without_any_limit_warns_when_the_run_starts() -> None:
    run = run_of(["end"], budget=Budget(max_turns=None))
    with pytest.warns(AgentlabWarning, match="This run has no limit: "):
        go(_end(run))
    warned = [event.message for event in run.events if isinstance(event, lab.events.Warned)]
    assert [message[:21] for message in warned] == ["This run has no limit"]


def test_without_usage_a_token_limit_warns_once_and_the_sum_is_unknown() -> None:
    run = run_of([call("look", tokens=(None, None))] * 3 + [say("end", cost="0.1")], budget=Budget(max_tokens=10, max_cost=1))
    with pytest.warns(
        AgentlabWarning, match="reports no usage, so only what is known counts toward max_tokens and max_cost"
    ) as caught:
        result = go(_end(run))
    assert len(caught) == 1
    assert result.stop_reason is StopReason.COMPLETED
    assert result.history.tokens is None
    assert result.history[-1].remaining.tokens is None
    assert all(each.usage.source is UsageSource.UNKNOWN for each in result.history[:3])


def test_without_usage_a_token_condition_warns_too() -> None:
    run = run_of([say("end", tokens=(None, None))], stop=MaxTokensUsed(5) | (MaxCost(1) & StepCountIs(1)))
    with pytest.warns(AgentlabWarning, match="reports no usage, .* counts toward MaxTokensUsed and MaxCost"):
        go(_end(run))
    with pytest.warns(AgentlabWarning, match="reports only a part of the usage, .* counts toward MaxOutputTokens"):
        go(_end(run_of([say("end", tokens=(5, None))], stop=lab.MaxOutputTokens(5))))
    go(_end(run_of([say("end", tokens=(None, 5))], stop=lab.MaxOutputTokens(5))))  # what counts is known: no warning


def test_without_a_price_a_cost_limit_warns_once() -> None:
    run = run_of([call("look")] * 3 + ["end"], budget=Budget(max_cost=1))
    with pytest.warns(
        AgentlabWarning, match="price of scripted .script. is not known, so only what is known counts toward max_cost"
    ) as caught:
        result = go(_end(run))
    assert len(caught) == 1
    assert result.history.cost_usd is None


def test_with_a_reported_cost_but_no_usage_only_the_token_limit_is_unenforceable() -> None:
    run = run_of([say("end", tokens=(None, None), cost="0.01")], budget=Budget(max_cost=1, max_tokens=5))
    with pytest.warns(AgentlabWarning, match="counts toward max_tokens"):
        assert go(_end(run)).history.cost_usd == Decimal("0.01")


@pytest.mark.parametrize("script", [["end"], [say("end", tokens=(None, None))]], ids=["no-price", "no-usage"])
def test_without_a_limit_on_it_missing_usage_is_not_reported(script: list[Said]) -> None:
    assert result_of(script).stop_reason is StopReason.COMPLETED  # warnings are errors here


def test_missing_usage_estimate_counts_four_characters_per_token() -> None:
    script = [say("x" * 41, tokens=(None, None)), "end"]
    result = result_of(script, budget=Budget(missing_usage="estimate"), tools=[], instructions="i" * 38)
    used = result.history[0].usage
    assert (used.input_tokens, used.output_tokens) == (10, 11)  # "go" and the instructions; 41 characters, rounded up
    assert used.source is UsageSource.ESTIMATED
    assert result.history.tokens == 21


def test_missing_usage_estimate_keeps_reported_usage() -> None:
    script = [say("x" * 40, tokens=(7, None)), "end"]
    used = result_of(script, budget=Budget(missing_usage="estimate")).history[0].usage
    assert (used.input_tokens, used.output_tokens, used.source) == (7, 10, UsageSource.ESTIMATED)


def test_missing_usage_estimate_enforces_the_token_limit() -> None:
    result = result_of(
        lambda request, index: call("look", {"q": "x" * 100}, tokens=(None, None)),
        budget=Budget(missing_usage="estimate", max_tokens=300),
    )
    assert result.stop_reason is StopReason.TOKEN_BUDGET
    assert len(result.history) < 20


def test_missing_usage_charge_cap_charges_the_cap() -> None:
    budget = Budget(missing_usage="charge_cap", max_tokens_per_turn=500, max_tokens=800)
    result = result_of(lambda request, index: call("look", tokens=(5, None)), budget=budget)
    assert [each.usage.output_tokens for each in result.history] == [500, 295]
    assert result.history[0].usage.source is UsageSource.CHARGED_CAP
    assert result.stop_reason is StopReason.TOKEN_BUDGET
    assert result.history.tokens == 805


def test_missing_usage_charge_cap_without_a_cap_estimates() -> None:
    used = result_of([say("x" * 8, tokens=(None, None))], budget=Budget(missing_usage="charge_cap")).history[0].usage
    assert (used.output_tokens, used.source) == (2, UsageSource.ESTIMATED)


@pytest.mark.parametrize("reported", [(None, None), (5, None), (None, 5)], ids=str)
def test_missing_usage_fail_ends_the_run_and_keeps_the_step(reported: tuple[int | None, int | None]) -> None:
    run = run_of([call("look"), call("look", tokens=reported)], budget=Budget(missing_usage="fail"))
    result = go(_end(run))
    assert result.stop_reason is StopReason.ERROR
    assert isinstance(result.error, MissingUsageError)
    assert "missing_usage='fail'" in result.detail
    assert len(result.history) == 2
    assert result.history[-1].calls[0].response.tool_calls[0].name == "look"
    assert_is_whole(run)


def test_incomplete_reported_usage_is_missing() -> None:
    half = replace(say("end"), usage=replace(usage(5, None), source=UsageSource.REPORTED))
    assert result_of([half], budget=Budget(missing_usage="fail")).stop_reason is StopReason.ERROR


# Middleware and the budget ----------------------------------------------------------------------------------------------------


async def twice(request: ModelRequest, ask: Any) -> ModelResponse:
    """Ask again, for any first answer."""
    await ask(request)
    return await ask(request)


def test_every_call_of_a_middleware_is_counted() -> None:
    run = run_of([say("bad", cost="0.01"), say("good", cost="0.02")], middleware=[twice], budget=Budget(max_cost=1))
    result = go(_end(run))
    assert result.text == "good"
    assert (result.history.calls, result.history.tokens, result.history.cost_usd) == (2, 30, Decimal("0.03"))
    assert [(each.response.text, each.used) for each in result.history[0].calls] == [("bad", False), ("good", True)]
    assert [message.text for message in result.messages] == ["go", "good"]


@pytest.mark.parametrize(("limit", "calls"), [(1, 1), (2, 2), (3, 3), (4, 4)])
def test_a_middleware_cannot_exceed_the_call_limit(limit: int, calls: int) -> None:
    run = run_of(lambda request, index: call("look"), middleware=[twice], budget=Budget(max_calls=limit))
    result = go(_end(run))
    assert result.stop_reason is StopReason.CALL_LIMIT
    assert result.history.calls == calls
    assert_is_whole(run)


def test_a_stop_after_the_answer_keeps_the_answer() -> None:
    """A guard that reads the answer and stops: the call was paid for and is in the step."""

    async def look_at_it(request: ModelRequest, ask: Any) -> ModelResponse:
        response = await ask(request)
        raise lab.StopRequested("said too much", output=response.text)

    run = run_of([call("look", text="secret", cost="0.01")], middleware=[look_at_it])
    result = go(_end(run))
    assert (result.stop_reason, result.output) == (StopReason.EXPLICIT_STOP, "secret")
    assert (result.history.calls, result.history.tokens, result.history.cost_usd) == (1, 15, Decimal("0.01"))
    assert result.history[0].text == "secret"
    assert_is_whole(run)


def test_a_stop_before_the_call_costs_nothing() -> None:
    run = run_of(["end"], middleware=[guard])
    result = go(_end(run))
    assert (len(result.history), result.history.calls, result.history.tokens, result.history.cost_usd) == (1, 0, 0, 0)
    assert_is_whole(run)


async def buggy(request: ModelRequest, ask: Any) -> ModelResponse:
    await ask(request)
    raise KeyError("oops")


async def passing(request: ModelRequest, ask: Any) -> ModelResponse:
    return await ask(request)  # type: ignore[no-any-return]


async def rewording(request: ModelRequest, ask: Any) -> ModelResponse:
    try:
        return await ask(request)  # type: ignore[no-any-return]
    except Exception as error:
        raise RuntimeError("reworded") from error


@pytest.mark.parametrize(
    ("layers", "answer"),
    [
        ([buggy], "The middleware buggy raised KeyError: 'oops'"),
        ([passing, buggy], "The middleware buggy raised KeyError: 'oops'"),
        ([rewording, buggy], "The middleware rewording raised RuntimeError: reworded"),
    ],
    ids=["alone", "let-pass", "reworded"],
)
def test_a_bug_in_a_middleware_is_an_error_result_that_names_it(layers: list[Any], answer: str) -> None:
    run = run_of([call("look")], middleware=layers)
    result = go(_end(run))
    assert (result.stop_reason, result.detail) == (StopReason.ERROR, answer)
    assert type(result.error).__name__ in answer
    assert (run.history.calls, run.history.tokens) == (1, 15)
    assert_is_whole(run)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (lab.errors.ProviderStatusError("busy", status=500), False),
        (lab.errors.MissingKeyError("no key"), True),
        (RuntimeError("bug"), True),
    ],
    ids=["provider", "configuration", "a-bug-in-the-model"],
)
def test_an_exception_of_a_call_is_not_blamed_on_the_surrounding_middleware(error: Exception, raised: bool) -> None:
    run = run_of([error], middleware=[passing])
    if raised:
        with pytest.raises(type(error)):
            go(_end(run))
    else:
        go(_end(run))
    assert run.result is not None
    assert (run.result.stop_reason, run.result.error) == (StopReason.ERROR, error)
    assert "middleware" not in run.result.detail


def test_a_middleware_that_returns_nothing_is_an_error_with_advice() -> None:
    async def forgetful(request: ModelRequest, ask: Any) -> Any:
        await ask(request)

    run = run_of(["end"], middleware=[forgetful])
    with pytest.raises(lab.errors.ConfigurationError, match=r"forgetful.* returned None: return the response"):
        go(_end(run))
    assert_is_whole(run)


def test_middleware_runs_in_order_may_change_both_ways_and_may_answer_itself() -> None:
    order = []

    def layer(name: str) -> Any:
        async def middleware(request: ModelRequest, ask: Any) -> ModelResponse:
            order.append(f"{name} asks")
            response = await ask(replace(request, instructions=request.instructions + name))
            order.append(f"{name} answers")
            return replace(response, text=response.text + name)

        return middleware

    def answer(request: ModelRequest, index: int) -> Said:
        assert request.instructions == "AB"
        return "end"

    result = result_of(answer, middleware=[layer("A"), layer("B")])
    assert order == ["A asks", "B asks", "B answers", "A answers"]
    assert result.text == "endBA"
    assert result.history.tokens == 15

    async def cached(request: ModelRequest, ask: Any) -> ModelResponse:
        return say("from a cache", tokens=(0, 0))

    from_cache = result_of([], middleware=[cached])
    assert (from_cache.text, from_cache.history.tokens, from_cache.stop_reason) == ("from a cache", 0, StopReason.COMPLETED)


def test_content_removed_by_a_middleware_is_not_sent_again() -> None:
    """A provider's native form of the turn would still contain the text."""
    own = NativeContent("wire", {"text": "secret"})

    async def redact(request: ModelRequest, ask: Any) -> ModelResponse:
        response = await ask(request)
        return replace(response, text=response.text.replace("secret", "█"))

    script = [replace(call("look", text="secret"), native=own), replace(say("end"), native=own)]
    result = result_of(script, middleware=[redact])
    assert [(message.text, message.native) for message in result.messages if message.role == "assistant"] == [
        ("█", None),
        ("end", own),
    ]
    assert result.history[0].text == "█"


class Failing:
    """A model that fails once during transport, then answers."""

    name, model = "failing", "once"

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        raise ProviderConnectionError("reset by peer")


def test_a_provider_error_is_an_outcome_and_its_usage_unknown() -> None:
    run = lab.Agent(Failing()).run("go")
    result = go(_end(run))
    assert result.stop_reason is StopReason.ERROR
    assert isinstance(result.error, ProviderConnectionError)
    assert result.history.tokens is None, "the number of tokens generated before the connection broke is unknown"
    assert_is_whole(run)


def test_a_refused_call_costs_nothing() -> None:
    result = result_of([ProviderStatusError("bad request", status=400)])
    assert isinstance(result.error, ProviderStatusError)
    assert (result.history.tokens, result.history.cost_usd) == (0, 0)
