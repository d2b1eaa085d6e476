"""What is to be seen at a glance: where the run is, what it has used, and what is left of each limit."""

from __future__ import annotations

from agentlab.widgets import markup
from agentlab.widgets.scene import Scene
from agentlab.widgets.written import Html


class Overview:
    """The state and totals in one line (`status`), and a bar for each limit (`meters`); each has its own place in the page."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.status, self.meters = Html(), Html()

    def show(self) -> bool:
        """Bring both up to date."""
        self.status.value = markup.status(self._scene.run)
        self.meters.value = markup.meters(self._scene.run)
        return False
