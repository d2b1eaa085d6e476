"""The page of a run whose tool is another agent, in a real JupyterLab: its sub-agents are listed and can be edited while they run."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from .lab_page import DARK, LabPage
from .panels import BEGUN_AFTER
from .test_branching import chips, is_shown, item

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
    page.set_viewport_size({"width": 1440, "height": 900})
    lab.open(lab.jupyter.write_notebook("calling", [CALLING]))
    lab.run_all()
    lab.live.evaluate("page => page.scrollIntoView()")
    lab.button("Run").click()
    expect(chips(lab)).to_have_count(2)
    child = chips(lab).nth(1)
    expect(child).to_have_attribute("title", re.compile("sub-agent of boss, running"))
    child.click()
    lab.wait_for_status("inner:script")
    expect(lab.live.locator(".page-in-code code")).to_have_text("child = run.children[0]")
    lab.wait_for_steps(3)
    assert lab.kernel_value("(str(run.state), str(run.children[0].state))") == "('running', 'running')"

    limit = lab.live.get_by_role("textbox", name="max_turns", exact=True)
    expect(limit).to_have_value("90,000")
    limit.fill("5")
    limit.press("Tab")
    end = lab.live.locator("[data-section=end]")
    expect(end).to_contain_text("turn limit")
    begun_after = BEGUN_AFTER.replace("run.events", "run.children[0].events")
    steps = int(lab.kernel_value("len(run.children[0].history)"))
    assert steps == 5 or lab.kernel_value(begun_after) == "0", "the limit took effect long after it was set"
    assert lab.kernel_value("(run.children[0].limits.max_turns, run.limits.max_turns)") == "(5, 20)"

    chips(lab).nth(0).click()
    is_shown(lab, "boss")
    expect(end).to_contain_text("completed")
    expect(item(lab, 1)).to_contain_text("sub-agent research-1")
    item(lab, 1).get_by_text("research", exact=True).first.click()
    expect(item(lab, 1)).to_contain_text(re.compile(r"Sub-agent research-1: turn limit, \d+ steps, [\d,]+ tokens, \$0\.\d+"))
    lab.live.locator("[data-section=runs] > summary").click()
    rows = lab.live.locator("[data-section=runs] tbody tr")
    expect(rows.nth(1)).to_contain_text("turn limit, sub-agent")
    lab.use_theme(DARK)
    lab.picture("sub_agents")
    item(lab, 1).locator(".page-notes").get_by_role("button", name="research-1").click()
    is_shown(lab, "research-1")
