"""Pictures of runs: tokens and cost of one run, the curves and the tree of several, and the timeline.

Drawing takes up to some tenths of a second of the kernel's time, so a picture is drawn only if something has changed, and while runs
are under way only for a small part of the time.
"""

from __future__ import annotations

import io
import json
import textwrap
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from typing import Any, cast

import ipywidgets as widgets
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agentlab import plots
from agentlab.agent import Run
from agentlab.engine.worker import RunState
from agentlab.limits.budget import Budget
from agentlab.limits.conditions import MaxCost, MaxTokensUsed
from agentlab.notebook import markup
from agentlab.notebook.live_view import PanelState, Picture
from agentlab.notebook.markup import Html
from agentlab.notebook.page.steps import RunningTotals
from agentlab.plots import branch_tree
from agentlab.plots.figure import COLOURS, TEXT, PlotAxes, PlotFigure, shorten
from agentlab.plots.run_timeline import TimelinePart, draw_timeline, timeline_data, timeline_part
from agentlab.records.frames import array

_BLUE, LIMIT, _GREEN = COLOURS[:3]
TITLES = ("total tokens", "total cost, USD")
FARTHEST = 3.0
"""A limit above this multiple of the sum is only written: drawn, it would flatten the curve."""
MOST_POINTS = 150
"""Steps drawn of a longer run, evenly spread."""
OWN_LOOKS = 8
"""Up to this many runs have a colour each; more are distinguished by provider."""
SHARE = 0.1
"""Share of the time spent on drawing while runs are under way."""
LONGEST_PAUSE_S = 4.0
"""The very first picture takes much longer than the others, since fonts are read."""
SCALE = 1.25
TIMELINE_SCALE = 1.5
"""Pixels of the picture per pixel of the page."""


class PacedPicture:
    """A picture in the page that is redrawn by `draw` when its state changes, and not too often while runs are under way."""

    def __init__(self, draw: Callable[[], str]) -> None:
        self._draw = draw
        self._drawn: Hashable = None
        self._next_s = 0.0
        self._html = ""

    def as_html(self, state: Hashable, *, under_way: bool) -> str:
        """The picture as HTML. With `under_way`, drawing takes at most SHARE of the time."""
        if state != self._drawn and not (under_way and time.monotonic() < self._next_s):
            began_s = time.thread_time()  # excludes the processor time of other threads
            self._html, self._drawn = self._draw(), state
            pause_s = (time.thread_time() - began_s) * (1 / SHARE - 1)
            self._next_s = time.monotonic() + min(pause_s, LONGEST_PAUSE_S)
        return self._html


# One run --------------------------------------------------------------------------------------------------------------------


class Curve:
    """Draws a run's tokens and cost over its steps, with the limits in force.

    Reads only new steps, and updates one figure: a new one would take three times as long.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._seen = -1
        self._limits: tuple[float | None, float | None] = (None, None)
        self._mark: int | None = None
        self._png = b""
        self._places: list[tuple[float, float, float, float]] = []
        self._totals = RunningTotals(run)
        self._sums: tuple[list[float], list[float]] = ([0.0], [0.0])
        self._made = False
        self._laid_out_for: tuple[str, ...] = ()

    def _make(self) -> None:
        self._made = True
        self._figure = Figure(figsize=(5.6, 2.9), dpi=110, layout="constrained")
        self._canvas: Any = FigureCanvasAgg(self._figure)
        self._figure.patch.set_alpha(0.0)
        self._axes = self._figure.subplots(1, 2)
        self._lines: list[Any] = []
        self._limit_lines: list[Any] = []
        self._mark_lines: list[Any] = []
        self._rings: list[Any] = []
        self._notes: list[Any] = []
        for axis, colour in zip(self._axes, (_BLUE, _GREEN), strict=True):
            axis.patch.set_alpha(0.0)
            axis.tick_params(colors=TEXT, labelsize=8)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            axis.set_xlabel("step", color=TEXT, fontsize=8)
            for name, spine in axis.spines.items():
                spine.set_color(TEXT)
                spine.set_visible(name in ("left", "bottom"))
            self._lines += axis.plot([], [], color=colour, marker="o", markersize=3, linewidth=1.8, gid="so far")
            self._limit_lines.append(axis.axhline(0.0, color=LIMIT, linestyle="--", linewidth=1.4, visible=False))
            self._mark_lines.append(axis.axvline(0, color=TEXT, linewidth=1.0, visible=False, gid="chosen step"))
            self._notes.append(
                axis.text(
                    0.5, 0.5, "", transform=axis.transAxes, color=TEXT, fontsize=8, ha="center", va="center", parse_math=False
                )
            )
            self._rings += axis.plot([], [], color=colour, marker="o", markersize=9, markeredgewidth=1.6, fillstyle="none")

    def draw(self, mark: int | None = None) -> bytes:
        """The picture as PNG, redrawn only if something changed. `mark` is a step to mark in both curves."""
        with self._lock:
            limits = self._limits_now()
            if self._png and self._seen == len(self._run.history) and (limits, mark) == (self._limits, self._mark):
                return self._png
            if not self._made:
                self._make()
            self._read_new_steps()
            self._limits, self._mark = limits, mark
            for place, unknown in enumerate(self._unknown()):
                self._draw_axis(place, limits[place], mark, unknown)
            self._lay_out()
            out = io.BytesIO()
            self._canvas.print_png(out, metadata={"Software": None})  # faster than savefig, which goes over everything twice
            self._png = out.getvalue()
            boxes = (axis.get_position() for axis in self._axes)
            self._places = [(box.x0, box.x1, 1 - box.y1, 1 - box.y0) for box in boxes]
            return self._png

    def _draw_axis(self, place: int, limit: float | None, mark: int | None, unknown: str) -> None:
        axis, sums, note = self._axes[place], self._sums[place], self._notes[place]
        note.set_text("\n".join(textwrap.wrap(unknown, 26, break_on_hyphens=False)))
        empty = len(sums) == 1
        note.set_position((0.5, 0.5) if empty else (0.99, 0.04))  # there is room below a rising curve
        note.set(ha="center" if empty else "right", va="center" if empty else "bottom")
        self._mark_lines[place].set_visible(mark is not None)
        self._mark_lines[place].set_xdata([mark or 0, mark or 0])
        self._rings[place].set_data(([mark], [sums[mark]]) if mark is not None and mark < len(sums) else ([], []))
        self._lines[place].set_data(range(len(sums)), sums)
        self._lines[place].set_marker("o" if len(sums) <= 60 else "")
        top = max(sums)
        near = limit is not None and limit <= FARTHEST * top
        self._limit_lines[place].set_visible(near)
        if limit is not None and near:
            self._limit_lines[place].set_ydata([limit, limit])
            top = max(top, limit)
        title = TITLES[place]
        axis.set_title(title if limit is None else f"{title} · limit {limit:,g}", color=TEXT, fontsize=9)
        axis.set_xlim(0, max(2, self._seen))
        axis.set_ylim(0, top * 1.08 or 1)
        axis.tick_params(labelleft=top > 0)  # no numbers before the first step

    def _lay_out(self) -> None:
        """Place the axes again if their labels may be wider, which takes as long as the drawing itself."""
        tops = tuple(f"{axis.get_ylim()[1]:.0e}" for axis in self._axes)
        self._figure.set_layout_engine("none" if tops == self._laid_out_for else "constrained")
        self._laid_out_for = tops

    def _read_new_steps(self) -> None:
        """Extend the sums; a sum ends at the first step whose amount is unknown."""
        self._seen = self._totals.catch_up()
        known: tuple[Sequence[int | Decimal | None], ...] = (self._totals.tokens, self._totals.cost)
        for sums, totals in zip(self._sums, known, strict=True):
            for total in totals[len(sums) :]:
                if total is None:
                    break
                sums.append(float(total))

    def _unknown(self) -> list[str]:
        """Return, for tokens and for cost, the step from which the sum is unknown and why; empty if it is known."""
        found = []
        for name, sums in zip(("tokens", "cost"), self._sums, strict=True):
            if len(sums) > self._seen:
                found.append("")
                continue
            step = self._run.history[len(sums) - 1]
            own, model = (step.usage.total_tokens if name == "tokens" else step.cost.usd) is None, self._run.agent.model
            who = shorten(f"{model.name}:{model.model}", 40) if own else "a sub-agent"
            usage = step.usage.total_tokens if own else step.child_tokens
            why = f"{who} reported no usage" if usage is None else f"no price for {who}"
            if own and step.finish_reason is None:
                why = "its call was not answered"
            found.append(f"{name} unknown{f' from step {len(sums)} on' * (len(sums) > 1)}: {why}")
        return found

    def _limits_now(self) -> tuple[float | None, float | None]:
        settings = self._run.limits.snapshot()
        tokens: list[int | Decimal | None] = [settings.budget.max_tokens]
        cost: list[int | Decimal | None] = [settings.budget.max_cost]
        for leaf in settings.stop.leaves(that_count=True) if settings.stop is not None else ():
            if isinstance(leaf, MaxTokensUsed):
                tokens.append(leaf.tokens)
            elif isinstance(leaf, MaxCost):
                cost.append(leaf.usd)
        return _least(tokens), _least(cost)

    def alt(self, mark: int | None = None) -> str:
        """The last drawing in words."""
        tokens, cost = self._sums
        steps = max(0, self._seen)
        text = f"Tokens and cost over {steps} step{'s' * (steps != 1)}: {tokens[-1]:.0f} tokens, {cost[-1]:.6g} US dollars known."
        text += "".join(f" {one[0].upper()}{one[1:]}." for one in self._unknown() if one)
        if mark is not None:
            text += f" Step {mark} is marked: {_at(tokens, mark, '.0f')} tokens, {_at(cost, mark, '.6g')} US dollars so far."
        return text

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        width, height = self._figure.get_size_inches() * self._figure.dpi
        return round(width), round(height)

    def as_html(self, mark: int | None = None) -> str:
        """The picture as an image with its alternative text.

        `data-axes` gives the place of each axes as shares of the image's width and height, from the left and the top, and the steps
        it spans: the page computes from it which step was clicked.
        """
        png, steps = self.draw(mark), max(0, self._seen)
        axes = [
            {"left": round(left, 4), "right": round(right, 4), "top": round(top, 4), "bottom": round(bottom, 4),
             "from": 0, "to": max(2, steps), "first": 1, "last": steps}
            for left, right, top, bottom in self._places
        ]  # fmt: skip
        clickable = f' data-axes="{markup.escape_whole(json.dumps(axes))}"' if steps else ""
        return markup.picture(png, self.alt(mark), 620, attributes=f' class="agentlab-chart"{clickable}')


def _at(sums: list[float], step: int, form: str) -> str:
    return format(sums[step], form) if step < len(sums) else "unknown"


def _least(limits: list[int | Decimal | None]) -> float | None:
    return min((float(limit) for limit in limits if limit is not None), default=None)


class Chart:
    """The curve in the panel, with the chosen step marked."""

    def __init__(self, state: PanelState) -> None:
        self._state = state
        self.curve = Curve(state.run)
        self.view = Html()

    def show(self) -> bool:
        """Draw what is new."""
        self.view.value = self.curve.as_html(self._state.chosen)
        return False


# Several runs ---------------------------------------------------------------------------------------------------------------


_COURSE_COLUMNS = {
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


class Courses:
    """The courses of several runs, as a frame for `lab.plots.curves`."""

    def __init__(self) -> None:
        self._totals: dict[str, RunningTotals] = {}
        self._lock = threading.Lock()

    def frame(self, runs: Sequence[tuple[str, Run]]) -> pd.DataFrame:
        """One row per drawn step of the named runs. A few runs count as a provider each, so that each has its own colour."""
        by_run, no_limits = len(runs) <= OWN_LOOKS, Budget()
        rows = []
        for name, run in runs:
            with self._lock:  # a display may request the frame while the page is drawn
                totals = self._totals.setdefault(run.id, RunningTotals(run))
                count = totals.catch_up()
            model, steps = run.agent.model, _spread(count)
            called = (f"{name}  {model.name}:{model.model}", None) if by_run else (model.name, model.model)
            for step in steps:
                reason = None if run.result is None or step != steps[-1] else str(run.result.stop_reason)
                budget = no_limits if len(steps) < count else run.history[step - 1].settings.budget
                cost, max_cost = totals.cost[step], budget.max_cost
                rows.append(
                    (run.id, *called, step, reason, totals.tokens[step], None if cost is None else float(cost), budget.max_tokens,
                     None if max_cost is None else float(max_cost))
                )  # fmt: skip
        return pd.DataFrame(
            {name: array([row[place] for row in rows], dtype) for place, (name, dtype) in enumerate(_COURSE_COLUMNS.items())}
        )

    def figure(self, runs: Sequence[tuple[str, Run]]) -> PlotFigure:
        """Tokens and cost of these runs in one figure."""
        return plots.curves(self.frame(runs))


def _spread(steps: int) -> list[int]:
    """The steps to draw, from 1: all, or MOST_POINTS evenly spread ones with the last."""
    if steps <= MOST_POINTS:
        return list(range(1, steps + 1))
    return sorted({1 + round(place * (steps - 1) / (MOST_POINTS - 1)) for place in range(MOST_POINTS)})


def tree_figure(shown: Run) -> PlotFigure:
    """The tree of a run's branches, in the colours of `Courses.figure`, with the shown run highlighted."""
    data = plots.tree_data(shown)
    return cast(PlotFigure, branch_tree.draw_tree(data, marked=shown.id, by_run=len(data) <= OWN_LOOKS).figure)


def figure_html(figure: PlotFigure) -> str:
    """A figure as an image."""
    return markup.picture(figure.png(SCALE), figure.alt, 900)


def state_of(runs: Sequence[Run]) -> Hashable:
    """Return the state that a picture of these runs depends on."""
    return tuple([(run.id, len(run.history), run.result is None) for run in runs])


# The timeline ---------------------------------------------------------------------------------------------------------------


def timeline_picture(run: Run, chosen: int | None = None, pixels: float = TIMELINE_SCALE) -> Picture:
    """The newest steps of the run over time, or those around the chosen step, which is marked."""
    part = timeline_part(run, chosen)
    marked = chosen if part.has(chosen) else None
    at_the_end = part.whole or part.last == len(run.history)
    running = at_the_end and run.state is not RunState.ENDED
    axes = cast(PlotAxes, draw_timeline(timeline_data(part.frame), begin_s=part.begin_s, marked=marked, running=running))
    figure = cast(PlotFigure, axes.figure)
    width, height = (round(inches * figure.get_dpi()) for inches in figure.get_size_inches())
    return Picture(figure.png(pixels), axes.alt, width, height, _about_timeline(part, run, chosen))


def _about_timeline(part: TimelinePart, run: Run, chosen: int | None) -> str:
    remarks = []
    if not part.whole and part.last:
        steps = f"Steps {part.first:,} to {part.last:,}" if part.last > part.first else f"Step {part.last:,}"
        remarks.append(f"{steps} of {max(part.last, len(run.history)):,}: more would not be legible.")
    if part.has(chosen):
        remarks.append(f"Step {chosen:,} is the one you chose: it has a dashed frame.")
    elif chosen is not None:
        remarks.append(f"Step {chosen:,} is not here: it was taken before the branch, in the parent run.")
    return " ".join(remarks)


class TimelineView:
    """The timeline of the run, with the chosen step marked. Drawn only while its tab is open."""

    title = "Timeline"

    def __init__(self, state: PanelState) -> None:
        self._state = state
        self._paced = PacedPicture(lambda: timeline_picture(state.run, state.chosen).as_html())
        self._shown: tuple[object, ...] = ()
        self.picture = Html()
        self.view = widgets.VBox([self.picture])

    def show(self) -> bool:
        """Draw what is new: at once for another chosen step and at the end of the run, otherwise at a slow pace."""
        run = self._state.run
        wanted = (self._state.chosen, run.state is RunState.ENDED)
        under_way = run.state is RunState.RUNNING and wanted == self._shown
        self._shown = wanted
        self.picture.value = self._paced.as_html((len(run.events), *wanted), under_way=under_way)
        return False
