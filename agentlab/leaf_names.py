"""What the single conditions of a tree are called: in `run.limits.leaves`, in the columns of frames, in the panel."""

from __future__ import annotations

from collections.abc import Mapping

from agentlab.redaction import without_keys
from agentlab.stop import Custom, StopCondition


def describe(condition: StopCondition) -> Mapping[str, StopCondition]:
    """The leaves of a tree by a name that is unique in it: `StepCountIs`, and `StepCountIs_2` for the next of its kind."""
    named: dict[str, StopCondition] = {}
    for leaf in condition.leaves():
        named[unique_name(leaf.name if isinstance(leaf, Custom) else type(leaf).__name__, named)] = leaf
    return named


def known_name(name: str, named: Mapping[str, object]) -> str:
    """The name that a leaf has there, for what a person calls it: in the words of its condition there may be a key."""
    return name if name in named else without_keys(name)


def unique_name(name: str, taken: Mapping[str, object]) -> str:
    """`name` without keys, or with `_2`, `_3`, … where it is taken."""
    name = without_keys(name)
    if name not in taken:
        return name
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
