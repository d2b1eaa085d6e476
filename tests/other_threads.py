"""What other threads do: it is waited for, kept from happening just now, or done in their place. Views draw on a thread of their own,
some time after something has happened."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from agentlab.engine import worker

if TYPE_CHECKING:
    from agentlab.notebook.panel.live_view import LiveView

PATIENCE_S = 60.0


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until this holds. What is then asserted of the page is to be part of it, or drawn before it: parts are shown one by one."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@contextlib.contextmanager
def undisturbed(view: LiveView) -> Iterator[None]:
    """Nothing of this view is drawn meanwhile, unless by who asks for it here; a drawing under way is waited for."""
    _ = view.widget
    with view._drawing:
        yield


def drawn(view: LiveView) -> None:
    """Have the page show what holds now, as the view's own thread does it; what goes wrong is raised."""
    with undisturbed(view):
        view._draw()
    assert "could not be drawn" not in view.fault.value, view.fault.value


@contextlib.contextmanager
def nothing_in_the_background_yet() -> Iterator[None]:
    """As in a process that has run no agent in the background so far."""
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
    """A process in which no further thread can be started: each would need a stack that is larger than its address space."""
    before = threading.stack_size(2**47)
    try:
        yield
    finally:
        threading.stack_size(before)
