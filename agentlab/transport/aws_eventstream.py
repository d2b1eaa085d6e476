"""Reads and writes the frames of a binary event stream (`application/vnd.amazon.eventstream`).

A frame consists of its length and the length of its headers (4 bytes each, big endian), the CRC of these 8 bytes, the headers, the
payload, and the CRC of everything before it. A header consists of the length of its name (1 byte), the name, its type (1 byte) and its
value.

Vendor page: https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html, read 2026-11-22.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

CONTENT_TYPE = "application/vnd.amazon.eventstream"
FIRST_BYTES = b"\x00\x01"
"""A frame is shorter than 32 MiB, so its length begins with one of these bytes. Text never does."""

PRELUDE_BYTES = 12

_CRC_BYTES = 4
_TEXT = 7  # the type of a header whose value is text
_VALUE_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # by type; 6 (bytes) and 7 (text) begin with their length


class Prelude(NamedTuple):
    """The size of a frame and of its headers, in bytes."""

    total: int
    headers: int

    @property
    def headers_end(self) -> int:
        """The offset at which the headers end and the payload begins."""
        return PRELUDE_BYTES + self.headers

    @property
    def payload_end(self) -> int:
        """The offset at which the payload ends and the last CRC begins."""
        return self.total - _CRC_BYTES


def read_prelude(data: bytes | bytearray | memoryview, at: int = 0) -> Prelude | None:
    """Return the prelude of the frame at `at`, or None if no frame begins there. Needs PRELUDE_BYTES of data from `at` on."""
    total, headers, crc = struct.unpack_from(">III", data, at)
    if crc32(data[at : at + 8]) != crc:
        return None
    prelude = Prelude(total, headers)
    return prelude if prelude.headers_end <= prelude.payload_end else None


def is_whole(frame: bytes) -> bool:
    """True if the last CRC of a frame agrees with the bytes before it."""
    return crc32(frame[:-_CRC_BYTES]) == int.from_bytes(frame[-_CRC_BYTES:], "big")


def read_frame(frame: bytes) -> tuple[dict[str, str], bytes] | None:
    """Return the text headers and the payload of a whole frame, or None for a damaged one."""
    prelude = read_prelude(frame)
    if prelude is None or not is_whole(frame):
        return None
    try:
        headers = text_headers(frame[PRELUDE_BYTES : prelude.headers_end])
        texts = {name.decode(): value.decode() for name, kind, value in headers if kind[0] == _TEXT}
    except (ValueError, IndexError):
        return None
    return texts, frame[prelude.headers_end : prelude.payload_end]


def build_frame(headers: bytes, payload: bytes) -> bytes:
    """Return a frame of encoded headers and a payload."""
    start = struct.pack(">II", PRELUDE_BYTES + len(headers) + len(payload) + _CRC_BYTES, len(headers))
    before = start + crc32(start).to_bytes(4, "big") + headers + payload
    return before + crc32(before).to_bytes(4, "big")


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Encode headers whose values are text."""
    return b"".join(_header(name.encode(), bytes([_TEXT]), value.encode()) for name, value in headers)


def text_headers(headers: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Return the name, type and value of each header, in order; values other than text stay encoded. `join_headers` is the inverse.

    Raises ValueError for malformed headers.
    """
    found, at = [], 0
    while at < len(headers):
        name_end = at + 1 + headers[at]
        kind = headers[name_end : name_end + 1]
        start = name_end + 1
        if kind in (b"\x06", b"\x07"):
            length = int.from_bytes(headers[start : start + 2], "big")
            end = start + 2 + length
            value = headers[start + 2 : end] if kind[0] == _TEXT else headers[start:end]
        elif kind and kind[0] in _VALUE_BYTES:
            end = start + _VALUE_BYTES[kind[0]]
            value = headers[start:end]
        else:
            raise ValueError(f"unknown header type {kind.hex() or 'none'}")
        if end > len(headers):
            raise ValueError("the last header is cut off")
        found.append((headers[at + 1 : name_end], kind, value))
        at = end
    return found


def join_headers(headers: Iterable[tuple[bytes, bytes, bytes]]) -> bytes:
    """Encode headers as `text_headers` returned them."""
    return b"".join(_header(*header) for header in headers)


def _header(name: bytes, kind: bytes, value: bytes) -> bytes:
    length = len(value).to_bytes(2, "big") if kind[0] == _TEXT else b""
    return bytes([len(name)]) + name + kind + length + value
