"""A picture of a run, with the same in words."""

from __future__ import annotations

import base64
import html
import io
import json
import textwrap
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

import ipywidgets as widgets
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agentlab import plots
from agentlab.notebook.cards import _tree
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.markup import Html
from agentlab.notebook.panel.state import PanelState
from agentlab.plots.figure import COLOURS, TEXT, PlotAxes, PlotFigure, shorten
from agentlab.plots.run_timeline import TimelinePart, draw_timeline, timeline_data, timeline_part
from agentlab.recorder import array
from agentlab.run import Run, RunState
from agentlab.stop import MaxCost, MaxTokensUsed


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG; `alt` says in words what is to be seen, `about` what part of the run it is. `width` and `height` are in pixels of the
    page: the picture itself has more."""

    png: bytes
    alt: str
    width: int
    height: int
    about: str = ""

    def as_html(self) -> str:
        """The picture inside the page, and what is to be said of it below."""
        return markup.picture(self.png, f"{self.alt} {self.about}".strip(), self.width) + markup.note(self.about)

    def as_output(self) -> tuple[dict[str, str], dict[str, Any]]:
        """The picture as an output of its own: data and metadata by mime type. No text, since times differ from run to run."""
        alt = markup.printable(f"{self.alt} {self.about}".strip())
        data = {"image/png": base64.b64encode(self.png).decode()}
        return data, {"image/png": {"width": self.width, "height": self.height, "alt": alt}}


_BLUE, LIMIT, _GREEN = COLOURS[:3]
TITLES = ("tokens so far", "cost so far, USD")
FARTHEST = 3.0
"""A limit that is farther away than this many times the sum is told in words: drawn, it would press the curve flat."""


class Curve:
    """Draws a run's tokens and cost over its steps, reading only the steps that are new."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._seen = -1
        self._limits: tuple[float | None, float | None] = (None, None)
        self._mark: int | None = None
        self._png = b""
        self._places: list[tuple[float, float, float, float]] = []
        self._steps: list[int] = [0]
        self._sums: tuple[list[float], list[float]] = ([0.0], [0.0])
        self._made = False
        self._laid_out_for: tuple[str, ...] = ()

    def _make(self) -> None:
        self._made = True
        self._figure = Figure(figsize=(5.6, 2.9), dpi=110, layout="constrained")
        self._canvas: Any = FigureCanvasAgg(self._figure)
        self._figure.patch.set_alpha(0.0)
        self._axes = self._figure.subplots(1, 2)
        self._lines = []
        self._limit_lines = []
        self._mark_lines, self._rings, self._notes = [], [], []
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
        """The picture as PNG, drawn anew only where there is something new. `mark` is a step that is marked in both curves."""
        with self._lock:
            limits = self._limits_now()
            if self._png and self._seen == len(self._run.history) and (limits, mark) == (self._limits, self._mark):
                return self._png
            if not self._made:
                self._make()
            self._take_in_new_steps()
            self._limits, self._mark = limits, mark
            for axis, line, limit_line, sums, limit, title, mark_line, ring, note, unknown in zip(
                self._axes, self._lines, self._limit_lines, self._sums, limits, TITLES, self._mark_lines, self._rings,
                self._notes, self._unknown(), strict=True,
            ):  # fmt: skip
                note.set_text("\n".join(textwrap.wrap(unknown, 26, break_on_hyphens=False)))
                note.set_position((0.5, 0.5) if len(sums) == 1 else (0.99, 0.04))  # below a curve that rises there is room
                note.set(ha="center" if len(sums) == 1 else "right", va="center" if len(sums) == 1 else "bottom")
                mark_line.set_visible(mark is not None)
                mark_line.set_xdata([mark or 0, mark or 0])
                known = mark is not None and mark < len(sums)
                ring.set_data(([mark], [sums[mark]]) if mark is not None and known else ([], []))
                line.set_data(self._steps[: len(sums)], sums)
                line.set_marker("o" if len(sums) <= 60 else "")
                top = max(sums)
                near = limit is not None and limit <= FARTHEST * top
                limit_line.set_visible(near)
                if limit is not None and near:
                    limit_line.set_ydata([limit, limit])
                    top = max(top, limit)
                axis.set_title(title if limit is None else f"{title} · limit {limit:,g}", color=TEXT, fontsize=9)
                axis.set_xlim(0, max(2, self._steps[-1]))
                axis.set_ylim(0, top * 1.08 or 1)
                axis.tick_params(labelleft=top > 0)  # before the first step there is nothing to read off
            self._lay_out()
            out = io.BytesIO()
            self._canvas.print_png(out, metadata={"Software": None})  # savefig goes over everything twice
            self._png = out.getvalue()
            self._places = [
                (place.x0, place.x1, 1 - place.y1, 1 - place.y0) for place in (axis.get_position() for axis in self._axes)
            ]
            return self._png

    def _lay_out(self) -> None:
        """Find the axes' places anew where the numbers beside them may be wider: that takes as long as the drawing itself."""
        tops = tuple(f"{axis.get_ylim()[1]:.0e}" for axis in self._axes)
        self._figure.set_layout_engine("none" if tops == self._laid_out_for else "constrained")
        self._laid_out_for = tops

    def _take_in_new_steps(self) -> None:
        """Sums end where a part is unknown: what is not known is not drawn, and the chart says so."""
        history = self._run.history
        tokens, cost = self._sums
        for step in history[len(self._steps) - 1 :]:
            used, spent = step.all_tokens, step.all_cost_usd
            if len(tokens) == len(self._steps) and used is not None:
                tokens.append(tokens[-1] + used)
            if len(cost) == len(self._steps) and spent is not None:
                cost.append(cost[-1] + float(spent))
            self._steps.append(step.index)
        self._seen = len(self._steps) - 1

    def _unknown(self) -> tuple[str, str]:
        """For tokens and cost from which step on the sum is not known, and why; nothing where it is."""
        told = []
        for name, sums in zip(("tokens", "cost"), self._sums, strict=True):
            if len(sums) == len(self._steps):
                told.append("")
                continue
            step = self._run.history[len(sums) - 1]
            own, model = (step.usage.total_tokens if name == "tokens" else step.cost.usd) is None, self._run.agent.model
            who = shorten(f"{model.name}:{model.model}", 40) if own else "a sub-agent"
            usage = step.usage.total_tokens if own else step.child_tokens
            why = f"{who} reported no usage" if usage is None else f"no price for {who}"
            if own and step.finish_reason is None:
                why = "its call did not come back"
            told.append(f"{name} unknown{f' from step {len(sums)} on' * (len(sums) > 1)}: {why}")
        return told[0], told[1]

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
        """What is to be seen, in words, as it was drawn last."""
        tokens, cost = self._sums
        steps = max(0, self._seen)
        said = f"Tokens and cost over {steps} step{'s' * (steps != 1)}: {tokens[-1]:.0f} tokens, {cost[-1]:.6g} US dollars known."
        said += "".join(f" {one[0].upper()}{one[1:]}." for one in self._unknown() if one)
        if mark is not None:
            said += f" Step {mark} is marked: {_at(tokens, mark, '.0f')} tokens, {_at(cost, mark, '.6g')} US dollars so far."
        return said

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        width, height = self._figure.get_size_inches() * self._figure.dpi
        return round(width), round(height)

    def as_html(self, mark: int | None = None) -> str:
        """The picture as an image with a text for those who do not see it.

        `data-axes` says where each axes lies in it, as shares of its width and height from the left and the top, and which steps it
        spans: by it a click becomes a step.
        """
        source = f"data:image/png;base64,{base64.b64encode(self.draw(mark)).decode()}"
        steps, said = max(0, self._seen), self.alt(mark)
        clickable = f' data-axes="{html.escape(json.dumps(self._axes_data(steps)), quote=True)}"' if steps else ""
        return (
            f'<img class="agentlab-chart" src="{source}" alt="{html.escape(said, quote=True)}"{clickable} '
            'style="width:100%; max-width:620px">'
        )

    def _axes_data(self, steps: int) -> list[dict[str, float]]:
        end = max(2, steps)
        return [
            {"left": round(left, 4), "right": round(right, 4), "top": round(top, 4), "bottom": round(bottom, 4),
             "from": 0, "to": end, "first": 1, "last": steps}
            for left, right, top, bottom in self._places
        ]  # fmt: skip


def _at(sums: list[float], step: int, form: str) -> str:
    return format(sums[step], form) if step < len(sums) else "unknown"


def _least(limits: list[int | Decimal | None]) -> float | None:
    numbers = [float(limit) for limit in limits if limit is not None]
    return min(numbers) if numbers else None


class Chart:
    """The picture, brought up to date as steps arrive."""

    def __init__(self, scene: PanelState) -> None:
        self._scene = scene
        self.curve = Curve(scene.run)
        self.view = Html()

    def show(self) -> bool:
        """Draw what is new."""
        self.view.value = self.curve.as_html(self._scene.chosen)
        return False


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
    axes = _tree.draw(data, marked=shown.id, by_run=len(data) <= OWN_LOOKS)
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


SHARE = 0.1
"""So much of the time may go into drawing while the run goes on: it needs the same processor."""

PIXELS = 1.5
"""Pixels of the picture per pixel of the page."""


def timeline_picture(run: Run, chosen: int | None = None, pixels: float = PIXELS) -> Picture:
    """The newest steps of the run, or those around the chosen one, which is marked."""
    part = timeline_part(run, chosen)
    marked = chosen if part.has(chosen) else None
    ended_here = part.whole or part.last == len(run.history)
    goes_on = ended_here and run.state is not RunState.ENDED
    axes = cast(PlotAxes, draw_timeline(timeline_data(part.frame), begin_s=part.begin_s, marked=marked, goes_on=goes_on))
    figure = cast(PlotFigure, axes.figure)
    width, height = (round(inches * figure.get_dpi()) for inches in figure.get_size_inches())
    about = _about(part, run, chosen)
    return Picture(figure.png(pixels), axes.alt, width, height, about)


def _about(part: TimelinePart, run: Run, chosen: int | None) -> str:
    told = []
    if not part.whole and part.last:
        steps = f"Steps {part.first:,} to {part.last:,}" if part.last > part.first else f"Step {part.last:,}"
        told.append(f"{steps} of {max(part.last, len(run.history)):,}: this is as much as can be told apart.")
    if part.has(chosen):
        told.append(f"Step {chosen:,} is the one you chose: it has a dashed frame.")
    elif chosen is not None:
        told.append(f"Step {chosen:,} is not here: it was taken before the branch, in the run that this one comes from.")
    return " ".join(told)


class TimelineView:
    """The timeline of the run, with the chosen step marked."""

    title = "Timeline"

    def __init__(self, scene: PanelState) -> None:
        self._scene = scene
        self._shown: tuple[object, ...] = ()
        self._not_before = 0.0
        self.picture = Html()
        self.view = widgets.VBox([self.picture])

    def show(self) -> bool:
        """Draw what is new; while the run goes on, not so often that it would slow it down."""
        run, chosen = self._scene.run, self._scene.chosen
        now = (len(run.events), chosen, run.state is RunState.ENDED)
        asked = self._shown and self._shown[1:] != now[1:]
        if now == self._shown or (run.state is RunState.RUNNING and not asked and time.monotonic() < self._not_before):
            return False
        began = time.monotonic()
        self._shown = now
        self.picture.value = timeline_picture(run, chosen).as_html()
        ended = time.monotonic()
        self._not_before = ended + (ended - began) / SHARE
        return False
