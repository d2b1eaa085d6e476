"""Editing the limits of a run in a real JupyterLab: every setting, clicked before or during the run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from .lab_page import DARK, LabPage

PICTURES = Path(__file__).parents[2] / "test-output"  # screenshots for review

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
    lab.page.set_viewport_size({"width": 1280, "height": 1400})
    lab.open(lab.jupyter.write_notebook("editing", [EDITED_RUN]))
    lab.run_cell(0)
    expect(lab.button("Run")).to_be_enabled()
    return lab


def editor(page: LabPage) -> Locator:
    """The editor in the page."""
    return page.page.locator(".agentlab-editor")


def test_the_editor_in_both_themes_with_screenshots(panel: LabPage) -> None:
    panel.page.wait_for_timeout(800)
    panel.screenshot(PICTURES / "panel-editor.png", of=editor(panel))
    panel.button("Terminating tools").click()
    panel.button("Cut answers").click()
    panel.page.wait_for_timeout(400)
    panel.use_theme(DARK)
    panel.screenshot(PICTURES / "panel-editor-dark.png", of=editor(panel))
    panel.screenshot(PICTURES / "panel-editor-page.png", of=panel.output(0))


def box(page: LabPage, name: str) -> Locator:
    """A checkbox, by its name."""
    return editor(page).get_by_role("checkbox", name=name, exact=True)


def choice(page: LabPage, name: str) -> Locator:
    """A drop-down list, by its name."""
    return editor(page).get_by_role("combobox", name=name, exact=True)


def text(page: LabPage, name: str) -> Locator:
    """A text box, by its name."""
    return editor(page).get_by_role("textbox", name=name, exact=True)


STOP = "repr(run.limits.stop)"
WHOLE = "the whole condition"


def test_the_condition_tree_is_changed_by_clicks(panel: LabPage) -> None:
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
    panel.button("Remove group 1").click()
    panel.wait_for_kernel(STOP, repr("AllOf(HasToolCall('finalize'), StepCountIs(steps=2000))"))
    assert panel.kernel_value("{event.by for event in run.events}") == "{'panel'}"

    panel.button(f"Remove {WHOLE}").click()
    expect(editor(panel)).to_contain_text("No condition: only the budget limits this run.")
    panel.wait_for_kernel(STOP, "'None'")


def test_added_conditions_get_the_focus(panel: LabPage) -> None:
    panel.button(f"Remove {WHOLE}").click()
    expect(editor(panel)).to_contain_text("No condition")
    choice(panel, f"Condition to add to {WHOLE}").select_option("MaxTokensUsed")
    panel.button("Add").click()
    expect(box(panel, "Use MaxTokensUsed")).to_be_focused()
    panel.page.keyboard.press("Tab")
    panel.page.keyboard.press("Control+a")
    panel.page.keyboard.type("7000")
    panel.page.keyboard.press("Tab")
    panel.wait_for_kernel(STOP, repr("MaxTokensUsed(tokens=7000)"))

    choice(panel, f"Condition to add to {WHOLE}").select_option("a group: all of")
    panel.button("Add").click()
    expect(choice(panel, "group 1 is met by")).to_be_visible()
    choice(panel, "Condition to add to group 1").select_option("HasToolCall")
    panel.button("Add to group 1").click()
    expect(box(panel, "Use HasToolCall")).to_be_focused()
    wanted = "AnyOf(MaxTokensUsed(tokens=7000), AllOf(StepCountIs(steps=8), HasToolCall('search')))"
    panel.wait_for_kernel(STOP, repr(wanted))


def test_a_custom_condition_is_added_and_each_of_its_fields_edited(panel: LabPage) -> None:
    choice(panel, f"Condition to add to {WHOLE}").select_option("Patience")
    panel.button("Add").click()
    steps = panel.number("steps of Patience")
    steps.fill("60")
    steps.press("Tab")
    choice(panel, "mood of Patience").select_option("hurried")
    box(panel, "strict of Patience").uncheck()
    text(panel, "note of Patience").fill("a while")
    text(panel, "note of Patience").press("Tab")
    patience = "Patience(steps=60, mood='hurried', strict=False, note='a while')"
    panel.wait_for_kernel("repr(run.limits.conditions['Patience'])", repr(patience))

    steps.fill("1")
    steps.press("Tab")
    panel.wait_for_output(0, "Patience(steps=1): steps must be at least 2. Still in force: 60.")
    panel.wait_for_kernel("run.limits.conditions['Patience'].steps", "60")


def test_a_condition_that_would_end_the_run_at_once_is_added_turned_off(panel: LabPage) -> None:
    panel.button("Run").click()
    panel.wait_for_steps(9)
    choice(panel, f"Condition to add to {WHOLE}").select_option("StepCountIs")
    panel.button("Add").click()
    panel.wait_for_output(0, "StepCountIs would be met at once, so it was added but turned off")
    expect(box(panel, "Use StepCountIs_2")).not_to_be_checked()
    expect(box(panel, "Use StepCountIs_2")).to_be_focused()
    panel.wait_for_steps(14)
    expect(box(panel, "Use StepCountIs_2")).to_be_focused()  # arriving steps do not move the focus
    assert panel.kernel_value("run.result is None") == "True"
    panel.page.keyboard.press("Space")
    panel.wait_for_output(0, re.compile(r"Stop condition met: StepCountIs(_2)? \d+ of 8"))
    expect(editor(panel)).to_contain_text("The run has ended: branch it to continue with other limits.")
    for control in editor(panel).locator("input, select, textarea, button:not(.agentlab-fold-head)").all():
        expect(control).to_be_disabled()


def test_a_leaf_turned_off_during_the_run_does_not_count(panel: LabPage) -> None:
    panel.button("Run").click()
    panel.wait_for_steps(2)
    box(panel, "Use StepCountIs").uncheck()
    panel.wait_for_output(0, "last result not met")
    soon = int(panel.kernel_value("len(run.history)")) + 2
    panel.kernel_value(f"run.limits.edit_condition('StepCountIs', steps={soon})")
    expect(panel.number("StepCountIs")).to_have_value(str(soon))
    panel.wait_for_steps(soon + 2)
    assert panel.kernel_value("run.result is None") == "True"
    panel.button("Stop").click()
    panel.wait_for_output(0, "explicit_stop")


def test_an_edit_says_when_it_takes_effect(lab: LabPage) -> None:
    """The second step lasts until the test releases it, so that the message stays visible."""
    lab.page.set_viewport_size({"width": 1280, "height": 1400})
    held = EDITED_RUN.replace("await asyncio.sleep(0.25)", 'while query != "try 1" and held:\n        await asyncio.sleep(0.02)')
    assert "and held" in held
    lab.open(lab.jupyter.write_notebook("editing", ["held = True\n" + held]))
    lab.run_cell(0)
    lab.button("Run").click()
    lab.wait_for_steps(1)
    box_of(lab, "max_calls").uncheck()
    expect(editor(lab)).to_contain_text("Takes effect at the next step.")
    lab.kernel_value("globals().update(held=False)")
    expect(editor(lab)).not_to_contain_text("Takes effect at the next step.")
    assert lab.kernel_value("run.stepper.context.in_force.budget.max_calls") == "40"


def box_of(page: LabPage, label: str) -> Locator:
    """The "no limit" box in the row of this field."""
    row = editor(page).locator(".agentlab-field-row").filter(has=page.page.get_by_label(label, exact=True)).last
    return row.get_by_role("checkbox")


def test_missing_usage_is_chosen(panel: LabPage) -> None:
    choice(panel, "missing_usage").select_option("estimate")
    panel.wait_for_kernel("run.limits.missing_usage", "'estimate'")


def test_terminating_tools_are_ticked_and_their_reminders_edited(panel: LabPage) -> None:
    expect(box(panel, "finalize")).to_be_hidden()
    panel.button("Terminating tools").click()
    expect(panel.number("consecutive_nudges")).to_be_disabled()
    box(panel, "finalize").check()
    panel.wait_for_kernel("run.limits.terminating.tools", "('finalize',)")
    expect(panel.number("consecutive_nudges")).to_be_enabled()
    panel.set_number("consecutive_nudges", 3)
    panel.set_number("max_invocations", 150)
    text(panel, "nudge_message").fill("Call finalize.")
    text(panel, "nudge_message").press("Tab")
    panel.wait_for_kernel("run.limits.nudge_message", "'Call finalize.'")
    box(panel, "search").check()
    panel.wait_for_kernel("run.limits.terminating.tools", "('search', 'finalize')")
    panel.wait_for_kernel("(run.limits.consecutive_nudges, run.limits.max_invocations)", "(3, 150)")
    panel.set_number("max_invocations", 0)
    panel.wait_for_output(0, "TerminatingTools(max_invocations=0): max_invocations must be at least 1.")
    box(panel, "search").uncheck()
    box(panel, "finalize").uncheck()
    panel.wait_for_kernel("run.limits.terminating", "None")


def test_the_caps_on_continuations_are_edited(panel: LabPage) -> None:
    panel.button("Cut answers").click()
    panel.set_number("max_continuations_per_turn", 7)
    panel.set_number("max_tool_repair_attempts", 0)
    panel.set_number("max_total_output_chars_per_turn", 5000)
    name = "max_total_completion_tokens_per_turn"
    box_of(panel, name).uncheck()
    panel.set_number(name, 2500)
    text(panel, "hint").fill("Go on.")
    text(panel, "hint").press("Tab")
    wanted = (
        "ContinuationPolicy(max_continuations_per_turn=7, max_total_completion_tokens_per_turn=2500, "
        "max_total_output_chars_per_turn=5000, max_tool_repair_attempts=0, hint='Go on.')"
    )
    panel.wait_for_kernel("repr(run.limits.continuation)", repr(wanted))
    box(panel, "4 × the first cap").check()
    panel.wait_for_kernel(f"run.limits.{name}", "None")
    text(panel, "hint").fill("  ")
    text(panel, "hint").press("Tab")
    panel.wait_for_output(0, "pass a text that tells the model what to do. Still in force: Go on..")


def test_the_whole_editor_is_reachable_by_keyboard(panel: LabPage) -> None:
    panel.number("max_turns").focus()
    reached = []
    for _ in range(60):
        panel.page.keyboard.press("Tab")
        name = panel.page.evaluate(
            "() => { const at = document.activeElement; "
            "return at.closest('.agentlab-editor') ? (at.labels?.[0]?.textContent || at.innerText || at.title) : null; }"
        )
        if name is None:
            break
        reached.append(" ".join(name.split()))
    for wanted in ("no limit", "missing_usage", "Use StepCountIs", "StepCountIs", "not StepCountIs", "Remove StepCountIs",
                   f"Condition to add to {WHOLE}", "Add", "Terminating tools", "Cut answers"):  # fmt: skip
        assert wanted in reached, reached
    panel.press("Cut answers", "Space")
    expect(panel.number("max_continuations_per_turn")).to_be_visible()


def test_a_fraction_typed_for_max_turns_is_refused_and_stays_in_the_box(panel: LabPage) -> None:
    turns = panel.number("max_turns")
    turns.fill("5.5")
    turns.press("Tab")
    message = "Budget(max_turns=5.5): max_turns is a whole number, such as 8; got float. Still in force: 2000."
    panel.wait_for_output(0, message)
    expect(turns).to_have_value("5.5")
    assert panel.kernel_value("run.limits.max_turns") == "2000"

    turns.fill("1e3")
    turns.press("Tab")
    panel.wait_for_kernel("run.limits.max_turns", "1000")
    expect(editor(panel)).not_to_contain_text("got float")
    turns.press("Control+a")
    turns.press_sequentially("abc")  # number boxes accept no letters
    turns.press("Tab")
    expect(turns).to_have_value("1000")
    assert panel.kernel_value("run.limits.max_turns") == "1000"


def test_tools_and_reasons_are_chosen_from_the_known_ones(panel: LabPage) -> None:
    tools, reasons = choice(panel, "Choose for HasToolCall"), choice(panel, "Choose for FinishReasonIs")
    assert tools.locator("option").all_inner_texts() == ["choose\xa0…", "search", "✓\xa0finalize"]
    tools.select_option("search")
    panel.wait_for_kernel("run.limits.conditions['HasToolCall'].names", "('finalize', 'search')")
    expect(text(panel, "HasToolCall")).to_have_value("finalize, search")
    expect(tools).to_have_value("choose …")
    tools.select_option("✓ finalize")
    panel.wait_for_kernel("run.limits.conditions['HasToolCall'].names", "('search',)")
    text(panel, "HasToolCall").fill("give_up")  # an unknown tool
    text(panel, "HasToolCall").press("Tab")
    panel.wait_for_kernel("run.limits.conditions['HasToolCall'].names", "('give_up',)")
    reasons.select_option("content_filtered")
    panel.wait_for_kernel("tuple(map(str, run.limits.conditions['FinishReasonIs'].reasons))", "('length', 'content_filtered')")
    panel.screenshot(PICTURES / "panel-editor-chosen.png", of=editor(panel))
