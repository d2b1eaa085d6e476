"""Where a run comes from, and what comes from it: branches, the runs of sub-agents that its tools called, the way on from its end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from agentlab import events
from agentlab.budget import Budget
from agentlab.continuation import ContinuationPolicy
from agentlab.engine import call_context, next_actions
from agentlab.engine.next_actions import NextAction
from agentlab.engine.snapshot import RunPrefix
from agentlab.engine.stepper import Stepper
from agentlab.errors import AgentlabWarning, ConfigurationError
from agentlab.never_met import never_met, warn_of
from agentlab.no_such_name import helps_with_keywords
from agentlab.redaction import in_words
from agentlab.settings import LiveSettings, RunSettings, as_continuation, as_policy, as_terminating
from agentlab.stop import as_condition
from agentlab.terminating import TerminatingTools
from agentlab.termination import Policy

if TYPE_CHECKING:
    from agentlab.agent import Agent
    from agentlab.engine.client import Model
    from agentlab.providers.base import Provider
    from agentlab.tool_schema import Function
    from agentlab.tools import Tool
    from agentlab.transport import Transport


class Branching(Stepper):
    """The part of Run that knows of other runs. A branch shares steps with its parent; a child was called by a tool of its caller."""

    recall: Callable[[str, Agent, RunSettings], Self] | None = None
    """How a sub-agent's run of an earlier process is had back to go on; set by the store that this run came from."""
    recall_children: Callable[[Any], None] | None = None
    """How all of them are put back to be looked at, once they are asked for; set by that store too."""
    is_to_be_looked_at: bool = False
    """Whether this run was put back so."""

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
        agent: Agent | None = None,
        model: str | Provider | Model | None = None,
        prompt: str | None = None,
        message: str | None = None,
        tool_results: Mapping[str, str] | None = None,
    ) -> Self:
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
        call_context.refuse_too_deep()
        whole = RunPrefix(self.prompt, self.conversation, self.history, tuple(self._marks), self.prompt_at, self._first_length)
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
        if stop is not None:
            known = never_met(self.limits.snapshot(), self.agent)
            warn_of([remark for remark in never_met(settings, chosen, past.history) if remark not in known], stacklevel=3)
        if prompt is not None:
            past = past.with_prompt(prompt)
        if tool_results is not None:
            past = past.with_tool_results(tool_results)
        if message is not None:
            past = past.with_message(message)
        past = past.with_something_to_answer(settings.continuation.hint)
        branch = type(self)(
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
        branch.holds, branch.again = tuple([hold.at(at) for hold in self.holds]), self.again
        self._has_branch(branch)
        return branch

    def _take_over(self, past: RunPrefix) -> None:
        self._marks, self.prompt_at, self._first_length = list(past.marks), past.prompt_at, past.first_length

    @classmethod
    def as_it_was(
        cls,
        agent: Agent,
        past: RunPrefix,
        settings: RunSettings,
        transport: Transport,
        *,
        run_id: str,
        happened: Sequence[events.Event] = (),
        parent_run_id: str | None = None,
        forked_at: int | None = None,
        parent_step: int | None = None,
        called_by: str | None = None,
    ) -> Self:
        """A run that was kept, after its last step, to go on from. Nobody observes it; the agent's observers observe its forks."""
        limits = LiveSettings(settings)
        run = cls(agent, past.prompt, past.conversation(), limits, transport, observers=agent.observers, history=past.history)
        run.observers = ()
        run._take_over(past)
        run.id = run.replay_key = run_id
        run.parent_run_id, run.forked_at, run.parent_step, run.called_by = parent_run_id, forked_at, parent_step, called_by
        run.events.extend(happened)
        return run

    def inherit(self, observer: events.RunObserver) -> None:
        """Have `observer` told of the runs that are forked from this one from now on, each from its beginning."""
        self._inherited = (*self._inherited, observer)

    @property
    def branches(self) -> tuple[Self, ...]:
        """The runs that were forked from this one, in order. Theirs have this one as `parent`, and `forked_at` steps of it.

        Example:
            >>> branch = ended.fork(at=2)
            >>> [one.forked_at for one in ended.branches]
            [2]
        """
        return tuple([one for one in self._descendants if one.parent is self])

    def watch_forks(self, listener: Callable[[Self], object]) -> Callable[[], None]:
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

    def branch_of(self, parent: Self) -> None:
        """This run, which was kept, is a branch of that one, which was kept too."""
        self.parent = parent
        parent._has_branch(self)

    def _has_branch(self, branch: Self) -> None:
        with self._owner.lock:
            self._descendants = _with(self._descendants, branch)
        for listener in self._fork_listeners:
            try:
                listener(branch)
            except Exception as error:
                told = f"A listener to forks raised {in_words(error)}. The fork holds."
                warnings.warn(told, AgentlabWarning, stacklevel=3)

    # Sub-agents -------------------------------------------------------------------------------------------------------------

    @property
    def children(self) -> tuple[Self, ...]:
        """The runs of sub-agents that this run's tools called (`agent.as_tool`), in order, the one under way included: their `limits`
        can be edited, and they can be stopped. Theirs have this one as `caller`, its step as `parent_step`, the tool call's id as
        `called_by`. Of a run that comes from a store those of earlier processes are among them, as far as they are kept.

        Example:
            >>> planner = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[brief.as_tool("scout")])
            >>> run = planner.run("?")
            >>> result = await run
            >>> [child.result.text for child in run.children]
            ['Paris.']
        """
        self._have_children_back()
        return self._children

    @property
    def descendants(self) -> tuple[Self, ...]:
        """Branches and sub-agents' runs together, in the order in which they were made."""
        self._have_children_back()
        return self._descendants

    def _have_children_back(self) -> None:
        """Those of earlier processes stand before those that were called since."""
        with self._owner.lock:
            put_back, self.recall_children = self.recall_children, None
            if put_back is not None:
                children, descendants = self._children, self._descendants
                self._children = self._descendants = ()
                try:
                    put_back(self)
                finally:
                    for one in children:
                        self._children = _with(self._children, one)
                    for one in descendants:
                        self._descendants = _with(self._descendants, one)

    @property
    def inherited(self) -> tuple[events.RunObserver, ...]:
        """The observers that the runs which come from this one begin with."""
        return self._inherited

    def called_from(self, caller: Self, step: int, call_id: str) -> None:
        """This run is a sub-agent's, started by a tool call of `caller`; one that is a branch stays a branch of its parent."""
        self.caller, self.parent_step, self.called_by = caller, step, call_id
        with caller._owner.lock:
            caller._children = _with(caller._children, self)
            if self.parent is None:
                self.parent_run_id = caller.id
                caller._descendants = _with(caller._descendants, self)

    @property
    def next_actions(self) -> tuple[NextAction, ...]:
        """What can be done about this run's end, the best first; empty while it goes on, and where there is nothing to do.

        Example:
            >>> run = endless.run("?", budget=lab.Budget(max_turns=2))
            >>> result = await run
            >>> [proposal.label for proposal in run.next_actions]
            ['Raise the turn limit to 4 and go on']
        """
        return next_actions.next_actions(self)

    def apply(self, proposal: NextAction | None = None, *, prompt: str | None = None) -> Self:
        """The branch that does what is proposed (without one the first of `next_actions`), not started.

        Raises ConfigurationError where nothing is proposed, with the reason, and where a new `prompt` is needed and missing.

        Example:
            >>> run = endless.run("?", budget=lab.Budget(max_turns=2))
            >>> (await run).stop_reason
            <StopReason.TURN_LIMIT: 'turn_limit'>
            >>> branch = run.apply()
            >>> branch.limits.max_turns
            4
        """
        chosen = next_actions.chosen(self, proposal, prompt)
        settings = next_actions.settings_for(self, chosen)
        return self.fork(
            chosen.at,
            budget=settings.budget,
            stop=settings.stop,
            continuation=settings.continuation,
            terminating=settings.terminating,
            prompt=prompt,
        )


B = TypeVar("B", bound=Branching)


def _with(runs: tuple[B, ...], run: B) -> tuple[B, ...]:
    """The runs and this one, which takes the place of one of its id that was there to be looked at."""
    if all(one.id != run.id for one in runs):
        return (*runs, run)
    return tuple([run if one.id == run.id else one for one in runs])
