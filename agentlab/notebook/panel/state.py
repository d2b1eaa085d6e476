"""Shared by the parts of a panel: the run and the chosen step, the panel's services, and the mark of the drawing thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

import ipywidgets as widgets

from agentlab.agent import Run
from agentlab.errors import ConfigurationError

if TYPE_CHECKING:
    from agentlab.agent import Agent


class Part(Protocol):
    """A part of the panel."""

    @property
    def view(self) -> widgets.Widget:
        """The widget in the page."""

    def show(self) -> bool:
        """Update it; True if it has new controls. Called by the panel's redraw only."""


@dataclass(frozen=True, slots=True)
class PanelServices:
    """The services of a panel for its parts.

    `do` runs an action and shows its error, `redraw` requests a redraw from any thread, `open` shows another run. `agents` can be
    chosen for a branch, by name.
    """

    do: Callable[[Callable[[], object]], None]
    redraw: Callable[[], None]
    open: Callable[[Run], None]
    agents: Mapping[str, Agent]


class PanelState:
    """The run that is shown, and the step that the person chose. All other state is in the run."""

    def __init__(self, run: Run, services: PanelServices) -> None:
        self.run = run
        self.agents = services.agents
        self.do, self.redraw, self.open = services.do, services.redraw, services.open
        self._chosen: int | None = None

    @property
    def chosen(self) -> int | None:
        """The chosen step, from 1; None follows the newest step."""
        return self._chosen

    def choose(self, step: int | None) -> None:
        """Show this step in every part; None follows the newest. Raises ConfigurationError if there is no such step."""
        steps = len(self.run.history)
        if step is not None and not 1 <= step <= steps:
            there_is = f"choose from 1 to {steps}" if steps else "no step has been taken yet"
            raise ConfigurationError(f"Step {step}: {there_is}.")
        self._chosen = step
        self.redraw()


class RunningTotals:
    """Tokens and cost of a run after each of its steps, None from the first unknown amount on. Only new steps are read."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.tokens: list[int | None] = [0]
        self.cost: list[Decimal | None] = [Decimal(0)]

    def catch_up(self) -> int:
        """Read the new steps; returns the number of steps."""
        for step in self._run.history[len(self.tokens) - 1 :]:
            used, paid = step.all_tokens, step.all_cost_usd
            tokens, cost = self.tokens[-1], self.cost[-1]
            self.cost.append(None if cost is None or paid is None else cost + paid)
            self.tokens.append(None if tokens is None or used is None else tokens + used)
        return len(self.tokens) - 1


class _Drawing(threading.local):
    on = False


_THIS_THREAD = _Drawing()


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Mark this thread as drawing while it updates controls.

    The panel is drawn on one thread while a person's clicks arrive on another. A control reports both kinds of change the same way, so
    the thread distinguishes them.
    """
    before, _THIS_THREAD.on = _THIS_THREAD.on, True
    try:
        yield
    finally:
        _THIS_THREAD.on = before


def is_drawing() -> bool:
    """True if this thread is drawing: a change of a control is then not made by a person."""
    return _THIS_THREAD.on
