"""How many tasks a comparison needs, and which difference was to be seen with the tasks that there were.

lab.power(pilot, "score", difference=0.1)     before a run, from the runs of a pilot
lab.power(spread=0.6, difference=0.1)         the same, with an assumed spread
lab.power(results, "score")                   after it: the smallest difference that was likely to be found
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from scipy.optimize import brentq

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import counted, percent
from agentlab.analysis.compare import default_shared
from agentlab.analysis.groups import (
    By,
    checked,
    columns_of,
    each_once,
    failed_of,
    floats,
    in_order,
    names_of,
    runs_of,
    scores_of,
    whole_runs,
)
from agentlab.analysis.intervals import MIN_UNITS, checked_level, student
from agentlab.errors import ConfigurationError
from agentlab.records.frames import Recordings

QUANTILES = 2_000
"""Number of standard deviations of samples over which the power is a mean."""


@dataclass(frozen=True, slots=True)
class Power(Displayable):
    """The power of a comparison of two groups on the same tasks, by the paired t test over tasks.

    `spread` is the standard deviation of the difference between the groups per task, `tasks` their number, `difference` the difference
    in the mean, `power` the chance to find it at this `level`. `pilot_tasks` is the number of tasks that `spread` comes from; None: it
    was given.

    Example:
        >>> lab.power(spread=0.5, difference=0.1).tasks
        199
    """

    tasks: int
    difference: float
    spread: float
    power: float
    level: float
    pilot_tasks: int | None = None

    def __repr__(self) -> str:
        origin = "" if self.pilot_tasks is None else f" (estimated from {counted(self.pilot_tasks, 'task')})"
        return (
            f"Power({counted(self.tasks, 'task')} for a difference of {self.difference:.3g}: found in {percent(self.power)} of studies "
            f"at {percent(self.level)}, if differences per task have a standard deviation of {self.spread:.3g}{origin})"
        )


def power(
    runs: Recordings | pd.DataFrame | None = None,
    what: str = "score",
    by: By = "agent",
    *,
    difference: float | None = None,
    tasks: int | None = None,
    spread: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
) -> Power:
    """Return how many tasks it takes to find a `difference`, or the smallest difference that `tasks` find, with this `power`.

    `runs`, of a pilot or a study with at least two groups on the same tasks, give the `spread`: the standard deviation of the groups'
    difference per task, where repeats of a task count as their mean; of several pairs of groups the largest. Or pass `spread`, which
    for yes-or-no scores is at most 1. With neither `difference` nor `tasks`, the tasks are those of `runs`. More repeats make the
    spread smaller down to what tasks differ by themselves; more tasks help always. A spread from few tasks is uncertain: with 10, it
    may well be a third too small. The test is the paired t test, two-sided, at `level`.

    Raises ConfigurationError if the spread is unknown, or 0.

    Example:
        >>> import pandas as pd
        >>> runs = pd.DataFrame({"agent": ["a"] * 6 + ["b"] * 6, "prompt_id": [*"uvwxyz"] * 2, "score": [1, 0, 1, 1, 0, 1] + [0] * 6})
        >>> lab.power(runs, difference=0.2)
        Power(55 tasks for a difference of 0.2: found in 80% of studies at 95%, if differences per task have a standard deviation of
        0.516 (estimated from 6 tasks))
        >>> round(lab.power(runs).difference, 2)
        0.74
    """
    level, pilot = checked_level(level), None
    if not 0 < power < 1:
        raise ConfigurationError(f"power={power!r}: pass a number between 0 and 1, such as 0.8.")
    if difference is not None and tasks is not None:
        raise ConfigurationError("Pass difference or tasks: the other one is the answer.")
    if runs is not None and spread is None:
        spread, pilot = _spread(runs, what, by)
        tasks = pilot if difference is None and tasks is None else tasks
    if pilot is not None and spread == 0:
        raise ConfigurationError(
            f"The groups differ by the same {what!r} on each of {pilot} tasks, so the runs do not show how much the difference varies: "
            "pass runs of more tasks, or an assumed spread, such as spread=0.5."
        )
    if spread is None or not spread > 0:
        raise ConfigurationError(
            f"spread={spread!r}: pass runs of at least two groups on {MIN_UNITS} tasks, or an assumed spread, such as spread=0.5."
        )
    if difference is not None:
        if not isinstance(difference, int | float | np.number) or not np.isfinite(difference) or difference == 0:
            raise ConfigurationError(
                f"difference={difference!r}: pass a number other than 0, such as 0.1 for ten percentage points."
            )
        size, low, high = abs(difference) / spread, 1, 2
        while _power(size, high, level) < power:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _power(size, middle, level) >= power else (middle, high)
        return Power(high, abs(difference), spread, power, level, pilot)
    if tasks is None or isinstance(tasks, bool) or tasks < 2:
        raise ConfigurationError(f"tasks={tasks!r}: pass the number of tasks, at least 2, or the difference to find.")
    tasks = int(tasks)
    most = 4 * student(level, tasks - 1) + 10  # of the standard deviations of `_power`, none is four times the true one
    found = float(brentq(lambda size: _power(size, tasks, level) - power, 0.0, most))
    return Power(tasks, found * spread, spread, power, level, pilot)


def _power(size: float, tasks: int, level: float) -> float:
    """Return the power of the paired t test for a mean of this `size` in standard deviations: that of the normal test, as a mean over
    the standard deviations that a sample may have. scipy's noncentral t distribution is NaN at many arguments."""
    chances = (np.arange(QUANTILES) + 0.5) / QUANTILES
    spreads = np.sqrt(special.chdtri(tasks - 1, chances) / (tasks - 1))
    mean, edges = size * math.sqrt(tasks), student(level, tasks - 1) * spreads
    return float((special.ndtr(mean - edges) + special.ndtr(-mean - edges)).mean())


def _spread(runs: Any, what: str, by: By) -> tuple[float, int]:
    """Return the largest standard deviation of the difference per task of two groups, and its number of tasks."""
    columns, given = columns_of(by), runs_of(runs, "lab.power")
    shared = [default_shared(given, columns)[0]]
    frame = whole_runs(each_once(checked(given, [*columns, what, *shared], "lab.power")))
    values = np.where(frame[shared[0]].notna(), floats(frame, what), np.nan)  # a run of an unknown task has no partner
    if what == "score" or what.startswith("score."):
        values = scores_of(values, failed_of(frame, "count"))
    keys = [names_of(frame, shared).rename("task"), names_of(frame, columns).rename("group")]
    table = pd.Series(values, index=frame.index).groupby(keys).mean().unstack("group")
    groups = [name for name in in_order(keys[1]) if name in table.columns]
    spreads = []
    for one, other in combinations(groups, 2):
        differences = (table[one] - table[other]).dropna()
        if len(differences) >= MIN_UNITS:
            spread = float(differences.std(ddof=1))
            rounded = spread <= 1e-12 * float(differences.abs().max())  # equal differences, apart from the last digit
            spreads.append((0.0 if rounded else spread, len(differences)))
    if not spreads:
        raise ConfigurationError(
            f"The runs have no two groups of {', '.join(columns)} with {what!r} on {MIN_UNITS} common tasks: pass spread=…."
        )
    return max(spreads)
