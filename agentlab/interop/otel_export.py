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

from typing import TYPE_CHECKING, TypeVar

from agentlab._internal.display import Displayable
from agentlab._internal.names import module_hooks
from agentlab.agent import Agent, Run
from agentlab.errors import ConfigurationError
from agentlab.records import events

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from agentlab.interop.otel_spans import RunSpans

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
            from agentlab.interop.otel_spans import Instruments  # now rather than in a run's first step
        except ImportError as error:
            raise ConfigurationError(
                "Telemetry needs the package opentelemetry-api: pip install 'agentlab-jupyter[telemetry]'."
            ) from error
        for given, kind, method in (
            (tracer_provider, "TracerProvider", "get_tracer"),
            (meter_provider, "MeterProvider", "get_meter"),
        ):
            if given is not None and not hasattr(given, method):
                raise ConfigurationError(
                    f"Telemetry({given!r}): pass an OpenTelemetry {kind}, or nothing for that of the process. Where spans go is set at "
                    "the exporter, such as OTLPSpanExporter(endpoint=…), or by OTEL_EXPORTER_OTLP_ENDPOINT."
                )
        self.content = content
        self._instruments = Instruments(tracer_provider, meter_provider, content=content)

    def follow_run(self, run: Run) -> RunSpans:
        """Return the observer of one run; a run calls this at its start for each observer that has this method."""
        from agentlab.interop.otel_spans import RunSpans

        return RunSpans(self._instruments, run)

    def __call__(self, event: events.Event, /) -> None:
        """Raise ConfigurationError: spans need the run itself, so only the observer of `follow_run` can handle its events."""
        if isinstance(event, events.StepStarted):
            raise ConfigurationError(
                "A Telemetry cannot be added with run.observe(…) to a running run: use lab.telemetry.instrument(run)."
            )

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
    __getattr__, __dir__ = module_hooks("agentlab.telemetry", __all__)
