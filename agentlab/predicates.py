"""What can be told of a function that a person wrote, as a tool or a stop condition, without calling it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable
from typing import Any


def is_async(function: object) -> bool:
    """Whether it is known, without calling it, that what it answers has to be awaited; also for a partial and an async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def name_of(function: object) -> str:
    """What to call a function by; `custom` where it has no name."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "custom" if name == "<lambda>" else str(name)


def discard(awaitable: Awaitable[Any]) -> None:
    """End an awaitable that nobody will await, without a warning."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()
    elif hasattr(awaitable, "cancel"):
        awaitable.cancel()
