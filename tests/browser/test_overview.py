"""The overview in a real JupyterLab: what remains of each limit, and how each button describes itself."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from .lab_page import LabPage
from .panels import SLOW_RUN

PICTURES = Path(__file__).parents[2] / "test-output"  # screenshots for review


def open_panel(page: LabPage, name: str, cell: str = SLOW_RUN) -> None:
    page.page.set_viewport_size({"width": 1280, "height": 1500})
    page.open(page.jupyter.write_notebook(name, [cell]))
    page.run_cell(0)
    expect(page.button("Run")).to_be_enabled()


def test_remaining_amounts_fall_and_bars_fill(lab: LabPage) -> None:
    open_panel(lab, "left", SLOW_RUN.replace("max_turns=2_000", "max_turns=10"))
    bar = lab.output(0).get_by_role("meter", name="max_turns")
    expect(bar).to_have_attribute("aria-valuetext", "0 of 10; 10 left")
    lab.button("Step").click()
    expect(bar).to_have_attribute("aria-valuetext", "1 of 10; 9 left")
    expect(lab.output(0)).to_contain_text("9 left")
    lab.wait_for_status(re.compile(r"^ready.*step 1\b"))
    lab.button("Run").click()
    lab.wait_for_output(0, "10 of 10 — reached")
    expect(lab.output(0)).to_contain_text("none left")
    expect(bar).to_have_attribute("aria-valuetext", re.compile("^10 of 10"))
    width = bar.locator(".agentlab-fill").evaluate("fill => fill.offsetWidth / fill.parentElement.clientWidth")
    assert width == 1
    expect(lab.output(0)).to_contain_text("scripted:script")


def test_each_button_says_what_it_does_or_why_it_is_disabled(lab: LabPage) -> None:
    open_panel(lab, "tooltips")
    expect(lab.button("Pause")).to_have_attribute("title", "Nothing is running.")
    expect(lab.button("Pause")).to_be_disabled()
    lab.focus("Run")
    for name in ("Step", "Stop"):  # disabled buttons are skipped
        lab.page.keyboard.press("Tab")
        expect(lab.button(name)).to_be_focused()
    outline = lab.button("Stop").evaluate("button => getComputedStyle(button).outlineStyle")
    assert outline == "solid", "the focus is visible"
    lab.press("Run", "Enter")
    lab.wait_for_steps(2)
    expect(lab.button("Run")).to_have_attribute("title", "The run is under way.")
    lab.button("Stop").click()
    expect(lab.button("Run")).to_have_attribute("title", "The run has ended.")


LONG_NAMES = """
import agentlab as lab
from agentlab.testing import ScriptedProvider

hostile = "<img src=x onerror='window.owned = 1'>\\u202e\\x1b[31m" + "very-long-name" * 30
run = lab.Agent(ScriptedProvider(["x"], name=hostile, model="m")).run("go", stop=lab.HasToolCall(hostile))
run.panel()
"""


def test_long_and_hostile_names_stay_in_their_place(lab: LabPage) -> None:
    open_panel(lab, "names", LONG_NAMES)
    lab.wait_for_output(0, re.compile("<img src=x onerror"))
    too_wide = """() => {
        const panel = document.querySelector('.agentlab-panel.widget-box');
        return panel.scrollWidth - panel.clientWidth;
    }"""
    assert lab.page.evaluate(too_wide) <= 1
    assert lab.page.evaluate("window.owned === undefined")
    lab.screenshot(PICTURES / "panel-long-names.png", of=lab.output(0))
