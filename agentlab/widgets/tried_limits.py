"""The limits that can be tried on recorded runs: what each is called, and the values that are worth trying."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from agentlab.budget import Budget
from agentlab.errors import ConfigurationError
from agentlab.limits import no_such
from agentlab.stop import HasToolCall, MaxCost, MaxTokensUsed, StepCountIs, StopCondition
from agentlab.whatif.grids import fields_of
from agentlab.whatif.records import Records

MOST_STOPS = 40
"""More stops on a slider cannot be told apart."""
MOST_TOOLS = 12
"""So many tools have a box to tick; all others can be set from code."""
SKEWED = 12
"""Where the most is so many times the middle, values rise by factors."""
_STEPS = (1, 2, 5)
_FACTORS = (1, 2, 3, 5, 7)

Value: TypeAlias = Any
"""Of a limit: an int, a Decimal for money, a float for seconds; a tuple of names for tools; None where there is none."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A limit as it is named in code, and as a person reads it.

    `number` is the type of its value, `measure` the running total that it bounds, `leaf` makes the stop condition that it is; without
    one it is a limit of the budget.
    """

    name: str
    label: str
    unit: str
    number: type
    measure: str
    leaf: Callable[..., StopCondition] | None = None

    def condition(self, value: Value) -> StopCondition:
        """The stop condition with this value. Raises LimitError for what is no limit."""
        assert self.leaf is not None  # noqa: S101  for the type checker
        return self.leaf(*value) if self.leaf is HasToolCall else self.leaf(value)

    def checked(self, value: Value) -> Value:
        """The value as it is kept. Raises LimitError for what is no limit."""
        if value is None:
            return None
        if self.leaf is HasToolCall:
            names = (value,) if isinstance(value, str) else tuple(value)
            return HasToolCall(*names).names if names else None
        if self.leaf is None:
            return getattr(Budget(**{self.name: value}), self.name)
        made = self.condition(value)
        (field,) = fields_of(made)
        return getattr(made, field)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("StepCountIs", "Steps", "", int, "steps", StepCountIs),
        Kind("MaxTokensUsed", "Tokens", "", int, "tokens", MaxTokensUsed),
        Kind("MaxCost", "Cost", "USD", Decimal, "cost_usd", MaxCost),
        Kind("HasToolCall", "Tool called", "", tuple, "tools", HasToolCall),
        Kind("max_turns", "Max turns", "", int, "steps"),
        Kind("max_tokens", "Max tokens", "", int, "tokens"),
        Kind("max_cost", "Max cost", "USD", Decimal, "cost_usd"),
        Kind("max_calls", "Model calls", "", int, "calls"),
        Kind("timeout", "Time", "s", float, "time_s"),
    )
}
NOTHING: Mapping[str, Value] = {}
USUAL = ("StepCountIs", "MaxTokensUsed", "MaxCost", "max_calls", "timeout", "HasToolCall")


@dataclass(frozen=True, slots=True)
class Offer:
    """A limit with the values to try, the least first; for tools their names. With none, `why_not` says why."""

    kind: Kind
    values: tuple[Value, ...] = ()
    why_not: str = ""

    def place_of(self, value: Value) -> int:
        """The place of the value nearest to this one; behind the last is no limit."""
        if value is None:
            return len(self.values)
        return min(range(len(self.values)), key=lambda place: abs(float(self.values[place]) - float(value)), default=0)


def offers(
    records: Records, limits: object, usual: Sequence[str] = USUAL, recorded: Mapping[str, Value] = NOTHING
) -> dict[str, Offer]:
    """The limits by name, each with its values. `limits` names those that are wanted; a dict gives values to try, None the usual.
    The value that the runs had is among the values.

    Raises ConfigurationError for a name that is no limit, and LimitError for a value that is none.
    """
    wanted = _wanted(limits, usual)
    return {name: _with(recorded.get(name), _offer(records, KINDS[name], values)) for name, values in wanted.items()}


def _with(value: Value, offer: Offer) -> Offer:
    if value is None:
        return offer
    if isinstance(value, tuple):
        return Offer(offer.kind, tuple(dict.fromkeys((*value, *offer.values))))
    return Offer(offer.kind, tuple(sorted({*offer.values, value})))


def _wanted(limits: object, usual: Sequence[str]) -> Mapping[str, Sequence[Value] | None]:
    if limits is None:
        return dict.fromkeys(usual)
    if isinstance(limits, str) or not isinstance(limits, Iterable):
        raise ConfigurationError(
            f"explore(…, limits={limits!r}): pass names in a list, such as ['StepCountIs', 'MaxCost'], or a dict."
        )
    wanted = dict(limits) if isinstance(limits, Mapping) else dict.fromkeys(limits)
    for name in wanted:
        if name not in KINDS:
            raise ConfigurationError(f"explore(…, limits=…): {no_such('limit', str(name), list(KINDS))}")
    if not wanted:
        raise ConfigurationError("explore(…, limits=[]): name at least one, such as 'StepCountIs'.")
    return wanted


def _offer(records: Records, kind: Kind, given: Sequence[Value] | None) -> Offer:
    if kind.leaf is HasToolCall:
        names = tuple(map(str, given)) if given is not None else _tools(records)
        no_column = given is None and "tools" not in records.steps.columns
        why_not = "the steps have no column 'tools'" if no_column else "no tool was called in these runs"
        return Offer(kind, names, "" if names else why_not)
    if given is not None:
        values = sorted({kind.checked(value) for value in given if value is not None})
        if not values:
            raise ConfigurationError(f"explore(…, limits={{{kind.name!r}: …}}): give at least one value, or None for the usual.")
        return Offer(kind, tuple(values))
    return _from_the_data(records, kind)


def _from_the_data(records: Records, kind: Kind) -> Offer:
    there = records.lengths > 0
    if not there.any():
        return Offer(kind, why_not="no run took a step")
    last = records.start[1:][there] - 1
    if kind.measure == "steps":
        return Offer(kind, round_values(1.0, records.lengths[there].astype(float), int))
    known = records.totals[kind.measure]
    firsts, totals = known[records.start[:-1][there]], known[last]
    firsts, totals = firsts[~np.isnan(firsts)], totals[~np.isnan(totals)]
    if not len(totals):
        return Offer(kind, why_not="not known in any of these runs")
    if totals.max() <= 0:
        return Offer(kind, why_not="0 in all of these runs")
    if kind.name == "max_calls" and (totals == records.lengths[there]).all():
        return Offer(kind, why_not="one call a step in all of these runs: the limit on steps is the same")
    return Offer(kind, round_values(float(firsts.min(initial=totals.min())), totals, kind.number))


def _tools(records: Records) -> tuple[str, ...]:
    """The tools that were called, those of most steps first."""
    if "tools" not in records.steps.columns:
        return ()
    counts: dict[str, int] = {}
    for cell, count in records.steps["tools"].dropna().value_counts().items():
        for name in dict.fromkeys(str(cell).split(", ")):
            if name.strip():
                counts[name] = counts.get(name, 0) + int(count)
    return tuple(sorted(counts, key=lambda name: (-counts[name], name))[:MOST_TOOLS])


# Round values ---------------------------------------------------------------------------------------------------------------------


def round_values(least: float, totals: Any, kind: type) -> tuple[Value, ...]:
    """Round numbers from about the least to the most of the totals, few enough for a slider."""
    most = float(totals.max())
    whole = kind is int
    if float(np.median(totals)) * SKEWED < most:
        found = _by_factors(max(least, most / 1e6), most, whole=whole)
    else:
        found = _by_steps(least, most, whole=whole)
    return tuple(int(value) if whole else value if kind is Decimal else float(value) for value in found)


def _by_steps(least: float, most: float, *, whole: bool) -> list[Decimal]:
    """Equally far from each other."""
    exponent = math.floor(math.log10(most / MOST_STOPS))
    sizes = (Decimal(digit).scaleb(power) for power in range(exponent, max(exponent, -1) + 2) for digit in _STEPS)
    size = next(size for size in sizes if math.ceil(most / float(size)) <= MOST_STOPS and (size >= 1 or not whole))
    first, last = max(1, math.floor(least / float(size))), math.ceil(most / float(size) - 1e-9)
    return [size * place for place in range(first, max(first, last) + 1)]


def _by_factors(least: float, most: float, *, whole: bool) -> list[Decimal]:
    """Each about one and a half times the one before: for what a few runs use far more of than the others."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    rising = [Decimal(digit).scaleb(power) for power in powers for digit in _FACTORS]
    rising = [value for value in rising if value >= 1 or not whole]
    above = next((place for place, value in enumerate(rising) if value >= Decimal(repr(most))), len(rising) - 1)
    found = [value for value in rising[: above + 1] if float(value) >= least] or [rising[above]]
    return found[-MOST_STOPS:]
