"""Several runs side by side: they take their steps together, are compared in one chart, and each can be opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import ipywidgets as widgets

from agentlab._internal.safe_text import printable
from agentlab.agent import Run
from agentlab.engine.lockstep import Lockstep
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError
from agentlab.notebook import markup
from agentlab.notebook.live_view import LiveView, Picture, StaticOutputs, panel_html
from agentlab.notebook.markup import Html
from agentlab.notebook.panel.answer import Answer, ShownAnswer, answer_html
from agentlab.notebook.panel.controls import action_button, set_button, why_not
from agentlab.notebook.panel.pictures import SCALE, Courses, PacedPicture, figure_html, state_of
from agentlab.notebook.panel.run_view import Panel
from agentlab.plots.figure import DPI
from agentlab.records import events

if TYPE_CHECKING:
    from agentlab.agent import Agent

MOST_RUNS = 8
"""More runs do not fit side by side, and cannot be distinguished in one chart."""
SHOWN_CHARACTERS = 400
"""Characters of each run's answer."""
_NOTHING_OPEN = -1
ALL = ("All runs have ended.", "They pause after this round.", "A round is under way.", "They are paused already.")
"""The reasons why a button is disabled."""


class SideBySide(LiveView):
    """The live control of several runs: one row of buttons for all, a column each. It has no state of the runs.

    As the last expression of a cell it displays itself; `lockstep` takes the steps. `agents` can be chosen for a branch.
    """

    def __init__(self, runs: Iterable[Run] | Lockstep, agents: Iterable[Agent] = ()) -> None:
        super().__init__()
        self.lockstep = runs if isinstance(runs, Lockstep) else Lockstep(runs)
        self.runs = self.lockstep.runs
        if len(self.runs) > MOST_RUNS:
            raise ConfigurationError(
                f"panel() of {len(self.runs)} runs: at most {MOST_RUNS} fit side by side. Show some of them, or compare them "
                "all with lab.plots.curves(lab.frame(runs))."
            )
        self._agents = tuple(agents)
        self._courses = Courses()
        self._panels: dict[int, Panel] = {}
        self._stepped = False

    def _compose(self) -> None:
        self.go = action_button("Run all", "run", lambda: self.guard(self._go), button_style="primary")
        self.step = action_button("Step all", "step", lambda: self.guard(self._step))
        self.pause = action_button("Pause all", "pause", lambda: self.guard(self.lockstep.pause))
        self.stop = action_button("Stop all", "stop", lambda: self.guard(self._stop))
        self.round = Html()
        self.columns = [RunColumn(run, place, self._redrawer.mark) for place, run in enumerate(self.runs, start=1)]
        named = [(str(place), run) for place, run in enumerate(self.runs, start=1)]
        self._curves = PacedPicture(lambda: figure_html(self._courses.figure(named)))
        self.chart = Html()
        titles = [(run_title(run, place + 1)[:70], place) for place, run in enumerate(self.runs)]
        self.open = widgets.Dropdown(
            description="Open", options=[("none of them", _NOTHING_OPEN), *titles], value=_NOTHING_OPEN,
            style={"description_width": "initial"}, layout=widgets.Layout(width="auto", max_width="32em"),
            tooltip="Show the whole panel of one run below",
        )  # fmt: skip
        self.open.observe(lambda change: self.guard(lambda: self._open(change["new"])), "value")
        self.opened = widgets.VBox([])
        buttons = widgets.HBox(
            [self.go, self.step, self.pause, self.stop, self.round],
            layout=widgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="2px 4px"),
        )
        row = widgets.HBox([column.view for column in self.columns])
        row.add_class("agentlab-columns")
        self._put(buttons, row, self.chart, self.open, self.opened)

    def _show(self) -> bool:
        self._show_buttons()
        for column in self.columns:
            column.show()
        if any(len(run.history) for run in self.runs):
            self.chart.value = self._curves.as_html(state_of(self.runs), under_way=self._is_under_way())
        return False

    def _show_buttons(self) -> None:
        lockstep, state, waits = self.lockstep, self.lockstep.state, self._waits()
        stopping = state is not RunState.ENDED and self._all_stopping()
        whys = why_not(state, pausing=lockstep.pausing, waits=waits, words=ALL)
        self.go.description = "Resume all" if state is RunState.PAUSED or waits else "Run all"
        self.stop.description = "Stop all now" if stopping else "Stop all"
        set_button(self.go, whys["go"], "Run to the end, round by round")
        set_button(self.step, whys["step"], "Take one step of each run, at the same time")
        set_button(self.pause, whys["pause"], "Pause all before the next round; paused time does not count")
        set_button(self.stop, whys["stop"], "Cut off the current steps" if stopping else "End all runs after the current round")
        ended = sum(run.result is not None for run in self.runs)
        words = [f"round <b>{lockstep.round}</b>", f"{ended} of {len(self.runs)} ended"]
        if waits:
            paused = ", ".join(str(place) for place, run in enumerate(self.runs, start=1) if run.control.pausing)
            words.append(f"all wait for run {paused}, which is paused")
        elif lockstep.pausing and lockstep.rounds.is_stepping:
            words.append("pauses after this round")
        elif stopping:
            words.append("stops after this round")
        badge = f'<span class="agentlab-badge {state}" role="status">{state}</span>'
        self.round.value = f'<div class="agentlab-status">{badge} <span>{"</span> <span>".join(words)}</span></div>'

    def _all_stopping(self) -> bool:
        return all(run.result is not None or run.control.stop_request is not None for run in self.runs)

    def _waits(self) -> bool:
        """True if a single paused run holds up the others."""
        lockstep = self.lockstep
        is_held = not lockstep.pausing and not lockstep.rounds.is_stepping and lockstep.state is RunState.RUNNING
        return is_held and any(run.control.pausing for run in self.runs)

    def _go(self) -> None:
        if self.lockstep.pausing or self._waits():
            self.lockstep.resume()
        if self.lockstep.state is not RunState.RUNNING or self._stepped:  # pressed before the page showed the round under way
            self.lockstep.worker.launch()
        self._stepped = False

    def _step(self) -> None:
        self.lockstep.worker.launch_step()
        self._stepped = True

    def _stop(self) -> None:
        if self._all_stopping():
            self.lockstep.cancel()
        else:
            self.lockstep.stop("the Stop all button")

    def _open(self, place: int) -> None:
        """Show the panel of one run below, or none."""
        if place == _NOTHING_OPEN:
            self.opened.children = []
            return
        if place not in self._panels:
            self._panels[place] = Panel(self.runs[place], self._agents)
        self.opened.children = [self._panels[place].embed()]
        self._adopt_if_shown()

    def _is_under_way(self) -> bool:
        return self.lockstep.state is RunState.RUNNING or any(run.state is RunState.RUNNING for run in self.runs)

    def _finished(self) -> object:
        return "all" if self.lockstep.ended else None

    def to_html(
        self, path: str | os.PathLike[str] | None = None, *, timing: bool = True, raw: bool | Iterable[int] = False
    ) -> str | Path:
        """Write the runs and their branches as one HTML file; see `Run.to_html`."""
        from agentlab.notebook.page import to_html  # the page is made of parts of the panel

        return to_html(self.runs, path, timing=timing, raw=raw)

    def _static(self) -> StaticRuns:
        return StaticRuns(self.runs, self._courses)

    def __repr__(self) -> str:
        return f"SideBySide({list(self.runs)!r})"


class RunColumn:
    """The column of one run: state and totals, limits, the newest answer, why it stopped. `number` is its place, from 1."""

    def __init__(self, run: Run, number: int, redraw: Callable[[], None]) -> None:
        self.run, self._number, self._redraw = run, number, redraw
        self._answer = Answer(run)
        self.view = Html()
        self.view.add_class("agentlab-column")
        if run.result is None:
            self._answer.watch()
            run.observe(self._on_event)
            run.limits.subscribe(lambda before, after, by: redraw())

    def _on_event(self, event: events.Event) -> None:
        self._answer.take(event)
        self._redraw()

    def show(self) -> None:
        """Update the column."""
        self.view.value = column_html(self.run, self._number, self._answer.catch_up())


def run_title(run: Run, number: int) -> str:
    """The name of a run among those beside it."""
    return f"{number}  {printable(run.agent.name)}"


def column_html(run: Run, number: int, shown_answer: ShownAnswer) -> str:
    """The column as HTML."""
    text = shown_answer.text[-SHOWN_CHARACTERS:]
    cut = "… " if len(text) < (len(shown_answer.text) if shown_answer.length is None else shown_answer.length) else ""
    answer = f'<div class="agentlab-answer"><pre dir="auto">\n{cut}{markup.escape_whole(text)}</pre></div>' if text else ""
    return (
        f'<div role="group" aria-label="{markup.escape(f"Run {run_title(run, number)}")}">'
        f'<div class="agentlab-column-head">Run {number}</div>'
        f"{markup.status(run)}{markup.ending_line(run)}{markup.meters(run)}{markup.note(shown_answer.label)}{answer}</div>"
    )


class StaticRuns(StaticOutputs):
    """Several runs for a reader without a kernel, without ids and times, which differ at every execution."""

    def __init__(self, runs: Sequence[Run], courses: Courses) -> None:
        self._runs, self._courses = tuple(enumerate(runs, start=1)), courses

    def pictures(self) -> list[Picture]:
        """Tokens and cost of the runs, if there are steps."""
        if not any(len(run.history) for _, run in self._runs):
            return []
        figure = self._courses.figure([(str(place), run) for place, run in self._runs])
        width, height = (round(inches * DPI) for inches in figure.get_size_inches())
        return [Picture(figure.png(SCALE), figure.alt, width, height)]

    def text(self) -> str:
        """The runs in a line each."""
        return printable("\n".join(f"{run_title(run, place)}: {run.result or run}" for place, run in self._runs))

    def html(self, pictures: str = "") -> str:
        """The runs as a table, and their answers."""
        rows = [
            (
                place,
                run.agent.name,
                run.state,
                len(run.history),
                markup.tokens(run.history.tokens),
                markup.dollars(run.history.cost_usd),
                "" if run.result is None else run.result.stop_reason,
            )
            for place, run in self._runs
        ]
        table = markup.table(("run", "agent", "state", "steps", "tokens", "cost", "ended by"), rows, numbers=(3, 4, 5))
        answers = (
            f"<p><b>Run {place}</b></p>{markup.ending_line(run)}{answer_html(Answer(run).shown())}" for place, run in self._runs
        )
        return panel_html(table, pictures, *answers)
