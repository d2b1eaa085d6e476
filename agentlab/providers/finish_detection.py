"""Why a response ended, with no agent at all: recorded responses, streams chunk by chunk, and the registry of who reads them.

    lab.detect("gemini", payload)                     a recorded response -> TerminationSignal
    parser = lab.signals.stream("anthropic")          a stream: parser.feed(bytes) -> events, parser.finish() -> TerminationSignal
    lab.signals.register("my-gateway", "openai")      another name for a wire that is known
    lab.signals.register("openai", my_reader)         your own reading of a provider's bodies, in runs too; returns what undoes it
    lab.signals.get("openai").detect(payload)         the detector itself

A provider that nobody has told of is read by the pattern of its responses, at MEDIUM confidence.

The logger `agentlab.signals` gets each signal at DEBUG, those of runs too: provider, model, reason, confidence and the provider's word,
with no text of the conversation.

What reads responses for the reason of their end: the shape of a detector, and how a plain function becomes one.

Why one recorded response ended, read by a provider's own code: a body in any form, or a stream chunk by chunk.
"""

from __future__ import annotations

import abc
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from agentlab.errors import ConfigurationError, UnknownProviderError
from agentlab.no_such_name import only
from agentlab.providers.base import Provider as ProviderProtocol
from agentlab.providers.base import StreamParser
from agentlab.providers.registry import Provider, names, split_version
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import body_message, error_code, filtered_by, find_error, not_whole
from agentlab.providers.wires.incoming import LARGEST_ANSWER_BYTES, answer_of, never_run, read_json
from agentlab.redaction import in_words
from agentlab.types import JSON, Confidence, FinishReason, ModelResponse, SignalSeen, StreamEvent, TerminationSignal

logger = logging.getLogger("agentlab.signals")

_WORD = re.compile(r"[A-Za-z][A-Za-z_.-]{,63}")
MOST_KEPT = 256
"""Detectors that a registry remembers."""


class SignalRegistry:
    """Which detector reads which provider. Starts out with agentlab's own providers; safe for threads.

    Example:
        >>> own = lab.signals.SignalRegistry()
        >>> undo = own.register("my-gateway", "anthropic")
        >>> own.detect("my-gateway", {"type": "message", "content": [], "stop_reason": "max_tokens"}).finish_reason
        <FinishReason.MAX_TOKENS: 'max_tokens'>
    """

    def __init__(self) -> None:
        self._registered: dict[str, Detector] = {}
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], BodyDetector] = {}

    def __repr__(self) -> str:
        own = f", and registered: {', '.join(sorted(self._registered))}" if self._registered else ""
        return f"SignalRegistry({', '.join(names())}{own})"

    def register(self, provider: str, detector: Detector | BodyReader | str, *, like: str | None = None) -> Callable[[], None]:
        """Have `detector` read what `provider` answers, from now on, in runs too; returns what puts the former one back.

        `provider` may carry a version (`my-gateway@2`), and then stands for that version only. `detector` is a Detector, or a function
        from a response body to its TerminationSignal, or the name of a provider whose wire it is. `like` names the wire for a function,
        which gets streams put together; without it that is the provider's own, or found by the pattern.

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
        """The detector for a provider, with a version or without: the registered one, else agentlab's, else the one that goes by the
        response's pattern.

        Example:
            >>> lab.signals.get("anthropic").detect({"type": "message", "content": [], "stop_reason": "refusal"}).finish_reason
            <FinishReason.CONTENT_FILTERED: 'content_filtered'>
        """
        return self._registered_for(provider) or self._own(_name(provider), _model(provider))

    def detect(
        self,
        provider: str,
        payload: JSON,
        *,
        streaming: bool | None = None,
        status: int | None = 200,
        requested_cap: int | None = None,
    ) -> TerminationSignal:
        """Why a recorded response ended.

        `provider` is a provider's name (`gemini`; a version and a model are allowed, `gemini@v1:gemini-3.5-flash`, and the signal keeps
        the model); one that is not known is read by the response's pattern. `payload` is a body as an object, as JSON in text or bytes,
        a whole server-sent-events body in text or bytes, or binary event-stream frames; `streaming` says which, None finds out.
        `status` is the HTTP status, None where it is not known: 400 and above is an error whatever the body says, or CONTENT_FILTERED
        where it says so. `requested_cap` is the output cap that was asked for, in tokens.

        Never raises on what a provider sent. Of text or bytes above 64 MiB nothing is examined: it is UNKNOWN, as the message says.

        Example:
            >>> body = {"candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": [{"text": "A cut"}]}}]}
            >>> signal = lab.detect("gemini", body)
            >>> signal.finish_reason, signal.raw_value, signal.confidence
            (<FinishReason.MAX_TOKENS: 'max_tokens'>, 'MAX_TOKENS', <Confidence.HIGH: 'high'>)
            >>> lab.detect("openai", b"<html>Bad gateway</html>", status=502).finish_reason
            <FinishReason.ERROR: 'error'>
        """
        signal = self.get(provider).detect(payload, streaming=streaming, status=status, requested_cap=requested_cap)
        model = _model(provider)
        log_signal(signal, _name(provider), model)
        return replace(signal, model=model) if model and not signal.model else signal

    def stream(self, provider: str, *, requested_cap: int | None = None) -> StreamParser:
        """A parser for one stream of a provider: `feed(bytes) -> events`, `finish() -> TerminationSignal`, `response()`, `reset()`.

        Example:
            >>> parser = lab.signals.stream("openai")
            >>> parser.feed(b'data: {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "length"}]}' + bytes([10, 10]))
            [TextDelta(text='Hi'), SignalSeen(signal=TerminationSignal(finish_reason=<FinishReason.MAX_TOKENS: 'max_...
            >>> parser.finish().finish_reason
            <FinishReason.MAX_TOKENS: 'max_tokens'>
        """
        return self.get(provider).stream(requested_cap=requested_cap)

    def reread(self, provider: str, response: ModelResponse, *, sound: bool = True) -> ModelResponse:
        """A response that a run got, with the signal of the detector that a person registered, if there is one. `sound` is False
        where its stream broke off."""
        detector = self._registered_for(provider) if self._registered else None
        if detector is None:
            return response
        if isinstance(detector, BodyReaderDetector):
            signal = detector.of_body(response.raw, sound=sound)
        else:
            signal = detector.detect(response.raw, streaming=False)
        if response.is_spoilt:
            signal = not_whole(signal, response.holes)
        return replace(response, signal=signal)

    def _registered_for(self, provider: str) -> Detector | None:
        name = _name(provider)
        return self._registered.get(name) or self._registered.get(split_version(name)[0])

    def _own(self, name: str, model: str = "") -> BodyDetector:
        """agentlab's own detector of this name. Kept, since looking for a provider in vain goes through all installed packages."""
        found = self._kept.get((name, model))
        if found is None:
            found = self._own(name).of_model(model) if model else self._looked_for(name)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[name, model] = found
        return found

    def _looked_for(self, name: str) -> BodyDetector:
        try:
            return provider_detector(name)
        except UnknownProviderError as error:
            from agentlab.providers.pattern import PatternDetector  # for few people

            logger.warning("%s Its responses are read by their pattern, until signals.register(%r, …) says how.", error, name)
            return PatternDetector(name)

    def _made(self, name: str, detector: Detector | BodyReader | str, like: str | None) -> Detector:
        if isinstance(detector, str):
            return RenamedDetector(name, provider_detector(_name(detector)))
        if hasattr(detector, "detect") and hasattr(detector, "stream"):
            return detector
        if callable(detector):
            return BodyReaderDetector(name, detector, self._own(name) if like is None else provider_detector(_name(like)))
        raise ConfigurationError(
            f"register({name!r}, {detector!r}): give a function from a response body to its TerminationSignal, the name of a provider "
            "whose wire it is, or an object with `detect` and `stream`."
        )


def log_signal(signal: TerminationSignal, provider: str, model: str) -> None:
    """Log why a response ended, at DEBUG: the reason and the provider's word, never its sentences."""
    if logger.isEnabledFor(logging.DEBUG):
        value = signal.raw_value
        word = value if isinstance(value, int | None) or _WORD.fullmatch(value) else f"<{len(value)} characters>"
        reason, sure, where = signal.finish_reason, signal.confidence, signal.raw_field or "no field"
        logger.debug("%s (%s): %s, %s confidence, %s=%s", provider, model or "model unknown", reason, sure, where, word)


def _model(provider: str) -> str:
    """The model behind a provider's name, "" where there is none."""
    return provider.partition(":")[2].strip()


def _name(provider: str) -> str:
    """A provider's name without the model that may stand behind it. Raises ConfigurationError where there is none."""
    name = provider.partition(":")[0].strip() if isinstance(provider, str) else ""
    if not name:
        raise ConfigurationError(
            f"{provider!r} is no provider's name: write one such as 'openai'; agentlab has {', '.join(names())}."
        )
    return name


registry = SignalRegistry()
"""The registry that `lab.detect` and all runs use."""

register = registry.register
get = registry.get
detect = registry.detect
stream = registry.stream

__all__ = ["SignalRegistry", "detect", "get", "register", "registry", "stream"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__)


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
