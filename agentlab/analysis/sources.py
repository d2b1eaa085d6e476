"""Records from frames, stores, experiments and runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from agentlab._internal.safe_text import cut, one_line
from agentlab.agent import Run
from agentlab.analysis import groups
from agentlab.analysis.records import Bools, Floats, Ints, Records
from agentlab.engine.lockstep import Lockstep
from agentlab.errors import ConfigurationError
from agentlab.model.finish_reasons import StopReason
from agentlab.records.frames import to_frame
from agentlab.records.history import RunHistory
from agentlab.records.result import RunResult
from agentlab.storage.store import Store

OWN_ENDS = frozenset({
    StopReason.COMPLETED, StopReason.TERMINATING_TOOL, StopReason.TRUNCATED, StopReason.CONTENT_FILTERED,
    StopReason.NUDGES_EXHAUSTED, StopReason.INVALID_OUTPUT, StopReason.AWAITING_APPROVAL,
})  # fmt: skip
"""Ends of a run that do not depend on its limits. An error from a response is another one, see `_ends`."""


def from_frames(
    steps: pd.DataFrame, runs: pd.DataFrame | None = None, histories: Callable[[str], RunHistory] | None = None
) -> Records:
    """Return the records of a steps frame; `runs`, one row per run, has further columns, and runs that took no step. Runs that never
    began are left out, and those of sub-agents whose caller is among the runs.

    `histories` returns a run's history by its id. Errors: ConfigurationError if columns or rows are missing.
    """
    groups.no_column_twice(steps)
    steps = groups.outermost(steps) if runs is None else steps
    for name in ("run_id", "step"):
        if name not in steps.columns:
            raise ConfigurationError(f"The steps have no column {name!r}: pass the frame of lab.frame(results).")
    if steps["run_id"].isna().any() or steps["step"].isna().any():
        raise ConfigurationError("Some steps have a run_id or step that is NA: leave them out, steps.dropna(subset=[…]).")
    given = groups.floats(steps, "step")
    with np.errstate(invalid="ignore"):
        number = given.astype(np.int64)
    if (uneven := given != number).any():
        raise ConfigurationError(f"Step {given[uneven][0]:g} is not a whole number: the column `step` counts from 1.")
    codes, different = pd.factorize(steps["run_id"])
    about = _about(steps, runs, codes)
    place = np.arange(len(different)) if runs is None else pd.Index(about["run_id"]).get_indexer(pd.Index(different))
    if runs is not None and len(about) and len(steps) and (place < 0).all():
        one, other = cut(repr(steps["run_id"].tolist()[0]), 80), cut(repr(about["run_id"].tolist()[0]), 80)
        raise ConfigurationError(
            f"The steps belong to none of these runs: run_id is {one} in the steps and {other} in runs=…. Pass two frames of the same "
            "runs, with the same dtype of run_id."
        )
    run, kept = codes if runs is None else place[codes].astype(np.int64), steps
    if (place < 0).any():
        known = run >= 0
        run, number, kept = run[known], number[known], steps[known]
    lengths = np.bincount(run, minlength=len(about))
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if not _is_in_order(run, number):
        order = np.lexsort((number, run))
        run, number, kept = run[order], number[order], kept.iloc[order]
        for row in np.flatnonzero(number != np.arange(len(number)) - start[run] + 1)[:1]:
            raise ConfigurationError(
                f"Run {about['run_id'].iloc[run[row]]!r} has step {number[row]} where step {row - start[run[row]] + 1} was expected: "
                "pass all steps of a run, each once. If the frame is from several stores or experiments, pass their frames one by one."
            )
    kept = kept.reset_index(drop=True)
    own, short, more, reason = _ends(kept, about, start)
    taken = np.nan_to_num(groups.floats(about, "steps"))
    for run in np.flatnonzero(taken > lengths)[:1]:
        raise ConfigurationError(
            f"Run {about['run_id'].iloc[run]!r} took {taken[run]:g} steps, of which {lengths[run]} are in the steps frame: pass all "
            "steps of the runs, or only the runs of these steps, runs[runs['run_id'].isin(steps['run_id'])]."
        )
    ids, goal = [] if histories is None else about["run_id"].tolist(), _finished_at(kept, about, start, reason)
    by_place = None if histories is None else (lambda run: histories(ids[run]))
    return Records(about, start, kept, own, short, more, reason, goal, by_place)


def _is_in_order(run: Ints, number: Ints) -> bool:
    """True if the rows are run after run, each with its steps from 1 on."""
    follows = (run[1:] == run[:-1]) & (number[1:] == number[:-1] + 1)
    return bool((number[:1] == 1).all() and (follows | ((run[1:] > run[:-1]) & (number[1:] == 1))).all())


def _about(steps: pd.DataFrame, runs: pd.DataFrame | None, codes: Ints) -> pd.DataFrame:
    """Return one row per run. `codes` number the runs of the steps in the order of their first rows."""
    kept = [name for name in ("run_id", "provider", "model") if name in steps.columns]
    if runs is None:
        of_frame = [name for name in ("agent", "prompt_id", "settings", "repeat", "score") if name in steps.columns]
        firsts = np.empty(codes.max(initial=-1) + 1, np.int64)
        firsts[codes[::-1]] = np.arange(len(codes))[::-1]  # of several rows of a run, the one assigned last counts
        return steps[kept + of_frame].iloc[firsts].reset_index(drop=True)
    if "run_id" not in runs.columns:
        raise ConfigurationError("The runs have no column 'run_id': pass the frame of lab.frame(results, 'runs').")
    there = groups.outermost(groups.each_once(runs[runs["run_id"].notna()]))
    if "state" in there.columns:
        there = there[~there["state"].astype("string").eq("not_started").fillna(False)]
    return there.reset_index(drop=True)


def _last(steps: pd.DataFrame, name: str, start: Ints) -> npt.NDArray[np.object_]:
    """Return the value of a column in the last row of each run; None if the value is NA or the run has no row."""
    found = np.full(len(start) - 1, None, dtype=object)
    there = np.diff(start) > 0
    if name in steps.columns:
        found[there] = _objects(steps[name].array.take(start[1:][there] - 1))
    return found


def _last_number(steps: pd.DataFrame, name: str, start: Ints) -> Floats:
    """Return the same for numbers and booleans of any dtype, with NaN for None."""
    found = np.full(len(start) - 1, np.nan)
    there = np.diff(start) > 0
    if name in steps.columns:
        found[there] = groups.as_floats(steps[name].take(start[1:][there] - 1))
    return found


def _ends(steps: pd.DataFrame, about: pd.DataFrame, start: Ints) -> tuple[Bools, Bools, Bools, npt.NDArray[np.object_]]:
    """Return for each run: whether it finished on its own, whether its last step was cut off, whether that was before a further call,
    and why it ended. An answer that ends a run takes precedence over a stop by a person, or a condition that raised, at the same
    step. A last answer (`Budget(last_answer=…)`) counts as cut off."""
    reason, action, error = (_last(steps, name, start) for name in ("stop_reason", "action", "error"))
    if "stop_reason" in about.columns:
        reason = np.where(reason == None, _objects(about["stop_reason"].array), reason)  # noqa: E711  element by element
    aborted = action == "abort"
    by_tool = (reason == StopReason.EXPLICIT_STOP) & _is_true(about, "terminated")
    own: Bools = _is_one_of(reason, OWN_ENDS) | by_tool
    own |= (reason == StopReason.ERROR) & (aborted | (np.diff(start) == 0))
    completed = (action == "complete") & ~own
    own |= completed
    last_answer = _last_number(steps, "last_answer", start) == 1
    own, completed = own & ~last_answer, completed & ~last_answer  # under other limits, that step would have been another one
    reason = np.where(completed, str(StopReason.COMPLETED), reason)
    short: Bools = ~own & (aborted | (error != None))  # noqa: E711
    by_time = _is_one_of(reason, (StopReason.TIMEOUT, StopReason.CANCELLED, StopReason.EXPLICIT_STOP))
    short |= last_answer
    more: Bools = short & aborted & ~by_time & ~last_answer
    calls = _last_number(steps, "calls", start)
    failed = error != None  # noqa: E711
    failed[failed] = [isinstance(one, str) and not one.startswith("MissingUsageError") for one in error[failed]]
    more |= (reason == StopReason.ERROR) & aborted & (calls > 0) & failed  # the further call failed
    return own, short, more, reason


def _is_one_of(values: npt.NDArray[np.object_], words: Iterable[str]) -> Bools:
    return pd.Series(values, dtype=object).isin([str(word) for word in words]).to_numpy(dtype=bool)


def _objects(values: Any) -> npt.NDArray[np.object_]:
    """Return the values with None for NA."""
    codes, different = values.factorize()  # the code of NA is -1
    found: npt.NDArray[np.object_] = np.array([*different, None], dtype=object)[codes]
    return found


def _is_true(about: pd.DataFrame, name: str) -> Bools:
    found: Bools = groups.floats(about, name) == 1
    return found


def _finished_at(steps: pd.DataFrame, about: pd.DataFrame, start: Ints, reason: Any) -> Ints:
    """Return the last row of the runs whose agent finished on its own; the length of all others."""
    lengths = np.diff(start)
    if "terminated" in about.columns:
        done = _is_true(about, "terminated") | (reason == StopReason.COMPLETED)
    else:
        done = _is_one_of(reason, (StopReason.COMPLETED, StopReason.TERMINATING_TOOL))
        for name in [name for name in map(str, steps.columns) if name.startswith("HasToolCall") and name.endswith(".met")]:
            done = done | (reason == StopReason.STOP_CONDITION) & (_last_number(steps, name, start) == 1)
    return np.where(done, np.maximum(lengths - 1, 0), lengths)


Recorded: TypeAlias = Any
"""A steps frame, a Store, results of an experiment or an import (anything with the frames `steps` and `runs`), a result, a run, or
several of these."""

MAX_LOADED_RUNS = 4_096
"""Maximum number of loaded runs of a store in memory."""


def records_of(recorded: Recorded, runs: pd.DataFrame | None = None) -> Records:
    """Return the records of these runs. For a steps frame, `runs` has further columns. Raises ConfigurationError for anything else."""
    found = _records_of(recorded, runs)
    if not len(found):
        raise ConfigurationError("The argument has no runs: record some first, or pass a frame with runs.")
    return found


def _records_of(recorded: Recorded, runs: pd.DataFrame | None) -> Records:
    if isinstance(recorded, pd.DataFrame):
        return from_frames(recorded, runs)
    if runs is not None:
        raise ConfigurationError("runs=… can only be passed with a steps frame; a store and results have their runs already.")
    if isinstance(recorded, Store):
        return from_frames(recorded.frame("steps"), recorded.frame("runs"), _loading(recorded))
    if isinstance(recorded, Lockstep):
        recorded = recorded.runs
    if isinstance(recorded, RunResult | Run):
        return _records_of_results([recorded])
    steps, of_runs = getattr(recorded, "steps", None), getattr(recorded, "runs", None)
    if isinstance(steps, pd.DataFrame) and isinstance(of_runs, pd.DataFrame):
        return from_frames(steps, of_runs, _loading(recorded.store) if hasattr(recorded, "store") else None)
    if isinstance(recorded, Iterable) and not isinstance(recorded, str | bytes):
        several = list(recorded)
        if all(isinstance(one, RunResult | Run) for one in several):
            return _records_of_results(several)
    shown = f"A {type(recorded).__name__}" if isinstance(recorded, pd.Series | list | tuple | dict) else one_line(repr(recorded))
    raise ConfigurationError(
        f"{shown} is not a record of runs: pass a steps frame, a store, results of an experiment, or a list of results."
    )


def _records_of_results(results: list[RunResult | Run]) -> Records:
    histories = {(one.id if isinstance(one, Run) else one.run_id): one.history for one in results}
    if len(histories) < len(results):
        raise ConfigurationError("The same run occurs twice: pass each run once.")
    return from_frames(to_frame(results), to_frame(results, "runs"), histories.__getitem__)


def _loading(store: Store) -> Callable[[str], RunHistory]:
    @functools.lru_cache(maxsize=MAX_LOADED_RUNS)
    def history(run_id: str) -> RunHistory:
        return store.load(run_id).history

    return history
