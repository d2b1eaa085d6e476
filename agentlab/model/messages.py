"""Messages, tool calls and tool results, their JSON form for stores, and the request that sends them to a model.

All values are frozen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from agentlab._internal.display import Displayable
from agentlab._internal.errors import ConfigurationError
from agentlab._internal.redaction import redacted_repr
from agentlab._internal.values import dataclass
from agentlab.model.parts import Content, Part, joined, split

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

    `content` is the text for the model; `value` is what the function returned, or the exception that it raised; the repr leaves it out,
    since a library may cut a key in it. `error` is None for success, else one word: `unknown_tool`, `invalid_arguments`, `exception`,
    `timeout`, `unserialisable`, `not_executed`, `interrupted` (cut off by the end of the run), `may_have_run` (started in a process
    that died, and not repeated), `refused` (by a person). `stop` is set if the tool requested the end of the run.

    `arguments` are those that the model sent. If a tool middleware changed something, `middleware` names it: `arguments`, `result`, or
    `answer` (the tool was not executed); `executed_arguments` are those that the tool received.

    `parts` are the images, documents and audio that a tool returned; `content` has a line for each (see `Message`), and may be given as
    a list of texts and parts.

    If a person was asked first, `approval` is the decision: `approved`, `edited` (the arguments, see `executed_arguments`), `answered`
    (in the tool's place) or `refused`; `waited_s` are the seconds until then.

    Example:
        >>> ended.history[0].tool_results[0].content
        '{"city":"Graz","sky":"rain","high_c":17}'
        >>> lab.ToolResult("call_1", "pay", "Ask the person first.", error="denied").is_error
        True
    """

    call_id: str
    name: str
    content: str
    value: Any = field(default=None, repr=False)
    error: str | None = None
    arguments: str = ""
    duration_s: float = 0.0
    stop: Stop | None = None
    executed_arguments: str | None = None
    middleware: str = ""
    approval: str = ""
    waited_s: float | None = None
    parts: tuple[Part, ...] = ()

    if TYPE_CHECKING:  # as users write it

        def __init__(  # noqa: PLR0917  the fields
            self,
            call_id: str,
            name: str,
            content: Content,
            value: Any = None,
            error: str | None = None,
            arguments: str = "",
            duration_s: float = 0.0,
            stop: Stop | None = None,
            executed_arguments: str | None = None,
            middleware: str = "",
            approval: str = "",
            waited_s: float | None = None,
            parts: tuple[Part, ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.content) is not str:
            _join(self, "content", self.content)

    @property
    def pieces(self) -> list[str | Part]:
        """The texts and parts, in order, as they are sent. A part whose line was removed from `content` is left out.

        Example:
            >>> ended.history[0].tool_results[0].pieces
            ['{"city":"Graz","sky":"rain","high_c":17}']
        """
        return split(self.content, self.parts)

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
    within the conversation: a reminder to call a terminating tool, a request to continue a cut answer, to repeat a tool call, or to
    correct a typed answer. Only OpenAI, Azure and xAI take one after other messages from every model; the others get a user message.

    `text` may be given as a list of texts and parts (`lab.Image`, `lab.Document`, `lab.Audio`). It is kept as text with a line for each
    part, and `parts` has the parts in order.

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
    parts: tuple[Part, ...] = ()

    if TYPE_CHECKING:  # as users write it

        def __init__(  # noqa: PLR0917  the fields
            self,
            role: Role,
            text: Content = "",
            tool_calls: tuple[ToolCall, ...] = (),
            tool_results: tuple[ToolResult, ...] = (),
            native: NativeContent | None = None,
            parts: tuple[Part, ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.text) is not str:
            _join(self, "text", self.text)
        if self.parts and self.role != "user":
            raise ConfigurationError(
                f"Message({self.role!r}, …): only a user message has images and files, and results of tools have."
            )

    @property
    def pieces(self) -> list[str | Part]:
        """The texts and parts, in order, as they are sent. A part whose line was removed from `text` is left out.

        Example:
            >>> lab.Message("user", ["What is this?", lab.Image("https://example.com/map.png")]).pieces
            ['What is this?', Image('image https://example.com/map.png')]
        """
        return split(self.text, self.parts)

    def all_parts(self) -> Iterator[Part]:
        """Yield the parts of the message and of its tool results."""
        yield from self.parts
        for result in self.tool_results:
            yield from result.parts


def _join(value: Message | ToolResult, name: str, content: Content) -> None:
    """Replace a list of texts and parts by the text, and the parts beside it."""
    if not isinstance(content, str):
        where = f"{type(value).__name__}({name}=…)"
        if not isinstance(content, list | tuple):
            raise ConfigurationError(f"{where}: {content!r} is neither text nor a list of texts and parts.")
        text, parts = joined(content, where)
        object.__setattr__(value, name, text)
        object.__setattr__(value, "parts", parts)


def user_message(content: Content, refusal: str) -> Message:
    """Return the message of a prompt. Raises ConfigurationError with the `refusal`, which has a place for the value, if it is empty or
    neither text nor a list of texts and parts."""
    is_list = isinstance(content, list | tuple)
    text, parts = joined(content, refusal.partition("=")[0] + "=…") if is_list else (content, ())
    if not isinstance(text, str) or not text.strip():
        raise ConfigurationError(refusal.format(content))
    return Message("user", text, parts=parts)


def encode(message: Message) -> str:
    """Return a message as JSON text, with the bytes of its parts; empty fields are omitted."""
    return json.dumps(plain(message, with_data=True), separators=(",", ":"))


def plain(message: Message, place_of: Mapping[int, int] = MappingProxyType({}), *, with_data: bool = False) -> dict[str, Any]:
    """Return a message as a dict for JSON. Tool results whose `id()` is in `place_of` are replaced by a reference to that place. The
    bytes of parts are replaced by their hash, unless `with_data`."""
    data: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.parts:
        data["parts"] = [part.to_jsonable(with_data=with_data) for part in message.parts]
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "closed": call.closed} for call in message.tool_calls
        ]
    if message.tool_results:
        data["tool_results"] = [
            {"of_step": place_of[id(result)]} if id(result) in place_of else _result(result, with_data)
            for result in message.tool_results
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
            tuple([Part.from_jsonable(part) for part in data.get("parts", ())]),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a message: {type(error).__name__}: {error}") from error


_RESULT_FIELDS = ("call_id", "name", "content", "error", "arguments", "duration_s")

_CHANGED_FIELDS = ("middleware", "executed_arguments", "approval", "waited_s")


def _result(result: ToolResult, with_data: bool) -> dict[str, Any]:
    names = _RESULT_FIELDS + _CHANGED_FIELDS if result.middleware or result.approval else _RESULT_FIELDS
    stop = {} if result.stop is None else {"stop": result.stop.reason}
    parts = {"parts": [part.to_jsonable(with_data=with_data) for part in result.parts]} if result.parts else {}
    return {name: getattr(result, name) for name in names} | stop | parts


def of_step(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored tool result of a step in the form that it has in a message."""
    stop = {} if data.get("stop") is None else {"stop": data["stop"]["reason"]}
    return {name: data[name] for name in (*_RESULT_FIELDS, *_CHANGED_FIELDS, "parts") if name in data} | stop


def _as_result(data: dict[str, Any]) -> ToolResult:
    stop = data.get("stop")
    parts = tuple([Part.from_jsonable(part) for part in data.get("parts", ())])
    return ToolResult(**{**data, "stop": None if stop is None else Stop(stop), "parts": parts})


# Requests --------------------------------------------------------------------------------------------------------------------


@redacted_repr
@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `parameters` is a JSON schema of type object, `parameters_json` the same as text."""

    name: str
    description: str
    parameters: Mapping[str, JSON]
    parameters_json: str


Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
TOOL_CHOICES = ("auto", "required", "none")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters that mean the same on each wire, under the wire's own name. None: the provider's default applies.

    `temperature` is at least 0 and at most 2. `seed` makes sampling repeatable, as far as the server can. `reasoning_effort` is how
    much the model reasons, from `none` to `max`. `tool_choice` is `auto`, `required` (the model must call a tool), `none`, or the name
    of the tool that it must call. `parallel_tool_calls` False allows one call per answer. The last two are sent with tools only.
    """

    temperature: float | None = None
    seed: int | None = None
    reasoning_effort: Effort | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None

    def given(self) -> dict[str, JSON]:
        """Return the parameters that are not None, by name."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


OutputForm: TypeAlias = Literal["schema", "strict", "tool"]
"""How a wire takes the type of an answer: as a JSON schema, as one in which every object is closed, or as a tool."""


@redacted_repr
@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model, independent of the provider.

    `messages` is read-only, and may be a view of fixed length on a growing conversation. If `max_output_tokens` is None, the provider's
    default cap applies. `parameters` mean the same for each provider; `options` are merged into the top level of the provider's
    request body, where a parameter takes precedence. `output_schema` is a JSON schema of an object: the answer is to be JSON that fits
    it, by the structured output of the wire.
    """

    messages: Sequence[Message]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    options: Mapping[str, JSON] = field(default_factory=dict)
    stream: bool = False
    parameters: Parameters = Parameters()
    output_schema: Mapping[str, JSON] | None = None
