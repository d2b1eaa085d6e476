"""A run: one agent at work on one prompt, and all that a person can do with it.

    step = await run.step()          one step
    async for step in run: …         the rest, step by step
    result = await run               to the end
    run.start()                      in the background; the cell returns at once
    run.pause()  run.resume()  run.stop("enough")  run.cancel()
    run.limits.max_cost = 0.10       at any time
    branch = run.fork(at=3)          another future from step 3 on
    branch = run.go_on()             what suits the end: a limit raised, a step taken again; see run.proposals

`await`ing in a notebook cell keeps the kernel's main thread busy with the run: right for scripts and tests, with no promise that
the panel's controls arrive meanwhile. `start()` is for live control.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from agentlab import events, going_on, sugar
from agentlab.budget import Budget
from agentlab.continuation import ContinuationPolicy
from agentlab.errors import AgentlabWarning, ConfigurationError
from agentlab.fork import Past
from agentlab.going_on import Proposal
from agentlab.in_background import RunState
from agentlab.loop.ask import ExplicitStop
from agentlab.loop.drive import Drive
from agentlab.loop.step import Ending
from agentlab.owner import running_loop
from agentlab.printable import one_line
from agentlab.results import RunResult, StepResult
from agentlab.settings import LiveSettings, RunSettings, as_continuation, as_policy, as_terminating
from agentlab.stop import as_condition
from agentlab.terminating import TerminatingTools
from agentlab.termination import Policy
from agentlab.types import Message

if TYPE_CHECKING:
    from agentlab.agent import Agent
    from agentlab.loop.calls import Model
    from agentlab.providers._base import Provider
    from agentlab.transport import Transport

__all__ = ["Run", "RunState"]


class Run(Drive):
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

    recall: Callable[[str, Agent, RunSettings], Run] | None = None
    """How sub-agents' runs of an earlier process are had back; set by the store that this run came from."""

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
        return sugar.call("agentlab.widgets:panel", self)

    def __repr__(self) -> str:
        end = f", {self.result.stop_reason}" if self.result is not None else ""
        name, budget = one_line(self.agent.name), self.limits.snapshot().budget
        return f"Run({name}, {self.state}{end}, {len(self.history)} steps, {budget!r})"

    # Going on ---------------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._be_followed()
        super()._begin()

    def end(self, ending: Ending, *, if_idle: bool = False) -> bool:
        """See Drive. One that is ended before it has begun is kept in a store too."""
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

    async def step(self) -> StepResult | None:
        """Take one step, also while the run is paused. None where the run ended without another one.

        Raises RunEndedError after the end; a ConfigurationError or FixtureError that the step met, after recording it.

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
            self._home = running_loop()
            if self._home is None:
                raise ConfigurationError(
                    "start(loop='kernel') needs a running event loop: call it in a notebook, or in async code."
                )
            self._kernel_task = self._home.create_task(self._quietly(self._to_the_end, self._claim(self._home)))
        else:
            self._launch_or_finish()
        return self

    def wait(self, timeout_s: float | None = None) -> RunResult | None:
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
            self._paused, self._paused_at = True, time.monotonic()
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
        self.stop_request = ExplicitStop(reason, None, "person")
        if not self._end_between_steps(if_idle=True):
            self._poke()

    def cancel(self) -> None:
        """End the run at once, in mid-step if need be; what came back so far is recorded.

        Example:
            >>> await run.step()
            StepResult(1, tool_calls, tools=['get_weather', 'get_weather'], tokens=637, cost_usd=0.003207)
            >>> run.cancel()
            >>> run.result
            RunResult(cancelled, truncated, 1 step, 'Cancelled after step 1.')
        """
        self._call_off()

    # Branches ---------------------------------------------------------------------------------------------------------------

    def fork(
        self,
        at: int,
        *,
        budget: Budget | None = None,
        stop: object = None,
        policy: Policy | None = None,
        continuation: ContinuationPolicy | None = None,
        terminating: TerminatingTools | Sequence[str] | None = None,
        agent: Agent | None = None,
        model: str | Provider | Model | None = None,
        prompt: str | None = None,
        message: str | None = None,
        tool_results: Mapping[str, str] | None = None,
    ) -> Run:
        """A new run that shares the first `at` steps (0 to all) and has another future; not started. This run stays as it is.

        budget, stop, policy, continuation, terminating   other settings; what is left out is as this run has it now
        agent           another agent; or with `model` the same one (tools, instructions, defaults) on another model
        prompt          another task in the place of this run's own; the kept steps stay as they were
        message         something more that the person says after the kept steps
        tool_results    what the tools of step `at` gave, replaced: {call id: text}

        Where the kept steps end with the model's own words, there is nothing that it could be asked, and most providers refuse such a
        conversation. An answer that was cut is followed by the continuation policy's `hint`; where the model has come to its end (a
        run that COMPLETED, kept whole), a ConfigurationError asks for a `message` or for fewer steps.

        Example:
            >>> branch = ended.fork(at=2, budget=lab.Budget(max_turns=3))
            >>> result = await branch
            >>> result.forked_at, len(result.history), result.stop_reason
            (2, 3, <StopReason.TURN_LIMIT: 'turn_limit'>)
        """
        if agent is not None and model is not None:
            raise ConfigurationError("fork(agent=…, model=…): pass one of them; an agent has its model already.")
        whole = Past(self.prompt, self.conversation, self.history, tuple(self._marks), self.prompt_at, self._first_length)
        past = whole.until(at)
        chosen = agent or (self.agent if model is None else self.agent.with_model(model))
        settings = self.limits.snapshot()
        settings = replace(
            settings,
            budget=budget or settings.budget,
            stop=settings.stop if stop is None else as_condition(stop),
            policy=settings.policy if policy is None else as_policy(policy),
            continuation=settings.continuation if continuation is None else as_continuation(continuation),
            terminating=settings.terminating if terminating is None else chosen.known_terminating(as_terminating(terminating)),
        )
        if prompt is not None:
            past = past.with_prompt(prompt)
        if tool_results is not None:
            past = past.with_tool_results(tool_results)
        if message is not None:
            past = past.with_message(message)
        past = past.with_something_to_answer(settings.continuation.hint)
        branch = Run(
            chosen,
            past.prompt,
            past.conversation(),
            LiveSettings(settings),
            self.transport,
            observers=self._inherited,
            history=past.history,
            parent=self,
        )
        branch._take_over(past)
        self._has_branch(branch)
        return branch

    def _take_over(self, past: Past) -> None:
        self._marks, self.prompt_at, self._first_length = list(past.marks), past.prompt_at, past.first_length

    @classmethod
    def as_it_was(
        cls,
        agent: Agent,
        past: Past,
        settings: RunSettings,
        transport: Transport,
        *,
        run_id: str,
        happened: Sequence[events.Event] = (),
        parent_run_id: str | None = None,
        forked_at: int | None = None,
        parent_step: int | None = None,
        called_by: str | None = None,
    ) -> Run:
        """A run that was kept, after its last step, to go on from. Nobody observes it; the agent's observers observe its forks."""
        limits = LiveSettings(settings)
        run = cls(agent, past.prompt, past.conversation(), limits, transport, observers=agent.observers, history=past.history)
        run.observers = ()
        run._take_over(past)
        run.id = run.lane = run_id
        run.parent_run_id, run.forked_at, run.parent_step, run.called_by = parent_run_id, forked_at, parent_step, called_by
        run.events.extend(happened)
        return run

    def known_as(self, run_id: str, *, label: str = "") -> Run:
        """Give a run that has not begun an id of your own, and a `label` by which a recording knows it again (see `lab.replay`): it is
        given what was recorded under that label, from its beginning, and what is recorded of it is written down under that label.

        Raises ConfigurationError for a run that has begun.

        Example:
            >>> brief.run("?").known_as("monday").id
            'monday'
        """
        if self._started:
            raise ConfigurationError(f"known_as({run_id!r}): the run {self.id!r} has begun already.")
        self.lane = f"{os.urandom(6).hex()}#{label}" if label else run_id
        self.id = run_id
        return self

    def inherit(self, observer: events.RunObserver) -> None:
        """Have `observer` told of the runs that are forked from this one from now on, each from its beginning."""
        self._inherited = (*self._inherited, observer)

    @property
    def branches(self) -> tuple[Run, ...]:
        """The runs that were forked from this one, in order. Theirs have this one as `parent`, and `forked_at` steps of it.

        Example:
            >>> branch = ended.fork(at=2)
            >>> [one.forked_at for one in ended.branches]
            [2]
        """
        return tuple([one for one in self._offspring if one.parent is self])

    def watch_forks(self, listener: Callable[[Run], object]) -> Callable[[], None]:
        """Call `listener(branch)` after each fork of this run, on the thread that made it; returns what ends that.

        What a listener raises is a warning: the fork holds.

        Example:
            >>> told = []
            >>> end = ended.watch_forks(told.append)
            >>> branch = ended.fork(at=1)
            >>> told == [branch]
            True
        """
        self._fork_listeners = (*self._fork_listeners, listener)

        def end() -> None:
            self._fork_listeners = tuple(one for one in self._fork_listeners if one is not listener)

        return end

    def branch_of(self, parent: Run) -> None:
        """This run, which was kept, is a branch of that one, which was kept too."""
        self.parent = parent
        parent._has_branch(self)

    def _has_branch(self, branch: Run) -> None:
        with self._owner.lock:
            self._offspring = (*self._offspring, branch)
        for listener in self._fork_listeners:
            try:
                listener(branch)
            except Exception as error:
                told = f"A listener to forks raised {type(error).__name__}: {error}. The fork holds."
                warnings.warn(told, AgentlabWarning, stacklevel=3)

    # Sub-agents -------------------------------------------------------------------------------------------------------------

    @property
    def children(self) -> tuple[Run, ...]:
        """The runs of sub-agents that this run's tools called (`agent.as_tool`), in order, the one under way included: their `limits`
        can be edited, and they can be stopped. Theirs have this one as `caller`, its step as `parent_step`, the tool call's id as
        `called_by`.

        Example:
            >>> planner = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[brief.as_tool("scout")])
            >>> run = planner.run("?")
            >>> result = await run
            >>> [child.result.text for child in run.children]
            ['Paris.']
        """
        return self._children

    @property
    def offspring(self) -> tuple[Run, ...]:
        """Branches and sub-agents' runs together, in the order in which they were made."""
        return self._offspring

    @property
    def inherited(self) -> tuple[events.RunObserver, ...]:
        """The observers that the runs which come from this one begin with."""
        return self._inherited

    def called_from(self, caller: Run, step: int, call_id: str) -> None:
        """This run is a sub-agent's, started by a tool call of `caller`; one that is a branch stays a branch of its parent."""
        self.caller, self.parent_step, self.called_by = caller, step, call_id
        with caller._owner.lock:
            caller._children = (*caller._children, self)
            if self.parent is None:
                self.parent_run_id = caller.id
                caller._offspring = (*caller._offspring, self)

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """What can be done about this run's end, the best first; empty while it goes on, and where there is nothing to do.

        Example:
            >>> run = endless.run("?", budget=lab.Budget(max_turns=2))
            >>> result = await run
            >>> [proposal.label for proposal in run.proposals]
            ['Raise the turn limit to 4 and go on']
        """
        return going_on.proposals(self)

    def go_on(self, proposal: Proposal | None = None, *, prompt: str | None = None) -> Run:
        """The branch that does what is proposed (without one the first of `proposals`), not started.

        Raises ConfigurationError where nothing is proposed, with the reason, and where a new `prompt` is needed and missing.

        Example:
            >>> run = endless.run("?", budget=lab.Budget(max_turns=2))
            >>> (await run).stop_reason
            <StopReason.TURN_LIMIT: 'turn_limit'>
            >>> branch = run.go_on()
            >>> branch.limits.max_turns
            4
        """
        chosen = going_on.chosen(self, proposal, prompt)
        settings = going_on.settings_for(self, chosen)
        return self.fork(
            chosen.at,
            budget=settings.budget,
            stop=settings.stop,
            continuation=settings.continuation,
            terminating=settings.terminating,
            prompt=prompt,
        )
