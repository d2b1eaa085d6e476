"""The base of the panel and the explorer: a live widget with one thread that redraws it, or static outputs without a live page."""

from __future__ import annotations

import contextvars
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import ipywidgets as widgets
from IPython import display

from agentlab._internal.kernel import has_page, kernel_workarounds
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.markup import Html
from agentlab.notebook.panel.state import drawing

Output = tuple[dict[str, str], dict[str, Any]]
"""One output of a cell: data and metadata by mime type."""

SHORTEST_PAUSE_S = 0.2
"""The page is redrawn five times a second at most."""
PAUSE_PER_DRAWING = 5
"""While a run is under way, each second of drawing is followed by this number of seconds without: both share one interpreter."""
CLOCK_TICK_S = 1.0


def _sheet(name: str) -> str:
    return f"<style>\n{Path(__file__).with_name(name).read_text(encoding='utf-8')}</style>"


# Colours are legible on white and near black, and never the only sign. static.css is saved in notebooks with every panel, live.css
# is for the live panel only, kept.css for the copy that is saved beside the live panel.
STYLE, LIVE_STYLE, KEPT_STYLE = _sheet("static.css"), _sheet("live.css"), _sheet("kept.css")


class Static(Protocol):
    """A view for readers without a kernel."""

    def bundle(self, *, with_pictures: bool = False) -> dict[str, Any]:
        """One mime bundle; `with_pictures` embeds the pictures in its HTML."""

    def outputs(self) -> list[Output]:
        """The outputs of a cell."""


class LiveView(ABC):
    """A live widget, its redraw, and its display as the last expression of a cell.

    A subclass makes its parts in `_compose` once there is a page to show them, updates them in `_show`, and gives its view without
    a kernel in `_static`. It has no state of the runs.
    """

    def __init__(self) -> None:
        self._display_id = uuid.uuid4().hex
        self._drawing = threading.RLock()
        self._widget: widgets.VBox | None = None
        self._shown_live = False
        self._embedded = False
        self._saved: set[object] = set()

    @abstractmethod
    def _compose(self) -> None:
        """Make the parts, and put them into the page with `_put`."""

    @abstractmethod
    def _show(self) -> bool:
        """Update what is visible; True if there are new controls."""

    @abstractmethod
    def _is_under_way(self) -> bool:
        """True if time passes that the page shows."""

    @abstractmethod
    def _finished(self) -> object:
        """Return what has finished and is now saved in the notebook's file; None if nothing has."""

    @abstractmethod
    def _static(self) -> Static:
        """The view for readers without a kernel."""

    # Live -------------------------------------------------------------------------------------------------------------------

    @property
    def widget(self) -> widgets.Widget:
        """The live widget, created on first access."""
        if self._widget is None:
            self.fault = Html()
            self._style = Html(f"{STYLE}{LIVE_STYLE}<style>.{self._kept_class} {{display:none}}</style>")
            self._redrawer = Redrawer(self._draw_safely, self._is_under_way, lambda: not self._is_under_way())
            self._widget = widgets.VBox()
            self._widget.add_class("agentlab-panel")
            self._compose()
        return self._widget

    def embed(self) -> widgets.Widget:
        """The live widget as a part of another view, which displays and saves it."""
        self._embedded = True
        return self.widget

    def _put(self, *parts: widgets.Widget) -> None:
        """Show these parts in the page."""
        with self._drawing:
            self.widget.children = [self._style, *parts, self.fault]
            self._draw_safely()  # last: from here on, events request redraws
            self._adopt_if_shown()

    def guard(self, action: Callable[[], object]) -> None:
        """Run the action of a control, and show its error under the panel."""
        try:
            action()
        except Exception as error:
            self.fault.value = markup.fault(f"{type(error).__name__}: {error}")
        else:
            self.fault.value = ""
        self._redrawer.mark(soon=True)

    def _draw_safely(self) -> None:
        try:
            with self._drawing:
                self._draw()
        except Exception as error:
            self.fault.value = markup.fault(f"The panel could not be drawn: {type(error).__name__}: {error}")

    def _draw(self) -> None:
        with drawing():
            new = self._show()
        if new:
            self._adopt_if_shown()
        finished = self._finished()
        if self._shown_live and finished is not None and finished not in self._saved:
            self._saved.add(finished)
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
        kept = f'<div class="agentlab-kept {self._kept_class}">{KEPT_STYLE}{bundle["text/html"]}</div>'
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

    def _ipython_display_(self) -> None:
        with self._drawing:  # an update sent before the display exists would be lost
            if not has_page():
                for data, metadata in self._static().outputs():
                    display.display(data, metadata=metadata, raw=True)
                return
            _ = self.widget
            self._shown_live = True
            self._adopt_if_shown()
            self._saved.add(self._finished())
            display.display(self._live_bundle(), raw=True)
            display.display(self._kept_bundle(), raw=True, display_id=self._display_id)

    def _adopt_if_shown(self) -> None:
        """Let the kernel handle messages of these controls while a cell awaits something."""
        if self._shown_live or self._embedded:
            kernel = kernel_workarounds()
            for control in self._controls():
                kernel.adopt(control.comm)

    def _controls(self) -> Iterator[widgets.Widget]:
        waiting = [self.widget]
        while waiting:
            widget = waiting.pop()
            yield widget
            waiting.extend(getattr(widget, "children", ()))


class Redrawer:
    """Calls `draw` on its own thread, soon after `mark()` and every SHORTEST_PAUSE_S at most.

    `ticks` returns True while time passes that the page shows; `over` returns True when nothing more is expected: the thread then
    ends, and the next `mark()` starts another. The thread runs in a copy of the context in which this object was created, by which
    ipykernel finds the cell of the widgets.
    """

    def __init__(self, draw: Callable[[], None], ticks: Callable[[], bool], over: Callable[[], bool]) -> None:
        self._draw, self._ticks, self._over = draw, ticks, over
        self._marked, self._hurried = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._context = contextvars.copy_context()
        self._drawn_at = 0.0
        self._rest_s = 0.0

    def mark(self, *, soon: bool = False) -> None:
        """Request a redraw, from any thread; `soon` for an action of the person."""
        if soon:
            self._hurried.set()
        if not self._marked.is_set():  # a streamed answer marks thousands of times a second
            self._marked.set()
            self.start()

    def start(self) -> None:
        """Start the thread unless it is running."""
        with self._lock:
            if self._thread is None:
                work = self._context.copy().run
                self._thread = threading.Thread(target=work, args=(self._work,), name="agentlab-panel", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        ticking = False
        while True:
            self._marked.wait(CLOCK_TICK_S if ticking else None)
            self._rest()
            self._marked.clear()
            # Read before drawing: an end during the drawing, which no event reports, is drawn at the next tick.
            ticking, last = self._ticks(), self._over()
            took_s = -time.thread_time()
            self._draw()
            took_s += time.thread_time()
            self._drawn_at, self._rest_s = time.monotonic(), PAUSE_PER_DRAWING * took_s if ticking else 0.0
            if last:
                with self._lock:
                    if not self._marked.is_set():  # otherwise something changed meanwhile
                        self._thread = None
                        return

    def _rest(self) -> None:
        time.sleep(max(0.0, self._drawn_at + SHORTEST_PAUSE_S - time.monotonic()))
        self._hurried.wait(max(0.0, self._drawn_at + self._rest_s - time.monotonic()))
        self._hurried.clear()
