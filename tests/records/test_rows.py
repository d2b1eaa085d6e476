"""Reading the steps of many runs by column gives the same values as reading them by row."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from engine.builders import result_of
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import Budget, Custom, HasToolCall, MaxCost, MaxTokensUsed, StepCountIs, errors
from agentlab.records.columns import STEP_COLUMNS, named_leaves, plain, source_of, step_rows
from agentlab.records.frames import STEPS_AT_ONCE, attributes, repetition
from agentlab.testing import call, say

LIMITED = Budget(max_turns=9, max_calls=9, max_tokens_per_turn=50, timeout=60)
SAID = st.sampled_from(
    [
        call("look", {"q": "a"}, text="Let me see. ", cost="0.1"),
        call("nobody", cost="0.25"),
        call("look", tokens=(None, 7)),
        call("look", tokens=(12, None), cost="0.000001"),
    ]
)
CONDITIONS = st.sampled_from(
    [
        None,
        StepCountIs(5),
        StepCountIs(9) | HasToolCall("x") | MaxCost(1) | Custom(len),
        (StepCountIs(3) & ~HasToolCall("nobody")) | StepCountIs(8),
        MaxTokensUsed(45) | MaxCost("0.3"),
    ]
)
LAST = st.sampled_from([say("end"), say("end", cost="0.3"), errors.ProviderStatusError("no", status=400)])
RUNS = st.tuples(st.lists(SAID, max_size=7), LAST, CONDITIONS, st.sampled_from([Budget(), LIMITED]))


@pytest.mark.filterwarnings("ignore::agentlab.AgentlabWarning")  # of unknown usage
@settings(max_examples=30, deadline=None)
@given(runs=st.lists(RUNS, max_size=4))
def test_reading_by_column_equals_reading_by_row(runs: list[Any]) -> None:
    """Stores read single rows, frames whole columns: both give the same values."""
    results = [result_of([*script, last], stop=stop, budget=budget) for script, last, stop, budget in runs]
    frame = lab.frame(results)
    row = 0
    for result in results:
        source = source_of(result)
        for step, sums in zip(result.history, step_rows(result.history), strict=True):
            for column in STEP_COLUMNS:
                value = column.read(source, sums)
                cell = frame[column.name][row]
                assert cell is pd.NA if value is None else type(cell)(value) == cell, column.name
            leaves = named_leaves(step.readings) if step.readings is not None else {}
            for name in {name.rpartition(".")[0] for name in frame.columns[len(STEP_COLUMNS) :]}:
                leaf = leaves.get(name)
                for part in ("value", "limit", "met"):
                    value = None if leaf is None else plain(getattr(leaf, part))
                    cell = frame[f"{name}.{part}"][row]
                    assert cell is pd.NA if value is None else cell == value, f"{name}.{part}"
            row += 1
    assert row == len(frame)


def test_the_steps_of_many_runs_are_in_order() -> None:
    """There are more steps than one query reads."""
    results = [result_of([call("look", cost="0.1")] * 19 + [say("end", cost="0.2")]) for _ in range(40)]
    frame = lab.frame(results)
    assert len(frame) == 800 > STEPS_AT_ONCE
    assert frame["run_id"].tolist() == [result.run_id for result in results for _ in range(20)]
    assert frame["step"].tolist() == [*range(1, 21)] * 40
    assert frame["cumulative_tokens"].tolist() == [15 * step for step in range(1, 21)] * 40
    assert frame["stop_reason"].dropna().index.tolist() == [*range(19, 800, 20)]


def test_an_attribute_of_none_is_none() -> None:
    usage = lab.Usage(7, 5)
    assert attributes([usage, usage], "total_tokens") == [12, 12]
    assert attributes([usage, None], "total_tokens") == [12, None]
    with pytest.raises(AttributeError, match="nothing_such"):
        attributes([usage], "nothing_such")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        (["a"] * 7, None),
        (["a"] * 8, (["a"], [8])),
        (["a"] * 6 + ["b"] * 6, (["a", "b"], [6, 6])),
        (list("abcdefghijkl"), None),
    ],
    ids=["none", "too few", "one", "two", "all differ"],
)
def test_repeated_values_are_grouped(values: list[str], expected: object) -> None:
    assert repetition(values) == expected
