"""Failures of a provider, as values for `agentlab.testing.faulty`.

    fault                          effect                                                                    outcome
    ------------------------------ ------------------------------------------------------------------------- ---------------------
    Refused()                      connection refused                                                        retried
    Reset()                        reset before or within the headers                                        retried
    Reset(after_bytes=200)         reset after this number of bytes: a stream breaks off                     retried, or kept¹
    Stalled(), Stalled(200)        no data (any more) until the time-out                                     retried, or kept¹
    Slow(200, pause_s=0.01)        a slow body, in pieces of 200 bytes with a pause before each              answered
    Status(429, retry_after_s=2)   too many requests, with Retry-After; without `retry_after_s` none         retried²
    Status(500)                    a server that is down: 500, 502, 503, 504, 529                            retried
    Status(400)                    any other refusal                                                         an error
    ErrorInBody()                  an error object under status 200; its kind may be temporary               retried, or an error
    InvalidJson()                  a complete body that is not JSON                                          an error
    Page()                         a wrong content type: an HTML page, such as a proxy's login page          an error
    Relabelled("text/plain")       the real body with a wrong content type                                   answered
    Cut(after_bytes=200)           the body ends early but cleanly, in the middle of its JSON                retried, or kept¹
    Garbled(at_byte=200)           one byte of the body is no longer text                                    a stream is requested again
    BrokenGzip(after_bytes=200)    broken gzip: from that byte on the body cannot be decompressed            retried, or kept¹
    Repeated()                     duplicate chunks: each event of a stream arrives twice                    answered³
    Padded(50_000_000)             a large answer: white space of this size before the body                  answered

¹ The received part of a stream is kept as a step that ends in an error: it was paid for, and a retry would be another answer.
² Unless the server requests a longer wait than `RetryPolicy(longest_wait_s=…)`.
³ A repeated tool call is executed once or not at all. A body that is not a stream is repeated as a whole, so it is not JSON.

Your own fault is a subclass of `Fault` with one method.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentlab._internal.names import module_hooks
from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.testing.fault_bodies import (
    Ask,
    Attempt,
    BodyFault,
    BrokenGzip,
    CheckedFault,
    Cut,
    Fault,
    Garbled,
    Padded,
    Repeated,
    first_bytes,
    injected_answer,
)
from agentlab.transport.http import HttpAnswer

__all__ = [
    "BrokenGzip",
    "Cut",
    "ErrorInBody",
    "Fault",
    "Garbled",
    "InvalidJson",
    "Padded",
    "Page",
    "Refused",
    "Relabelled",
    "Repeated",
    "Reset",
    "Slow",
    "Stalled",
    "Status",
]

_PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in to continue.</body></html>"


# No answer ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refused(Fault):
    """The connection is refused.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Refused(), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Raise the error."""
        raise ProviderConnectionError(
            f"{attempt.place}: no connection (an injected refusal). Check the address and that the server runs, then the network and "
            "the proxy settings."
        )


@dataclass(frozen=True, slots=True)
class Reset(BodyFault):
    """The connection breaks off before the headers (None), or after `after_bytes` of the body, or at the end of a shorter body.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Reset(after_bytes=200), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    after_bytes: int | None = None

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Raise the error, or return an answer whose body raises it."""
        if self.after_bytes is None:
            raise attempt.broke_off()
        return await BodyFault.answer(self, ask, attempt)

    async def _change(self, chunks: AsyncIterator[bytes], attempt: Attempt) -> AsyncIterator[bytes]:
        async for piece in first_bytes(chunks, self.after_bytes or 0):
            yield piece
        raise attempt.broke_off()


@dataclass(frozen=True, slots=True)
class Stalled(BodyFault):
    """No data arrives (None), or none after `after_bytes` of the body, until the time-out: five minutes by default, and at most
    `longest_s`.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Stalled(longest_s=0.01), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    after_bytes: int | None = None
    longest_s: float | None = None

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Raise the error after the wait, or return an answer whose body does."""
        limits = [limit for limit in (self.longest_s, attempt.timeout_s) if limit is not None]
        waiting = Attempt(attempt.place, min(limits, default=None))
        if self.after_bytes is None:
            raise await waiting.silence()
        return await BodyFault.answer(self, ask, waiting)

    async def _change(self, chunks: AsyncIterator[bytes], attempt: Attempt) -> AsyncIterator[bytes]:
        async for piece in first_bytes(chunks, self.after_bytes or 0):
            yield piece
        raise await attempt.silence()


@dataclass(frozen=True, slots=True)
class Slow(BodyFault):
    """The body arrives in pieces of `bytes_at_once`, with a pause before each. The answer is valid.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Slow(500, pause_s=0.001), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 0, 0, 0])
    """

    bytes_at_once: int = 200
    pause_s: float = 0.01

    async def _change(self, chunks: AsyncIterator[bytes], attempt: Attempt) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            for start in range(0, len(chunk), self.bytes_at_once):
                await asyncio.sleep(self.pause_s)
                yield chunk[start : start + self.bytes_at_once]


# Invented answers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Status(CheckedFault):
    """An error status; the request is not sent. `body` is text, or a dict sent as JSON; None is an error object with the status.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Status(529), at=2, times=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 2, 0, 0])
    """

    status: int = 500
    retry_after_s: float | None = None
    body: str | Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.status, int) or not 300 <= self.status <= 599:
            raise ConfigurationError(f"Status({self.status!r}): pass an HTTP status from 300 to 599.")
        CheckedFault.__post_init__(self)

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Return the error status."""
        after = {} if self.retry_after_s is None else {"retry-after": f"{self.retry_after_s:g}"}
        body = {"error": {"message": f"an injected status {self.status}"}} if self.body is None else self.body
        text, kind = (body, "text/html") if isinstance(body, str) else (json.dumps(body), "application/json")
        return injected_answer(text, status=self.status, headers={"content-type": kind, **after})


@dataclass(frozen=True, slots=True)
class ErrorInBody(Fault):
    """An error object in place of the answer, with status 200. A temporary `kind`, such as the default, is retried.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.ErrorInBody(kind="invalid_request_error"), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, len(result.history)
        (<StopReason.ERROR: 'error'>, 2)
    """

    message: str = "an injected error"
    kind: str = "server_error"

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Return the error object."""
        return injected_answer(json.dumps({"error": {"message": self.message, "type": self.kind}}))


@dataclass(frozen=True, slots=True)
class InvalidJson(Fault):
    """A body that is not JSON, although it looks complete.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.InvalidJson(), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, len(result.history)
        (<StopReason.ERROR: 'error'>, 2)
    """

    body: str = '{"choices": [oops], "usage": }'

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Return the body."""
        return injected_answer(self.body)


@dataclass(frozen=True, slots=True)
class Page(Fault):
    """An HTML page with status 200, for example from a proxy that requires a login.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Page(), at=2, times=None):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, result.detail
        (<StopReason.ERROR: 'error'>, "ProviderPayloadError: anthropic (claude-sonnet-4-6) answered with an unrec...
    """

    html: str = _PAGE

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Return the page."""
        return injected_answer(self.html, headers={"content-type": "text/html; charset=utf-8"})


@dataclass(frozen=True, slots=True)
class Relabelled(Fault):
    """The real body with another content type. The answer is otherwise valid.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Relabelled("text/plain"), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 0, 0, 0])
    """

    content_type: str = "text/plain"

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Return the real answer with the other content type."""
        answer = await ask()
        return HttpAnswer(answer.status, {**answer.headers, "content-type": self.content_type}, answer.chunks)


if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks(__name__, __all__)
