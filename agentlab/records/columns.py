"""The columns of every frame, as data: name, dtype, meaning, and the function that reads the value from a row.

All dtypes are nullable: NA is unknown, never 0. Money is in US dollars, times are seconds of the run's active time.
"""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from agentlab._internal.errors import ConfigurationError, StoredError
from agentlab._internal.redaction import in_words
from agentlab._internal.values import dataclass
from agentlab.limits.condition_tree import unique_name
from agentlab.limits.reading import Decision, Reading
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason, TerminationSignal
from agentlab.model.messages import ToolCall, ToolResult
from agentlab.model.responses import ResponseSource
from agentlab.records import events
from agentlab.records.events import detail_of, step_of
from agentlab.records.history import RunHistory
from agentlab.records.result import FOR_STOP_REASON, RunResult
from agentlab.records.step import ChildUse, ModelCall, Seam, StepResult, cost_usd_of, tokens_of


@dataclass(frozen=True, slots=True)
class Source:
    """The fields of a run that its rows need."""

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


def is_recorded(value: object) -> bool:
    """True for a result, and for a run, finished or not."""
    return isinstance(value, RunResult) or (hasattr(value, "agent") and hasattr(value, "history"))


def source_of(recorded: Any) -> Source:
    """Return the Source of a result or of a run, finished or not. Raises ConfigurationError for anything else."""
    if not is_recorded(recorded):
        raise ConfigurationError(f"{recorded!r} is not a run or a result: pass a run, or the result of awaiting it.")
    if isinstance(recorded, RunResult):
        run_id, provider, model, result, origin = recorded.run_id, recorded.provider, recorded.model, recorded, recorded
    else:
        provider, model = recorded.agent.model.name, recorded.agent.model.model
        run_id, result, origin = recorded.id, recorded.result, getattr(recorded, "origin", recorded)
    parent = (origin.parent_run_id, origin.forked_at, origin.parent_step, origin.called_by)
    return Source(run_id, provider, model, recorded.history, recorded.events, result, recorded.prompt, *parent)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a frame: `read` takes (source, row) and returns None for NA.

    A column with a `path` can also be read for many rows at once, see `agentlab.records.frames`: `path` lists the attributes to follow
    from a part of the row, and `then` converts the value at its end.
    """

    name: str
    dtype: str
    help: str
    read: Callable[[Source, Any], Any]
    path: str = ""
    then: Callable[[Any], Any] | None = None


Convert: TypeAlias = Callable[[Any], Any] | None


def word(value: object) -> str:
    """Return a member of an enum as a word."""
    return str(value)


def _or_none(text: str) -> str | None:
    return text or None


def _getter(path: str, then: Convert = None) -> Callable[[Any], Any]:
    """Return a function that follows a path of attributes and converts the value. It returns None if a part is None."""
    follow, names = operator.attrgetter(path), path.split(".")

    def get(row: Any) -> Any:
        try:
            value = follow(row)
        except AttributeError:
            value = row
            for name in names:
                value = None if value is None else getattr(value, name)
        return value if value is None or then is None else then(value)

    return get


def _columns_of(part: Callable[[Source, Any], Any]) -> Callable[..., Column]:
    """Return a function that creates columns for one part of (source, row), read by a path and a conversion, or by a function."""

    def column(name: str, dtype: str, help_: str, read: str | Callable[[Any], Any], then: Convert = None) -> Column:
        get = _getter(read, then) if isinstance(read, str) else read
        return Column(name, dtype, help_, lambda source, row: get(part(source, row)))

    return column


@dataclass(slots=True)
class StepRow:
    """A step with the totals up to it. `known_*` sum the known parts: lower bounds if the totals are None."""

    step: StepResult
    tokens: int | None = 0
    cost_usd: Decimal | None = Decimal(0)
    known_tokens: int = 0
    known_cost_usd: Decimal = Decimal(0)

    @property
    def settings(self) -> RunSettings:
        """The settings of the step, usually the same as in the step before."""
        return self.step.settings

    @property
    def seams(self) -> tuple[Seam, ...] | None:
        """The places where texts meet; None for a step with several texts that was stored by a version without seams."""
        return seams_of(self.step)

    def then(self, step: StepResult) -> StepRow:
        """Return the row of the next step."""
        tokens, cost = step.all_tokens, step.all_cost_usd
        return StepRow(
            step,
            None if self.tokens is None or tokens is None else self.tokens + tokens,
            None if self.cost_usd is None or cost is None else self.cost_usd + cost,
            self.known_tokens + known_tokens_of(step),
            self.known_cost_usd + known_cost_usd_of(step),
        )


def step_rows(steps: Iterable[StepResult], before: StepRow | None = None) -> Iterator[StepRow]:
    """Yield the rows of these steps, which follow the row `before` if there is one."""
    for step in steps:
        before = (StepRow(step) if before is None else before).then(step)
        yield before


def known_tokens_of(step: StepResult) -> int:
    """Return the known tokens of a step, including sub-agents."""
    return sum([call.usage.known_tokens for call in step.calls]) + sum([child.known_tokens for child in step.children])


def known_cost_usd_of(step: StepResult) -> Decimal:
    """Return the known cost of a step, including sub-agents."""
    own = sum([call.cost.known_usd for call in step.calls], Decimal(0))
    return sum([child.known_cost_usd for child in step.children], own)


def _of_run(name: str, help_: str) -> Column:
    return Column(name, "string", help_, lambda source, row: getattr(source, name), f"run.{name}")


RUN_ID = _of_run("run_id", "the run")
PROVIDER = _of_run("provider", "the provider's name")
MODEL = _of_run("model", "the requested model")
PARENT_RUN_ID = _of_run("parent_run_id", "the run it was forked from; of a sub-agent, the calling run")
CALLED_BY = _of_run("called_by", "of a sub-agent, the tool call that started it")

# One row per step -------------------------------------------------------------------------------------------------------------


def _of_step(name: str, dtype: str, help_: str, read: str | Callable[[StepResult], Any], then: Convert = None) -> Column:
    """Return a column of the step, read by a path of attributes and a conversion, or by a function."""
    path, last = (f"step.{read}", then) if isinstance(read, str) else ("step", read)
    return _of_step_row(name, dtype, help_, path, last)


def _of_step_row(name: str, dtype: str, help_: str, path: str, then: Convert = None) -> Column:
    """Return a column of a StepRow."""
    get = _getter(path, then)
    return Column(name, dtype, help_, lambda source, row: get(row), path, then)


def _child_cost_usd(children: Iterable[ChildUse]) -> float | None:
    cost = cost_usd_of(children)
    return None if cost is None else float(cost)


def _calls_of(children: tuple[ChildUse, ...]) -> int:
    return sum([child.calls for child in children])


def _names_of(tool_calls: tuple[ToolCall, ...]) -> str:
    return tool_calls[0].name if len(tool_calls) == 1 else ", ".join([call.name for call in tool_calls])


def seams_of(step: StepResult) -> tuple[Seam, ...] | None:
    """Return the places where texts meet; None for a step with several texts that was stored by a version without seams."""
    if len(step.calls) == 1 or step.seams:
        return step.seams
    return None if sum([call.used and bool(call.response.text) for call in step.calls]) > 1 else ()


def _dropped_characters(seams: tuple[Seam, ...]) -> int:
    return sum([len(seam.dropped) for seam in seams])


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
    _of_step("confidence", "string", "confidence in the reason: high, medium or low", "signal.confidence", word),
    _of_step("action", "string", "what the run did after the response", "decision.action", word),
    _of_step("stop_reason", "string", "why the run ended; only on its last step", "stop_reason", word),
    _of_step("input_tokens", "Int64", "input tokens, including cache reads and writes", "usage.input_tokens"),
    _of_step("output_tokens", "Int64", "output tokens, including reasoning", "usage.output_tokens"),
    _of_step("reasoning_tokens", "Int64", "the part of output_tokens for reasoning", "usage.reasoning_tokens"),
    _of_step("cache_read_tokens", "Int64", "the part of input_tokens read from a cache", "usage.cache_read_tokens"),
    _of_step("cache_write_tokens", "Int64", "the part of input_tokens written to a cache", "usage.cache_write_tokens"),
    _of_step("cache_write_1h_tokens", "Int64", "the part of it that is cached for an hour", "usage.cache_write_1h_tokens"),
    _of_step("total_tokens", "Int64", "input and output tokens", "usage.total_tokens"),
    _of_step("usage_source", "string", "reported, estimated, charged_cap or unknown", "usage.source", word),
    _of_step("cost_usd", "Float64", "cost in US dollars", "cost.usd", float),
    _of_step("cost_source", "string", "reported, priced or unknown", "cost.source", word),
    _of_step("cost_note", "string", "why the cost is unknown", "cost.reason", _or_none),
    _of_step("price_list", "string", "the price list, and the day of its prices", "cost.price_list", _or_none),
    _of_step("service_tier", "string", "the provider's word for the service tier", "usage.service_tier"),
    _of_step("web_searches", "Int64", "searches that the provider ran", "usage.web_searches"),
    _of_step("child_calls", "Int64", "round trips of sub-agents called in this step", "children", _calls_of),
    _of_step("child_tokens", "Int64", "tokens of these sub-agents", "children", tokens_of),
    _of_step("child_cost_usd", "Float64", "cost of these sub-agents", "children", _child_cost_usd),
    _of_step_row("cumulative_tokens", "Int64", "tokens of the run so far, including sub-agents", "tokens"),
    _of_step_row("cumulative_cost_usd", "Float64", "cost of the run so far, including sub-agents", "cost_usd", float),
    _of_step_row("known_tokens", "Int64", "the known part of cumulative_tokens, a lower bound", "known_tokens"),
    _of_step_row("known_cost_usd", "Float64", "the known part of cumulative_cost_usd, a lower bound", "known_cost_usd", float),
    _of_step("tool_calls", "Int64", "tool calls of the model", "tool_calls", len),
    _of_step("tools", "string", "their names, in order", "tool_calls", _names_of),
    _of_step("tool_errors", "Int64", "failed tool calls", "tool_results", _errors_of),
    _of_step("text", "string", "the model's text", "text"),
    _of_step("holes", "Int64", "places where a stream lost a piece of the answer; 0: none", "holes", len),
    _of_step("last_answer", "boolean", "the model was asked for its final answer, without tools", "last_answer"),
    _of_step_row("seams", "Int64", "places in the text where the texts of two calls meet", "seams", len),
    _of_step_row("dropped_characters", "Int64", "characters dropped from the text at seams", "seams", _dropped_characters),
    _of_step_row("max_turns", "Int64", "the limit that applied", "settings.budget.max_turns"),
    _of_step_row("max_calls", "Int64", "the limit that applied", "settings.budget.max_calls"),
    _of_step_row("max_tokens", "Int64", "the limit that applied", "settings.budget.max_tokens"),
    _of_step_row("max_tokens_per_turn", "Int64", "the limit that applied", "settings.budget.max_tokens_per_turn"),
    _of_step_row("max_cost_usd", "Float64", "the limit that applied", "settings.budget.max_cost", float),
    _of_step_row("timeout_s", "Float64", "the limit that applied", "settings.budget.timeout"),
    _of_step("remaining_turns", "Int64", "the rest of max_turns after the step", "remaining.turns"),
    _of_step("remaining_calls", "Int64", "the rest of max_calls after the step", "remaining.calls"),
    _of_step("remaining_tokens", "Int64", "the rest of max_tokens after the step", "remaining.tokens"),
    _of_step("remaining_cost_usd", "Float64", "the rest of max_cost_usd after the step", "remaining.cost_usd", float),
    _of_step("remaining_time_s", "Float64", "the rest of timeout_s after the step", "remaining.time_s"),
    _of_step("started_s", "Float64", "active time of the run when the step began", "started_s"),
    _of_step("duration_s", "Float64", "duration of the step", "duration_s"),
    _of_step("error", "string", "the error that ended the step", "error", _error),
    _of_step("condition_met", "boolean", "True if the whole stop condition was met", "readings.met"),
    PARENT_RUN_ID,
    CALLED_BY,
)


# One row per call ---------------------------------------------------------------------------------------------------------------

_of_pair_step = _columns_of(lambda source, row: row[0])  # rows are (step, call), (step, tool result) or (step, name, reading)
_of_call = _of_tool = _columns_of(lambda source, row: row[1])

CALL_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PROVIDER,
    MODEL,
    _of_pair_step("step", "Int64", "the step it belongs to", "index"),
    _of_call("call", "Int64", "number of the call in the run, from 1", "index"),
    _of_call("response_model", "string", "the model named in the response", "response.model"),
    _of_call("response_id", "string", "the provider's id", "response.response_id"),
    _of_call("finish_reason", "string", "why the response ended", "response.signal.finish_reason", word),
    _of_call("raw_field", "string", "the provider's field with the reason", "response.signal.raw_field", _or_none),
    _of_call("raw_finish_reason", "string", "the provider's own word", "response.signal.raw_value", str),
    _of_call("confidence", "string", "confidence in the reason: high, medium or low", "response.signal.confidence", word),
    _of_call("message", "string", "the reason in a sentence", "response.signal.message", _or_none),
    _of_call("input_tokens", "Int64", "input tokens, including cache reads and writes", "usage.input_tokens"),
    _of_call("output_tokens", "Int64", "output tokens, including reasoning", "usage.output_tokens"),
    _of_call("total_tokens", "Int64", "input and output tokens", "usage.total_tokens"),
    _of_call("usage_source", "string", "reported, estimated, charged_cap or unknown", "usage.source", word),
    _of_call("cost_usd", "Float64", "cost in US dollars", "cost.usd", float),
    _of_call("cost_source", "string", "reported, priced or unknown", "cost.source", word),
    _of_call("cost_note", "string", "why the cost is unknown", "cost.reason", _or_none),
    _of_call("price_list", "string", "the price list, and the day of its prices", "cost.price_list", _or_none),
    _of_call("service_tier", "string", "the provider's word for the service tier", "usage.service_tier"),
    _of_call("web_searches", "Int64", "searches that the provider ran", "usage.web_searches"),
    _of_call("requested_cap", "Int64", "the requested output cap", "requested_cap"),
    _of_call("retries", "Int64", "failed attempts before this answer", "retries"),
    _of_call("used", "boolean", "False: discarded by a middleware, or requested again after a lost piece", "used"),
    _of_call(
        "holes", "string", "where the stream lost a piece, in words", lambda c: "; ".join(map(str, c.response.holes)) or None
    ),
    _of_call("text", "string", "the model's text", "response.text"),
    _of_call("reasoning", "string", "its visible reasoning", "response.reasoning", _or_none),
    _of_call("started_s", "Float64", "active time of the run when the call began", "started_s"),
    _of_call("duration_s", "Float64", "duration of the call", "duration_s"),
    _of_call("detection_s", "Float64", "the part spent on parsing the answer and its finish reason", "response.detection_s"),
    _of_call("called_at", "datetime64[us, UTC]", "time of the call; if replayed, time of the recording", "response.source.at"),
    _of_call("replayed", "boolean", "True if it was replayed from a recording", "response.source.replayed"),
    _of_call("recording", "string", "the recording's file and the interaction's number", "response.source.recording", _or_none),
    _of_call("response_hash", "string", "hash of the response's body", "response.source.digest"),
    _of_call("rate_requests_left", "Int64", "requests left for the account, by the headers", "response.rate_limit.requests_left"),
    _of_call("rate_requests_limit", "Int64", "the account's limit on requests", "response.rate_limit.requests_limit"),
    _of_call("rate_requests_renew_s", "Float64", "seconds until all are available again", "response.rate_limit.requests_renew_s"),
    _of_call("rate_tokens_left", "Int64", "tokens left for the account, by the headers", "response.rate_limit.tokens_left"),
    _of_call("rate_tokens_limit", "Int64", "the account's limit on tokens", "response.rate_limit.tokens_limit"),
    _of_call("rate_tokens_renew_s", "Float64", "seconds until all are available again", "response.rate_limit.tokens_renew_s"),
)

# One row per response: why it ended, and the action of the run ------------------------------------------------------------------


@dataclass(slots=True)
class EndRow:
    """The end of a response, and the decision on it. `call` is None for a step without a response; `last` is True for a step's last
    call."""

    step: StepResult
    call: ModelCall | None
    last: bool

    @property
    def signal(self) -> TerminationSignal | None:
        """The signal of the response, if there is one."""
        return None if self.call is None else self.call.response.signal

    @property
    def decision(self) -> Decision | None:
        """The decision after the response."""
        return self.step.decision if self.last else self.call.decision if self.call is not None else None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run ended here, if it did."""
        return self.step.stop_reason if self.last else None

    @property
    def suggestion(self) -> str | None:
        """The decision's suggestion; if a limit ended the run after a usable response, the suggestion for that limit."""
        decision, reason = self.decision, self.stop_reason
        if decision is not None and (reason is None or decision.stop_reason is reason):
            return decision.suggestion
        return None if reason is None else FOR_STOP_REASON[reason]


def _as_json(value: Any) -> str | None:
    return json.dumps(value, ensure_ascii=False, sort_keys=True) if value else None


_of_row = _columns_of(lambda source, row: row)

TERMINATION_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PROVIDER,
    MODEL,
    _of_row("step", "Int64", "the step it belongs to", "step.index"),
    _of_row("call", "Int64", "number of the call in the run; NA: the step has no response", "call.index"),
    _of_row("finish_reason", "string", "why the response ended", "signal.finish_reason", word),
    _of_row("raw_field", "string", "the provider's field with the reason", "signal.raw_field", _or_none),
    _of_row("raw_finish_reason", "string", "the provider's own word", "signal.raw_value", str),
    _of_row("confidence", "string", "confidence in the reason: high, medium or low", "signal.confidence", word),
    _of_row("should_terminate", "boolean", "True if the response needs no further request", "signal.should_terminate"),
    _of_row("action", "string", "what the run did after the response", "decision.action", word),
    _of_row("stop_reason", "string", "why the run ended, if it did", "stop_reason", word),
    _of_row("suggestion", "string", "retry, modify_prompt, increase_budget or stop", "suggestion"),
    _of_row("reason", "string", "why it did so, in a sentence", "decision.reason"),
    _of_row("message", "string", "why the response ended, in a sentence", "signal.message", _or_none),
    _of_row("metadata", "string", "further values from the response, as JSON", "signal.metadata", _as_json),
)

# One row per tool call, event, reading ------------------------------------------------------------------------------------------

TOOL_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PROVIDER,
    MODEL,
    _of_pair_step("step", "Int64", "the step it belongs to", "index"),
    _of_tool("call_id", "string", "the provider's id of the call", "call_id"),
    _of_tool("tool", "string", "the tool's name", "name"),
    _of_tool("arguments", "string", "the arguments that the model sent", "arguments"),
    _of_tool("executed_arguments", "string", "the arguments after a middleware or a person; NA: unchanged", "executed_arguments"),
    _of_tool("middleware", "string", "what a middleware changed: arguments, result, or answer", "middleware", _or_none),
    _of_tool(
        "approval", "string", "a person's decision: approved, edited, answered or refused; NA: not asked", "approval", _or_none
    ),
    _of_tool(
        "waited_s", "Float64", "seconds until that decision, which count as time of the run unless it was paused", "waited_s"
    ),
    _of_tool("content", "string", "the text that the model received", "content"),
    _of_tool("error", "string", "the kind of error, in one word", "error"),
    _of_tool("stopped_run", "boolean", "True if the tool requested the end of the run", lambda result: result.stop is not None),
    _of_tool("duration_s", "Float64", "duration of the tool call", "duration_s"),
)

EVENT_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PROVIDER,
    MODEL,
    _of_row("at_s", "Float64", "active time of the run", "at_s"),
    _of_row("event", "string", "the event's class", lambda event: type(event).__name__),
    _of_row("step", "Int64", "the step", step_of),
    _of_row("detail", "string", "the details, as text", detail_of),
)

_of_reading = _columns_of(lambda source, row: row[2])

READING_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    _of_pair_step("step", "Int64", "the step after which it was read", "index"),
    Column("condition", "string", "the condition's name", lambda source, row: row[1]),
    _of_reading("value", "object", "the value that was read; NA: unknown", lambda reading: plain(reading.value)),
    _of_reading("limit", "object", "the limit that applied", lambda reading: plain(reading.limit)),
    _of_reading("met", "boolean", "NA: undecided, not awaited, or turned off", "met"),
)

# One row per run -----------------------------------------------------------------------------------------------------------------


def _sources(history: RunHistory) -> Iterator[ResponseSource]:
    """Yield the sources of a run's responses, as far as known."""
    return (call.response.source for step in history for call in step.calls if call.response.source is not None)


def _replayed(history: RunHistory) -> bool | None:
    known = [source.replayed for source in _sources(history)]
    return any(known) if known else None


def _children(history: RunHistory) -> Iterator[ChildUse]:
    """Yield the usage of sub-agents in all steps, and in an interrupted attempt at the next one."""
    return itertools.chain(*(step.children for step in history), history.cut_off)


_of_source = _columns_of(lambda source, row: source)
_of_history = _columns_of(lambda source, row: source.history)

RUN_COLUMNS: tuple[Column, ...] = (
    RUN_ID,
    PARENT_RUN_ID,
    _of_source("forked_at", "Int64", "steps taken over from it; NA: not forked", "forked_at"),
    _of_source("parent_step", "Int64", "of a sub-agent, the step of its caller", "parent_step"),
    CALLED_BY,
    PROVIDER,
    MODEL,
    _of_source("prompt", "string", "the task", "prompt"),
    _of_row("stop_reason", "string", "why it ended; NA: still running", "stop_reason", word),
    _of_row("terminated", "boolean", "the agent finished on its own", "terminated"),
    _of_row("truncated", "boolean", "something cut it off", "truncated"),
    _of_row("stopped_by_condition", "boolean", "a condition was met", "stopped_by_condition"),
    _of_row("detail", "string", "why it ended, in a sentence", "detail"),
    _of_history("steps", "Int64", "number of steps", len),
    _of_history("calls", "Int64", "round trips to the model", "own_calls"),
    _of_history("total_tokens", "Int64", "input and output tokens", "own_usage.total_tokens"),
    _of_history("cost_usd", "Float64", "cost in US dollars", "own_cost.usd", float),
    _of_history("cost_source", "string", "reported, priced or unknown", "own_cost.source", word),
    _of_history("cost_note", "string", "why the cost is unknown", "own_cost.reason", _or_none),
    _of_history("child_calls", "Int64", "round trips of its sub-agents", lambda history: history.calls - history.own_calls),
    _of_history("child_tokens", "Int64", "tokens of its sub-agents", lambda history: tokens_of(_children(history))),
    _of_history("child_cost_usd", "Float64", "cost of its sub-agents", lambda history: _child_cost_usd(_children(history))),
    _of_history("elapsed_s", "Float64", "active time", "elapsed_s"),
    _of_row("text", "string", "the answer: the output if there is one, else the model's last text", "text"),
    _of_history("replayed", "boolean", "True if any of its calls was replayed from a recording", _replayed),
    _of_history(
        "recording_id",
        "string",
        "hash of the first response: the same for replays of one recording and for forks of one run",
        lambda history: next((source.digest for source in _sources(history)), None),
    ),
)


def plain(value: object) -> object:
    """Return a value for a frame: money becomes a float."""
    return float(value) if isinstance(value, Decimal) else value


def named_leaves(reading: Reading) -> dict[str, Reading]:
    """Return the readings of the single conditions by their column names."""
    named: dict[str, Reading] = {}
    for leaf in reading.leaves():
        named[unique_name(leaf.name, named)] = leaf
    return named
