"""The response of one call to a model: the answer, and the pieces of a stream.

Tokens are counts, money is `Decimal` US dollars, times are seconds. `None` means unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

from agentlab._internal.display import Displayable
from agentlab._internal.redaction import redacted_repr
from agentlab._internal.values import dataclass
from agentlab.model.finish_reasons import TerminationSignal
from agentlab.model.messages import JSON, NativeContent, ToolCall
from agentlab.model.usage import Usage

# Responses -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseSource(Displayable):
    """Source and time of a response.

    `at` is the time of the call in UTC; for a replayed call, the time of the recording, None if unknown. `recording` is the file and
    the number of the interaction, "" for a live call. `digest` is a hash of the body: a response and its replays have the same one.

    Example:
        >>> result.history[0].response.source
        ResponseSource(at=None, replayed=True, recording='anthropic.yaml, interaction 1', digest='...')
    """

    at: datetime | None
    replayed: bool
    recording: str
    digest: str


@dataclass(frozen=True, slots=True)
class RateLimit(Displayable):
    """The provider's limits for an account, from the headers of one response. None: the header is missing.

    `*_limit` is the amount per period, `*_left` the rest of it, and `*_renew_s` the seconds from the response until the full amount is
    available again.

    Example:
        >>> from agentlab.model.responses import RateLimit
        >>> RateLimit(requests_left=499, requests_limit=500, requests_renew_s=0.12).tokens_left is None
        True
    """

    requests_left: int | None = None
    requests_limit: int | None = None
    requests_renew_s: float | None = None
    tokens_left: int | None = None
    tokens_limit: int | None = None
    tokens_renew_s: float | None = None


@redacted_repr
@dataclass(frozen=True, slots=True)
class Hole:
    """A place where a piece of a streamed answer was lost.

    `place` is the number of characters of text before it. `lost_bytes` is the size of the unreadable events, None if events are missing
    and their size is unknown. `reason` is the cause. `in_reasoning` is True if the piece belonged to the visible reasoning, not to the
    text or a tool call.

    Example:
        >>> from agentlab.model.responses import Hole, marked
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
    """Return the holes, shifted by a number of characters that precede their text."""
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


@redacted_repr
@dataclass(frozen=True, slots=True)
class ModelResponse(Displayable):
    """The answer of a model.

    `raw` is the parsed body; for a stream, it is assembled from the events. `native` is the assistant message in the provider's format,
    for later requests. `model` is the model named in the response, `cost_usd` the cost that the provider reported. `holes` are the
    places where a stream lost a piece: `text` is the received text without marks (`marked(text, holes)` inserts them).

    Three fields are ignored in comparisons: `source`, None without HTTP; `rate_limit`, the account's limits from the headers, None if
    they are missing; and `detection_s`, the seconds spent on parsing the response and detecting its finish reason.
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
        """True if a lost piece may belong to the text or to a tool call. Lost reasoning counts only if there are tool calls: it must be
        sent back with them.

        Example:
            >>> say("Paris.").is_spoilt
            False
        """
        return bool(self.holes) and (bool(self.tool_calls) or any(not hole.in_reasoning for hole in self.holes))


# Events of a stream, as a parser emits them -----------------------------------------------------------------------------------


@redacted_repr
@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@redacted_repr
@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's visible reasoning."""

    text: str


@redacted_repr
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
