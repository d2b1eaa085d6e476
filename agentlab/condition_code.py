"""Stop conditions as Python code: in cards, and for pasting into a run."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from agentlab.choices import Choices
from agentlab.limits import limit_fields
from agentlab.stop import AllOf, AnyOf, Not, Off, StopCondition


def condition_code(tree: StopCondition) -> str:
    """Return a stop condition as code, `StepCountIs(4) | MaxCost(0.02)`; a function appears by its name."""
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
    """Return a number as code, or several; money with its decimals, not as a Decimal."""
    if isinstance(value, Choices):
        return f"[{', '.join(map(number_code, value))}]"
    return format(value, "f") if isinstance(value, Decimal) else repr(value)
