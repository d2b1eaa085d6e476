"""The live transport, and the only file that imports an HTTP library: aiohttp."""

from __future__ import annotations

import asyncio
import atexit
import base64
import io
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from types import TracebackType
from typing import TYPE_CHECKING

from agentlab._internal.lazy import Later
from agentlab._internal.redaction import redact, redact_url
from agentlab._internal.safe_text import one_line
from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.transport.http import HttpAnswer, HttpRequest

if TYPE_CHECKING:
    import ssl

    import aiohttp
    from yarl import URL
else:
    aiohttp = Later("aiohttp")  # slow to load; scripted runs and replays need it never

CONNECT_TIMEOUT_S = 10.0
CONNECTIONS_PER_HOST = 256
"""The limit on open connections to a host from one event loop; further requests wait for a free connection."""
KEPT_IDLE_S = 30.0
"""The time after which an idle connection is closed."""
_MAX_HEADER_BYTES = 65_536
_LARGE_BYTES = 2**20
"""From this size on a body is sent in pieces, so that it does not hold up the loop."""
_CLOSE_AT_EXIT_S = 1.0

# Logs --------------------------------------------------------------------------------------------------------------------------

_LOGGERS = (
    *("agentlab.providers", "agentlab.signals", "agentlab.serving.app", "aiohttp.client", "aiohttp.internal", "httpx", "httpx2"),
    *(f"{core}.{part}" for core in ("httpcore", "httpcore2") for part in ("connection", "http11", "http2", "proxy", "socks")),
    *(
        f"botocore.{part}"
        for part in ["auth", "awsrequest", "credentials", "endpoint", "hooks", "httpsession", "parsers", "utils"]
    ),
)
"""Libraries that send requests, ours and those of MCP and of vendors: httpx logs URLs, httpcore logs response headers, and botocore
logs the requests that it signs."""


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
    """Return one context for all connections: reading the certificates takes tens of milliseconds."""
    import ssl

    import certifi

    own = {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys()  # which OpenSSL reads by itself
    return ssl.create_default_context(cafile=None if own else certifi.where())


class _Connections:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        connector = aiohttp.TCPConnector(limit=0, ssl=_tls(), keepalive_timeout=KEPT_IDLE_S)  # limited by `free`
        self.session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        )
        self.hosts: dict[URL, tuple[asyncio.Semaphore, URL | None]] = {}

    def host(self, address: URL) -> tuple[asyncio.Semaphore, URL | None]:
        """Return the free connections to the host of an address, and its proxy."""
        origin = address.origin()
        if (found := self.hosts.get(origin)) is None:
            found = self.hosts[origin] = (asyncio.Semaphore(CONNECTIONS_PER_HOST), _proxy(origin))
        return found

    def close(self) -> None:
        """Close, from outside of the event loop: aiohttp would complain about connections that are left open."""
        closing = self.session.close()
        if self.loop.is_running():
            asyncio.run_coroutine_threadsafe(closing, self.loop).result(_CLOSE_AT_EXIT_S)
        elif not self.loop.is_closed():
            self.loop.run_until_complete(closing)
        else:
            with suppress(StopIteration):
                closing.send(None)  # waits for nothing


class LiveTransport:
    """Sends requests to the provider. Each event loop has its own connections, made when first used and closed with the loop."""

    needs_key = True

    def __init__(self) -> None:
        self._loops: dict[asyncio.AbstractEventLoop, tuple[_Connections, AsyncGenerator[None]]] = {}
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
        if sys.platform == "emscripten":
            raise ConfigurationError("Python in a browser has no sockets, so a provider cannot be reached: use `lab.replay(…)`.")
        address = _address(request.url)
        if not all(map(_can_be_sent, (*request.headers.values(), *auth.values()))):
            raise ConfigurationError(
                f"A header of the request to {_place(request.url)} contains a character that HTTP does not allow. Most often it is "
                "a line break or a space copied along with the API key: set the key again."
            )
        here = await self._here()
        free, proxy = here.host(address)
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=timeout_s)
        try:
            await free.acquire()  # first come, first served, without a time-out
        except asyncio.CancelledError as cancel:
            cancel.add_note(f"the call waited for one of the {CONNECTIONS_PER_HOST} connections to {address.origin().authority}")
            raise
        try:
            with _readable_errors(request.url):
                response = await here.session.request(
                    request.method,
                    address.with_user(None),
                    data=io.BytesIO(request.body) if len(request.body) >= _LARGE_BYTES else request.body or None,
                    headers={**request.headers, **auth, **_login(address)},
                    allow_redirects=False,
                    proxy=proxy,
                    timeout=timeout,
                )
            try:
                headers = {name.lower(): value for name, value in response.headers.items()}
                yield HttpAnswer(response.status, headers, partial(_chunks, response, request.url))
            finally:
                response.release()  # closes the connection if the body was not read to its end
        finally:
            free.release()

    async def _here(self) -> _Connections:
        """Return the connections of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is not None:
            return found[0]
        here = _Connections(loop)
        closer = self._close_with_loop(here)
        with self._lock:
            for other in [other for other in self._loops if other.is_closed()]:  # without shutting down
                self._loops.pop(other)[0].close()
            self._loops[loop] = (here, closer)
        await anext(closer)
        return here

    async def _close_with_loop(self, here: _Connections) -> AsyncGenerator[None]:
        """Close the connections with their event loop: a loop closes its generators before it shuts down."""
        try:
            yield
        finally:
            with self._lock:
                self._loops.pop(here.loop, None)
            await here.session.close()

    def close_at_exit(self) -> None:
        """Close the connections of event loops that were not shut down, such as that of the background."""
        for here, _ in list(self._loops.values()):
            with suppress(Exception):
                here.close()


@cache
def live() -> LiveTransport:
    """Return the live transport of this process."""
    transport = LiveTransport()
    atexit.register(transport.close_at_exit)
    return transport


def _address(url: str, advice: str = "Set base_url to something like https://host/v1.") -> URL:
    """Return the address as aiohttp takes it. Percent-encoded characters stay as they are, since signatures cover them."""
    from yarl import URL  # aiohttp's

    try:
        address = URL(url, encoded=url.isascii() and " " not in url)
        if address.scheme in ("http", "https") and address.host and url.isprintable():
            return address
        reason = "it needs http:// or https://, and a host"
    except ValueError as error:
        reason = str(error)
    raise ConfigurationError(f"{_place(url)!r} is not an address: {reason}. {advice}")


def _proxy(origin: URL) -> URL | None:
    """Return the proxy for a host by HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY or the system's settings; None without one.

    aiohttp's `trust_env` would also send passwords from ~/.netrc.
    """
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    proxy = proxies.get(origin.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(origin.authority):
        return None
    advice = f"The environment names it as the proxy: set HTTPS_PROXY to an HTTP proxy, or NO_PROXY={origin.host}."
    return _address(proxy if "://" in proxy else f"http://{proxy}", advice)


def _login(address: URL) -> dict[str, str]:
    """Return the header for the user name and password in an address. It takes the place of a key, as in other clients."""
    if address.user is None:
        return {}
    return {"authorization": "Basic " + base64.b64encode(f"{address.user}:{address.password or ''}".encode()).decode()}


def _can_be_sent(header: str) -> bool:
    return header.isascii() and header.isprintable() and header == header.strip()


async def _chunks(response: aiohttp.ClientResponse, url: str) -> AsyncIterator[bytes]:
    with _readable_errors(url):
        async for chunk in response.content.iter_any():
            yield chunk


class _readable_errors:  # noqa: N801  a class, since contextlib's frames in a traceback would show aiohttp's error
    """Turns aiohttp's errors into agentlab's, which say what to do next."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, aiohttp.ClientError):
            reason = _explain(error)
            # Not chained: aiohttp's error and its frames have the headers, and some tracebacks show variables.
            del error, trace
            raise ProviderConnectionError(f"{_place(self._url)}: {reason}") from None


def _place(url: str) -> str:
    """Return a URL for an error message."""
    return redact_url(url).partition("?")[0]


def _explain(error: aiohttp.ClientError) -> str:
    match error:
        case aiohttp.ConnectionTimeoutError():
            return f"no connection within {CONNECT_TIMEOUT_S:g} s. Check the address, the network and the proxy settings."
        case aiohttp.ServerTimeoutError():
            return "the provider sent nothing within the time allowed. Try again, or allow more time."
        case aiohttp.ClientProxyConnectionError():
            return f"no connection to the proxy ({_reason(error)}). Check HTTPS_PROXY and NO_PROXY."
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refused ({error.status} {error.message}). Check HTTPS_PROXY and NO_PROXY."
        case aiohttp.ClientConnectorError() | aiohttp.ClientConnectorCertificateError():
            return (
                f"no connection ({_reason(error)}). Check the address and that the server runs, then the network and the proxy "
                "settings."
            )
        case aiohttp.ClientPayloadError() if "content-encoding" in str(error):
            return (
                "the body is not in the encoding that its header names. Try again; if the error persists, the server is at fault."
            )
        case aiohttp.ClientPayloadError():
            return "the connection broke off (the body is incomplete). Try again."
    reason = getattr(error, "message", None) or str(error)  # the second one may contain the address
    return f"the connection broke off ({one_line(str(reason))}). Try again."


def _reason(error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError) -> str:
    """Return what the system or the TLS library says, without the address."""
    below = error.certificate_error if isinstance(error, aiohttp.ClientConnectorCertificateError) else error.os_error
    reason = getattr(below, "strerror", None) or str(below)
    if isinstance(below, OSError) and below.errno and reason.startswith("Connect call failed"):
        reason = os.strerror(below.errno)  # asyncio's text has the address
    return one_line(reason)
