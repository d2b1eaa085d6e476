"""What happened when, as a picture in the panel. It is drawn only while it is to be seen, and costs no more for a long run."""

from __future__ import annotations

import time
from typing import cast

import ipywidgets as widgets

from agentlab.plots.figure import PlotAxes, PlotFigure
from agentlab.plots.run_timeline import TimelinePart, draw_timeline, timeline_data, timeline_part
from agentlab.run import Run, RunState
from agentlab.widgets.picture import Picture
from agentlab.widgets.scene import Scene
from agentlab.widgets.written import Html

SHARE = 0.1
"""So much of the time may go into drawing while the run goes on: it needs the same processor."""

PIXELS = 1.5
"""Pixels of the picture per pixel of the page."""


def timeline_picture(run: Run, chosen: int | None = None, pixels: float = PIXELS) -> Picture:
    """The newest steps of the run, or those around the chosen one, which is marked."""
    part = timeline_part(run, chosen)
    marked = chosen if part.has(chosen) else None
    ended_here = part.whole or part.last == len(run.history)
    goes_on = ended_here and run.state is not RunState.ENDED
    axes = cast(PlotAxes, draw_timeline(timeline_data(part.frame), begin_s=part.begin_s, marked=marked, goes_on=goes_on))
    figure = cast(PlotFigure, axes.figure)
    width, height = (round(inches * figure.get_dpi()) for inches in figure.get_size_inches())
    about = _about(part, run, chosen)
    return Picture(figure.png(pixels), axes.alt, width, height, about)


def _about(part: TimelinePart, run: Run, chosen: int | None) -> str:
    told = []
    if not part.whole and part.last:
        steps = f"Steps {part.first:,} to {part.last:,}" if part.last > part.first else f"Step {part.last:,}"
        told.append(f"{steps} of {max(part.last, len(run.history)):,}: this is as much as can be told apart.")
    if part.has(chosen):
        told.append(f"Step {chosen:,} is the one you chose: it has a dashed frame.")
    elif chosen is not None:
        told.append(f"Step {chosen:,} is not here: it was taken before the branch, in the run that this one comes from.")
    return " ".join(told)


class TimelineView:
    """The timeline of the run, with the chosen step marked."""

    title = "Timeline"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._shown: tuple[object, ...] = ()
        self._not_before = 0.0
        self.picture = Html()
        self.view = widgets.VBox([self.picture])

    def show(self) -> bool:
        """Draw what is new; while the run goes on, not so often that it would slow it down."""
        run, chosen = self._scene.run, self._scene.chosen
        now = (len(run.events), chosen, run.state is RunState.ENDED)
        asked = self._shown and self._shown[1:] != now[1:]
        if now == self._shown or (run.state is RunState.RUNNING and not asked and time.monotonic() < self._not_before):
            return False
        began = time.monotonic()
        self._shown = now
        self.picture.value = timeline_picture(run, chosen).as_html()
        ended = time.monotonic()
        self._not_before = ended + (ended - began) / SHARE
        return False
