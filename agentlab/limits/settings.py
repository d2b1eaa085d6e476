"""The settings of a run: all its limits at one moment, frozen and checked on creation."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar, cast

from agentlab._internal.display import Displayable
from agentlab._internal.errors import ConfigurationError, LimitError
from agentlab._internal.names import helps_with_keywords
from agentlab._internal.redaction import redacted_repr
from agentlab._internal.values import dataclass
from agentlab.limits.budget import DEFAULT_TURNS, Budget, DefaultTurns
from agentlab.limits.combinators import StopCondition, as_condition
from agentlab.limits.fields import choices_of, limit_fields
from agentlab.limits.policies import CONTINUATION, NO_CONTINUATION, ContinuationPolicy, TerminatingTools
from agentlab.limits.reading import Decision


@helps_with_keywords
@redacted_repr
@dataclass(frozen=True, slots=True)
class RunSettings(Displayable):
    """All limits of a run at one moment. Each step reads them once and records them.

    `policy` is a function, sync or async, that decides what to do with each response, see `agentlab.engine.termination`; None means the
    standard table. `continuation` limits the calls that continue a truncated response. `terminating` names the tools that end the run;
    without them, an answer without tool calls ends it. `approve` holds patterns of tool names and conditions: a person is asked before
    a tool that fits a pattern is called, and before any tool once a condition is met.

    If max_turns is not set, it is the largest count of steps or calls that is set, but at least 20: the default is never lower than
    another limit, and ends runs that have none.

    Example:
        >>> run.limits.snapshot() == lab.RunSettings(stop=lab.HasToolCall("finalize") | lab.StepCountIs(8))
        True
        >>> result.history[0].settings.budget
        Budget(max_turns=20)
    """

    budget: Budget = Budget()
    stop: StopCondition | None = None
    policy: Callable[..., Decision | Awaitable[Decision]] | None = None
    continuation: ContinuationPolicy = CONTINUATION
    terminating: TerminatingTools | None = None
    approve: tuple[str | StopCondition, ...] = ()

    def __post_init__(self) -> None:
        for leaf in () if self.stop is None else self.stop.leaves():
            if choices_of(leaf):
                raise LimitError(f"{leaf!r} is a grid for lab.backtest(…): in a run, each limit has a single value.")
        steps = self.budget.max_turns
        if isinstance(steps, DefaultTurns) and steps != (most := max(DEFAULT_TURNS, *self._counts())):
            object.__setattr__(self, "budget", dataclasses.replace(self.budget, max_turns=DefaultTurns(most)))

    def _counts(self) -> Iterator[int]:
        """Yield the limits on steps and calls; a step makes at least one call."""
        yield self.budget.max_calls or 0
        yield 0 if self.terminating is None else self.terminating.max_invocations
        for leaf in () if self.stop is None else self.stop.leaves(that_count=True):
            for field in limit_fields(leaf):
                value = getattr(leaf, field.name)
                if field.metadata["unit"] in ("steps", "turns", "calls") and isinstance(value, int):
                    yield value


def as_budget(budget: object) -> Budget:
    """Return a budget. Raises LimitError for anything else."""
    if isinstance(budget, Budget):
        return budget
    raise LimitError(f"budget={budget!r}: pass a Budget, such as Budget(max_cost=0.10).")


def as_policy(policy: object) -> Callable[..., Decision | Awaitable[Decision]] | None:
    """Return a policy, or None for the standard one. Raises ConfigurationError if it is not callable."""
    if policy is None or callable(policy):
        return policy
    raise ConfigurationError(f"policy={policy!r}: pass a function of (signal, context) that returns a Decision, or None.")


def as_continuation(continuation: object) -> ContinuationPolicy:
    """Return a continuation policy; 0, False or None mean no continuation. Raises ConfigurationError for anything else."""
    if isinstance(continuation, ContinuationPolicy):
        return continuation
    if continuation is None or (isinstance(continuation, int) and not continuation):
        return NO_CONTINUATION
    raise ConfigurationError(
        f"continuation={continuation!r}: pass a ContinuationPolicy, such as ContinuationPolicy(max_continuations_per_turn=2)."
    )


def as_terminating(terminating: object) -> TerminatingTools | None:
    """Return terminating tools, also from a list of names. Raises LimitError for anything else."""
    if terminating is None or isinstance(terminating, TerminatingTools):
        return terminating
    return TerminatingTools(cast("tuple[str, ...]", terminating))  # which checks it


def as_approve(approve: object, tools: Mapping[str, Any] | None = None) -> tuple[str | StopCondition, ...]:
    """Return patterns of tool names and conditions, from a list or a single one; True means every tool, None or False none.

    One of `tools`, or its function, means its name; any other function is a condition. Raises LimitError for a pattern that fits none
    of `tools`; None means that they are not known.
    """
    if approve is None or isinstance(approve, bool):
        return ("*",) if approve else ()
    listed = approve if isinstance(approve, Iterable) and not isinstance(approve, str) else [approve]
    parts = tuple([_asked_by(one, tools or {}) for one in listed])
    for part in parts if tools is not None else ():
        if isinstance(part, str) and part != "*" and not any(fnmatchcase(name, part) for name in tools or {}):
            has_sub_agents = any(getattr(tool.function, "ends_when_cancelled", False) for tool in (tools or {}).values())
            hint = " For tools of its sub-agents, pass approve to their lab.Agent(…)." if has_sub_agents else ""
            raise LimitError(f"approve: no tool of the agent fits {part!r}. Its tools: {', '.join(tools or ()) or 'none'}.{hint}")
    return parts


def _asked_by(part: object, tools: Mapping[str, Any]) -> str | StopCondition:
    """Return a pattern or a condition."""
    if isinstance(part, StopCondition):
        return part
    pattern = part if isinstance(part, str) else getattr(part, "name", None) if hasattr(part, "spec") else None
    if isinstance(pattern, str) and pattern:
        return pattern
    for name, tool in tools.items() if callable(part) else ():
        if part in ((tool.function, tool.arguments_model) if isinstance(part, type) else (tool.function,)):
            return name
    if not callable(part):
        raise LimitError(
            f'approve has {part!r}: give names or patterns of tools, such as approve=["pay", "book_*"], the tools themselves, or stop '
            "conditions."
        )
    return as_condition(part)


def _as_stop(condition: object) -> StopCondition | None:
    return None if condition is None else as_condition(condition)


PARTS: dict[str, Callable[[object], object]] = {
    "budget": as_budget,
    "stop": _as_stop,
    "policy": as_policy,
    "continuation": as_continuation,
    "terminating": as_terminating,
    "approve": as_approve,
}
"""The parts of RunSettings, each with the check for a new value."""

EDITABLE: dict[str, type] = {"budget": Budget, "continuation": ContinuationPolicy, "terminating": TerminatingTools}
"""The parts of RunSettings whose fields can be edited one by one."""

PART_OF = {field.name: part for part, kind in EDITABLE.items() for field in dataclasses.fields(kind)}
"""The part that each field belongs to; no two parts share a field name."""

Read = TypeVar("Read")

Written = TypeVar("Written")
