"""Malicious requests, sent byte by byte to a real server, and its answers."""

from __future__ import annotations

import contextlib
import json
import socket

from serving.builders import parrot, serving

import agentlab as lab

from .table import show

BODY = b'{"context_id": "a", "message": "hello"}'


def _ask(port: int, *lines: str, body: bytes = BODY, method: str = "POST", path: str = "/chat", wait_s: float = 60.0) -> str:
    """The status line of the server's answer to these bytes."""
    headers = [f"{method} {path} HTTP/1.1", *lines]
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines):
        headers.append(f"content-length: {len(body)}")
    with socket.create_connection(("127.0.0.1", port), timeout=wait_s) as wire:
        try:
            with contextlib.suppress(ConnectionError):  # it may answer and close before it has received everything
                wire.sendall("\r\n".join(headers).encode("latin-1") + b"\r\n\r\n" + body)
            answer = wire.recv(4096)
        except TimeoutError:
            return "no answer, waits"
        except ConnectionError:
            return "connection closed"
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0].decode("latin-1").removeprefix("HTTP/1.1 ")
    try:
        return f"{status}: {json.loads(rest)['error']['type']}"
    except (ValueError, KeyError, TypeError):
        return status


def test_hostile_requests_to_the_server() -> None:
    rows: list[list[object]] = []
    for token in (None, "a-token-of-the-server-1"):
        chat = lab.Chat(parrot())
        with serving(chat, token=token) as client:
            client.headers["authorization"] = f"Bearer {token}"
            port = client.base_url.port
            assert port is not None
            host = f"host: 127.0.0.1:{port}"
            kind = "content-type: application/json"
            usual = [host, kind, *([f"authorization: Bearer {token}"] if token else [])]
            deep = b'{"context_id": "a", "message": ' + b"[" * 400_000
            tried: dict[str, tuple[str, str]] = {
                "as it should be": (_ask(port, *usual), "200"),
                "another host name (DNS rebinding)": (_ask(port, "host: evil.example", *usual[1:]), "200" if token else "403"),
                "no host": (_ask(port, *usual[1:]), "400"),
                "two hosts": (_ask(port, host, "host: evil.example", *usual[1:]), "400"),
                "a page of another origin": (_ask(port, *usual, "origin: https://evil.example"), "403"),
                "origin null": (_ask(port, *usual, "origin: null"), "403"),
                "origin with this server's name in it": (_ask(port, *usual, f"origin: http://127.0.0.1:{port}.evil.example"), "403"),
                "asked beforehand (OPTIONS) by another origin": (
                    _ask(port, *usual, "origin: https://evil.example", "access-control-request-method: POST", method="OPTIONS"),
                    "403",
                ),
                "text/plain, as a form of a page sends it": (_ask(port, usual[0], "content-type: text/plain", *usual[2:]), "4"),
                "a form": (_ask(port, usual[0], "content-type: application/x-www-form-urlencoded", *usual[2:]), "4"),
                "no content type": (_ask(port, usual[0], *usual[2:]), "4"),
                "2 GB announced": (_ask(port, *usual, "content-length: 2147483648", body=b"x" * 1_100_000), "413"),
                "a length below 0": (_ask(port, *usual, "content-length: -1"), "400"),
                "length and chunks at once": (_ask(port, *usual, "content-length: 5", "transfer-encoding: chunked", body=b"0\r\n\r\n"), "4"),  # noqa: E501
                "JSON nested 400,000 deep": (_ask(port, *usual, body=deep), "400"),
                "NaN": (_ask(port, *usual, body=b'{"context_id": "a", "message": NaN}'), "4"),
                "the same key twice": (_ask(port, *usual, body=b'{"context_id": "a", "context_id": "b", "message": "x"}'), "200"),
                "bytes that are no UTF-8": (_ask(port, *usual, body=b'{"context_id": "a", "message": "\xff"}'), "4"),
                "a context id with ../": (_ask(port, *usual, body=b'{"context_id": "../../etc", "message": "x"}'), "200"),
                "a path that escapes": (_ask(port, *usual, method="GET", path="/../../etc/passwd"), "404"),
                "the same, encoded": (_ask(port, *usual, method="GET", path="/%2e%2e/%2e%2e/etc/passwd"), "404"),
                "a header line of 1 MB": (_ask(port, *usual, "x: " + "y" * 1_000_000), "4"),
                "200,000 header lines": (_ask(port, *usual, *["x: y"] * 200_000), "4"),
                "no HTTP": (_ask(port, "\0\0\0", method="\x16\x03\x01"), "400"),
                "a WebSocket": (_ask(port, *usual, "connection: upgrade", "upgrade: websocket", "sec-websocket-key: x", "sec-websocket-version: 13", method="GET", body=b""), "4"),  # noqa: E501
            }  # fmt: skip
            if token:
                tried |= {
                    "no token": (_ask(port, *usual[:2]), "401"),
                    "a wrong token": (_ask(port, *usual[:2], "authorization: Bearer wrong"), "401"),
                    "the token in the query": (_ask(port, *usual[:2], path=f"/chat?token={token}"), "401"),
                    "the token as Basic": (_ask(port, *usual[:2], f"authorization: Basic {token}"), "401"),
                    "an empty token": (_ask(port, *usual[:2], "authorization: Bearer "), "401"),
                    "no token, the document": (_ask(port, host, method="GET", path="/openapi.json"), "401"),
                }
            slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
            for wire in slow:
                wire.sendall(b"POST /chat HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\n{")
            tried["beside 200 senders that never come to an end"] = _ask(port, *usual), "200"
            for wire in slow:
                wire.close()
            tried["after all of this"] = _ask(port, *usual), "200"
            rows += [["token" if token else "no token", name, *outcome] for name, outcome in tried.items()]
    show("hostile-requests", ["server", "request", "what happened", "wanted"], rows)
    assert [row for row in rows if not str(row[2]).startswith(str(row[3]))] == []
