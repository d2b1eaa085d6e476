"""The cost-success frontier of groups of runs, the most success for the least cost, with its band: data and drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from agentlab._internal.formatting import counted, percent
from agentlab._internal.names import helps_with_keywords
from agentlab.analysis.groups import (
    By,
    checked,
    each_once,
    failed_of,
    floats,
    has_ended,
    names_of,
    runs_of,
    units_of,
    whole_runs,
)
from agentlab.analysis.intervals import MIN_UNITS
from agentlab.plots import figure as look
from agentlab.plots.figure import Row, inches, plain, unknown_row
from agentlab.plots.group_estimates import LABELS, cost_success_of, draw_cost_success, measured, successes_of
from agentlab.plots.series import grouping, looks_of
from agentlab.plots.what_if_frontier import on_the_frontier
from agentlab.records.frames import Recordings

RESAMPLES = 1_000
SEED = 20_240_717
FILL = 0.16

# Data ----------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def frontier_data(
    runs: Recordings | pd.DataFrame,
    by: By | None = None,
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
    band: bool = False,
) -> pd.DataFrame:
    """Return the cost and success of each group, and whether it is on the Pareto frontier: one row per group.

    Columns: those of `cost_success_data`; `efficient`: True if no other group has as much success for less, or more for as much (NA:
    its cost or success is unknown); `efficient_share`: the share of 1,000 resamples in which it is (NA for all if a group has fewer
    than 5 units). A resample draws the independent units with replacement, the same for all groups (cluster bootstrap).

    With `band=True`, return the band of the frontier instead: at each `cost`, up to the next row, the most success that can be had for
    it is between `low` and `high`. The band is from the intervals of the groups that have both, at a level at which all of them hold
    together (Bonferroni), so it holds for the whole frontier with a chance of at least `level`. Where no group is known to cost so
    little, `low` is 0, or NA if a score may be negative.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.frontier_data(runs)[["group", "cost", "rate", "efficient"]]
                       group      cost  rate  efficient
        0  claude-sonnet-4-6  0.014346   1.0      False
        1       gpt-5.4-mini  0.001661   1.0       True
        2   gemini-3.5-flash  0.006862   1.0      False
    """
    options: dict[str, Any] = {"success_at": success_at, "unit": unit}
    runs = runs_of(runs, "lab.plots.frontier")
    by = grouping(runs, by)
    groups = measured(runs, by, "frontier", level=level, **options)
    if band:
        strict = 1 - (1 - level) / max(1, 2 * len(groups))
        return _band(cost_success_of(measured(runs, by, "frontier", level=strict, **options)))
    table = cost_success_of(groups)
    cost, rate = (table[name].to_numpy(dtype=float, na_value=np.nan) for name in ("cost", "rate"))
    table["efficient"] = pd.array(_efficient(cost, rate), dtype="boolean")
    table.loc[np.isnan(cost) | np.isnan(rate), "efficient"] = pd.NA
    table["efficient_share"] = pd.array(_shares(runs, by, table, success_at, unit), dtype="Float64")
    return table


def _efficient(cost: Any, rate: Any) -> Any:
    """Return True for the groups on the frontier: several, if they are equal."""
    known = ~np.isnan(cost) & ~np.isnan(rate)
    first = np.zeros(len(cost), bool)
    first[known] = on_the_frontier(cost[known], rate[known])
    points = {*zip(cost[first], rate[first], strict=True)}
    return np.array([point in points for point in zip(cost, rate, strict=True)], bool)


def _shares(
    runs: pd.DataFrame, by: list[str], table: pd.DataFrame, success_at: float | None, unit: By | None
) -> list[float | None]:
    """Return in which share of the resamples each group is on the frontier; None if there are too few units."""
    frame = whole_runs(each_once(checked(runs, [], "lab.plots.frontier")))
    frame = frame[has_ended(frame)].reset_index(drop=True)
    units = np.unique(units_of(frame, unit), return_inverse=True)[1]
    size, names = len(np.unique(units)), list(table["group"])
    if not size:
        return [None] * len(names)
    codes = pd.Categorical(names_of(frame, by), categories=names).codes
    rate = successes_of(frame, str(table["measure"].iloc[0]), success_at, failed_of(frame, "count"))
    weights = np.random.default_rng(SEED).multinomial(size, np.full(size, 1 / size), RESAMPLES)

    cost = floats(frame, "cost_usd")
    known = ~np.isnan(cost) & ~np.isnan(rate)
    there = [len(np.unique(units[known & (codes == code)])) for code in range(len(names))]
    if not any(there) or min(filter(None, there)) < MIN_UNITS:
        return [None] * len(names)

    def means(values: Any) -> Any:
        """Return the mean of each group in each resample."""
        known = ~np.isnan(values)
        sums, counts = np.zeros((size, len(names))), np.zeros((size, len(names)))
        np.add.at(sums, (units[known], codes[known]), values[known])
        np.add.at(counts, (units[known], codes[known]), 1)
        with np.errstate(all="ignore"):
            return (weights @ sums) / (weights @ counts)

    on_it = [_efficient(*both) for both in zip(means(cost), means(rate), strict=True)]
    return [float(share) if count else None for share, count in zip(np.mean(on_it, axis=0), there, strict=True)]


def _band(table: pd.DataFrame) -> pd.DataFrame:
    """Return the band of the frontier from the intervals of the groups."""
    names = ["cost_low", "cost_high", "rate_low", "rate_high"]
    known = table[table[names].notna().all(axis=1)]
    cost_low, cost_high, rate_low, rate_high = (known[name].to_numpy(dtype=float) for name in names)
    costs = np.unique(np.concatenate([cost_low, cost_high]))
    none = 0.0 if (rate_low >= 0).all() else None
    low = [max(map(float, rate_low[cost_high <= cost]), default=none) for cost in costs]
    high = [max(map(float, rate_high[cost_low <= cost])) for cost in costs]
    return pd.DataFrame(
        {name: pd.array(list(values), dtype="Float64") for name, values in (("cost", costs), ("low", low), ("high", high))}
    )


# Drawing -------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def frontier(
    runs: Recordings | pd.DataFrame,
    by: By | None = None,
    ax: Axes | None = None,
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
) -> Axes:
    """Draw the cost of each group against its success, the Pareto frontier as a line, and its band.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`. The points are those of `cost_success`. The line is the most
    success that a group has for a cost or less. The band contains the true frontier with a chance of at least `level`; see
    `frontier_data`. The legend says in which share of the resamples each group is on the frontier. Returns the axes.
    Errors: ConfigurationError if columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.frontier(runs).alt
        'Cost against success of 3 groups: claude-sonnet-4-6 finished on its own 100% (no interval) at a cos...
    """
    options: dict[str, Any] = {"level": level, "success_at": success_at, "unit": unit}
    data, band = frontier_data(runs, by, **options), frontier_data(runs, by, band=True, **options)
    own, ax = ax is None, look.axes_for(ax, "frontier", 6.4, 3.6)
    draw_cost_success(data.drop(columns=["efficient", "efficient_share"]), ax)
    if data.empty:
        return ax
    right = ax.get_xlim()[1]
    beyond = 1_000 * right  # for axes that are made wider, see `small_multiples`
    front = data[data["efficient"].fillna(False)].sort_values("cost")
    line: dict[str, Any] = {"color": look.TEXT, "linewidth": 1.6}
    handles: list[Row] = []
    if len(front):
        costs, rates = ([float(value) for value in front[name]] for name in ("cost", "rate"))
        ax.plot([*costs, beyond], [*rates, rates[-1]], drawstyle="steps-post", zorder=1.5, gid="frontier", **line)
        handles.append((Line2D([], [], **line), "Pareto frontier"))
    if len(band):
        costs, low, high = band.to_numpy(dtype=float, na_value=np.nan).T.tolist()
        ax.fill_between(
            [*costs, beyond],
            [*low, low[-1]],
            [*high, high[-1]],
            step="post",
            color=look.TEXT,
            alpha=FILL,
            linewidth=0,
            gid="band",
        )
        its_band = Line2D([], [], color=look.TEXT, alpha=2 * FILL, linewidth=8)
        handles.append((its_band, f"its band at {percent(level)}\n(Bonferroni)"))
    ax.set_xlim(0, right)
    looks, labels = looks_of(data["group"]), look.short_names(data["group"])
    parts, unknown = list[str](), list[str]()
    for row in data.to_dict("records"):
        name, share = str(row["group"]), row["efficient_share"]
        words = (
            f"on the frontier in {share:.0%}\nof {RESAMPLES:,} resamples" if not pd.isna(share) else "too few units\nto resample"
        )
        units = counted(row["units"], "independent unit")
        if pd.isna(row["efficient"]):
            unknown.append(labels[name])
        lines = [labels[name], units] if pd.isna(row["efficient"]) else [labels[name], words, units]
        its = looks[name]
        point = Line2D([], [], color=its.colour, marker=its.marker, markersize=6.5, linestyle="none")
        handles.append((point, "\n".join(lines)))
        words = "cost or success unknown" if pd.isna(row["efficient"]) else words.replace("\n", " ")
        parts.append(f"{look.spoken(name)} {words} of {units}")
    handles += unknown_row("cost or success", unknown)
    if own:
        look.grow(ax, inches(handles))
    plain(ax, handles)
    on_it = ", ".join(look.spoken(str(name)) for name in front["group"]) or "none"
    alt = getattr(ax, "alt", "")
    look.set_alt(
        ax, f"{alt} Pareto frontier of {LABELS[str(data['measure'].iloc[0])]} against cost: {on_it}; {'; '.join(parts)}.".strip()
    )
    return ax
