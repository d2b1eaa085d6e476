"""Why a response ended, with no agent at all: recorded responses, streams chunk by chunk, and the registry of who reads them.

    lab.detect("gemini", payload)                     a recorded response -> TerminationSignal
    parser = lab.signals.stream("anthropic")          a stream: parser.feed(bytes) -> events, parser.finish() -> TerminationSignal
    lab.signals.register("my-gateway", "openai")      another name for a wire that is known
    lab.signals.register("openai", my_reader)         your own reading of a provider's bodies, in runs too; returns what undoes it
    lab.signals.get("openai").detect(payload)         the detector itself

A provider that nobody has told of is read by the pattern of its responses, at MEDIUM confidence.

The logger `agentlab.signals` gets each signal at DEBUG, those of runs too: provider, model, reason, confidence and the provider's word,
with no text of the conversation.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from agentlab.detectors import BodyReader, BodyReaderDetector, Detector, RenamedDetector
from agentlab.errors import ConfigurationError, UnknownProviderError
from agentlab.no_such_name import only
from agentlab.providers._base import StreamParser
from agentlab.providers._detect import BodyDetector, provider_detector
from agentlab.providers._registry import names, split_version
from agentlab.providers._signals import not_whole
from agentlab.types import JSON, ModelResponse, TerminationSignal

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
            from agentlab.providers._pattern import PatternDetector  # for few people

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
