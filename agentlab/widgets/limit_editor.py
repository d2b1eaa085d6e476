"""The editor of everything that bounds a run, while it runs: in step with `run.limits` both ways."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from agentlab.run import RunState
from agentlab.widgets.scene import Scene
from agentlab.widgets.settings_editor import BudgetEditor, ContinuationEditor, TerminatingEditor
from agentlab.widgets.stop_editor import StopEditor
from agentlab.widgets.written import Html

PENDING = '<span class="agentlab-note" role="status">Takes effect at the next step.</span>'
ENDED = '<span class="agentlab-note">The run has ended: branch it to go on with other limits.</span>'


class LimitEditor:
    """All that a person can set on a run. `budget` has the budget's fields by name, `leaves` those of the stop condition by the names
    of condition and field; the parts are `stop`, `continuation` and `terminating`."""

    def __init__(self, scene: Scene) -> None:
        self._run = scene.run
        self._budget = BudgetEditor(scene)
        self.stop = StopEditor(scene)
        self.continuation = ContinuationEditor(scene)
        self.terminating = TerminatingEditor(scene)
        self.pending = Html(_dom_classes=("agentlab-message",))
        self._seen: tuple[object, ...] = ()
        self.view = widgets.VBox(
            [
                self.pending,
                Html("<b>Budget</b>", _dom_classes=("agentlab-heading",)),
                self._budget.view,
                Html("<b>Stop condition</b>", _dom_classes=("agentlab-heading",)),
                self.stop.view,
                self.terminating.view,
                self.continuation.view,
            ],
            _dom_classes=("agentlab-editor",),
        )
        self.show()

    @property
    def budget(self) -> dict[str, Any]:
        """The budget's fields by name."""
        return self._budget.fields

    @property
    def leaves(self) -> dict[tuple[str, str], Any]:
        """The fields of the stop condition, by the names of the condition (as in `run.limits.leaves`) and of the field."""
        return {(name, field): control for name, field, control in self.stop.leaves()}

    def show(self) -> bool:
        """Bring everything up to date with the limits, and say whether the loop has taken them up; whether there are new controls."""
        run = self._run
        settings, state = run.limits.snapshot(), run.state
        before, self._seen = self._seen, (settings, state, run.stepper.in_force, run.history.last)
        if self._is_same(before, 4) and not self.stop.is_stale and not self.stop.waits_to_focus:
            return False
        editable = state is not RunState.ENDED
        new = self.stop.show(editable=editable)
        if not self._is_same(before, 2):
            self._budget.show(editable=editable)
            new = self.terminating.show(editable=editable) or new
            self.continuation.show(editable=editable)
        waits = state is RunState.RUNNING and run.stepper.in_force != settings
        self.pending.value = ENDED if not editable else PENDING if waits else ""
        return new

    def _is_same(self, before: tuple[object, ...], first: int) -> bool:
        """Whether the first so many of what is seen are what they were: each is another object once it has changed."""
        return len(before) >= first and all(before[place] is self._seen[place] for place in range(first))
