"""Figures and axes that show themselves in a notebook without pyplot, and the colours and shapes that all plots share.

Pyplot is left alone for three reasons: it is global state, it is not safe outside the main thread, and its inline display puts a
white or black box behind a transparent figure. So `_repr_mimebundle_` gives the picture; nothing else has to be imported or called.
"""

from __future__ import annotations

import base64
import functools
import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.gridspec import SubplotSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import Formatter

from agentlab.errors import ConfigurationError
from agentlab.printable import one_line, printable, short
from agentlab.redaction import without_keys

# The colours of Okabe and Ito (https://jfly.uni-koeln.de/color/) that have a contrast of 3:1 on white and on #111 alike; the others
# (orange, sky blue, yellow, black) vanish on one of the two, so a fifth provider differs by marker and line style.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE)
TEXT = "#797979"  # 4.3:1 on white and on #111: no colour has more on both
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")
LINE_STYLES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (3, 1, 1, 1)), (0, (1.5, 1)))
TEXT_POINTS = 9.0
SMALL_POINTS = 8.5
DPI = 100.0
SCALE = 2  # pixels per point of the page, for screens of high density


class PlotAxes(Axes):
    """Axes that a notebook shows when they are the last expression of a cell; `alt` says in words what is to be seen.

    Example:
        >>> axes = lab.plots.tokens(result.to_frame())
        >>> type(axes).__name__, axes.get_ylabel()
        ('PlotAxes', 'cumulative tokens')
    """

    alt: str = ""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict[str, str], dict[str, Any]]:
        return cast(PlotFigure, self.figure).bundle()


class PlotFigure(Figure):
    """A figure that a notebook shows when it is the last expression of a cell.

    Example:
        >>> figure = lab.plots.curves(result.to_frame())
        >>> type(figure).__name__, len(figure.axes)
        ('PlotFigure', 2)
    """

    @property
    def alt(self) -> str:
        """What is to be seen, in words.

        Example:
            >>> lab.plots.curves(result.to_frame()).alt
            'Cumulative tokens per step of 1 run: anthropic:claude-sonnet-4-6 3,146 after 4 steps, stop_condition. C...
        """
        return " ".join(axes.alt for axes in self.axes if isinstance(axes, PlotAxes) and axes.alt)

    def png(self, scale: float = SCALE) -> bytes:
        """The picture, transparent; the same data give the same bytes. `scale` is in pixels per pixel of the page.

        Example:
            >>> lab.plots.curves(result.to_frame()).png()[1:4]
            b'PNG'
        """
        for axes in self.axes:
            # The layout starts from where the last drawing left the axes, and would end elsewhere: start from the same place.
            spec = axes.get_subplotspec()
            if spec is not None:
                axes.set_subplotspec(spec)
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=DPI * scale, metadata={"Software": None})
        return picture.getvalue()

    def bundle(self) -> tuple[dict[str, str], dict[str, Any]]:
        """What a notebook shows, as data and metadata by mime type."""
        width, height = (round(inches * DPI) for inches in self.get_size_inches())
        picture = base64.b64encode(self.png()).decode()
        data = {"image/png": picture, "text/plain": self.alt}
        return data, {"image/png": {"width": width, "height": height, "alt": self.alt}}

    def _ipython_display_(self) -> None:
        # Not `_repr_mimebundle_`: where pyplot's inline display is active it has a formatter of its own for every Figure, whose picture
        # has another size than the one in our metadata.
        from IPython.display import display

        data, metadata = self.bundle()
        display(data, metadata=metadata, raw=True)


def new_figure(width: float, height: float) -> PlotFigure:
    """An empty transparent figure, in inches."""
    return PlotFigure(figsize=(width, height), dpi=DPI, facecolor="none", edgecolor="none", layout="constrained")


def new_axes(
    figure: PlotFigure, rows: int = 1, columns: int = 1, index: int = 1, *, where: SubplotSpec | None = None
) -> PlotAxes:
    """Transparent axes in a figure of ours, at a place of a grid of its own or `where` a grid has it."""
    place = (rows, columns, index) if where is None else (where,)
    axes = figure.add_subplot(*place, axes_class=PlotAxes)
    axes.set_facecolor("none")
    return cast(PlotAxes, axes)


def set_gap(figure: PlotFigure, gap: float) -> None:
    """The space between axes that stand side by side, as a part of their width."""
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(wspace=gap)


def axes_for(ax: Axes | None, function: str, width: float, height: float) -> Axes:
    """The axes that were given, or new ones in a figure of that many inches; an error for what is no axes, such as an array of them."""
    if ax is None:
        return new_axes(new_figure(width, height))
    if not isinstance(ax, Axes):
        raise ConfigurationError(
            f"lab.plots.{function}(ax=…) takes one matplotlib Axes, not {type(ax).__name__}: pass one of them."
        )
    return ax


def grow(ax: Axes, height: float) -> None:
    """Make the figure of axes so high, in inches, where it is lower."""
    figure = cast(Figure, ax.figure).figure  # the whole of a subfigure; get_figure(root=True) needs matplotlib 3.10
    figure.set_figheight(max(height, figure.get_figheight()))


def style(ax: Axes) -> None:
    """Lines, ticks and texts in the one grey that holds on dark and light; the background of given axes stays as it is."""
    for name, spine in ax.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(TEXT)
    ax.tick_params(colors=TEXT, labelcolor=TEXT, labelsize=SMALL_POINTS, which="both")
    ax.set_axisbelow(True)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set_color(TEXT)
        label.set_fontsize(TEXT_POINTS)


def note(ax: Axes, text: str) -> None:
    """A sentence in the middle of axes that have nothing to show."""
    told = ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=TEXT, fontsize=11, parse_math=False)
    told.set_in_layout(False)  # where it is wider than the axes, they need not become narrower for it


def note_above(ax: Axes, text: str) -> None:
    """A sentence above axes that show a part only; on several lines where it is wider than they are, which would leave them no room."""
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


def set_alt(ax: Axes, text: str) -> None:
    """Keep the description on axes of ours: it stands in pages and terminals."""
    if isinstance(ax, PlotAxes):
        ax.alt = printable(text)


def gid(kind: str, name: str) -> str:
    """What a part of the picture is called in an SVG file, which holds no control characters."""
    return f"{kind}:{spoken(name)}"


def spoken(name: str, longest: int = 80) -> str:
    """A name from outside in the words that tell of a picture, and the same for one that is empty."""
    return one_line(name, longest) if name else ""


# Words ---------------------------------------------------------------------------------------------------------------------------


def shorten(text: str, width: int = 30) -> str:
    """A name from outside as a label: one line, without keys, cut in the middle, since versions stand at the end.

    Letters that the font has not are written as their number, U+6A21, so that different names stay different; signs are left out.
    """
    return short("".join(map(_drawn, without_keys(text))), width)


def _drawn(char: str) -> str:
    if _drawable(char):
        return char
    return f" U+{ord(char):04X} " if char.isalnum() else " "


@functools.lru_cache(maxsize=4096)
def _drawable(char: str) -> bool:
    return char.isprintable() and bool(get_font(findfont(FontProperties())).get_char_index(ord(char)))


def whole(value: float) -> str:
    """A count: 12,345."""
    return f"{value:,.0f}"


def dollars(value: float) -> str:
    """Money with three digits that count, and never fewer than cents: $0.0012, $0.05, $12.50."""
    if value == 0:
        return "$0"
    decimals = 2 if abs(value) >= 1 else 2 - math.floor(math.log10(abs(value)))
    whole_part, _, cents = f"{abs(value):,.{decimals}f}".partition(".")
    return f"{'-' * (value < 0)}${whole_part}.{cents.rstrip('0').ljust(2, '0')}"


class Dollars(Formatter):
    """Ticks in US dollars, all of an axis with as many decimals as their distances need."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return dollars(x)

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """The labels of one axis."""
        size = max(map(abs, values), default=0.0)
        enough = (more for more in range(2, 13) if all(abs(round(x, more) - x) <= size * 1e-6 for x in values))
        decimals = next(enough, 12)
        return ["$0" if x == 0 else f"${x:,.{decimals}f}" for x in values]
