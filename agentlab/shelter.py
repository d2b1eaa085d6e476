"""Cancellation: tasks that have to end before a cancel of their awaiter counts, and tasks that do not end when cancelled."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_S = 2.0
"""How long a cancelled task may take to end, its `finally` included. Then it is left behind."""

_left_behind: set[asyncio.Future[Any]] = set()
"""Tasks left behind, until they end: a loop holds its tasks weakly."""


async def ends(
    work: Iterable[asyncio.Future[Any]], grace_s: float | None = GRACE_S
) -> tuple[bool, asyncio.CancelledError | None]:
    """Cancel tasks and wait for their end; also return a cancel that came meanwhile, which the caller has to raise.

    False if a task did not end within the grace: it is left behind and its result dropped. Without a grace (None) each cancel is
    passed on.
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
        work.exception()  # or asyncio reports that it was never retrieved


async def sheltered(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Do the work to its end; return its result and a cancel that came meanwhile, which the caller has to raise afterwards.

    A second cancel cancels the work, too, so that work that waits for ever can be ended.
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
        if not task.done():  # this coroutine was closed
            task.cancel()
    if cut is not None and task.cancelled():
        raise cut
    return task.result(), cut
