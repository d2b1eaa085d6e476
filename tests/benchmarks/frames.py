"""100,000 recorded steps as a DataFrame."""

from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from tests.benchmarks.measure import Prepare, await_it, interleaved
from tests.benchmarks.table import Row, attempt

ROWS, FEWER, STEPS = 100_000, 25_000, 20
DISTINCT = 250
"""Real runs, repeated up to ROWS."""


@cache
def results() -> list[Any]:
    """Recorded runs with `ROWS` steps in all."""
    from agentlab import Agent, StepCountIs
    from agentlab.testing import ScriptedProvider, call

    async def lookup(key: str) -> str:
        """Look up a key."""
        return "value of " + key

    agent = Agent(ScriptedProvider([call("lookup", {"key": "a"}, cost="0.0001")] * STEPS), tools=[lookup])
    made = [await_it(agent.run(f"go {number}", stop=StepCountIs(STEPS))) for number in range(DISTINCT)]
    return made * (ROWS // STEPS // DISTINCT)


def floor() -> Prepare:
    """The same columns and rows as a list of dicts, made beforehand and passed to pandas."""
    from agentlab.records.frames import to_frame

    rows: list[dict[Hashable, Any]] = to_frame(results()).to_dict("records")
    assert len(rows) == ROWS
    return lambda: lambda: pd.DataFrame(rows)


def ours(rows: int = ROWS) -> Prepare:
    """The recorder's frame of the results themselves."""
    from agentlab.records.frames import to_frame

    found = results()[: rows // STEPS]
    return lambda: lambda: to_frame(found)


def needed() -> Prepare:
    """As many arrays of an attribute of each step as there are attributes that may differ from step to step, of all columns: those of
    the condition are three. What is the same in all steps must be read too, since it could differ."""
    from agentlab.records.columns import STEP_COLUMNS

    steps = [step for result in results() for step in result.history]
    paths = {column.path for column in STEP_COLUMNS if not column.path.startswith(("run.", "settings", "step.settings"))}

    def whole() -> None:
        for _ in range(len(paths) + 3):
            np.array([step.index for step in steps])

    return lambda: whole


def rows(with_peers: bool) -> Iterator[Row]:
    """The frame of all rows, and its growth."""
    candidates, why_not = attempt(lambda: {"ours": ours(), "fewer": ours(FEWER), "needed": needed(), "floor": floor()})
    taken = {name: us / 1000 for name, us in interleaved(candidates or {}, repeats=12).items()}
    if taken:
        of_floor = taken["needed"] / taken["floor"]
        print(f"  an array of each attribute that may differ from step to step: {of_floor:.2f} of a list of dicts", flush=True)
    yield Row(
        benchmark="100,000 step rows to a frame",
        unit="ms",
        goal="<= 0.3 of a list of dicts",
        at_most=0.3,
        floor=taken.get("floor"),
        ours=taken.get("ours"),
        against=taken.get("floor"),
        why_not=why_not,
    )
    yield Row(
        benchmark=f"100,000 step rows to a frame, growth from {FEWER:,}",
        unit="us per row",
        goal="no growth: <= 1.2",
        at_most=1.2,
        ours=taken["ours"] * 1_000 / ROWS if taken else None,
        against=taken["fewer"] * 1_000 / FEWER if taken else None,
        why_not=why_not,
    )
