"""Groups of runs over their steps: what they had used, with a band over the repeats, and how many had not ended yet."""

from __future__ import annotations

import math
from typing import Any, cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from agentlab.comparing.groups import By
from agentlab.plots import _figure as look
from agentlab.plots._curves import Look, looks_of
from agentlab.plots._groups_data import MIDDLE_HALF, bands_data, survival_data
from agentlab.plots._legend import Row, plain
from agentlab.recorder import Recordings

SHOWN_GROUPS = 8
"""So many groups are drawn; how many more there are is said in the legend."""
FILL = 0.2
NAME_WIDTH = 16
THIN = 0.9
LINE_POINTS = 1.8
ROW_POINTS = 12.0
TABLE_POINTS = 36.0
"""How far below the axis the table of runs begins."""


def bands(
    steps: Recordings | pd.DataFrame,
    what: str = "tokens",
    by: By = "provider",
    ax: Axes | None = None,
    *,
    quantiles: tuple[float, float] = MIDDLE_HALF,
) -> Axes:
    """Cumulative tokens or cost per step, for each group the median of its runs with a band over the middle half of them.

    `steps` is what `lab.frame` takes, or the frame it gives; `what` is `tokens` or `cost`. Each step shows the runs that took it: the
    others had ended, and those left may be of another kind. So the numbers below the axis say how many they are, and where fewer than
    half of a group's runs are left its line is thin and has no band. Returns the axes; see `bands_data` for what they show. Errors:
    ConfigurationError where columns are missing.

    Example:
        >>> steps = lab.frame([result, *others])
        >>> lab.plots.bands(steps, "tokens").alt
        'Cumulative tokens per step, median and band of 3 groups: anthropic 3,146 (3,146 to 3,146) after step 4,...
    """
    data = bands_data(steps, what, by, quantiles)
    unit = "cumulative tokens" if what == "tokens" else "cumulative cost (US dollars)"
    groups = _split(data)
    ax = look.axes_for(ax, "bands", 6.4, 3.4 + 0.17 * min(len(groups), SHOWN_GROUPS))
    if not groups:
        return _nothing(ax, "step", unit, "no steps yet")
    looks = looks_of((name, "") for name in groups)
    rows: list[Row] = []
    thin, top = False, 0.0
    for name, group in list(groups.items())[:SHOWN_GROUPS]:
        its = looks[name, ""]
        known = group[group["median"].notna()]
        rows.append(
            _row(its, name, "" if len(known) == len(group) else f"{what} unknown" if known.empty else f"{what} partly unknown")
        )
        if known.empty:
            continue
        thin |= _draw_band(ax, group, its, name)
        top = max(
            top, float(known["median"].max()), float(known["high"].where(_many(known)).max()) if _many(known).any() else 0.0
        )
    if thin:
        rows.append((Line2D([], [], color=look.TEXT, linewidth=THIN), "thin: fewer than half\nof its runs are left"))
    _style(ax, "step", unit)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=what == "tokens"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: look.whole(value)) if what == "tokens" else look.Dollars())
    first, last = int(data["step"].min()), int(data["step"].max())
    ax.set_xlim(first - max(0.5, 0.015 * (last - first)), last + max(0.5, 0.015 * (last - first)))
    ax.set_ylim(0, (top or 1.0) * 1.07)
    if not top:
        look.note(ax, f"{what} unknown")
        ax.set_yticks([])
    _table(ax, "runs that took the step", {name: dict(zip(g["step"], g["runs"], strict=True)) for name, g in groups.items()})
    plain(ax, rows, more=len(groups) - SHOWN_GROUPS)
    words = look.whole if what == "tokens" else look.dollars
    told = []
    for name, group in list(groups.items())[:SHOWN_GROUPS]:
        end = group[_many(group)].iloc[-1]
        median, low, high = (float(end[column]) if not pd.isna(end[column]) else math.nan for column in ("median", "low", "high"))
        value = "unknown" if math.isnan(median) else f"{words(median)} ({words(low)} to {words(high)})"
        told.append(f"{look.spoken(name)} {value} after step {end['step']}, by {end['runs']} of {group['runs'].max()} runs")
    look.set_alt(ax, f"{unit[:1].upper()}{unit[1:]} per step, median and band of {_counted(groups)}: {'; '.join(told)}.")
    return ax


def _many(group: pd.DataFrame) -> pd.Series[bool]:
    """The steps that at least half of the group's runs took."""
    return cast("pd.Series[bool]", group["runs"] * 2 >= group["runs"].max())


def _draw_band(ax: Axes, group: pd.DataFrame, its: Look, name: str) -> bool:
    """Draw the line and the band of one group; whether a part of it is thin."""
    many = _many(group)
    steps = [int(step) for step in group["step"]]
    median, low, high = (_floats(group[column]) for column in ("median", "low", "high"))
    first_thin = len(group) if many.all() else int((~many).to_numpy().argmax())
    ax.fill_between(
        steps[:first_thin],
        low[:first_thin],
        high[:first_thin],
        color=its.colour,
        alpha=FILL,
        linewidth=0,
        zorder=2,
        gid=look.gid("band", name),
    )
    every = max(1, len(steps) // 12) if len(steps) > 25 else 1
    ax.plot(
        steps[:first_thin], median[:first_thin], color=its.colour, linestyle=its.line_style, marker=its.marker, markersize=4.5,
        markevery=every, linewidth=LINE_POINTS, zorder=3, gid=look.gid("median", name),
    )  # fmt: skip
    if first_thin < len(group):
        start = max(0, first_thin - 1)
        ax.plot(
            steps[start:],
            median[start:],
            color=its.colour,
            linestyle=its.line_style,
            linewidth=THIN,
            zorder=3,
            gid=look.gid("thin", name),
        )
    return first_thin < len(group)


def survival(
    runs: Recordings | pd.DataFrame, by: By = "provider", ax: Axes | None = None, *, level: float = 0.95, unit: By | None = None
) -> Axes:
    """How many of each group's runs have not come to an end of their own after so many steps, by Kaplan and Meier, with intervals.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`. A run that was cut off, by a limit or an error, or that has not
    ended, counts up to there and no further; a mark on the line shows where. That is right for a limit on steps; where a budget cuts
    off just those runs that go on for long, the curve falls too fast. `unit` is as in `lab.summary`. Returns the axes; see
    `survival_data` for what they show. Errors: ConfigurationError where columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.survival(runs).alt
        'Runs that came to an end of their own over the steps, of 3 groups: anthropic at least half by step 4 (es...
    """
    data = survival_data(runs, by, level=level, unit=unit)
    groups = _split(data)
    ax = look.axes_for(ax, "survival", 6.4, 3.4 + 0.17 * min(len(groups), SHOWN_GROUPS))
    label = "not yet ended of its own"
    if not groups:
        return _nothing(ax, "steps", label, "no runs yet")
    looks = looks_of((name, "") for name in groups)
    rows: list[Row] = []
    told = []
    for name, group in list(groups.items())[:SHOWN_GROUPS]:
        its = looks[name, ""]
        steps, alive = [int(step) for step in group["step"]], _floats(group["alive"])
        ax.fill_between(
            [*steps, steps[-1] + 0.5], _held(_floats(group["low"])), _held(_floats(group["high"])), step="post",
            color=its.colour, alpha=FILL * 0.8, linewidth=0, zorder=2, gid=look.gid("band", name),
        )  # fmt: skip
        ax.plot(
            [*steps, steps[-1] + 0.5], _held(alive), drawstyle="steps-post", color=its.colour, linestyle=its.line_style,
            linewidth=LINE_POINTS, zorder=3, gid=look.gid("alive", name),
        )  # fmt: skip
        cut = group[group["censored"] > 0]
        ax.plot(
            [int(step) for step in cut["step"]], _floats(cut["alive"]), linestyle="none", marker="|", markersize=9, markeredgewidth=1.6,
            color=its.colour, zorder=4, gid=look.gid("censored", name),
        )  # fmt: skip
        rows.append((Line2D([], [], color=its.colour, linestyle=its.line_style, linewidth=LINE_POINTS), look.shorten(name)))
        gone = group[group["alive"] <= 0.5]
        half = f"at least half by step {gone['step'].iloc[0]}" if len(gone) else "fewer than half"
        ended, cut_off = int(group["ended"].sum()), int(group["censored"].sum())
        counts = f"{ended} of {group['at_risk'].iloc[0]} ended, {cut_off} cut off or not ended"
        told.append(f"{look.spoken(name)} {half} (estimated), {counts}")
    if (data["censored"] > 0).any():
        mark = Line2D([], [], color=look.TEXT, linestyle="none", marker="|", markersize=9, markeredgewidth=1.6)
        rows.append((mark, "cut off, or\nnot ended"))
    _style(ax, "steps", label)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylim(0, 1.03)
    ax.set_xlim(0, int(data["step"].max()) + 0.5)
    _table(ax, "runs that took the step", {name: dict(zip(g["step"], g["at_risk"], strict=True)) for name, g in groups.items()})
    plain(ax, rows, more=len(groups) - SHOWN_GROUPS)
    look.set_alt(ax, f"Runs that came to an end of their own over the steps, of {_counted(groups)}: {'; '.join(told)}.")
    return ax


# Parts -----------------------------------------------------------------------------------------------------------------------------


def _split(data: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(name): group for name, group in data.groupby("group", sort=False)}


def _floats(values: pd.Series[float]) -> list[float]:
    return [float(value) for value in values.to_numpy(dtype=float, na_value=math.nan)]


def _held(values: list[float]) -> list[float]:
    """The values of steps, with the last one held for half a step more."""
    return [*values, values[-1]]


def _row(its: Look, name: str, note: str) -> Row:
    handle = Line2D([], [], color=its.colour, marker=its.marker, markersize=4.5, linestyle=its.line_style, linewidth=LINE_POINTS)
    return handle, look.shorten(name) + (f"\n{note}" if note else "")


def _counted(groups: dict[str, Any]) -> str:
    return f"{len(groups)} group{'s' * (len(groups) != 1)}"


def _style(ax: Axes, x: str, y: str) -> None:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    look.style(ax)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.grid(visible=True, axis="y", color=look.TEXT, alpha=0.25, linewidth=0.6)


def _nothing(ax: Axes, x: str, y: str, words: str) -> Axes:
    _style(ax, x, y)
    ax.set_xlim(0.5, 5.5)
    ax.set_ylim(0, 1)
    ax.set_yticks([])
    look.note(ax, words)
    look.set_alt(ax, f"{y[:1].upper()}{y[1:]}: {words}.")
    return ax


def _table(ax: Axes, heading: str, counts: dict[str, dict[Any, Any]]) -> None:
    """Below the axis, at each of its ticks, a number for each group."""
    low, high = ax.get_xlim()
    ticks = [round(tick) for tick in ax.get_xticks() if low <= tick <= high]
    ax.set_xticks(ticks)

    def write(text: str, x: float, row: float, **more: Any) -> None:
        where: Any = ("axes fraction" if more else "data", "axes fraction")
        ax.annotate(
            text, (x, 0), (more.pop("right", 0), -TABLE_POINTS - ROW_POINTS * row), xycoords=where, textcoords="offset points",
            color=look.TEXT, fontsize=7.5, va="center", annotation_clip=False, parse_math=False, **({"ha": "center"} | more),
        )  # fmt: skip

    write(heading, 0, 0, ha="left", gid="table")
    for place, (name, of_group) in enumerate(list(counts.items())[:SHOWN_GROUPS], start=1):
        write(look.shorten(name, NAME_WIDTH), 0, place, ha="right", right=-14, gid="table")
        for tick in ticks:
            write(str(of_group.get(tick, 0)), tick, place)
