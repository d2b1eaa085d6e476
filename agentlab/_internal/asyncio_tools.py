"""Async helpers: work that continues after its awaiter is cancelled, functions that may be async, and forgotten awaits.

The one place that decides where sync work runs: on a thread, or on the caller's event loop where no thread can be started.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import math
import sys
import threading
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

T = TypeVar("T")
Settled: TypeAlias = "tuple[T | None, BaseException | None]"
"""A value, or the exception in its place."""

GRACE_S = 2.0
"""The time that a cancelled task has to end, including its `finally`. Then it is abandoned."""

_left_behind: set[asyncio.Future[Any]] = set()
"""Abandoned tasks, until they end: a loop has only weak references to its tasks."""


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all at the same time and return their results. After an error or a cancel of the caller, the others are cancelled, and have
    ended before it is raised; `asyncio.gather` leaves them running."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the first one, as it was raised
    return [task.result() for task in tasks]


async def cancel_and_wait(
    work: Iterable[asyncio.Future[Any]], grace_s: float | None = GRACE_S
) -> tuple[bool, asyncio.CancelledError | None]:
    """Cancel tasks and wait for their end. Returns True if all of them ended, and a cancel of the caller that arrived meanwhile, which
    the caller has to raise.

    A task that does not end within the grace period is abandoned, and its result is dropped. Without a grace period (None), each
    further cancel of the caller is passed on to the tasks.
    """
    running, cut = {task for task in work if not task.done()}, None
    for task in running:
        task.cancel()
    until_s = math.inf if grace_s is None else time.monotonic() + grace_s
    while running and (left_s := until_s - time.monotonic()) > 0:
        try:
            _, running = await asyncio.wait(running, timeout=None if grace_s is None else left_s)
        except asyncio.CancelledError as error:
            cut = cut or error
            running = {task for task in running if not task.done()}
            if grace_s is None:
                for task in running:
                    task.cancel()
    for task in running:
        _left_behind.add(task)
        task.add_done_callback(_dropped)
    return not running, cut


def _dropped(work: asyncio.Future[Any]) -> None:
    _left_behind.discard(work)
    if not work.cancelled():
        work.exception()  # retrieve it, otherwise asyncio reports it


def settling(awaitable: Awaitable[T], name: str) -> tuple[asyncio.Task[Settled[T]], asyncio.Future[None]]:
    """Await in a task; return it and a future that is resolved when it ends, one iteration of the loop before `asyncio.wait` would
    return. The result of the task is the value and the exception: if a task raised them, asyncio would let some escape its loop."""
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    work = _settle(awaitable, end)
    work.send(None)  # into its `try`: `end` is resolved even if the task is cancelled before it begins
    return asyncio.create_task(work, name=name), end


async def _settle(awaitable: Awaitable[T], end: asyncio.Future[None]) -> Settled[T]:
    try:
        await _until_next_send()
        return await awaitable, None
    except BaseException as error:
        return None, error
    finally:
        if not end.done():
            end.set_result(None)


@types.coroutine
def _until_next_send() -> Generator[None, None, None]:
    yield


async def cut_before(end: asyncio.Future[None]) -> asyncio.CancelledError | None:
    """Wait for a future that only the caller awaits; return a cancel of the caller that arrives before."""
    try:
        await end
    except asyncio.CancelledError as cut:
        return cut
    return None


async def sheltered(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Finish the work. Returns its result, and a cancel of the caller that arrived meanwhile, which the caller has to raise.

    A second cancel cancels the work too, so that work that never ends can be stopped.
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


def call_on_thread(
    function: Callable[..., Any], arguments: dict[str, Any], name: str
) -> asyncio.Future[tuple[Any, BaseException | None]]:
    """Call a sync function on a daemon thread; the future has its value or its exception. Unlike an executor's thread, it does not
    keep the interpreter alive if it never returns."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def resolve(outcome: tuple[Any, BaseException | None]) -> None:
        if not future.done():
            future.set_result(outcome)

    def work() -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = context.run(function, **arguments), None
        except BaseException as error:  # including interrupts: those of a person reach only the main thread
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop was closed, so nothing waits for the outcome
            loop.call_soon_threadsafe(resolve, outcome)

    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:  # too many threads
        future.set_result((None, error))
    return future


P = ParamSpec("P")


def is_async(function: object) -> bool:
    """True if a call of this function certainly returns an awaitable. Recognises partials and an async `__call__`."""
    if type(function) is types.FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
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
    """Close an awaitable that will not be awaited, without a warning."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()
    elif hasattr(awaitable, "cancel"):
        awaitable.cancel()


class NotAwaited(Coroutine[Any, Any, T]):
    """A coroutine whose errors explain a forgotten `await` if it is used like its result."""

    __slots__ = ("__weakref__", "_call", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, T], call: str) -> None:
        self._coroutine, self._call = coroutine, call

    def send(self, value: Any) -> Any:
        """Continue the coroutine until it waits again."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise this error in the coroutine."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name as an attribute

        def __getattr__(self, name):
            if name.startswith(("cr_", "__")):  # asyncio and debuggers read these
                return getattr(self._coroutine, name)
            raise AttributeError(f"{self._call} was not awaited: write `(await {self._call}).{name}`.", name=name, obj=self)

    def __getitem__(self, place: object) -> Any:
        raise TypeError(f"{self._call} was not awaited: write `(await {self._call})[{place!r}]`.")

    def __bool__(self) -> bool:
        if sys._getframe(1).f_globals.get("__name__") == "asyncio.base_tasks":  # the repr of a task, since Python 3.14
            return True
        raise TypeError(f"{self._call} was not awaited, so it is neither true nor false: write `await {self._call}`.")

    def __repr__(self) -> str:
        return f"<{self._call} was not awaited: write `await {self._call}`>"


def needs_await(call: str) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, NotAwaited[T]]]:
    """Make an async method return a NotAwaited; `call` is the call as users write it."""

    def decorated(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, NotAwaited[T]]:
        @functools.wraps(method)
        def called(*args: P.args, **more: P.kwargs) -> NotAwaited[T]:
            return NotAwaited(method(*args, **more), call)

        return called

    return decorated


# Threads ------------------------------------------------------------------------------------------------------------------------


@functools.cache
def can_start_threads() -> bool:
    """True if this Python can start threads. Tried once per process: builds of one platform differ in it.

    Python in a browser (Pyodide, which JupyterLite uses) has one thread. What runs on a thread elsewhere runs on the event loop there:
    sync tools, `run.start()`, the panel's buttons and its redraw. A sync function blocks the loop until it returns.
    """
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
