"""One move of a slider in the explorer: one configuration over 10,000 recorded runs, its figures, its plot and its page."""

from collections.abc import Iterator

import numpy as np

from tests.benchmarks.measure import Prepare, interleaved
from tests.benchmarks.table import Row, attempt

MOVES = 10
"""Number of moves timed together, each to another position."""


def naive(totals: dict[str, np.ndarray]) -> Prepare:
    """NumPy alone, without drawing: where two limits would have stopped each run, and the averages."""
    tokens, cost, steps = totals["tokens"], totals["cost_usd"], totals["steps"].shape[1]

    def run() -> None:
        for move in range(1, MOVES + 1):
            met = (tokens >= 1_000.0 * move) | (cost >= 0.06)
            stop = np.where(met.any(axis=1), met.argmax(axis=1), steps - 1)
            for values in (tokens, cost):
                at_stop = values[np.arange(len(values)), stop]
                at_stop.mean(), at_stop.std(), (values[:, -1] - at_stop).mean()

    return lambda: run


def ours(totals: dict[str, np.ndarray]) -> Prepare:
    """The explorer's whole redraw, as after each move of a slider."""
    import pandas as pd

    from agentlab.notebook.explorer import explorer as module

    runs, steps = totals["steps"].shape
    tokens, cost = (np.diff(totals[name], axis=1, prepend=0.0).ravel() for name in ("tokens", "cost_usd"))
    frame = pd.DataFrame(
        {
            "run_id": np.repeat([f"run {number}" for number in range(runs)], steps),
            "step": np.tile(np.arange(1, steps + 1), runs),
            "total_tokens": tokens,
            "cost_usd": cost,
            "calls": 1,
            "duration_s": 1.0,
            "action": np.where(np.tile(np.arange(steps), runs) == steps - 1, "complete", "execute_tools"),
        }
    )
    explorer = module.explore(frame, limits=["StepCountIs", "MaxTokensUsed", "MaxCost"])
    explorer.limits["MaxCost"] = "0.06"
    _ = explorer.widget
    explorer._others.finish()
    with explorer._drawing:
        explorer._show()

    def run() -> None:
        with explorer._drawing:  # the writer thread is idle meanwhile
            for move in range(1, MOVES + 1):
                explorer.limits.on_change = None  # as the writer thread does it, without waiting for it
                explorer.limits["MaxTokensUsed"] = 1_000 * move
                explorer._show()

    return lambda: run


def slider_moves(totals: dict[str, np.ndarray]) -> Iterator[Row]:
    """One row: a move relative to NumPy alone."""
    candidate, why_not = attempt(lambda: ours(totals))
    candidates = {"floor": naive(totals)} | ({"ours": candidate} if candidate else {})
    taken = {name: us / 1000 / MOVES for name, us in interleaved(candidates, repeats=5).items()}
    yield Row(
        benchmark="what-if, a slider move on 10,000 runs",
        unit="ms",
        goal="<= 60 x numpy alone, nothing drawn",
        at_most=60,
        floor=taken["floor"],
        ours=taken.get("ours"),
        against=taken["floor"],
        why_not=why_not,
    )
