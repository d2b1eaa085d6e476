"""Branches, conversations, comparisons, and several runs side by side, in a real JupyterLab: every user action, clicked."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from .axe import COLOURS, faults
from .lab_page import DARK, LIGHT, LabPage

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
run = agent("openai", "gpt-4.1-mini", 200).run("Find the ledger.", budget=Budget(max_turns=4, max_tokens=9_000))
await run
lab.panel(run, agents=[agent("anthropic", "claude-sonnet-4", 300, end=5)])
"""

ROW = """
pause_s = 0.25
runs = [
    agent(name, model, tokens, end).run("Find the ledger.", budget=Budget(max_turns=turns, max_tokens=tokens_at_most))
    for name, model, tokens, end, turns, tokens_at_most in [
        ("openai", "gpt-4.1-mini", 150, 3, 99, 10_000), ("anthropic", "claude-sonnet-4", 220, 5, 99, 10_000),
        ("gemini", "gemini-2.5-flash", 9, 0, 100_000, 10**12),
    ]
]
lab.panel(runs)
"""
"""The third run takes longer than any test, so that actions during the run come before its end."""


def opened(lab: LabPage, cell: str) -> LabPage:
    """The panel that this cell shows, in view."""
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    lab.open(lab.jupyter.write_notebook("branching", [MADE, cell, ""]))
    lab.run_all()
    expect(lab.live.locator(".page-bar")).to_be_visible()
    lab.live.evaluate("page => page.scrollIntoView()")
    return lab


@pytest.fixture
def family(lab: LabPage) -> LabPage:
    """A page with the panel of a run that its budget ended after 4 steps."""
    return opened(lab, FAMILY)


@pytest.fixture
def row(lab: LabPage) -> LabPage:
    """A page with three runs side by side, not yet started."""
    return opened(lab, ROW)


def item(page: LabPage, step: int) -> Locator:
    """A step in the transcript; 0 for the prompt."""
    return page.live.get_by_role("feed", name="Transcript").locator(f"[data-index='{step}']")


def form(page: LabPage, step: int) -> Locator:
    """The form for a branch here, opened with the mouse."""
    item(page, step).get_by_role("button", name="Branch here").click()
    return item(page, step).locator(".page-branch-form")


def chips(page: LabPage) -> Locator:
    return page.live.get_by_role("navigation", name="Runs").locator(".page-chip")


def is_shown(page: LabPage, name: str | re.Pattern[str]) -> None:
    """The chip of this run is the current one."""
    expect(page.live.locator(".page-chip[aria-current=true]")).to_contain_text(name)


# The story -----------------------------------------------------------------------------------------------------------------------


def test_a_run_at_its_limit_is_branched_with_an_edited_result_and_a_higher_limit_and_compared(family: LabPage) -> None:
    page, live = family.page, family.live
    family.wait_for_status(re.compile("^ended early"))
    fields = form(family, 2)
    expect(fields.get_by_label("Result of search")).to_have_value("nothing about try 2")
    expect(fields.get_by_label("Result of search")).to_be_focused()
    fields.get_by_label("Result of search").fill("page 12 of the old ledger")
    fields.get_by_role("button", name="Branch", exact=True).click()

    is_shown(family, "edited result of search at step 2")
    expect(live.get_by_role("group", name="The run").get_by_role("button", name="Run")).to_be_focused()
    expect(live.get_by_role("group", name="The run").get_by_role("button", name="Run")).to_be_in_viewport()
    expect(live.get_by_role("slider", name="Step", exact=True)).to_have_value("2")
    expect(item(family, 2)).to_contain_text("edited in this branch")
    expect(live.locator(".page-in-code code")).to_have_text("branch = run.branches[0]")
    assert family.kernel_value("run.branches[0].history[1].tool_results[0].content") == "'page 12 of the old ledger'"
    assert family.kernel_value("run.history[1].tool_results[0].content") == "'nothing about try 2'"

    limit = live.locator("[data-section=limits]").get_by_label(re.compile("max_turns")).and_(page.locator("input")).first
    limit.fill("7")
    limit.press("Tab")
    is_shown(family, "edited result of search at step 2, max_turns 7")
    family.button("Run").click()
    family.wait_for_steps(7)
    family.wait_for_status(re.compile("^ended early"))
    assert family.kernel_value("(len(run.branches[0].history), len(run.history))") == "(7, 4)"

    live.get_by_role("button", name="Compare", exact=True).click()
    facts = live.locator(".page-differences")
    expect(facts).to_contain_text("First differencestep 2, tool results")
    expect(facts).to_contain_text("Steps+3 (+75 %)")
    tokens = family.kernel_value("f'Tokens+{run.branches[0].history.tokens - run.history.tokens:,}'").strip("'")
    expect(facts).to_contain_text(tokens)
    expect(facts).to_contain_text("turn limit, both")
    expect(facts).to_contain_text("max_turns 4 → 7")
    assert family.kernel_value("lab.diff(run, run.branches[0]).summary").startswith("'First difference: step 2, tool results.")
    pairs = live.get_by_role("feed", name="Two runs side by side")
    expect(pairs.get_by_role("article", name="Step 2")).to_contain_text("first difference: tool results")
    expect(pairs.get_by_role("article", name="Step 2")).to_be_in_viewport()
    family.picture("compare-live")


# The form ------------------------------------------------------------------------------------------------------------------------


def test_a_branch_from_the_prompt_with_another_agent(family: LabPage) -> None:
    family.live.get_by_role("feed", name="Transcript").press("Home")
    fields = form(family, 0)
    fields.get_by_label("Prompt").fill("Find the ledger, quickly.")
    fields.get_by_label("One more message to the model").fill("Look at the oldest first.")
    fields.get_by_role("combobox", name="Model").select_option("agent anthropic:claude-sonnet-4")
    fields.get_by_role("button", name="Branch", exact=True).click()
    is_shown(family, "model anthropic:claude-sonnet-4, another prompt")
    made = "(run.branches[0].origin.forked_at, run.branches[0].prompt, run.branches[0].messages[-1].text)"
    assert family.kernel_value(made) == "(0, 'Find the ledger, quickly.', 'Look at the oldest first.')"
    family.page.keyboard.press("Enter")  # Run has the focus
    family.wait_for_status(re.compile("^ended"))
    assert family.kernel_value("str(run.branches[0].result.stop_reason)") in ("'completed'", "'turn_limit'")


def test_what_is_typed_stays_after_an_error_and_while_the_transcript_moves(family: LabPage) -> None:
    fields = form(family, 3)
    fields.get_by_label("One more message to the model").fill("Keep this.")
    fields.get_by_role("combobox", name="Model").select_option("another model …")
    fields.get_by_label("Another model, as provider:model").fill("nobody:nothing")
    fields.get_by_role("button", name="Branch", exact=True).click()
    expect(fields.get_by_role("alert")).to_contain_text("nobody")
    assert family.kernel_value("run.branches") == "()"
    family.kernel_value("run.fork(1, message='made in code')")  # a run arrives
    expect(chips(family)).to_have_count(2)
    chips(family).nth(1).click()
    is_shown(family, 'message "made in code"')
    chips(family).nth(0).click()
    expect(item(family, 3).get_by_label("One more message to the model")).to_have_value("Keep this.")
    expect(item(family, 3).get_by_role("alert")).to_contain_text("nobody")
    item(family, 3).get_by_role("button", name="Cancel").click()
    expect(item(family, 3).get_by_role("button", name="Branch here")).to_be_focused()
    expect(form(family, 3).get_by_label("One more message to the model")).to_have_value("Keep this.")


def test_typing_is_not_disturbed_by_steps_that_arrive(lab: LabPage) -> None:
    page = opened(lab, 'pause_s = 0.1\nrun = agent("openai", "m", 10).run("?", budget=Budget(max_turns=400))\nlab.panel(run)')
    page.button("Run").click()
    page.wait_for_steps(3)
    page.live.get_by_role("feed", name="Transcript").press("Home")  # else the transcript follows the newest step
    fields = form(page, 2)
    box = fields.get_by_label("One more message to the model")
    box.click()
    before = int(page.kernel_value("len(run.history)"))
    box.press_sequentially("typed while it runs", delay=60)
    page.wait_for_steps(before + 10)
    expect(box).to_be_focused()
    expect(box).to_have_value("typed while it runs")
    expect(box).to_be_in_viewport()
    page.page.keyboard.press("Control+Enter")
    is_shown(page, 'message "typed while it runs"')
    assert page.kernel_value("run.branches[0].origin.forked_at") == "2"
    page.kernel_value("run.stop('enough')")


def test_by_keyboard_alone(family: LabPage) -> None:
    page, live = family.page, family.live
    live.get_by_role("feed", name="Transcript").focus()
    page.keyboard.press("Home")
    page.keyboard.press("j")
    expect(live.get_by_role("slider", name="Step", exact=True)).to_have_value("2")
    page.keyboard.press("b")
    expect(item(family, 2).get_by_label("Result of search")).to_be_focused()
    page.keyboard.press("Escape")
    button = item(family, 2).get_by_role("button", name="Branch here")
    expect(button).to_be_focused()
    expect(button).to_have_css("opacity", "1")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    is_shown(family, "the same from step 3")
    page.keyboard.press("[")  # the Run button has the focus
    is_shown(family, "openai:gpt-4.1-mini")
    assert family.kernel_value("run.branches[0].state.value") == "'ready'"


# Runs ----------------------------------------------------------------------------------------------------------------------------


def test_a_conversation_is_one_chip_and_the_kernel_follows_what_is_opened(family: LabPage) -> None:
    family.kernel_value(
        "[made := run] + [(made := made.fork(len(made.history), message=f'more {n}', budget=Budget(max_turns=5 + n)))"
        ".start().wait(20) for n in range(3)]"
    )
    expect(chips(family)).to_have_count(1)
    expect(chips(family).first).to_contain_text("message 1 of 4")
    chips(family).first.click()
    is_shown(family, "4 messages")
    family.wait_for_steps(7)
    live = family.live
    live.locator("[data-section=runs] > summary").click()
    table = live.locator("[data-section=runs] tbody tr")
    expect(table).to_have_count(4)
    table.nth(1).get_by_role("button").click()
    is_shown(family, "message 2 of 4")
    family.wait_for_steps(5)
    expect(live.locator(".page-in-code code")).to_have_text("branch = run.branches[0]")


MANY = "[run.fork(2, message=f'Look at the {n} oldest books of the archive first') for n in range(3)] and run.branches[2].fork(2)"


def test_the_first_run_stays_in_sight_beside_the_open_one_and_can_be_compared(family: LabPage) -> None:
    live, page = family.live, family.page
    family.kernel_value(MANY)
    expect(chips(family)).to_have_count(5)
    for width in (1440, 900):
        page.set_viewport_size({"width": width, "height": 900})
        for place in (4, 3):
            chips(family).nth(place).click()
            expect(chips(family).nth(place)).to_have_attribute("aria-current", "true")
            expect(live.locator(".page-in-code code")).to_have_text(re.compile("branches"))
            expect(chips(family).nth(place)).to_be_in_viewport(ratio=0.98)
            expect(chips(family).nth(0)).to_be_in_viewport(ratio=0.98)
            chips(family).nth(0).click(trial=True)  # nothing is above it
        family.picture(f"chips-{width}", of=live)
    page.set_viewport_size({"width": 1440, "height": 900})
    chips(family).nth(4).click()
    live.get_by_role("button", name="Compare", exact=True).click()
    names = live.get_by_label("Left run").locator("option")
    expect(names).to_have_count(5)
    expect(live.get_by_label("Right run").locator("option").first).to_have_text("openai:gpt-4.1-mini")
    live.get_by_label("Left run").select_option(label="openai:gpt-4.1-mini")
    expect(live.get_by_label("Left run").locator("option:checked")).to_have_text("openai:gpt-4.1-mini")
    right = live.get_by_label("Right run").locator("option:checked").inner_text()
    live.get_by_label("Right run").select_option(label="openai:gpt-4.1-mini")  # the one on the other side: they change places
    expect(live.get_by_label("Left run").locator("option:checked")).to_have_text(right)
    is_shown(family, "openai:gpt-4.1-mini")


def test_a_run_with_branches_does_not_scroll_the_notebook_back(lab: LabPage) -> None:
    run = 'pause_s = 0.1\nrun = agent("openai", "m", 10).run("?", budget=Budget(max_turns=400))\nbranch = run.fork(0)\nlab.panel(run)'
    lab.open(lab.jupyter.write_notebook("away", [MADE, run, *["# A cell\n" * 20] * 4]))
    lab.run_all()
    lab.button("Run").click()
    lab.wait_for_steps(10)  # by then the panel has its full height
    last = lab.cell(5)
    last.scroll_into_view_if_needed()
    before = last.bounding_box()
    steps = int(lab.kernel_value("len(run.history)"))
    lab.wait_for_kernel(f"len(run.history) > {steps + 10}", "True")
    assert last.bounding_box() == before
    lab.kernel_value("run.stop('enough')")


def test_a_branch_made_in_code_is_linked_at_a_step_in_view(family: LabPage) -> None:
    expect(item(family, 2)).to_be_in_viewport()
    family.kernel_value("run.fork(2, budget=Budget(max_turns=9))")
    link = item(family, 2).locator(".page-notes").get_by_role("button", name="max_turns 9")
    expect(link).to_be_visible()
    family.kernel_value("setattr(run.branches[0].limits, 'max_turns', 11)")
    link = item(family, 2).locator(".page-notes").get_by_role("button", name="max_turns 11")
    expect(link).to_be_visible()
    family.kernel_value("run.fork(0, prompt='Find the map.')")
    family.live.get_by_role("feed", name="Transcript").press("Home")
    expect(item(family, 0).locator(".page-notes").get_by_role("button", name="another prompt")).to_be_visible()
    link.click()
    is_shown(family, "max_turns 11")
    expect(item(family, 2).locator(".page-notes")).to_contain_text("this run branched off here")


# Side by side --------------------------------------------------------------------------------------------------------------------


def test_several_runs_side_by_side(row: LabPage) -> None:
    live = row.live
    columns = live.locator(".page-column")
    expect(columns).to_have_count(3)
    expect(columns.nth(0)).to_contain_text("idle")
    row.button("Run all").click()
    expect(columns.nth(0)).to_contain_text("completed", timeout=60_000)
    expect(columns.nth(0)).to_contain_text("It is in the old ledger: page 12.")
    expect(columns.nth(1)).to_contain_text("It is in the old ledger: page 12.")
    expect(columns.nth(2)).to_contain_text("running")
    expect(columns.nth(2)).to_contain_text("Step 6")
    expect(live.locator(".page-chart").first.locator(".page-curve")).to_have_count(3)
    assert live.evaluate("page => page.scrollHeight <= 700 && page.querySelector('.page-columns').scrollHeight <= 700")
    for theme, name in ((LIGHT, "light"), (DARK, "dark")):
        row.use_theme(theme)
        row.page.wait_for_timeout(500)
        row.picture(f"side-by-side-{name}", of=live)
        assert faults(row.page, ".agentlab-page", only=COLOURS if theme == DARK else None) == []
    row.use_theme(LIGHT)
    columns.nth(1).get_by_role("button", name="anthropic:claude-sonnet-4").click()
    expect(live.get_by_role("feed", name="Transcript")).to_be_visible()
    is_shown(row, "anthropic:claude-sonnet-4")
    expect(live.locator(".page-in-code code")).to_have_text("runs[1]")
    live.get_by_role("button", name="Side by side").click()
    expect(columns.nth(1)).to_be_visible()
    row.button("Stop all").click()
    expect(columns.nth(2)).to_contain_text("explicit stop")


def test_a_failed_call_is_not_cut_in_a_column(lab: LabPage) -> None:
    wrong = ROW.replace("pause_s = 0.25", "search.__annotations__['query'] = int\npause_s = 0.05")
    live = opened(lab, wrong).live
    lab.button("Run all").click()
    outcome = live.locator(".page-column .agentlab-call-outcome").first
    expect(outcome).to_contain_text("failed: invalid_arguments")
    cut = """outcomes => outcomes.filter(one => one.scrollWidth > one.clientWidth
        || one.getBoundingClientRect().right > one.closest('.page-column-body').getBoundingClientRect().right)
        .map(one => one.textContent)"""
    assert live.locator(".page-column .agentlab-call-outcome").evaluate_all(cut) == []
    lab.kernel_value("[run.stop('enough') for run in runs]")


def test_side_by_side_in_a_narrow_window_shows_name_state_and_the_last_answer(row: LabPage) -> None:
    row.kernel_value("[run.start().wait(60) for run in runs[:2]] and 1")
    columns = row.live.locator(".page-column")
    expect(columns.nth(1)).to_contain_text("completed", timeout=60_000)
    for width in (900, 1200):
        row.page.set_viewport_size({"width": width, "height": 900})
        answer = columns.nth(1).get_by_text("It is in the old ledger: page 12.")
        expect(answer).to_have_count(1)
        columns.nth(1).scroll_into_view_if_needed()
        for part in (columns.nth(1).locator("h3"), columns.nth(1).locator(".page-column-state"), answer):
            expect(part).to_be_in_viewport(ratio=0.9)
        box = columns.nth(1).bounding_box()
        assert box and box["width"] >= 190
        columns.nth(2).scroll_into_view_if_needed()
        expect(columns.nth(2).locator("h3")).to_be_in_viewport(ratio=0.9)


def test_two_live_runs_are_compared_while_they_run(row: LabPage) -> None:
    live = row.live
    row.button("Run all").click()
    expect(live.locator(".page-column").nth(2)).to_contain_text("Step 4")
    live.get_by_role("button", name="Compare", exact=True).click()
    live.get_by_label("Right run").select_option(label="gemini:gemini-2.5-flash")
    live.get_by_label("Left run").select_option(label="anthropic:claude-sonnet-4")
    facts = live.locator(".page-differences")
    expect(facts).to_contain_text("Limitsmax_turns 99 → 100000")
    expect(facts).to_contain_text("completed → running", timeout=60_000)
    expect(live.get_by_role("feed", name="Two runs side by side")).to_contain_text("first difference")
    row.kernel_value("[run.stop('enough') for run in runs]")
