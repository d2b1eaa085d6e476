"""The decision on a response: `decide(signal, context, policy)`. No I/O.

A policy is a plain function from a signal and its context to a Decision; `standard` is this table, the first row that applies:

finish reason                            condition                       action                 stop reason, if the run ends
---------------------------------------- ------------------------------- ---------------------- -----------------------------
ERROR, repairable                        repairs are allowed             REPAIR_TOOL_CALL       -
ERROR                                    anything                        ABORT                  ERROR
CONTENT_FILTERED                         anything                        ABORT                  CONTENT_FILTERED
CANCELLED                                anything                        ABORT                  CANCELLED
PAUSED                                   no tool call                    RESUME                 -
CONTEXT_WINDOW_EXCEEDED                  anything                        ABORT                  TRUNCATED
any other                                a piece of the stream lost      ASK_AGAIN              -
any other                                a truncated tool call           REPAIR_TOOL_CALL       -
MAX_TOKENS                               a call without any arguments    REPAIR_TOOL_CALL       -
MAX_TOKENS                               complete tool calls             EXECUTE_TOOLS          -
MAX_TOKENS                               no tool call                    CONTINUE_OUTPUT        -
any other                                tool calls                      EXECUTE_TOOLS          -
UNKNOWN, TOOL_CALLS                      no text, no call                ABORT                  ERROR
UNKNOWN, TOOL_CALLS                      text                            COMPLETE               COMPLETED
END_TURN, STOP_SEQUENCE                  no call                         COMPLETE               COMPLETED

ASK_AGAIN repeats the call within the step; if that is not allowed, or gives no complete answer, the run ends with ERROR.
REPAIR_TOOL_CALL and CONTINUE_OUTPUT become ABORT with TRUNCATED if the ContinuationPolicy allows none. turn.py counts them per step
and decides at the caps.

A truncated tool call is never executed, whatever a policy returns.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pydantic_core

from agentlab._internal.asyncio_tools import discard, name_of, needs_await
from agentlab._internal.display import Displayable
from agentlab._internal.names import module_hooks
from agentlab._internal.redaction import text_of
from agentlab._internal.safe_text import whole
from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError
from agentlab.limits.combinators import as_condition
from agentlab.limits.evaluation import read_condition
from agentlab.limits.reading import Action, Decision
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import Confidence, FinishReason, StopReason, TerminationSignal
from agentlab.model.messages import ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.records.history import RunHistory
from agentlab.records.result import INCREASE_BUDGET, MODIFY_PROMPT, RETRY, STOP, for_error, larger_cap
from agentlab.records.step import StepResult


@dataclass(frozen=True, slots=True)
class DecisionContext(Displayable):
    """The context of a decision, besides the signal. Every part is optional: the signal alone is enough for a decision.

    `response` is the model's answer; `step` the current step, from 1; `call` the number of this round trip within the step, from 1;
    `requested_cap` the requested output cap in tokens; `settings` the limits of the run, `history` its finished steps and totals.

    Example:
        >>> cut = lab.TerminationSignal(lab.FinishReason.MAX_TOKENS, lab.Confidence.HIGH)
        >>> lab.decide(cut, lab.DecisionContext(settings=lab.RunSettings())).action
        <Action.CONTINUE_OUTPUT: 'continue_output'>
    """

    response: ModelResponse | None = None
    step: int = 1
    call: int = 1
    requested_cap: int | None = None
    settings: RunSettings | None = None
    history: RunHistory | None = None


Policy: TypeAlias = Callable[[TerminationSignal, DecisionContext], Decision | Awaitable[Decision]]
"""Decides on the end of a response: a function, sync or async, without side effects."""

_NOTHING_KNOWN = DecisionContext()


def decide(signal: TerminationSignal, context: DecisionContext = _NOTHING_KNOWN, policy: Policy | None = None) -> Decision:
    """Decide what to do with a response that ended with this signal. `policy` None is `standard`.

    Raises ConfigurationError if a policy's decision cannot be carried out, and for an async policy, which only a run can await.

    Example:
        >>> cut = lab.TerminationSignal(lab.FinishReason.MAX_TOKENS, lab.Confidence.HIGH)
        >>> decision = lab.decide(cut)
        >>> decision.action, decision.stop_reason, decision.suggestion
        (<Action.ABORT: 'abort'>, <StopReason.TRUNCATED: 'truncated'>, 'increase_budget')
    """
    if policy is None:
        return standard(signal, context)
    decision = policy(signal, context)
    if isinstance(decision, Decision) or not inspect.isawaitable(decision):
        return checked(decision, policy, context)
    discard(decision)
    name = name_of(policy)
    raise ConfigurationError(
        f"The policy {name} is async, and lab.decide cannot await it: write `await {name}(signal, context)`. A run awaits it."
    )


# Policies ------------------------------------------------------------------------------------------------------------------


def standard(signal: TerminationSignal, context: DecisionContext = _NOTHING_KNOWN) -> Decision:
    """The table above.

    Example:
        >>> lab.termination.standard(result.history[0].signal, lab.DecisionContext(response=result.history[0].response)).action
        <Action.EXECUTE_TOOLS: 'execute_tools'>
    """
    reason, response = signal.finish_reason, context.response
    if signal.repairable and _allows(context, "max_tool_repair_attempts"):
        return Decision(Action.REPAIR_TOOL_CALL, signal.message or "The tool call was malformed.")
    if reason in _ABORTED:
        stop_reason, suggestion = _ABORTED[reason]
        if reason is FinishReason.ERROR:
            suggestion = for_error(signal)
        return Decision(Action.ABORT, signal.message or f"The response ended with {reason}.", stop_reason, suggestion)
    if response is not None and response.is_spoilt:
        return _ASK_AGAIN
    calls = response.tool_calls if response is not None else ()
    if reason is FinishReason.PAUSED and not calls:
        return Decision(Action.RESUME, "The provider paused its turn and is asked to continue.")
    if calls:
        if any(map(is_cut_off, calls)) or (reason is FinishReason.MAX_TOKENS and not _all_have_arguments(calls)):
            return _REPAIR if _allows(context, "max_tool_repair_attempts") else _truncated(_INCOMPLETE_CALL, context)
        return _EXECUTE
    if reason is FinishReason.MAX_TOKENS:
        return _CONTINUE if _allows(context, "max_continuations_per_turn") else _truncated(_CUT_OFF, context)
    if reason is FinishReason.TOOL_CALLS and response is None:  # only the signal is given
        return _EXECUTE
    if reason in (FinishReason.UNKNOWN, FinishReason.TOOL_CALLS):
        if response is None or not response.text:
            reason_in_words = signal.message or "The response is empty and does not say why it ended."
            return Decision(Action.ABORT, reason_in_words, StopReason.ERROR, RETRY)
        return _accept_text(signal)
    return _COMPLETE


def cautious(signal: TerminationSignal, context: DecisionContext = _NOTHING_KNOWN) -> Decision:
    """Like `standard`, but a signal of LOW confidence, such as UNKNOWN, neither completes the run nor executes tools.

    Example:
        >>> unsure = lab.TerminationSignal(lab.FinishReason.END_TURN, lab.Confidence.LOW)
        >>> lab.termination.standard(unsure).action, lab.termination.cautious(unsure).action
        (<Action.COMPLETE: 'complete'>, <Action.ABORT: 'abort'>)
    """
    decision = standard(signal, context)
    if signal.confidence is Confidence.LOW and decision.action in (Action.COMPLETE, Action.EXECUTE_TOOLS):
        return Decision(Action.ABORT, f"Confidence too low to continue: {signal.message}", StopReason.ERROR, RETRY)
    return decision


def lenient(signal: TerminationSignal, context: DecisionContext = _NOTHING_KNOWN) -> Decision:
    """Like `standard`, but any text completes the run, even if the answer was truncated or filtered, or lost a piece in transit.

    Example:
        >>> cut = say("Half an answ", finish=lab.FinishReason.MAX_TOKENS)
        >>> lab.termination.lenient(cut.signal, lab.DecisionContext(response=cut)).action
        <Action.COMPLETE: 'complete'>
    """
    decision = standard(signal, context)
    response = context.response
    if (
        (decision.action in (Action.CONTINUE_OUTPUT, Action.ASK_AGAIN) or decision.stop_reason in _WITH_TEXT)
        and response is not None
        and response.text
        and not response.tool_calls
    ):
        return Decision(Action.COMPLETE, f"Accepted as it is: {decision.reason}", StopReason.COMPLETED, decision.suggestion)
    return decision


_WITH_TEXT = (StopReason.TRUNCATED, StopReason.CONTENT_FILTERED)
_ABORTED = {
    FinishReason.ERROR: (StopReason.ERROR, RETRY),
    FinishReason.CONTENT_FILTERED: (StopReason.CONTENT_FILTERED, MODIFY_PROMPT),
    FinishReason.CANCELLED: (StopReason.CANCELLED, RETRY),
    FinishReason.CONTEXT_WINDOW_EXCEEDED: (StopReason.TRUNCATED, MODIFY_PROMPT),
}
_CUT_OFF = "The response was cut off at its output cap."
_INCOMPLETE_CALL = "The response was cut off inside a tool call, which was not executed."
_CONTINUE = Decision(Action.CONTINUE_OUTPUT, f"{_CUT_OFF} The model is asked to continue.")
_ASK_AGAIN = Decision(Action.ASK_AGAIN, "A piece of the streamed answer was lost in transit. The model is asked again.")
_REPAIR = Decision(Action.REPAIR_TOOL_CALL, "A tool call was cut off. The model is asked for a complete one.")
_EXECUTE = Decision(Action.EXECUTE_TOOLS, "The model asked for tools.")
_COMPLETE = Decision(Action.COMPLETE, "The model ended its turn.", StopReason.COMPLETED, STOP)


def _accept_text(signal: TerminationSignal) -> Decision:
    """Complete the run with a text of unknown finish reason, and say so in the run's detail."""
    if signal.finish_reason is FinishReason.TOOL_CALLS:
        why = "The finish reason announces tool calls, but the response has none"
    elif signal.raw_value is None and not signal.raw_field and signal.message:  # from a registered detector
        why = signal.message.removesuffix(".")
    elif signal.raw_value is None:
        why = "The provider gave no finish reason"
    else:
        why = f"The provider's finish reason {signal.raw_value!r} is unknown"
    metadata = {"end": "unknown", "confidence": signal.confidence.value}
    return Decision(Action.COMPLETE, f"{why}; the text is accepted as the answer.", StopReason.COMPLETED, STOP, metadata)


def _allows(context: DecisionContext, cap: str) -> bool:
    """True if the run's continuation policy allows a further call of this kind. False if there is no run."""
    return context.settings is not None and getattr(context.settings.continuation, cap) > 0


def _truncated(reason: str, context: DecisionContext) -> Decision:
    return Decision(
        Action.ABORT, reason, StopReason.TRUNCATED, INCREASE_BUDGET, larger_cap(context.requested_cap, context.response)
    )


# Decisions of a policy -----------------------------------------------------------------------------------------------------

_ENDS = {Action.COMPLETE: StopReason.COMPLETED, Action.ABORT: StopReason.ERROR}
_CONTINUES = (Action.EXECUTE_TOOLS, Action.RESUME, Action.CONTINUE_OUTPUT, Action.REPAIR_TOOL_CALL, Action.ASK_AGAIN)


def checked(decision: object, policy: Policy, context: DecisionContext) -> Decision:
    """Return a policy's decision with its defaults filled in. Raises ConfigurationError if it cannot be carried out.

    Example:
        >>> decision = lab.Decision(lab.Action.COMPLETE, "Good enough.")
        >>> lab.termination.checked(decision, lab.termination.lenient, lab.DecisionContext()).stop_reason
        <StopReason.COMPLETED: 'completed'>
    """
    name = getattr(policy, "__name__", repr(policy))
    if not isinstance(decision, Decision):
        raise ConfigurationError(
            f"The policy {name} returned {text_of(decision, repr)}: return a Decision, for example "
            "`lab.termination.standard(signal, context)`."
        )
    decision = _with_members(decision, name)
    calls = context.response.tool_calls if context.response is not None else ()
    if decision.action in _ENDS:
        return decision if decision.stop_reason is not None else replace(decision, stop_reason=_ENDS[decision.action])
    if decision.action not in _CONTINUES:
        may = ", ".join(str(action) for action in (*_CONTINUES, *_ENDS))
        raise ConfigurationError(f"The policy {name} returned the action {decision.action!s}; a policy may return {may}.")
    if decision.stop_reason is not None:
        raise ConfigurationError(
            f"The policy {name} returned {decision.action}, which continues the run, with the stop reason {decision.stop_reason}: "
            "omit stop_reason, or return complete or abort."
        )
    if decision.action is Action.ASK_AGAIN and context.response is not None and not context.response.is_spoilt:
        raise ConfigurationError(f"The policy {name} returned ask_again, but the response is complete (response.holes is empty).")
    if decision.action is Action.EXECUTE_TOOLS and context.response is not None:
        if not calls:
            raise ConfigurationError(f"The policy {name} returned execute_tools, but the response has no tool call.")
        if any(map(is_cut_off, calls)):
            return _truncated(f"{_INCOMPLETE_CALL[:-1]}, although the policy {name} requested it.", context)
    return decision


def _with_members(decision: Decision, name: str) -> Decision:
    """Return a decision with its words as members of the enums. Raises ConfigurationError for a field of the wrong type."""
    if not isinstance(decision.reason, str):
        raise ConfigurationError(f"The policy {name} returned the reason {text_of(decision.reason, repr)}: pass text.")
    if not isinstance(decision.suggestion, str | None) or not isinstance(decision.metadata, Mapping):
        raise ConfigurationError(
            f"The policy {name} returned {text_of(decision, repr)}: suggestion is text or None, metadata is a mapping."
        )
    try:
        action = Action(decision.action)
    except ValueError:
        may = ", ".join((*_CONTINUES, *_ENDS))
        wrong = text_of(decision.action, str)
        raise ConfigurationError(f"The policy {name} returned the action {wrong}; a policy may return {may}.") from None
    try:
        stop_reason = None if decision.stop_reason is None else StopReason(decision.stop_reason)
    except ValueError:
        wrong = text_of(decision.stop_reason, repr)
        raise ConfigurationError(
            f"The policy {name} returned the stop reason {wrong}: use one of {', '.join(StopReason)}."
        ) from None
    return replace(decision, action=action, stop_reason=stop_reason)


def _all_have_arguments(calls: tuple[ToolCall, ...]) -> bool:
    """False if a call has no arguments: in a truncated response they may have been cut off."""
    return all(call.arguments.strip() for call in calls)


def is_cut_off(tool_call: ToolCall) -> bool:
    """True if a call is incomplete: its block was not closed, or its JSON breaks off. JSON that is complete but invalid is reported to
    the model as an error instead.

    Example:
        >>> lab.termination.is_cut_off(call("search", '{"words": "umb').tool_calls[0])
        True
    """
    return not tool_call.closed or _breaks_off(tool_call.arguments)


@functools.lru_cache(maxsize=8)  # each call is asked about twice: for the decision, and for the conversation
def _breaks_off(arguments: str) -> bool:
    if not arguments.strip():
        return False
    try:
        pydantic_core.from_json(whole(arguments))
    except ValueError as error:
        return "EOF while parsing" in str(error)
    return False


# Stop conditions without a run ----------------------------------------------------------------------------------------------


@needs_await("is_stop_condition_met(…)")
async def is_stop_condition_met(conditions: object, steps: Sequence[StepResult]) -> bool:
    """True if any of the conditions is met after these steps.

    `conditions` is a StopCondition, a function of the history (sync or async), or a list of them; `steps` is a history or any
    sequence of StepResult. An empty list is never met.

    Example:
        >>> await lab.is_stop_condition_met(lab.StepCountIs(4), result.history)
        True
        >>> await lab.is_stop_condition_met(lambda history: "Vienna" in history.last.text, result.history)
        False
    """
    if isinstance(conditions, list | tuple) and not conditions:
        return False
    history = steps if isinstance(steps, RunHistory) else RunHistory(steps)
    return bool((await read_condition(as_condition(conditions), history)).met)


__all__ = ["DecisionContext", "Policy", "cautious", "decide", "is_cut_off", "is_stop_condition_met", "lenient", "standard"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks("agentlab.termination", __all__)
