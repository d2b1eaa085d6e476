"""Secrets taken out of a binary event stream, so that it still is one: each frame's lengths and checksums are made anew."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress

from agentlab.redaction import Redactor
from agentlab.transport.aws_eventstream import PRELUDE_BYTES, build_frame, is_whole, join_headers, read_prelude, text_headers
from agentlab.transport.split_keys import hide_split, moved


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
