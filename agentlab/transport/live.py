"""Sends requests with httpx: over connections of agentlab's own, or with the client that a user gave to a provider."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx

from agentlab._internal.redaction import redact, redact_url
from agentlab._internal.safe_text import one_line
from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.transport.clients import check_client, library_of
from agentlab.transport.http import HttpAnswer, HttpRequest

CONNECT_TIMEOUT_S = 10.0
CONNECTIONS_PER_HOST = 256
"""The limit on open connections to a host from one event loop; further requests wait for a free connection."""
KEPT_IDLE_S = 30.0
"""The time after which an idle connection is closed."""

# Logs --------------------------------------------------------------------------------------------------------------------------

_LOGGERS = (
    *("agentlab.providers", "agentlab.signals", "agentlab.serving.app", "httpx", "httpx2"),
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

# Connections -------------------------------------------------------------------------------------------------------------------


class _Queue:
    """Lets CONNECTIONS_PER_HOST requests through at a time, first come, first served, without a time-out."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._free = asyncio.Semaphore(CONNECTIONS_PER_HOST)

    async def __aenter__(self) -> None:
        try:
            await self._free.acquire()
        except asyncio.CancelledError as cancel:
            cancel.add_note(f"the call waited for one of the {CONNECTIONS_PER_HOST} connections to {self._to}")
            raise

    async def __aexit__(self, *_: object) -> None:
        self._free.release()


class _Host:
    """The connections to one host from one event loop, each in a separate httpx client.

    One client for all of them would be slow: its pool searches all connections and waiting requests at each request.
    """

    def __init__(self, address: httpx.URL) -> None:
        self._address = address
        self._queue = _Queue(address.netloc.decode())
        self._idle: deque[tuple[float, httpx.AsyncClient]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """Wait for a free connection; yield the client used last, or a new one."""
        async with self._queue:
            client = self._idle.pop()[1] if self._idle else _new_client(self._address)
            try:
                yield client
            except BaseException:  # a cancel may leave a connection in a state in which it would never be free again
                self._close(client)
                raise
            self._idle.append((time.monotonic(), client))
            self._timer = self._timer or asyncio.get_running_loop().call_later(KEPT_IDLE_S, self._close_unused)

    def _close_unused(self) -> None:
        while self._idle and self._idle[0][0] <= time.monotonic() - KEPT_IDLE_S:
            self._close(self._idle.popleft()[1])
        self._timer = asyncio.get_running_loop().call_later(KEPT_IDLE_S, self._close_unused) if self._idle else None

    def _close(self, client: httpx.AsyncClient) -> None:
        task = asyncio.ensure_future(client.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Close the idle connections."""
        clients = [client for _, client in self._idle]
        self._idle.clear()
        await asyncio.gather(*[client.aclose() for client in clients], *self._closing, return_exceptions=True)


class _Connections:
    """What one event loop has open: the hosts, and the queues of the clients that users gave."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._queues: weakref.WeakKeyDictionary[Any, _Queue] = weakref.WeakKeyDictionary()

    def own(self, url: str) -> AbstractAsyncContextManager[httpx.AsyncClient]:
        """Lend one of agentlab's clients for a request to this address."""
        origin = "/".join(url.split("/", 3)[:3])
        if (host := self._hosts.get(origin)) is None:
            host = self._hosts[origin] = _Host(_address(url))
        return host.client()

    @asynccontextmanager
    async def given(self, client: Any) -> AsyncIterator[Any]:
        """Lend a user's client: it is never closed, and no more requests wait in its pool than in ours."""
        if (queue := self._queues.get(client)) is None:
            queue = self._queues[client] = _Queue("the server through the http_client")
        async with queue:
            check_client(client)
            yield client

    async def aclose(self) -> None:
        """Close the idle connections to all hosts."""
        for host in self._hosts.values():
            await host.aclose()


def _new_client(address: httpx.URL) -> httpx.AsyncClient:
    """Return a client for one connection to an address. Raises ConfigurationError for a proxy that httpx does not take."""
    proxy, tls = _proxy(address), _tls()
    try:
        return httpx.AsyncClient(
            verify=tls,
            proxy=proxy,
            trust_env=False,  # `_tls` and `_proxy` have read it
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # keeps none
            limits=httpx.Limits(max_connections=1, keepalive_expiry=KEPT_IDLE_S),
        )
    except ImportError:
        reason = "a SOCKS proxy needs one more package: pip install 'httpx[socks]'"
    except (ValueError, httpx.InvalidURL):
        reason = (
            "it is not an address of a proxy, such as http://127.0.0.1:3128 or socks5://127.0.0.1:1080. Write special characters "
            "of its password with %, as in %2F for /"
        )
    shown = (proxy or "").rpartition("@")[2]  # without the password
    raise ConfigurationError(
        f"The environment names the proxy {shown!r}: {reason}. Or set HTTPS_PROXY to another proxy, or NO_PROXY={address.host}."
    )


@cache
def _tls() -> ssl.SSLContext:
    """Return one context for all connections: reading the certificates takes tens of milliseconds."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise ConfigurationError(
            f"The certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: {error}. Set it to a file in PEM format, or "
            "remove it."
        ) from None


def _proxy(address: httpx.URL) -> str | None:
    """Return the proxy for an address by HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY or the system's settings; None without one."""
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(address.netloc.decode()) or proxy_bypass(address.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


# Live --------------------------------------------------------------------------------------------------------------------------


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
        self, request: HttpRequest, *, auth: Mapping[str, str], replay_key: str, timeout_s: float | None, client: Any = None
    ) -> AsyncIterator[HttpAnswer]:
        """Send the request to the provider, with the user's client if there is one."""
        if sys.platform == "emscripten" and client is None:
            raise ConfigurationError("Python in a browser has no sockets, so a provider cannot be reached: use `lab.replay(…)`.")
        if client is not None:
            check_client(client)
        here, library = await self._here(), httpx if client is None else library_of(client)
        timeout = library.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        if client is not None and client.timeout != library.Timeout(5.0):  # httpx's default, which nobody chose
            timeout = client.timeout
        async with here.own(request.url) if client is None else here.given(client) as sender:
            try:
                outgoing = sender.build_request(
                    request.method,
                    request.url,
                    headers={**request.headers, **auth},
                    content=request.body,
                    timeout=timeout,
                    params=library.URL(request.url).params if sender.params else None,  # added to the client's own
                )
                response = await sender.send(outgoing, stream=True, follow_redirects=False)
            except (library.HTTPError, library.InvalidURL, UnicodeEncodeError) as error:
                # Not chained: the frames of the library have the headers.
                raise _readable(error, library, request.url, timeout, client) from None
            except RuntimeError as error:
                if client is None or not _OF_ANOTHER_LOOP.search(str(error)):
                    raise
                raise ConfigurationError(
                    "The http_client has connections of another event loop, and a client belongs to one. Make a new client, or in a "
                    'notebook keep the run on the loop of the cells: `await run`, or run.start(loop="kernel").'
                ) from None
            except Exception as error:
                if type(error).__module__.partition(".")[0] != "socksio":
                    raise
                raise ProviderConnectionError(
                    f"{_place(request.url)}: the proxy does not speak SOCKS ({one_line(str(error))}). Check ALL_PROXY and HTTPS_PROXY."
                ) from None
            try:
                chunks = partial(_chunks, response, library, request.url, timeout, client)
                yield HttpAnswer(response.status_code, response.headers, chunks)
            finally:
                await response.aclose()

    async def _here(self) -> _Connections:
        """Return the connections of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is not None:
            return found[0]
        here = _Connections()
        closer = self._close_with_loop(loop, here)
        with self._lock:
            for other in [other for other in self._loops if other.is_closed()]:  # without shutting down
                del self._loops[other]
            self._loops[loop] = (here, closer)
        await anext(closer)
        return here

    async def _close_with_loop(self, loop: asyncio.AbstractEventLoop, here: _Connections) -> AsyncGenerator[None]:
        """Close the connections with their event loop: a loop closes its generators before it shuts down."""
        try:
            yield
        finally:
            with self._lock:
                self._loops.pop(loop, None)
            await here.aclose()


@cache
def live() -> LiveTransport:
    """Return the live transport of this process."""
    return LiveTransport()


async def _chunks(response: Any, library: Any, url: str, limits_s: Any, client: Any) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_bytes():
            yield chunk
            if client is not None:
                await asyncio.sleep(0)  # a cancel by whoever got the chunk is raised here, not while httpx closes the connection
    except library.StreamError as error:
        raise ConfigurationError(
            f"{_place(url)}: an event hook of the http_client took the body ({one_line(str(error))}). Call `await response.aread()` "
            "in the hook."
        ) from None
    except library.HTTPError as error:
        raise _readable(error, library, url, limits_s, client) from None


_OF_ANOTHER_LOOP = re.compile("different (event )?loop|Event loop is closed")


# Errors ------------------------------------------------------------------------------------------------------------------------


def _place(url: str) -> str:
    """Return a URL for an error message."""
    try:
        return redact_url(url).partition("?")[0]
    except ValueError:  # brackets that are no IPv6 address
        return url.partition("?")[0].rpartition("@")[2]


def _address(url: str) -> httpx.URL:
    """Return the address. Raises ConfigurationError if it is none."""
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise _no_address(url, str(error)) from None
    if address.scheme not in ("http", "https") or not address.host:
        raise _no_address(url, "it needs http:// or https://, and a host")
    return address


def _no_address(url: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{_place(url)!r} is not an address: {reason}. Set base_url to something like https://host/v1.")


def _readable(error: Exception, library: Any, url: str, limits_s: Any, client: Any) -> Exception:
    """Return agentlab's error for one of the library, httpx or httpx2, which says what to do next. `limits_s` are the time-outs, and
    `client` is the user's client, or None."""
    place = _place(url)
    match error:
        case library.InvalidURL() | library.UnsupportedProtocol():
            return _no_address(url, str(error))
        case library.LocalProtocolError() | UnicodeEncodeError():  # its text has the header
            return ConfigurationError(
                f"A header of the request to {place} contains a character that HTTP does not allow. Most often it is a line break or "
                "a space copied along with the API key: set the key again."
            )
        case library.HTTPStatusError():
            return ConfigurationError(
                f"{place}: an event hook of the http_client raised an error for the status of the answer. Leave raise_for_status() "
                "out of the hook: agentlab reads the status."
            )
        case library.ConnectTimeout():
            within = "in time" if limits_s.connect is None else f"within {limits_s.connect:g} s"
            reason = f"no connection {within}. Check the address, the network and the proxy settings."
        case library.PoolTimeout():
            reason = "no connection of the http_client was free in time. Raise its limits or its time-out for the pool."
        case library.TimeoutException():
            whose = "allowed" if client is None else "that the http_client allows"
            reason = f"the provider sent nothing within the time {whose}. Try again, or allow more time."
        case library.ConnectError():
            reason = _no_connection(error, None if client is not None else _proxy(httpx.URL(url)))
        case library.ProxyError():
            reason = f"the proxy refused ({one_line(str(error))}). Check HTTPS_PROXY and NO_PROXY."
        case library.DecodingError():
            reason = (
                "the body is not in the encoding that its header names. Try again; if the error persists, the server is at fault."
            )
        case _:
            reason = f"the connection broke off ({one_line(str(error))}). Try again."
    return ProviderConnectionError(f"{place}: {reason}")


def _no_connection(error: Exception, proxy: str | None) -> str:
    """Return why there is no connection, in the words of the system or the TLS library, and what to check."""
    cause = _system_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"no connection, since the certificate is not trusted ({one_line(cause.verify_message)}). If your network has a separate "
            "authority, set SSL_CERT_FILE to its certificate and restart, or pass http_client=httpx.AsyncClient(verify=…)."
        )
    reason = str(error if cause is None else cause)
    if isinstance(cause, ConnectionError) and cause.errno:
        reason = os.strerror(cause.errno)  # without the address
    if proxy is not None:
        shown = proxy.rpartition("@")[2]  # without the password
        return f"no connection to the proxy {shown} ({one_line(reason)}), or from it. Check HTTPS_PROXY and NO_PROXY."
    return f"no connection ({one_line(reason)}). Check the address and that the server runs, then the network and the proxy settings."


def _system_error(error: BaseException) -> OSError | None:
    """Return the error of the system or of TLS below an error of httpx; None if there is none."""
    cause: BaseException | None = error
    while cause is not None and (_is_of_httpx(cause) or (isinstance(cause, OSError) and not cause.errno)):
        below = cause.__cause__ or cause.__context__
        cause = below.exceptions[0] if isinstance(below, BaseExceptionGroup) else below
    return cause if isinstance(cause, OSError) else None


def _is_of_httpx(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")
