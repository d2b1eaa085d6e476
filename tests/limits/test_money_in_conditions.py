"""Conditions in which a cost is a number of US dollars, as the specification writes them, in whole runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

import agentlab as lab
from agentlab.model.finish_reasons import StopReason
from agentlab.records.history import RunHistory
from agentlab.records.step import StepResult
from agentlab.testing import ScriptedProvider, call

CENTS_20 = Decimal("0.20")


@lab.tool
def look(q: str) -> str:
    """Look something up."""
    return f"saw {q}"


def run(stop: Any, costs: Sequence[Decimal | None] = (CENTS_20,) * 5, **more: Any) -> lab.RunResult:
    """A run whose steps have these costs; None is an unknown one. It ends by itself after them."""
    script = [call("look", {"q": str(number)}, cost=usd) for number, usd in enumerate(costs)]

    async def finished() -> lab.RunResult:
        return await lab.Agent(ScriptedProvider([*script, "Done."]), tools=[look]).run("Go.", stop=stop, **more)

    return asyncio.run(finished())


def budget_spent(steps: RunHistory) -> bool:
    return sum(s.cost for s in steps) >= 0.50


def expensive_step(steps: RunHistory) -> bool:
    return max(s.cost for s in steps) > 0.15


def tiered(steps: RunHistory) -> bool:
    """More steps are allowed while they are cheap."""
    spent = float(sum(s.cost for s in steps))
    return len(steps) >= (4 if spent < 0.60 else 3)


async def validated_in_a_database(steps: RunHistory) -> bool:
    await asyncio.sleep(0)
    return float(steps[-1].cost) * len(steps) >= 0.40


KNOWN: dict[str, tuple[Callable[[RunHistory], Any], int]] = {
    "the sum": (budget_spent, 3),
    "the largest": (expensive_step, 1),
    "tiers": (tiered, 3),
    "async": (validated_in_a_database, 2),
    "the sum of the history": (lambda steps: steps.cost >= Decimal("0.4"), 2),
    "the history in dollars": (lambda steps: steps.cost_usd >= Decimal("0.8"), 4),
    "the newest": (lambda steps: steps.last.cost == 0.2 and 0.1 < steps.last.cost <= 0.2, 1),
    "the cheapest": (lambda steps: min(s.cost for s in steps) < 0.5 and len(steps) == 2, 2),
    "sorted": (lambda steps: sorted(s.cost for s in steps)[0] >= 0.2, 1),
    "the tokens of the usage": (lambda steps: sum(s.usage.total_tokens for s in steps) >= 30, 2),
    "the sum of the usage": (lambda steps: sum(s.usage for s in steps).total_tokens >= 45, 3),
}


@pytest.mark.parametrize(("predicate", "steps"), KNOWN.values(), ids=KNOWN.keys())
def test_a_condition_on_known_costs_stops_the_run(predicate: Any, steps: int) -> None:
    result = run(predicate)
    assert (result.stop_reason, len(result.history)) == (StopReason.STOP_CONDITION, steps), result.detail
    assert result.cost == result.history.cost == CENTS_20 * steps


def test_the_history_can_be_monitored_while_the_run_goes_on() -> None:
    shown: list[str] = []

    def monitor(steps: RunHistory) -> bool:
        shown.append(f"${sum(s.cost for s in steps):.4f}")
        return False

    result = run(monitor, [CENTS_20, Decimal("0.0123"), None])
    assert result.stop_reason is StopReason.COMPLETED
    assert shown == ["$0.2000", "$0.2123", "$unknown", "$unknown"]
    assert f"${result.cost:.2f}" == f"${result.history.cost:.2f}" == "$unknown"
    assert f"{result.history.known_cost_usd:.4f}" == "0.2123"


def test_an_observer_may_add_up_the_costs() -> None:
    spent: list[float] = []

    def watch(event: object) -> None:
        if isinstance(event, lab.events.StepCompleted):
            spent.append(float(event.step.cost))

    run(None, [CENTS_20, CENTS_20], budget=lab.Budget(max_turns=2), observers=[watch])
    assert spent == [0.2, 0.2]


UNKNOWN: dict[str, Callable[[RunHistory], Any]] = {
    "the sum": budget_spent,
    "the largest": expensive_step,
    "a float": lambda steps: float(steps[-1].cost) >= 0.5,
    "the history": lambda steps: steps.cost >= 0.5,
    "a float of the history": lambda steps: float(steps.cost) >= 0.5,
}


@pytest.mark.parametrize("predicate", UNKNOWN.values(), ids=UNKNOWN.keys())
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_condition_on_an_unknown_cost_ends_the_run_as_an_error_and_nothing_is_lost(predicate: Any, is_async: bool) -> None:
    async def later(steps: RunHistory) -> Any:
        return predicate(steps)

    known_first = [Decimal("0.01"), None, CENTS_20]
    result = run(lab.StepCountIs(9) | (later if is_async else predicate), known_first)
    assert len(result.history) == 2
    assert result.stop_reason is StopReason.ERROR
    assert isinstance(result.error, lab.AgentlabError)
    assert "history.known_cost_usd" in str(result.error)
    assert "The cost is unknown: " in result.detail
    assert result.history[0].tool_results[0].content == "saw 0"
    assert (result.history.known_cost_usd, result.usage.total_tokens) == (Decimal("0.01"), 15 * len(result.history))
    assert result.history[-1].tool_results[0].content == f"saw {len(result.history) - 1}"


def test_a_condition_on_the_known_part_of_the_costs_goes_on() -> None:
    result = run(lambda steps: steps.known_cost_usd >= Decimal("0.40"), [CENTS_20, None, CENTS_20, CENTS_20])
    assert (result.stop_reason, len(result.history)) == (StopReason.STOP_CONDITION, 3)


def test_a_step_of_no_calls_costs_nothing() -> None:
    assert sum(s.cost for s in RunHistory([])) == 0
    assert RunHistory([]).cost >= 0
    assert not RunHistory([]).cost > 0


def cost_of(step: StepResult) -> float:
    return float(step.cost)


def test_costs_are_plotted_and_sorted_as_numbers() -> None:
    result = run(None, [Decimal("0.3"), Decimal("0.1"), CENTS_20], budget=lab.Budget(max_turns=3))
    assert [cost_of(step) for step in sorted(result.history, key=lambda step: step.cost)] == [0.1, 0.2, 0.3]
    assert max(result.history, key=cost_of).index == 1
