"""What a person does to a run: run, step, pause, stop, say something, decide on a call that waits, continue after the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentlab.agent import Run
from agentlab.engine.worker import RunState

if TYPE_CHECKING:
    from agentlab.notebook.panel.page_widget import PanelOfRuns as Panel

JSON = dict[str, Any]
Message = Mapping[str, Any]


def buttons(run: Run) -> JSON:
    """Return the buttons of a run: label, tip, and why one is disabled (empty if it is not)."""
    ended, state = run.state is RunState.ENDED, run.state
    why = "The run has ended." if ended else ""
    busy = why or ("The run is under way." if state is RunState.RUNNING else "")
    return {
        "go": {"label": "Resume" if state is RunState.PAUSED else "Run", "why_not": busy, "tip": "Run to the end"},
        "step": {"label": "Step", "why_not": busy, "tip": "Take one step"},
        "pause": {"label": "Pause", "why_not": why, "tip": "Pause before the next step"},
        "stop": {"label": "Stop", "why_not": why, "tip": "End the run after the current step"},
    }


def go(panel: Panel, run: Run, message: Message) -> None:
    """Run to the end."""
    if run.control.pausing:
        run.resume()
    run.worker.launch()


def step(panel: Panel, run: Run, message: Message) -> None:
    """Take one step."""
    run.worker.launch_step()


def pause(panel: Panel, run: Run, message: Message) -> None:
    """Pause before the next step."""
    run.pause()


def stop(panel: Panel, run: Run, message: Message) -> None:
    """End the run after the current step; at the second press, at once."""
    if run.control.stop_request is not None:
        run.cancel()
    else:
        run.stop("the Stop button")


COMMANDS = {"go": go, "step": step, "pause": pause, "stop": stop}
