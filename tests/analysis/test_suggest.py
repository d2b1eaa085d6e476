"""The cheapest limits that keep a share of the successes, on data with a known answer, and how they are reported."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import (
    Budget,
    FinishReasonIs,
    HasToolCall,
    MaxCost,
    MaxTokensUsed,
    Off,
    StepCountIs,
    StopCondition,
    Suggestion,
    suggest,
)
from agentlab.analysis.records import folds_of, order_of, reordered, units_of
from agentlab.analysis.sources import from_frames
from agentlab.limits.condition_tree import condition_code
from agentlab.testing import ScriptedProvider
from tests.analysis.run_builders import drawn, known, steps_of
from tests.plots.builders import look, looping, run_of

NAMES = {name: getattr(lab, name) for name in ("StepCountIs", "MaxTokensUsed", "MaxCost", "HasToolCall", "FinishReasonIs", "Off")}


def pasted(code: str) -> dict[str, Any]:
    """The value of `code` when it is pasted into a call."""
    return eval(f"dict({code})", {**NAMES, "Budget": Budget})


# The right answer ------------------------------------------------------------------------------------------------------------


def test_the_cheapest_sufficient_configuration_is_suggested() -> None:
    found = suggest(known(), StepCountIs(range(1, 13)), keep=0.9, cost="steps")

    assert found
    assert found.stop == StepCountIs(3) and found.budget is None
    assert found.code == "stop=StepCountIs(3)"
    assert (found.runs, found.successes, found.folds, found.same_choice) == (130, 100, 5, 5)
    assert (found.kept, found.cost, found.cost_recorded) == (0.95, 3.0, (3 * 95 + 50 + 600) / 130)
    assert found.saved == pytest.approx(1 - 390 / 935)
    assert found.kept_low is not None and found.kept_low < 0.95 < (found.kept_high or 0)


def test_a_target_of_100_percent_keeps_every_success() -> None:
    found = suggest(known(), StepCountIs(range(1, 13)), keep=1, cost="steps")

    assert found.stop == StepCountIs(10)
    assert found.kept == 1.0
    assert found.kept_low == pytest.approx(0.025 ** (1 / 100))  # exact: resamples are all the same
    assert found.kept_high == 1.0


def test_default_candidates_come_from_the_data() -> None:
    found = suggest(known(), keep=0.9)

    assert set(found.frame["configuration"]) == {
        "no limit", "steps", "tokens", "cost", "steps | tokens", "steps | cost", "tokens | cost",
    }  # fmt: skip
    assert found.stop == StepCountIs(3)  # limits on tokens and on money would do the same: the first form is chosen
    assert found.cost_in == "cost_usd" and found.cost == pytest.approx(0.03)


def test_the_default_grid_keeps_the_successes_it_was_made_from() -> None:
    found = suggest(drawn(np.random.default_rng(3), 80), keep=1)
    loosest = found.frame[found.frame["configuration"].isin(["steps", "tokens", "cost"])].groupby("configuration").tail(1)

    assert loosest["kept_share"].tolist() == [1.0, 1.0, 1.0]
    assert all(len(f"{value:g}".replace(".", "").strip("0")) <= 2 for value in loosest["MaxTokensUsed"].dropna())


def test_a_budget_candidate_is_suggested_as_a_budget() -> None:
    found = suggest(known(), budget={"max_turns": range(1, 13)}, keep=0.9, cost="tokens")

    assert found.stop is None
    assert found.budget == Budget(max_turns=3)
    assert found.code == "stop=None, budget=Budget(max_turns=3)"


def test_code_mentions_runs_longer_than_the_default_budget() -> None:
    long = steps_of([25] * 30, [True] * 30)
    found = suggest(long, budget={"max_cost": [0.5, 1]}, cost="steps")

    assert found.budget == Budget(max_turns=None, max_cost="0.5")  # type: ignore[arg-type]
    assert found.code == "stop=None, budget=Budget(max_turns=None, max_cost=0.5)"
    assert suggest(steps_of([20] * 30, [True] * 30), budget={"max_cost": [0.5]}).code == "stop=None, budget=Budget(max_cost=0.5)"


def test_without_savings_the_record_itself_is_suggested() -> None:
    found = suggest(steps_of([2] * 30, [True] * 30), [None, StepCountIs([1, 2])], cost="steps")

    assert found.stop is None and found.budget is None  # two steps do the same, with one more limit
    assert found.saved == 0.0
    assert any("the record itself" in sentence for sentence in found.why)


def test_ties_in_cost_prefer_more_success_then_fewer_limits_then_the_strictest() -> None:
    steps = known()
    tied = {"two": StepCountIs(3) | MaxTokensUsed([3_000, 90_000]), "later": MaxTokensUsed([3_000, 2_999]), "one": StepCountIs(3)}
    found = suggest(steps, tied, keep=0.9, cost="steps")
    assert found.stop == MaxTokensUsed(2_999)

    early = steps_of([3] * 50 + [4] * 50, [True] * 50 + [False] * 50)  # met or not at the third step, at the same cost
    goal = HasToolCall("finalize")
    early.loc[early["run_id"].lt("r00050") & early["step"].eq(2), "tools"] = "finalize"
    either = {"with": StepCountIs([9]) & MaxTokensUsed(2_000), "without": StepCountIs([9, 7])}
    assert suggest(early, either, goal=goal, keep=0.9, cost="steps").stop == StepCountIs(7)


grids = st.sampled_from([
    StepCountIs([1, 2, 3, 5]), MaxTokensUsed([900, 2_500, 7_000]), StepCountIs([2, 4]) | MaxTokensUsed([1_500, 4_000]),
    StepCountIs([2, 4]) & MaxCost([0.01, 0.03]),
])  # fmt: skip


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), grids, st.sampled_from([0.5, 0.8, 0.95]), st.sampled_from(["steps", "tokens", "cost_usd"]))
def test_suggest_agrees_with_a_naive_search(seed: int, grid: StopCondition, keep: float, cost: Any) -> None:
    steps = drawn(np.random.default_rng(seed), 40, prompts=12)
    found = suggest(steps, grid, keep=keep, cost=cost)
    if not found and found.frame.empty:
        return  # too few successes

    tried = lab.backtest(steps, grid, per="run").assign(steps=lambda runs: runs["step"])
    axes = [name for name in found.frame.columns if name in ("StepCountIs", "MaxTokensUsed", "MaxCost")]
    won = lab.backtest(steps, None, budget={"max_turns": 99}, per="run")
    ids = set(won.loc[won["goal_reached"].fillna(False), "run_id"])
    rows = [
        (tuple(key), runs.loc[runs["run_id"].isin(ids), "goal_reached"].mean(), runs[cost].mean())
        for key, runs in tried.groupby(axes)
    ]
    enough = [row for row in rows if row[1] >= keep]
    assert bool(found) == bool(enough)
    if found:
        chosen = found.frame[found.frame["chosen"]]
        mine = next(row for row in rows if row[0] == tuple(chosen[axes].iloc[0]))
        assert mine[1] == pytest.approx(chosen["kept_share"].iloc[0]) and mine[1] >= keep
        assert mine[2] == pytest.approx(min(row[2] for row in enough)) == pytest.approx(chosen["spent_mean"].iloc[0], rel=1e-6)
        assert pasted(found.code)["stop"] == found.stop


# Cross-validation ------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_row_order_does_not_change_the_suggestion(seed: int, rng: Any) -> None:
    steps = drawn(np.random.default_rng(seed), 60, prompts=15)
    mixed = steps.sample(frac=1, random_state=rng.randrange(10**6))
    once, again = suggest(steps, folds=3), suggest(mixed, folds=3)

    assert once == again and once.why == again.why
    pd.testing.assert_frame_equal(once.frame, again.frame)


def test_each_fold_is_evaluated_by_the_choice_on_the_others() -> None:
    steps = drawn(np.random.default_rng(5), 90, prompts=20)
    found = suggest(steps, StepCountIs(range(1, 15)), keep=0.9, cost="steps", folds=4)

    records = from_frames(steps)
    records = reordered(records, order_of(records.about))
    won = records.goal < records.lengths
    fold = folds_of(units_of(records.about), won, 4)
    kept, used = np.zeros(len(records)), np.zeros(len(records))
    for out in range(4):
        shares = {limit: (records.lengths[won & (fold != out)] <= limit).mean() for limit in range(1, 15)}
        chosen = min(limit for limit, share in shares.items() if share >= 0.9)
        here = fold == out
        kept[here], used[here] = records.lengths[here] <= chosen, np.minimum(records.lengths[here], chosen)

    assert found.kept == pytest.approx(kept[won].mean())
    assert found.cost == pytest.approx(used.mean())
    assert found.saved == pytest.approx(1 - used.sum() / records.lengths.sum())
    held = found.frame[found.frame["folds_chosen"] > 0]
    assert held["folds_chosen"].sum() == 4 and held["held_out_runs"].sum() == len(records)
    assert (held["held_out_runs"] * held["held_out_cost"]).sum() == pytest.approx(used.sum())
    assert found.frame["held_out_kept"].notna().sum() == len(held)


@given(st.integers(0, 10**6), st.integers(2, 6))
@settings(deadline=None, max_examples=30)
def test_folds_have_whole_prompts_and_equal_numbers_of_successes(seed: int, folds: int) -> None:
    random = np.random.default_rng(seed)
    about = pd.DataFrame({"run_id": [f"r{n}" for n in range(80)], "prompt_id": random.integers(0, 20, 80).astype(str)})
    won = random.random(80) < 0.5
    units = units_of(about)
    fold = folds_of(units, won, folds)

    assert all(len(set(fold[units.of == unit])) == 1 for unit in set(units.of))
    most = max(np.bincount(units.of[won]))
    per_fold = np.bincount(fold[won], minlength=folds)
    assert per_fold.max() - per_fold.min() <= most


def test_units_are_prompts_if_known_and_runs_otherwise() -> None:
    runs = ["a", "b", "c", "d"]
    assert units_of(pd.DataFrame({"run_id": runs, "prompt_id": ["x", "x", None, None]})).of.tolist() == [0, 0, 1, 2]
    assert units_of(pd.DataFrame({"run_id": runs, "prompt": ["x", "x", "y", "y"], "prompt_id": None})).what == "prompt"
    assert units_of(pd.DataFrame({"run_id": runs})).what == "run"
    one = units_of(pd.DataFrame({"run_id": runs, "prompt": "x"}))
    assert one.one_prompt and len(set(one.of)) == 4


def test_repeats_of_a_prompt_do_not_narrow_the_interval() -> None:
    # 20 prompts whose 30 repeats all take the same number of steps: 20 independent observations, not 600
    need = np.random.default_rng(2).integers(2, 12, 20)
    lengths = np.repeat(need, 30).tolist()
    prompts = [f"p{place}" for place in range(20) for _ in range(30)]
    by_prompt = suggest(steps_of(lengths, [True] * 600, prompts=prompts), StepCountIs(range(1, 13)), keep=0.8, cost="steps")
    as_runs = suggest(steps_of(lengths, [True] * 600), StepCountIs(range(1, 13)), keep=0.8, cost="steps")

    def width(found: Suggestion) -> float:
        assert found.kept_low is not None and found.kept_high is not None
        return found.kept_high - found.kept_low

    assert width(by_prompt) > 3 * width(as_runs)
    assert any("by prompt" in sentence for sentence in by_prompt.why)


def test_the_interval_covers_the_truth_and_in_sample_estimates_are_too_optimistic() -> None:
    # A success takes a geometric number of steps (0.35), so n steps keep 1 - 0.65^n of them
    covered, same_runs, held_out, truth = 0, [], [], []
    for seed in range(60):
        found = suggest(drawn(np.random.default_rng(seed), 60), StepCountIs(range(1, 20)), cost="steps")
        pieces = found.frame[found.frame["held_out_runs"].notna()]
        shares = 1 - 0.65 ** pieces["StepCountIs"].astype(float)
        true = float(np.average(shares, weights=pieces["held_out_runs"].astype(float)))
        assert found.kept is not None and found.kept_low is not None and found.kept_high is not None
        covered += found.kept_low <= true <= found.kept_high
        same_runs.append(float(found.frame.loc[found.frame["chosen"], "kept_share"].iloc[0]))
        held_out.append(found.kept)
        truth.append(true)

    assert covered >= 51  # of 60 at 95 %: 57 expected
    assert abs(np.mean(held_out) - np.mean(truth)) < 0.01
    assert np.mean(same_runs) - np.mean(truth) > 0.015


# Display and code ------------------------------------------------------------------------------------------------------------


def test_the_frame_is_a_backtests_frame_with_the_choice_marked() -> None:
    grid = StepCountIs([2, 3, 10])
    found, tried = suggest(known(), grid, keep=0.9, cost="steps"), lab.backtest(known(), grid)

    pd.testing.assert_frame_equal(found.frame[tried.columns], tried)
    assert found.frame["code"].tolist() == ["stop=StepCountIs(2)", "stop=StepCountIs(3)", "stop=StepCountIs(10)"]
    assert found.frame["chosen"].tolist() == [False, True, False]
    assert found.frame["folds_chosen"].tolist() == [0, 5, 0]


def test_the_repr_is_short_and_escaped() -> None:
    found = suggest(known(), HasToolCall("<script>") | StepCountIs([3, 10]), keep=0.9, cost="steps")

    assert repr(found).startswith(
        "Suggestion(stop=HasToolCall('<script>') | StepCountIs(3); on held-out runs the rule keeps 95.0%"
    )
    shown = found._repr_html_()
    assert "<script>" not in shown and "HasToolCall(&#x27;&lt;script&gt;&#x27;) | StepCountIs(3)" in shown
    assert all(sentence.count("<li>") == 0 for sentence in found.why)
    assert "No suggestion" in suggest(steps_of([1], [True]))._repr_html_()


@pytest.mark.parametrize(
    "tree",
    [
        StepCountIs(4) | MaxCost("0.02"),
        (StepCountIs(4) | MaxCost(100)) & ~HasToolCall("search", "it's"),
        ~(StepCountIs(4) & MaxTokensUsed(10_000)) | Off(FinishReasonIs("length")),
        MaxCost("0.0000001"),
    ],
    ids=str,
)
def test_code_evaluates_to_the_condition(tree: StopCondition) -> None:
    assert pasted(f"stop={condition_code(tree)}")["stop"] == tree


def test_a_suggestion_is_accepted_by_a_run_and_takes_effect() -> None:
    results = [run_of(looping(end=end)) for end in (2, 3, 3, 3, 3, 3, 5)]

    def at_the_limit(history: lab.RunHistory) -> bool:
        return len(history) >= 3

    found = suggest(results, {"cost": MaxCost(["0.001", "0.003"]), "own": at_the_limit, "none": None}, keep=0.8)

    assert found.stop == MaxCost("0.003")  # the custom condition does the same and was passed later
    again = run_of(looping(end=5), stop=found.stop, budget=found.budget)
    assert again.stop_reason == lab.StopReason.STOP_CONDITION and len(again.history) == 3
    assert any("All runs are of one prompt" in sentence for sentence in found.why)


def test_folds_of_a_store_are_by_prompt(tmp_path: Any) -> None:
    store = lab.Store(tmp_path / "runs.db")
    for prompt in "abcdef":
        for end in (2, 3):
            run = lab.Agent(ScriptedProvider(looping(end=end), name="one", model="m1"), tools=[look], observers=[store]).run(
                prompt
            )
            asyncio.run(to_the_end(run))
    found = suggest(store, StepCountIs([2, 3, 4]), cost="steps")

    assert found.stop == StepCountIs(3)
    assert any("(5 parts, by prompt, 6 in all)" in sentence for sentence in found.why)
    store.close()


async def to_the_end(run: lab.Run) -> None:
    await run


def test_the_plot_of_a_suggestion_is_the_plot_of_its_frame() -> None:
    found = suggest(known(), StepCountIs([2, 3, 10]), keep=0.9, cost="steps")
    axes = found.plot()

    assert axes.alt.endswith("Suggested, marked with a ring: stop=StepCountIs(3).")
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_markersize() == 16] == [
        (pytest.approx(3.0), pytest.approx(95 / 130))
    ]


def test_suggest_is_exported_as_lab_suggest() -> None:
    assert lab.suggest is suggest and lab.Suggestion is Suggestion


def test_a_confidence_that_is_no_share_is_named() -> None:
    with pytest.raises(lab.errors.ConfigurationError, match="confidence=95: pass a number between 0 and 1"):
        suggest(known(), StepCountIs([3, 10]), confidence=95)


def test_no_limit_is_not_said_to_keep_too_little() -> None:
    rng = np.random.default_rng(6)
    lengths = [int(length) for length in rng.integers(1, 8, 40)]
    found = suggest(steps_of(lengths, [bool(one) for one in rng.random(40) < 0.7]), keep=0.9, cost="steps")
    assert found.found is not None and found.found.stop is None and found.found.budget is None
    assert found.kept is not None and found.kept < 0.9, "of the rule, on runs that were held out"
    assert "on held-out runs the rule keeps" in repr(found)
    assert not any("a higher value of keep" in sentence for sentence in found.why)
