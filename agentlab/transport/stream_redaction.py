"""Removes secrets from recorded streams, including those that arrive in pieces: `sk-ab` in one event, `cdef…` in the next ones.

The stream stays valid: events keep their form, frames get new checksums, and the sizes of the recorded chunks are adjusted.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from agentlab._internal.redaction import REDACTED, Redactor
from agentlab.model.messages import JSON
from agentlab.transport.aws_eventstream import PRELUDE_BYTES, build_frame, is_whole, join_headers, read_prelude, text_headers


def redact_lines(redactor: Redactor, data: bytes, chunks: tuple[int, ...]) -> tuple[bytes, tuple[int, ...]]:
    """Return a stream of lines (`data: {…}`, or JSON alone) without secrets, and the new sizes of its chunks."""
    lines = data.splitlines(keepends=True)
    starts = [line.index(b"{") if b"{" in line[:16] else len(line) for line in lines]
    redacted = _redact_split(redactor, [line[start:] for line, start in zip(lines, starts, strict=True)])
    if redacted:
        new = list(lines)
        for number, event in redacted.items():
            line = lines[number]
            new[number] = line[: starts[number]] + event + line[len(line.rstrip(b"\r\n")) :]
        data, chunks = b"".join(new), _moved(chunks, lines, new)
    return redactor.body(data, chunks)


def redact_frames(redactor: Redactor, data: bytes, chunks: tuple[int, ...] = ()) -> tuple[bytes, tuple[int, ...]]:
    """Return a binary event stream without secrets, and the new sizes of its chunks.

    Frames without a secret keep their bytes. Everything after the last whole frame (a cut or damaged end) is redacted as plain bytes.
    """
    frames = list(_frames(data))
    old, new = [frame for frame, _, _ in frames], []
    split = _redact_split(redactor, [payload for _, _, payload in frames])
    for number, (frame, headers, payload) in enumerate(frames):
        clean = _redact_headers(redactor, headers), redactor.body(split.get(number, payload))[0]
        new.append(frame if clean == (headers, payload) else build_frame(*clean))
    rest = data[sum(map(len, old)) :]
    new.append(redactor.body(rest)[0])
    return b"".join(new), _moved(chunks, [*old, rest], new)


def _frames(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield each whole frame with its headers and its payload."""
    at = 0
    while len(data) - at >= PRELUDE_BYTES:
        prelude = read_prelude(data, at)
        if prelude is None or not is_whole(frame := data[at : at + prelude.total]):
            break
        yield frame, frame[PRELUDE_BYTES : prelude.headers_end], frame[prelude.headers_end : prelude.payload_end]
        at += prelude.total


def _redact_headers(redactor: Redactor, headers: bytes) -> bytes:
    """Return a frame's headers without secrets; error messages arrive in them."""
    if redactor.body(headers)[0] == headers:
        return headers
    return join_headers((name, kind, redactor.body(value)[0]) for name, kind, value in text_headers(headers))


def _moved(chunks: tuple[int, ...], old: Sequence[bytes], new: Sequence[bytes]) -> tuple[int, ...]:
    """Return the sizes of the chunks after `old` parts became `new`: boundaries between parts stay, those inside move in proportion."""
    old_ends, new_ends = ([0, *itertools.accumulate(map(len, parts))] for parts in (old, new))
    places, at = [0], 0
    for position in itertools.accumulate(chunks):
        while at + 1 < len(old_ends) and old_ends[at + 1] <= position:
            at += 1
        inside = position - old_ends[at]
        if inside and at < len(old):
            inside = inside * len(new[at]) // len(old[at])
        places.append(new_ends[at] + inside)
    return tuple(after - before for before, after in itertools.pairwise(places))


# Secrets in pieces -----------------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A text in an event: the number of the event, and the mapping or list and the key at which the text is."""

    event: int
    container: Any
    key: Any
    text: bytes


def _redact_split(redactor: Redactor, events: Sequence[bytes]) -> dict[int, bytes]:
    """Return the JSON events that contained a piece of a secret, by number, with that piece removed.

    Texts at the same place in several events are joined: they are the text of one block, or the arguments of one call.
    """
    loaded: dict[int, JSON] = {}
    texts: dict[tuple[Any, ...], list[_Piece]] = {}
    for number, event in enumerate(events):
        with suppress(ValueError, RecursionError):  # the end marker of a stream is not JSON
            loaded[number] = value = json.loads(event)
            for place, container, key in _texts(value, ()) if isinstance(value, dict | list) else ():
                piece = _Piece(number, container, key, container[key].encode("utf-8", "surrogatepass"))
                texts.setdefault(place, []).append(piece)
    changed: set[int] = set()
    for pieces in texts.values():
        if len({piece.text for piece in pieces}) > 1:  # otherwise it is the same in each event: a name, an id
            changed |= _redact_pieces(redactor, pieces)
    return {number: json.dumps(loaded[number], separators=(",", ":")).encode() for number in changed}


def _texts(value: JSON, place: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yield the place of each text in an event (equal for texts that continue each other), its container, and its key there."""
    if isinstance(value, dict):
        place = (*place, *(value.get(name) for name in ("type", "index", "item_id") if isinstance(value.get(name), str | int)))
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, str):
            yield (*place, key), value, key
        elif isinstance(part, dict | list):
            yield from _texts(part, (*place, key))


def _redact_pieces(redactor: Redactor, pieces: list[_Piece]) -> set[int]:
    """Remove secrets that span several pieces; the first piece gets REDACTED. Returns the numbers of the changed events."""
    ends = list(itertools.accumulate(len(piece.text) for piece in pieces))
    cuts: dict[int, list[tuple[int, int, bytes]]] = {}
    for start, end in redactor.places(b"".join(piece.text for piece in pieces)):
        parts: dict[int, tuple[int, int, bytes]] = {}
        for number in range(bisect_right(ends, start), bisect_left(ends, end) + 1):
            begin, size = ends[number] - len(pieces[number].text), len(pieces[number].text)
            parts[number] = max(start - begin, 0), min(end - begin, size), b"" if parts else REDACTED.encode()
        if not all(_is_found_alone(redactor, pieces[number].text, *part) for number, part in parts.items()):
            for number, part in parts.items():
                cuts.setdefault(number, []).append(part)
    for number, found in cuts.items():
        text = pieces[number].text
        for start, end, instead in reversed(found):
            text = text[:start] + instead + text[end:]
        pieces[number].container[pieces[number].key] = text.decode("utf-8", "surrogatepass")
    return {pieces[number].event for number in cuts}


def _is_found_alone(redactor: Redactor, text: bytes, start: int, end: int, _instead: bytes) -> bool:
    """True if this part of a piece is found as a secret without the other pieces, so that redacting the event removes it."""
    return any(begin <= start and end <= stop for begin, stop in redactor.places(text))
