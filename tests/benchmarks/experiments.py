"""Cost per step of an experiment with 1 to 1,000 concurrent runs, over the same loopback server as httpx alone.

The floor is httpx as fast as it can be: one client per connection, the one used last first. (A single client scans all connections at
each request: with 64 at once it takes about three times as long.)
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from tests.benchmarks.measure import Prepare, Thunk, await_it, interleaved
from tests.benchmarks.server import running
from tests.benchmarks.table import Row, attempt

LEAST_RUNS, STEPS = 64, 4
"""Runs timed together at least, and the steps of each."""

CONCURRENCY = (1, 8, 64, 1_000)
CONNECTIONS = 256
AT_MOST = {"memory": 1.6, "file": 1.6}
AT_MOST_WITH_MANY = 2.0
MOST_GROWTH = 1.25
"""The goal for the cost per step with 1,000 at once, against 64 at once."""

KEPT = {"memory": "kept in memory", "file": "kept in a file"}
PROMPT = "How high is the lighthouse?"


def runs_with(concurrency: int) -> int:
    """The number of runs that are timed together."""
    return max(LEAST_RUNS, concurrency)


def floor(base: str, concurrency: int) -> Prepare:
    """httpx alone: the same number of requests and concurrency, with parsed answers."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": PROMPT}]}
    tls = httpx.create_ssl_context()
    clients = [httpx.AsyncClient(verify=tls, timeout=None) for _ in range(min(concurrency, CONNECTIONS))]

    async def whole() -> None:
        waiting, places = iter(range(runs_with(concurrency) * STEPS)), asyncio.Semaphore(len(clients))

        async def work() -> None:
            for _ in waiting:
                async with places:
                    client = clients.pop()
                    answer = (await client.post(f"{base}/chat/completions", json=body)).json()
                    clients.append(client)
                assert answer["choices"][0]["finish_reason"] == "stop"

        await asyncio.gather(*[work() for _ in range(concurrency)])

    return lambda: lambda: await_it(whole())


def ours(base: str, concurrency: int, folder: Path | None) -> Prepare:
    """An experiment of runs of `STEPS` steps, kept in memory or in a file; its frames are not included."""
    from agentlab import Agent, Budget, Experiment, Provider, TerminatingTools

    def finalize(answer: str) -> str:
        """Submit the answer."""
        return answer

    # The server always gives the same answer: a reminder after each answer turns it into steps.
    agent = Agent(
        Provider("compatible", model="scripted", base_url=base, api_key="none"),
        name="a",
        tools=[finalize],
        terminating=TerminatingTools(["finalize"], consecutive_nudges=STEPS + 1),
        budget=Budget(max_turns=STEPS),
    )
    made = iter(range(10**6))

    def ready() -> Thunk:
        where = None if folder is None else folder / f"{concurrency}-{next(made)}.db"
        study = Experiment([agent], [PROMPT], repeats=runs_with(concurrency), store=where)

        def whole() -> None:
            results = await_it(study.run(concurrency=concurrency, progress=False))
            assert all(one.stored.steps == STEPS and not one.failed for one in results.statuses if one.stored)
            study.store.close()

        return whole

    return ready


def rows(with_peers: bool) -> Iterator[Row]:
    """Two rows per concurrency, and the growth from 64 to 1,000."""
    steps: dict[tuple[str, int], float] = {}
    with running() as base, TemporaryDirectory(prefix="agentlab-experiments-", dir=".") as place:
        for concurrency in CONCURRENCY:
            candidates: dict[str, Prepare] = {"floor": floor(base, concurrency)}
            why_not = ""
            for kind, folder in (("memory", None), ("file", Path(place))):
                candidate, why_not = attempt(partial(ours, base, concurrency, folder))
                if candidate:
                    candidates[kind] = candidate
            count = runs_with(concurrency) * STEPS
            taken = {name: us / count for name, us in interleaved(candidates, repeats=4).items()}
            for kind, kept in KEPT.items():
                at_most = AT_MOST[kind] if concurrency <= LEAST_RUNS else AT_MOST_WITH_MANY
                if kind in taken:
                    steps[kind, concurrency] = taken[kind]
                yield Row(
                    benchmark=f"an experiment's step over loopback, {concurrency:,} at once, {kept}",
                    unit="us",
                    goal=f"<= {at_most} x httpx",
                    at_most=at_most,
                    floor=taken["floor"],
                    ours=taken.get(kind),
                    against=taken["floor"],
                    why_not=why_not,
                )
    for kind, kept in KEPT.items():
        yield Row(
            benchmark=f"an experiment's step over loopback, {CONCURRENCY[-1]:,} at once, {kept}, growth",
            unit="us",
            goal=f"<= {MOST_GROWTH} x {LEAST_RUNS} at once",
            at_most=MOST_GROWTH,
            ours=steps.get((kind, CONCURRENCY[-1])),
            against=steps.get((kind, LEAST_RUNS)),
        )
