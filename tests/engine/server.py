"""A provider on loopback that answers byte by byte as a test prescribes: it refuses, breaks off, hangs, and streams with pauses."""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

JSON_TYPE = ("content-type", "application/json")
SSE_TYPE = ("content-type", "text/event-stream")
PATIENCE_S = 60.0
"""A server stops waiting for an event after this time."""


@dataclass(frozen=True)
class Asked:
    """A received request."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: tuple[str, int]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Reply: TypeAlias = Callable[["Handler"], None]
Script: TypeAlias = Sequence[Reply] | Callable[[Asked], Reply]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.choose(Asked(self.path, headers, body, self.client_address))(self)

    def begin(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def leave(self) -> None:
        """Close the connection properly."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Reset the connection. Bytes sent before arrive."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def wait_until_left(self) -> None:
        """Send nothing until the client has closed the connection."""
        self.close_connection = True
        self.server.hanging.set()
        self.connection.settimeout(PATIENCE_S)
        try:
            gone = self.connection.recv(1) == b""
        except TimeoutError:
            gone = False
        except OSError:
            gone = True
        if gone:
            self.server.left.set()

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """`asked` has the requests; `go` continues a paused reply, `hanging` and `left` report the state of one that hangs."""

    request_queue_size = 128
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, script: Script, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script = script
        self.asked: list[Asked] = []
        self.go, self.hanging, self.left = threading.Event(), threading.Event(), threading.Event()
        self.waited_in_vain = False
        self._lock = threading.Lock()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def choose(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            if callable(self.script):
                return self.script(asked)
            if len(self.asked) > len(self.script):
                return status(418, {"error": {"message": "the script of this server has come to its end"}})
            return self.script[len(self.asked) - 1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients may leave early


@contextmanager
def serving(*replies: Reply, script: Callable[[Asked], Reply] | None = None, port: int = 0) -> Iterator[Server]:
    """A server that gives these replies in order, or the answer of `script` to each request."""
    server = Server(script or replies, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.go.set()
        server.shutdown()
        server.server_close()
        thread.join()


# Replies -------------------------------------------------------------------------------------------------------------------


def raw(body: bytes, *headers: tuple[str, str], code: int = 200) -> Reply:
    """A whole body with exactly these headers."""

    def reply(to: Handler) -> None:
        to.begin(code, ("content-length", str(len(body))), *headers)
        to.wfile.write(body)

    return reply


def whole(value: Any, *headers: tuple[str, str]) -> Reply:
    return raw(json.dumps(value).encode(), JSON_TYPE, *headers)


def zipped(body: bytes, kind: tuple[str, str] = JSON_TYPE) -> Reply:
    return raw(gzip.compress(body), kind, ("content-encoding", "gzip"))


def status(code: int, value: Any = None, *headers: tuple[str, str]) -> Reply:
    """A refusal, by default in the words of most vendors."""
    value = {"error": {"message": f"these are the words for {code}"}} if value is None else value
    return raw(json.dumps(value).encode(), JSON_TYPE, *headers, code=code)


def stream(*chunks: bytes, end: str = "end", kind: tuple[str, str] | None = SSE_TYPE) -> Reply:
    """A chunked body. It reaches its `end`, or the server closes (`leave`), resets (`reset`) or falls silent (`hang`)."""

    def reply(to: Handler) -> None:
        to.begin(200, ("transfer-encoding", "chunked"), *([kind] if kind else []))
        for chunk in chunks:
            to.chunk(chunk)
        if end == "end":
            to.wfile.write(b"0\r\n\r\n")
        elif end == "leave":
            to.leave()
        elif end == "hang":
            to.wait_until_left()
        else:
            to.reset()

    return reply


def pausing(before: bytes, after: bytes, kind: tuple[str, str] = SSE_TYPE) -> Reply:
    """A stream whose second half is sent when the test allows it."""

    def reply(to: Handler) -> None:
        to.begin(200, ("transfer-encoding", "chunked"), kind)
        to.chunk(before)
        to.server.waited_in_vain = not to.server.go.wait(PATIENCE_S)
        to.chunk(after)
        to.wfile.write(b"0\r\n\r\n")

    return reply


def cut(body: bytes, end: str, at: int | None = None, code: int = 200, kind: tuple[str, str] = JSON_TYPE) -> Reply:
    """A body that arrives in part."""

    def reply(to: Handler) -> None:
        to.begin(code, kind, ("content-length", str(len(body))))
        to.wfile.write(body[: len(body) // 2 if at is None else at])
        if end == "hang":
            to.wait_until_left()
        elif end == "leave":
            to.leave()
        else:
            to.reset()

    return reply


def reset(to: Handler) -> None:
    """No answer: the connection is reset."""
    to.reset()


def leave(to: Handler) -> None:
    """No answer: the connection is closed."""
    to.leave()


def hang(to: Handler) -> None:
    """No answer: nothing is sent at all."""
    to.wait_until_left()
