"""A stream of Anthropic's events, put together into the message that the whole answer would have been.

Vendor page: https://platform.claude.com/docs/en/build-with-claude/streaming; the events as recorded responses have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, Facts
from agentlab.providers.wires.stream import BROKEN, NO_START, BodyParser
from agentlab.types import (
    JSON,
    ModelResponse,
    ReasoningDelta,
    SignalSeen,
    StreamEvent,
    TerminationSignal,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)

Reader: TypeAlias = Callable[[JSON, tuple[ToolCall, ...] | None, Ended, bool], ModelResponse]
Signaller: TypeAlias = Callable[[JSON, Facts], TerminationSignal]

GUARDRAIL = "amazon-bedrock-guardrailAction"
"""Where Bedrock, serving this wire, says that a guardrail stood in: in the message, or in the last event of a stream."""

_PROPER_ENDS = ("end_turn", "tool_use", "stop_sequence")
_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}


def settled_tools(blocks: list[dict[str, Any]]) -> frozenset[str]:
    """The ids of the vendor's own tools that have come to their result within the message."""
    return frozenset(read.as_text(block.get("tool_use_id")) for block in blocks if "tool_use_id" in block)


def is_call(block: dict[str, Any], settled: frozenset[str]) -> bool:
    """Whether a block is a call that waits for its result: not one that the vendor runs, nor one that code in the vendor's sandbox
    made which has ended since (its results were given in an earlier turn)."""
    return block.get("type") == "tool_use" and read.as_text(read.as_dict(block.get("caller")).get("tool_id")) not in (
        settled - {""}
    )


def end_details(message: dict[str, Any]) -> dict[str, JSON]:
    """What a message says of its end beside the stop reason: the stop sequence, the words about a refusal, and what a guardrail did."""
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


class _Block:
    """One content block as its pieces come in. `call` is its number among the tool calls."""

    __slots__ = ("call", "closed", "fields", "pieces")

    def __init__(self, fields: dict[str, Any], call: int) -> None:
        self.fields = fields
        self.pieces: dict[str, list[str]] = {}
        self.closed = False
        self.call = call

    def joined(self, key: str) -> str:
        return read.whole_text("".join(self.pieces.get(key, ())))

    def arguments(self) -> str:
        """The raw text of a tool's arguments: the pieces, or what the block was opened with."""
        return self.joined("partial_json") or read.arguments_text(self.fields.get("input") or None, closed=self.closed)

    def id(self) -> str:
        return read.as_text(self.fields.get("id")) or f"call_{self.call + 1}"

    def content(self) -> dict[str, Any]:
        """The block as a whole message holds it. Arguments that are not JSON stay text."""
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


class AnthropicStreamParser(BodyParser):
    """The state of one stream of events."""

    def __init__(self, reader: Reader, signaller: Signaller) -> None:
        self._reader = reader
        self._signaller = signaller
        super().__init__()

    def _clear(self) -> None:
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
        self._tools = 0
        self._begun = False
        self._over = False
        self._whole: dict[str, Any] | None = None

    def _take(self, name: bytes, chunk: dict[str, Any], told: list[StreamEvent]) -> None:
        kind = chunk.get("type") or name.decode("utf-8", "replace")
        if kind == "content_block_delta":
            self._delta(chunk.get("index"), chunk.get("delta"), told)
        elif kind == "content_block_start":
            self._start_block(chunk.get("index"), chunk.get("content_block"), told)
        elif kind == "content_block_stop":
            block = self._blocks.get(_number(chunk.get("index")))
            if block is None:
                self._lose(NO_START)
            else:
                block.closed = True
        elif kind == "message_delta":
            self._message_delta(chunk, told)
        elif kind == "message_start":
            self._doubtful = self._doubtful or self._done or self._over  # an end before the beginning, or another message
            self._blocks.clear()  # a second one starts the message anew
            self._tools = 0
            self._begun, self._over, self._done = True, False, False
            self._message = dict(read.as_dict(chunk.get("message")))
            self._usage = dict(read.as_dict(self._message.get("usage")))
            for index, block in enumerate(read.as_list(self._message.get("content"))):  # what it begins with is there already
                self._start_block(index, block, told)
                self._blocks[index].closed = True
        elif kind == "message_stop":
            self._done = self._over = True
            if GUARDRAIL in chunk:
                self._message[GUARDRAIL] = chunk[GUARDRAIL]
                told.append(SignalSeen(self._signal_now()))
        elif kind == "message":  # not streamed after all
            self._whole = chunk

    def _start_block(self, index: JSON, fields: JSON, told: list[StreamEvent]) -> None:
        self._doubtful = self._doubtful or self._over
        if self._blocks and _number(index) > max(self._blocks) + 1:
            self._lose("a block is missing")
        calls = self._tools
        block = self._blocks[_number(index)] = _Block(dict(read.as_dict(fields)), calls)
        kind = block.fields.get("type")
        if kind == "text" and (text := read.as_text(block.fields.get("text"))):
            told.append(TextDelta(text))
        elif kind == "tool_use":
            self._tools += 1
            told.append(ToolCallDelta(calls, block.id(), read.as_text(block.fields.get("name")), ""))

    def _delta(self, index: JSON, delta: JSON, told: list[StreamEvent]) -> None:
        block = self._blocks.get(_number(index))
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
            told.append(TextDelta(piece))
        elif key == "thinking":
            told.append(ReasoningDelta(piece))
        elif key == "partial_json" and block.fields.get("type") == "tool_use":
            told.append(ToolCallDelta(block.call, block.id(), read.as_text(block.fields.get("name")), piece))

    def _message_delta(self, chunk: dict[str, Any], told: list[StreamEvent]) -> None:
        # Its usage is cumulative; what it leaves out stands in message_start.
        self._usage.update({key: value for key, value in read.as_dict(chunk.get("usage")).items() if value is not None})
        for key, value in read.as_dict(chunk.get("delta")).items():
            if value is not None:
                self._message[key] = value
                if key == "stop_reason":
                    self._over = True
                    told.append(SignalSeen(self._signal_now()))

    def _calls(self) -> tuple[ToolCall, ...]:
        sound = not self._damaged  # with a piece lost, what is left may be JSON and yet wrong
        settled = settled_tools([block.fields for block in self._blocks.values()])
        return tuple(
            ToolCall(
                id=block.id(),
                name=read.as_text(block.fields.get("name")),
                arguments=block.arguments(),
                closed=block.closed and sound,
            )
            for _, block in sorted(self._blocks.items())
            if is_call(block.fields, settled)
        )

    def _signal_now(self) -> TerminationSignal:
        calls = self._calls()
        facts = Facts(
            tool_calls=len(calls),
            complete_calls=all(read.is_json(call.arguments) for call in calls),
            answered=bool(self._blocks),
            damaged=self._damaged,
            error=self._error,
            metadata=end_details(self._message),
        )
        return self._signaller(self._message.get("stop_reason"), facts)

    def _weigh_order(self) -> None:
        if not self._done or self._whole is not None or self._error is not None:
            return
        blocks = self._blocks.values()
        # Where the message was cut its last block may stay open; where it was not, the event that closes it was lost.
        left_open = self._message.get("stop_reason") in _PROPER_ENDS and not all(block.closed for block in blocks)
        self._doubtful = self._doubtful or not self._begun or left_open

    def _block_count(self) -> int:
        return len(self._blocks)

    def _is_over(self) -> bool:
        return self._over

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        if self._whole is not None:
            return self._reader(
                {**self._whole, **({"error": self._error} if self._error is not None else {})}, None, "whole", damaged
            )
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


def _number(index: JSON) -> int:
    """A block's index; a missing or absurd one is that of a single block."""
    return index if isinstance(index, int) else 0
