"""The answers as tidy frames: a row a configuration, or a row a run and configuration."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from agentlab.comparing.groups import in_order, names_of
from agentlab.comparing.intervals import FEWEST
from agentlab.errors import ConfigurationError
from agentlab.redaction import without_keys
from agentlab.whatif import reasons
from agentlab.whatif.conditions import First
from agentlab.whatif.grids import Grid, plain_value
from agentlab.whatif.judging import FINISHED, OUTCOMES, STOPPED, UNKNOWN, Judge, Verdict
from agentlab.whatif.records import Bools, Floats, Records

AT_ONCE = 32_000_000
"""So many first rows (of runs times values of axes) are held at a time."""
RUNS_AT_ONCE = 10_000
"""So few that what they used stays in the processor's cache from one configuration to the next."""
MOST_ROWS = 5_000_000
"""More rows than this are no frame to look at."""

ABOUT = ("agent", "prompt_id", "settings", "repeat", "run_id", "provider", "model")
"""What a row of a run begins with, where it is known."""
OF_A_RUN = ("outcome", "step", "stop_reason", "fired", "goal_reached", "tokens", "cost_usd", "calls", "time_s")
"""What it says of a run and configuration."""
FIGURES = {"tokens": "tokens", "cost_usd": "cost", "calls": "calls", "time_s": "time"}
"""What is used, and what its columns begin with."""


@dataclass(frozen=True)
class Task:
    """Grids over runs, and what the runs were for."""

    records: Records
    grids: Sequence[Grid]
    goal: First
    goal_open: Bools

    def parts(self) -> Iterator[tuple[slice, Judge]]:
        """Some runs at a time, so that memory is bounded whatever their number."""
        values = 1 + sum(len(axis.values) for grid in self.grids for axis in grid.axes)
        at_once = max(1_000, min(RUNS_AT_ONCE, AT_ONCE // values))
        if len(self.records) <= at_once + at_once // 2:
            yield slice(0, len(self.records)), Judge(self.records, self.grids, self.goal, self.goal_open)
            return
        for first in range(0, len(self.records), at_once):
            runs = slice(first, min(first + at_once, len(self.records)))
            part = self.records.part(runs.start, runs.stop)
            yield runs, Judge(part, self.grids, self.goal[runs], self.goal_open[runs])

    def configurations(self) -> Iterator[tuple[Grid, tuple[int, ...]]]:
        """All configurations, in their order."""
        for grid in self.grids:
            for point in grid.points():
                yield grid, point

    @functools.cached_property
    def size(self) -> int:
        """How many configurations there are."""
        return sum(grid.size for grid in self.grids)

    def named(self) -> dict[str, Any]:
        """The columns that say which configuration a row is of: `configuration`, and one for each axis."""
        axes = dict.fromkeys(axis.name for grid in self.grids for axis in grid.axes)
        columns: dict[str, list[Any]] = {"configuration": [], **{name: [] for name in axes}}
        for number, (grid, point) in enumerate(self.configurations()):
            columns["configuration"].append(grid.name or number)
            chosen = {axis.name: plain_value(axis.values[place]) for axis, place in zip(grid.axes, point, strict=True)}
            for name in axes:
                columns[name].append(chosen.get(name))
        return {name: _narrow(values) for name, values in columns.items()}


def _narrow(values: list[Any]) -> Any:
    values = [without_keys(value) if isinstance(value, str) else value for value in values]
    return pd.Series(values, dtype=object).convert_dtypes().array


# A row a run -------------------------------------------------------------------------------------------------------------------


def of_runs(task: Task, also: Sequence[str] = ()) -> pd.DataFrame:
    """A row a configuration and run."""
    rows = task.size * len(task.records)
    if rows > MOST_ROWS:
        raise ConfigurationError(
            f"{task.size:,} configurations of {len(task.records):,} runs would be {rows:,} rows: leave per='run' out, which gives a "
            "row a configuration, or try fewer at a time."
        )
    about = task.records.with_columns(also, "by")
    named = task.named()
    last = {name: task.records.at_the_end(name) for name in FIGURES}
    _no_clash(also, {*named, *OF_A_RUN, *(f"{prefix}_saved" for prefix in FIGURES.values())})
    blocks: list[tuple[int, int, pd.DataFrame]] = []
    for runs, judge in task.parts():
        known = about.iloc[runs][[name for name in dict.fromkeys((*ABOUT, *also)) if name in about.columns]]
        for number, (grid, point) in enumerate(task.configurations()):
            verdict = judge.verdict(grid, point)
            front = {name: np.repeat(np.array([number]), len(known)) for name in ("configuration",)}
            block = pd.DataFrame({**front, **{name: known[name].array for name in known.columns}, **_columns(judge, verdict)})
            for name, whole in last.items():
                prefix = FIGURES[name]
                block[f"{prefix}_saved"] = _floats(whole[runs] - verdict.used[name], whole_numbers=prefix in {"tokens", "calls"})
            blocks.append((number, runs.start, block))
    blocks.sort(key=lambda block: block[:2])
    frame = pd.concat([block for *_, block in blocks], ignore_index=True)
    numbers = frame["configuration"].to_numpy()
    front = {name: values.take(numbers) for name, values in named.items()}
    return pd.concat([pd.DataFrame(front), frame.drop(columns="configuration")], axis=1)


def _columns(judge: Judge, verdict: Verdict) -> dict[str, Any]:
    reason, fired = reasons.of(judge, verdict)
    told = {one: without_keys(one) for one in set(fired)}
    known = verdict.outcome != UNKNOWN
    step = np.where(judge.records.lengths > 0, verdict.row + 1, 0)
    return {
        "outcome": pd.array(np.array(OUTCOMES, dtype=object)[verdict.outcome], dtype="string"),
        "step": pd.arrays.IntegerArray(step.astype(np.int64), ~known),
        "stop_reason": pd.array([None if one is None else str(one) for one in reason], dtype="string"),
        "fired": pd.array([told[one] or None for one in fired], dtype="string"),
        "goal_reached": pd.arrays.BooleanArray(verdict.goal == 1, np.isnan(verdict.goal)),
        "tokens": _floats(verdict.used["tokens"], whole_numbers=True),
        "cost_usd": _floats(verdict.used["cost_usd"]),
        "calls": _floats(verdict.used["calls"], whole_numbers=True),
        "time_s": _floats(verdict.used["time_s"]),
    }


def _no_clash(by: Sequence[str], names: Set[str]) -> None:
    """Raises ConfigurationError where a column of the runs would be overwritten by one of the answer."""
    for name in by:
        if name in names:
            raise ConfigurationError(
                f"by={name!r}: the answer has a column of that name. Rename the one of the runs: frame.rename(columns={{{name!r}: …}})."
            )


def _floats(values: Floats, *, whole_numbers: bool = False) -> Any:
    unknown = np.isnan(values)
    if whole_numbers:
        return pd.arrays.IntegerArray(np.where(unknown, 0, values).astype(np.int64), unknown)
    return pd.arrays.FloatingArray(np.where(unknown, 0.0, np.round(values, 12)), unknown)


# A row a configuration ---------------------------------------------------------------------------------------------------------


def of_configurations(task: Task, by: Sequence[str] = (), *, level: float = 0.95) -> pd.DataFrame:
    """A row a configuration, of each group of runs where `by` makes several."""
    groups, codes, front = _groups(task.records.with_columns(by, "by"), by)
    sums = Sums(task.size, groups)
    last = {name: task.records.at_the_end(name) for name in FIGURES}
    for runs, judge in task.parts():
        whole = {name: values[runs] for name, values in last.items()}
        for number, (grid, point) in enumerate(task.configurations()):
            sums.add(number, judge.verdict(grid, point), whole, codes[runs] if groups > 1 else None)
    named = {name: values.take(np.repeat(np.arange(task.size), groups)) for name, values in task.named().items()}
    front = {name: values.take(np.tile(np.arange(groups), task.size)) for name, values in front.items()}
    figures = sums.columns(level)
    _no_clash(by, {*named, *figures})
    return pd.DataFrame({**named, **front, **figures})


def _groups(about: pd.DataFrame, by: Sequence[str]) -> tuple[int, Any, dict[str, Any]]:
    if not by:
        return 1, np.zeros(len(about), int), {}
    names = names_of(about, list(by))
    order = in_order(names)
    firsts = about[~names.duplicated()]
    return len(order), names.map({name: place for place, name in enumerate(order)}).to_numpy(), {n: firsts[n].array for n in by}


class Sums:
    """Counts, sums and sums of squares by configuration and group."""

    def __init__(self, configurations: int, groups: int) -> None:
        self.shape = (configurations, groups)
        self._kept: dict[str, Floats] = {}

    def add(self, number: int, verdict: Verdict, whole: dict[str, Floats], codes: Any | None) -> None:
        """Some runs of a configuration."""
        outcome = verdict.outcome
        counts = np.bincount(outcome, minlength=3) if codes is None else None
        self._count("runs", number, len(outcome) if codes is None else np.ones(len(outcome)), codes)
        for code, name in ((STOPPED, "stopped"), (FINISHED, "finished"), (UNKNOWN, "unknown")):
            self._count(name, number, outcome == code if counts is None else counts[code], codes)
        self._measure("goal", number, verdict.goal, codes)
        step = verdict.row + 1.0
        step[outcome == UNKNOWN] = np.nan
        self._measure("step", number, step, codes)
        for name, values in verdict.used.items():
            self._measure(name, number, values, codes)
            self._measure(f"{name} saved", number, whole[name] - values, codes, spread=False)

    def _measure(self, name: str, number: int, values: Floats, codes: Any | None, *, spread: bool = True) -> None:
        unknown = np.isnan(values)
        some = bool(unknown.any())
        filled = np.where(unknown, 0.0, values) if some else values
        if codes is None:
            self._count(f"{name} n", number, len(values) - int(np.count_nonzero(unknown)) if some else len(values), None)
            self._count(f"{name} sum", number, filled.sum(), None)
            if spread:
                self._count(f"{name} squares", number, np.square(filled).sum(), None)
            return
        self._count(f"{name} n", number, ~unknown, codes)
        self._count(f"{name} sum", number, filled, codes)
        if spread:
            self._count(f"{name} squares", number, filled * filled, codes)

    def _count(self, name: str, number: int, values: Any, codes: Any | None) -> None:
        """Add numbers of runs by their group, or the one of all of them."""
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = np.zeros(self.shape)
        kept[number] += values if codes is None else np.bincount(codes, values, minlength=self.shape[1])

    def first(self, configurations: int) -> Sums:
        """Those of the first configurations alone."""
        found = Sums(configurations, self.shape[1])
        found._kept = {name: values[:configurations] for name, values in self._kept.items()}
        return found

    def columns(self, level: float) -> dict[str, Any]:
        """The columns of the frame."""
        z = NormalDist().inv_cdf((1 + level) / 2)
        flat = {name: values.ravel() for name, values in self._kept.items()}
        counts = {
            name: pd.array(flat[name].astype(np.int64), dtype="Int64") for name in ("runs", "stopped", "finished", "unknown")
        }
        found: dict[str, Any] = {**counts, "unknown_share": _floats(flat["unknown"] / flat["runs"])}
        found |= _wilson(flat["goal sum"], flat["goal n"], z)
        found["success_at_least"] = _floats(flat["goal sum"] / flat["runs"])
        found["success_at_most"] = _floats(1 - (flat["goal n"] - flat["goal sum"]) / flat["runs"])
        found["success_unknown"] = _floats(1 - flat["goal n"] / flat["runs"])
        found["step_mean"] = _mean(flat, "step")
        found["step_low"], found["step_high"] = _normal(flat, "step", z)
        for name, prefix in FIGURES.items():
            found[f"{prefix}_mean"] = _mean(flat, name)
            found[f"{prefix}_low"], found[f"{prefix}_high"] = _normal(flat, name, z)
            found[f"{prefix}_unknown"] = _floats(1 - flat[f"{name} n"] / flat["runs"])
            found[f"{prefix}_saved"] = _mean(flat, f"{name} saved")
        return found


def _mean(flat: dict[str, Floats], name: str) -> Any:
    with np.errstate(all="ignore"):
        return _floats(flat[f"{name} sum"] / flat[f"{name} n"])


def _normal(flat: dict[str, Floats], name: str, z: float) -> tuple[Any, Any]:
    """The interval of a mean by the normal distribution; NA from too few runs."""
    n = flat[f"{name} n"]
    with np.errstate(all="ignore"):
        mean = flat[f"{name} sum"] / n
        variance = np.maximum(0.0, flat[f"{name} squares"] / n - mean**2) * n / (n - 1)
        half = np.where(n >= FEWEST, z * np.sqrt(variance / n), np.nan)
    return _floats(np.maximum(0.0, mean - half)), _floats(mean + half)


def _wilson(successes: Floats, of: Floats, z: float) -> dict[str, Any]:
    """The share that reached its goal, of the runs of which that is known, with Wilson's interval."""
    with np.errstate(all="ignore"):
        share = successes / of
        middle = (share + z * z / (2 * of)) / (1 + z * z / of)
        half = z / (1 + z * z / of) * np.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = np.where(successes == 0, 0.0, middle - half), np.where(successes == of, 1.0, middle + half)
    unknown = of == 0
    parts = {"success_rate": share, "success_low": low, "success_high": high}
    return {name: _floats(np.where(unknown, np.nan, values)) for name, values in parts.items()}
