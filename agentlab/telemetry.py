"""Runs as OpenTelemetry spans and metrics; the extra `agentlab-jupyter[telemetry]`.

    agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[search], observers=[lab.Telemetry()])
    run = lab.telemetry.instrument(agent.run("Compare …"))       or one run, or an agent that is there already

One Telemetry may serve any number of runs, also at once: it follows each of them by itself, and forgets it at its end.

    invoke_agent {agent}         a span a run, below the span that was current when it began; a link to the run it was forked from
      chat {model}               a call of the model
      execute_tool {tool}        a tool; current while the tool runs, so what the tool does is below it, other agents included

Metrics: `gen_ai.client.token.usage` and `gen_ai.client.operation.duration`, a value per call; `agentlab.detection.duration` (seconds to
read an answer and find the reason of its end, a value per call over HTTP); `agentlab.continuations` (attempts to go on with a cut
answer); `agentlab.truncation_exits` (by `agentlab.stop_reason`: runs that ended at a limit of their budget, or TRUNCATED with neither a
continuation nor a repair tried in their last step); `agentlab.continuation.attempts` (a value per cut step) and
`agentlab.continuation.duration` (a value per continued one).

What was said is not written, nor are messages of errors. With `content=True` it is, with everything that looks like a key replaced.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from agentlab import events
from agentlab import genai_names as names
from agentlab.agent import Agent
from agentlab.errors import ConfigurationError
from agentlab.no_such_name import only
from agentlab.run import Run
from agentlab.shown import Shown

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import SpanContext, TracerProvider

    from agentlab.run_spans import RunSpans

LINKS_KEPT = 1024
"""Runs that are remembered by their span's number after their end, so that a fork can be linked to them."""

Instrumented = TypeVar("Instrumented", Agent, Run)


class Telemetry(Shown):
    """An observer that turns runs into OpenTelemetry spans and metrics.

    tracer_provider, meter_provider   where they go; without, to the process's own (nowhere, where no SDK is set up)
    content                           write what was said too: prompt, answers, arguments and results of tools, messages of errors

    Raises ConfigurationError where the package opentelemetry-api is missing.

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
        from agentlab.run_spans import RunSpans  # now rather than in a run's first step

        self._spans_of = RunSpans
        self.content = content
        self.tracer = trace.get_tracer("agentlab", __version__, tracer_provider)
        meter = metrics.get_meter("agentlab", __version__, meter_provider)
        self.token_usage = meter.create_histogram(
            names.TOKEN_USAGE,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )
        self.operation_duration = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self.continuations = meter.create_counter(
            names.CONTINUATIONS, "{attempt}", "Times that a model was asked to go on with an answer that was cut."
        )
        self.truncation_exits = meter.create_counter(
            names.TRUNCATION_EXITS,
            "{run}",
            "Runs that a limit of their budget ended, or a cut answer that nobody tried to continue.",
        )
        self.continuation_attempts = meter.create_histogram(
            names.CONTINUATION_ATTEMPTS,
            "{attempt}",
            "Attempts to continue in a step whose answer was cut.",
            explicit_bucket_boundaries_advisory=names.ATTEMPT_BUCKETS,
        )
        self.continuation_duration = meter.create_histogram(
            names.CONTINUATION_DURATION,
            "s",
            "Time from the first cut to the end of the answer, of steps that were continued.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self.detection_duration = meter.create_histogram(
            names.DETECTION_DURATION,
            "s",
            "Time to read an answer and find the reason of its end.",
            explicit_bucket_boundaries_advisory=names.DETECTION_BUCKETS,
        )
        self._ended: OrderedDict[str, SpanContext] = OrderedDict()
        self._under_way: dict[str, SpanContext] = {}

    def follow_run(self, run: Run) -> RunSpans:
        """The observer of one run: what a run calls when it begins, for each of its observers that has this method."""
        return self._spans_of(self, run)

    def __call__(self, event: events.Event, /) -> None:
        """Raises ConfigurationError: an event does not say whose it is, so only `follow_run` knows what to do with it."""
        if isinstance(event, events.TurnStarted):
            raise ConfigurationError(
                "A Telemetry cannot be handed to run.observe(…) in mid-run: lab.telemetry.instrument(run) does that."
            )

    # Links between runs -----------------------------------------------------------------------------------------------------

    def begun(self, run_id: str, context: SpanContext) -> None:
        """A run's span is there."""
        self._under_way[run_id] = context

    def ended(self, run_id: str) -> None:
        """A run is over: of all its state only the number of its span is kept, and not for ever."""
        context = self._under_way.pop(run_id, None)
        if context is not None:
            self._ended[run_id] = context
            while len(self._ended) > LINKS_KEPT:
                self._ended.popitem(last=False)

    def span_of(self, run_id: str) -> SpanContext | None:
        """The span of a run that goes on or has ended not long ago."""
        return self._under_way.get(run_id) or self._ended.get(run_id)

    def __repr__(self) -> str:
        return f"Telemetry(content={self.content})"


def instrument(
    agent_or_run: Instrumented,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    content: bool = False,
) -> Instrumented:
    """Have an agent's runs from now on, or one run from here on, told to OpenTelemetry; gives back what it was given.

    What is instrumented already stays as it is. Raises ConfigurationError for anything else than an agent or a run, and where
    opentelemetry-api is missing.

    Example:
        >>> lab.telemetry.instrument(brief) is brief
        True
        >>> lab.telemetry.is_instrumented(brief)
        True
    """
    if not isinstance(agent_or_run, Agent | Run):
        raise ConfigurationError(f"instrument({agent_or_run!r}): pass an Agent, or a Run as agent.run(…) gives it.")
    telemetry = Telemetry(tracer_provider, meter_provider, content=content)
    if is_instrumented(agent_or_run):
        return agent_or_run
    if isinstance(agent_or_run, Agent):
        agent_or_run.observers = (*agent_or_run.observers, telemetry)
    else:
        agent_or_run.observe(telemetry.follow_run(agent_or_run))
    return agent_or_run


def is_instrumented(agent_or_run: Agent | Run) -> bool:
    """Whether a Telemetry is among its observers.

    Example:
        >>> lab.telemetry.is_instrumented(brief), lab.telemetry.is_instrumented(lab.telemetry.instrument(brief))
        (False, True)
    """
    from agentlab.run_spans import RunSpans

    observers = agent_or_run.observers if isinstance(agent_or_run, Agent) else agent_or_run.timeline.observers
    return any(isinstance(observer, Telemetry | RunSpans) for observer in observers)


__all__ = ["Telemetry", "instrument", "is_instrumented"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__)
