"""Other futures of a run: how a branch is made, all runs of the family as a table and a tree, and their tokens and cost compared."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from agentlab.engine.run_tree import RunNode, family_of
from agentlab.run import Run, RunState
from agentlab.widgets import family_markup, markup
from agentlab.widgets.comparison import Courses, KeptPicture, state_of, tree_figure
from agentlab.widgets.drawing import drawing, is_drawing
from agentlab.widgets.fork_form import ForkForm
from agentlab.widgets.scene import Scene
from agentlab.widgets.written import Html


class Branches:
    """The form, and below it the family. A row of the table and the list "Show run" do the same: they show that run in the panel."""

    title = "Branches"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._courses = Courses()
        self._tree = KeptPicture(lambda: tree_figure(scene.run))
        self._curves = KeptPicture(lambda: self._courses.figure([(one.name, one.run) for one in family_of(scene.run)]))
        self.form = ForkForm(scene)
        self.table = Html()
        self.choice = widgets.Dropdown(
            description="Show run", options=[("1", scene.run.id)], style={"description_width": "initial"},
            layout=widgets.Layout(width="auto", max_width="32em"),
        )  # fmt: skip
        self.choice.observe(self._chosen, "value")
        self.tree, self.curves = Html(), Html()
        self.view = widgets.VBox([self.form.view, self.choice, self.table, self.tree, self.curves])

    def show(self) -> bool:
        """Bring the family up to date. Pictures only where there is more than one run, and only where something has changed."""
        members = family_of(self._scene.run)
        self.form.show()
        self._offer(members)
        self.table.value = family_markup.table(members, self._scene.run)
        runs = [member.run for member in members]
        if len(runs) == 1:
            self.tree.value = (
                '<p class="agentlab-note">With the first branch, the tree of runs and their comparison stand here.</p>'
            )
            return False
        state, going_on = state_of(runs), any(run.state is RunState.RUNNING for run in runs)
        self.tree.value = self._tree.as_html(state, going_on=going_on)
        self.curves.value = self._curves.as_html(state, going_on=going_on)
        return False

    def _offer(self, members: tuple[RunNode[Run], ...]) -> None:
        here = self._scene.run.id
        options = [(_label(member), member.run_id) for member in members]
        with drawing():
            if list(self.choice.options) != options:
                self.choice.options = options  # which chooses the first of them
            self.choice.value = here

    def _chosen(self, change: Any) -> None:
        if is_drawing() or change["new"] in (None, self._scene.run.id):
            return
        found = next((one.run for one in family_of(self._scene.run) if one.run_id == change["new"]), None)
        if found is not None:
            self._scene.do(lambda: self._scene.open(found))


def _label(member: RunNode[Run]) -> str:
    different = family_markup.told(member.run)
    model = member.run.agent.model
    return markup.printable(f"{member.name}  {different or f'{model.name}:{model.model}'}")[:70]
