"""User input while the page is drawn is not lost, nor is the end of a run while it is shown: both come from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from agentlab.notebook.panel.fields import Face, NumberField
from agentlab.notebook.panel.pictures import Courses
from agentlab.notebook.panel.run_view import Panel, StaticView
from thread_tools import drawn, undisturbed

import agentlab as lab
from agentlab import Budget
from agentlab.agent import Run
from agentlab.notebook.explorer.explorer import Explorer
from agentlab.notebook.live_view import RunningTotals
from agentlab.notebook.panel import branches, live_view, step_browser
from agentlab.testing import ScriptedProvider, call

A_WHILE_S = 0.2
"""The time in which a user acts in the middle of an operation, unless the action has to wait for its end."""


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


class Meanwhile:
    """An action that runs once, on a separate thread, when it is first called."""

    def __init__(self, do: Callable[[], object], a_while_s: float = A_WHILE_S) -> None:
        self._thread, self._a_while_s = threading.Thread(target=do), a_while_s

    def __call__(self, *_: object) -> None:
        """Start it, if it has not started; after a short wait the caller continues."""
        if self._thread.ident is None:
            self._thread.start()
            self._thread.join(self._a_while_s)

    def finish(self) -> None:
        """Wait for its end."""
        self._thread.join(60)
        assert self._thread.ident is not None and not self._thread.is_alive()


def search(query: str) -> str:
    """Search."""
    return "nothing"


def finalize(answer: str) -> str:
    """Hand it in."""
    return answer


def run_of(steps: int, **more: Any) -> Run:
    """A run with this many steps taken."""
    model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, tokens=(10, 0), cost="0.001"))
    run = lab.Agent(model, tools=[search, finalize]).run("Find it.", **{"budget": Budget(max_turns=50), **more})
    take(run, steps)
    return run


def take(run: Run, steps: int) -> None:
    async def go() -> None:
        for _ in range(steps):
            await run.step()

    asyncio.run(go())


# Edits --------------------------------------------------------------------------------------------------------------------------


class Interrupted(NumberField):
    """A field into which the user types at the moment when it is about to show another value."""

    typing: Callable[..., object] = staticmethod(lambda: None)

    def _display(self, value: Any) -> None:
        self.typing()
        super()._display(value)


def test_a_number_typed_while_the_field_is_drawn_is_kept() -> None:
    written: list[int] = []
    field = Interrupted(Face("max_turns"), int, 20, written.append)
    field.typing = typing = Meanwhile(lambda: setattr(field.number, "value", 7))
    field.show(30)
    typing.finish()
    assert (written, field.number.value) == ([7], 7)


def test_a_limit_set_while_the_editor_is_drawn_is_kept() -> None:
    panel = Panel(run_of(0, budget=Budget()))
    with undisturbed(panel):
        editor = panel.run_view.editor
        field, show = editor.budget["max_tokens"], editor.stop.show

        def set_meanwhile(*some: Any, **more: Any) -> bool:
            field.unlimited.value = False
            return show(*some, **more)

        panel.run.limits.max_cost = 1
        editor.stop.show = set_meanwhile  # type: ignore[method-assign]
        editor.show()
        field.number.value = 777
    assert panel.run.limits.max_tokens == 777
    drawn(panel)
    assert (field.unlimited.value, field.number.value) == (False, 777)


def test_a_step_typed_while_the_step_browser_is_drawn_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = Panel(run_of(4))
    steps, set_button = panel.run_view.steps, step_browser.set_button
    with undisturbed(panel):
        typing = Meanwhile(lambda: setattr(steps.number, "value", "3"))

        def set_meanwhile(*some: Any) -> None:
            typing()
            set_button(*some)

        monkeypatch.setattr(step_browser, "set_button", set_meanwhile)
        steps.show()
        typing.finish()
        assert (steps.number.value, panel.run_view.state.chosen) == ("3", 3)
        steps.number.value = "9"
        assert "choose from 1 to 4" in steps.message.value
    drawn(panel)
    assert steps.number.value == "9" and "choose from 1 to 4" in steps.message.value


def test_steps_to_keep_typed_while_the_form_is_drawn_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = Panel(run_of(4))
    form, useful = panel.run_view.branches.form, branches._useful_steps
    with undisturbed(panel):
        form.show()
        typing = Meanwhile(lambda: setattr(form.keep, "value", 2))

        def meanwhile(run: Run) -> int:
            typing()
            return useful(run)

        monkeypatch.setattr(branches, "_useful_steps", meanwhile)
        form.show()
        typing.finish()
        assert form.keep.value == 2
        form.show()
    assert form.keep.value == 2


def test_a_run_chosen_while_the_list_grows_is_kept() -> None:
    panel = Panel(run_of(4))
    branch = panel.run.fork(2)
    branches = panel.run_view.branches
    panel.run_view.tabs.selected_index = panel.run_view.tabs.titles.index(branches.title)
    drawn(panel)
    choosing = Meanwhile(lambda: setattr(branches.choice, "value", branch.id))
    branches.choice.observe(choosing, "options")
    panel.run.fork(1)
    drawn(panel)
    choosing.finish()
    assert panel.run is branch


@pytest.fixture
def explorer() -> Explorer:
    """An explorer of one run."""
    return lab.explore(run_of(4, budget=Budget(max_turns=4)), limits=["StepCountIs", "HasToolCall"])


def test_a_tool_and_a_limit_chosen_while_an_explorer_draws_are_kept(explorer: Any) -> None:
    with undisturbed(explorer):
        steps, ticks, now = explorer.rows["StepCountIs"], explorer.rows["HasToolCall"], explorer._now
        steps.number.unlimited.value = True
        explorer._show()

        def meanwhile() -> object:
            tried = now()
            ticks.boxes["search"].value = True
            steps.number.unlimited.value = False
            return tried

        explorer._now = meanwhile
        explorer._show()
        explorer._now = now
        steps.number.number.value = 3
    assert dict(explorer.limits) == {"StepCountIs": 3, "HasToolCall": ("search",)}
    drawn(explorer)
    assert (steps.number.number.value, ticks.boxes["search"].value) == (3, True)


# Stored outputs -----------------------------------------------------------------------------------------------------------------


def test_a_run_that_ends_while_its_panel_is_shown_is_stored_with_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []

    def keep(data: dict[str, Any], **more: Any) -> None:
        if "text/html" in data:
            kept.append(data["text/html"])

    monkeypatch.setattr(live_view.display, "display", keep)
    monkeypatch.setattr(live_view.display, "update_display", lambda data, **more: keep(data) if kept else None)
    run = run_of(1, budget=Budget(max_turns=2))
    panel = Panel(run)
    drawn(panel)

    def end() -> None:
        take(run, 1)
        drawn(panel)

    ending, bundle = Meanwhile(end, 10 * A_WHILE_S), StaticView.bundle

    def slow(view: StaticView, **more: Any) -> dict[str, Any]:
        made = bundle(view, **more)
        if threading.current_thread() is threading.main_thread():
            ending()
        return made

    monkeypatch.setattr(StaticView, "bundle", slow)
    panel._ipython_display_()
    ending.finish()
    assert "turn_limit" in kept[-1]


def test_curves_read_by_two_threads_have_each_step_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run, courses, catch_up = run_of(5), Courses(), RunningTotals.catch_up
    other = Meanwhile(lambda: courses.frame([("1", run)]))

    def slow(totals: RunningTotals) -> int:
        if threading.current_thread() is threading.main_thread():
            steps = run.history[len(totals.tokens) - 1 :]
            other()
            assert len(run.history[len(totals.tokens) - 1 :]) == len(steps), "another thread has read them in the meantime"
        return catch_up(totals)

    monkeypatch.setattr(RunningTotals, "catch_up", slow)
    assert courses.frame([("1", run)])["step"].tolist() == [1, 2, 3, 4, 5]
    other.finish()
