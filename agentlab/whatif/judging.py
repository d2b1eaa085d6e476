"""A configuration simulated over all recorded runs: where each would have stopped, why, and what it would have used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentlab.budget import Budget
from agentlab.leaf_names import describe
from agentlab.results import Reading
from agentlab.stop import Custom, Not, StopCondition
from agentlab.types import StopReason
from agentlab.whatif.budgets import BrokenSteps, Limit, broken_steps, limits_over
from agentlab.whatif.conditions import (
    Answers,
    First,
    all_in_arrays,
    answers_of,
    combined,
    deciding,
    everywhere,
    first_rows,
    is_in_arrays,
    latched,
    latches,
    without_off,
)
from agentlab.whatif.first_met import Rows
from agentlab.whatif.grids import BOUNDS, Grid
from agentlab.whatif.prefixes import Asked, ask, ask_tree, broken_off, deciding_readings, history_of, reading_name
from agentlab.whatif.records import USED, Bools, Floats, Records
from agentlab.whatif.words import first_true, unsure_from

STOPPED, FINISHED, UNKNOWN = 0, 1, 2
MOST_ROWS_AT_ONCE = 32_000_000
"""So many first rows, of configurations times runs, are computed in one array."""
OUTCOMES = ("stopped", "finished", "unknown")
ENDS_BEFORE_CONDITIONS = (str(StopReason.TERMINATING_TOOL), str(StopReason.EXPLICIT_STOP))
"""Ends that hold even where the run's condition raises at the same step."""


@dataclass(frozen=True, slots=True)
class Found:
    """Why runs stop: the condition without what is off, the first rows at which it is met and at which it raised, the limits, and what
    these do to the step in which a run stops."""

    tree: StopCondition | None
    met: First
    raised: First
    limits: Sequence[Limit]
    broken: BrokenSteps


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the runs end under a configuration, one place per run.

    `row`: the step in which a run ends, from 0; the number of its steps where that is not known. `used`: what it had used by then, NaN
    where that is not known. `goal`: 1 where it had reached its goal, 0 where not, NaN where that is not known.
    """

    outcome: npt.NDArray[np.uint8]
    row: First
    used: dict[str, Floats]
    goal: Floats
    found: Found


class Judge:
    """Simulates configurations of grids over the same runs; the rows of each condition and limit are computed once."""

    def __init__(
        self, records: Records, grids: Sequence[Grid], goal: First | None = None, goal_open: Bools | None = None
    ) -> None:
        self.records = records
        self.goal = records.goal if goal is None else goal
        self.goal_is_the_end = goal is None or np.array_equal(goal, records.goal)
        self.goal_open = np.zeros(len(records), bool) if goal_open is None else goal_open
        self._first: dict[StopCondition, First] = {}
        self._asked: dict[StopCondition, Asked | None] = {}
        self._limits: dict[tuple[str, Any], Limit] = {}
        self._everywhere: dict[int, Rows] = {}
        self._grids = tuple(grids)
        self._read_broken: dict[tuple[StopCondition, int, int, int], Sequence[Reading] | None] = {}
        for grid in grids:
            self._prepare(grid)

    def _prepare(self, grid: Grid) -> None:
        """Compute all values of an axis at once."""
        leaves = {} if grid.stop is None else describe(grid.stop)
        for axis in grid.axes:
            if axis.leaf is None:
                for limit in limits_over(self.records, axis.field, list(axis.values)):
                    self._limits[axis.field, limit.value] = limit
            elif is_in_arrays(leaves[axis.leaf]):
                several = [leaves[axis.leaf].changed(**{axis.field: value}) for value in axis.values]
                self._first.update(zip(several, first_rows(self.records, several), strict=True))

    def rows(self, grid: Grid) -> Rows | None:
        """Where the condition of a grid stops each run in every configuration: a dimension for each axis, 1 long for axes of the
        budget, and the runs as the last. None where first rows are not enough, or would be too many at once."""
        counted = None if grid.stop is None else without_off(grid.stop)
        if (
            counted is None
            or grid.size * len(self.records) > MOST_ROWS_AT_ONCE
            or not (latches(counted) and all_in_arrays(counted))
        ):
            return None
        if id(grid) in self._everywhere:
            return self._everywhere[id(grid)]
        rows = self._rows_of(grid, counted)
        if any(grid is known for known in self._grids):  # the id of another may be that of one that is gone
            self._everywhere[id(grid)] = rows
        return rows

    def _rows_of(self, grid: Grid, counted: StopCondition) -> Rows:
        names = {} if grid.stop is None else {id(leaf): name for name, leaf in describe(grid.stop).items()}
        axis_of = {leaf: place for leaf, name in names.items() for place, axis in enumerate(grid.axes) if axis.leaf == name}

        def firsts(leaf: StopCondition) -> list[First]:
            if id(leaf) not in axis_of:
                return [self.first_of(leaf)]
            axis = grid.axes[axis_of[id(leaf)]]
            return [self.first_of(leaf.changed(**{axis.field: value})) for value in axis.values]

        return everywhere(counted, axis_of, len(grid.axes), firsts)

    def first(self, grid: Grid, point: Sequence[int]) -> First:
        """Where each run would stop by a configuration alone; the number of its steps where it would not."""
        stop, _ = self._condition(grid.stop_at(point))
        for limit in self._budget(grid.budget_at(point)):
            stop = np.minimum(stop, limit.first)
        return stop

    def _met(self, grid: Grid, point: Sequence[int], counted: StopCondition | None) -> tuple[First, First]:
        rows = self.rows(grid)
        if rows is None:
            return self._condition(counted)
        place = tuple(0 if length == 1 else at for at, length in zip(point, rows.shape[:-1], strict=True))
        return rows[place], self.records.lengths

    def verdict(self, grid: Grid, point: Sequence[int]) -> Verdict:
        """Simulate a configuration over all runs; `why_ended` says why each ends."""
        records = self.records
        tree = grid.stop_at(point)
        counted = None if tree is None else without_off(tree)
        met, raised = self._met(grid, point, counted)
        limits = self._budget(grid.budget_at(point))
        row = np.minimum(met, raised)
        for limit in limits:
            row = np.minimum(row, limit.first)
        row = row.astype(np.int64)
        broken = broken_steps(records, limits, row)
        broken.off &= raised >= row  # after a step that was broken off no condition is read
        reached_here = self.goal == row
        unsure = unsure_from(records, counted)
        failed = np.zeros(len(records), bool) if raised is records.lengths else self._failed(row, raised, broken)
        outcome = self._outcome(row, broken, failed, unsure_from=unsure)
        row = np.where(outcome == UNKNOWN, records.lengths, np.where(outcome == FINISHED, records.lengths - 1, row))
        used = self._used(outcome, row, broken)
        goal = self._goal(outcome, row, broken.off, unsure)
        goal[reached_here & broken.unsure] = np.nan
        if self.goal_is_the_end:
            goal[failed & reached_here] = 0.0  # its own end came to an error
        verdict = Verdict(outcome, row, used, goal, Found(counted, met, raised, limits, broken))
        self._count_declared_goals(verdict)
        return verdict

    # Where --------------------------------------------------------------------------------------------------------------

    def _condition(self, tree: StopCondition | None) -> tuple[First, First]:
        """The first row at which a tree is met, and at which a custom condition raised."""
        records = self.records
        counted = None if tree is None else without_off(tree)
        if counted is None:
            return records.lengths, records.lengths
        own = list(dict.fromkeys(leaf for leaf in counted.leaves() if not is_in_arrays(leaf)))
        if own and any(leaf.is_async for leaf in own if isinstance(leaf, Custom)):
            return ask_tree(records, counted)
        for leaf in own:
            if leaf not in self._asked:
                self._asked[leaf] = ask(records, leaf)
            if self._asked[leaf] is None:
                return ask_tree(records, counted)
        raised = records.lengths
        for leaf in own:
            raised = np.minimum(raised, self._asked_of(leaf).raised)
        if latches(counted):
            return combined(counted, self.first_of), raised
        return first_true(records, answers_of(counted, self.answers).met), raised

    def _asked_of(self, leaf: StopCondition) -> Asked:
        asked = self._asked[leaf]
        assert asked is not None  # noqa: S101  else the tree was read as a whole
        return asked

    def first_of(self, leaf: StopCondition) -> First:
        """The first row at which a single condition is met."""
        if leaf not in self._first:
            if is_in_arrays(leaf):
                self._first[leaf] = first_rows(self.records, [leaf])[0]
            else:
                self._first[leaf] = first_true(self.records, self._asked_of(leaf).answers.met)
        return self._first[leaf]

    def answers(self, leaf: StopCondition) -> Answers:
        """The answers of a single condition row by row."""
        if is_in_arrays(leaf):
            return latched(self.records, leaf, self.first_of(leaf))
        return self._asked_of(leaf).answers

    def _budget(self, budget: Budget) -> list[Limit]:
        """The limits that are set, in the order in which a run checks them."""
        found = []
        for name in BOUNDS:
            value = getattr(budget, name)
            if value is None:
                continue
            if (name, value) not in self._limits:
                self._limits[name, value] = limits_over(self.records, name, [value])[0]
            found.append(self._limits[name, value])
        return found

    # What ---------------------------------------------------------------------------------------------------------------

    def _failed(self, row: First, raised: First, broken: BrokenSteps) -> Bools:
        """Runs that end by a condition that raised: only a terminating tool and a requested stop come before that."""
        records = self.records
        won = records.own_end & (row == records.lengths - 1) & np.isin(records.reason.astype(str), ENDS_BEFORE_CONDITIONS)
        found: Bools = (row < records.lengths) & (raised == row) & ~broken.off & ~won
        return found

    def _outcome(self, row: First, broken: BrokenSteps, failed: Bools, *, unsure_from: First) -> npt.NDArray[np.uint8]:
        records = self.records
        stops = row < records.lengths
        at_end = stops & (row == records.lengths - 1)
        ends = at_end | ~stops
        own_wins = records.own_end & ends & ~failed
        if broken.off.any():
            own_wins &= ~broken.off
        outcome = np.where(own_wins, FINISHED, np.where(stops, STOPPED, UNKNOWN)).astype(np.uint8)
        unknown = at_end & ((records.cut_short & ~broken.off) | (records.own_end & broken.unsure & ~broken.off))
        if unsure_from is not records.lengths:
            unsure = (unsure_from < records.lengths) & (row >= unsure_from)
            unknown |= unsure & ~failed
        outcome[unknown] = UNKNOWN
        return outcome

    def _used(self, outcome: npt.NDArray[np.uint8], row: First, broken: BrokenSteps) -> dict[str, Floats]:
        """What each run had used where it stops."""
        records = self.records
        end = len(records.run)  # after the rows: the place of a run with no step, and of an unknown end
        places = np.where(outcome == UNKNOWN, end + 1, np.where(records.lengths > 0, records.start[:-1] + row, end))
        if broken.unsure.any():
            places[broken.unsure & (outcome == STOPPED)] = end + 1
        used = {name: records.at_stop[name].take(places) for name in USED}
        if broken.off.any():
            off = broken.off & (outcome != UNKNOWN)
            for name, values in used.items():
                values[off] = broken.used[name][off]
        return used

    def _goal(self, outcome: npt.NDArray[np.uint8], row: First, off: Bools, unsure_from: First) -> Floats:
        lengths = self.records.lengths
        here = self.goal == row
        if off.any():
            here &= ~off
        reached: Floats = ((self.goal < lengths) & ((self.goal < row) | here)).astype(float)
        reached[(outcome == UNKNOWN) & (self.goal >= np.minimum(lengths, unsure_from + 1))] = np.nan
        if self.goal_open.any():
            reached[self.goal_open & (row >= lengths - 1)] = np.nan
        return reached

    def _count_declared_goals(self, verdict: Verdict) -> None:
        """Count runs that are stopped by a condition which declares that it is a goal, such as HasToolCall."""
        tree, found = verdict.found.tree, verdict.found
        if tree is None or not self.goal_is_the_end or not any(_may_be_goal(leaf) for leaf in tree.leaves()):
            return
        stopped = verdict.outcome == STOPPED
        where = stopped & (found.met == verdict.row) & ~found.broken.off & (found.raised > verdict.row)
        if where.any():
            for _, decides in self.deciding(tree, verdict.row, where, goals_only=True):
                verdict.goal[decides] = np.where(found.broken.unsure[decides], np.nan, 1.0)
        for run, readings in self.read_broken(tree, found, verdict.row, stopped).items():
            if any(reading.goal for reading in readings or ()):
                verdict.goal[run] = 1.0

    # Why ----------------------------------------------------------------------------------------------------------------

    def deciding(self, tree: StopCondition, row: First, where: Bools, *, goals_only: bool = False) -> Iterator[tuple[str, Bools]]:
        """The names of the parts that made a tree met in these runs, each with the runs in which it did; with `goals_only` only those
        that are goals."""
        if not all(is_in_arrays(leaf) or self._asked.get(leaf) is not None for leaf in tree.leaves()):
            for run in np.flatnonzero(where):  # some have to be awaited: the tree was read as a whole
                history = history_of(self.records, int(run), tree).prefix(int(row[run]) + 1)
                for reading in deciding_readings(history, tree) or ():
                    if reading.goal or not goals_only:
                        yield reading_name(reading), np.arange(len(where)) == run
            return
        rows = np.where(where, self.records.start[:-1] + row, 0)

        def is_met(node: StopCondition) -> Bools:
            if is_in_arrays(node):
                found: Bools = self.first_of(node) <= row
                return found
            return answers_of(node, self.answers).met[rows]

        for node, decides in deciding(tree, is_met):
            if not goals_only or self._is_goal(node):
                yield self._name_of(node), decides & where

    def read_broken(self, tree: StopCondition, found: Found, row: First, stopped: Bools) -> dict[int, Sequence[Reading] | None]:
        """What made a tree met in the steps that were broken off, with their remaining calls (None: it raised): by run, where there are
        histories."""
        histories, broken = self.records.histories, found.broken
        if histories is None:
            return {}
        off = stopped & broken.off
        only_rises = latches(tree) and all_in_arrays(tree)
        asked = off & (found.met == row) if only_rises else off  # what the whole step does not meet, no part of it does
        read: dict[int, Sequence[Reading] | None] = {int(run): () for run in np.flatnonzero(off & ~asked)}
        for run in map(int, np.flatnonzero(asked)):
            key = (tree, run, int(row[run]), int(broken.calls[run]))
            if key not in self._read_broken:
                self._read_broken[key] = deciding_readings(broken_off(histories(run), *key[2:]), tree)
            read[run] = self._read_broken[key]
        return dict(sorted(read.items()))

    def _name_of(self, node: StopCondition) -> str:
        if isinstance(node, Not):
            return f"not {self._name_of(node.parts[0])}"
        asked = self._asked.get(node)
        return node.short_name if asked is None else asked.name

    def _is_goal(self, node: StopCondition) -> bool:
        asked = self._asked.get(node)
        return node.goal if asked is None else asked.goal


def _may_be_goal(leaf: StopCondition) -> bool:
    """True if its reading may be that of a goal: a custom condition says so only when it is read."""
    return leaf.goal or not is_in_arrays(leaf)
