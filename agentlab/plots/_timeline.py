"""What happened when in runs: a lane a kind, bars for what lasts and marks for what happens at an instant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from agentlab.plots import _figure as look
from agentlab.plots import _timeline_data as what
from agentlab.plots._curves import END_MARKERS
from agentlab.plots._timeline_data import Shown, timeline_data

LANES = {
    what.CALL: "calls",
    what.TOOL: "tools",
    what.CONTINUATION: "continuations",
    what.NUDGE: "nudges",
    what.LIMIT: "limits changed",
    what.PAUSE: "pauses",
}
"""From the top; a lane that stays empty is left out."""

BARS = {what.CALL: look.BLUE, what.TOOL: look.GREEN, what.CONTINUATION: look.PURPLE}
UNWELL = {what.CUT: (look.VERMILLION, "/////", "cut off"), what.FAILED: (look.VERMILLION, "xxxxx", "failed")}
MARKS = {
    "retry": ("x", look.VERMILLION, "call tried again"),
    "attempt": ("o", look.PURPLE, "asked to go on"),
    "repair": ("P", look.PURPLE, "half a tool call"),
    "nudge": ("v", look.PURPLE, ""),
    "limit": ("D", look.BLUE, ""),
    "paused": ("s", look.TEXT, ""),
}
"""Marker, colour and words of what happens at an instant; no words where the lane's name says it."""

SHOWN_RUNS = 8
BAR_HEIGHT = 0.62
FILL = 0.45
"""How opaque bars are: their borders, which tell them apart where they touch, are wholly so."""
WIDTH_INCHES = 9.0
ROOM_FOR_REASON = 0.2
"""Part of the width to the right of the longest run, for the words why it ended."""
NARROWEST = 0.024
"""Part of the width that a step's number takes: steps that stand closer are not all numbered."""


def timeline(shown: Shown, ax: Axes | None = None) -> Axes:
    """When a run called the model and its tools, and what else happened: a bar for what lasted, a mark for what did not.

    `shown` is what `lab.frame` takes (a run, a result, several in a list, a store, …), or `result.to_frame("events")`. Time is the
    run's active time: while a person has paused it, it stands still. The numbers above the lanes are those of the steps, at their
    beginning. Returns the axes; see `timeline_data` for what they show. Errors: ConfigurationError for anything else, and where
    columns are missing.

    Example:
        >>> lab.plots.timeline(result).get_xlabel()[:11]
        'active time'
    """
    return draw_timeline(timeline_data(shown), ax)


def draw_timeline(
    data: pd.DataFrame,
    ax: Axes | None = None,
    *,
    begin_s: float = 0.0,
    marked: int | None = None,
    goes_on: bool = True,
) -> Axes:
    """Draw what `timeline_data` gave. The axis of time begins at `begin_s`; the step `marked` has a frame around it; `goes_on` is
    whether a run with no end in these data is said to be running still."""
    run_ids = list(data["run_id"].unique())
    groups = _groups(data, [str(run_id) for run_id in run_ids[:SHOWN_RUNS]], marked)
    rows = sum(len(group.lanes) + 1 for group in groups) + 0.6 * max(0, len(groups) - 1)
    ax = look.axes_for(ax, "timeline", WIDTH_INCHES, max(1.9, 0.75 + 0.27 * rows))
    look.style(ax)
    for spine in ("left", "bottom"):
        ax.spines[spine].set_visible(False)
    if not groups:
        ax.set_xticks([])
        ax.set_yticks([])
        look.note(ax, "nothing has happened yet")
        look.set_alt(ax, "Timeline: nothing has happened yet.")
        return ax
    length = _set_time_axis(ax, data, begin_s, hidden=len(run_ids) - len(groups))
    ticks: list[tuple[float, str, bool]] = []
    top = 0.0
    for group in groups:
        _draw(ax, group, top, length, ticks)
        top += len(group.lanes) + 1.6
    ax.set_yticks([place for place, _, _ in ticks], [label for _, label, _ in ticks])
    for text, (_, _, heading) in zip(ax.get_yticklabels(), ticks, strict=True):
        text.set_parse_math(False)
        text.set_fontweight("bold" if heading else "normal")
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(top - 1.1, -0.7)
    _legend(ax, data[data["run_id"].isin([group.run_id for group in groups])])
    look.set_alt(ax, _alt(groups, len(run_ids), goes_on=goes_on))
    return ax


@dataclass(frozen=True, slots=True)
class _Group:
    """One run as it is drawn."""

    run_id: str
    name: str
    rows: pd.DataFrame
    lanes: list[str]
    marked: int | None


def _groups(data: pd.DataFrame, run_ids: list[str], marked: int | None) -> list[_Group]:
    groups = []
    for run_id in run_ids:
        rows = data[data["run_id"] == run_id]
        used = set(rows["lane"])
        models = rows.loc[rows["lane"] == what.RUN, "label"]
        model = look.shorten(str(models.iloc[0]) if len(models) else "run", 18 if len(run_ids) > 1 else 26)
        name = f"{model} {look.shorten(run_id[:6])}" if len(run_ids) > 1 else model
        groups.append(_Group(run_id, name, rows, [lane for lane in LANES if lane in used], marked))
    return groups


def _set_time_axis(ax: Axes, data: pd.DataFrame, begin_s: float, hidden: int) -> float:
    """The axis of time, in milliseconds for what is over within a second; its length in seconds."""
    latest = _latest(data)
    length = max(latest - begin_s, 1e-6) / (1 - ROOM_FOR_REASON)
    factor, unit = (1000, "milliseconds") if latest < 1 else (1, "seconds")
    ax.set_xlim(begin_s - 0.008 * length, begin_s + length)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * factor:,.10g}"))
    ax.set_xlabel(f"active time, {unit}" + (f" (and {hidden} more runs)" if hidden else ""))
    ax.grid(visible=True, axis="x", color=look.TEXT, alpha=0.2, linewidth=0.6)
    return length


def _latest(data: pd.DataFrame) -> float:
    return float(pd.concat([data["start_s"], data["end_s"].dropna()]).max())


def _draw(ax: Axes, group: _Group, top: float, length: float, ticks: list[tuple[float, str, bool]]) -> None:
    ticks.append((top, group.name, True))
    bottom = top + len(group.lanes) + 0.5
    _draw_steps(ax, group, top, bottom, length)
    _draw_marked(ax, group, top, bottom)
    for place, lane in enumerate(group.lanes, start=1):
        rows = group.rows[group.rows["lane"] == lane]
        ticks.append((top + place, _lane_name(lane, rows), False))
        bars = rows[rows["mark"] == "bar"]
        for outcome, alike in bars.groupby("outcome", sort=False):
            colour, hatch, _ = UNWELL.get(str(outcome), (BARS.get(lane, look.TEXT), "", ""))
            ax.broken_barh(
                [(float(start), float(end - start)) for start, end in zip(alike["start_s"], alike["end_s"], strict=True)],
                (top + place - BAR_HEIGHT / 2, BAR_HEIGHT),
                facecolor=to_rgba(colour, FILL),
                edgecolor=colour,
                linewidth=1.0,
                hatch=hatch or None,
                zorder=2,
                gid=look.gid(f"bar:{lane}", str(outcome)),
            )
        _draw_pauses(ax, rows[rows["mark"] == "resumed"], top + place, length)
        for mark, alike in rows[~rows["mark"].isin(["bar", "resumed"])].groupby("mark", sort=False):
            at = alike["start_s"].astype(float)
            ax.plot(at, [top + place] * len(alike), zorder=4, gid=look.gid("mark", str(mark)), **_mark(str(mark)))


def _draw_pauses(ax: Axes, resumed: pd.DataFrame, place: float, length: float) -> None:
    """How long each pause was, beside its mark: none of it is active time."""
    free_from = -math.inf
    for at_s, label in zip(resumed["start_s"].astype(float), resumed["label"].astype(str), strict=True):
        if at_s >= free_from:
            ax.annotate(
                look.shorten(label.removeprefix("after "), 12), (at_s, place), (7, 0), textcoords="offset points", va="center",
                color=look.TEXT, fontsize=look.SMALL_POINTS, parse_math=False, gid="paused",
            )  # fmt: skip
            free_from = at_s + 4 * NARROWEST * length


def _draw_marked(ax: Axes, group: _Group, top: float, bottom: float) -> None:
    """A frame around the marked step, from its beginning to that of the next one."""
    steps = group.rows[group.rows["lane"] == what.STEP]
    begins = steps.loc[steps["step"] == group.marked, "start_s"] if group.marked is not None else steps["start_s"].iloc[:0]
    if begins.empty:
        return
    start = float(begins.iloc[0])
    later = steps.loc[steps["start_s"] > start, "start_s"]
    end = float(later.min()) if len(later) else _latest(group.rows)
    frame: dict[str, Any] = {
        "linewidth": 1.6,
        "linestyle": (0, (4, 2)),
        "facecolor": to_rgba(look.BLUE, 0.15),
        "edgecolor": look.TEXT,
    }
    ax.add_patch(Rectangle((start, top + 0.5), end - start, bottom - top - 0.5, zorder=1.5, gid="marked", **frame))


def _draw_steps(ax: Axes, group: _Group, top: float, bottom: float, length: float) -> None:
    """A thin line where a step begins, with its number above; a thick one at the run's end, with the reason."""
    steps = group.rows[group.rows["lane"] == what.STEP]
    starts = [float(start) for start in steps["start_s"]]
    ax.vlines(starts, top + 0.5, bottom, color=look.TEXT, linewidth=0.6, alpha=0.6, zorder=1, gid="steps")
    ends = group.rows[group.rows["lane"] == what.END]
    end_s = None if ends.empty else float(ends["start_s"].iloc[-1])
    free_from = -math.inf
    kept_free = next((start for start, number in zip(starts, steps["step"], strict=True) if number == group.marked), math.inf)
    for start, number in zip(starts, steps["step"], strict=True):
        text = "?" if pd.isna(number) else str(number)
        room = NARROWEST * length * (0.4 + 0.3 * len(text))
        too_near_the_end = end_s is not None and start + room > end_s and start > 0
        if start != kept_free and (start - room / 2 < free_from or too_near_the_end or start < kept_free < start + 1.5 * room):
            continue
        free_from = start + room
        bold = "bold" if start == kept_free else "normal"
        ax.text(
            start, top, text, ha="left", va="center", color=look.TEXT, fontsize=look.SMALL_POINTS, fontweight=bold, gid="step"
        )
    if end_s is None:
        return
    reason = str(ends["label"].iloc[-1])
    ax.vlines([end_s], top - 0.3, bottom, color=look.TEXT, linewidth=1.6, zorder=3, gid="end")
    marker: dict[str, Any] = {
        "marker": END_MARKERS.get(reason, "H"),
        "markerfacecolor": look.TEXT,
        "markeredgecolor": look.TEXT,
        "markersize": 6,
    }
    ax.plot([end_s + 0.012 * length], [top], linestyle="none", clip_on=False, gid=look.gid("end", reason), **marker)
    ax.annotate(
        look.shorten(reason, 20), (end_s + 0.012 * length, top), (7, 0), textcoords="offset points", va="center",
        color=look.TEXT, fontsize=look.SMALL_POINTS, fontweight="bold", parse_math=False, gid="reason",
    )  # fmt: skip


def _lane_name(lane: str, rows: pd.DataFrame) -> str:
    """A lane's name; that of the tools with theirs, where there is room."""
    if lane != what.TOOL:
        return LANES[lane]
    return look.shorten(f"{LANES[lane]}: {', '.join(dict.fromkeys(rows['label'].astype(str)))}", 24)


def _mark(mark: str) -> dict[str, Any]:
    marker, colour, _ = MARKS.get(mark, ("H", look.TEXT, mark))
    return {
        "marker": marker,
        "linestyle": "none",
        "markersize": 6.5,
        "markerfacecolor": colour,
        "markeredgecolor": colour,
        "markeredgewidth": 1.6 if marker == "x" else 0.8,
    }


def _legend(ax: Axes, data: pd.DataFrame) -> None:
    """What hatches and marks mean, to the right; the lanes say the rest."""
    outcomes, marks = set(data.loc[data["mark"] == "bar", "outcome"]), set(data["mark"])
    entries: list[tuple[Any, str]] = [
        (Patch(facecolor=to_rgba(colour, FILL), edgecolor=colour, hatch=hatch), words)
        for outcome, (colour, hatch, words) in UNWELL.items()
        if outcome in outcomes
    ]
    entries += [(Line2D([], [], **_mark(mark)), words) for mark, (_, _, words) in MARKS.items() if words and mark in marks]
    if entries:
        handles, labels = zip(*entries, strict=True)
        ax.legend(
            handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=look.SMALL_POINTS,
            labelcolor=look.TEXT, handlelength=1.8, handletextpad=0.6, borderaxespad=0.2, labelspacing=0.5,
        )  # fmt: skip


_NOUNS = {
    what.CALL: "call",
    what.TOOL: "tool",
    what.CONTINUATION: "continuation",
    what.NUDGE: "nudge",
    what.LIMIT: "change of limits",
    what.PAUSE: "pause",
}


def _alt(groups: list[_Group], runs: int, *, goes_on: bool) -> str:
    told = []
    for group in groups:
        rows = group.rows
        parts = [_count(int((rows["lane"] == what.STEP).sum()), "step")]
        for lane in group.lanes:
            counted = "paused" if lane == what.PAUSE else "bar" if lane in BARS else None
            of_lane = rows[(rows["lane"] == lane) & (True if counted is None else rows["mark"] == counted)]
            counts = {words: int((of_lane["outcome"] == one).sum()) for one, (_, _, words) in UNWELL.items()}
            unwell = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
            if len(of_lane):
                parts.append(_count(len(of_lane), _NOUNS[lane]) + (f" ({unwell})" if unwell else ""))
        repairs = int((rows["mark"] == "repair").sum())
        parts += [_count(repairs, "repair of a tool call")] if repairs else []
        ends = rows[rows["lane"] == what.END]
        ended = "still running" if goes_on else ""
        if len(ends):
            ended = f"ended after {float(ends['start_s'].iloc[-1]):.3g} s: {look.spoken(str(ends['label'].iloc[-1]))}"
        told.append(f"{group.name}: {', '.join(filter(None, [*parts, ended]))}")
    more = f"; and {runs - len(groups)} more" if runs > len(groups) else ""
    return f"Timeline of {_count(runs, 'run')}; {'; '.join(told)}{more}."


def _count(number: int, noun: str) -> str:
    first, _, rest = noun.partition(" ")
    return " ".join(filter(None, [str(number), first + "s" * (number != 1), rest]))
