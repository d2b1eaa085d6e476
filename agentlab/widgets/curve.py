"""The picture in the panel: tokens and cost so far, with the limits that hold. One figure is kept and updated: a new one takes three
times as long."""

from __future__ import annotations

import base64
import html
import io
import threading
from decimal import Decimal

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agentlab.plots._figure import COLOURS, TEXT
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
        self._png = b""
        self._steps: list[int] = [0]
        self._sums: tuple[list[float], list[float]] = ([0.0], [0.0])
        self._made = False

    def _make(self) -> None:
        self._made = True
        self._figure = Figure(figsize=(5.6, 2.2), dpi=110, layout="constrained")
        FigureCanvasAgg(self._figure)
        self._figure.patch.set_alpha(0.0)
        self._axes = self._figure.subplots(1, 2)
        self._lines = []
        self._limit_lines = []
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

    def draw(self) -> bytes:
        """The picture as PNG, drawn anew only where there is something new."""
        with self._lock:
            limits = self._limits_now()
            if self._png and self._seen == len(self._run.history) and limits == self._limits:
                return self._png
            if not self._made:
                self._make()
            self._take_in_new_steps()
            self._limits = limits
            for axis, line, limit_line, sums, limit, title in zip(
                self._axes, self._lines, self._limit_lines, self._sums, limits, TITLES, strict=True
            ):
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
            out = io.BytesIO()
            with mpl.rc_context({"savefig.facecolor": "none"}):
                self._figure.savefig(out, format="png", metadata={"Software": None})
            self._png = out.getvalue()
            return self._png

    def _take_in_new_steps(self) -> None:
        """Sums end where a part is unknown: what is not known is not drawn."""
        history = self._run.history
        tokens, cost = self._sums
        for step in history[len(self._steps) - 1 :]:
            if len(tokens) == len(self._steps) and step.usage.total_tokens is not None:
                tokens.append(tokens[-1] + step.usage.total_tokens)
            if len(cost) == len(self._steps) and step.cost.usd is not None:
                cost.append(cost[-1] + float(step.cost.usd))
            self._steps.append(step.index)
        self._seen = len(self._steps) - 1

    def _limits_now(self) -> tuple[float | None, float | None]:
        settings = self._run.limits.snapshot()
        tokens: list[int | Decimal | None] = [settings.budget.max_tokens]
        cost: list[int | Decimal | None] = [settings.budget.max_cost]
        for leaf in settings.stop.leaves() if settings.stop is not None else ():
            if isinstance(leaf, MaxTokensUsed):
                tokens.append(leaf.tokens)
            elif isinstance(leaf, MaxCost):
                cost.append(leaf.usd)
        return _least(tokens), _least(cost)

    def as_base64(self) -> str:
        """The picture for a mime bundle."""
        return base64.b64encode(self.draw()).decode()

    def as_html(self) -> str:
        """The picture as an image with a text for those who do not see it."""
        tokens, cost = self._sums
        said = f"Tokens and cost over {max(0, self._seen)} steps: {tokens[-1]:.0f} tokens, {cost[-1]:.6g} US dollars known."
        source = f"data:image/png;base64,{self.as_base64()}"
        return f'<img src="{source}" alt="{html.escape(said, quote=True)}" style="width:100%; max-width:620px">'


def _least(limits: list[int | Decimal | None]) -> float | None:
    numbers = [float(limit) for limit in limits if limit is not None]
    return min(numbers) if numbers else None
