"""Runs, their branches and their child runs as a tree: data and drawing.

Each run has a lane, and its line begins at the line of its parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd
from matplotlib.axes import Axes

from agentlab._internal.formatting import counted
from agentlab._internal.names import helps_with_keywords
from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import whole
from agentlab.agent import Run
from agentlab.analysis.groups import names_of, typed_frame
from agentlab.engine.lockstep import Lockstep
from agentlab.engine.run_tree import RunNode, family_of, members_of, origin_of
from agentlab.errors import ConfigurationError
from agentlab.plots import figure as look
from agentlab.plots.figure import END_MARKERS, ROOM_FOR_REASON
from agentlab.plots.series import Look, looks_of, what_differs
from agentlab.records.events import changes_between
from agentlab.records.history import RunHistory
from agentlab.records.result import RunResult
from agentlab.storage.store import Store

Displayable: TypeAlias = Run | RunResult | Iterable[Run | RunResult] | Lockstep | Store | Any
"""Any: the results of an experiment, which have their runs in `loaded`."""

SHOWN_LANES = 40
"""Maximum number of runs drawn; the axis label counts the rest."""
DOTTED_STEPS = 60
"""Each step has a mark if the axis has at most this number of steps."""
WIDTH_INCHES = 9.0
NAME_WIDTH, CHANGED_WIDTH = 26, 40
FORK_SIZE = 4.0
CALLED = (0, (3, 2))
"""The line style from a run to the run of its sub-agent."""
ADVICE = "pass a run, a list of runs or results, a store, or the results of an experiment"
_COLUMNS = {
    "run_id": "string",
    "parent_run_id": "string",
    "forked_at": "Int64",
    "called_in": "Int64",
    "kind": "string",
    "first_step": "Int64",
    "last_step": "Int64",
    "steps": "Int64",
    "lane": "Int64",
    "provider": "string",
    "model": "string",
    "agent": "string",
    "label": "string",
    "changed": "string",
    "stop_reason": "string",
    "terminated": "boolean",
    "tokens": "Int64",
    "cost_usd": "Float64",
}

# Data ----------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def tree_data(runs: Displayable) -> pd.DataFrame:
    """Return runs, their branches and their sub-agents' runs, one row per run, from the top lane down.

    Columns: `run_id`, `parent_run_id`, `forked_at` (number of steps copied from the parent; NA: not a branch), `called_in` (the step of
    the caller; NA: not a sub-agent); `kind` (`run`, `branch` or `sub-agent`); `first_step` and `last_step`, the ends of the run's line
    on the axis of the first run's steps (a sub-agent's line begins at the step that called it; 0 if the parent is not shown); `steps`,
    `lane`, `provider`, `model`, `agent` (its name; NA: a result, which has none); `label`, the run's place in the tree (`1.2` is the
    second child of `1`); `changed`, the new limits of a branch in its first own step (NA: as before, or no such step); `stop_reason`
    and `terminated` (NA: not ended), `tokens` and `cost_usd` of the whole run, sub-agents included (NA: unknown).

    `runs` is a run, whose relatives are shown too, a list of runs or results, a Lockstep, a Store, or the results of an experiment.
    Forks of later steps are nearer to the line of their parent, so that no two lines cross; those of one step are in order.

    Example:
        >>> branch = ended.fork(at=2)
        >>> lab.plots.tree_data(ended).columns.tolist()
        ['run_id', 'parent_run_id', 'forked_at', 'called_in', 'kind', 'first_step', 'last_step', 'steps', 'lane'...
    """
    return typed_frame([_row(*member, lane) for lane, member in enumerate(_in_lanes(_members(runs)))], _COLUMNS)


def _members(runs: object) -> Sequence[RunNode[Any]]:
    if isinstance(runs, Run):
        return family_of(runs)
    if isinstance(runs, Store):
        runs = [runs.load(run_id) for run_id in runs.run_ids()]
    elif isinstance(runs, Lockstep):
        runs = runs.runs
    elif isinstance(runs, RunResult):
        runs = [runs]
    runs = getattr(runs, "loaded", runs)
    if not isinstance(runs, Iterable) or isinstance(runs, str | bytes | pd.DataFrame):
        raise ConfigurationError(f"lab.plots.tree() cannot show {type(runs).__name__}: {ADVICE}.")
    several = list(runs)
    for one in several:
        if not isinstance(one, Run | RunResult):
            raise ConfigurationError(f"lab.plots.tree() cannot show {type(one).__name__}: {ADVICE}.")
    return members_of(several)


def _in_lanes(members: Sequence[RunNode[Any]]) -> list[tuple[RunNode[Any], RunNode[Any] | None]]:
    """Return the runs from the top lane down, each with the run at whose line it begins."""
    leaving: dict[str | None, list[RunNode[Any]]] = {}
    origins = {member.run_id: _origin(member) for member in members}
    for member in members:
        left = origins[member.run_id]
        leaving.setdefault(None if left is None else left.run_id, []).append(member)
    ordered: list[tuple[RunNode[Any], RunNode[Any] | None]] = []
    waiting = leaving.get(None, [])[::-1]
    while waiting:
        member = waiting.pop()
        ordered.append((member, origins[member.run_id]))
        last_first = leaving.get(member.run_id, [])[::-1]
        waiting += sorted(last_first, key=_leaves_at)  # taken from the end: the last step first, at one step the first branch
    return ordered


def _origin(member: RunNode[Any]) -> RunNode[Any] | None:
    """Return the run at whose line a branch begins: that which took the forked step, also if the parent copied it from there."""
    left = member.parent
    while left is not None and left.parent is not None and _leaves_at(member) < left.forked_at:
        left = left.parent
    return left


def _leaves_at(member: RunNode[Any]) -> int:
    """Return the number of steps of the parent after which the line begins."""
    return member.forked_at if member.called_in is None else member.called_in


def _row(member: RunNode[Any], left: RunNode[Any] | None, lane: int) -> tuple[Any, ...]:
    offset, one = 0, member  # the place on the axis of the run's step 0, steps copied by a fork included
    while one.parent is not None:
        offset += one.called_in or 0
        one = one.parent
    run = member.run
    origin = origin_of(run)
    result = run if isinstance(run, RunResult) else run.result
    model = (run.provider, run.model) if isinstance(run, RunResult) else (run.agent.model.name, run.agent.model.model)
    history = run.history
    return (
        member.run_id,
        origin.parent_run_id,
        origin.forked_at,
        origin.parent_step if origin.forked_at is None else None,
        "branch" if origin.forked_at is not None else "run" if origin.parent_step is None else "sub-agent",
        0 if left is None else offset + member.forked_at,
        offset + len(history),
        len(history),
        lane,
        *map(whole, model),
        None if isinstance(run, RunResult) else whole(run.agent.name),
        member.name,
        _changed(history, origin.forked_at or 0) or None,
        None if result is None else str(result.stop_reason),
        None if result is None else result.terminated,
        history.tokens,
        None if history.cost_usd is None else float(history.cost_usd),
    )


def _changed(history: RunHistory, forked_at: int) -> str:
    """Return in words the limits that a branch's first own step has, and the last step that it kept has not."""
    if not 0 < forked_at < len(history):
        return ""
    changes = changes_between(history[forked_at - 1].settings, history[forked_at].settings)
    return whole(redact(", ".join(f"{change.partition(' ')[0]} {change.partition(' -> ')[2]}" for change in changes)))


# Drawing -------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def tree(runs: Displayable, ax: Axes | None = None) -> Axes:
    """Draw runs, their branches and their sub-agents' runs as lines over their steps; each begins at the line of its parent.

    `runs` is a run, whose relatives are drawn too, a list of runs or results, a store, or the results of an experiment. A run is named
    by its place in the tree (`1.2` is the second child of `1`), and by its agent or model; a branch on the model of its parent by the
    limits that were changed. A sub-agent's line begins with a dashed connection at the step of the caller. The mark and the words at
    the right end of a line show why the run ended. Returns the axes; see `tree_data` for their data. Errors: ConfigurationError for
    anything else.

    Example:
        >>> branch = ended.fork(at=2)
        >>> lab.plots.tree(ended).alt
        'Tree of 2 runs: 1  claude-sonnet-4-6, 4 steps, stop_condition; 1.1  claude-sonnet-4-6 forked from 1...
    """
    lanes = _lanes(tree_data(runs))
    shown = lanes[:SHOWN_LANES]
    ax = look.axes_for(ax, "tree", WIDTH_INCHES, max(1.5, 0.7 + (0.28 if len(shown) <= 12 else 0.23) * len(shown)))
    look.style(ax, left=False)
    if not shown:
        return look.nothing(ax, "no runs yet", "tree of runs")
    longest = max(1, *(lane.last for lane in shown))
    in_order = sorted(lanes, key=lambda lane: [int(digits) for digits in lane.label.split(".")])  # as in a frame of the family
    looks = looks_of(lane.series for lane in in_order)
    places = {lane.run_id: lane for lane in shown}
    for lane in shown:
        _draw_lane(ax, lane, looks[lane.series], _line_left(lane, places), longest)
    look.names_axis(ax, [lane.name for lane in shown], [lane.place for lane in shown])
    look.step_axis(ax, "steps" + (f" (and {counted(len(lanes) - len(shown), 'more run')})" if len(shown) < len(lanes) else ""))
    look.grid(ax, "x")
    ax.set_xlim(-0.015 * longest, longest / (1 - ROOM_FOR_REASON))
    ax.set_ylim(len(shown) - 0.4, -0.6)
    look.set_alt(ax, _alt(lanes))
    return ax


@dataclass(frozen=True, slots=True)
class _Lane:
    """One run as drawn: its line from `first` to `last` on the axis. `left_at` is the step of its parent; `called` is True for a
    sub-agent."""

    run_id: str
    parent: str
    label: str
    series: str
    """The name of its agent or model, as far as they differ."""
    changed: str
    """For a branch on the model of its parent."""
    place: int
    first: int
    last: int
    steps: int
    stop_reason: str | None
    left_at: int
    called: bool

    @property
    def name(self) -> str:
        name, width = (self.changed, CHANGED_WIDTH) if self.changed else (self.series, NAME_WIDTH)
        return f"{self.label}  {'sub-agent ' * self.called}{look.shorten(name, width)}"


def _lanes(data: pd.DataFrame) -> list[_Lane]:
    lanes = []
    rows = data.sort_values("lane").to_dict("records")
    models = {row["run_id"]: (row["provider"], row["model"]) for row in rows}
    series = dict(zip(data["run_id"], names_of(data, what_differs(data.drop(columns="called_in"))), strict=True))
    for row in rows:
        label, key = str(row["label"]), (row["provider"], row["model"])
        lanes.append(
            _Lane(
                run_id=str(row["run_id"]),
                parent="" if pd.isna(row["parent_run_id"]) else str(row["parent_run_id"]),
                label=label,
                series=str(series[row["run_id"]]),
                changed="" if pd.isna(row["changed"]) or models.get(row["parent_run_id"]) != key else str(row["changed"]),
                place=int(row["lane"]),
                first=int(row["first_step"]),
                last=int(row["last_step"]),
                steps=int(row["steps"]),
                stop_reason=None if pd.isna(row["stop_reason"]) else str(row["stop_reason"]),
                left_at=next((int(row[name]) for name in ("forked_at", "called_in") if not pd.isna(row[name])), 0),
                called=row["kind"] == "sub-agent",
            )
        )
    return lanes


def _line_left(lane: _Lane, places: dict[str, _Lane]) -> _Lane | None:
    """Return the run at whose line this one begins, as in `tree_data`."""
    left = places.get(lane.parent)
    while left is not None and left.parent in places and lane.first < left.first and not left.called:
        left = places[left.parent]
    return left


def _draw_lane(ax: Axes, lane: _Lane, its: Look, left: _Lane | None, longest: int) -> None:
    if left is not None:  # in grey, since forks at the same step overlap
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
    look.beside(ax, words, (at, lane.place), 9, gid="reason")


def _alt(lanes: list[_Lane]) -> str:
    labels = {lane.run_id: lane.label for lane in lanes}
    parts = []
    for lane in lanes[:SHOWN_LANES]:
        relation = "called by" if lane.called else "forked from"
        forked = f" {relation} {labels[lane.parent]} at step {lane.left_at}" if lane.parent in labels else ""
        parts.append(f"{lane.name}{forked}, {counted(lane.steps, 'step')}, {look.spoken(lane.stop_reason or 'not ended')}")
    more = f"; and {len(lanes) - SHOWN_LANES} more" if len(lanes) > SHOWN_LANES else ""
    return f"Tree of {counted(len(lanes), 'run')}: {'; '.join(parts)}{more}."
