"""Recorded runs as arrays: a row a step, run behind run, with what was used up to there.

What a steps frame leaves open, the calls inside a step of several, is read off the runs themselves where there are any.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from agentlab.errors import ConfigurationError
from agentlab.history import RunHistory, add_cost, add_usage
from agentlab.limits import no_such
from agentlab.types import StopReason
from agentlab.whatif.first_met import running_maximum

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

OWN_ENDS = frozenset({
    StopReason.COMPLETED, StopReason.TERMINATING_TOOL, StopReason.TRUNCATED, StopReason.CONTENT_FILTERED,
    StopReason.NUDGES_EXHAUSTED,
})  # fmt: skip
"""Ends that a run comes to whatever its limits are. An error is one where it came from a response, see `_own_ends`."""

USED = ("tokens", "cost_usd", "calls", "time_s")
"""What a run uses, each a running total of rising values."""


@dataclass(frozen=True)
class Records:
    """Runs as arrays. Row `start[r] + i` is step i + 1 of run r; a run may have none.

    `used` are running totals as far as known, sub-agents included: what limits are compared with. `totals` are the same where all of
    it is known, else NaN: what a run cost. `own_end`: the run came to an end of its own. `cut_short`: its last step was broken off.
    `wanted_more`: it ended at a further call, that was not made or came to nothing. `goal`: the row at which the run had reached what
    it was for.
    """

    about: pd.DataFrame
    """A row a run: `run_id` and whatever else is known of it."""
    start: Ints
    steps: pd.DataFrame
    """A row a step, run behind run."""
    own_end: Bools
    cut_short: Bools
    wanted_more: Bools
    reason: npt.NDArray[np.object_]
    """Why each run ended; None where it has not."""
    goal: Ints
    histories: Callable[[int], RunHistory] | None = field(default=None, repr=False)
    """The history of run r, where there is more than frames."""

    @functools.cached_property
    def lengths(self) -> Ints:
        """Steps of each run."""
        return np.diff(self.start)

    @functools.cached_property
    def longest(self) -> int:
        """Steps of the longest run."""
        return int(self.lengths.max(initial=0))

    @functools.cached_property
    def run(self) -> Ints:
        """The run of each row."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, first: int, last: int) -> Records:
        """The runs from the place `first` to `last`, without it."""
        rows = slice(int(self.start[first]), int(self.start[last]))
        runs, histories = slice(first, last), self.histories
        return Records(
            self.about.iloc[runs].reset_index(drop=True),
            self.start[first : last + 1] - self.start[first],
            self.steps.iloc[rows].reset_index(drop=True),
            self.own_end[runs],
            self.cut_short[runs],
            self.wanted_more[runs],
            self.reason[runs],
            self.goal[runs],
            None if histories is None else (lambda run: histories(first + run)),
        )

    def column(self, name: str, needed_by: str) -> pd.Series[Any]:
        """A column of the steps. Raises ConfigurationError where there is none."""
        if name not in self.steps.columns:
            raise ConfigurationError(
                f"The steps have no column {name!r}, which {needed_by} needs: pass a frame such as lab.frame(results) gives, a "
                "store, or the results themselves."
            )
        return self.steps[name]

    def with_columns(self, names: Sequence[str], option: str) -> pd.DataFrame:
        """`about` with these columns, which may also be columns of the steps that are the same in all steps of a run.

        Raises ConfigurationError for a column that is in neither, or that changes within a run; `option` is what asked for it.
        """
        about = self.about
        for name in [name for name in names if name not in about.columns]:
            if name not in self.steps.columns:
                raise ConfigurationError(f"{option}={name!r}: {no_such('column', name, [str(one) for one in about.columns])}")
            changes = self.steps[name].groupby(self.run).nunique(dropna=False) > 1
            if changes.any():
                run = about["run_id"].iloc[int(changes.index[changes.to_numpy()][0])]
                raise ConfigurationError(
                    f"{option}={name!r}: it changes from step to step in run {run!r}. Take a column that says the same in all steps of "
                    "a run, or pass runs=… with a row a run."
                )
            there = np.flatnonzero(self.lengths)
            firsts = self.steps[name].iloc[self.start[:-1][there]].set_axis(there)
            about = about.assign(**{name: firsts.reindex(range(len(self)))})
        return about

    @functools.cached_property
    def used(self) -> Mapping[str, Floats]:
        """Running totals as far as known, by the names of USED, made when they are first asked for."""
        return _Made({name: functools.partial(_used, self, name) for name in USED})

    @functools.cached_property
    def totals(self) -> Mapping[str, Floats]:
        """Running totals, NaN where a part is unknown."""
        return _Made({name: functools.partial(_total, self, name) for name in USED})

    @functools.cached_property
    def at_stop(self) -> Mapping[str, Floats]:
        """`totals` with two more places: 0 for a run that took no step, NaN for one of which it is not known where it stops."""
        return _Made({name: functools.partial(self._with_ends, name) for name in USED})

    def _with_ends(self, name: str) -> Floats:
        return np.concatenate([self.totals[name], [0.0, np.nan]])

    @functools.cached_property
    def several_calls(self) -> Bools:
        """Whether a step may have been broken off before a further call: it has several, sub-agents', or wanted one more."""
        calls = numbers(self.steps, "calls").fillna(1).to_numpy() > 1
        children = numbers(self.steps, "child_calls").fillna(0).to_numpy() > 0
        found: Bools = calls | children
        found[self.start[1:][self.wanted_more] - 1] = True
        return found

    @functools.cached_property
    def inside(self) -> Mapping[int, list[Behind]]:
        """What was used behind each call of the steps of several, by row: known where the runs themselves are there."""
        if self.histories is None:
            return {}
        found = {}
        for row in np.flatnonzero(self.several_calls):
            found[int(row)] = list(calls_inside(self.histories(int(self.run[row])), int(row - self.start[self.run[row]])))
        return found


class _Made(Mapping[str, Any]):
    """A mapping whose values are made when they are first asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers, self._made = makers, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass(frozen=True, slots=True)
class Behind:
    """What a run had used behind one of a step's calls, by the names of USED: as far as known, and NaN where a part is unknown; and the
    tokens that the call said."""

    used: dict[str, float]
    totals: dict[str, float]
    said: int


def calls_inside(history: RunHistory, place: int) -> Iterator[Behind]:
    """What a run had used behind each call of a step."""
    so_far = history.prefix(place)
    used_tokens, used_cost, calls = so_far.known_tokens, so_far.known_cost_usd, so_far.calls
    usage, cost = so_far.usage, so_far.cost
    for call in history[place].calls:
        usage, cost = add_usage(usage, call.usage), add_cost(cost, call.cost)
        used_tokens += call.usage.known_tokens
        used_cost += call.cost.usd or 0
        calls += 1
        same = {"calls": float(calls), "time_s": call.started_s + call.duration_s}
        tokens = np.nan if usage.total_tokens is None else float(usage.total_tokens)
        totals = {"tokens": tokens, "cost_usd": np.nan if cost.usd is None else float(cost.usd), **same}
        yield Behind({"tokens": float(used_tokens), "cost_usd": float(used_cost), **same}, totals, call.usage.output_tokens or 0)


def numbers(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """A column as floats, NaN where it is NA or missing."""
    if name not in frame.columns:
        return pd.Series(np.nan, index=frame.index, dtype=float)
    return pd.to_numeric(frame[name], errors="coerce").astype("Float64").astype(float)


# Running totals ------------------------------------------------------------------------------------------------------------------

_KNOWN = {"tokens": "known_tokens", "cost_usd": "known_cost_usd"}
_CUMULATIVE = {"tokens": "cumulative_tokens", "cost_usd": "cumulative_cost_usd"}
_OWN = {"tokens": "total_tokens", "cost_usd": "cost_usd", "calls": "calls"}
_CHILDREN = {"tokens": "child_tokens", "cost_usd": "child_cost_usd", "calls": "child_calls"}
_CENT_PARTS = 12
"""Digits behind the point that sums of money keep, so that adding floats in another order changes nothing."""


def _used(records: Records, name: str) -> Floats:
    steps, start = records.steps, records.start
    if name == "time_s":
        return running_maximum(_elapsed(records), start)
    known = numbers(steps, _KNOWN.get(name, "")) if name in _KNOWN else pd.Series(np.nan, index=steps.index)
    if known.isna().any():
        known = known.fillna(pd.Series(_summed(records, _a_step(records, name).fillna(0.0).to_numpy()), index=steps.index))
    return running_maximum(known.to_numpy(dtype=float), start)


def _total(records: Records, name: str) -> Floats:
    """Running totals; NaN throughout where the frame has no column for them, which only a limit on them has to have."""
    columns = records.steps.columns
    if not any(column in columns for column in (_CUMULATIVE.get(name), _OWN.get(name, "duration_s"))):
        return np.full(len(records.run), np.nan)
    if name in ("time_s", "calls"):
        return _elapsed(records) if name == "time_s" else records.used["calls"]
    if _CUMULATIVE[name] in records.steps.columns:
        return numbers(records.steps, _CUMULATIVE[name]).to_numpy(dtype=float)
    return _summed(records, _a_step(records, name, whole=True).to_numpy())


def _a_step(records: Records, name: str, *, whole: bool = False) -> pd.Series[Any]:
    """What each step used; unless it has to be the whole, of tokens at least the part that is known."""
    own = numbers(records.steps, records.column(_OWN[name], f"a limit on {name}").name)  # type: ignore[arg-type]
    if name == "tokens" and not whole:
        own = own.fillna(numbers(records.steps, "input_tokens").fillna(0) + numbers(records.steps, "output_tokens").fillna(0))
    children = numbers(records.steps, _CHILDREN[name])
    return own + (children if whole and _CHILDREN[name] in records.steps.columns else children.fillna(0))


def _summed(records: Records, values: Floats) -> Floats:
    """Sums up to each row, run by run."""
    sums = pd.Series(values).groupby(records.run, sort=False).cumsum(skipna=False)
    return np.round(sums.to_numpy(dtype=float), _CENT_PARTS)


def _elapsed(records: Records) -> Floats:
    took = numbers(records.steps, records.column("duration_s", "a limit on time").name)  # type: ignore[arg-type]
    if "started_s" in records.steps.columns:
        return (numbers(records.steps, "started_s") + took).to_numpy(dtype=float)
    return _summed(records, took.to_numpy(dtype=float))


# From frames ---------------------------------------------------------------------------------------------------------------------


def from_frames(
    steps: pd.DataFrame, runs: pd.DataFrame | None = None, histories: Callable[[str], RunHistory] | None = None
) -> Records:
    """Records of a steps frame; `runs`, a row a run, says more of them, and which there are that took no step.

    `histories` gives a run's history by its id. Errors: ConfigurationError where columns are missing, or rows.
    """
    for name in ("run_id", "step"):
        if name not in steps.columns:
            raise ConfigurationError(f"The steps have no column {name!r}: pass a frame such as lab.frame(results) gives.")
    if steps["run_id"].isna().any() or steps["step"].isna().any():
        raise ConfigurationError("The steps have rows whose run_id or step is NA: leave them out, steps.dropna(subset=[…]).")
    about = _about(steps, runs)
    place = pd.Series(range(len(about)), index=about["run_id"])
    run = place.reindex(steps["run_id"]).to_numpy()
    known = ~np.isnan(run.astype(float))
    run, kept = run[known].astype(np.int64), steps[known]
    number = kept["step"].to_numpy(dtype=np.int64)
    order = np.lexsort((number, run))
    if not np.array_equal(order, np.arange(len(order))):
        run, number, kept = run[order], number[order], kept.iloc[order]
    kept = kept.reset_index(drop=True)
    lengths = np.bincount(run, minlength=len(about))
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    wrong = number != np.arange(len(number)) - np.repeat(start[:-1], lengths) + 1
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        expected = row - int(start[run[row]]) + 1
        raise ConfigurationError(
            f"Run {about['run_id'].iloc[run[row]]!r} has step {number[row]} where step {expected} was expected: pass all steps of a "
            "run, each once. Of several stores or experiments, pass the frames one by one."
        )
    own, short, more, reason = _ends(kept, about, start)
    return Records(
        about,
        start,
        kept,
        own,
        short,
        more,
        reason,
        _reached_by_itself(kept, about, start, reason),
        None if histories is None else _by_place(about["run_id"].tolist(), histories),
    )


def _by_place(ids: list[str], histories: Callable[[str], RunHistory]) -> Callable[[int], RunHistory]:
    return lambda run: histories(ids[run])


def _about(steps: pd.DataFrame, runs: pd.DataFrame | None) -> pd.DataFrame:
    kept = [name for name in ("run_id", "provider", "model") if name in steps.columns]
    if runs is None:
        of_frame = [name for name in ("agent", "prompt_id", "settings", "repeat", "score") if name in steps.columns]
        return steps[kept + of_frame].drop_duplicates("run_id", ignore_index=True)
    if "run_id" not in runs.columns:
        raise ConfigurationError("The runs have no column 'run_id': pass a frame such as lab.frame(results, 'runs') gives.")
    there = runs[runs["run_id"].notna()].reset_index(drop=True)
    if there["run_id"].duplicated().any():
        twice = there["run_id"][there["run_id"].duplicated()].iloc[0]
        raise ConfigurationError(f"Run {twice!r} is there twice: pass each run once.")
    return there


def _last(steps: pd.DataFrame, name: str, start: Ints) -> npt.NDArray[np.object_]:
    """A column's value in the last row of each run; None where it is NA, or the run has no row."""
    found = np.full(len(start) - 1, None, dtype=object)
    there = np.diff(start) > 0
    if name in steps.columns:
        values = steps[name].astype(object).to_numpy()[start[1:][there] - 1]
        found[there] = [None if pd.isna(value) else value for value in values]
    return found


def _ends(steps: pd.DataFrame, about: pd.DataFrame, start: Ints) -> tuple[Bools, Bools, Bools, npt.NDArray[np.object_]]:
    """Of each run whether it came to an end of its own, whether its last step was broken off, whether before a further call, and why it
    ended. An answer that ends a run does so whatever a person, or a condition that raised, did at the same step."""
    reason, action, error = (_last(steps, name, start) for name in ("stop_reason", "action", "error"))
    of_runs = _of_runs(about, "stop_reason")
    reason = np.where(reason == None, of_runs, reason)  # noqa: E711  element by element
    aborted = action == "abort"
    by_tool = (reason == StopReason.EXPLICIT_STOP) & (_of_runs(about, "terminated") == True)  # noqa: E712
    own: Bools = np.isin(reason.astype(str), [str(one) for one in OWN_ENDS]) | by_tool
    own |= (reason == StopReason.ERROR) & (aborted | (np.diff(start) == 0))
    completed = (action == "complete") & ~own
    own |= completed
    reason = np.where(completed, str(StopReason.COMPLETED), reason)
    short: Bools = ~own & (aborted | (error != None))  # noqa: E711
    by_time = np.isin(reason.astype(str), [StopReason.TIMEOUT, StopReason.CANCELLED, StopReason.EXPLICIT_STOP])
    more: Bools = short & aborted & ~by_time
    calls = np.array([call or 0 for call in _last(steps, "calls", start)] or [0])[: len(reason)]
    failed = np.array([isinstance(one, str) and not one.startswith("MissingUsageError") for one in error] or [False])[
        : len(reason)
    ]
    more |= (reason == StopReason.ERROR) & aborted & (calls > 0) & failed  # the further call is what failed
    return own, short, more, reason


def _of_runs(about: pd.DataFrame, name: str) -> npt.NDArray[np.object_]:
    values: Sequence[Any] = about[name].tolist() if name in about.columns else [None] * len(about)
    return np.array([None if value is None or pd.isna(value) else value for value in values] or [None], dtype=object)[
        : len(about)
    ]


def _reached_by_itself(steps: pd.DataFrame, about: pd.DataFrame, start: Ints, reason: Any) -> Ints:
    """The last row of the runs whose agent came to an end of its own; the number of rows where it did not."""
    lengths = np.diff(start)
    if "terminated" in about.columns:
        done = (_of_runs(about, "terminated") == True) | (reason == StopReason.COMPLETED)  # noqa: E712
    else:
        done = np.isin(reason.astype(str), [StopReason.COMPLETED, StopReason.TERMINATING_TOOL])
        for name in [name for name in steps.columns if name.startswith("HasToolCall") and name.endswith(".met")]:
            done |= (reason == StopReason.STOP_CONDITION) & (_last(steps, name, start) == True)  # noqa: E712
    return np.where(done, np.maximum(lengths - 1, 0), lengths)
