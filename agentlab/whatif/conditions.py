"""A stop condition over all runs at once: for each run the first row at which it is met.

The built-in conditions latch: once met, met for good. So any-of is the least of its parts' first rows and all-of the greatest. What
holds a Not, or conditions that may be met and then no longer, is read row by row instead, by the same three-valued logic as in a run:
met, not met, or open where usage is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from agentlab.stop import AllOf, AnyOf, FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, Not, Off, StepCountIs, StopCondition
from agentlab.whatif import words
from agentlab.whatif.first_met import Rows, first_met, smallest
from agentlab.whatif.records import Bools, Records

LATCHING: dict[type[StopCondition], str] = {MaxTokensUsed: "tokens", MaxCost: "cost_usd"}
"""Conditions on a running total."""
BUILT_IN = (StepCountIs, MaxTokensUsed, MaxCost, HasToolCall, FinishReasonIs)

First: TypeAlias = npt.NDArray[Any]
"""For each run the first row at which something is met; the number of its rows where it never is."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a condition says row by row: met, or not, or open where it is neither."""

    met: Bools
    open: Bools

    @property
    def not_met(self) -> Bools:
        """Surely not."""
        found: Bools = ~(self.met | self.open)
        return found


def without_off(tree: StopCondition) -> StopCondition | None:
    """The tree as it counts, with what is turned off left out; None where nothing is left."""
    if tree.is_off:
        return None
    if not tree.parts:
        return tree
    parts = tuple(kept for part in tree.parts if (kept := without_off(part)) is not None)
    return tree if all(map(_same, parts, tree.parts)) and len(parts) == len(tree.parts) else tree.with_parts(parts)


def _same(left: object, right: object) -> bool:
    return left is right


def latches(tree: StopCondition) -> bool:
    """Whether it can be told by first rows: of conditions of somebody's own only where any one of them will do."""
    if isinstance(tree, Not):
        return False
    if isinstance(tree, AllOf):
        return all(latches(part) and not _own(part) for part in tree.parts)
    return all(map(latches, tree.parts))


def is_built_in(tree: StopCondition) -> bool:
    """Whether it latches and asks for nothing but what the arrays say."""
    return latches(tree) and not _own(tree)


def _own(tree: StopCondition) -> bool:
    return any(not isinstance(leaf, BUILT_IN) for leaf in tree.leaves())


# By first rows -------------------------------------------------------------------------------------------------------------------


def first_rows(records: Records, leaves: Sequence[StopCondition]) -> list[First]:
    """For each of these conditions, all built-in and of one kind, the first row at which it is met in each run."""
    kind = type(leaves[0])
    if issubclass(kind, StepCountIs):
        steps = np.array([min(leaf.steps - 1, records.longest) for leaf in leaves])  # type: ignore[attr-defined]
        kind_of_rows = smallest(records.longest)
        return list(np.minimum(steps.astype(kind_of_rows)[:, None], records.lengths.astype(kind_of_rows)[None, :]))
    if kind in LATCHING:
        field = "tokens" if kind is MaxTokensUsed else "usd"
        limits = np.array([float(getattr(leaf, field)) for leaf in leaves])
        rows: Rows = first_met(records.used[LATCHING[kind]], records.start, limits)
        return list(rows)
    return [words.first_row(records, leaf) for leaf in leaves]


def combined(tree: StopCondition, first: Callable[[StopCondition], First]) -> First:
    """The first row at which a tree that latches is met."""
    if not tree.parts:
        return first(tree)
    found = combined(tree.parts[0], first)
    for part in tree.parts[1:]:
        found = (np.minimum if isinstance(tree, AnyOf) else np.maximum)(found, combined(part, first))
    return found


def everywhere(
    tree: StopCondition, axis_of: Mapping[int, int], axes: int, firsts: Callable[[StopCondition], Sequence[First]]
) -> Rows:
    """The same for every value of the axes at once: an array of as many dimensions, each 1 or an axis long, and the runs as the last.

    `axis_of` says which axis a leaf (by its id) has its values on; `firsts` gives its first rows, for each of them.
    """
    if not tree.parts:
        rows = np.stack(list(firsts(tree)))
        shape = [1] * axes
        if id(tree) in axis_of:
            shape[axis_of[id(tree)]] = len(rows)
        return rows.reshape(*shape, -1)
    parts = [everywhere(part, axis_of, axes, firsts) for part in tree.parts]
    parts.sort(key=lambda part: part.size)  # the small ones first: the whole is as large as its axes together only at the end
    found = parts[0]
    for part in parts[1:]:
        found = (np.minimum if isinstance(tree, AnyOf) else np.maximum)(found, part)
    return found


# Row by row ----------------------------------------------------------------------------------------------------------------------


def answers_of(tree: StopCondition, leaf_answers: Callable[[StopCondition], Answers]) -> Answers:
    """What a tree says in each row, by the logic of `agentlab.stop`."""
    if not tree.parts:
        return leaf_answers(tree)
    parts = [answers_of(part, leaf_answers) for part in tree.parts]
    if isinstance(tree, Not):
        return Answers(parts[0].not_met, parts[0].open)
    if isinstance(tree, AnyOf):
        met = np.logical_or.reduce([part.met for part in parts])
        return Answers(met, ~met & np.logical_or.reduce([part.open for part in parts]))
    not_met = np.logical_or.reduce([part.not_met for part in parts])
    some_open = np.logical_or.reduce([part.open for part in parts])
    return Answers(~not_met & ~some_open, ~not_met & some_open)


def latched(records: Records, leaf: StopCondition, first: First) -> Answers:
    """The answers of a built-in condition, from its first row on met, before it open where usage is unknown."""
    row = np.arange(len(records.run)) - records.start[records.run]
    met: Bools = row >= first[records.run]
    total = LATCHING.get(type(leaf))
    unknown = np.isnan(records.totals[total]) if total is not None else np.zeros(len(met), bool)
    return Answers(met, ~met & unknown)


def first_true(records: Records, met: Bools) -> First:
    """The first row of each run that is true."""
    rows = np.flatnonzero(met)
    first = records.lengths.copy()
    np.minimum.at(first, records.run[rows], rows - records.start[records.run[rows]])
    return first


def deciding(tree: StopCondition, is_met: Callable[[StopCondition], Bools]) -> list[tuple[StopCondition, Bools]]:
    """The parts that made the tree met, each with the runs in which it did; a Not stands for what is below it."""

    def look(node: StopCondition, within: Bools) -> Iterable[tuple[StopCondition, Bools]]:
        here = within & is_met(node)
        if not node.parts or isinstance(node, Not | Off):
            yield node, here
        else:
            for part in node.parts:
                yield from look(part, here)

    some = next(iter(tree.leaves()))
    return list(look(tree, np.ones_like(is_met(some))))
