"""A provider on loopback: it echoes, streams, compresses, breaks off and waits, depending on the requested path."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from socket_reads import wait_until_read

EVENTS = [f'data: {{"n": {number}, "text": "héllo 🌊 {number}"}}\n\n'.encode() for number in range(5)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._json({"path": self.path})

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.server.lock:
            self.server.seen.append((self.path, dict(self.headers), sent))
            count = len(self.server.seen)
        route = self.path.partition("?")[0].rsplit("/", 1)[-1]
        if route == "sse":
            self._stream(EVENTS)
        elif route == "gzip-sse":
            packed = gzip.compress(b"".join(EVENTS))
            self._stream([packed[:40], packed[40:]], ("content-encoding", "gzip"))
        elif route == "gzip":
            self._send(gzip.compress(json.dumps({"count": count}).encode()), ("content-encoding", "gzip"))
        elif route == "bad-gzip":
            self._send(b"no gzip at all", ("content-encoding", "gzip"))
        elif route == "break":
            self._stream(EVENTS, broken=True)
        elif route == "binary":
            self._send(bytes(range(256)), kind="application/vnd.amazon.eventstream")
        elif route == "slow":
            time.sleep(0.5)
            self._json({"count": count})
        elif route == "silent":
            self.rfile.read(1)  # until the client has left
        elif route == "busy":
            self._send(b'{"error": "busy"}', ("retry-after", "2"), status=429)
        elif route == "leaky":
            echo = {"your header": self.headers.get("authorization"), "sent": sent.decode(), "organization": "acme-research-lab"}
            self._send(
                json.dumps(echo).encode(),
                ("set-cookie", "session=c00kie-v4lue-long; path=/"),
                ("openai-organization", "acme-research-lab"),
                ("x-request-id", "req_1"),
            )
        else:
            self._json({"count": count, "sent": sent.decode("utf-8", "replace")})

    def _json(self, value: Any) -> None:
        self._send(json.dumps(value, ensure_ascii=False).encode())

    def _send(self, body: bytes, *headers: tuple[str, str], status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, chunks: list[bytes], *headers: tuple[str, str], broken: bool = False) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        for number, chunk in enumerate(chunks):
            if broken and number == 2:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
            wait_until_read(self.connection)  # so that each chunk arrives separately
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients may leave early


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
