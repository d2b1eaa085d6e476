"""Takes steps on one event loop at a time: the caller's, or that of the background thread. Runs and locksteps each have a worker.

`Worker` awaits the end, runs in the background, waits, and holds a pause. `LoopAffinity` keeps the work on one event loop. `submit`
runs a coroutine on the daemon thread for notebooks, so that a blocking tool delays other agents but never the page. Where there are no
threads, as in a browser, the background is a task on the caller's event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from agentlab._internal.asyncio_tools import can_start_threads
from agentlab._internal.kernel import has_page, on_stop_button, waiting
from agentlab.engine.control import Control
from agentlab.errors import ConfigurationError
from agentlab.limits.fields import in_seconds

T = TypeVar("T")
S_co = TypeVar("S_co", covariant=True)
Outcome = TypeVar("Outcome")
Outcome_co = TypeVar("Outcome_co", covariant=True)

INTERRUPT_GRACE_S = 5.0
"""How long an interrupted `start()` waits for the step under way to be recorded."""


class RunState(StrEnum):
    """State of a run: READY before the first step and between manual ones, PAUSED between steps at a person's request, WAITING within
    a step for a person's approval of a tool call.

    Example:
        >>> list(lab.RunState)
        [<RunState.READY: 'ready'>, <RunState.RUNNING: 'running'>, <RunState.PAUSED: 'paused'>, <RunState.WAITI...
        >>> ended.state is lab.RunState.ENDED
        True
    """

    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    ENDED = "ended"


class Steps(Protocol[S_co, Outcome_co]):
    """What a worker drives: a stepper, or the rounds of a lockstep. `S_co` is one step, `Outcome_co` the final outcome."""

    would_block: str
    """The error message if waiting would block the loop."""
    not_started: str
    """The error message if waiting begins before the start."""
    control: Control
    affinity: LoopAffinity
    ended: threading.Event
    """Set at the end."""

    @property
    def has_ended(self) -> bool:
        """True after the last step."""
        ...

    @property
    def outcome(self) -> Outcome_co:
        """The outcome; only after the end."""
        ...

    @property
    def is_stepping(self) -> bool:
        """True if a step is under way."""
        ...

    @property
    def is_held(self) -> bool:
        """True if the next step has to wait."""
        ...

    @property
    def is_waiting(self) -> bool:
        """True if a step waits for approval."""
        ...

    async def step_once(self) -> S_co:
        """Take one step, on the loop of `affinity`."""
        ...

    def clocks_above_stopped(self) -> contextlib.AbstractContextManager[None]:
        """Stop the clocks of the runs that wait for this one, while it is held."""
        ...

    def cancel(self) -> None:
        """End at once."""
        ...

    def workers(self) -> Iterable[Worker[Any, Any]]:
        """Return the workers below this one: those of the runs in lockstep."""
        ...

    def refuse_if_ended(self) -> None:
        """Raise RunEndedError after the end."""
        ...

    def refuse_without_key(self) -> None:
        """Raise MissingKeyError before the first step; the run stays usable once the key is set."""
        ...

    def record_error(self, error: Exception) -> bool:
        """Put an error into the result, since no awaiter would receive it. Returns False if that is not possible."""
        ...

    def settle(self) -> None:
        """Handle a stop that came too late for the last step to notice. Called after each piece of work."""
        ...


class Worker(Generic[S_co, Outcome]):
    """Takes steps, one after the other, on one event loop at a time."""

    def __init__(self, steps: Steps[S_co, Outcome]) -> None:
        self.steps = steps
        self._home: asyncio.AbstractEventLoop | None = None

    @property
    def state(self) -> RunState:
        """The current state."""
        steps = self.steps
        if steps.has_ended:
            return RunState.ENDED
        if steps.is_waiting:
            return RunState.WAITING
        if steps.is_stepping:
            return RunState.RUNNING
        if steps.control.is_paused:
            return RunState.PAUSED
        return RunState.RUNNING if steps.affinity.is_busy else RunState.READY

    # On the caller's loop ---------------------------------------------------------------------------------------------------

    async def step(self) -> S_co:
        """Take one step, also during a pause. Raises RunEndedError after the end."""
        self.steps.refuse_if_ended()
        return await self._owned(self.steps.step_once)

    async def each(self) -> AsyncIterator[S_co]:
        """Yield the remaining steps, each taken on request."""
        while not self.steps.has_ended:
            await self._owned(self._while_paused)
            yield await self._owned(self.steps.step_once)
            if self.steps.is_waiting:  # and nobody is there
                return

    async def to_the_end(self) -> Outcome:
        """Take the remaining steps, up to one that waits for approval if nobody is there; return the outcome."""
        return self.steps.outcome if self.steps.has_ended else await self._owned(self._drive)

    # In the background ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Run to the end in the background; without a front end where a person could click, block until the end.

        Without threads, never block: the work continues on the caller's event loop while the caller waits for something else.
        """
        self.steps.refuse_if_ended()
        self.steps.refuse_without_key()
        if has_page() or not can_start_threads():
            self.launch()
            return
        self.bind_loop(background_loop())
        self.refuse_to_block("start()")
        future = submit(self.to_the_end())
        try:
            future.result()
        except BaseException:  # an interrupt, or an error of the run
            self._cancel_now()
            raise

    def start_here(self) -> None:
        """Run to the end on the running event loop, and return at once. Raises ConfigurationError if there is no loop."""
        self.steps.refuse_if_ended()
        self.steps.refuse_without_key()
        home = running_loop()
        if home is None:
            raise ConfigurationError("start(loop='kernel') needs a running event loop: call it in a notebook, or in async code.")
        self._home = home
        # The attribute keeps the task alive: a loop has only weak references to its tasks.
        self._task = home.create_task(self._unattended(self.to_the_end, self.claim(home)))

    def launch(self) -> None:
        """Run to the end in the background, with or without a front end: the Run button of the panel."""
        self._in_background(self.to_the_end)

    def launch_step(self) -> None:
        """Take one step in the background: the Step button of the panel."""
        self._in_background(self.step)

    def wait(self, timeout_s: float | timedelta | None = None) -> Outcome | None:
        """Block until the end and return the outcome; None after `timeout_s`. An interrupt ends the work, as it does with `start`."""
        steps = self.steps
        if steps.is_waiting and not steps.affinity.is_busy:
            return steps.outcome
        if not steps.has_ended:
            if self._home is None and not steps.affinity.is_busy and timeout_s is None:
                raise ConfigurationError(steps.not_started)
            self.refuse_to_block("wait()")
        try:
            steps.ended.wait(in_seconds(timeout_s))
        except KeyboardInterrupt:
            self._cancel_now()
            raise
        return steps.outcome if steps.has_ended else None

    def bind_loop(self, home: asyncio.AbstractEventLoop) -> None:
        """Set the loop for the work before it begins."""
        self._home = home
        for worker in self.steps.workers():
            worker.bind_loop(home)

    def refuse_to_block(self, what: str) -> None:
        """Raise ConfigurationError if blocking here would block the work itself."""
        here = running_loop()
        if here is not None and (here is self._home or self.steps.affinity.is_on(here)):
            raise ConfigurationError(f"{what} {self.steps.would_block}")
        for worker in self.steps.workers():
            worker.refuse_to_block(what)

    def claim(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop | None:
        """Keep the work on this loop from now on. Returns None if it is under way on another loop."""
        return loop if self.steps.affinity.claim(loop) else None

    @contextlib.contextmanager
    def kept_running(self) -> Iterator[None]:
        """Keep the work on this loop, and its state RUNNING, between steps too."""
        claimed = None if self.steps.has_ended else self.claim(asyncio.get_running_loop())
        try:
            yield
        finally:
            self._release(claimed)

    # Helpers ----------------------------------------------------------------------------------------------------------------

    def _cancel_now(self) -> None:
        self.steps.cancel()
        self.steps.ended.wait(INTERRUPT_GRACE_S)

    async def _drive(self) -> Outcome:
        steps = self.steps
        async with steps.affinity.driver:  # a second driver waits for the end, and can be cancelled without any effect on the run
            while not steps.has_ended:
                if steps.is_held:
                    await self._while_paused()
                await steps.step_once()
                if steps.is_waiting:  # and nobody is there
                    break
                if not can_start_threads():
                    await asyncio.sleep(0)  # the page's messages arrive on this loop too
        return steps.outcome

    async def _while_paused(self) -> None:
        steps = self.steps
        while steps.is_held:
            steps.affinity.wake.clear()
            if steps.is_held:  # checked again: another thread may have resumed before `clear`
                with steps.clocks_above_stopped():
                    await steps.affinity.wake.wait()

    async def _owned(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work on the owning loop."""
        self.steps.refuse_without_key()
        try:
            async with waiting():
                return await self.steps.affinity.run(work)
        finally:
            self.steps.settle()

    def _in_background(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self.steps.refuse_if_ended()
        self.steps.refuse_without_key()
        home = background_loop()
        self.bind_loop(home)
        submit(self._unattended(work, self.claim(home)))

    async def _unattended(
        self, work: Callable[[], Coroutine[Any, Any, object]], claimed: asyncio.AbstractEventLoop | None
    ) -> None:
        """Do the work without an awaiter."""
        unwatch, leave = on_stop_button(self.steps.cancel), self.steps.control.attend()
        try:
            await work()
        except Exception as error:
            if not self.steps.record_error(error):
                raise
        finally:
            unwatch()
            leave()
            self._release(claimed)

    def _release(self, claimed: asyncio.AbstractEventLoop | None) -> None:
        if claimed is not None:
            self.steps.affinity.release(claimed)
        self.steps.settle()


# One event loop at a time -------------------------------------------------------------------------------------------------------


class LoopAffinity:
    """Keeps work on one event loop while any is under way; later work may use another loop.

    `lock` guards the owner and state that changes with it. On the owning loop, `turn` admits one piece of work at a time, `driver` is
    held by the loop over the steps, and `wake` ends a pause.
    """

    __slots__ = ("_loop", "_users", "driver", "lock", "turn", "wake")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.turn, self.driver, self.wake = asyncio.Lock(), asyncio.Lock(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0

    @property
    def is_busy(self) -> bool:
        """True if work is under way on some loop."""
        return self._users > 0

    def is_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """True if work is under way on this loop."""
        return self._users > 0 and self._loop is loop

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work on the owning loop: the caller's, unless another is in use."""
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
        """Make this loop the owner before its work begins, until `release`. Returns False if another loop is in use."""
        with self.lock:
            claimed = self._take(loop) is loop
            self._users += claimed
        return claimed

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a piece of work or a claim on this loop. Does nothing if the loop is no longer the owner."""
        with self.lock:
            if self._loop is loop and self._users:
                self._users -= 1

    def _take(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        """Return the owner: this loop, unless another is in use."""
        if self._users == 0 or self._loop is None or self._loop.is_closed():
            self._loop, self._users = loop, 0
            self.turn, self.driver, self.wake = asyncio.Lock(), asyncio.Lock(), asyncio.Event()
        return self._loop

    def call(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the owning loop, from any thread. Does nothing if there is no loop."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in the meantime: nothing waits on it
                loop.call_soon_threadsafe(callback)

    def wake_up(self) -> None:
        """End the wait of a pause, from any thread."""
        self.call(self.wake.set)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running event loop, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_beginning: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
_beginning_lock = threading.Lock()


async def wait_to_begin() -> None:
    """Let one run begin per iteration of the loop: thousands that begin at once would block it for seconds."""
    loop = asyncio.get_running_loop()
    with _beginning_lock:
        if loop not in _beginning:
            for other in [other for other in _beginning if other.is_closed()]:  # an asyncio.Lock keeps its loop alive
                del _beginning[other]
            _beginning[loop] = asyncio.Lock()
        lock = _beginning[loop]
    await lock.acquire()
    loop.call_soon(lock.release)


# The background thread ----------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _start_anew() -> None:
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_start_anew)  # a fork has the loop, but not its thread


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop of the daemon thread for agents; without threads, the caller's.

    Raises ConfigurationError if no further thread can be started, and without threads if no loop is running.
    """
    global _loop  # noqa: PLW0603  one per process
    if not can_start_threads():
        here = running_loop()
        if here is None:
            raise ConfigurationError(
                "Nothing can run in the background: this Python can't start threads, as in a browser, and no event loop is running "
                "here. Call it in a notebook or in async code, where `await run` works too."
            )
        return here
    with _lock:
        if _loop is None or _loop.is_closed():
            new = asyncio.new_event_loop()
            # In a copy of the context: ipykernel uses it to find the cell to which a widget's output belongs.
            context = contextvars.copy_context()
            try:
                threading.Thread(target=context.run, args=(new.run_forever,), name="agentlab", daemon=True).start()
            except RuntimeError as error:
                new.close()
                raise ConfigurationError(
                    f"No thread can be started to run agents in the background ({error}). End other threads or processes, or raise "
                    "the limit on them (ulimit -u), and try again; `await run` needs no thread."
                ) from error
            _loop = new  # only after the start: work on a loop that does not run would wait forever
        return _loop


def submit(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Run a coroutine on the background loop, in a copy of the caller's context."""
    try:
        home = background_loop()
    except ConfigurationError:
        coroutine.close()
        raise
    return asyncio.run_coroutine_threadsafe(coroutine, home)


def result_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result; the caller's event loop, if any, is blocked until then.

    Raises ConfigurationError without threads while an event loop is running here, since the loop would wait for itself.
    """
    if can_start_threads():
        return submit(coroutine).result()
    if running_loop() is None:
        return asyncio.run(coroutine)
    coroutine.close()
    raise ConfigurationError(
        "An async condition has to be awaited here, which needs a thread, and this Python starts none, as in a browser. Use a "
        "condition that is not async, or a Python with threads."
    )
