"""Other futures of a run: how a branch is made, and all branches as a tree."""

from __future__ import annotations

import ipywidgets as widgets

from agentlab.widgets.scene import Scene


class Branches:
    """The branches of the run."""

    title = "Branches"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.view = widgets.VBox([])

    def show(self) -> bool:
        """Show the branches that there are."""
        return False
