"""The frames of a binary event stream (`application/vnd.amazon.eventstream`): where each begins and ends, and how one is written.

A frame is: its length and the length of its headers (4 bytes each, big endian), the CRC of these 8 bytes, the headers, the payload, the
CRC of all before it. A header is: the length of its name (1 byte), the name, its type (1 byte), its value.

Vendor page: https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html, read 2026-11-22.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

CONTENT_TYPE = "application/vnd.amazon.eventstream"
FIRST_BYTES = b"\x00\x01"
"""A frame is shorter than 32 MiB, so its length begins with one of these. No text does."""

PRELUDE_BYTES = 12
LONGEST_HEADERS_BYTES = 128 * 1024
LONGEST_PAYLOAD_BYTES = 24 * 1024 * 1024
"""Longer ones are refused by botocore, too."""

_CRC_BYTES = 4
_TEXT = 7  # the type of a header whose value is text
_VALUE_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # by type; 6 (bytes) and 7 (text) say their length


class Prelude(NamedTuple):
    """What a frame says of itself in its first bytes. `total` and `headers` are bytes."""

    total: int
    headers: int

    @property
    def headers_end(self) -> int:
        """Where the headers end and the payload begins."""
        return PRELUDE_BYTES + self.headers

    @property
    def payload_end(self) -> int:
        """Where the payload ends and the last CRC begins."""
        return self.total - _CRC_BYTES


def read_prelude(data: bytes | bytearray | memoryview, at: int = 0) -> Prelude | None:
    """The prelude of the frame that begins at `at`, of which there are PRELUDE_BYTES at least. None where no frame begins there."""
    total, headers, crc = struct.unpack_from(">III", data, at)
    if crc32(data[at : at + 8]) != crc:
        return None
    prelude = Prelude(total, headers)
    fits = 0 <= prelude.payload_end - prelude.headers_end <= LONGEST_PAYLOAD_BYTES
    return prelude if fits and headers <= LONGEST_HEADERS_BYTES else None


def is_whole(frame: bytes) -> bool:
    """Whether the last CRC of a frame agrees with what is before it."""
    return crc32(frame[:-_CRC_BYTES]) == int.from_bytes(frame[-_CRC_BYTES:], "big")


def build_frame(headers: bytes, payload: bytes) -> bytes:
    """A frame of headers that are encoded already, and a payload."""
    start = struct.pack(">II", PRELUDE_BYTES + len(headers) + len(payload) + _CRC_BYTES, len(headers))
    before = start + crc32(start).to_bytes(4, "big") + headers + payload
    return before + crc32(before).to_bytes(4, "big")


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Headers whose values are text."""
    return b"".join(_header(name.encode(), bytes([_TEXT]), value.encode()) for name, value in headers)


def text_headers(headers: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Headers in order: the name, the type, and the value of those that are text; for others the value as it is encoded.

    Raises ValueError where they are not in this format. `join_headers` is the way back.
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
            raise ValueError(f"a header of type {kind.hex() or 'nothing'}")
        if end > len(headers):
            raise ValueError("a header that is cut off")
        found.append((headers[at + 1 : name_end], kind, value))
        at = end
    return found


def join_headers(headers: Iterable[tuple[bytes, bytes, bytes]]) -> bytes:
    """Headers as they came from `text_headers`, encoded again."""
    return b"".join(_header(*header) for header in headers)


def _header(name: bytes, kind: bytes, value: bytes) -> bytes:
    length = len(value).to_bytes(2, "big") if kind[0] == _TEXT else b""
    return bytes([len(name)]) + name + kind + length + value
