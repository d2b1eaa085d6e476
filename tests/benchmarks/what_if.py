"""What would other limits have done: 10,000 recorded runs of 20 steps under 1,000 settings."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from tests.benchmarks.measure import Prepare, interleaved
from tests.benchmarks.slider_move import slider_moves
from tests.benchmarks.table import Row, attempt

RUNS, STEPS = 10_000, 20
Totals = dict[str, npt.NDArray[np.float64]]
"""Running totals by name, a row a run and a column a step."""


@cache
def totals() -> Totals:
    """Tokens, cost and steps of made-up runs, the same in every process."""
    random = np.random.default_rng(0)
    tokens = random.integers(200, 2_000, (RUNS, STEPS)).cumsum(axis=1).astype(float)
    return {"tokens": tokens, "cost_usd": tokens * 3e-6, "steps": np.tile(np.arange(1.0, STEPS + 1), (RUNS, 1))}


def thresholds(name: str, count: int) -> npt.NDArray[np.float64]:
    """Limits spread over what the runs use."""
    return np.linspace(1, totals()[name].max(), count)


def one_at_a_time() -> Prepare:
    """numpy, a setting at a time: the step at which each run would have ended under each of 1,000 limits."""
    used, limits = totals()["tokens"], thresholds("tokens", 1_000)

    def run() -> None:
        for limit in limits:
            met = used >= limit
            np.where(met.any(axis=1), met.argmax(axis=1), STEPS)

    return lambda: run


def reading_once() -> Prepare:
    """The least that can be done with three arrays: read each of them once."""
    arrays = tuple(totals().values())
    return lambda: lambda: [array.sum() for array in arrays]


def ours(limits: dict[str, int]) -> Prepare:
    """`agentlab.backtesting` over these dimensions, with this many limits in each."""
    raise ImportError("agentlab.backtesting")


def rows(with_peers: bool) -> Iterator[Row]:
    """A thousand limits of one dimension, and a grid over three."""
    goals = (
        ("what-if, 1,000 limits", {"tokens": 1_000}, one_at_a_time(), 1 / 5, "<= 1/5 of one at a time"),
        (
            "what-if, a grid of 10 x 10 x 10",
            {"tokens": 10, "cost_usd": 10, "steps": 10},
            reading_once(),
            30,
            "<= 30 x reading once",
        ),
    )
    for benchmark, limits, floor, at_most, goal in goals:
        candidate, why_not = attempt(partial(ours, limits))
        candidates = {"floor": floor} | ({"ours": candidate} if candidate else {})
        taken = {name: us / 1000 for name, us in interleaved(candidates, repeats=5).items()}
        yield Row(
            benchmark=benchmark,
            unit="ms",
            goal=goal,
            at_most=at_most,
            floor=taken["floor"],
            ours=taken.get("ours"),
            against=taken["floor"],
            why_not=why_not,
        )
    yield from slider_moves(totals())
