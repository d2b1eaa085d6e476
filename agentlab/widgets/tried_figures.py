"""What the chosen limits come to on the records, and a coarse grid of other limits to compare them with."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from agentlab.types import StopReason
from agentlab.whatif.frames import Cells, Sums
from agentlab.whatif.goals import Goal, goal_reached
from agentlab.whatif.grids import Grid, grids, plain_value
from agentlab.whatif.judging import FINISHED, STOPPED, UNKNOWN, Judge, Verdict
from agentlab.whatif.reasons import why_ended
from agentlab.whatif.records import USED, Bools, Records
from agentlab.whatif.units import units_of
from agentlab.widgets.chosen_limits import grid_of
from agentlab.widgets.tried_limits import KINDS, Offer, Value
from agentlab.widgets.tried_record import RecordedLimits

LEVEL = 0.95
MOST_CONFIGURATIONS = 1_000
GRID_NAMES = ("StepCountIs", "max_turns", "MaxCost", "max_cost", "MaxTokensUsed", "max_tokens")
MOST_AXES = 3
"""So many of these limits are tried with each other; all of them alone."""
FINISHED_WORD, UNKNOWN_WORD = "ended as recorded", "unknown: the record ends before"
FAILED_WORD = "ended as recorded, in an error"
UNCLEAR_WORD = "some of these limits: which is unknown"


@dataclass(frozen=True, slots=True)
class Tried:
    """What limits come to: `row` has the figures by the names of the columns of `lab.backtest`, None where unknown; `ends` how many
    runs ended for which reason, those that the limits stopped first."""

    chosen: Mapping[str, Value]
    row: Mapping[str, Any]
    ends: Sequence[tuple[str, int]]
    frame: pd.DataFrame
    unit: str = "run"
    """What is independent of each other: a prompt, a recording or a run."""
    is_record: bool = False
    """The limits are those that the runs had."""


class Trials:
    """Tries limits on the same records; what the values on the sliders come to is computed once.

    `opening` are the limits on the sliders that the runs had. What has no slider, or was not changed, stays as it was in each run: one
    that ended by it still ends there.
    """

    def __init__(self, records: Records, offered: Mapping[str, Offer], recorded: RecordedLimits, goal: Goal = None) -> None:
        self.records, self._recorded = records, recorded
        self.offered = {name: offer for name, offer in offered.items() if offer.values}
        self.opening = {name: recorded.shared.get(name) for name in self.offered}
        goal_rows, goal_open = goal_reached(records, goal)
        self.judge = Judge(records, _all_stops(self.offered), goal_rows, goal_open)
        self._last = {name: records.at_the_end(name) for name in USED}
        self.units = units_of(records.about)
        self._cells = Cells(self.units.codes)
        self.longest = int(records.lengths.max(initial=0))
        self._as_it_was = self._as_recorded()
        known = self._of_verdict(self.opening, self._as_it_was, self._ends(None, ~records.own_end))
        self.record = replace(known, is_record=True)

    def of(self, chosen: Mapping[str, Value]) -> Tried:
        """These limits over all runs; where they are those of the record, the record."""
        if chosen == self.opening:
            return replace(self.record, chosen=chosen)
        verdict, stayed = self._verdict(chosen)
        return self._of_verdict(chosen, verdict, self._ends(verdict, stayed))

    def add_to(self, sums: Sums, number: int, chosen: Mapping[str, Value]) -> None:
        """Count these limits among others."""
        sums.add(number, self._as_it_was if chosen == self.opening else self._verdict(chosen)[0], self._last, self._cells)

    def complete(self, chosen: Mapping[str, Value]) -> dict[str, Value]:
        """With the limits that all runs had and no slider shows; without those that are left to each run as it was."""
        differing = self._recorded.differing
        return {**self._recorded.shared, **{n: value for n, value in chosen.items() if value is not None or n not in differing}}

    def _verdict(self, chosen: Mapping[str, Value]) -> tuple[Verdict, Bools]:
        """What these limits make of the runs, and which runs end as recorded by a limit that was not changed."""
        verdict = self.judge.verdict(grid_of(self.complete(chosen)), ())
        changed = {name for name, value in chosen.items() if value != self.opening[name]}
        stayed: Bools = (verdict.outcome == UNKNOWN) & self._recorded.stays(changed)
        if stayed.any():
            was = self._as_it_was
            verdict.outcome[stayed], verdict.row[stayed], verdict.goal[stayed] = STOPPED, was.row[stayed], was.goal[stayed]
            for name, values in verdict.used.items():
                values[stayed] = was.used[name][stayed]
        return verdict, stayed

    def _of_verdict(self, chosen: Mapping[str, Value], verdict: Verdict, ends: Sequence[tuple[str, int]]) -> Tried:
        sums = Sums(1, 1)
        sums.add(0, verdict, self._last, self._cells)
        columns = sums.columns(LEVEL)
        row = {name: None if pd.isna(values[0]) else np.asarray(values[0]).item() for name, values in columns.items()}
        frame = pd.DataFrame({**limit_columns(self.offered, [chosen]), **columns})
        return Tried(chosen, row, ends, frame, self.units.what)

    def _ends(self, verdict: Verdict | None, stayed: Bools) -> list[tuple[str, int]]:
        """Why runs ended: by which limits, before them as they were recorded, or not known. `stayed`: by limits of the record."""
        outcome = self._as_it_was.outcome if verdict is None else verdict.outcome
        stopped = Counter() if verdict is None else Counter(self._fired(verdict, (outcome == STOPPED) & ~stayed))
        by_recorded = dict(self._recorded.ends)
        left = stayed & ~np.any(list(by_recorded.values()), axis=0)
        for reason, count in Counter(self.records.reason[left].tolist()).items():
            stopped["not ended" if reason is None else str(reason)] += count
        stopped += _together(by_recorded, stayed)
        found = sorted(stopped.items(), key=lambda one: (-one[1], one[0]))
        ended, unknown = outcome == FINISHED, int((outcome == UNKNOWN).sum())
        failed = int((self.records.reason[ended] == StopReason.ERROR).sum())
        told = [(FAILED_WORD, failed)] if failed else []
        return [*found, (FINISHED_WORD, int(ended.sum()) - failed), *told, (UNKNOWN_WORD, unknown)]

    def _fired(self, verdict: Verdict, stopped: Bools) -> Mapping[str, int]:
        """How many of the runs that were stopped were so by which limits together.

        `reasons.of` names them run by run, which takes longer than all the rest; numbers do where no run has to be looked into.
        """
        found = verdict.found
        off = stopped & found.broken.off
        if self.records.histories is not None and off.any():
            return Counter(name or UNCLEAR_WORD for name in why_ended(self.judge, verdict)[1][stopped].tolist())
        met = stopped & (found.met == verdict.row)
        unclear = met & (found.broken.off | found.broken.unsure)
        leaves = [] if found.tree is None else list(found.tree.leaves())
        told = _together({type(leaf).__name__: self.judge.first_of(leaf) <= verdict.row for leaf in leaves}, met & ~unclear)
        told[UNCLEAR_WORD] = int(unclear.sum())
        by_limit = found.broken.by[stopped & ~met]
        for place, limit in enumerate(found.limits):
            told[limit.name] += int((by_limit == place).sum())
        return +told

    def _as_recorded(self) -> Verdict:
        """The runs as they were: each to the end of its record."""
        records, judge = self.records, self.judge
        outcome = np.where(records.own_end, FINISHED, STOPPED).astype(np.uint8)
        done = np.where(judge.goal_open, np.nan, (judge.goal < records.lengths).astype(float))
        return Verdict(outcome, records.lengths - 1, self._last, done, cast(Any, None))


def _together(names: Mapping[str, Bools], where: Bools) -> Counter[str]:
    """In how many of these runs which of the names are true together, each with its names in one."""
    bits, told = np.zeros(len(where), np.int64), Counter[str]()
    for place, those in enumerate(names.values()):
        bits |= those.astype(np.int64) << place
    for number, count in enumerate(np.bincount(bits[where], minlength=1)):
        if count and number:
            told[", ".join(name for place, name in enumerate(names) if number >> place & 1)] += int(count)
    return told


def _all_stops(offered: Mapping[str, Offer]) -> list[Grid]:
    """Each limit with all its values, which the judge makes ready at once."""
    found: list[Grid] = []
    for name, offer in offered.items():
        kind = offer.kind
        if kind.measure == "tools":
            continue
        values = list(offer.values)
        found += grids(kind.condition(values), None) if kind.leaf is not None else grids(None, {name: values})
    return found


def limit_columns(offered: Mapping[str, Offer], several: Sequence[Mapping[str, Value]]) -> dict[str, Any]:
    """Columns with the limits of several configurations, NA where there is none."""
    found = {}
    for name in offered:
        values = [plain_value(one.get(name)) for one in several]
        found[name] = (
            pd.Series(values, dtype=object).convert_dtypes().array
            if any(v is not None for v in values)
            else (pd.array([pd.NA] * len(values), dtype="string" if KINDS[name].measure == "tools" else "Float64"))
        )
    return found


# The others -----------------------------------------------------------------------------------------------------------------------


class Others:
    """The coarse grid, tried piece by piece, so that nobody waits for it."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self.several = coarse(trials.offered, trials.opening)
        self._sums = Sums(len(self.several), 1)
        self.done = 0
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether all have been tried."""
        return self.done >= len(self.several)

    def one_more(self) -> None:
        """Try the next one, on whichever thread."""
        with self._lock:
            if not self.over:
                self._trials.add_to(self._sums, self.done, self.several[self.done])
                self.done += 1  # last: those that are done can be read meanwhile

    def finish(self) -> None:
        """Try all that are left."""
        while not self.over:
            self.one_more()

    def frame(self) -> pd.DataFrame:
        """A row for each that was tried, as `lab.backtest` gives it."""
        done = self.done
        if not done:
            return pd.DataFrame()
        front = limit_columns(self._trials.offered, self.several[:done])
        columns = self._sums.first(done).columns(LEVEL)
        return pd.DataFrame({"configuration": np.arange(done), **front, **columns})


def coarse(offered: Mapping[str, Offer], opening: Mapping[str, Value]) -> list[dict[str, Value]]:
    """At most MOST_CONFIGURATIONS, each the limits of the record with some of them changed: each limit alone, and up to three with each
    other. Tools are left as they were: to end at the first call of any tool would count as success."""
    numbers = {name: offer.values for name, offer in offered.items() if offer.kind.measure != "tools"}
    alone: list[dict[str, Value]] = [{name: value} for name, values in numbers.items() for value in values]
    alone += [{}]
    of_measure = {offered[name].kind.measure: name for name in reversed(GRID_NAMES) if name in numbers}
    axes = [name for name in GRID_NAMES if name in of_measure.values()][:MOST_AXES]
    left = MOST_CONFIGURATIONS - len(alone)
    each = int(max(left, 0) ** (1 / len(axes))) if len(axes) > 1 else 0
    thinned = {name: spread(numbers[name], each) for name in axes}
    together = [dict(zip(axes, values, strict=True)) for values in itertools.product(*thinned.values())] if each > 1 else []
    whole = [{**opening, **one} for one in (*alone, *together)]
    return list({tuple(one.items()): one for one in whole}.values())[:MOST_CONFIGURATIONS]


def spread(values: Sequence[Value], count: int) -> list[Value]:
    """So many of these values at most, evenly spread, the last among them."""
    if len(values) <= count or not values:
        return list(values)
    return [values[round((place + 1) * (len(values) - 1) / count)] for place in range(count)]
