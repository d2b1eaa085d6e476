"""Suggestions by group: each as for its runs alone, in one frame that marks unknown values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import MaxTokensUsed, StepCountIs, StopCondition, Suggestions, suggest
from agentlab.errors import ConfigurationError, LimitError
from tests.analysis.run_builders import drawn, known, steps_of
from tests.plots.builders import looping, run_of

LIMITS = StepCountIs(range(1, 13))


def of(steps: pd.DataFrame, name: str | None, **more: Any) -> pd.DataFrame:
    """The same runs with other ids and this model name."""
    return steps.assign(run_id=f"{name} " + steps["run_id"], model=pd.array([name] * len(steps), dtype="string"), **more)


def three() -> pd.DataFrame:
    """Three models: one needs 3 steps, one needs 6, and one has too few runs."""
    slow = steps_of([6] * 95 + [12] * 5, [True] * 100)
    return pd.concat([of(known(), "fast"), of(slow, "slow"), of(steps_of([2] * 4, [True] * 4), "rare")], ignore_index=True)


# One suggestion per group ----------------------------------------------------------------------------------------------------

conditions = st.sampled_from([None, StepCountIs([1, 2, 3, 5]), StepCountIs([2, 4]) | MaxTokensUsed([1_500, 4_000])])


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=4),
    st.integers(0, 10**6),
    conditions,
    st.sampled_from(["steps", "cost_usd"]),
    st.sampled_from([None, 8]),
    st.booleans(),
)
def test_each_group_has_the_suggestion_of_its_runs_alone(
    sizes: list[int], seed: int, tried: StopCondition | None, cost: Any, prompts: int | None, several: bool
) -> None:
    random = np.random.default_rng(seed)
    names = [None if place == 2 else f"m{place}" for place in range(len(sizes))]
    parts = [
        of(drawn(random, size, prompts=prompts), name, provider="p") for size, name in zip(sizes, names, strict=True) if size > 0
    ]
    if not parts:
        return
    mixed = pd.concat(parts).sample(frac=1, random_state=seed)
    found = suggest(mixed, tried, cost=cost, keep=0.9, by=["provider", "model"] if several else "model")

    assert len(found) == len(parts)
    for part in parts:
        name = part["model"].iloc[0]
        called = "unknown model" if pd.isna(name) else name
        alone, one = suggest(part, tried, cost=cost, keep=0.9), found[f"p · {called}" if several else called]
        assert one == alone and one.why == alone.why
        pd.testing.assert_frame_equal(one.frame, alone.frame)
    assert (found.frame["code"].notna() == [bool(found[name]) for name in found]).all()
    assert (found.frame["code"].isna() == found.frame["no_suggestion"].notna()).all()


def test_groups_have_the_order_and_names_of_a_comparison() -> None:
    steps = three()
    found = suggest(steps, LIMITS, keep=0.9, cost="steps", by="model")

    assert isinstance(found, Suggestions) and found
    assert list(found) == ["fast", "slow", "rare"] == lab.backtest(steps, LIMITS, by="model")["model"].iloc[:3].tolist()
    assert [found[name].code if found[name] else None for name in found] == ["stop=StepCountIs(3)", "stop=StepCountIs(6)", None]


def test_results_with_a_custom_condition_as_goal() -> None:
    results = [run_of(looping(end=end), model=model) for model, end in [("a", 2)] * 6 + [("b", 4)] * 6 + [("c", 3)]]

    def looked(history: lab.RunHistory) -> bool:
        return len(history) >= 2

    found = suggest(results, StepCountIs([1, 2, 3]), goal=looked, cost="steps", by="model")
    assert [bool(found[name]) for name in found] == [True, True, False]
    assert found["b"].stop == StepCountIs(2) and found["b"].saved == 0.5
    assert found.frame["successes"].tolist() == [6, 6, 1]


# The frame -------------------------------------------------------------------------------------------------------------------


def test_the_frame_has_one_row_per_group_and_marks_unknown_values() -> None:
    frame = suggest(three(), LIMITS, keep=0.9, cost="steps", by="model").frame

    assert frame["model"].tolist() == ["fast", "slow", "rare"] and frame["model"].dtype == "string"
    assert frame["code"].tolist()[:2] == ["stop=StepCountIs(3)", "stop=StepCountIs(6)"]
    assert frame["runs"].tolist() == [130, 100, 4] and frame["successes"].tolist() == [100, 100, 4]
    assert frame.loc[2, ["code", "kept", "kept_low", "saved", "cost", "cost_recorded", "unknown_share"]].isna().all()
    assert frame["no_suggestion"][2].startswith("Only 4 of 4 runs had reached their goal, and 5 are needed")
    assert frame["no_suggestion"].isna().tolist() == [True, True, False]
    assert (frame["kept_low"][:2] < frame["kept"][:2]).all() and (frame["kept"][:2] < frame["kept_high"][:2]).all()


def test_few_successes_are_reported() -> None:
    steps = pd.concat([of(known(), "many"), of(steps_of([2] * 8, [True] * 8), "few")])
    frame = suggest(steps, LIMITS, keep=0.9, cost="steps", by="model").frame

    assert frame["small_sample"].isna().tolist() == [True, False]
    assert frame["small_sample"][1] == "8 successes: fewer than 20, too few to show rare failures and rare expensive runs."


def test_a_figure_without_an_interval_says_why() -> None:
    steps = pd.concat([of(known(), "priced"), of(steps_of([2] * 8, [True] * 8, price=None), "free")])
    found = suggest(steps, LIMITS, keep=0.9, by="model")

    assert found.frame["no_suggestion"][1].startswith("cost='cost_usd' is unknown for all runs")
    one_prompt = pd.concat([of(known(), "a", prompt_id="p"), of(known(), "b", prompt_id="p")])
    assert all("one prompt" in " ".join(one.why) for one in suggest(one_prompt, LIMITS, cost="steps", by="model").groups.values())


def test_the_candidates_of_all_groups_are_one_frame_to_plot() -> None:
    steps = pd.concat([of(known(), "a"), of(steps_of([2] * 30, [True] * 30, price=None), "b")], ignore_index=True)
    found = suggest(steps, keep=0.9, cost="steps", by="model")

    table = found.candidates
    front = table.columns[: table.columns.get_loc("runs")].tolist()
    assert front[-1] == "model" and {"configuration", "StepCountIs", "MaxTokensUsed", "MaxCost"} <= set(front)
    assert len(table) == sum(len(found[name].frame) for name in found) and table["chosen"].sum() == 2
    assert table.loc[table["model"] == "b", "MaxCost"].isna().all()
    axes = found.plot()
    assert "Pareto frontier of a: " in axes.alt and axes.alt.endswith(f"a: {found['a'].code}; b: {found['b'].code}.")
    assert len(next(line for line in axes.lines if line.get_markersize() == 16).get_xdata()) == 2


# Errors ----------------------------------------------------------------------------------------------------------------------


def test_without_any_suggestion_the_value_is_falsy_and_the_plot_error_says_why() -> None:
    found = suggest(of(steps_of([1] * 3, [True] * 3), "few"), LIMITS, by="model")

    assert not found and len(found) == 1 and found.candidates.empty
    with pytest.raises(ConfigurationError, match="no candidates to show: few: Only 3 of 3 runs"):
        found.plot()


def test_an_unknown_group_is_an_error() -> None:
    found = suggest(three(), LIMITS, cost="steps", by="model")

    assert "fast" in found and "fats" not in found
    with pytest.raises(ConfigurationError, match=r"no group 'fats'\. Did you mean 'fast'\? Choose from: fast, slow, rare"):
        found["fats"]


@pytest.mark.parametrize("by", [3, [], [1], ""], ids=repr)
def test_an_unknown_column_is_an_error(by: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"by=|There is no column"):
        suggest(three(), LIMITS, by=by)


def test_a_steps_column_that_is_constant_within_runs_makes_groups() -> None:
    steps = three().rename(columns={"model": "variant"})
    found = suggest(steps, LIMITS, cost="steps", by="variant")

    assert list(found) == ["fast", "slow", "rare"]
    assert lab.backtest(steps, StepCountIs(3), by="variant")["runs"].tolist() == [130, 100, 4]
    assert lab.backtest(steps, StepCountIs(3), by="variant", per="run")["variant"].value_counts().to_dict() == {
        "fast": 130, "slow": 100, "rare": 4,
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match="by='step': the column changes from step to step in run 'fast r00000'"):
        suggest(steps, LIMITS, by="step")
    with pytest.raises(ConfigurationError, match="goal='duration': There is no column"):
        lab.backtest(steps, StepCountIs(3), goal="duration")
    passed = steps.assign(passed=steps["variant"] == "slow")
    assert lab.backtest(passed, StepCountIs(12), goal="passed", by="variant")["success_rate"].tolist() == [0.0, 1.0, 0.0]


def test_invalid_candidates_are_an_error_even_if_every_group_is_too_small() -> None:
    few = of(steps_of([1] * 3, [True] * 3), "few")
    with pytest.raises(LimitError):
        suggest(few, StepCountIs(2), budget={"max_turns": [0]}, by="model")
    with pytest.raises(ConfigurationError, match="cost='money': choose one of"):
        suggest(few, LIMITS, cost="money", by="model")  # type: ignore[call-overload]


def test_model_names_are_escaped() -> None:
    found = suggest(of(known(), "<script>\u202e$x$"), LIMITS, cost="steps", by="model")

    assert "<script>" not in found._repr_html_() and "&lt;script&gt;" in found._repr_html_()
    assert found == suggest(of(known(), "<script>\u202e$x$"), LIMITS, cost="steps", by=["model"])
    assert repr(found).startswith("Suggestions(by model: <script>")


def test_many_groups_are_shown_in_part() -> None:
    steps = pd.concat([of(steps_of([1] * 5, [True] * 5), f"m{place}") for place in range(70)])
    found = suggest(steps, StepCountIs([1, 2]), cost="steps", by="model")

    assert found._repr_html_().count("<tr>") == 40 and "and 30 more in <code>.frame</code>" in found._repr_html_()
    assert len(found.frame) == 70 and len(repr(found)) < 2_100
