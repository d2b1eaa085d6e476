"""The controls of the explorer: HTML, a number, a slider, and a button that copies.

Slider and button are what ipywidgets does not have. If the page has no anywidget, the number box and the visible code replace them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets

from agentlab._internal.safe_text import AS_WRITTEN
from agentlab.errors import ConfigurationError
from agentlab.notebook import markup


class Html(widgets.HTML):  # type: ignore[misc]  # no types
    """An HTML widget in which `$…$` stays text. Only what is sent to the page differs from `value`."""

    value = traitlets.CUnicode(help="String value").tag(
        sync=True,
        to_json=lambda value, widget: f'<div class="{AS_WRITTEN}" style="display:contents">{value}</div>' if value else "",
    )


class _Drawing(threading.local):
    on = False


_THIS_THREAD = _Drawing()


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Mark this thread as drawing while it updates controls.

    The explorer is drawn on one thread while a person's clicks arrive on another. A control reports both kinds of change the same way,
    so the thread distinguishes them.
    """
    before, _THIS_THREAD.on = _THIS_THREAD.on, True
    try:
        yield
    finally:
        _THIS_THREAD.on = before


def is_drawing() -> bool:
    """True if this thread is drawing: a change of a control is then not made by a person."""
    return _THIS_THREAD.on


class NumberField:
    """A number box, with a check box for None, whose label is `nothing`. `start` is the number offered first, `kind` its type.

    `write` receives a new value and raises if it is refused: the error is shown below, and the old value stays in force.
    """

    def __init__(
        self, label: str, value: Any, write: Callable[[Any], None], *, kind: type, unit: str, start: Any, nothing: str, about: str
    ) -> None:
        self._lock = threading.RLock()  # edits and redraws arrive on different threads
        self._kind, self._nothing, self._shown, self._write = kind, nothing, value, write
        # A FloatText for whole numbers too: an IntText turns 5.5 into 5, and 1e3 into 1, without an error.
        self.number = widgets.FloatText(
            value=float(start), step=0.01 if kind is Decimal else 1.0, description=f"{label} ({unit})" if unit else label,
            tooltip=about, layout={"width": "auto", "flex": "1 1 auto", "min_width": "0"},
            _dom_classes=("agentlab-field", "agentlab-first-line"),
        )  # fmt: skip
        self.unlimited = widgets.Checkbox(
            value=value is None, description=nothing, tooltip=f"{nothing} on {label}", indent=False, layout={"width": "auto"},
            _dom_classes=("agentlab-tick",),
        )  # fmt: skip
        self.message = Html(_dom_classes=("agentlab-message",))
        self.view = widgets.VBox(
            [widgets.HBox([self.number, self.unlimited], _dom_classes=("agentlab-field-row",)), self.message]
        )
        self._display(value)
        self.number.observe(self._changed, "value")
        self.unlimited.observe(self._switched, "value")

    def follow(self, read: Callable[[], Any]) -> None:
        """Show the value that `read` returns now; an edit since an earlier reading is kept."""
        with self._lock:
            value = read()
            if value != self._shown or type(value) is not type(self._shown):
                self._shown = value
                self._display(value)
                self.message.value = ""

    def _display(self, value: Any) -> None:
        if value is not None:
            self.number.value = float(value)
        self.unlimited.value = value is None
        self.number.disabled = value is None

    def _changed(self, change: Any) -> None:
        if not self.unlimited.value and not is_drawing():
            self._try(self._entered())

    def _switched(self, change: Any) -> None:
        if not is_drawing():
            self.number.disabled = change["new"]
            self._try(None if change["new"] else self._entered())

    def _entered(self) -> Any:
        """The number in the type of the limit; a fraction stays one where a whole number is needed, and is refused."""
        shown = self.number.value
        if self._kind is Decimal:
            return Decimal(str(shown))
        return int(shown) if self._kind is int and shown.is_integer() else shown

    def _try(self, value: Any) -> None:
        if value == self._shown:
            self.message.value = ""
            return
        try:
            self._write(value)
        except ConfigurationError as error:
            before = self._nothing if self._shown is None else self._shown
            self.message.value = markup.fault(f"{error} Still in force: {before}.")
        else:
            with self._lock:  # not during the write, whose subscribers may wait for a redraw
                self._shown = value
                self._display(value)  # another change may have come in between
                self.message.value = ""


class RangeSlider(anywidget.AnyWidget):
    """An accessible slider over a list of values, described by `texts`; `place` is the chosen one, from 0. See range_slider.js."""

    _esm = Path(__file__).with_name("range_slider.js")
    label = traitlets.Unicode().tag(sync=True)
    texts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    place = traitlets.Int().tag(sync=True)

    @traitlets.validate("place")
    def _within(self, proposal: traitlets.Bunch) -> int:
        return max(0, min(int(proposal["value"]), len(self.texts) - 1))


class CopyButton(anywidget.AnyWidget):
    """A button that copies `text` to the clipboard. See copy_button.js."""

    _esm = Path(__file__).with_name("copy_button.js")
    label = traitlets.Unicode("Copy as code").tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
