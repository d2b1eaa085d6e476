"""The panel of one run and its branches: which of them it shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentlab.engine.run_tree import family_of
from agentlab.run import Run, RunState
from agentlab.widgets.answer import Answer
from agentlab.widgets.cockpit import Cockpit
from agentlab.widgets.curve import Curve
from agentlab.widgets.live_view import LiveView
from agentlab.widgets.scene import Scene, Stage
from agentlab.widgets.static_view import StaticView

if TYPE_CHECKING:
    from agentlab.agent import Agent


class Panel(LiveView):
    """The live control of one run and its branches. It holds no state of theirs: it shows the run, and writes to `run.limits`.

    As the last expression of a cell it shows itself. `bundle()` is what a reader without a kernel sees. `agents` are others that a
    branch may go on with.
    """

    def __init__(self, run: Run, agents: Iterable[Agent] = ()) -> None:
        super().__init__()
        self.run = run
        self._agents = {agent.name: agent for agent in agents}
        self._cockpits: dict[str, Cockpit] = {}

    @property
    def cockpit(self) -> Cockpit:
        """The parts that show the run, made when they are first asked for."""
        _ = self.widget
        return self._cockpits[self.run.id]

    def open(self, run: Run) -> None:
        """Show this run: a branch, or the one it was forked from."""
        with self._drawing:
            self.run = run
            if run.id not in self._cockpits:
                self._cockpits[run.id] = Cockpit(Scene(run, self._stage))
                self._cockpits[run.id].watch()
            self._put(self._cockpits[run.id].view)
        self._redrawer.mark()

    def _compose(self) -> None:
        self._stage = Stage(self.guard, self._redrawer.mark, self.open, self._agents)
        self.open(self.run)

    def _show(self) -> bool:
        return self.cockpit.show()

    def _is_under_way(self) -> bool:
        return any(member.run.state is RunState.RUNNING for member in family_of(self.run))

    def _finished(self) -> object:
        return None if self.run.result is None else self.run.id

    def _static(self) -> StaticView:
        cockpit = self._cockpits.get(self.run.id)
        if cockpit is None:
            return StaticView(self.run, Curve(self.run), Answer(self.run).said())
        return StaticView(self.run, cockpit.chart.curve, cockpit.answer.answer.said())

    def __repr__(self) -> str:
        return f"Panel({self.run!r})"
