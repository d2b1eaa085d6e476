"""The panel of one run and its branches: all parts of a run's view, and which run is shown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from agentlab.engine.run_tree import family_of
from agentlab.notebook.panel.answer import Answer, AnswerView
from agentlab.notebook.panel.branches import Branches, Lineage
from agentlab.notebook.panel.controls import Controls, Pointer
from agentlab.notebook.panel.ending import Ending, Overview
from agentlab.notebook.panel.live_view import LiveView
from agentlab.notebook.panel.pictures import Chart, Curve, TimelineView
from agentlab.notebook.panel.settings_editor import LimitEditor
from agentlab.notebook.panel.state import PanelServices, PanelState, Part
from agentlab.notebook.panel.static_view import StaticView
from agentlab.notebook.panel.step_browser import StepBrowser
from agentlab.records import events
from agentlab.run import Run, RunState

if TYPE_CHECKING:
    from agentlab.agent import Agent


class RunView:
    """All parts of one run's panel."""

    def __init__(self, state: PanelState) -> None:
        self.state = state
        self.lineage = Lineage(state)
        self.overview = Overview(state)
        self.controls = Controls(state)
        self.ending = Ending(state)
        self.answer = AnswerView(state)
        self.chart = Chart(state)
        self.editor = LimitEditor(state)
        self.steps = StepBrowser(state)
        self.timeline = TimelineView(state)
        self.branches = Branches(state)
        self.pointer = Pointer(state, on_section=self.steps.remember)
        self._tabs: tuple[StepBrowser | TimelineView | Branches, ...] = (self.steps, self.timeline, self.branches)
        self._always: tuple[Part | Overview, ...] = (
            self.lineage, self.overview, self.controls, self.ending, self.answer, self.chart, self.editor,
        )  # fmt: skip
        self.tabs = widgets.Tab([part.view for part in self._tabs], titles=[part.title for part in self._tabs], selected_index=0)
        self.tabs.observe(lambda change: state.redraw(), "selected_index")
        left = widgets.VBox([self.overview.meters, self.chart.view], layout=widgets.Layout(flex="1 1 30em", min_width="24em"))
        right = widgets.VBox([self.editor.view], layout=widgets.Layout(flex="0 1 27em", min_width="24em"))
        body = widgets.HBox([left, right], layout=widgets.Layout(flex_flow="row wrap", grid_gap="10px 24px"))
        self.view = widgets.VBox(
            [self.lineage.view, self.overview.status, self.controls.view, self.ending.view, self.answer.view, body, self.tabs,
             self.pointer.view]
        )  # fmt: skip

    def watch(self) -> None:
        """Redraw whenever the run changes, unless it has ended."""
        run = self.state.run
        if run.state is not RunState.ENDED:
            self.answer.answer.watch()
            run.observe(self._on_event)
            run.limits.subscribe(lambda before, after, by: self.state.redraw())

    def _on_event(self, event: events.Event) -> None:
        self.answer.answer.take(event)
        self.state.redraw()

    def show(self) -> bool:
        """Update what is visible; True if there are new controls."""
        new = [part.show() for part in self._always]
        tab = self.tabs.selected_index
        if tab is not None:
            new.append(self._tabs[tab].show())
        return any(new)


class Panel(LiveView):
    """The live control of one run and its branches. It shows the run and writes to `run.limits`; it has no state itself.

    As the last expression of a cell it displays itself. `bundle()` is the view without a kernel. `agents` can be chosen for a branch.
    """

    def __init__(self, run: Run, agents: Iterable[Agent] = ()) -> None:
        super().__init__()
        self.run = run
        self._agents = {agent.name: agent for agent in agents}
        self._run_views: dict[str, RunView] = {}

    @property
    def run_view(self) -> RunView:
        """The parts that show the run, created on first access."""
        _ = self.widget
        return self._run_views[self.run.id]

    def open(self, run: Run) -> None:
        """Show this run: a branch, or the run that it was forked from."""
        with self._drawing:
            self.run = run
            if run.id not in self._run_views:
                self._run_views[run.id] = RunView(PanelState(run, self._services))
                self._run_views[run.id].watch()
            self._put(self._run_views[run.id].view)
        self._redrawer.mark()

    def to_html(self, path: Any = None, *, timing: bool = True, raw: bool | Iterable[int] = False) -> str | Path:
        """Write the run and its branches as one HTML file; see `Run.to_html`."""
        return self.run.to_html(path, timing=timing, raw=raw)

    def _compose(self) -> None:
        self._services = PanelServices(self.guard, self._redrawer.mark, self.open, self._agents)
        self.open(self.run)

    def _show(self) -> bool:
        return self.run_view.show()

    def _is_under_way(self) -> bool:
        return any(member.run.state is RunState.RUNNING for member in family_of(self.run))

    def _finished(self) -> object:
        return None if self.run.result is None else self.run.id

    def _static(self) -> StaticView:
        view = self._run_views.get(self.run.id)
        if view is None:
            return StaticView(self.run, Curve(self.run), Answer(self.run).shown())
        return StaticView(self.run, view.chart.curve, view.answer.answer.shown())

    def __repr__(self) -> str:
        return f"Panel({self.run!r})"
