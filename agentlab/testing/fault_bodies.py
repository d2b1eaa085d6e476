"""The base of faults, and the faults that damage a real body: cut, garbled, repeated, padded. `faults.py` lists all faults."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.limits.fields import in_seconds
from agentlab.transport.aws_eventstream import FIRST_BYTES
from agentlab.transport.http import HttpAnswer

Ask: TypeAlias = Callable[[], Awaitable[HttpAnswer]]
"""Sends the request and returns the real answer."""

JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request into which a fault is injected: its URL without the query, and the limit of each wait for data (None: no limit)."""

    place: str
    timeout_s: float | None

    def broke_off(self) -> ProviderConnectionError:
        """Return the error of a broken connection."""
        return ProviderConnectionError(f"{self.place}: the connection broke off (an injected reset). Try again.")

    async def silence(self) -> ProviderConnectionError:
        """Wait until the time-out, and return its error."""
        await asyncio.Event().wait() if self.timeout_s is None else await asyncio.sleep(self.timeout_s)
        return ProviderConnectionError(
            f"{self.place}: the provider sent nothing within the time allowed (an injected silence). Try again, or allow more time."
        )


def injected_answer(body: bytes | str, *, status: int = 200, headers: Mapping[str, str] = JSON_HEADERS) -> HttpAnswer:
    """Return an answer with this body."""
    data = body.encode() if isinstance(body, str) else body

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    return HttpAnswer(status, headers, chunks)


def with_body(answer: HttpAnswer, change: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]) -> HttpAnswer:
    """Return the answer with a body that is changed while it is read."""
    return HttpAnswer(answer.status, answer.headers, lambda: change(answer.chunks()))


class Fault:
    """One way in which a provider fails. A subclass, usually a frozen dataclass, defines `answer`.

    Example:
        >>> from agentlab.errors import ProviderConnectionError
        >>> from agentlab.testing import faults, faulty
        >>> class Unplugged(faults.Fault):
        ...     async def answer(self, ask, attempt):
        ...         raise ProviderConnectionError(f"{attempt.place}: the cable was pulled")
        >>> with lab.replay("fixtures/trip"), faulty(Unplugged(), at=2, times=None):
        ...     result = await agent.run(TASK)
        >>> len(result.history), result.detail
        (2, 'ProviderConnectionError: https://api.anthropic.com/v1/messages: the cable was pulled')
    """

    __slots__ = ()

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Return the answer for the run, or raise ProviderConnectionError. `await ask()` sends the request and returns the real answer.

        Example:
            >>> from agentlab.testing import faults
            >>> class Late(faults.Fault):
            ...     async def answer(self, ask, attempt):
            ...         answer = await ask()  # the real one
            ...         return answer
            >>> with lab.replay("fixtures/trip"), lab.testing.faulty(Late()) as switch:
            ...     result = await agent.run(TASK)
            >>> switch.injected, result.stop_reason
            (1, <StopReason.STOP_CONDITION: 'stop_condition'>)
        """
        raise NotImplementedError


_MINIMUM = {"times": 2, "bytes_at_once": 1}


class CheckedFault(Fault):
    """A fault whose numbers are checked."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Raise ConfigurationError for an impossible number; store a timedelta as seconds."""
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            raw = getattr(self, field.name)
            value, minimum = in_seconds(raw) if field.name.endswith("_s") else raw, _MINIMUM.get(field.name, 0)
            if value is not raw:
                object.__setattr__(self, field.name, value)
            is_valid = isinstance(value, int | float) and not isinstance(value, bool) and minimum <= value < math.inf
            if not (is_valid or value is field.default or field.name == "body"):
                raise ConfigurationError(f"{type(self).__name__}({field.name}={value!r}): pass a number of at least {minimum}.")


class BodyFault(CheckedFault):
    """A fault in the body of the real answer; subclasses define `_change`."""

    __slots__ = ()

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Return the real answer with its body changed."""
        return with_body(await ask(), lambda chunks: self._change(chunks, attempt))

    def _change(self, chunks: AsyncIterator[bytes], attempt: Attempt) -> AsyncIterator[bytes]:
        raise NotImplementedError


# Bytes ----------------------------------------------------------------------------------------------------------------------


async def first_bytes(chunks: AsyncIterator[bytes], count: int) -> AsyncIterator[bytes]:
    """Yield the first `count` bytes."""
    async for chunk in chunks:
        if len(chunk) >= count:
            if count:
                yield chunk[:count]
            return
        count -= len(chunk)
        yield chunk


def events(body: bytes) -> list[bytes]:
    """Return the events of a stream, of text or binary frames; any other body as one event."""
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


_PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Cut(CheckedFault):
    """The body ends cleanly after `after_bytes`, the most common invalid JSON. No header gives its length.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Cut(200), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    after_bytes: int = 200

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """Return the beginning of the real answer."""
        answer = await ask()
        headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return HttpAnswer(answer.status, headers, lambda: first_bytes(answer.chunks(), self.after_bytes))


@dataclass(frozen=True, slots=True)
class Garbled(BodyFault):
    """The highest bit of the byte `at_byte` of the body, from 0, is flipped, so that the body is no longer text.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Garbled(at_byte=0), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, len(result.history)
        (<StopReason.ERROR: 'error'>, 2)
    """

    at_byte: int = 0

    async def _change(self, chunks: AsyncIterator[bytes], attempt: Attempt) -> AsyncIterator[bytes]:
        at = self.at_byte
        async for chunk in chunks:
            hit = 0 <= at < len(chunk)
            yield chunk[:at] + bytes([chunk[at] ^ 0x80]) + chunk[at + 1 :] if hit else chunk
            at -= len(chunk)


@dataclass(frozen=True, slots=True)
class BrokenGzip(BodyFault):
    """The body cannot be decompressed beyond `after_bytes`.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.BrokenGzip(after_bytes=100), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    after_bytes: int = 0

    async def _change(self, chunks: AsyncIterator[bytes], attempt: Attempt) -> AsyncIterator[bytes]:
        async for piece in first_bytes(chunks, self.after_bytes):
            yield piece
        raise ProviderConnectionError(
            f"{attempt.place}: the body is not in the encoding that its header names (an injected fault). Try again; if the error "
            "persists, the server is at fault."
        )


@dataclass(frozen=True, slots=True)
class Repeated(BodyFault):
    """Each event of a stream arrives `times` times in a row; a body without events is repeated as a whole.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Repeated(), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, len(result.history)
        (<StopReason.ERROR: 'error'>, 2)
    """

    times: int = 2

    async def _change(self, chunks: AsyncIterator[bytes], attempt: Attempt) -> AsyncIterator[bytes]:
        body = b"".join([chunk async for chunk in chunks])
        for piece in events(body):
            for _ in range(self.times):
                yield piece


@dataclass(frozen=True, slots=True)
class Padded(BodyFault):
    """The body has `size_bytes` of white space before it: the answer is valid, but large.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Padded(100_000), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 0, 0, 0])
    """

    size_bytes: int = 50_000_000

    async def _change(self, chunks: AsyncIterator[bytes], attempt: Attempt) -> AsyncIterator[bytes]:
        left = self.size_bytes
        while left > 0:
            yield b" " * (min(left, _PIECE_BYTES) - 1) + b"\n"
            left -= _PIECE_BYTES
            await asyncio.sleep(0)  # let other tasks run, as they would between packets
        async for chunk in chunks:
            yield chunk
