"""The data of the plots: no drawing in these tests."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd
import pytest

import agentlab as lab
from agentlab import Budget, HasToolCall, MaxCost, MaxTokensUsed, StepCountIs, errors
from agentlab.plots import cost_data, stop_reasons_data, tokens_data
from agentlab.plots.usage_curves import TOKENS, limit_columns, limit_courses

from .builders import NA, listed, looping, run_of, runs_of, steps_of

FIXED = ["run_id", "provider", "model", "step", "stop_reason"]
HUNDREDS = [100, 200, 300, 400]


# Values --------------------------------------------------------------------------------------------------------------------


def test_a_real_run_gives_one_row_per_step() -> None:
    result = run_of(looping((80, 20), "0.001", end=3))
    tokens, cost = tokens_data(result.to_frame()), cost_data(result.to_frame())

    assert list(tokens.columns) == [*FIXED, "tokens"]
    assert list(tokens["tokens"]) == [100, 200, 300]
    assert list(cost["cost_usd"]) == pytest.approx([0.001, 0.002, 0.003])
    assert list(tokens["step"]) == [1, 2, 3]
    assert listed(tokens["stop_reason"]) == [None, None, "completed"]
    assert set(tokens["provider"]) == {"one"}
    assert set(tokens["model"]) == {"m1"}
    assert str(tokens["tokens"].dtype) == "Int64"
    assert str(cost["cost_usd"].dtype) == "Float64"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([10, 20], [10, 20], id="known"),
        pytest.param([10, NA], [10, None], id="unknown from the second step"),
        pytest.param([NA, NA], [None, None], id="unknown"),
        pytest.param([0, 0], [0, 0], id="zero is zero"),
    ],
)
def test_unknown_is_never_zero(values: list[Any], expected: list[Any]) -> None:
    steps = steps_of(("one", values))

    assert listed(tokens_data(steps)["tokens"]) == expected
    assert listed(cost_data(steps)["cost_usd"]) == [None if value is None else value / 1000 for value in expected]


def test_unreported_usage_of_a_real_run_is_unknown() -> None:
    result = run_of(looping((None, None), None, end=2))

    assert listed(tokens_data(result.to_frame())["tokens"]) == [None, None]
    assert listed(cost_data(result.to_frame())["cost_usd"]) == [None, None]


def test_runs_and_their_steps_keep_their_order() -> None:
    steps = steps_of(("two", [1, 2]), ("one", [3, 4, 5]))
    mixed = steps.iloc[[1, 4, 0, 2, 3]]

    data = tokens_data(mixed)

    assert list(data["run_id"]) == ["r1", "r1", "r2", "r2", "r2"]
    assert list(data["tokens"]) == [1, 2, 3, 4, 5]
    assert list(data.index) == [0, 1, 2, 3, 4]


def test_the_input_frame_is_unchanged_and_a_duplicated_run_counts_once() -> None:
    result = run_of(looping(end=2), stop=MaxTokensUsed(1000))
    steps = lab.frame([result, result])
    before = steps.copy(deep=True)

    data = tokens_data(steps)

    pd.testing.assert_frame_equal(steps, before)
    assert list(data["step"]) == [1, 2]


def test_a_frame_from_a_file_gives_the_same() -> None:
    known = run_of(looping((80, 20), "0.001", end=2), stop=MaxTokensUsed(1000), budget=Budget(max_tokens=500))
    unknown = run_of(looping((None, None), None, end=3), name="two")
    steps = lab.frame([known, unknown])

    back = pd.read_csv(io.StringIO(steps.to_csv(index=False)))

    pd.testing.assert_frame_equal(tokens_data(back), tokens_data(steps))
    pd.testing.assert_frame_equal(cost_data(back), cost_data(steps))


# Limits --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "tokens", "cost"),
    [
        pytest.param({}, {}, {}, id="none"),
        pytest.param({"budget": Budget(max_tokens=900, max_turns=4)}, {"max_tokens": 900}, {}, id="budget, tokens"),
        pytest.param({"budget": Budget(max_cost=0.5, max_turns=4)}, {}, {"max_cost_usd": 0.5}, id="budget, cost"),
        pytest.param({"stop": MaxTokensUsed(800)}, {"MaxTokensUsed": 800}, {}, id="condition, tokens"),
        pytest.param({"stop": MaxCost("0.02")}, {}, {"MaxCost": 0.02}, id="condition, cost"),
        pytest.param({"stop": StepCountIs(9) | HasToolCall("other")}, {}, {}, id="conditions on other things"),
        pytest.param(
            {"stop": MaxTokensUsed(800) | (MaxTokensUsed(700) & MaxCost(1)), "budget": Budget(max_tokens=900)},
            {"max_tokens": 900, "MaxTokensUsed": 800, "MaxTokensUsed_2": 700},
            {"MaxCost": 1.0},
            id="several",
        ),
    ],
)
def test_each_active_limit_is_a_column(more: dict[str, Any], tokens: dict[str, float], cost: dict[str, float]) -> None:
    steps = run_of(looping(end=3), **more).to_frame()

    for data, expected in ((tokens_data(steps), tokens), (cost_data(steps), cost)):
        names = list(data.columns)[len(FIXED) + 1 :]
        assert names == list(expected)
        assert all(list(data[name]) == pytest.approx([value] * 3) for name, value in expected.items())


def test_a_limit_changed_during_the_run_has_the_value_of_each_step() -> None:
    changes = {1: {"max_tokens": 700}, 3: {"max_tokens": None}}
    steps = run_of(looping(end=5), changes=changes, budget=Budget(max_tokens=900, max_turns=9)).to_frame()

    assert listed(tokens_data(steps)["max_tokens"]) == [900, 700, 700, None, None]


def test_a_limit_of_one_run_is_unknown_for_the_other() -> None:
    with_limit = run_of(looping(end=2), budget=Budget(max_cost=0.5))
    without = run_of(looping(end=2), name="two")

    assert listed(cost_data(lab.frame([without, with_limit]))["max_cost_usd"]) == [None, None, 0.5, 0.5]


def test_a_column_whose_name_only_resembles_a_limit_is_ignored() -> None:
    names = ["max_tokens_per_turn", "MaxTokensUsed.value", "MaxTokensUsed_2.limit", "NotMaxTokensUsed.limit", "MaxCost.limit"]

    assert limit_columns(names, TOKENS) == {"MaxTokensUsed_2": "MaxTokensUsed_2.limit"}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param([5, 5], [5, 5, 5], [("r2", "r1")], id="one line for a limit shared by all"),
        pytest.param([5, 5], [5, 6, 6], [("r2",), ("r1",)], id="two if it was changed in one"),
        pytest.param([5, 6], [5, 6, 6], [("r2", "r1")], id="one if it was changed alike"),
        pytest.param([5, 5], [NA, NA, NA], [("r1",)], id="none for a run without it"),
        pytest.param([NA, 5], [NA, 5, 5], [("r2", "r1")], id="set later in both"),
    ],
)
def test_runs_share_the_line_of_a_limit_if_they_agree(first: Any, second: Any, expected: list[tuple[str, ...]]) -> None:
    limits = pd.array([*first, *second], dtype="Int64")
    data = tokens_data(steps_of(("one", HUNDREDS[:2]), ("two", HUNDREDS[:3]), max_tokens=limits))

    assert [course.run_ids for course in limit_courses(data, "max_tokens")] == expected


@pytest.mark.parametrize(
    ("limits", "changes"),
    [
        pytest.param([5, 5, 5, 5], (5,), id="never"),
        pytest.param([5, 5, 6, 6], (5, 6), id="once"),
        pytest.param([NA, 5, NA, 5], (None, 5, None, 5), id="set, removed, set"),
    ],
)
def test_the_changes_of_a_limit(limits: list[Any], changes: tuple[Any, ...]) -> None:
    data = tokens_data(steps_of(("one", HUNDREDS), max_tokens=pd.array(limits, dtype="Int64")))

    (course,) = limit_courses(data, "max_tokens")

    assert course.changes == changes
    assert course.steps == (1, 2, 3, 4)


# Stop reasons --------------------------------------------------------------------------------------------------------------


def test_stop_reasons_are_counted_by_provider_and_outcome() -> None:
    runs = runs_of(
        ("two", False, "turn_limit"),
        ("one", True, "completed"),
        ("one", None, None),
        ("one", False, "stop_condition"),
        ("one", True, "stop_condition"),
        ("one", True, "completed"),
        ("one", False, "a_new_reason"),
        ("one", None, "explicit_stop"),
    )

    assert [tuple(listed(row)) for row in stop_reasons_data(runs).itertuples(index=False)] == [
        ("two", "truncated", "turn_limit", 1),
        ("one", "terminated", "completed", 2),
        ("one", "terminated", "stop_condition", 1),
        ("one", "truncated", "stop_condition", 1),
        ("one", "truncated", "a_new_reason", 1),
        ("one", "ended", "explicit_stop", 1),
        ("one", "not_ended", None, 1),
    ]


def test_stop_reasons_of_real_runs() -> None:
    results = [
        run_of(looping(end=2)),
        run_of(looping(), budget=Budget(max_turns=2)),
        run_of(looping(), stop=HasToolCall("look")),
        run_of(looping(), stop=StepCountIs(2), name="two"),
    ]

    assert [tuple(row) for row in stop_reasons_data(lab.frame(results, "runs")).itertuples(index=False)] == [
        ("one", "terminated", "completed", 1),
        ("one", "terminated", "stop_condition", 1),
        ("one", "truncated", "turn_limit", 1),
        ("two", "truncated", "stop_condition", 1),
    ]


# Bad input -----------------------------------------------------------------------------------------------------------------

STEPS = steps_of(("one", [1, 2]))
RUNS = runs_of(("one", True, "completed"))


@pytest.mark.parametrize(
    ("function", "frame", "messages"),
    [
        pytest.param("tokens", RUNS, ["run_id, step, cumulative_tokens", "columns", "lab.frame(results)"], id="runs for steps"),
        pytest.param("cost", STEPS.drop(columns="cumulative_cost_usd"), ["column cumulative_cost_usd"], id="one column"),
        pytest.param("curves", STEPS.drop(columns="cumulative_tokens"), ["cumulative_tokens"], id="curves"),
        pytest.param("stop_reasons", STEPS, ["terminated, truncated", 'lab.frame(results, "runs")'], id="steps for runs"),
        pytest.param("tokens", [1, 2], ["list", "lab.frame(results)"], id="a list"),
        pytest.param("stop_reasons", None, ["NoneType", 'lab.frame(results, "runs")'], id="nothing"),
    ],
)
def test_an_undrawable_frame_is_an_error_that_says_what_to_pass(function: str, frame: Any, messages: list[str]) -> None:
    with pytest.raises(errors.ConfigurationError) as raised:
        getattr(lab.plots, function)(frame)

    assert all(words in str(raised.value) for words in messages), str(raised.value)


@pytest.mark.parametrize("frame", [pd.DataFrame(), STEPS.iloc[:0], lab.frame([])], ids=["nothing", "no rows", "no runs"])
def test_an_empty_frame_is_empty_data(frame: pd.DataFrame) -> None:
    assert list(tokens_data(frame).columns) == [*FIXED, "tokens"]
    assert tokens_data(frame).empty
    assert cost_data(frame).empty


@pytest.mark.parametrize("frame", [pd.DataFrame(), lab.frame([], "runs")], ids=["nothing", "no runs"])
def test_an_empty_runs_frame_is_empty_data(frame: pd.DataFrame) -> None:
    assert list(stop_reasons_data(frame).columns) == ["provider", "outcome", "stop_reason", "runs"]
    assert stop_reasons_data(frame).empty
