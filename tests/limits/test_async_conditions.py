"""Async conditions: awaited concurrently, only if the answer is open, and the first deciding one ends the rest."""

from __future__ import annotations

import asyncio
import functools
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from engine.builders import Fixed, assert_is_whole, go, looping, result_of, run_of, steps
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import Custom, HasToolCall, StepCountIs, is_stop_condition_met
from agentlab.limits.combinators import AllOf, AnyOf, Not, StopCondition
from agentlab.limits.evaluation import read_condition
from agentlab.limits.reading import Reading
from agentlab.records.history import RunHistory
from agentlab.testing import call


async def judge(history: RunHistory, least: int = 2) -> bool:
    await asyncio.sleep(0)
    return len(history) >= least


def count(history: RunHistory, least: int = 2) -> bool:
    return len(history) >= least


class AsyncJudge:
    async def __call__(self, history: RunHistory) -> bool:
        return await judge(history)

    async def method(self, history: RunHistory) -> bool:
        return await judge(history)

    @staticmethod
    async def static(history: RunHistory) -> bool:
        return await judge(history)


class Count:
    def __call__(self, history: RunHistory) -> bool:
        return count(history)


def sync_wrapper(history: RunHistory) -> Any:
    return judge(history)


async def with_future(history: RunHistory) -> Any:
    return await asyncio.ensure_future(judge(history))


PREDICATES: dict[str, Callable[..., Any]] = {
    "sync-function": count,
    "sync-lambda": lambda history: count(history, 2),
    "sync-object": Count(),
    "sync-partial": functools.partial(count, least=2),
    "async-function": judge,
    "async-object": AsyncJudge(),
    "async-method": AsyncJudge().method,
    "async-static-method": AsyncJudge.static,
    "async-partial": functools.partial(judge, least=2),
    "async-partial-of-partial": functools.partial(functools.partial(judge), least=2),
    "async-partial-of-object": functools.partial(AsyncJudge()),
    "lambda-that-returns-a-coroutine": lambda history: judge(history, 2),
    "lambda-that-returns-a-task": lambda history: asyncio.ensure_future(judge(history)),
    "function-that-returns-a-coroutine": sync_wrapper,
    "async-over-a-task": with_future,
}


@pytest.mark.parametrize("predicate", PREDICATES.values(), ids=PREDICATES.keys())
def test_sync_and_async_predicates_behave_alike(predicate: Callable[..., Any]) -> None:
    for taken, met in ((1, False), (2, True), (3, True)):
        history = steps(taken)
        assert go(is_stop_condition_met(predicate, history)) is met, taken
        assert go(is_stop_condition_met(Custom(predicate), history)) is met, taken
        assert go(is_stop_condition_met([HasToolCall("none"), predicate], list(history))) is met, taken
        assert go(is_stop_condition_met(~Custom(predicate), history)) is not met, taken


@pytest.mark.parametrize("none", [[], ()])
@pytest.mark.parametrize("length", [0, 3])
def test_no_condition_is_never_met(none: object, length: int) -> None:
    assert go(is_stop_condition_met(none, steps(length))) is False


@pytest.mark.parametrize("predicate", PREDICATES.values(), ids=PREDICATES.keys())
def test_a_predicate_stops_a_run(predicate: Callable[..., Any]) -> None:
    result = go(_end(looping().run("go", stop=StepCountIs(9) | predicate)))
    assert result.stop_reason is lab.StopReason.STOP_CONDITION
    assert len(result.history) == 2
    assert result.stopped_by_condition
    assert len(result.conditions_met) == 1


async def _end(run: lab.Run) -> lab.RunResult:
    return await run


@pytest.mark.parametrize(
    ("answer", "value", "met"),
    [
        (True, True, True), (1, 1, True), ("why", "why", True), ([0], True, True), (0.5, 0.5, True), (object, True, True),
        (False, False, False), (0, 0, False), ("", "", False), ([], False, False), (None, False, False), (0.0, 0.0, False),
    ],
    ids=repr,
)  # fmt: skip
def test_any_truthy_answer_stops(answer: object, value: object, met: bool) -> None:
    async def later(history: RunHistory) -> object:
        return answer

    for predicate in (lambda history: answer, later):
        reading = go(read_condition(Custom(predicate), steps(1)))
        assert (reading.value, reading.met) == (value, met)


class Watched:
    """An async predicate that waits for its `gate` and records how it ended."""

    def __init__(self, answer: bool, name: str = "watched") -> None:
        self.answer, self.name = answer, name
        self.gate = asyncio.Event()
        self.began = self.ended = self.cancelled = 0

    async def __call__(self, history: RunHistory) -> bool:
        self.began += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended += 1
        return self.answer


@pytest.mark.usefixtures("fake_time")
def test_predicates_are_awaited_concurrently() -> None:
    async def main() -> None:
        first, second = Watched(False), Watched(True)
        reading = asyncio.ensure_future(read_condition(Custom(first) | Custom(second), steps(1)))
        await asyncio.sleep(0.01)
        assert (first.began, second.began) == (1, 1)
        first.gate.set()
        await asyncio.sleep(0)
        second.gate.set()
        assert [leaf.met for leaf in (await reading).leaves()] == [False, True]

    go(main())


@pytest.mark.parametrize(
    ("tree", "asked", "met"),
    [
        pytest.param(lambda a: StepCountIs(1) | a, False, True, id="or-decided"),
        pytest.param(lambda a: StepCountIs(2) | a, True, True, id="or-open"),
        pytest.param(lambda a: a & StepCountIs(2), False, False, id="and-decided"),
        pytest.param(lambda a: a & StepCountIs(1), True, True, id="and-open"),
        pytest.param(lambda a: ~a & StepCountIs(2), False, False, id="not-decided"),
        pytest.param(lambda a: (StepCountIs(2) & a) | StepCountIs(3), False, False, id="inner-decided"),
        pytest.param(lambda a: (StepCountIs(1) | a) & StepCountIs(2), False, False, id="inner-does-not-matter"),
        pytest.param(lambda a: (StepCountIs(1) & a) | StepCountIs(3), True, True, id="inner-open"),
        pytest.param(lambda a: (a | StepCountIs(1)) & (a & StepCountIs(1)), True, True, id="open-in-one-place"),
    ],
)
def test_a_predicate_is_awaited_only_if_the_others_leave_the_answer_open(tree: Any, asked: bool, met: bool) -> None:
    async def main() -> None:
        watched = Watched(True)
        watched.gate.set()
        reading = await read_condition(tree(Custom(watched)), steps(1))
        assert reading.met is met
        assert bool(watched.began) is asked

    go(main())


def test_the_first_deciding_predicate_cancels_the_rest_whose_readings_are_unknown() -> None:
    async def main() -> None:
        slow, quick, also_slow = Watched(True), Watched(True), Watched(True)
        quick.gate.set()
        tree = Custom(slow, "slow") | Custom(quick, "quick") | Custom(also_slow, "also_slow")
        reading = await read_condition(tree, steps(1))
        assert reading.met is True
        assert {leaf.name: leaf.met for leaf in reading.leaves()} == {"slow": None, "quick": True, "also_slow": None}
        assert [each.name for each in reading.deciding()] == ["quick"]
        assert (slow.cancelled, quick.cancelled, also_slow.cancelled) == (1, 0, 1)

    go(main())


@pytest.mark.usefixtures("fake_time")
def test_a_predicate_that_does_not_decide_cancels_nothing() -> None:
    async def main() -> None:
        no, yes = Watched(False), Watched(True)
        no.gate.set()
        reading = asyncio.ensure_future(read_condition(Custom(no) | Custom(yes), steps(1)))
        await asyncio.sleep(0.01)
        assert not reading.done()
        yes.gate.set()
        assert (await reading).met is True
        assert yes.cancelled == 0

    go(main())


def test_a_raising_predicate_cancels_the_others() -> None:
    async def main() -> None:
        async def broken(history: RunHistory) -> bool:
            await asyncio.sleep(0)
            raise ZeroDivisionError("broken")

        slow = Watched(True)
        with pytest.raises(ZeroDivisionError, match="broken"):
            await read_condition(Custom(slow) | broken, steps(1))
        assert slow.cancelled == 1

    go(main())


@pytest.mark.usefixtures("fake_time")
def test_an_outer_cancel_cancels_the_predicates() -> None:
    async def main() -> None:
        slow = Watched(True)
        reading = asyncio.ensure_future(read_condition(Custom(slow) | StepCountIs(9), steps(1)))
        await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert slow.cancelled == 1

    go(main())


@pytest.mark.filterwarnings("error")
def test_an_unneeded_coroutine_is_closed() -> None:
    """A lambda is called to see whether it is async; if it is not needed, its coroutine is closed."""

    async def main() -> None:
        began = []

        async def later() -> bool:
            began.append(1)
            return True

        def broken(history: RunHistory) -> bool:
            raise ZeroDivisionError

        assert (await read_condition(StepCountIs(1) | (lambda history: later()), steps(1))).met
        assert (await read_condition(Custom(lambda history: later()) & StepCountIs(2), steps(1))).met is False
        task = (lambda history: asyncio.ensure_future(later())) | StepCountIs(1)
        assert (await read_condition(task, steps(1))).met
        with pytest.raises(ZeroDivisionError):
            await read_condition((lambda history: later()) | Custom(broken), steps(1))
        assert Custom(lambda history: later()).read(steps(1)) == Reading("custom")
        await asyncio.sleep(0)
        assert not began

    go(main())
    gc.collect()


@dataclass(frozen=True, slots=True)
class Delayed(StopCondition):
    """Answers after this many iterations of the loop; wrapped in a Custom below."""

    answer: bool
    turns: int

    async def __call__(self, history: RunHistory) -> bool:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        return self.answer


waiting = st.builds(lambda answer, turns: Custom(Delayed(answer, turns)), st.booleans(), st.integers(0, 3))
fixed = st.builds(Fixed, st.just("fixed"), st.booleans())
mixed = st.recursive(
    st.one_of(waiting, fixed),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(*parts)),
        inner.map(Not),
    ),
    max_leaves=8,
)


def truth(condition: StopCondition) -> bool:
    if isinstance(condition, Fixed):
        return bool(condition.met)
    if isinstance(condition, Custom):
        return bool(condition.predicate.answer)  # type: ignore[attr-defined]
    parts = [truth(part) for part in condition.parts]
    return any(parts) if type(condition) is AnyOf else all(parts) if type(condition) is AllOf else not parts[0]


@settings(max_examples=60, deadline=None)
@given(mixed)
def test_waiting_never_changes_the_answer(tree: StopCondition) -> None:
    reading = go(read_condition(tree, steps(1)))
    assert reading.met is truth(tree)
    for leaf, condition in zip(reading.leaves(), tree.leaves(), strict=True):
        assert leaf.met in ({truth(condition), None} if isinstance(condition, Custom) else {truth(condition)})


@dataclass(frozen=True, slots=True)
class Pair(StopCondition):
    """A custom leaf that answers with a tree of readings."""

    def read(self, history: RunHistory) -> Reading:
        """Two readings under one name."""
        children = (Reading("left", 1, 2, False), Reading("right", 1, 2, False))
        return Reading("Pair", met=False, children=children)


@pytest.mark.parametrize("turned", [False, True], ids=["pair-first", "pair-last"])
def test_a_leaf_may_answer_with_a_tree(turned: bool) -> None:
    yes = Custom(AsyncJudge(), "yes")
    tree = (yes | Pair()) if turned else (Pair() | yes)
    reading = go(read_condition(tree, steps(2)))
    assert reading.met is True
    assert {leaf.name: leaf.met for leaf in reading.leaves()} == {"left": False, "right": False, "yes": True}


# In a run --------------------------------------------------------------------------------------------------------------------


def broken_at_two(history: RunHistory) -> bool:
    if len(history) == 2:
        raise ZeroDivisionError("no judgement")
    return False


async def broken_at_two_later(history: RunHistory) -> bool:
    return broken_at_two(history)


@pytest.mark.parametrize("predicate", [broken_at_two, broken_at_two_later, lambda history: broken_at_two_later(history[:])])
@pytest.mark.parametrize("script", [[call("look"), call("look"), "end"], [call("look"), "end"]], ids=["loop", "at-completion"])
def test_a_raising_predicate_ends_the_run_with_an_error_and_loses_nothing(predicate: Any, script: list[Any]) -> None:
    run = run_of(script, stop=StepCountIs(9) | predicate)
    result = go(_end(run))
    assert result.stop_reason is lab.StopReason.ERROR
    assert isinstance(result.error, ZeroDivisionError)
    assert "no judgement" in result.detail
    assert len(result.history) == 2
    assert result.history.tokens == 30
    assert result.history[-1].error is result.error
    assert_is_whole(run)
    with pytest.raises(lab.errors.RunFailed) as caught:
        result.raise_for_stop()
    assert caught.value.__cause__ is result.error
    assert caught.value.result is result


@pytest.mark.usefixtures("fake_time")
def test_the_timeout_applies_to_conditions_too() -> None:
    """A hanging judge is awaited until the run's time limit; the other leaves are read."""

    async def hangs(history: RunHistory) -> bool:
        await asyncio.sleep(60)
        return True

    started = time.monotonic()
    result = result_of([call("look"), "end"], stop=StepCountIs(9) | Custom(hangs), budget=lab.Budget(timeout=0.1))
    assert time.monotonic() - started == pytest.approx(0.1, abs=0.01)
    assert result.stop_reason is lab.StopReason.TIMEOUT
    readings = result.history[-1].readings
    assert readings is not None
    assert {leaf.name: (leaf.value, leaf.met) for leaf in readings.leaves()} == {"StepCountIs": (1, False), "hangs": (None, None)}


def test_is_stop_condition_met_accepts_any_sequence_of_steps() -> None:
    history = steps(3)
    assert go(is_stop_condition_met(StepCountIs(3), history)) is True
    assert go(is_stop_condition_met(StepCountIs(3), list(history))) is True
    assert go(is_stop_condition_met(StepCountIs(3), history[:2])) is False
    assert go(is_stop_condition_met([StepCountIs(9), HasToolCall("a")], tuple(history))) is False
    assert go(is_stop_condition_met(lab.MaxTokensUsed(1), steps(1, tokens=(None, None)))) is False
