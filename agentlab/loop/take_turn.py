"""A turn carried out: the model is asked, and asked again, as the table in turns.py has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab import events
from agentlab.errors import ReplayMissError
from agentlab.loop.ask import Draft, ask, no_call_left
from agentlab.loop.turns import FINAL, TRANSITIONS, GoingOn, Turn, TurnState, issue_of
from agentlab.results import Action, Decision
from agentlab.suggestions import INCREASE_BUDGET
from agentlab.types import FinishReason, ModelResponse, StopReason

if TYPE_CHECKING:
    from agentlab.loop.drive import Drive

MOST_RESUMES = 8
"""How often a turn that the provider pauses is resumed within one step."""


async def take_turn(run: Drive, draft: Draft) -> ModelResponse:
    """Ask until the turn has come to something; `draft.decision` says to what. Raises what the call raises, and NothingLeft."""
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
        if turn.attempts or turn.issue:
            _told_of_the_end(run, draft, turn)


def _may_go_on(run: Drive, draft: Draft, turn: Turn, answer: ModelResponse) -> str:
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


async def _go_on(run: Drive, draft: Draft, turn: Turn, answer: ModelResponse) -> tuple[ModelResponse, str]:
    """One further call: for the rest of the text, or for a tool call again. A recording from before anybody asked for more has no
    answer to that, and what it has is what there is."""
    action = draft.decision.action
    number, calls = len(run.history) + 1, draft.calls
    going_on: GoingOn = turn.request(answer, action, calls, prefills=getattr(run.agent.model, "prefills", False))
    if action is Action.CONTINUE_OUTPUT:
        known = [call.usage.output_tokens for call in calls]
        tokens = None if None in known else sum(count or 0 for count in known)
        left = turn.policy.max_continuations_per_turn - turn.continuations
        run.emit(events.ContinuationAttempted(run.clock.elapsed_s(), number, turn.continuations, tokens, len(answer.text), left))
    issue = turn.issue
    try:
        response = await ask(run, draft, going_on)
    except ReplayMissError:
        turn.outcome = "retry_limit"
        draft.decision = turn.given_up(calls, answer, "the recording has no answer to being asked for more")
        return answer, "not_recorded"
    if action is Action.REPAIR_TOOL_CALL:
        whole = draft.decision.action is Action.EXECUTE_TOOLS
        run.emit(events.ToolPayloadRepair(run.clock.elapsed_s(), number, issue, attempted=True, succeeded=whole))
        turn.issue = "" if draft.decision.action is not Action.REPAIR_TOOL_CALL else turn.issue
    return response, "response"


def _not_resumed(run: Drive, draft: Draft) -> None:
    if no_call_left(run, draft):
        draft.decision = Decision(Action.ABORT, "The budget left nothing for a further call.", None, INCREASE_BUDGET)
    else:
        said = f"The provider paused its turn and was not resumed after {len(draft.calls)} calls."
        draft.decision = Decision(Action.ABORT, said, StopReason.TRUNCATED, INCREASE_BUDGET)


def _told_of_the_end(run: Drive, draft: Draft, turn: Turn) -> None:
    """Whatever ended the turn: how going on with a cut answer ended."""
    now_s, number = run.clock.elapsed_s(), len(run.history) + 1
    if turn.issue and not turn.repairs:
        run.emit(events.ToolPayloadRepair(now_s, number, turn.issue, attempted=False, succeeded=False))
    if not turn.continuations:
        return
    outcome = turn.outcome
    last = draft.calls[-1].response.signal.finish_reason if draft.calls else FinishReason.UNKNOWN
    if last is FinishReason.CONTENT_FILTERED:
        outcome = "safety_blocked"
    elif outcome == "completed" and draft.decision.action not in (Action.COMPLETE, Action.EXECUTE_TOOLS):
        outcome = "retry_limit"  # the call for the rest failed
    run.emit(events.ContinuationEnded(now_s, number, outcome, turn.continuations, now_s - turn.cut_s, tuple(draft.seams)))
