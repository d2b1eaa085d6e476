"""The limits as forms for the page, without a browser: what the forms have, and what the person's edits change."""

from __future__ import annotations

import asyncio
import enum
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from measured_work import calls_in
from thread_tools import undisturbed

import agentlab as lab
from agentlab import AllOf, AnyOf, Budget, FinishReasonIs, HasToolCall, MaxCost, Off, StepCountIs
from agentlab.agent import Run
from agentlab.errors import ConfigurationError
from agentlab.limits import condition_tree
from agentlab.limits.combinators import Custom, StopCondition
from agentlab.limits.fields import limit_field
from agentlab.limits.policies import TerminatingTools
from agentlab.limits.reading import Reading
from agentlab.model.finish_reasons import FinishReason
from agentlab.notebook.panel import settings
from agentlab.notebook.panel.live_panel import Panel
from agentlab.notebook.panel.settings import ENDED, settings_data
from agentlab.records.events import LimitsChanged
from agentlab.records.history import RunHistory
from agentlab.testing import ScriptedProvider, call

KEY = "sk-" + "planted0123456789abcdef"


def search(query: str) -> str:
    """Search."""
    return "nothing"


def finalize(answer: str) -> str:
    """Hand it in."""
    return answer


class Desk:
    """A run with its panel, and a person who sends what the page would send."""

    def __init__(self, stop: object = None, **more: Any) -> None:
        model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, tokens=(100, 20), cost="0.001"))
        agent = lab.Agent(model, tools=[search, finalize])
        self.run: Run = agent.run("Find it.", stop=stop, **{"budget": Budget(max_turns=500), **more})
        self.panel = Panel([self.run])
        _ = self.panel.widget

    def ask(self, do: str, **more: Any) -> Any:
        """A command of the page; what it has shown is what it would be shown now."""
        return self.panel.carry_out({"do": do, "run": self.run.id, "shape": self.form["shape"], **more})

    def set(self, *at: str, value: object) -> Any:
        return self.ask("set", at=at, value=value)["value"]

    def refused(self, *at: str, value: object) -> str:
        with pytest.raises(ConfigurationError) as found:
            self.set(*at, value=value)
        return str(found.value)

    def add(self, kind: str, *path: int) -> dict[str, str]:
        return dict(self.ask("add", kind=kind, path=path))

    def take(self, steps: int) -> None:
        async def taken() -> None:
            for _ in range(steps):
                await self.run.step()

        asyncio.run(taken())

    @property
    def form(self) -> dict[str, Any]:
        return json.loads(json.dumps(settings_data(self.run), allow_nan=False))  # type: ignore[no-any-return]  # it is JSON

    def node(self, *path: int) -> dict[str, Any]:
        return next(node for node in self.form["tree"] if node["path"] == [*path])

    def field(self, part: str, name: str) -> dict[str, Any]:
        fields = self.form[part]["fields"] if part == "terminating" else self.form[part]
        return next(one for one in fields if one["name"] == name)

    @property
    def stop(self) -> Any:
        """The condition in force; of its own type, mypy would not let it change."""
        return self.run.limits.stop

    @property
    def limits(self) -> Any:
        """The limits, as above."""
        return self.run.limits


# The form ---------------------------------------------------------------------------------------------------------------------


def test_every_limit_of_the_budget_is_described_by_its_field() -> None:
    desk = Desk(budget=Budget(max_tokens=50_000_000, max_cost="0.00001", timeout=90))
    assert [one["name"] for one in desk.form["budget"]] == list(Budget.__dataclass_fields__)
    tokens = desk.field("budget", "max_tokens")
    assert tokens["value"] == "50,000,000" and (tokens["unit"], tokens["total"], tokens["none"]) == (
        "tokens",
        "tokens",
        "no limit",
    )
    assert tokens["help"] == "input and output tokens of all calls"
    assert [desk.field("budget", name)["value"] for name in ("max_cost", "timeout", "max_calls")] == ["0.00001", "90", None]
    assert desk.field("budget", "last_answer")["none"] == "none held back"
    assert desk.refused("budget", "last_answer", value="2").endswith("Still in force: none held back.")
    assert desk.field("budget", "missing_usage")["choices"] == ["warn", "estimate", "fail", "charge_cap"]


def test_the_form_stays_the_same_object_while_steps_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = tuple(condition_tree.kinds())
    monkeypatch.setattr(condition_tree, "kinds", lambda: kinds)  # other tests of this process define conditions
    desk = Desk(StepCountIs(80) | (MaxCost(50) & ~HasToolCall("finalize")))
    before = settings_data(desk.run)
    desk.take(3)
    assert settings_data(desk.run) is before
    desk.panel.feed.news()
    desk.take(1)
    assert "settings" not in desk.panel.feed.news()["runs"][desk.run.id], "it is on the wire once"
    again = calls_in(lambda: settings_data(desk.run))
    desk.limits.max_turns = 90
    anew = calls_in(lambda: settings_data(desk.run))
    assert again < anew / 2
    assert settings_data(desk.run) is not before
    assert "settings" in desk.panel.feed.news()["runs"][desk.run.id]


def test_the_tree_has_flags_names_and_places() -> None:
    desk = Desk(StepCountIs(9) | ~(MaxCost("0.5") & Off(StepCountIs(3))) | Custom(lambda history: 0, "<b>enough"))
    found = [(node["path"], node["name"], node["group"], node["negated"], node["off"], node["own"]) for node in desk.form["tree"]]
    assert found == [
        ([], "AnyOf", "any of", False, False, False),
        ([0], "StepCountIs", "", False, False, False),
        ([1], "AllOf", "all of", True, False, False),
        ([1, 0], "MaxCost", "", False, False, False),
        ([1, 1], "StepCountIs_2", "", False, True, False),
        ([2], "<b>enough", "", False, False, True),
    ]
    assert desk.node(2)["fields"] == []


def test_a_condition_that_can_never_be_met_says_why() -> None:
    desk = Desk(StepCountIs(9) | HasToolCall("finalize"))
    assert desk.node(1)["why_never"] == ""
    desk.set("stop", "HasToolCall", "names", value="finalise")
    assert desk.node(1)["why_never"] == "the agent has no tool 'finalise'. Did you mean 'finalize'? Its tools: search, finalize."
    desk.ask("switch", path=[1], on=False)
    assert desk.node(1)["why_never"] == "", "it is turned off"


def test_an_ended_run_cannot_be_edited() -> None:
    desk = Desk(StepCountIs(2))
    assert desk.form["editable"] and desk.form["note"] == ""
    desk.take(2)
    assert not desk.form["editable"] and desk.form["note"] == ENDED
    for do, more in (
        ("set", {"at": ["budget", "max_turns"], "value": "9"}),
        ("remove", {"path": []}),
        ("approve", {"part": "*", "on": True}),
    ):
        with pytest.raises(ConfigurationError, match="branch it to change limits"):
            desk.ask(do, **more)
    assert desk.limits.max_turns == 500


# Values -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "typed", "held", "shown"),
    [
        ("max_turns", "1e3", 1000, "1,000"),
        ("max_turns", " 12 ", 12, "12"),
        ("max_tokens", "2,500,000", 2_500_000, "2,500,000"),
        ("max_tokens", "10k", 10_000, "10,000"),
        ("max_tokens", "1.5M", 1_500_000, "1,500,000"),
        ("max_tokens", "1.500k", 1_500, "1,500"),
        ("max_tokens", None, None, None),
        ("max_cost", "1e-05", Decimal("0.00001"), "0.00001"),
        ("max_cost", "$0.05", Decimal("0.05"), "0.05"),
        ("max_cost", ".5", Decimal("0.5"), "0.5"),
        ("max_cost", "1234.5", Decimal("1234.5"), "1234.5"),
        ("timeout", "1 h", 3600.0, "3600"),
        ("timeout", "2 min", 120.0, "120"),
        ("timeout", "0.5", 0.5, "0.5"),
    ],
)
def test_numbers_are_read_as_people_write_them(name: str, typed: str | None, held: object, shown: str | None) -> None:
    desk = Desk(budget=Budget(max_tokens=5))
    assert desk.set("budget", name, value=typed) == shown
    assert getattr(desk.limits, name) == held and type(getattr(desk.limits, name)) is type(held)
    assert desk.field("budget", name)["value"] == shown
    assert shown is None or desk.set("budget", name, value=shown) == shown, "what is shown can be entered"


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("5.5", "Budget(max_turns=5.5): max_turns is a whole number, such as 8; got float."),
        ("0", "Budget(max_turns=0): max_turns must be at least 1."),
        ("-3", "max_turns must be at least 1"),
        ("abc", "max_turns: 'abc' is not a number"),
        ("1,50", "max_turns: '1,50' is not a number"),  # a comma between decimals elsewhere
        ("50.000", "max_turns: '50.000' is not a number; write it as 8 or 10,000."),  # fifty thousand there
        ("nan", "is not a number"),
        ("5 min", "is not a number"),
        ("", "is not a number"),
    ],
)
def test_a_refused_value_says_why_and_what_is_in_force(typed: str, why: str) -> None:
    desk = Desk()
    said = desk.refused("budget", "max_turns", value=typed)
    assert why in said and said.endswith("Still in force: 500.")
    assert desk.limits.max_turns == 500


@pytest.mark.parametrize("typed", ["0,006", "1,500", "0,5"])
def test_a_comma_in_an_amount_of_money_is_refused_since_it_may_be_a_decimal_one(typed: str) -> None:
    desk = Desk(budget=Budget(max_cost="0.005"))
    assert "write it as 0.05" in desk.refused("budget", "max_cost", value=typed)
    assert desk.limits.max_cost == Decimal("0.005")


def test_a_choice_and_a_text_are_set() -> None:
    desk = Desk()
    assert desk.set("budget", "missing_usage", value="estimate") == "estimate"
    assert desk.limits.missing_usage == "estimate"
    assert "is not one of the choices" in desk.refused("budget", "missing_usage", value="guess")
    desk.set("continuation", "hint", value="Go on.")
    assert desk.limits.hint == "Go on."
    assert "Still in force: Go on.." in desk.refused("continuation", "hint", value="  ")


def test_every_cap_on_continuations_is_edited() -> None:
    desk = Desk()
    for name, value in (
        ("max_continuations_per_turn", "0"), ("max_tool_repair_attempts", "4"), ("max_total_output_chars_per_turn", "99"),
        ("max_total_completion_tokens_per_turn", desk.field("continuation", "max_total_completion_tokens_per_turn")["start"]),
    ):  # fmt: skip
        desk.set("continuation", name, value=value)
    assert repr(desk.limits.continuation).startswith(
        "ContinuationPolicy(max_continuations_per_turn=0, max_total_completion_tokens_per_turn=4000, "
        "max_total_output_chars_per_turn=99, max_tool_repair_attempts=4, "
    )
    assert desk.field("continuation", "max_total_completion_tokens_per_turn")["none"] == "4 × the first cap"


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


CONTROLS = {
    "whole": "number", "share": "number", "money": "number", "strict": "check", "word": "text", "long": "text",
    "choice": "choice", "mood": "choice", "names": "names", "marked": "names", "maybe": "number", "maybe_word": "text",
    "maybe_choice": "choice", "maybe_strict": "choice", "hidden": "number", "strange": "shown",
}  # fmt: skip


def test_each_type_has_its_control() -> None:
    desk = Desk(Everything())
    fields = {one["name"]: one for one in desk.node()["fields"]}
    assert {name: one["control"] for name, one in fields.items()} == CONTROLS
    assert fields["long"]["long"] and not fields["word"]["long"]
    assert fields["strange"]["help"] == "dict[str, int]: set it from code" and fields["maybe"]["none"] == "none"
    assert "Everything" in desk.form["kinds"], "a person's own condition is offered too"
    assert "set this value from code" in desk.refused("stop", "Everything", "strange", value="1")


@pytest.mark.parametrize(
    ("name", "typed", "held"),
    [
        ("whole", "4", 4),
        ("share", "0.25", 0.25),
        ("money", "0.1", Decimal("0.1")),
        ("strict", False, False),
        ("word", "go", "go"),
        ("long", "c\nd", "c\nd"),
        ("choice", "two", "two"),
        ("mood", "Mood.HURRIED", Mood.HURRIED),
        ("names", "x, y", ("x", "y")),
        ("names", {"toggle": "z"}, ("a", "z")),
        ("names", {"toggle": "a"}, ()),
        ("marked", "x, y", frozenset({"x", "y"})),
        ("maybe", "12", 12),
        ("maybe_word", "yes", "yes"),
        ("maybe_choice", "two", "two"),
        ("maybe_strict", "False", False),
        ("hidden", "8", 8),
    ],
)
def test_each_control_sets_a_value_of_its_type(name: str, typed: object, held: object) -> None:
    desk = Desk(Everything())
    desk.set("stop", "Everything", name, value=typed)
    found = getattr(desk.stop, name)
    assert found == held and type(found) is type(held)
    if name.startswith("maybe"):
        desk.set("stop", "Everything", name, value=None)
        assert desk.stop == Everything()


def test_a_bound_in_the_metadata_of_a_persons_own_condition_holds() -> None:
    desk = Desk(Everything())
    said = desk.refused("stop", "Everything", "whole", value="1")
    assert said == "Everything(whole=1): whole must be at least 2. Still in force: 9."
    assert desk.stop == Everything()


@dataclass(frozen=True, slots=True)
class Picky(StopCondition):
    """Refuses any other value in a way of its own."""

    steps: int = 3

    def __post_init__(self) -> None:
        if self.steps != 3:
            raise ValueError("<b>three</b>")

    def read(self, history: RunHistory) -> Reading:
        return Reading("Picky", None, None, False)


def test_any_error_of_a_persons_own_condition_is_a_refusal() -> None:
    assert Desk(Picky()).refused("stop", "Picky", "steps", value="4") == "ValueError: <b>three</b> Still in force: 3."


def test_tools_and_reasons_are_chosen_and_others_are_typed() -> None:
    desk = Desk(HasToolCall("finalize") | FinishReasonIs("length"))
    tools = desk.node(0)["fields"][0]
    assert (tools["value"], tools["known"], tools["chosen"]) == ("finalize", ["search", "finalize"], ["finalize"])
    assert desk.node(1)["fields"][0]["known"] == [*FinishReason]
    assert desk.set("stop", "HasToolCall", "names", value={"toggle": "search"}) == "finalize, search"
    desk.set("stop", "HasToolCall", "names", value={"toggle": "finalize"})
    assert "name the tools as text" in desk.refused("stop", "HasToolCall", "names", value={"toggle": "search"})
    desk.set("stop", "FinishReasonIs", "reasons", value="length, eos")
    assert desk.stop == HasToolCall("search") | FinishReasonIs("length", "eos")


def test_a_key_is_not_in_the_form_and_is_kept_unless_overwritten() -> None:
    desk = Desk(HasToolCall(KEY, "search"))
    desk.limits.hint = f"Use {KEY}"
    assert KEY not in json.dumps(desk.form)
    assert desk.field("continuation", "hint")["value"] == "Use REDACTED"
    desk.set("continuation", "hint", value="Use REDACTED")
    assert desk.limits.hint == f"Use {KEY}"
    desk.set("stop", "HasToolCall", "names", value="REDACTED, finalize")
    assert desk.stop == HasToolCall(KEY, "finalize")
    assert KEY not in desk.refused("continuation", "hint", value="")


# The tree -----------------------------------------------------------------------------------------------------------------------


def test_flags_of_leaves_and_groups() -> None:
    desk = Desk(StepCountIs(9) | (MaxCost("0.5") & ~HasToolCall("finalize")))
    desk.ask("switch", path=[0], on=False)
    desk.ask("negate", path=[1], on=True)
    desk.ask("negate", path=[1, 1], on=False)
    desk.ask("regroup", path=[], group="all of")
    assert desk.stop == AllOf(Off(StepCountIs(9)), ~AllOf(MaxCost("0.5"), HasToolCall("finalize")))
    assert {event.by for event in desk.run.events if isinstance(event, LimitsChanged)} == {"panel"}


def test_conditions_are_removed_and_the_others_keep_their_values() -> None:
    desk = Desk(StepCountIs(1) | StepCountIs(2) | MaxCost(1))
    assert [node["name"] for node in desk.form["tree"]] == ["AnyOf", "StepCountIs", "StepCountIs_2", "MaxCost"]
    desk.ask("remove", path=[0])
    desk.set("stop", "StepCountIs", "steps", value="7")
    assert desk.stop == StepCountIs(7) | MaxCost(1)
    desk.ask("remove", path=[])
    assert desk.stop is None and desk.form["tree"] == []


def test_conditions_and_groups_are_added() -> None:
    desk = Desk()
    assert desk.add("MaxTokensUsed") == {"name": "MaxTokensUsed", "note": ""}
    assert desk.add("all of")["name"] == "StepCountIs"
    assert desk.add("HasToolCall", 1)["name"] == "HasToolCall"
    assert repr(desk.stop) == "AnyOf(MaxTokensUsed(tokens=10000), AllOf(StepCountIs(steps=8), HasToolCall('search')))"
    with pytest.raises(ConfigurationError, match="There is no condition 'Nothing'"):
        desk.add("Nothing")


def test_a_condition_that_would_end_the_run_at_once_is_added_turned_off() -> None:
    desk = Desk(MaxCost(5))
    desk.take(8)
    added = desk.add("StepCountIs")
    assert desk.stop == MaxCost(5) | Off(StepCountIs(8)) and "added but turned off" in added["note"]
    desk.set("stop", "StepCountIs", "steps", value="30")
    desk.ask("switch", path=[1], on=True)
    assert desk.stop == MaxCost(5) | StepCountIs(30)


def test_a_limit_of_the_budget_is_added_above_what_is_used() -> None:
    desk = Desk()
    desk.add("max_tokens")
    assert desk.limits.max_tokens == 10_000
    desk.limits.max_tokens = None
    desk.take(120)
    desk.add("max_calls")
    desk.add("max_cost")
    assert (desk.limits.max_calls, desk.limits.max_cost) == (240, Decimal("0.240"))
    desk.add("max_tokens")
    assert desk.limits.max_tokens == 28_800
    desk.take(1)
    assert desk.run.result is None


def test_a_change_of_an_outdated_tree_changes_nothing() -> None:
    desk = Desk(StepCountIs(3) | MaxCost(1))
    shape = desk.form["shape"]
    desk.limits.edit_condition("StepCountIs", steps=5)  # values may change meanwhile
    desk.ask("switch", path=[0], on=False, shape=shape)
    desk.limits.stop = MaxCost(1) | HasToolCall("finalize")
    with pytest.raises(ConfigurationError, match="changed elsewhere meanwhile"):
        desk.ask("switch", path=[0], on=False, shape=shape)
    with pytest.raises(ConfigurationError, match="There is no stop condition 'StepCountIs'"):
        desk.set("stop", "StepCountIs", "steps", value="4")
    assert desk.stop == MaxCost(1) | HasToolCall("finalize")


# Limit lines, tools, approvals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "held"),
    [
        ("max_tokens", 900, "Budget(max_turns=500, max_tokens=900)"),
        ("max_cost", 1e-05, "Budget(max_turns=500, max_cost=0.00001)"),
        ("MaxCost", 0.25, "AnyOf(MaxCost(0.25), MaxTokensUsed(tokens=10), MaxTokensUsed(tokens=20))"),
        ("MaxTokensUsed_2", 30, "AnyOf(MaxCost(1), MaxTokensUsed(tokens=10), MaxTokensUsed(tokens=30))"),
    ],
)
def test_a_dragged_limit_line_sets_its_limit(name: str, value: float, held: str) -> None:
    desk = Desk(MaxCost(1) | lab.MaxTokensUsed(10) | lab.MaxTokensUsed(20))
    desk.ask("limit", name=name, value=value)
    assert held in (repr(desk.limits.budget), repr(desk.stop))


def test_an_unknown_limit_line_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="There is no limit 'HasToolCall'"):
        Desk(HasToolCall("search")).ask("limit", name="HasToolCall", value=3)


def names_on(tools: Sequence[dict[str, Any]]) -> list[str]:
    return [tool["name"] for tool in tools if tool["on"]]


def test_terminating_tools_are_ticked_and_keep_their_reminders() -> None:
    desk = Desk()
    desk.ask("terminating", tool="finalize", on=True)
    assert desk.limits.terminating == TerminatingTools(("finalize",))
    desk.set("terminating", "consecutive_nudges", value="5")
    desk.ask("terminating", tool="search", on=True)
    assert desk.limits.terminating == TerminatingTools(("search", "finalize"), consecutive_nudges=5)
    for name in ("search", "finalize"):
        desk.ask("terminating", tool=name, on=False)
    assert (desk.limits.terminating, names_on(desk.form["terminating"]["tools"])) == (None, [])
    desk.ask("terminating", tool="search", on=True)
    assert desk.limits.terminating == TerminatingTools(("search",), consecutive_nudges=5), "the reminders are back"
    with pytest.warns(lab.AgentlabWarning, match="'elsewhere' can never be called"):
        desk.limits.terminating = ["elsewhere"]  # a name set in code that is none of the agent's tools
    assert names_on(desk.form["terminating"]["tools"]) == ["elsewhere"]


def test_a_person_is_asked_before_the_ticked_tools() -> None:
    desk = Desk(approve=["sea*", MaxCost(1)])
    assert desk.form["approve"] == {
        "every": False,
        "tools": [{"name": "search", "on": False}, {"name": "finalize", "on": False}],
        "others": ["sea*", "MaxCost(1)"],
    }
    desk.ask("approve", part="finalize", on=True)
    assert desk.limits.approve == ("sea*", MaxCost(1), "finalize")
    desk.ask("approve", part="sea*", on=False)
    desk.ask("approve", part="MaxCost(1)", on=False)
    desk.ask("approve", part="*", on=True)
    assert desk.limits.approve == ("finalize", "*")
    assert desk.form["approve"]["every"] and names_on(desk.form["approve"]["tools"]) == ["search", "finalize"]
    desk.ask("approve", part="*", on=False)
    desk.ask("approve", part="finalize", on=False)
    assert desk.limits.approve == ()


def test_an_edit_while_a_drawing_is_under_way_is_in_the_next_news(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.panel.feed.news()
    made, editing = settings._form, list[threading.Thread]()

    def slow(*given: Any) -> dict[str, Any]:
        form = made(*given)
        if given[1].budget.max_turns == 33 and not editing:  # the drawing has read the limits; now the person edits one
            editing.append(threading.Thread(target=lambda: desk.set("budget", "max_turns", value="44")))
            editing[0].start()
            editing[0].join(60)
        return form

    monkeypatch.setattr(settings, "_form", slow)
    desk.limits.max_turns = 33
    shown = []
    for _ in range(2):
        news = desk.panel.feed.news()["runs"][desk.run.id]
        shown.append(next(one["value"] for one in news["settings"]["budget"] if one["name"] == "max_turns"))
    assert shown == ["33", "44"] and desk.limits.max_turns == 44


def test_an_edit_does_not_wait_for_a_drawing() -> None:
    desk = Desk()
    with undisturbed(desk.panel):
        editing = threading.Thread(target=lambda: desk.set("budget", "max_turns", value="44"))
        editing.start()
        editing.join(60)
        assert not editing.is_alive() and desk.limits.max_turns == 44


def test_anyof_of_one_is_shown_as_it_is() -> None:
    desk = Desk(AnyOf(StepCountIs(30)))
    assert [node["group"] for node in desk.form["tree"]] == ["any of", ""]
