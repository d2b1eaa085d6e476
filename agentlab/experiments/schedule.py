"""Schedules the cells of an experiment: order, concurrency, request rates, and execution on this loop or an executor."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentlab._internal.redaction import in_words
from agentlab.engine.client import CallContext, HttpModel, Model
from agentlab.errors import ConfigurationError, LimitError, StorageError
from agentlab.experiments.runner import NOT_STARTED, Job, Outcome, in_worker
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.run import Run
from agentlab.transport import Transport
from agentlab.transport.http import HttpAnswer, HttpRequest

# Rate limits --------------------------------------------------------------------------------------------------------------------
#
# So many requests per minute to a provider, evenly spaced over all runs, first come, first served.


class RateLimiter:
    """Lets requests pass at least `interval_s` seconds apart. Any number of runs of one loop may share it, one loop after another."""

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
            self._next = time.monotonic() + self.interval_s  # from the actual time: a loop may have been blocked meanwhile


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
        self, request: HttpRequest, *, auth: Mapping[str, str], lane: str, timeout_s: float | None
    ) -> AsyncIterator[HttpAnswer]:
        """Wait, then send the request."""
        await self._limiter.wait()
        async with self._transport.open(request, auth=auth, lane=lane, timeout_s=timeout_s) as answer:
            yield answer


@dataclass(frozen=True, slots=True)
class LimitedModel:
    """A user's own model behind a rate limit."""

    inner: Any
    limiter: RateLimiter

    @property
    def name(self) -> str:
        """The provider's name."""
        return str(self.inner.name)

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.inner.model)

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Wait, then call the model."""
        await self.limiter.wait()
        response: ModelResponse = await self.inner.respond(request, context)
        return response


def apply_rate_limit(run: Run, limiter: RateLimiter | None) -> None:
    """Let the run's requests wait for the rate limit, except in a replay."""
    model: Model = run.agent.model
    if limiter is None:
        return
    if isinstance(model, HttpModel):
        if run.stepper.transport.needs_key:
            run.stepper.transport = LimitedTransport(run.stepper.transport, limiter)
        return
    run.stepper.agent = copy.copy(run.agent)
    run.stepper.agent.model = LimitedModel(model, limiter)


def intervals(rate_limits: Mapping[str, float] | None, providers: set[str]) -> dict[str, float]:
    """Return the seconds between two requests by provider. Raises LimitError for an invalid rate, and an unknown provider."""
    if rate_limits is None:
        return {}
    if not isinstance(rate_limits, Mapping):
        raise LimitError(f'rate_limits={rate_limits!r}: pass requests per minute by provider, such as {{"openai": 60}}.')
    for provider, rate in rate_limits.items():
        if provider not in providers:
            raise LimitError(f"rate_limits: no agent uses the provider {provider!r}. Choose from {', '.join(sorted(providers))}.")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise LimitError(f"rate_limits={{{provider!r}: {rate!r}}}: give requests per minute, above 0.")
    return {provider: 60.0 / rate for provider, rate in rate_limits.items()}


# Workers ------------------------------------------------------------------------------------------------------------------------

Executor: TypeAlias = concurrent.futures.Executor | Callable[[], concurrent.futures.Executor]

ATTEMPTS = 3
"""The most attempts at a cell whose worker dies."""


async def run_jobs(
    jobs: Sequence[Job],
    start: Callable[[Job], Awaitable[Outcome]],
    *,
    concurrency: int,
    may_start: Callable[[Job], bool | None],
    done: Callable[[Job, Outcome], bool],
    at_most: Mapping[str, int] | None = None,
) -> list[StorageError]:
    """Run all jobs, `concurrency` at once; the next one is of the provider with the fewest running jobs.

    `may_start` returns None if a job must wait for a running one, and False if it is left out; `done` returns True if the job must be
    run again. A job that fails is an outcome; once a run cannot be stored no further job is started, and the error is returned.
    Cancelling this cancels the running jobs. `at_most` caps the running jobs by provider.
    """
    waiting: dict[tuple[str, str, str], deque[tuple[int, Job]]] = {}
    for place, job in enumerate(jobs):
        waiting.setdefault((job.provider, job.agent, job.settings), deque()).append((place, job))
    running: dict[asyncio.Task[Outcome], tuple[tuple[str, str, str], int, Job]] = {}
    running_by_provider: Counter[str] = Counter()
    failures: list[StorageError] = []

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
                running[asyncio.ensure_future(_outcome(start, chosen[2], failures))] = chosen
                running_by_provider[chosen[0][0]] += 1
            if not running:
                return failures
            finished, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
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
    """Runs jobs on an executor: any of concurrent.futures, or a function that makes one, which is called again when it breaks.

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
            async with self._suspects:  # one at a time: a job that kills its worker harms no others
                try:
                    return await self._submit(job)
                except concurrent.futures.BrokenExecutor as error:
                    lost = error
        why = f"its worker died {ATTEMPTS} times" if self._make else "the executor lost a worker and takes no more work"
        hint = "" if self._make else " Pass a function that makes one, such as executor=lambda: ProcessPoolExecutor(…)."
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
    """A worker died, so its job is not finished."""


def check(executor: object) -> None:
    """Raise ConfigurationError for anything but an executor or a function."""
    if executor is None or isinstance(executor, concurrent.futures.Executor):
        return
    if hasattr(executor, "get_executor"):  # a client of dask.distributed
        raise ConfigurationError(f"executor={executor!r}: pass client.get_executor(pure=False).")
    if not callable(executor) or isinstance(executor, type):
        raise ConfigurationError(
            f"executor={executor!r}: pass a concurrent.futures.Executor, or a function that makes one, such as "
            "lambda: ProcessPoolExecutor(4)."
        )


async def run_then_wait(start: Callable[[Job], Awaitable[Outcome]], wait_s: Mapping[str, float], job: Job) -> Outcome:
    """Return the job's outcome after the provider's interval, so that the next job's first request keeps its distance too."""
    outcome = await start(job)
    await asyncio.sleep(wait_s.get(job.provider, 0.0))
    return outcome
