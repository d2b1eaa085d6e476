"""The thread that runs agents started from a notebook: one daemon thread with one event loop, made when it is first needed.

A tool that blocks then holds up agents only, never the page, and a cell that started a run has returned.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def loop() -> asyncio.AbstractEventLoop:
    """The background loop, running."""
    global _loop  # noqa: PLW0603  there is one for the process
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            # In a copy of the context: ipykernel finds by it the cell whose output a widget belongs to.
            context = contextvars.copy_context()
            threading.Thread(target=context.run, args=(_loop.run_forever,), name="agentlab", daemon=True).start()
        return _loop


def submit(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Run a coroutine on the background loop, in a copy of the caller's context."""
    return asyncio.run_coroutine_threadsafe(coroutine, loop())
