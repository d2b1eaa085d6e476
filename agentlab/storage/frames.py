"""Stored runs as DataFrames. The frames of runs and steps are built from rows that are stored with the steps."""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic_core import from_json

from agentlab.errors import AgentlabError, ConfigurationError, StorageError
from agentlab.limits.condition_tree import unique_name
from agentlab.records.columns import RUN_COLUMNS, STEP_COLUMNS, Column
from agentlab.records.frames import FRAMES, any_array, array, to_frame
from agentlab.records.history import RunHistory
from agentlab.storage.loader import interrupted_use
from agentlab.storage.writer import RUN_CONSTANT_COLUMNS

if TYPE_CHECKING:
    from agentlab.storage import StoredRun
    from agentlab.storage.store import Store

ROWS_AT_ONCE = 100
"""Few enough to fit into the processor's cache: parsing 1,000 at once takes nearly twice as long."""

BLOCK_STEPS = 20_000
"""Steps that are turned into arrays at a time, so that a large store is never in memory as Python numbers."""

NO_LEAVES: dict[str, Any] = {}
NOT_READ = (None, None, None)


def frame(store: Store, what: str, run_ids: Iterable[str] | None = None) -> pd.DataFrame:
    """Return a frame of all runs, or of the given ones, in their order. Raises ConfigurationError for an unknown frame."""
    if what not in FRAMES:
        raise ConfigurationError(f"There is no frame {what!r}: choose one of {', '.join(FRAMES)}.")
    if isinstance(run_ids, str):
        raise ConfigurationError(f"frame(run_ids={run_ids!r}): pass a list of ids.")
    runs = store.storage.runs(run_ids)
    try:
        if what == "steps":
            return steps_frame(store, runs, whole_store=run_ids is None)
        if what == "runs":
            return runs_frame(store, runs)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, AgentlabError):
            raise
        raise StorageError(f"The stored runs are damaged ({type(error).__name__}: {error}): delete or repair them.") from error
    return to_frame([store.load(run.head.run_id) for run in runs], what)


def steps_frame(store: Store, runs: Sequence[StoredRun], *, whole_store: bool) -> pd.DataFrame:
    """Return one row per step."""
    heads, ends = _head_parts(runs, ("provider", "model")), _ends(runs, "stop_reason")
    run_ids: list[str] = []
    reasons: list[Any] = []
    own = {column.name: column for column in STEP_COLUMNS if column.name not in (*RUN_CONSTANT_COLUMNS, "stop_reason")}
    values: dict[str, list[Any]] = {name: [] for name in own}
    blocks: dict[str, list[Any]] = {name: [] for name in own}
    leaves: dict[str, tuple[list[Any], list[Any], list[Any]]] = {}
    for ids, rows in _rows(store, runs, whole_store=whole_store):
        for name, column in values.items():
            column.extend(_column_values(rows, name))
        reasons += _column_values(rows, "stop_reason")
        _add_leaves(leaves, [row.get("leaves", NO_LEAVES) for row in rows], len(run_ids))
        run_ids += ids
        if len(values["step"]) >= BLOCK_STEPS:
            _pack(values, blocks, own)
    _pack(values, blocks, own)
    last = {run_id: place for place, run_id in enumerate(run_ids)}
    for run_id, place in last.items():
        if reasons[place] is None and run_id in ends:  # the run was ended between two steps
            reasons[place] = ends[run_id]
    whole: dict[str, Any] = {
        "run_id": array(run_ids, "string"),
        "stop_reason": array(reasons, "string"),
        **{name: array([heads[run_id][name] for run_id in run_ids], "string") for name in ("provider", "model")},
    }
    columns = {c.name: whole[c.name] if c.name in whole else _concatenated(blocks.pop(c.name)) for c in STEP_COLUMNS}
    named: dict[str, None] = {}
    for stored_name in list(leaves):  # may contain a key that was not known when it was stored
        read, limits, met = leaves.pop(stored_name)
        name = unique_name(stored_name, named)
        named[name] = None
        columns[f"{name}.value"] = any_array(read)
        columns[f"{name}.limit"] = any_array(limits)
        columns[f"{name}.met"] = array(met, "boolean")
    return pd.DataFrame(columns, copy=False)


def _pack(values: dict[str, list[Any]], blocks: dict[str, list[Any]], columns: Mapping[str, Column]) -> None:
    """Turn the values so far into arrays, in which numbers take a quarter of the memory that they take in a list."""
    for name, column in values.items():
        if column or not blocks[name]:
            blocks[name].append(array(column, columns[name].dtype))
            column.clear()


def _concatenated(blocks: list[Any]) -> Any:
    return blocks[0] if len(blocks) == 1 else type(blocks[0])._concat_same_type(blocks)


def _column_values(rows: list[dict[str, Any]], name: str) -> list[Any]:
    try:
        return list(map(operator.itemgetter(name), rows))
    except KeyError:  # unknown values are not stored
        return [row.get(name) for row in rows]


def _add_leaves(columns: dict[str, tuple[list[Any], list[Any], list[Any]]], rows: list[dict[str, Any]], before: int) -> None:
    """Add value, limit and answer of each leaf to its columns, which have `before` rows; None for rows without that leaf."""
    for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
        if name not in columns:  # not setdefault, which would build long lists for each block of rows and discard them
            columns[name] = ([None] * before, [None] * before, [None] * before)
    for name, three in columns.items():
        readings = [row.get(name, NOT_READ) for row in rows]
        for place, column in enumerate(three):
            column += [reading[place] for reading in readings]


def runs_frame(store: Store, runs: Sequence[StoredRun]) -> pd.DataFrame:
    """Return one row per run, with its state; a run that has not ended has the values so far."""
    names = [column.name for column in RUN_COLUMNS]
    heads, ends = _head_parts(runs, names), _ends(runs, "row")
    so_far = _so_far(store, [run for run in runs if run.end is None])
    values: dict[str, list[Any]] = {name: [] for name in names}
    for run in runs:
        run_id = run.head.run_id
        known = ends[run_id] if run_id in ends else so_far[run_id]
        row = {**heads[run_id], **known, "run_id": run_id, "steps": run.steps}
        for name in names:
            values[name].append(row.get(name))
    columns: dict[str, Any] = {column.name: array(values.pop(column.name), column.dtype) for column in RUN_COLUMNS}
    columns["state"] = array([store.state_of(run) for run in runs], "string")
    columns["begun_at"] = pd.to_datetime([run.head.begun_at for run in runs], unit="s", utc=True)
    return pd.DataFrame(columns, copy=False)


_COUNTED, _SPENT = ("calls", "total_tokens", "child_calls", "child_tokens"), ("cost_usd", "child_cost_usd")


def _so_far(store: Store, runs: Sequence[StoredRun]) -> dict[str, dict[str, Any]]:
    """Return the sums over the steps of each run, for runs that have not ended."""
    found: dict[str, dict[str, Any]] = {
        run.head.run_id: {"elapsed_s": 0.0, **dict.fromkeys(_COUNTED, 0), **dict.fromkeys(_SPENT, 0.0)} for run in runs
    }
    for ids, rows in _rows(store, runs, whole_store=False) if runs else ():
        for run_id, row in zip(ids, rows, strict=True):
            sums = found[run_id]
            sums["elapsed_s"] = row.get("started_s", 0.0) + row.get("duration_s", 0.0)
            for name in (*_COUNTED, *_SPENT):
                sums[name] = None if sums[name] is None or row.get(name) is None else round(sums[name] + row[name], 12)
    for run_id, uses in interrupted_use(store.storage, runs).items():
        used = RunHistory((), uses)
        more = {"child_calls": used.calls, "child_tokens": used.tokens, "child_cost_usd": used.cost_usd}
        for name, value in more.items():
            before = found[run_id][name]
            found[run_id][name] = None if before is None or value is None else round(before + type(before)(value), 12)
    return found


def _rows(store: Store, runs: Sequence[StoredRun], *, whole_store: bool) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """Yield run ids and rows of the steps of these runs, ROWS_AT_ONCE at a time."""
    expected = {run.head.run_id for run in runs}
    pairs = store.storage.rows(None if whole_store else [run.head.run_id for run in runs])
    while some := list(itertools.islice(pairs, ROWS_AT_ONCE)):
        known = [pair for pair in some if pair[0] in expected]  # another process may have begun a run meanwhile
        yield [run_id for run_id, _ in known], _parsed([row for _, row in known])


def _parsed(texts: list[str]) -> list[dict[str, Any]]:
    """Parse many texts at once, twice as fast as one by one."""
    whole = f"[{','.join(texts)}]"
    try:
        found: list[dict[str, Any]] = from_json(whole, cache_strings="all")
    except ValueError:  # half a surrogate pair, which only the standard library accepts
        try:
            found = json.loads(whole)
        except (ValueError, RecursionError) as error:
            raise StorageError(f"A stored step is damaged: {error}.") from error
    return found


def _head_parts(runs: Sequence[StoredRun], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return these parts of each run's head; the rest, including the conversation, is freed immediately."""
    wanted = tuple(names)
    return {
        run_id: {name: head[name] for name in wanted if name in head}
        for run_id, head in _each_parsed(runs, lambda run: run.head.body)
    }


def _ends(runs: Sequence[StoredRun], name: str) -> dict[str, Any]:
    """Return one part of the end of each run, for runs that have ended."""
    ended = [run for run in runs if run.end is not None]
    return {run_id: end[name] for run_id, end in _each_parsed(ended, lambda run: run.end or "")}


def _each_parsed(runs: Sequence[StoredRun], text: Callable[[StoredRun], str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for begin in range(0, len(runs), ROWS_AT_ONCE):
        some = runs[begin : begin + ROWS_AT_ONCE]
        yield from zip([run.head.run_id for run in some], _parsed([text(run) for run in some]), strict=True)
