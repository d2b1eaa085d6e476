"""Recorded runs as arrays: running totals, the first row at which each limit is met, independent units, and folds."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from agentlab._internal.formatting import counted
from agentlab.analysis import groups
from agentlab.errors import ConfigurationError
from agentlab.limits.budget import LIMIT_REASONS, Budget
from agentlab.limits.fields import limit_fields, unknown_name
from agentlab.model.finish_reasons import StopReason
from agentlab.model.usage import add_cost, add_usage
from agentlab.records.history import RunHistory

Rows: TypeAlias = npt.NDArray[Any]
"""Numbers of rows within their runs, from 0; a run's length if there is none. One row per limit, one column per run."""

FEW_LIMITS = 24
"""Up to this number of limits, comparing with each limit is faster than a search."""


def smallest(longest: int) -> npt.DTypeLike:
    """Return the narrowest dtype for numbers from 0 to this length."""
    return np.uint8 if longest < 2**8 else np.uint16 if longest < 2**16 else np.int64


def running_maximum(values: npt.NDArray[Any], start: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the highest value so far in each run, ignoring NaN: a limit that was met once stays met."""
    if not len(values) or (np.isfinite(values).all() and not _falls(values, start)):
        return values
    flat = np.empty(len(values))
    for first, last in itertools.pairwise(start):
        flat[first:last] = np.fmax.accumulate(np.where(np.isnan(values[first:last]), -np.inf, values[first:last]))
    return flat


def _falls(values: npt.NDArray[Any], start: npt.NDArray[np.int64]) -> bool:
    falls = values[1:] < values[:-1]
    between = start[1:-1] - 1
    falls[between[(between >= 0) & (between < len(falls))]] = False
    return bool(falls.any())


def first_met(values: npt.NDArray[Any], start: npt.NDArray[np.int64], limits: npt.NDArray[Any]) -> Rows:
    """Return, for each limit and run, the first row whose value is at or above the limit.

    `values` must not fall within a run (see `running_maximum`); run r has values[start[r]:start[r + 1]]. `limits` may be in any order.
    Each row is searched once among the limits: it is the first row for the limits between the value before it and its own.
    """
    lengths = np.diff(start)
    kind = smallest(int(lengths.max(initial=0)))
    different, places = np.unique(limits, return_inverse=True)
    places = places.ravel()
    if len(different) <= FEW_LIMITS:
        return _first_rows_of_few(values, start, different, kind)[places]
    meets = np.searchsorted(different, values, side="right")  # how many of the limits each row meets
    order = np.argsort(meets.astype(smallest(len(different) + 1)), kind="stable")
    run = np.repeat(np.arange(len(lengths)), lengths)[order]
    after = (np.arange(len(values)) - np.repeat(start[:-1], lengths) + 1).astype(kind)[order]
    edges = np.searchsorted(meets[order], np.arange(len(different) + 1))
    found = np.empty((len(different), len(lengths)), kind)
    below = np.zeros(len(lengths), kind)  # rows of each run below the current limit
    for limit in range(len(different)):
        newly = slice(edges[limit], edges[limit + 1])
        below[run[newly]] = after[newly]  # in the order of the rows: the last one counts
        found[limit] = below
    return found if len(different) == len(limits) and (places == np.arange(len(limits))).all() else found[places]


def _first_rows_of_few(
    values: npt.NDArray[Any], start: npt.NDArray[np.int64], limits: npt.NDArray[Any], kind: npt.DTypeLike
) -> Rows:
    """For few limits in rising order: compare each row with each, and count by run and number of limits met."""
    meets = np.zeros(len(values), np.int64)
    for limit in limits:
        meets += values >= limit
    lengths = np.diff(start)
    wide = len(limits) + 1
    meets += np.repeat(np.arange(len(lengths)) * wide, lengths)
    counts = np.bincount(meets, minlength=len(lengths) * wide).reshape(len(lengths), wide)
    return np.ascontiguousarray(np.cumsum(counts[:, :-1], axis=1).T.astype(kind))


Floats: TypeAlias = npt.NDArray[np.float64]

Ints: TypeAlias = npt.NDArray[np.int64]

Bools: TypeAlias = npt.NDArray[np.bool_]

USED = ("tokens", "cost_usd", "calls", "time_s")
"""The running totals of a run's usage."""


@dataclass(frozen=True)
class Records:
    """Runs as arrays. Row `start[r] + i` is step i + 1 of run r; a run may have none.

    `used` has the running totals of known usage, sub-agents included; limits are compared with them. `totals` has the same, but NaN if
    a part is unknown. `own_end`: the run finished on its own. `cut_short`: its last step was cut off. `wanted_more`: it ended
    before a further call, or that call failed. `goal`: the row at which the run reached its goal.
    """

    about: pd.DataFrame
    """One row per run: `run_id` and its other columns."""
    start: Ints
    steps: pd.DataFrame
    """One row per step, run after run."""
    own_end: Bools
    cut_short: Bools
    wanted_more: Bools
    reason: npt.NDArray[np.object_]
    """The stop reason of each run; None if it has not ended."""
    goal: Ints
    histories: Callable[[int], RunHistory] | None = field(default=None, repr=False)
    """The history of run r; None if there are only frames."""

    @functools.cached_property
    def lengths(self) -> Ints:
        """Steps of each run."""
        return np.diff(self.start)

    @functools.cached_property
    def longest(self) -> int:
        """Steps of the longest run."""
        return int(self.lengths.max(initial=0))

    @functools.cached_property
    def run(self) -> Ints:
        """The run of each row."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, first: int, last: int) -> Records:
        """Return the runs from `first` to `last`, exclusive."""
        rows = slice(int(self.start[first]), int(self.start[last]))
        runs, histories = slice(first, last), self.histories
        part = Records(
            self.about.iloc[runs].reset_index(drop=True),
            self.start[first : last + 1] - self.start[first],
            self.steps.iloc[rows].reset_index(drop=True),
            self.own_end[runs],
            self.cut_short[runs],
            self.wanted_more[runs],
            self.reason[runs],
            self.goal[runs],
            None if histories is None else (lambda run: histories(first + run)),
        )
        vars(part)["used"], vars(part)["totals"] = (
            _Made(lambda name, whole=whole: whole[name][rows])  # type: ignore[misc]
            for whole in (self.used, self.totals)
        )
        return part

    def column(self, name: str, needed_by: str) -> pd.Series[Any]:
        """Return a column of the steps. Raises ConfigurationError if there is none."""
        if name not in self.steps.columns:
            raise ConfigurationError(
                f"The steps have no column {name!r}, which {needed_by} needs: pass the frame of lab.frame(results), a store, or the "
                "results themselves."
            )
        return self.steps[name]

    def with_columns(self, names: Sequence[str], option: str) -> pd.DataFrame:
        """Return `about` with these columns, which may also be columns of the steps that are constant within a run.

        Raises ConfigurationError, with the name of the parameter `option`, if a column is in neither or changes within a run.
        """
        about = self.about
        for name in [name for name in names if name not in about.columns]:
            if name not in self.steps.columns:
                raise ConfigurationError(
                    f"{option}={name!r}: {unknown_name('column', name, [str(one) for one in about.columns])}"
                )
            changes = self.steps[name].groupby(self.run).nunique(dropna=False) > 1
            if changes.any():
                run = about["run_id"].iloc[int(changes.index[changes.to_numpy()][0])]
                raise ConfigurationError(
                    f"{option}={name!r}: the column changes from step to step in run {run!r}. Choose a column that is the same in all "
                    "steps of a run, or pass runs=… with one row per run."
                )
            there = np.flatnonzero(self.lengths)
            firsts = self.steps[name].iloc[self.start[:-1][there]].set_axis(there)
            about = about.assign(**{name: firsts.reindex(range(len(self)))})
        return about

    @functools.cached_property
    def used(self) -> Mapping[str, Floats]:
        """Running totals of known usage, by the names of USED."""
        return _Made(functools.partial(_used, self))

    @functools.cached_property
    def totals(self) -> Mapping[str, Floats]:
        """Running totals, NaN if a part is unknown."""
        return _Made(functools.partial(_total, self))

    def at_the_end(self, name: str) -> Floats:
        """The usage of each run at the end of its record."""
        there = self.lengths > 0
        found = np.zeros(len(self))
        found[there] = self.totals[name][self.start[1:][there] - 1]
        return found

    @functools.cached_property
    def at_stop(self) -> Mapping[str, Floats]:
        """`totals` with two more rows: 0 for a run without a step, NaN for a run with an unknown end."""
        return _Made(lambda name: np.concatenate([self.totals[name], [0.0, np.nan]]))

    @functools.cached_property
    def words(self) -> dict[str, Any]:
        """The rows of words, as read by conditions on words."""
        return {}

    @functools.cached_property
    def several_calls(self) -> Bools:
        """True for steps that a limit may cut off before a further call: those with several calls, child runs, or a call not made."""
        found: Bools = (groups.floats(self.steps, "calls") > 1) | (groups.floats(self.steps, "child_calls") > 0)
        found[self.start[1:][self.wanted_more] - 1] = True
        return found

    @functools.cached_property
    def inside(self) -> Mapping[int, list[AfterCall]]:
        """The usage after each call of the steps with several calls, by row; empty without histories."""
        if self.histories is None:
            return {}
        found = {}
        for row in np.flatnonzero(self.several_calls):
            found[int(row)] = list(calls_inside(self.histories(int(self.run[row])), int(row - self.start[self.run[row]])))
        return found


class _Made(dict[str, Floats]):
    """Arrays by the names of USED, each computed on first access."""

    def __init__(self, make: Callable[[str], Floats]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Floats:
        self[name] = found = self._make(name)
        return found


@dataclass(frozen=True, slots=True)
class AfterCall:
    """The usage of a run after one of a step's calls, by the names of USED, and the output tokens of the call. `used` has the known
    usage, `totals` has NaN if a part is unknown."""

    used: dict[str, float]
    totals: dict[str, float]
    output_tokens: int


def calls_inside(history: RunHistory, place: int) -> Iterator[AfterCall]:
    """Return the usage of a run after each call of a step."""
    so_far = history.prefix(place)
    used_tokens, used_cost, calls = so_far.known_tokens, so_far.known_cost_usd, so_far.calls
    usage, cost = so_far.usage, so_far.cost
    for call in history[place].calls:
        usage, cost = add_usage(usage, call.usage), add_cost(cost, call.cost)
        used_tokens += call.usage.known_tokens
        used_cost += call.cost.known_usd
        calls += 1
        same = {"calls": float(calls), "time_s": call.started_s + call.duration_s}
        tokens = np.nan if usage.total_tokens is None else float(usage.total_tokens)
        totals = {"tokens": tokens, "cost_usd": np.nan if cost.usd is None else float(cost.usd), **same}
        yield AfterCall(
            {"tokens": float(used_tokens), "cost_usd": float(used_cost), **same}, totals, call.usage.output_tokens or 0
        )


# Limits ------------------------------------------------------------------------------------------------------------------------

_MEASURES = {"steps": "steps", "calls": "calls", "tokens": "tokens", "USD": "cost_usd", "s": "time_s"}

BOUNDED = {field.name: _MEASURES[field.metadata["unit"]] for field in limit_fields(Budget) if field.name in LIMIT_REASONS}
"""The running total that each limit bounds, by the limit's unit. Steps are counted."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit over all runs, with the first row of each run at which it is met."""

    name: str
    value: Any
    first: Rows

    @property
    def reason(self) -> StopReason:
        """The stop reason of a run that reaches the limit."""
        return LIMIT_REASONS[self.name]

    @property
    def measure(self) -> str:
        """The running total that the limit bounds."""
        return BOUNDED[self.name]

    def is_met(self, used: dict[str, float]) -> bool:
        """True if the usage reaches the limit. Not for limits on steps."""
        return bool(used[self.measure] >= float(self.value))


def limits_over(records: Records, name: str, values: list[Any]) -> list[Limit]:
    """Return a limit with each of several values."""
    if BOUNDED[name] == "steps":
        firsts = list(np.minimum(np.array(values)[:, None] - 1, records.lengths[None, :]))
    else:
        firsts = list(first_met(records.used[BOUNDED[name]], records.start, np.array([float(value) for value in values])))
    return [Limit(name, value, first) for value, first in zip(values, firsts, strict=True)]


# Running totals ------------------------------------------------------------------------------------------------------------------

_KNOWN = {"tokens": "known_tokens", "cost_usd": "known_cost_usd"}

_CUMULATIVE = {"tokens": "cumulative_tokens", "cost_usd": "cumulative_cost_usd"}

_OWN = {"tokens": "total_tokens", "cost_usd": "cost_usd", "calls": "calls"}

_CHILDREN = {"tokens": "child_tokens", "cost_usd": "child_cost_usd", "calls": "child_calls"}

_DECIMALS = 12
"""Decimals to which sums are rounded, so that adding floats in another order changes nothing."""


def _used(records: Records, name: str) -> Floats:
    steps, start = records.steps, records.start
    if name == "time_s":
        return running_maximum(_elapsed(records), start)
    known = groups.floats(steps, _KNOWN[name]) if _KNOWN.get(name) in steps.columns else None
    if known is None or np.isnan(known).any():
        summed = _summed(records, np.nan_to_num(_per_step(records, name)))
        known = summed if known is None else np.where(np.isnan(known), summed, known)
    return running_maximum(known, start)


def _total(records: Records, name: str) -> Floats:
    """Return running totals; all NaN if the frame has no column for them: only limits on them need it."""
    columns = records.steps.columns
    if not any(column in columns for column in (_CUMULATIVE.get(name), _OWN.get(name, "duration_s"))):
        return np.full(len(records.run), np.nan)
    if name in ("time_s", "calls"):
        return _elapsed(records) if name == "time_s" else records.used["calls"]
    if _CUMULATIVE[name] in records.steps.columns:
        return groups.floats(records.steps, _CUMULATIVE[name])
    return _summed(records, _per_step(records, name, whole=True))


def _per_step(records: Records, name: str, *, whole: bool = False) -> Floats:
    """Return the usage of each step; with `whole` NaN if a part is unknown, else the known part of the tokens."""
    own = groups.as_floats(records.column(_OWN[name], f"a limit on {name}"))
    if name == "tokens" and not whole:
        known, more = (np.nan_to_num(groups.floats(records.steps, part)) for part in ("input_tokens", "output_tokens"))
        own = np.where(np.isnan(own), known + more, own)
    if _CHILDREN[name] not in records.steps.columns:
        return own
    children = groups.floats(records.steps, _CHILDREN[name])
    return own + (children if whole else np.nan_to_num(children))


def _summed(records: Records, values: Floats) -> Floats:
    """Return cumulative sums, run by run."""
    if np.array_equal(values, np.rint(values)):  # such as tokens, but not money: a sum over all runs is exact
        sums: Floats = np.cumsum(np.append(0.0, values))
        return sums[1:] - np.repeat(sums[records.start[:-1]], records.lengths)
    by_run = pd.Series(values).groupby(records.run, sort=False).cumsum(skipna=False)
    return np.round(by_run.to_numpy(dtype=float), _DECIMALS)


def _elapsed(records: Records) -> Floats:
    took = groups.as_floats(records.column("duration_s", "a limit on time"))
    return groups.floats(records.steps, "started_s") + took if "started_s" in records.steps.columns else _summed(records, took)


SEED = 20_240_229

PROMPTS = ("prompt_id", "prompt")


@dataclass(frozen=True, slots=True)
class Units:
    """The kind of the units (`what`: `prompt`, `recording` or `run`), and the number of each run's unit, from 0."""

    what: str
    of: Ints
    one_prompt: bool
    """True if all runs are of one prompt."""

    @property
    def number(self) -> int:
        """The number of units."""
        return int(self.of.max(initial=-1)) + 1

    @property
    def codes(self) -> Ints | None:
        """`of`; None if each run is a unit."""
        return None if self.number == len(self.of) else self.of

    def count_of(self, runs: Bools) -> int:
        """Return the number of units of these runs."""
        return len(np.unique(self.of[runs]))

    def counted(self, number: int) -> str:
        """Return a number of units in words."""
        return counted(number, self.what)


def units_of(about: pd.DataFrame) -> Units:
    """Return the units of these runs, numbered by their first run."""
    about = about.reset_index(drop=True)
    prompt = groups.unit_of(about, None)
    one = bool(prompt) and about[prompt[0]].nunique(dropna=False) == 1
    columns = about.drop(columns=[name for name in PROMPTS if name in about.columns]) if one else about
    recorded = "recording_id" in about.columns and about["recording_id"].notna().any()
    what = "prompt" if prompt and not one else "recording" if recorded else "run"
    return Units(what, np.unique(groups.units_of(columns, None), return_inverse=True)[1].astype(np.int64), one)


def order_of(about: pd.DataFrame) -> Ints:
    """Return the order of the runs by unit and id, so that the result does not depend on the order in which they were passed."""
    by_id = np.argsort(about["run_id"].astype(str).to_numpy(), kind="stable")
    found: Ints = by_id[np.argsort(units_of(about.iloc[by_id]).of, kind="stable")]
    return found


def reordered(records: Records, order: Ints) -> Records:
    """Return the runs in this order."""
    if np.array_equal(order, np.arange(len(records))):
        return records
    lengths, histories = records.lengths[order], records.histories
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = np.arange(int(start[-1])) - np.repeat(start[:-1], lengths) + np.repeat(records.start[:-1][order], lengths)
    return Records(
        records.about.iloc[order].reset_index(drop=True),
        start,
        records.steps.iloc[rows].reset_index(drop=True),
        records.own_end[order],
        records.cut_short[order],
        records.wanted_more[order],
        records.reason[order],
        records.goal[order],
        None if histories is None else (lambda run: histories(int(order[run]))),
    )


def folds_of(units: Units, succeeded: Bools, folds: int) -> Ints:
    """Return the fold of each run. Successes are spread evenly over the folds, then runs; the order is random with a fixed seed."""
    number = int(units.of.max()) + 1
    successes = np.bincount(units.of[succeeded], minlength=number)
    runs = np.bincount(units.of, minlength=number)
    shuffled = np.random.default_rng(SEED).permutation(number)
    fold_of = np.zeros(number, np.int64)
    filled = [[0, 0, fold] for fold in range(folds)]
    for unit in shuffled[np.argsort(-successes[shuffled], kind="stable")]:
        least = min(filled)
        least[0] += int(successes[unit])
        least[1] += int(runs[unit])
        fold_of[unit] = least[2]
    return fold_of[units.of]
