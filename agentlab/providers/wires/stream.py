"""The base of all stream parsers: assembles chunks into a body, which is read like the body of a response without streaming.

Also the parser of Anthropic's messages, which clouds speak too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pydantic_core

from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON, ToolCall
from agentlab.model.responses import Hole, ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, find_error, not_whole
from agentlab.providers.wires.incoming import UNREADABLE, Incoming

BlockReader: TypeAlias = Callable[[JSON, tuple[ToolCall, ...] | None, Ended, bool], ModelResponse]

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
    (`_read`)."""

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
                chunk = pydantic_core.from_json(event)
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
        if self._response is None:
            self._take_rest()
            self._check_order()
            self._response = self._so_far()
        return self._response.signal

    def response(self) -> ModelResponse:
        """Return the response assembled from the stream; before `finish`, from the pieces so far."""
        return self._so_far() if self._response is None else self._response

    def _so_far(self) -> ModelResponse:
        read = self._read(self._with_error(), self._ended(), self._damaged)
        return self._with_holes(self._with_doubts(read))

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

    def _with_error(self) -> dict[str, JSON]:
        return self._assembled() if self._error is None else {**self._assembled(), "error": self._error}

    def _signal_now(self) -> TerminationSignal:
        """Return the signal while the stream is open."""
        return self._read(self._with_error(), "whole", self._damaged).signal


class BlockParser(BodyParser):
    """Parses one stream of content blocks, on the wires of Anthropic and Bedrock."""

    _blocks: dict[int, Any]

    def __init__(self, reader: BlockReader) -> None:
        self._reader = reader
        super().__init__()

    def _block_count(self) -> int:
        return len(self._blocks)

    def _calls(self) -> tuple[ToolCall, ...]:
        sound = not self._damaged  # if a piece was lost, the rest may be valid JSON, but wrong
        blocks = self._waiting([block for _, block in sorted(self._blocks.items())])
        return tuple(ToolCall(block.id(), block.name(), block.arguments(), closed=block.closed and sound) for block in blocks)

    def _waiting(self, blocks: list[Any]) -> list[Any]:
        """Return the blocks that are calls of the request's tools."""
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


# Anthropic's messages ---------------------------------------------------------------------------------------------------------
#
# https://platform.claude.com/docs/en/build-with-claude/streaming, and the events of recorded responses.

GUARDRAIL = "amazon-bedrock-guardrailAction"
"""Bedrock's field for a guardrail's action on this wire, in the message or in the last event of a stream."""

GUARDRAIL_TRACE = "amazon-bedrock-trace"
_FINDING = ("name", "type", "confidence", "action")
_TRACE_LEVELS = 8


def guardrail_trace(guardrail: JSON) -> dict[str, JSON]:
    """Return what a guardrail of Bedrock found, as `trace`, by the part that it looked at: the policy, name, type, confidence and
    action of each finding, without the text that it found.

    Source: the vendor's service model (botocore 1.44), `GuardrailAssessment`."""
    found = {part: list(_findings(reports)) for part, reports in read.as_dict(guardrail).items()}
    found = {part: findings for part, findings in found.items() if findings}
    return {"trace": found} if found else {}


def _findings(value: JSON, policy: str = "", levels: int = _TRACE_LEVELS) -> Iterator[dict[str, JSON]]:
    if not levels:
        return
    if isinstance(value, dict):
        action = value.get("action")
        if isinstance(action, str) and (action != "NONE" or value.get("detected") is True):
            yield {"policy": policy, **{key: value[key] for key in _FINDING if key in value}}
        for key, inner in value.items():
            yield from _findings(inner, key if key.endswith("Policy") else policy, levels - 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _findings(inner, policy, levels - 1)


_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}


def answered_calls(blocks: list[dict[str, Any]]) -> frozenset[str]:
    """Return the ids of calls to the vendor's tools whose results are in the message."""
    return frozenset(read.as_text(block.get("tool_use_id")) for block in blocks if "tool_use_id" in block)


def is_call(block: dict[str, Any], answered: frozenset[str]) -> bool:
    """True if a block is a call that waits for a result. The vendor does not run it, and it does not come from code in the vendor's
    sandbox that has ended (the results of such calls were sent in an earlier turn)."""
    return block.get("type") == "tool_use" and read.as_text(read.as_dict(block.get("caller")).get("tool_id")) not in (
        answered - {""}
    )


def end_details(message: dict[str, Any]) -> dict[str, JSON]:
    """Return the details of a message's end: the stop sequence, the explanation of a refusal, and a guardrail's action and findings."""
    found: dict[str, JSON] = {}
    if sequence := read.some_text(message.get("stop_sequence")):
        found["stop_sequence"] = sequence
    if details := {
        key: text for key, value in read.as_dict(message.get("stop_details")).items() if (text := read.some_text(value))
    }:
        found["stop_details"] = details
    if (action := read.some_text(message.get(GUARDRAIL))) not in (None, "NONE"):
        found["guardrail"] = action
    return {**found, **guardrail_trace(read.as_dict(message.get(GUARDRAIL_TRACE)).get("guardrail"))}


@dataclass(slots=True, eq=False)
class _Block:
    """One content block, assembled from its pieces. `call` is its number among the tool calls."""

    fields: dict[str, Any]
    call: int
    closed: bool = False
    pieces: dict[str, list[str]] = field(default_factory=dict)

    def joined(self, key: str) -> str:
        return read.whole_text("".join(self.pieces.get(key, ())))

    def arguments(self) -> str:
        """Return the raw text of a tool's arguments: the pieces, or the value at the block's start."""
        return self.joined("partial_json") or read.arguments_text(self.fields.get("input") or None, closed=self.closed)

    def id(self) -> str:
        return read.as_text(self.fields.get("id")) or f"call_{self.call + 1}"

    def name(self) -> str:
        return read.as_text(self.fields.get("name"))

    def content(self) -> dict[str, Any]:
        """Return the block as in a whole message. Arguments that are not JSON stay text."""
        block = dict(self.fields)
        for kind, key in (("text", "text"), ("thinking", "thinking"), ("thinking", "signature")):
            if key in self.pieces and block.get("type") == kind:
                block[key] = read.as_text(block.get(key)) + self.joined(key)
        if text := self.joined("partial_json"):
            try:
                block["input"] = read.loads(text)
            except ValueError:
                block["input"] = text
        if citations := block.pop("_citations", None):
            block["citations"] = [*read.as_list(block.get("citations")), *citations]
        return block


class AnthropicStreamParser(BlockParser):
    """Parses one stream of events."""

    def _clear(self) -> None:
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
        self._tools = 0
        self._begun = False
        self._over = False
        self._whole: dict[str, Any] | None = None

    def _take(self, name: bytes, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        kind = chunk.get("type") or name.decode("utf-8", "replace")
        if kind == "content_block_delta":
            self._delta(chunk.get("index"), chunk.get("delta"), events)
        elif kind == "content_block_start":
            self._start_block(chunk.get("index"), chunk.get("content_block"), events)
        elif kind == "content_block_stop":
            block = self._blocks.get(block_number(chunk.get("index")))
            if block is None:
                self._record_loss(NO_START)
            else:
                block.closed = True
        elif kind == "message_delta":
            self._message_delta(chunk, events)
        elif kind == "message_start":
            self._doubtful = self._doubtful or self._done or self._over  # an end before the beginning, or a second message
            self._blocks.clear()  # a second message_start replaces the message
            self._tools = 0
            self._begun, self._over, self._done = True, False, False
            self._message = dict(read.as_dict(chunk.get("message")))
            self._usage = dict(read.as_dict(self._message.get("usage")))
            for index, block in enumerate(read.as_list(self._message.get("content"))):  # content in message_start
                self._start_block(index, block, events)
                self._blocks[index].closed = True
        elif kind == "message_stop":
            self._done = self._over = True
            self._message.update({key: chunk[key] for key in (GUARDRAIL, GUARDRAIL_TRACE) if key in chunk})
            if GUARDRAIL in chunk:
                events.append(SignalSeen(self._signal_now()))
        elif kind == "message":  # the server did not stream
            self._whole = chunk

    def _start_block(self, index: JSON, fields: JSON, events: list[StreamEvent]) -> None:
        self._doubtful = self._doubtful or self._over
        if not isinstance(fields, dict | None):
            self._record_loss(BROKEN)
        if self._blocks and block_number(index) > max(self._blocks) + 1:
            self._record_loss("a block is missing")
        calls = self._tools
        block = self._blocks[block_number(index)] = _Block(dict(read.as_dict(fields)), calls)
        kind = block.fields.get("type")
        if kind == "text" and (text := read.as_text(block.fields.get("text"))):
            events.append(TextDelta(text))
        elif kind == "tool_use":
            self._tools += 1
            events.append(ToolCallDelta(calls, block.id(), block.name(), ""))

    def _delta(self, index: JSON, delta: JSON, events: list[StreamEvent]) -> None:
        block = self._blocks.get(block_number(index))
        if block is None or not isinstance(delta, dict):
            self._record_loss(NO_START if block is None else BROKEN)
            return
        if self._over or block.closed:
            self._damaged = True  # a late piece
        kind = delta.get("type")
        if not isinstance(kind, str | None):
            self._record_loss(BROKEN)
            return
        key = _PIECES.get(kind or "")
        if key is None:
            if kind == "citations_delta":
                block.fields.setdefault("_citations", []).append(delta.get("citation"))
            elif kind == "compaction_delta":  # arrives whole, and is sent back unchanged
                block.fields.update({key: value for key, value in delta.items() if key != "type"})
            return
        piece = delta.get(key)
        if not isinstance(piece, str | None):
            self._record_loss(BROKEN)
        if not isinstance(piece, str) or not piece:
            return
        block.pieces.setdefault(key, []).append(piece)
        if key == "text":
            events.append(TextDelta(piece))
        elif key == "thinking":
            events.append(ReasoningDelta(piece))
        elif key == "partial_json" and block.fields.get("type") == "tool_use":
            events.append(ToolCallDelta(block.call, block.id(), block.name(), piece))

    def _message_delta(self, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        # The usage is cumulative; fields that it leaves out were in message_start.
        self._usage.update({key: value for key, value in read.as_dict(chunk.get("usage")).items() if value is not None})
        for key, value in read.as_dict(chunk.get("delta")).items():
            if value is not None:
                self._message[key] = value
                if key == "stop_reason":
                    self._over = True
                    events.append(SignalSeen(self._signal_now()))

    def _waiting(self, blocks: list[_Block]) -> list[_Block]:
        answered = answered_calls([block.fields for block in blocks])
        return [block for block in blocks if is_call(block.fields, answered)]

    def _check_order(self) -> None:
        if not self._done or self._whole is not None or self._error is not None:
            return
        blocks = self._blocks.values()
        # The last block of a cut message may be open. In any other message, the event that closes an open block was lost.
        left_open = self._message.get("stop_reason") in PROPER_ENDS and not all(block.closed for block in blocks)
        self._doubtful = self._doubtful or not self._begun or left_open

    def _is_over(self) -> bool:
        return self._over

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        if self._whole is not None:
            error = {"error": self._error} if self._error is not None else {}
            return self._reader({**self._whole, **error}, None, "whole", damaged)
        return self._reader(body, self._calls(), ended, damaged)

    def _ended(self) -> Ended:
        ended = super()._ended()
        return "unmarked" if ended == "whole" and self._whole is None else ended  # JSON lines whose last event is missing

    def _assembled(self) -> dict[str, Any]:
        body = dict(self._message)
        body["content"] = [block.content() for _, block in sorted(self._blocks.items())]
        if self._usage:
            body["usage"] = self._usage
        return body
