"""Backtests: stop conditions and budgets replayed over recorded runs, at no token cost.

    lab.backtest(results, StepCountIs([2, 4, 8]) | MaxCost([0.01, 0.05]))        one row per configuration: six
    lab.backtest(steps, budget={"max_tokens": range(1_000, 20_000, 1_000)})      a steps frame is enough
    lab.backtest(store, {"short": StepCountIs(2), "long": None}, per="run")      one row per run and configuration

A stop before the end of the record is exact, since the run is the same up to that step. A run that would have continued after the end
of its record is `unknown`, never guessed; a run that finished on its own is `finished`.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from agentlab._internal.redaction import redact
from agentlab.analysis.conditions import First, latches, reading_name
from agentlab.analysis.grids import Conditions, Grid, Limits, grids, plain_value
from agentlab.analysis.groups import as_floats, columns_of, in_order, names_of
from agentlab.analysis.intervals import POWERS, checked_level, mean_of_sums, share_of_sums
from agentlab.analysis.records import Bools, Floats, Ints, Records, Rows, reordered, units_of
from agentlab.analysis.simulate import FINISHED, MAX_FIRST_ROWS, OUTCOMES, STOPPED, UNKNOWN, Ends, Judge, Sweep, Verdict
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
                own conditions (unless they declare a `total`) and for steps of several calls. A sub-agent's run is a part of the run
                that called it, and a run that never began is left out
    conditions  a stop condition as for a run, in which a list in a parameter is an axis of a grid; a list of conditions, or a dict by
                name, for several grids. The recorded stop conditions do not apply: repeat those that should, as in the example
    budget      a Budget, or a dict of its limits in which a list is an axis: max_turns, max_calls, max_tokens, max_cost, timeout.
                The recorded limits do not apply either. With last_answer, runs stop one step later, with unknown usage: the
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
    task = Task(records, tried, *goal_reached(records, goal), units)
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


def goal_reached(records: Records, goal: Goal) -> tuple[First, First]:
    """Return the row at which each run reached its goal, and the row from which that is unknown (the run's length: never)."""
    if goal is None:
        return records.goal, records.lengths
    if isinstance(goal, str):
        return _by_scores(records, records.with_columns([goal], "goal")[goal])
    if isinstance(goal, Mapping | pd.Series):
        return _by_scores(records, records.about["run_id"].map(dict(goal)))
    met, raised = Judge(records, []).condition(as_condition(goal))
    return met.astype(np.int64), np.where(raised < met, raised, records.lengths)


def _by_scores(records: Records, values: pd.Series[Any]) -> tuple[First, First]:
    scores = as_floats(values)
    done = np.where(np.isnan(scores), False, scores >= 1)
    failed = records.reason.astype(str) == str(StopReason.ERROR)  # has no result to score
    unknown = np.isnan(scores) & ~failed
    return np.where(done, np.maximum(records.lengths - 1, 0), records.lengths), records.lengths - unknown


MAX_RUNS_PER_PART = 10_000
"""Maximum number of runs per part. Their usage then stays in the processor's cache from one configuration to the next."""

MAX_CHANGES = 2_000_000
"""Maximum number of ends, configurations times runs, that are compared at a time."""

STEPS_PER_SWEEP = 4
"""A sweep is worth it for more configurations than this times the steps of the longest run: it looks at each change of an end."""

MAX_LOSS = 2.0**6
"""A sum is made of differences unless they are larger than it by this factor: it then keeps about thirteen digits."""

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
    goal_open: First
    """The row from which it is unknown whether the goal is reached; the run's length: it is known."""
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
        for grid in self.grids:
            before, of = len(columns["configuration"]), {axis.name: place for place, axis in enumerate(grid.axes)}
            points = list(itertools.product(*([plain_value(value) for value in axis.values] for axis in grid.axes)))
            columns["configuration"] += [grid.name or number for number in range(before, before + grid.size)]
            for name in axes:
                columns[name] += [point[of[name]] for point in points] if name in of else [None] * grid.size
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
        number = 0
        for grid in task.grids:
            sweep = judge.sweep(grid) if grid.size > STEPS_PER_SWEEP * judge.records.longest else None
            if sweep is not None:
                sums.add_sweep(number, sweep, whole, cells)
            else:
                for place, point in enumerate(grid.points(), number):
                    sums.add(place, judge.verdict(grid, point), whole, cells)
            number += grid.size
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
        return summed(self.units, values, (self._number, self._wide))

    def changes(self, rows: Rows) -> Changes:
        """Return the units in which a run ends in another step than in the configuration before; a run alone is a unit."""
        of, run = np.divmod(np.flatnonzero(rows[1:] != rows[:-1]), rows.shape[1])
        if self.units is None:
            group = np.zeros(len(of), np.int64) if self.groups is None else self.groups[run]
            order = slice(None) if self.groups is None else np.lexsort((group, of))
            return Changes(of[order], group[order], run[order], of[order], None)
        every = self._number * self._wide
        changed = np.zeros((len(rows) - 1, every), bool)
        changed[of, self.units[run]] = True
        of, unit = np.divmod(np.flatnonzero(changed), every)
        sizes = np.bincount(self.units, minlength=every)
        starts, size = np.cumsum(sizes) - sizes, sizes[unit]
        begin = np.cumsum(size) - size
        places = np.arange(int(size.sum())) - np.repeat(begin - starts[unit], size)
        runs = np.argsort(self.units, kind="stable")[places]
        return Changes(of, unit // self._wide, runs, np.repeat(of, size), begin)


ONE = Cells()
"""All runs are in one group and independent."""


def summed(places: Ints, values: Any, shape: tuple[int, int]) -> Floats:
    """Return the sum of the values at each place of a matrix."""
    found: Floats = np.bincount(places, values, shape[0] * shape[1]).astype(float, copy=False)
    return found.reshape(shape)


def measures(ends: Ends, whole: Mapping[str, Floats], *, of_units: bool) -> Iterator[tuple[str, Floats, bool]]:
    """Yield the name and the values of each measure, NaN if unknown, and True if it needs the spread between units."""
    yield "goal", ends.goal, of_units  # of a share the mean has it
    step = ends.row + 1.0 + ends.answered
    step[ends.outcome == UNKNOWN] = np.nan
    yield "step", step, True
    for name, values in ends.used.items():
        yield name, values, True
        yield f"{name} saved", whole[name] - values, False


def _powers(s: Floats, n: Floats) -> dict[str, Floats]:
    """Return the products of units' sums `s` and numbers `n` of known runs, by their names in `Sums`."""
    ss, nn = s * s, n * n
    return dict(zip(POWERS, ((n > 0).astype(float), ss, s * n, nn, ss * s, ss * n, s * nn, nn * n), strict=True))


@dataclass(frozen=True, slots=True)
class Changes:
    """Units that change from one configuration to the next, in the order of `of`, the former configuration, and of their `group`.

    `runs` are the runs of all these units, unit by unit, `configurations` their configurations, and `begin` where the runs of each unit
    begin; None if each run is a unit.
    """

    of: Ints
    group: Ints
    runs: Ints
    configurations: Ints
    begin: Ints | None

    def products(self, ends: Ends, whole: Mapping[str, Floats]) -> Iterator[tuple[str, Floats]]:
        """Yield what each unit adds to the sums of a configuration, by their names, if its runs end like this."""
        for code, name in COUNTED.items():
            yield name, self._sums(ends.outcome == code)
        for name, values, spread in measures(ends, whole, of_units=self.begin is not None):
            unknown = np.isnan(values)
            s, n = self._sums(np.where(unknown, 0.0, values) if unknown.any() else values), self._sums(~unknown)
            yield f"{name} n", n
            yield f"{name} sum", s
            if spread and self.begin is not None:
                for power, product in _powers(s, n).items():
                    yield f"{name} {power}", product
            elif spread:
                yield f"{name} ss", s * s
                yield f"{name} sss", s * s * s

    def _sums(self, values: Any) -> Floats:
        found: Floats = values.astype(float, copy=False)
        return found if self.begin is None else np.add.reduceat(found, self.begin)


COUNTED = {STOPPED: "stopped", FINISHED: "finished", UNKNOWN: "unknown"}


class Sums:
    """Counts, sums and powers of the units' sums, by configuration and group."""

    def __init__(self, configurations: int, groups: int) -> None:
        self.shape = (configurations, groups)
        self._kept: dict[str, Floats] = defaultdict(lambda: np.zeros(self.shape))

    def add(self, number: int, ends: Ends, whole: dict[str, Floats], cells: Cells = ONE) -> None:
        """Add some runs of a configuration."""
        outcome, codes = ends.outcome, cells.groups
        counts = np.bincount(outcome, minlength=3) if codes is None else None
        every = np.ones(len(outcome))
        self._count("runs", number, len(outcome) if codes is None else every, codes)
        if cells.units is not None:
            self._add("units", number, (cells.runs > 0).sum(axis=1))
        for code, name in COUNTED.items():
            self._count(name, number, outcome == code if counts is None else counts[code], codes)
        for name, values, spread in measures(ends, whole, of_units=cells.units is not None):
            self._measure(name, number, values, cells, spread=spread)

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
            for power, product in _powers(s, n).items():
                self._add(f"{name} {power}", number, product.sum(axis=1))
        elif spread:
            squares = filled * filled
            self._count(f"{name} ss", number, squares.sum() if codes is None else squares, codes)
            self._count(f"{name} sss", number, squares.dot(filled) if codes is None else squares * filled, codes)

    def _count(self, name: str, number: int, values: Any, codes: Any | None) -> None:
        """Add one value per run to its group, or without groups the sum over all runs."""
        if codes is None:
            self._kept[name][number, 0] += values  # a number: without the work for an array
        else:
            self._add(name, number, np.bincount(codes, values, minlength=self.shape[1]))

    def _add(self, name: str, number: int, values: Any) -> None:
        self._kept[name][number] += values

    def add_sweep(self, number: int, sweep: Sweep, whole: dict[str, Floats], cells: Cells = ONE) -> None:
        """Add some runs in all configurations of a grid, the first of which is `number`."""
        at_once = max(2, MAX_CHANGES // max(1, sweep.rows.shape[1]))
        for begin in range(0, len(sweep.rows), at_once):
            rows = sweep.rows[begin : begin + at_once]
            for name, values in self._swept(rows, sweep, whole, cells)._kept.items():
                self._kept[name][number + begin : number + begin + len(rows)] += values

    def _swept(self, rows: Rows, sweep: Sweep, whole: dict[str, Floats], cells: Cells) -> Sums:
        """Return the sums of some configurations.

        The first and the last are added up run by run. From one to the next only the differences are added, those of the units in
        which a run ends in another step: forwards from the first or backwards from the last, whichever adds the smaller numbers. A sum
        that is much smaller than these would have lost digits: that configuration is added up run by run too.
        """
        found = Sums(len(rows), self.shape[1])
        for place in {0, len(rows) - 1}:
            found.add(place, sweep.at(rows[place]), whole, cells)
        if len(rows) < 3:
            return found
        changes = cells.changes(rows)
        before, after = (sweep.at(rows[changes.configurations + later, changes.runs], changes.runs) for later in (0, 1))
        of_runs = {name: values[changes.runs] for name, values in whole.items()}
        key, cut = changes.of * self.shape[1] + changes.group, (len(rows) - 1, self.shape[1])
        inexact, begin = np.zeros(cut, bool)[1:], np.flatnonzero(np.diff(key, prepend=-1))

        def sums(values: Floats) -> Floats:
            return summed(key[begin], np.add.reduceat(values, begin), cut)

        for name in {"runs", "units"} & set(found._kept):
            found._kept[name][:] = found._kept[name][0]
        for (name, old), (_, new) in zip(changes.products(before, of_runs), changes.products(after, of_runs), strict=True):
            kept, difference = found._kept[name], new - old
            if not difference.any():
                kept[1:-1] = kept[0]
                continue
            steps = sums(difference)
            one_way = (difference >= 0).all() or (difference <= 0).all()
            sizes = np.abs(steps) if one_way else sums(np.abs(difference))
            forwards, added = np.cumsum(steps, axis=0)[:-1], np.cumsum(sizes, axis=0)[:-1] + np.abs(kept[0])
            backwards, taken = (np.cumsum(one[::-1], axis=0)[::-1][1:] for one in (steps, sizes))
            taken += np.abs(kept[-1])
            kept[1:-1] = np.where(added <= taken, kept[0] + forwards, kept[-1] - backwards)
            inexact |= np.minimum(added, taken) > MAX_LOSS * np.abs(kept[1:-1])
        for place in map(int, np.flatnonzero(inexact.any(axis=1)) + 1):
            for values in found._kept.values():
                values[place] = 0.0
            found.add(place, sweep.at(rows[place]), whole, cells)
        return found

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
            found["success_low"], found["success_high"] = map(_floats, share_of_sums(flat, "goal", level))
            found["success_at_least"] = _floats(flat["goal sum"] / flat["runs"])
            found["success_at_most"] = _floats(1 - (flat["goal n"] - flat["goal sum"]) / flat["runs"])
            found["success_unknown"] = _floats(1 - flat["goal n"] / flat["runs"])
            for name, prefix in {"step": "step", **FIGURES}.items():
                found[f"{prefix}_mean"] = _mean(flat, name)
                found[f"{prefix}_low"], found[f"{prefix}_high"] = map(_floats, mean_of_sums(flat, name, level))
                if name != "step":
                    found[f"{prefix}_unknown"] = _floats(1 - flat[f"{name} n"] / flat["runs"])
                    found[f"{prefix}_saved"] = _mean(flat, f"{name} saved")
        return found


def _mean(flat: dict[str, Floats], name: str) -> Any:
    return _floats(flat[f"{name} sum"] / flat[f"{name} n"])
