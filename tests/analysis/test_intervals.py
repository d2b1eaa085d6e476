"""Intervals, against tables, scipy and each other."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import agentlab as lab
from agentlab import errors
from agentlab.analysis.intervals import (
    MEAN_UNITS,
    MEDIAN_UNITS,
    MIN_UNITS,
    Estimate,
    checked_level,
    kaplan_meier,
    mcnemar,
    of_change,
    of_mean,
    of_median,
    of_share,
    share_ends,
)

from .frame_builders import crossed, runs_of

numbers = st.lists(st.floats(0, 1e6), min_size=1, max_size=30)


def exact(successes: float, of: int, *, level: float = 0.95) -> Estimate:
    """The interval of a share of independent answers, also for sample sizes that get no interval elsewhere."""
    low, high = map(float, share_ends(successes / of, of, level))
    return Estimate(successes / of, low, high, of, units=of)


@pytest.mark.parametrize(
    ("successes", "of", "low", "high"),
    [  # R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 5
        pytest.param(81, 263, 0.2527, 0.3676, id="81 of 263"),
        pytest.param(15, 148, 0.0578, 0.1617, id="15 of 148"),
        pytest.param(0, 20, 0.0000, 0.1684, id="0 of 20"),
        pytest.param(1, 29, 0.0009, 0.1776, id="1 of 29"),
    ],
)
def test_exact_intervals_equal_published_tables(successes: int, of: int, low: float, high: float) -> None:
    found = exact(successes, of)

    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
    assert found.value == pytest.approx(successes / of)


@given(st.integers(1, 500).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))), st.sampled_from([0.8, 0.95, 0.99]))
def test_exact_intervals_agree_with_scipy_and_contain_the_share(counts: tuple[int, int], level: float) -> None:
    found = exact(*counts, level=level)
    theirs = stats.binomtest(*counts).proportion_ci(level, method="exact")

    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_a_share_of_no_answers_is_unknown() -> None:
    found = of_share([])

    assert (found.value, found.low, found.high, found.why) == (None, None, None, "none known")


answers = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 8)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=60)
@given(answers, st.randoms(use_true_random=False))
def test_an_interval_contains_its_estimate_in_any_order_of_values_and_units(
    rows: list[tuple[float, int]], rng: random.Random
) -> None:
    mixed = [(value, -unit) for value, unit in rng.sample(rows, len(rows))]
    for estimate in (of_share, of_mean, of_median):
        found = estimate(*map(list, zip(*rows, strict=True)))
        assert found == estimate(*map(list, zip(*mixed, strict=True)))
        assert (found.known, found.units) == (len(rows), len({unit for _, unit in rows}))
        assert (found.low is None) == (found.high is None) == (found.why is not None)
        if found.low is not None and found.high is not None and found.value is not None:
            assert found.low <= found.value <= found.high


@given(numbers)
def test_means_of_nonnegative_values_and_medians_stay_within_range(values: list[float]) -> None:
    mean, median = of_mean(values, least=0.0), of_median(values)

    assert mean.low is None or mean.low >= 0
    assert median.low is None or min(values) <= median.low <= median.high <= max(values)  # type: ignore[operator]


def clustered(repeats: int, units: int = 12) -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    values = np.repeat(random.normal(size=units), repeats) + random.normal(size=units * repeats)
    return values, np.repeat(np.arange(units), repeats)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("repeats", [1, 4])
def test_the_interval_of_a_mean_is_students_over_unit_sums_and_wider_on_the_longer_side(repeats: int, level: float) -> None:
    values, units = clustered(repeats)
    means = values.reshape(12, repeats).mean(axis=1)
    theirs = stats.ttest_1samp(means, 0).confidence_interval(level)

    found = of_mean(values, units, level=level)

    assert found.value == pytest.approx(means.mean())
    outside = (theirs.low - found.low, found.high - theirs.high)  # type: ignore[operator]
    assert min(outside) == pytest.approx(0, abs=1e-9) and max(outside) > 0
    longer = "high" if stats.skew(means) > 0 else "low"
    assert max(outside) == outside[longer == "high"]


def test_units_of_different_sizes_have_the_error_of_a_ratio() -> None:
    values, units = clustered(6)
    kept = np.random.default_rng(5).random(len(values)) < 0.6
    values, units = values[kept], units[kept]
    errors = [sum(v - values.mean() for v, u in zip(values, units, strict=True) if u == unit) for unit in range(12)]
    error = math.sqrt(12 / 11 * sum(e * e for e in errors)) / len(values)

    found = of_mean(values, units)

    sizes = np.bincount(units)
    effective = sizes.sum() ** 2 / (sizes**2).sum()
    assert 9 < effective < 12 and found.error == pytest.approx(error)
    half = stats.t.ppf(0.975, effective - 1) * error
    assert min(found.value - found.low - half, found.high - found.value - half) == pytest.approx(0, abs=1e-9)  # type: ignore[operator]


def test_units_with_one_answer_each_have_the_exact_interval() -> None:
    found = of_share([1, 1, 0, 1, 0, 1, 1])
    assert (found.value, found.low, found.high) == (exact(5, 7).value, exact(5, 7).low, exact(5, 7).high)


def test_a_share_of_consistent_units_is_based_on_the_number_of_units() -> None:
    one, ten = (
        of_share([1, 0, 1, 1, 0, 1]),
        of_share([1] * 10 + [0] * 10 + [1] * 20 + [0] * 10 + [1] * 10, [*np.repeat(range(6), 10)]),
    )

    assert ten.value == one.value
    assert (ten.low, ten.high) == pytest.approx((one.low, one.high))


@pytest.mark.parametrize("number", [5, 10, 20])
@pytest.mark.parametrize("successes", [0.5, 0.8, 1.0])
def test_repeats_of_prompts_never_widen_the_interval_of_a_share(number: int, successes: float) -> None:
    random = np.random.default_rng(number)
    alone = exact(round(number * successes), number)
    for repeats in (2, 5, 20):
        answers = np.arange(number) < round(number * successes)
        same = of_share(np.repeat(answers, repeats), np.repeat(range(number), repeats))
        assert (same.low, same.high) == pytest.approx((alone.low, alone.high))
        varied = np.where(random.random((number, repeats)) < 0.3, 1 - answers[:, None], answers[:, None])
        found = of_share(varied.ravel(), np.repeat(range(number), repeats))
        widest = exact(number / 2, number)
        assert found.high - found.low <= widest.high - widest.low + 1e-9  # type: ignore[operator]


def test_one_prompt_with_nearly_all_runs_does_not_narrow_the_interval() -> None:
    """One of five prompts was asked 96 times: the other four do not make it five independent answers."""
    units = [0] * 96 + [1, 2, 3, 4]
    found = of_share([1] * 100, units)
    assert found.units == 5
    assert found.low == pytest.approx(exact(1, 1).low, abs=0.03)


@pytest.mark.parametrize("number", [6, 10, 25, 60])
def test_a_median_lies_between_binomial_ranks(number: int) -> None:
    found = of_median(range(1, number + 1))
    rank = int(found.low)  # type: ignore[arg-type]
    assert found.low + found.high == pytest.approx(number + 1)  # type: ignore[operator]
    below, above = (2 * stats.binom.cdf(one - 1, number, 0.5) for one in (rank, rank + 1))
    assert below < 0.053 and above > 0.05  # the chance that the median is outside of the ranks below and above


def test_a_higher_level_gives_a_wider_interval() -> None:
    values = [1.0, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    narrow, wide = of_mean(values, level=0.8), of_mean(values, level=0.99)

    assert wide.low < narrow.low < narrow.high < wide.high  # type: ignore[operator]


# Differences of yes-or-no answers ------------------------------------------------------------------------------------------------

counts = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 60)).filter(lambda three: sum(three) >= MIN_UNITS)


def changes(more: int, fewer: int, same: int, level: float = 0.95) -> Estimate:
    return of_change([1] * more + [-1] * fewer + [0] * same, level=level)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemars_exact_test_equals_scipys(more: int, fewer: int) -> None:
    assert mcnemar(more, fewer) == pytest.approx(stats.binomtest(more, more + fewer).pvalue if more + fewer else 1)


@given(counts, st.sampled_from([0.8, 0.95, 0.99]))
def test_a_change_excludes_zero_only_if_mcnemars_test_does_and_reverses_its_sign(
    given: tuple[int, int, int], level: float
) -> None:
    more, fewer, same = given
    found, other = changes(more, fewer, same, level), changes(fewer, more, same, level)

    assert found.value == pytest.approx((more - fewer) / sum(given))
    assert -1 <= found.low <= found.value <= found.high <= 1  # type: ignore[operator]
    assert (found.low, found.high) == pytest.approx((-other.high, -other.low), abs=1e-9)  # type: ignore[operator]
    if found.low > 1e-12 or found.high < -1e-12:  # type: ignore[operator]
        assert stats.binomtest(more, more + fewer).pvalue <= 1 - level


@pytest.mark.parametrize(("more", "fewer", "same"), [(0, 1, 43), (12, 2, 16), (21, 9, 70), (1, 9, 2)])
def test_a_change_has_tangos_interval(more: int, fewer: int, same: int) -> None:
    found, number = changes(more, fewer, same), more + fewer + same

    def score(change: float) -> float:  # with the rarer share at its maximum likelihood for this difference, found on a grid
        grid = np.linspace(max(0.0, -change), (1 - change) / 2, 200_001)[1:-1]
        likely = more * np.log(grid + change) + fewer * np.log(grid) + same * np.log(1 - 2 * grid - change)
        rare = grid[int(np.argmax(likely))]
        return (more - fewer - number * change) / math.sqrt(number * (2 * rare + change - change**2))

    assert score(found.low) == pytest.approx(stats.norm.ppf(0.975), abs=1e-3)  # type: ignore[arg-type]
    assert score(found.high) == pytest.approx(-stats.norm.ppf(0.975), abs=1e-3)  # type: ignore[arg-type]


def test_zero_is_inside_if_tango_and_mcnemar_disagree() -> None:
    # Tango's interval alone starts above 0; five pairs differ like this by chance with probability 1 in 16
    found = changes(5, 0, 5)

    assert (found.low, mcnemar(5, 0)) == (0, 0.0625)
    assert found.high > 0.7  # type: ignore[operator]


# Without an interval ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimate", "needed"), [(of_share, MIN_UNITS), (of_median, MEDIAN_UNITS), (of_mean, MEAN_UNITS), (of_change, MIN_UNITS)]
)
def test_a_missing_interval_says_why(estimate: Callable[..., Estimate], needed: int) -> None:
    values = [1.0, 0.0, 1.0] * needed
    for number, why in ((0, "none known"), (1, f"only one known, an interval needs {needed}")):
        assert (estimate(values[:number]).low, estimate(values[:number]).why) == (None, why)
    found = estimate(values[: needed - 1])
    assert (found.low, found.high, found.why) == (None, None, f"only {needed - 1} known, an interval needs {needed}")
    assert found.value is not None and estimate(values[:needed]).low is not None


def test_equal_values_have_no_interval() -> None:
    for estimate in (of_mean, of_median):
        found = estimate([0.1] * 12)
        assert (found.value, found.low, found.why) == (0.1, None, "all 12 values are the same")


@pytest.mark.parametrize("estimate", [of_share, of_mean, of_median])
def test_many_values_of_few_units_have_no_interval(estimate: Callable[..., Estimate]) -> None:
    needed = {of_share: MIN_UNITS, of_mean: MEAN_UNITS, of_median: MEDIAN_UNITS}[estimate]
    values, units = [0.0, 1, 1] * 20, [*np.repeat(range(4), 15)]

    assert estimate(values, units).why == f"60 values in 4 independent units, an interval needs {needed} units"
    assert estimate(values[:3], [1, 1, 1]).why == f"3 values in 1 independent unit, an interval needs {needed} units"


def test_units_of_very_unequal_size_have_no_interval_of_a_mean() -> None:
    units = [0] * 40 + [*range(1, 20)]
    found = of_mean(np.random.default_rng(1).normal(size=59), units)
    assert found.why == "20 units of unequal size, as precise as 2.2 of equal size, an interval needs 9"
    assert found.low is None and found.error is not None


# Values near their bounds ------------------------------------------------------------------------------------------------------------


def test_a_mean_near_a_bound_has_at_least_the_interval_of_a_share() -> None:
    all_solved, one_half = (of_mean([1.0] * 19 + [last], least=0.0, most=1.0) for last in (1.0, 0.5))
    assert (all_solved.low, all_solved.high) == pytest.approx((exact(20, 20).low, 1))
    assert one_half.low == pytest.approx(stats.beta.ppf(0.025, 19.5, 1.5)) and one_half.high > 0.998  # type: ignore[operator]
    assert one_half.method == "t or Hall or Clopper-Pearson"
    spread = of_mean(np.linspace(0, 1, 20), least=0.0, most=1.0)
    assert spread.method == "t or Hall"


def test_a_difference_that_few_tasks_make_has_the_interval_of_its_two_shares() -> None:
    found = of_mean([0.5, -1 / 3] + [0.0] * 18, least=-1.0, most=1.0)
    more, fewer = 0.025, 1 / 60
    ends = [
        stats.beta.ppf(q, 20 * share + k, 20 * (1 - share) + 1 - k)
        for share in (more, fewer)
        for q, k in ((0.025, 0), (0.975, 1))
    ]
    low = more - fewer - math.hypot(more - ends[0], ends[3] - fewer)
    assert found.low == pytest.approx(low) and found.method == "t or Hall or Clopper-Pearson"
    none = of_mean([0.0] * 20, least=-1.0, most=1.0)
    assert none.high == pytest.approx(exact(0, 20).high) and none.low == -none.high  # type: ignore[operator]


@pytest.mark.parametrize("level", [0, 1, -0.1, 95, "0.9", True, math.nan])
def test_an_invalid_level_is_an_error(level: object) -> None:
    with pytest.raises(errors.ConfigurationError, match="pass a number between 0 and 1"):
        checked_level(level)


# Kappa -----------------------------------------------------------------------------------------------------------------------

FLEISS_1971 = [  # Fleiss, Levin and Paik: 14 raters, 10 subjects, 5 categories; kappa 0.210
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip


def test_fleiss_kappa_of_the_published_example() -> None:
    rated = [[str(place) for place, count in enumerate(row) for _ in range(count)] for row in FLEISS_1971]
    found = lab.agreement(crossed(**{f"rater {number}": [row[number] for row in rated] for number in range(14)}))

    assert found.overall["kappa"].item() == pytest.approx(0.210, abs=5e-4)


def test_cohens_kappa_equals_a_calculation_by_hand() -> None:
    # 20 both yes, 15 both no, 5 and 10 different: observed 0.7, expected 0.5, kappa 0.4
    first, second = ["yes"] * 25 + ["no"] * 25, ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    row = lab.agreement(crossed(a=first, b=second)).pairs.iloc[0]

    share = exact(35, 50)
    assert row["kappa"] == pytest.approx(0.4)
    assert (row["kappa_low"], row["kappa_high"]) == pytest.approx(tuple((end - 0.5) / 0.5 for end in (share.low, share.high)))  # type: ignore[operator]


# Survival --------------------------------------------------------------------------------------------------------------------


def test_kaplan_meier_of_the_published_example() -> None:
    # Remission of leukaemia with 6-MP, E. J. Freireich and others, Blood 21 (1963)
    ended = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    cut = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    found = kaplan_meier(ended + cut, [True] * 9 + [False] * 12)

    alive = dict(zip(found.times, found.alive, strict=True))
    assert [alive[time] for time in (6, 7, 10, 13, 16, 22, 23)] == pytest.approx(
        [0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482], abs=5e-5
    )
    at = found.times.index(6)
    assert (found.low[at], found.high[at]) == pytest.approx((exact(18, 21).low, exact(18, 21).high))  # nobody left before


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=30))
def test_a_survival_curve_falls_and_lies_in_its_interval(runs: list[tuple[int, bool]]) -> None:
    found = kaplan_meier([time for time, _ in runs], [end for _, end in runs])

    assert all(0 <= after <= before <= 1 for before, after in zip((1.0, *found.alive), found.alive, strict=False))
    for low, alive, high in zip(found.low, found.alive, found.high, strict=True):
        assert (low is None or low <= alive + 1e-9) and (high is None or alive <= high + 1e-9)
    if all(end for _, end in runs):  # it is then the plain share
        assert list(found.alive) == pytest.approx([sum(t > time for t, _ in runs) / len(runs) for time in found.times])


def test_no_runs_give_no_curve() -> None:
    assert kaplan_meier([], []).times == ()


@pytest.mark.parametrize("repeats", [1, 5])
def test_the_error_of_a_curve_uses_the_sums_of_units(repeats: int) -> None:
    random = np.random.default_rng(2)
    times = random.integers(1, 9, 12 * repeats)
    units = np.repeat(np.arange(12), repeats)
    found = kaplan_meier([*times], [True] * len(times), units)

    at = found.times.index(4)
    over = (times > 4).astype(float)  # without censoring the curve is a share
    errors = [float((over - over.mean())[units == unit].sum()) for unit in range(12)]
    error = math.sqrt(sum(e * e for e in errors)) / len(times)
    quantile = stats.norm.ppf(0.975) if repeats == 1 else stats.t.ppf(0.975, 11) * math.sqrt(12 / 11)
    worth = over.mean() * (1 - over.mean()) / (error * quantile / stats.norm.ppf(0.975)) ** 2
    assert found.low[at] == pytest.approx(stats.beta.ppf(0.025, over.mean() * worth, (1 - over.mean()) * worth + 1))


def test_a_curve_of_few_units_has_no_interval() -> None:
    assert set(kaplan_meier([*range(9)], [True] * 9).low) == {None}
    assert set(kaplan_meier([1, 2, 3, 4] * 3, [True] * 12, [1, 2, 3, 4] * 3).high) == {None}
    assert set(kaplan_meier([*range(10)], [True] * 10).low) != {None}
    assert lab.plots.survival_data(runs_of(["a"] * 12, steps=[1, 2, 3] * 4, prompt_id=["p"] * 12))["low"].isna().all()


def test_survival_curves_equal_scipys() -> None:
    random = np.random.default_rng(4)
    times, ended = random.integers(1, 20, 50), random.random(50) < 0.7
    theirs = stats.ecdf(stats.CensoredData(uncensored=times[ended], right=times[~ended])).sf
    found = kaplan_meier([*times], [*ended])

    assert found.alive == pytest.approx(theirs.probabilities)
    interval = theirs.confidence_interval(method="linear")  # its half width is the error by Greenwood's formula
    for place, alive in enumerate(found.alive):
        error = (interval.high.probabilities[place] - alive) / stats.norm.ppf(0.975)
        if 0 < alive < 1 and interval.high.probabilities[place] < 1:
            worth = alive * (1 - alive) / error**2
            expected = stats.beta.ppf(
                [0.025, 0.975], [alive * worth, alive * worth + 1], [(1 - alive) * worth + 1, (1 - alive) * worth]
            )
            assert (found.low[place], found.high[place]) == pytest.approx(tuple(expected))
