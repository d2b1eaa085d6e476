"""The timeline tab: which part of a run it shows, when it is drawn, and its description in words."""

from __future__ import annotations

import asyncio
import html
import re

import pytest
from measured_work import calls_in
from thread_tools import drawn

import agentlab as lab
from agentlab import Budget
from agentlab.agent import Run
from agentlab.notebook.panel.pictures import timeline_picture
from agentlab.notebook.panel.run_view import Panel
from agentlab.plots.run_timeline import MAX_EVENTS, MAX_STEPS, timeline_part
from agentlab.testing import ScriptedProvider, call, say

HOSTILE = '"><script>alert(1)</script><img src=x onerror="alert(2)">'


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


async def search(query: str) -> str:
    """Search."""
    return "nothing"


def run_of(steps: int) -> Run:
    model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}))
    run = lab.Agent(model, tools=[search]).run("Find it.", budget=Budget(max_turns=steps))
    asyncio.run(_to_the_end(run))
    return run


async def _to_the_end(run: Run) -> None:
    await run


def alt_of(shown: str) -> str:
    found = re.search(r'<img [^>]*alt="([^"]*)"', shown)
    assert found is not None
    return html.unescape(found[1])


@pytest.mark.parametrize(("steps", "first", "whole"), [(1, 1, True), (MAX_STEPS, 1, True), (MAX_STEPS + 1, 2, False)])
def test_only_the_newest_steps_are_shown(steps: int, first: int, whole: bool) -> None:
    part = timeline_part(run_of(steps))
    assert (part.first, part.last, part.whole) == (first, steps, whole)
    assert part.frame["event"].iloc[0] == "RunStarted", "it names the model"
    assert part.frame["event"].iloc[-1] == "RunEnded"


def test_a_long_run_shows_the_steps_around_the_chosen_one() -> None:
    run = run_of(300)
    part = timeline_part(run, 100)
    assert part.has(100) and part.first > 1 and part.last < 300
    assert part.last - part.first < MAX_STEPS
    assert part.begin_s == run.history[part.first - 1].started_s
    description = timeline_picture(run, 100).about
    assert f"Steps {part.first} to {part.last} of 300" in description and "Step 100 is the one you chose" in description
    assert "still running" not in timeline_picture(run, 100).alt


def test_a_step_of_very_many_tools_is_cut() -> None:
    many = [call("search", {"query": str(number)}, id=f"id{number}").tool_calls[0] for number in range(MAX_EVENTS)]
    run = lab.Agent(ScriptedProvider([say(calls=many), say("done")]), tools=[search]).run("Find it.", budget=Budget(max_turns=1))
    asyncio.run(_to_the_end(run))
    part = timeline_part(run)
    assert len(part.frame) <= MAX_EVENTS + 1
    assert (part.first, part.last, part.whole) == (1, 1, False)
    assert "Step 1 of 1" in timeline_picture(run).about


def test_the_cost_does_not_grow_with_the_run() -> None:
    def calls(run: Run) -> int:
        timeline_part(run)
        return calls_in(lambda: timeline_part(run))

    assert calls(run_of(3000)) < 1.2 * calls(run_of(MAX_STEPS))


def test_a_step_before_the_branch_is_said_to_be_in_the_parent() -> None:
    branch = run_of(4).fork(2)
    asyncio.run(_to_the_end(branch))
    assert "Step 1 is not here: it was taken before the branch" in timeline_picture(branch, 1).about
    assert "Step 3 is the one you chose" in timeline_picture(branch, 3).about


def test_it_is_drawn_only_if_its_tab_is_open_and_something_changed() -> None:
    panel = Panel(run_of(3))
    view = panel.run_view.timeline
    assert view.picture.value == ""
    panel.run_view.tabs.selected_index = 1
    drawn(panel)
    first = view.picture.value
    assert alt_of(first).startswith("Timeline of 1 run; scripted:script: 3 steps, 3 calls, 3 tools, ended after")
    drawn(panel)
    assert view.picture.value is first
    panel.run_view.state.choose(2)
    drawn(panel)
    assert "Step 2 is the one you chose" in alt_of(view.picture.value)


def test_a_run_that_has_not_started_says_so() -> None:
    run = lab.Agent(ScriptedProvider(["x"])).run("go")
    assert timeline_picture(run).alt == "Timeline: no events yet."


def test_hostile_names_are_text() -> None:
    run = lab.Agent(ScriptedProvider([call(HOSTILE), say("done")], name=HOSTILE, model=HOSTILE)).run("go")
    asyncio.run(_to_the_end(run))
    shown = timeline_picture(run).as_html()
    assert "<script>" not in shown and shown.count("<img ") == 1
