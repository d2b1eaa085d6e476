"""The moments of a run that are tried, and their outcomes."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field

import agentlab as lab

from .invariants import family

MOST_MOMENTS = 500
EVERY_SECOND, THE_OTHERS = "every second moment", "the other moments"


def moments_of(part: str, *names: str) -> list[int]:
    """The numbers of the moments of a part: the first one and the even or the odd ones, or the rest."""
    by_lot = zlib.crc32(" ".join(names).encode()) % 2
    every_second = {1, *range(1 + by_lot, MOST_MOMENTS, 2)}
    return sorted(every_second if part == EVERY_SECOND else set(range(1, MOST_MOMENTS)) - every_second)


@dataclass
class Tally:
    """The outcomes of one scene's moments, cut in one way; `of` is their number."""

    moments: int = 0
    of: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0

    def note(self, *runs: lab.Run, resumable: bool = False) -> None:
        """Count the stop reasons and the outcomes of their tools."""
        for run in runs:
            assert run.result is not None
            self.ends[("resumable, then " if resumable else "") + str(run.result.stop_reason)] += 1
            for one in family(run):
                self.tools.update(result.error or "done" for step in one.history for result in step.tool_results)


TALLIES: dict[tuple[str, str], Tally] = {}


def rows_of_the_table() -> list[tuple[str, ...]]:
    """One row for each scene and way."""
    rows = []
    for (scene, way), tally in TALLIES.items():
        ends = ", ".join(f"{count} {name}" for name, count in sorted(tally.ends.items()))
        tools = ", ".join(f"{count} {name}" for name, count in sorted(tally.tools.items()))
        tried = f"{tally.moments} of {max(tally.of, tally.moments)}"
        slowest = f"{tally.slowest_s * 1000:.0f} ms" if tally.slowest_s else "-"
        rows.append((scene, way, tried, ends, tools or "-", slowest))
    return rows
