"""Access control: an ASGI middleware that checks a request's origin, host, token and size before the endpoints see it.

Without a token, every program on this machine can use a server on loopback, including browsers. Requests from web pages of another
origin are therefore refused, and so are requests under another host name (a page can make its own name resolve to this machine).
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1024 * 1024

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class AccessControl:
    """Passes on allowed requests, with their bodies read; answers other requests with an error as JSON.

    Without a `token`, only requests to loopback host names and to those in `hosts` are allowed.
    """

    def __init__(self, app: ASGIApp, *, token: str | None = None, hosts: frozenset[str] = frozenset()) -> None:
        self.app = app
        self._token = None if token is None else f"Bearer {token}".encode()
        self._hosts = LOOPBACK_NAMES | hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        refusal, body = self._refusal(request.headers), b""
        if refusal is None:
            try:
                body = await _read_body(request)
            except ClientDisconnect:
                return
            if len(body) > MAX_BODY_BYTES:
                refusal = _error(413, "body_too_large", f"The body has more than {MAX_BODY_BYTES} bytes: send a shorter message.")
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        unread = [body]

        async def replay() -> Message:
            return {"type": "http.request", "body": unread.pop(), "more_body": False} if unread else await receive()

        await self.app(scope, replay, send)

    def _refusal(self, headers: Mapping[str, str]) -> JSONResponse | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._token is None and _host_name(host) not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            return _error(403, "wrong_host", f"Without a token this server answers to {names} only, not to {host[:200]!a}.")
        if origin is not None and _host_of_origin(origin) != host.lower():
            return _error(
                403,
                "wrong_origin",
                f"Pages of another origin ({origin[:200]!a}) cannot use this server: send requests without a browser.",
            )
        given = headers.get("authorization", "").encode("latin-1")
        if self._token is not None and not hmac.compare_digest(given, self._token):
            problem = "The token is wrong" if given else "A token is missing"
            return _error(
                401, "unauthorized", f"{problem}: send the header `Authorization: Bearer …` with the token of this server."
            )
        return None


def is_loopback(host: str) -> bool:
    """True if a server on this address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host_name(host: str) -> str:
    """Return a host without its port; empty if it is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _host_of_origin(origin: str) -> str:
    """Return host and port of an origin, as the header Host has them; empty for `null` and other texts."""
    scheme, _, host = origin.lower().partition("://")
    return host.removesuffix({"http": ":80", "https": ":443"}.get(scheme, "\0"))


async def _read_body(request: Request) -> bytes:
    """Return the body, or its beginning if it is too long."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            break
    return bytes(body)


def _error(status: int, kind: str, message: str) -> JSONResponse:
    response = JSONResponse({"error": {"type": kind, "message": message}}, status)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if status == 413:  # the rest of the body is not read
        response.headers["connection"] = "close"
    return response
