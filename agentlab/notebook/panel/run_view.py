"""All parts of one run's panel, put together. What each shows and does stands in its own file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import ipywidgets as widgets

from agentlab import events
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
from agentlab.run import Run, RunState

if TYPE_CHECKING:
    from agentlab.agent import Agent


class RunView:
    """One run: seen at a glance, steered, edited, gone through, and branched."""

    def __init__(self, scene: PanelState) -> None:
        self.scene = scene
        self.lineage = Lineage(scene)
        self.overview = Overview(scene)
        self.controls = Controls(scene)
        self.ending = Ending(scene)
        self.answer = AnswerView(scene)
        self.chart = Chart(scene)
        self.editor = LimitEditor(scene)
        self.steps = StepBrowser(scene)
        self.timeline = TimelineView(scene)
        self.branches = Branches(scene)
        self.pointer = Pointer(scene, on_section=self.steps.remember)
        self._tabs: tuple[StepBrowser | TimelineView | Branches, ...] = (self.steps, self.timeline, self.branches)
        self._always: tuple[Part | Overview, ...] = (
            self.lineage, self.overview, self.controls, self.ending, self.answer, self.chart, self.editor,
        )  # fmt: skip
        self.tabs = widgets.Tab([part.view for part in self._tabs], titles=[part.title for part in self._tabs], selected_index=0)
        self.tabs.observe(lambda change: scene.redraw(), "selected_index")
        seen = widgets.VBox([self.overview.meters, self.chart.view], layout=widgets.Layout(flex="1 1 30em", min_width="24em"))
        edited = widgets.VBox([self.editor.view], layout=widgets.Layout(flex="0 1 27em", min_width="24em"))
        body = widgets.HBox([seen, edited], layout=widgets.Layout(flex_flow="row wrap", grid_gap="10px 24px"))
        self.view = widgets.VBox(
            [self.lineage.view, self.overview.status, self.controls.view, self.ending.view, self.answer.view, body, self.tabs,
             self.pointer.view]
        )  # fmt: skip

    def watch(self) -> Callable[[], None]:
        """Follow the run from here on; returns what ends that. An ended run is shown as it stands."""
        run = self.scene.run
        if run.state is RunState.ENDED:
            return lambda: None
        self.answer.answer.watch()
        ends = (run.observe(self._on_event), run.limits.subscribe(lambda before, after, by: self.scene.redraw()))

        def end() -> None:
            for one in ends:
                one()

        return end

    def _on_event(self, event: events.Event) -> None:
        self.answer.answer.take(event)
        self.scene.redraw()

    def show(self) -> bool:
        """Bring what is visible up to date; whether there are new controls."""
        new = [part.show() for part in self._always]
        chosen_tab = self.tabs.selected_index
        if chosen_tab is not None:
            new.append(self._tabs[chosen_tab].show())
        return any(new)


class Panel(LiveView):
    """The live control of one run and its branches. It holds no state of theirs: it shows the run, and writes to `run.limits`.

    As the last expression of a cell it shows itself. `bundle()` is what a reader without a kernel sees. `agents` are others that a
    branch may go on with.
    """

    def __init__(self, run: Run, agents: Iterable[Agent] = ()) -> None:
        super().__init__()
        self.run = run
        self._agents = {agent.name: agent for agent in agents}
        self._run_views: dict[str, RunView] = {}

    @property
    def run_view(self) -> RunView:
        """The parts that show the run, made when they are first asked for."""
        _ = self.widget
        return self._run_views[self.run.id]

    def open(self, run: Run) -> None:
        """Show this run: a branch, or the one it was forked from."""
        with self._drawing:
            self.run = run
            if run.id not in self._run_views:
                self._run_views[run.id] = RunView(PanelState(run, self._stage))
                self._run_views[run.id].watch()
            self._put(self._run_views[run.id].view)
        self._redrawer.mark()

    def _compose(self) -> None:
        self._stage = PanelServices(self.guard, self._redrawer.mark, self.open, self._agents)
        self.open(self.run)

    def _show(self) -> bool:
        return self.run_view.show()

    def _is_under_way(self) -> bool:
        return any(member.run.state is RunState.RUNNING for member in family_of(self.run))

    def _finished(self) -> object:
        return None if self.run.result is None else self.run.id

    def _static(self) -> StaticView:
        run_view = self._run_views.get(self.run.id)
        if run_view is None:
            return StaticView(self.run, Curve(self.run), Answer(self.run).said())
        return StaticView(self.run, run_view.chart.curve, run_view.answer.answer.said())

    def __repr__(self) -> str:
        return f"Panel({self.run!r})"
