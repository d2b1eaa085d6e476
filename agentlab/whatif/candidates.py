"""Limits worth trying where a person names none: around what the successful runs had used by then."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import combinations
from typing import Any

import numpy as np

from agentlab.errors import ConfigurationError
from agentlab.stop import MaxCost, MaxTokensUsed, StepCountIs, StopCondition
from agentlab.whatif.conditions import First
from agentlab.whatif.records import Bools, Floats, Records

SHARES = (0.25, 0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1.0)
"""Limits at these shares of the successes; most of them near the share that is to be kept."""
DIGITS = 2
"""Limits are rounded up to so many digits: to be readable, and to depend little on single runs."""


def candidates(records: Records, goal: First, succeeded: Bools, keep: float) -> dict[str, StopCondition | None]:
    """Grids by name: no limit, which is the record itself; steps, tokens and cost, each alone and in pairs."""
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
    """What each success had used before the step in which it succeeded, which a higher limit allows. Empty where little is known."""
    try:
        totals = records.totals[name]
    except ConfigurationError:
        return np.zeros(0)
    rows = (records.start[:-1] + goal)[succeeded] - 1
    first = goal[succeeded] == 0
    used = np.where(first, 0.0, totals[np.where(first, 0, rows)])
    known = used[~np.isnan(used)]
    return known if 2 * len(known) >= len(used) else np.zeros(0)


def _above(value: float, *, whole: bool) -> Any:
    """The next number of few digits that is above `value`."""
    exact = Decimal(repr(float(value)))
    unit = Decimal(1).scaleb(math.floor(math.log10(value)) - DIGITS + 1)
    unit = max(unit, Decimal(1)) if whole else unit
    found = (exact // unit + 1) * unit
    return int(found) if whole else found.normalize()
