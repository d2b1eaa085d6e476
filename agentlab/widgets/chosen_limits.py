"""The limits that a person has chosen in an explorer: a condition, a budget, and the code for both."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from agentlab.budget import Budget
from agentlab.limits import no_such
from agentlab.stop import HasToolCall, StopCondition
from agentlab.whatif.grids import Grid, fields_of
from agentlab.widgets.tried_limits import KINDS, Value

DEFAULT_TURNS = Budget().max_turns or 0


class ChosenLimits(MutableMapping[str, Value]):
    """The limits by name, None where there is none. To set one moves its slider; `del` takes the limit away."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values: dict[str, Value] = dict(values)
        self.on_change: Callable[[], None] | None = None
        """Called behind every change."""
        self._lock = threading.Lock()
        self.version = 0
        """How often something was changed."""

    def __getitem__(self, name: str) -> Value:
        return self._values[self._known(name)]

    def __setitem__(self, name: str, value: Value) -> None:
        kept = KINDS[self._known(name)].checked(value)
        with self._lock:
            if kept == self._values[name]:
                return
            self._values = {**self._values, name: kept}
            self.version += 1
        if self.on_change is not None:
            self.on_change()

    def __delitem__(self, name: str) -> None:
        self[name] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _known(self, name: str) -> str:
        if name not in self._values:
            raise KeyError(no_such("limit", str(name), list(self._values)))
        return name

    def snapshot(self) -> Mapping[str, Value]:
        """As they are now: what is read while somebody moves a slider."""
        return self._values

    def __repr__(self) -> str:
        return f"ChosenLimits({self._values!r})"


def stop_of(chosen: Mapping[str, Value]) -> StopCondition | None:
    """The stop condition of these limits; None where there is none."""
    leaves = [
        KINDS[name].condition(value) for name, value in chosen.items() if value is not None and KINDS[name].leaf is not None
    ]
    return functools.reduce(operator.or_, leaves) if leaves else None


def limits_of(chosen: Mapping[str, Value]) -> dict[str, Any]:
    """Those of these limits that are a budget's."""
    return {name: value for name, value in chosen.items() if value is not None and KINDS[name].leaf is None}


def grid_of(chosen: Mapping[str, Value]) -> Grid:
    """These limits as what is tried on the records."""
    return Grid("", stop_of(chosen), limits_of(chosen), ())


def budget_of(chosen: Mapping[str, Value], longest: int) -> dict[str, Any]:
    """What a run's budget has to say, so that it ends where the record does under these limits; empty: the default will do.

    A budget ends a run after 20 turns unless it says otherwise: as in the record, where that is known. Else, where the record has
    `longest` steps, and more than that, it has to.
    """
    limits = limits_of(chosen)
    if "max_turns" in chosen:
        limits = {"max_turns": chosen["max_turns"], **limits}
        return limits if limits["max_turns"] != DEFAULT_TURNS else {n: value for n, value in limits.items() if n != "max_turns"}
    turns = longest if chosen.get("StepCountIs") is None else min(longest, chosen["StepCountIs"])
    return {"max_turns": turns, **limits} if turns > DEFAULT_TURNS else limits


def as_code(chosen: Mapping[str, Value], longest: int) -> str:
    """What to paste between the brackets of `agent.run(…)`."""
    stop = stop_of(chosen)
    leaves = " | ".join(map(_written, stop.parts or (stop,))) if stop is not None else "None"
    budget = ", ".join(f"{name}={value}" for name, value in budget_of(chosen, longest).items())
    return f"stop={leaves}" + (f", budget=Budget({budget})" if budget else "")


def _written(leaf: StopCondition) -> str:
    """A condition as a person writes it, with no names of its fields."""
    if isinstance(leaf, HasToolCall):
        return repr(leaf)
    (value,) = (getattr(leaf, field) for field in fields_of(leaf))
    return f"{type(leaf).__name__}({value})"
