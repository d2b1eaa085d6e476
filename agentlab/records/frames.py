"""Runs as DataFrames; `agentlab.records.columns` declares their columns.

    result.to_frame()                 one row per step
    result.to_frame("calls")          also `tools`, `events`, `readings`, `termination`
    lab.frame([result_a, result_b])   several runs in one frame; `lab.frame(results, "runs")` has one row per run

All dtypes are nullable: NA is unknown, never 0. After the fixed columns, the steps frame has `<leaf>.value`, `<leaf>.limit` and
`<leaf>.met` for each leaf of the stop condition, named as in `run.limits.conditions`.
"""

from __future__ import annotations

import contextlib
import functools
import html
import math
import operator
from array import array as array_of
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import accumulate, chain, compress, count, islice, repeat
from types import NoneType
from typing import Any, Protocol, TypeAlias

import numpy as np
import pandas as pd

from agentlab._internal.errors import ConfigurationError
from agentlab._internal.names import did_you_mean
from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import AS_WRITTEN, cut, escape, printable, whole
from agentlab.limits.condition_tree import unique_name
from agentlab.limits.reading import Reading
from agentlab.records.columns import (
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
    known_cost_usd_of,
    known_tokens_of,
    named_leaves,
    plain,
    seams_of,
    source_of,
    word,
)
from agentlab.records.events import Event
from agentlab.records.history import RunHistory
from agentlab.records.result import RunResult
from agentlab.records.step import StepResult

STEPS_AT_ONCE = 500
"""Steps per batch: few enough that their values stay in the processor's cache from one column to the next."""

MOSTLY = 4
"""Repeated values are grouped if that makes the list shorter by at least this factor."""

_IN_C: tuple[Callable[[Any], Any], ...] = (len, float)
"""Conversions that are implemented in C and fail for None."""


class StepRows:
    """The steps of some runs, column by column. Values are per row, except those of `run` and `settings`: each of these applies to a
    number of rows, given in `repeats`."""

    __slots__ = ("_known", "repeats")

    def __init__(self, sources: Sequence[Source]) -> None:
        taken = [source.history[:] for source in sources]  # copied once: another thread may append
        steps = list(chain.from_iterable(taken))
        settings, times = without_repetition(attributes(steps, "settings"))
        self.repeats: dict[str, list[int]] = {"run": list(map(len, taken)), "settings": times}
        self._known: dict[str, list[Any]] = {"run": list(sources), "step": steps, "settings": settings}
        self._read_single_calls()

    def _read_single_calls(self) -> None:
        """If each step is one call, as most are, read what is then a field of its response without a step's own properties."""
        calls, known = self.at("step.calls"), self._known
        if any(self.at("step.answer")) or list(map(len, calls)).count(1) < len(calls):
            return
        only = [one for (one,) in calls]
        if all(attributes(only, "used")):
            responses = attributes(only, "response")
            known |= {f"step.{name}": attributes(responses, name) for name in ("signal", "text", "holes", "tool_calls")}
            known["seams"] = self.at("step.seams")

    def read(self, column: Column) -> list[Any]:
        """Return the values of a column."""
        values, then = self.at(column.path), column.then
        return values if then is None else _converted(values, then)

    def at(self, path: str) -> list[Any]:
        """Return the values at a path; None if a part of it is None."""
        known = self._known.get(path)
        if known is None:
            part, _, name = path.rpartition(".")
            known = attributes(self.at(part), name) if part else self._sums(path)
            self._known[path] = known
        return known

    def _sums(self, name: str) -> list[Any]:
        if name == "seams":
            return list(map(seams_of, self.at("step")))
        if name.startswith("known_"):
            whole = self.at(name.removeprefix("known_"))
            if not any(map(operator.is_, whole, repeat(None))):  # `None in whole` would compare: slow for Decimals
                return whole
            known, start = (known_tokens_of, 0) if name == "known_tokens" else (known_cost_usd_of, Decimal(0))
            return self._running(list(map(known, self.at("step"))), start)
        has_children = any(self.at("step.children"))
        if name == "tokens":
            return self._running(self.at("step.all_tokens" if has_children else "step.usage.total_tokens"), 0)
        return self._running(self.at("step.all_cost_usd" if has_children else "step.cost.usd"), Decimal(0))

    def _running(self, values: list[Any], start: Any) -> list[Any]:
        found: list[Any] = []
        begin = 0
        for length in self.repeats["run"]:
            own = values[begin : begin + length]
            begin += length
            try:
                sums = list(accumulate(own, initial=start))
            except TypeError:  # an unknown value: the sums after it are unknown
                sums = list(accumulate(own, _sum, initial=start))
            found += sums[1:]
        return found


def batches(sources: Iterable[Source]) -> Iterator[StepRows]:
    """Yield the steps of many runs, a few runs at a time."""
    batch: list[Source] = []
    steps = 0
    for source in sources:
        batch.append(source)
        steps += len(source.history)
        if steps >= STEPS_AT_ONCE:
            yield StepRows(batch)
            batch, steps = [], 0
    if batch:
        yield StepRows(batch)


def attributes(parts: list[Any], name: str) -> list[Any]:
    """Return an attribute of each part; None for a part that is None."""
    try:
        return _reader(name)(parts)
    except AttributeError:
        return [None if part is None else getattr(part, name) for part in parts]


@functools.cache
def _reader(name: str) -> Callable[[list[Any]], list[Any]]:
    """Return the function that reads this attribute. Python speeds up an attribute in compiled code, which `map` does not have."""
    read: Callable[[list[Any]], list[Any]] = eval(f"lambda parts: [part.{name} for part in parts]")  # noqa: S307  a column's path
    return read


def _converted(values: list[Any], then: Callable[[Any], Any]) -> list[Any]:
    """Convert each value by `then`; None stays None."""
    if values and all(map(operator.is_, values, repeat(values[0]))):  # for example all None, or all without tools
        return [None if values[0] is None else then(values[0])] * len(values)
    try:
        if then is word:
            return attributes(values, "_value_")  # `value` is a Python property, ten times slower
        if then in _IN_C:
            return list(map(then, values))
    except (AttributeError, TypeError):  # a None, or a word that is not an enum member
        pass
    return [None if value is None else then(value) for value in values]


class Leaves:
    """The readings of the single conditions, by the names of `named_leaves`: the values, the limits and `met` of all steps, None for
    steps without the condition."""

    __slots__ = ("_steps", "found")

    def __init__(self) -> None:
        self._steps = 0
        self.found: dict[str, tuple[list[Any], list[Any], list[bool | None]]] = {}

    def add(self, read: list[Reading | None]) -> None:
        """Add the readings of the whole condition at further steps."""
        shapes: list[Any]
        if any(attributes(read, "children")):
            leaves = [() if reading is None else _leaves(reading) for reading in read]
            shapes = [_unique(tuple([leaf.name for leaf in some])) for some in leaves]
        else:
            leaves, shapes = None, attributes(read, "name")
        begin = 0
        for shape, times in zip(*without_repetition(shapes), strict=True):  # consecutive steps usually have the same condition
            end = begin + times
            if leaves is not None:
                names = _unique(tuple(map(redact, shape)))
                for name, column in zip(names, zip(*leaves[begin:end], strict=True), strict=True):
                    self._extend(name, self._steps + begin, list(column))
            elif shape is not None:
                self._extend(redact(shape), self._steps + begin, read[begin:end])
            begin = end
        self._steps += len(read)

    def whole(self) -> dict[str, tuple[list[Any], list[Any], list[bool | None]]]:
        """Return all columns, each padded to one value per step."""
        for name in self.found:
            self._extend(name, self._steps, [])
        return self.found

    def _extend(self, name: str, steps: int, read: list[Reading | None]) -> None:
        """Add readings of this leaf; they begin after `steps` steps."""
        for part, values in zip(_PARTS, self.found.setdefault(name, ([], [], [])), strict=True):
            values.extend([None] * (steps - len(values)))
            values.extend(attributes(read, part))


_PARTS = ("value", "limit", "met")


def _leaves(reading: Reading) -> tuple[Reading, ...]:
    children = reading.children
    if not children:
        return (reading,)
    return tuple(reading.leaves()) if any(attributes(list(children), "children")) else children


@functools.lru_cache(1000)
def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    named: dict[str, None] = {}
    for name in names:
        named[unique_name(name, named)] = None
    return tuple(named)


def _sum(before: Any, value: Any) -> Any:
    return None if before is None or value is None else before + value


def without_repetition(values: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the values without consecutive repetitions (the same object), and how often each occurs."""
    return _grouped(values, list(_changes(values)))


def repetition(values: list[Any]) -> tuple[list[Any], list[int]] | None:
    """Return `without_repetition` if most values repeat the one before, else None."""
    most = len(values) // MOSTLY - 1
    changes = list(islice(_changes(values), max(most, 0)))  # stops early if most values differ
    return _grouped(values, changes) if len(changes) < most else None


def _grouped(values: list[Any], changes: list[int]) -> tuple[list[Any], list[int]]:
    places = [0, *changes] if values else []
    return [values[place] for place in places], list(map(operator.sub, [*changes, len(values)], places))


def _changes(values: list[Any]) -> Iterator[int]:
    """Yield the positions of values that are not the same object as the one before."""
    return compress(count(1), map(operator.is_not, islice(values, 1, None), values))


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
    """An object that creates the frames of its runs: a store, or the results of an experiment."""

    def frame(self, what: str = ..., /) -> pd.DataFrame:
        """Return the frame of this name."""


Recorded: TypeAlias = RunResult | RecordedRun

Recordings: TypeAlias = Recorded | Iterable[Recorded] | SeveralRuns | HasFrames
"""The sources of frames: a run or a result, several of them, a lockstep, a store, the results of an experiment."""


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
        raise ConfigurationError(f"There is no frame {what!r}: choose one of {', '.join(FRAMES)}.{did_you_mean(what, FRAMES)}")
    if (made := _own_frame(recorded, what)) is not None:
        return made
    if isinstance(several := _several(recorded), pd.DataFrame):
        raise ConfigurationError(f"lab.frame() cannot make {what!r} of {type(recorded).__name__}: pass runs, results or a store.")
    sources = [source_of(one) for one in several]
    if what == "steps":
        return _steps_frame(sources)
    columns, rows_of = _KINDS[what]
    rows = [(source, row) for source in sources for row in list(rows_of(source))]
    arrays = {column.name: array([column.read(*row) for row in rows], column.dtype) for column in columns}
    return pd.DataFrame(arrays, copy=False)


def _own_frame(recorded: object, what: str) -> pd.DataFrame | None:
    """Return the frame of a store, an experiment's results or an import; None for anything else."""
    make = getattr(recorded, "frame", None)
    frame = make(what) if callable(make) else getattr(recorded, what, None)
    return frame if isinstance(frame, pd.DataFrame) else None


def _several(recorded: Any) -> Iterable[Any]:
    """Return the runs or results in an argument of `lab.frame`; a single one becomes a list."""
    runs = getattr(recorded, "runs", recorded)
    return runs if isinstance(runs, Iterable) and not isinstance(runs, str | bytes) else [recorded]


def frame_of(given: Recordings | pd.DataFrame, what: str, function: str, advice: str) -> pd.DataFrame:
    """Return `given` as a frame: a DataFrame unchanged, recorded runs as by `lab.frame`.

    Raises ConfigurationError for anything else; the message names `function`, and `advice` describes the frame that it takes.
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
    return not isinstance(runs, Sequence | pd.DataFrame) or all(map(is_recorded, runs))  # iterators are not consumed


def _steps_frame(sources: list[Source], names: Collection[str] | None = None) -> pd.DataFrame:
    """Return the frame of steps, or only these of its columns, without those of the readings."""
    columns = [column for column in STEP_COLUMNS if names is None or column.name in names]
    values: dict[str, list[Any]] = {column.name: [] for column in columns}
    repeats: dict[str, list[int]] = {}
    leaves = Leaves()
    for rows in batches(sources):
        for column in columns:
            values[column.name].extend(rows.read(column))
        for part, times in rows.repeats.items():
            repeats.setdefault(part, []).extend(times)
        if names is None:
            leaves.add(rows.at("step.readings"))
    arrays = {column.name: array(values.pop(column.name), column.dtype) for column in columns}
    for column in columns:
        if as_often := repeats.get(column.path.partition(".")[0]):
            arrays[column.name] = arrays[column.name].repeat(as_often)
    return pd.DataFrame({**arrays, **_reading_columns(leaves)}, copy=False)


_COUNTED_BY = ["provider", "model", "finish_reason", "raw_finish_reason", "confidence", "action", "stop_reason", "suggestion"]


def termination_report(recorded: Recordings | pd.DataFrame, *, summary: bool = False) -> pd.DataFrame:
    """Return a frame with one row per response of one or several runs: why it ended, the action of the run, and a suggestion.

    `recorded` is anything that `lab.frame` takes, or its `termination` frame. With `summary`, the frame has one row per kind of end,
    with the number of `responses`, the most frequent first.

    Example:
        >>> lab.termination_report(others)[["provider", "step", "raw_finish_reason", "action"]].head(3)
          provider  step raw_finish_reason         action
        0   openai     1        tool_calls  execute_tools
        1   openai     2        tool_calls  execute_tools
        2   openai     3        tool_calls  execute_tools
    """
    frame = frame_of(recorded, "termination", "lab.termination_report", 'one row per response, lab.frame(results, "termination")')
    if missing := [name for name in _COUNTED_BY if name not in frame.columns and len(frame.columns)]:
        raise ConfigurationError(f"lab.termination_report() needs the columns {', '.join(missing)}: pass results, or a store.")
    if not summary:
        return frame
    counted = frame.groupby(_COUNTED_BY, dropna=False, sort=False).size().astype("Int64").reset_index(name="responses")
    return counted.sort_values("responses", ascending=False, kind="stable", ignore_index=True)


def _reading_columns(leaves: Leaves) -> dict[str, Any]:
    """Return three columns for each leaf that was read in these steps, in the order of first appearance."""
    columns: dict[str, Any] = {}
    for name, (values, limits, met) in ((whole(name), read) for name, read in leaves.whole().items()):
        columns[f"{name}.value"] = any_array(values)
        columns[f"{name}.limit"] = any_array(limits)
        columns[f"{name}.met"] = array(met, "boolean")
    return columns


_MASKED = {"Int64": (pd.arrays.IntegerArray, "q", 0), "Float64": (pd.arrays.FloatingArray, "d", math.nan)}


def array(values: list[Any], dtype: Any) -> Any:
    """Return the values of a column as a pandas array."""
    if len(values) < 100 or (dtype in _MASKED and values[0] is not None):  # `repeat` pays off in longer columns
        return _array(values, dtype)
    if values and values[0] is None and values.count(None) == len(values):  # for example limits that are not set
        return _array([None], dtype).repeat(len(values))
    if repeated := repetition(values):  # like most limits, words and answers
        few, times = repeated
        return _array(few, dtype).repeat(times)
    return _array(values, dtype)


def _array(values: list[Any], dtype: Any) -> Any:
    if dtype in _MASKED:
        return _masked(values, dtype)
    if dtype == "string":
        return pd.array(as_unicode(values), dtype=pd.StringDtype())  # a dtype's name is searched for among all dtypes
    if dtype == "object":
        return pd.Series([whole(redact(value)) if type(value) is str else value for value in values], dtype=dtype).array
    return pd.array(values, dtype=dtype)


def _masked(values: list[Any], dtype: str) -> Any:
    """Return numbers with None masked. Pandas converts or rejects other values."""
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


def as_unicode(values: list[Any]) -> list[Any]:
    """Redact texts, and replace half surrogate pairs, which Arrow rejects, by `?`: an answer may be cut within an escaped emoji."""
    joined = "\n".join(filter(None, values))
    if redact(joined) != joined:  # one search for all: most columns have no keys
        values = [None if value is None else redact(value) for value in values]
    try:
        if not joined.isascii():
            joined.encode()
    except UnicodeEncodeError:
        return [None if value is None else value.encode(errors="replace").decode() for value in values]
    return values


def any_array(values: list[Any]) -> Any:
    """Return values of any types in the narrowest nullable dtype that fits."""
    if repeated := repetition(values):  # like most limits
        few, times = repeated
        return any_array(few).repeat(times)
    kinds = set(map(type, values)) - {NoneType}
    if Decimal in kinds:  # money
        kinds, values = kinds - {Decimal} | {float}, [plain(value) for value in values]
    if kinds <= {bool}:
        return array(values, "boolean")
    if kinds <= {int}:
        with contextlib.suppress(OverflowError):  # more than 64 bits: approximated as Float64 below
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
"""The table shows at most this many of the first and of the last steps."""


def table_of(steps: pd.DataFrame) -> str:
    """Return steps as an HTML table with escaped texts; NA is shown as `unknown`."""
    unknown = {name: "" if name == "stop_reason" else "unknown" for name in steps.columns}

    def shown(name: str, value: Any) -> object:
        return unknown[name] if pd.isna(value) else printable(value) if isinstance(value, str) else value

    # fillna would warn about mixed columns in pandas 2.2
    cells = {name: pd.Series([shown(name, value) for value in steps[name]], dtype="object") for name in steps.columns}
    return str(pd.DataFrame(cells).to_html(index=False, border=0, escape=True))


def result_bundle(result: RunResult) -> dict[str, str]:
    """Return a result as plain text and as HTML with escaped texts: why it ended, the answer, and its steps."""
    steps = _steps_frame([source_of(result)], SHOWN)[SHOWN]
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
