"""At the end: why the run stopped, which condition fired, what the provider said, and what can be done about it, a button each."""

from __future__ import annotations

import time
from collections.abc import Callable

import ipywidgets as widgets

from agentlab.engine.next_actions import NextAction, nothing_to_do
from agentlab.printable import one_line
from agentlab.redaction import without_keys
from agentlab.settings import RunSettings
from agentlab.widgets import markup
from agentlab.widgets.scene import Scene
from agentlab.widgets.written import Html

MOST_OFFERS = 3
SHORTEST_PAUSE_S = 1.0
"""A second click within this time belongs to the first: it makes no second branch."""


class Ending:
    """Empty while the run goes on. What is offered makes a branch that the panel then shows; the run itself stays as it ended."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._judged: RunSettings | None = None
        self._offered: tuple[NextAction, ...] = ()
        self._edited: NextAction | None = None
        self._went_on_at = -SHORTEST_PAUSE_S
        self._next = ""
        self.told = Html()
        self.buttons: tuple[widgets.Button, ...] = ()
        self.offers = widgets.VBox([])
        self.prompt = widgets.Textarea(
            value=without_keys(scene.run.prompt),
            description="Prompt",
            rows=min(12, max(3, scene.run.prompt.count("\n") + 2)),
            layout=widgets.Layout(width="auto"),
        )
        self.start = widgets.Button(description="Start with this prompt", tooltip="Start a new branch with this prompt")
        self.start.add_class("agentlab-offer").add_class("agentlab-icon-run")
        self.start.on_click(lambda _: self._scene.do(self._start_with_prompt))
        self.editor = widgets.VBox([self.prompt, self.start])
        self.editor.layout.display = "none"
        self.view = widgets.VBox([self.told, self.offers, self.editor])
        self.view.add_class("agentlab-ending")

    def show(self) -> bool:
        """Tell the end once it is there; a change of limits after it may change what is offered."""
        run = self._scene.run
        if run.result is None:
            return False
        settings, new = run.limits.snapshot(), False
        if settings is not self._judged:
            self._judged = settings
            offered = run.next_actions[:MOST_OFFERS]
            self._next = "" if offered or run.result.terminated else markup.note(nothing_to_do(run))
            new = offered != self._offered
            if new:
                self._offer(offered)
        self.told.value = markup.end(run.result) + self._next
        return new

    def _offer(self, offered: tuple[NextAction, ...]) -> None:
        self._offered = offered
        self.buttons = tuple(
            widgets.Button(description=one_line(one.label, 120), tooltip=markup.printable(one.why)) for one in offered
        )
        rows = []
        for proposal, button in zip(offered, self.buttons, strict=True):
            button.add_class("agentlab-offer").add_class("agentlab-icon-run")
            button.on_click(self._on_click(proposal))
            row = widgets.HBox([button, Html(markup.note(proposal.why))])
            row.add_class("agentlab-offer-row")
            rows.append(row)
        if self.buttons:
            self.buttons[0].button_style = "primary"
        self.offers.children = rows

    def _on_click(self, proposal: NextAction) -> Callable[[widgets.Button], None]:
        act = self._edit_prompt if proposal.needs_prompt else self._go_on
        return lambda _: self._scene.do(lambda: act(proposal))

    def _edit_prompt(self, proposal: NextAction) -> None:
        """Show the prompt to be edited; pressed once more, put it away."""
        shown = self.editor.layout.display != "none"
        self._edited = proposal
        self.editor.layout.display = "none" if shown else ""
        if not shown:
            self.prompt.focus()

    def _start_with_prompt(self) -> None:
        if self._edited is not None:
            self._go_on(self._edited, self.prompt.value)

    def _go_on(self, proposal: NextAction, prompt: str | None = None) -> None:
        if time.monotonic() - self._went_on_at < SHORTEST_PAUSE_S:
            return
        branch = self._scene.run.apply(proposal, prompt=prompt)
        self._went_on_at = time.monotonic()
        self._scene.open(branch)
        branch.worker.launch()
        self._went_on_at = time.monotonic()  # to show a branch may take a while, and only then comes the second click
