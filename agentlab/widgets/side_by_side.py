"""Several runs side by side, on the same task: taken step by step together, compared in one chart, each to be opened."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from agentlab.engine.lockstep import Lockstep
from agentlab.errors import ConfigurationError
from agentlab.plots._figure import DPI
from agentlab.printable import AS_WRITTEN
from agentlab.run import Run, RunState
from agentlab.widgets import markup
from agentlab.widgets.answer import Answer
from agentlab.widgets.comparison import SCALE, Courses, KeptPicture, state_of
from agentlab.widgets.controls import set_button
from agentlab.widgets.live_panel import Panel
from agentlab.widgets.live_view import LiveView, Output
from agentlab.widgets.picture import Picture
from agentlab.widgets.run_column import RunColumn, ending, title
from agentlab.widgets.style import STYLE
from agentlab.widgets.written import Html

if TYPE_CHECKING:
    from agentlab.agent import Agent

MOST_RUNS = 8
"""More do not fit beside each other, nor can they be told apart in one chart."""

_NOTHING_OPEN = -1


class SideBySide(LiveView):
    """The live control of several runs: one row of buttons for all, a column each. It holds no state of theirs.

    As the last expression of a cell it shows itself; `lockstep` takes their steps. `agents` are others that a branch may go on with.
    """

    def __init__(self, runs: Iterable[Run] | Lockstep, agents: Iterable[Agent] = ()) -> None:
        super().__init__()
        self.lockstep = runs if isinstance(runs, Lockstep) else Lockstep(runs)
        self.runs = self.lockstep.runs
        if len(self.runs) > MOST_RUNS:
            raise ConfigurationError(
                f"panel() of {len(self.runs)} runs: at most {MOST_RUNS} stand side by side. Show some of them, or compare them "
                "all with lab.plots.curves(lab.frame(runs))."
            )
        self._agents = tuple(agents)
        self._courses = Courses()
        self._panels: dict[int, Panel] = {}
        self._stepped = False

    # Live -------------------------------------------------------------------------------------------------------------------

    def _compose(self) -> None:
        self.go = _button("Run all", "run", lambda: self.guard(self._go), button_style="primary")
        self.step = _button("Step all", "step", lambda: self.guard(self._step))
        self.pause = _button("Pause all", "pause", lambda: self.guard(self.lockstep.pause))
        self.stop = _button("Stop all", "stop", lambda: self.guard(self._stop))
        self.round = Html()
        self.columns = [RunColumn(run, place, self._redrawer.mark) for place, run in enumerate(self.runs, start=1)]
        self._curves = KeptPicture(lambda: self._courses.figure(self._named()))
        self.chart = Html()
        self.open = widgets.Dropdown(
            description="Open", options=self._offered(), value=_NOTHING_OPEN, style={"description_width": "initial"},
            layout=widgets.Layout(width="auto", max_width="32em"), tooltip="Show one run's whole panel below",
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

    def _offered(self) -> list[tuple[str, int]]:
        return [("none of them", _NOTHING_OPEN), *[(title(run, place + 1)[:70], place) for place, run in enumerate(self.runs)]]

    def _named(self) -> list[tuple[str, Run]]:
        return [(str(place), run) for place, run in enumerate(self.runs, start=1)]

    def _show(self) -> bool:
        self._show_buttons()
        for column in self.columns:
            column.show()
        if any(len(run.history) for run in self.runs):
            self.chart.value = self._curves.as_html(state_of(self.runs), going_on=self._is_under_way())
        return False

    def _show_buttons(self) -> None:
        lockstep, state = self.lockstep, self.lockstep.state
        stopping = state is not RunState.ENDED and all(
            run.result is not None or run.control.stop_request is not None for run in self.runs
        )
        whys = why_not(state, pausing=lockstep.pausing, waits=self._waits())
        self.go.description = "Resume all" if state is RunState.PAUSED or self._waits() else "Run all"
        self.stop.description = "Stop all now" if stopping else "Stop all"
        set_button(self.go, whys["go"], "Go on to the end, round by round")
        set_button(self.step, whys["step"], "Take one step of each run, all at the same time")
        set_button(self.pause, whys["pause"], "Pause all before the next round; the time does not count")
        set_button(
            self.stop, whys["stop"], "Cut off the steps under way" if stopping else "End all runs after the round under way"
        )
        ended = sum(run.result is not None for run in self.runs)
        words = [f"round <b>{lockstep.round}</b>", f"{ended} of {len(self.runs)} ended"]
        if self._waits():
            paused = ", ".join(str(place) for place, run in enumerate(self.runs, start=1) if run.control.pausing)
            words.append(f"all wait for run {paused}, which is paused")
        elif lockstep.pausing and lockstep.rounds.is_stepping:
            words.append("pauses after this round")
        elif stopping:
            words.append("stops after this round")
        badge = f'<span class="agentlab-badge {state}" role="status">{state}</span>'
        self.round.value = f'<div class="agentlab-status">{badge} <span>{"</span> <span>".join(words)}</span></div>'

    def _waits(self) -> bool:
        """Whether a run that was paused by itself holds up the others."""
        lockstep = self.lockstep
        is_held = not lockstep.pausing and not lockstep.rounds.is_stepping and lockstep.state is RunState.RUNNING
        return is_held and any(run.control.pausing for run in self.runs)

    def _go(self) -> None:
        if self.lockstep.pausing or self._waits():
            self.lockstep.resume()
        if self.lockstep.state is not RunState.RUNNING or self._stepped:  # pressed before the page told of the round under way
            self.lockstep.worker.launch()
        self._stepped = False

    def _step(self) -> None:
        self.lockstep.worker.launch_step()
        self._stepped = True

    def _stop(self) -> None:
        if all(run.result is not None or run.control.stop_request is not None for run in self.runs):
            self.lockstep.cancel()
        else:
            self.lockstep.stop("the Stop all button")

    def _open(self, place: int) -> None:
        """Show the whole panel of one run below, or none."""
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

    # Shown ------------------------------------------------------------------------------------------------------------------

    def _static(self) -> StaticRuns:
        return StaticRuns(self.runs, self._courses)

    def __repr__(self) -> str:
        return f"SideBySide({list(self.runs)!r})"


class StaticRuns:
    """Several runs as they stand for a reader without a kernel. Ids and times are left out: they differ at every execution."""

    def __init__(self, runs: Sequence[Run], courses: Courses) -> None:
        self._runs, self._courses = runs, courses

    def bundle(self, *, with_pictures: bool = False) -> dict[str, Any]:
        """All in one; most readers show its HTML and nothing else of it, so `with_pictures` puts the chart there."""
        picture = self._picture()
        data: dict[str, Any] = {
            "text/plain": self._text(),
            "text/html": self._html(picture.as_html() if with_pictures and picture is not None else ""),
        }
        return data if picture is None else {**data, "image/png": base64.b64encode(picture.png).decode()}

    def outputs(self) -> list[Output]:
        """Text and HTML, then the chart."""
        picture = self._picture()
        told: Output = ({"text/plain": self._text(), "text/html": self._html()}, {})
        return [told] if picture is None else [told, picture.as_output()]

    def _picture(self) -> Picture | None:
        if not any(len(run.history) for run in self._runs):
            return None
        figure = self._courses.figure([(str(place), run) for place, run in enumerate(self._runs, start=1)])
        width, height = (round(inches * DPI) for inches in figure.get_size_inches())
        return Picture(figure.png(SCALE), figure.alt, width, height)

    def _text(self) -> str:
        lines = [f"{title(run, place)}: {run.result or run}" for place, run in enumerate(self._runs, start=1)]
        return markup.printable("\n".join(lines))

    def _html(self, picture: str = "") -> str:
        heads = ("run", "agent", "state", "steps", "tokens", "cost", "ended by")
        rows = [
            (
                place,
                markup.printable(run.agent.name),
                run.state,
                len(run.history),
                markup.tokens(run.history.tokens),
                markup.dollars(run.history.cost_usd),
                "" if run.result is None else run.result.stop_reason,
            )
            for place, run in enumerate(self._runs, start=1)
        ]
        answers = "".join(
            f"<p><b>Run {place}</b></p>{ending(run)}{markup.answer(Answer(run).said())}"
            for place, run in enumerate(self._runs, start=1)
        )
        table = markup.table(heads, rows, numbers=(3, 4, 5))
        return f'<div class="agentlab-panel {AS_WRITTEN}">{STYLE}{table}{picture}{answers}</div>'


def why_not(state: RunState, *, pausing: bool, waits: bool) -> dict[str, str]:
    """For each button why it cannot be pressed now; an empty text where it can."""
    if state is RunState.ENDED:
        return dict.fromkeys(("go", "step", "pause", "stop"), "All runs have ended.")
    if state is RunState.RUNNING and pausing:
        wait = "They pause after this round."
        return {"go": wait, "step": wait, "pause": wait, "stop": ""}
    if state is RunState.RUNNING:
        busy = "A round is under way."
        return {"go": "" if waits else busy, "step": busy, "pause": "", "stop": ""}
    idle = "They are paused already." if state is RunState.PAUSED else "Nothing is running."
    return {"go": "", "step": "", "pause": idle, "stop": ""}


def _button(text: str, icon: str, press: Any, **more: Any) -> widgets.Button:
    button = widgets.Button(description=text, **more)
    button.add_class(f"agentlab-icon-{icon}")
    button.on_click(lambda _: press())
    return button
