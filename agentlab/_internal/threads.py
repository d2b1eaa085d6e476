"""The one place that decides where sync work runs: on a thread, or on the caller's event loop where no thread can be started.

Python in a browser (Pyodide, which JupyterLite uses) has one thread. What runs on a thread elsewhere runs on the event loop there:
sync tools, `run.start()`, the panel's buttons and its redraw. A sync function blocks the loop until it returns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import cache
from typing import TypeVar

T = TypeVar("T")


@cache
def can_start_threads() -> bool:
    """True if this Python can start threads. Tried once per process: builds of one platform differ in it."""
    thread = threading.Thread(target=_nothing, name="agentlab-trial", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # "can't start new thread"
        return False
    thread.join()
    return True


def _nothing() -> None:
    pass


async def off_the_loop(work: Callable[[], T]) -> T:
    """Return the result of sync work: done on a thread, so that the loop stays free, or here where there are no threads."""
    return await asyncio.to_thread(work) if can_start_threads() else work()
