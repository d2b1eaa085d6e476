"""Detects why a response ended, without an agent: recorded responses, streams chunk by chunk, and the registry of detectors.

    lab.detect("gemini", payload)                     a recorded response -> TerminationSignal
    parser = lab.signals.stream("anthropic")          a stream: parser.feed(bytes) -> events, parser.finish() -> TerminationSignal
    lab.signals.register("my-gateway", "openai")      another name for a known wire
    lab.signals.register("openai", my_reader)         your own function for a provider's bodies, also in runs; returns an undo
    lab.signals.get("openai").detect(payload)         the detector itself

Responses of an unknown provider are read by their pattern, at most with MEDIUM confidence.

The logger `agentlab.signals` logs each signal at DEBUG, including those of runs: provider, model, reason, confidence and raw value, but
no text.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from agentlab._internal.names import module_hooks
from agentlab._internal.redaction import in_words
from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError, UnknownProviderError
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON
from agentlab.model.responses import ModelResponse, SignalSeen, StreamEvent
from agentlab.providers.base import StreamParser
from agentlab.providers.detectors import BodyDetector, PatternDetector, opened, provider_detector
from agentlab.providers.registry import names, split_version
from agentlab.providers.wires.finish_rules import not_whole


@functools.cache
def _logger() -> logging.Logger:
    return logging.getLogger("agentlab.signals")


_PLAIN_VALUE = re.compile(r"[A-Za-z][A-Za-z_.-]{,63}")


class Detector(Protocol):
    """Detects why responses ended. Its methods never raise, whatever a provider sends."""

    def detect(
        self, payload: JSON, *, streaming: bool | None = None, status: int | None = 200, requested_cap: int | None = None
    ) -> TerminationSignal:
        """Return why this response ended; see `agentlab.detect`."""
        ...

    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a parser for one stream: `feed(bytes)`, then `finish()`."""
        ...


BodyReader: TypeAlias = Callable[[JSON], TerminationSignal]
"""A function from a response body to its signal. Streams are assembled into such a body first."""


@dataclass(frozen=True, slots=True)
class BodyReaderDetector:
    """A user's function as a detector. `like` is the wire's detector, which assembles streams and reads error bodies."""

    provider: str
    read: BodyReader
    like: Detector

    def detect(
        self, payload: JSON, *, streaming: bool | None = None, status: int | None = 200, requested_cap: int | None = None
    ) -> TerminationSignal:
        """Return why this response ended, by the function; an HTTP error is read by `like`."""
        if status is not None and status >= 400:
            return replace(self.like.detect(payload, status=status), provider=self.provider)
        body, events = opened(payload, streaming)
        if events is None:
            return self.of_body(body)
        parser = self.stream(requested_cap=requested_cap)
        parser.feed(events)
        return parser.finish()

    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a parser for one stream, without an early signal: the function needs the whole body."""
        return _BodyReaderStream(self, self.like.stream(requested_cap=requested_cap))

    def of_body(self, body: JSON, *, sound: bool = True) -> TerminationSignal:
        """Return the function's signal. If the function raises or returns something else, the signal is UNKNOWN at LOW confidence, with
        the reason. `sound` is False for a body assembled from a broken stream, which the function cannot know: the confidence is then
        at most MEDIUM."""
        signal = _signal_of(self.provider, lambda: self.read(body))
        confidence = signal.confidence if sound else min(signal.confidence, Confidence.MEDIUM)
        return replace(signal, provider=signal.provider or self.provider, confidence=confidence)


def _signal_of(provider: str, read: Callable[[], object]) -> TerminationSignal:
    """Return the signal of a user's detector; if it raises or returns something else, an UNKNOWN one that says so."""
    try:
        signal = read()
        if isinstance(signal, TerminationSignal):
            return signal
        problem = f"returned {type(signal).__name__} instead of a TerminationSignal"
    except Exception as error:
        problem = f"raised {in_words(error)}"
    message = f"The detector registered for {provider!r} {problem}."
    _logger().warning(message)
    return TerminationSignal(FinishReason.UNKNOWN, Confidence.LOW, provider, message=message)


class _BodyReaderStream:
    """A stream that the wire's parser assembles and the function reads at its end."""

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

    def __getattr__(self, name: str) -> Any:  # sound, cut_short, is_quiet
        return getattr(self._parser, name)

    def response(self) -> ModelResponse:
        response = self._parser.response()  # before `finish`, with the signal of the wire: the function needs the whole body
        return response if self._signal is None else replace(response, signal=self._signal)

    def reset(self) -> None:
        self._parser.reset()
        self._signal = None


# The registry --------------------------------------------------------------------------------------------------------------


class SignalRegistry:
    """The detectors by provider. Starts with agentlab's own providers; thread-safe.

    Example:
        >>> own = lab.signals.SignalRegistry()
        >>> undo = own.register("my-gateway", "anthropic")
        >>> own.detect("my-gateway", {"type": "message", "content": [], "stop_reason": "max_tokens"}).finish_reason
        <FinishReason.MAX_TOKENS: 'max_tokens'>
    """

    def __init__(self) -> None:
        self._registered: dict[str, Detector] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        own = f", and registered: {', '.join(sorted(self._registered))}" if self._registered else ""
        return f"SignalRegistry({', '.join(names())}{own})"

    def register(self, provider: str, detector: Detector | BodyReader | str, *, like: str | None = None) -> Callable[[], None]:
        """Read the responses of `provider` with `detector` from now on, also in runs. Returns a function that restores the previous
        one.

        `provider` may have a version (`my-gateway@2`): the detector is then used for that version only. `detector` is a Detector, a
        function that returns the TerminationSignal of a response body, or the name of a provider with the same wire. A function gets
        streams assembled into a body; `like` names the provider whose wire is used for that, by default the provider itself (an unknown
        one is read by its pattern).

        Example:
            >>> undo = lab.signals.register("my-gateway", "openai")
            >>> lab.detect("my-gateway", {"choices": [{"message": {"content": "Hi"}, "finish_reason": "length"}]}).finish_reason
            <FinishReason.MAX_TOKENS: 'max_tokens'>
            >>> undo()
        """
        name = _name(provider)
        made = self._made(name, detector, like)
        with self._lock:
            before = self._registered.get(name)
            self._registered = {**self._registered, name: made}

        def undo() -> None:
            with self._lock:
                if self._registered.get(name) is made:
                    rest = {key: value for key, value in self._registered.items() if key != name}
                    self._registered = rest if before is None else {**rest, name: before}

        return undo

    def get(self, provider: str) -> Detector:
        """Return the detector of a provider: the registered one, else agentlab's, else the detector that reads the response's pattern.

        Example:
            >>> lab.signals.get("anthropic").detect({"type": "message", "content": [], "stop_reason": "refusal"}).finish_reason
            <FinishReason.CONTENT_FILTERED: 'content_filtered'>
        """
        return self._registered_for(provider) or _own_detector(_name(provider), _model(provider))

    def detect(
        self,
        provider: str,
        payload: JSON,
        *,
        streaming: bool | None = None,
        status: int | None = 200,
        requested_cap: int | None = None,
    ) -> TerminationSignal:
        """Return why a recorded response ended.

        `provider` is a provider's name, with an optional version and model (`gemini@v1:gemini-3.5-flash`; the signal keeps the model).
        Responses of an unknown provider are read by their pattern. `payload` is a body as an object, JSON as text or bytes, a whole
        server-sent-events body as text or bytes, or binary event-stream frames; `streaming` says whether it is a stream, None detects
        that. `status` is the HTTP status, None if unknown: from 400 on, the response is an error, or CONTENT_FILTERED if the body says
        so. `requested_cap` is the requested output cap in tokens.

        Never raises, whatever the provider sent.

        Example:
            >>> body = {"candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": [{"text": "A cut"}]}}]}
            >>> signal = lab.detect("gemini", body)
            >>> signal.finish_reason, signal.raw_value, signal.confidence
            (<FinishReason.MAX_TOKENS: 'max_tokens'>, 'MAX_TOKENS', <Confidence.HIGH: 'high'>)
            >>> lab.detect("openai", b"<html>Bad gateway</html>", status=502).finish_reason
            <FinishReason.ERROR: 'error'>
        """
        detector, model = self.get(provider), _model(provider)
        signal = _signal_of(
            _name(provider),
            lambda: detector.detect(payload, streaming=streaming, status=status, requested_cap=requested_cap),
        )
        log_signal(signal, _name(provider), model)
        return replace(signal, model=model) if model and not signal.model else signal

    def stream(self, provider: str, *, requested_cap: int | None = None) -> StreamParser:
        """Return a parser for one stream: `feed(bytes) -> events`, `finish() -> TerminationSignal`, `response()`, `reset()`.

        Example:
            >>> parser = lab.signals.stream("openai")
            >>> parser.feed(b'data: {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "length"}]}' + bytes([10, 10]))
            [TextDelta(text='Hi'), SignalSeen(signal=TerminationSignal(finish_reason=<FinishReason.MAX_TOKENS: 'max_...
            >>> parser.finish().finish_reason
            <FinishReason.MAX_TOKENS: 'max_tokens'>
        """
        return self.get(provider).stream(requested_cap=requested_cap)

    def reread(self, provider: str, response: ModelResponse, *, sound: bool = True) -> ModelResponse:
        """Return a run's response with the signal of the registered detector, if there is one. `sound` is False for a response whose
        stream broke off."""
        detector = self._registered_for(provider)
        if detector is None:
            return response
        if isinstance(detector, BodyReaderDetector):
            signal = detector.of_body(response.raw, sound=sound)
        else:
            signal = _signal_of(_name(provider), lambda: detector.detect(response.raw, streaming=False))
        if response.is_spoilt:
            signal = not_whole(signal, response.holes)
        return replace(response, signal=signal)

    def _registered_for(self, provider: str) -> Detector | None:
        name = _name(provider)
        return self._registered.get(name) or self._registered.get(split_version(name)[0])

    def _made(self, name: str, detector: Detector | BodyReader | str, like: str | None) -> Detector:
        if isinstance(detector, str):
            return replace(provider_detector(_name(detector)), renamed=name)
        if hasattr(detector, "detect") and hasattr(detector, "stream"):
            return detector
        if callable(detector):
            return BodyReaderDetector(name, detector, _wire_of(name) if like is None else provider_detector(_name(like)))
        raise ConfigurationError(
            f"register({name!r}, {detector!r}): pass a function that returns the TerminationSignal of a response body, the name of a "
            "provider with the same wire, or an object with `detect` and `stream`."
        )


@functools.lru_cache(256)
def _own_detector(name: str, model: str = "") -> BodyDetector:
    """Return agentlab's detector of this name. Cached, since the search for an unknown provider reads all installed packages."""
    if model:
        return _own_detector(name).of_model(model)
    try:
        return provider_detector(name)
    except UnknownProviderError as error:
        _logger().warning("%s Its responses are read by their pattern; signals.register(%r, …) sets a detector.", error, name)
        return PatternDetector(name)


def _wire_of(name: str) -> BodyDetector:
    """Return agentlab's detector for a name that is being registered, which may be unknown."""
    try:
        return provider_detector(name)
    except UnknownProviderError:
        return PatternDetector(name)


def log_signal(signal: TerminationSignal, provider: str, model: str) -> None:
    """Log why a response ended, at DEBUG: the reason and the provider's value, but no text."""
    logger = _logger()
    if logger.isEnabledFor(logging.DEBUG):
        value = signal.raw_value
        if isinstance(value, str) and not _PLAIN_VALUE.fullmatch(value):
            value = f"<{len(value)} characters>"
        reason, sure, where = signal.finish_reason, signal.confidence, signal.raw_field or "no field"
        logger.debug("%s (%s): %s, %s confidence, %s=%s", provider, model or "model unknown", reason, sure, where, value)


def _model(provider: str) -> str:
    """Return the model after a provider's name, "" if there is none."""
    return provider.partition(":")[2].strip()


def _name(provider: str) -> str:
    """Return a provider's name without the model after it. Raises ConfigurationError for an empty name."""
    name = provider.partition(":")[0].strip() if isinstance(provider, str) else ""
    if not name:
        raise ConfigurationError(
            f"{provider!r} is not a provider. Write a name such as 'openai'; agentlab has {', '.join(names())}."
        )
    return name


registry = SignalRegistry()
"""The registry of `lab.detect` and of all runs."""

register = registry.register
get = registry.get
detect = registry.detect
stream = registry.stream

__all__ = ["SignalRegistry", "detect", "get", "register", "registry", "stream"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks("agentlab.signals", __all__)
