"""All parts of one run's panel, put together. What each shows and does stands in its own file."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from agentlab import events
from agentlab.run import RunState
from agentlab.widgets.answer_view import AnswerView
from agentlab.widgets.branches import Branches
from agentlab.widgets.chart import Chart
from agentlab.widgets.controls import Controls
from agentlab.widgets.ending import Ending
from agentlab.widgets.limit_editor import LimitEditor
from agentlab.widgets.lineage import Lineage
from agentlab.widgets.overview import Overview
from agentlab.widgets.pointer import Pointer
from agentlab.widgets.scene import Part, Scene
from agentlab.widgets.step_browser import StepBrowser
from agentlab.widgets.timeline_view import TimelineView


class Cockpit:
    """One run: seen at a glance, steered, edited, gone through, and branched."""

    def __init__(self, scene: Scene) -> None:
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
