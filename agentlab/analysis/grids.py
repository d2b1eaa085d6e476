"""Grids of limits to try: conditions and budgets in which a list is an axis."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from agentlab.errors import ConfigurationError, LimitError
from agentlab.limits.budget import LIMIT_REASONS, Budget
from agentlab.limits.combinators import StopCondition, as_condition
from agentlab.limits.condition_tree import describe, number_code, unique_name
from agentlab.limits.fields import Choices, choices_of, limit_fields, money, one_or_several, seconds, unknown_name, whole_number


def budget_code(given: Mapping[str, Any]) -> str:
    """Return a budget of these limits as code, `Budget(max_turns=None, max_cost=0.02)`."""
    order = [field.name for field in dataclasses.fields(Budget) if field.name in given]
    return f"Budget({', '.join(f'{name}={number_code(given[name])}' for name in order)})"


Conditions: TypeAlias = Any
"""A condition, a function of the history, a list of them (each a grid), a dict of them by name, or None."""

Limits: TypeAlias = Budget | Mapping[str, Any] | None
"""A Budget, or a dict of its limits, in which a list is an axis."""

BOUNDS = tuple(LIMIT_REASONS)
"""The limits of a budget that can be tried on a record."""

NOT_REPLAYED = {
    "max_tokens_per_turn": "with another limit the model would give other answers, which are not in the record",
    "missing_usage": "the record has the usage as it was counted during the run",
}
"""The parameters of a budget that cannot be tried on a record, and why."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter with several values: the name of its column, the leaf of the condition (None: the budget), and the field."""

    name: str
    leaf: str | None
    field: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A condition and a budget, with several values for some of their parameters. `name` is empty if there is only one grid."""

    name: str
    stop: StopCondition | None
    budget: Mapping[str, Any]
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """The number of configurations."""
        return math.prod(len(axis.values) for axis in self.axes)

    def points(self) -> Iterator[tuple[int, ...]]:
        """Yield the configurations, each as the index of its value on every axis; the last axis changes fastest."""
        return itertools.product(*(range(len(axis.values)) for axis in self.axes))

    def stop_at(self, point: Sequence[int]) -> StopCondition | None:
        """Return the condition of a configuration."""
        if self.stop is None or not self.axes:
            return self.stop
        tree, leaves = self.stop, dict(describe(self.stop))
        for axis, place in zip(self.axes, point, strict=True):
            if axis.leaf is not None:
                old = leaves[axis.leaf]
                leaves[axis.leaf] = new = old.changed(**{axis.field: axis.values[place]})
                tree = tree.with_leaf(old, new)
        return tree

    def budget_at(self, point: Sequence[int]) -> Budget:
        """Return the budget of a configuration, which has the given limits only, no defaults."""
        chosen = {axis.field: axis.values[place] for axis, place in zip(self.axes, point, strict=True) if axis.leaf is None}
        return Budget(**{**dict.fromkeys(BOUNDS), **self.budget, **chosen})


def grids(conditions: Conditions, budget: Limits) -> list[Grid]:
    """Return the grids of these conditions and limits. Raises ConfigurationError and LimitError for invalid ones."""
    named = _named(conditions)
    limits = _limits(budget)
    if all(condition is None for _, condition in named) and not limits:
        raise ConfigurationError(
            "Nothing to try: pass a stop condition such as StepCountIs([2, 4, 8]), a budget such as {'max_cost': [0.01, 0.05]}, "
            "or both."
        )
    return [_grid(name, condition, limits) for name, condition in named]


def _named(conditions: Conditions) -> list[tuple[str, StopCondition | None]]:
    if isinstance(conditions, Mapping):
        if not conditions:
            raise ConfigurationError("The dict of conditions is empty: pass at least one, such as {'short': StepCountIs(2)}.")
        named: dict[str, StopCondition | None] = {}
        for name, one in conditions.items():
            named[unique_name(str(name), named)] = None if one is None else as_condition(one)
        return list(named.items())
    if isinstance(conditions, list | tuple):
        if not conditions:
            raise ConfigurationError("The list of conditions is empty: pass at least one, such as StepCountIs([2, 4, 8]).")
        several = [None if one is None else as_condition(one) for one in conditions]
        return [(repr(one), one) for one in several]
    return [("", None if conditions is None else as_condition(conditions))]


_CHECKS = {"USD": money, "s": seconds}


def _limits(budget: Limits) -> dict[str, Any]:
    if budget is None:
        return {}
    if isinstance(budget, Budget):
        for name, why in NOT_REPLAYED.items():
            if getattr(budget, name) != getattr(Budget(), name):
                raise LimitError(f"Budget({name}={getattr(budget, name)!r}) cannot be tried on a record: {why}.")
        return {name: getattr(budget, name) for name in (*BOUNDS, "last_answer") if getattr(budget, name) is not None}
    if not isinstance(budget, Mapping):
        raise LimitError(f"budget={budget!r}: pass a Budget, or a dict such as {{'max_cost': [0.01, 0.05]}}.")
    for name in budget:
        if name in NOT_REPLAYED:
            raise LimitError(f"budget={{{name!r}: …}} cannot be tried on a record: {NOT_REPLAYED[name]}.")
        if name not in (*BOUNDS, "last_answer"):
            raise LimitError(unknown_name("limit", str(name), [*BOUNDS, "last_answer"]))
    checks = {field.name: _CHECKS.get(field.metadata["unit"], whole_number) for field in limit_fields(Budget)}
    share = {} if budget.get("last_answer") is None else {"last_answer": Budget(last_answer=budget["last_answer"]).last_answer}
    given = {name: value for name, value in budget.items() if value is not None and name not in share}
    return {name: one_or_several(checks[name], "budget", name, value) for name, value in given.items()} | share


def _grid(name: str, stop: StopCondition | None, limits: Mapping[str, Any]) -> Grid:
    axes = []
    for leaf_name, leaf in ({} if stop is None else describe(stop)).items():
        fields = choices_of(leaf)
        for field_name, values in fields.items():
            axes.append(
                Axis(leaf_name if len(fields) == 1 else f"{leaf_name}.{field_name}", leaf_name, field_name, tuple(values))
            )
    axes += [Axis(name, None, name, tuple(value)) for name, value in limits.items() if isinstance(value, Choices)]
    return Grid(name, stop, {key: value for key, value in limits.items() if not isinstance(value, Choices)}, tuple(axes))


def plain_value(value: object) -> object:
    """Return a parameter's value as it is in a frame."""
    if isinstance(value, tuple):
        return " or ".join(map(str, value))
    return float(value) if isinstance(value, Decimal) else value


def fields_of(leaf: StopCondition) -> list[str]:
    """Return the parameters of a single condition."""
    return [field.name for field in dataclasses.fields(leaf)] if dataclasses.is_dataclass(leaf) else []
