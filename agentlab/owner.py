"""One event loop at a time: work on a run is done on the loop that is at work on it already, and handed over from any other."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LONGEST_FAREWELL_S = 5.0
"""How long an interrupted `start()` waits for the step under way to be recorded."""


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

    def would_be_blocked(self, home: asyncio.AbstractEventLoop | None) -> bool:
        """Whether to block here would block the work: it is on the loop that this is called on, or is to be, at `home`."""
        here = running_loop()
        return here is not None and (here is home or self.is_here)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work on the owning loop: this one, unless another is at work."""
        here = asyncio.get_running_loop()
        with self.lock:
            owner = self._take(here)
            if owner is here:
                self._users += 1
        if owner is not here:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.run(work), owner))
        try:
            return await work()
        finally:
            self.release(here)

    def claim(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Make this loop the owner before its work has begun, so that nobody comes first; `release` ends that. False where another
        loop is at work."""
        with self.lock:
            claimed = self._take(loop) is loop
            self._users += claimed
        return claimed

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """A piece of work on this loop is done, or a claim is given up; nothing of a loop that was lost meanwhile."""
        with self.lock:
            if self._loop is loop and self._users:
                self._users -= 1

    def _take(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        """The owner, which is this loop where there is no other at work."""
        if self._users == 0 or self._loop is None or self._loop.is_closed():
            self._loop, self._users = loop, 0
            self.turn, self.driver, self.wake = asyncio.Lock(), asyncio.Lock(), asyncio.Event()
        return self._loop

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


_beginning: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
_beginning_lock = threading.Lock()


async def turn_to_begin() -> None:
    """Wait where another run began in this turn of the loop: thousands that begin at once would hold the loop up for seconds."""
    loop = asyncio.get_running_loop()
    with _beginning_lock:
        if loop not in _beginning:
            for other in [other for other in _beginning if other.is_closed()]:  # an asyncio.Lock keeps its loop alive
                del _beginning[other]
            _beginning[loop] = asyncio.Lock()
        lock = _beginning[loop]
    await lock.acquire()
    loop.call_soon(lock.release)
