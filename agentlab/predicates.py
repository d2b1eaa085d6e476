"""Async or not: helpers for users' functions, and coroutines with a helpful error for a forgotten `await`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def is_async(function: object) -> bool:
    """True if it is known, without a call, that the result must be awaited; also for a partial and an async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def name_of(function: object) -> str:
    """Return the name of a function; `custom` for a lambda."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "custom" if name == "<lambda>" else str(name)


def discard(awaitable: Awaitable[Any]) -> None:
    """Close an awaitable that nobody will await, without a warning."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()
    elif hasattr(awaitable, "cancel"):
        awaitable.cancel()


class NotAwaited(Coroutine[Any, Any, T]):
    """A coroutine that explains a forgotten `await` when it is used like its result."""

    __slots__ = ("__weakref__", "_call", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, T], call: str) -> None:
        self._coroutine, self._call = coroutine, call

    def send(self, value: Any) -> Any:
        """Continue to the next wait."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise this error where it waits."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close it."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    if not TYPE_CHECKING:  # with it, type checkers would take any name for an attribute

        def __getattr__(self, name):
            if name.startswith(("cr_", "__")):  # asyncio and debuggers read these
                return getattr(self._coroutine, name)
            raise AttributeError(f"{self._call} was not awaited: write `(await {self._call}).{name}`.", name=name, obj=self)

    def __getitem__(self, place: object) -> Any:
        raise TypeError(f"{self._call} was not awaited: write `(await {self._call})[{place!r}]`.")

    def __bool__(self) -> bool:
        raise TypeError(f"{self._call} was not awaited, so it is neither true nor false: write `await {self._call}`.")

    def __repr__(self) -> str:
        return f"<{self._call} was not awaited: write `await {self._call}`>"


def needs_await(call: str) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, NotAwaited[T]]]:
    """Make an async method return a NotAwaited; `call` is the call as people write it."""

    def decorated(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, NotAwaited[T]]:
        @functools.wraps(method)
        def called(*args: P.args, **more: P.kwargs) -> NotAwaited[T]:
            return NotAwaited(method(*args, **more), call)

        return called

    return decorated
