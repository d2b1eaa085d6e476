"""Chooses the transport of a run: live, recording, or replay."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from agentlab.errors import AgentlabWarning, ConfigurationError, ProviderConnectionError
from agentlab.transport.cassette import Interaction
from agentlab.transport.clients import RecordTransport, ReplayTransport
from agentlab.transport.http import HttpAnswer, HttpRequest
from agentlab.transport.live import live
from agentlab.transport.recording import Recorder, Tape
from agentlab.transport.replaying import Match, ReplayIndex, check_pace, paced


class Transport(Protocol):
    """Sends a run's requests."""

    @property
    def needs_key(self) -> bool:
        """True if requests reach a provider, so that a key is needed."""
        ...

    def open(
        self, request: HttpRequest, *, auth: Mapping[str, str], replay_key: str, timeout_s: float | None, client: Any = None
    ) -> AbstractAsyncContextManager[HttpAnswer]:
        """Send the request; the answer is open until the context ends. `timeout_s` limits each wait for data, None means no limit.
        `replay_key` names the run, so that each run replays the recordings from the first one on. `client` is the user's own client
        of httpx or httpx2, which sends the request; None for agentlab's own.

        Raises ProviderConnectionError (also while the body is read), and from a recording ReplayMissError.
        """
        ...


_stack: ContextVar[tuple[Any, ...]] = ContextVar("agentlab.transport", default=())


def current() -> Transport:
    """Return the transport of the innermost `replay` or `record` around the caller, else the live one."""
    stack = _stack.get()
    found: Transport = stack[-1] if stack else live()
    return found


def is_chosen() -> bool:
    """True if there is a `replay` or a `record` around the caller."""
    return bool(_stack.get())


def check_used(transport: Transport) -> None:
    """Raise ConfigurationError if a run asks the live model although a `replay` or a `record` is around the caller."""
    if is_chosen() and not isinstance(transport, Switch) and transport is live():
        block = f"with lab.{'record' if isinstance(current(), Record) else 'replay'}(…)"
        raise ConfigurationError(
            f"The run was created before `{block}`, so it would ask the live model, and nothing would be recorded or replayed: create "
            "it in the block, or start it outside."
        )


class Switch:
    """A transport that is a context manager: within its block it is the current one. Blocks may be nested."""

    def __enter__(self) -> Self:
        _stack.set((*_stack.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        stack = _stack.get()  # does not contain this one if the block ends in another context than it began in
        for index in range(len(stack) - 1, -1, -1):
            if stack[index] is self:
                _stack.set(stack[:index] + stack[index + 1 :])
                break


# Replay ------------------------------------------------------------------------------------------------------------------------


class Replay(Switch):
    """Answers requests from recordings, without a key or a network. Use it in `with`, or pass it to a run as its transport.

    Runs, threads and event loops may share it.
    """

    needs_key = False

    def __init__(self, index: ReplayIndex, pace: float) -> None:
        self.index = index
        self.pace = pace

    def __reduce__(self) -> tuple[Any, ...]:
        return Replay, (self.index, self.pace)  # another process gets the recordings, and does not need the folder

    def __repr__(self) -> str:
        return f"replay({self.index!r}, pace={self.pace:g})"

    @asynccontextmanager
    async def open(
        self, request: HttpRequest, *, auth: Mapping[str, str], replay_key: str, timeout_s: float | None, client: Any = None
    ) -> AsyncIterator[HttpAnswer]:
        """Look the request up. `auth`, `timeout_s` and `client` are ignored."""
        await asyncio.sleep(0)  # let other tasks run, as they would during a real call
        interaction = self.index.find(request.method, request.url, request.body, replay_key)
        response = interaction.response
        yield HttpAnswer(response.status, response.headers, partial(_replayed, interaction, self.pace), interaction.recorded)

    def transport(self) -> Any:
        """Return a transport for a client of httpx or httpx2, sync or async, such as those of the vendors' SDKs.

        Its type is Any, since both libraries ask for a class of their own. A client gets the recordings as a run does, from the first
        one on, together with all clients of this `replay`.

        Example:
            >>> import httpx2
            >>> client = httpx2.Client(transport=lab.replay("fixtures/trip", match="order").transport())
            >>> client.post("https://api.anthropic.com/v1/messages", json={}).json()["model"]
            'claude-sonnet-4-6'
        """
        return ReplayTransport(self.index, pace=self.pace)

    def run_continues(self, replay_key: str, requests: Iterable[int]) -> None:
        """Serve a branch, or a run from a store, the recordings after those of its kept steps, by `match="order"`."""
        self.index.skip(replay_key, requests)

    def run_ended(self, replay_key: str) -> None:
        """Forget the position of a run that has ended."""
        self.index.forget(replay_key)


async def _replayed(interaction: Interaction, pace: float) -> AsyncIterator[bytes]:
    """Yield the body of a recorded response."""
    response = interaction.response
    if pace:
        async for piece in paced(response, pace):
            yield piece
    else:
        for piece in response.pieces():
            yield piece
    if response.incomplete:
        raise ProviderConnectionError(f"the connection broke off, as it did when {interaction.source} was recorded.")


# Record ------------------------------------------------------------------------------------------------------------------------


class Record(Switch):
    """Sends requests to their providers and records each response as soon as it is complete. Use it in `with`, or pass it to a run."""

    needs_key = True

    def __init__(self, recorder: Recorder, transport: Transport) -> None:
        self.recorder = recorder
        self._transport = transport
        self._has_warned = False

    def warn_if_nothing_was_asked(self, model: str) -> None:
        """Warn, once, after a run of a model that answers in Python, if this recording has had no request."""
        if not self._has_warned and not self.recorder.requests:
            self._has_warned = True
            warnings.warn(
                f"lab.record({str(self.recorder.path)!r}) has written nothing: the model {model} answers in Python, as a scripted "
                "one does, and no HTTP request was made.",
                AgentlabWarning,
                stacklevel=2,
            )

    def transport(self, transport: Any = None) -> Any:
        """Return a transport for a client of httpx or httpx2, sync or async, such as those of the vendors' SDKs.

        It sends requests through `transport`, by default one of the client's library, and records the responses.

        Example:
            >>> from tempfile import mkdtemp
            >>> import httpx
            >>> httpx.AsyncClient(transport=lab.record(mkdtemp()).transport())
            <httpx.AsyncClient object at ...>
        """
        return RecordTransport(self.recorder, transport=transport)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(record, self.recorder.path, origin=self.recorder.origin), ()

    def __repr__(self) -> str:
        count = self.recorder.count
        return f"record({str(self.recorder.path)!r}): {count} interaction{'s' * (count != 1)} written"

    @asynccontextmanager
    async def open(
        self, request: HttpRequest, *, auth: Mapping[str, str], replay_key: str, timeout_s: float | None, client: Any = None
    ) -> AsyncIterator[HttpAnswer]:
        """Send the request and record the response."""
        tape = self.recorder.begin(request, auth=auth, replay_key=replay_key)
        async with self._transport.open(request, auth=auth, replay_key=replay_key, timeout_s=timeout_s, client=client) as answer:
            tape.headers(answer.status, "", answer.headers)
            try:
                yield HttpAnswer(answer.status, answer.headers, partial(_taped, answer, tape))
            finally:
                tape.close()


async def _taped(answer: HttpAnswer, tape: Tape) -> AsyncIterator[bytes]:
    """Yield the body of an answer, and record it."""
    try:
        async for chunk in answer.chunks():
            tape.chunk(chunk)
            yield chunk
    except ProviderConnectionError:
        tape.broke()
        raise
    tape.complete()


# The public pair ---------------------------------------------------------------------------------------------------------------


def replay(path: str | Path, match: Match = "strict", pace: float = 0.0) -> Replay:
    """Answer requests from recorded cassettes: a file, a folder of them, or a sample. `with agentlab.replay("sample:trip"): …`

    `lab.samples()` lists the samples, which come with agentlab.

    `match`: "strict" looks for the same request (address and body; the order of JSON keys and fields such as `user` do not matter),
    "order" serves the recordings of an address one after the other, for any request; of streams and whole answers, if it has both,
    those of the request's kind. Each run starts at the first recording, a branch
    after those of its kept steps. `pace`: 0 answers at once, 1 in the recorded time, 2 takes twice as long.

    Raises FixtureNotFoundError and MalformedCassetteError here, ReplayMissError if a request matches nothing.

    Example:
        >>> with lab.replay("fixtures/trip"):
        ...     result = await agent.run(TASK)
        >>> result.stop_reason
        <StopReason.STOP_CONDITION: 'stop_condition'>
        >>> with lab.replay("fixtures/trip"):
        ...     result = await agent.run("Another question.")
        Traceback (most recent call last):
            ...
        agentlab.errors.ReplayMissError: No recording matches this request to POST api.anthropic.com/v1/messages...
    """
    return Replay(ReplayIndex.load(path, match), check_pace(pace))


def record(path: str | Path, *, origin: str | Mapping[str, object] | None = None) -> Record:
    """Send requests to their providers and write the responses into cassettes. `with agentlab.record("fixtures/research"): …`

    `path` is a folder (with one file per host) or a file ending in .yaml, .json or .json.gz. Existing recordings are kept; a request
    that is recorded again replaces its earlier recordings (comments in a rewritten file are lost). Keys, cookies and organisation ids
    are not written. `origin` says where the recordings come from; by default it has the date and the host.

    Example:
        >>> from tempfile import mkdtemp
        >>> folder = mkdtemp()
        >>> with lab.record(folder):
        ...     run = agent.run(TASK)  # `await run` would call the model and record its responses
        >>> run
        Run(anthropic:claude-sonnet-4-6, ready, 0 steps, Budget(max_turns=20))
    """
    return Record(Recorder(path, origin=origin), live())
