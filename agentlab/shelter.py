"""Work that outlasts the cancel of its awaiter: work that has to end before the cancel counts, and work that does not end at all."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_S = 2.0
"""How long work that was cancelled may take to end, its `finally` included. Then it is left behind."""

_left_behind: set[asyncio.Future[Any]] = set()
"""Held until they end: a loop holds its tasks weakly."""


async def ends(
    work: Iterable[asyncio.Future[Any]], grace_s: float | None = GRACE_S
) -> tuple[bool, asyncio.CancelledError | None]:
    """Cancel tasks and wait for their end, whatever cancel comes meanwhile; the caller has to raise that one.

    False where one did not end within the grace: it is left behind, and what it comes to is dropped. Without a grace (None) each cancel
    is handed on.
    """
    running, cut = {one for one in work if not one.done()}, None
    for one in running:
        one.cancel()
    until_s = math.inf if grace_s is None else time.monotonic() + grace_s
    while running and (left_s := until_s - time.monotonic()) > 0:
        try:
            _, running = await asyncio.wait(running, timeout=None if grace_s is None else left_s)
        except asyncio.CancelledError as error:
            cut = cut or error
            running = {one for one in running if not one.done()}
            if grace_s is None:
                for one in running:
                    one.cancel()
    for one in running:
        _left_behind.add(one)
        one.add_done_callback(_dropped)
    return not running, cut


def _dropped(work: asyncio.Future[Any]) -> None:
    _left_behind.discard(work)
    if not work.cancelled():
        work.exception()  # or asyncio reports that nobody asked for it


async def sheltered(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """What the work came to, and the cancel that came meanwhile, which the caller has to raise once it has put that down.

    A second cancel holds for the work too: what waits for ever can be ended.
    """
    task = asyncio.ensure_future(work)
    cut: asyncio.CancelledError | None = None
    try:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                if cut is not None:
                    task.cancel()
                cut = cut or error
    finally:
        if not task.done():  # this very coroutine was thrown away
            task.cancel()
    if cut is not None and task.cancelled():
        raise cut
    return task.result(), cut
