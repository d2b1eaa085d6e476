"""Cross-validation for `lab.suggest`: candidate limits near the usage of successful runs, chosen on some runs, evaluated on others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from typing import Any

import numpy as np

from agentlab.analysis.backtest import Cells, Sums, Task
from agentlab.analysis.conditions import First
from agentlab.analysis.grids import BOUNDS, Grid, plain_value
from agentlab.analysis.intervals import share_of_sums
from agentlab.analysis.records import USED, Bools, Floats, Ints, Records
from agentlab.analysis.simulate import STOPPED, Verdict
from agentlab.limits.combinators import StopCondition
from agentlab.limits.conditions import MaxCost, MaxTokensUsed, StepCountIs

SHARES = (0.25, 0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1.0)
"""The quantiles of the successes' usage at which candidate limits are set, most of them near the share to keep."""

DIGITS = 2
"""Significant digits to which limits are rounded up, so that they are readable and depend little on single runs."""


def candidates(records: Records, goal: First, succeeded: Bools, keep: float) -> dict[str, StopCondition | None]:
    """Return grids by name: no limit, which is the record itself; limits on steps, tokens and cost, each alone and in pairs."""
    single: dict[str, StopCondition] = {}
    shares = sorted({*SHARES, keep})
    steps = np.quantile(goal[succeeded] + 1, shares, method="higher")
    single["steps"] = StepCountIs(sorted({int(value) for value in steps}))
    for name, kind in (("tokens", MaxTokensUsed), ("cost", MaxCost)):
        before = _used_before(records, {"cost": "cost_usd"}.get(name, name), goal, succeeded)
        quantiles = np.quantile(before, shares, method="higher") if len(before) else ()
        if values := sorted({_above(value, whole=name == "tokens") for value in quantiles if value > 0}):
            single[name] = kind(values)
    pairs = {f"{a} | {b}": single[a] | single[b] for a, b in combinations(single, 2)}
    return {"no limit": None, **single, **pairs}


def _used_before(records: Records, name: str, goal: First, succeeded: Bools) -> Floats:
    """Return the usage of each success before the step in which it succeeded: any higher limit keeps it. Empty if most are unknown."""
    totals = records.totals[name]
    rows = (records.start[:-1] + goal)[succeeded] - 1
    first = goal[succeeded] == 0
    used = np.where(first, 0.0, totals[np.where(first, 0, rows)])
    known = used[~np.isnan(used)]
    return known if 2 * len(known) >= len(used) else np.zeros(0)


def _above(value: float, *, whole: bool) -> Any:
    """Return the next number above `value` with DIGITS digits."""
    exact = Decimal(repr(float(value)))
    unit = Decimal(1).scaleb(math.floor(math.log10(value)) - DIGITS + 1)
    unit = max(unit, Decimal(1)) if whole else unit
    found = (exact // unit + 1) * unit
    return int(found) if whole else found.normalize()


PARTS = {"cost_usd": 1e9, "time_s": 1e6, "tokens": 1.0, "steps": 1.0}
"""The measures of cost, and the factor that makes them whole numbers, so that the order of the runs cannot decide a tie."""

# Counting ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """The successes in the record, the measure of cost, and the total cost of each run (NaN: unknown)."""

    succeeded: Bools
    cost: str
    whole: Floats

    def part(self, runs: slice) -> Measured:
        """Return the measures of some of the runs."""
        return Measured(self.succeeded[runs], self.cost, self.whole[runs])

    def kept(self, verdict: Verdict) -> Floats:
        """Return 1 for each success that is kept, 0 for each that is lost, NaN if that is unknown and for all other runs."""
        return np.where(self.succeeded, verdict.goal, np.nan)

    def used(self, verdict: Verdict) -> Floats:
        """Return what each run would have cost; NaN if unknown."""
        if self.cost == "steps":
            known = verdict.outcome <= 1
            return np.where(known, np.minimum(verdict.row + 1.0, self.whole), np.nan)
        return np.where(np.isnan(self.whole), np.nan, verdict.used[self.cost])

    def spent(self, verdict: Verdict, records: Records) -> Floats:
        """Return `used`, or a lower bound from the record if that is unknown, so that all configurations are compared on the same runs.

        A run whose record ends before the limits counts with its recorded cost; a step that a limit may have cut off counts fully.
        """
        used = self.used(verdict)
        lost = np.isnan(used) & ~np.isnan(self.whole)
        if not lost.any():
            return used
        filled = np.where(lost, self.whole, used)
        inside = np.flatnonzero(lost & (verdict.outcome == STOPPED))
        if len(inside) and self.cost != "steps":
            filled[inside] = records.totals[self.cost][records.start[:-1][inside] + verdict.row[inside]]
        return filled


def measured(records: Records, goal: First, goal_open: Bools, cost: str) -> Measured:
    """Return the measures of these runs."""
    whole = records.lengths.astype(float) if cost == "steps" else records.at_the_end(cost)
    return Measured((goal < records.lengths) & ~goal_open, cost, whole)


@dataclass(frozen=True, slots=True)
class Counts:
    """For each configuration and fold: the number of successes that are `kept`, of those for which that is `known`, and the cost
    `spent`, multiplied by PARTS."""

    kept: Floats
    known: Floats
    spent: Floats

    def without(self, fold: int) -> Counts:
        """Return the sums over all folds but one."""
        return Counts(*((values.sum(axis=1) - values[:, fold])[:, None] for values in (self.kept, self.known, self.spent)))

    @property
    def share(self) -> Floats:
        """The share of successes that each configuration keeps; NaN if unknown."""
        with np.errstate(all="ignore"):
            found: Floats = self.kept.sum(axis=1) / self.known.sum(axis=1)
        return found

    def cheapest(self, keep: float, order: Ints, among: Bools | None = None) -> int | None:
        """Return the cheapest configuration that keeps this share, or the cheapest `among` these; of equal costs the one that keeps
        most, then the first by `order`."""
        share = self.share
        enough = np.flatnonzero(share >= keep - 1e-12 if among is None else among)
        if not len(enough):
            return None
        return int(enough[np.lexsort((order[enough], -share[enough], self.spent.sum(axis=1)[enough]))[0]])

    def most(self, order: Ints) -> int:
        """Return the configuration that keeps most; of several the cheapest."""
        share = np.nan_to_num(self.share, nan=-1.0)
        return int(np.lexsort((order, self.spent.sum(axis=1), -share))[0])


def count(task: Task, measures: Measured, fold: Ints, folds: int) -> tuple[Counts, Sums]:
    """Simulate all configurations over all runs; the sums are those from which a backtest's frame is made."""
    found = [np.zeros((task.size, folds)) for _ in range(3)]
    sums = Sums(task.size, 1)
    last = {name: task.records.at_the_end(name) for name in USED}
    for runs, judge in task.parts():
        part, here = measures.part(runs), fold[runs]
        whole = {name: values[runs] for name, values in last.items()}
        cells = Cells(None if task.units is None else task.units[runs])
        success, priced = np.flatnonzero(part.succeeded), np.flatnonzero(~np.isnan(part.whole))
        for number, (grid, point) in enumerate(task.configurations()):
            verdict = judge.verdict(grid, point)
            sums.add(number, verdict, whole, cells)
            kept = verdict.goal[success]
            spent = np.rint(part.spent(verdict, judge.records)[priced] * PARTS[part.cost])
            found[0][number] += np.bincount(here[success], kept == 1, folds)
            found[1][number] += np.bincount(here[success], ~np.isnan(kept), folds)
            found[2][number] += np.bincount(here[priced], spent, folds)
    return Counts(*found), sums


def confirmed(  # noqa: PLR0917
    task: Task, measures: Measured, first: Counts, order: Ints, testing: Bools, keep: float, confidence: float
) -> Bools:
    """Return True for configurations that are shown to keep this share, in the runs that are `testing`.

    The configurations are tested one after the other, those that keep most of the other runs first, until one is not confirmed. The
    order does not depend on the testing runs, so a wrong one is among the confirmed with a chance of at most 1 - `confidence`, however
    many there are: fixed-sequence testing, A. Angelopoulos et al., Learn then test (2021). The bound of each share is one-sided, exact
    for independent runs, and computed from the units' sums for others.
    """
    sums = {name: np.zeros(task.size) for name in ("goal n", "goal sum", "goal units", "goal ss", "goal sn", "goal nn")}
    for runs, judge in task.parts():
        part = measures.part(runs)
        of_test = np.flatnonzero(part.succeeded & testing[runs])
        units = np.arange(len(of_test)) if task.units is None else np.unique(task.units[runs][of_test], return_inverse=True)[1]
        for number, (grid, point) in enumerate(task.configurations()):
            kept = part.kept(judge.verdict(grid, point))[of_test]
            s, n = np.bincount(units, kept == 1), np.bincount(units, ~np.isnan(kept))
            for name, values in zip(sums, (n, s, n > 0, s * s, s * n, n * n), strict=True):
                sums[name][number] += values.sum()
    with np.errstate(all="ignore"):
        low = share_of_sums(sums, "goal", 2 * confidence - 1)[0]
    sequence = np.lexsort(
        (-order, -first.spent.sum(axis=1), -np.nan_to_num(first.share, nan=-1.0))
    )  # of equal ones the loosest first
    failed = np.flatnonzero(~(low[sequence] >= keep))
    found = np.zeros(task.size, bool)
    found[sequence[: failed[0] if len(failed) else None]] = True
    return found


def preference(grids: Sequence[Grid]) -> Ints:
    """Return the rank of each configuration in a tie: first those with fewer limits, then the earlier grid, then the strictest."""
    keys: list[tuple[Any, ...]] = []
    for place, grid in enumerate(grids):
        leaves = 0 if grid.stop is None else len(list(grid.stop.leaves(that_count=True)))
        limits = leaves + len(set(grid.budget) | {axis.field for axis in grid.axes if axis.leaf is None})
        for point in grid.points():
            values = [(axis.values[at], at) for axis, at in zip(grid.axes, point, strict=True)]
            plain = [plain_value(value) for value, _ in values]
            numbers = [one if isinstance(one, int | float) else at for one, (_, at) in zip(plain, values, strict=True)]
            keys.append((limits, place, *numbers))
    ranks = np.empty(len(keys), np.int64)
    ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return ranks


# Evaluation --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """The effect on each run of the configuration that was chosen on the other folds.

    `kept`: 1 for a success that is kept, 0 for one that is lost (NaN: no success, or unknown); `used`: its cost.
    """

    kept: Floats
    used: Floats
    unknown: Bools


def judge(task: Task, measures: Measured, chosen: Sequence[int], fold: Ints) -> Judged:
    """Evaluate on each run the configuration that was chosen on the other folds; `chosen` has its number for each fold."""
    runs = len(task.records)
    judged = Judged(np.full(runs, np.nan), np.full(runs, np.nan), np.zeros(runs, bool))
    points = list(task.configurations())
    different = sorted(set(chosen))
    few = dataclasses.replace(task, grids=[single(*points[number]) for number in different])
    for part, one in few.parts():
        for number, (grid, point) in zip(different, few.configurations(), strict=True):
            here = np.isin(fold[part], [at for at, taken in enumerate(chosen) if taken == number])
            verdict, of_part = one.verdict(grid, point), measures.part(part)
            judged.kept[part] = np.where(here, of_part.kept(verdict), judged.kept[part])
            judged.used[part] = np.where(here, of_part.used(verdict), judged.used[part])
            judged.unknown[part] |= here & (verdict.outcome > 1)
    return judged


def single(grid: Grid, point: Sequence[int]) -> Grid:
    """Return a configuration as a grid of one point."""
    budget = grid.budget_at(point)
    bounds = {name: value for name in BOUNDS if (value := getattr(budget, name)) is not None}
    return Grid(grid.name, grid.stop_at(point), bounds, ())
