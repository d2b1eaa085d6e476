"""The life cycle of a run: it begins, takes one step after another, and ends. Only this file and step.py change its state."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from agentlab._internal.asyncio_tools import cancel_and_wait
from agentlab._internal.redaction import in_words, redact
from agentlab.engine import call_context
from agentlab.engine.call_context import RunContext
from agentlab.engine.client import HttpModel, check_key
from agentlab.engine.control import Approval, Control, PendingCall, StopRequest, as_approval
from agentlab.engine.plan import Ending, RunPlan, SuspendedStep
from agentlab.engine.step import abandon, stopped, take_step
from agentlab.engine.step_builder import StepBuilder
from agentlab.engine.timeline import Clock, Timeline
from agentlab.engine.tool_calls import problem_with
from agentlab.engine.unreachable import never_met
from agentlab.engine.worker import LoopAffinity, wait_to_begin
from agentlab.errors import ConfigurationError, RunEndedError
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.model.pricing import read_price_list
from agentlab.records import events
from agentlab.records.history import RunHistory
from agentlab.records.result import RunResult
from agentlab.records.step import StepResult
from agentlab.transport.selection import Record

_clocks_lock = threading.Lock()


class Stepper:
    """Takes the steps of one run, on its `context`. `Steps` is the interface that a worker uses."""

    would_block = "would block the event loop that the run uses: `await run` instead."
    not_started = "The run has not been started, so waiting would never end: call run.start() first."

    def __init__(self, plan: RunPlan, timeline: Timeline, control: Control, run: Any) -> None:
        self.context = RunContext(plan, timeline, control, run)
        self.timeline, self.control = timeline, control
        self.affinity, self.ended = LoopAffinity(), threading.Event()
        self.has_begun = False
        self._is_timed = False
        self._held_up: list[Clock] = []
        self._interrupts = 0
        self._task: asyncio.Task[Any] | None = None
        timeline.events.extend(plan.events)
        if plan.suspended is not None:
            self._restore_step(plan.suspended)
        if plan.ending is not None:
            self._restore_end(plan.ending, plan.ended_at_s)
        self.context.limits.subscribe(self._limits_changed)

    def _limits_changed(self, before: RunSettings, after: RunSettings, by: str) -> None:
        if not self.has_ended:
            timeline, agent = self.timeline, self.context.agent
            timeline.emit(events.LimitsChanged(timeline.clock.elapsed_s(), before, after, by))
            self._wake_waiting()
            if by == "code":  # an edit in the panel is checked there; a lower budget is no mistake
                known = never_met(replace(before, budget=after.budget), agent, timeline.history)
                for remark in never_met(after, agent, timeline.history):
                    if remark not in known:
                        timeline.warn_once(remark)

    # One step ---------------------------------------------------------------------------------------------------------------

    async def step_once(self) -> StepResult | None:
        """Take one step, on the owning loop. Returns None if the run ended without another one, or waits and nobody is there."""
        async with self.affinity.turn:
            if not self.has_begun:
                await wait_to_begin()
            if self.has_ended:
                return None
            if self.control.must_end:
                self._end_between_steps()
                return None
            self._begin()
            step = None if self.control.waits else await self._interruptible_step()
            while self.is_waiting and await self._decided():
                step = await self._interruptible_step()
            return step

    def _begin(self) -> None:
        if self.has_begun:
            return
        self._follow()
        self.has_begun = True
        timeline, settings, model = self.timeline, self.context.refresh_settings(), self.context.agent.model
        if getattr(model, "address", ""):  # its calls have prices
            read_price_list()  # before the first step, whose time it is not
        run_continues = getattr(self.context.transport, "run_continues", None)
        calls = [call for step in timeline.history for call in step.calls]
        calls += [] if self.context.builder is None else self.context.builder.calls
        if run_continues is not None and calls:
            run_continues(self.context.replay_key, (1 + call.retries for call in calls))
        timeline.emit(events.RunStarted(timeline.clock.elapsed_s(), model.name, model.model, settings))
        if settings.budget.is_unlimited:
            timeline.warn_once(
                "This run has no limit: it may run, and cost money, forever. Set one, such as Budget(max_turns=20)."
            )

        if self.context.approver is not None and not settings.approve:
            tools = self.context.agent.tools.values()
            if not any(getattr(tool.function, "ends_when_cancelled", False) for tool in tools):  # no sub-agent, which may ask
                timeline.warn_once(
                    "The approver has nothing to decide: pass approve=[…] with names of tools, or approve=True for every tool."
                )

        self._set_clock()  # of a branch that begins with a step that waits

    def _follow(self) -> None:
        with self.affinity.lock:
            self.timeline.follow(self.context.run)

    async def _interruptible_step(self) -> StepResult | None:
        """Take a step that `cancel` may interrupt. A cancel of the run is handled here; a cancel of the task is raised."""
        self._task = task = asyncio.current_task()
        assert task is not None  # noqa: S101  for the type checker: a coroutine runs in a task
        cancels_before = task.cancelling()
        self._set_clock()
        step: StepResult | None = None
        try:
            try:
                step = await take_step(self.context)
            finally:
                if (ending := self.context.ending) is not None:
                    self.end(ending)
        except asyncio.CancelledError:
            if not self._interrupts or self._uncancel(task) > cancels_before:  # the task was cancelled from outside
                raise
            step = self.timeline.history.last
        else:
            if self._interrupts:
                self._uncancel(task)  # a tool or a middleware suppressed the cancel
        finally:
            self._task = None
            self._set_clock()
        if self.control.must_end:  # too late for the step to see it
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

    # Approval ---------------------------------------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """True if the step under way waits for approval."""
        return self.control.waits and not self.has_ended

    async def _decided(self) -> bool:
        """Wait until the approver or a person has decided on the next call, or the time is up. False if neither is there, or if the
        run ended."""
        context, control, wake = self.context, self.control, self.affinity.wake
        approver = context.approver or context.outermost.approver
        asked = asyncio.ensure_future(self._ask(approver)) if approver is not None and control.approvals.waits else None
        if asked is not None:
            asked.add_done_callback(lambda _: wake.set())
        try:
            while control.waits and not control.must_end:
                wake.clear()  # before all that is read here, which other threads may change
                for caller in context.callers:  # a pause, or another timeout
                    caller.set_deadline()
                left_s = self.left_s
                if left_s is not None and left_s <= 0:
                    break
                is_asking = asked is not None and not asked.done()
                if not is_asking and not (control.attended or context.outermost.control.attended):
                    return False
                if control.waits and not control.must_end:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(left_s):
                            await wake.wait()
        except asyncio.CancelledError:
            for caller in context.callers:  # the time of one of them may be up
                if caller.builder is not None:
                    caller.builder.cut_during = control.waits_for
            raise
        finally:
            if asked is not None:
                _, cut = await cancel_and_wait([asked])
                if cut is not None:
                    raise cut
        if control.must_end:
            self._end_between_steps()
        return not self.has_ended

    async def _ask(self, approver: Callable[[PendingCall], object]) -> None:
        """Ask the approver about the next call. Its error refuses the call."""
        approvals, approval, cause = self.control.approvals, Approval.refuse(), ""
        call = approvals.asked[approvals.waits_at or ""]
        try:
            decision = approver(call)
            decision = await decision if inspect.isawaitable(decision) else decision
        except Exception as error:
            cause = f"The approver raised {in_words(error).rstrip('.')}."
        else:
            try:
                approval = self.checked(call, as_approval(decision))
            except ConfigurationError as error:
                cause = redact(str(error))
        if cause:
            self.timeline.warn_once(f"{cause} The call of {call.tool} is refused.")
        self.decide(call.call_id, approval, cause)

    def checked(self, call: PendingCall, approval: Approval) -> Approval:
        """Return the decision on a call. Raises ConfigurationError if its arguments do not fit the tool."""
        tool = self.context.agent.tools.get(call.tool)
        if approval.arguments is not None and tool is not None and (problem := problem_with(approval.arguments, tool)):
            raise ConfigurationError(
                f"The arguments {approval.arguments} do not fit the tool {call.tool!r}: {problem}. They replace "
                "all arguments of the call."
            )
        return approval

    def decide(self, call_id: str, approval: Approval, cause: str = "") -> bool:
        """Decide on a call, from any thread. False if it is decided already. `cause` is why the approver gave no decision."""
        decided = self.control.approvals.decide(call_id, approval, cause)
        if decided is not None:
            (call, given), timeline = decided, self.timeline
            at_s, text = timeline.clock.elapsed_s(), redact(cause or approval.text)
            timeline.emit(
                events.ApprovalGiven(
                    at_s, call.step, call_id, call.tool, approval.decision, given.waited_s, approval.arguments, text
                )
            )
            self.affinity.wake_up()
        return decided is not None

    def _restore_step(self, suspended: SuspendedStep) -> None:
        """Restore a step that waits for approval."""
        context, approvals, step = self.context, self.control.approvals, suspended.step
        context.builder = StepBuilder.of_step(step, context.in_force)
        approvals.ask([replace(call, run_id=context.run_id) for call in suspended.asked])
        approvals.given, approvals.waits_at = dict(suspended.given), suspended.waits_at
        self.timeline.clock = Clock(step.started_s + step.duration_s)
        if suspended.since is not None:
            waited_s = max(0.0, (datetime.now(UTC) - suspended.since).total_seconds())
            self.timeline.clock = Clock(step.started_s + step.duration_s + waited_s)
            self._set_clock()

    def _set_clock(self) -> None:
        """Count the time of a step, also while it waits, unless this run or one that called it is paused meanwhile."""
        context, waiting = self.context, self.context.outermost.waiting
        with _clocks_lock:
            is_left = context.builder is not None and self._task is None and not self.has_ended
            is_timed = self._task is not None or is_left
            if is_timed is not self._is_timed:
                self._is_timed = is_timed
                (self.timeline.clock.start if is_timed else self.timeline.clock.stop)()
            is_asking = is_left and bool(self.control.approvals.asked)
            (waiting.add if is_asking else waiting.discard)(self)
            runs = [context, *context.callers]
            is_held_up = is_asking and any(one.control.is_paused for one in runs)
            if is_held_up and not self._held_up:
                self._held_up = [one.timeline.clock for one in runs]
                for clock in self._held_up:
                    clock.stop()
            elif not is_held_up and self._held_up:
                for clock in self._held_up:
                    clock.start()
                self._held_up = []

    @property
    def left_s(self) -> float | None:
        """What is left of the timeout of this run, and of the child runs that it waits for. None: no limit, or the clock stands."""
        builder = self.context.builder
        left = [self.context.left_s if self.timeline.clock.runs else None]
        left += [] if builder is None else [one.run.stepper.left_s for one in builder.waiting_children.values()]
        return min([one for one in left if one is not None], default=None)

    def _wake_waiting(self) -> None:
        """Notify the runs of this family that wait for approval of a pause, its end, or another timeout."""
        for one in tuple(self.context.outermost.waiting):
            one._set_clock()
            one.affinity.wake_up()

    def waiting(self) -> Ending:
        """Return why the run does not continue: it waits for approval."""
        controls: list[Control] = [self.control]
        calls: list[str] = []
        while controls:
            control = controls.pop(0)
            calls += [f"{call.tool}({call.arguments})" for call in control.approvals.pending]
            controls = [*control.below, *controls]
        detail = f"Waiting for approval of {' and '.join(calls)}: call run.approve(), then `await run` again."
        return Ending(StopReason.AWAITING_APPROVAL, redact(detail))

    def end_waiting(self) -> None:
        """End a run that waits for approval, where no person will come: in an experiment, in a server."""
        if self.is_waiting:
            self.end(self.waiting())

    # Control ----------------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Wait before the next step until `resume`."""
        self.refuse_if_ended()
        if self.control.pause():
            self.timeline.emit(events.RunPaused(self.timeline.clock.elapsed_s()))
            self._wake_waiting()

    def resume(self) -> None:
        """End a pause."""
        self.refuse_if_ended()
        paused_s = self.control.resume()
        if paused_s is not None:
            self.timeline.emit(events.RunResumed(self.timeline.clock.elapsed_s(), paused_s))
            self._wake_waiting()
            self.affinity.wake_up()

    def stop(self, reason: str) -> None:
        """End the run after the step under way, or at once if there is none."""
        if not self.has_ended:
            self.control.stop_request = StopRequest(reason, None, "person")
            if not self._end_between_steps(if_idle=True):
                self.affinity.wake_up()

    def cancel(self) -> None:
        """End the run at once, even during a step, from any thread."""
        if not self.has_ended:
            self.control.cancelled = True
            if not self._end_between_steps(if_idle=True):
                self.affinity.call(self._interrupt)

    def _interrupt(self) -> None:
        """Cancel the step under way, on the owning loop. A second cancel has an effect only while the step waits for a tool."""
        if self._task is not None and (not self._interrupts or self.context.waits_for_tool):
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
        if not self.has_begun and not self.has_ended:
            self._follow()  # a store also keeps a run that ended before it began
        timeline = self.timeline
        with self.affinity.lock:
            if self.has_ended or (if_idle and self.affinity.is_busy):
                return False
            if self.context.builder is not None and self._task is None:
                abandon(self.context, self.context.builder, ending)
            self._mark_last_step(ending)
            self.context.result = result = self.context.result_for(ending)
        if self._task is None:
            self._set_clock()
        self.control.close()
        timeline.emit(events.RunEnded(timeline.clock.elapsed_s(), result))
        self.ended.set()
        self.affinity.wake_up()
        if run_ended := getattr(self.context.transport, "run_ended", None):  # a replay remembers how far each run has come
            run_ended(self.context.replay_key)
        model = self.context.agent.model
        if isinstance(self.context.transport, Record) and not isinstance(model, HttpModel) and timeline.history.own_calls:
            self.context.transport.warn_if_nothing_was_asked(f"{model.name}:{model.model}")
        return True

    def _restore_end(self, ending: Ending, at_s: float) -> None:
        """Mark a restored run as ended without notifying observers."""
        self._mark_last_step(ending)
        self.context.result = self.context.result_for(ending)
        self.control.close()
        self.timeline.clock = Clock(at_s)
        self.timeline.events.append(events.RunEnded(at_s, self.context.result, run_id=self.timeline.run_id))
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

    # Steps, the interface for a worker --------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """True after the end."""
        return self.context.result is not None

    @property
    def outcome(self) -> RunResult:
        """The result; of a run that waits for approval, a result that says so, with the step that waits."""
        if self.context.result is not None:
            return self.context.result
        ending = self.waiting()
        return self.context.result_for(ending, self._with_waiting_step(ending))

    def _with_waiting_step(self, ending: Ending) -> RunHistory:
        """Return the history with the step that waits as it is so far, so that its usage counts."""
        timeline, builder = self.timeline, self.context.builder
        if builder is None:
            return timeline.history
        step = builder.build(timeline)
        if builder.waiting_children:
            step = replace(step, children=(*step.children, *[one.use_so_far() for one in builder.waiting_children.values()]))
        history = timeline.history.prefix(len(timeline.history))
        history.append(step)
        builder.complete(step, builder.settings.budget.remaining(history, timeline.clock.elapsed_s()), None, ending)
        return history

    @property
    def is_stepping(self) -> bool:
        """True during a step."""
        return self._task is not None

    @property
    def is_held(self) -> bool:
        """True if a pause holds the next step."""
        return self.control.is_paused and not self.has_ended and not self.control.must_end

    def clocks_above_stopped(self) -> AbstractContextManager[None]:
        """Stop the clocks and the timeouts of the callers."""
        return call_context.clocks_of_callers_stopped(self.context)

    def workers(self) -> tuple[()]:
        """Return an empty tuple: a run has no workers below its own."""
        return ()

    def settle(self) -> None:
        """End a run that was stopped too late for its last step to notice, unless other work on it is under way."""
        if not self.has_ended and self.control.must_end:
            self._end_between_steps(if_idle=True)

    def record_error(self, error: Exception) -> bool:
        """End the run with this error, which no awaiter would receive."""
        self.end(Ending(StopReason.ERROR, in_words(error), error=error))
        return True

    def refuse_without_key(self) -> None:
        """Raise MissingKeyError before the first step. A child run reports it in its result instead."""
        context = self.context
        if not self.has_ended and not self.has_begun and context.origin.caller is None:
            check_key(context.agent.model, context.transport, context.agent.middleware)

    def refuse_if_ended(self) -> None:
        """Raise RunEndedError after the end, with advice."""
        result = self.context.result
        if result is not None:
            steps, last = len(self.timeline.history), self.timeline.history.last
            other = "message" if result.stop_reason is StopReason.COMPLETED else "budget"
            advice = f"Continue with run.fork(at={steps}, {other}=…)"
            if result.stop_reason is StopReason.ERROR and last is not None and last.error is not None:
                advice = f"Fix the cause, then repeat the step with run.fork(at={steps - 1})"
            raise RunEndedError(
                f"The run has ended ({result.stop_reason}: {result.detail}) {advice}, or start another with agent.run(…)."
            )
