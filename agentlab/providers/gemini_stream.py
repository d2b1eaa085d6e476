"""Assembles a stream of Gemini's chunks, each of them a small response, into the whole response.

Vertex AI sends the arguments of a function call in pieces if a request asks for it (`streamFunctionCallArguments`): first the name with
`willContinue`, then `partialArgs`, each a JSON path and a value (text in several pieces), and finally a call without `willContinue`,
which may be empty. Vendor page: https://docs.cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling, and the types
of the vendor's client (google-genai 3.4), read 2026-11-22.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from agentlab.model.finish_reasons import TerminationSignal
from agentlab.model.messages import JSON
from agentlab.model.responses import ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended
from agentlab.providers.wires.stream import NO_START, BodyParser

Reader: TypeAlias = Callable[[JSON, Ended, bool], ModelResponse]

_PLAIN = frozenset({"text", "thought"})


class GeminiStreamParser(BodyParser):
    """Parses one stream of chunks."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        super().__init__()

    def _clear(self) -> None:
        self._newest_call: dict[str, Any] | None = None
        self._body: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []
        self._pieces: list[str] = []
        self._thought = False
        self._usage: dict[str, Any] = {}
        self._calls = 0
        self._partial: PartialCall | None = None
        self._has_partial_calls = False
        self._joined_calls: list[PartialCall] = []
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
                    self._after_end = False  # some servers send it with each chunk
                elif len(events) > before and self._end is not None:
                    self._after_end = True
                self._candidate.update(candidate if None not in candidate.values() else _without_none(candidate))
        if self._calls > calls and self._partial is None and type(usage) is dict and "candidatesTokenCount" in usage:
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
                    self._pieces, self._thought = [text], thought
                    self._parts.append(dict(part))
                return
        call = part.get("functionCall")
        if isinstance(call, dict):
            if self._has_partial_calls and (
                not call.get("name") or (self._partial is not None and self._partial.is_continued_by(call))
            ):
                self._more_of_call(part, events)
                return
            self._partial = None  # a call whose end was lost before the next call stays open
            if is_open(call) or "partialArgs" in call:
                self._has_partial_calls = True
                self._partial = PartialCall(part)
                part = self._partial.part
            number = self._calls
            self._calls += 1
            arguments = "" if self._partial is not None else read.arguments_text(call.get("args"), closed=True)
            events.append(ToolCallDelta(number, _call_id(call, number), read.as_text(call.get("name")), arguments))
        self._close_text()
        self._parts.append(part)
        if self._partial is not None and isinstance(call, dict) and not is_open(call):
            self._more_of_call({"functionCall": {}}, events)  # the first piece is also the last

    def _more_of_call(self, part: dict[str, Any], events: list[StreamEvent]) -> None:
        """Add the next piece of a call. Its arguments are emitted when they are complete, since the pieces are not JSON text."""
        self._after_end = self._end is not None
        if self._partial is None:
            if part["functionCall"] != {}:  # a piece of a call that is closed, or never began
                self._record_loss(NO_START)
            return
        if self._partial.add(part):
            self._joined_calls.append(self._partial)
            call, number = self._partial.part["functionCall"], self._calls - 1
            arguments = read.arguments_text(call.get("args"), closed=True)
            events.append(ToolCallDelta(number, _call_id(call, number), read.as_text(call.get("name")), arguments))
            self._partial = None

    def _close_text(self) -> None:
        if self._pieces:
            self._parts[-1]["text"] = "".join(self._pieces)
            self._pieces = []

    def _is_over(self) -> bool:
        return self._end is not None

    def _check_order(self) -> None:
        self._doubtful = self._doubtful or self._after_end
        if self._damaged:  # known only now that the stream has ended
            for call in self._joined_calls:
                call.reopen()

    def _ended(self) -> Ended:
        # This wire has no end marker: a stream is complete once its finish reason has arrived.
        ends = self._candidate.get("finishReason") is not None or self._error is not None or self._incoming.is_json
        return "whole" if ends and not self._torn else "unmarked"

    def _signal_now(self) -> TerminationSignal:
        return self._read(
            {**self._assembled(), **({} if self._error is None else {"error": self._error})}, "whole", self._damaged
        ).signal

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
            content = {"content": {"role": "model", "parts": self._parts}} if self._parts else {}
            body["candidates"] = [{**content, **candidate}]
        if self._usage:
            body["usageMetadata"] = self._usage
        return body


def _call_id(call: dict[str, Any], number: int) -> str:
    return read.as_text(call.get("id")) or f"call_{number + 1}"


def unwrapped(body: dict[str, Any]) -> dict[str, Any]:
    """Return the response in a body; Google's Code Assist sends it as `{"response": {…}}`."""
    inner = body.get("response")
    return inner if isinstance(inner, dict) and "candidates" not in body else body


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.DOTALL)
_VALUES = ("stringValue", "numberValue", "boolValue")


def is_open(call: dict[str, Any]) -> bool:
    """True if more of this call, or of its last value, was announced."""
    pieces = read.as_list(call.get("partialArgs"))
    return call.get("willContinue") is True or (bool(pieces) and read.as_dict(pieces[-1]).get("willContinue") is True)


class PartialCall:
    """One call, assembled from its pieces. `part` is its part of the message, which stays open until the last piece."""

    __slots__ = ("_args", "_call", "_continued", "_sound", "part")

    def __init__(self, part: dict[str, Any]) -> None:
        self.part = dict(part)
        self._call = self.part["functionCall"] = dict(part["functionCall"])
        args = self._call.get("args")
        self._args: dict[str, Any] = dict(args) if isinstance(args, dict) else {}
        self._continued = ""
        self._sound = True
        self._take(self._call.pop("partialArgs", None))
        self._call["willContinue"] = True

    def is_continued_by(self, call: dict[str, Any]) -> bool:
        """True if a call with a name is a piece of this call; some servers repeat the name in each piece."""
        own_id, other_id = self._call.get("id"), call.get("id")
        if own_id and other_id:
            return bool(own_id == other_id)
        return "partialArgs" in call and call.get("name") == self._call.get("name")

    def add(self, part: dict[str, Any]) -> bool:
        """Add the next part of the call. Returns True if it was the last part."""
        call = part["functionCall"]
        for key, value in part.items():
            self.part.setdefault(key, value)
        for key, value in call.items():
            if key not in ("partialArgs", "willContinue", "args"):
                self._call.setdefault(key, value)
        self._args.update(read.as_dict(call.get("args")))
        self._take(call.get("partialArgs"))
        if is_open(call):
            return False
        if self._sound:  # a call with a malformed piece stays open and is not executed
            self._call.pop("willContinue", None)
        return True

    def reopen(self) -> None:
        """Mark the call as open, so that it is not executed: a piece may be lost."""
        self._call["willContinue"] = True

    def _take(self, pieces: JSON) -> None:
        for piece in read.as_list(pieces):
            steps = _steps(piece)
            if not steps:
                self._sound = False
                continue
            path = piece["jsonPath"]
            value = next((piece[key] for key in _VALUES if key in piece), None)
            self._sound = _put(self._args, steps, value, more=self._continued == path) and self._sound
            self._continued = path if piece.get("willContinue") is True else ""
        self._call["args"] = self._args


def _steps(piece: JSON) -> list[str | int]:
    """Return the names and numbers of a JSON path; an empty list for an unsupported path."""
    path = read.as_text(read.as_dict(piece).get("jsonPath"))
    if not path.startswith("$"):
        return []
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return []
        name, number, single, double = step.groups()
        quoted = single if single is not None else double
        steps.append(int(number) if number is not None else name if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = step.end()
    return steps


def _put(container: JSON, steps: list[str | int], value: JSON, *, more: bool) -> bool:
    """Set a value at its path, creating the containers, or append `more` text to it. Returns False if it does not fit: the items of a
    list must arrive in order."""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        last = following is None
        empty: JSON = None if last else [] if isinstance(following, int) else {}
        if isinstance(container, dict) and isinstance(step, str):
            exists = step in container
            if not exists:
                container[step] = empty
        elif isinstance(container, list) and isinstance(step, int) and step <= len(container):
            exists = step < len(container)
            if not exists:
                container.append(empty)
        else:
            return False
        if last:
            before = container[step]
            added = more and exists and isinstance(before, str) and isinstance(value, str)
            container[step] = before + value if added else value
            return True
        container = container[step]
    return False
