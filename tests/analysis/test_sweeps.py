"""All configurations of a grid at once give the figures of each configuration alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as lab
from agentlab import FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, Off, StepCountIs
from agentlab.analysis import backtest as module
from agentlab.analysis.simulate import Judge
from tests.measured_work import calls_in

RUNS, LONGEST = 40, 8


def frame(seed: int, runs: int = RUNS, *, units: bool = False) -> pd.DataFrame:
    """Made-up steps whose costs differ by many orders of magnitude; some usage is unknown, some runs were cut by their limits."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, LONGEST + 1, runs)
    run, rows = np.repeat(np.arange(runs), lengths), int(lengths.sum())
    step = np.arange(rows) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    is_last = np.append(run[1:] != run[:-1], True)
    ends = random.choice(["completed", "stop_condition", "turn_limit", "error"], runs, p=[0.6, 0.2, 0.1, 0.1])
    tokens = pd.array(random.integers(1, 2_000, rows), dtype="Int64")
    tokens[random.random(rows) < 0.05 * (seed % 2)] = pd.NA
    made = pd.DataFrame({
        "run_id": [f"run {number}" for number in run],
        "step": step,
        "calls": 1,
        "total_tokens": tokens,
        "cost_usd": random.lognormal(-6, 4, rows),
        "started_s": step.astype(float),
        "duration_s": random.random(rows),
        "tools": random.choice(["look", "finalize", "look, finalize", ""], rows, p=[0.6, 0.1, 0.1, 0.2]),
        "finish_reason": random.choice(["tool_calls", "length"], rows),
        "action": np.where(is_last & (ends[run] == "completed"), "complete", "execute_tools"),
        "stop_reason": np.where(is_last, ends[run], None),
        "provider": np.array(["a", "b", "c"])[run % 3],
    })  # fmt: skip
    return made.assign(prompt_id=random.integers(0, runs // 3, runs)[run]) if units else made


TOKENS = [1, 300, 900, 1_500, 2_100, 3_000, 4_500, 6_000, 9_000, 20_000]
COSTS = [f"{value:.12f}" for value in np.geomspace(1e-8, 1e4, 14)]
STEPS = list(range(1, LONGEST + 4))

TRIED: dict[str, tuple[Any, Any]] = {
    "tokens": (MaxTokensUsed(TOKENS), None),
    "cost": (MaxCost(COSTS), None),
    "a goal beside it": (MaxCost(COSTS) | HasToolCall("finalize"), None),
    "three axes": (StepCountIs(STEPS) | MaxTokensUsed(TOKENS[::5]) | MaxCost(COSTS[::7]), None),
    "both": (StepCountIs(STEPS) & MaxTokensUsed(TOKENS[::3]), None),
    "a budget": (None, {"max_tokens": TOKENS, "max_turns": [2, 5, 20]}),
    "a condition and a budget": (FinishReasonIs("length") | StepCountIs(STEPS), {"max_cost": 0.5, "max_tokens": TOKENS[::4]}),
    "two grids": ({"a": StepCountIs(STEPS) | Off(MaxCost(1)), "b": MaxCost(COSTS)}, None),
}
ALONE: dict[str, tuple[Any, Any]] = {
    "time": (StepCountIs(STEPS), {"timeout": [1, 5]}),
    "a last answer": (StepCountIs(STEPS), {"max_calls": [2, 4], "last_answer": 0.2}),
    "a goal with another condition": ((HasToolCall("finalize") & StepCountIs(2)) | StepCountIs(STEPS), None),
    "goals on an axis": (HasToolCall("finalize") | ~StepCountIs(STEPS), None),
}


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The number of grids that were simulated at once."""
    count, sweep = [0], Judge.sweep

    def counting(self: Judge, grid: Any) -> Any:
        found = sweep(self, grid)
        count[0] += found is not None
        return found

    monkeypatch.setattr(Judge, "sweep", counting)
    monkeypatch.setattr(module, "STEPS_PER_SWEEP", 1)
    return count


def one_by_one(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    with monkeypatch.context() as patched:
        patched.setattr(Judge, "sweep", lambda self, grid: None)
        return ask()


COMBINED = [  # (seed, by, goal, prompts as units): together, every pair of their values
    [(0, None, False, False), (1, None, True, False), (2, None, False, True)],
    [(0, "provider", True, True), (1, "provider", False, True), (2, "provider", True, False)],
]
AT_ONCE = (10**6, 7 * RUNS, 1)


@pytest.mark.parametrize("combined", COMBINED, ids=["together", "by provider"])
@pytest.mark.parametrize("name", [*TRIED, *ALONE])
def test_a_sweep_gives_the_figures_of_each_configuration(
    name: str, combined: Any, swept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions, budget = (TRIED | ALONE)[name]
    for seed, by, with_goal, units in combined:
        monkeypatch.setattr(module, "MAX_CHANGES", AT_ONCE[seed])
        steps, goal = frame(seed, units=units), HasToolCall("finalize") if with_goal else None
        made = lab.backtest(steps, conditions, budget=budget, by=by, goal=goal)
        expected = one_by_one(monkeypatch, lambda: lab.backtest(steps, conditions, budget=budget, by=by, goal=goal))  # noqa: B023
        pd.testing.assert_frame_equal(made, expected, rtol=1e-10, atol=2e-12)
    assert bool(swept[0]) == (name in TRIED or name == "a goal with another condition")  # of that one, with its own goal


def test_a_sum_that_loses_its_digits_is_added_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run uses a billion dollars and is unknown afterwards; the others use next to nothing, and the same."""
    rows = [
        {"run_id": "rich", "step": step, "calls": 1, "total_tokens": 1, "cost_usd": 1e9 if step == 2 else 0.1} for step in (1, 2)
    ]
    for number in range(12):
        rows += [
            {"run_id": f"poor {number}", "step": step, "calls": 1, "total_tokens": 1, "cost_usd": 1e-7} for step in range(1, 9)
        ]
    steps = pd.DataFrame(rows).assign(duration_s=1.0, action="execute_tools", stop_reason=None)
    tried = StepCountIs([*range(1, 9)]) | MaxTokensUsed([100, 200])
    made = lab.backtest(steps, tried)
    expected = one_by_one(monkeypatch, lambda: lab.backtest(steps, tried))
    pd.testing.assert_frame_equal(made, expected, rtol=1e-10, atol=2e-12)
    assert made["cost_low"].isna().iloc[-3:].all()  # all that are known are the same


def test_the_work_grows_with_the_ends_that_change_and_not_with_the_configurations() -> None:
    steps = frame(0)
    few, many = (MaxTokensUsed(list(range(1, 20_000, by))) for by in (1_000, 20))
    for tried in (few, many):
        lab.backtest(steps, tried)
    assert calls_in(lambda: lab.backtest(steps, many)) < 12 * calls_in(lambda: lab.backtest(steps, few))  # of 50 times as many
