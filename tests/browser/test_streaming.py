"""The step under way in a real JupyterLab: it streams in without jumping, and the step takes its place."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from .lab_page import LabPage

STREAM = r'''
import asyncio
from dataclasses import replace
import agentlab as lab
from agentlab.testing import call, say

BLOCK = """## Part {n}

It is **certain** that it rains in part {n}, and a longer sentence follows, so that it wraps somewhere in the middle of the page.

| city | rain |
|---|---|
| Graz {n} | 80 % |

```python
def part(x):
    return x + {n}
```

"""
TEXT = "".join(BLOCK.format(n=n) for n in range(1, 41))
sent, allowed, working = 0, 0, True

class Speaker:
    """Says its text as far as it is allowed to."""
    name, model = "speaker", "aloud"

    async def respond(self, request, context):
        global sent
        if context.index < 3:
            return call("search", {"query": f"try {context.index}"}, tokens=(200, 20))
        sent = 0
        while sent < len(TEXT):
            await asyncio.sleep(0.01)
            more = TEXT[sent : min(allowed, sent + 60)]
            sent += len(more)
            if more:
                context.on_text(more)
        return replace(call("search", {"query": "the end"}, tokens=(200, 20)), text=TEXT)

async def search(query: str) -> str:
    "Search the archive."
    while working and query == "the end":
        await asyncio.sleep(0.02)
    return f"nothing about {query}"

run = lab.Agent(Speaker(), tools=[search]).run("Find it.", stop=lab.StepCountIs(3))
run.panel()
'''
PART = 250  # characters, about


@pytest.fixture
def speaking(lab: LabPage) -> LabPage:
    """A run that streams its third step as far as the test allows."""
    lab.open(lab.jupyter.write_notebook("stream", [STREAM]))
    lab.run_cell(0)
    lab.button("Run").click()
    lab.wait_for_steps(2)
    return lab


def allow(page: LabPage, parts: int) -> None:
    """Let the model say so many parts, and wait until the last one is on the page."""
    page.kernel_value(f"globals().update(allowed=TEXT.index('## Part {parts + 1}') if {parts} < 40 else len(TEXT))")
    under_way(page).locator("h4", has_text=f"Part {parts}").last.wait_for(state="attached")  # `expect` would describe the page


def under_way(page: LabPage) -> Locator:
    return page.live.locator(".page-item.live")


def scroller(page: LabPage) -> Locator:
    return page.live.get_by_role("feed", name="Transcript")


def left_below(page: LabPage) -> float:
    """Pixels of the transcript below what is visible."""
    return float(scroller(page).evaluate("one => one.scrollHeight - one.clientHeight - one.scrollTop"))


def top_of(what: Locator) -> float:
    box = what.bounding_box()
    assert box is not None
    return box["y"]


def test_the_answer_is_rendered_while_it_streams_and_the_end_stays_in_view(speaking: LabPage) -> None:
    for parts in (1, 4, 9):
        allow(speaking, parts)
        assert left_below(speaking) < 2
    expect(under_way(speaking)).to_contain_text("Step 3")
    expect(under_way(speaking)).to_contain_text("streaming")
    expect(under_way(speaking).locator("td", has_text="Graz 9")).to_be_visible()
    expect(under_way(speaking).locator("pre .k").first).to_have_text("def")
    assert speaking.live.get_by_role("article", name="Step 3, streaming").count() == 1


def test_who_has_scrolled_up_sees_nothing_move(speaking: LabPage) -> None:
    allow(speaking, 6)
    read = under_way(speaking).get_by_role("heading", name="Part 3", exact=True)
    read.scroll_into_view_if_needed()
    scroller(speaking).hover()
    speaking.page.mouse.wheel(0, -120)
    speaking.page.wait_for_timeout(400)
    before = top_of(read)
    for parts in (9, 15, 40):
        allow(speaking, parts)
        assert abs(top_of(read) - before) < 1
    expect(under_way(speaking).locator(".agentlab-call-outcome")).to_contain_text("running")
    assert abs(top_of(read) - before) < 1
    speaking.kernel_value("globals().update(working=False)")
    step = speaking.live.get_by_role("article", name="Step 3", exact=True)
    step.wait_for(state="attached")
    expect(step.locator(".agentlab-call-outcome")).to_contain_text("done")
    assert abs(top_of(step.get_by_role("heading", name="Part 3", exact=True)) - before) < 1
    expect(under_way(speaking)).to_have_count(0)


def test_the_step_takes_the_place_of_what_streamed_at_the_end(speaking: LabPage) -> None:
    allow(speaking, 40)
    outcome = under_way(speaking).locator(".agentlab-call-outcome")
    expect(outcome).to_contain_text("running")
    expect(outcome).not_to_have_text(outcome.inner_text())
    expect(outcome).to_have_text(re.compile(r"^running \d+ s$"))
    assert left_below(speaking) < 2
    under_way(speaking).locator(".agentlab-call summary").click()
    expect(under_way(speaking).locator(".agentlab-args")).to_contain_text('"the end"')
    scroller(speaking).hover()
    speaking.page.mouse.wheel(0, 2_000)  # back to the end
    speaking.page.wait_for_timeout(400)
    speaking.kernel_value("globals().update(working=False)")
    speaking.live.get_by_role("article", name="Step 3", exact=True).wait_for(state="attached")
    assert left_below(speaking) < 2
    call = speaking.live.get_by_role("article", name="Step 3", exact=True).locator(".agentlab-call")
    expect(call).to_have_attribute("open", "")
    expect(speaking.live.locator(".page-item.end")).to_be_in_viewport()


def test_details_come_when_they_are_unfolded(speaking: LabPage) -> None:
    step = speaking.live.get_by_role("article", name="Step 2", exact=True)
    details = step.locator("details.page-more")
    assert details.locator(".page-detail").inner_html() == ""
    details.locator("summary").first.press("Enter")
    expect(details.locator("[data-section=calls]")).to_be_visible()
