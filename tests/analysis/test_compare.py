"""Groups of runs compared: which runs count, which are left out, and what is reported."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import agentlab as lab
from agentlab import errors
from agentlab.analysis.groups import in_order, names_of
from tests.plots.builders import looping, run_of

from .frame_builders import runs_of


def row_of(frame: pd.DataFrame, place: int = 0) -> dict[str, Any]:
    return {str(name): None if pd.isna(value) else value for name, value in frame.iloc[place].items()}


# Summary -----------------------------------------------------------------------------------------------------------------------


def test_groups_are_in_the_order_of_their_first_run() -> None:
    results = [
        run_of(looping((80, 20), "0.001", end=2), "two"),
        run_of(looping((None, None), None), "one", budget=lab.Budget(max_turns=3)),
    ]
    found = lab.summary(lab.frame(results, "runs"))

    assert list(found["provider"]) == ["two", "one"]
    assert list(found["completed"]) == [1, 0]
    two, one = row_of(found), row_of(found, 1)
    assert (two["completion_rate"], two["tokens_mean"], two["cost_mean"], two["tokens_unknown"]) == (1, 200, 0.002, 0)
    assert (one["completion_rate"], one["tokens_mean"], one["cost_mean"], one["tokens_unknown"], one["cost_unknown"]) == (
        0,
        None,
        None,
        1,
        1,
    )
    assert (two["scored"], two["success_rate"], two["score_mean"]) == (0, None, None)
    assert one["no_interval"] == "completion: only one known, an interval needs 5; tokens, cost: none known"
    assert one["small_sample"] is None  # no meaningful interval exists


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([2, 10, 2], ["2", "10"]),
        ([0.5, None, None], ["0.5", "unknown model"]),
        (pd.to_datetime(["2026-01-02", None, None]), ["2026-01-02 00:00:00", "unknown model"]),
        (pd.array([True, None, True], dtype="boolean"), ["True", "unknown model"]),
        (pd.Categorical(["b", None, "a"]), ["b", "unknown model", "a"]),
        (pd.Series([1, True, 1.0], dtype=object), ["1", "True", "1.0"]),
    ],
    ids=["whole", "floats", "dates", "yes or no", "categories", "mixed"],
)
def test_groups_have_the_names_of_their_values(values: Any, names: list[str]) -> None:
    assert in_order(names_of(pd.DataFrame({"model": values}), ["model"])) == names


def test_unknown_values_are_excluded_and_counted_not_zero() -> None:
    tokens = [100, 200, 300, 400, 500] * 2 + [None] * 3
    row = row_of(lab.summary(runs_of(["a"] * 13, total_tokens=tokens, cost_usd=[0.0] * 13)))

    assert (row["tokens_mean"], row["tokens_median"], row["tokens_unknown"]) == (300, 300, pytest.approx(3 / 13))
    assert row["tokens_low"] < 300 < row["tokens_high"]
    assert (row["cost_mean"], row["cost_low"], row["cost_unknown"]) == (0, None, 0)
    assert row["no_interval"] == "cost: all 13 values are the same"
    assert row["small_sample"].startswith("13 independent units, tokens known of 10: fewer than 20")
    assert row["left_out"] == "tokens: 3 of 13 unknown"


def test_running_runs_are_counted_and_excluded_from_figures() -> None:
    row = row_of(lab.summary(runs_of(["a"] * 4, terminated=[True, False, None, None], total_tokens=[10, 30, 1, 1])))

    assert (row["runs"], row["not_ended"], row["completed"], row["completion_rate"], row["tokens_mean"]) == (4, 2, 1, 0.5, 20)
    assert row["left_out"] == "all: 2 of 4 not ended"


@pytest.mark.parametrize(
    ("scores", "success_at", "scored", "rate", "mean", "note"),
    [
        pytest.param([True, False, True, None], None, 3, 2 / 3, 2 / 3, None, id="yes or no"),
        pytest.param([1, 0, 0, 0], None, 4, 0.25, 0.25, None, id="1 or 0"),
        pytest.param([0.5, 0.9, 1.0, None], None, 3, None, 0.8, "success: scores are graded, pass success_at=…", id="graded"),
        pytest.param([0.5, 0.9, 1.0, None], 0.9, 3, 2 / 3, 0.8, None, id="graded, from a score on"),
        pytest.param([None] * 4, None, 0, None, None, "success, score, tokens, cost: none known", id="none known"),
    ],
)
def test_scores_of_each_type(
    scores: list[Any], success_at: float | None, scored: int, rate: float | None, mean: float | None, note: str | None
) -> None:
    row = row_of(lab.summary(runs_of(["a"] * 4, score=scores), success_at=success_at))

    assert row["scored"] == scored
    assert row["success_rate"] == (rate if rate is None else pytest.approx(rate))
    assert row["score_mean"] == (mean if mean is None else pytest.approx(mean))
    assert note is None or note in row["no_interval"]


def test_scores_are_graded_in_all_groups_or_in_none() -> None:
    """One group has only scores of 0 and 1; its failed runs have none, as those of the other group."""
    runs = runs_of(
        ["a"] * 20 + ["b"] * 20,
        prompt_id=[f"p{place}" for place in range(20)] * 2,
        score=[1.0, 0.0] * 8 + [None] * 4 + [0.5, 1.0] * 8 + [None] * 4,
        stop_reason=(["completed"] * 16 + ["error"] * 4) * 2,
        cost_usd=[0.01] * 40,
    )
    found = lab.summary(runs)

    assert found["score_mean"].tolist() == [0.5, 0.75]
    assert found["success_rate"].isna().all()
    assert found["left_out"].tolist() == ["score: 4 of 20 without a score"] * 2
    assert lab.plots.cost_success_data(runs)["rate"].tolist() == [0.5, 0.75]
    assert lab.paired(runs, "score")[["against_mean", "group_mean"]].iloc[0].tolist() == [0.5, 0.75]
    assert lab.summary(runs, success_at=1)["success_rate"].tolist() == [0.4, 0.4], "with failures"
    none = lab.summary(runs.assign(score=runs["score"].where(runs["provider"] == "b")))
    assert (none["scored"].tolist(), none["score_mean"].tolist()) == ([0, 16], [pd.NA, 0.75])


@pytest.mark.parametrize(("scores", "what"), [([0.25, 0.5, 1.0], "score"), ([0, 1, 1], "success")], ids=["graded", "yes or no"])
def test_a_score_that_few_runs_have_is_a_small_sample(scores: list[float], what: str) -> None:
    row = row_of(lab.summary(runs_of(["a"] * 40, score=[*scores * 4, *[None] * 28])))

    assert row["score_low"] < row["score_mean"] < row["score_high"]
    assert row["small_sample"].startswith(f"{what} known of 12: fewer than 20")


def test_groups_by_several_columns_with_unknown_values() -> None:
    runs = runs_of(["a", "a", "b", "a"]).assign(model=["m", "n", None, "m"])
    found = lab.summary(runs, by=["provider", "model"])

    assert [(p, None if pd.isna(m) else m) for p, m in zip(found["provider"], found["model"], strict=True)] == [
        ("a", "m"),
        ("a", "n"),
        ("b", None),
    ]
    assert list(found["runs"]) == [2, 1, 1]


def test_no_runs_give_an_empty_summary() -> None:
    columns = list(lab.summary(runs_of(["a"])).columns)

    for nothing in (pd.DataFrame(), lab.frame([], "runs"), runs_of(["a"]).iloc[:0]):
        found = lab.summary(nothing)
        assert list(found.columns) == columns
        assert len(found) == 0


many = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([True, False, None]),
        st.none() | st.integers(0, 10_000),
        st.none() | st.sampled_from([0.0, 0.5, 1.0]),
    ),
    min_size=1,
    max_size=24,
)


def frame_of(rows: list[Any]) -> pd.DataFrame:
    provider, terminated, tokens, score = (list(column) for column in zip(*rows, strict=True))
    costs = [None if value is None else value / 1e5 for value in tokens]
    return runs_of(provider, terminated=terminated, total_tokens=tokens, cost_usd=costs, score=score)


@settings(deadline=None, max_examples=25)
@given(many, st.randoms(use_true_random=False))
def test_neither_row_order_nor_other_groups_change_a_row(rows: list[Any], rng: random.Random) -> None:
    """Other groups only decide whether scores are graded, for which one run is enough."""
    frame = frame_of(rows)
    whole = lab.summary(frame)
    mixed = lab.summary(frame.sample(frac=1, random_state=rng.randrange(1000)))

    pd.testing.assert_frame_equal(
        whole.sort_values("provider", ignore_index=True), mixed.sort_values("provider", ignore_index=True), check_exact=True
    )
    graded = frame.index.isin(frame.index[frame["score"] == 0.5][:1])
    for place, provider in enumerate(whole["provider"]):
        alone = lab.summary(frame[(frame["provider"] == provider) | graded])
        assert row_of(alone, alone["provider"].tolist().index(provider)) == row_of(whole, place)


@settings(deadline=None, max_examples=25)
@given(many)
def test_intervals_contain_their_estimates(rows: list[Any]) -> None:
    for row in lab.summary(frame_of(rows)).to_dict("records"):
        rates = [("completion_rate", "completion"), ("success_rate", "success"), ("score_mean", "score")]
        means = [
            (f"{what}_{kind}", what if kind == "mean" else f"{what}_{kind}")
            for what in ("tokens", "cost")
            for kind in ("mean", "median")
        ]
        for value, prefix in rates + means:
            if not pd.isna(row[f"{prefix}_low"]):
                assert row[f"{prefix}_low"] <= row[value] <= row[f"{prefix}_high"]


def test_the_input_frame_is_unchanged_and_a_frame_from_a_file_gives_the_same() -> None:
    runs = frame_of([("a", True, 10 * n, n / 2 % 1) for n in range(9)] + [("b", None, None, None)] * 2)
    before = runs.copy(deep=True)
    found = lab.summary(runs)

    pd.testing.assert_frame_equal(runs, before)
    back = pd.read_csv(io.StringIO(runs.to_csv(index=False)))
    pd.testing.assert_frame_equal(lab.summary(back).drop(columns="provider"), found.drop(columns="provider"))


@pytest.mark.parametrize(
    ("do", "message"),
    [
        pytest.param(lambda: lab.summary([1]), "lab.summary() cannot read list", id="no frame"),
        pytest.param(lambda: lab.summary(runs_of(["a"]), by="agnet"), "needs the column agnet", id="unknown group"),
        pytest.param(lambda: lab.summary(runs_of(["a"]), by="vendor"), "vendor: pass the name of a column that the runs", id="group"),
        pytest.param(lambda: lab.summary(runs_of(["a"]), by="vendor"), "They have run_id, provider, prompt_id,", id="groups"),
        pytest.param(lambda: lab.pass_at_k(runs_of(["a"])), "columns agent, score: pass the name of a column that", id="not scored"),
        pytest.param(lambda: lab.summary(runs_of(["a"]), by=[]), "by=[]: pass the name of a column", id="no columns"),
        pytest.param(lambda: lab.summary(runs_of(["a"]), level=95), "level=95: pass a number between 0 and 1", id="level"),
        pytest.param(lambda: lab.summary(runs_of(["a"]), success_at="x"), "success_at='x'", id="success_at"),
        pytest.param(lambda: lab.summary(runs_of(["a"]), failures="drop"), "choose one of count, leave_out", id="failures"),
        pytest.param(lambda: lab.summary(runs_of(["a"]), by="promt_id"), "Did you mean 'prompt_id'?", id="misspelt group"),
        pytest.param(lambda: lab.summary(runs_of(["a"]), unit="task"), "needs the column task", id="unknown unit type"),
        pytest.param(lambda: lab.agreement(runs_of(["a"]), unit=3), "unit=3: pass the name of a column", id="unit"),
        pytest.param(lambda: lab.paired(runs_of(["a"]), "cots"), "lab.paired() needs the column cots", id="unknown value"),
        pytest.param(lambda: lab.summary(pd.DataFrame({"provider": ["a"]})), '"runs"), or add them, with pd.NA for unknown', id="many"),
        pytest.param(lambda: lab.paired(runs_of(["a"])[["provider", "cost_usd"]], "cost_usd"), "the column prompt_id", id="no prompts"),
        pytest.param(lambda: lab.paired(runs_of(["a"]), "cost_usd", against="b"), "is not a group. Groups: a.", id="against"),
        pytest.param(lambda: lab.paired(runs_of(["a"]), "cost_usd", per="run"), "per='run': choose 'pair' or 'task'", id="per"),
    ],
)  # fmt: skip
def test_bad_input_names_the_value_and_what_to_do(do: Any, message: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        do()
    assert message in str(caught.value)


# Pairs ---------------------------------------------------------------------------------------------------------------------------


def pairs_of(first: list[Any], second: list[Any]) -> pd.DataFrame:
    prompts = [f"p{place}" for place in range(len(first))]
    return runs_of(["a"] * len(first) + ["b"] * len(second), prompt_id=prompts * 2, total_tokens=first + second)


def test_paired_takes_one_column() -> None:
    with pytest.raises(lab.errors.ConfigurationError, match=r"what=\['score', 'cost_usd'\]: pass the name of one column"):
        lab.paired(pd.DataFrame(), ["score", "cost_usd"])  # type: ignore[arg-type]


def test_paired_differences_equal_a_calculation_by_hand() -> None:
    first, second = [10, 20, 30, 40, 50, 60, None], [11, 20, 33, 44, None, 66, 70]
    row = row_of(lab.paired(pairs_of(first * 2, second * 2), "total_tokens"))

    assert (row["group"], row["against"], row["what"]) == ("b", "a", "total_tokens")
    assert (row["difference"], row["pairs"], row["left_out"]) == (pytest.approx(14 / 5), 10, 4)
    assert (row["ties"], row["more"]) == (0.2, 0.8)
    assert (row["group_mean"], row["against_mean"]) == (pytest.approx(34.8), 32)
    differences = [1, 0, 3, 4, 6] * 2
    theirs = stats.ttest_1samp(differences, 0)
    interval = theirs.confidence_interval(0.95)
    assert row["low"] == pytest.approx(interval.low) and row["high"] >= interval.high
    assert row["p_value"] == pytest.approx(theirs.pvalue, rel=1e-5), "the lower end is that of the t test"
    assert (row["units"], row["small_sample"][:36]) == (10, "10 independent units: fewer than 20,")


def test_the_differences_per_task_are_available() -> None:
    runs = _crossed(3, 3, 4, 2, scores=False)
    found = lab.paired(runs, "score", "agent", on=["prompt_id"], per="task")

    assert list(found.columns) == ["group", "against", "what", "prompt_id", "difference", "group_value", "against_value", "unit"]
    means = runs.groupby(["prompt_id", "agent"])["score"].mean()
    assert len(found) == 3 * 4
    for row in found.itertuples():
        assert row.group_value == pytest.approx(means[row.prompt_id, row.group])
        assert row.difference == pytest.approx(means[row.prompt_id, row.group] - means[row.prompt_id, row.against])
    assert found["prompt_id"].to_list() == ["t0", "t1", "t2", "t3"] * 3 and found["unit"].to_list() == [0, 1, 2, 3] * 3
    by_pair = lab.paired(runs, "score", "agent", on=["prompt_id"])
    assert found.groupby(["group", "against"], sort=False)["difference"].mean().to_list() == pytest.approx(by_pair["difference"])
    with pytest.warns(errors.AgentlabWarning, match="one group of agent, 'a0', so there are no pairs"):
        assert lab.paired(runs[:2], "score", "agent", per="task").empty


def test_pairing_removes_the_spread_between_prompts() -> None:
    first = [10 * 2**place for place in range(10)]
    runs = pairs_of(first, [value + 5 + place % 3 for place, value in enumerate(first)])

    row = row_of(lab.paired(runs, "total_tokens"))
    assert 5 < row["low"] < row["difference"] < row["high"] < 7
    table = lab.summary(runs)
    assert table["tokens_high"].iloc[0] > table["tokens_low"].iloc[1]  # unpaired, the intervals are too wide to decide


def test_every_pair_of_groups_or_all_against_one() -> None:
    runs = runs_of(["a", "b", "c"], prompt_id=["p"] * 3, total_tokens=[1, 2, 4])

    every = lab.paired(runs, "total_tokens")
    assert list(zip(every["group"], every["against"], every["difference"], strict=True)) == [
        ("b", "a", 1),
        ("c", "a", 3),
        ("c", "b", 2),
    ]
    against = lab.paired(runs, "total_tokens", against="b")
    assert list(zip(against["group"], against["difference"], strict=True)) == [("a", -1), ("c", 2)]


def test_repeats_are_separate_pairs_or_averaged_per_prompt() -> None:
    runs = runs_of(
        ["a"] * 4 + ["b"] * 4, prompt_id=["p", "p", "q", "q"] * 2, repeat=[1, 2] * 4, total_tokens=[1, 3, 5, 7, 2, 4, 5, None]
    )

    assert lab.paired(runs, "total_tokens")["pairs"].item() == 3
    row = row_of(lab.paired(runs, "total_tokens", on=["prompt_id"]))
    assert (row["pairs"], row["left_out"], row["difference"]) == (2, 0, 0)  # (3 - 2), (5 - 6)
    assert (row["no_interval"], row["small_sample"]) == ("2 pairs in 2 independent units, an interval needs 10 units", None)


def test_booleans_are_paired_as_1_and_0() -> None:
    runs = runs_of(["a"] * 3 + ["b"] * 3, prompt_id=["p", "q", "r"] * 2, terminated=[True, False, None, True, True, True])

    row = row_of(lab.paired(runs, "terminated"))
    assert (row["pairs"], row["left_out"], row["difference"], row["ties"]) == (2, 1, 0.5, 0.5)


def test_a_run_without_a_prompt_makes_no_pair() -> None:
    runs = runs_of(["a", "b"], prompt_id=[None, None], total_tokens=[1, 2])

    with pytest.warns(errors.AgentlabWarning, match="2 runs of 2 without prompt_id cannot be paired, and are left out"):
        found = lab.paired(runs, "total_tokens")
    assert len(found) == 1
    assert (found["pairs"].item(), found["no_interval"].item()) == (0, "no complete pair")


def test_groups_may_be_numbers_or_several_columns_and_one_group_alone_is_named() -> None:
    runs = pd.DataFrame(
        [{"agent": a, "model": "m", "prompt_id": f"p{i}", "cost_usd": a * (1 + i % 3)} for a in (1, 2) for i in range(6)]
    )
    assert lab.paired(runs, "cost_usd", "agent", against=1)["against"].item() == "1"
    assert lab.paired(runs, "cost_usd", ["model", "agent"], against=("m", 2))["against"].item() == "m · 2"
    with pytest.warns(errors.AgentlabWarning, match="one group of model, 'm', so there are no pairs: pass by='agent'"):
        assert lab.paired(runs, "cost_usd", "model").empty


def test_a_frame_of_steps_is_no_frame_of_runs() -> None:
    steps = pd.DataFrame({"run_id": ["x", "x"], "step": [1, 2], "provider": "a", "prompt_id": "p", "cost_usd": [0.1, 0.2]})
    with pytest.raises(errors.ConfigurationError, match="run_id='x' occurs twice: the frame has one row per step"):
        lab.paired(steps, "cost_usd")


def test_identical_differences_have_no_interval() -> None:
    row = row_of(lab.paired(pairs_of([*range(10)], [*range(1, 11)]), "total_tokens"))

    assert (row["difference"], row["low"], row["no_interval"]) == (1, None, "all 10 values are the same")


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=15), st.integers(0, 99))
def test_a_reversed_difference_has_the_opposite_sign(values: list[tuple[int, int]], seed: int) -> None:
    runs = pairs_of([a for a, _ in values], [b for _, b in values])
    row = row_of(lab.paired(runs, "total_tokens", against="a"))
    other = row_of(lab.paired(runs.sample(frac=1, random_state=seed), "total_tokens", against="b"))

    assert row["difference"] == pytest.approx(-other["difference"])
    assert row == row_of(lab.paired(runs.sample(frac=1, random_state=seed), "total_tokens", against="a"))
    if row["low"] is not None:
        assert row["low"] <= row["difference"] <= row["high"]


@pytest.mark.timeout(20)
def test_sub_agents_that_name_each_other_as_callers_stay_unchanged() -> None:
    runs = runs_of(
        ["a", "a", "a"], parent_run_id=["r1", "r0", "r0"], called_by=["search", "search", "search"], child_calls=[0, 0, 0]
    )
    assert lab.summary(runs)["runs"].tolist() == [3]


# Tests and errors ------------------------------------------------------------------------------------------------------------------


def _crossed(seed: int, groups: int, tasks: int, repeats: int, *, scores: bool) -> pd.DataFrame:
    random_ = np.random.default_rng(seed)
    rate = random_.random(tasks)
    return pd.DataFrame(
        [
            {
                "agent": f"a{group}",
                "prompt_id": f"t{task}",
                "repeat": repeat,
                "score": float(random_.random() < rate[task]) if scores else random_.gamma(2, rate[task] + 0.5),
                "stop_reason": "completed",
                "terminated": True,
                "total_tokens": 100,
                "cost_usd": 0.1,
            }
            for group in range(groups)
            for task in range(tasks)
            for repeat in range(repeats)
        ]
    )


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_standard_errors_are_those_of_a_regression_clustered_by_task(seed: int, repeats: int) -> None:
    from statsmodels.regression.linear_model import OLS

    runs = _crossed(seed, 1, 25, repeats, scores=True).sample(frac=0.8, random_state=seed)  # clusters of unequal size
    tasks = pd.factorize(runs["prompt_id"])[0]
    fit = OLS(runs["score"].to_numpy(), np.ones(len(runs))).fit(cov_type="cluster", cov_kwds={"groups": tasks})
    row = lab.summary(runs, "agent").iloc[0]
    assert row["success_se"] == pytest.approx(fit.bse[0])
    assert row["score_se"] == pytest.approx(fit.bse[0])


def test_the_standard_error_is_millers_up_to_the_number_of_units() -> None:
    """E. Miller (2024), equation 4, divides by n squared, without a correction for the number of clusters."""
    runs = _crossed(5, 1, 30, 2, scores=True)
    errors = runs["score"] - runs["score"].mean()
    sums = errors.groupby(runs["prompt_id"]).sum()
    millers = float(np.sqrt((sums**2).sum())) / len(runs)
    assert lab.summary(runs, "agent").iloc[0]["success_se"] == pytest.approx(millers * np.sqrt(30 / 29))


def inspects_error(scores: Any, tasks: Any) -> float:
    """`stderr(cluster)` of inspect-ai 0.3: products of residuals over all pairs of one cluster, corrected for the number of clusters.

    `tests/interop/test_inspect_errors.py` compares with Inspect itself.
    """
    residuals, clusters = scores - scores.mean(), len(set(tasks))
    total = sum(float(np.outer(residuals[tasks == task], residuals[tasks == task]).sum()) for task in set(tasks))
    return float(np.sqrt(total * clusters / (clusters - 1)) / len(scores))


@pytest.mark.parametrize("seed", range(4))
def test_the_standard_error_is_inspects(seed: int) -> None:
    runs = _crossed(seed, 1, 25, 3, scores=seed % 2 == 0).sample(frac=0.8, random_state=seed)
    row = lab.summary(runs, "agent").iloc[0]
    assert row["score_se"] == pytest.approx(inspects_error(runs["score"].to_numpy(), runs["prompt_id"].to_numpy()))


@pytest.mark.parametrize("seed", range(4))
def test_p_values_are_those_of_scipy_and_statsmodels(seed: int) -> None:
    from statsmodels.stats.contingency_tables import mcnemar
    from statsmodels.stats.multitest import multipletests

    graded = _crossed(seed, 3, 20, 2, scores=False)
    means = graded.groupby(["prompt_id", "agent"])["score"].mean().unstack()
    found = lab.paired(graded, "score", "agent", on=["prompt_id"])
    least = [stats.ttest_rel(means[row.group], means[row.against]).pvalue for row in found.itertuples()]
    p_values = found["p_value"].to_list()
    assert all(ours >= theirs * (1 - 1e-5) for ours, theirs in zip(p_values, least, strict=True)), "never below the t test's"
    assert p_values == pytest.approx(least, rel=0.5), "the correction for skewness is small"
    assert found["p_holm"].to_list() == pytest.approx(multipletests(p_values, method="holm")[1].tolist())
    assert found["different"].to_list() == [one < 0.05 for one in found["p_holm"]]

    single = _crossed(seed, 2, 30, 1, scores=True)
    table = single.pivot_table(index="prompt_id", columns="agent", values="score")
    counts = pd.crosstab(table["a0"], table["a1"]).reindex(index=[0.0, 1.0], columns=[0.0, 1.0], fill_value=0)
    row = lab.paired(single, "score", "agent").iloc[0]
    assert row["p_value"] == pytest.approx(mcnemar(counts.to_numpy(), exact=True).pvalue)
    assert row["method"] == "Tango, McNemar exact"


@pytest.mark.parametrize("seed", range(12))
def test_an_interval_excludes_0_if_its_p_value_is_below_5_percent(seed: int) -> None:
    random = np.random.default_rng(seed)
    differences = random.exponential(1, 12) ** 2 * random.choice([-1, 1]) + random.normal(0.3, 0.4)
    prompts = [f"p{place}" for place in range(12)]
    costs = [50.0] * 12 + (50 + differences).tolist()
    found = row_of(lab.paired(runs_of(["a"] * 12 + ["b"] * 12, prompt_id=prompts * 2, cost_usd=costs), "cost_usd"))
    assert (found["low"] > 0 or found["high"] < 0) == (found["p_value"] < 0.05) == found["different"]


def test_six_equal_groups_are_seldom_called_different() -> None:
    """Without Holm's adjustment, some of the 15 pairs differ in about four of ten experiments."""
    found = [lab.paired(_crossed(seed, 6, 30, 1, scores=False), "score", "agent") for seed in range(60)]
    assert sum(bool(one["different"].any()) for one in found) <= 60 * 0.05 + 5  # three standard errors
    assert sum(bool((one["p_value"] < 0.05).any()) for one in found) >= 14


def test_every_interval_names_its_method() -> None:
    row = lab.summary(_crossed(1, 1, 25, 2, scores=True), "agent").iloc[0]
    assert row["methods"] == "completion, success, score: Clopper-Pearson, effective n of units"
    graded = _crossed(1, 1, 25, 1, scores=False).assign(cost_usd=lambda runs: runs["score"], total_tokens=range(25))
    assert lab.summary(graded, "agent").iloc[0]["methods"] == (
        "completion: Clopper-Pearson; score: t or Hall; tokens, cost: t on the logarithm or Hall; tokens_median, cost_median: ranks"
    )
