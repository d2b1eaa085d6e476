"""Reads spans from the common forms of JSON, and from them the attributes of OpenTelemetry's GenAI conventions.

The collector's file exporter writes one OTLP request per line: `{"resourceSpans": [{"scopeSpans": [{"spans": […]}]}]}`, with attributes
as a list of keys and typed values. OpenTelemetry's SDK for Python prints a span as an object over several lines, with attributes as an
object and times in ISO 8601. Ids are hexadecimal, or base64 if written by protobuf's plain JSON mapping.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agentlab.interop import otel_attributes as names
from agentlab.interop.rows import count_of, provider_of, text_of, usage_of
from agentlab.model.pricing import cost_of
from agentlab.model.usage import Cost, CostSource, Usage
from agentlab.providers.wires.read import money

_ERROR_CODES = (2, "2", "STATUS_CODE_ERROR", "ERROR")
_OTHER_SIGNALS = ("resourceLogs", "resourceMetrics", "resource_logs", "resource_metrics")


@dataclass(frozen=True, slots=True)
class Span:
    """A span. Ids are lower-case hexadecimal; `parent_id` is "" at the top; times are ns since 1970, None if unreadable."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int | None
    end_ns: int | None
    attributes: Mapping[str, Any]
    failed: bool

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the span."""
        return self.trace_id, self.span_id

    @property
    def parent(self) -> tuple[str, str]:
        """The key of its parent."""
        return self.trace_id, self.parent_id


@dataclass(slots=True)
class Faults:
    """Input that is not a span: the number of broken pieces, the place of the first, the number of other objects, some of their
    keys."""

    broken: int = 0
    first: str = ""
    other: int = 0
    seen: list[str] = field(default_factory=list)

    def add(self, where: str) -> None:
        """Count a broken piece."""
        self.broken += 1
        self.first = self.first or where


def spans_of_file(path: Path, faults: Faults) -> Iterator[Span]:
    """Yield the spans of a file: JSON lines, objects over several lines, or one array."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:  # Windows writes a byte order mark
        for number, text in _objects(file, path, faults):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                faults.add(f"{path.name}, line {number}")
                continue
            yield from spans_of_value(value, f"{path.name}, line {number}", faults)


def _objects(lines: Iterable[str], path: Path, faults: Faults) -> Iterator[tuple[int, str]]:
    """Yield the text of each object and the number of its first line.

    An object over several lines must begin and end with a bracket alone on an unindented line, as the usual printers write it. So a
    broken object does not affect the others.
    """
    start, kept = 0, list[str]()
    for number, line in enumerate(lines, 1):
        bare = line.rstrip()
        if kept and bare not in ("{", "["):
            kept.append(line)
            if bare in ("}", "]", "},"):
                yield start, "".join(kept).rstrip().rstrip(",")
                kept = []
        elif bare in ("{", "["):
            if kept:  # the previous object was cut off
                faults.add(f"{path.name}, line {start}")
            start, kept = number, [line]
        elif bare and bare not in (",", "]", "}"):
            yield number, bare.rstrip(",")
    if kept:
        faults.add(f"{path.name}, line {start}")


def spans_of_items(items: Iterable[Any], faults: Faults) -> Iterator[Span]:
    """Yield the spans of objects in memory: dicts of either form, JSON text, or spans of OpenTelemetry's SDK."""
    for place, item in enumerate(items, 1):
        value = item
        try:
            if hasattr(item, "to_json"):
                value = json.loads(item.to_json())
            elif isinstance(item, str | bytes):
                value = json.loads(item)
        except (ValueError, RecursionError):
            faults.add(f"item {place}")
            continue
        yield from spans_of_value(value, f"item {place}", faults)


def spans_of_value(value: Any, where: str, faults: Faults) -> Iterator[Span]:
    """Yield the spans of one JSON value."""
    if isinstance(value, list):
        for one in value:
            yield from spans_of_value(one, where, faults)
        return
    if not isinstance(value, Mapping):
        faults.add(where)
        return
    resources = value.get("resourceSpans", value.get("resource_spans"))
    if isinstance(resources, list):
        for resource in _objects_of(resources, where, faults):
            for scope in _objects_of(_first_of(resource, _SCOPES), where, faults):
                for one in _objects_of(scope.get("spans", []), where, faults):
                    yield from _span(one, where, faults)
    elif "context" in value or "spanId" in value or "span_id" in value:
        yield from _span(value, where, faults)
    else:
        faults.other += 1
        if not any(name in value for name in _OTHER_SIGNALS):
            faults.seen += [str(name)[:40] for name in list(value)[:5]]


_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")


def _first_of(value: Mapping[str, Any], names_of: tuple[str, ...]) -> Any:
    return next((value[name] for name in names_of if name in value), None)


def _objects_of(value: Any, where: str, faults: Faults) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list. What is none, and a value that is no list, are broken pieces."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, Mapping) and isinstance(value, list):
            yield one
        else:
            faults.add(where)


def _dicts(value: Any) -> Iterator[Mapping[str, Any]]:
    return (one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else iter(())


def _span(span: Mapping[str, Any], where: str, faults: Faults) -> Iterator[Span]:
    context = span.get("context")
    ids = context if isinstance(context, Mapping) else span
    trace_id = _id(ids.get("traceId", ids.get("trace_id")), 16)
    span_id = _id(ids.get("spanId", ids.get("span_id")), 8)
    if not trace_id or not span_id:
        faults.add(where)
        return
    status = span.get("status")
    code = status.get("code", status.get("status_code")) if isinstance(status, Mapping) else None
    yield Span(
        trace_id,
        span_id,
        _id(span.get("parentSpanId", span.get("parent_id", span.get("parent_span_id"))), 8),
        str(span.get("name") or ""),
        _time_ns(span.get("startTimeUnixNano", span.get("start_time_unix_nano", span.get("start_time")))),
        _time_ns(span.get("endTimeUnixNano", span.get("end_time_unix_nano", span.get("end_time")))),
        _attributes(span.get("attributes")),
        code in _ERROR_CODES,
    )


def _id(value: Any, size: int) -> str:
    """Return an id of `size` bytes as hexadecimal digits; "" if there is none."""
    if not isinstance(value, str):
        return ""
    bare = value.removeprefix("0x").lower()
    if len(bare) <= 2 * size and all(letter in "0123456789abcdef" for letter in bare):
        return bare.zfill(2 * size) if bare.strip("0") else ""
    try:
        raw = base64.b64decode(value, validate=True)
    except ValueError:
        return ""
    return raw.hex() if len(raw) == size and any(raw) else ""


def _time_ns(value: Any) -> int | None:
    """Return nanoseconds since 1970, from a number of nanoseconds or from ISO 8601."""
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and len(value) < 20:
            return int(value) or None
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return since // timedelta(microseconds=1) * 1_000
    return int(value) or None if isinstance(value, int | float) and 0 <= value < 1e19 else None


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(name): one for name, one in value.items()}
    return {str(one["key"]): _plain_value(one.get("value")) for one in _dicts(value) if "key" in one}


def _plain_value(value: Any) -> Any:
    """Return a typed value of OTLP as a plain one; None for bytes."""
    for kind, inner in value.items() if isinstance(value, Mapping) else ():
        match kind:
            case "stringValue" | "string_value" | "boolValue" | "bool_value" | "doubleValue" | "double_value":
                return inner
            case "intValue" | "int_value":
                return int(inner) if isinstance(inner, str) and inner.lstrip("-").isdigit() and len(inner) < 21 else inner
            case "arrayValue" | "array_value":
                return [_plain_value(one) for one in _dicts(inner.get("values") if isinstance(inner, Mapping) else None)]
            case "kvlistValue" | "kvlist_value":
                pairs = _dicts(inner.get("values") if isinstance(inner, Mapping) else None)
                return {str(one.get("key")): _plain_value(one.get("value")) for one in pairs}
    return None


# GenAI attributes ---------------------------------------------------------------------------------------------------------------
#
# The names of the current and earlier conventions, and the corresponding names of OpenLLMetry (`llm.request.type`,
# `gen_ai.completion.0.*`) and OpenInference (`openinference.span.kind`, `llm.token_count.*`).

AGENT, CHAT, TOOL = "agent", "chat", "tool"

_OPERATIONS = {
    names.INVOKE_AGENT: AGENT,
    names.CHAT: CHAT,
    "text_completion": CHAT,
    "generate_content": CHAT,
    names.EXECUTE_TOOL: TOOL,
}
_OTHER_KINDS = (
    ("openinference.span.kind", {"AGENT": AGENT, "LLM": CHAT, "TOOL": TOOL}),
    ("llm.request.type", {"chat": CHAT, "completion": CHAT}),
    ("traceloop.span.kind", {"agent": AGENT, "tool": TOOL}),
)

_INPUT = (names.INPUT_TOKENS, "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT = (names.OUTPUT_TOKENS, "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens", "llm.token_count.completion")
_CACHE_READ = (
    names.CACHE_READ_TOKENS,
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "llm.token_count.prompt_details.cache_read",
)
_CACHE_WRITE = (
    names.CACHE_WRITE_TOKENS,
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "llm.token_count.prompt_details.cache_write",
)
_REASONING = (
    names.REASONING_TOKENS,
    "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.details.reasoning_tokens",
    "llm.token_count.completion_details.reasoning",
)
_TIER = ("openai.response.service_tier", "gen_ai.openai.response.service_tier")
_COST = (names.COST_USD, "gen_ai.usage.cost", "operation.cost", "llm.cost.total")
_MODEL = (names.REQUEST_MODEL, names.RESPONSE_MODEL, "llm.model_name")
_PROVIDER = (names.PROVIDER, "gen_ai.system", "llm.provider", "llm.system")
_TOOL_NAME = (names.TOOL, "tool.name", "traceloop.entity.name")
_CONVERSATION = ("gen_ai.conversation.id", "session.id")


def kind_of(span: Span) -> str | None:
    """Return the kind of a span: an agent's run, a model call or a tool call; None for other spans."""
    attributes = span.attributes
    operation = attributes.get(names.OPERATION)
    if isinstance(operation, str):
        return _OPERATIONS.get(operation.lower())
    for name, kinds in _OTHER_KINDS:
        word = attributes.get(name)
        if isinstance(word, str) and word in kinds:
            return kinds[word]
    if names.TOOL in attributes:
        return TOOL
    return (
        CHAT
        if text_at(attributes, (names.REQUEST_MODEL,)) and ("gen_ai.system" in attributes or names.PROVIDER in attributes)
        else None
    )


def text_at(attributes: Mapping[str, Any], where: tuple[str, ...]) -> str | None:
    """Return the first of these attributes that is a non-empty text."""
    return next((text for name in where if (text := text_of(attributes.get(name)))), None)


def _count_at(attributes: Mapping[str, Any], where: tuple[str, ...]) -> int | None:
    return next((count for name in where if (count := count_of(attributes.get(name))) is not None), None)


def number_at(attributes: Mapping[str, Any], name: str) -> int | None:
    """Return a number that agentlab counts from 1."""
    return count_of(attributes.get(name)) or None


def model(span: Span) -> str | None:
    """Return the requested model, else that of the response."""
    return text_at(span.attributes, _MODEL)


def provider(span: Span) -> str | None:
    """Return agentlab's name of the provider."""
    return provider_of(text_at(span.attributes, _PROVIDER))


def conversation(span: Span) -> str | None:
    """Return the id of the conversation."""
    return text_at(span.attributes, _CONVERSATION)


def tool_name(span: Span) -> str:
    """Return the tool's name, else the span's."""
    return text_at(span.attributes, _TOOL_NAME) or span.name


def usage(span: Span) -> tuple[Usage, bool]:
    """Return the tokens, and True if cached tokens had to be added to the input.

    By the conventions the input includes tokens read from and written to a cache. If there are more cached tokens than input tokens,
    the span reports them separately, as Anthropic's API does.
    """
    attributes = span.attributes
    tokens_in, read, written = (
        _count_at(attributes, _INPUT),
        _count_at(attributes, _CACHE_READ),
        _count_at(attributes, _CACHE_WRITE),
    )
    cached = (read or 0) + (written or 0)
    apart = tokens_in is not None and cached > tokens_in
    if apart and tokens_in is not None:
        tokens_in += cached
    tier, reasoning = text_at(attributes, _TIER), _count_at(attributes, _REASONING)
    return usage_of(tokens_in, _count_at(attributes, _OUTPUT), read, written, reasoning, service_tier=tier), apart


def cost(span: Span, used: Usage, *, price: bool = True, several: bool = False) -> Cost:
    """Return the recorded cost, else the cost by public prices of that time if the server, the model and all tokens are known.

    With `price` False an unknown cost stays unknown; `several` is True if the tokens are those of several calls.
    """
    reported = next((usd for name in _COST if (usd := money(span.attributes.get(name))) is not None), None)
    if reported is not None:
        source = span.attributes.get(names.COST_SOURCE)
        return Cost(reported, CostSource.PRICED if source == CostSource.PRICED.value else CostSource.REPORTED)
    who = provider(span)
    if not price or who is None:
        return Cost(reason=text_at(span.attributes, (names.COST_NOTE,)) or "The record has no provider and no cost.")
    at = None if span.start_ns is None else datetime.fromtimestamp(span.start_ns / 1e9, UTC)
    host = text_at(span.attributes, (names.SERVER_ADDRESS,))
    address = f"https://{host}" if host else None
    found = Cost(reason="The record does not name the model.")
    asked, answered = (text_at(span.attributes, (name,)) for name in (names.REQUEST_MODEL, names.RESPONSE_MODEL))
    for one in dict.fromkeys(name for name in (asked, answered, model(span)) if name):
        found = cost_of(who, one, used, at=at, address=address, several=several)
        if found.usd is not None:
            return found
    return found


def finish_word(span: Span) -> str | None:
    """Return the provider's finish reason."""
    attributes = span.attributes
    words = attributes.get(names.FINISH_REASONS)
    if isinstance(words, str) and words.startswith("["):
        words = _parsed(words)
    first = words[0] if isinstance(words, list | tuple) and words else words
    if isinstance(first, str) and first:
        return first
    return text_at(attributes, ("gen_ai.completion.0.finish_reason", "llm.response.finish_reason", "llm.finish_reason"))


def answer(span: Span) -> tuple[str | None, tuple[str, ...] | None]:
    """Return the text of the model and the names of the tools it called; None if the span has no content, or none that can be
    read."""
    messages = _messages(span, names.OUTPUT_MESSAGES)
    parts = None if messages is None else [_parts(message) for message in messages]
    if parts is None or None in parts:
        return None, None
    every = [part for some in parts for part in some or ()]
    text = "".join(part["content"] for part in every if part["type"] == "text")
    return text, tuple(part["name"] for part in every if part["type"] == "tool_call")


def is_unreadable(span: Span) -> bool:
    """True if a span has an answer in a form that is unknown."""
    return names.OUTPUT_MESSAGES in span.attributes and answer(span)[0] is None


def prompt(span: Span) -> str | None:
    """Return the first user message."""
    for message in _messages(span, names.INPUT_MESSAGES) or []:
        if message.get("role") == "user":
            parts = _parts(message)
            return None if parts is None else "".join(part["content"] for part in parts if part["type"] == "text")
    return None


def _messages(span: Span, name: str) -> list[Mapping[str, Any]] | None:
    value = span.attributes.get(name)
    value = _parsed(value) if isinstance(value, str) else value
    return value if isinstance(value, list) and all(isinstance(one, Mapping) for one in value) else None


_NEEDED = {"text": "content", "tool_call": "name"}
"""The key of a part, by its type, that has a text."""


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """Return the parts of a message; None if their form is unknown."""
    parts = message.get("parts")
    return parts if isinstance(parts, list) and all(map(_is_part, parts)) else None


def _is_part(part: Any) -> bool:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return False
    needed = _NEEDED.get(part["type"])
    return needed is None or isinstance(part.get(needed), str)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
