"""Simulates a configuration of limits over all recorded runs: where and why each would have stopped, and its usage up to there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from agentlab.analysis.conditions import (
    Answers,
    CustomAnswers,
    First,
    all_in_arrays,
    alternatives,
    answers_of,
    ask_custom,
    await_tree,
    combined,
    combined_on_axes,
    cut_off_history,
    deciding,
    deciding_readings,
    first_rows,
    first_true,
    history_of,
    is_in_arrays,
    latched,
    latches,
    reading_name,
    unsure_from,
    without_off,
)
from agentlab.analysis.grids import BOUNDS, Axis, Grid
from agentlab.analysis.records import (
    BOUNDED,
    USED,
    Bools,
    Floats,
    Ints,
    Limit,
    Records,
    Rows,
    calls_inside,
    limits_over,
    smallest,
)
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import Custom, Not, StopCondition
from agentlab.limits.condition_tree import describe
from agentlab.limits.reading import Reading
from agentlab.model.finish_reasons import StopReason


@dataclass(slots=True)
class CutSteps:
    """The last steps of runs that a limit stops, if the limit cuts the step off; one entry per run.

    `is_cut`: the step is cut off, after `calls` calls. `unsure`: it is unknown whether it is cut off, or with what usage. `by`: the
    index of the limit among those that were checked.
    """

    is_cut: Bools
    unsure: Bools
    calls: Ints
    by: Ints
    used: dict[str, Floats]


def cut_steps(records: Records, limits: list[Limit], stop: First) -> CutSteps:
    """Return which runs have their last step cut off by these limits, which are in the order of a budget."""
    runs = len(records)
    nothing = {name: np.full(runs, np.nan) for name in USED}
    cuts = CutSteps(np.zeros(runs, bool), np.zeros(runs, bool), np.zeros(runs, np.int64), np.full(runs, -1), nothing)
    stops = stop < records.lengths
    rows = np.where(stops, records.start[:-1] + stop, 0)
    for place, limit in enumerate(limits):
        here = stops & (limit.first == stop)
        cuts.by[here & (cuts.by < 0)] = place
        if not here.any() or limit.measure == "steps":
            continue
        if limit.measure == "time_s":
            inside = np.flatnonzero(here & (records.used["time_s"][rows] > limit.value))
            if records.histories is None:
                _cut_by_time_in_frame(cuts, inside, float(limit.value), place)
            else:
                for run in inside:
                    _cut_by_time(records, cuts, int(run), limits, place)
        else:
            for run in np.flatnonzero(here & records.several_calls[rows]):
                _cut_before_call(records, cuts, int(run), limits, place)
    return cuts


def _cut_before_call(records: Records, cuts: CutSteps, run: int, limits: list[Limit], place: int) -> None:
    """Check a limit on usage before each further call of a step."""
    limit = limits[place]
    row = int(records.start[run] + limit.first[run])
    calls = records.inside.get(row)
    if not calls:
        cuts.unsure[run] = True
        return
    reached = next((number for number, call in enumerate(calls, 1) if limit.is_met(call.used)), None)
    one_more = bool(records.wanted_more[run]) and row == records.start[run + 1] - 1
    if reached is None:  # reached by sub-agents, whose own limit would have been the rest
        cuts.unsure[run] = True
    elif (
        reached > 1
        and limit.measure == "tokens"
        and calls[reached - 1].output_tokens > limit.value - calls[reached - 2].used["tokens"]
    ):
        cuts.unsure[run] = True  # the call continued a cut answer, and its limit would have been the rest
    elif reached < len(calls) or one_more:
        used = calls[reached - 1].used
        at = row - records.start[run]
        met = [one.first[run] == at if one.measure == "steps" else one.is_met(used) for one in limits]
        _record_cut(cuts, run, reached, calls[reached - 1].totals, met.index(True))
    elif records.steps["child_calls"].iloc[row] if "child_calls" in records.steps.columns else 0:
        cuts.unsure[run] = True


def _cut_by_time_in_frame(cuts: CutSteps, runs: Ints, limit: float, place: int) -> None:
    """Mark the runs whose time is up during a step. A frame does not show which calls were complete by then."""
    cuts.unsure[runs] = True
    newly = runs[~cuts.is_cut[runs] | (cuts.calls[runs] > 0)]
    cuts.is_cut[newly], cuts.calls[newly], cuts.by[newly] = True, 0, place
    for name in USED:
        cuts.used[name][newly] = limit if name == "time_s" else np.nan


def _cut_by_time(records: Records, cuts: CutSteps, run: int, limits: list[Limit], place: int) -> None:
    """Handle a step during which time is up: the running call is lost."""
    assert records.histories is not None  # noqa: S101  for the type checker
    limit = float(limits[place].value)
    row = int(records.start[run] + limits[place].first[run])
    history, number = records.histories(run), row - int(records.start[run])
    step = history[number]
    complete = sum(call.started_s + call.duration_s <= limit for call in step.calls)
    if complete == 0:
        used = dict.fromkeys(USED, 0.0) if number == 0 else {name: float(records.totals[name][row - 1]) for name in USED}
    elif complete == len(step.calls) and not step.children:
        used = {name: float(records.totals[name][row]) for name in USED}
    else:  # only in this case the calls must be added up one by one
        used = list(calls_inside(history, number))[complete - 1].totals
    _record_cut(cuts, run, complete, {**used, "time_s": limit}, place)


def _record_cut(cuts: CutSteps, run: int, complete: int, used: dict[str, float], by: int) -> None:
    """Record that a limit cuts a step off. The earliest cut counts: a limit on usage is met at the end of a call, before time is up."""
    if cuts.is_cut[run] and complete >= cuts.calls[run]:
        return
    cuts.is_cut[run], cuts.calls[run], cuts.by[run] = True, complete, by
    for name in USED:
        cuts.used[name][run] = used[name]


STOPPED, FINISHED, UNKNOWN = 0, 1, 2

Outcome: TypeAlias = npt.NDArray[np.uint8]

MAX_FIRST_ROWS = 32_000_000
"""Maximum number of first rows in memory: runs times configurations, or times the values of axes."""

OUTCOMES = ("stopped", "finished", "unknown")

ENDS_BEFORE_CONDITIONS = (str(StopReason.TERMINATING_TOOL), str(StopReason.EXPLICIT_STOP))
"""Ends that take precedence over a condition that raises at the same step."""


@dataclass(frozen=True, slots=True)
class Found:
    """Why runs stop: the condition without the parts that are turned off, the first rows at which it is met and at which it raised, the
    limits, and their effect on the step in which a run stops."""

    tree: StopCondition | None
    met: First
    raised: First
    limits: Sequence[Limit]
    cuts: CutSteps


@dataclass(frozen=True, slots=True)
class Ends:
    """Ends of runs, one entry per run.

    `row`: the step in which a run ends, from 0; the run's length if unknown. `used`: its usage up to its end, NaN if unknown, as after
    a last answer. `goal`: 1 if the run had reached its goal, 0 if not, NaN if unknown. `answered`: one last answer follows the step.
    """

    outcome: Outcome
    row: First
    used: dict[str, Floats]
    goal: Floats
    answered: Bools


@dataclass(frozen=True, slots=True)
class Verdict(Ends):
    """The ends of all runs under a configuration, and why they end there."""

    found: Found


Which: TypeAlias = slice | Ints
"""Some runs, or all."""
ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Sweep:
    """All configurations of a grid whose limits decide only in which step each run ends.

    `rows` has that step for each configuration (row) and run (column), the run's length if it would not end. `ends` has an entry for
    each step in which a run may end, and for its length; those of run r begin at `first[r]`.
    """

    rows: Rows
    first: Ints
    ends: Ends

    def at(self, rows: Rows, runs: Which = ALL) -> Ends:
        """Return the ends of these runs in these steps."""
        places, ends = self.first[runs] + rows, self.ends
        used = {name: values.take(places) for name, values in ends.used.items()}
        return Ends(ends.outcome.take(places), ends.row.take(places), used, ends.goal.take(places), ends.answered.take(places))


class Judge:
    """Simulates configurations of grids over the same runs; the rows of each condition and limit are computed once."""

    def __init__(
        self, records: Records, grids: Sequence[Grid], goal: First | None = None, goal_open: First | None = None
    ) -> None:
        self.records = records
        self.goal = records.goal if goal is None else goal
        self.goal_is_the_end = goal is None or np.array_equal(goal, records.goal)
        self.goal_open = records.lengths if goal_open is None else goal_open
        self._is_goal_open = bool((self.goal_open < records.lengths).any())
        self._first: dict[StopCondition, First] = {}
        self._on_axis: dict[tuple[StopCondition, Axis], Rows] = {}
        self._custom_answers: dict[StopCondition, CustomAnswers | None] = {}
        self._limits: dict[tuple[str, Any], Limit] = {}
        self._read_cut_steps: dict[tuple[StopCondition, int, int, int], Sequence[Reading] | None] = {}
        for grid in grids:
            self._prepare(grid)

    def _prepare(self, grid: Grid) -> None:
        """Compute the first rows for all values of each axis together."""
        leaves = {} if grid.stop is None else describe(grid.stop)
        for axis in grid.axes:
            if axis.leaf is None:
                for limit in limits_over(self.records, axis.field, list(axis.values)):
                    self._limits[axis.field, limit.value] = limit
            elif is_in_arrays(leaves[axis.leaf]):
                several = [leaves[axis.leaf].changed(**{axis.field: value}) for value in axis.values]
                rows = self._on_axis[leaves[axis.leaf], axis] = first_rows(self.records, several)
                self._first.update(zip(several, rows, strict=True))

    def rows(self, grid: Grid, tree: StopCondition) -> Rows:
        """Return the row at which the condition of a grid, `tree` without the parts that are off, stops each run in every
        configuration: one dimension per axis, of length 1 for axes of the budget, and the runs as the last one."""
        names = {} if grid.stop is None or not grid.axes else {id(leaf): name for name, leaf in describe(grid.stop).items()}
        axis_of = {leaf: place for leaf, name in names.items() for place, axis in enumerate(grid.axes) if axis.leaf == name}

        def firsts(leaf: StopCondition) -> Rows:
            if id(leaf) in axis_of:  # then the grid is one of those given: others have no axes
                return self._on_axis[leaf, grid.axes[axis_of[id(leaf)]]]
            return self.first_of(leaf)[None]

        return combined_on_axes(tree, axis_of, len(grid.axes), firsts)

    def verdict(self, grid: Grid, point: Sequence[int]) -> Verdict:
        """Simulate a configuration over all runs. See `why_ended` for the stop reasons."""
        records = self.records
        tree = grid.stop_at(point)
        counted = None if tree is None else without_off(tree)
        met, raised = self.condition(counted)
        budget = grid.budget_at(point)
        limits = self._budget(budget)
        row = np.minimum(met, raised)
        for limit in limits:
            row = np.minimum(row, limit.first)
        row = row.astype(np.int64)
        cuts = cut_steps(records, limits, row)
        reached_here = self.goal == row
        unsure = unsure_from(records, counted)
        failed = np.zeros(len(records), bool) if raised is records.lengths else self._failed(row, raised, cuts)
        outcome, row, used, goal = self._ended(ALL, row, cuts, failed, unsure)
        goal[reached_here & cuts.unsure] = np.nan
        if self.goal_is_the_end:
            goal[failed & reached_here] = 0.0  # the run ends with an error
        found = Found(counted, met, raised, limits, cuts)
        answered, unclear = self._last_answers(budget, outcome == STOPPED, row, found)
        goal[unclear & (self.goal >= row)] = np.nan
        outcome[unclear], row[unclear] = UNKNOWN, records.lengths[unclear]
        for values in used.values():
            values[answered | unclear] = np.nan
        if not self.goal_is_the_end:
            goal[answered & (goal == 0)] = np.nan
        verdict = Verdict(outcome, row, used, goal, answered, found)
        self._count_declared_goals(verdict)
        return verdict

    def _last_answers(self, budget: Budget, stopped: Bools, row: First, found: Found) -> tuple[Bools, Bools]:
        """Return the runs that a limit stops with one last answer, since its whole value is not reached yet, and those of which this is
        unknown. Where it is reached, `cuts.by` becomes the first limit whose whole value is reached."""
        answered, unclear = np.zeros((2, len(self.records)), bool)
        if budget.last_answer is None:
            return answered, unclear
        cuts, whole = found.cuts, self._limits_of(dataclasses.replace(budget, last_answer=None))
        by_limit = stopped & (cuts.is_cut | ((found.met > row) & (found.raised > row)))
        if found.tree is not None:
            for run, readings in self.read_cut_steps(found.tree, found, row, stopped).items():
                by_limit[run] &= readings is not None and not readings  # one that the cut step meets, or raises, ends the run
        for run in map(int, np.flatnonzero(by_limit)):
            used = self._known_at_cut(run, int(row[run]), cuts) if cuts.is_cut[run] else None
            reached = [
                bool(limit.first[run] <= row[run]) if used is None or limit.measure == "steps" else limit.is_met(used)
                for limit in whole
            ]
            answered[run] = not any(reached)
            if any(reached):
                cuts.by[run] = reached.index(True)
                unclear[run] = cuts.unsure[run] and not cuts.is_cut[run] and whole[cuts.by[run]].measure != "steps"
        return answered, unclear

    def _known_at_cut(self, run: int, row: int, cuts: CutSteps) -> dict[str, float]:
        """Return the known usage of a run at the point where its step is cut off."""
        records, calls = self.records, int(cuts.calls[run])
        at = int(records.start[run]) + row
        time = {"time_s": float(cuts.used["time_s"][run])}
        if calls and at in records.inside:
            return {**records.inside[at][calls - 1].used, **time}
        if not calls and not row:
            return {**dict.fromkeys(USED, 0.0), **time}
        return {**{name: float(records.used[name][at if calls else at - 1]) for name in USED}, **time}

    # First rows ---------------------------------------------------------------------------------------------------------

    def condition(self, tree: StopCondition | None) -> tuple[First, First]:
        """Return the first row at which a tree is met, and at which a custom condition raised."""
        records = self.records
        counted = None if tree is None else without_off(tree)
        if counted is None:
            return records.lengths, records.lengths
        own = list(dict.fromkeys(leaf for leaf in counted.leaves() if not is_in_arrays(leaf)))
        if own and any(leaf.is_async for leaf in own if isinstance(leaf, Custom)):
            return await_tree(records, counted)
        for leaf in own:
            if leaf not in self._custom_answers:
                self._custom_answers[leaf] = ask_custom(records, leaf)
            if self._custom_answers[leaf] is None:
                return await_tree(records, counted)
        raised = records.lengths
        for leaf in own:
            raised = np.minimum(raised, self._custom_answers_of(leaf).raised)
        if latches(counted):
            return combined(counted, self.first_of), raised
        return first_true(records, answers_of(counted, self.answers).met), raised

    def _custom_answers_of(self, leaf: StopCondition) -> CustomAnswers:
        asked = self._custom_answers[leaf]
        assert asked is not None  # noqa: S101  otherwise the whole tree was awaited
        return asked

    def first_of(self, leaf: StopCondition) -> First:
        """Return the first row at which a single condition is met."""
        if leaf not in self._first and is_in_arrays(leaf):
            self._first[leaf] = first_rows(self.records, [leaf])[0]
        elif leaf not in self._first:
            self._first[leaf] = first_true(self.records, self._custom_answers_of(leaf).answers.met)
        return self._first[leaf]

    def answers(self, leaf: StopCondition) -> Answers:
        """Return the answers of a single condition row by row."""
        if is_in_arrays(leaf):
            return latched(self.records, leaf, self.first_of(leaf))
        return self._custom_answers_of(leaf).answers

    def _budget(self, budget: Budget) -> list[Limit]:
        """Return the limits that are set, in the order in which a run checks them."""
        return self._limits_of(budget.before_last_answer())

    def _limits_of(self, budget: Budget) -> list[Limit]:
        given = [(name, value) for name in BOUNDS if (value := getattr(budget, name)) is not None]
        for name, value in given:
            if (name, value) not in self._limits:
                self._limits[name, value] = limits_over(self.records, name, [value])[0]
        return [self._limits[one] for one in given]

    # Outcome, usage, goal -----------------------------------------------------------------------------------------------

    def _failed(self, row: First, raised: First, cuts: CutSteps) -> Bools:
        """Return the runs that end with an error since a condition raises. A terminating tool and a requested stop take precedence."""
        records = self.records
        won = records.own_end & (row == records.lengths - 1) & np.isin(records.reason.astype(str), ENDS_BEFORE_CONDITIONS)
        found: Bools = (row < records.lengths) & (raised == row) & ~cuts.is_cut & ~won
        return found

    def _ended(
        self, runs: Which, row: First, cuts: CutSteps, failed: Bools, unsure_from: First
    ) -> tuple[Outcome, First, dict[str, Floats], Floats]:
        """Return outcome, last step, usage and goal of these runs if their limits are met in these rows."""
        records = self.records
        lengths, unsure = records.lengths[runs], None if unsure_from is records.lengths else unsure_from[runs]
        outcome = self._outcome(runs, row, cuts, failed, unsure)
        row = np.where(outcome == UNKNOWN, lengths, np.where(outcome == FINISHED, lengths - 1, row))
        return outcome, row, self._used(runs, outcome, row, cuts), self._goal(runs, outcome, row, cuts.is_cut, unsure)

    def _outcome(self, runs: Which, row: First, cuts: CutSteps, failed: Bools, unsure_from: First | None) -> Outcome:
        records, lengths = self.records, self.records.lengths[runs]
        stops = row < lengths
        at_end = stops & (row == lengths - 1)
        own_end = records.own_end[runs]
        own_wins = own_end & (at_end | ~stops) & ~failed
        own_wins &= ~cuts.is_cut
        outcome = np.where(own_wins, FINISHED, np.where(stops, STOPPED, UNKNOWN)).astype(np.uint8)
        unknown = at_end & ((records.cut_short[runs] & ~cuts.is_cut) | (own_end & cuts.unsure & ~cuts.is_cut))
        if unsure_from is not None:
            unsure = (unsure_from < lengths) & (row >= unsure_from)
            unknown |= unsure & ~failed
        outcome[unknown] = UNKNOWN
        return outcome

    def _used(self, runs: Which, outcome: Outcome, row: First, cuts: CutSteps) -> dict[str, Floats]:
        """Return the usage of each run up to its end."""
        records = self.records
        end = len(records.run)  # the two places after the rows are for a run without a step, and for an unknown end
        places = np.where(records.lengths[runs] > 0, records.start[:-1][runs] + row, end)
        places = np.where(outcome == UNKNOWN, end + 1, places)
        if cuts.unsure.any():
            places[cuts.unsure & (outcome == STOPPED)] = end + 1
        used = {name: records.at_stop[name].take(places) for name in USED}
        if cuts.is_cut.any():
            off = cuts.is_cut & (outcome != UNKNOWN)
            for name, values in used.items():
                values[off] = cuts.used[name][off]
        return used

    def _goal(self, runs: Which, outcome: Outcome, row: First, off: Bools, unsure_from: First | None) -> Floats:
        lengths, goal = self.records.lengths[runs], self.goal[runs]
        here = goal == row
        if off.any():
            here &= ~off
        reached: Floats = ((goal < lengths) & ((goal < row) | here)).astype(float)
        known_to = lengths if unsure_from is None else np.minimum(lengths, unsure_from + 1)
        reached[(outcome == UNKNOWN) & (goal >= known_to)] = np.nan
        if self._is_goal_open:
            reached[(self.goal_open[runs] < lengths) & (row >= self.goal_open[runs])] = np.nan
        return reached

    # All configurations at once -----------------------------------------------------------------------------------------

    def sweep(self, grid: Grid) -> Sweep | None:
        """Return the ends of the runs in all configurations. None if more than the step depends on the limits, as in a step that a
        limit may cut off, or if first rows are not enough or would need too much memory."""
        records = self.records
        tree = None if grid.stop is None else without_off(grid.stop)
        if not self._decides_only_the_step(grid, tree) or grid.size * len(records) > MAX_FIRST_ROWS:
            return None
        rows = records.lengths[None].astype(smallest(records.longest)) if tree is None else self.rows(grid, tree)
        sizes = records.lengths + 1
        first = np.cumsum(sizes) - sizes
        runs = np.repeat(np.arange(len(records)), sizes)
        row = np.arange(len(runs)) - first[runs]
        no, nothing = np.zeros(len(runs), bool), np.zeros(0, np.int64)
        cuts = CutSteps(no, no, nothing, nothing, {})
        ends = Ends(*self._ended(runs, row, cuts, no, unsure_from(records, tree)), no)
        for leaf in self._declared_goals(tree):
            ends.goal[(ends.outcome == STOPPED) & (self.first_of(leaf)[runs] <= row)] = 1.0
        return Sweep(self._with_budget(grid, rows), first, ends)

    def _decides_only_the_step(self, grid: Grid, tree: StopCondition | None) -> bool:
        if tree is not None and not (latches(tree) and all_in_arrays(tree)):
            return False
        bounded = {BOUNDED.get(name) for name in (*grid.budget, *(axis.field for axis in grid.axes if axis.leaf is None))}
        if bounded & {None, "time_s"} or (bounded - {"steps"} and self.records.several_calls.any()):  # None: a last answer
            return False
        leaves = {} if grid.stop is None else describe(grid.stop)
        changing = [leaves[axis.leaf] for axis in grid.axes if axis.leaf is not None]
        alone = [] if tree is None else list(alternatives(tree))
        return all(any(goal is leaf for leaf in alone) and goal not in changing for goal in self._declared_goals(tree))

    def _declared_goals(self, tree: StopCondition | None) -> list[StopCondition]:
        return [leaf for leaf in tree.leaves() if leaf.goal] if tree is not None and self.goal_is_the_end else []

    def _with_budget(self, grid: Grid, rows: Rows) -> Rows:
        """Return one row per configuration: the first row at which the condition, in `rows`, or the budget is met."""
        lengths = [len(axis.values) for axis in grid.axes]
        for place, axis in enumerate(grid.axes):
            if axis.leaf is None:
                firsts = np.stack([self._limits[axis.field, value].first for value in axis.values]).astype(rows.dtype)
                shape = [length if at == place else 1 for at, length in enumerate(lengths)]
                rows = np.minimum(rows, firsts.reshape(*shape, len(self.records)))
        for limit in [limits_over(self.records, name, [value])[0] for name, value in grid.budget.items()]:
            rows = np.minimum(rows, limit.first.astype(rows.dtype))
        return np.broadcast_to(rows, (*lengths, len(self.records))).reshape(grid.size, len(self.records))

    def _count_declared_goals(self, verdict: Verdict) -> None:
        """Count runs as successes if the condition that stops them declares itself a goal, such as HasToolCall."""
        tree, found = verdict.found.tree, verdict.found
        if tree is None or not self.goal_is_the_end:
            return
        if not any(leaf.goal or not is_in_arrays(leaf) for leaf in tree.leaves()):  # a custom condition says it when it is read
            return
        stopped = verdict.outcome == STOPPED
        where = stopped & (found.met == verdict.row) & ~found.cuts.is_cut & (found.raised > verdict.row)
        if where.any():
            for _, decides in self.deciding(tree, verdict.row, where, goals_only=True):
                verdict.goal[decides] = np.where(found.cuts.unsure[decides], np.nan, 1.0)
        for run, readings in self.read_cut_steps(tree, found, verdict.row, stopped).items():
            if any(reading.goal for reading in readings or ()):
                verdict.goal[run] = 1.0

    # Parts that decided -------------------------------------------------------------------------------------------------

    def deciding(self, tree: StopCondition, row: First, where: Bools, *, goals_only: bool = False) -> Iterator[tuple[str, Bools]]:
        """Yield the names of the parts that caused a tree to be met in these runs, each with the runs in which it did; with
        `goals_only` only those that are goals."""
        if not all(is_in_arrays(leaf) or self._custom_answers.get(leaf) is not None for leaf in tree.leaves()):
            for run in np.flatnonzero(where):  # a part has to be awaited, so the whole tree was
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

    def read_cut_steps(
        self, tree: StopCondition, found: Found, row: First, stopped: Bools
    ) -> dict[int, Sequence[Reading] | None]:
        """Return, by run, the readings that caused a tree to be met after a step that was cut off (None: it raised). Empty without
        histories."""
        histories, cuts = self.records.histories, found.cuts
        if histories is None:
            return {}
        off = stopped & cuts.is_cut
        only_rises = latches(tree) and all_in_arrays(tree)
        asked = off & (found.met == row) if only_rises else off  # if the whole step does not meet it, neither does a part
        read: dict[int, Sequence[Reading] | None] = {int(run): () for run in np.flatnonzero(off & ~asked)}
        for run in map(int, np.flatnonzero(asked)):
            key = (tree, run, int(row[run]), int(cuts.calls[run]))
            if key not in self._read_cut_steps:
                self._read_cut_steps[key] = deciding_readings(cut_off_history(histories(run), *key[2:]), tree)
            read[run] = self._read_cut_steps[key]
        return dict(sorted(read.items()))

    def _name_of(self, node: StopCondition) -> str:
        if isinstance(node, Not):
            return f"not {self._name_of(node.parts[0])}"
        asked = self._custom_answers.get(node)
        return node.short_name if asked is None else asked.name

    def _is_goal(self, node: StopCondition) -> bool:
        asked = self._custom_answers.get(node)
        return node.goal if asked is None else asked.goal
