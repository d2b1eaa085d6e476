"""Spans out of JSON, in whichever of its forms.

The collector's file exporter writes an OTLP request a line: `{"resourceSpans": [{"scopeSpans": [{"spans": […]}]}]}`, attributes as a
list of keys and typed values. OpenTelemetry's SDK for Python prints a span as an object over many lines, attributes as an object, times
in words. Ids are hexadecimal, or base64 where protobuf's plain JSON mapping wrote them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LONGEST_LINE = 64 * 1024 * 1024
"""Characters of one object: a line that is longer is left out."""
_DEEPEST = 12
_ERROR_CODES = (2, "2", "STATUS_CODE_ERROR", "ERROR")
_OTHER_SIGNALS = ("resourceLogs", "resourceMetrics", "resource_logs", "resource_metrics")


@dataclass(frozen=True, slots=True)
class Span:
    """A span. Ids are lower-case hexadecimal; `parent_id` is "" at the top; times are ns since 1970, None where they cannot be read."""

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
        """What tells it from all others."""
        return self.trace_id, self.span_id

    @property
    def parent(self) -> tuple[str, str]:
        """The key of the span above it."""
        return self.trace_id, self.parent_id


@dataclass(slots=True)
class Faults:
    """What could not be read: how many broken pieces, where the first of them is, and how much was no span."""

    broken: int = 0
    first: str = ""
    other: int = 0
    seen: list[str] = field(default_factory=list)

    def add(self, where: str) -> None:
        """One more broken piece."""
        self.broken += 1
        self.first = self.first or where


def spans_of_file(path: Path, faults: Faults) -> Iterator[Span]:
    """The spans of a file of JSON lines, or of objects over several lines, or of one array of them."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:  # with a mark at its start, as Windows writes it, or without
        for number, text in _objects(file, path, faults):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                faults.add(f"{path.name}, line {number}")
                continue
            yield from spans_of_value(value, f"{path.name}, line {number}", faults)


def _objects(file: Any, path: Path, faults: Faults) -> Iterator[tuple[int, str]]:
    """The text of each object and the number of its first line. One over several lines begins and ends with a bracket alone on a
    line, not indented, which is how all the usual printers write it; so a broken one costs no more than itself."""
    number, start, kept, size = 0, 0, list[str](), 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            while line and not line.endswith("\n"):  # the rest of it
                line = file.readline(LONGEST_LINE)
            faults.add(f"{path.name}, line {number} (too long)")
            continue
        bare = line.rstrip()
        if kept:
            size += len(line)
            if bare in ("{", "[") or size > LONGEST_LINE:  # the one before was cut off
                faults.add(f"{path.name}, line {start}")
                kept, size = [], 0
            else:
                kept.append(line)
                if bare in ("}", "]", "},"):
                    yield start, "".join(kept).rstrip().rstrip(",")
                    kept, size = [], 0
                continue
        if bare in ("{", "["):
            start, kept, size = number, [line], len(line)
        elif bare and bare not in (",", "]", "}"):
            yield number, bare.rstrip(",")
    if kept:
        faults.add(f"{path.name}, line {start}")


def spans_of_items(items: Iterable[Any], faults: Faults) -> Iterator[Span]:
    """The spans of objects that are in memory: dicts of either form, JSON text, or spans of OpenTelemetry's SDK."""
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
    """The spans in one JSON value."""
    if isinstance(value, list):
        for one in value:
            yield from spans_of_value(one, where, faults) if not isinstance(one, list) else ()
        return
    if not isinstance(value, Mapping):
        faults.add(where)
        return
    resources = value.get("resourceSpans", value.get("resource_spans"))
    if isinstance(resources, list):
        for resource in _dicts(resources):
            for name in ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
                for scope in _dicts(resource.get(name)):
                    for one in _dicts(scope.get("spans")):
                        yield from _one(one, where, faults)
    elif "context" in value or "spanId" in value or "span_id" in value:
        yield from _one(value, where, faults)
    else:
        faults.other += 1
        if not any(name in value for name in _OTHER_SIGNALS):
            faults.seen += [str(name)[:40] for name in list(value)[:5]]


def _dicts(value: Any) -> Iterator[Mapping[str, Any]]:
    return (one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else iter(())


def _one(span: Mapping[str, Any], where: str, faults: Faults) -> Iterator[Span]:
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
        str(span.get("name") or "")[:1_000],
        _time(span.get("startTimeUnixNano", span.get("start_time_unix_nano", span.get("start_time")))),
        _time(span.get("endTimeUnixNano", span.get("end_time_unix_nano", span.get("end_time")))),
        _attributes(span.get("attributes")),
        code in _ERROR_CODES,
    )


def _id(value: Any, size: int) -> str:
    """An id of so many bytes as hexadecimal digits; "" where there is none."""
    if not isinstance(value, str) or not value or len(value) > 64:
        return ""
    bare = value.removeprefix("0x").lower()
    if len(bare) <= 2 * size and all(letter in "0123456789abcdef" for letter in bare):
        return "" if not bare.strip("0") else bare.zfill(2 * size)
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return raw.hex() if len(raw) == size and any(raw) else ""


def _time(value: Any) -> int | None:
    """Nanoseconds since 1970, from such a number or from words like 2026-11-22T12:00:00.000000Z."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and len(value) < 20:
            return int(value) or None
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000
    return int(value) or None if isinstance(value, int | float) and 0 <= value < 1e19 else None


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(name): one for name, one in value.items()}
    return {str(one["key"]): _value(one.get("value")) for one in _dicts(value) if "key" in one}


def _value(value: Any, depth: int = 0) -> Any:
    """A typed value of OTLP as a plain one; None for bytes, and for what is nested beyond reason."""
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return None
    for kind, inner in value.items():
        match kind:
            case "stringValue" | "string_value" | "boolValue" | "bool_value":
                return inner
            case "intValue" | "int_value":
                return int(inner) if isinstance(inner, str) and inner.lstrip("-").isdigit() and len(inner) < 21 else inner
            case "doubleValue" | "double_value":
                return inner
            case "arrayValue" | "array_value":
                return [_value(one, depth + 1) for one in _dicts(inner.get("values") if isinstance(inner, Mapping) else None)]
            case "kvlistValue" | "kvlist_value":
                pairs = _dicts(inner.get("values") if isinstance(inner, Mapping) else None)
                return {str(one.get("key")): _value(one.get("value"), depth + 1) for one in pairs}
    return None
