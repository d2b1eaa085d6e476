"""Browsing a run in a real JupyterLab: the table, the chart and the detail of a step, by mouse and keyboard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from .lab_page import DARK, LIGHT, LabPage
from .panels import BUSY

PICTURES = Path(__file__).parents[2] / "test-output"  # screenshots for review

RECORDED = """
from pathlib import Path
import agentlab as lab
from agentlab import Budget, HasToolCall, StepCountIs

def search_lost_property(words: str) -> str:
    "Search the railway's lost property office."
    return f"Nothing fits {words!r}."

clerk = lab.Agent("openai:gpt-5.4-mini", tools=[search_lost_property], instructions="Do not give up easily.")
with lab.replay(Path(lab.__file__).parents[1] / "fixtures" / "runaway", match="order"):
    run = clerk.run("I left a green umbrella on the train from Graz to Vienna. Please find it.",
                    stop=HasToolCall("finalize") | StepCountIs(8), budget=Budget(max_turns=20, max_tokens=40_000))
_ = await run
"""

SCRIPTED = """
import agentlab as lab
from agentlab import Budget, HasToolCall, StepCountIs
from agentlab.testing import ScriptedProvider, call

def search(query: str) -> str:
    "Search the archive."
    return '{"hits": [], "query": "%s"}' % query

def made(steps):
    def answer(request, index):
        return call("search", {"query": f"try {index}"}, tokens=(200 + 10 * index, 20), cost=0.001)
    stop = HasToolCall("finalize") | StepCountIs(steps)
    return lab.Agent(ScriptedProvider(answer), tools=[search]).run("Find it.", stop=stop, budget=Budget(max_turns=500))

run, other = made(20), made(5)
for _ in range(20):
    await run.step()
for _ in range(5):
    await other.step()
"""

WITHOUT = """
from agentlab.notebook.panel import controls
made = controls.Clicks.__init__
controls.Clicks.__init__ = lambda self: made(self, _model_module="not-installed", _view_module="not-installed")
run.panel()
"""


@pytest.fixture
def walked(lab: LabPage) -> LabPage:
    """A page with the panels of two ended runs, of 20 and of 5 steps."""
    lab.open(lab.jupyter.write_notebook("walked", [SCRIPTED, "run.panel()", "other.panel()", BUSY]))
    lab.run_cell(0)
    lab.run_cell(1)
    lab.run_cell(2)
    lab.wait_for_pointer(lab.output(1))
    lab.wait_for_pointer(lab.output(2))
    return lab


def head(page: LabPage, cell: int = 1) -> Locator:
    return page.output(cell).locator(".agentlab-detail-head")


def chosen_row(page: LabPage, cell: int = 1) -> Locator:
    return page.output(cell).locator("tr[aria-current=step]")


def click_chart(page: LabPage, cell: int, step: float, axes: int = 0, span: float = 20) -> None:
    """Click the position of this step in the picture."""
    chart = page.output(cell).locator("img.agentlab-chart")
    place = chart.evaluate("(image, axes) => JSON.parse(image.dataset.axes)[axes]", axes)
    box = chart.bounding_box()
    assert box is not None and place["to"] == span
    x = place["left"] + (place["right"] - place["left"]) * step / span
    chart.click(position={"x": x * box["width"], "y": (place["top"] + place["bottom"]) / 2 * box["height"]})


def test_a_click_in_the_table_marks_the_chart_and_shows_the_step(walked: LabPage) -> None:
    expect(walked.output(1).locator("caption")).to_have_text("steps 9 to 20 of 20 (8 earlier)")
    expect(head(walked)).to_contain_text("Step 20")
    expect(chosen_row(walked)).to_have_count(0)
    before = walked.output(1).locator("img.agentlab-chart").get_attribute("src")

    walked.output(1).locator("tr[data-step='12']").click()
    expect(head(walked)).to_contain_text("Step 12")
    expect(chosen_row(walked)).to_contain_text("▸ 12")
    chart = walked.output(1).locator("img.agentlab-chart")
    expect(chart).to_have_attribute("alt", re.compile("Step 12 is marked: 3,?"))
    assert chart.get_attribute("src") != before
    expect(walked.output(1).get_by_label("Step", exact=True)).to_have_value("12")
    expect(walked.output(1).locator(".agentlab-tool")).to_contain_text('"query": "try 12"')
    expect(head(walked, 2)).to_contain_text("Step 5")
    expect(chosen_row(walked, 2)).to_have_count(0)


def test_a_click_in_either_half_of_the_chart_marks_the_table(walked: LabPage) -> None:
    click_chart(walked, 1, 3)
    expect(chosen_row(walked)).to_contain_text("▸ 3")
    expect(head(walked)).to_contain_text("Step 3")
    click_chart(walked, 1, 17.3, axes=1)
    expect(chosen_row(walked)).to_contain_text("▸ 17")
    click_chart(walked, 2, 2, span=5)
    expect(chosen_row(walked, 2)).to_contain_text("▸ 2")
    expect(chosen_row(walked)).to_contain_text("▸ 17")


def press_enter(page: LabPage, button: str) -> None:
    """Press this button of the first panel with the keyboard, as soon as it is enabled."""
    place = page.output(1).get_by_role("button", name=button)
    expect(place).to_be_enabled()
    place.press("Enter")


def test_the_number_box_and_the_buttons_work_by_keyboard(walked: LabPage) -> None:
    panel = walked.output(1)
    box = panel.get_by_label("Step", exact=True)
    box.fill("7")
    box.press("Enter")
    expect(head(walked)).to_contain_text("Step 7")
    press_enter(walked, "◀ Earlier")
    expect(head(walked)).to_contain_text("Step 6")
    press_enter(walked, "Later ▶")
    walked.page.keyboard.press("Enter")
    expect(head(walked)).to_contain_text("Step 8")
    box.fill("21")
    box.press("Tab")
    expect(panel).to_contain_text("Step 21: choose from 1 to 20.")
    expect(head(walked)).to_contain_text("Step 8")
    panel.get_by_role("button", name="Newest").click()
    expect(head(walked)).to_contain_text("Step 20")
    expect(panel).not_to_contain_text("choose from 1 to 20")
    expect(box).to_have_value("")
    expect(panel.get_by_role("button", name="Newest")).to_have_attribute("title", "The newest step is shown already.")


def test_open_sections_stay_open_from_step_to_step(walked: LabPage) -> None:
    panel = walked.output(1)
    readings = panel.locator("details[data-section=readings]")
    tools = panel.locator("details[data-section=tools]")
    readings.locator("summary").focus()
    walked.page.keyboard.press("Enter")
    expect(readings).to_have_attribute("open", "")
    expect(readings).to_contain_text("StepCountIs: 20 of 20 — met ◀ decided")
    tools.locator("summary").click()
    expect(tools).not_to_have_attribute("open", "")
    walked.page.wait_for_timeout(300)
    panel.locator("tr[data-step='12']").click()
    expect(head(walked)).to_contain_text("Step 12")
    expect(readings).to_have_attribute("open", "")
    expect(readings).to_contain_text("StepCountIs: 12 of 20 — not met")
    expect(tools).not_to_have_attribute("open", "")


def test_clicks_while_the_kernel_is_busy_are_handled_afterwards(walked: LabPage) -> None:
    walked.run_cell(3, wait=False)
    walked.wait_until_busy()
    for step in (10, 11, 12):
        walked.output(1).locator(f"tr[data-step='{step}']").click()
    (walked.jupyter.root / "enough").touch()
    expect(head(walked)).to_contain_text("Step 12")
    walked.output(1).locator("tr[data-step='13']").click()
    expect(head(walked)).to_contain_text("Step 13")


@pytest.mark.own_page
def test_clicks_work_after_a_reload(walked: LabPage) -> None:
    walked.output(1).locator("tr[data-step='12']").click()
    expect(head(walked)).to_contain_text("Step 12")
    walked.save()
    walked.reload()
    walked.wait_for_pointer(walked.output(1))
    expect(head(walked)).to_contain_text("Step 12")
    walked.output(1).locator("tr[data-step='14']").click()
    expect(head(walked)).to_contain_text("Step 14")
    walked.wait_for_pointer(walked.output(2))
    click_chart(walked, 2, 2, span=5)
    expect(chosen_row(walked, 2)).to_contain_text("▸ 2")
    expect(chosen_row(walked)).to_contain_text("▸ 14")


@pytest.mark.own_page
def test_without_anywidget_only_clicking_is_missing(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("without", [SCRIPTED, WITHOUT]))
    lab.run_cell(0)
    lab.run_cell(1)
    panel = lab.output(1)
    panel.get_by_label("Step", exact=True).fill("7")
    lab.page.keyboard.press("Enter")
    expect(head(lab)).to_contain_text("Step 7")
    expect(panel.locator(".agentlab-pointer")).to_have_count(0)
    assert panel.locator("tr[data-step='8']").evaluate("row => getComputedStyle(row).cursor") != "pointer"
    expect(panel.get_by_text("rror").filter(visible=True)).to_have_count(0)
    panel.locator("summary").first.click()


def test_screenshots_of_a_recorded_step_in_both_themes(lab: LabPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 2000})
    lab.open(lab.jupyter.write_notebook("recorded", [RECORDED, "run.panel()"]))
    lab.run_cell(0)
    lab.run_cell(1)
    lab.wait_for_pointer(lab.output(1))
    click_chart(lab, 1, 4, span=8)
    expect(head(lab)).to_contain_text("Step 4")
    for name in ("calls", "signal", "decision", "readings", "limits", "raw"):
        lab.output(1).locator(f"details[data-section={name}] > summary").click()
    expect(lab.output(1).locator("details[data-section=raw]")).to_contain_text('"finish_reason": "tool_calls"')
    lab.screenshot(PICTURES / "panel-step.png", of=lab.output(1))
    lab.use_theme(DARK)
    lab.screenshot(PICTURES / "panel-step-dark.png", of=lab.output(1))
    lab.use_theme(LIGHT)
