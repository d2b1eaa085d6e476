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

from agentlab.errors import ConfigurationError

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def loop() -> asyncio.AbstractEventLoop:
    """The background loop, running. Raises ConfigurationError where no thread can be started for it."""
    global _loop  # noqa: PLW0603  there is one for the process
    with _lock:
        if _loop is None or _loop.is_closed():
            new = asyncio.new_event_loop()
            # In a copy of the context: ipykernel finds by it the cell whose output a widget belongs to.
            context = contextvars.copy_context()
            try:
                threading.Thread(target=context.run, args=(new.run_forever,), name="agentlab", daemon=True).start()
            except RuntimeError as error:
                new.close()
                raise ConfigurationError(
                    f"No thread can be started to run agents in the background ({error}). End other threads or processes, or raise "
                    "the limit on them (ulimit -u), and start it again; `await run` needs no thread."
                ) from error
            _loop = new  # not before: work on a loop that nobody runs would wait for ever
        return _loop


def submit(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Run a coroutine on the background loop, in a copy of the caller's context."""
    try:
        home = loop()
    except ConfigurationError:
        coroutine.close()
        raise
    return asyncio.run_coroutine_threadsafe(coroutine, home)
