"""User actions while the panel is drawn take effect: the drawing neither undoes nor swallows them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from thread_tools import PATIENCE_S, drawn, undisturbed, wait_until

import agentlab as lab
from agentlab import Budget, StepCountIs
from agentlab.agent import Run
from agentlab.notebook.explorer.explorer import Explorer
from agentlab.notebook.panel.live_panel import Panel
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


def in_the_middle(view: Explorer, control: Any, begin: Callable[[], object], person: Callable[[], object]) -> None:
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


async def to_the_end(run: Run) -> None:
    await run


@pytest.fixture
def explorer() -> Explorer:
    """An explorer of runs of three lengths, with a slider for the steps and a checkbox for the tool."""
    runs = []
    for steps in (2, 5, 9):
        tool = Tool()
        tool.may.set()
        runs.append(searching(tool, steps=steps))
        asyncio.run(to_the_end(runs[-1]))
    explorer = lab.explore(runs, limits=["StepCountIs", "HasToolCall"])
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


def test_a_tool_and_a_limit_chosen_while_an_explorer_draws_are_kept() -> None:
    tool = Tool()
    tool.may.set()
    run = searching(tool, steps=4)
    asyncio.run(to_the_end(run))
    explorer: Any = lab.explore(run, limits=["StepCountIs", "HasToolCall"])
    with undisturbed(explorer):
        steps, ticks, now = explorer.rows["StepCountIs"], explorer.rows["HasToolCall"], explorer._now
        steps.number.unlimited.value = True
        explorer._show_now()

        def meanwhile() -> object:
            tried = now()
            ticks.boxes["search"].value = True
            steps.number.unlimited.value = False
            return tried

        explorer._now = meanwhile
        explorer._show_now()
        explorer._now = now
        steps.number.number.value = 3
    assert dict(explorer.limits) == {"StepCountIs": 3, "HasToolCall": ("search",)}
    drawn(explorer)
    assert (steps.number.number.value, ticks.boxes["search"].value) == (3, True)


def test_run_is_not_lost_before_the_page_shows_the_current_step() -> None:
    tool = Tool()
    run = searching(tool, StepCountIs(4))
    panel = Panel([run])
    _ = panel.widget
    for do in ("step", "go"):
        panel.carry_out({"do": do, "run": run.id})
    tool.may.set()
    assert run.wait(PATIENCE_S) is not None
    assert len(run.history) == 4
