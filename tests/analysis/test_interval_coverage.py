"""How often 95 % intervals contain the true value in simulated samples; the full tables are in `tests.benchmarks`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import agentlab as lab
from tests.benchmarks.coverage import Intervals, covered, experiments, of_groups, of_pairs
from tests.benchmarks.interval_coverage import CASES, CHANGES, RATES, enumerated_change, enumerated_share, simulated

EXACT = ("share", "change", "kappa", "agreement", "survival", "score", "pass", "difference of repeated", "median: steps")
"""Intervals that may contain the value more often than 97 times in 100, since few answers are possible, or few units differ."""


@pytest.mark.parametrize("units", [5, 10, 30, 100])
def test_intervals_of_shares_contain_them_at_least_as_often_as_they_say(units: int) -> None:
    for rate in (*RATES, 0.99):
        assert enumerated_share(rate, units)[0] >= 0.95


@pytest.mark.parametrize("units", [5, 10, 20])
@pytest.mark.parametrize("chances", CHANGES.values(), ids=CHANGES)
def test_intervals_of_changes_contain_them_in_at_least_93_percent(units: int, chances: tuple[float, float]) -> None:
    assert enumerated_change(*chances, units)[0] >= 0.93


@pytest.mark.parametrize("units", [6, 10, 30])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.hidden])
def test_an_interval_contains_the_true_value_in_93_to_97_percent_or_is_not_offered(name: str, units: int) -> None:
    samples = 80
    share, without = simulated(CASES[name], units, samples)

    if without > 0.9:
        assert units < 20 and name.startswith(("mean", "difference", "score", "pass", "survival"))
        return
    error = 3 * np.sqrt(0.93 * 0.07 / (samples * (1 - without)))
    assert share >= 0.93 - error
    assert share <= 0.97 + error or name.startswith(EXACT)


def test_a_skewed_mean_of_too_few_units_is_not_offered() -> None:
    """With rare expensive runs an interval of so few would contain the mean too rarely, and these samples do not show it."""
    rare = CASES["mean cost: 1 of 20 runs costs 20 times as much"]
    assert simulated(rare, 9, 20) == (pytest.approx(np.nan, nan_ok=True), 1)
    assert simulated(rare, 20, 150)[0] < 0.9
    assert simulated(rare, 200, 150)[0] > 0.9


@pytest.mark.parametrize(
    ("of", "units", "repeats", "studies", "least"),
    [  # with a true coverage of 95 %, fewer than these occur with a probability below 1 in 1,000 per figure
        pytest.param(of_groups, 10, 1, 80, 0.85, id="10 prompts"),
        pytest.param(of_groups, 20, 5, 80, 0.85, id="20 prompts, 5 repeats"),
        pytest.param(of_pairs, 12, 3, 30, 0.8, id="pairs of 12 prompts, 3 repeats"),
    ],
)
def test_intervals_of_whole_comparisons_reach_their_level(
    of: Callable[..., Intervals], units: int, repeats: int, studies: int, least: float
) -> None:
    shares = covered(of(experiments(units, repeats, studies)))

    missing = {name: share for name, (share, without) in shares.items() if share < least or without > 0.2}
    assert not missing, f"{missing}, expected at least {least}"


def test_three_prompts_have_no_interval_at_any_number_of_repeats() -> None:
    runs = experiments(3, 20, 4)

    assert {without for _, without in covered(of_groups(runs) | of_pairs(runs)).values()} == {1.0}


def test_pairs_that_differ_by_chance_rarely_exclude_zero() -> None:
    """For yes-or-no scores: a bootstrap of ten pairs reports a difference in 11.6 % of such experiments."""
    pairs = [lab.paired(study, "score").iloc[0] for _, study in experiments(10, 1, 100, seed=3).groupby("study")]

    assert sum(row["low"] > 0 or row["high"] < 0 for row in pairs) <= 0.05 * len(pairs)
