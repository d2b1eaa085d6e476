"""A run for readers without a kernel: text, HTML tables, pictures. Text and HTML have no times, so that recorded fixtures give the same
output at every execution."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from typing import Any

from agentlab._internal.safe_text import AS_WRITTEN, printable
from agentlab.agent import Run
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.answer import ShownAnswer, answer_html, answer_label_html
from agentlab.notebook.panel.live_view import STYLE, Output
from agentlab.notebook.panel.pictures import Curve, Picture, timeline_picture
from agentlab.notebook.panel.step_browser import StepTable
from agentlab.records import events

MOST_STEPS = 100
"""Newest steps in the table, which is saved in the notebook's file."""

_WORTH_A_TIMELINE = (
    events.CallRetried, events.AskedAgain, events.ContinuationAttempted, events.ToolPayloadRepair, events.Nudged, events.LimitsChanged,
    events.RunPaused,
)  # fmt: skip


class StaticOutputs(ABC):
    """Outputs for readers without a kernel. A subclass gives text, HTML and pictures."""

    @abstractmethod
    def text(self) -> str:
        """A few lines of plain text."""

    @abstractmethod
    def html(self, pictures: str = "") -> str:
        """The page, with the pictures as HTML in their place."""

    @abstractmethod
    def pictures(self) -> list[Picture]:
        """The pictures, the main one first."""

    def bundle(self, *, with_pictures: bool = False) -> dict[str, Any]:
        """One mime bundle. Most readers show only its HTML, so `with_pictures` embeds the pictures there."""
        pictures = self.pictures()
        html = self.html("".join(picture.as_html() for picture in pictures) if with_pictures else "")
        png = {"image/png": base64.b64encode(pictures[0].png).decode()} if pictures else {}
        return {"text/plain": self.text(), "text/html": html, **png}

    def outputs(self) -> list[Output]:
        """The outputs of a cell: text and HTML, then each picture."""
        return [({"text/plain": self.text(), "text/html": self.html()}, {}), *(one.as_output() for one in self.pictures())]


class StaticView(StaticOutputs):
    """One run, with its curve and its newest answer."""

    def __init__(self, run: Run, curve: Curve, answer: ShownAnswer) -> None:
        self._run, self._curve, self._answer = run, curve, answer

    def text(self) -> str:
        """The run in a few lines."""
        run = self._run
        return printable(f"{run.agent.name}: {run if run.result is None else run.result}\n{self._answer}")

    def html(self, pictures: str = "") -> str:
        """State, end, answer, limits and steps; `pictures` come before the steps."""
        run, answer = self._run, self._answer
        return panel_html(
            markup.status(run, timing=False),
            markup.end(run.result),
            markup.continue_note(run),
            answer_label_html(answer),
            answer_html(answer) if answer.text else "",
            markup.limits(run),
            pictures,
            StepTable(run).static_html(MOST_STEPS),
        )

    def pictures(self) -> list[Picture]:
        """The curve if there are steps, and the timeline if it shows more than calls of the model and of tools."""
        if not len(self._run.history):
            return []
        png = self._curve.draw()
        found = [Picture(png, self._curve.alt(), *self._curve.size)]
        if any(isinstance(event, _WORTH_A_TIMELINE) for event in tuple(self._run.events)):
            found.append(timeline_picture(self._run))
        return found


def panel_html(*parts: str) -> str:
    """Pieces of HTML with the style sheet of the panel."""
    return f'<div class="agentlab-panel {AS_WRITTEN}">{STYLE}{"".join(parts)}</div>'
