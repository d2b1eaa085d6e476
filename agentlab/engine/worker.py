"""What a run, and several in lockstep, have in common: taken to their end here or in the background, held by a pause, waited for.

Work on either happens on one event loop at a time. Where that is another thread's, nobody awaits it: what is wrong stands in a result.
"""

from __future__ import annotations

import abc
import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from agentlab._internal.kernel import front_end, interrupts, ipykernel_mend
from agentlab.errors import ConfigurationError
from agentlab.limits import in_seconds
from agentlab.shown import Shown

T = TypeVar("T")
Outcome = TypeVar("Outcome")

LONGEST_FAREWELL_S = 5.0
"""How long an interrupted `start()` waits for the step under way to be recorded."""


class RunState(StrEnum):
    """Where a run is: READY before the first step and between manual ones, PAUSED between steps at a person's wish.

    Example:
        >>> list(lab.RunState)
        [<RunState.READY: 'ready'>, <RunState.RUNNING: 'running'>, <RunState.PAUSED: 'paused'>, <RunState.ENDED:...
        >>> ended.state is lab.RunState.ENDED
        True
    """

    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class InBackground(Shown, abc.ABC, Generic[Outcome]):
    """What is taken step by step to its end, also where nobody awaits it. `Outcome` is what it comes to."""

    _WOULD_BLOCK: ClassVar[str]
    _NOT_STARTED: ClassVar[str]

    def __init__(self) -> None:
        self._paused = False
        self._home: asyncio.AbstractEventLoop | None = None
        self._owner = LoopAffinity()
        self._over = threading.Event()

    # What each kind says of itself ------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _has_ended(self) -> bool: ...

    @abc.abstractmethod
    def _outcome(self) -> Outcome:
        """What it came to, once it has ended."""

    @abc.abstractmethod
    def _is_at_work(self) -> bool:
        """Whether a step is under way."""

    @abc.abstractmethod
    def _is_held(self) -> bool:
        """Whether it is to wait before the next step."""

    @abc.abstractmethod
    async def _one_step(self) -> object:
        """Take one step, which of several in lockstep is one of each; on the owning loop."""

    @abc.abstractmethod
    def _refuse_if_ended(self) -> None: ...

    @abc.abstractmethod
    def refuse_without_key(self) -> None:
        """Raise MissingKeyError before the first step, while nothing is used up: with the key set, the same can be asked again."""

    @abc.abstractmethod
    def _keep_error(self, error: Exception) -> bool:
        """Have a result tell of this error, which nobody awaits; False where none does, and it goes to the loop."""

    def _work_is_done(self) -> None:
        """Some work is no longer under way."""

    @abc.abstractmethod
    async def step(self) -> object:
        """Take one step."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """End it at once."""

    # What they have in common -----------------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Outcome]:
        """To the end; what it came to always comes back, whatever ended it."""
        return self._to_the_end().__await__()

    def launch(self) -> None:
        """Go to the end in the background, whoever is there to see it: what the panel's Run button does."""
        self._in_background(self._to_the_end)

    def launch_step(self) -> None:
        """Take one step in the background: what the panel's Step button does."""
        self._in_background(self.step)

    def bind_loop(self, home: asyncio.AbstractEventLoop) -> None:
        """Say which loop the work will be on, for whoever waits for its end."""
        self._home = home

    def refuse_to_block(self, what: str) -> None:
        """Raise ConfigurationError where to block here would block the work itself."""
        if self._owner.would_be_blocked(self._home):
            raise ConfigurationError(f"{what} {self._WOULD_BLOCK}")

    def _state(self) -> RunState:
        if self._has_ended():
            return RunState.ENDED
        if self._is_at_work():
            return RunState.RUNNING
        if self._paused:
            return RunState.PAUSED
        return RunState.RUNNING if self._owner.is_busy else RunState.READY

    def _launch_or_finish(self) -> None:
        """In the background where somebody can click; else to the end before this comes back."""
        self.refuse_without_key()
        if front_end.is_present():
            self.launch()
            return
        self.bind_loop(background_loop())
        self.refuse_to_block("start()")
        future = submit(self._to_the_end())
        try:
            future.result()
        except BaseException:  # an interrupt, or what was raised
            self.cancel()
            self._over.wait(LONGEST_FAREWELL_S)
            raise

    def _block(self, timeout_s: float | timedelta | None) -> Outcome | None:
        """Until the end; None where that took longer."""
        if not self._has_ended():
            if self._home is None and not self._owner.is_busy and timeout_s is None:
                raise ConfigurationError(self._NOT_STARTED)
            self.refuse_to_block("wait()")
        self._over.wait(in_seconds(timeout_s))
        return self._outcome() if self._has_ended() else None

    async def _to_the_end(self) -> Outcome:
        return self._outcome() if self._has_ended() else await self._owned(self._drive)

    async def _drive(self) -> Outcome:
        async with self._owner.driver:  # a second one waits for the end, and may be cancelled without ending anything
            while not self._has_ended():
                await self._while_paused()
                await self._one_step()
        return self._outcome()

    async def _while_paused(self) -> None:
        while self._is_held():
            self._owner.wake.clear()
            if self._is_held():  # another thread may have changed that before there was anything to wake
                await self._owner.wake.wait()

    def _poke(self) -> None:
        """Wake it from a pause, from any thread."""
        self._owner.call(self._owner.wake.set)

    async def _owned(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do this on the owning loop."""
        self.refuse_without_key()
        try:
            async with ipykernel_mend.waiting():
                return await self._owner.run(work)
        finally:
            self._work_is_done()

    def _in_background(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._refuse_if_ended()
        self.refuse_without_key()
        home = background_loop()
        self.bind_loop(home)
        submit(self._quietly(work, self._claim(home)))

    def _claim(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop | None:
        """Have the work on this loop from now on, whoever asks for a step first; None where another is at work."""
        return loop if self._owner.claim(loop) else None

    async def _quietly(self, work: Callable[[], Coroutine[Any, Any, object]], claimed: asyncio.AbstractEventLoop | None) -> None:
        """Do this where nobody awaits."""
        unwatch = interrupts.watch(self.cancel)
        try:
            await work()
        except Exception as error:
            if not self._keep_error(error):
                raise
        finally:
            unwatch()
            if claimed is not None:
                self._owner.release(claimed)
            self._work_is_done()


# One event loop at a time ----


class LoopAffinity:
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


# The background thread ----


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def background_loop() -> asyncio.AbstractEventLoop:
    """The background loop, running. Raises ConfigurationError where no thread can be started for it."""
    global _loop  # noqa: PLW0603  there is one for the process
    with _lock:
        if _loop is None or _loop.is_closed():
            new = asyncio.new_event_loop()
            # In a copy of the context: ipykernel finds by it the cell whose output a widget belongs to.
            context = contextvars.copy_context()
            try:
                threading.Thread(target=context.run, args=(new.run_forever,), name="agentlab", daemon=True).start()
            except RuntimeError as error:
                new.close()
                raise ConfigurationError(
                    f"No thread can be started to run agents in the background ({error}). End other threads or processes, or raise "
                    "the limit on them (ulimit -u), and start it again; `await run` needs no thread."
                ) from error
            _loop = new  # not before: work on a loop that nobody runs would wait for ever
        return _loop


def submit(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Run a coroutine on the background loop, in a copy of the caller's context."""
    try:
        home = background_loop()
    except ConfigurationError:
        coroutine.close()
        raise
    return asyncio.run_coroutine_threadsafe(coroutine, home)
