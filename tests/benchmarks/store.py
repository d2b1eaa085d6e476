"""The cost of durability per step, and the time to load a store of many runs as a frame."""

import json
import sqlite3
import tempfile
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from tests.benchmarks.measure import Prepare, Thunk, await_it, interleaved
from tests.benchmarks.table import Row, attempt

STEPS = 100
RUNS, FEWER, STEPS_A_RUN, DISTINCT = 10_000, 2_500, 20, 50


@cache
def folder() -> Path:
    """A folder on a real disk, removed at the end."""
    place = tempfile.TemporaryDirectory(prefix="agentlab-store-", dir=".")
    _kept.append(place)
    return Path(place.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def agent(*observers: Any) -> Any:
    """An agent on a script, whose run takes `STEPS` steps."""
    from agentlab import Agent
    from agentlab.testing import ScriptedProvider, call

    async def lookup(key: str) -> str:
        """Look up a key."""
        return "value of " + key

    return Agent(
        ScriptedProvider(lambda request, number: call("lookup", {"key": "a"}, cost="0.0001")), tools=[lookup], observers=observers
    )


def run(where: Path | None, *observers: Any) -> Prepare:
    """A run of `STEPS` steps, stored in a file or not at all."""
    from agentlab import Budget, MaxCost, StepCountIs, Store

    made = agent(*observers) if where is None else agent(Store(where))

    def ready() -> Thunk:
        one = made.run("go", stop=StepCountIs(STEPS) | MaxCost(10**6), budget=Budget(max_turns=STEPS + 1))
        return lambda: await_it(one)

    return ready


Insert = Callable[[tuple[str, str]], None]


def inserting(name: str) -> tuple[list[tuple[str, str]], Insert]:
    """The texts of a stored run, and the function that inserts those of a step and commits, with the same durability."""
    from agentlab.storage import SqliteStorage

    kept = SqliteStorage(folder() / "runs.db")
    texts = [(step.row, step.body) for step in kept.steps(kept.runs()[-1].head.run_id)]
    assert len(texts) == STEPS
    database = sqlite3.connect(folder() / name, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE steps (row TEXT, body TEXT)")

    def insert(step: tuple[str, str]) -> None:
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO steps VALUES (?, ?)", step)
        database.execute("COMMIT")

    return texts, insert


def bare() -> Prepare:
    """The same texts, each step's inserted and committed with nothing else."""
    texts, insert = inserting("bare.db")

    def whole() -> None:
        for step in texts:
            insert(step)

    return lambda: whole


def within_a_run() -> Prepare:
    """The same after each step of a run that is not stored. What it takes beyond that run no store can leave out. It is more than the
    commits alone, presumably since a commit empties the processor's caches, which slows the run too."""
    from agentlab import events

    texts, insert = inserting("within.db")

    def observer(event: Any) -> None:
        if isinstance(event, events.StepCompleted):
            insert(texts[event.step.index - 1])

    return run(None, observer)


@cache
def many(runs: int) -> Any:
    """A store of many runs: `DISTINCT` real runs, copied under other ids."""
    from agentlab import Budget, StepCountIs, Store
    from agentlab.storage import StoredHead

    few, store = Store(), Store(folder() / f"many{runs}.db")
    for number in range(DISTINCT):
        await_it(agent(few).run(f"go {number}", stop=StepCountIs(STEPS_A_RUN), budget=Budget(max_turns=STEPS + 1)))
    texts = [(one, few.storage.steps(one.head.run_id)) for one in few.storage.runs()]
    database = store.storage._database  # type: ignore[attr-defined]
    database.execute("PRAGMA synchronous = OFF")
    for number in range(runs):
        one, steps = texts[number % DISTINCT]
        store.storage.begin(StoredHead(f"run{number}", one.head.begun_at, one.head.writer, one.head.body), steps, one.end)
    return store


def frame(runs: int = RUNS, *, kept: bool = True) -> Prepare:
    """The store's frame of all steps; with `kept` False as for the first time, when no columns are kept yet."""
    store = many(runs)

    def ready() -> Thunk:
        if not kept:
            store.storage._database.execute("DELETE FROM step_columns")
        return lambda: store.frame("steps")

    return ready


def read_sql() -> Prepare:
    """The same columns and rows in a separate table, read by pandas."""
    database = sqlite3.connect(folder() / "table.db")
    steps = many(RUNS).frame("steps")
    assert len(steps) == RUNS * STEPS_A_RUN
    steps.to_sql("steps", database, index=False)
    del steps
    return lambda: lambda: pd.read_sql("SELECT * FROM steps", database, dtype_backend="numpy_nullable")


def list_of_dicts() -> Prepare:
    """The rows' texts, read one by one and passed to pandas."""
    storage = many(RUNS).storage

    def whole() -> object:
        rows: list[dict[Hashable, Any]] = [{"run_id": run_id, **json.loads(text)} for run_id, text in storage.rows()]
        return pd.DataFrame(rows)

    return lambda: whole


def rows(with_peers: bool) -> Iterator[Row]:
    """Cost per step, relative to no storage and to the minimal storage, and the frame."""
    _, why_not = attempt(lambda: run(None))
    kept = {} if why_not else {"none": run(None), "kept": run(folder() / "runs.db")}
    if kept:
        await_it(agent_once())
        kept |= {"bare": bare(), "within": within_a_run()}
    taken = {name: us / STEPS for name, us in interleaved(kept, repeats=10, seconds=6.0).items()}
    more = taken["kept"] - taken["none"] if taken else None
    if taken:
        least = (taken["within"] - taken["none"]) / taken["bare"]
        print(
            f"  texts made beforehand, inserted and committed after each step of a run: {least:.1f} x without a run", flush=True
        )
    yield Row(
        benchmark="a durable step, beyond one that is not kept",
        unit="us",
        goal="<= 2 x insert and commit of the same bytes",
        at_most=2.0,
        floor=taken.get("bare"),
        ours=more,
        against=taken.get("bare"),
        why_not=why_not,
    )
    yield Row(
        benchmark="a durable step, the run's own part included",
        unit="us",
        floor=taken.get("none"),
        ours=taken.get("kept"),
        against=taken.get("none"),
        why_not=why_not,
    )
    yield from frame_rows(why_not)


def frame_rows(why_not: str) -> Iterator[Row]:
    """The frame of all steps: again, for the first time, and its growth."""
    taken: dict[str, float] = {}
    if not why_not:
        candidates = {"first": frame(kept=False), "again": frame(), "fewer": frame(FEWER)}
        candidates |= {"read_sql": read_sql(), "dicts": list_of_dicts()}
        taken = {name: us / 1000 for name, us in interleaved(candidates, repeats=2, seconds=40.0).items()}
    size = f"a store of {RUNS:,} runs x {STEPS_A_RUN} steps to a frame"
    for benchmark, ours, floor, words, at_most in (
        (f"{size}, to pandas.read_sql", "again", "read_sql", "pandas.read_sql", 0.4),
        (f"{size}, to a list of dicts", "again", "dicts", "a list of dicts", 0.15),
        (f"{size}, the first time", "first", "read_sql", "pandas.read_sql", 1.5),
    ):
        yield Row(
            benchmark=benchmark,
            unit="ms",
            goal=f"<= {at_most:g} x {words}",
            at_most=at_most,
            floor=taken.get(floor),
            ours=taken.get(ours),
            against=taken.get(floor),
            why_not=why_not,
        )
    yield Row(
        benchmark=f"{size}, growth from {FEWER:,} runs",
        unit="us per run",
        goal="no growth: <= 1.2",
        at_most=1.2,
        ours=taken["again"] * 1000 / RUNS if taken else None,
        against=taken["fewer"] * 1000 / FEWER if taken else None,
        why_not=why_not,
    )


async def agent_once() -> None:
    """One run in the file; its texts are those of the bare insert."""
    from agentlab import Budget, MaxCost, StepCountIs, Store

    store = Store(folder() / "runs.db")
    await agent(store).run("go", stop=StepCountIs(STEPS) | MaxCost(10**6), budget=Budget(max_turns=STEPS + 1))
    store.close()
