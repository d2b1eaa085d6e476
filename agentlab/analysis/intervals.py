"""Intervals of shares, means, medians and differences, from independent units of one or several runs; survival curves.

    of_share([1, 0, 1, …], units)        Clopper-Pearson, from the effective number of independent values
    of_mean([0.01, 0.02, …], units)      the wider of Student's t and Hall's correction for skewness
    of_median([0.01, 0.02, …], units)    Woodruff's interval between two interpolated ranks
    of_change([1, 0, -1, …])             Tango's interval for differences of paired yes-or-no answers, in agreement with McNemar's test

`units` has the number of each value's unit. Values of one unit are not independent, such as repeats of one prompt or replays of one
recording. The estimate is computed from all values, its error from the units' sums. Without `units` each value is independent.

An interval that cannot be computed is None, and `why` has the reason. There is none for fewer than MIN_UNITS units, and none of a mean
for fewer than MEAN_UNITS: from fewer, 95 % intervals of skewed values contain the mean in less than 93 % of samples.
`python -m tests.benchmarks --only coverage` prints how often each interval contains the true value. Intervals of shares are exact, so
near 0 and 1 they contain it more often than the level says. If rare runs use nearly everything, an interval of the mean contains it
less often, and no sample shows that; a median has no such problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from agentlab._internal.formatting import counted
from agentlab.errors import ConfigurationError

SMALL_SAMPLE = 20
"""An interval from fewer units gets a warning."""
MIN_UNITS = 5
"""The minimum number of units for an interval."""
MEDIAN_UNITS = 6
"""The minimum number of units for an interval of a median."""
MEAN_UNITS = 10
"""The minimum number of units for an interval of a mean or a survival curve."""
EVEN_UNITS = 9
"""The minimum number of units of equal size that give as precise a mean, see `effective`."""
FEW = 4
"""Of bounded values, a mean that fewer units than this keep away from a bound gets the interval of a share."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval."""

    value: float | None
    """None if no value is known."""
    low: float | None
    high: float | None
    """None if there is no interval, see `why`."""
    known: int
    """Number of values."""
    why: str | None = None
    """The reason for a missing interval."""
    units: int = 0
    """Number of independent units."""
    method: str = ""
    """The name of the interval's method; empty without an interval."""
    error: float | None = None
    """The standard error of a mean or a share, clustered by unit; None if there are too few units."""

    def columns(self, value: str, prefix: str) -> dict[str, float | None]:
        """Return the value and its interval as columns of a frame."""
        return {value: self.value, f"{prefix}_low": self.low, f"{prefix}_high": self.high}


def checked_level(level: object, name: str = "level") -> float:
    """Return the confidence level, given as `name`. Raises ConfigurationError unless it is between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ConfigurationError(f"{name}={level!r}: pass a number between 0 and 1, such as 0.95.")
    return float(level)


# Shares --------------------------------------------------------------------------------------------------------------------------


def share_ends(share: Any, of: Any, level: float) -> tuple[Any, Any]:
    """Return the exact interval of a share by Clopper and Pearson, for numbers or arrays; the number of values may be fractional.

    C. J. Clopper, E. S. Pearson, The use of confidence or fiducial limits, Biometrika 26 (1934).
    """
    yes, no, outside = share * of, (1 - share) * of, (1 - level) / 2
    low = np.where(share == 0, 0.0, special.betaincinv(np.maximum(yes, 1e-300), no + 1, outside))
    return low, np.where(share == 1, 1.0, special.betaincinv(yes + 1, np.maximum(no, 1e-300), 1 - outside))


def of_share(yes: Iterable[float], units: Any = None, *, level: float = 0.95) -> Estimate:
    """Return the share of yes among answers of 1 (yes) and 0 (no), with the interval by Clopper and Pearson.

    If units have several answers, the interval is computed from the effective number of independent ones, by the variance between
    units, with Student's quantile. A unit counts at least as one answer: repeats of a prompt never widen the interval.
    E. L. Korn, B. I. Graubard, Confidence intervals for proportions with small expected number of positive counts estimated from survey
    data, Survey Methodology 24 (1998).
    """
    answers, codes, bare = _units_of(yes, units)
    if bare.why is not None or bare.value is None:
        return bare
    worth, quantile = _worth(answers - bare.value, codes, bare, level)
    if bare.units < bare.known and (_few(answers, codes) or _few(1 - answers, codes)):  # too few to show how much units vary
        worth, quantile = effective(codes), normal(level)
    method = "Clopper-Pearson" if bare.units == bare.known else "Clopper-Pearson, effective n of units"
    ends = share_ends(bare.value, worth * (normal(level) / quantile) ** 2, level)
    return _with(bare, *ends, method, _error_of(answers, codes, bare))


def _worth(errors: Any, codes: Any, bare: Estimate, level: float) -> tuple[float, float]:
    """Return the effective number of independent values, by the variance of the units' sums, and the quantile to use with it."""
    known, number = bare.known, bare.units
    if number == known:
        return known, normal(level)
    least, z = effective(codes), normal(level)
    alone = float(np.sort(errors**2).sum()) / (known - 1)
    if alone == 0:
        return least, z
    together = float(np.sort(np.bincount(codes, errors) ** 2).sum()) / (number - 1) * number / known
    worth, quantile = known * alone / max(alone, together), student(level, least - 1)
    return (worth, quantile) if quantile**2 / worth < z**2 / least else (least, z)


# Means ---------------------------------------------------------------------------------------------------------------------------


def of_mean(
    values: Iterable[float], units: Any = None, *, level: float = 0.95, least: float = -math.inf, most: float = math.inf
) -> Estimate:
    """Return the mean with the wider of two intervals from the units' sums: Student's t, and t with Hall's correction for skewness.

    `least` and `most` are known bounds of the values. If only `least` is known and 0, Student's t is applied to the logarithm of the
    mean. If few units keep the mean of bounded values away from a bound, the interval is at least that of a share. P. Hall, On the
    removal of skewness by transformation, JRSS B 54 (1992); the error of units as in E. Miller, Adding error bars to evals (2024).
    """
    found, codes, bare = _units_of(values, units, minimum=MEAN_UNITS)
    if bare.why is not None or bare.value is None:
        return bare
    mean, number, from_0 = bare.value, bare.units, least == 0 and most == math.inf
    sums, error, worth = np.sort(np.bincount(codes, found - mean)), _error_of(found, codes, bare), effective(codes)
    if worth < EVEN_UNITS:
        what = f"{number} units of unequal size, as precise as {worth:.1f} of equal size, an interval needs {EVEN_UNITS}"
        return Estimate(mean, None, None, bare.known, what, number, error=error)
    spread = error * bare.known / math.sqrt(number)
    low, high, method = mean, mean, "t on the logarithm or Hall" if from_0 else "t or Hall"
    if same := error <= 1e-12 * float(np.abs(found).max()):
        error = 0.0
    else:
        skewness = number / ((number - 1) * (number - 2)) * float(((sums / spread) ** 3).sum())
        low, high = map(float, mean_ends(mean, error, skewness, worth, student(level, worth - 1), from_0=from_0))
    if most < math.inf and (wide := _near_a_bound(found, codes, bare, level, least, most)) is not None:
        low, high, method = min(low, wide[0]), max(high, wide[1]), f"{method} or Clopper-Pearson"
    elif same:
        what = f"all {number} values are the same" if number == bare.known else f"the means of all {number} units are the same"
        return Estimate(mean, None, None, bare.known, what, number)
    return _with(bare, max(least, low), min(high, most), method, error)


def _near_a_bound(  # noqa: PLR0917
    found: Any, codes: Any, bare: Estimate, level: float, least: float, most: float
) -> tuple[float, float] | None:
    """Return the interval of a share if the values are from 0 to 1, or of a difference of shares if they are from -1 to 1; None if
    enough units keep the mean away from the bounds, and of a difference from 0.

    L. Kish's effective number counts these units. A difference has the interval of its two shares by the square-and-add method: R. G.
    Newcombe, Improved confidence intervals for the difference between binomial proportions based on paired data (1998).
    """
    mean, worth = bare.value or 0.0, effective(codes)

    if least == 0:
        if not _few(found, codes) and not _few(most - found, codes):
            return None
        low, high = share_ends(mean, worth, level)
        return float(low), float(high)
    if not _few(np.abs(found), codes):
        return None
    more, fewer = (float(np.sort(np.maximum(side, 0)).sum()) / bare.known for side in (found, -found))
    (more_low, more_high), (fewer_low, fewer_high) = share_ends(more, worth, level), share_ends(fewer, worth, level)
    return mean - math.hypot(more - more_low, fewer_high - fewer), mean + math.hypot(more_high - more, fewer - fewer_low)


def _few(away: Any, codes: Any) -> bool:
    """True if fewer than FEW units are away from a bound, by how far each is."""
    sums = np.sort(np.bincount(codes, away))
    return float(sums.sum()) ** 2 < FEW * float((sums**2).sum()) or not sums.any()


def mean_ends(mean: Any, error: Any, skewness: Any, number: Any, quantile: Any, *, from_0: bool) -> tuple[Any, Any]:
    """Return the wider of two intervals, for numbers or arrays: the symmetric one of `quantile` errors (on the logarithm if `from_0`),
    and that by Hall's transformation. Small samples of values from 0 on look less skewed than they are: their skewness is increased, by
    as much as simulated costs need."""
    with np.errstate(all="ignore"):
        skewness, half = skewness * (1 + 2 / np.sqrt(number)) if from_0 else skewness, quantile * error
        scale, shift = error * np.sqrt(number), skewness / (6 * number)
        low, high = (
            mean
            - np.where(np.abs(skewness) < 1e-6, side, 3 * scale / skewness * (np.cbrt(1 + skewness * (side / scale - shift)) - 1))
            for side in (half, -half)
        )
        if from_0:
            return np.fmin(low, mean * np.exp(-half / mean)), np.fmax(high, mean * np.exp(np.minimum(700.0, half / mean)))
        return np.fmin(low, mean - half), np.fmax(high, mean + half)


def of_median(values: Iterable[float], units: Any = None, *, level: float = 0.95) -> Estimate:
    """Return the median with the interval between two ranks, interpolated: the ends of the interval of the share below the median.

    R. S. Woodruff, Confidence intervals for medians and other position measures, JASA 47 (1952).
    """
    found, codes, bare = _units_of(values, units, np.median, MEDIAN_UNITS)
    if bare.why is not None or bare.value is None:
        return bare
    ordered, known = np.sort(found), bare.known
    if ordered[0] == ordered[-1]:
        return Estimate(bare.value, None, None, known, f"all {known} values are the same", bare.units)
    sides = np.sign(found - bare.value)
    worth, quantile = _worth(sides - sides.mean(), codes, bare, level)
    half = quantile / (2 * math.sqrt(worth + quantile**2))
    ranks = (0.5 - half, 0.5 + half) if bare.units == known else share_ends(0.5, worth * (normal(level) / quantile) ** 2, level)
    low, high = np.quantile(ordered, ranks, method="weibull")
    return _with(bare, low, high, "ranks" if bare.units == known else "ranks, effective n of units")


# Differences of yes-or-no answers ------------------------------------------------------------------------------------------------


def of_change(differences: Sequence[float], *, level: float = 0.95) -> Estimate:
    """Return the mean of independent differences of yes-or-no answers, 1, 0 or -1, with Tango's score interval.

    If McNemar's exact test finds no difference the interval is widened to include 0, which it would exclude too often for few pairs.
    T. Tango, Equivalence test and confidence interval for the difference in proportions for the paired-sample design, Statistics in
    Medicine 17 (1998).
    """
    _, _, bare = _units_of(differences, None)
    if bare.why is not None or bare.value is None:
        return bare
    more, fewer = (sum(one == sign for one in differences) for sign in (1, -1))
    number, quantile = bare.known, normal(level)

    def too_far(change: float) -> bool:
        """True if the test rejects this difference."""
        b = (2 * number - more + fewer) * change - more - fewer
        rare = (math.sqrt(max(0.0, b * b + 8 * number * fewer * change * (1 - change))) - b) / (4 * number)
        variance = number * (2 * rare + change * (1 - change))
        return abs(more - fewer - number * change) > quantile * math.sqrt(max(0.0, variance))

    low, high = _edge(too_far, -1.0, bare.value), _edge(too_far, 1.0, bare.value)
    if mcnemar(more, fewer) > 1 - level:
        low, high = min(low, 0.0), max(high, 0.0)
    return _with(bare, low, high, "Tango, McNemar exact")


def _edge(too_far: Any, outside: float, inside: float) -> float:
    """Return the point between the two at which `too_far` becomes true."""
    if not too_far(outside):
        return outside
    for _ in range(60):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if too_far(middle) else (outside, middle)
    return inside


def mcnemar(more: int, fewer: int) -> float:
    """Return the p-value of McNemar's exact test: the probability of a split at least as uneven by chance."""
    return min(1.0, float(2 * special.bdtr(min(more, fewer), more + fewer, 0.5))) if more + fewer else 1.0


# Survival ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Survival:
    """A survival curve: `alive` after each of `times`, with its interval; None if that cannot be computed."""

    times: tuple[float, ...]
    alive: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    units: int = 0
    """Number of independent units."""
    method: str = ""
    """The name of the interval's method; empty without an interval."""


def kaplan_meier(times: Sequence[float], ended: Sequence[bool], units: Any = None, *, level: float = 0.95) -> Survival:
    """Return the share that has not ended after each time, by Kaplan and Meier, with the interval of a share.

    A value that has not `ended` is censored at its time. The effective number of values is that whose share has the variance by
    Greenwood's formula; if units have several values, the variance is that of the units' sums. F. J. Dorey, E. L. Korn, Effective
    sample sizes for confidence intervals for survival probabilities, Statistics in Medicine 6 (1987); R. L. Williams, Product-limit
    survival functions with correlated survival times, Lifetime Data Analysis 1 (1995).
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
    few, alone = number < MEAN_UNITS, number == known
    quantile, factor = (normal(level), 1.0) if alone or few else (student(level, number - 1), number / (number - 1))
    with np.errstate(all="ignore"):  # there is no interval if none or all have ended
        errors = ((died - there * hazard) / (there.sum(axis=0) * (1 - hazard))).cumsum(axis=1)
        worth = (1 - alive) / (alive * factor * (errors**2).sum(axis=0))
        ends = share_ends(alive, worth * (normal(level) / quantile) ** 2, level)
    fine = (alive > 0) & (alive < 1) & (not few)
    low, high = (tuple(float(end) if there else None for end, there in zip(side, fine, strict=True)) for side in ends)
    method = "Clopper-Pearson, effective n by Greenwood" if fine.any() else ""
    return Survival(tuple(map(float, at)), tuple(map(float, alive)), low, high, number, method)


# From sums -----------------------------------------------------------------------------------------------------------------------

POWERS = ("units", "ss", "sn", "nn", "sss", "ssn", "snn", "nnn")
"""Products of a unit's sum s and its number n of known values, for the variance and the skewness between units."""


def _between(flat: Mapping[str, Any], name: str) -> tuple[Any, Any, Any]:
    """Return the number of units, and the sums of the squares and cubes of their errors: a unit's sum minus n times the mean."""
    n, total = flat[f"{name} n"], flat[f"{name} sum"]
    ss, sss = flat.get(f"{name} ss", total), flat.get(f"{name} sss", total)
    alone = {"units": n, "sn": total, "nn": n, "ssn": ss, "snn": total, "nnn": n}  # each run a unit: n is 1
    units, sn, nn, ssn, snn, nnn = (flat.get(f"{name} {power}", values) for power, values in alone.items())
    mean = total / n
    squares = ss - 2 * mean * sn + mean**2 * nn
    return units, np.where(squares > 1e-12 * ss, squares, 0.0), sss - 3 * mean * ssn + 3 * mean**2 * snn - mean**3 * nnn


def mean_of_sums(flat: Mapping[str, Any], name: str, level: float) -> tuple[Any, Any]:
    """Return the interval of a mean of values from 0 on, as `of_mean` computes it; NaN if all units are the same."""
    n = flat[f"{name} n"]
    mean = flat[f"{name} sum"] / n
    units, squares, cubes = _between(flat, name)
    spread = np.sqrt(squares / (units - 1))
    worth = n * n / flat.get(f"{name} nn", n)
    skewness = units / ((units - 1) * (units - 2)) * cubes / spread**3
    low, high = mean_ends(mean, spread * np.sqrt(units) / n, skewness, worth, student(level, worth - 1), from_0=True)
    there, low = (units >= MEAN_UNITS) & (worth >= EVEN_UNITS) & (spread > 0), np.clip(low, 0.0, mean)
    return np.where(there, low, np.nan), np.where(there, np.maximum(high, mean), np.nan)


def share_of_sums(flat: Mapping[str, Any], name: str, level: float) -> tuple[Any, Any]:
    """Return the interval of a share of 0 and 1, as `of_share` computes it."""
    n, total = flat[f"{name} n"], flat[f"{name} sum"]
    share, least, z = total / n, n * n / flat.get(f"{name} nn", n), normal(level)
    units, squares, _ = _between(flat, name)
    alone, together = n * share * (1 - share) / (n - 1), squares / (units - 1) * units / n
    worth, student_z = n * alone / np.maximum(alone, together), student(level, least - 1)
    ss, sn, nn = (flat.get(f"{name} {power}", values) for power, values in (("ss", total), ("sn", total), ("nn", n)))
    few = np.minimum(total**2 - FEW * ss, (n - total) ** 2 - FEW * (nn - 2 * sn + ss)) < 0  # units that reached it, or did not
    varied = (units < n) & (alone > 0) & ~few & (student_z**2 / worth < z**2 / least)
    low, high = share_ends(share, np.where(varied, worth * (z / student_z) ** 2, least), level)
    lacking = units < MIN_UNITS
    return np.where(lacking, np.nan, low), np.where(lacking, np.nan, high)


# Parts ---------------------------------------------------------------------------------------------------------------------------


def _units_of(
    values: Iterable[float], units: Any, statistic: Any = np.mean, minimum: int = MIN_UNITS
) -> tuple[Any, Any, Estimate]:
    """Return the values, the number of each value's unit, and the estimate without an interval, with the reason if none is possible."""
    found = np.asarray(list(values), dtype=float)
    known = len(found)
    if not known:
        return found, found, Estimate(None, None, None, 0, "none known")
    codes = np.arange(known) if units is None else np.unique(np.asarray(units), return_inverse=True)[1]
    order, number = np.lexsort((found, codes)), int(codes.max()) + 1  # so that the order of the rows changes no digit
    value = float(found[0]) if found.min() == found.max() else float(statistic(np.sort(found)))
    return found[order], codes[order], Estimate(value, None, None, known, too_few(known, number, minimum), number)


def too_few(known: int, units: int, minimum: int = MIN_UNITS) -> str | None:
    """Return why there is no interval for this number of values and units; None if there can be one."""
    if units >= minimum:
        return None
    if units < known:
        return f"{known} values in {counted(units, 'independent unit')}, an interval needs {minimum} units"
    return f"only {known if known > 1 else 'one'} known, an interval needs {minimum}"


def effective(codes: Any) -> float:
    """Return the number of units of equal size that give a mean as precise, by L. Kish; the number of units if their sizes are equal.

    Few units with most of the values have few degrees of freedom. A. V. Carter and others, Asymptotic behavior of a t-test robust to
    cluster heterogeneity, Review of Economics and Statistics 99 (2017).
    """
    return len(codes) ** 2 / float((np.bincount(codes) ** 2).sum())


def _with(bare: Estimate, low: float, high: float, method: str = "", error: float | None = None) -> Estimate:
    """Return the estimate with its interval, widened to contain the value if rounding excluded it."""
    value = 0.0 if bare.value is None else bare.value
    return Estimate(bare.value, min(float(low), value), max(float(high), value), bare.known, None, bare.units, method, error)


def normal(level: float) -> float:
    """Return the distance from 0 within which a normal value lies with this probability."""
    return float(special.ndtri((1 + level) / 2))


def student(level: float, freedom: Any) -> Any:
    """Return the distance from 0 within which Student's t lies with this probability, for numbers or arrays."""
    return special.stdtrit(freedom, (1 + level) / 2)


def p_value_of_mean(values: Any, units: Any, **bounds: float) -> float | None:
    """Return the p-value of the hypothesis that the mean is 0, by the test that the interval of `of_mean` inverts: 1 minus the highest
    level at which it excludes 0. It is at least that of Student's t. None if there is no interval."""
    bare = of_mean(values, units, **bounds)
    if bare.low is None or bare.value is None or not bare.error:
        return None

    def excludes_0(p_value: float) -> bool:
        found = of_mean(values, units, level=1 - p_value, **bounds)
        return found.low is not None and found.high is not None and (found.low > 0 or found.high < 0)

    low, high = max(1e-12, float(2 * special.stdtr(bare.units - 1, -abs(bare.value) / bare.error))), 1.0
    if excludes_0(min(low * (1 + 1e-6), 0.999_999)):
        return low
    for _ in range(16):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excludes_0(middle) else (middle, high)
    return high


def _error_of(found: Any, codes: Any, bare: Estimate) -> float:
    """Return the standard error of the mean from the units' sums, with the correction G / (G - 1) for G units; 0 if all units have the
    same mean. Clustered as in E. Miller, Adding error bars to evals (2024)."""
    sums = np.sort(np.bincount(codes, found - (bare.value or 0.0)))  # so that the order of the rows changes no digit
    return math.sqrt(float((sums**2).sum()) * bare.units / (bare.units - 1)) / bare.known
