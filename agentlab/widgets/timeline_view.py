"""What happened when, as a picture in the panel."""

from __future__ import annotations

import ipywidgets as widgets

from agentlab.widgets.scene import Scene


class TimelineView:
    """The timeline of the run."""

    title = "Timeline"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.picture = widgets.HTML()
        self.view = widgets.VBox([self.picture])

    def show(self) -> bool:
        """Draw what is new."""
        return False
