"""What other limits would have cost, against what they would have reached: configurations as points, with the efficient frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from agentlab.plots import _figure as look
from agentlab.plots._curves import Look, looks_of
from agentlab.plots._legend import inches, plain
from agentlab.plots._what_if_data import MOST_UNKNOWN, WHOLE, what_if_data

LABELS = {
    "cost_mean": "cost a run (mean, US dollars)",
    "tokens_mean": "tokens a run (mean)",
    "step_mean": "steps a run (mean)",
    "calls_mean": "model calls a run (mean)",
    "time_mean": "seconds a run (mean)",
    "success_rate": "reached the goal",
}
MOST_NAMED = 10
"""So many points have their names beside them."""
MOST_GROUPS = 40
"""So many groups are named in the legend."""
WIDTH = 44
"""Characters of a line of the legend."""
MOST_INTERVALS = 40
"""With more points the intervals of those on the frontier only are drawn."""


def what_if(
    frame: pd.DataFrame,
    x: str = "cost_mean",
    y: str = "success_rate",
    ax: Axes | None = None,
    *,
    by: str | Sequence[str] | None = None,
    most_unknown: float = MOST_UNKNOWN,
) -> Axes:
    """Each configuration of a backtest as a point, with its intervals, and the frontier: the most y for as little x.

    `frame` is what `lab.backtest(…)` gives, a row a configuration; `x` and `y` are of `cost_mean`, `tokens_mean`, `step_mean`,
    `calls_mean`, `time_mean`, `success_rate`. A configuration of which more than `most_unknown` of the runs is unknown is not drawn:
    its means are those of other runs, mostly the short ones. The legend says how many there are. Returns the axes; see
    `what_if_data` for what they show. Errors: ConfigurationError.

    Example:
        >>> tried = lab.backtest([result, *others], lab.HasToolCall("finalize") | lab.StepCountIs([2, 4, 8]))
        >>> lab.plots.what_if(tried).alt
        'Reached the goal against cost a run (mean, US dollars), 3 configurations. on the frontier StepCountIs 2...
    """
    return draw_what_if(what_if_data(frame, x, y, by=by, most_unknown=most_unknown), x, y, ax, most_unknown=most_unknown)


def draw_what_if(
    data: pd.DataFrame, x: str, y: str, ax: Axes | None = None, *, most_unknown: float = MOST_UNKNOWN, alone: bool = True
) -> Axes:
    """Draw what `what_if_data` gave; where it is not `alone` in the picture, without intervals and legend."""
    own, ax = ax is None, look.axes_for(ax, "what_if", 8.2, 3.6)
    look.style(ax)
    ax.set_xlabel(LABELS[x])
    ax.set_ylabel(LABELS[y])
    for axis, name in ((ax.xaxis, x), (ax.yaxis, y)):
        _scale(axis, name)
    unsure = data["unknown"] > most_unknown
    shown = data[data["x"].notna() & data["y"].notna() & ~unsure]
    if shown.empty:
        ax.set_xticks([])
        ax.set_yticks([])
        what = "no configurations yet"
        if len(data):
            much = f"more than {most_unknown:.0%} of the runs unknown" if unsure.all() else f"{_word(x)} or {_word(y)} unknown"
            what = f"{much} in all configurations"
        look.note(ax, what)
        look.set_alt(ax, f"{_sentence(LABELS[y])} against {LABELS[x]}: {what}.")
        return ax
    ax.grid(visible=True, color=look.TEXT, alpha=0.2, linewidth=0.6)
    groups = list(dict.fromkeys(data["group"]))
    looks = looks_of((str(name), "") for name in groups)
    rows: list[tuple[Line2D, str]] = []
    told = []
    named = _named(shown) if len(groups) == 1 and alone else []
    for name in groups:
        group, its = shown[shown["group"] == name], looks[str(name), ""]
        told.append(_draw_group(ax, group, its, str(name), (x, y), named=named, count=len(shown), intervals=alone))
        if name != WHOLE:
            rows.append((_handle(its.colour, its.marker), look.shorten(str(name))))
    if own and len(rows) > MOST_GROUPS:
        rows[MOST_GROUPS:] = [(Line2D([], [], linestyle="none"), f"and {len(rows) - MOST_GROUPS} more")]
    _bounds(ax, shown, x, y)
    its = looks[str(groups[0]), ""]
    colour = its.colour if len(groups) == 1 else look.TEXT
    if any(shown["efficient"]):
        rows.append((Line2D([], [], color=colour, linewidth=1.6), "frontier: the most\nfor as little"))
    if unsure.any():
        rows.append(
            (Line2D([], [], linestyle="none"), f"{unsure.sum()} not drawn: more than\n{most_unknown:.0%} of the runs unknown")
        )
    if left := len(data) - len(shown) - int(unsure.sum()):
        rows.append((Line2D([], [], linestyle="none"), f"{left} not drawn:\n{_word(x)} or {_word(y)} unknown"))
    rows += [_row_of(place, row) for place, row in enumerate(named, start=1)]
    if own:
        look.grow(ax, inches(rows))
    if alone:
        plain(ax, rows)
    left_out = f" Not drawn, since more than {most_unknown:.0%} of the runs is unknown: {unsure.sum()}." if unsure.any() else ""
    look.set_alt(ax, f"{_sentence(LABELS[y])} against {LABELS[x]}, {_counted(len(shown))}. {' '.join(told)}{left_out}")
    return ax


def draw_ring(ax: Axes, points: Sequence[tuple[float, float]], told: str) -> None:
    """A ring around each of these points, in the legend as what is suggested, and in the words of the picture."""
    ring: dict[str, Any] = {"linestyle": "none", "marker": "o", "fillstyle": "none", "color": look.TEXT}
    ax.plot(*zip(*points, strict=True), markersize=16, clip_on=False, gid=look.gid("ring", "suggested"), **ring)
    legend = ax.get_legend()
    if legend is not None:
        lines = zip(legend.legend_handles, legend.get_texts(), strict=True)
        rows = [(handle, text.get_text()) for handle, text in lines if isinstance(handle, Line2D)]
        plain(ax, [(Line2D([], [], markersize=9, **ring), "suggested"), *rows])
    if isinstance(ax, look.PlotAxes):
        look.set_alt(ax, f"{ax.alt} Suggested, with a ring around it: {told}.")


def _draw_group(
    ax: Axes,
    group: pd.DataFrame,
    its: Look,
    name: str,
    axes: tuple[str, str],
    *,
    named: list[dict[Any, Any]],
    count: int,
    intervals: bool,
) -> str:
    """The points of a group with their frontier; what they are in words."""
    rows = group.to_dict("records")
    frontier = sorted((row for row in rows if row["efficient"]), key=lambda row: float(row["x"]))
    for row in (rows if count <= MOST_INTERVALS else frontier) if intervals else ():
        _intervals(ax, row, its)
    many = count > MOST_INTERVALS
    ax.plot(
        group["x"].astype(float).to_numpy(), group["y"].astype(float).to_numpy(), linestyle="none", marker=its.marker,
        markersize=3.5 if many else 6.5, color=its.colour, alpha=0.45 if many else 1.0, zorder=2, clip_on=False,
        gid=look.gid("points", name),
    )  # fmt: skip
    ax.plot(
        [float(row["x"]) for row in frontier], [float(row["y"]) for row in frontier], color=its.colour, linewidth=1.6,
        drawstyle="steps-post", zorder=2.5, gid=look.gid("frontier", name),
    )  # fmt: skip
    for at, places in _together(ax, named).items():
        ax.annotate(
            ", ".join(places), at, xytext=(-4, 3), textcoords="offset points", color=look.TEXT,
            fontsize=look.SMALL_POINTS, annotation_clip=False, ha="right", va="bottom",
        )  # fmt: skip
    best = [
        f"{look.spoken(str(row['label']), 200)}: {number(float(row['y']), axes[1])} at {number(float(row['x']), axes[0])}"
        for row in frontier
    ]
    shares = [float(row["unknown"]) for row in rows]
    unknown = f"unknown: {min(shares, default=0):.0%} to {max(shares, default=0):.0%} of the runs"
    on_it = f"on the frontier {'; '.join(best[:MOST_NAMED])}" if best else "none is on a frontier"
    return f"{look.spoken(name) + ': ' if name else ''}{on_it}; {unknown}."


def _intervals(ax: Axes, row: dict[Any, Any], its: Look) -> None:
    at = float(row["x"]), float(row["y"])
    for axis, place in (("x", 0), ("y", 1)):
        low, high = row[f"{axis}_low"], row[f"{axis}_high"]
        if pd.isna(low) or pd.isna(high):
            continue
        ends = ([float(low), float(high)], [at[1]] * 2) if place == 0 else ([at[0]] * 2, [float(low), float(high)])
        ax.plot(
            *ends,
            color=its.colour,
            linewidth=1.0,
            alpha=0.5,
            zorder=1.5,
            gid=look.gid("interval", str(row["label"])),
            clip_on=False,
        )


def _named(shown: pd.DataFrame) -> list[dict[Any, Any]]:
    """The points that have a number in the picture and a name in the legend: all where they are few, else those on the frontier."""
    rows = shown.sort_values("x", kind="stable").to_dict("records") if len(shown) <= MOST_INTERVALS else []
    return (rows if len(rows) <= MOST_NAMED else [row for row in rows if row["efficient"]])[:MOST_NAMED]


def _together(ax: Axes, named: list[dict[Any, Any]]) -> dict[tuple[float, float], list[str]]:
    """The numbers of the points, those that would stand on each other at one place."""
    high = {name: max((float(row[name]) for row in named), default=0.0) or 1.0 for name in ("x", "y")}
    found: dict[tuple[int, int], tuple[tuple[float, float], list[str]]] = {}
    for place, row in enumerate(named, start=1):
        at = float(row["x"]), float(row["y"])
        cell = round(at[0] / high["x"] * 60), round(at[1] / high["y"] * 25)
        found.setdefault(cell, (at, []))[1].append(str(place))
    return dict(found.values())


def _row_of(place: int, row: dict[Any, Any]) -> tuple[Line2D, str]:
    """A line for each few of the parts that a label has, since its values are what tells it from the others."""
    lines: list[str] = []
    for part in str(row["label"]).split(", "):
        if lines and len(lines[-1]) + len(part) + 2 <= WIDTH:
            lines[-1] = f"{lines[-1]}, {part}"
        else:
            lines.append(part)
    if float(row["unknown"]) > 0:
        lines.append(f"{float(row['unknown']):.0%} of the runs unknown")
    return Line2D([], [], linestyle="none"), f"{place}  " + "\n    ".join(look.shorten(line, WIDTH) for line in lines)


def _bounds(ax: Axes, shown: pd.DataFrame, x: str, y: str) -> None:
    for name, prefix, set_bounds in ((x, "x", ax.set_xlim), (y, "y", ax.set_ylim)):
        if name == "success_rate":
            set_bounds(-0.02, 1.02)
        else:
            ends = [float(value) for column in (prefix, f"{prefix}_high") for value in shown[column].dropna()]
            set_bounds(0, (max(ends) or 1.0) * 1.06)


def _handle(colour: str, marker: str) -> Line2D:
    return Line2D([], [], color=colour, marker=marker, markersize=6, linestyle="none")


def _scale(axis: Any, name: str) -> None:
    if name == "success_rate":
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        return
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(look.Dollars() if name == "cost_mean" else FuncFormatter(lambda value, _: f"{value:,g}"))


def number(value: float, name: str) -> str:
    """A figure in words."""
    if math.isnan(value):
        return "unknown"
    if name == "success_rate":
        return f"{value:.0%}"
    if name == "cost_mean":
        return look.dollars(value)
    words = look.whole(value) if value >= 100 else f"{value:.3g}"
    return f"{words} {_word(name)}"


def _word(name: str) -> str:
    words = {"step_mean": "steps", "calls_mean": "calls", "time_mean": "seconds", "success_rate": "success"}
    return words.get(name, name.removesuffix("_mean"))


def _counted(count: int) -> str:
    return f"{count:,} configuration{'s' * (count != 1)}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
