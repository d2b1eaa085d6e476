"""Cost per step of an experiment with 1, 8 and 64 concurrent runs, over the same loopback server as httpx alone."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from tests.benchmarks.measure import Prepare, Thunk, await_it, interleaved
from tests.benchmarks.server import running
from tests.benchmarks.table import Row, attempt

RUNS, STEPS = 64, 4
"""Runs timed together, and the steps of each."""

CONCURRENCY = (1, 8, 64)
AT_MOST = {"memory": 3.0, "file": 4.0}
PROMPT = "How high is the lighthouse?"


def floor(base: str, concurrency: int) -> Prepare:
    """httpx alone: the same number of requests and concurrency, with parsed answers."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": PROMPT}]}
    client = httpx.AsyncClient()

    async def whole() -> None:
        waiting = iter(range(RUNS * STEPS))

        async def work() -> None:
            for _ in waiting:
                answer = (await client.post(f"{base}/chat/completions", json=body)).json()
                assert answer["choices"][0]["finish_reason"] == "stop"

        await asyncio.gather(*[work() for _ in range(concurrency)])

    return lambda: lambda: await_it(whole())


def ours(base: str, concurrency: int, folder: Path | None) -> Prepare:
    """An experiment of `RUNS` runs of `STEPS` steps, kept in memory or in a file; its frames are not included."""
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
        study = Experiment([agent], [PROMPT], repeats=RUNS, store=where)

        def whole() -> None:
            results = await_it(study.run(concurrency=concurrency, progress=False))
            assert all(one.stored.steps == STEPS and not one.failed for one in results.statuses if one.stored)
            study.store.close()

        return whole

    return ready


def rows(with_peers: bool) -> Iterator[Row]:
    """One row per concurrency."""
    with running() as base, TemporaryDirectory(prefix="agentlab-experiments-", dir=".") as place:
        for concurrency in CONCURRENCY:
            candidates: dict[str, Prepare] = {"floor": floor(base, concurrency)}
            why_not = ""
            for kind, folder in (("memory", None), ("file", Path(place))):
                candidate, why_not = attempt(partial(ours, base, concurrency, folder))
                if candidate:
                    candidates[kind] = candidate
            taken = {name: us / (RUNS * STEPS) for name, us in interleaved(candidates, repeats=4).items()}
            for kind in ("memory", "file"):
                kept = "in a file" if kind == "file" else "in memory"
                yield Row(
                    benchmark=f"an experiment's step over loopback, {concurrency} at once, kept {kept}",
                    unit="us",
                    goal=f"<= {AT_MOST[kind]} x httpx",
                    at_most=AT_MOST[kind],
                    floor=taken["floor"],
                    ours=taken.get(kind),
                    against=taken["floor"],
                    why_not=why_not,
                )
