"""Schedules the cells of an experiment: their order, their concurrency, and their execution on this event loop or an executor."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from agentlab._internal.redaction import in_words
from agentlab.errors import ConfigurationError, StorageError
from agentlab.experiments.runner import NOT_STARTED, Job, Outcome, in_worker

# Workers ------------------------------------------------------------------------------------------------------------------------

Executor: TypeAlias = concurrent.futures.Executor | Callable[[], concurrent.futures.Executor]

ATTEMPTS = 3
"""Maximum number of attempts at a cell whose worker dies."""


async def run_jobs(
    jobs: Sequence[Job],
    start: Callable[[Job], Awaitable[Outcome]],
    *,
    concurrency: int,
    may_start: Callable[[Job], bool | None],
    done: Callable[[Job, Outcome], bool],
    at_most: Mapping[str, int] | None = None,
) -> list[StorageError]:
    """Run all jobs, `concurrency` at a time. The next job is one of the provider with the fewest running jobs.

    `may_start` returns None if a job must wait for a running one, and False if it is left out; `done` returns True if the job must be
    run again. A failed job is an outcome; after a run cannot be stored no further job is started, and the error is returned.
    Cancelling this coroutine cancels the running jobs. `at_most` caps the number of running jobs by provider.
    """
    waiting: dict[tuple[str, str, str], deque[tuple[int, Job]]] = {}
    for place, job in enumerate(jobs):
        waiting.setdefault((job.provider, job.agent, job.settings), deque()).append((place, job))
    running: dict[asyncio.Task[Outcome], tuple[tuple[str, str, str], int, Job]] = {}
    running_by_provider: Counter[str] = Counter()
    finished: deque[asyncio.Task[Outcome]] = deque()  # asyncio.wait would look at all running jobs whenever one ends
    has_finished = asyncio.Event()
    failures: list[StorageError] = []

    def finish(task: asyncio.Task[Outcome]) -> None:
        finished.append(task)
        has_finished.set()

    def next_job() -> tuple[tuple[str, str, str], int, Job] | None:
        free = [
            group
            for group, left in waiting.items()
            if left and (at_most is None or running_by_provider[group[0]] < at_most.get(group[0], concurrency))
        ]
        for group in sorted(free, key=lambda group: (running_by_provider[group[0]], waiting[group][0][0])):
            while waiting[group] and (may := may_start(waiting[group][0][1])) is not None:
                place, job = waiting[group].popleft()
                if may:
                    return group, place, job
        return None

    try:
        while True:
            while len(running) < concurrency and not failures and (chosen := next_job()) is not None:
                task = asyncio.ensure_future(_outcome(start, chosen[2], failures))
                task.add_done_callback(finish)
                running[task] = chosen
                running_by_provider[chosen[0][0]] += 1
            if not running:
                return failures
            await has_finished.wait()
            has_finished.clear()
            while finished:
                task = finished.popleft()
                group, place, job = running.pop(task)
                running_by_provider[group[0]] -= 1
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


class ExecutorRunner:
    """Runs jobs on an executor of concurrent.futures, or on those that a function creates: it is called again when one breaks.

    A job whose worker died is submitted again, and resumes after its last finished step.
    """

    def __init__(self, executor: Executor, common: bytes) -> None:
        self._make = None if isinstance(executor, concurrent.futures.Executor) else executor
        self._executor = executor if isinstance(executor, concurrent.futures.Executor) else None
        self._common = common
        self._suspects = asyncio.Lock()

    async def __call__(self, job: Job) -> Outcome:
        """Return the job's outcome."""
        try:
            return await self._submit(job)
        except concurrent.futures.BrokenExecutor as error:
            lost = error
        for _ in range(ATTEMPTS - 1):
            async with self._suspects:  # one at a time, so that a job that kills its worker harms no others
                try:
                    return await self._submit(job)
                except concurrent.futures.BrokenExecutor as error:
                    lost = error
        why = f"its worker died {ATTEMPTS} times" if self._make else "the executor lost a worker and takes no more work"
        hint = "" if self._make else " Pass a function that creates one, such as executor=lambda: ProcessPoolExecutor(…)."
        raise WorkerLostError(
            f"The run was not finished: {why} ({lost}).{hint} study.run() resumes it after its last stored step."
        )

    async def _submit(self, job: Job) -> Outcome:
        executor = self._executor
        if executor is None:
            executor = self._executor = self._make_executor()
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
            raise concurrent.futures.BrokenExecutor("the executor dropped the job") from None

    def _make_executor(self) -> concurrent.futures.Executor:
        executor = self._make() if self._make is not None else None
        if not isinstance(executor, concurrent.futures.Executor):
            raise ConfigurationError(
                f"executor={self._make!r} returned {executor!r}: it must return a concurrent.futures.Executor."
            )
        return executor

    def close(self) -> None:
        """Shut down the executor if it was created here."""
        if self._make is not None and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


class WorkerLostError(RuntimeError):
    """A job was not finished since its worker died."""


def check(executor: object) -> None:
    """Raise ConfigurationError for anything but an executor or a function."""
    if executor is None or isinstance(executor, concurrent.futures.Executor):
        return
    if hasattr(executor, "get_executor"):  # a client of dask.distributed
        raise ConfigurationError(f"executor={executor!r}: pass client.get_executor(pure=False).")
    if not callable(executor) or isinstance(executor, type):
        raise ConfigurationError(
            f"executor={executor!r}: pass a concurrent.futures.Executor, or a function that creates one, such as "
            "lambda: ProcessPoolExecutor(4)."
        )
