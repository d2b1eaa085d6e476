"""One measure per group with its interval, cost against success, and why the runs of each group ended: data and drawing."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agentlab._internal.formatting import counted
from agentlab._internal.names import helps_with_keywords
from agentlab.analysis.compare import Group, groups_of
from agentlab.analysis.groups import (
    By,
    checked,
    each_once,
    floats,
    names_of,
    numbers,
    outermost,
    runs_of,
    scores_of,
    texts,
    typed_frame,
)
from agentlab.analysis.intervals import Estimate
from agentlab.errors import ConfigurationError
from agentlab.model.finish_reasons import StopReason
from agentlab.plots import figure as look
from agentlab.plots.figure import inches, plain, unknown_row
from agentlab.plots.series import Look, grouping, looks_of
from agentlab.records.frames import Recordings

LABELS = {
    "completion": "finished on its own",
    "success": "succeeded",
    "score": "mean score",
    "tokens": "tokens per run (mean)",
    "cost": "cost per run (mean, US dollars)",
}
"""The measures and their axis labels."""
SHARES = ("completion", "success")
MAX_NAMED = 40
"""Maximum number of groups named in a legend."""
_ENDS = (("", "value"), ("_low", "low"), ("_high", "high"))

# Data ----------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def estimates_data(
    runs: Recordings | pd.DataFrame,
    what: str = "completion",
    by: By | None = None,
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
) -> pd.DataFrame:
    """Return one measure per group with its interval.

    Columns: `group`; the number of ended `runs`, of those with a `known` value, of independent `units`, and of `failed` runs; `value`,
    `low`, `high`; `method`, how the interval is computed; and `note`, the reason if there is none. `what` is `completion`, `success`,
    `score`, `tokens` or `cost`, as in `lab.summary`.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.estimates_data(runs, "tokens")[["group", "runs", "value"]]
                       group  runs   value
        0  claude-sonnet-4-6     1  3146.0
        1       gpt-5.4-mini     1  1424.0
        2   gemini-3.5-flash     1  2020.0
    """
    if what not in LABELS:
        raise ConfigurationError(f"lab.plots.estimates(what={what!r}): choose one of {', '.join(LABELS)}.")
    return estimates_of(measured(runs, by, "estimates", level=level, success_at=success_at, unit=unit), what)


@helps_with_keywords
def cost_success_data(
    runs: Recordings | pd.DataFrame,
    by: By | None = None,
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
) -> pd.DataFrame:
    """Return the cost and the success of each group, with both intervals: one row per group.

    Columns: `group`; the number of ended `runs`, of independent `units`, and of `failed` runs; `cost_known` (runs with a known cost);
    `cost`, `cost_low`, `cost_high` (the mean in US dollars); `measure`, and its `rate`, `rate_low`, `rate_high`; `cost_method`
    and `rate_method`, how the intervals are computed. The measure is
    `success` if there is a score, `score` (its mean) if the score is graded, and `completion` if there is no score.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.cost_success_data(runs)[["group", "cost", "measure", "rate"]]
                       group      cost     measure  rate
        0  claude-sonnet-4-6  0.014346  completion   1.0
        1       gpt-5.4-mini  0.001661  completion   1.0
        2   gemini-3.5-flash  0.006862  completion   1.0
    """
    return cost_success_of(measured(runs, by, "cost_success", level=level, success_at=success_at, unit=unit))


def measured(runs: Recordings | pd.DataFrame, by: By | None, function: str, **options: Any) -> list[Group]:
    """Return the groups with their measures."""
    runs = runs_of(runs, f"lab.plots.{function}")
    columns = grouping(runs, by)
    frame = checked(runs, ["terminated", "total_tokens", "cost_usd", *columns], f"lab.plots.{function}")
    return groups_of(frame, columns, function=f"lab.plots.{function}", **options)


def estimates_of(groups: list[Group], what: str) -> pd.DataFrame:
    """Return one measure of these groups, the data of `estimates_data`."""
    none = Estimate(None, None, None, 0, "none known")
    rows = []
    for group in groups:
        one, counts = group.measures.get(what, none), group.counts
        its = (group.name, counts["ended"], one.known, counts["units"], counts["failed"])
        rows.append((*its, one.value, one.low, one.high, one.method or None, one.why))
    counted_ = dict.fromkeys(("runs", "known", "units", "failed"), "Int64")
    figures = dict.fromkeys(("value", "low", "high"), "Float64")
    return typed_frame(rows, {"group": "string", **counted_, **figures, "method": "string", "note": "string"})


def cost_success_of(groups: list[Group]) -> pd.DataFrame:
    """Return cost and success of these groups, the data of `cost_success_data`."""
    scored = [group for group in groups if group.counts["scored"]]
    graded = any(group.measures["success"].value is None for group in scored)
    measure = "completion" if not scored else "score" if graded else "success"
    cost, rate = estimates_of(groups, "cost"), estimates_of(groups, measure)
    return pd.DataFrame(
        {
            **{name: rate[name] for name in ("group", "runs", "units", "failed")},
            "cost_known": cost["known"],
            **{f"cost{end}": cost[name] for end, name in _ENDS},
            "measure": pd.array([measure] * len(groups), dtype="string"),
            **{f"rate{end}": rate[name] for end, name in _ENDS},
            "cost_method": cost["method"],
            "rate_method": rate["method"],
        }
    )


def successes_of(runs: pd.DataFrame, measure: str, success_at: float | None, failed: Any) -> Any:
    """Return the value of each run for the measure of `cost_success_data`; NaN if unknown."""
    if measure == "completion":
        return floats(runs, "terminated")
    scores = floats(runs, "score")
    if measure == "success" and success_at is not None:
        return np.where(np.isnan(scores), np.where(failed, 0.0, np.nan), scores >= success_at)
    return scores_of(scores, failed)


# Drawing -------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def estimates(
    runs: Recordings | pd.DataFrame,
    what: str = "completion",
    by: By | None = None,
    ax: Axes | None = None,
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
) -> Axes:
    """Draw one measure per group as a point with its interval, in the order of the groups.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`; `what` is `completion`, `success`, `score`, `tokens` or `cost`.
    A hollow point has no interval. The text beside each point counts runs, independent units and failed runs; see `lab.summary`.
    Returns the axes; see `estimates_data` for their data. Errors: ConfigurationError if columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.estimates(runs, "tokens").alt
        'Tokens per run (mean) by group: claude-sonnet-4-6 3,146 (no interval), 1 run; gpt-5.4-mini 1,424 (n...
    """
    return draw_estimates(estimates_data(runs, what, by, level=level, success_at=success_at, unit=unit), what, ax)


def draw_estimates(data: pd.DataFrame, what: str, ax: Axes | None = None) -> Axes:
    """Draw the data of `estimates_data`."""
    ax = look.axes_for(ax, "estimates", 6.4, max(1.6, 0.8 + 0.34 * len(data)))
    look.style(ax, left=False)
    ax.set_xlabel(LABELS[what])
    _scale(ax.xaxis, what)
    if data.empty:
        return look.nothing(ax, "no runs yet", f"{LABELS[what]} by group")
    looks = looks_of(data["group"])
    known = [0.0, *(float(value) for name in ("value", "low", "high") for value in data[name].dropna())]
    top = 1.0 if what in SHARES else max(known) * 1.05 or 1.0
    parts = []
    for place, row in enumerate(data.to_dict("records")):
        name, notes = str(row["group"]), _units(row) + _failed(row)
        text, many = "unknown", counted(row["runs"], "run")
        if not pd.isna(row["value"]):
            _point(ax, (float(row["value"]), place), looks[name], name, x=_reach(row, "value", "low", "high"))
            many = f"{row['known']} of {many}" if row["known"] < row["runs"] else many
            shown = f"{_number(float(row['value']), what)}  {many}"
            if what in SHARES:  # 100% of how many?
                shown = f"{round(row['value'] * row['known'])} of {counted(row['known'], 'run')}"
            text = "\n".join(filter(None, [shown, ", ".join(notes)]))
        ax.annotate(
            text, (1.02, place), xycoords=("axes fraction", "data"), va="center", color=look.TEXT, fontsize=look.SMALL_POINTS,
            annotation_clip=False, linespacing=1.15,
        )  # fmt: skip
        known_parts = [] if pd.isna(row["value"]) else [many, ", ".join(notes)]
        parts.append(", ".join(filter(None, [f"{look.spoken(name)} {_words(row, '', what)}", *known_parts])))
    if methods := _methods(data["method"]):
        ax.set_xlabel(f"{LABELS[what]}\n{methods.strip()}")
    labels = look.short_names(data["group"], 24)
    look.names_axis(ax, [labels[name] for name in data["group"]])
    look.grid(ax, "x")
    _explain_hollow(ax, "no interval")
    bottom = min(known) * 1.05
    margin = 0.02 * (top - bottom)
    ax.set_xlim(bottom - margin, top + margin)
    if len(known) == 1 and what not in SHARES:
        ax.set_xticks([])
    ax.set_ylim(len(data) - 0.4, -0.6)
    look.set_alt(ax, f"{look.sentence(LABELS[what])} by group: {'; '.join(parts)}.{_methods(data['method'])}")
    return ax


@helps_with_keywords
def cost_success(
    runs: Recordings | pd.DataFrame,
    by: By | None = None,
    ax: Axes | None = None,
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
) -> Axes:
    """Draw the mean cost of each group against its success: one point per group, with both intervals.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`. Success is the score if there is one, otherwise the share of runs
    that finished on their own; the label of the axis says which. A group with an unknown cost is drawn hollow at the right edge;
    if no cost is known, the groups are side by side. The legend counts failed runs and runs with a known cost. Returns the axes; see
    `cost_success_data` for their data. Errors: ConfigurationError if columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.cost_success(runs).alt
        'Cost against success of 3 groups: claude-sonnet-4-6 finished on its own 100% (no interval) at a cos...
    """
    return draw_cost_success(cost_success_data(runs, by, level=level, success_at=success_at, unit=unit), ax)


def draw_cost_success(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the data of `cost_success_data`."""
    own, ax = ax is None, look.axes_for(ax, "cost_success", 6.4, 3.6)
    look.style(ax)
    measure = "completion" if data.empty else str(data["measure"].iloc[0])
    ax.set_xlabel(LABELS["cost"])
    ax.set_ylabel(LABELS[measure])
    _scale(ax.xaxis, "cost")
    _scale(ax.yaxis, measure)
    if data.empty:
        return look.nothing(ax, "no runs yet", "cost against success")
    look.grid(ax)
    looks = looks_of(data["group"])
    costs = [float(value) for name in ("cost", "cost_high") for value in data[name].dropna()]
    right = (max(costs, default=0.0) or 1.0) * 1.08
    rows, parts, labels = [], [], look.short_names(data["group"])
    for place, row in enumerate(data.to_dict("records"), start=1):
        name, its = str(row["group"]), looks[str(row["group"])]
        no_cost = pd.isna(row["cost"])
        if not pd.isna(row["rate"]):
            x = (0.0, 0.0) if no_cost else _reach(row, "cost", "cost_low", "cost_high")
            edge = (1 if costs else place / len(data)) / 1.02
            at = (edge if no_cost else float(row["cost"]), float(row["rate"]))
            _point(ax, at, its, name, x=x, y=_reach(row, "rate", "rate_low", "rate_high"), at_the_edge=no_cost)
        notes: list[str] = []
        if row["cost_known"] < row["runs"] and not no_cost:
            notes.append(f"cost known for {row['cost_known']} of {row['runs']} runs")
        notes += [f"{counted(row['runs'], 'run')}, {words}" for words in _units(row)] + _failed(row)
        rate, cost = _words(row, "rate", measure), _words(row, "cost", "cost")
        parts.append(", ".join([f"{look.spoken(name)} {LABELS[measure]} {rate} at a cost of {cost}", *notes]))
        handle = Line2D([], [], color=its.colour, marker=its.marker, markersize=6.5, linestyle="none")
        if no_cost:
            handle.set_markerfacecolor("none")
        rows.append((handle, "\n".join([labels[name], *notes])))
    unknown = unknown_row("cost", [labels[name] for name in data["group"][data["cost"].isna()]]) if costs else []
    unknown += unknown_row(measure, [labels[name] for name in data["group"][data["rate"].isna()]])
    if measure in SHARES:
        ax.set_ylim(-0.02, 1.02)
    ax.set_xlim(0, right * 1.02)
    if not costs:
        ax.set_xticks([])
        ax.set_xlabel("cost unknown")
    _explain_hollow(ax, "an interval is missing")
    if own:
        look.grow(ax, inches(rows[:MAX_NAMED] + unknown))
    plain(ax, (rows[:MAX_NAMED] if own else rows) + unknown, more=len(rows) - MAX_NAMED if own else 0)
    methods = _methods(pd.concat([data["rate_method"], data["cost_method"]]))
    look.set_alt(ax, f"Cost against success of {counted(len(data), 'group')}: {'; '.join(parts)}.{methods}")
    return ax


def _point(
    ax: Axes,
    at: tuple[float, float],
    its: Look,
    name: str,
    *,
    x: tuple[float, float] | None = None,
    y: tuple[float, float] | None = None,
    at_the_edge: bool = False,
) -> None:
    """Draw a point with its intervals. `x` and `y` are the distances to both ends; NaN if there is no interval. A point `at_the_edge`
    has an unknown x: it is hollow, and its place is a share of the width."""
    where: dict[str, Any] = {"transform": ax.get_yaxis_transform()} if at_the_edge else {}
    for reach, cap in ((x, "|"), (y, "_")):
        if reach is not None and not math.isnan(reach[0]) and reach != (0.0, 0.0):
            along = at[cap == "_"]
            ends, other = [along - reach[0], along + reach[1]], [at[cap == "|"]] * 2
            ax.plot(
                *((ends, other) if cap == "|" else (other, ends)), color=its.colour, linewidth=1.6, marker=cap, markersize=7,
                markeredgewidth=1.6, zorder=2, clip_on=False, gid=look.gid("interval", name), **where,
            )  # fmt: skip
    hollow = at_the_edge or any(reach is not None and math.isnan(reach[0]) for reach in (x, y))
    ax.plot(
        [at[0]], [at[1]], color=its.colour, marker=its.marker, markersize=7.5, linestyle="none", markeredgewidth=1.6,
        markerfacecolor="none" if hollow else its.colour, zorder=3, gid=look.gid("point", name), clip_on=False, **where,
    )  # fmt: skip


def _reach(row: dict[Any, Any], value: str, low: str, high: str) -> tuple[float, float]:
    if pd.isna(row[low]) or pd.isna(row[value]):
        return math.nan, math.nan
    return float(row[value] - row[low]), float(row[high] - row[value])


def _scale(axis: Any, what: str) -> None:
    if what in SHARES:
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    elif what in ("cost", "tokens"):
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=what == "tokens"))
        axis.set_major_formatter(look.Dollars() if what == "cost" else look.whole_numbers())


def _number(value: float, what: str) -> str:
    if what in SHARES:
        return f"{value:.0%}"
    return look.dollars(value) if what == "cost" else look.whole(value) if what == "tokens" else f"{value:.2f}"


def _words(row: dict[Any, Any], prefix: str, what: str) -> str:
    """Return a value with its interval as text."""
    value, low, high = (row[f"{prefix}{end}" if prefix else name] for end, name in _ENDS)
    if pd.isna(value):
        return "unknown"
    interval = "no interval" if pd.isna(low) else f"{_number(float(low), what)} to {_number(float(high), what)}"
    return f"{_number(float(value), what)} ({interval})"


def _methods(methods: pd.Series[str]) -> str:
    """Return a sentence about how the intervals are computed; empty without an interval."""
    names = [str(name) for name in methods.dropna().unique()]
    return f" Intervals: {'; '.join(names)}." if names else ""


def _units(row: dict[Any, Any]) -> list[str]:
    return [f"{row['units']} independent"] if row["units"] < row["runs"] else []


def _failed(row: dict[Any, Any]) -> list[str]:
    return [] if pd.isna(row["failed"]) or not row["failed"] else [f"{row['failed']} failed"]


def _explain_hollow(ax: Axes, meaning: str) -> None:
    """Explain below the axis what hollow points mean, if there are any."""
    if any(str(line.get_gid()).startswith("point:") and line.get_markerfacecolor() == "none" for line in ax.lines):
        ax.set_xlabel(f"{ax.get_xlabel()}\nhollow: {meaning}")


# Stop reasons -----------------------------------------------------------------------------------------------------------------


TERMINATED, TRUNCATED, ENDED, NOT_ENDED = "terminated", "truncated", "ended", "not_ended"
FILLS = {
    TERMINATED: (look.GREEN, ""), TRUNCATED: (look.VERMILLION, "////"), ENDED: (look.BLUE, "xxxx"), NOT_ENDED: (look.TEXT, "....")
}  # fmt: skip


@helps_with_keywords
def stop_reasons_data(runs: Recordings | pd.DataFrame, by: By | None = None) -> pd.DataFrame:
    """Return the number of runs per stop reason for each group.

    Columns: `group` (`provider` if the groups are the providers), `outcome` (`terminated`, `truncated`, `not_ended`; `ended`: unknown
    which of the first two), `stop_reason` (NA: not ended) and `runs`, a count of at least 1. Groups are in the order of their first
    run. The runs of sub-agents are left out.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.stop_reasons_data(runs)
                       group     outcome     stop_reason  runs
        0  claude-sonnet-4-6  terminated  stop_condition     1
        1       gpt-5.4-mini  terminated  stop_condition     1
        2   gemini-3.5-flash  terminated  stop_condition     1
    """
    runs = runs_of(runs, "lab.plots.stop_reasons")
    columns = grouping(runs, by)
    runs = outermost(each_once(checked(runs, (*columns, "stop_reason", "terminated", "truncated"), "lab.plots.stop_reasons")))
    group, reason = names_of(runs, columns), texts(runs, "stop_reason").fillna("")
    terminated, truncated = (numbers(runs, name).fillna(0) == 1 for name in ("terminated", "truncated"))
    counts = Counter(
        (name, TERMINATED if finished else TRUNCATED if cut_off else ENDED if why else NOT_ENDED, why)
        for name, finished, cut_off, why in zip(group, terminated, truncated, reason, strict=True)
    )
    groups, outcomes, reasons = list(dict.fromkeys(group)), list(FILLS), [*map(str, StopReason)]

    def place(key: tuple[str, str, str]) -> tuple[int, int, int, str]:
        known = reasons.index(key[2]) if key[2] in reasons else len(reasons)
        return groups.index(key[0]), outcomes.index(key[1]), known, key[2]

    first = "provider" if columns == ["provider"] else "group"
    dtypes = {first: "string", "outcome": "string", "stop_reason": "string", "runs": "Int64"}
    return typed_frame([(*key[:2], key[2] or None, counts[key]) for key in sorted(counts, key=place)], dtypes)


@helps_with_keywords
def stop_reasons(runs: Recordings | pd.DataFrame, ax: Axes | None = None, by: By | None = None) -> Axes:
    """Draw the number of runs per stop reason for each group. Runs that finished on their own and runs that were cut off are separate.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`. Returns the axes; see `stop_reasons_data` for their data.
    Errors: ConfigurationError if columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.stop_reasons(runs).alt
        'Stop reasons by group: claude-sonnet-4-6 1 terminated by stop_condition; gpt-5.4-mini 1 terminated ...
    """
    data = stop_reasons_data(runs, by)
    rows = _rows(data)
    ax = look.axes_for(ax, "stop_reasons", 6.4, max(2.2, 0.8 + 0.26 * len(rows)))
    look.style(ax, left=False)
    ax.set_xlabel("runs")
    title = f"Stop reasons by {data.columns[0]}"
    if data.empty:
        return look.nothing(ax, "no runs yet", title)
    for place, (_, outcome, count) in enumerate(rows):
        if outcome:
            colour, hatch = FILLS[outcome]
            ax.barh(place, count, height=0.7, color=colour, hatch=hatch, edgecolor="white", linewidth=0, gid=f"bar:{outcome}")
            look.beside(ax, f"{count} {outcome.replace('_', ' ')}", (count, place), 5)
    look.names_axis(ax, [label for label, _, _ in rows], bold=[not outcome for _, outcome, _ in rows])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    look.grid(ax, "x")
    ax.set_xlim(0, int(data["runs"].max()) * 1.3)
    ax.set_ylim(len(rows) - 0.5, -0.6)
    groups = []
    for name, of_group in data.groupby(data.columns[0], sort=False):
        parts = [
            f"{count} {outcome.replace('_', ' ')}" + ("" if pd.isna(reason) else f" by {look.spoken(str(reason))}")
            for _, outcome, reason, count in of_group.itertuples(index=False)
        ]
        groups.append(f"{look.spoken(str(name))} {', '.join(parts)}")
    look.set_alt(ax, f"{title}: {'; '.join(groups)}.")
    return ax


def _rows(data: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Return the rows of the plot, from the top: label, outcome, count. The heading of a group has an empty outcome."""
    rows: list[tuple[str, str, int]] = []
    labels = look.short_names(data[data.columns[0]], 24)
    for name, of_group in data.groupby(data.columns[0], sort=False):
        rows.append((labels[str(name)], "", 0))
        for _, outcome, reason, count in of_group.itertuples(index=False):
            rows.append(("no reason yet" if pd.isna(reason) else look.shorten(str(reason), 24), str(outcome), int(count)))
    return rows
