"""The editor of the stop condition: its tree, row by row, and what is done with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import ipywidgets as widgets

from agentlab import stop_tree
from agentlab.errors import ConfigurationError
from agentlab.history import RunHistory
from agentlab.never_met import why_never
from agentlab.stop import AllOf, AnyOf, Off, StepCountIs, StopCondition
from agentlab.stop_tree import Path
from agentlab.types import FinishReason
from agentlab.widgets import markup
from agentlab.widgets.fields import Field
from agentlab.widgets.scene import Scene
from agentlab.widgets.stop_rows import WHOLE, Adder, GroupRow, LeafRow, Tree, arranged
from agentlab.widgets.written import Html

NEW_GROUPS: dict[str, type[AnyOf | AllOf]] = {"a group: any of": AnyOf, "a group: all of": AllOf}
NONE_YET = '<span class="agentlab-note">No condition: only the budget bounds this run.</span>'
ADDED_OFF = "{} would be met at once, so it was added turned off: set it, then tick its box."
FOCUS_AFTER_S = 0.4
"""How long the page has to put up a new row before it is given the focus."""


class StopEditor:
    """The whole stop condition of a run. `root` is its topmost row, None where there is no condition."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._limits = scene, scene.run.limits
        self._shown: StopCondition | None = None
        self._is_stale = self._editable = True
        self._rows: list[LeafRow | GroupRow] = []
        self._lock = threading.RLock()  # a click and the redraw come on threads of their own
        self._has_new = False
        self._kinds: tuple[str, ...] = ()
        self._to_focus: tuple[float, Path] | None = None
        self._box, self._empty = widgets.VBox(), Html(_dom_classes=("agentlab-message",))
        self.note = Html(_dom_classes=("agentlab-message",))
        self.adder = Adder(self)
        self.view = widgets.VBox([self._empty, self._box, self.note, self.adder.view], _dom_classes=("agentlab-stop",))

    @property
    def known(self) -> Mapping[str, Iterable[str]]:
        """Names to choose from: the agent's tools, and the reasons for which a response ends."""
        return {"tools": self._scene.run.agent.tools, "finish reasons": FinishReason}

    @property
    def root(self) -> LeafRow | GroupRow | None:
        """The row of the whole condition."""
        return self._rows[0] if self._rows else None

    @property
    def is_stale(self) -> bool:
        """Whether the controls may show what does not hold, or there are new ones that nobody was told of."""
        return self._is_stale or self._has_new

    def row(self, *path: int) -> Any:
        """The row of this place in the tree."""
        found = None if self.root is None else self.root.row_at(path)
        if found is None:
            raise ConfigurationError(f"There is no row for {path!r}.")
        return found

    def leaves(self) -> Iterator[tuple[str, str, Field]]:
        """The fields of all single conditions, each with the names of the condition and of the field."""
        return iter(()) if self.root is None else self.root.leaves()

    def show(self, *, editable: bool) -> bool:
        """Bring the rows up to date; whether there are new controls."""
        with self._lock:
            stop = self._limits.stop  # read in here: what a click has changed meanwhile is not drawn back
            new, self._has_new = self._has_new, False
            kinds = (*stop_tree.kinds(), *NEW_GROUPS)
            same = stop is self._shown and editable is self._editable and kinds == self._kinds
            if not same or self._is_stale:
                self._editable, self._kinds = editable, kinds
                new = self._arrange(stop) or new
            elif self.root is not None:
                self.root.tell(markup.last_custom_readings(self._scene.run))
            self._focus()
        return new

    def _arrange(self, stop: StopCondition | None) -> bool:
        self._shown, self._is_stale = stop, False
        nodes = {node.path: node for node in stop_tree.outline(stop)}
        run = self._scene.run
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
        """Give the focus to a row that was added, as soon as the page has it."""
        if self._to_focus is None:
            return
        at, path = self._to_focus
        if time.monotonic() >= at:
            self._to_focus = None
            row = None if self.root is None else self.root.row_at(path)
            if row is not None:
                row.flags.counts.focus()  # a number box of ipywidgets does not take it; it comes next
        self._scene.redraw()

    @property
    def waits_to_focus(self) -> bool:
        """Whether a new row is to be given the focus as soon as it is there."""
        return self._to_focus is not None

    # What the rows ask for --------------------------------------------------------------------------------------------------

    def switch(self, path: Path, on: bool) -> None:
        """Turn the condition there on or off."""
        self._change(lambda stop: stop_tree.switched(stop, path, on))

    def negate(self, path: Path, on: bool) -> None:
        """Have it met when it was not, or as it is by itself."""
        self._change(lambda stop: stop_tree.negated(stop, path, on))

    def regroup(self, path: Path, kind: type[StopCondition]) -> None:
        """Any of the group's parts, or all of them."""
        self._change(lambda stop: stop_tree.regrouped(stop, path, kind))

    def remove(self, path: Path) -> None:
        """Take it away."""
        self._change(lambda stop: stop_tree.without(stop, path))

    def write(self, name: str, field: str, value: Any) -> None:
        """Give a field of a single condition another value; raises where that cannot be."""
        self._limits.edit_leaf(name, by="panel", **{field: value})

    def add(self, path: Path, kind: str) -> None:
        """Put a new one there, with its start values. One that is met already would end the run at once: it is added turned off."""

        def put(stop: StopCondition | None) -> StopCondition:
            new = self._made(kind)
            is_met = _is_met(new, self._scene.run.history)
            changed = stop_tree.added(stop, path, Off(new) if is_met else new)
            told.append(ADDED_OFF.format(kind) if is_met else "")
            below = [node.path for node in stop_tree.outline(changed) if node.path[: len(path)] == path and not node.is_group]
            told_where.append(below[-1])
            return changed

        told: list[str] = []
        told_where: list[Path] = []
        self._change(put)
        if told and told[-1]:
            self.note.value = f'<div class="agentlab-note" role="status">{markup.escape(told[-1])}</div>'
        if told_where:
            self._to_focus = (time.monotonic() + FOCUS_AFTER_S, told_where[-1])
            self._scene.redraw()

    def _made(self, kind: str) -> StopCondition:
        tools = tuple(self._scene.run.agent.tools)
        if kind in NEW_GROUPS:
            return NEW_GROUPS[kind](stop_tree.started(StepCountIs))
        known = stop_tree.kinds()
        if kind not in known:
            raise ConfigurationError(f"There is no condition {kind!r}. There is: {', '.join(known)}.")
        return stop_tree.started(known[kind], tools)

    def _change(self, change: Callable[[Any], StopCondition | None]) -> None:
        def act() -> None:
            with self._lock:
                self._is_stale = True  # what is refused may stand in a control
                self.note.value = ""
                now = self._limits.snapshot().stop
                if not _same_shape(now, self._shown):
                    raise ConfigurationError("The stop condition was changed elsewhere meanwhile: look at it, then try again.")
                after = self._limits.edit(by="panel", stop=change(now))
                self._has_new = self._arrange(after.stop) or self._has_new  # a second click may come before a redraw

        self._scene.do(act)


def _same_shape(one: StopCondition | None, other: StopCondition | None) -> bool:
    """Whether the places of one tree are those of the other."""
    if one is other:
        return True
    kinds = [
        [(node.path, node.is_group, node.name) for node in stop_tree.outline(tree) if not node.is_group] for tree in (one, other)
    ]
    return kinds[0] == kinds[1]


def _is_met(condition: StopCondition, history: RunHistory) -> bool:
    """Whether it would end the run as it stands."""
    try:
        return len(history) > 0 and bool(condition.read(history).met)
    except Exception:
        return False  # what is wrong with it is said when the run reads it
