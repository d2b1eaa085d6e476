"""The explorer in JupyterLab: a slider is moved with the keyboard and the mouse, figures follow, and the code is copied."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from .axe import faults_in_both_themes
from .lab_page import LabPage
from .panels import EXPLORER
from .widget_page import VIEW


def opened(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("explore", [EXPLORER]))
    lab.run_cell(0)
    steps = lab.page.get_by_role("slider", name="Steps, slider")
    expect(steps).to_have_attribute("aria-valuetext", "Steps 10")
    lab.wait_for_output(0, "40 runs, as recorded")
    lab.wait_for_output(0, "stop=StepCountIs(10)")
    sliders = lab.output(0).get_by_role("slider")
    assert [slider.get_attribute("aria-label") for slider in sliders.all()] == ["Steps, slider", "Tokens, slider", "Cost, slider"]
    lab.wait_for_output(0, "Time: replayed, or under a second in all of these runs.")
    steps.press("ArrowLeft")
    expect(lab.number("Steps")).to_have_value("9")


def test_figures_follow_the_slider_the_number_and_the_code_which_is_copied_and_axe_finds_nothing(lab: LabPage) -> None:
    opened(lab)
    steps = lab.page.get_by_role("slider", name="Steps, slider")
    picture = lab.page.locator(f"{VIEW} img")
    before = picture.get_attribute("src")
    steps.focus()
    for _ in range(3):
        steps.press("ArrowLeft")
    expect(lab.number("Steps")).to_have_value("6")
    lab.wait_for_output(0, re.compile(r"stop=StepCountIs\(6\)"))
    rate = float(lab.kernel_value("float(lab.backtest(runs, explorer.stop)['success_rate'].iloc[0])"))
    assert 0 < rate < 1
    lab.wait_for_output(0, f"{rate:.0%} reached the goal")
    expect(picture).not_to_have_attribute("src", before or "")
    assert lab.kernel_value("explorer.stop") == "StepCountIs(steps=6)"

    box = steps.bounding_box()
    assert box is not None
    lab.page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 2)
    lab.page.mouse.down()
    expect(lab.number("Steps")).to_have_value("1")
    lab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=8)
    lab.page.mouse.up()
    expect(lab.number("Steps")).to_have_value(re.compile("^[56]$"))

    lab.set_number("Steps", 6)
    cost = lab.page.get_by_role("slider", name="Cost, slider")
    expect(cost).to_have_attribute("aria-valuetext", "Cost: no limit")
    cost.press("Home")
    expect(lab.number("Cost (USD)")).to_be_enabled()
    lab.set_number("Cost (USD)", 0.0035)
    lab.wait_for_output(0, "stop=StepCountIs(6) | MaxCost(0.0035)")
    lab.kernel_value("explorer.limits.update(StepCountIs=None)")
    lab.wait_for_output(0, re.compile(r"run\(…\)\s*stop=MaxCost\(0\.0035\)"))
    expect(steps).to_have_attribute("aria-valuetext", "Steps: no limit")
    lab.page.get_by_label("search", exact=True).check()
    lab.wait_for_output(0, "stop=MaxCost(0.0035) | HasToolCall('search')")
    lab.wait_for_saved(0, "HasToolCall(&#x27;search&#x27;)")
    lab.page.get_by_role("button", name="As recorded").click()
    lab.wait_for_output(0, "40 runs, as recorded")
    expect(lab.page.get_by_label("search", exact=True)).not_to_be_checked()
    the_code_is_copied(lab)
    axe_finds_no_serious_fault(lab)


def the_code_is_copied(lab: LabPage) -> None:
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    lab.set_number("Steps", 4)
    lab.wait_for_output(0, "stop=StepCountIs(4)")
    lab.page.get_by_role("button", name="Copy as code").click()
    lab.wait_for_output(0, "Copied.")
    assert lab.page.evaluate("navigator.clipboard.readText()") == "stop=StepCountIs(4)"


def axe_finds_no_serious_fault(lab: LabPage) -> None:
    lab.set_number("Steps", 6)
    lab.wait_for_output(0, "stop=StepCountIs(6)")
    assert not faults_in_both_themes(lab, VIEW)
    lab.set_number("Steps", -3)
    lab.wait_for_output(0, "Still in force")
    assert not faults_in_both_themes(lab, VIEW)
    nameless = "pictures => pictures.filter(picture => !picture.alt.trim()).length"
    assert lab.page.locator(f"{VIEW} img").evaluate_all(nameless) == 0


def test_the_arrow_keys_move_the_slider_in_notebook_7(notebook_page: LabPage) -> None:
    opened(notebook_page)
    steps = notebook_page.page.get_by_role("slider", name="Steps, slider")
    steps.press("ArrowLeft")
    steps.press("ArrowDown")
    notebook_page.wait_for_output(0, "stop=StepCountIs(7)")
    expect(notebook_page.number("Steps")).to_have_value("7")
