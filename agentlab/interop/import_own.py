"""What agentlab itself wrote: stores, and what was exported from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pandas as pd

from agentlab.columns import RUN_COLUMNS, STEP_COLUMNS, Column
from agentlab.errors import ConfigurationError, StorageError
from agentlab.interop.rows import Imported, score_columns
from agentlab.printable import one_line
from agentlab.recorder import array
from agentlab.storage.store import Store

_KEPT_FOR_THE_STORE = ("row", "body", "head", "end", "writer", "begun_at_s")
_LEAVES = (".value", ".limit", ".met")


def store(where: str | Path | Store) -> Imported:
    """The runs of a store of agentlab, with the scores of an experiment where it has some.

    Raises ConfigurationError where there is no such file: none is made.

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
    if isinstance(where, Store):
        return _of_store(where, repr(where))
    path = _path(where, "store")
    if not path.is_file():
        raise ConfigurationError(f"store({str(where)!r}): there is no such file; pass the path that lab.Store(…) was given.")
    if not path.stat().st_size:
        raise ConfigurationError(f"store({str(where)!r}): the file is empty; pass the path that lab.Store(…) was given.")
    with Store(where) as opened:
        return _of_store(opened, str(where))


def _path(where: object, function: str) -> Path:
    if not isinstance(where, str | Path):
        raise ConfigurationError(f"{function}({one_line(repr(where))}): pass the path of a file.")
    return Path(where)


def _of_store(opened: Store, source: str) -> Imported:
    steps, runs = opened.frame("steps"), opened.frame("runs")
    noted = opened.storage.notes("score")
    scores = [_score(noted.get(run_id)) for run_id in runs["run_id"]]
    for name, values in score_columns(scores).items():
        runs[name] = values
    notes = []
    going = int(runs["stop_reason"].isna().sum())
    if going:
        notes.append(f"{going:,} of {len(runs):,} runs have not ended: their last step is not their end.")
    return Imported(steps, runs, tuple(notes), source=source)


def _score(note: str | None) -> dict[str, bool | float]:
    """What an experiment noted of a run; nothing where it noted none, or where the score raised."""
    score = None if note is None else json.loads(note).get("score")
    named = score if isinstance(score, dict) else {"score": score}
    return {
        name if name == "score" else f"score.{name}": value
        for name, value in named.items()
        if isinstance(value, bool | int | float)
    }


def parquet(where: str | Path) -> Imported:
    """What `store.export(…)` wrote into a folder; or a single file with a row a step.

    Such a file has at least the column `run_id`. Columns of agentlab's steps frame that it lacks are NA, but for the sums up to each
    step, which are added up; what it has beside them is left out. The runs are then put together from their steps. Needs the extra
    `agentlab-jupyter[parquet]`.

    Raises ConfigurationError where there is no such file, StorageError where it cannot be read or lacks that column.

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
            f"parquet({str(where)!r}): there is nothing; pass a folder that store.export(…) wrote, or a file."
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
        notes.append("There is no runs.parquet: the runs were put together from their steps.")
    return Imported(steps, runs, tuple(notes), source=str(where))


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
                    "a row is a step, and says of which run."
                )
            names = [name for name in file.schema_arrow.names if name not in _KEPT_FOR_THE_STORE]
            read: pd.DataFrame = file.read(columns=names).replace_schema_metadata(None).to_pandas()
    except (OSError, pyarrow.ArrowException) as error:
        raise StorageError(f"{str(path)!r} cannot be read as Parquet: {error}") from error
    return read


def _typed(read: pd.DataFrame, columns: tuple[Column, ...], path: Path, notes: list[str]) -> pd.DataFrame:
    """With all columns that such a frame has, of their dtypes; then what was read beside them and is known to agentlab."""
    if columns is STEP_COLUMNS and "step" not in read:
        read = read.assign(step=read.groupby("run_id", sort=False).cumcount() + 1)
        notes.append("The file has no column 'step': the rows of a run were numbered as they stand.")
    made: dict[str, Any] = {}
    for column in columns:
        if column.name not in read:
            made[column.name] = array([None] * len(read), column.dtype)
            continue
        try:
            made[column.name] = _hidden(read[column.name].astype(cast(Any, column.dtype)))
        except (TypeError, ValueError, OverflowError) as error:
            raise StorageError(
                f"{str(path)!r}: the column {column.name!r} is {read[column.name].dtype}, which cannot be read as {column.dtype}."
            ) from error
    also = [name for name in read if name not in made and _is_ours(str(name))]
    left = [str(name) for name in read if name not in made and name not in also]
    if left:
        notes.append(f"Columns that agentlab has no use for, left out of {path.name}: {', '.join(left[:10])}.")
    for name in also:
        values = read[name]
        made[str(name)] = values.array if name == "begun_at" else _hidden(values.convert_dtypes())
    if columns is STEP_COLUMNS:
        _add_up(made, [name for name in _SUMS if name not in read])
    return pd.DataFrame(made)


def _hidden(values: pd.Series[Any]) -> Any:
    """A column's values; texts, which others may have written, without keys."""
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
    """The sums that a file lacks, of the steps that it has: an unknown part makes the rest of the run unknown, and is left out of what
    is known. A file that says nothing of sub-agents had none."""
    runs = pd.Series(made["run_id"])
    for name in missing:
        own, child = (pd.Series(made[part]) for part in _SUMS[name])
        parts = own + (child.fillna(0) if child.isna().all() else child)
        known = (own.fillna(0) + child.fillna(0)).groupby(runs, sort=False).cumsum()
        broken = parts.isna().groupby(runs, sort=False).cummax()
        made[name] = (known if name.startswith("known") else known.mask(broken.astype(bool))).astype(own.dtype).array


def _is_ours(name: str) -> bool:
    return name in ("state", "begun_at", "score") or name.startswith("score.") or name.endswith(_LEAVES)


def _runs_of(steps: pd.DataFrame) -> pd.DataFrame:
    """A row a run, of what its steps say: sums are unknown where a step's part is."""
    groups = steps.groupby("run_id", sort=False)
    rows = []
    for run_id, group in groups:
        last = group.iloc[-1]
        rows.append({
            "run_id": run_id,
            "provider": last["provider"],
            "model": last["model"],
            "stop_reason": last["stop_reason"],
            "steps": last["step"],
            **{name: group[name].sum(skipna=False) for name in ("calls", "total_tokens", "cost_usd", *_CHILD)},
            "elapsed_s": last["started_s"] + last["duration_s"],
            "text": next((text for text in reversed(group["text"].to_list()) if not pd.isna(text) and text), None),
        })  # fmt: skip
    plain = [{name: None if pd.isna(value) else value for name, value in row.items()} for row in rows]
    return pd.DataFrame({column.name: array([row.get(column.name) for row in plain], column.dtype) for column in RUN_COLUMNS})


_CHILD = ("child_calls", "child_tokens", "child_cost_usd")
