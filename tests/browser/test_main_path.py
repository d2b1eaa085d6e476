"""The main path in each front end besides JupyterLab: run, change a limit, approve, branch, compare, save as a file, continue."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from .lab_page import LabPage
from .marimo_page import MarimoPage
from .panels import TRIP
from .voila_page import VoilaPage
from .widget_page import WidgetPage


@pytest.fixture(params=["notebook_page", "voila_page", "marimo_page", "marimo_app"])
def page(request: pytest.FixtureRequest) -> WidgetPage:
    """A page with the panel of a run whose second step waits for approval."""
    opened: WidgetPage = request.getfixturevalue(request.param)
    match opened:
        case LabPage():
            opened.open(opened.jupyter.write_notebook("trip", [TRIP]))
            opened.run_cell(0)
        case VoilaPage():
            opened.open(opened.voila.write_notebook("trip", [TRIP]))
        case MarimoPage():
            opened.open(opened.marimo.write_notebook("trip", [TRIP]))
            opened.wait_for_panel()
    return opened


def step(page: WidgetPage, number: int) -> Locator:
    return page.live.get_by_role("article", name=f"Step {number}", exact=True)


def test_run_edit_approve_branch_compare_save_and_continue(page: WidgetPage, tmp_path: Path) -> None:
    live = page.live
    page.button("Run").click()
    page.set_number("max_turns", 5)
    chat = live.get_by_label("Next message")
    chat.click()
    chat.press_sequentially("And then", delay=100)
    page.wait_for_status(re.compile("^waiting for approval"))
    expect(page.button("Approve")).to_be_visible()
    expect(chat).to_be_focused()  # who types keeps the focus when a call waits, in marimo's shadow tree too
    card = live.get_by_role("group", name="Call of book_hotel")
    card.get_by_label("Arguments of book_hotel").fill('{"city": "Graz", "nights": 3}')
    page.button("Approve with these arguments").click()
    page.wait_for_status(re.compile("^ended"))
    expect(page.number("max_turns")).to_have_value("5")
    expect(live.locator("[data-total=steps]").first).to_contain_text("3")
    expect(step(page, 3)).to_contain_text("A room for two nights is booked.")

    step(page, 1).get_by_role("button", name="Branch here").click()
    form = step(page, 1).locator(".page-branch-form")
    form.get_by_label("Result of look_up").fill('{"city": "Graz", "sky": "clear"}')
    form.get_by_role("button", name="Branch", exact=True).click()
    expect(live.locator(".page-chip[aria-current=true]")).to_contain_text("edited result of look_up at step 1")
    page.button("Run").click()
    page.wait_for_status(re.compile("^waiting for approval"))
    page.set_number("max_turns", 2)  # an edit in a started run is its stop reason
    page.button("Approve").click()
    page.wait_for_status(re.compile("^ended early"))
    expect(live).to_contain_text("Budget reached: max_turns 2 of 2")
    expect(page.button("Run")).to_be_disabled()

    live.get_by_role("button", name="Compare", exact=True).click()
    expect(live.locator(".page-differences")).to_contain_text("First differencestep 1, tool results")
    live.get_by_role("button", name="Compare", exact=True).click()
    expect(live.locator(".page-differences")).to_be_hidden()
    with page.page.expect_download() as download:
        live.get_by_role("button", name="Save as file").click()
    download.value.save_as(tmp_path / "run.html")
    assert "edited result of look_up at step 1" in (tmp_path / "run.html").read_text(encoding="utf-8")

    live.get_by_role("button", name=re.compile("^Raise the turn limit")).click()
    expect(step(page, 3)).to_contain_text("A room for two nights is booked.")
    expect(live.locator(".page-chip")).to_have_count(3)
