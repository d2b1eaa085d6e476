"""The overview: the state, the model, and what remains of each limit."""

from __future__ import annotations

import asyncio
import html
import math
import re
from dataclasses import dataclass
from decimal import Decimal

import pytest

import agentlab as lab
from agentlab import Budget, HasToolCall, MaxCost, StepCountIs
from agentlab.agent import Run
from agentlab.limits.combinators import Off, StopCondition
from agentlab.limits.fields import limit_field
from agentlab.limits.reading import Reading
from agentlab.notebook import markup
from agentlab.records.history import RunHistory
from agentlab.testing import ScriptedProvider, call

HOSTILE = '<script>alert(1)</script>\x1b[31m\u202e"onmouseover="alert(2)'


async def search(query: str) -> str:
    """Search."""
    return "nothing"


def run_of(steps: int, stop: object = None, budget: Budget | None = None, **names: str) -> Run:
    model = ScriptedProvider(lambda request, index: call("search", {"query": "x"}, tokens=(80, 20), cost="0.001"), **names)
    run = lab.Agent(model, tools=[search]).run("Find it.", stop=stop, budget=budget or Budget(max_turns=20))
    asyncio.run(_steps(run, steps))
    return run


async def _steps(run: Run, number: int) -> None:
    for _ in range(number):
        await run.step()


def rows(run: Run) -> dict[str, tuple[str, str]]:
    """The used and the remaining amount, by the limit's name, as text."""
    found = {}
    shown = markup.meters(run).removeprefix('<div class="agentlab-meter">')
    for row in re.findall(r"<bdi>.*?</bdi>(?:<div.*?</div></div>|<span></span>)<span>.*?</span><span>.*?</span>", shown):
        name, _, cells = row.removeprefix("<bdi>").partition("</bdi>")
        used, left = re.findall(r"<span>(.*?)</span>", cells)[-2:]
        found[html.unescape(name)] = (html.unescape(re.sub("<[^>]*>", "", used)), left)
    return found


@pytest.mark.parametrize(
    ("budget", "name", "used", "left"),
    [
        (Budget(max_turns=20), "max_turns", "8 of 20", "12 left"),
        (Budget(max_turns=8), "max_turns", "8 of 8 — reached", "none left"),
        (Budget(max_tokens=5_000), "max_tokens", "800 of 5,000", "4,200 left"),
        (Budget(max_tokens=1_000), "max_tokens", "800 of 1,000 — near", "200 left"),
        (Budget(max_cost=0.05), "max_cost", "$0.008 of $0.05", "$0.042 left"),
        (Budget(max_calls=30), "max_calls", "8 of 30", "22 left"),
    ],
)
def test_used_and_remaining_amounts(budget: Budget, name: str, used: str, left: str) -> None:
    assert rows(run_of(8, budget=budget))[name] == (used, left)


def test_time_is_shown_in_words() -> None:
    used, left = rows(run_of(0, budget=Budget(timeout=150)))["timeout"]
    assert (used, left) == ("0.0 s of 2 min 30 s", "2 min 30 s left")


@pytest.mark.parametrize(("seconds", "words"), [(3.21, "3.2 s"), (59.9, "59.9 s"), (125, "2 min 05 s"), (3720, "1 h 02 min")])
def test_durations_in_words(seconds: float, words: str) -> None:
    assert markup.duration(seconds) == words


def test_unknown_values_are_shown_as_unknown() -> None:
    model = ScriptedProvider([lab.testing.say("done", tokens=(None, None))])
    run = lab.Agent(model).run("go", budget=Budget(max_tokens=100))
    with pytest.warns(lab.AgentlabWarning, match="reports no usage"):
        asyncio.run(_steps(run, 1))
    assert rows(run)["max_tokens"] == ("unknown of 100", "left: unknown")


def test_a_condition_turned_off_says_so_and_raises_no_alarm() -> None:
    run = run_of(8, Off(StepCountIs(8)) | MaxCost(1))
    assert rows(run)["StepCountIs"] == ("off (8 of 8)", "")
    assert 'class="agentlab-bar off"' in markup.meters(run) and 'agentlab-fill met"' not in markup.meters(run)


def test_everything_below_a_group_turned_off_is_off() -> None:
    shown = rows(run_of(2, MaxCost(1) | Off(StepCountIs(8) & HasToolCall("finalize"))))
    assert shown["StepCountIs"][0].startswith("off") and shown["HasToolCall"] == ("off (finalize: not called)", "")
    assert not shown["MaxCost"][0].startswith("off")


def test_a_negated_condition_is_distinguished() -> None:
    assert rows(run_of(2, MaxCost(1) & ~StepCountIs(2)))["not StepCountIs"] == ("2 of 2", "")


def test_two_conditions_of_a_kind_have_different_names() -> None:
    assert {"StepCountIs", "StepCountIs_2"} <= set(rows(run_of(1, StepCountIs(8) | (StepCountIs(9) & MaxCost(1)))))


@dataclass(frozen=True, slots=True)
class Faulty(StopCondition):
    """A condition that cannot be read."""

    often: int = limit_field(unit="times", minimum=1, help="how often")

    def read(self, history: RunHistory) -> Reading:
        raise ZeroDivisionError


def test_a_raising_condition_does_not_break_the_panel() -> None:
    assert rows(run_of(0, Faulty(3)))["Faulty"] == ("not read yet", "")


def test_the_bar_has_the_same_text_for_screen_readers() -> None:
    shown = markup.meters(run_of(8))
    assert 'role="meter" aria-label="max_turns"' in shown and 'aria-valuetext="8 of 20; 12 left"' in shown
    assert 'aria-valuetext="8 of 8 — reached; none left"' in markup.meters(run_of(8, budget=Budget(max_turns=8)))
    assert 'aria-valuetext="off (8 of 8)"' in markup.meters(run_of(8, Off(StepCountIs(8))))


def test_hostile_names_are_text_without_terminal_codes() -> None:
    shown = markup.status(run_of(1, name=HOSTILE, model=HOSTILE))
    assert "<script>" not in shown and "\x1b" not in shown
    assert "<bdi>&lt;script&gt;" in shown, "its writing direction is isolated"
    assert 'onmouseover="' not in shown


def test_an_agent_with_a_name_shows_its_model_too() -> None:
    run = lab.Agent(ScriptedProvider(["x"]), name="clerk").run("go")
    assert "<bdi>clerk</bdi>" in markup.status(run) and "<bdi>scripted:script</bdi>" in markup.status(run)
    assert markup.status(run_of(0)).count("<bdi>") == 1


def test_the_table_for_readers_without_style_has_the_same_content_and_no_times() -> None:
    table = markup.limits(run_of(8, budget=Budget(max_turns=20, timeout=60)))
    assert "<td>8 of 20</td><td>12 left</td>" in table and "timeout" not in table


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (Decimal("0.05"), "$0.05"),
        (0.1234567, "$0.123457"),
        (Decimal(0), "$0"),
        (None, "unknown"),
        (Decimal("0.000000321"), "$0.00000032"),
        (Decimal("1e25"), "$10000000000000000000000000"),
        (math.inf, "$Infinity"),
    ],
)
def test_an_amount_has_no_exponent_and_is_never_rounded_to_zero(amount: Decimal | float | None, words: str) -> None:
    assert markup.dollars(amount) == words


@dataclass(frozen=True)
class _Surprise(StopCondition):
    """A condition whose figure cannot be compared with its limit."""

    value: float | Decimal
    most: float

    def read(self, history: RunHistory) -> Reading:
        return Reading("_Surprise", self.value, self.most, False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, Decimal("NaN")])
@pytest.mark.parametrize("most", [3, 3.0, math.inf])
def test_a_non_finite_figure_has_no_bar(value: float | Decimal, most: float) -> None:
    shown = rows(run_of(1, _Surprise(value, most)))["_Surprise"]
    assert shown[1] == ""
    assert "of" in shown[0]
