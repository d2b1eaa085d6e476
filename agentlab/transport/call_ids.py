"""Bodies without the ids of tool calls, which servers make anew each time: numbered in the order in which they first appear.

What was asked is the same with one id or another. Which result belongs to which call stays in the body, and so do ids that nothing in
it declares: those find something that the server keeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_Place = tuple[dict[str, Any], str]
"""A part of a body and the field of it in which an id stands."""


def with_numbered_calls(body: bytes) -> bytes | None:
    """The body with numbers for the ids of its calls; None where it has none, or is no such JSON."""
    try:
        value = json.loads(body)
        numbers: dict[str, str] = {}
        for part, name in _declared(value):
            numbers.setdefault(part[name], f"call {len(numbers) + 1}")
        if not numbers:
            return None
        places = [(part, name) for part, name in (*_declared(value), *_referred_to(value)) if part[name] in numbers]
        for part, name in {(id(part), name): (part, name) for part, name in places}.values():
            part[name] = numbers[part[name]]
        return json.dumps(value).encode()
    except (ValueError, RecursionError):
        return None


def _declared(body: Any) -> Iterator[_Place]:
    """Where the ids of calls stand, and on the Responses wire those of what a server said."""
    for part in _parts(body):
        kind = part.get("type")
        kind = kind if isinstance(kind, str) else ""
        for call in _dicts(part.get("tool_calls")):  # chat completions
            yield from _text(call, "id")
        if kind.endswith("tool_use"):  # Anthropic
            yield from _text(part, "id")
        elif kind.endswith("_call"):  # Responses
            yield from _text(part, "call_id")
            yield from _text(part, "id")
        elif kind == "message" and part.get("content"):
            yield from _text(part, "id")
        yield from _text(part.get("toolUse"), "toolUseId")  # Bedrock
        yield from _text(part.get("functionCall"), "id")  # Gemini


def _referred_to(body: Any) -> Iterator[_Place]:
    """Where such an id stands again."""
    for part in _parts(body):
        yield from _text(part, "tool_call_id")
        yield from _text(part, "tool_use_id")
        yield from _text(part, "call_id")
        if part.get("type") == "item_reference":
            yield from _text(part, "id")
        yield from _text(part.get("toolResult"), "toolUseId")
        yield from _text(part.get("functionResponse"), "id")


def _parts(body: Any) -> Iterator[dict[str, Any]]:
    """Messages and items, and the blocks in them; no deeper, where arguments and schemas are."""
    if isinstance(body, dict):
        for conversation in ("messages", "input", "contents"):
            for one in _dicts(body.get(conversation)):
                yield one
                yield from _dicts(one.get("content"))
                yield from _dicts(one.get("parts"))


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))


def _text(part: object, name: str) -> Iterator[_Place]:
    if isinstance(part, dict) and isinstance(part.get(name), str) and part[name]:
        yield part, name
