"""Spans and metrics in memory, and agents that produce them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import agentlab as lab


class Collected:
    """The target of a test's Telemetry, with everything it received."""

    def __init__(self, **more: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.telemetry = lab.Telemetry(self.tracers, self.meters, **more)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: (span.start_time or 0, -(span.end_time or 0)))

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(start)]

    def one(self, start: str) -> ReadableSpan:
        (span,) = self.named(start)
        return span

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        metrics = [m for of in (data.resource_metrics if data else ()) for s in of.scope_metrics for m in s.metrics]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def children(of: ReadableSpan, spans: Iterable[ReadableSpan]) -> list[ReadableSpan]:
    return [
        span for span in spans if span.parent is not None and of.context is not None and span.parent.span_id == of.context.span_id
    ]


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9
