"""One cell of an experiment carried out: begun, or gone on with, to its end, and scored. To do it once more changes nothing.

In this process it is a coroutine; in another one (`in_worker`) it comes and goes as bytes.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from agentlab import events
from agentlab.agent import Agent
from agentlab.budget import Budget
from agentlab.engine import call_context
from agentlab.engine.worker import submit
from agentlab.errors import ConfigurationError, StorageError
from agentlab.experiments.identity import MADE_BY
from agentlab.experiments.pace import Pace, keep_pace
from agentlab.experiments.scoring import SCORE_NOTE, OtherRuns, Score, charged_as, is_stale, scored
from agentlab.experiments.spending import (
    BESIDE,
    CUT_OFF,
    RUN,
    SCORE,
    TOOLS,
    Purse,
    Spent,
    note_beside,
    spent_before,
    spent_by,
    spent_in,
)
from agentlab.redaction import Redactor
from agentlab.results import StepResult
from agentlab.run import Run
from agentlab.storage import MemoryStorage, StoredRun, StoredStep, writers
from agentlab.storage.but_for_keys import hidden
from agentlab.storage.cut_off import CALLED, find
from agentlab.storage.keeper import Keeper, secrets_of
from agentlab.storage.store import ENDED, INTERRUPTED, OPEN, Store
from agentlab.transport import Transport
from agentlab.types import StopReason

FAILED = (StopReason.ERROR.value, StopReason.CANCELLED.value)

NOT_STARTED = "not_started"

NOTES = (SCORE_NOTE, BESIDE, MADE_BY)
"""What is noted of a run, and goes with it to another process and back."""

LONGEST_WAIT_S = 5.0
"""How long a run that somebody else is at work on is waited for."""


@dataclass(frozen=True, slots=True)
class Common:
    """What all cells of an experiment share; `store` is None where a worker cannot reach the store. `made_by` says what runs are made
    by, by agent and settings, and `scored_by` the same of the score."""

    agents: Mapping[str, Agent]
    settings: Mapping[str, Mapping[str, Any]]
    transport: Transport
    store: Store | None
    score: Score | None
    made_by: Mapping[tuple[str, str], str] = field(default_factory=dict)
    scored_by: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One cell to be carried out. `again` has a score that is there made once more.

    For another process `lease` is what the run may use there, counted from its beginning (its time from `leased_at` on, in seconds
    since 1970), `spent` what it has used so far, and `before` the run as it is kept where a worker cannot read it.
    """

    run_id: str
    label: str
    agent: str
    settings: str
    prompt: str
    interval_s: float | None = None
    again: bool = False
    lease: Budget | None = None
    leased_at: float = 0.0
    spent: Mapping[str, Spent] = field(default_factory=dict)
    before: SentBack | None = None


@dataclass(frozen=True, slots=True)
class SentBack:
    """A run as texts, from a worker that could not keep it where it belongs; `more` are the runs of its sub-agents."""

    run: StoredRun
    steps: tuple[StoredStep, ...]
    notes: Mapping[str, str] = field(default_factory=dict)
    more: tuple[SentBack, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a cell. `state` is that of its run, `spent` what it has used by now, by what it was used for; `problem` says what
    went wrong outside of the run itself, `held_back` why the budget of the experiment let it, or its score, go no further."""

    run_id: str
    state: str
    spent: Mapping[str, Spent] = field(default_factory=dict)
    stop_reason: str | None = None
    problem: str = ""
    held_back: str = ""
    sent_back: SentBack | None = None

    @property
    def failed(self) -> bool:
        """Whether the run came to nothing that could be compared."""
        return self.stop_reason in FAILED or bool(self.problem)


async def carry_out(common: Common, job: Job, purse: Purse, pace: Pace | None = None) -> Outcome:
    """Have the cell's run at its end, and its score noted; or let go of it after its last step, once the budget in the purse is spent.
    Raises StorageError where it can be kept nowhere."""
    store = common.store
    if store is None:
        raise ConfigurationError("There is no store here.")
    kept = await _settled(store, job.run_id)
    state = None if kept is None else store.state_of(kept)
    if state == OPEN:
        return Outcome(job.run_id, OPEN, problem="Another process is at work on it.")
    if kept is not None and state == ENDED:
        result, reason = None, json.loads(kept.end or "{}").get("stop_reason")
        for part, spent in spent_before(store.storage, [kept])[job.run_id].items():
            purse.book(job.run_id, spent, part)
    else:
        run = _run(common, store, job, kept, purse)
        keep_pace(run, pace)
        of_tools = OtherRuns(store.storage, job.run_id, purse, TOOLS, refuse=False)
        while run.result is None:
            if why := purse.spent_up():
                run.cancel()  # its observers see an end; the store lets go of it, and it goes on another time
                state = INTERRUPTED if len(run.history) else NOT_STARTED
                return Outcome(job.run_id, state, purse.parts(job.run_id), held_back=why)
            with call_context.watched(of_tools):
                await run.stepper.step_quietly()
            if not _was_cancelled(run):  # a step that was cut off is booked already
                purse.book(job.run_id, spent_by(run.history))
        result, reason = run.result, run.result.stop_reason.value
        if store.unsaved.get(job.run_id) is not None:
            store.save()
    held_back = ""
    if common.score is not None and reason not in FAILED and _wants_score(common, store, job):
        if result is None:
            result = store.load(job.run_id, common.agents[job.agent]).result
        if result is not None:
            judges = OtherRuns(store.storage, job.run_id, purse, SCORE, refuse=True)
            text = await scored(common.score, result, common.scored_by, judges)
            held_back = judges.refused
            if text is not None:
                store.storage.note(job.run_id, SCORE_NOTE, text)
    return Outcome(job.run_id, ENDED, purse.parts(job.run_id), reason, held_back=held_back)


async def _settled(store: Store, run_id: str) -> StoredRun | None:
    """The run as it is kept, once nobody else is at work on it; as it is where that takes too long."""
    deadline = asyncio.get_running_loop().time() + LONGEST_WAIT_S
    while True:
        kept = find(store.storage, run_id)
        if kept is None or store.state_of(kept) != OPEN or asyncio.get_running_loop().time() >= deadline:
            return kept
        await asyncio.sleep(0.05)


def detail_of(kept: StoredRun | None) -> str:
    """Why a run ended, in a sentence."""
    return "" if kept is None or kept.end is None else str(json.loads(kept.end)["detail"])


# The run ------------------------------------------------------------------------------------------------------------------------


class _Interruptible:
    """Keeps a run in a store, and lets go of it where it is cancelled: it is then interrupted, and goes on another time."""

    def __init__(self, store: Store, purse: Purse, made_by: str | None) -> None:
        self.store, self.purse, self.made_by = store, purse, made_by

    def follow_run(self, run: Run) -> Callable[[events.Event], None]:
        """The observer of this run."""
        return _Interruption(self, run, self.store.follow_run(run))

    def __call__(self, event: events.Event) -> None:
        """Nothing: an event does not say whose it is."""


class _Interruption:
    def __init__(self, whose: _Interruptible, run: Run, keeper: Keeper) -> None:
        self._whose, self._run, self._keeper = whose, run, keeper

    def __call__(self, event: events.Event) -> None:
        run, store, made_by = self._run, self._whose.store, self._whose.made_by
        if isinstance(event, events.TurnCompleted) and event.step.stop_reason is StopReason.CANCELLED:
            store.let_go(run)
            if run.origin.caller is None:
                self._was_cut_off(event.step)
        elif isinstance(event, events.RunEnded) and event.result.stop_reason is StopReason.CANCELLED:
            store.let_go(run)
        else:
            self._keeper(event)
            is_new = isinstance(event, events.RunStarted) and not run.history  # steps that are there were made by what is noted
            if is_new and made_by and run.origin.caller is None and run.id not in store.unsaved:
                store.storage.note(run.id, MADE_BY, hidden(made_by, Redactor(secrets_of(run.agent)).text))

    def _was_cut_off(self, step: StepResult) -> None:
        """Book a step that was paid for and is not kept; it is taken again."""
        run, purse = self._run, self._whose.purse
        lost = purse.parts(run.id).get(CUT_OFF, Spent()) + spent_in(step)
        purse.book(run.id, lost, CUT_OFF)
        note_beside(self._whose.store.storage, run.id, CUT_OFF, lost)


def _run(common: Common, store: Store, job: Job, kept: StoredRun | None, purse: Purse) -> Run:
    """The run of the cell, new or to be gone on with, kept in the store from here on."""
    agent = common.agents[job.agent]
    observer = _Interruptible(store, purse, common.made_by.get((job.agent, job.settings)))
    fresh = agent.run(job.prompt, transport=common.transport, observers=[observer], **common.settings[job.settings])
    if kept is None:
        run = fresh.with_id(job.run_id, label=job.label)
        run.timeline.forget(store)  # the agent's own: once is enough
    else:
        settings = fresh.limits.snapshot()  # of which functions cannot be kept
        run = store.resume(job.run_id, agent, stop=settings.stop, policy=settings.policy)
        run.with_id(job.run_id, label=job.label).stepper.transport = common.transport
        following = observer.follow_run(run)
        timeline = run.timeline
        timeline.observers = (*[one for one in timeline.observers if not isinstance(one, Keeper)], following)
    run.stepper.parent_limit = charged_as(purse)
    return run


def _was_cancelled(run: Run) -> bool:
    return run.result is not None and run.result.stop_reason is StopReason.CANCELLED


def _wants_score(common: Common, store: Store, job: Job) -> bool:
    noted = store.storage.notes(SCORE_NOTE, [job.run_id]).get(job.run_id)
    if noted is None:
        return True
    before = json.loads(noted)
    return (job.again and "error" in before) or is_stale(before, common.scored_by)


# Another process ------------------------------------------------------------------------------------------------------------------


def packed(value: object) -> bytes:
    """As bytes, for another process; functions of a notebook too where cloudpickle is installed. Raises ConfigurationError."""
    try:
        import cloudpickle  # type: ignore[import-not-found, unused-ignore]  # with the extra `cluster`
    except ImportError:
        cloudpickle = None
    try:
        packed_value: bytes = pickle.dumps(value) if cloudpickle is None else cloudpickle.dumps(value)
    except Exception as error:
        hint = " Functions of a notebook need the extra agentlab-jupyter[cluster]." if cloudpickle is None else ""
        raise ConfigurationError(
            f"Something of the experiment cannot go to another process: {type(error).__name__}: {error}. Agents, tools, stop "
            f"conditions, scores and observers have to be such that pickle takes them; or leave `executor` out.{hint}"
        ) from error
    return packed_value


@lru_cache(maxsize=4)
def _unpacked(common: bytes) -> Common:
    """Once for each experiment and process: recordings may be large."""
    made: Common = pickle.loads(common)  # noqa: S301  from the process that started this one
    return made


def in_worker(common: bytes, job: Job) -> Outcome:
    """The same in a process of an executor, on the thread that runs agents there, so that connections are kept from job to job."""
    shared = _unpacked(common)
    pace = None if job.interval_s is None else Pace(job.interval_s)
    return submit(_in_worker(shared, job, pace)).result()


async def _in_worker(common: Common, job: Job, pace: Pace | None) -> Outcome:
    purse = Purse(job.lease, None, {job.run_id: job.spent}, waited_s=time.time() - job.leased_at)
    if common.store is not None:
        try:
            return await carry_out(common, job, purse, pace)
        except StorageError as error:
            outcome = _rescued(common.store, job, error)
            if outcome is None:
                raise
            return outcome
    here = Store()
    if job.before is not None:
        take_in(here, job.before)
    outcome = await carry_out(replace(common, store=here), job, purse, pace)
    return replace(outcome, sent_back=sent_from(here, job.run_id))


def _rescued(store: Store, job: Job, error: StorageError) -> Outcome | None:
    """A run that could not be written, such as on a full disk, goes to the process that asked for it."""
    run = store.unsaved_run(job.run_id)
    if run is None or run.result is None:
        return None
    here = Store()
    for one in (run, *_below(run)):
        here.keep(one)
        store.let_go(one)
    reason = run.result.stop_reason.value
    spent, sent = {RUN: spent_by(run.history)}, sent_from(here, job.run_id)
    return Outcome(job.run_id, ENDED, spent, reason, problem=str(error), sent_back=sent)


def _below(run: Run) -> list[Run]:
    """All runs of sub-agents that it called, and theirs; those of an earlier process are kept already."""
    found, waiting = [], list(run.children)
    while waiting:
        one = waiting.pop(0)
        found.append(one)
        waiting += one.children
    return [one for one in found if one.branches.recall is None]


def sent_from(store: Store, run_id: str) -> SentBack | None:
    """A run as it is kept, with the runs of its sub-agents; None where it is not."""
    storage = store.storage
    if find(storage, run_id) is None:
        return None
    heads = {kept.head.run_id: kept for kept in storage.runs()}
    below: dict[str, list[str]] = {}
    for kept in heads.values():
        below.setdefault(str(json.loads(kept.head.body).get("parent_run_id")), []).append(kept.head.run_id)
    notes = {name: storage.notes(name) for name in (*NOTES, CALLED)}

    def sent(one: str) -> SentBack:
        mine = {name: noted[one] for name, noted in notes.items() if one in noted}
        return SentBack(heads[one], tuple(storage.steps(one)), mine, tuple([sent(other) for other in below.get(one, ())]))

    return sent(run_id)


def take_in(store: Store, sent: SentBack) -> None:
    """Put a run that came back where it belongs; one that has not ended goes on from there. Raises StorageError where that cannot be
    done."""
    head, storage = sent.run.head, store.storage
    kept, writer = find(storage, head.run_id), head.writer if sent.run.end is not None else writers.NOBODY
    if kept is None:
        storage.begin(replace(head, writer=writer), sent.steps, sent.run.end)
    elif kept.end is None:
        if kept.head.writer != writer:
            storage.claim(head.run_id, writer, instead_of=kept.head.writer)
        storage.add(head.run_id, writer, sent.steps[kept.steps :], sent.run.end)
    for name, text in sent.notes.items():
        storage.note(head.run_id, name, text)
    for one in sent.more:
        take_in(store, one)


def is_within_reach(store: Store) -> bool:
    """Whether a process of its own, on this machine, can use the same store."""
    return not isinstance(store.storage, MemoryStorage) and getattr(store.storage, "path", "") != ":memory:"
