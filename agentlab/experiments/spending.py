"""What the runs of an experiment have used together, and whether its budget is spent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from agentlab.budget import Budget
from agentlab.history import RunHistory
from agentlab.storage import Storage, StoredRun
from agentlab.storage.cut_off import cut_off


@dataclass(frozen=True, slots=True)
class Spent:
    """What one run or several have used, as far as it is known; `unknown_tokens` and `unknown_cost` say that some of it is not."""

    calls: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    unknown_tokens: bool = False
    unknown_cost: bool = False

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.cost_usd + other.cost_usd,
            self.unknown_tokens or other.unknown_tokens,
            self.unknown_cost or other.unknown_cost,
        )


NOTHING = Spent()


def spent_by(history: RunHistory) -> Spent:
    """What a run has used so far."""
    return Spent(history.calls, history.known_tokens, history.known_cost_usd, history.tokens is None, history.cost_usd is None)


def spent_before(storage: Storage, kept: Iterable[StoredRun]) -> dict[str, Spent]:
    """What runs have used by what is kept of them, their sub-agents included, by their ids."""
    kept, found = list(kept), dict[str, Spent]()
    in_parts = []
    for run in kept:
        row = {} if run.end is None else json.loads(run.end)["row"]
        if row and not (spent := _spent(row)).unknown_tokens and not spent.unknown_cost:
            found[run.head.run_id] = spent
        else:
            found[run.head.run_id] = Spent()
            in_parts.append(run.head.run_id)
    for run_id, text in storage.rows(in_parts) if in_parts else ():
        found[run_id] += _spent(json.loads(text))
    for run_id, uses in cut_off(storage, kept).items():
        found[run_id] += spent_by(RunHistory((), uses))
    return found


def _spent(row: dict[str, float | int]) -> Spent:
    """Of the row of a run or of a step, in which what is unknown is left out."""
    own = _part(row, "calls", "total_tokens", "cost_usd")
    return own + _part(row, "child_calls", "child_tokens", "child_cost_usd") if row.get("child_calls") else own


def _part(row: dict[str, float | int], calls: str, tokens: str, cost: str) -> Spent:
    known_tokens, known_cost = row.get(tokens), row.get(cost)
    counted = int(row.get(calls, 0)), int(known_tokens or 0), Decimal(str(known_cost or 0))
    return Spent(*counted, known_tokens is None, known_cost is None)


class Purse:
    """The budget of an experiment and what is used of it, run by run."""

    def __init__(self, budget: Budget | None, max_runs: int | None, before: dict[str, Spent]) -> None:
        self.budget, self.max_runs = budget, max_runs
        self.by_run = dict(before)
        self._since = time.monotonic()
        self.total = sum(before.values(), Spent())

    def begun(self, run_id: str) -> None:
        """This run is begun, or gone on with."""
        self.by_run.setdefault(run_id, Spent())

    def book(self, run_id: str, spent: Spent) -> None:
        """What this run has used by now."""
        before = self.by_run.get(run_id, Spent())
        self.by_run[run_id] = spent
        total = self.total
        self.total = Spent(
            total.calls + spent.calls - before.calls,
            total.tokens + spent.tokens - before.tokens,
            total.cost_usd + spent.cost_usd - before.cost_usd,
            total.unknown_tokens or spent.unknown_tokens,
            total.unknown_cost or spent.unknown_cost,
        )

    def why_not(self, run_id: str) -> str:
        """Why this run may not be begun, or gone on with; empty where it may."""
        if self.max_runs is not None and run_id not in self.by_run and len(self.by_run) >= self.max_runs:
            return f"{len(self.by_run)} runs of {self.max_runs} (max_runs)"
        budget, total = self.budget, self.total
        if budget is None:
            return ""
        if budget.max_calls is not None and total.calls >= budget.max_calls:
            return f"{total.calls:,} calls of {budget.max_calls:,} (max_calls)"
        if budget.max_tokens is not None and total.tokens >= budget.max_tokens:
            return f"{total.tokens:,} tokens of {budget.max_tokens:,} (max_tokens)"
        if budget.max_cost is not None and total.cost_usd >= budget.max_cost:
            return f"${total.cost_usd.normalize():f} of ${budget.max_cost.normalize():f} (max_cost)"
        elapsed_s = time.monotonic() - self._since
        if budget.timeout is not None and elapsed_s >= budget.timeout:
            return f"{elapsed_s:.0f} s of {budget.timeout:g} s (timeout)"
        return ""

    @property
    def blind(self) -> str:
        """Which limit cannot be watched, since some of what was used is not known; empty where all can."""
        if self.budget is None:
            return ""
        names = [("max_tokens", self.total.unknown_tokens), ("max_cost", self.total.unknown_cost)]
        return " and ".join([name for name, unknown in names if unknown and getattr(self.budget, name) is not None])
