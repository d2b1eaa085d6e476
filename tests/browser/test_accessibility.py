"""The panel for people who use a keyboard, a screen reader, or a dark page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from .axe import faults
from .lab_page import DARK, LIGHT, LabPage
from .panels import ROW, SLOW_RUN
from .widget_page import LIVE

TABS = {"Steps": ".agentlab-steps, :text('No steps yet')", "Timeline": "img[alt^='Timeline']", "Branches": ".agentlab-family"}
"""The tabs of the panel, and the content that the kernel adds when one is shown."""


def tab(page: LabPage, name: str) -> None:
    """Show this tab of the panel and wait until it is drawn."""
    page.page.get_by_role("tab", name=name, exact=True).click()
    expect(page.page.locator(LIVE).locator(TABS[name]).locator("visible=true").first).to_be_visible()


def no_faults(page: LabPage, state: str) -> None:
    """Assert that the panel has no serious fault and that every picture has a description."""
    found = faults(page.page)
    assert not found, f"{state}:\n" + "\n".join(found)
    nameless = "pictures => pictures.filter(picture => !picture.alt.trim()).length"
    assert page.page.locator(f"{LIVE} img").evaluate_all(nameless) == 0, f"{state}: a picture without a text"


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_axe_finds_no_serious_fault_in_any_state_of_the_run(lab: LabPage, theme: str) -> None:
    lab.open(lab.jupyter.write_notebook("panel", [SLOW_RUN]))
    lab.use_theme(theme)
    lab.run_cell(0)
    expect(lab.button("Run")).to_be_enabled()
    no_faults(lab, "idle")
    lab.set_number("max_turns", -3)
    lab.wait_for_output(0, "Still in force")
    no_faults(lab, "a refused value")
    lab.set_number("max_turns", 200)
    lab.button("Run").click()
    lab.wait_for_steps(2)
    no_faults(lab, "running")
    lab.set_number("max_turns", 4)
    lab.wait_for_output(0, "turn_limit")
    expect(lab.output(0)).to_contain_text("The run has ended: branch it")
    for name in TABS:
        tab(lab, name)
        no_faults(lab, f"ended, {name}")


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_axe_finds_no_serious_fault_in_runs_side_by_side(lab: LabPage, theme: str) -> None:
    lab.open(lab.jupyter.write_notebook("row", [ROW]))
    lab.use_theme(theme)
    lab.run_cell(0)
    expect(lab.button("Run all")).to_be_enabled()
    no_faults(lab, "side by side, idle")
    lab.button("Run all").click()
    lab.wait_for_output(0, "2 of 2 ended")
    expect(lab.page.locator(f"{LIVE} img").first).to_be_visible()
    no_faults(lab, "side by side, ended")


FOCUSED = """() => {
    const here = document.activeElement;
    const panel = here?.closest('.agentlab-panel.jupyter-widgets');
    if (!panel) return null;
    const style = getComputedStyle(here);
    const all = [...panel.querySelectorAll('*')];
    const box = here.getBoundingClientRect();
    return {
        name: here.ariaLabel || here.textContent.trim().slice(0, 40) || here.labels?.[0]?.textContent || here.tagName,
        place: all.indexOf(here),
        top: box.top + window.scrollY, width: box.width,
        outlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1 || style.boxShadow !== 'none',
    };
}"""
REACHABLE = """() => {
    const all = [...document.querySelector('.agentlab-panel.jupyter-widgets').querySelectorAll('*')];
    const controls = all.filter(one => one.matches('button, input, select, textarea, summary, a[href], [tabindex="0"]'));
    return controls.filter(one => !one.disabled && one.tabIndex >= 0 && one.checkVisibility({visibilityProperty: true}))
        .map(one => all.indexOf(one));
}"""


def test_tab_reaches_every_control_in_page_order_with_visible_focus(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("panel", [SLOW_RUN]))
    lab.run_cell(0)
    expect(lab.button("Run")).to_be_enabled()
    for name in TABS:
        tab(lab, name)
        lab.focus("Run")
        lab.page.keyboard.press("Shift+Tab")  # so that the focus comes from the keyboard
        lab.page.keyboard.press("Tab")
        reached = []
        while (focused := lab.page.evaluate(FOCUSED)) is not None and len(reached) < 300:
            reached.append(focused)
            lab.page.keyboard.press("Tab")
        places = [one["place"] for one in reached]
        assert places == sorted(places), f"{name}: {[one['name'] for one in reached]}"
        wanted = {place for place in lab.page.evaluate(REACHABLE) if place >= places[0]}
        assert wanted <= set(places), f"{name}: {len(wanted - set(places))} controls are not reached"
        assert not [one["name"] for one in reached if not one["outlined"]], name


def test_run_step_pause_and_stop_by_keyboard_alone(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("panel", [SLOW_RUN]))
    lab.run_cell(0)
    lab.press("Step", "Space")
    lab.wait_for_status(re.compile(r"^ready.*step 1\b"))
    lab.press("Run", "Enter")
    lab.wait_for_steps(3)
    lab.press("Pause", "Space")
    lab.wait_for_status(re.compile("^paused"))
    lab.press("Resume", "Enter")
    lab.wait_for_status(re.compile("^running"))
    lab.press("Stop", "Enter")
    lab.wait_for_output(0, "explicit_stop — Stopped by the person: the Stop button")
