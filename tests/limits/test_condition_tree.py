"""Editing a tree of conditions by path: the result of each edit, its inverse, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
from engine.builders import Fixed, steps
from hypothesis import given
from hypothesis import strategies as st

import agentlab as lab
from agentlab import AllOf, AnyOf, Custom, FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, Not, Off, StepCountIs
from agentlab.errors import ConfigurationError, LimitError
from agentlab.limits.combinators import StopCondition
from agentlab.limits.condition_tree import (
    Path,
    added,
    describe,
    kinds,
    leaf_switched,
    negated,
    outline,
    regrouped,
    started,
    switched,
    without,
)
from agentlab.limits.fields import limit_field
from agentlab.limits.reading import Reading
from agentlab.records.history import RunHistory

ONE = steps(1)
A, B, C, D = StepCountIs(3), HasToolCall("a"), MaxCost("0.5"), MaxTokensUsed(9)
TREE = A | (B & ~C)


def test_outline_lists_every_node() -> None:
    tree = Off(~A) | ((StepCountIs(5) | Custom(len)) & ~C) | Not(Off(A & B))
    assert [(n.path, n.name, n.negated, n.off, n.depth, n.is_group) for n in outline(tree)] == [
        ((), "AnyOf", False, False, 0, True),
        ((0,), "StepCountIs", True, True, 1, False),
        ((1,), "AllOf", False, False, 1, True),
        ((1, 0), "AnyOf", False, False, 2, True),
        ((1, 0, 0), "StepCountIs_2", False, False, 3, False),
        ((1, 0, 1), "len", False, False, 3, False),
        ((1, 1), "MaxCost", True, False, 2, False),
        ((2,), "AllOf", True, True, 1, True),
        ((2, 0), "StepCountIs_3", False, False, 2, False),
        ((2, 1), "HasToolCall", False, False, 2, False),
    ]
    assert [node.condition for node in outline(~TREE)] == [TREE, A, B & ~C, B, C]
    assert outline(None) == ()


EDITS: dict[str, tuple[Callable[[], object], object]] = {
    "without-root": (lambda: without(A, ()), None),
    "without-one-of-two": (lambda: without(TREE, (0,)), AnyOf(AllOf(B, ~C))),
    "without-deep": (lambda: without(TREE, (1, 1)), A | AllOf(B)),
    "without-the-last-of-a-group": (lambda: without(A | Off(~AllOf(B)), (1, 0)), AnyOf(A)),
    "without-the-last-of-all": (lambda: without(AnyOf(AllOf(~B)), (0, 0)), None),
    "added-to-none": (lambda: added(None, (), A), A),
    "added-to-root": (lambda: added(A | B, (), C), A | B | C),
    "added-to-group": (lambda: added(TREE, (1,), D), A | (B & ~C & D)),
    "added-to-a-flagged-group": (lambda: added(Off(~(A & B)), (), D), Off(~(A & B & D))),
    "added-to-a-leaf": (lambda: added(A, (), B), A | B),
    "added-to-a-flagged-leaf": (lambda: added(AllOf(Off(~A), B), (0,), D), AllOf(AnyOf(Off(~A), D), B)),
    "added-a-group": (lambda: added(A | B, (), C | D), AnyOf(A, B, AnyOf(C, D))),
    "added-function": (lambda: added(A | B, (), len), A | B | len),
    "regrouped-root": (lambda: regrouped(TREE, (), AllOf), AllOf(A, AllOf(B, ~C))),
    "regrouped-deep": (lambda: regrouped(TREE, (1,), AnyOf), AnyOf(A, AnyOf(B, ~C))),
    "regrouped-flagged": (lambda: regrouped(Off(~(A & B)), (), AnyOf), Off(~(A | B))),
    "negated-root": (lambda: negated(TREE, (), True), ~TREE),
    "negated-leaf": (lambda: negated(TREE, (1, 0), True), A | (~B & ~C)),
    "negated-off": (lambda: negated(Off(A), (), True), Off(~A)),
    "not-negated": (lambda: negated(TREE, (1, 1), False), A | (B & C)),
    "switched-root": (lambda: switched(TREE, (), False), Off(TREE)),
    "switched-leaf": (lambda: switched(TREE, (0,), False), Off(A) | (B & ~C)),
    "switched-negated": (lambda: switched(TREE, (1, 1), False), A | (B & Off(~C))),
    "switched-negated-off": (lambda: switched(Not(Off(A)), (), True), ~A),
    "leaf-off": (lambda: leaf_switched(TREE, "MaxCost", False), A | (B & Off(~C))),
    "leaf-on": (lambda: leaf_switched(A | Off(B), "HasToolCall", True), A | B),
    "leaf-off-in-an-off-group": (lambda: leaf_switched(A | Off(B & C), "MaxCost", False), A | Off(B & C)),
    "leaf-on-in-an-off-group": (lambda: leaf_switched(A | Off(~(B & C)), "MaxCost", True), A | ~AllOf(Off(B), C)),
    "leaf-on-two-groups-down": (
        lambda: leaf_switched(Off(A | (B & C)), "MaxCost", True),
        AnyOf(Off(A), AllOf(Off(B), C)),
    ),
    "one-of-two-the-same": (lambda: leaf_switched(A | (B & A), "StepCountIs_2", False), A | (B & Off(A))),
}


@pytest.mark.parametrize(("edit", "expected"), EDITS.values(), ids=EDITS.keys())
def test_edits_change_the_tree(edit: Callable[[], object], expected: object) -> None:
    assert edit() == expected


NO_CHANGE = [
    lambda tree: regrouped(tree, (), AnyOf),
    lambda tree: negated(tree, (1, 1), True),
    lambda tree: switched(tree, (0,), True),
    lambda tree: leaf_switched(tree, "MaxCost", True),
    lambda tree: leaf_switched(switched(tree, (0,), False), "StepCountIs", True),
]


@pytest.mark.parametrize("edit", NO_CHANGE)
def test_an_edit_without_effect_returns_the_same_tree(edit: Callable[[StopCondition], StopCondition]) -> None:
    assert edit(TREE) == TREE


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no-such-part": (
        lambda: without(TREE, (2,)),
        "There is no condition at (2,). Paths of this tree: (), (0,), (1,), (1, 0), (1, 1).",
    ),
    "below-a-leaf": (lambda: without(TREE, (0, 0)), "There is no condition at (0, 0)"),
    "through-a-negation": (lambda: negated(TREE, (1, 1, 0), True), "(1, 1, 0)"),
    "from-the-end": (lambda: switched(TREE, (-1,), False), "(-1,)"),
    "a-number": (lambda: regrouped(TREE, 1, AnyOf), "There is no condition at 1"),  # type: ignore[arg-type]
    "in-nothing": (lambda: added(None, (0,), A), "at (0,). Paths of this tree: none, since there is no condition."),
    "a-leaf-regrouped": (lambda: regrouped(TREE, (0,), AnyOf), "StepCountIs(steps=3) at (0,) is a single condition, not a group"),
    "no-group": (lambda: regrouped(TREE, (), Not), "pass AnyOf or AllOf"),
    "no-condition": (lambda: added(TREE, (), 5), "5 is not a stop condition"),  # type: ignore[arg-type]
    "a-class": (lambda: added(TREE, (), StepCountIs), "write StepCountIs("),
    "no-such-leaf": (lambda: leaf_switched(TREE, "StepCountis", False), "Did you mean 'StepCountIs'?"),
    "a-group-by-name": (lambda: leaf_switched(TREE, "AllOf", False), "There is no stop condition 'AllOf'"),
}


@pytest.mark.parametrize(("edit", "message"), WRONG.values(), ids=WRONG.keys())
def test_an_invalid_edit_is_an_error_that_names_it(edit: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        edit()
    assert message in str(caught.value)


# For any tree ------------------------------------------------------------------------------------------------------------------

leaves = st.one_of(
    st.builds(Fixed, st.sampled_from("abcd"), st.sampled_from([True, False, None])), st.builds(StepCountIs, st.integers(1, 3))
)


def _flagged(inner: st.SearchStrategy[StopCondition]) -> st.SearchStrategy[StopCondition]:
    """In the form that edits produce: at most one Not, and an Off around it."""

    def flag(condition: StopCondition, inverted: bool, off: bool) -> StopCondition:
        one = Not(condition) if inverted else condition
        return Off(one) if off else one

    return st.builds(flag, inner, st.booleans(), st.booleans())


def _groups(inner: st.SearchStrategy[StopCondition]) -> st.SearchStrategy[StopCondition]:
    parts = st.lists(inner, min_size=1, max_size=3)
    return _flagged(st.one_of(parts.map(lambda each: AnyOf(*each)), parts.map(lambda each: AllOf(*each))))


trees = st.recursive(_flagged(leaves), _groups, max_leaves=8)
wild = st.recursive(leaves, lambda inner: st.one_of(_groups(inner), inner.map(Not), inner.map(Off)), max_leaves=8)


@st.composite
def places(draw: st.DrawFn, of: st.SearchStrategy[StopCondition] = trees) -> tuple[StopCondition, Path]:
    tree = draw(of)
    return tree, draw(st.sampled_from([node.path for node in outline(tree)]))


def node_at(tree: StopCondition | None, path: Path) -> Any:
    return next(node for node in outline(tree) if node.path == path)


def met(tree: StopCondition | None) -> bool | None:
    return None if tree is None else tree.read(ONE).met


@given(places(), trees)
def test_every_edit_can_be_undone(place: tuple[StopCondition, Path], new: StopCondition) -> None:
    tree, path = place
    node = node_at(tree, path)
    assert negated(negated(tree, path, not node.negated), path, node.negated) == tree
    assert switched(switched(tree, path, node.off), path, not node.off) == tree
    if node.is_group:
        kind, other = (AnyOf, AllOf) if type(node.condition) is AnyOf else (AllOf, AnyOf)
        assert regrouped(regrouped(tree, path, other), path, kind) == tree
        assert without(added(tree, path, new), (*path, len(node.condition.parts))) == tree
    else:
        grown = added(tree, path, new)
        assert met(without(grown, (*path, 1))) is met(tree)
        assert isinstance(node_at(grown, path).condition, AnyOf)


@given(places(wild))
def test_edits_change_their_node_and_nothing_else(place: tuple[StopCondition, Path]) -> None:
    tree, path = place
    before = outline(tree)
    for on in (True, False):
        for after, flags in ((negated(tree, path, on), {"negated": on}), (switched(tree, path, on), {"off": not on})):
            for old, new in zip(before, outline(after), strict=True):
                expected = replace(old, **flags) if old.path == path else old
                assert replace(new, condition=old.condition) == expected  # the reading of a group contains the changed one
    left = without(tree, path)
    gone = [node for node in before if node.path[: len(path)] == path and not node.is_group]
    assert len(list(left.leaves()) if left is not None else []) == len(list(tree.leaves())) - len(gone)


@given(places(wild))
def test_without_a_node_equals_turning_it_off(place: tuple[StopCondition, Path]) -> None:
    tree, path = place
    assert met(without(tree, path)) is met(switched(tree, path, False))


@given(wild, st.data(), st.booleans())
def test_switching_a_leaf_changes_whether_it_counts(tree: StopCondition, data: st.DataObject, on: bool) -> None:
    names = list(describe(tree))
    index = data.draw(st.integers(0, len(names) - 1))
    after = leaf_switched(tree, names[index], on)
    assert list(describe(after)) == names
    counted = [node_counts(tree, name) for name in names]
    assert [node_counts(after, name) for name in names] == [*counted[:index], on, *counted[index + 1 :]]


def node_counts(tree: StopCondition, name: str) -> bool:
    nodes = outline(tree)
    leaf = next(node for node in nodes if node.name == name and not node.is_group)
    return not any(node.off for node in nodes if leaf.path[: len(node.path)] == node.path)


# New conditions ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Calm(StopCondition):
    """A custom condition that a control can create."""

    turns: int = limit_field(unit="steps", minimum=2, help="stop after this many calm steps")
    share: float = limit_field(unit="%", minimum=0, start=12.5, help="what counts as calm")
    word: str = "calm"
    seen: tuple[str, ...] = field(default_factory=lambda: ("a",))

    def read(self, history: RunHistory) -> Reading:
        """Steps so far."""
        return Reading("Calm", len(history), self.turns, len(history) >= self.turns)


@dataclass(frozen=True, slots=True)
class Unstarted(StopCondition):
    """A condition whose field has no initial value."""

    names: tuple[str, ...]

    def read(self, history: RunHistory) -> Reading:
        """Nothing."""
        return Reading("Unstarted")


@dataclass(frozen=True, slots=True)
class Unread(StopCondition):
    """A condition that cannot be read."""

    turns: int = 5


@dataclass(frozen=True, slots=True)
class _Hidden(Calm):
    """A condition that is not offered to the user."""


class AtLeastOne(AnyOf):
    """A custom combination."""


STARTED: dict[str, StopCondition] = {
    "StepCountIs": StepCountIs(8),
    "MaxTokensUsed": MaxTokensUsed(10_000),
    "MaxCost": MaxCost(Decimal("0.1")),
    "HasToolCall": HasToolCall("finalize"),
    "FinishReasonIs": FinishReasonIs("max_tokens"),
    "MaxOutputTokens": lab.MaxOutputTokens(2_000),
    "MaxToolCalls": lab.MaxToolCalls(10),
    "Repeats": lab.Repeats(3),
    "Calm": Calm(2, 12.5, "calm", ("a",)),
}


def test_kinds_of_conditions_on_offer() -> None:
    known = kinds()
    assert list(known)[:8] == list(STARTED)[:8]
    assert not {"Custom", "AnyOf", "AllOf", "Not", "Off", "AtLeastOne", "Unstarted", "Unread", "_Hidden", "_Combination"} & set(
        known
    )
    for name, condition in STARTED.items():
        assert known[name] is type(condition)
        assert started(known[name]) == condition


def test_a_redefined_class_replaces_the_older_one() -> None:
    made: list[type[StopCondition]] = []
    for turns in (3, 4):
        source = (
            "from dataclasses import dataclass\nfrom agentlab import Reading, StopCondition\n"
            "@dataclass(frozen=True, slots=True)\nclass Again(StopCondition):\n"
            f"    turns: int = {turns}\n    def read(self, history): return Reading('Again')\n"
        )
        cell: dict[str, Any] = {"__name__": "__main__"}
        exec(source, cell)
        made.append(cell["Again"])
        assert kinds()["Again"] is made[-1]
        assert started(kinds()["Again"]).turns == turns  # type: ignore[attr-defined]


def test_new_conditions_start_with_the_agents_tools() -> None:
    assert started(HasToolCall, ["look", "finalize"]) == HasToolCall("look")
    assert started(StepCountIs, ["look"]) == StepCountIs(8)


@pytest.mark.parametrize("kind", [Custom, AnyOf, Off, Unstarted, Unread])
def test_a_condition_without_initial_values_cannot_be_created(kind: type[StopCondition]) -> None:
    with pytest.raises(ConfigurationError, match=kind.__name__):
        started(kind)


def test_a_wrong_leaf_name_is_a_limit_error() -> None:
    with pytest.raises(LimitError):
        leaf_switched(TREE, "nothing", True)
