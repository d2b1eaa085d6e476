"""Runs as a record tells them, and the frames that they make.

A reader fills in a ReadTurn for each step and a ReadRun for each run, with None for whatever its record does not say. The columns come
from `agentlab.columns` by name, so that one that is new there is NA here.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from agentlab.columns import RUN_COLUMNS, STEP_COLUMNS
from agentlab.errors import ConfigurationError
from agentlab.pricing import PRICE_BOOK_NAMES
from agentlab.printable import AS_WRITTEN, cut, escape, printable
from agentlab.recorder import SHOWN, any_array, array, table_of
from agentlab.types import Cost, CostSource, FinishReason, StopReason, Usage, UsageSource
from agentlab.usage import add_cost, add_usage

LONGEST_TEXT = 1_000_000
"""Characters of one text that are kept; what is longer is cut, and ends with "…"."""

LARGEST = 10**15
"""Of a count that is believed: sums of a million of them still fit their column."""

_ENDED_OF_ITS_OWN = (StopReason.COMPLETED, StopReason.TERMINATING_TOOL)
_SOMEONE_ENDED_IT = (StopReason.EXPLICIT_STOP, StopReason.STOP_CONDITION)
UNKNOWN_USAGE, UNKNOWN_COST = Usage(), Cost()


@dataclass(frozen=True, slots=True)
class ReadTurn:
    """One step. `tools` are the names of the tool calls in order, `children` the ids of the runs of sub-agents called in it.

    `number` is the step's own, where the record has one.
    """

    provider: str | None = None
    model: str | None = None
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    action: str | None = None
    usage: Usage = UNKNOWN_USAGE
    cost: Cost = UNKNOWN_COST
    calls: int | None = None
    tools: tuple[str, ...] | None = None
    tool_errors: int | None = None
    text: str | None = None
    started_s: float | None = None
    duration_s: float | None = None
    error: str | None = None
    children: tuple[str, ...] = ()
    number: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRun:
    """One run. `usage` and `cost` are the record's own sums, taken where it has no steps to add up; `limits` are columns of the steps
    frame, `about` further columns of the runs frame. `children` are runs of sub-agents that belong to no step. Of a fork, the first
    `forked_at` turns are its parent's; `begins_later` is True where the record lacks a run's first steps."""

    run_id: str
    turns: Sequence[ReadTurn] = ()
    provider: str | None = None
    model: str | None = None
    prompt: str | None = None
    stop_reason: StopReason | None = None
    detail: str | None = None
    parent_run_id: str | None = None
    parent_step: int | None = None
    called_by: str | None = None
    elapsed_s: float | None = None
    text: str | None = None
    usage: Usage = UNKNOWN_USAGE
    cost: Cost = UNKNOWN_COST
    scores: Mapping[str, bool | float] = field(default_factory=dict)
    limits: Mapping[str, int | float | None] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    children: tuple[str, ...] = ()
    forked_at: int | None = None
    begins_later: bool = False


@dataclass(slots=True)
class _Sums:
    """What was used: None where a part is unknown; `known_*` without those parts."""

    calls: int | None = 0
    tokens: int | None = 0
    cost_usd: Decimal | None = Decimal(0)
    known_tokens: int = 0
    known_cost_usd: Decimal = Decimal(0)

    def add(self, other: _Sums) -> None:
        self.calls = _plus(self.calls, other.calls)
        self.tokens = _plus(self.tokens, other.tokens)
        self.cost_usd = _plus(self.cost_usd, other.cost_usd)
        self.known_tokens += other.known_tokens
        self.known_cost_usd += other.known_cost_usd


def _plus(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def _of(usage: Usage, cost: Cost, calls: int | None) -> _Sums:
    return _Sums(calls, usage.total_tokens, cost.usd, usage.known_tokens, cost.known_usd)


def frames(runs: Sequence[ReadRun]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The steps frame and the runs frame."""
    by_id = {run.run_id: run for run in runs}
    used: dict[str, _Sums] = {}
    for run in runs:
        _with_children(run, by_id, used)
    steps = [row for run in runs for row in _step_rows(run, used)]
    rows = [_run_row(run, used) for run in runs]
    runs_frame = _frame(rows, RUN_COLUMNS)
    for name, values in score_columns([run.scores for run in runs]).items():
        runs_frame[name] = values
    for name in dict.fromkeys(name for run in runs for name in run.about):
        runs_frame[name] = any_array([run.about.get(name) for run in runs])
    return _frame(steps, STEP_COLUMNS), runs_frame


def _frame(rows: list[dict[str, Any]], columns: Iterable[Any]) -> pd.DataFrame:
    return pd.DataFrame({column.name: array([row.get(column.name) for row in rows], column.dtype) for column in columns})


def _with_children(run: ReadRun, by_id: Mapping[str, ReadRun], used: dict[str, _Sums]) -> None:
    """What a run used, with all that is below it, into `used`; a record that goes round in circles is cut where it closes."""
    waiting, under_way = [run], set[str]()
    while waiting:
        one = waiting[-1]
        if one.run_id in used:
            waiting.pop()
            continue
        new_turns = one.turns if one.begins_later else one.turns[one.forked_at or 0 :]
        below = [child for turn in new_turns for child in turn.children] + list(one.children)
        new = [by_id[child] for child in below if child in by_id and child not in used and child not in under_way]
        if new and one.run_id not in under_way:
            under_way.add(one.run_id)
            waiting += new
            continue
        sums = own(one, new_turns)
        for child in below:
            sums.add(used.get(child, _Sums()))
        used[one.run_id] = sums
        waiting.pop()


def own(run: ReadRun, turns: Sequence[ReadTurn]) -> _Sums:
    """What a run used itself in these of its steps; its record's own sums where that has no steps."""
    if not run.turns:
        return _of(run.usage, run.cost, None)
    sums = _Sums()
    for turn in turns:
        sums.add(_of(turn.usage, turn.cost, turn.calls))
    return sums


def _step_rows(run: ReadRun, used: Mapping[str, _Sums]) -> list[dict[str, Any]]:
    so_far = _Sums(None, None, None) if run.begins_later else _Sums()
    rows = []
    for place, turn in enumerate(run.turns, 1):
        below = _Sums()
        for child in turn.children:
            below.add(used.get(child, _Sums()))
        so_far.add(_of(turn.usage, turn.cost, turn.calls))
        so_far.add(below)
        usage = turn.usage
        last = place == len(run.turns)
        rows.append({
            "run_id": run.run_id,
            "provider": turn.provider or run.provider,
            "model": turn.model or run.model,
            "step": turn.number or place,
            "calls": turn.calls,
            "finish_reason": _word(turn.finish_reason),
            "raw_finish_reason": turn.raw_finish_reason,
            "action": turn.action,
            "stop_reason": _word(run.stop_reason) if last else None,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "cache_write_1h_tokens": usage.cache_write_1h_tokens,
            "total_tokens": usage.total_tokens,
            "usage_source": usage.source.value,
            "cost_usd": _float(turn.cost.usd),
            "cost_source": turn.cost.source.value,
            "cost_note": turn.cost.reason or None,
            "price_list": turn.cost.price_list or None,
            "service_tier": usage.service_tier,
            "web_searches": usage.web_searches,
            "child_calls": below.calls,
            "child_tokens": below.tokens,
            "child_cost_usd": _float(below.cost_usd),
            "cumulative_tokens": so_far.tokens,
            "cumulative_cost_usd": _float(so_far.cost_usd),
            "known_tokens": so_far.known_tokens,
            "known_cost_usd": _float(so_far.known_cost_usd),
            "tool_calls": None if turn.tools is None else len(turn.tools),
            "tools": None if turn.tools is None else ", ".join(turn.tools),
            "tool_errors": turn.tool_errors,
            "text": turn.text,
            "started_s": turn.started_s,
            "duration_s": turn.duration_s,
            "error": turn.error,
            **run.limits,
        })  # fmt: skip
    return rows


def _run_row(run: ReadRun, used: Mapping[str, _Sums]) -> dict[str, Any]:
    sums, below = own(run, run.turns), _Sums()
    for child in [*run.children, *(child for turn in run.turns for child in turn.children)]:
        below.add(used.get(child, _Sums()))
    cost = summed_cost([turn.cost for turn in run.turns]) if run.turns else run.cost
    stop = run.stop_reason
    text = run.text or next((turn.text for turn in reversed(run.turns) if turn.text), None)
    return {
        "run_id": run.run_id,
        "parent_run_id": run.parent_run_id,
        "forked_at": run.forked_at,
        "parent_step": run.parent_step,
        "called_by": run.called_by,
        "provider": run.provider or next((turn.provider for turn in run.turns if turn.provider), None),
        "model": run.model or next((turn.model for turn in run.turns if turn.model), None),
        "prompt": run.prompt,
        "stop_reason": _word(stop),
        # Who stopped it, or which condition did, would have to be known to say whether that was an end of its own.
        "terminated": None if stop is None or stop in _SOMEONE_ENDED_IT else stop in _ENDED_OF_ITS_OWN,
        "truncated": None if stop is None or stop in _SOMEONE_ENDED_IT else stop not in _ENDED_OF_ITS_OWN,
        "stopped_by_condition": True if stop is StopReason.STOP_CONDITION else None,
        "detail": run.detail,
        "steps": (run.turns[-1].number or len(run.turns)) if run.turns else None,
        "calls": None if run.begins_later else sums.calls,
        "total_tokens": None if run.begins_later else sums.tokens,
        "cost_usd": None if run.begins_later else _float(sums.cost_usd),
        "cost_source": CostSource.UNKNOWN.value if run.begins_later else cost.source.value,
        "cost_note": cost.reason or None,
        "child_calls": below.calls,
        "child_tokens": below.tokens,
        "child_cost_usd": _float(below.cost_usd),
        "elapsed_s": run.elapsed_s,
        "text": text,
    }


def summed_cost(costs: Sequence[Cost]) -> Cost:
    """The sum, from the least sure of their sources; unknown where a part is, and of nothing."""
    return reduce(add_cost, costs) if costs else Cost()


def score_columns(scores: Sequence[Mapping[str, bool | float]]) -> dict[str, Any]:
    """A column a score, of as many rows as there are runs: booleans where all of them are, else numbers."""
    made = {}
    for name in sorted({name for one in scores for name in one}, key=lambda name: (name != "score", name)):
        values = [one.get(name) for one in scores]
        if not all(isinstance(value, bool) for value in values if value is not None):
            values = [None if value is None else float(value) for value in values]
        made[name] = any_array(values)
    return made


def _float(value: Decimal | None) -> float | None:
    return None if value is None else float(value)


def _word(value: Any) -> str | None:
    return None if value is None else str(value.value)


# Values as they come from outside ------------------------------------------------------------------------------------------------


def count_of(value: object) -> int | None:
    """A number of tokens or of the like: a whole number, not negative, that can be believed; None otherwise."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST else None


def money_of(value: object) -> Decimal | None:
    """US dollars: finite and not negative; None otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal) or len(str(value)) > 40:
        return None
    try:
        usd = Decimal(str(value))
    except ArithmeticError:
        return None
    return usd if usd.is_finite() and 0 <= usd < 10**12 else None


def text_of(value: object) -> str | None:
    """Text of a bearable length; None where it is none."""
    if not isinstance(value, str):
        return None
    return value if len(value) <= LONGEST_TEXT else value[:LONGEST_TEXT] + "…"


def usage_of(
    input_tokens: int | None,
    output_tokens: int | None,
    cache_read: int | None = None,
    cache_write: int | None = None,
    reasoning: int | None = None,
    *,
    service_tier: str | None = None,
    also_charged: tuple[str, ...] = (),
) -> Usage:
    """Tokens that a record reports; of unknown source where it has neither of both counts."""
    known = input_tokens is not None or output_tokens is not None
    source = UsageSource.REPORTED if known else UsageSource.UNKNOWN
    counts = (input_tokens, output_tokens, cache_read, cache_write, reasoning)
    return Usage(*counts, source, service_tier=service_tier, also_charged=also_charged)


def summed_usage(usages: Sequence[Usage]) -> Usage:
    """The sum over the calls of a step; a part that one of them does not know is unknown."""
    return reduce(add_usage, usages) if usages else Usage()


_E = FinishReason
FINISH_REASONS: Mapping[str, FinishReason] = {
    # OpenAI chat completions, and those who speak that wire; OpenTelemetry's own list has these too, and `tool_call`
    "stop": _E.END_TURN,
    "length": _E.MAX_TOKENS,
    "tool_calls": _E.TOOL_CALLS,
    "tool_call": _E.TOOL_CALLS,
    "function_call": _E.TOOL_CALLS,
    "content_filter": _E.CONTENT_FILTERED,
    "error": _E.ERROR,
    # OpenAI Responses
    "completed": _E.END_TURN,
    "max_output_tokens": _E.MAX_TOKENS,
    "failed": _E.ERROR,
    "cancelled": _E.CANCELLED,
    # Anthropic, Bedrock
    "end_turn": _E.END_TURN,
    "stop_sequence": _E.STOP_SEQUENCE,
    "tool_use": _E.TOOL_CALLS,
    "max_tokens": _E.MAX_TOKENS,
    "model_context_window_exceeded": _E.CONTEXT_WINDOW_EXCEEDED,
    "refusal": _E.CONTENT_FILTERED,
    "pause_turn": _E.PAUSED,
    "guardrail_intervened": _E.CONTENT_FILTERED,
    "content_filtered": _E.CONTENT_FILTERED,
    "malformed_tool_use": _E.ERROR,
    "malformed_model_output": _E.ERROR,
    # Gemini
    "safety": _E.CONTENT_FILTERED,
    "recitation": _E.CONTENT_FILTERED,
    "blocklist": _E.CONTENT_FILTERED,
    "prohibited_content": _E.CONTENT_FILTERED,
    "spii": _E.CONTENT_FILTERED,
    "image_safety": _E.CONTENT_FILTERED,
    "malformed_function_call": _E.ERROR,
    # Inspect, where it has words of its own
    "model_length": _E.CONTEXT_WINDOW_EXCEEDED,
}
"""Lower case: Gemini's are upper case on its wire and lower in many spans. Each means the same wherever it is said."""


def finish_reason_of(word: str | None, *, called_tools: bool = False) -> FinishReason | None:
    """Our word for theirs; UNKNOWN for one that no page lists, None where there is none.

    Gemini and OpenAI's Responses say the same of an answer that ends a turn and of one that calls tools; `called_tools` tells which.
    """
    if not word:
        return None
    reason = FINISH_REASONS.get(word.lower(), FinishReason.UNKNOWN)
    return FinishReason.TOOL_CALLS if reason is FinishReason.END_TURN and called_tools else reason


_PROVIDERS: Mapping[str, str] = {
    "aws.bedrock": "bedrock",
    "aws_bedrock": "bedrock",
    "azure.ai.openai": "azure",
    "az.ai.openai": "azure",
    "azureai": "azure",
    "gcp.gemini": "gemini",
    "gcp.gen_ai": "gemini",
    "google": "gemini",
    "grok": "xai",
    "x_ai": "xai",
}


def provider_of(name: str | None) -> str | None:
    """A provider by the name it has in agentlab, where it has one there."""
    if not name:
        return None
    small = name.lower()
    return _PROVIDERS.get(small, small if small in PRICE_BOOK_NAMES else name)


Where: TypeAlias = str | Path | Iterable[str | Path]


def files_of(where: Where, endings: tuple[str, ...], what: str) -> list[Path]:
    """The files, each once; those of a folder by name, at any depth. Raises ConfigurationError where there is none."""
    if not isinstance(where, str | Path | Iterable):
        raise ConfigurationError(
            f"{what}: {type(where).__name__} is no path; pass a file, a folder, a pattern or a list of them."
        )
    several = [where] if isinstance(where, str | Path) else list(where)
    found: dict[Path, None] = {}
    for one in several:
        if not isinstance(one, str | Path):
            raise ConfigurationError(
                f"{what}: {type(one).__name__} is no path; pass a file, a folder, a pattern or a list of them."
            )
        path = Path(one)
        if path.is_dir():
            here = sorted(inner for inner in path.rglob("*") if inner.name.endswith(endings) and inner.is_file())
        elif path.is_file():
            here = [path]
        else:
            here = sorted(Path(name) for name in glob.glob(str(one), recursive=True) if Path(name).is_file())  # noqa: PTH207  of any root
        if not here:
            raise ConfigurationError(
                f"{what}: there is nothing at {str(one)!r}; pass a file, a folder with {' or '.join(endings)} files, or a pattern."
            )
        found |= dict.fromkeys(here)
    if not found:
        raise ConfigurationError(f"{what}: the list is empty; pass at least one file.")
    return list(found)


ROWS_SHOWN = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Imported:
    """Runs that were read from a record.

    `steps` has a row a step and `runs` a row a run, with the columns and dtypes of agentlab's own frames. `notes` are sentences on what
    was left out, and why, and on how the record was read where that could have been done otherwise. `source` says what was read.

    Example:
        >>> store = lab.Store()
        >>> kept = await store.keep(endless.run("?", stop=lab.StepCountIs(2)))
        >>> found = lab.importers.store(store)
        >>> found
        Imported(1 run, 2 steps from Store('MemoryStorage'))
        >>> lab.backtest(found.steps, lab.StepCountIs([1, 2]))["tokens_saved"].tolist()
        [15.0, 0.0]
    """

    steps: pd.DataFrame
    runs: pd.DataFrame
    notes: tuple[str, ...] = ()
    source: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))  # they quote what was read
        object.__setattr__(self, "source", printable(self.source))

    def __repr__(self) -> str:
        counted = f"{_many(len(self.runs), 'run')}, {_many(len(self.steps), 'step')}"
        told = "".join(f"\n  - {note}" for note in self.notes)
        return cut(f"Imported({counted}{' from ' if self.source else ''}{self.source}){told}", 4_000)

    def _repr_html_(self) -> str:
        shown = self.steps[["run_id", *SHOWN, "stop_reason"]].head(ROWS_SHOWN)
        table = table_of(shown)
        head = f"{_many(len(self.runs), 'run')}, {_many(len(self.steps), 'step')}"
        more = len(self.steps) - len(shown)
        parts = [
            f"<p><b>{head}</b>{escape(f' from {self.source}') if self.source else ''}</p>",
            f"<ul>{''.join(f'<li>{escape(note, 1_000)}</li>' for note in self.notes)}</ul>" if self.notes else "",
            table,
            f"<p>… and {_many(more, 'more step')} in <code>.steps</code></p>" if more else "",
        ]
        return f'<div class="{AS_WRITTEN}">{"".join(parts)}</div>'


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
