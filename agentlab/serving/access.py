"""Who may come in: a piece of ASGI before the endpoints that looks at origin, host, token, size and pace, and at nothing else.

A server on loopback without a token is open to whoever is on this machine, and a browser is: so a request from a web page of another
origin is refused, and so is one by another host name (a page can make its own name point here).
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

LARGEST_BODY = 1024 * 1024
"""Bytes of a request."""

LONGEST_BODY_S = 30.0
"""How long a whole body may take to arrive after its headers: one that trickles in would hold its connection for ever."""

LARGEST_HEADERS = 64 * 1024
"""Bytes of a request's headers, with 32 for each line."""

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class _ClientGoneError(Exception):
    """The client went away in the middle of its request."""


class Gate:
    """Lets through what may come in, with its body read; answers the rest with an error as JSON.

    `token` None: no token is asked for, and only the names of loopback and those in `hosts` may be asked for.
    """

    def __init__(self, app: App, *, token: str | None = None, hosts: frozenset[str] = frozenset()) -> None:
        self.app = app
        self._token = None if token is None else f"Bearer {token}".encode()
        self._hosts = LOOPBACK_NAMES | hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if sum(len(name) + len(value) + 32 for name, value in scope["headers"]) > LARGEST_HEADERS:
            said = f"The headers have more than {LARGEST_HEADERS} bytes: send fewer and shorter ones."
            await _refuse(send, 431, "headers_too_large", said, close=True)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refusal(headers)
        if refused is not None:
            await _refuse(send, *refused)
            return
        try:
            async with asyncio.timeout(LONGEST_BODY_S):
                body = await _read(receive, LARGEST_BODY)
        except _ClientGoneError:
            return
        except TimeoutError:
            said = f"The body was not whole after {LONGEST_BODY_S:g} s: send it again, all at once."
            await _refuse(send, 408, "body_too_slow", said, close=True)
            return
        if body is None:
            said = f"The body has more than {LARGEST_BODY} bytes: send a shorter message."
            await _refuse(send, 413, "body_too_large", said, close=True)
            return
        unread = [body]

        async def replay() -> Event:
            return {"type": "http.request", "body": unread.pop(), "more_body": False} if unread else await receive()

        await self.app(scope, replay, send)

    def _refusal(self, headers: Mapping[str, str]) -> tuple[int, str, str] | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._token is None and _name_in(f"//{host}") not in self._hosts:
            told = "Without a token this server answers to its own names only"
            return 403, "wrong_host", f"Host {host[:200]!a} is none of them. {told}: {', '.join(sorted(self._hosts))}."
        if origin is not None and _place(origin) != host.lower():
            told = "Pages of other origins may not use this server: ask from a page of its own, or without a browser"
            return 403, "wrong_origin", f"Origin {origin[:200]!a} is not this server. {told}."
        given = headers.get("authorization", "").encode("latin-1")
        if self._token is not None and not hmac.compare_digest(given, self._token):
            problem = "The token is wrong" if given else "A token is missing"
            return 401, "unauthorized", f"{problem}: send the header `Authorization: Bearer …` with the token of this server."
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server on this address."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name_in(url: str) -> str:
    """The host name of an address, without its port; empty for what is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _place(origin: str) -> str:
    """Host and port of an origin, as the header Host has them; empty for `null` and what is none."""
    scheme, _, place = origin.lower().partition("://")
    return place.removesuffix({"http": ":80", "https": ":443"}.get(scheme, "\0"))


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None where it is longer. Raises _ClientGoneError where it will never be whole."""
    parts, size = [], 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise _ClientGoneError
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            return None
        if not event.get("more_body", False):
            return b"".join(parts)


async def _refuse(send: Send, status: int, kind: str, message: str, *, close: bool = False) -> None:
    body = json.dumps({"error": {"type": kind, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if close:  # the rest of the body is not read
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
