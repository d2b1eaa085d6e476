"""Reads spans from JSON in its common forms.

The collector's file exporter writes one OTLP request per line: `{"resourceSpans": [{"scopeSpans": [{"spans": […]}]}]}`, attributes as a
list of keys and typed values. OpenTelemetry's SDK for Python prints a span as an object over several lines, attributes as an object,
times as ISO 8601. Ids are hexadecimal, or base64 where protobuf's plain JSON mapping wrote them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
    """Unreadable input: the number of broken pieces, the place of the first, the number of other objects and some of their keys."""

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

    An object over several lines begins and ends with a bracket alone on an unindented line, as the usual printers write it; so a
    broken one does not affect the others.
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
            if kept:  # the one before was cut off
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
    """Yield the spans in one JSON value."""
    if isinstance(value, list):
        for one in value:
            yield from spans_of_value(one, where, faults)
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
                        yield from _span(one, where, faults)
    elif "context" in value or "spanId" in value or "span_id" in value:
        yield from _span(value, where, faults)
    else:
        faults.other += 1
        if not any(name in value for name in _OTHER_SIGNALS):
            faults.seen += [str(name)[:40] for name in list(value)[:5]]


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
    """Return nanoseconds since 1970 from such a number or from ISO 8601."""
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
