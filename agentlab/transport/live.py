"""The only user of httpx: the live transport, and record and replay transports for an `httpx.AsyncClient` of your own."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType

import httpx

from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.redaction import holds_no_key, redact_url, without_keys
from agentlab.transport.cassette import Interaction
from agentlab.transport.http import HttpAnswer, HttpRequest
from agentlab.transport.recording import Recorder, Tape
from agentlab.transport.replaying import Match, ReplayIndex, check_pace, paced

_LOGGERS = (
    *("agentlab.providers", "agentlab.signals", "agentlab.serving.serve", "httpx"),
    *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")),
    *(
        f"botocore.{part}"
        for part in ("auth", "awsrequest", "credentials", "endpoint", "hooks", "httpsession", "parsers", "utils")
    ),
)


class WithoutKeys(logging.Filter):
    """Lets every record through, its message and its traceback without keys. For a logger or a handler of your own, too."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace what is a key in this record."""
        try:
            said = record.getMessage()
        except Exception:  # a format that does not fit: logging itself tells of it
            return True
        hidden = without_keys(said)
        if hidden != said:
            record.msg, record.args = hidden, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = without_keys(record.exc_text)
        return True


_FORMATTER = logging.Formatter()
_FILTER = WithoutKeys()


def hide_keys() -> None:
    """Have those libraries' loggers without keys from here on."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # twice is once


CONNECT_TIMEOUT_S = 10.0
CONNECTIONS_PER_HOST = 256
"""At most so many connections are open to one host from one event loop; further requests wait in line for a place."""
KEPT_IDLE_S = 30.0
"""How long a connection that nobody uses is kept."""
_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEPT_IDLE_S)
LANE = "agentlab.lane"
"""The request extension of httpx that names the lane."""


hide_keys()


@cache
def _tls() -> ssl.SSLContext:
    """One for all clients: reading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context()


class _Connections:
    """The connections to one host from one event loop, each in an httpx client of its own.

    One client's pool looks through all of its connections and all waiting requests at each request: 1,000 runs at once took minutes,
    and timers came so late that connections timed out. Here a request costs the same however many there are.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._places = asyncio.Semaphore(CONNECTIONS_PER_HOST)
        self._idle: deque[tuple[float, httpx.AsyncClient]] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[httpx.AsyncClient]:
        """Wait for a place, without a time-out, in the order of the requests; then give the client that was used last."""
        try:
            await self._places.acquire()
        except asyncio.CancelledError as cut:
            cut.add_note(f"the call waited for one of the {CONNECTIONS_PER_HOST} connections to {self._host}")
            raise
        try:
            client = self._idle.pop()[1] if self._idle else httpx.AsyncClient(verify=_tls(), limits=_ONE, follow_redirects=False)
            try:
                yield client
            finally:
                self._idle.append((time.monotonic(), client))
                while self._idle[0][0] < self._idle[-1][0] - KEPT_IDLE_S:
                    await self._idle.popleft()[1].aclose()
        finally:
            self._places.release()

    async def aclose(self) -> None:
        """Close what nobody uses."""
        while self._idle:
            await self._idle.pop()[1].aclose()


class LiveTransport:
    """To the provider, over connections that each event loop has of its own. Made when first used, closed when the loop shuts down."""

    needs_key = True

    def __init__(self) -> None:
        self._hosts: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[dict[str, _Connections], AsyncGenerator[None]]]
        self._hosts = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "live transport"

    def __reduce__(self) -> tuple[Callable[[], LiveTransport], tuple[()]]:
        return live, ()  # in another process, that one's

    @asynccontextmanager
    async def open(
        self, request: HttpRequest, *, auth: Mapping[str, str], lane: str, timeout_s: float | None
    ) -> AsyncIterator[HttpAnswer]:
        """Send the request to the provider."""
        hosts, host = await self._of_this_loop(), "/".join(request.url.split("/", 3)[:3])
        if (connections := hosts.get(host)) is None:
            connections = hosts[host] = _Connections(host.rpartition("/")[2].rpartition("@")[2])
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        async with connections.place() as client:
            with _readable_errors(request.url):
                outgoing = client.build_request(
                    request.method, request.url, headers={**request.headers, **auth}, content=request.body, timeout=timeout
                )
                response = await client.send(outgoing, stream=True)
            try:
                yield _LiveAnswer(response, request.url)
            finally:
                await response.aclose()

    async def _of_this_loop(self) -> dict[str, _Connections]:
        loop = asyncio.get_running_loop()
        found = self._hosts.get(loop)
        if found is not None:
            return found[0]
        hosts: dict[str, _Connections] = {}
        closer = self._close_with_loop(loop, hosts)
        with self._lock:
            for other in [other for other in self._hosts if other.is_closed()]:
                del self._hosts[other]
            self._hosts[loop] = (hosts, closer)
        await anext(closer)
        return hosts

    async def _close_with_loop(self, loop: asyncio.AbstractEventLoop, hosts: dict[str, _Connections]) -> AsyncGenerator[None]:
        """A generator that waits to be closed, which a loop does to all of its generators before it shuts down."""
        try:
            yield
        finally:
            with self._lock:
                self._hosts.pop(loop, None)
            for connections in hosts.values():
                await connections.aclose()


@cache
def live() -> LiveTransport:
    """The one live transport of this process."""
    return LiveTransport()


class _LiveAnswer:
    """An open response."""

    __slots__ = ("_response", "_url")

    def __init__(self, response: httpx.Response, url: str) -> None:
        self._response = response
        self._url = url

    @property
    def status(self) -> int:
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self) -> bytes:
        with _readable_errors(self._url):
            return await self._response.aread()

    async def chunks(self) -> AsyncIterator[bytes]:
        # Where nothing is to be decoded, the stream itself spares httpx's two layers around it.
        response = self._response
        plain = "content-encoding" not in response.headers and isinstance(response.stream, httpx.AsyncByteStream)
        with _readable_errors(self._url):
            async for chunk in response.stream if plain else response.aiter_bytes():  # type: ignore[union-attr]
                yield chunk


class _readable_errors:  # noqa: N801  reads like contextlib's
    """httpx's errors as ours, with what to do next."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or isinstance(error, GeneratorExit | asyncio.CancelledError):
            return
        ours, cause = _as_ours(error, redact_url(self._url).partition("?")[0])
        if ours is not None:
            # No variable here holds what httpx raised, which may repeat a key: some tracebacks show variables.
            del error, trace
            raise ours from cause


def _as_ours(error: BaseException, place: str) -> tuple[Exception | None, BaseException | None]:
    """An error of httpx as one of ours, and what it is said to come of; None for any other error."""
    if isinstance(error, httpx.LocalProtocolError | UnicodeEncodeError):
        # Not chained: the error's text holds the header, which may be the key.
        told = (
            f"A header of the request to {place} holds a character that HTTP does not allow. Most often it is a line break "
            "or a space copied along with the API key: set the key again."
        )
        return ConfigurationError(told), None
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        told = f"{place!r} is no address: {error}. Set base_url to something like https://host/v1."
        return ConfigurationError(told), _fit_to_be_shown(error)
    if isinstance(error, httpx.HTTPError):
        return ProviderConnectionError(f"{place}: {_explain(error)}"), _fit_to_be_shown(error)
    return None, None


def _fit_to_be_shown(error: BaseException) -> BaseException | None:
    """What an error of ours came of; nothing, where it holds a key: of a server that broke off while it repeated one."""
    return error if holds_no_key(error) else None


def _explain(error: httpx.HTTPError) -> str:
    said = f" ({error})" if str(error) else ""
    match error:
        case httpx.ConnectTimeout():
            return f"no connection within {CONNECT_TIMEOUT_S:g} s. Check the address, the network and the proxy settings."
        case httpx.ConnectError():
            return f"no connection{said}. Check the address and that the server runs, then the network and the proxy settings."
        case httpx.ReadTimeout() | httpx.WriteTimeout():
            return "the provider sent nothing within the time allowed. Try again, or allow more time."
        case httpx.DecodingError():
            return f"the body is not in the encoding its header names{said}. Try again; if it stays, it is the server's fault."
        case httpx.ProxyError():
            return f"the proxy refused{said}. Check HTTPS_PROXY and NO_PROXY."
    return f"the connection broke off{said}. Try again."


class _PacedStream(httpx.AsyncByteStream):
    def __init__(self, interaction: Interaction, pace: float) -> None:
        self._interaction = interaction
        self._pace = pace

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in paced(self._interaction.response, self._pace):
            yield piece
        if self._interaction.response.incomplete:
            raise httpx.ReadError(f"the connection broke off, as it did when {self._interaction.source} was recorded.")


class ReplayTransport(httpx.AsyncBaseTransport):
    """For an `httpx.AsyncClient` of your own: `httpx.AsyncClient(transport=ReplayTransport("fixtures/research"))`."""

    def __init__(self, path: str | Path, match: Match = "strict", pace: float = 0.0) -> None:
        self._index = ReplayIndex.load(path, match)
        self._pace = check_pace(pace)

    def __repr__(self) -> str:
        return f"ReplayTransport: {self._index!r}"

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The recorded response. The request extension `agentlab.lane` names the lane."""
        interaction = self._index.find(request.method, str(request.url), await request.aread(), request.extensions.get(LANE, ""))
        recorded, pace = interaction.response, self._pace
        whole = not (recorded.chunks or recorded.incomplete or pace)
        stream = httpx.ByteStream(recorded.body) if whole else _PacedStream(interaction, pace)
        return httpx.Response(recorded.status, headers=recorded.headers, stream=stream)


class RecordTransport(httpx.AsyncBaseTransport):
    """For an `httpx.AsyncClient` of your own: passes everything on to `transport` and writes down what is answered."""

    def __init__(
        self,
        path: str | Path,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        origin: str | Mapping[str, object] | None = None,
    ) -> None:
        self._recorder = Recorder(path, origin=origin)
        self._transport = transport or httpx.AsyncHTTPTransport()

    def __repr__(self) -> str:
        return f"RecordTransport({str(self._recorder.path)!r})"

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request. The request extension `agentlab.lane` names the lane."""
        body = await request.aread()
        tape = self._recorder.begin(
            request.method, str(request.url), request.headers, body, lane=request.extensions.get(LANE, "")
        )
        response = await self._transport.handle_async_request(request)
        tape.headers(response.status_code, response.reason_phrase, response.headers)
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  what an async transport gives
        stream = _TapedStream(response.stream, tape, response.headers.get("content-encoding", ""))
        return httpx.Response(response.status_code, headers=response.headers, stream=stream, extensions=response.extensions)

    async def aclose(self) -> None:
        """Close the transport underneath."""
        await self._transport.aclose()


class _TapedStream(httpx.AsyncByteStream):
    """Bytes on their way to the caller as they came, and to the tape decoded."""

    def __init__(self, stream: httpx.AsyncByteStream, tape: Tape, encoding: str) -> None:
        self._stream = stream
        self._tape = tape
        self._encoding = encoding
        self._raw: list[tuple[float, bytes]] = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                if self._encoding:
                    self._raw.append((time.monotonic(), chunk))
                else:
                    self._tape.chunk(chunk)
                yield chunk
        except httpx.TransportError:
            self._tape.broke()
            raise
        self._decode()
        self._tape.complete()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._decode()
            self._tape.close()

    def _decode(self) -> None:
        """Give the tape what the compressed chunks hold, each at its own time."""
        raw, self._raw = self._raw, []
        at = 0.0

        def feed() -> Iterator[bytes]:
            nonlocal at
            for at, chunk in raw:  # noqa: B007  the time of the chunk that is being decoded
                yield chunk

        with suppress(httpx.DecodingError):  # broken off in the middle
            for piece in httpx.Response(200, headers={"content-encoding": self._encoding}, content=feed()).iter_bytes():
                self._tape.chunk(piece, at)
