"""The buttons: run, step, pause, stop. A button that cannot be pressed says why."""

from __future__ import annotations

import ipywidgets as widgets

from agentlab.run import RunState
from agentlab.widgets.scene import Scene


class Controls:
    """The row of buttons of a run."""

    def __init__(self, scene: Scene) -> None:
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
        pausing = run.control.pausing and state is RunState.RUNNING
        stopping = run.control.stop_request is not None and state is not RunState.ENDED
        self.go.description = "Resume" if state is RunState.PAUSED else "Run"
        self.stop.description = "Stop now" if stopping else "Stop"
        whys = why_not(state, pausing=pausing)
        set_button(self.go, whys["go"], "Go on to the end (steps so far are kept)")
        set_button(self.step, whys["step"], "Take one step")
        set_button(self.pause, whys["pause"], "Pause before the next step; the time does not count")
        set_button(self.stop, whys["stop"], "Cut off the step under way" if stopping else "End the run after the step under way")
        return False

    def _go(self) -> None:
        if self._run.control.pausing:
            self._run.resume()
        if self._run.state is not RunState.RUNNING or self._stepped:  # pressed before the page could tell of the step under way
            self._run.worker.launch()
        self._stepped = False

    def _step(self) -> None:
        self._run.worker.launch_step()
        self._stepped = True

    def _pause(self) -> None:
        self._run.pause()

    def _stop(self) -> None:
        if self._run.control.stop_request is not None:
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
