"""The life cycle of a run: it begins, takes one step after another, and ends. Only this file and step.py change its state."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentlab._internal.redaction import in_words
from agentlab.engine import call_context
from agentlab.engine.client import check_key
from agentlab.engine.control import Control, StopRequest
from agentlab.engine.snapshot import Ending, Origin, RunSnapshot
from agentlab.engine.step import stopped, take_step
from agentlab.engine.timeline import Clock, Timeline
from agentlab.engine.unreachable import never_met
from agentlab.engine.worker import LoopAffinity, turn_to_begin
from agentlab.errors import RunEndedError
from agentlab.limits.live import LiveSettings
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.records import events
from agentlab.records.result import RunResult
from agentlab.records.step import StepResult

if TYPE_CHECKING:
    from agentlab.engine.plan import RunPlan
    from agentlab.engine.step_builder import StepBuilder


class Stepper:
    """Takes the steps of one run and holds their state. `Steps` is the interface that a worker uses.

    `run` is the user's run object, opaque here. `in_force` are the settings of the newest step; `parent_limit` lowers the settings of
    a child run. `outermost` is the first run of nested tool calls, `depth` the distance to it. `beside` is the usage of runs below the
    outermost one that no history counts. `holds` are tool calls that must not be repeated unless `again` allows it.
    """

    would_block = "would block the event loop that the run uses: `await run` instead."
    not_started = "The run has not been started, so waiting would never end: call run.start() first."

    def __init__(self, plan: RunPlan, timeline: Timeline, control: Control, run: Any) -> None:
        self.run = run
        self.timeline, self.control = timeline, control
        self.affinity, self.ended = LoopAffinity(), threading.Event()
        self.run_id: str = plan.run_id or os.urandom(6).hex()
        self.replay_key: str = self.run_id
        self.agent, self.transport, self.limits = plan.agent, plan.transport, LiveSettings(plan.settings)
        self.origin: Origin[Any] = plan.origin
        self.holds, self.again = plan.holds, plan.again
        self.in_force: RunSettings = plan.settings
        self.parent_limit: Callable[[RunSettings], RunSettings] | None = None
        self.builder: StepBuilder | None = None
        self.ending: Ending | None = None
        self.result: RunResult | None = None
        context = call_context.here()
        self.outermost: Stepper = self if context is None else context.stepper.outermost
        self.depth: int = 0 if context is None else context.stepper.depth + 1
        self.begins_with: int = len(timeline.history)
        self.beside, self.beside_lock = call_context.Used(), threading.Lock()
        self.warned_unknown: tuple[RunSettings, bool] | None = None
        self.waits_for_tool = False
        self.has_begun = False
        self._interrupts = 0
        self._task: asyncio.Task[Any] | None = None
        timeline.events.extend(plan.events)
        if plan.ending is not None:
            self._restore_end(plan.ending, plan.ended_at_s)
        self.limits.subscribe(self._limits_changed)

    # Settings ---------------------------------------------------------------------------------------------------------------

    def settings_now(self) -> RunSettings:
        """Return the current limits; those of a child run are lowered to what its caller and the outermost run have left."""
        settings = self.limits.snapshot()
        if self.parent_limit is not None:
            settings = self.parent_limit(settings)
        return settings if self.outermost is self else call_context.steps_within(settings, self)

    def refresh_settings(self) -> RunSettings:
        """Apply the current limits and return them."""
        self.in_force = self.settings_now()
        return self.in_force

    def _limits_changed(self, before: RunSettings, after: RunSettings, by: str) -> None:
        if self.result is None:
            timeline = self.timeline
            timeline.emit(events.LimitsChanged(timeline.clock.elapsed_s(), before, after, by))
            if by == "code":  # an edit in the panel is checked there
                known = never_met(before, self.agent, timeline.history)
                for remark in never_met(after, self.agent, timeline.history):
                    if remark not in known:
                        timeline.warn_once(remark)

    # One step ---------------------------------------------------------------------------------------------------------------

    async def step_once(self) -> StepResult | None:
        """Take one step, on the owning loop. Returns None if the run ended without another one."""
        async with self.affinity.turn:
            if not self.has_begun:
                await turn_to_begin()
            if self.result is not None:
                return None
            if self.control.is_called_off:
                self._end_between_steps()
                return None
            self._begin()
            return await self._interruptible_step()

    def _begin(self) -> None:
        if self.has_begun:
            return
        self._follow()
        self.has_begun = True
        timeline, settings, model = self.timeline, self.refresh_settings(), self.agent.model
        timeline.emit(events.RunStarted(timeline.clock.elapsed_s(), self.run_id, model.name, model.model, settings))
        if settings.budget.is_unlimited:
            timeline.warn_once(
                "This run has no limit: it may run, and cost money, forever. Set one, such as Budget(max_turns=20)."
            )

    def _follow(self) -> None:
        with self.affinity.lock:
            self.timeline.follow(self.run)

    async def _interruptible_step(self) -> StepResult | None:
        """Take a step that `cancel` may interrupt. A cancel of the run is handled here; a cancel of the task is raised."""
        self._task = task = asyncio.current_task()
        assert task is not None  # noqa: S101  for the type checker: a coroutine runs in a task
        cancels_before = task.cancelling()
        clock = self.timeline.clock
        clock.start()
        step: StepResult | None = None
        try:
            step = await take_step(self)
        except asyncio.CancelledError:
            if not self._interrupts or self._uncancel(task) > cancels_before:  # the task was cancelled from outside
                raise
            step = self.timeline.history.last
        else:
            self._uncancel(task)  # a tool or a middleware suppressed the cancel
        finally:
            clock.stop()
            self._task = None
        if self.control.is_called_off:  # too late for the step to see it
            self._end_between_steps()
        return None if step is None else self.timeline.history.last

    async def step_quietly(self) -> StepResult | None:
        """Take one step for a lockstep or an experiment. Returns None if there was none; errors go into the result."""
        history = self.timeline.history
        before = len(history)
        try:
            await self.affinity.run(self.step_once)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # otherwise a tool cancelled itself, which ends only this run
                raise
        except Exception as error:
            self.record_error(error)
        return history.last if len(history) > before else None

    # Control ----------------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Wait before the next step until `resume`."""
        self.refuse_if_ended()
        if self.control.pause():
            self.timeline.emit(events.RunPaused(self.timeline.clock.elapsed_s()))

    def resume(self) -> None:
        """End a pause."""
        self.refuse_if_ended()
        paused_s = self.control.resume()
        if paused_s is not None:
            self.timeline.emit(events.RunResumed(self.timeline.clock.elapsed_s(), paused_s))
            self.affinity.wake_up()

    def stop(self, reason: str) -> None:
        """End the run after the step under way, or at once if there is none."""
        if self.result is None:
            self.control.stop_request = StopRequest(reason, None, "person")
            if not self._end_between_steps(if_idle=True):
                self.affinity.wake_up()

    def cancel(self) -> None:
        """End the run at once, even during a step, from any thread."""
        if self.result is None:
            self.control.cancelled = True
            if not self._end_between_steps(if_idle=True):
                self.affinity.call(self._interrupt)

    def _interrupt(self) -> None:
        """Cancel the step under way, on the owning loop. A second cancel has an effect only while the step waits for a tool."""
        if self._task is not None and (not self._interrupts or self.waits_for_tool):
            self._interrupts += 1
            self._task.cancel()
        self.affinity.wake.set()

    def _uncancel(self, task: asyncio.Task[Any]) -> int:
        """Take back the cancels that this run requested; return how many are left."""
        for _ in range(self._interrupts):
            task.uncancel()
        return task.cancelling()

    # The end ----------------------------------------------------------------------------------------------------------------

    def end(self, ending: Ending, *, if_idle: bool = False) -> bool:
        """End the run and return True; with `if_idle`, only if no work is under way. If it has ended already, return False: the first
        reason counts. It is also the stop reason of the last step."""
        if not self.has_begun and self.result is None:
            self._follow()  # a store also keeps a run that ended before it began
        timeline = self.timeline
        with self.affinity.lock:
            if self.result is not None or (if_idle and self.affinity.is_busy):
                return False
            self._mark_last_step(ending)
            self.result = result = self.result_for(ending)
        self.control.close()
        timeline.emit(events.RunEnded(timeline.clock.elapsed_s(), result))
        self.ended.set()
        self.affinity.wake_up()
        if run_ended := getattr(self.transport, "run_ended", None):  # a replay remembers how far each run has come
            run_ended(self.replay_key)
        return True

    def _restore_end(self, ending: Ending, at_s: float) -> None:
        """Mark a restored run as ended without notifying observers."""
        self._mark_last_step(ending)
        self.result = self.result_for(ending)
        self.control.close()
        self.timeline.clock = Clock(at_s)
        self.timeline.events.append(events.RunEnded(at_s, self.result))
        self.ended.set()

    def _mark_last_step(self, ending: Ending) -> None:
        history = self.timeline.history
        if history.last is not None and history.last.stop_reason is None:
            history.amend(replace(history.last, stop_reason=ending.stop_reason))

    def _end_between_steps(self, *, if_idle: bool = False) -> bool:
        request = self.control.stop_request
        if self.control.cancelled or request is None:
            after = f"Cancelled after step {len(self.timeline.history)}."
            return self.end(Ending(StopReason.CANCELLED, after), if_idle=if_idle)
        return self.end(stopped(request), if_idle=if_idle)

    def result_for(self, ending: Ending) -> RunResult:
        """Return the result of the run for this ending."""
        timeline, origin, model = self.timeline, self.origin, self.agent.model
        return RunResult(
            run_id=self.run_id,
            provider=model.name,
            model=model.model,
            prompt=timeline.prompt,
            history=timeline.history,
            messages=timeline.conversation.view(),
            events=timeline.events,
            stop_reason=ending.stop_reason,
            detail=ending.detail,
            conditions_met=ending.conditions_met,
            output=ending.output,
            error=ending.error,
            stopped_by=ending.stopped_by,
            parent_run_id=origin.parent_run_id,
            forked_at=origin.forked_at,
            parent_step=origin.parent_step,
            called_by=origin.called_by,
        )

    def snapshot(self) -> RunSnapshot:
        """Return the current state of the run."""
        timeline, result = self.timeline, self.result
        if result is None and self.ending is not None:
            result = self.result_for(self.ending)
        return RunSnapshot(
            self.run_id,
            self.agent,
            timeline.prefix(),
            timeline.whole_steps,
            self.limits.snapshot(),
            timeline.events,
            result,
            timeline.clock.elapsed_s(),
            self.origin,
            self.holds,
        )

    # Steps, the interface for a worker --------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """True after the end."""
        return self.result is not None

    @property
    def outcome(self) -> RunResult:
        """The result; only after the end."""
        assert self.result is not None  # noqa: S101  for the type checker: it is read only after the end
        return self.result

    @property
    def is_stepping(self) -> bool:
        """True during a step."""
        return self._task is not None

    @property
    def is_held(self) -> bool:
        """True if a pause holds the next step."""
        return self.control.is_paused and self.result is None and not self.control.is_called_off

    def workers(self) -> tuple[()]:
        """Return an empty tuple: a run has no workers below its own."""
        return ()

    def settle(self) -> None:
        """End a run that was stopped too late for its last step to notice, unless other work on it is under way."""
        if self.result is None and self.control.is_called_off:
            self._end_between_steps(if_idle=True)

    def record_error(self, error: Exception) -> bool:
        """End the run with this error, which no awaiter would receive."""
        self.end(Ending(StopReason.ERROR, in_words(error), error=error))
        return True

    def refuse_without_key(self) -> None:
        """Raise MissingKeyError before the first step. A child run reports it in its result instead."""
        if self.result is None and not self.has_begun and self.origin.caller is None:
            check_key(self.agent, self.transport)

    def refuse_if_ended(self) -> None:
        """Raise RunEndedError after the end, with advice."""
        if self.result is not None:
            steps, last = len(self.timeline.history), self.timeline.history.last
            other = "message" if self.result.stop_reason is StopReason.COMPLETED else "budget"
            advice = f"Continue with run.fork(at={steps}, {other}=…)"
            if self.result.stop_reason is StopReason.ERROR and last is not None and last.error is not None:
                advice = f"Fix the cause, then repeat the step with run.fork(at={steps - 1})"
            raise RunEndedError(
                f"The run has ended ({self.result.stop_reason}: {self.result.detail}) {advice}, or start another with agent.run(…)."
            )
