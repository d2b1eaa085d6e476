"""What the runs of a plot differ in, and the colour, marker and line style of each series.

A series is a line, point or row of a plot: the runs of one agent, of one model, or of one group. Its name has only what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from agentlab.analysis.groups import BETWEEN, By, columns_of, no_column_twice, outermost
from agentlab.plots.figure import COLOURS, LINE_STYLES, MARKERS, keeping_names

IDENTITY = ("agent", "model", "provider", "settings")
"""The columns that say what a run is a run of, the one that a reader knows best first."""
SHOWN = ("agent", "provider", "model", "settings")
"""The same columns in the order of a name."""

# What differs ---------------------------------------------------------------------------------------------------------------------


def grouping(frame: pd.DataFrame, by: By | None) -> list[str]:
    """Return the columns that define the series: those of `by`, else what differs between the runs."""
    if by is not None:
        return columns_of(by)
    columns, _ = _SHARED.get()
    return what_differs(frame) if not columns or set(columns) - set(frame.columns) else columns


def what_differs(frame: pd.DataFrame) -> list[str]:
    """Return the fewest columns that tell the runs of a frame apart: `agent` if agents have names, else `model`; `provider` only if
    one model is at several, and `settings` if there are several.

    If nothing differs, it is the first of them that is known; `provider` for a frame with none of them, which is then missed.
    """
    no_column_twice(frame)
    frame = outermost(frame)
    known = [name for name in IDENTITY if name in frame.columns and frame[name].notna().any()]
    if "agent" in known and not _have_names(frame):
        known.remove("agent")
    found: list[str] = []
    several = 1
    for name in known:
        combinations = len(frame[[*found, name]].drop_duplicates())
        if combinations > several:
            found, several = [*found, name], combinations
    return sorted(found, key=SHOWN.index) or known[:1] or ["provider"]


def _have_names(frame: pd.DataFrame) -> bool:
    """Return False if all agents are called after their model, as they are by default."""
    if not {"provider", "model"} <= set(frame.columns):
        return True
    default = frame["provider"].astype("string") + ":" + frame["model"].astype("string")
    return not frame["agent"].astype("string").eq(default).all()


# Looks ----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, marker and line style of one series."""

    colour: str
    marker: str
    line_style: Any


def look_at(place: int) -> Look:
    """Return the look of a place, counted from 0. The first ones differ in colour, marker and line style; those of one colour have
    another marker and another line style in each round, until there are no more of them.
    """
    turn, colour = divmod(place, len(COLOURS))
    return Look(COLOURS[colour], MARKERS[(place + turn // 2) % len(MARKERS)], LINE_STYLES[(colour + turn) % len(LINE_STYLES)])


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each name. A name keeps its colour in all plots of a session, unless another name here has the same.

    If there are more names than colours, those that begin alike (an agent under several settings) share a colour, and differ in marker
    and line style.
    """
    different = list(dict.fromkeys(names))
    _, shared = _SHARED.get()
    if set(different) <= set(shared):
        return {name: shared[name] for name in different}
    parts = [name.partition(BETWEEN) for name in different]
    starts, ends = (list(dict.fromkeys(part[which] for part in parts)) for which in (0, 2))
    if len(different) <= len(COLOURS) or len(starts) == len(different):
        places = _places(different)
        return {name: look_at(places[name]) for name in different}
    places = _places(starts)
    return {
        name: replace(look_at(ends.index(end)), colour=look_at(places[start]).colour)
        for name, (start, _, end) in zip(different, parts, strict=True)
    }


_remembered: dict[str, int] = {}
"""The place of the colour of each name that was drawn in this process."""


def _places(names: Sequence[str]) -> dict[str, int]:
    """Return a place for each name. Its colour is the remembered one, if that is not another one's here, else the next free one."""
    colours: dict[str, int] = {}
    places: dict[str, int] = {}
    most = -(-len(names) // len(COLOURS))  # names per colour
    for name in sorted(names, key=lambda name: name not in _remembered):
        used = list(colours.values())
        first = _remembered.setdefault(name, len(_remembered) % len(COLOURS))
        colours[name] = next(colour for colour in (first, *range(len(COLOURS))) if used.count(colour) < most)
        _remembered[name] = colours[name]
        places[name] = colours[name] + len(COLOURS) * used.count(colours[name])
    return places


# Several plots in one figure -------------------------------------------------------------------------------------------------------

_SHARED: ContextVar[tuple[list[str], dict[str, Look]]] = ContextVar("shared", default=([], {}))


@contextmanager
def sharing(columns: list[str], names: Iterable[str]) -> Iterator[None]:
    """Inside the block, all plots name their series by these columns, and each of these names has one label and one look."""
    names = list(names)
    token = _SHARED.set((columns, looks_of(names)))
    try:
        with keeping_names(names):
            yield
    finally:
        _SHARED.reset(token)
