"""The file that `run.to_html` writes, in a real browser: it shows what the run did, and hostile texts in it do nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from inert import HOSTILE, hostile_run, to_the_end
from playwright.sync_api import Page, expect

import agentlab as lab
from agentlab import Budget, HasToolCall, StepCountIs
from agentlab.agent import Run

from .axe import faults_in_both_schemes

FIXTURES = Path(__file__).parents[2] / "fixtures"

OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
ACTING = "document.querySelectorAll('.agentlab-page :is(script, iframe, object, embed, form, svg script, [onerror], [onload], "
ACTING += 'a[href^="javascript" i], img:not([src^="data:image/"]))\').length'


def trip() -> Run:
    """A replayed run with two branches."""
    from fixtures.scenarios import SCENARIOS

    scenario = next(one for one in SCENARIOS if one.name == "trip")
    with lab.replay(FIXTURES / "trip", match="order"):
        run = to_the_end(scenario.agent("anthropic").run(scenario.prompt, stop=HasToolCall("finalize") | StepCountIs(8)))
    with lab.replay(FIXTURES / "trip", match="order"):
        to_the_end(run.fork(at=2, budget=Budget(max_turns=3)))
    run.fork(at=1, tool_results={run.history[0].tool_calls[0].id: '{"city":"Graz","sky":"sunny"}'})
    return run


@pytest.fixture
def show(open_file: Callable[..., Page], tmp_path: Path) -> Callable[[Run], Page]:
    """Opens the file of a run."""

    def opened(run: Run) -> Page:
        page = open_file(run.to_html(tmp_path / "run.html", raw=True))
        expect(page.locator(".page-item").first).to_be_visible()
        return page

    return opened


def test_a_run_and_its_branches(show: Callable[[Run], Page]) -> None:
    page = show(trip())
    first = page.get_by_role("article", name="Step 1", exact=True)
    first.locator("details.agentlab-call").first.locator("summary").click()
    expect(first.locator(".agentlab-result").first).to_contain_text('"sky": "rain"')
    runs = page.get_by_role("navigation", name="Runs")
    expect(runs.get_by_role("button")).to_have_count(3)
    runs.get_by_role("button", name="max_turns 3", exact=True).click()
    for number in (1, 2, 3):  # two of them are in the file with the run that they come from
        expect(page.get_by_role("article", name=f"Step {number}", exact=True)).to_contain_text(
            "get_weather" if number == 1 else "find_trains"
        )
    expect(page.locator("[data-section=actions]")).to_contain_text("Raise the turn limit to 6 and continue")
    runs.get_by_role("button", name="edited result of get_weather at step 1", exact=True).click()
    expect(first).to_contain_text("edited in this branch")


def test_axe_finds_nothing_serious(show: Callable[[Run], Page]) -> None:
    page = show(trip())
    page.evaluate(OPEN_ALL)
    assert faults_in_both_schemes(page, ".agentlab-page") == []


@pytest.mark.filterwarnings("ignore::agentlab.errors.AgentlabWarning")
def test_hostile_texts_do_nothing(show: Callable[[Run], Page]) -> None:
    page = show(hostile_run("".join(HOSTILE.values())))
    for name in page.get_by_role("navigation", name="Runs").get_by_role("button").all():
        name.click()
        for _ in range(6):
            page.evaluate(OPEN_ALL)
            page.keyboard.press("PageDown")
        page.wait_for_timeout(300)
        assert page.evaluate("window.owned === undefined && document.title !== 'owned'")
        assert page.evaluate(ACTING) == 0
        assert page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]") == [1440, 900]
