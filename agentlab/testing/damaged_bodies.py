"""Faults of a body that was true: cut, garbled, repeated, padded. All faults in one table, and under one name: faults.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.http import HttpAnswer
from agentlab.testing.fault import Ask, Attempt, Fault, Given, check_bytes, events, first, with_body

_PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """The body ends after so many bytes, in good order: what invalid JSON most often is. No header says how many there should be.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Cut(200), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    after_bytes: int = 200

    def __post_init__(self) -> None:
        check_bytes(self, after_bytes=self.after_bytes)

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The beginning of the true answer."""
        answer = await ask()
        headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return with_body(Given(answer.status, headers, answer.chunks), lambda chunks: first(chunks, self.after_bytes))


@dataclass(frozen=True, slots=True)
class Garbled(Fault):
    """The byte at this place of the body, counted from 0, has its highest bit flipped: what was text there is none any more.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Garbled(at_byte=0), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, len(result.history)
        (<StopReason.ERROR: 'error'>, 2)
    """

    at_byte: int = 0

    def __post_init__(self) -> None:
        check_bytes(self, at_byte=self.at_byte)

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The true answer but for one byte."""

        async def change(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            at = self.at_byte
            async for chunk in chunks:
                hit = 0 <= at < len(chunk)
                yield chunk[:at] + bytes([chunk[at] ^ 0x80]) + chunk[at + 1 :] if hit else chunk
                at -= len(chunk)

        return with_body(await ask(), change)


@dataclass(frozen=True, slots=True)
class BrokenGzip(Fault):
    """After so many bytes of it, the body cannot be unpacked any further.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.BrokenGzip(after_bytes=100), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 1, 0, 0])
    """

    after_bytes: int = 0

    def __post_init__(self) -> None:
        check_bytes(self, after_bytes=self.after_bytes)

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """A body that raises."""

        async def change(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for piece in first(chunks, self.after_bytes):
                yield piece
            raise ProviderConnectionError(
                f"{attempt.place}: the body is not in the encoding its header names (an injected fault). Try again; if it stays, it "
                "is the server's fault."
            )

        return with_body(await ask(), change)


@dataclass(frozen=True, slots=True)
class Repeated(Fault):
    """Each event of a stream comes `times` times, one after the other; a body that is no stream of events is repeated as a whole.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Repeated(), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, len(result.history)
        (<StopReason.ERROR: 'error'>, 2)
    """

    times: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.times, int) or self.times < 2:
            raise ConfigurationError(f"Repeated(times={self.times!r}): give a whole number of at least 2.")

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The true answer, more than once."""

        async def change(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            body = b"".join([chunk async for chunk in chunks])
            for piece in events(body):
                for _ in range(self.times):
                    yield piece

        return with_body(await ask(), change)


@dataclass(frozen=True, slots=True)
class Padded(Fault):
    """So many bytes of white space before the body: as good an answer as without them, and a large one.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Padded(100_000), at=2):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason, [call.retries for step in result.history for call in step.calls]
        (<StopReason.STOP_CONDITION: 'stop_condition'>, [0, 0, 0, 0])
    """

    size_bytes: int = 50_000_000

    def __post_init__(self) -> None:
        check_bytes(self, size_bytes=self.size_bytes)

    async def answer(self, ask: Ask, attempt: Attempt) -> HttpAnswer:
        """The true answer, at last."""

        async def change(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            left = self.size_bytes
            while left > 0:
                yield b" " * (min(left, _PIECE_BYTES) - 1) + b"\n"
                left -= _PIECE_BYTES
                await asyncio.sleep(0)  # others get their turn, as they would between packets
            async for chunk in chunks:
                yield chunk

        return with_body(await ask(), change)
