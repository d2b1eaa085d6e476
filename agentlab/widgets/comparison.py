"""Several runs in one picture: tokens and cost over their steps, and how one came from another.

Drawing costs some tenths of a second of the kernel's time with 20 runs, so a picture is drawn only where something has changed, and
while runs go on for no more than a small part of the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import pandas as pd

from agentlab import plots
from agentlab.plots import PlotFigure, branch_tree
from agentlab.recorder import array
from agentlab.run import Run
from agentlab.widgets import markup

MOST_POINTS = 150
"""Of a longer run so many steps are drawn, evenly spread."""

OWN_LOOKS = 8
"""Up to so many runs have a look each; more are told apart by their providers."""

SHARE = 0.1
"""Of the time that passes while runs go on, so much at most is spent on drawing."""

LONGEST_PAUSE_S = 4.0
"""The first picture of all takes far longer than the others: fonts are read."""

SCALE = 1.25


@dataclass(slots=True)
class Course:
    """What a run had used after each of its steps; only what is new is read."""

    run: Run
    tokens: list[int | None] = field(default_factory=list)
    cost: list[float | None] = field(default_factory=list)
    max_tokens: list[int | None] = field(default_factory=list)
    max_cost: list[float | None] = field(default_factory=list)

    def catch_up(self) -> None:
        """Read the steps that are new."""
        for step in self.run.history[len(self.tokens) :]:
            used, cost = step.all_tokens, step.all_cost_usd
            so_far, spent = (self.tokens[-1], self.cost[-1]) if self.tokens else (0, 0.0)
            budget = step.settings.budget
            self.tokens.append(None if used is None or so_far is None else so_far + used)
            self.cost.append(None if cost is None or spent is None else spent + float(cost))
            self.max_tokens.append(budget.max_tokens)
            self.max_cost.append(None if budget.max_cost is None else float(budget.max_cost))

    def shown_steps(self) -> list[int]:
        """The steps that are drawn, from 1; the last is one of them."""
        steps = len(self.tokens)
        if steps <= MOST_POINTS:
            return list(range(1, steps + 1))
        return sorted({1 + round(place * (steps - 1) / (MOST_POINTS - 1)) for place in range(MOST_POINTS)})


class Courses:
    """The courses of several runs as a frame that `lab.plots.curves` draws."""

    def __init__(self) -> None:
        self._of: dict[str, Course] = {}
        self._lock = threading.Lock()

    def frame(self, runs: Sequence[tuple[str, Run]]) -> pd.DataFrame:
        """The runs with what they are called; a few of them as so many providers, so that each has a look of its own."""
        by_run = len(runs) <= OWN_LOOKS
        rows = []
        for name, run in runs:
            with self._lock:  # what is kept is made while the page is drawn
                course = self._of.setdefault(run.id, Course(run))
                course.catch_up()
            model, steps = run.agent.model, course.shown_steps()
            thinned = len(steps) < len(course.tokens)
            called = (f"{name}  {model.name}:{model.model}", None) if by_run else (model.name, model.model)
            for step in steps:
                place = step - 1
                reason = None if run.result is None or step != steps[-1] else str(run.result.stop_reason)
                limits = (None, None) if thinned else (course.max_tokens[place], course.max_cost[place])
                rows.append((run.id, *called, step, reason, course.tokens[place], course.cost[place], *limits))
        dtypes = {
            "run_id": "string",
            "provider": "string",
            "model": "string",
            "step": "Int64",
            "stop_reason": "string",
            "cumulative_tokens": "Int64",
            "cumulative_cost_usd": "Float64",
            "max_tokens": "Int64",
            "max_cost_usd": "Float64",
        }
        return pd.DataFrame(
            {name: array([row[place] for row in rows], dtype) for place, (name, dtype) in enumerate(dtypes.items())}
        )

    def figure(self, runs: Sequence[tuple[str, Run]]) -> PlotFigure:
        """Tokens and cost of these runs side by side."""
        return plots.curves(self.frame(runs))


def tree_figure(shown: Run) -> PlotFigure:
    """The family of a run as a tree, in the looks that its runs have in `Courses.figure`; the name of `shown` stands out."""
    data = plots.tree_data(shown)
    axes = branch_tree.draw_tree(data, marked=shown.id, by_run=len(data) <= OWN_LOOKS)
    figure = axes.figure
    assert isinstance(figure, PlotFigure)  # noqa: S101  for the type checker: no axes were given
    return figure


def state_of(runs: Sequence[Run]) -> Hashable:
    """What a picture of these runs depends on."""
    return tuple([(run.id, len(run.history), run.result is None) for run in runs])


class KeptPicture:
    """A figure as an image in the page. `draw` makes the figure."""

    def __init__(self, draw: Callable[[], PlotFigure], width: int = 900) -> None:
        self._draw, self._width = draw, width
        self._drawn: Hashable = None
        self._next_s = 0.0
        self._html = ""

    def as_html(self, state: Hashable, *, going_on: bool) -> str:
        """The image; drawn anew where `state` is another than before, and while the runs are `going_on` not too often."""
        if state != self._drawn and not (going_on and time.monotonic() < self._next_s):
            began_s = time.thread_time()  # not what others take of the machine meanwhile
            figure = self._draw()
            self._html = markup.picture(figure.png(SCALE), figure.alt, self._width)
            self._drawn = state
            pause_s = (time.thread_time() - began_s) * (1 / SHARE - 1)
            self._next_s = time.monotonic() + min(pause_s, LONGEST_PAUSE_S)
        return self._html
