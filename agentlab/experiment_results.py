"""What an experiment led to, as tidy frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentlab import sugar
from agentlab.grid import Grid
from agentlab.run import Run
from agentlab.shown import Shown
from agentlab.standing import Standing
from agentlab.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from agentlab.agreements import Agreement
    from agentlab.plots import PlotFigure


class ExperimentResults(Shown):
    """The frames of an experiment: `runs`, with a row for each cell, also where nothing was run; `steps`, `calls`, `tools` of those
    that were. Sorted by cell: what runs first plays no part.

    In front stand `agent`, `prompt_id`, `settings`, `repeat`, `score` (NA: none, or not known) and `score_error`; a score that is
    a dict has a column `score.<key>` each. `runs` has besides `state` (`ended`, `interrupted`, `open`, `not_started`), the `attempt`,
    and a `problem` that was none of the run's own, such as a worker that died. Of several attempts the newest counts.
    """

    def __init__(self, grid: Grid, store: Store, standing: tuple[Standing, ...], problems: Mapping[str, str]) -> None:
        self.grid: Grid = grid
        self.store: Store = store
        self.standing: tuple[Standing, ...] = standing
        self.problems: Mapping[str, str] = problems

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row a run, in the order of the cells."""
        return self.frame("runs")

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row a step."""
        return self.frame("steps")

    @cached_property
    def calls(self) -> pd.DataFrame:
        """A row a round trip to a model."""
        return self.frame("calls")

    @cached_property
    def tools(self) -> pd.DataFrame:
        """A row a tool call."""
        return self.frame("tools")

    @cached_property
    def loaded(self) -> list[Run]:
        """All runs as they are kept, in the order of the cells: to look at one by one, and to fork."""
        return [self.store.load(one.run_id, self.grid.agents[one.cell.agent]) for one in self.standing if one.kept is not None]

    def frame(self, what: str = "runs") -> pd.DataFrame:
        """Any frame: `runs`, `steps`, `calls`, `tools`, `events`, `readings` or `termination`."""
        made: pd.DataFrame = sugar.call("agentlab.experiment_frames:frame", self, what)
        return made

    def summary(self, by: str | list[str] | None = None, **more: Any) -> pd.DataFrame:
        """Completion, success, tokens and cost of each agent (and settings, where there are several) with intervals; see
        `lab.summary`."""
        made: pd.DataFrame = sugar.call("agentlab.compare:summary", self.runs, self._groups(by), **more)
        return made

    def paired(self, what: str = "cost_usd", by: str | list[str] | None = None, **more: Any) -> pd.DataFrame:
        """How agents differ on the same prompts; see `lab.paired`."""
        made: pd.DataFrame = sugar.call("agentlab.compare:paired", self.runs, what, by or "agent", **more)
        return made

    def agreement(self, what: str | None = None, by: str | list[str] | None = None, **more: Any) -> Agreement:
        """Whether agents end for the same reasons on the same prompts; see `lab.agreement`."""
        made: Agreement = sugar.call("agentlab.agreements:agreement", self.runs, what, by or "agent", **more)
        return made

    def plot(self, by: str | list[str] | None = None, **more: Any) -> PlotFigure:
        """The picture of the whole comparison; see `lab.plots.comparison`."""
        made: PlotFigure = sugar.call("agentlab.plots:comparison", self.runs, self.steps, self._groups(by), **more)
        return made

    def _groups(self, by: str | list[str] | None) -> str | list[str]:
        if by is not None:
            return by
        return ["agent", "settings"] if self.runs["settings"].nunique() > 1 else "agent"

    def __len__(self) -> int:
        return len(self.standing)

    def __repr__(self) -> str:
        states = Counter("failed" if one.failed else one.state for one in self.standing)
        told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in states.items())
        return f"ExperimentResults({self.grid.name!r}, {len(self.standing)} runs: {told})"
