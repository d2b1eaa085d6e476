"""The panel of one run and its branches: all parts of a run's view, the overview of the run and its end with a button for each way to
continue, and which run is shown.

Its static view has no times, so that recorded fixtures give the same output at every execution.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import ipywidgets as widgets

from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import one_line, printable
from agentlab.agent import Run
from agentlab.engine.next_actions import NextAction, nothing_to_do
from agentlab.engine.run_tree import family_of
from agentlab.engine.worker import RunState
from agentlab.limits.settings import RunSettings
from agentlab.notebook import markup
from agentlab.notebook.live_view import LiveView, PanelServices, PanelState, Part, Picture, StaticOutputs, panel_html
from agentlab.notebook.markup import Html
from agentlab.notebook.panel.answer import Answer, AnswerView, ShownAnswer, answer_html, answer_label_html
from agentlab.notebook.panel.branches import Branches, Lineage
from agentlab.notebook.panel.controls import Controls, Pointer
from agentlab.notebook.panel.pictures import Chart, Curve, TimelineView, timeline_picture
from agentlab.notebook.panel.settings_editor import LimitEditor
from agentlab.notebook.panel.step_browser import StepBrowser, StepTable
from agentlab.records import events

if TYPE_CHECKING:
    from agentlab.agent import Agent

MOST_OFFERS = 3
SHORTEST_PAUSE_S = 1.0
"""A second click within this time is part of a double click: it makes no second branch."""
MOST_STEPS = 100
"""Newest steps in the table, which is saved in the notebook's file."""

_WORTH_A_TIMELINE = (
    events.CallRetried, events.AskedAgain, events.ContinuationAttempted, events.ToolPayloadRepair, events.Nudged, events.LimitsChanged,
    events.RunPaused,
)  # fmt: skip


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
        """Redraw whenever the run changes, unless it has ended. A person is there, who can approve tool calls."""
        run = self.state.run
        if run.state is not RunState.ENDED:
            run.control.attend()
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

    def to_html(
        self, path: str | os.PathLike[str] | None = None, *, timing: bool = True, raw: bool | Iterable[int] = False
    ) -> str | Path:
        """Write the run and its branches as one HTML file; see `Run.to_html`."""
        from agentlab.notebook.page import to_html  # the page is made of parts of the panel

        return to_html([self.run], path, timing=timing, raw=raw)

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


# Without a kernel ---------------------------------------------------------------------------------------------------------------


class StaticView(StaticOutputs):
    """One run, with its curve and its newest answer."""

    def __init__(self, run: Run, curve: Curve, answer: ShownAnswer) -> None:
        self._run, self._curve, self._answer = run, curve, answer

    def text(self) -> str:
        """The run in a few lines."""
        run = self._run
        return printable(f"{run.agent.name}: {run if run.result is None else run.result}\n{self._answer}")

    def html(self, pictures: str = "") -> str:
        """State, end, answer, limits and steps; `pictures` come before the steps."""
        run, answer = self._run, self._answer
        return panel_html(
            markup.status(run, timing=False),
            markup.end(run.result),
            markup.continue_note(run),
            answer_label_html(answer),
            answer_html(answer) if answer.text else "",
            markup.limits(run),
            pictures,
            StepTable(run).static_html(MOST_STEPS),
        )

    def pictures(self) -> list[Picture]:
        """The curve if there are steps, and the timeline if it shows more than calls of the model and of tools."""
        if not len(self._run.history):
            return []
        png = self._curve.draw()
        found = [Picture(png, self._curve.alt(), *self._curve.size)]
        if any(isinstance(event, _WORTH_A_TIMELINE) for event in tuple(self._run.events)):
            found.append(timeline_picture(self._run))
        return found


# Overview and end ----------------------------------------------------------------------------------------------------------------


class Overview:
    """State and totals in one line (`status`), and a bar for each limit (`meters`); each has its own place in the page."""

    def __init__(self, state: PanelState) -> None:
        self._run = state.run
        self.status, self.meters = Html(), Html()

    def show(self) -> bool:
        """Update both."""
        self.status.value = markup.status(self._run)
        self.meters.value = markup.meters(self._run)
        return False


class Ending:
    """The end of the run; empty while it is under way. Each button makes a branch that the panel then shows; the run itself does not
    change."""

    def __init__(self, state: PanelState) -> None:
        self._state = state
        self._read_for: RunSettings | None = None
        self._offered: tuple[NextAction, ...] = ()
        self._edited: NextAction | None = None
        self._continued_at = -SHORTEST_PAUSE_S
        self._no_offer = ""
        self.text = Html()
        self.buttons: tuple[widgets.Button, ...] = ()
        self.offers = widgets.VBox([])
        self.prompt = widgets.Textarea(
            value=redact(state.run.prompt),
            description="Prompt",
            rows=min(12, max(3, state.run.prompt.count("\n") + 2)),
            layout=widgets.Layout(width="auto"),
        )
        self.start = widgets.Button(description="Start with this prompt", tooltip="Start a new branch with this prompt")
        self.start.add_class("agentlab-offer").add_class("agentlab-icon-run")
        self.start.on_click(lambda _: state.do(self._start_with_prompt))
        self.editor = widgets.VBox([self.prompt, self.start])
        self.editor.layout.display = "none"
        self.view = widgets.VBox([self.text, self.offers, self.editor])
        self.view.add_class("agentlab-ending")

    def show(self) -> bool:
        """Show the end of the run. A later change of its limits may change the buttons."""
        run = self._state.run
        if run.result is None:
            return False
        settings, new = run.limits.snapshot(), False
        if settings is not self._read_for:
            self._read_for = settings
            offered = run.next_actions[:MOST_OFFERS]
            self._no_offer = "" if offered or run.result.terminated else markup.note(nothing_to_do(run))
            new = offered != self._offered
            if new:
                self._offer(offered)
        self.text.value = markup.end(run.result) + self._no_offer
        return new

    def _offer(self, offered: tuple[NextAction, ...]) -> None:
        self._offered = offered
        self.buttons = tuple(self._button(one) for one in offered)
        rows = []
        for proposal, button in zip(offered, self.buttons, strict=True):
            row = widgets.HBox([button, Html(markup.note(proposal.why))])
            row.add_class("agentlab-offer-row")
            rows.append(row)
        if self.buttons:
            self.buttons[0].button_style = "primary"
        self.offers.children = rows

    def _button(self, proposal: NextAction) -> widgets.Button:
        button = widgets.Button(description=one_line(proposal.label, 120), tooltip=printable(proposal.why))
        button.add_class("agentlab-offer").add_class("agentlab-icon-run")
        act = self._edit_prompt if proposal.needs_prompt else self._continue
        button.on_click(lambda _: self._state.do(lambda: act(proposal)))
        return button

    def _edit_prompt(self, proposal: NextAction) -> None:
        """Show the prompt editor, or hide it on the second click."""
        shown = self.editor.layout.display != "none"
        self._edited = proposal
        self.editor.layout.display = "none" if shown else ""
        if not shown:
            self.prompt.focus()

    def _start_with_prompt(self) -> None:
        if self._edited is not None:
            self._continue(self._edited, self.prompt.value)

    def _continue(self, proposal: NextAction, prompt: str | None = None) -> None:
        if time.monotonic() - self._continued_at < SHORTEST_PAUSE_S:
            return
        branch = self._state.run.apply(proposal, prompt=prompt)
        self._continued_at = time.monotonic()
        self._state.open(branch)
        branch.worker.launch()
        self._continued_at = time.monotonic()  # again: showing a branch may take longer than a double click
