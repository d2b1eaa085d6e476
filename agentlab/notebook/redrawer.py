"""Redraws a live view soon after each change, a few times a second at most: on its own thread, or on the event loop without threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable

from agentlab._internal.asyncio_tools import can_start_threads
from agentlab.engine.worker import running_loop

SHORTEST_PAUSE_S = 0.2
"""The page is redrawn five times a second at most."""
PAUSE_PER_DRAWING = 10
"""While a run is under way, each second of drawing is followed by this number of seconds without: both share one interpreter."""
CLOCK_TICK_S = 1.0


def redrawer(draw: Callable[[], None], ticks: Callable[[], bool]) -> Redrawer | LoopRedrawer:
    """Return what redraws a view by `draw`. `ticks` returns True while time passes that the page shows."""
    return Redrawer(draw, ticks) if can_start_threads() else LoopRedrawer(draw, ticks)


class Redrawer:
    """Calls `draw` on its own thread, soon after `mark()` and every SHORTEST_PAUSE_S at most.

    `ticks` returns True while time passes that the page shows; after it the thread ends, and the next `mark()` starts another. The
    thread runs in a copy of the context in which this object was created, by which ipykernel finds the cell of the widgets.
    """

    def __init__(self, draw: Callable[[], None], ticks: Callable[[], bool]) -> None:
        self._draw, self._ticks = draw, ticks
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
            ticking = self._ticks()
            took_s = -time.thread_time()
            self._draw()
            took_s += time.thread_time()
            self._drawn_at, self._rest_s = time.monotonic(), PAUSE_PER_DRAWING * took_s if ticking else 0.0
            if not ticking:
                with self._lock:
                    if not self._marked.is_set():  # otherwise something changed meanwhile
                        self._thread = None
                        return

    def _rest(self) -> None:
        time.sleep(max(0.0, self._drawn_at + SHORTEST_PAUSE_S - time.monotonic()))
        self._hurried.wait(max(0.0, self._drawn_at + self._rest_s - time.monotonic()))
        self._hurried.clear()


class LoopRedrawer:
    """Calls `draw` on the event loop, where no thread can be started. Marks without a running loop are drawn with the next one."""

    def __init__(self, draw: Callable[[], None], ticks: Callable[[], bool]) -> None:
        self._draw, self._ticks = draw, ticks
        self._context = contextvars.copy_context()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._drawn_at, self._rest_s = 0.0, 0.0

    def mark(self, *, soon: bool = False) -> None:
        """Request a redraw; `soon` for an action of the person."""
        self._draw_at(self._drawn_at + (SHORTEST_PAUSE_S if soon else max(SHORTEST_PAUSE_S, self._rest_s)))

    def _draw_at(self, due_at: float) -> None:
        """Draw at this monotonic time, unless it is drawn earlier anyway."""
        loop = running_loop()
        if loop is None or (self._timer is not None and self._due_at <= due_at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_at = due_at
        self._timer = loop.call_later(max(0.0, due_at - time.monotonic()), self._work, context=self._context)

    def _work(self) -> None:
        self._timer = None
        began_at, ticking = time.monotonic(), self._ticks()
        self._draw()
        self._drawn_at = time.monotonic()
        self._rest_s = PAUSE_PER_DRAWING * (self._drawn_at - began_at) if ticking else 0.0
        if ticking:
            self._draw_at(self._drawn_at + max(CLOCK_TICK_S, self._rest_s))
