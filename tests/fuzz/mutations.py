"""Damaged responses: in their bytes, in the order of their events, in their JSON. Each function takes a random generator and a
body."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, TypeAlias

from agentlab.transport.aws_eventstream import build_frame
from tests.fuzz.wires import Event, form, split

Chance: TypeAlias = random.Random
Mutation: TypeAlias = Callable[[Chance, bytes, bytes], bytes]
"""A random generator, the body, and another body to take pieces from."""

ODD_TEXTS = ("\ud800", "\udc00x", "\x00", "\ufeff", "a" * 5_000, "[DONE]", "data: {}", "\n\n", "😀", "null", "{", '"')
ODD_NUMBERS = (-1, 0, 1, 2**31, 2**63, -(2**70), 10**400, 1e308, -0.0, float("nan"), float("inf"), 1.5)
ODD_VALUES: tuple[Any, ...] = (None, True, False, [], {}, "", [[]], [None], {"": None}, ["text"], {"text": {"text": []}})
DEPTHS = (20, 120, 400, 3_000)


# Bytes -------------------------------------------------------------------------------------------------------------------------


def place(chance: Chance, body: bytes) -> int:
    return chance.randrange(len(body) + 1)


def truncated(chance: Chance, body: bytes, other: bytes) -> bytes:
    return body[: place(chance, body)]


def flipped(chance: Chance, body: bytes, other: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 20)) if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def deleted(chance: Chance, body: bytes, other: bytes) -> bytes:
    at = place(chance, body)
    return body[:at] + body[at + chance.choice((1, 1, 2, 7, 40, 300)) :]


def doubled(chance: Chance, body: bytes, other: bytes) -> bytes:
    at = place(chance, body)
    piece = body[at : at + chance.choice((1, 2, 7, 40, 300))]
    return body[:at] + piece * chance.choice((2, 2, 3, 9)) + body[at + len(piece) :]


def inserted(chance: Chance, body: bytes, other: bytes) -> bytes:
    at = place(chance, body)
    pieces = (
        *(b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\x00", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n\r\n", b": ping\n\n"),
        *(b"data: [DONE]\n\n", b"data: {}\n\n", b"event: error\n", b"data:\n\n", b"\\ud83d", b'"', b"}", b"[", b","),
        chance.randbytes(chance.choice((1, 4, 30))),
    )
    return body[:at] + chance.choice(pieces) + body[at:]


def other_line_ends(chance: Chance, body: bytes, other: bytes) -> bytes:
    if form(body) == "frames":
        return body
    ends = (b"\r\n", b"\r", b"\n")
    if chance.random() < 0.6:
        return body.replace(b"\n", chance.choice(ends[:2]))
    return b"".join(line + chance.choice(ends) for line in body.split(b"\n"))


def with_mark(chance: Chance, body: bytes, other: bytes) -> bytes:
    return (
        chance.choice((b"\xef\xbb\xbf", b"\xef\xbb", b" \n\t", b"\xef\xbb\xbf\xef\xbb\xbf", b"\xfe\xff", b"\x00", b"\x01")) + body
    )


# Events ------------------------------------------------------------------------------------------------------------------------


def joined(events: list[Event]) -> bytes:
    return b"".join(event.raw for event in events)


def reordered(chance: Chance, body: bytes, other: bytes) -> bytes:
    events = split(body)
    if chance.random() < 0.3:
        chance.shuffle(events)
    elif events:
        events.insert(chance.randrange(len(events)), events.pop(chance.randrange(len(events))))
    return joined(events)


def dropped(chance: Chance, body: bytes, other: bytes) -> bytes:
    events = split(body)
    for _ in range(min(len(events), chance.choice((1, 1, 1, 2, 4)))):
        events.pop(chance.randrange(len(events)))
    return joined(events)


def repeated(chance: Chance, body: bytes, other: bytes) -> bytes:
    events = split(body)
    if events:
        events.insert(chance.randrange(len(events) + 1), chance.choice(events))
    return joined(events)


def concatenated(chance: Chance, body: bytes, other: bytes) -> bytes:
    second = chance.choice((body, other))
    return body + (truncated(chance, second, b"") if chance.random() < 0.5 else second)


def mixed(chance: Chance, body: bytes, other: bytes) -> bytes:
    """Events of another response, mostly of another wire, between those of this one."""
    events, others = split(body), split(other)
    for event in others[: chance.choice((1, 3, 100))]:
        events.insert(chance.randrange(len(events) + 1), event)
    return joined(events)


# JSON --------------------------------------------------------------------------------------------------------------------------


def retyped(chance: Chance, body: bytes, other: bytes) -> bytes:
    return _with_json(chance, body, lambda value: _changed(chance, value, _replaced))


def renamed(chance: Chance, body: bytes, other: bytes) -> bytes:
    return _with_json(chance, body, lambda value: _changed(chance, value, _renamed))


def moved(chance: Chance, body: bytes, other: bytes) -> bytes:
    """Replace a value of the JSON by another of its values."""
    return _with_json(chance, body, lambda value: _changed(chance, value, _swapped))


def nested(chance: Chance, body: bytes, other: bytes) -> bytes:
    return _with_json(chance, body, lambda value: _changed(chance, value, _nested))


def garbage(chance: Chance) -> bytes:
    """Data of an event that is no JSON."""
    return chance.choice((b'{"id": }', b'{"type": "x"', b"{]", b"nonsense", b"\xff\xff", b'{"a": 1} {"b": 2}', b"[DONE", b"'x'"))


def _with_json(chance: Chance, body: bytes, change: Callable[[Any], Any]) -> bytes:
    """The body with the JSON of one event changed."""
    events = split(body)
    places = [number for number, event in enumerate(events) if isinstance(event.data, dict | list)]
    if not places:
        return body
    at = chance.choice(places)
    try:
        events[at] = with_data(events[at], written(change(_copied(events[at].data))))
    except RecursionError:  # nested by an earlier mutation too deeply for this code
        return body
    return joined(events)


def with_data(event: Event, data: bytes) -> Event:
    """The event with other data: the same name and the same form."""
    if form(event.raw) == "frames":
        headers = event.raw[12 : 12 + int.from_bytes(event.raw[4:8], "big")]
        return Event(build_frame(headers, data), event.name)
    if form(event.raw) == "json":
        return Event(data, event.name)
    name = f"event: {event.name}\n".encode() if event.name else b""
    return Event(name + b"data: " + data + b"\n\n", event.name)


def written(value: Any) -> bytes:
    """JSON with NaN, huge numbers and lone surrogates as they are; the latter as escapes."""
    try:
        return json.dumps(value, default=str).encode()
    except (ValueError, RecursionError):  # a number of too many digits, or nested too deeply to be written
        return b"1" * 5_000


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _changed(chance: Chance, value: Any, change: Callable[[Chance, Any, Any], None]) -> Any:
    containers = [found for found in _containers(value) if found]
    if not containers:
        return _odd(chance)
    for _ in range(chance.choice((1, 1, 2, 4))):
        inside = chance.choice(containers)
        if inside:
            change(chance, inside, chance.choice(list(inside) if isinstance(inside, dict) else range(len(inside))))
    return value


def _containers(value: Any) -> list[Any]:
    if not isinstance(value, dict | list):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(found for part in inner for found in _containers(part))]


def _odd(chance: Chance) -> Any:
    return chance.choice(chance.choice((ODD_TEXTS, ODD_NUMBERS, ODD_VALUES)))


def _replaced(chance: Chance, inside: Any, key: Any) -> None:
    inside[key] = _odd(chance)


def _renamed(chance: Chance, inside: Any, key: Any) -> None:
    if isinstance(inside, dict):
        value = inside.pop(key)
        inside[chance.choice(("type", "error", "index", "content", "message", key.upper(), key + "s", "", *inside))] = value


def _swapped(chance: Chance, inside: Any, key: Any) -> None:
    keys = list(inside) if isinstance(inside, dict) else range(len(inside))
    other = chance.choice(list(keys))
    inside[key], inside[other] = inside[other], inside[key]


def _nested(chance: Chance, inside: Any, key: Any) -> None:
    value, wrap = inside[key], chance.choice((None, str(key), "error", "text"))
    for _ in range(chance.choice(DEPTHS)):
        value = [value] if wrap is None else {wrap: value}
    inside[key] = value


ALL: tuple[Mutation, ...] = (
    *(truncated, flipped, deleted, doubled, inserted, other_line_ends, with_mark),
    *(reordered, dropped, repeated, concatenated, mixed),
    *(retyped, renamed, moved, nested),
)


def mutated(chance: Chance, body: bytes, other: bytes) -> bytes:
    """The body after a few mutations."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        body = chance.choice(ALL)(chance, body, other)
    return body
