"""Agreement: how often providers end for the same reason on the same scenarios."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as lab
from agentlab import errors
from tests.plots.builders import looping, run_of

from .frame_builders import crossed, runs_of

C, T, E = "completed", "turn_limit", "error"


def test_agreement_equals_a_calculation_by_hand() -> None:
    # both C 4, both T 3, different 1 and 2: observed 0.7; expected 0.5 · 0.6 + 0.5 · 0.4 = 0.5; kappa 0.4
    found = lab.agreement(crossed(a=[C] * 5 + [T] * 5, b=[C, C, C, C, T, T, T, T, C, C]))

    row = found.pairs.iloc[0]
    assert (row["group_a"], row["group_b"], row["scenarios"], row["same"]) == ("a", "b", 10, 7)
    assert (row["share"], row["kappa"]) == (0.7, pytest.approx(0.4))
    assert row["share_low"] < 0.7 < row["share_high"]
    assert row["kappa_low"] < 0.4 < row["kappa_high"]
    counts = found.confusion[["reason_a", "reason_b", "scenarios"]].to_numpy().tolist()
    assert counts == [[C, C, 4], [C, T, 1], [T, C, 2], [T, T, 3]]
    assert found.table("a", "b").to_numpy().tolist() == [[4, 1], [2, 3]]
    assert repr(found) == "Agreement(the same stop_reason, why the run ended; the same in 7 of 10 scenarios)"


@pytest.mark.parametrize("seed", range(4))
def test_kappas_are_those_of_statsmodels(seed: int) -> None:
    from statsmodels.stats.inter_rater import aggregate_raters, cohens_kappa, fleiss_kappa

    random = np.random.default_rng(seed)
    usual = random.choice([C, T, E], p=[0.6, 0.3, 0.1], size=40)
    answers = {name: np.where(random.random(40) < 0.6, usual, random.choice([C, T, E], size=40)).tolist() for name in "abc"}
    found = lab.agreement(crossed(**answers))

    for row in found.pairs.itertuples():
        codes = [pd.Categorical(answers[name], categories=[C, T, E]).codes for name in (row.group_a, row.group_b)]
        table = np.histogram2d(*codes, bins=[range(4)] * 2)[0]
        assert row.kappa == pytest.approx(cohens_kappa(table).kappa)
    counts = aggregate_raters(np.array([answers[name] for name in "abc"]).T)[0]
    assert found.overall["kappa"].item() == pytest.approx(fleiss_kappa(counts))


def test_all_groups_together_and_each_pair_of_groups() -> None:
    found = lab.agreement(crossed(a=[C, C, T, T, C, E], b=[C, C, T, C, C, E], c=[C, T, T, T, C, None]))

    overall = found.overall.iloc[0]
    assert (overall["groups"], overall["scenarios"], overall["left_out"], overall["same"]) == ("a, b, c", 5, 1, 3)
    assert list(found.pairs["scenarios"]) == [6, 5, 5]
    assert list(found.pairs["same"]) == [5, 4, 3]
    assert [None if pd.isna(one) else bool(one) for one in found.scenarios["same"]] == [True, False, True, False, True, None]
    # 3 raters, 5 scenarios: observed (3 + 2/3) / 5; C 9 of 15, T 6 of 15
    assert overall["kappa"] == pytest.approx(((3 + 2 / 3) / 5 - (0.36 + 0.16)) / (1 - (0.36 + 0.16)))


def test_identical_reasons_give_full_agreement_and_no_kappa() -> None:
    row = lab.agreement(crossed(a=[C] * 6, b=[C] * 6)).pairs.iloc[0]

    assert (row["share"], row["same"]) == (1, 6)
    assert pd.isna(row["kappa"])
    assert row["no_interval"] == "kappa: not defined, all end with completed"


def test_too_few_scenarios_for_an_interval_are_reported() -> None:
    row = lab.agreement(crossed(a=[C, T], b=[C, T])).pairs.iloc[0]

    assert (row["kappa"], row["units"]) == (1, 2)
    assert row["no_interval"] == "share, kappa: only 2 known, an interval needs 5"
    assert pd.isna(row["small_sample"])
    row = lab.agreement(crossed(a=[C, T] * 3, b=[C, T] * 3)).pairs.iloc[0]
    assert row["small_sample"].startswith("6 independent units: fewer than 20")


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(pd.DataFrame(), id="nothing"),
        pytest.param(crossed(a=[C, C]), id="one group"),
        pytest.param(crossed(a=[C, None], b=[None, C]), id="no shared scenario"),
    ],
)
def test_nothing_to_compare_gives_unknown_agreement(frame: pd.DataFrame) -> None:
    found = lab.agreement(frame)

    assert found.overall["scenarios"].item() == 0
    assert found.overall["share"].isna().all()
    assert "no scenario for which every group has a reason" in repr(found)
    assert "share: none known" in found.overall["no_interval"].item()


def test_row_order_does_not_change_agreement() -> None:
    frame = crossed(a=[C, T, E, C, T, C], b=[C, C, E, T, T, C], c=[T, T, E, C, T, C])
    found, mixed = lab.agreement(frame), lab.agreement(frame.iloc[::-1])

    assert found.overall.drop(columns="groups").equals(mixed.overall.drop(columns="groups"))


def test_several_runs_of_one_scenario_are_an_error_with_a_remedy() -> None:
    once = crossed(a=[C, T], b=[C, T])
    frame = pd.concat([once, once.assign(run_id="again " + once["run_id"])])

    with pytest.raises(errors.ConfigurationError) as caught:
        lab.agreement(frame)
    assert "a has 2 runs with prompt_id='p0'" in str(caught.value)
    assert "frame.groupby(['provider', 'prompt_id']).cumcount()" in str(caught.value)
    assert lab.agreement(frame.assign(repeat=frame.groupby(["provider", "prompt_id"]).cumcount())).overall["same"].item() == 4


def test_agreement_on_the_last_finish_reason_of_real_runs() -> None:
    results = [
        run_of(looping(end=2), "one"),
        run_of(looping(end=3), "two"),
        run_of(looping(), "three", budget=lab.Budget(max_turns=2)),
    ]
    termination, runs = lab.frame(results, "termination"), lab.frame(results, "runs")
    frame = termination.merge(runs[["run_id", "prompt"]], on="run_id")

    found = lab.agreement(frame, "finish_reason")
    assert found.what == "the same finish_reason, why the last response of the run ended"
    assert found.scenarios[["one", "two", "three"]].iloc[0].tolist() == ["end_turn", "end_turn", "tool_calls"]
    assert found.pairs["same"].tolist() == [1, 0, 0]
    with pytest.raises(errors.ConfigurationError, match=r"needs the column prompt_id: .*frame\.merge"):
        lab.agreement(termination)


def test_an_unknown_group_is_an_error() -> None:
    found = lab.agreement(crossed(a=[C], b=[C]))

    with pytest.raises(errors.ConfigurationError, match=r"There is no group 'z'. Groups: a, b"):
        found.table("a", "z")


def test_group_names_are_escaped_and_may_equal_column_names() -> None:
    names: Any = ["<b>", "same", "prompt_id"]
    frame = runs_of(names, prompt_id=["p"] * 3)

    found = lab.agreement(frame)
    assert list(found.scenarios.columns) == ["prompt_id", "<b>", "same (group)", "prompt_id (group)", "same"]
    assert "<b> (" not in found._repr_html_()
    assert "&lt;b&gt;" in found._repr_html_()
