"""What follows from a response: `decide(signal, context, policy)`. No I/O.

A policy is a plain function from a signal and its context to a Decision; `standard` is this table, the first row that fits:

the response ended for                   and it holds                    then                   the run's reason, if it ends
---------------------------------------- ------------------------------- ---------------------- -----------------------------
ERROR, repairable                        repairs are allowed             REPAIR_TOOL_CALL       -
ERROR                                    anything                        ABORT                  ERROR
CONTENT_FILTERED                         anything                        ABORT                  CONTENT_FILTERED
CANCELLED                                anything                        ABORT                  CANCELLED
PAUSED                                   no tool call                    RESUME                 -
CONTEXT_WINDOW_EXCEEDED                  anything                        ABORT                  TRUNCATED
any other                                a hole: a piece was lost        ASK_AGAIN              -
any other                                a tool call that was cut off    REPAIR_TOOL_CALL       -
MAX_TOKENS                               a call without any arguments    REPAIR_TOOL_CALL       -
MAX_TOKENS                               complete tool calls             EXECUTE_TOOLS          -
MAX_TOKENS                               no tool call                    CONTINUE_OUTPUT        -
any other                                tool calls                      EXECUTE_TOOLS          -
UNKNOWN, TOOL_CALLS                      no text, no call                ABORT                  ERROR
UNKNOWN, TOOL_CALLS                      text                            COMPLETE               COMPLETED
END_TURN, STOP_SEQUENCE                  no call                         COMPLETE               COMPLETED

ASK_AGAIN makes the same call once more, in the same step; where that may not be, or brings no whole answer, the run ends as ERROR.
REPAIR_TOOL_CALL and CONTINUE_OUTPUT are ABORT as TRUNCATED where the ContinuationPolicy allows none. How often they are carried out
in one turn, and what happens at the caps, is in turns.py.

Whatever a policy says, a tool call that was cut off is never executed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pydantic_core

from agentlab.errors import ConfigurationError
from agentlab.history import RunHistory
from agentlab.no_such_name import only
from agentlab.predicates import discard, name_of
from agentlab.printable import whole
from agentlab.results import Action, Decision
from agentlab.settings import RunSettings
from agentlab.shown import Shown
from agentlab.suggestions import INCREASE_BUDGET, MODIFY_PROMPT, RETRY, STOP, for_error, larger_cap
from agentlab.types import Confidence, FinishReason, ModelResponse, StopReason, TerminationSignal, ToolCall


@dataclass(frozen=True, slots=True)
class DecisionContext(Shown):
    """What a decision may rest on beside the signal. Nothing of it need be given: a signal alone can be decided on too.

    `response` is what the model answered; `turn` the step under way, from 1; `call` the number of this round trip within the step, from
    1; `requested_cap` the output cap that was asked for, in tokens; `settings` what bounds the run, `history` its finished steps with
    their totals.

    Example:
        >>> cut = lab.TerminationSignal(lab.FinishReason.MAX_TOKENS, lab.Confidence.HIGH)
        >>> lab.decide(cut, lab.DecisionContext(settings=lab.RunSettings())).action
        <Action.CONTINUE_OUTPUT: 'continue_output'>
    """

    response: ModelResponse | None = None
    turn: int = 1
    call: int = 1
    requested_cap: int | None = None
    settings: RunSettings | None = None
    history: RunHistory | None = None


Policy: TypeAlias = Callable[[TerminationSignal, DecisionContext], Decision | Awaitable[Decision]]
"""What decides on the end of a response: a function, sync or async. It looks, and answers."""

_NOTHING_KNOWN = DecisionContext()


def decide(signal: TerminationSignal, context: DecisionContext = _NOTHING_KNOWN, policy: Policy | None = None) -> Decision:
    """What follows from a response that ended so. `policy` None is `standard`.

    Raises ConfigurationError where a policy answers with something that cannot be done, and for an async one: a run awaits it.

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
        f"The policy {name} is async, and lab.decide waits for nothing: write `await {name}(signal, context)`. A run awaits it."
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
        return Decision(Action.RESUME, "The provider paused its turn and is asked to go on.")
    if calls:
        if any(map(is_cut_off, calls)) or (reason is FinishReason.MAX_TOKENS and not _all_have_arguments(calls)):
            return _REPAIR if _allows(context, "max_tool_repair_attempts") else _truncated(_HALF_CALL, context)
        return _EXECUTE
    if reason is FinishReason.MAX_TOKENS:
        return _CONTINUE if _allows(context, "max_continuations_per_turn") else _truncated(_CUT_OFF, context)
    if reason is FinishReason.TOOL_CALLS and response is None:  # all that is known is that tools are asked for
        return _EXECUTE
    if reason in (FinishReason.UNKNOWN, FinishReason.TOOL_CALLS):
        if response is None or not response.text:
            said = signal.message or "The response is empty and does not say why it ended."
            return Decision(Action.ABORT, said, StopReason.ERROR, RETRY)
        return _taken_as_the_answer(signal)
    return _COMPLETE


def cautious(signal: TerminationSignal, context: DecisionContext = _NOTHING_KNOWN) -> Decision:
    """`standard`, and nothing is taken for granted: an end at LOW confidence, such as UNKNOWN, completes nothing and executes nothing.

    Example:
        >>> unsure = lab.TerminationSignal(lab.FinishReason.END_TURN, lab.Confidence.LOW)
        >>> lab.termination.standard(unsure).action, lab.termination.cautious(unsure).action
        (<Action.COMPLETE: 'complete'>, <Action.ABORT: 'abort'>)
    """
    decision = standard(signal, context)
    if signal.confidence is Confidence.LOW and decision.action in (Action.COMPLETE, Action.EXECUTE_TOOLS):
        return Decision(Action.ABORT, f"Not sure enough to go on: {signal.message}", StopReason.ERROR, RETRY)
    return decision


def lenient(signal: TerminationSignal, context: DecisionContext = _NOTHING_KNOWN) -> Decision:
    """`standard`, and text that is there is good enough: an answer that was cut or filtered, or lost a piece on its way, completes
    the run with what it has.

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
        return Decision(Action.COMPLETE, f"Taken as it is: {decision.reason}", StopReason.COMPLETED, decision.suggestion)
    return decision


_WITH_TEXT = (StopReason.TRUNCATED, StopReason.CONTENT_FILTERED)
_ABORTED = {
    FinishReason.ERROR: (StopReason.ERROR, RETRY),
    FinishReason.CONTENT_FILTERED: (StopReason.CONTENT_FILTERED, MODIFY_PROMPT),
    FinishReason.CANCELLED: (StopReason.CANCELLED, RETRY),
    FinishReason.CONTEXT_WINDOW_EXCEEDED: (StopReason.TRUNCATED, MODIFY_PROMPT),
}
_CUT_OFF = "The response was cut off at its output cap."
_HALF_CALL = "The response was cut off inside a tool call, which was not executed."
_CONTINUE = Decision(Action.CONTINUE_OUTPUT, f"{_CUT_OFF} The model is asked to go on.")
_ASK_AGAIN = Decision(Action.ASK_AGAIN, "A piece of the streamed answer was lost on its way. The model is asked again.")
_REPAIR = Decision(Action.REPAIR_TOOL_CALL, "A tool call was cut off. The model is asked for the whole of it.")
_EXECUTE = Decision(Action.EXECUTE_TOOLS, "The model asked for tools.")
_COMPLETE = Decision(Action.COMPLETE, "The model ended its turn.", StopReason.COMPLETED, STOP)


def _taken_as_the_answer(signal: TerminationSignal) -> Decision:
    """Text whose end nobody explained completes the run, and the run's detail says so."""
    if signal.finish_reason is FinishReason.TOOL_CALLS:
        why = "The provider says that tools are called, but the response holds no call"
    elif signal.raw_value is None:
        why = "The provider did not say why the response ended"
    else:
        why = f"It is not known why the response ended: the provider says {signal.raw_value!r}"
    metadata = {"end": "unknown", "confidence": signal.confidence.value}
    return Decision(Action.COMPLETE, f"{why}; its text is taken as the answer.", StopReason.COMPLETED, STOP, metadata)


def _allows(context: DecisionContext, cap: str) -> bool:
    """Whether the run's continuation policy allows any further call of this kind; a signal alone has no run."""
    return context.settings is not None and getattr(context.settings.continuation, cap) > 0


def _truncated(told: str, context: DecisionContext) -> Decision:
    return Decision(
        Action.ABORT, told, StopReason.TRUNCATED, INCREASE_BUDGET, larger_cap(context.requested_cap, context.response)
    )


# What a policy may say -----------------------------------------------------------------------------------------------------

_ENDS = {Action.COMPLETE: StopReason.COMPLETED, Action.ABORT: StopReason.ERROR}
_GOES_ON = (Action.EXECUTE_TOOLS, Action.RESUME, Action.CONTINUE_OUTPUT, Action.REPAIR_TOOL_CALL, Action.ASK_AGAIN)


def checked(decision: object, policy: Policy, context: DecisionContext) -> Decision:
    """A policy's decision, if it can be carried out. Raises ConfigurationError if not.

    Example:
        >>> decision = lab.Decision(lab.Action.COMPLETE, "Good enough.")
        >>> lab.termination.checked(decision, lab.termination.lenient, lab.DecisionContext()).stop_reason
        <StopReason.COMPLETED: 'completed'>
    """
    name = getattr(policy, "__name__", repr(policy))
    if not isinstance(decision, Decision):
        raise ConfigurationError(
            f"The policy {name} returned {decision!r}: return a Decision, such as that of `lab.termination.standard(signal, context)`."
        )
    calls = context.response.tool_calls if context.response is not None else ()
    if decision.action in _ENDS:
        return decision if decision.stop_reason is not None else replace(decision, stop_reason=_ENDS[decision.action])
    if decision.action not in _GOES_ON:
        may = ", ".join(str(action) for action in (*_GOES_ON, *_ENDS))
        raise ConfigurationError(f"The policy {name} decided for {decision.action!s}; a policy may decide for {may}.")
    if decision.stop_reason is not None:
        raise ConfigurationError(
            f"The policy {name} decided for {decision.action}, which goes on, and gave the run's end {decision.stop_reason} as well: "
            "leave stop_reason out, or decide for complete or abort."
        )
    if decision.action is Action.ASK_AGAIN and context.response is not None and not context.response.is_spoilt:
        raise ConfigurationError(
            f"The policy {name} decided for ask_again, but the response lost nothing on its way (response.holes is empty)."
        )
    if decision.action is Action.EXECUTE_TOOLS and context.response is not None:
        if not calls:
            raise ConfigurationError(f"The policy {name} decided for execute_tools, but the response holds no tool call.")
        if any(map(is_cut_off, calls)):
            return _truncated(f"{_HALF_CALL[:-1]}, though the policy {name} asked for it.", context)
    return decision


def _all_have_arguments(calls: tuple[ToolCall, ...]) -> bool:
    """Of a response cut at its cap, empty arguments may be ones that were still to come; elsewhere they are a call without any."""
    return all(call.arguments.strip() for call in calls)


def is_cut_off(tool_call: ToolCall) -> bool:
    """Whether a call is half there: its block was not closed, or its JSON breaks off. Wrong JSON that is whole is no half call: the
    model is told of it.

    Example:
        >>> lab.termination.is_cut_off(call("search", '{"words": "umb').tool_calls[0])
        True
    """
    if not tool_call.closed:
        return True
    if not tool_call.arguments.strip():
        return False
    try:
        pydantic_core.from_json(whole(tool_call.arguments))
    except ValueError as error:
        return "EOF while parsing" in str(error)
    return False


__all__ = ["DecisionContext", "Policy", "cautious", "decide", "is_cut_off", "lenient", "standard"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__)
