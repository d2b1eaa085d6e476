"""Names of the single conditions of a tree: in `run.limits.leaves`, in the columns of frames, in the panel."""

from __future__ import annotations

from collections.abc import Mapping

from agentlab.redaction import without_keys
from agentlab.stop import StopCondition


def describe(condition: StopCondition) -> Mapping[str, StopCondition]:
    """Return the leaves of a tree by a unique name: `StepCountIs`, and `StepCountIs_2` for the next of its kind."""
    named: dict[str, StopCondition] = {}
    for leaf in condition.leaves():
        named[unique_name(leaf.short_name, named)] = leaf
    return named


def unique_name(name: str, taken: Mapping[str, object]) -> str:
    """Return `name` without keys, with `_2`, `_3`, … where it is taken."""
    name = without_keys(name)
    if name not in taken:
        return name
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
