"""The fields of what bounds a run beside its stop condition: budget, caps on going on with a cut answer, terminating tools."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from agentlab.budget import Budget
from agentlab.continuation import FIRST_CAPS, ContinuationPolicy
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.fields import Field, Write, field_for
from agentlab.notebook.panel.markup import Html
from agentlab.notebook.panel.state import PanelState, is_drawing
from agentlab.notebook.panel.stop_editor import StopEditor
from agentlab.printable import label
from agentlab.run import RunState
from agentlab.settings import LiveSettings
from agentlab.terminating import NUDGE_MESSAGE, TerminatingTools

STACKED: dict[str, Any] = {"label_width": "auto", "width": "100%"}
"""Labels above their controls, where they are long."""


class BudgetEditor:
    """A row for each field of the budget, by name in `fields`."""

    def __init__(self, scene: PanelState) -> None:
        self._limits = limits = scene.run.limits
        self.fields: dict[str, Any] = {
            field.name: field_for(
                Budget, field, getattr(limits.budget, field.name), _writer(limits, field.name), label=field.name
            )
            for field in dataclasses.fields(Budget)
        }
        self.view = widgets.VBox([field.view for field in self.fields.values()], _dom_classes=("agentlab-fields",))

    def show(self, *, editable: bool) -> None:
        """Bring the fields up to date."""
        _show(self.fields, lambda: self._limits.snapshot().budget, editable)


class ContinuationEditor:
    """How far a cut answer is continued: its caps, and what the model is told."""

    def __init__(self, scene: PanelState) -> None:
        self._limits = limits = scene.run.limits
        self.fields: dict[str, Any] = {
            field.name: field_for(
                ContinuationPolicy,
                field,
                getattr(limits.continuation, field.name),
                _writer(limits, field.name),
                label=field.name,
                nothing=f"{FIRST_CAPS} × the first cap",
                **STACKED,
            )
            for field in dataclasses.fields(ContinuationPolicy)
        }
        self.fold = Fold("Cut answers", [_stack(self.fields)])
        self.view = self.fold.view

    def show(self, *, editable: bool) -> None:
        """Bring the fields up to date."""
        _show(self.fields, lambda: self._limits.snapshot().continuation, editable)
        most = self._limits.snapshot().continuation.max_continuations_per_turn
        self.fold.say(f"continued up to {most} time{'s' * (most != 1)}" if most else "not continued")


class TerminatingEditor:
    """A box for each of the agent's tools, by name in `tools`; the reminders of a run that has terminating ones in `fields`."""

    def __init__(self, scene: PanelState) -> None:
        self._scene, self._limits = scene, scene.run.limits
        self.tools: dict[str, widgets.Checkbox] = {}
        self._boxes = widgets.HBox(_dom_classes=("agentlab-ticks",))
        self._told = Html(_dom_classes=("agentlab-message",))
        defaults = TerminatingTools(("any",))
        self.fields: dict[str, Any] = {
            field.name: field_for(
                TerminatingTools,
                field,
                getattr(self._limits.terminating or defaults, field.name),
                _writer(self._limits, field.name),
                label=field.name,
                **STACKED,
            )
            for field in dataclasses.fields(TerminatingTools)
            if field.name != "tools"
        }
        self.message = Html(_dom_classes=("agentlab-message",))
        self.fold = Fold("Terminating tools", [self._told, self._boxes, self.message, _stack(self.fields)])
        self.view = self.fold.view

    def show(self, *, editable: bool) -> bool:
        """Bring boxes and fields up to date; whether there are new boxes."""
        holds = self._limits.snapshot().terminating
        held = () if holds is None else holds.tools
        new = [name for name in (*self._scene.run.agent.tools, *held) if name not in self.tools]
        for name in dict.fromkeys(new):
            self.tools[name] = self._box(name, name in held)
        if new:
            self._boxes.children = tuple(self.tools.values())
        for name, box in self.tools.items():
            box.value = name in held
            box.disabled = not editable
        if holds is not None:
            _show(self.fields, lambda: self._limits.snapshot().terminating or holds, editable)
        for field in self.fields.values():
            field.enable(editable and holds is not None)
        self.fold.say(", ".join(held) or "none")
        self._told.value = f'<span class="agentlab-note">{_about(bool(self.tools), bool(held))}</span>'
        return bool(new)

    def _box(self, name: str, is_on: bool) -> widgets.Checkbox:
        box = widgets.Checkbox(
            value=is_on,
            description=label(name),
            tooltip=f"{label(name)} ends the run",
            indent=False,
            layout={"width": "auto"},
            _dom_classes=("agentlab-tick",),
        )
        box.observe(lambda change: self._ticked(name, on=change["new"]), "value")
        return box

    def _ticked(self, name: str, *, on: bool) -> None:
        holds = self._limits.snapshot().terminating  # not what is shown, which may be older
        held = () if holds is None else holds.tools
        if is_drawing() or on is (name in held):
            return
        chosen = tuple(other for other in self.tools if (on if other == name else other in held))
        try:
            if not chosen:
                self._limits.edit(by="panel", terminating=None)
            elif held:
                self._limits.edit(by="panel", tools=chosen)
            else:
                self._limits.edit(by="panel", terminating=TerminatingTools(chosen, **self._reminders()))
        except Exception as error:
            self.message.value = markup.fault(f"{error} Still in force: {', '.join(held) or 'none'}.")
        else:
            self.message.value = ""

    def _reminders(self) -> dict[str, Any]:
        """What stood there before the last tool was taken away; it is not lost by a tick too many."""
        entered = {name: field.entered for name, field in self.fields.items()}
        return {**entered, "nudge_message": entered["nudge_message"] or NUDGE_MESSAGE}


def _about(has_tools: bool, has_terminating: bool) -> str:
    if not has_tools:
        return "The agent has no tools, so that a plain answer ends the run."
    if has_terminating:
        return "The run ends when one of the ticked tools was called; a plain answer is answered with a reminder."
    return "A plain answer ends the run. Tick the tools that are to end it instead:"


def _writer(limits: LiveSettings, name: str) -> Write:
    def write(value: Any) -> None:
        limits.edit(by="panel", **{name: value})

    return write


def _show(fields: dict[str, Any], read: Callable[[], object], editable: bool) -> None:
    """`read` gives what holds now: a person may have changed it since the first field was shown."""
    for name, field in fields.items():
        field.follow(lambda name=name: getattr(read(), name))
        field.enable(editable)


def _stack(fields: dict[str, Field]) -> widgets.VBox:
    return widgets.VBox([field.view for field in fields.values()], _dom_classes=("agentlab-stacked",))


PENDING = '<span class="agentlab-note" role="status">Takes effect at the next step.</span>'
ENDED = '<span class="agentlab-note">The run has ended: branch it to go on with other limits.</span>'


class LimitEditor:
    """All that a person can set on a run. `budget` has the budget's fields by name, `leaves` those of the stop condition by the names
    of condition and field; the parts are `stop`, `continuation` and `terminating`."""

    def __init__(self, scene: PanelState) -> None:
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
        before, self._seen = self._seen, (settings, state, run.in_force, run.history.last)
        if self._is_same(before, 4) and not self.stop.is_stale and not self.stop.waits_to_focus:
            return False
        editable = state is not RunState.ENDED
        new = self.stop.show(editable=editable)
        if not self._is_same(before, 2):
            self._budget.show(editable=editable)
            new = self.terminating.show(editable=editable) or new
            self.continuation.show(editable=editable)
        waits = state is RunState.RUNNING and run.in_force != settings
        self.pending.value = ENDED if not editable else PENDING if waits else ""
        return new

    def _is_same(self, before: tuple[object, ...], first: int) -> bool:
        """Whether the first so many of what is seen are what they were: each is another object once it has changed."""
        return len(before) >= first and all(before[place] is self._seen[place] for place in range(first))


class Fold:
    """`head` opens and closes it, which the style sheet does by itself; `say` puts in a few words beside it what is inside."""

    def __init__(self, title: str, children: Sequence[Any]) -> None:
        self.head = widgets.ToggleButton(value=False, description=title, tooltip="closed", _dom_classes=("agentlab-fold-head",))
        self.head.observe(self._told, "value")
        self._note = Html(_dom_classes=("agentlab-fold-note",))
        bar = widgets.HBox([self.head, self._note], _dom_classes=("agentlab-fold-bar",))
        self.body = widgets.VBox(children, _dom_classes=("agentlab-fold-body",))
        self.view = widgets.VBox([bar, self.body], _dom_classes=("agentlab-fold",))

    def say(self, text: str) -> None:
        """What is inside, in a few words."""
        self._note.value = f'<span class="agentlab-note">{markup.escape(markup.printable(text), 80)}</span>'

    def _told(self, change: Any) -> None:
        self.head.tooltip = "open" if change["new"] else "closed"
