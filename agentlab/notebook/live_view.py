"""The base of the panel and the explorer: a live widget that is redrawn, or static outputs without a live page."""

from __future__ import annotations

import atexit
import base64
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ipywidgets as widgets
from IPython import display

from agentlab._internal.kernel import has_old_widgets, has_page, kernel_workarounds
from agentlab._internal.safe_text import AS_WRITTEN, printable
from agentlab.notebook import markup

_OLD_WIDGETS = (
    "This session runs with ipywidgets 7, and agentlab's controls need version 8, which was installed with agentlab: restart the "
    "session, and run the cells again."
)

Output = tuple[dict[str, str], dict[str, Any]]
"""One output of a cell: data and metadata by mime type."""

_KEPT = (
    "<style>.jp-OutputArea-child:has(+ .jp-OutputArea-child .agentlab-kept) > .jp-OutputArea-output.jupyter-widgets:not(:has(*)) "
    "{display:none}</style>"
)
"""Where the widget is gone, JupyterLab shows a message in its place, which the saved copy below makes needless."""

AT_EXIT_S = 5.0
"""The end of the process waits this long at most for a view that is being drawn."""


# Without a kernel ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG with its alternative text. `width` and `height` are in pixels of the page, of which the PNG may have more."""

    png: bytes
    alt: str
    width: int
    height: int

    def as_html(self) -> str:
        """The picture embedded in the page."""
        return markup.picture(self.png, self.alt, self.width)

    def as_output(self) -> tuple[dict[str, str], dict[str, Any]]:
        """The picture as an output of a cell: data and metadata by mime type. Without text, since times differ between runs."""
        data = {"image/png": base64.b64encode(self.png).decode()}
        return data, {"image/png": {"width": self.width, "height": self.height, "alt": printable(self.alt)}}


class StaticOutputs(ABC):
    """Outputs for readers without a kernel. A subclass gives text, HTML and pictures."""

    @abstractmethod
    def text(self) -> str:
        """A few lines of plain text."""

    @abstractmethod
    def html(self, pictures: str = "") -> str:
        """The page, with the pictures as HTML in their place."""

    @abstractmethod
    def pictures(self) -> list[Picture]:
        """The pictures, the main one first."""

    def bundle(self, *, with_pictures: bool = False) -> dict[str, Any]:
        """One mime bundle. Most readers show only its HTML, so `with_pictures` embeds the pictures there."""
        pictures = self.pictures()
        html = self.html("".join(picture.as_html() for picture in pictures) if with_pictures else "")
        png = {"image/png": base64.b64encode(pictures[0].png).decode()} if pictures else {}
        return {"text/plain": self.text(), "text/html": html, **png}

    def outputs(self) -> list[Output]:
        """The outputs of a cell: text and HTML, then each picture."""
        return [({"text/plain": self.text(), "text/html": self.html()}, {}), *(one.as_output() for one in self.pictures())]


def panel_html(*parts: str) -> str:
    """Return pieces of HTML with the style sheet of what is saved in notebooks."""
    return f'<div class="agentlab-static {AS_WRITTEN}"><style>{_style()}</style>{"".join(parts)}</div>'


@cache
def _style() -> str:
    return Path(__file__).with_name("static.css").read_text(encoding="utf-8")


# With one ------------------------------------------------------------------------------------------------------------------------


class LiveView(ABC):
    """A live widget, its redraw, and its display as the last expression of a cell.

    A subclass makes its `widget` on first access, and gives its view without a kernel in `_static`.
    """

    def __init__(self) -> None:
        self._display_id = uuid.uuid4().hex
        self._drawing = threading.RLock()
        self._widget: Any = None
        self._shown_live = False
        self._saved: object = None
        _views.add(self)

    @property
    @abstractmethod
    def widget(self) -> widgets.DOMWidget:
        """The live widget, created on first access."""

    @abstractmethod
    def _static(self) -> StaticOutputs:
        """The view for readers without a kernel."""

    # Live -------------------------------------------------------------------------------------------------------------------

    def _show(self) -> None:  # noqa: B027  some pages ask for what they show
        """Update what is visible."""

    def _report(self, fault: str) -> None:  # noqa: B027  the same
        """Show an error of the drawing."""

    def _controls(self) -> Iterator[widgets.Widget]:
        """Yield the widgets whose messages the kernel handles while a cell awaits something."""
        yield self.widget

    def _finished(self) -> object:
        """Return what the copy in the notebook's file depends on; None while nothing has finished."""
        return None

    def _draw_safely(self) -> None:
        try:
            with self._drawing:
                self._draw()
        except Exception as error:
            self._report(f"The panel could not be drawn: {type(error).__name__}: {error}")

    def _draw(self) -> None:
        self._show()
        finished = self._finished()
        if self._shown_live and finished not in (None, self._saved):
            self._saved = finished
            display.update_display(self._kept_bundle(), raw=True, display_id=self._display_id)

    # Displayed --------------------------------------------------------------------------------------------------------------

    def bundle(self) -> dict[str, Any]:
        """Return the view without a kernel: text, an HTML table, a PNG. Without times, so that recorded fixtures give the same output
        at every execution."""
        return self._static().bundle()

    @property
    def _kept_class(self) -> str:
        return f"agentlab-kept-{self._display_id}"

    def _kept_bundle(self) -> dict[str, Any]:
        """The copy in the notebook's file: a separate output that the live widget's style hides.

        Without the widget (another kernel, none, another reader) there is no style either, and the copy is visible. It cannot be in one
        bundle with the widget: JupyterLab would show an error in the widget's place and nothing else of that bundle.
        """
        bundle = self._static().bundle(with_pictures=True)
        kept = f'<div class="agentlab-kept {self._kept_class}">{_KEPT}{bundle["text/html"]}</div>'
        return {**bundle, "text/html": kept}

    def _live_bundle(self) -> dict[str, Any]:
        return {
            "text/plain": "",  # readers that cannot show the widget have the kept bundle
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.widget.model_id,
            },
        }

    def _live_metadata(self) -> dict[str, Any]:
        """anywidget's metadata, which names on Colab the code that shows widgets of other packages."""
        given = self.widget._repr_mimebundle_()
        return given[1] if isinstance(given, tuple) else {}

    def _ipython_display_(self) -> None:
        with self._drawing:  # an update sent before the display exists would be lost
            if not has_page():
                for data, metadata in self._static().outputs():
                    display.display(data, metadata=metadata, raw=True)
                if has_old_widgets():
                    display.display(display.HTML(markup.note(_OLD_WIDGETS)))
                return
            _ = self.widget
            self._shown_live = True
            kernel = kernel_workarounds()
            for control in self._controls():
                kernel.adopt(control.comm)
            self._saved = self._finished()
            display.display(self._live_bundle(), metadata=self._live_metadata(), raw=True)
            display.display(self._kept_bundle(), raw=True, display_id=self._display_id)

    def _display_(self) -> display.HTML:
        """Return what marimo shows, which has no place for widgets of ipywidgets: the view without a kernel."""
        note = "marimo cannot show the controls of this view: open the notebook in Jupyter, or set the values in code."
        html = self._static().bundle(with_pictures=True)["text/html"]
        return display.HTML(html + markup.note(note) if has_page() else html)


_views: weakref.WeakSet[LiveView] = weakref.WeakSet()


@atexit.register
def _finish_drawings() -> None:
    """Wait for the threads that draw, and let none begin again: the process aborts if Python ends one within Matplotlib's C++ code."""
    for view in tuple(_views):
        view._drawing.acquire(timeout=AT_EXIT_S)
