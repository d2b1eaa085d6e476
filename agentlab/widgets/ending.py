"""At the end: why the run stopped, which condition fired, what the provider said."""

from __future__ import annotations

import ipywidgets as widgets

from agentlab.widgets import markup
from agentlab.widgets.scene import Scene


class Ending:
    """Empty while the run goes on."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.told = widgets.HTML()
        self.view = widgets.VBox([self.told])

    def show(self) -> bool:
        """Tell the end once it is there."""
        self.told.value = markup.end(self._scene.run.result)
        return False
