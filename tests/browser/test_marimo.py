"""The panel in marimo: an anywidget, whose messages need no Jupyter kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from .conftest import keep_if_failed
from .desk import context_of
from .marimo_page import Marimo, MarimoPage
from .panels import SLOW_RUN

AT_ONCE = SLOW_RUN.replace("StepCountIs(2_000)", "StepCountIs(30)").replace("asyncio.sleep(0.1)", "asyncio.sleep(0)")
WANTED = "awaited"
"""The file that makes the notebook await its run, which then ends after 30 steps."""
WITH_BRANCH = SLOW_RUN.replace("run.panel()", "branch = run.fork(0)\npanel = run.panel()").replace(
    "StepCountIs(2_000)", f'StepCountIs(30 if os.path.exists("{WANTED}") else 2_000)'
)
CELLS = [
    f"import os\n{WITH_BRANCH}",
    "panel",
    f'result = await run if os.path.exists("{WANTED}") else None\nresult and result.stop_reason',
    "result and lab.explore([run])",
]


@pytest.fixture(scope="module")
def opened(marimo: Marimo, browser: Browser) -> Iterator[MarimoPage]:
    """A page of the editor with a notebook whose second cell shows a panel. All tests have it: to open one takes longer than most."""
    page = MarimoPage(context_of(marimo, browser).new_page(), marimo)
    page.open(marimo.write_notebook("editor", CELLS))
    yield page
    page.page.close()


@pytest.fixture
def editor(opened: MarimoPage, request: pytest.FixtureRequest) -> Iterator[MarimoPage]:
    """That page with the panel of a new run, not yet started, which has an unchanged branch."""
    execute(opened, 0)  # and with it the second cell
    expect(opened.status).to_have_text(re.compile("^idle"))
    expect(opened.status.locator("[data-total=steps]").first).to_have_text(re.compile("^0"))
    yield opened
    keep_if_failed(opened, opened.marimo, request)
    if opened.button("Stop").is_enabled():
        opened.button("Stop").click()


def execute(page: MarimoPage, index: int) -> None:
    """Execute the cell at this index, and those that use its variables."""
    cell = page.page.locator("[data-cell-id]").nth(index)
    cell.hover()
    cell.get_by_test_id("run-button").first.click()


def test_step_pause_resume_and_stop_in_the_editor(editor: MarimoPage) -> None:
    editor.press("Step", "Space")
    editor.wait_for_steps(1)
    editor.wait_for_status("idle")
    editor.button("Run").click()
    editor.wait_for_steps(3)
    editor.button("Pause").click()
    editor.wait_for_status("paused")
    editor.button("Resume").click()
    editor.wait_for_status("running")
    search = editor.live.get_by_role("searchbox")
    search.press_sequentially("archive")  # marimo's keys are not for what is typed here
    expect(search).to_have_value("archive")
    editor.page.reload()
    editor.wait_for_steps(4)
    editor.button("Stop").click()
    expect(editor.live).to_contain_text("explicit stop")


def test_keys_are_for_the_panel_while_it_has_the_focus(editor: MarimoPage) -> None:
    """Also those by which marimo moves between cells, deletes them, adds some, or runs them."""
    for number in (1, 2):
        editor.press("Step", "Space")
        editor.wait_for_steps(number)
        editor.wait_for_status("idle")
    cells = editor.page.locator("[data-cell-id]")
    before = cells.count()
    live, keyboard = editor.live, editor.page.keyboard
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
    expect(live.locator(".page-chip")).to_have_count(3)
    expect(cells).to_have_count(before)
    assert SLOW_RUN.splitlines()[1] in cells.first.inner_text()


def test_a_cell_run_again_shows_the_same_panel_live(editor: MarimoPage) -> None:
    editor.button("Step").click()
    editor.wait_for_steps(1)
    execute(editor, 1)
    editor.page.wait_for_timeout(1000)
    editor.wait_for_steps(1)
    editor.button("Step").click()
    editor.wait_for_steps(2)


def test_the_focus_stays_where_it_is_and_a_click_counts_although_steps_arrive(editor: MarimoPage) -> None:
    """The page is in a shadow tree, whose host is the document's active element."""
    runs = editor.live.locator("[data-section=runs]")
    runs.locator("summary").click()
    editor.button("Run").click()
    editor.wait_for_steps(2)
    other = runs.get_by_role("button").nth(1)
    other.focus()
    editor.wait_for_steps(6)
    expect(other).to_be_focused()
    other.hover()
    editor.page.mouse.down()
    editor.page.wait_for_timeout(500)  # steps arrive between the two halves of a click
    editor.page.mouse.up()
    expect(runs.locator("tr[aria-current=true]")).to_contain_text("the same from step 1")


def test_an_awaited_run_is_seen_although_marimo_reads_no_clicks_meanwhile_and_an_explorer_says_that_it_has_no_controls(
    editor: MarimoPage,
) -> None:
    wanted = editor.marimo.root / WANTED
    wanted.touch()
    try:
        execute(editor, 0)  # and with it all others
        editor.wait_for_status("running")
        editor.wait_for_steps(3)
        editor.wait_for_status("ended")
        editor.wait_for_steps(30)
        expect(editor.page.get_by_text("marimo cannot show the controls of this view")).to_be_visible(timeout=90_000)
        expect(editor.page.get_by_text("Jupyter widgets are not supported")).to_have_count(0)
    finally:
        wanted.unlink()


def test_an_export_has_the_static_view(marimo: Marimo) -> None:
    notebook = marimo.write_notebook("export", [AT_ONCE.replace("run.panel()", "await run\nrun.panel()")])
    file = notebook.with_suffix(".html")
    command = [sys.executable, "-m", "marimo", "-y", "export", "html", str(notebook), "-o", str(file), "-f"]
    subprocess.run(command, cwd=notebook.parent, env=marimo._server_environment(), check=True, capture_output=True)
    html = file.read_text(encoding="utf-8")
    assert "agentlab-static" in html
    assert "marimo-anywidget" not in html
