"""Which cell comes next, how many at once, and where: on this loop, or with an executor that may lose its workers."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from agentlab.errors import ConfigurationError, StorageError
from agentlab.experiments.runner import NOT_STARTED, Job, Outcome, in_worker
from agentlab.redaction import in_words

Executor: TypeAlias = concurrent.futures.Executor | Callable[[], concurrent.futures.Executor]

MOST_TRIES = 3
"""How often a cell is given to a worker that dies of it."""


async def work_off(
    jobs: Sequence[tuple[str, Job]],
    start: Callable[[Job], Awaitable[Outcome]],
    *,
    concurrency: int,
    may_start: Callable[[Job], bool | None],
    done: Callable[[Job, Outcome], bool],
    at_most: Mapping[str, int] | None = None,
) -> list[StorageError]:
    """Carry all jobs out, (provider, job) each, so many at once; of the providers that has its turn which has the fewest under way.

    `may_start` answers None where a job has to wait for one under way, and False where it is left out; `done` is True where the job is
    to be taken up once more. A job that fails is an outcome; one whose run cannot be kept ends the starting of others, and is in what
    comes back. To cancel this cancels what is under way. `at_most` caps what is under way by provider.
    """
    waiting: dict[tuple[str, str, str], deque[tuple[int, Job]]] = {}
    for place, (provider, job) in enumerate(jobs):
        waiting.setdefault((provider, job.agent, job.settings), deque()).append((place, job))
    running: dict[asyncio.Task[Outcome], tuple[tuple[str, str, str], int, Job]] = {}
    under_way: Counter[str] = Counter()
    failures: list[StorageError] = []

    def next_job() -> tuple[tuple[str, str, str], int, Job] | None:
        free = [
            group
            for group, left in waiting.items()
            if left and (at_most is None or under_way[group[0]] < at_most.get(group[0], concurrency))
        ]
        for group in sorted(free, key=lambda group: (under_way[group[0]], waiting[group][0][0])):
            while waiting[group] and (may := may_start(waiting[group][0][1])) is not None:
                place, job = waiting[group].popleft()
                if may:
                    return group, place, job
        return None

    try:
        while True:
            while len(running) < concurrency and not failures and (chosen := next_job()) is not None:
                running[asyncio.ensure_future(_outcome(start, chosen[2], failures))] = chosen
                under_way[chosen[0][0]] += 1
            if not running:
                return failures
            finished, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                group, place, job = running.pop(task)
                under_way[group[0]] -= 1
                if done(job, task.result()):
                    waiting[group].appendleft((place, job))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _outcome(start: Callable[[Job], Awaitable[Outcome]], job: Job, failures: list[StorageError]) -> Outcome:
    try:
        return await start(job)
    except StorageError as error:
        failures.append(error)
        return Outcome(job.run_id, NOT_STARTED, problem=str(error))
    except Exception as error:
        return Outcome(job.run_id, NOT_STARTED, problem=in_words(error))


class Elsewhere:
    """Jobs given to an executor: any of concurrent.futures, or a function that makes one, which is made anew when it breaks.

    What was under way on a worker that died is taken again, and goes on after its last finished step.
    """

    def __init__(self, executor: Executor, common: bytes) -> None:
        self._make = None if isinstance(executor, concurrent.futures.Executor) else executor
        self._executor = executor if isinstance(executor, concurrent.futures.Executor) else None
        self._common = common
        self._suspects = asyncio.Lock()

    async def __call__(self, job: Job) -> Outcome:
        """The job's outcome."""
        try:
            return await self._given_away(job)
        except concurrent.futures.BrokenExecutor as error:
            lost = error
        for _ in range(MOST_TRIES - 1):
            async with self._suspects:  # one at a time: who kills his worker takes no others along
                try:
                    return await self._given_away(job)
                except concurrent.futures.BrokenExecutor as error:
                    lost = error
        told = f"its worker died {MOST_TRIES} times" if self._make else "the executor lost a worker and takes no more work"
        hint = "" if self._make else " Pass a function that makes one, such as executor=lambda: ProcessPoolExecutor(…)."
        raise WorkerLostError(f"This was not finished: {told} ({lost}).{hint} What is kept of it goes on with study.run().")

    async def _given_away(self, job: Job) -> Outcome:
        executor = self._executor
        if executor is None:
            executor = self._executor = self._made()
        try:
            return await asyncio.wrap_future(executor.submit(in_worker, self._common, job))
        except concurrent.futures.BrokenExecutor:
            if self._make is not None and self._executor is executor:
                self._executor = None
                executor.shutdown(wait=False, cancel_futures=True)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise concurrent.futures.BrokenExecutor("the executor gave the work up") from None

    def _made(self) -> concurrent.futures.Executor:
        made = self._make() if self._make is not None else None
        if not isinstance(made, concurrent.futures.Executor):
            raise ConfigurationError(f"executor={self._make!r} gave {made!r}: it has to give a concurrent.futures.Executor.")
        return made

    def close(self) -> None:
        """Let go of an executor that was made here."""
        if self._make is not None and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


class WorkerLostError(RuntimeError):
    """A worker died, and the job with it."""


def check(executor: object) -> None:
    """Raises ConfigurationError for what is no executor and makes none."""
    if executor is None or isinstance(executor, concurrent.futures.Executor):
        return
    if hasattr(executor, "get_executor"):  # a client of dask.distributed
        raise ConfigurationError(f"executor={executor!r}: pass client.get_executor(pure=False).")
    if not callable(executor) or isinstance(executor, type):
        raise ConfigurationError(
            f"executor={executor!r}: pass a concurrent.futures.Executor, or a function that makes one, such as "
            "lambda: ProcessPoolExecutor(4)."
        )


async def held(
    start: Callable[[Job], Awaitable[Outcome]], held_s: Mapping[str, float], provider_of: Mapping[str, str], job: Job
) -> Outcome:
    """The job's outcome, with its place kept until its successor may ask: the last request of the one and the first of the other are as
    far apart as any two."""
    outcome = await start(job)
    await asyncio.sleep(held_s.get(provider_of[job.run_id], 0.0))
    return outcome
