"""The records of what a person passes: a steps frame, a store, an experiment's results, results and runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import pandas as pd

from agentlab.engine.lockstep import Lockstep
from agentlab.errors import ConfigurationError
from agentlab.history import RunHistory
from agentlab.printable import one_line
from agentlab.recorder import to_frame
from agentlab.results import RunResult
from agentlab.run import Run
from agentlab.storage.store import Store
from agentlab.whatif.from_frames import from_frames
from agentlab.whatif.records import Records

Recorded: TypeAlias = Any
"""A steps frame; a Store; what an experiment or an importer gave (anything with the frames `steps` and `runs`); a result, a run, or
several of these."""

LOADED_AT_ONCE = 4_096
"""So many loaded runs of a store stay in memory."""


def records_of(recorded: Recorded, runs: pd.DataFrame | None = None) -> Records:
    """The records of a person's runs; `runs` has more columns of those in a frame. Raises ConfigurationError for anything else."""
    found = _records_of(recorded, runs)
    if not len(found):
        raise ConfigurationError("There are no runs in what was passed: record some first, or pass the frame with them.")
    return found


def _records_of(recorded: Recorded, runs: pd.DataFrame | None) -> Records:
    if isinstance(recorded, pd.DataFrame):
        return from_frames(recorded, runs)
    if runs is not None:
        raise ConfigurationError("runs=… goes with a steps frame; a store and results know their runs themselves.")
    if isinstance(recorded, Store):
        return _of_store(recorded)
    if isinstance(recorded, Lockstep):
        recorded = recorded.runs
    if isinstance(recorded, RunResult | Run):
        return _of_results([recorded])
    steps, of_runs = getattr(recorded, "steps", None), getattr(recorded, "runs", None)
    if isinstance(steps, pd.DataFrame) and isinstance(of_runs, pd.DataFrame):
        return from_frames(steps, _begun(of_runs), _loading(recorded.store) if hasattr(recorded, "store") else None)
    if isinstance(recorded, Iterable) and not isinstance(recorded, str | bytes):
        several = list(recorded)
        if all(isinstance(one, RunResult | Run) for one in several):
            return _of_results(several)
    shown = f"A {type(recorded).__name__}" if isinstance(recorded, pd.Series | list | tuple | dict) else one_line(repr(recorded))
    raise ConfigurationError(
        f"{shown} is not a record of runs: pass a steps frame, a store, results of an experiment, or a list of results."
    )


def _of_results(results: list[RunResult | Run]) -> Records:
    histories = {(one.id if isinstance(one, Run) else one.run_id): one.history for one in results}
    if len(histories) < len(results):
        raise ConfigurationError("The same run is there twice: pass each run once.")
    return from_frames(to_frame(results), to_frame(results, "runs"), histories.__getitem__)


def _of_store(store: Store) -> Records:
    """All runs but those of sub-agents, which are part of the run that called them."""
    runs = store.frame("runs")
    runs = runs[runs["called_by"].isna()]
    steps = store.frame("steps")
    return from_frames(steps[steps["run_id"].isin(set(runs["run_id"]))], runs, _loading(store))


def _begun(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that were begun."""
    return runs[runs["state"] != "not_started"] if "state" in runs.columns else runs


def _loading(store: Store) -> Callable[[str], RunHistory]:
    @functools.lru_cache(maxsize=LOADED_AT_ONCE)
    def history(run_id: str) -> RunHistory:
        return store.load(run_id).history

    return history
