"""How often 95 % intervals contain the true value in simulated experiments; the full table is in `tests.benchmarks`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import agentlab as lab
from tests.benchmarks.coverage import Intervals, covered, experiments, of_groups, of_pairs, of_raters


@pytest.mark.parametrize(
    ("of", "units", "repeats", "studies", "least"),
    [  # with a true coverage of 95 %, fewer than these occur with a probability below 1 in 1,000 per figure
        pytest.param(of_groups, 5, 1, 200, 0.88, id="5 prompts"),
        pytest.param(of_groups, 10, 1, 200, 0.88, id="10 prompts"),
        pytest.param(of_groups, 20, 5, 200, 0.895, id="20 prompts, 5 repeats"),
        pytest.param(of_groups, 20, 20, 200, 0.895, id="20 prompts, 20 repeats"),
        pytest.param(of_pairs, 10, 1, 60, 0.85, id="pairs of 10 prompts"),
        pytest.param(of_pairs, 12, 8, 60, 0.85, id="pairs of 12 prompts, 8 repeats"),
        pytest.param(of_raters, 50, 1, 100, 0.87, id="raters, 50 prompts"),
        pytest.param(of_raters, 20, 5, 100, 0.87, id="raters, 20 prompts, 5 repeats"),
    ],
)
def test_intervals_reach_their_nominal_coverage(
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
    pairs = [lab.paired(study, "score").iloc[0] for _, study in experiments(10, 1, 150, seed=3).groupby("study")]

    assert sum(row["low"] > 0 or row["high"] < 0 for row in pairs) <= 0.05 * len(pairs)
