"""The live transport, and the only file that imports an HTTP library: httpx, or httpx2 where httpx is not installed."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from types import TracebackType

try:
    import httpx
except ImportError:  # the vendors' SDKs bring httpx2, which has the same names
    import httpx2 as httpx  # type: ignore[no-redef]

from agentlab._internal.redaction import is_free_of_keys, redact, redact_url
from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.transport.http import HttpAnswer, HttpRequest

CONNECT_TIMEOUT_S = 10.0
CONNECTIONS_PER_HOST = 256
"""The limit on open connections to a host from one event loop; further requests wait for a free connection."""
KEPT_IDLE_S = 30.0
"""The time after which an idle connection is closed."""
_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEPT_IDLE_S)

# Logs --------------------------------------------------------------------------------------------------------------------------

_LOGGERS = (
    *("agentlab.providers", "agentlab.signals", "agentlab.serving.app", "httpx", "httpx2"),
    *(f"{core}.{part}" for core in ("httpcore", "httpcore2") for part in ("connection", "http11", "http2", "proxy", "socks")),
    *(
        f"botocore.{part}"
        for part in ["auth", "awsrequest", "credentials", "endpoint", "hooks", "httpsession", "parsers", "utils"]
    ),
)
"""httpx logs URLs, httpcore logs response headers, and botocore logs the requests that it signs."""


class WithoutKeys(logging.Filter):
    """Redacts keys in the message and the traceback of each log record. Works for your own logger or handler too."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact this record; always returns True."""
        try:
            message = record.getMessage()
        except Exception:  # the arguments do not fit the message: logging itself reports that
            return True
        redacted = redact(message)
        if redacted != message:
            record.msg, record.args = redacted, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
        return True


_FORMATTER = logging.Formatter()
_FILTER = WithoutKeys()


for _name in _LOGGERS:
    logging.getLogger(_name).addFilter(_FILTER)

# Live --------------------------------------------------------------------------------------------------------------------------


@cache
def _tls() -> ssl.SSLContext:
    """Return one context for all clients: reading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context()


class _Connections:
    """The connections to one host from one event loop, each in its own httpx client.

    The pool of a single client searches all connections and waiting requests at each request: 1,000 runs at once took minutes, and
    connections timed out. Here the cost of a request does not depend on their number.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._free = asyncio.Semaphore(CONNECTIONS_PER_HOST)
        self._idle: deque[tuple[float, httpx.AsyncClient]] = deque()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """Wait for a free connection, first come, first served, without a time-out; yield the client used last."""
        try:
            await self._free.acquire()
        except asyncio.CancelledError as cancel:
            cancel.add_note(f"the call waited for one of the {CONNECTIONS_PER_HOST} connections to {self._host}")
            raise
        try:
            client = self._idle.pop()[1] if self._idle else httpx.AsyncClient(verify=_tls(), limits=_ONE, follow_redirects=False)
            try:
                yield client
            finally:
                now_s = time.monotonic()
                self._idle.append((now_s, client))
                while self._idle and self._idle[0][0] < now_s - KEPT_IDLE_S:  # others take clients while one is being closed
                    await self._idle.popleft()[1].aclose()
        finally:
            self._free.release()

    async def aclose(self) -> None:
        """Close idle connections."""
        while self._idle:
            await self._idle.pop()[1].aclose()


class LiveTransport:
    """Sends requests to the provider. Each event loop has its own connections, made when first used and closed with the loop."""

    needs_key = True

    def __init__(self) -> None:
        self._hosts: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[dict[str, _Connections], AsyncGenerator[None]]]
        self._hosts = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "live transport"

    def __reduce__(self) -> tuple[Callable[[], LiveTransport], tuple[()]]:
        return live, ()  # another process uses its own

    @asynccontextmanager
    async def open(
        self, request: HttpRequest, *, auth: Mapping[str, str], replay_key: str, timeout_s: float | None
    ) -> AsyncIterator[HttpAnswer]:
        """Send the request to the provider."""
        hosts, host = await self._loop_connections(), "/".join(request.url.split("/", 3)[:3])
        if (connections := hosts.get(host)) is None:
            connections = hosts[host] = _Connections(host.rpartition("/")[2].rpartition("@")[2])
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        async with connections.client() as client:
            with _readable_errors(request.url):
                outgoing = client.build_request(
                    request.method, request.url, headers={**request.headers, **auth}, content=request.body, timeout=timeout
                )
                response = await client.send(outgoing, stream=True)
            try:
                yield _LiveAnswer(response, request.url)
            finally:
                await response.aclose()

    async def _loop_connections(self) -> dict[str, _Connections]:
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
        """Close the connections with their event loop: a loop closes its generators before it shuts down."""
        try:
            yield
        finally:
            with self._lock:
                self._hosts.pop(loop, None)
            for connections in hosts.values():
                await connections.aclose()


@cache
def live() -> LiveTransport:
    """Return the live transport of this process."""
    return LiveTransport()


class _LiveAnswer:
    """A response whose body is being received."""

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
        # A body without encoding is read from the stream itself, which saves httpx's two layers around it.
        response = self._response
        plain = "content-encoding" not in response.headers and isinstance(response.stream, httpx.AsyncByteStream)
        with _readable_errors(self._url):
            async for chunk in response.stream if plain else response.aiter_bytes():  # type: ignore[union-attr]
                yield chunk


class _readable_errors:  # noqa: N801  a class, since contextlib's frames in a traceback would show httpx's error
    """Turns httpx's errors into agentlab's, which say what to do next."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or isinstance(error, GeneratorExit | asyncio.CancelledError):
            return
        translated, cause = _translated(error, redact_url(self._url).partition("?")[0])
        if translated is not None:
            # httpx's error may contain a key, and some tracebacks show variables.
            del error, trace
            raise translated from cause


def _translated(error: BaseException, place: str) -> tuple[Exception | None, BaseException | None]:
    """Return agentlab's error for an error of httpx, and its cause; None for any other error."""
    if isinstance(error, httpx.LocalProtocolError | UnicodeEncodeError):
        # Not chained: the error's text contains the header, which may be the key.
        message = (
            f"A header of the request to {place} contains a character that HTTP does not allow. Most often it is a line break "
            "or a space copied along with the API key: set the key again."
        )
        return ConfigurationError(message), None
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        message = f"{place!r} is not an address: {error}. Set base_url to something like https://host/v1."
        return ConfigurationError(message), _cause(error)
    if isinstance(error, httpx.HTTPError):
        return ProviderConnectionError(f"{place}: {_explain(error)}"), _cause(error)
    return None, None


def _cause(error: BaseException) -> BaseException | None:
    """Return the error if it contains no key, else None: it may quote a server that repeats a key."""
    return error if is_free_of_keys(error) else None


def _explain(error: httpx.HTTPError) -> str:
    detail = f" ({error})" if str(error) else ""
    match error:
        case httpx.ConnectTimeout():
            return f"no connection within {CONNECT_TIMEOUT_S:g} s. Check the address, the network and the proxy settings."
        case httpx.ConnectError():
            return f"no connection{detail}. Check the address and that the server runs, then the network and the proxy settings."
        case httpx.ReadTimeout() | httpx.WriteTimeout():
            return "the provider sent nothing within the time allowed. Try again, or allow more time."
        case httpx.DecodingError():
            return (
                f"the body is not in the encoding that its header names{detail}. Try again; if the error persists, the server is "
                "at fault."
            )
        case httpx.ProxyError():
            return f"the proxy refused{detail}. Check HTTPS_PROXY and NO_PROXY."
    return f"the connection broke off{detail}. Try again."
