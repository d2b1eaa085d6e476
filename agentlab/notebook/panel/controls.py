"""The buttons run, step, pause and stop, and clicks in the panel's tables and charts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import anywidget
import ipywidgets as widgets
import traitlets

from agentlab.agent import Run
from agentlab.engine.run_tree import family_of
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError
from agentlab.notebook.live_view import PanelState

ONE_RUN = ("The run has ended.", "It pauses after this step.", "The run is under way.", "It is paused already.")
"""The reasons why a button is disabled: the run has ended, will pause, is under way, is paused."""
SCRIPT = Path(__file__).with_name("pointer.js")


class Controls:
    """The row of buttons of a run."""

    def __init__(self, state: PanelState) -> None:
        self._run = state.run
        self._stepped = False
        self.go = action_button("Run", "run", lambda: state.do(self._go), button_style="primary")
        self.step = action_button("Step", "step", lambda: state.do(self._step))
        self.pause = action_button("Pause", "pause", lambda: state.do(self._run.pause))
        self.stop = action_button("Stop", "stop", lambda: state.do(self._stop))
        self.view = widgets.HBox([self.go, self.step, self.pause, self.stop])
        self.show()

    def show(self) -> bool:
        """Update the buttons."""
        run, state = self._run, self._run.state
        stopping = run.control.stop_request is not None and state is not RunState.ENDED
        self.go.description = "Resume" if state is RunState.PAUSED else "Run"
        self.stop.description = "Stop now" if stopping else "Stop"
        whys = why_not(state, pausing=run.control.pausing)
        set_button(self.go, whys["go"], "Run to the end; the steps so far are kept")
        set_button(self.step, whys["step"], "Take one step")
        set_button(self.pause, whys["pause"], "Pause before the next step; paused time does not count")
        set_button(self.stop, whys["stop"], "Cut off the current step" if stopping else "End the run after the current step")
        return False

    def _go(self) -> None:
        if self._run.control.pausing:
            self._run.resume()
        if self._run.state is not RunState.RUNNING or self._stepped:  # pressed before the page showed the step under way
            self._run.worker.launch()
        self._stepped = False

    def _step(self) -> None:
        self._run.worker.launch_step()
        self._stepped = True

    def _stop(self) -> None:
        if self._run.control.stop_request is not None:
            self._run.cancel()
        else:
            self._run.stop("the Stop button")


def why_not(state: RunState, *, pausing: bool, waits: bool = False, words: tuple[str, ...] = ONE_RUN) -> dict[str, str]:
    """Return why each button is disabled now; empty if it is not. `waits`: a paused run holds up the others."""
    ended, wait, busy, paused = words
    if state is RunState.ENDED:
        return dict.fromkeys(("go", "step", "pause", "stop"), ended)
    if pausing and state is RunState.RUNNING:
        return {"go": wait, "step": wait, "pause": wait, "stop": ""}
    if state is RunState.RUNNING:
        return {"go": "" if waits else busy, "step": busy, "pause": "", "stop": ""}
    if state is RunState.WAITING:
        return dict.fromkeys(("go", "step", "pause", "stop"), "")
    return {"go": "", "step": "", "pause": paused if state is RunState.PAUSED else "Nothing is running.", "stop": ""}


def action_button(text: str, icon: str, press: Callable[[], object], **more: object) -> widgets.Button:
    """A button with an icon of the style sheet."""
    button = widgets.Button(description=text, **more)
    button.add_class(f"agentlab-icon-{icon}")
    button.on_click(lambda _: press())
    return button


def set_button(button: widgets.Button, why_not: str, what: str) -> None:
    """Disable the button if `why_not` gives a reason; the tooltip says that, or what the button does."""
    button.disabled = bool(why_not)
    button.tooltip = why_not or what


class Clicks(anywidget.AnyWidget):
    """The page's side of `Pointer`: invisible, sends each click as a message. See pointer.js."""

    _esm = traitlets.Unicode().tag(sync=True)

    @traitlets.default("_esm")
    def _script(self) -> str:
        return _read_script()


@functools.cache
def _read_script() -> str:
    return SCRIPT.read_text(encoding="utf-8")


class Pointer:
    """Handles clicks on a step (a row of a table, a point of a chart), on a run, and on a section of a step's detail.

    `on_section(name, is_open)` is called when a section was opened or closed. If the page has no anywidget, number boxes and
    buttons do the same.
    """

    def __init__(self, state: PanelState, on_section: Callable[[str, bool], None]) -> None:
        self._state, self._on_section = state, on_section
        self.clicks = Clicks()
        self.view = widgets.Box([self.clicks], layout=widgets.Layout(display="none"))  # hides the error if it cannot be created
        self.clicks.on_msg(lambda widget, content, buffers: self.clicked(content))

    def clicked(self, content: object) -> None:
        """Handle a message of the page; anything unexpected is ignored."""
        match content:
            case {"run": str(run_id)}:
                self._state.do(lambda: self._state.open(self._run_with(run_id)))
            case {"step": int(step)} if not isinstance(step, bool):
                self._state.do(lambda: self._state.choose(step))
            case {"section": str(name), "open": bool(is_open)}:
                self._on_section(name, is_open)

    def _run_with(self, run_id: str) -> Run:
        for member in family_of(self._state.run):
            if member.run_id == run_id:
                return member.run
        raise ConfigurationError(f"Run {run_id[:40]!r} is not a branch of this run, nor a run that it was forked from.")
