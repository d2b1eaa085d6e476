"""Intervals of shares, means, medians and differences, from independent units of one run or several; survival curves.

    of_share([1, 0, 1, …], units)        Wilson's interval, from as many runs as the units are worth
    of_mean([0.01, 0.02, …], units)      the wider of Student's t and Hall's correction for skewness
    of_median([0.01, 0.02, …], units)    ranks
    of_change([1, 0, -1, …])             Tango's interval for differences of paired yes-or-no answers, in agreement with McNemar's test

`units` gives each value the number of its unit: values of one unit are not independent of each other, as repeats of one prompt or
replays of one recording. The estimate is that over all values, its error is that of the units' sums. Without `units` each value is
independent.

An interval that cannot be made is None, and says why. From fewer than FEWEST units there is none: so few do not show how uneven the
values are. How often each interval contains what it estimates is simulated by `python -m tests.benchmarks --only coverage`. Where a
few runs use nearly everything it is less often than it says, and no small sample shows that: the mean of lognormal costs with a
sigma of 1 is covered 91 to 96 % of the time from 5 to 50 units, with a sigma of 2 82 % from 10 and 88 % from 50.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from agentlab.amounts import counted
from agentlab.errors import ConfigurationError

FEW = 20
"""Fewer units than this are said to be few."""
FEWEST = 5
"""No interval from fewer units than this."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval."""

    value: float | None
    """None: nothing is known that it could be computed from."""
    low: float | None
    high: float | None
    """None: there is no interval, see `why`."""
    known: int
    """From how many values."""
    why: str | None = None
    """Why there is no interval."""
    units: int = 0
    """In how many independent units the values come."""


def checked_level(level: object) -> float:
    """The level of confidence. Raises ConfigurationError unless it lies between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ConfigurationError(f"level={level!r}: pass a number between 0 and 1, such as 0.95.")
    return float(level)


# Shares --------------------------------------------------------------------------------------------------------------------------


def wilson(successes: int, of: int, *, level: float = 0.95) -> Estimate:
    """A share of independent values with Wilson's score interval, which holds for few and for extreme shares alike.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    if of == 0:
        return Estimate(None, None, None, 0, "none known")
    share = successes / of
    return Estimate(share, *_score(share, of, _normal(level)), of, units=of)


def _score(share: float, of: float, quantile: float) -> tuple[float, float]:
    """Wilson's interval; `of` need not be a whole number."""
    square = quantile * quantile
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = quantile / (1 + square / of) * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    return (0.0 if share == 0 else max(0.0, middle - half)), (1.0 if share == 1 else min(1.0, middle + half))


def of_share(yes: Iterable[float], units: Any = None, *, level: float = 0.95) -> Estimate:
    """A share of answers of yes, 1, and no, 0, with Wilson's interval.

    Answers of one unit count as so many independent ones as their variance between units says, of which the interval is made with
    Student's quantile. They count at least as much as if all answers of a unit were one and the same, so that repeats of a prompt never
    widen the interval; where all answers are the same, that is all that is known.
    N. Dean, M. Pagano, Evaluating confidence interval methods for binomial proportions in clustered surveys, JSSAM 3 (2015).
    """
    answers, codes, bare = _units_of(yes, units)
    if bare.why is not None or bare.value is None:
        return bare
    worth, quantile = _worth(answers - bare.value, codes, bare, level)
    return _with(bare, *_score(bare.value, worth, quantile))


def _worth(errors: Any, codes: Any, bare: Estimate, level: float) -> tuple[float, float]:
    """As many independent values as these are worth, by the variance of their units' sums, and the quantile to take with it."""
    known, number = bare.known, bare.units
    if number == known:
        return known, _normal(level)
    least, normal = known**2 / float((np.bincount(codes) ** 2).sum()), _normal(level)
    alone = float(np.sort(errors**2).sum()) / (known - 1)
    if alone == 0:
        return least, normal
    together = float(np.sort(np.bincount(codes, errors) ** 2).sum()) / (number - 1) * number / known
    worth, quantile = known * alone / max(alone, together), student(level, number - 1)
    return (worth, quantile) if quantile**2 / worth < normal**2 / least else (least, normal)


# Means ---------------------------------------------------------------------------------------------------------------------------


def of_mean(
    values: Iterable[float], units: Any = None, *, level: float = 0.95, least: float = -math.inf, most: float = math.inf
) -> Estimate:
    """Their mean, with the wider of two intervals from the units' sums: Student's t, and that with Hall's correction for skewness.

    `least` and `most` are bounds that the values are known to have. Of values from 0 on Student's t is taken on the logarithm of the
    mean. P. Hall, On the removal of skewness by transformation, JRSS B 54 (1992); the error of units as in
    E. Miller, Adding error bars to evals (2024).
    """
    found, codes, bare = _units_of(values, units)
    if bare.why is not None or bare.value is None:
        return bare
    mean, number = bare.value, bare.units
    sums = np.sort(np.bincount(codes, found - mean))  # so that the order of the rows changes nothing, down to the last digit
    spread = math.sqrt(float((sums**2).sum()) / (number - 1))
    error = spread * math.sqrt(number) / bare.known
    if error <= 1e-12 * float(np.abs(found).max()):
        what = f"all {number} values are the same" if number == bare.known else f"the means of all {number} units are the same"
        return Estimate(mean, None, None, bare.known, what, number)
    half = student(level, number - 1) * error
    skewness = number / ((number - 1) * (number - 2)) * float(((sums / spread) ** 3).sum())
    ends = [mean - _unskewed(sign * half, error, skewness, number) for sign in (1, -1)]
    if least == 0:
        ends += [mean * math.exp(-half / mean), mean * math.exp(min(700.0, half / mean))]
    else:
        ends += [mean - half, mean + half]
    return _with(bare, max(least, min(ends)), min(max(ends), most))


def _unskewed(half: float, error: float, skewness: float, number: int) -> float:
    """The distance from the mean that Hall's transformation makes of a half width of a symmetric interval."""
    if abs(skewness) < 1e-6:
        return half
    scale = error * math.sqrt(number)
    return scale * 3 / skewness * (math.cbrt(1 + skewness * (half / scale - skewness / (6 * number))) - 1)


def of_median(values: Iterable[float], units: Any = None, *, level: float = 0.95) -> Estimate:
    """Their median, with the interval between the values of two ranks: those of the interval of the share that lies below it.

    R. S. Woodruff, Confidence intervals for medians and other position measures, JASA 47 (1952).
    """
    found, codes, bare = _units_of(values, units, np.median)
    if bare.why is not None or bare.value is None:
        return bare
    ordered, known = np.sort(found), bare.known
    if ordered[0] == ordered[-1]:
        return Estimate(bare.value, None, None, known, f"all {known} values are the same", bare.units)
    sides = np.sign(found - bare.value)
    worth, quantile = _worth(sides - sides.mean(), codes, bare, level)
    low, high = _score(0.5, worth, quantile)
    return _with(bare, ordered[max(0, math.floor(low * known) - 1)], ordered[min(known - 1, math.ceil(high * known))])


# Differences of yes-or-no answers ------------------------------------------------------------------------------------------------


def of_change(differences: Sequence[float], *, level: float = 0.95) -> Estimate:
    """The mean of independent differences of yes-or-no answers, 1, 0 or -1, with Tango's score interval.

    Where McNemar's exact test does not tell them from chance the interval is made to reach to 0, from which it excludes more than it
    should for few pairs. T. Tango, Equivalence test and confidence interval for the difference in proportions for the paired-sample
    design, Statistics in Medicine 17 (1998).
    """
    _, _, bare = _units_of(differences, None)
    if bare.why is not None or bare.value is None:
        return bare
    more, fewer = (sum(one == sign for one in differences) for sign in (1, -1))
    number, quantile = bare.known, _normal(level)

    def too_far(change: float) -> bool:
        """Whether the pairs speak against this difference."""
        b = (2 * number - more + fewer) * change - more - fewer
        rare = (math.sqrt(max(0.0, b * b + 8 * number * fewer * change * (1 - change))) - b) / (4 * number)
        variance = number * (2 * rare + change * (1 - change))
        return abs(more - fewer - number * change) > quantile * math.sqrt(max(0.0, variance))

    low, high = _edge(too_far, -1.0, bare.value), _edge(too_far, 1.0, bare.value)
    if mcnemar(more, fewer) > 1 - level:
        low, high = min(low, 0.0), max(high, 0.0)
    return _with(bare, low, high)


def _edge(too_far: Any, outside: float, inside: float) -> float:
    """Where between these two it begins to be too far."""
    if not too_far(outside):
        return outside
    for _ in range(60):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if too_far(middle) else (outside, middle)
    return inside


def mcnemar(more: int, fewer: int) -> float:
    """The p-value of McNemar's exact test: how likely chance parts so many pairs at least as unevenly."""
    number, part, below = more + fewer, 1, 0
    for k in range(min(more, fewer) + 1):
        below, part = below + part, part * (number - k) // (k + 1)
    return min(1.0, float(2 * below / 2**number))


# Survival ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Survival:
    """A survival curve: `alive` after each of `times`, with its interval; None where that cannot be made."""

    times: tuple[float, ...]
    alive: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


def kaplan_meier(times: Sequence[float], ended: Sequence[bool], units: Any = None, *, level: float = 0.95) -> Survival:
    """The share that has not ended after each time, by Kaplan and Meier, with the log-log interval by Greenwood's formula.

    What is not `ended` was censored at its time: it had not ended by then, and nothing more is known. With units that hold several
    of them the variance is that of the units' sums. R. L. Williams, Product-limit survival functions with correlated survival times,
    Lifetime Data Analysis 1 (1995).
    """
    if not len(times):
        return Survival((), (), (), ())
    own, known = np.asarray(times, dtype=float), len(times)
    codes = np.arange(known) if units is None else np.unique(np.asarray(units), return_inverse=True)[1]
    number = int(codes.max()) + 1
    at = np.unique(own)
    died, there = np.zeros((number, len(at))), np.zeros((number, len(at)))
    place = np.searchsorted(at, own)
    np.add.at(died, (codes, place), np.asarray(ended, dtype=float))
    np.add.at(there, (codes, place), 1.0)
    there = there[:, ::-1].cumsum(axis=1)[:, ::-1]
    hazard = died.sum(axis=0) / there.sum(axis=0)
    alive = np.cumprod(1 - hazard)
    few, alone = number < FEWEST, number == known
    quantile, factor = (_normal(level), 1.0) if alone or few else (student(level, number - 1), number / (number - 1))
    with np.errstate(all="ignore"):  # where nobody or everybody has ended there is no interval
        errors = ((died - there * hazard) / (there.sum(axis=0) * (1 - hazard))).cumsum(axis=1)
        half = quantile * np.sqrt(factor * (errors**2).sum(axis=0)) / np.abs(np.log(alive))
        ends = [alive ** np.exp(half), alive ** np.exp(-half)]
    fine = (alive > 0) & (alive < 1) & (not few)
    low, high = (tuple(float(end) if there else None for end, there in zip(side, fine, strict=True)) for side in ends)
    return Survival(tuple(map(float, at)), tuple(map(float, alive)), low, high)


# Parts ---------------------------------------------------------------------------------------------------------------------------


def _units_of(values: Iterable[float], units: Any, statistic: Any = np.mean) -> tuple[Any, Any, Estimate]:
    """The values, the code of each one's unit, and the estimate without its interval, with the reason where there can be none."""
    found = np.asarray(list(values), dtype=float)
    known = len(found)
    if not known:
        return found, found, Estimate(None, None, None, 0, "none known")
    codes = np.arange(known) if units is None else np.unique(np.asarray(units), return_inverse=True)[1]
    order, number = np.lexsort((found, codes)), int(codes.max()) + 1  # so that the order of the rows changes no digit
    value = float(found[0]) if found.min() == found.max() else float(statistic(np.sort(found)))
    return found[order], codes[order], Estimate(value, None, None, known, too_few(known, number), number)


def too_few(known: int, units: int) -> str | None:
    """Why there is no interval from so many values, in so many units, where there is none."""
    if units >= FEWEST:
        return None
    if units < known:
        return f"{known} values in {counted(units, 'independent unit')}, an interval takes {FEWEST} units"
    return f"only {known if known > 1 else 'one'} known, an interval takes {FEWEST}"


def _with(bare: Estimate, low: float, high: float) -> Estimate:
    """The estimate with its interval, which contains it whatever rounding did."""
    value = 0.0 if bare.value is None else bare.value
    return Estimate(bare.value, min(float(low), value), max(float(high), value), bare.known, None, bare.units)


def _normal(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


@cache
def student(level: float, freedom: int) -> float:
    """How far from 0 Student's t lies with this probability, to both sides. Abramowitz and Stegun 26.7.3 to 26.7.5."""
    z = _normal(level)
    if freedom > 200:
        n, s = 4 * freedom, z * z
        first, second = (s + 1) / n, ((5 * s + 16) * s + 3) / (6 * n * n)
        return z * (1 + first + second + (((3 * s + 19) * s + 17) * s - 15) / (6 * n**3))

    def within(t: float) -> float:
        angle, odd = math.atan(t / math.sqrt(freedom)), freedom % 2
        square, part, total = math.cos(angle) ** 2, math.cos(angle) ** odd, 0.0
        for k in range(odd, freedom - 1, 2):
            total, part = total + part, part * (k + 1) / (k + 2) * square
        total *= math.sin(angle)
        return 2 / math.pi * (angle + total) if odd else total

    return _edge(lambda t: within(t) > level, 1e9, 0.0)
