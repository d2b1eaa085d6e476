"""What gives a run more room: limits that are met, raised; conditions that are met, raised or turned off; and how that is said."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_UP, Decimal
from typing import Any, TypeVar

from agentlab.amounts import in_words
from agentlab.budget import DefaultTurns
from agentlab.history import ZERO, RunHistory
from agentlab.leaf_names import describe
from agentlab.limits import LARGEST
from agentlab.results import Reading
from agentlab.settings import EDITABLE, RunSettings
from agentlab.stop import Not, Off, StopCondition
from agentlab.suggestions import LARGER

Number = TypeVar("Number", int, float, Decimal)

_IN_WORDS = {
    "max_turns": "the turn limit",
    "max_calls": "the call limit",
    "max_tokens": "the token budget",
    "max_tokens_per_turn": "the output cap",
    "max_cost": "the cost budget",
    "timeout": "the time limit",
    "max_invocations": "the call limit of the terminating tools",
    "consecutive_nudges": "the reminders in a row",
    "max_continuations_per_turn": "the continuations of an answer",
    "max_total_completion_tokens_per_turn": "the output tokens of a step",
    "max_total_output_chars_per_turn": "the characters of a step",
    "max_tool_repair_attempts": "the repairs of a tool call",
}
_UNITS = {one.name: one.metadata.get("unit", "") for part in EDITABLE.values() for one in dataclasses.fields(part)}
_MOST_DOUBLINGS = 40


@dataclass(frozen=True, slots=True)
class Raised:
    """Changes that give more room, and their words. False where there is none.

    `edits` are fields for `LiveSettings.edit`, `leaves` those of single conditions, `off` the names of conditions to be turned off.
    """

    edits: Mapping[str, Any] = field(default_factory=dict)
    leaves: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    off: tuple[str, ...] = ()
    told: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.edits or self.leaves or self.off)

    def with_field(self, name: str, value: Any) -> Raised:
        """With this field of the settings as well."""
        said = f"{_IN_WORDS.get(name, name)} to {in_words(value, _UNITS.get(name, ''))}"
        return dataclasses.replace(self, edits={**self.edits, name: value}, told=(*self.told, said))

    def with_leaf(self, leaf: str, name: str, value: Any, unit: str) -> Raised:
        """With this field of a condition as well."""
        told = (*self.told, f"{leaf} to {in_words(value, unit)}")
        return dataclasses.replace(self, leaves={**self.leaves, leaf: {name: value}}, told=told)

    def and_also(self, other: Raised) -> Raised:
        """With what `other` changes as well, where this one does not."""
        both = self
        for name, value in other.edits.items():
            if name not in both.edits:
                both = both.with_field(name, value)
        return both

    @property
    def words(self) -> str:
        """What is raised, and to what: `the turn limit to 40 and StepCountIs to 16`."""
        return _listed(self.told)

    @property
    def sentence(self) -> str:
        """All of it: `Turn Custom off, raise the turn limit to 40`."""
        off = f"turn {_listed(self.off)} off" if self.off else ""
        said = ", ".join(filter(None, [off, f"raise {self.words}" if self.told else ""]))
        return said[:1].upper() + said[1:]


def more_room(settings: RunSettings, history: RunHistory, elapsed_s: float | None = None) -> Raised:
    """Every limit that is met after these steps, raised, so that the run goes on for about as long again."""
    raised = Raised()
    spent_s = history.elapsed_s if elapsed_s is None else elapsed_s
    terminating = settings.terminating
    if terminating is not None and history.own_calls >= terminating.max_invocations:
        raised = raised.with_field("max_invocations", larger(terminating.max_invocations, history.own_calls))
    readings = settings.budget.readings(history, spent_s)
    for reading in sorted(readings, key=lambda one: isinstance(one.limit, DefaultTurns)):
        counts = [raised.edits.get(name, 0) for name in ("max_calls", "max_invocations")]
        if reading.met and not (isinstance(reading.limit, DefaultTurns) and max(counts) > reading.limit):  # it yields to these
            limit: Any = getattr(settings.budget, reading.name)
            used, once = _used(reading.name, history, spent_s)
            raised = raised.with_field(reading.name, larger(limit, used, once))
    return raised


def _used(name: str, history: RunHistory, spent_s: float) -> tuple[Any, Any]:
    """What is used of a limit, as far as it is known, and how much of that by the newest step."""
    last = history.last
    calls = () if last is None else last.calls
    children = () if last is None else last.children
    match name:
        case "max_turns":
            return len(history), 1
        case "max_calls":
            return history.calls, len(calls) + sum(child.calls for child in children)
        case "max_tokens":
            own = sum(call.usage.known_tokens for call in calls)
            return history.known_tokens, own + sum(child.known_tokens for child in children)
        case "max_cost":
            spent = sum((call.cost.known_usd for call in calls), ZERO)
            return history.known_cost_usd, spent + sum((child.known_cost_usd for child in children), ZERO)
        case _:
            return spent_s, 0.0 if last is None else last.duration_s


# Conditions -----------------------------------------------------------------------------------------------------------------


def raised_conditions(condition: StopCondition, reading: Reading, history: RunHistory) -> Raised:
    """Numbers raised so that the condition is met no more; nothing where that cannot be had by raising alone."""
    tree, raised = condition, Raised()
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
    return Raised()


def conditions_off(condition: StopCondition, reading: Reading) -> Raised:
    """Conditions turned off so that the whole is met no more."""
    tree, off = condition, Raised()
    named, readings = list(describe(condition).items()), list(reading.leaves())
    for place, _ in _deciding(condition, reading):
        name, leaf = named[place]
        tree = tree.with_leaf(leaf, Off(leaf))
        off = dataclasses.replace(off, off=(*off.off, name))
        if not tree.combine(iter(readings)).met:
            return off
    return Raised()


def _deciding(condition: StopCondition, reading: Reading, first: int = 0) -> Iterator[tuple[int, bool]]:
    """The places of the leaves that made it met, in the order of `leaves()`, and whether it was by not being met."""
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
    """A condition with one number, raised until it is met no more; None for any other, and where raising does not help. One of a
    person's own may refuse the number, or raise."""
    numbers = [
        one
        for one in dataclasses.fields(leaf)  # type: ignore[arg-type]
        if "unit" in one.metadata and _is_number(getattr(leaf, one.name))
    ]
    if len(numbers) != 1:
        return None
    value: Any = getattr(leaf, numbers[0].name)
    with contextlib.suppress(Exception):
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
    """Twice as much, as far as a limit can go."""
    doubled = number * LARGER
    return min(doubled, LARGEST) if isinstance(doubled, int) else doubled


def larger(limit: Number, used: Number, once: Number | None = None) -> Number:
    """Twice the limit, and never less than what is used already with room for as much again, or for `once` more."""
    doubled = twice(limit)
    least = used + max(limit, limit if once is None else once)
    return doubled if doubled >= least else _round_up(least)


def _round_up(number: Number) -> Number:
    """To two digits that count."""
    exact = Decimal(str(number))
    unit = Decimal(1).scaleb(exact.adjusted() - 1)
    rounded = exact.quantize(unit, ROUND_UP) if unit >= 1 or exact != exact.to_integral_value() else exact
    found = type(number)(rounded)
    return min(found, LARGEST) if isinstance(found, int) else found


def _listed(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
