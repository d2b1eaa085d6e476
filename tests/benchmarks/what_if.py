"""What-if: 10,000 recorded runs of 20 steps under 1,000 settings."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.benchmarks.measure import Prepare, interleaved, traced_mb
from tests.benchmarks.peers.setup import ROOT, peers_python
from tests.benchmarks.slider_move import slider_moves
from tests.benchmarks.table import Figure, Row

RUNS, FEWER, STEPS = 10_000, 2_500, 20
MANY, NOT_AS_MANY, SHORT = 1_000_000, 100_000, 5
"""Numbers of runs of SHORT steps."""
Totals = dict[str, npt.NDArray[np.float64]]
"""Running totals by name, one row per run and one column per step."""


@cache
def totals(runs: int = RUNS, steps: int = STEPS) -> Totals:
    """Tokens, cost and steps of made-up runs, the same in every process."""
    random = np.random.default_rng(0)
    tokens = random.integers(200, 2_000, (runs, steps)).cumsum(axis=1).astype(float)
    return {"tokens": tokens, "cost_usd": tokens * 3e-6, "steps": np.tile(np.arange(1.0, steps + 1), (runs, 1))}


def thresholds(name: str, count: int) -> npt.NDArray[np.float64]:
    """Limits spread over the range of the runs' totals."""
    return np.linspace(1, totals()[name].max(), count)


# The floors ------------------------------------------------------------------------------------------------------------------


def one_at_a_time() -> Prepare:
    """NumPy, one setting at a time: the step at which each run would have ended under each of 1,000 limits."""
    used, limits = totals()["tokens"], thresholds("tokens", 1_000)

    def run() -> None:
        for limit in limits:
            met = used >= limit
            np.where(met.any(axis=1), met.argmax(axis=1), STEPS)

    return lambda: run


def figures_one_at_a_time() -> Prepare:
    """NumPy, one setting at a time, with the mean and spread of the tokens, money, calls and steps that each would have used."""
    arrays, limits = totals(), thresholds("tokens", 1_000)
    every = np.arange(RUNS)

    def run() -> None:
        for limit in limits:
            met = arrays["tokens"] >= limit
            stop = np.where(met.any(axis=1), met.argmax(axis=1), STEPS - 1)
            for values in (arrays["tokens"], arrays["cost_usd"], arrays["steps"], arrays["steps"]):
                at_stop = values[every, stop]
                at_stop.sum(), (at_stop * at_stop).sum(), (values[:, -1] - at_stop).sum()

    return lambda: run


FEW = 10
"""Number of limits for plain Python, out of a thousand; its time is extrapolated."""


def naively() -> Prepare:
    """Plain Python: every run, step by step, under some of the limits."""
    used, limits = totals()["tokens"].tolist(), thresholds("tokens", 1_000)[:: 1_000 // FEW].tolist()

    def run() -> None:
        for limit in limits:
            [next((step for step, value in enumerate(of_run) if value >= limit), STEPS) for of_run in used]

    return lambda: run


def reading_once() -> Prepare:
    """The lower bound for work on three arrays: read each of them once."""
    arrays = tuple(totals().values())
    return lambda: lambda: [array.sum() for array in arrays]


# Ours ------------------------------------------------------------------------------------------------------------------------


@cache
def steps_frame(runs: int = RUNS, steps: int = STEPS) -> Any:
    """The made-up runs as a steps frame, each completed at its last step."""
    import pandas as pd

    all_of = totals(runs, steps)
    tokens, cost = (np.diff(all_of[name], axis=1, prepend=0.0).ravel() for name in ("tokens", "cost_usd"))
    last = np.tile(np.arange(steps) == steps - 1, runs)
    return pd.DataFrame(
        {
            "run_id": pd.array(np.repeat([f"run {number}" for number in range(runs)], steps), dtype="string"),
            "step": np.tile(np.arange(1, steps + 1), runs),
            "calls": 1,
            "total_tokens": tokens.astype(np.int64),
            "cost_usd": cost,
            "cumulative_tokens": all_of["tokens"].ravel().astype(np.int64),
            "cumulative_cost_usd": all_of["cost_usd"].ravel(),
            "known_tokens": all_of["tokens"].ravel().astype(np.int64),
            "known_cost_usd": all_of["cost_usd"].ravel(),
            "started_s": np.tile(np.arange(steps, dtype=float), runs),
            "duration_s": 1.0,
            "action": pd.array(np.where(last, "complete", "execute_tools"), dtype="string"),
            "stop_reason": pd.array(np.where(last, "completed", None), dtype="string"),
        }
    )


def conditions(limits: Mapping[str, int]) -> Any:
    """Any of these conditions, with this many values of each."""
    from agentlab import MaxCost, MaxTokensUsed, StepCountIs

    parts = []
    if "tokens" in limits:
        parts.append(MaxTokensUsed([int(value) for value in thresholds("tokens", limits["tokens"])]))
    if "cost_usd" in limits:
        parts.append(MaxCost([f"{value:.9f}" for value in thresholds("cost_usd", limits["cost_usd"] + 1)[1:]]))
    if "steps" in limits:
        parts.append(StepCountIs(np.unique(thresholds("steps", limits["steps"]).astype(int)).tolist()))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole | part
    return whole


def where_each_stops(limits: Mapping[str, int]) -> Prepare:
    """The step at which each run ends under each configuration."""
    from agentlab.analysis.grids import grids
    from agentlab.analysis.records import USED
    from agentlab.analysis.simulate import Judge
    from agentlab.analysis.sources import from_frames

    (grid,) = grids(conditions(limits), None)
    records = from_frames(steps_frame())
    for name in USED:  # the floor gets the running totals too
        _ = records.used[name]

    def run() -> None:
        assert grid.stop is not None
        assert Judge(records, [grid]).rows(grid, grid.stop).size == grid.size * RUNS

    return lambda: run


def whole_answer(limits: Mapping[str, int], runs: int = RUNS, steps: int = STEPS) -> Prepare:
    """`lab.backtest` from the frame to the frame."""
    import agentlab as lab

    tried, frame = conditions(limits), steps_frame(runs, steps)
    return lambda: lambda: lab.backtest(frame, tried)


def reading_columns(runs: int) -> Prepare:
    """The lower bound for work on a frame: read each of its columns once, the words into codes."""
    import pandas as pd

    frame = steps_frame(runs, SHORT)

    def run() -> None:
        for name in frame.columns:
            pd.factorize(frame[name]) if frame[name].dtype == "string" else frame[name].to_numpy().sum()

    return lambda: run


# Peers -----------------------------------------------------------------------------------------------------------------------


def polars() -> Figure:
    """polars, from a process in the peers' environment."""
    found = subprocess.run(
        [str(peers_python()), "-m", "tests.benchmarks.peers.polars_what_if"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return Figure("polars", json.loads(found.stdout)["ms"])


THOUSAND, TEN, GRID = {"tokens": 1_000}, {"tokens": 10}, {"tokens": 10, "cost_usd": 10, "steps": 10}


def rows(with_peers: bool) -> Iterator[Row]:
    """A thousand limits of one dimension, a grid over three, the whole answer, and one move of a slider."""
    goals = (
        ("what-if, 1,000 limits", one_at_a_time(), where_each_stops(THOUSAND), 1 / 5, "<= 1/5 of one at a time"),
        ("what-if, a grid of 10 x 10 x 10", reading_once(), where_each_stops(GRID), 30, "<= 30 x reading once"),
        ("what-if, 1,000 limits with figures", figures_one_at_a_time(), whole_answer(THOUSAND), 1 / 5, "<= 1/5 of one at a time"),
    )
    for number, (benchmark, floor, ours, at_most, goal) in enumerate(goals):
        taken = {name: us / 1000 for name, us in interleaved({"floor": floor, "ours": ours}, repeats=5).items()}
        yield Row(
            benchmark=benchmark,
            unit="ms",
            goal=goal,
            at_most=at_most,
            floor=taken["floor"],
            peer=polars() if with_peers and not number else None,
            ours=taken["ours"],
            against=taken["floor"],
        )
        if not number:
            naive = interleaved({"naive": naively()}, repeats=2)["naive"] / 1000 * 1_000 / FEW
            yield Row(benchmark=f"{benchmark}, beside plain Python", unit="ms", ours=taken["ours"], floor=naive, against=naive)
    sizes = {str(runs): whole_answer(THOUSAND, runs) for runs in (FEWER, RUNS)}
    few, many = (us / 1000 for us in interleaved(sizes, repeats=3).values())
    yield Row(
        benchmark=f"what-if, 1,000 limits with figures, growth from {FEWER:,} runs",
        unit="ms per 1,000 runs",
        goal="no growth: <= 1.2",
        at_most=1.2,
        ours=many * 1_000 / RUNS,
        against=few * 1_000 / FEWER,
    )
    yield from slider_moves(totals())
    yield from many_runs()


def many_runs() -> Iterator[Row]:
    """Ten limits over a million runs: time, memory, and the growth of both."""
    candidates = {
        "floor": reading_columns(MANY),
        "few": whole_answer(TEN, NOT_AS_MANY, SHORT),
        "ours": whole_answer(TEN, MANY, SHORT),
    }
    taken = {name: us / 1000 for name, us in interleaved(candidates, repeats=3, seconds=20.0).items()}
    name = f"what-if, {MANY:,} runs, ten limits with figures"
    yield Row(
        benchmark=name,
        unit="ms",
        goal="<= 5 x reading the columns once",
        at_most=5,
        floor=taken["floor"],
        ours=taken["ours"],
        against=taken["floor"],
    )
    yield Row(
        benchmark=f"{name}, growth from {NOT_AS_MANY:,} runs",
        unit="us per run",
        goal="no growth: <= 1.2",
        at_most=1.2,
        ours=taken["ours"] * 1_000 / MANY,
        against=taken["few"] * 1_000 / NOT_AS_MANY,
    )
    frame_mb = float(steps_frame(MANY, SHORT).memory_usage(deep=True).sum()) / 1e6
    yield Row(
        benchmark=f"{name}, memory beside the frame",
        unit="MB",
        goal="<= 2 x the frame",
        at_most=2,
        floor=frame_mb,
        ours=traced_mb(candidates["ours"]),
        against=frame_mb,
    )
