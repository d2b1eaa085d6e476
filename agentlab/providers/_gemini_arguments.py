"""A function call of Gemini's whose arguments come in pieces, put together into the part that it would have been in one piece.

Vertex AI sends such where a request asks for it (`streamFunctionCallArguments`): first the name with `willContinue`, then
`partialArgs`, each a JSON path and a value (text in several pieces), last a call without `willContinue`, which may be empty.

Vendor page: https://docs.cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling; the fields as the types of the
vendor's client (google-genai 3.4) describe them, read 2026-11-22.
"""

from __future__ import annotations

import re
from typing import Any

from agentlab.providers import _read as read
from agentlab.types import JSON

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.DOTALL)
_STEPS_AT_MOST = 100
_VALUES = ("stringValue", "numberValue", "boolValue")


def is_open(call: dict[str, Any]) -> bool:
    """Whether more of this call was to come: of the call itself, or of the last of its values."""
    pieces = read.as_list(call.get("partialArgs"))
    return call.get("willContinue") is True or (bool(pieces) and read.as_dict(pieces[-1]).get("willContinue") is True)


class PartialCall:
    """One call as its pieces come in. `part` is the part of the message that it becomes, and stays open until its last piece."""

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

    def goes_on_in(self, call: dict[str, Any]) -> bool:
        """Whether a call with a name is a piece of this one, which some servers name again, and not another one."""
        ours, theirs = self._call.get("id"), call.get("id")
        if ours and theirs:
            return bool(ours == theirs)
        return "partialArgs" in call and call.get("name") == self._call.get("name")

    def add(self, part: dict[str, Any]) -> bool:
        """Take the next part of the call, and tell whether that was its last."""
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
        if self._sound:  # where a piece of it made no sense it stays open, and is not to be executed
            self._call.pop("willContinue", None)
        return True

    def reopen(self) -> None:
        """A piece of it may have been lost: it is not to be executed."""
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
    """The names and numbers on the way from the arguments to a value; nothing for a path of another sort."""
    path = read.as_text(read.as_dict(piece).get("jsonPath"))
    if not path.startswith("$"):
        return []
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or len(steps) >= _STEPS_AT_MOST:
            return []
        name, number, single, double = step.groups()
        quoted = single if single is not None else double
        steps.append(int(number) if number is not None else name if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = step.end()
    return steps


def _put(container: JSON, steps: list[str | int], value: JSON, *, more: bool) -> bool:
    """Put a value in its place, which is made where it is not there, or add `more` text to it. False where it does not fit: the items
    of a list come one after the other."""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        last = following is None
        empty: JSON = None if last else [] if isinstance(following, int) else {}
        if isinstance(container, dict) and isinstance(step, str):
            there = step in container
            if not there:
                container[step] = empty
        elif isinstance(container, list) and isinstance(step, int) and step <= len(container):
            there = step < len(container)
            if not there:
                container.append(empty)
        else:
            return False
        if last:
            before = container[step]
            added = more and there and isinstance(before, str) and isinstance(value, str)
            container[step] = before + value if added else value
            return True
        container = container[step]
    return False
