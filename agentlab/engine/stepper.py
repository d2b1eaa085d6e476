"""The life of a run: the state that changes, one step after the other, and how it ends. What a person does with it is in run.py.

All that changes a run's state is in this file, in step.py, and above them in branching.py and run.py. How it is driven, here or in
the background, is in in_background.py. Work on a run happens on one event loop at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from agentlab import events
from agentlab.conversation import Conversation
from agentlab.engine import call_context
from agentlab.engine.ask import Hold, StepBuilder, StopRequest
from agentlab.engine.client import check_key
from agentlab.engine.step import Ending, take_step
from agentlab.engine.timeline import Clock
from agentlab.engine.worker import InBackground, RunState, turn_to_begin
from agentlab.errors import AgentlabWarning, RunEndedError
from agentlab.history import RunHistory
from agentlab.never_met import never_met
from agentlab.redaction import in_words, text_of, without_keys
from agentlab.results import RunResult, StepResult
from agentlab.settings import LiveSettings, RunSettings
from agentlab.types import StopReason, ToolCall

if TYPE_CHECKING:
    from agentlab.agent import Agent
    from agentlab.transport import Transport


class Stepper(InBackground[RunResult]):
    """The state of a run and the loop that drives it: the part of Run that the steps work with."""

    _WOULD_BLOCK = "would block the very loop that the run is on: `await run` instead."
    _NOT_STARTED = "The run has not been started, so there is no end to wait for: call run.start() first."

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
        parent: Self | None = None,
    ) -> None:
        super().__init__()
        self.id: str = os.urandom(6).hex()
        self.replay_key: str = self.id
        self.parent: Self | None = parent
        self.parent_run_id: str | None = None if parent is None else parent.id
        self.agent = agent
        self.prompt = prompt
        self.conversation = conversation
        self.limits = limits
        self.transport = transport
        self.history: RunHistory = RunHistory() if history is None else history
        self.forked_at: int | None = None if parent is None else len(self.history)
        self.events: list[events.Event] = []
        self.observers: tuple[events.RunObserver, ...] = tuple(observers)
        self._inherited = self.observers
        self.clock: Clock = Clock(self.history.elapsed_s)
        self.in_force: RunSettings = limits.snapshot()
        self.result: RunResult | None = None
        self.ending: Ending | None = None
        self.stop_request: StopRequest | None = None
        self.told_unknown: tuple[RunSettings, bool] | None = None
        self.caller: Self | None = None
        self.parent_step: int | None = None
        self.called_by: str | None = None
        self.ceiling: Callable[[RunSettings], RunSettings] | None = None
        site = call_context.here()
        self.outermost: Stepper = self if site is None else site.run.outermost
        self.depth: int = 0 if site is None else site.run.depth + 1
        self.begins_with: int = len(self.history)
        self.draft: StepBuilder | None = None
        self.beside, self.beside_lock = call_context.Used(), threading.Lock()
        self._marks: list[int] = []
        self._first_length = len(conversation)
        self.prompt_at: int = len(conversation) - 1
        self._descendants: tuple[Self, ...] = ()
        self._children: tuple[Self, ...] = ()
        self._fork_listeners: tuple[Callable[[Self], object], ...] = ()
        self._paused_at, self._paused_s = 0.0, 0.0
        self._started = False
        self._cancelled = False
        self._interrupts = 0
        self.waits_for_tool = False
        self.holds: tuple[Hold, ...] = ()
        self.again: Callable[[ToolCall], object] | None = None
        self._end_is_told = False
        self._telling = threading.Lock()
        self._warned: set[str] = set()
        self._faulty: set[int] = set()
        self._task: asyncio.Task[Any] | None = None
        limits.subscribe(self._limits_changed)
        call_context.made(self)

    @property
    def state(self) -> RunState:
        """Where the run is.

        Example:
            >>> run.state, ended.state
            (<RunState.READY: 'ready'>, <RunState.ENDED: 'ended'>)
        """
        return self._state()

    @property
    def pausing(self) -> bool:
        """Whether a pause was asked for and takes hold after the step under way.

        Example:
            >>> run.pause()
            >>> run.pausing
            True
        """
        return self._paused and self.result is None

    @property
    def paused_s(self) -> float:
        """Seconds that the run was paused by a person; they do not count against the timeout.

        Example:
            >>> run.paused_s
            0.0
        """
        return self._paused_s + (time.monotonic() - self._paused_at if self.pausing else 0.0)

    # What the step does to the run ------------------------------------------------------------------------------------------

    def refresh_settings(self) -> RunSettings:
        """Read the limits as they are now; from here on they are in force."""
        self.in_force = self.settings_now()
        return self.in_force

    def settings_now(self) -> RunSettings:
        """The limits as they are now; of a run below another within what its caller has left, and the outermost run's turns."""
        settings = self.limits.snapshot()
        if self.ceiling is not None:
            settings = self.ceiling(settings)
        return settings if self.outermost is self else call_context.turns_within(settings, self)

    def mark_step(self, ending: Ending | None) -> None:
        """The newest step is whole, and the run ends with it where there is an `ending`. How long the conversation is by now is
        remembered for forks."""
        self._marks.append(len(self.conversation))
        self.ending = ending

    @property
    def whole_steps(self) -> int:
        """Steps of the history that nothing will be added to; the newest may still be in the making."""
        return len(self._marks)

    def emit(self, event: events.Event) -> None:
        """Keep the event and tell the observers; one that raises is reported once and never ends the run. Nothing comes behind the
        end: a pause, say, that another thread asks for just then is not told of."""
        with self._telling:
            if self._end_is_told:
                return
            self._end_is_told = type(event) is events.RunEnded
            if type(event) is not events.TextReceived:
                self.events.append(event)
        for observer in self.observers:
            try:
                observer(event)
            except Exception as error:
                if id(observer) not in self._faulty:
                    self._faulty.add(id(observer))
                    told = f"The observer {text_of(observer, repr)} raised {in_words(error)}. The run goes on."
                    warnings.warn(told, AgentlabWarning, stacklevel=2)

    def observe(self, observer: events.RunObserver) -> Callable[[], None]:
        """Tell `observer` of every event of this run from now on, and of none of its forks; returns what ends that.

        Example:
            >>> seen = []
            >>> end = run.observe(lambda event: seen.append(type(event).__name__))
            >>> step = await run.step()
            >>> end()
            >>> seen[:3], seen[-1]
            (['RunStarted', 'TurnStarted', 'TextReceived'], 'TurnCompleted')
        """
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
            self.result = self.result_for(ending)
        self.emit(events.RunEnded(self.clock.elapsed_s(), self.result))
        self._over.set()
        self._poke()
        if told := getattr(self.transport, "run_ended", None):  # a replay remembers how far each run has come
            told(self.replay_key)
        return True

    def result_for(self, ending: Ending) -> RunResult:
        """The run's result if it ends like this."""
        return RunResult(
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
            forked_at=self.forked_at,
            parent_step=self.parent_step,
            called_by=self.called_by,
        )

    def was_ended(self, ending: Ending, at_s: float) -> None:
        """A run that was kept had ended already: nobody is told of it once more."""
        last = self.history.last
        if last is not None and last.stop_reason is None:
            self.history.amend(replace(last, stop_reason=ending.stop_reason))
        self.result = self.result_for(ending)
        self.clock = Clock(at_s)
        self.events.append(events.RunEnded(at_s, self.result))
        self._over.set()

    # The loop ---------------------------------------------------------------------------------------------------------------

    async def _one_step(self) -> StepResult | None:
        async with self._owner.turn:
            if not self._started:
                await turn_to_begin()
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
                if not self._interrupts or self._taken_back(task) > cancels_before:  # from outside: whoever awaits has to know
                    raise
                step = self.history.last
            else:
                self._taken_back(task)  # a tool or a middleware kept the cancel to itself
            finally:
                self.clock.stop()
                self._task = None
            if self._is_called_off():  # too late for the step to see it
                self._end_between_steps()
            return None if step is None else self.history.last

    async def step_quietly(self) -> StepResult | None:
        """One step for whoever takes several runs along: None where there was none; what is wrong stands in this run's result."""
        before = len(self.history)
        try:
            await self._owner.run(self._one_step)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # else a tool cancelled itself, and that is this run's affair
                raise
        except Exception as error:
            self._keep_error(error)
        return self.history.last if len(self.history) > before else None

    @contextlib.contextmanager
    def kept_running(self) -> Iterator[None]:
        """Have the run on this loop, and RUNNING, also where its own step is done already."""
        claimed = self._claim(asyncio.get_running_loop()) if self.result is None else None
        try:
            yield
        finally:
            if claimed is not None:
                self._owner.release(claimed)
            self._work_is_done()

    def _has_ended(self) -> bool:
        return self.result is not None

    def _outcome(self) -> RunResult:
        assert self.result is not None  # noqa: S101  for the type checker: it is asked for after the end
        return self.result

    def _is_at_work(self) -> bool:
        return self._task is not None

    def _keep_error(self, error: Exception) -> bool:
        self.end(Ending(StopReason.ERROR, in_words(error), error=error))
        return True

    def _work_is_done(self) -> None:
        """Where a stop came after the last look at it, and nothing is under way that would look again."""
        if self._is_called_off():
            self._end_between_steps(if_idle=True)

    def _is_held(self) -> bool:
        return self._paused and self.result is None and not self._is_called_off()

    def _is_called_off(self) -> bool:
        return self.stop_request is not None or self._cancelled

    def _call_off(self) -> None:
        """Cancel, from any thread: in mid-step if need be."""
        if self.result is not None:
            return
        self._cancelled = True
        if not self._end_between_steps(if_idle=True):
            self._owner.call(self._interrupt)

    def _interrupt(self) -> None:
        """On the owning loop: break into the step under way, if there still is one; once more only where it waits for a tool."""
        if self._task is not None and (not self._interrupts or self.waits_for_tool):
            self._interrupts += 1
            self._task.cancel()
        self._owner.wake.set()

    def _taken_back(self, task: asyncio.Task[Any]) -> int:
        """The cancels of the task that are left without those that were of this run alone."""
        for _ in range(self._interrupts):
            task.uncancel()
        return task.cancelling()

    def _begin(self) -> None:
        if self._started:
            return
        self._started = True
        settings = self.refresh_settings()
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
            told = f"Stopped by the {request.who}: {without_keys(request.reason)}"
            ending = Ending(StopReason.EXPLICIT_STOP, told, output=request.output, stopped_by=request.who)
        return self.end(ending, if_idle=if_idle)

    def _limits_changed(self, before: RunSettings, after: RunSettings, by: str) -> None:
        if self.result is None:
            self.emit(events.LimitsChanged(self.clock.elapsed_s(), before, after, by))
            if by == "code":  # who edits in the panel sees it there
                known = never_met(before, self.agent, self.history)
                for remark in never_met(after, self.agent, self.history):
                    if remark not in known:
                        self.warn_once(remark)

    def refuse_without_key(self) -> None:
        """Raise MissingKeyError before the first step. Of a sub-agent's run its caller hears in the result."""
        if self.result is None and not self._started and self.caller is None:
            check_key(self.agent, self.transport)

    def _refuse_if_ended(self) -> None:
        if self.result is not None:
            steps, last = len(self.history), self.history.last
            other = "message" if self.result.stop_reason is StopReason.COMPLETED else "budget"
            how = f"Go on from it with run.fork(at={steps}, {other}=…)"
            if self.result.stop_reason is StopReason.ERROR and last is not None and last.error is not None:
                how = f"Put right what failed, and take the step again with run.fork(at={steps - 1})"
            raise RunEndedError(
                f"The run has ended ({self.result.stop_reason}: {self.result.detail}) {how}, or start another with agent.run(…)."
            )
