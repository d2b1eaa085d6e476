"""Cumulative tokens and cost, step by step, a line a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator

from agentlab.plots import _figure as look
from agentlab.plots._data import COST, TOKENS, Course, Quantity, curve_data, limit_courses, limit_names
from agentlab.types import StopReason

# Outlines around a run's last point, told apart by shape; what cut the run off has corners that point outwards or crosses.
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
LIMIT_STYLES: tuple[Any, ...] = ((0, (7, 3)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (2, 3)))
SHOWN_RUNS = 8
SHOWN_CHANGES = 3
VISIBLE_FACTOR = 4.0
"""A limit more than so many times what was used would press the curves flat: it is named in the legend and lies above the plot."""

Key = tuple[str, str]


def tokens(steps: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Cumulative tokens per step, one line a run, with the token limits that held and how each run ended.

    `steps` is `result.to_frame()`, or `lab.frame(results)` for several runs. Returns the axes; see `tokens_data` for what they show.
    Errors: ConfigurationError where columns are missing.
    """
    return _plot(curve_data(steps, TOKENS), TOKENS, ax)


def cost(steps: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Cumulative cost per step in US dollars, one line a run, with the cost limits that held and how each run ended.

    As `tokens`. Where a price is not known the line ends and the legend says so.
    """
    return _plot(curve_data(steps, COST), COST, ax)


def curves(steps: pd.DataFrame, figure: look.PlotFigure | None = None) -> look.PlotFigure:
    """Tokens and cost side by side with one legend. `figure` is one of an earlier call, to be drawn anew."""
    both = [(curve_data(steps, quantity), quantity) for quantity in (TOKENS, COST)]
    if figure is None:
        figure = look.new_figure(9.0, 3.8)
    else:
        figure.clear()
    legends = []
    for index, (data, quantity) in enumerate(both, start=1):
        legends.append(_draw(look.new_axes(figure, 1, 2, index), data, quantity))
    _legend(figure, _merged(legends), loc="outside lower left", columns=True)
    return figure


def _plot(data: pd.DataFrame, quantity: Quantity, ax: Axes | None) -> Axes:
    if ax is None:
        ax = look.new_axes(look.new_figure(6.4, 3.6))
    entries = _draw(ax, data, quantity)
    _legend(ax, entries, loc="upper left", bbox_to_anchor=(1.01, 1.02))
    return ax


# Drawing -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the legend: `key` is the same for the same thing in two plots, `notes` are what each of them adds to the label."""

    section: Literal["runs", "limits", "ended by"]
    key: object
    handle: Line2D
    label: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Look:
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


def _looks(keys: Iterable[Key]) -> dict[Key, _Look]:
    """Colour by provider; marker and line style by provider and model, so that no two share them before the shapes run out."""
    different = list(dict.fromkeys(keys))
    providers = list(dict.fromkeys(provider for provider, _ in different))
    shapes, styles, colours = look.MARKERS, look.LINE_STYLES, look.COLOURS
    return {
        key: _Look(
            colours[providers.index(key[0]) % len(colours)],
            shapes[place % len(shapes)],
            styles[(place + place // len(styles)) % len(styles)],
        )
        for place, key in enumerate(different)
    }


def _draw(ax: Axes, data: pd.DataFrame, quantity: Quantity) -> list[_Entry]:
    """Draw one plot without its legend, and return what belongs there."""
    unit = "cumulative tokens" if quantity is TOKENS else "cumulative cost (US dollars)"
    ax.set_xlabel("step")
    ax.set_ylabel(unit)
    look.style(ax)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=quantity is TOKENS))
    ax.yaxis.set_major_formatter(_formatter(quantity))
    if data.empty:
        ax.set_xlim(0.5, 5.5)
        ax.set_ylim(0, 1)
        ax.set_yticks([])
        look.note(ax, "no steps yet")
        look.set_alt(ax, f"{unit.capitalize()} per step: no steps yet.")
        return []
    ax.grid(visible=True, axis="y", color=look.TEXT, alpha=0.25, linewidth=0.6)
    lines = _run_lines(data, quantity)
    looks = _looks(line.key for line in lines)
    courses = {name: limit_courses(data, name) for name in limit_names(data, quantity)}
    top = _top(lines, courses.values())
    entries = _draw_runs(ax, lines, looks, quantity)
    entries += _draw_limits(ax, courses, lines, looks, top, quantity)
    entries += _draw_ends(ax, lines)
    last = max(step for line in lines for step in line.steps)
    ax.set_xlim(0.5, last + 0.5 + 0.01 * last)
    ax.set_ylim(0, top * 1.07)
    if not any(line.last_known is not None for line in lines):
        look.note(ax, f"{_noun(quantity)} unknown")
    look.set_alt(ax, _alt(lines, courses, quantity, unit))
    return entries


def _draw_runs(ax: Axes, lines: list[_RunLine], looks: dict[Key, _Look], quantity: Quantity) -> list[_Entry]:
    width = 1.8 if len(lines) <= SHOWN_RUNS else 1.1
    for line in lines:
        its, place = looks[line.key], line.last_known
        if place is None:
            continue
        every = max(1, len(line.steps) // 12) if len(line.steps) > 25 else 1
        ax.plot(
            line.steps,
            line.values,
            color=its.colour,
            marker=its.marker,
            markersize=4.5,
            markevery=every,
            linestyle=its.line_style,
            linewidth=width,
            zorder=3,
            gid=f"run:{line.run_id}",
        )
        if place < len(line.values) - 1:
            at = (line.steps[place], line.values[place])
            ax.annotate("?", at, (5, 0), textcoords="offset points", color=look.TEXT, weight="bold", va="center", fontsize=11)
    models = {provider: len({key for key in looks if key[0] == provider}) for provider, _ in looks}
    entries = []
    for key, its in looks.items():
        of_key = [line for line in lines if line.key == key]
        handle = Line2D([], [], color=its.colour, marker=its.marker, markersize=4.5, linestyle=its.line_style, linewidth=1.8)
        name = ":".join(look.shorten(part, 30 if models[key[0]] else 20) for part in key if part)
        label = look.shorten(name) + (f" ({len(of_key)} runs)" if len(of_key) > 1 else "")
        entries.append(_Entry("runs", key, handle, label, _unknown(of_key, quantity)))
    return entries


def _unknown(lines: list[_RunLine], quantity: Quantity) -> tuple[str, ...]:
    if all(line.is_known for line in lines):
        return ()
    partly = "" if all(line.last_known is None for line in lines) else "partly "
    return (f"{_noun(quantity)} {partly}unknown",)


def _draw_limits(
    ax: Axes,
    courses: dict[str, list[Course]],
    lines: list[_RunLine],
    looks: dict[Key, _Look],
    top: float,
    quantity: Quantity,
) -> list[_Entry]:
    key_of = {line.run_id: line.key for line in lines}
    entries = []
    for place, (name, of_name) in enumerate(courses.items()):
        line_style = LIMIT_STYLES[place % len(LIMIT_STYLES)]
        for course in of_name:
            owners = {key_of[run_id] for run_id in course.run_ids}
            # Grey where it held for all, or for runs of several providers; a provider's colour where it held for that one alone.
            colour = looks[owners.pop()].colour if len(of_name) > 1 and len({key[0] for key in owners}) == 1 else look.TEXT
            xs = [edge for step in course.steps for edge in (step - 0.5, step + 0.5)]
            ys = [math.nan if value is None else value for value in course.values for _ in range(2)]
            ax.plot(xs, ys, color=colour, linestyle=line_style, linewidth=1.4, zorder=2, gid=f"limit:{name}")
        handle = Line2D([], [], color=look.TEXT, linestyle=line_style, linewidth=1.4)
        hidden = all(value is None or value > top for course in of_name for value in course.values)
        label = f"{name} {_limit_label(of_name, _words(quantity))}"
        entries.append(_Entry("limits", name, handle, label, ("above the plot",) if hidden else ()))
    return entries


def _limit_label(courses: list[Course], words: Callable[[float], str]) -> str:
    """What a limit allowed: `1,000`, `1,000 → 2,000` where it was changed, `500 to 2,000` where it differs between runs."""
    if len(courses) > 1:
        values = [value for course in courses for value in course.values if value is not None]
        low, high = words(min(values)), words(max(values))
        return low if low == high else f"{low} to {high}"
    changes = ["none" if value is None else words(value) for value in courses[0].changes]
    if len(changes) > SHOWN_CHANGES:
        changes = [changes[0], "…", changes[-1]]
    return " → ".join(changes)


def _draw_ends(ax: Axes, lines: list[_RunLine]) -> list[_Entry]:
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
            "markersize": 11,
            "markerfacecolor": "none",
            "markeredgecolor": look.TEXT,
            "markeredgewidth": 1.5,
            "linestyle": "none",
        }
        if ends[reason]:
            xs, ys = zip(*ends[reason], strict=True)
            ax.plot(xs, ys, zorder=4, clip_on=False, gid=f"end:{reason}", **shape)
        label = look.shorten(reason) + (f" ({counts[reason]})" if len(lines) > 1 else "")
        entries.append(_Entry("ended by", reason, Line2D([], [], **(shape | {"markersize": 8})), label))
    return entries


def _top(lines: list[_RunLine], courses: Iterable[list[Course]]) -> float:
    """The highest value that the plot has to show: what was used, and those limits that are near enough to it."""
    used = max((value for line in lines for value in line.values if not math.isnan(value)), default=0.0)
    limits = [value for of_name in courses for course in of_name for value in course.values if value is not None]
    near = [limit for limit in limits if limit <= used * VISIBLE_FACTOR] if used else limits
    return max([used, *near]) or 1.0


# Words ---------------------------------------------------------------------------------------------------------------------------


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
        told.append(f"{':'.join(filter(None, line.key))} {used} after {steps}, {line.stop_reason or 'still running'}")
    if len(lines) > SHOWN_RUNS:
        told.append(f"and {len(lines) - SHOWN_RUNS} more")
    limits = [f"{name} {_limit_label(of_name, words)}" for name, of_name in courses.items()]
    text = f"{unit.capitalize()} per step of {len(lines)} run{'s' * (len(lines) != 1)}: {'; '.join(told)}."
    return f"{text} Limits: {', '.join(limits)}." if limits else text


# Legend --------------------------------------------------------------------------------------------------------------------------


def _merged(legends: list[list[_Entry]]) -> list[_Entry]:
    """One legend for several plots: what is the same stands once, with the notes of all."""
    merged: dict[tuple[str, object], _Entry] = {}
    for entry in (entry for entries in legends for entry in entries):
        key = (entry.section, entry.key)
        notes = (*merged[key].notes, *entry.notes) if key in merged else entry.notes
        merged[key] = _Entry(entry.section, entry.key, entry.handle, entry.label, notes)
    return list(merged.values())


def _legend(where: Axes | Figure, entries: list[_Entry], columns: bool = False, **place: Any) -> Legend | None:
    """Runs, limits and ends under their headings, below each other or in columns; outside the data in any case."""
    if not entries:
        return None
    sections: list[list[tuple[Line2D, str]]] = []
    for section in ("runs", "limits", "ended by"):
        of_section = [entry for entry in entries if entry.section == section]
        if not of_section:
            continue
        hidden = len(of_section) - SHOWN_RUNS if len(of_section) > SHOWN_RUNS + 1 else 0
        rows = [(entry.handle, ", ".join([entry.label, *entry.notes])) for entry in of_section[: len(of_section) - hidden]]
        sections.append([(_blank(), section), *rows, *([(_blank(), f"and {hidden} more")] if hidden else [])])
    heads = {id(rows[0][0]) for rows in sections}
    if columns:
        height = max(map(len, sections))
        sections = [rows + [(_blank(), "")] * (height - len(rows)) for rows in sections]
    handles, labels = zip(*[row for rows in sections for row in rows], strict=True)
    legend = where.legend(
        handles,
        labels,
        ncols=len(sections) if columns else 1,
        fontsize=look.SMALL_POINTS,
        labelcolor=look.TEXT,
        frameon=False,
        handlelength=2.6,
        borderaxespad=0.0,
        labelspacing=0.45,
        **place,
    )
    for handle, text in zip(handles, legend.get_texts(), strict=True):
        text.set_parse_math(False)
        if id(handle) in heads:
            text.set_weight("bold")
    return legend


def _blank() -> Line2D:
    return Line2D([], [], linestyle="none")
