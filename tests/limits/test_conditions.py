"""Stop conditions: both sides of each limit, the laws of | & ~, and which part fired."""

from __future__ import annotations

import dataclasses
import json
import warnings
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from engine.builders import Fixed, go, look, looping, result_of, step, steps
from hypothesis import given
from hypothesis import strategies as st

import agentlab as lab
from agentlab import AllOf, AnyOf, Custom, FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, Not, RunSettings, StepCountIs
from agentlab.engine.unreachable import never_met, why_never
from agentlab.errors import ConfigurationError, LimitError
from agentlab.limits.budget import LIMIT_REASONS, TOTAL_OF, USED
from agentlab.limits.combinators import StopCondition, as_condition
from agentlab.limits.condition_tree import describe
from agentlab.limits.fields import limit_fields
from agentlab.limits.reading import Reading, Remaining
from agentlab.model.finish_reasons import FinishReason
from agentlab.records.history import RunHistory
from agentlab.storage.codec import from_jsonable, to_jsonable
from agentlab.testing import call

# Both sides of each limit ---------------------------------------------------------------------------------------------------

AT_THE_LIMIT = {
    "steps-below": (StepCountIs(3), steps(2), 2, False),
    "steps-at": (StepCountIs(3), steps(3), 3, True),
    "steps-above": (StepCountIs(3), steps(4), 4, True),
    "no-step-yet": (StepCountIs(1), steps(0), 0, False),
    "tokens-below": (MaxTokensUsed(30), RunHistory([step(1, tokens=(20, 9))]), 29, False),
    "tokens-at": (MaxTokensUsed(30), RunHistory([step(1, tokens=(20, 10))]), 30, True),
    "tokens-above": (MaxTokensUsed(30), RunHistory([step(1, tokens=(20, 11))]), 31, True),
    "tokens-over-steps-and-calls": (MaxTokensUsed(60), steps(2, calls=2), 60, True),
    "tokens-none-yet": (MaxTokensUsed(1), steps(0), 0, False),
    "tokens-zero-used": (MaxTokensUsed(1), steps(1, tokens=(0, 0)), 0, False),
    "cost-below": (MaxCost(0.05), steps(1, cost="0.0499999999999999999"), Decimal("0.0499999999999999999"), False),
    "cost-at": (MaxCost(0.05), steps(1, cost="0.05"), Decimal("0.05"), True),
    "cost-above": (MaxCost(0.05), steps(1, cost="0.0500000000000000001"), Decimal("0.0500000000000000001"), True),
    "cost-of-tenths-is-exact": (MaxCost(0.3), steps(3, cost="0.1"), Decimal("0.3"), True),
    "cost-of-tenths-below": (MaxCost("0.4"), steps(3, cost="0.1"), Decimal("0.3"), False),
    "cost-none-yet": (MaxCost(1), steps(0), Decimal(0), False),
    "tool-not-called": (HasToolCall("finalize"), steps(1, tools=["look"]), 0, False),
    "tool-called": (HasToolCall("finalize"), steps(1, tools=["look", "finalize"]), 1, True),
    "tool-called-twice": (HasToolCall("finalize"), steps(1, tools=["finalize", "finalize"]), 2, True),
    "tool-called-in-an-earlier-step": (HasToolCall("a"), RunHistory([step(1, tools=["a"]), step(2)]), 1, True),
    "tool-any-of-several": (HasToolCall("a", "b"), steps(1, tools=["b"]), 1, True),
    "tool-none-of-several": (HasToolCall("a", "b"), steps(1, tools=["ab"]), 0, False),
    "output-below": (lab.MaxOutputTokens(11), steps(2, tokens=(99, 5)), 10, False),
    "output-at": (lab.MaxOutputTokens(10), steps(2, tokens=(99, 5)), 10, True),
    "output-known-part": (lab.MaxOutputTokens(5), RunHistory([step(1), step(2, tokens=(9, None))]), None, True),
    "output-unknown": (lab.MaxOutputTokens(6), RunHistory([step(1), step(2, tokens=(9, None))]), None, None),
    "calls-below": (lab.MaxToolCalls(4), steps(1, tools=["a", "b", "a"]), 3, False),
    "calls-at": (lab.MaxToolCalls(4), steps(2, tools=["a", "b"]), 4, True),
    "calls-of-one-tool": (lab.MaxToolCalls(4, "a"), steps(2, tools=["a", "b", "a"]), 4, True),
    "calls-of-two-tools": (lab.MaxToolCalls(4, ["a", "c"]), steps(1, tools=["a", "b", "c", "a"]), 3, False),
    "repeats-below": (lab.Repeats(3), steps(1, tools=["a", "b", "a"]), 2, False),
    "repeats-at": (lab.Repeats(3), steps(3, tools=["a", "b"]), 3, True),
    "tool-whose-name-begins-so": (HasToolCall("final"), steps(1, tools=["finalize"]), 0, False),
}


@pytest.mark.parametrize(("condition", "history", "value", "met"), AT_THE_LIMIT.values(), ids=AT_THE_LIMIT.keys())
def test_a_condition_is_met_at_the_limit_and_not_before(
    condition: StopCondition, history: RunHistory, value: object, met: bool | None
) -> None:
    reading = condition.read(history)
    assert (reading.value, reading.met) == (value, met)
    assert reading.name == type(condition).__name__


FINISH = {
    "our-word": (["max_tokens"], FinishReasonIs(FinishReason.MAX_TOKENS), True),
    "our-word-as-text": (["max_tokens"], FinishReasonIs("max_tokens"), True),
    "their-word": (["max_tokens"], FinishReasonIs("length"), True),
    "another-word": (["max_tokens"], FinishReasonIs("stop"), False),
    "any-of-several": (["max_tokens"], FinishReasonIs("stop", FinishReason.MAX_TOKENS), True),
    "in-an-earlier-step": (["max_tokens", "end_turn"], FinishReasonIs("length"), True),
    "not-yet": ([], FinishReasonIs(FinishReason.END_TURN), False),
    "not-a-part-of-a-word": (["max_tokens"], FinishReasonIs("len"), False),
}


@pytest.mark.parametrize(("reasons", "condition", "met"), FINISH.values(), ids=FINISH.keys())
def test_finish_reason_in_any_step_by_our_name_or_the_providers(reasons: list[str], condition: FinishReasonIs, met: bool) -> None:
    history = RunHistory(
        step(index, finish=FinishReason(reason), raw="length" if reason == "max_tokens" else None)
        for index, reason in enumerate(reasons, 1)
    )
    assert condition.read(history).met is met


def test_finish_reason_of_any_call_of_a_step() -> None:
    paused, done = step(1, finish=FinishReason.PAUSED), step(1)
    both = RunHistory([replace(done, calls=(*paused.calls, *done.calls))])
    assert FinishReasonIs(FinishReason.PAUSED).read(both).met
    assert FinishReasonIs(FinishReason.END_TURN).read(both).met


UNKNOWN = {
    "tokens-known-below": (MaxTokensUsed(100), [(40, None)], None),
    "tokens-known-at": (MaxTokensUsed(40), [(40, None)], True),
    "tokens-all-unknown": (MaxTokensUsed(1), [(None, None)], None),
    "tokens-known-in-other-steps": (MaxTokensUsed(15), [(10, 5), (None, None)], True),
    "tokens-known-in-other-steps-below": (MaxTokensUsed(16), [(10, 5), (None, None)], None),
}


@pytest.mark.parametrize(("condition", "tokens", "met"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_unknown_usage_is_never_zero(condition: StopCondition, tokens: list[tuple[int, int]], met: bool | None) -> None:
    reading = condition.read(RunHistory(step(index, tokens=each) for index, each in enumerate(tokens, 1)))
    assert reading.value is None
    assert reading.met is met


def test_unknown_cost_is_never_zero() -> None:
    history = RunHistory([step(1, cost="0.02"), step(2, cost=None)])
    assert (MaxCost("0.03").read(history).value, MaxCost("0.03").read(history).met) == (None, None)
    assert MaxCost("0.02").read(history).met is True


REFUSED = {
    "zero-steps": (lambda: StepCountIs(0), "StepCountIs(steps=0)"),
    "negative-steps": (lambda: StepCountIs(-1), "StepCountIs(steps=-1)"),
    "half-steps": (lambda: StepCountIs(2.5), "2.5"),
    "true-steps": (lambda: StepCountIs(True), "True"),
    "no-steps": (lambda: StepCountIs(None), "None"),
    "text-steps": (lambda: StepCountIs("5"), "'5'"),
    "zero-tokens": (lambda: MaxTokensUsed(0), "MaxTokensUsed(tokens=0)"),
    "one-repeat": (lambda: lab.Repeats(1), "at least 2"),
    "no-tool-calls": (lambda: lab.MaxToolCalls(0), "MaxToolCalls(calls=0)"),
    "tool-calls-without-name": (lambda: lab.MaxToolCalls(3, ["a", ""]), 'MaxToolCalls(3, "search")'),
    "negative-tokens": (lambda: MaxTokensUsed(-1), "-1"),
    "zero-cost": (lambda: MaxCost(0), "MaxCost(usd=0)"),
    "negative-cost": (lambda: MaxCost(-0.01), "-0.01"),
    "nan-cost": (lambda: MaxCost(float("nan")), "nan"),
    "infinite-cost": (lambda: MaxCost(float("inf")), "inf"),
    "cost-in-words": (lambda: MaxCost("a lot"), "'a lot'"),
    "cost-object": (lambda: MaxCost(object()), "object"),
    "empty-list": (lambda: StepCountIs([]), "steps=[]"),
    "list-with-a-zero": (lambda: MaxCost([1, 0]), "MaxCost(usd=0)"),
    "empty-list-of-tools": (lambda: HasToolCall([]), "HasToolCall()"),
    "several-for-a-run": (lambda: RunSettings(stop=HasToolCall("a") | StepCountIs([2, 3])), "StepCountIs(steps=[2, 3])"),
    "true-cost": (lambda: MaxCost(True), "True"),
    "no-tool": (HasToolCall, "HasToolCall()"),
    "empty-tool": (lambda: HasToolCall(""), "''"),
    "tool-function": (lambda: HasToolCall(len), "name the tools as text"),
    "no-reason": (FinishReasonIs, "end_turn"),
    "number-reason": (lambda: FinishReasonIs(3), "3"),
}


@pytest.mark.parametrize(("make", "explanation"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_limits_are_refused_by_name(make: Any, explanation: str) -> None:
    with pytest.raises(LimitError) as caught:
        make()
    assert explanation in str(caught.value)


# Combinations: three-valued truth tables, and laws ------------------------------------------------------------------------------

T, F, U = True, False, None
TABLE = {
    (T, T): (T, T), (T, F): (T, F), (T, U): (T, U),
    (F, T): (T, F), (F, F): (F, F), (F, U): (U, F),
    (U, T): (T, U), (U, F): (U, F), (U, U): (U, U),
}  # fmt: skip


@pytest.mark.parametrize(("left", "right"), TABLE, ids=str)
def test_truth_table(left: bool | None, right: bool | None) -> None:
    a, b = Fixed("a", left), Fixed("b", right)
    assert ((a | b).read(steps(1)).met, (a & b).read(steps(1)).met) == TABLE[left, right]


@pytest.mark.parametrize(("met", "inverted"), [(T, F), (F, T), (U, U)], ids=str)
def test_truth_table_of_not(met: bool | None, inverted: bool | None) -> None:
    assert (~Fixed("a", met)).read(steps(1)).met is inverted


answers = st.sampled_from([True, False, None])
leaves = st.builds(Fixed, st.sampled_from("abcd"), answers)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(*parts)),
        inner.map(Not),
    ),
    max_leaves=8,
)
ONE = steps(1)


def met(condition: StopCondition) -> bool | None:
    return condition.read(ONE).met


@given(trees, trees)
def test_de_morgan(a: StopCondition, b: StopCondition) -> None:
    assert met(~(a | b)) is met(~a & ~b)
    assert met(~(a & b)) is met(~a | ~b)


@given(trees, trees)
def test_commutative(a: StopCondition, b: StopCondition) -> None:
    assert met(a | b) is met(b | a)
    assert met(a & b) is met(b & a)


@given(trees, trees, trees)
def test_associative_and_distributive(a: StopCondition, b: StopCondition, c: StopCondition) -> None:
    assert met((a | b) | c) is met(a | (b | c))
    assert met((a & b) & c) is met(a & (b & c))
    assert met(a & (b | c)) is met((a & b) | (a & c))
    assert met(a | (b & c)) is met((a | b) & (a | c))


@given(trees)
def test_double_negation_idempotence_and_bounds(a: StopCondition) -> None:
    never, always = Fixed("never", False), Fixed("always", True)
    assert met(~~a) is met(Not(Not(a))) is met(a)
    assert met(a | a) is met(a & a) is met(a)
    assert met(a | never) is met(a & always) is met(a)
    assert met(a | always) is True
    assert met(a & never) is False


@given(trees)
def test_leaves_readings_and_condition_have_the_same_shape(a: StopCondition) -> None:
    reading = a.read(ONE)
    assert [leaf.name for leaf in reading.leaves()] == [leaf.name for leaf in a.leaves()]  # type: ignore[attr-defined]
    again = a.combine(leaf.read(ONE) for leaf in a.leaves())
    assert again == reading


@given(trees)
def test_the_deciding_readings_alone_decide(a: StopCondition) -> None:
    """With every other leaf unknown, a met condition is still met."""
    reading = a.read(ONE)
    deciding = list(reading.deciding())
    assert bool(deciding) is bool(reading.met)
    kept = {id(leaf) for part in deciding for leaf in part.leaves()}
    rest = [Reading(leaf.name) if id(leaf) not in kept else leaf for leaf in reading.leaves()]
    if reading.met:
        assert a.combine(iter(rest)).met is True


def test_the_part_that_fired_is_known() -> None:
    reading = (StepCountIs(8) | HasToolCall("finalize") | MaxCost(0.01)).read(steps(2, tools=["finalize"], cost="0.001"))
    assert [each.name for each in reading.deciding()] == ["HasToolCall"]
    both = (StepCountIs(2) | HasToolCall("finalize")).read(steps(2, tools=["finalize"]))
    assert [each.name for each in both.deciding()] == ["StepCountIs", "HasToolCall"]
    inner = (StepCountIs(9) | (StepCountIs(2) & ~HasToolCall("look"))).read(steps(2))
    assert [each.name for each in inner.deciding()] == ["StepCountIs", "Not"]


def test_readings_are_formatted_as_words() -> None:
    reading = (StepCountIs(8) & ~HasToolCall("look")).read(steps(3))
    assert str(reading) == "AllOf(StepCountIs 3 of 8, not HasToolCall(look): 0 calls)"
    assert str(Reading("MaxCost", None, Decimal("0.05"))) == "MaxCost unknown of $0.05"
    assert str(Reading("max_cost", None, Decimal("0.10"), met=True)) == "max_cost at least $0.10 (not all is known)"
    assert str(Custom(lambda history: 1, name="Not").read(steps(1))) == "Not 1"


# Construction ------------------------------------------------------------------------------------------------------------------


def test_operators_flatten_and_keep_the_written_order() -> None:
    a, b, c = StepCountIs(1), StepCountIs(2), StepCountIs(3)
    assert (a | b | c) == AnyOf(a, b, c) == (a | (b | c))
    assert (a & b & c) == AllOf(a, b, c)
    assert (a & b | c) == AnyOf(AllOf(a, b), c)
    assert list((c | a | b).leaves()) == [c, a, b]
    assert hash(a | b) == hash(AnyOf(a, b))
    assert (a | b) != (a & b)
    assert ~~a is a


def done(history: RunHistory) -> bool:
    return len(history) >= 2


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        pytest.param(StepCountIs(9) | done, AnyOf, id="condition-or-function"),
        pytest.param(done | StepCountIs(9), AnyOf, id="function-or-condition"),
        pytest.param(~StepCountIs(9) & done, AllOf, id="condition-and-function"),
        pytest.param(done & ~StepCountIs(9), AllOf, id="function-and-condition"),
        pytest.param((lambda history: done(history[:])) | (StepCountIs(9) | StepCountIs(8)), AnyOf, id="lambda-or-combination"),
    ],
)
def test_plain_callables_on_either_side(condition: StopCondition, kind: type) -> None:
    assert type(condition) is kind
    assert condition.read(steps(1)).met is False
    assert condition.read(steps(2)).met is True


@pytest.mark.parametrize("wrong", [5, None, "StepCountIs", [StepCountIs(1)], StepCountIs, int], ids=repr)
def test_operators_refuse_other_values(wrong: Any) -> None:
    for operation in (lambda: StepCountIs(1) | wrong, lambda: wrong | StepCountIs(1), lambda: StepCountIs(1) & wrong):
        with pytest.raises(TypeError):
            operation()


@pytest.mark.parametrize(
    ("wrong", "explanation"),
    [
        (5, "5 is not a stop condition"),
        ("StepCountIs(3)", "is not a stop condition"),
        ([], "stop conditions is empty"),
        (StepCountIs, "write StepCountIs("),
        (dict, "is a class"),
        ({StepCountIs(1)}, "is not a stop condition"),
        ([StepCountIs(1), 5], "5 is not a stop condition"),
    ],
    ids=repr,
)
def test_an_invalid_condition_is_an_error_that_names_it(wrong: object, explanation: str) -> None:
    with pytest.raises(ConfigurationError, match=explanation.replace("(", r"\(")):
        as_condition(wrong)
    with pytest.raises(ConfigurationError):
        looping().run("go", stop=wrong)


def test_a_list_means_any_of_its_conditions() -> None:
    assert as_condition([StepCountIs(1)]) == StepCountIs(1)
    assert as_condition([StepCountIs(1), done]).read(steps(1)).met is True
    assert AnyOf([StepCountIs(1), StepCountIs(2)]).read(steps(1)).met is True


@pytest.mark.parametrize("kind", [AnyOf, AllOf])
def test_combinations_need_a_part(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        kind()


def test_custom_needs_a_function() -> None:
    with pytest.raises(ConfigurationError, match="'steps > 3'"):
        Custom("steps > 3")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        Custom(dict)


@pytest.mark.parametrize(
    "condition", [StepCountIs(8), Custom(done), StepCountIs(8) | done, ~StepCountIs(8), lab.Off(StepCountIs(8))], ids=repr
)
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda a: a or HasToolCall("x"), id="or"),
        pytest.param(lambda a: a and HasToolCall("x"), id="and"),
        pytest.param(lambda a: not a, id="not"),
        pytest.param(lambda a: 1 if a else 2, id="if"),
        pytest.param(lambda a: lab.backtest([], StepCountIs([2, 4]), goal=a or a), id="goal"),
    ],
)
def test_a_condition_has_no_truth_value_and_the_error_gives_advice(condition: StopCondition, write: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        write(condition)
    explanation = str(caught.value)
    assert explanation.startswith(f"{condition!r} has no truth value")
    for written in ("a | b", "a & b", "~a", "is not None"):
        assert written in explanation


def test_repr_reads_like_the_code_that_made_it() -> None:
    condition = (StepCountIs(8) | HasToolCall("a", "b")) & ~MaxCost(0.05) & FinishReasonIs(FinishReason.MAX_TOKENS, "length")
    assert repr(condition) == (
        "AllOf(AnyOf(StepCountIs(steps=8), HasToolCall('a', 'b')), Not(MaxCost(0.05)), FinishReasonIs('max_tokens', 'length'))"
    )


# Editing ----------------------------------------------------------------------------------------------------------------------


def test_with_leaf_replaces_by_identity_and_keeps_the_rest() -> None:
    first, second = StepCountIs(3), StepCountIs(3)
    tree = (first & HasToolCall("a")) | ~second
    changed = tree.with_leaf(second, StepCountIs(5))
    assert changed == (StepCountIs(3) & HasToolCall("a")) | ~StepCountIs(5)
    assert tree == (StepCountIs(3) & HasToolCall("a")) | ~StepCountIs(3)
    assert next(iter(changed.leaves())) is first
    assert first.with_leaf(first, second) is second
    assert first.with_leaf(second, HasToolCall("a")) is first


def test_with_leaf_keeps_whether_the_tree_is_async() -> None:
    leaf = StepCountIs(3)
    tree = leaf | HasToolCall("a")
    assert not tree.may_wait
    assert tree.with_leaf(leaf, Custom(done)).may_wait


def test_leaves_have_unique_names() -> None:
    async def judge(history: RunHistory) -> bool:
        return True

    tree = StepCountIs(3) | StepCountIs(5) | done | (lambda history: 1) | judge | Custom(done, name="mine") | StepCountIs(7)
    assert list(describe(tree)) == ["StepCountIs", "StepCountIs_2", "done", "custom", "judge", "mine", "StepCountIs_3"]


@pytest.mark.parametrize(
    ("leaf", "fields", "after"),
    [
        (StepCountIs(3), {"steps": 5}, StepCountIs(5)),
        (MaxTokensUsed(3), {"tokens": 5}, MaxTokensUsed(5)),
        (MaxCost(3), {"usd": 0.05}, MaxCost("0.05")),
        (HasToolCall("a"), {"names": ("b", "c")}, HasToolCall("b", "c")),
        (HasToolCall("a"), {"names": "finalize"}, HasToolCall("finalize")),
        (FinishReasonIs("stop"), {"reasons": ["length"]}, FinishReasonIs("length")),
        (FinishReasonIs("stop"), {"reasons": FinishReason.MAX_TOKENS}, FinishReasonIs(FinishReason.MAX_TOKENS)),
        (Custom(done), {"name": "mine"}, Custom(done, "mine")),
        (Fixed("a", True), {"met": False}, Fixed("a", False)),
    ],
    ids=repr,
)
def test_changed_returns_an_edited_copy(leaf: StopCondition, fields: dict[str, Any], after: StopCondition) -> None:
    assert leaf.changed(**fields) == after


@pytest.mark.parametrize(
    ("leaf", "fields"),
    [(StepCountIs(3), {"steps": 0}), (MaxCost(1), {"usd": -1}), (HasToolCall("a"), {"names": ()})],
    ids=repr,
)
def test_changed_validates_like_the_constructor(leaf: StopCondition, fields: dict[str, Any]) -> None:
    with pytest.raises(LimitError):
        leaf.changed(**fields)


# In a run --------------------------------------------------------------------------------------------------------------------


def test_every_leaf_is_read_at_every_step() -> None:
    tree = StepCountIs(3) | (HasToolCall("finalize") & ~MaxTokensUsed(1000)) | done | FinishReasonIs("length")
    result = go(_to_end(looping().run("go", stop=tree & StepCountIs(3))))
    assert len(result.history) == 3
    for index, each in enumerate(result.history, 1):
        assert each.readings is not None
        read = {leaf.name: leaf for leaf in each.readings.leaves()}
        assert list(read) == ["StepCountIs", "HasToolCall", "MaxTokensUsed", "done", "FinishReasonIs"]
        assert read["StepCountIs"].value == index
        assert read["MaxTokensUsed"].value == 15 * index
        assert (read["MaxTokensUsed"].limit, read["StepCountIs"].limit) == (1000, 3)
        assert all(leaf.met is not None for leaf in read.values())


async def _to_end(run: lab.Run) -> lab.RunResult:
    return await run


def test_a_custom_condition_is_a_frozen_dataclass_with_read() -> None:
    result = result_of([call("look"), "end"], stop=Fixed("mine", True) | StepCountIs(5))
    assert result.stop_reason is lab.StopReason.STOP_CONDITION
    assert [each.name for each in result.conditions_met] == ["mine"]


# Unreachable conditions ----------------------------------------------------------------------------------------------------------

TYPO = HasToolCall("finalise")
NO_TOOL = (
    "HasToolCall('finalise') can never be met: the agent has no tool 'finalise'. Did you mean 'finalize'? "
    "Its tools: look, finalize."
)
ALWAYS = "The stop condition as a whole is met after the first step."
NEVER = "The stop condition as a whole can never be met."
OTHERS = "The other conditions still count."


def excluded(one: str, other: str, *, turned: bool = False) -> str:
    parts = f"Not({other}), {one}" if turned else f"{one}, Not({other})"
    return f"AllOf({parts}) can never be met: whenever {one} is met, Not({other}) is not. {NEVER}"


@dataclass(frozen=True)
class Unhashable(StopCondition):
    words: dict[str, str]

    def read(self, history: RunHistory) -> Reading:
        return Reading("Unhashable", 0, None, False)


NEVER_MET: dict[str, tuple[StopCondition, list[str]]] = {
    "tool": (TYPO, [NO_TOOL]),
    "tool-there": (HasToolCall("finalize"), []),
    "one-of-several-there": (HasToolCall("finalise", "look"), []),
    "in-or": (TYPO | StepCountIs(3), [f"{NO_TOOL} {OTHERS}"]),
    "in-and": (TYPO & StepCountIs(3), [f"{NO_TOOL} {NEVER}"]),
    "in-and-of-or": ((TYPO | HasToolCall("look")) & StepCountIs(3), [f"{NO_TOOL} {OTHERS}"]),
    "in-or-of-and": ((TYPO & MaxCost(1)) | StepCountIs(3), [f"{NO_TOOL} {OTHERS}"]),
    "not": (~TYPO, [f"{NO_TOOL} {ALWAYS}"]),
    "not-in-or": (~TYPO | StepCountIs(3), [f"{NO_TOOL} {ALWAYS}"]),
    "not-in-and": (~TYPO & StepCountIs(3), [f"{NO_TOOL} {OTHERS}"]),
    "off": (lab.Off(TYPO) | StepCountIs(3), []),
    "off-beside-it": (TYPO | lab.Off(StepCountIs(3)), [f"{NO_TOOL} {NEVER}"]),
    "off-in-and": (TYPO & lab.Off(StepCountIs(3)), [f"{NO_TOOL} {NEVER}"]),
    "twice-the-same": (TYPO | TYPO, [f"{NO_TOOL} {NEVER}"]),
    "reason": (
        FinishReasonIs("end_turns"),
        [
            "FinishReasonIs('end_turns') can never be met: no provider sends 'end_turns'. Did you mean 'end_turn'? Known are "
            f"{', '.join(FinishReason)}, and the providers' own finish reasons."
        ],
    ),
    "our-reason": (FinishReasonIs(FinishReason.MAX_TOKENS), []),
    "a-vendors-reason": (FinishReasonIs("tool_use"), []),
    "code-of-an-error": (FinishReasonIs("overloaded_error"), []),
    "one-of-several-reasons": (FinishReasonIs("banana", "length"), []),
    "function": (Custom(done), []),
    "not-hashable": (Unhashable({}) | TYPO, [f"{NO_TOOL} {OTHERS}"]),
    "excluded": (StepCountIs(3) & ~StepCountIs(2), [excluded("StepCountIs(steps=3)", "StepCountIs(steps=2)")]),
    "excluded-at-the-same-limit": (
        ~StepCountIs(2) & StepCountIs(2),
        [excluded("StepCountIs(steps=2)", "StepCountIs(steps=2)", turned=True)],
    ),
    "not-excluded": (StepCountIs(2) & ~StepCountIs(3), []),
    "excluded-tool": (HasToolCall("look") & ~HasToolCall("look"), [excluded("HasToolCall('look')", "HasToolCall('look')")]),
    "one-of-several-excluded": (
        HasToolCall("look") & ~HasToolCall("look", "finalize"),
        [excluded("HasToolCall('look')", "HasToolCall('look', 'finalize')")],
    ),
    "another-tool": (HasToolCall("look", "finalize") & ~HasToolCall("look"), []),
    "another-count": (lab.MaxToolCalls(5, "look") & ~lab.MaxToolCalls(2, "finalize"), []),
    "excluded-money": (MaxCost(2) & ~MaxCost(1), [excluded("MaxCost(2)", "MaxCost(1)")]),
    "excluded-but-off": (StepCountIs(3) & lab.Off(~StepCountIs(2)), []),
    "excluded-beside-another": (
        (StepCountIs(3) & ~StepCountIs(2)) | StepCountIs(5),
        [excluded("StepCountIs(steps=3)", "StepCountIs(steps=2)").replace(NEVER, OTHERS)],
    ),
}


@pytest.mark.parametrize(("condition", "remarks"), NEVER_MET.values(), ids=NEVER_MET.keys())
def test_an_unreachable_condition_is_reported_when_the_run_is_made(condition: StopCondition, remarks: list[str]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = looping().run("go", stop=condition)
    assert [str(one.message) for one in caught] == remarks
    assert all(one.category is lab.AgentlabWarning and one.filename == __file__ for one in caught)
    if any(remark.endswith((ALWAYS, NEVER)) for remark in remarks):  # the message for the whole condition comes first
        run.limits.max_turns = 2
        assert len(go_to_the_end(run).history) == (1 if remarks[0].endswith(ALWAYS) else 2)


def go_to_the_end(run: lab.Run) -> lab.RunResult:
    async def main() -> lab.RunResult:
        return await run

    return go(main())


OVER_BUDGET: dict[str, tuple[StopCondition, lab.Budget, list[str]]] = {
    "steps": (
        StepCountIs(30),
        lab.Budget(max_turns=5),
        ["StepCountIs(steps=30) can never be met: max_turns=5 of the budget ends the run first."],
    ),
    "steps-at-the-limit": (StepCountIs(5), lab.Budget(max_turns=5), []),
    "steps-above-the-default": (StepCountIs(30), lab.Budget(), []),
    "steps-without-a-limit": (StepCountIs(30), lab.Budget(max_turns=None, max_calls=9), []),
    "money": (
        MaxCost(2),
        lab.Budget(max_cost=1),
        ["MaxCost(2) can never be met: max_cost=1 of the budget ends the run first, unless one call exceeds both."],
    ),
    "money-at-the-limit": (MaxCost(1), lab.Budget(max_cost=1), []),
    "tokens": (
        lab.MaxTokensUsed(500),
        lab.Budget(max_tokens=499),
        [
            "MaxTokensUsed(tokens=500) can never be met: max_tokens=499 of the budget ends the run first, unless one call exceeds both."
        ],
    ),
    "other-total": (MaxCost(2), lab.Budget(max_tokens=1), []),
    "in-or": (
        StepCountIs(30) | HasToolCall("look"),
        lab.Budget(max_turns=5),
        [f"StepCountIs(steps=30) can never be met: max_turns=5 of the budget ends the run first. {OTHERS}"],
    ),
    "in-and": (
        StepCountIs(30) & HasToolCall("look"),
        lab.Budget(max_turns=5),
        [f"StepCountIs(steps=30) can never be met: max_turns=5 of the budget ends the run first. {NEVER}"],
    ),
    "off": (lab.Off(StepCountIs(30)) | StepCountIs(3), lab.Budget(max_turns=5), []),
}


@pytest.mark.parametrize(("condition", "budget", "remarks"), OVER_BUDGET.values(), ids=OVER_BUDGET.keys())
def test_a_condition_above_the_budget_is_reported(condition: StopCondition, budget: lab.Budget, remarks: list[str]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        looping().run("go", stop=condition, budget=budget)
    assert [str(one.message) for one in caught] == remarks


def test_a_condition_that_is_set_above_the_budget_is_reported_and_a_lower_budget_is_not() -> None:
    run = looping().run("go", stop=StepCountIs(8))
    with warnings.catch_warnings(action="error"):
        run.limits.max_turns = 5
        run.limits.max_cost = 1
    with pytest.warns(lab.AgentlabWarning, match="StepCountIs.* can never be met: max_turns=5 of the budget"):
        run.limits.stop = StepCountIs(30)
    with pytest.warns(lab.AgentlabWarning, match=r"MaxCost.* can never be met: max_cost=1 of the budget"):
        run.limits.stop = MaxCost(2) | StepCountIs(3)
    go_to_the_end(run)
    with warnings.catch_warnings(action="error"):
        run.fork(at=1, budget=lab.Budget(max_turns=2))
    with pytest.warns(lab.AgentlabWarning, match="max_turns=2 of the budget"):
        run.fork(at=1, stop=StepCountIs(3), budget=lab.Budget(max_turns=2))


WORDS = {
    "not-of-anthropic": ("anthropic:claude-sonnet-4-6", {}, "length", "'length' is a finish reason of openai, "
                         "which anthropic does not send. Write 'max_tokens', which works for every provider."),
    "not-of-openai": ("openai:gpt-5.4-mini", {}, "tool_use", "'tool_use' is a finish reason of anthropic"),
    "not-of-gemini": ("gemini:gemini-2.5-flash", {}, "stop", "'stop' is a finish reason of openai"),
    "of-anthropic": ("anthropic:claude-sonnet-4-6", {}, "pause_turn", ""),
    "of-openai": ("openai:gpt-5.4-mini", {}, "length", ""),
    "of-gemini": ("gemini:gemini-2.5-flash", {}, "STOP", ""),
    "of-responses": ("openai-responses:gpt-5.4-mini", {}, "max_output_tokens", ""),
    "of-bedrock": ("bedrock:amazon.nova-lite-v1:0", {}, "guardrail_intervened", ""),
    "a-gateway-passes-on-words": ("openrouter:anthropic/claude-sonnet-4.5", {}, "tool_use", ""),
    "compatible-servers-send-any-reason": ("compatible", {"base_url": "http://127.0.0.1:9/v1"}, "tool_use", ""),
    "a-proxy-too": ("openai", {"base_url": "http://127.0.0.1:9/v1"}, "tool_use", ""),
    "unknown-reason": ("compatible", {"base_url": "http://127.0.0.1:9/v1"}, "banana", "no provider sends 'banana'. Known are"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "more", "word", "explanation"), WORDS.values(), ids=WORDS.keys())
def test_another_providers_finish_reason_is_reported_if_certain(
    model: str, more: dict[str, Any], word: str, explanation: str
) -> None:
    made = lab.Agent(lab.Provider(model, model="m", **more) if more else model)
    why = why_never(FinishReasonIs(word), made)
    assert (why == "") if not explanation else why.startswith(explanation)


class Own:
    name = model = "own"

    async def respond(self, request: Any, context: Any) -> Any:
        raise NotImplementedError


async def passes_on(request: Any, ask: Any) -> Any:
    return await ask(request)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(looping(middleware=[passes_on]), id="middleware"),
        pytest.param(looping(options={"tools": [{"type": "web_search"}]}), id="server-tools"),
        pytest.param(lab.Agent(Own(), options={"mcp_servers": []}), id="own-model"),
    ],
)
def test_a_condition_of_unknown_reachability_is_not_reported(made: lab.Agent) -> None:
    stop = TYPO | (FinishReasonIs("banana") if not made.tools or made.middleware else StepCountIs(1))
    assert never_met(RunSettings(stop=stop, terminating=lab.TerminatingTools(["finalise"])), made) == ()  # type: ignore[arg-type]


def test_an_unreachable_edit_in_code_is_reported_once_and_one_in_the_panel_is_shown_there() -> None:
    run = looping().run("go", stop=HasToolCall("finalize") | StepCountIs(3))
    with pytest.warns(lab.AgentlabWarning, match="no tool 'finalise'.*Did you mean 'finalize'"):
        run.limits.edit_condition("HasToolCall", names="finalise")
    run.limits.max_turns = 7
    run.limits.stop = TYPO | StepCountIs(4)
    assert [type(event).__name__ for event in run.events].count("Warned") == 1
    run.limits.edit_condition("HasToolCall", names="finaliser", by="panel")
    with pytest.warns(lab.AgentlabWarning, match="'give_up' can never be called: .* No call can end the run"):
        run.limits.terminating = ["give_up"]
    assert len(never_met(run.limits.snapshot(), run.agent, run.history)) == 2


def test_a_branch_is_warned_of_new_conditions_but_not_of_past_ones() -> None:
    run = looping(tools=[look]).run("go", budget=lab.Budget(max_turns=2))
    go_to_the_end(run)
    other = looping(tools=[])
    assert run.fork(1, stop=HasToolCall("look"), agent=other).result is None  # it was called in the first step
    with pytest.warns(lab.AgentlabWarning, match="no tool 'look'"):
        run.fork(0, stop=HasToolCall("look"), agent=other)
    with pytest.warns(lab.AgentlabWarning, match="no tool 'finalise'"):
        branch = run.fork(1, stop=TYPO)
    assert branch.fork(1).fork(1, stop=TYPO).origin.parent is not None  # already reported
    assert run.fork(1, agent=other).result is None


@pytest.mark.parametrize(
    "condition",
    [StepCountIs(3), MaxTokensUsed(9), MaxCost(1), HasToolCall("a"), FinishReasonIs("length")],
    ids=lambda one: one.short_name,
)
def test_a_condition_declares_its_total_and_whether_it_is_a_goal(condition: StopCondition) -> None:
    history = steps(2, cost="0.1")
    reading = condition.read(history)
    assert reading.goal is condition.goal is isinstance(condition, HasToolCall)
    if condition.total is not None:
        (field,) = limit_fields(condition)
        assert reading.value == USED[condition.total](history)[0]
        assert reading.limit == getattr(condition, field.name)
    assert (condition.total is None) is isinstance(condition, HasToolCall | FinishReasonIs)


def test_the_limits_of_a_budget_are_in_the_order_of_remaining() -> None:
    assert [total.replace("steps", "turns") for total in TOTAL_OF.values()] == [
        field.name.removesuffix("_usd").removesuffix("_s") for field in dataclasses.fields(Remaining)
    ]
    assert list(TOTAL_OF) == list(LIMIT_REASONS)


def test_the_same_call_is_recognised_by_its_arguments_and_not_by_their_layout() -> None:
    texts = ['{"a": 1, "b": [2]}', '{"b":[2],"a":1}', '{"a": 1, "b": [3]}', "{not json", "{not json", "{not json"]
    made = [step(1, tools=["look"]) for _ in texts]
    for one, text in zip(made, texts, strict=True):
        (asked,) = one.calls[0].response.tool_calls
        object.__setattr__(asked, "arguments", text)
    history = RunHistory()
    seen = []
    for one in made:
        history.append(one)
        seen.append(lab.Repeats(3).read(history).value)
    assert seen == [1, 2, 2, 2, 2, 3]


@pytest.mark.parametrize("condition", [lab.MaxToolCalls(3, ["search", "look"]), lab.MaxOutputTokens(9), lab.Repeats(4)], ids=str)
def test_a_condition_with_a_count_is_edited_live_written_as_code_and_stored(condition: StopCondition) -> None:
    assert eval(repr(condition), vars(lab)) == condition
    assert from_jsonable(StopCondition, json.loads(json.dumps(to_jsonable(condition)))) == condition
    run = looping().run("?", stop=condition)
    name = type(condition).__name__
    (field, *_) = limit_fields(condition)
    run.limits.edit_condition(name, **{field.name: 7})
    assert run.limits.stop == condition.changed(**{field.name: 7})
