"""The steps of many runs, read one column at a time instead of one row at a time, which is several times faster.

Each attribute is read off all rows in one loop in C; what several columns share (`step.usage`) and what many rows share (a run, its
settings) is read once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import accumulate, chain, compress, count, islice, repeat
from typing import Any

from agentlab.columns import Column, Source, known_cost_usd_of, known_tokens_of, word
from agentlab.leaf_names import unique_name
from agentlab.redaction import without_keys
from agentlab.step_result import Reading

STEPS_AT_ONCE = 500
"""Few enough that their values stay in the processor's cache from one column to the next."""

MOSTLY = 4
"""Repeated values are grouped if that leaves so many times fewer values."""

_IN_C: tuple[Callable[[Any], Any], ...] = (len, float)
"""Conversions in C, which fail for None."""


class StepRows:
    """The steps of some runs. Values are per row, except those of `run` and `settings`, which apply to `repeats` rows each."""

    __slots__ = ("_converted", "_known", "repeats")

    def __init__(self, sources: Sequence[Source]) -> None:
        taken = [source.history[:] for source in sources]  # copied once: another thread may append
        steps = list(chain.from_iterable(taken))
        settings, times = without_repetition(attributes(steps, "settings"))
        self.repeats: dict[str, list[int]] = {"run": list(map(len, taken)), "settings": times}
        self._known: dict[str, list[Any]] = {"run": list(sources), "step": steps, "settings": settings}
        self._converted: dict[tuple[int, Callable[[Any], Any]], list[Any]] = {}

    def read(self, column: Column) -> list[Any]:
        """Return the values of a column."""
        values, then = self.at(column.path), column.then
        if then is None:
            return values
        key = (id(values), then)  # sums and their lower bounds are the same list if everything is known
        if key not in self._converted:
            self._converted[key] = _converted(values, then)
        return self._converted[key]

    def at(self, path: str) -> list[Any]:
        """Return the values at a path; None if a part of it is None."""
        known = self._known.get(path)
        if known is None:
            part, _, name = path.rpartition(".")
            known = self._known[path] = attributes(self.at(part), name) if part else self._sums(path)
        return known

    def _sums(self, name: str) -> list[Any]:
        if name.startswith("known_"):
            whole = self.at(name.removeprefix("known_"))
            if not any(map(operator.is_, whole, repeat(None))):  # not `None in`, which compares: slow for Decimals
                return whole
            known, start = (known_tokens_of, 0) if name == "known_tokens" else (known_cost_usd_of, Decimal(0))
            return self._running(list(map(known, self.at("step"))), start)
        has_children = any(self.at("step.children"))
        if name == "tokens":
            return self._running(self.at("step.all_tokens" if has_children else "step.usage.total_tokens"), 0)
        return self._running(self.at("step.all_cost_usd" if has_children else "step.cost.usd"), Decimal(0))

    def _running(self, values: list[Any], start: Any) -> list[Any]:
        found: list[Any] = []
        begin = 0
        for length in self.repeats["run"]:
            own = values[begin : begin + length]
            begin += length
            try:
                sums = list(accumulate(own, initial=start))
            except TypeError:  # unknown from there on
                sums = list(accumulate(own, _sum, initial=start))
            found += sums[1:]
        return found


def some_at_once(sources: Iterable[Source]) -> Iterator[StepRows]:
    """Yield the steps of many runs, a few runs at a time."""
    few: list[Source] = []
    steps = 0
    for source in sources:
        few.append(source)
        steps += len(source.history)
        if steps >= STEPS_AT_ONCE:
            yield StepRows(few)
            few, steps = [], 0
    if few:
        yield StepRows(few)


def attributes(parts: list[Any], name: str) -> list[Any]:
    """Return an attribute of each part; None for a part that is None."""
    get = operator.attrgetter(name)
    try:
        return list(map(get, parts))
    except AttributeError:
        return [None if part is None else get(part) for part in parts]


def _converted(values: list[Any], then: Callable[[Any], Any]) -> list[Any]:
    """Convert each value by `then`; None stays None."""
    if values and all(map(operator.is_, values, repeat(values[0]))):  # all None, or without sub-agents, or without tools
        return [None if values[0] is None else then(values[0])] * len(values)
    try:
        if then is word:
            return attributes(values, "_value_")  # `value` is a property in Python: ten times slower
        if then in _IN_C:
            return list(map(then, values))
    except (AttributeError, TypeError):  # a None among them, or a word that is no enum member
        pass
    return [None if value is None else then(value) for value in values]


class Leaves:
    """The readings of the single conditions: for each name of `named_leaves`, in order of appearance, the values, the limits and `met`
    of all steps, None for steps without it."""

    __slots__ = ("_steps", "found")

    def __init__(self) -> None:
        self._steps = 0
        self.found: dict[str, tuple[list[Any], list[Any], list[bool | None]]] = {}

    def add(self, read: list[Reading | None]) -> None:
        """Add the readings of the whole condition at further steps."""
        shapes: list[Any]
        if any(attributes(read, "children")):
            leaves = [() if reading is None else _leaves(reading) for reading in read]
            shapes = [_unique(tuple([leaf.name for leaf in some])) for some in leaves]
        else:
            leaves, shapes = None, attributes(read, "name")
        begin = 0
        for shape, times in zip(*without_repetition(shapes), strict=True):  # consecutive steps mostly have the same condition
            end = begin + times
            if leaves is not None:
                names = _unique(tuple(map(without_keys, shape)))
                for name, column in zip(names, zip(*leaves[begin:end], strict=True), strict=True):
                    self._extend(name, self._steps + begin, list(column))
            elif shape is not None:
                self._extend(without_keys(shape), self._steps + begin, read[begin:end])
            begin = end
        self._steps += len(read)

    def whole(self) -> dict[str, tuple[list[Any], list[Any], list[bool | None]]]:
        """Return all of them, each with one value per step."""
        for name in self.found:
            self._extend(name, self._steps, [])
        return self.found

    def _extend(self, name: str, steps: int, read: list[Reading | None]) -> None:
        """Add what this leaf read after `steps` steps."""
        for part, values in zip(_PARTS, self.found.setdefault(name, ([], [], [])), strict=True):
            values.extend([None] * (steps - len(values)))
            values.extend(attributes(read, part))


_PARTS = ("value", "limit", "met")


def _leaves(reading: Reading) -> tuple[Reading, ...]:
    children = reading.children
    if not children:
        return (reading,)
    return tuple(reading.leaves()) if any(attributes(list(children), "children")) else children


@functools.lru_cache(1000)
def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    named: dict[str, None] = {}
    for name in names:
        named[unique_name(name, named)] = None
    return tuple(named)


def _sum(before: Any, value: Any) -> Any:
    return None if before is None or value is None else before + value


def without_repetition(values: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the values without consecutive repetitions (the same object), and how often each occurs."""
    return _grouped(values, list(_changes(values)))


def repetition(values: list[Any]) -> tuple[list[Any], list[int]] | None:
    """Return the same if most values repeat the one before, else None."""
    most = len(values) // MOSTLY - 1
    changes = list(islice(_changes(values), max(most, 0)))  # not all values are compared if they differ
    return _grouped(values, changes) if len(changes) < most else None


def _grouped(values: list[Any], changes: list[int]) -> tuple[list[Any], list[int]]:
    places = [0, *changes] if values else []
    return [values[place] for place in places], list(map(operator.sub, [*changes, len(values)], places))


def _changes(values: list[Any]) -> Iterator[int]:
    """Yield the places of values that are not the same object as the one before."""
    return compress(count(1), map(operator.is_not, islice(values, 1, None), values))
