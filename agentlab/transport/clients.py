"""Record and replay in your own HTTP client: of httpx or httpx2, sync or async, also inside a vendor's SDK.

    with lab.replay("fixtures/trip") as recording:
        client = anthropic.Anthropic(api_key="none", http_client=anthropic.DefaultHttpxClient(transport=recording.transport()))

Imports no HTTP library: a response is made by the library that the request is from.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agentlab.errors import ConfigurationError
from agentlab.transport.http import HttpRequest
from agentlab.transport.recording import Recorder, Tape
from agentlab.transport.replaying import Match, ReplayIndex, check_pace, paced

if TYPE_CHECKING:
    from agentlab.transport.cassette import Interaction

    _AnyTransport: Any
else:
    _AnyTransport = object

REPLAY_KEY_EXTENSION = "agentlab.lane"
"""The extension of a request that names the run, as in `ReplayIndex`."""


class ClientTransport(_AnyTransport):  # type: ignore[misc]  # type checkers take it for the transport of either library
    """A transport for `Client` and `AsyncClient` of httpx and httpx2."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close what the transport opened for a sync client."""

    async def aclose(self) -> None:
        """Close what the transport opened for an async client."""


class ReplayTransport(ClientTransport):
    """Replays in your own client: `httpx.Client(transport=lab.replay("fixtures/research").transport())`."""

    def __init__(self, path: str | Path | ReplayIndex, match: Match = "strict", pace: float = 0.0) -> None:
        self._index = path if isinstance(path, ReplayIndex) else ReplayIndex.load(path, match)
        self._pace = check_pace(pace)

    def __repr__(self) -> str:
        return f"ReplayTransport: {self._index!r}"

    def handle_request(self, request: Any) -> Any:
        """Return the recorded response."""
        return self._response(request, request.read())

    async def handle_async_request(self, request: Any) -> Any:
        """Return the recorded response."""
        return self._response(request, await request.aread())

    def _response(self, request: Any, body: bytes) -> Any:
        library, replay_key = library_of(request), request.extensions.get(REPLAY_KEY_EXTENSION, "")
        interaction = self._index.find(request.method, str(request.url), body, replay_key)
        recorded = interaction.response
        if recorded.chunks or recorded.incomplete or self._pace:
            stream = _body_class(library)(lambda: self._pieces(interaction, library), lambda: self._paced(interaction, library))
        else:
            stream = library.ByteStream(recorded.body)
        return library.Response(recorded.status, headers=recorded.headers, stream=stream)

    def _pieces(self, interaction: Interaction, library: Any) -> Iterator[bytes]:
        for wait_s, piece in interaction.response.timed(self._pace):
            if wait_s:
                time.sleep(wait_s)
            yield piece
        _check_complete(interaction, library)

    async def _paced(self, interaction: Interaction, library: Any) -> AsyncIterator[bytes]:
        async for piece in paced(interaction.response, self._pace):
            yield piece
        _check_complete(interaction, library)


def _check_complete(interaction: Interaction, library: Any) -> None:
    if interaction.response.incomplete:
        raise library.ReadError(f"the connection broke off, as it did when {interaction.source} was recorded.")


class RecordTransport(ClientTransport):
    """Records in your own client: sends requests through `transport`, by default its library's own, and writes the responses."""

    def __init__(
        self, path: str | Path | Recorder, *, transport: Any = None, origin: str | Mapping[str, object] | None = None
    ) -> None:
        self._recorder = path if isinstance(path, Recorder) else Recorder(path, origin=origin)
        self._given = transport
        self._sync: Any = None
        self._async: Any = None

    def __repr__(self) -> str:
        return f"RecordTransport({str(self._recorder.path)!r})"

    def handle_request(self, request: Any) -> Any:
        """Send the request and record the response."""
        library, tape = library_of(request), self._begin(request, request.read())
        self._sync = self._sync or self._given or library.HTTPTransport()
        return _taped(library, self._sync.handle_request(request), tape)

    async def handle_async_request(self, request: Any) -> Any:
        """Send the request and record the response."""
        library, tape = library_of(request), self._begin(request, await request.aread())
        self._async = self._async or self._given or library.AsyncHTTPTransport()
        return _taped(library, await self._async.handle_async_request(request), tape)

    def _begin(self, request: Any, body: bytes) -> Tape:
        replay_key = request.extensions.get(REPLAY_KEY_EXTENSION, "")
        sent = HttpRequest(request.method, str(request.url), dict(request.headers), body)
        return self._recorder.begin(sent, replay_key=replay_key)

    def close(self) -> None:
        """Close the wrapped transport."""
        if self._sync is not None:
            self._sync.close()

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        if self._async is not None:
            await self._async.aclose()


_ENCODING = ("content-encoding", "content-length")


def _taped(library: Any, response: Any, tape: Tape) -> Any:
    """Return the response with a body that goes to the caller and to the tape, decoded."""
    tape.headers(response.status_code, response.reason_phrase, response.headers)
    decoded = [(name, value) for name, value in response.headers.multi_items() if name not in _ENCODING]

    def chunks() -> Iterator[bytes]:
        try:
            for chunk in response.iter_bytes():
                tape.chunk(chunk)
                yield chunk
        except library.TransportError:
            tape.broke()
            raise
        tape.complete()

    async def async_chunks() -> AsyncIterator[bytes]:
        try:
            async for chunk in response.aiter_bytes():
                tape.chunk(chunk)
                yield chunk
        except library.TransportError:
            tape.broke()
            raise
        tape.complete()

    def close() -> None:
        try:
            response.close()
        finally:
            tape.close()

    async def aclose() -> None:
        try:
            await response.aclose()
        finally:
            tape.close()

    headers = decoded if "content-encoding" in response.headers else response.headers
    stream = _body_class(library)(chunks, async_chunks, close, aclose)
    return library.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)


# The libraries -----------------------------------------------------------------------------------------------------------------


def library_of(value: Any) -> Any:
    """Return the library of a client or a request, httpx or httpx2; None for a value of neither."""
    for kind in type(value).__mro__:
        if (name := kind.__module__.partition(".")[0]) in ("httpx", "httpx2"):
            return sys.modules[name]
    return None


def check_client(client: Any) -> None:
    """Raise ConfigurationError for an `http_client` that cannot send a run's requests."""
    library = library_of(client)
    if library is not None and isinstance(client, library.Client):
        raise ConfigurationError(
            f"http_client is a sync client, and agents send their requests on an event loop: pass {library.__name__}.AsyncClient(…) "
            "with the same arguments."
        )
    if library is None or not isinstance(client, library.AsyncClient):
        raise ConfigurationError(
            f"http_client is of the type {type(client).__name__}: pass httpx.AsyncClient(…), or httpx2.AsyncClient(…)."
        )
    if client.is_closed:
        raise ConfigurationError("http_client is closed: pass a new one, and use it within its `async with` block if it has one.")


@cache
def _body_class(library: Any) -> Any:
    """Return the class of a body for sync and async clients of the library, which accept subclasses of their own only."""

    class Body(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]
        def __init__(
            self,
            chunks: Callable[[], Iterator[bytes]],
            async_chunks: Callable[[], AsyncIterator[bytes]],
            close: Callable[[], None] | None = None,
            aclose: Callable[[], Awaitable[None]] | None = None,
        ) -> None:
            self._chunks, self._async_chunks, self._close, self._aclose = chunks, async_chunks, close, aclose

        def __iter__(self) -> Iterator[bytes]:
            return self._chunks()

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._async_chunks()

        def close(self) -> None:
            if self._close is not None:
                self._close()

        async def aclose(self) -> None:
            if self._aclose is not None:
                await self._aclose()

    return Body
