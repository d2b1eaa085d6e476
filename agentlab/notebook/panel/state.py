"""What the parts of a panel have in common: the run that is shown, the step that was chosen, and how something is done."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import ipywidgets as widgets

from agentlab.errors import ConfigurationError
from agentlab.run import Run

if TYPE_CHECKING:
    from agentlab.agent import Agent


class Part(Protocol):
    """A part of the panel: one subject, one file."""

    @property
    def view(self) -> widgets.Widget:
        """What stands in the page."""

    def show(self) -> bool:
        """Bring it up to date with the run; whether there are new controls. Called by the one writer of the panel only."""


@dataclass(frozen=True, slots=True)
class PanelServices:
    """What a panel does for its parts: `do` has an action done and shows what it raises, `redraw` asks for a redraw from any thread,
    `open` shows another run. `agents` are those that a branch may go on with, by name."""

    do: Callable[[Callable[[], object]], None]
    redraw: Callable[[], None]
    open: Callable[[Run], None]
    agents: Mapping[str, Agent]


class PanelState:
    """One run as a panel shows it. What a person looks at is all that is kept here; what holds for the run stands in the run."""

    def __init__(self, run: Run, stage: PanelServices) -> None:
        self.run = run
        self.agents = stage.agents
        self.do, self.redraw, self.open = stage.do, stage.redraw, stage.open
        self._chosen: int | None = None

    @property
    def chosen(self) -> int | None:
        """The step that the person chose, from 1; None: the newest is followed."""
        return self._chosen

    def choose(self, step: int | None) -> None:
        """Look at this step, in every part; None follows the newest. Raises ConfigurationError for one that there is not."""
        steps = len(self.run.history)
        if step is not None and not 1 <= step <= steps:
            there_is = f"there are steps 1 to {steps}" if steps else "no step has been taken yet"
            raise ConfigurationError(f"Step {step}: {there_is}.")
        self._chosen = step
        self.redraw()


class _OfThisThread(threading.local):
    on = False


_HERE = _OfThisThread()


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Stands around what brings controls up to date on this thread."""
    before, _HERE.on = _HERE.on, True
    try:
        yield
    finally:
        _HERE.on = before


def is_drawing() -> bool:
    """Whether this thread is at that: what a control tells of then is no wish of a person."""
    return _HERE.on
