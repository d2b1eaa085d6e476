"""The editor of all limits of a run: budget, stop condition, terminating tools, continuation. It follows `run.limits`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from agentlab._internal.safe_text import label
from agentlab.engine.worker import RunState
from agentlab.limits.budget import Budget
from agentlab.limits.live import LiveSettings
from agentlab.limits.policies import FIRST_CAPS, NUDGE_MESSAGE, ContinuationPolicy, TerminatingTools
from agentlab.notebook import markup
from agentlab.notebook.live_view import PanelState, is_drawing
from agentlab.notebook.markup import Html
from agentlab.notebook.panel.fields import field_for
from agentlab.notebook.panel.stop_editor import StopEditor

STACKED: dict[str, Any] = {"label_width": "auto", "width": "100%"}
"""Long labels, above their controls."""
PENDING = '<span class="agentlab-note" role="status">Takes effect at the next step.</span>'
ENDED = '<span class="agentlab-note">The run has ended: branch it to continue with other limits.</span>'


class LimitEditor:
    """All limits of a run. `budget` has the budget's fields by name, `leaves` those of the stop condition by the names of condition
    and field; the parts are `stop`, `terminating` and `continuation`."""

    def __init__(self, state: PanelState) -> None:
        self._run = state.run
        self._budget = BudgetEditor(state)
        self.stop = StopEditor(state)
        self.continuation = ContinuationEditor(state)
        self.terminating = TerminatingEditor(state)
        self.pending = _message()
        self._seen: tuple[object, ...] = ()
        self.view = widgets.VBox(
            [
                self.pending,
                Html("<b>Budget</b>", _dom_classes=("agentlab-heading",)),
                self._budget.view,
                Html("<b>Stop condition</b>", _dom_classes=("agentlab-heading",)),
                self.stop.view,
                self.terminating.fold.view,
                self.continuation.fold.view,
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
        """The fields of the stop condition, by the names of the condition (as in `run.limits.conditions`) and of the field."""
        return {(name, field): control for name, field, control in self.stop.leaves()}

    def show(self) -> bool:
        """Update all fields and the note on a pending edit; return True if there are new controls."""
        run = self._run
        settings, state = run.limits.snapshot(), run.state
        before, self._seen = self._seen, (settings, state, run.stepper.context.in_force, run.history.last)
        if self._is_same(before, 4) and not self.stop.is_stale and not self.stop.waits_to_focus:
            return False
        editable = state is not RunState.ENDED
        new = self.stop.show(editable=editable)
        if not self._is_same(before, 2):
            self._budget.show(editable=editable)
            new = self.terminating.show(editable=editable) or new
            self.continuation.show(editable=editable)
        waits = state is RunState.RUNNING and run.stepper.context.in_force != settings
        self.pending.value = ENDED if not editable else PENDING if waits else ""
        return new

    def _is_same(self, before: tuple[object, ...], first: int) -> bool:
        """True if the first values of `_seen` are the same objects as before: each is replaced when it changes."""
        return len(before) >= first and all(before[place] is self._seen[place] for place in range(first))


class BudgetEditor:
    """A row per field of the budget, by name in `fields`."""

    def __init__(self, state: PanelState) -> None:
        self._limits = state.run.limits
        self.fields = _fields_of(Budget, self._limits, self._limits.budget)
        self.view = widgets.VBox([field.view for field in self.fields.values()], _dom_classes=("agentlab-fields",))

    def show(self, *, editable: bool) -> None:
        """Update the fields."""
        _show(self.fields, lambda: self._limits.snapshot().budget, editable)


class ContinuationEditor:
    """The continuation of a truncated answer: its caps, and the text sent to the model."""

    def __init__(self, state: PanelState) -> None:
        self._limits = state.run.limits
        unset = f"{FIRST_CAPS} × the first cap"
        self.fields = _fields_of(ContinuationPolicy, self._limits, self._limits.continuation, nothing=unset, **STACKED)
        self.fold = Fold("Cut answers", [_stack(self.fields)])

    def show(self, *, editable: bool) -> None:
        """Update the fields."""
        _show(self.fields, lambda: self._limits.snapshot().continuation, editable)
        most = self._limits.snapshot().continuation.max_continuations_per_turn
        self.fold.say(f"continued up to {most} time{'s' * (most != 1)}" if most else "not continued")


class TerminatingEditor:
    """A check box per tool of the agent, by name in `tools`; the fields of the reminders in `fields`."""

    def __init__(self, state: PanelState) -> None:
        self._agent_tools, self._limits = state.run.agent.tools, state.run.limits
        self.tools: dict[str, widgets.Checkbox] = {}
        self._boxes = widgets.HBox(_dom_classes=("agentlab-ticks",))
        self._explanation, self.message = _message(), _message()
        fields = _fields_of(TerminatingTools, self._limits, self._limits.terminating or TerminatingTools(("any",)), **STACKED)
        self.fields = {name: field for name, field in fields.items() if name != "tools"}
        self.fold = Fold("Terminating tools", [self._explanation, self._boxes, self.message, _stack(self.fields)])

    def show(self, *, editable: bool) -> bool:
        """Update boxes and fields; True if there are new boxes."""
        terminating = self._limits.snapshot().terminating
        held = () if terminating is None else terminating.tools
        new = [name for name in (*self._agent_tools, *held) if name not in self.tools]
        for name in dict.fromkeys(new):
            self.tools[name] = self._box(name, name in held)
        if new:
            self._boxes.children = tuple(self.tools.values())
        for name, box in self.tools.items():
            box.value = name in held
            box.disabled = not editable
        if terminating is not None:
            _show(self.fields, lambda: self._limits.snapshot().terminating or terminating, editable)
        for field in self.fields.values():
            field.enable(editable and terminating is not None)
        self.fold.say(", ".join(held) or "none")
        self._explanation.value = markup.aside(_explanation(bool(self.tools), bool(held)))
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
        terminating = self._limits.snapshot().terminating  # the page may show an older one
        held = () if terminating is None else terminating.tools
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
        """The reminders as they were before the last tool was unticked, so that ticking it again restores them."""
        entered = {name: field.entered for name, field in self.fields.items()}
        return {**entered, "nudge_message": entered["nudge_message"] or NUDGE_MESSAGE}


def _explanation(has_tools: bool, has_terminating: bool) -> str:
    if not has_tools:
        return "The agent has no tools: a plain answer ends the run."
    if has_terminating:
        return "The run ends when a ticked tool was called; a plain answer is followed by a reminder."
    return "A plain answer ends the run. Tick the tools that end it instead:"


class Fold:
    """A part that is closed at first: a button that the keyboard reaches, unlike the head of an Accordion.

    The style sheet opens and closes it; `say` puts a summary of the content beside the button.
    """

    def __init__(self, title: str, children: Sequence[Any]) -> None:
        self.head = widgets.ToggleButton(value=False, description=title, tooltip="closed", _dom_classes=("agentlab-fold-head",))
        self.head.observe(self._toggled, "value")
        self._note = Html(_dom_classes=("agentlab-fold-note",))
        bar = widgets.HBox([self.head, self._note], _dom_classes=("agentlab-fold-bar",))
        self.body = widgets.VBox(children, _dom_classes=("agentlab-fold-body",))
        self.view = widgets.VBox([bar, self.body], _dom_classes=("agentlab-fold",))

    def say(self, text: str) -> None:
        """Show this text beside the button."""
        self._note.value = f'<span class="agentlab-note">{markup.escape(text, 80)}</span>'

    def _toggled(self, change: Any) -> None:
        self.head.tooltip = "open" if change["new"] else "closed"


def _fields_of(kind: type, limits: LiveSettings, value: object, **more: Any) -> dict[str, Any]:
    """A control for each field of a part of the settings, by name; each writes to `limits`."""

    def writer(name: str) -> Callable[[Any], None]:
        def write(new: Any) -> None:
            limits.edit(by="panel", **{name: new})

        return write

    return {
        field.name: field_for(kind, field, getattr(value, field.name), writer(field.name), label=field.name, **more)
        for field in dataclasses.fields(kind)
    }


def _show(fields: dict[str, Any], read: Callable[[], object], editable: bool) -> None:
    """Update the fields; `read` returns the settings now, which may change between two fields."""
    for name, field in fields.items():
        field.follow(lambda name=name: getattr(read(), name))
        field.enable(editable)


def _stack(fields: dict[str, Any]) -> widgets.VBox:
    return widgets.VBox([field.view for field in fields.values()], _dom_classes=("agentlab-stacked",))


def _message() -> Html:
    return Html(_dom_classes=("agentlab-message",))
