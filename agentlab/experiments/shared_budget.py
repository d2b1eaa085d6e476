"""The shared budget of an experiment: the usage of all runs, and reservations for running ones."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import about_dollars, counted, read_of
from agentlab._internal.safe_text import one_line
from agentlab.engine.call_context import LEAST_USD
from agentlab.errors import LimitError
from agentlab.limits.budget import Budget, DefaultTurns
from agentlab.model.pricing import cost_of
from agentlab.model.usage import Usage, UsageSource
from agentlab.records.history import RunHistory
from agentlab.records.step import StepResult
from agentlab.storage import Storage, StoredRun
from agentlab.storage.loader import interrupted_use
from agentlab.storage.writer import store_note

PART_OF = {"max_calls": "calls", "max_tokens": "tokens", "max_cost": "cost_usd"}
"""The limits of a budget that are shared by all runs, and the field of `Spent` that each bounds."""

RUN, SCORE, TOOLS, CUT_OFF = "run", "score", "tools", "cut_off"
"""The purposes of a run's usage: its own steps and sub-agents; the agents that its score ran; those that its tools ran by themselves;
interrupted steps that are not stored."""

SPENT = "the budget of the experiment is spent: "

BESIDE = "spent beside the run"
"""The name of the stored note with the usage for all purposes except RUN."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of one or several runs. `unknown_tokens` and `unknown_cost` are True if a part is unknown; the sum is then a lower
    bound.

    Example:
        >>> results = await lab.Experiment({"brief": brief}, ["?"], repeats=2).run(progress=False)
        >>> results.spent
        Spent(2 calls, 30 tokens, $0.0000)
    """

    calls: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    unknown_tokens: bool = False
    unknown_cost: bool = False

    def with_part(self, before: Spent, now: Spent) -> Spent:
        """Return this sum after one part has changed from `before` to `now`. An unknown sum stays unknown."""
        return Spent(
            self.calls + now.calls - before.calls,
            self.tokens + now.tokens - before.tokens,
            self.cost_usd + now.cost_usd - before.cost_usd,
            self.unknown_tokens or now.unknown_tokens,
            self.unknown_cost or now.unknown_cost,
        )

    def __add__(self, other: Spent) -> Spent:
        return self.with_part(_NOTHING, other)

    def __repr__(self) -> str:
        tokens = f"{'at least ' * self.unknown_tokens}{counted(self.tokens, 'token')}"
        return f"Spent({counted(self.calls, 'call')}, {tokens}, {self.dollars})"

    @property
    def dollars(self) -> str:
        """The cost as text: `$0.0400`, `at least $0.0400`, `cost unknown`."""
        if self.unknown_cost and not self.cost_usd:
            return "cost unknown"
        return f"{'at least ' * self.unknown_cost}{about_dollars(self.cost_usd)}"


_NOTHING = Spent()


def spent_by(history: RunHistory) -> Spent:
    """Return the usage of a run so far, its sub-agents included."""
    return Spent(history.calls, history.known_tokens, history.known_cost_usd, history.tokens is None, history.cost_usd is None)


def spent_in(step: StepResult) -> Spent:
    """Return the usage of one step, without its sub-agents."""
    tokens, cost_usd = sum(call.usage.known_tokens for call in step.calls), sum(call.cost.usd or 0 for call in step.calls)
    return Spent(len(step.calls), tokens, Decimal(cost_usd), step.usage.total_tokens is None, step.cost.usd is None)


# What is stored -------------------------------------------------------------------------------------------------------------------


def spent_before(storage: Storage, stored: Iterable[StoredRun]) -> dict[str, dict[str, Spent]]:
    """Return the usage of stored runs, by run id and purpose."""
    stored, found = list(stored), dict[str, Spent]()
    in_parts = []
    for run in stored:
        row = {} if run.end is None else json.loads(run.end)["row"]
        if row and not (spent := _spent(row)).unknown_tokens and not spent.unknown_cost:
            found[run.head.run_id] = spent
        else:
            found[run.head.run_id] = Spent()
            in_parts.append(run.head.run_id)
    for run_id, text in storage.rows(in_parts) if in_parts else ():
        found[run_id] += _spent(json.loads(text))
    for run_id, uses in interrupted_use(storage, stored).items():
        found[run_id] += spent_by(RunHistory((), uses))
    more = spent_beside(storage, found)
    return {run_id: {RUN: spent, **more.get(run_id, {})} for run_id, spent in found.items()}


def _spent(row: dict[str, float | int]) -> Spent:
    """Read the row of a run or of a step, in which unknown values are left out."""
    own = _part(row, "calls", "total_tokens", "cost_usd")
    return own + _part(row, "child_calls", "child_tokens", "child_cost_usd") if row.get("child_calls") else own


def _part(row: dict[str, float | int], calls: str, tokens: str, cost: str) -> Spent:
    known_tokens, known_cost = row.get(tokens), row.get(cost)
    counted_ = int(row.get(calls, 0)), int(known_tokens or 0), Decimal(str(known_cost or 0))
    return Spent(*counted_, known_tokens is None, known_cost is None)


def spent_beside(storage: Storage, run_ids: Iterable[str] | None = None) -> dict[str, dict[str, Spent]]:
    """Return the usage outside of the runs' steps, by run id and purpose."""
    notes = storage.notes(BESIDE, None if run_ids is None else list(run_ids))
    return {
        run_id: {
            part: Spent(calls, tokens, Decimal(usd), unknown_tokens, unknown_cost)
            for part, (calls, tokens, usd, unknown_tokens, unknown_cost) in json.loads(text).items()
        }
        for run_id, text in notes.items()
    }


def note_beside(storage: Storage, run_id: str, part: str, spent: Spent) -> None:
    """Store the usage of this part, replacing its earlier note."""
    parts = {**spent_beside(storage, [run_id]).get(run_id, {}), part: spent}
    plain = {
        name: [one.calls, one.tokens, str(one.cost_usd), one.unknown_tokens, one.unknown_cost] for name, one in parts.items()
    }
    store_note(storage, run_id, BESIDE, plain)


# The budget ---------------------------------------------------------------------------------------------------------------------


def check_budget(budget: object) -> None:
    """Raise LimitError for anything but None and a budget that several runs can share."""
    if budget is not None and not isinstance(budget, Budget):
        raise LimitError(f"budget={budget!r}: pass a Budget, such as Budget(max_cost=5).")
    for name in ("max_turns", "max_tokens_per_turn", "last_answer"):
        value = getattr(budget, name, None)
        if value is not None and not isinstance(value, DefaultTurns):
            given = f"{name}={value!r}"
            raise LimitError(
                f"budget: {given} limits single runs: set it in settings, such as settings=[dict(budget=Budget({given}))]."
            )


class SharedBudget:
    """The budget of an experiment, its usage, and the reservations of running runs. Any thread may book.

    A run reserves the usage of the most expensive run so far of its group (its agent and settings). Before a run of the group has
    ended, it reserves the limit of its own budget; without a limit, only one run of the group may be running. Reservations decide
    whether a run may start; the actual usage decides whether a further step may be taken.
    """

    def __init__(
        self,
        budget: Budget | None,
        max_runs: int | None,
        before: Mapping[str, Mapping[str, Spent]],
        *,
        groups: int = 1,
        elapsed_s: float = 0.0,
        notify: Callable[[str, Spent], None] = lambda run_id, spent: None,
    ) -> None:
        self.budget, self.max_runs, self.groups = budget, max_runs, groups
        self.total = Spent()
        self._parts: dict[str, dict[str, Spent]] = {}
        self._reserved: dict[str, tuple[object, dict[str, Any]]] = {}
        self._highest: dict[object, dict[str, Any]] = {}
        self._since = time.monotonic() - elapsed_s
        self._notify = notify
        self._lock = threading.Lock()
        for run_id, parts in before.items():
            for part, spent in parts.items():
                self.book(run_id, spent, part)

    def parts(self, run_id: str) -> dict[str, Spent]:
        """Return the usage of this run, by purpose."""
        return dict(self._parts.get(run_id, {}))

    def of(self, run_id: str) -> Spent:
        """Return the total usage of this run."""
        return sum(self.parts(run_id).values(), Spent())

    def book(self, run_id: str, spent: Spent, part: str = RUN) -> None:
        """Set the usage so far of the run for this purpose."""
        with self._lock:
            before = self._parts.setdefault(run_id, {}).get(part, Spent())
            self._parts[run_id][part] = spent
            self.total = self.total.with_part(before, spent)
        self._notify(run_id, self.of(run_id))

    def spent_on(self, part: str) -> Spent:
        """Return the usage of all runs for this purpose."""
        return sum([parts[part] for parts in list(self._parts.values()) if part in parts], Spent())

    # Whether runs may start and continue ---------------------------------------------------------------------------------------

    def why_not(self, run_id: str) -> str:
        """Return why this run may not start or continue, as a clause; empty if it may."""
        if self.max_runs is not None and run_id not in self._parts and len(self._parts) >= self.max_runs:
            return f"{SPENT}{len(self._parts)} runs of {self.max_runs} (max_runs)"
        return self.spent_up()

    def spent_up(self) -> str:
        """Return why no further step may be taken, as a clause; empty if one may."""
        budget, total = self.budget, self.total
        if budget is None:
            return ""
        if budget.missing_usage == "fail" and (what := self._not_known(budget)):
            return f"{what}, and the budget of the experiment has missing_usage='fail'"
        if budget.max_calls is not None and total.calls >= budget.max_calls:
            return f"{SPENT}{total.calls:,} calls of {budget.max_calls:,} (max_calls)"
        if budget.max_tokens is not None and total.tokens >= budget.max_tokens:
            return f"{SPENT}{'at least ' * total.unknown_tokens}{total.tokens:,} tokens of {budget.max_tokens:,} (max_tokens)"
        if budget.max_cost is not None and total.cost_usd >= budget.max_cost:
            used = read_of("max_cost", total.cost_usd, budget.max_cost)
            return f"{SPENT}{'at least ' * total.unknown_cost}{used} (max_cost)"
        if budget.timeout is not None and self._elapsed_s >= budget.timeout:
            return f"{SPENT}{self._elapsed_s:.0f} s of {budget.timeout:g} s (timeout)"
        return ""

    @property
    def left(self) -> dict[str, Any]:
        """The rest of each limit that is set; 0 for all limits if no further step may be taken."""
        most = {limit: None if self.budget is None else getattr(self.budget, limit) for limit in PART_OF}
        if self.spent_up():
            return dict.fromkeys(PART_OF, 0)
        return {limit: value - getattr(self.total, PART_OF[limit]) for limit, value in most.items() if value is not None}

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._since

    def _not_known(self, budget: Budget) -> str:
        """Return a clause that names the first unknown usage; empty if all is known."""
        cost_counts = budget.max_cost is not None and self.total.unknown_cost
        if not self.total.unknown_tokens and not cost_counts:
            return ""
        for run_id, parts in list(self._parts.items()):
            for part, spent in list(parts.items()):
                if spent.unknown_tokens or (cost_counts and spent.unknown_cost):
                    what = "usage" if spent.unknown_tokens else "cost"
                    whose = {RUN: run_id, SCORE: f"the score of {run_id}", TOOLS: f"an agent that a tool of {run_id} ran"}
                    return f"the {what} of {whose.get(part.partition(' ')[0], f'a step of {run_id} that was cut off')} is unknown"
        return ""

    def reserve(self, run_id: str, group: object, own: Budget, *, at_once: int) -> bool:
        """Reserve the expected usage of this run; `own` is its own budget. False if the run must wait for a running one."""
        reserved: dict[str, Any] = {}
        used, known = self.of(run_id), self._highest.get(group)
        for limit, part in PART_OF.items():
            most = None if self.budget is None else getattr(self.budget, limit)
            if most is None:
                continue
            free = most - getattr(self.total, part) - self._held(limit, part)
            if free <= 0:
                return False
            mine, cap = getattr(used, part), getattr(own, limit)
            if known is not None and known[limit]:
                wanted = max(known[limit] - mine, known[limit] / 4)
            elif known is not None:  # the earlier run failed, or its cost is unknown
                wanted = free / at_once
            elif cap is not None:
                wanted = max(cap - mine, cap / 4)
            elif any(other == group for other, _ in self._reserved.values()):
                return False
            else:
                wanted = free / max(1, min(at_once, self.groups - len(self._highest)))
            reserved[limit] = mine + min(free, wanted)
        self._reserved[run_id] = (group, reserved)
        self._parts.setdefault(run_id, {})
        return True

    def _held(self, limit: str, part: str) -> Any:
        """Return the reserved amount that is not used yet."""
        held = [most[limit] - self._used(run_id, part) for run_id, (_, most) in self._reserved.items() if limit in most]
        return sum([one for one in held if one > 0])

    def _used(self, run_id: str, part: str) -> Any:
        return sum([getattr(one, part) for one in list(self._parts[run_id].values())])

    def release(self, run_id: str, group: object, *, ended: bool) -> None:
        """Release the reservation of a run; with `ended` its usage counts for the next reservations of its group."""
        self._reserved.pop(run_id, None)
        if ended:
            self.learn(group, self.of(run_id))

    def learn(self, group: object, spent: Spent) -> None:
        """Record the usage of a run of this group."""
        known = self._highest.setdefault(group, dict.fromkeys(PART_OF, 0))
        for limit, part in PART_OF.items():
            known[limit] = max(known[limit], getattr(spent, part))

    def lease(self, run_id: str) -> Budget | None:
        """Return the budget for a worker, which does not know the usage of others: the reservation of this run, counted from the
        beginning of the run. None if the experiment has no budget."""
        if self.budget is None:
            return None
        _, reserved = self._reserved.get(run_id, (None, {}))
        used, most = self.of(run_id), dict[str, Any]()
        for limit, part in PART_OF.items():
            if getattr(self.budget, limit) is not None:
                amount = reserved.get(limit, getattr(used, part))  # nothing is reserved for a later score
                most[limit] = max(LEAST_USD, amount) if limit == "max_cost" else max(1, math.ceil(amount))
        return Budget(max_turns=None, timeout=self.time_left_s, missing_usage=self.budget.missing_usage, **most)

    @property
    def time_left_s(self) -> float | None:
        """The rest of the timeout; None without one."""
        timeout = None if self.budget is None else self.budget.timeout
        return None if timeout is None else max(0.001, timeout - self._elapsed_s)

    @property
    def blind(self) -> str:
        """The limits that cannot be checked completely since some usage is unknown; empty if there are none."""
        if self.budget is None or self.budget.missing_usage == "fail":
            return ""
        names = [("max_tokens", self.total.unknown_tokens), ("max_cost", self.total.unknown_cost)]
        return " and ".join([name for name, unknown in names if unknown and getattr(self.budget, name) is not None])


# Before any request -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DryRun(Displayable):
    """The number of runs, and the sums of their limits; a sum is None if a run has no such limit.

    `runs` counts all cells, `done` those that have ended, `to_do` the rest. The limits are not strict bounds: a run may exceed its
    limit on tokens or cost by one model call, and an experiment its budget by one step of each running run. The cost of a score is not
    included, unless the budget of the experiment bounds the cost. `unlimited` names the runs whose cost has no limit. `spent_up` is the
    reason if no run takes a further step, and all limits are then 0. `expected_cost_usd` is the mean cost of the ended runs with the
    same agent and settings, for each run to do; None if a group has no ended run of known cost. `expected_from` counts these runs.

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
    expected_cost_usd: Decimal | None = None
    expected_from: int = 0

    def __str__(self) -> str:
        runs = f"{self.to_do} of {self.runs} run{'s' * (self.runs != 1)} to do"
        if self.spent_up and self.to_do:
            return f"{runs}, but {self.spent_up}."
        calls = "any number of calls" if self.call_limit is None else f"{self.call_limit:,} calls"
        tokens = "any number of tokens" if self.token_limit is None else f"{self.token_limit:,} tokens"
        cost = "any cost" if self.cost_limit_usd is None else about_dollars(self.cost_limit_usd)
        sentences = [f"{runs}; sum of their limits: {calls}, {tokens}, {cost}."]
        if self.expected_cost_usd is not None and self.to_do:
            from_runs = counted(self.expected_from, "ended run")
            sentences.append(f"Expected: {about_dollars(self.expected_cost_usd)}, by the mean cost of {from_runs}.")
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


def with_expectation(
    dry_run: DryRun,
    to_do: Sequence[tuple[str, str]],
    done: Mapping[tuple[str, str], Sequence[Decimal | None]],
) -> DryRun:
    """Return the dry run with the expected cost: the mean of the ended runs of the same agent and settings, for each run to do."""
    known = {pair: [cost for cost in costs if cost is not None] for pair, costs in done.items()}
    if not to_do or any(not known.get(pair) for pair in to_do):
        return dry_run
    means = [sum(known[pair], Decimal(0)) / len(known[pair]) for pair in to_do]
    expected = sum(means, Decimal(0)) / len(means) * dry_run.to_do
    return replace(dry_run, expected_cost_usd=expected, expected_from=sum(len(known[pair]) for pair in set(to_do)))


def _largest_sum(each: Iterable[int | Decimal | None], to_do: int, left: int | Decimal | None) -> int | Decimal | None:
    """Return the largest possible sum of `to_do` of the values, at most `left`."""
    listed = list(each)
    if None in listed:
        return left
    whole: int | Decimal = sum(sorted([one for one in listed if one is not None], reverse=True)[:to_do])
    return whole if left is None else min(whole, left)
