"""What follows from a response: one table, no I/O.

the response ended for                   and it holds                    then                   the run's reason, if it ends
---------------------------------------- ------------------------------- ---------------------- -----------------------------
ERROR                                    anything                        ABORT                  ERROR
CONTENT_FILTERED                         anything                        ABORT                  CONTENT_FILTERED
CANCELLED                                anything                        ABORT                  CANCELLED
PAUSED                                   no tool call                    RESUME                 -
CONTEXT_WINDOW_EXCEEDED                  anything                        ABORT                  TRUNCATED
any other                                a tool call that was cut off    ABORT                  TRUNCATED
MAX_TOKENS                               a call without any arguments    ABORT                  TRUNCATED
MAX_TOKENS                               complete tool calls             EXECUTE_TOOLS          -
MAX_TOKENS                               no tool call                    ABORT                  TRUNCATED
any other                                tool calls                      EXECUTE_TOOLS          -
UNKNOWN, TOOL_CALLS                      no text, no call                ABORT                  ERROR
UNKNOWN, TOOL_CALLS                      text                            COMPLETE               COMPLETED
END_TURN, STOP_SEQUENCE                  no call                         COMPLETE               COMPLETED
"""

from __future__ import annotations

import pydantic_core

from agentlab.results import Action, Decision
from agentlab.types import FinishReason, ModelResponse, StopReason, ToolCall

_ABORTED = {
    FinishReason.ERROR: (StopReason.ERROR, "retry"),
    FinishReason.CONTENT_FILTERED: (StopReason.CONTENT_FILTERED, "modify_prompt"),
    FinishReason.CANCELLED: (StopReason.CANCELLED, "retry"),
    FinishReason.CONTEXT_WINDOW_EXCEEDED: (StopReason.TRUNCATED, "modify_prompt"),
}
_CUT_OFF = "The response was cut off at its output cap."
_HALF_CALL = "The response was cut off inside a tool call, which was not executed."


def decide(response: ModelResponse) -> Decision:
    """What follows from this response, by the table above."""
    signal = response.signal
    reason = signal.finish_reason
    if reason in _ABORTED:
        stop_reason, suggestion = _ABORTED[reason]
        return Decision(Action.ABORT, signal.message or f"The response ended with {reason}.", stop_reason, suggestion)
    if reason is FinishReason.PAUSED and not response.tool_calls:
        return Decision(Action.RESUME, "The provider paused its turn and is asked to go on.")
    if response.tool_calls:
        if any(map(is_cut_off, response.tool_calls)) or (reason is FinishReason.MAX_TOKENS and not _all_have_arguments(response)):
            return Decision(Action.ABORT, _HALF_CALL, StopReason.TRUNCATED, "increase_budget")
        return _EXECUTE
    if reason is FinishReason.MAX_TOKENS:
        return Decision(Action.ABORT, _CUT_OFF, StopReason.TRUNCATED, "increase_budget")
    if reason in (FinishReason.UNKNOWN, FinishReason.TOOL_CALLS) and not response.text:
        said = signal.message or "The response is empty and does not say why it ended."
        return Decision(Action.ABORT, said, StopReason.ERROR, "retry")
    return _COMPLETE


_EXECUTE = Decision(Action.EXECUTE_TOOLS, "The model asked for tools.")
_COMPLETE = Decision(Action.COMPLETE, "The model ended its turn.", StopReason.COMPLETED)


def _all_have_arguments(response: ModelResponse) -> bool:
    """Of a response cut at its cap, empty arguments may be ones that were still to come; elsewhere they are a call without any."""
    return all(call.arguments.strip() for call in response.tool_calls)


def is_cut_off(tool_call: ToolCall) -> bool:
    """Whether a call is half there: its block was not closed, or its JSON breaks off. Wrong JSON that is whole is no half call: the
    model is told of it."""
    if not tool_call.closed:
        return True
    if not tool_call.arguments.strip():
        return False
    try:
        pydantic_core.from_json(tool_call.arguments)
    except ValueError as error:
        return "EOF while parsing" in str(error)
    return False
