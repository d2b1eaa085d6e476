"""Exports runs as OpenTelemetry spans and metrics; the extra `agentlab-jupyter[telemetry]`.

    agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[search], observers=[lab.Telemetry()])
    run = lab.telemetry.instrument(agent.run("Compare …"))       for one run, or for an existing agent

One Telemetry may observe any number of runs, also concurrently.

    invoke_agent {agent}         one span per run, below the span that was current at its start; a link to the run it was forked from
      chat {model}               a model call
      execute_tool {tool}        a tool call; current while the tool runs, so that spans started by the tool are below it

Metrics: `gen_ai.client.token.usage` and `gen_ai.client.operation.duration`, one value per call; `agentlab.detection.duration` (time
to read an answer and detect its finish reason, one value per HTTP call); `agentlab.continuations` (attempts to continue a truncated
answer); `agentlab.truncation_exits` (by `agentlab.stop_reason`: runs that ended at a limit of their budget, or TRUNCATED without an
attempt to continue or repair in their last step); `agentlab.continuation.attempts` (one value per truncated step) and
`agentlab.continuation.duration` (one value per continued step).

Messages and error texts are exported only with `content=True`, and without keys.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from agentlab._internal.display import Displayable
from agentlab._internal.lazy import only
from agentlab.agent import Agent
from agentlab.errors import ConfigurationError
from agentlab.interop import otel_attributes as names
from agentlab.records import events
from agentlab.run import Run

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import SpanContext, TracerProvider

    from agentlab.interop.otel_spans import RunSpans

LINKS_KEPT = 1024
"""Number of ended runs whose span context is kept, so that forks can link to them."""

Instrumented = TypeVar("Instrumented", Agent, Run)


class Telemetry(Displayable):
    """An observer that turns runs into OpenTelemetry spans and metrics.

    tracer_provider, meter_provider   the destinations; by default those of the process (without an SDK they discard everything)
    content                           export content too: prompt, answers, arguments and results of tools, error messages

    Raises ConfigurationError if the package opentelemetry-api is missing.

    Example:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        >>> spans, tracing = InMemorySpanExporter(), TracerProvider()
        >>> tracing.add_span_processor(SimpleSpanProcessor(spans))
        >>> result = await brief.run("?", observers=[lab.Telemetry(tracing)])
        >>> [span.name for span in spans.get_finished_spans()]
        ['chat script', 'invoke_agent scripted:script']
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        content: bool = False,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            raise ConfigurationError(
                "Telemetry needs the package opentelemetry-api: pip install 'agentlab-jupyter[telemetry]'."
            ) from error
        from agentlab import __version__
        from agentlab.interop.otel_spans import RunSpans  # now, so that a run's first step is not delayed

        self._spans_of = RunSpans
        self.content = content
        self.tracer = trace.get_tracer("agentlab", __version__, tracer_provider)
        meter = metrics.get_meter("agentlab", __version__, meter_provider)

        def histogram(name: str, unit: str, description: str, buckets: list[float]) -> Histogram:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)

        used, attempts = "Number of input and output tokens used.", "Attempts to continue in a step whose answer was truncated."
        took = "Time from the first truncation to the end of the answer, for continued steps."
        detected = "Time to read an answer and detect its finish reason."
        self.token_usage = histogram(names.TOKEN_USAGE, "{token}", used, names.TOKEN_BUCKETS)
        self.operation_duration = histogram(names.OPERATION_DURATION, "s", "GenAI operation duration.", names.DURATION_BUCKETS)
        self.continuation_attempts = histogram(names.CONTINUATION_ATTEMPTS, "{attempt}", attempts, names.ATTEMPT_BUCKETS)
        self.continuation_duration = histogram(names.CONTINUATION_DURATION, "s", took, names.DURATION_BUCKETS)
        self.detection_duration = histogram(names.DETECTION_DURATION, "s", detected, names.DETECTION_BUCKETS)
        continued = "Attempts to continue a truncated answer."
        self.continuations = meter.create_counter(names.CONTINUATIONS, "{attempt}", continued)
        exits = "Runs that ended at a limit of their budget, or truncated without an attempt to continue."
        self.truncation_exits = meter.create_counter(names.TRUNCATION_EXITS, "{run}", exits)
        self._ended: OrderedDict[str, SpanContext] = OrderedDict()
        self._running: dict[str, SpanContext] = {}

    def follow_run(self, run: Run) -> RunSpans:
        """Return the observer of one run; a run calls this at its start for each observer that has this method."""
        return self._spans_of(self, run)

    def __call__(self, event: events.Event, /) -> None:
        """Raise ConfigurationError: an event does not name its run, so only the observer of `follow_run` can handle it."""
        if isinstance(event, events.StepStarted):
            raise ConfigurationError(
                "A Telemetry cannot be added with run.observe(…) to a running run: use lab.telemetry.instrument(run)."
            )

    # Links between runs -----------------------------------------------------------------------------------------------------

    def begun(self, run_id: str, context: SpanContext) -> None:
        """Store the span context of a run."""
        self._running[run_id] = context

    def ended(self, run_id: str) -> None:
        """Store the span context of an ended run, up to LINKS_KEPT of them."""
        context = self._running.pop(run_id, None)
        if context is not None:
            self._ended[run_id] = context
            while len(self._ended) > LINKS_KEPT:
                self._ended.popitem(last=False)

    def span_of(self, run_id: str) -> SpanContext | None:
        """Return the span context of a run that is still running or ended recently."""
        return self._running.get(run_id) or self._ended.get(run_id)

    def __repr__(self) -> str:
        return f"Telemetry(content={self.content})"


def instrument(
    agent_or_run: Instrumented,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    content: bool = False,
) -> Instrumented:
    """Export an agent's future runs, or one run from now on, to OpenTelemetry. Returns its argument.

    An agent or run that is instrumented already is not changed. Raises ConfigurationError for anything but an agent or a run, and if
    opentelemetry-api is missing.

    Example:
        >>> lab.telemetry.instrument(brief) is brief
        True
        >>> lab.telemetry.is_instrumented(brief)
        True
    """
    if not isinstance(agent_or_run, Agent | Run):
        raise ConfigurationError(f"instrument({agent_or_run!r}): pass an Agent, or a Run from agent.run(…).")
    telemetry = Telemetry(tracer_provider, meter_provider, content=content)
    if is_instrumented(agent_or_run):
        return agent_or_run
    if isinstance(agent_or_run, Agent):
        agent_or_run.observers = (*agent_or_run.observers, telemetry)
    else:
        agent_or_run.observe(telemetry.follow_run(agent_or_run))
    return agent_or_run


def is_instrumented(agent_or_run: Agent | Run) -> bool:
    """True if the agent or run has a Telemetry as observer.

    Example:
        >>> lab.telemetry.is_instrumented(brief), lab.telemetry.is_instrumented(lab.telemetry.instrument(brief))
        (False, True)
    """
    from agentlab.interop.otel_spans import RunSpans

    observers = agent_or_run.observers if isinstance(agent_or_run, Agent) else agent_or_run.timeline.observers
    return any(isinstance(observer, Telemetry | RunSpans) for observer in observers)


__all__ = ["Telemetry", "instrument", "is_instrumented"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = only("agentlab.telemetry", __all__)
