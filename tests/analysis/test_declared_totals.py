"""A custom condition that declares its total is simulated from the record's totals, without being called."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import pandas as pd
import pytest

import agentlab as lab
from agentlab.limits.combinators import StopCondition
from agentlab.limits.conditions import MaxCost, MaxTokensUsed, StepCountIs
from agentlab.limits.fields import limit_field
from agentlab.limits.reading import Reading
from agentlab.records.history import RunHistory
from agentlab.testing import call

from .builders import run


class Declared(StopCondition):
    """Must not be called."""

    def read(self, history: RunHistory) -> Reading:
        """Raise."""
        raise AssertionError("called")


@dataclass(frozen=True, slots=True)
class Tokens(Declared):
    """A limit on tokens."""

    most: int = limit_field(unit="tokens", minimum=1, help="tokens")
    label: str = ""
    total: ClassVar[str | None] = "tokens"


@dataclass(frozen=True, slots=True)
class Dollars(Declared):
    """A limit on cost that means success."""

    most: Decimal = limit_field(unit="USD", minimum=0, help="US dollars")
    total: ClassVar[str | None] = "cost"
    goal: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Steps(Declared):
    """A limit on steps that need not be a whole number."""

    most: float = limit_field(unit="steps", minimum=1, help="steps")
    total: ClassVar[str | None] = "steps"


@dataclass(frozen=True, slots=True)
class Several(Declared):
    """Declares a total but does not say which of two fields is the limit."""

    low: int = limit_field(unit="tokens", minimum=1, help="tokens")
    high: int = limit_field(unit="tokens", minimum=1, help="tokens")
    total: ClassVar[str | None] = "tokens"


LONG = [run([call("look", {}, tokens=(6, 4), cost="0.01")] * length) for length in (2, 4, 6)]
SAME = {
    "tokens": (Tokens, MaxTokensUsed, [1, 10, 25, 1_000]),
    "cost": (lambda value: Dollars(Decimal(value)), MaxCost, ["0.01", "0.025", "5"]),
    "steps": (Steps, StepCountIs, [1, 3, 9]),
    "of steps": (lambda value: Steps(value - 0.5), StepCountIs, [2, 3, 9]),
}


@pytest.mark.parametrize("recorded", [LONG, lab.frame(LONG)], ids=["runs", "frame"])
@pytest.mark.parametrize("kind", SAME)
def test_a_declared_total_is_read_from_the_record(kind: str, recorded: Any) -> None:
    own, built_in, values = SAME[kind]
    for value in values:
        ours = lab.backtest(recorded, own(value), per="run")
        theirs = lab.backtest(recorded, built_in(value), per="run")
        assert set(ours["fired"].dropna()) <= {type(own(value)).__name__}
        left_out = ["fired", "goal_reached"]
        pd.testing.assert_frame_equal(ours.drop(columns=left_out), theirs.drop(columns=left_out))


def test_a_declared_total_in_combinations_and_negations() -> None:
    ours = lab.backtest(LONG, Tokens(25) & ~Steps(2) | StepCountIs(6), per="run")
    theirs = lab.backtest(LONG, MaxTokensUsed(25) & ~StepCountIs(2) | StepCountIs(6), per="run")
    assert ours["step"].tolist() == theirs["step"].tolist()


def test_a_declared_goal_counts_as_success() -> None:
    assert lab.backtest(LONG, Dollars(Decimal("0.02")), per="run")["goal_reached"].tolist() == [True] * 3
    assert lab.backtest(LONG, MaxCost("0.02"), per="run")["goal_reached"].tolist() == [False] * 3


def test_a_condition_with_an_ambiguous_limit_field_is_called() -> None:
    with pytest.warns(lab.AgentlabWarning, match="raised in 3 of 3 runs"):
        assert lab.backtest(LONG, Several(1, 2), per="run")["stop_reason"].tolist() == ["error"] * 3


def test_the_limit_of_a_declared_total_is_drawn_on_the_curve() -> None:
    steps = lab.frame(LONG).assign(**{"Tokens.limit": 50, "Dollars.limit": 0.5, "Steps.limit": 3})
    assert [name for name in lab.plots.tokens_data(steps).columns if "Tokens" in name] == ["Tokens"]
    assert "Dollars" in lab.plots.cost_data(steps).columns
