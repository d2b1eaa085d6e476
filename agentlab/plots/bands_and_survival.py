"""Groups of runs over their steps: the median usage with a band over the runs, and the share of runs that are still running."""

from __future__ import annotations

import math
from typing import Any, cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentlab._internal.formatting import counted
from agentlab._internal.names import helps_with_keywords
from agentlab.analysis.groups import (
    STEPS_ADVICE,
    By,
    checked,
    each_once,
    in_order,
    names_of,
    numbers,
    outermost,
    runs_of,
    steps_of,
    typed_frame,
    unit_of,
    units_of,
)
from agentlab.analysis.intervals import checked_level, kaplan_meier
from agentlab.errors import ConfigurationError
from agentlab.plots import figure as look
from agentlab.plots.figure import Row, plain, unknown_row
from agentlab.plots.series import Look, grouping, looks_of
from agentlab.records.frames import Recordings

USED = {"tokens": "cumulative_tokens", "cost": "cumulative_cost_usd"}
MIDDLE_HALF = (0.25, 0.75)
SHOWN_GROUPS = 8
"""Maximum number of groups drawn; the legend counts the rest."""
FILL = 0.2
NAME_WIDTH = 16
THIN = 0.9
LINE_POINTS = 1.8
ROW_POINTS = 12.0
TABLE_POINTS = 36.0
"""Distance of the table of runs below the axis."""

# Data ----------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def bands_data(
    steps: Recordings | pd.DataFrame, what: str = "tokens", by: By | None = None, quantiles: tuple[float, float] = MIDDLE_HALF
) -> pd.DataFrame:
    """Return the cumulative usage of each group's runs after each step: one row per group and step.

    Columns: `group`, `step`, `runs` (the number that took this step; the others had ended), `known` (the number with known usage), and
    over those the `median` and the two quantiles `low` and `high` (NA: none known). `what` is `tokens` or `cost`. A run that occurs
    twice counts once, and the runs of sub-agents count in those that called them.

    Example:
        >>> steps = lab.frame([result, *others])
        >>> lab.plots.bands_data(steps)[["group", "step", "runs", "median"]].head(3)
                       group  step  runs  median
        0  claude-sonnet-4-6     1     1   637.0
        1  claude-sonnet-4-6     2     1  1384.0
        2  claude-sonnet-4-6     3     1  2208.0
    """
    if what not in USED:
        raise ConfigurationError(f"lab.plots.bands(what={what!r}): choose tokens or cost.")
    low, high = _checked_quantiles(quantiles)
    steps = steps_of(steps, "lab.plots.bands")
    columns = grouping(steps, by)
    frame = outermost(checked(steps, ["run_id", "step", USED[what], *columns], "lab.plots.bands", STEPS_ADVICE))
    data = pd.DataFrame(
        {
            "group": names_of(frame, columns),
            "run_id": frame["run_id"],
            "step": numbers(frame, "step"),
            "value": numbers(frame, USED[what]),
        }
    )
    data = each_once(data[data["step"].notna()], ("group", "run_id", "step"), ["value"])
    order = {name: place for place, name in enumerate(in_order(data["group"]))}
    rows: list[tuple[Any, ...]] = []
    for key, values in data.groupby(["group", "step"], sort=True)["value"]:
        group, step = cast(tuple[str, float], key)
        known = values.dropna().astype(float)
        found = [None] * 3 if known.empty else [float(known.quantile(q)) for q in (0.5, low, high)]
        rows.append((group, round(step), len(values), len(known), *found))
    rows.sort(key=lambda row: (order[row[0]], row[1]))
    counts = dict.fromkeys(("step", "runs", "known"), "Int64")
    return typed_frame(rows, {"group": "string", **counts, **dict.fromkeys(("median", "low", "high"), "Float64")})


def _checked_quantiles(quantiles: object) -> tuple[float, float]:
    try:
        low, high = cast(tuple[float, float], quantiles)
        fine = 0 <= low <= 0.5 <= high <= 1
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise ConfigurationError(f"quantiles={quantiles!r}: pass two numbers with the median between them, such as (0.25, 0.75).")
    return low, high


@helps_with_keywords
def survival_data(
    runs: Recordings | pd.DataFrame, by: By | None = None, *, level: float = 0.95, unit: By | None = None
) -> pd.DataFrame:
    """Return the share of each group's runs that are still running after each step, by Kaplan and Meier.

    Columns: `group`, `step` (from 0), `at_risk` (runs that took this step; all of them at 0), `ended` (runs that finished on their own
    with this step), `censored` (runs that were cut off after it by a limit or an error, or have not ended), `alive` (the share), and
    its interval `low`, `high` (that of a share, with the effective number of runs by Greenwood's variance, from independent units as in
    `lab.summary`; NA if none or all have ended, and for fewer than 10 units), `units`, `method` (of the interval). Runs whose number of
    steps is unknown are left out, and those of sub-agents.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.survival_data(runs)[["group", "step", "at_risk", "alive"]].head(3)
                       group  step  at_risk  alive
        0  claude-sonnet-4-6     0        1    1.0
        1  claude-sonnet-4-6     1        1    1.0
        2  claude-sonnet-4-6     2        1    1.0
    """
    level, runs = checked_level(level), runs_of(runs, "lab.plots.survival")
    columns = grouping(runs, by)
    needed = ["terminated", "steps", *columns, *([] if unit is None else unit_of(runs, unit))]
    frame = outermost(each_once(checked(runs, needed, "lab.plots.survival")))
    frame = frame[numbers(frame, "steps").notna()]
    names, steps, ended = names_of(frame, columns), numbers(frame, "steps"), numbers(frame, "terminated").fillna(0) == 1
    rows: list[tuple[Any, ...]] = []
    for group in in_order(names):
        times, ends = steps[names == group].astype(int), ended[names == group]
        curve = kaplan_meier(list(times), list(ends), units_of(frame[names == group], unit), level=level)
        points = dict(zip(map(round, curve.times), zip(curve.alive, curve.low, curve.high, strict=True), strict=True))
        now: tuple[float, float | None, float | None] = (1.0, None, None)
        how = (curve.units, curve.method or None)
        for step in range(int(times.max()) + 1):
            now, here = points.get(step, now), times == step
            rows.append(
                (group, step, int((times >= step).sum()), int((here & ends).sum()), int((here & ~ends).sum()), *now, *how)
            )
    counts = dict.fromkeys(("step", "at_risk", "ended", "censored"), "Int64")
    shares = dict.fromkeys(("alive", "low", "high"), "Float64")
    return typed_frame(rows, {"group": "string", **counts, **shares, "units": "Int64", "method": "string"})


# Drawing -------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def bands(
    steps: Recordings | pd.DataFrame,
    what: str = "tokens",
    by: By | None = None,
    ax: Axes | None = None,
    *,
    quantiles: tuple[float, float] = MIDDLE_HALF,
) -> Axes:
    """Draw cumulative tokens or cost per step: for each group the median of its runs, with a band over the middle half of them.

    `steps` is what `lab.frame` takes or returns; `what` is `tokens` or `cost`. Each step shows only the runs that took it, which may
    differ from those that had ended before. The numbers below the axis count them; if fewer than half of a group's runs remain, its
    line is thin and has no band. Returns the axes; see `bands_data` for their data. Errors: ConfigurationError if columns are missing.

    Example:
        >>> steps = lab.frame([result, *others])
        >>> lab.plots.bands(steps, "tokens").alt
        'Cumulative tokens per step, median and band of 3 groups: claude-sonnet-4-6 3,146 (3,146 to 3,146) a...
    """
    data = bands_data(steps, what, by, quantiles)
    label = "cumulative tokens" if what == "tokens" else "cumulative cost (US dollars)"
    groups = _split(data)
    ax = _axes(ax, "bands", groups, "step", label)
    if not groups:
        return look.nothing(ax, "no steps yet", label)
    shown = dict(list(groups.items())[:SHOWN_GROUPS])
    looks = looks_of(groups)
    names, rows = look.short_names(groups), list[Row]()
    thin, top = False, 0.0
    unknown: dict[str, list[str]] = {what: [], f"{what} partly": []}
    for name, group in shown.items():
        its, known = looks[name], group[group["median"].notna()]
        if len(known) < len(group):
            unknown[what if known.empty else f"{what} partly"].append(names[name])
        style: dict[str, Any] = {"color": its.colour, "marker": its.marker, "markersize": 4.5, "linestyle": its.line_style}
        rows.append((Line2D([], [], linewidth=LINE_POINTS, **style), names[name]))
        if not known.empty:
            thin |= _draw_band(ax, group, its, name)
            top = max([top, float(known["median"].max()), *_floats(known["high"][_many(known)])])
    if thin:
        rows.append((Line2D([], [], color=look.TEXT, linewidth=THIN), "thin: fewer than half\nof the runs remain"))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=what == "tokens"))
    ax.yaxis.set_major_formatter(look.whole_numbers() if what == "tokens" else look.Dollars())
    first, last = int(data["step"].min()), int(data["step"].max())
    ax.set_xlim(first - max(0.5, 0.015 * (last - first)), last + max(0.5, 0.015 * (last - first)))
    ax.set_ylim(0, (top or 1.0) * 1.07)
    if top:
        rows += [row for name, labels in unknown.items() for row in unknown_row(name, labels)]
    else:
        look.note(ax, f"{what} unknown")
        ax.set_yticks([])
    _table(ax, shown, "runs")
    plain(ax, rows, more=len(groups) - SHOWN_GROUPS)
    words = look.whole if what == "tokens" else look.dollars
    parts = []
    for name, group in shown.items():
        end = group[_many(group)].iloc[-1]
        value = "unknown"
        if not pd.isna(end["median"]):
            median, low, high = (words(float(end[column])) for column in ("median", "low", "high"))
            value = f"{median} ({low} to {high})"
        parts.append(f"{look.spoken(name)} {value} after step {end['step']}, by {end['runs']} of {group['runs'].max()} runs")
    number = counted(len(groups), "group")
    look.set_alt(ax, f"{look.sentence(label)} per step, median and band of {number}: {'; '.join(parts)}.")
    return ax


def _many(group: pd.DataFrame) -> pd.Series[bool]:
    """Return True for the steps that at least half of the group's runs took."""
    return cast("pd.Series[bool]", group["runs"] * 2 >= group["runs"].max())


def _draw_band(ax: Axes, group: pd.DataFrame, its: Look, name: str) -> bool:
    """Draw the line and the band of one group. Returns True if a part of the line is thin."""
    many = _many(group)
    steps = [int(step) for step in group["step"]]
    median, low, high = (_floats(group[column]) for column in ("median", "low", "high"))
    thick = len(group) if many.all() else int((~many).to_numpy().argmax())
    line: dict[str, Any] = {"color": its.colour, "linestyle": its.line_style, "zorder": 3}
    ax.fill_between(
        steps[:thick], low[:thick], high[:thick], color=its.colour, alpha=FILL, linewidth=0, zorder=2, gid=look.gid("band", name)
    )
    ax.plot(
        steps[:thick], median[:thick], marker=its.marker, markersize=4.5, linewidth=LINE_POINTS, gid=look.gid("median", name),
        markevery=max(1, len(steps) // 12) if len(steps) > 25 else 1, **line,
    )  # fmt: skip
    if thick < len(group):
        start = max(0, thick - 1)
        ax.plot(steps[start:], median[start:], linewidth=THIN, gid=look.gid("thin", name), **line)
    return thick < len(group)


@helps_with_keywords
def survival(
    runs: Recordings | pd.DataFrame, by: By | None = None, ax: Axes | None = None, *, level: float = 0.95, unit: By | None = None
) -> Axes:
    """Draw the share of each group's runs that are still running after each step, by Kaplan and Meier, with intervals.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`. A run that was cut off by a limit or an error, or that has not
    ended, counts up to its last step, with a mark on the line. This is unbiased for a limit on steps; if a budget cuts off mostly
    the long runs, the curve falls too fast. `unit` is as in `lab.summary`. Returns the axes; see `survival_data` for their data.
    Errors: ConfigurationError if columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.survival(runs).alt
        'Runs still running after each step, of 3 groups: claude-sonnet-4-6 at least half finished by step 4...
    """
    data = survival_data(runs, by, level=level, unit=unit)
    groups = _split(data)
    ax = _axes(ax, "survival", groups, "steps", "still running")
    if not groups:
        return look.nothing(ax, "no runs yet", "still running")
    shown = dict(list(groups.items())[:SHOWN_GROUPS])
    looks = looks_of(groups)
    tick: dict[str, Any] = {"linestyle": "none", "marker": "|", "markersize": 9, "markeredgewidth": 1.6}
    names, rows = look.short_names(groups), list[Row]()
    parts = []
    for name, group in shown.items():
        its, steps = looks[name], [int(step) for step in group["step"]]
        alive, low, high = ([*_floats(group[column]), *_floats(group[column])[-1:]] for column in ("alive", "low", "high"))
        style: dict[str, Any] = {"color": its.colour, "linestyle": its.line_style, "linewidth": LINE_POINTS}
        ends = [*steps, steps[-1] + 0.5]  # the last value is drawn for half a step more
        ax.fill_between(
            ends, low, high, step="post", color=its.colour, alpha=FILL * 0.8, linewidth=0, zorder=2, gid=look.gid("band", name)
        )
        ax.plot(ends, alive, drawstyle="steps-post", zorder=3, gid=look.gid("alive", name), **style)
        cut = group[group["censored"] > 0]
        at = [int(step) for step in cut["step"]]
        ax.plot(at, _floats(cut["alive"]), color=its.colour, zorder=4, gid=look.gid("censored", name), **tick)
        rows.append((Line2D([], [], **style), names[name]))
        gone = group[group["alive"] <= 0.5]
        half = f"at least half finished by step {gone['step'].iloc[0]}" if len(gone) else "fewer than half finished"
        counts = f"{group['ended'].sum()} of {group['at_risk'].iloc[0]} finished, {group['censored'].sum()} cut off or not ended"
        if group["units"].iloc[0] < group["at_risk"].iloc[0]:
            counts += f", {group['units'].iloc[0]} independent"
        parts.append(f"{look.spoken(name)} {half} (estimated), {counts}")
    if (data["censored"] > 0).any():
        rows.append((Line2D([], [], color=look.TEXT, **tick), "cut off or\nnot ended"))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylim(0, 1.03)
    ax.set_xlim(0, int(data["step"].max()) + 0.5)
    _table(ax, shown, "at_risk")
    plain(ax, rows, more=len(groups) - SHOWN_GROUPS)
    methods = "; ".join(data["method"].dropna().unique())
    intervals = f" Intervals: {methods}." if methods else ""
    look.set_alt(ax, f"Runs still running after each step, of {counted(len(groups), 'group')}: {'; '.join(parts)}.{intervals}")
    return ax


def _axes(ax: Axes | None, function: str, groups: dict[str, Any], x: str, y: str) -> Axes:
    ax = look.axes_for(ax, function, 6.4, 3.4 + 0.17 * min(len(groups), SHOWN_GROUPS))
    ax.set_ylabel(y)
    look.style(ax)
    look.step_axis(ax, x)
    look.grid(ax, "y")
    return ax


def _split(data: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(name): group for name, group in data.groupby("group", sort=False)}


def _floats(values: pd.Series[float]) -> list[float]:
    return [float(value) for value in values.to_numpy(dtype=float, na_value=math.nan)]


def _table(ax: Axes, groups: dict[str, pd.DataFrame], column: str) -> None:
    """Write below each tick of the axis how many runs of each group took that step."""
    low, high = ax.get_xlim()
    ticks = [round(tick) for tick in ax.get_xticks() if low <= tick <= high]
    ax.set_xticks(ticks)

    def write(text: str, x: float, row: float, **more: Any) -> None:
        where: Any = ("axes fraction" if more else "data", "axes fraction")
        ax.annotate(
            text, (x, 0), (more.pop("right", 0), -TABLE_POINTS - ROW_POINTS * row), xycoords=where, textcoords="offset points",
            color=look.TEXT, fontsize=7.5, va="center", annotation_clip=False, parse_math=False, **({"ha": "center"} | more),
        )  # fmt: skip

    write("runs that took the step", 0, 0, ha="left", gid="table")
    names = look.short_names(groups, NAME_WIDTH)
    for place, (name, group) in enumerate(groups.items(), start=1):
        write(names[name], 0, place, ha="right", right=-14, gid="table")
        counts = dict(zip(group["step"], group[column], strict=True))
        for tick in ticks:
            write(str(counts.get(tick, 0)), tick, place)
