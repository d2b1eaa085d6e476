"""How often each interval contains the true value, for values of known distributions, from 5 to 500 independent units.

`python -m tests.benchmarks --only interval_coverage --no-peers` prints the share for each interval, distribution and number of units.
A correct 95 % interval contains the true value 95 times in 100. `none` means that the interval is not offered for so few units; in
brackets is the share of samples without one. Intervals of yes-or-no values are exact: near 0 and 1, and for few units, they contain it
more often, since so few answers are possible. Their shares are computed by enumeration, all others from simulated samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from agentlab.analysis.agreement import _kappa
from agentlab.analysis.intervals import Estimate, kaplan_meier, of_change, of_mean, of_median, of_share
from agentlab.analysis.passes import chances
from tests.benchmarks.table import Row

UNITS = (5, 8, 10, 20, 50, 100, 200, 500)
SAMPLES = 1_000
Random = np.random.Generator
Ends = tuple[float | None, float | None]
Share = tuple[float, float]
"""How often an interval contained the true value (NaN: there was none), and the share of samples without one."""


@dataclass(frozen=True)
class Case:
    """An interval on values of one distribution. `ends(random, units)` draws a sample and returns its interval."""

    truth: float
    ends: Callable[[Random, int], Ends]
    exact: bool = False
    """The interval contains the true value at least as often as the level says."""
    hidden: bool = False
    """The mean depends on runs that small samples lack."""


def ends_of(one: Estimate) -> Ends:
    return one.low, one.high


# Costs and other values from 0 on ---------------------------------------------------------------------------------------------------


def lognormal(sigma: float) -> tuple[float, Callable[[Random, int], Any]]:
    return float(np.exp(sigma**2 / 2)), lambda random, size: np.exp(sigma * random.normal(size=size))


def _rare(random: Random, size: int) -> Any:
    return np.where(random.random(size) < 0.05, 20, 1) * np.exp(0.5 * random.normal(size=size))


COSTS: dict[str, tuple[float, Callable[[Random, int], Any]]] = {
    "normal, sd 0.2 of the mean": (5.0, lambda random, size: random.normal(5, 1, size)),
    "exponential": (1.0, lambda random, size: random.exponential(size=size)),
    "gamma, shape 0.5": (0.5, lambda random, size: random.gamma(0.5, size=size)),
    "steps until success": (5.0, lambda random, size: random.geometric(0.2, size).astype(float)),
    **{f"lognormal, sigma {sigma:g}": lognormal(sigma) for sigma in (0.5, 1, 1.25)},
}
HIDDEN = {
    **{f"lognormal, sigma {sigma:g}": lognormal(sigma) for sigma in (1.5, 2)},
    "1 of 20 runs costs 20 times as much": (1.95 * float(np.exp(0.125)), _rare),
}


def sizes(random: Random, units: int) -> Any:
    """The unit of each run; units have 1 to about 15 runs."""
    return np.repeat(np.arange(units), random.geometric(0.25, units))


def _clustered_costs(random: Random, units: int) -> Ends:
    of = sizes(random, units)
    return ends_of(of_mean(np.exp(0.8 * random.normal(size=units)[of] + 0.6 * random.normal(size=len(of))), of, least=0.0))


def _clustered_median(random: Random, units: int) -> Ends:
    of = sizes(random, units)
    return ends_of(of_median(0.8 * random.normal(size=units)[of] + 0.6 * random.normal(size=len(of)), of))


def _differences(random: Random, units: int) -> Ends:
    """Of costs on the same prompts, one agent 1.3 times as expensive."""
    one, other = 1.3 * np.exp(0.5 * random.normal(size=units)), np.exp(0.5 * random.normal(size=units))
    return ends_of(of_mean(np.exp(0.8 * random.normal(size=units)) * (one - other)))


# Scores from 0 to 1 ------------------------------------------------------------------------------------------------------------------


def _clustered_share(rate: float) -> Callable[[Random, int], Ends]:
    def ends(random: Random, units: int) -> Ends:
        of = sizes(random, units)
        return ends_of(of_share(random.random(len(of)) < random.beta(2 * rate, 2 * (1 - rate), units)[of], of))

    return ends


def _graded(a: float, b: float) -> Case:
    return Case(a / (a + b), lambda random, units: ends_of(of_mean(random.beta(a, b, units), least=0.0, most=1.0)))


def _passes(k: int, every: bool) -> Case:
    """pass@k or pass^k of 5 runs per task, with rates of tasks spread evenly."""
    truth = 1 / (k + 1) if every else k / (k + 1)

    def ends(random: Random, units: int) -> Ends:
        successes = random.binomial(5, random.random(units))
        return ends_of(of_mean(chances(np.full(units, 5), successes, k, every=every), least=0.0, most=1.0))

    return Case(truth, ends)


def _repeated_change(rate: float) -> Case:
    """The difference of two agents with 3 runs per task: one always succeeds, the other half the time on this share of the tasks."""

    def ends(random: Random, units: int) -> Ends:
        worse = random.binomial(3, np.where(random.random(units) < rate, 0.5, 1)) / 3
        return ends_of(of_mean(worse - 1, least=-1.0, most=1.0))

    return Case(-rate / 2, ends)


# Agreement and survival --------------------------------------------------------------------------------------------------------------


def _agreement(same: float, rates: tuple[float, ...], repeats: int, kappa: bool) -> Case:
    """Two groups that end for the same reason in this share of scenarios, and else independently of each other."""
    by_chance = sum(rate**2 for rate in rates)
    truth = same + (1 - same) * by_chance

    def ends(random: Random, units: int) -> Ends:
        of = np.repeat(np.arange(units), repeats)
        usual = random.choice(len(rates), p=rates, size=units)[of]
        one, other = (random.choice(len(rates), p=rates, size=len(of)) for _ in range(2))
        linked = np.repeat(random.random(units) < same, repeats)
        table = pd.DataFrame({"a": np.where(linked, usual, one), "b": np.where(linked, usual, other)})
        if kappa:
            return ends_of(_kappa(table.astype(str), of, 0.95))
        return ends_of(of_share(table["a"] == table["b"], of))

    return Case((truth - by_chance) / (1 - by_chance) if kappa else truth, ends)


def _survival(after: int, repeats: int) -> Case:
    """Runs that end at each step with a chance of 0.25, cut off at each with a chance of 0.1."""

    def ends(random: Random, units: int) -> Ends:
        of = np.repeat(np.arange(units), repeats)
        uniform = stats.norm.cdf(0.7 * random.normal(size=units)[of] + np.sqrt(1 - 0.49) * random.normal(size=len(of)))
        end = np.ceil(np.log(uniform) / np.log(0.75)) if repeats > 1 else random.geometric(0.25, units)
        cut = random.geometric(0.1, len(of))
        curve = kaplan_meier([*np.minimum(end, cut)], [*(end <= cut)], of)
        place = int(np.searchsorted(curve.times, after, "right")) - 1
        return (None, None) if place < 0 else (curve.low[place], curve.high[place])

    return Case(0.75**after, ends)


# All of them -------------------------------------------------------------------------------------------------------------------------

CASES: dict[str, Case] = {
    **{
        f"mean cost: {name}": Case(true, lambda r, n, f=draw: ends_of(of_mean(f(r, n), least=0.0)))
        for name, (true, draw) in COSTS.items()
    },
    "mean cost: unequal repeats, total sigma 1": Case(float(np.exp(0.5)), _clustered_costs),
    **{
        f"mean cost: {name}": Case(true, lambda r, n, f=draw: ends_of(of_mean(f(r, n), least=0.0)), hidden=True)
        for name, (true, draw) in HIDDEN.items()
    },
    "difference of costs": Case(0.3 * float(np.exp(0.125 + 0.32)), _differences),
    "median: lognormal, sigma 2": Case(1.0, lambda r, n: ends_of(of_median(np.exp(2 * r.normal(size=n))))),
    "median: steps until success": Case(4.0, lambda r, n: ends_of(of_median(r.geometric(0.17, n))), exact=True),
    "median: unequal repeats": Case(0.0, _clustered_median),
    **{f"share: unequal repeats, {rate:g}": Case(rate, _clustered_share(rate), exact=True) for rate in (0.5, 0.9, 0.98)},
    "score: uniform": _graded(1, 1),
    "score: mean 0.83": _graded(5, 1),
    "score: mean 0.91, most of them near 1": _graded(0.5, 0.05),
    "score: mean 0.98, most of them near 1": _graded(2, 0.05),
    "pass@3": _passes(3, every=False),
    "pass^3": _passes(3, every=True),
    **{f"difference of repeated yes or no, {rate:g} of tasks": _repeated_change(rate) for rate in (0.02, 0.1, 0.5)},
    "agreement: share 0.77": _agreement(0.5, (0.6, 0.3, 0.1), 1, kappa=False),
    "kappa 0.5": _agreement(0.5, (0.6, 0.3, 0.1), 1, kappa=True),
    "kappa 0": _agreement(0.0, (0.6, 0.3, 0.1), 1, kappa=True),
    "kappa 0.9": _agreement(0.9, (0.6, 0.3, 0.1), 1, kappa=True),
    "kappa 0.5, a rare reason": _agreement(0.5, (0.9, 0.1), 1, kappa=True),
    "kappa 0.5, 4 repeats": _agreement(0.5, (0.6, 0.3, 0.1), 4, kappa=True),
    "survival: 0.75 left": _survival(1, 1),
    "survival: 0.32 left": _survival(4, 1),
    "survival: 0.1 left": _survival(8, 1),
    "survival: 0.32 left, 4 repeats": _survival(4, 4),
}


def simulated(case: Case, units: int, samples: int = SAMPLES, seed: int = 1) -> Share:
    random = np.random.default_rng([seed, units])
    found = [case.ends(random, units) for _ in range(samples)]
    inside = [low - 1e-12 <= case.truth <= high + 1e-12 for low, high in found if low is not None and high is not None]
    return (float(np.mean(inside)) if inside else np.nan), 1 - len(inside) / samples


RATES = (0.01, 0.05, 0.2, 0.5)


@cache
def _of_shares(units: int) -> Any:
    return np.array([ends_of(of_share([1] * yes + [0] * (units - yes))) for yes in range(units + 1)])


def enumerated_share(rate: float, units: int) -> Share:
    """The chance that the interval of a share contains it, over all numbers of yes."""
    low, high = _of_shares(units).T
    chance = stats.binom.pmf(np.arange(units + 1), units, rate)
    return float(chance[(low <= rate) & (rate <= high)].sum()), 0.0


CHANGES = {"0.02 and 0.05": (0.05, 0.02), "0.1 and 0.3": (0.3, 0.1), "0.25 and 0.25": (0.25, 0.25), "0 and 0.5": (0.5, 0.0)}
"""The chances that only one of two agents succeeds, and only the other."""


@cache
def _of_changes(units: int) -> tuple[Any, Any]:
    counts = [(more, fewer) for more in range(units + 1) for fewer in range(units + 1 - more)]
    ends = [ends_of(of_change([1] * more + [-1] * fewer + [0] * (units - more - fewer))) for more, fewer in counts]
    return np.array(counts), np.array(ends)


def enumerated_change(more: float, fewer: float, units: int) -> Share:
    """The chance that the interval of a difference contains it, over all numbers of both."""
    counts, ends = _of_changes(units)
    every = np.column_stack([counts, units - counts.sum(axis=1)])
    chance = stats.multinomial.pmf(every, units, [more, fewer, 1 - more - fewer])
    true = more - fewer
    return float(chance[(ends[:, 0] <= true + 1e-12) & (true <= ends[:, 1] + 1e-12)].sum()), 0.0


def covered(units: tuple[int, ...] = UNITS, samples: int = SAMPLES) -> Mapping[str, list[Share | None]]:
    """The shares by name, one per number of units; None where it is not computed."""
    found: dict[str, list[Share | None]] = {f"share {rate:g}": [enumerated_share(rate, n) for n in units] for rate in RATES}
    for name, (more, fewer) in CHANGES.items():
        found[f"change, only one succeeds: {name}"] = [enumerated_change(more, fewer, n) if n <= 50 else None for n in units]
    for name, case in CASES.items():
        found[name] = [simulated(case, n, samples) for n in units]
    return found


def table(found: Mapping[str, list[Share | None]], units: tuple[int, ...] = UNITS) -> str:
    """The shares as a markdown table: one row per interval, one column per number of units."""

    def cell(share: Share | None) -> str:
        if share is None:
            return ""
        return "none" if np.isnan(share[0]) else f"{100 * share[0]:.1f}{f' ({share[1]:.0%})' if share[1] >= 0.005 else ''}"

    lines = [["95 % intervals, in %", *map(str, units)], *([name, *map(cell, shares)] for name, shares in found.items())]
    lines.insert(1, ["-" * len(name) for name in lines[0]])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "| " + " | ".join(one.ljust(width) for one, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def rows(with_peers: bool) -> Iterator[Row]:
    """One row per interval with its worst coverage. The worst of many is lowered by chance; the whole table is printed."""
    found = covered()
    print(table(found))
    for name, shares in found.items():
        if name in CASES and CASES[name].hidden:
            continue
        missed = [100 * (1 - share[0]) for share in shares if share is not None and share[1] < 0.5]
        yield Row(
            benchmark=f"misses at 95 %, worst size: {name}", unit="%", goal="<= 8", at_most=1.6, ours=max(missed), against=5.0
        )
