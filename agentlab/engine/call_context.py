"""The tool call that the current code runs in: its run, its step, and the limits of the runs that the tool starts.

A run that begins within a tool call is below the calling run, whether `agent.as_tool` or the tool's own code started it. The topmost
run is the outermost one: its limits and its agent's `max_depth` apply to every run below it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from agentlab.errors import ConfigurationError
from agentlab.limits.budget import LIMIT_REASONS, Budget, DefaultTurns
from agentlab.limits.reading import Reading, Remaining
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.records.history import ZERO, RunHistory

if TYPE_CHECKING:
    from agentlab.engine.step_builder import StepBuilder
    from agentlab.engine.stepper import Stepper
    from agentlab.model.messages import ToolCall

MAX_DEPTH = 3
"""How deep runs may be nested below the outermost one, unless its agent says otherwise."""

CALLS_BELOW_PER_STEP = 20
"""Model calls that all runs below the outermost one may make together, per step of its `max_turns`. Its `max_calls` replaces this."""

LEAST_USD = Decimal("1e-9")
"""The lowest cost limit, used if nothing is left: the run then ends before its next call."""


@dataclass(frozen=True, slots=True)
class Used:
    """Usage: model calls, with their known tokens and cost."""

    calls: int = 0
    tokens: int = 0
    cost_usd: Decimal = ZERO

    def __add__(self, other: Used) -> Used:
        return Used(self.calls + other.calls, self.tokens + other.tokens, self.cost_usd + other.cost_usd)


def used(stepper: Stepper, but: Stepper | None = None) -> Used:
    """Return the usage of a run so far: its steps, the step under way, and the child runs of that step except `but`."""
    history, builder = stepper.timeline.history, stepper.builder
    calls, tokens, cost_usd = history.calls, history.known_tokens, history.known_cost_usd
    if builder is None:
        return Used(calls, tokens, cost_usd)
    calls += builder.calls_made + sum([child.calls for child in builder.children])
    tokens += builder.known_tokens + sum([child.known_tokens for child in builder.children])
    cost_usd += builder.known_cost_usd + sum([child.known_cost_usd for child in builder.children], ZERO)
    for child, (before, _) in list(builder.open_children.items()):
        if child is not but:
            now = used(child)
            calls += now.calls - before.calls
            tokens += now.tokens - before.known_tokens
            cost_usd += now.cost_usd - before.known_cost_usd
    return Used(calls, tokens, cost_usd)


@dataclass(frozen=True, slots=True)
class ToolCallContext:
    """A tool call under way: the stepper of its run, the step, and the call."""

    stepper: Stepper
    builder: StepBuilder
    tool_call: ToolCall

    @property
    def run(self) -> Any:
        """The calling run."""
        return self.stepper.run

    @property
    def step(self) -> int:
        """The number of the step."""
        return self.stepper.timeline.next_step

    def left(self, but: Stepper | None = None) -> Remaining:
        """Return what is left of the run's budget after the step under way and its child runs (except `but`); None for no limit.

        Unknown usage counts as 0. Steps are left out: each run counts them separately.
        """
        budget, spent = self.stepper.settings_now().budget, used(self.stepper, but)
        return Remaining(
            None,
            None if budget.max_calls is None else max(0, budget.max_calls - spent.calls),
            None if budget.max_tokens is None else max(0, budget.max_tokens - spent.tokens),
            None if budget.max_cost is None else max(ZERO, budget.max_cost - spent.cost_usd),
            None if budget.timeout is None else max(0.0, budget.timeout - self.stepper.timeline.clock.elapsed_s()),
        )


_Reset: TypeAlias = "Token[ToolCallContext | None]"
_here: ContextVar[ToolCallContext | None] = ContextVar("agentlab_tool_call", default=None)


def enter(stepper: Stepper, builder: StepBuilder, tool_call: ToolCall) -> _Reset:
    """Begin a tool call; `leave` takes what this returns."""
    return _here.set(ToolCallContext(stepper, builder, tool_call))


def leave(before: _Reset) -> None:
    """End a tool call."""
    _here.reset(before)


def here() -> ToolCallContext | None:
    """Return the tool call that the code runs in; None outside of a run."""
    return _here.get()


_watcher: ContextVar[Callable[[Any], None] | None] = ContextVar("agentlab_watcher", default=None)


@contextlib.contextmanager
def watched(watcher: Callable[[Any], None]) -> Iterator[None]:
    """Pass every run that is made in this block to `watcher`, including those of tasks and threads that are started in it."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def made(run: Any) -> None:
    """Pass a new run to the watcher, if there is one."""
    if (watcher := _watcher.get()) is not None:
        watcher(run)


def is_spent(left: Remaining) -> bool:
    """True if some limit has nothing left."""
    return any(part is not None and part <= 0 for part in (left.calls, left.tokens, left.cost_usd, left.time_s))


def within(budget: Budget, left: Remaining, before: RunHistory, *, elapsed_s: float | None = None) -> Budget:
    """Return the budget, lowered to what the caller has left, for a run that begins with the steps of `before`.

    With `elapsed_s`, the active time at its beginning, the timeout is lowered too.
    """
    caps: dict[str, Any] = {}
    if left.calls is not None:
        caps["max_calls"] = max(1, before.calls + left.calls)
    if left.tokens is not None:
        caps["max_tokens"] = max(1, before.known_tokens + left.tokens)
    if left.cost_usd is not None:
        caps["max_cost"] = max(LEAST_USD, before.known_cost_usd + left.cost_usd)
    if left.time_s is not None and elapsed_s is not None:
        caps["timeout"] = max(0.001, elapsed_s + left.time_s)
    lower = {name: cap for name, cap in caps.items() if (own := getattr(budget, name)) is None or cap < own}
    if "max_calls" in lower and budget.max_turns is not None:
        lower["max_turns"] = int(budget.max_turns)  # no longer a default, which would yield to max_calls
    return dataclasses.replace(budget, **lower) if lower else budget


def settings_within(settings: RunSettings, context: ToolCallContext, stepper: Stepper, before: RunHistory) -> RunSettings:
    """Return the settings of a child run, lowered to what its caller has left now: the limits of both may change meanwhile."""
    budget = within(settings.budget, context.left(but=stepper), before)
    return settings if budget is settings.budget else dataclasses.replace(settings, budget=budget)


# All runs below the outermost one -----------------------------------------------------------------------------------------------


def refuse_too_deep() -> None:
    """Raise ConfigurationError if a run that begins here would be nested deeper than the outermost run's agent allows."""
    context = here()
    if context is None:
        return
    stepper = context.stepper
    if (most := stepper.outermost.agent.max_depth) is None or stepper.depth < most:
        return
    depth = stepper.depth + 1
    raise ConfigurationError(
        f"Sub-agents may be nested {most} deep; this one would be nested {depth} deep and was not started. Do its task without it. "
        f"A person may allow more: Agent(…, max_depth={depth}) of the outermost agent."
    )


def steps_within(settings: RunSettings, stepper: Stepper) -> RunSettings:
    """Return the settings of a child run, with no more steps than a person set for the outermost run."""
    most, own = stepper.outermost.limits.snapshot().budget.max_turns, settings.budget.max_turns
    begins_with = stepper.begins_with
    if most is None or (own is not None and (own <= begins_with + most or isinstance(most, DefaultTurns))):
        return settings
    return dataclasses.replace(settings, budget=dataclasses.replace(settings.budget, max_turns=begins_with + most))


def bound_from_above(stepper: Stepper) -> tuple[StopReason, str] | None:
    """Return why `bound_below` of the outermost run forbids a further call, or None. Always None for the outermost run."""
    return None if stepper.outermost is stepper else bound_below(stepper.outermost)


def bound_below(top: Stepper) -> tuple[StopReason, str] | None:
    """Return why no run below this outermost run may make a further call, by its current limits and the total usage; else None."""
    if top.result is not None and top.result.stop_reason is StopReason.CANCELLED:
        return StopReason.CANCELLED, "Cancelled with the outermost run."
    budget, spent = top.limits.snapshot().budget, used(top) + top.beside
    values: dict[str, Any] = {
        "max_calls": spent.calls,
        "max_tokens": spent.tokens,
        "max_cost": spent.cost_usd,
        "timeout": top.timeline.clock.elapsed_s(),
    }
    for name, value in values.items():
        limit = getattr(budget, name)
        if limit is not None and value >= limit:
            return LIMIT_REASONS[name], f"Budget of the outermost run reached: {Reading(name, value, limit, True)}."
    if budget.max_calls is not None or budget.max_turns is None:
        return None
    builder, most = top.builder, CALLS_BELOW_PER_STEP * budget.max_turns
    below = spent.calls - top.timeline.history.own_calls - (0 if builder is None else builder.calls_made)
    if below < most:
        return None
    return StopReason.CALL_LIMIT, (
        f"The sub-agents of a run with max_turns={budget.max_turns} may make {most:,} model calls together "
        f"({CALLS_BELOW_PER_STEP} per step), and have made {below:,}. Budget(max_calls=…) of the outermost run allows more."
    )


def count_beside(stepper: Stepper, calls: int = 0, tokens: int = 0, cost_usd: Decimal = ZERO) -> None:
    """Count usage that no history counts for the outermost run: of runs that a tool's own code started, and of runs below them."""
    above, top = stepper, stepper.outermost
    while above is not top:
        caller = above.origin.caller
        if caller is None:
            with top.beside_lock:
                top.beside += Used(calls, tokens, cost_usd)
            return
        above = caller.stepper
