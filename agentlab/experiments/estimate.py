"""What an experiment may take at most, before anything is asked of anybody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

from agentlab.amounts import about_dollars
from agentlab.budget import Budget
from agentlab.pricing import cost_of
from agentlab.printable import one_line
from agentlab.shown import Shown
from agentlab.types import Usage, UsageSource


@dataclass(frozen=True, slots=True)
class DryRun(Shown):
    """How many runs there are and what they may take at most; None where nothing bounds it.

    `runs` are all cells, `done` those that have ended, `to_do` the rest. `max_calls`, `max_tokens` and `max_cost_usd` bound the rest
    together; a limit on tokens or cost may be passed by one model call a run. `unbounded` says whose cost nothing bounds.

    Example:
        >>> limits = dict(budget=lab.Budget(max_turns=4, max_calls=6, max_cost="0.02"))
        >>> lab.Experiment({"brief": brief}, ["?"], [limits], repeats=5).dry_run()
        DryRun(5 of 5 runs to do: at most 30 calls, any number of tokens; at most $0.1000, and what one more mod...
    """

    runs: int
    done: int
    to_do: int
    max_calls: int | None
    max_tokens: int | None
    max_cost_usd: Decimal | None
    unbounded: tuple[str, ...] = ()

    def __str__(self) -> str:
        runs = f"{self.to_do} of {self.runs} run{'s' * (self.runs != 1)} to do"
        calls = "any number of calls" if self.max_calls is None else f"at most {self.max_calls:,} calls"
        tokens = "any number of tokens" if self.max_tokens is None else f"{self.max_tokens:,} tokens"
        if self.max_cost_usd is not None:
            cost = f"at most {about_dollars(self.max_cost_usd)}, and what one more model call a run costs"
        else:
            named = ", ".join(map(one_line, self.unbounded[:3])) + " and others" * (len(self.unbounded) > 3)
            who = f" of {named}" if named else ""
            cost = f"cost unknown: nothing bounds that{who}; set Budget(max_cost=…) in the settings, or for the whole experiment"
        return f"{runs}: {calls}, {tokens}; {cost}."

    def __repr__(self) -> str:
        return f"DryRun({self})"


@dataclass(frozen=True, slots=True)
class Bound:
    """What one run may take at most; None where nothing bounds it."""

    calls: int | None
    tokens: int | None
    cost_usd: Decimal | None
    who: str


def bound(budget: Budget, provider: str, model: str, who: str, address: str = "") -> Bound:
    """By its budget: the cost by `max_cost`, or by the price of today for `max_tokens` of the model at this address."""
    cost = budget.max_cost
    if budget.max_tokens is not None:
        priced = _dearest(provider, model, budget.max_tokens, address)
        cost = priced if cost is None else cost if priced is None else min(cost, priced)
    return Bound(budget.max_calls, budget.max_tokens, cost, who)


def _dearest(provider: str, model: str, tokens: int, address: str) -> Decimal | None:
    """What so many tokens cost if all of them are of the dearest kind."""
    all_in, all_out = Usage(tokens, 0, source=UsageSource.REPORTED), Usage(0, tokens, source=UsageSource.REPORTED)
    written = replace(all_in, cache_write_tokens=tokens)
    kinds = (all_in, all_out, written, replace(written, cache_write_1h_tokens=tokens))
    now = datetime.now(UTC)
    costs = [cost_of(provider, model, kind, at=now, address=address).usd for kind in kinds]
    known = [cost for cost in costs if cost is not None]
    return max(known) if costs[0] is not None and costs[1] is not None else None


def estimated(bounds: Sequence[Bound], *, runs: int, left: Budget | None, max_runs: int | None, at_once: int) -> DryRun:
    """The sum over the runs to be done; where the whole experiment has a budget, no more than what is `left` of it and the runs
    that are under way when it is spent."""
    to_do = len(bounds) if max_runs is None else min(len(bounds), max_runs)
    dearest = sorted(bounds, key=lambda one: (one.cost_usd is not None, -(one.cost_usd or 0)))[:to_do]
    calls = _at_most([one.calls for one in bounds], to_do, None if left is None else left.max_calls, at_once)
    tokens = _at_most([one.tokens for one in bounds], to_do, None if left is None else left.max_tokens, at_once)
    cost = _at_most([one.cost_usd for one in bounds], to_do, None if left is None else left.max_cost, at_once)
    open_ended = tuple(dict.fromkeys(one.who for one in dearest if one.cost_usd is None)) if cost is None else ()
    return DryRun(
        runs,
        runs - len(bounds),
        to_do,
        None if calls is None else int(calls),
        None if tokens is None else int(tokens),
        None if cost is None else Decimal(cost),
        open_ended,
    )


def _at_most(each: Iterable[int | Decimal | None], to_do: int, left: int | Decimal | None, at_once: int) -> int | Decimal | None:
    """The largest that can be, of so many of these; what is begun before the budget is spent ends by itself."""
    listed = list(each)
    if None in listed:
        return None
    known = sorted([one for one in listed if one is not None], reverse=True)[:to_do]
    whole: int | Decimal = sum(known)
    return whole if left is None else min(whole, left + sum(known[:at_once]))
