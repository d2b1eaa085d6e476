"""`lab.backtest`: its inputs, its answers, and both sides of each limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as lab
from agentlab import Budget, FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, Off, StepCountIs
from agentlab.analysis import backtest as frames
from agentlab.analysis.backtest import goal_reached
from agentlab.analysis.grids import grids
from agentlab.analysis.sources import records_of
from agentlab.errors import AgentlabWarning, ConfigurationError, LimitError
from agentlab.model.finish_reasons import FinishReason
from agentlab.records.history import RunHistory
from agentlab.testing import ScriptedProvider, call, say

from .builders import agent, run

FIVE = [call("look", {}, tokens=(10, 5), cost="0.01") for _ in range(4)]


def five() -> lab.RunResult:
    """Five steps: four tool calls of 15 tokens and a cent each, then the end (5 tokens, 0.001 USD)."""
    return run(FIVE)


def twice() -> pd.DataFrame:
    """A frame that contains a run twice."""
    return pd.concat([lab.frame(five()), lab.frame(five())]).assign(run_id="a")


def row(recorded: Any, conditions: Any = None, **more: Any) -> dict[str, Any]:
    """The only row of a run, with NA as None."""
    frame = lab.backtest(recorded, conditions, per="run", **more)
    assert len(frame) == 1
    return {str(name): None if pd.isna(value) else plain(value) for name, value in frame.iloc[0].items()}


def plain(value: Any) -> Any:
    """A NumPy value as the equivalent Python value."""
    return value.item() if isinstance(value, np.generic) else value


# Both sides of each limit -----------------------------------------------------------------------------------------------------

EDGES: dict[str, tuple[Any, Any, str, int]] = {
    "steps-before": (StepCountIs(4), None, "stopped", 4),
    "steps-at-the-end": (StepCountIs(5), None, "finished", 5),
    "steps-behind": (StepCountIs(6), None, "finished", 5),
    "tokens-at": (MaxTokensUsed(30), None, "stopped", 2),
    "tokens-above": (MaxTokensUsed(31), None, "stopped", 3),
    "cost-at": (MaxCost("0.03"), None, "stopped", 3),
    "cost-above": (MaxCost("0.0300001"), None, "stopped", 4),
    "cost-at-the-end": (MaxCost("0.041"), None, "finished", 5),
    "turns": (None, {"max_turns": 2}, "stopped", 2),
    "turns-at-the-end": (None, {"max_turns": 5}, "finished", 5),
    "calls": (None, {"max_calls": 3}, "stopped", 3),
    "tokens-of-a-budget": (None, {"max_tokens": 45}, "stopped", 3),
    "cost-of-a-budget": (None, {"max_cost": 0.02}, "stopped", 2),
    "never": (HasToolCall("nobody"), None, "finished", 5),
    "at-once": (HasToolCall("look"), None, "stopped", 1),
    "off": (Off(StepCountIs(1)), None, "finished", 5),
    "off-beside": (Off(StepCountIs(1)) | StepCountIs(3), None, "stopped", 3),
    "all-of": (StepCountIs(2) & MaxCost("0.03"), None, "stopped", 3),
    "not": (~HasToolCall("look"), None, "finished", 5),
    "not-the-first": (~StepCountIs(2), None, "stopped", 1),
    "reason": (FinishReasonIs(FinishReason.TOOL_CALLS), None, "stopped", 1),
}


@pytest.mark.parametrize(("stop", "budget", "outcome", "step"), EDGES.values(), ids=EDGES.keys())
def test_the_step_at_which_a_run_stops(stop: Any, budget: Any, outcome: str, step: int) -> None:
    record = five()
    for recorded in (record, [record], lab.frame(record)):
        answer = row(recorded, stop, budget=budget)
        assert (answer["outcome"], answer["step"]) == (outcome, step)
        assert answer["goal_reached"] is (outcome == "finished" or isinstance(stop, HasToolCall))


def test_usage_up_to_the_stop_and_savings_after_it() -> None:
    answer = row(five(), StepCountIs(2))
    assert (answer["tokens"], answer["cost_usd"], answer["calls"]) == (30, 0.02, 2)
    assert (answer["tokens_saved"], answer["cost_saved"], answer["calls_saved"]) == (35, pytest.approx(0.021), 3)
    assert 0 < answer["time_s"] < answer["time_s"] + answer["time_saved"]
    assert (answer["stop_reason"], answer["fired"], answer["configuration"]) == ("stop_condition", "StepCountIs", 0)


def test_a_truncated_record_gives_no_answer_after_its_end() -> None:
    record = run(FIVE, StepCountIs(3))
    assert row(record, StepCountIs(3))["outcome"] == "stopped"
    answer = row(record, StepCountIs(4))
    assert answer["outcome"] == "unknown"
    nothing = (
        "step",
        "stop_reason",
        "fired",
        "goal_reached",
        "tokens",
        "cost_usd",
        "calls",
        "time_s",
        "tokens_saved",
        "cost_saved",
    )
    assert all(answer[name] is None for name in nothing)
    table = lab.backtest([record, five()], StepCountIs([3, 4, 5]))
    assert list(table["unknown"]) == [0, 1, 1]
    assert list(table["unknown_share"]) == [0.0, 0.5, 0.5]
    assert list(table["tokens_mean"]) == [45.0, 60.0, 65.0]  # of the run that can answer
    assert list(table["step_mean"]) == [3.0, 4.0, 5.0]


def test_unreported_usage_stays_unknown() -> None:
    record = run([call("look", {}, tokens=(10, 5)), call("look", {}, tokens=(None, 5)), call("look", {})])
    assert row(record, StepCountIs(1))["tokens"] == 15
    assert row(record, StepCountIs(2))["tokens"] is None
    known = row(record, MaxTokensUsed(20))  # the known part already reaches it
    assert (known["step"], known["tokens"]) == (2, None)
    assert row(record, MaxTokensUsed(25))["step"] == 3
    assert row(record, ~MaxTokensUsed(10**6))["step"] == 1  # certainly not met before the usage becomes unknown


def test_a_run_of_more_than_255_steps() -> None:
    record = run([call("look", {}, tokens=(1, 0))] * 300)
    table = lab.backtest(record, StepCountIs([254, 255, 256, 257, 301]), per="run")
    assert list(table["step"]) == [254, 255, 256, 257, 301]
    table = lab.backtest(record, MaxTokensUsed([255, 256, 257]) | MaxCost([5, 6]), per="run")
    assert list(table["step"]) == [255, 255, 256, 256, 257, 257]


@pytest.mark.usefixtures("fake_time")
def test_a_time_limit_reached_in_the_middle_of_a_step() -> None:
    async def slow() -> lab.RunResult:
        async def wait() -> str:
            """Wait."""
            await asyncio.sleep(0.05)
            return "done"

        return await lab.Agent(ScriptedProvider([call("wait", {})] * 3 + ["end"]), tools=[wait]).run("go")

    record = asyncio.run(slow())
    second = record.history[1]
    answer = row(record, budget={"timeout": second.started_s + 0.02})
    assert (answer["outcome"], answer["step"], answer["stop_reason"]) == ("stopped", 2, "timeout")
    assert (answer["tokens"], answer["calls"], answer["time_s"]) == (30, 2, pytest.approx(second.started_s + 0.02))
    before = row(record, budget={"timeout": max(second.started_s, 1e-9)})
    assert (before["step"], before["stop_reason"]) == (1, "timeout") or before["calls"] == 1
    of_frame = row(lab.frame(record), budget={"timeout": second.started_s + 0.02})
    assert (of_frame["step"], of_frame["tokens"], of_frame["outcome"]) == (2, None, "stopped")


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize("timeout_s", [0.5, 2.4, 2.6, 9.0])
def test_a_wait_for_approval_counts_as_in_a_live_run(timeout_s: float) -> None:
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def approver(pending: lab.PendingCall) -> bool:
        await asyncio.sleep(2.5)
        return True

    async def live(budget: Budget) -> lab.RunResult:
        model = ScriptedProvider([call("pay", {}, cost="0.01"), call("pay", {}, cost="0.01"), say("end", cost="0.01")])
        return await lab.Agent(model, tools=[pay]).run("go", approve=True, approver=approver, budget=budget)

    record = asyncio.run(live(Budget(max_turns=9)))
    result = asyncio.run(live(Budget(max_turns=9, timeout=timeout_s)))
    answer = row(record, budget={"timeout": timeout_s})
    assert answer["outcome"] == ("finished" if result.terminated else "stopped")
    assert (answer["step"], answer["stop_reason"]) == (len(result.history), str(result.stop_reason))
    assert (answer["tokens"], answer["calls"]) == (result.history.tokens, result.history.calls)
    assert answer["time_s"] == pytest.approx(result.history.elapsed_s, abs=0.01)
    assert lab.frame(result, "steps")["duration_s"].sum() == pytest.approx(result.history.elapsed_s, abs=0.01)
    if result.truncated:
        assert row(result, budget={"timeout": 60})["outcome"] == "unknown"


# Grids --------------------------------------------------------------------------------------------------------------------------


def test_a_list_of_values_is_an_axis() -> None:
    table = lab.backtest([five(), five()], StepCountIs([2, 4]) | MaxCost([0.01, "0.05"]), budget={"max_calls": [3]})
    assert list(table.columns[:4]) == ["configuration", "StepCountIs", "MaxCost", "max_calls"]
    assert table[["StepCountIs", "MaxCost", "max_calls"]].to_numpy().tolist() == [
        [2, 0.01, 3], [2, 0.05, 3], [4, 0.01, 3], [4, 0.05, 3]
    ]  # fmt: skip
    assert list(table["step_mean"]) == [1.0, 2.0, 1.0, 3.0]
    assert (table["runs"] == 2).all()


def test_several_conditions_are_labelled_by_name() -> None:
    table = lab.backtest(
        five(),
        {"short": StepCountIs(2), "long": None, "tools": HasToolCall(["look", ("nobody", "look")])},
        budget={"max_turns": 4},
    )
    assert list(table["configuration"]) == ["short", "long", "tools", "tools"]
    assert list(table["step_mean"]) == [2, 4, 1, 1]
    assert list(table["HasToolCall"].fillna("")) == ["", "", "look", "nobody or look"]
    listed = lab.backtest(five(), [StepCountIs(2), MaxCost(0.03)])
    assert list(listed["configuration"]) == ["StepCountIs(steps=2)", "MaxCost(0.03)"]


def test_two_conditions_of_one_kind_have_separate_columns() -> None:
    table = lab.backtest(five(), (StepCountIs([1, 2]) & HasToolCall("nobody")) | StepCountIs([3, 4]))
    assert list(table.columns[1:3]) == ["StepCountIs", "StepCountIs_2"]
    assert list(table["step_mean"]) == [3, 4, 3, 4]


def test_a_run_does_not_accept_a_grid() -> None:
    with pytest.raises(LimitError, match=r"StepCountIs\(steps=\[2, 4\]\) is a grid for lab.backtest"):
        agent([]).run("go", stop=StepCountIs([2, 4]))


# Inputs -------------------------------------------------------------------------------------------------------------------------


def test_a_store_and_an_experiment_are_accepted(tmp_path: Path) -> None:
    async def main() -> Any:
        study = lab.Experiment(
            [agent(FIVE)], ["a", "b"], repeats=2, store=tmp_path / "runs.db", score=lambda result: len(result.history) == 5
        )
        return await study.run(progress=False)

    results = asyncio.run(main())
    with lab.Store(tmp_path / "runs.db") as store:
        for recorded in (results, store):
            table = lab.backtest(recorded, StepCountIs([2, 5]) | (lambda history: len(history) > 3))
            assert list(table["step_mean"]) == [2, 4]
            assert list(table["runs"]) == [4, 4]
    by = lab.backtest(results, StepCountIs(2), by=["prompt_id"])
    assert list(by["prompt_id"]) == ["p1", "p2"]
    assert list(by["runs"]) == [2, 2]
    scored = lab.backtest(results, StepCountIs([4, 5]), goal="score")
    assert list(scored["success_rate"]) == [0.0, 1.0]


def test_a_running_run_and_a_run_without_steps() -> None:
    async def main() -> list[lab.Run]:
        two, none = agent(FIVE).run("go"), agent(FIVE).run("go")
        await two.step()
        await two.step()
        return [two, none]

    table = lab.backtest(asyncio.run(main()), StepCountIs([1, 3]), per="run")
    assert list(table["outcome"]) == ["stopped", "unknown", "unknown", "unknown"]


def test_sub_agents_count_in_their_caller_and_are_no_separate_runs(tmp_path: Path) -> None:
    scout = lab.Agent(ScriptedProvider([say("found", tokens=(100, 100))]), name="scout")
    with lab.Store(tmp_path / "runs.db") as store:
        boss = lab.Agent(
            ScriptedProvider([call("scout", {"task": "look"}), "end"]),
            tools=[scout.as_tool("scout", "Looks.")],
            observers=[store],
        )

        async def main() -> lab.RunResult:
            return await boss.run("go")

        result = asyncio.run(main())
        for recorded in (result, store):
            assert row(recorded, StepCountIs(1))["tokens"] == 215
            assert row(recorded, MaxTokensUsed(200))["step"] == 1
            # it would have been limited to the remaining budget, which is unknown
            inside = row(recorded, budget={"max_tokens": 100})
            assert (inside["step"], inside["tokens"]) == (1, None)


def test_row_order_does_not_change_the_answer() -> None:
    steps = lab.frame([five(), five(), five()])
    mixed = steps.sample(frac=1, random_state=1)
    first = lab.backtest(steps, StepCountIs([2, 4]) | MaxCost("0.03"), per="run").sort_values(["configuration", "run_id"])
    again = lab.backtest(mixed, StepCountIs([2, 4]) | MaxCost("0.03"), per="run").sort_values(["configuration", "run_id"])
    pd.testing.assert_frame_equal(first.reset_index(drop=True), again.reset_index(drop=True))


def test_a_foreign_frame_without_running_totals() -> None:
    steps = pd.DataFrame(
        {"run_id": ["a"] * 3, "step": [1, 2, 3], "total_tokens": [5, 5, 5], "cost_usd": [0.1, 0.1, 0.1], "duration_s": 1.0}
    )
    assert row(steps, MaxTokensUsed(10))["step"] == 2
    assert row(steps, MaxCost("0.3"))["step"] == 3  # three times 0.1, exactly, despite binary floats
    assert row(steps, budget={"timeout": 2})["step"] == 2
    assert row(steps, StepCountIs(4))["outcome"] == "unknown"  # no field shows that it ended
    with pytest.raises(ConfigurationError, match=r"no column 'tools', which HasToolCall needs"):
        lab.backtest(steps, HasToolCall("look"))


def test_a_limit_that_a_later_credit_undoes_was_met_nonetheless() -> None:
    steps = pd.DataFrame(
        {"run_id": "a", "step": [1, 2, 3], "cost_usd": [0.02, -0.015, 0.001], "duration_s": 1.0, "started_s": [0.0, 3.0, 1.0]}
    )
    assert row(steps, MaxCost("0.02"))["step"] == row(steps, budget={"max_cost": "0.02"})["step"] == 1
    assert row(steps, budget={"timeout": 4})["step"] == 2  # also by the time of a frame whose clock was put back


def test_chunked_simulation_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    rows = [
        {"run_id": f"r{number}", "step": place + 1, "total_tokens": int(rng.integers(1, 50)), "cost_usd": 0.01, "duration_s": 1.0,
         "calls": 1, "action": "complete", "stop_reason": "completed" if place == number % 7 else None}
        for number in range(2_500) for place in range(number % 7 + 1)
    ]  # fmt: skip
    steps = pd.DataFrame(rows)
    tried = MaxTokensUsed(list(range(1, 200, 10))) | (StepCountIs([2, 4]) & MaxTokensUsed(30))
    whole = lab.backtest(steps, tried), lab.backtest(steps, tried, per="run")
    monkeypatch.setattr(frames, "MAX_FIRST_ROWS", 1)
    pd.testing.assert_frame_equal(lab.backtest(steps, tried), whole[0])
    pd.testing.assert_frame_equal(lab.backtest(steps, tried, per="run"), whole[1])


# Goals --------------------------------------------------------------------------------------------------------------------------

GOALS: dict[str, tuple[Any, list[bool | None]]] = {
    "none": (None, [False, True]),
    "condition": (StepCountIs(2), [True, True]),
    "function": (lambda history: len(history) >= 4, [False, True]),
    "tool": (HasToolCall("look"), [True, True]),
    "never": (HasToolCall("nobody"), [False, False]),
}


@pytest.mark.parametrize(("goal", "reached"), GOALS.values(), ids=GOALS.keys())
def test_the_values_that_count_as_success(goal: Any, reached: list[bool | None]) -> None:
    assert list(lab.backtest(five(), StepCountIs([3, 5]), goal=goal, per="run")["goal_reached"]) == reached


def test_a_goal_given_as_values_by_run() -> None:
    runs = [five(), five(), five()]
    values = dict(zip([one.run_id for one in runs], [1, 0.5, None], strict=True))
    table = lab.backtest(runs, StepCountIs([4, 5]), goal=values, per="run")
    assert [None if pd.isna(one) else bool(one) for one in table["goal_reached"]] == [False, False, False, True, False, None]
    assert list(lab.backtest(runs, StepCountIs(5), goal=pd.Series(values))["success_rate"]) == [0.5]


def test_a_call_of_a_terminating_tool_is_success() -> None:
    record = run([call("look", {}), call("finalize", {"answer": "42"}), call("look", {})])
    assert row(record, HasToolCall("finalize"))["goal_reached"] is True
    assert row(record, HasToolCall("look"), goal=HasToolCall("finalize"))["goal_reached"] is False


# Bad input ----------------------------------------------------------------------------------------------------------------------

FIVE_MILLION_AND_ONE = StepCountIs(range(1, 142)) | MaxTokensUsed(range(1, 35_462))  # on two axes, which are made faster than one
REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "nothing": (lambda: lab.backtest(five()), ConfigurationError, "Nothing to try"),
    "no-runs": (lambda: lab.backtest([], StepCountIs(2)), ConfigurationError, "has no runs"),
    "no-record": (lambda: lab.backtest("runs.db", StepCountIs(2)), ConfigurationError, "'runs.db' is not a record of runs"),
    "number": (lambda: lab.backtest(3, StepCountIs(2)), ConfigurationError, "3 is not a record"),
    "empty-list": (lambda: lab.backtest(five(), []), ConfigurationError, "The list of conditions is empty"),
    "empty-dict": (lambda: lab.backtest(five(), {}), ConfigurationError, "The dict of conditions is empty"),
    "empty-axis": (lambda: lab.backtest(five(), StepCountIs([])), LimitError, "the list is empty"),
    "class": (lambda: lab.backtest(five(), StepCountIs), ConfigurationError, "is a class"),
    "budget": (lambda: lab.backtest(five(), budget=5), LimitError, "budget=5: pass a Budget"),
    "limit": (lambda: lab.backtest(five(), budget={"max_turn": 5}), LimitError, "Did you mean 'max_turns'"),
    "zero": (lambda: lab.backtest(five(), budget={"max_turns": [2, 0]}), LimitError, "max_turns=0"),
    "cap": (lambda: lab.backtest(five(), budget=Budget(max_tokens_per_turn=5)), LimitError, "the model would give other answers"),
    "per": (lambda: lab.backtest(five(), StepCountIs(2), per="step"), ConfigurationError, "per='step'"),
    "by": (lambda: lab.backtest(five(), StepCountIs(2), by="providers"), ConfigurationError, "Did you mean 'provider'"),
    "goal": (lambda: lab.backtest(five(), StepCountIs(2), goal="scor"), ConfigurationError, "goal='scor'"),
    "level": (lambda: lab.backtest(five(), StepCountIs(2), level=95), ConfigurationError, "level=95"),
    "custom": (lambda: lab.backtest(lab.frame(five()), lambda history: True), ConfigurationError, "reads the history of each run"),
    "columns": (lambda: lab.backtest(pd.DataFrame({"a": [1]}), StepCountIs(2)), ConfigurationError, "no column 'run_id'"),
    "filtered": (lambda: lab.backtest(lab.frame(five()).iloc[2:], StepCountIs(2)), ConfigurationError, "step 3 where step 1"),
    "twice": (lambda: lab.backtest(twice(), StepCountIs(2)), ConfigurationError, "step 1 where step 2"),
    "same-run": (lambda: lab.backtest([(one := five()), one], StepCountIs(2)), ConfigurationError, "occurs twice"),
    "runs": (lambda: lab.backtest(five(), StepCountIs(2), runs=pd.DataFrame()), ConfigurationError, "only be passed with a steps"),
    "too-many-rows": (lambda: lab.backtest(five(), FIVE_MILLION_AND_ONE, per="run"), ConfigurationError, "leave out per"),
}  # fmt: skip


@pytest.mark.parametrize(("ask", "kind", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_an_unusable_configuration_is_an_error(ask: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        ask()
    assert message in str(caught.value)


def test_a_raising_condition_ends_the_run_at_that_step() -> None:
    def third(history: RunHistory) -> bool:
        if len(history) == 3:
            raise ValueError("three")
        return False

    with pytest.warns(
        AgentlabWarning, match=r"Custom\(third\) raised in 1 of 1 run, first ValueError: three\. Such a run ends there"
    ):
        answer = row(five(), third)
    assert (answer["outcome"], answer["step"], answer["stop_reason"]) == ("stopped", 3, "error")


def test_a_goal_that_raised_is_unknown_from_there_on() -> None:
    def fourth(history: RunHistory) -> bool:
        if len(history) == 3:
            raise ValueError("three")
        return False

    async def later(history: RunHistory) -> bool:
        return fourth(history)

    for goal in (fourth, later):
        with pytest.warns(AgentlabWarning, match=r"raised in 1 of 1 run, first ValueError: three"):
            frame = lab.backtest(five(), StepCountIs([2, 4, 9]), goal=goal, per="run")
        assert frame["goal_reached"].astype(object).where(frame["goal_reached"].notna(), None).tolist() == [False, None, None]
    several = [five(), five()]
    with pytest.warns(AgentlabWarning, match="raised in 2 of 2 runs"):  # so many limits that the ends of the runs are swept
        swept = lab.backtest(several, StepCountIs([*range(1, 60)]), goal=fourth)
    assert swept["success_unknown"].tolist() == [0.0] * 2 + [1.0] * 57
    assert swept["success_rate"].tolist()[:2] == [0.0] * 2 and swept["success_rate"].isna().sum() == 57
    with pytest.warns(AgentlabWarning, match="Custom"):
        none = lab.backtest(five(), StepCountIs(9), goal=lambda history: history.text)  # type: ignore[attr-defined]
    assert none["success_rate"].isna().all() and none["success_unknown"].tolist() == [1]
    with pytest.warns(AgentlabWarning, match="Custom"):
        assert "for 1 run it is unknown" in lab.suggest(five(), goal=lambda history: history.text).why[0]  # type: ignore[attr-defined]


def test_each_condition_is_read_once_for_all_configurations() -> None:
    asked: list[int] = []

    def count(history: RunHistory) -> bool:
        asked.append(len(history))
        return False

    lab.backtest(five(), StepCountIs([1, 2, 3]) | count)
    assert asked == [1, 2, 3, 4, 5]


def test_the_goal_is_read_over_whole_runs() -> None:
    records = records_of([five()])
    reached, open_from = goal_reached(records, StepCountIs(3))
    assert list(reached) == [2]
    assert list(open_from) == [5], "never"
    task = frames.Task(records, grids(StepCountIs([1, 2]), None), reached, open_from)
    assert task.size == 2
