"""One holder of a name at a time: the next one waits, on whatever event loop or thread it is."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class OneAtATime:
    """Locks by name, handed on in the order in which they were asked for. A name that nobody holds takes no room.

    An asyncio.Lock belongs to one loop; what is held here may be asked for from a notebook's loop and from the background's.
    """

    __slots__ = ("_guard", "_waiting")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[str, deque[concurrent.futures.Future[None]]] = {}

    @asynccontextmanager
    async def holding(self, name: str) -> AsyncIterator[None]:
        """Wait for one's turn, and hold the name within the block."""
        await self._take(name)
        try:
            yield
        finally:
            self._hand_on(name)

    async def _take(self, name: str) -> None:
        with self._guard:
            if name not in self._waiting:
                self._waiting[name] = deque()
                return
            turn: concurrent.futures.Future[None] = concurrent.futures.Future()
            self._waiting[name].append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel() and not turn.cancelled():  # it was handed over just before
                self._hand_on(name)
            raise

    def _hand_on(self, name: str) -> None:
        with self._guard:
            waiting = self._waiting[name]
            while waiting:
                turn = waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            del self._waiting[name]
