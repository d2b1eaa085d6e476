"""One writer for the whole panel: whatever happens, the page is brought up to date at most five times a second.

Where drawing takes long it is done less often, so that the run keeps its pace: both share one interpreter.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable

from agentlab.widgets.drawing import is_drawing

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
