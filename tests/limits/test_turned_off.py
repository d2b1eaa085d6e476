"""Conditions that are turned off: kept and read, never counted, never called."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from engine.builders import Fixed, finalize, go, look, looping, result_of, steps
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import AllOf, AnyOf, Custom, HasToolCall, MaxTokensUsed, Not, Off, StepCountIs, is_stop_condition_met
from agentlab.errors import AgentlabWarning
from agentlab.limits.combinators import StopCondition
from agentlab.limits.condition_tree import describe
from agentlab.limits.evaluation import read_condition
from agentlab.limits.reading import Reading
from agentlab.model.messages import ToolCall
from agentlab.records.history import RunHistory
from agentlab.testing import call, say

ONE = steps(1)


def met(condition: StopCondition) -> bool | None:
    return condition.read(ONE).met


T, F, U = Fixed("t", True), Fixed("f", False), Fixed("u", None)
TABLE = {
    "alone-met": (Off(T), None),
    "alone-not-met": (Off(F), None),
    "negated": (~Off(F), None),
    "a-negation": (Off(~F), None),
    "twice": (Off(Off(T)), None),
    "any-met-off": (Off(T) | F, False),
    "any-other-met": (Off(F) | T, True),
    "any-other-unknown": (Off(T) | U, None),
    "any-unknown-off": (Off(U) | F, False),
    "any-all-off": (Off(T) | Off(T), None),
    "all-not-met-off": (Off(F) & T, True),
    "all-met-off": (Off(T) & F, False),
    "all-unknown-off": (Off(U) & T, True),
    "all-other-unknown": (Off(T) & U, None),
    "all-all-off": (Off(T) & Off(T), None),
    "a-group-within": ((Off(T) | Off(T)) | F, False),
    "a-group-that-is-off-within": (Off(T | T) & T, True),
    "a-group-of-an-off-group-in-all": ((Off(F) & Off(F)) & T, True),
    "a-negated-group-of-off": (~(Off(T) | Off(T)) & T, True),
    "a-negated-group-with-one-left": (~(Off(T) | F), True),
}


@pytest.mark.parametrize(("tree", "expected"), TABLE.values(), ids=TABLE.keys())
def test_a_condition_turned_off_is_left_out(tree: StopCondition, expected: bool | None) -> None:
    assert met(tree) is expected
    assert go(read_condition(tree | Off(Custom(never_called)), ONE)).met is expected


def never_called(history: RunHistory) -> bool:
    raise AssertionError("a predicate that is off was called")


OFF = {
    "a-leaf": (StepCountIs(1), False),
    "off": (Off(StepCountIs(1)), True),
    "negated": (~Off(StepCountIs(1)), True),
    "one-of-two": (Off(StepCountIs(1)) | StepCountIs(2), False),
    "both": (Off(StepCountIs(1)) & Off(StepCountIs(2)), True),
}


@pytest.mark.parametrize(("tree", "is_off"), OFF.values(), ids=OFF.keys())
def test_a_combination_of_parts_turned_off_is_off(tree: StopCondition, is_off: bool) -> None:
    assert tree.is_off is is_off


def test_a_condition_turned_off_is_not_awaited() -> None:
    assert not Off(Custom(never_called)).may_wait
    assert not (Off(Custom(never_called)) | StepCountIs(1)).may_wait
    assert (Off(StepCountIs(1)) | Custom(never_called)).may_wait


# For any tree: the same as without the part ---------------------------------------------------------------------------------------

answers = st.sampled_from([True, False, None])


def trees(leaves: st.SearchStrategy[StopCondition]) -> st.SearchStrategy[StopCondition]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(*parts)),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(*parts)),
            inner.map(Not),
            inner.map(Off),
        ),
        max_leaves=8,
    )


fixed = st.builds(Fixed, st.sampled_from("abcd"), answers)


def removed(tree: StopCondition) -> StopCondition | None:
    """The tree rebuilt without the parts that are off."""
    if isinstance(tree, Off):
        return None
    if not tree.parts:
        return tree
    parts = [part for part in map(removed, tree.parts) if part is not None]
    return type(tree)(*parts) if parts else None


@given(trees(fixed))
def test_the_reading_equals_that_of_the_tree_without_the_off_parts(tree: StopCondition) -> None:
    reading, rest = tree.read(ONE), removed(tree)
    assert tree.is_off is (rest is None)
    if rest is None:
        assert reading.met is None
        assert list(reading.deciding()) == []
        assert reading.that_counts() is None
        assert list(tree.leaves(that_count=True)) == []
        assert not go(is_stop_condition_met(tree, ONE))
    else:
        assert reading.met is rest.read(ONE).met
        assert reading.that_counts() == rest.read(ONE)
        assert list(reading.deciding()) == list(rest.read(ONE).deciding())
        assert list(tree.leaves(that_count=True)) == list(rest.leaves())


@given(trees(fixed))
def test_leaves_and_readings_keep_their_shape(tree: StopCondition) -> None:
    reading = tree.read(ONE)
    assert [leaf.name for leaf in reading.leaves()] == [leaf.name for leaf in tree.leaves()]  # type: ignore[attr-defined]
    assert tree.combine(leaf.read(ONE) for leaf in tree.leaves()) == reading
    assert pickle.loads(pickle.dumps(tree)) == copy.deepcopy(tree) == tree


@given(trees(fixed), trees(fixed), trees(fixed))
def test_laws_that_still_hold(a: StopCondition, b: StopCondition, c: StopCondition) -> None:
    """All except the distributive laws: omitting a part of an expression has no value that could be moved."""
    assert met(~(a | b)) is met(~a & ~b)
    assert met(~(a & b)) is met(~a | ~b)
    assert met(a | b) is met(b | a)
    assert met(a & b) is met(b & a)
    assert met((a | b) | c) is met(a | (b | c))
    assert met((a & b) & c) is met(a & (b & c))
    assert met(~~a) is met(Not(Not(a))) is met(a)
    assert met(a | a) is met(a & a) is met(a)
    assert met(a | Off(b)) is met(a & Off(b)) is met(a)


@dataclass(frozen=True, slots=True)
class Later:
    """A predicate, sync or async, that records its calls."""

    answer: bool
    waits: bool
    called: list[bool]

    def __call__(self, history: RunHistory) -> Any:
        self.called.append(True)
        return self._later() if self.waits else self.answer

    async def _later(self) -> bool:
        await asyncio.sleep(0)
        return self.answer


predicates = st.builds(lambda answer, waits: Custom(Later(answer, waits, [])), st.booleans(), st.booleans())


@settings(max_examples=60, deadline=None)
@given(trees(st.one_of(predicates, st.builds(Fixed, st.just("fixed"), st.booleans()))))
def test_a_predicate_turned_off_is_never_called(tree: StopCondition) -> None:
    rest = removed(tree)
    reading = go(read_condition(tree, ONE))
    counted = set(map(id, tree.leaves(that_count=True)))
    for leaf in tree.leaves():
        if isinstance(leaf, Custom) and id(leaf) not in counted:
            assert leaf.predicate.called == []  # type: ignore[attr-defined]
    assert reading.met is (None if rest is None else go(read_condition(rest, ONE)).met)
    for part in reading.deciding():
        assert "(off)" not in str(part)


async def _async_never(history: RunHistory) -> bool:
    return never_called(history)


async def _no(history: RunHistory) -> bool:
    await asyncio.sleep(0)
    return False


BESIDE = {"plain": StepCountIs(9), "custom": Custom(lambda history: False), "async": Custom(_no)}


@pytest.mark.parametrize("predicate", [never_called, _async_never, functools.partial(_async_never)])
@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE.keys())
def test_reading_and_awaiting_skip_a_predicate_turned_off(predicate: Any, beside: StopCondition) -> None:
    tree = Off(Custom(predicate, "mine") | StepCountIs(1)) | beside
    for reading in (tree.read(ONE), go(read_condition(tree, ONE))):
        assert [(leaf.name, leaf.value, leaf.met) for leaf in reading.leaves()][:2] == [
            ("mine", None, None),
            ("StepCountIs", 1, None),
        ]
    assert reading.met is False


@dataclass(frozen=True, slots=True)
class Broken(StopCondition):
    """Raises when it is read."""

    def read(self, history: RunHistory) -> Reading:
        """Nothing."""
        raise ZeroDivisionError("broken")


def test_an_exception_of_a_condition_turned_off_does_not_count() -> None:
    for tree in (Off(Broken()) | StepCountIs(1), Off(Broken()) | StepCountIs(1) | Custom(len)):
        reading = go(read_condition(tree, ONE))
        assert reading.met is True
        assert next(reading.leaves()) == Reading("Broken")
    with pytest.raises(ZeroDivisionError):
        go(read_condition(Broken() | StepCountIs(1), ONE))


# As values, and in a run ------------------------------------------------------------------------------------------------------------


def test_off_as_a_value() -> None:
    tree = Off(StepCountIs(3)) | MaxTokensUsed(5)
    assert repr(tree) == "AnyOf(Off(StepCountIs(steps=3)), MaxTokensUsed(tokens=5))"
    assert tree == AnyOf(Off(StepCountIs(3)), MaxTokensUsed(5)) != StepCountIs(3) | MaxTokensUsed(5)
    assert hash(Off(StepCountIs(3))) == hash(Off(StepCountIs(3)))
    assert list(describe(tree)) == ["StepCountIs", "MaxTokensUsed"]
    assert tree.with_leaf(tree.parts[0].parts[0], StepCountIs(5)) == Off(StepCountIs(5)) | MaxTokensUsed(5)
    assert str(tree.read(ONE)) == "AnyOf(StepCountIs 1 of 3 (off), MaxTokensUsed 15 of 5)"
    assert Off(never_called).parts[0] == Custom(never_called)
    with pytest.raises(AttributeError):
        tree.is_off = True  # type: ignore[misc]


def test_the_stop_reason_names_no_condition_turned_off() -> None:
    tree = ~(Off(StepCountIs(9)) | HasToolCall("finalize")) & StepCountIs(2)
    result = go(_end(looping().run("go", stop=tree)))
    assert result.stop_reason is lab.StopReason.STOP_CONDITION
    assert [str(one) for one in result.conditions_met] == ["not AnyOf(HasToolCall(finalize): 0 calls)", "StepCountIs 2 of 2"]
    assert "9" not in result.detail


async def _end(run: lab.Run) -> lab.RunResult:
    return await run


def test_in_a_run_it_is_recorded_and_stops_nothing() -> None:
    script = [call("look"), call("finalize", {"answer": "early"}), call("look"), "end"]
    stop = Off(StepCountIs(1)) | HasToolCall("nothing") | Off(HasToolCall("finalize") & Custom(never_called))
    result = result_of(script, stop=stop, tools=[look, finalize, lab.tool(name="nothing")(finalize.function)])
    assert result.stop_reason is lab.StopReason.COMPLETED
    assert not result.stopped_by_condition
    frame = result.to_frame()
    assert list(frame["StepCountIs.value"]) == [1, 2, 3, 4]
    assert list(frame["StepCountIs.limit"]) == [1, 1, 1, 1]
    assert frame["StepCountIs.met"].isna().all()
    assert list(frame["HasToolCall.met"]) == [False] * 4
    assert list(frame["HasToolCall_2.value"]) == [0, 1, 1, 1]
    assert frame["never_called.met"].isna().all()


def test_the_output_is_of_the_tool_whose_call_counted() -> None:
    both = say("", calls=[ToolCall("1", "finalize", '{"answer": "this"}'), ToolCall("2", "look", '{"q": "that"}')])
    for stop, output in (
        (HasToolCall("finalize") | HasToolCall("look"), "saw that"),
        (HasToolCall("finalize") | Off(HasToolCall("look")), "this"),
    ):
        assert result_of([both, "end"], stop=stop).output == output


def test_an_unenforceable_limit_is_reported_only_if_it_counts() -> None:
    with pytest.warns(AgentlabWarning, match="only what is known counts toward MaxTokensUsed"):
        result_of([say("text", tokens=(None, None))], stop=MaxTokensUsed(5))
    result_of([say("text", tokens=(None, None))], stop=Off(MaxTokensUsed(5)))  # a warning would be an error
