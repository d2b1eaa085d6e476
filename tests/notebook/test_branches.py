"""Branches without a browser: set what a user would set, read what the page would show."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from measured_work import calls_in
from thread_tools import drawn, undisturbed, wait_until

import agentlab as lab
from agentlab import Budget, StepCountIs
from agentlab.agent import Run
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.notebook.panel import Panel, panel
from agentlab.notebook.panel.branches import LONGEST_RESULT
from agentlab.notebook.panel.pictures import MOST_POINTS, Courses, PacedPicture
from agentlab.testing import ScriptedProvider, call, say

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">'


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


def agent(name: str = "one", end: int = 0, given: str = "nothing") -> lab.Agent:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        return say("Found.") if index == end else call("search", {"query": str(index)}, cost="0.001")

    def search(query: str) -> str:
        """Search."""
        return given

    return lab.Agent(ScriptedProvider(script, name=name, model="m"), tools=[search])


def ended(run: Run) -> Run:
    async def to_the_end() -> None:
        await run

    asyncio.run(to_the_end())
    return run


def shown(run: Run, **more: object) -> Panel:
    """The panel of a run, on the tab Branches."""
    made = panel(run, **more)  # type: ignore[arg-type]
    assert isinstance(made, Panel)
    turn_to_branches(made)
    return made


def turn_to_branches(made: Panel) -> None:
    """Bring that tab to the front with current content."""
    made.run_view.tabs.selected_index = made.run_view.tabs.titles.index("Branches")
    drawn(made)


@pytest.fixture
def run() -> Run:
    """Four steps, ended by its budget."""
    return ended(agent().run("Find it.", budget=Budget(max_turns=4)))


# The form --------------------------------------------------------------------------------------------------------------------------


def test_a_branch_with_every_field_changed(run: Run) -> None:
    made = shown(run, agents=[agent("two")])
    form = made.run_view.branches.form
    form.keep.value = 2
    form.model.value = "agent two:m"
    form.prompt.value = "Find it quickly."
    form.message.value = "Look at the oldest first."
    form.content.value = "page 12"
    form.button.click()
    branch = run.branches[0]
    assert made.run is branch and made.run_view.state.run is branch
    assert (branch.origin.forked_at, branch.prompt, branch.agent.name) == (2, "Find it quickly.", "two:m")
    assert branch.messages[-1].text == "Look at the oldest first."
    assert branch.history[1].tool_results[0].content == "page 12"
    assert run.history[1].tool_results[0].content == "nothing"
    changed = "model two:m; another prompt; tool result of search; one more message"
    assert changed in made.run_view.lineage.text.value
    assert branch.state == "ready"
    made.run_view.controls.step.click()
    wait_until(lambda: len(branch.history) == 3)


def test_nothing_differs_unless_it_was_changed(run: Run) -> None:
    made = shown(run)
    made.run_view.branches.form.button.click()
    (branch,) = run.branches
    assert (branch.origin.forked_at, branch.prompt, branch.agent) == (4, run.prompt, run.agent)
    assert list(branch.messages) == list(run.messages)
    assert "no difference" in made.run_view.lineage.text.value


def test_a_typed_model_name(run: Run) -> None:
    form = shown(run).run_view.branches.form
    assert form.other_model.layout.display == "none"
    form.model.value = "another"
    assert form.other_model.layout.display is None
    form.button.click()
    assert "provider:model" in form.error.value
    form.other_model.value = "openai:gpt-4.1-mini"
    form.button.click()
    assert run.branches[0].agent.model.model == "gpt-4.1-mini"
    assert form.error.value == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda form: setattr(form.keep, "value", 9), "0 to 4"),
        (lambda form: setattr(form.keep, "value", -1), "0 to 4"),
        (lambda form: setattr(form.prompt, "value", "  "), "pass the task as text"),
    ],
    ids=["too many steps", "too few", "no prompt"],
)
def test_an_invalid_branch_says_why_and_keeps_the_input(run: Run, change: Callable[[object], None], reason: str) -> None:
    made = shown(run)
    form = made.run_view.branches.form
    form.message.value = "Go on."
    change(form)
    form.button.click()
    assert reason in form.error.value
    assert (run.branches, made.run, form.message.value, made.fault.value) == ((), run, "Go on.", "")


def test_without_an_open_turn_the_last_step_is_repeated() -> None:
    run = ended(agent(end=3).run("Find it."))
    form = shown(run).run_view.branches.form
    assert form.keep.value == 2
    form.keep.value = 3
    form.button.click()
    assert "Add message" in form.error.value
    form.message.value = "And then?"
    form.button.click()
    assert run.branches[0].origin.forked_at == 3


def test_steps_to_keep_follow_the_chosen_step_until_a_number_is_typed(run: Run) -> None:
    made = shown(run)
    form, scene = made.run_view.branches.form, made.run_view.state
    assert form.keep.value == 4
    scene.choose(2)
    drawn(made)
    assert form.keep.value == 2
    form.keep.value = 3
    scene.choose(1)
    drawn(made)
    assert form.keep.value == 3


def test_a_step_without_tools_says_that_it_has_no_tool_result(run: Run) -> None:
    form = shown(run).run_view.branches.form
    form.keep.value = 0
    assert form.content.disabled and form.result.disabled
    assert form.content.tooltip == "There is no tool result to change: the branch keeps no step."


def test_part_of_a_step_cannot_be_kept(run: Run) -> None:
    form = shown(run).run_view.branches.form
    form.keep.value = 2.5
    assert "Keep steps 2.5: choose a number from 0 to 4." in form.error.value
    form.button.click()
    assert "fork(at=2.5): give the number of steps to keep, 0 to 4." in form.error.value
    assert (run.branches, form.keep.value) == ((), 2.5)
    form.keep.value = 2.0
    form.button.click()
    assert [branch.origin.forked_at for branch in run.branches] == [2]


def test_a_huge_tool_result_is_not_put_into_the_page() -> None:
    run = ended(agent(given="x" * 1_000_000).run("Find it.", budget=Budget(max_turns=2)))
    form = shown(run).run_view.branches.form
    assert form.content.value == "" and form.content.placeholder.startswith("1,000,")
    form.button.click()
    assert len(run.branches[0].history[1].tool_results[0].content) >= LONGEST_RESULT
    form.content.value = "short"
    form.button.click()
    assert run.branches[1].history[1].tool_results[0].content == "short"


# Related runs ----------------------------------------------------------------------------------------------------------------------


def test_the_table_lists_all_runs_and_marks_the_shown_one(run: Run) -> None:
    branch = ended(run.fork(2, stop=StepCountIs(3)))
    below = branch.fork(1, budget=Budget(max_turns=9))
    made = shown(branch)
    table = made.run_view.branches.table.value
    rows = re.findall(r'<tr data-run="(\w+)"( aria-current="true")?>(.*?)</tr>', table)
    assert [(run_id, bool(current)) for run_id, current, _ in rows] == [(run.id, False), (branch.id, True), (below.id, False)]
    texts = [re.sub(r"<[^>]+>", "|", row) for _, _, row in rows]
    assert "from 1 at step 2" in texts[1] and "stop StepCountIs(steps=3)" in texts[1] and "stop_condition" in texts[1]
    assert "1.1.1" in texts[2] and "max_turns 9" in texts[2] and "ready" in texts[2]


def test_a_run_is_opened_from_the_list_and_a_button_leads_back(run: Run) -> None:
    branch = run.fork(2)
    made = shown(run)
    assert made.run_view.branches.choice.value == run.id
    made.run_view.branches.choice.value = branch.id
    assert made.run is branch
    turn_to_branches(made)
    assert made.run_view.branches.choice.value == branch.id
    made.run_view.lineage.back.click()
    assert made.run is run
    turn_to_branches(made)
    assert made.run_view.branches.choice.value == run.id


def test_a_branch_made_in_code_appears(run: Run) -> None:
    made = shown(run)
    assert made.run_view.lineage.view.layout.display == "none"
    branch = run.fork(2)
    wait_until(lambda: branch.id in made.run_view.branches.table.value)
    below = branch.fork(1)
    wait_until(lambda: below.id in made.run_view.branches.table.value)
    assert "with 2 other runs" in made.run_view.lineage.text.value
    ended(below)
    wait_until(lambda: re.search(r"1\.1\.1 [^;]*4 steps, turn_limit", made.run_view.branches.tree.value) is not None)


def test_pictures_are_redrawn_only_after_a_change(run: Run) -> None:
    run.fork(2)
    made = shown(run)
    branches = made.run_view.branches
    before = branches.tree.value
    assert 'alt="Tree of 2 runs' in before and "per step of 1 run" not in branches.curves.value
    drawn(made)
    assert branches.tree.value is before


def test_drawing_takes_a_small_part_of_the_time_of_running_runs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, drawn = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: now_s[0], thread_time=lambda: now_s[0])
    monkeypatch.setattr("agentlab.notebook.panel.pictures.time", clock)

    def draw() -> str:
        drawn.append(now_s[0])
        now_s[0] += 0.25
        return "drawn"

    picture = PacedPicture(draw)
    for quarter in range(40):
        now_s[0] = quarter / 4
        picture.as_html(quarter, under_way=True)
    assert drawn == [0, 2.5, 5, 7.5]
    picture.as_html("the end", under_way=False)
    assert len(drawn) == 5


def test_hostile_text_is_escaped() -> None:
    run = ended(agent(HOSTILE).run(HOSTILE, budget=Budget(max_turns=2)))
    run.fork(1, agent=agent(HOSTILE + "2"), prompt=HOSTILE * 2)
    made = shown(run)
    page = made.run_view.branches.table.value + made.run_view.branches.tree.value + made.run_view.lineage.text.value
    assert "<script" not in page and "<img src=x" not in page


# Speed -------------------------------------------------------------------------------------------------------------------------------


def test_curves_read_only_new_steps_and_thin_out_long_runs() -> None:
    run = ended(agent().run("Find it.", budget=Budget(max_turns=1000)))
    courses, frames = Courses(), []
    at_first = calls_in(lambda: frames.append(courses.frame([("1", run)])))
    (frame,) = frames
    assert len(frame) == MOST_POINTS
    assert (frame["step"].iloc[0], frame["step"].iloc[-1]) == (1, 1000)
    assert frame["cumulative_tokens"].iloc[-1] == run.history.tokens
    assert 2 * calls_in(lambda: courses.frame([("1", run)])) < at_first


def test_twenty_branches_stay_usable() -> None:
    run = ended(agent().run("Find it.", budget=Budget(max_turns=50)))
    for at in range(20):
        ended(run.fork(at, budget=Budget(max_turns=50)))
    made = shown(run)
    branches, lineage = made.run_view.branches, made.run_view.lineage
    with undisturbed(made):
        again = calls_in(branches.show) + calls_in(lineage.show)
        assert 10 * again < calls_in(branches._curves._draw)
    assert "and 12 more" in made.run_view.branches.curves.value or "of 21 runs" in made.run_view.branches.curves.value
