"""Measures one peer's scripted run and prints the figures as JSON. Runs inside the peers' environment."""

import json
import resource
import sys
from collections.abc import Callable

from tests.benchmarks.measure import Prepare, cpu_us, interleaved, traced_mb

SIZES = (10, 100, 1_000, 5_000)
PATIENCE_S = 60.0
"""5,000 steps are skipped if they could take longer than this, assuming that the cost per step grows with the run."""
TRACE_S = 1.5
"""Memory is traced if the run of 1,000 steps took no longer than this: tracing makes it several times slower."""


def report(prepare: Callable[[int], Prepare]) -> None:
    """Print `{"us_per_step": {"10": …}, "traced_mb": … | null, "rss_mb": … | null}`; both memories at 1,000 steps."""
    prepare(10)()()  # the first run does the peer's lazy imports and compilation
    us_per_step: dict[int, float] = {}
    result: dict[str, object] = {"us_per_step": us_per_step, "traced_mb": None, "rss_mb": None}
    last = 10
    for size in SIZES:
        worst_s = us_per_step.get(last, 0.0) * (size / last) * size / 1e6
        if size > 1_000 and worst_s > PATIENCE_S:
            break
        resident_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        long = worst_s > 1.0  # not repeated: the noise is small relative to it
        taken = cpu_us(prepare(size)()) if long else interleaved({"peer": prepare(size)}, repeats=10, seconds=1.0)["peer"]
        us_per_step[size] = taken / size
        last = size
        if size == 1_000:
            result["rss_mb"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident_kb) / 1000
            if taken / 1e6 < TRACE_S:
                result["traced_mb"] = traced_mb(prepare(size))
    json.dump(result, sys.stdout)
