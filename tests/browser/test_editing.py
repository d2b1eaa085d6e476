"""Editing the limits of a run in a real JupyterLab: every setting, clicked before or during the run."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from .axe import COLOURS, faults
from .lab_page import DARK, LabPage

EDITED_RUN = """
import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal
import agentlab as lab
from agentlab import Budget, FinishReasonIs, HasToolCall, MaxCost, StepCountIs
from agentlab.limits.fields import limit_field
from agentlab.records.result import Reading
from agentlab.limits.conditions import StopCondition
from agentlab.testing import ScriptedProvider, call

async def search(query: str) -> str:
    "Search the archive."
    await asyncio.sleep(0.25)
    return f"nothing about {query}"

def finalize(answer: str) -> str:
    "Hand in the answer."
    return answer

@dataclass(frozen=True, slots=True)
class Patience(StopCondition):
    "A custom condition, with fields of several types."

    steps: int = limit_field(unit="steps", minimum=2, default=90, help="stop after so many steps")
    mood: Literal["calm", "hurried"] = "calm"
    strict: bool = True
    note: str = "wait"

    def read(self, history):
        count = len(history) * (2 if self.mood == "hurried" else 1)
        return Reading("Patience", count, self.steps, count >= self.steps)

def looks_done(history):
    return "done" in history[-1].text

model = ScriptedProvider(lambda request, index: call("search", {"query": f"try {index}"}, tokens=(200 + 10 * index, 20), cost=0.0001))
agent = lab.Agent(model, tools=[search, finalize])
run = agent.run(
    "Find it.",
    stop=HasToolCall("finalize") | StepCountIs(2000) | (MaxCost("0.5") & ~FinishReasonIs("length")) | looks_done,
    budget=Budget(max_turns=2000, max_tokens=5_000_000),
)
run.panel()
"""


@pytest.fixture
def panel(lab: LabPage) -> LabPage:
    """A page with the panel of a run of very many slow steps, not yet started."""
    return opened(lab, EDITED_RUN)


def opened(lab: LabPage, source: str) -> LabPage:
    """The panel that this cell shows, in view."""
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    lab.open(lab.jupyter.write_notebook("editing", [source]))
    lab.run_cell(0)
    lab.wait_until_enabled("Run")
    lab.live.evaluate("page => page.scrollIntoView()")
    return lab


EDITOR = "[data-section=limits], [data-section=rest]"


def editor(panel: LabPage) -> Locator:
    """The drawer, with the limits and what is rarely changed."""
    return panel.live.locator(".page-drawer")


def box(panel: LabPage, name: str) -> Locator:
    """A check box, by its name."""
    return editor(panel).get_by_role("checkbox", name=name, exact=True)


def choice(panel: LabPage, name: str) -> Locator:
    """A list to choose from, by its name."""
    return editor(panel).get_by_role("combobox", name=name, exact=True)


def entry(panel: LabPage, name: str) -> Locator:
    """A box for a number or a text, by its name."""
    return editor(panel).get_by_role("textbox", name=name, exact=True)


def unfold(panel: LabPage, *names: str) -> None:
    """Unfold these rows, or folds."""
    for name in names:
        row = editor(panel).get_by_role("button", name=f"More on {name}", exact=True)
        row.or_(editor(panel).locator(".page-part > summary", has_text=name)).click()


def add(panel: LabPage, kind: str) -> None:
    choice(panel, "Limit or condition to add").select_option(kind)
    panel.button("Add").click()


def set_to(panel: LabPage, name: str, text: str) -> None:
    """Type into a box, and leave it."""
    entry(panel, name).fill(text)
    entry(panel, name).press("Tab")


STOP = "repr(run.limits.stop)"
WHOLE = "the whole condition"


def test_a_number_is_edited_while_steps_arrive(panel: LabPage) -> None:
    panel.button("Run").click()
    panel.wait_for_steps(2)
    tokens = entry(panel, "max_tokens")
    expect(tokens).to_have_value("5,000,000")
    tokens.click()
    panel.page.keyboard.press("Control+a")
    panel.page.keyboard.type("123")
    seen = int(panel.kernel_value("len(run.history)"))
    panel.wait_for_steps(seen + 3)
    expect(tokens).to_be_focused()
    expect(tokens).to_have_value("123")
    expect(editor(panel)).to_contain_text("Already used: the run ends at the next step.")
    assert panel.kernel_value("run.limits.max_tokens") == "5000000", "nothing is sent before Enter"
    panel.page.keyboard.press("Escape")
    expect(tokens).to_have_value("5,000,000")
    expect(editor(panel)).not_to_contain_text("Already used")

    panel.page.keyboard.press("Control+a")
    panel.page.keyboard.type("60k")
    panel.page.keyboard.press("Enter")
    expect(tokens).to_have_value("60,000")
    panel.wait_for_kernel("run.limits.max_tokens", "60000")
    meter = editor(panel).get_by_role("meter", name="Tokens")
    before = int(meter.get_attribute("aria-valuenow") or 0)
    expect(meter).not_to_have_attribute("aria-valuenow", str(before))
    panel.kernel_value("setattr(run.limits, 'max_tokens', 70_000)")
    panel.page.keyboard.press("Tab")
    expect(tokens).to_have_value("70,000")  # a change from code, shown once the box is left


def test_a_refused_value_stays_with_its_reason_and_one_that_is_left_at_once_is_shown(panel: LabPage) -> None:
    unfold(panel, "Steps")
    turns = entry(panel, "max_turns")
    set_to(panel, "max_turns", "5.5")
    expect(turns).to_have_attribute("aria-invalid", "true")
    reason = panel.page.locator(f"#{turns.get_attribute('aria-describedby')}")
    expect(reason).to_have_text(
        "Budget(max_turns=5.5): max_turns is a whole number, such as 8; got float. Still in force: 2,000."
    )
    panel.button("Run").click()
    panel.wait_for_steps(3)
    expect(turns).to_have_value("5.5")
    panel.picture("panel-editor-refused")
    turns.fill("1e3")
    turns.press("Enter")
    panel.wait_for_kernel("run.limits.max_turns", "1000")
    expect(turns).to_have_attribute("aria-invalid", "false")
    expect(turns).to_have_value("1,000")
    expect(reason).to_be_empty()
    set_to(panel, "max_turns", "abc")
    expect(reason).to_contain_text("'abc' is not a number")
    turns.press("Escape")
    expect(turns).to_have_value("1,000")
    expect(reason).to_be_empty()

    # both keys are pressed before the kernel has answered
    keys = """box => {
        box.focus();
        box.value = '2e3';
        box.dispatchEvent(new InputEvent('input', { bubbles: true }));
        box.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
        box.blur();
    }"""
    entry(panel, "max_turns").evaluate(keys)
    expect(entry(panel, "max_turns")).to_have_value("2,000")
    entry(panel, "max_turns").evaluate(keys.replace("2e3", "abc"))
    expect(editor(panel)).to_contain_text("'abc' is not a number")
    expect(entry(panel, "max_turns")).to_have_value("abc")


def test_a_drawing_between_the_answer_and_the_news_of_a_value_changes_no_box(panel: LabPage) -> None:
    """The kernel's news are held up until the next value is typed."""
    held = "lambda run: (held.wait(60), kept(run))[1]"
    panel.kernel_value(
        "exec('import threading; from agentlab.notebook.panel import feed; "
        f"held = threading.Event(); kept = feed.live_data; feed.live_data = {held}')"
    )
    turns = entry(panel, "max_turns")
    turns.fill("1e3")
    turns.press("Enter")
    expect(turns).to_have_value("1,000")
    unfold(panel, "Tokens")  # which draws the rows
    expect(editor(panel).get_by_label("no limit on max_tokens")).to_be_visible()
    expect(turns).to_have_value("1,000")
    set_to(panel, "max_turns", "abc")
    expect(editor(panel)).to_contain_text("'abc' is not a number")
    panel.kernel_value("(held.set(), setattr(feed, 'live_data', kept), setattr(run.limits, 'max_tokens', 70_000))")
    expect(entry(panel, "max_tokens")).to_have_value("70,000")
    expect(turns).to_have_value("abc")
    expect(editor(panel)).to_contain_text("'abc' is not a number")
    turns.press("Escape")
    expect(turns).to_have_value("1,000")


def test_two_limits_on_one_thing_are_one_row(panel: LabPage) -> None:
    row = editor(panel).locator(".page-limit", has=panel.page.get_by_role("button", name="More on Steps"))
    expect(row).to_contain_text("StepCountIs 2000")
    expect(row.get_by_role("textbox")).to_have_count(1)
    entry(panel, "max_turns").or_(entry(panel, "StepCountIs")).fill("900")
    panel.page.keyboard.press("Enter")
    expect(row).to_contain_text("900 applies before")
    unfold(panel, "Steps")
    set_to(panel, "StepCountIs", "30")
    set_to(panel, "max_turns", "40")
    expect(row).to_contain_text("StepCountIs 30 applies before max_turns 40")
    expect(row).to_contain_text("0 of 30")
    box(panel, "Use StepCountIs").uncheck()
    expect(row).to_contain_text("0 of 40")
    box(panel, "no limit on max_turns").check()
    panel.wait_for_kernel("(run.limits.max_turns, repr(run.limits.conditions['StepCountIs']))", "(None, 'StepCountIs(steps=30)')")


def test_limits_and_conditions_are_added_and_get_the_focus(panel: LabPage) -> None:
    add(panel, "timeout")
    expect(entry(panel, "timeout in seconds")).to_be_focused()
    panel.page.keyboard.type("2 min")
    panel.page.keyboard.press("Enter")
    expect(entry(panel, "timeout in seconds")).to_have_value("120")
    add(panel, "max_cost")
    expect(entry(panel, "max_cost in US dollars")).to_be_focused()
    panel.page.keyboard.type("1e-05")
    panel.page.keyboard.press("Tab")
    expect(entry(panel, "max_cost in US dollars")).to_have_value("0.00001")
    panel.wait_for_kernel("(run.limits.timeout, str(run.limits.max_cost))", "(120.0, '0.00001')")

    add(panel, "all of")
    unfold(panel, "group 2")
    expect(choice(panel, "group 2 is met by")).to_have_value("all of")
    choice(panel, "Condition to add to group 2").select_option("HasToolCall")
    panel.button("Add to group 2").click()
    expect(entry(panel, "HasToolCall_2")).to_be_focused()
    panel.wait_for_kernel(f"'AllOf(StepCountIs(steps=8), HasToolCall(' in {STOP}", "True")


def test_the_condition_tree_is_changed_by_clicks(panel: LabPage) -> None:
    unfold(panel, "Steps", "Call of finalize", "looks_done")
    box(panel, "Use StepCountIs").uncheck()
    box(panel, "not HasToolCall").check()
    choice(panel, f"{WHOLE} is met by").select_option("all of")
    choice(panel, "group 1 is met by").select_option("any of")
    panel.button("Remove looks_done").click()
    wanted = (
        "AllOf(Not(HasToolCall('finalize')), Off(StepCountIs(steps=2000)), AnyOf(MaxCost(0.5), Not(FinishReasonIs('length'))))"
    )
    panel.wait_for_kernel(STOP, repr(wanted))
    expect(editor(panel).get_by_text("looks_done")).to_have_count(0)

    box(panel, "Use StepCountIs").check()
    box(panel, "not HasToolCall").uncheck()
    unfold(panel, "group 1", WHOLE)
    panel.button("Remove group 1").click()
    panel.wait_for_kernel(STOP, repr("AllOf(HasToolCall('finalize'), StepCountIs(steps=2000))"))
    assert panel.kernel_value("{event.by for event in run.events}") == "{'panel'}"
    expect(panel.button("Remove group 1")).to_have_count(0)  # an edit of an outdated form changes nothing
    panel.button(f"Remove {WHOLE}").click()
    panel.wait_for_kernel(STOP, "'None'")


def test_fields_of_conditions_are_edited_and_an_edit_in_an_outdated_form_changes_nothing(panel: LabPage) -> None:
    unfold(panel, "Call of finalize")
    tools = editor(panel).get_by_role("group", name="Choose for HasToolCall")
    assert tools.get_by_role("button").all_inner_texts() == ["search", "finalize"]
    tools.get_by_role("button", name="search").click()
    expect(entry(panel, "HasToolCall")).to_have_value("finalize, search")
    expect(tools.get_by_role("button", name="search")).to_have_attribute("aria-pressed", "true")
    tools.get_by_role("button", name="finalize").click()
    panel.wait_for_kernel("run.limits.conditions['HasToolCall'].names", "('search',)")
    set_to(panel, "HasToolCall", "give_up")
    panel.wait_for_kernel("run.limits.conditions['HasToolCall'].names", "('give_up',)")
    expect(editor(panel)).to_contain_text("Can never be met: the agent has no tool 'give_up'.")

    add(panel, "Patience")
    expect(entry(panel, "steps of Patience")).to_be_focused()
    set_to(panel, "steps of Patience", "60")
    choice(panel, "mood of Patience").select_option("hurried")
    box(panel, "strict of Patience").uncheck()
    set_to(panel, "note of Patience", "a while")
    patience = "Patience(steps=60, mood='hurried', strict=False, note='a while')"
    panel.wait_for_kernel("repr(run.limits.conditions['Patience'])", repr(patience))
    set_to(panel, "steps of Patience", "1")
    expect(editor(panel)).to_contain_text("Patience(steps=1): steps must be at least 2. Still in force: 60.")

    # code takes a condition away in the moment in which the person removes another one
    unfold(panel, "Steps", "looks_done")
    remove = panel.button("Remove looks_done")
    expect(remove).to_be_visible()
    with_message = "(setattr(run.limits, 'stop', MaxCost(1)), __import__('time').sleep(0.3))"
    panel.page.evaluate("button => setTimeout(() => button.click(), 100)", remove.element_handle())
    panel.kernel_value(with_message)
    panel.wait_for_kernel(STOP, "'MaxCost(1)'")
    expect(editor(panel)).not_to_contain_text("looks_done")


def test_a_condition_that_would_end_the_run_at_once_is_added_turned_off(panel: LabPage) -> None:
    panel.button("Run").click()
    panel.wait_for_steps(9)
    add(panel, "StepCountIs")
    expect(entry(panel, "StepCountIs_2")).to_be_focused()
    expect(editor(panel)).to_contain_text("StepCountIs would be met at once, so it was added but turned off")
    expect(box(panel, "Use StepCountIs_2")).not_to_be_checked()
    panel.wait_for_steps(14)
    expect(entry(panel, "StepCountIs_2")).to_be_focused()  # arriving steps do not move the focus
    assert panel.kernel_value("run.result is None") == "True"
    box(panel, "Use StepCountIs_2").check()
    expect(panel.live).to_contain_text(re.compile(r"Stop condition met: StepCountIs(_2)? \d+ of 8"))
    expect(editor(panel)).to_contain_text("The run has ended: branch it to change limits.")
    unfold(panel, "Ask me before", "Terminating tools", "Cut answers", "Missing usage")
    for control in panel.live.locator(EDITOR).locator("input, select, textarea, button:not(.page-fold)").all():
        expect(control).to_be_disabled()


def test_an_edit_says_when_it_takes_effect(lab: LabPage) -> None:
    """The second step lasts until the test releases it, so that the message stays visible."""
    held = EDITED_RUN.replace("await asyncio.sleep(0.25)", 'while query != "try 1" and held:\n        await asyncio.sleep(0.02)')
    assert "and held" in held
    opened(lab, "held = True\n" + held)
    lab.button("Run").click()
    lab.wait_for_steps(1)
    add(lab, "max_calls")
    expect(editor(lab)).to_contain_text("Takes effect at the next step.")
    lab.kernel_value("globals().update(held=False)")
    expect(editor(lab)).not_to_contain_text("Takes effect at the next step.")
    assert lab.kernel_value("run.stepper.context.in_force.budget.max_calls") == "40"


def test_what_is_in_the_folds_is_edited_and_the_person_asked_before_a_ticked_tool(panel: LabPage) -> None:
    unfold(panel, "Missing usage", "Terminating tools", "Cut answers")
    choice(panel, "missing_usage").select_option("estimate")
    panel.wait_for_kernel("run.limits.missing_usage", "'estimate'")

    expect(entry(panel, "consecutive_nudges")).to_have_count(0)
    box(panel, "finalize").and_(editor(panel).locator(".page-part[open] input")).check()
    set_to(panel, "consecutive_nudges", "3")
    set_to(panel, "nudge_message", "Call finalize.")
    panel.wait_for_kernel("(run.limits.tools, run.limits.consecutive_nudges)", "(('finalize',), 3)")
    panel.wait_for_kernel("run.limits.nudge_message", "'Call finalize.'")
    set_to(panel, "max_invocations", "0")
    expect(editor(panel)).to_contain_text("TerminatingTools(max_invocations=0): max_invocations must be at least 1.")

    set_to(panel, "max_continuations_per_turn", "7")
    most = "max_total_completion_tokens_per_turn"
    expect(box(panel, f"4 × the first cap on {most}")).to_be_checked()
    set_to(panel, most, "2500")
    expect(box(panel, f"4 × the first cap on {most}")).not_to_be_checked()
    panel.wait_for_kernel(f"(run.limits.max_continuations_per_turn, run.limits.{most})", "(7, 2500)")
    box(panel, f"4 × the first cap on {most}").check()
    panel.wait_for_kernel(f"run.limits.{most}", "None")
    expect(editor(panel)).to_contain_text("continued up to 7 times")

    unfold(panel, "Terminating tools", "Ask me before")  # the first is folded again: it has boxes of the same names
    box(panel, "search").check()
    panel.wait_for_kernel("run.limits.approve", "('search',)")
    panel.button("Run").click()
    panel.wait_for_status("waiting")
    box(panel, "every tool").check()
    panel.wait_for_kernel("run.limits.approve", "('search', '*')")
    expect(box(panel, "finalize")).to_be_checked()
    expect(box(panel, "finalize")).to_be_disabled()


def test_the_whole_editor_is_reachable_by_keyboard_and_axe_finds_nothing(panel: LabPage) -> None:
    unfold(panel, "Steps")
    panel.live.locator("[data-section=limits] > summary").focus()
    reached = []
    for _ in range(60):
        panel.page.keyboard.press("Tab")
        name = panel.page.evaluate(
            "within => { const at = document.activeElement; if (!at.closest(within)) return null;"
            "return at.ariaLabel || at.labels?.[0]?.textContent || at.innerText; }",
            EDITOR,
        )
        if name is None:
            break
        reached.append(" ".join(name.split()))
    for wanted in ("More on Steps", "max_turns", "no limit on max_turns", "StepCountIs", "Use StepCountIs", "not StepCountIs",
                   "Remove StepCountIs", f"{WHOLE} is met by", "group 1 is met by", "Use MaxCost", "Limit or condition to add",
                   "Add", "Ask me before nothing", "Cut answers continued up to 3 times"):  # fmt: skip
        assert wanted in [one.replace("\n", " ") for one in reached], reached
    unfold(panel, WHOLE, "group 1", "Call of finalize", "Ask me before", "Terminating tools", "Cut answers", "Missing usage")
    set_to(panel, "max_tokens", "-1")
    expect(editor(panel)).to_contain_text("max_tokens must be at least 1")
    assert faults(panel.page, "[data-section=limits]") == faults(panel.page, "[data-section=rest]") == []
    panel.picture("panel-editor")
    panel.use_theme(DARK)
    assert faults(panel.page, "[data-section=limits]", only=COLOURS) == []
    panel.picture("panel-editor-dark")


def test_a_limit_line_is_dragged_in_from_the_upper_edge_while_the_run_is_under_way(lab: LabPage) -> None:
    panel = opened(lab, "pace = 0.25\n" + EDITED_RUN.replace("sleep(0.25)", "sleep(pace)"))
    panel.button("Run").click()
    panel.wait_for_steps(6)
    line = panel.live.get_by_role("slider", name="Limit: Tokens")
    expect(line).to_have_attribute("aria-valuetext", "limit 5,000,000")
    x, y = middle(line)
    panel.page.mouse.move(x, y)
    panel.page.mouse.down()
    panel.page.mouse.move(x, y + 3)
    panel.page.mouse.move(x, y + 10)
    held = line.get_attribute("aria-valuetext")
    seen = int(panel.kernel_value("len(run.history)"))
    panel.wait_for_steps(seen + 3)
    expect(line).to_have_attribute("aria-valuetext", str(held))  # steps do not move what is held
    assert panel.kernel_value("run.limits.max_tokens") == "5000000"
    panel.kernel_value("globals().update(pace=2)")  # so that the new limit is not reached before the test has done with it
    panel.page.mouse.up()
    limit = int(str(held).split()[1].replace(",", ""))
    panel.wait_for_kernel("run.limits.max_tokens", str(limit))
    expect(entry(panel, "max_tokens")).to_have_value(f"{limit:,}")
    expect(panel.live.locator(".page-chart").first).to_contain_text(f"limit {limit:,}")

    x, y = middle(line)
    panel.page.mouse.move(x, y)
    panel.page.mouse.down()
    panel.page.mouse.move(x, y + 20)
    panel.page.keyboard.press("Escape")
    panel.page.mouse.up()
    expect(line).to_have_attribute("aria-valuetext", f"limit {limit:,}")
    assert panel.kernel_value("run.limits.max_tokens") == str(limit), "Escape leaves it where it was"

    line.focus()
    panel.page.keyboard.press("ArrowUp")
    panel.wait_for_kernel(f"run.limits.max_tokens > {limit}", "True")
    x, y = middle(line)
    panel.page.mouse.move(x, y)
    panel.page.mouse.down()
    panel.page.mouse.move(x, y + 60)
    expect(line).to_have_attribute("aria-valuetext", re.compile("ends the run at the next step"))
    expect(line).to_have_class(re.compile("ends"))
    panel.page.mouse.up()
    panel.wait_for_status("ended early")
    expect(panel.live).to_contain_text("Budget reached: max_tokens")
    expect(line).to_have_count(0)


def middle(line: Locator) -> tuple[float, float]:
    """The middle of the handle, once it is at rest there."""
    line.scroll_into_view_if_needed()
    place = line.bounding_box()
    assert place is not None
    return place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
