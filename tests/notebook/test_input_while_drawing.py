"""User actions while the panel is drawn take effect: the drawing neither undoes nor swallows them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from agentlab.notebook.panel.run_view import Panel
from agentlab.notebook.panel.side_by_side import SideBySide
from agentlab.notebook.panel.stop_editor import GroupRow
from thread_tools import PATIENCE_S, wait_until

import agentlab as lab
from agentlab import Budget, HasToolCall, StepCountIs
from agentlab.agent import Run
from agentlab.limits.combinators import AnyOf
from agentlab.limits.policies import TerminatingTools
from agentlab.notebook.explorer.explorer import Explorer
from agentlab.notebook.live_view import LiveView
from agentlab.testing import ScriptedProvider, call

A_WHILE_S = 1.0
"""The drawing pauses this long for a user who may have to wait for its end."""


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


class Tool:
    """A tool that returns when it is released."""

    def __init__(self) -> None:
        self.may = threading.Event()

    async def search(self, query: str) -> str:
        """Search."""
        while not self.may.is_set():
            await asyncio.sleep(0.01)
        return "nothing"


def searching(tool: Tool, stop: object = None, steps: int = 500) -> Run:
    model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}))
    return lab.Agent(model, tools=[tool.search]).run("Find it.", stop=stop, budget=Budget(max_turns=steps, max_tokens=5_000))


def shown(run: Run) -> Panel:
    """Its panel, drawn once."""
    panel = Panel(run)
    _ = panel.widget
    return panel


def in_the_middle(view: LiveView, control: Any, begin: Callable[[], object], person: Callable[[], object]) -> None:
    """`begin` triggers a drawing that changes `control`; while the change is on its way to the page, the user acts, or waits
    for the drawing and acts then. Returns when the drawing is done.
    """
    sent, under_way, has_acted = control.send_state, threading.Event(), threading.Event()

    def slow(key: Any = None) -> None:
        sent(key)
        if threading.current_thread().name == "agentlab-panel" and not under_way.is_set():
            under_way.set()
            has_acted.wait(A_WHILE_S)

    control.send_state = slow
    try:
        begin()
        assert under_way.wait(PATIENCE_S), "nothing was drawn"
        person()
    finally:
        has_acted.set()
    with view._drawing:
        assert not view.fault.value


def test_a_limit_edited_during_a_drawing_is_kept() -> None:
    run = searching(Tool())
    panel = shown(run)
    field = panel.run_view.editor.budget["max_tokens"]
    in_the_middle(
        panel,
        field.unlimited,
        lambda: run.limits.edit(max_tokens=None),
        lambda: setattr(field.unlimited, "value", False),
    )
    wait_until(lambda: not field.unlimited.value and not field.number.disabled)
    assert run.limits.max_tokens == 5_000


def test_a_number_typed_during_a_drawing_is_kept() -> None:
    run = searching(Tool())
    panel = shown(run)
    field = panel.run_view.editor.budget["max_turns"]
    in_the_middle(panel, field.number, lambda: run.limits.edit(max_turns=33), lambda: setattr(field.number, "value", 44))
    wait_until(lambda: bool(field.number.value == 44))
    assert run.limits.max_turns == 44


def test_a_tool_ticked_during_a_drawing_stays_ticked() -> None:
    run = searching(Tool())
    run.limits.terminating = TerminatingTools(("search",))
    panel = shown(run)
    box = panel.run_view.editor.terminating.tools["search"]
    assert box.value
    in_the_middle(panel, box, lambda: run.limits.edit(terminating=None), lambda: setattr(box, "value", True))
    wait_until(lambda: bool(box.value))
    assert run.limits.terminating is not None


def test_a_step_typed_during_a_drawing_is_kept() -> None:
    tool = Tool()
    tool.may.set()
    run = searching(tool, steps=9)
    asyncio.run(to_the_end(run))
    panel = shown(run)
    number, scene = panel.run_view.steps.number, panel.run_view.state
    in_the_middle(panel, number, lambda: scene.choose(3), lambda: setattr(number, "value", "7"))
    wait_until(lambda: bool(number.value == "7"))
    assert scene.chosen == 7


async def to_the_end(run: Run) -> None:
    await run


def test_a_condition_removed_during_a_drawing_does_not_come_back() -> None:
    run = searching(Tool(), HasToolCall("search") | StepCountIs(8))
    editor = shown(run).run_view.editor
    stop, put_up = editor.stop, []
    assert isinstance(stop.root, GroupRow)
    stop.root._box.observe(lambda change: put_up.append(len(change["new"])), "children")
    with stop._lock:  # the drawing reaches this point
        settings = run.limits.edit(max_turns=77)
        wait_until(lambda: editor._seen[0] is settings)
        stop.row(1).flags.remove.click()
    wait_until(lambda: bool(editor.budget["max_turns"].number.value == 77))
    assert run.limits.stop == AnyOf(HasToolCall("search"))
    assert put_up == [1], "the rows that were shown in turn"


@pytest.fixture
def explorer() -> Explorer:
    """An explorer of runs of three lengths, with a slider for the steps and a checkbox for the tool."""
    runs = []
    for steps in (2, 5, 9):
        tool = Tool()
        tool.may.set()
        runs.append(searching(tool, steps=steps))
        asyncio.run(to_the_end(runs[-1]))
    explorer = lab.explore(runs)
    _ = explorer.widget
    return explorer


def test_a_tool_of_the_explorer_ticked_during_a_drawing_stays_ticked(explorer: Explorer) -> None:
    box = explorer.rows["HasToolCall"].boxes["search"]  # type: ignore[union-attr]
    in_the_middle(explorer, box, lambda: explorer.limits.update(HasToolCall=("search",)), lambda: setattr(box, "value", False))
    wait_until(lambda: not box.value)
    assert explorer.limits["HasToolCall"] is None


def test_a_slider_is_not_moved_back_while_its_last_position_is_computed(explorer: Explorer) -> None:
    """A computation takes a while, during which the slider moves."""
    slider = explorer.rows["StepCountIs"].slider  # type: ignore[union-attr]
    trials, places = explorer._trials, []
    tried = trials.of

    def slow(chosen: Any) -> Any:
        if threading.current_thread().name == "agentlab-panel" and slider.place == 1:
            slider.place = 0
            slider.observe(lambda change: places.append(change["new"]), "place")
        return tried(chosen)

    trials.of = slow  # type: ignore[method-assign]
    slider.place = 1
    wait_until(lambda: bool(places) or (slider.place == 0 and "StepCountIs(2)" in explorer.code_text.value))
    assert slider.place == 0 and not places


def test_run_is_not_lost_before_the_page_shows_the_current_step() -> None:
    tool = Tool()
    run = searching(tool, StepCountIs(4))
    controls = shown(run).run_view.controls
    controls.step.click()
    controls.go.click()
    tool.may.set()
    assert run.wait(PATIENCE_S) is not None
    assert len(run.history) == 4


def test_run_all_is_not_lost_before_the_page_shows_the_current_round() -> None:
    tool = Tool()
    runs = [searching(tool, StepCountIs(steps)) for steps in (2, 4)]
    both = SideBySide(runs)
    _ = both.widget
    both.step.click()
    both.go.click()
    tool.may.set()
    assert both.lockstep.wait(PATIENCE_S) is not None
    assert [len(run.history) for run in runs] == [2, 4]
