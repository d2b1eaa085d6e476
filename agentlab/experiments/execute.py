"""One cell of an experiment carried out: begun, or gone on with, to its end, and scored. To do it once more changes nothing.

In this process it is a coroutine; in another one (`in_worker`) it comes and goes as bytes.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from agentlab import background, events
from agentlab.agent import Agent
from agentlab.errors import ConfigurationError, StorageError
from agentlab.experiments.pace import Pace, keep_pace
from agentlab.experiments.spending import NOTHING, Spent, spent_before, spent_by
from agentlab.redaction import Redactor, without_keys
from agentlab.results import RunResult
from agentlab.run import Run
from agentlab.storage import MemoryStorage, StoredRun, StoredStep
from agentlab.storage.but_for_keys import hidden
from agentlab.storage.cut_off import find
from agentlab.storage.keeper import Keeper
from agentlab.storage.run_json import said
from agentlab.storage.store import ENDED, OPEN, Store
from agentlab.transport import Transport
from agentlab.types import StopReason

Score: TypeAlias = Callable[[RunResult], float | bool | Mapping[str, Any] | Awaitable[Any] | None]

SCORE = "score"
"""The name under which a score is noted of its run."""

FAILED = (StopReason.ERROR.value, StopReason.CANCELLED.value)

LONGEST_WAIT_S = 5.0
"""How long a run that somebody else is at work on is waited for."""


@dataclass(frozen=True, slots=True)
class Common:
    """What all cells of an experiment share; `store` is None where a worker cannot reach the store."""

    agents: Mapping[str, Agent]
    settings: Mapping[str, Mapping[str, Any]]
    transport: Transport
    store: Store | None
    score: Score | None


@dataclass(frozen=True, slots=True)
class Job:
    """One cell to be carried out. `again` has a score that raised tried once more."""

    run_id: str
    label: str
    agent: str
    settings: str
    prompt: str
    interval_s: float | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class SentBack:
    """A run as texts, from a worker that could not keep it where it belongs; `more` are the runs of its sub-agents."""

    run: StoredRun
    steps: tuple[StoredStep, ...]
    score: str | None = None
    more: tuple[SentBack, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a cell. `state` is that of its run; `problem` says what went wrong outside of the run itself."""

    run_id: str
    state: str
    spent: Spent = NOTHING
    stop_reason: str | None = None
    problem: str = ""
    sent_back: SentBack | None = None

    @property
    def failed(self) -> bool:
        """Whether the run came to nothing that could be compared."""
        return self.stop_reason in FAILED or bool(self.problem)


async def carry_out(
    common: Common, job: Job, pace: Pace | None = None, watch: Callable[[str, Spent], None] | None = None
) -> Outcome:
    """Have the cell's run at its end, and its score noted. Raises StorageError where it can be kept nowhere."""
    store = common.store
    if store is None:
        raise ConfigurationError("There is no store here.")
    kept = await _settled(store, job.run_id)
    state = None if kept is None else store.state_of(kept)
    if state == OPEN:
        return Outcome(job.run_id, OPEN, problem="Another process is at work on it.")
    if kept is not None and state == ENDED:
        result = None
        end = json.loads(kept.end or "{}")
        spent, reason = spent_before(store.storage, [kept])[job.run_id], end.get("stop_reason")
    else:
        run = _run(common, store, job, kept)
        keep_pace(run, pace)
        while run.result is None:
            await run.step_quietly()
            if watch is not None:
                watch(job.run_id, spent_by(run.history))
        result, spent, reason = run.result, spent_by(run.history), run.result.stop_reason.value
        if store.unsaved.get(job.run_id) is not None:
            store.save()
    if common.score is not None and reason not in FAILED and _wants_score(store, job):
        if result is None:
            result = store.load(job.run_id, common.agents[job.agent]).result
        if result is not None:
            store.storage.note(job.run_id, SCORE, await _scored(common.score, result))
    return Outcome(job.run_id, ENDED, spent, reason)


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

    def __init__(self, store: Store) -> None:
        self.store = store

    def follow_run(self, run: Run) -> Callable[[events.Event], None]:
        """The observer of this run."""
        return _Interruption(self.store, run, self.store.follow_run(run))

    def __call__(self, event: events.Event) -> None:
        """Nothing: an event does not say whose it is."""


class _Interruption:
    def __init__(self, store: Store, run: Run, keeper: Keeper) -> None:
        self._store, self._run, self._keeper = store, run, keeper

    def __call__(self, event: events.Event) -> None:
        reason = event.step.stop_reason if isinstance(event, events.TurnCompleted) else None
        reason = event.result.stop_reason if isinstance(event, events.RunEnded) else reason
        if reason is StopReason.CANCELLED:
            self._store.let_go(self._run)
        else:
            self._keeper(event)


def _run(common: Common, store: Store, job: Job, kept: StoredRun | None) -> Run:
    """The run of the cell, new or to be gone on with, kept in the store from here on."""
    agent, observer = common.agents[job.agent], _Interruptible(store)
    fresh = agent.run(job.prompt, transport=common.transport, observers=[observer], **common.settings[job.settings])
    if kept is None:
        run = fresh.known_as(job.run_id, label=job.label)
        run.observers = tuple([one for one in run.observers if one is not store])  # the agent's own: once is enough
        return run
    settings = fresh.limits.snapshot()  # of which functions cannot be kept
    run = store.resume(job.run_id, agent, stop=settings.stop, policy=settings.policy)
    run.known_as(job.run_id, label=job.label).transport = common.transport
    following = observer.follow_run(run)
    run.observers = (*[one for one in run.observers if not isinstance(one, Keeper)], following)
    return run


# The score ----------------------------------------------------------------------------------------------------------------------


def _wants_score(store: Store, job: Job) -> bool:
    noted = store.storage.notes(SCORE, [job.run_id]).get(job.run_id)
    return noted is None or (job.again and "error" in json.loads(noted))


async def _scored(score: Score, result: RunResult) -> str:
    """The score as JSON text; with the error in the place of one that raised, or gave what is no score."""
    try:
        value: Any = score(result)
        if inspect.isawaitable(value):
            value = await value
        value = _plain(value)
    except Exception as error:
        return json.dumps({"error": Redactor().text(f"{type(error).__name__}: {said(error)}")})
    return hidden(json.dumps({"score": value}), without_keys)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise TypeError(f"the score has the key {wrong!r}: use texts.")
        return {key: _number(one, f"score[{key!r}]") for key, one in value.items()}
    return _number(value, "score")


def _number(value: Any, what: str) -> float | bool | None:
    """A number or a bool; those of numpy too. None is a score that is not known."""
    item = getattr(value, "item", None)
    value = item() if callable(item) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value) if value == value else None  # noqa: PLR0124  not a number: not known
    if hasattr(value, "__float__"):  # a Decimal, a Fraction
        return float(value)
    raise TypeError(f"{what} is {value!r}: return a number, a bool, a dict of them, or None.")


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
    return background.submit(_in_worker(shared, job, pace)).result()


async def _in_worker(common: Common, job: Job, pace: Pace | None) -> Outcome:
    if common.store is not None:
        try:
            return await carry_out(common, job, pace)
        except StorageError as error:
            outcome = _rescued(common.store, job, error)
            if outcome is None:
                raise
            return outcome
    here = Store()
    outcome = await carry_out(replace(common, store=here), job, pace)
    return replace(outcome, sent_back=_sent_back(here, job.run_id))


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
    return Outcome(job.run_id, ENDED, spent_by(run.history), reason, str(error), _sent_back(here, job.run_id))


def _below(run: Run) -> list[Run]:
    """All runs of sub-agents that it called, and theirs; those of an earlier process are kept already."""
    found, waiting = [], list(run.children)
    while waiting:
        one = waiting.pop(0)
        found.append(one)
        waiting += one.children
    return [one for one in found if one.recall is None]


def _sent_back(store: Store, run_id: str) -> SentBack:
    """The run, and all others of a store that is of this run alone."""
    storage = store.storage
    score = storage.notes(SCORE, [run_id]).get(run_id)
    one, *more = sorted(storage.runs(), key=lambda kept: kept.head.run_id != run_id)
    others = [SentBack(kept, tuple(storage.steps(kept.head.run_id))) for kept in more]
    return SentBack(one, tuple(storage.steps(run_id)), score, tuple(others))


def take_in(store: Store, sent: SentBack) -> None:
    """Put a run that came back where it belongs. Raises StorageError where that cannot be done."""
    head, storage = sent.run.head, store.storage
    kept = find(storage, head.run_id)
    if kept is None:
        storage.begin(head, sent.steps, sent.run.end)
    elif kept.end is None:
        if kept.head.writer != head.writer:
            storage.claim(head.run_id, head.writer, instead_of=kept.head.writer)
        storage.add(head.run_id, head.writer, sent.steps[kept.steps :], sent.run.end)
    if sent.score is not None:
        storage.note(head.run_id, SCORE, sent.score)
    for one in sent.more:
        take_in(store, one)


def is_within_reach(store: Store) -> bool:
    """Whether a process of its own, on this machine, can use the same store."""
    return not isinstance(store.storage, MemoryStorage) and getattr(store.storage, "path", "") != ":memory:"
