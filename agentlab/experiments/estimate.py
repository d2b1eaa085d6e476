"""The sum of the limits of an experiment's runs, before any request is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import about_dollars
from agentlab._internal.safe_text import one_line
from agentlab.limits.budget import Budget
from agentlab.model.pricing import cost_of
from agentlab.model.usage import Usage, UsageSource


@dataclass(frozen=True, slots=True)
class DryRun(Displayable):
    """The number of runs, and the sums of their limits; a sum is None if a run has no such limit.

    `runs` counts all cells, `done` those that have ended, `to_do` the rest. The limits are not strict bounds: a run may exceed its
    limit on tokens or cost by one model call, and an experiment its budget by one step of each running run. The cost of a score is not
    included, unless the budget of the experiment bounds the cost. `unlimited` names the runs whose cost has no limit. `spent_up` is the
    reason if no run takes a further step, and all limits are then 0.

    Example:
        >>> limits = dict(budget=lab.Budget(max_turns=4, max_calls=6, max_cost="0.02"))
        >>> lab.Experiment({"brief": brief}, ["?"], [limits], repeats=5).dry_run()
        DryRun(5 of 5 runs to do; sum of their limits: 30 calls, any number of tokens, $0.1000. A run may exceed its limit...
    """

    runs: int
    done: int
    to_do: int
    call_limit: int | None
    token_limit: int | None
    cost_limit_usd: Decimal | None
    unlimited: tuple[str, ...] = ()
    scored: bool = False
    spent_up: str = field(default="", repr=False)

    def __str__(self) -> str:
        runs = f"{self.to_do} of {self.runs} run{'s' * (self.runs != 1)} to do"
        if self.spent_up and self.to_do:
            return f"{runs}, but {self.spent_up}."
        calls = "any number of calls" if self.call_limit is None else f"{self.call_limit:,} calls"
        tokens = "any number of tokens" if self.token_limit is None else f"{self.token_limit:,} tokens"
        cost = "any cost" if self.cost_limit_usd is None else about_dollars(self.cost_limit_usd)
        sentences = [f"{runs}; sum of their limits: {calls}, {tokens}, {cost}."]
        if self.cost_limit_usd is not None:
            sentences.append("A run may exceed its limit by one model call.")
        else:
            named = ", ".join(map(one_line, self.unlimited[:3])) + " and others" * (len(self.unlimited) > 3)
            who = f" of {named}" if named else ""
            sentences.append(
                f"Nothing limits the cost{who}: set Budget(max_cost=…) in the settings, or for the whole experiment."
            )
        return " ".join(sentences) + " The cost of the score is not included." * self.scored

    def __repr__(self) -> str:
        return f"DryRun({self})"


@dataclass(frozen=True, slots=True)
class Bound:
    """The limits of one run; None for no limit."""

    calls: int | None
    tokens: int | None
    cost_usd: Decimal | None
    who: str


def bound(budget: Budget, provider: str, model: str, who: str, address: str = "") -> Bound:
    """Return a run's limits. The cost is limited by `max_cost`, or by the price of `max_tokens` for the model at this address."""
    cost = budget.max_cost
    if budget.max_tokens is not None:
        priced = _highest_cost(provider, model, budget.max_tokens, address)
        cost = priced if cost is None else cost if priced is None else min(cost, priced)
    return Bound(budget.max_calls, budget.max_tokens, cost, who)


def _highest_cost(provider: str, model: str, tokens: int, address: str) -> Decimal | None:
    """Return the cost of these tokens if all of them are of the most expensive kind."""
    all_in, all_out = Usage(tokens, 0, source=UsageSource.REPORTED), Usage(0, tokens, source=UsageSource.REPORTED)
    written = replace(all_in, cache_write_tokens=tokens)
    kinds = (all_in, all_out, written, replace(written, cache_write_1h_tokens=tokens))
    now = datetime.now(UTC)
    costs = [cost_of(provider, model, kind, at=now, address=address).usd for kind in kinds]
    known = [cost for cost in costs if cost is not None]
    return max(known) if costs[0] is not None and costs[1] is not None else None


def estimate(
    bounds: Sequence[Bound], *, runs: int, left: Mapping[str, Any], max_runs: int | None, scored: bool, spent_up: str
) -> DryRun:
    """Return the sums over the runs to do, each at most the rest (`left`) of the experiment's limit."""
    to_do = len(bounds) if max_runs is None else min(len(bounds), max_runs)
    most_expensive = sorted(bounds, key=lambda one: (one.cost_usd is not None, -(one.cost_usd or 0)))[:to_do]
    calls = _largest_sum([one.calls for one in bounds], to_do, left.get("max_calls"))
    tokens = _largest_sum([one.tokens for one in bounds], to_do, left.get("max_tokens"))
    cost = _largest_sum([one.cost_usd for one in bounds], to_do, left.get("max_cost"))
    unlimited = tuple(dict.fromkeys(one.who for one in most_expensive if one.cost_usd is None)) if cost is None else ()
    return DryRun(
        runs,
        runs - len(bounds),
        to_do,
        None if calls is None else int(calls),
        None if tokens is None else int(tokens),
        None if cost is None else Decimal(cost),
        unlimited,
        scored and (cost is None or cost != left.get("max_cost")),
        spent_up,
    )


def _largest_sum(each: Iterable[int | Decimal | None], to_do: int, left: int | Decimal | None) -> int | Decimal | None:
    """Return the largest possible sum of `to_do` of the values, at most `left`."""
    listed = list(each)
    if None in listed:
        return left
    whole: int | Decimal = sum(sorted([one for one in listed if one is not None], reverse=True)[:to_do])
    return whole if left is None else min(whole, left)
