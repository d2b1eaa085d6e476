"""pass@k and pass^k against the enumeration of all subsets, and which runs count."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentlab as lab
from agentlab.analysis.passes import chances
from agentlab.errors import ConfigurationError


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_the_chances_are_those_of_all_subsets(case: tuple[int, int, int]) -> None:
    runs, successes, k = case
    drawn = [*combinations([True] * successes + [False] * (runs - successes), k)]
    for every, what in ((False, any), (True, all)):
        assert chances([runs], [successes], k, every=every)[0] == pytest.approx(sum(map(what, drawn)) / len(drawn))


def frame(rows: list[tuple[str, str | None, Any, str]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["agent", "prompt_id", "score", "stop_reason"])


def test_figures_are_means_over_tasks() -> None:
    rows = [
        ("a", task, score, "completed") for task, scores in (("x", (1, 0, 0)), ("y", (1, 1, 0)), ("z", (1,))) for score in scores
    ]
    rows += [("b", "x", None, "error"), ("b", "x", 1, "completed"), ("b", "x", None, "completed"), ("b", "y", 0.5, "completed")]
    found = lab.pass_at_k(frame(rows), k=(1, 2), success_at=1)
    assert found[["agent", "k", "tasks", "runs", "too_few_runs", "unknown"]].to_numpy().tolist() == [
        ["a", 1, 3, 7, 0, 0], ["a", 2, 2, 6, 1, 0], ["b", 1, 2, 3, 0, 1], ["b", 2, 1, 2, 1, 1],
    ]  # fmt: skip
    assert found["pass_at_k"].to_list() == pytest.approx([(1 / 3 + 2 / 3 + 1) / 3, (2 / 3 + 1) / 2, 0.25, 1])
    assert found["pass_hat_k"].to_list() == pytest.approx([(1 / 3 + 2 / 3 + 1) / 3, (0 + 1 / 3) / 2, 0.25, 0])
    assert found["no_interval"].notna().all()


def test_the_interval_counts_tasks() -> None:
    rows = [("a", f"t{n}", int((n + repeat) % 3 == 0), "completed") for n in range(30) for repeat in range(4)]
    one = lab.pass_at_k(frame(rows), k=2).iloc[0]
    assert one["units"] == one["tasks"] == 30
    assert 0 <= one["pass_at_low"] < one["pass_at_k"] < one["pass_at_high"] <= 1
    assert one["method"] == "t or Hall"


def test_one_run_per_task_has_the_interval_of_a_share() -> None:
    runs = frame([("a", f"t{n}", int(n < 3), "completed") for n in range(10)])
    one, share = (
        lab.pass_at_k(runs).iloc[0],
        lab.summary(runs.assign(terminated=True, total_tokens=1, cost_usd=1), by="agent").iloc[0],
    )
    assert (one["pass_at_low"], one["pass_at_high"]) == (share["success_low"], share["success_high"])
    assert one["method"] == "Clopper-Pearson"


def test_runs_of_unknown_tasks_are_left_out_and_counted() -> None:
    runs = frame([("a", "x", 1, "completed"), ("a", None, 0, "completed"), ("a", None, 0, "completed")])
    one = lab.pass_at_k(runs).iloc[0]
    assert (one["pass_at_k"], one["tasks"], one["runs"], one["unknown"]) == (1, 1, 1, 2)


@pytest.mark.parametrize("k", [0, True, 1.5, ()])
def test_an_invalid_k_is_refused(k: Any) -> None:
    with pytest.raises(ConfigurationError, match="pass a whole number of at least 1"):
        lab.pass_at_k(frame([("a", "x", 1, "completed")]), k=k)
