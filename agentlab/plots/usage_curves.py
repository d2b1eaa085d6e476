"""Cumulative tokens and cost per step, one line per run: data and drawing."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from agentlab._internal.formatting import counted
from agentlab._internal.names import helps_with_keywords
from agentlab.analysis.groups import STEPS_ADVICE, checked, each_once, names_of, numbers, outermost, steps_of, texts
from agentlab.limits.combinators import StopCondition
from agentlab.plots import figure as look
from agentlab.plots.figure import END_MARKERS, Entry, blank, height, legend, merged
from agentlab.plots.series import Look, grouping, look_at, looks_of
from agentlab.records.frames import Recordings

LIMIT_STYLES: tuple[Any, ...] = ((0, (3, 2.5)), (0, (1, 2)), (0, (5, 2, 1, 2)), (0, (1, 4)))
SHOWN_RUNS = 8
SHOWN_CHANGES = 3
NAME_WIDTH = 30
NAMED_MODELS = 2
NOTE_WIDTH = 56
"""Number of characters of a line above axes that share a figure."""
VISIBLE_FACTOR = 4.0
"""A limit above this multiple of the usage would flatten the curves, so it is in the legend only."""

# Data ----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """The quantity of a curve: its column in the data and in the steps frame, the budget's limit on it, and the `total` that is
    declared by stop conditions on it."""

    name: str
    function: str
    column: str
    budget: str
    total: str
    dtype: str
    label: str
    words: Callable[[float], str]


TOKENS = Quantity(
    "tokens", "tokens", "cumulative_tokens", "max_tokens", "tokens", "Int64", "cumulative tokens", look.whole
)  # fmt: skip
COST = Quantity(
    "cost_usd", "cost", "cumulative_cost_usd", "max_cost_usd", "cost", "Float64", "cumulative cost (US dollars)", look.dollars
)  # fmt: skip
_FIXED = ("run_id", "provider", "model", "step", "stop_reason")


@helps_with_keywords
def tokens_data(steps: Recordings | pd.DataFrame) -> pd.DataFrame:
    """Return cumulative tokens at each step, with the limits in force.

    Columns: `run_id`, `provider`, `model`, `step`, `stop_reason` (on the last step of a run that has ended), `tokens` (NA: unknown),
    and one column per limit with the tokens that it allowed (NA: not in force at this step): `max_tokens` of the budget,
    `MaxTokensUsed` (`MaxTokensUsed_2`, …) of the stop condition.

    Example:
        >>> lab.plots.tokens_data(result.to_frame())[["provider", "step", "stop_reason", "tokens"]]
            provider  step     stop_reason  tokens
        0  anthropic     1            <NA>     637
        1  anthropic     2            <NA>    1384
        2  anthropic     3            <NA>    2208
        3  anthropic     4  stop_condition    3146
    """
    return curve_data(steps_of(steps, "lab.plots.tokens"), TOKENS)


@helps_with_keywords
def cost_data(steps: Recordings | pd.DataFrame) -> pd.DataFrame:
    """Return cumulative cost in US dollars at each step, with the limits in force.

    The columns are those of `tokens_data`, with `cost_usd` for the value, and `max_cost_usd` and `MaxCost` (`MaxCost_2`, …) for the
    limits.

    Example:
        >>> lab.plots.cost_data(result.to_frame())[["step", "cost_usd"]]
           step  cost_usd
        0     1  0.003207
        1     2  0.007008
        2     3  0.010332
        3     4  0.014346
    """
    return curve_data(steps_of(steps, "lab.plots.cost"), COST)


def curve_data(steps: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """Return the data of one plot, with runs in the order of their first row, and each run's rows by step."""
    needed = ("run_id", "provider", "step", quantity.column)
    steps = outermost(checked(steps, needed, f"lab.plots.{quantity.function}", STEPS_ADVICE))
    data = pd.DataFrame(
        {
            "run_id": texts(steps, "run_id").fillna("unnamed run"),
            "provider": texts(steps, "provider").fillna("unknown provider"),
            "model": texts(steps, "model"),
            "step": _numbers(steps, "step", "Int64"),
            "stop_reason": texts(steps, "stop_reason"),
            quantity.name: _numbers(steps, quantity.column, quantity.dtype),
        }
    )
    for name, column in limit_columns(list(steps.columns), quantity).items():
        limit = _numbers(steps, column, quantity.dtype)
        if limit.notna().any():
            data[name] = limit
    data = each_once(data[data["step"].notna()], ("run_id", "step"), [quantity.name])
    order = data["run_id"].map({run_id: place for place, run_id in enumerate(data["run_id"].unique())})
    return data.assign(order=order).sort_values(["order", "step"], kind="stable").drop(columns="order").reset_index(drop=True)


def _numbers(frame: pd.DataFrame, name: str, dtype: str) -> pd.Series[float]:
    """Return a column as numbers of this dtype, which it may have lost in a file."""
    found = numbers(frame, name)
    return cast("pd.Series[float]", found.round().astype("Int64") if dtype == "Int64" else found)


def limit_columns(columns: Sequence[str], quantity: Quantity) -> dict[str, str]:
    """Return the columns that hold limits on this quantity, by the limit's name."""
    leaf = re.compile(rf"((?:{'|'.join(map(re.escape, _conditions_on(quantity.total)))})(?:_\d+)?)\.limit")
    budget = {quantity.budget: quantity.budget} if quantity.budget in columns else {}
    return budget | {found[1]: column for column in columns if (found := leaf.fullmatch(str(column)))}


def _conditions_on(total: str, kind: type[StopCondition] = StopCondition) -> list[str]:
    """Return the names of the conditions that declare this total."""
    own = [kind.__name__] if kind.total == total else []
    return own + [name for below in kind.__subclasses__() for name in _conditions_on(total, below)]


@dataclass(frozen=True, slots=True)
class Course:
    """The values of a limit over the steps (None: no limit at that step), and the runs that had them."""

    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    run_ids: tuple[str, ...]

    @property
    def changes(self) -> tuple[float | None, ...]:
        """The values without repetitions: a single value for a limit that was not changed."""
        pairs = zip((object(), *self.values), self.values, strict=False)
        return tuple(value for before, value in pairs if value != before)


def limit_courses(data: pd.DataFrame, name: str) -> list[Course]:
    """Return the distinct courses of a limit; runs whose values agree over their common steps share a course."""
    of_runs = []
    for run_id, run in data.groupby("run_id", sort=False):
        values = tuple(None if pd.isna(value) else float(value) for value in run[name])
        if any(value is not None for value in values):
            of_runs.append(Course(tuple(int(step) for step in run["step"]), values, (str(run_id),)))
    courses: list[Course] = []
    for one in sorted(of_runs, key=lambda course: -len(course.steps)):
        length = len(one.steps)
        for place, course in enumerate(courses):
            if course.steps[:length] == one.steps and course.values[:length] == one.values:
                courses[place] = replace(course, run_ids=(*course.run_ids, *one.run_ids))
                break
        else:
            courses.append(one)
    return courses


# Drawing -------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
def tokens(steps: Recordings | pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw cumulative tokens per step, one line per run, with the token limits in force and the end of each run.

    `steps` is what `lab.frame` takes (a run, a result, several in a list, a store, …) or returns. Lines have the colour of what differs
    between the runs: the agent if agents have names, else the model, with the provider or the settings if they differ too. If nothing
    differs, up to 8 runs are numbered in the order of the frame, each with its own look. The runs of sub-agents are a part of those
    that called them. Returns the axes; see `tokens_data` for their data. The legend is to the right of the axes: create the
    figure of your own axes with `layout="constrained"` to make room for it. Errors: ConfigurationError if columns are missing.

    Example:
        >>> steps = lab.frame([result, *others])
        >>> lab.plots.tokens(steps).alt
        'Cumulative tokens per step of 3 runs: claude-sonnet-4-6 3,146 after 4 steps, stop_condition; gpt-5.4...
    """
    return _plot(steps, TOKENS, ax)


@helps_with_keywords
def cost(steps: Recordings | pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw cumulative cost per step in US dollars, one line per run, with the cost limits in force and the end of each run.

    It takes and returns the same as `tokens`. If a price is unknown the line ends, and a note above the plot says for which runs and
    why.

    Example:
        >>> steps = lab.frame([result, *others])
        >>> lab.plots.cost(steps).alt
        'Cumulative cost (US dollars) per step of 3 runs: claude-sonnet-4-6 $0.0143 after 4 steps, stop_cond...
    """
    return _plot(steps, COST, ax)


@helps_with_keywords
def curves(steps: Recordings | pd.DataFrame) -> look.PlotFigure:
    """Draw tokens and cost side by side in one figure, with one legend below. `steps` as for `tokens`.

    Example:
        >>> lab.plots.curves(result.to_frame()).alt
        'Cumulative tokens per step of 1 run: claude-sonnet-4-6 3,146 after 4 steps, stop_condition. Cumulat...
    """
    return curves_of(steps_of(steps, "lab.plots.curves"))


def curves_of(steps: pd.DataFrame, numbered: Mapping[str, int] | None = None) -> look.PlotFigure:
    """Draw `curves`; the runs in `numbered` have these numbers, and each its own look."""
    figure = look.new_figure(9.0, 3.0)
    look.set_gap(figure, 0.05)
    drawn = [_draw(look.new_axes(figure, 1, 2, index), steps, one, numbered) for index, one in enumerate((TOKENS, COST), start=1)]
    entries = merged(drawn)
    figure.set_size_inches(9.0, 3.0 + 0.2 * height(entries))
    legend(figure, entries, columns=True)
    return figure


def _plot(steps: Recordings | pd.DataFrame, quantity: Quantity, ax: Axes | None) -> Axes:
    steps = steps_of(steps, f"lab.plots.{quantity.function}")
    ax = look.axes_for(ax, quantity.function, 6.4, 3.6)
    legend(ax, _draw(ax, steps, quantity))
    return ax


@dataclass(frozen=True, slots=True)
class _RunLine:
    """One run as drawn. `values` are NaN if unknown."""

    run_id: str
    name: str
    """The name of its series; of a numbered run with the number, which is all if nothing else differs."""
    steps: list[int]
    values: list[float]
    stop_reason: str | None
    number: int | None = None

    @property
    def last_known(self) -> int | None:
        return next((place for place in reversed(range(len(self.values))) if not math.isnan(self.values[place])), None)


def _run_lines(
    data: pd.DataFrame, quantity: Quantity, names: Mapping[str, str], numbered: Mapping[str, int] | None
) -> list[_RunLine]:
    """Return the runs. A few runs between which nothing differs are numbered, but not in plots that share a legend."""
    lines = []
    for run_id, run in data.groupby("run_id", sort=False, dropna=False):
        last = run.iloc[-1]
        values = run[quantity.name].astype("Float64").to_numpy(dtype=float, na_value=math.nan)
        reason = None if pd.isna(last["stop_reason"]) else str(last["stop_reason"])
        lines.append(_RunLine(str(run_id), names[str(run_id)], [int(step) for step in run["step"]], values.tolist(), reason))
    one = len({line.name for line in lines}) == 1
    if numbered is None and one and 1 < len(lines) <= SHOWN_RUNS and not look.are_kept():
        numbered = {line.run_id: number for number, line in enumerate(lines, start=1)}
    if numbered is None:
        return lines
    numbers = [numbered[line.run_id] for line in lines]
    return [
        replace(line, number=number, name=f"run {number}" if one else f"{number}  {line.name}")
        for number, line in zip(numbers, lines, strict=True)
    ]


def _draw(ax: Axes, steps: pd.DataFrame, quantity: Quantity, numbered: Mapping[str, int] | None = None) -> list[Entry]:
    """Draw one plot without its legend; return the legend's entries."""
    data = curve_data(steps, quantity)
    ax.set_ylabel(quantity.label)
    look.style(ax)
    look.step_axis(ax)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=quantity is TOKENS))
    ax.yaxis.set_major_formatter(look.whole_numbers() if quantity is TOKENS else look.Dollars())
    if data.empty:
        look.nothing(ax, "no steps yet", f"{quantity.label} per step")
        return []
    look.grid(ax, "y")
    names = dict(zip(texts(steps, "run_id").fillna("unnamed run"), names_of(steps, grouping(steps, None)), strict=True))
    lines = _run_lines(data, quantity, names, numbered)
    looks = {line.name: look_at(line.number - 1) for line in lines if line.number is not None} or looks_of(
        line.name for line in lines
    )
    alike = names[lines[0].run_id] if lines[0].number is not None and len(set(names.values())) == 1 else ""
    courses = {name: limit_courses(data, name) for name in data.columns if name not in (*_FIXED, quantity.name)}
    top = _top(lines, courses.values())
    entries = _draw_runs(ax, lines, looks)
    if alike:
        entries.insert(0, Entry("runs", "alike", blank()[0], look.shorten(alike, NAME_WIDTH)))
    entries += _draw_limits(ax, courses, {line.run_id: looks[line.name] for line in lines}, top, quantity)
    entries += _draw_ends(ax, lines)
    _name_limits(ax, courses, lines, top)
    first, last = min(line.steps[0] for line in lines), max(line.steps[-1] for line in lines)
    margin = max(0.5, 0.015 * (last - first))
    ax.set_xlim(first - margin, last + margin)
    ax.set_ylim(0, top * 1.07)
    unknown = why_unknown(steps, data, quantity, names)
    if all(line.last_known is None for line in lines):
        look.note(ax, _wrapped(unknown, 34))
        if not courses:
            ax.set_yticks([])
    elif unknown:
        look.note_above(ax, _wrapped(unknown))
    why = f" {look.sentence(look.spoken(unknown, 300))}." if unknown else ""
    look.set_alt(ax, _alt(lines, courses, quantity, alike) + why)
    return entries


def _draw_runs(ax: Axes, lines: list[_RunLine], looks: dict[str, Look]) -> list[Entry]:
    few = len(lines) <= SHOWN_RUNS
    for line in lines:
        its, place = looks[line.name], line.last_known
        if place is None:
            continue
        every: Any = max(1, len(line.steps) // 12) if len(line.steps) > 25 else 1
        ax.plot(
            line.steps, line.values, color=its.colour, linestyle=its.line_style, linewidth=1.8 if few else 1.1, marker=its.marker,
            markersize=4.5, markevery=every if few else [place], zorder=3, gid=look.gid("run", line.run_id),
        )  # fmt: skip
        if place < len(line.values) - 1:
            look.beside(ax, "?", (line.steps[place], line.values[place]), 5, weight="bold", fontsize=11)
    entries, labels = [], look.short_names([line.name for line in lines], NAME_WIDTH)
    for name, its in looks.items():
        runs = sum(line.name == name for line in lines)
        handle = Line2D([], [], color=its.colour, marker=its.marker, markersize=4.5, linestyle=its.line_style, linewidth=1.8)
        entries.append(Entry("runs", name, handle, labels[name] + (f" × {runs}" if runs > 1 else "")))
    return entries


def _draw_limits(
    ax: Axes, courses: dict[str, list[Course]], look_of: dict[str, Look], top: float, quantity: Quantity
) -> list[Entry]:
    entries = []
    for place, (name, of_name) in enumerate(courses.items()):
        line_style = LIMIT_STYLES[place % len(LIMIT_STYLES)]
        for course in of_name:
            colours = {look_of[run_id].colour for run_id in course.run_ids}
            # A limit that differs between runs has the colour of its runs, or grey if it applied to several.
            colour = colours.pop() if len(of_name) > 1 and len(colours) == 1 else look.TEXT
            xs = [edge for step in course.steps for edge in (step - 0.5, step + 0.5)]
            ys = [math.nan if value is None else value for value in course.values for _ in range(2)]
            ax.plot(xs, ys, color=colour, linestyle=line_style, linewidth=1.3, zorder=2, gid=look.gid("limit", name))
        handle = Line2D([], [], color=look.TEXT, linestyle=line_style, linewidth=1.3)
        hidden = all(value is None or value > top for course in of_name for value in course.values)
        label = f"{name} {_limit_label(of_name, quantity.words)}"
        entries.append(Entry("limits", name, handle, label, ("above the plot",) if hidden else ()))
    return entries


def _name_limits(ax: Axes, courses: dict[str, list[Course]], lines: list[_RunLine], top: float) -> None:
    """Write each limit's name at the left end of its line, unless a curve or another name is there. The legend has all names."""
    room = 0.085 * top
    taken = [value for line in lines for step, value in zip(line.steps, line.values, strict=True) if step <= 2]
    for name, of_name in courses.items():
        value = of_name[0].values[0]
        if value is None or value > top or any(-room < other - value < room for other in taken):
            continue
        taken.append(value)
        at = (of_name[0].steps[0] - 0.5, value)
        ax.annotate(look.shorten(name), at, (4, 2), textcoords="offset points", va="bottom", color=look.TEXT, fontsize=7.5)


def _limit_label(courses: list[Course], words: Callable[[float], str]) -> str:
    """Return the values of a limit: `1,000`; `1,000 → 2,000` if it was changed, `1,000 or 2,000` if it differs between runs, and
    `500 to 2,000` if that would be long."""
    labels = []
    for course in courses:
        changes = ["none" if value is None else words(value) for value in course.changes]
        labels.append(" → ".join(changes if len(changes) <= SHOWN_CHANGES else [changes[0], "…", changes[-1]]))
    text = " or ".join(dict.fromkeys(sorted(labels, key=lambda label: (len(label), label))))
    if len(courses) == 1 or len(text) <= 22:
        return text
    values = [value for course in courses for value in course.values if value is not None]
    least, most = min(values), max(values)
    return f"{words(least)} to {words(most)}" if least < most else f"{words(most)} or none"


def _draw_ends(ax: Axes, lines: list[_RunLine]) -> list[Entry]:
    few, known, entries = len(lines) <= SHOWN_RUNS, list(END_MARKERS), []
    reasons = {line.stop_reason for line in lines if line.stop_reason is not None}
    for reason in sorted(reasons, key=lambda name: (known.index(name) if name in known else len(known), name)):
        ended = [line for line in lines if line.stop_reason == reason]
        shape: dict[str, Any] = {
            "marker": END_MARKERS.get(reason, "H"),
            "markersize": 11 if few else 8,
            "markerfacecolor": "none",
            "markeredgecolor": look.TEXT,
            "markeredgewidth": 1.5 if few else 1.1,
            "linestyle": "none",
        }
        points = [(line.steps[-1], line.values[-1]) for line in ended if not math.isnan(line.values[-1])]
        if points:
            ax.plot(*zip(*points, strict=True), zorder=4, clip_on=False, gid=look.gid("end", reason), **shape)
        label = look.shorten(reason) + (f" × {len(ended)}" if len(ended) > 1 else "")
        entries.append(Entry("ended by", reason, Line2D([], [], **(shape | {"markersize": 8})), label))
    return entries


def _top(lines: list[_RunLine], courses: Iterable[list[Course]]) -> float:
    """Return the highest value to show: of the usage, and of limits that are near it."""
    used = max((value for line in lines for value in line.values if not math.isnan(value)), default=0.0)
    limits = [value for of_name in courses for course in of_name for value in course.values if value is not None]
    near = [limit for limit in limits if limit <= used * VISIBLE_FACTOR] if used else limits
    return max([used, *near]) or 1.0


# Words ---------------------------------------------------------------------------------------------------------------------------


def _alt(lines: list[_RunLine], courses: dict[str, list[Course]], quantity: Quantity, alike: str) -> str:
    parts = []
    for line in lines[:SHOWN_RUNS]:
        used = quantity.words(line.values[-1]) if not math.isnan(line.values[-1]) else "unknown"
        end = line.stop_reason or "not ended"
        parts.append(f"{look.spoken(line.name)} {used} after {counted(len(line.steps), 'step')}, {look.spoken(end)}")
    if len(lines) > SHOWN_RUNS:
        parts.append(f"and {len(lines) - SHOWN_RUNS} more")
    limits = [f"{name} {_limit_label(of_name, quantity.words)}" for name, of_name in courses.items()]
    of_what = f" of {look.spoken(alike)}" if alike else ""
    text = f"{look.sentence(quantity.label)} per step of {counted(len(lines), 'run')}{of_what}: {'; '.join(parts)}."
    return f"{text} Limits: {', '.join(limits)}." if limits else text


def why_unknown(steps: pd.DataFrame, data: pd.DataFrame, quantity: Quantity, names: Mapping[str, str]) -> str:
    """Return `cost unknown for 1 of 3 runs (gemma3): no price for compatible:gemma3; lab.plots.tokens shows tokens`, with the cause in
    place of `no price for …` if the frame has it; empty if all is known.

    `data` is the drawn part of `steps`, `names` has the name of each run's series.
    """
    rows = data[data[quantity.name].isna()]
    if rows.empty:
        return ""
    few, all_runs = rows["run_id"].nunique(), data["run_id"].nunique()
    labels = look.short_names(set(names.values()), NAME_WIDTH)
    which = _some([labels[name] for name in dict.fromkeys(names[str(run_id)] for run_id in rows["run_id"])])
    what = f"{quantity.function} unknown" + (f" for {few:,} of {all_runs:,} runs ({which})" if few < all_runs else "")
    if TOKENS.column not in steps.columns:
        return what
    with_usage = steps[steps[TOKENS.column].notna()]
    known = set(zip(with_usage["run_id"].astype("string"), with_usage["step"], strict=True))
    without_price = rows[[place in known for place in zip(rows["run_id"], rows["step"], strict=True)]]
    if quantity is COST and not without_price.empty:
        places = set(zip(without_price["run_id"], without_price["step"], strict=True))
        noted = steps[[place in places for place in zip(steps["run_id"].astype("string"), steps["step"], strict=True)]]
        notes = noted["cost_note"].dropna().unique() if "cost_note" in steps.columns else ()
        causes = [look.shorten(re.sub("^The ", "the ", note).rstrip("."), 80) for note in notes]
        return f"{what}: {_some(causes) or f'no price for {_models(without_price)}'}; lab.plots.tokens shows tokens"
    return f"{what}: {'no usage was reported' if few < all_runs else f'{_models(rows)} reported no usage'}"


def _wrapped(text: str, width: int = NOTE_WIDTH) -> str:
    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=False))


def _models(rows: pd.DataFrame) -> str:
    names = [":".join(filter(None, pair)) for pair in dict.fromkeys(zip(rows["provider"], rows["model"].fillna(""), strict=True))]
    labels = look.short_names(names, 40)
    return _some([labels[name] for name in names])


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MODELS} more" if len(names) > NAMED_MODELS else ""
    return ", ".join(names[:NAMED_MODELS]) + more
