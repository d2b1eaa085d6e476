"""Figures and axes that a notebook displays without pyplot; the colours, shapes, number formats and legends that all plots share.

Pyplot is not used: it has global state, is not safe outside the main thread, and its inline display puts a white or black box under
a transparent figure.
"""

from __future__ import annotations

import base64
import functools
import io
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, Literal, cast

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.gridspec import SubplotSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator

from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import cut_middle, one_line, printable, short
from agentlab.errors import ConfigurationError
from agentlab.model.finish_reasons import StopReason

# The colours of Okabe and Ito (https://jfly.uni-koeln.de/color/) that have a contrast of 3:1 both on white and on #111. The others
# (orange, sky blue, yellow, black) are invisible on one of the two.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"


COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, "#6633FF", "#BB2233")
"""The last two are, of all colours with that contrast, those that differ most from the ones before, for colour-blind readers too. A
seventh series differs in marker and line style."""


TEXT = "#797979"  # a contrast of 4.3:1 on white and on #111, the highest possible on both


MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")


LINE_STYLES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (3, 1, 1, 1)), (0, (1.5, 1)))


TEXT_POINTS = 9.0


SMALL_POINTS = 8.5


DPI = 100.0


SCALE = 2  # pixels of the picture per pixel of the page, for screens of high density
ROOM_FOR_REASON = 0.2
"""Share of the width to the right of the longest run of a timeline or a tree, for its stop reason."""


class PlotAxes(Axes):
    """Axes that a notebook displays as the last expression of a cell; `alt` describes the picture in words.

    Example:
        >>> axes = lab.plots.tokens(result.to_frame())
        >>> type(axes).__name__, axes.get_ylabel()
        ('PlotAxes', 'cumulative tokens')
    """

    alt: str = ""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict[str, str], dict[str, Any]]:
        return cast(PlotFigure, self.figure).bundle()


class PlotFigure(Figure):
    """A figure that a notebook displays as the last expression of a cell.

    Example:
        >>> figure = lab.plots.curves(result.to_frame())
        >>> type(figure).__name__, len(figure.axes)
        ('PlotFigure', 2)
    """

    @property
    def alt(self) -> str:
        """The description of the picture in words.

        Example:
            >>> lab.plots.curves(result.to_frame()).alt
            'Cumulative tokens per step of 1 run: claude-sonnet-4-6 3,146 after 4 steps, stop_condition. Cumulat...
        """
        return " ".join(axes.alt for axes in self.axes if isinstance(axes, PlotAxes) and axes.alt)

    def png(self, scale: float = SCALE) -> bytes:
        """Return the transparent picture; the same data give the same bytes. `scale` is the number of pixels per pixel of the page.

        Example:
            >>> lab.plots.curves(result.to_frame()).png()[1:4]
            b'PNG'
        """
        for axes in self.axes:
            # Reset the axes: the layout would start from their positions in the last drawing, and give another picture.
            spec = axes.get_subplotspec()
            if spec is not None:
                axes.set_subplotspec(spec)
        picture = io.BytesIO()
        dpi, before = self.dpi, self.canvas
        try:  # `savefig` would go through the whole figure once more for its layout, which drawing it computes anyway
            self.dpi = DPI * scale
            canvas: Any = FigureCanvasAgg(self)
            canvas.print_png(picture, metadata={"Software": None})
        finally:
            self.dpi = dpi
            self.set_canvas(before)
        return picture.getvalue()

    def bundle(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the display in a notebook, as data and metadata by mime type."""
        width, height = (round(inches * DPI) for inches in self.get_size_inches())
        picture = base64.b64encode(self.png()).decode()
        data = {"image/png": picture, "text/plain": self.alt}
        return data, {"image/png": {"width": width, "height": height, "alt": self.alt}}

    def _ipython_display_(self) -> None:
        # A `_repr_mimebundle_` would not be used: pyplot's inline display has its own formatter for Figures, with another size.
        from IPython.display import display

        data, metadata = self.bundle()
        display(data, metadata=metadata, raw=True)


def new_figure(width: float, height: float) -> PlotFigure:
    """Return an empty transparent figure of this size in inches."""
    return PlotFigure(figsize=(width, height), dpi=DPI, facecolor="none", edgecolor="none", layout="constrained")


def new_axes(
    figure: PlotFigure, rows: int = 1, columns: int = 1, index: int = 1, *, where: SubplotSpec | None = None
) -> PlotAxes:
    """Return transparent axes in one of our figures, at an index of rows and columns, or in the cell `where` of a grid."""
    place = (rows, columns, index) if where is None else (where,)
    axes = figure.add_subplot(*place, axes_class=PlotAxes)
    axes.set_facecolor("none")
    return cast(PlotAxes, axes)


def set_gap(figure: PlotFigure, gap: float) -> None:
    """Set the space between axes side by side, as a share of their width."""
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(wspace=gap)


def axes_for(ax: Axes | None, function: str, width: float, height: float) -> Axes:
    """Return the given axes, or new ones in a figure of this size in inches. Raises ConfigurationError for an array of axes etc."""
    if ax is None:
        return new_axes(new_figure(width, height))
    if not isinstance(ax, Axes):
        raise ConfigurationError(
            f"lab.plots.{function}(ax=…) takes one matplotlib Axes, not {type(ax).__name__}: pass a single Axes."
        )
    return ax


def grow(ax: Axes, height: float) -> None:
    """Make the figure of these axes at least this high, in inches."""
    figure = cast(Figure, ax.figure).figure  # the whole of a subfigure; get_figure(root=True) needs matplotlib 3.10
    figure.set_figheight(max(height, figure.get_figheight()))


def style(ax: Axes, *, left: bool = True, bottom: bool = True) -> None:
    """Draw spines, ticks and texts in a grey that is legible on dark and light; `left` and `bottom` say which spines are visible."""
    for name, spine in ax.spines.items():
        spine.set_visible((name == "left" and left) or (name == "bottom" and bottom))
        spine.set_color(TEXT)
    ax.tick_params(colors=TEXT, labelcolor=TEXT, labelsize=SMALL_POINTS, which="both")
    ax.set_axisbelow(True)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set_color(TEXT)
        label.set_fontsize(TEXT_POINTS)


def grid(ax: Axes, axis: Literal["x", "y", "both"] = "both") -> None:
    """Draw thin grid lines at the ticks."""
    ax.grid(visible=True, axis=axis, color=TEXT, alpha=0.2 if axis == "both" else 0.25, linewidth=0.6)


def step_axis(ax: Axes, label: str = "step") -> None:
    """Set up the x axis for whole steps."""
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def names_axis(ax: Axes, names: Sequence[str], places: Sequence[float] | None = None, bold: Sequence[bool] = ()) -> None:
    """Write names as labels of the y axis, at whole numbers or at `places`; `bold` says which are in bold type."""
    ax.set_yticks(range(len(names)) if places is None else places, names)
    for index, text in enumerate(ax.get_yticklabels()):
        text.set_parse_math(False)
        text.set_fontweight("bold" if bold and bold[index] else "normal")
    ax.tick_params(axis="y", length=0)


def beside(ax: Axes, text: str, at: tuple[float, float], points: float, **more: Any) -> None:
    """Write a text to the right of a point in the data, at a distance of `points`."""
    ax.annotate(
        text, at, (points, 0), textcoords="offset points", va="center", parse_math=False,
        **{"color": TEXT, "fontsize": SMALL_POINTS, **more},
    )  # fmt: skip


def nothing(ax: Axes, text: str, alt: str) -> Axes:
    """Return the axes with a sentence in place of data, and no ticks."""
    ax.set_xticks([])
    ax.set_yticks([])
    note(ax, text)
    set_alt(ax, f"{sentence(alt)}: {text}.")
    return ax


def note(ax: Axes, text: str) -> None:
    """Write a sentence in the middle of empty axes."""
    written = ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=TEXT, fontsize=11, parse_math=False)
    written.set_in_layout(False)  # the axes need not shrink for a text that is wider than they are


NOTE_ABOVE = "note above"


def note_above(ax: Axes, text: str) -> None:
    """Write a sentence above axes that show only a part of the data, on several lines if it is wider than the axes."""
    note = ax.text(
        0, 1.03, text, transform=ax.transAxes, ha="left", va="bottom", color=TEXT, fontsize=SMALL_POINTS, parse_math=False
    )
    spec = ax.get_subplotspec()
    part = 1.0 if spec is None else len(spec.colspan) / spec.get_gridspec().ncols
    room = 0.8 * part * ax.figure.bbox.width
    letters = len(text)
    while letters > 1 and note.get_window_extent().width > room:
        letters = letters * 4 // 5
        note.set_text("\n".join(textwrap.wrap(text, letters)))
    note.set_gid(NOTE_ABOVE)


def set_alt(ax: Axes, text: str) -> None:
    """Set the description of our own axes, which pages and terminals show."""
    if isinstance(ax, PlotAxes):
        ax.alt = printable(text)


def gid(kind: str, name: str) -> str:
    """Return the id of a part of the picture in an SVG file, without control characters."""
    return f"{kind}:{spoken(name)}"


def spoken(name: str, longest: int = 80) -> str:
    """Return a name from outside as part of a description: one line, at most this long."""
    return one_line(name, longest) if name else ""


# Texts and numbers ---------------------------------------------------------------------------------------------------------------


def sentence(text: str) -> str:
    """Return the text with a capital letter at its start."""
    return text[:1].upper() + text[1:]


def shorten(text: str, width: int = 30) -> str:
    """Return a name from outside as a label: one line, without keys, shortened in the middle, since versions are at the end.

    Letters that the font lacks are written as their code point, U+6A21, so that different names stay different; other characters
    that it lacks are left out.
    """
    return short("".join(map(_drawn, _STACK.sub(r"\1", redact(text)))), width)


def short_names(names: Iterable[str], width: int = 30) -> dict[str, str]:
    """Return the label of each name, see `shorten`; the labels of different names differ.

    Among several plots that agree, the names of all of them count.
    """
    whole_names = {name: shorten(name, 10**6) for name in [*names, *_KEPT.get()]}
    labels = _apart(dict.fromkeys(whole_names.values()), width)
    return {name: labels[text] for name, text in whole_names.items()}


_KEPT: ContextVar[tuple[str, ...]] = ContextVar("kept", default=())


@contextmanager
def keeping_names(names: Iterable[str]) -> Iterator[None]:
    """Inside the block, several plots agree on the labels of these names."""
    token = _KEPT.set(tuple(names))
    try:
        yield
    finally:
        _KEPT.reset(token)


def are_kept() -> bool:
    """Return whether this plot is one of several that agree."""
    return bool(_KEPT.get())


def _apart(texts: Iterable[str], width: int) -> dict[str, str]:
    """Return the texts cut in the middle; those that would then be equal keep what differs, and are cut before and after it."""
    labels = {text: cut_middle(text, width) for text in texts}
    alike: dict[str, list[str]] = {}
    for text, label in labels.items():
        alike.setdefault(label, []).append(text)
    for same in [same for same in alike.values() if len(same) > 1]:
        before = shared_start(same)
        after = shared_start([text[len(before) :][::-1] for text in same])[::-1]
        middles = {text: text[len(before) : len(text) - len(after)] for text in same}
        short_middles = _apart(middles.values(), width)
        room = max(8, width - max(map(len, short_middles.values())))
        left = max(min(8, room // 2), room - len(after))
        ends = cut_middle(before, left), cut_middle(after, room - min(left, len(before)))
        labels |= {text: short_middles[middle].join(ends) for text, middle in middles.items()}
    return labels if len(set(labels.values())) == len(labels) else _apart(labels, 2 * width)


def shared_start(texts: Sequence[str]) -> str:
    """Return the characters with which all of the texts begin."""
    return commonprefix(texts)  # noqa: RUF071  these are no paths


_STACK = re.compile("([\u0300-\u036f]{2})[\u0300-\u036f]+")
"""More accents on a letter than any language has; sixty of them are higher than a plot."""


@functools.lru_cache(maxsize=4096)
def _drawn(char: str) -> str:
    if char.isprintable() and get_font(findfont(FontProperties())).get_char_index(ord(char)):
        return char
    return f" U+{ord(char):04X} " if char.isalnum() else " "


def whole(value: float) -> str:
    """Format a count: 12,345."""
    return f"{value:,.0f}"


def dollars(value: float) -> str:
    """Format money with up to three significant digits, and at least cents: $0.0012, $0.05, $12.50."""
    if value == 0:
        return "$0"
    decimals = 2 if abs(value) >= 1 else 2 - math.floor(math.log10(abs(value)))
    whole_part, _, cents = f"{abs(value):,.{decimals}f}".partition(".")
    return f"{'-' * (value < 0)}${whole_part}.{cents.rstrip('0').ljust(2, '0')}"


class Dollars(Formatter):
    """Formats ticks in US dollars, all with the same number of decimals."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of one tick."""
        return dollars(x)

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Return the labels of all ticks of an axis."""
        size = max(map(abs, values), default=0.0)
        enough = (more for more in range(2, 13) if all(abs(round(x, more) - x) <= size * 1e-6 for x in values))
        decimals = next(enough, 12)
        return ["$0" if x == 0 else f"${x:,.{decimals}f}" for x in values]


def whole_numbers() -> Formatter:
    """Return a formatter for ticks that are counts."""
    return FuncFormatter(lambda value, _: whole(value))


# Ends of runs -------------------------------------------------------------------------------------------------------

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
    StopReason.INVALID_OUTPUT: "x",
    StopReason.AWAITING_APPROVAL: "H",
    StopReason.CANCELLED: "d",
    StopReason.ERROR: "X",
}
"""The shape of the outline around a run's last point, by stop reason."""

Row = tuple[Any, str]
"""A handle and its label."""


# Legends ------------------------------------------------------------------------------------------------------------------------
#
# They are outside the data. Those of curves have headings (runs, limits, ended by), those of all other plots have none.

SECTIONS = ("runs", "limits", "ended by")


SHOWN = 8
"""Number of entries of a section; a last line counts the others."""


_STYLE: Mapping[str, Any] = {
    "fontsize": SMALL_POINTS,
    "labelcolor": TEXT,
    "frameon": False,
    "handlelength": 3.2,
    "handletextpad": 0.6,
    "borderaxespad": 0.2,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the legend. Entries of two plots with the same `key` are merged; each plot adds its `notes` to the label."""

    section: Literal["runs", "limits", "ended by"]
    key: object
    handle: Line2D
    label: str
    notes: tuple[str, ...] = ()


def merged(legends: list[list[Entry]]) -> list[Entry]:
    """Return one legend for several plots: each entry once, with the notes of all plots."""
    entries: dict[tuple[str, object], Entry] = {}
    for entry in (entry for legend_ in legends for entry in legend_):
        key = (entry.section, entry.key)
        notes = (*entries[key].notes, *entry.notes) if key in entries else entry.notes
        entries[key] = Entry(entry.section, entry.key, entry.handle, entry.label, notes)
    return list(entries.values())


def height(entries: list[Entry]) -> int:
    """Return the number of lines of the longest section, its heading included."""
    return max((sum(1 + label.count("\n") for _, label in section) for section in _sections(entries)), default=0)


def legend(where: Axes | Figure, entries: list[Entry], *, columns: bool = False) -> None:
    """Draw the legend to the right of axes, or with `columns` below all axes of a figure, one column per section."""
    sections = _sections(entries)
    if not sections:
        return
    if columns:
        longest = max(map(len, sections))
        filled = [section + [blank()] * (longest - len(section)) for section in sections]
    else:
        filled = [section + [blank()] * (section is not sections[-1]) for section in sections]
    lines = [row for section in filled for row in section]
    texts = _draw_legend(where, lines, below="left" if columns else "", columns=len(sections) if columns else 1, labelspacing=0.4)
    headings = {id(section[0]) for section in sections}
    for row, text in zip(lines, texts, strict=True):
        if id(row) in headings:
            text.set_fontweight("bold")


def _draw_legend(where: Axes | Figure, lines: list[Row], *, below: str, columns: int, **more: Any) -> list[Text]:
    """Draw a legend to the right of axes, or `below` all axes of a figure, at the left or in the center; return its texts."""
    place = {"loc": f"outside lower {below}"} if below else {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    handles, labels = zip(*lines, strict=True)
    drawn = where.legend(handles, labels, ncols=columns, **_STYLE, **place, **more)
    for text in drawn.get_texts():
        text.set_parse_math(False)
    return drawn.get_texts()


def _sections(entries: list[Entry]) -> list[list[Row]]:
    """Return the lines of each section that has entries, the heading first."""
    sections = []
    for name in SECTIONS:
        found = [entry for entry in entries if entry.section == name]
        shown = found if len(found) <= SHOWN + 1 else found[:SHOWN]
        section: list[Row] = [blank(name), *[(entry.handle, _label(entry)) for entry in shown]]
        if len(shown) < len(found):
            section.append(blank(f"and {len(found) - len(shown)} more"))
        if found:
            sections.append(section)
    return sections


def _label(entry: Entry) -> str:
    return "\n".join([_visible(entry.label), ", ".join(entry.notes)] if entry.notes else [_visible(entry.label)])


def _visible(label: str) -> str:
    return f" {label}" if label.startswith("_") else label  # matplotlib hides labels that begin with an underscore


def blank(label: str = "") -> Row:
    """Return an entry without a handle."""
    return Line2D([], [], linestyle="none"), label


UNKNOWN = re.compile("(.+) unknown: (.+)")
"""The entry of a legend that names what is unknown, see `unknown_row`."""


def unknown_row(what: str, labels: Sequence[str]) -> list[Row]:
    """Return the entry that names the series of which something is unknown, once for all of them; none if there are no labels."""
    return [blank(textwrap.fill(f"{what} unknown: {', '.join(labels)}", 34))] if labels else []


def inches(rows: list[Row]) -> float:
    """Return the approximate height of a figure with these entries beside its axes, in inches."""
    return 0.75 + sum(0.2 + 0.145 * label.count("\n") for _, label in rows)


def plain(where: Axes | Figure, rows: list[Row], *, more: int = 0, columns: int = 0) -> None:
    """Draw a legend without headings: to the right of axes, or with `columns` below all axes of a figure. A last line counts `more`."""
    lines = [(handle, _visible(label)) for handle, label in ([*rows, blank(f"and {more} more")] if more > 0 else rows)]
    if lines:
        _draw_legend(where, lines, below="center" if columns else "", columns=columns or 1)
