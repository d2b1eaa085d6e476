"""The panel in Notebook 7: it runs, pauses, an edit reaches the run, the run ends for that reason and is continued as a branch."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from .lab_page import LabPage
from .panels import BEGUN_AFTER, SLOW_RUN


def test_an_edit_in_a_started_run_is_its_stop_reason_which_is_saved(notebook_page: LabPage) -> None:
    notebook_page.open(notebook_page.jupyter.write_notebook("panel", [SLOW_RUN]))
    notebook_page.run_cell(0)
    notebook_page.button("Run").click()
    notebook_page.wait_for_steps(2)
    notebook_page.button("Pause").click()
    notebook_page.wait_for_status("paused")
    notebook_page.set_number("max_turns", 6)
    notebook_page.button("Resume").click()
    notebook_page.wait_for_output(0, re.compile(r"Budget reached: max_turns \d+ of 6"))
    assert notebook_page.kernel_value("run.limits.max_turns") == "6"
    assert notebook_page.kernel_value("str(run.result.stop_reason)") == "'turn_limit'"
    steps = int(notebook_page.kernel_value("len(run.history)"))
    assert steps == 6 or notebook_page.kernel_value(BEGUN_AFTER) == "0", "the limit took effect long after it was set"
    expect(notebook_page.button("Run")).to_be_disabled()
    notebook_page.live.get_by_role("button", name=re.compile("^Raise the turn limit")).click()
    notebook_page.wait_for_steps(steps + 1)
    expect(notebook_page.live.locator(".page-chip")).to_have_count(2)
    assert notebook_page.kernel_value("len(run.branches)") == "1"
    notebook_page.wait_for_saved(0, "turn_limit")  # the notebook keeps the end
