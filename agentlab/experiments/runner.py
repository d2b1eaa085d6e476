"""Runs one cell of an experiment: starts or resumes its run, takes it to its end, and scores it. A second call changes nothing.

`run_cell` is for this process; `in_worker` is its counterpart for another process, with pickled arguments.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import pickle
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from agentlab._internal.redaction import Redactor
from agentlab.agent import Agent, Ask, Run
from agentlab.engine import call_context
from agentlab.engine.client import HttpModel
from agentlab.engine.worker import result_of
from agentlab.errors import ConfigurationError, LimitError, StorageError
from agentlab.experiments.identity import MADE_BY, with_task
from agentlab.experiments.scorers.base import Scorer
from agentlab.experiments.scoring import MORE_SCORES, SCORE_NOTE, OtherRuns, is_stale, missing_usage_setting, score_of, version_of
from agentlab.experiments.shared_budget import (
    BESIDE,
    CUT_OFF,
    RUN,
    SCORE,
    TOOLS,
    SharedBudget,
    Spent,
    note_beside,
    spent_before,
    spent_by,
    spent_in,
)
from agentlab.experiments.tasks import Tasks
from agentlab.limits.budget import Budget
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import ModelRequest, ToolCall, ToolResult
from agentlab.model.parts import as_text
from agentlab.model.responses import ModelResponse
from agentlab.records import events
from agentlab.records.result import RunResult
from agentlab.records.step import StepResult
from agentlab.storage import MemoryStorage, StoredRun, StoredStep
from agentlab.storage.loader import RESUMED_NOTE, SUB_AGENTS_NOTE, find
from agentlab.storage.store import ENDED, INTERRUPTED, OPEN, Store
from agentlab.storage.writer import NOBODY, RunWriter, save_together, secrets_of, store_note
from agentlab.transport import Switch, Transport
from agentlab.transport.http import HttpAnswer, HttpRequest

FAILED = (StopReason.ERROR.value, StopReason.CANCELLED.value)

NOT_STARTED = "not_started"

NOTES = (SCORE_NOTE, MORE_SCORES, BESIDE, MADE_BY, RESUMED_NOTE)
"""The notes that are sent with a run to another process and back."""

QUIET_TURNS, SAVE_WITHIN_S = 4, 0.1
"""A step waits for those of other runs, to be saved with them, until so many turns of the loop bring none, and so long at most."""

WAIT_FOR_OTHERS_S = 5.0
"""The time to wait for a run that another process is running."""


@dataclass(frozen=True, slots=True)
class Common:
    """The parts that all cells of an experiment share. `store` is None if a worker cannot reach the store; `made_by` has the identity
    of runs by agent and settings, `scored_by` that of the score function."""

    agents: Mapping[str, Agent]
    tasks: Tasks
    settings: Mapping[str, Mapping[str, Any]]
    transport: Transport
    store: Store | None
    score: Scorer | None
    made_by: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    scored_by: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One cell to run. With `again` a failed score is computed again.

    For another process, `lease` is the budget of the run there, counted from the beginning of the run (but its timeout from
    `leased_at`, in seconds since 1970), `spent` the usage so far, and `before` the stored run if a worker cannot read it.
    """

    run_id: str
    label: str
    agent: str
    settings: str
    prompt_id: str
    provider: str = ""
    interval_s: float | None = None
    again: bool = False
    lease: Budget | None = None
    leased_at: float = 0.0
    spent: Mapping[str, Spent] = field(default_factory=dict)
    before: RunCopy | None = None


@dataclass(frozen=True, slots=True)
class RunCopy:
    """A stored run as texts, sent to or by a worker that cannot reach the store. `more` are the runs of its sub-agents."""

    run: StoredRun
    steps: tuple[StoredStep, ...]
    notes: Mapping[str, str] = field(default_factory=dict)
    more: tuple[RunCopy, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a cell. `state` is that of its run, `spent` its usage by purpose; `problem` is an error outside of the run,
    `held_back` the reason if the budget of the experiment stopped the run or its score."""

    run_id: str
    state: str
    spent: Mapping[str, Spent] = field(default_factory=dict)
    stop_reason: str | None = None
    problem: str = ""
    held_back: str = ""
    run_copy: RunCopy | None = None

    @property
    def failed(self) -> bool:
        """True if the run has no result that can be compared."""
        return self.stop_reason in FAILED or bool(self.problem)


async def run_cell(
    common: Common, job: Job, shared_budget: SharedBudget, limiter: RateLimiter | None = None, saver: Saver | None = None
) -> Outcome:
    """Run the cell to its end and store its score. If the shared budget is spent, release the run after a step. Cells that run at the
    same time share the `saver`. Raises StorageError if the run cannot be stored."""
    if common.store is None:
        raise ConfigurationError("This process has no store.")
    with common.transport if isinstance(common.transport, Switch) else nullcontext():  # for agents that tools and scores run
        return await _run_cell(common, common.store, job, shared_budget, limiter, saver=saver or Saver(common.store))


async def _run_cell(
    common: Common, store: Store, job: Job, shared_budget: SharedBudget, limiter: RateLimiter | None, *, saver: Saver
) -> Outcome:
    stored = await _wait_until_free(store, job.run_id)
    state = None if stored is None else store.state_of(stored)
    if state == OPEN:
        return Outcome(job.run_id, OPEN, problem="Another process is running it.")
    if stored is not None and state == ENDED:
        result, reason = None, json.loads(stored.end or "{}").get("stop_reason")
        for part, spent in spent_before(store.storage, [stored])[job.run_id].items():
            shared_budget.book(job.run_id, spent, part)
    else:
        run, observer = _run(common, store, job, stored, shared_budget)
        apply_rate_limit(run, limiter)
        try:
            end = await _to_the_end(run, observer, shared_budget, saver, is_new=stored is None)
        except asyncio.CancelledError:  # perhaps before its first step, of which observers would be notified
            store.let_go(run)
            raise
        if isinstance(end, Outcome):
            return end
        result, reason = end, end.stop_reason.value
        if store.unsaved.get(job.run_id) is not None:
            store.save()
    held_back = ""
    if common.score is not None and reason not in FAILED and _wants_score(common, store, job):
        if result is None:
            result = store.load(job.run_id, common.agents[job.agent]).result
        if result is not None:
            judges = OtherRuns(store.storage, job.run_id, shared_budget, SCORE, refuse=True)
            task = common.tasks[job.prompt_id]
            score = await score_of(common.score, result, task, version_of(common.scored_by, common.score, task), judges)
            held_back = judges.refused
            if score is not None:
                store_note(store.storage, job.run_id, SCORE_NOTE, score)
    return Outcome(job.run_id, ENDED, shared_budget.parts(job.run_id), reason, held_back=held_back)


async def _to_the_end(
    run: Run, observer: _CellObserver, shared_budget: SharedBudget, saver: Saver, *, is_new: bool
) -> RunResult | Outcome:
    """Take the steps of a run and save each; return its result, or an outcome if the shared budget is spent before its end."""
    of_tools = OtherRuns(observer.store.storage, run.id, shared_budget, TOOLS, refuse=False)
    while run.result is None:
        if why := shared_budget.spent_up():
            run.cancel()  # observers are notified of an end, but the store releases the run, so it can be resumed
            state = INTERRUPTED if len(run.history) else NOT_STARTED
            return Outcome(run.id, state, shared_budget.parts(run.id), held_back=why)
        if is_new:  # after that check: a run that takes no step is not stored
            await saver.begin(observer, run)
            is_new = False
        with call_context.watched(of_tools):
            await run.stepper.step_quietly()
            run.stepper.end_waiting()
        if not _was_cancelled(run):  # an interrupted step is booked already
            shared_budget.book(run.id, spent_by(run.history))
        await saver.save(observer)
    return run.result


async def _wait_until_free(store: Store, run_id: str) -> StoredRun | None:
    """Return the stored run when no other process is running it, or after WAIT_FOR_OTHERS_S in any state."""
    deadline = asyncio.get_running_loop().time() + WAIT_FOR_OTHERS_S
    while True:
        stored = find(store.storage, run_id)
        if stored is None or store.state_of(stored) != OPEN or asyncio.get_running_loop().time() >= deadline:
            return stored
        await asyncio.sleep(0.05)


def detail_of(stored: StoredRun | None) -> str:
    """Return a sentence on why a run ended."""
    return "" if stored is None or stored.end is None else str(json.loads(stored.end)["detail"])


# The run ------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _CellObserver:
    """Records the runs of a cell in a store: the steps of its own run are saved by `Saver`, those of sub-agents at once. A cancelled
    run is released as interrupted, so it can be resumed."""

    store: Store
    shared_budget: SharedBudget
    run_id: str
    made_by: Mapping[str, Any] | None
    due: tuple[RunWriter, events.Event] | None = None
    begun_by: RunWriter | None = None
    has_note: bool = False

    def follow_run(self, run: Run) -> Callable[[events.Event], None]:
        """Return the observer of this run."""
        return functools.partial(self._observe, run, self.store.follow_run(run))

    def __call__(self, event: events.Event) -> None:
        """Do nothing: an event does not name its run."""

    def _observe(self, run: Run, writer: RunWriter, event: events.Event) -> None:
        store = self.store
        if isinstance(event, events.StepCompleted) and event.step.stop_reason is StopReason.CANCELLED:
            store.let_go(run)
            if run.origin.caller is None:
                self._book_interrupted(run, event.step)
        elif isinstance(event, events.RunEnded) and event.result.stop_reason is StopReason.CANCELLED:
            store.let_go(run)
        elif isinstance(event, events.StepCompleted | events.RunEnded) and run.id == self.run_id:
            self.due = writer, event
        else:
            writer(event)
            is_new = isinstance(event, events.RunStarted) and not run.history  # a resumed run has its note already
            if is_new and run.origin.caller is None and run.id not in store.unsaved:
                self.note(run)

    def note(self, run: Run) -> None:
        """Note what a new run is made by."""
        if self.made_by and not self.has_note:
            store_note(self.store.storage, run.id, MADE_BY, self.made_by, Redactor(secrets_of(run.agent)).text)
            self.has_note = True

    def _book_interrupted(self, run: Run, step: StepResult) -> None:
        """Book the usage of a step that was interrupted and is not stored: it will be taken again."""
        lost = self.shared_budget.parts(run.id).get(CUT_OFF, Spent()) + spent_in(step)
        self.shared_budget.book(run.id, lost, CUT_OFF)
        note_beside(self.store.storage, run.id, CUT_OFF, lost)


class Saver:
    """Saves the steps that the runs of a store complete at the same time in one transaction, which takes about as long as the save of
    one step. Each run waits for it: its next step begins when the last one is durable.

    If the transaction fails, or the storage has none, each run is saved by itself, with a warning about those that cannot be saved.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: dict[RunWriter, tuple[Callable[[], None] | None, events.Event | None]] = {}
        self._saved: asyncio.Future[None] | None = None

    async def begin(self, observer: _CellObserver, run: Run) -> None:
        """Store a new run before its first step. If this fails, the start of the run stores it."""
        if hasattr(self._store.storage, "together"):
            observer.begun_by = self._store.follow_run(run)  # which is kept until the run has it as an observer
            await self._wait(observer.begun_by, lambda: observer.note(run), None)

    async def save(self, observer: _CellObserver) -> None:
        """Save the newest step of a run, and its end."""
        due, observer.due = observer.due, None
        if due is not None:
            await self._wait(due[0], None, due[1])

    async def _wait(self, writer: RunWriter, beside: Callable[[], None] | None, event: events.Event | None) -> None:
        self._due[writer] = beside, event
        if self._saved is None:
            loop = asyncio.get_running_loop()
            self._saved = loop.create_future()
            loop.call_soon(self._save_when_quiet, loop, loop.time() + SAVE_WITHIN_S, 0, QUIET_TURNS)
        try:
            await asyncio.shield(self._saved)
        except asyncio.CancelledError:
            self._save()
            raise

    def _save_when_quiet(self, loop: asyncio.AbstractEventLoop, until_s: float, before: int, turns: int) -> None:
        """Save when the next turns of the loop have brought no further step."""
        turns = QUIET_TURNS if len(self._due) > before else turns - 1
        if turns and loop.time() < until_s:
            loop.call_soon(self._save_when_quiet, loop, until_s, len(self._due), turns)
        else:
            self._save()

    def _save(self) -> None:
        due, saved, self._due, self._saved = self._due, self._saved, {}, None
        if saved is None:
            return
        try:
            if not save_together(self._store.storage, {writer: beside for writer, (beside, _) in due.items()}):
                for writer, (_, event) in due.items():
                    if event is not None:
                        writer(event)
        except BaseException as error:
            saved.set_exception(error)
        else:
            saved.set_result(None)


def _run(
    common: Common, store: Store, job: Job, stored: StoredRun | None, shared_budget: SharedBudget
) -> tuple[Run, _CellObserver]:
    """Return the run of the cell, new or resumed, with the store as observer."""
    agent, task = common.agents[job.agent], common.tasks[job.prompt_id]
    made_by = with_task(common.made_by.get((job.agent, job.settings)), task)
    observer = _CellObserver(store, shared_budget, job.run_id, made_by)
    fresh = agent.run(task.prompt, transport=common.transport, observers=[observer], **common.settings[job.settings])
    if stored is None:
        run = fresh.with_id(job.run_id, label=job.label)
        run.timeline.forget(store)  # if the agent has the store as observer too, the run would be recorded twice
    else:
        settings = fresh.limits.snapshot()  # has the functions, which are not stored
        run = store.resume(job.run_id, agent, stop=settings.stop, policy=settings.policy)
        run.with_id(job.run_id, label=job.label).stepper.context.transport = common.transport
        following = observer.follow_run(run)
        timeline = run.timeline
        timeline.observers = (*[one for one in timeline.observers if not isinstance(one, RunWriter)], following)
    run.stepper.context.parent_limit = missing_usage_setting(shared_budget)
    if task.tools:
        run.stepper.context.agent = copy.copy(run.agent)
        run.stepper.context.agent.tool_middleware = (*run.agent.tool_middleware, _ResultsOfTask(task.tools, run))
    return run, observer


class _ResultsOfTask:
    """A tool middleware that returns a task's results of tools, and calls the other tools."""

    def __init__(self, results: Mapping[str, Any], run: Run) -> None:
        done = [result.name for step in run.history for result in step.tool_results]
        self._results, self._used = results, Counter(name for name in done if name in results)

    async def __call__(self, call: ToolCall, execute: Callable[[ToolCall], Awaitable[ToolResult]]) -> ToolResult:
        """Return the next result of the tool; of a list, the last one again and again."""
        if call.name not in self._results:
            return await execute(call)
        value, place = self._results[call.name], self._used[call.name]
        self._used[call.name] += 1
        value = value[min(place, len(value) - 1)] if isinstance(value, list) and value else value
        return ToolResult(call.id, call.name, as_text(value), value)


def _was_cancelled(run: Run) -> bool:
    return run.result is not None and run.result.stop_reason is StopReason.CANCELLED


def _wants_score(common: Common, store: Store, job: Job) -> bool:
    noted = store.storage.notes(SCORE_NOTE, [job.run_id]).get(job.run_id)
    if noted is None:
        return True
    before = json.loads(noted)
    by = version_of(common.scored_by, common.score, common.tasks[job.prompt_id])
    return (job.again and "error" in before) or is_stale(before, by)


# Another process ------------------------------------------------------------------------------------------------------------------


def packed(value: object) -> bytes:
    """Return a value as bytes for another process. Functions of a notebook need cloudpickle. Raises ConfigurationError."""
    try:
        import cloudpickle  # type: ignore[import-not-found, unused-ignore]  # with the extra `cluster`
    except ImportError:
        cloudpickle = None
    try:
        packed_value: bytes = pickle.dumps(value) if cloudpickle is None else cloudpickle.dumps(value)
    except Exception as error:
        hint = " Functions of a notebook need the extra agentlab-jupyter[cluster]." if cloudpickle is None else ""
        raise ConfigurationError(
            f"A part of the experiment cannot be sent to another process: {type(error).__name__}: {error}. Make agents, tools, stop "
            f"conditions, scores and observers picklable, or leave `executor` out.{hint}"
        ) from error
    return packed_value


@functools.lru_cache(maxsize=4)
def _unpacked(common: bytes) -> Common:
    """Unpickle once per experiment and process, since recordings may be large."""
    common_parts: Common = pickle.loads(common)  # noqa: S301  from the process that started this one
    return common_parts


def in_worker(common: bytes, job: Job) -> Outcome:
    """Run a cell in a process of an executor, on the background thread of that process, so that connections are reused."""
    shared = _unpacked(common)
    limiter = None if job.interval_s is None else RateLimiter(job.interval_s)
    return result_of(_in_worker(shared, job, limiter))


async def _in_worker(common: Common, job: Job, limiter: RateLimiter | None) -> Outcome:
    shared_budget = SharedBudget(job.lease, None, {job.run_id: job.spent}, elapsed_s=time.time() - job.leased_at)
    if common.store is not None:
        try:
            return await run_cell(common, job, shared_budget, limiter)
        except StorageError as error:
            outcome = _rescued(common.store, job, error)
            if outcome is None:
                raise
            return outcome
    here = Store()
    if job.before is not None:
        import_run(here, job.before)
    outcome = await run_cell(replace(common, store=here), job, shared_budget, limiter)
    return replace(outcome, run_copy=copy_run(here, job.run_id))


def _rescued(store: Store, job: Job, error: StorageError) -> Outcome | None:
    """Return the outcome with a copy of a run that could not be stored, such as on a full disk; None if the run has not ended."""
    run = store.unsaved_run(job.run_id)
    if run is None or run.result is None:
        return None
    here = Store()
    for one in (run, *_below(run)):
        here.keep(one)
        store.let_go(one)
    reason = run.result.stop_reason.value
    spent, sent = {RUN: spent_by(run.history)}, copy_run(here, job.run_id)
    return Outcome(job.run_id, ENDED, spent, reason, problem=str(error), run_copy=sent)


def _below(run: Run) -> list[Run]:
    """Return the runs of all sub-agents below a run, except those of an earlier process, which are stored already."""
    found, waiting = [], list(run.children)
    while waiting:
        one = waiting.pop(0)
        found.append(one)
        waiting += one.children
    return [one for one in found if one.branches.recall is None]


def copy_run(store: Store, run_id: str) -> RunCopy | None:
    """Return a copy of a stored run, with the runs of its sub-agents; None if it is not stored."""
    storage = store.storage
    if find(storage, run_id) is None:
        return None
    heads = {stored.head.run_id: stored for stored in storage.runs()}
    below: dict[str, list[str]] = {}
    for stored in heads.values():
        below.setdefault(str(json.loads(stored.head.body).get("parent_run_id")), []).append(stored.head.run_id)
    notes = {name: storage.notes(name) for name in (*NOTES, SUB_AGENTS_NOTE)}

    def copy_of(one: str) -> RunCopy:
        mine = {name: noted[one] for name, noted in notes.items() if one in noted}
        return RunCopy(heads[one], tuple(storage.steps(one)), mine, tuple([copy_of(other) for other in below.get(one, ())]))

    return copy_of(run_id)


def import_run(store: Store, run_copy: RunCopy) -> None:
    """Store the copy of a run. If the run has not ended, it can be resumed. Raises StorageError."""
    head, storage = run_copy.run.head, store.storage
    stored, writer = find(storage, head.run_id), head.writer if run_copy.run.end is not None else NOBODY
    if stored is None:
        storage.begin(replace(head, writer=writer), run_copy.steps, run_copy.run.end)
    elif stored.end is None:
        if stored.head.writer != writer:
            storage.claim(head.run_id, writer, instead_of=stored.head.writer)
        storage.add(head.run_id, writer, run_copy.steps[stored.steps :], run_copy.run.end)
    for name, text in run_copy.notes.items():
        storage.note(head.run_id, name, text)
    for one in run_copy.more:
        import_run(store, one)


def is_shared_by_processes(store: Store) -> bool:
    """True if another process on this machine can use the same store."""
    return not isinstance(store.storage, MemoryStorage) and getattr(store.storage, "path", "") != ":memory:"


# Rate limits --------------------------------------------------------------------------------------------------------------------
#
# Requests per minute to a provider, evenly spaced over all runs, first come, first served.


class RateLimiter:
    """Spaces requests at least `interval_s` seconds apart. Runs of one event loop share it; a later loop may use it again."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._next = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue = asyncio.Lock()

    async def wait(self) -> None:
        """Wait until the next request may be sent."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._queue = loop, asyncio.Lock()
        async with self._queue:
            wait_s = self._next - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._next = time.monotonic() + self.interval_s  # from now: the loop may have been blocked


class LimitedTransport:
    """A transport whose requests wait for the rate limit; each attempt of a failed call is a request."""

    def __init__(self, transport: Transport, limiter: RateLimiter) -> None:
        self._transport, self._limiter = transport, limiter

    @property
    def needs_key(self) -> bool:
        """True if requests reach a provider."""
        return self._transport.needs_key

    @asynccontextmanager
    async def open(
        self, request: HttpRequest, *, auth: Mapping[str, str], replay_key: str, timeout_s: float | None, client: Any = None
    ) -> AsyncIterator[HttpAnswer]:
        """Wait, then send the request."""
        await self._limiter.wait()
        async with self._transport.open(request, auth=auth, replay_key=replay_key, timeout_s=timeout_s, client=client) as answer:
            yield answer


def apply_rate_limit(run: Run, limiter: RateLimiter | None) -> None:
    """Let the run's requests wait for the rate limit, except in a replay."""
    if limiter is None:
        return
    context = run.stepper.context
    if isinstance(run.agent.model, HttpModel):
        if context.transport.needs_key:
            context.transport = LimitedTransport(context.transport, limiter)
        return

    async def limited(request: ModelRequest, ask: Ask) -> ModelResponse:
        await limiter.wait()
        return await ask(request)

    context.agent = copy.copy(run.agent)
    context.agent.middleware = (*run.agent.middleware, limited)


def intervals(rate_limits: Mapping[str, float] | None, providers: set[str]) -> dict[str, float]:
    """Return the seconds between two requests by provider. Raises LimitError for an invalid rate or an unknown provider."""
    if rate_limits is None:
        return {}
    if not isinstance(rate_limits, Mapping):
        raise LimitError(f'rate_limits={rate_limits!r}: pass requests per minute by provider, such as {{"openai": 60}}.')
    for provider, rate in rate_limits.items():
        if provider not in providers:
            raise LimitError(f"rate_limits: no agent uses the provider {provider!r}. Choose from {', '.join(sorted(providers))}.")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise LimitError(f"rate_limits={{{provider!r}: {rate!r}}}: pass requests per minute, above 0.")
    return {provider: 60.0 / rate for provider, rate in rate_limits.items()}
