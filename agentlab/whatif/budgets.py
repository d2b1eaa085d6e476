"""The limits of a budget over all runs at once.

Like conditions they are read after each step; but they are also read before each further call of a step, and time passes during it. So
a limit may break a step off: then the run ends in it, with what the calls that were made had used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agentlab.budget import LIMIT_REASONS, Budget
from agentlab.limits import limit_fields
from agentlab.types import StopReason
from agentlab.whatif.conditions import First
from agentlab.whatif.first_met import first_met
from agentlab.whatif.records import USED, Bools, Floats, Ints, Records, calls_inside

_MEASURES = {"turns": "steps", "calls": "calls", "tokens": "tokens", "USD": "cost_usd", "s": "time_s"}
BOUNDED = {field.name: _MEASURES[field.metadata["unit"]] for field in limit_fields(Budget) if field.name in LIMIT_REASONS}
"""The running total that each limit bounds, by its unit; steps are counted."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit over all runs: the first row at which it is met."""

    name: str
    value: Any
    first: First

    @property
    def reason(self) -> StopReason:
        """The stop reason of a run that reaches it."""
        return LIMIT_REASONS[self.name]

    @property
    def measure(self) -> str:
        """The running total that it bounds."""
        return BOUNDED[self.name]

    def is_met(self, used: dict[str, float]) -> bool:
        """True if what was used reaches it. It is none on steps."""
        return bool(used[self.measure] >= float(self.value))


def limits_over(records: Records, name: str, values: list[Any]) -> list[Limit]:
    """A limit with each of several values."""
    if BOUNDED[name] == "steps":
        firsts = list(np.minimum(np.array(values)[:, None] - 1, records.lengths[None, :]))
    else:
        firsts = list(first_met(records.used[BOUNDED[name]], records.start, np.array([float(value) for value in values])))
    return [Limit(name, value, first) for value, first in zip(values, firsts, strict=True)]


@dataclass(slots=True)
class BrokenSteps:
    """Which of the steps in which runs stop are broken off by limits, one place per run.

    `off`: the step is broken off, after so many `calls`. `unsure`: it is not known whether it is, or with what usage. `by` is the place
    of the limit among those that were checked.
    """

    off: Bools
    unsure: Bools
    calls: Ints
    by: Ints
    used: dict[str, Floats]


def broken_steps(records: Records, limits: list[Limit], stop: First) -> BrokenSteps:
    """Of the runs that stop by these limits, in the order of a budget, whether their last step is broken off."""
    runs = len(records)
    nothing = {name: np.full(runs, np.nan) for name in USED}
    broken = BrokenSteps(np.zeros(runs, bool), np.zeros(runs, bool), np.zeros(runs, np.int64), np.full(runs, -1), nothing)
    stops = stop < records.lengths
    rows = np.where(stops, records.start[:-1] + stop, 0)
    for place, limit in enumerate(limits):
        here = stops & (limit.first == stop)
        broken.by[here & (broken.by < 0)] = place
        if not here.any() or limit.measure == "steps":
            continue
        if limit.measure == "time_s":
            inside = np.flatnonzero(here & (records.used["time_s"][rows] > limit.value))
            if records.histories is None:
                _by_time_unseen(broken, inside, float(limit.value), place)
            else:
                for run in inside:
                    _by_time(records, broken, int(run), limits, place)
        else:
            for run in np.flatnonzero(here & records.several_calls[rows]):
                _before_a_call(records, broken, int(run), limits, place)
    return broken


def _before_a_call(records: Records, broken: BrokenSteps, run: int, limits: list[Limit], place: int) -> None:
    """A limit on usage is checked before each further call."""
    limit = limits[place]
    row = int(records.start[run] + limit.first[run])
    calls = records.inside.get(row)
    if not calls:
        broken.unsure[run] = True
        return
    reached = next((number for number, call in enumerate(calls, 1) if limit.is_met(call.used)), None)
    one_more = bool(records.wanted_more[run]) and row == records.start[run + 1] - 1
    if reached is None:  # by sub-agents, which would have had what was left as their limit
        broken.unsure[run] = True
    elif (
        reached > 1
        and limit.measure == "tokens"
        and calls[reached - 1].output_tokens > limit.value - calls[reached - 2].used["tokens"]
    ):
        broken.unsure[run] = True  # the call continued a cut answer, and would have had only what was left
    elif reached < len(calls) or one_more:
        used = calls[reached - 1].used
        at = row - records.start[run]
        met = [one.first[run] == at if one.measure == "steps" else one.is_met(used) for one in limits]
        _note(broken, run, reached, calls[reached - 1].totals, met.index(True))
    elif records.steps["child_calls"].iloc[row] if "child_calls" in records.steps.columns else 0:
        broken.unsure[run] = True


def _by_time_unseen(broken: BrokenSteps, runs: Ints, limit: float, place: int) -> None:
    """Time is up during steps of which a frame does not say what was complete by then: all these runs at once."""
    broken.unsure[runs] = True
    newly = runs[~broken.off[runs] | (broken.calls[runs] > 0)]
    broken.off[newly], broken.calls[newly], broken.by[newly] = True, 0, place
    for name in USED:
        broken.used[name][newly] = limit if name == "time_s" else np.nan


def _by_time(records: Records, broken: BrokenSteps, run: int, limits: list[Limit], place: int) -> None:
    """Time is up during a step: the call that was under way is lost."""
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
    else:  # only here the calls have to be added up one by one
        used = list(calls_inside(history, number))[complete - 1].totals
    _note(broken, run, complete, {**used, "time_s": limit}, place)


def _note(broken: BrokenSteps, run: int, complete: int, used: dict[str, float], by: int) -> None:
    """Record that a limit breaks a step off. The first one counts: limits on usage are met at the end of a call, before time is up."""
    if broken.off[run] and complete >= broken.calls[run]:
        return
    broken.off[run], broken.calls[run], broken.by[run] = True, complete, by
    for name in USED:
        broken.used[name][run] = used[name]
