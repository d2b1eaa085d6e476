"""Rate limits: requests per minute to a provider, evenly spaced over all runs, first come, first served."""

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
from agentlab.model.requests import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.run import Run
from agentlab.transport import Transport
from agentlab.transport.http import HttpAnswer, HttpRequest


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
