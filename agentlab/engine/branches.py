"""The descendants of a run: its forks, and the child runs that its tools started."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, overload

from agentlab._internal.redaction import in_words
from agentlab.engine import call_context
from agentlab.engine.control import Control, PendingCall
from agentlab.engine.plan import Origin, RunPlan, SuspendedStep
from agentlab.engine.stepper import Stepper
from agentlab.engine.timeline import Timeline
from agentlab.engine.unreachable import never_met, warn_of
from agentlab.engine.worker import Worker
from agentlab.errors import AgentlabWarning, ConfigurationError
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import as_condition
from agentlab.limits.live import LiveSettings
from agentlab.limits.policies import ContinuationPolicy
from agentlab.limits.settings import RunSettings, as_approve, as_budget, as_continuation, as_policy, as_terminating
from agentlab.model.parts import Content
from agentlab.records import events
from agentlab.records.events import Event
from agentlab.records.history import RunHistory
from agentlab.records.result import RunResult


class RunLike(Protocol):
    """What the engine needs of a run; documented in `lab.Run`."""

    timeline: Timeline
    control: Control
    stepper: Stepper
    worker: Worker[Any, Any]
    branches: Branches[Any]

    @property
    def limits(self) -> LiveSettings:
        """The limits."""
        ...

    @property
    def id(self) -> str:
        """The id."""
        ...

    @property
    def agent(self) -> Any:
        """The agent."""
        ...

    @property
    def prompt(self) -> str:
        """The task."""
        ...

    @property
    def history(self) -> RunHistory:
        """The steps."""
        ...

    @property
    def events(self) -> Sequence[Event]:
        """The events so far."""
        ...

    @property
    def result(self) -> RunResult | None:
        """The result, None before the end."""
        ...

    @property
    def origin(self) -> Origin[Any]:
        """Where it came from."""
        ...


R = TypeVar("R", bound=RunLike)


class Branches(Sequence[R], Generic[R]):
    """The forks of a run, in order: `run.branches[0]`. `watch` reports new ones.

    `recall` restores a child run of an earlier process so that it can continue, `recall_children` loads all child runs. Both are set
    by the store that the run came from.

    Example:
        >>> branch = ended.fork(at=2)
        >>> [one.origin.forked_at for one in ended.branches]
        [2]
    """

    __slots__ = ("_children", "_descendants", "_listeners", "_run", "recall", "recall_children", "was_loaded")

    def __init__(self, run: R) -> None:
        self._run = run
        self._descendants: tuple[R, ...] = ()
        self._children: tuple[R, ...] = ()
        self._listeners: tuple[Callable[[R], object], ...] = ()
        self.recall: Callable[[str, Any, RunSettings], R] | None = None
        self.recall_children: Callable[[R], None] | None = None
        self.was_loaded: bool = False
        """True if this run was loaded from a store as a child, read-only."""

    @property
    def children(self) -> tuple[R, ...]:
        """The child runs. Those in a store are loaded on first access."""
        self._load_children()
        return self._children

    @property
    def descendants(self) -> tuple[R, ...]:
        """Forks and child runs, in the order in which they were made."""
        self._load_children()
        return self._descendants

    def watch(self, listener: Callable[[R], object]) -> Callable[[], None]:
        """Call `listener(branch)` after each fork, on the thread that made it; return a function that ends this.

        An exception from a listener becomes a warning and does not prevent the fork.

        Example:
            >>> seen = []
            >>> end = ended.branches.watch(seen.append)
            >>> branch = ended.fork(at=1)
            >>> seen == [branch]
            True
        """
        self._listeners = (*self._listeners, listener)

        def end() -> None:
            self._listeners = tuple([one for one in self._listeners if one is not listener])

        return end

    def add(self, branch: R) -> None:
        """Add a fork and notify the listeners."""
        with self._run.stepper.affinity.lock:
            self._descendants = _with(self._descendants, branch)
        for listener in self._listeners:
            try:
                listener(branch)
            except Exception as error:
                message = f"A listener for forks raised {in_words(error)}. The fork was made anyway."
                warnings.warn(message, AgentlabWarning, stacklevel=3)

    def add_child(self, child: R) -> None:
        """Add a child run. A fork of another child is listed below that child."""
        with self._run.stepper.affinity.lock:
            self._children = _with(self._children, child)
            if child.origin.parent is None:
                self._descendants = _with(self._descendants, child)

    def _load_children(self) -> None:
        """Load stored child runs, read-only, and put them before those that were started since."""
        with self._run.stepper.affinity.lock:
            load, self.recall_children = self.recall_children, None
            if load is not None:
                children, descendants = self._children, self._descendants
                self._children = self._descendants = ()
                try:
                    load(self._run)
                finally:
                    for one in children:
                        self._children = _with(self._children, one)
                    for one in descendants:
                        self._descendants = _with(self._descendants, one)

    # A sequence of the forks ------------------------------------------------------------------------------------------------

    def _forks(self) -> tuple[R, ...]:
        return tuple([one for one in self._descendants if one.origin.parent is self._run])

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[R, ...]: ...
    def __getitem__(self, index: int | slice) -> R | tuple[R, ...]:
        return self._forks()[index]

    def __len__(self) -> int:
        return len(self._forks())

    def __iter__(self) -> Iterator[R]:
        return iter(self._forks())

    def __eq__(self, other: object) -> bool:
        return self._forks() == (other._forks() if isinstance(other, Branches) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._forks())


def _with(runs: tuple[R, ...], run: R) -> tuple[R, ...]:
    """Return the runs with this one, which replaces a loaded run of the same id."""
    if all(one.id != run.id for one in runs):
        return (*runs, run)
    return tuple([run if one.id == run.id else one for one in runs])


def waiting_calls(run: Any) -> list[tuple[Any, PendingCall]]:
    """Return the calls that wait for approval, of a run and of its child runs that can go on, each with its run."""
    own = [(run, call) for call in run.control.approvals.pending] if run.result is None else []
    below = [child for child in run.children if child.result is None and not child.branches.was_loaded]
    return own + [found for child in below for found in waiting_calls(child)]


# Making them --------------------------------------------------------------------------------------------------------------------


def set_parent(run: R, parent: R) -> None:
    """Make a restored run a branch of a restored run."""
    run.stepper.context.origin = replace(run.origin, parent=parent)
    parent.branches.add(run)


def set_caller(run: R, caller: R, step: int, call_id: str) -> None:
    """Make a run the child of the run whose tool call started it. A fork stays a branch of its parent."""
    context = run.stepper.context
    origin = replace(context.origin, caller=caller, parent_step=step, called_by=call_id)
    if origin.parent is None:
        origin = replace(origin, parent_run_id=caller.id)
    context.origin, context.caller = origin, caller.stepper.context
    caller.branches.add_child(run)


def fork_plan(
    run: RunLike,
    at: int,
    *,
    budget: Budget | None = None,
    stop: object = None,
    policy: Any = None,
    continuation: ContinuationPolicy | None = None,
    terminating: Any = None,
    approve: Any = None,
    agent: Any = None,
    model: Any = None,
    prompt: Content | None = None,
    message: Content | None = None,
    tool_results: Mapping[str, Content] | None = None,
    waited: SuspendedStep | None = None,
) -> RunPlan:
    """Return the plan of a fork; see `Run.fork`. With `waited`, step `at` goes on where it waited for approval."""
    if agent is not None and model is not None:
        raise ConfigurationError("fork(agent=…, model=…): pass one of them; an agent has its model already.")
    if agent is not None and not hasattr(agent, "run_on"):
        raise ConfigurationError(f"fork(agent={agent!r}): pass an Agent, or a model alone as model=….")
    call_context.refuse_too_deep()
    context = run.stepper.context
    prefix = context.timeline.prefix().until(at)
    chosen = agent or (context.agent if model is None else context.agent.with_model(model))
    before = context.limits.snapshot()
    settings = replace(
        before,
        budget=before.budget if budget is None else as_budget(budget),
        stop=before.stop if stop is None else as_condition(stop),
        policy=before.policy if policy is None else as_policy(policy),
        continuation=before.continuation if continuation is None else as_continuation(continuation),
        terminating=before.terminating if terminating is None else chosen.known_terminating(as_terminating(terminating)),
        approve=before.approve if approve is None else as_approve(approve, chosen.tools),
    )
    if stop is not None or agent is not None:
        known = never_met(before, context.agent)
        warn_of([remark for remark in never_met(settings, chosen, prefix.history) if remark not in known], stacklevel=4)
    if prompt is not None:
        prefix = prefix.with_prompt(prompt)
    if tool_results is not None:
        prefix = prefix.with_tool_results(tool_results)
    if message is not None:
        prefix = prefix.with_message(message)
    prefix = prefix.answerable(settings.continuation.hint) if waited is None else prefix.reopened()
    return RunPlan(
        chosen,
        prefix,
        settings,
        context.transport,
        observers=context.timeline.inherited,
        origin=Origin(parent=run, forked_at=len(prefix.history), parent_run_id=run.id),
        events=() if waited is None else _until_it_waited(run, waited),
        holds=tuple([hold.at(at) for hold in context.holds]),
        again=context.again,
        approver=context.approver,
        suspended=waited,
    )


def _until_it_waited(run: RunLike, waited: SuspendedStep) -> list[Event]:
    """Return the events of the step that waited, without its end and the decisions on calls that were not executed."""
    open_calls = {call.call_id for call in waited.asked}
    return [
        event
        for event in run.events
        if getattr(event, "step", None) == waited.step.index
        and not (isinstance(event, events.ApprovalGiven) and event.call_id in open_calls)
    ]
