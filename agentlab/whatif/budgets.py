"""The limits of a budget over all runs at once.

Like conditions they are read behind each step, where the limit of turns is met at the last of them; but they are also read before each
further call of a step, and time runs all through it. So a limit may break a step off: then the run ends in it, with what the calls that
were made had used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agentlab.budget import LIMIT_REASONS
from agentlab.types import StopReason
from agentlab.whatif.conditions import First
from agentlab.whatif.first_met import first_met
from agentlab.whatif.records import USED, Bools, Floats, Ints, Records, calls_inside

COUNTED = {"max_tokens": "tokens", "max_cost": "cost_usd", "max_calls": "calls", "timeout": "time_s"}
"""Which running total each limit bounds."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit over all runs: the first row at which it is met."""

    name: str
    value: Any
    first: First

    @property
    def reason(self) -> StopReason:
        """Why a run ends that reaches it."""
        return LIMIT_REASONS[self.name]


def limits_over(records: Records, name: str, values: list[Any]) -> list[Limit]:
    """A limit with each of several values."""
    if name == "max_turns":
        firsts = list(np.minimum(np.array(values)[:, None] - 1, records.lengths[None, :]))
    else:
        firsts = list(first_met(records.used[COUNTED[name]], records.start, np.array([float(value) for value in values])))
    return [Limit(name, value, first) for value, first in zip(values, firsts, strict=True)]


@dataclass(slots=True)
class Broken:
    """What limits do to the steps in which runs stop, a place a run.

    `off`: the step is broken off; `behind` so many calls. `unsure`: it cannot be told whether it is, or with what. `by` is the place
    of the limit among those that were looked at.
    """

    off: Bools
    unsure: Bools
    behind: Ints
    by: Ints
    used: dict[str, Floats]


def break_off(records: Records, limits: list[Limit], stop: First) -> Broken:
    """Look at the runs that stop by these limits, in the order of a budget, whether their last step is broken off."""
    runs = len(records)
    nothing = {name: np.full(runs, np.nan) for name in USED}
    broken = Broken(np.zeros(runs, bool), np.zeros(runs, bool), np.zeros(runs, np.int64), np.full(runs, -1), nothing)
    stops = stop < records.lengths
    rows = np.where(stops, records.start[:-1] + stop, 0)
    for place, limit in enumerate(limits):
        here = stops & (limit.first == stop)
        broken.by[here & (broken.by < 0)] = place
        if not here.any() or limit.name == "max_turns":
            continue
        if limit.name == "timeout":
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


def _before_a_call(records: Records, broken: Broken, run: int, limits: list[Limit], place: int) -> None:
    """A limit on what is used is looked at before each further call."""
    limit = limits[place]
    row = int(records.start[run] + limit.first[run])
    calls = records.inside.get(row)
    if not calls:
        broken.unsure[run] = True
        return
    reached = next((number for number, call in enumerate(calls, 1) if call.used[COUNTED[limit.name]] >= float(limit.value)), None)
    one_more = bool(records.wanted_more[run]) and row == records.start[run + 1] - 1
    if reached is None:  # by sub-agents, which would have been held to what was left
        broken.unsure[run] = True
    elif reached > 1 and limit.name == "max_tokens" and calls[reached - 1].said > limit.value - calls[reached - 2].used["tokens"]:
        broken.unsure[run] = True  # the call goes on with a cut answer, and would have been given no more than what was left
    elif reached < len(calls) or one_more:
        used = calls[reached - 1].used
        met = [
            limit.first[run] == row - records.start[run] if limit.name == "max_turns" else _is_met(limit, used)
            for limit in limits
        ]
        _note(broken, run, reached, calls[reached - 1].totals, met.index(True))
    elif records.steps["child_calls"].iloc[row] if "child_calls" in records.steps.columns else 0:
        broken.unsure[run] = True


def _is_met(limit: Limit, used: dict[str, float]) -> bool:
    return bool(used[COUNTED[limit.name]] >= float(limit.value))


def _by_time_unseen(broken: Broken, runs: Ints, limit: float, place: int) -> None:
    """Time is up in the middle of steps of which frames alone cannot tell what had come by then: all these runs at once."""
    broken.unsure[runs] = True
    newly = runs[~broken.off[runs] | (broken.behind[runs] > 0)]
    broken.off[newly], broken.behind[newly], broken.by[newly] = True, 0, place
    for name in USED:
        broken.used[name][newly] = limit if name == "time_s" else np.nan


def _by_time(records: Records, broken: Broken, run: int, limits: list[Limit], place: int) -> None:
    """Time is up in the middle of a step: what was asked for and had not come is lost."""
    assert records.histories is not None  # noqa: S101  for the type checker
    limit = float(limits[place].value)
    row = int(records.start[run] + limits[place].first[run])
    history, number = records.histories(run), row - int(records.start[run])
    step = history[number]
    behind = sum(call.started_s + call.duration_s <= limit for call in step.calls)
    if behind == 0:
        used = dict.fromkeys(USED, 0.0) if number == 0 else {name: float(records.totals[name][row - 1]) for name in USED}
    elif behind == len(step.calls) and not step.children:
        used = {name: float(records.totals[name][row]) for name in USED}
    else:  # only here the steps before it have to be added up call by call
        used = list(calls_inside(history, number))[behind - 1].totals
    _note(broken, run, behind, {**used, "time_s": limit}, place)


def _note(broken: Broken, run: int, behind: int, used: dict[str, float], by: int) -> None:
    """The first that breaks a step off counts: that of a limit on what is used comes with the end of a call, before time is up."""
    if broken.off[run] and behind >= broken.behind[run]:
        return
    broken.off[run], broken.behind[run], broken.by[run] = True, behind, by
    for name in USED:
        broken.used[name][run] = used[name]
