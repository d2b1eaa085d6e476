"""Where a tool is called from: which run, by which of its calls, and what that run's budget leaves for a run that the tool starts."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from agentlab.budget import Budget
from agentlab.history import ZERO, RunHistory
from agentlab.results import Remaining
from agentlab.settings import RunSettings

if TYPE_CHECKING:
    from agentlab.loop.ask import Draft
    from agentlab.loop.drive import Drive
    from agentlab.types import ToolCall

LEAST_USD = Decimal("1e-9")
"""A limit of 0 there is none; who has nothing left is not started, and one whose limit is lowered later ends before its next call."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """A tool call under way: the run, the step that it is in, and the call itself."""

    run: Drive
    draft: Draft
    tool_call: ToolCall

    @property
    def turn(self) -> int:
        """The number of the step."""
        return len(self.run.history) + 1

    def left(self) -> Remaining:
        """What the run's budget leaves now, the step under way and its finished sub-agents counted; None where there is no limit.

        Where the use is not known, by what is known of it. Turns are each run's own, so none are said.
        """
        run, draft = self.run, self.draft
        budget, history = run.settings_now().budget, run.history
        calls = history.calls + len(draft.calls) + draft.open_calls + sum([child.calls for child in draft.children])
        tokens = history.known_tokens + sum([call.usage.known_tokens for call in draft.calls])
        tokens += sum([child.known_tokens for child in draft.children])
        cost_usd = history.known_cost_usd + sum([call.cost.known_usd for call in draft.calls], ZERO)
        cost_usd += sum([child.known_cost_usd for child in draft.children], ZERO)
        return Remaining(
            None,
            None if budget.max_calls is None else max(0, budget.max_calls - calls),
            None if budget.max_tokens is None else max(0, budget.max_tokens - tokens),
            None if budget.max_cost is None else max(ZERO, budget.max_cost - cost_usd),
            None if budget.timeout is None else max(0.0, budget.timeout - run.clock.elapsed_s()),
        )


_Reset: TypeAlias = "Token[CallSite | None]"
_here: ContextVar[CallSite | None] = ContextVar("agentlab_call_site", default=None)


def enter(run: Drive, draft: Draft, tool_call: ToolCall) -> _Reset:
    """A tool call begins; `leave` takes what this gives."""
    return _here.set(CallSite(run, draft, tool_call))


def leave(before: _Reset) -> None:
    """It is over."""
    _here.reset(before)


def here() -> CallSite | None:
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


def made(run: Drive) -> None:
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


def settings_within(settings: RunSettings, site: CallSite, before: RunHistory) -> RunSettings:
    """The settings of a run that `site` has called, within what is left there now: limits may change on both sides while it runs."""
    budget = within(settings.budget, site.left(), before)
    return settings if budget is settings.budget else dataclasses.replace(settings, budget=budget)
