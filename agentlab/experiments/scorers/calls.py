"""A scorer of the tool calls of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentlab.errors import ConfigurationError
from agentlab.experiments.scorers.answers import targets_of
from agentlab.experiments.scorers.base import Score
from agentlab.experiments.tasks import Task
from agentlab.records.result import RunResult

NEVER_RUN = ("unknown_tool", "invalid_arguments", "not_executed")
ORDERS = ("any", "in_order", "exact")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """True if the run called these tools: names, or {"tool": name, "arguments": {…}}, where the given arguments have to be equal.

    `expected` is by default the target of the task. `order`: `any`; `in_order`, where other calls may be between them; `exact`, these
    calls and no others. Calls that were refused before they were executed do not count. `parts` has the share of the expected calls.

    Example:
        >>> lab.scorers.ToolUse(["get_weather", "finalize"], order="in_order")(result, lab.Task("?"))
        Score(value=True, why='', parts={'share': 1.0})
    """

    expected: Sequence[str | Mapping[str, Any]] | None = None
    order: str = "any"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ConfigurationError(f"ToolUse(order={self.order!r}): choose one of {', '.join(ORDERS)}.")
        if isinstance(self.expected, str | Mapping):
            raise ConfigurationError(f"ToolUse({self.expected!r}): pass a list, such as ToolUse(['search']).")

    @property
    def needs_target(self) -> bool:
        """True if the calls are in the targets."""
        return self.expected is None

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        expected = [_call(one, task) for one in (targets_of(task, self) if self.expected is None else self.expected)]
        made = [
            (one.name, _parsed(one.arguments))
            for step in result.history
            for one in step.tool_results
            if one.error not in NEVER_RUN
        ]
        left, missing, begin = list(enumerate(made)), [], 0
        for wanted in expected:
            place = next((n for n, (at, one) in enumerate(left) if at >= begin and _fits(one, wanted)), None)
            if place is None:
                missing.append(wanted)
                continue
            if self.order != "any":
                begin = left[place][0] + 1
            del left[place]
        right = not missing and not (self.order == "exact" and left)
        why = f"without {_shown(missing[0])}" if missing else f"also called {_shown(left[0][1])}" if not right else ""
        return Score(right, why, {"share": 1 - len(missing) / len(expected) if expected else 1.0})


def _call(given: Any, task: Task) -> tuple[str, dict[str, Any]]:
    if isinstance(given, str):
        return given, {}
    if isinstance(given, Mapping) and isinstance(given.get("tool"), str) and {*given} <= {"tool", "arguments"}:
        return given["tool"], dict(given.get("arguments") or {})
    raise ConfigurationError(
        f"ToolUse: {given!r} (task {task.id!r}) is not a call: pass a name, or {{'tool': …, 'arguments': {{…}}}}."
    )


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _fits(made: tuple[str, Any], wanted: tuple[str, dict[str, Any]]) -> bool:
    if made[0] != wanted[0]:
        return False
    return not wanted[1] or (
        isinstance(made[1], dict) and all(key in made[1] and made[1][key] == value for key, value in wanted[1].items())
    )


def _shown(call: tuple[str, Any]) -> str:
    return f"{call[0]}({json.dumps(call[1], ensure_ascii=False) if call[1] else ''})"
