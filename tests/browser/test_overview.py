"""The page of a live run in a real JupyterLab: one screen in every state and width, where nothing jumps."""

from __future__ import annotations

import re
from collections.abc import Iterator

from playwright.sync_api import expect

from .lab_page import DARK, LIGHT, LabPage
from .panels import ROW, SLOW_RUN, TRIP, open_cell

FIXED = """() => {
    const page = document.querySelector('.agentlab-page').getBoundingClientRect();
    return ['.page-bar', '.page-badge', '.page-tools .page-controls', '.page-search', '.page-main', '.page-drawer'].map(name => {
        const part = document.querySelector('.agentlab-page ' + name);
        const box = part.getBoundingClientRect();
        return part.checkVisibility() && [name, box.x - page.x, box.y - page.y, name.includes('controls') && box.width];
    });
}"""
"""Where the parts begin, in the page."""

STICKS_OUT = """() => {
    const page = document.querySelector('.agentlab-page').getBoundingClientRect();
    return [...document.querySelectorAll('.page-bar *, .page-tools *, .page-chat *, .page-approvals *')]
        .filter(one => one.checkVisibility() && !one.closest('svg, .page-names')
            && one.getBoundingClientRect().right > page.right + 1)
        .map(one => one.outerHTML.slice(0, 120));
}"""


def height(page: LabPage) -> float:
    box = page.live.bounding_box()
    assert box is not None
    return box["height"]


HIGHEST = {1440: 700, 900: 860, 1900: 700}
"""The most pixels that the page may be high, by the width of the window."""


def at_each_width(lab: LabPage) -> Iterator[int]:
    """Each width, once the window has it."""
    for width in HIGHEST:
        lab.page.set_viewport_size({"width": width, "height": 900})
        lab.page.evaluate("() => new Promise(requestAnimationFrame)")
        yield width


def test_every_state_is_on_one_screen_and_nothing_jumps(lab: LabPage) -> None:
    open_cell(lab, "states", TRIP.replace("sleep(1)", "sleep(8)"))
    low, before = {}, {}
    for width in at_each_width(lab):
        low[width], before[width] = height(lab), lab.page.evaluate(FIXED)
    for press, state in (("Run", "running"), ("Pause", "running, pauses after this step"), ("", "paused"), ("Resume", "waiting")):
        if press:
            lab.button(press).click()
        for width in at_each_width(lab):
            lab.wait_for_status(re.compile(f"^{state}"))
            lab.picture(f"page-{width}-{state.replace(', ', '-').replace(' ', '-')}", of=lab.live)
            assert lab.page.evaluate(FIXED) == before[width], (width, state)
            assert low[width] <= height(lab) <= HIGHEST[width] and lab.page.evaluate(STICKS_OUT) == [], (width, state)
    for _ in at_each_width(lab):
        lab.live.evaluate("page => page.scrollIntoView({ block: 'end' })")
        expect(lab.button("Approve")).to_be_in_viewport()
    lab.button("Approve").click()
    lab.wait_for_status(re.compile("^ended"))
    lab.use_theme(DARK)
    for width in at_each_width(lab):
        assert height(lab) <= HIGHEST[width]
        lab.picture(f"page-{width}-ended-dark", of=lab.live)
    lab.use_theme(LIGHT)


def test_the_drawer_is_beside_where_there_is_room_and_folds_otherwise(lab: LabPage) -> None:
    open_cell(lab, "widths", SLOW_RUN)
    drawer, end = lab.live.locator(".page-drawer"), lab.live.locator("[data-section=limits]")
    expect(drawer).to_be_visible()
    lab.page.set_viewport_size({"width": 900, "height": 900})
    expect(drawer).to_be_hidden()
    lab.button("Overview").click()
    expect(end).to_be_visible()
    lab.button("Transcript").click()
    lab.page.set_viewport_size({"width": 1900, "height": 900})
    expect(drawer).to_be_visible()
    page, main = lab.live.bounding_box(), lab.live.locator(".page-main").bounding_box()
    assert page is not None and main is not None
    assert main["width"] < 0.6 * page["width"], "the drawer has two columns: nothing is empty"


WHOLE = """() => {
    const within = document.querySelector('.agentlab-page .page-drawer').getBoundingClientRect();
    const rows = [...document.querySelectorAll('.agentlab-page [data-section=limits] .page-limit')];
    const boxes = rows.map(row => row.getBoundingClientRect());
    return rows.length > 3 && boxes.every(box => box.height && box.top >= within.top && box.bottom <= within.bottom);
}"""
"""True if all limits and conditions can be seen without scrolling."""


def test_budget_and_stop_condition_are_whole_without_scrolling(lab: LabPage) -> None:
    stop = 'lab.FinishReasonIs("end_turn") & StepCountIs(3) | lab.MaxTokensUsed(9_000_000) | StepCountIs(1_000)'
    cell = SLOW_RUN.replace('HasToolCall("finalize") | StepCountIs(2_000)', stop).replace("max_turns", "max_cost=9, max_turns")
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    open_cell(lab, "whole", cell)
    lab.button("Run").click()
    lab.wait_for_steps(6)
    for state in ("running", "ended"):
        lab.wait_for_status(re.compile(f"^{state}"))
        for width in (1440, 1900):
            lab.page.set_viewport_size({"width": width, "height": 900})
            expect(lab.live).to_have_css("height", "700px")
            assert lab.page.evaluate(WHOLE), (state, width)
        if state == "running":
            lab.page.set_viewport_size({"width": 900, "height": 900})
            lab.button("Overview").click()
            assert lab.page.evaluate(WHOLE), "one tab away"
            lab.button("Transcript").click()
            lab.kernel_value("run.limits.edit(max_turns=len(run.history) + 1)")


def test_a_short_conversation_has_a_low_page_which_grows_once(lab: LabPage) -> None:
    open_cell(lab, "short", SLOW_RUN)
    low = height(lab)
    assert low < 600
    lab.button("Step").click()
    lab.wait_for_steps(1)
    lab.page.wait_for_timeout(300)
    assert height(lab) == low
    lab.button("Run").click()
    lab.wait_for_steps(6)
    assert height(lab) == 700


def test_the_bar_has_what_is_used_and_the_meters_fill(lab: LabPage) -> None:
    open_cell(lab, "used", SLOW_RUN.replace("max_turns=2_000", "max_turns=10"))
    meter = lab.status.get_by_role("meter", name="Steps")
    expect(meter).to_have_attribute("aria-valuetext", "0 of 10")
    lab.button("Step").click()
    expect(meter).to_have_attribute("aria-valuetext", "1 of 10")
    lab.wait_for_status(re.compile("^idle"))
    lab.button("Run").click()
    expect(meter).to_have_attribute("aria-valuetext", "10 of 10, reached")
    width = meter.locator(".page-fill").evaluate("fill => fill.offsetWidth / fill.parentElement.clientWidth")
    assert width == 1
    expect(lab.status).to_contain_text("scripted:script")


def test_several_runs_are_run_together(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("row", [ROW]))
    lab.run_cell(0)
    together = lab.live.locator(".page-all")
    expect(together).to_contain_text("round 0 · 0 of 2 ended")
    lab.button("Step all").click()
    expect(together).to_contain_text("round 1")
    assert lab.kernel_value("[len(run.history) for run in runs]") == "[1, 1]"
    lab.button("Run all").click()
    expect(together).to_contain_text("2 of 2 ended")
    expect(lab.button("Run all")).to_have_attribute("title", "All runs have ended.")
    lab.picture("page-row-ended", of=lab.live)


LONG_NAMES = """
import agentlab as lab
from agentlab.testing import ScriptedProvider

hostile = "<img src=x onerror='window.owned = 1'>\\u202e\\x1b[31m" + "very-long-name" * 30
run = lab.Agent(ScriptedProvider(["x"], name=hostile, model="m"), name=hostile).run("go", stop=lab.HasToolCall(hostile))
run.panel()
"""


def test_long_and_hostile_names_stay_in_their_place(lab: LabPage) -> None:
    open_cell(lab, "names", LONG_NAMES)
    expect(lab.status).to_contain_text("<img src=x onerror")
    too_wide = "() => { const p = document.querySelector('.page-frame'); return p.scrollWidth - p.clientWidth }"
    for width in at_each_width(lab):
        assert lab.page.evaluate(too_wide) <= 1
        assert lab.page.evaluate(STICKS_OUT) == []
        assert lab.page.evaluate("window.owned === undefined")
        lab.picture(f"page-{width}-long-names", of=lab.live)
