"""One of several runs side by side, at a glance: state and totals, limits, the newest answer, why it stopped."""

from __future__ import annotations

import html
from collections.abc import Callable

from agentlab import events
from agentlab.run import Run
from agentlab.widgets import markup
from agentlab.widgets.answer import Answer, Said
from agentlab.widgets.written import Html

SHOWN_CHARACTERS = 400


class RunColumn:
    """The column of one run. `number` is its place in the row, from 1."""

    def __init__(self, run: Run, number: int, redraw: Callable[[], None]) -> None:
        self.run, self._number, self._redraw = run, number, redraw
        self._answer = Answer(run)
        self.view = Html()
        self.view.add_class("agentlab-column")
        if run.result is None:
            self._answer.watch()
            run.observe(self._on_event)
            run.limits.subscribe(lambda before, after, by: redraw())

    def _on_event(self, event: events.Event) -> None:
        self._answer.take(event)
        self._redraw()

    def show(self) -> bool:
        """Bring the column up to date."""
        self.view.value = as_html(self.run, self._number, self._answer.catch_up())
        return False


def title(run: Run, number: int) -> str:
    """What the run is called among those beside it."""
    return f"{number}  {markup.printable(run.agent.name)}"


def as_html(run: Run, number: int, said: Said) -> str:
    """The column as HTML."""
    text = said.text[-SHOWN_CHARACTERS:]
    cut = "… " if len(text) < (len(said.text) if said.length is None else said.length) else ""
    parts = (
        f'<div class="agentlab-column-head">Run {number}</div>',
        markup.status(run),
        ending(run),
        markup.meters(run),
        f'<div class="agentlab-note">{markup.escape(markup.printable(said.label))}</div>',
        f'<div class="agentlab-answer"><pre dir="auto">\n{cut}{html.escape(markup.printable(text))}</pre></div>' if text else "",
    )
    label = html.escape(f"Run {title(run, number)}", quote=True)
    return f'<div role="group" aria-label="{label}">{"".join(parts)}</div>'


def ending(run: Run) -> str:
    """Why it stopped, in one line; empty while it goes on."""
    result = run.result
    if result is None:
        return ""
    kind = "terminated" if result.terminated else "truncated"
    detail = markup.escape(markup.printable(result.detail), 240)
    return f'<div class="agentlab-end {kind}"><b>{kind} · {markup.escape(result.stop_reason)}</b> — {detail}</div>'
