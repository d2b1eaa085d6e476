"""The picture of an explorer: many limits as points, the frontier, the record, and the chosen limits among them. One figure is kept
while the points are the same: only what was chosen moves."""

from __future__ import annotations

import io
import threading
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from agentlab.plots import figure as look
from agentlab.plots.what_if_frontier import MOST_UNKNOWN, draw_what_if, number, what_if_data
from agentlab.widgets import tried_markup
from agentlab.widgets.picture import Picture
from agentlab.widgets.tried_figures import Tried

WIDTH, HEIGHT = 6.4, 3.7
SCALE = 1.5
Y = "success_rate"


class TradeOff:
    """Draws what the chosen limits cost and reach, among others."""

    def __init__(self, record: Tried) -> None:
        self._record = record
        self._lock = threading.Lock()
        known = [name for name in ("cost_mean", "tokens_mean", "step_mean") if record.row[name]]
        self.x = known[0] if known else "step_mean"
        self._others: pd.DataFrame | None = None
        self._made = False
        self._still: Any = None

    def compare_with(self, others: pd.DataFrame) -> None:
        """Draw these others from now on, as `lab.backtest` gives them."""
        with self._lock:
            self._others, self._made = what_if_data(others, self.x, Y), False

    def draw(self, tried: Tried) -> Picture:
        """The picture with these limits as the chosen ones."""
        with self._lock:
            if not self._made:
                self._make()
            self._place(tried)
            width, height = round(WIDTH * look.DPI), round(HEIGHT * look.DPI)
            return Picture(self._png(), f"{self._said(tried)} {self._axes.alt}", width, height)

    def _make(self) -> None:
        others = what_if_data(self._record.frame.iloc[:0], self.x, Y) if self._others is None else self._others
        figure = look.new_figure(WIDTH, HEIGHT)
        figure.set_dpi(look.DPI * SCALE)
        self._canvas: Any = FigureCanvasAgg(figure)
        self._axes = look.new_axes(figure)
        draw_what_if(others, self.x, Y, self._axes, alone=False)
        at = self._point(self._record)
        nothing = others[others["x"].notna() & others["y"].notna()].empty
        record = self._axes.plot(
            [at[0]] if at else [], [at[1]] if at else [], linestyle="none", marker="D", markersize=9, color=look.GREEN,
            markerfacecolor="none", markeredgewidth=2, zorder=4, clip_on=False, gid="record", label="the record",
        )  # fmt: skip
        self._bars = [
            self._axes.plot([], [], color=look.VERMILLION, linewidth=2, zorder=5, clip_on=False, animated=True, gid="interval")[0]
            for _ in range(2)
        ]
        (self._mark,) = self._axes.plot(
            [], [], linestyle="none", marker="o", markersize=9, color=look.VERMILLION, zorder=6, clip_on=False, gid="chosen",
            label="these limits", animated=True,
        )  # fmt: skip
        if not nothing:
            frontier = self._axes.plot([], [], color=look.BLUE, linewidth=1.6, label="frontier")
            other = self._axes.plot([], [], linestyle="none", marker="o", markersize=4, color=look.BLUE, label="other limits")
            left_out = int((others["unknown"] > MOST_UNKNOWN).sum())
            words = f"{left_out:,} not drawn: over {MOST_UNKNOWN:.0%} unknown"
            unsure = self._axes.plot([], [], linestyle="none", label=words) if left_out else []
            self._axes.legend(
                handles=[self._mark, *record, *frontier, *other, *unsure], loc="lower center", bbox_to_anchor=(0.47, 1.0), ncols=5,
                fontsize=look.SMALL_POINTS, labelcolor=look.TEXT, frameon=False, handletextpad=0.3, columnspacing=1.0,
                handlelength=1.4,
            )  # fmt: skip
        if at:
            self._reach(at[0])
        figure.draw_without_rendering()  # finds the places; from now on they stay
        figure.set_layout_engine("none")
        self._figure, self._still = figure, None
        self._made = True

    def _png(self) -> bytes:
        """The picture: what stays is drawn once, and what was chosen over it."""
        if self._still is None:
            self._canvas.draw()
            self._still = self._canvas.copy_from_bbox(self._figure.bbox)
        self._canvas.restore_region(self._still)
        for artist in (*self._bars, self._mark):
            self._axes.draw_artist(artist)
        out = io.BytesIO()
        picture = Image.fromarray(np.asarray(self._canvas.buffer_rgba()))
        picture.save(out, format="png", compress_level=1)  # the smallest file would take longer than all the rest
        return out.getvalue()

    def _place(self, tried: Tried) -> None:
        at, row = self._point(tried), tried.row
        ends = {name: (row[f"{stem}_low"], row[f"{stem}_high"]) for name, stem in (("x", self._stem), ("y", "success"))}
        for bar, name in zip(self._bars, ("x", "y"), strict=True):
            low, high = ends[name]
            if at is None or low is None or high is None:
                bar.set_data([], [])
            elif name == "x":
                bar.set_data([low, high], [at[1]] * 2)
            else:
                bar.set_data([at[0]] * 2, [low, high])
        self._mark.set_data(*(([at[0]], [at[1]]) if at is not None else ([], [])))
        if at is not None:
            self._reach(max([at[0], *(float(end) for end in ends["x"] if end is not None)]))

    def _reach(self, x: float) -> None:
        """Have the axis go at least so far."""
        if x > self._axes.get_xlim()[1]:
            self._axes.set_xlim(0, x * 1.06)
            self._still = None

    @property
    def _stem(self) -> str:
        return self.x.removesuffix("_mean")

    def _point(self, tried: Tried) -> tuple[float, float] | None:
        """Where it is drawn; None where too much is unknown, since means of other runs cannot be compared."""
        x, y = tried.row[self.x], tried.row[Y]
        unknown = max(tried_markup.unknown_of(tried.row, self._stem), tried.row["success_unknown"])
        return None if x is None or y is None or unknown > MOST_UNKNOWN else (float(x), float(y))

    def _said(self, tried: Tried) -> str:
        told = []
        for name, one in (("These limits", tried), ("The record", self._record)):
            at = self._point(one)
            words = "not drawn" if at is None else f"{number(at[1], Y)} reached the goal at {number(at[0], self.x)} per run"
            told.append(f"{name}: {words}, {one.row['unknown_share']:.0%} unknown.")
        return " ".join(told)
