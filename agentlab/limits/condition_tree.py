"""Edits the tree of a stop condition by path, for the panel.

    tree = StepCountIs(8) | (HasToolCall("finalize") & ~MaxCost(0.05))
    [(node.path, node.name) for node in outline(tree)]
        # ((), AnyOf), ((0,), StepCountIs), ((1,), AllOf), ((1, 0), HasToolCall), ((1, 1), MaxCost); the last is negated
    switched(tree, (0,), on=False)         # Off(StepCountIs(8)) | …
    without(tree, (1, 1))                  # StepCountIs(8) | AllOf(HasToolCall("finalize"))

A path is a tuple of indexes: () is the root, (1, 0) the first part of its second part. Not and Off do not add a level; they are flags
of the condition they wrap. Trees are immutable: each function returns a new one. An unknown path raises ConfigurationError.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from agentlab._internal.errors import ConfigurationError, LimitError
from agentlab._internal.redaction import redact
from agentlab._internal.values import dataclass
from agentlab.limits.combinators import AllOf, AnyOf, Custom, Not, Off, Predicate, StopCondition, as_condition, variadic_field
from agentlab.limits.conditions import HasToolCall
from agentlab.limits.fields import Choices, limit_fields, start_of, unknown_name


def describe(condition: StopCondition) -> Mapping[str, StopCondition]:
    """Return the leaves of a tree by unique names: `StepCountIs`, then `StepCountIs_2` for the next of its kind."""
    named: dict[str, StopCondition] = {}
    for leaf in condition.leaves():
        named[unique_name(leaf.short_name, named)] = leaf
    return named


def unique_name(name: str, taken: Mapping[str, object]) -> str:
    """Return `name`, redacted, with a suffix `_2`, `_3`, … if it is taken."""
    name = redact(name)
    if name not in taken:
        return name
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One condition of a tree and its path.

    `condition` is without the Not and Off around it: these set `negated` and `off`, which do not depend on the groups above. `name` is
    the name in `run.limits.conditions` for a single condition, else `AnyOf` or `AllOf`.
    """

    path: Path
    condition: StopCondition
    name: str
    negated: bool
    off: bool
    depth: int
    is_group: bool


def outline(condition: StopCondition | None) -> tuple[Node, ...]:
    """Return all nodes of a tree, depth first, in the order they were written; none for None."""
    if condition is None:
        return ()
    return tuple(_nodes(condition, (), iter(describe(condition))))


def _nodes(condition: StopCondition, path: Path, names: Iterator[str]) -> Iterator[Node]:
    bare, negated, off = _unwrapped(condition)
    is_group = bool(bare.parts)
    yield Node(path, bare, type(bare).__name__ if is_group else next(names), negated, off, len(path), is_group)
    for place, part in enumerate(bare.parts):
        yield from _nodes(part, (*path, place), names)


# Editing --------------------------------------------------------------------------------------------------------------------


def without(condition: StopCondition, path: Path) -> StopCondition | None:
    """Return the tree without a node and without groups that become empty; None if nothing is left."""
    return _edited(condition, path, lambda old: None)


def added(condition: StopCondition | None, path: Path, new: StopCondition | Predicate) -> StopCondition:
    """Add a condition at the end of the group at the path. A single condition there becomes AnyOf(it, new)."""
    if condition is None and not path:
        return as_condition(new)

    def change(old: StopCondition) -> StopCondition:
        bare, negated, off = _unwrapped(old)
        if not bare.parts:
            return AnyOf(old, new)
        return _wrapped(bare.with_parts((*bare.parts, as_condition(new))), negated=negated, off=off)

    return _not_empty(_edited(condition, path, change))


def regrouped(condition: StopCondition, path: Path, kind: type[StopCondition]) -> StopCondition:
    """Make the group at the path an AnyOf or an AllOf of the same parts."""
    if kind not in (AnyOf, AllOf):
        raise ConfigurationError(f"{kind!r} is not a kind of group: pass AnyOf or AllOf.")

    def change(old: StopCondition) -> StopCondition:
        bare, negated, off = _unwrapped(old)
        if not bare.parts:
            raise ConfigurationError(f"{bare!r} at {path!r} is a single condition, not a group: add another one to it first.")
        return old if type(bare) is kind else _wrapped(kind(*bare.parts), negated=negated, off=off)

    return _not_empty(_edited(condition, path, change))


def negated(condition: StopCondition, path: Path, on: bool) -> StopCondition:
    """Negate the node at the path, or remove its negation."""

    def change(old: StopCondition) -> StopCondition:
        bare, was, off = _unwrapped(old)
        return old if was is on else _wrapped(bare, negated=on, off=off)

    return _not_empty(_edited(condition, path, change))


def switched(condition: StopCondition, path: Path, on: bool) -> StopCondition:
    """Turn the node at the path on or off. The groups above it do not change; see `leaf_switched`."""

    def change(old: StopCondition) -> StopCondition:
        bare, inverted, off = _unwrapped(old)
        return old if off is not on else _wrapped(bare, negated=inverted, off=not on)

    return _not_empty(_edited(condition, path, change))


def leaf_switched(condition: StopCondition, name: str, on: bool) -> StopCondition:
    """Turn the single condition of this name on or off, and leave all others as they are.

    If it is turned on within a group that is off, the group is turned on and the other parts of the group are turned off instead.
    """
    nodes = {node.path: node for node in outline(condition)}
    names = describe(condition)
    path = next((node.path for node in nodes.values() if node.name == name and not node.is_group), None)
    if path is None:
        raise LimitError(unknown_name("stop condition", name, list(names)))
    above = [nodes[path[:depth]] for depth in range(len(path))]
    if not on:
        return condition if any(node.off for node in above) else switched(condition, path, on=False)
    was_off = False
    for node, place in zip(above, path, strict=True):
        was_off = was_off or node.off
        if was_off:
            condition = switched(condition, node.path, on=True)
            for other in range(len(node.condition.parts)):
                if other != place:
                    condition = switched(condition, (*node.path, other), on=False)
    return switched(condition, path, on=True)


def _edited(
    condition: StopCondition | None, path: Path, change: Callable[[StopCondition], StopCondition | None]
) -> StopCondition | None:
    """Replace the node at the path, including its wrappers, by `change(node)`."""
    if condition is None or path not in (known := [node.path for node in outline(condition)]):
        paths = ", ".join(map(str, known)) if condition is not None else "none, since there is no condition"
        raise ConfigurationError(f"There is no condition at {path!r}. Paths of this tree: {paths}.")
    return _at(condition, path, change)


def _at(condition: StopCondition, path: Path, change: Callable[[StopCondition], StopCondition | None]) -> StopCondition | None:
    if not path:
        return change(condition)
    bare, inverted, off = _unwrapped(condition)
    parts: list[StopCondition | None] = list(bare.parts)
    old = bare.parts[path[0]]
    new = parts[path[0]] = _at(old, path[1:], change)
    if new is old:
        return condition
    left = tuple(part for part in parts if part is not None)
    return _wrapped(bare.with_parts(left), negated=inverted, off=off) if left else None


def _not_empty(condition: StopCondition | None) -> StopCondition:
    assert condition is not None  # noqa: S101  only `without` removes nodes
    return condition


def _unwrapped(condition: StopCondition) -> tuple[StopCondition, bool, bool]:
    """Return the condition without Not and Off, whether it is negated, and whether it is off."""
    inverted = off = False
    while isinstance(condition, Not | Off):
        inverted ^= isinstance(condition, Not)
        off |= isinstance(condition, Off)
        condition = condition.parts[0]
    return condition, inverted, off


def _wrapped(condition: StopCondition, *, negated: bool, off: bool) -> StopCondition:
    """Return the condition, which is not wrapped yet, with these flags."""
    condition = Not(condition) if negated else condition
    return Off(condition) if off else condition


# New conditions ------------------------------------------------------------------------------------------------------------------


def kinds() -> dict[str, type[StopCondition]]:
    """Return the single conditions that a control can create, by name: built-in ones, and users' dataclasses with start values.

    Of several classes with the same name, the newest one is listed: a cell that is run again defines its class again.
    """
    return {kind.__name__: kind for kind in _all_subclasses(StopCondition) if _can_be_made(kind)}


def _all_subclasses(kind: type[StopCondition]) -> Iterator[type[StopCondition]]:
    for each in kind.__subclasses__():
        yield each
        yield from _all_subclasses(each)


def _can_be_made(kind: type[StopCondition]) -> bool:
    if kind.__name__.startswith("_") or issubclass(kind, Custom) or kind.read is StopCondition.read:
        return False
    return dataclasses.is_dataclass(kind) and all(
        field.name != "parts" and start_of(field) is not dataclasses.MISSING
        for field in dataclasses.fields(kind)  # type: ignore[unreachable]
        if field.init
    )


def started(kind: type[StopCondition], tools: Sequence[str] = ()) -> StopCondition:
    """Create a condition of this kind with its start values. HasToolCall takes the first of `tools`, if there are any."""
    if kind is HasToolCall and tools:
        return HasToolCall(tools[0])
    if not _can_be_made(kind):
        raise ConfigurationError(f"{kind!r} has no start values: declare one for each field, see `limit_field(start=…)`.")
    values = {field.name: start_of(field) for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    words = values.pop(variadic_field(kind), ())  # type: ignore[arg-type]
    return kind(*words, **values)


def condition_code(tree: StopCondition) -> str:
    """Return a stop condition as code, `StepCountIs(4) | MaxCost(0.02)`; functions are shown by name."""
    if isinstance(tree, Off):
        return f"Off({condition_code(tree.parts[0])})"
    if isinstance(tree, Not):
        inner = condition_code(tree.parts[0])
        return f"~({inner})" if isinstance(tree.parts[0], AnyOf | AllOf) else f"~{inner}"
    if isinstance(tree, AnyOf | AllOf):
        if len(tree.parts) == 1:
            return condition_code(tree.parts[0])
        parts = [f"({condition_code(part)})" if isinstance(part, AnyOf | AllOf) else condition_code(part) for part in tree.parts]
        return (" | " if isinstance(tree, AnyOf) else " & ").join(parts)
    if tree.total is None:
        return repr(tree)
    (limit,) = limit_fields(tree)
    return f"{tree.short_name}({number_code(getattr(tree, limit.name))})"


def number_code(value: Any) -> str:
    """Return one number or several as code; money is a plain number, not a Decimal."""
    if isinstance(value, Choices):
        return f"[{', '.join(map(number_code, value))}]"
    return format(value, "f") if isinstance(value, Decimal) else repr(value)
