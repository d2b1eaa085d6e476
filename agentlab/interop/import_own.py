"""Imports stores of agentlab, and their exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd

from agentlab._internal.safe_text import one_line
from agentlab.errors import ConfigurationError, StorageError
from agentlab.interop.rows import Imported, score_columns, terminated_by
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.records.columns import CALL_COLUMNS, RUN_COLUMNS, STEP_COLUMNS, TOOL_COLUMNS, Column
from agentlab.records.frames import array
from agentlab.storage.store import Store

_KEPT_FOR_THE_STORE = ("row", "body", "head", "end", "writer", "begun_at_s", "under_way", "tools_begun", "resumed_in")
_OF_EXPERIMENT = {
    "agent", "prompt_id", "settings", "repeat", "score", "score_error", "attempt", "problem", "changed", "score_why", "score_calls",
    "score_tokens", "score_cost_usd", "target", "tags", "task_hash",
}  # fmt: skip
_LEAVES = (".value", ".limit", ".met")


def store(where: str | Path | Store) -> Imported:
    """Import the runs of a store of agentlab, with the scores of an experiment if it has any.

    Raises ConfigurationError if the file does not exist; no file is created.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "runs.db"
        >>> with lab.Store(path) as store:
        ...     kept = await store.keep(brief.run("?"))
        >>> lab.importers.store(path).runs[["provider", "stop_reason", "steps"]]
           provider stop_reason  steps
        0  scripted   completed      1
    """
    with _opened(where) as opened:
        return _import_store(opened, where)


@contextmanager
def _opened(where: str | Path | Store) -> Iterator[Store]:
    if isinstance(where, Store):
        yield where
        return
    path = _path(where, "store")
    if not path.is_file():
        raise ConfigurationError(f"store({str(where)!r}): the file does not exist; pass the path of a lab.Store(…).")
    if not path.stat().st_size:
        raise ConfigurationError(f"store({str(where)!r}): the file is empty; pass the path of a lab.Store(…).")
    with Store(where) as opened:
        yield opened


def _frame(where: Path | Store, run_ids: list[str], what: str) -> pd.DataFrame:
    with _opened(where) as opened:
        return opened.frame(what, run_ids)


def _path(where: object, function: str) -> Path:
    if not isinstance(where, str | Path):
        raise ConfigurationError(f"{function}({one_line(repr(where))}): pass the path of a file.")
    return Path(where)


def _import_store(opened: Store, where: str | Path | Store) -> Imported:
    steps, runs = opened.frame("steps"), opened.frame("runs")
    noted, later = map(opened.storage.notes, ("score", "more scores"))  # of the experiment, and of `results.rescore`
    scores = [{**_score(noted.get(run_id)), **_later_scores(later.get(run_id))} for run_id in runs["run_id"]]
    for name, values in score_columns(scores).items():
        runs[name] = values
    notes = []
    running = int(runs["stop_reason"].isna().sum())
    if running:
        notes.append(f"{running:,} of {len(runs):,} runs have not ended: they may continue after their last step.")
    source, where = (repr(where), where) if isinstance(where, Store) else (str(where), Path(where).absolute())
    return Imported(steps, runs, tuple(notes), source=source, _read=partial(_frame, where, runs["run_id"].to_list()))


def _score(note: str | None) -> dict[str, bool | float]:
    """Return the scores that an experiment stored for a run; empty if there are none, or if scoring failed."""
    score = None if note is None else json.loads(note).get("score")
    return _columns(score if isinstance(score, dict) else {"score": score})


def _later_scores(note: str | None) -> dict[str, bool | float]:
    return {} if note is None else _columns({name: found.get("score") for name, found in json.loads(note).items()})


def _columns(named: dict[str, Any]) -> dict[str, bool | float]:
    return {
        name if name == "score" else f"score.{name}": value
        for name, value in named.items()
        if isinstance(value, bool | int | float)
    }


def parquet(where: str | Path) -> Imported:
    """Import a folder that `store.export(…)` wrote, or a single file with one row per step.

    A single file needs the column `run_id`. Missing columns of agentlab's steps frame are NA, except cumulative ones, which are
    computed; other columns are left out. The runs are built from their steps. Needs the extra `agentlab-jupyter[parquet]`.

    Raises ConfigurationError if the file does not exist, StorageError if it cannot be read or has no column `run_id`.

    Example:
        >>> from tempfile import mkdtemp
        >>> folder, store = mkdtemp(), lab.Store()
        >>> kept = await store.keep(brief.run("?"))
        >>> store.export(folder)
        >>> lab.importers.parquet(folder).steps[["step", "finish_reason", "total_tokens"]]
           step finish_reason  total_tokens
        0     1      end_turn            15
    """
    place = _path(where, "parquet")
    if not place.exists():
        raise ConfigurationError(
            f"parquet({str(where)!r}): the path does not exist; pass a folder that store.export(…) wrote, or a file."
        )
    steps_file, runs_file = (place / "steps.parquet", place / "runs.parquet") if place.is_dir() else (place, None)
    if not steps_file.is_file():
        raise ConfigurationError(f"parquet({str(where)!r}): the folder has no steps.parquet; store.export(…) writes one.")
    notes: list[str] = []
    steps = _typed(_read(steps_file), STEP_COLUMNS, steps_file, notes)
    if runs_file is not None and runs_file.is_file():
        runs = _typed(_read(runs_file), RUN_COLUMNS, runs_file, notes)
    else:
        runs = _runs_of(steps)
        notes.append("There is no runs.parquet: the runs were built from their steps.")
    details: dict[str, Any] = {}
    for what, columns in (("calls", CALL_COLUMNS), ("tools", TOOL_COLUMNS)):
        if place.is_dir() and (file := place / f"{what}.parquet").is_file():
            details[what] = _typed(_read(file), columns, file, notes)
    return Imported(steps, runs, tuple(notes), source=str(where), _details=details)


def _read(path: Path) -> pd.DataFrame:
    try:
        import pyarrow
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigurationError("Parquet needs the package pyarrow: pip install 'agentlab-jupyter[parquet]'.") from error
    try:
        with pq.ParquetFile(path) as file:
            if "run_id" not in file.schema_arrow.names:
                raise StorageError(
                    f"{str(path)!r} has no column 'run_id' (it has {', '.join(file.schema_arrow.names[:10])}): "
                    "each row must be a step with the id of its run."
                )
            kept = _KEPT_FOR_THE_STORE
            names = [name for name in file.schema_arrow.names if name not in kept and not name.startswith("note_")]
            texts = dict.fromkeys((pyarrow.string(), pyarrow.large_string()), pd.StringDtype())  # objects to pandas 2
            read: pd.DataFrame = file.read(columns=names).replace_schema_metadata(None).to_pandas(types_mapper=texts.get)
    except (OSError, pyarrow.ArrowException) as error:
        raise StorageError(f"{str(path)!r} cannot be read as Parquet: {error}") from error
    return read


def _typed(read: pd.DataFrame, columns: tuple[Column, ...], path: Path, notes: list[str]) -> pd.DataFrame:
    """Return a frame with all these columns and dtypes, followed by further columns that agentlab knows."""
    if columns is STEP_COLUMNS and "step" not in read:
        read = read.assign(step=read.groupby("run_id", sort=False).cumcount() + 1)
        notes.append("The file has no column 'step': the rows of each run were numbered in their order.")
    made: dict[str, Any] = {}
    for column in columns:
        if column.name not in read:
            made[column.name] = array([None] * len(read), column.dtype)
            continue
        try:
            made[column.name] = _values(read[column.name].astype(cast(Any, column.dtype)))
        except (TypeError, ValueError, OverflowError) as error:
            raise StorageError(
                f"{str(path)!r}: the column {column.name!r} is {read[column.name].dtype}, which cannot be read as {column.dtype}."
            ) from error
    for of_words, words in _WORDS.items():
        unknown = sorted({str(word) for word in read[of_words].dropna()} - words) if of_words in read else []
        if unknown:
            notes.append(
                f"Words in {of_words!r} of {path.name} that agentlab does not know: {', '.join(map(repr, unknown[:10]))}."
            )
    also = [name for name in read if name not in made and _is_ours(str(name))]
    left = [str(name) for name in read if name not in made and name not in also]
    if left:
        notes.append(f"Columns that agentlab does not use, left out of {path.name}: {', '.join(left[:10])}.")
    for name in also:
        values = read[name]
        is_score = name == "score_cost_usd" or str(name).partition(".")[0] == "score"
        is_value = is_score and str(name).count(".") < 2  # `score.late`, not `score.late.version`
        if is_value and pd.api.types.is_string_dtype(values.dropna().infer_objects()):
            notes.append(f"The column {name!r} of {path.name} has texts instead of numbers: its scores are NA.")
            made[str(name)] = array([None] * len(values), "Float64")
            continue
        is_score = is_score and values.dtype.kind == "f"
        made[str(name)] = (
            values.array if name == "begun_at" else _values(values.astype("Float64") if is_score else values.convert_dtypes())
        )
    if columns is STEP_COLUMNS:
        _add_up(made, [name for name in _SUMS if name not in read])
    return pd.DataFrame(made)


_WORDS = {"finish_reason": {*FinishReason}, "stop_reason": {*StopReason}}


def _values(values: pd.Series[Any]) -> Any:
    """Return a column's values. Texts may be from another program, so keys are removed."""
    if values.dtype != "string":
        return values.array
    return array([None if pd.isna(value) else value for value in values], "string")


_SUMS = {
    "cumulative_tokens": ("total_tokens", "child_tokens"),
    "known_tokens": ("total_tokens", "child_tokens"),
    "cumulative_cost_usd": ("cost_usd", "child_cost_usd"),
    "known_cost_usd": ("cost_usd", "child_cost_usd"),
}


def _add_up(made: dict[str, Any], missing: list[str]) -> None:
    """Add the missing cumulative columns.

    If a part is unknown, cumulative_* is unknown from there on, and known_* leaves the part out. Without child columns there were no
    sub-agents.
    """
    runs = pd.Series(made["run_id"])
    for name in missing:
        own, child = (pd.Series(made[part]) for part in _SUMS[name])
        parts = own + (child.fillna(0) if child.isna().all() else child)
        known = (own.fillna(0) + child.fillna(0)).groupby(runs, sort=False).cumsum()
        broken = parts.isna().groupby(runs, sort=False).cummax()
        made[name] = (known if name.startswith("known") else known.mask(broken.astype(bool))).astype(own.dtype).array


def _is_ours(name: str) -> bool:
    return name in ("state", "begun_at", *_OF_EXPERIMENT) or name.startswith("score.") or name.endswith(_LEAVES)


def _runs_of(steps: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run, from its steps. A total is unknown if a part is."""
    groups = steps.groupby("run_id", sort=False)
    rows = []
    for run_id, group in groups:
        last = group.iloc[-1]
        stop = last["stop_reason"]
        terminated = terminated_by(StopReason(stop)) if isinstance(stop, str) and stop in set(StopReason) else None
        rows.append({
            "run_id": run_id,
            "provider": last["provider"],
            "model": last["model"],
            **{name: last[name] for name in ("parent_run_id", "called_by")},
            "stop_reason": stop,
            "terminated": terminated,
            "truncated": None if terminated is None else not terminated,
            "steps": last["step"],
            **{name: group[name].sum(skipna=False) for name in ("calls", "total_tokens", "cost_usd", *_CHILD)},
            "elapsed_s": last["started_s"] + last["duration_s"],
            "text": next((text for text in reversed(group["text"].to_list()) if not pd.isna(text) and text), None),
        })  # fmt: skip
    plain = [{name: None if pd.isna(value) else value for name, value in row.items()} for row in rows]
    return pd.DataFrame({column.name: array([row.get(column.name) for row in plain], column.dtype) for column in RUN_COLUMNS})


_CHILD = ("child_calls", "child_tokens", "child_cost_usd")
