"""The outcome of limits on recorded runs: figures, a coarse grid of other limits, their HTML and their picture.

Runs that would continue under these limits are unknown, and they are mostly the long ones, so a mean over the known runs is too low for
all runs. It is shown only if most runs are known, with their number, and compared with the record of the same runs. The share that
reached the goal is then a range: from none to all of the unknown runs.
"""

from __future__ import annotations

import io
import itertools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from agentlab._internal.formatting import counted
from agentlab.analysis import backtest
from agentlab.analysis.backtest import Cells, Sums
from agentlab.analysis.grids import Grid, grids, plain_value
from agentlab.analysis.intervals import MEAN_UNITS, MIN_UNITS
from agentlab.analysis.records import USED, Bools, Records, units_of
from agentlab.analysis.simulate import FINISHED, STOPPED, UNKNOWN, Ends, Judge, Verdict
from agentlab.model.finish_reasons import StopReason
from agentlab.notebook import markup
from agentlab.notebook.explorer.limits import KINDS, Offer, RecordedLimits, Value, grid_of
from agentlab.notebook.live_view import Picture
from agentlab.plots import figure as look
from agentlab.plots.what_if_frontier import MOST_UNKNOWN, draw_what_if, number, what_if_data

LEVEL = 0.95
MOST_CONFIGURATIONS = 1_000
GRID_NAMES = ("StepCountIs", "max_turns", "MaxCost", "max_cost", "MaxTokensUsed", "max_tokens")
MOST_AXES = 3
"""Maximum number of limits that are tried in combination. Each limit is also tried alone."""
FINISHED_WORD, UNKNOWN_WORD = "ended as recorded", "unknown: the record ends earlier"
FAILED_WORD = "ended as recorded, with an error"
UNCLEAR_WORD = "one of these limits, unknown which"


@dataclass(frozen=True, slots=True)
class Tried:
    """The outcome of limits: `row` has the figures by the column names of `lab.backtest`, None if unknown; `ends` has the number of
    runs per reason, beginning with the runs that the limits stopped."""

    chosen: Mapping[str, Value]
    row: Mapping[str, Any]
    ends: Sequence[tuple[str, int]]
    frame: pd.DataFrame
    unit: str = "run"
    """The independent unit: a prompt, a recording or a run."""
    is_record: bool = False
    """True if the limits are those that the runs had."""


class Trials:
    """Tries limits on the same records.

    `opening` has the recorded limits that have sliders. A limit without a slider, or that is unchanged, stays as it was in each run: it
    still ends the runs that it ended.
    """

    def __init__(
        self, records: Records, offered: Mapping[str, Offer], recorded: RecordedLimits, goal: backtest.Goal = None
    ) -> None:
        self.records, self._recorded = records, recorded
        self.offered = {name: offer for name, offer in offered.items() if offer.values}
        self.opening = {name: recorded.shared.get(name) for name in self.offered}
        goal_rows, goal_open = backtest.goal_reached(records, goal)
        self.judge = Judge(records, _all_stops(self.offered), goal_rows, goal_open)
        self._last = {name: records.at_the_end(name) for name in USED}
        self.units = units_of(records.about)
        self._cells = Cells(self.units.codes)
        self.longest = int(records.lengths.max(initial=0))
        self._as_it_was = self._as_recorded()
        known = self._of_verdict(self.opening, self._as_it_was, self._ends(None, ~records.own_end))
        self.record = replace(known, is_record=True)

    def of(self, chosen: Mapping[str, Value]) -> Tried:
        """Return the outcome of these limits over all runs; that of the record if they are the recorded limits."""
        if chosen == self.opening:
            return replace(self.record, chosen=chosen)
        verdict, stayed = self._verdict(chosen)
        return self._of_verdict(chosen, verdict, self._ends(verdict, stayed))

    def add_to(self, sums: Sums, number: int, chosen: Mapping[str, Value]) -> None:
        """Add the outcome of these limits to `sums`."""
        sums.add(number, self._as_it_was if chosen == self.opening else self._verdict(chosen)[0], self._last, self._cells)

    def complete(self, chosen: Mapping[str, Value]) -> dict[str, Value]:
        """Return the chosen limits, without those that stay as they were in each run, and the limits without a slider that all runs
        had."""
        differing = self._recorded.differing
        return {**self._recorded.shared, **{n: value for n, value in chosen.items() if value is not None or n not in differing}}

    def _verdict(self, chosen: Mapping[str, Value]) -> tuple[Verdict, Bools]:
        """Return the verdict of these limits, and the runs that an unchanged limit ends as recorded."""
        verdict = self.judge.verdict(grid_of(self.complete(chosen)), ())
        changed = {name for name, value in chosen.items() if value != self.opening[name]}
        stayed: Bools = (verdict.outcome == UNKNOWN) & self._recorded.stays(changed)
        if stayed.any():
            was = self._as_it_was
            verdict.outcome[stayed], verdict.row[stayed], verdict.goal[stayed] = STOPPED, was.row[stayed], was.goal[stayed]
            for name, values in verdict.used.items():
                values[stayed] = was.used[name][stayed]
        return verdict, stayed

    def _of_verdict(self, chosen: Mapping[str, Value], verdict: Ends, ends: Sequence[tuple[str, int]]) -> Tried:
        sums = Sums(1, 1)
        sums.add(0, verdict, self._last, self._cells)
        columns = sums.columns(LEVEL)
        row = {name: None if pd.isna(values[0]) else np.asarray(values[0]).item() for name, values in columns.items()}
        frame = pd.DataFrame({**limit_columns(self.offered, [chosen]), **columns})
        return Tried(chosen, row, ends, frame, self.units.what)

    def _ends(self, verdict: Verdict | None, stayed: Bools) -> list[tuple[str, int]]:
        """Return the number of runs per reason for their end. `stayed` are the runs that recorded limits ended."""
        outcome = self._as_it_was.outcome if verdict is None else verdict.outcome
        stopped = Counter() if verdict is None else Counter(self._fired(verdict, (outcome == STOPPED) & ~stayed))
        by_recorded = dict(self._recorded.ends)
        left = stayed & ~np.any(list(by_recorded.values()), axis=0)
        for reason, count in Counter(self.records.reason[left].tolist()).items():
            stopped["not ended" if reason is None else str(reason)] += count
        stopped += _together(by_recorded, stayed)
        found = sorted(stopped.items(), key=lambda one: (-one[1], one[0]))
        ended, unknown = outcome == FINISHED, int((outcome == UNKNOWN).sum())
        failed = int((self.records.reason[ended] == StopReason.ERROR).sum())
        errors = [(FAILED_WORD, failed)] if failed else []
        return [*found, (FINISHED_WORD, int(ended.sum()) - failed), *errors, (UNKNOWN_WORD, unknown)]

    def _fired(self, verdict: Verdict, stopped: Bools) -> Mapping[str, int]:
        """Return the number of runs per set of limits that stopped them together.

        `backtest.why_ended` names the limits run by run, which is slow, so they are only counted if possible.
        """
        found = verdict.found
        off = stopped & found.cuts.is_cut
        if self.records.histories is not None and off.any():
            return Counter(name or UNCLEAR_WORD for name in backtest.why_ended(self.judge, verdict)[1][stopped].tolist())
        met = stopped & (found.met == verdict.row)
        unclear = met & (found.cuts.is_cut | found.cuts.unsure)
        leaves = [] if found.tree is None else list(found.tree.leaves())
        counts = _together({type(leaf).__name__: self.judge.first_of(leaf) <= verdict.row for leaf in leaves}, met & ~unclear)
        counts[UNCLEAR_WORD] = int(unclear.sum())
        by_limit = found.cuts.by[stopped & ~met]
        for place, limit in enumerate(found.limits):
            counts[limit.name] += int((by_limit == place).sum())
        return +counts

    def _as_recorded(self) -> Ends:
        """Return the ends in the record itself."""
        records, judge = self.records, self.judge
        outcome = np.where(records.own_end, FINISHED, STOPPED).astype(np.uint8)
        done = np.where(judge.goal_open < records.lengths, np.nan, (judge.goal < records.lengths).astype(float))
        return Ends(outcome, records.lengths - 1, self._last, done, np.zeros(len(records), bool))


def _together(names: Mapping[str, Bools], where: Bools) -> Counter[str]:
    """Return the number of runs in `where` per set of names that are true together, joined to one text."""
    bits, counts = np.zeros(len(where), np.int64), Counter[str]()
    for place, those in enumerate(names.values()):
        bits |= those.astype(np.int64) << place
    for bits_of_run, count in enumerate(np.bincount(bits[where], minlength=1)):
        if count and bits_of_run:
            counts[", ".join(name for place, name in enumerate(names) if bits_of_run >> place & 1)] += int(count)
    return counts


def _all_stops(offered: Mapping[str, Offer]) -> list[Grid]:
    """Return a grid per limit with all its values, so that the judge prepares them together."""
    found: list[Grid] = []
    for name, offer in offered.items():
        kind = offer.kind
        if kind.measure == "tools":
            continue
        values = list(offer.values)
        found += grids(kind.condition(values), None) if kind.leaf is not None else grids(None, {name: values})
    return found


def limit_columns(offered: Mapping[str, Offer], several: Sequence[Mapping[str, Value]]) -> dict[str, Any]:
    """Return columns with the limits of several configurations; NA means no limit."""
    found = {}
    for name in offered:
        values = [plain_value(one.get(name)) for one in several]
        found[name] = (
            pd.Series(values, dtype=object).convert_dtypes().array
            if any(v is not None for v in values)
            else (pd.array([pd.NA] * len(values), dtype="string" if KINDS[name].measure == "tools" else "Float64"))
        )
    return found


# The others -----------------------------------------------------------------------------------------------------------------------


class Others:
    """The coarse grid, tried one configuration at a time."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self.several = coarse(trials.offered, trials.opening)
        self._sums = Sums(len(self.several), 1)
        self.done = 0
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        """True if all configurations were tried."""
        return self.done >= len(self.several)

    def one_more(self) -> None:
        """Try the next configuration, from any thread."""
        with self._lock:
            if not self.over:
                self._trials.add_to(self._sums, self.done, self.several[self.done])
                self.done += 1  # last: other threads read the finished ones

    def finish(self) -> None:
        """Try all remaining configurations."""
        while not self.over:
            self.one_more()

    def frame(self) -> pd.DataFrame:
        """Return one row per tried configuration, with the columns of `lab.backtest`."""
        done = self.done
        front = limit_columns(self._trials.offered, self.several[:done])
        columns = self._sums.first(done).columns(LEVEL)
        return pd.DataFrame({"configuration": np.arange(done), **front, **columns})


def coarse(offered: Mapping[str, Offer], opening: Mapping[str, Value]) -> list[dict[str, Value]]:
    """Return at most MOST_CONFIGURATIONS variations of the recorded limits: each limit alone, and up to three combined. Tools stay as
    they were, since an end at the first call of any tool would count as success."""
    numbers = {name: offer.values for name, offer in offered.items() if offer.kind.measure != "tools"}
    alone: list[dict[str, Value]] = [{name: value} for name, values in numbers.items() for value in values]
    alone += [{}]
    of_measure = {offered[name].kind.measure: name for name in reversed(GRID_NAMES) if name in numbers}
    axes = [name for name in GRID_NAMES if name in of_measure.values()][:MOST_AXES]
    left = MOST_CONFIGURATIONS - len(alone)
    each = int(max(left, 0) ** (1 / len(axes))) if len(axes) > 1 else 0
    thinned = {name: spread(numbers[name], each) for name in axes}
    together = [dict(zip(axes, values, strict=True)) for values in itertools.product(*thinned.values())] if each > 1 else []
    whole = [{**opening, **one} for one in (*alone, *together)]
    return list({tuple(one.items()): one for one in whole}.values())[:MOST_CONFIGURATIONS]


def spread(values: Sequence[Value], count: int) -> list[Value]:
    """Return at most `count` of these values, evenly spread, with the last one."""
    if len(values) <= count or not values:
        return list(values)
    return [values[round((place + 1) * (len(values) - 1) / count)] for place in range(count)]


HEADS = ("mean per run", "these limits", "95% interval", "compared with the record", "unknown")
FIGURES = {"cost": "cost", "tokens": "tokens", "step": "steps", "time": "seconds"}
MOST_UNKNOWN_FOR_A_MEAN = 0.5
"""If a figure is unknown for a larger share of the runs, no mean is shown."""


def summary_html(tried: Tried, record: Tried) -> str:
    """Return the main figures in one line, which screen readers announce when it changes. Tokens take the place of an unknown cost."""
    row, used = tried.row, "tokens" if record.row["cost_unknown"] == 1 else "cost"
    unknown = f", <b>{share(row['unknown_share'])}</b> of the runs unknown" if row["unknown_share"] else ""
    recorded = ", as recorded" if tried.is_record else ""
    several = f", {counted(row['units'], f'independent {tried.unit}')}" if row["units"] < row["runs"] else ""
    return (
        f'<div class="agentlab-status" role="status"><span><b>{reached(row)}</b> reached the goal</span> <span>{used} '
        f"<b>{mean(row, used)}</b></span><span>{row['runs']:,} run{'s' * (row['runs'] != 1)}{several}{recorded}{unknown}</span></div>"
    )


def reached(row: Mapping[str, Any]) -> str:
    """Return the share that reached the goal as text; a range if some runs are unknown."""
    if row["success_unknown"] == 1:
        return "unknown"
    least, most = share(row["success_at_least"]), share(row["success_at_most"])
    return share(row["success_rate"]) if not row["success_unknown"] or least == most else f"{least} to {most}"


def mean(row: Mapping[str, Any], prefix: str) -> str:
    """Return a mean per run as text, with the number of known runs if some are unknown; no mean if most are unknown."""
    unknown, name = unknown_of(row, prefix), f"{prefix}_mean"
    known = row["runs"] - round(unknown * row["runs"])
    if unknown > MOST_UNKNOWN_FOR_A_MEAN or row[name] is None:
        return f"unknown for {row['runs'] - known:,} of {row['runs']:,} runs"
    return _number(row[name], name) + (f" per run, of the {known:,} known" if unknown else " per run")


def unknown_of(row: Mapping[str, Any], prefix: str) -> float:
    """Return the share of the runs for which a figure is unknown."""
    return float(row["unknown_share"] if prefix == "step" else row[f"{prefix}_unknown"])


def figures_html(tried: Tried, record: Tried, *, timed: bool = True) -> str:
    """Return a table of the figures, each with its interval, the difference from the record of the same runs, and the share of unknown
    runs. What is unknown in all recorded runs is left out, and seconds are unless `timed`: they differ at every execution."""
    row = tried.row
    known = not row["success_unknown"]
    interval = _interval(row, "success", share) if known else "none: not all known"
    rows: list[Sequence[object]] = [
        ("reached the goal", reached(row), interval, _points(row, record.row), _unknown(row["success_unknown"]))
    ]
    for prefix, label in FIGURES.items():
        if (prefix == "time" and not timed) or unknown_of(record.row, prefix) == 1:
            continue
        name, unknown = f"{prefix}_mean", unknown_of(row, prefix)
        few = unknown > MOST_UNKNOWN_FOR_A_MEAN
        saved = None if few else _steps_saved(row, record.row) if prefix == "step" else row[f"{prefix}_saved"]
        interval = "none: not all known" if unknown else _interval(row, prefix, lambda value, name=name: _number(value, name))
        shown = mean(row, prefix).replace(" per run", "")
        rows.append((label, shown, interval, _against(saved, row[name], name, same=bool(unknown)), _unknown(unknown)))
    return markup.table(HEADS, rows, numbers=(1, 2, 4), css="agentlab-figures")


def ends_html(tried: Tried) -> str:
    """Return a table of the number of runs per reason."""
    rows = [(label, f"{count:,}", share(count / tried.row["runs"])) for label, count in tried.ends]
    return markup.table(("ended by", "runs", "share"), rows, numbers=(1, 2))


def code_html(text: str) -> str:
    """Return the code to copy as HTML."""
    return f'<pre class="agentlab-to-copy" tabindex="0" aria-label="Code for agent.run(…)">{markup.escape(text, 2000)}</pre>'


def share(value: float | None) -> str:
    """Return a share in percent, with one decimal near 0 and 1."""
    if value is None:
        return "unknown"
    return f"{value:.0%}" if value in (0, 1) or 0.01 <= value <= 0.99 else f"{value:.1%}"


def _unknown(value: float | None) -> str:
    return "all" if value in (None, 1) else share(value)


def _number(value: float | None, name: str) -> str:
    if value is None:
        return "unknown"
    if name == "step_mean":
        return f"{float(value):.1f}"
    if name == "time_mean":
        return f"{float(value):.3g}"
    return number(float(value), name).removesuffix(" tokens")


def _interval(row: Mapping[str, Any], prefix: str, words: Any) -> str:
    low, high = row[f"{prefix}_low"], row[f"{prefix}_high"]
    if low is not None and high is not None:
        return f"{words(low)} – {words(high)}"
    needed = MIN_UNITS if prefix == "success" else MEAN_UNITS
    if row["units"] < needed:
        return f"none: {counted(row['units'], 'independent unit')}, and {needed} are needed"
    return "none" if row[f"{prefix}_mean"] is None else "none: all the same, or units of very unequal size"


def _against(saved: float | None, mean: float | None, name: str, *, same: bool) -> str:
    """Return the saving per run as text; `same` says that it is on the known runs only."""
    if saved is None or mean is None:
        return "unknown"
    where = " on these runs" if same else ""
    whole = float(saved) + float(mean)
    if abs(saved) < 1e-12 or not whole:
        return f"the same{where}"
    part = abs(float(saved)) / whole
    return f"{_number(abs(float(saved)), name)} {'less' if saved > 0 else 'more'} ({share(part)}){where}"


def _steps_saved(row: Mapping[str, Any], record: Mapping[str, Any]) -> float | None:
    """Return the saved steps; None if some runs are unknown, since the means are then of different runs."""
    if row["unknown_share"] or row["step_mean"] is None or record["step_mean"] is None:
        return None
    return float(record["step_mean"]) - float(row["step_mean"])


def _points(row: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Return the difference of two shares in percentage points; unknown unless both are known for all runs."""
    mine, its = row["success_rate"], record["success_rate"]
    if mine is None or its is None or row["success_unknown"] or record["success_unknown"]:
        return "unknown"
    points = round(100 * (float(mine) - float(its)), 1)
    if not points:
        return "the same"
    return f"{abs(points):g} point{'s' * (abs(points) != 1)} {'more' if points > 0 else 'less'}"


def saving(tried: Tried, record: Tried, stem: str) -> str:
    """Return what these limits would have saved and lost, in a sentence. `stem` is the figure on the axis."""
    row = tried.row
    if tried.is_record:
        return f"As recorded: {mean(row, stem)}\nReached the goal: {reached(row)}"
    saved = _steps_saved(row, record.row) if stem == "step" else row[f"{stem}_saved"]
    if saved is None or unknown_of(row, stem) > MOST_UNKNOWN_FOR_A_MEAN:
        return f"Most runs would have gone on ({share(row['unknown_share'])}):\nwhat is saved is unknown"
    name = f"{stem}_mean"
    against = _against(saved, row[name], name, same=bool(unknown_of(row, stem)))
    what = {"cost": "Cost", "tokens": "Tokens", "step": "Steps"}[stem]
    return f"{what} per run: {against}\nReached the goal: {reached(row)}, as recorded {reached(record.row)}"


def _main_ends(tried: Tried) -> list[tuple[str, int]]:
    """Return the reasons that ended runs, the most frequent first; the rest are counted together."""
    found = sorted((one for one in tried.ends if one[1]), key=lambda one: -one[1])
    rest = found[MOST_ENDS - 1 :]
    return (
        found if len(found) <= MOST_ENDS else [*found[: MOST_ENDS - 1], (f"{len(rest)} others", sum(count for _, count in rest))]
    )


def _ends_in_words(tried: Tried) -> str:
    parts = [f"{label} {share(count / tried.row['runs'])}" for label, count in _main_ends(tried)]
    return f"Runs ended by: {', '.join(parts)}."


WIDTH, HEIGHT = 6.4, 5.1
SCALE = 1.5
Y = "success_rate"
MOST_ENDS = 5
"""Reasons in the picture; the rest are counted together."""
_POINTS_AT, _ENDS_AT = (0.105, 0.335, 0.875, 0.475), (0.01, 0.005, 0.98, 0.22)
"""Left edge, bottom, width and height of both parts, as shares of the picture."""
_BAR_FROM, _BAR_TO = 0.36, 0.84
"""Where the bars of the reasons begin and end, as shares of the width."""


class TradeOff:
    """Draws cost and success of the chosen limits, the record and other limits as points with their Pareto frontier, says what the
    chosen limits would have saved, and has a bar for each reason that ended runs.

    The figure is reused while the other points are the same: only what belongs to the chosen limits is drawn again.
    """

    def __init__(self, record: Tried) -> None:
        self._record = record
        self._lock = threading.Lock()
        known = [
            stem for stem in ("cost", "tokens") if record.row[f"{stem}_mean"] and unknown_of(record.row, stem) <= MOST_UNKNOWN
        ]
        self.x = f"{known[0] if known else 'step'}_mean"
        self._others: pd.DataFrame | None = None
        self._made = False
        self._still: Any = None
        self._ends: list[Artist] = []

    def compare_with(self, others: pd.DataFrame) -> None:
        """Draw these other limits from now on: a frame with the columns of `lab.backtest`."""
        with self._lock:
            self._others, self._made = what_if_data(others, self.x, Y), False

    def draw(self, tried: Tried) -> Picture:
        """Return the picture with these limits as the chosen point."""
        with self._lock:
            if not self._made:
                self._make()
            self._place(tried)
            width, height = round(WIDTH * look.DPI), round(HEIGHT * look.DPI)
            return Picture(self._png(), f"{self._alt(tried)} {self._axes.alt} {_ends_in_words(tried)}", width, height)

    def _make(self) -> None:
        self._ends = []
        others = what_if_data(self._record.frame.iloc[:0], self.x, Y) if self._others is None else self._others
        figure = look.new_figure(WIDTH, HEIGHT)
        figure.set_dpi(look.DPI * SCALE)
        self._canvas: Any = FigureCanvasAgg(figure)
        figure.set_layout_engine("none")
        self._axes, self._below = (look.new_axes(figure, 2, 1, place) for place in (1, 2))
        self._axes.set_position(_POINTS_AT)
        self._below.set_position(_ENDS_AT)
        self._below.set_axis_off()
        self._below.set(xlim=(0, 1), ylim=(MOST_ENDS - 0.5, -1.5))
        heading = "share of runs ended by"
        self._below.text(_BAR_FROM - 0.01, -1, heading, ha="right", va="center", color=look.TEXT, fontsize=look.TEXT_POINTS)
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
        self._way = self._axes.annotate(
            "", at or (0, 0), at or (0, 0), zorder=4, animated=True, annotation_clip=False, gid="way",
            arrowprops={"arrowstyle": "->", "color": look.VERMILLION, "linewidth": 1.4, "linestyle": "--", "shrinkA": 6, "shrinkB": 6},
        )  # fmt: skip
        self._saved = figure.text(
            0.01, 0.985, "", va="top", color=look.TEXT, fontsize=look.TEXT_POINTS + 1.5, fontweight="bold", linespacing=1.35,
            animated=True, gid="saved", parse_math=False,
        )  # fmt: skip
        if at:
            self._reach(at[0])
        self._figure, self._still = figure, None
        self._made = True

    def _png(self) -> bytes:
        """Return the picture as PNG. The fixed part is drawn once, and the chosen point over it each time."""
        if self._still is None:
            self._canvas.draw()
            self._still = self._canvas.copy_from_bbox(self._figure.bbox)
        self._canvas.restore_region(self._still)
        for artist in (*self._bars, self._way, self._mark, self._saved, *self._ends):
            self._figure.draw_artist(artist)
        out = io.BytesIO()
        picture = Image.fromarray(np.asarray(self._canvas.buffer_rgba()))
        picture.save(out, format="png", compress_level=1)  # a smaller file would take longer than everything else
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
        was = self._point(self._record)
        self._way.set_visible(at is not None and was is not None and at != was)
        if at is not None and was is not None:
            self._way.xy, self._way.xyann = at, was
        self._saved.set_text(saving(tried, self._record, self._stem))
        self._ends = self._ends_of(tried)
        if at is not None:
            self._reach(max([at[0], *(float(end) for end in ends["x"] if end is not None)]))

    def _ends_of(self, tried: Tried) -> list[Artist]:
        """Return a label, a bar and the number of runs for each reason."""
        found: list[Artist] = []
        for artist in self._ends:
            artist.remove()
        for place, (label, count) in enumerate(_main_ends(tried)):
            part = count / tried.row["runs"]
            text: dict[str, Any] = {"va": "center", "color": look.TEXT, "fontsize": look.SMALL_POINTS, "parse_math": False}
            known = label != UNKNOWN_WORD
            colour = look.BLUE if label in (FINISHED_WORD, FAILED_WORD) else look.VERMILLION
            found += self._below.barh(
                [place], [part * (_BAR_TO - _BAR_FROM)], 0.6, left=_BAR_FROM, color=colour if known else "none",
                edgecolor=colour if known else look.TEXT, linestyle="-" if known else "--", hatch="" if colour == look.BLUE else "///",
            )  # fmt: skip
            found.append(self._below.text(_BAR_FROM - 0.01, place, look.shorten(label, 44), ha="right", **text))
            found.append(
                self._below.text(_BAR_FROM + part * (_BAR_TO - _BAR_FROM) + 0.01, place, f"{share(part)}  {count:,}", **text)
            )
        for artist in found:
            artist.set_animated(True)
        return found

    def _reach(self, x: float) -> None:
        """Extend the axis to x."""
        if x > self._axes.get_xlim()[1]:
            self._axes.set_xlim(0, x * 1.06)
            self._still = None

    @property
    def _stem(self) -> str:
        return self.x.removesuffix("_mean")

    def _point(self, tried: Tried) -> tuple[float, float] | None:
        """Return the coordinates of a point; None if too much is unknown to compare means."""
        x, y = tried.row[self.x], tried.row[Y]
        unknown = max(unknown_of(tried.row, self._stem), tried.row["success_unknown"])
        return None if x is None or y is None or unknown > MOST_UNKNOWN else (float(x), float(y))

    def _alt(self, tried: Tried) -> str:
        parts = []
        for name, one in (("These limits", tried), ("The record", self._record)):
            at = self._point(one)
            words = "not drawn" if at is None else f"{number(at[1], Y)} reached the goal at {number(at[0], self.x)} per run"
            parts.append(f"{name}: {words}, {one.row['unknown_share']:.0%} unknown.")
        return " ".join(parts)
