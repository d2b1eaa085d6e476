"""Going through the run: a table of its steps."""

from __future__ import annotations

import ipywidgets as widgets

from agentlab.widgets import markup
from agentlab.widgets.scene import Scene

SHOWN_STEPS = 8


class StepBrowser:
    """The newest steps as a table."""

    title = "Steps"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.table = widgets.HTML()
        self.view = widgets.VBox([self.table])

    def show(self) -> bool:
        """Show the newest steps."""
        self.table.value = markup.steps(self._scene.run, SHOWN_STEPS)
        return False
