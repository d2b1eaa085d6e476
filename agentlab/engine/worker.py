"""Where steps are taken: one event loop at a time, here or on the background thread. A run has a worker, and so has a lockstep.

`Worker` knows how to await the end, go on in the background, wait, and hold a pause; `LoopAffinity` keeps all of it on one event loop;
`submit` hands work to the one daemon thread that serves notebooks, so that a tool that blocks holds up agents only, never the page.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

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
    """Where a run is: READY before the first step and between manual ones, PAUSED between steps because a person asked for it.

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


class Steps(Protocol[S_co, Outcome_co]):
    """What a worker drives: a stepper, or the rounds of a lockstep. `S_co` is one step, `Outcome_co` the outcome of all."""

    would_block: str
    """Why waiting on this loop is refused."""
    not_started: str
    """Why waiting is refused before the start."""
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

    async def step_once(self) -> S_co:
        """Take one step, on the loop of `affinity`."""
        ...

    def cancel(self) -> None:
        """End at once."""
        ...

    def workers(self) -> Iterable[Worker[Any, Any]]:
        """Return the workers of the parts: those of the runs in lockstep."""
        ...

    def refuse_if_ended(self) -> None:
        """Raise RunEndedError after the end."""
        ...

    def refuse_without_key(self) -> None:
        """Raise MissingKeyError before the first step, while nothing is used up: the same can be asked again once the key is set."""
        ...

    def record_error(self, error: Exception) -> bool:
        """Put an error that nobody awaits into the result. False if there is no place for it."""
        ...

    def settle(self) -> None:
        """Handle a stop that came too late for the last step. Called after each piece of work."""
        ...


class Worker(Generic[S_co, Outcome]):
    """Takes steps, one after the other, on one event loop at a time."""

    def __init__(self, steps: Steps[S_co, Outcome]) -> None:
        self.steps = steps
        self._home: asyncio.AbstractEventLoop | None = None

    @property
    def state(self) -> RunState:
        """Where the work is."""
        steps = self.steps
        if steps.has_ended:
            return RunState.ENDED
        if steps.is_stepping:
            return RunState.RUNNING
        if steps.control.is_paused:
            return RunState.PAUSED
        return RunState.RUNNING if steps.affinity.is_busy else RunState.READY

    # Here -------------------------------------------------------------------------------------------------------------------

    async def step(self) -> S_co:
        """Take one step, also during a pause. Raises RunEndedError after the end."""
        self.steps.refuse_if_ended()
        return await self._owned(self.steps.step_once)

    async def each(self) -> AsyncIterator[S_co]:
        """Take the rest, step by step, as each is asked for."""
        while not self.steps.has_ended:
            await self._owned(self._while_paused)
            yield await self._owned(self.steps.step_once)

    async def to_the_end(self) -> Outcome:
        """Take the rest and return the outcome."""
        return self.steps.outcome if self.steps.has_ended else await self._owned(self._drive)

    # In the background ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Go to the end in the background, or before this returns if there is no front end where a person could click."""
        self.steps.refuse_if_ended()
        self.steps.refuse_without_key()
        if has_page():
            self.launch()
            return
        self.bind_loop(background_loop())
        self.refuse_to_block("start()")
        future = submit(self.to_the_end())
        try:
            future.result()
        except BaseException:  # an interrupt, or what was raised
            self.steps.cancel()
            self.steps.ended.wait(INTERRUPT_GRACE_S)
            raise

    def start_here(self) -> None:
        """Go to the end on the running event loop, and return at once. Raises ConfigurationError if there is none."""
        self.steps.refuse_if_ended()
        self.steps.refuse_without_key()
        home = running_loop()
        if home is None:
            raise ConfigurationError("start(loop='kernel') needs a running event loop: call it in a notebook, or in async code.")
        self._home = home
        self._task = home.create_task(self._unattended(self.to_the_end, self.claim(home)))  # a loop holds its tasks weakly

    def launch(self) -> None:
        """Go to the end in the background, with or without a front end: the Run button of the panel."""
        self._in_background(self.to_the_end)

    def launch_step(self) -> None:
        """Take one step in the background: the Step button of the panel."""
        self._in_background(self.step)

    def wait(self, timeout_s: float | timedelta | None = None) -> Outcome | None:
        """Block until the end and return the outcome, or None if that takes longer than `timeout_s`."""
        steps = self.steps
        if not steps.has_ended:
            if self._home is None and not steps.affinity.is_busy and timeout_s is None:
                raise ConfigurationError(steps.not_started)
            self.refuse_to_block("wait()")
        steps.ended.wait(in_seconds(timeout_s))
        return steps.outcome if steps.has_ended else None

    def bind_loop(self, home: asyncio.AbstractEventLoop) -> None:
        """Set the loop that the work will be on, before it has begun."""
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
        """Keep the work on this loop from now on; None if another loop is at work."""
        return loop if self.steps.affinity.claim(loop) else None

    @contextlib.contextmanager
    def kept_running(self) -> Iterator[None]:
        """Keep the work on this loop, and RUNNING, also between its steps."""
        claimed = None if self.steps.has_ended else self.claim(asyncio.get_running_loop())
        try:
            yield
        finally:
            self._release(claimed)

    # Inside -----------------------------------------------------------------------------------------------------------------

    async def _drive(self) -> Outcome:
        steps = self.steps
        async with steps.affinity.driver:  # a second driver waits for the end, and may be cancelled without ending anything
            while not steps.has_ended:
                await self._while_paused()
                await steps.step_once()
        return steps.outcome

    async def _while_paused(self) -> None:
        steps = self.steps
        while steps.is_held:
            steps.affinity.wake.clear()
            if steps.is_held:  # another thread may have resumed before there was anything to wake
                await steps.affinity.wake.wait()

    async def _owned(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do this on the owning loop."""
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
        """Do this where nobody awaits it."""
        unwatch = on_stop_button(self.steps.cancel)
        try:
            await work()
        except Exception as error:
            if not self.steps.record_error(error):
                raise
        finally:
            unwatch()
            self._release(claimed)

    def _release(self, claimed: asyncio.AbstractEventLoop | None) -> None:
        if claimed is not None:
            self.steps.affinity.release(claimed)
        self.steps.settle()


# One event loop at a time -------------------------------------------------------------------------------------------------------


class LoopAffinity:
    """Knows which event loop the work is on as long as any is under way; the next piece of work may come from another loop.

    `lock` guards what has to change together with that. On the owning loop, `turn` lets one piece of work at a time through,
    `driver` is held by a loop over the steps, and `wake` ends a pause.
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
        """Make this loop the owner before its work begins; `release` ends that. False if another loop is at work."""
        with self.lock:
            claimed = self._take(loop) is loop
            self._users += claimed
        return claimed

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """A piece of work on this loop is done, or a claim is given up. Does nothing if the loop has lost the work meanwhile."""
        with self.lock:
            if self._loop is loop and self._users:
                self._users -= 1

    def _take(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        """Return the owner, which is this loop unless another is at work."""
        if self._users == 0 or self._loop is None or self._loop.is_closed():
            self._loop, self._users = loop, 0
            self.turn, self.driver, self.wake = asyncio.Lock(), asyncio.Lock(), asyncio.Event()
        return self._loop

    def call(self, callback: Callable[[], object]) -> None:
        """Call this on the owning loop, from any thread; nothing happens if there is none."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(callback)

    def wake_up(self) -> None:
        """End the wait of a pause, from any thread."""
        self.call(self.wake.set)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that this is called on, or None outside of any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_beginning: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
_beginning_lock = threading.Lock()


async def turn_to_begin() -> None:
    """Let one run begin per turn of the loop: thousands that begin at once would hold the loop up for seconds."""
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


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of the daemon thread that runs agents, running. Raises ConfigurationError if no thread can be started."""
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
