"""What all stream parsers share: bytes to chunks, chunks to a body, and the body read like a whole one."""

from __future__ import annotations

from dataclasses import replace

from pydantic_core import from_json

from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, find_error, not_whole
from agentlab.providers.wires.incoming import UNREADABLE, Incoming
from agentlab.types import (
    JSON,
    Confidence,
    FinishReason,
    Hole,
    ModelResponse,
    ReasoningDelta,
    SignalSeen,
    StreamEvent,
    TerminationSignal,
    TextDelta,
    ToolCallDelta,
)

MOST_HOLES = 20
"""A stream with more holes is lost anyway: the last one counts the bytes of all further ones."""

BROKEN = "an event could not be read"
MISSING = "an event is missing"
NO_START = "the beginning of a block is missing"
_NO_TEXT = "bytes in it are no text"


class _Loss:
    """A hole while the stream goes on. `said` is how much text, reasoning and arguments had come before it, `newest` the number of
    blocks by then, and `over` whether the answer had ended already."""

    __slots__ = ("hole", "newest", "over", "said")

    def __init__(self, hole: Hole, said: tuple[int, int, int], newest: int, *, over: bool) -> None:
        self.hole = hole
        self.said = said
        self.newest = newest
        self.over = over


class BodyParser:
    """The state of one stream. A wire says what a chunk adds (`_take`), what body came of it (`_assembled`), how
    that is read (`_read`), and what can be said of the end while the stream goes on (`_signal_now`)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, to be used for another stream."""
        self._incoming = Incoming()
        self._error: JSON = None
        self._done = False
        self._damaged = False
        self._torn = False
        self._doubtful = False
        self._size_at_done: tuple[int, int] | None = None
        self._response: ModelResponse | None = None
        self._losses: list[_Loss] = []
        self._fresh: _Loss | None = None  # the hole behind which nothing of the answer has come yet
        self._clear()

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes and tell what they add."""
        told: list[StreamEvent] = []
        for name, event in self._incoming.feed(data):
            if event == b"[DONE]" or name == b"error":
                self._event(name, event, told)
                continue
            try:  # the short way for a chunk that is no error
                chunk = from_json(event)
            except ValueError:
                self._event(name, event, told)
                continue
            if type(chunk) is dict and "error" not in chunk and self._fresh is None:
                self._take(name, chunk, told)
            else:
                self._chunk(name, chunk, told)
        return told

    def finish(self) -> TerminationSignal:
        """The stream has ended: why."""
        return self.response().signal

    def response(self) -> ModelResponse:
        """What was put together from the stream."""
        if self._response is None:
            self._take_rest()
            self._weigh_order()
            body = self._assembled()
            if self._error is not None:
                body["error"] = self._error
            self._response = self._with_holes(self._doubted(self._read(body, self._ended(), self._damaged)))
        return self._response

    @property
    def sound(self) -> bool:
        """Whether the stream came to its own end with nothing lost; known after `finish`."""
        return not self._damaged and not self._torn and not self._doubtful and self._ended() != "unmarked"

    @property
    def is_quiet(self) -> bool:
        """True if the bytes that were fed last hold nothing of an answer: comments, pings, white space."""
        return self._incoming.is_quiet

    @property
    def cut_short(self) -> bool:
        """Whether the body ended within a piece of it, or ahead of the first; known after `finish`."""
        return self._incoming.cut_short

    def _doubted(self, response: ModelResponse) -> ModelResponse:
        """The response; less sure where the stream is not in order, though each piece of it could be read."""
        signal = response.signal
        if not self._doubtful or signal.confidence is not Confidence.HIGH or signal.finish_reason is FinishReason.ERROR:
            return response
        told = f"{signal.message} But pieces of the stream are missing, or came after its end."
        return replace(response, signal=replace(signal, confidence=Confidence.MEDIUM, message=told))

    # What is lost ------------------------------------------------------------------------------------------------------------

    def _lose(self, reason: str, lost_bytes: int | None = None) -> None:
        """Note that a piece of the stream is lost here. Pieces in a row are one hole."""
        self._damaged = True
        loss = self._fresh if len(self._losses) < MOST_HOLES else self._losses[-1]
        if loss is None:
            so_far = self._read(self._assembled(), "unmarked", True)
            hole = Hole(len(so_far.text), lost_bytes, reason)
            self._fresh = _Loss(hole, _said(so_far), self._newest(), over=self._is_over())
            self._losses.append(self._fresh)
        elif lost_bytes is not None:
            loss.hole = replace(loss.hole, lost_bytes=(loss.hole.lost_bytes or 0) + lost_bytes)

    def _weigh_next(self, told: list[StreamEvent]) -> None:
        """Look at what comes behind a hole: between two pieces of one thought, a piece of it was lost."""
        loss = self._fresh
        delta = next((one for one in told if isinstance(one, TextDelta | ReasoningDelta | ToolCallDelta)), None)
        if loss is None or delta is None:
            return
        self._fresh = None
        text, reasoning, _ = loss.said
        if type(delta) is ReasoningDelta and reasoning and not text and loss.newest == self._newest():
            loss.hole = replace(loss.hole, in_reasoning=True)

    def _with_holes(self, response: ModelResponse) -> ModelResponse:
        """The response with its holes. What was lost behind the end of the answer, such as its usage, is none."""
        said = _said(response)
        holes = tuple([loss.hole for loss in self._losses if not (loss.over and loss.said == said)])
        if not holes or self._is_mended():
            return response
        response = replace(response, holes=holes, native=None)
        broke_off = self._ended() == "unmarked" and response.signal.raw_value is None
        if not response.is_spoilt or broke_off:
            return response
        return replace(response, signal=not_whole(response.signal, holes))

    def _newest(self) -> int:
        """The number of blocks so far, on a wire that has them."""
        return 0

    def _is_over(self) -> bool:
        """Whether the answer has ended, and only what belongs to the whole of it may still come."""
        return self._done

    def _is_mended(self) -> bool:
        """Whether the stream said again, at its end, all that was lost in it."""
        return False

    def _take_rest(self) -> None:
        """Take what was on its way. An event that was cut off there is how a stream breaks off (`_torn`), and no damage to what came
        before it."""
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

    def _event(self, name: bytes, data: bytes, told: list[StreamEvent]) -> None:
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
                self._fail(data.decode("utf-8", "replace"), told)
            elif data.startswith(UNREADABLE):
                self._lose(BROKEN, len(data) - len(UNREADABLE) or None)
            elif data.strip():  # some servers send an empty event to keep the connection open
                self._lose(BROKEN, len(data))
            return
        if not _is_utf8(data):  # in a piece of text a character is spoilt; in anything else a name may be, and the piece is lost
            self._lose(_NO_TEXT)
        self._chunk(name, chunk, told)

    def _chunk(self, name: bytes, chunk: JSON, told: list[StreamEvent]) -> None:
        if isinstance(chunk, dict):
            if chunk.get("error"):
                self._fail(chunk["error"], told)
            elif name == b"error":
                self._fail(find_error(chunk) or chunk or "error", told)
            before = len(told)
            self._take(name, chunk, told)
            if self._fresh is not None:
                self._weigh_next(told[before:])
        else:
            self._lose(BROKEN)

    def _fail(self, error: JSON, told: list[StreamEvent]) -> None:
        if self._error is None:
            self._error = error
            told.append(SignalSeen(self._signal_now()))

    def _ended(self) -> Ended:
        if self._done:
            return "unmarked" if self._torn else "marked"
        return "whole" if self._incoming.is_json else "unmarked"

    def _size(self) -> tuple[int, int]:
        """How many pieces of text, and of calls, have come. Of use to a wire whose last word is `[DONE]`."""
        return 0, 0

    def _weigh_order(self) -> None:
        """Look at a stream that is over for pieces that are missing, or came after its end: `_doubtful`, and `_damaged` where a call is
        concerned, which is then not closed."""
        self._weigh_size(self._size_at_done)

    def _weigh_size(self, at_end: tuple[int, int] | None) -> None:
        if at_end is not None and (now := self._size()) != at_end:
            self._doubtful = True
            self._damaged = self._damaged or now[1] > at_end[1]

    def _clear(self) -> None:
        raise NotImplementedError

    def _take(self, name: bytes, chunk: dict[str, JSON], told: list[StreamEvent]) -> None:
        raise NotImplementedError

    def _assembled(self) -> dict[str, JSON]:
        raise NotImplementedError

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        raise NotImplementedError

    def _signal_now(self) -> TerminationSignal:
        raise NotImplementedError


def _said(response: ModelResponse) -> tuple[int, int, int]:
    arguments = sum(len(call.name) + len(call.arguments) for call in response.tool_calls)
    return len(response.text), len(response.reasoning), arguments


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")  # half a surrogate pair is a matter of text, and no damage
    except UnicodeDecodeError:
        return False
    return True
