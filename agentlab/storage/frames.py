"""Stored runs as DataFrames. The frames of runs and steps are built from rows that are stored with the steps."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
from pydantic_core import from_json

from agentlab.errors import AgentlabError, ConfigurationError, StorageError
from agentlab.limits.condition_tree import unique_name
from agentlab.records.columns import RUN_COLUMNS, STEP_COLUMNS
from agentlab.records.frames import any_array, array, as_unicode, to_frame
from agentlab.records.history import RunHistory
from agentlab.storage import SqliteStorage, StoredRun
from agentlab.storage.loader import interrupted_use
from agentlab.storage.store import RunId, Store, id_of
from agentlab.storage.writer import RUN_CONSTANT_COLUMNS

ROWS_AT_ONCE = 100
"""Few enough to fit into the processor's cache: parsing 1,000 at once takes nearly twice as long."""

BLOCK_STEPS = 20_000
"""Steps that are turned into arrays at a time, so that a large store is never in memory as Python numbers."""

NO_LEAVES: dict[str, Any] = {}
NOT_READ = (None, None, None)


def frame(store: Store, what: str, run_ids: Iterable[RunId] | None = None) -> pd.DataFrame:
    """Return a frame of all runs, or of the given ones, in their order. Raises ConfigurationError for an unknown frame."""
    if isinstance(run_ids, str) or not isinstance(run_ids, Iterable | None):
        raise ConfigurationError(f"frame(run_ids={run_ids!r}): pass a list of ids.")
    runs = store.storage.runs(None if run_ids is None else list(map(id_of, run_ids)))
    try:
        if what == "steps":
            return steps_frame(store, runs, whole_store=run_ids is None)
        if what == "runs":
            return runs_frame(store, runs)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, AgentlabError):
            raise
        raise StorageError(f"The stored runs are damaged ({type(error).__name__}: {error}): delete or repair them.") from error
    return to_frame((store.load(run.head.run_id) for run in runs), what)


def steps_frame(store: Store, runs: Sequence[StoredRun], *, whole_store: bool) -> pd.DataFrame:
    """Return one row per step."""
    blocks = list(_blocks(store, runs, whole_store=whole_store))
    names = dict.fromkeys(itertools.chain.from_iterable(block.leaves for block in blocks))
    readings = {name: [block.leaves.get(name) for block in blocks] for name in names}
    if any(_are_mixed([three[place] for three in found if three]) for found in readings.values() for place in (0, 1)):
        blocks = [_block_of_rows(store, runs, whole_store=whole_store)]  # the dtype depends on all values of a column
    columns = {column.name: _concatenated([block.columns[column.name] for block in blocks]) for column in STEP_COLUMNS}
    named: dict[str, None] = {}
    for stored_name in names:  # may contain a key that was not known when it was stored
        name = unique_name(stored_name, named)
        named[name] = None
        found = [block.leaves.get(stored_name) for block in blocks]
        for place, part in enumerate(("value", "limit", "met")):
            arrays = [three and three[place] for three in found]
            columns[f"{name}.{part}"] = _joined(arrays, list(map(len, blocks)))
    return pd.DataFrame(columns, copy=False)


# Blocks of columns ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """The steps of some consecutive runs as arrays: the columns, and value, limit and answer of each leaf, by its stored name."""

    columns: dict[str, Any]
    leaves: dict[str, tuple[Any, Any, Any]]

    def __len__(self) -> int:
        return len(self.columns["step"])


def _blocks(store: Store, runs: Sequence[StoredRun], *, whole_store: bool) -> Iterator[Block]:
    """Yield the steps of these runs in blocks, so that a large store is never in memory as Python numbers.

    A SQLite file keeps the columns of full blocks, once they were read, until one of the runs changes.
    """
    keeps = whole_store and isinstance(store.storage, SqliteStorage) and _arrow() is not None
    begin = 0
    for first, end, body in [*(_kept(store, runs) if keeps else ()), (len(runs), len(runs), b"")]:
        for some in _divided(runs[begin:first]):
            is_whole = whole_store and len(some) == len(runs)
            announced = _announced(store, some) if keeps else ""
            block = _block_of_rows(store, some, whole_store=is_whole)
            if announced:
                _keep(store, announced, block)
            yield block
        if body:
            yield _of_arrow(body)
        begin = end
    if not runs:
        yield _block_of_rows(store, runs, whole_store=whole_store)


def _divided(runs: Sequence[StoredRun]) -> Iterator[Sequence[StoredRun]]:
    """Divide runs into parts of BLOCK_STEPS steps or a little more."""
    begin = steps = 0
    for place, run in enumerate(runs, 1):
        steps += run.steps
        if steps >= BLOCK_STEPS or place == len(runs):
            yield runs[begin:place]
            begin, steps = place, 0


def _block_of_rows(store: Store, runs: Sequence[StoredRun], *, whole_store: bool) -> Block:
    """Return the steps of these runs, read from their rows."""
    constant = [name for name in RUN_CONSTANT_COLUMNS if name != "run_id"]
    heads, ends = _head_parts(runs, constant), _ends(runs, "stop_reason")
    run_ids: list[str] = []
    reasons: list[Any] = []
    own = {column.name: column.dtype for column in STEP_COLUMNS if column.name not in (*RUN_CONSTANT_COLUMNS, "stop_reason")}
    values: dict[str, list[Any]] = {name: [] for name in own}
    leaves: dict[str, tuple[list[Any], list[Any], list[Any]]] = {}
    for ids, rows in _rows(store, runs, whole_store=whole_store):
        for name, column in values.items():
            column.extend(_column_values(rows, name))
        reasons += _column_values(rows, "stop_reason")
        _add_leaves(leaves, [row.get("leaves", NO_LEAVES) for row in rows], len(run_ids))
        run_ids += ids
    last = {run_id: place for place, run_id in enumerate(run_ids)}
    for run_id, place in last.items():
        if reasons[place] is None and run_id in ends:  # the run was ended between two steps
            reasons[place] = ends[run_id]
    columns = {name: array(values.pop(name), dtype) for name, dtype in own.items()}
    columns |= {"run_id": array(run_ids, "string"), "stop_reason": array(reasons, "string")}
    columns |= {name: array([heads[run_id].get(name) for run_id in run_ids], "string") for name in constant}
    readings = {name: (any_array(read), any_array(limits), array(met, "boolean")) for name, (read, limits, met) in leaves.items()}
    return Block(columns, readings)


def _concatenated(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else type(arrays[0])._concat_same_type(arrays)


def _are_mixed(arrays: Sequence[Any]) -> bool:
    """True if a column of several blocks has values that are neither all numbers nor all of one dtype."""
    dtypes = {str(one.dtype) for one in arrays if not one.isna().all()}
    return len(arrays) > 1 and not dtypes <= {"Int64", "Float64"} and (len(dtypes) > 1 or "object" in dtypes)


def _joined(arrays: Sequence[Any], lengths: Sequence[int]) -> Any:
    """Concatenate arrays; None, and unknown values only, become NA of the others' dtype."""
    if len(arrays) == 1:
        return arrays[0]
    dtypes = sorted({str(one.dtype) for one in arrays if one is not None and not one.isna().all()})
    dtype = dtypes[0] if dtypes else "boolean"  # of Float64 and Int64 the first
    return _concatenated([
        array([None] * length, dtype) if one is None or one.isna().all() else one.astype(dtype, copy=False)
        for one, length in zip(arrays, lengths, strict=True)
    ])  # fmt: skip


# Kept columns --------------------------------------------------------------------------------------------------------------------

_MADE_AS = hashlib.sha256(repr([1, *((column.name, column.dtype) for column in STEP_COLUMNS)]).encode()).hexdigest()
"""The form of the kept columns; those of another form are made again. The number changes if columns are made in another way."""

_LEAVES = b"leaves"


def _arrow() -> Any:
    """Return pyarrow, or None if it is not installed."""
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


def _kept(store: Store, runs: Sequence[StoredRun]) -> Iterator[tuple[int, int, bytes]]:
    """Yield the kept columns of these runs, which are all of the store: the places of the first and after the last run, and the
    columns."""
    place_of = {run.head.run_id: place for place, run in enumerate(runs)}
    begin = 0
    for first, last, body in cast(SqliteStorage, store.storage).kept_columns(_MADE_AS):
        if first in place_of and last in place_of and place_of[first] >= begin:
            begin = place_of[last] + 1
            yield place_of[first], begin, body


def _announced(store: Store, runs: Sequence[StoredRun]) -> str:
    """Announce columns of these runs if they are to be kept: enough steps, and no run that is being written. Empty if not."""
    if sum(run.steps for run in runs) < BLOCK_STEPS // 2 or any(store.state_of(run) == "open" for run in runs):
        return ""
    try:
        return cast(SqliteStorage, store.storage).announce_columns(runs[0].head.run_id, runs[-1].head.run_id)
    except StorageError:  # such as a file that is read-only
        return ""


def _keep(store: Store, announced: str, block: Block) -> None:
    """Keep the columns of a block in Arrow's IPC format, unless values of mixed types are among them."""
    pa = _arrow()
    arrays = block.columns | {f"{name}.{place}": one for name, three in block.leaves.items() for place, one in enumerate(three)}
    if any(str(one.dtype) == "object" for one in arrays.values()):
        return
    columns = {}
    for name, one in arrays.items():
        column = pa.array(one)
        columns[name] = column.cast(pa.large_string()).dictionary_encode() if one.dtype == "string" else column
    table = pa.table(columns, metadata={_LEAVES: json.dumps(list(block.leaves)).encode()})
    body = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)
    with pa.ipc.new_stream(body, table.schema, options=options) as writer:
        writer.write_table(table)
    with contextlib.suppress(StorageError):
        cast(SqliteStorage, store.storage).keep_columns(announced, _MADE_AS, body.getvalue().to_pybytes())


def _of_arrow(body: bytes) -> Block:
    """Return the block that was kept."""
    table = _arrow().ipc.open_stream(body).read_all().combine_chunks()
    arrays = {name: _pandas_array(table.column(name).chunk(0)) for name in table.column_names}
    names = json.loads(table.schema.metadata[_LEAVES])
    leaves = {name: tuple([arrays.pop(f"{name}.{place}") for place in range(3)]) for name in names}
    return Block(arrays, cast(dict[str, tuple[Any, Any, Any]], leaves))


def _pandas_array(column: Any) -> Any:
    """Return a kept column as a pandas array. Texts are redacted, since a key may have become known since they were kept."""
    pa = _arrow()
    if not pa.types.is_dictionary(column.type):
        return _DTYPES[str(column.type)].__from_arrow__(column)
    texts = column.dictionary.to_pylist()
    if (clean := as_unicode(texts)) is not texts:
        column = pa.DictionaryArray.from_arrays(column.indices, pa.array(clean, pa.large_string()))
    return _DTYPES["string"].__from_arrow__(column.dictionary_decode())


_DTYPES: dict[str, Any] = {
    "int64": pd.Int64Dtype(), "double": pd.Float64Dtype(), "bool": pd.BooleanDtype(), "string": pd.StringDtype(),
}  # fmt: skip


# Rows ------------------------------------------------------------------------------------------------------------------------------


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
