"""Legends outside the data: of the curves under headings (runs, limits, ends), of all other plots without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from agentlab.plots import figure as look

Row = tuple[Line2D, str]


SECTIONS = ("runs", "limits", "ended by")


SHOWN = 8
"""Entries of a section; the others are counted in one line."""


_STYLE: Mapping[str, Any] = {
    "fontsize": look.SMALL_POINTS,
    "labelcolor": look.TEXT,
    "frameon": False,
    "handlelength": 2.6,
    "handletextpad": 0.6,
    "borderaxespad": 0.2,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the legend. `key` is the same for the same thing in two plots; each of them adds its `notes` to the label."""

    section: Literal["runs", "limits", "ended by"]
    key: object
    handle: Line2D
    label: str
    notes: tuple[str, ...] = ()


def merged(legends: list[list[Entry]]) -> list[Entry]:
    """One legend for several plots: each entry once, with the notes of all."""
    entries: dict[tuple[str, object], Entry] = {}
    for entry in (entry for legend_ in legends for entry in legend_):
        key = (entry.section, entry.key)
        notes = (*entries[key].notes, *entry.notes) if key in entries else entry.notes
        entries[key] = Entry(entry.section, entry.key, entry.handle, entry.label, notes)
    return list(entries.values())


def height(entries: list[Entry]) -> int:
    """Number of lines of the longest section, its heading included."""
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
    place = {"loc": "outside lower left"} if columns else {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    drawn = where.legend(
        [handle for handle, _ in lines],
        [label for _, label in lines],
        ncols=len(sections) if columns else 1,
        **_STYLE,
        labelspacing=0.4,
        **place,
    )
    headings = {id(section[0]) for section in sections}
    for row, text in zip(lines, drawn.get_texts(), strict=True):
        text.set_parse_math(False)
        if id(row) in headings:
            text.set_fontweight("bold")


def _sections(entries: list[Entry]) -> list[list[Row]]:
    """Return the lines of each section that has any, the heading first."""
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


def inches(rows: list[Row]) -> float:
    """Return the approximate height of a figure with these entries beside its axes, in inches."""
    return 0.75 + sum(0.2 + 0.145 * label.count("\n") for _, label in rows)


def plain(where: Axes | Figure, rows: list[Row], *, more: int = 0, columns: int = 0) -> None:
    """Draw a legend without headings: to the right of axes, or with `columns` below all axes of a figure. A line counts `more`."""
    lines = [*rows, blank(f"and {more} more")] if more > 0 else rows
    if not lines:
        return
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    drawn = where.legend(
        [handle for handle, _ in lines],
        [_visible(label) for _, label in lines],
        **_STYLE,
        **({"loc": "outside lower center", "ncols": columns} if columns else place),
    )
    for text in drawn.get_texts():
        text.set_parse_math(False)
