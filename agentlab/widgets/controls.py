"""The buttons: run, step, pause, stop. A button that cannot be pressed says why."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from agentlab.run import Run, RunState


class Controls:
    """The row of buttons of a run."""

    def __init__(self, run: Run, guard: Callable[[Callable[[], object]], None]) -> None:
        self._run = run
        self.go = widgets.Button(description="Run", button_style="primary")
        self.step = widgets.Button(description="Step")
        self.pause = widgets.Button(description="Pause")
        self.stop = widgets.Button(description="Stop")
        self.go.on_click(lambda _: guard(self._go))
        self.step.on_click(lambda _: guard(self._step))
        self.pause.on_click(lambda _: guard(self._pause))
        self.stop.on_click(lambda _: guard(self._stop))
        self.view = widgets.HBox([self.go, self.step, self.pause, self.stop])
        self.show()

    def show(self) -> None:
        """Bring the buttons up to date with the run."""
        run, state = self._run, self._run.state
        ended = "The run has ended." if state is RunState.ENDED else ""
        running = "The run is under way." if state is RunState.RUNNING else ""
        self.go.description = "Resume" if state is RunState.PAUSED else "Run"
        _set(
            self.go,
            ended or (running if not run.pausing else "It pauses after this step."),
            "Go on to the end (steps so far are kept)",
        )
        _set(self.step, ended or running, "Take one step")
        idle = "Nothing is running." if state is RunState.READY else "It is paused already." if run.pausing else ""
        _set(self.pause, ended or idle, "Pause before the next step; the time does not count")
        stopping = run.stop_request is not None and not ended
        self.stop.description = "Stop now" if stopping else "Stop"
        _set(self.stop, ended, "Cut off the step under way" if stopping else "End the run after the step under way")

    def _go(self) -> None:
        if self._run.pausing:
            self._run.resume()
        if self._run.state is not RunState.RUNNING:
            self._run.launch()

    def _step(self) -> None:
        self._run.launch_step()

    def _pause(self) -> None:
        self._run.pause()

    def _stop(self) -> None:
        if self._run.stop_request is not None:
            self._run.cancel()
        else:
            self._run.stop("the Stop button")


def _set(button: widgets.Button, why_not: str, what: str) -> None:
    button.disabled = bool(why_not)
    button.tooltip = why_not or what
