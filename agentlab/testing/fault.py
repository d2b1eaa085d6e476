"""What a fault is, and what faults are made of: answers of their own, and true ones with another body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.http import HttpAnswer
from agentlab.limits import in_seconds
from agentlab.transport.aws_eventstream import FIRST_BYTES

Ask: TypeAlias = Callable[[], Awaitable[HttpAnswer]]
"""Passes the request on, and gives the true answer."""

JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """The request that a fault meets: where it goes (without its query), and how many seconds each wait for data may take (None: for
    ever)."""

    place: str
    timeout_s: float | None

    def broke_off(self) -> ProviderConnectionError:
        """The error of a connection that breaks off."""
        return ProviderConnectionError(f"{self.place}: the connection broke off (an injected reset). Try again.")

    async def silence(self) -> ProviderConnectionError:
        """Wait as long as a silent provider is waited for; the error that follows."""
        await asyncio.Event().wait() if self.timeout_s is None else await asyncio.sleep(self.timeout_s)
        return ProviderConnectionError(
            f"{self.place}: the provider sent nothing within the time allowed (an injected silence). Try again, or allow more time."
        )


class Given:
    """An answer of a fault's own, or the true one with another body."""

    __slots__ = ("_chunks", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], chunks: Callable[[], AsyncIterator[bytes]]) -> None:
        self.status = status
        self.headers = headers
        self._chunks = chunks

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        return self._chunks()

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self._chunks()])


def given(body: bytes | str, *, status: int = 200, headers: Mapping[str, str] = JSON_HEADERS) -> Given:
    """An answer with this body."""
    data = body.encode() if isinstance(body, str) else body

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    return Given(status, headers, chunks)


def with_body(answer: HttpAnswer, change: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]) -> Given:
    """The answer, its body changed on the way."""
    return Given(answer.status, answer.headers, lambda: change(answer.chunks()))


class Fault:
    """One way to fail. A frozen dataclass below this one has its own `answer`.

    Example:
        >>> from agentlab.errors import ProviderConnectionError
        >>> from agentlab.testing import faults, faulty
        >>> class Unplugged(faults.Fault):
        ...     async def answer(self, ask, attempt):
        ...         raise ProviderConnectionError(f"{attempt.place}: somebody fell over the cable")
        >>> with lab.replay("fixtures/trip"), faulty(Unplugged(), at=2, times=None):
        ...     result = await agent.run(TASK)
        >>> len(result.history), result.detail
        (2, 'ProviderConnectionError: https://api.anthropic.com/v1/messages: somebody fell over the cable')
    """

    __slots__ = ()

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """What the run gets: an answer, or a ProviderConnectionError. `await ask()` is the true answer; without it nothing is sent.

        Example:
            >>> from agentlab.testing import faults
            >>> class Late(faults.Fault):
            ...     async def answer(self, ask, attempt):
            ...         answer = await ask()  # the true one
            ...         return answer
            >>> with lab.replay("fixtures/trip"), lab.testing.faulty(Late()) as switch:
            ...     result = await agent.run(TASK)
            >>> switch.injected, result.stop_reason
            (1, <StopReason.STOP_CONDITION: 'stop_condition'>)
        """
        raise NotImplementedError


# Bytes ----------------------------------------------------------------------------------------------------------------------


async def first(chunks: AsyncIterator[bytes], count: int) -> AsyncIterator[bytes]:
    """The first so many bytes."""
    async for chunk in chunks:
        if len(chunk) >= count:
            if count:
                yield chunk[:count]
            return
        count -= len(chunk)
        yield chunk


def events(body: bytes) -> list[bytes]:
    """The events of a stream, in text or in binary frames; a body that is neither, as one."""
    start = body[:1]
    if start and start[0] in FIRST_BYTES:
        found = []
        while body:
            size = max(int.from_bytes(body[:4], "big"), 1)
            found.append(body[:size])
            body = body[size:]
        return found
    blank = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    if start in (b"{", b"[") or blank not in body:
        return [body]
    return [event + blank for event in body.split(blank) if event.strip()]


def check_bytes(fault: Fault, **counts: int | None) -> None:
    """Raise ConfigurationError for a number of bytes that cannot be."""
    for name, count in counts.items():
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            raise ConfigurationError(f"{type(fault).__name__}({name}={count!r}): give a number of bytes, 0 or more.")


def check_seconds(fault: Fault, **values: float | timedelta | None) -> None:
    """Raise ConfigurationError for a time that cannot be; a timedelta is kept as seconds."""
    for name, given in values.items():
        value = in_seconds(given)
        if value is not given:
            object.__setattr__(fault, name, value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf")):
            raise ConfigurationError(f"{type(fault).__name__}({name}={value!r}): give seconds, 0 or more.")
