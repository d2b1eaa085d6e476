"""Configurations of a backtest as points of cost and success, with the Pareto frontier: data and drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from agentlab._internal.formatting import counted
from agentlab._internal.names import helps_with_keywords
from agentlab.analysis.groups import checked, columns_of, names_of
from agentlab.errors import ConfigurationError
from agentlab.limits.fields import unknown_name
from agentlab.plots import figure as look
from agentlab.plots.figure import Row, blank, inches, plain
from agentlab.plots.series import Look, looks_of

FIGURES = {
    "cost_mean": ("cost per run (mean, US dollars)", "cost"),
    "tokens_mean": ("tokens per run (mean)", "tokens"),
    "step_mean": ("steps per run (mean)", "steps"),
    "calls_mean": ("model calls per run (mean)", "calls"),
    "time_mean": ("time per run (mean, seconds)", "seconds"),
    "success_rate": ("reached the goal", "success"),
}
"""The figures of an axis by column: the label, and a short word."""
MOST_UNKNOWN = 0.05
"""A configuration with a larger unknown share is not compared with the others, since its means are over other runs."""
ADVICE = "the result of lab.backtest(…), one row per configuration"
WHOLE = ""
"""The name of the only group."""
MAX_NAMED = 10
"""Maximum number of points that are numbered in the picture and named in the legend."""
MAX_GROUPS = 40
"""Maximum number of groups named in the legend."""
WIDTH = 44
"""Number of characters of a line of the legend."""
MAX_INTERVALS = 40
"""If there are more points, only those on the frontier have intervals."""
_FIRST = "runs"
"""The first column after those that identify the configuration."""

# Data ----------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def what_if_data(
    frame: pd.DataFrame,
    x: str = "cost_mean",
    y: str = "success_rate",
    *,
    by: str | Sequence[str] | None = None,
    most_unknown: float = MOST_UNKNOWN,
) -> pd.DataFrame:
    """Return the points of `lab.plots.what_if`: one row per configuration, or with `by` one row per configuration and group.

    Columns: `group`, `configuration` (its number in the frame; its place if the frame has names), `label` (its values in words), `x`,
    `x_low`, `x_high`, `y`, `y_low`, `y_high`, `unknown` (the larger of the unknown shares of x and y), and `efficient`: True on the
    Pareto frontier, if no other configuration of the group has at least as much y for at most as much x. Only configurations with an
    unknown share of at most `most_unknown` can be on it.
    Errors: ConfigurationError if columns are missing, or if x or y is not a figure.

    Example:
        >>> tried = lab.backtest([result, *others], lab.HasToolCall("finalize") | lab.StepCountIs([2, 4, 8]))
        >>> lab.plots.what_if_data(tried).columns.tolist()
        ['group', 'configuration', 'label', 'x', 'x_low', 'x_high', 'y', 'y_low', 'y_high', 'unknown', 'efficient']
    """
    for name in (x, y):
        if name not in FIGURES:
            raise ConfigurationError(f"lab.plots.what_if(x=…, y=…): {unknown_name('figure', str(name), list(FIGURES))}")
    if isinstance(most_unknown, bool) or not isinstance(most_unknown, int | float) or not 0 <= most_unknown <= 1:
        raise ConfigurationError(f"most_unknown={most_unknown!r}: pass a share from 0 to 1, such as 0.05.")
    groups = [] if by is None else columns_of(by)
    needed = [part for name in (x, y) for part in (name, *_ends_of(name), _unknown_of(name))]
    table = checked(frame, [*groups, *dict.fromkeys(needed)], "lab.plots.what_if", ADVICE)
    data = pd.DataFrame(
        {
            "group": (names_of(table, groups) if groups else pd.Series([WHOLE] * len(table), index=table.index)).astype("string"),
            "configuration": pd.array(_configurations_of(table), dtype="Int64"),
            "label": pd.array(_labels_of(table, groups), dtype="string"),
            **{
                part: table[column].astype("Float64").array
                for axis, name in (("x", x), ("y", y))
                for part, column in zip((axis, f"{axis}_low", f"{axis}_high"), (name, *_ends_of(name)), strict=True)
            },
        }
    )
    unknown = np.fmax(_numbers(table[_unknown_of(x)]), _numbers(table[_unknown_of(y)]))
    data["unknown"] = pd.array(np.where(np.isnan(unknown), 1.0, unknown), dtype="Float64")
    efficient = np.zeros(len(data), bool)
    for _, places in data.groupby("group", sort=False).indices.items():
        able = places[_numbers(data["unknown"])[places] <= most_unknown]
        efficient[able] = on_the_frontier(_numbers(data["x"])[able], _numbers(data["y"])[able])
    data["efficient"] = efficient
    return data


def _ends_of(figure: str) -> tuple[str, str]:
    """Return the columns with the ends of a figure's interval."""
    stem = figure.rpartition("_")[0]
    return f"{stem}_low", f"{stem}_high"


def _unknown_of(figure: str) -> str:
    """Return the column with the share of runs for which a figure is unknown."""
    stem = figure.rpartition("_")[0]
    return "unknown_share" if stem == "step" else f"{stem}_unknown"


def on_the_frontier(x: Any, y: Any) -> Any:
    """Return True for points with more y than all points with the same x or less; of equal points for the first only."""
    found = np.zeros(len(x), bool)
    best = -np.inf
    for place in np.lexsort((-y, x)):
        if not np.isnan(x[place]) and y[place] > best:
            best, found[place] = y[place], True
    return found


def _configurations_of(table: pd.DataFrame) -> Sequence[int]:
    """Return the number of each configuration, or its place if the frame has names."""
    numbers: Any = table.get("configuration")
    return numbers if pd.api.types.is_integer_dtype(numbers) else range(len(table))


def _labels_of(table: pd.DataFrame, groups: Sequence[str]) -> list[str]:
    """Return each configuration in words: its name, and the values on its axes."""
    columns = [str(name) for name in table.columns]
    front = columns[: columns.index(_FIRST)] if _FIRST in columns else []
    axes = [name for name in front if name != "configuration" and name not in groups]
    labels = []
    for place, row in enumerate(table[front].to_dict("records")):
        values = [f"{name} {_value(row[name])}" for name in axes if not pd.isna(row[name])]
        name = row.get("configuration", place)
        unnamed = "no limit" if axes else f"configuration {name}"
        labels.append(", ".join([name, *values] if isinstance(name, str) else values) or unnamed)
    return labels


def _value(value: object) -> str:
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _numbers(values: Any) -> Any:
    return values.astype("Float64").to_numpy(dtype=float, na_value=np.nan)


# Drawing -------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def what_if(
    frame: pd.DataFrame,
    x: str = "cost_mean",
    y: str = "success_rate",
    ax: Axes | None = None,
    *,
    by: str | Sequence[str] | None = None,
    most_unknown: float = MOST_UNKNOWN,
) -> Axes:
    """Draw each configuration of a backtest as a point with its intervals, and the Pareto frontier: the most y for the least x.

    `frame` is the result of `lab.backtest(…)`, one row per configuration; `x` and `y` are two of `cost_mean`, `tokens_mean`,
    `step_mean`, `calls_mean`, `time_mean`, `success_rate`. A configuration with an unknown share above `most_unknown` is not drawn,
    since its means are over other runs, mostly the short ones; the legend counts these configurations. Returns the axes; see
    `what_if_data` for their data. Errors: ConfigurationError, as `what_if_data`.

    Example:
        >>> tried = lab.backtest([result, *others], lab.HasToolCall("finalize") | lab.StepCountIs([2, 4, 8]))
        >>> lab.plots.what_if(tried).alt
        'Reached the goal against cost per run (mean, US dollars), 3 configurations. Pareto frontier: StepCountIs ...
    """
    return draw_what_if(what_if_data(frame, x, y, by=by, most_unknown=most_unknown), x, y, ax, most_unknown=most_unknown)


def what_if_with_suggestion(
    frame: pd.DataFrame, code: str, *, x: str, y: str = "success_rate", most_unknown: float = MOST_UNKNOWN, **options: Any
) -> Axes:
    """Draw `what_if` with a ring around those `chosen` candidates that are drawn; `code` describes them."""
    ax = what_if(frame, x, y, most_unknown=most_unknown, **options)
    unknown = frame[[_unknown_of(x), _unknown_of(y)]].max(axis=1)
    chosen = frame[frame["chosen"] & frame[[x, y]].notna().all(axis=1) & (unknown <= most_unknown)]
    if chosen.empty:
        return ax
    ring: dict[str, Any] = {"linestyle": "none", "marker": "o", "fillstyle": "none", "color": look.TEXT}
    points = chosen[x].astype(float).to_numpy(), chosen[y].astype(float).to_numpy()
    ax.plot(*points, markersize=16, clip_on=False, gid=look.gid("ring", "suggested"), **ring)
    legend = ax.get_legend()
    if legend is not None:
        lines = zip(legend.legend_handles, legend.get_texts(), strict=True)
        rows = [(handle, text.get_text()) for handle, text in lines if isinstance(handle, Line2D)]
        plain(ax, [(Line2D([], [], markersize=9, **ring), "suggested"), *rows])
    if isinstance(ax, look.PlotAxes):
        look.set_alt(ax, f"{ax.alt} Suggested, marked with a ring: {code}.")
    return ax


def draw_what_if(
    data: pd.DataFrame, x: str, y: str, ax: Axes | None = None, *, most_unknown: float = MOST_UNKNOWN, alone: bool = True
) -> Axes:
    """Draw the data of `what_if_data`; if it is not `alone` in the picture, without intervals and legend."""
    own, ax = ax is None, look.axes_for(ax, "what_if", 8.2, 3.6)
    look.style(ax)
    (x_label, x_word), (y_label, y_word) = FIGURES[x], FIGURES[y]
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    for axis, name in ((ax.xaxis, x), (ax.yaxis, y)):
        _scale(axis, name)
    title = f"{look.sentence(y_label)} against {x_label}"
    unsure = data["unknown"] > most_unknown
    shown = data[data["x"].notna() & data["y"].notna() & ~unsure]
    if data.empty:
        return look.nothing(ax, "no configurations yet", title)
    if shown.empty:
        why = f"more than {most_unknown:.0%} of the runs are unknown" if unsure.all() else f"{x_word} or {y_word} is unknown"
        return look.nothing(ax, f"{why} in all configurations", title)
    look.grid(ax)
    groups = [str(name) for name in dict.fromkeys(data["group"])]
    looks, labels = looks_of(groups), look.short_names(groups)
    named = _named(shown) if len(groups) == 1 and alone else []
    count, rows, parts = len(shown), list[Row](), []
    for name in groups:
        group, its = shown[shown["group"] == name].to_dict("records"), looks[name]
        frontier = sorted((row for row in group if row["efficient"]), key=lambda row: float(row["x"]))
        for row in (group if count <= MAX_INTERVALS else frontier) if alone else ():
            _draw_intervals(ax, row, its)
        _draw_group(ax, group, frontier, its, name, few=count <= MAX_INTERVALS)
        parts.append(_group_in_words(group, frontier, name, x, y))
        if name != WHOLE:
            handle = Line2D([], [], color=its.colour, marker=its.marker, markersize=6, linestyle="none")
            rows.append((handle, labels[name]))
    _write_numbers(ax, named)
    if own and len(rows) > MAX_GROUPS:
        rows[MAX_GROUPS:] = [blank(f"and {len(rows) - MAX_GROUPS} more")]
    _bounds(ax, shown, x, y)
    if any(shown["efficient"]):
        colour = looks[groups[0]].colour if len(groups) == 1 else look.TEXT
        rows.append((Line2D([], [], color=colour, linewidth=1.6), "Pareto frontier"))
    if unsure.any():
        rows.append(blank(f"{unsure.sum()} not drawn: more than\n{most_unknown:.0%} of the runs unknown"))
    if left := len(data) - count - int(unsure.sum()):
        rows.append(blank(f"{left} not drawn:\n{x_word} or {y_word} unknown"))
    rows += map(_row_of, named)
    if own:
        look.grow(ax, inches(rows))
    if alone:
        plain(ax, rows)
    left_out = f" Not drawn, since more than {most_unknown:.0%} of the runs are unknown: {unsure.sum()}." if unsure.any() else ""
    look.set_alt(ax, f"{title}, {counted(count, 'configuration')}. {' '.join(parts)}{left_out}")
    return ax


def _draw_group(
    ax: Axes, group: list[dict[Any, Any]], frontier: list[dict[Any, Any]], its: Look, name: str, *, few: bool
) -> None:
    """Draw the points of a group and its frontier."""
    ax.plot(
        *_places(group), linestyle="none", marker=its.marker, markersize=6.5 if few else 3.5, color=its.colour,
        alpha=1.0 if few else 0.45, zorder=2, clip_on=False, gid=look.gid("points", name),
    )  # fmt: skip
    ax.plot(
        *_places(frontier), color=its.colour, linewidth=1.6, drawstyle="steps-post", zorder=2.5, gid=look.gid("frontier", name)
    )


def _places(rows: list[dict[Any, Any]]) -> tuple[list[float], list[float]]:
    return [float(row["x"]) for row in rows], [float(row["y"]) for row in rows]


def _group_in_words(group: list[dict[Any, Any]], frontier: list[dict[Any, Any]], name: str, x: str, y: str) -> str:
    best = [
        f"{look.spoken(str(row['label']), 200)} ({number(float(row['y']), y)} at {number(float(row['x']), x)})"
        for row in frontier
    ]
    shares = [float(row["unknown"]) for row in group]
    unknown = f"{min(shares, default=0):.0%} to {max(shares, default=0):.0%} of the runs unknown"
    of_group = f" of {look.spoken(name)}" if name else ""
    points = f"Pareto frontier{of_group}: {'; '.join(best[:MAX_NAMED])}" if best else f"No Pareto frontier{of_group}"
    return f"{points}; {unknown}."


def _draw_intervals(ax: Axes, row: dict[Any, Any], its: Look) -> None:
    at = float(row["x"]), float(row["y"])
    style: dict[str, Any] = {"color": its.colour, "linewidth": 1.0, "alpha": 0.5, "zorder": 1.5, "clip_on": False}
    for axis, other in (("x", at[1]), ("y", at[0])):
        low, high = row[f"{axis}_low"], row[f"{axis}_high"]
        if not pd.isna(low) and not pd.isna(high):
            ends = [float(low), float(high)], [other] * 2
            ax.plot(*(ends if axis == "x" else ends[::-1]), gid=look.gid("interval", str(row["label"])), **style)


def _named(shown: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the points that are numbered in the picture and named in the legend: all if they are few, else those on the frontier."""
    few = shown if len(shown) <= MAX_NAMED else shown[shown["efficient"].astype(bool)]
    return few.sort_values("x", kind="stable").head(MAX_NAMED).to_dict("records") if len(few) <= MAX_INTERVALS else []


def _write_numbers(ax: Axes, named: list[dict[Any, Any]]) -> None:
    """Write the number of each point beside it; points that are too close share one text."""
    width, height = (max((float(row[name]) for row in named), default=0.0) or 1.0 for name in ("x", "y"))
    found: dict[tuple[int, int], tuple[tuple[float, float], list[str]]] = {}
    for row in named:
        at = float(row["x"]), float(row["y"])
        found.setdefault((round(at[0] / width * 60), round(at[1] / height * 25)), (at, []))[1].append(str(row["configuration"]))
    for at, places in found.values():
        ax.annotate(
            ", ".join(places), at, xytext=(-4, 3), textcoords="offset points", color=look.TEXT,
            fontsize=look.SMALL_POINTS, annotation_clip=False, ha="right", va="bottom",
        )  # fmt: skip


def _row_of(row: dict[Any, Any]) -> Row:
    """Return the legend entry of a point, on as many lines as its label needs."""
    lines: list[str] = []
    for part in str(row["label"]).split(", "):
        if lines and len(lines[-1]) + len(part) + 2 <= WIDTH:
            lines[-1] = f"{lines[-1]}, {part}"
        else:
            lines.append(part)
    if float(row["unknown"]) > 0:
        lines.append(f"{float(row['unknown']):.0%} of the runs unknown")
    return blank(f"{row['configuration']}  " + "\n    ".join(look.shorten(line, WIDTH) for line in lines))


def _bounds(ax: Axes, shown: pd.DataFrame, x: str, y: str) -> None:
    for name, prefix, set_bounds in ((x, "x", ax.set_xlim), (y, "y", ax.set_ylim)):
        if name == "success_rate":
            set_bounds(-0.02, 1.02)
        else:
            ends = [float(value) for column in (prefix, f"{prefix}_high") for value in shown[column].dropna()]
            set_bounds(0, (max(ends) or 1.0) * 1.06)


def _scale(axis: Any, name: str) -> None:
    if name == "success_rate":
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        return
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(look.Dollars() if name == "cost_mean" else FuncFormatter(lambda value, _: f"{value:,g}"))


def number(value: float, name: str) -> str:
    """Return a figure with its unit as text."""
    if math.isnan(value):
        return "unknown"
    if name == "success_rate":
        return f"{value:.0%}"
    if name == "cost_mean":
        return look.dollars(value)
    return f"{look.whole(value) if value >= 100 else f'{value:.3g}'} {FIGURES[name][1]}"
