"""Decodes the body of a stream as the bytes arrive: server-sent events, binary frames or JSON.

Servers answer a request for a stream with server-sent events or binary frames (Bedrock), but also with one JSON object (an error, or
the whole response), a JSON array of chunks, or one JSON object per line. The first byte shows which. A frame becomes the same kind of
event as an event of a text stream, so every stream parser reads both. The time is linear in the number of bytes, wherever they are
split.

Server-sent events are decoded here for speed, without a library: nearly all events are one `data:` line, with or without an `event:`
line before it, and need only a few searches. Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6,
with one difference: a last event without its blank line is returned at the end, since some servers leave out the last newline.

Vendor pages of the frames: https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html and
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModelWithResponseStream.html, read 2026-11-22.
"""

from __future__ import annotations

import base64
import re
from json import JSONDecoder
from typing import Any, TypeAlias

from agentlab.model.messages import JSON
from agentlab.providers.wires import read
from agentlab.providers.wires.read import ends_early, loads
from agentlab.transport import aws_eventstream

MAX_ANSWER_BYTES = 64 * 2**20
"""The limit on the bytes of one live answer, so that an endless response does not use up the memory. No model's answer is that long."""

Event: TypeAlias = tuple[bytes, bytes]
"""The event's name (empty if there is none) and its data, both as bytes."""

UNREADABLE = b"\0"
"""Prefix of the data of an event that replaces an unreadable one; JSON never begins with it. The unreadable bytes follow."""

_LEADING = b" \t\r\n\xef\xbb\xbf"
"""Skipped before the first event: white space, which some servers send to keep the connection open, and a byte order mark."""

_KEEP_ALIVE_NAMES = (b"ping", b"keepalive")
_KEEP_ALIVE_TYPE = re.compile(rb'"type": *"(ping|keepalive)"')
_KEEP_ALIVE_BYTES = 80


class Incoming:
    """The bytes of one stream.

    `is_json`: the body is JSON, without events. `is_quiet`: the newest bytes contain no part of an answer. `cut_short`, known after
    `finish`: the body ended within an event, or before the first.
    """

    __slots__ = ("_begun", "_broken_json", "_decoder", "_json", "_started", "cut_short", "is_json", "is_quiet")

    def __init__(self) -> None:
        self._decoder: SSEDecoder | FrameDecoder = SSEDecoder()
        self._started = False
        self._begun = False
        self._json: list[bytes] = []
        self.cut_short = False
        self.is_json = False
        self.is_quiet = True
        self._broken_json = False

    @property
    def damaged(self) -> bool:
        """True if an unreadable piece has arrived."""
        return self._broken_json or self._decoder.damaged

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete. A JSON body has none; `finish` reads it."""
        if not self._started:
            data = data.lstrip(_LEADING)
            if not data:
                self.is_quiet = True
                return []
            self._started = True
            self.is_json = data[:1] in b"{["
            if data[0] in aws_eventstream.FIRST_BYTES:
                self._decoder = FrameDecoder()
        if self.is_json:
            self._json.append(data)
            self.is_quiet = data.isspace()
            return []
        events = self._decoder.feed(data)
        self._begun = self._begun or bool(events)
        self.is_quiet = not events or all(map(_is_keep_alive, events))
        return events

    def finish(self) -> tuple[list[Event], list[JSON]]:
        """Return the rest at the end of the stream: a last event, or the values of a JSON body."""
        if not self.is_json:
            self.cut_short = self._started and self._decoder.is_within_event(begun=self._begun)
            return self._decoder.finish(), []
        text = b"".join(self._json).decode("utf-8", "replace")
        self._json.clear()
        values, complete = read_json(text)
        self.cut_short = not complete and ends_early(text)
        self._broken_json = not complete
        return [], values


def _is_keep_alive(event: Event) -> bool:
    """True if an event only keeps the connection open: Anthropic's `ping`, OpenAI's `keepalive` (undocumented, of its Responses), and
    events without data. https://platform.claude.com/docs/en/build-with-claude/streaming, "Ping events", read 2026-11-23."""
    name, data = event
    return len(data) < _KEEP_ALIVE_BYTES and (
        name in _KEEP_ALIVE_NAMES or not data.strip() or _KEEP_ALIVE_TYPE.search(data) is not None
    )


def read_json(text: str) -> tuple[list[JSON], bool]:
    """Return the JSON values in a text (for an array, its items), and True if there is nothing else in the text."""
    try:
        value = loads(text)
        return (value if isinstance(value, list) else [value]), True
    except ValueError:
        pass
    values: list[JSON] = []
    decoder, position, end = JSONDecoder(), 0, len(text)
    broken_array = text.lstrip().startswith("[")
    if broken_array:  # its items, as far as they go
        position = text.index("[") + 1
    while True:
        while position < end and text[position] in " \t\r\n,":
            position += 1
        if position >= end:
            return values, bool(values) and not broken_array
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return values, False
        values.append(value)


# Server-sent events --------------------------------------------------------------------------------------------------------

_IGNORED_FIELDS = frozenset({b"id", b"retry"})
_JSON_CHARACTERS = frozenset(b'{}"')
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


class SSEDecoder:
    """Decodes one stream; the bytes may be split anywhere. `damaged`: a line had an unknown field."""

    __slots__ = ("_after_cr", "_buffer", "_searched", "damaged")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._after_cr = False
        self.damaged = False

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete."""
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 10:  # the second half of a \r\n whose first half ended the last chunk
                data = data[1:]
        at = data.find(b"\r")
        if at >= 0:
            alone = at == len(data) - 4 and data.endswith(b"\r\n\r\n") and data.find(b"\n") > at
            if alone and data.startswith(b"data: ") and not self._buffer:  # an event of one line, as Gemini's server sends them
                return [(b"", data[6:at])]
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer = self._buffer
        if not buffer and data.endswith(b"\n\n"):  # whole events, as most servers send them
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
        """True if a stream that ends here broke off: within an event or, if none has `begun`, before the first."""
        if self.damaged:
            return False
        *lines, last = bytes(self._buffer).split(b"\n")
        if not all(line.startswith(_FIELDS) for line in lines if line):
            return False  # not a stream
        if not (last.startswith(_FIELDS) or any(field.startswith(last) for field in _FIELDS)):
            return False
        data = [line[5:] for line in (*lines, last) if line.startswith(b"data:")]
        if not data:
            return not begun or any((*lines, last))
        text = b"\n".join(data).strip()
        return not text or ends_early(text)

    def finish(self) -> list[Event]:
        """Return the last event, if its blank line is missing."""
        block = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        events: list[Event] = []
        self._block(block, events)
        return events

    def _block(self, block: bytes, events: list[Event]) -> None:
        """Append the damaged lines of this block, then its event. A line with an unknown field counts as lost only if it contains JSON:
        proxies insert other lines into a stream."""
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
            elif field not in _IGNORED_FIELDS:
                self.damaged = True
                if not _JSON_CHARACTERS.isdisjoint(line):
                    events.append((b"", UNREADABLE + line))
        if data:
            events.append((name, b"\n".join(data)))


# Binary frames -------------------------------------------------------------------------------------------------------------


class FrameDecoder:
    """Decodes one stream; the bytes may be split anywhere. `damaged`: a frame was unreadable, or the stream ended inside one."""

    __slots__ = ("_buffer", "_lost", "_prelude", "damaged")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._prelude: aws_eventstream.Prelude | None = None
        self._lost = False
        self.damaged = False

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of the frames that these bytes complete."""
        if self._lost:
            return []
        buffer, at = self._buffer, 0
        buffer += data
        events: list[Event] = []
        while len(buffer) - at >= aws_eventstream.PRELUDE_BYTES:
            if self._prelude is None:
                self._prelude = aws_eventstream.read_prelude(buffer, at)
            if self._prelude is None:
                self.damaged = self._lost = True  # the next frame cannot be found
                buffer.clear()
                return [*events, (b"", UNREADABLE)]
            end = at + self._prelude.total
            if len(buffer) < end:
                break
            event = _frame_event(bytes(buffer[at:end]))
            self.damaged = self.damaged or event is None
            events.append(event or (b"", UNREADABLE + buffer[at:end]))
            self._prelude, at = None, end
        del buffer[:at]
        return events

    def is_within_event(self, *, begun: bool) -> bool:
        """True if a stream that ends here broke off within a frame."""
        return bool(self._buffer) and not self.damaged

    def finish(self) -> list[Event]:
        """End the stream. There is no last event: half a frame cannot be read."""
        self.damaged = self.damaged or bool(self._buffer)
        self._buffer.clear()
        return []


def _frame_event(frame: bytes) -> Event | None:
    """Return the event of one whole frame, or None for a damaged one."""
    found = aws_eventstream.read_frame(frame)
    if found is None:
        return None
    headers, payload = found
    if headers.get(":message-type") in ("exception", "error"):
        return b"error", read.dumps(_frame_error(headers, payload))
    name = headers.get(":event-type", "")
    if name == "chunk":  # an event of the model's own wire: `{"bytes": "…base64…"}`
        try:
            return b"", base64.b64decode(read.loads(payload)["bytes"], validate=True)
        except (ValueError, TypeError, LookupError):
            pass
    return name.encode(), payload


def _frame_error(headers: dict[str, str], payload: bytes) -> dict[str, Any]:
    """Return an exception of the service, or an error of the stream (without a payload), as an error object."""
    kind = headers.get(":exception-type") or headers.get(":error-code") or "error"
    text = headers.get(":error-message") or payload.decode("utf-8", "replace")
    try:
        fields = read.as_dict(read.loads(payload))
    except ValueError:
        fields = {}
    message = read.as_text(fields.get("message")) or read.as_text(fields.get("Message")) or ("" if fields else text)
    return {**fields, "type": kind, "message": message}
