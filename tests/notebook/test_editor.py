"""The settings editor without a browser: user actions and the resulting settings."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from agentlab.notebook.panel.fields import (
    CheckField,
    ChoiceField,
    Face,
    NamesField,
    NumberField,
    ShownField,
    TextField,
    field_for,
)
from agentlab.notebook.panel.settings_editor import LimitEditor
from agentlab.notebook.panel.stop_editor import GroupRow, LeafRow

import agentlab as lab
from agentlab import AllOf, Budget, FinishReasonIs, HasToolCall, MaxCost, Off, StepCountIs
from agentlab.agent import Run
from agentlab.errors import ConfigurationError
from agentlab.limits.combinators import AnyOf, Custom, StopCondition
from agentlab.limits.fields import limit_field
from agentlab.limits.policies import TerminatingTools
from agentlab.limits.reading import Reading
from agentlab.model.finish_reasons import FinishReason
from agentlab.notebook import markup
from agentlab.notebook.live_view import PanelServices, PanelState
from agentlab.records.history import RunHistory
from agentlab.testing import ScriptedProvider, call

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">'


def search(query: str) -> str:
    """Search."""
    return "nothing"


def finalize(answer: str) -> str:
    """Hand it in."""
    return answer


class Desk:
    """A scene that runs each action at once and keeps the errors."""

    def __init__(self, stop: object = None, **more: Any) -> None:
        model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, cost="0.001"))
        agent = lab.Agent(model, tools=[search, finalize])
        self.run: Run = agent.run("Find it.", stop=stop, budget=Budget(max_turns=500), **more)
        self.faults: list[str] = []
        self.editor = LimitEditor(PanelState(self.run, PanelServices(self.do, lambda: None, lambda run: None, {})))

    def do(self, action: Callable[[], object]) -> None:
        try:
            action()
        except ConfigurationError as error:
            self.faults.append(str(error))

    def row(self, *path: int) -> Any:
        return self.editor.stop.row(*path)

    def add(self, kind: str, *path: int) -> None:
        adder = self.row(*path).adder if path else self.editor.stop.adder
        adder.kind.value = kind
        adder.button.click()

    def take(self, steps: int) -> None:
        async def taken() -> None:
            for _ in range(steps):
                await self.run.step()

        asyncio.run(taken())
        self.editor.show()

    @property
    def stop(self) -> StopCondition | None:
        return self.run.limits.stop


# The tree -----------------------------------------------------------------------------------------------------------------------


def test_flags_of_leaves_and_groups() -> None:
    desk = Desk(StepCountIs(9) | (MaxCost("0.5") & ~HasToolCall("finalize")))
    desk.row(0).flags.counts.value = False
    desk.row(1).flags.inverted.value = True
    desk.row(1, 1).flags.inverted.value = False
    desk.row().kind.value = AllOf
    assert desk.stop == AllOf(Off(StepCountIs(9)), ~AllOf(MaxCost("0.5"), HasToolCall("finalize")))
    desk.row(0).flags.counts.value = True
    desk.row(1).flags.inverted.value = False
    desk.row().kind.value = AnyOf
    desk.row(1, 1).flags.inverted.value = True
    assert desk.stop == StepCountIs(9) | (MaxCost("0.5") & ~HasToolCall("finalize"))
    assert {event.by for event in desk.run.events if type(event).__name__ == "LimitsChanged"} == {"panel"}  # type: ignore[attr-defined]


def test_several_removals_without_a_redraw_in_between() -> None:
    desk = Desk(StepCountIs(1) | StepCountIs(2) | StepCountIs(3) | MaxCost(1))
    first, third = desk.row(0), desk.row(2)
    first.flags.remove.click()
    third_now = desk.row(1)
    assert third_now.fields["steps"].number.value == 3
    third.flags.remove.click() if third is third_now else third_now.flags.remove.click()
    assert desk.stop == StepCountIs(2) | MaxCost(1)
    desk.row().flags.remove.click()
    assert desk.stop is None and not desk.faults
    assert "No condition" in desk.editor.stop._empty.value


def test_two_leaves_of_a_kind_have_different_names() -> None:
    desk = Desk(StepCountIs(1) | StepCountIs(2))
    assert [desk.row(place).flags.remove.description for place in (0, 1)] == ["Remove StepCountIs", "Remove StepCountIs_2"]
    desk.row(0).flags.remove.click()
    assert desk.row(0).flags.remove.description == "Remove StepCountIs"
    assert list(desk.editor.leaves) == [("StepCountIs", "steps")]


def test_conditions_and_groups_are_added() -> None:
    desk = Desk()
    desk.add("MaxTokensUsed")
    assert isinstance(desk.editor.stop.root, LeafRow)
    desk.add("a group: all of")
    assert isinstance(desk.editor.stop.root, GroupRow)
    desk.add("HasToolCall", 1)
    assert repr(desk.stop) == "AnyOf(MaxTokensUsed(tokens=10000), AllOf(StepCountIs(steps=8), HasToolCall('search')))"
    assert desk.editor.show(), "there are new controls that the panel has to register"
    assert not desk.editor.stop.is_stale


def test_a_condition_that_would_end_the_run_at_once_is_added_turned_off() -> None:
    desk = Desk(MaxCost(5))
    desk.take(8)
    desk.add("StepCountIs")
    assert desk.stop == MaxCost(5) | Off(StepCountIs(8))
    assert "added but turned off" in desk.editor.stop.note.value
    desk.row(1).fields["steps"].number.value = 30
    desk.row(1).flags.counts.value = True
    assert desk.stop == MaxCost(5) | StepCountIs(30)


def test_a_click_on_an_outdated_tree_changes_nothing() -> None:
    desk = Desk(StepCountIs(3) | MaxCost(1))
    desk.run.limits.stop = MaxCost(1) | HasToolCall("finalize")
    desk.row(0).flags.counts.value = False
    assert desk.stop == MaxCost(1) | HasToolCall("finalize")
    assert len(desk.faults) == 1 and "changed elsewhere" in desk.faults[0]
    desk.editor.show()
    assert desk.row(0).flags.counts.value is True, "a refused value is not shown as if it were in force"


def test_rows_persist_while_values_change_so_that_focus_is_kept() -> None:
    desk = Desk(StepCountIs(3) | MaxCost(1))
    rows = [desk.row(0), desk.row(1)]
    desk.run.limits.edit_condition("StepCountIs", steps=5)
    desk.run.limits.toggle_condition("MaxCost", False)
    assert desk.editor.show() is False
    assert [desk.row(0), desk.row(1)] == rows
    assert rows[0].fields["steps"].number.value == 5 and rows[1].flags.counts.value is False
    desk.run.limits.stop = StepCountIs(4) | HasToolCall("finalize") | MaxCost(2)
    assert desk.editor.show() is True
    assert [desk.row(0), desk.row(2)] == rows


def test_refused_input_stays_in_the_box_while_steps_arrive() -> None:
    desk = Desk(StepCountIs(30))
    field = desk.editor.leaves["StepCountIs", "steps"]
    field.number.value = -1
    desk.take(2)
    assert field.number.value == -1 and "Still in force: 30" in field.message.value
    assert desk.stop == StepCountIs(30)


# Custom conditions --------------------------------------------------------------------------------------------------------------


def test_a_function_shows_its_name_and_last_reading_and_can_be_turned_off() -> None:
    asked: list[int] = []

    def enough(history: RunHistory) -> int:
        asked.append(len(history))
        return 0

    desk = Desk(StepCountIs(30) | enough)
    assert "enough" in desk.row(1)._about.value and "not read yet" in desk.row(1)._about.value
    desk.take(1)
    assert "last result 0, not met" in desk.row(1)._about.value
    desk.row(1).flags.counts.value = False
    desk.take(1)
    assert "it is off" in desk.row(1)._about.value
    assert asked == [1]
    desk.row(1).flags.remove.click()
    assert desk.stop == AnyOf(StepCountIs(30))


def test_each_function_shows_its_own_reading() -> None:
    desk = Desk(
        AnyOf(Off(Custom(lambda history: 0, "first")), Custom(lambda history: 0), Custom(lambda history: ""), StepCountIs(30))
    )
    desk.take(1)
    assert "it is off" in desk.row(0)._about.value
    assert "last result 0, not met" in desk.row(1)._about.value
    assert "last result 0" not in desk.row(2)._about.value
    assert [reading.value for reading in markup.last_custom_readings(desk.run).values()] == [None, 0, ""]


def test_a_hostile_name_is_text() -> None:
    desk = Desk(Custom(lambda history: HOSTILE, HOSTILE) | StepCountIs(30))
    desk.take(1)
    shown = desk.row(0)._about.value
    assert "<script>" not in shown and "<img" not in shown and "&lt;script&gt;" in shown


class Mood(enum.Enum):
    CALM = 1
    HURRIED = 2


@dataclass(frozen=True, slots=True)
class Everything(StopCondition):
    """A condition with a field of each type."""

    whole: int = limit_field(unit="steps", minimum=2, default=9, help="a whole number")
    share: float = 0.5
    money: Decimal = Decimal("0.25")
    strict: bool = True
    word: str = "wait"
    long: str = "a\nb"
    choice: Literal["one", "two"] = "one"
    mood: Mood = Mood.CALM
    names: tuple[str, ...] = ("a",)
    marked: frozenset[str] = frozenset({"b"})
    maybe: int | None = None
    maybe_word: str | None = None
    maybe_choice: Literal["one", "two"] | None = None
    maybe_strict: bool | None = None
    hidden: Annotated[int, "a note"] = 3
    strange: dict[str, int] = field(default_factory=dict)

    def read(self, history: RunHistory) -> Reading:
        return Reading("Everything", None, None, False)


KINDS = {
    "whole": NumberField, "share": NumberField, "money": NumberField, "strict": CheckField, "word": TextField, "long": TextField,
    "choice": ChoiceField, "mood": ChoiceField, "names": NamesField, "marked": NamesField, "maybe": NumberField,
    "maybe_word": TextField, "maybe_choice": ChoiceField, "maybe_strict": ChoiceField, "hidden": NumberField, "strange": ShownField,
}  # fmt: skip


def test_each_type_has_its_control() -> None:
    desk = Desk(Everything())
    assert {name: type(control) for (_, name), control in desk.editor.leaves.items()} == KINDS
    desk.add("Everything")
    assert desk.stop == Everything() | Everything(), "the custom one is offered too"


@pytest.mark.parametrize(
    ("name", "entered", "held"),
    [
        ("whole", 4, 4),
        ("share", 0.25, 0.25),
        ("money", 0.1, Decimal("0.1")),
        ("strict", False, False),
        ("word", "go", "go"),
        ("long", "c\nd", "c\nd"),
        ("choice", "two", "two"),
        ("mood", Mood.HURRIED, Mood.HURRIED),
        ("names", "x, y", ("x", "y")),
        ("marked", "x, y", frozenset({"x", "y"})),
        ("maybe_word", "yes", "yes"),
        ("maybe_choice", "two", "two"),
        ("maybe_strict", False, False),
        ("hidden", 8, 8),
    ],
)
def test_each_control_writes_a_value_of_its_type(name: str, entered: object, held: object) -> None:
    desk = Desk(Everything())
    desk.editor.leaves["Everything", name].box.value = entered
    found = getattr(desk.stop, name)
    assert found == held and type(found) is type(held)
    desk.run.limits.edit_condition("Everything", **{name: getattr(Everything(), name)})
    desk.editor.show()
    assert desk.editor.leaves["Everything", name]._shown == getattr(Everything(), name)


def test_an_optional_number_has_a_checkbox_for_none() -> None:
    desk = Desk(Everything())
    maybe = desk.editor.leaves["Everything", "maybe"]
    assert maybe.unlimited.value and maybe.number.disabled
    maybe.unlimited.value = False
    maybe.number.value = 12
    assert desk.stop == Everything(maybe=12)
    maybe.unlimited.value = True
    assert desk.stop == Everything()


def test_a_value_below_the_minimum_of_the_metadata_is_refused_beside_the_field() -> None:
    desk = Desk(Everything())
    whole = desk.editor.leaves["Everything", "whole"]
    whole.number.value = 1
    assert "Everything(whole=1): whole must be at least 2. Still in force: 9." in whole.message.value
    assert desk.stop == Everything()


def test_an_exception_of_a_custom_class_is_shown_beside_the_field() -> None:
    def refuse(value: object) -> None:
        raise ValueError(HOSTILE)

    spec = Everything.__dataclass_fields__["word"]
    made = field_for(Everything, spec, "wait", refuse, label="word")
    made.box.value = "other"
    assert "ValueError: &lt;script&gt;" in made.message.value and "Still in force: wait" in made.message.value


# Other settings -------------------------------------------------------------------------------------------------------------------


def test_every_cap_on_continuations_is_edited() -> None:
    desk = Desk()
    fields = desk.editor.continuation.fields
    fields["max_continuations_per_turn"].number.value = 0
    fields["max_tool_repair_attempts"].number.value = 4
    fields["max_total_output_chars_per_turn"].number.value = 99
    total = fields["max_total_completion_tokens_per_turn"]
    assert total.unlimited.description == "4 × the first cap" and total.unlimited.value
    total.unlimited.value = False
    fields["hint"].text.value = "Go on."
    assert repr(desk.run.limits.continuation) == (
        "ContinuationPolicy(max_continuations_per_turn=0, max_total_completion_tokens_per_turn=4000, "
        "max_total_output_chars_per_turn=99, max_tool_repair_attempts=4, hint='Go on.')"
    )
    fields["hint"].text.value = " "
    assert "Still in force: Go on." in fields["hint"].message.value


def test_terminating_tools_are_ticked_and_unticked() -> None:
    desk = Desk()
    editor = desk.editor.terminating
    assert all(field.box.disabled for field in editor.fields.values())
    editor.tools["finalize"].value = True
    assert desk.run.limits.terminating == TerminatingTools(("finalize",))
    desk.editor.show()
    editor.fields["consecutive_nudges"].number.value = 5
    editor.tools["search"].value = True
    assert desk.run.limits.terminating == TerminatingTools(("search", "finalize"), consecutive_nudges=5)
    for name in ("search", "finalize"):
        editor.tools[name].value = False
    assert desk.run.limits.terminating is None
    with pytest.warns(lab.AgentlabWarning, match="'elsewhere' can never be called"):
        desk.run.limits.terminating = ["elsewhere"]  # a name set in code that is none of the agent's tools
    assert desk.editor.show() is True
    assert editor.tools["elsewhere"].value and not editor.tools["search"].value


def test_missing_usage_is_a_choice() -> None:
    desk = Desk()
    desk.editor.budget["missing_usage"].choice.value = "estimate"
    assert desk.run.limits.missing_usage == "estimate"


def test_an_ended_run_cannot_be_edited() -> None:
    desk = Desk(StepCountIs(2) | FinishReasonIs("length"), terminating=["finalize"])
    desk.take(2)
    assert "The run has ended: branch it" in desk.editor.pending.value
    boxes = [field.box for field in (*desk.editor.budget.values(), *desk.editor.leaves.values())]
    flags = [desk.row(*path).flags for path in ((), (0,), (1,))]
    boxes += [control for each in flags for control in (each.counts, each.inverted, each.remove)]
    boxes += [desk.row().kind, desk.editor.stop.adder.kind, desk.editor.stop.adder.button]
    boxes += [*desk.editor.terminating.tools.values(), *[field.box for field in desk.editor.terminating.fields.values()]]
    assert all(control.disabled for control in boxes)


def test_a_redraw_without_changes_touches_no_widget() -> None:
    desk = Desk(StepCountIs(900) | (MaxCost(50) & ~HasToolCall("finalize")))
    touched: list[Any] = []
    waiting = [desk.editor.view]
    while waiting:
        widget = waiting.pop()
        waiting.extend(getattr(widget, "children", ()))
        widget.observe(touched.append)
    for _ in range(3):
        desk.editor.show()
    desk.take(3)
    assert not touched


def test_removed_widgets_are_closed() -> None:
    from ipywidgets.widgets.widget import _instances

    desk = Desk(StepCountIs(900))
    before = len(_instances)
    for _ in range(5):
        desk.add("MaxCost")
        desk.row(1).flags.remove.click()
        desk.row().kind.value = AllOf
        desk.run.limits.stop = StepCountIs(900)
        desk.editor.show()
    assert len(_instances) == before


KEY = "sk-" + "planted0123456789abcdef"


def test_a_key_is_not_shown_in_a_control_and_is_kept_unless_overwritten() -> None:
    written: list[Any] = []
    text = TextField(Face("hint"), f"Use {KEY}", written.append)
    assert text.text.value == "Use REDACTED"
    text.text.value = "Use it"
    assert (written, text.text.value) == (["Use it"], "Use it")
    text.show(f"Do use {KEY}")
    text._changed({"new": "Do use REDACTED"})  # like a page that sends back the shown value
    assert (written, text.message.value) == (["Use it"], "")

    names = NamesField(Face("tools"), (KEY, "search"), written.append)
    assert names.text.value == "REDACTED, search"
    names.text.value = "REDACTED, search, finalize"
    assert written[-1] == (KEY, "search", "finalize")
    assert names.text.value == "REDACTED, search, finalize"

    choice = ChoiceField(Face("tool"), [KEY, "search"], KEY, written.append)
    assert [label for label, _ in choice.choice.options] == ["REDACTED", "search"]


# Choices ------------------------------------------------------------------------------------------------------------------------


def offered(field: Any) -> list[str]:
    """The choices as a user reads them."""
    return [label for label, _ in field.pick.options]


def test_a_tool_is_chosen_and_removed_by_choosing_it_again() -> None:
    with pytest.warns(lab.AgentlabWarning, match="no tool 'finalise'"):
        desk = Desk(HasToolCall("finalise"))
    field = desk.row().fields["names"]
    assert offered(field) == ["choose …", *desk.run.agent.tools]
    assert field.pick.description == "Choose for HasToolCall"
    first, second = list(desk.run.agent.tools)[:2]
    for name, names in [
        (first, ("finalise", first)),
        (second, ("finalise", first, second)),
        (first, ("finalise", second)),
    ]:
        field.pick.value = name
        assert desk.stop == HasToolCall(*names)
        assert (field.text.value, field.pick.value) == (", ".join(names), "")
        assert [label for label in offered(field) if label.startswith("✓")] == [f"✓ {one}" for one in names if one != "finalise"]
    field.text.value = second
    field.pick.value = second
    assert desk.stop == HasToolCall(second), "a condition needs at least one name"
    assert "name the tools as text" in field.message.value and f"Still in force: {second}." in field.message.value


def test_an_unreachable_condition_is_reported_below_its_field() -> None:
    desk = Desk(StepCountIs(9) | HasToolCall("finalize"))
    row = desk.row(1)
    assert row.advice.value == ""
    row.fields["names"].text.value = "finalise"
    desk.editor.show()
    warning_text = "Can never be met: the agent has no tool 'finalise'. Did you mean 'finalize'? Its tools: search, finalize."
    assert markup.escape(warning_text, 1000) in row.advice.value
    row.flags.counts.value = False
    assert row.advice.value == "", "it is turned off"
    row.flags.counts.value = True
    assert "Did you mean" in row.advice.value
    row.fields["names"].pick.value = "finalize"
    desk.editor.show()
    assert (desk.stop, row.advice.value) == (StepCountIs(9) | HasToolCall("finalise", "finalize"), "")


def test_the_reasons_of_all_providers_are_offered_and_others_can_be_typed() -> None:
    desk = Desk(FinishReasonIs("length"))
    field = desk.row().fields["reasons"]
    assert offered(field) == ["choose …", *FinishReason]
    field.pick.value = "content_filtered"
    assert desk.stop == FinishReasonIs("length", "content_filtered")
    desk.run.limits.stop = FinishReasonIs(FinishReason.MAX_TOKENS)
    desk.editor.show()
    assert "✓ max_tokens" in offered(field)
    field.text.value = "eos"
    assert desk.stop == FinishReasonIs("eos")


def test_tool_names_in_the_list_are_safe_and_contain_no_key() -> None:
    field = NamesField(Face("tools"), ("a",), [].append, known=(KEY, "$x$", "two\nlines"))
    assert offered(field) == ["choose …", "REDACTED", "＄x＄", "two lines"]
    field.enable(False)
    assert field.pick.disabled and field.text.disabled
