"""One event loop at a time: work on a run is done on the loop that is at work on it already, and handed over from any other."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopOwner:
    """Knows which loop owns something, as long as any work on it is under way; the next work may come from another loop.

    `lock` guards what has to change together with that. On the owning loop, `turn` lets one piece of work at a time through,
    `driver` is held by whoever takes one after the other, and `wake` ends a pause.
    """

    __slots__ = ("_loop", "_users", "driver", "lock", "turn", "wake")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.turn, self.driver, self.wake = asyncio.Lock(), asyncio.Lock(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0

    @property
    def is_busy(self) -> bool:
        """Whether work is under way on some loop."""
        return self._users > 0

    @property
    def is_here(self) -> bool:
        """Whether work is under way on the loop that this is called on: to block here would block the work."""
        return self.is_busy and self._loop is running_loop()

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work on the owning loop: this one, unless another is at work."""
        here = asyncio.get_running_loop()
        with self.lock:
            if self._users == 0 or self._loop is None or self._loop.is_closed():
                self._loop, self._users = here, 0
                self.turn, self.driver, self.wake = asyncio.Lock(), asyncio.Lock(), asyncio.Event()
            owner = self._loop
            if owner is here:
                self._users += 1
        if owner is not here:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.run(work), owner))
        try:
            return await work()
        finally:
            with self.lock:
                self._users -= 1

    def call(self, callback: Callable[[], object]) -> None:
        """Call this on the owning loop, from any thread; nothing happens where there is none."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(callback)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that this is called on, or None outside of any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
