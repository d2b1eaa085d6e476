"""The body of a stream, whatever it turns out to be.

Asked for a stream, servers answer with server-sent events, or with binary frames (Bedrock); but also with one JSON object (an error, or
the whole response), with a JSON array of chunks, or with one JSON object a line. The first byte tells which.
"""

from __future__ import annotations

import re
from json import JSONDecoder

from agentlab.event_frames import FIRST_BYTES
from agentlab.providers._event_stream import FrameDecoder
from agentlab.providers._read import ends_early, loads
from agentlab.providers._sse import Event, SSEDecoder
from agentlab.types import JSON

LARGEST_ANSWER_BYTES = 64 * 2**20
"""What is read of one answer, at most: live, an answer that goes on beyond this is left; `lab.detect` does not examine a larger body.
No model says so much, a server that never ends would use up the memory, and reading takes up to a second for each megabyte."""

_BEFORE = b" \t\r\n\xef\xbb\xbf"
"""What may stand before the first event, in any number: white space, which some servers send to keep the connection alive, and the
bytes of a byte order mark."""

_BETWEEN = " \t\r\n,"


class Incoming:
    """The bytes of one stream. `is_json` is true where the body is JSON and not events; `is_quiet` where the newest bytes hold nothing
    of an answer; `cut_short`, known after `finish`, where it ended within a piece, or ahead of the first."""

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
        """Whether a piece so far was unreadable."""
        return self._broken_json or self._decoder.damaged

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete. A body that is JSON has none; it is read by `finish`."""
        if not self._started:
            data = data.lstrip(_BEFORE)
            if not data:
                self.is_quiet = True
                return []
            self._started = True
            self.is_json = data[:1] in b"{["
            if data[0] in FIRST_BYTES:
                self._decoder = FrameDecoder()
        if self.is_json:
            self._json.append(data)
            self.is_quiet = data.isspace()
            return []
        events = self._decoder.feed(data)
        if events:
            self._begun = True
        self.is_quiet = not events or all(map(_keeps_open, events))
        return events

    def finish(self) -> tuple[list[Event], list[JSON]]:
        """What was on its way when the stream ended: a last event, or the values of a body that is JSON."""
        if not self.is_json:
            self.cut_short = self._started and self._decoder.is_within_event(begun=self._begun)
            return self._decoder.finish(), []
        text = b"".join(self._json).decode("utf-8", "replace")
        self._json.clear()
        values, complete = read_json(text)
        self.cut_short = not complete and ends_early(text)
        self._broken_json = not complete
        return [], values


def _keeps_open(event: Event) -> bool:
    """Whether an event only keeps the connection open: Anthropic's `ping`, OpenAI's `keepalive` (undocumented, of its Responses), and
    events without data. https://platform.claude.com/docs/en/build-with-claude/streaming, "Ping events", read 2026-11-23."""
    name, data = event
    return len(data) < _SHORT and (name in _KEEP_OPEN or not data.strip() or _KIND.search(data) is not None)


_SHORT = 80
_KEEP_OPEN = (b"ping", b"keepalive")
_KIND = re.compile(rb'"type": *"(ping|keepalive)"')


def read_json(text: str) -> tuple[list[JSON], bool]:
    """The JSON values in a text (an array counts as its items), and whether that was all there was in it."""
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
        while position < end and text[position] in _BETWEEN:
            position += 1
        if position >= end:
            return values, bool(values) and not broken_array
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return values, False
        values.append(value)
