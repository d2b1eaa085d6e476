"""Rate limits: so many requests a minute to a provider, evenly spaced, in the order in which they are asked for, over all runs."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agentlab.engine.client import CallContext, HttpModel, Model
from agentlab.errors import LimitError
from agentlab.http import HttpAnswer, HttpRequest
from agentlab.run import Run
from agentlab.transport import Transport
from agentlab.types import ModelRequest, ModelResponse


class Pace:
    """Gives out turns, at least `interval_s` seconds apart, first come, first served. Any number of runs of one loop may share it; the
    next work may come from another loop."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._next = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._line = asyncio.Lock()

    async def turn(self) -> None:
        """Wait for the next turn."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._line = loop, asyncio.Lock()
        async with self._line:
            wait_s = self._next - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._next = time.monotonic() + self.interval_s  # from when it was really given: a loop may stand still meanwhile


class PacedTransport:
    """A transport whose requests wait for their turn; each attempt of a call that failed is a request of its own."""

    def __init__(self, transport: Transport, pace: Pace) -> None:
        self._transport, self._pace = transport, pace

    @property
    def needs_key(self) -> bool:
        """Whether requests reach a provider."""
        return self._transport.needs_key

    @asynccontextmanager
    async def open(
        self, request: HttpRequest, *, auth: Mapping[str, str], lane: str, timeout_s: float | None
    ) -> AsyncIterator[HttpAnswer]:
        """Wait, then send the request."""
        await self._pace.turn()
        async with self._transport.open(request, auth=auth, lane=lane, timeout_s=timeout_s) as answer:
            yield answer


@dataclass(frozen=True, slots=True)
class PacedModel:
    """A model of somebody's own that is asked at its turn."""

    inner: Any
    pace: Pace

    @property
    def name(self) -> str:
        """The provider's name."""
        return str(self.inner.name)

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.inner.model)

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Wait, then ask."""
        await self.pace.turn()
        response: ModelResponse = await self.inner.respond(request, context)
        return response


def keep_pace(run: Run, pace: Pace | None) -> None:
    """Have the run's requests wait for their turn. A recording waits for nobody."""
    model: Model = run.agent.model
    if pace is None:
        return
    if isinstance(model, HttpModel):
        if run.stepper.transport.needs_key:
            run.stepper.transport = PacedTransport(run.stepper.transport, pace)
        return
    run.stepper.agent = copy.copy(run.agent)
    run.stepper.agent.model = PacedModel(model, pace)


def intervals(rate_limits: Mapping[str, float] | None, providers: set[str]) -> dict[str, float]:
    """Seconds between two requests, by provider. Raises LimitError for what is no rate and for a provider that nobody asks."""
    if rate_limits is None:
        return {}
    if not isinstance(rate_limits, Mapping):
        raise LimitError(f'rate_limits={rate_limits!r}: pass requests per minute by provider, such as {{"openai": 60}}.')
    for provider, rate in rate_limits.items():
        if provider not in providers:
            raise LimitError(f"rate_limits: no agent asks the provider {provider!r}. There is: {', '.join(sorted(providers))}.")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise LimitError(f"rate_limits={{{provider!r}: {rate!r}}}: give requests per minute, above 0.")
    return {provider: 60.0 / rate for provider, rate in rate_limits.items()}
