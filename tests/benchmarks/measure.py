"""How all benchmarks are measured. Standard library only: the peers' environment imports this file too."""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Thunk = Callable[[], object]
Prepare = Callable[[], Thunk]
"""Sets a run up, untimed, and returns the run that is timed."""

_runner = asyncio.Runner()


def await_it(work: Awaitable[Any]) -> Any:
    """Run an awaitable on one shared loop, so that making a loop is not measured."""

    async def awaited() -> Any:
        return await work

    return _runner.run(awaited())


def cpu_us(run: Thunk) -> float:
    """CPU microseconds of this process for one call; the load of other processes does not count."""
    start = time.process_time_ns()
    run()
    return (time.process_time_ns() - start) / 1000


def interleaved(candidates: Mapping[str, Prepare], *, repeats: int, seconds: float = 10.0) -> dict[str, float]:
    """The least CPU microseconds of each candidate, measured in turn.

    In turn, so that a slow spell of the machine affects all candidates; the least, because noise only adds time. The first
    round warms up and is not counted. No new round starts after `seconds` of CPU time, but each candidate has one that counts.
    """
    best: dict[str, float] = {}
    spent = 0.0
    for turn in range(repeats + 1):
        for name, prepare in candidates.items():
            run = prepare()
            gc.collect()  # collect the garbage of earlier candidates first
            taken = cpu_us(run)
            spent += taken / 1e6
            if turn:
                best[name] = min(best.get(name, taken), taken)
        if turn and spent > seconds:
            break
    return best


def set_aside() -> None:
    """Move everything imported so far out of the garbage collector's scope: a vendor's library would slow every further run."""
    gc.collect()
    gc.freeze()


def traced_mb(prepare: Prepare) -> float:
    """Peak growth of Python's memory during a run, in megabytes. Slow: never measured together with time."""
    run = prepare()
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
