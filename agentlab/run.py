"""A run: one agent at work on one prompt, with all that a person can do with it. The parts that do it are in `agentlab.engine`.

    step = await run.step()          one step
    async for step in run: …         the rest, step by step
    result = await run               to the end
    run.start()                      in the background; the cell returns at once
    run.pause()  run.resume()  run.stop("enough")  run.cancel()
    run.limits.max_cost = 0.10       at any time
    branch = run.fork(at=3)          another future from step 3 on
    branch = run.apply()             what suits the end: a limit raised, a step taken again; see run.next_actions

`await` in a notebook cell keeps the kernel's main thread busy with the run: right for scripts and tests, with no promise that the
panel's controls arrive meanwhile. `start()` is for live control.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from agentlab._internal import lazy
from agentlab._internal.asyncio_tools import needs_await
from agentlab._internal.display import Displayable
from agentlab._internal.formatting import counted
from agentlab._internal.lazy import helps_with_keywords
from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import one_line
from agentlab.engine import call_context, next_actions
from agentlab.engine.branches import Branches, fork_plan
from agentlab.engine.control import Control
from agentlab.engine.next_actions import NextAction
from agentlab.engine.snapshot import Origin
from agentlab.engine.stepper import Stepper
from agentlab.engine.timeline import Timeline
from agentlab.engine.worker import RunState, Worker
from agentlab.errors import ConfigurationError
from agentlab.records.result import RunResult
from agentlab.records.step import StepResult

if TYPE_CHECKING:
    from agentlab.agent import Agent
    from agentlab.engine.client import Model
    from agentlab.engine.plan import RunPlan
    from agentlab.engine.termination import Policy
    from agentlab.limits.budget import Budget
    from agentlab.limits.live import LiveSettings
    from agentlab.limits.policies import ContinuationPolicy, TerminatingTools
    from agentlab.model.messages import Message
    from agentlab.providers.base import Provider
    from agentlab.records.events import Event, RunObserver
    from agentlab.records.history import RunHistory
    from agentlab.tools import Function, Tool

__all__ = ["Run", "RunState"]


class Run(Displayable):
    """One agent at work on one prompt; made by `agent.run(prompt)`.

    `limits` are live and can be edited at any time, from any thread. A run lives on one event loop at a time; calls from others are
    handed over to it. It is made of parts: `timeline` records what happens, `control` holds requests to pause or stop, `stepper` takes
    the steps, `worker` keeps them on one event loop, `branches` are the runs that were forked from it, `origin` is where it came from.

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

    def __init__(self, plan: RunPlan) -> None:
        self.timeline = Timeline(plan.prefix, plan.observers, plan.inherited)
        self.control = Control()
        self.stepper = Stepper(plan, self.timeline, self.control, self)
        self.worker: Worker[StepResult | None, RunResult] = Worker(self.stepper)
        self.branches: Branches[Run] = Branches(self)
        self.limits: LiveSettings = self.stepper.limits
        call_context.made(self)

    # What it is -------------------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id, by which frames and stores know the run.

        Example:
            >>> run.id == run.timeline.events[0].run_id if run.events else len(run.id)
            12
        """
        return self.stepper.run_id

    @property
    def agent(self) -> Agent:
        """The agent.

        Example:
            >>> run.agent.name
            'anthropic:claude-sonnet-4-6'
        """
        return cast("Agent", self.stepper.agent)

    @property
    def prompt(self) -> str:
        """The task.

        Example:
            >>> brief.run("What is the capital of France?").prompt
            'What is the capital of France?'
        """
        return self.timeline.prompt

    @property
    def origin(self) -> Origin[Run]:
        """Where the run came from: `parent` and `forked_at` of a fork, `caller` and `parent_step` of a child run.

        Example:
            >>> run.origin.parent is None
            True
        """
        return self.stepper.origin

    @property
    def state(self) -> RunState:
        """Where the run is.

        Example:
            >>> run.state, ended.state
            (<RunState.READY: 'ready'>, <RunState.ENDED: 'ended'>)
        """
        return self.worker.state

    @property
    def history(self) -> RunHistory:
        """The steps so far, with their totals.

        Example:
            >>> ended.history
            RunHistory(4 steps, 4 calls, 3146 tokens, $0.014346)
        """
        return self.timeline.history

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far; `run.timeline.messages_of(2)` is what step 2 added.

        Example:
            >>> [message.role for message in ended.messages[:3]]
            ['user', 'assistant', 'tool']
        """
        return self.timeline.conversation.view()

    @property
    def events(self) -> list[Event]:
        """What happened so far, pieces of text left out.

        Example:
            >>> type(ended.events[0]).__name__
            'RunStarted'
        """
        return self.timeline.events

    @property
    def result(self) -> RunResult | None:
        """The result once the run has ended; None before.

        Example:
            >>> run.result is None, ended.result.stop_reason
            (True, <StopReason.STOP_CONDITION: 'stop_condition'>)
        """
        return self.stepper.result

    @property
    def children(self) -> tuple[Run, ...]:
        """The child runs that this run's tools started (`agent.as_tool`), in order, the one under way included.

        Their `limits` can be edited, and they can be stopped. Their `origin` has this run as `caller`, its step as `parent_step` and
        the tool call's id as `called_by`. A run from a store has those of earlier processes, too, as far as they are kept.

        Example:
            >>> planner = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[brief.as_tool("scout")])
            >>> run = planner.run("?")
            >>> result = await run
            >>> [child.result.text for child in run.children]
            ['Paris.']
        """
        return self.branches.children

    def to_frame(self, what: str = "steps") -> Any:
        """Return a DataFrame of the run so far: `steps`, `calls`, `tools`, `events`, `readings` or `termination`.

        Example:
            >>> ended.to_frame()[["step", "finish_reason", "total_tokens"]].head(2)
               step finish_reason  total_tokens
            0     1    tool_calls           637
            1     2    tool_calls           747
            >>> ended.to_frame("tools")["tool"].tolist()[:3]
            ['get_weather', 'get_weather', 'find_trains']
        """
        return lazy.call("agentlab.records.frames:to_frame", self, what)

    def panel(self) -> Any:
        """Return the live control of this run in a notebook; without a front end a static table and picture.

        Example:
            >>> ended.panel()
            Panel(Run(anthropic:claude-sonnet-4-6, ended, stop_condition, 4 steps, Budget(max_turns=20)))
        """
        return lazy.call("agentlab.notebook.panel:panel", self)

    @overload
    def to_html(self, path: None = None, *, timing: bool = True, raw: bool | Iterable[int] = False) -> str: ...
    @overload
    def to_html(self, path: str | os.PathLike[str], *, timing: bool = True, raw: bool | Iterable[int] = False) -> Path: ...
    def to_html(
        self, path: str | os.PathLike[str] | None = None, *, timing: bool = True, raw: bool | Iterable[int] = False
    ) -> str | Path:
        """Write this run, its branches and its child runs as one HTML file, and return the path; without `path` return the HTML.

        The page has the transcript, timeline, charts and limits, and needs neither a kernel nor a network. No known key is in it. An
        existing file is replaced. `timing=False` leaves out times, so that a recorded fixture gives the same file each time; `raw` adds
        the raw responses, of all steps or of those with these numbers.

        Raises ConfigurationError for a folder that does not exist.

        Example:
            >>> ended.to_html()[:15]
            '<!DOCTYPE html>'
        """
        html: str | Path = lazy.call("agentlab.notebook.page:to_html", [self], path, timing=timing, raw=raw)
        return html

    def __dir__(self) -> list[str]:
        """The names for a person; the parts that do the work are left out."""
        return [name for name in super().__dir__() if name not in ("stepper", "worker", "control", "timeline")]

    def __repr__(self) -> str:
        end = f", {self.result.stop_reason}" if self.result is not None else ""
        name, budget = one_line(self.agent.name), self.limits.snapshot().budget
        return f"Run({name}, {self.state}{end}, {counted(len(self.history), 'step')}, {budget!r})"

    if not TYPE_CHECKING:  # with it, type checkers would take any name for an attribute

        def __getattr__(self, name):
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in Origin.__slots__:
                message = f"A run has no {name!r}: write run.origin.{name}."
            elif not name.startswith("_") and hasattr(RunResult, name):
                ended = self.result is not None
                where = f"run.result.{name}" if ended else f"`result = await run`, then result.{name}"
                now = "run.history for the steps so far, or " if name == "steps" else ""
                message = (
                    f"A run has no {name!r}; its result has, {'and ' if ended else 'once '}the run has ended: write {now}{where}."
                )
            raise AttributeError(message, name=name, obj=self)

    # Steps and control ------------------------------------------------------------------------------------------------------

    def with_id(self, run_id: str, *, label: str = "") -> Run:
        """Give a run that has not begun an id of your own, and a `label` by which recordings know it (see `lab.replay`): it is replayed
        from the beginning of what was recorded under that label, and recorded under that label.

        Raises ConfigurationError for a run that has begun, and for an id or label with a key in it.

        Example:
            >>> brief.run("?").with_id("monday").id
            'monday'
        """
        stepper = self.stepper
        if stepper.has_begun:
            raise ConfigurationError(f"with_id({run_id!r}): the run {self.id!r} has begun already.")
        if (hidden := redact(f"{run_id} {label}".strip())) != f"{run_id} {label}".strip():
            raise ConfigurationError(f"with_id: {hidden!r} holds a key: ids and labels of runs are written everywhere.")
        stepper.replay_key = f"{os.urandom(6).hex()}#{label}" if label else run_id
        stepper.run_id = run_id
        return self

    @needs_await("run.step()")
    async def step(self) -> StepResult | None:
        """Take one step, also during a pause. None if the run ended without another one.

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
        return await self.worker.step()

    async def __aiter__(self) -> AsyncIterator[StepResult]:
        """The steps from here on, one by one, taken as they are asked for."""
        async for step in self.worker.each():
            if step is not None:
                yield step

    def __await__(self) -> Generator[Any, None, RunResult]:
        """To the end; the result always comes back, whatever ended the run."""
        return self.worker.to_the_end().__await__()

    def start(self, loop: Literal["background", "kernel"] = "background") -> Run:
        """Run to the end in the background and return at once, so that the panel is live.

        Without a front end, where nobody can click, the run is finished first, so that notebooks are deterministic. `loop="kernel"`
        runs on the loop this is called on, for clients that are bound to it.

        Example:
            >>> run = brief.run("?").start()  # without a front end it has ended when this returns
            >>> run.result.text
            'Paris.'
        """
        if loop not in ("background", "kernel"):
            self.stepper.refuse_if_ended()
            raise ConfigurationError(f"start(loop={loop!r}): choose 'background' or 'kernel'.")
        if loop == "kernel":
            self.worker.start_here()
        else:
            self.worker.start()
        return self

    def wait(self, timeout_s: float | timedelta | None = None) -> RunResult | None:
        """Block until a run started in the background has ended and return its result, or None if that takes longer than `timeout_s`.

        Example:
            >>> run = brief.run("?").start()
            >>> run.wait(timeout_s=5).text
            'Paris.'
        """
        return self.worker.wait(timeout_s)

    def pause(self) -> None:
        """Wait before the next step, until `resume()`. The time does not count against the timeout.

        Example:
            >>> run.pause()
            >>> run.state, run.control.pausing
            (<RunState.PAUSED: 'paused'>, True)
            >>> run.resume()
            >>> (await run).stop_reason
            <StopReason.STOP_CONDITION: 'stop_condition'>
        """
        self.stepper.pause()

    def resume(self) -> None:
        """Continue after a pause.

        Example:
            >>> run.pause()
            >>> run.resume()
            >>> run.control.pausing
            False
        """
        self.stepper.resume()

    def stop(self, reason: str = "the person asked for it") -> None:
        """End the run after the step under way, or at once if there is none. A run that has ended stays as it is.

        Example:
            >>> step = await run.step()
            >>> run.stop("seen enough")
            >>> run.result.stop_reason, run.result.detail
            (<StopReason.EXPLICIT_STOP: 'explicit_stop'>, 'Stopped by the person: seen enough')
        """
        self.stepper.stop(reason)

    def cancel(self) -> None:
        """End the run at once, during a step if need be; what came back so far is recorded.

        Example:
            >>> await run.step()
            StepResult(1, tool_calls, tools=['get_weather', 'get_weather'], tokens=637, cost_usd=0.003207)
            >>> run.cancel()
            >>> run.result
            RunResult(cancelled, truncated, 1 step, 'Cancelled after step 1.', text="I'll look at the forecast for both ci...
        """
        self.stepper.cancel()

    def observe(self, observer: RunObserver) -> Callable[[], None]:
        """Notify `observer` of every event of this run from now on, and of none of its forks; return a function that ends that.

        Example:
            >>> seen = []
            >>> end = run.observe(lambda event: seen.append(type(event).__name__))
            >>> step = await run.step()
            >>> end()
            >>> seen[:3], seen[-1]
            (['RunStarted', 'StepStarted', 'TextReceived'], 'StepCompleted')
        """
        return self.timeline.observe(observer)

    # Another future ---------------------------------------------------------------------------------------------------------

    @helps_with_keywords
    def fork(
        self,
        at: int,
        *,
        budget: Budget | None = None,
        stop: object = None,
        policy: Policy | None = None,
        continuation: ContinuationPolicy | None = None,
        terminating: TerminatingTools | Sequence[str | Tool | Function] | None = None,
        agent: Agent | None = None,
        model: str | Provider | Model | None = None,
        prompt: str | None = None,
        message: str | None = None,
        tool_results: Mapping[str, str] | None = None,
    ) -> Run:
        """Return a new run, not started, that shares the first `at` steps (0 to all). This run stays as it is.

        budget, stop, policy, continuation, terminating   other settings; by default as this run has them now
        agent           another agent; or with `model` the same one (tools, instructions, defaults) on another model
        prompt          another task in place of this run's own; the kept steps stay as they were
        message         a further message to the model after the kept steps
        tool_results    other results of the tools of step `at`: {call id: text}

        Most providers refuse a conversation that ends with the model's own words. An answer that was cut off is followed by the
        continuation policy's `hint`; if the model had finished (a run that COMPLETED, kept whole), a ConfigurationError asks for a
        `message` or for fewer steps.

        Example:
            >>> branch = ended.fork(at=2, budget=lab.Budget(max_turns=3))
            >>> result = await branch
            >>> result.forked_at, len(result.history), result.stop_reason
            (2, 3, <StopReason.TURN_LIMIT: 'turn_limit'>)
        """
        plan = fork_plan(
            self,
            at,
            budget=budget,
            stop=stop,
            policy=policy,
            continuation=continuation,
            terminating=terminating,
            agent=agent,
            model=model,
            prompt=prompt,
            message=message,
            tool_results=tool_results,
        )
        branch = Run(plan)
        self.branches.add(branch)
        return branch

    @property
    def next_actions(self) -> tuple[NextAction, ...]:
        """What can be done about the end of the run, the best first; empty before the end, and if there is nothing to do.

        Example:
            >>> run = endless.run("?", budget=lab.Budget(max_turns=2))
            >>> result = await run
            >>> [action.label for action in run.next_actions]
            ['Raise the turn limit to 4 and go on']
        """
        return next_actions.next_actions(self)

    def apply(self, action: NextAction | None = None, *, prompt: str | None = None) -> Run:
        """Return the branch, not started, that does one of `next_actions`, by default the first.

        Raises ConfigurationError if there is none, with the reason, and if a new `prompt` is needed and missing.

        Example:
            >>> run = endless.run("?", budget=lab.Budget(max_turns=2))
            >>> (await run).stop_reason
            <StopReason.TURN_LIMIT: 'turn_limit'>
            >>> branch = run.apply()
            >>> branch.limits.max_turns
            4
        """
        chosen = next_actions.chosen(self, action, prompt)
        settings = next_actions.settings_for(self, chosen)
        return self.fork(
            chosen.at,
            budget=settings.budget,
            stop=settings.stop,
            continuation=settings.continuation,
            terminating=settings.terminating,
            prompt=prompt,
        )
