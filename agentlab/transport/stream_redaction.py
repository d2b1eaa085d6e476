"""Keys that a stream says in pieces: `sk-ab` in one event, `cdef…` in the next ones. Neither is a key, and whoever reads on has it."""

from __future__ import annotations

import base64
import itertools
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from agentlab.event_frames import PRELUDE_BYTES, build_frame, is_whole, join_headers, read_prelude, text_headers
from agentlab.redaction import REDACTED, Redactor
from agentlab.types import JSON

_Place = tuple[int, tuple[Any, ...]]
"""In which event, and where in it."""


def hide_split(redactor: Redactor, events: Sequence[bytes]) -> dict[int, bytes]:
    """Of the events of one stream, each as JSON, those in which a piece of a key stood: without it, by their number.

    Put together is what stands in the same place of several events: the texts of one block, the arguments of one call.
    """
    loaded: dict[int, JSON] = {}
    texts: dict[tuple[Any, ...], list[tuple[_Place, bytes]]] = {}
    for number, event in enumerate(events):
        try:
            loaded[number] = value = json.loads(event)
            for name, path, said in _texts(value, (), ()):
                texts.setdefault(name, []).append(((number, path), said.encode("utf-8", "surrogatepass")))
        except (ValueError, RecursionError):  # no JSON: the marks at the end of a stream
            continue
    changed: set[int] = set()
    for pieces in texts.values():
        if len({text for _, text in pieces}) > 1:  # else it is the same in each event: a name, an id
            for (number, path), text in _without(redactor, pieces):
                _put(loaded[number], path, text.decode("utf-8", "surrogatepass"))
                changed.add(number)
    return {number: json.dumps(loaded[number], separators=(",", ":")).encode() for number in changed}


def _texts(value: JSON, name: tuple[Any, ...], path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], str]]:
    """Each text in an event: what tells which text of the stream it continues, its place, and itself."""
    if isinstance(value, str):
        yield name, path, value
    elif isinstance(value, dict):
        kind = tuple(value.get(which) for which in ("type", "index", "item_id") if isinstance(value.get(which), str | int))
        for key, part in value.items():
            yield from _texts(part, (*name, kind, key), (*path, key))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _texts(part, (*name, place), (*path, place))


def _without(redactor: Redactor, pieces: list[tuple[_Place, bytes]]) -> Iterator[tuple[_Place, bytes]]:
    """The pieces that share a key with another one, without their part of it; the first says that there was one."""
    ends = list(itertools.accumulate(len(text) for _, text in pieces))
    at = 0
    cuts: dict[int, list[tuple[int, int, bytes]]] = {}
    for start, end in redactor.places(b"".join(text for _, text in pieces)):
        at = bisect_right(ends, start, at)
        parts: dict[int, tuple[int, int, bytes]] = {}
        for one in range(at, bisect_left(ends, end, at) + 1):
            begins = ends[one] - len(pieces[one][1])
            part = max(start - begins, 0), min(end - begins, len(pieces[one][1]))
            parts[one] = *part, b"" if parts else REDACTED.encode()
        if not all(_is_seen(redactor, pieces[one][1], *part) for one, (*part, _) in parts.items()):
            for one, cut in parts.items():
                cuts.setdefault(one, []).append(cut)
    for one, found in cuts.items():
        place, text = pieces[one]
        for start, end, instead in reversed(found):
            text = text[:start] + instead + text[end:]
        yield place, text


def _is_seen(redactor: Redactor, text: bytes, start: int, end: int) -> bool:
    """Whether this part of a piece is a key, or in one, as it stands there."""
    return any(begins <= start and end <= ends for begins, ends in redactor.places(text))


def _put(value: JSON, path: tuple[Any, ...], text: str) -> None:
    for step in path[:-1]:
        value = value[step]
    if path:
        value[path[-1]] = text


def redact_lines(redactor: Redactor, data: bytes, chunks: tuple[int, ...]) -> tuple[bytes, tuple[int, ...]]:
    """A stream whose events are lines (`data: {…}`, or JSON alone) without keys, and the sizes of its chunks moved accordingly."""
    lines = data.splitlines(keepends=True)
    starts = [line.index(b"{") if b"{" in line[:16] else len(line) for line in lines]
    hidden = hide_split(redactor, [line[start:] for line, start in zip(lines, starts, strict=True)])
    if hidden:
        new = [
            line[: starts[number]] + hidden[number] + line[len(line.rstrip(b"\r\n")) :] if number in hidden else line
            for number, line in enumerate(lines)
        ]
        chunks = moved(chunks, [0, *itertools.accumulate(map(len, lines))], [0, *itertools.accumulate(map(len, new))])
        data = b"".join(new)
    return redactor.body(data, chunks)


def moved(chunks: tuple[int, ...], old_ends: Sequence[int], new_ends: Sequence[int]) -> tuple[int, ...]:
    """The sizes of the chunks: a boundary between events stays between them, one inside an event stays as far in, by its length."""
    places, at = [0], 0
    for position in itertools.accumulate(chunks):
        while at + 1 < len(old_ends) and old_ends[at + 1] <= position:
            at += 1
        inside = position - old_ends[at]
        if inside and at + 1 < len(old_ends):
            old, new = old_ends[at + 1] - old_ends[at], new_ends[at + 1] - new_ends[at]
            inside = inside * new // old
        places.append(new_ends[at] + inside)
    return tuple(after - before for before, after in itertools.pairwise(places))


def redact_frames(redactor: Redactor, data: bytes, chunks: tuple[int, ...] = ()) -> tuple[bytes, tuple[int, ...]]:
    """The stream with every secret in it replaced, and the sizes of the chunks it came in, moved accordingly.

    Frames without a secret keep their bytes. What is no frame (the torn end of a stream, damage) is searched as it is.
    """
    old_ends, new_ends, parts = [0], [0], []
    for old, new in _pieces(redactor, data):
        parts.append(new)
        old_ends.append(old_ends[-1] + old)
        new_ends.append(new_ends[-1] + len(new))
    return b"".join(parts), moved(chunks, old_ends, new_ends)


def _pieces(redactor: Redactor, data: bytes) -> Iterator[tuple[int, bytes]]:
    """The stream frame by frame: the length that each had, and what becomes of it."""
    split = hide_split(redactor, [payload for _, _, payload in _frames(data)])
    at = 0
    for number, (frame, headers, payload) in enumerate(_frames(data)):
        new_headers, new_payload = _redacted_headers(redactor, headers), _redacted_payload(redactor, split.get(number, payload))
        at += len(frame)
        if (new_headers, new_payload) == (headers, payload):
            yield len(frame), frame
        else:
            built = build_frame(new_headers, new_payload)
            damaged = built[:-1] + bytes([built[-1] ^ 1])
            yield len(frame), built if is_whole(frame) else damaged  # damaged it was, damaged it stays
    if at < len(data):
        yield len(data) - at, redactor.body(data[at:])[0]


def _frames(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Each whole frame, its headers and its payload."""
    at = 0
    while len(data) - at >= PRELUDE_BYTES:
        prelude = read_prelude(data, at)
        if prelude is None or at + prelude.total > len(data):
            break
        frame = data[at : at + prelude.total]
        headers, payload = frame[PRELUDE_BYTES : prelude.headers_end], frame[prelude.headers_end : prelude.payload_end]
        yield frame, headers, payload
        at += prelude.total


def _redacted_headers(redactor: Redactor, headers: bytes) -> bytes:
    """Headers can hold what went wrong, in words."""
    if redactor.body(headers)[0] == headers:
        return headers
    try:
        return join_headers((name, kind, redactor.body(value)[0]) for name, kind, value in text_headers(headers))
    except (ValueError, IndexError):
        return b""


def _redacted_payload(redactor: Redactor, payload: bytes) -> bytes:
    """The payload; and where it wraps an event of another wire, `{"bytes": "…base64…"}`, what is inside."""
    if (
        b'"bytes"' in payload
    ):  # first: to the eyes of the redactor a key in base64 is a key, and replacing it would spoil the rest
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            wrapped = json.loads(payload)["bytes"]
            inner = base64.b64decode(wrapped, validate=True)
            hidden = redactor.body(inner)[0]
            if hidden != inner:
                payload = payload.replace(wrapped.encode(), base64.b64encode(hidden))
    return redactor.body(payload)[0]
