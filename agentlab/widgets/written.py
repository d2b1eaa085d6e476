"""HTML in the live panel in which names and answers stay text."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets
from traitlets import CUnicode

from agentlab.printable import AS_WRITTEN


def _as_written(value: str, widget: Any) -> str:
    """What goes to the page: with no box of its own, so that it lies there as if there were nothing around it."""
    return f'<div class="{AS_WRITTEN}" style="display:contents">{value}</div>' if value else ""


class Html(widgets.HTML):  # type: ignore[misc]  # no types
    """A widget of HTML; the page looks for no formulas in it. `value` is as it was given, only what is sent differs."""

    value = CUnicode(help="String value").tag(sync=True, to_json=_as_written)
