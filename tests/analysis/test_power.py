"""The power of a comparison, against simulated studies and statsmodels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

import agentlab as lab
from agentlab.errors import ConfigurationError


def test_studies_of_that_size_find_the_difference_that_often() -> None:
    needed = lab.power(spread=0.4, difference=0.2, power=0.8)
    random = np.random.default_rng(1)
    drawn = random.normal(0.2, 0.4, size=(4000, needed.tasks))
    found = (stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05).mean()
    assert found == pytest.approx(0.8, abs=0.03)


def test_studies_with_yes_or_no_scores_of_that_size_find_the_difference_that_often() -> None:
    """Pairs differ in 30 of 100 tasks, 20 for one agent and 10 for the other; McNemar's exact test is a bit stricter than t."""
    needed = lab.power(spread=np.sqrt(0.3 - 0.1**2), difference=0.1, power=0.8)
    random = np.random.default_rng(1)
    counts = random.multinomial(needed.tasks, [0.2, 0.1, 0.7], size=2000)
    t = (counts[:, 0] - counts[:, 1]) / np.sqrt(counts[:, :2].sum(axis=1) - (counts[:, 0] - counts[:, 1]) ** 2 / needed.tasks)
    assert (t > stats.norm.ppf(0.975)).mean() == pytest.approx(0.8, abs=0.03)
    exact = [stats.binomtest(more, more + fewer).pvalue < 0.05 for more, fewer, _ in counts[:500].tolist()]
    assert np.mean(exact) == pytest.approx(0.77, abs=0.06)


def test_tasks_and_difference_are_each_others_answer() -> None:
    needed = lab.power(spread=0.4, difference=0.1)
    assert TTestPower().power(0.25, needed.tasks, 0.05) >= 0.8 > TTestPower().power(0.25, needed.tasks - 1, 0.05)
    assert lab.power(spread=0.4, tasks=needed.tasks).difference == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("tasks", [5, 10, 24, 50, 250])
@pytest.mark.parametrize(("level", "power"), [(0.95, 0.8), (0.9, 0.9), (0.99, 0.8)])
def test_it_is_the_answer_of_statsmodels_where_that_has_one(tasks: int, level: float, power: float) -> None:
    theirs = TTestPower().solve_power(nobs=tasks, alpha=1 - level, power=power)
    assert lab.power(spread=1, tasks=tasks, level=level, power=power).difference == pytest.approx(theirs, rel=1e-3)
    assert lab.power(spread=1, difference=theirs * 1.001, level=level, power=power).tasks == tasks


@pytest.mark.parametrize(("tasks", "level", "power"), [(992, 0.95, 0.8), (4, 0.99, 0.9), (60, 0.99, 0.8), (2, 0.999, 0.99)])
def test_simulated_studies_find_the_difference_where_statsmodels_has_no_answer(tasks: int, level: float, power: float) -> None:
    difference = lab.power(spread=1, tasks=tasks, level=level, power=power).difference
    drawn = np.random.default_rng(1).normal(difference, 1, size=(4000, tasks))
    found = (stats.ttest_1samp(drawn, 0, axis=1).pvalue < 1 - level).mean()
    assert found == pytest.approx(power, abs=0.03)
    assert lab.power(spread=1, difference=difference * 1.0001, level=level, power=power).tasks == tasks


def test_numbers_of_numpy_are_numbers_and_the_text_has_the_exact_level() -> None:
    assert repr(lab.power(spread=0.5, tasks=np.int64(30))).startswith("Power(30 tasks for a difference of 0.265")
    assert lab.power(spread=1, difference=np.float32(0.5)).tasks == lab.power(spread=1, difference=0.5).tasks
    assert "found in 99.5% of studies at 99.9%, if" in repr(lab.power(spread=0.5, difference=0.2, level=0.999, power=0.995))


def test_the_spread_is_that_of_the_differences_per_task() -> None:
    random = np.random.default_rng(2)
    rows = [
        {"agent": agent, "prompt_id": f"t{task}", "score": float(random.random() < rate), "stop_reason": "completed"}
        for task in range(40)
        for agent, rate in (("a", 0.4), ("b", 0.6))
        for _ in range(3)
    ]
    runs = pd.DataFrame(rows)
    means = runs.groupby(["prompt_id", "agent"])["score"].mean().unstack()
    found = lab.power(runs)
    assert found.spread == pytest.approx((means["a"] - means["b"]).std(ddof=1))
    assert (found.tasks, found.pilot_tasks) == (40, 40)
    assert lab.power(runs, tasks=160).difference == pytest.approx(found.difference / 2, rel=0.05)
    assert "estimated from 40 tasks" in repr(found)


@pytest.mark.parametrize(("difference", "power", "tasks"), [(10, 0.8, 2), (5, 0.8, 3), (0.01, 0.04, 2)])
def test_a_large_difference_and_a_low_power_need_few_tasks(difference: float, power: float, tasks: int) -> None:
    assert lab.power(spread=0.5, difference=difference, power=power).tasks == tasks


def test_a_run_of_an_unknown_task_has_no_partner() -> None:
    known = pd.DataFrame({"agent": ["a"] * 6 + ["b"] * 6, "prompt_id": [*"uvwxyz"] * 2, "score": [1, 0, 1, 1, 0, 1] + [0] * 6})
    more = pd.concat([known, known.assign(prompt_id=None, score=1)])
    assert lab.power(more, difference=0.2).spread == lab.power(known, difference=0.2).spread


def test_invalid_questions_are_refused() -> None:
    few = pd.DataFrame({"agent": [*"aabb"], "prompt_id": [*"xyxy"], "score": [1, 0, 0, 1]})
    alike = pd.DataFrame({"agent": ["a"] * 6 + ["b"] * 6, "prompt_id": [*"uvwxyz"] * 2, "score": [0.7] * 6 + [0.4] * 6})
    same = alike.assign(score=[1] * 6 + [0] * 6)
    for ask, message in (
        (lambda: lab.power(same), "differ by the same 'score' on each of 6 tasks"),
        (lambda: lab.power(alike, difference=0.2), "differ by the same 'score' on each of 6 tasks.*such as spread=0.5"),
        (lambda: lab.power(few), "no two groups of agent with 'score' on 5 common tasks"),
        (lab.power, "pass runs of at least two groups"),
        (lambda: lab.power(spread=0.5), "pass the number of tasks"),
        (lambda: lab.power(spread=0.5, tasks=5, difference=0.1), "Pass difference or tasks"),
        (lambda: lab.power(spread=0.5, difference=0), "difference=0: pass a number other than 0"),
        (lambda: lab.power(spread=0.5, difference="10%"), "difference='10%': pass a number"),  # type: ignore[arg-type]
        (lambda: lab.power(spread=0.5, difference=0.1, power=80), "power=80"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            ask()  # type: ignore[no-untyped-call]
