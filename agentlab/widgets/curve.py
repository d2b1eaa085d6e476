"""The picture in the panel: tokens and cost so far, with the limits that hold. One figure is kept and updated: a new one takes three
times as long."""

from __future__ import annotations

import base64
import html
import io
import json
import textwrap
import threading
from decimal import Decimal
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agentlab.plots.figure import COLOURS, TEXT, shorten
from agentlab.run import Run
from agentlab.stop import MaxCost, MaxTokensUsed

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
