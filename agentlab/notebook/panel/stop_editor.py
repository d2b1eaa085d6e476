"""The editor of the stop condition: its tree as rows, one for each condition and one for each group with its parts below.

A row stays as long as the condition at its place in the tree is of the same kind: values and flags are updated in it, so that typing
is not disturbed.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets

from agentlab._internal.safe_text import printable
from agentlab.engine.unreachable import why_never
from agentlab.errors import ConfigurationError
from agentlab.limits import condition_tree as stop_tree
from agentlab.limits.combinators import AllOf, AnyOf, Custom, Off, StopCondition
from agentlab.limits.condition_tree import Node, Path
from agentlab.limits.conditions import StepCountIs
from agentlab.limits.reading import Reading
from agentlab.model.finish_reasons import FinishReason
from agentlab.notebook import markup
from agentlab.notebook.live_view import PanelState
from agentlab.notebook.markup import Html
from agentlab.notebook.panel.fields import LINE, Field, field_for
from agentlab.records.history import RunHistory

NEW_GROUPS: dict[str, type[AnyOf | AllOf]] = {"a group: any of": AnyOf, "a group: all of": AllOf}
NONE_YET = '<span class="agentlab-note">No condition: only the budget limits this run.</span>'
ADDED_OFF = "{} would be met at once, so it was added but turned off: set its value, then tick its box."
FOCUS_AFTER_S = 0.4
"""Time for the page to show a new row before it gets the focus."""
LEAF = {"label_width": "auto", "width": "auto"}
GROUPS = (("any of", AnyOf), ("all of", AllOf))
WHOLE = "the whole condition"


class StopEditor:
    """The whole stop condition of a run. `root` is its topmost row, None if there is no condition."""

    def __init__(self, state: PanelState) -> None:
        self._state, self._limits = state, state.run.limits
        self._shown: StopCondition | None = None
        self._is_stale = self._editable = True
        self._rows: list[LeafRow | GroupRow] = []
        self._lock = threading.RLock()  # clicks and redraws arrive on different threads
        self._has_new = False
        self._kinds: tuple[str, ...] = ()
        self._to_focus: tuple[float, Path] | None = None
        self._box, self._empty = widgets.VBox(), Html(_dom_classes=("agentlab-message",))
        self.note = Html(_dom_classes=("agentlab-message",))
        self.adder = Adder(self)
        self.view = widgets.VBox([self._empty, self._box, self.note, self.adder.view], _dom_classes=("agentlab-stop",))

    @property
    def known(self) -> Mapping[str, Iterable[str]]:
        """Names to choose from: the agent's tools, and the finish reasons."""
        return {"tools": self._state.run.agent.tools, "finish reasons": FinishReason}

    @property
    def root(self) -> LeafRow | GroupRow | None:
        """The row of the whole condition."""
        return self._rows[0] if self._rows else None

    @property
    def is_stale(self) -> bool:
        """True if the controls may show a refused value, or new controls have not been reported yet."""
        return self._is_stale or self._has_new

    @property
    def waits_to_focus(self) -> bool:
        """True if a new row will get the focus."""
        return self._to_focus is not None

    def row(self, *path: int) -> Any:
        """The row at this place in the tree."""
        found = None if self.root is None else self.root.row_at(path)
        if found is None:
            raise ConfigurationError(f"There is no row for {path!r}.")
        return found

    def leaves(self) -> Iterator[tuple[str, str, Field]]:
        """The fields of all conditions, each with the names of the condition and of the field."""
        return iter(()) if self.root is None else self.root.leaves()

    def show(self, *, editable: bool) -> bool:
        """Update the rows; True if there are new controls."""
        with self._lock:
            stop = self._limits.stop  # read under the lock, so that a click meanwhile is not undone
            new, self._has_new = self._has_new, False
            kinds = (*stop_tree.kinds(), *NEW_GROUPS)
            same = stop is self._shown and editable is self._editable and kinds == self._kinds
            if not same or self._is_stale:
                self._editable, self._kinds = editable, kinds
                new = self._arrange(stop) or new
            elif self.root is not None:
                self.root.show_readings(markup.last_custom_readings(self._state.run))
            self._focus()
        return new

    def _arrange(self, stop: StopCondition | None) -> bool:
        self._shown, self._is_stale = stop, False
        nodes = {node.path: node for node in stop_tree.outline(stop)}
        run = self._state.run
        tree = Tree(
            nodes,
            markup.last_custom_readings(run),
            self._kinds,
            self._editable,
            lambda leaf: why_never(leaf, run.agent, run.history),
        )
        self._rows, new = arranged(self, self._rows, [nodes[()]] if nodes else [], self._box)
        for row in self._rows:
            new = row.show(nodes[()], tree) or new
        self._empty.value = "" if nodes else NONE_YET
        self.adder.show(WHOLE, tree)
        return new

    def _focus(self) -> None:
        """Give the focus to an added row once the page shows it."""
        if self._to_focus is None:
            return
        at, path = self._to_focus
        if time.monotonic() >= at:
            self._to_focus = None
            row = None if self.root is None else self.root.row_at(path)
            if row is not None:
                row.flags.counts.focus()  # the number box after it cannot take the focus in ipywidgets
        self._state.redraw()

    # Actions of the rows ----------------------------------------------------------------------------------------------------

    def switch(self, path: Path, on: bool) -> None:
        """Turn the condition at this place on or off."""
        self._change(lambda stop: stop_tree.switched(stop, path, on))

    def negate(self, path: Path, on: bool) -> None:
        """Negate the condition, or undo that."""
        self._change(lambda stop: stop_tree.negated(stop, path, on))

    def regroup(self, path: Path, kind: type[StopCondition]) -> None:
        """Make a group any of its parts, or all of them."""
        self._change(lambda stop: stop_tree.regrouped(stop, path, kind))

    def remove(self, path: Path) -> None:
        """Remove the condition."""
        self._change(lambda stop: stop_tree.without(stop, path))

    def write(self, name: str, field: str, value: Any) -> None:
        """Set a field of a condition; raises if the value is refused."""
        self._limits.edit_condition(name, by="panel", **{field: value})

    def add(self, path: Path, kind: str) -> None:
        """Add a new condition with its start values; turned off if it is met already, since it would end the run at once."""
        notes: list[str] = []
        places: list[Path] = []

        def put(stop: StopCondition | None) -> StopCondition:
            new = self._made(kind)
            is_met = _is_met(new, self._state.run.history)
            changed = stop_tree.added(stop, path, Off(new) if is_met else new)
            notes.append(ADDED_OFF.format(kind) if is_met else "")
            below = [node.path for node in stop_tree.outline(changed) if node.path[: len(path)] == path and not node.is_group]
            places.append(below[-1])
            return changed

        self._change(put)
        if notes and notes[-1]:
            self.note.value = f'<div class="agentlab-note" role="status">{markup.escape(notes[-1])}</div>'
        if places:
            self._to_focus = (time.monotonic() + FOCUS_AFTER_S, places[-1])
            self._state.redraw()

    def _made(self, kind: str) -> StopCondition:
        if kind in NEW_GROUPS:
            return NEW_GROUPS[kind](stop_tree.started(StepCountIs))
        known = stop_tree.kinds()
        if kind not in known:
            raise ConfigurationError(f"There is no condition {kind!r}. Choose from {', '.join(known)}.")
        return stop_tree.started(known[kind], tuple(self._state.run.agent.tools))

    def _change(self, change: Callable[[Any], StopCondition | None]) -> None:
        def act() -> None:
            with self._lock:
                self._is_stale = True  # a control may show a refused value
                self.note.value = ""
                now = self._limits.snapshot().stop
                if not _same_shape(now, self._shown):
                    raise ConfigurationError("The stop condition was changed elsewhere meanwhile: check it, then try again.")
                after = self._limits.edit(by="panel", stop=change(now))
                self._has_new = self._arrange(after.stop) or self._has_new  # a second click may come before a redraw

        self._state.do(act)


def _same_shape(one: StopCondition | None, other: StopCondition | None) -> bool:
    """True if both trees have the same conditions at the same places."""
    if one is other:
        return True
    first, second = ([(node.path, node.name) for node in stop_tree.outline(tree) if not node.is_group] for tree in (one, other))
    return first == second


def _is_met(condition: StopCondition, history: RunHistory) -> bool:
    """True if it would end the run now."""
    try:
        return len(history) > 0 and bool(condition.read(history).met)
    except Exception:
        return False  # the run reports a condition that raises


# The rows -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tree:
    """A stop condition as the rows need it: its nodes by place, the last readings of the person's own functions, the kinds that can be
    added, and a function that says why a condition can never be met (empty: it can)."""

    nodes: dict[Path, Node]
    readings: dict[str, Reading]
    kinds: tuple[str, ...]
    editable: bool
    why_never: Callable[[StopCondition], str]

    def parts_of(self, node: Node) -> list[Node]:
        """The parts of a group."""
        return [self.nodes[*node.path, place] for place in range(len(node.condition.parts))]

    def title(self, node: Node) -> str:
        """The name of a node; groups are numbered."""
        if not node.is_group:
            return printable(node.name)
        if not node.path:
            return WHOLE
        groups = [path for path, other in self.nodes.items() if other.is_group and path]
        return f"group {groups.index(node.path) + 1}"


class _Flags:
    """The controls of every row: on or off, negated or not, and the button that removes it."""

    def __init__(self, editor: StopEditor, node: Node) -> None:
        self.node, self._editor = node, editor
        self.counts = widgets.Checkbox(
            indent=False, value=not node.off, layout={"width": "auto"}, _dom_classes=("agentlab-tick", "agentlab-counts")
        )
        self.inverted = widgets.Checkbox(
            indent=False, value=node.negated, layout={"width": "auto"}, _dom_classes=("agentlab-tick", "agentlab-not", LINE)
        )
        self.remove = widgets.Button(layout={"width": "22px"}, _dom_classes=("agentlab-remove",))
        self.counts.observe(self._switched, "value")
        self.inverted.observe(self._negated, "value")
        self.remove.on_click(lambda _: editor.remove(self.node.path))

    def show(self, node: Node, title: str, *, editable: bool) -> None:
        """Update the controls."""
        self.node = node
        self.counts.value, self.inverted.value = not node.off, node.negated
        self.counts.description, self.inverted.description = f"Use {title}", f"not\n{title}"
        self.remove.description = self.remove.tooltip = f"Remove {title}"
        for control in (self.counts, self.inverted, self.remove):
            control.disabled = not editable

    def _switched(self, change: Any) -> None:
        if change["new"] is self.node.off:
            self._editor.switch(self.node.path, change["new"])

    def _negated(self, change: Any) -> None:
        if change["new"] is not self.node.negated:
            self._editor.negate(self.node.path, change["new"])


class LeafRow:
    """A single condition: its fields, or the name and the last reading of the person's own function."""

    def __init__(self, editor: StopEditor, node: Node) -> None:
        self._kind = type(node.condition)
        self.flags = _Flags(editor, node)
        self._name = self._title = node.name
        self.fields: dict[str, Field] = {}
        for field in _editable(node.condition):
            value = getattr(node.condition, field.name)
            self.fields[field.name] = field_for(
                self._kind, field, value, self._writer(editor, field.name), label=field.name, nothing="none",
                known=editor.known, **LEAF,
            )  # fmt: skip
        if len(self.fields) == 1:
            (one,) = self.fields.values()
            head, below = [one.control, one.pick], [one.message]
        else:
            self._about = Html(_dom_classes=("agentlab-leaf-name",))
            head = [self._about]
            below = [view for field in self.fields.values() for view in (field.control, field.pick, field.message)]
        parts = [self.flags.counts, *head, self.flags.inverted, self.flags.remove]
        bar = widgets.HBox([part for part in parts if part is not None], _dom_classes=("agentlab-node-bar",))
        self.advice = Html(_dom_classes=("agentlab-message",))
        lines = widgets.VBox([part for part in (*below, self.advice) if part is not None], _dom_classes=("agentlab-node-below",))
        self.view = widgets.VBox([bar, lines], _dom_classes=("agentlab-node",))

    def fits(self, node: Node) -> bool:
        """True if this row can show the node."""
        return type(node.condition) is self._kind

    def show(self, node: Node, tree: Tree) -> bool:
        """Update the row; there are never new controls."""
        title = tree.title(node)
        self.flags.show(node, title, editable=tree.editable)
        self._name = node.name
        for name, field in self.fields.items():
            field.rename(title if len(self.fields) == 1 else name, "" if len(self.fields) == 1 else title)
            field.show(getattr(node.condition, name))
            field.enable(tree.editable)
        self._title = title
        why = "" if node.off else tree.why_never(node.condition)
        self.advice.value = markup.note(f"Can never be met: {why}") if why else ""
        self.show_readings(tree.readings)
        return False

    def show_readings(self, readings: Mapping[str, Reading]) -> None:
        """Show the last reading of the person's own function."""
        if len(self.fields) != 1:
            self._about.value = _about(self.flags.node, self._title, readings.get(self._name))

    def leaves(self) -> Iterator[tuple[str, str, Field]]:
        """Its fields, each with the names of the condition and of the field."""
        for name, field in self.fields.items():
            yield self._name, name, field

    def row_at(self, path: Path) -> LeafRow | GroupRow | None:
        """This row, if it is at this place."""
        return self if self.flags.node.path == path else None

    def _writer(self, editor: StopEditor, field: str) -> Callable[[Any], None]:
        return lambda value: editor.write(self._name, field, value)


def _editable(condition: Any) -> list[dataclasses.Field[Any]]:
    """The fields that a person can edit; a function stays as it is."""
    if isinstance(condition, Custom) or not dataclasses.is_dataclass(condition):
        return []
    return [field for field in dataclasses.fields(condition) if field.init or "unit" in field.metadata]


def _about(node: Node, title: str, reading: Reading | None) -> str:
    name = f"<b>{markup.escape(title, 60)}</b>"
    if not isinstance(node.condition, Custom):
        return name
    if node.off:
        text = "it is off"
    elif reading is None or reading.met is None:
        text = "not read yet"
    else:
        value = "" if isinstance(reading.value, bool) else f"{reading.value}, "
        text = f"last result {value}{'met' if reading.met else 'not met'}"
    return f'{name} <span class="agentlab-note">your own function: {markup.escape(text, 80)}</span>'


class GroupRow:
    """A group: any or all of its conditions, each with its row below, and a control that adds one more."""

    def __init__(self, editor: StopEditor, node: Node) -> None:
        self._editor = editor
        self.flags = _Flags(editor, node)
        self.kind = widgets.Dropdown(
            options=GROUPS,
            value=type(node.condition),
            layout={"width": "6.5em"},
            style={"description_width": "0"},
            _dom_classes=("agentlab-field", "agentlab-quiet"),
        )
        self.kind.observe(self._regrouped, "value")
        self.parts: list[LeafRow | GroupRow] = []
        self.adder = Adder(editor, self.flags) if node.path else None
        self._box = widgets.VBox()
        bar = widgets.HBox(
            [self.flags.counts, self.kind, self.flags.inverted, self.flags.remove], _dom_classes=("agentlab-node-bar",)
        )
        inside = [self._box] if self.adder is None else [self._box, self.adder.view]
        self.view = widgets.VBox([bar, widgets.VBox(inside, _dom_classes=("agentlab-parts",))], _dom_classes=("agentlab-node",))

    def fits(self, node: Node) -> bool:
        """True if this row can show the node."""
        return node.is_group and bool(node.path) is (self.adder is not None)

    def show(self, node: Node, tree: Tree) -> bool:
        """Update the group and its parts; True if there are new controls."""
        title = tree.title(node)
        self.flags.show(node, title, editable=tree.editable)
        self.kind.value, self.kind.disabled = type(node.condition), not tree.editable
        self.kind.description = f"{title} is met by"
        if self.adder is not None:
            self.adder.show(title, tree)
        parts = tree.parts_of(node)
        self.parts, new = arranged(self._editor, self.parts, parts, self._box)
        below = [row.show(part, tree) for row, part in zip(self.parts, parts, strict=True)]
        return new or any(below)

    def show_readings(self, readings: Mapping[str, Reading]) -> None:
        """Show the last readings of the person's own functions."""
        for row in self.parts:
            row.show_readings(readings)

    def leaves(self) -> Iterator[tuple[str, str, Field]]:
        """All fields below it, each with the names of the condition and of the field."""
        for row in self.parts:
            yield from row.leaves()

    def row_at(self, path: Path) -> LeafRow | GroupRow | None:
        """The row at this place, here or below."""
        if self.flags.node.path == path:
            return self
        return next((found for row in self.parts if (found := row.row_at(path)) is not None), None)

    def _regrouped(self, change: Any) -> None:
        if change["new"] is not type(self.flags.node.condition):
            self._editor.regroup(self.flags.node.path, change["new"])


class Adder:
    """A list of conditions, and the button that adds the chosen one to a group, or to the whole condition."""

    def __init__(self, editor: StopEditor, group: _Flags | None = None) -> None:
        self.kind = widgets.Dropdown(
            layout={"width": "auto"}, style={"description_width": "0"}, _dom_classes=("agentlab-field", "agentlab-quiet")
        )
        self.button = widgets.Button(layout={"width": "4.5em"}, _dom_classes=("agentlab-add", LINE))
        self.button.on_click(lambda _: editor.add(() if group is None else group.node.path, self.kind.value))
        self.view = widgets.HBox([self.kind, self.button], _dom_classes=("agentlab-node-bar", "agentlab-adder"))
        self._kinds: tuple[str, ...] = ()

    def show(self, title: str, tree: Tree) -> None:
        """Update the list."""
        if tree.kinds != self._kinds:
            chosen, self._kinds = self.kind.value, tree.kinds
            self.kind.options = tree.kinds
            self.kind.value = chosen if chosen in tree.kinds else next(iter(tree.kinds), None)
        self.kind.description = f"Condition to add to {title}"
        self.button.description = "Add" if title == WHOLE else f"Add\nto {title}"
        self.button.tooltip = f"Add this condition to {title}"
        self.kind.disabled = self.button.disabled = not tree.editable


def arranged(
    editor: StopEditor, rows: Sequence[LeafRow | GroupRow], nodes: Sequence[Node], box: widgets.VBox
) -> tuple[list[LeafRow | GroupRow], bool]:
    """Return a row for each node, reusing the rows that fit; and True if any row is new or removed."""
    left = list(rows)
    now: list[LeafRow | GroupRow] = []
    for node in nodes:
        place = next((place for place, row in enumerate(left) if row.fits(node)), None)
        if place is None:
            now.append(GroupRow(editor, node) if node.is_group else LeafRow(editor, node))
        else:
            now.append(left[place])
            del left[: place + 1]
    if now == list(rows):
        return now, False
    box.children = tuple(row.view for row in now)
    for row in rows:
        if row not in now:
            close(row.view)
    return now, True


def close(widget: Any) -> None:
    """Close a widget with everything in it, so that neither the page nor the kernel keeps it."""
    for child in getattr(widget, "children", ()):
        close(child)
    for part in (widget, getattr(widget, "style", None), widget.layout):
        if part is not None:
            part.close()
