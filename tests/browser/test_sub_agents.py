"""The panel of a run whose tool is another agent, in a real JupyterLab: its sub-agents are listed and can be edited while they run."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from .lab_page import DARK, LabPage
from .panels import BEGUN_AFTER
from .test_branching import box, in_tab

PICTURES = Path(__file__).parents[2] / "test-output"  # screenshots for review

CALLING = """
import asyncio
import agentlab as lab
from agentlab import Budget
from agentlab.testing import ScriptedProvider, call, say

async def search(query: str) -> str:
    "Search the archive."
    await asyncio.sleep(0.2)
    return f"nothing about {query}"

searcher = lab.Agent(
    ScriptedProvider(lambda request, index: call("search", {"query": f"try {index}"}, tokens=(90, 10), cost=0.001), name="inner"),
    tools=[search], name="searcher",
)
boss = lab.Agent(
    ScriptedProvider([call("research", {"task": "Find the ledger."}, tokens=(40, 10)), say("It is not there.", tokens=(80, 10))]),
    tools=[searcher.as_tool("research", "Searches the archive.", budget=Budget(max_turns=90_000))], name="boss",
)
run = boss.run("Where is the ledger?", budget=Budget(max_tokens=10**9))
run.panel()
"""


def test_a_running_sub_agent_is_opened_and_its_limit_lowered(lab: LabPage) -> None:
    page = lab.page
    lab.open(lab.jupyter.write_notebook("calling", [CALLING]))
    lab.run_all()
    lab.button("Run").click()
    strip = page.locator(".agentlab-strip").locator("visible=true")
    expect(strip).to_contain_text("Run 1: the first of its family, with 1 other run")

    in_tab(lab, "Branches")
    row = page.locator(".agentlab-family tr", has_text="1.1").locator("visible=true")
    expect(row).to_contain_text("called by 1 in step 1")
    expect(row).to_contain_text("sub-agent searcher")
    expect(row).to_contain_text("running")
    box(lab, "Show run").select_option(label="1.1  sub-agent searcher")
    expect(strip).to_contain_text("Run 1.1: sub-agent searcher, called by run 1 in step 1")

    page.wait_for_timeout(500)
    assert lab.kernel_value("(str(run.state), str(run.children[0].state))") == "('running', 'running')"
    limit = page.get_by_role("spinbutton", name="max_turns", exact=True).locator("visible=true")
    expect(limit).to_have_value("90000")
    limit.fill("5")
    limit.press("Tab")
    end = page.locator(".agentlab-end").locator("visible=true").first
    expect(end).to_contain_text("turn_limit")
    begun_after = BEGUN_AFTER.replace("run.events", "run.children[0].events")
    steps = int(lab.kernel_value("len(run.children[0].history)"))
    assert steps == 5 or lab.kernel_value(begun_after) == "0", "the limit took effect long after it was set"
    assert lab.kernel_value("(run.children[0].limits.max_turns, run.limits.max_turns)") == "(5, 20)"

    lab.button("Back to run 1").locator("visible=true").click()
    expect(end).to_contain_text("completed")
    in_tab(lab, "Branches")
    tree = page.get_by_alt_text(re.compile("^Tree of 2 runs")).locator("visible=true")
    expect(tree).to_have_attribute("alt", re.compile(r"1\.1 +sub-agent inner:script called by 1 at step 1"))
    lab.use_theme(DARK)
    lab.screenshot(PICTURES / "sub_agents_tree.png")

    in_tab(lab, "Steps")
    table = page.locator(".agentlab-steps tr[data-step='1']").locator("visible=true")
    expect(table).to_contain_text(str(lab.kernel_value("f'{run.history[0].all_tokens:,}'")).strip("'"))
    lab.wait_for_pointer()
    table.click()
    detail = page.locator(".agentlab-tool").locator("visible=true")
    expect(detail).to_contain_text(re.compile(r"sub-agent\s*research-1: turn limit, \d+ steps, [\d,]+ tokens, \$0\.\d+, run "))
    lab.screenshot(PICTURES / "sub_agents_step.png")
