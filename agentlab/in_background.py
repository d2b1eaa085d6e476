"""What a run, and several in lockstep, have in common: taken to their end here or in the background, held by a pause, waited for.

Work on either happens on one event loop at a time. Where that is another thread's, nobody awaits it: what is wrong stands in a result.
"""

from __future__ import annotations

import abc
import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from agentlab import background
from agentlab._internal.kernel import front_end, interrupts, ipykernel_mend
from agentlab.errors import ConfigurationError
from agentlab.limits import in_seconds
from agentlab.owner import LONGEST_FAREWELL_S, LoopOwner
from agentlab.shown import Shown

T = TypeVar("T")
Outcome = TypeVar("Outcome")


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
        self._owner = LoopOwner()
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

    def settle_on(self, home: asyncio.AbstractEventLoop) -> None:
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
        self.settle_on(background.loop())
        self.refuse_to_block("start()")
        future = background.submit(self._to_the_end())
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
        home = background.loop()
        self.settle_on(home)
        background.submit(self._quietly(work, self._claim(home)))

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
