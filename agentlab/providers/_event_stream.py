"""Binary event streams (`application/vnd.amazon.eventstream`), as Bedrock sends them, decoded as the bytes arrive.

The frames are taken apart by botocore, the vendor's own code (the extra `agentlab-jupyter[bedrock]`), one at a time: it does not tell a
stream that ends inside a frame from one that ends after it, and stops at the first frame that is damaged. A frame becomes the
same kind of event as one of a text stream, so every stream parser reads both. Time is linear in the bytes, whatever the chunks.

Vendor pages: https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html and
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModelWithResponseStream.html, read 2026-11-22.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

from agentlab.errors import ConfigurationError
from agentlab.event_frames import PRELUDE_BYTES, Prelude, read_prelude
from agentlab.providers import _read as read
from agentlab.providers._sse import UNREADABLE, Event


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
