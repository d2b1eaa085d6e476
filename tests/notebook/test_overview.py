"""What is left of each limit, as the bar and the drawer of the page have it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

import agentlab as lab
from agentlab import Budget, HasToolCall, MaxCost, StepCountIs
from agentlab.agent import Run
from agentlab.limits.combinators import Off, StopCondition
from agentlab.limits.fields import limit_field
from agentlab.limits.reading import Reading
from agentlab.notebook import markup
from agentlab.notebook.page.data import limit_rows
from agentlab.notebook.page.steps import EVERYTHING
from agentlab.records.history import RunHistory
from agentlab.testing import ScriptedProvider, call


async def search(query: str) -> str:
    """Search."""
    return "nothing"


def run_of(steps: int, stop: object = None, budget: Budget | None = None) -> Run:
    model = ScriptedProvider(lambda request, index: call("search", {"query": "x"}, tokens=(80, 20), cost="0.001"))
    run = lab.Agent(model, tools=[search]).run("Find it.", stop=stop, budget=budget or Budget(max_turns=20))
    asyncio.run(_steps(run, steps))
    return run


async def _steps(run: Run, number: int) -> None:
    for _ in range(number):
        await run.step()


def row(run: Run, name: str) -> dict[str, Any]:
    return next(one for one in limit_rows(run, EVERYTHING) if name in one["with"])


@pytest.mark.parametrize(
    ("budget", "name", "value", "limit", "met"),
    [
        (Budget(max_turns=20), "max_turns", 8, 20, False),
        (Budget(max_turns=8), "max_turns", 8, 8, True),
        (Budget(max_tokens=1_000), "max_tokens", 800, 1_000, False),
        (Budget(max_cost=0.05), "max_cost", 0.008, 0.05, False),
        (Budget(max_calls=30), "max_calls", 8, 30, False),
    ],
)
def test_used_and_limit(budget: Budget, name: str, value: float, limit: float, met: bool) -> None:
    found = row(run_of(8, budget=budget), name)
    assert (found["value"], found["limit"], found["met"]) == (value, limit, met)
    assert found["share"] == pytest.approx(value / limit, abs=1e-6)


@pytest.mark.parametrize(("seconds", "words"), [(3.21, "3.2 s"), (59.9, "59.9 s"), (125, "2 min 05 s"), (3720, "1 h 02 min")])
def test_durations_in_words(seconds: float, words: str) -> None:
    assert markup.duration(seconds) == words


def test_everything_below_a_group_turned_off_is_off_and_raises_no_alarm() -> None:
    run = run_of(8, MaxCost(1) | Off(StepCountIs(8) & HasToolCall("finalize")))
    assert row(run, "StepCountIs")["off"] and row(run, "HasToolCall")["off"] and not row(run, "MaxCost")["off"]
    assert (row(run, "StepCountIs")["met"], row(run, "StepCountIs")["share"]) == (None, None)


@dataclass(frozen=True, slots=True)
class Faulty(StopCondition):
    """A condition that cannot be read."""

    often: int = limit_field(unit="times", minimum=1, help="how often")

    def read(self, history: RunHistory) -> Reading:
        raise ZeroDivisionError


def test_a_raising_condition_does_not_break_the_panel() -> None:
    assert (row(run_of(0, Faulty(3)), "Faulty")["value"], row(run_of(0, Faulty(3)), "Faulty")["share"]) == (None, None)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (Decimal("0.05"), "$0.05"),
        (0.1234567, "$0.123457"),
        (Decimal(0), "$0"),
        (None, "unknown"),
        (Decimal("0.000000321"), "$0.00000032"),
        (Decimal("1e25"), "$10000000000000000000000000"),
        (math.inf, "$Infinity"),
    ],
)
def test_an_amount_has_no_exponent_and_is_never_rounded_to_zero(amount: Decimal | float | None, words: str) -> None:
    assert markup.dollars(amount) == words


@dataclass(frozen=True)
class _Surprise(StopCondition):
    """A condition whose figure cannot be compared with its limit."""

    value: float | Decimal
    most: float

    def read(self, history: RunHistory) -> Reading:
        return Reading("_Surprise", self.value, self.most, False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, Decimal("NaN")])
@pytest.mark.parametrize("most", [3, 3.0, math.inf])
def test_a_non_finite_figure_has_no_meter(value: float | Decimal, most: float) -> None:
    share = row(run_of(1, _Surprise(value, most)), "_Surprise")["share"]
    assert share is None or share == 1
