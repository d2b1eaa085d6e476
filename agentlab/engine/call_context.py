"""Where a tool is called from: which run, by which of its calls, and what bounds the runs that the tool starts.

A run that begins within a tool call is below the calling run, whether `agent.as_tool` or the tool's own code made it. The first run of
such a family is the outermost one: its limits and its agent's `max_depth` hold for all runs below it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from agentlab.budget import LIMIT_REASONS, Budget, DefaultTurns
from agentlab.errors import ConfigurationError
from agentlab.history import ZERO, RunHistory
from agentlab.results import Reading, Remaining
from agentlab.settings import RunSettings
from agentlab.types import StopReason

if TYPE_CHECKING:
    from agentlab.engine.ask import StepBuilder
    from agentlab.engine.stepper import Stepper
    from agentlab.types import ToolCall

MAX_DEPTH = 3
"""How deep runs may be nested below the outermost one, unless its agent says otherwise."""

CALLS_BELOW_PER_TURN = 20
"""Model calls that all runs below the outermost one may make together, for each of its `max_turns`; its `max_calls` replaces this."""

LEAST_USD = Decimal("1e-9")
"""A limit of 0 there is none; who has nothing left is not started, and one whose limit is lowered later ends before its next call."""


@dataclass(frozen=True, slots=True)
class Used:
    """Model calls, and what is known of their tokens and cost."""

    calls: int = 0
    tokens: int = 0
    cost_usd: Decimal = ZERO

    def __add__(self, other: Used) -> Used:
        return Used(self.calls + other.calls, self.tokens + other.tokens, self.cost_usd + other.cost_usd)


def used(run: Stepper, but: Stepper | None = None) -> Used:
    """What a run has used by now: its steps, the step under way, and sub-agents in it that are done or running, `but` one of them."""
    history, draft = run.history, run.draft
    calls, tokens, cost_usd = history.calls, history.known_tokens, history.known_cost_usd
    if draft is None:
        return Used(calls, tokens, cost_usd)
    calls += len(draft.calls) + draft.open_calls + sum([child.calls for child in draft.children])
    tokens += sum([call.usage.known_tokens for call in draft.calls]) + sum([child.known_tokens for child in draft.children])
    cost_usd += sum([call.cost.known_usd for call in draft.calls], ZERO)
    cost_usd += sum([child.known_cost_usd for child in draft.children], ZERO)
    for child, (before, _) in list(draft.open_children.items()):
        if child is not but:
            now = used(child)
            calls += now.calls - before.calls
            tokens += now.tokens - before.known_tokens
            cost_usd += now.cost_usd - before.known_cost_usd
    return Used(calls, tokens, cost_usd)


@dataclass(frozen=True, slots=True)
class ToolCallContext:
    """A tool call under way: the run, the step that it is in, and the call itself."""

    run: Stepper
    draft: StepBuilder
    tool_call: ToolCall

    @property
    def turn(self) -> int:
        """The number of the step."""
        return len(self.run.history) + 1

    def left(self, but: Stepper | None = None) -> Remaining:
        """What the run's budget leaves now, the step under way and its sub-agents (`but` this one) counted; None without a limit.

        Where the use is not known, by what is known of it. Turns are each run's own, so none are said.
        """
        budget, spent = self.run.settings_now().budget, used(self.run, but)
        return Remaining(
            None,
            None if budget.max_calls is None else max(0, budget.max_calls - spent.calls),
            None if budget.max_tokens is None else max(0, budget.max_tokens - spent.tokens),
            None if budget.max_cost is None else max(ZERO, budget.max_cost - spent.cost_usd),
            None if budget.timeout is None else max(0.0, budget.timeout - self.run.clock.elapsed_s()),
        )


_Reset: TypeAlias = "Token[ToolCallContext | None]"
_here: ContextVar[ToolCallContext | None] = ContextVar("agentlab_call_site", default=None)


def enter(run: Stepper, draft: StepBuilder, tool_call: ToolCall) -> _Reset:
    """A tool call begins; `leave` takes what this gives."""
    return _here.set(ToolCallContext(run, draft, tool_call))


def leave(before: _Reset) -> None:
    """It is over."""
    _here.reset(before)


def here() -> ToolCallContext | None:
    """The tool call that this is done for; None outside of a run."""
    return _here.get()


_watcher: ContextVar[Callable[[Any], None] | None] = ContextVar("agentlab_watcher", default=None)


@contextlib.contextmanager
def watched(watcher: Callable[[Any], None]) -> Iterator[None]:
    """Hand every run that is made within this to `watcher`, in tasks and threads that are started here too."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def made(run: Stepper) -> None:
    """Hand a new run to the watcher, where there is one."""
    if (watcher := _watcher.get()) is not None:
        watcher(run)


def is_spent(left: Remaining) -> bool:
    """Whether nothing more can be done with what is left."""
    return any(part is not None and part <= 0 for part in (left.calls, left.tokens, left.cost_usd, left.time_s))


def within(budget: Budget, left: Remaining, before: RunHistory, *, elapsed_s: float | None = None) -> Budget:
    """The budget, lowered to what its caller has left, of a run that begins with the steps of `before`.

    With `elapsed_s`, the active time that it begins with, its time is lowered too.
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
        lower["max_turns"] = int(budget.max_turns)  # calls that the caller has left do not raise a default of the turns
    return dataclasses.replace(budget, **lower) if lower else budget


def settings_within(settings: RunSettings, site: ToolCallContext, run: Stepper, before: RunHistory) -> RunSettings:
    """The settings of a run that `site` has called, within what is left there now: limits may change on both sides while it runs."""
    budget = within(settings.budget, site.left(but=run), before)
    return settings if budget is settings.budget else dataclasses.replace(settings, budget=budget)


# The whole family ---------------------------------------------------------------------------------------------------------------


def refuse_too_deep() -> None:
    """Raise ConfigurationError where a run that begins here would be nested deeper than the outermost run's agent allows."""
    site = here()
    if site is None or (most := site.run.outermost.agent.max_depth) is None or site.run.depth < most:
        return
    depth = site.run.depth + 1
    raise ConfigurationError(
        f"Sub-agents may be nested {most} deep; this one would be nested {depth} deep and was not started. Do its task without it. "
        f"A person may allow more: Agent(…, max_depth={depth}) of the outermost agent."
    )


def turns_within(settings: RunSettings, run: Stepper) -> RunSettings:
    """The settings of a run below another, with at most as many turns as a person set for the outermost run."""
    most, own = run.outermost.limits.snapshot().budget.max_turns, settings.budget.max_turns
    if most is None or (own is not None and (own <= run.begins_with + most or isinstance(most, DefaultTurns))):
        return settings
    return dataclasses.replace(settings, budget=dataclasses.replace(settings.budget, max_turns=run.begins_with + most))


def bound_from_above(run: Stepper) -> tuple[StopReason, str] | None:
    """Why a run may make no further call, by `bound_below` of the outermost run; None where it may, and for that run itself."""
    return None if run.outermost is run else bound_below(run.outermost)


def bound_below(top: Stepper) -> tuple[StopReason, str] | None:
    """Why no run below this outermost one may make a further call, by its limits as they are now and by all that is used; else None."""
    if top.result is not None and top.result.stop_reason is StopReason.CANCELLED:
        return StopReason.CANCELLED, "Cancelled with the outermost run."
    budget, spent = top.limits.snapshot().budget, used(top) + top.beside
    values: dict[str, Any] = {
        "max_calls": spent.calls,
        "max_tokens": spent.tokens,
        "max_cost": spent.cost_usd,
        "timeout": top.clock.elapsed_s(),
    }
    for name, value in values.items():
        limit = getattr(budget, name)
        if limit is not None and value >= limit:
            return LIMIT_REASONS[name], f"Budget of the outermost run reached: {Reading(name, value, limit, True)}."
    if budget.max_calls is not None or budget.max_turns is None:
        return None
    draft, most = top.draft, CALLS_BELOW_PER_TURN * budget.max_turns
    below = spent.calls - top.history.own_calls - (0 if draft is None else len(draft.calls) + draft.open_calls)
    if below < most:
        return None
    return StopReason.CALL_LIMIT, (
        f"The sub-agents of a run with max_turns={budget.max_turns} may make {most:,} model calls together "
        f"({CALLS_BELOW_PER_TURN} per turn), and have made {below:,}. Budget(max_calls=…) of the outermost run allows more."
    )


def count_beside(run: Stepper, use: Used) -> None:
    """Count what a run below another uses for the outermost run, where no history says it: a tool's own code made this run, or one that
    is above it."""
    above, top = run, run.outermost
    while above is not top:
        if above.caller is None:
            with top.beside_lock:
                top.beside += use
            return
        above = above.caller
