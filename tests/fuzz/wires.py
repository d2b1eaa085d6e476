"""The fuzzer's own knowledge of the wires, independent of the code under test: events, last events, and the providers of each wire."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from agentlab.providers.registry import find, names

_FAMILIES = {"chat": "chat", "responses": "responses", "messages": "anthropic", "generate": "gemini", "converse": "bedrock"}
"""By the last part of a wire's name."""


NAMES = frozenset(names())  # each call reads the entry points of all installed packages


@cache
def family(provider: str) -> str:
    """The wire that a provider uses; for an unknown provider or one with a separate wire, its name."""
    if provider not in NAMES:
        return provider
    kind: Any = find(provider)
    return _FAMILIES.get(kind.wire.rpartition(".")[2], provider)


UNKNOWN_NAME = "some-gateway"
"""An unknown provider: its responses are read by their pattern."""

PROVIDERS = (*(name for name in sorted(NAMES) if family(name) in _FAMILIES.values()), UNKNOWN_NAME)

READERS = (
    *("anthropic", "gemini", "bedrock", "openai-responses", "compatible-responses"),
    *("openai", "azure", "mistral", "openrouter", "xai"),  # on one wire, with different fields and finish reasons
    UNKNOWN_NAME,
)
"""A provider for each way in which responses are read: the others differ in their names, addresses and requests."""

_LAST_RESPONSES = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
_REASON_FIELDS = ("finish_reason", "stop_reason", "finishReason", "blockReason", "stopReason")
_CONVERSE = ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata")
_SSE_EVENT = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r)|.+\Z", re.DOTALL)
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream: its bytes including the separator, its name, its data (None: none, or no JSON)."""

    raw: bytes
    name: str = ""
    data: Any = None

    @property
    def kind(self) -> str:
        """The event's type."""
        if isinstance(self.data, dict):
            inside = next((name for name in _CONVERSE if name in self.data), "")
            return str(self.data.get("type") or self.name or inside)
        return self.name


def form(body: bytes) -> str:
    """The format of a body: `frames`, `json`, or `events`."""
    start = body.lstrip(b" \t\r\n\xef\xbb\xbf")[:1]
    return "frames" if start in (b"\x00", b"\x01") else "json" if start in (b"{", b"[") else "events"


def split(body: bytes) -> list[Event]:
    """The events of a stream, whose bytes together are the body. A JSON body is one event."""
    return list(_split(body))


@lru_cache(maxsize=1_000)
def _split(body: bytes) -> tuple[Event, ...]:
    """Kept, since the same few hundred bodies are damaged in many ways."""
    how = form(body)
    if how == "frames":
        return tuple(_frames(body))
    return (Event(body, data=_json(body)),) if how == "json" else tuple(_event(block) for block in _SSE_EVENT.findall(body))


def _event(block: bytes) -> Event:
    name, data = "", []
    for line in re.split(rb"\r\n|\n|\r", block):
        if line.startswith(b"event:"):
            name = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"data:"):
            data.append(line[5:].strip())
    text = b"\n".join(data)
    return Event(block, name, "[DONE]" if text == b"[DONE]" else _json(text))


def _frames(body: bytes) -> Iterator[Event]:
    at = 0
    while at < len(body):
        size = max(int.from_bytes(body[at : at + _LENGTH_BYTES], "big"), 16)
        frame = body[at : at + size]
        headers = int.from_bytes(frame[4:8], "big")
        found = re.search(rb":(?:event|exception)-type\x07(..)", frame[12 : 12 + headers], re.DOTALL)
        start = 12 + (found.end() if found else 0)
        length = int.from_bytes(found[1], "big") if found else 0
        yield Event(frame, frame[start : start + length].decode("utf-8", "replace"), _json(frame[12 + headers : -4]))
        at += size


def _json(text: bytes) -> Any:
    try:
        return json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


# Content of an event -----------------------------------------------------------------------------------------------------------


def is_last(wire: str, event: Event) -> bool:
    """True if it is the wire's last event. Gemini has none: its finish reason counts."""
    if wire == "chat":
        return bool(event.data == "[DONE]")
    if wire == "responses":
        return event.kind in _LAST_RESPONSES
    return event.kind == "message_stop" if wire == "anthropic" else has_reason(wire, event)


def has_reason(wire: str, event: Event) -> bool:
    """True if it has the finish reason."""
    if wire == "responses":
        return event.kind in _LAST_RESPONSES
    return event.kind == "messageStop" if wire == "bedrock" else _holds(event.data, _REASON_FIELDS)


def is_error(event: Event) -> bool:
    """True if it reports an error."""
    return "error" in event.kind.lower() or event.kind.endswith("Exception") or _holds(event.data, ("error",))


def _holds(value: Any, names: tuple[str, ...], depth: int = 6) -> bool:
    if isinstance(value, dict) and depth:
        return any(value.get(name) for name in names) or any(_holds(part, names, depth - 1) for part in value.values())
    return isinstance(value, list) and depth > 0 and any(_holds(part, names, depth - 1) for part in value)


def has_content(wire: str, event: Event) -> bool:
    """True if it adds text or a piece of a call to the answer."""
    data = event.data if isinstance(event.data, dict) else {}
    if wire == "chat":
        choices = [choice for choice in data.get("choices") or [] if isinstance(choice, dict) and not choice.get("index")]
        deltas = [choice.get("delta") or {} for choice in choices]
        calls = [call.get("function") or {} for delta in deltas for call in delta.get("tool_calls") or []]
        return any(delta.get("content") for delta in deltas) or any(call.get("arguments") for call in calls)
    if wire == "gemini":
        parts = [part for one in data.get("candidates") or [] for part in (one.get("content") or {}).get("parts") or []]
        return any(part.get("text") or part.get("functionCall") for part in parts)
    if wire == "responses":
        return event.kind in ("response.output_text.delta", "response.function_call_arguments.delta") and bool(data.get("delta"))
    if wire == "anthropic":
        delta = data.get("delta") if event.kind == "content_block_delta" else None
        return isinstance(delta, dict) and bool(delta.get("text") or delta.get("partial_json"))
    delta = data.get("delta", (data.get("contentBlockDelta") or {}).get("delta")) if event.kind == "contentBlockDelta" else None
    return isinstance(delta, dict) and bool(delta.get("text") or (delta.get("toolUse") or {}).get("input"))
