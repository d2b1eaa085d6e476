"""Failures and repeated actions: the user gets a correct message, and nothing hangs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from .lab_page import LabPage
from .panels import SLOW_RUN
from .widget_page import LIVE

THREADS = "sum(thread.name == 'agentlab-panel' for thread in __import__('threading').enumerate())"


@pytest.fixture
def notebook(lab: LabPage) -> LabPage:
    """A page with a panel in its first cell and a second panel of the same run in another cell."""
    lab.open(lab.jupyter.write_notebook("panel", [SLOW_RUN, "run.panel()", "result = await run"]))
    lab.run_cell(0)
    lab.wait_until_enabled("Run")
    return lab


def in_output(page: LabPage, index: int, button: str) -> Locator:
    """The button with this text below the cell at this index."""
    return page.output(index).get_by_role("button", name=button, exact=True)


def wait_for_no_threads(page: LabPage) -> None:
    """Wait until no panel has a running thread."""
    for _ in range(600):
        if page.kernel_value(THREADS) == "0":
            return
        page.page.wait_for_timeout(100)
    pytest.fail(f"{page.kernel_value(THREADS)} threads of panels are left")


def test_two_panels_of_one_run_agree_and_both_work(notebook: LabPage) -> None:
    notebook.run_cell(1)
    in_output(notebook, 0, "Run").click()
    notebook.wait_until_enabled("Pause", notebook.output(1))
    in_output(notebook, 1, "Pause").click()
    for place in (0, 1):
        notebook.wait_until_enabled("Resume", notebook.output(place))
        expect(notebook.output(place).locator(".page-bar")).to_contain_text(re.compile("^paused"))
        steps = notebook.output(place).get_by_role(
            "article", name=re.compile(r"^Step \d+$")
        )  # the first ones may be out of sight
        expect(steps.last).to_contain_text("try")
    turns = notebook.number("max_turns")
    turns.nth(1).fill("77")
    turns.nth(1).press("Tab")
    expect(turns.nth(0)).to_have_value("77")
    in_output(notebook, 0, "Stop").click()
    for place in (0, 1):
        notebook.wait_for_output(place, "Stopped by the person: the Stop button")
    wait_for_no_threads(notebook)


def test_a_cell_run_again_shows_a_new_panel_of_the_running_run(notebook: LabPage) -> None:
    in_output(notebook, 0, "Run").click()
    notebook.wait_for_steps(2)
    for _ in range(3):
        notebook.run_cell(1)
        expect(notebook.output(1).locator(LIVE)).to_have_count(1)
    assert notebook.kernel_value("str(run.state)") == "'running'"
    notebook.wait_until_enabled("Stop", notebook.output(1))
    in_output(notebook, 1, "Stop").click()
    for place in (0, 1):
        notebook.wait_for_output(place, "explicit stop")
    wait_for_no_threads(notebook)


def test_a_run_made_again_leaves_the_old_one_running_and_shows_only_the_new_one(notebook: LabPage) -> None:
    notebook.kernel_value("globals().update(old=run)")
    in_output(notebook, 0, "Run").click()
    notebook.wait_for_steps(2)
    notebook.run_cell(0)
    notebook.wait_until_enabled("Run", notebook.output(0))
    expect(notebook.output(0).locator(LIVE)).to_have_count(1)
    assert notebook.kernel_value("str(old.state), str(run.state), len(run.history)") == "('running', 'ready', 0)"
    notebook.kernel_value("old.cancel()")
    wait_for_no_threads(notebook)


ENDLESS_STEP = SLOW_RUN.replace("asyncio.sleep(0.1)", "asyncio.sleep(3600)")


@pytest.mark.parametrize("awaited", [False, True], ids=["in the background", "awaited by a cell"])
def test_the_interrupt_button_during_a_step_ends_the_run_and_the_panel_reports_it(lab: LabPage, awaited: bool) -> None:
    lab.open(lab.jupyter.write_notebook("endless", [ENDLESS_STEP, "result = await run", "print('the kernel', 'answers')"]))
    lab.run_cell(0)
    lab.wait_until_enabled("Run")
    if awaited:
        lab.run_cell(1, wait=False)
    else:
        lab.button("Run").click()
    lab.wait_for_status(re.compile("^running"))
    lab.wait_for_output(0, "search")  # the model has answered and the tool is running
    lab.interrupt()
    lab.wait_for_output(0, re.compile(r"cancelled"))
    expect(lab.button("Run")).to_be_disabled()
    expect(lab.button("Run")).to_have_attribute("title", "The run has ended.")
    lab.wait_until_ready()  # a cell sent before the interrupted one ends would be dropped
    lab.run_cell(2)
    lab.wait_for_output(2, "the kernel answers")
    assert lab.kernel_value("str(run.result.stop_reason)") == "'cancelled'"


def test_a_controls_error_stays_under_the_panel_until_the_next_success(notebook: LabPage) -> None:
    notebook.run_cell(1)
    notebook.kernel_value("setattr(run.worker, 'launch_step', lambda: 1 / 0)")
    in_output(notebook, 0, "Step").click()
    expect(notebook.output(0).get_by_role("alert")).to_contain_text("ZeroDivisionError: division by zero")
    expect(notebook.output(1).get_by_role("alert")).to_have_count(0)
    in_output(notebook, 0, "Stop").click()
    notebook.wait_for_output(0, "explicit stop")
    expect(notebook.output(0).get_by_role("alert")).to_have_count(0)


def test_without_its_kernel_a_saved_notebook_shows_the_copy(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("kept", [SLOW_RUN]))
    lab.run_cell(0)
    lab.button("Step").click()
    lab.wait_for_steps(1)
    lab.button("Stop").click()
    lab.wait_for_output(0, "explicit stop")
    lab.wait_for_saved(0, "explicit stop")
    lab.restart_kernel()
    lab.reload()
    expect(lab.live).to_have_count(0)
    expect(lab.output(0).locator(".agentlab-kept")).to_contain_text("explicit stop")
    expect(lab.output(0).locator(".agentlab-kept")).to_be_visible()
