"""The body of a stream, whatever it turns out to be.

Asked for a stream, servers answer with server-sent events, or with binary frames (Bedrock); but also with one JSON object (an error, or
the whole response), with a JSON array of chunks, or with one JSON object a line. The first byte tells which.

Server-sent events, decoded as the bytes arrive.

Own code, since the transport is the only place that knows the HTTP library, and for its speed: an event of one `data:` line, with or
without an `event:` line before it, is nearly all there is, and costs a few searches. Time is linear in the bytes, whatever the
chunks and however long an event.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6, with one difference: an event whose blank line
never came is not thrown away but told at the end, since servers leave out the last newline.

Binary event streams (`application/vnd.amazon.eventstream`), as Bedrock sends them, decoded as the bytes arrive.

The frames are taken apart by botocore, the vendor's own code (the extra `agentlab-jupyter[bedrock]`), one at a time: it does not tell a
stream that ends inside a frame from one that ends after it, and stops at the first frame that is damaged. A frame becomes the
same kind of event as one of a text stream, so every stream parser reads both. Time is linear in the bytes, whatever the chunks.

Vendor pages: https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html and
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModelWithResponseStream.html, read 2026-11-22.

The answer inside a line of a batch's results, as vendors hand them out: the body of one response, and what became of it.

Vendor pages, read 2026-11-22: https://platform.openai.com/docs/guides/batch,
https://platform.claude.com/docs/en/build-with-claude/batch-processing, https://ai.google.dev/gemini-api/docs/batch-api and
https://docs.aws.amazon.com/bedrock/latest/userguide/batch-inference-results.html.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from json import JSONDecoder
from typing import Any, TypeAlias

from agentlab.errors import ConfigurationError
from agentlab.providers.wires import read
from agentlab.providers.wires.read import ends_early, loads
from agentlab.transport.aws_eventstream import FIRST_BYTES, PRELUDE_BYTES, Prelude, read_prelude
from agentlab.types import JSON, Confidence, FinishReason, TerminationSignal

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


class FrameDecoder:
    """The state of one stream. Bytes may be cut anywhere.

    `damaged` becomes true where a frame was unreadable; and at the end, where the stream ended inside a frame.
    """

    __slots__ = ("_botocore", "_buffer", "_lost", "_prelude", "damaged")

    def __init__(self) -> None:
        self._botocore: tuple[Callable[[], Any], tuple[type[Exception], ...]] | None = None  # looked for once a stream
        self._buffer = bytearray()
        self._prelude: Prelude | None = None
        self._lost = False
        self.damaged = False

    def feed(self, data: bytes) -> list[Event]:
        """The events of the frames that these bytes complete. Raises ConfigurationError where botocore is not installed."""
        if self._lost:
            return []
        buffer, at = self._buffer, 0
        buffer += data
        events: list[Event] = []
        while len(buffer) - at >= PRELUDE_BYTES:
            if self._prelude is None:
                self._prelude = read_prelude(buffer, at)
            if self._prelude is None:
                self.damaged = self._lost = True  # nobody knows where the next frame begins
                buffer.clear()
                return [*events, (b"", UNREADABLE)]
            end = at + self._prelude.total
            if len(buffer) < end:
                break
            if self._botocore is None:
                self._botocore = _botocore()
            event = _read_frame(bytes(buffer[at:end]), *self._botocore)
            self.damaged = self.damaged or event is None
            events.append(event or (b"", UNREADABLE + buffer[at:end]))
            self._prelude, at = None, end
        del buffer[:at]
        return events

    def is_within_event(self, *, begun: bool) -> bool:
        """Whether a stream that ended here broke off within a frame."""
        return bool(self._buffer) and not self.damaged

    def finish(self) -> list[Event]:
        """The end of the stream. There is no last event: half a frame tells nothing."""
        self.damaged = self.damaged or bool(self._buffer)
        self._buffer.clear()
        return []


def missing_decoder() -> ConfigurationError:
    """What to do without botocore."""
    return ConfigurationError("Bedrock's streams are binary, and botocore decodes them: pip install 'agentlab-jupyter[bedrock]'")


def _botocore() -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """What reads a frame, and what it raises where there is none, or its headers are none. Raises ConfigurationError."""
    try:
        from botocore.eventstream import EventStreamBuffer, ParserError
    except ImportError:
        raise missing_decoder() from None
    return EventStreamBuffer, (ParserError, struct.error, ValueError, LookupError, TypeError)


def _read_frame(frame: bytes, make: Callable[[], Any], errors: tuple[type[Exception], ...]) -> Event | None:
    """The event of one whole frame, or None where it is damaged. The rest is what `_botocore` gives."""
    decoder = make()
    decoder.add_data(frame)
    try:
        message = decoder.next()
    except errors:
        return None
    headers: dict[str, Any] = message.headers
    kind = headers.get(":message-type")
    if kind in ("exception", "error"):
        return b"error", read.dumps(_error(headers, message.payload))
    name = headers.get(":event-type")
    if name == "chunk" and (inner := _unwrapped(message.payload)) is not None:
        return b"", inner
    return (name.encode() if isinstance(name, str) else b""), message.payload


def _unwrapped(payload: bytes) -> bytes | None:
    """The event of the model's own wire inside a `chunk`: `{"bytes": "…base64…"}`."""
    try:
        inner = read.loads(payload)["bytes"]
        return base64.b64decode(inner, validate=True)
    except (ValueError, TypeError, LookupError):
        return None


def _error(headers: dict[str, Any], payload: bytes) -> dict[str, Any]:
    """An exception of the service's, or an error of the stream's (which has no payload), as an error object."""
    kind = headers.get(":exception-type") or headers.get(":error-code") or "error"
    text = headers.get(":error-message") or payload.decode("utf-8", "replace")
    try:
        fields = read.as_dict(read.loads(payload))
    except ValueError:
        fields = {}
    message = read.as_text(fields.get("message")) or read.as_text(fields.get("Message")) or str(text if not fields else "")
    return {**fields, "type": str(kind), "message": message}


_NOT_RUN = {"canceled": FinishReason.CANCELLED, "expired": FinishReason.ERROR}
"""What Anthropic says of a request that its batch never came to."""

_OF_GEMINI = ("candidates", "promptFeedback", "usageMetadata")


def answer_of(line: JSON) -> tuple[JSON, int]:
    """The body of the answer in a line of results, and its HTTP status; of anything else what it is, and 200."""
    fields = read.as_dict(line)
    response = read.as_dict(fields.get("response"))
    if "custom_id" in fields:
        if "body" in response:
            return response["body"], read.count(response.get("status_code")) or 200
        return _of_anthropic(fields), 200
    if not response.keys().isdisjoint(_OF_GEMINI) and "candidates" not in fields:
        return response, 200
    return (fields["modelOutput"] if isinstance(fields.get("modelOutput"), dict) else line), 200


def never_run(line: JSON, provider: str) -> TerminationSignal | None:
    """The signal of a line about a request that was not run; None for every other."""
    fields = read.as_dict(line)
    word = read.as_dict(fields.get("result")).get("type") if "custom_id" in fields else None
    if not isinstance(word, str) or word not in _NOT_RUN:
        return None
    return TerminationSignal(
        finish_reason=_NOT_RUN[word],
        confidence=Confidence.HIGH,
        provider=provider,
        raw_field="result.type",
        raw_value=word,
        message=f"The batch did not come to this request: it is {word}.",
    )


def _of_anthropic(fields: dict[str, Any]) -> JSON:
    result = read.as_dict(fields.get("result"))
    if result.get("type") == "succeeded" and isinstance(result.get("message"), dict):
        return result["message"]
    if result.get("type") == "errored" and isinstance(result.get("error"), dict):
        return result["error"]
    return fields
