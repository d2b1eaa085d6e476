"""Every moment at which a task gives way to the others: something is done at the n-th of them, for each n until nothing is left.

Tasks are made of coroutines that are counted (a task factory sees to that), so that it needs no hook inside of what is tested, and
sees the tasks that it starts of its own too. What is done is done while the task stands at that very `await`.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

Act = Callable[["Moments"], object]


@dataclass
class Moments:
    """Counts from 1; at number `at` it does `act` once. `waited_for` is what the task waits for there: a future, or None."""

    at: int
    act: Act
    count: int = 0
    waited_for: Any = None
    on: bool = True
    task: asyncio.Task[Any] | None = None
    loop: asyncio.AbstractEventLoop | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the moment has come."""
        return self.count >= self.at

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count what the loop's tasks do from here on, and keep what is reported to the loop as nobody's."""
        self.loop = loop
        loop.set_task_factory(self._made)
        loop.set_exception_handler(lambda _, told: self.problems.append(f"told to the loop: {told.get('message')}"))

    def leave(self) -> None:
        """Count no more."""
        self.on = False
        if self.loop is not None:
            self.loop.set_task_factory(None)

    def _made(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(_Counted(coroutine, self), loop=loop, **more)
        if self.task is None:
            self.task = task  # the first is that of whoever awaits the run
        return task

    def came(self, waited_for: Any) -> None:
        """A task gives way."""
        if not self.on:
            return
        self.count += 1
        if self.count == self.at:
            self.waited_for = waited_for
            self.act(self)


class _Counted(Coroutine[Any, Any, Any]):
    def __init__(self, coroutine: Coroutine[Any, Any, Any], moments: Moments) -> None:
        self._coroutine, self._moments = coroutine, moments

    def send(self, value: Any) -> Any:
        return self._told(self._coroutine.send(value))

    def throw(self, *error: Any) -> Any:
        return self._told(self._coroutine.throw(*error))

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self

    def _told(self, waited_for: Any) -> Any:
        self._moments.came(waited_for)
        return waited_for


# What is done at a moment ------------------------------------------------------------------------------------------------------


def cancel_the_task(moments: Moments) -> None:
    """Cancel who awaits the run, at the very await."""
    assert moments.task is not None
    moments.task.cancel()


def cancel_the_task_late(moments: Moments) -> None:
    """Cancel who awaits the run when what it waits for has come, and it has not seen that yet."""
    task, loop, waited_for = moments.task, moments.loop, moments.waited_for
    assert task is not None and loop is not None
    if waited_for is None:
        loop.call_soon(task.cancel)
    else:
        waited_for.add_done_callback(lambda _: task.cancel())


def press_ctrl_c(_: Moments) -> None:
    """What a terminal does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def from_a_thread(what: Callable[[], object]) -> Act:
    """Do it on a thread of its own, while the loop stands at the await."""

    def act(_: Moments) -> None:
        thread = threading.Thread(target=what)
        thread.start()
        thread.join()

    return act
