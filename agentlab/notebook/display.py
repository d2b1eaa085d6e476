"""What a notebook shows of each public value: a small table, the same at every execution (no times, no ids), and its repr as text.

Everything is escaped, cut where it is long, and readable on white and on black. Neither pandas nor ipywidgets is loaded for it.
"""

from __future__ import annotations

from typing import Any

from agentlab.notebook.cards import as_html, card_of
from agentlab.printable import cut

LONGEST_TEXT = 2_000
"""Characters of a repr."""


def bundle(value: object) -> dict[str, str]:
    """The value as text and as HTML, for `_repr_mimebundle_`."""
    return {"text/plain": cut(repr(value), LONGEST_TEXT), "text/html": as_html(card_of(value))}


PLACES = ("pandas", "pandas.core.frame")
"""Where a DataFrame says that it comes from: pandas 3, and before."""


def show_frames_as_written(shell: Any) -> None:
    """Show DataFrames without formulas, unless somebody has already said how they are to be shown."""
    html = shell.display_formatter.formatters["text/html"]
    for place in PLACES:
        if f"{place}.DataFrame" not in html:
            html.for_type_by_name(place, "DataFrame", as_written)


def show_frames_as_pandas_does(shell: Any) -> None:
    """Show them as pandas does."""
    html = shell.display_formatter.formatters["text/html"]
    for place in PLACES:
        name = f"{place}.DataFrame"
        if name in html and html.lookup_by_type(name) is as_written:
            html.pop(name)


def as_written(frame: Any) -> str | None:
    """The HTML that pandas makes of a DataFrame, marked so that no formula is looked for in it."""
    import pandas as pd

    with pd.option_context("display.html.use_mathjax", False):
        html: str | None = frame._repr_html_()
    return html
