"""One measure of each group with its interval, and cost against success."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from agentlab.amounts import counted
from agentlab.comparing.groups import By
from agentlab.plots import _figure as look
from agentlab.plots._curves import Look, looks_of
from agentlab.plots._groups_data import cost_success_data, estimates_data
from agentlab.plots._legend import inches, plain
from agentlab.recorder import Recordings

LABELS = {
    "completion": "completed of its own",
    "success": "succeeded",
    "score": "mean score",
    "tokens": "tokens a run (mean)",
    "cost": "cost a run (mean, US dollars)",
}
MOST_NAMED = 40
"""So many groups are named in the legend of a figure of its own."""
SHARES = ("completion", "success")


def estimates(
    runs: Recordings | pd.DataFrame,
    what: str = "completion",
    by: By = "provider",
    ax: Axes | None = None,
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
) -> Axes:
    """One measure of each group, a point with its interval, in the order in which the groups come.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`; `what` is `completion`, `success`, `score`, `tokens` or `cost`.
    A hollow point has no interval. Beside each point is of how many runs it is, how many of them are independent (units), and how
    many failed; see `lab.summary`. Returns the axes; see `estimates_data` for what they show. Errors: ConfigurationError where
    columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.estimates(runs, "tokens").alt
        'Tokens a run (mean) by group: anthropic 3,146 (no interval), 1 run; openai 1,424 (no interval), 1 run; ge...
    """
    return draw_estimates(estimates_data(runs, what, by, level=level, success_at=success_at, unit=unit), what, ax)


def draw_estimates(data: pd.DataFrame, what: str, ax: Axes | None = None) -> Axes:
    """Draw what `estimates_data` gave."""
    ax = look.axes_for(ax, "estimates", 6.4, max(1.6, 0.8 + 0.34 * len(data)))
    look.style(ax)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(LABELS[what])
    _scale(ax.xaxis, what)
    if data.empty:
        ax.set_xticks([])
        ax.set_yticks([])
        look.note(ax, "no runs yet")
        look.set_alt(ax, f"{_sentence(LABELS[what])} by group: no runs yet.")
        return ax
    looks = looks_of((name, "") for name in data["group"])
    told = []
    top = (
        1.0
        if what in SHARES
        else max([0.0, *(float(v) for name in ("value", "high") for v in data[name].dropna())]) * 1.05 or 1.0
    )
    bottom = min([0.0, *(float(v) for name in ("value", "low") for v in data[name].dropna())]) * 1.05
    for place, row in enumerate(data.to_dict("records")):
        its, words = looks[str(row["group"]), ""], _words(row, what)
        beside = _beside(row, what)
        told.append(", ".join([f"{look.spoken(str(row['group']))} {words}", *beside.partition("  ")[2].splitlines()]))
        if not pd.isna(row["value"]):
            _point(ax, (float(row["value"]), place), its, str(row["group"]), x=_reach(row, "value", "low", "high"))
        at = (1.02, place)
        ax.annotate(
            beside, at, xycoords=("axes fraction", "data"), va="center", color=look.TEXT, fontsize=look.SMALL_POINTS,
            annotation_clip=False, linespacing=1.15,
        )  # fmt: skip
    ax.set_yticks(range(len(data)), [look.shorten(str(name), 24) for name in data["group"]])
    for text in ax.get_yticklabels():
        text.set_parse_math(False)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=True, axis="x", color=look.TEXT, alpha=0.25, linewidth=0.6)
    _explain_hollow(ax, "no interval")
    margin = 0.02 * (top - bottom)
    ax.set_xlim(bottom - margin, top + margin)
    ax.set_ylim(len(data) - 0.4, -0.6)
    look.set_alt(ax, f"{_sentence(LABELS[what])} by group: {'; '.join(told)}.")
    return ax


def cost_success(
    runs: Recordings | pd.DataFrame,
    by: By = "provider",
    ax: Axes | None = None,
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
) -> Axes:
    """What the runs of each group cost on average, against how many of them succeeded: one point per group, with both intervals.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`. Success is the score where there is one, else whether the run
    finished on its own: the axis says which. A group whose cost is unknown is at the right edge with its success, and no cost. The
    legend says how many runs failed, and of how many the cost is known. Returns the axes; see `cost_success_data` for what they show.
    Errors: ConfigurationError where columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.cost_success(runs).alt
        'Cost against success of 3 groups: anthropic completed of its own 100% (no interval) at a cost of $0.0143 (...
    """
    return draw_cost_success(cost_success_data(runs, by, level=level, success_at=success_at, unit=unit), ax)


def draw_cost_success(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw what `cost_success_data` gave."""
    own, ax = ax is None, look.axes_for(ax, "cost_success", 6.4, 3.6)
    look.style(ax)
    measure = "completion" if data.empty else str(data["measure"].iloc[0])
    ax.set_xlabel(LABELS["cost"])
    ax.set_ylabel(LABELS[measure])
    _scale(ax.xaxis, "cost")
    _scale(ax.yaxis, measure)
    if data.empty:
        ax.set_xticks([])
        ax.set_yticks([])
        look.note(ax, "no runs yet")
        look.set_alt(ax, "Cost against success: no runs yet.")
        return ax
    ax.grid(visible=True, color=look.TEXT, alpha=0.2, linewidth=0.6)
    looks = looks_of((name, "") for name in data["group"])
    costs = [float(value) for name in ("cost", "cost_high") for value in data[name].dropna()]
    right = (max(costs, default=0.0) or 1.0) * 1.08
    rows, told = [], []
    for row in data.to_dict("records"):
        name, its = str(row["group"]), looks[str(row["group"]), ""]
        cost = _words({"value": row["cost"], "low": row["cost_low"], "high": row["cost_high"]}, "cost")
        rate = _words({"value": row["rate"], "low": row["rate_low"], "high": row["rate_high"]}, measure)
        unknown = pd.isna(row["cost"])
        if not pd.isna(row["rate"]):
            x = (0.0, 0.0) if unknown else _reach(row, "cost", "cost_low", "cost_high")
            at = (right if unknown else float(row["cost"]), float(row["rate"]))
            _point(ax, at, its, name, x=x, y=_reach(row, "rate", "rate_low", "rate_high"), hollow=unknown)
        notes = ["cost unknown"] * unknown + [f"{measure} unknown"] * bool(pd.isna(row["rate"]))
        if row["cost_known"] < row["runs"] and not unknown:
            notes.append(f"cost of {row['cost_known']} of {row['runs']} runs")
        notes += [f"{counted(row['runs'], 'run')}, {words}" for words in _units(row)] + _failed(row)
        told.append(", ".join([f"{look.spoken(name)} {LABELS[measure]} {rate} at a cost of {cost}", *notes]))
        handle = Line2D([], [], color=its.colour, marker=its.marker, markersize=6.5, linestyle="none")
        if unknown:
            handle.set_markerfacecolor("none")
        rows.append((handle, "\n".join([look.shorten(name), *notes])))
    if measure in SHARES:
        ax.set_ylim(-0.02, 1.02)
    ax.set_xlim(0, right * 1.02)
    if not costs:
        ax.set_xticks([])
        ax.set_xlabel("cost unknown")
    _explain_hollow(ax, "not both intervals")
    if own:
        look.grow(ax, inches(rows[:MOST_NAMED]))
    plain(ax, rows[:MOST_NAMED] if own else rows, more=len(rows) - MOST_NAMED if own else 0)
    look.set_alt(ax, f"Cost against success of {len(data)} group{'s' * (len(data) != 1)}: {'; '.join(told)}.")
    return ax


def _point(
    ax: Axes,
    at: tuple[float, float],
    its: Look,
    name: str,
    *,
    x: tuple[float, float] | None = None,
    y: tuple[float, float] | None = None,
    hollow: bool = False,
) -> None:
    """A point with its intervals, as distances to both sides; NaN where there is none."""
    for reach, horizontal in ((x, True), (y, False)):
        if reach is not None and not math.isnan(reach[0]) and reach != (0.0, 0.0):
            ends = (
                ([at[0] - reach[0], at[0] + reach[1]], [at[1]] * 2)
                if horizontal
                else ([at[0]] * 2, [at[1] - reach[0], at[1] + reach[1]])
            )
            caps: Any = "|" if horizontal else "_"
            ax.plot(
                *ends, color=its.colour, linewidth=1.6, marker=caps, markersize=7, markeredgewidth=1.6, zorder=2, clip_on=False,
                gid=look.gid("interval", name),
            )  # fmt: skip
    hollow = hollow or any(reach is not None and math.isnan(reach[0]) for reach in (x, y))
    ax.plot(
        [at[0]], [at[1]], color=its.colour, marker=its.marker, markersize=7.5, linestyle="none", markeredgewidth=1.6,
        markerfacecolor="none" if hollow else its.colour, zorder=3, gid=look.gid("point", name), clip_on=False,
    )  # fmt: skip


def _reach(row: dict[Any, Any], value: str, low: str, high: str) -> tuple[float, float]:
    if pd.isna(row[low]) or pd.isna(row[value]):
        return math.nan, math.nan
    return float(row[value] - row[low]), float(row[high] - row[value])


def _scale(axis: Any, what: str) -> None:
    if what in SHARES:
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    elif what == "cost":
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(look.Dollars())
    elif what == "tokens":
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True))
        axis.set_major_formatter(FuncFormatter(lambda value, _: look.whole(value)))


def _number(value: float, what: str) -> str:
    if what in SHARES:
        return f"{value:.0%}"
    return look.dollars(value) if what == "cost" else look.whole(value) if what == "tokens" else f"{value:.2f}"


def _words(row: dict[Any, Any], what: str) -> str:
    """A value with its interval, in words."""
    if pd.isna(row["value"]):
        return "unknown"
    interval = "no interval" if pd.isna(row["low"]) else " to ".join(_number(float(row[end]), what) for end in ("low", "high"))
    return f"{_number(float(row['value']), what)} ({interval})"


def _beside(row: dict[Any, Any], what: str) -> str:
    """What is to the right of a point: its value and of how many runs; below, how many are independent, and how many failed."""
    if pd.isna(row["value"]):
        return "unknown"
    known = f"{row['known']} of " if row["known"] < row["runs"] else ""
    more = ", ".join(_units(row) + _failed(row))
    return f"{_number(float(row['value']), what)}  {known}{counted(row['runs'], 'run')}" + (f"\n{more}" if more else "")


def _units(row: dict[Any, Any]) -> list[str]:
    return [f"{row['units']} independent"] if row["units"] < row["runs"] else []


def _explain_hollow(ax: Axes, meaning: str) -> None:
    """Below the axis, what a hollow point means, where there is one."""
    if any(str(line.get_gid()).startswith("point:") and line.get_markerfacecolor() == "none" for line in ax.lines):
        ax.set_xlabel(f"{ax.get_xlabel()}\nhollow: {meaning}")


def _failed(row: dict[Any, Any]) -> list[str]:
    return [] if pd.isna(row["failed"]) or not row["failed"] else [f"{row['failed']} failed"]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
