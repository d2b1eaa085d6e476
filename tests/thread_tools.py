"""Other threads in tests: wait for them, hold them back, refuse them, or run their work here. Views draw on a separate
thread, shortly after a change."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from agentlab._internal.asyncio_tools import can_start_threads
from agentlab.engine import worker

if TYPE_CHECKING:
    from agentlab.notebook.live_view import LiveView

PATIENCE_S = 60.0


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until this holds. Later assertions on the page must be part of the condition, or drawn earlier: parts are shown one
    by one."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "the condition was never reached"
        time.sleep(0.01)


@contextlib.contextmanager
def undisturbed(view: LiveView) -> Iterator[None]:
    """Hold back all drawing of this view except by the caller; wait for a drawing that has started."""
    _ = view.widget
    with view._drawing:
        yield


def drawn(view: LiveView) -> None:
    """Draw the current state of the page, as the view's own thread does; raise its errors."""
    with undisturbed(view):
        view._draw()


@contextlib.contextmanager
def nothing_in_the_background_yet() -> Iterator[None]:
    """The state of a process that has run no agent in the background so far."""
    before, worker._loop = worker._loop, None
    try:
        yield
    finally:
        made, worker._loop = worker._loop, before
        if made is not None:
            made.call_soon_threadsafe(made.stop)
            wait_until(lambda: not made.is_running())
            made.close()


@contextlib.contextmanager
def no_new_threads() -> Iterator[None]:
    """A process with threads in which no further one can be started: each would need a stack larger than its address space."""
    assert can_start_threads()
    before = threading.stack_size(2**47)
    try:
        yield
    finally:
        threading.stack_size(before)


@contextlib.contextmanager
def python_without_threads() -> Iterator[None]:
    """A Python that can start no thread at all, such as one in a browser."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    start, threading.Thread.start = threading.Thread.start, refuse  # type: ignore[method-assign]
    can_start_threads.cache_clear()
    try:
        with nothing_in_the_background_yet():
            yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        can_start_threads.cache_clear()
