"""Browsing steps without a browser: type, press, click, and read what the page would show."""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from pathlib import Path

import pytest
from agentlab.notebook.panel.controls import SCRIPT
from agentlab.notebook.panel.run_view import Panel
from agentlab.notebook.panel.step_browser import MOST_ROWS, StepTable, window
from measured_work import calls_in
from thread_tools import drawn, undisturbed

import agentlab as lab
from agentlab import Budget, StepCountIs
from agentlab.agent import Run
from agentlab.notebook.page.step_detail import detail
from agentlab.testing import ScriptedProvider, call, say


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


def search(query: str) -> str:
    """Search."""
    return "nothing"


def panel_of(steps: int, most: int = 10_000) -> Panel:
    """The panel of a run with this many steps."""
    model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, tokens=(index, 0), cost="0.001"))
    run = lab.Agent(model, tools=[search]).run("Find it.", stop=StepCountIs(most), budget=Budget(max_turns=10_000))
    take(run, steps)
    panel = Panel(run)
    _ = panel.widget
    return panel


def take(run: Run, steps: int) -> None:
    async def go() -> None:
        for _ in range(steps):
            await run.step()

    asyncio.run(go())


def rows(panel: Panel) -> list[int]:
    return [int(step) for step in re.findall(r'<tr data-step="(\d+)"', panel.run_view.steps.table.value)]


def marked(panel: Panel) -> list[str]:
    return re.findall(r'data-step="(\d+)" aria-current="step"', panel.run_view.steps.table.value)


def detailed(panel: Panel) -> str:
    found = re.search(r"<b>Step (\d+)</b>", panel.run_view.steps.detail.value)
    return found[1] if found else ""


@pytest.mark.parametrize(
    ("steps", "chosen", "first", "last"),
    [
        (3, None, 1, 3),
        (12, None, 1, 12),
        (13, None, 2, 13),
        (40, 1, 1, 12),
        (40, 7, 1, 12),
        (40, 8, 2, 13),
        (40, 20, 14, 25),
        (40, 39, 29, 40),
        (40, 40, 29, 40),
    ],
)
def test_the_table_shows_a_window(steps: int, chosen: int | None, first: int, last: int) -> None:
    assert window(steps, chosen) == (first, last)
    assert last - first < MOST_ROWS
    assert chosen is None or first <= chosen <= last


def test_the_newest_step_is_followed_until_one_is_chosen_and_again_after_newest() -> None:
    panel = panel_of(20)
    assert rows(panel) == list(range(9, 21)) and marked(panel) == [] and detailed(panel) == "20"
    panel.run_view.steps.number.value = "5"
    drawn(panel)
    assert rows(panel) == list(range(1, 13)) and marked(panel) == ["5"] and detailed(panel) == "5"
    take(panel.run, 3)
    drawn(panel)
    assert detailed(panel) == "5" and "steps 1 to 12 of 23 (11 later)" in panel.run_view.steps.table.value
    panel.run_view.steps.newest.click()
    drawn(panel)
    assert detailed(panel) == "23" and panel.run_view.steps.number.value == ""
    take(panel.run, 1)
    drawn(panel)
    assert detailed(panel) == "24"


def test_earlier_and_later_say_why_they_are_disabled() -> None:
    panel = panel_of(0)
    steps = panel.run_view.steps
    assert all(button.disabled for button in (steps.earlier, steps.later, steps.newest))
    assert steps.later.tooltip == "No step has been taken yet."
    take(panel.run, 2)
    drawn(panel)
    assert (steps.earlier.disabled, steps.later.disabled, steps.newest.disabled) == (False, True, True)
    assert steps.later.tooltip == "This is the newest step."
    steps.earlier.click()
    drawn(panel)
    assert detailed(panel) == "1" and steps.number.value == "1"
    assert (steps.earlier.disabled, steps.later.disabled, steps.newest.disabled) == (True, False, False)
    assert steps.earlier.tooltip == "This is the first step."
    steps.later.click()
    drawn(panel)
    assert panel.run_view.state.chosen == 2


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("0", "Step 0: choose from 1 to 4."),
        ("5", "Step 5: choose from 1 to 4."),
        ("two", "Step &#x27;two&#x27;: type the number of a step"),
        ("-1", "type the number of a step"),
        ("9" * 5000, "type the number of a step"),
    ],
)
def test_an_invalid_step_number_says_why_and_changes_nothing(typed: str, why: str) -> None:
    panel = panel_of(4)
    steps = panel.run_view.steps
    steps.number.value = "3"
    steps.number.value = typed
    drawn(panel)
    assert why in steps.message.value
    assert panel.run_view.state.chosen == 3
    steps.number.value = "2"
    assert steps.message.value == "" and panel.run_view.state.chosen == 2


def test_chart_and_table_mark_the_same_step() -> None:
    panel = panel_of(6)
    unmarked = panel.run_view.chart.view.value
    panel.run_view.pointer.clicked({"step": 4})
    drawn(panel)
    assert marked(panel) == ["4"]
    assert "Step 4 is marked: 10 tokens, 0.004 US dollars so far." in panel.run_view.chart.view.value
    assert panel.run_view.chart.view.value != unmarked
    assert "marked" not in panel.bundle()["text/html"]


@pytest.mark.parametrize(
    "message",
    [{"step": 99}, {"step": "1"}, {"step": True}, {"step": None}, {"run": "nowhere"}, {"section": 1, "open": True}, "x", None],
)
def test_every_message_from_the_page_is_checked(message: object) -> None:
    panel = panel_of(3)
    panel.run_view.pointer.clicks._handle_custom_msg(message, [])
    drawn(panel)
    assert panel.run_view.state.chosen is None
    assert detailed(panel) == "3"


def test_a_click_on_a_run_opens_it() -> None:
    panel = panel_of(3)
    branch = panel.run.fork(at=1)
    panel.run_view.pointer.clicked({"run": branch.id})
    assert panel.run is branch
    panel.run_view.pointer.clicked({"run": branch.origin.parent_run_id})
    assert panel.run is branch.origin.parent


def test_the_detail_is_not_rebuilt_for_the_same_step() -> None:
    panel = panel_of(3)
    changes: list[str] = []
    panel.run_view.steps.detail.observe(lambda change: changes.append(change["new"]), "value")
    panel.run_view.pointer.clicked({"section": "raw", "open": True})
    panel.run_view.pointer.clicked({"section": "tools", "open": False})
    for _ in range(3):
        drawn(panel)
    assert changes == []
    panel.run_view.pointer.clicked({"step": 2})
    drawn(panel)
    assert len(changes) == 1
    assert re.findall(r'data-section="(\w+)" open', changes[0]) == ["messages", "raw"]


def test_a_late_stop_reason_is_shown() -> None:
    panel = panel_of(2)
    assert "the run ended" not in panel.run_view.steps.detail.value
    panel.run.stop("enough")
    drawn(panel)
    assert "the run ended: explicit_stop" in panel.run_view.steps.detail.value


def test_sums_are_of_the_whole_run_wherever_the_window_is() -> None:
    panel = panel_of(30)
    panel.run_view.state.choose(15)
    table = StepTable(panel.run).html(15)
    row = re.search(r'<tr data-step="15".*?</tr>', table)
    assert row is not None
    assert re.findall(r">([^<>]+)</td>", row[0])[3:7] == ["15", "120", "$0.001", f"${Decimal('0.015')}"]


def test_sums_after_an_unknown_part_are_unknown() -> None:
    run = lab.Agent(ScriptedProvider([say("a", tokens=(None, None))])).run("go", budget=Budget(max_turns=3))
    take(run, 1)
    assert StepTable(run).html(None).count("unknown") == 4


def test_a_redraw_does_not_grow_with_the_run() -> None:
    calls = []
    for steps in (50, 5_000):
        panel = panel_of(steps)
        with undisturbed(panel):
            panel.run_view.state.choose(20)
            panel.run_view.steps.show()
            panel.run_view.state.choose(21)
            calls.append(calls_in(panel.run_view.steps.show))
    assert calls[1] < 1.2 * calls[0]


def test_the_script_is_beside_its_module_and_sent_whole() -> None:
    panel = panel_of(0)
    assert Path(SCRIPT).is_file()
    assert panel.run_view.pointer.clicks._esm == SCRIPT.read_text(encoding="utf-8")
    assert panel.run_view.pointer.clicks in list(panel._controls()), "otherwise a busy kernel would not receive it"


def test_usage_of_sub_agents_is_in_the_table_and_in_the_detail() -> None:
    inner = lab.Agent(ScriptedProvider([say("nothing", tokens=(200, 0), cost="0.5")]), name="inner").as_tool("research")
    model = ScriptedProvider(
        [call("research", {"task": "x"}, tokens=(20, 0), cost="0.25"), say("end", tokens=(30, 0), cost="0.25")]
    )
    run = lab.Agent(model, tools=[inner]).run("Find it.")
    take(run, 2)
    table = StepTable(run).html(1)
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr data-step.*?</tr>", table)]
    assert [row[3:7] for row in rows] == [["220", "220", "$0.75", "$0.75"], ["30", "250", "$0.25", "$1"]]
    assert f"research-1: completed, 1 step, 200 tokens, $0.5, run {run.children[0].id[:6]}" in detail(run, 1)
