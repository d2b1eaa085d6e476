"""Why one recorded response ended, read by a provider's own code: a body in any form, or a stream chunk by chunk."""

from __future__ import annotations

import abc
from dataclasses import dataclass, is_dataclass, replace

from agentlab.errors import ConfigurationError, UnknownProviderError
from agentlab.providers import _read as read
from agentlab.providers._base import Provider as ProviderProtocol
from agentlab.providers._base import StreamParser
from agentlab.providers._batch import answer_of, never_run
from agentlab.providers._incoming import LARGEST_ANSWER_BYTES, read_json
from agentlab.providers._registry import Provider
from agentlab.providers._signals import body_message, error_code, filtered_by, find_error
from agentlab.types import JSON, Confidence, FinishReason, TerminationSignal

LARGEST_REFUSAL_BYTES = 2**20
"""What is read of a refusal, at most."""

_SHOWN_CHARACTERS = 80


class BodyDetector(abc.ABC):
    """What all detectors do with a payload: a status, a whole body or a stream."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def _name(self) -> str:
        """What the provider is called in the signal."""

    def detect(
        self, payload: JSON, *, streaming: bool | None = None, status: int | None = 200, requested_cap: int | None = None
    ) -> TerminationSignal:
        """Why this response ended; see `agentlab.detect`."""
        if status is not None and status >= 400:
            return self._of_refusal(payload, status)
        body, events = opened(payload, streaming)
        if events is None:
            return self._of_body(body, requested_cap)
        if len(events) > LARGEST_ANSWER_BYTES:
            return too_large(self._name, len(events))
        parser = self.stream(requested_cap=requested_cap)
        parser.feed(events)
        return explained(parser.finish(), events)

    @abc.abstractmethod
    def of_model(self, model: str) -> BodyDetector:
        """The same detector for one model, which signals and the log then name."""

    @abc.abstractmethod
    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """A parser for one stream: `feed(bytes)`, then `finish()`."""

    def _of_body(self, body: JSON, requested_cap: int | None) -> TerminationSignal:
        if (never := never_run(body, self._name)) is not None:
            return never
        body, status = answer_of(body)
        return self._of_refusal(body, status) if status >= 400 else self._of_answer(body, requested_cap)

    def _of_refusal(self, payload: JSON, status: int) -> TerminationSignal:
        """The signal of a status of 400 and above; of one that a filter gave, with what the body says of the filter."""
        body = refusal_body(payload)
        signal = status_signal(self._name, body, status)
        if signal.finish_reason is FinishReason.ERROR:
            return signal
        return replace(signal, metadata={**self._of_answer(body, None).metadata, **signal.metadata})

    @abc.abstractmethod
    def _of_answer(self, body: JSON, requested_cap: int | None) -> TerminationSignal:
        """The signal of a whole body."""


@dataclass(frozen=True, slots=True)
class WireDetector(BodyDetector):
    """Reads the responses of one provider."""

    wire: ProviderProtocol

    @property
    def _name(self) -> str:
        return self.wire.name

    def of_model(self, model: str) -> WireDetector:
        """The same detector for one model."""
        return WireDetector(replace(self.wire, model=model)) if is_dataclass(self.wire) else self

    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """A parser for one stream: `feed(bytes)`, then `finish()`."""
        return self.wire.stream_parser(requested_cap=requested_cap)

    def _of_answer(self, body: JSON, requested_cap: int | None) -> TerminationSignal:
        return explained(self.wire.parse(body, requested_cap=requested_cap).signal, body)


def provider_detector(name: str, model: str = "") -> WireDetector:
    """The detector of a provider, which will not be called: where a kind demands an address, any will do. `model` "" is not known.

    Raises UnknownProviderError, and ConfigurationError for an API version that the provider does not have.
    """
    try:
        wire = Provider(name, model=model or "unknown")
    except UnknownProviderError:
        raise
    except ConfigurationError:
        wire = Provider(name, model=model or "unknown", base_url="http://localhost")
    return WireDetector(wire if model or not is_dataclass(wire) else replace(wire, model=""))


def opened(payload: JSON, streaming: bool | None) -> tuple[JSON, bytes | None]:
    """What a payload holds: a whole body and None, or nothing and the bytes of a stream. A list of chunks is a stream too, and so is a
    body that is too large to be read."""
    events = as_bytes(payload)
    if events is None:
        return (payload, None) if not isinstance(payload, list) or streaming is False else (None, read.dumps(payload))
    if streaming is not True and len(events) <= LARGEST_ANSWER_BYTES:
        try:
            value = read.loads(events.decode("utf-8", "replace"))
        except ValueError:
            return None, events
        if not isinstance(value, list) or len(value) == 1:
            return (value[0] if isinstance(value, list) else value), None
    return None, events


def too_large(provider: str, size: int) -> TerminationSignal:
    """The signal of a body that is not examined."""
    told = f"The body has {size:,} bytes, and at most {LARGEST_ANSWER_BYTES:,} are examined: why it ended is not known."
    return TerminationSignal(FinishReason.UNKNOWN, Confidence.LOW, provider, message=told)


def as_bytes(payload: JSON) -> bytes | None:
    """A body that was handed over as text or bytes; None where it is an object already."""
    if isinstance(payload, str):
        return payload.encode("utf-8", "surrogatepass")
    return bytes(payload) if isinstance(payload, bytes | bytearray | memoryview) else None


def explained(signal: TerminationSignal, body: JSON) -> TerminationSignal:
    """The signal; where nothing was found in the body, with a message that says what is there instead."""
    if signal.finish_reason is not FinishReason.UNKNOWN or signal.raw_value is not None:
        return signal
    if isinstance(body, bytes):
        text = " ".join(body[: 8 * _SHOWN_CHARACTERS].decode("utf-8", "replace").split())
        if not text:
            return replace(signal, message="The body is empty.")
        if not text.startswith(("data:", "event:", "id:", "retry:", ":", "{", "[")) and body[:1] >= b" ":
            return replace(signal, message=f"The body is neither JSON nor a stream: {text[:_SHOWN_CHARACTERS]!r}.")
        return signal
    if body is None or body in ({}, []):
        return replace(signal, message="The body is empty.")
    if not isinstance(body, dict | list):
        return replace(signal, message=f"The body is JSON, but no object: {str(body)[:_SHOWN_CHARACTERS]!r}.")
    return signal


def refusal_body(payload: JSON) -> JSON:
    """The body of a refusal as an object, or as text where it is none."""
    body = as_bytes(payload)
    if body is None:
        return payload
    text = body[:LARGEST_REFUSAL_BYTES].decode("utf-8", "replace")
    values, _ = read_json(text.removeprefix("data:"))
    return values[0] if values else text


def status_signal(provider: str, payload: JSON, status: int) -> TerminationSignal:
    """The signal of an HTTP status of 400 and above: an error, unless the body says that a content filter refused the request."""
    error = find_error(payload)
    filtered = filtered_by(payload if error is None else error)
    where, value = filtered or (error_code(error) if error is not None else ("status", status))
    words = body_message(payload) if not isinstance(payload, str) else read.as_text(payload[:200]).strip()
    return TerminationSignal(
        finish_reason=FinishReason.CONTENT_FILTERED if filtered else FinishReason.ERROR,
        confidence=Confidence.HIGH,
        provider=provider,
        raw_field=where,
        raw_value=value,
        message=f"HTTP {status}: {words}" if words else f"HTTP {status}",
        metadata={"status": status},
    )
