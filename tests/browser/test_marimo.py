"""The panel in marimo: an anywidget, whose messages need no Jupyter kernel."""

from __future__ import annotations

import re
import subprocess
import sys

from playwright.sync_api import expect

from .marimo_page import MarimoPage
from .panels import SLOW_RUN, TRIP

ENDS = SLOW_RUN.replace("StepCountIs(2_000)", "StepCountIs(60)")
SHOWN_LATER = ENDS.replace("run.panel()", "panel = run.panel()")


def test_an_edit_in_a_started_run_is_its_stop_reason(marimo_app: MarimoPage) -> None:
    marimo_app.open(marimo_app.marimo.write_notebook("app", [SLOW_RUN]))
    marimo_app.wait_for_panel()
    marimo_app.button("Run").click()
    marimo_app.wait_for_steps(2)
    marimo_app.wait_for_status("running")
    marimo_app.set_number("max_turns", 6)
    expect(marimo_app.live).to_contain_text(re.compile(r"Budget reached: max_turns \d+ of 6"))
    marimo_app.wait_for_status("ended")


def test_step_pause_resume_and_stop_in_the_editor(marimo_page: MarimoPage) -> None:
    marimo_page.open(marimo_page.marimo.write_notebook("editor", [SLOW_RUN]))
    marimo_page.wait_for_panel()
    marimo_page.press("Step", "Space")
    marimo_page.wait_for_steps(1)
    marimo_page.wait_for_status("idle")
    marimo_page.button("Run").click()
    marimo_page.wait_for_steps(3)
    marimo_page.button("Pause").click()
    marimo_page.wait_for_status("paused")
    marimo_page.button("Resume").click()
    marimo_page.wait_for_status("running")
    search = marimo_page.live.get_by_role("searchbox")
    search.press_sequentially("archive")  # marimo's keys are not for what is typed here
    expect(search).to_have_value("archive")
    marimo_page.page.reload()
    marimo_page.wait_for_steps(4)
    marimo_page.button("Stop").click()
    expect(marimo_page.live).to_contain_text("explicit stop")


def test_keys_are_for_the_panel_while_it_has_the_focus(marimo_page: MarimoPage) -> None:
    """Also those by which marimo moves between cells, deletes them, adds some, or runs them."""
    marimo_page.open(marimo_page.marimo.write_notebook("keys", [SLOW_RUN]))
    marimo_page.wait_for_panel()
    for number in (1, 2):
        marimo_page.press("Step", "Space")
        marimo_page.wait_for_steps(number)
        marimo_page.wait_for_status("idle")
    cells = marimo_page.page.locator("[data-cell-id]")
    before = cells.count()
    live, keyboard = marimo_page.live, marimo_page.page.keyboard
    live.get_by_role("feed", name="Transcript").focus()
    for key in ("Home", "j", "j", "k", "ArrowDown", "d", "d", "a", "b"):
        keyboard.press(key)
    message = live.get_by_label("One more message to the model")
    expect(message).to_be_visible()
    message.focus()
    keyboard.type("abjkdd, then more")
    keyboard.press("Shift+Enter")
    keyboard.type("and a second line")
    expect(message).to_have_value("abjkdd, then more\nand a second line")
    keyboard.press("Control+Enter")  # which runs a cell of marimo
    expect(live.locator(".page-chip[aria-current=true]")).to_contain_text("abjkdd")
    expect(live.locator(".page-chip")).to_have_count(2)
    expect(cells).to_have_count(before)
    assert SLOW_RUN.splitlines()[1] in cells.first.inner_text()


def test_an_awaited_run_is_seen_although_marimo_reads_no_clicks_meanwhile(marimo_page: MarimoPage) -> None:
    marimo_page.open(
        marimo_page.marimo.write_notebook("awaited", [SHOWN_LATER, "panel", "result = await run\nresult.stop_reason"])
    )
    marimo_page.wait_for_status("running")
    marimo_page.wait_for_steps(3)
    marimo_page.wait_for_status("ended")
    marimo_page.wait_for_steps(60)


def test_a_cell_run_again_shows_the_same_panel_live(marimo_page: MarimoPage) -> None:
    marimo_page.open(marimo_page.marimo.write_notebook("again", [SHOWN_LATER, "panel"]))
    marimo_page.wait_for_panel()
    marimo_page.button("Step").click()
    marimo_page.wait_for_steps(1)
    cell = marimo_page.page.locator("[data-cell-id]").nth(1)
    cell.hover()
    cell.get_by_test_id("run-button").first.click()
    marimo_page.page.wait_for_timeout(1000)
    marimo_page.wait_for_steps(1)
    marimo_page.button("Step").click()
    marimo_page.wait_for_steps(2)


def test_the_focus_stays_where_it_is_and_a_click_counts_although_steps_arrive(marimo_page: MarimoPage) -> None:
    """The page is in a shadow tree, whose host is the document's active element."""
    with_branch = SLOW_RUN.replace("run.panel()", "branch = run.fork(0)\nrun.panel()")
    marimo_page.open(marimo_page.marimo.write_notebook("focus", [with_branch]))
    marimo_page.wait_for_panel()
    runs = marimo_page.live.locator("[data-section=runs]")
    runs.locator("summary").click()
    marimo_page.button("Run").click()
    marimo_page.wait_for_steps(2)
    other = runs.get_by_role("button").nth(1)
    other.focus()
    marimo_page.wait_for_steps(6)
    expect(other).to_be_focused()
    other.hover()
    marimo_page.page.mouse.down()
    marimo_page.page.wait_for_timeout(500)  # steps arrive between the two halves of a click
    marimo_page.page.mouse.up()
    expect(runs.locator("tr[aria-current=true]")).to_contain_text("the same from step 1")


def test_a_person_who_types_keeps_the_focus_when_a_call_waits(marimo_page: MarimoPage) -> None:
    marimo_page.open(marimo_page.marimo.write_notebook("typed", [TRIP]))
    marimo_page.wait_for_panel()
    marimo_page.button("Run").click()
    chat = marimo_page.live.get_by_label("Next message")
    chat.click()
    chat.press_sequentially("And then", delay=100)
    marimo_page.wait_for_status("waiting for approval")
    expect(marimo_page.button("Approve")).to_be_visible()
    expect(chat).to_be_focused()


def test_the_explorer_is_shown_without_controls_and_says_so(marimo_page: MarimoPage) -> None:
    cells = [ENDS.replace("run.panel()", "await run\nlab.explore([run])")]
    marimo_page.open(marimo_page.marimo.write_notebook("explorer", cells))
    expect(marimo_page.page.get_by_text("marimo cannot show the controls of this view")).to_be_visible(timeout=90_000)
    expect(marimo_page.page.get_by_text("Jupyter widgets are not supported")).to_have_count(0)


def test_an_export_has_the_static_view(marimo_page: MarimoPage) -> None:
    notebook = marimo_page.marimo.write_notebook("export", [ENDS.replace("run.panel()", "await run\nrun.panel()")])
    file = notebook.with_suffix(".html")
    command = [sys.executable, "-m", "marimo", "-y", "export", "html", str(notebook), "-o", str(file), "-f"]
    subprocess.run(command, cwd=notebook.parent, env=marimo_page.marimo._server_environment(), check=True, capture_output=True)
    html = file.read_text(encoding="utf-8")
    assert "agentlab-static" in html
    assert "marimo-anywidget" not in html
