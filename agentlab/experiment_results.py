"""What an experiment led to, as tidy frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from agentlab import sugar
from agentlab.grid import Grid
from agentlab.run import Run
from agentlab.standing import Standing
from agentlab.store import Store

if TYPE_CHECKING:
    import pandas as pd


class ExperimentResults:
    """The frames of an experiment: `runs`, with a row for each cell, also where nothing was run; `steps`, `calls`, `tools` of those
    that were. Sorted by cell: what runs first plays no part.

    In front stand `agent`, `prompt_id`, `settings`, `repeat`, `score` (NA: none, or not known) and `score_error`; a score that is
    a dict has a column `score.<key>` each. `runs` has besides `state` (`ended`, `interrupted`, `open`, `not_started`), the `attempt`,
    and a `problem` that was none of the run's own, such as a worker that died. Of several attempts the newest counts.
    """

    def __init__(self, grid: Grid, store: Store, standing: tuple[Standing, ...], problems: Mapping[str, str]) -> None:
        self.grid, self.store, self.standing, self.problems = grid, store, standing, problems

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

    def __len__(self) -> int:
        return len(self.standing)

    def __repr__(self) -> str:
        states = Counter("failed" if one.failed else one.state for one in self.standing)
        told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in states.items())
        return f"ExperimentResults({self.grid.name!r}, {len(self.standing)} runs: {told})"
