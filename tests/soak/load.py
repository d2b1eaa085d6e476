"""Measurements of load, each in a separate process: `python -m tests.soak.load FOLDER WHAT=SIZE …` prints a line of JSON for each.

Times are CPU seconds of the process, so that other work on the machine does not count; memory is as the kernel reports it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib
import json
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agentlab as lab
from agentlab.storage import StoredHead
from agentlab.testing import ScriptedProvider, call

FIXTURES = Path(__file__).parents[2] / "fixtures"
STEPS_A_RUN, DISTINCT = 20, 50
PAGE = resource.getpagesize()


def now_mb() -> float:
    """Resident megabytes at this moment."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


def forget_peak() -> None:
    """Reset the peak to the memory that is resident now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def peak_since() -> float:
    """The peak since `forget_peak`, as the kernel records it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """The CPU seconds of a call, the additional megabytes at its peak, and its result."""
    forget_peak()
    before, start = now_mb(), time.process_time()
    given = work()
    return time.process_time() - start, peak_since() - before, given


# Many concurrent runs ------------------------------------------------------------------------------------------------------------


def search_notes(query: str) -> str:
    """Search the notes."""
    return "nothing"


def runs_at_once(size: int, folder: Path) -> dict[str, float]:
    """This many concurrent runs over replay with all results held; then the memory after they are released."""

    def search_notes(query: str) -> str:
        """Search the notes."""
        return "nothing"

    with lab.replay(FIXTURES / "question", match="order") as recorded:
        agent = lab.Agent("openai:gpt-5.4-mini", tools=[search_notes])

        async def one(number: int) -> lab.RunResult:
            return await agent.run(f"question {number}")

        async def all_of_them(count: int) -> list[lab.RunResult]:
            return await asyncio.gather(*(one(number) for number in range(count)))

        asyncio.run(all_of_them(10))
        gc.collect()
        objects = len(gc.get_objects())
        cpu_s, peak, results = timed(lambda: asyncio.run(all_of_them(size)))
        steps = sum(len(result.history) for result in results)
        assert all(result.terminated for result in results)
        assert len({result.run_id for result in results}) == size
        results.clear()
        gc.collect()
        return {
            "steps": steps,
            "us_a_step": cpu_s / steps * 1e6,
            "kb_a_run": peak / size * 1e3,
            "objects_left_a_run": (len(gc.get_objects()) - objects) / size,
            "lanes_left": len(recorded.index._progress),
        }


# One long run --------------------------------------------------------------------------------------------------------------------


def scripted(*observers: Any) -> lab.Agent:
    """An agent that looks things up without end."""

    async def lookup(key: str) -> str:
        """Look a key up."""
        return "value of " + key

    model = ScriptedProvider(lambda request, number: call("lookup", {"key": f"k{number}"}, cost="0.0001", id=f"c{number}"))
    return lab.Agent(model, tools=[lookup], observers=observers)


def steps_in_a_run(size: int, folder: Path) -> dict[str, float]:
    """One run of this many steps, stored in a file step by step."""
    store = lab.Store(folder / f"long-{size}.db")
    store.storage._database.execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]
    agent = scripted(store)

    async def run(steps: int) -> lab.RunResult:
        return await agent.run(
            "go", stop=lab.StepCountIs(steps) | lab.MaxCost(10**6), budget=lab.Budget(max_turns=steps + 1, max_tokens=10**9)
        )

    asyncio.run(run(10))
    cpu_s, peak, result = timed(lambda: asyncio.run(run(size)))
    assert len(result.history) == size
    frame_s, _, frame = timed(lambda: result.to_frame())  # noqa: PLW0108
    assert len(frame) == size
    load_s, load_mb, loaded = timed(lambda: store.load(result.run_id))
    assert len(loaded.history) == size
    return {
        "us_a_step": cpu_s / size * 1e6,
        "kb_a_step": peak / size * 1e3,
        "frame_us_a_step": frame_s / size * 1e6,
        "load_us_a_step": load_s / size * 1e6,
        "load_kb_a_step": load_mb / size * 1e3,
    }


def steps_on_the_wire(size: int, folder: Path) -> dict[str, float]:
    """One run of this many steps over replay: each request carries the whole conversation, as the wire requires."""
    body = {
        "id": "synthetic",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5.4-mini",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "lookup", "arguments": '{"key": "a"}'}}],
                },
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    one = {
        "request": {"method": "POST", "uri": "https://api.openai.com/v1/chat/completions", "body": "{}", "headers": {}},
        "response": {
            "status": {"code": 200, "message": "OK"},
            "headers": {"content-type": ["application/json"]},
            "body": {"string": json.dumps(body)},
        },
    }
    cassette = folder / f"wire-{size}" / "openai.json"
    cassette.parent.mkdir(exist_ok=True)
    cassette.write_text(json.dumps({"version": 1, "interactions": [one] * size}))

    async def lookup(key: str) -> str:
        """Look a key up."""
        return "value of " + key

    with lab.replay(cassette, match="order"):
        agent = lab.Agent("openai:gpt-5.4-mini", tools=[lookup])

        async def run() -> lab.RunResult:
            return await agent.run("go", stop=lab.StepCountIs(size), budget=lab.Budget(max_turns=size + 1))

        cpu_s, peak, result = timed(lambda: asyncio.run(run()))
    assert len(result.history) == size, result
    return {"us_a_step": cpu_s / size * 1e6, "kb_a_step": peak / size * 1e3}


# A large store -------------------------------------------------------------------------------------------------------------------


def filled_store(size: int, folder: Path) -> lab.Store:
    """A store of this many steps, made if it does not exist: real runs, copied under other ids."""
    path = folder / f"store-{size}.db"
    if path.exists():
        return lab.Store(path)
    store = lab.Store(path)
    if size == DISTINCT * STEPS_A_RUN:
        asyncio.run(fill(store))
        return store
    few = filled_store(DISTINCT * STEPS_A_RUN, folder)
    texts = [(one, few.storage.steps(one.head.run_id)) for one in few.storage.runs()]
    few.close()
    store.storage._database.execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]
    for number in range(size // STEPS_A_RUN):
        one, steps = texts[number % DISTINCT]
        store.storage.begin(StoredHead(f"run{number}", one.head.begun_at, one.head.writer, one.head.body), steps, one.end)
    return store


async def fill(store: lab.Store) -> None:
    for number in range(DISTINCT):
        await scripted(store).run(f"go {number}", stop=lab.StepCountIs(STEPS_A_RUN), budget=lab.Budget(max_turns=100))


def steps_in_a_store(size: int, folder: Path) -> dict[str, float]:
    """Open a store of this many steps and summarise it: the steps are not read."""
    filled_store(size, folder).close()
    path = folder / f"store-{size}.db"
    lab.summary(filled_store(DISTINCT * STEPS_A_RUN, folder).frame("runs"))
    open_s, _, store = timed(lambda: lab.Store(path))
    runs_s, runs_mb, runs = timed(lambda: store.frame("runs"))
    assert len(runs) == size // STEPS_A_RUN
    summary_s, summary_mb, _ = timed(lambda: lab.summary(runs))
    return {
        "open_ms": open_s * 1e3,
        "runs_us": runs_s / size * 1e6,
        "runs_kb_a_run": runs_mb * STEPS_A_RUN / size * 1e3,
        "summary_us": summary_s / size * 1e6,
        "summary_kb_a_run": summary_mb * STEPS_A_RUN / size * 1e3,
    }


def frame_of_a_store(size: int, folder: Path) -> dict[str, float]:
    """All steps of a store as a frame."""
    store = filled_store(size, folder)
    filled_store(DISTINCT * STEPS_A_RUN, folder).frame("steps")
    frame_s, frame_mb, frame = timed(lambda: store.frame("steps"))
    assert len(frame) == size
    return {
        "us_a_step": frame_s / size * 1e6,
        "kb_a_step": frame_mb / size * 1e3,
        "held_kb_a_step": sys.getsizeof(frame) / size / 1e3,
    }


def backtest_of_a_store(size: int, folder: Path) -> dict[str, float]:
    """Six configurations over all runs of a store."""
    store = filled_store(size, folder)
    tried = lab.StepCountIs([2, 5, 10]) | lab.MaxCost([0.001, 0.002])
    lab.backtest(filled_store(DISTINCT * STEPS_A_RUN, folder), tried)
    took_s, took_mb, frame = timed(lambda: lab.backtest(store, tried))
    assert len(frame) == 6
    return {"us_a_step": took_s / size * 1e6, "kb_a_step": took_mb / size * 1e3}


def timeouts_of_results(size: int, folder: Path) -> dict[str, float]:
    """Five timeouts, combined with a condition, over this many runs in memory, real ones under other ids: each may cut any step."""

    async def made() -> list[lab.RunResult]:
        agent = scripted()
        return [await agent.run(f"go {number}", stop=lab.StepCountIs(STEPS_A_RUN)) for number in range(DISTINCT)]

    few = asyncio.run(made())
    results = [dataclasses.replace(few[number % DISTINCT], run_id=f"run{number}") for number in range(size)]
    usual_s = sorted(result.history.elapsed_s for result in results)[size // 2]
    limits = {"timeout": [usual_s * part for part in (0.1, 0.3, 0.5, 0.7, 0.9)]}
    condition = lab.MaxTokensUsed(15 * STEPS_A_RUN // 2) | lab.HasToolCall("finalize")
    lab.backtest(results[:10], condition, budget=limits)
    plain_s, _, _ = timed(lambda: lab.backtest(results, condition, budget={"max_turns": [2, 5, 10, 15, 19]}))
    took_s, _, frame = timed(lambda: lab.backtest(results, condition, budget=limits))
    assert len(frame) == 5
    return {"us_a_run": took_s / size * 1e6, "times_turns": took_s / plain_s}


WHAT = {
    one.__name__: one
    for one in (
        runs_at_once,
        steps_in_a_run,
        steps_on_the_wire,
        steps_in_a_store,
        frame_of_a_store,
        backtest_of_a_store,
        timeouts_of_results,
    )
}

LARGE = (
    "agentlab.agent",
    "agentlab.analysis.backtest",
    "agentlab.transport.replaying",
    "genai_prices.data_snapshot",
    "scipy.special",
)
"""What takes long to import, for each measurement as much as for all of them."""


def in_a_fork(what: str, size: int, folder: Path) -> int:
    """Print a measurement made in a fork of this process; return its exit code."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    try:
        print(json.dumps(WHAT[what](size, folder)), flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ResourceWarning)
    for name in LARGE:
        importlib.import_module(name)
    gc.freeze()  # what is here is no part of a measurement
    for asked in sys.argv[2:]:
        what, _, size = asked.partition("=")
        if failed := in_a_fork(what, int(size), Path(sys.argv[1])):
            sys.exit(failed)
