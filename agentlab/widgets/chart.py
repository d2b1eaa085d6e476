"""The curve of tokens and cost with the limits that hold; the chosen step is marked in it."""

from __future__ import annotations

from agentlab.widgets.curve import Curve
from agentlab.widgets.scene import Scene
from agentlab.widgets.written import Html


class Chart:
    """The picture, brought up to date as steps arrive."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.curve = Curve(scene.run)
        self.view = Html()

    def show(self) -> bool:
        """Draw what is new."""
        self.view.value = self.curve.as_html(self._scene.chosen)
        return False
