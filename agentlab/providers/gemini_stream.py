"""Assembles a stream of Gemini's chunks, each of them a small response, into the whole response.

The arguments of a function call may arrive in pieces. Vertex AI streams them to requests with `streamFunctionCallArguments`: the first
piece has the call's name and `willContinue`. Each further piece has `partialArgs`: values with their paths, in the order of the
arguments, of which texts may arrive in parts. A piece without `willContinue` ends the call, usually an empty one. If it is missing, the
next call or the finish reason ends the call.

Vendor pages: https://docs.cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling, read 2026-11-22, and the types of
the vendor's client (google-genai 3.4, `FunctionCall` and `PartialArg`), read 2026-11-29. Paths: RFC 9535, section 2.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agentlab.model.messages import JSON
from agentlab.model.responses import ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended
from agentlab.providers.wires.stream import BROKEN, BodyParser

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
        if candidates and type(candidates) is not list:
            self._record_loss(BROKEN)
        elif candidates:
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
                        else:
                            self._record_loss(BROKEN)
                elif parts is not None or not isinstance(content, dict | None):
                    self._record_loss(BROKEN)
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
                self._after_end = self._end is not None
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
        if self._pieces:
            self._text_part["text"] = "".join(self._pieces)
        body = dict(self._body)
        body.pop("candidates", None)
        body.pop("error", None)
        if self._candidate or self._parts:
            candidate = dict(self._candidate)
            candidate.pop("content", None)
            parts = [part.part(damaged=self._damaged) if isinstance(part, StreamedCall) else dict(part) for part in self._parts]
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


# Arguments in pieces --------------------------------------------------------------------------------------------------------

Steps: TypeAlias = tuple[str | int, ...]
"""The keys and list indices that lead to a value: `("operations", 0, "price")`."""

_STEP = re.compile(
    r"""\.(?P<name>[^.*\[\]]+)
      | \[(?P<index>0|[1-9][0-9]{0,8})\]
      | \[(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\]""",
    re.VERBOSE | re.DOTALL,
)


def read_path(text: JSON) -> Steps:
    """Return the steps of a path such as `$.operations[0].price` or `$['a b']`. Raises ValueError for another text."""
    if not isinstance(text, str) or not text.startswith("$"):
        raise ValueError(f"{text!r} is not a path")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(f"{text!r} is not the path of one value")
        if found["quoted"]:
            steps.append(_unquoted(found["quoted"]))
        else:
            steps.append(found["name"] or int(found["index"]))
        at = found.end()
    return tuple(steps)


def _unquoted(text: str) -> str:
    """Return a quoted key. In single quotes, a single quote is escaped and a double quote is not."""
    if text[0] == "'":
        swapped = {"\\'": "'", '"': '\\"'}
        text = '"' + re.sub(r'\\.|"', lambda found: swapped.get(found[0], found[0]), text[1:-1]) + '"'
    return str(json.loads(text, strict=False))


@dataclass(slots=True, eq=False)
class StreamedCall:
    """One call. Its arguments are written as JSON text while their values arrive.

    `number` is the call's place in the response. `arguments` is None until the call has ended. It stays None if a text has not ended or
    the pieces do not fit together: such a call is incomplete, and never executed.
    """

    number: int
    id: str = ""
    name: str = ""
    arguments: dict[str, Any] | None = None
    _fields: dict[str, Any] = field(default_factory=dict)  # the part's other fields, such as its thought signature
    _text: list[str] = field(default_factory=list)
    _path: Steps = ()  # of the newest value
    _seen: list[set[str | int]] = field(default_factory=lambda: [set()])  # the steps in each open object and list
    _is_within_text: bool = False
    _is_sound: bool = True
    _has_ended: bool = False

    def continues(self, call: dict[str, Any]) -> bool:
        """True if this is the next piece of the same call."""
        call_id = read.as_text(call.get("id"))
        return call_id == self.id if call_id and self.id else not call.get("name")

    def take(self, part: dict[str, Any]) -> str:
        """Add a piece, and return the JSON text that it adds to the arguments."""
        call = part["functionCall"]
        self.id = self.id or read.as_text(call.get("id"))
        self.name = self.name or read.as_text(call.get("name"))
        for key, value in part.items():
            if key != "functionCall":
                self._fields.setdefault(key, value)
        before = len(self._text)
        try:
            self._take_values(call)
        except ValueError:
            self._is_sound = False
        if call.get("willContinue") is not True:
            self.end(said=True)
        return "".join(self._text[before:])

    def end(self, *, said: bool = False) -> str:
        """End the call, and return the JSON text that this adds to the arguments. Unless the wire has `said` that the call ends, a call
        of which no value has arrived is incomplete."""
        if self._has_ended:
            return ""
        self._has_ended = True
        self._is_sound = self._is_sound and (said or bool(self._path))
        if self._is_within_text or not self._is_sound:
            return ""
        closing = _closing(self._path) if self._path else "{}"
        self._text.append(closing)
        try:
            self.arguments = read.as_dict(read.loads(self._json()))
        except ValueError:  # nested too deeply
            self._is_sound = False
        return closing

    def part(self, *, damaged: bool) -> dict[str, Any]:
        """Return the call as it is in a whole response. An incomplete call has `willContinue`, and its arguments as text. If a piece
        of the stream was lost (`damaged`), the call is incomplete."""
        whole = self.arguments if self._is_sound and self.name and not damaged else None
        rest = {"args": self._json(), "willContinue": True} if whole is None else {"args": whole}
        return {"functionCall": {**({"id": self.id} if self.id else {}), "name": self.name, **rest}, **self._fields}

    def _json(self) -> str:
        return read.whole_text("".join(self._text))

    def _take_values(self, call: dict[str, Any]) -> None:
        pieces = call.get("partialArgs") or []
        if call.get("args") or not isinstance(pieces, list):
            raise ValueError("a call has pieces or whole arguments")
        for piece in pieces:
            self._take_value(read.as_dict(piece))

    def _take_value(self, piece: dict[str, Any]) -> None:
        """Write a value, or a part of a text."""
        path, goes_on = read_path(piece.get("jsonPath")), piece.get("willContinue") is True
        text = piece.get("stringValue")
        if text is None and (goes_on or self._is_within_text) and piece.keys().isdisjoint(_WHOLE_VALUES):
            text = ""  # a piece without content
        if self._is_within_text:
            if path != self._path or not isinstance(text, str):
                raise ValueError("another value begins within a text")
        else:
            self._move_to(path)
            if not isinstance(text, str):
                if goes_on:
                    raise ValueError("only a text arrives in pieces")
                self._text.append(_whole_value(piece))
                return
            self._text.append('"')
        self._is_within_text = goes_on
        self._text.append(json.dumps(text, ensure_ascii=False)[1:-1] + ("" if goes_on else '"'))

    def _move_to(self, path: Steps) -> None:
        """Write the JSON text between the newest value and the one at `path`. Raises ValueError if that is not the next one."""
        if self._has_ended or not path or not isinstance(path[0], str):
            raise ValueError("the value is not an argument of this call")
        last, shared = self._path, 0
        while shared < min(len(last), len(path)) - 1 and last[shared] == path[shared]:
            shared += 1
        if last and type(last[shared]) is not type(path[shared]):
            raise ValueError("a list has no keys, and an object has no indices")
        text = _closing(last[shared + 1 :]) + "," if last else "{"
        del self._seen[shared + 1 :]
        for depth, step in enumerate(path[shared:], shared):
            if depth > shared:
                text += "[" if isinstance(step, int) else "{"
                self._seen.append(set())
            seen = self._seen[depth]
            if step in seen or (isinstance(step, int) and step != len(seen)):
                raise ValueError("the value is out of order")
            seen.add(step)
            text += json.dumps(step, ensure_ascii=False) + ":" if isinstance(step, str) else ""
        self._path = path
        self._text.append(text)


def _closing(path: Steps) -> str:
    """Return the brackets that close the objects and lists of these steps."""
    return "".join("]" if isinstance(step, int) else "}" for step in reversed(path))


_WHOLE_VALUES = ("numberValue", "boolValue", "nullValue")


def _whole_value(piece: dict[str, Any]) -> str:
    """Return a number, a truth value or null as JSON text. Raises ValueError if there is none. All numbers of the wire are doubles."""
    number, truth = piece.get("numberValue"), piece.get("boolValue")
    if isinstance(number, float) and number.is_integer() and abs(number) <= 2**53:
        number = int(number)
    if isinstance(number, int | float) and not isinstance(number, bool):
        return json.dumps(number, allow_nan=False)
    if isinstance(truth, bool):
        return json.dumps(truth)
    if "nullValue" in piece:
        return "null"
    raise ValueError("the piece has no value")
