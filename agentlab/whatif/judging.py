"""One configuration over all recorded runs: where each would have stopped, why, and with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentlab.budget import Budget
from agentlab.leaf_names import describe
from agentlab.stop import Custom, StopCondition
from agentlab.types import StopReason
from agentlab.whatif import budgets, conditions, prefixes, words
from agentlab.whatif.budgets import Broken, Limit
from agentlab.whatif.conditions import BUILT_IN, Answers, First
from agentlab.whatif.grids import BOUNDS, Grid
from agentlab.whatif.records import USED, Bools, Floats, Records

STOPPED, FINISHED, UNKNOWN = 0, 1, 2
OUTCOMES = ("stopped", "finished", "unknown")


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to tell why: the condition as it counts, the first rows at which it is met and at which it raised, the limits, and
    what these do to the step in which a run stops."""

    tree: StopCondition | None
    met: First
    raised: First
    limits: Sequence[Limit]
    broken: Broken


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a configuration makes of the runs, a place a run.

    `row`: the step in which a run ends, from 0; the number of its steps where that is not known. `used`: what it had used by then, NaN
    where that is not known. `goal`: whether it had reached what it was for, NaN where that is not known.
    """

    outcome: npt.NDArray[np.uint8]
    row: First
    used: dict[str, Floats]
    goal: Floats
    found: Found


class Judge:
    """Judges configurations of grids over the same runs; what conditions and limits come to is computed once for all of them."""

    def __init__(
        self, records: Records, grids: Sequence[Grid], goal: First | None = None, goal_open: Bools | None = None
    ) -> None:
        self.records = records
        self.goal = records.goal if goal is None else goal
        self.goal_open = np.zeros(len(records), bool) if goal_open is None else goal_open
        self._first: dict[StopCondition, First] = {}
        self._asked: dict[StopCondition, prefixes.Asked | None] = {}
        self._limits: dict[tuple[str, Any], Limit] = {}
        for grid in grids:
            self._prepare(grid)

    def _prepare(self, grid: Grid) -> None:
        """All values of an axis at once."""
        leaves = {} if grid.stop is None else describe(grid.stop)
        for axis in grid.axes:
            if axis.leaf is None:
                for limit in budgets.limits_over(self.records, axis.field, list(axis.values)):
                    self._limits[axis.field, limit.value] = limit
            elif isinstance(leaves[axis.leaf], BUILT_IN):
                several = [leaves[axis.leaf].changed(**{axis.field: value}) for value in axis.values]
                self._first.update(zip(several, conditions.first_rows(self.records, several), strict=True))

    def rows(self, grid: Grid, point: Sequence[int]) -> First:
        """Where each run would stop by the configuration alone; the number of its steps where it would not."""
        stop, _ = self._condition(grid.stop_at(point))
        limits = self._budget(grid.budget_at(point))
        for limit in limits:
            stop = np.minimum(stop, limit.first)
        return stop

    def verdict(self, grid: Grid, point: Sequence[int]) -> Verdict:
        """A configuration over all runs; `reasons.of` tells why."""
        records = self.records
        tree = grid.stop_at(point)
        counted = None if tree is None else conditions.without_off(tree)
        met, raised = self._condition(counted)
        limits = self._budget(grid.budget_at(point))
        row = np.minimum(met, raised)
        for limit in limits:
            row = np.minimum(row, limit.first)
        row = row.astype(np.int64)
        broken = budgets.break_off(records, limits, row)
        broken.off &= raised >= row  # behind a step that was broken off nothing is asked any more
        unsure_from = words.unsure_from(records, counted)
        outcome = self._outcome(row, broken, raised, unsure_from=unsure_from)
        row = np.where(outcome == UNKNOWN, records.lengths, np.where(outcome == FINISHED, records.lengths - 1, row))
        used = {name: self._used(name, outcome, row, broken) for name in USED}
        return Verdict(
            outcome, row, used, self._goal(outcome, row, broken.off, unsure_from), Found(counted, met, raised, limits, broken)
        )

    # Where --------------------------------------------------------------------------------------------------------------

    def _condition(self, tree: StopCondition | None) -> tuple[First, First]:
        """The first row at which a tree is met, and at which a condition of somebody's own raised."""
        records = self.records
        counted = None if tree is None else conditions.without_off(tree)
        if counted is None:
            return records.lengths, records.lengths
        own = list(dict.fromkeys(leaf for leaf in counted.leaves() if not isinstance(leaf, BUILT_IN)))
        if own and any(leaf.is_async for leaf in own if isinstance(leaf, Custom)):
            return self._read(counted)
        for leaf in own:
            if leaf not in self._asked:
                self._asked[leaf] = prefixes.ask(records, leaf)
            if self._asked[leaf] is None:
                return self._read(counted)
        raised = records.lengths
        for leaf in own:
            raised = np.minimum(raised, self._asked_of(leaf).raised)
        if conditions.latches(counted):
            return conditions.combined(counted, self.first_of), raised
        return conditions.first_true(records, conditions.answers_of(counted, self.answers).met), raised

    def _read(self, tree: StopCondition) -> tuple[First, First]:
        found = prefixes.read(self.records, tree)
        return found.first, found.raised

    def was_asked(self, tree: StopCondition) -> bool:
        """Whether the answers of all its leaves are known row by row; else it was read as a whole, since some have to be awaited."""
        return all(isinstance(leaf, BUILT_IN) or self._asked.get(leaf) is not None for leaf in tree.leaves())

    def _asked_of(self, leaf: StopCondition) -> prefixes.Asked:
        asked = self._asked[leaf]
        assert asked is not None  # noqa: S101  else the tree was read as a whole
        return asked

    def first_of(self, leaf: StopCondition) -> First:
        """The first row at which a single condition is met."""
        if leaf not in self._first:
            if isinstance(leaf, BUILT_IN):
                self._first[leaf] = conditions.first_rows(self.records, [leaf])[0]
            else:
                self._first[leaf] = conditions.first_true(self.records, self._asked_of(leaf).answers.met)
        return self._first[leaf]

    def answers(self, leaf: StopCondition) -> Answers:
        """What a single condition says row by row."""
        if isinstance(leaf, BUILT_IN):
            return conditions.latched(self.records, leaf, self.first_of(leaf))
        return self._asked_of(leaf).answers

    def _budget(self, budget: Budget) -> list[Limit]:
        """The limits that are set, in the order in which they are looked at."""
        found = []
        for name in BOUNDS:
            value = getattr(budget, name)
            if value is None:
                continue
            if (name, value) not in self._limits:
                self._limits[name, value] = budgets.limits_over(self.records, name, [value])[0]
            found.append(self._limits[name, value])
        return found

    # What ---------------------------------------------------------------------------------------------------------------

    def _outcome(self, row: First, broken: Broken, raised: First, *, unsure_from: First) -> npt.NDArray[np.uint8]:
        records = self.records
        stops = row < records.lengths
        at_end = stops & (row == records.lengths - 1)
        outcome = np.full(len(records), UNKNOWN, np.uint8)
        outcome[stops] = STOPPED
        failed = stops & (raised == row)
        own_wins = records.own_end & ~broken.off & (~failed | (records.reason == StopReason.TERMINATING_TOOL))
        outcome[own_wins & (at_end | ~stops)] = FINISHED
        outcome[(unsure_from < records.lengths) & (row >= unsure_from) & ~failed] = UNKNOWN
        outcome[at_end & records.cut_short & ~broken.off] = UNKNOWN
        outcome[at_end & records.own_end & broken.unsure & ~broken.off] = UNKNOWN
        return outcome

    def _used(self, name: str, outcome: npt.NDArray[np.uint8], row: First, broken: Broken) -> Floats:
        known = outcome != UNKNOWN
        values = np.full(len(row), np.nan)
        there = known & (self.records.lengths > 0)
        values[there] = self.records.totals[name][(self.records.start[:-1] + row)[there]]
        values[known & ~there] = 0.0
        values[broken.unsure & (outcome == STOPPED)] = np.nan
        off = broken.off & known
        values[off] = broken.used[name][off]
        return values

    def _goal(self, outcome: npt.NDArray[np.uint8], row: First, off: Bools, unsure_from: First) -> Floats:
        lengths = self.records.lengths
        reached = np.where(self.goal < lengths, (self.goal < row) | ((self.goal == row) & ~off), False).astype(float)
        reached[(outcome == UNKNOWN) & (self.goal >= np.minimum(lengths, unsure_from + 1))] = np.nan
        reached[self.goal_open & (outcome == FINISHED)] = np.nan
        return reached
