"""Every moment at which a task yields: an action happens at the n-th of them, for each n until none is left.

Tasks are made of counting coroutines (by a task factory), so that the tested code needs no hook, and tasks that it starts
are counted too. The action happens while the task is at exactly that `await`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import agentlab as lab

ALLOWED_S = 3.0
"""The time limit of a run that is about to run out: longer than any of these runs takes, and shorter than every other wait that
has its own limit (a tool's is 5 s), so that advancing the clock by it ends nothing else."""

Act = Callable[["Moments"], object]


class ManualClock:
    """The real time plus the time by which a test has advanced it."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        """The replacement of `time.monotonic` for users of this clock."""
        return time.monotonic() + self.ahead_s

    @contextlib.contextmanager
    def for_runs(self) -> Iterator[None]:
        """Make runs measure their active time by this clock."""
        with pytest.MonkeyPatch.context() as patch:
            for module in ("engine.timeline", "limits.evaluation"):
                patch.setattr(f"agentlab.{module}.time", self)
            yield


@dataclass
class Moments:
    """Counts from 1; at number `at` it runs `act` once. `waited_for` is what the task waits for there: a future, or None. With a
    `clock` the loop's timers use it."""

    at: int
    act: Act
    count: int = 0
    waited_for: Any = None
    on: bool = True
    task: asyncio.Task[Any] | None = None
    loop: asyncio.AbstractEventLoop | None = None
    problems: list[str] = field(default_factory=list)
    clock: ManualClock | None = None

    @property
    def done(self) -> bool:
        """True if the moment has come."""
        return self.count >= self.at

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count the yields of the loop's tasks from now on, and keep errors that the loop reports as unhandled."""
        self.loop = loop
        if self.clock is not None:
            loop.time = self.clock.monotonic  # type: ignore[method-assign]
        loop.set_task_factory(self._made)
        loop.set_exception_handler(
            lambda _, loop_context: self.problems.append(f"reported to the loop: {loop_context.get('message')}")
        )

    def leave(self) -> None:
        """Stop counting."""
        self.on = False
        if self.loop is not None:
            self.loop.set_task_factory(None)

    def _made(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(_Counted(coroutine, self), loop=loop, **more)
        if self.task is None:
            self.task = task  # the first task is the one that awaits the run
        return task

    def came(self, waited_for: Any) -> None:
        """A task yields."""
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


# Actions -----------------------------------------------------------------------------------------------------------------------


def cancel_the_task(moments: Moments) -> None:
    """Cancel the task that awaits the run, at exactly this await."""
    assert moments.task is not None
    moments.task.cancel()


def cancel_the_task_late(moments: Moments) -> None:
    """Cancel the task that awaits the run when its awaited result has arrived but has not been delivered yet."""
    task, loop, waited_for = moments.task, moments.loop, moments.waited_for
    assert task is not None and loop is not None
    if waited_for is None:
        loop.call_soon(task.cancel)
    else:
        waited_for.add_done_callback(lambda _: task.cancel())


@dataclass(frozen=True)
class Doing:
    """The run's activity when its time ran out. `held`: it waited, in a call or a tool, for a result that had not arrived."""

    paused: bool
    at_work: bool
    held: bool
    complete_steps: int


class TimeRunsOut:
    """Advance the clock by the whole time limit of `runs`: while the task is at the await or, `late`, when its awaited result
    has arrived. Records the activity of each run."""

    def __init__(self, *runs: lab.Run, late: bool = False) -> None:
        self.runs, self.late = runs, late
        self.before: dict[str, Doing] = {}
        for run in runs:
            run.limits.timeout = ALLOWED_S

    def __call__(self, moments: Moments) -> None:
        """Do it now or late."""
        clock, waited_for = moments.clock, moments.waited_for
        assert clock is not None
        if self.late and waited_for is not None:
            waited_for.add_done_callback(lambda _: self._turn(clock, held=False))
        else:
            has_arrived = moments.loop._selector.select(0)  # type: ignore[union-attr]  # what a server or a thread sent just now
            self._turn(clock, held=waited_for is not None and not has_arrived)

    def _turn(self, clock: ManualClock, *, held: bool) -> None:
        for run in self.runs:
            at_work, whole = run.timeline.clock._active > 0, run.timeline.complete_steps
            in_the_step = at_work and len(run.history) == whole
            self.before[run.id] = Doing(
                run.state is lab.RunState.PAUSED, at_work, held and in_the_step and len(self.runs) == 1, whole
            )
        clock.ahead_s += ALLOWED_S

    def check(self) -> None:
        """Time counts only while a run is active; if it did, the current step was cut at its await, no further step started,
        and the run ended for that reason or by an end that the step reached itself."""
        for run in self.runs:
            if run.id not in self.before:  # the awaited result never arrived, since the run ended first
                continue
            doing, result = self.before[run.id], run.result
            assert result is not None
            if doing.paused or not doing.at_work:
                assert result.stop_reason != "timeout", "time counted while the run was idle"
                continue
            assert result.stop_reason in {"timeout", "completed", "terminating_tool", "error"}
            assert len(run.history) <= doing.complete_steps + 1, "a step started after the time had run out"
            if doing.held:
                assert result.history[-1].decision.stop_reason == "timeout", "the step was not cut at its await"


def press_ctrl_c(_: Moments) -> None:
    """The effect of Ctrl-C in a terminal."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def from_a_thread(what: Callable[[], object]) -> Act:
    """Do it on a separate thread while the loop is at the await."""

    def act(_: Moments) -> None:
        thread = threading.Thread(target=what)
        thread.start()
        thread.join()

    return act
