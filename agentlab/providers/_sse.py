"""Server-sent events, decoded as the bytes arrive.

Own code, since the transport is the only place that knows the HTTP library, and for its speed: an event of one `data:` line, with or
without an `event:` line before it, is nearly all there is, and costs a few searches. Time is linear in the bytes, whatever the
chunks and however long an event.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6, with one difference: an event whose blank line
never came is not thrown away but told at the end, since servers leave out the last newline.
"""

from __future__ import annotations

from typing import TypeAlias

from agentlab.providers._read import ends_early

Event: TypeAlias = tuple[bytes, bytes]
"""The event's name (empty: not given) and its data, as bytes: what reads the data decodes it."""

UNREADABLE = b"\0"
"""What the data of an event begins with that takes the place of a lost one: no JSON begins so. Behind it is what was left, or nothing
where nobody knows how much was lost."""

_NOTHING_TO_SAY = frozenset({b"id", b"retry"})
_OF_JSON = frozenset(b'{}"')
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


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
        at = data.find(b"\r")
        if at >= 0:
            alone = at == len(data) - 4 and data.endswith(b"\r\n\r\n") and data.find(b"\n") > at
            if alone and data.startswith(b"data: ") and not self._buffer:  # an event of one line, as Gemini's server sends it
                return [(b"", data[6:at])]
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer = self._buffer
        if not buffer and data.endswith(b"\n\n"):  # whole events, as they come from most servers
            blocks = data[:-2].split(b"\n\n")
        else:
            buffer += data
            if buffer.find(b"\n\n", self._searched) < 0:
                self._searched = max(0, len(buffer) - 1)
                return []
            end = buffer.rfind(b"\n\n")
            blocks = bytes(buffer[:end]).split(b"\n\n")
            del buffer[: end + 2]
            self._searched = max(0, len(buffer) - 1)
        events: list[Event] = []
        for block in blocks:
            line_end = block.find(b"\n")
            if line_end < 0:
                if block.startswith(b"data: "):
                    events.append((b"", block[6:]))
                    continue
            elif (
                block.startswith(b"event: ") and block.startswith(b"data: ", line_end + 1) and block.find(b"\n", line_end + 1) < 0
            ):
                events.append((block[7:line_end], block[line_end + 7 :]))
                continue
            if block:
                self._block(block, events)
        return events

    def is_within_event(self, *, begun: bool) -> bool:
        """Whether a stream that ended here broke off: within an event or, where none has `begun` before, ahead of the first."""
        if self.damaged:
            return False
        *lines, last = bytes(self._buffer).split(b"\n")
        if not all(line.startswith(_FIELDS) for line in lines if line):
            return False  # something else than a stream
        if not (last.startswith(_FIELDS) or any(field.startswith(last) for field in _FIELDS)):
            return False
        data = [line[5:] for line in (*lines, last) if line.startswith(b"data:")]
        if not data:
            return not begun or any((*lines, last))
        text = b"\n".join(data).strip()
        return not text or ends_early(text)

    def finish(self) -> list[Event]:
        """The event that was on its way when the stream ended, if there was one."""
        block = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        events: list[Event] = []
        self._block(block, events)
        return events

    def _block(self, block: bytes, events: list[Event]) -> None:
        """Add the event of this block; before it the lines that are damaged. A line of an unknown field is a lost piece only where
        JSON is in it: proxies put other lines into a stream."""
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
                if b":" in name:  # another line has run into this one
                    self.damaged = True
                    events.append((b"", UNREADABLE + name))
            elif field not in _NOTHING_TO_SAY:
                self.damaged = True
                if not _OF_JSON.isdisjoint(line):
                    events.append((b"", UNREADABLE + line))
        if data:
            events.append((name, b"\n".join(data)))
