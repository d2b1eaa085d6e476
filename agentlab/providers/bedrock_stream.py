"""Assembles a stream of Bedrock's events into the body that the same answer has without streaming.

Vendor page: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html, read 2026-11-22; also the vendor's
service model (botocore 1.44) and recorded responses. Events are binary frames with a name; other tools record them as objects with that
name as their only key.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

from agentlab.model.messages import JSON
from agentlab.model.responses import ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended
from agentlab.providers.wires.stream import BROKEN, NO_START, PROPER_ENDS, BlockParser, block_number, guardrail_trace

_KINDS = ("contentBlockDelta", "contentBlockStart", "contentBlockStop", "messageStart", "messageStop", "metadata")
_STREAM_FIELDS = frozenset({"contentBlockIndex", "p"})  # `p` is padding


def is_own_tool(fields: dict[str, Any]) -> bool:
    """True if a `toolUse` waits for a result from us: the vendor does not run it."""
    return fields.get("type") != "server_tool_use"


def end_details(body: dict[str, Any]) -> dict[str, JSON]:
    """Return the details of a body's end: the stop sequence (if it was requested), and a guardrail's action and findings."""
    found: dict[str, JSON] = {}
    if sequence := read.some_text(read.as_dict(body.get("additionalModelResponseFields")).get("stop_sequence")):
        found["stop_sequence"] = sequence
    guardrail = read.as_dict(read.as_dict(body.get("trace")).get("guardrail"))
    if action := read.some_text(guardrail.get("actionReason")):
        found["guardrail"] = action
    return {**found, **guardrail_trace(guardrail)}


@dataclass(slots=True, eq=False)
class _Block:
    """One content block, assembled from its pieces. `call` is its number among the tool calls."""

    start: dict[str, Any]
    call: int
    closed: bool = False
    pieces: dict[str, list[str]] = field(default_factory=dict)
    redacted: list[str] = field(default_factory=list)
    citations: list[JSON] = field(default_factory=list)
    results: list[JSON] = field(default_factory=list)
    image: dict[str, Any] = field(default_factory=dict)

    @property
    def tool_use(self) -> dict[str, Any] | None:
        found = self.start.get("toolUse")
        return found if isinstance(found, dict) else None

    def joined(self, key: str) -> str:
        return read.whole_text("".join(self.pieces.get(key, ())))

    def id(self) -> str:
        return read.as_text(read.as_dict(self.tool_use).get("toolUseId")) or f"call_{self.call + 1}"

    def name(self) -> str:
        return read.as_text(read.as_dict(self.tool_use).get("name"))

    def arguments(self) -> str:
        return read.arguments_text(self.joined("input"), closed=self.closed)

    def content(self) -> list[dict[str, Any]]:
        """Return the block as parts of a whole message: one part, or several if the block mixes kinds."""
        found: list[dict[str, Any]] = []
        if "reasoning" in self.pieces or "signature" in self.pieces:
            signature = {"signature": self.joined("signature")} if "signature" in self.pieces else {}
            found.append({"reasoningContent": {"reasoningText": {"text": self.joined("reasoning"), **signature}}})
        if self.redacted:
            found.append({"reasoningContent": {"redactedContent": _joined_base64(self.redacted)}})
        if self.citations:
            content = {"content": [{"text": self.joined("text")}]} if "text" in self.pieces else {}
            found.append({"citationsContent": {**content, "citations": self.citations}})
        elif "text" in self.pieces:
            found.append({"text": self.joined("text")})
        if self.tool_use is not None:
            found.append({"toolUse": {**self.tool_use, "input": self._input()}})
        if isinstance(self.start.get("toolResult"), dict):
            found.append({"toolResult": {**self.start["toolResult"], "content": self.results}})
        if self.image or "image" in self.start:
            found.append({"image": {**read.as_dict(self.start.get("image")), **self.image}})
        return found

    def _input(self) -> JSON:
        """Return the parsed arguments, or their text if it is not JSON."""
        text = self.arguments()
        try:
            return read.loads(text) if text else {}
        except ValueError:
            return text


def _joined_base64(pieces: list[str]) -> str:
    """Join pieces that are each encoded as base64."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        return base64.b64encode(b"".join(base64.b64decode(piece, validate=True) for piece in pieces)).decode()
    except (binascii.Error, ValueError):
        return "".join(pieces)


class BedrockStreamParser(BlockParser):
    """Parses one stream of events."""

    def _clear(self) -> None:
        self._body: dict[str, Any] = {}
        self._role = "assistant"
        self._begun = False
        self._blocks: dict[int, _Block] = {}
        self._tools = 0
        self._whole: dict[str, Any] | None = None

    def _take(self, name: bytes, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        kind = name.decode("utf-8", "replace")
        if kind in _KINDS:
            inside = chunk.get(kind)  # recorded as server-sent events, with the name inside too
            self._take_event(kind, inside if isinstance(inside, dict) else chunk, events)
            return
        if kind.endswith("Exception"):
            self._fail({**chunk, "type": kind}, events)
            return
        known = False
        for kind in _KINDS:
            if kind in chunk and "output" not in chunk:
                known = True
                self._take_event(kind, chunk[kind], events)
        for kind, fields in chunk.items():
            if kind.endswith("Exception"):
                known = True
                self._fail({**read.as_dict(fields), "type": kind}, events)
        if not known and not name and ("output" in chunk or "stopReason" in chunk or "__type" in chunk or "message" in chunk):
            self._whole = chunk  # the server did not stream, or refused the request

    def _take_event(self, kind: str, event: JSON, events: list[StreamEvent]) -> None:
        if not isinstance(event, dict):
            self._record_loss(BROKEN)
        elif kind == "contentBlockDelta":
            self._delta(event.get("contentBlockIndex"), event.get("delta"), events)
        elif kind == "contentBlockStart":
            self._start_block(event.get("contentBlockIndex"), event.get("start"), events)
        elif kind == "contentBlockStop":
            if (block := self._blocks.get(block_number(event.get("contentBlockIndex")))) is not None:
                block.closed = True
        elif kind == "messageStart":
            self._doubtful = self._doubtful or self._done  # a second message
            self._blocks.clear()  # a second messageStart replaces the message
            self._tools = 0
            self._begun, self._done = True, False
            self._body.pop("stopReason", None)
            self._role = read.as_text(event.get("role")) or "assistant"
        else:  # messageStop, metadata: fields of the body
            self._body.update({key: value for key, value in event.items() if key not in _STREAM_FIELDS})
            if kind == "messageStop":
                self._done = True
                events.append(SignalSeen(self._signal_now()))

    def _start_block(self, index: JSON, start: JSON, events: list[StreamEvent]) -> None:
        self._doubtful = self._doubtful or self._done
        if not isinstance(start, dict | None):
            self._record_loss(BROKEN)
        block = self._blocks[block_number(index)] = _Block(dict(read.as_dict(start)), self._tools)
        if block.tool_use is not None and is_own_tool(block.tool_use):
            self._tools += 1
            events.append(ToolCallDelta(block.call, block.id(), block.name(), ""))

    def _delta(self, index: JSON, delta: JSON, events: list[StreamEvent]) -> None:
        if not isinstance(delta, dict):
            self._record_loss(BROKEN)
            return
        block = self._blocks.get(block_number(index))
        if block is None:  # text and reasoning have no start event
            block = self._blocks[block_number(index)] = _Block({}, self._tools)
        if self._done or block.closed:
            self._damaged = True  # a late piece
        for kind, piece in delta.items():
            if kind == "text" and isinstance(piece, str):
                block.pieces.setdefault("text", []).append(piece)
                if piece:
                    events.append(TextDelta(piece))
            elif kind == "text" or (kind == "toolUse" and not isinstance(piece, dict)):
                self._record_loss(BROKEN)
            elif kind == "toolUse":
                self._input_piece(block, read.as_dict(piece).get("input"), events)
            elif kind == "reasoningContent":
                self._reasoning_piece(block, read.as_dict(piece), events)
            elif kind == "citation":
                block.citations.append(piece)
            elif kind == "toolResult":
                block.results.extend(read.as_list(piece))
            elif kind == "image":
                block.image.update(read.as_dict(piece))

    def _input_piece(self, block: _Block, piece: JSON, events: list[StreamEvent]) -> None:
        if block.tool_use is None:
            self._record_loss(NO_START)
        elif isinstance(piece, str):
            block.pieces.setdefault("input", []).append(piece)
            if piece and is_own_tool(block.tool_use):
                events.append(ToolCallDelta(block.call, block.id(), block.name(), piece))
        elif isinstance(piece, dict):  # recorded as parsed JSON
            block.pieces["input"] = [read.dumps(piece).decode()]
        elif piece is not None:
            self._record_loss(BROKEN)

    def _reasoning_piece(self, block: _Block, piece: dict[str, Any], events: list[StreamEvent]) -> None:
        if text := read.as_text(piece.get("text")):
            block.pieces.setdefault("reasoning", []).append(piece["text"])
            events.append(ReasoningDelta(text))
        if signature := read.as_text(piece.get("signature")):
            block.pieces.setdefault("signature", []).append(signature)
        if redacted := read.as_text(piece.get("redactedContent")):
            block.redacted.append(redacted)

    def _waiting(self, blocks: list[_Block]) -> list[_Block]:
        return [block for block in blocks if block.tool_use is not None and is_own_tool(block.tool_use)]

    def _check_order(self) -> None:
        # The last block of a cut message may be open. In any other message, the event that closes an open block was lost.
        proper = self._done and self._body.get("stopReason") in PROPER_ENDS
        left_open = proper and self._error is None and not all(block.closed for block in self._blocks.values())
        self._doubtful = self._doubtful or left_open

    def _ended(self) -> Ended:
        return "marked" if self._done and not self._torn else "unmarked"

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        if self._whole is not None and not self._begun and not self._blocks:
            error = {"error": self._error} if self._error is not None else {}
            return self._reader({**self._whole, **error}, None, "whole", damaged)
        return self._reader(body, self._calls(), ended, damaged)

    @property
    def sound(self) -> bool:
        """True if the stream is complete and nothing was lost; known after `finish`."""
        return super().sound or (self._whole is not None and not self._damaged and not self._torn)

    @property
    def cut_short(self) -> bool:
        """True if the body ended within an event, or before the last one; known after `finish`."""
        return super().cut_short or (self._begun and not self._done)

    def _assembled(self) -> dict[str, Any]:
        content = [part for _, block in sorted(self._blocks.items()) for part in block.content()]
        body = dict(self._body)
        if self._begun or content:
            body["output"] = {"message": {"role": self._role, "content": content}}
        return body
