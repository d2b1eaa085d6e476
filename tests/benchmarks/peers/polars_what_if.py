"""polars: the step at which each of 10,000 runs of 20 steps would have ended under each of 1,000 limits. In the peers' environment."""
# mypy: disable-error-code="import-not-found,misc,unused-ignore"

import json
import sys

import numpy as np
import polars as pl

from tests.benchmarks.measure import Thunk, interleaved

RUNS, STEPS, LIMITS = 10_000, 20, 1_000


def prepare() -> Thunk:
    """Join all limits with the steps, each to the nearest at or above it: faster than a filter and a grouping for each limit."""
    tokens = np.random.default_rng(0).integers(200, 2_000, (RUNS, STEPS)).cumsum(axis=1)
    run = np.repeat(np.arange(RUNS, dtype=np.int32), STEPS)
    steps = pl.DataFrame({"run": run, "tokens": tokens.ravel(), "step": np.tile(np.arange(1, STEPS + 1, dtype=np.int32), RUNS)})
    limits = np.linspace(1, tokens.max(), LIMITS).astype(np.int64)
    wanted = pl.DataFrame({"run": np.repeat(np.arange(RUNS, dtype=np.int32), LIMITS), "tokens": np.tile(limits, RUNS)})

    def found() -> None:
        wanted.join_asof(steps, on="tokens", by="run", strategy="forward", check_sortedness=False)

    return found


if __name__ == "__main__":
    json.dump({"ms": interleaved({"polars": prepare}, repeats=3)["polars"] / 1000}, sys.stdout)
