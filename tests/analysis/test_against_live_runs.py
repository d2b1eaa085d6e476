"""What-if answers agree with the live loop, step for step, and with reading every prefix."""

from __future__ import annotations

import asyncio
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import Budget, Custom, FinishReasonIs, HasToolCall, MaxTokensUsed, StepCountIs, StopReason
from agentlab.analysis.conditions import latches, reading_name
from agentlab.errors import ProviderConnectionError
from agentlab.limits.combinators import StopCondition
from agentlab.limits.evaluation import read_condition
from agentlab.model.finish_reasons import FinishReason
from agentlab.records.history import RunHistory
from agentlab.testing import Said, ScriptedProvider, call, say

from .builders import (
    UNBOUNDED,
    RaisesFrom,
    any_tree,
    budgets,
    built_in_tree,
    odd,
    raises_later,
    raises_without_text,
    run,
    scripts,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:[\\s\\S]* raised in :agentlab.errors.AgentlabWarning"
)  # many conditions here raise

OF_LIMITS = {StopReason.TURN_LIMIT, StopReason.CALL_LIMIT, StopReason.TOKEN_BUDGET, StopReason.COST_BUDGET, StopReason.TIMEOUT}
CUT_OFF = {*OF_LIMITS, StopReason.STOP_CONDITION}


def only(frame: pd.DataFrame) -> dict[str, Any]:
    """The only row, with NA as None."""
    assert len(frame) == 1
    return {str(name): None if pd.isna(value) else value for name, value in frame.iloc[0].items()}


def budget_of(limits: Budget) -> dict[str, Any]:
    """The limits of a budget in the form that `lab.backtest` tries."""
    kept = {name: getattr(limits, name) for name in ("max_turns", "max_calls", "max_tokens", "max_cost")}
    return {name: value for name, value in kept.items() if value is not None}


def assert_agrees(answer: dict[str, Any], record: lab.RunResult, live: lab.RunResult, limits: dict[str, Any]) -> None:
    """Assert that the answer is what the live run did, unless the record ends before that."""
    in_mid_step = "max_tokens" in limits and len(live.history[-1].calls) > 1
    if answer["outcome"] == "unknown":  # a call that continues a cut answer would have been limited to the remaining tokens
        assert record.stop_reason in CUT_OFF or in_mid_step
        # whether one last answer follows a step that is cut off between its calls is unknown
        assert len(live.history) >= len(record.history) or (in_mid_step and "last_answer" in limits)
        return
    assert answer["outcome"] == ("stopped" if live.stop_reason in CUT_OFF or _failed(live) else "finished")
    assert answer["step"] == len(live.history)
    if in_mid_step and answer["calls"] is None:
        return
    assert answer["stop_reason"] == live.stop_reason.value
    if live.stop_reason not in OF_LIMITS:
        assert answer["fired"] == (", ".join(map(reading_name, live.conditions_met)) or None)
    else:
        assert f"Budget reached: {answer['fired']} " in live.detail or "left no further call" in live.detail
    assert answer["calls"] == live.history.calls
    assert answer["tokens"] == live.history.tokens
    assert answer["cost_usd"] == (
        None if live.history.cost_usd is None else pytest.approx(float(live.history.cost_usd), abs=1e-12)
    )
    same_end = record.terminated and live.history.calls == record.history.calls and not _failed(live)
    reached = live.terminated or same_end
    if (
        answer["goal_reached"] is not None or "max_tokens" not in limits
    ):  # open if max_tokens is reached in a call that is not made
        assert answer["goal_reached"] == reached


def _failed(live: lab.RunResult) -> bool:
    """True if a condition raised; False if the provider failed."""
    return live.stop_reason is StopReason.ERROR and "stop condition" in live.detail


# Cases by hand ----------------------------------------------------------------------------------------------------------------


def under(script: list[Said], stop: StopCondition | None, limits: dict[str, Any]) -> lab.RunResult:
    """Run under these limits, and no other."""
    return run(script, stop, Budget(**{**dict.fromkeys(("max_turns", "max_tokens"), None), **limits}))


def part(tokens: tuple[int | None, int | None]) -> Said:
    """An answer that the next call of the same step continues."""
    return say("some words", finish=FinishReason.PAUSED, tokens=tokens)


LOOK = call("look", {}, tokens=(10, 5))
UNKNOWN_FIRST = [call("look", {}, tokens=(None, 5)), LOOK]

CASES: dict[str, tuple[list[Said], StopCondition | None, dict[str, Any]]] = {
    "tokens of a step before are partly unknown": ([call("look", {}, tokens=(None, 12)), part((3, 2)), LOOK], None, {"max_tokens": 15}),
    "tokens of a call are partly unknown": ([part((None, 12)), part((1, 2)), LOOK], None, {"max_tokens": 10}),
    "two limits in one call, of which one counts steps": ([part((20, 5)), LOOK], None, {"max_turns": 1, "max_calls": 1}),
    "the later of two limits is met an earlier call": ([part((20, 5)), part((1, 1)), LOOK], None, {"max_calls": 2, "max_tokens": 20}),
    "a condition raises before a last answer": ([part((20, 5)), LOOK], Custom(RaisesFrom(1)), {"max_calls": 2, "last_answer": 0.5}),
    "the known tokens leave no last answer": ([part((None, 30)), LOOK], None, {"max_tokens": 20, "last_answer": 0.5}),
    "the further call failed": ([part((20, 5)), ProviderConnectionError("no connection")], None, {"max_calls": 1}),
    "a part of `all of` is met, and later not": ([LOOK] * 3, Custom(odd) & StepCountIs(2), {}),
    "`all of` with an unknown part": (UNKNOWN_FIRST, MaxTokensUsed(100) & ~HasToolCall("finalize"), {}),
    "not `all of` with an unknown part": (UNKNOWN_FIRST, ~(MaxTokensUsed(100) & StepCountIs(1)), {}),
    "not `any of` with an unknown part": (UNKNOWN_FIRST, ~(MaxTokensUsed(100) | HasToolCall("finalize")), {}),
    "not `any of` with an unknown part later": (UNKNOWN_FIRST[::-1], ~(MaxTokensUsed(100) | HasToolCall("finalize")), {}),
}  # fmt: skip


@pytest.mark.parametrize(("script", "stop", "limits"), CASES.values(), ids=CASES.keys())
def test_the_answer_is_what_a_run_with_these_limits_does(
    script: list[Said], stop: StopCondition | None, limits: dict[str, Any]
) -> None:
    record, live = run(script), under(script, stop, limits)
    answer = only(lab.backtest(record, stop, budget=limits, per="run"))
    assert answer["outcome"] != "unknown"
    assert_agrees(answer, record, live, limits)


@pytest.mark.parametrize("name", ["max_calls", "max_cost"])
def test_a_limit_that_ended_the_record_within_a_step_does_not_hide_one_that_is_met_there(name: str) -> None:
    script = [say("some words", finish=FinishReason.PAUSED, tokens=(20, 5), cost="0.001"), LOOK]
    record = under(script, None, {name: {"max_calls": 1, "max_cost": "0.001"}[name]})
    assert record.history.calls == 1
    answer = only(lab.backtest(record, budget={"max_tokens": 20}, per="run"))
    assert answer["stop_reason"] == "token_budget"
    assert_agrees(answer, record, under(script, None, {"max_tokens": 20}), {"max_tokens": 20})


def test_an_answer_given_in_the_step_in_which_a_condition_raised_is_the_end_without_that_condition() -> None:
    record, limits = run([LOOK], Custom(RaisesFrom(2))), {"max_turns": 5}
    assert record.stop_reason is StopReason.ERROR
    answer = only(lab.backtest(record, budget=limits, per="run"))
    assert answer["outcome"] == "finished"
    assert_agrees(answer, record, under([LOOK], None, limits), limits)


def test_an_end_whose_last_call_would_have_had_another_output_cap_is_unknown() -> None:
    cut = say("some", finish=FinishReason.MAX_TOKENS, tokens=(0, 10))
    answer = only(lab.backtest(run([cut, say("words", tokens=(0, 30))]), budget={"max_tokens": 25}, per="run"))
    assert answer["outcome"] == "unknown"


def test_a_frame_does_not_show_what_only_an_earlier_call_of_a_step_meets() -> None:
    record, stop = run([part((3, 7)), part((20, 5)), LOOK]), ~MaxTokensUsed(15)
    frame, limits = lab.frame([record]), {"max_tokens": 10}
    assert only(lab.backtest(record, stop, budget=limits, per="run"))["stop_reason"] == "stop_condition"
    answer = only(lab.backtest(frame, stop, budget=limits, per="run"))
    assert [answer[name] for name in ("outcome", "step", "stop_reason", "fired")] == ["stopped", 1, None, None]
    paused = FinishReasonIs(FinishReason.PAUSED)
    assert only(lab.backtest(record, paused, per="run"))["outcome"] == "stopped"
    assert only(lab.backtest(frame, paused, per="run"))["outcome"] == "unknown"


def test_a_goal_in_a_step_of_which_a_frame_shows_only_the_last_call_is_reached() -> None:
    record = run([LOOK, part((3, 7))])
    answer = only(lab.backtest(lab.frame([record]), FinishReasonIs(FinishReason.PAUSED), per="run"))
    assert (answer["outcome"], answer["goal_reached"]) == ("unknown", True)


# Random runs and limits -------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(scripts, st.one_of(st.none(), built_in_tree), st.one_of(st.just(UNBOUNDED), budgets)), min_size=1, max_size=3
    ),
    st.lists(st.tuples(st.one_of(st.none(), any_tree), budgets), min_size=1, max_size=3),
)
def test_backtest_agrees_with_the_live_loop(
    recorded: list[tuple[list[Said], StopCondition | None, Budget]], tried: list[tuple[StopCondition | None, Budget]]
) -> None:
    records = [run(script, stop, budget) for script, stop, budget in recorded]
    for stop, budget in tried:
        limits = budget_of(budget)
        if stop is None and not limits:
            continue
        answers = lab.backtest(records, stop, budget=limits, per="run")
        for (script, *_), record, run_id in zip(recorded, records, answers["run_id"], strict=True):
            assert run_id == record.run_id
            answer = only(answers[answers["run_id"] == run_id])
            live = under(script, stop, limits)
            assert_agrees(answer, record, live, limits)


def test_a_continued_answer_that_the_last_one_might_have_cut_off_is_unknown() -> None:
    """Under the limit, the second call has another output cap, and there may be no third: whether one last answer follows is open."""
    cut = FinishReason.MAX_TOKENS
    script = [
        say("some", finish=cut, tokens=(None, None)),
        say("words", finish=cut, tokens=(12, 30)),
        call("look", {}, tokens=(0, 1)),
    ]
    answer = only(lab.backtest(run(script), budget={"max_tokens": 43, "last_answer": 0.5}, per="run"))
    assert answer["outcome"] == "unknown"
    assert answer["step"] is None


@pytest.mark.timeout(300)
@settings(max_examples=50, deadline=None)
@given(scripts, st.one_of(st.none(), built_in_tree), budgets, st.floats(0.05, 0.9), st.booleans())
@example(
    script=[
        say("some", finish=FinishReason.MAX_TOKENS, tokens=(None, None)),
        call("look", {}, tokens=(0, 2)),
        call("look", {}, tokens=(0, 0)),
    ],
    stop=None,
    budget=Budget(max_turns=None, max_tokens=1),
    share=0.5,
    recorded_with_it=False,
)
@example(
    script=[
        say("some words", finish=FinishReason.MAX_TOKENS, tokens=(0, 1)),
        call("look", {}, tokens=(0, 2)),
        call("look", {}, tokens=(0, 0)),
        call("look", {}, tokens=(0, 0)),
    ],
    stop=~StepCountIs(1),
    budget=Budget(max_turns=None, max_tokens=4),
    share=0.5,
    recorded_with_it=False,
)
@example(
    script=[
        say("some words", finish=FinishReason.MAX_TOKENS, tokens=(None, None)),
        call("look", {}, tokens=(0, 2), cost="0.001"),
        call("look", {}, tokens=(0, 0)),
        call("look", {}, tokens=(0, 0)),
    ],
    stop=None,
    budget=Budget(max_turns=None, max_tokens=3, max_cost="0.004"),
    share=0.75,
    recorded_with_it=False,
)
def test_backtest_agrees_with_the_live_loop_on_last_answers(
    script: list[Said], stop: StopCondition | None, budget: Budget, share: float, recorded_with_it: bool
) -> None:
    limits = budget_of(budget)
    if stop is None and not limits:
        return
    limits["last_answer"] = share
    live = under(script, stop, limits)
    record = live if recorded_with_it else run(script)
    answer = only(lab.backtest(record, stop, budget=limits, per="run"))
    if not any(step.last_answer for step in live.history):
        assert_agrees(answer, record, live, limits)
    elif answer["outcome"] != "unknown":
        assert answer["outcome"] == "stopped"
        assert live.history[-1].last_answer
        assert answer["step"] == len(live.history)
        assert (answer["tokens"], answer["cost_usd"], answer["calls"]) == (None, None, None)
        if answer["stop_reason"] is None:
            # Cut off, a call that continues a cut answer might meet what the whole one does not, or another one of several limits.
            alone = [under(script, None, {name: limits[name], "last_answer": share}) for name in limits if name != "last_answer"]
            several = sum(len(one.history) == answer["step"] for one in alone) > 1
            assert several or (stop is not None and not latches(stop))
            assert any(len(step.calls) > 1 for step in live.history)
        elif live.stop_reason in OF_LIMITS:  # otherwise the last answer itself failed
            assert answer["stop_reason"] == live.stop_reason.value
            assert f"Budget reached: {answer['fired']} " in live.detail
    else:
        in_mid_step = "max_tokens" in limits and any(len(step.calls) > 1 for step in live.history)
        assert record.stop_reason in CUT_OFF or in_mid_step


def asks_again(retries: int = 3, **limits: Any) -> lab.RunResult:
    """Run to the end: a tool call, two answers that do not fit, and one that does."""
    said = [
        call("look", {}, tokens=(10, 5)),
        say('"seven"', tokens=(20, 5)),
        call("final_answer", {"answer": "x"}, tokens=(30, 5)),
        call("final_answer", {"answer": 7}, tokens=(40, 5)),
    ]

    def look() -> str:
        """Look."""
        return "nothing"

    async def main() -> lab.RunResult:
        agent: Any = lab.Agent(ScriptedProvider(said), tools=[look], output=int, output_retries=retries)
        return await agent.run("go", budget=Budget(**{"max_turns": 50, **limits}))

    return asyncio.run(main())


@pytest.mark.parametrize("name", ["max_turns", "max_calls", "max_tokens"])
def test_answers_that_are_asked_for_again_count(name: str) -> None:
    record = asks_again()
    assert (record.output, record.usage.total_tokens) == (7, 120)
    limits = [*range(1, 7), *range(10, 130, 5)]
    answers = lab.backtest(record, budget={name: limits}, per="run")
    assert answers[name].tolist() == limits
    for place, limit in enumerate(limits):
        assert_agrees(only(answers.iloc[[place]]), record, asks_again(**{name: limit}), {name: limit})


def test_a_record_that_was_given_no_further_try_is_not_continued() -> None:
    record = asks_again(retries=1)
    assert record.stop_reason is StopReason.INVALID_OUTPUT
    for limit in range(1, 6):
        answer = only(lab.backtest(record, budget={"max_turns": limit}, per="run"))
        assert_agrees(answer, record, asks_again(retries=1, max_turns=limit), {"max_turns": limit})


@pytest.mark.timeout(300)
@settings(max_examples=50, deadline=None)
@given(scripts, any_tree)
def test_backtest_agrees_with_reading_every_prefix(script: list[Said], tree: StopCondition) -> None:
    record = run(script)
    answer = only(lab.backtest(record, tree, per="run"))
    first, raised = len(record.history), False
    for length in range(1, len(record.history) + 1):
        try:
            reading = asyncio.run(read_condition(tree, RunHistory(record.history[:length])))
        except RuntimeError:
            first, raised = length - 1, True
            break
        if reading.met:
            first = length - 1
            break
    assert answer["step"] == min(first + 1, len(record.history))
    last = first >= len(record.history) - 1
    wins = record.stop_reason is StopReason.TERMINATING_TOOL or record.stopped_by == "tool"
    assert answer["outcome"] == ("finished" if last and (not raised or wins) else "stopped")


@settings(max_examples=40, deadline=None)
@given(st.lists(scripts, min_size=1, max_size=4), built_in_tree, budgets)
def test_a_frame_gives_the_same_answer_or_unknown(recorded: list[list[Said]], tree: StopCondition, budget: Budget) -> None:
    records = [run(script) for script in recorded]
    whole = lab.backtest(records, tree, budget=budget_of(budget), per="run")
    steps = lab.frame(records)
    frame = lab.backtest(steps, tree, budget=budget_of(budget), per="run", runs=lab.frame(records, "runs"))
    assert list(frame["run_id"]) == list(whole["run_id"])
    answer_of_frame = frame["outcome"] != "unknown"
    of_run = steps.groupby("run_id", sort=False)
    simple = (
        (of_run["calls"].max().le(1) & of_run["error"].count().eq(0)).reindex(frame["run_id"]).fillna(True).to_numpy(dtype=bool)
    )
    commas = steps["run_id"][steps["tools"].str.contains("look, finalize")]
    no_comma = ~frame["run_id"].isin(set(commas)).to_numpy(dtype=bool)
    assert (answer_of_frame | ~simple).all()
    same = answer_of_frame.to_numpy(dtype=bool) & no_comma
    for name in ("outcome", "step"):
        pd.testing.assert_series_equal(frame[name][same], whole[name][same])
    for name in ("goal_reached", "tokens", "cost_usd", "calls", "stop_reason", "fired"):
        known = same & frame[name].notna().to_numpy()
        pd.testing.assert_series_equal(frame[name][known], whole[name][known])


def test_a_frame_cannot_show_which_of_two_limits_was_met_first_within_a_step() -> None:
    paused = say("some words", finish=FinishReason.PAUSED, tokens=(20, 5), cost="0.001")
    record = run([paused, call("look", {}, tokens=(3, 7))])
    limits = {"max_tokens": 35, "max_cost": 0.001}
    whole = only(lab.backtest([record], budget=limits, per="run"))
    frame = only(lab.backtest(lab.frame([record]), budget=limits, per="run", runs=lab.frame([record], "runs")))
    assert [whole[name] for name in ("step", "stop_reason", "fired", "calls")] == [1, "cost_budget", "max_cost", 1]
    assert [frame[name] for name in ("step", "stop_reason", "fired", "calls")] == [1, None, None, None]


PAUSED = say("some words", finish=FinishReason.PAUSED, tokens=(20, 5), cost="0.001")


RAISING = [
    tree(leaf)
    for tree in (lambda leaf: leaf, lambda leaf: StepCountIs(1) | leaf, lambda leaf: ~leaf & StepCountIs(2))
    for leaf in (Custom(RaisesFrom(1)), Custom(raises_later), Custom(raises_without_text))
]


@pytest.mark.parametrize("limits", [{}, {"max_tokens": 30}, {"max_cost": "0.002"}, {"max_calls": 2}, {"max_turns": 2}], ids=repr)
@pytest.mark.parametrize(
    "script",
    [[], [call("look", {}), say("done")], [PAUSED, PAUSED, call("look", {}, tokens=(3, 7))], [PAUSED, say("done")], [call("halt")],
     [call("look", {}), PAUSED, PAUSED, say("", tokens=(3, 7))]],
    ids=["finished on its own", "second", "paused", "paused end", "tool stops", "paused later"],
)  # fmt: skip
def test_a_raising_predicate_ends_the_run_with_an_error(script: list[Said], limits: dict[str, Any]) -> None:
    record = run(script)
    answers = lab.backtest([record], RAISING, budget=limits, per="run")
    assert len(answers) == len(RAISING)
    for place, stop in enumerate(RAISING):
        live = under(script, stop, limits)
        assert_agrees(only(answers.iloc[[place]]), record, live, limits)


@settings(max_examples=20, deadline=None)
@given(st.lists(scripts, min_size=1, max_size=4), st.lists(built_in_tree, min_size=1, max_size=4))
def test_totals_over_configurations_equal_the_sums_over_runs(recorded: list[list[Said]], tried: list[StopCondition]) -> None:
    records = [run(script) for script in recorded]
    rows = lab.backtest(records, tried, per="run").groupby("configuration", sort=False)
    table = lab.backtest(records, tried)
    for (_, group), (_, row) in zip(rows, table.drop_duplicates("configuration").iterrows(), strict=True):
        of_one = group.iloc[: len(records)]
        assert row["runs"] == len(records)
        for outcome in ("stopped", "finished", "unknown"):
            assert row[outcome] == (of_one["outcome"] == outcome).sum()
        for name, column in (("tokens", "tokens"), ("cost", "cost_usd"), ("calls", "calls"), ("step", "step")):
            known = of_one[column].dropna()
            assert (pd.isna(row[f"{name}_mean"]) and known.empty) or row[f"{name}_mean"] == pytest.approx(float(known.mean()))
        success = of_one["goal_reached"].dropna()
        assert row["success_rate"] == pytest.approx(float(success.mean()))
