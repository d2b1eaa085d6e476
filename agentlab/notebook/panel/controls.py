"""The buttons: run, step, pause, stop. A button that cannot be pressed says why."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import anywidget
import ipywidgets as widgets
import traitlets

from agentlab.engine.run_tree import family_of
from agentlab.errors import ConfigurationError
from agentlab.notebook.panel.state import PanelState
from agentlab.run import Run, RunState


class Controls:
    """The row of buttons of a run."""

    def __init__(self, scene: PanelState) -> None:
        self._run, guard = scene.run, scene.do
        self._stepped = False
        self.go = widgets.Button(description="Run", button_style="primary")
        self.step = widgets.Button(description="Step")
        self.pause = widgets.Button(description="Pause")
        self.stop = widgets.Button(description="Stop")
        for button, icon in ((self.go, "run"), (self.step, "step"), (self.pause, "pause"), (self.stop, "stop")):
            button.add_class(f"agentlab-icon-{icon}")
        self.go.on_click(lambda _: guard(self._go))
        self.step.on_click(lambda _: guard(self._step))
        self.pause.on_click(lambda _: guard(self._pause))
        self.stop.on_click(lambda _: guard(self._stop))
        self.view = widgets.HBox([self.go, self.step, self.pause, self.stop])
        self.show()

    def show(self) -> bool:
        """Bring the buttons up to date with the run."""
        run, state = self._run, self._run.state
        pausing = run.pausing and state is RunState.RUNNING
        stopping = run.stop_request is not None and state is not RunState.ENDED
        self.go.description = "Resume" if state is RunState.PAUSED else "Run"
        self.stop.description = "Stop now" if stopping else "Stop"
        whys = why_not(state, pausing=pausing)
        set_button(self.go, whys["go"], "Go on to the end (steps so far are kept)")
        set_button(self.step, whys["step"], "Take one step")
        set_button(self.pause, whys["pause"], "Pause before the next step; the time does not count")
        set_button(self.stop, whys["stop"], "Cut off the step under way" if stopping else "End the run after the step under way")
        return False

    def _go(self) -> None:
        if self._run.pausing:
            self._run.resume()
        if self._run.state is not RunState.RUNNING or self._stepped:  # pressed before the page could tell of the step under way
            self._run.launch()
        self._stepped = False

    def _step(self) -> None:
        self._run.launch_step()
        self._stepped = True

    def _pause(self) -> None:
        self._run.pause()

    def _stop(self) -> None:
        if self._run.stop_request is not None:
            self._run.cancel()
        else:
            self._run.stop("the Stop button")


def why_not(state: RunState, *, pausing: bool) -> dict[str, str]:
    """For each button why it cannot be pressed now; an empty text where it can."""
    if state is RunState.ENDED:
        return dict.fromkeys(("go", "step", "pause", "stop"), "The run has ended.")
    if pausing:
        wait = "It pauses after this step."
        return {"go": wait, "step": wait, "pause": wait, "stop": ""}
    if state is RunState.RUNNING:
        return {"go": "The run is under way.", "step": "The run is under way.", "pause": "", "stop": ""}
    return {
        "go": "",
        "step": "",
        "pause": "It is paused already." if state is RunState.PAUSED else "Nothing is running.",
        "stop": "",
    }


def set_button(button: widgets.Button, why_not: str, what: str) -> None:
    """What the button does; it cannot be pressed where there is something to say why not, which then stands there instead."""
    button.disabled = bool(why_not)
    button.tooltip = why_not or what


SCRIPT = Path(__file__).with_name("pointer.js")


class Clicks(anywidget.AnyWidget):
    """The page's side: shows nothing, and sends what was clicked as a message. See pointer.js."""

    _esm = traitlets.Unicode().tag(sync=True)

    @traitlets.default("_esm")
    def _script(self) -> str:
        return _read_script()


@functools.cache
def _read_script() -> str:
    return SCRIPT.read_text(encoding="utf-8")


class Pointer:
    """Listens for clicks: on a step (a row of a table, a point of a chart), on a run, on a section of a step's detail.

    `on_section(name, is_open)` hears of a section that was opened or closed; `on_run(run)` of a run that was clicked, which without it
    is opened. What comes from the page is checked like anything else from outside.
    """

    def __init__(
        self,
        scene: PanelState,
        on_section: Callable[[str, bool], None] | None = None,
        on_run: Callable[[Run], None] | None = None,
    ) -> None:
        self._scene = scene
        self._on_section, self._on_run = on_section, on_run or scene.open
        self.clicks = Clicks()
        self.view = widgets.Box(
            [self.clicks], layout=widgets.Layout(display="none")
        )  # also where the page cannot make it, and says so
        self.clicks.on_msg(lambda widget, content, buffers: self.clicked(content))

    def clicked(self, content: object) -> None:
        """Do what a message of the page asks for."""
        match content:
            case {"run": str(run_id)}:
                self._scene.do(lambda: self._on_run(self._run_with(run_id)))
            case {"step": int(step)} if not isinstance(step, bool):
                self._scene.do(lambda: self._scene.choose(step))
            case {"section": str(name), "open": bool(is_open)} if self._on_section is not None:
                self._on_section(name, is_open)

    def _run_with(self, run_id: str) -> Run:
        for member in family_of(self._scene.run):
            if member.run_id == run_id:
                return member.run
        raise ConfigurationError(f"Run {run_id[:40]!r} is no branch of this run, nor one that it was forked from.")

    def show(self) -> bool:
        """Nothing is shown."""
        return False
