"""A loopback server in a separate process, so that its CPU time does not count."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks.streams import anthropic, compatible, openai_responses

HEAD_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
HEAD_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

STREAMED = {b"/chat/completions": compatible, b"/responses": openai_responses, b"/messages": anthropic}
"""By the end of the path: the events of the streamed answer, each in its own chunk."""

LONG = 4
"""How many times as long the stream is if the path has `/long/`."""

PAUSE_S = 0.0002
"""The pause before each chunk if the path has `/alone/`, so that it arrives by itself."""


def completion() -> bytes:
    """A whole answer of the chat completions wire."""
    message = {"role": "assistant", "content": "The lighthouse was lit in 1822 and is 47 metres high.", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 2_000, "completion_tokens": 20, "total_tokens": 2_020}
    head = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": "scripted", "object": "chat.completion"}
    return json.dumps({**head, "choices": [choice], "usage": usage}).encode()


def whole_answer() -> bytes:
    """Head and body of the answer as JSON."""
    body = completion()
    return HEAD_WHOLE % len(body) + body


def chunks_of(path: bytes, events: list[bytes]) -> list[bytes]:
    """The stream that a path asks for: its head and its chunks."""
    if b"/long/" in path:
        events = [*events[:1], *events[1:-3] * LONG, *events[-3:]]
    return [HEAD_STREAM, *[b"%x\r\n%b\r\n" % (len(event), event) for event in events], b"0\r\n\r\n"]


async def serve() -> None:
    """Print the port, then answer every request: with the stream if its body asks for one, otherwise with JSON."""
    whole, events = whole_answer(), {path: make() for path, make in STREAMED.items()}
    streams: dict[bytes, list[bytes]] = {}

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                path = head.split(b" ", 2)[1]
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                if b'"stream":true' not in body.replace(b" ", b""):
                    writer.write(whole)
                    continue
                if path not in streams:
                    streams[path] = chunks_of(path, next(made for end, made in events.items() if path.endswith(end)))
                if b"/alone/" not in path:
                    writer.write(b"".join(streams[path]))
                    await writer.drain()
                    continue
                for chunk in streams[path]:
                    writer.write(chunk)
                    await asyncio.sleep(PAUSE_S)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def running() -> Iterator[str]:
    """The base address of a server that runs until the block ends."""
    process = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.server"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


if __name__ == "__main__":
    asyncio.run(serve())
