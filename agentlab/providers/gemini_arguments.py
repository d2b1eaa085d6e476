"""Assembles a function call of Gemini whose arguments arrive in pieces.

Vertex AI streams them to requests with `streamFunctionCallArguments`. The first piece has the call's name and `willContinue`. Each
further piece has `partialArgs`: values with their paths, in the order of the arguments, of which texts may arrive in parts. A piece
without `willContinue` ends the call, usually an empty one. If it is missing, the next call or the finish reason ends the call.

Vendor pages: https://docs.cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling, read 2026-11-22, and the types of
the vendor's client (google-genai 3.4, `FunctionCall` and `PartialArg`), read 2026-11-29. Paths: RFC 9535, section 2.3.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agentlab.model.messages import JSON
from agentlab.providers.wires import read

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
            self.end()
        return "".join(self._text[before:])

    def end(self) -> str:
        """End the call, and return the JSON text that this adds to the arguments."""
        if self._has_ended:
            return ""
        self._has_ended = True
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
