"""What goes over the wire of the chat endpoints: bodies, answers and errors, as the OpenAPI document shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agentlab.redaction import without_keys
from agentlab.serving.chat import LONGEST_ID, ChatReply
from agentlab.terminating import NUDGE_MESSAGE
from agentlab.types import Message, StopReason, ToolCall, ToolResult

MOST = 1_000
"""The largest number that a request may ask for: each is a call of the model, or may lead to one."""

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
        min_length=1, description="Names or ids of the agent's tools; the first that succeeds ends the run."
    )
    consecutive_nudges: WholeNumber = Field(
        default=1, ge=0, le=MOST, description="How often in a row an answer without a tool call is reminded; 0: never."
    )
    nudge_message: str = Field(default=NUDGE_MESSAGE, min_length=1, pattern=_SAYS_SOMETHING, description="The reminder.")
    max_invocations: WholeNumber = Field(default=64, ge=1, le=MOST, description="Round trips to the model in the run.")


Terminating: TypeAlias = Annotated[
    TerminatingConfig | None, Field(description="Let tools end the run; without it the agent's own setting holds.")
]


class ChatBody(_Body):
    """A message of the user in a context."""

    context_id: ContextId
    message: Said = Field(description="What the user says.", examples=["Do I need an umbrella in Graz?"])
    terminating_config: Terminating = None


class InvokeBody(_Body):
    """A context on which the agent runs as it is."""

    context_id: ContextId
    terminating_config: Terminating = None


class AddAiMessageBody(_Body):
    """An instruction for the assistant's next message in a context."""

    context_id: ContextId
    prompt: Said = Field(description="What the assistant's next message is to say or do.", examples=["Say good bye."])
    terminating_config: Terminating = None


class AskBody(_Body):
    """A prompt for the agent, without a context."""

    prompt: Said = Field(description="The task.", examples=["Do I need an umbrella in Graz?"])
    terminating_config: Terminating = None


class AddMessageBody(_Body):
    """A message that is added to a context as it is."""

    context_id: ContextId
    message: Said = Field(description="The text.", examples=["Your parcel has arrived."])
    role: Literal["assistant", "user"] = Field(default="assistant", description="Whose message it is.")


class SaidMessage(BaseModel):
    """A text."""

    sender: Literal["human", "ai"] = Field(description="`human` for the user, a prompt and a reminder; `ai` for the assistant.")
    message: str


class MadeToolCall(BaseModel):
    """A call of a tool."""

    type: Literal["tool_call"]
    tool_call_id: str
    tool_name: str
    tool_input: dict[str, Any] = Field(description='The arguments; {"raw": "…"} where the model wrote no JSON object.')


class ToolResponse(BaseModel):
    """What a tool call led to."""

    type: Literal["tool_response"]
    tool_call_id: str
    tool_output: str = Field(description="The text that the model was given.")


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

    role: Literal["user", "assistant", "tool", "system"] = Field(description="`system` for a reminder and an instruction.")
    content: str
    tool_calls: list[ServedToolCall] = Field(default=[], description="Left out where there are none.")
    tool_results: list[ServedToolResult] = Field(default=[], description="Left out where there are none.")


class ServedReply(BaseModel):
    """What a request led to."""

    response: str = Field(
        description="The answer, or the text of the terminating tool. An answer that was cut ends with a notice in brackets."
    )
    saved_ai_messages: bool = Field(description="True if the context has gained messages of the assistant.")
    generated_messages: list[SaidMessage | MadeToolCall | ToolResponse] = Field(
        description="The request's own message and all that followed, in order."
    )
    stop_reason: StopReason | None = Field(
        description="Why the run ended. A limit is no error: its answer has the status 200, and what came until then. "
        "null where the agent was not run."
    )
    detail: str = Field(description="The same in one sentence.")
    notice: str = Field(description="Says that the answer is not whole; empty where it is.")
    messages: list[ServedMessage] = Field(description="The request's messages in agentlab's own form, with their roles.")


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
        saved_ai_messages=reply.saved_ai_messages,
        generated_messages=[_item(item) for item in reply.generated_messages],
        stop_reason=reply.stop_reason,
        detail=_sendable(reply.detail),
        notice=_sendable(reply.notice),
        messages=[_message(message) for message in reply.messages],
    )


def _item(item: Mapping[str, Any]) -> SaidMessage | MadeToolCall | ToolResponse:
    sendable = json.loads(_sendable(json.dumps(item, ensure_ascii=False)))
    forms: dict[str | None, type[SaidMessage | MadeToolCall | ToolResponse]] = {
        "tool_call": MadeToolCall,
        "tool_response": ToolResponse,
    }
    return forms.get(sendable.get("type"), SaidMessage)(**sendable)


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
