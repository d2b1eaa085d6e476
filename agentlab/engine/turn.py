"""A turn carried out: the model is asked, and asked again, as the table in turns.py has it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from agentlab import events
from agentlab.engine.ask import BudgetExhausted, StepBuilder, ask, no_call_left
from agentlab.engine.continuation import FINAL, TRANSITIONS, ContinuationRequest, Turn, TurnState, is_half_a_call, issue_of
from agentlab.errors import ReplayMissError
from agentlab.results import Action, Decision
from agentlab.suggestions import INCREASE_BUDGET
from agentlab.types import FinishReason, ModelResponse, StopReason

if TYPE_CHECKING:
    from agentlab.engine.stepper import Stepper

_CUT = (FinishReason.MAX_TOKENS, FinishReason.CONTEXT_WINDOW_EXCEEDED)
MOST_RESUMES = 8
"""How often a turn that the provider pauses is resumed within one step."""


async def take_turn(run: Stepper, draft: StepBuilder) -> ModelResponse:
    """Ask until the turn has come to something; `draft.decision` says to what. Raises what the call raises, and BudgetExhausted."""
    turn = Turn(draft.settings.continuation)
    state, resumes = TurnState.REQUEST, 0
    try:
        while True:
            if state is TurnState.REQUEST:
                response, happened = await ask(run, draft), "response"
            elif state is TurnState.EVALUATE_STOP:
                resumes += draft.decision.action is Action.RESUME
                if resumes and draft.decision.action is Action.RESUME and (resumes > MOST_RESUMES or no_call_left(run, draft)):
                    _not_resumed(run, draft)
                happened = draft.decision.action
            elif state is TurnState.CONTINUE_PENDING:
                happened = _may_go_on(run, draft, turn, response)
            else:
                response, happened = await _go_on(run, draft, turn, response)
            state = TRANSITIONS[state, happened]
            if state in FINAL:
                return response
    finally:
        if draft.calls:
            _told_of_the_end(run, draft, turn)


def _may_go_on(run: Stepper, draft: StepBuilder, turn: Turn, answer: ModelResponse) -> str:
    """What happens in ContinuePending; where nothing more is asked for, the decision says what is left."""
    action = draft.decision.action
    turn.issue = issue_of(answer) if action is Action.REPAIR_TOOL_CALL else ""
    if not turn.attempts and not turn.cut_s:
        turn.cut_s = run.clock.elapsed_s()
    happened = turn.pending(action, draft.calls, answer, run.limits.snapshot().continuation)
    if happened == "allowed" and no_call_left(run, draft):
        turn.outcome = "budget_exhausted"
        told = "The answer was cut off and is not whole: the budget left nothing for a further call."
        draft.decision = Decision(Action.ABORT, told, None, INCREASE_BUDGET)
        return "no_budget"
    if happened == "at_cap":
        draft.decision = turn.given_up(draft.calls, answer)
        if answer.signal.finish_reason is FinishReason.ERROR:
            draft.decision = Decision(Action.ABORT, answer.signal.message, StopReason.ERROR, "retry", draft.decision.metadata)
    return happened


async def _go_on(run: Stepper, draft: StepBuilder, turn: Turn, answer: ModelResponse) -> tuple[ModelResponse, str]:
    """One further call: for the rest of the text, or for a tool call again. A recording from before anybody asked for more has no
    answer to that, and what it has is what there is."""
    action = draft.decision.action
    number, calls = len(run.history) + 1, draft.calls
    going_on: ContinuationRequest = turn.request(answer, action, calls, prefills=getattr(run.agent.model, "prefills", False))
    if action is Action.CONTINUE_OUTPUT:
        known = [call.usage.output_tokens for call in calls]
        tokens = None if None in known else sum(count or 0 for count in known)
        policy, settings, now_s = turn.policy, run.settings_now(), run.clock.elapsed_s()
        terminating, called = settings.terminating, len(calls) + 1
        run.emit(
            events.ContinuationAttempted(
                now_s,
                number,
                turn.continuations,
                tokens,
                len(answer.text),
                policy.max_continuations_per_turn - turn.continuations,
                turn.tokens_left(calls),
                policy.max_total_output_chars_per_turn - len(answer.text),
                max(0, policy.max_tool_repair_attempts - turn.repairs),
                None if terminating is None else max(0, terminating.max_invocations - run.history.own_calls - called),
                settings.budget.remaining_within(run.history, calls, now_s),
            )
        )
    issue = turn.issue
    try:
        response = await ask(run, draft, going_on)
    except ReplayMissError:
        turn.outcome = "retry_limit"
        draft.decision = turn.given_up(calls, answer, "the recording has no answer to being asked for more")
        return answer, "not_recorded"
    if action is Action.REPAIR_TOOL_CALL:
        turn.repairs_told += 1
        whole = draft.decision.action is Action.EXECUTE_TOOLS
        run.emit(events.ToolPayloadRepair(run.clock.elapsed_s(), number, issue, attempted=True, succeeded=whole))
        turn.issue = "" if draft.decision.action is not Action.REPAIR_TOOL_CALL else turn.issue
    return response, "response"


def _not_resumed(run: Stepper, draft: StepBuilder) -> None:
    if no_call_left(run, draft):
        draft.decision = Decision(Action.ABORT, "The budget left nothing for a further call.", None, INCREASE_BUDGET)
    else:
        said = f"The provider paused its turn and was not resumed after {len(draft.calls)} calls."
        draft.decision = Decision(Action.ABORT, said, StopReason.TRUNCATED, INCREASE_BUDGET)


def _told_of_the_end(run: Stepper, draft: StepBuilder, turn: Turn) -> None:
    """Whatever ended the turn: how going on with a cut answer ended, and the notice of what is not whole."""
    last, action = draft.calls[-1].response, draft.decision.action
    reason, is_half = (
        last.signal.finish_reason,
        action is not Action.EXECUTE_TOOLS and not last.is_spoilt and is_half_a_call(last),
    )
    is_taken = action in (Action.COMPLETE, Action.EXECUTE_TOOLS)  # a policy may take a cut answer as it is
    is_cut = not is_half and not is_taken and reason in _CUT
    if not (turn.attempts or is_half or is_cut):
        return
    now_s, number = run.clock.elapsed_s(), len(run.history) + 1
    if turn.repairs > turn.repairs_told or (is_half and not turn.repairs):  # the call for it failed, or there was none
        attempted = turn.repairs > 0
        run.emit(events.ToolPayloadRepair(now_s, number, turn.issue or issue_of(last), attempted=attempted, succeeded=False))
    if is_half and reason is not FinishReason.ERROR:
        draft.notice = "A tool call was cut off and was not executed."
    elif is_cut or (turn.continuations and not is_taken):
        draft.notice = "The answer was cut off and is not whole."
    if not turn.continuations and not is_cut:
        return
    outcome = turn.outcome
    if reason is FinishReason.CONTENT_FILTERED:
        outcome = "safety_blocked"
    elif outcome == "completed" and not is_taken:
        timeout = run.settings_now().budget.timeout
        is_spent = isinstance(sys.exception(), BudgetExhausted) or (timeout is not None and now_s >= timeout)
        outcome = "budget_exhausted" if is_spent or reason is FinishReason.CONTEXT_WINDOW_EXCEEDED else "retry_limit"
    lasted_s = now_s - turn.cut_s if turn.cut_s else 0.0
    run.emit(events.ContinuationEnded(now_s, number, outcome, turn.continuations, lasted_s, tuple(draft.seams)))
