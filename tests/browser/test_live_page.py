"""The connection of the live page in a real JupyterLab: reloads, several views, restarts, busy kernels, and faults."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .lab_page import NOTEBOOK, LabPage
from .panels import SLOW_RUN
from .widget_page import LIVE

VIEWS = f"{LIVE} >> visible=true"


@pytest.fixture
def panel(lab: LabPage) -> LabPage:
    """A page with the panel of a run of up to 2,000 slow steps, not yet started."""
    lab.open(lab.jupyter.write_notebook("live", [SLOW_RUN, "await run\nprint('over')"]))
    lab.run_cell(0)
    expect(lab.button("Run")).to_be_enabled()
    return lab


def test_a_reloaded_page_shows_the_run_and_controls_it(panel: LabPage) -> None:
    panel.button("Run").click()
    panel.wait_for_steps(5)
    panel.save()
    panel.reload()
    panel.wait_for_steps(8)
    expect(panel.live).to_have_count(1)
    panel.button("Pause").click()
    panel.wait_for_status("paused")
    steps = int(panel.kernel_value("len(run.history)"))
    expect(panel.live.get_by_role("article", name=f"Step {steps}", exact=True)).to_contain_text(f"try {steps}")
    panel.button("Stop").click()
    panel.wait_for_output(0, "explicit stop")


def test_two_views_of_one_panel_show_the_same_and_each_gets_its_answers(panel: LabPage) -> None:
    panel.button("Step").click()
    panel.wait_for_steps(1)
    panel.page.evaluate(f"() => {{ {NOTEBOOK} return app.commands.execute('notebook:create-output-view'); }}")
    views = panel.page.locator(VIEWS)
    expect(views).to_have_count(2)
    for view in (views.nth(0), views.nth(1)):
        expect(view.get_by_role("article", name="Step 1", exact=True)).to_contain_text("try 1")
    views.nth(1).get_by_role("button", name="Step", exact=True).click()
    for view in (views.nth(0), views.nth(1)):
        expect(view.get_by_role("article", name="Step 2", exact=True)).to_contain_text("try 2")
        view.get_by_role("article", name="Step 1", exact=True).locator("details.page-more summary").first.click()
        expect(view.locator("[data-section=calls]").first).to_be_visible()


def test_a_panel_that_is_gone_leaves_nothing_behind(panel: LabPage) -> None:
    assert panel.kernel_value("run.control.attended") == "True"
    panel.page.evaluate(f"() => {{ {NOTEBOOK} return app.commands.execute('notebook:clear-cell-output'); }}")
    expect(panel.page.locator(VIEWS)).to_have_count(0)
    panel.wait_for_kernel("run.control.attended", "False")


def test_the_panel_is_live_while_a_cell_awaits_the_run(panel: LabPage) -> None:
    panel.run_cell(1, wait=False)
    panel.wait_for_steps(4)
    panel.button("Pause").click()  # the transcript stands still, while the cell goes on waiting
    panel.wait_for_status("paused")
    panel.live.locator("article details.page-more summary").last.click()
    expect(panel.live.locator("[data-section=calls]").first).to_be_visible()
    panel.button("Stop").click()
    panel.wait_for_output(1, "over")


def test_after_a_restart_of_the_kernel_the_page_says_that_it_is_cut_off_and_the_cell_makes_a_live_one(panel: LabPage) -> None:
    panel.button("Step").click()
    panel.wait_for_steps(1)
    panel.button("Run").click()
    panel.wait_for_steps(2)
    panel.restart_kernel()
    words = "The kernel was restarted or has ended: nothing can be changed here any more"
    gone = panel.live.get_by_role("alert")
    expect(gone).to_contain_text(words)
    expect(panel.live.get_by_role("article", name="Step 1", exact=True)).to_be_visible()
    panel.button("Stop").click()
    panel.set_number("max_turns", 7)
    for place in (".page-refused", ".page-fault"):
        expect(panel.live.locator(place).filter(has_text=words)).to_be_visible()
    panel.run_cell(0)
    expect(panel.button("Run")).to_be_enabled()
    expect(gone).to_have_count(0)
    panel.button("Step").click()
    panel.wait_for_steps(1)


def test_an_error_while_drawing_is_shown_and_what_is_new_comes_afterwards(panel: LabPage) -> None:
    panel.kernel_value(
        "exec('from agentlab.notebook.panel import feed; kept = feed.live_data; feed.live_data = lambda run: 1 / 0')"
    )
    panel.button("Step").click()
    expect(panel.live.get_by_role("alert")).to_contain_text("could not be drawn: ZeroDivisionError")
    panel.kernel_value("exec('feed.live_data = kept')")
    panel.button("Step").click()
    expect(panel.live.get_by_role("article", name="Step 2", exact=True)).to_contain_text("try 2")
    expect(panel.live.get_by_role("article", name="Step 1", exact=True)).to_contain_text("try 1")
