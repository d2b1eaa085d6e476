"""Stop conditions as the code that makes them: in cards, and to be pasted into a run."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from agentlab.choices import Choices
from agentlab.stop import AllOf, AnyOf, Custom, MaxCost, MaxTokensUsed, Not, Off, StepCountIs, StopCondition

_NUMBER = {StepCountIs: "steps", MaxTokensUsed: "tokens", MaxCost: "usd"}


def condition_code(tree: StopCondition) -> str:
    """A stop condition as it is written, `StepCountIs(4) | MaxCost(0.02)`; a function of somebody's own by its name."""
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
    if isinstance(tree, Custom):
        return repr(tree)
    field = _NUMBER.get(type(tree))
    return repr(tree) if field is None else f"{type(tree).__name__}({number_code(getattr(tree, field))})"


def number_code(value: Any) -> str:
    """A number as it is written, or several; money with its decimals, not as a Decimal."""
    if isinstance(value, Choices):
        return f"[{', '.join(map(number_code, value))}]"
    return format(value, "f") if isinstance(value, Decimal) else repr(value)
