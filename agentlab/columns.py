"""The columns of every frame, as data: a name, a dtype, what it means, and how it is read off a row.

All dtypes are nullable: NA is unknown, never 0. Money is in US dollars, times are seconds of the run's active time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from agentlab import events
from agentlab.errors import StoredError
from agentlab.leaf_names import unique_name
from agentlab.results import Decision, ModelCall, Reading, RunResult, StepResult
from agentlab.suggestions import FOR_STOP_REASON
from agentlab.types import StopReason, TerminationSignal, ToolResult

if TYPE_CHECKING:
    from agentlab.history import RunHistory


@dataclass(frozen=True, slots=True)
class Source:
    """What a row knows of its run."""

    run_id: str
    provider: str
    model: str
    history: RunHistory
    events: list[events.Event]
    result: RunResult | None
    prompt: str
    parent_run_id: str | None
    forked_at: int | None
    parent_step: int | None = None
    called_by: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a frame: `read` gets (source, row) and answers None for NA."""

    name: str
    dtype: str
    help: str
    read: Callable[[Source, Any], Any]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: Decimal | float | None) -> float | None:
    return None if value is None else float(value)


@dataclass(slots=True)
class StepRow:
    """A step with the sums up to it; the `known_*` of what is known, a lower bound of the others where those are None."""

    step: StepResult
    tokens: int | None = 0
    cost_usd: Decimal | None = Decimal(0)
    known_tokens: int = 0
    known_cost_usd: Decimal = Decimal(0)

    def then(self, step: StepResult) -> StepRow:
        """The row of the next step."""
        tokens, cost = step.all_tokens, step.all_cost_usd
        more_tokens = sum([call.usage.known_tokens for call in step.calls])
        more_cost = sum([call.cost.usd for call in step.calls if call.cost.usd is not None], Decimal(0))
        for child in step.children:
            more_tokens += child.known_tokens
            more_cost += child.known_cost_usd
        return StepRow(
            step,
            None if self.tokens is None or tokens is None else self.tokens + tokens,
            None if self.cost_usd is None or cost is None else self.cost_usd + cost,
            self.known_tokens + more_tokens,
            self.known_cost_usd + more_cost,
        )


def step_rows(steps: Iterable[StepResult], before: StepRow | None = None) -> Iterator[StepRow]:
    """The rows of these steps, behind the row before them if there is one."""
    for step in steps:
        before = (StepRow(step) if before is None else before).then(step)
        yield before


RUN_ID = Column("run_id", "string", "the run", lambda s, r: s.run_id)
PROVIDER = Column("provider", "string", "the provider's name", lambda s, r: s.provider)
MODEL = Column("model", "string", "the model asked for", lambda s, r: s.model)


def _of_step(name: str, dtype: str, help_: str, read: Callable[[StepResult], Any]) -> Column:
    return Column(name, dtype, help_, lambda s, row: read(row.step))


STEP_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PROVIDER,
    MODEL,
    _of_step("step", "Int64", "number of the step, from 1", lambda t: t.index),
    _of_step("calls", "Int64", "round trips to the model in this step", lambda t: len(t.calls)),
    _of_step("finish_reason", "string", "why the last response ended", lambda t: _text(t.finish_reason)),
    _of_step("raw_finish_reason", "string", "the provider's own word", lambda t: _text(t.signal.raw_value) if t.signal else None),
    _of_step("confidence", "string", "how sure the reason is", lambda t: _text(t.signal.confidence) if t.signal else None),
    _of_step("action", "string", "what followed from the response", lambda t: t.decision.action.value),
    _of_step("stop_reason", "string", "why the run ended; only on its last step", lambda t: _text(t.stop_reason)),
    _of_step("input_tokens", "Int64", "tokens in, cache included", lambda t: t.usage.input_tokens),
    _of_step("output_tokens", "Int64", "tokens out, reasoning included", lambda t: t.usage.output_tokens),
    _of_step("reasoning_tokens", "Int64", "part of the tokens out", lambda t: t.usage.reasoning_tokens),
    _of_step("cache_read_tokens", "Int64", "part of the tokens in", lambda t: t.usage.cache_read_tokens),
    _of_step("cache_write_tokens", "Int64", "part of the tokens in", lambda t: t.usage.cache_write_tokens),
    _of_step("total_tokens", "Int64", "tokens in and out", lambda t: t.usage.total_tokens),
    _of_step("usage_source", "string", "reported, estimated, charged_cap or unknown", lambda t: t.usage.source.value),
    _of_step("cost_usd", "Float64", "cost in US dollars", lambda t: _number(t.cost.usd)),
    _of_step("cost_source", "string", "reported, priced or unknown", lambda t: t.cost.source.value),
    _of_step("child_calls", "Int64", "round trips of sub-agents called in this step", lambda t: sum(c.calls for c in t.children)),
    _of_step("child_tokens", "Int64", "tokens of these sub-agents", lambda t: t.child_tokens),
    _of_step("child_cost_usd", "Float64", "cost of these sub-agents", lambda t: _number(t.child_cost_usd)),
    Column("cumulative_tokens", "Int64", "tokens of the run up to here, sub-agents included", lambda s, r: r.tokens),
    Column("cumulative_cost_usd", "Float64", "cost of the run up to here, sub-agents included", lambda s, r: _number(r.cost_usd)),
    Column("known_tokens", "Int64", "of them known: a lower bound where they are NA", lambda s, r: r.known_tokens),
    Column("known_cost_usd", "Float64", "of it known: a lower bound where it is NA", lambda s, r: _number(r.known_cost_usd)),
    _of_step("tool_calls", "Int64", "tool calls asked for", lambda t: len(t.tool_calls)),
    _of_step("tools", "string", "their names, in order", lambda t: ", ".join(call.name for call in t.tool_calls)),
    _of_step("tool_errors", "Int64", "of them failed", lambda t: sum(result.is_error for result in t.tool_results)),
    _of_step("text", "string", "what the model said", lambda t: t.text),
    _of_step("max_turns", "Int64", "limit that held", lambda t: t.settings.budget.max_turns),
    _of_step("max_calls", "Int64", "limit that held", lambda t: t.settings.budget.max_calls),
    _of_step("max_tokens", "Int64", "limit that held", lambda t: t.settings.budget.max_tokens),
    _of_step("max_tokens_per_turn", "Int64", "limit that held", lambda t: t.settings.budget.max_tokens_per_turn),
    _of_step("max_cost_usd", "Float64", "limit that held", lambda t: _number(t.settings.budget.max_cost)),
    _of_step("timeout_s", "Float64", "limit that held", lambda t: t.settings.budget.timeout),
    _of_step("remaining_turns", "Int64", "left of it", lambda t: t.remaining.turns),
    _of_step("remaining_calls", "Int64", "left of it", lambda t: t.remaining.calls),
    _of_step("remaining_tokens", "Int64", "left of it", lambda t: t.remaining.tokens),
    _of_step("remaining_cost_usd", "Float64", "left of it", lambda t: _number(t.remaining.cost_usd)),
    _of_step("remaining_time_s", "Float64", "left of it", lambda t: t.remaining.time_s),
    _of_step("started_s", "Float64", "active time of the run when the step began", lambda t: t.started_s),
    _of_step("duration_s", "Float64", "how long the step took", lambda t: t.duration_s),
    _of_step("error", "string", "what cut the step short", lambda t: _error(t.error)),
    _of_step(
        "condition_met", "boolean", "whether the whole stop condition was met", lambda t: t.readings.met if t.readings else None
    ),
)


def _of_call(name: str, dtype: str, help_: str, read: Callable[[ModelCall], Any]) -> Column:
    return Column(name, dtype, help_, lambda s, row: read(row[1]))


CALL_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PROVIDER,
    MODEL,
    Column("step", "Int64", "the step it belongs to", lambda s, row: row[0].index),
    _of_call("call", "Int64", "number of the call in the run, from 1", lambda c: c.index),
    _of_call("response_model", "string", "the model that says it answered", lambda c: c.response.model),
    _of_call("response_id", "string", "the provider's id", lambda c: c.response.response_id),
    _of_call("finish_reason", "string", "why the response ended", lambda c: c.response.signal.finish_reason.value),
    _of_call("raw_field", "string", "where the provider says so", lambda c: c.response.signal.raw_field or None),
    _of_call("raw_finish_reason", "string", "the provider's own word", lambda c: _text(c.response.signal.raw_value)),
    _of_call("confidence", "string", "how sure the reason is", lambda c: c.response.signal.confidence.value),
    _of_call("message", "string", "the reason in a sentence", lambda c: c.response.signal.message or None),
    _of_call("input_tokens", "Int64", "tokens in, cache included", lambda c: c.usage.input_tokens),
    _of_call("output_tokens", "Int64", "tokens out, reasoning included", lambda c: c.usage.output_tokens),
    _of_call("total_tokens", "Int64", "tokens in and out", lambda c: c.usage.total_tokens),
    _of_call("usage_source", "string", "reported, estimated, charged_cap or unknown", lambda c: c.usage.source.value),
    _of_call("cost_usd", "Float64", "cost in US dollars", lambda c: _number(c.cost.usd)),
    _of_call("cost_source", "string", "reported, priced or unknown", lambda c: c.cost.source.value),
    _of_call("requested_cap", "Int64", "the output cap that was asked for", lambda c: c.requested_cap),
    _of_call("retries", "Int64", "attempts that failed before", lambda c: c.retries),
    _of_call("used", "boolean", "False: a middleware left the answer aside", lambda c: c.used),
    _of_call("text", "string", "what the model said", lambda c: c.response.text),
    _of_call("reasoning", "string", "its visible reasoning", lambda c: c.response.reasoning or None),
    _of_call("started_s", "Float64", "active time of the run when the call began", lambda c: c.started_s),
    _of_call("duration_s", "Float64", "how long it took", lambda c: c.duration_s),
)


@dataclass(slots=True)
class EndRow:
    """How a response ended and what followed; `call` is None for a step that came to none, `last` True for a step's last call."""

    step: StepResult
    call: ModelCall | None
    last: bool

    @property
    def signal(self) -> TerminationSignal | None:
        """Of the response, if there is one."""
        return None if self.call is None else self.call.response.signal

    @property
    def decision(self) -> Decision | None:
        """What followed from the response."""
        return self.step.decision if self.last else self.call.decision if self.call is not None else None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run ended here, if it did."""
        return self.step.stop_reason if self.last else None

    @property
    def suggestion(self) -> str | None:
        """Of the response, or where a limit ended the run after a good one, of that."""
        decision, reason = self.decision, self.stop_reason
        if decision is not None and (reason is None or decision.stop_reason is reason):
            return decision.suggestion
        return None if reason is None else FOR_STOP_REASON[reason]


def _of_end(name: str, dtype: str, help_: str, read: Callable[[EndRow], Any]) -> Column:
    return Column(name, dtype, help_, lambda s, row: read(row))


def _of_signal(name: str, dtype: str, help_: str, read: Callable[[TerminationSignal], Any]) -> Column:
    return Column(name, dtype, help_, lambda s, row: None if row.signal is None else read(row.signal))


TERMINATION_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PROVIDER,
    MODEL,
    _of_end("step", "Int64", "the step it belongs to", lambda e: e.step.index),
    _of_end(
        "call", "Int64", "number of the call in the run; NA: the step came to no response", lambda e: e.call and e.call.index
    ),
    _of_signal("finish_reason", "string", "why the response ended", lambda t: t.finish_reason.value),
    _of_signal("raw_field", "string", "where the provider says so", lambda t: t.raw_field or None),
    _of_signal("raw_finish_reason", "string", "the provider's own word", lambda t: _text(t.raw_value)),
    _of_signal("confidence", "string", "how sure the reason is", lambda t: t.confidence.value),
    _of_signal("should_terminate", "boolean", "whether the response asks for no further turn", lambda t: t.should_terminate),
    _of_end("action", "string", "what followed", lambda e: e.decision and e.decision.action.value),
    _of_end("stop_reason", "string", "why the run ended, where it did", lambda e: _text(e.stop_reason)),
    _of_end("suggestion", "string", "retry, modify_prompt, increase_budget or stop", lambda e: e.suggestion),
    _of_end("reason", "string", "why that followed, in a sentence", lambda e: e.decision and e.decision.reason),
    _of_signal("message", "string", "why the response ended, in a sentence", lambda t: t.message or None),
    _of_signal("metadata", "string", "further readings of the provider, as JSON", lambda t: _json(t.metadata)),
)


def _json(value: Any) -> str | None:
    return json.dumps(value, ensure_ascii=False, sort_keys=True) if value else None


def _of_tool(name: str, dtype: str, help_: str, read: Callable[[ToolResult], Any]) -> Column:
    return Column(name, dtype, help_, lambda s, row: read(row[1]))


TOOL_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PROVIDER,
    MODEL,
    Column("step", "Int64", "the step it belongs to", lambda s, row: row[0].index),
    _of_tool("call_id", "string", "the provider's id of the call", lambda r: r.call_id),
    _of_tool("tool", "string", "its name", lambda r: r.name),
    _of_tool("arguments", "string", "as the model sent them", lambda r: r.arguments),
    _of_tool("content", "string", "what the model was told", lambda r: r.content),
    _of_tool("error", "string", "what went wrong, in a word", lambda r: r.error),
    _of_tool("stopped_run", "boolean", "whether the tool asked for the run's end", lambda r: r.stop is not None),
    _of_tool("duration_s", "Float64", "how long it took", lambda r: r.duration_s),
)

EVENT_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    Column("at_s", "Float64", "active time of the run", lambda s, e: e.at_s),
    Column("event", "string", "what happened", lambda s, e: type(e).__name__),
    Column("step", "Int64", "in which step", lambda s, e: e.step.index if hasattr(e, "step") else getattr(e, "turn", None)),
    Column("detail", "string", "the rest, in words", lambda s, e: _event_detail(e)),
)

READING_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    Column("step", "Int64", "after which step", lambda s, row: row[0].index),
    Column("condition", "string", "the leaf's name", lambda s, row: row[1]),
    Column("value", "object", "what was read; NA unknown", lambda s, row: plain(row[2].value)),
    Column("limit", "object", "the limit that held", lambda s, row: plain(row[2].limit)),
    Column("met", "boolean", "NA: cannot be said, not awaited, or off", lambda s, row: row[2].met),
)

RUN_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    Column(
        "parent_run_id", "string", "the run it was forked from, or of a sub-agent that called it", lambda s, r: s.parent_run_id
    ),
    Column("forked_at", "Int64", "steps that it has from there; NA: not forked", lambda s, r: s.forked_at),
    Column("parent_step", "Int64", "of a sub-agent, the step of its caller", lambda s, r: s.parent_step),
    Column("called_by", "string", "of a sub-agent, the tool call that started it", lambda s, r: s.called_by),
    PROVIDER,
    MODEL,
    Column("prompt", "string", "the task", lambda s, r: s.prompt),
    Column("stop_reason", "string", "why it ended; NA while it goes on", lambda s, r: _text(r.stop_reason) if r else None),
    Column("terminated", "boolean", "the agent came to an end of its own", lambda s, r: r.terminated if r else None),
    Column("truncated", "boolean", "something cut it off", lambda s, r: r.truncated if r else None),
    Column("stopped_by_condition", "boolean", "a condition was met", lambda s, r: r.stopped_by_condition if r else None),
    Column("detail", "string", "why it ended, in a sentence", lambda s, r: r.detail if r else None),
    Column("steps", "Int64", "steps taken", lambda s, r: len(s.history)),
    Column("calls", "Int64", "round trips to the model", lambda s, r: s.history.own_calls),
    Column("total_tokens", "Int64", "tokens in and out", lambda s, r: s.history.own_usage.total_tokens),
    Column("cost_usd", "Float64", "cost in US dollars", lambda s, r: _number(s.history.own_cost.usd)),
    Column("cost_source", "string", "reported, priced or unknown", lambda s, r: s.history.own_cost.source.value),
    Column("child_calls", "Int64", "round trips of its sub-agents", lambda s, r: s.history.calls - s.history.own_calls),
    Column("child_tokens", "Int64", "tokens of its sub-agents", lambda s, r: _of_children(s, "child_tokens", 0)),
    Column(
        "child_cost_usd", "Float64", "cost of its sub-agents", lambda s, r: _number(_of_children(s, "child_cost_usd", Decimal(0)))
    ),
    Column("elapsed_s", "Float64", "active time", lambda s, r: s.history.elapsed_s),
    Column("text", "string", "the last text", lambda s, r: r.text if r else None),
)


def _of_children(source: Source, name: str, start: Any) -> Any:
    """The sum over the steps of what their sub-agents used; None where a part is unknown."""
    parts = [getattr(step, name) for step in source.history if step.children]
    return None if None in parts else sum(parts, start)


def _error(error: BaseException | None) -> str | None:
    kind = error.kind if isinstance(error, StoredError) else type(error).__name__
    return None if error is None else f"{kind}: {error}"


def plain(value: object) -> object:
    """A value as a frame holds it: money as a float."""
    return float(value) if isinstance(value, Decimal) else value


def named_leaves(reading: Reading) -> dict[str, Reading]:
    """The readings of the single conditions, by the names that the frame's columns have."""
    named: dict[str, Reading] = {}
    for leaf in reading.leaves():
        named[unique_name(leaf.name, named)] = leaf
    return named


def _changes(part: str, before: Any, after: Any) -> list[str]:
    """What differs between two values of one part of the settings, field by field; either may be None."""
    if before is None or after is None:
        return [] if before is after else [f"{part} {before!r} -> {after!r}"]
    fields = [(name, getattr(before, name), getattr(after, name)) for name in before.__dataclass_fields__]
    return [f"{name} {old} -> {new}" for name, old, new in fields if old != new]


def _event_detail(event: events.Event) -> str:
    match event:
        case events.RunStarted():
            return f"{event.provider}:{event.model}, {event.settings.budget!r}, stop={event.settings.stop!r}"
        case events.LimitsChanged():
            changed = [
                told
                for part in ("budget", "continuation", "terminating")
                for told in _changes(part, getattr(event.before, part), getattr(event.after, part))
            ]
            changed += [
                f"{name} {getattr(event.before, name)!r} -> {getattr(event.after, name)!r}"
                for name in ("stop", "policy")
                if getattr(event.before, name) != getattr(event.after, name)
            ]
            return f"{', '.join(changed)} (by {event.by})"
        case events.StopReasonObserved():
            return f"{event.finish_reason} ({event.raw_value!r})"
        case events.CallRetried():
            return f"attempt {event.attempt} failed, next in {event.wait_s:.1f} s: {event.reason}"
        case events.ContinuationAttempted():
            tokens = "unknown" if event.output_tokens is None else f"{event.output_tokens:,}"
            so_far = f"{tokens} output tokens and {event.output_chars:,} characters so far"
            return f"attempt {event.attempt}, {event.remaining} left: {so_far}"
        case events.ContinuationEnded():
            attempts = f"{event.attempts} attempt{'s' * (event.attempts != 1)}"
            return f"{event.outcome} after {attempts} and {event.duration_s:.1f} s"
        case events.ToolPayloadRepair():
            asked = (
                "not asked again" if not event.attempted else "asked again, whole" if event.succeeded else "asked again, in vain"
            )
            return f"{event.issue} tool call: {asked}"
        case events.Nudged():
            return f"reminder {event.consecutive} of {event.allowed} in a row"
        case events.ToolStarted():
            return f"{event.tool_call.name}({event.tool_call.arguments})"
        case events.ToolFinished():
            return f"{event.result.name}: {event.result.error or 'ok'}"
        case events.ChildStarted():
            return f"{event.tool}: run {event.run_id}, {event.settings.budget!r}"
        case events.ChildEnded():
            tokens = "unknown" if event.child.usage.total_tokens is None else f"{event.child.usage.total_tokens:,}"
            steps = f"{event.child.steps} step{'s' * (event.child.steps != 1)}"
            return f"{event.child.handle}: {event.child.stop_reason or 'cut off'}, {steps}, {tokens} tokens"
        case events.RunResumed():
            return f"after {event.paused_s:.1f} s"
        case events.Warned():
            return event.message
        case events.TurnCompleted():
            return event.step.decision.reason
        case events.RunEnded():
            return f"{event.result.stop_reason}: {event.result.detail}"
        case _:
            return ""
