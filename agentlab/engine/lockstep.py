"""Several runs that take their steps together: the same task on several models, or a run and its branches.

both = lab.Lockstep([run_a, run_b])
steps = await both.step()        one step of each, at the same time; None for a run that has ended
async for steps in both: …       the remaining rounds, one by one
results = await both             run all to the end
both.start()                     in the background; the cell returns at once
both.pause()  both.resume()  both.stop("enough")  both.cancel()
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic

from agentlab._internal.asyncio_tools import needs_await, together
from agentlab._internal.display import Displayable
from agentlab._internal.safe_text import one_line
from agentlab.engine.branches import RunLike
from agentlab.engine.control import Control
from agentlab.engine.stepper import Stepper
from agentlab.engine.worker import LoopAffinity, RunState, Worker
from agentlab.errors import ConfigurationError, RunEndedError
from agentlab.records import events
from agentlab.records.result import RunResult
from agentlab.records.step import StepResult

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeVar

    R = TypeVar("R", bound=RunLike, default=Any)  # with a default, a plain `Lockstep` is a type too
else:
    from typing import TypeVar

    R = TypeVar("R")

Round = tuple[StepResult | None, ...]
"""The steps of one round, in the order of the runs; None for a run that took no step."""


class Rounds(Generic[R]):
    """Takes the rounds of a lockstep: one step of every run that is still running, at the same time. See `Steps`."""

    would_block = "would block the event loop that the runs use: `await` the lockstep instead."
    not_started = "The runs have not been started, so waiting would never end: call start() first."

    def __init__(self, runs: tuple[R, ...]) -> None:
        self.runs = runs
        self.control, self.affinity, self.ended = Control(), LoopAffinity(), threading.Event()
        self.number = 0
        self.is_stepping = False
        for run in runs:
            run.timeline.observe(self._on_event)
        self._check_end()

    def clocks_above_stopped(self) -> contextlib.AbstractContextManager[None]:
        """Stop none: no run waits for a lockstep."""
        return contextlib.nullcontext()

    async def step_once(self) -> Round:
        """Take one round, on the loop of `affinity`."""
        async with self.affinity.turn:
            if self.has_ended:
                return (None,) * len(self.runs)
            self.is_stepping = True
            try:
                with contextlib.ExitStack() as kept:
                    for run in self.runs:  # each run stays RUNNING until all have taken their step
                        kept.enter_context(run.worker.kept_running())
                    steps = await together(run.stepper.step_quietly() for run in self.runs)
            finally:
                self.is_stepping = False
            self.number += any(step is not None for step in steps)
            return tuple(steps)

    @property
    def has_ended(self) -> bool:
        """True if all runs have ended."""
        return all(run.result is not None for run in self.runs)

    @property
    def outcome(self) -> tuple[RunResult, ...]:
        """The results of the runs that have ended, or wait for approval."""
        return tuple([run.stepper.outcome for run in self.runs if run.result is not None or run.stepper.is_waiting])

    @property
    def is_waiting(self) -> bool:
        """True if all runs that have not ended wait for approval, and no other work is under way."""
        going = [run for run in self.runs if run.result is None]
        return bool(going) and all(run.stepper.is_waiting for run in going)

    @property
    def is_held(self) -> bool:
        """True if all have to wait, since all runs or a single one are paused."""
        return not self.has_ended and (self.control.is_paused or any(run.control.pausing for run in self.runs))

    def each(self, do: Callable[[R], object]) -> None:
        """Call `do` with every run that is still running, then wake the rounds."""
        for run in self.runs:
            with contextlib.suppress(RunEndedError):
                if run.result is None:
                    do(run)
        self.affinity.wake_up()

    def cancel(self) -> None:
        """Cancel all runs."""
        self.each(lambda run: run.stepper.cancel())

    def workers(self) -> list[Worker[Any, Any]]:
        """Return the workers of the runs."""
        return [run.worker for run in self.runs]

    def refuse_if_ended(self) -> None:
        """Raise RunEndedError if all runs have ended."""
        if self.has_ended:
            ends = ", ".join([str(result.stop_reason) for result in self.outcome])
            raise RunEndedError(f"All runs of the lockstep have ended ({ends}): fork one, or start others with agent.run(…).")

    def refuse_without_key(self) -> None:
        """Raise MissingKeyError before any of the runs begins."""
        for run in self.runs:
            run.stepper.refuse_without_key()

    def record_error(self, error: Exception) -> bool:
        """Errors are in the results of the runs. A RunEndedError only means that all have ended in the meantime."""
        return isinstance(error, RunEndedError)

    def settle(self) -> None:
        """Each run handles its stop itself."""

    def _on_event(self, event: events.Event) -> None:
        if type(event) in (events.RunResumed, events.RunEnded, events.ApprovalGiven):  # may end a wait; called from any thread
            self._check_end()
            self.affinity.wake_up()

    def _check_end(self) -> None:
        if self.has_ended:
            self.control.close()
            self.ended.set()


class Lockstep(Displayable, Generic[R]):
    """Runs that take their steps together: a round ends when each run has taken one step, so no run is ahead by more than one.

    Each run keeps its own limits. A run that has ended takes no part in later rounds. If a run raises an error, only that run ends, and
    the error is in its result.

    Example:
        >>> both = lab.Lockstep([brief.run("?"), endless.run("?", stop=lab.StepCountIs(3))])
        >>> steps = await both.step()
        >>> [result.stop_reason.value for result in await both]
        ['completed', 'stop_condition']
    """

    def __init__(self, runs: Iterable[R]) -> None:
        self.runs: tuple[R, ...] = _checked(runs)
        self.rounds: Rounds[R] = Rounds(self.runs)
        self.worker: Worker[Round, tuple[RunResult, ...]] = Worker(self.rounds)
        self._lock = threading.RLock()

    # State ----------------------------------------------------------------------------------------------------------

    @property
    def results(self) -> tuple[RunResult | None, ...]:
        """The results in the order of the runs; None for a run that is still running.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), endless.run("?")])
            >>> step = await both.step()
            >>> both.results
            (RunResult(completed, terminated, 1 step, 'The model ended its turn.', text='Paris.'), None)
        """
        return tuple([run.result for run in self.runs])

    @property
    def round(self) -> int:
        """The number of rounds so far.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), endless.run("?")])
            >>> steps = await both.step()
            >>> both.round
            1
        """
        return self.rounds.number

    @property
    def ended(self) -> bool:
        """True if all runs have ended.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), brief.run("??")])
            >>> both.ended
            False
            >>> results = await both
            >>> both.ended
            True
        """
        return self.rounds.has_ended

    @property
    def state(self) -> RunState:
        """State of the runs: RUNNING from the first round to the last, PAUSED between two rounds on request, ENDED with the last run.

        Example:
            >>> lab.Lockstep([brief.run("?"), brief.run("?")]).state
            <RunState.READY: 'ready'>
        """
        return self.worker.state

    @property
    def pausing(self) -> bool:
        """True if a pause was requested; it takes effect after the round under way.

        Example:
            >>> lab.Lockstep([endless.run("?"), endless.run("?")]).pausing
            False
        """
        return self.rounds.control.pausing

    def to_frame(self, what: str = "steps") -> pd.DataFrame:
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
        from agentlab.records.frames import to_frame

        return to_frame(self.runs, what)

    def __len__(self) -> int:
        return len(self.runs)

    if not TYPE_CHECKING:  # otherwise type checkers would accept it

        def __getitem__(self, place):  # also called by `for steps in lockstep`
            raise TypeError(
                "A lockstep is not a list: write `async for steps in lockstep`, or lockstep.start() to take all rounds in the "
                "background. lockstep.runs has the runs."
            )

    def __repr__(self) -> str:
        names = ", ".join(one_line(run.agent.name) for run in self.runs)
        return f"Lockstep([{names}], {self.state}, {self.round} rounds)"

    # Steps and control ---------------------------------------------------------------------------------------------------------------

    @needs_await("lockstep.step()")
    async def step(self) -> Round:
        """Take one step of every run that is still running, all at once, also during a pause. Raises RunEndedError after the end.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), endless.run("?")])
            >>> [step.index for step in await both.step()]
            [1, 1]
            >>> await both.step()  # the first has ended
            (None, StepResult(2, tool_calls, tools=['search'], tokens=15, cost_usd=0.01))
        """
        return await self.worker.step()

    async def __aiter__(self) -> AsyncIterator[Round]:
        """Yield the remaining rounds, each taken on request."""
        async for steps in self.worker.each():
            if any(step is not None for step in steps):
                yield steps

    def __await__(self) -> Generator[Any, None, tuple[RunResult, ...]]:
        """Run all to the end and return their results; errors are in the results."""
        return self.worker.to_the_end().__await__()

    def start(self) -> Lockstep[R]:
        """Run all to the end in the background and return at once; without a front end, block until the end.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), brief.run("?")]).start()
            >>> [result.text for result in both.results]
            ['Paris.', 'Paris.']
        """
        self.worker.start()
        return self

    def wait(self, timeout_s: float | timedelta | None = None) -> tuple[RunResult, ...] | None:
        """Block until all have ended and return their results; None after `timeout_s`.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), brief.run("?")]).start()
            >>> len(both.wait(timeout_s=5))
            2
        """
        return self.worker.wait(timeout_s)

    def pause(self) -> None:
        """Wait before the next round, until `resume()`; each run is paused with it. The time does not count against a timeout.

        Example:
            >>> both = lab.Lockstep([endless.run("?"), endless.run("?")])
            >>> both.pause()
            >>> both.pausing
            True
        """
        self.rounds.refuse_if_ended()
        with self._lock:
            self.rounds.control.pause()
            self.rounds.each(lambda run: run.stepper.pause())

    def resume(self) -> None:
        """End the pause, whether of all runs or of single ones.

        Example:
            >>> both = lab.Lockstep([brief.run("?"), brief.run("?")])
            >>> both.pause()
            >>> both.resume()
            >>> both.pausing
            False
        """
        self.rounds.refuse_if_ended()
        with self._lock:
            self.rounds.control.resume()
            self.rounds.each(lambda run: run.stepper.resume())

    def stop(self, reason: str = "no reason given") -> None:
        """End every run after the round under way, or at once if there is none. Runs that have ended stay as they are.

        Example:
            >>> both = lab.Lockstep([endless.run("?"), endless.run("?")])
            >>> both.stop("enough")
            >>> both.results[0].detail
            'Stopped by the person: enough'
        """
        self.rounds.each(lambda run: run.stepper.stop(reason))

    def cancel(self) -> None:
        """End every run at once, even during a step; responses and tool results so far are recorded.

        Example:
            >>> both = lab.Lockstep([endless.run("?"), endless.run("?")])
            >>> both.cancel()
            >>> [result.stop_reason.value for result in both.results]
            ['cancelled', 'cancelled']
        """
        self.rounds.cancel()


def _checked(runs: Iterable[R]) -> tuple[R, ...]:
    if _is_run(runs) or not isinstance(runs, Iterable):
        raise ConfigurationError(f"Lockstep({runs!r}): pass the runs in a list, such as Lockstep([run_a, run_b]).")
    listed = tuple(runs)
    if not listed:
        raise ConfigurationError("Lockstep([]): pass at least one run, as agent.run(…) makes them.")
    for place, run in enumerate(listed):
        if not _is_run(run):
            raise ConfigurationError(f"Lockstep: {run!r} is not a run: pass what agent.run(…) returned.")
        if any(run is other for other in listed[:place]):
            raise ConfigurationError(
                f"Lockstep: {run!r} is listed twice, but a run takes one step at a time. Fork it, or remove one."
            )
    return listed


def _is_run(value: object) -> bool:
    return isinstance(getattr(value, "stepper", None), Stepper)
