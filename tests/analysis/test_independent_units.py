"""Which runs are independent, which runs enter a figure, and that both are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab.analysis.groups import units_of

from .frame_builders import runs_of
from .test_compare import row_of


def repeated(prompts: int, repeats: int, providers: str = "a", **columns: Any) -> pd.DataFrame:
    """Runs of each provider with each prompt, repeated; costs differ between prompts and hardly within one."""
    random = np.random.default_rng(1)
    cells = [(name, prompt, repeat) for name in providers for prompt in range(prompts) for repeat in range(repeats)]
    costs = [round(float(np.exp(prompt % 7 - 3 + 0.1 * random.normal())), 6) for _, prompt, _ in cells]
    given: dict[str, Any] = {
        "prompt_id": [f"p{prompt}" for _, prompt, _ in cells],
        "repeat": [repeat for *_, repeat in cells],
        "score": [prompt % 3 != 0 for _, prompt, _ in cells],
        "cost_usd": costs,
    }
    return runs_of([name for name, *_ in cells], **given | columns)


# Units ---------------------------------------------------------------------------------------------------------------------------


def test_repeats_of_a_prompt_are_one_unit_and_do_not_narrow_an_interval() -> None:
    once, often = row_of(lab.summary(repeated(12, 1))), row_of(lab.summary(repeated(12, 40)))

    assert (once["units"], often["units"], often["runs"]) == (12, 12, 480)
    for what in ("success", "cost"):
        assert often[f"{what}_high"] - often[f"{what}_low"] > 0.8 * (once[f"{what}_high"] - once[f"{what}_low"])
    asked = row_of(lab.summary(repeated(12, 40), unit="run_id"))
    assert asked["units"] == 480
    assert asked["cost_high"] - asked["cost_low"] < 0.5 * (often["cost_high"] - often["cost_low"])


def test_one_prompt_gives_an_interval_for_itself_only_on_request() -> None:
    runs = repeated(1, 20)
    row = row_of(lab.summary(runs))

    assert (row["units"], row["cost_low"], row["success_low"]) == (1, None, None)
    assert row["no_interval"].startswith(
        "completion, success, score: 20 values in 1 independent unit, an interval needs 5 units; "
        "tokens: none known; cost: 20 values in 1 independent unit, an interval needs 10 units; "
    )
    assert row["no_interval"].endswith(
        "; a unit is all runs of one prompt_id; unit='run_id' gives intervals that are valid for these prompts only"
    )
    assert row_of(lab.summary(runs, unit="run_id"))["cost_low"] is not None


def test_replays_of_one_recording_are_always_one_unit() -> None:
    runs = repeated(15, 1, recording_id=[f"recording {place % 3}" for place in range(15)], replayed=[True] * 15)

    for asked in (None, "run_id"):
        row = row_of(lab.summary(runs, unit=asked))
        assert (row["units"], row["replayed"], row["success_low"], row["cost_low"]) == (3, 15, None, None)
        assert "15 values in 3 independent units, an interval needs 5 units" in row["no_interval"]
        assert "a unit is all runs of one" in row["no_interval"] and "recording_id" in row["no_interval"]
        assert "unit='run_id' gives" not in row["no_interval"]
    both = pd.concat([runs, runs.assign(provider="b", run_id="again " + runs["run_id"], cost_usd=runs["cost_usd"] + 1)])
    pair = row_of(lab.paired(both, "cost_usd", unit="run_id"))
    assert (pair["pairs"], pair["units"], pair["low"]) == (15, 3, None)
    agreement = lab.agreement(both)
    assert agreement.overall[["scenarios", "units"]].to_numpy().tolist() == [[15, 3]]
    assert repr(agreement).endswith("the same in 15 of 15 scenarios in 3 independent units)")
    assert lab.plots.survival_data(runs.assign(steps=2))["low"].isna().all()
    assert lab.plots.estimates_data(runs, "cost")[["runs", "units"]].to_numpy().tolist() == [[15, 3]]


def test_pairs_of_one_prompt_are_one_unit() -> None:
    costs = np.random.default_rng(3).normal(size=240) + np.tile(np.repeat(np.arange(12), 10), 2) * np.repeat([0, 5], 120)
    runs = repeated(12, 10, "ab").assign(total_tokens=costs)

    row = row_of(lab.paired(runs, "total_tokens"))
    assert (row["pairs"], row["units"]) == (120, 12)
    assert row["low"] < row_of(lab.paired(runs, "total_tokens", unit="run_id"))["low"]
    found = row_of(lab.paired(runs, "total_tokens", on=["prompt_id"]))
    assert (found["pairs"], found["units"]) == (12, 12)
    assert found["low"] == pytest.approx(row["low"])


def test_units_are_per_group_and_a_run_without_a_prompt_is_a_unit() -> None:
    runs = repeated(3, 4, "ab")
    runs.loc[runs.index[:3], "prompt_id"] = None

    assert lab.summary(runs)["units"].tolist() == [6, 3]
    assert lab.summary(runs.drop(columns="prompt_id").assign(prompt=["?", "??"] * 12))["units"].tolist() == [2, 2]
    assert lab.summary(runs.drop(columns=["prompt_id", "run_id"]))["units"].tolist() == [12, 12]


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | st.integers(0, 6), st.none() | st.integers(0, 6)), max_size=25))
def test_connected_runs_form_one_unit(rows: list[tuple[int | None, int | None]]) -> None:
    frame = pd.DataFrame(
        {"prompt_id": pd.array([p for p, _ in rows], "Int64"), "recording_id": pd.array([r for _, r in rows], "Int64")}
    )
    found = units_of(frame, "prompt_id")

    def linked(one: int, other: int) -> bool:
        return any(rows[one][side] is not None and rows[one][side] == rows[other][side] for side in (0, 1))

    every, expected = range(len(rows)), list(range(len(rows)))
    for _ in every:
        expected = [min(expected[other] for other in every if other == one or linked(one, other)) for one in every]
    assert found.tolist() == expected


# Excluded runs ---------------------------------------------------------------------------------------------------------------------


def half_failed(**columns: Any) -> pd.DataFrame:
    given: dict[str, Any] = {
        "terminated": [True, False] * 30,
        "stop_reason": ["completed", "error"] * 30,
        "score": [True, None] * 30,
        "cost_usd": [0.01, None] * 30,
    }
    return runs_of(["a"] * 60, **given | columns)


def test_a_failed_run_counts_as_unsuccessful() -> None:
    row = row_of(lab.summary(half_failed()))

    assert (row["runs"], row["failed"], row["scored"], row["success_rate"], row["score_mean"]) == (60, 30, 30, 0.5, 0.5)
    assert (row["success_low"], row["success_high"]) == (row["completion_low"], row["completion_high"])
    assert (row["cost_unknown"], row["left_out"]) == (0.5, "cost: 30 of 60 unknown")


def test_failures_can_be_excluded_and_the_exclusion_is_reported() -> None:
    row = row_of(lab.summary(half_failed(), failures="leave_out"))

    assert (row["runs"], row["not_ended"], row["failed"], row["units"]) == (60, 0, 30, 30)
    assert (row["success_rate"], row["completion_rate"], row["cost_unknown"]) == (1, 1, 0)
    assert row["left_out"] == "all: 30 failed"
    open_too = half_failed(terminated=[None] * 4 + [True, False] * 28, stop_reason=[None] * 4 + ["completed", "error"] * 28)
    assert row_of(lab.summary(open_too, failures="leave_out"))["left_out"] == "all: 4 of 60 not ended, 28 failed"


@pytest.mark.parametrize("word", ["ERROR", "Error"])
def test_a_failed_run_is_recognized_in_any_spelling(word: str) -> None:
    runs = half_failed(stop_reason=["completed", word] * 30)

    pd.testing.assert_frame_equal(lab.summary(runs), lab.summary(half_failed()))
    assert lab.paired(runs.assign(provider=["a", "b"] * 30), "score")["failed"].item() == 30


def test_completed_runs_without_a_score_are_excluded_and_counted() -> None:
    scores, reasons = [True, None, True, None] * 15, ["completed", "error", "completed", "turn_limit"] * 15
    row = row_of(lab.summary(half_failed(stop_reason=reasons, score=scores)))

    assert (row["failed"], row["scored"], row["success_rate"]) == (15, 30, pytest.approx(30 / 45))
    assert row["left_out"] == "success, score: 15 of 60 without a score; cost: 30 of 60 unknown"


def test_failed_runs_count_as_unsuccessful_and_have_no_grade() -> None:
    runs = half_failed(score=[0.25, None, 0.75, None] * 15)

    row = row_of(lab.summary(runs, success_at=0.5))
    assert (row["success_rate"], row["score_mean"]) == (0.25, 0.5)
    assert row["left_out"].startswith("score: 30 of 60 without a score")


def test_a_group_of_failed_runs_has_zero_success_if_others_have_scores() -> None:
    every = runs_of(["b"] * 6, terminated=[False] * 6, stop_reason=["error"] * 6, score=[None] * 6)

    both = lab.summary(pd.concat([half_failed(), every.assign(run_id="b " + every["run_id"])]))
    assert both["success_rate"].tolist() == [0.5, 0]
    assert lab.summary(every)["success_rate"].isna().all()
    assert lab.summary(every, success_at=1)["success_rate"].isna().all()


def test_a_failed_run_is_unsuccessful_in_a_pair() -> None:
    runs = pd.concat([half_failed(), half_failed(terminated=[True] * 60, score=[True] * 60, stop_reason=["completed"] * 60)])
    runs = runs.assign(provider=["a"] * 60 + ["b"] * 60, run_id=range(120))

    row = row_of(lab.paired(runs, "score"))
    assert (row["pairs"], row["difference"], row["failed"]) == (60, 0.5, 30)
    row = row_of(lab.paired(runs, "score", failures="leave_out"))
    assert (row["pairs"], row["left_out"], row["difference"], row["failed"]) == (30, 30, 0, 30)


def test_live_and_replayed_runs_can_be_distinguished() -> None:
    runs = runs_of(["a"] * 5 + ["b"] * 5 + ["c"] * 2, replayed=[True, True, False, False, None] + [True] * 5 + [None] * 2)
    table = lab.summary(runs)

    assert [None if pd.isna(number) else number for number in table["replayed"]] == [2, 5, None]
    assert table["mixed"].fillna("").tolist() == ["2 of 4 runs are replays of recordings, the others ran live", "", ""]
    paired = lab.paired(runs.assign(prompt_id=["p"] * 12, cost_usd=1.0), "cost_usd", against="b")
    assert paired["mixed"].iloc[0] == "7 of 9 runs are replays of recordings, the others ran live"


def test_plots_report_excluded_runs_beside_their_points() -> None:
    ax = lab.plots.estimates(half_failed(prompt_id=[f"p{place % 12}" for place in range(60)]), "success")
    assert [text.get_text() for text in ax.texts] == ["30 of 60 runs\n12 independent, 30 failed"]
    assert "60 runs, 12 independent, 30 failed" in ax.alt  # type: ignore[attr-defined]

    ax = lab.plots.cost_success(half_failed(score=[True, False] * 30))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a\ncost known for 30 of 60 runs\n30 failed"]
    assert "cost known for 30 of 60 runs, 30 failed" in ax.alt  # type: ignore[attr-defined]

    ax = lab.plots.cost_success(half_failed(score=[True, False] * 30, prompt_id=["p"] * 60))
    assert "60 runs, 1 independent" in ax.get_legend().get_texts()[0].get_text()
