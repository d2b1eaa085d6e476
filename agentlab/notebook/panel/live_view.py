"""Something shown live, or as outputs that stay as they are where nobody can click. It is brought up to date by one writer."""

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

from agentlab._internal.kernel import front_end, ipykernel_mend
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.markup import Html
from agentlab.notebook.panel.state import drawing, is_drawing

Output = tuple[dict[str, str], dict[str, Any]]


class Static(Protocol):
    """How it stands for a reader without a kernel."""

    def bundle(self, *, with_pictures: bool = False) -> dict[str, Any]:
        """All in one mime bundle; `with_pictures` has them in its HTML."""

    def outputs(self) -> list[Output]:
        """As outputs of a cell, data and metadata each."""


class LiveView(ABC):
    """The widget, its one writer, and its display as the last expression of a cell.

    What a subclass gives: the parts, made by `_compose` once there is a page to show them; `_show` brings them up to date; `_static`
    is what is to be seen without a kernel. It holds no state of the runs that it shows.
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
        """Bring what is visible up to date; whether there are new controls."""

    @abstractmethod
    def _is_under_way(self) -> bool:
        """Whether time passes that the page shows."""

    @abstractmethod
    def _finished(self) -> object:
        """What has come to its end, and is to be kept in the notebook's file as it now stands; None where nothing has."""

    @abstractmethod
    def _static(self) -> Static:
        """How it stands for a reader without a kernel."""

    # Live -------------------------------------------------------------------------------------------------------------------

    @property
    def widget(self) -> widgets.Widget:
        """The live widget, made when it is first asked for."""
        if self._widget is None:
            self.fault = Html()
            self._style = Html(f"{STYLE}{LIVE_STYLE}<style>.{self._kept_class} {{display:none}}</style>")
            self._redrawer = Redrawer(self._draw_safely, self._is_under_way, lambda: not self._is_under_way())
            self._widget = widgets.VBox()
            self._widget.add_class("agentlab-panel")
            self._compose()
        return self._widget

    def embed(self) -> widgets.Widget:
        """The live widget as a part of another view, which shows and keeps it."""
        self._embedded = True
        return self.widget

    def _put(self, *parts: widgets.Widget) -> None:
        """Have these parts in the page, and bring them up to date."""
        with self._drawing:
            self.widget.children = [self._style, *parts, self.fault]
            self._draw_safely()  # last: what happens from now on is told
            self._adopt_if_shown()

    def guard(self, action: Callable[[], object]) -> None:
        """Do what a control asks for; an error is shown under the panel, with no traceback lost in a log."""
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

    # Shown ------------------------------------------------------------------------------------------------------------------

    def bundle(self) -> dict[str, Any]:
        """What a reader without a kernel sees: text, an HTML table, a PNG. Times are left out, so that it is the same at every
        execution on recorded fixtures."""
        return self._static().bundle()

    @property
    def _kept_class(self) -> str:
        return f"agentlab-kept-{self._display_id}"

    def _kept_bundle(self) -> dict[str, Any]:
        """What is kept in the notebook's file beside the live widget, as an output of its own that the widget's style hides.

        Where the widget is gone (another kernel, none, another reader) its style is gone, too, and this is to be seen. In one bundle
        with the widget it would not be: JupyterLab then shows an error in the widget's place, and nothing else of that bundle.
        """
        bundle = self._static().bundle(with_pictures=True)
        kept = f'<div class="agentlab-kept {self._kept_class}">{KEPT_STYLE}{bundle["text/html"]}</div>'
        return {**bundle, "text/html": kept}

    def _live_bundle(self) -> dict[str, Any]:
        return {
            "text/plain": "",  # what cannot show the widget has nothing to say of it: all is told in what is kept
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.widget.model_id,
            },
        }

    def _ipython_display_(self) -> None:
        with self._drawing:  # what ends meanwhile is told behind it: before it, the update would come to nothing
            if not front_end.is_present():
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
        """Have the kernel handle what comes from these controls also while a cell awaits something."""
        if self._shown_live or self._embedded:
            kernel = ipykernel_mend.mend()
            for control in self._controls():
                kernel.adopt(control.comm)

    def _controls(self) -> Iterator[widgets.Widget]:
        """All widgets of the panel that send what a person does."""
        waiting = [self.widget]
        while waiting:
            widget = waiting.pop()
            yield widget
            waiting.extend(getattr(widget, "children", ()))


SHORTEST_PAUSE_S = 0.2
WORK_TO_DRAWING = 5
"""For each second that the processor drew a run under way, so many go by before the next drawing, unless a person did something."""
CLOCK_TICK_S = 1.0


class Redrawer:
    """Calls `draw` on a thread of its own, soon after `mark()` and never more often than every SHORTEST_PAUSE_S.

    `ticks` says whether time passes that the page shows; `over` whether nothing more is to be expected, so that the thread ends; the
    next `mark()` starts another. Where no thread can be started, `mark()` itself draws what a person did, and the end. It works in a
    copy of the context in which it was made, by which ipykernel knows the cell that the widgets belong to.
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
        """Something has changed; to be called from any thread. `soon`: a person did it and looks at it."""
        if soon:
            self._hurried.set()
        if not self._marked.is_set():  # a streamed answer asks thousands of times a second
            self._marked.set()
            if not self.start() and (soon or self._over()) and not is_drawing():
                self._context.copy().run(self._draw)

    def start(self) -> bool:
        """Start the thread, unless it is at work; whether there is one."""
        with self._lock:
            if self._thread is None:
                work = self._context.copy().run
                thread = threading.Thread(target=work, args=(self._work,), name="agentlab-panel", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # there are too many: the next mark tries again
                    self._marked.clear()
                    return False
                self._thread = thread
            return True

    def _work(self) -> None:
        ticking = False
        while True:
            self._marked.wait(CLOCK_TICK_S if ticking else None)
            self._rest()
            self._marked.clear()
            # Asked before it is drawn: what comes to its end meanwhile, which no event tells, is drawn at the next tick.
            ticking, last = self._ticks(), self._over()
            took_s = -time.thread_time()
            self._draw()
            took_s += time.thread_time()
            self._drawn_at, self._rest_s = time.monotonic(), WORK_TO_DRAWING * took_s if ticking else 0.0
            if last:
                with self._lock:
                    if not self._marked.is_set():  # else something changed meanwhile
                        self._thread = None
                        return

    def _rest(self) -> None:
        """Nobody's pace suffers where nothing is under way."""
        time.sleep(max(0.0, self._drawn_at + SHORTEST_PAUSE_S - time.monotonic()))
        self._hurried.wait(max(0.0, self._drawn_at + self._rest_s - time.monotonic()))
        self._hurried.clear()


_HERE = Path(__file__).parent


def _sheet(name: str) -> str:
    return f"<style>\n{(_HERE / name).read_text(encoding='utf-8')}</style>"


STYLE, LIVE_STYLE, KEPT_STYLE = _sheet("static.css"), _sheet("live.css"), _sheet("kept.css")
