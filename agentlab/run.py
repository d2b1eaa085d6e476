"""A run: one agent at work on one prompt, and all that a person can do with it.

    step = await run.step()          one step
    async for step in run: …         the rest, step by step
    result = await run               to the end
    run.start()                      in the background; the cell returns at once
    run.pause()  run.resume()  run.stop("enough")  run.cancel()
    run.limits.max_cost = 0.10       at any time
    branch = run.fork(at=3)          another future from step 3 on
    branch = run.apply()             what suits the end: a limit raised, a step taken again; see run.next_actions

`await`ing in a notebook cell keeps the kernel's main thread busy with the run: right for scripts and tests, with no promise that
the panel's controls arrive meanwhile. `start()` is for live control.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from agentlab import events, sugar
from agentlab.amounts import counted
from agentlab.engine.ask import StopRequest
from agentlab.engine.branches import Branching
from agentlab.engine.step import Ending
from agentlab.engine.worker import RunState, running_loop
from agentlab.errors import ConfigurationError
from agentlab.predicates import needs_await
from agentlab.printable import one_line
from agentlab.redaction import without_keys
from agentlab.results import RunResult, StepResult
from agentlab.types import Message

__all__ = ["Run", "RunState"]


class Run(Branching):
    """One agent at work on one prompt; made by `agent.run(prompt)`.

    `limits` are live and can be edited at any time, from any thread; `history` holds the steps, `events` what happened, `result` the
    RunResult once the run has ended (None before). A run lives on one event loop at a time; calls from others are handed over.

    Example:
        >>> with lab.replay("fixtures/trip"):
        ...     run = agent.run(TASK)
        >>> step = await run.step()
        >>> [call.name for call in step.tool_calls]
        ['get_weather', 'get_weather']
        >>> run.limits.max_turns = 10
        >>> (await run).stop_reason
        <StopReason.STOP_CONDITION: 'stop_condition'>
    """

    # Looking at it ---------------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far.

        Example:
            >>> [message.role for message in ended.messages[:3]]
            ['user', 'assistant', 'tool']
        """
        return self.conversation.view()

    def messages_of(self, step: int) -> Sequence[Message]:
        """What this step (from 1) added to the conversation: the model's answer, the tools' results, a reminder.

        With 0 what stood there before the first step, the prompt included. Raises ConfigurationError for a step that there is not.

        Example:
            >>> ended.messages_of(1)[-1].tool_results[0].content
            '{"city":"Graz","sky":"rain","high_c":17}'
        """
        steps, marks = len(self.history), self._marks
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= steps:
            raise ConfigurationError(f"messages_of({step!r}): give the number of a step, 0 to {steps}.")
        begin = 0 if step == 0 else self._first_length if step == 1 else marks[step - 2]
        end = self._first_length if step == 0 else marks[step - 1] if step <= len(marks) else len(self.conversation)
        return self.conversation[begin:end]

    def to_frame(self, what: str = "steps") -> Any:
        """A DataFrame of the run so far: `steps`, `calls`, `tools`, `events`, `readings` or `termination`.

        Example:
            >>> ended.to_frame()[["step", "finish_reason", "total_tokens"]].head(2)
               step finish_reason  total_tokens
            0     1    tool_calls           637
            1     2    tool_calls           747
            >>> ended.to_frame("tools")["tool"].tolist()[:3]
            ['get_weather', 'get_weather', 'find_trains']
        """
        return sugar.call("agentlab.recorder:to_frame", self, what)

    def panel(self) -> Any:
        """The live control of this run in a notebook; a static table and picture where nobody can click.

        Example:
            >>> ended.panel()
            Panel(Run(anthropic:claude-sonnet-4-6, ended, stop_condition, 4 steps, Budget(max_turns=20)))
        """
        return sugar.call("agentlab.notebook.panel:panel", self)

    def __repr__(self) -> str:
        end = f", {self.result.stop_reason}" if self.result is not None else ""
        name, budget = one_line(self.agent.name), self.limits.snapshot().budget
        return f"Run({name}, {self.state}{end}, {counted(len(self.history), 'step')}, {budget!r})"

    if not TYPE_CHECKING:  # with it, type checkers would take any name for an attribute

        def __getattr__(self, name):
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(RunResult, name):
                ended = self.result is not None
                where = f"run.result.{name}" if ended else f"`result = await run`, then result.{name}"
                now = "run.history for the steps so far, or " if name == "steps" else ""
                message = (
                    f"A run has no {name!r}; its result has, {'and ' if ended else 'once '}the run has ended: write {now}{where}."
                )
            raise AttributeError(message, name=name, obj=self)

    def with_id(self, run_id: str, *, label: str = "") -> Run:
        """Give a run that has not begun an id of your own, and a `label` by which a recording recognises it (see `lab.replay`): it is
        given what was recorded under that label, from its beginning, and what is recorded of it is written down under that label.

        Raises ConfigurationError for a run that has begun, and for what holds a key.

        Example:
            >>> brief.run("?").with_id("monday").id
            'monday'
        """
        if self._started:
            raise ConfigurationError(f"with_id({run_id!r}): the run {self.id!r} has begun already.")
        if (hidden := without_keys(f"{run_id} {label}".strip())) != f"{run_id} {label}".strip():
            raise ConfigurationError(f"with_id: {hidden!r} holds a key: ids and labels of runs are written everywhere.")
        self.replay_key = f"{os.urandom(6).hex()}#{label}" if label else run_id
        self.id = run_id
        return self

    # Going on ---------------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._be_followed()
        super()._begin()

    def end(self, ending: Ending, *, if_idle: bool = False) -> bool:
        """See Stepper. One that is ended before it has begun is kept in a store too."""
        self._be_followed()
        return super().end(ending, if_idle=if_idle)

    def _be_followed(self) -> None:
        if not self._started:
            with (
                self._owner.lock
            ):  # an event does not say whose it is: who has a state for each run is asked for an observer of this
                of_this_run = (getattr(one, "follow_run", None) for one in self.observers)
                self.observers = tuple(
                    one if of is None else of(self) for one, of in zip(self.observers, of_this_run, strict=True)
                )

    @needs_await("run.step()")
    async def step(self) -> StepResult | None:
        """Take one step, also while the run is paused. None where the run ended without another one.

        Raises RunEndedError after the end; MissingKeyError before the first step, which leaves the run ready; a ConfigurationError or
        FixtureError that the step met, after recording it.

        Example:
            >>> step = await run.step()
            >>> step.index, step.finish_reason, [call.name for call in step.tool_calls]
            (1, <FinishReason.TOOL_CALLS: 'tool_calls'>, ['get_weather', 'get_weather'])
            >>> await ended.step()
            Traceback (most recent call last):
                ...
            agentlab.errors.RunEndedError: The run has ended (stop_condition: Stop condition met: HasToolCall(finali...
        """
        self._refuse_if_ended()
        return await self._owned(self._one_step)

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

        Example:
            >>> run = brief.run("?").start()  # where nobody can click, it has ended when this comes back
            >>> run.result.text
            'Paris.'
        """
        self._refuse_if_ended()
        if loop not in ("background", "kernel"):
            raise ConfigurationError(f"start(loop={loop!r}): choose 'background' or 'kernel'.")
        if loop == "kernel":
            self.refuse_without_key()
            self._home = running_loop()
            if self._home is None:
                raise ConfigurationError(
                    "start(loop='kernel') needs a running event loop: call it in a notebook, or in async code."
                )
            self._kernel_task = self._home.create_task(self._quietly(self._to_the_end, self._claim(self._home)))
        else:
            self._launch_or_finish()
        return self

    def wait(self, timeout_s: float | timedelta | None = None) -> RunResult | None:
        """Block until a run started in the background has ended; its result, or None where that took longer than `timeout_s`.

        Example:
            >>> run = brief.run("?").start()
            >>> run.wait(timeout_s=5).text
            'Paris.'
        """
        return self._block(timeout_s)

    def pause(self) -> None:
        """Wait before the next step, until `resume()`. The time does not count against the timeout.

        Example:
            >>> run.pause()
            >>> run.state, run.pausing
            (<RunState.PAUSED: 'paused'>, True)
            >>> run.resume()
            >>> (await run).stop_reason
            <StopReason.STOP_CONDITION: 'stop_condition'>
        """
        self._refuse_if_ended()
        if not self._paused:
            self._paused_at, self._paused = time.monotonic(), True  # in this order: others read them, on threads of their own
            self.emit(events.RunPaused(self.clock.elapsed_s()))

    def resume(self) -> None:
        """Go on after a pause.

        Example:
            >>> run.pause()
            >>> run.resume()
            >>> run.pausing
            False
        """
        self._refuse_if_ended()
        if self._paused:
            paused_s = time.monotonic() - self._paused_at
            self._paused, self._paused_s = False, self._paused_s + paused_s
            self.emit(events.RunResumed(self.clock.elapsed_s(), paused_s))
            self._poke()

    def stop(self, reason: str = "the person asked for it") -> None:
        """End the run after the step under way, or at once where none is. Nothing happens to a run that has ended.

        Example:
            >>> step = await run.step()
            >>> run.stop("seen enough")
            >>> run.result.stop_reason, run.result.detail
            (<StopReason.EXPLICIT_STOP: 'explicit_stop'>, 'Stopped by the person: seen enough')
        """
        if self.result is not None:
            return
        self.stop_request = StopRequest(reason, None, "person")
        if not self._end_between_steps(if_idle=True):
            self._poke()

    def cancel(self) -> None:
        """End the run at once, in mid-step if need be; what came back so far is recorded.

        Example:
            >>> await run.step()
            StepResult(1, tool_calls, tools=['get_weather', 'get_weather'], tokens=637, cost_usd=0.003207)
            >>> run.cancel()
            >>> run.result
            RunResult(cancelled, truncated, 1 step, 'Cancelled after step 1.', text="I'll look at the forecast for both ci...
        """
        self._call_off()
