"""Several runs taken step by step together: the same task over other models, or a run beside its branches.

both = lab.Lockstep([run_a, run_b])
steps = await both.step()        one step of each, at the same time; None for a run that has ended
async for steps in both: …       the rest, round by round
results = await both             to the end of all of them
both.start()                     in the background; the cell returns at once
both.pause()  both.resume()  both.stop("enough")  both.cancel()
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agentlab import events, sugar
from agentlab.engine.stepper import Stepper
from agentlab.engine.worker import InBackground, RunState
from agentlab.errors import ConfigurationError, RunEndedError
from agentlab.predicates import needs_await
from agentlab.printable import one_line
from agentlab.results import RunResult, StepResult

if TYPE_CHECKING:
    from agentlab.run import Run

Round = tuple[StepResult | None, ...]
"""The steps of one round, in the order of the runs; None for a run that took none."""


class Lockstep(InBackground[tuple[RunResult, ...]]):
    """Runs that take their steps together: a round is over when each of them has taken one, and none is ahead by more than that.

    Each run keeps its own limits, and one that ends is left out from then on. An error that a run raises ends that run alone, and
    stands in its result. `round` counts the rounds so far.

    Example:
        >>> both = lab.Lockstep([brief.run("?"), endless.run("?", stop=lab.StepCountIs(3))])
        >>> steps = await both.step()
        >>> [result.stop_reason.value for result in await both]
        ['completed', 'stop_condition']
    """

    _WOULD_BLOCK = "would block the very loop that the runs are on: `await` the lockstep instead."
    _NOT_STARTED = "The runs have not been started, so there is no end to wait for: call start() first."

    def __init__(self, runs: Iterable[Run]) -> None:
        super().__init__()
        self.runs: tuple[Run, ...] = _checked(runs)
        self.round: int = 0
        self.round_under_way: bool = False
        self._control = threading.RLock()
        for run in self.runs:
            run.observe(self._heard)
        self._look_whether_over()

    # Looking at it ----------------------------------------------------------------------------------------------------------

    @property
    def results(self) -> tuple[RunResult | None, ...]:
        """The results in the order of the runs; None for a run that goes on.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), endless.run("?")])
            >>> step = await both.step()
            >>> both.results
            (RunResult(completed, terminated, 1 step, 'The model ended its turn.', text='Paris.'), None)
        """
        return tuple([run.result for run in self.runs])

    @property
    def ended(self) -> bool:
        """Whether all runs have ended.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), brief.run("??")])
            >>> both.ended
            False
            >>> results = await both
            >>> both.ended
            True
        """
        return all(run.result is not None for run in self.runs)

    @property
    def state(self) -> RunState:
        """Where they are: RUNNING from the first round to the last, PAUSED between two at a person's wish, ENDED with the last run.

        Example:
            >>> lab.Lockstep([brief.run("?"), brief.run("?")]).state
            <RunState.READY: 'ready'>
        """
        return self._state()

    @property
    def pausing(self) -> bool:
        """Whether a pause was asked for; it takes hold after the round under way.

        Example:
            >>> lab.Lockstep([endless.run("?"), endless.run("?")]).pausing
            False
        """
        return self._paused and not self.ended

    def to_frame(self, what: str = "steps") -> Any:
        """A DataFrame of all runs: `runs`, `steps`, `calls`, `tools`, `events`, `readings` or `termination`.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), endless.run("?", stop=lab.StepCountIs(2))])
            >>> results = await both
            >>> both.to_frame()[["step", "total_tokens"]]
               step  total_tokens
            0     1            15
            1     1            15
            2     2            15
        """
        return sugar.call("agentlab.recorder:to_frame", self.runs, what)

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        names = ", ".join(one_line(run.agent.name) for run in self.runs)
        return f"Lockstep([{names}], {self.state}, {self.round} rounds)"

    # Going on ---------------------------------------------------------------------------------------------------------------

    @needs_await("lockstep.step()")
    async def step(self) -> Round:
        """One step of every run that goes on, all at the same time, also while they are paused. Raises RunEndedError after the end.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), endless.run("?")])
            >>> [step.index for step in await both.step()]
            [1, 1]
            >>> await both.step()  # the first has come to its end
            (None, StepResult(2, tool_calls, tools=['search'], tokens=15, cost_usd=0.01))
        """
        self._refuse_if_ended()
        return await self._owned(self._one_step)

    async def __aiter__(self) -> AsyncIterator[Round]:
        """The rounds from here on, one by one, taken as they are asked for."""
        while not self.ended:
            await self._owned(self._while_paused)
            steps = await self._owned(self._one_step)
            if any(step is not None for step in steps):
                yield steps

    def start(self) -> Lockstep:
        """Run all to the end in the background and return at once; where nobody can click, finish them first.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), brief.run("?")]).start()
            >>> [result.text for result in both.results]
            ['Paris.', 'Paris.']
        """
        self._refuse_if_ended()
        self._launch_or_finish()
        return self

    def wait(self, timeout_s: float | timedelta | None = None) -> tuple[RunResult, ...] | None:
        """Block until all have ended; their results, or None where that took longer than `timeout_s`.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), brief.run("?")]).start()
            >>> len(both.wait(timeout_s=5))
            2
        """
        return self._block(timeout_s)

    def pause(self) -> None:
        """Wait before the next round, until `resume()`; each run is paused with it. The time does not count against a timeout.

        Example:
            >>> both = lab.Lockstep([endless.run("?"), endless.run("?")])
            >>> both.pause()
            >>> both.pausing
            True
        """
        self._refuse_if_ended()
        with self._control:
            self._paused = True
            self._each(lambda run: run.pause())

    def resume(self) -> None:
        """Go on after a pause, of all or of single runs.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), brief.run("?")])
            >>> both.pause()
            >>> both.resume()
            >>> both.pausing
            False
        """
        self._refuse_if_ended()
        with self._control:
            self._paused = False
            self._each(lambda run: run.resume())
        self._poke()

    def stop(self, reason: str = "the person asked for it") -> None:
        """End every run after the round under way, or at once where none is. Nothing happens to runs that have ended.

        Example:
            >>> both = lab.Lockstep([endless.run("?"), endless.run("?")])
            >>> both.stop("enough")
            >>> both.results[0].detail
            'Stopped by the person: enough'
        """
        self._each(lambda run: run.stop(reason))
        self._poke()

    def cancel(self) -> None:
        """End every run at once, in mid-step if need be; what came back so far is recorded.

        Example:
            >>> both = lab.Lockstep([endless.run("?"), endless.run("?")])
            >>> both.cancel()
            >>> [result.stop_reason.value for result in both.results]
            ['cancelled', 'cancelled']
        """
        self._each(lambda run: run.cancel())
        self._poke()

    # The loop ---------------------------------------------------------------------------------------------------------------

    async def _one_step(self) -> Round:
        async with self._owner.turn:
            if self.ended:
                return (None,) * len(self.runs)
            self.round_under_way = True
            try:
                with contextlib.ExitStack() as kept:
                    for run in self.runs:  # one that is done with its step is RUNNING until the others are
                        kept.enter_context(run.kept_running())
                    steps = await asyncio.gather(*[run.step_quietly() for run in self.runs])
            finally:
                self.round_under_way = False
            self.round += any(step is not None for step in steps)
            return tuple(steps)

    def _is_held(self) -> bool:
        """Whether all wait: at the person's wish, or for one of them that was paused by itself."""
        return not self.ended and (self._paused or any(run.pausing for run in self.runs))

    def bind_loop(self, home: asyncio.AbstractEventLoop) -> None:
        """Say which loop all of them will be on, for whoever waits for their end."""
        super().bind_loop(home)
        for run in self.runs:
            run.bind_loop(home)

    def refuse_without_key(self) -> None:
        """Raise MissingKeyError before any of the runs begins."""
        for run in self.runs:
            run.refuse_without_key()

    def refuse_to_block(self, what: str) -> None:
        """Raise ConfigurationError where to block here would block them all, or one of them."""
        super().refuse_to_block(what)
        for run in self.runs:
            run.refuse_to_block(what)

    def _has_ended(self) -> bool:
        return self.ended

    def _is_at_work(self) -> bool:
        return self.round_under_way

    def _keep_error(self, error: Exception) -> bool:
        """Errors stand in the runs' results; that all ended meanwhile is none."""
        return isinstance(error, RunEndedError)

    def _outcome(self) -> tuple[RunResult, ...]:
        return tuple([result for result in self.results if result is not None])

    def _each(self, do: Callable[[Run], object]) -> None:
        for run in self.runs:
            with contextlib.suppress(RunEndedError):
                if run.result is None:
                    do(run)

    def _heard(self, event: events.Event) -> None:
        """From a run, on any thread: what may end a wait."""
        if type(event) in (events.RunResumed, events.RunEnded):
            self._look_whether_over()
            self._poke()

    def _look_whether_over(self) -> None:
        if self.ended:
            self._over.set()

    def _refuse_if_ended(self) -> None:
        if self.ended:
            ends = ", ".join(str(result.stop_reason) for result in self._outcome())
            raise RunEndedError(f"All runs of the lockstep have ended ({ends}): fork one, or start others with agent.run(…).")


def _checked(runs: Iterable[Run]) -> tuple[Run, ...]:
    if isinstance(runs, Stepper) or not isinstance(runs, Iterable):
        raise ConfigurationError(f"Lockstep({runs!r}): pass the runs in a list, such as Lockstep([run_a, run_b]).")
    listed = tuple(runs)
    if not listed:
        raise ConfigurationError("Lockstep([]): pass at least one run, as agent.run(…) makes them.")
    for place, run in enumerate(listed):
        if not isinstance(run, Stepper):
            raise ConfigurationError(f"Lockstep: {run!r} is not a run: pass what agent.run(…) gave.")
        if any(run is other for other in listed[:place]):
            raise ConfigurationError(
                f"Lockstep: {run!r} is there twice; a run takes one step at a time. Fork it, or leave one out."
            )
    return listed
