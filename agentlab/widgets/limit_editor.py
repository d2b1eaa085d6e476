"""The fields that edit limits: one for every field of the budget and of each leaf of the stop condition.

They are made from the dataclass fields' metadata (unit, minimum, help), so that a new condition has its control with no line here.
A value that cannot be shows why beside the field, and the old one stays in force.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import ipywidgets as widgets

from agentlab.budget import Budget
from agentlab.errors import ConfigurationError
from agentlab.run import Run, RunState
from agentlab.settings import RunSettings
from agentlab.stop import Custom, StopCondition
from agentlab.widgets import markup
from agentlab.widgets.scene import Scene

_LABEL = {"description_width": "11em"}
_WIDTH = "19em"
_UNITS_TO_SAY = ("USD", "s")
_START = {"max_turns": 20, "max_calls": 40, "max_tokens": 10_000, "max_tokens_per_turn": 1_000, "max_cost": 0.10, "timeout": 60.0}
"""What a field offers when its limit is switched on for the first time."""


class NumberField:
    """A number box; with `optional` a "no limit" box beside it. `write` gets the new value, or None for no limit."""

    def __init__(
        self,
        label: str,
        kind: type,
        metadata: typing.Mapping[str, Any],
        value: Any,
        write: Callable[[Any], None],
        *,
        optional: bool,
    ) -> None:
        whole = kind is int
        make = widgets.IntText if whole else widgets.FloatText
        start = value if value is not None else _START.get(label, max(1, metadata.get("minimum", 1)))
        step = 1 if whole else 0.01 if kind is Decimal else 1.0
        unit = metadata.get("unit", "")
        self._kind, self._write = kind, write
        self.number = make(
            value=int(start) if whole else float(start),
            step=step,
            description=f"{label} ({unit})" if unit in _UNITS_TO_SAY else label,
            tooltip=metadata.get("help", ""),
            disabled=value is None,
            style=_LABEL,
            layout=widgets.Layout(width=_WIDTH),
        )
        self.unlimited = widgets.Checkbox(
            value=value is None,
            description="no limit",
            tooltip=f"no limit on {label}",
            indent=False,
            layout=widgets.Layout(width="7em"),
        )
        self.message = widgets.HTML()
        self.number.observe(self._changed, "value")
        self.unlimited.observe(self._switched, "value")
        row = widgets.HBox([self.number, self.unlimited] if optional else [self.number])
        self.view = widgets.VBox([row, self.message])
        self._shown: Any = value

    def show(self, value: Any) -> None:
        """Show the value that holds."""
        self._shown = value
        if value is not None:
            self.number.value = self.number.value.__class__(value)
        self.unlimited.value = value is None
        self.number.disabled = value is None
        self.message.value = ""

    def _changed(self, change: Any) -> None:
        if not self.number.disabled:
            self._try(change["new"])

    def _switched(self, change: Any) -> None:
        self.number.disabled = change["new"]
        self._try(None if change["new"] else self.number.value)

    def _try(self, value: Any) -> None:
        if self._kind is Decimal and value is not None:
            value = Decimal(str(value))
        if value == self._shown:
            self.message.value = ""
            return
        try:
            self._write(value)
        except ConfigurationError as error:
            kept = "no limit" if self._shown is None else self._shown
            self.message.value = markup.fault(f"{error} Still in force: {kept}.")
        else:
            self._shown = value
            self.message.value = ""


class NamesField:
    """A text box for a list of names, with commas between them."""

    def __init__(
        self, label: str, metadata: typing.Mapping[str, Any], value: tuple[str, ...], write: Callable[[tuple[str, ...]], None]
    ) -> None:
        self._write, self._shown = write, value
        self.text = widgets.Text(
            value=", ".join(map(str, value)),
            description=label,
            tooltip=metadata.get("help", ""),
            continuous_update=False,
            style=_LABEL,
            layout=widgets.Layout(width=_WIDTH),
        )
        self.message = widgets.HTML()
        self.text.observe(self._changed, "value")
        self.view = widgets.VBox([self.text, self.message])

    def show(self, value: tuple[str, ...]) -> None:
        """Show the value that holds."""
        self._shown = value
        self.text.value = ", ".join(map(str, value))
        self.message.value = ""

    def _changed(self, change: Any) -> None:
        names = tuple(name.strip() for name in change["new"].split(",") if name.strip())
        if names == tuple(map(str, self._shown)):
            self.message.value = ""
            return
        try:
            self._write(names)
        except ConfigurationError as error:
            self.message.value = markup.fault(f"{error} Still in force: {', '.join(map(str, self._shown))}.")
        else:
            self._shown = names
            self.message.value = ""


class LimitEditor:
    """All fields of a run's limits, in step with `run.limits` both ways."""

    def __init__(self, scene: Scene) -> None:
        self._run = run = scene.run
        settings = run.limits.snapshot()
        hints = typing.get_type_hints(Budget)
        self.budget: dict[str, NumberField] = {}
        for field in dataclasses.fields(Budget):
            if "unit" in field.metadata:
                kind = next(part for part in typing.get_args(hints[field.name]) if part is not type(None))
                self.budget[field.name] = NumberField(
                    field.name,
                    kind,
                    field.metadata,
                    getattr(settings.budget, field.name),
                    self._budget_writer(field.name),
                    optional=True,
                )
        self._structure: list[tuple[str, type]] = []
        self.leaves: dict[tuple[str, str], NumberField | NamesField] = {}
        self._leaf_box = widgets.VBox()
        self.pending = widgets.HTML()
        self._build_leaves(settings)
        budget_box = widgets.VBox([field.view for field in self.budget.values()])
        self.view = widgets.VBox(
            [widgets.HTML("<b>Budget</b>"), budget_box, widgets.HTML("<b>Stop condition</b>"), self._leaf_box, self.pending]
        )

    def show(self) -> bool:
        """Bring the fields up to date with the limits, and say whether the loop has taken them up; whether there are new fields."""
        run, settings = self._run, self._run.limits.snapshot()
        for name, field in self.budget.items():
            value = getattr(settings.budget, name)
            if value != field._shown:
                field.show(value)
        changed = self._structure != _structure(run)
        if changed:
            self._build_leaves(settings)
        for (leaf_name, field_name), leaf_field in self.leaves.items():
            value = getattr(run.limits.leaves[leaf_name], field_name)
            if value != leaf_field._shown:
                leaf_field.show(value)
        waits = run.state is RunState.RUNNING and run.in_force != settings
        self.pending.value = '<span class="agentlab-note" role="status">Takes effect at the next step.</span>' if waits else ""
        return changed

    def _build_leaves(self, settings: RunSettings) -> None:
        self._structure = _structure(self._run)
        self.leaves = {}
        rows: list[widgets.Widget] = []
        if settings.stop is None:
            rows.append(widgets.HTML('<span class="agentlab-note">none: only the budget bounds this run</span>'))
        else:
            rows.append(widgets.HTML(f"<code>{markup.escape(_shape(settings.stop))}</code>"))
        for name, leaf in self._run.limits.leaves.items():
            if isinstance(leaf, Custom):
                rows.append(
                    widgets.HTML(
                        f'<span class="agentlab-note">{markup.escape(name)}: your own function, read after each step</span>'
                    )
                )
                continue
            hints = typing.get_type_hints(type(leaf))
            for field in dataclasses.fields(leaf):  # type: ignore[arg-type]
                made = self._leaf_field(name, leaf, field, hints[field.name])
                self.leaves[name, field.name] = made
                rows.append(made.view)
        self._leaf_box.children = rows

    def _leaf_field(self, name: str, leaf: StopCondition, field: dataclasses.Field[Any], hint: Any) -> NumberField | NamesField:
        value = getattr(leaf, field.name)

        def write(new: Any) -> None:
            self._run.limits.edit_leaf(name, by="panel", **{field.name: new})

        if isinstance(value, tuple):
            return NamesField(name, field.metadata, value, write)
        return NumberField(name, hint, field.metadata, value, write, optional=False)

    def _budget_writer(self, name: str) -> Callable[[Any], None]:
        def write(value: Any) -> None:
            self._run.limits.edit(by="panel", **{name: value})

        return write


def _structure(run: Run) -> list[tuple[str, type]]:
    return [(name, type(leaf)) for name, leaf in run.limits.leaves.items()]


def _shape(condition: StopCondition) -> str:
    """The tree in words: which leaves, and how they combine."""
    if not condition.parts:
        return condition.name if isinstance(condition, Custom) else type(condition).__name__
    kind = type(condition).__name__
    if kind == "Not":
        return f"not {_shape(condition.parts[0])}"
    word = " or " if kind == "AnyOf" else " and "
    return "(" + word.join(map(_shape, condition.parts)) + ")"
