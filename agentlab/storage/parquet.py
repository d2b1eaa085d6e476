"""Exports a store's runs as Parquet files, for other tools and other machines, and imports them. Needs `agentlab-jupyter[parquet]`.

runs.parquet     the columns of the runs frame, and writer, head and end of the stored run
steps.parquet    the columns of the steps frame, and row and body (the whole step as JSON) of the stored step
calls.parquet, tools.parquet   the columns of these frames

An experiment's own columns (agent, task, settings, scores, …) come first in each file, NA for runs of sub-agents.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from agentlab.errors import ConfigurationError, StorageError
from agentlab.records.frames import array, to_frame
from agentlab.storage import StoredHead, StoredRun, StoredStep
from agentlab.storage.frames import runs_frame, steps_frame
from agentlab.storage.loader import BEGUN_TOOLS_NOTE, RESUMED_NOTE, SUB_AGENTS_NOTE
from agentlab.storage.store import Store

FORMAT = 1
RUNS_AT_ONCE = 200
_MARK = b"agentlab"
_OF_RUNS = ["run_id", "begun_at_s", "writer", "head", "steps", "end"]
_OF_NOTES = {
    "under_way": SUB_AGENTS_NOTE,
    "tools_begun": BEGUN_TOOLS_NOTE,
    "resumed_in": RESUMED_NOTE,
    "note_score": "score",
    "note_more_scores": "more scores",
    "note_spent": "spent beside the run",
    "note_made_by": "made by",
}
"""Columns for notes, and the names of the notes; earlier exports do not have these columns."""
_OF_STEPS = ["run_id", "step", "row", "body"]


def export(store: Store, folder: str | Path, own: pd.DataFrame | None = None, of_rows: Sequence[str] = ()) -> None:
    """Write all files, each completely or not at all. `own` has an experiment's columns, one row per run with the index `run_id`;
    those in `of_rows` are written into all files, the others with the runs only."""
    pa, pq = _arrow()
    own = pd.DataFrame(index=pd.Index([], dtype="string")) if own is None else own
    place, stored_runs = Path(folder), store.storage.runs()
    runs = _with(runs_frame(store, stored_runs), own)
    runs["steps"] = array([run.steps for run in stored_runs], "Int64")
    runs["begun_at_s"] = [run.head.begun_at for run in stored_runs]
    runs["writer"] = array([run.head.writer for run in stored_runs], "string")
    runs["head"] = array([run.head.body for run in stored_runs], "string")
    runs["end"] = array([run.end for run in stored_runs], "string")
    for column, name in _OF_NOTES.items():
        notes = store.storage.notes(name)
        runs[column] = array([notes.get(run.head.run_id) for run in stored_runs], "string")
    steps = _without_mixed_columns(_with(steps_frame(store, stored_runs, whole_store=True), own[list(of_rows)]))
    with _errors(place):
        place.mkdir(parents=True, exist_ok=True)
        with _replacing(place / "runs.parquet") as path:
            pq.write_table(_marked(pa.Table.from_pandas(runs, preserve_index=False)), path)
        with _replacing(place / "steps.parquet") as path:
            _write_steps(store, stored_runs, steps, path)
        for what in ("calls", "tools"):
            with _replacing(place / f"{what}.parquet") as path:
                _write_details(store, what, stored_runs, own[list(of_rows)], path)


def _with(frame: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with an experiment's columns before its own."""
    return pd.concat([own.reindex(frame["run_id"]).set_axis(frame.index), frame], axis=1)


def _write_details(store: Store, what: str, stored_runs: Sequence[StoredRun], own: pd.DataFrame, path: Path) -> None:
    """Write the frame of calls or tools, RUNS_AT_ONCE runs at a time."""
    pa, pq = _arrow()
    schema = _marked(pa.Table.from_pandas(_with(to_frame([], what), own), preserve_index=False)).schema
    with pq.ParquetWriter(path, schema) as writer:
        for begin in range(0, len(stored_runs), RUNS_AT_ONCE):
            ids = [run.head.run_id for run in stored_runs[begin : begin + RUNS_AT_ONCE]]
            frame = _with(store.frame(what, ids), own)
            writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))


def _write_steps(store: Store, stored_runs: Sequence[StoredRun], steps: pd.DataFrame, path: Path) -> None:
    """Write RUNS_AT_ONCE runs at a time, so that their bodies, which are large, are not all in memory."""
    pa, pq = _arrow()
    text = pa.field("text", pa.string())
    schema = pa.Schema.from_pandas(steps, preserve_index=False)
    schema = schema.append(text.with_name("row")).append(text.with_name("body")).with_metadata({_MARK: str(FORMAT).encode()})
    first_of = {run_id: places[0] for run_id, places in steps.groupby("run_id", sort=False).indices.items()}
    with pq.ParquetWriter(path, schema) as writer:
        for begin in range(0, len(stored_runs), RUNS_AT_ONCE):
            part: list[StoredStep] = []
            places: list[int] = []
            for run in stored_runs[begin : begin + RUNS_AT_ONCE]:
                # A run that is still running may have more steps than when it was listed.
                part += store.storage.steps(run.head.run_id)[: run.steps]
                first = first_of.get(run.head.run_id, 0)
                places += range(first, first + run.steps)
            some = steps.iloc[places].assign(row=[one.row for one in part], body=[one.body for one in part])
            writer.write_table(pa.Table.from_pandas(some, schema=schema, preserve_index=False))


def _without_mixed_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Turn columns of mixed types into JSON: users' conditions may produce them, but Parquet does not support them."""
    mixed = [name for name in frame.columns if frame[name].dtype == object]
    return frame.assign(**{
        name: array([None if value is None else json.dumps(value, default=str) for value in frame[name]], "string")
        for name in mixed
    })  # fmt: skip


def import_from(store: Store, folder: str | Path) -> list[str]:
    """Add the new runs, each completely or not at all, and return their ids."""
    _, pq = _arrow()
    place = Path(folder)
    with _errors(place):
        with pq.ParquetFile(place / "runs.parquet") as file:
            _check(place / "runs.parquet", file, _OF_RUNS)
            optional = [column for column in _OF_NOTES if column in file.schema_arrow.names]
            runs = file.read(columns=[*_OF_RUNS, *optional]).to_pylist()
        with pq.ParquetFile(place / "steps.parquet") as file:
            _check(place / "steps.parquet", file, _OF_STEPS)
            stored = {run.head.run_id: run for run in store.storage.runs()}
            steps = itertools.groupby(_steps(file), key=lambda one: one["run_id"])
            waiting: tuple[str, list[StoredStep]] | None = None
            added = []
            for run in runs:
                if waiting is None and (found := next(steps, None)) is not None:
                    waiting = found[0], [StoredStep(one["step"], one["row"], one["body"]) for one in found[1]]
                own_steps: list[StoredStep] = []
                if waiting is not None and waiting[0] == run["run_id"]:
                    own_steps, waiting = waiting[1], None
                if _add(store, run, own_steps, stored.get(run["run_id"]), place):
                    added.append(run["run_id"])
    return added


def _add(store: Store, run: dict[str, Any], steps: list[StoredStep], stored: StoredRun | None, place: Path) -> bool:
    """Add a run unless it is stored already. Returns True if it was added; raises StorageError if the stored one differs."""
    run_id = run["run_id"]
    if len(steps) != run["steps"]:
        raise StorageError(f"{str(place)!r} has {len(steps)} of {run['steps']} steps of the run {run_id!r}: export it again.")
    if stored is not None:
        if (stored.head.body, stored.steps, stored.end) == (run["head"], run["steps"], run["end"]):
            return False
        raise StorageError(
            f"The run {run_id!r} is already in this store and differs from the exported one (it has {stored.steps} steps, the "
            f"exported one {run['steps']}): delete it first."
        )
    store.storage.begin(StoredHead(run_id, run["begun_at_s"], run["writer"], run["head"]), steps, run["end"])
    for column, name in _OF_NOTES.items():
        if run.get(column) is not None:
            store.storage.note(run_id, name, run[column])
    return True


def _steps(file: Any) -> Iterator[dict[str, Any]]:
    for batch in file.iter_batches(batch_size=2_000, columns=_OF_STEPS):
        yield from batch.to_pylist()


def _check(path: Path, file: Any, columns: list[str]) -> None:
    mark = (file.schema_arrow.metadata or {}).get(_MARK)
    if mark is None or not mark.isdigit() or not set(columns) <= set(file.schema_arrow.names):
        raise StorageError(f"{str(path)!r} was not written by store.export(…).")
    if int(mark) > FORMAT:
        raise StorageError(
            f"{str(path)!r} was written by a newer agentlab (format {int(mark)}; this version reads up to {FORMAT}): update agentlab."
        )


def _marked(table: Any) -> Any:
    return table.replace_schema_metadata({_MARK: str(FORMAT).encode()})


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which replaces it once it is completely on the disk."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def _errors(place: Path) -> Iterator[None]:
    pa, _ = _arrow()
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{str(place)!r} cannot be used for Parquet: {error}") from error


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigurationError("Parquet needs the package pyarrow: pip install 'agentlab-jupyter[parquet]'.") from error
    return pyarrow, pyarrow.parquet
