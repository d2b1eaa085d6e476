"""Backtests: stop conditions and budgets replayed over recorded runs, at no token cost.

    lab.backtest(results, StepCountIs([2, 4, 8]) | MaxCost([0.01, 0.05]))        one row per configuration: six
    lab.backtest(steps, budget={"max_tokens": range(1_000, 20_000, 1_000)})      a steps frame is enough
    lab.backtest(store, {"short": StepCountIs(2), "long": None}, per="run")      one row per run and configuration

A stop before the end of the record is exact, since the run is the same up to that step. A run that would have continued after the end
of its record is `unknown`, never guessed; a run that finished on its own is `finished`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from agentlab._internal.redaction import redact
from agentlab.analysis.conditions import First, latches, reading_name
from agentlab.analysis.grids import Conditions, Grid, Limits, grids, plain_value
from agentlab.analysis.groups import columns_of, in_order, names_of
from agentlab.analysis.intervals import (
    EVEN_UNITS,
    FEW,
    MEAN_UNITS,
    MIN_UNITS,
    checked_level,
    mean_ends,
    normal,
    share_ends,
    student,
)
from agentlab.analysis.records import Bools, Floats, Ints, Records, numbers, reordered, units_of
from agentlab.analysis.simulate import FINISHED, OUTCOMES, STOPPED, UNKNOWN, Judge, Verdict
from agentlab.analysis.sources import Recorded, records_of
from agentlab.errors import ConfigurationError
from agentlab.limits.combinators import StopCondition, as_condition
from agentlab.model.finish_reasons import StopReason

Words = npt.NDArray[np.object_]


def backtest(
    recorded: Recorded,
    conditions: Conditions = None,
    *,
    budget: Limits = None,
    goal: Goal = None,
    per: Literal["configuration", "run"] = "configuration",
    by: str | Sequence[str] | None = None,
    runs: pd.DataFrame | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Return where each recorded run would have stopped under other conditions and budgets, its cost and its success.

    recorded    a steps frame, a Store, results of an experiment, a result, a run, or a list of these. A frame is not enough for your
                own conditions (unless they declare a `total`) and for steps of several calls
    conditions  a stop condition as for a run, in which a list in a parameter is an axis of a grid; a list of conditions, or a dict by
                name, for several grids
    budget      a Budget, or a dict of its limits in which a list is an axis: max_turns, max_calls, max_tokens, max_cost, timeout.
                The limits of the recorded runs are ignored. With last_answer, runs stop one step later, with unknown usage: the
                answer is not in the record
    goal        the definition of success, see below. None: the agent finished on its own
    per         `configuration`: one row per configuration; `run`: one row per configuration and run
    by          column or columns that group the runs, such as `provider`
    runs        with a steps frame, its runs frame: more columns for `goal` and `by`, and runs that took no step
    level       the confidence level of the intervals

    With `per="run"`, each row has the configuration (`configuration`, and a column for each axis), the ids of the run, and

    - `outcome`: `stopped` at `step`; `finished`, on its own before the limits; `unknown`, the record ends before they are met
    - `stop_reason` as a run would give it, and what `fired`: the conditions that were met, or the limit
    - `goal_reached`, `tokens`, `cost_usd`, `calls`, `time_s` up to there; and `tokens_saved` etc., compared with the record

    With `per="configuration"`, each row counts `runs`, independent `units`, and the runs that are `stopped`, `finished` and `unknown`,
    with `unknown_share`. `success_rate` is over the runs whose success is known, with its interval; `success_at_least` and
    `success_at_most` are over all runs, as if the others had failed or succeeded. `step`, `tokens`, `cost`, `calls` and `time` have
    the mean of the known values with its interval, the unknown share, and the amount `saved` per run.

    The means are over the runs whose end is known, which are mostly the short ones: if `unknown_share` is above 0, do not compare the
    means with those of other rows. `saved` compares the same runs: their mean in the record is `cost_mean` + `cost_saved`.

    Repeats of a prompt and replays of a recording are not independent. A unit is a prompt (`prompt_id`, else `prompt`) with all runs
    that share a `recording_id` with it. If all runs are of one prompt, units are recordings, or the runs themselves, and the intervals
    hold for that prompt only. They are computed as in `lab.summary`; NA for fewer than 5 units, of a mean for
    fewer than 10, and if all values are the same.

    `goal` is a condition or a function of the history (reached when it is first met), the name of a column of the runs such as
    `score`, or a dict or Series by run id (reached at the run's end if the value is at least 1). A run that ended in an error before
    these limits is `finished`, and has not reached its goal unless a condition says so; without a score it counts as failed.

    NA means unknown, never 0. Money is in US dollars. Errors: ConfigurationError for conditions and limits that cannot be tried,
    LimitError for an invalid limit.

    Example:
        >>> tried = lab.backtest([result, *others], lab.HasToolCall("finalize") | lab.StepCountIs([2, 4, 8]))
        >>> tried[["StepCountIs", "success_rate", "tokens_mean", "tokens_saved"]]
           StepCountIs  success_rate  tokens_mean  tokens_saved
        0            2           0.0   852.333333   1344.333333
        1            4      0.666667  2010.666667         186.0
        2            8           1.0  2196.666667           0.0
    """
    if per not in ("configuration", "run"):
        raise ConfigurationError(f"per={per!r}: choose 'configuration' or 'run'.")
    groups, level = ([] if by is None else columns_of(by)), checked_level(level)
    tried = grids(conditions, budget)
    records = records_of(recorded, runs)
    units = None
    if per == "configuration" and (units := units_of(records.about).codes) is not None:
        order = np.argsort(units, kind="stable")
        records, units = reordered(records, order), units[order]
    reached, is_open = goal_reached(records, goal)
    task = Task(records, tried, reached, is_open, units)
    return of_runs(task, groups) if per == "run" else of_configurations(task, groups, level=level)


# Outcomes as frames: why each run would end, what fired, and figures per configuration --------------------------------------------


def why_ended(judge: Judge, verdict: Verdict) -> tuple[Words, Words]:
    """Return the stop reason of each run (None: unknown), and the parts of the condition or the limit that fired. A condition takes
    precedence over the budget, as in a run."""
    records, row, found = judge.records, verdict.row, verdict.found
    cuts, tree = found.cuts, found.tree
    stopped, finished = verdict.outcome == STOPPED, verdict.outcome == FINISHED
    reason, fired = np.full(len(records), None, dtype=object), np.full(len(records), "", dtype=object)
    for place, limit in enumerate(found.limits):
        here = stopped & (limit.first == row) & (cuts.by == place)
        reason[here], fired[here] = str(limit.reason), limit.name
    several = np.sum([limit.first == row for limit in found.limits], axis=0) > 1 if found.limits else np.zeros(len(records), bool)
    one_of_them = stopped & cuts.unsure & ~cuts.is_cut & several  # a frame does not show which was met first
    reason[one_of_them], fired[one_of_them] = None, ""
    if tree is not None:
        met = stopped & (found.met == row)
        reason[met & ~cuts.is_cut] = str(StopReason.STOP_CONDITION)
        where = (met | (finished & (found.met == row))) & ~cuts.is_cut & (found.raised > row)
        if where.any():
            fired[where] = _names_of_parts(judge, tree, row, where)[where]
        unclear = stopped & (cuts.is_cut | cuts.unsure) & (met | (not latches(tree)))
        reason[unclear], fired[unclear] = None, ""  # a frame does not show whether the rest of the step met it
        for run, readings in judge.read_cut_steps(tree, found, row, stopped).items():
            limit = found.limits[int(cuts.by[run])]
            reason[run] = str(StopReason.ERROR if readings is None else StopReason.STOP_CONDITION if readings else limit.reason)
            fired[run] = "" if readings is None else ", ".join(map(reading_name, readings)) or limit.name
    failed = stopped & (found.raised == row) & ~cuts.is_cut
    reason[failed], fired[failed] = str(StopReason.ERROR), ""
    reason[finished] = records.reason[finished]
    return reason, fired


def _names_of_parts(judge: Judge, tree: StopCondition, row: First, where: Bools) -> Words:
    """Return the names of the parts that caused a condition to be met, as a run reports them."""
    names = np.full(len(where), "", dtype=object)
    for name, decides in judge.deciding(tree, row, where):
        names = np.where(decides, np.where(names == "", name, names + ", " + name), names)
    return names


Goal: TypeAlias = Any
"""None: the agent finished on its own. A stop condition or a function of the history: reached when it is first met. The name of
a column of the runs, such as `score`, or a dict or Series of values by run id: reached at the run's end if it is at least 1."""


def goal_reached(records: Records, goal: Goal) -> tuple[First, Bools]:
    """Return the row at which each run reached its goal (the run's length: never), and True for runs where that is unknown."""
    known = np.zeros(len(records), bool)
    if goal is None:
        return records.goal, known
    if isinstance(goal, str):
        return _by_scores(records, records.with_columns([goal], "goal")[goal])
    if isinstance(goal, Mapping | pd.Series):
        return _by_scores(records, records.about["run_id"].map(dict(goal)))
    tree = as_condition(goal)
    whole = Grid("", tree, {}, ())
    return Judge(records, [whole]).first(whole, ()).astype(np.int64), known


def _by_scores(records: Records, values: pd.Series[Any]) -> tuple[First, Bools]:
    name = str(values.name)
    scores = numbers(values.to_frame(name), name).to_numpy()
    done = np.where(np.isnan(scores), False, scores >= 1)
    failed = records.reason.astype(str) == str(StopReason.ERROR)  # has no result to score
    return np.where(done, np.maximum(records.lengths - 1, 0), records.lengths), np.isnan(scores) & ~failed


MAX_FIRST_ROWS = 32_000_000
"""Maximum number of first rows in memory: runs times values of axes."""

MAX_RUNS_PER_PART = 10_000
"""Maximum number of runs per part. Their usage then stays in the processor's cache from one configuration to the next."""

MAX_ROWS = 5_000_000
"""Maximum number of rows of a frame."""

ABOUT = ("agent", "prompt_id", "settings", "repeat", "run_id", "provider", "model")
"""The first columns of a run, if known."""

OF_A_RUN = ("outcome", "step", "stop_reason", "fired", "goal_reached", "tokens", "cost_usd", "calls", "time_s")
"""The columns of a run under a configuration."""

FIGURES = {"tokens": "tokens", "cost_usd": "cost", "calls": "calls", "time_s": "time"}
"""The running totals, and the prefix of their columns."""


@dataclass(frozen=True)
class Task:
    """Grids over runs, and the goal of the runs."""

    records: Records
    grids: Sequence[Grid]
    goal: First
    goal_open: Bools
    units: Ints | None = None
    """The independent unit of each run, in rising order; None if each run is one."""

    def parts(self) -> Iterator[tuple[slice, Judge]]:
        """Yield the runs in parts, which bounds the memory; a unit is never divided."""
        values = 1 + sum(len(axis.values) for grid in self.grids for axis in grid.axes)
        at_once = max(1_000, min(MAX_RUNS_PER_PART, MAX_FIRST_ROWS // values))
        if len(self.records) <= at_once + at_once // 2:
            yield slice(0, len(self.records)), Judge(self.records, self.grids, self.goal, self.goal_open)
            return
        ends = np.arange(1, len(self.records) + 1)
        if self.units is not None:
            ends = ends[np.append(np.diff(self.units) > 0, True)]
        last = 0
        while last < len(self.records):
            next_end, furthest = np.searchsorted(ends, [last, last + at_once], "right")
            first, last = last, int(ends[max(next_end, furthest - 1)])
            runs = slice(first, last)
            part = self.records.part(runs.start, runs.stop)
            yield runs, Judge(part, self.grids, self.goal[runs], self.goal_open[runs])

    def configurations(self) -> Iterator[tuple[Grid, tuple[int, ...]]]:
        """Yield all configurations in order."""
        for grid in self.grids:
            for point in grid.points():
                yield grid, point

    @functools.cached_property
    def size(self) -> int:
        """The number of configurations."""
        return sum(grid.size for grid in self.grids)

    def named(self) -> dict[str, Any]:
        """Return the columns that identify a configuration: `configuration`, and one per axis."""
        axes = dict.fromkeys(axis.name for grid in self.grids for axis in grid.axes)
        columns: dict[str, list[Any]] = {"configuration": [], **{name: [] for name in axes}}
        for number, (grid, point) in enumerate(self.configurations()):
            columns["configuration"].append(grid.name or number)
            chosen = {axis.name: plain_value(axis.values[place]) for axis, place in zip(grid.axes, point, strict=True)}
            for name in axes:
                columns[name].append(chosen.get(name))
        return {name: _narrow(values) for name, values in columns.items()}


def _narrow(values: list[Any]) -> Any:
    values = [redact(value) if isinstance(value, str) else value for value in values]
    return pd.Series(values, dtype=object).convert_dtypes().array


# One row per run ---------------------------------------------------------------------------------------------------------------


def of_runs(task: Task, also: Sequence[str] = ()) -> pd.DataFrame:
    """Return one row per configuration and run."""
    rows = task.size * len(task.records)
    if rows > MAX_ROWS:
        raise ConfigurationError(
            f"{task.size:,} configurations of {len(task.records):,} runs would give {rows:,} rows: leave out per='run' for one row per "
            "configuration, or try fewer configurations at a time."
        )
    about = task.records.with_columns(also, "by")
    named = task.named()
    last = {name: task.records.at_the_end(name) for name in FIGURES}
    _no_clash(also, {*named, *OF_A_RUN, *(f"{prefix}_saved" for prefix in FIGURES.values())})
    blocks: list[tuple[int, int, pd.DataFrame]] = []
    for runs, judge in task.parts():
        known = about.iloc[runs][[name for name in dict.fromkeys((*ABOUT, *also)) if name in about.columns]]
        for number, (grid, point) in enumerate(task.configurations()):
            verdict = judge.verdict(grid, point)
            saved = {
                f"{prefix}_saved": _floats(last[name][runs] - verdict.used[name], whole_numbers=prefix in {"tokens", "calls"})
                for name, prefix in FIGURES.items()
            }
            front = {name: values.take(np.full(len(known), number)) for name, values in named.items()}
            about_runs = {name: known[name].array for name in known.columns}
            blocks.append((number, runs.start, pd.DataFrame({**front, **about_runs, **_columns(judge, verdict), **saved})))
    blocks.sort(key=lambda block: block[:2])
    return pd.concat([block for *_, block in blocks], ignore_index=True)


def _columns(judge: Judge, verdict: Verdict) -> dict[str, Any]:
    reason, fired = why_ended(judge, verdict)
    redacted = {one: redact(one) for one in set(fired)}
    known = verdict.outcome != UNKNOWN
    step = np.where(judge.records.lengths > 0, verdict.row + 1 + verdict.answered, 0)
    return {
        "outcome": pd.array(np.array(OUTCOMES, dtype=object)[verdict.outcome], dtype="string"),
        "step": pd.arrays.IntegerArray(step.astype(np.int64), ~known),
        "stop_reason": pd.array([None if one is None else str(one) for one in reason], dtype="string"),
        "fired": pd.array([redacted[one] or None for one in fired], dtype="string"),
        "goal_reached": pd.arrays.BooleanArray(verdict.goal == 1, np.isnan(verdict.goal)),
        "tokens": _floats(verdict.used["tokens"], whole_numbers=True),
        "cost_usd": _floats(verdict.used["cost_usd"]),
        "calls": _floats(verdict.used["calls"], whole_numbers=True),
        "time_s": _floats(verdict.used["time_s"]),
    }


def _no_clash(by: Sequence[str], names: Set[str]) -> None:
    """Raise ConfigurationError if a column of the result would overwrite one of the runs."""
    for name in by:
        if name in names:
            raise ConfigurationError(
                f"by={name!r}: the result has a column of that name. Rename that of the runs: frame.rename(columns={{{name!r}: …}})."
            )


def _floats(values: Floats, *, whole_numbers: bool = False) -> Any:
    unknown = np.isnan(values)
    if whole_numbers:
        return pd.arrays.IntegerArray(np.where(unknown, 0, values).astype(np.int64), unknown)
    return pd.arrays.FloatingArray(np.where(unknown, 0.0, np.round(values, 12)), unknown)


# One row per configuration -----------------------------------------------------------------------------------------------------


def of_configurations(task: Task, by: Sequence[str] = (), *, level: float = 0.95) -> pd.DataFrame:
    """Return one row per configuration, or with `by` one row per configuration and group of runs."""
    groups, codes, front = _groups(task.records.with_columns(by, "by"), by)
    sums = Sums(task.size, groups)
    last = {name: task.records.at_the_end(name) for name in FIGURES}
    for runs, judge in task.parts():
        whole = {name: values[runs] for name, values in last.items()}
        cells = Cells(None if task.units is None else task.units[runs], codes[runs] if groups > 1 else None, groups)
        for number, (grid, point) in enumerate(task.configurations()):
            sums.add(number, judge.verdict(grid, point), whole, cells)
    named = {name: values.take(np.repeat(np.arange(task.size), groups)) for name, values in task.named().items()}
    front = {name: values.take(np.tile(np.arange(groups), task.size)) for name, values in front.items()}
    figures = sums.columns(level)
    _no_clash(by, {*named, *figures})
    return pd.DataFrame({**named, **front, **figures})


def _groups(about: pd.DataFrame, by: Sequence[str]) -> tuple[int, Any, dict[str, Any]]:
    if not by:
        return 1, np.zeros(len(about), int), {}
    names = names_of(about, list(by))
    order = in_order(names)
    firsts = about[~names.duplicated()]
    return len(order), names.map({name: place for place, name in enumerate(order)}).to_numpy(), {n: firsts[n].array for n in by}


class Cells:
    """The group and the independent unit of each run."""

    def __init__(self, units: Ints | None = None, groups: Ints | None = None, number: int = 1) -> None:
        self.groups, self._number = groups, number
        self.units: Ints | None = None
        if units is not None:
            local = np.unique(units, return_inverse=True)[1]
            self._wide = int(local.max(initial=0)) + 1
            self.units = local if groups is None else groups * self._wide + local
            self.runs = self.of_units(np.ones(len(local)))

    def of_units(self, values: Any) -> Floats:
        """Return the sum over each unit, one row per group."""
        assert self.units is not None  # noqa: S101  for the type checker
        sums: Floats = np.bincount(self.units, values.astype(float), self._number * self._wide).astype(float)
        return sums.reshape(self._number, self._wide)


ONE = Cells()
"""True if all runs are in one group and independent."""


class Sums:
    """Counts, sums and powers of the units' sums, by configuration and group."""

    def __init__(self, configurations: int, groups: int) -> None:
        self.shape = (configurations, groups)
        self._kept: dict[str, Floats] = {}

    def add(self, number: int, verdict: Verdict, whole: dict[str, Floats], cells: Cells = ONE) -> None:
        """Add some runs of a configuration."""
        outcome, codes = verdict.outcome, cells.groups
        counts = np.bincount(outcome, minlength=3) if codes is None else None
        every = np.ones(len(outcome))
        self._count("runs", number, len(outcome) if codes is None else every, codes)
        if cells.units is not None:
            self._add("units", number, (cells.runs > 0).sum(axis=1))
        for code, name in ((STOPPED, "stopped"), (FINISHED, "finished"), (UNKNOWN, "unknown")):
            self._count(name, number, outcome == code if counts is None else counts[code], codes)
        self._measure("goal", number, verdict.goal, cells, spread=cells.units is not None)
        step = verdict.row + 1.0 + verdict.answered
        step[outcome == UNKNOWN] = np.nan
        self._measure("step", number, step, cells)
        for name, values in verdict.used.items():
            self._measure(name, number, values, cells)
            self._measure(f"{name} saved", number, whole[name] - values, cells, spread=False)

    def _measure(self, name: str, number: int, values: Floats, cells: Cells, *, spread: bool = True) -> None:
        codes = cells.groups
        unknown = np.isnan(values)
        some = bool(unknown.any())
        filled = np.where(unknown, 0.0, values) if some else values
        if codes is None:
            self._count(f"{name} n", number, len(values) - int(np.count_nonzero(unknown)) if some else len(values), None)
            self._count(f"{name} sum", number, filled.sum(), None)
        else:
            self._count(f"{name} n", number, ~unknown, codes)
            self._count(f"{name} sum", number, filled, codes)
        if spread and cells.units is not None:
            s, n = cells.of_units(filled), cells.of_units(~unknown) if some else cells.runs
            ss, nn = s * s, n * n
            for power, product in zip(_POWERS, (n > 0, ss, s * n, nn, ss * s, ss * n, s * nn, nn * n), strict=True):
                self._add(f"{name} {power}", number, product.sum(axis=1))
        elif spread:
            squares = filled * filled
            self._count(f"{name} ss", number, squares.sum() if codes is None else squares, codes)
            self._count(f"{name} sss", number, squares.dot(filled) if codes is None else squares * filled, codes)

    def _count(self, name: str, number: int, values: Any, codes: Any | None) -> None:
        """Add one value per run to its group, or without groups the sum over all runs."""
        self._add(name, number, values if codes is None else np.bincount(codes, values, minlength=self.shape[1]))

    def _add(self, name: str, number: int, values: Any) -> None:
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = np.zeros(self.shape)
        kept[number] += values

    def first(self, configurations: int) -> Sums:
        """Return the sums of the first configurations."""
        found = Sums(configurations, self.shape[1])
        found._kept = {name: values[:configurations] for name, values in self._kept.items()}
        return found

    def columns(self, level: float) -> dict[str, Any]:
        """Return the columns of the frame."""
        flat = {name: values.ravel() for name, values in self._kept.items()}
        flat.setdefault("units", flat["runs"])
        names = ("runs", "units", "stopped", "finished", "unknown")
        found: dict[str, Any] = {name: pd.array(flat[name].astype(np.int64), dtype="Int64") for name in names}
        found["unknown_share"] = _floats(flat["unknown"] / flat["runs"])
        with np.errstate(all="ignore"):
            found["success_rate"] = _mean(flat, "goal")
            found["success_low"], found["success_high"] = share_interval(flat, level)
            found["success_at_least"] = _floats(flat["goal sum"] / flat["runs"])
            found["success_at_most"] = _floats(1 - (flat["goal n"] - flat["goal sum"]) / flat["runs"])
            found["success_unknown"] = _floats(1 - flat["goal n"] / flat["runs"])
            for name, prefix in {"step": "step", **FIGURES}.items():
                found[f"{prefix}_mean"] = _mean(flat, name)
                found[f"{prefix}_low"], found[f"{prefix}_high"] = _mean_interval(flat, name, level)
                if name != "step":
                    found[f"{prefix}_unknown"] = _floats(1 - flat[f"{name} n"] / flat["runs"])
                    found[f"{prefix}_saved"] = _mean(flat, f"{name} saved")
        return found


_POWERS = ("units", "ss", "sn", "nn", "sss", "ssn", "snn", "nnn")
"""Products of a unit's sum s and its number n of known runs, for the variance and the skewness between units."""


def _mean(flat: dict[str, Floats], name: str) -> Any:
    return _floats(flat[f"{name} sum"] / flat[f"{name} n"])


def _between(flat: dict[str, Floats], name: str) -> tuple[Floats, Floats, Floats]:
    """Return the number of units, and the sums of the squares and cubes of their errors: a unit's sum minus n times the mean."""
    n, total = flat[f"{name} n"], flat[f"{name} sum"]
    ss, sss = flat.get(f"{name} ss", total), flat.get(f"{name} sss", total)
    alone = {"units": n, "sn": total, "nn": n, "ssn": ss, "snn": total, "nnn": n}  # each run a unit: n is 1
    units, sn, nn, ssn, snn, nnn = (flat.get(f"{name} {power}", values) for power, values in alone.items())
    mean = total / n
    squares = ss - 2 * mean * sn + mean**2 * nn
    return units, np.where(squares > 1e-12 * ss, squares, 0.0), sss - 3 * mean * ssn + 3 * mean**2 * snn - mean**3 * nnn


def _mean_interval(flat: dict[str, Floats], name: str, level: float) -> tuple[Any, Any]:
    """Return the interval of a mean of values from 0 on, as `intervals.of_mean` computes it; NA if all units are the same."""
    n = flat[f"{name} n"]
    mean = flat[f"{name} sum"] / n
    units, squares, cubes = _between(flat, name)
    spread = np.sqrt(squares / (units - 1))
    worth = n * n / flat.get(f"{name} nn", n)
    skewness = units / ((units - 1) * (units - 2)) * cubes / spread**3
    low, high = mean_ends(mean, spread * np.sqrt(units) / n, skewness, worth, student(level, worth - 1), from_0=True)
    there, low = (units >= MEAN_UNITS) & (worth >= EVEN_UNITS) & (spread > 0), np.clip(low, 0.0, mean)
    return _floats(np.where(there, low, np.nan)), _floats(np.where(there, np.maximum(high, mean), np.nan))


def share_interval(flat: dict[str, Floats], level: float) -> tuple[Any, Any]:
    """Return the interval of the share that reached its goal, as `intervals.of_share` computes it."""
    n, total = flat["goal n"], flat["goal sum"]
    share, least, z = total / n, n * n / flat.get("goal nn", n), normal(level)
    units, squares, _ = _between(flat, "goal")
    alone, together = n * share * (1 - share) / (n - 1), squares / (units - 1) * units / n
    worth, student_z = n * alone / np.maximum(alone, together), student(level, least - 1)
    ss, sn, nn = (flat.get(f"goal {power}", values) for power, values in (("ss", total), ("sn", total), ("nn", n)))
    few = np.minimum(total**2 - FEW * ss, (n - total) ** 2 - FEW * (nn - 2 * sn + ss)) < 0  # units that reached it, or did not
    varied = (units < n) & (alone > 0) & ~few & (student_z**2 / worth < z**2 / least)
    low, high = share_ends(share, np.where(varied, worth * (z / student_z) ** 2, least), level)
    lacking = units < MIN_UNITS
    return _floats(np.where(lacking, np.nan, low)), _floats(np.where(lacking, np.nan, high))
