"""Agreement of raters against statsmodels, Krippendorff's own example, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.inter_rater import cohens_kappa

import agentlab as lab
from agentlab.errors import ConfigurationError

NA = math.nan
KRIPPENDORFF_2011 = {  # Computing Krippendorff's alpha-reliability, part D: 4 observers, 12 units; alpha for interval data is 0.849
    "a": [1, 2, 3, 3, 2, 1, 4, 1, 2, NA, NA, NA],
    "b": [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NA, 3],
    "c": [NA, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NA],
    "d": [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NA],
}


def test_alpha_is_that_of_krippendorffs_example() -> None:
    found = lab.raters(pd.DataFrame(KRIPPENDORFF_2011), [*"abcd"])
    assert len(found) == 7
    everyone = found.iloc[-1]
    assert everyone["raters"] == "a, b, c, d"
    assert everyone["alpha"] == pytest.approx(0.849, abs=5e-4)
    assert (everyone["runs"], everyone["left_out"], everyone["same"]) == (8, 4, 5)
    assert "alpha: 11 independent units, an interval needs 20" in everyone["no_interval"]
    assert pd.isna(everyone["kappa"])


@pytest.mark.parametrize("grades", [2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_kappa_is_that_of_statsmodels(grades: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    one = chance.integers(0, grades, 60)
    other = np.where(chance.random(60) < 0.6, one, chance.integers(0, grades, 60))
    table = np.zeros((grades, grades))
    np.add.at(table, (one, other), 1)
    found = lab.raters(pd.DataFrame({"one": one, "other": other}), ["one", "other"]).iloc[0]
    theirs = cohens_kappa(table, wt="quadratic")
    assert found["kappa"] == pytest.approx(theirs.kappa)
    assert found["kappa_low"] < found["kappa"] < found["kappa_high"]
    assert abs(found["kappa_high"] - found["kappa_low"]) == pytest.approx(theirs.kappa_upp - theirs.kappa_low, rel=0.35)
    assert found["same"] == np.trace(table)


def test_repeats_of_a_prompt_are_one_unit() -> None:
    chance = np.random.default_rng(1)
    scores = pd.DataFrame({"one": chance.random(30) < 0.5, "other": chance.random(30) < 0.5})
    once = lab.raters(scores.assign(prompt_id=range(30)), ["one", "other"]).iloc[0]
    runs = pd.concat([scores.assign(prompt_id=range(30))] * 4, ignore_index=True)
    often = lab.raters(runs, ["one", "other"]).iloc[0]
    assert (often["runs"], often["units"]) == (120, 30)
    for name in ("kappa", "kappa_low", "share_low", "share_high"):
        assert often[name] == pytest.approx(once[name], abs=0.03)


def test_what_is_not_known_is_left_out_and_constant_scores_have_no_kappa() -> None:
    scores = pd.DataFrame({"one": [True, True, None, True], "other": [True, None, None, True]})
    found = lab.raters(scores, ["one", "other"]).iloc[0]
    assert (found["runs"], found["left_out"], found["share"]) == (2, 1, 1.0)
    assert pd.isna(found["kappa"])
    assert "kappa, alpha: not defined, all scores are the same" in found["no_interval"]
    none = lab.raters(pd.DataFrame({"one": [1.0, NA], "other": [NA, 1.0]}), ["one", "other"]).iloc[0]
    assert (none["runs"], pd.isna(none["share"]), pd.isna(none["alpha"])) == (0, True, True)


def test_a_run_that_is_in_the_frame_twice_counts_once() -> None:
    runs = pd.DataFrame({"run_id": [*"abcdef"], "anna": [1, 1, 0, 0, 1, 0], "judge": [1, 1, 0, 1, 1, 0]})
    once, twice = (lab.raters(frame, ["anna", "judge"], unit="run_id") for frame in (runs, pd.concat([runs, runs])))
    pd.testing.assert_frame_equal(once, twice)
    with pytest.raises(ConfigurationError, match="run_id='a' occurs twice, with different values"):
        lab.raters(pd.concat([runs, runs.assign(anna=0)]), ["anna", "judge"])


def test_columns_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="name the columns of at least two raters"):
        lab.raters(pd.DataFrame({"one": [1]}), ["one"])
    with pytest.raises(ConfigurationError, match="needs the column other"):
        lab.raters(pd.DataFrame({"one": [1]}), ["one", "other"])
