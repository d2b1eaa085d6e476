"""A stand-in for a model's server, for notebook 06: a real HTTP server on this machine that replays a recording.

It ignores the content of the request. A conversation without an answer gets the first recorded answer, a conversation with one
answer gets the second, and so on. A streaming request gets a stream with the recorded delays.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from agentlab.transport.cassette import RecordedResponse, load_cassette


class StandIn:
    """Serves the folder's `chat.yaml` and `chat-stream.yaml` on a free port until the notebook's kernel ends.

    `address` is the `base_url` for `lab.Provider("compatible", base_url=…)`. `headers` has the headers of every request so far.
    """

    def __init__(self, folder: str | Path) -> None:
        self.complete = _responses(Path(folder) / "chat.yaml")
        self.streamed = _responses(Path(folder) / "chat-stream.yaml")
        self.headers: list[dict[str, str]] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{server.server_port}/v1"

    def answer(self, body: bytes) -> RecordedResponse:
        """Return the recorded response to this request."""
        request = json.loads(body)
        responses = self.streamed if request.get("stream") else self.complete
        answered = sum(message["role"] == "assistant" for message in request["messages"])
        return responses[min(answered, len(responses) - 1)]


def _responses(path: Path) -> list[RecordedResponse]:
    return [interaction.response for interaction in load_cassette(path).interactions]


def _handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            stand_in.headers.append({name.lower(): value for name, value in self.headers.items()})
            response = stand_in.answer(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(response.status)
            self.send_header("content-type", response.headers["content-type"])
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            delays = iter(response.delays_s)
            for piece in response.pieces():
                time.sleep(next(delays, 0.0))
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  name used by http.server
            """Log nothing, to keep the notebook free of server messages."""

    return Handler
