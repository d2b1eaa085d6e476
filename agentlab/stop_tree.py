"""Editing the tree of a stop condition by place: what a control needs that lets a person change its structure.

    tree = StepCountIs(8) | (HasToolCall("finalize") & ~MaxCost(0.05))
    [(node.path, node.name) for node in outline(tree)]
        # ((), AnyOf), ((0,), StepCountIs), ((1,), AllOf), ((1, 0), HasToolCall), ((1, 1), MaxCost), the last one negated
    switched(tree, (0,), on=False)         # Off(StepCountIs(8)) | …
    without(tree, (1, 1))                  # StepCountIs(8) | AllOf(HasToolCall("finalize"))

A path is a tuple of places: () the root, (1, 0) the first part of its second part. Not and Off are no levels of it but flags of what
they wrap. Trees are immutable: each function gives a new one, and raises ConfigurationError for a path that the tree has not.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentlab.errors import ConfigurationError, LimitError
from agentlab.leaf_names import describe, known_name
from agentlab.limits import no_such, start_of
from agentlab.stop import AllOf, AnyOf, Custom, HasToolCall, Not, Off, Predicate, StopCondition, as_condition

Path: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One condition of a tree and its place in it.

    `condition` is without the Not and Off around it: those are `negated` and `off`, its own and not those of what it is a part of.
    `name` is that of `run.limits.leaves` for a single condition, else `AnyOf` or `AllOf`.
    """

    path: Path
    condition: StopCondition
    name: str
    negated: bool
    off: bool
    depth: int
    is_group: bool


def outline(condition: StopCondition | None) -> tuple[Node, ...]:
    """All nodes of a tree, depth first, as they were written; nothing for None."""
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
    """The tree without a node. A group that has nothing left goes with it; None where nothing at all is left."""
    return _edited(condition, path, lambda old: None)


def added(condition: StopCondition | None, path: Path, new: StopCondition | Predicate) -> StopCondition:
    """The tree with one more condition: as the last of the group at the path. A single condition there becomes AnyOf(it, new)."""
    if condition is None and not path:
        return as_condition(new)

    def change(old: StopCondition) -> StopCondition:
        bare, negated, off = _unwrapped(old)
        if not bare.parts:
            return AnyOf(old, new)
        return _wrapped(bare.with_parts((*bare.parts, as_condition(new))), negated=negated, off=off)

    return _kept(_edited(condition, path, change))


def regrouped(condition: StopCondition, path: Path, kind: type[StopCondition]) -> StopCondition:
    """The tree with the group at the path made an AnyOf or an AllOf, of the same parts."""
    if kind not in (AnyOf, AllOf):
        raise ConfigurationError(f"{kind!r} is no kind of group: pass AnyOf or AllOf.")

    def change(old: StopCondition) -> StopCondition:
        bare, negated, off = _unwrapped(old)
        if not bare.parts:
            raise ConfigurationError(f"{bare!r} at {path!r} is a single condition, not a group: add another one to it first.")
        return old if type(bare) is kind else _wrapped(kind(*bare.parts), negated=negated, off=off)

    return _kept(_edited(condition, path, change))


def negated(condition: StopCondition, path: Path, on: bool) -> StopCondition:
    """The tree with the node at the path met when it was not, or as it is by itself."""

    def change(old: StopCondition) -> StopCondition:
        bare, was, off = _unwrapped(old)
        return old if was is on else _wrapped(bare, negated=on, off=off)

    return _kept(_edited(condition, path, change))


def switched(condition: StopCondition, path: Path, on: bool) -> StopCondition:
    """The tree with the node at the path turned on or off. What it is a part of stays as it is; see `leaf_switched`."""

    def change(old: StopCondition) -> StopCondition:
        bare, inverted, off = _unwrapped(old)
        return old if off is not on else _wrapped(bare, negated=inverted, off=not on)

    return _kept(_edited(condition, path, change))


def leaf_switched(condition: StopCondition, name: str, on: bool) -> StopCondition:
    """The tree with the single condition of this name counting, or not, and all others as before.

    Turned on within a group that is off, it takes the group with it and leaves the group's other parts off, which is the same for them.
    """
    nodes = {node.path: node for node in outline(condition)}
    names = describe(condition)
    name = known_name(name, names)
    path = next((node.path for node in nodes.values() if node.name == name and not node.is_group), None)
    if path is None:
        raise LimitError(no_such("stop condition", name, list(names)))
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
    """The tree with what `change` makes of the node at the path, its wrappers included."""
    if condition is None or path not in (known := [node.path for node in outline(condition)]):
        there = ", ".join(map(str, known)) if condition is not None else "none, since there is no condition"
        raise ConfigurationError(f"There is no condition at {path!r}. The paths of this tree: {there}.")
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


def _kept(condition: StopCondition | None) -> StopCondition:
    assert condition is not None  # noqa: S101  only `without` takes anything away
    return condition


def _unwrapped(condition: StopCondition) -> tuple[StopCondition, bool, bool]:
    """What is inside of Not and Off, whether it is negated, and whether it is off."""
    inverted = off = False
    while isinstance(condition, Not | Off):
        inverted ^= isinstance(condition, Not)
        off |= isinstance(condition, Off)
        condition = condition.parts[0]
    return condition, inverted, off


def _wrapped(condition: StopCondition, *, negated: bool, off: bool) -> StopCondition:
    """The condition, which has no flags of its own, with these."""
    one = Not(condition) if negated else condition
    return Off(one) if off else one


# Making new ones -----------------------------------------------------------------------------------------------------------------


def kinds() -> dict[str, type[StopCondition]]:
    """The single conditions a control can make, by name: the built-in ones and one's own dataclasses whose fields have a start value.

    Of two classes of one name the newer is taken: a cell that was run again has defined it anew.
    """
    return {kind.__name__: kind for kind in _subclasses(StopCondition) if _can_be_made(kind)}


def _subclasses(kind: type[StopCondition]) -> Iterator[type[StopCondition]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _can_be_made(kind: type[StopCondition]) -> bool:
    if kind.__name__.startswith("_") or issubclass(kind, Custom) or kind.read is StopCondition.read:
        return False
    fields = _fields(kind)
    return fields is not None and all(
        field.name != "parts" and start_of(field) is not dataclasses.MISSING for field in fields if field.init
    )


def _fields(kind: type) -> tuple[dataclasses.Field[Any], ...] | None:
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else None


def started(kind: type[StopCondition], tools: Sequence[str] = ()) -> StopCondition:
    """A condition of this kind with its start values. HasToolCall takes the first of `tools`, if there are any."""
    if kind is HasToolCall and tools:
        return HasToolCall(tools[0])
    if not _can_be_made(kind):
        raise ConfigurationError(f"{kind!r} cannot be made from start values: give each field one, see `limit_field(start=…)`.")
    values = {field.name: start_of(field) for field in _fields(kind) or () if field.init}
    named: dict[str, Any] = {}
    listed: list[Any] = []
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            listed = list(values[name])
        elif name in values:
            named[name] = values[name]
    return kind(*listed, **named)
