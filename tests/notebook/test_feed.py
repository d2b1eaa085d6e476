"""What goes to the page: everything once, then what is new, and texts when they are asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from live_page import LivePage
from measured_work import calls_in
from thread_tools import drawn, undisturbed

import agentlab as lab
from agentlab import Budget, StepCountIs
from agentlab.agent import Run
from agentlab.errors import ConfigurationError
from agentlab.limits.reading import Remaining
from agentlab.notebook.page.data import page_data
from agentlab.notebook.panel import coming, feed
from agentlab.notebook.panel.actions import live_data
from agentlab.notebook.panel.feed import NEWEST, Feed
from agentlab.records.events import Event, StepCompleted, StepStarted, StopReasonObserved
from agentlab.testing import ScriptedProvider, call, say


def search(query: str) -> str:
    """Search the archive."""
    return f"nothing about **{query}**"


def made(steps: int = 1_000, taken: int = 0, **more: Any) -> Run:
    """A run that searches in each of its steps, of which some are taken."""
    asked = lambda number: call("search", {"query": f"try {number}"}, tokens=(100, 10), cost="0.001").tool_calls  # noqa: E731
    script = lambda request, number: say(  # noqa: E731
        f"Step {number}, *here*.", calls=asked(number), finish=lab.FinishReason.TOOL_CALLS, tokens=(100, 10), cost="0.001"
    )
    budget = Budget(max_turns=2_000, max_tokens=10**9)
    run = lab.Agent(ScriptedProvider(script), tools=[search]).run("Find it.", stop=StepCountIs(steps), budget=budget, **more)
    take(run, taken)
    return run


def take(run: Run, steps: int = 1) -> None:
    async def main() -> None:
        for _ in range(steps):
            await run.step()

    asyncio.run(main())


def opened(*runs: Run) -> LivePage:
    return LivePage(lab.panel(runs))


def news(page: LivePage) -> Any:
    """What one drawing sends; the drawings of the panel's own thread count as one with it."""
    before = len(page.messages)
    drawn(page.panel)
    return page.messages[before:]


# Everything, then what is new -----------------------------------------------------------------------------------------------


def test_a_page_has_in_the_end_what_a_file_has() -> None:
    run = made(steps=7)
    page = opened(run)
    for _ in range(7):
        take(run)
        drawn(page.panel)
    branch = run.fork(at=3, stop=StepCountIs(5))
    take(branch, 2)
    drawn(page.panel)
    whole = {one["id"]: one for one in page_data([run], "")["runs"]}
    assert [*page.runs] == [*whole]
    for run_id, file in whole.items():
        live = page.runs[run_id]
        for name in ("name", "agent", "model", "parent", "forked_at", "state", "prompt_html", "totals", "limits", "end", "marks"):
            assert live[name] == file[name], name
        assert [step["html"] for step in live["steps"].values()] == [step["html"] for step in file["steps"]]
        for live_step, step in zip(live["steps"].values(), file["steps"], strict=True):
            assert {name: step[name] for name in live_step if name != "size"} == {
                name: value for name, value in live_step.items() if name != "size"
            }
            assert "details" not in live_step


def test_a_step_is_sent_with_what_has_changed_only() -> None:
    run = made(taken=3)
    page = opened(run)
    drawn(page.panel)
    before = len(page.messages)
    with undisturbed(page.panel):
        take(run)
        page.panel._draw()
    (message,) = page.messages[before:]
    assert {*message["runs"][run.id]} <= {"totals", "readings"}
    assert [step["n"] for step in message["steps"][run.id]] == [4]
    assert news(page) == []


def test_a_changed_limit_is_sent_with_all_limits() -> None:
    run = made(taken=1)
    page = opened(run)
    run.limits.max_turns = 7
    drawn(page.panel)
    assert [row["limit"] for row in page.of(run)["limits"] if "max_turns" in row["with"]] == [7]
    assert [mark["text"] for mark in page.of(run)["marks"]] == ["max_turns 2000 → 7 (by code)"]
    take(run)
    drawn(page.panel)
    assert [row["value"] for row in page.of(run)["limits"] if "max_turns" in row["with"]] == [2]


def test_a_branch_is_sent_without_the_steps_of_its_parent() -> None:
    run = made(taken=6)
    page = opened(run)
    branch = run.fork(at=4)
    take(branch, 2)
    drawn(page.panel)
    sent = [row["n"] for message in page.messages for row in message.get("steps", {}).get(branch.id, ())]
    assert sorted({*sent}) in ([4, 5, 6], [5, 6]), "the last one that it keeps may be another object"
    assert [step["html"] for step in page.steps(branch)[:4]] == [step["html"] for step in page.steps(run)[:4]]


def test_why_the_run_ended_is_written_on_its_last_step() -> None:
    run = made(taken=2)
    page = opened(run)
    assert "stop_reason" not in page.steps(run)[1]
    run.stop("enough")
    drawn(page.panel)
    assert page.steps(run)[1]["stop_reason"] == "explicit_stop"
    assert page.of(run)["end"]["detail"] == "Stopped by the person: enough"


@pytest.fixture
def _steps_are_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coming, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(coming, "WAITS_AFTER_S", 0.0)


@pytest.mark.usefixtures("_steps_are_shown_at_once")
def test_a_step_that_is_complete_is_not_shown_as_under_way_too() -> None:
    run, shown = made(), []

    def look(event: Event) -> None:  # before the panel has the event, such as a store that is slow
        drawn(page.panel)
        shown.append(((page.of(run)["live"] or {}).get("n"), len(page.steps(run))))

    run.observe(lambda event: look(event) if type(event) in (StopReasonObserved, StepCompleted) else None)
    page = opened(run)
    with undisturbed(page.panel):
        take(run, 2)
    assert shown == [(1, 0), (None, 1), (2, 1), (None, 2)]


@pytest.mark.usefixtures("_steps_are_shown_at_once")
def test_a_step_that_ends_during_a_drawing_is_under_way_until_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(taken=2)
    page = opened(run)

    def late(one: Run) -> Any:
        monkeypatch.setattr(feed, "live_data", live_data)
        take(run)
        return live_data(one)

    with undisturbed(page.panel):
        page.panel.feed.of(run).take(StepStarted(0.0, 3, Remaining()))
        page.panel._draw()
        monkeypatch.setattr(feed, "live_data", late)
        page.panel._draw()
        assert (page.of(run)["live"]["n"], len(page.steps(run))) == (3, 2)
        page.panel._draw()
        assert (page.of(run)["live"], len(page.steps(run))) == (None, 3)


def test_time_alone_is_not_sent_since_the_page_has_a_clock() -> None:
    sent: list[Any] = []

    async def wait() -> str:
        """Wait."""
        drawn(page.panel)
        for _ in range(2):
            before = len(page.messages)
            await asyncio.sleep(0.01)
            drawn(page.panel)
            sent.extend(page.messages[before:])
        return "done"

    run = lab.Agent(ScriptedProvider([call("wait", {}), "end"]), tools=[wait]).run("go", budget=Budget(max_turns=5))
    page = opened(run)
    with undisturbed(page.panel):
        take(run)
        assert (sent, page.of(run)["ticks"]) == ([], True)
        page.panel._draw()
    assert page.of(run)["ticks"] is False
    assert page.of(run)["totals"]["elapsed_s"] == pytest.approx(run.timeline.clock.elapsed_s(), abs=1e-4)


def test_runs_of_one_name_are_told_apart() -> None:
    one, two = made(), made()
    page = opened(one, two)
    drawn(page.panel)
    assert [run["name"] for run in page.runs.values()] == [one.agent.name, f"{one.agent.name} (2)"]


@pytest.mark.parametrize("ended", [False, True])
def test_the_work_of_a_drawing_does_not_grow_with_the_run(ended: bool) -> None:
    def work(steps: int) -> int:
        run = made(steps=steps + 1 if ended else 2_000, taken=steps)
        found = Feed((run,))
        found.news()
        take(run)
        return calls_in(found.news)

    assert work(800) <= 1.5 * work(40)


def test_branches_that_have_ended_cost_next_to_nothing() -> None:
    run = made(taken=3)
    found = Feed((run,))
    found.news()
    take(run)
    alone = calls_in(found.news)
    for _ in range(30):
        take(run.fork(at=2, stop=StepCountIs(3)), 1)
    found.news()
    take(run)
    assert calls_in(found.news) <= alone + 30 * 250


# What the page asks for -----------------------------------------------------------------------------------------------------


def test_texts_are_sent_of_the_newest_steps_and_of_others_when_they_are_asked_for() -> None:
    run = made(taken=NEWEST + 20)
    page = opened(run)
    assert [step["n"] for step in page.steps(run) if "html" in step] == [*range(21, NEWEST + 21)]
    assert all(step["size"] > 0 for step in page.steps(run)[:20])
    (one, two) = page.ask("steps", run, steps=[3, 7])
    assert (one["n"], two["n"]) == (3, 7)
    assert "<em>here</em>" in one["html"] and "try 3" in one["html"]
    assert {*one} == {"n", "html", "reads", "spans"}


def test_details_are_sent_when_they_are_unfolded() -> None:
    run = made(taken=2)
    page = opened(run)
    assert 'data-section="calls"' in page.ask("details", run, step=2)


@pytest.mark.parametrize("asked", [[0], [-1], [3], ["1"], [None], [1.0], [[1]], [10**9]])
def test_steps_that_are_not_there_are_left_out(asked: list[Any]) -> None:
    run = made(taken=2)
    page = opened(run)
    assert page.ask("steps", run, steps=asked) == []
    assert page.ask("details", run, step=asked[0]) == ""


def test_a_search_finds_what_the_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(taken=60)
    page = opened(run)
    monkeypatch.setattr(feed, "SEARCH_S", 10.0)  # a loaded machine needs longer than a tenth of a second for 60 steps
    assert page.ask("search", run, query="TRY 12", **{"from": 1}) == {"found": [12], "next": None}
    assert page.ask("search", run, query="step 33, here", **{"from": 1})["found"] == [33], "as rendered, not as written"
    assert page.ask("search", run, query="agentlab-call", **{"from": 1})["found"] == [], "no markup"
    monkeypatch.setattr(feed, "SEARCH_S", 0.0)
    found, at, answers = [], 1, 0
    while at is not None:
        answer = page.ask("search", run, query="try", **{"from": at})
        found, at, answers = found + answer["found"], answer["next"], answers + 1
        if answers == 3:
            monkeypatch.setattr(feed, "SEARCH_S", 10.0)  # otherwise a slow machine asks forever
    assert (found, answers) == ([*range(1, 61)], 4)


@pytest.mark.parametrize("message", [{"do": "nonsense"}, {"do": "steps", "run": "another"}, {"do": "__class__"}])
def test_an_unknown_command_or_run_is_refused_in_words(message: dict[str, Any]) -> None:
    run = made(taken=1)
    page = opened(run)
    with pytest.raises(ConfigurationError, match=r"no such command|is not one of this panel's runs"):
        page.panel.carry_out({"run": run.id, **message})


# Pages ----------------------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_and_nobody_attends_before_a_page_is_there() -> None:
    run = made(taken=1)
    panel = run.panel()
    sent: list[Any] = []
    panel.widget.send = lambda content, buffers=None: sent.append(content)
    drawn(panel)
    assert (sent, run.control.attended) == ([], False)
    panel.carry_out({"do": "hello", "page": "a"})
    assert (len(sent), run.control.attended) == (1, True)
    branch = run.fork(at=1)
    assert branch.control.attended
    panel.carry_out({"do": "bye", "page": "a"})
    assert (run.control.attended, branch.control.attended) == (False, False)
    before = len(sent)
    take(run)
    drawn(panel)
    assert len(sent) == before


def test_a_second_page_gets_everything_and_the_first_nothing_twice() -> None:
    run = made(taken=2)
    run.limits.max_turns = 9
    take(run)
    one = opened(run)
    take(run)
    two = LivePage(one.panel, "two")
    for page in (one, two):
        assert len(page.steps(run)) == 4
        assert len(page.of(run)["marks"]) == 1
    assert sum(message.get("page") == "two" for message in one.messages) == 0
    take(run)
    drawn(one.panel)
    assert one.runs == two.runs
    one.panel.carry_out({"do": "bye", "page": "page"})
    assert run.control.attended, "the other page is still there"


def test_an_error_while_drawing_is_shown_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = made(taken=1), made(taken=1)
    page = opened(run, other)
    take(run)
    take(other)
    drawn(page.panel)
    take(run)

    def broken(one: Run) -> Any:
        if one is other:
            raise ValueError("no buttons today")
        return live_data(one)

    with monkeypatch.context() as patched:
        patched.setattr(feed, "live_data", broken)
        page.panel._draw_safely()
    assert page.messages[-1]["fault"] == "The panel could not be drawn: ValueError: no buttons today"
    page.panel._draw_safely()
    assert [len(page.steps(one)) for one in (run, other)] == [3, 2]


def test_messages_are_json_whatever_the_run_holds() -> None:
    model = ScriptedProvider([say("\ud83d half, \x00 nul, \u202e turned", cost=float("inf")), "end"])
    run = lab.Agent(model).run("go \ud83d")
    take(run)
    page = opened(run)
    json.dumps(page.messages, allow_nan=False).encode()


@pytest.mark.parametrize("of", [lambda run: run.panel(), lambda run: lab.panel([run, made()])])
def test_a_panel_opened_late_shows_a_run_that_is_under_way(of: Callable[[Run], Any]) -> None:
    run = made(taken=5)
    page = LivePage(of(run))
    take(run, 3)
    drawn(page.panel)
    assert len(page.steps(run)) == 8
