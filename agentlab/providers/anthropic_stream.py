"""A stream of Anthropic's events, assembled into the message of the same answer without streaming.

Vendor page: https://platform.claude.com/docs/en/build-with-claude/streaming; the events as recorded responses have them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentlab.model.messages import JSON
from agentlab.model.responses import ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended
from agentlab.providers.wires.stream import BROKEN, NO_START, PROPER_ENDS, BlockParser, block_number

GUARDRAIL = "amazon-bedrock-guardrailAction"
"""Bedrock's field for a guardrail's action on this wire: in the message, or in the last event of a stream."""

_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}


def settled_tools(blocks: list[dict[str, Any]]) -> frozenset[str]:
    """Return the call ids of the vendor's tools whose results are in the message."""
    return frozenset(read.as_text(block.get("tool_use_id")) for block in blocks if "tool_use_id" in block)


def is_call(block: dict[str, Any], settled: frozenset[str]) -> bool:
    """True if a block is a call that waits for its result: neither run by the vendor, nor made by code in the vendor's sandbox that has
    ended since (its results were sent in an earlier turn)."""
    return block.get("type") == "tool_use" and read.as_text(read.as_dict(block.get("caller")).get("tool_id")) not in (
        settled - {""}
    )


def end_details(message: dict[str, Any]) -> dict[str, JSON]:
    """Return a message's details of its end: the stop sequence, the explanation of a refusal, and a guardrail's action."""
    found: dict[str, JSON] = {}
    if sequence := read.some_text(message.get("stop_sequence")):
        found["stop_sequence"] = sequence
    if details := {
        key: text for key, value in read.as_dict(message.get("stop_details")).items() if (text := read.some_text(value))
    }:
        found["stop_details"] = details
    if (action := read.some_text(message.get(GUARDRAIL))) not in (None, "NONE"):
        found["guardrail"] = action
    return found


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
    """The state of one stream of events."""

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
                self._lose(NO_START)
            else:
                block.closed = True
        elif kind == "message_delta":
            self._message_delta(chunk, events)
        elif kind == "message_start":
            self._doubtful = self._doubtful or self._done or self._over  # an end before the beginning, or another message
            self._blocks.clear()  # a second one starts the message anew
            self._tools = 0
            self._begun, self._over, self._done = True, False, False
            self._message = dict(read.as_dict(chunk.get("message")))
            self._usage = dict(read.as_dict(self._message.get("usage")))
            for index, block in enumerate(read.as_list(self._message.get("content"))):  # content that it begins with
                self._start_block(index, block, events)
                self._blocks[index].closed = True
        elif kind == "message_stop":
            self._done = self._over = True
            if GUARDRAIL in chunk:
                self._message[GUARDRAIL] = chunk[GUARDRAIL]
                events.append(SignalSeen(self._signal_now()))
        elif kind == "message":  # not streamed after all
            self._whole = chunk

    def _start_block(self, index: JSON, fields: JSON, events: list[StreamEvent]) -> None:
        self._doubtful = self._doubtful or self._over
        if self._blocks and block_number(index) > max(self._blocks) + 1:
            self._lose("a block is missing")
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
            self._lose(NO_START if block is None else BROKEN)
            return
        if self._over or block.closed:
            self._damaged = True  # a piece that comes too late
        kind = delta.get("type")
        key = _PIECES.get(kind) if isinstance(kind, str) else None
        if key is None:
            if kind == "citations_delta":
                block.fields.setdefault("_citations", []).append(delta.get("citation"))
            elif kind == "compaction_delta":  # comes whole, and goes back as it came
                block.fields.update({key: value for key, value in delta.items() if key != "type"})
            return
        piece = delta.get(key)
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
        # Its usage is cumulative; what it leaves out was in message_start.
        self._usage.update({key: value for key, value in read.as_dict(chunk.get("usage")).items() if value is not None})
        for key, value in read.as_dict(chunk.get("delta")).items():
            if value is not None:
                self._message[key] = value
                if key == "stop_reason":
                    self._over = True
                    events.append(SignalSeen(self._signal_now()))

    def _waiting(self, blocks: list[_Block]) -> list[_Block]:
        settled = settled_tools([block.fields for block in blocks])
        return [block for block in blocks if is_call(block.fields, settled)]

    def _end_so_far(self) -> tuple[JSON, dict[str, JSON]]:
        return self._message.get("stop_reason"), end_details(self._message)

    def _weigh_order(self) -> None:
        if not self._done or self._whole is not None or self._error is not None:
            return
        blocks = self._blocks.values()
        # The last block of a cut message may stay open; in any other the event that closes it was lost.
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
        return "unmarked" if ended == "whole" and self._whole is None else ended  # JSON lines without the last event

    def _assembled(self) -> dict[str, Any]:
        body = dict(self._message)
        body["content"] = [block.content() for _, block in sorted(self._blocks.items())]
        if self._usage:
            body["usage"] = self._usage
        return body
