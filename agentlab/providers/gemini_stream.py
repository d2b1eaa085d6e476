"""Assembles a stream of Gemini's chunks, each of them a small response, into the whole response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from agentlab.model.messages import JSON
from agentlab.model.responses import ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.providers.gemini_arguments import StreamedCall
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended
from agentlab.providers.wires.stream import BodyParser

Reader: TypeAlias = Callable[[JSON, Ended, bool], ModelResponse]

_PLAIN = frozenset({"text", "thought"})

_PROPER_ENDS = ("STOP", 1)
"""Finish reasons of a response whose last function call is complete."""


class GeminiStreamParser(BodyParser):
    """Parses one stream of chunks."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        super().__init__()

    def _clear(self) -> None:
        self._newest_call: dict[str, Any] | None = None
        self._body: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._parts: list[dict[str, Any] | StreamedCall] = []
        self._pieces: list[str] = []
        self._text_part: dict[str, Any] = {}
        self._thought = False
        self._usage: dict[str, Any] = {}
        self._calls = 0
        self._streamed: StreamedCall | None = None  # the newest call, if its arguments arrive in pieces
        self._end: JSON = None
        self._after_end = False

    def _take(self, name: bytes, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        before = len(events)
        if "response" in chunk:
            chunk = unwrapped(chunk)
        if self._newest_call is not None and chunk == self._newest_call:  # a repeated chunk: another call would have more tokens
            self._doubtful = True
            return
        self._newest_call = None
        calls = self._calls
        if chunk.get("responseId") != self._body.get("responseId") and self._body.get("responseId") and chunk.get("responseId"):
            self._doubtful = True  # two responses in one stream
        self._body.update(chunk)
        usage = chunk.get("usageMetadata")
        if type(usage) is dict:
            self._usage.update(usage if None not in usage.values() else _without_none(usage))
        end = read.as_dict(chunk["promptFeedback"]).get("blockReason") if "promptFeedback" in chunk else None
        candidates = chunk.get("candidates")
        if candidates and type(candidates) is list:
            candidate = candidates[0]
            if len(candidates) > 1 or type(candidate) is not dict or candidate.get("index"):
                candidate = next((item for item in candidates if isinstance(item, dict) and not item.get("index")), None)
            if candidate is not None:
                content = candidate.get("content")
                parts = content.get("parts") if type(content) is dict else None
                if type(parts) is list:
                    for part in parts:
                        if type(part) is dict:
                            self._part(part, events)
                if candidate.get("finishReason") is not None:
                    end = candidate["finishReason"]
                    if end in _PROPER_ENDS:
                        self._end_streamed_call(events)
                    self._after_end = False  # some servers send it with each chunk
                elif len(events) > before and self._end is not None:
                    self._after_end = True
                self._candidate.update(candidate if None not in candidate.values() else _without_none(candidate))
        if self._calls > calls and type(usage) is dict and "candidatesTokenCount" in usage:
            self._newest_call = chunk
        if end is not None and end != self._end:
            self._end = end
            events.append(SignalSeen(self._signal_now()))

    def _part(self, part: dict[str, Any], events: list[StreamEvent]) -> None:
        """Merge pieces of plain text into one part; keep a part with anything else in it, such as a thought signature, as it is."""
        text = part.get("text")
        if type(text) is str:
            alone = len(part) == 1
            thought = not alone and bool(part.get("thought"))
            if text:
                events.append(ReasoningDelta(text) if thought else TextDelta(text))
            if alone or part.keys() <= _PLAIN:
                if self._pieces and thought is self._thought:
                    self._pieces.append(text)
                else:
                    self._close_text()
                    self._pieces, self._thought, self._text_part = [text], thought, dict(part)
                    self._parts.append(self._text_part)
                return
        call = part.get("functionCall")
        if isinstance(call, dict):
            if self._streamed is not None and self._streamed.continues(call):
                if arguments := self._streamed.take(part):
                    events.append(_delta(self._streamed, arguments))
                return
            self._end_streamed_call(events)
            number = self._calls
            self._calls += 1
            if is_open(call):
                self._close_text()
                self._streamed = StreamedCall(number)
                self._parts.append(self._streamed)
                events.append(_delta(self._streamed, self._streamed.take(part)))
                return
            self._streamed = None
            arguments = read.arguments_text(call.get("args"), closed=True)
            events.append(ToolCallDelta(number, _call_id(call, number), read.as_text(call.get("name")), arguments))
        self._close_text()
        self._parts.append(part)

    def _end_streamed_call(self, events: list[StreamEvent]) -> None:
        """End the newest call: another call or the finish reason follows its last piece."""
        if self._streamed is not None and (closing := self._streamed.end()):
            events.append(_delta(self._streamed, closing))

    def _close_text(self) -> None:
        if self._pieces:
            self._text_part["text"] = "".join(self._pieces)
            self._pieces = []

    def _is_over(self) -> bool:
        return self._end is not None

    def _check_order(self) -> None:
        self._doubtful = self._doubtful or self._after_end

    def _ended(self) -> Ended:
        # This wire has no end marker: a stream is complete once its finish reason has arrived.
        ends = self._candidate.get("finishReason") is not None or self._error is not None or self._incoming.is_json
        return "whole" if ends and not self._torn else "unmarked"

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        return self._reader(body, ended, damaged)

    def _assembled(self) -> dict[str, Any]:
        self._close_text()
        body = dict(self._body)
        body.pop("candidates", None)
        body.pop("error", None)
        if self._candidate or self._parts:
            candidate = dict(self._candidate)
            candidate.pop("content", None)
            parts = [part.part(damaged=self._damaged) if isinstance(part, StreamedCall) else part for part in self._parts]
            content = {"content": {"role": "model", "parts": parts}} if parts else {}
            body["candidates"] = [{**content, **candidate}]
        if self._usage:
            body["usageMetadata"] = self._usage
        return body


def _delta(call: StreamedCall, arguments: str) -> ToolCallDelta:
    return ToolCallDelta(call.number, call.id or f"call_{call.number + 1}", call.name, arguments)


def _call_id(call: dict[str, Any], number: int) -> str:
    return read.as_text(call.get("id")) or f"call_{number + 1}"


def unwrapped(body: dict[str, Any]) -> dict[str, Any]:
    """Return the response in a body; Google's Code Assist sends it as `{"response": {…}}`."""
    inner = body.get("response")
    return inner if isinstance(inner, dict) and "candidates" not in body else body


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def is_open(call: dict[str, Any]) -> bool:
    """True if the arguments of this call come in pieces."""
    return call.get("willContinue") is True or bool(call.get("partialArgs"))
