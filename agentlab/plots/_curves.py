"""Cumulative tokens and cost, step by step, a line a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator

from agentlab.comparing.groups import steps_of
from agentlab.plots import _figure as look
from agentlab.plots._data import COST, TOKENS, Course, Quantity, curve_data, limit_courses, limit_names
from agentlab.plots._legend import Entry, height, legend, merged
from agentlab.plots._unknown import why_unknown, wrapped
from agentlab.recorder import Recordings
from agentlab.types import StopReason

# Outlines around a run's last point, told apart by their shape.
END_MARKERS: dict[str, str] = {
    StopReason.COMPLETED: "o",
    StopReason.TERMINATING_TOOL: "D",
    StopReason.EXPLICIT_STOP: "8",
    StopReason.STOP_CONDITION: "s",
    StopReason.TURN_LIMIT: ">",
    StopReason.CALL_LIMIT: "<",
    StopReason.TOKEN_BUDGET: "^",
    StopReason.COST_BUDGET: "v",
    StopReason.TIMEOUT: "p",
    StopReason.TRUNCATED: "P",
    StopReason.CONTENT_FILTERED: "h",
    StopReason.NUDGES_EXHAUSTED: "*",
    StopReason.CANCELLED: "d",
    StopReason.ERROR: "X",
}
LIMIT_STYLES: tuple[Any, ...] = ((0, (3, 2.5)), (0, (1, 2)), (0, (5, 2, 1, 2)), (0, (1, 4)))
SHOWN_RUNS = 8
SHOWN_CHANGES = 3
NAME_WIDTH = 30
VISIBLE_FACTOR = 4.0
"""A limit more than so many times what was used would press the curves flat: it is named in the legend and lies above the plot."""

Key = tuple[str, str]


def tokens(steps: Recordings | pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Cumulative tokens per step, one line a run, with the token limits that held and how each run ended.

    `steps` is what `lab.frame` takes (a run, a result, several in a list, a store, …), or the frame it gives. Returns the axes; see
    `tokens_data` for what they show. The legend stands to the right of the data: give the figure of your own axes
    `layout="constrained"`, so that there is room for it. Errors: ConfigurationError where columns are missing.

    Example:
        >>> steps = lab.frame([result, *others])
        >>> lab.plots.tokens(steps).alt
        'Cumulative tokens per step of 3 runs: anthropic:claude-sonnet-4-6 3,146 after 4 steps, stop_condition;...
    """
    return _plot(steps, TOKENS, ax)


def cost(steps: Recordings | pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Cumulative cost per step in US dollars, one line a run, with the cost limits that held and how each run ended.

    As `tokens`. Where a price is not known the line ends, the legend says so, and a line above the plot for how many runs and why.

    Example:
        >>> steps = lab.frame([result, *others])
        >>> lab.plots.cost(steps).alt
        'Cumulative cost (US dollars) per step of 3 runs: anthropic:claude-sonnet-4-6 $0.0143 after 4 steps, sto...
    """
    return _plot(steps, COST, ax)


def curves(steps: Recordings | pd.DataFrame) -> look.PlotFigure:
    """Tokens and cost side by side in a figure of their own, with one legend below. `steps` as for `tokens`.

    Example:
        >>> lab.plots.curves(result.to_frame()).alt
        'Cumulative tokens per step of 1 run: anthropic:claude-sonnet-4-6 3,146 after 4 steps, stop_condition. C...
    """
    steps = steps_of(steps, "lab.plots.curves")
    figure = look.new_figure(9.0, 3.0)
    look.set_gap(figure, 0.05)
    drawn = [_draw(look.new_axes(figure, 1, 2, index), steps, one) for index, one in enumerate((TOKENS, COST), start=1)]
    entries = merged(drawn)
    figure.set_size_inches(9.0, 3.0 + 0.2 * height(entries))
    legend(figure, entries, columns=True)
    return figure


def _plot(steps: Recordings | pd.DataFrame, quantity: Quantity, ax: Axes | None) -> Axes:
    steps = steps_of(steps, f"lab.plots.{quantity.function}")
    ax = look.axes_for(ax, quantity.function, 6.4, 3.6)
    legend(ax, _draw(ax, steps, quantity))
    return ax


# Drawing -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """How the runs of one provider and model are drawn."""

    colour: str
    marker: str
    line_style: Any


@dataclass(frozen=True, slots=True)
class _RunLine:
    """One run as it is drawn. `values` are NaN where unknown."""

    run_id: str
    key: Key
    steps: list[int]
    values: list[float]
    stop_reason: str | None

    @property
    def last_known(self) -> int | None:
        return next((place for place in reversed(range(len(self.values))) if not math.isnan(self.values[place])), None)

    @property
    def is_known(self) -> bool:
        return not any(map(math.isnan, self.values))


def _run_lines(data: pd.DataFrame, quantity: Quantity) -> list[_RunLine]:
    lines = []
    for run_id, run in data.groupby("run_id", sort=False, dropna=False):
        first, last = run.iloc[0], run.iloc[-1]
        key = (str(first["provider"]), "" if pd.isna(first["model"]) else str(first["model"]))
        values = run[quantity.name].astype("Float64").to_numpy(dtype=float, na_value=math.nan)
        reason = None if pd.isna(last["stop_reason"]) else str(last["stop_reason"])
        lines.append(_RunLine(str(run_id), key, [int(step) for step in run["step"]], [float(v) for v in values], reason))
    return lines


def looks_of(keys: Iterable[Key]) -> dict[Key, Look]:
    """Colour by provider; marker and line style by provider and model, so that no two share them before the shapes run out."""
    wanted = list(dict.fromkeys(keys))
    different = list(dict.fromkeys([*_KEPT.get(), *wanted]))
    providers = list(dict.fromkeys(provider for provider, _ in different))
    shapes, styles, colours = look.MARKERS, look.LINE_STYLES, look.COLOURS
    looks = {
        key: Look(
            colours[providers.index(key[0]) % len(colours)],
            shapes[(place + place // len(shapes)) % len(shapes)],  # points have no line style: in each round another colour
            styles[(place + place // len(styles)) % len(styles)],
        )
        for place, key in enumerate(different)
    }
    return {key: looks[key] for key in wanted}


_KEPT: ContextVar[tuple[Key, ...]] = ContextVar("kept", default=())


@contextmanager
def keeping_looks(keys: Iterable[Key]) -> Iterator[None]:
    """Within it, what is drawn has the look that it would have among all of these, so that several plots agree."""
    token = _KEPT.set(tuple(keys))
    try:
        yield
    finally:
        _KEPT.reset(token)


def _draw(ax: Axes, steps: pd.DataFrame, quantity: Quantity) -> list[Entry]:
    """Draw one plot without its legend, and return what belongs there."""
    data = curve_data(steps, quantity)
    unit = "cumulative tokens" if quantity is TOKENS else "cumulative cost (US dollars)"
    ax.set_xlabel("step")
    ax.set_ylabel(unit)
    look.style(ax)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=quantity is TOKENS))
    ax.yaxis.set_major_formatter(_formatter(quantity))
    if data.empty:
        ax.set_xlim(0.5, 5.5)
        ax.set_ylim(0, 1)
        ax.set_yticks([])
        look.note(ax, "no steps yet")
        look.set_alt(ax, f"{_sentence(unit)} per step: no steps yet.")
        return []
    ax.grid(visible=True, axis="y", color=look.TEXT, alpha=0.25, linewidth=0.6)
    lines = _run_lines(data, quantity)
    looks = looks_of(line.key for line in lines)
    courses = {name: limit_courses(data, name) for name in limit_names(data, quantity)}
    top = _top(lines, courses.values())
    entries = _draw_runs(ax, lines, looks, quantity)
    entries += _draw_limits(ax, courses, {line.run_id: looks[line.key] for line in lines}, top, quantity)
    entries += _draw_ends(ax, lines)
    _name_limits(ax, courses, lines, top)
    first, last = min(line.steps[0] for line in lines), max(line.steps[-1] for line in lines)
    margin = max(0.5, 0.015 * (last - first))
    ax.set_xlim(first - margin, last + margin)
    ax.set_ylim(0, top * 1.07)
    unknown = why_unknown(steps, data, quantity)
    if all(line.last_known is None for line in lines):
        look.note(ax, wrapped(unknown, 34))
        if not courses:
            ax.set_yticks([])
    elif unknown:
        look.note_above(ax, wrapped(unknown))
    look.set_alt(ax, _alt(lines, courses, quantity, unit) + (f" {_sentence(look.spoken(unknown, 300))}." if unknown else ""))
    return entries


def _draw_runs(ax: Axes, lines: list[_RunLine], looks: dict[Key, Look], quantity: Quantity) -> list[Entry]:
    few = len(lines) <= SHOWN_RUNS
    for line in lines:
        its, place = looks[line.key], line.last_known
        if place is None:
            continue
        every: Any = max(1, len(line.steps) // 12) if len(line.steps) > 25 else 1
        ax.plot(
            line.steps,
            line.values,
            color=its.colour,
            marker=its.marker,
            markersize=4.5,
            markevery=every if few else [place],
            linestyle=its.line_style,
            linewidth=1.8 if few else 1.1,
            zorder=3,
            gid=look.gid("run", line.run_id),
        )
        if place < len(line.values) - 1:
            at = (line.steps[place], line.values[place])
            ax.annotate("?", at, (5, 0), textcoords="offset points", color=look.TEXT, weight="bold", va="center", fontsize=11)
    entries = []
    for key, its in looks.items():
        of_key = [line for line in lines if line.key == key]
        handle = Line2D([], [], color=its.colour, marker=its.marker, markersize=4.5, linestyle=its.line_style, linewidth=1.8)
        name = ":".join(filter(None, key))
        label = look.shorten(name, NAME_WIDTH) + (f" × {len(of_key)}" if len(of_key) > 1 else "")
        entries.append(Entry("runs", key, handle, label, _unknown(of_key, quantity)))
    return entries


def _unknown(lines: list[_RunLine], quantity: Quantity) -> tuple[str, ...]:
    if all(line.is_known for line in lines):
        return ()
    partly = "" if all(line.last_known is None for line in lines) else "partly "
    return (f"{_noun(quantity)} {partly}unknown",)


def _draw_limits(
    ax: Axes,
    courses: dict[str, list[Course]],
    look_of: dict[str, Look],
    top: float,
    quantity: Quantity,
) -> list[Entry]:
    entries = []
    for place, (name, of_name) in enumerate(courses.items()):
        line_style = LIMIT_STYLES[place % len(LIMIT_STYLES)]
        for course in of_name:
            colours = {look_of[run_id].colour for run_id in course.run_ids}
            # A limit that differs between runs takes the colour of the provider that it held for, grey where those are several.
            colour = colours.pop() if len(of_name) > 1 and len(colours) == 1 else look.TEXT
            xs = [edge for step in course.steps for edge in (step - 0.5, step + 0.5)]
            ys = [math.nan if value is None else value for value in course.values for _ in range(2)]
            ax.plot(xs, ys, color=colour, linestyle=line_style, linewidth=1.3, zorder=2, gid=look.gid("limit", name))
        handle = Line2D([], [], color=look.TEXT, linestyle=line_style, linewidth=1.3)
        hidden = all(value is None or value > top for course in of_name for value in course.values)
        label = f"{name} {_limit_label(of_name, _words(quantity))}"
        entries.append(Entry("limits", name, handle, label, ("above the plot",) if hidden else ()))
    return entries


def _name_limits(ax: Axes, courses: dict[str, list[Course]], lines: list[_RunLine], top: float) -> None:
    """Write each limit's name above its line at the left, where no curve and no other name is in the way; the legend has them all."""
    room = 0.085 * top
    taken = [value for line in lines for step, value in zip(line.steps, line.values, strict=True) if step <= 2]
    for name, of_name in courses.items():
        place = next((place for place, value in enumerate(of_name[0].values) if value is not None), 0)
        value = of_name[0].values[place]
        if place > 0 or value is None or value > top or any(-room < other - value < room for other in taken):
            continue
        taken.append(value)
        at = (of_name[0].steps[place] - 0.5, value)
        ax.annotate(look.shorten(name), at, (4, 2), textcoords="offset points", va="bottom", color=look.TEXT, fontsize=7.5)


def _limit_label(courses: list[Course], words: Callable[[float], str]) -> str:
    """What a limit allowed: `1,000`, `1,000 → 2,000` where it was changed, `1,000 or 2,000` where it
    differs between runs, and `500 to 2,000` where that gets long."""
    texts = []
    for course in courses:
        changes = ["none" if value is None else words(value) for value in course.changes]
        shown = changes if len(changes) <= SHOWN_CHANGES else [changes[0], "…", changes[-1]]
        texts.append(" → ".join(shown))
    text = " or ".join(dict.fromkeys(sorted(texts, key=lambda text: (len(text), text))))
    if len(courses) == 1 or len(text) <= 22:
        return text
    values = [value for course in courses for value in course.values if value is not None]
    return f"{words(min(values))} to {words(max(values))}"


def _draw_ends(ax: Axes, lines: list[_RunLine]) -> list[Entry]:
    ends: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        if line.stop_reason is not None:
            ends.setdefault(line.stop_reason, [])
            if not math.isnan(line.values[-1]):
                ends[line.stop_reason].append((line.steps[-1], line.values[-1]))
    entries = []
    counts = {reason: sum(line.stop_reason == reason for line in lines) for reason in ends}
    known = list(END_MARKERS)
    for reason in sorted(ends, key=lambda name: (known.index(name) if name in known else len(known), name)):
        shape: dict[str, Any] = {
            "marker": END_MARKERS.get(reason, "H"),
            "markersize": 11 if len(lines) <= SHOWN_RUNS else 8,
            "markerfacecolor": "none",
            "markeredgecolor": look.TEXT,
            "markeredgewidth": 1.5 if len(lines) <= SHOWN_RUNS else 1.1,
            "linestyle": "none",
        }
        if ends[reason]:
            xs, ys = zip(*ends[reason], strict=True)
            ax.plot(xs, ys, zorder=4, clip_on=False, gid=look.gid("end", reason), **shape)
        label = look.shorten(reason) + (f" × {counts[reason]}" if counts[reason] > 1 else "")
        entries.append(Entry("ended by", reason, Line2D([], [], **(shape | {"markersize": 8})), label))
    return entries


def _top(lines: list[_RunLine], courses: Iterable[list[Course]]) -> float:
    """The highest value that the plot has to show: what was used, and those limits that are near enough to it."""
    used = max((value for line in lines for value in line.values if not math.isnan(value)), default=0.0)
    limits = [value for of_name in courses for course in of_name for value in course.values if value is not None]
    near = [limit for limit in limits if limit <= used * VISIBLE_FACTOR] if used else limits
    return max([used, *near]) or 1.0


# Words ---------------------------------------------------------------------------------------------------------------------------


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _noun(quantity: Quantity) -> str:
    return "tokens" if quantity is TOKENS else "cost"


def _words(quantity: Quantity) -> Callable[[float], str]:
    return look.whole if quantity is TOKENS else look.dollars


def _formatter(quantity: Quantity) -> Formatter:
    return FuncFormatter(lambda value, _: look.whole(value)) if quantity is TOKENS else look.Dollars()


def _alt(lines: list[_RunLine], courses: dict[str, list[Course]], quantity: Quantity, unit: str) -> str:
    words = _words(quantity)
    told = []
    for line in lines[:SHOWN_RUNS]:
        used = words(line.values[-1]) if not math.isnan(line.values[-1]) else "unknown"
        steps = f"{len(line.steps)} step{'s' * (len(line.steps) != 1)}"
        name, end = ":".join(filter(None, line.key)), line.stop_reason or "still running"
        told.append(f"{look.spoken(name)} {used} after {steps}, {look.spoken(end)}")
    if len(lines) > SHOWN_RUNS:
        told.append(f"and {len(lines) - SHOWN_RUNS} more")
    limits = [f"{name} {_limit_label(of_name, words)}" for name, of_name in courses.items()]
    text = f"{_sentence(unit)} per step of {len(lines)} run{'s' * (len(lines) != 1)}: {'; '.join(told)}."
    return f"{text} Limits: {', '.join(limits)}." if limits else text
