"""The line above the cockpit: which run is shown, and the way back to the one that it came from."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from agentlab.engine.run_tree import family_of
from agentlab.run import Run
from agentlab.widgets import family_markup
from agentlab.widgets.scene import Scene
from agentlab.widgets.written import Html


class Lineage:
    """Empty while the run is the only one. It hears of every run of the family, also of branches that are made in code."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._heard_of: dict[str, Run] = {}
        self.told = Html()
        self.back = widgets.Button(layout=widgets.Layout(width="auto"))
        self.back.on_click(lambda _: scene.do(self._go_back))
        self.view = widgets.HBox([self.told, self.back], layout=widgets.Layout(align_items="center", grid_gap="4px 12px"))
        self.view.layout.flex_flow = "row wrap"
        self.view.layout.display = "none"

    def show(self) -> bool:
        """Bring it up to date with the family."""
        family = family_of(self._scene.run)
        for member in family:
            self._listen_to(member.run)
        here = next(member for member in family if member.run is self._scene.run)
        self.view.layout.display = "none" if len(family) == 1 else None
        self.told.value = family_markup.strip(here, len(family) - 1)
        self.back.layout.display = "none" if here.parent is None else None
        if here.parent is not None:
            self.back.description = f"Back to run {here.parent.name}"
            self.back.tooltip = "Show the run that this one came from"
        return False

    def _listen_to(self, run: Run) -> None:
        if run.id in self._heard_of:
            return
        self._heard_of[run.id] = run
        redraw: Callable[[], None] = self._scene.redraw
        run.branches.watch(lambda branch: redraw())
        if run is not self._scene.run and run.result is None:  # the cockpit hears its own
            run.observe(lambda event: redraw())

    def _go_back(self) -> None:
        parent = self._scene.run.origin.parent or self._scene.run.origin.caller
        if parent is not None:
            self._scene.open(parent)
