"""The values that travel through a run: messages, requests, responses, usage and why a response ended.

All are frozen. Tokens are counts, money is `Decimal` US dollars, times are seconds. `None` means unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from agentlab.errors import ConfigurationError
from agentlab.redaction import Redactor, clean_json, shown_without_keys
from agentlab.shown import Shown
from agentlab.usage import Cost, CostSource, Usage, UsageSource

__all__ = [
    "Confidence",
    "Cost",
    "CostSource",
    "FinishReason",
    "Hole",
    "JSON",
    "Message",
    "ModelRequest",
    "ModelResponse",
    "NativeContent",
    "RateLimit",
    "ReasoningDelta",
    "ResponseSource",
    "Role",
    "SignalSeen",
    "Stop",
    "StopReason",
    "StreamEvent",
    "TerminationSignal",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolResult",
    "ToolSpec",
    "Usage",
    "UsageSource",
]

JSON: TypeAlias = Any
"""A value as `json.loads` returns it."""


class FinishReason(StrEnum):
    """Why one response ended.

    Example:
        >>> lab.detect("anthropic", {"type": "message", "content": [], "stop_reason": "pause_turn"}).finish_reason
        <FinishReason.PAUSED: 'paused'>
        >>> lab.FinishReason("max_tokens") == "max_tokens"
        True
    """

    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    CONTENT_FILTERED = "content_filtered"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    ERROR = "error"
    UNKNOWN = "unknown"


class StopReason(StrEnum):
    """Why a run ended.

    Example:
        >>> result.stop_reason is lab.StopReason.STOP_CONDITION
        True
        >>> print(lab.StopReason.TURN_LIMIT)
        turn_limit
    """

    COMPLETED = "completed"
    TERMINATING_TOOL = "terminating_tool"
    EXPLICIT_STOP = "explicit_stop"
    STOP_CONDITION = "stop_condition"
    TURN_LIMIT = "turn_limit"
    CALL_LIMIT = "call_limit"
    TOKEN_BUDGET = "token_budget"  # noqa: S105  not a password
    COST_BUDGET = "cost_budget"
    TIMEOUT = "timeout"
    TRUNCATED = "truncated"
    CONTENT_FILTERED = "content_filtered"
    NUDGES_EXHAUSTED = "nudges_exhausted"
    CANCELLED = "cancelled"
    ERROR = "error"


class Confidence(StrEnum):
    """How sure a TerminationSignal is.

    HIGH: a documented value that agrees with the rest of the response. MEDIUM: inferred from the response's pattern. LOW:
    missing, unknown or contradictory.

    Example:
        >>> lab.detect("openai", {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).confidence
        <Confidence.HIGH: 'high'>
        >>> lab.detect("openai", {"choices": [{"message": {"content": "Hi"}, "finish_reason": "finished"}]}).confidence
        <Confidence.LOW: 'low'>
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `parameters` is a JSON schema of type object, `parameters_json` the same as text."""

    name: str
    description: str
    parameters: Mapping[str, JSON]
    parameters_json: str


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ToolCall(Shown):
    """A tool call as the model sent it.

    `arguments` is the raw JSON text, unparsed, since it may be cut off or wrong. `closed` is False where the block that holds
    the call was not finished by the provider (a stream that broke off, a response cut at its cap before the block's end).

    Example:
        >>> ended.history[0].tool_calls[0].name, ended.history[0].tool_calls[0].arguments
        ('get_weather', '{"city":"Graz","day":"2027-06-12"}')
    """

    id: str
    name: str
    arguments: str
    closed: bool = True


@shown_without_keys
@dataclass(frozen=True, slots=True)
class Stop(Shown):
    """Returned by a tool: end the run for this reason; `output` is then the result's output.

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


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ToolResult(Shown):
    """What a tool call led to.

    `content` is the text handed back to the model; `value` what the function returned, or the exception it raised. `error` says
    what went wrong in one word: `unknown_tool`, `invalid_arguments`, `exception`, `timeout`, `unserialisable`, `not_executed`,
    `interrupted` (begun, and cut off by the run's end), `may_have_run` (begun in a process that ended, and not executed again); None is
    success. `stop` is there where the tool asked the run to end.

    `arguments` are those that the model sent. Where a tool middleware changed something, `middleware` says what: `arguments`,
    `result`, or `answer` (the tool was not executed), and `executed_arguments` are those that the tool got.

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
        """Whether the model was told that the call failed.

        Example:
            >>> ended.history[0].tool_results[0].is_error
            False
        """
        return self.error is not None


Role: TypeAlias = Literal["user", "assistant", "tool", "system"]


@shown_without_keys
@dataclass(frozen=True, slots=True)
class NativeContent:
    """An assistant turn in a provider's own form, sent back to the same wire unchanged (thinking signatures and the like)."""

    wire: str
    content: JSON


@shown_without_keys
@dataclass(frozen=True, slots=True)
class Message(Shown):
    """One message of the conversation. The instructions that stand before it are not one: they are `ModelRequest.instructions`.

    A `tool` message carries the results of all calls of the assistant message before it, in order. A `system` message is an instruction
    in mid-conversation, such as the reminder to call a terminating tool; wires without one send it as the user's.

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


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What is asked of a model, in no provider's words.

    `messages` is read only and may be a view on a growing conversation, fixed in length. `max_output_tokens` None leaves the
    cap to the provider. `options` are further fields of the provider's own request body, merged at its top level.
    """

    messages: Sequence[Message]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    options: Mapping[str, JSON] = field(default_factory=dict)
    stream: bool = False


@shown_without_keys
@dataclass(frozen=True, slots=True)
class TerminationSignal(Shown):
    """Why a response ended, and how sure that is.

    `raw_field` and `raw_value` are the provider's own, as sent (`raw_value` None: missing). `message` is one sentence.
    `repairable` marks an ERROR that asking again may mend, such as a malformed tool call. `metadata` holds further raw readings
    of the provider, and is sanitised: JSON values only, short, and nothing in it that looks like a key. `model` is the model asked for,
    "" where it is not known (signals are compared without it).

    Raises ConfigurationError where a field is not what it should be, which only a detector of your own can bring about.

    Example:
        >>> signal = result.history[0].signal
        >>> signal.finish_reason, signal.raw_field, signal.raw_value, signal.should_terminate
        (<FinishReason.TOOL_CALLS: 'tool_calls'>, 'stop_reason', 'tool_use', False)
    """

    finish_reason: FinishReason
    confidence: Confidence
    provider: str = ""
    raw_field: str = ""
    raw_value: str | int | None = None
    message: str = ""
    repairable: bool = False
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    model: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if (
            type(self.finish_reason) is not FinishReason
            or type(self.confidence) is not Confidence
            or type(self.message) is not str
            or type(self.raw_field) is not str
            or type(self.raw_value) not in _RAW_VALUES
        ):
            _check_signal(self)
        if self.metadata:
            object.__setattr__(self, "metadata", clean_json(self.metadata))
        if self.finish_reason in _IN_VENDORS_WORDS:
            hide = Redactor().text
            object.__setattr__(self, "message", hide(self.message))
            if isinstance(self.raw_value, str):
                object.__setattr__(self, "raw_value", hide(self.raw_value))

    @property
    def should_terminate(self) -> bool:
        """Whether the response, by itself, asks for no further turn (no tools to run, nothing to resume).

        Example:
            >>> [step.signal.should_terminate for step in (await brief.run("?")).history]
            [True]
        """
        return self.finish_reason not in (FinishReason.TOOL_CALLS, FinishReason.PAUSED)


_IN_VENDORS_WORDS = (FinishReason.ERROR, FinishReason.CONTENT_FILTERED)
"""The reasons that come with a vendor's own sentences."""

_RAW_VALUES = (str, type(None), int)


def _check_signal(signal: TerminationSignal) -> None:
    """Take a finish reason and a confidence as words too; refuse what is neither. Raises ConfigurationError."""
    for name, kind in (("finish_reason", FinishReason), ("confidence", Confidence)):
        try:
            object.__setattr__(signal, name, kind(getattr(signal, name)))
        except ValueError:
            words = ", ".join(kind)
            raise ConfigurationError(f"TerminationSignal({name}={getattr(signal, name)!r}): it is one of {words}.") from None
    for name, kinds, what in (
        ("raw_value", _RAW_VALUES, "the provider's word as text or a whole number, or None where it is missing"),
        ("raw_field", (str,), "text"),
        ("message", (str,), "text"),
    ):
        value = getattr(signal, name)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ConfigurationError(f"TerminationSignal({name}={value!r}): give {what}.")


@dataclass(frozen=True, slots=True)
class ResponseSource(Shown):
    """Where and when a response was made.

    `at` is the time of the call in UTC, of a replayed one the time of recording; None where the recording does not know it.
    `recording` is the file and the number in it, "" for a live call. `digest` is a hash of the body, the same for a response and its
    replays.

    Example:
        >>> result.history[0].response.source
        ResponseSource(at=None, replayed=True, recording='anthropic.yaml, interaction 1', digest='...')
    """

    at: datetime | None
    replayed: bool
    recording: str
    digest: str


@dataclass(frozen=True, slots=True)
class RateLimit(Shown):
    """The provider's own limits on an account, as the headers of one answer say. None: the header is not there.

    `*_limit` is what the account may use in a period, `*_left` what is left of it, and `*_renew_s` the seconds from the answer until
    all of it is there again.

    Example:
        >>> from agentlab.types import RateLimit
        >>> RateLimit(requests_left=499, requests_limit=500, requests_renew_s=0.12).tokens_left is None
        True
    """

    requests_left: int | None = None
    requests_limit: int | None = None
    requests_renew_s: float | None = None
    tokens_left: int | None = None
    tokens_limit: int | None = None
    tokens_renew_s: float | None = None


@shown_without_keys
@dataclass(frozen=True, slots=True)
class Hole:
    """A place where a piece of a streamed answer was lost.

    `place` is the number of characters of the text before it. `lost_bytes` is the size of the event that could not be read, or of
    several in a row; None where an event is missing and its size is not known. `reason` says what was wrong. `in_reasoning` is True
    where the lost piece belonged to the visible reasoning, not to the text or a tool call.

    Example:
        >>> from agentlab.types import Hole, marked
        >>> hole = Hole(8, lost_bytes=17, reason="an event could not be read")
        >>> str(hole)
        'at character 8: an event could not be read (17 bytes)'
        >>> marked("pay 100 to Bob", [hole])
        'pay 100 [… part of the stream was lost here …] to Bob'
    """

    place: int
    lost_bytes: int | None = None
    reason: str = ""
    in_reasoning: bool = False

    def __str__(self) -> str:
        where = "in the reasoning" if self.in_reasoning else f"at character {self.place:,}"
        size = "" if self.lost_bytes is None else f" ({self.lost_bytes:,} bytes)"
        return f"{where}: {self.reason or 'a piece was lost'}{size}"


def moved(holes: Sequence[Hole], characters: int) -> tuple[Hole, ...]:
    """Return the holes of a text that so many characters are put before."""
    return tuple([replace(hole, place=hole.place + characters) for hole in holes])


LOST_HERE = "[… part of the stream was lost here …]"


def marked(text: str, holes: Sequence[Hole]) -> str:
    """Return the text with a visible mark in the place of each hole."""
    places = sorted({min(hole.place, len(text)) for hole in holes if not hole.in_reasoning}, reverse=True)
    for place in places:
        before, after = text[:place], text[place:]
        spaced = before and not before[-1].isspace()
        text = f"{before}{' ' if spaced else ''}{LOST_HERE}{' ' if after and not after[0].isspace() else ''}{after}"
    return text


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ModelResponse(Shown):
    """What a model answered. `raw` is the parsed body, or for a stream what was put together from it; `native` the assistant turn
    as the provider wants it back; `model` the model that says it answered; `cost_usd` only what the provider itself reported; `source`
    where and when it was made, None without HTTP; `rate_limit` what its headers say of the account's limits, None where they say
    nothing; `detection_s` the seconds that reading it and finding the reason of its end took (responses are compared without these
    three). `holes` are the places where a stream lost a piece: `text` is what came,
    without a mark (`marked(text, holes)` puts one in)."""

    text: str
    signal: TerminationSignal
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    reasoning: str = ""
    refusal: str | None = None
    model: str | None = None
    response_id: str | None = None
    cost_usd: Decimal | None = None
    native: NativeContent | None = None
    raw: JSON = None
    source: ResponseSource | None = field(default=None, compare=False)
    holes: tuple[Hole, ...] = ()
    rate_limit: RateLimit | None = field(default=None, compare=False)
    detection_s: float | None = field(default=None, compare=False, repr=False)

    @property
    def is_spoilt(self) -> bool:
        """True if what was lost may have been a part of the text or of a tool call. A piece of the reasoning spoils the tool calls that
        it goes back with, and no text.

        Example:
            >>> say("Paris.").is_spoilt
            False
        """
        return any(not hole.in_reasoning for hole in self.holes) or bool(self.holes and self.tool_calls)


# What a stream parser tells while a stream runs ----------------------------------------------------------------------------


@shown_without_keys
@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's visible reasoning."""

    text: str


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call: `index` tells the calls of one response apart, `arguments` is a piece of JSON text."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class SignalSeen:
    """The finish reason is known, though the stream may go on with usage."""

    signal: TerminationSignal


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | SignalSeen
