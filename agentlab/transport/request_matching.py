"""Decides whether two requests are the same, and describes their differences for a miss.

Addresses and bodies are compared in one spelling, with numbers for the ids of tool calls. Ids that a body refers to but does not
declare are kept: they refer to something on the server.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from agentlab._internal.redaction import Redactor, is_key_parameter, redact_url
from agentlab.model.messages import JSON
from agentlab.model.parts import sniff
from agentlab.transport.cassette import Interaction

VOLATILE_FIELDS = frozenset({"metadata", "prompt_cache_key", "requestMetadata", "safety_identifier", "user"})
"""Top-level fields of a body that name the user or the purpose; they do not change the answer, and are not compared."""

_PORTS = {"http": 80, "https": 443}
_REGIONAL = re.compile(r"(bedrock-runtime)\.[a-z0-9-]+(\.amazonaws\.com)")


@lru_cache(maxsize=4096)
def address(method: str, url: str) -> str:
    """Return method, host, path and query in one spelling: without keys, http equal to https, all AWS regions equal."""
    parts = urlsplit(redact_url(url))
    try:
        port = parts.port
    except ValueError:
        port = None
    host = _REGIONAL.sub(r"\1\2", parts.hostname or "") + (f":{port}" if port and port != _PORTS.get(parts.scheme) else "")
    pairs = sorted(pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not is_key_parameter(pair[0]))
    query = "?" + "&".join(f"{name}={value}" for name, value in pairs) if pairs else ""
    return f"{method.upper()} {host}{unquote(parts.path) or '/'}{query}"


_MEDIA = re.compile(
    rb'("(?:data|blob|bytes|url|image_url|file_data)"\s*:\s*"(?:data:[^",;]{1,80};base64,)?)([A-Za-z0-9+/]{64,}={0,2})"'
)
"""The places of bytes of images, documents and audio in the requests of all wires, and in the results of MCP servers."""


def without_media(body: bytes, found: dict[str, bytes] | None = None) -> bytes:
    """Return a body with `sha256:…` in place of the bytes of images, documents and audio, which are added to `found` by their hash.
    Other base64, such as signatures, stays."""

    def replaced(match: re.Match[bytes]) -> bytes:
        try:
            if not sniff(base64.b64decode(match[2][:64])):
                return match[0]
            data = base64.b64decode(match[2])
        except binascii.Error:
            return match[0]
        sha256 = hashlib.sha256(data).hexdigest()
        if found is not None:
            found[sha256] = data
        return b'%bsha256:%b"' % (match[1], sha256.encode())

    return _MEDIA.sub(replaced, body)


def canonical_body(body: bytes) -> bytes:
    """Return a body in one spelling.

    JSON gets sorted keys, without white space and VOLATILE_FIELDS; 1.0 becomes 1, and later instructions get the role of the user, as
    in older recordings. Images and files are replaced by their hash. Other bodies are unchanged.
    """
    if not body:
        return b""
    body = without_media(body)
    try:
        value = json.loads(body, parse_float=_as_number)
        if isinstance(value, dict) and not VOLATILE_FIELDS.isdisjoint(value):
            value = {key: part for key, part in value.items() if key not in VOLATILE_FIELDS}
        if b'"system"' in body or b'"developer"' in body:
            _rename_later_instructions(value)
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return body


def _rename_later_instructions(value: object) -> None:
    """Give instructions that follow another message the role of the user."""
    for name in ("messages", "input"):
        messages = value.get(name) if isinstance(value, dict) else None
        is_later = False
        for message in messages if isinstance(messages, list) else ():
            is_instruction = isinstance(message, dict) and message.get("role") in ("system", "developer")
            if is_instruction and is_later:
                message["role"] = "user"
            is_later = is_later or not is_instruction


def same_question(body: bytes) -> bytes:
    """Return the canonical form with numbers for the ids of tool calls, equal for all recordings of one request."""
    return canonical_body(with_numbered_calls(body) or body)


def _as_number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


# Ids of tool calls -------------------------------------------------------------------------------------------------------------

_Place = tuple[dict[str, Any], str]
"""A part of a body, and the name of its field with an id."""


def with_numbered_calls(body: bytes) -> bytes | None:
    """Return the body with numbers for the ids of its tool calls; None if it has none."""
    try:
        value = json.loads(body)
        numbers: dict[str, str] = {}
        for part, name in _declared_ids(value):
            numbers.setdefault(part[name], f"call {len(numbers) + 1}")
        if not numbers:
            return None
        places = [(part, name) for part, name in (*_declared_ids(value), *_referenced_ids(value)) if part[name] in numbers]
        for part, name in {(id(part), name): (part, name) for part, name in places}.values():
            part[name] = numbers[part[name]]
        return json.dumps(value).encode()
    except (ValueError, RecursionError):
        return None


def _declared_ids(body: Any) -> Iterator[_Place]:
    """Yield the ids of tool calls, and on the Responses wire those of output items."""
    for part in _parts(body):
        kind = part.get("type")
        kind = kind if isinstance(kind, str) else ""
        for call in _dicts(part.get("tool_calls")):  # chat completions
            yield from _id_field(call, "id")
        if kind.endswith("tool_use"):  # Anthropic
            yield from _id_field(part, "id")
        elif kind.endswith("_call"):  # Responses
            yield from _id_field(part, "call_id")
            yield from _id_field(part, "id")
        elif kind == "message" and part.get("content"):
            yield from _id_field(part, "id")
        yield from _id_field(part.get("toolUse"), "toolUseId")  # Bedrock
        yield from _id_field(part.get("functionCall"), "id")  # Gemini


def _referenced_ids(body: Any) -> Iterator[_Place]:
    """Yield the references to ids of tool calls and output items."""
    for part in _parts(body):
        yield from _id_field(part, "tool_call_id")
        yield from _id_field(part, "tool_use_id")
        yield from _id_field(part, "call_id")
        if part.get("type") == "item_reference":
            yield from _id_field(part, "id")
        yield from _id_field(part.get("toolResult"), "toolUseId")
        yield from _id_field(part.get("functionResponse"), "id")


def _parts(body: Any) -> Iterator[dict[str, Any]]:
    """Yield messages and items, and their blocks; not the arguments and schemas in those."""
    if isinstance(body, dict):
        for conversation in ("messages", "input", "contents"):
            for message in _dicts(body.get(conversation)):
                yield message
                yield from _dicts(message.get("content"))
                yield from _dicts(message.get("parts"))


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))


def _id_field(part: object, name: str) -> Iterator[_Place]:
    if isinstance(part, dict) and isinstance(part.get(name), str) and part[name]:
        yield part, name


_MAX_COMPARED = 200
_FIELDS_SHOWN = 8
_WIDTH = 70
_MISSING = object()


def nearest(body: bytes, candidates: Sequence[Interaction]) -> Interaction:
    """Return the candidate with the most similar body."""
    requested = _parsed(body)
    return max(candidates[:_MAX_COMPARED], key=lambda candidate: _similarity(_parsed(candidate.body), requested))


def describe_difference(recorded: bytes, requested: bytes, *, ignored: Collection[str] = ()) -> str:
    """Return one line for each field that differs."""
    redact = Redactor().body  # before values are cut: half a key is secret too
    before, after = (_parsed(redact(body)[0]) for body in (recorded, requested))
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = ({key: value for key, value in body.items() if key not in ignored} for body in (before, after))
    found = list(_differences(before, after, ""))
    lines = [f"  {path or 'body'}: {_pair(old, new)}" for path, old, new in found]
    more = f"\n  and {len(lines) - _FIELDS_SHOWN} more fields" if len(lines) > _FIELDS_SHOWN else ""
    return "\n".join(lines[:_FIELDS_SHOWN]) + more


def _parsed(body: bytes) -> JSON:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def _similarity(recorded: JSON, requested: JSON) -> float:
    """Return a similarity from 0 to 1. Lists (messages, tools) weigh most, and count up to their first difference."""
    if recorded == requested:
        return 1.0
    if isinstance(recorded, dict) and isinstance(requested, dict):
        weights = {
            key: 4 if isinstance(recorded.get(key, requested.get(key)), list) else 1 for key in recorded.keys() | requested.keys()
        }
        shared = recorded.keys() & requested.keys()
        return sum(weights[key] * _similarity(recorded[key], requested[key]) for key in shared) / sum(weights.values())
    if isinstance(recorded, list) and isinstance(requested, list):
        pairs = enumerate(zip(recorded, requested, strict=False))
        equal = next((index for index, (old, new) in pairs if old != new), min(len(recorded), len(requested)))
        partly = _similarity(recorded[equal], requested[equal]) if equal < min(len(recorded), len(requested)) else 0.0
        return (equal + partly) / max(len(recorded), len(requested))
    if isinstance(recorded, str) and isinstance(requested, str):
        return 0.5 * _common(recorded, requested) / max(len(recorded), len(requested))
    return 0.0


def _common(first: str, second: str) -> int:
    """Return the number of equal leading characters."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


def _differences(recorded: JSON, requested: JSON, path: str) -> Iterator[tuple[str, JSON, JSON]]:
    if recorded == requested and type(recorded) is type(requested):
        return
    if isinstance(recorded, dict) and isinstance(requested, dict):
        for key in [*recorded, *(key for key in requested if key not in recorded)]:
            inner = f"{path}.{key}" if path else str(key)
            yield from _differences(recorded.get(key, _MISSING), requested.get(key, _MISSING), inner)
    elif isinstance(recorded, list) and isinstance(requested, list):
        for index in range(max(len(recorded), len(requested))):
            old = recorded[index] if index < len(recorded) else _MISSING
            new = requested[index] if index < len(requested) else _MISSING
            yield from _differences(old, new, f"{path}[{index}]")
    elif recorded != requested:
        yield path, recorded, requested


def _pair(recorded: JSON, requested: JSON) -> str:
    """Describe both values, cut to where they begin to differ."""
    old, new = _shown(recorded), _shown(requested)
    common = _common(old, new)
    if max(len(old), len(new)) > _WIDTH and common > 25:
        old, new = (f'"…{text[common - 20 :]}' for text in (old, new))
    return f"recorded {_cut(old)}, requested {_cut(new)}"


def _shown(value: JSON) -> str:
    return "nothing" if value is _MISSING else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
