"""One writer for the whole panel: whatever happens, the page is brought up to date at most five times a second."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable

SHORTEST_PAUSE_S = 0.2
CLOCK_TICK_S = 1.0


class Redrawer:
    """Calls `draw` on a thread of its own, soon after `mark()` and never more often than every SHORTEST_PAUSE_S.

    `ticks` says whether time passes that the page shows; `over` whether this was the last time. The thread is started in a copy of the
    current context, by which ipykernel knows the cell that the widgets belong to.
    """

    def __init__(self, draw: Callable[[], None], ticks: Callable[[], bool], over: Callable[[], bool]) -> None:
        self._draw, self._ticks, self._over = draw, ticks, over
        self._marked = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def mark(self) -> None:
        """Something has changed; to be called from any thread."""
        if not self._marked.is_set():  # a streamed answer asks thousands of times a second
            self._marked.set()

    def start(self) -> None:
        """Start the thread, once."""
        with self._lock:
            if self._thread is None:
                work = contextvars.copy_context().run
                self._thread = threading.Thread(target=work, args=(self._work,), name="agentlab-panel", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._marked.wait(CLOCK_TICK_S if self._ticks() else None)
            self._marked.clear()
            last = self._over()
            self._draw()
            if last:
                return
            time.sleep(SHORTEST_PAUSE_S)
