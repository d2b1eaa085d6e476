"""The columns of every frame, as data: a name, a dtype, what it means, and how it is read off a row.

All dtypes are nullable: NA is unknown, never 0. Money is in US dollars, times are seconds of the run's active time.
"""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from agentlab import events
from agentlab.errors import StoredError
from agentlab.event_details import detail_of
from agentlab.leaf_names import unique_name
from agentlab.redaction import in_words
from agentlab.results import ChildUse, Decision, ModelCall, Reading, RunResult, Seam, StepResult, cost_usd_of, tokens_of
from agentlab.suggestions import FOR_STOP_REASON
from agentlab.types import ResponseSource, StopReason, TerminationSignal, ToolCall, ToolResult

if TYPE_CHECKING:
    from agentlab.history import RunHistory


@dataclass(frozen=True, slots=True)
class Source:
    """What a row knows of its run."""

    run_id: str
    provider: str
    model: str
    history: RunHistory
    events: Sequence[events.Event]
    result: RunResult | None
    prompt: str
    parent_run_id: str | None
    forked_at: int | None
    parent_step: int | None = None
    called_by: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a frame: `read` gets (source, row) and answers None for NA.

    A column with a `path` says the same in a way that is read for many rows at once, see `agentlab.rows`: attributes from a part of the
    row, and what is made of the value at its end, unless that is None.
    """

    name: str
    dtype: str
    help: str
    read: Callable[[Source, Any], Any]
    path: str = ""
    then: Callable[[Any], Any] | None = None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def word(value: object) -> str:
    """A member of an enum as a word."""
    return str(value)


def _some(text: str) -> str | None:
    return text or None


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
        return StepRow(
            step,
            None if self.tokens is None or tokens is None else self.tokens + tokens,
            None if self.cost_usd is None or cost is None else self.cost_usd + cost,
            self.known_tokens + known_tokens_of(step),
            self.known_cost_usd + known_cost_usd_of(step),
        )


def step_rows(steps: Iterable[StepResult], before: StepRow | None = None) -> Iterator[StepRow]:
    """The rows of these steps, behind the row before them if there is one."""
    for step in steps:
        before = (StepRow(step) if before is None else before).then(step)
        yield before


def known_tokens_of(step: StepResult) -> int:
    """The tokens of a step that are known, sub-agents included."""
    return sum([call.usage.known_tokens for call in step.calls]) + sum([child.known_tokens for child in step.children])


def known_cost_usd_of(step: StepResult) -> Decimal:
    """The money of a step that is known, sub-agents included."""
    own = sum([call.cost.known_usd for call in step.calls], Decimal(0))
    return sum([child.known_cost_usd for child in step.children], own)


def _of_run(name: str, help_: str) -> Column:
    return Column(name, "string", help_, lambda s, r: getattr(s, name), f"run.{name}")


RUN_ID = _of_run("run_id", "the run")
PROVIDER = _of_run("provider", "the provider's name")
MODEL = _of_run("model", "the model asked for")


def _of_step(
    name: str, dtype: str, help_: str, read: str | Callable[[StepResult], Any], then: Callable[[Any], Any] | None = None
) -> Column:
    """A column off the step: the path of attributes from it and what is made of the value there, or a function of the step."""
    path, last = (f"step.{read}", then) if isinstance(read, str) else ("step", read)
    return Column(name, dtype, help_, _reader(path, last), path, last)


def _of_settings(name: str, dtype: str, help_: str, path: str, then: Callable[[Any], Any] | None = None) -> Column:
    """A column off the settings of the step, which mostly are those of the step before."""
    return Column(name, dtype, help_, _reader(f"step.settings.{path}", then), f"settings.{path}", then)


def _of_sums(name: str, dtype: str, help_: str, path: str, then: Callable[[Any], Any] | None = None) -> Column:
    """A column off the sums up to the step, as StepRow has them."""
    return Column(name, dtype, help_, _reader(path, then), path, then)


def _reader(path: str, then: Callable[[Any], Any] | None) -> Callable[[Source, Any], Any]:
    whole, names = operator.attrgetter(path), path.split(".")

    def read(source: Source, row: Any) -> Any:
        try:
            value = whole(row)
        except AttributeError:  # the path comes to an end before, at a None
            value = row
            for name in names:
                value = None if value is None else getattr(value, name)
        return value if value is None or then is None else then(value)

    return read


def _calls_of(children: tuple[ChildUse, ...]) -> int:
    return sum([child.calls for child in children])


def _names_of(tool_calls: tuple[ToolCall, ...]) -> str:
    return tool_calls[0].name if len(tool_calls) == 1 else ", ".join([call.name for call in tool_calls])


def _seams_of(step: StepResult) -> tuple[Seam, ...] | None:
    """The places where pieces of the text meet; None for a step of several pieces that was stored before they were kept."""
    if len(step.calls) == 1 or step.seams:
        return step.seams
    return None if sum([call.used and bool(call.response.text) for call in step.calls]) > 1 else ()


def _seam_count(step: StepResult) -> int | None:
    seams = _seams_of(step)
    return None if seams is None else len(seams)


def _dropped_characters(step: StepResult) -> int | None:
    seams = _seams_of(step)
    return None if seams is None else sum([len(seam.dropped) for seam in seams])


def _errors_of(results: tuple[ToolResult, ...]) -> int:
    return (0 if results[0].error is None else 1) if len(results) == 1 else sum([result.is_error for result in results])


def _error(error: BaseException) -> str:
    return f"{error.kind}: {error}" if isinstance(error, StoredError) else in_words(error)


STEP_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PROVIDER,
    MODEL,
    _of_step("step", "Int64", "number of the step, from 1", "index"),
    _of_step("calls", "Int64", "round trips to the model in this step", "calls", len),
    _of_step("finish_reason", "string", "why the last response ended", "signal.finish_reason", word),
    _of_step("raw_finish_reason", "string", "the provider's own word", "signal.raw_value", str),
    _of_step("confidence", "string", "how sure the reason is", "signal.confidence", word),
    _of_step("action", "string", "what followed from the response", "decision.action", word),
    _of_step("stop_reason", "string", "why the run ended; only on its last step", "stop_reason", word),
    _of_step("input_tokens", "Int64", "tokens in, cache included", "usage.input_tokens"),
    _of_step("output_tokens", "Int64", "tokens out, reasoning included", "usage.output_tokens"),
    _of_step("reasoning_tokens", "Int64", "part of the tokens out", "usage.reasoning_tokens"),
    _of_step("cache_read_tokens", "Int64", "part of the tokens in", "usage.cache_read_tokens"),
    _of_step("cache_write_tokens", "Int64", "part of the tokens in", "usage.cache_write_tokens"),
    _of_step("cache_write_1h_tokens", "Int64", "part of those written, kept for an hour", "usage.cache_write_1h_tokens"),
    _of_step("total_tokens", "Int64", "tokens in and out", "usage.total_tokens"),
    _of_step("usage_source", "string", "reported, estimated, charged_cap or unknown", "usage.source", word),
    _of_step("cost_usd", "Float64", "cost in US dollars", "cost.usd", float),
    _of_step("cost_source", "string", "reported, priced or unknown", "cost.source", word),
    _of_step("cost_note", "string", "why the cost is unknown", "cost.reason", _some),
    _of_step("price_list", "string", "the list that priced it, and the day of its prices", "cost.price_list", _some),
    _of_step("service_tier", "string", "the provider's word for the tier that served it", "usage.service_tier"),
    _of_step("web_searches", "Int64", "searches that the provider ran", "usage.web_searches"),
    _of_step("child_calls", "Int64", "round trips of sub-agents called in this step", "children", _calls_of),
    _of_step("child_tokens", "Int64", "tokens of these sub-agents", "children", tokens_of),
    _of_step("child_cost_usd", "Float64", "cost of these sub-agents", "children", lambda c: _number(cost_usd_of(c))),
    _of_sums("cumulative_tokens", "Int64", "tokens of the run up to here, sub-agents included", "tokens"),
    _of_sums("cumulative_cost_usd", "Float64", "cost of the run up to here, sub-agents included", "cost_usd", float),
    _of_sums("known_tokens", "Int64", "of them known: a lower bound where they are NA", "known_tokens"),
    _of_sums("known_cost_usd", "Float64", "of it known: a lower bound where it is NA", "known_cost_usd", float),
    _of_step("tool_calls", "Int64", "tool calls asked for", "tool_calls", len),
    _of_step("tools", "string", "their names, in order", "tool_calls", _names_of),
    _of_step("tool_errors", "Int64", "of them failed", "tool_results", _errors_of),
    _of_step("text", "string", "what the model said", "text"),
    _of_step("holes", "Int64", "places where a stream lost a piece of the answer; 0: none", "holes", len),
    _of_step("seams", "Int64", "places in the text where the texts of two calls meet", _seam_count),
    _of_step("dropped_characters", "Int64", "not in the text, since the model repeated them there", _dropped_characters),
    _of_settings("max_turns", "Int64", "limit that held", "budget.max_turns"),
    _of_settings("max_calls", "Int64", "limit that held", "budget.max_calls"),
    _of_settings("max_tokens", "Int64", "limit that held", "budget.max_tokens"),
    _of_settings("max_tokens_per_turn", "Int64", "limit that held", "budget.max_tokens_per_turn"),
    _of_settings("max_cost_usd", "Float64", "limit that held", "budget.max_cost", float),
    _of_settings("timeout_s", "Float64", "limit that held", "budget.timeout"),
    _of_step("remaining_turns", "Int64", "left of it", "remaining.turns"),
    _of_step("remaining_calls", "Int64", "left of it", "remaining.calls"),
    _of_step("remaining_tokens", "Int64", "left of it", "remaining.tokens"),
    _of_step("remaining_cost_usd", "Float64", "left of it", "remaining.cost_usd", float),
    _of_step("remaining_time_s", "Float64", "left of it", "remaining.time_s"),
    _of_step("started_s", "Float64", "active time of the run when the step began", "started_s"),
    _of_step("duration_s", "Float64", "how long the step took", "duration_s"),
    _of_step("error", "string", "what cut the step short", "error", _error),
    _of_step("condition_met", "boolean", "whether the whole stop condition was met", "readings.met"),
)


def _of_call(name: str, dtype: str, help_: str, read: Callable[[ModelCall], Any]) -> Column:
    return Column(name, dtype, help_, lambda s, row: read(row[1]))


def _of_source(name: str, dtype: str, help_: str, read: Callable[[ResponseSource], Any]) -> Column:
    return _of_call(name, dtype, help_, lambda c: None if c.response.source is None else read(c.response.source))


def _text_of_holes(call: ModelCall) -> str | None:
    return "; ".join(map(str, call.response.holes)) or None


def _of_rate(field: str, dtype: str, help_: str) -> Column:
    """A column off the provider's own limits on the account."""
    return _of_call(f"rate_{field}", dtype, help_, lambda c: getattr(c.response.rate_limit, field, None))


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
    _of_call("cost_note", "string", "why the cost is unknown", lambda c: c.cost.reason or None),
    _of_call("price_list", "string", "the list that priced it, and the day of its prices", lambda c: c.cost.price_list or None),
    _of_call("service_tier", "string", "the provider's word for the tier that served it", lambda c: c.usage.service_tier),
    _of_call("web_searches", "Int64", "searches that the provider ran", lambda c: c.usage.web_searches),
    _of_call("requested_cap", "Int64", "the output cap that was asked for", lambda c: c.requested_cap),
    _of_call("retries", "Int64", "attempts that failed before", lambda c: c.retries),
    _of_call(
        "used", "boolean", "False: a middleware left it aside, or it lost a piece and was asked for again", lambda c: c.used
    ),
    _of_call("holes", "string", "where the stream lost a piece of it, in words", _text_of_holes),
    _of_call("text", "string", "what the model said", lambda c: c.response.text),
    _of_call("reasoning", "string", "its visible reasoning", lambda c: c.response.reasoning or None),
    _of_call("started_s", "Float64", "active time of the run when the call began", lambda c: c.started_s),
    _of_call("duration_s", "Float64", "how long it took", lambda c: c.duration_s),
    _of_call(
        "detection_s", "Float64", "of it, to read the answer and find the reason of its end", lambda c: c.response.detection_s
    ),
    _of_source("called_at", "datetime64[us, UTC]", "time of the call; of a replayed one, when it was recorded", lambda s: s.at),
    _of_source("replayed", "boolean", "whether it was replayed from a recording", lambda s: s.replayed),
    _of_source("recording", "string", "the file and the number in it", lambda s: s.recording or None),
    _of_source("response_hash", "string", "hash of the response's body", lambda s: s.digest),
    _of_rate("requests_left", "Int64", "requests that the account has left, by the answer's headers"),
    _of_rate("requests_limit", "Int64", "of so many"),
    _of_rate("requests_renew_s", "Float64", "seconds from the answer until all are there again"),
    _of_rate("tokens_left", "Int64", "tokens that the account has left, by the answer's headers"),
    _of_rate("tokens_limit", "Int64", "of so many"),
    _of_rate("tokens_renew_s", "Float64", "seconds from the answer until all are there again"),
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
    _of_tool("executed_arguments", "string", "as a middleware changed them; NA: as sent", lambda r: r.executed_arguments),
    _of_tool("middleware", "string", "what a middleware changed: arguments, result, or answer", lambda r: r.middleware or None),
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
    Column("detail", "string", "the rest, in words", lambda s, e: detail_of(e)),
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
    Column("cost_note", "string", "why the cost is unknown", lambda s, r: s.history.own_cost.reason or None),
    Column("child_calls", "Int64", "round trips of its sub-agents", lambda s, r: s.history.calls - s.history.own_calls),
    Column("child_tokens", "Int64", "tokens of its sub-agents", lambda s, r: tokens_of(_children(s.history))),
    Column("child_cost_usd", "Float64", "cost of its sub-agents", lambda s, r: _number(cost_usd_of(_children(s.history)))),
    Column("elapsed_s", "Float64", "active time", lambda s, r: s.history.elapsed_s),
    Column("text", "string", "the answer: what was handed in, else the model's last text", lambda s, r: r.text if r else None),
    Column("replayed", "boolean", "whether any call of it was replayed from a recording", lambda s, r: _replayed(s.history)),
    Column(
        "recording_id",
        "string",
        "hash of the first response: the same for replays of one recording and for branches of one run",
        lambda s, r: next((source.digest for source in _sources(s.history)), None),
    ),
)


def _sources(history: RunHistory) -> Iterator[ResponseSource]:
    """Where the responses of a run were made, as far as that is known."""
    return (call.response.source for step in history for call in step.calls if call.response.source is not None)


def _replayed(history: RunHistory) -> bool | None:
    known = [source.replayed for source in _sources(history)]
    return any(known) if known else None


def _children(history: RunHistory) -> Iterator[ChildUse]:
    """What sub-agents used, in all steps and in one that was cut off."""
    return itertools.chain(*(step.children for step in history), history.cut_off)


def plain(value: object) -> object:
    """A value as a frame holds it: money as a float."""
    return float(value) if isinstance(value, Decimal) else value


def named_leaves(reading: Reading) -> dict[str, Reading]:
    """The readings of the single conditions, by the names that the frame's columns have."""
    named: dict[str, Reading] = {}
    for leaf in reading.leaves():
        named[unique_name(leaf.name, named)] = leaf
    return named
