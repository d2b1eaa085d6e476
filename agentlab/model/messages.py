"""Messages, tool calls and tool results, their JSON form for stores, and the request that sends them to a model.

All values are frozen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast, get_args

from agentlab._internal.display import Displayable
from agentlab._internal.redaction import redacted_repr

# Messages --------------------------------------------------------------------------------------------------------------------

JSON: TypeAlias = Any
"""A value as `json.loads` returns it."""


@redacted_repr
@dataclass(frozen=True, slots=True)
class ToolCall(Displayable):
    """A tool call as the model sent it.

    `arguments` is unparsed JSON text, since it may be cut off or invalid. `closed` is False if the provider did not finish the block of
    the call: the stream broke off, or the response reached its output cap.

    Example:
        >>> ended.history[0].tool_calls[0].name, ended.history[0].tool_calls[0].arguments
        ('get_weather', '{"city":"Graz","day":"2027-06-12"}')
    """

    id: str
    name: str
    arguments: str
    closed: bool = True


@redacted_repr
@dataclass(frozen=True, slots=True)
class Stop(Displayable):
    """Return this from a tool to end the run for a reason; `output` becomes the result's output.

    Example:
        >>> def give_up(why: str):
        ...     'Give up.'
        ...     return lab.Stop(f"it gave up: {why}", output=0)
        >>> result = await lab.Agent(ScriptedProvider([call("give_up", {"why": "no train"})]), tools=[give_up]).run("?")
        >>> result.stop_reason, result.detail, result.output
        (<StopReason.EXPLICIT_STOP: 'explicit_stop'>, 'Stopped by the tool: it gave up: no train', 0)
    """

    reason: str
    output: Any = None


@redacted_repr
@dataclass(frozen=True, slots=True)
class ToolResult(Displayable):
    """The result of a tool call.

    `content` is the text for the model; `value` is what the function returned, or the exception that it raised. `error` is None for
    success, else one word: `unknown_tool`, `invalid_arguments`, `exception`, `timeout`, `unserialisable`, `not_executed`, `interrupted`
    (cut off by the end of the run), `may_have_run` (started in a process that died, and not repeated). `stop` is set if the tool
    requested the end of the run.

    `arguments` are those that the model sent. If a tool middleware changed something, `middleware` names it: `arguments`, `result`, or
    `answer` (the tool was not executed); `executed_arguments` are those that the tool received.

    Example:
        >>> ended.history[0].tool_results[0].content
        '{"city":"Graz","sky":"rain","high_c":17}'
        >>> lab.ToolResult("call_1", "pay", "Ask the person first.", error="denied").is_error
        True
    """

    call_id: str
    name: str
    content: str
    value: Any = None
    error: str | None = None
    arguments: str = ""
    duration_s: float = 0.0
    stop: Stop | None = None
    executed_arguments: str | None = None
    middleware: str = ""

    @property
    def is_error(self) -> bool:
        """True if the call failed; the model reads the error as the result.

        Example:
            >>> ended.history[0].tool_results[0].is_error
            False
        """
        return self.error is not None


Role: TypeAlias = Literal["user", "assistant", "tool", "system"]


@redacted_repr
@dataclass(frozen=True, slots=True)
class NativeContent:
    """An assistant message in the provider's format. It is sent back unchanged to the same wire, for example for its signatures."""

    wire: str
    content: JSON


@redacted_repr
@dataclass(frozen=True, slots=True)
class Message(Displayable):
    """One message of the conversation. The instructions are not a message: they are `ModelRequest.instructions`.

    A `tool` message holds the results of all calls of the assistant message before it, in order. A `system` message is an instruction
    within the conversation, such as the reminder to call a terminating tool; wires without system messages send it as a user message.

    Example:
        >>> lab.Message("user", "What is the capital of France?").role
        'user'
        >>> later = brief.run("And of Italy?", messages=[lab.Message("user", "Hello."), lab.Message("assistant", "Hello!")])
        >>> [message.role for message in later.messages]
        ['user', 'assistant', 'user']
    """

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    native: NativeContent | None = None


def encode(message: Message) -> str:
    """Return a message as JSON text; empty fields are omitted."""
    return json.dumps(plain(message), separators=(",", ":"))


def plain(message: Message, place_of: Mapping[int, int] = MappingProxyType({})) -> dict[str, Any]:
    """Return a message as a dict for JSON. Tool results whose `id()` is in `place_of` are replaced by a reference to that place."""
    data: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "closed": call.closed} for call in message.tool_calls
        ]
    if message.tool_results:
        data["tool_results"] = [
            {"of_step": place_of[id(result)]} if id(result) in place_of else _result(result) for result in message.tool_results
        ]
    if message.native is not None:
        data["native"] = {"wire": message.native.wire, "content": message.native.content}
    return data


def decode(text: str) -> Message:
    """Return the message encoded by `encode`. Raises ValueError for any other text."""
    return made(json.loads(text))


def made(data: Any) -> Message:
    """Return the message from a dict made by `plain`. Raises ValueError for anything else."""
    try:
        if data["role"] not in get_args(Role):
            raise ValueError(f"role {data['role']!r} is none of {', '.join(get_args(Role))}")
        native = data.get("native")
        return Message(
            cast(Role, data["role"]),
            data["text"],
            tuple([ToolCall(**call) for call in data.get("tool_calls", ())]),
            tuple([_as_result(result) for result in data.get("tool_results", ())]),
            None if native is None else NativeContent(native["wire"], native["content"]),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a message: {type(error).__name__}: {error}") from error


_RESULT_FIELDS = ("call_id", "name", "content", "error", "arguments", "duration_s")

_CHANGED_FIELDS = ("middleware", "executed_arguments")


def _result(result: ToolResult) -> dict[str, Any]:
    names = _RESULT_FIELDS + _CHANGED_FIELDS if result.middleware else _RESULT_FIELDS
    stop = {} if result.stop is None else {"stop": result.stop.reason}
    return {name: getattr(result, name) for name in names} | stop


def of_step(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored tool result of a step in the form that it has in a message."""
    stop = {} if data.get("stop") is None else {"stop": data["stop"]["reason"]}
    return {name: data[name] for name in _RESULT_FIELDS + _CHANGED_FIELDS if name in data} | stop


def _as_result(data: dict[str, Any]) -> ToolResult:
    stop = data.get("stop")
    return ToolResult(**{**data, "stop": None if stop is None else Stop(stop)})


# Requests --------------------------------------------------------------------------------------------------------------------


@redacted_repr
@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `parameters` is a JSON schema of type object, `parameters_json` the same as text."""

    name: str
    description: str
    parameters: Mapping[str, JSON]
    parameters_json: str


@redacted_repr
@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model, independent of the provider.

    `messages` is read-only, and may be a view of fixed length on a growing conversation. If `max_output_tokens` is None, the provider's
    default cap applies. `options` are merged into the top level of the provider's request body.
    """

    messages: Sequence[Message]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    options: Mapping[str, JSON] = field(default_factory=dict)
    stream: bool = False
