"""The budget as a value, and the live settings: validated, all or nothing, from any thread."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from engine.builders import looping, step, steps
from hypothesis import given
from hypothesis import strategies as st

import agentlab as lab
from agentlab import Budget, Custom, HasToolCall, LiveSettings, MaxCost, Off, RunSettings, StepCountIs, TerminatingTools
from agentlab.analysis.grids import grids
from agentlab.errors import AgentlabError, AgentlabWarning, ConfigurationError, LimitError
from agentlab.limits.fields import limit_field, start_of
from agentlab.limits.policies import ContinuationPolicy
from agentlab.limits.reading import Remaining
from agentlab.model.finish_reasons import StopReason
from agentlab.testing import faults

# Budget ---------------------------------------------------------------------------------------------------------------------

REFUSED = {
    "zero-turns": (
        {"max_turns": 0},
        "Budget(max_turns=0): max_turns must be at least 1. None means no limit; left out, it is 20.",
    ),
    "negative-turns": ({"max_turns": -3}, "Budget(max_turns=-3): max_turns must be at least 1"),
    "half-turn": ({"max_turns": 1.5}, "max_turns is a whole number, such as 8; got float"),
    "true-turns": ({"max_turns": True}, "got bool"),
    "text-turns": ({"max_turns": "5"}, "Budget(max_turns='5')"),
    "zero-calls": ({"max_calls": 0}, "max_calls must be at least 1. None means no limit, and so does leaving it out."),
    "negative-tokens": ({"max_tokens": -1}, "Budget(max_tokens=-1)"),
    "zero-tokens-per-turn": ({"max_tokens_per_turn": 0}, "max_tokens_per_turn must be at least 1"),
    "endless-cost": ({"max_cost": float("inf")}, "max_cost must be above 0 US dollars, and finite. None means no limit"),
    "zero-cost": ({"max_cost": 0}, "Budget(max_cost=0): max_cost must be above 0 US dollars"),
    "negative-cost": ({"max_cost": -0.05}, "Budget(max_cost=-0.05)"),
    "nan-cost": ({"max_cost": float("nan")}, "nan"),
    "cost-in-words": ({"max_cost": "five"}, "max_cost is an amount in US dollars, such as 0.05"),
    "zero-timeout": ({"timeout": 0}, "timeout must be above 0 seconds"),
    "negative-timeout": ({"timeout": -1.5}, "Budget(timeout=-1.5)"),
    "nan-timeout": ({"timeout": float("nan")}, "above 0 seconds"),
    "endless-timeout": ({"timeout": float("inf")}, "above 0 seconds"),
    "text-timeout": ({"timeout": "30"}, "timeout is a number of seconds, such as 30, or a timedelta; got str"),
    "missing-usage": ({"missing_usage": "ignore"}, "choose one of warn, estimate, fail, charge_cap"),
    "negative-timedelta": ({"timeout": timedelta(seconds=-1)}, "timeout must be above 0 seconds"),
    "mistyped": ({"max_turn": 5}, "Budget takes no 'max_turn'. Did you mean 'max_turns'? It takes: max_turns, max_calls"),
    "not-ours": ({"colour": 5}, "Budget takes no 'colour'. It takes: max_turns, max_calls"),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_budgets_are_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LimitError) as caught:
        Budget(**fields)
    assert message in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AgentlabError)


ALLOWED = [{name: 1} for name in ("max_turns", "max_calls", "max_tokens", "max_tokens_per_turn", "max_cost", "timeout")]


@pytest.mark.parametrize("fields", [*ALLOWED, {"max_cost": "0.000001"}, {"timeout": 0.001}, {"max_turns": None}], ids=repr)
def test_the_smallest_value_of_each_field_is_allowed(fields: dict[str, Any]) -> None:
    budget = Budget(**fields)
    assert {name: getattr(budget, name) for name in fields} == pytest.approx(
        {name: Decimal(value) if name == "max_cost" else value for name, value in fields.items()}
    )


def test_a_required_field_is_not_described_as_optional() -> None:
    refused: list[Any] = [
        lambda: StepCountIs(0),
        lambda: MaxCost(0),
        lambda: TerminatingTools(["a"], max_invocations=0),  # type: ignore[arg-type]
        lambda: ContinuationPolicy(max_continuations_per_turn=-1),
        lambda: lab.Experiment([looping()], ["?"], repeats=0),
    ]
    for make in refused:
        with pytest.raises(LimitError, match=r"must be (at least \d|above 0 US dollars, and finite)\.$"):
            make()


@dataclass(frozen=True, slots=True)
class StepTakes(lab.StopCondition):
    seconds: float = limit_field(unit="s", minimum=0, start=30, help="stop after a step that takes so long")

    def read(self, history: lab.RunHistory) -> lab.Reading:
        return lab.Reading("StepTakes", history.elapsed_s, self.seconds, history.elapsed_s >= self.seconds)


def length(text: str) -> int:
    return len(text)


HALF_A_MINUTE: Any = timedelta(seconds=30)


@pytest.mark.parametrize(
    "take",
    [
        pytest.param(lambda: Budget(timeout=HALF_A_MINUTE).timeout, id="budget"),
        pytest.param(lambda: live().edit(timeout=HALF_A_MINUTE).budget.timeout, id="edit"),
        pytest.param(lambda: lab.RetryPolicy(longest_wait_s=HALF_A_MINUTE).longest_wait_s, id="retry"),
        pytest.param(lambda: lab.tool(timeout_s=HALF_A_MINUTE)(length).timeout_s, id="tool"),
        pytest.param(lambda: StepTakes(HALF_A_MINUTE).seconds, id="condition"),
        pytest.param(lambda: StepTakes(3).changed(seconds=HALF_A_MINUTE).seconds, id="changed-condition"),
        pytest.param(lambda: faults.Slow(1, pause_s=HALF_A_MINUTE).pause_s, id="fault"),
        pytest.param(lambda: grids(None, {"timeout": [HALF_A_MINUTE]})[0].budget_at((0,)).timeout, id="backtest"),
    ],
)
def test_a_timedelta_is_accepted_for_seconds(take: Any) -> None:
    taken = take()
    assert (taken, type(taken)) == (30.0, float)


def test_a_wait_accepts_a_timedelta() -> None:
    run = looping().run("go", budget=Budget(max_turns=2)).start()
    result = run.wait(timedelta(minutes=1))
    assert result is not None
    assert result.stop_reason is StopReason.TURN_LIMIT


def test_the_default_is_twenty_steps_and_shown() -> None:
    assert Budget().max_turns == 20
    assert repr(Budget()) == "Budget(max_turns=20)"
    assert repr(Budget(max_turns=None)) == "Budget(max_turns=None)"
    assert repr(Budget(max_cost=0.05, timeout=30, missing_usage="fail")) == (
        "Budget(max_turns=20, max_cost=0.05, timeout=30.0, missing_usage=fail)"
    )
    assert "max_turns=20" in repr(looping().run("go"))
    assert "max_turns=20" in repr(looping())


def test_money_is_decimal_and_exact() -> None:
    assert Budget(max_cost=0.1).max_cost == Decimal("0.1")
    assert Budget(max_cost="0.1") == Budget(max_cost=Decimal("0.1"))


@pytest.mark.parametrize(
    ("budget", "unlimited"),
    [
        (Budget(), False),
        (Budget(max_turns=None), True),
        (Budget(max_turns=None, max_tokens_per_turn=5), True),  # bounds an answer, not the run
        (Budget(max_turns=None, max_calls=5), False),
        (Budget(max_turns=None, max_tokens=5), False),
        (Budget(max_turns=None, max_cost=5), False),
        (Budget(max_turns=None, timeout=5), False),
    ],
    ids=repr,
)
def test_unlimited_budget(budget: Budget, unlimited: bool) -> None:
    assert budget.is_unlimited is unlimited


def test_a_budget_is_a_plain_frozen_value() -> None:
    budget = Budget(max_cost=1, timeout=3)
    with pytest.raises(LimitError, match=r"A Budget does not change: set `run.limits.timeout`, or .*replace\(old, timeout=…\)"):
        budget.timeout = 5  # type: ignore[misc]
    with pytest.raises(LimitError, match="A RetryPolicy does not change: make a new one"):
        lab.RetryPolicy().attempts = 5  # type: ignore[misc]
    assert copy.copy(budget) == pickle.loads(pickle.dumps(budget)) == budget
    assert hash(budget) == hash(Budget(max_cost="1", timeout=3.0))
    assert dataclasses.replace(budget, max_turns=3).max_turns == 3
    assert next(iter(inspect.signature(Budget).parameters)) == "max_turns"


BOTH_SIDES = {
    "turns-below": (Budget(max_turns=3), steps(2), 0.0, None),
    "turns-at": (Budget(max_turns=3), steps(3), 0.0, "max_turns"),
    "turns-above": (Budget(max_turns=3), steps(4), 0.0, "max_turns"),
    "calls-below": (Budget(max_calls=3), steps(1, calls=2), 0.0, None),
    "calls-at": (Budget(max_calls=3), steps(1, calls=3), 0.0, "max_calls"),
    "calls-above": (Budget(max_calls=3), steps(2, calls=2), 0.0, "max_calls"),
    "tokens-below": (Budget(max_tokens=31), steps(2), 0.0, None),
    "tokens-at": (Budget(max_tokens=30), steps(2), 0.0, "max_tokens"),
    "tokens-above": (Budget(max_tokens=29), steps(2), 0.0, "max_tokens"),
    "tokens-unknown": (Budget(max_tokens=5), steps(1, tokens=(None, None)), 0.0, None),
    "tokens-unknown-and-reached": (Budget(max_tokens=5), steps(1, tokens=(5, None)), 0.0, "max_tokens"),
    "cost-below": (Budget(max_cost="0.31"), steps(3, cost="0.1"), 0.0, None),
    "cost-at": (Budget(max_cost="0.3"), steps(3, cost="0.1"), 0.0, "max_cost"),
    "cost-above": (Budget(max_cost="0.29"), steps(3, cost="0.1"), 0.0, "max_cost"),
    "time-below": (Budget(timeout=2), steps(1), 1.999, None),
    "time-at": (Budget(timeout=2), steps(1), 2.0, "timeout"),
    "time-above": (Budget(timeout=2), steps(1), 2.001, "timeout"),
    "tokens-per-turn-bounds-no-run": (Budget(max_tokens_per_turn=1), steps(3), 0.0, None),
    "the-first-of-several": (Budget(max_turns=3, max_tokens=1), steps(3), 0.0, "max_turns"),
    "nothing-left-out": (Budget(max_turns=None), steps(100), 1e9, None),
}


@pytest.mark.parametrize(("budget", "history", "elapsed_s", "which"), BOTH_SIDES.values(), ids=BOTH_SIDES.keys())
def test_exhausted_at_the_limit(budget: Budget, history: lab.RunHistory, elapsed_s: float, which: str | None) -> None:
    reading = budget.exhausted(history, elapsed_s)
    assert (None if reading is None else reading.name) == which


def test_the_remaining_amount_of_each_dimension() -> None:
    budget = Budget(max_turns=5, max_calls=9, max_tokens=100, max_cost="0.5", timeout=10)
    assert budget.remaining(steps(2, calls=2, cost="0.1"), 4.0) == Remaining(3, 5, 40, Decimal("0.1"), 6.0)
    over = Budget(max_turns=1, max_calls=1, max_tokens=1, max_cost="0.1", timeout=1)
    assert over.remaining(steps(2, cost="0.1"), 4.0) == Remaining(0, 0, 0, Decimal(0), 0.0)
    assert Budget(max_turns=None).remaining(steps(2), 4.0) == Remaining()
    assert Budget(max_turns=None, max_tokens=9, max_cost=1).remaining(steps(1, tokens=(1, None)), 0) == Remaining()


CAPS = {
    "neither": (Budget(), 10, None),
    "per-turn-alone": (Budget(max_tokens_per_turn=50), 10, 50),
    "whole-run-alone": (Budget(max_tokens=100), 10, None),
    "enough-left": (Budget(max_tokens_per_turn=50, max_tokens=100), 50, 50),
    "less-left": (Budget(max_tokens_per_turn=50, max_tokens=100), 51, 49),
    "one-left": (Budget(max_tokens_per_turn=50, max_tokens=100), 99, 16),  # OpenAI's Responses API rejects less
    "nothing-left": (Budget(max_tokens_per_turn=50, max_tokens=100), 100, 16),
    "a-smaller-cap": (Budget(max_tokens_per_turn=5, max_tokens=100), 99, 5),
}


@pytest.mark.parametrize(("budget", "used", "cap"), CAPS.values(), ids=CAPS.keys())
def test_the_output_cap_is_lowered_to_the_remaining_tokens(budget: Budget, used: int, cap: int | None) -> None:
    assert budget.output_cap(used) == cap


# LiveSettings ---------------------------------------------------------------------------------------------------------------


def live(**fields: Any) -> LiveSettings:
    return LiveSettings(RunSettings(Budget(**fields), StepCountIs(8) | HasToolCall("finalize")))


VALUES: dict[str, Any] = {
    "max_turns": 3,
    "max_calls": 4,
    "max_tokens": 5,
    "max_tokens_per_turn": 6,
    "max_cost": 0.07,
    "timeout": 8,
    "missing_usage": "fail",
    "last_answer": 0.2,
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Budget)])
def test_every_field_of_the_budget_is_live(name: str) -> None:
    limits = live()
    before = limits.snapshot()
    setattr(limits, name, VALUES[name])
    assert getattr(limits, name) == getattr(Budget(**{name: VALUES[name]}), name)
    assert limits.snapshot() == RunSettings(Budget(**{name: VALUES[name]}), before.stop)
    assert before.budget == Budget()
    if name != "missing_usage":
        setattr(limits, name, None)
        assert getattr(limits, name) is None


def test_a_refused_value_changes_nothing_and_notifies_nobody() -> None:
    limits, notified = live(), []
    limits.subscribe(lambda *change: notified.append(change))
    before = limits.snapshot()
    refused: list[Any] = [
        lambda: setattr(limits, "max_turns", -1),
        lambda: limits.edit(max_turns=3, max_cost=-1),
        lambda: limits.edit(max_turns=3, max_cots=1),
        lambda: limits.edit_condition("StepCountIs", steps=0),
        lambda: limits.edit_condition("StepCountIs", stpes=3),
        lambda: limits.edit_condition("StepCount", steps=3),
        lambda: setattr(limits, "stop", 5),
        lambda: setattr(limits, "budget", {"max_turns": 5}),
        lambda: setattr(limits, "max_turn", 5),
    ]
    for change in refused:
        with pytest.raises(ConfigurationError):
            change()
    assert limits.snapshot() is before
    assert notified == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda limits: setattr(limits, "max_costs", 1), "Did you mean 'max_cost'?", id="attribute"),
        pytest.param(lambda limits: setattr(limits, "stopp", 1), "Did you mean 'stop'?", id="stop"),
        pytest.param(lambda limits: setattr(limits, "max_step", 3), "Did you mean 'max_turns'?", id="name-elsewhere"),
        pytest.param(lambda limits: setattr(limits, "maxTurns", 3), "Did you mean 'max_turns'?", id="camel-case"),
        pytest.param(lambda limits: limits.edit(stop_when=3), "Write `stop=", id="part-elsewhere"),
        pytest.param(lambda limits: limits.edit(timeot=1), "Did you mean 'timeout'?", id="edit"),
        pytest.param(lambda limits: limits.edit_condition("StepCountis", steps=1), "Did you mean 'StepCountIs'?", id="leaf"),
        pytest.param(lambda limits: limits.edit_condition("StepCountIs", step=1), "Did you mean 'steps'?", id="leaf-field"),
        pytest.param(lambda limits: limits.edit_condition("HasToolCall", name="a"), "Did you mean 'names'?", id="names"),
    ],
)
def test_mistyped_names_get_a_suggestion(change: Any, message: str) -> None:
    with pytest.raises(LimitError) as caught:
        change(live())
    assert message in str(caught.value)


def test_reading_a_mistyped_name_is_an_error_too() -> None:
    with pytest.raises(AttributeError, match=r"no limit 'max_costs'\. Did you mean 'max_cost'"):
        _ = live().max_costs  # type: ignore[attr-defined]
    assert not hasattr(live(), "_repr_html_")


def test_edit_leaf_replaces_a_field() -> None:
    limits = live()
    assert list(limits.conditions) == ["StepCountIs", "HasToolCall"]
    limits.edit_condition("StepCountIs", steps=3)
    assert limits.stop == StepCountIs(3) | HasToolCall("finalize")
    limits.edit_condition("HasToolCall", names="look")
    assert limits.stop == StepCountIs(3) | HasToolCall("look")
    limits.stop = [StepCountIs(1), StepCountIs(2), MaxCost(1)]
    limits.edit_condition("StepCountIs_2", steps=5)
    limits.edit_condition("MaxCost", usd=0.5)
    assert limits.stop == StepCountIs(1) | StepCountIs(5) | MaxCost("0.5")
    limits.stop = Custom(len, name="mine")
    limits.edit_condition("mine", name="yours")
    assert list(limits.conditions) == ["yours"]
    limits.stop = None
    assert limits.conditions == {}
    with pytest.raises(LimitError, match="Choose from: none"):
        limits.edit_condition("StepCountIs", steps=3)


def test_one_leaf_in_two_places_is_one_leaf() -> None:
    limits, shared = live(), StepCountIs(3)
    limits.stop = (shared & HasToolCall("a")) | (shared & HasToolCall("b"))
    limits.edit_condition("StepCountIs", steps=5)
    assert limits.stop == (StepCountIs(5) & HasToolCall("a")) | (StepCountIs(5) & HasToolCall("b"))


WHOLE: dict[str, tuple[object, object]] = {
    "budget": (Budget(max_turns=3), Budget(max_turns=3)),
    "stop": ([StepCountIs(1), MaxCost(1)], StepCountIs(1) | MaxCost(1)),
    "policy": (len, len),
    "continuation": (False, ContinuationPolicy(max_continuations_per_turn=0, max_tool_repair_attempts=0)),
    "terminating": (["finalize"], TerminatingTools(("finalize",))),
}


@pytest.mark.parametrize("part", WHOLE)
def test_whole_parts_are_edited_with_their_author(part: str) -> None:
    limits, notified = live(), []
    limits.subscribe(lambda before, after, by: notified.append((before, after, by)))
    given_, kept = WHOLE[part]
    before = limits.snapshot()
    after = limits.edit(by="panel", **{part: given_})
    assert after is limits.snapshot()
    assert after == dataclasses.replace(before, **{part: kept})
    assert notified == [(before, after, "panel")]
    by_name = live()
    setattr(by_name, part, given_)
    assert by_name.snapshot() == after


@pytest.mark.parametrize("part", ["stop", "terminating", "policy"])
def test_none_removes_a_part(part: str) -> None:
    limits = live()
    limits.terminating, limits.policy = ["finalize"], len
    limits.edit(**{part: None})
    assert getattr(limits, part) is None
    limits.edit(continuation=None)
    assert limits.continuation.max_continuations_per_turn == 0


def test_parts_are_set_before_their_fields() -> None:
    limits = live(max_turns=7)
    limits.edit(max_calls=3, budget=Budget(max_cost=1), consecutive_nudges=2, terminating=["finalize"], stop=None)
    assert limits.budget == Budget(max_turns=64, max_cost=1, max_calls=3)  # the default of max_turns yields to max_invocations
    assert limits.terminating == TerminatingTools(("finalize",), consecutive_nudges=2)
    assert limits.stop is None


def test_one_wrong_part_or_field_changes_nothing() -> None:
    limits = live()
    before = limits.snapshot()
    wrong: list[dict[str, Any]] = [
        {"budget": Budget(max_turns=3), "stop": 5},
        {"stop": None, "max_turns": 0},
        {"stop": StepCountIs(2), "budget": {"max_turns": 5}},
        {"terminating": [], "max_turns": 3},
        {"budget": None},
        {"continuation": 5},
        {"policy": 5},
        {"terminating": None, "consecutive_nudges": 2},
        {"stopp": None},
    ]
    for fields in wrong:
        with pytest.raises(ConfigurationError):
            limits.edit(**fields)
        assert limits.snapshot() is before


def test_switch_leaf_turns_a_leaf_off_and_on() -> None:
    limits, notified = live(), []
    limits.subscribe(lambda before, after, by: notified.append(by))
    limits.toggle_condition("StepCountIs", on=False, by="panel")
    assert limits.stop == Off(StepCountIs(8)) | HasToolCall("finalize")
    assert list(limits.conditions) == ["StepCountIs", "HasToolCall"]
    limits.toggle_condition("StepCountIs", on=False)
    limits.edit_condition("StepCountIs", steps=3)
    assert limits.stop == Off(StepCountIs(3)) | HasToolCall("finalize")
    limits.toggle_condition("StepCountIs", True)
    assert limits.stop == StepCountIs(3) | HasToolCall("finalize")
    assert notified == ["panel", "code", "code"]
    with pytest.raises(LimitError, match="Did you mean 'StepCountIs'"):
        limits.toggle_condition("StepCountis", on=False)
    limits.stop = None
    with pytest.raises(LimitError, match="Choose from: none"):
        limits.toggle_condition("StepCountIs", on=False)


def test_each_limit_declares_its_initial_value() -> None:
    for kind in (Budget, StepCountIs, MaxCost, lab.MaxTokensUsed, HasToolCall, lab.FinishReasonIs):
        for field in dataclasses.fields(kind):
            if field.name not in ("missing_usage", "last_answer"):
                assert field.metadata["start"] is not None
    started = Budget(**{field.name: start_of(field) for field in dataclasses.fields(Budget)})
    assert started == Budget(20, 40, 10_000, 1_000, Decimal("0.10"), 60.0, "warn")


def test_an_initial_value_is_the_default_or_the_minimum() -> None:
    assert start_of(limit_field(unit="s", minimum=2, help="", start=5, default=3)) == 5
    assert start_of(limit_field(unit="s", minimum=2, help="", default=3)) == 3
    assert start_of(limit_field(unit="s", minimum=2, help="")) == 2
    assert start_of(dataclasses.field(default_factory=list)) == []
    assert start_of(dataclasses.field()) is dataclasses.MISSING


def test_listeners_are_notified_once_per_change_with_its_author() -> None:
    limits, notified = live(), []
    end = limits.subscribe(lambda before, after, by: notified.append((before.budget.max_turns, after.budget.max_turns, by)))
    limits.max_turns = 5
    limits.max_turns = 5  # no change, no notification
    limits.edit(max_turns=6, by="panel")
    limits.budget = Budget(max_turns=7)
    end()
    end()
    limits.max_turns = 8
    assert notified == [(20, 5, "code"), (5, 6, "panel"), (6, 7, "code")]


def test_a_raising_listener_is_a_warning_and_the_others_are_notified() -> None:
    limits, notified = live(), []

    def broken(*change: object) -> None:
        raise ZeroDivisionError("broken")

    limits.subscribe(broken)
    limits.subscribe(lambda before, after, by: notified.append(after))
    with pytest.warns(AgentlabWarning, match="ZeroDivisionError: broken. The change is in force"):
        limits.max_turns = 5
    assert limits.max_turns == 5
    assert notified == [limits.snapshot()]


def test_a_listener_may_change_the_limits_itself() -> None:
    limits = live()
    limits.subscribe(lambda before, after, by: limits.edit(max_calls=9, by="listener"))
    limits.max_turns = 5
    assert (limits.max_turns, limits.max_calls) == (5, 9)


def test_changes_from_many_threads_all_take_effect() -> None:
    """Every thread changes one field step by step; no change is lost through a change by another thread."""
    limits, notified = live(), []
    limits.subscribe(lambda before, after, by: notified.append((before, after)))
    begin = threading.Barrier(5)

    def move(name: str) -> None:
        begin.wait()
        for value in range(1, 101):
            limits.edit(by=name, **{name: value})

    def count_down() -> None:
        begin.wait()
        for value in range(1, 101):
            limits.edit_condition("StepCountIs", steps=value)

    threads = [
        threading.Thread(target=move, args=[name]) for name in ("max_turns", "max_calls", "max_tokens", "max_tokens_per_turn")
    ]
    threads.append(threading.Thread(target=count_down))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    budget = limits.budget
    assert (budget.max_turns, budget.max_calls, budget.max_tokens, budget.max_tokens_per_turn) == (100, 100, 100, 100)
    assert limits.conditions["StepCountIs"] == StepCountIs(100)
    assert len(notified) == 500
    assert all(
        notified[index][1] is notified[index + 1][0] for index in range(499)
    )  # notified in the order in which they were made


fields_and_values = st.dictionaries(
    st.sampled_from(["max_turns", "max_calls", "max_tokens", "max_tokens_per_turn", "max_cost", "timeout"]),
    st.one_of(st.none(), st.integers(-3, 50)),
)


@given(st.lists(fields_and_values, max_size=5))
def test_a_change_is_all_or_nothing(changes: list[dict[str, Any]]) -> None:
    limits = live()
    for change in changes:
        before = limits.snapshot()
        try:
            expected = dataclasses.replace(before, budget=dataclasses.replace(before.budget, **change)).budget
        except LimitError:
            with pytest.raises(LimitError):
                limits.edit(**change)
            assert limits.snapshot() is before
        else:
            assert limits.edit(**change).budget == limits.budget == expected
            assert limits.stop is before.stop


def test_repr_shows_the_current_limits() -> None:
    assert repr(live(max_cost=1)) == (
        "LiveSettings(Budget(max_turns=20, max_cost=1), stop=AnyOf(StepCountIs(steps=8), HasToolCall('finalize')))"
    )


def test_each_limit_has_its_stop_reason() -> None:
    from agentlab.limits.budget import LIMIT_REASONS

    readings = Budget(max_turns=1, max_calls=1, max_tokens=1, max_cost=1, timeout=1).readings(steps(1, cost="1"), 1.0)
    assert [LIMIT_REASONS[each.name] for each in readings] == [
        StopReason.TURN_LIMIT,
        StopReason.CALL_LIMIT,
        StopReason.TOKEN_BUDGET,
        StopReason.COST_BUDGET,
        StopReason.TIMEOUT,
    ]
    assert all(each.met for each in readings)
    assert step(1).index == 1


KEY = "sk-" + "planted0123456789abcdef"
