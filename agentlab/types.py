"""The values of a conversation with a model: messages, requests, responses, and why a response ended.

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
from agentlab.redaction import clean_json, shown_without_keys, without_keys
from agentlab.shown import Shown
from agentlab.usage import Cost as Cost  # noqa: PLC0414
from agentlab.usage import CostSource as CostSource  # noqa: PLC0414
from agentlab.usage import Usage as Usage  # noqa: PLC0414
from agentlab.usage import UsageSource as UsageSource  # noqa: PLC0414

# Messages --------------------------------------------------------------------------------------------------------------------

JSON: TypeAlias = Any
"""A value as `json.loads` returns it."""


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ToolCall(Shown):
    """A tool call as the model sent it.

    `arguments` is the raw JSON text, unparsed, since it may be cut off or invalid. `closed` is False if the provider did not finish the
    block of the call: the stream broke off, or the response reached its cap.

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


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ToolResult(Shown):
    """The result of a tool call.

    `content` is the text that the model receives; `value` what the function returned, or the exception it raised. `error` is None for
    success, else one word: `unknown_tool`, `invalid_arguments`, `exception`, `timeout`, `unserialisable`, `not_executed`, `interrupted`
    (cut off by the end of the run), `may_have_run` (started in a process that ended, and not repeated). `stop` is set if the tool asked
    the run to end.

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


@shown_without_keys
@dataclass(frozen=True, slots=True)
class NativeContent:
    """An assistant message in the provider's format, sent back unchanged to the same wire (thinking signatures, for example)."""

    wire: str
    content: JSON


@shown_without_keys
@dataclass(frozen=True, slots=True)
class Message(Shown):
    """One message of the conversation. The instructions are not a message: they are `ModelRequest.instructions`.

    A `tool` message has the results of all calls of the assistant message before it, in order. A `system` message is an instruction
    within the conversation, such as the reminder to call a terminating tool; wires without system messages send it as the user's.

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


# Requests --------------------------------------------------------------------------------------------------------------------


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
class ModelRequest:
    """A request to a model, independent of the provider.

    `messages` is read-only, and may be a view of fixed length on a growing conversation. With `max_output_tokens` None the provider's
    default cap applies. `options` are fields that are merged into the top level of the provider's request body.
    """

    messages: Sequence[Message]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    options: Mapping[str, JSON] = field(default_factory=dict)
    stream: bool = False


# Finish reasons --------------------------------------------------------------------------------------------------------------


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
class TerminationSignal(Shown):
    """Why a response ended, and how sure that is.

    `raw_field` and `raw_value` are the provider's field and value as sent (`raw_value` None: missing). `message` is one sentence.
    `repairable` marks an ERROR that another request may repair, such as a malformed tool call. `metadata` has further values from the
    provider's response, sanitised: short JSON without anything that looks like a key. `model` is the requested model, "" if unknown
    (ignored in comparisons).

    A detector may give the finish reason and the confidence as words. Raises ConfigurationError for an unknown word.

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
        if type(self.finish_reason) is not FinishReason:
            object.__setattr__(self, "finish_reason", _member(FinishReason, "finish_reason", self.finish_reason))
        if type(self.confidence) is not Confidence:
            object.__setattr__(self, "confidence", _member(Confidence, "confidence", self.confidence))
        if self.metadata:
            object.__setattr__(self, "metadata", clean_json(self.metadata))
        if self.finish_reason in (FinishReason.ERROR, FinishReason.CONTENT_FILTERED):  # they come with the vendor's own sentences
            object.__setattr__(self, "message", without_keys(self.message))
            if isinstance(self.raw_value, str):
                object.__setattr__(self, "raw_value", without_keys(self.raw_value))

    @property
    def should_terminate(self) -> bool:
        """True if the response itself needs no further request: no tools to run, nothing to resume.

        Example:
            >>> [step.signal.should_terminate for step in (await brief.run("?")).history]
            [True]
        """
        return self.finish_reason not in (FinishReason.TOOL_CALLS, FinishReason.PAUSED)


def _member(kind: type[StrEnum], name: str, value: str) -> StrEnum:
    """Convert a word, as a user's detector may return it, to a member of the enum. Raises ConfigurationError for other values."""
    try:
        return kind(value)
    except ValueError:
        raise ConfigurationError(f"TerminationSignal({name}={value!r}): use one of {', '.join(kind)}.") from None


# Responses -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseSource(Shown):
    """Where and when a response was made.

    `at` is the time of the call in UTC, for a replayed call the time of the recording; None if the recording does not have it.
    `recording` is the file and the number of the interaction, "" for a live call. `digest` is a hash of the body: a response and its
    replays have the same.

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
    """The provider's limits for an account, from the headers of one response. None: the header is missing.

    `*_limit` is what the account may use per period, `*_left` the rest of it, and `*_renew_s` the seconds from the response until the
    full amount is available again.

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

    `place` is the number of characters of text before it. `lost_bytes` is the size of the unreadable event, or of several consecutive
    ones; None for a missing event of unknown size. `reason` is the cause. `in_reasoning` is True if the piece belonged to the visible
    reasoning, not to the text or a tool call.

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
    """Return the holes, shifted by the number of characters put before their text."""
    return tuple([replace(hole, place=hole.place + characters) for hole in holes])


LOST_HERE = "[… part of the stream was lost here …]"


def marked(text: str, holes: Sequence[Hole]) -> str:
    """Return the text with a visible mark at each hole."""
    places = sorted({min(hole.place, len(text)) for hole in holes if not hole.in_reasoning}, reverse=True)
    for place in places:
        before, after = text[:place], text[place:]
        spaced = before and not before[-1].isspace()
        text = f"{before}{' ' if spaced else ''}{LOST_HERE}{' ' if after and not after[0].isspace() else ''}{after}"
    return text


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ModelResponse(Shown):
    """The answer of a model.

    `raw` is the parsed body, for a stream the one assembled from its events; `native` the assistant message in the format in which the
    provider takes it back; `model` the model named in the response; `cost_usd` the cost that the provider itself reported. `holes` are
    the places where a stream lost a piece: `text` is what was received, without marks (`marked(text, holes)` inserts them).

    Ignored in comparisons: `source`, where and when the response was made, None without HTTP; `rate_limit`, the account's limits from
    the headers, None if they have none; `detection_s`, the seconds it took to parse the response and detect its finish reason.
    """

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
        """True if the lost piece may belong to the text or to a tool call. A lost piece of reasoning spoils only the tool calls that it
        is sent back with.

        Example:
            >>> say("Paris.").is_spoilt
            False
        """
        return any(not hole.in_reasoning for hole in self.holes) or bool(self.holes and self.tool_calls)


# Events of a stream, as a parser emits them -----------------------------------------------------------------------------------


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
    """A piece of a tool call: `index` is the call's place in the response, `arguments` a piece of JSON text."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class SignalSeen:
    """The finish reason is known; the stream may continue with usage."""

    signal: TerminationSignal


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | SignalSeen
