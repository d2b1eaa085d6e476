"""Timelines of runs: data, drawing, and the part of a long run that one picture can show.

Each kind of event has a lane, with bars for durations and marks for instants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from agentlab._internal.formatting import counted
from agentlab._internal.names import helps_with_keywords
from agentlab.analysis.groups import misses, typed_frame
from agentlab.plots import figure as look
from agentlab.plots.figure import END_MARKERS, ROOM_FOR_REASON, Row, plain
from agentlab.records.events import EARLIER_NAMES
from agentlab.records.frames import Recordings, frame_of

Displayable: TypeAlias = Recordings | pd.DataFrame

RUN, STEP, CALL, TOOL, CONTINUATION, NUDGE, LIMIT, PAUSE, END = (
    "run", "step", "call", "tool", "continuation", "nudge", "limit", "pause", "end",
)  # fmt: skip
OK, CUT, FAILED = "ok", "cut", "failed"
ADVICE = 'their events, result.to_frame("events")'
_CUT_REASONS = ("max_tokens", "context_window_exceeded", "content_filtered")
_NEEDED = ("run_id", "at_s", "event", "step", "detail")
_COLUMNS = {
    "run_id": "string",
    "lane": "string",
    "step": "Int64",
    "start_s": "Float64",
    "end_s": "Float64",
    "mark": "string",
    "outcome": "string",
    "label": "string",
}

# Data ----------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def timeline_data(shown: Displayable) -> pd.DataFrame:
    """Return the timeline of runs, one row per bar or mark.

    Columns: `run_id`; `lane` (`run`, `step`, `call`, `tool`, `continuation`, `nudge`, `limit`, `pause`, `end`); `step`; `start_s` and
    `end_s`, in seconds of the run's active time (`end_s` NA: an instant); `mark` (`bar`, or for an instant its kind: `retry`,
    `attempt`, `repair`, …); `outcome` (`ok`, `cut`, `failed`); `label`, a short text. A pause takes no active time, so it is two
    instants.

    A call has no event at its start: its bar begins at the end of the previous bar of the step.

    Example:
        >>> lab.plots.timeline_data(result).columns.tolist()[:6]
        ['run_id', 'lane', 'step', 'start_s', 'end_s', 'mark']
    """
    frame = frame_of(shown, "events", "lab.plots.timeline", ADVICE)
    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing and (len(frame) or len(frame.columns)):
        raise misses("lab.plots.timeline", missing, f"a run, a result, several of them in a list, or {ADVICE}")
    runs: dict[str, _Reader] = {}
    for run_id, at_s, event, step, detail in () if missing else zip(*(frame[name] for name in _NEEDED), strict=True):
        name = "unnamed run" if pd.isna(run_id) else str(run_id)
        reader = runs.setdefault(name, _Reader(name))
        if not pd.isna(at_s):
            reader.take(
                EARLIER_NAMES.get(str(event), str(event)),
                float(at_s),
                None if pd.isna(step) else int(step),
                "" if pd.isna(detail) else str(detail),
            )
    return typed_frame([row for reader in runs.values() for row in reader.rows], _COLUMNS)


_INSTANTS = {
    "Nudged": (NUDGE, "nudge", OK),
    "OutputRejected": (NUDGE, "nudge", FAILED),
    "LastAnswerAsked": (NUDGE, "nudge", OK),
    "LimitsChanged": (LIMIT, "limit", OK),
    "RunPaused": (PAUSE, "paused", OK),
    "RunResumed": (PAUSE, "resumed", OK),
    "AskedAgain": (CALL, "retry", FAILED),
    "CallRetried": (CALL, "retry", FAILED),
    "ContinuationAttempted": (CONTINUATION, "attempt", OK),
}
"""Lane, mark and outcome of the events that are instants."""


@dataclass(slots=True)
class _Reader:
    """Reads the events of one run, one after the other."""

    run_id: str
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    since_s: float = 0.0  # the start of the step's next call
    answered: bool = True  # the current step has a response
    tools_since_s: dict[str, list[float]] = field(default_factory=dict)  # by name; several calls may be under way
    cut_since_s: float | None = None

    def take(self, event: str, at_s: float, step: int | None, detail: str) -> None:
        if event in _INSTANTS:
            lane, mark, outcome = _INSTANTS[event]
            self._add(lane, step, at_s, None, detail, mark=mark, outcome=outcome)
        match event:
            case "RunStarted":
                self._add(RUN, None, at_s, None, detail.partition(", ")[0], mark=RUN)
            case "StepStarted":
                self.since_s, self.answered = at_s, False
                self._add(STEP, step, at_s, None, f"step {step}", mark=STEP)
            case "StopReasonObserved":
                reason = detail.partition(" ")[0]
                outcome = CUT if reason in _CUT_REASONS else FAILED if reason == "error" else OK
                self._add(CALL, step, self.since_s, at_s, reason, outcome=outcome)
                self.since_s, self.answered = at_s, True
            case "AskedAgain":
                self.answered = False
            case "ToolStarted":
                self.tools_since_s.setdefault(detail.partition("(")[0], []).append(at_s)
            case "ToolFinished":
                name, _, error = detail.rpartition(": ")
                began = self.tools_since_s.get(name)
                began_s = began.pop(0) if began else self.since_s
                self._add(TOOL, step, began_s, at_s, name, outcome=OK if error == "ok" else FAILED)
                self.since_s = at_s
            case "ContinuationAttempted":
                self.cut_since_s = at_s if self.cut_since_s is None else self.cut_since_s
                self.answered = False
            case "ContinuationEnded":
                since_s, self.cut_since_s = self.cut_since_s, None
                outcome = {"completed": OK, "error": FAILED}.get(detail.partition(" ")[0], CUT)
                self._add(CONTINUATION, step, at_s if since_s is None else since_s, at_s, detail, outcome=outcome)
            case "ToolPayloadRepair":
                outcome = OK if detail.endswith("whole") else FAILED
                self._add(CONTINUATION, step, at_s, None, detail, mark="repair", outcome=outcome)
            case "StepCompleted":
                if not self.answered:
                    self._add(CALL, step, self.since_s, at_s, "no answer", outcome=FAILED)
                self.answered, self.cut_since_s = True, None
            case "RunEnded":
                self._add(END, None, at_s, None, detail.partition(":")[0], mark=END)

    def _add(
        self,
        lane: str,
        step: int | None,
        start_s: float,
        end_s: float | None,
        label: str,
        *,
        mark: str = "bar",
        outcome: str = OK,
    ) -> None:
        self.rows.append((self.run_id, lane, step, start_s, end_s, mark, outcome, label))


# Drawing -------------------------------------------------------------------------------------------------------------------------

LANES = {
    CALL: ("calls", "call"),
    TOOL: ("tools", "tool"),
    CONTINUATION: ("continuations", "continuation"),
    NUDGE: ("nudges", "nudge"),
    LIMIT: ("limits changed", "change"),
    PAUSE: ("pauses", "pause"),
}
"""The lanes from the top, each with its name and the noun for one entry; an empty lane is left out."""

BARS = {CALL: look.BLUE, TOOL: look.GREEN, CONTINUATION: look.PURPLE}
UNWELL = {CUT: (look.VERMILLION, "/////", "cut off"), FAILED: (look.VERMILLION, "xxxxx", "failed")}
MARKS = {
    "retry": ("x", look.VERMILLION, "call retried"),
    "attempt": ("o", look.PURPLE, "asked to continue"),
    "repair": ("P", look.PURPLE, "tool call repaired"),
    "nudge": ("v", look.PURPLE, ""),
    "limit": ("D", look.BLUE, ""),
    "paused": ("s", look.TEXT, ""),
}
"""Marker, colour and legend text of each instant; no text if the lane's name is enough."""

SHOWN_RUNS = 8
BAR_HEIGHT = 0.62
FILL = 0.45
"""Opacity of bars. Their borders are opaque, so that bars that touch can be distinguished."""
WIDTH_INCHES = 9.0
NUMBER_WIDTH = 0.024
"""Share of the width for a step's number: if steps are closer than that, only some are numbered."""


@helps_with_keywords
def timeline(shown: Displayable, ax: Axes | None = None) -> Axes:
    """Draw a run over time: model calls and tool calls as bars, and instants such as retries and nudges as marks.

    `shown` is what `lab.frame` takes (a run, a result, several in a list, a store, …), or `result.to_frame("events")`. The time axis is
    the run's active time, without pauses. The numbers above the lanes are the steps, at their start. Returns the axes; see
    `timeline_data` for their data. Errors: ConfigurationError for anything else, and if columns are missing.

    Example:
        >>> lab.plots.timeline(result).get_xlabel()[:11]
        'active time'
    """
    data = timeline_data(shown)
    run_ids = list(data["run_id"].unique())
    groups = _groups(data, [str(run_id) for run_id in run_ids[:SHOWN_RUNS]])
    rows = sum(len(group.lanes) + 1 for group in groups) + 0.6 * max(0, len(groups) - 1)
    ax = look.axes_for(ax, "timeline", WIDTH_INCHES, max(1.9, 0.75 + 0.27 * rows))
    look.style(ax, left=False, bottom=False)
    if not groups:
        return look.nothing(ax, "no events yet", "timeline")
    drawn = data[data["run_id"].isin(run_ids[:SHOWN_RUNS])]
    length = _set_time_axis(ax, drawn, hidden=len(run_ids) - len(groups))
    ticks: list[tuple[float, str, bool]] = []
    top = 0.0
    for group in groups:
        ticks.append((top, group.name, True))
        _draw_run(ax, group, top, length, ticks)
        top += len(group.lanes) + 1.6
    look.names_axis(ax, [label for _, label, _ in ticks], [place for place, _, _ in ticks], [heading for *_, heading in ticks])
    ax.set_ylim(top - 1.1, -0.7)
    _draw_legend(ax, drawn)
    look.set_alt(ax, _alt(groups, len(run_ids)))
    return ax


@dataclass(frozen=True, slots=True)
class _Group:
    """One run as drawn."""

    run_id: str
    name: str
    rows: pd.DataFrame
    lanes: list[str]


def _groups(data: pd.DataFrame, run_ids: list[str]) -> list[_Group]:
    start = max(map(look.shared_start(run_ids).rfind, "#/")) + 1  # after the experiment's name and what else they share
    width = next(width for width in count(6) if len({run_id[start : start + width] for run_id in run_ids}) == len(run_ids))
    ids = look.short_names([run_id[start : start + width] for run_id in run_ids], 24)
    groups = []
    for run_id in run_ids:
        rows = data[data["run_id"] == run_id]
        used = set(rows["lane"])
        models = rows.loc[rows["lane"] == RUN, "label"]
        model = look.shorten(str(models.iloc[0]) if len(models) else "run", 18 if len(run_ids) > 1 else 26)
        name = f"{model} {ids[run_id[start : start + width]]}" if len(run_ids) > 1 else model
        groups.append(_Group(run_id, name, rows, [lane for lane in LANES if lane in used]))
    return groups


def _set_time_axis(ax: Axes, data: pd.DataFrame, hidden: int) -> float:
    """Set up the time axis, in milliseconds if it is shorter than a second. Returns its length in seconds."""
    latest = float(pd.concat([data["start_s"], data["end_s"].dropna()]).max())
    length = max(latest, 1e-6) / (1 - ROOM_FOR_REASON)
    factor, unit = (1000, "milliseconds") if latest < 1 else (1, "seconds")
    ax.set_xlim(-0.008 * length, length)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * factor:,.10g}"))
    ax.set_xlabel(f"active time, {unit}" + (f" (and {counted(hidden, 'more run')})" if hidden else ""))
    look.grid(ax, "x")
    return length


def _draw_run(ax: Axes, group: _Group, top: float, length: float, ticks: list[tuple[float, str, bool]]) -> None:
    bottom = top + len(group.lanes) + 0.5
    _draw_steps(ax, group, top, bottom, length)
    for place, lane in enumerate(group.lanes, start=1):
        rows = group.rows[group.rows["lane"] == lane]
        name = LANES[lane][0]
        if lane == TOOL:
            name = look.shorten(f"{name}: {', '.join(dict.fromkeys(rows['label'].astype(str)))}", 24)
        ticks.append((top + place, name, False))
        for outcome, alike in rows[rows["mark"] == "bar"].groupby("outcome", sort=False):
            colour, hatch, _ = UNWELL.get(str(outcome), (BARS.get(lane, look.TEXT), "", ""))
            ax.broken_barh(
                [(float(start), float(end - start)) for start, end in zip(alike["start_s"], alike["end_s"], strict=True)],
                (top + place - BAR_HEIGHT / 2, BAR_HEIGHT), facecolor=to_rgba(colour, FILL), edgecolor=colour, linewidth=1.0,
                hatch=hatch or None, zorder=2, gid=look.gid(f"bar:{lane}", str(outcome)),
            )  # fmt: skip
        _draw_pauses(ax, rows[rows["mark"] == "resumed"], top + place, length)
        for mark, alike in rows[~rows["mark"].isin(["bar", "resumed"])].groupby("mark", sort=False):
            at = alike["start_s"].astype(float)
            ax.plot(at, [top + place] * len(alike), zorder=4, gid=look.gid("mark", str(mark)), **_mark(str(mark)))


def _draw_pauses(ax: Axes, resumed: pd.DataFrame, place: float, length: float) -> None:
    """Write the length of each pause beside its mark, since the axis does not show it."""
    free_from = -math.inf
    for at_s, label in zip(resumed["start_s"].astype(float), resumed["label"].astype(str), strict=True):
        if at_s >= free_from:
            look.beside(ax, look.shorten(label.removeprefix("after "), 12), (at_s, place), 7, gid="paused")
            free_from = at_s + 4 * NUMBER_WIDTH * length


def _draw_steps(ax: Axes, group: _Group, top: float, bottom: float, length: float) -> None:
    """Draw a thin line at the start of each step, with its number above, and a thick line at the run's end, with the stop reason."""
    steps = group.rows[group.rows["lane"] == STEP]
    starts = [float(start) for start in steps["start_s"]]
    ax.vlines(starts, top + 0.5, bottom, color=look.TEXT, linewidth=0.6, alpha=0.6, zorder=1, gid="steps")
    ends = group.rows[group.rows["lane"] == END]
    end_s = math.inf if ends.empty else float(ends["start_s"].iloc[-1])
    free_from = -math.inf
    for start, number in zip(starts, steps["step"], strict=True):
        text = "?" if pd.isna(number) else str(number)
        room = NUMBER_WIDTH * length * (0.4 + 0.3 * len(text))
        too_near_the_end = start + room > end_s and start > 0
        if start - room / 2 < free_from or too_near_the_end:
            continue
        free_from = start + room
        ax.text(start, top, text, ha="left", va="center", gid="step", color=look.TEXT, fontsize=look.SMALL_POINTS)
    if ends.empty:
        return
    reason, at = str(ends["label"].iloc[-1]), (end_s + 0.012 * length, top)
    ax.vlines([end_s], top - 0.3, bottom, color=look.TEXT, linewidth=1.6, zorder=3, gid="end")
    ax.plot(
        [at[0]], [at[1]], linestyle="none", clip_on=False, marker=END_MARKERS.get(reason, "H"), color=look.TEXT, markersize=6,
        gid=look.gid("end", reason),
    )  # fmt: skip
    look.beside(ax, look.shorten(reason, 20), at, 7, fontweight="bold", gid="reason")


def _mark(mark: str) -> dict[str, Any]:
    marker, colour, _ = MARKS.get(mark, ("H", look.TEXT, mark))
    width = 1.6 if marker == "x" else 0.8
    return {"marker": marker, "linestyle": "none", "color": colour, "markersize": 6.5, "markeredgewidth": width}


def _draw_legend(ax: Axes, data: pd.DataFrame) -> None:
    """Draw a legend of hatches and marks to the right; the names of the lanes explain the rest."""
    outcomes, marks = set(data.loc[data["mark"] == "bar", "outcome"]), set(data["mark"])
    entries: list[Row] = [
        (Patch(facecolor=to_rgba(colour, FILL), edgecolor=colour, hatch=hatch), words)
        for outcome, (colour, hatch, words) in UNWELL.items()
        if outcome in outcomes
    ]
    entries += [(Line2D([], [], **_mark(mark)), words) for mark, (_, _, words) in MARKS.items() if words and mark in marks]
    plain(ax, entries)


def _alt(groups: list[_Group], runs: int) -> str:
    described = []
    for group in groups:
        rows = group.rows
        parts = [counted(int((rows["lane"] == STEP).sum()), "step")]
        for lane in group.lanes:
            of_lane = rows[rows["lane"] == lane]
            if lane == PAUSE or lane in BARS:
                of_lane = of_lane[of_lane["mark"] == ("paused" if lane == PAUSE else "bar")]
            counts = {words: int((of_lane["outcome"] == one).sum()) for one, (_, _, words) in UNWELL.items()}
            unwell = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
            if len(of_lane):
                noun = counted(len(of_lane), LANES[lane][1]) + (" of limits" if lane == LIMIT else "")
                parts.append(noun + (f" ({unwell})" if unwell else ""))
        if repairs := int((rows["mark"] == "repair").sum()):
            parts.append(f"{counted(repairs, 'repair')} of a tool call")
        ends = rows[rows["lane"] == END]
        if len(ends):
            parts.append(f"ended after {float(ends['start_s'].iloc[-1]):.3g} s: {look.spoken(str(ends['label'].iloc[-1]))}")
        else:
            parts.append("not ended")
        described.append(f"{group.name}: {', '.join(parts)}")
    more = f"; and {runs - len(groups)} more" if runs > len(groups) else ""
    return f"Timeline of {counted(runs, 'run')}; {'; '.join(described)}{more}."
