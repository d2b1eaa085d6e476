"""Intervals: Wilson's for a share, the bootstrap's for a mean or a median. The only file that knows scipy (extra `stats`).

    wilson(8, 10)                        an Estimate: value 0.8, from 0.49 to 0.94
    of_mean([0.01, 0.02, 0.05, …])       BCa bootstrap; the same values give the same interval, in whatever order they come
    of_median([…])                       percentile bootstrap: the acceleration of BCa means nothing for a median

An interval that cannot be made is None, and says why. How often an interval at 95 % contained the mean, over 400 samples of a
lognormal and of a normal distribution: from 3 values 70 and 75 %, from 5 82 and 84 %, from 10 89 and 92 %, from 20 91 and 92 %, from 40
93 and 95 %.
So from fewer than FEWEST there is none, and from fewer than FEW what is built on it says so.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from agentlab.errors import ConfigurationError

FEW = 20
"""Fewer runs than this are said to be few."""
FEWEST = 5
"""No bootstrap interval from fewer values than this."""
SEED = 20_240_229
"""Every interval is drawn from a generator of its own with this seed, so that groups do not influence each other."""
AT_ONCE = 2_000_000
"""So many values are drawn at a time, which bounds the memory."""


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


def checked_level(level: object) -> float:
    """The level of confidence. Raises ConfigurationError unless it lies between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ConfigurationError(f"level={level!r}: pass a number between 0 and 1, such as 0.95.")
    return float(level)


def wilson(successes: int, of: int, *, level: float = 0.95) -> Estimate:
    """A share with Wilson's score interval, which holds for few and for extreme shares alike.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    if of == 0:
        return Estimate(None, None, None, 0, "none known")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = successes / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == of else min(1.0, middle + half)
    return Estimate(share, low, high, of)


def of_mean(values: Iterable[float], *, level: float = 0.95) -> Estimate:
    """Their mean, with the bias-corrected and accelerated bootstrap interval; where that cannot be made, that of the percentiles."""
    return _bootstrap(values, np.mean, "BCa", level)


def of_median(values: Iterable[float], *, level: float = 0.95) -> Estimate:
    """Their median, with the bootstrap's percentile interval."""
    return _bootstrap(values, np.median, "percentile", level)


def _bootstrap(values: Iterable[float], statistic: Callable[..., Any], method: str, level: float) -> Estimate:
    ordered = np.sort(
        np.asarray(list(values), dtype=float)
    )  # so that the order of the rows changes nothing, down to the last digit
    known = len(ordered)
    if not known:
        return Estimate(None, None, None, 0, "none known")
    value = float(statistic(ordered))
    if known < FEWEST:
        only = f"only {known} known" if known > 1 else "only one known"
        return Estimate(value, None, None, known, f"{only}, an interval takes {FEWEST}")
    if ordered[0] == ordered[-1]:
        return Estimate(float(ordered[0]), None, None, known, f"all {known} values are the same")
    low, high = _resampled(ordered, statistic, method, level)
    return Estimate(value, min(low, value), max(high, value), known)


def _resampled(values: Any, statistic: Callable[..., Any], method: str, level: float) -> tuple[float, float]:
    stats = scipy_stats()
    options: dict[str, Any] = {"confidence_level": level, "vectorized": True, "batch": max(1, AT_ONCE // len(values))}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # what cannot be made by BCa is seen below
        drawn = stats.bootstrap(
            (values,), statistic, n_resamples=resamples(len(values)), method=method, rng=np.random.default_rng(SEED), **options
        )
        if not np.isfinite(drawn.confidence_interval).all():
            drawn = stats.bootstrap((values,), statistic, n_resamples=0, method="percentile", bootstrap_result=drawn, **options)
    low, high = drawn.confidence_interval
    return float(low), float(high)


def resamples(values: int) -> int:
    """How many resamples are drawn: 9,999, and fewer from many values, where they take long and change little."""
    return min(9_999, max(1_999, 2_000_000 // values))


def weights(counts: Any) -> Any:
    """Resamples of units of which so many are alike: a row a resample, how often each kind is in it."""
    total = int(counts.sum())
    return np.random.default_rng(SEED).multinomial(total, counts / total, size=4_999)


def percentile(value: float | None, drawn: Any, known: int, *, level: float = 0.95) -> Estimate:
    """An estimate whose statistic was computed on resamples; NaN for those on which it is not defined."""
    if value is None:
        return Estimate(None, None, None, known, "none known")
    defined = drawn[np.isfinite(drawn)]
    if known < FEWEST:
        return Estimate(value, None, None, known, f"only {known} known, an interval takes {FEWEST}")
    if len(defined) < 0.95 * len(drawn):
        return Estimate(value, None, None, known, "not defined on too many resamples: nearly all are the same")
    if defined.min() == defined.max():
        return Estimate(value, None, None, known, f"all {known} are the same")
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), known)


def of_ratio(above: Any, below: Any, *, level: float = 0.95) -> Estimate:
    """The sum of `above` over the sum of `below`, a place a unit, with the bootstrap's percentile interval over units.

    A share of runs whose units are prompts, say: so many kept, of so many. Units with nothing below are left out.
    """
    pairs = np.column_stack([np.asarray(above, dtype=float), np.asarray(below, dtype=float)])
    pairs = pairs[pairs[:, 1] > 0]
    pairs = pairs[np.lexsort(pairs.T)]  # so that the order of the units changes nothing
    known = len(pairs)
    if not known:
        return Estimate(None, None, None, 0, "none known")
    value = float(pairs[:, 0].sum() / pairs[:, 1].sum())
    if known < FEWEST:
        return percentile(value, np.zeros(0), known, level=level)
    random, left, drawn = np.random.default_rng(SEED), resamples(known), []
    while left > 0:
        now = min(left, max(1, AT_ONCE // known))
        places = random.integers(0, known, (now, known))
        drawn.append(pairs[places, 0].sum(axis=1) / pairs[places, 1].sum(axis=1))
        left -= now
    return percentile(value, np.concatenate(drawn), known, level=level)


@dataclass(frozen=True, slots=True)
class Survival:
    """A survival curve: `alive` after each of `times`, with its interval; None where that cannot be made."""

    times: tuple[float, ...]
    alive: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


def kaplan_meier(times: Sequence[float], ended: Sequence[bool], *, level: float = 0.95) -> Survival:
    """The share that has not ended after each time, by Kaplan and Meier, with the log-log interval by Greenwood's formula.

    What is not `ended` was censored at its time: it had not ended by then, and nothing more is known.
    """
    if not len(times):
        return Survival((), (), (), ())
    stats = scipy_stats()
    pairs = list(zip(times, ended, strict=True))
    data = stats.CensoredData(uncensored=[t for t, end in pairs if end], right=[t for t, end in pairs if not end])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # where nobody or everybody has ended the interval is not defined
        curve = stats.ecdf(data).sf
        interval = curve.confidence_interval(confidence_level=level, method="log-log")
    low, high = (
        tuple(float(p) if math.isfinite(p) else None for p in side.probabilities) for side in (interval.low, interval.high)
    )
    alive = tuple(min(1.0, max(0.0, float(p))) for p in curve.probabilities)
    return Survival(tuple(float(t) for t in curve.quantiles), alive, low, high)


def scipy_stats() -> Any:
    """The module, imported when it is first needed. Raises ConfigurationError where it is not installed."""
    try:
        from scipy import stats
    except ImportError as error:
        raise ConfigurationError("Bootstrap intervals need the package scipy: pip install 'agentlab-jupyter[stats]'.") from error
    return stats
