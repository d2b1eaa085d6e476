"""The base of the panel and the explorer: a live widget with one thread that redraws it, or static outputs without a live page; and
what the parts of a panel share: the run, the chosen step, the panel's services, and the mark of the drawing thread."""

from __future__ import annotations

import base64
import contextlib
import contextvars
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import ipywidgets as widgets
from IPython import display

from agentlab._internal.kernel import has_page, kernel_workarounds
from agentlab._internal.safe_text import AS_WRITTEN, printable
from agentlab.agent import Run
from agentlab.errors import ConfigurationError
from agentlab.notebook import markup
from agentlab.notebook.markup import Html

if TYPE_CHECKING:
    from agentlab.agent import Agent

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


# Without a kernel ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG with its alternative text; `about` is a remark below it. `width` and `height` are in pixels of the page, of which the
    PNG may have more."""

    png: bytes
    alt: str
    width: int
    height: int
    about: str = ""

    def as_html(self) -> str:
        """The picture embedded in the page, with the remark below."""
        return markup.picture(self.png, f"{self.alt} {self.about}".strip(), self.width) + markup.note(self.about)

    def as_output(self) -> tuple[dict[str, str], dict[str, Any]]:
        """The picture as an output of a cell: data and metadata by mime type. Without text, since times differ between runs."""
        alt = printable(f"{self.alt} {self.about}".strip())
        data = {"image/png": base64.b64encode(self.png).decode()}
        return data, {"image/png": {"width": self.width, "height": self.height, "alt": alt}}


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
    """Pieces of HTML with the style sheet of the panel."""
    return f'<div class="agentlab-panel {AS_WRITTEN}">{STYLE}{"".join(parts)}</div>'


# With one ------------------------------------------------------------------------------------------------------------------------


class LiveView(ABC):
    """A live widget, its redraw, and its display as the last expression of a cell.

    A subclass makes its parts in `_compose` once there is a page to show them, updates them in `_show`, and gives its view without
    a kernel in `_static`. It has no state of the runs.
    """

    def __init__(self) -> None:
        self._display_id = uuid.uuid4().hex
        self._drawing = threading.RLock()
        self._widget: Any = None
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
    def _static(self) -> StaticOutputs:
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
            self._report(f"{type(error).__name__}: {error}")
        else:
            self._report("")
        self._redrawer.mark(soon=True)

    def _report(self, fault: str) -> None:
        """Show an error; the empty text removes it."""
        self.fault.value = markup.fault(fault) if fault else ""

    def _draw_safely(self) -> None:
        try:
            with self._drawing:
                self._draw()
        except Exception as error:
            self._report(f"The panel could not be drawn: {type(error).__name__}: {error}")

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

    def _display_(self) -> Any:
        """Return what marimo shows in this object's place: an anywidget, or HTML."""
        return self.widget if has_page() else display.HTML(self._static().bundle(with_pictures=True)["text/html"])

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


# What the parts share ----------------------------------------------------------------------------------------------------------


class Part(Protocol):
    """A part of the panel."""

    @property
    def view(self) -> widgets.Widget:
        """The widget in the page."""

    def show(self) -> bool:
        """Update it; True if it has new controls. Called by the panel's redraw only."""


@dataclass(frozen=True, slots=True)
class PanelServices:
    """The services of a panel for its parts.

    `do` runs an action and shows its error, `redraw` requests a redraw from any thread, `open` shows another run. `agents` can be
    chosen for a branch, by name.
    """

    do: Callable[[Callable[[], object]], None]
    redraw: Callable[[], None]
    open: Callable[[Run], None]
    agents: Mapping[str, Agent]


class PanelState:
    """The run that is shown, and the step that the person chose. All other state is in the run."""

    def __init__(self, run: Run, services: PanelServices) -> None:
        self.run = run
        self.agents = services.agents
        self.do, self.redraw, self.open = services.do, services.redraw, services.open
        self._chosen: int | None = None

    @property
    def chosen(self) -> int | None:
        """The chosen step, from 1; None follows the newest step."""
        return self._chosen

    def choose(self, step: int | None) -> None:
        """Show this step in every part; None follows the newest. Raises ConfigurationError if there is no such step."""
        steps = len(self.run.history)
        if step is not None and not 1 <= step <= steps:
            there_is = f"choose from 1 to {steps}" if steps else "no step has been taken yet"
            raise ConfigurationError(f"Step {step}: {there_is}.")
        self._chosen = step
        self.redraw()


class RunningTotals:
    """Tokens and cost of a run after each of its steps, None from the first unknown amount on. Only new steps are read."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.tokens: list[int | None] = [0]
        self.cost: list[Decimal | None] = [Decimal(0)]

    def catch_up(self) -> int:
        """Read the new steps; returns the number of steps."""
        for step in self._run.history[len(self.tokens) - 1 :]:
            used, paid = step.all_tokens, step.all_cost_usd
            tokens, cost = self.tokens[-1], self.cost[-1]
            self.cost.append(None if cost is None or paid is None else cost + paid)
            self.tokens.append(None if tokens is None or used is None else tokens + used)
        return len(self.tokens) - 1


class _Drawing(threading.local):
    on = False


_THIS_THREAD = _Drawing()


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Mark this thread as drawing while it updates controls.

    The panel is drawn on one thread while a person's clicks arrive on another. A control reports both kinds of change the same way, so
    the thread distinguishes them.
    """
    before, _THIS_THREAD.on = _THIS_THREAD.on, True
    try:
        yield
    finally:
        _THIS_THREAD.on = before


def is_drawing() -> bool:
    """True if this thread is drawing: a change of a control is then not made by a person."""
    return _THIS_THREAD.on
