"""Work that is not to be cut off half-way: whoever awaits it may be cancelled, and then waits for its end all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
