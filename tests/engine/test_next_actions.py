"""The proposals for each end of a run, and that following one makes progress."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentlab as lab
from agentlab import (
    Budget,
    ContinuationPolicy,
    FinishReasonIs,
    HasToolCall,
    MaxCost,
    MaxTokensUsed,
    NextAction,
    StepCountIs,
    StopReason,
    TerminatingTools,
    errors,
)
from agentlab._internal.formatting import in_words
from agentlab.engine.limit_increases import larger
from agentlab.engine.next_actions import nothing_to_do
from agentlab.limits.combinators import Off, StopCondition
from agentlab.limits.fields import limit_field
from agentlab.limits.reading import Action, Reading
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.records.history import RunHistory
from agentlab.records.result import FOR_STOP_REASON
from agentlab.testing import call, say
from engine.builders import agent, assert_is_whole, go, looping, run_of


async def to_the_end(run: lab.Run) -> lab.RunResult:
    return await run


def ended(run: lab.Run) -> lab.Run:
    """Run to the end, even if it raises."""
    try:
        go(to_the_end(run))
    except (errors.ConfigurationError, errors.FixtureError):
        assert run.result is not None
    return run


def went_on(run: lab.Run, proposal: NextAction | None = None, *, prompt: str | None = None) -> lab.Run:
    """Follow the proposal to the end of its branch; assert that the branch made progress and kept the earlier steps."""
    chosen = proposal or run.next_actions[0]
    branch = run.apply(proposal, prompt=prompt)
    assert (branch.origin.parent, branch.origin.forked_at, branch.result) == (run, chosen.at, None)
    assert [one.calls for one in branch.history] == [one.calls for one in run.history[: chosen.at]]
    ended(branch)
    assert len(branch.history) > chosen.at, branch.result
    assert_is_whole(branch)
    return branch


# Limits of the budget ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "reason", "steps", "label", "edits"),
    [
        (Budget(max_turns=3), "turn_limit", 3, "Raise the turn limit to 6 and continue", {"max_turns": 6}),
        (Budget(max_calls=2), "call_limit", 2, "Raise the call limit to 4 and continue", {"max_calls": 4}),
        (Budget(max_tokens=40), "token_budget", 3, "Raise the token budget to 85 and continue", {"max_tokens": 85}),
        (Budget(max_tokens=30), "token_budget", 2, "Raise the token budget to 60 and continue", {"max_tokens": 60}),
        (Budget(max_tokens=1), "token_budget", 1, "Raise the token budget to 30 and continue", {"max_tokens": 30}),
        (Budget(max_cost="0.05"), "cost_budget", 5, "Raise the cost budget to $0.10 and continue", {"max_cost": Decimal("0.10")}),
        (
            Budget(max_cost="0.0004"),
            "cost_budget",
            1,
            "Raise the cost budget to $0.02 and continue",
            {"max_cost": Decimal("0.02")},
        ),
        (
            Budget(max_turns=2, max_tokens=30, max_calls=9),
            "turn_limit",
            2,
            "Raise the turn limit to 4 and the token budget to 60 and continue",
            {"max_turns": 4, "max_tokens": 60},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else None,
)
def test_an_exhausted_limit_is_raised(budget: Budget, reason: str, steps: int, label: str, edits: dict[str, Any]) -> None:
    run = ended(looping().run("go", budget=budget))
    assert run.result is not None
    assert (run.result.stop_reason, len(run.history)) == (reason, steps)
    (proposal,) = run.next_actions
    assert (proposal.kind, proposal.label, proposal.at, dict(proposal.edits)) == ("increase_budget", label, steps, edits)
    branch = went_on(run)
    for name, value in edits.items():
        assert getattr(branch.limits, name) == value
    assert branch.next_actions, "the new limit is reached later and raised again"
    assert run.limits.snapshot().budget == budget


@pytest.mark.parametrize("finish", [FinishReason.END_TURN, FinishReason.TOOL_CALLS, FinishReason.MAX_TOKENS])
def test_a_run_that_ended_with_text_and_half_a_tool_call_continues(finish: FinishReason) -> None:
    half = call("look", '{"q": "no').tool_calls
    model = agent([say("Let me look. ", finish=finish, calls=half), "whole"], continuation=ContinuationPolicy())
    run = ended(model.run("go", budget=Budget(max_calls=1)))
    (proposal,) = run.next_actions
    assert (proposal.label, proposal.at) == ("Raise the call limit to 2 and continue", 1)
    assert went_on(run).history[-1].text == "whole"


def test_a_limit_that_left_too_few_tokens_for_a_further_call_is_raised() -> None:
    half = say("half", finish=FinishReason.MAX_TOKENS, tokens=(10, 100))
    model = agent([half, "whole"], continuation=ContinuationPolicy())
    run = ended(model.run("go", budget=Budget(max_tokens=112, max_tokens_per_turn=100)))
    (proposal,) = run.next_actions
    assert (proposal.label, proposal.at) == ("Raise the token budget to 224 and continue", 1)
    run.limits.max_tokens = 300
    (proposal,) = run.next_actions
    assert (proposal.label, proposal.why[:34]) == ("Continue from step 1", "The limits have been raised since:")
    went_on(run)


def test_awaiting_an_ended_run_again_says_that_edited_limits_continue_in_a_branch() -> None:
    limited = ended(looping().run("go", budget=Budget(max_turns=2)))
    stopped = ended(looping().run("go", stop=lab.StepCountIs(2)))
    for run in (limited, stopped):
        ended(run)  # the same result, and no word
    limited.limits.max_turns = stopped.limits.max_turns = 5
    stopped.limits.stop = lab.StepCountIs(3)
    for run in (limited, stopped):
        with pytest.warns(lab.AgentlabWarning, match=r"the same result as before: .* await run.apply\(\) continues"):
            assert go(to_the_end(run)) is run.result
        went_on(run)


def test_a_limit_of_the_caller_is_not_taken_for_one_that_was_raised() -> None:
    caller = agent([call("below", {"task": "?"}), "done"], tools=[looping().as_tool("below")])
    run = ended(caller.run("go", budget=Budget(max_turns=2)))
    (below,) = run.children
    assert below.result is not None
    assert below.result.stop_reason is StopReason.TURN_LIMIT
    (proposal,) = below.next_actions
    assert (proposal.label, proposal.why[:52]) == ("Continue from step 2", "The limit was its caller's, which does not apply to ")
    went_on(below)


@pytest.mark.usefixtures("fake_time")
def test_a_raised_time_limit_includes_the_time_of_the_kept_steps() -> None:
    async def slow() -> str:
        await asyncio.sleep(0.03)
        return "done"

    run = ended(agent(lambda request, index: call("slow"), tools=[slow]).run("go", budget=Budget(timeout=0.1)))
    assert run.result is not None
    assert run.result.stop_reason is StopReason.TIMEOUT
    (proposal,) = run.next_actions
    assert proposal.label.startswith("Raise the time limit to ")
    assert proposal.edits["timeout"] >= 0.2
    branch = went_on(run)
    assert branch.history.elapsed_s > run.history.elapsed_s


@pytest.mark.usefixtures("fake_time")
def test_a_step_cut_by_the_time_limit_is_kept_and_the_model_asked_again() -> None:
    waits = [9.0, 0.01]

    async def stuck(request: ModelRequest, ask: Any) -> ModelResponse:
        await asyncio.sleep(waits.pop(0))
        return say("late")

    run = ended(agent([], middleware=[stuck]).run("go", budget=Budget(timeout=0.15)))
    (proposal,) = run.next_actions
    assert proposal.at == 1
    assert proposal.edits["timeout"] >= 0.3
    branch = went_on(run)
    assert branch.result is not None
    assert branch.result.text == "late"


def test_the_call_limit_of_terminating_tools_is_raised() -> None:
    run = ended(looping().run("go", terminating=TerminatingTools(["finalize"], max_invocations=2)))
    (proposal,) = run.next_actions
    assert proposal.label == "Raise the call limit of the terminating tools to 4 and continue"
    branch = went_on(run)
    assert branch.limits.max_invocations == 4
    assert (len(branch.history), branch.limits.tools) == (4, ("finalize",))


def test_a_limit_that_was_raised_since_is_left_unchanged() -> None:
    run = ended(looping().run("go", budget=Budget(max_turns=2)))
    run.limits.max_turns = 3
    (proposal,) = run.next_actions
    assert (proposal.label, dict(proposal.edits)) == ("Continue from step 2", {})
    assert len(went_on(run).history) == 3


def test_a_cut_answer_without_remaining_calls_is_continued() -> None:
    script = [say("half of", finish=FinishReason.MAX_TOKENS), "the rest"]
    run = ended(agent(script, continuation=ContinuationPolicy()).run("go", budget=Budget(max_calls=1)))
    assert run.result is not None
    assert run.result.stop_reason is StopReason.CALL_LIMIT
    branch = went_on(run)
    assert branch.result is not None
    assert (branch.result.stop_reason, branch.result.text) == (StopReason.COMPLETED, "the rest")


# Conditions ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
@pytest.mark.parametrize(
    ("stop", "labels"),
    [
        (StepCountIs(2), ["Raise StepCountIs to 4 and continue", "Turn StepCountIs off and continue"]),
        (MaxTokensUsed(25), ["Raise MaxTokensUsed to 55 and continue", "Turn MaxTokensUsed off and continue"]),
        (MaxCost("0.02"), ["Raise MaxCost to $0.04 and continue", "Turn MaxCost off and continue"]),
        (FinishReasonIs("tool_calls"), ["Turn FinishReasonIs off and continue"]),
        (~HasToolCall("finalize"), ["Turn HasToolCall off and continue"]),
        (lambda history: len(history) >= 2, ["Turn custom off and continue"]),
        (StepCountIs(2) | StepCountIs(5), ["Raise StepCountIs to 4 and continue", "Turn StepCountIs off and continue"]),
        (StepCountIs(5) | StepCountIs(2), ["Raise StepCountIs_2 to 4 and continue", "Turn StepCountIs_2 off and continue"]),
        (
            StepCountIs(2) | MaxTokensUsed(30),
            [
                "Raise StepCountIs to 4 and MaxTokensUsed to 60 and continue",
                "Turn StepCountIs and MaxTokensUsed off and continue",
            ],
        ),
        (
            StepCountIs(2) & MaxTokensUsed(30),
            ["Raise StepCountIs to 4 and continue", "Turn StepCountIs and MaxTokensUsed off and continue"],
        ),
        (StepCountIs(1) | FinishReasonIs("tool_calls"), ["Turn StepCountIs and FinishReasonIs off and continue"]),
        (Off(StepCountIs(1)) | StepCountIs(2), ["Raise StepCountIs_2 to 4 and continue", "Turn StepCountIs_2 off and continue"]),
        (~~StepCountIs(2), ["Raise StepCountIs to 4 and continue", "Turn StepCountIs off and continue"]),
        (~(StepCountIs(1) & HasToolCall("finalize")), ["Turn StepCountIs and HasToolCall off and continue"]),
    ],
    ids=lambda given: "custom" if callable(given) else repr(given),
)
def test_a_met_condition_is_raised_or_turned_off(stop: Any, labels: list[str]) -> None:
    run = ended(looping().run("go", stop=stop, budget=Budget(max_turns=6)))
    assert run.result is not None
    assert run.result.stop_reason is StopReason.STOP_CONDITION
    assert [one.label for one in run.next_actions] == labels
    for proposal in run.next_actions:
        branch = went_on(run, proposal)
        assert branch.limits.conditions.keys() == run.limits.conditions.keys(), "conditions that were turned off are kept"


def test_a_limit_met_in_the_same_step_is_raised_with_the_condition() -> None:
    run = ended(looping().run("go", stop=StepCountIs(2), budget=Budget(max_turns=2)))
    assert [one.label for one in run.next_actions] == [
        "Raise StepCountIs to 4 and the turn limit to 4 and continue",
        "Turn StepCountIs off, raise the turn limit to 4 and continue",
    ]
    for proposal in run.next_actions:
        went_on(run, proposal)


def test_unknown_usage_does_not_prevent_a_proposal() -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        return call("look", tokens=(30, None) if index == 2 else (10, 5))

    with pytest.warns(lab.AgentlabWarning, match="only a part of the usage"):
        run = ended(run_of(script, stop=MaxTokensUsed(40)))
    assert run.next_actions[0].label == "Raise MaxTokensUsed to 80 and continue"


def test_a_condition_on_the_agents_own_action_gets_no_proposal() -> None:
    run = ended(run_of([call("finalize")], stop=HasToolCall("finalize") | StepCountIs(1)))
    assert run.next_actions == ()
    assert "finished on its own" in nothing_to_do(run)


def test_a_condition_that_was_changed_since_is_not_changed_again() -> None:
    run = ended(looping().run("go", stop=StepCountIs(2), budget=Budget(max_turns=4)))
    run.limits.stop = StepCountIs(3)
    (proposal,) = run.next_actions
    assert (proposal.kind, proposal.label) == ("continue", "Continue from step 2")
    assert len(went_on(run).history) == 3


@dataclass(frozen=True)
class _Fewer(StopCondition):
    """Met below a number: raising the number does not help."""

    than: int = limit_field(unit="steps", minimum=1, help="met below it")

    def read(self, history: RunHistory) -> Reading:
        return Reading("_Fewer", len(history), self.than, len(history) < self.than)


@dataclass(frozen=True)
class _AtMostThree(StopCondition):
    """Refuses a number above 3."""

    steps: int = limit_field(unit="steps", minimum=1, help="met at it")

    def __post_init__(self) -> None:
        if self.steps > 3:
            raise ValueError("at most 3")

    def read(self, history: RunHistory) -> Reading:
        return Reading("_AtMostThree", len(history), self.steps, len(history) >= self.steps)


@dataclass(frozen=True)
class _Boundless(StopCondition):
    """Reads a figure that is above every number, or NaN."""

    most: int = limit_field(unit="steps", minimum=1, help="met above it")
    figure: float = math.inf

    def read(self, history: RunHistory) -> Reading:
        return Reading("_Boundless", self.figure, self.most, not self.figure <= self.most)


@pytest.mark.parametrize("stop", [_Fewer(5), _AtMostThree(2), _Boundless(2), _Boundless(2, math.nan)], ids=repr)
def test_a_custom_condition_that_no_number_satisfies_is_turned_off(stop: StopCondition) -> None:
    run = ended(looping().run("go", stop=stop, budget=Budget(max_turns=3)))
    assert [one.label for one in run.next_actions] == [f"Turn {type(stop).__name__} off and continue"]
    went_on(run)


# Incomplete responses -------------------------------------------------------------------------------------------------------------


def cutting(until: int) -> Any:
    """A script whose answers are cut at their cap while it is below `until`."""

    def script(request: ModelRequest, index: int) -> ModelResponse:
        cap = request.max_output_tokens or 50
        if index == 1:
            return call("look")
        return say(f"{index} is one more word ", finish=FinishReason.MAX_TOKENS, tokens=(5, cap)) if cap < until else say("whole")

    return script


def test_a_cut_answer_is_retried_with_twice_the_cap() -> None:
    run = ended(run_of(cutting(100), budget=Budget(max_tokens_per_turn=50)))
    (proposal,) = run.next_actions
    assert (proposal.kind, proposal.label) == ("increase_budget", "Raise the output cap to 100 and repeat step 2")
    assert (proposal.at, dict(proposal.edits)) == (1, {"max_tokens_per_turn": 100})
    assert went_on(run).result.text == "whole"  # type: ignore[union-attr]


def test_without_a_cap_the_cap_is_twice_the_received_tokens() -> None:
    run = ended(run_of(cutting(100)))
    assert dict(run.next_actions[0].edits) == {"max_tokens_per_turn": 100}
    assert went_on(run).result.text == "whole"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("policy", "edits"),
    [
        (
            ContinuationPolicy(max_continuations_per_turn=1),
            {"max_continuations_per_turn": 2, "max_tokens_per_turn": 100},
        ),
        (ContinuationPolicy(max_total_output_chars_per_turn=20), {"max_total_output_chars_per_turn": 40}),  # not the cap
        (
            ContinuationPolicy(max_total_completion_tokens_per_turn=60),
            {"max_total_completion_tokens_per_turn": 120, "max_tokens_per_turn": 20},
        ),
        (ContinuationPolicy(max_continuations_per_turn=9), {"max_tokens_per_turn": 100}),
    ],
    ids=["continuations", "characters", "tokens", "four times the cap"],
)
def test_the_exhausted_cap_on_continuations_is_raised(policy: ContinuationPolicy, edits: dict[str, Any]) -> None:
    run = ended(agent(cutting(9999), continuation=policy).run("go", budget=Budget(max_tokens_per_turn=50)))
    assert run.result is not None
    assert run.result.stop_reason is StopReason.TRUNCATED
    (proposal,) = run.next_actions
    assert {**proposal.edits, "max_tokens_per_turn": None} == {**edits, "max_tokens_per_turn": None}
    branch = went_on(run)
    assert len(branch.history[1].calls) >= len(run.history[1].calls)
    assert len(branch.history[1].text) >= len(run.history[1].text)


def test_half_a_tool_call_is_requested_once_more() -> None:
    half = say("", finish=FinishReason.MAX_TOKENS, tokens=(5, 50), calls=call("look", '{"q": "no').tool_calls)
    run = ended(agent([half] * 9, continuation=ContinuationPolicy()).run("go", budget=Budget(max_tokens_per_turn=50)))
    (proposal,) = run.next_actions
    assert proposal.edits["max_tool_repair_attempts"] == 2
    assert len(went_on(run).history[0].calls) == 3


def test_the_remaining_tokens_are_a_cap_too() -> None:
    run = ended(run_of(cutting(100), budget=Budget(max_tokens=100, max_tokens_per_turn=90)))
    assert run.result is not None
    assert run.result.stop_reason is StopReason.TRUNCATED
    assert run.history[-1].calls[-1].requested_cap == 85
    (proposal,) = run.next_actions
    assert proposal.edits["max_tokens"] >= 15 + 170
    assert went_on(run).result.text == "whole"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (FinishReason.CONTENT_FILTERED, StopReason.CONTENT_FILTERED),
        (FinishReason.CONTEXT_WINDOW_EXCEEDED, StopReason.TRUNCATED),
    ],
)
def test_a_filtered_or_oversized_response_needs_another_prompt(finish: FinishReason, reason: StopReason) -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        return say("", finish=finish) if request.messages[0].text == "go" else say("fine")

    run = ended(run_of(script))
    assert run.result is not None
    assert run.result.stop_reason is reason
    (proposal,) = run.next_actions
    assert (proposal.kind, proposal.label, proposal.at) == ("modify_prompt", "Edit the prompt and start again", 0)
    assert proposal.needs_prompt
    with pytest.raises(errors.ConfigurationError, match="needs another prompt"):
        run.apply()
    assert run.branches == ()
    branch = went_on(run, prompt="something else")
    assert (branch.result and branch.result.text, branch.prompt) == ("fine", "something else")


def test_an_agent_that_ignored_its_reminders_can_get_more() -> None:
    run = ended(run_of(["no", "no", call("finalize")], terminating=["finalize"]))
    assert run.result is not None
    assert run.result.stop_reason is StopReason.NUDGES_EXHAUSTED
    prompt, again = run.next_actions
    assert prompt.needs_prompt
    assert (again.label, again.at) == ("Raise the reminders in a row to 2 and repeat step 2", 1)
    went_on(run, prompt="finalize in the end")
    branch = went_on(run, again)
    assert branch.result is not None
    assert branch.limits.consecutive_nudges == 2


# Errors ----------------------------------------------------------------------------------------------------------------------------


def failing(error: Exception | ModelResponse) -> Any:
    """A script that fails at its second call the first time and succeeds later."""
    failed: list[int] = []

    def script(request: ModelRequest, index: int) -> Any:
        if index == 1:
            return call("look")
        if request.messages[0].text == "go" and not failed:
            failed.append(index)
            return error
        return say("fine")

    return script


def refused(kind: str, status: int | None = None) -> ModelResponse:
    metadata = {} if status is None else {"status": status}
    signal = TerminationSignal(
        FinishReason.ERROR, Confidence.HIGH, "scripted", "error", kind, "It went wrong.", metadata=metadata
    )
    return ModelResponse("", signal)


@pytest.mark.parametrize(
    "error",
    [errors.ProviderStatusError("busy", status=503), errors.ProviderConnectionError("reset"), refused("overloaded_error")],
    ids=["status", "connection", "payload"],
)
def test_a_transient_error_is_retried(error: Any) -> None:
    run = ended(run_of(failing(error)))
    assert run.result is not None
    assert (run.result.stop_reason, len(run.history)) == (StopReason.ERROR, 2)
    (proposal,) = run.next_actions
    assert (proposal.kind, proposal.label, proposal.at) == ("retry", "Repeat step 2", 1)
    assert went_on(run).result.text == "fine"  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [errors.ProviderStatusError("bad", status=400), refused("invalid_request_error")], ids=repr)
def test_an_unanswerable_request_needs_another_prompt(error: Any) -> None:
    run = ended(run_of(failing(error)))
    (proposal,) = run.next_actions
    assert proposal.needs_prompt
    assert went_on(run, prompt="other").result.text == "fine"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "error",
    [
        errors.ProviderStatusError("no key", status=401),
        refused("authentication_error"),
        errors.MissingKeyError("no key"),
        errors.ReplayMissError("nothing recorded"),
    ],
    ids=["status", "payload", "missing", "recording"],
)
def test_nothing_is_proposed_if_a_retry_cannot_help(error: Any) -> None:
    run = ended(run_of(failing(error)))
    assert run.next_actions == ()
    with pytest.raises(errors.ConfigurationError, match=r"there is no next action.*fix the key.*run.fork\(at=1\)"):
        run.apply()
    assert go(to_the_end(run.fork(1))).text == "fine"


def test_missing_usage_is_reported_without_a_proposal() -> None:
    run = ended(run_of([say("x", tokens=(None, None))] * 3, budget=Budget(missing_usage="fail", max_tokens=9)))
    (proposal,) = run.next_actions
    assert dict(proposal.edits) == {"missing_usage": "warn"}
    with pytest.warns(lab.AgentlabWarning, match="no usage"):
        branch = went_on(run)
    assert branch.result is not None
    assert branch.result.stop_reason is StopReason.COMPLETED


@pytest.mark.parametrize("completes", [True, False])
def test_a_condition_that_raised_is_turned_off(completes: bool) -> None:
    def broken(history: Any) -> bool:
        raise KeyError("typo")

    script = ["fine"] * 3 if completes else [call("look"), "fine"]
    run = ended(run_of(script, stop=lab.Custom(broken) | StepCountIs(9)))
    assert run.result is not None
    assert run.result.stop_reason is StopReason.ERROR
    (proposal,) = run.next_actions
    assert (proposal.label, proposal.at) == ("Turn broken off and continue", 0 if completes else 1)
    branch = went_on(run)
    assert branch.result is not None
    assert (branch.result.stop_reason, branch.result.text) == (StopReason.COMPLETED, "fine")


# Stops by the user -----------------------------------------------------------------------------------------------------------------


def test_a_stopped_run_continues_where_it_was() -> None:
    async def main() -> lab.Run:
        run = looping().run("go", budget=Budget(max_turns=3))
        await run.step()
        run.stop("enough")
        return run

    run = go(main())
    (proposal,) = run.next_actions
    assert (proposal.kind, proposal.label, proposal.at) == ("continue", "Continue from step 1", 1)
    assert len(went_on(run).history) == 3


def test_a_run_stopped_at_its_limit_gets_a_larger_limit() -> None:
    async def main() -> lab.Run:
        run = looping().run("go", budget=Budget(max_turns=1))
        run.limits.max_turns = 2
        await run.step()
        run.stop("enough")
        run.limits.max_turns = 1
        return run

    assert [one.label for one in go(main()).next_actions] == ["Raise the turn limit to 2 and continue"]


def test_a_run_that_never_started_can_be_started() -> None:
    run = run_of(["fine"])
    run.stop()
    assert [one.label for one in run.next_actions] == ["Continue"]
    went_on(run)


def test_a_stop_in_the_completing_step_gets_no_proposal() -> None:
    made: list[lab.Run] = []

    def script(request: ModelRequest, index: int) -> str:
        made[0].stop("enough")
        return "the answer"

    made.append(run_of(script))
    ended(made[0])
    assert made[0].result is not None
    assert made[0].result.stop_reason is StopReason.EXPLICIT_STOP
    assert made[0].next_actions == ()
    assert "run.fork(at=1, …)" in nothing_to_do(made[0])


def test_a_stop_by_a_tool_gets_no_proposal() -> None:
    def enough() -> lab.Stop:
        return lab.Stop("done")

    assert ended(run_of([call("enough")], tools=[enough])).next_actions == ()


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize("where", ["the model", "a tool", "between"])
def test_a_cancelled_run_continues_from_the_last_whole_step(where: str) -> None:
    async def main() -> lab.Run:
        async def slow() -> str:
            if len(run.history) == 1 and run.origin.parent is None and not run.branches:
                await asyncio.sleep(30)
            return "done"

        async def held(request: ModelRequest, ask: Any) -> ModelResponse:
            if len(run.history) == 1 and not run.branches:
                await asyncio.sleep(30)
            response: ModelResponse = await ask(request)
            return response

        more = {"middleware": [held]} if where == "the model" else {}
        script = [call("slow"), call("slow"), "fine"]
        run = agent(script, tools=[slow], **more).run("go")
        await run.step()
        if where == "between":
            run.cancel()
            return run
        step = asyncio.ensure_future(run.step())
        await asyncio.sleep(0.02)
        run.cancel()
        await step
        return run

    run = go(main())
    assert run.result is not None
    assert run.result.stop_reason is StopReason.CANCELLED
    (proposal,) = run.next_actions
    assert proposal.at == 1
    assert proposal.label == ("Continue from step 1" if where == "between" else "Repeat step 2")
    assert went_on(run).result.text == "fine"  # type: ignore[union-attr]


@pytest.mark.parametrize("script", [["fine"], [call("finalize")]], ids=["completed", "terminating tool"])
def test_a_run_that_finished_on_its_own_gets_no_proposal(script: list[Any]) -> None:
    run = ended(agent(script).run("go", terminating=["finalize"] if script != ["fine"] else None))
    assert run.next_actions == ()
    with pytest.raises(errors.ConfigurationError, match=r"there is no next action.*finished on its own.*message="):
        run.apply()


def test_a_running_run_gets_no_proposal() -> None:
    run = looping().run("go")
    assert run.next_actions == ()
    with pytest.raises(errors.ConfigurationError, match="has not ended"):
        run.apply()
    with pytest.raises(errors.ConfigurationError, match=r"one of run\.next_actions"):
        run.apply("retry")  # type: ignore[arg-type]


def test_every_stop_reason_has_an_answer() -> None:
    from agentlab.engine import next_actions

    assert set(next_actions._ACTIONS_BY_STOP_REASON) == set(StopReason) == set(FOR_STOP_REASON)


def test_proposals_can_be_followed_repeatedly() -> None:
    run = ended(looping().run("go", stop=StepCountIs(1), budget=Budget(max_turns=2, max_tokens=20)))
    for _ in range(6):
        run = went_on(run)
    assert len(run.history) > 6
    assert all(one.decision.action is Action.EXECUTE_TOOLS for one in run.history)


# Numbers ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (40_000, "tokens", "40,000"),
        (Decimal("0.10"), "USD", "$0.10"),
        (Decimal("0.1"), "USD", "$0.10"),
        (Decimal("0.0004"), "USD", "$0.0004"),
        (Decimal(1200), "USD", "$1,200.00"),
        (120.0, "s", "2 min"),
        (90.0, "s", "1 min 30 s"),
        (45.0, "s", "45 s"),
        (0.1, "s", "0.1 s"),
        (7200.0, "s", "2 h"),
        (61.5, "s", "61.5 s"),
        ("warn", "", "warn"),
    ],
)
def test_numbers_are_rounded_for_people(value: Any, unit: str, expected: str) -> None:
    assert in_words(value, unit) == expected


@given(st.integers(1, 10**12), st.integers(0, 10**12))
def test_a_raised_limit_leaves_room(limit: int, used: int) -> None:
    new = larger(limit, used)
    assert isinstance(new, int)
    assert new >= 2 * limit or new >= used + limit
    assert new > used


@given(st.decimals("0.000001", 10**6, places=6), st.decimals(0, 10**6, places=6))
def test_a_raised_amount_leaves_room(limit: Decimal, used: Decimal) -> None:
    new = larger(limit, used)
    assert isinstance(new, Decimal)
    assert new >= used + limit or new == 2 * limit
    assert new > used
