"""The overview of a run, and its end: why it stopped, and a button for each way to continue."""

from __future__ import annotations

import time

import ipywidgets as widgets

from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import one_line, printable
from agentlab.engine.next_actions import NextAction, nothing_to_do
from agentlab.limits.settings import RunSettings
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.markup import Html
from agentlab.notebook.panel.state import PanelState

MOST_OFFERS = 3
SHORTEST_PAUSE_S = 1.0
"""A second click within this time is part of a double click: it makes no second branch."""


class Overview:
    """State and totals in one line (`status`), and a bar for each limit (`meters`); each has its own place in the page."""

    def __init__(self, state: PanelState) -> None:
        self._run = state.run
        self.status, self.meters = Html(), Html()

    def show(self) -> bool:
        """Update both."""
        self.status.value = markup.status(self._run)
        self.meters.value = markup.meters(self._run)
        return False


class Ending:
    """The end of the run; empty while it is under way. Each button makes a branch that the panel then shows; the run itself does not
    change."""

    def __init__(self, state: PanelState) -> None:
        self._state = state
        self._read_for: RunSettings | None = None
        self._offered: tuple[NextAction, ...] = ()
        self._edited: NextAction | None = None
        self._continued_at = -SHORTEST_PAUSE_S
        self._no_offer = ""
        self.text = Html()
        self.buttons: tuple[widgets.Button, ...] = ()
        self.offers = widgets.VBox([])
        self.prompt = widgets.Textarea(
            value=redact(state.run.prompt),
            description="Prompt",
            rows=min(12, max(3, state.run.prompt.count("\n") + 2)),
            layout=widgets.Layout(width="auto"),
        )
        self.start = widgets.Button(description="Start with this prompt", tooltip="Start a new branch with this prompt")
        self.start.add_class("agentlab-offer").add_class("agentlab-icon-run")
        self.start.on_click(lambda _: state.do(self._start_with_prompt))
        self.editor = widgets.VBox([self.prompt, self.start])
        self.editor.layout.display = "none"
        self.view = widgets.VBox([self.text, self.offers, self.editor])
        self.view.add_class("agentlab-ending")

    def show(self) -> bool:
        """Show the end of the run. A later change of its limits may change the buttons."""
        run = self._state.run
        if run.result is None:
            return False
        settings, new = run.limits.snapshot(), False
        if settings is not self._read_for:
            self._read_for = settings
            offered = run.next_actions[:MOST_OFFERS]
            self._no_offer = "" if offered or run.result.terminated else markup.note(nothing_to_do(run))
            new = offered != self._offered
            if new:
                self._offer(offered)
        self.text.value = markup.end(run.result) + self._no_offer
        return new

    def _offer(self, offered: tuple[NextAction, ...]) -> None:
        self._offered = offered
        self.buttons = tuple(self._button(one) for one in offered)
        rows = []
        for proposal, button in zip(offered, self.buttons, strict=True):
            row = widgets.HBox([button, Html(markup.note(proposal.why))])
            row.add_class("agentlab-offer-row")
            rows.append(row)
        if self.buttons:
            self.buttons[0].button_style = "primary"
        self.offers.children = rows

    def _button(self, proposal: NextAction) -> widgets.Button:
        button = widgets.Button(description=one_line(proposal.label, 120), tooltip=printable(proposal.why))
        button.add_class("agentlab-offer").add_class("agentlab-icon-run")
        act = self._edit_prompt if proposal.needs_prompt else self._continue
        button.on_click(lambda _: self._state.do(lambda: act(proposal)))
        return button

    def _edit_prompt(self, proposal: NextAction) -> None:
        """Show the prompt editor, or hide it on the second click."""
        shown = self.editor.layout.display != "none"
        self._edited = proposal
        self.editor.layout.display = "none" if shown else ""
        if not shown:
            self.prompt.focus()

    def _start_with_prompt(self) -> None:
        if self._edited is not None:
            self._continue(self._edited, self.prompt.value)

    def _continue(self, proposal: NextAction, prompt: str | None = None) -> None:
        if time.monotonic() - self._continued_at < SHORTEST_PAUSE_S:
            return
        branch = self._state.run.apply(proposal, prompt=prompt)
        self._continued_at = time.monotonic()
        self._state.open(branch)
        branch.worker.launch()
        self._continued_at = time.monotonic()  # again: showing a branch may take longer than a double click
