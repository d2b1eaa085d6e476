"""Runs as DataFrames; what stands in them is declared in agentlab.columns.

    result.to_frame()                 one row a step
    result.to_frame("calls")          also `tools`, `events`, `readings`, `termination`
    lab.frame([result_a, result_b])   several runs in one frame; `lab.frame(results, "runs")` has a row a run

All dtypes are nullable: NA is unknown, never 0. After the fixed columns of the steps frame come, for each leaf of the stop condition,
`<leaf>.value`, `<leaf>.limit` and `<leaf>.met`, named as in `run.limits.leaves`.
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
    named_leaves,
    plain,
)
from agentlab.engine.lockstep import Lockstep
from agentlab.errors import ConfigurationError
from agentlab.printable import AS_WRITTEN, cut, escape, printable, whole
from agentlab.redaction import without_keys
from agentlab.results import Reading, RunResult, StepResult
from agentlab.rows import Leaves, repetition, some_at_once
from agentlab.run import Run

Recorded: TypeAlias = RunResult | Run


class HasFrames(Protocol):
    """A store, or the results of an experiment: makes the frames of its runs itself."""

    def frame(self, what: str = ..., /) -> pd.DataFrame:
        """Make the frame of this name."""


Recordings: TypeAlias = Recorded | Iterable[Recorded] | Lockstep | HasFrames
"""What frames are made of: a run or a result, several of them, a lockstep, a store, the results of an experiment."""


# Rows --------------------------------------------------------------------------------------------------------------------------


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
    """Runs, finished or not, as a DataFrame: `runs`, `steps`, `calls`, `tools`, `events`, `readings` or `termination`.

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
    if isinstance(recorded, Lockstep):
        recorded = recorded.runs
    elif not isinstance(recorded, pd.DataFrame) and (made := _own_frame(recorded, what)) is not None:
        return made
    several = recorded if isinstance(recorded, Iterable) and not isinstance(recorded, str | RunResult | Run) else [recorded]
    sources = [_source(one) for one in several]  # type: ignore[arg-type]  # it raises for anything else
    if what == "steps":
        return _steps_frame(sources)
    columns, rows_of = _KINDS[what]
    rows = [(source, row) for source in sources for row in list(rows_of(source))]
    arrays = {column.name: array([column.read(*row) for row in rows], column.dtype) for column in columns}
    return pd.DataFrame(arrays, copy=False)


def _own_frame(recorded: object, what: str) -> pd.DataFrame | None:
    """The frame that a store, the results of an experiment or an import have of their runs; None for anything else."""
    if callable(make := getattr(recorded, "frame", None)):
        made: pd.DataFrame = make(what)
        return made
    there = getattr(recorded, what, None)
    return there if isinstance(there, pd.DataFrame) else None


def frame_of(given: Recordings | pd.DataFrame, what: str, function: str, advice: str) -> pd.DataFrame:
    """What a function of frames was given, as a frame: a DataFrame as it is, recorded runs as `lab.frame` has them.

    Raises ConfigurationError for anything else, in the name of `function`; `advice` says which frame it takes.
    """
    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, str | bytes | pd.Series) or not _is_recorded(given, what):
        raise ConfigurationError(
            f"{function}() cannot read {type(given).__name__}: pass a run, a result, several in a list, a store, the results of "
            f"an experiment, or a DataFrame: {advice}."
        )
    return to_frame(given, what)


def _is_recorded(given: object, what: str) -> bool:
    if isinstance(given, Sequence):
        return all(isinstance(one, Run | RunResult) for one in given)
    if isinstance(given, Run | RunResult | Lockstep | Iterable):
        return True
    return callable(getattr(given, "frame", None)) or isinstance(getattr(given, what, None), pd.DataFrame)


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
    """How every response of one or several runs ended, what followed, and what could be done about it: a row a response.

    `recorded` is what `lab.frame` takes, or its `termination` frame. With `summary`, a row for each kind of end, and how many
    `responses` ended so, the most frequent first.

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


def _source(recorded: Recorded) -> Source:
    if isinstance(recorded, Run):
        model = recorded.agent.model
        return Source(
            recorded.id,
            model.name,
            model.model,
            recorded.history,
            recorded.events,
            recorded.result,
            recorded.prompt,
            recorded.origin.parent_run_id,
            recorded.origin.forked_at,
            recorded.origin.parent_step,
            recorded.origin.called_by,
        )
    if isinstance(recorded, RunResult):
        of = recorded
        kept = (of.parent_run_id, of.forked_at, of.parent_step, of.called_by)
        return Source(of.run_id, of.provider, of.model, of.history, of.events, of, of.prompt, *kept)
    raise ConfigurationError(f"{recorded!r} is not a run or a result: pass what agent.run(…) gave, or what awaiting it gave.")


def _reading_columns(leaves: Leaves) -> dict[str, Any]:
    """Three columns for each leaf that was read in any of these steps, in the order of their first appearance."""
    columns: dict[str, Any] = {}
    for name, (values, limits, met) in ((whole(name), read) for name, read in leaves.whole().items()):
        columns[f"{name}.value"] = any_array(values)
        columns[f"{name}.limit"] = any_array(limits)
        columns[f"{name}.met"] = array(met, "boolean")
    return columns


_MASKED = {"Int64": (pd.arrays.IntegerArray, "q", 0), "Float64": (pd.arrays.FloatingArray, "d", math.nan)}


def array(values: list[Any], dtype: Any) -> Any:
    """The values of a column."""
    if dtype in _MASKED and not (values and values[0] is None):
        return _masked(values, dtype)
    if values and values[0] is None and values.count(None) == len(values):  # as limits that nobody set
        return pd.array([pd.NA], dtype=dtype).repeat(len(values))
    if repeated := repetition(values):  # as most limits, words and answers do
        few, times = repeated
        return _array(few, dtype).repeat(times)
    return _array(values, dtype)


def _array(values: list[Any], dtype: Any) -> Any:
    if dtype in _MASKED:
        return _masked(values, dtype)
    if dtype == "boolean" and set(map(type, values)) <= {bool, NoneType}:
        return pd.arrays.BooleanArray(np.array(values, dtype=bool), np.array([value is None for value in values], dtype=bool))
    if dtype == "string":
        return pd.array(_as_unicode(values), dtype="string")
    if dtype == "object":
        values = [whole(without_keys(value)) if type(value) is str else value for value in values]
    return pd.Series(values, dtype=dtype).array


def _masked(values: list[Any], dtype: str) -> Any:
    """Numbers, of which those that are None are masked. What are no such numbers is left to pandas to convert or to refuse."""
    made, code, unknown = _MASKED[dtype]
    try:
        numbers = array_of(code, values)
        mask = np.zeros(len(values), dtype=bool)
    except (TypeError, OverflowError):
        try:
            numbers = array_of(code, [unknown if value is None else value for value in values])
        except (TypeError, OverflowError):
            return pd.Series(values, dtype=dtype).array
        mask = np.array([value is None for value in values])
    found = np.frombuffer(numbers, dtype=numbers.typecode)
    return made(found, mask if dtype == "Int64" else np.isnan(found))


def _as_unicode(values: list[Any]) -> list[Any]:
    """Text without keys. Half a surrogate pair, from an answer that was cut inside an escaped emoji, is no text to Arrow nor to a file:
    it becomes `?`."""
    joined = "\n".join(filter(None, values))
    if without_keys(joined) != joined:  # looked through at once: a column without keys, as most are, costs next to nothing
        values = [None if value is None else without_keys(value) for value in values]
    try:
        if not joined.isascii():
            joined.encode()
    except UnicodeEncodeError:
        return [None if value is None else value.encode(errors="replace").decode() for value in values]
    return values


def any_array(values: list[Any]) -> Any:
    """Values of a type that only the condition knows, in the narrowest nullable dtype that holds them all."""
    if repeated := repetition(values):  # as limits do
        few, times = repeated
        return any_array(few).repeat(times)
    kinds = set(map(type, values)) - {NoneType}
    if Decimal in kinds:  # money
        kinds, values = kinds - {Decimal} | {float}, [plain(value) for value in values]
    if kinds <= {bool}:
        return array(values, "boolean")
    if kinds <= {int}:
        with contextlib.suppress(OverflowError):  # more than 64 bits hold is told roughly
            return array(values, "Int64")
    if kinds <= {int, float}:
        return array(values, "Float64")
    if kinds <= {str}:
        return array(values, "string")
    return array(values, "object")


# What a notebook shows -----------------------------------------------------------------------------------------------------------

SHOWN = [
    "step",
    "finish_reason",
    "tools",
    "input_tokens",
    "output_tokens",
    "cumulative_tokens",
    "cumulative_cost_usd",
]
"""What a result shows of a step; why the run stopped stands above."""


SHOWN_STEPS = 20
"""Of a longer run so many of its first steps are shown, and of its last."""


def table_of(steps: pd.DataFrame) -> str:
    """Steps as HTML, what is unknown called so. Whatever came from a model is escaped."""
    unknown = {name: "" if name == "stop_reason" else "unknown" for name in steps.columns}
    shown = {  # not by fillna: pandas 2.2 warns of what it does to columns of several types
        name: pd.Series([unknown[name] if pd.isna(value) else _shown(value) for value in steps[name]], dtype="object")
        for name in steps.columns
    }
    return str(pd.DataFrame(shown).to_html(index=False, border=0, escape=True))


def _shown(value: object) -> object:
    return printable(value) if isinstance(value, str) else value


def result_bundle(result: RunResult) -> dict[str, str]:
    """A result as plain text and as HTML: why it ended, the answer, and its steps. Whatever came from a model is escaped."""
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
