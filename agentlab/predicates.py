"""What is async and what is not: functions that a person wrote, as a tool or a stop condition, and calls that nobody has awaited."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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
    if isinstance(awaitable, Coroutine):
        awaitable.close()
    elif hasattr(awaitable, "cancel"):
        awaitable.cancel()


class NotAwaited(Coroutine[Any, Any, T]):
    """A coroutine that says what to write where it is taken for its result, as after a forgotten `await`."""

    __slots__ = ("__weakref__", "_call", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, T], call: str) -> None:
        self._coroutine, self._call = coroutine, call

    def send(self, value: Any) -> Any:
        """Go on to the next wait."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise this where it waits."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End it."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    if not TYPE_CHECKING:  # with it, type checkers would take any name for an attribute

        def __getattr__(self, name):
            if name.startswith(("cr_", "__")):  # what asyncio and debuggers look at
                return getattr(self._coroutine, name)
            raise AttributeError(f"{self._call} was not awaited: write `(await {self._call}).{name}`.", name=name, obj=self)

    def __getitem__(self, place: object) -> Any:
        raise TypeError(f"{self._call} was not awaited: write `(await {self._call})[{place!r}]`.")

    def __bool__(self) -> bool:
        raise TypeError(f"{self._call} was not awaited, so it is neither true nor false: write `await {self._call}`.")

    def __repr__(self) -> str:
        return f"<{self._call} was not awaited: write `await {self._call}`>"


def needs_await(call: str) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, NotAwaited[T]]]:
    """Have what an async method gives say that it is to be awaited; `call` is how people write the call."""

    def decorated(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, NotAwaited[T]]:
        @functools.wraps(method)
        def called(*args: P.args, **more: P.kwargs) -> NotAwaited[T]:
            return NotAwaited(method(*args, **more), call)

        return called

    return decorated
