"""Runs, their branches and their sub-agents as a tree: a lane a run, each leaving the line of the run that it came from."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from agentlab.plots import _figure as look
from agentlab.plots._curves import END_MARKERS, Look, looks_of
from agentlab.plots._tree_data import Shown, tree_data

SHOWN_LANES = 40
"""So many runs are drawn; how many more there are is said below."""
DOTTED_STEPS = 60
"""Up to so many steps on the axis, each has its mark."""
WIDTH_INCHES = 9.0
ROOM_FOR_REASON = 0.2
"""Part of the width to the right of the longest run, for the words why it ended."""
NAME_WIDTH = 26
FORK_SIZE = 4.0
CALLED = (0, (3, 2))
"""The line from a run to one of a sub-agent."""


def tree(runs: Shown, ax: Axes | None = None) -> Axes:
    """Runs, their branches and the runs of their sub-agents over their steps, each leaving the line of the run that it came from.

    `runs` is a run, whose whole family is drawn, several runs or results in a list, a store, or the results of an experiment. A run
    is named by its place in the tree: `1.2` is the second that came from `1`. A sub-agent's leaves its caller's line dashed, at the
    step that called it. The mark and the words at the right of a line say why it ended. Returns the axes; see `tree_data` for what
    they show. Errors: ConfigurationError for anything else.

    Example:
        >>> branch = ended.fork(at=2)
        >>> lab.plots.tree(ended).alt
        'Tree of 2 runs: 1  anthropic:cla…e-sonnet-4-6, 4 steps, stop_condition; 1.1  anthropic:cla…e-sonnet-4-6...
    """
    return draw(tree_data(runs), ax)


def draw(data: pd.DataFrame, ax: Axes | None = None, *, marked: str | None = None, by_run: bool = False) -> Axes:
    """Draw what `tree_data` gave. The label of the run whose id is `marked` stands out; with `by_run` each run has a look of its own,
    not each provider."""
    lanes = _lanes(data)
    shown = lanes[:SHOWN_LANES]
    ax = look.axes_for(ax, "tree", WIDTH_INCHES, max(1.5, 0.7 + (0.28 if len(shown) <= 12 else 0.23) * len(shown)))
    look.style(ax)
    ax.spines["left"].set_visible(False)
    if not shown:
        ax.set_xticks([])
        ax.set_yticks([])
        look.note(ax, "no runs yet")
        look.set_alt(ax, "Tree of runs: no runs yet.")
        return ax
    longest = max(1, *(lane.last for lane in shown))
    in_order = sorted(
        lanes, key=lambda lane: [int(digits) for digits in lane.label.split(".")]
    )  # the order of a frame of the family
    looks = looks_of(_key(lane, by_run) for lane in in_order)
    places = {lane.run_id: lane for lane in shown}
    for lane in shown:
        _draw_lane(ax, lane, looks[_key(lane, by_run)], _origin(lane, places), longest)
    ax.set_yticks([lane.place for lane in shown], [lane.name for lane in shown])
    for text, lane in zip(ax.get_yticklabels(), shown, strict=True):
        text.set_parse_math(False)
        text.set_fontweight("bold" if lane.run_id == marked else "normal")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.grid(visible=True, axis="x", color=look.TEXT, alpha=0.2, linewidth=0.6)
    ax.set_xlabel("steps" + (f" (and {len(lanes) - len(shown)} more runs)" if len(shown) < len(lanes) else ""))
    ax.set_xlim(-0.015 * longest, longest / (1 - ROOM_FOR_REASON))
    ax.set_ylim(len(shown) - 0.4, -0.6)
    look.set_alt(ax, _alt(lanes))
    return ax


@dataclass(frozen=True, slots=True)
class _Lane:
    """One run as it is drawn: its line goes from `first` to `last` on the axis; `left_at` is the step of the run that it came from;
    `called` marks a sub-agent's."""

    run_id: str
    parent: str
    label: str
    key: tuple[str, str]
    place: int
    first: int
    last: int
    steps: int
    stop_reason: str | None
    left_at: int
    called: bool

    @property
    def name(self) -> str:
        return f"{self.label}  {'sub-agent ' * self.called}{look.shorten(':'.join(filter(None, self.key)), NAME_WIDTH)}"


def _key(lane: _Lane, by_run: bool) -> tuple[str, str]:
    return (lane.label, "") if by_run else lane.key


def _lanes(data: pd.DataFrame) -> list[_Lane]:
    return [
        _Lane(
            run_id=str(row["run_id"]),
            parent="" if pd.isna(row["parent_run_id"]) else str(row["parent_run_id"]),
            label=str(row["label"]),
            key=(str(row["provider"]), str(row["model"])),
            place=int(row["lane"]),
            first=int(row["first_step"]),
            last=int(row["last_step"]),
            steps=int(row["steps"]),
            stop_reason=None if pd.isna(row["stop_reason"]) else str(row["stop_reason"]),
            left_at=next((int(row[name]) for name in ("forked_at", "called_in") if not pd.isna(row[name])), 0),
            called=row["kind"] == "sub-agent",
        )
        for row in data.sort_values("lane").to_dict("records")
    ]


def _origin(lane: _Lane, places: dict[str, _Lane]) -> _Lane | None:
    """The run whose line it leaves, as in `tree_data`."""
    left = places.get(lane.parent)
    while left is not None and left.parent in places and lane.first < left.first and not left.called:
        left = places[left.parent]
    return left


def _draw_lane(ax: Axes, lane: _Lane, its: Look, left: _Lane | None, longest: int) -> None:
    if left is not None:  # in grey: forks at one step lie on each other
        ax.plot(
            [lane.first] * 2, [left.place, lane.place], marker="o", markevery=[0], markersize=FORK_SIZE, color=look.TEXT,
            linewidth=1.2, linestyle=CALLED if lane.called else "-", zorder=2,
            gid=look.gid("call" if lane.called else "fork", lane.run_id),
        )  # fmt: skip
    ax.plot(
        [lane.first, lane.last], [lane.place] * 2, color=its.colour, linestyle=its.line_style, linewidth=1.8, zorder=3,
        gid=look.gid("run", lane.run_id),
    )  # fmt: skip
    marks = range(lane.first + 1, lane.last + 1) if longest <= DOTTED_STEPS else [lane.last] * (lane.last > lane.first)
    ax.plot(
        list(marks), [lane.place] * len(marks), linestyle="none", marker=its.marker, markersize=4.5, color=its.colour, zorder=3,
        gid=look.gid("steps", lane.run_id),
    )  # fmt: skip
    if lane.stop_reason is None:
        stub = lane.last + 0.03 * longest / (1 - ROOM_FOR_REASON)
        ax.plot(
            [lane.last, stub], [lane.place] * 2, color=its.colour, linestyle=(0, (1, 1)), linewidth=1.8, zorder=2,
            gid=look.gid("open", lane.run_id),
        )  # fmt: skip
        at, words = stub, "not ended" if lane.last > lane.first else "not started"
    else:
        at, words = float(lane.last), look.shorten(lane.stop_reason, 20)
        ax.plot(
            [at], [lane.place], marker=END_MARKERS.get(lane.stop_reason, "H"), markersize=10, markerfacecolor="none",
            markeredgecolor=look.TEXT, markeredgewidth=1.4, linestyle="none", zorder=4, clip_on=False,
            gid=look.gid("end", lane.stop_reason),
        )  # fmt: skip
    ax.annotate(
        words, (at, lane.place), (9, 0), textcoords="offset points", va="center", color=look.TEXT,
        fontsize=look.SMALL_POINTS, parse_math=False, gid="reason",
    )  # fmt: skip


def _alt(lanes: list[_Lane]) -> str:
    labels = {lane.run_id: lane.label for lane in lanes}
    told = []
    for lane in lanes[:SHOWN_LANES]:
        came = "called by" if lane.called else "from"
        forked = f" {came} {labels[lane.parent]} at step {lane.left_at}" if lane.parent in labels else ""
        steps = f"{lane.steps} step{'s' * (lane.steps != 1)}"
        told.append(f"{lane.name}{forked}, {steps}, {look.spoken(lane.stop_reason or 'not ended')}")
    more = f"; and {len(lanes) - SHOWN_LANES} more" if len(lanes) > SHOWN_LANES else ""
    return f"Tree of {len(lanes)} run{'s' * (len(lanes) != 1)}: {'; '.join(told)}{more}."
