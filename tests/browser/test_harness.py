"""The test harness itself, on plain widgets: a thread in the kernel obeys a number box in a real browser."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .jupyter import JupyterLab, JupyterProblemError
from .lab_page import DARK, LabPage

COUNTING = """
import contextvars, threading, time
import ipywidgets as widgets

limit = widgets.BoundedIntText(value=10_000, min=1, max=10_000, description="limit")
run = widgets.Button(description="Run")
state = widgets.Label("not started")

def count():
    number = 0
    while number < limit.value:
        number += 1
        state.value = f"at {number}"
        time.sleep(0.05)
    state.value = f"stopped at {number}, the limit is {limit.value}"

def start(button):
    button.disabled = True
    threading.Thread(target=contextvars.copy_context().run, args=(count,), daemon=True).start()

run.on_click(start)
widgets.VBox([limit, run, state])
"""


@pytest.fixture
def counting(lab: LabPage) -> LabPage:
    """A page with the counting widgets in the output of its first cell."""
    lab.open(lab.jupyter.write_notebook("counting", [COUNTING, "print('cell', 2)"]))
    lab.run_all()
    return lab


def test_lowering_the_limit_in_the_browser_stops_the_thread(counting: LabPage) -> None:
    counting.button("Run").click()
    counting.wait_for_output(0, re.compile(r"at \d\d"))
    expect(counting.button("Run")).to_be_disabled()

    counting.set_number("limit", 5)

    counting.wait_for_output(0, "the limit is 5")
    assert counting.kernel_value("limit.value") == "5"
    assert "stopped at" in counting.output(0).inner_text()


def test_cells_run_and_their_output_is_visible_and_saved(counting: LabPage) -> None:
    counting.wait_for_output(1, "cell 2")
    assert counting.save()["cells"][1]["outputs"][0]["text"] == ["cell 2\n"]


def test_the_theme_changes_and_screenshots_are_taken(counting: LabPage, tmp_path: Path) -> None:
    counting.use_theme(DARK)
    assert counting.page.locator("body").get_attribute("data-jp-theme-light") == "false"
    assert counting.screenshot(tmp_path / "page.png").stat().st_size > 10_000
    assert counting.screenshot(tmp_path / "output.png", of=counting.output(0)).stat().st_size > 500


def test_kernels_use_the_python_of_the_tests(counting: LabPage) -> None:
    assert counting.kernel_value("__import__('sys').executable") == repr(sys.executable)


def test_a_server_that_cannot_start_says_why() -> None:
    bad = JupyterLab(environment={"JUPYTER_RUNTIME_DIR": "/dev/null/nowhere"})
    with pytest.raises(JupyterProblemError, match="JupyterLab ended with code"), bad:
        pass
