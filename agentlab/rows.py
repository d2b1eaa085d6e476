"""The steps of many runs, read a column at a time: what a column's path leads to, for all rows in one go.

A row at a time, a function a column, takes several times as long: here each attribute is read off all rows in one loop in C, what
several columns have in common (`step.usage`) is read once, and what is the same for many rows (a run, its settings) is read once too.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import accumulate, chain, compress, count, islice, repeat
from typing import Any

from agentlab.columns import Column, Source, StepRow, known_cost_usd_of, known_tokens_of, word
from agentlab.leaf_names import unique_name
from agentlab.redaction import without_keys
from agentlab.results import Reading

STEPS_AT_ONCE = 500
"""So few that what is read of them stays in the processor's cache from one column to the next."""

MOSTLY = 4
"""Values that repeat are taken together where there are so many times fewer then."""

_IN_C: tuple[Callable[[Any], Any], ...] = (len, float)
"""What is made of values by functions in C, which fail for None."""


class StepRows:
    """The steps of some runs. A value for each row, but those of `run` and `settings`, which hold for several rows: `repeats`."""

    __slots__ = ("_known", "_made", "_sources", "repeats")

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        taken = [source.history[:] for source in sources]  # once: another thread may add to them
        steps = list(chain.from_iterable(taken))
        settings, times = without_repetition(attributes(steps, "settings"))
        self.repeats: dict[str, list[int]] = {"run": list(map(len, taken)), "settings": times}
        self._known: dict[str, list[Any]] = {"run": list(sources), "step": steps, "settings": settings}
        self._made: dict[tuple[int, Callable[[Any], Any]], list[Any]] = {}

    def read(self, column: Column) -> list[Any]:
        """The values of a column."""
        if not column.path:
            return [column.read(*row) for row in self._one_by_one()]
        values, then = self.at(column.path), column.then
        if then is None:
            return values
        this = (id(values), then)  # sums and their lower bounds are one list where all is known
        if this not in self._made:
            self._made[this] = _made_of(values, then)
        return self._made[this]

    def at(self, path: str) -> list[Any]:
        """What the path leads to; None where it comes to an end before."""
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

    def _one_by_one(self) -> Iterator[tuple[Source, StepRow]]:
        sums = [self.at(name) for name in ("tokens", "cost_usd", "known_tokens", "known_cost_usd")]
        rows = map(StepRow, self.at("step"), *sums)
        for source, times in zip(self._sources, self.repeats["run"], strict=True):
            yield from [(source, next(rows)) for _ in range(times)]


def some_at_once(sources: Iterable[Source]) -> Iterator[StepRows]:
    """The steps of many runs, a few runs at a time."""
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
    """An attribute of each part; None where there is no part."""
    get = operator.attrgetter(name)
    try:
        return list(map(get, parts))
    except AttributeError:
        return [None if part is None else get(part) for part in parts]


def _made_of(values: list[Any], then: Callable[[Any], Any]) -> list[Any]:
    """What `then` makes of each of them; None stays None."""
    if values and all(map(operator.is_, values, repeat(values[0]))):  # None, no sub-agents, no tools
        return [None if values[0] is None else then(values[0])] * len(values)
    try:
        if then is word:
            return attributes(values, "_value_")  # `value` is a property in Python, which takes ten times as long
        if then in _IN_C:
            return list(map(then, values))
    except (AttributeError, TypeError):  # a None among them, or a word of somebody's own
        pass
    return [None if value is None else then(value) for value in values]


class Leaves:
    """What the single conditions read at each step: for each leaf, by the names of `named_leaves` and in order of appearance, its
    values, its limits, and whether it was met, each for all steps, None where there was none."""

    __slots__ = ("_steps", "found")

    def __init__(self) -> None:
        self._steps = 0
        self.found: dict[str, tuple[list[Any], list[Any], list[bool | None]]] = {}

    def add(self, read: list[Reading | None]) -> None:
        """What the whole condition read at further steps."""
        shapes: list[Any]
        if any(attributes(read, "children")):
            leaves = [() if reading is None else _leaves(reading) for reading in read]
            shapes = [_unique(tuple([leaf.name for leaf in some])) for some in leaves]
        else:
            leaves, shapes = None, attributes(read, "name")
        begin = 0
        for shape, times in zip(*without_repetition(shapes), strict=True):  # a condition is the same for many steps
            end = begin + times
            if leaves is not None:
                names = _unique(tuple(map(without_keys, shape)))
                for name, these in zip(names, zip(*leaves[begin:end], strict=True), strict=True):
                    self._extend(name, self._steps + begin, list(these))
            elif shape is not None:
                self._extend(without_keys(shape), self._steps + begin, read[begin:end])
            begin = end
        self._steps += len(read)

    def whole(self) -> dict[str, tuple[list[Any], list[Any], list[bool | None]]]:
        """All of them, each as long as there are steps."""
        for name in self.found:
            self._extend(name, self._steps, [])
        return self.found

    def _extend(self, name: str, steps: int, read: list[Reading | None]) -> None:
        """What this leaf read behind so many steps."""
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
    """Each of the values that is not the very one before it, and how often it stands there."""
    return _taken_together(values, list(_changes(values)))


def repetition(values: list[Any]) -> tuple[list[Any], list[int]] | None:
    """The same where most values are the very ones before them, else None."""
    most = len(values) // MOSTLY - 1
    changes = list(islice(_changes(values), max(most, 0)))  # of values that differ not even all are looked at
    return _taken_together(values, changes) if len(changes) < most else None


def _taken_together(values: list[Any], changes: list[int]) -> tuple[list[Any], list[int]]:
    places = [0, *changes] if values else []
    return [values[place] for place in places], list(map(operator.sub, [*changes, len(values)], places))


def _changes(values: list[Any]) -> Iterator[int]:
    """The places of what is not the very value before it."""
    return compress(count(1), map(operator.is_not, islice(values, 1, None), values))
