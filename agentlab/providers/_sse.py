"""Server-sent events, decoded as the bytes arrive.

Own code, since the transport is the only place that knows the HTTP library, and for its speed: an event of one `data:` line, which
is nearly all of them, costs one search and one decode. Time is linear in the bytes, whatever the chunks and however long an event.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6, with one difference: an event whose blank line
never came is not thrown away but told at the end, since servers leave out the last newline.
"""

from __future__ import annotations

from typing import TypeAlias

Event: TypeAlias = tuple[str, str]
"""The event's name (empty: not given) and its data."""

_NOTHING_TO_SAY = frozenset({b"id", b"retry"})


class SSEDecoder:
    """The state of one stream. Bytes may be cut anywhere: inside a line ending or a UTF-8 sequence. A byte order
    mark is taken off before, by `Incoming`.

    `damaged` becomes true where a line has a field that the format does not know: then something was lost.
    """

    __slots__ = ("_after_cr", "_buffer", "_searched", "damaged")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._after_cr = False
        self.damaged = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 10:  # the second half of a \r\n whose first half ended the last chunk
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer = self._buffer
        buffer += data
        end = buffer.find(b"\n\n", self._searched)
        if end < 0:
            self._searched = max(0, len(buffer) - 1)
            return []
        events: list[Event] = []
        last = buffer.rfind(b"\n\n") + 2
        blocks = bytes(buffer[: last - 2]).split(b"\n\n")
        del buffer[:last]
        self._searched = max(0, len(buffer) - 1)
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append(("", block[6:].decode("utf-8", "replace")))
            elif block and (event := self._block(block)) is not None:
                events.append(event)
        return events

    def finish(self) -> list[Event]:
        """The event that was on its way when the stream ended, if there was one."""
        block = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        event = self._block(block)
        return [] if event is None else [event]

    def _block(self, block: bytes) -> Event | None:
        name, data = b"", []
        for line in block.split(b"\n"):
            if not line or line[0] == 58:  # a colon starts a comment
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field not in _NOTHING_TO_SAY:
                self.damaged = True
        if not data:
            return None
        return name.decode("utf-8", "replace"), b"\n".join(data).decode("utf-8", "replace")
