"""A loopback server in a process of its own, so that its CPU time does not count."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CHUNKS = 1_000
"""Pieces of text in one streamed answer, each in a chunk of its own."""

_HEAD = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": "scripted"}
_USAGE = {"prompt_tokens": 2_000, "completion_tokens": 20, "total_tokens": 2_020}


def completion() -> bytes:
    """A whole answer of the chat completions wire."""
    message = {"role": "assistant", "content": "The lighthouse was lit in 1822 and is 47 metres high.", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}).encode()


def events() -> list[bytes]:
    """The same wire as server-sent events, with the finish reason and the usage at the end."""

    def event(choices: list[dict[str, object]], **more: object) -> bytes:
        return b"data: " + json.dumps({**_HEAD, "object": "chat.completion.chunk", "choices": choices, **more}).encode() + b"\n\n"

    def choice(delta: dict[str, str], finish_reason: str | None = None) -> list[dict[str, object]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]

    first = event(choice({"role": "assistant", "content": ""}))
    pieces = [event(choice({"content": f" word{number}"})) for number in range(CHUNKS)]
    return [first, *pieces, event(choice({}, "stop")), event([], usage=_USAGE), b"data: [DONE]\n\n"]


def answers() -> tuple[bytes, bytes]:
    """The two responses, heads and bodies: JSON, and a stream in chunked encoding."""
    body = completion()
    whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events())
    return whole, head + chunks + b"0\r\n\r\n"


async def serve() -> None:
    """Print the port, then answer every request: with the stream where its body asks for one, else with JSON."""
    whole, streamed = answers()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                writer.write(streamed if b'"stream":true' in body.replace(b" ", b"") else whole)
                await writer.drain()
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
