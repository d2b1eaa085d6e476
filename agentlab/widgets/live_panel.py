"""The panel as a whole: put together from its parts, brought up to date by one writer, shown live or as a static table and picture."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets as widgets
from IPython import display

from agentlab import events
from agentlab.jupyter import frontend, kernel_mend
from agentlab.run import Run, RunState
from agentlab.widgets import markup
from agentlab.widgets.answer import Answer
from agentlab.widgets.controls import Controls
from agentlab.widgets.curve import Curve
from agentlab.widgets.limit_editor import LimitEditor
from agentlab.widgets.redraw import Redrawer

NEWEST_STEPS = 8


class Panel:
    """The live control of one run. It holds no state of its own: it shows the run, and writes to `run.limits`.

    As the last expression of a cell it shows itself. `bundle()` is what a reader without a kernel sees.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._display_id = uuid.uuid4().hex
        self._drawing = threading.Lock()
        self._curve = Curve(run)
        self._answer = Answer(run)
        self._widget: widgets.Widget | None = None
        self._shown_live = False

    # Live -------------------------------------------------------------------------------------------------------------------

    @property
    def widget(self) -> widgets.Widget:
        """The live widget, made when it is first asked for."""
        if self._widget is None:
            self._build()
        return self._widget

    def _build(self) -> None:
        self.controls = Controls(self.run, self.guard)
        self.editor = LimitEditor(self.run)
        self.status, self.meters, self.steps, self.end = widgets.HTML(), widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.picture, self.fault = widgets.HTML(), widgets.HTML()
        self.answer_label, self.answer = widgets.HTML(), widgets.HTML(tabbable=True)  # it scrolls: in reach of the keyboard
        self.answer.add_class("agentlab-answer-box")
        seen = widgets.VBox([self.meters, self.picture, self.steps], layout=widgets.Layout(flex="1 1 30em", min_width="24em"))
        edited = widgets.VBox([self.editor.view], layout=widgets.Layout(flex="0 1 27em", min_width="24em"))
        body = widgets.HBox([seen, edited], layout=widgets.Layout(flex_flow="row wrap", grid_gap="10px 24px"))
        style = widgets.HTML(markup.STYLE + markup.LIVE_STYLE)
        said = [self.answer_label, self.answer]
        panel = widgets.VBox([style, self.status, self.controls.view, self.end, *said, body, self.fault])
        panel.add_class("agentlab-panel")
        self._redrawer = Redrawer(
            self._draw_safely, lambda: self.run.state is RunState.RUNNING, lambda: self.run.result is not None
        )
        self._widget = panel
        if self.run.result is None:
            self._answer.watch()
            self.run.observe(self._on_event)
            self.run.limits.subscribe(lambda before, after, by: self._redrawer.mark())
            self._redrawer.start()
        self._draw_safely()  # last: what happens from now on is told

    def guard(self, action: Callable[[], object]) -> None:
        """Do what a control asks for; an error is shown under the panel, with no traceback lost in a log."""
        try:
            action()
        except Exception as error:
            self.fault.value = markup.fault(f"{type(error).__name__}: {error}")
        else:
            self.fault.value = ""
        self._redrawer.mark()

    def _on_event(self, event: events.Event) -> None:
        self._answer.take(event)
        self._redrawer.mark()

    def _draw_safely(self) -> None:
        try:
            with self._drawing:
                self._draw()
        except Exception as error:
            self.fault.value = markup.fault(f"The panel could not be drawn: {type(error).__name__}: {error}")

    def _draw(self) -> None:
        run = self.run
        self.status.value = markup.status(run)
        self.meters.value = markup.meters(run)
        self.steps.value = markup.steps(run, NEWEST_STEPS)
        self.end.value = markup.end(run.result)
        said = self._answer.catch_up()
        self.answer_label.value, self.answer.value = markup.answer_label(said), markup.answer(said)
        self.picture.value = self._curve.as_html()
        self.controls.show()
        if self.editor.show() and self._shown_live:
            self._adopt()
        if run.result is not None and self._shown_live:
            self._shown_live = False
            display.update_display(self._live_bundle(), raw=True, display_id=self._display_id)

    # Shown ------------------------------------------------------------------------------------------------------------------

    def bundle(self) -> dict[str, Any]:
        """The run as it stands for a reader without a kernel: text, an HTML table, a PNG. Times are left out, so that it is the same
        at every execution on recorded fixtures."""
        run = self.run
        told = f"{run.result}" if run.result is not None else f"{run}"
        said = self._answer.said()
        parts = (
            markup.STYLE,
            markup.status(run, timing=False),
            markup.end(run.result),
            markup.answer_label(said),
            markup.answer(said) if said.text else "",
            markup.meters(run, timing=False),
            markup.steps(run),
        )
        return {
            "text/plain": markup.printable(f"{run.agent.name}: {told}\n{said}"),
            "text/html": f'<div class="agentlab-panel">{"".join(parts)}</div>',
            "image/png": self._curve.as_base64(),
        }

    def _live_bundle(self) -> dict[str, Any]:
        live = {
            "application/vnd.jupyter.widget-view+json": {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        }
        return {**self.bundle(), **live}

    def _ipython_display_(self) -> None:
        if frontend.is_present():
            self._adopt()
            self._shown_live = self.run.result is None
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
