"""Why one recorded response ended: `lab.detect`."""

from __future__ import annotations

from agentlab.errors import ConfigurationError, UnknownProviderError
from agentlab.providers import _read as read
from agentlab.providers._base import Provider as ProviderProtocol
from agentlab.providers._incoming import read_json
from agentlab.providers._registry import Provider
from agentlab.providers._signals import body_message, error_code, find_error
from agentlab.types import JSON, Confidence, FinishReason, TerminationSignal


def detect(
    provider: str,
    payload: JSON,
    *,
    streaming: bool | None = None,
    status: int = 200,
    requested_cap: int | None = None,
) -> TerminationSignal:
    """Why a recorded response ended.

    `provider` is a provider's name (`gemini`; a model after a colon is allowed). `payload` is a body as an object, as JSON in text or
    bytes, or a whole server-sent-events body in text or bytes. `streaming` says which; None finds out. `status` is the HTTP status:
    400 and above is an error whatever the body says. `requested_cap` is the output cap that was asked for, in tokens.

    Never raises on what a provider sent. Raises UnknownProviderError for a name that is none.
    """
    name, _, model = provider.partition(":")
    wire = _bare_provider(name, model or "unknown")
    if status >= 400:
        return _status_signal(wire, payload, status)
    if isinstance(payload, bytearray | memoryview):
        payload = bytes(payload)
    if isinstance(payload, str):
        payload = payload.encode("utf-8", "surrogatepass")
    if not isinstance(payload, bytes):
        if isinstance(payload, list) and streaming is not False:
            return _stream_signal(wire, read.dumps(payload), requested_cap)
        return wire.parse(payload, requested_cap=requested_cap).signal
    if streaming is not True:
        values, complete = read_json(payload.decode("utf-8", "replace"))
        if complete and len(values) == 1:
            return wire.parse(values[0], requested_cap=requested_cap).signal
    return _stream_signal(wire, payload, requested_cap)


def _bare_provider(name: str, model: str) -> ProviderProtocol:
    """A provider that will not be called. Its address does not matter, but some kinds demand one."""
    try:
        return Provider(name, model=model)
    except UnknownProviderError:
        raise
    except ConfigurationError:
        return Provider(name, model=model, base_url="http://localhost")


def _stream_signal(wire: ProviderProtocol, body: bytes, requested_cap: int | None) -> TerminationSignal:
    parser = wire.stream_parser(requested_cap=requested_cap)
    parser.feed(body)
    return parser.finish()


def _status_signal(wire: ProviderProtocol, payload: JSON, status: int) -> TerminationSignal:
    if isinstance(payload, bytes | bytearray | memoryview | str):
        text = payload if isinstance(payload, str) else bytes(payload).decode("utf-8", "replace")
        values, _ = read_json(text.removeprefix("data:"))
        payload = values[0] if values else text
    error = find_error(payload)
    where, value = error_code(error) if error is not None else ("status", status)
    words = body_message(payload) if not isinstance(payload, str) else payload[:200].strip()
    return TerminationSignal(
        finish_reason=FinishReason.ERROR,
        confidence=Confidence.HIGH,
        provider=wire.name,
        raw_field=where,
        raw_value=value,
        message=f"HTTP {status}: {words}" if words else f"HTTP {status}",
        metadata={"status": status},
    )
