"""The frames of an experiment, from its store, with the names of the cells in the first columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from agentlab.experiments.grid import AXES, Grid
from agentlab.experiments.results import ExperimentResults
from agentlab.experiments.runner import NOT_STARTED
from agentlab.experiments.scorers.base import Scorer
from agentlab.experiments.scoring import Several, each_of
from agentlab.experiments.shared_budget import SCORE, Spent, spent_beside
from agentlab.experiments.status import CellStatus
from agentlab.model.parts import as_text
from agentlab.records.columns import RUN_COLUMNS, STEP_COLUMNS
from agentlab.records.frames import FRAMES, any_array, array, to_frame
from agentlab.storage import parquet

_FIXED = [column.name for column in STEP_COLUMNS]


def frame(results: ExperimentResults, what: str) -> pd.DataFrame:
    """Return a frame of each cell's newest attempt."""
    stored = {one.run_id: place for place, one in enumerate(results.statuses) if one.stored is not None}
    table = (
        results.store.frame(what, list(stored))
        if what in ("runs", "steps") or what not in FRAMES
        else to_frame(results.loaded, what)
    )
    places = [stored[run_id] for run_id in table["run_id"].to_numpy()]
    if places != sorted(places):
        table = table.iloc[sorted(range(len(places)), key=places.__getitem__)].reset_index(drop=True)
        places.sort()
    if what == "steps":  # sorted, since the order of the conditions' columns depends on the first stored run
        table = table[[*_FIXED, *sorted(set(table.columns) - set(_FIXED), key=_leaf)]]
    if what == "runs":
        places = list(range(len(results.statuses)))
        table = _with_missing_cells(table, results)
    front = names_and_scores(results.statuses, places, results.score)
    if what == "runs":
        own = ["state", "begun_at"]
        front["state"] = table["state"].array
        front["attempt"] = array([one.attempt for one in results.statuses], "Int64")
        why = {**results.left_out, **results.problems}
        front["problem"] = array([why.get(one.run_id) for one in results.statuses], "string")
        front["changed"] = array([", ".join(one.changed) or None for one in results.statuses], "string")
        front["score_why"] = array([_note(one).get("why") for one in results.statuses], "string")
        front |= _score_usage(results) | _of_tasks(results)
        table = table[[name for name in table.columns if name not in own] + ["begun_at"]]
    return pd.concat([pd.DataFrame(front, index=table.index), table], axis=1)


def export(results: ExperimentResults, folder: str | Path) -> None:
    """Write Parquet files of all runs in the store, with the experiment's columns."""
    runs = results.runs[results.runs["state"] != NOT_STARTED].set_index("run_id")
    known = [column.name for column in RUN_COLUMNS]
    own = runs[[name for name in runs.columns if name not in (*known, "state", "begun_at")]]
    of_rows = [name for name in own.columns if name in AXES or name in ("score", "score_error") or name.startswith("score.")]
    parquet.export(results.store, folder, own, of_rows)


def _leaf(name: str) -> tuple[str, int]:
    leaf, _, part = name.rpartition(".")
    return leaf, ("value", "limit", "met").index(part)


def _with_missing_cells(table: pd.DataFrame, results: ExperimentResults) -> pd.DataFrame:
    """Add one row per cell that was not run."""
    grid = results.grid
    missing = [one for one in results.statuses if one.stored is None]
    known: dict[str, list[Any]] = {
        "provider": [grid.agents[one.cell.agent].model.name for one in missing],
        "model": [grid.agents[one.cell.agent].model.model for one in missing],
        "prompt": [one.cell.prompt for one in missing],
        "state": [NOT_STARTED for _ in missing],
    }
    table["begun_at"] = table["begun_at"].astype("datetime64[ns, UTC]")
    run_ids = pd.Index([one.run_id for one in results.statuses], dtype=table["run_id"].dtype, name="run_id")
    whole = table.set_index("run_id").reindex(run_ids)
    whole.loc[[one.run_id for one in missing], list(known)] = pd.DataFrame(known).to_numpy()
    return whole.reset_index()[table.columns]


def names_and_scores(statuses: Sequence[CellStatus], places: Sequence[int], scorer: Scorer | None) -> dict[str, Any]:
    """Return the names and scores of the cells in these places. Each of several scorers has a column, also if it always raised."""
    notes = [_note(one) for one in statuses]
    scores = [note.get("score") for note in notes]
    parts = list(dict.fromkeys(key for score in scores if isinstance(score, dict) for key in score if key != "score"))
    several = [name for name, _ in each_of(scorer)] if isinstance(scorer, Several) else []
    parts += [name for name in several if not any(part == name or part.startswith(f"{name}.") for part in parts)]
    whole = [score.get("score") if isinstance(score, dict) else score for score in scores]
    columns = {
        **_cell_columns([statuses[place] for place in places]),
        "score": _numbers(whole, places),
        "score_error": array([notes[place].get("error") for place in places], "string"),
    }
    for part in parts:
        values = [score.get(part) if isinstance(score, dict) else None for score in scores]
        columns[f"score.{part}"] = _numbers(values, places)
    return columns | _more_scores(statuses, places)


def _more_scores(statuses: Sequence[CellStatus], places: Sequence[int]) -> dict[str, Any]:
    """Return the scores that were added later: `score.<name>`, its parts, and its version."""
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in statuses for name in one.more_scores):
        notes = [one.more_scores.get(name, {}) for one in statuses]
        scores = [note["score"] if isinstance(note.get("score"), dict) else {"score": note.get("score")} for note in notes]
        for part in dict.fromkeys(["score", *(part for score in scores for part in score)]):
            column = f"score.{name}" if part == "score" else f"score.{name}.{part}"
            columns[column] = _numbers([score.get(part) for score in scores], places)
        for key, column in (("error", "error"), ("why", "why"), ("by", "version")):
            if key == "by" or any(key in note for note in notes):
                columns[f"score.{name}.{column}"] = array([notes[place].get(key) for place in places], "string")
    return columns


def _of_tasks(results: ExperimentResults) -> dict[str, Any]:
    """Return the tags and the target of each run's task as texts, and the hash of the task."""
    tasks = {task.id: task for task in results.grid.tasks}
    targets = {name: None if task.target is None else as_text(task.target) for name, task in tasks.items()}
    tags, hashes = (
        {name: ", ".join(task.tags) or None for name, task in tasks.items()},
        {name: task.hash for name, task in tasks.items()},
    )
    ids = [one.cell.prompt_id for one in results.statuses]
    return {
        name: array([values[prompt_id] for prompt_id in ids], "string")
        for name, values in (("target", targets), ("tags", tags), ("task_hash", hashes))
    }


def _cell_columns(statuses: Sequence[CellStatus]) -> dict[str, Any]:
    return {
        name: array([getattr(one.cell, name) for one in statuses], "Int64" if name == "repeat" else "string") for name in AXES
    }


def _note(one: CellStatus) -> Mapping[str, Any]:
    if one.score_changed:
        return {"error": "The score is from another version of the score function: study.run() scores the run again."}
    return one.note or {}


def _score_usage(results: ExperimentResults) -> dict[str, Any]:
    """Return the usage of the agents that each run's scores ran, later ones included: 0 if they ran none, NA if unknown."""
    noted = spent_beside(results.store.storage, [one.run_id for one in results.statuses if one.stored is not None])
    known = []
    for one in results.statuses:
        found = [spent for part, spent in noted.get(one.run_id, {}).items() if part.partition(" ")[0] == SCORE]
        has_note = one.note is not None and "by" in one.note
        known.append(sum(found, Spent()) if found or has_note else None)
    return dict(zip(("score_calls", "score_tokens", "score_cost_usd"), usage_columns(known), strict=True))


def usage_columns(spent: Sequence[Spent | None]) -> tuple[Any, Any, Any]:
    """Return calls, tokens and cost as columns; NA if unknown."""
    return (
        array([None if one is None else one.calls for one in spent], "Int64"),
        array([None if one is None or one.unknown_tokens else one.tokens for one in spent], "Int64"),
        array([None if one is None or one.unknown_cost else float(one.cost_usd) for one in spent], "Float64"),
    )


def _numbers(values: list[Any], places: Sequence[int]) -> Any:
    """Return the values at these places: as bools if all values are bools, otherwise as numbers."""
    kinds = {type(value) for value in values if value is not None}
    if kinds and not kinds <= {bool}:
        values = [None if value is None else float(value) for value in values]
    dtype = any_array(values).dtype if kinds else "Float64"
    return pd.Series([values[place] for place in places], dtype=dtype).array


def plan(grid: Grid, to_do: Sequence[CellStatus]) -> pd.DataFrame:
    """Return one row per run to do."""
    settings = [grid.run_of(one.cell).limits.snapshot() for one in to_do]
    budgets = [one.budget for one in settings]
    models = [grid.agents[one.cell.agent].model for one in to_do]
    columns: dict[str, Any] = {
        **_cell_columns(to_do),
        "run_id": array([one.run_id for one in to_do], "string"),
        "state": array([one.state for one in to_do], "string"),
        "provider": array([model.name for model in models], "string"),
        "model": array([model.model for model in models], "string"),
        "prompt": array([one.cell.prompt for one in to_do], "string"),
        "stop": array([None if one.stop is None else repr(one.stop) for one in settings], "string"),
    }
    for name in ("max_turns", "max_calls", "max_tokens", "max_tokens_per_turn"):
        columns[name] = array([getattr(budget, name) for budget in budgets], "Int64")
    columns["max_cost_usd"] = array([None if one.max_cost is None else float(one.max_cost) for one in budgets], "Float64")
    columns["timeout_s"] = array([one.timeout for one in budgets], "Float64")
    return pd.DataFrame(columns)
