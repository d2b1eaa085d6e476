"""The frames of imported runs, and helpers of all importers: checks of values, names in other vocabularies, file lookup.

An importer makes a ReadStep for each step and a ReadRun for each run, with None for missing values. The columns are those of
`agentlab.records.columns`, by name, so a new column is NA in imported frames.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from agentlab._internal.formatting import counted
from agentlab._internal.safe_text import AS_WRITTEN, cut, escape, printable
from agentlab.errors import ConfigurationError
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.pricing import PRICE_BOOK_NAMES
from agentlab.model.usage import Cost, CostSource, Usage, UsageSource, add_cost, add_usage
from agentlab.providers.detectors import finish_words
from agentlab.records.columns import RUN_COLUMNS, STEP_COLUMNS
from agentlab.records.frames import SHOWN, any_array, array, table_of

_TERMINATED = (StopReason.COMPLETED, StopReason.TERMINATING_TOOL)
_EITHER = (StopReason.EXPLICIT_STOP, StopReason.STOP_CONDITION)
"""Either terminated or truncated: it depends on who stopped the run, or on the condition, which is not in a record."""


def terminated_by(stop: StopReason | None) -> bool | None:
    """Return True if a run with this stop reason ended by itself, False if it was cut off; None if the reason does not decide it."""
    return None if stop is None or stop in _EITHER else stop in _TERMINATED


UNKNOWN_USAGE, UNKNOWN_COST = Usage(), Cost()


@dataclass(frozen=True, slots=True)
class ReadStep:
    """One step. `tools` are the names of its tool calls, `children` the ids of its child runs; `number` is its number in the record."""

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
    """One run.

    `usage` and `cost` are the totals of the record, used if it has no steps; `limits` are columns of the steps frame, `about` further
    columns of the runs frame. `children` are child runs that belong to no step. The first `forked_at` steps of a fork are copies of its
    parent's; `begins_later` is True if the record lacks the first steps.
    """

    run_id: str
    steps: Sequence[ReadStep] = ()
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
    """Totals: None if a part is unknown; `known_*` leaves unknown parts out."""

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


def _sums_of(usage: Usage, cost: Cost, calls: int | None) -> _Sums:
    return _Sums(calls, usage.total_tokens, cost.usd, usage.known_tokens, cost.known_usd)


def frames(runs: Sequence[ReadRun]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the steps frame and the runs frame."""
    by_id = {run.run_id: run for run in runs}
    used: dict[str, _Sums] = {}
    for run in runs:
        _add_used(run, by_id, used)
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


def _add_used(run: ReadRun, by_id: Mapping[str, ReadRun], used: dict[str, _Sums]) -> None:
    """Add the totals of a run, with all child runs, to `used`."""
    if run.run_id in used:
        return
    used[run.run_id] = _Sums()  # ends the recursion if runs are children of each other
    new_steps = run.steps if run.begins_later else run.steps[run.forked_at or 0 :]
    sums = _own_sums(run, new_steps)
    for child in [*(child for step in new_steps for child in step.children), *run.children]:
        if child in by_id:
            _add_used(by_id[child], by_id, used)
            sums.add(used[child])
    used[run.run_id] = sums


def _own_sums(run: ReadRun, steps: Sequence[ReadStep]) -> _Sums:
    """Return the totals of these steps of a run, without child runs; the totals of the record if it has no steps."""
    if not run.steps:
        return _sums_of(run.usage, run.cost, None)
    sums = _Sums()
    for step in steps:
        sums.add(_sums_of(step.usage, step.cost, step.calls))
    return sums


def _step_rows(run: ReadRun, used: Mapping[str, _Sums]) -> list[dict[str, Any]]:
    so_far = _Sums(None, None, None) if run.begins_later else _Sums()
    rows = []
    for place, step in enumerate(run.steps, 1):
        below = _Sums()
        for child in step.children:
            below.add(used.get(child, _Sums()))
        so_far.add(_sums_of(step.usage, step.cost, step.calls))
        so_far.add(below)
        usage = step.usage
        last = place == len(run.steps)
        rows.append({
            "run_id": run.run_id,
            "provider": step.provider or run.provider,
            "model": step.model or run.model,
            "step": step.number or place,
            "calls": step.calls,
            "finish_reason": _word(step.finish_reason),
            "raw_finish_reason": step.raw_finish_reason,
            "action": step.action,
            "stop_reason": _word(run.stop_reason) if last else None,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "cache_write_1h_tokens": usage.cache_write_1h_tokens,
            "total_tokens": usage.total_tokens,
            "usage_source": usage.source.value,
            "cost_usd": _float(step.cost.usd),
            "cost_source": step.cost.source.value,
            "cost_note": step.cost.reason or None,
            "price_list": step.cost.price_list or None,
            "service_tier": usage.service_tier,
            "web_searches": usage.web_searches,
            "child_calls": below.calls,
            "child_tokens": below.tokens,
            "child_cost_usd": _float(below.cost_usd),
            "cumulative_tokens": so_far.tokens,
            "cumulative_cost_usd": _float(so_far.cost_usd),
            "known_tokens": so_far.known_tokens,
            "known_cost_usd": _float(so_far.known_cost_usd),
            "tool_calls": None if step.tools is None else len(step.tools),
            "tools": None if step.tools is None else ", ".join(step.tools),
            "tool_errors": step.tool_errors,
            "text": step.text,
            "started_s": step.started_s,
            "duration_s": step.duration_s,
            "error": step.error,
            "parent_run_id": run.parent_run_id,
            "called_by": run.called_by,
            **run.limits,
        })  # fmt: skip
    return rows


def _run_row(run: ReadRun, used: Mapping[str, _Sums]) -> dict[str, Any]:
    sums, below = _own_sums(run, run.steps), _Sums()
    for child in [*run.children, *(child for step in run.steps for child in step.children)]:
        below.add(used.get(child, _Sums()))
    cost = summed_cost([step.cost for step in run.steps]) if run.steps else run.cost
    stop, terminated = run.stop_reason, terminated_by(run.stop_reason)
    text = run.text or next((step.text for step in reversed(run.steps) if step.text), None)
    return {
        "run_id": run.run_id,
        "parent_run_id": run.parent_run_id,
        "forked_at": run.forked_at,
        "parent_step": run.parent_step,
        "called_by": run.called_by,
        "provider": run.provider or next((step.provider for step in run.steps if step.provider), None),
        "model": run.model or next((step.model for step in run.steps if step.model), None),
        "prompt": run.prompt,
        "stop_reason": _word(stop),
        "terminated": terminated,
        "truncated": None if terminated is None else not terminated,
        "stopped_by_condition": True if stop is StopReason.STOP_CONDITION else None,
        "detail": run.detail,
        "steps": (run.steps[-1].number or len(run.steps)) if run.steps else None,
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
    """Return the sum of the costs, with their least certain source; unknown if a part is unknown or there are none."""
    return reduce(add_cost, costs) if costs else Cost()


def score_columns(scores: Sequence[Mapping[str, bool | float]]) -> dict[str, Any]:
    """Return one column per score with one value per run: booleans if all values are, otherwise numbers."""
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


# Values from outside -------------------------------------------------------------------------------------------------------------


def count_of(value: object) -> int | None:
    """Return a count, such as that of tokens, if it is a plausible whole number of at least 0, else None."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**15 else None


def text_of(value: object) -> str | None:
    """Return the value if it is text, else None."""
    return value if isinstance(value, str) else None


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
    """Return the tokens of a record as Usage. The source is UNKNOWN without input and output tokens."""
    known = input_tokens is not None or output_tokens is not None
    source = UsageSource.REPORTED if known else UsageSource.UNKNOWN
    counts = (input_tokens, output_tokens, cache_read, cache_write, reasoning)
    return Usage(*counts, source, service_tier=service_tier, also_charged=also_charged)


def summed_usage(usages: Sequence[Usage]) -> Usage:
    """Return the sum over the calls of a step. A count is unknown if a call lacks it."""
    return reduce(add_usage, usages) if usages else Usage()


def finish_reason_of(word: str | None, *, called_tools: bool = False) -> FinishReason | None:
    """Return agentlab's finish reason for a provider's; UNKNOWN for an unlisted word, None if there is no word.

    Gemini and OpenAI's Responses use the same word for the end of an answer and for tool calls; `called_tools` decides.
    """
    if not word:
        return None
    reason = finish_words().get(word.lower(), FinishReason.UNKNOWN)
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
    """Return agentlab's name of a provider; the given name if it is unknown."""
    if not name:
        return None
    small = name.lower()
    return _PROVIDERS.get(small, small if small in PRICE_BOOK_NAMES else name)


Where: TypeAlias = str | Path | Iterable[str | Path]


def files_of(where: Where, endings: tuple[str, ...], what: str) -> list[Path]:
    """Return the files, each once; those of a folder sorted by name, at any depth. Raises ConfigurationError if there are none."""
    several = list(where) if isinstance(where, Iterable) and not isinstance(where, str | Path) else [where]
    found: dict[Path, None] = {}
    for one in several:
        if not isinstance(one, str | Path):
            raise ConfigurationError(
                f"{what}: {type(one).__name__} is not a path; pass a file, a folder, a pattern or a list of them."
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
                f"{what}: found no file at {str(one)!r}; pass a file, a folder with {' or '.join(endings)} files, or a pattern."
            )
        found |= dict.fromkeys(here)
    if not found:
        raise ConfigurationError(f"{what}: the list is empty; pass at least one file.")
    return list(found)


_ROWS_SHOWN = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Imported:
    """Imported runs.

    `steps` has one row per step and `runs` one row per run, with the columns and dtypes of agentlab's own frames. `notes` are sentences
    about data that were left out, and about ambiguous records. `source` names the files or objects.

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
    _details: dict[str, pd.DataFrame] = field(default_factory=dict, kw_only=True)
    _read: Callable[[str], pd.DataFrame] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))  # notes quote the record
        object.__setattr__(self, "source", printable(self.source))

    @property
    def calls(self) -> pd.DataFrame | None:
        """One row per call, of a store or an export; None if the source has none. Those of a store are read when they are first used.

        Example:
            >>> store = lab.Store()
            >>> kept = await store.keep(brief.run("?"))
            >>> lab.importers.store(store).calls[["step", "call", "finish_reason"]]
               step  call finish_reason
            0     1     1      end_turn
        """
        return self._detail("calls")

    @property
    def tools(self) -> pd.DataFrame | None:
        """One row per tool call, of a store or an export; None if the source has none. Those of a store are read when they are first
        used.

        Example:
            >>> store = lab.Store()
            >>> kept = await store.keep(endless.run("?", stop=lab.StepCountIs(2)))
            >>> len(lab.importers.store(store).tools)
            2
        """
        return self._detail("tools")

    def _detail(self, what: str) -> pd.DataFrame | None:
        if self._read is not None and what not in self._details:
            self._details[what] = self._read(what)
        return self._details.get(what)

    def __repr__(self) -> str:
        sizes = f"{counted(len(self.runs), 'run')}, {counted(len(self.steps), 'step')}"
        notes = "".join(f"\n  - {note}" for note in self.notes)
        return cut(f"Imported({sizes}{' from ' if self.source else ''}{self.source}){notes}", 4_000)

    def _repr_html_(self) -> str:
        shown = self.steps[["run_id", *SHOWN, "stop_reason"]].head(_ROWS_SHOWN)
        table = table_of(shown)
        head = f"{counted(len(self.runs), 'run')}, {counted(len(self.steps), 'step')}"
        more = len(self.steps) - len(shown)
        parts = [
            f"<p><b>{head}</b>{escape(f' from {self.source}') if self.source else ''}</p>",
            f"<ul>{''.join(f'<li>{escape(note, 1_000)}</li>' for note in self.notes)}</ul>" if self.notes else "",
            table,
            f"<p>… and {counted(more, 'more step')} in <code>.steps</code></p>" if more else "",
        ]
        return f'<div class="{AS_WRITTEN}">{"".join(parts)}</div>'
