"""The spans and metrics of one run, from its events.

Events have the run's active time, which stops between steps, but spans need the time of day. Each step begins with an event, from
which the times within the step are computed. Calls have no event at their start, so their spans are written when the step is complete.
The span of a tool begins and ends with the tool's own events, so that spans which the tool starts are below it.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import INVALID_SPAN, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from agentlab import __version__
from agentlab._internal.redaction import Redactor, redact, text_of
from agentlab.agent import Run
from agentlab.errors import ConfigurationError, FixtureError, ProviderError, ProviderStatusError, ProviderStreamError
from agentlab.interop import otel_attributes as names
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import ToolResult
from agentlab.records import events
from agentlab.records.step import ModelCall, StepResult

T = TypeVar("T")
Attributes = dict[str, AttributeValue]

_TOOL_NAME_CHARS = 100
"""Maximum length of a tool's name in the name of a span, since it is from the model."""
_BUDGET_LIMITS = (
    StopReason.TURN_LIMIT,
    StopReason.CALL_LIMIT,
    StopReason.TOKEN_BUDGET,
    StopReason.COST_BUDGET,
    StopReason.TIMEOUT,
)
_CALL_FAILURES = (ProviderError, FixtureError, ConfigurationError)


LINKS_KEPT = 1024
"""The number of runs whose span context is stored, so that forks can link to them."""


class Instruments:
    """The tracer and the metrics of a Telemetry, and the span contexts of its runs, to which the spans of forks link."""

    def __init__(self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, *, content: bool) -> None:
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
        self._contexts: OrderedDict[str, SpanContext] = OrderedDict()

    def begun(self, run_id: str, context: SpanContext) -> None:
        """Store the span context of a run, and forget the oldest one of more than LINKS_KEPT."""
        self._contexts[run_id] = context
        if len(self._contexts) > LINKS_KEPT:
            self._contexts.popitem(last=False)

    def span_of(self, run_id: str) -> SpanContext | None:
        """Return the span context of a run that began recently."""
        return self._contexts.get(run_id)


class RunSpans:
    """A Telemetry's observer of one run. Errors of span processors are raised after the event was handled."""

    def __init__(self, instruments: Instruments, run: Run) -> None:
        self._instruments = instruments
        self._run = run
        self._span: Span | None = None
        self._below: Context | None = None  # the context with the run's span
        self._anchor: tuple[int, float] | None = None  # the time of day in ns at an active time in s
        self._tools: dict[str, tuple[Span, str]] = {}  # by tool call, with the key of the previous context
        self._tools_until_ns = 0
        self._attempts = 0  # number of attempts to continue or repair in the current step
        self._tokens: list[int | None] = [0, 0]  # input and output, of this run alone: a fork's result includes shared steps
        self._cost_usd: Decimal | None = Decimal(0)
        self._failure: Exception | None = None
        provider = getattr(run.agent.model, "provider", None)
        self._model_attributes: Attributes = {
            names.PROVIDER: names.provider_name(run.agent.model.name),
            names.REQUEST_MODEL: _clean(run.agent.model.model),
            **_server(getattr(provider, "base_url", None)),
        }
        key = getattr(provider, "api_key", None)
        self._redact = Redactor([key] if isinstance(key, str) else []).text

    def __call__(self, event: events.Event, /) -> None:
        """Handle an event."""
        if isinstance(event, events.TextReceived | events.ArgumentsReceived):
            return
        self._failure = None
        self._handle(event)
        if self._failure is not None:
            raise self._failure

    def _handle(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self._begin(self._now_of(event))
            case events.StepStarted():
                self._anchor = (self._now_of(event), event.at_s)
                self._begin(self._anchor[0])
                self._attempts = 0
            case events.ToolStarted():
                self._tool_started(event)
            case events.ToolFinished():
                self._tool_finished(event.result)
            case events.StepCompleted():
                self._step_completed(event)
            case events.RunEnded():
                self._end(event)
            case _:
                self._other_event(event)

    # The run -------------------------------------------------------------------------------------------------------------------

    def _begin(self, start_ns: int | None = None) -> None:
        if self._span is not None:
            return
        run, agent = self._run, self._run.agent
        attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT: _clean(agent.name),
            names.RUN_ID: run.id,
        } | self._model_attributes
        links = []
        if run.origin.parent_run_id is not None:
            attributes[names.PARENT_RUN_ID] = run.origin.parent_run_id
            parent = self._instruments.span_of(run.origin.parent_run_id)
            links = [] if parent is None else [trace.Link(parent, {names.RUN_ID: run.origin.parent_run_id})]
        if self._instruments.content:
            attributes[names.INPUT_MESSAGES] = self._messages("user", run.prompt)
            if agent.instructions:
                attributes[names.SYSTEM_INSTRUCTIONS] = self._json([{"type": "text", "content": agent.instructions}])
        self._span = self._start(
            f"{names.INVOKE_AGENT} {_clean(agent.name)}", SpanKind.INTERNAL, attributes, links=links, start_time=start_ns
        )
        self._below = trace.set_span_in_context(self._span)
        self._instruments.begun(run.id, self._span.get_span_context())

    def _end(self, event: events.RunEnded) -> None:
        result, span = event.result, self._span
        reason = result.stop_reason
        if reason in _BUDGET_LIMITS or (reason is StopReason.TRUNCATED and not self._attempts):
            self._try(lambda: self._instruments.truncation_exits.add(1, self._model_only() | {names.STOP_REASON: reason.value}))
        if span is None:  # stopped before the first step
            return
        for call_id in tuple(self._tools):
            self._close_tool(call_id, Status(StatusCode.ERROR), "interrupted")
        attributes: Attributes = {names.STOP_REASON: result.stop_reason.value, names.STEPS: len(result.history)}
        for name, tokens in zip((names.INPUT_TOKENS, names.OUTPUT_TOKENS), self._tokens, strict=True):
            if tokens is not None:
                attributes[name] = tokens
        if self._cost_usd is not None:
            attributes[names.COST_USD] = float(self._cost_usd)
        if self._instruments.content and result.model_text:
            attributes[names.OUTPUT_MESSAGES] = self._messages("assistant", result.model_text)
        if result.stop_reason is StopReason.ERROR:
            attributes[names.ERROR_TYPE] = _error_type(result.error)
            self._try(lambda: span.set_status(self._error(result.detail)))
        self._try(lambda: span.set_attributes(attributes))
        self._try(span.end)

    # Calls ---------------------------------------------------------------------------------------------------------------------

    def _step_completed(self, event: events.StepCompleted) -> None:
        step = event.step
        end_s = step.started_s + step.duration_s
        if self._anchor is None:  # observed from the middle of a step
            self._anchor = (self._now_of(event), event.at_s)
        self._begin(self._time_of(step.started_s))
        last_ns = self._time_of(step.started_s)
        parent = self._run.origin.parent
        shared = (
            () if parent is None else parent.history[step.index - 1 : step.index]
        )  # a branch may go on with a step that waited
        before = [call for one in shared for call in one.calls]
        for call in step.calls:
            if any(call is one for one in before):
                continue
            last_ns = self._time_of(call.started_s + call.duration_s)
            self._call(step, call, self._time_of(call.started_s), last_ns)
        failed = _failed_call(step)
        if failed:
            start_ns = max(last_ns, self._tools_until_ns)
            self._failed_call(step, failed, start_ns, max(start_ns, self._time_of(end_s)))
        self._anchor = None

    def _call(self, step: StepResult, call: ModelCall, start_ns: int, end_ns: int) -> None:
        response, usage = call.response, call.response.usage  # as reported, not as counted against the budget
        raw = response.signal.raw_value
        attributes = self._call_attributes(step, call.index) | {
            names.FINISH_REASONS: [_clean(raw) if isinstance(raw, str) and raw else response.signal.finish_reason.value],
            names.FINISH_REASON: response.signal.finish_reason.value,
            names.RETRIES: call.retries,
        }
        optional = {
            names.RESPONSE_MODEL: response.model,
            names.RESPONSE_ID: response.response_id,
            names.REQUEST_MAX_TOKENS: call.requested_cap,
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.CACHE_READ_TOKENS: usage.cache_read_tokens,
            names.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
            names.REASONING_TOKENS: usage.reasoning_tokens,
            names.COST_USD: None if call.cost.usd is None else float(call.cost.usd),
            names.COST_SOURCE: None if call.cost.usd is None else call.cost.source.value,
            names.COST_NOTE: call.cost.reason or None,
        }
        attributes |= {
            name: _clean(value) if isinstance(value, str) else value for name, value in optional.items() if value is not None
        }
        if self._instruments.content:
            attributes[names.OUTPUT_MESSAGES] = self._answer(call)
        of_metric = {names.OPERATION: names.CHAT} | self._model_attributes
        if response.model:
            of_metric[names.RESPONSE_MODEL] = _clean(response.model)
        status: Status | None = None
        if response.signal.finish_reason.value == "error":
            attributes[names.ERROR_TYPE] = of_metric[names.ERROR_TYPE] = "error"
            status = self._error(response.signal.message)
        self._finished_span(f"{names.CHAT} {self._run.agent.model.model}", attributes, start_ns, end_ns, status)
        for place, (kind, tokens) in enumerate((("input", usage.input_tokens), ("output", usage.output_tokens))):
            before = self._tokens[place]
            self._tokens[place] = None if before is None or tokens is None else before + tokens
            if tokens is not None:
                self._record(self._instruments.token_usage.record, tokens, of_metric | {names.TOKEN_TYPE: kind})
        cost_usd = call.cost.usd
        self._cost_usd = None if self._cost_usd is None or cost_usd is None else self._cost_usd + cost_usd
        self._record(self._instruments.operation_duration.record, call.duration_s, of_metric)
        if response.detection_s is not None:
            with_reason = self._model_only() | {names.FINISH_REASON: response.signal.finish_reason.value}
            self._record(self._instruments.detection_duration.record, response.detection_s, with_reason)

    def _failed_call(self, step: StepResult, failed: str, start_ns: int, end_ns: int) -> None:
        self._tokens, self._cost_usd = [None, None], None
        attributes: Attributes = self._call_attributes(step, None) | {names.ERROR_TYPE: failed}
        status = self._error("" if step.error is None else text_of(step.error))
        self._finished_span(f"{names.CHAT} {self._run.agent.model.model}", attributes, start_ns, end_ns, status)
        of_metric: Attributes = {names.OPERATION: names.CHAT, names.ERROR_TYPE: failed} | self._model_attributes
        self._record(self._instruments.operation_duration.record, (end_ns - start_ns) / 1e9, of_metric)

    def _call_attributes(self, step: StepResult, index: int | None) -> Attributes:
        attributes: Attributes = {names.OPERATION: names.CHAT, names.STEP: step.index, **self._model_attributes}
        if index is not None:
            attributes[names.CALL] = index
        if self._run.agent.stream:
            attributes[names.REQUEST_STREAM] = True
        return attributes

    # Tools ---------------------------------------------------------------------------------------------------------------------

    def _tool_started(self, event: events.ToolStarted) -> None:
        self._begin()
        tool_call, name = event.tool_call, _clean(event.tool_call.name)[:_TOOL_NAME_CHARS]
        attributes: Attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL: name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL_ID: _clean(tool_call.id),
            names.STEP: event.step,
        }
        if self._instruments.content:
            attributes[names.TOOL_ARGUMENTS] = _clean(self._redact(tool_call.arguments))
        span = self._start(f"{names.EXECUTE_TOOL} {name}", SpanKind.INTERNAL, attributes, self._below)
        # The span is current in the task that runs the tool, which also emits the tool's start and end. Another Telemetry uses the same
        # key for the same event, so the first one to handle the end restores the context from before both.
        key, before = f"agentlab.before.{id(event)}", contexts.get_current()
        with_span = trace.set_span_in_context(span)
        if contexts.get_value(key) is None:
            with_span = contexts.set_value(key, before, with_span)
        contexts.attach(with_span)
        self._tools[tool_call.id] = span, key

    def _tool_finished(self, result: ToolResult) -> None:
        if result.call_id not in self._tools:  # observed from the middle of a tool
            return
        if self._instruments.content:
            span, content = self._tools[result.call_id][0], _clean(self._redact(result.content))
            self._try(lambda: span.set_attribute(names.TOOL_RESULT, content))
        if result.error is None:
            self._close_tool(result.call_id, None, "")
        else:
            raised = isinstance(result.value, BaseException) and result.error == "exception"
            self._close_tool(result.call_id, self._error(result.content), _error_type(result.value) if raised else result.error)

    def _close_tool(self, call_id: str, status: Status | None, error_type: str) -> None:
        span, key = self._tools.pop(call_id)
        before = contexts.get_value(key)
        if before is not None:  # None in another task, or if the context is restored already
            contexts.attach(cast("Context", before))
        if status is not None:
            self._try(lambda: span.set_status(status))
            self._try(lambda: span.set_attribute(names.ERROR_TYPE, error_type))
        self._tools_until_ns = time.time_ns()
        self._try(lambda: span.end(self._tools_until_ns))

    # Other events --------------------------------------------------------------------------------------------------------------

    def _other_event(self, event: events.Event) -> None:
        """Add an event to the run's span, and count it. The problems of an answer quote it, so they are content."""
        if self._span is None:
            return
        exported = _SPAN_EVENTS.get(type(event))
        if exported is not None:
            span, (name, fields) = self._span, exported
            values: Attributes = {names.RUN_ID: event.run_id} | {
                f"agentlab.{field}": _clean(self._redact(value)) if isinstance(value, str) else value
                for field in fields
                if (value := getattr(event, field)) is not None and (field != "problems" or self._instruments.content)
            }
            if isinstance(event, events.ContinuationAttempted) and event.budget_remaining is not None:
                left = dataclasses.asdict(event.budget_remaining)
                values |= {
                    f"agentlab.budget_remaining.{field}": float(value) if isinstance(value, Decimal) else value
                    for field, value in left.items()
                    if value is not None
                }
            self._try(lambda: span.add_event(name, values))
        model = self._model_only()
        if isinstance(event, events.ContinuationAttempted):
            self._attempts += 1
            self._record(self._instruments.continuations.add, 1, model)
        elif isinstance(event, events.ToolPayloadRepair):
            self._attempts += event.attempted
        elif isinstance(event, events.ContinuationEnded):
            with_outcome: Attributes = model | {names.OUTCOME: event.outcome}
            self._record(self._instruments.continuation_attempts.record, event.attempts, with_outcome)
            if event.attempts:
                self._record(self._instruments.continuation_duration.record, event.duration_s, with_outcome)

    # Helpers -------------------------------------------------------------------------------------------------------------------

    def _model_only(self) -> Attributes:
        return {name: self._model_attributes[name] for name in (names.PROVIDER, names.REQUEST_MODEL)}

    def _now_of(self, event: events.Event) -> int:
        """Return the time of day, in ns, of the event being handled, which other observers may have delayed."""
        return time.time_ns() - int((self._run.timeline.clock.elapsed_s() - event.at_s) * 1e9)

    def _time_of(self, at_s: float) -> int:
        """Return the time of day, in ns, of an active time within the current step."""
        wall_ns, anchor_s = self._anchor or (time.time_ns(), at_s)
        return wall_ns + int((at_s - anchor_s) * 1e9)

    def _start(self, name: str, kind: SpanKind, attributes: Attributes, below: Context | None = None, **more: Any) -> Span:
        """Start a span, now or at `start_time`. Returns an invalid span if a processor raised."""
        start = self._instruments.tracer.start_span
        return self._try(lambda: start(_clean(name), below, kind, attributes, **more)) or INVALID_SPAN

    def _finished_span(self, name: str, attributes: Attributes, start_ns: int, end_ns: int, status: Status | None) -> None:
        """Write a finished span below the span of the run."""
        span = self._start(name, SpanKind.CLIENT, attributes, self._below, start_time=start_ns)
        if status is not None:
            self._try(lambda: span.set_status(status))
        self._try(lambda: span.end(end_ns))

    def _record(self, into: Callable[[Any, Any], object], value: float, attributes: Attributes) -> None:
        self._try(lambda: into(value, attributes))

    def _try(self, do: Callable[[], T]) -> T | None:
        """Call `do`. An error of an exporter is kept until the event is handled."""
        try:
            return do()
        except Exception as error:
            self._failure = error
            return None

    def _error(self, description: str) -> Status:
        """Return the status of a failure. The description is content, so it may be left out."""
        return Status(StatusCode.ERROR, _clean(self._redact(description)) if self._instruments.content and description else None)

    def _messages(self, role: str, text: str) -> str:
        return self._json([{"role": role, "parts": [{"type": "text", "content": text}]}])

    def _answer(self, call: ModelCall) -> str:
        response = call.response
        parts: list[Mapping[str, str]] = [{"type": "text", "content": response.text}] if response.text else []
        parts += [
            {"type": "tool_call", "id": one.id, "name": one.name, "arguments": one.arguments} for one in response.tool_calls
        ]
        return self._json([{"role": "assistant", "parts": parts, "finish_reason": response.signal.finish_reason.value}])

    def _json(self, value: object) -> str:
        return _clean(self._redact(json.dumps(value, ensure_ascii=False)))


_SPAN_EVENTS: Mapping[type[events.Event], tuple[str, tuple[str, ...]]] = {
    events.ContinuationAttempted: (
        "agentlab.continuation_attempted",
        (
            *("step", "attempt", "output_tokens", "output_chars", "remaining", "tokens_remaining", "chars_remaining"),
            *("repairs_remaining", "invocations_remaining"),
        ),
    ),
    events.ContinuationEnded: ("agentlab.continuation_ended", ("step", "outcome", "attempts", "duration_s")),
    events.ToolPayloadRepair: ("agentlab.tool_payload_repair", ("step", "issue", "attempted", "succeeded")),
    events.ApprovalRequested: ("agentlab.approval_requested", ("step", "why")),
    events.ApprovalGiven: ("agentlab.approval_given", ("step", "tool", "decision", "waited_s")),
    events.Nudged: ("agentlab.nudged", ("step", "consecutive", "allowed")),
    events.OutputRejected: ("agentlab.output_rejected", ("step", "attempt", "allowed", "problems")),
    events.LastAnswerAsked: ("agentlab.last_answer_asked", ("step", "limit")),
    events.CallRetried: ("agentlab.call_retried", ("step", "attempt", "wait_s")),
    events.AskedAgain: ("agentlab.asked_again", ("step", "call", "attempt", "remaining")),
    events.LimitsChanged: ("agentlab.limits_changed", ("by",)),
    events.RunPaused: ("agentlab.run_paused", ()),
    events.RunResumed: ("agentlab.run_resumed", ("paused_s",)),
}


def _failed_call(step: StepResult) -> str:
    """Return the error type of a call of this step without a response; "" if all have one.

    There is no event for it. A refused call raises one of _CALL_FAILURES. After an interrupted call the step has no calls, or its usage
    is unknown although that of its calls is known.
    """
    error = (
        step.error.__cause__ if isinstance(step.error, ProviderStreamError) else step.error
    )  # its calls usually have a response
    if isinstance(error, _CALL_FAILURES) and step.decision.stop_reason is StopReason.ERROR:
        return _error_type(error)
    stopped_by = StopReason.TIMEOUT if step.decision.stop_reason is StopReason.TIMEOUT else step.stop_reason
    interrupted = step.usage.total_tokens is None and all(call.usage.total_tokens is not None for call in step.calls)
    if not interrupted:
        return ""
    if stopped_by in (StopReason.TIMEOUT, StopReason.CANCELLED):
        return stopped_by.value
    return "" if error is None or step.calls else _error_type(error)


def _error_type(error: object) -> str:
    """Return a low-cardinality word for an error: an HTTP status, or the name of the exception."""
    if isinstance(error, ProviderStatusError):
        return str(error.status)
    return "_OTHER" if error is None else type(error).__qualname__


def _server(base_url: object) -> Attributes:
    """Return the host and port of a server; empty if its address is unknown."""
    try:
        parts = urlsplit(base_url) if isinstance(base_url, str) else None
        host, port = (parts.hostname, parts.port) if parts is not None else (None, None)
    except ValueError:
        return {}
    if parts is None or not host:
        return {}
    return {names.SERVER_ADDRESS: host, names.SERVER_PORT: port or (443 if parts.scheme == "https" else 80)}


def _clean(text: str) -> str:
    """Return text that can be exported: without keys, and with `?` for half a surrogate pair (an answer cut inside an emoji)."""
    return redact(text).encode(errors="replace").decode()
