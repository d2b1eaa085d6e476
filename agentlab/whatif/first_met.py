"""The first row at which a running value meets a limit, for many limits at once."""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Rows: TypeAlias = npt.NDArray[Any]
"""Places of rows within their runs, from 0; a run's length where there is none. One row per limit, one column per run."""


FEW = 24
"""For so few limits comparing with each is faster than a search."""


def smallest(longest: int) -> npt.DTypeLike:
    """The narrowest type that holds the place of a row, and one more."""
    return np.uint8 if longest < 2**8 else np.uint16 if longest < 2**16 else np.int64


def running_maximum(values: npt.NDArray[Any], start: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The highest value so far, run by run, without NaN: a limit that was met once stays met."""
    flat = np.fmax.accumulate(np.where(np.isnan(values), -np.inf, values)) if len(values) else values
    if not len(values) or (np.isfinite(values).all() and not _falls(values, start)):
        return values
    for first, last in itertools.pairwise(start):
        flat[first:last] = np.fmax.accumulate(np.where(np.isnan(values[first:last]), -np.inf, values[first:last]))
    return flat


def _falls(values: npt.NDArray[Any], start: npt.NDArray[np.int64]) -> bool:
    falls = np.diff(values) < 0
    between = start[1:-1] - 1
    falls[between[(between >= 0) & (between < len(falls))]] = False
    return bool(falls.any())


def first_met(values: npt.NDArray[Any], start: npt.NDArray[np.int64], limits: npt.NDArray[Any]) -> Rows:
    """For each limit and run the first row whose value is at or above the limit.

    `values` rise within each run (see `running_maximum`), run r being values[start[r]:start[r + 1]]; `limits` in any order. Each row is
    searched once among the limits: it is the first for those between the row before and itself.
    """
    lengths = np.diff(start)
    kind = smallest(int(lengths.max(initial=0)))
    different, places = np.unique(limits, return_inverse=True)
    places = places.ravel()
    if len(different) <= FEW:
        return _of_few(values, start, different, kind)[places]
    meets = np.searchsorted(different, values, side="right")  # how many of the limits each row meets
    order = np.argsort(meets.astype(smallest(len(different) + 1)), kind="stable")
    run = np.repeat(np.arange(len(lengths)), lengths)[order]
    after = (np.arange(len(values)) - np.repeat(start[:-1], lengths) + 1).astype(kind)[order]
    edges = np.searchsorted(meets[order], np.arange(len(different) + 1))
    found = np.empty((len(different), len(lengths)), kind)
    below = np.zeros(len(lengths), kind)  # rows of each run below the current limit
    for limit in range(len(different)):
        newly = slice(edges[limit], edges[limit + 1])
        below[run[newly]] = after[newly]  # in the order of the rows, so that the last one stays
        found[limit] = below
    return found if len(different) == len(limits) and (places == np.arange(len(limits))).all() else found[places]


def _of_few(values: npt.NDArray[Any], start: npt.NDArray[np.int64], limits: npt.NDArray[Any], kind: npt.DTypeLike) -> Rows:
    """For few limits in rising order: compare each row with each, and count by run and number of limits met."""
    meets = np.zeros(len(values), np.int64)
    for limit in limits:
        meets += values >= limit
    lengths = np.diff(start)
    wide = len(limits) + 1
    meets += np.repeat(np.arange(len(lengths)) * wide, lengths)
    counts = np.bincount(meets, minlength=len(lengths) * wide).reshape(len(lengths), wide)
    return np.ascontiguousarray(np.cumsum(counts[:, :-1], axis=1).T.astype(kind))
