"""The ways in which a provider fails, as values: what `agentlab.testing.faulty` does to a run's requests.

    fault                          what the run meets                                                        what comes of it
    ------------------------------ ------------------------------------------------------------------------- ---------------------
    Refused()                      connection refused                                                        tried again
    Reset()                        reset before or within the headers                                        tried again
    Reset(after_bytes=200)         … after so many bytes of the body: a stream in mid-stream                 tried again, or kept¹
    Stalled(), Stalled(200)        nothing comes (any more): the wait for data runs out                      tried again, or kept¹
    Slow(200, pause_s=0.01)        a slow body, in pieces of so many bytes, a pause before each              answered
    Status(429, retry_after_s=2)   too many requests, with Retry-After; without `retry_after_s` none         tried again²
    Status(500)                    a server that is down: 500, 502, 503, 504, 529                            tried again
    Status(400)                    any other refusal                                                         an error
    ErrorInBody()                  an error object under status 200                                          an error
    InvalidJson()                  a body that is no JSON, in good order                                     an error
    Page()                         a wrong content type: an HTML page, as of a proxy that wants a login      an error
    Relabelled("text/plain")       a wrong content type, and the true body under it                          answered
    Cut(after_bytes=200)           the body ends early, in good order, in the middle of its JSON             tried again, or kept¹
    Garbled(at_byte=200)           one byte of the body is no text any more                                  a stream is asked for again
    BrokenGzip(after_bytes=200)    broken gzip: from there on the body cannot be unpacked                    tried again, or kept¹
    Repeated()                     duplicate chunks: each event of a stream comes twice                      answered³
    Padded(50_000_000)             a large answer: so many bytes of white space, and then the body           answered

¹ Of a stream what had come is kept, as a step that ends in an error: it was paid for, and asking again would be another answer.
² Unless it asks for more than `RetryPolicy(longest_wait_s=…)`.
³ A tool call that came twice is executed once or not at all. A body that is no stream is repeated as a whole, which is no JSON.

A fault of your own is a subclass of `Fault` with one method.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.no_such_name import only
from agentlab.testing.fault_bodies import (
    Ask,
    Attempt,
    BrokenGzip,
    Cut,
    Fault,
    Garbled,
    Given,
    Padded,
    Repeated,
    check_bytes,
    check_seconds,
    first,
    given,
    with_body,
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

_PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in to go on.</body></html>"


# No answer ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refused(Fault):
    """No connection: nobody listens there.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Refused(), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Raises."""
        raise ProviderConnectionError(
            f"{attempt.place}: no connection (an injected refusal). Check the address and that the server runs, then the network and "
            "the proxy settings."
        )


@dataclass(frozen=True, slots=True)
class Reset(Fault):
    """The connection breaks off: while the headers are awaited (None), or after so many bytes of the body, at the latest at its end.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Reset(after_bytes=200), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    after_bytes: int | None = None

    def __post_init__(self) -> None:
        check_bytes(self, after_bytes=self.after_bytes)

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Raises, or gives a body that does."""
        after = self.after_bytes
        if after is None:
            raise attempt.broke_off()

        async def change(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for piece in first(chunks, after):
                yield piece
            raise attempt.broke_off()

        return with_body(await ask(), change)


@dataclass(frozen=True, slots=True)
class Stalled(Fault):
    """Nothing comes (None), or nothing after so many bytes of the body. The wait for data runs out, after five minutes on its own:
    `longest_s` makes that shorter for a test.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Stalled(longest_s=0.01), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    after_bytes: int | None = None
    longest_s: float | None = None

    def __post_init__(self) -> None:
        check_bytes(self, after_bytes=self.after_bytes)
        check_seconds(self, longest_s=self.longest_s)

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Raises after the wait, or gives a body that does."""
        limits = [limit for limit in (self.longest_s, attempt.timeout_s) if limit is not None]
        waiting = Attempt(attempt.place, min(limits, default=None))
        after = self.after_bytes
        if after is None:
            raise await waiting.silence()

        async def change(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for piece in first(chunks, after):
                yield piece
            raise await waiting.silence()

        return with_body(await ask(), change)


@dataclass(frozen=True, slots=True)
class Slow(Fault):
    """The body in pieces of `bytes_at_once`, a pause before each. Nothing is wrong with it.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Slow(500, pause_s=0.001), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 0, 0, 0])
    """

    bytes_at_once: int = 200
    pause_s: float = 0.01

    def __post_init__(self) -> None:
        if not isinstance(self.bytes_at_once, int) or self.bytes_at_once < 1:
            raise ConfigurationError(f"Slow(bytes_at_once={self.bytes_at_once!r}): give a whole number of at least 1.")
        check_seconds(self, pause_s=self.pause_s)

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The true answer, slowly."""

        async def change(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for chunk in chunks:
                for start in range(0, len(chunk), self.bytes_at_once):
                    await asyncio.sleep(self.pause_s)
                    yield chunk[start : start + self.bytes_at_once]

        return with_body(await ask(), change)


# Another answer -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Status(Fault):
    """A refusal with an HTTP status, which is not passed on. `body` is text, or a dict that is sent as JSON; None says which it was.

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
            raise ConfigurationError(f"Status({self.status!r}): give an HTTP status from 300 to 599.")
        check_seconds(self, retry_after_s=self.retry_after_s)

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The refusal."""
        after = {} if self.retry_after_s is None else {"retry-after": f"{self.retry_after_s:g}"}
        body = {"error": {"message": f"an injected status {self.status}"}} if self.body is None else self.body
        text, kind = (body, "text/html") if isinstance(body, str) else (json.dumps(body), "application/json")
        return given(text, status=self.status, headers={"content-type": kind, **after})


@dataclass(frozen=True, slots=True)
class ErrorInBody(Fault):
    """An error object where the answer should be, under status 200.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.ErrorInBody(), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, len(result.history)
        (<StopReason.ERROR: 'error'>, 2)
    """

    message: str = "an injected error"
    kind: str = "server_error"

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The error."""
        return given(json.dumps({"error": {"message": self.message, "type": self.kind}}))


@dataclass(frozen=True, slots=True)
class InvalidJson(Fault):
    """A body that is no JSON, though it begins as if it were and has its end: it does not look as if there were more to come.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.InvalidJson(), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, len(result.history)
        (<StopReason.ERROR: 'error'>, 2)
    """

    body: str = '{"choices": [oops], "usage": }'

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The body."""
        return given(self.body)


@dataclass(frozen=True, slots=True)
class Page(Fault):
    """A page for people under status 200, as of a proxy that wants a login.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Page(), at=2, times=None):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, result.detail
        (<StopReason.ERROR: 'error'>, "ProviderPayloadError: anthropic (claude-sonnet-4-6) answered with somethi...
    """

    html: str = _PAGE

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The page."""
        return given(self.html, headers={"content-type": "text/html; charset=utf-8"})


@dataclass(frozen=True, slots=True)
class Relabelled(Fault):
    """The true body under another content type. Nothing else is wrong with it.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Relabelled("text/plain"), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 0, 0, 0])
    """

    content_type: str = "text/plain"

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The true answer, mislabelled."""
        true = await ask()
        return Given(true.status, {**true.headers, "content-type": self.content_type}, true.chunks)


if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__)
