"""The display of values and frames: the mime bundle of every public value, and DataFrames without formulas.

Loads neither pandas nor ipywidgets.
"""

from __future__ import annotations

from typing import Any

from agentlab._internal.safe_text import cut
from agentlab.notebook.cards import as_html, card_of

LONGEST_TEXT = 2_000
"""The most characters of a repr."""
PLACES = ("pandas", "pandas.core.frame")
"""The module of DataFrame in pandas 3, and before."""


def bundle(value: object) -> dict[str, str]:
    """Return the value as text and as HTML, for `_repr_mimebundle_`."""
    return {"text/plain": cut(repr(value), LONGEST_TEXT), "text/html": as_html(card_of(value))}


def show_frames_as_written(shell: Any) -> None:
    """Make this IPython show DataFrames without formulas, unless their display has been changed already.

    JupyterLab turns the text between two `$` in a table into a formula, so "from $5 to $10" is garbled. No option of pandas is changed.
    """
    html = shell.display_formatter.formatters["text/html"]
    for place in PLACES:
        if f"{place}.DataFrame" not in html:
            html.for_type_by_name(place, "DataFrame", as_written)


def show_frames_as_pandas_does(shell: Any) -> None:
    """Undo `show_frames_as_written`."""
    html = shell.display_formatter.formatters["text/html"]
    for place in PLACES:
        name = f"{place}.DataFrame"
        if name in html and html.lookup_by_type(name) is as_written:
            html.pop(name)


def as_written(frame: Any) -> str | None:
    """Return the HTML of a DataFrame, marked so that JupyterLab renders no formula in it."""
    import pandas as pd

    with pd.option_context("display.html.use_mathjax", False):
        html: str | None = frame._repr_html_()
    return html
