"""Intervals, against tables, scipy and each other."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agentlab import errors
from agentlab.comparing.agreements import cohen, fleiss
from agentlab.comparing.intervals import FEWEST, checked_level, kaplan_meier, of_mean, of_median, of_ratio, percentile, wilson

numbers = st.lists(st.floats(0, 1e6), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("successes", "of", "low", "high"),
    [  # R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        pytest.param(81, 263, 0.2553, 0.3662, id="81 of 263"),
        pytest.param(15, 148, 0.0624, 0.1605, id="15 of 148"),
        pytest.param(0, 20, 0.0000, 0.1611, id="0 of 20"),
        pytest.param(1, 29, 0.0061, 0.1718, id="1 of 29"),
    ],
)
def test_wilson_gives_what_the_tables_have(successes: int, of: int, low: float, high: float) -> None:
    found = wilson(successes, of)

    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
    assert found.value == successes / of


@given(st.integers(1, 500).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_agrees_with_scipy_and_contains_the_share(counts: tuple[int, int], level: float) -> None:
    found = wilson(*counts, level=level)
    theirs = stats.binomtest(*counts).proportion_ci(level, method="wilson")

    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_a_share_of_nothing_is_unknown() -> None:
    found = wilson(0, 0)

    assert (found.value, found.low, found.high, found.why) == (None, None, None, "none known")


@settings(deadline=None, max_examples=60)
@given(numbers, st.randoms(use_true_random=False))
def test_a_bootstrap_interval_contains_its_estimate_whatever_the_order(values: list[float], rng: random.Random) -> None:
    mixed = rng.sample(values, len(values))
    for estimate in (of_mean, of_median):
        found = estimate(values)
        assert found == estimate(mixed)
        assert found.known == len(values)
        assert (found.low is None) == (found.high is None) == (found.why is not None)
        if found.low is not None and found.high is not None and found.value is not None:
            assert min(values) - 1e-6 <= found.low <= found.value <= found.high <= max(values) * (1 + 1e-9) + 1e-6


def test_the_mean_s_interval_is_scipy_s() -> None:
    values = np.sort(np.random.default_rng(3).lognormal(size=25))
    theirs = stats.bootstrap((values,), np.mean, n_resamples=9_999, rng=np.random.default_rng(7)).confidence_interval

    found = of_mean(values)

    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=0.03)


def test_a_wider_level_gives_a_wider_interval() -> None:
    values = [1.0, 2, 4, 8, 16, 32, 64]
    narrow, wide = of_mean(values, level=0.8), of_mean(values, level=0.99)

    assert wide.low < narrow.low < narrow.high < wide.high  # type: ignore[operator]


@pytest.mark.parametrize(
    ("values", "value", "why"),
    [
        pytest.param([], None, "none known", id="nothing"),
        pytest.param([3.0], 3.0, "only one known, an interval takes 5", id="one"),
        pytest.param([1.0, 2, 3, 4], 2.5, "only 4 known, an interval takes 5", id="one too few"),
        pytest.param([0.1] * 7, 0.1, "all 7 values are the same", id="all the same"),
    ],
)
def test_an_interval_that_cannot_be_made_says_why(values: list[float], value: float | None, why: str) -> None:
    for estimate in (of_mean, of_median):
        found = estimate(values)
        assert (found.value, found.low, found.high, found.why) == (value, None, None, why)


def test_the_fewest_values_give_an_interval() -> None:
    found = of_mean([1.0, 2, 3, 4, 5][:FEWEST])

    assert found.why is None
    assert found.low is not None and 1 <= found.low < 3


@pytest.mark.parametrize("level", [0, 1, -0.1, 95, "0.9", True, math.nan])
def test_a_level_that_is_none_is_an_error(level: object) -> None:
    with pytest.raises(errors.ConfigurationError, match="pass a number between 0 and 1"):
        checked_level(level)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_a_ratio_is_that_of_the_sums_whatever_the_order_of_units(units: list[tuple[int, int]], rng: random.Random) -> None:
    found = of_ratio(*zip(*units, strict=True))

    assert found == of_ratio(*zip(*rng.sample(units, len(units)), strict=True))
    counted = [unit for unit in units if unit[1]]
    assert found.known == len(counted)
    if counted:
        assert found.value == pytest.approx(sum(above for above, _ in counted) / sum(below for _, below in counted))
    if found.low is not None and found.high is not None and found.value is not None:
        assert found.low <= found.value <= found.high


def test_a_ratio_with_one_below_each_is_a_mean() -> None:
    values = np.random.default_rng(3).normal(size=40)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=9_999, method="percentile", rng=np.random.default_rng(7))

    found = of_ratio(values, np.ones(40))

    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval), abs=0.02)


def test_a_ratio_of_few_units_or_of_nothing_says_why_it_has_no_interval() -> None:
    assert of_ratio([], []).why == of_ratio([1], [0]).why == "none known"
    assert of_ratio([1, 2, 3, 4], [2, 2, 4, 5]).why == "only 4 known, an interval takes 5"
    assert of_ratio([1] * 9, [2] * 9).why == "all 9 are the same"


# Kappa -----------------------------------------------------------------------------------------------------------------------

FLEISS_1971 = [  # Fleiss, Levin and Paik: 14 raters, 10 subjects, 5 categories; kappa 0.210
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip


def test_fleiss_kappa_of_the_known_example() -> None:
    chosen = np.array([[np.eye(5)[place] for place, count in enumerate(row) for _ in range(count)] for row in FLEISS_1971])

    assert fleiss(chosen, np.ones((1, 10)))[0] == pytest.approx(0.210, abs=5e-4)


def test_cohen_s_kappa_by_hand() -> None:
    # 20 both yes, 15 both no, 5 and 10 apart: observed 0.7, expected 0.5, kappa 0.4
    pairs = [(0, 0)] * 20 + [(0, 1)] * 5 + [(1, 0)] * 10 + [(1, 1)] * 15

    assert cohen(np.eye(2)[np.array(pairs)], np.ones((1, 50)))[0] == pytest.approx(0.4)


def test_resamples_on_which_it_is_not_defined_are_too_many() -> None:
    drawn = np.array([0.5] * 90 + [math.nan] * 10)

    assert percentile(0.5, drawn, 10).why == "not defined on too many resamples: nearly all are the same"
    assert percentile(0.5, np.linspace(0, 1, 101), 10, level=0.9).low == pytest.approx(0.05)


# Survival --------------------------------------------------------------------------------------------------------------------


def test_kaplan_meier_of_the_known_example() -> None:
    # Remission of leukaemia with 6-MP, E. J. Freireich and others, Blood 21 (1963)
    ended = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    cut = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    found = kaplan_meier(ended + cut, [True] * 9 + [False] * 12)

    alive = dict(zip(found.times, found.alive, strict=True))
    assert [alive[time] for time in (6, 7, 10, 13, 16, 22, 23)] == pytest.approx(
        [0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482], abs=5e-5
    )
    at = found.times.index(6)
    assert (found.low[at], found.high[at]) == pytest.approx((0.6197, 0.9516), abs=5e-4)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=30))
def test_a_survival_curve_falls_and_lies_in_its_interval(runs: list[tuple[int, bool]]) -> None:
    found = kaplan_meier([time for time, _ in runs], [end for _, end in runs])

    assert all(0 <= after <= before <= 1 for before, after in zip((1.0, *found.alive), found.alive, strict=False))
    for low, alive, high in zip(found.low, found.alive, found.high, strict=True):
        assert (low is None or low <= alive + 1e-9) and (high is None or alive <= high + 1e-9)
    if all(end for _, end in runs):  # then it is the plain share
        assert list(found.alive) == pytest.approx([sum(t > time for t, _ in runs) / len(runs) for time in found.times])


def test_no_runs_no_curve() -> None:
    assert kaplan_meier([], []).times == ()


NO_SCIPY = """
import sys
sys.modules["scipy"] = None
import agentlab as lab, pandas as pd
from agentlab.comparing.intervals import of_mean, wilson
assert wilson(1, 2).value == 0.5
try:
    of_mean([1, 2, 3, 4, 5])
except lab.errors.ConfigurationError as error:
    print(error)
"""


def test_without_scipy_the_error_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", NO_SCIPY], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == (
        "Bootstrap intervals need the package scipy: pip install 'agentlab-jupyter[stats]'.\n",
        "",
    )
