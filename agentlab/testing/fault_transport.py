"""A transport that injects faults into a run's requests: `with lab.testing.faulty(faults.Reset(after_bytes=200)): …`."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

from agentlab._internal.redaction import redact_url
from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.testing.fault_bodies import Attempt, Fault
from agentlab.transport import Switch, Transport, current
from agentlab.transport.http import HttpAnswer, HttpRequest

Plan: TypeAlias = Fault | Sequence[Fault | None] | Callable[[int], Fault | None]


class Faulty(Switch):
    """The transport of `faulty`. Use it in `with`, or pass it to a run. `injected` counts the injected faults.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty([None, faults.Refused()]) as switch:
        ...     result = await agent.run(TASK)
        >>> switch.injected
        1
    """

    def __init__(self, plan: Callable[[int], Fault | None], over: Transport, description: str) -> None:
        self.injected = 0
        self._plan = plan
        self._over = over
        self._description = description
        self._numbers: dict[str, int] = {}
        self._kept: dict[str, tuple[HttpRequest, HttpAnswer]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"faulty({self._description}, over={self._over!r}): {self.injected} injected"

    def __reduce__(self) -> tuple[Any, ...]:
        return Faulty, (self._plan, self._over, self._description)  # another process has its own counts

    @property
    def needs_key(self) -> bool:
        """True if requests reach a provider."""
        return self._over.needs_key

    @asynccontextmanager
    async def open(
        self, request: HttpRequest, *, auth: Mapping[str, str], replay_key: str, timeout_s: float | None, client: Any = None
    ) -> AsyncIterator[HttpAnswer]:
        """Send the request, or inject the plan's fault."""
        with self._lock:
            number = self._numbers[replay_key] = self._numbers.get(replay_key, 0) + 1
            before, kept = self._kept.pop(replay_key, (None, None))
        fault = self._plan(number)
        async with AsyncExitStack() as stack:

            async def ask() -> HttpAnswer:
                keeps = fault is not None and not self.needs_key
                if kept is not None and before == request:
                    answer = kept
                else:
                    through = self._over.open(request, auth=auth, replay_key=replay_key, timeout_s=timeout_s, client=client)
                    answer = await stack.enter_async_context(through)
                    answer = await _kept(answer) if keeps else answer
                if keeps:
                    with self._lock:
                        self._kept[replay_key] = (request, answer)
                return answer

            if fault is None:
                yield await ask()
                return
            with self._lock:
                self.injected += 1
            yield await fault.answer(ask, Attempt(redact_url(request.url).partition("?")[0], timeout_s))

    def run_continues(self, replay_key: str, requests: Iterable[int]) -> None:
        """Pass on that a run begins after its kept steps."""
        if run_continues := getattr(self._over, "run_continues", None):
            run_continues(replay_key, requests)

    def run_ended(self, replay_key: str) -> None:
        """Forget the counts of a run that has ended."""
        with self._lock:
            self._numbers.pop(replay_key, None)
            self._kept.pop(replay_key, None)
        if run_ended := getattr(self._over, "run_ended", None):
            run_ended(replay_key)


async def _kept(answer: HttpAnswer) -> HttpAnswer:
    """Return a recorded answer with its body read, for the retry after a fault has damaged it: a recording serves it only once."""
    pieces: list[bytes] = []
    broke: ProviderConnectionError | None = None
    try:
        async for chunk in answer.chunks():
            pieces.append(chunk)
    except ProviderConnectionError as error:
        broke = error

    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if broke is not None:
            raise broke

    return HttpAnswer(answer.status, answer.headers, chunks)


def faulty(plan: Plan, *, at: int = 1, times: int | None = 1, over: Transport | None = None) -> Faulty:
    """Inject faults into a run's requests.

    with lab.replay("fixtures/trip"), lab.testing.faulty(faults.Status(429), at=2):
        result = await agent.run("…")

    `plan` is a fault of `agentlab.testing.faults`. It is injected into `times` consecutive requests of a run, or into all (None),
    beginning with request number `at` (from 1; each attempt of a call is a request). Or `plan` is a list with one item per request,
    None for no fault; or a function that takes the number and returns a fault or None. Each run counts its own requests.

    `over` is the transport that sends the requests: `lab.replay(…)`, or another `faulty(…)`; by default the caller's current one, so
    write `faulty` after `lab.replay(…)`, as above: a replay inside its block injects no fault. Over a recording, retries do not wait,
    and the retry of a damaged answer gets the same recording.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Status(503), at=2, times=2) as switch:
        ...     result = await agent.run(TASK)
        >>> switch.injected, result.stop_reason, result.history[1].calls[0].retries
        (2, <StopReason.STOP_CONDITION: 'stop_condition'>, 2)
    """
    below = current() if over is None else over
    if isinstance(plan, Fault):
        if not isinstance(at, int) or isinstance(at, bool) or at < 1:
            raise ConfigurationError(f"faulty(at={at!r}): pass the number of a request, from 1.")
        if times is not None and (not isinstance(times, int) or isinstance(times, bool) or times < 1):
            raise ConfigurationError(f"faulty(times={times!r}): pass a whole number of at least 1, or None for every request.")
        how_often = "always" if times is None else f"times={times}"
        return Faulty(partial(_from_request, plan, at, times), below, f"{plan!r}, at={at}, {how_often}")
    if (at, times) != (1, 1):
        raise ConfigurationError("faulty(at=…, times=…) need a single fault: a list or a function chooses the requests itself.")
    if callable(plan) and not isinstance(plan, type):
        return Faulty(plan, below, getattr(plan, "__name__", repr(plan)))
    items: list[Any] = list(plan) if isinstance(plan, list | tuple) else [plan]
    wrong = [item for item in items if not isinstance(item, Fault | None)]
    if wrong:
        raise ConfigurationError(
            f"{wrong[0]!r} is not a fault: pass one of agentlab.testing.faults, such as faults.Reset(), or None."
        )
    return Faulty(partial(_listed, tuple(items)), below, repr(items))


def _from_request(fault: Fault, at: int, times: int | None, number: int) -> Fault | None:
    return fault if number >= at and (times is None or number < at + times) else None


def _listed(faults: tuple[Fault | None, ...], number: int) -> Fault | None:
    return faults[number - 1] if number <= len(faults) else None
