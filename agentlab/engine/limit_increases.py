"""Limit increases: raises limits that were reached, and raises or turns off conditions that were met."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from decimal import ROUND_UP, Decimal
from typing import Any, TypeVar

from agentlab._internal.formatting import in_words
from agentlab._internal.values import dataclass
from agentlab.engine.continuation import least_tokens
from agentlab.limits.budget import TOTAL_OF, USED, DefaultTurns
from agentlab.limits.combinators import Not, Off, StopCondition
from agentlab.limits.condition_tree import describe
from agentlab.limits.fields import limit_fields
from agentlab.limits.reading import Reading
from agentlab.limits.settings import EDITABLE, RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.records.history import RunHistory
from agentlab.records.result import LARGER

Number = TypeVar("Number", int, float, Decimal)

_ABOUT = {field.name: field.metadata for part in EDITABLE.values() for field in limit_fields(part)}
_MOST_DOUBLINGS = 40


@dataclass(frozen=True, slots=True)
class LimitIncrease:
    """Changes that raise limits or turn conditions off, with their description. False if there are none.

    `edits` are fields for `LiveSettings.edit`, `conditions` are fields of single conditions, `off` has the names of conditions to turn
    off, and `raised` describes the first two.
    """

    edits: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    off: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.edits or self.conditions or self.off)

    def with_field(self, name: str, value: Any) -> LimitIncrease:
        """Add a field of the settings."""
        raised = f"{_ABOUT[name].get('label', name)} to {in_words(value, _ABOUT[name]['unit'])}"
        return dataclasses.replace(self, edits={**self.edits, name: value}, raised=(*self.raised, raised))

    def with_leaf(self, leaf: str, name: str, value: Any, unit: str) -> LimitIncrease:
        """Add a field of a condition."""
        raised = (*self.raised, f"{leaf} to {in_words(value, unit)}")
        return dataclasses.replace(self, conditions={**self.conditions, leaf: {name: value}}, raised=raised)

    def and_also(self, other: LimitIncrease) -> LimitIncrease:
        """Add those edits of `other` that this one does not have."""
        merged = self
        for name, value in other.edits.items():
            if name not in merged.edits:
                merged = merged.with_field(name, value)
        return merged

    @property
    def words(self) -> str:
        """The raised limits with their new values: `the turn limit to 40 and StepCountIs to 16`."""
        return _listed(self.raised)

    @property
    def sentence(self) -> str:
        """All changes: `Turn Custom off, raise the turn limit to 40`."""
        off = f"turn {_listed(self.off)} off" if self.off else ""
        sentence = ", ".join(filter(None, [off, f"raise {self.words}" if self.raised else ""]))
        return sentence[:1].upper() + sentence[1:]


def raised_limits(settings: RunSettings, history: RunHistory, elapsed_s: float | None = None) -> LimitIncrease:
    """Raise every limit that is reached after these steps, so that the run can continue for about as long again."""
    raised = LimitIncrease()
    spent_s = history.elapsed_s if elapsed_s is None else elapsed_s
    terminating = settings.terminating
    if terminating is not None and history.own_calls >= terminating.max_invocations:
        raised = raised.with_field("max_invocations", larger(terminating.max_invocations, history.own_calls))
    readings = settings.budget.before_last_answer().readings(history, spent_s)
    for reading in sorted(readings, key=lambda one: isinstance(one.limit, DefaultTurns)):
        counts = [raised.edits.get(name, 0) for name in ("max_calls", "max_invocations")]
        # The default of max_turns yields to limits on the calls.
        is_reached = reading.met or (reading.name == "max_tokens" and _left_too_few_tokens(reading.limit, history))
        if is_reached and not (isinstance(reading.limit, DefaultTurns) and max(counts) > reading.limit):
            limit: Any = getattr(settings.budget, reading.name)
            used, once = _used(reading.name, history, spent_s)
            raised = raised.with_field(reading.name, larger(limit, used, once))
    return raised


def _left_too_few_tokens(limit: Any, history: RunHistory) -> bool:
    """True if the newest step ended the run since this limit left too few tokens to continue a cut answer."""
    last = history.last
    if last is None or not last.calls or last.decision.stop_reason is not StopReason.TOKEN_BUDGET:
        return False
    left: int = limit - history.known_tokens
    return left < least_tokens(last.calls)


def _used(name: str, history: RunHistory, elapsed_s: float) -> tuple[Any, Any]:
    """Return the known usage for a limit, and the part of the newest step."""
    last = history.last
    if name == "timeout":
        return elapsed_s, 0.0 if last is None else last.duration_s
    read = USED[TOTAL_OF[name]]
    used = read(history)[1]
    return used, used - read(history.prefix(len(history) - 1))[1] if last is not None else used


# Conditions -----------------------------------------------------------------------------------------------------------------


def raised_conditions(condition: StopCondition, reading: Reading, history: RunHistory) -> LimitIncrease:
    """Raise numbers so that the condition is no longer met; empty if raising is not enough."""
    tree, raised = condition, LimitIncrease()
    named, readings = list(describe(condition).items()), list(reading.leaves())
    for place, negated in _deciding(condition, reading):
        name, leaf = named[place]
        if negated or (higher := _higher(leaf, readings[place], history)) is None:
            continue
        changed, number, value, readings[place] = higher
        tree = tree.with_leaf(leaf, changed)
        raised = raised.with_leaf(name, number.name, value, number.metadata["unit"])
        if not tree.combine(iter(readings)).met:
            return raised
    return LimitIncrease()


def conditions_off(condition: StopCondition, reading: Reading) -> LimitIncrease:
    """Turn conditions off so that the whole is no longer met."""
    tree, off = condition, LimitIncrease()
    named, readings = list(describe(condition).items()), list(reading.leaves())
    for place, _ in _deciding(condition, reading):
        name, leaf = named[place]
        tree = tree.with_leaf(leaf, Off(leaf))
        off = dataclasses.replace(off, off=(*off.off, name))
        if not tree.combine(iter(readings)).met:
            return off
    return LimitIncrease()


def _deciding(condition: StopCondition, reading: Reading, first: int = 0) -> Iterator[tuple[int, bool]]:
    """Yield the positions in `leaves()` of the conditions that decided, and whether each is negated: it decided by not being met."""
    if condition.is_off or not reading.met:
        return
    if not condition.parts:
        yield first, False
        return
    for part, child in zip(condition.parts, reading.children, strict=True):
        end = first + sum(1 for _ in part.leaves())
        if isinstance(condition, Not):
            yield from ((place, True) for place in range(first, end))
        else:
            yield from _deciding(part, child, first)
        first = end


def _higher(leaf: StopCondition, reading: Reading, history: RunHistory) -> tuple[StopCondition, Any, Any, Reading] | None:
    """Raise the only number of a condition until it is no longer met; None if it has none or several, or if raising does not help."""
    numbers = [one for one in limit_fields(leaf) if _is_number(getattr(leaf, one.name))]
    if len(numbers) != 1:
        return None
    value: Any = getattr(leaf, numbers[0].name)
    with contextlib.suppress(Exception):  # a user's condition may refuse the number, or raise
        value = larger(value, type(value)(reading.value) if _is_number(reading.value) else value)
        for _ in range(_MOST_DOUBLINGS):
            changed = leaf.changed(**{numbers[0].name: value})
            read = changed.read(history)
            if not read.met:
                return changed, numbers[0], value, read
            value = twice(value)
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value)


# Numbers --------------------------------------------------------------------------------------------------------------------


def twice(number: Number) -> Number:
    """Return twice the number."""
    return number * LARGER


def larger(limit: Number, used: Number, once: Number | None = None) -> Number:
    """Return twice the limit, but at least the usage plus `once`; None means the limit itself."""
    doubled = twice(limit)
    least = used + max(limit, limit if once is None else once)
    return doubled if doubled >= least else _round_up(least)


def _round_up(number: Number) -> Number:
    """Round up to two significant digits."""
    exact = Decimal(str(number))
    unit = Decimal(1).scaleb(exact.adjusted() - 1)
    rounded = exact.quantize(unit, ROUND_UP) if unit >= 1 or exact != exact.to_integral_value() else exact
    return type(number)(rounded)


def _listed(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
