"""Several plots in one figure: the same plot for each group, and a whole comparison."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from agentlab._internal.names import helps_with_keywords
from agentlab.analysis.groups import STEPS_ADVICE, By, checked, in_order, names_of, outermost, runs_of, steps_of
from agentlab.errors import ConfigurationError
from agentlab.plots import figure as look
from agentlab.plots.bands_and_survival import bands, survival
from agentlab.plots.cost_frontier import frontier
from agentlab.plots.figure import UNKNOWN, Row, plain, unknown_row
from agentlab.plots.group_estimates import (
    cost_success,
    cost_success_of,
    draw_cost_success,
    draw_estimates,
    estimates,
    estimates_of,
    measured,
    stop_reasons,
    stop_reasons_data,
)
from agentlab.plots.run_timeline import timeline
from agentlab.plots.series import IDENTITY, grouping, sharing, what_differs
from agentlab.records.frames import Recordings, frame_of

_FRAMES: dict[Callable[..., Any], str] = {
    **dict.fromkeys((stop_reasons, survival, estimates, cost_success, frontier), "runs"),
    timeline: "events",
}
"""The frame that a plot takes, if it is not the frame of steps."""


LEGEND_INCHES = 0.6
"""Height of a legend below small plots for which their figure has room."""
NOTE_WIDTH = 40
"""Notes in a legend that are longer together have one line each."""
LABEL_WIDTH = 30
"""Number of characters of a line below small plots."""
MAX_PLOTS = 12
"""Maximum number of small plots in one figure; the legend counts the rest."""


def small_multiples(
    plot: Callable[..., Any], frame: Recordings | pd.DataFrame, by: By | None = None, *, columns: int = 3, **options: Any
) -> look.PlotFigure:
    """Draw the same plot for each group, side by side on the same axes.

    `plot` is a function of `lab.plots` that takes `ax=`, or your own: it is called with the rows of one group, `ax` and `options`.
    `frame` is what `lab.frame` takes, or the frame that `plot` takes; your own function gets rows of steps. `by` names the columns that
    define the groups, by default what differs between the runs. A series has the same colour in all plots. Errors: ConfigurationError
    if columns are missing, or if `plot` is not a function.

    Example:
        >>> steps = lab.frame([result, *others])
        >>> [axes.get_title() for axes in lab.plots.small_multiples(lab.plots.tokens, steps).axes]
        ['claude-sonnet-4-6', 'gpt-5.4-mini', 'gemini-3.5-flash']
    """
    if not callable(plot):
        raise ConfigurationError(f"lab.plots.small_multiples(plot={plot!r}): pass a function such as lab.plots.tokens.")
    if isinstance(columns, bool) or not isinstance(columns, int) or columns < 1:
        raise ConfigurationError(f"lab.plots.small_multiples(columns={columns!r}): pass a whole number of at least 1.")
    frame = frame_of(frame, _FRAMES.get(plot, "steps"), "lab.plots.small_multiples", "the frame that the plot takes")
    if by is None and plot is timeline and not {*IDENTITY} & {*frame.columns}:
        by = "run_id"  # events of a file without the columns of their run
    by = grouping(frame, by)
    rows = outermost(checked(frame, by, "lab.plots.small_multiples", "a frame with the column that defines the groups"))
    names = names_of(rows, by)
    groups = in_order(names)
    differing = what_differs(rows) if {*IDENTITY} & {*rows.columns} else by
    shown = groups[:MAX_PLOTS] or [""]
    columns = min(columns, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = look.new_figure(max(4.2, 3.1 * columns), 2.6 * lines)
    drawn: list[look.PlotAxes] = []
    with sharing(differing, in_order(names_of(rows, differing))):
        labels = look.short_names(groups)
        for place, name in enumerate(shown, start=1):
            ax = look.new_axes(figure, lines, columns, place)
            plot(rows[names == name] if groups else frame, ax=ax, **options)
            if name:
                _title(ax, labels[name])
                look.set_alt(ax, f"{look.spoken(name)}: {ax.alt}")
            drawn.append(ax)
    _share(drawn, columns)
    below = _one_legend(figure, drawn, more=len(groups) - len(shown))
    figure.set_figheight(figure.get_figheight() + max(0.0, below - LEGEND_INCHES))
    return figure


@helps_with_keywords
def comparison(
    runs: Recordings | pd.DataFrame,
    steps: Recordings | pd.DataFrame | None = None,
    by: By | None = None,
    *,
    level: float = 0.95,
    unit: By | None = None,
) -> look.PlotFigure:
    """Draw a whole comparison: success with intervals, cost against success, stop reasons, tokens, cost, and the number of steps.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")` with `lab.frame(results)` as `steps`. If `runs` is a frame and
    `steps` is missing, tokens and cost are means with intervals, not curves over the steps. The runs of sub-agents count in those that
    called them. See `lab.summary` for the intervals and for `unit`. Errors: ConfigurationError if columns are missing.

    Example:
        >>> steps, runs = lab.frame([result, *others]), lab.frame([result, *others], "runs")
        >>> len(lab.plots.comparison(runs, steps).axes)
        6
    """
    needed = ["stop_reason", "terminated", "truncated", "steps", "total_tokens", "cost_usd"]
    if steps is None and not isinstance(runs, pd.DataFrame):
        runs = list(runs) if isinstance(runs, Iterator) else runs
        steps = steps_of(runs, "lab.plots.comparison")
    runs = runs_of(runs, "lab.plots.comparison")
    by = grouping(runs, by)
    runs = outermost(checked(runs, [*by, *needed], "lab.plots.comparison"))
    if steps is not None and "run_id" in runs.columns:
        steps = checked(steps_of(steps, "lab.plots.comparison"), ["run_id"], "lab.plots.comparison", STEPS_ADVICE)
        steps = steps[steps["run_id"].isin(runs["run_id"])]
    groups = measured(runs, by, "comparison", level=level, unit=unit)
    both = cost_success_of(groups)
    measure = "completion" if both.empty else str(both["measure"].iloc[0])
    bars = len(stop_reasons_data(runs, by)) + len(both)
    least = 4.0 + 0.1 * min(8, len(both))
    above = min(30.0, max(least, 1.0 + 0.18 * bars))
    below = least if steps is not None else min(30.0, max(least, 1.0 + 0.3 * len(both)))
    figure = look.new_figure(12.0, above + below)
    look.set_gap(figure, 0.06)
    grid = figure.add_gridspec(2, 3, height_ratios=[above, below])
    axes = [look.new_axes(figure, where=grid[place // 3, place % 3]) for place in range(6)]
    with sharing(by, both["group"]):
        draw_estimates(estimates_of(groups, measure), measure, axes[0])
        draw_cost_success(both, axes[1])
        stop_reasons(runs, axes[2], by)
        if steps is None:
            draw_estimates(estimates_of(groups, "tokens"), "tokens", axes[3])
            draw_estimates(estimates_of(groups, "cost"), "cost", axes[4])
        else:
            bands(steps, "tokens", by, axes[3])
            bands(steps, "cost", by, axes[4])
        survival(runs, by, axes[5], level=level, unit=unit)
    titles = ("Outcome", "Cost against success", "Why runs ended", "Tokens", "Cost", "How long they ran")
    for ax, title in zip(axes, titles, strict=True):
        _title(ax, title)
    if len(axes[1].get_xticks()):  # these axes are narrow, and amounts of money are long
        axes[1].xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 4, 5, 10]))
    _one_legend(figure, axes)
    return figure


def _title(ax: Axes, text: str) -> None:
    notes = [note.get_window_extent().height for note in ax.texts if note.get_gid() == look.NOTE_ABOVE]
    pad = 6 + sum(notes) * 72 / ax.figure.dpi  # points
    title = ax.set_title(text, color=look.TEXT, fontsize=look.TEXT_POINTS + 0.5, fontweight="bold", pad=pad)
    title.set_parse_math(False)


def _share(axes: list[look.PlotAxes], columns: int) -> None:
    """Give all axes the same limits, and keep the labels at the left and the bottom only. An axis without ticks shows no value."""
    lefts, rights = zip(*([ax.get_xlim() for ax in axes if len(ax.get_xticks())] or [(0, 1)]), strict=True)
    bottoms, tops = zip(*([ax.get_ylim() for ax in axes if len(ax.get_yticks())] or [(0, 1)]), strict=True)
    named = any(isinstance(ax.yaxis.get_major_locator(), FixedLocator) and len(ax.get_yticks()) for ax in axes)  # such as bars
    for place, ax in enumerate(axes):
        ax.set_xlim(min(lefts), max(rights))
        if not named:
            ax.set_ylim(min(bottoms), max(tops))
        if place % columns and not named:
            ax.set_ylabel("")
        label, _, notes = ax.get_xlabel().partition("\n")  # notes: the kind of the intervals, the meaning of hollow points
        notes = "\n".join(textwrap.fill(note, LABEL_WIDTH) for note in notes.split("\n"))
        ax.set_xlabel(notes if place + columns < len(axes) else f"{label}\n{notes}".strip())


def _one_legend(figure: look.PlotFigure, axes: list[look.PlotAxes], more: int = 0) -> float:
    """Join the legends of all axes into one below them: each name once, with its notes from all legends.

    Returns its height in inches.
    """
    rows: dict[str, Row] = {}
    notes: dict[str, dict[str, None]] = {}
    unknown: dict[str, dict[str, None]] = {}
    for ax in axes:
        legend = ax.get_legend()
        if legend is None:
            continue
        for drawn, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            if named := UNKNOWN.fullmatch(text.get_text().replace("\n", " ")):
                unknown.setdefault(named[1], {}).update(dict.fromkeys(named[2].split(", ")))
                continue
            name, *of_name = text.get_text().split("\n")
            if hidden := re.fullmatch(r"and (\d+) more", name):  # groups that other axes may show
                ax.set_xlabel(f"{ax.get_xlabel()} ({hidden[1]} more not drawn)")
            if not isinstance(drawn, Line2D) or not _shows(drawn) or not name:
                continue
            name = re.sub(r" × \d+$", "", name)  # the count differs between the plots
            if name not in rows or _shows(rows[name][0]) < _shows(drawn):
                rows[name] = (drawn, name)
            notes.setdefault(name, {}).update(dict.fromkeys(of_name))
        legend.remove()
    lines = [(handle, "\n".join([name, *_few_lines([*notes[name]])])) for handle, name in rows.values()]
    # Entries that belong to no group, such as stop reasons, come last.
    lines.sort(key=lambda line: look.TEXT in (line[0].get_color(), line[0].get_markeredgecolor()))
    lines += [row for what, labels in unknown.items() for row in unknown_row(what, [*labels])]
    if not lines:
        return 0.0
    longest = max(len(part) for _, label in lines for part in label.split("\n"))
    entry = (longest * 0.56 * look.SMALL_POINTS + 50) / 72  # inches, about
    columns = max(1, min(len(lines), int(figure.get_figwidth() / entry)))
    plain(figure, lines, more=more, columns=columns)
    size = math.ceil(len(lines) / columns)
    return max(look.inches(lines[at : at + size]) for at in range(0, len(lines), size)) - look.inches([])


def _few_lines(notes: list[str]) -> list[str]:
    """Return the notes in one line, or one line each if that would be long."""
    joined = ", ".join(notes)
    return notes if len(joined) > NOTE_WIDTH else [joined] * bool(notes)


def _shows(handle: Line2D) -> int:
    """Return 2 for an entry with a marker and a line, 1 for one of them, 0 for none."""
    return sum(value not in ("None", "none", "", " ", None) for value in (handle.get_marker(), handle.get_linestyle()))
