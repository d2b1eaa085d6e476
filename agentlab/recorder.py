"""Runs as DataFrames; `agentlab.columns` declares their columns.

    result.to_frame()                 one row per step
    result.to_frame("calls")          also `tools`, `events`, `readings`, `termination`
    lab.frame([result_a, result_b])   several runs in one frame; `lab.frame(results, "runs")` has one row per run

All dtypes are nullable: NA is unknown, never 0. After the fixed columns, the steps frame has `<leaf>.value`, `<leaf>.limit` and
`<leaf>.met` for each leaf of the stop condition, named as in `run.limits.leaves`.
"""

from __future__ import annotations

import contextlib
import html
import math
from array import array as array_of
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any, Protocol, TypeAlias

import numpy as np
import pandas as pd

from agentlab.columns import (
    CALL_COLUMNS,
    EVENT_COLUMNS,
    READING_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    TERMINATION_COLUMNS,
    TOOL_COLUMNS,
    Column,
    EndRow,
    Source,
    is_recorded,
    named_leaves,
    plain,
    source_of,
)
from agentlab.errors import ConfigurationError
from agentlab.events import Event
from agentlab.history import RunHistory
from agentlab.printable import AS_WRITTEN, cut, escape, printable, whole
from agentlab.redaction import without_keys
from agentlab.results import RunResult
from agentlab.rows import Leaves, repetition, some_at_once
from agentlab.step_result import Reading, StepResult


class RecordedRun(Protocol):
    """A run, still running or ended."""

    @property
    def history(self) -> RunHistory:
        """Its steps."""

    @property
    def events(self) -> Sequence[Event]:
        """Its events."""

    @property
    def result(self) -> RunResult | None:
        """Its result; None while it is running."""


class SeveralRuns(Protocol):
    """A Lockstep."""

    @property
    def runs(self) -> Sequence[RecordedRun]:
        """Its runs."""


class HasFrames(Protocol):
    """A store, or the results of an experiment: makes the frames of its runs itself."""

    def frame(self, what: str = ..., /) -> pd.DataFrame:
        """Return the frame of this name."""


Recorded: TypeAlias = RunResult | RecordedRun
Recordings: TypeAlias = Recorded | Iterable[Recorded] | SeveralRuns | HasFrames
"""What frames are made of: a run or a result, several of them, a lockstep, a store, the results of an experiment."""


def _reading_rows(source: Source) -> Iterator[tuple[StepResult, str, Reading]]:
    for step in source.history:
        if step.readings is not None:
            for name, leaf in named_leaves(step.readings).items():
                yield step, name, leaf


def _end_rows(source: Source) -> Iterator[EndRow]:
    for step in source.history:
        for call in step.calls[:-1]:
            yield EndRow(step, call, last=False)
        yield EndRow(step, step.calls[-1] if step.calls else None, last=True)


_KINDS: dict[str, tuple[tuple[Column, ...], Callable[[Source], Iterable[Any]]]] = {
    "runs": (RUN_COLUMNS, lambda s: [s.result]),
    "calls": (CALL_COLUMNS, lambda s: [(step, call) for step in s.history for call in step.calls]),
    "tools": (TOOL_COLUMNS, lambda s: [(step, result) for step in s.history for result in step.tool_results]),
    "events": (EVENT_COLUMNS, lambda s: s.events),
    "readings": (READING_COLUMNS, _reading_rows),
    "termination": (TERMINATION_COLUMNS, _end_rows),
}


FRAMES = ("runs", "steps", *list(_KINDS)[1:])


def to_frame(recorded: Recordings, what: str = "steps") -> pd.DataFrame:
    """Return runs, finished or not, as a DataFrame: `runs`, `steps`, `calls`, `tools`, `events`, `readings` or `termination`.

    `recorded` is a run or a result, several of them in a list, a Lockstep, a Store, or the results of an experiment.

    Example:
        >>> lab.frame([result, *others], "runs")[["provider", "stop_reason", "steps", "total_tokens"]]
            provider     stop_reason  steps  total_tokens
        0  anthropic  stop_condition      4          3146
        1     openai  stop_condition      4          1424
        2     gemini  stop_condition      5          2020
        >>> lab.frame(result, "tools")[["step", "tool"]].head(2)
           step         tool
        0     1  get_weather
        1     1  get_weather
    """
    if what not in FRAMES:
        raise ConfigurationError(f"There is no frame {what!r}: choose one of {', '.join(FRAMES)}.")
    if not isinstance(recorded, pd.DataFrame) and (made := _own_frame(recorded, what)) is not None:
        return made
    sources = [source_of(one) for one in _several(recorded)]
    if what == "steps":
        return _steps_frame(sources)
    columns, rows_of = _KINDS[what]
    rows = [(source, row) for source in sources for row in list(rows_of(source))]
    arrays = {column.name: array([column.read(*row) for row in rows], column.dtype) for column in columns}
    return pd.DataFrame(arrays, copy=False)


def _own_frame(recorded: object, what: str) -> pd.DataFrame | None:
    """Return the frame that a store, an experiment's results or an import have of their runs; None for anything else."""
    if callable(make := getattr(recorded, "frame", None)):
        made: pd.DataFrame = make(what)
        return made
    frame = getattr(recorded, what, None)
    return frame if isinstance(frame, pd.DataFrame) else None


def _several(recorded: Any) -> Iterable[Any]:
    """Return the runs or results in what `to_frame` takes; anything else as the only one."""
    runs = getattr(recorded, "runs", recorded)
    return runs if isinstance(runs, Iterable) and not isinstance(runs, str | bytes) else [recorded]


def frame_of(given: Recordings | pd.DataFrame, what: str, function: str, advice: str) -> pd.DataFrame:
    """Return the argument of a function of frames as a frame: a DataFrame unchanged, recorded runs as `lab.frame` makes it.

    Raises ConfigurationError for anything else, in the name of `function`; `advice` says which frame it takes.
    """
    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, pd.Series) or not _is_recorded(given, what):
        raise ConfigurationError(
            f"{function}() cannot read {type(given).__name__}: pass a run, a result, several in a list, a store, the results of "
            f"an experiment, or a DataFrame: {advice}."
        )
    return to_frame(given, what)


def _is_recorded(given: object, what: str) -> bool:
    if callable(getattr(given, "frame", None)) or isinstance(getattr(given, what, None), pd.DataFrame):
        return True
    runs = _several(given)
    return not isinstance(runs, Sequence) or all(map(is_recorded, runs))  # iterators are not consumed


def _steps_frame(sources: list[Source]) -> pd.DataFrame:
    values: dict[str, list[Any]] = {column.name: [] for column in STEP_COLUMNS}
    repeats: dict[str, list[int]] = {}
    leaves = Leaves()
    for rows in some_at_once(sources):
        for column in STEP_COLUMNS:
            values[column.name] += rows.read(column)
        for part, times in rows.repeats.items():
            repeats.setdefault(part, []).extend(times)
        leaves.add(rows.at("step.readings"))
    arrays = {column.name: array(values.pop(column.name), column.dtype) for column in STEP_COLUMNS}
    for column in STEP_COLUMNS:
        part, _, _ = column.path.partition(".")
        if part in repeats:
            arrays[column.name] = arrays[column.name].repeat(repeats[part])
    return pd.DataFrame({**arrays, **_reading_columns(leaves)}, copy=False)


_COUNTED_BY = ["provider", "model", "finish_reason", "raw_finish_reason", "confidence", "action", "stop_reason", "suggestion"]


def termination_report(recorded: Recordings | pd.DataFrame, *, summary: bool = False) -> pd.DataFrame:
    """Return how every response of one or several runs ended, what followed, and what can be done about it: one row per response.

    `recorded` is what `lab.frame` takes, or its `termination` frame. With `summary`, the frame has one row per kind of end, with the
    number of `responses`, the most frequent first.

    Example:
        >>> lab.termination_report(others)[["provider", "step", "raw_finish_reason", "action"]].head(3)
          provider  step raw_finish_reason         action
        0   openai     1        tool_calls  execute_tools
        1   openai     2        tool_calls  execute_tools
        2   openai     3        tool_calls  execute_tools
    """
    frame = frame_of(recorded, "termination", "lab.termination_report", 'one row per response, lab.frame(results, "termination")')
    if missing := [name for name in _COUNTED_BY if name not in frame.columns and len(frame.columns)]:
        raise ConfigurationError(f"lab.termination_report() misses the columns {', '.join(missing)}: pass results, or a store.")
    if not summary:
        return frame
    counted = frame.groupby(_COUNTED_BY, dropna=False, sort=False).size().reset_index(name="responses")
    counted["responses"] = counted["responses"].astype("Int64")
    return counted.sort_values("responses", ascending=False, kind="stable", ignore_index=True)


def _reading_columns(leaves: Leaves) -> dict[str, Any]:
    """Return three columns for each leaf that was read in any of these steps, in the order of first appearance."""
    columns: dict[str, Any] = {}
    for name, (values, limits, met) in ((whole(name), read) for name, read in leaves.whole().items()):
        columns[f"{name}.value"] = any_array(values)
        columns[f"{name}.limit"] = any_array(limits)
        columns[f"{name}.met"] = array(met, "boolean")
    return columns


_MASKED = {"Int64": (pd.arrays.IntegerArray, "q", 0), "Float64": (pd.arrays.FloatingArray, "d", math.nan)}


def array(values: list[Any], dtype: Any) -> Any:
    """Return the values of a column as a pandas array."""
    if dtype in _MASKED and not (values and values[0] is None):
        return _masked(values, dtype)
    if values and values[0] is None and values.count(None) == len(values):  # such as limits that are not set
        return pd.array([pd.NA], dtype=dtype).repeat(len(values))
    if repeated := repetition(values):  # as most limits, words and answers are
        few, times = repeated
        return _array(few, dtype).repeat(times)
    return _array(values, dtype)


def _array(values: list[Any], dtype: Any) -> Any:
    if dtype in _MASKED:
        return _masked(values, dtype)
    if dtype == "string":
        return pd.array(_as_unicode(values), dtype="string")
    if dtype == "object":
        values = [whole(without_keys(value)) if type(value) is str else value for value in values]
    return pd.Series(values, dtype=dtype).array


def _masked(values: list[Any], dtype: str) -> Any:
    """Return numbers with None masked. Other values are left to pandas to convert or refuse."""
    kind, code, unknown = _MASKED[dtype]
    try:
        numbers = array_of(code, values)
        mask = np.zeros(len(values), dtype=bool)
    except (TypeError, OverflowError):
        try:
            numbers = array_of(code, [unknown if value is None else value for value in values])
        except (TypeError, OverflowError):
            return pd.Series(values, dtype=dtype).array
        mask = np.array([value is None for value in values])
    data = np.frombuffer(numbers, dtype=numbers.typecode)
    return kind(data, mask if dtype == "Int64" else np.isnan(data))


def _as_unicode(values: list[Any]) -> list[Any]:
    """Redact texts, and replace half surrogate pairs, which Arrow refuses, by `?`: an answer may be cut inside an escaped emoji."""
    joined = "\n".join(filter(None, values))
    if without_keys(joined) != joined:  # searched at once: most columns have no keys
        values = [None if value is None else without_keys(value) for value in values]
    try:
        if not joined.isascii():
            joined.encode()
    except UnicodeEncodeError:
        return [None if value is None else value.encode(errors="replace").decode() for value in values]
    return values


def any_array(values: list[Any]) -> Any:
    """Return values of any types in the narrowest nullable dtype that holds them all."""
    if repeated := repetition(values):  # as most limits are
        few, times = repeated
        return any_array(few).repeat(times)
    kinds = set(map(type, values)) - {NoneType}
    if Decimal in kinds:  # money
        kinds, values = kinds - {Decimal} | {float}, [plain(value) for value in values]
    if kinds <= {bool}:
        return array(values, "boolean")
    if kinds <= {int}:
        with contextlib.suppress(OverflowError):  # more than 64 bits: approximately, as Float64
            return array(values, "Int64")
    if kinds <= {int, float}:
        return array(values, "Float64")
    if kinds <= {str}:
        return array(values, "string")
    return array(values, "object")


# The display of a result ---------------------------------------------------------------------------------------------------------

SHOWN = ["step", "finish_reason", "tools", "input_tokens", "output_tokens", "cumulative_tokens", "cumulative_cost_usd"]
"""The columns of a result's table."""

SHOWN_STEPS = 20
"""A longer run shows this many of its first and of its last steps."""


def table_of(steps: pd.DataFrame) -> str:
    """Return steps as an HTML table with escaped texts; NA becomes `unknown`."""
    unknown = {name: "" if name == "stop_reason" else "unknown" for name in steps.columns}

    def shown(name: str, value: Any) -> object:
        return unknown[name] if pd.isna(value) else printable(value) if isinstance(value, str) else value

    # not fillna, which warns on mixed columns in pandas 2.2
    cells = {name: pd.Series([shown(name, value) for value in steps[name]], dtype="object") for name in steps.columns}
    return str(pd.DataFrame(cells).to_html(index=False, border=0, escape=True))


def result_bundle(result: RunResult) -> dict[str, str]:
    """Return a result as plain text and as HTML with escaped texts: why it ended, the answer, and its steps."""
    steps = to_frame(result)[SHOWN]
    left_out = len(steps) - 2 * SHOWN_STEPS
    parts = [steps] if left_out <= 0 else [steps.head(SHOWN_STEPS), steps.tail(SHOWN_STEPS)]
    table = f"<p>… {left_out:,} more in <code>.to_frame()</code> …</p>".join(map(table_of, parts))
    end = "terminated" if result.terminated else "truncated"
    head = f"{result.provider}:{result.model} · {end} · {result.stop_reason} — {result.detail}"
    answer = f"<p>{escape(result.text)}</p>" if result.text.strip() else ""
    return {
        "text/plain": cut(repr(result), 2_000),
        "text/html": f'<div class="{AS_WRITTEN}"><p><b>{html.escape(printable(head))}</b></p>{answer}{table}</div>',
    }
