"""A part of the panel that is closed until it is asked for: a button that the keyboard reaches, unlike the head of an Accordion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from agentlab.widgets import markup
from agentlab.widgets.written import Html


class Fold:
    """`head` opens and closes it, which the style sheet does by itself; `say` puts in a few words beside it what is inside."""

    def __init__(self, title: str, children: Sequence[Any]) -> None:
        self.head = widgets.ToggleButton(value=False, description=title, tooltip="closed", _dom_classes=("agentlab-fold-head",))
        self.head.observe(self._told, "value")
        self._note = Html(_dom_classes=("agentlab-fold-note",))
        bar = widgets.HBox([self.head, self._note], _dom_classes=("agentlab-fold-bar",))
        self.body = widgets.VBox(children, _dom_classes=("agentlab-fold-body",))
        self.view = widgets.VBox([bar, self.body], _dom_classes=("agentlab-fold",))

    def say(self, text: str) -> None:
        """What is inside, in a few words."""
        self._note.value = f'<span class="agentlab-note">{markup.escape(markup.printable(text), 80)}</span>'

    def _told(self, change: Any) -> None:
        self.head.tooltip = "open" if change["new"] else "closed"
