"""The explorer, without a browser: sliders, numbers and code are one value, and its figures are those of `lab.backtest`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from other_threads import wait_until

import agentlab as lab
from agentlab import Budget, HasToolCall, MaxCost, StepCountIs, errors
from agentlab.run import Run
from agentlab.testing import ScriptedProvider, call, say
from agentlab.types import ModelRequest
from agentlab.widgets.explorer import Explorer
from agentlab.widgets.tried_figures import FINISHED_WORD, UNKNOWN_WORD
from agentlab.widgets.tried_limits import round_values
from agentlab.widgets.tried_rows import LimitRow, ToolTicks


async def search(query: str) -> str:
    """Search."""
    return "nothing"


async def read_page(query: str) -> str:
    """Read."""
    return "a page"


def made(place: int, *, cost: str | None = "0.001", turns: int = 8) -> Run:
    """A run that ends of its own after 2 to 10 steps, unless it is cut off."""
    last = 2 + place % 9

    def script(request: ModelRequest, index: int) -> Any:
        used: dict[str, Any] = {"tokens": (100 + 10 * place, 20), "cost": cost}
        return (
            say("Done.", **used) if index == last else call("search" if place % 2 else "read_page", {"query": str(index)}, **used)
        )

    run = lab.Agent(ScriptedProvider(script), tools=[search, read_page]).run("Find it.", budget=Budget(max_turns=turns))

    async def to_its_end() -> None:
        await run

    asyncio.run(to_its_end())
    return run


@pytest.fixture(scope="module")
def recorded() -> list[Run]:
    return [made(place) for place in range(27)]


@pytest.fixture
def live(recorded: list[Run], monkeypatch: pytest.MonkeyPatch) -> Iterator[Explorer]:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    explorer = lab.explore(recorded)
    _ = explorer.widget
    yield explorer
    assert not explorer.fault.value


def row(explorer: Explorer, name: str) -> LimitRow:
    found = explorer.rows[name]
    assert isinstance(found, LimitRow)
    return found


# Figures --------------------------------------------------------------------------------------------------------------------------

FIGURES = ("runs", "stopped", "finished", "unknown", "success_rate", "success_low", "cost_mean", "cost_saved", "tokens_unknown")


@pytest.mark.parametrize(
    "limits",
    [{}, {"StepCountIs": 4}, {"StepCountIs": None}, {"MaxCost": "0.003"}, {"MaxTokensUsed": 700, "HasToolCall": "search"},
     {"HasToolCall": ("read_page", "search")}, {"timeout": 1e-9}],
)  # fmt: skip
@pytest.mark.parametrize("as_frame", [False, True], ids=["runs", "frame"])
def test_its_figures_are_those_of_the_backtest(recorded: list[Run], limits: dict[str, Any], as_frame: bool) -> None:
    source: Any = lab.frame(recorded) if as_frame else recorded
    explorer = lab.explore(source)
    for name, value in limits.items():
        explorer.limits[name] = value
    if explorer.stop is None and explorer.budget is None:
        assert explorer.frame["unknown"].iloc[0] == sum(run.result is not None and run.result.truncated for run in recorded)
        return

    expected = lab.backtest(source, explorer.stop, budget=explorer.budget)
    for name in FIGURES:
        assert explorer.frame[name].tolist() == expected[name].tolist() or explorer.frame[name].isna().all(), name
    by_run = lab.backtest(source, explorer.stop, budget=explorer.budget, per="run")
    ends = dict(explorer._now().ends)
    assert ends.pop(FINISHED_WORD) == (by_run["outcome"] == "finished").sum()
    assert ends.pop(UNKNOWN_WORD) == (by_run["outcome"] == "unknown").sum()
    assert ends == by_run.loc[by_run["outcome"] == "stopped", "fired"].value_counts().to_dict()


def test_the_record_is_the_runs_as_they_were(recorded: list[Run]) -> None:
    record, runs = lab.explore(recorded)._trials.record.row, lab.frame(recorded, "runs")

    assert record["success_rate"] == pytest.approx(runs["terminated"].mean())
    assert record["cost_mean"] == pytest.approx(float(runs["cost_usd"].mean()))
    assert (record["unknown"], record["cost_saved"]) == (0, 0)


def test_the_others_are_what_a_backtest_gives_and_can_be_drawn(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded)
    others = explorer.others

    assert (
        len(others) == len(others.drop_duplicates(["StepCountIs", "MaxCost", "MaxTokensUsed", "timeout", "HasToolCall"])) <= 1_000
    )
    steps = others[
        others["StepCountIs"].notna() & others[["MaxCost", "MaxTokensUsed", "timeout", "HasToolCall"]].isna().all(axis=1)
    ]
    expected = lab.backtest(recorded, StepCountIs([int(value) for value in steps["StepCountIs"]]))
    assert steps["cost_mean"].tolist() == expected["cost_mean"].tolist()
    assert "on the frontier" in lab.plots.what_if(others).alt


def test_a_goal_of_ones_own(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded, goal=HasToolCall("search"), limits=["StepCountIs"])
    explorer.limits["StepCountIs"] = 1

    assert explorer.frame["success_rate"].iloc[0] == pytest.approx(13 / 27)
    assert "HasToolCall" in explorer.bundle()["text/html"]


# One value ------------------------------------------------------------------------------------------------------------------------


def test_it_begins_with_the_record(live: Explorer) -> None:
    assert dict(live.limits) == {"StepCountIs": 8, "MaxTokensUsed": None, "MaxCost": None, "timeout": None, "HasToolCall": None}
    assert (live.stop, live.budget, live.code) == (StepCountIs(8), None, "stop=StepCountIs(8)")
    assert "Model calls: one call a step in all of these runs" in live.bundle()["text/html"]


def test_a_slider_a_number_and_code_are_one_value(live: Explorer) -> None:
    steps, cost = row(live, "StepCountIs"), row(live, "MaxCost")
    steps.slider.place = 3
    assert live.limits["StepCountIs"] == 4
    wait_until(lambda: steps.number.number.value == 4 and "StepCountIs(4)" in live.code_text.value)

    cost.number.unlimited.value = False
    cost.number.number.value = 0.0021
    assert live.stop == StepCountIs(4) | MaxCost("0.0021")
    wait_until(lambda: live.copy.text == "stop=StepCountIs(4) | MaxCost(0.0021)")
    assert cost.slider.place == cost.offer.place_of(Decimal("0.0021")), "the nearest, and the value stays"
    assert live.limits["MaxCost"] == Decimal("0.0021")

    live.limits["StepCountIs"] = None
    wait_until(lambda: steps.slider.place == len(steps.offer.values) and steps.number.unlimited.value)
    steps.slider.place = 0
    assert live.limits["StepCountIs"] == 1
    wait_until(lambda: not steps.number.unlimited.value)


def test_a_value_that_is_no_limit_says_so_and_changes_nothing(live: Explorer) -> None:
    steps = row(live, "StepCountIs")
    steps.number.number.value = -3
    assert "must be at least 1" in steps.number.message.value and "Still in force: 8" in steps.number.message.value
    assert live.limits["StepCountIs"] == 8
    with pytest.raises(errors.LimitError, match="at least 1"):
        live.limits["StepCountIs"] = 0
    with pytest.raises(KeyError, match="MaxCost"):
        live.limits["MaxCosts"] = 1
    steps.slider.place = 10_000
    assert live.limits["StepCountIs"] is None, "behind the last is no limit"


def test_tools_are_ticked(live: Explorer) -> None:
    ticks = live.rows["HasToolCall"]
    assert isinstance(ticks, ToolTicks) and set(ticks.boxes) == {"search", "read_page"}
    ticks.boxes["search"].value = True
    assert live.stop == StepCountIs(8) | HasToolCall("search")
    live.limits["HasToolCall"] = ["read_page"]
    wait_until(lambda: ticks.boxes["read_page"].value and not ticks.boxes["search"].value)
    ticks.boxes["read_page"].value = False
    assert live.limits["HasToolCall"] is None


def test_the_code_can_be_pasted(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded)
    explorer.limits.update(StepCountIs=4, MaxCost="0.02", timeout=30, HasToolCall=("finalize", "it's"))
    named = {name: getattr(lab, name) for name in ("StepCountIs", "MaxCost", "HasToolCall", "Budget")}

    assert (
        explorer.code == """stop=StepCountIs(4) | MaxCost(0.02) | HasToolCall('finalize', "it's"), budget=Budget(timeout=30.0)"""
    )
    assert eval(f"dict({explorer.code})", named) == {"stop": explorer.stop, "budget": explorer.budget}
    explorer.limits.update(dict.fromkeys(explorer.limits))
    assert (explorer.code, explorer.stop) == ("stop=None", None)


def test_where_the_record_has_more_steps_than_a_budget_allows_the_code_says_so() -> None:
    explorer = lab.explore(steps_of(2, 30))

    assert explorer.code == "stop=StepCountIs(30), budget=Budget(max_turns=30)"
    assert "the steps have no column &#x27;tools&#x27;" in explorer.bundle()["text/html"]
    explorer.limits["StepCountIs"] = 5
    assert explorer.code == "stop=StepCountIs(5)"


def test_the_limits_that_are_wanted(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded, limits={"max_cost": [0.004, 0.002], "max_turns": None})
    assert list(explorer.limits) == ["max_cost", "max_turns"]
    explorer.limits["max_cost"] = 0.002
    assert explorer.code == "stop=None, budget=Budget(max_cost=0.002)"
    for wrong in (["MaxCosts"], "MaxCost", 3, []):
        with pytest.raises(errors.ConfigurationError, match="explore"):
            lab.explore(recorded, limits=wrong)


# Odd records ----------------------------------------------------------------------------------------------------------------------


def steps_of(runs: int, steps: int, **columns: Any) -> pd.DataFrame:
    count = runs * steps
    given = {
        "run_id": [f"r{place // steps}" for place in range(count)],
        "step": [1 + place % steps for place in range(count)],
        "total_tokens": [100] * count,
        "cost_usd": [0.001] * count,
        "calls": [1] * count,
        "duration_s": [0.5] * count,
        **columns,
    }
    return pd.DataFrame(given)


def test_one_run(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded[0])
    html = explorer.bundle()["text/html"]
    assert "none: too few runs" in html and "<span>1 run</span>" in html


def test_where_no_cost_is_known_there_is_no_slider_for_it_and_that_is_said() -> None:
    explorer = lab.explore([made(place, cost=None) for place in range(3)])
    assert "MaxCost" not in explorer.limits
    html = explorer.bundle()["text/html"]
    assert "Cost: not known in any of these runs." in html
    assert explorer._picture.x == "tokens_mean", "what is known stands on the axis"


def test_where_no_success_is_known_all_is_unknown_and_drawn_as_such() -> None:
    frame = steps_of(3, 4, action=["continue", "continue", "continue", "complete"] * 3)
    explorer = lab.explore(frame, goal={"r9": 1}, limits={"MaxCost": [1]})
    assert explorer.frame["success_rate"].isna().all()
    assert "<b>unknown</b> reached the goal" in explorer.bundle()["text/html"]
    assert "unknown in all configurations" in explorer._static().outputs()[1][1]["image/png"]["alt"]


def test_nothing_to_explore() -> None:
    with pytest.raises(errors.ConfigurationError, match="no runs"):
        lab.explore(steps_of(0, 1))


def test_what_a_model_made_up_is_text() -> None:
    frame = steps_of(2, 2, tools=["<img src=x>", "search", "search", "search"], tool_calls=[1] * 4)
    explorer = lab.explore(frame)
    explorer.limits["HasToolCall"] = "<img src=x>"
    html = explorer.bundle()["text/html"]
    assert "<img src=x>" not in html and "&lt;img src=x&gt;" in html


def test_where_nobody_can_click_there_is_a_table_and_a_picture(recorded: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    first, second = (lab.explore(recorded, limits=["StepCountIs", "MaxCost"])._static().outputs() for _ in range(2))
    assert "stop=StepCountIs(8)" in first[0][0]["text/plain"]
    assert first[1][0]["image/png"] == second[1][0]["image/png"], "the same at every execution"
    assert first[1][1]["image/png"]["alt"].startswith("These limits: 78% reached the goal")


# Values on the sliders ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 7, 39, 41, 400, 12_345, 10**9])
def test_whole_values_are_round_few_and_reach_the_most(most: int) -> None:
    values = round_values(1.0, pd.Series([1.0 * most, most / 2, most / 3]).to_numpy(), int)
    assert 1 <= len(values) <= 40 and list(values) == sorted(set(values))
    assert values[-1] >= most and values[0] >= 1 and all(isinstance(value, int) for value in values)


def test_money_is_exact_and_what_few_runs_use_more_of_rises_by_factors() -> None:
    assert round_values(0.001, pd.Series([0.0042, 0.003]).to_numpy(), Decimal)[-1] == Decimal("0.0042")
    skewed = round_values(1.0, pd.Series([1.0] * 9 + [1000.0]).to_numpy(), int)
    assert skewed[:6] == (1, 2, 3, 5, 7, 10) and skewed[-1] == 1000
