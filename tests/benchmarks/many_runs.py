"""Many concurrent runs over loopback HTTP: three streamed calls each, 50 ms per call, in a separate process for each number of
runs.

    python -m tests.benchmarks --only many_runs --no-peers

The floor is httpx alone with the same JSON parsed: the same requests to the same server over as many connections, one client per
connection behind a semaphore. (A single client takes three times as long: its pool scans all connections at each request.)
"""

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pydantic_core

from tests.benchmarks.table import Row

RUNS = (10, 100, 1_000, 5_000)
RUNS_OF_STUDY = (100, 1_000)
"""Runs at once of an experiment that is kept in a file."""

STEPS = 3
CALL_S = 0.05
AT_MOST = 1.6
EVENTS = 5
CONNECTIONS = 256
TICK_S = 0.01
PARTS = (
    ("errors", "errors", "runs"),
    ("memory_mb", "memory", "MB"),
    ("sockets", "sockets of the client", "sockets"),
    ("served", "sockets of the server", "sockets"),
    ("delay_s", "largest delay of the loop", "s"),
)
MOST = {"errors": 0.0, "sockets": CONNECTIONS + 4.0}
"""Goals: no run fails; no more connections than one host may have, and the few sockets of the loop."""

# The server, in a separate process ----------------------------------------------------------------------------------------------


def answer() -> list[bytes]:
    """A streamed answer in chunks: text in several pieces, then the end and the usage."""
    pieces: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": "It is 47 m. "}}]}] * EVENTS
    pieces += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    pieces += [{"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 20, "total_tokens": 40}}]
    events = [b"data: " + json.dumps({"id": "c", "model": "scripted", **piece}).encode() + b"\n\n" for piece in pieces]
    return [b"%x\r\n%b\r\n" % (len(event), event) for event in (*events, b"data: [DONE]\n\n")]


async def serve() -> None:
    """Print the port; answer each POST in `CALL_S`, and each GET with the most connections that were open at the same time."""
    chunks = answer()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    opened = most = 0

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened, most
        opened += 1
        try:
            while True:
                asked = (await reader.readuntil(b"\r\n\r\n")).lower()
                if asked.startswith(b"get"):
                    count_body = str(most).encode()
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(count_body), count_body)
                    )
                    most = 0
                    break
                most = max(most, opened)
                await reader.readexactly(int(asked.partition(b"content-length:")[2].partition(b"\r\n")[0]))
                writer.write(head + chunks[0])
                await asyncio.sleep(CALL_S)
                writer.write(b"".join([*chunks[1:], b"0\r\n\r\n"]))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            opened -= 1
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=2**20, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def running() -> Iterator[str]:
    """The base address of a server that runs until the block ends."""
    with subprocess.Popen([sys.executable, "-m", __spec__.name, "serve"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


# The measurement, in a separate process ------------------------------------------------------------------------------------------


def asker(base: str) -> Any:
    """An agent that takes STEPS steps."""
    from agentlab import Agent, Budget, Provider, TerminatingTools

    def finalize(answer: str) -> str:
        """Submit the answer."""
        return answer

    return Agent(  # the server always gives the same answer: a reminder after each answer turns it into steps
        Provider("compatible", model="scripted", base_url=base, api_key="none"),
        tools=[finalize],
        stream=True,
        terminating=TerminatingTools(["finalize"], consecutive_nudges=STEPS),
        budget=Budget(max_turns=STEPS),
    )


async def ours(base: str, runs: int) -> int:
    """Make this many concurrent runs; return the number of those that did not take their steps."""
    agent = asker(base)

    async def run() -> bool:
        result = await agent.run("How high is the lighthouse?")
        return result.stop_reason == "turn_limit" and all(step.text.endswith("47 m. ") for step in result.history)

    return runs - sum(await asyncio.gather(*[run() for _ in range(runs)]))


async def study(base: str, runs: int) -> int:
    """The same runs as an experiment that is kept in a file; return the number of those that did not take their steps."""
    from agentlab import Experiment

    with TemporaryDirectory(prefix="agentlab-study-") as folder:
        experiment = Experiment([asker(base)], ["How high is the lighthouse?"], repeats=runs, store=f"{folder}/runs.db")
        results = await experiment.run(concurrency=runs, progress=False)
        lost = [one for one in results.statuses if one.failed or one.stored is None or one.stored.steps != STEPS]
        experiment.store.close()
    return len(lost)


async def floor(base: str, runs: int) -> int:
    """httpx alone: a semaphore, and the most recently used client."""
    places = asyncio.Semaphore(CONNECTIONS)
    body = {"model": "scripted", "messages": [{"role": "user", "content": "How high is the lighthouse?"}], "stream": True}

    clients, tls = list[httpx.AsyncClient](), httpx.create_ssl_context()

    async def run() -> bool:
        for _ in range(STEPS):
            async with places:
                client = clients.pop() if clients else httpx.AsyncClient(timeout=None, verify=tls)
                async with client.stream("POST", f"{base}/chat/completions", json=body) as response:
                    got = b"".join([chunk async for chunk in response.aiter_bytes()])
                clients.append(client)
            if not got.endswith(b"data: [DONE]\n\n"):
                return False
            for line in got.splitlines():
                if line.startswith(b"data: {"):
                    pydantic_core.from_json(line[6:])
        return True

    lost = runs - sum(await asyncio.gather(*[run() for _ in range(runs)]))
    for client in clients:
        await client.aclose()
    return lost


def sockets() -> int:
    """Number of open sockets of this process."""
    count = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed in the meantime
            count += str(one.readlink()).startswith("socket:")
    return count


@contextlib.asynccontextmanager
async def watched(seen: dict[str, float]) -> AsyncIterator[None]:
    """Record the largest delay of the loop and the largest number of open sockets."""

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            seen["delay_s"] = max(seen.get("delay_s", 0.0), time.perf_counter() - began - TICK_S)
            seen["sockets"] = max(seen.get("sockets", 0), sockets())

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()


async def measure(what: str, base: str, runs: int) -> dict[str, float]:
    """Seconds, errors, memory, sockets and loop delay of this many concurrent runs."""
    work = {"ours": ours, "study": study, "floor": floor}[what]
    await work(base, 1)  # imports
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    httpx.get(base)  # the server's counts so far
    seen: dict[str, float] = {}
    async with watched(seen):
        began = time.perf_counter()
        errors = await work(base, runs)
        seconds = time.perf_counter() - began
    memory_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    served = float((await asyncio.to_thread(httpx.get, base)).text)
    return {**seen, "seconds": seconds, "errors": errors, "memory_mb": memory_mb, "served": served}


def measured(what: str, base: str, runs: int) -> dict[str, float]:
    """The same, measured in a separate process."""
    command = [sys.executable, "-m", __spec__.name, what, base, str(runs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rows(with_peers: bool) -> Iterator[Row]:
    """Six rows for each number of concurrent runs, and of runs of an experiment; and the growth of the latter."""
    with running() as base:
        least = {runs: measured("floor", base, runs) for runs in RUNS}
        for runs in RUNS:
            yield from _rows(f"{runs:,} runs at once", least[runs], measured("ours", base, runs))
        each_s: dict[int, float] = {}
        for runs in RUNS_OF_STUDY:
            taken = measured("study", base, runs)
            each_s[runs] = taken["seconds"] / runs
            yield from _rows(f"an experiment of {runs:,} runs at once, kept in a file", least[runs], taken)
        few, many = RUNS_OF_STUDY
        yield Row(benchmark=f"an experiment, {many:,} at once, time per run", unit="s", ours=each_s[many], against=each_s[few])


def _rows(name: str, least: dict[str, float], taken: dict[str, float]) -> Iterator[Row]:
    yield Row(
        benchmark=f"{name}, time",
        unit="s",
        goal=f"<= {AT_MOST} x httpx",
        at_most=AT_MOST,
        floor=least["seconds"],
        ours=taken["seconds"],
        against=least["seconds"],
    )
    for part, what, unit in PARTS:
        most = MOST.get(part)
        yield Row(
            benchmark=f"{name}, {what}",
            unit=unit,
            goal="" if most is None else f"<= {most:g}",
            at_most=None if most is None else float(most > 0),
            floor=least[part],
            ours=taken[part],
            against=None if most is None else most or 1.0,
        )


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
