"""The explorer without a browser: slider, number and code hold one value, and the figures equal those of `lab.backtest`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from thread_tools import wait_until

import agentlab as lab
from agentlab import Budget, HasToolCall, MaxCost, StepCountIs, errors
from agentlab.agent import Run
from agentlab.errors import ProviderConnectionError
from agentlab.model.messages import ModelRequest
from agentlab.notebook.explorer.explorer import Explorer, LimitRow, ToolTicks
from agentlab.notebook.explorer.figures import FAILED_WORD, FINISHED_WORD, UNKNOWN_WORD
from agentlab.notebook.explorer.limits import round_values
from agentlab.testing import ScriptedProvider, call, say


async def search(query: str) -> str:
    """Search."""
    return "nothing"


async def read_page(query: str) -> str:
    """Read."""
    return "a page"


def made(place: int, *, cost: str | None = "0.001", turns: int = 8) -> Run:
    """A run that finishes on its own after 2 to 10 steps, unless it is cut short."""
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


ALL = ["StepCountIs", "MaxTokensUsed", "MaxCost", "timeout", "HasToolCall", "max_turns"]
"""All that can be tried on `recorded`, also what is not offered by itself."""


@pytest.fixture
def live(recorded: list[Run], monkeypatch: pytest.MonkeyPatch) -> Iterator[Explorer]:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    explorer = lab.explore(recorded, limits=ALL)
    _ = explorer.widget
    yield explorer
    assert not explorer.fault.value
    with explorer._others._lock:
        explorer._others.several.clear()  # its thread would try hundreds of configurations while the next tests run


def row(explorer: Explorer, name: str) -> LimitRow:
    found = explorer.rows[name]
    assert isinstance(found, LimitRow)
    return found


# Figures --------------------------------------------------------------------------------------------------------------------------

FIGURES = ("runs", "stopped", "finished", "unknown", "success_rate", "success_low", "cost_mean", "cost_saved", "tokens_unknown")


@pytest.mark.parametrize(
    "limits",
    [{}, {"StepCountIs": 4}, {"max_turns": None}, {"max_turns": 5}, {"MaxCost": "0.003"},
     {"MaxTokensUsed": 700, "HasToolCall": "search"}, {"HasToolCall": ("read_page", "search")}, {"timeout": 1e-9}],
)  # fmt: skip
@pytest.mark.parametrize("as_frame", [False, True], ids=["runs", "frame"])
def test_the_figures_equal_those_of_the_backtest(recorded: list[Run], limits: dict[str, Any], as_frame: bool) -> None:
    source: Any = lab.frame(recorded) if as_frame else recorded
    explorer = lab.explore(source, limits=ALL)
    for name, value in limits.items():
        explorer.limits[name] = value
    tried = explorer.stop, explorer.budget if explorer.budget != Budget(max_turns=None) else {"max_turns": 1_000}
    expected = lab.backtest(source, tried[0], budget=tried[1])
    for name in FIGURES:
        assert explorer.frame[name].tolist() == expected[name].tolist() or explorer.frame[name].isna().all(), name
    by_run = lab.backtest(source, tried[0], budget=tried[1], per="run")
    ends = dict(explorer._now().ends)
    assert ends.pop(FINISHED_WORD) == (by_run["outcome"] == "finished").sum()
    assert ends.pop(UNKNOWN_WORD) == (by_run["outcome"] == "unknown").sum()
    assert ends == by_run.loc[by_run["outcome"] == "stopped", "fired"].value_counts().to_dict()


def test_the_record_shows_the_runs_as_recorded(recorded: list[Run]) -> None:
    record, runs = lab.explore(recorded)._trials.record.row, lab.frame(recorded, "runs")

    assert record["success_rate"] == pytest.approx(runs["terminated"].mean())
    assert record["cost_mean"] == pytest.approx(float(runs["cost_usd"].mean()))
    assert (record["unknown"], record["cost_saved"]) == (0, 0)


def test_other_configurations_are_a_backtest_and_can_be_drawn(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded, limits=ALL)
    others = explorer.others

    assert len(others) == len(others.drop_duplicates(list(explorer.limits))) <= 1_000
    steps = others[
        others["StepCountIs"].notna()
        & others[["MaxCost", "MaxTokensUsed", "timeout", "HasToolCall"]].isna().all(axis=1)
        & others["max_turns"].eq(8)
    ]
    expected = lab.backtest(recorded, StepCountIs([int(value) for value in steps["StepCountIs"]]), budget={"max_turns": 8})
    assert (others["unknown"] > 0).any() == (others["max_turns"].isna() | others["max_turns"].gt(8)).any(), "all but looser ones"
    assert steps["cost_mean"].tolist() == expected["cost_mean"].tolist()
    assert "Pareto frontier: " in lab.plots.what_if(others).alt
    assert others["HasToolCall"].isna().all(), "ending at the first search would be a success"


def test_a_custom_goal(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded, goal=HasToolCall("search"), limits=["StepCountIs"])
    explorer.limits["StepCountIs"] = 1

    assert explorer.frame["success_rate"].iloc[0] == pytest.approx(13 / 27)
    assert "HasToolCall" in explorer.bundle()["text/html"]


# As recorded ----------------------------------------------------------------------------------------------------------------------


async def finalize(query: str) -> str:
    """Hand the answer in."""
    return query


def handed_in(place: int, stop: Any = None, **budget: Any) -> Run:
    """A run that calls `finalize` in its third to eighth step, and ends there unless another condition is given."""
    last = 3 + place % 6

    def script(request: ModelRequest, index: int) -> Any:
        return call("finalize" if index == last else "search", {"query": str(index)}, tokens=(100 + place, 20), cost="0.002")

    run = lab.Agent(ScriptedProvider(script), tools=[search, finalize]).run(
        "Go.", stop=HasToolCall("finalize") if stop is None else stop, budget=Budget(**budget)
    )

    async def to_its_end() -> None:
        await run

    asyncio.run(to_its_end())
    return run


def shown(explorer: Explorer) -> str:
    """The text of the page, without the picture, for which all other limits would be tried."""
    return text_of(explorer._static().html())


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", html.split("</style>")[1]))


@pytest.fixture(scope="module")
def thirty_six() -> list[Run]:
    return [handed_in(place) for place in range(36)]


@pytest.mark.parametrize("as_frame", [False, True], ids=["runs", "frame"])
def test_the_explorer_opens_with_the_limits_of_the_runs(thirty_six: list[Run], as_frame: bool) -> None:
    explorer = lab.explore(lab.frame(thirty_six) if as_frame else thirty_six)
    runs, found = lab.frame(thirty_six, "runs"), explorer.frame.iloc[0]

    assert explorer.code == "stop=HasToolCall('finalize')" and explorer.limits["HasToolCall"] == ("finalize",)
    assert found["cost_mean"] == pytest.approx(float(runs["cost_usd"].mean())) == pytest.approx(0.011)
    assert (found["unknown"], found["stopped"], found["success_rate"]) == (0, 36, 1.0)
    assert dict(explorer._now().ends) == {"HasToolCall": 36, FINISHED_WORD: 0, UNKNOWN_WORD: 0}
    page = shown(explorer)
    assert "100% reached the goal cost $0.011 per run 36 runs, as recorded" in page
    assert page.count("the same 0%") == 4, "it is the record"
    explorer.limits["StepCountIs"] = 5
    page = shown(explorer)
    assert "$0.009 per run" in page and "$0.002 less (18%)" in page and "as recorded The" not in page


def test_if_most_runs_are_unknown_there_is_no_mean(thirty_six: list[Run]) -> None:
    explorer = lab.explore(thirty_six)
    explorer.limits.update(HasToolCall=None, StepCountIs=8)  # now only the runs that had taken eight steps can answer
    page = shown(explorer)

    assert explorer.frame["unknown"].iloc[0] == 30
    assert "cost unknown for 30 of 36 runs" in page and "83% of the runs unknown" in page
    assert "$" not in page and "steps unknown for 30 of 36 runs none: not all known unknown 83%" in page
    assert page.count("the same 0%") == 1, "of the goal, which all had reached by then"
    assert explorer._static().outputs()[1][1]["image/png"]["alt"].startswith("These limits: not drawn, 83% unknown.")


def test_if_some_runs_are_unknown_the_mean_names_its_runs_and_compares_on_them(thirty_six: list[Run]) -> None:
    explorer = lab.explore(thirty_six)
    explorer.limits.update(HasToolCall=None, StepCountIs=4)
    known = [run for place, run in enumerate(thirty_six) if place % 6 >= 1]
    recorded = sum(float(run.history.cost_usd or 0) for run in known) / 30

    page = shown(explorer)
    assert "cost $0.008 per run, of the 30 known 36 runs" in page
    assert f"${recorded - 0.008:.3g} less ({1 - 0.008 / recorded:.0%}) on these runs" in page


def test_a_partly_known_share_is_a_range() -> None:
    explorer = lab.explore([made(place, turns=4) for place in range(27)])
    assert "33% reached the goal" in shown(explorer)
    explorer.limits["max_turns"] = 9
    bundle = explorer.bundle()
    page = text_of(bundle["text/html"])
    assert "33% to 100% reached the goal" in page and "none: not all known" in page
    assert "33% to 100% reached the goal" in bundle["text/plain"]


def test_runs_keep_their_own_limits_until_one_is_set_for_all() -> None:
    several = [handed_in(place, StepCountIs(2 + place % 3), max_turns=12) for place in range(36)]
    explorer = lab.explore(several)
    mean = float(lab.frame(several, "runs")["cost_usd"].mean())

    assert explorer.limits["StepCountIs"] is None and explorer.code == "stop=None, budget=Budget(max_turns=12)"
    assert explorer.frame["cost_mean"].iloc[0] == pytest.approx(mean) and explorer.frame["unknown"].iloc[0] == 0
    assert "Steps: not the same in all runs, or unknown. As recorded until you set a value for all." in shown(explorer)
    explorer.limits["MaxCost"] = "0.006"  # each run still ends at its own number of steps
    assert dict(explorer._now().ends) == {"MaxCost": 24, "StepCountIs": 12, FINISHED_WORD: 0, UNKNOWN_WORD: 0}
    explorer.limits.update(MaxCost=None, StepCountIs=3)
    assert dict(explorer._now().ends) == {"StepCountIs": 24, FINISHED_WORD: 0, UNKNOWN_WORD: 12}, "a third ended after two"


@pytest.mark.parametrize("as_frame", [False, True], ids=["runs", "frame"])
@pytest.mark.parametrize(
    ("stop", "says", "ended"),
    [
        (lab.Custom(lambda history: len(history) >= 2, "two"), "Kept as recorded, not in the code: two.", "two"),
        (HasToolCall("search") & StepCountIs(2), "a combination of HasToolCall, StepCountIs", "another condition"),
        (~HasToolCall("finalize"), "a combination of HasToolCall", "another condition"),
        (lab.FinishReasonIs("tool_calls"), "not in the code: FinishReasonIs", "FinishReasonIs"),
    ],
    ids=["own", "all", "not", "no slider"],
)
def test_a_condition_without_a_slider_is_kept(stop: Any, says: str, ended: str, as_frame: bool) -> None:
    several = [handed_in(place, stop) for place in range(12)]
    explorer = lab.explore(lab.frame(several) if as_frame else several)

    assert (explorer.stop, explorer.limits["StepCountIs"], explorer.frame["unknown"].iloc[0]) == (None, None, 0)
    assert says in shown(explorer)
    assert explorer._now().ends[0] == (ended, 12)
    explorer.limits["StepCountIs"] = 5
    assert explorer._now().ends[0] == (ended, 12) and explorer.frame["unknown"].iloc[0] == 0
    explorer.limits["StepCountIs"] = 1
    assert explorer.frame["cost_mean"].iloc[0] == pytest.approx(0.002)


def test_a_frame_without_the_limits_of_its_runs() -> None:
    frame = lab.frame([handed_in(place, StepCountIs(3)) for place in range(12)])
    kept = frame.drop(columns=[name for name in frame.columns if "max_" in name or name.startswith(("StepCountIs", "condition"))])
    explorer = lab.explore(kept)

    assert (explorer.code, explorer.frame["unknown"].iloc[0], explorer.frame["step_mean"].iloc[0]) == ("stop=None", 0, 3.0)
    assert "not in the code: a condition that is not in the frame" in shown(explorer)
    assert row_texts(explorer, "StepCountIs")[-1] == "Steps: as recorded"


def row_texts(explorer: Explorer, name: str) -> list[str]:
    _ = explorer.widget
    return list(row(explorer, name).slider.texts)


def test_the_button_restores_the_record(live: Explorer) -> None:
    opening = dict(live.limits)
    live.limits.update(max_turns=3, MaxCost="0.001")
    live.back.click()
    assert dict(live.limits) == opening
    wait_until(lambda: "as recorded" in live.summary.value)


def test_runs_that_ended_in_an_error_are_counted_as_errors(recorded: list[Run]) -> None:
    def breaks(request: ModelRequest, index: int) -> Any:
        return ProviderConnectionError("gone") if index == 2 else call("search", {"query": "?"}, cost="0.001")

    failed = lab.Agent(ScriptedProvider(breaks), tools=[search]).run("Find it.")
    with contextlib.suppress(errors.AgentlabError):
        asyncio.run(failed.step()), asyncio.run(failed.step())
    explorer = lab.explore([*recorded[:5], failed], limits=ALL)

    assert dict(explorer._now().ends)[FAILED_WORD] == 1
    explorer.limits["StepCountIs"] = 30
    assert dict(explorer._now().ends)[FAILED_WORD] == 1 and explorer.frame["success_rate"].iloc[0] == pytest.approx(5 / 6)


# One value ------------------------------------------------------------------------------------------------------------------------


def by_default(stop: Any = None, **budget: Any) -> Explorer:
    """An explorer of runs with these limits, with the limits that are offered by themselves."""
    return lab.explore([handed_in(place, stop, **budget) for place in range(12)])


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_one_limit_is_offered_for_each_total_and_what_says_nothing_is_named_in_one_line(recorded: list[Run]) -> None:
    offered = list(lab.explore(recorded).limits)
    assert offered == ["max_turns", "MaxTokensUsed", "MaxCost", "HasToolCall"], "the runs had max_turns"
    assert next(iter(by_default().limits)) == "StepCountIs", "they had no limit on steps but the default"
    both = by_default(StepCountIs(5), max_turns=8, max_tokens=4_000, timeout=60)
    assert list(both.limits) == ["StepCountIs", "max_tokens", "MaxCost", "timeout", "HasToolCall"], "5 comes before 8"
    (line,) = re.findall("Without a slider[^<]*", both.bundle()["text/html"])
    assert "Max turns: 8 in all of these runs, and kept." in line and "Cost" not in line and "Time" not in line
    assert next(iter(by_default(StepCountIs(8), max_turns=5).limits)) == "max_turns"
    cheap = lab.explore([made(place, cost=None) for place in range(3)])
    (line,) = re.findall("Without a slider[^<]*", cheap.bundle()["text/html"])
    assert "Cost: unknown in all of these runs. Model calls: one call per step in all of these runs" in line
    assert line.endswith("Time: replayed, or under a second in all of these runs.") and "seconds" not in shown(cheap)
    assert "cost" not in shown(cheap), "tokens take its place"


def test_the_picture_says_what_is_saved_and_which_reasons_ended_runs(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded, limits=["max_turns"])
    explorer._pictured(explorer._now())
    assert re.fullmatch(r"As recorded: \$\S+ per run\nReached the goal: 78%", explorer._picture._saved.get_text())
    explorer.limits["max_turns"] = 4
    alt = explorer._pictured(explorer._now()).alt
    row = explorer.frame.iloc[0]
    saved = row["cost_saved"] / (row["cost_saved"] + row["cost_mean"])
    words = explorer._picture._saved.get_text()
    assert re.fullmatch(rf"Cost per run: \$\S+ less \({saved:.0%}\)\nReached the goal: 33%, as recorded 78%", words)
    assert alt.endswith("Runs ended by: max_turns 67%, ended as recorded 33%.")
    texts = [text.get_text() for text in explorer._picture._below.texts]
    assert texts == ["share of runs ended by", "max_turns", "67%  18", "ended as recorded", "33%  9"]


def test_the_explorer_begins_with_the_record(live: Explorer) -> None:
    assert dict(live.limits) == {
        "StepCountIs": None, "MaxTokensUsed": None, "MaxCost": None, "timeout": None, "HasToolCall": None, "max_turns": 8,
    }  # fmt: skip
    assert (live.stop, live.budget, live.code) == (None, Budget(max_turns=8), "stop=None, budget=Budget(max_turns=8)")


def test_slider_number_and_code_are_one_value(live: Explorer) -> None:
    steps, cost = row(live, "StepCountIs"), row(live, "MaxCost")
    live.limits["StepCountIs"] = 8
    steps.slider.place = 3
    assert live.limits["StepCountIs"] == 4
    wait_until(lambda: steps.number.number.value == 4 and "StepCountIs(4)" in live.code_text.value)

    cost.number.unlimited.value = False
    cost.number.number.value = 0.0021
    assert live.stop == StepCountIs(4) | MaxCost("0.0021")
    wait_until(lambda: live.copy.text == "stop=StepCountIs(4) | MaxCost(0.0021), budget=Budget(max_turns=8)")
    assert cost.slider.place == cost.offer.place_of(Decimal("0.0021")), "the nearest position, and the value is kept"
    assert live.limits["MaxCost"] == Decimal("0.0021")

    live.limits["StepCountIs"] = None
    wait_until(lambda: steps.slider.place == len(steps.offer.values) and steps.number.unlimited.value)
    steps.slider.place = 0
    assert live.limits["StepCountIs"] == 1
    wait_until(lambda: not steps.number.unlimited.value)


def test_an_invalid_limit_says_so_and_changes_nothing(live: Explorer) -> None:
    turns = row(live, "max_turns")
    turns.number.number.value = -3
    assert "must be at least 1" in turns.number.message.value and "Still in force: 8" in turns.number.message.value
    assert live.limits["max_turns"] == 8
    with pytest.raises(errors.LimitError, match="at least 1"):
        live.limits["StepCountIs"] = 0
    with pytest.raises(KeyError, match="MaxCost"):
        live.limits["MaxCosts"] = 1
    turns.number.number.value = 5.5
    assert "max_turns is a whole number, such as 8; got float. Still in force: 8" in turns.number.message.value
    assert (live.limits["max_turns"], turns.number.number.value) == (8, 5.5)
    turns.slider.place = 10_000
    assert live.limits["max_turns"] is None, "after the last position there is no limit"


def test_tools_are_ticked(live: Explorer) -> None:
    ticks = live.rows["HasToolCall"]
    assert isinstance(ticks, ToolTicks) and set(ticks.boxes) == {"search", "read_page"}
    ticks.boxes["search"].value = True
    assert live.stop == HasToolCall("search")
    live.limits["HasToolCall"] = ["read_page"]
    wait_until(lambda: ticks.boxes["read_page"].value and not ticks.boxes["search"].value)
    ticks.boxes["read_page"].value = False
    assert live.limits["HasToolCall"] is None


def test_the_code_can_be_pasted(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded, limits=ALL)
    explorer.limits.update(StepCountIs=4, MaxCost="0.02", timeout=30, HasToolCall=("finalize", "it's"), max_turns=20)
    named = {name: getattr(lab, name) for name in ("StepCountIs", "MaxCost", "HasToolCall", "Budget")}

    assert (
        explorer.code == """stop=StepCountIs(4) | MaxCost(0.02) | HasToolCall('finalize', "it's"), budget=Budget(timeout=30.0)"""
    )
    assert eval(f"dict({explorer.code})", named) == {"stop": explorer.stop, "budget": explorer.budget}
    explorer.limits.update(dict.fromkeys(explorer.limits))
    assert (explorer.code, explorer.stop) == ("stop=None, budget=Budget(max_turns=None)", None)


def test_the_code_mentions_more_steps_than_the_default_budget_allows() -> None:
    explorer = lab.explore(steps_of(2, 30))

    assert explorer.code == "stop=None, budget=Budget(max_turns=30)"
    assert "the steps have no column &#x27;tools&#x27;" in explorer.bundle()["text/html"]
    explorer.limits["StepCountIs"] = 5
    assert explorer.code == "stop=StepCountIs(5)"


def test_the_requested_limits_have_sliders(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded, limits={"max_cost": [0.004, 0.002], "max_turns": None})
    assert list(explorer.limits) == ["max_cost", "max_turns"]
    explorer.limits["max_cost"] = 0.002
    assert explorer.code == "stop=None, budget=Budget(max_turns=8, max_cost=0.002)"
    explorer = lab.explore(recorded, limits={"HasToolCall": "search", "StepCountIs": 5, "MaxCost": "0.004"})
    assert [offer.values for offer in explorer._offered.values()] == [("search",), (5,), (Decimal("0.004"),)]
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


def test_an_explorer_of_one_run(recorded: list[Run]) -> None:
    explorer = lab.explore(recorded[0])
    html = explorer.bundle()["text/html"]
    assert "none: 1 independent unit, and 5 are needed" in html and "<span>1 run, as recorded</span>" in html


def test_without_a_known_cost_there_is_a_note_in_place_of_the_slider() -> None:
    explorer = lab.explore([made(place, cost=None) for place in range(3)])
    assert "MaxCost" not in explorer.limits
    html = explorer.bundle()["text/html"]
    assert "Cost: unknown in all of these runs." in html
    assert explorer._picture.x == "tokens_mean", "known values are on the axis"


def test_a_mostly_unknown_cost_is_not_on_the_axis() -> None:
    explorer = lab.explore([made(place, cost=None if place else "0.001") for place in range(3)])
    assert explorer._picture.x == "tokens_mean"
    assert explorer.bundle()["image/png"] and explorer._picture.draw(explorer._now()).alt.startswith("These limits: 100% reached")


def test_a_last_answer_is_kept_and_named() -> None:
    agent = lab.Agent(
        ScriptedProvider(lambda request, index: call("search", {}) if request.tools else "All I know."), tools=[search]
    )
    run = agent.run("?", budget=Budget(max_turns=3, last_answer=0.3))
    asyncio.run(run.worker.to_the_end())
    for source in (run, lab.frame(run)):
        assert "Kept as recorded, not in the code: last_answer." in shown(lab.explore(source))


def test_without_a_known_success_everything_is_unknown_and_drawn_so() -> None:
    frame = steps_of(3, 4, action=["continue", "continue", "continue", "complete"] * 3)
    explorer = lab.explore(frame, goal={"r9": 1}, limits={"MaxCost": [1]})
    assert explorer.frame["success_rate"].isna().all()
    assert "<b>unknown</b> reached the goal" in explorer.bundle()["text/html"]
    assert "unknown in all configurations" in explorer._static().outputs()[1][1]["image/png"]["alt"]


def test_nothing_to_explore_is_an_error() -> None:
    with pytest.raises(errors.ConfigurationError, match="no runs"):
        lab.explore(steps_of(0, 1))


def test_text_invented_by_a_model_is_escaped() -> None:
    frame = steps_of(2, 2, tools=["<img src=x>", "search", "search", "search"], tool_calls=[1] * 4)
    explorer = lab.explore(frame)
    explorer.limits["HasToolCall"] = "<img src=x>"
    html = explorer.bundle()["text/html"]
    assert "<img src=x>" not in html and "&lt;img src=x&gt;" in html


def test_without_a_front_end_there_are_a_table_and_a_picture(recorded: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    first, second = (lab.explore(recorded, limits=["StepCountIs", "MaxCost"])._static().outputs() for _ in range(2))
    assert "stop=None, budget=Budget(max_turns=8)" in first[0][0]["text/plain"]
    assert first[1][0]["image/png"] == second[1][0]["image/png"], "the same at every execution"
    assert first[1][1]["image/png"]["alt"].startswith("These limits: 78% reached the goal")


# Values on the sliders ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 7, 39, 41, 400, 12_345, 10**9])
def test_slider_values_are_few_round_and_reach_the_maximum(most: int) -> None:
    values = round_values(1.0, pd.Series([1.0 * most, most / 2, most / 3]).to_numpy(), int)
    assert 1 <= len(values) <= 40 and list(values) == sorted(set(values))
    assert values[-1] >= most and values[0] >= 1 and all(isinstance(value, int) for value in values)


def test_money_is_exact_and_rare_large_values_rise_by_factors() -> None:
    assert round_values(0.001, pd.Series([0.0042, 0.003]).to_numpy(), Decimal)[-1] == Decimal("0.0042")
    skewed = round_values(1.0, pd.Series([1.0] * 9 + [1000.0]).to_numpy(), int)
    assert skewed[:6] == (1, 2, 3, 5, 7, 10) and skewed[-1] == 1000


# The end of the process -----------------------------------------------------------------------------------------------------------

ENDS_IN_A_DRAWING = """
import threading
from matplotlib.backends.backend_agg import FigureCanvasAgg
import agentlab as lab
from tests.notebook.test_explore import made

whole, begun = FigureCanvasAgg.draw, threading.Event()

def slower(*given, **more):
    if threading.current_thread() is not threading.main_thread():
        begun.set()
        for _ in range(5):
            whole(*given, **more)
        print("drawn", flush=True)
    return whole(*given, **more)

FigureCanvasAgg.draw = slower
explorer = lab.explore([made(place) for place in range(9)])
explorer.widget
explorer.limits["max_turns"] = 3
assert begun.wait(60)
"""


def test_a_process_that_ends_during_a_drawing_lets_it_finish_and_does_not_abort() -> None:
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "AGENTLAB_FRONTEND": "widgets", "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)])}
    done = subprocess.run([sys.executable, "-c", ENDS_IN_A_DRAWING], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "drawn\n", "")
