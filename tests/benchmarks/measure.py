"""How everything here is measured. Standard library only: the peers' environment imports this file too."""

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
    """Await something on one loop kept for all, so that making a loop is not part of what is measured."""

    async def awaited() -> Any:
        return await work

    return _runner.run(awaited())


def cpu_us(run: Thunk) -> float:
    """CPU microseconds of this process that one call takes: other processes' load does not count."""
    start = time.process_time_ns()
    run()
    return (time.process_time_ns() - start) / 1000


def interleaved(candidates: Mapping[str, Prepare], *, repeats: int, seconds: float = 10.0) -> dict[str, float]:
    """The least CPU microseconds of each candidate, all of them measured in turn.

    In turn, so that a slow spell of the machine meets all alike; the least, because noise only ever adds. The first
    round warms up and is not counted. No new round starts after `seconds` of CPU time, but each has one that counts.
    """
    best: dict[str, float] = {}
    spent = 0.0
    for turn in range(repeats + 1):
        for name, prepare in candidates.items():
            run = prepare()
            gc.collect()  # what an earlier candidate left behind is not this one's to clean up
            taken = cpu_us(run)
            spent += taken / 1e6
            if turn:
                best[name] = min(best.get(name, taken), taken)
        if turn and spent > seconds:
            break
    return best


def set_aside() -> None:
    """Take what has been imported so far out of the garbage collector's way: a vendor's library would make every further run slower."""
    gc.collect()
    gc.freeze()


def traced_mb(prepare: Prepare) -> float:
    """Megabytes by which Python's memory grew at its peak during a run. Slow: never measured while timing."""
    run = prepare()
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
