"""A run: an agent working on one prompt, and everything a person can do with it. Its parts are in `agentlab.engine`.

    step = await run.step()          one step
    async for step in run: …         the remaining steps, one by one
    result = await run               to the end
    run.start()                      in the background; the cell returns at once
    run.pause()  run.resume()  run.stop("enough")  run.cancel()
    run.limits.max_cost = 0.10       at any time
    branch = run.fork(at=3)          a branch from step 3 on
    branch = run.apply()             a branch with a raised limit or a repeated step; see run.next_actions

`await` in a notebook cell keeps the kernel's main thread busy with the run. That is right for scripts and tests, but clicks in the
panel may not arrive meanwhile. `start()` is for live control.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, cast, overload

from agentlab._internal.asyncio_tools import needs_await
from agentlab._internal.display import Displayable
from agentlab._internal.formatting import counted
from agentlab._internal.names import helps_with_keywords
from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import one_line
from agentlab.engine import call_context, next_actions
from agentlab.engine.branches import Branches, fork_plan, waiting_calls
from agentlab.engine.client import Model
from agentlab.engine.control import Approval, Control, PendingCall
from agentlab.engine.next_actions import NextAction
from agentlab.engine.plan import AgentSpec, Origin, RunPlan
from agentlab.engine.stepper import Stepper
from agentlab.engine.termination import Policy
from agentlab.engine.timeline import Timeline
from agentlab.engine.worker import RunState, Worker
from agentlab.errors import AgentlabWarning, ConfigurationError
from agentlab.limits.budget import Budget
from agentlab.limits.live import LiveSettings
from agentlab.limits.policies import ContinuationPolicy, TerminatingTools
from agentlab.model.messages import Message
from agentlab.model.parts import Content
from agentlab.providers.base import Provider
from agentlab.records.events import Event, RunObserver
from agentlab.records.history import RunHistory
from agentlab.records.provenance import Provenance, provenance_of
from agentlab.records.result import Out, RunResult
from agentlab.records.step import StepResult
from agentlab.tools import Function, Tool

A = TypeVar("A", bound=AgentSpec)


class Run(Displayable, Generic[A, Out]):
    """A run of an agent of class A, whose output is an Out. `lab.Run` is the `Run[Agent[Out], Out]` in `agentlab.agent`, since the two
    classes refer to each other."""

    timeline: Timeline
    control: Control
    stepper: Stepper
    worker: Worker[StepResult | None, RunResult[Out]]
    branches: Branches[Self]

    def __init__(self: Self, plan: RunPlan) -> None:
        parts = vars(self)
        parts["timeline"] = timeline = Timeline(plan.prefix, plan.run_id or os.urandom(6).hex(), plan.observers, plan.inherited)
        parts["control"] = control = Control()
        parts["stepper"] = stepper = Stepper(plan, timeline, control, self)
        parts["worker"] = Worker(stepper)
        parts["branches"] = Branches(self)
        call_context.announce(self)

    # State ------------------------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id of the run in frames and stores.

        Example:
            >>> run.id == run.timeline.events[0].run_id if run.events else len(run.id)
            12
        """
        return self.stepper.context.run_id

    @property
    def limits(self) -> LiveSettings:
        """The limits, which can be read and set while the run goes on.

        Example:
            >>> run.limits.max_turns = 5
            >>> run.limits.max_turns
            5
        """
        return self.stepper.context.limits

    @property
    def agent(self) -> A:
        """The agent.

        Example:
            >>> run.agent.name
            'anthropic:claude-sonnet-4-6'
        """
        return cast("A", self.stepper.context.agent)

    @property
    def prompt(self) -> str:
        """The task.

        Example:
            >>> brief.run("What is the capital of France?").prompt
            'What is the capital of France?'
        """
        return self.timeline.prompt

    @property
    def origin(self) -> Origin[Self]:
        """Where the run came from: `parent` and `forked_at` of a fork, `caller` and `parent_step` of a child run.

        Example:
            >>> run.origin.parent is None
            True
        """
        return self.stepper.context.origin

    @property
    def state(self) -> RunState:
        """The state of the run: ready, running, paused, waiting for approval, or ended.

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
        """The conversation so far; `run.timeline.messages_of(2)` returns the messages that step 2 added.

        Example:
            >>> [message.role for message in ended.messages[:3]]
            ['user', 'assistant', 'tool']
        """
        return self.timeline.conversation.view()

    @property
    def events(self) -> list[Event]:
        """The events so far, without TextReceived.

        Example:
            >>> type(ended.events[0]).__name__
            'RunStarted'
        """
        return self.timeline.events

    @property
    def result(self) -> RunResult[Out] | None:
        """The result once the run has ended; None before.

        Example:
            >>> run.result is None, ended.result.stop_reason
            (True, <StopReason.STOP_CONDITION: 'stop_condition'>)
        """
        return self.stepper.context.result

    @property
    def provenance(self) -> Provenance:
        """What made the run so far: versions, the git commit, the model as its responses name it, parameters, recordings, hashes.

        Example:
            >>> ended.provenance.recordings, ended.provenance.base_url
            (('anthropic.yaml',), 'https://api.anthropic.com')
        """
        model = self.stepper.context.agent.model
        return provenance_of(model.name, model.model, self.stepper.context.setup.get(), self.history)

    @property
    def output(self) -> Out | None:
        """The output of the result; None before the end, and if the run was cut off.

        Example:
            >>> clerk = lab.Agent(ScriptedProvider([call("final_answer", {"city": "Graz", "days": 2})]), output=Trip)
            >>> run = clerk.run("Where, and for how long?")
            >>> result = await run
            >>> run.output
            Trip(city='Graz', days=2)
        """
        return None if self.result is None else self.result.output

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The tool calls that wait for approval, also of child runs; see `approve`.

        Example:
            >>> run.limits.approve = ["get_*"]
            >>> result = await run
            >>> result.stop_reason, [call.tool for call in run.pending]
            (<StopReason.AWAITING_APPROVAL: 'awaiting_approval'>, ['get_weather', 'get_weather'])
        """
        return tuple([call for _, call in waiting_calls(self)])

    @property
    def children(self) -> tuple[Self, ...]:
        """The child runs that this run's tools started (`agent.as_tool`), in order, including those under way.

        Their `limits` can be edited, and they can be stopped. Their `origin` has this run as `caller`, its step as `parent_step` and
        the tool call's id as `called_by`. A run from a store also has the stored child runs of earlier processes.

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
        from agentlab.records.frames import to_frame

        return to_frame(self, what)

    def panel(self) -> Any:
        """Return the live panel of this run in a notebook; without a front end, a static table and picture.

        Example:
            >>> ended.panel()
            Panel(Run(anthropic:claude-sonnet-4-6, ended, stop_condition, 4 steps, Budget(max_turns=20)))
        """
        from agentlab.notebook.panel import panel

        return panel(cast(Any, self))

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
        from agentlab.notebook.page import to_html

        return to_html([cast(Any, self)], path, timing=timing, raw=raw)

    def __dir__(self) -> list[str]:
        """The names for a person; the parts that do the work are left out."""
        return [name for name in super().__dir__() if name not in ("stepper", "worker", "control", "timeline")]

    def __repr__(self) -> str:
        end = f", {self.result.stop_reason}" if self.result is not None else ""
        name, budget = one_line(self.agent.name), self.limits.snapshot().budget
        return f"Run({name}, {self.state}{end}, {counted(len(self.history), 'step')}, {budget!r})"

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __setattr__(self, name, value):
            raise AttributeError(
                f"run.{name} cannot be set. Change the limits of this run by run.limits, such as run.limits.max_turns = 5 or "
                "run.limits.stop = StepCountIs(8); for anything else, fork the run or start another one.",
                name=name,
                obj=self,
            )

        def __getattr__(self, name):
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name == "settings":
                message = "A run has no 'settings': write run.limits."
            elif name in Origin.__slots__:
                message = f"A run has no {name!r}: write run.origin.{name}."
            elif not name.startswith("_") and hasattr(RunResult, name):
                ended = self.result is not None
                where = f"run.result.{name}" if ended else f"`result = await run`, then result.{name}"
                now = "run.history for the steps so far, or " if name == "steps" else ""
                message = (
                    f"A run has no {name!r}; its result has, {'and ' if ended else 'once '}the run has ended: write {now}{where}."
                )
            raise AttributeError(message, name=name, obj=self)

        def __getitem__(self, place):  # also called by `for step in run`
            raise TypeError(
                "A run is not a list: write `async for step in run`, or run.start() to take all steps in the background. "
                "run.history has the steps so far."
            )

    # Steps and control ------------------------------------------------------------------------------------------------------

    def with_id(self, run_id: str, *, label: str = "") -> Self:
        """Set the id of a run that has not begun, and optionally its `label` in recordings (see `lab.replay`): the run is recorded with
        that label, and replayed from the start of the recording with that label.

        Raises ConfigurationError if the run has begun, or if the id or label contains a key.

        Example:
            >>> brief.run("?").with_id("monday").id
            'monday'
        """
        stepper = self.stepper
        if stepper.has_begun:
            raise ConfigurationError(f"with_id({run_id!r}): the run {self.id!r} has begun already.")
        if (hidden := redact(f"{run_id} {label}".strip())) != f"{run_id} {label}".strip():
            raise ConfigurationError(f"with_id: {hidden!r} contains a key, but ids and labels of runs are written to files.")
        stepper.context.replay_key = f"{os.urandom(6).hex()}#{label}" if label else run_id
        stepper.timeline.run_id = run_id
        approvals = stepper.control.approvals
        approvals.ask([replace(call, run_id=run_id) for call in approvals.pending])
        return self

    @needs_await("run.step()")
    async def step(self) -> StepResult | None:
        """Take one step, also during a pause. Returns None if the run ended without another one, or waits for approval.

        Raises RunEndedError after the end, and MissingKeyError before the first step (the run stays ready). A ConfigurationError or a
        FixtureError within the step is raised after the step is recorded.

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
        """Yield the remaining steps, each taken on request."""
        async for step in self.worker.each():
            if step is not None:
                yield step

    def __await__(self) -> Generator[Any, None, RunResult[Out]]:
        """Run to the end and return the result, whatever the reason of the end."""
        if self.stepper.has_ended and next_actions.edited_since(self):
            message = "The run has ended and has the same result as before: with the edited limits, await run.apply() continues."
            warnings.warn(message, AgentlabWarning, stacklevel=2)
        return self.worker.to_the_end().__await__()

    def start(self, loop: Literal["background", "kernel"] = "background") -> Self:
        """Run to the end in the background and return at once, so that the panel is live.

        Without a front end, block until the end, or until the run waits for approval, so that executed notebooks are deterministic.
        `loop="kernel"` runs on the caller's event loop, for clients that are bound to it. A browser has no threads, so there every run
        does, and start() returns at once: `await run` for the result.

        Example:
            >>> run = brief.run("?").start()  # without a front end it has ended when this returns
            >>> run.result.text
            'Paris.'
        """
        if loop not in ("background", "kernel"):
            raise ConfigurationError(f"start(loop={loop!r}): choose 'background' or 'kernel'.")
        if loop == "kernel":
            self.worker.start_here()
        else:
            self.worker.start()
        return self

    def wait(self, timeout_s: float | timedelta | None = None) -> RunResult[Out] | None:
        """Block until a run started in the background has ended and return its result; None after `timeout_s`.

        Example:
            >>> run = brief.run("?").start()
            >>> run.wait(timeout_s=5).text
            'Paris.'
        """
        return self.worker.wait(timeout_s)

    def pause(self) -> None:
        """Wait before the next step, until `resume()`. The time does not count against the timeout. While a call waits for approval,
        the pause stops the time at once.

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
        """End the pause.

        Example:
            >>> run.pause()
            >>> run.resume()
            >>> run.control.pausing
            False
        """
        self.stepper.resume()

    def approve(
        self,
        call: str | PendingCall | None = None,
        *,
        arguments: Mapping[str, Any] | str | None = None,
        answer: str | None = None,
        refuse: str | None = None,
    ) -> None:
        """Decide on one of the `pending` tool calls, given itself or by its id, or on all of them; from any thread.

        arguments   call the tool with these arguments, which replace all arguments of the call
        answer      do not call the tool; the model reads this text as its result
        refuse      do not call the tool; the model reads this text as an error

        A run with a person there goes on at once, any other with the next `await`. Raises ConfigurationError if no such call
        waits, or if the arguments do not fit the tool; the call then still waits.

        Example:
            >>> run.limits.approve = ["get_*"]
            >>> (await run).truncated, run.state
            (True, <RunState.WAITING: 'waiting'>)
            >>> run.approve(run.pending[0], answer="Sunny.")
            >>> run.approve(refuse="Not that city.")
            >>> step = await run.step()
            >>> step.tool_results[1].content
            'The person refused: Not that city.'
        """
        given = {
            name: value for name, value in (("arguments", arguments), ("answer", answer), ("refuse", refuse)) if value is not None
        }
        if len(given) > 1:
            raise ConfigurationError(f"approve({', '.join(f'{name}=…' for name in given)}): pass one of them.")
        waiting = waiting_calls(self)
        known = ", ".join(f"{one.call_id!r} ({one.tool})" for _, one in waiting) or "none"
        chosen = [(run, one) for run, one in waiting if call is None or call in (one, one.call_id)]
        if not chosen:
            what = "" if call is None else repr(getattr(call, "call_id", call))
            raise ConfigurationError(f"approve({what}): no such call waits for approval. Pending: {known}.")
        if len(chosen) > 1 and (call is not None or arguments is not None or answer is not None):
            raise ConfigurationError(f"approve(…): {len(chosen)} calls wait; name one of run.pending. Pending: {known}.")
        approval = Approval.allow(arguments)
        if answer is not None:
            approval = Approval.answer(answer)
        elif refuse is not None:
            approval = Approval.refuse(refuse)
        for run, one in chosen:
            run.stepper.decide(one.call_id, run.stepper.checked(one, approval))

    def stop(self, reason: str = "no reason given") -> None:
        """End the run after the step under way, or at once if there is none. A run that has ended stays as it is.

        Example:
            >>> step = await run.step()
            >>> run.stop("seen enough")
            >>> run.result.stop_reason, run.result.detail
            (<StopReason.EXPLICIT_STOP: 'explicit_stop'>, 'Stopped by the person: seen enough')
        """
        self.stepper.stop(reason)

    def cancel(self) -> None:
        """End the run at once, even during a step; responses and tool results so far are recorded.

        Example:
            >>> await run.step()
            StepResult(1, tool_calls, tools=['get_weather', 'get_weather'], tokens=637, cost_usd=0.003207)
            >>> run.cancel()
            >>> run.result
            RunResult(cancelled, truncated, 1 step, 'Cancelled after step 1.', text="I'll look at the forecast for both ci...
        """
        self.stepper.cancel()

    def observe(self, observer: RunObserver) -> Callable[[], None]:
        """Notify `observer` of every event of this run from now on, but not of its forks; return a function that ends this.

        Example:
            >>> seen = []
            >>> end = run.observe(lambda event: seen.append(type(event).__name__))
            >>> step = await run.step()
            >>> end()
            >>> seen[:3], seen[-1]
            (['RunStarted', 'StepStarted', 'TextReceived'], 'StepCompleted')
        """
        return self.timeline.observe(observer)

    # Branches ---------------------------------------------------------------------------------------------------------------

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
        approve: object = None,
        agent: A | None = None,
        model: str | Provider | Model | None = None,
        prompt: Content | None = None,
        message: Content | None = None,
        tool_results: Mapping[str, Content] | None = None,
    ) -> Self:
        """Return a new run, not started, that shares the first `at` steps (0 to all). This run stays as it is.

        budget, stop, policy, continuation, terminating, approve   other settings; by default the current ones of this run
        agent           another agent
        model           the same agent (tools, instructions, defaults) on another model
        prompt          another task instead of this run's; the kept steps are unchanged
        message         a further message to the model after the kept steps
        tool_results    other results for the tools of step `at`: {call id: text, or a list of texts and parts}

        Most providers reject a conversation that ends with the model's answer. If the answer was cut off, the continuation policy's
        `hint` is appended. If the model had finished and all steps are kept, a ConfigurationError asks for a `message` or for fewer
        steps.

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
            approve=approve,
            agent=agent,
            model=model,
            prompt=prompt,
            message=message,
            tool_results=tool_results,
        )
        return self._branch(plan)

    @property
    def next_actions(self) -> tuple[NextAction, ...]:
        """The actions after the end of the run, the best first; empty before the end, and if there is nothing to do.

        Example:
            >>> run = endless.run("?", budget=lab.Budget(max_turns=2))
            >>> result = await run
            >>> [action.label for action in run.next_actions]
            ['Raise the turn limit to 4 and continue']
        """
        return next_actions.next_actions(self)

    def apply(self, action: NextAction | None = None, *, prompt: Content | None = None) -> Self:
        """Return a branch, not started, that carries out one of `next_actions`, by default the first.

        If the timeout ended the run while a call waited for approval, the branch begins with this step, and asks about the same call.
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
        plan = fork_plan(
            self,
            chosen.at,
            budget=settings.budget,
            stop=settings.stop,
            continuation=settings.continuation,
            terminating=settings.terminating,
            approve=settings.approve,
            prompt=prompt,
            waited=next_actions.step_that_waited(self, chosen.at),
        )
        return self._branch(plan)

    def _branch(self, plan: RunPlan) -> Self:
        branch = type(self)(plan)
        self.branches.add(branch)
        return branch
