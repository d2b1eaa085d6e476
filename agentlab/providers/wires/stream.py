"""The base of all stream parsers: assembles chunks into a body, which is read like the body of a response without streaming."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pydantic_core import from_json

from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON, ToolCall
from agentlab.model.responses import Hole, ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, Facts, find_error, not_whole
from agentlab.providers.wires.incoming import UNREADABLE, Incoming

BlockReader: TypeAlias = Callable[[JSON, tuple[ToolCall, ...] | None, Ended, bool], ModelResponse]
Signaller: TypeAlias = Callable[[JSON, Facts], TerminationSignal]

PROPER_ENDS = ("end_turn", "tool_use", "stop_sequence")
"""Stop reasons of Anthropic and Bedrock for messages in which all blocks are closed."""

BROKEN = "an event could not be read"
MISSING = "an event is missing"
NO_START = "the beginning of a block is missing"
_NOT_UTF8 = "bytes are not UTF-8"


@dataclass(slots=True, eq=False)
class _Loss:
    """A hole in an unfinished stream. `lengths` are those of the text, the reasoning and the arguments before the hole, `blocks` is the
    number of blocks before it. `over`: the answer had already ended."""

    hole: Hole
    lengths: tuple[int, int, int]
    blocks: int
    over: bool


class BodyParser:
    """Parses one stream. A wire defines how a chunk is added (`_take`), how the body so far is assembled (`_assembled`) and read
    (`_read`), and the signal while the stream is open (`_signal_now`)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset the parser, for another stream."""
        self._incoming = Incoming()
        self._error: JSON = None
        self._done = False
        self._damaged = False
        self._torn = False
        self._doubtful = False
        self._size_at_done: tuple[int, int] | None = None
        self._response: ModelResponse | None = None
        self._losses: list[_Loss] = []
        self._fresh: _Loss | None = None  # the hole, until the next part of the answer arrives
        self._clear()

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Parse the next bytes and return the events that they complete."""
        events: list[StreamEvent] = []
        for name, event in self._incoming.feed(data):
            if event == b"[DONE]" or name == b"error":
                self._event(name, event, events)
                continue
            try:  # the fast path for a chunk without an error
                chunk = from_json(event)
            except ValueError:
                self._event(name, event, events)
                continue
            if type(chunk) is dict and "error" not in chunk and self._fresh is None:
                self._take(name, chunk, events)
            else:
                self._chunk(name, chunk, events)
        return events

    def finish(self) -> TerminationSignal:
        """Return why the stream ended."""
        return self.response().signal

    def response(self) -> ModelResponse:
        """Return the response assembled from the stream."""
        if self._response is None:
            self._take_rest()
            self._check_order()
            body = self._assembled()
            if self._error is not None:
                body["error"] = self._error
            self._response = self._with_holes(self._with_doubts(self._read(body, self._ended(), self._damaged)))
        return self._response

    @property
    def sound(self) -> bool:
        """True if the stream is complete and nothing was lost; known after `finish`."""
        return not self._damaged and not self._torn and not self._doubtful and self._ended() != "unmarked"

    @property
    def is_quiet(self) -> bool:
        """True if the newest bytes contain no part of an answer: comments, pings, white space."""
        return self._incoming.is_quiet

    @property
    def cut_short(self) -> bool:
        """True if the body ended within an event, or before the first; known after `finish`."""
        return self._incoming.cut_short

    def _with_doubts(self, response: ModelResponse) -> ModelResponse:
        """Return the response, with at most MEDIUM confidence if pieces are out of order or missing."""
        signal = response.signal
        if not self._doubtful or signal.confidence is not Confidence.HIGH or signal.finish_reason is FinishReason.ERROR:
            return response
        message = f"{signal.message} But pieces of the stream are missing, or arrived after its end."
        return replace(response, signal=replace(signal, confidence=Confidence.MEDIUM, message=message))

    # Lost pieces -------------------------------------------------------------------------------------------------------------

    def _record_loss(self, reason: str, lost_bytes: int | None = None) -> None:
        """Record that a piece of the stream was lost here. Consecutive lost pieces are one hole."""
        self._damaged = True
        if (loss := self._fresh) is None:
            so_far = self._read(self._assembled(), "unmarked", True)
            hole = Hole(len(so_far.text), lost_bytes, reason)
            self._fresh = _Loss(hole, _lengths(so_far), self._block_count(), over=self._is_over())
            self._losses.append(self._fresh)
        elif lost_bytes is not None:
            loss.hole = replace(loss.hole, lost_bytes=(loss.hole.lost_bytes or 0) + lost_bytes)

    def _locate_hole(self, events: list[StreamEvent]) -> None:
        """Look at the piece after a hole: a hole between two pieces of one thought is in the reasoning."""
        loss = self._fresh
        delta = next((event for event in events if isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta)), None)
        if loss is None or delta is None:
            return
        self._fresh = None
        text, reasoning, _ = loss.lengths
        if type(delta) is ReasoningDelta and reasoning and not text and loss.blocks == self._block_count():
            loss.hole = replace(loss.hole, in_reasoning=True)

    def _with_holes(self, response: ModelResponse) -> ModelResponse:
        """Return the response with its holes. A loss after the end of the answer, such as that of its usage, is not a hole."""
        lengths = _lengths(response)
        holes = tuple([loss.hole for loss in self._losses if not (loss.over and loss.lengths == lengths)])
        if not holes or self._is_repaired():
            return response
        response = replace(response, holes=holes, native=None)
        broke_off = self._ended() == "unmarked" and response.signal.raw_value is None
        if not response.is_spoilt or broke_off:
            return response
        return replace(response, signal=not_whole(response.signal, holes))

    def _block_count(self) -> int:
        """Return the number of blocks so far, on a wire that has blocks."""
        return 0

    def _is_over(self) -> bool:
        """True if the answer has ended, and only data such as its usage may follow."""
        return self._done

    def _is_repaired(self) -> bool:
        """True if the end of the stream repeated all lost pieces."""
        return False

    def _take_rest(self) -> None:
        """Add the rest at the end. If the last event is cut off, the stream broke off (`_torn`), but earlier events are not damaged."""
        damaged, losses = self._damaged or self._incoming.damaged, list(self._losses)
        events, values = self._incoming.finish()
        for name, data in events:
            self._event(name, data, [])
        for value in values:
            self._chunk(b"", value, [])
        now = self._damaged or self._incoming.damaged
        self._torn = now and not damaged and not self._incoming.is_json
        self._damaged = now and not self._torn
        if self._torn:
            self._losses = losses

    def _event(self, name: bytes, data: bytes, events: list[StreamEvent]) -> None:
        if data == b"[DONE]":
            self._done = True
            if self._size_at_done is None:
                self._size_at_done = self._size()
            return
        try:
            chunk = read.loads(data)
        except ValueError:
            if name == b"error":
                self._damaged = True
                self._fail(data.decode("utf-8", "replace"), events)
            elif data.startswith(UNREADABLE):
                self._record_loss(BROKEN, len(data) - len(UNREADABLE) or None)
            elif data.strip():  # an empty event keeps the connection open
                self._record_loss(BROKEN, len(data))
            return
        if not _is_utf8(data):
            self._record_loss(_NOT_UTF8)
        self._chunk(name, chunk, events)

    def _chunk(self, name: bytes, chunk: JSON, events: list[StreamEvent]) -> None:
        if isinstance(chunk, dict):
            if chunk.get("error"):
                self._fail(chunk["error"], events)
            elif name == b"error":
                self._fail(find_error(chunk) or chunk or "error", events)
            before = len(events)
            self._take(name, chunk, events)
            if self._fresh is not None:
                self._locate_hole(events[before:])
        else:
            self._record_loss(BROKEN)

    def _fail(self, error: JSON, events: list[StreamEvent]) -> None:
        if self._error is None:
            self._error = error
            events.append(SignalSeen(self._signal_now()))

    def _ended(self) -> Ended:
        if self._done:
            return "unmarked" if self._torn else "marked"
        return "whole" if self._incoming.is_json else "unmarked"

    def _size(self) -> tuple[int, int]:
        """Return the number of pieces of text and of calls so far, on a wire that ends with `[DONE]`."""
        return 0, 0

    def _check_order(self) -> None:
        """Set `_doubtful` if pieces of a finished stream are missing or arrived after its end, and `_damaged` if these are pieces of a
        call, which is then not closed."""
        self._check_size(self._size_at_done)

    def _check_size(self, at_end: tuple[int, int] | None) -> None:
        if at_end is not None and (now := self._size()) != at_end:
            self._doubtful = True
            self._damaged = self._damaged or now[1] > at_end[1]

    def _clear(self) -> None:
        raise NotImplementedError

    def _take(self, name: bytes, chunk: dict[str, JSON], events: list[StreamEvent]) -> None:
        raise NotImplementedError

    def _assembled(self) -> dict[str, JSON]:
        raise NotImplementedError

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        raise NotImplementedError

    def _signal_now(self) -> TerminationSignal:
        raise NotImplementedError


class BlockParser(BodyParser):
    """Parses one stream of content blocks, on the wires of Anthropic and Bedrock."""

    _blocks: dict[int, Any]

    def __init__(self, reader: BlockReader, signaller: Signaller) -> None:
        self._reader = reader
        self._signaller = signaller
        super().__init__()

    def _block_count(self) -> int:
        return len(self._blocks)

    def _signal_now(self) -> TerminationSignal:
        calls = self._calls()
        stop_reason, details = self._end_so_far()
        facts = Facts(
            tool_calls=len(calls),
            complete_calls=all(read.is_json(call.arguments) for call in calls),
            answered=bool(self._blocks),
            damaged=self._damaged,
            error=self._error,
            metadata=details,
        )
        return self._signaller(stop_reason, facts)

    def _calls(self) -> tuple[ToolCall, ...]:
        sound = not self._damaged  # if a piece was lost, the rest may be valid JSON, but wrong
        blocks = self._waiting([block for _, block in sorted(self._blocks.items())])
        return tuple(ToolCall(block.id(), block.name(), block.arguments(), closed=block.closed and sound) for block in blocks)

    def _waiting(self, blocks: list[Any]) -> list[Any]:
        """Return the blocks that are calls of the request's tools."""
        raise NotImplementedError

    def _end_so_far(self) -> tuple[JSON, dict[str, JSON]]:
        """Return the stop reason and the details of the end."""
        raise NotImplementedError


def block_number(index: JSON) -> int:
    """Return a block's index, or 0 for a missing one."""
    return index if isinstance(index, int) else 0


def _lengths(response: ModelResponse) -> tuple[int, int, int]:
    arguments = sum(len(call.name) + len(call.arguments) for call in response.tool_calls)
    return len(response.text), len(response.reasoning), arguments


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")  # half a surrogate pair is not damage
    except UnicodeDecodeError:
        return False
    return True
