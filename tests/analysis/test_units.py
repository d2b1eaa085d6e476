"""Dependent runs: repeats of a prompt and replays of a recording count as one unit, in intervals and in folds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import MaxTokensUsed, StepCountIs, suggest
from agentlab.analysis import backtest as frames
from agentlab.analysis.intervals import of_mean, of_share
from agentlab.analysis.records import folds_of, units_of
from agentlab.model.finish_reasons import StopReason
from agentlab.testing import call, say

from .builders import run
from .run_builders import drawn, steps_of


def about(**columns: Any) -> pd.DataFrame:
    rows = len(next(iter(columns.values())))
    return pd.DataFrame({"run_id": [f"r{place}" for place in range(rows)], **columns})


@pytest.mark.parametrize(
    ("runs", "what", "of"),
    [
        (about(prompt_id=["a", "b", "a"]), "prompt", [0, 1, 0]),
        (about(prompt_id=["a", "b", "c"], recording_id=["x", "y", "x"]), "prompt", [0, 1, 0]),
        (about(prompt_id=["a", "b", "b", "c"], recording_id=["x", "x", "y", "z"]), "prompt", [0, 0, 0, 1]),
        (about(prompt_id=["a"] * 5, recording_id=["x", "y", "x", None, None]), "recording", [0, 1, 0, 2, 3]),
        (about(recording_id=["x", "y", "x"]), "recording", [0, 1, 0]),
        (about(prompt=["a", "b", "a"], recording_id=[None] * 3), "prompt", [0, 1, 0]),
        (about(prompt=["a", "a", "a"]), "run", [0, 1, 2]),
        (about(provider=["x", "x", "x"]), "run", [0, 1, 2]),
    ],
)
def test_runs_are_joined_by_prompt_and_by_recording(runs: pd.DataFrame, what: str, of: list[int]) -> None:
    units = units_of(runs)
    assert (units.what, units.of.tolist()) == (what, of)
    assert (units.codes is None) == (len(set(of)) == len(of))


def replayed(lengths: list[int], times: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Recordings of the given numbers of steps, each replayed several times to its own end: steps and runs."""
    steps = steps_of(lengths * times, [True] * len(lengths) * times)
    ids = steps["run_id"].unique()
    recordings = [f"h{place}" for place in range(len(lengths))] * times
    return steps, pd.DataFrame({"run_id": ids, "recording_id": recordings, "terminated": True, "stop_reason": "completed"})


def test_replays_of_three_recordings_are_three_units() -> None:
    steps, runs = replayed([3, 5, 8], 12)
    tried = lab.backtest(steps, StepCountIs([4, 9]), runs=runs)

    assert tried["units"].tolist() == [3, 3] and tried["runs"].tolist() == [36, 36]
    assert tried[["success_low", "cost_low", "tokens_high", "step_low"]].isna().all(axis=None)
    found = suggest(steps, StepCountIs([4, 9]), runs=runs)
    assert not found and found.units == 3
    assert "not independent. A suggestion needs 5 recordings: record the task again." in found.why[0]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(5, 30))
def test_no_fold_divides_a_unit(seed: int, folds: int, recordings: int) -> None:
    random = np.random.default_rng(seed)
    runs = about(
        prompt_id=random.integers(0, 40, 80).astype(str),
        recording_id=[f"h{one}" if one else None for one in random.integers(0, recordings, 80)],
    )
    units, won = units_of(runs), random.random(80) < 0.5
    fold = pd.Series(folds_of(units, won, folds))

    assert (fold.groupby(runs["prompt_id"]).nunique() == 1).all()
    assert (fold.groupby(runs["recording_id"]).nunique() == 1).all()


@pytest.mark.parametrize("at_once", [7, 10_000])
@pytest.mark.parametrize("by", [None, "model"])
@pytest.mark.parametrize("clustered", [True, False])
def test_the_intervals_equal_those_of_a_comparison(
    monkeypatch: pytest.MonkeyPatch, at_once: int, by: str | None, clustered: bool
) -> None:
    monkeypatch.setattr(frames, "MAX_RUNS_PER_PART", at_once)
    monkeypatch.setattr(frames, "MAX_FIRST_ROWS", at_once)
    steps = drawn(np.random.default_rng(3), 1_600 if at_once == 7 else 150, prompts=12 if clustered else None)
    places = steps["run_id"].str[1:].astype(int)
    steps = steps.assign(model=np.where(places % 3 == 0, "a", "b"))
    steps.loc[places % 11 == 0, ["cost_usd"]] = pd.NA
    grid = StepCountIs([2, 25]) | MaxTokensUsed([3_000, 10**6])
    table = lab.backtest(steps, grid, by=by)
    by_run = lab.backtest(steps, grid, per="run", by=by)
    names = steps.drop_duplicates("run_id").set_index("run_id")
    for _, row in table.iterrows():
        mine = by_run[(by_run["StepCountIs"] == row["StepCountIs"]) & (by_run["MaxTokensUsed"] == row["MaxTokensUsed"])]
        mine = mine if by is None else mine[mine["model"] == row["model"]]
        prompts = names.loc[mine["run_id"], "prompt_id"].to_numpy() if clustered else mine["run_id"].to_numpy()
        assert row["units"] == len(set(prompts))
        known = mine["goal_reached"].notna().to_numpy()
        success = of_share(mine["goal_reached"][known].astype(float), prompts[known])
        assert (row["success_low"], row["success_high"]) == (pytest.approx(success.low), pytest.approx(success.high))
        for stem, column in (("tokens", "tokens"), ("cost", "cost_usd"), ("calls", "calls"), ("step", "step")):
            known = mine[column].notna().to_numpy()
            expected = of_mean(mine[column][known].astype(float), prompts[known], least=0.0)
            if expected.low is None or expected.high is None:
                assert pd.isna(row[f"{stem}_low"]) and pd.isna(row[f"{stem}_high"])
            else:
                assert row[f"{stem}_low"] == pytest.approx(expected.low, rel=1e-6)
                assert row[f"{stem}_high"] == pytest.approx(expected.high, rel=1e-6)


def test_a_run_that_ended_in_an_error_has_not_reached_its_goal() -> None:
    steps = steps_of([2] * 10, [True] * 10)
    last = steps["step"] == 2
    failed = steps["run_id"].isin(["r00000", "r00001", "r00002"])
    steps.loc[last & failed, ["stop_reason", "action", "error"]] = [StopReason.ERROR, "abort", "ProviderConnectionError: gone"]
    scores = pd.Series({run_id: None if wrong else 1 for run_id, wrong in zip(steps["run_id"], failed, strict=True)})

    row = lab.backtest(steps, StepCountIs(5), goal=scores).iloc[0]
    assert (row["finished"], row["success_rate"], row["success_unknown"]) == (10, 0.7, 0.0)
    assert lab.backtest(steps, StepCountIs(5)).iloc[0]["success_rate"] == 0.7
    found = suggest(steps, StepCountIs([2, 5]), goal=scores, cost="steps")
    assert found.successes == 7
    assert "3 of 10 runs ended in an error: they did not reach the goal, and their cost counts where it is known." in found.why


def test_replays_of_a_fixture_are_one_unit() -> None:
    async def main() -> list[lab.RunResult]:
        agent = lab.Agent("openai:gpt-5.4-mini", tools=[search_lost_property], instructions=OFFICE)
        results = []
        for steps in (2, 3, 4, 5, 6, 7):
            with lab.replay(RUNAWAY):
                results.append(await agent.run(LOST, stop=StepCountIs(steps)))
        return results

    results = asyncio.run(main())
    assert [len(result.history) for result in results] == [2, 3, 4, 5, 6, 7]
    row = lab.backtest(results, StepCountIs(2)).iloc[0]
    assert (row["runs"], row["units"]) == (6, 1) and row[["cost_low", "success_low"]].isna().all()
    alone = [run([call("look", {}), say("done")]) for _ in range(6)]
    assert lab.backtest(alone, StepCountIs(5))["units"].tolist() == [6], "a scripted model has no recording"


RUNAWAY = Path(__file__).parents[2] / "fixtures" / "runaway"
OFFICE = "You work at the railway's lost property office. Do not give up easily."
LOST = "I left a green umbrella on the train from Graz to Vienna. Please find it."


def search_lost_property(words: str) -> str:
    """Search the railway's lost property office.

    Args:
        words: what to search for
    """
    return f"Nothing fits {words!r}. Nearby: blue umbrella (Linz), green scarf (Graz), black umbrella (Vienna)."
