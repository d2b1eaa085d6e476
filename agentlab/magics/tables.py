"""Tables of pandas with their texts as they are.

JupyterLab sets what stands between two `$` in a table as a formula, so that "from $5 to $10" comes out as one; what models say is full
of prices. No option of pandas is changed: only how this IPython shows a DataFrame."""

from __future__ import annotations

from typing import Any

PLACES = ("pandas", "pandas.core.frame")
"""Where a DataFrame says that it comes from: pandas 3, and before."""


def register(shell: Any) -> None:
    """Show DataFrames without formulas, unless somebody has already said how they are to be shown."""
    html = shell.display_formatter.formatters["text/html"]
    for place in PLACES:
        if f"{place}.DataFrame" not in html:
            html.for_type_by_name(place, "DataFrame", as_written)


def unregister(shell: Any) -> None:
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
