"""The panel as a whole: which run it shows, brought up to date by one writer, live or as a static table and picture."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
from IPython import display

from agentlab.jupyter import frontend, kernel_mend
from agentlab.run import Run, RunState
from agentlab.widgets import markup, static_view
from agentlab.widgets.answer import Answer
from agentlab.widgets.cockpit import Cockpit
from agentlab.widgets.curve import Curve
from agentlab.widgets.redraw import Redrawer
from agentlab.widgets.scene import Scene, Stage
from agentlab.widgets.style import LIVE_STYLE, STYLE

if TYPE_CHECKING:
    from agentlab.agent import Agent


class Panel:
    """The live control of one run and its branches. It holds no state of theirs: it shows the run, and writes to `run.limits`.

    As the last expression of a cell it shows itself. `bundle()` is what a reader without a kernel sees. `agents` are others that a
    branch may go on with.
    """

    def __init__(self, run: Run, agents: Iterable[Agent] = ()) -> None:
        self.run = run
        self._agents = {agent.name: agent for agent in agents}
        self._display_id = uuid.uuid4().hex
        self._drawing = threading.RLock()
        self._cockpits: dict[str, Cockpit] = {}
        self._widget: widgets.VBox | None = None
        self._shown_live = False
        self._saved: set[str] = set()

    # Live -------------------------------------------------------------------------------------------------------------------

    @property
    def widget(self) -> widgets.Widget:
        """The live widget, made when it is first asked for."""
        if self._widget is None:
            self._build()
        return self._widget

    @property
    def cockpit(self) -> Cockpit:
        """The parts that show the run, made when they are first asked for."""
        if self._widget is None:
            self._build()
        return self._cockpits[self.run.id]

    def _build(self) -> None:
        self.fault = widgets.HTML()
        self._style = widgets.HTML(STYLE + LIVE_STYLE)
        self._redrawer = Redrawer(self._draw_safely, self._is_under_way, lambda: not self._is_under_way())
        self._stage = Stage(self.guard, self._redrawer.mark, self.open, self._agents)
        self._widget = widgets.VBox()
        self._widget.add_class("agentlab-panel")
        self.open(self.run)

    def open(self, run: Run) -> None:
        """Show this run: a branch, or the one it was forked from."""
        with self._drawing:
            self.run = run
            if run.id not in self._cockpits:
                self._cockpits[run.id] = Cockpit(Scene(run, self._stage))
                self._cockpits[run.id].watch()
            assert self._widget is not None  # noqa: S101  for the type checker: _build came first
            self._widget.children = [self._style, self._cockpits[run.id].view, self.fault]
            self._draw_safely()  # last: what happens from now on is told
            if self._shown_live:
                self._adopt()
        self._redrawer.mark()

    def guard(self, action: Callable[[], object]) -> None:
        """Do what a control asks for; an error is shown under the panel, with no traceback lost in a log."""
        try:
            action()
        except Exception as error:
            self.fault.value = markup.fault(f"{type(error).__name__}: {error}")
        else:
            self.fault.value = ""
        self._redrawer.mark()

    def _is_under_way(self) -> bool:
        return any(cockpit.scene.run.state is RunState.RUNNING for cockpit in tuple(self._cockpits.values()))

    def _draw_safely(self) -> None:
        try:
            with self._drawing:
                self._draw()
        except Exception as error:
            self.fault.value = markup.fault(f"The panel could not be drawn: {type(error).__name__}: {error}")

    def _draw(self) -> None:
        if self.cockpit.show() and self._shown_live:
            self._adopt()
        if self._shown_live and self.run.result is not None and self.run.id not in self._saved:
            self._saved.add(self.run.id)
            display.update_display(self._live_bundle(), raw=True, display_id=self._display_id)

    # Shown ------------------------------------------------------------------------------------------------------------------

    def bundle(self) -> dict[str, Any]:
        """The run as it stands for a reader without a kernel: text, an HTML table, a PNG. Times are left out, so that it is the same
        at every execution on recorded fixtures."""
        cockpit = self._cockpits.get(self.run.id)
        if cockpit is None:
            return static_view.bundle(self.run, Curve(self.run), Answer(self.run).said())
        return static_view.bundle(self.run, cockpit.chart.curve, cockpit.answer.answer.said())

    def _live_bundle(self) -> dict[str, Any]:
        live = {
            "application/vnd.jupyter.widget-view+json": {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        }
        return {**self.bundle(), **live}

    def _ipython_display_(self) -> None:
        if frontend.is_present():
            self._adopt()
            self._shown_live = True
            if self.run.result is not None:
                self._saved.add(self.run.id)
            display.display(self._live_bundle(), raw=True, display_id=self._display_id)
        else:
            display.display(self.bundle(), raw=True)

    def _adopt(self) -> None:
        """Have the kernel handle what comes from these controls also while a cell awaits something."""
        kernel = kernel_mend.mend()
        for control in self._controls():
            kernel.adopt(control.comm)

    def _controls(self) -> Iterator[widgets.Widget]:
        """All widgets of the panel that send what a person does."""
        waiting = [self.widget]
        while waiting:
            widget = waiting.pop()
            yield widget
            waiting.extend(getattr(widget, "children", ()))

    def __repr__(self) -> str:
        return f"Panel({self.run!r})"
