"""The panel for people who use a keyboard, a screen reader, a dark page, large letters, or no moving pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from .axe import COLOURS, faults, faults_in_both_themes
from .lab_page import LabPage
from .panels import ROW, SLOW_RUN, TRIP, open_cell
from .widget_page import LIVE


def no_faults(page: LabPage, state: str) -> None:
    """Assert that the panel has no serious fault in either theme."""
    found = faults_in_both_themes(page)
    assert not found, f"{state}:\n" + "\n".join(found)


CHARTS = "[data-section=charts] .page-charts"
HELD_RUN = "held = 2\n" + SLOW_RUN.replace(
    "    await asyncio.sleep(0.1)", "    while len(run.history) == held:\n        await asyncio.sleep(0.1)"
)
"""It stays in its third step until the test lets it go, so that it does nothing while axe looks."""


def test_axe_finds_no_serious_fault_in_any_state_of_the_run(lab: LabPage) -> None:
    open_cell(lab, "panel", HELD_RUN)
    lab.set_number("max_turns", 200)
    lab.button("Run").click()
    lab.wait_for_steps(2)
    no_faults(lab, "running")
    lab.button("Pause").click()
    lab.wait_for_kernel("run.control.pausing", "True")
    lab.kernel_value("exec('held = 0')")
    lab.wait_for_status("paused")
    lab.set_number("max_turns", -3)
    expect(lab.live.get_by_role("alert").first).to_be_visible()
    no_faults(lab, "paused, with a refused value")
    lab.set_number("max_turns", 4)
    lab.button("Resume").click()
    lab.wait_for_status("ended")
    no_faults(lab, "ended")
    lab.live.locator(CHARTS).scroll_into_view_if_needed()  # axe judges no colour of what is scrolled away
    assert not faults(lab.page, only=COLOURS)
    lab.live.get_by_role("button", name=re.compile("^Raise the turn limit")).click()
    lab.wait_for_steps(5)
    lab.button("Compare").click()
    no_faults(lab, "comparing")


def test_axe_finds_no_serious_fault_while_calls_wait(lab: LabPage) -> None:
    open_cell(lab, "trip", TRIP)
    lab.button("Run").click()
    lab.wait_for_status("waiting for approval")
    lab.button("Refuse…").click()
    lab.live.get_by_role("article", name="Step 1", exact=True).get_by_role("button", name="Branch here").click()
    expect(lab.live.locator(".page-branch-form").get_by_label("Result of look_up")).to_be_visible()
    no_faults(lab, "waiting, refusing, branching")  # one look: the last has all that the others have


def test_axe_finds_no_serious_fault_in_several_runs(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("row", [ROW]))
    lab.run_cell(0)
    expect(lab.button("Run all")).to_be_enabled()
    no_faults(lab, "several runs, idle")
    lab.live.get_by_role("group", name="All runs").get_by_role("button").first.click()
    lab.wait_for_status("ended")
    no_faults(lab, "several runs, ended")


def test_axe_sees_a_colour_that_is_too_pale_in_every_part_of_the_panel(lab: LabPage) -> None:
    """The tests above find no fault for a good reason."""
    open_cell(lab, "panel", SLOW_RUN)
    lab.button("Step").click()
    lab.wait_for_status(re.compile("^idle.*1 of"))
    expect(lab.live.get_by_text("Details of step 1")).to_be_visible()
    lab.live.evaluate("live => live.style.setProperty('--quiet', '#b8bec5')")
    found = "\n".join(faults(lab.page, only=COLOURS))
    for part in (">Tokens</span>", "Details<span", "page-limit-used"):  # in the bar, the transcript, the drawer
        assert part in found, found
    lab.live.locator(CHARTS).scroll_into_view_if_needed()
    assert ">Cost</b>" in "\n".join(faults(lab.page, only=COLOURS))


FOCUSED = """() => {
    const here = document.activeElement;
    const panel = here?.closest('.agentlab-page');
    if (!panel) return null;
    const style = getComputedStyle(here);
    return {
        name: here.ariaLabel || here.textContent.trim().slice(0, 40) || here.labels?.[0]?.textContent || here.tagName,
        place: [...panel.querySelectorAll('*')].indexOf(here),
        outlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1 || style.boxShadow !== 'none',
    };
}"""
REACHABLE = """live => {
    const all = [...document.querySelector(live).querySelectorAll('*')];
    const controls = all.filter(one => one.matches('button, input, select, textarea, summary, a[href], [tabindex="0"]'));
    return controls.filter(one => !one.disabled && one.tabIndex >= 0 && one.checkVisibility({visibilityProperty: true}))
        .map(one => [all.indexOf(one), one.ariaLabel || one.textContent.slice(0, 40) || one.tagName]);
}"""


def test_tab_reaches_every_control_in_page_order_with_visible_focus(lab: LabPage) -> None:
    open_cell(lab, "panel", SLOW_RUN)
    lab.button("Step").click()
    lab.wait_for_steps(1)
    lab.focus("Run")
    lab.page.keyboard.press("Shift+Tab")  # so that the focus comes from the keyboard
    lab.page.keyboard.press("Tab")
    reached: list[dict[str, Any]] = []
    while (focused := lab.page.evaluate(FOCUSED)) is not None and len(reached) < 300:
        reached.append(focused)
        lab.page.keyboard.press("Tab")
    places = [one["place"] for one in reached]
    assert places == sorted(places), [one["name"] for one in reached]
    missed = [name for place, name in lab.page.evaluate(REACHABLE, LIVE) if place >= places[0] and place not in places]
    assert not missed
    assert not [one["name"] for one in reached if not one["outlined"]]


def focus_is_in_the_panel(lab: LabPage) -> None:
    assert lab.page.evaluate(FOCUSED) is not None, lab.page.evaluate("document.activeElement.outerHTML.slice(0, 200)")


def test_the_whole_path_by_keyboard_alone(lab: LabPage) -> None:
    """From the first step to a branch; the focus stays in the panel whenever the state changes."""
    open_cell(lab, "panel", SLOW_RUN)
    lab.press("Step", "Space")
    lab.wait_for_steps(1)
    lab.wait_for_status(re.compile("^idle"))
    focus_is_in_the_panel(lab)
    lab.page.keyboard.press("Shift+Tab")
    lab.page.keyboard.press("Enter")  # Run
    lab.wait_for_steps(3)
    focus_is_in_the_panel(lab)
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Space")  # Pause
    lab.wait_for_status(re.compile("^paused"))
    focus_is_in_the_panel(lab)
    box = lab.number("max_turns")
    box.focus()
    box.press("ControlOrMeta+a")
    lab.page.keyboard.type("12")
    lab.page.keyboard.press("Enter")
    lab.wait_for_kernel("run.limits.max_turns", "12")
    focus_is_in_the_panel(lab)
    lab.press("Resume", "Enter")
    lab.wait_for_status(re.compile("^ended early"))
    focus_is_in_the_panel(lab)
    more = lab.live.get_by_role("button", name=re.compile("^Raise the turn limit"))
    more.focus()
    lab.page.keyboard.press("Enter")
    lab.wait_for_steps(13)
    focus_is_in_the_panel(lab)
    assert lab.kernel_value("len(run.branches)") == "1"


def test_approve_branch_compare_and_save_by_keyboard_alone(lab: LabPage, tmp_path: Path) -> None:
    """Only Tab, Shift+Tab, and keys of the focused control, from the Run button on."""
    open_cell(lab, "trip", TRIP)
    keyboard = lab.page.keyboard
    lab.press("Run", "Enter")
    lab.wait_for_status("waiting for approval")
    tab_to(lab, "Arguments of book_hotel")
    keyboard.press("ControlOrMeta+a")
    keyboard.type('{"city": "Graz", "nights": 3}')
    tab_to(lab, "Approve with these arguments")
    keyboard.press("Space")
    lab.wait_for_status(re.compile("^ended"))
    focus_is_in_the_panel(lab)
    assert lab.kernel_value("booked") == "[3]"

    tab_to(lab, "Transcript")
    keyboard.press("Home")
    keyboard.press("j")
    keyboard.press("b")
    expect(lab.live.get_by_label("Result of book_hotel")).to_be_focused()
    keyboard.press("ControlOrMeta+a")
    keyboard.type("No room.")
    tab_to(lab, "Branch")
    keyboard.press("Enter")
    expect(lab.button("Run")).to_be_focused()
    keyboard.press("Enter")
    lab.wait_for_status(re.compile("^ended"))
    focus_is_in_the_panel(lab)
    assert lab.kernel_value("run.branches[0].history[1].tool_results[0].content") == "'No room.'"

    tab_to(lab, "Compare")
    keyboard.press("Enter")
    expect(lab.live.locator(".page-differences")).to_contain_text("First differencestep 2, tool results")
    focus_is_in_the_panel(lab)
    tab_to(lab, "Compare")
    keyboard.press("Space")
    expect(lab.live.locator(".page-differences")).to_be_hidden()
    with lab.page.expect_download() as download:
        tab_to(lab, "Save as file")
        keyboard.press("Enter")
    download.value.save_as(tmp_path / "run.html")
    assert "No room." in (tmp_path / "run.html").read_text(encoding="utf-8")
    focus_is_in_the_panel(lab)


def tab_to(lab: LabPage, name: str) -> None:
    """Press Tab, or Shift+Tab if the control is before the focus, until the control of this name has the focus."""
    passed = []
    for key in ["Tab"] * 80 + ["Shift+Tab"] * 160:
        focused = lab.page.evaluate(FOCUSED)
        if focused is not None and focused["name"] == name:
            return
        passed.append(focused and focused["name"])
        lab.page.keyboard.press(key)
    raise AssertionError(f"Tab does not reach {name!r}, but {passed}")


def test_jupyterlabs_keys_do_nothing_to_the_cell_while_the_focus_is_in_the_panel(lab: LabPage) -> None:
    open_cell(lab, "panel", SLOW_RUN)
    lab.focus("Run")
    for key in ("d", "d", "x", "m", "ArrowDown", "Escape", "b"):
        lab.page.keyboard.press(key)
    assert lab.page.locator(".jp-Cell").count() == 1
    assert lab.page.locator(".jp-CodeCell").count() == 1
    focus_is_in_the_panel(lab)


ANIMATED = """live => [...document.querySelector(live).querySelectorAll('*')].filter(one => {
    const style = getComputedStyle(one);
    return style.animationName !== 'none' && parseFloat(style.animationDuration) > 0.01
        || parseFloat(style.transitionDuration) > 0.01 || style.scrollBehavior === 'smooth';
}).map(one => one.outerHTML.slice(0, 120))"""


def test_nothing_moves_for_people_who_ask_for_that(lab: LabPage) -> None:
    lab.page.emulate_media(reduced_motion="reduce")
    try:
        open_cell(lab, "panel", SLOW_RUN)
        lab.button("Run").click()
        lab.wait_for_steps(2)
        assert lab.page.evaluate(ANIMATED, LIVE) == []
    finally:
        lab.page.emulate_media(reduced_motion="no-preference")


OUTSIDE = """live => {
    const page = document.querySelector(live), edge = page.getBoundingClientRect().right + 1;
    return [...page.querySelectorAll('*')].filter(one => {
        if (!one.checkVisibility() || one.getBoundingClientRect().right <= edge) return false;
        for (let box = one.parentElement; box !== page; box = box.parentElement)
            if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(box).overflowX)
                && box.getBoundingClientRect().right <= edge) return false;
        return true;
    }).map(one => one.outerHTML.slice(0, 120));
}"""


def test_at_double_size_all_controls_can_be_used(lab: LabPage) -> None:
    """A window of 1,400 px at 200 % has 700 px for the page."""
    lab.page.set_viewport_size({"width": 700, "height": 500})
    open_cell(lab, "panel", SLOW_RUN)
    lab.button("Step").click()
    lab.wait_for_steps(1)
    assert lab.page.evaluate(OUTSIDE, LIVE) == []
    overview = lab.live.get_by_role("button", name="Overview")
    if overview.is_visible():
        overview.click()
    lab.set_number("max_turns", 9)
    lab.wait_for_kernel("run.limits.max_turns", "9")
    assert faults(lab.page) == []
