"""A stop condition over all runs at once: the first row of each run at which it is met.

A condition that declares a total (`StopCondition.total`), or is on words, latches: once met, it stays met. So any-of is the least of
its parts' first rows and all-of the greatest. A tree with a Not, or with conditions that may be met and then no longer, is read row by
row with the same three values as in a run: met, not met, or open where usage is unknown.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from agentlab.limits import limit_fields
from agentlab.stop import AllOf, AnyOf, Not, Off, StopCondition
from agentlab.whatif.first_met import Rows, first_met, smallest
from agentlab.whatif.records import Bools, Records
from agentlab.whatif.words import WORDS, first_row

STEPS = "steps"
MEASURES = {"tokens": "tokens", "cost": "cost_usd"}
"""The running total of the records for each total that a condition may declare, beside STEPS, which are counted."""

First: TypeAlias = npt.NDArray[Any]
"""For each run the first row at which something is met; the number of its rows where it never is."""


@functools.cache
def limit_field_of(kind: type[StopCondition]) -> str | None:
    """The field with the limit of conditions on a total; None for all other conditions."""
    fields = limit_fields(kind) if kind.total == STEPS or kind.total in MEASURES else ()
    return fields[0].name if len(fields) == 1 else None


def is_in_arrays(leaf: StopCondition) -> bool:
    """True if the records say where a single condition is met. All others are called step by step."""
    return limit_field_of(type(leaf)) is not None or type(leaf) in WORDS  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Answers:
    """The answer of a condition row by row: met, or not, or open where it is neither."""

    met: Bools
    open: Bools

    @property
    def not_met(self) -> Bools:
        """True where it is known not to be met."""
        found: Bools = ~(self.met | self.open)
        return found


def without_off(tree: StopCondition) -> StopCondition | None:
    """The tree without what is turned off; None where nothing is left."""
    if tree.is_off:
        return None
    parts = tuple(kept for part in tree.parts if (kept := without_off(part)) is not None)
    same = len(parts) == len(tree.parts) and all(kept is part for kept, part in zip(parts, tree.parts, strict=True))
    return tree if same else tree.with_parts(parts)


def latches(tree: StopCondition) -> bool:
    """True if first rows are enough: of custom conditions only where any one of them will do."""
    if isinstance(tree, Not):
        return False
    return all(latches(part) and (not isinstance(tree, AllOf) or all_in_arrays(part)) for part in tree.parts)


def all_in_arrays(tree: StopCondition) -> bool:
    """True if the records say where each leaf is met."""
    return all(map(is_in_arrays, tree.leaves()))


# By first rows -------------------------------------------------------------------------------------------------------------------


def first_rows(records: Records, leaves: Sequence[StopCondition]) -> list[First]:
    """For each of these conditions, which are of one kind and in the arrays, the first row at which it is met in each run."""
    kind = type(leaves[0])
    field = limit_field_of(kind)  # type: ignore[arg-type]
    if field is None:
        return [first_row(records, leaf) for leaf in leaves]
    limits = [getattr(leaf, field) for leaf in leaves]
    if kind.total == STEPS:
        steps = np.array([max(0, min(math.ceil(limit) - 1, records.longest)) for limit in limits])
        dtype = smallest(records.longest)
        return list(np.minimum(steps.astype(dtype)[:, None], records.lengths.astype(dtype)[None, :]))
    return list(first_met(records.used[MEASURES[str(kind.total)]], records.start, np.array([float(limit) for limit in limits])))


def combined(tree: StopCondition, first: Callable[[StopCondition], First]) -> First:
    """The first row at which a tree that latches is met."""
    if not tree.parts:
        return first(tree)
    return functools.reduce(_joining(tree), [combined(part, first) for part in tree.parts])


def _joining(tree: StopCondition) -> Callable[[Any, Any], Any]:
    return np.minimum if isinstance(tree, AnyOf) else np.maximum


def everywhere(
    tree: StopCondition, axis_of: Mapping[int, int], axes: int, firsts: Callable[[StopCondition], Sequence[First]]
) -> Rows:
    """`combined` for every value of the axes at once: an array of as many dimensions, each 1 or an axis long, and the runs as the last.

    `axis_of` says which axis has the values of a leaf (by its id); `firsts` gives its first rows, for each of them.
    """
    if not tree.parts:
        rows = np.stack(list(firsts(tree)))
        shape = [1] * axes
        if id(tree) in axis_of:
            shape[axis_of[id(tree)]] = len(rows)
        return rows.reshape(*shape, -1)
    parts = [everywhere(part, axis_of, axes, firsts) for part in tree.parts]
    parts.sort(key=lambda part: part.size)  # small ones first, so that only the last join is as large as all axes together
    found: Rows = functools.reduce(_joining(tree), parts)
    return found


# Row by row ----------------------------------------------------------------------------------------------------------------------


def answers_of(tree: StopCondition, leaf_answers: Callable[[StopCondition], Answers]) -> Answers:
    """The answer of a tree in each row, by the logic of `agentlab.stop`."""
    if not tree.parts:
        return leaf_answers(tree)
    parts = [answers_of(part, leaf_answers) for part in tree.parts]
    if isinstance(tree, Not):
        return Answers(parts[0].not_met, parts[0].open)
    some_open = np.logical_or.reduce([part.open for part in parts])
    if isinstance(tree, AnyOf):
        met = np.logical_or.reduce([part.met for part in parts])
        return Answers(met, ~met & some_open)
    not_met = np.logical_or.reduce([part.not_met for part in parts])
    return Answers(~not_met & ~some_open, ~not_met & some_open)


def latched(records: Records, leaf: StopCondition, first: First) -> Answers:
    """The answers of a condition in the arrays: met from its first row on, before it open where usage is unknown."""
    row = np.arange(len(records.run)) - records.start[records.run]
    met: Bools = row >= first[records.run]
    total = MEASURES.get(leaf.total or "")
    unknown = np.isnan(records.totals[total]) if total is not None else np.zeros(len(met), bool)
    return Answers(met, ~met & unknown)


def deciding(tree: StopCondition, is_met: Callable[[StopCondition], Bools]) -> list[tuple[StopCondition, Bools]]:
    """The parts that made the tree met, each with the runs in which it did; a Not is given in place of what is below it."""

    def look(node: StopCondition, within: Bools) -> Iterable[tuple[StopCondition, Bools]]:
        here = within & is_met(node)
        if not node.parts or isinstance(node, Not | Off):
            yield node, here
        else:
            for part in node.parts:
                yield from look(part, here)

    some = next(iter(tree.leaves()))
    return list(look(tree, np.ones_like(is_met(some))))
