"""One writer for the whole panel: whatever happens, the page is brought up to date at most five times a second.

Where drawing takes long it is done less often, so that the run keeps its pace: both share one interpreter.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable

SHORTEST_PAUSE_S = 0.2
WORK_TO_DRAWING = 8
"""For each second that the processor drew, so many go by before the next drawing."""
CLOCK_TICK_S = 1.0


class Redrawer:
    """Calls `draw` on a thread of its own, soon after `mark()` and never more often than every SHORTEST_PAUSE_S.

    `ticks` says whether time passes that the page shows; `over` whether nothing more is to be expected, so that the thread ends; the
    next `mark()` starts another. It works in a copy of the context in which it was made, by which ipykernel knows the cell that the
    widgets belong to.
    """

    def __init__(self, draw: Callable[[], None], ticks: Callable[[], bool], over: Callable[[], bool]) -> None:
        self._draw, self._ticks, self._over = draw, ticks, over
        self._marked = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._context = contextvars.copy_context()
        self._next_at = 0.0

    def mark(self) -> None:
        """Something has changed; to be called from any thread."""
        if not self._marked.is_set():  # a streamed answer asks thousands of times a second
            self._marked.set()
            self.start()

    def start(self) -> None:
        """Start the thread, unless it is at work."""
        with self._lock:
            if self._thread is None:
                work = self._context.copy().run
                self._thread = threading.Thread(target=work, args=(self._work,), name="agentlab-panel", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._marked.wait(CLOCK_TICK_S if self._ticks() else None)
            time.sleep(max(0.0, self._next_at - time.monotonic()))
            self._marked.clear()
            last = self._over()
            took_s = -time.thread_time()
            self._draw()
            took_s += time.thread_time()
            rest_s = WORK_TO_DRAWING * took_s if self._ticks() else 0.0  # nobody's pace suffers where nothing is under way
            self._next_at = time.monotonic() + max(SHORTEST_PAUSE_S, rest_s)
            if last:
                with self._lock:
                    if not self._marked.is_set():  # else something changed meanwhile
                        self._thread = None
                        return
