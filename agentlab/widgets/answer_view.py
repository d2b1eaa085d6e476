"""The box with the model's newest answer, streaming in."""

from __future__ import annotations

import ipywidgets as widgets

from agentlab.widgets import markup
from agentlab.widgets.answer import Answer
from agentlab.widgets.scene import Scene
from agentlab.widgets.written import Html


class AnswerView:
    """A label, and a box that stays at the end of the text while it grows; it scrolls, so it is in reach of the keyboard."""

    def __init__(self, scene: Scene) -> None:
        self.answer = Answer(scene.run)
        self.label, self.text = Html(), Html(tabbable=True)
        self.text.add_class("agentlab-answer-box")
        self.view = widgets.VBox([self.label, self.text])

    def show(self) -> bool:
        """Show what has come."""
        said = self.answer.catch_up()
        self.label.value, self.text.value = markup.answer_label(said), markup.answer(said)
        return False
