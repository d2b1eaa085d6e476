"""A run: the state of one agent at work on one prompt, and all that a person can do with it.

    step = await run.step()          one step
    async for step in run: …         the rest, step by step
    result = await run               to the end
    run.start()                      in the background; the cell returns at once
    run.pause()  run.resume()  run.stop("enough")  run.cancel()
    run.limits.max_cost = 0.10       at any time
    branch = run.fork(at=3)          another future from step 3 on

`await`ing in a notebook cell keeps the kernel's main thread busy with the run: right for scripts and tests, with no promise that
the panel's controls arrive meanwhile. `start()` is for live control.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agentlab import background, events, frontend, sugar
from agentlab.ask import ExplicitStop
from agentlab.clock import Clock
from agentlab.conversation import Conversation
from agentlab.errors import AgentlabWarning, ConfigurationError, RunEndedError
from agentlab.history import RunHistory
from agentlab.owner import LoopOwner, running_loop
from agentlab.results import RunResult, StepResult
from agentlab.settings import Budget, LiveSettings, RunSettings
from agentlab.step import Ending, take_step
from agentlab.stop import as_condition
from agentlab.types import Message, StopReason

if TYPE_CHECKING:
    from agentlab.agent import Agent
    from agentlab.transport import Transport


T = TypeVar("T")

LONGEST_FAREWELL_S = 5.0
"""How long an interrupted `start()` waits for the step under way to be recorded."""


class RunState(StrEnum):
    """Where a run is: READY before the first step and between manual ones, PAUSED between steps at a person's wish."""

    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class Run:
    """One agent at work on one prompt; made by `agent.run(prompt)`.

    `limits` are live and can be edited at any time, from any thread; `history` holds the steps, `events` what happened, `result` the
    RunResult once the run has ended (None before). A run lives on one event loop at a time; calls from others are handed over.
    """

    def __init__(
        self,
        agent: Agent,
        prompt: str,
        conversation: Conversation,
        limits: LiveSettings,
        transport: Transport,
        *,
        observers: Sequence[events.RunObserver] = (),
        history: RunHistory | None = None,
        parent_run_id: str | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.parent_run_id = parent_run_id
        self.agent = agent
        self.prompt = prompt
        self.conversation = conversation
        self.limits = limits
        self.transport = transport
        self.history = RunHistory() if history is None else history
        self.events: list[events.Event] = []
        self.observers: tuple[events.RunObserver, ...] = tuple(observers)
        self.clock = Clock(self.history.elapsed_s)
        self.in_force: RunSettings = limits.snapshot()
        self.result: RunResult | None = None
        self.stop_request: ExplicitStop | None = None
        self._marks: list[int] = []
        self._first_length = len(conversation)
        self._paused_at = 0.0
        self._paused_s = 0.0
        self._started = False
        self._paused = False
        self._cancelled = False
        self._interrupted = False
        self._home: asyncio.AbstractEventLoop | None = None
        self._warned: set[str] = set()
        self._faulty: set[int] = set()
        self._owner = LoopOwner()
        self._task: asyncio.Task[Any] | None = None
        self._ended = threading.Event()
        limits.subscribe(self._limits_changed)

    # What a person sees ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        """Where the run is."""
        if self.result is not None:
            return RunState.ENDED
        if self._task is not None:
            return RunState.RUNNING
        if self._paused:
            return RunState.PAUSED
        return RunState.RUNNING if self._owner.is_busy else RunState.READY

    @property
    def pausing(self) -> bool:
        """Whether a pause was asked for and takes hold after the step under way."""
        return self._paused and self.result is None

    @property
    def paused_s(self) -> float:
        """Seconds that the run was paused by a person; they do not count against the timeout."""
        return self._paused_s + (time.monotonic() - self._paused_at if self.pausing else 0.0)

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far."""
        return self.conversation.view()

    def to_frame(self, what: str = "steps") -> Any:
        """A DataFrame of the run so far: `steps`, `calls`, `tools`, `events` or `readings`."""
        return sugar.call("agentlab.recorder:to_frame", self, what)

    def panel(self) -> Any:
        """The live control of this run in a notebook; a static table and picture where nobody can click."""
        return sugar.call("agentlab.widgets:panel", self)

    def __repr__(self) -> str:
        end = f", {self.result.stop_reason}" if self.result is not None else ""
        return f"Run({self.agent.name}, {self.state}{end}, {len(self.history)} steps, {self.limits.snapshot().budget!r})"

    # Going on ---------------------------------------------------------------------------------------------------------------

    async def step(self) -> StepResult | None:
        """Take one step, also while the run is paused. None where the run ended without another one.

        Raises RunEndedError after the end; a ConfigurationError or FixtureError that the step met, after recording it.
        """
        self._refuse_if_ended()
        return await self._owned(self._one_step)

    def __await__(self) -> Generator[Any, None, RunResult]:
        """To the end; the result always comes back, whatever ended the run."""
        return self._to_the_end().__await__()

    async def __aiter__(self) -> AsyncIterator[StepResult]:
        """The steps from here on, one by one, taken as they are asked for."""
        while self.result is None:
            await self._owned(self._while_paused)
            step = await self._owned(self._one_step)
            if step is not None:
                yield step

    def start(self, loop: Literal["background", "kernel"] = "background") -> Run:
        """Run to the end in the background and return at once, so that the panel is live.

        Where nobody can click (no front end) the run is finished first, so that notebooks are deterministic. `loop="kernel"` runs on
        the loop this is called on, for clients that are bound to it.
        """
        self._refuse_if_ended()
        if loop not in ("background", "kernel"):
            raise ConfigurationError(f"start(loop={loop!r}): choose 'background' or 'kernel'.")
        if loop == "kernel":
            self._home = running_loop()
            if self._home is None:
                raise ConfigurationError(
                    "start(loop='kernel') needs a running event loop: call it in a notebook, or in async code."
                )
            self._kernel_task = self._home.create_task(self._quietly(self._to_the_end, self._claim(self._home)))
            return self
        if frontend.is_present():
            self.launch()
            return self
        self._home = background.loop()
        self._refuse_to_block("start()")
        future = background.submit(self._to_the_end())
        try:
            future.result()
        except BaseException:  # an interrupt, or what the run raised
            self.cancel()
            self._ended.wait(LONGEST_FAREWELL_S)
            raise
        return self

    def launch(self) -> None:
        """Run to the end in the background, whoever is there to see it: what the panel's Run button does."""
        self._in_background(self._to_the_end)

    def launch_step(self) -> None:
        """Take one step in the background: what the panel's Step button does."""
        self._in_background(self.step)

    def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """Block until a run started in the background has ended; its result, or None where that took longer than `timeout_s`."""
        if self.result is None:
            if self._home is None and not self._owner.is_busy and timeout_s is None:
                raise ConfigurationError("The run has not been started, so there is no end to wait for: call run.start() first.")
            self._refuse_to_block("wait()")
        self._ended.wait(timeout_s)
        return self.result

    def pause(self) -> None:
        """Wait before the next step, until `resume()`. The time does not count against the timeout."""
        self._refuse_if_ended()
        if not self._paused:
            self._paused, self._paused_at = True, time.monotonic()
            self.emit(events.RunPaused(self.clock.elapsed_s()))

    def resume(self) -> None:
        """Go on after a pause."""
        self._refuse_if_ended()
        if self._paused:
            paused_s = time.monotonic() - self._paused_at
            self._paused, self._paused_s = False, self._paused_s + paused_s
            self.emit(events.RunResumed(self.clock.elapsed_s(), paused_s))
            self._poke()

    def stop(self, reason: str = "the person asked for it") -> None:
        """End the run after the step under way, or at once where none is. Nothing happens to a run that has ended."""
        if self.result is not None:
            return
        self.stop_request = ExplicitStop(reason, None, "person")
        if not self._end_between_steps(if_idle=True):
            self._poke()

    def cancel(self) -> None:
        """End the run at once, in mid-step if need be; what came back so far is recorded."""
        if self.result is not None:
            return
        self._cancelled = True
        if not self._end_between_steps(if_idle=True):
            self._owner.call(self._interrupt)

    def fork(self, at: int, *, budget: Budget | None = None, stop: object = None, agent: Agent | None = None) -> Run:
        """A new run that shares the first `at` steps (0 to all) and has another future: other limits, or another agent."""
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= len(self._marks):
            raise ConfigurationError(f"fork(at={at!r}): give the number of steps to keep, 0 to {len(self._marks)}.")
        settings = self.limits.snapshot()
        history = self.history.prefix(at)
        if history.last is not None:  # the reason why this run ended is none of the branch's
            history.amend(replace(history.last, stop_reason=None))
        kept = self._marks[at - 1] if at else self._first_length
        branch = Run(
            agent or self.agent,
            self.prompt,
            Conversation(self.conversation[:kept]),
            LiveSettings(RunSettings(budget or settings.budget, settings.stop if stop is None else as_condition(stop))),
            self.transport,
            observers=self.observers,
            history=history,
            parent_run_id=self.id,
        )
        branch._marks = self._marks[:at]
        branch._first_length = self._first_length
        return branch

    # What the step does to the run ------------------------------------------------------------------------------------------

    def take_up_settings(self) -> RunSettings:
        """Read the limits as they are now; from here on they are in force."""
        self.in_force = self.limits.snapshot()
        return self.in_force

    def mark_step(self) -> None:
        """Remember how long the conversation is after this step, for forks."""
        self._marks.append(len(self.conversation))

    def emit(self, event: events.Event) -> None:
        """Keep the event and tell the observers; one that raises is reported once and never ends the run."""
        if type(event) is not events.TextReceived:
            self.events.append(event)
        for observer in self.observers:
            try:
                observer(event)
            except Exception as error:
                if id(observer) not in self._faulty:
                    self._faulty.add(id(observer))
                    told = f"The observer {observer!r} raised {type(error).__name__}: {error}. The run goes on."
                    warnings.warn(told, AgentlabWarning, stacklevel=2)

    def observe(self, observer: events.RunObserver) -> Callable[[], None]:
        """Tell `observer` of every event from now on; returns what ends that."""
        self.observers = (*self.observers, observer)

        def end() -> None:
            self.observers = tuple(one for one in self.observers if one is not observer)

        return end

    def warn_once(self, message: str) -> None:
        """Warn of this once in the run's life."""
        if message not in self._warned:
            self._warned.add(message)
            self.emit(events.Warned(self.clock.elapsed_s(), message))
            warnings.warn(message, AgentlabWarning, stacklevel=2)

    def end(self, ending: Ending, *, if_idle: bool = False) -> bool:
        """End the run for this reason, with `if_idle` only where no work is under way; whether that was done. The first reason
        counts, and stands on the last step."""
        with self._owner.lock:
            if self.result is not None or (if_idle and self._owner.is_busy):
                return False
            last = self.history.last
            if last is not None and last.stop_reason is None:
                self.history.amend(replace(last, stop_reason=ending.stop_reason))
            self.result = RunResult(
                run_id=self.id,
                provider=self.agent.model.name,
                model=self.agent.model.model,
                prompt=self.prompt,
                history=self.history,
                messages=self.conversation.view(),
                events=self.events,
                stop_reason=ending.stop_reason,
                detail=ending.detail,
                conditions_met=ending.conditions_met,
                output=ending.output,
                error=ending.error,
                stopped_by=ending.stopped_by,
                parent_run_id=self.parent_run_id,
            )
        self.emit(events.RunEnded(self.clock.elapsed_s(), self.result))
        self._ended.set()
        self._poke()
        return True

    # The loop ---------------------------------------------------------------------------------------------------------------

    async def _one_step(self) -> StepResult | None:
        async with self._owner.turn:
            if self.state is RunState.ENDED:
                return None
            if self._is_called_off():
                self._end_between_steps()
                return None
            self._begin()
            self._task = task = asyncio.current_task()
            assert task is not None  # noqa: S101  for the type checker: a coroutine runs in a task
            cancels_before = task.cancelling()
            self.clock.start()
            step: StepResult | None = None
            try:
                step = await take_step(self)
            except asyncio.CancelledError:
                if not self._interrupted or task.uncancel() > cancels_before:  # from outside: whoever awaits has to know
                    raise
                step = self.history.last
            else:
                if self._interrupted:  # a tool or a middleware kept the cancel to itself
                    task.uncancel()
            finally:
                self.clock.stop()
                self._task = None
            if self._is_called_off():  # too late for the step to see it
                self._end_between_steps()
            return None if step is None else self.history.last

    async def _to_the_end(self) -> RunResult:
        return await self._owned(self._drive) if self.result is None else self.result

    async def _drive(self) -> RunResult:
        async with self._owner.driver:  # a second one waits for the end, and may be cancelled without ending the run
            while self.result is None:
                await self._while_paused()
                await self._one_step()
        return self.result

    def _in_background(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._refuse_if_ended()
        self._home = background.loop()
        background.submit(self._quietly(work, self._claim(self._home)))

    def _claim(self, loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop | None:
        """Have the run on this loop from now on, whoever asks for a step first; None where another is at work."""
        return loop if self._owner.claim(loop) else None

    async def _quietly(self, work: Callable[[], Coroutine[Any, Any, object]], claimed: asyncio.AbstractEventLoop | None) -> None:
        """Do this where nobody awaits: what is wrong stands in the result."""
        try:
            await work()
        except Exception as error:
            self.end(Ending(StopReason.ERROR, f"{type(error).__name__}: {error}", error=error))
        finally:
            if claimed is not None:
                self._owner.release(claimed)
            self._end_if_called_off()

    async def _owned(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do this on the owning loop."""
        try:
            return await self._owner.run(work)
        finally:
            self._end_if_called_off()

    def _end_if_called_off(self) -> None:
        """Where a stop came after the last look at it, and nothing is under way that would look again."""
        if self._is_called_off():
            self._end_between_steps(if_idle=True)

    async def _while_paused(self) -> None:
        while self._is_held():
            self._owner.wake.clear()
            if self._is_held():  # another thread may have changed that before there was anything to wake
                await self._owner.wake.wait()

    def _is_held(self) -> bool:
        return self._paused and self.result is None and not self._is_called_off()

    def _is_called_off(self) -> bool:
        return self.stop_request is not None or self._cancelled

    def _poke(self) -> None:
        """Wake the run from a pause, from any thread."""
        self._owner.call(self._owner.wake.set)

    def _interrupt(self) -> None:
        """On the owning loop: break into the step under way, if there still is one."""
        if self._task is not None and not self._interrupted:
            self._interrupted = True
            self._task.cancel()
        self._owner.wake.set()

    def _refuse_to_block(self, what: str) -> None:
        here = running_loop()
        if here is not None and (here is self._home or self._owner.is_here):
            raise ConfigurationError(f"{what} would block the very loop that the run is on: `await run` instead.")

    def _begin(self) -> None:
        if self._started:
            return
        self._started = True
        settings = self.take_up_settings()
        self.emit(events.RunStarted(self.clock.elapsed_s(), self.id, self.agent.model.name, self.agent.model.model, settings))
        if settings.budget.is_unlimited:
            self.warn_once(
                "This run has no limit at all: it may go on, and cost, for ever. Set one, such as Budget(max_turns=20)."
            )

    def _end_between_steps(self, *, if_idle: bool = False) -> bool:
        request = self.stop_request
        if self._cancelled or request is None:
            ending = Ending(StopReason.CANCELLED, f"Cancelled after step {len(self.history)}.")
        else:
            told = f"Stopped by the {request.who}: {request.reason}"
            ending = Ending(StopReason.EXPLICIT_STOP, told, output=request.output, stopped_by=request.who)
        return self.end(ending, if_idle=if_idle)

    def _limits_changed(self, before: RunSettings, after: RunSettings, by: str) -> None:
        if self.result is None:
            self.emit(events.LimitsChanged(self.clock.elapsed_s(), before, after, by))

    def _refuse_if_ended(self) -> None:
        if self.result is not None:
            raise RunEndedError(
                f"The run has ended ({self.result.stop_reason}: {self.result.detail}) "
                f"Go on from it with run.fork(at={len(self.history)}, budget=…), or start another with agent.run(…)."
            )
