"""A run as it stands for readers without a kernel: text, HTML tables, pictures. Times are left out of text and HTML, so that they are
the same at every execution on recorded fixtures."""

from __future__ import annotations

import base64
from typing import Any

from agentlab import events
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.answer import Said, answer_html, answer_label_html
from agentlab.notebook.panel.live_view import STYLE, Output
from agentlab.notebook.panel.pictures import Curve, Picture, timeline_picture
from agentlab.printable import AS_WRITTEN
from agentlab.run import Run

MOST_STEPS = 100
"""So many of the newest steps are in the table: it is kept in the notebook's file."""

_MORE_THAN_CALLS = (
    events.CallRetried, events.AskedAgain, events.ContinuationAttempted, events.ToolPayloadRepair, events.Nudged, events.LimitsChanged,
    events.RunPaused,
)  # fmt: skip


class StaticView:
    """One run, with its curve and what is said as the newest answer."""

    def __init__(self, run: Run, curve: Curve, said: Said) -> None:
        self._run, self._curve, self._said = run, curve, said

    def bundle(self, *, with_pictures: bool = False) -> dict[str, Any]:
        """All in one mime bundle. Most readers show its HTML and nothing else of it, so `with_pictures` puts them there."""
        pictures = "".join(picture.as_html() for picture in self.pictures()) if with_pictures else ""
        return {
            "text/plain": self.text(),
            "text/html": self.html(pictures),
            "image/png": base64.b64encode(self._curve.draw()).decode(),
        }

    def outputs(self) -> list[Output]:
        """The run as outputs of a cell: text and HTML, then each picture."""
        told: Output = ({"text/plain": self.text(), "text/html": self.html()}, {})
        return [told, *(picture.as_output() for picture in self.pictures())]

    def text(self) -> str:
        """The run in a few lines."""
        run = self._run
        told = f"{run.result}" if run.result is not None else f"{run}"
        return markup.printable(f"{run.agent.name}: {told}\n{self._said}")

    def html(self, pictures: str = "") -> str:
        """State, end, answer, limits and steps; `pictures` come before the steps."""
        run, said = self._run, self._said
        parts = (
            STYLE,
            markup.status(run, timing=False),
            markup.end(run.result),
            markup.what_next(run),
            answer_label_html(said),
            answer_html(said) if said.text else "",
            markup.limits(run),
            pictures,
            markup.steps(run, MOST_STEPS),
        )
        return f'<div class="agentlab-panel {AS_WRITTEN}">{"".join(parts)}</div>'

    def pictures(self) -> list[Picture]:
        """The curve, where there are steps; and the timeline, where more happened than calls of the model and of tools."""
        if not len(self._run.history):
            return []
        png = self._curve.draw()
        found = [Picture(png, self._curve.alt(), *self._curve.size)]
        if any(isinstance(event, _MORE_THAN_CALLS) for event in tuple(self._run.events)):
            found.append(timeline_picture(self._run))
        return found
