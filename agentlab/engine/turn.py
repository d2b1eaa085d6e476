"""The calls of one step as a state machine: the model is asked until there is an answer to act on.

Request ── response ──► EvaluateStop ── the decision ──► ExecuteTools, Complete, Abort: the turn is over
   ▲                      │      ▲  │
   └────── resume ────────┘      │  └── continue_output, repair_tool_call ──► ContinuePending
                              response                                            │       │
                                 │                                             allowed  at_cap, no_budget
                                 └────────── RequestContinuation ◄────────────────┘       │
                                                                                          ▼
                                                                                     AbortPartial
"""

from __future__ import annotations

from enum import StrEnum

from agentlab.engine.ask import BudgetExhausted, ask, no_call_left
from agentlab.engine.call_context import RunContext
from agentlab.engine.continuation import FurtherCalls, has_incomplete_call, issue_of, least_tokens
from agentlab.engine.step_builder import StepBuilder
from agentlab.errors import ReplayMissError, StopRequested
from agentlab.limits.reading import Action, Decision, Reading
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.responses import ModelResponse
from agentlab.records import events
from agentlab.records.result import INCREASE_BUDGET

_OUTCOMES: dict[FinishReason, events.ContinuationOutcome] = {
    FinishReason.ERROR: "error",
    FinishReason.CONTEXT_WINDOW_EXCEEDED: "context_window_exceeded",
    FinishReason.CANCELLED: "cancelled",
}
"""How the continuation ended if the last call ended so."""

_CUT = (FinishReason.MAX_TOKENS, FinishReason.CONTEXT_WINDOW_EXCEEDED)
MAX_RESUMES = 8
"""How often an answer that the provider pauses is resumed within one step."""


class TurnState(StrEnum):
    """The states of a turn."""

    REQUEST = "Request"
    EVALUATE_STOP = "EvaluateStop"
    CONTINUE_PENDING = "ContinuePending"
    REQUEST_CONTINUATION = "RequestContinuation"
    EXECUTE_TOOLS = "ExecuteTools"
    COMPLETE = "Complete"
    ABORT = "Abort"
    ABORT_PARTIAL = "AbortPartial"


S = TurnState
TRANSITIONS: dict[tuple[TurnState, str], TurnState] = {
    (S.REQUEST, "response"): S.EVALUATE_STOP,
    (S.EVALUATE_STOP, Action.RESUME): S.REQUEST,
    (S.EVALUATE_STOP, Action.CONTINUE_OUTPUT): S.CONTINUE_PENDING,
    (S.EVALUATE_STOP, Action.REPAIR_TOOL_CALL): S.CONTINUE_PENDING,
    (S.EVALUATE_STOP, Action.EXECUTE_TOOLS): S.EXECUTE_TOOLS,
    (S.EVALUATE_STOP, Action.COMPLETE): S.COMPLETE,
    (S.EVALUATE_STOP, Action.ABORT): S.ABORT,
    (S.CONTINUE_PENDING, "allowed"): S.REQUEST_CONTINUATION,
    (S.CONTINUE_PENDING, "at_cap"): S.ABORT_PARTIAL,
    (S.CONTINUE_PENDING, "no_budget"): S.ABORT_PARTIAL,
    (S.REQUEST_CONTINUATION, "response"): S.EVALUATE_STOP,
    (S.REQUEST_CONTINUATION, "not_recorded"): S.ABORT_PARTIAL,
}
"""The next state, by state and event."""

FINAL = frozenset({S.EXECUTE_TOOLS, S.COMPLETE, S.ABORT, S.ABORT_PARTIAL})


async def take_turn(run: RunContext, builder: StepBuilder) -> ModelResponse:
    """Ask until there is an answer to act on, as `builder.decision` says. Raises the errors of a call, and BudgetExhausted."""
    further = FurtherCalls(builder.settings.continuation)
    state, resumes = TurnState.REQUEST, 0
    failure: BaseException | None = None
    try:
        while True:
            if state is TurnState.REQUEST:
                response, event = await ask(run, builder), "response"
            elif state is TurnState.EVALUATE_STOP:
                if builder.decision.action is Action.RESUME:
                    resumes += 1
                    _check_resume(run, builder, further, resumes)
                event = builder.decision.action
            elif state is TurnState.CONTINUE_PENDING:
                event = _check_continuation(run, builder, further, response)
            else:
                response, event = await _ask_further(run, builder, further, response)
            state = TRANSITIONS[state, event]
            if state in FINAL:
                return response
    except BaseException as error:
        failure = error
        raise
    finally:
        if builder.calls:
            _report_end(run, builder, further, failure)


def _check_resume(run: RunContext, builder: StepBuilder, further: FurtherCalls, resumes: int) -> None:
    """Decide to abort if the answer was paused too often, or if the budget leaves no further call."""
    if no_call_left(run, builder):
        further.outcome = "budget_exhausted"
        builder.decision = Decision(Action.ABORT, "The budget left no further call.", None, INCREASE_BUDGET)
    elif resumes > MAX_RESUMES:
        reason = f"The provider paused its turn and was not resumed after {len(builder.calls)} calls."
        builder.decision = Decision(Action.ABORT, reason, StopReason.TRUNCATED, INCREASE_BUDGET)


def _check_continuation(run: RunContext, builder: StepBuilder, further: FurtherCalls, answer: ModelResponse) -> str:
    """Return the event in ContinuePending; decide to abort if no further call is allowed."""
    action = builder.decision.action
    further.issue = issue_of(answer) if action is Action.REPAIR_TOOL_CALL else ""
    if not further.attempts and not further.cut_s:
        further.cut_s = run.timeline.clock.elapsed_s()
    event = further.pending(action, builder.calls, answer, run.limits.snapshot().continuation)
    if event == "allowed" and no_call_left(run, builder):
        further.outcome = "budget_exhausted"
        reason = "The answer was cut off and is incomplete: the budget left no further call."
        builder.decision = Decision(Action.ABORT, reason, None, INCREASE_BUDGET)
        return "no_budget"
    if event == "allowed" and (tokens := _too_few_tokens(run, builder)) is not None:
        further.outcome = "budget_exhausted"
        reason = f"Budget reached: {tokens}, too few are left for a further call."
        builder.decision = Decision(Action.ABORT, reason, StopReason.TOKEN_BUDGET, INCREASE_BUDGET)
        return "no_budget"
    if event == "at_cap":
        builder.decision = further.give_up(builder.calls, answer)
        if answer.signal.finish_reason is FinishReason.ERROR:
            builder.decision = Decision(Action.ABORT, answer.signal.message, StopReason.ERROR, "retry", builder.decision.metadata)
    return event


def _too_few_tokens(run: RunContext, builder: StepBuilder) -> Reading | None:
    """Return the usage of `max_tokens` if what is left of it is too little for a further call."""
    most, used = run.settings_now().budget.max_tokens, run.timeline.history.known_tokens + builder.known_tokens
    if most is None or most - used >= least_tokens(builder.calls):
        return None
    return Reading("max_tokens", used, most, False)


async def _ask_further(
    run: RunContext, builder: StepBuilder, further: FurtherCalls, answer: ModelResponse
) -> tuple[ModelResponse, str]:
    """Make one further call: for the rest of the text, or to repeat a tool call.

    A recording made without continuations has no answer to that; its answer is then kept as it is.
    """
    timeline, calls, action = run.timeline, builder.calls, builder.decision.action
    request = further.request(answer, action, calls, prefills=getattr(run.agent.model, "prefills", False))
    if action is Action.CONTINUE_OUTPUT:
        _emit_continuation(run, builder, further, answer)
    issue = further.issue
    try:
        response = await ask(run, builder, request)
    except ReplayMissError:
        further.outcome = "retry_limit"
        builder.decision = further.give_up(calls, answer, "the recording has no continuation of it")
        return answer, "not_recorded"
    if action is Action.REPAIR_TOOL_CALL:
        further.repairs_reported += 1
        succeeded = builder.decision.action is Action.EXECUTE_TOOLS
        now_s = timeline.clock.elapsed_s()
        timeline.emit(events.ToolPayloadRepair(now_s, timeline.next_step, issue, attempted=True, succeeded=succeeded))
        further.issue = "" if builder.decision.action is not Action.REPAIR_TOOL_CALL else further.issue
    return response, "response"


def _emit_continuation(run: RunContext, builder: StepBuilder, further: FurtherCalls, answer: ModelResponse) -> None:
    timeline, calls, policy, settings = run.timeline, builder.calls, further.policy, run.settings_now()
    known = [call.usage.output_tokens for call in calls]
    tokens = None if None in known else sum(count or 0 for count in known)
    now_s, terminating = timeline.clock.elapsed_s(), settings.terminating
    invocations = timeline.history.own_calls + len(calls) + 1
    timeline.emit(
        events.ContinuationAttempted(
            now_s,
            timeline.next_step,
            further.continuations,
            tokens,
            len(answer.text),
            policy.max_continuations_per_turn - further.continuations,
            further.tokens_left(calls),
            policy.max_total_output_chars_per_turn - len(answer.text),
            max(0, policy.max_tool_repair_attempts - further.repairs),
            None if terminating is None else max(0, terminating.max_invocations - invocations),
            settings.budget.remaining_within(timeline.history, calls, now_s),
        )
    )


def _report_end(run: RunContext, builder: StepBuilder, further: FurtherCalls, failure: BaseException | None) -> None:
    """Emit how the continuation of a cut answer ended, and note in the builder if the answer is incomplete."""
    last, action = builder.calls[-1].response, builder.decision.action
    reason = last.signal.finish_reason
    has_cut_call = action is not Action.EXECUTE_TOOLS and not last.is_spoilt and has_incomplete_call(last)
    is_accepted = action in (Action.COMPLETE, Action.EXECUTE_TOOLS)  # a policy may accept a cut answer
    is_cut = not has_cut_call and not is_accepted and reason in _CUT
    if not (further.attempts or has_cut_call or is_cut):
        return
    timeline = run.timeline
    now_s, number = timeline.clock.elapsed_s(), timeline.next_step
    # The call for a repair failed, or there was none:
    if further.repairs > further.repairs_reported or (has_cut_call and not further.repairs):
        issue, attempted = further.issue or issue_of(last), further.repairs > 0
        timeline.emit(events.ToolPayloadRepair(now_s, number, issue, attempted=attempted, succeeded=False))
    if has_cut_call and reason is not FinishReason.ERROR:
        builder.notice = "A tool call was cut off and was not executed."
    elif is_cut or (further.continuations and not is_accepted):
        builder.notice = "The answer was cut off and is incomplete."
    if not further.continuations and not is_cut:
        return
    outcome = further.outcome
    if reason is FinishReason.CONTENT_FILTERED:
        outcome = "safety_blocked"
    elif outcome == "completed" and not is_accepted:
        outcome = _OUTCOMES.get(reason, "retry_limit") if failure is None else _outcome_of(failure, run)
    lasted_s = now_s - further.cut_s if further.cut_s else 0.0
    timeline.emit(events.ContinuationEnded(now_s, number, outcome, further.continuations, lasted_s, tuple(builder.seams)))


def _outcome_of(failure: BaseException, run: RunContext) -> events.ContinuationOutcome:
    """Return how the continuation ended, if a further call raised this."""
    if isinstance(failure, BudgetExhausted) or (run.deadline is not None and run.deadline.expired()):
        return "budget_exhausted"
    return "error" if isinstance(failure, Exception) and not isinstance(failure, StopRequested) else "cancelled"
