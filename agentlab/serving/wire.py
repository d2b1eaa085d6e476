"""What goes over the wire of the chat endpoints: bodies, answers and errors, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agentlab.redaction import without_keys
from agentlab.serving.chat import LONGEST_ID, ChatReply
from agentlab.terminating import NUDGE_MESSAGE
from agentlab.types import Message, StopReason, ToolCall, ToolResult

MOST = 1_000_000
"""The largest number that a request may ask for."""

ContextId: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LONGEST_ID,
        pattern=r"^[ -~]+$",
        description="The conversation that this belongs to, in printable ASCII. One that was not used before begins with this request.",
        examples=["anna"],
    ),
]
_SAYS_SOMETHING = r"[^\s\x1c-\x1f]"
WholeNumber: TypeAlias = Annotated[
    int, BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
]
"""JSON has one kind of number: 3.0 is 3."""

Said: TypeAlias = Annotated[str, Field(min_length=1, pattern=_SAYS_SOMETHING)]


class _Body(BaseModel):
    """A body says what it means: no unknown fields, no numbers as text."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TerminatingConfig(_Body):
    """The tools that end the run, and how an answer that calls none of them is treated."""

    tool_ids: list[Annotated[str, Field(min_length=1)]] = Field(
        min_length=1, description="Names of the agent's tools; the first that succeeds ends the run."
    )
    consecutive_nudges: WholeNumber = Field(
        default=1, ge=0, le=MOST, description="How often in a row an answer without a tool call is reminded; 0: never."
    )
    nudge_message: str = Field(default=NUDGE_MESSAGE, min_length=1, pattern=_SAYS_SOMETHING, description="The reminder.")
    max_invocations: WholeNumber = Field(default=64, ge=1, le=MOST, description="Round trips to the model in the run.")


class ChatBody(_Body):
    """A message of the user in a context."""

    context_id: ContextId
    message: Said = Field(description="What the user says.", examples=["Do I need an umbrella in Graz?"])
    terminating_config: TerminatingConfig | None = Field(
        default=None, description="Let tools end the run; without it the agent's own setting holds."
    )


class InvokeBody(_Body):
    """A prompt for the agent, with or without a context."""

    prompt: Said = Field(description="The task.", examples=["Do I need an umbrella in Graz?"])
    context_id: ContextId | None = Field(default=None, description="The conversation to go on with; without it nothing is kept.")
    terminating_config: TerminatingConfig | None = Field(
        default=None, description="Let tools end the run; without it the agent's own setting holds."
    )


class AddAiMessageBody(_Body):
    """A message of the assistant in a context."""

    context_id: ContextId
    message: Said = Field(description="What the assistant is to have said.", examples=["Your parcel has arrived."])


class ServedToolCall(BaseModel):
    """A tool call as the model made it."""

    id: str
    name: str
    arguments: str = Field(description="JSON as text, as the model wrote it.")


class ServedToolResult(BaseModel):
    """What a tool call led to."""

    call_id: str
    name: str
    content: str = Field(description="The text that the model was given.")
    error: str | None = Field(default=None, description="What went wrong, in one word; null is success.")


class ServedMessage(BaseModel):
    """One message of a conversation."""

    role: Literal["user", "assistant", "tool"] = Field(description="`user` stands for a reminder (a nudge).")
    content: str
    tool_calls: list[ServedToolCall] = Field(default=[], description="Left out where there are none.")
    tool_results: list[ServedToolResult] = Field(default=[], description="Left out where there are none.")


class ServedReply(BaseModel):
    """What a request led to."""

    response: str = Field(
        description="The answer, or what the terminating tool gave, as text. An answer that was cut ends with a notice in brackets."
    )
    saved_ai_messages: list[ServedMessage] = Field(description="The assistant's messages that the context gained.")
    generated_messages: list[ServedMessage] = Field(
        description="All that came of the request, in order: the assistant's messages, tool results and reminders."
    )
    stop_reason: StopReason | None = Field(
        description="Why the run ended. A limit is no error: its answer has the status 200, and what came until then. "
        "null where the agent was not run."
    )
    detail: str = Field(description="The same in one sentence.")


class ErrorTold(BaseModel):
    """What is wrong."""

    type: str = Field(description="The kind of error, in one word.", examples=["invalid_field"])
    message: str = Field(description="What is wrong, and what to do next.")


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorTold


def served(reply: ChatReply) -> ServedReply:
    """A reply as it goes over the wire."""
    return ServedReply(
        response=_sendable(reply.response),
        saved_ai_messages=[_message(message) for message in reply.saved_ai_messages],
        generated_messages=[_message(message) for message in reply.generated_messages],
        stop_reason=reply.stop_reason,
        detail=_sendable(reply.detail),
    )


def _message(message: Message) -> ServedMessage:
    """What a message does not have stays unset, and is left out of the answer."""
    more: dict[str, Any] = {}
    if message.tool_calls:
        more["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_results:
        more["tool_results"] = [_result(result) for result in message.tool_results]
    return ServedMessage(role=message.role, content=_sendable(message.text), **more)


def _call(call: ToolCall) -> ServedToolCall:
    return ServedToolCall(id=_sendable(call.id), name=_sendable(call.name), arguments=_sendable(call.arguments))


def _result(result: ToolResult) -> ServedToolResult:
    return ServedToolResult(
        call_id=_sendable(result.call_id),
        name=_sendable(result.name),
        content=_sendable(result.content),
        error=result.error,
    )


def _sendable(text: str) -> str:
    """The text without keys, and with every half of a surrogate pair replaced: models send them, and UTF-8 has no room for them."""
    text = without_keys(text)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
