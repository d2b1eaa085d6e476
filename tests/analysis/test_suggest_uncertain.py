"""Suggestions where the data cannot answer or only with uncertainty: the uncertainty is reported, nothing is invented."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as lab
from agentlab import FinishReasonIs, StepCountIs, errors, suggest
from agentlab.analysis.intervals import of_share
from tests.analysis.run_builders import known, steps_of

# Unknown values --------------------------------------------------------------------------------------------------------------


def test_unknown_costs_of_truncated_runs_are_excluded_and_reported() -> None:
    steps = steps_of([3] * 40 + [5] * 10, [True] * 40 + [False] * 10)
    found = suggest(steps, StepCountIs([6, 8]), cost="steps")  # looser than the five steps at which ten runs were cut off

    assert found.unknown_share == 0.2
    assert found.cost == 3.0  # of those with a known cost
    assert found.frame["spent_mean"].tolist() == [3.4, 3.4]
    assert any(
        sentence.startswith("10 of 50 runs (20.0%) were cut off in the record before these limits") for sentence in found.why
    )
    assert suggest(steps, StepCountIs([4]), cost="steps").unknown_share == 0.0


def test_no_savings_are_claimed_if_most_runs_are_unknown() -> None:
    handed_in = steps_of([3] * 12 + [5] * 18, [True] * 30).assign(**{"HasToolCall.met": False})
    last = handed_in["stop_reason"].notna()
    ended_by_condition = last & handed_in["step"].eq(5)
    handed_in.loc[ended_by_condition, ["stop_reason", "action", "HasToolCall.met"]] = ["stop_condition", "execute_tools", True]
    found = suggest(handed_in, cost="steps")

    assert found.successes == 30 and found.kept == 1.0
    assert (found.saved, found.cost, found.cost_recorded) == (None, None, None)
    assert "No interval for the saved share: unknown for 18 of 30 runs." in found.why
    assert "18 of 30 runs ended by a stop condition, which these limits do not include: pass it with them." in found.why
    assert "saves an unknown share of the steps" in found.in_short()
    assert "Suggested, marked with a ring" not in found.plot().alt, "it is not drawn"


def test_truncated_runs_get_no_invented_success() -> None:
    found = suggest(known(), StepCountIs([3]), keep=0.9, cost="steps")

    assert found.successes == 100
    assert any("30 of 130 runs were cut off in the record without success" in sentence for sentence in found.why)


def test_runs_of_unknown_cost_are_excluded_from_the_cost_only() -> None:
    steps = known()
    steps.loc[steps["run_id"].isin(["r00000", "r00001"]), "cost_usd"] = pd.NA
    found = suggest(steps, StepCountIs([3, 10]), keep=0.9)

    assert found.successes == 100
    assert found.cost == pytest.approx(0.03)
    assert any("For 2 of 130 runs (1.5%) the cost is unknown" in sentence for sentence in found.why)


def test_a_goal_known_for_some_runs_only() -> None:
    scores = pd.Series({f"r{place:05}": 1 if place < 80 else 0 if place < 90 else None for place in range(130)})
    found = suggest(known(), StepCountIs([3, 10]), goal=scores, keep=0.9, cost="steps")

    assert found.successes == 80
    assert any("For 40 of 130 runs it is unknown whether they succeeded" in sentence for sentence in found.why)


def test_a_condition_that_a_frame_cannot_answer_makes_the_success_unknown() -> None:
    steps = steps_of([3] * 30, [True] * 30)
    # the frame does not record how each of its calls ended
    steps.loc[steps["run_id"].eq("r00000") & steps["step"].eq(1), "calls"] = 2
    steps.loc[steps["run_id"].isin(["r00000", "r00001"]) & steps["step"].eq(2), "finish_reason"] = "max_tokens"
    tried = lab.backtest(steps, FinishReasonIs("max_tokens"), per="run").head(3)

    assert tried["outcome"].tolist() == ["unknown", "stopped", "finished"]
    assert tried["goal_reached"].isna().tolist() == [True, False, False]
    found = suggest(steps, FinishReasonIs(["max_tokens"]), keep=0.9, cost="steps")
    assert found.kept == pytest.approx(28 / 29)
    assert any("For 1 of 30 successes it is unknown" in sentence for sentence in found.why)


# No suggestion, or a weak one -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "options", "why"),
    [
        pytest.param(
            steps_of([2] * 9, [True] * 4 + [False] * 5), {}, "Only 4 of 9 runs had reached their goal, and 5 are needed", id="few"
        ),
        pytest.param(steps_of([2] * 9, [True] * 9, price=None), {}, "cost='cost_usd' is unknown for all runs", id="no cost"),
        pytest.param(
            steps_of([2, 4] * 9, [True] * 18),
            {"conditions": StepCountIs([1, 2]), "cost": "steps"},
            "None of 2 configurations keeps 0.95 of the 18 successes; the most, 50.0%, is kept by stop=StepCountIs(2)",
            id="out of reach",
        ),
        pytest.param(
            steps_of([2] * 9, [True] * 6 + [False] * 3, prompts=["p"] * 6 + ["q"] * 3),
            {},
            "not independent. A suggestion needs 5 prompts: record runs of more prompts.",
            id="one prompt succeeds",
        ),
    ],
)
def test_insufficient_data_give_no_suggestion(steps: pd.DataFrame, options: dict[str, Any], why: str) -> None:
    found = suggest(steps, **options)

    assert not found
    assert why in " ".join(found.why) and why in repr(found)
    assert found.kept is None and found.cost is None
    for name in ("stop", "budget", "code"):
        with pytest.raises(errors.ConfigurationError, match="There is no suggestion"):
            getattr(found, name)
    if found.frame.empty:
        with pytest.raises(errors.ConfigurationError, match="There are no candidates to show"):
            found.plot()


def test_insufficient_candidates_can_still_be_inspected() -> None:
    frame = suggest(known(), StepCountIs([1, 2]), cost="steps").frame

    assert frame["kept_share"].tolist() == [0.0, 0.0] and not frame["chosen"].any()


def test_small_samples_are_reported() -> None:
    few = suggest(steps_of([2] * 12, [True] * 12), StepCountIs([2, 3]), cost="steps")
    assert any(sentence.startswith("12 successes: fewer than 20") for sentence in few.why)

    prompts = suggest(steps_of([2] * 30, [True] * 30, prompts=[*"abcdef"] * 5), StepCountIs([2, 3]), cost="steps")
    assert (prompts.units, prompts.folds) == (6, 5)
    assert any(sentence.startswith("Successes of 6 prompts: fewer than 20") for sentence in prompts.why)
    assert (prompts.kept, prompts.kept_high) == (1.0, 1.0)
    assert prompts.kept_low == pytest.approx(of_share([1] * 6).low), "as of six, not of thirty"
    assert any(
        "No interval for the saved share: 30 values in 6 independent units, an interval needs 10" in one for one in prompts.why
    )

    one = suggest(steps_of([2] * 30, [True] * 30, prompts=["a"] * 30), StepCountIs([2, 3]), cost="steps")
    assert any("All runs are of one prompt" in sentence for sentence in one.why)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keep": 0}, r"keep=0: pass the share of the successes to keep, above 0 and up to 1"),
        ({"keep": 95}, r"keep=95: pass"),
        ({"keep": math.nan}, r"keep=nan: pass"),
        ({"keep": True}, r"keep=True: pass"),
        ({"cost": "money"}, r"cost='money': choose one of cost_usd, tokens, time_s, steps"),
        ({"folds": 1}, r"folds=1: pass the number of parts"),
        ({"level": 95}, r"level=95: pass a number between 0 and 1"),
    ],
)
def test_invalid_arguments_are_errors(options: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=says):
        suggest(known(), **options)


# Confidence ---------------------------------------------------------------------------------------------------------------------------

ENDS = 0.25
"""The chance of a run to succeed with a step."""


def share_within(steps: int) -> float:
    return float(1 - (1 - ENDS) ** steps)


def suggested(seed: int, confidence: float | None, runs: int = 120) -> lab.Suggestion:
    lengths = np.random.default_rng(seed).geometric(ENDS, runs)
    steps = steps_of(lengths.tolist(), [True] * runs)
    return suggest(steps, StepCountIs([5, 7, 8, 9, 10, 12, 15, 20, 30]), keep=0.9, cost="steps", confidence=confidence)


def kept_by(found: lab.Suggestion) -> float:
    stop = found.stop
    assert isinstance(stop, StepCountIs)
    return share_within(stop.steps)


def test_a_confidence_bounds_the_chance_that_the_limits_keep_too_little() -> None:
    plain, confident = [suggested(seed, None) for seed in range(12)], [suggested(seed, 0.9) for seed in range(24)]

    assert share_within(8) < 0.9 < share_within(9)
    assert sum(kept_by(found) < 0.9 for found in plain) > 3
    assert all(confident) and sum(kept_by(found) < 0.9 for found in confident) <= 24 * 0.1 + 4  # three standard errors
    assert np.mean([kept_by(found) for found in confident]) < 0.98  # and they still save


def test_a_suggestion_with_a_confidence_says_how_it_was_tested() -> None:
    found = suggested(1, 0.95)

    assert (found.confidence, found.folds, found.runs) == (0.95, 1, 120)
    assert "shown to keep at least 0.9 of the successes with a confidence of 0.95, of 9" in found.why[0]
    assert found.frame["held_out_runs"].sum() == 60
    same = [name for name in found.frame.columns if name != "chosen"]
    assert suggested(1, None).frame[same[:4]].equals(found.frame[same[:4]])


@pytest.mark.parametrize("runs", [60, 61])
def test_with_a_confidence_the_figures_and_their_counts_are_of_the_second_half(runs: int) -> None:
    steps = steps_of([3] * runs, [True] * runs)
    unknown = suggest(steps.assign(cost_usd=steps["cost_usd"].mask(steps["run_id"] == "r00000")), StepCountIs([3]), keep=0.8)
    found = suggest(steps, StepCountIs([3]), keep=0.8, cost="steps", confidence=0.9)

    assert (found.saved, found.cost, found.cost_recorded) == (0.0, 3.0, 3.0), "known for all runs of that half"
    assert any(sentence.startswith(f"For 1 of {runs} runs (1.") for sentence in unknown.why)
    assert not any("half" in sentence for sentence in unknown.why)


def test_with_a_confidence_the_cautions_count_the_second_half() -> None:
    lengths, done = [3] * 30 + [2] * 20, [True] * 30 + [False] * 20
    found = suggest(steps_of(lengths, done), StepCountIs([3, 9]), keep=0.8, cost="steps", confidence=0.9)

    assert found.unknown_share == 0.4 and found.saved == 0.0
    assert any(words.startswith("15 successes of the second half: fewer than 20") for words in found.why)
    assert any(words.startswith("10 of 25 runs of the second half (40.0%) were cut off in the record") for words in found.why)


def test_too_few_runs_for_a_confidence_are_reported() -> None:
    few = suggested(1, 0.95, runs=40)
    assert not few and "The half of the runs that tests has successes of 20 runs, and it takes at least 29" in few.why[0]
    lengths = np.repeat(np.random.default_rng(1).geometric(ENDS, 20), 6).tolist()
    repeats = steps_of(lengths, [True] * 120, prompts=[f"p{place // 6}" for place in range(120)])
    found = suggest(repeats, StepCountIs(range(1, 31)), keep=0.9, cost="steps", confidence=0.95)
    assert not found and "has successes of 10 prompts" in found.why[0], "ten, not sixty"


@pytest.mark.parametrize(("confidence", "keep"), [(0.5, 0.9), (95, 0.9), (0.95, 1)])
def test_an_invalid_confidence_is_an_error(confidence: float, keep: float) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"confidence|level"):
        suggest(steps_of([2] * 30, [True] * 30), StepCountIs([2]), keep=keep, cost="steps", confidence=confidence)
