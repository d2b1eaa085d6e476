"""What reads responses for the reason of their end: the shape of a detector, and how a plain function becomes one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from agentlab.providers._base import StreamParser
from agentlab.providers._detect import opened, too_large
from agentlab.providers._incoming import LARGEST_ANSWER_BYTES
from agentlab.providers._signals import not_whole
from agentlab.redaction import in_words
from agentlab.types import JSON, Confidence, FinishReason, ModelResponse, SignalSeen, StreamEvent, TerminationSignal

logger = logging.getLogger("agentlab.signals")


class Detector(Protocol):
    """What reads responses for the reason of their end. Neither method raises on what a provider sent."""

    def detect(
        self, payload: JSON, *, streaming: bool | None = None, status: int | None = 200, requested_cap: int | None = None
    ) -> TerminationSignal:
        """Why this response ended; see `agentlab.detect`."""
        ...

    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """A parser for one stream: `feed(bytes)`, then `finish()`."""
        ...


BodyReader: TypeAlias = Callable[[JSON], TerminationSignal]
"""A plain function from a response body to its signal. Streams are put together into such a body first."""


@dataclass(frozen=True, slots=True)
class BodyReaderDetector:
    """A person's function as a detector. `like` understands the wire: it puts streams together and reads what is no response."""

    provider: str
    read: BodyReader
    like: Detector

    def detect(
        self, payload: JSON, *, streaming: bool | None = None, status: int | None = 200, requested_cap: int | None = None
    ) -> TerminationSignal:
        """Why this response ended, in the function's view; an HTTP error is one in anybody's."""
        if status is not None and status >= 400:
            return replace(self.like.detect(payload, status=status), provider=self.provider)
        body, events = opened(payload, streaming)
        if events is None:
            return self.of_body(body)
        if len(events) > LARGEST_ANSWER_BYTES:
            return too_large(self.provider, len(events))
        parser = self.stream(requested_cap=requested_cap)
        parser.feed(events)
        return parser.finish()

    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """A parser for one stream. There is no early signal: the function gets the whole."""
        return _BodyReaderStream(self, self.like.stream(requested_cap=requested_cap))

    def of_body(self, body: JSON, *, sound: bool = True) -> TerminationSignal:
        """The function's signal. One that raises, or gives something else, is UNKNOWN at LOW confidence, with the reason. `sound` is
        False for a body that was put together from a broken stream, which the function cannot see: that is no sure end."""
        try:
            signal: object = self.read(body)
            if isinstance(signal, TerminationSignal):
                sure = signal.confidence is Confidence.HIGH and not sound
                return replace(
                    signal,
                    provider=signal.provider or self.provider,
                    confidence=Confidence.MEDIUM if sure else signal.confidence,
                )
            told = f"returned {type(signal).__name__} in place of a TerminationSignal"
        except Exception as error:
            told = f"raised {in_words(error)}"
        said = f"The detector registered for {self.provider!r} {told}."
        logger.warning(said)
        return TerminationSignal(FinishReason.UNKNOWN, Confidence.LOW, self.provider, message=said)


class _BodyReaderStream:
    """A stream put together by the wire's own parser, and read by the function at its end."""

    def __init__(self, detector: BodyReaderDetector, parser: StreamParser) -> None:
        self._detector = detector
        self._parser = parser
        self._signal: TerminationSignal | None = None

    def feed(self, data: bytes) -> list[StreamEvent]:
        return [event for event in self._parser.feed(data) if not isinstance(event, SignalSeen)]

    def finish(self) -> TerminationSignal:
        if self._signal is None:
            self._parser.finish()
            whole = self._parser.response()
            self._signal = self._detector.of_body(whole.raw, sound=self._parser.sound)
            if whole.is_spoilt:
                self._signal = not_whole(self._signal, whole.holes)
        return self._signal

    @property
    def sound(self) -> bool:
        return self._parser.sound

    @property
    def cut_short(self) -> bool:
        return self._parser.cut_short

    def response(self) -> ModelResponse:
        return replace(self._parser.response(), signal=self.finish())

    def reset(self) -> None:
        self._parser.reset()
        self._signal = None


@dataclass(frozen=True, slots=True)
class RenamedDetector:
    """A detector under another provider's name."""

    provider: str
    inner: Detector

    def detect(
        self, payload: JSON, *, streaming: bool | None = None, status: int | None = 200, requested_cap: int | None = None
    ) -> TerminationSignal:
        """Why this response ended; see `agentlab.detect`."""
        signal = self.inner.detect(payload, streaming=streaming, status=status, requested_cap=requested_cap)
        return replace(signal, provider=self.provider)

    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """A parser for one stream: `feed(bytes)`, then `finish()`."""
        return self.inner.stream(requested_cap=requested_cap)
