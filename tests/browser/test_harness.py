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


def test_cells_run_a_number_box_is_obeyed_and_what_is_seen_is_saved_and_pictured(lab: LabPage, tmp_path: Path) -> None:
    lab.open(lab.jupyter.write_notebook("counting", [COUNTING, "print('cell', 2)"]))
    lab.run_all()
    lab.wait_for_output(1, "cell 2")
    assert lab.save()["cells"][1]["outputs"][0]["text"] == ["cell 2\n"]
    assert lab.kernel_value("__import__('sys').executable") == repr(sys.executable)

    lab.button("Run").click()
    lab.wait_for_output(0, re.compile(r"at \d\d"))
    expect(lab.button("Run")).to_be_disabled()
    lab.set_number("limit", 5)
    lab.wait_for_output(0, "the limit is 5")
    assert lab.kernel_value("limit.value") == "5"
    assert "stopped at" in lab.output(0).inner_text()

    lab.use_theme(DARK)
    assert lab.page.locator("body").get_attribute("data-jp-theme-light") == "false"
    assert lab.screenshot(tmp_path / "page.png").stat().st_size > 10_000
    assert lab.screenshot(tmp_path / "output.png", of=lab.output(0)).stat().st_size > 500


class Ends(JupyterLab):
    """A server that ends at once."""

    def _arguments(self) -> list[str]:
        return ["-c", "raise SystemExit('the port is not free')"]


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(JupyterProblemError, match="JupyterLab ended with code 1; its log:\nthe port is not free"), Ends():
        pass
