"""The panel in Voilà, which shows a notebook without its code to readers who cannot run cells."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from .panels import SLOW_RUN
from .voila_page import VoilaPage

TELLS_THE_KERNEL = """
from IPython.display import display
import ipywidgets
ask, label = ipywidgets.Button(description="Tell"), ipywidgets.Label()
ask.on_click(lambda _: setattr(label, "value", f"{run.limits.max_turns} {run.result and run.result.stop_reason} {len(run.history)}"))
display(ask, label)
"""
"""A test cannot query a variable in Voilà's kernel: a button shows it."""


STARTED_IN_THE_CELL = SLOW_RUN.replace("run.panel()", "run.start()\nrun.panel()")


def test_an_edit_in_a_run_that_a_cell_has_started_is_its_stop_reason(voila_page: VoilaPage) -> None:
    voila_page.open(voila_page.voila.write_notebook("panel", [STARTED_IN_THE_CELL, TELLS_THE_KERNEL]))
    voila_page.wait_for_steps(2)
    voila_page.button("Pause").click()
    voila_page.wait_for_status("paused")
    voila_page.set_number("max_turns", 6)
    voila_page.button("Resume").click()
    expect(voila_page.live).to_contain_text(re.compile(r"Budget reached: max_turns (\d+) of 6"))
    voila_page.button("Tell").click()
    expect(voila_page.page.locator("body")).to_contain_text(re.compile(r"6 turn_limit \d"))
    expect(voila_page.button("Run")).to_be_disabled()
    voila_page.live.get_by_role("button", name=re.compile("^Raise the turn limit")).click()
    voila_page.wait_for_steps(7)
    expect(voila_page.live.locator(".page-chip")).to_have_count(2)
