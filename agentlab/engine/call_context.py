"""The state of a run, the tool call that the current code runs in, and the limits of the runs that the tool starts.

A run that begins within a tool call is below the calling run, whether `agent.as_tool` or the tool's own code started it. The topmost
run is the outermost one: its limits and its agent's `max_depth` apply to every run below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from decimal import Decimal
from typing import Any, TypeAlias

from agentlab._internal.values import dataclass
from agentlab.engine.control import Control
from agentlab.engine.plan import Ending, Origin, RunPlan, RunSnapshot
from agentlab.engine.step_builder import OpenChild, StepBuilder, Used
from agentlab.engine.timeline import Timeline
from agentlab.errors import ConfigurationError
from agentlab.limits.budget import LIMIT_REASONS, Budget, DefaultTurns
from agentlab.limits.live import LiveSettings
from agentlab.limits.reading import Reading, Remaining
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import ToolCall
from agentlab.records.history import ZERO, RunHistory
from agentlab.records.provenance import LazySetup
from agentlab.records.result import RunResult

MAX_DEPTH = 3
"""How deep runs may be nested below the outermost one, unless its agent says otherwise."""

CALLS_BELOW_PER_STEP = 20
"""Model calls that all runs below the outermost one may make together, per step of its `max_turns`. Its `max_calls` replaces this."""

LEAST_USD = Decimal("1e-9")
"""The lowest cost limit, used if nothing is left: the run then ends before its next call."""


class RunContext:
    """The state that the steps of one run work on: its record, agent and settings, the step under way, its place among nested runs.

    `run` is the user's run object, opaque here. `in_force` are the settings of the newest step; `parent_limit` lowers the settings of
    a child run. `caller` is the run whose tool call started this one, `outermost` the first run of nested tool calls, `depth` the
    distance to it. `outside_history` is the usage of runs below the outermost one that no history counts. `holds` are tool calls that
    must not be repeated unless `again` allows it. `approver` decides on calls that wait for approval. `deadline` is the timeout of the
    step under way. `ending` is why the run ends with its newest step, or None. `waiting` has, of the outermost run, the steppers of
    the runs that wait for approval.
    """

    __slots__ = (
        "again",
        "agent",
        "approver",
        "begins_with",
        "builder",
        "caller",
        "control",
        "deadline",
        "depth",
        "ending",
        "holds",
        "in_force",
        "limits",
        "origin",
        "outermost",
        "outside_history",
        "outside_lock",
        "parent_limit",
        "replay_key",
        "result",
        "run",
        "setup",
        "timeline",
        "transport",
        "waiting",
        "waits_for_tool",
        "warned_unknown",
    )

    def __init__(self, plan: RunPlan, timeline: Timeline, control: Control, run: Any) -> None:
        self.run = run
        self.timeline, self.control = timeline, control
        self.replay_key: str = self.run_id
        self.agent, self.transport, self.limits = plan.agent, plan.transport, LiveSettings(plan.settings, plan.agent.tools)
        self.origin: Origin[Any] = plan.origin
        self.setup = LazySetup(plan.agent, plan.prefix.messages[: plan.prefix.first_length], plan.setup)
        self.holds, self.again, self.approver = plan.holds, plan.again, plan.approver
        self.in_force: RunSettings = plan.settings
        self.parent_limit: Callable[[RunSettings], RunSettings] | None = None
        self.builder: StepBuilder | None = None
        self.deadline: asyncio.Timeout | None = None
        self.ending: Ending | None = None
        self.result: RunResult | None = None
        above = here()
        self.caller: RunContext | None = None
        self.outermost: RunContext = self if above is None else above.caller.outermost
        self.depth: int = 0 if above is None else above.caller.depth + 1
        self.begins_with: int = len(timeline.history)
        self.outside_history, self.outside_lock = Used(), threading.Lock()
        self.warned_unknown: tuple[RunSettings, bool] | None = None
        self.waits_for_tool = 0
        self.waiting: set[Any] = set()

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.timeline.run_id

    def settings_now(self) -> RunSettings:
        """Return the current limits; those of a child run are lowered to what its caller and the outermost run have left."""
        settings = self.limits.snapshot()
        if self.parent_limit is not None:
            settings = self.parent_limit(settings)
        return settings if self.outermost is self else steps_within(settings, self)

    def budget_of(self, settings: RunSettings) -> Budget:
        """Return the limits of the step under way: without what is held back for a last answer, unless this is its step."""
        budget = settings.budget
        if budget.last_answer is None or (self.builder is not None and self.builder.last_answer):
            return budget
        return budget.before_last_answer()

    @property
    def callers(self) -> list[RunContext]:
        """The runs whose tool calls wait for this one, the nearest first."""
        return [] if self.caller is None else [self.caller, *self.caller.callers]

    @property
    def timeout_s(self) -> float | None:
        """The timeout of the step under way, by the current limits. None: no limit."""
        return self.budget_of(self.settings_now()).timeout

    @property
    def left_s(self) -> float | None:
        """What is left of the timeout, in seconds. None: no limit."""
        timeout_s = self.timeout_s
        return None if timeout_s is None else timeout_s - self.timeline.clock.elapsed_s()

    def set_deadline(self) -> None:
        """Apply the current timeout to the step under way, on its loop. There is none while a pause stops the clock."""
        if self.deadline is not None and not self.deadline.expired():
            left_s = self.left_s if self.timeline.clock.runs else None
            self.deadline.reschedule(None if left_s is None else asyncio.get_running_loop().time() + left_s)

    def refresh_settings(self) -> RunSettings:
        """Apply the current limits and return them."""
        self.in_force = self.settings_now()
        return self.in_force

    def used(self, but: OpenChild | None = None) -> Used:
        """Return the usage of the run so far: its steps, the step under way, and the child runs of that step except `but`."""
        history, builder = self.timeline.history, self.builder
        calls, tokens, cost_usd = history.calls, history.known_tokens, history.known_cost_usd
        if builder is None:
            return Used(calls, tokens, cost_usd)
        calls += builder.calls_made + sum([child.calls for child in builder.children])
        tokens += builder.known_tokens + sum([child.known_tokens for child in builder.children])
        cost_usd += builder.known_cost_usd + sum([child.known_cost_usd for child in builder.children], ZERO)
        for child in tuple(builder.open_children):
            if child is not but:
                used = child.used_now()
                calls, tokens, cost_usd = calls + used.calls, tokens + used.tokens, cost_usd + used.cost_usd
        return Used(calls, tokens, cost_usd)

    def result_for(self, ending: Ending, history: RunHistory | None = None) -> RunResult:
        """Return the result of the run for this ending, with its history unless another one is given."""
        timeline, origin, model = self.timeline, self.origin, self.agent.model
        return RunResult(
            run_id=self.run_id,
            provider=model.name,
            model=model.model,
            prompt=timeline.prompt,
            history=timeline.history if history is None else history,
            messages=timeline.conversation.view(),
            events=timeline.events,
            stop_reason=ending.stop_reason,
            detail=ending.detail,
            conditions_met=ending.conditions_met,
            output=ending.output,
            error=ending.error,
            stopped_by=ending.stopped_by,
            parent_run_id=origin.parent_run_id,
            forked_at=origin.forked_at,
            parent_step=origin.parent_step,
            called_by=origin.called_by,
            asked_at=timeline.asked_at[-1] if timeline.asked_at else 0,
            setup=self.setup,
        )

    def snapshot(self) -> RunSnapshot:
        """Return the current state of the run."""
        timeline, result = self.timeline, self.result
        if result is None and self.ending is not None:
            result = self.result_for(self.ending)
        return RunSnapshot(
            self.run_id,
            self.agent,
            timeline.prefix(),
            timeline.complete_steps,
            self.limits.snapshot(),
            timeline.events,
            result,
            timeline.clock.elapsed_s(),
            self.origin,
            self.holds,
            self.setup,
        )


@dataclass(frozen=True, slots=True)
class ToolCallContext:
    """A tool call under way: the calling run, the step, and the call."""

    caller: RunContext
    builder: StepBuilder
    tool_call: ToolCall

    @property
    def run(self) -> Any:
        """The calling run as its user holds it."""
        return self.caller.run

    @property
    def step(self) -> int:
        """The number of the step."""
        return self.caller.timeline.next_step

    def left(self, but: OpenChild | None = None) -> Remaining:
        """Return what is left of the run's budget after the step under way and its child runs (except `but`); None for no limit.

        Unknown usage counts as 0. Steps are left out: each run counts them separately. Of sub-agents that run at the same time, each
        has its share of the calls, tokens and cost.
        """
        budget, share = self.caller.budget_of(self.caller.settings_now()), self.builder.shares.get(self.tool_call.id)
        spent = self.caller.used(but) if share is None else self._used_by_call(but)

        def rest(limit: Any, before: Any, used: Any) -> Any:
            whole = None if limit is None else limit if share is None else share.part(max(type(limit)(), limit - before))
            return None if whole is None else max(type(whole)(), whole - used)

        before = Used() if share is None else share.before
        return Remaining(
            None,
            rest(budget.max_calls, before.calls, spent.calls),
            rest(budget.max_tokens, before.tokens, spent.tokens),
            rest(budget.max_cost, before.cost_usd, spent.cost_usd),
            None if budget.timeout is None else max(0.0, budget.timeout - self.caller.timeline.clock.elapsed_s()),
        )

    def _used_by_call(self, but: OpenChild | None) -> Used:
        """Return the usage of the child runs that this call started, except `but`."""
        builder, mine = self.builder, self.tool_call.id
        spent = Used()
        for use in builder.children:
            if use.call_id == mine:
                spent += Used(use.calls, use.known_tokens, use.known_cost_usd)
        for child in builder.open_children:
            if child.call_id == mine and child is not but:
                spent += child.used_now()
        return spent


@contextlib.contextmanager
def clocks_of_callers_stopped(run: RunContext) -> Iterator[None]:
    """Stop the clocks and the timeouts of the runs whose tool calls wait for this one, while it is paused."""
    for one in run.callers:
        one.timeline.clock.stop()
        one.set_deadline()
    try:
        yield
    finally:
        for one in run.callers:
            one.timeline.clock.start()
            one.set_deadline()


_Reset: TypeAlias = "Token[ToolCallContext | None]"
_here: ContextVar[ToolCallContext | None] = ContextVar("agentlab_tool_call", default=None)


def enter(caller: RunContext, builder: StepBuilder, tool_call: ToolCall) -> _Reset:
    """Begin a tool call; `leave` takes what this returns."""
    return _here.set(ToolCallContext(caller, builder, tool_call))


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


def announce(run: Any) -> None:
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


def settings_within(settings: RunSettings, context: ToolCallContext, child: OpenChild) -> RunSettings:
    """Return the settings of a child run, lowered to what its caller has left now: the limits of both may change meanwhile."""
    budget = within(settings.budget, context.left(but=child), child.before)
    return settings if budget is settings.budget else dataclasses.replace(settings, budget=budget)


# All runs below the outermost one -----------------------------------------------------------------------------------------------


def refuse_too_deep() -> None:
    """Raise ConfigurationError if a run that begins here would be nested deeper than the outermost run's agent allows."""
    context = here()
    if context is None:
        return
    caller = context.caller
    if (most := caller.outermost.agent.max_depth) is None or caller.depth < most:
        return
    depth = caller.depth + 1
    raise ConfigurationError(
        f"Sub-agents may be nested {most} deep; this one would be nested {depth} deep and was not started. Do its task without it. "
        f"A person may allow more: Agent(…, max_depth={depth}) of the outermost agent."
    )


def steps_within(settings: RunSettings, run: RunContext) -> RunSettings:
    """Return the settings of a child run, with no more steps than a person set for the outermost run."""
    most, own = run.outermost.limits.snapshot().budget.max_turns, settings.budget.max_turns
    begins_with = run.begins_with
    if most is None or (own is not None and (own <= begins_with + most or isinstance(most, DefaultTurns))):
        return settings
    return dataclasses.replace(settings, budget=dataclasses.replace(settings.budget, max_turns=begins_with + most))


def outer_limit_reached(run: RunContext) -> tuple[StopReason, str] | None:
    """Return why `limit_below_reached` of the outermost run forbids a further call, or None. Always None for the outermost run."""
    return None if run.outermost is run else limit_below_reached(run.outermost, has_share=_has_share(run))


def _has_share(run: RunContext) -> bool:
    """True if the run, or one that called it, is a sub-agent with a share: its end must not depend on the usage of those beside it."""
    above: RunContext | None = run
    while above is not None and above.caller is not None:
        builder = above.caller.builder
        if builder is not None and above.origin.called_by in builder.shares:
            return True
        above = above.caller
    return False


def limit_below_reached(top: RunContext, *, has_share: bool = False) -> tuple[StopReason, str] | None:
    """Return why no run below this outermost run may make a further call, by its current limits and the total usage; else None. With
    `has_share`, only the time counts: the share limits the rest."""
    if top.result is not None and top.result.stop_reason is StopReason.CANCELLED:
        return StopReason.CANCELLED, "Cancelled with the outermost run."
    budget, spent = top.budget_of(top.limits.snapshot()), top.used() + top.outside_history
    values: dict[str, Any] = {
        "max_calls": spent.calls,
        "max_tokens": spent.tokens,
        "max_cost": spent.cost_usd,
        "timeout": top.timeline.clock.elapsed_s(),
    }
    for name, value in values.items():
        limit = getattr(budget, name)
        if limit is not None and value >= limit and not (has_share and name != "timeout"):
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


def count_outside_history(run: RunContext, calls: int = 0, tokens: int = 0, cost_usd: Decimal = ZERO) -> None:
    """Count usage that no history counts for the outermost run: of runs that a tool's own code started, and of runs below them."""
    above, top = run, run.outermost
    while above is not top:
        if above.caller is None:
            with top.outside_lock:
                top.outside_history += Used(calls, tokens, cost_usd)
            return
        above = above.caller
