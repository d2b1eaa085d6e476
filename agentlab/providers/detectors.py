"""agentlab's detectors: responses of a known provider are read by its wire, those of an unknown provider by their pattern.

Most servers speak one of a few wires, so the shape of a response shows which reader fits. If none fits, the body is searched for a
field with the name of a finish reason and a value that some vendor uses. Both are inferences, so the confidence is at most MEDIUM.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass, replace

from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError, UnknownProviderError
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON
from agentlab.model.responses import Hole, ModelResponse, SignalSeen, StreamEvent
from agentlab.providers.base import Provider as ProviderProtocol
from agentlab.providers.base import StreamParser
from agentlab.providers.registry import Provider, own_tables
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import (
    Facts,
    Table,
    body_message,
    error_code,
    filtered_by,
    find_error,
    judge,
    not_whole,
)
from agentlab.providers.wires.incoming import UNREADABLE, Event, Incoming, read_json
from agentlab.providers.wires.stream import BROKEN

MAX_ERROR_BODY_BYTES = 2**20
"""The part of an error body that is read."""

_SHOWN_CHARACTERS = 80

_BATCH_LINE = (
    "The body is a line of a batch's results. Pass the response in it: line['response']['body'] (OpenAI), line['result']['message'] "
    "(Anthropic) or line['modelOutput'] (Bedrock)."
)


class BodyDetector(abc.ABC):
    """The base of agentlab's detectors: distinguishes an error status, a whole body and a stream."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def _name(self) -> str:
        """The provider's name in the signal."""

    def detect(
        self, payload: JSON, *, streaming: bool | None = None, status: int | None = 200, requested_cap: int | None = None
    ) -> TerminationSignal:
        """Return why this response ended; see `agentlab.detect`."""
        if status is not None and status >= 400:
            return self._read_refusal(payload, status)
        body, events = opened(payload, streaming)
        if events is None:
            signal = self._read_answer(body, requested_cap)
        else:
            parser = self.stream(requested_cap=requested_cap)
            parser.feed(events)
            signal = explained(parser.finish(), events)
        return signal if signal.provider == self._name else replace(signal, provider=self._name)

    @abc.abstractmethod
    def of_model(self, model: str) -> BodyDetector:
        """Return the detector for one model, which signals and the log then name."""

    @abc.abstractmethod
    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a parser for one stream: `feed(bytes)`, then `finish()`."""

    def _read_refusal(self, payload: JSON, status: int) -> TerminationSignal:
        """Return the signal of a status from 400 on, with the details of a content filter that refused the request."""
        body = refusal_body(payload)
        signal = status_signal(self._name, body, status)
        if signal.finish_reason is FinishReason.ERROR:
            return signal
        return replace(signal, metadata={**self._read_answer(body, None).metadata, **signal.metadata})

    @abc.abstractmethod
    def _read_answer(self, body: JSON, requested_cap: int | None) -> TerminationSignal:
        """Return the signal of a whole body."""


@dataclass(frozen=True, slots=True)
class WireDetector(BodyDetector):
    """Reads the responses of one provider. `renamed` is another provider's name for the signal."""

    wire: ProviderProtocol
    renamed: str = ""

    @property
    def _name(self) -> str:
        return self.renamed or self.wire.name

    def of_model(self, model: str) -> WireDetector:
        """Return the detector for one model."""
        return replace(self, wire=replace(self.wire, model=model)) if is_dataclass(self.wire) else self

    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a parser for one stream: `feed(bytes)`, then `finish()`."""
        return self.wire.stream_parser(requested_cap=requested_cap)

    def _read_answer(self, body: JSON, requested_cap: int | None) -> TerminationSignal:
        return explained(self.wire.parse(body, requested_cap=requested_cap).signal, body)


def provider_detector(name: str, model: str = "") -> WireDetector:
    """Return the detector of a provider. Nothing is sent, so a missing address does not matter. An empty `model` means unknown.

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
    """Return a payload as a whole body and None, or as None and the bytes of a stream. A list of chunks counts as a stream."""
    events = as_bytes(payload)
    if events is None:
        return (payload, None) if not isinstance(payload, list) or streaming is False else (None, read.dumps(payload))
    if streaming is not True:
        try:
            value = read.loads(events.decode("utf-8", "replace"))
        except ValueError:
            return None, events
        if not isinstance(value, list) or len(value) == 1:
            return (value[0] if isinstance(value, list) else value), None
    return None, events


def as_bytes(payload: JSON) -> bytes | None:
    """Return text or bytes as bytes; None for an object."""
    if isinstance(payload, str):
        return payload.encode("utf-8", "surrogatepass")
    return bytes(payload) if isinstance(payload, bytes | bytearray | memoryview) else None


def explained(signal: TerminationSignal, body: JSON) -> TerminationSignal:
    """Return the signal, with a message that describes the body if nothing in it could be read."""
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
        return replace(signal, message=f"The body is JSON, but not an object: {str(body)[:_SHOWN_CHARACTERS]!r}.")
    if "custom_id" in body or "recordId" in body:
        return replace(signal, message=_BATCH_LINE)
    return signal


def refusal_body(payload: JSON) -> JSON:
    """Return an error body as an object, or as text if it is not JSON."""
    body = as_bytes(payload)
    if body is None:
        return payload
    text = body[:MAX_ERROR_BODY_BYTES].decode("utf-8", "replace")
    values, _ = read_json(text.removeprefix("data:"))
    return values[0] if values else text


def status_signal(provider: str, payload: JSON, status: int) -> TerminationSignal:
    """Return the signal of a status from 400 on: an error, unless the body says that a content filter refused the request."""
    error = find_error(payload)
    filtered = filtered_by(payload if error is None else error)
    where, value = filtered or (error_code(error) if error is not None else ("status", status))
    message = body_message(payload) if not isinstance(payload, str) else read.as_text(payload[:200]).strip()
    return TerminationSignal(
        finish_reason=FinishReason.CONTENT_FILTERED if filtered else FinishReason.ERROR,
        confidence=Confidence.HIGH,
        provider=provider,
        raw_field=where,
        raw_value=value,
        message=f"HTTP {status}: {message}" if message else f"HTTP {status}",
        metadata={"status": status},
    )


# Unknown providers ----------------------------------------------------------------------------------------------------------

FIELDS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason", "completionReason", "termination_reason")
"""Names of the field with the finish reason."""

_OTHER_WORDS: Mapping[str | int, FinishReason] = {
    **dict.fromkeys(("complete", "finish", "finished", "end_of_text"), FinishReason.END_TURN),
    "tool_call": FinishReason.TOOL_CALLS,
    **dict.fromkeys(("max_length", "token_limit"), FinishReason.MAX_TOKENS),
    "context_length_exceeded": FinishReason.CONTEXT_WINDOW_EXCEEDED,
    **dict.fromkeys(("canceled", "user_cancel"), FinishReason.CANCELLED),
}
"""Words of Cohere, Ollama, Text Generation Inference and watsonx (their API references, read 2026-11-22), and `tool_call` of
OpenTelemetry's own list."""


@functools.cache
def finish_words() -> Mapping[str | int, FinishReason]:
    """Return the meaning of each documented finish reason, in lower case; no word has two meanings. Recorders and gateways change
    the case of vendors' words."""
    found = dict(_OTHER_WORDS)
    for table in own_tables():
        for word, reason in table.reasons.items():
            if isinstance(word, str):
                found.setdefault(word.lower(), reason)
    return found


_LEVELS, _PLACES = 4, 500  # how deep and how wide a body is searched
_TEXTS = ("text", "content", "response", "generated_text", "completion", "output_text")
_CALLS = ("tool_calls", "function_call", "toolUse", "functionCall")


def reader_of(value: JSON) -> str | None:
    """Return the provider that can read a body, or the first event of a stream, of this shape; None if there is none."""
    body = read.as_dict(value[0] if isinstance(value, list) and value else value)
    kind = read.as_text(body.get("type"))
    output = body.get("output")
    if isinstance(body.get("choices"), list) or body.get("object") == "chat.completion.chunk":
        return "compatible"
    if kind.startswith("response.") or body.get("object") == "response" or (isinstance(output, list) and "status" in body):
        return "compatible-responses"
    if not body.keys().isdisjoint(("candidates", "promptFeedback", "usageMetadata")):
        return "gemini"
    if kind.startswith(("message_", "content_block_")) or (kind == "message" and isinstance(body.get("content"), list)):
        return "anthropic"
    if "stop_reason" in body and isinstance(body.get("content"), list):
        return "anthropic"
    if "stopReason" in body or "message" in read.as_dict(output) or not body.keys().isdisjoint(_CONVERSE_EVENTS):
        return "bedrock"
    return None


_CONVERSE_EVENTS = ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop")


@dataclass(frozen=True, slots=True)
class PatternDetector(BodyDetector):
    """Reads responses of an unknown provider by their shape. `provider` and `model` are the names in the signal."""

    provider: str
    model: str = ""

    @property
    def _name(self) -> str:
        return self.provider

    def of_model(self, model: str) -> PatternDetector:
        """Return the detector for one model."""
        return PatternDetector(self.provider, model)

    def stream(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a parser for one stream: `feed(bytes)`, then `finish()`."""
        return PatternStreamParser(self, requested_cap)

    def _read_answer(self, body: JSON, requested_cap: int | None) -> TerminationSignal:
        name = reader_of(body)
        if name is None:
            return explained(self.by_name(body), body)
        return self.inferred(self.reader(name).detect(body, requested_cap=requested_cap), name)

    def reader(self, name: str) -> WireDetector:
        """Return the detector of the chosen wire; its log entries also name this provider."""
        return provider_detector(name, f"{self.provider}:{self.model}" if self.model else self.provider)

    def inferred(self, signal: TerminationSignal, reader: str) -> TerminationSignal:
        """Return the signal of the chosen reader as an inference, at most with MEDIUM confidence."""
        return replace(
            signal,
            provider=self.provider,
            confidence=Confidence.MEDIUM if signal.confidence is Confidence.HIGH else signal.confidence,
            metadata={**signal.metadata, "read_as": reader},
            model=self.model,
        )

    def by_name(self, body: JSON) -> TerminationSignal:
        """Return the signal of a body of unknown shape, from a field with the name of a finish reason."""
        where, value = next(_named(body, FIELDS), ("", None))
        normal = value.strip().lower() if isinstance(value, str) else value
        calls = [found for _, found in _named(body, _CALLS) if found]
        facts = Facts(
            tool_calls=len(calls),
            answered=bool(calls) or any(isinstance(text, str) and text for _, text in _named(body, _TEXTS)),
            error=find_error(body),
        )
        table = Table(field=where, reasons=finish_words(), stop_with_calls=True)
        signal = judge(table, normal, facts, provider=self.provider, model=self.model)
        sure = signal.confidence is Confidence.HIGH and signal.finish_reason is not FinishReason.ERROR
        raw = signal.raw_value if facts.error is not None or not isinstance(value, str) else value[:200]
        return replace(signal, confidence=Confidence.MEDIUM if sure else signal.confidence, raw_value=raw)


def _named(value: JSON, names: tuple[str, ...]) -> Iterator[tuple[str, JSON]]:
    """Yield the place and the value of each field with one of these names, the outermost first, without null values."""
    level: list[tuple[str, JSON]] = [("", value)]
    for _ in range(_LEVELS):
        below: list[tuple[str, JSON]] = []
        for where, here in level:
            if isinstance(here, dict):
                prefix = f"{where}." if where else ""
                yield from ((f"{prefix}{name}", here[name]) for name in names if here.get(name) is not None)
                below += [
                    (f"{prefix}{read.as_text(key)[:40]}", part) for key, part in here.items() if isinstance(part, dict | list)
                ]
            elif isinstance(here, list):
                below += [(f"{where}[]", part) for part in here]
        level = below[:_PLACES]


class PatternStreamParser:
    """Parses one stream of an unknown wire. Its first recognised event decides which wire's parser reads it."""

    def __init__(self, detector: PatternDetector, requested_cap: int | None) -> None:
        self._detector = detector
        self._cap = requested_cap
        self.reset()

    def reset(self) -> None:
        """Reset the parser, for another stream."""
        self._held: list[bytes] = []
        self._incoming = Incoming()
        self._values: list[JSON] = []
        self._examined = 0
        self._hole: Hole | None = None
        self._inner: StreamParser | None = None
        self._reader = ""
        self._response: ModelResponse | None = None

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Parse the next bytes and return the events that they complete."""
        if self._inner is not None:
            return self._inferred(self._inner.feed(data))
        self._held.append(data)
        return self._choose(self._incoming.feed(data))

    def finish(self) -> TerminationSignal:
        """Return why the stream ended."""
        if self._response is None:
            if self._inner is None:
                events, values = self._incoming.finish()
                self._values += values
                self._choose(events)
            if self._inner is not None:
                self._inner.finish()
            self._response = self._so_far()
        return self._response.signal

    @property
    def sound(self) -> bool:
        """True if the stream is complete and nothing was lost; known after `finish`."""
        return self._inner is not None and self._inner.sound

    @property
    def cut_short(self) -> bool:
        """True if the body ended within an event, or before the first; known after `finish`."""
        return self._incoming.cut_short if self._inner is None else self._inner.cut_short

    def response(self) -> ModelResponse:
        """Return the response assembled from the stream; before `finish`, from the pieces so far."""
        return self._so_far() if self._response is None else self._response

    def _choose(self, events: list[Event]) -> list[StreamEvent]:
        """Choose the parser for the events so far, and feed it everything received."""
        for label, data in events:
            try:
                value = read.loads(data)
            except ValueError:
                if self._hole is None and data.strip() not in (b"", b"[DONE]"):
                    self._hole = Hole(len(self._text()), len(data.removeprefix(UNREADABLE)) or None, BROKEN)
                continue
            kind = label.decode("utf-8", "replace")  # the name of a frame's event is in its headers
            self._values.append({kind: value} if kind in _CONVERSE_EVENTS else value)
        name = next((name for value in self._values[self._examined :] if (name := reader_of(value))), None)
        self._examined = len(self._values)
        if name is None:
            return []
        self._reader, self._inner = name, self._detector.reader(name).stream(requested_cap=self._cap)
        held, self._held = b"".join(self._held), []
        return self._inferred(self._inner.feed(held))

    def _inferred(self, events: list[StreamEvent]) -> list[StreamEvent]:
        return [
            SignalSeen(self._detector.inferred(event.signal, self._reader)) if isinstance(event, SignalSeen) else event
            for event in events
        ]

    def _so_far(self) -> ModelResponse:
        if self._inner is None:
            return self._unread()
        response = self._inner.response()
        return replace(response, signal=self._detector.inferred(response.signal, self._reader))

    def _unread(self) -> ModelResponse:
        """Return the response to an unrecognised stream: all its events are searched by field name, the last one first."""
        signal = self._detector.by_name(self._values[::-1])
        holes = () if self._hole is None or self._incoming.cut_short else (self._hole,)
        signal = not_whole(signal, holes) if holes else signal
        return ModelResponse(read.whole_text(self._text()), signal, raw=self._values, holes=holes)

    def _text(self) -> str:
        return "".join(part for value in self._values for _, part in _named(value, _TEXTS) if isinstance(part, str))
