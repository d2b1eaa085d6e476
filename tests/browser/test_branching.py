"""Branches, and several runs side by side, in a real JupyterLab: every user action, clicked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from .lab_page import DARK, LIGHT, LabPage
from .widget_page import LIVE

PICTURES = Path(__file__).parents[2] / "test-output"  # screenshots for review

MADE = """
import asyncio
import agentlab as lab
from agentlab import Budget
from agentlab.testing import ScriptedProvider, call, say

pause_s = 0.05

async def search(query: str) -> str:
    "Search the archive."
    await asyncio.sleep(pause_s)
    return f"nothing about {query}"

def agent(name, model, tokens, end=0):
    def script(request, index):
        if index == end:
            return say("It is in the old ledger: page 12.", tokens=(tokens, 40), cost=0.002)
        return call("search", {"query": f"try {index}"}, tokens=(tokens + 10 * index, 20), cost=0.001)
    return lab.Agent(ScriptedProvider(script, name=name, model=model), tools=[search], name=f"{name}:{model}")
"""

FAMILY = """
run = agent("openai", "gpt-4.1-mini", 200).run("Find the ledger.", budget=Budget(max_turns=6, max_tokens=5_000))
await run
lab.panel(run, agents=[agent("anthropic", "claude-sonnet-4", 300, end=5)])
"""

ROW = """
pause_s = 0.25
runs = [
    agent(name, model, tokens, end).run("Find the ledger.", budget=Budget(max_turns=turns, max_tokens=10_000))
    for name, model, tokens, end, turns in [
        ("openai", "gpt-4.1-mini", 150, 4, 99), ("anthropic", "claude-sonnet-4", 220, 7, 99), ("gemini", "gemini-2.5-flash", 9, 0, 25)
    ]
]
row = lab.panel(runs)
row
"""

ENDLESS_ROW = ROW.replace("9, 0, 25)", "9, 0, 100_000)").replace("max_tokens=10_000", "max_tokens=10**12")
"""The third run takes longer than any test, so that actions during the run come before its end."""


def in_tab(page: LabPage, name: str) -> None:
    page.page.get_by_role("tab", name=name, exact=True).locator("visible=true").click()


def box(page: LabPage, label: str) -> Locator:
    """The visible field with this label: each shown run has its own."""
    return page.page.locator(".jp-Notebook .jp-Cell-outputArea").get_by_label(label, exact=True).locator("visible=true")


@pytest.fixture
def family(lab: LabPage) -> LabPage:
    """A page with the panel of a run that its budget ended after 6 steps, on the tab Branches."""
    lab.open(lab.jupyter.write_notebook("family", [MADE, FAMILY]))
    lab.run_all()
    expect(lab.page.locator(f"{LIVE} .agentlab-end")).to_contain_text("turn_limit")
    in_tab(lab, "Branches")
    return lab


def test_a_branch_with_another_model_and_prompt_is_made_shown_and_run(family: LabPage) -> None:
    page = family.page
    expect(box(family, "Keep steps")).to_have_value("6")
    box(family, "Keep steps").fill("3")
    box(family, "Keep steps").press("Tab")
    box(family, "Model").select_option("anthropic:claude-sonnet-4")
    box(family, "Prompt").fill("Find the ledger, quickly.")
    box(family, "Add a message").fill("Look at the oldest first.")
    family.button("Branch").locator("visible=true").click()
    strip = page.locator(".agentlab-strip").locator("visible=true")
    expect(strip).to_contain_text("Run 1.1: a branch of run 1 at step 3 — model anthropic:claude-sonnet-4; another prompt")
    assert family.kernel_value("(run.branches[0].origin.forked_at, run.branches[0].prompt)") == "(3, 'Find the ledger, quickly.')"
    assert family.kernel_value("run.branches[0].messages[-1].text") == "'Look at the oldest first.'"
    page.get_by_role("button", name="Run", exact=True).locator("visible=true").click()
    expect(page.locator(".agentlab-end").locator("visible=true").first).to_contain_text("completed")
    in_tab(family, "Branches")
    expect(page.locator(".agentlab-family tr[aria-current]").locator("visible=true")).to_contain_text("1.1")
    tree = page.locator(LIVE).get_by_alt_text(re.compile("^Tree of 2 runs")).locator("visible=true")
    expect(tree).to_have_attribute(
        "alt", re.compile(r"1\.1 +anthropic:claude-sonnet-4 forked from 1 at step 3, 5 steps, completed")
    )
    curves = page.locator(LIVE).get_by_alt_text(re.compile("Cumulative cost.* per step of 2 runs"))
    expect(curves.locator("visible=true")).to_be_visible()
    family.button("Back to run 1").locator("visible=true").click()
    expect(strip).to_contain_text("Run 1: the first of its family, with 1 other run")


def test_a_tool_result_is_changed_in_a_branch(family: LabPage) -> None:
    box(family, "Keep steps").fill("2")
    box(family, "Keep steps").press("Tab")
    expect(box(family, "Content")).to_have_value("nothing about try 2")
    box(family, "Content").fill("page 12 of the old ledger")
    family.button("Branch").locator("visible=true").click()
    expect(family.page.locator(".agentlab-strip").locator("visible=true")).to_contain_text("tool result of search")
    assert family.kernel_value("run.branches[0].history[1].tool_results[0].content") == "'page 12 of the old ledger'"
    assert family.kernel_value("run.history[1].tool_results[0].content") == "'nothing about try 2'"


def test_an_impossible_branch_says_why_beside_the_form_and_keeps_the_input(family: LabPage) -> None:
    box(family, "Keep steps").fill("9")
    box(family, "Add a message").fill("Go on.")
    family.button("Branch").locator("visible=true").click()
    expect(family.page.locator(".agentlab-fault").locator("visible=true")).to_contain_text("fork(at=9)")
    expect(box(family, "Add a message")).to_have_value("Go on.")
    assert family.kernel_value("run.branches") == "()"
    box(family, "Keep steps").fill("6")
    box(family, "Keep steps").press("Tab")
    box(family, "Model").select_option("another model …")
    box(family, "provider:model").fill("nobody:nothing")
    family.button("Branch").locator("visible=true").click()
    expect(family.page.locator(".agentlab-fault").locator("visible=true")).to_contain_text("nobody")


def test_branches_made_in_code_appear_and_open_from_the_list_and_the_table(family: LabPage) -> None:
    page = family.page
    family.kernel_value("[run.fork(at, message='more') for at in (2, 4)]")
    rows = page.locator(".agentlab-family tbody tr").locator("visible=true")
    expect(rows).to_have_count(3)
    box(family, "Show run").select_option(index=2)
    expect(page.locator(".agentlab-strip").locator("visible=true")).to_contain_text("Run 1.2: a branch of run 1 at step 4")
    in_tab(family, "Branches")
    family.wait_for_pointer()
    rows.nth(1).click()
    expect(page.locator(".agentlab-strip").locator("visible=true")).to_contain_text("Run 1.1: a branch of run 1 at step 2")


def test_screenshots_of_branches(family: LabPage) -> None:
    family.kernel_value(
        "[run.fork(at, agent=agent(*model), budget=Budget(max_turns=turns)).worker.launch() for at, model, turns in "
        "[(2, ('anthropic', 'claude-sonnet-4', 260, 2), 9), (4, ('openai', 'gpt-4.1-mini', 90), 12), (4, ('gemini', "
        "'gemini-2.5-flash', 40), 7)]]"
    )
    tree = family.page.locator(LIVE).get_by_alt_text(re.compile("^Tree of 4 runs.*12 steps, turn_limit"))
    expect(tree.locator("visible=true")).to_be_visible()
    panel = family.page.locator(".agentlab-panel").locator("visible=true").first
    family.page.set_viewport_size({"width": 1400, "height": 2200})
    for theme, name in ((LIGHT, "light"), (DARK, "dark")):
        family.use_theme(theme)
        expect(panel).to_be_visible(timeout=30_000)
        family.page.wait_for_timeout(500)  # JupyterLab lays out the notebook again
        family.screenshot(PICTURES / f"branches-{name}.png", of=panel)
    family.use_theme(LIGHT)


@pytest.fixture
def row(lab: LabPage) -> LabPage:
    """A page with three runs side by side, not yet started."""
    return opened(lab, ROW)


@pytest.fixture
def endless_row(lab: LabPage) -> LabPage:
    """The same, but the third run continues until it is stopped."""
    return opened(lab, ENDLESS_ROW)


def opened(lab: LabPage, cell: str) -> LabPage:
    lab.open(lab.jupyter.write_notebook("row", [MADE, cell]))
    lab.run_all()
    expect(lab.button("Run all")).to_be_enabled()
    return lab


def test_step_run_pause_and_stop_for_all_runs(endless_row: LabPage) -> None:
    row = endless_row
    row.button("Step all").click()
    row.wait_for_output(1, re.compile(r"ready\s+round 1\b"))
    assert row.kernel_value("[len(run.history) for run in runs]") == "[1, 1, 1]"
    expect(row.button("Pause all")).to_have_attribute("title", "Nothing is running.")
    row.button("Run all").click()
    row.wait_for_output(1, re.compile(r"round ([2-9]|\d\d)"))
    row.button("Pause all").click()
    expect(row.button("Resume all")).to_be_enabled()
    row.button("Resume all").click()
    row.wait_for_output(1, "2 of 3 ended")
    row.button("Stop all").click()
    row.wait_for_output(1, "3 of 3 ended")
    expect(row.button("Run all")).to_have_attribute("title", "All runs have ended.")
    reasons = row.kernel_value("[str(run.result.stop_reason) for run in runs]")
    assert reasons == "['completed', 'completed', 'explicit_stop']"


def test_the_chart_compares_all_runs_and_one_opens_below(row: LabPage) -> None:
    row.button("Run all").click()
    row.wait_for_output(1, "3 of 3 ended")
    chart = row.page.locator(LIVE).get_by_alt_text(re.compile("Cumulative tokens per step of 3 runs.*after 25 steps, turn_limit"))
    expect(chart).to_be_visible()
    box(row, "Open").select_option(index=2)
    opened = row.page.locator(".agentlab-panel .agentlab-panel")
    expect(opened).to_contain_text("anthropic:claude-sonnet-4")
    expect(opened.get_by_role("tab", name="Branches")).to_be_visible()
    html = "".join(row.wait_for_saved(1, "turn_limit")["data"]["text/html"])
    assert "<img" in html and "It is in the old ledger" in html


def test_screenshots_of_runs_side_by_side(row: LabPage) -> None:
    row.button("Run all").click()
    row.wait_for_output(1, re.compile("[23] of 3 ended"))
    panel = row.page.locator(".agentlab-panel").locator("visible=true").first
    row.page.set_viewport_size({"width": 1400, "height": 1600})
    for theme, name in ((LIGHT, "light"), (DARK, "dark")):
        row.use_theme(theme)
        expect(panel).to_be_visible(timeout=30_000)
        row.page.wait_for_timeout(500)
        row.screenshot(PICTURES / f"side-by-side-{name}.png", of=panel)
    row.use_theme(LIGHT)
