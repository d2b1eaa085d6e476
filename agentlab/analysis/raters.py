"""Agreement of raters: people, judges and other scorers that scored the same runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from agentlab._internal.formatting import counted
from agentlab.analysis.compare import reasons_in_words, small_sample
from agentlab.analysis.groups import By, checked, columns_of, each_once, numbers, runs_of, typed_frame, units_of
from agentlab.analysis.intervals import SMALL_SAMPLE, Estimate, checked_level, of_share, student
from agentlab.errors import ConfigurationError
from agentlab.records.frames import Recordings

_COLUMNS: dict[str, Any] = {
    "raters": "string",
    **dict.fromkeys(("runs", "units", "left_out", "same"), "Int64"),
    **{f"{what}{end}": "Float64" for what in ("share", "kappa", "alpha") for end in ("", "_low", "_high")},
    **dict.fromkeys(("small_sample", "no_interval"), "string"),
}


def raters(
    frame: Recordings | pd.DataFrame, scores: Sequence[str], *, level: float = 0.95, unit: By | None = None
) -> pd.DataFrame:
    """Return how far raters agree on the same runs, and how far that exceeds chance: one row per pair, then one for all of several.

    `frame` is anything that `lab.frame` takes, or a frame with one row per run. `scores` are the columns with each rater's scores, such
    as `score.people.anna` or `score.judge`.

    runs, units       runs that all of these raters scored, and independent units of them; `left_out` are runs that some scored
    same, share       runs with equal scores, and their share, with `share_low` and `share_high`
    kappa             Cohen's kappa of two raters. Grades of more than two values have quadratic weights, by which a distance of two
                      grades counts four times as much as one of one grade
    alpha             Krippendorff's alpha for interval data, of any number of raters; it also counts runs that only some scored

    Both are 1 if all agree, and 0 if they agree as often as expected by chance; NA if there is only one value. Runs of one prompt are
    one unit, and the intervals are computed from the units; see `lab.summary` for `unit`. Alpha, and kappa of more than two values,
    have an interval from 20 units on.

    Errors: ConfigurationError for fewer than two columns, and for missing ones.

    Example:
        >>> import pandas as pd
        >>> runs = pd.DataFrame({"prompt_id": [*"abcdef"], "anna": [1, 1, 0, 0, 1, 0], "judge": [1, 1, 0, 1, 1, 0]})
        >>> lab.raters(runs, ["anna", "judge"])[["raters", "runs", "same", "kappa"]].round(2)
                raters  runs  same  kappa
        0  anna, judge     6     5   0.67
    """
    columns, level = columns_of(scores, "scores"), checked_level(level)
    if len(columns) < 2:
        raise ConfigurationError(
            f"raters(scores={scores!r}): name the columns of at least two raters, such as ['score.judge', …]."
        )
    rows = each_once(checked(runs_of(frame, "lab.raters"), columns, "lab.raters"))
    given = np.column_stack([numbers(rows, name).astype("Float64").to_numpy(dtype=float, na_value=math.nan) for name in columns])
    units = units_of(rows, unit)
    chosen: list[Sequence[int]] = list(combinations(range(len(columns)), 2))
    if len(columns) > 2:
        chosen.append(range(len(columns)))
    found = [_row([columns[one] for one in places], given[:, list(places)], units, level) for places in chosen]
    return typed_frame([[one[name] for name in _COLUMNS] for one in found], _COLUMNS)


def _row(names: Sequence[str], given: Any, units: Any, level: float) -> dict[str, Any]:
    known = ~np.isnan(given)
    complete = known.all(axis=1)
    both, codes = given[complete], units[complete]
    equal = (both == both[:, :1]).all(axis=1)
    share = of_share(equal, codes, level=level)
    kappa = _kappa(both, codes, level) if len(names) == 2 else Estimate(None, None, None, 0)
    alpha = _alpha(given, units, level)
    reasons = {what: one.why for what, one in (("share", share), ("kappa", kappa), ("alpha", alpha)) if one.why}
    return {
        "raters": ", ".join(names),
        "runs": len(both),
        "units": share.units,
        "left_out": int((known.any(axis=1) & ~complete).sum()),
        "same": int(equal.sum()),
        **share.columns("share", "share"),
        **kappa.columns("kappa", "kappa"),
        **alpha.columns("alpha", "alpha"),
        "small_sample": small_sample(share),
        "no_interval": reasons_in_words(reasons, None),
    }


def _kappa(both: Any, units: Any, level: float) -> Estimate:
    """Return Cohen's kappa of two raters, with quadratic weights, which two values do not need. The interval of two values is that of
    the share of equal scores, on kappa's scale.

    J. Cohen, Weighted kappa, Psychological Bulletin 70 (1968).
    """
    if not len(both):
        return Estimate(None, None, None, 0, "no run that both scored")
    one, other = both.T
    parts = [(one - other) ** 2, np.ones(len(both)), one, other, one**2 + other**2]

    def apart(sums: Any) -> Any:
        """Return observed and expected disagreement."""
        apart, count, one, other, squares = sums.T
        return apart / count, squares / count - 2 * one * other / count**2

    values = np.unique(both)
    if len(values) != 2:
        return _chance_corrected(parts, apart, units, level)
    agree = of_share(one == other, units, level=level)
    scale = float((values[1] - values[0]) ** 2 / apart(np.sum(parts, axis=1))[1])
    ends = (None if one is None else 1 - (1 - one) * scale for one in (agree.value, agree.low, agree.high))
    value, low, high = ends
    return replace(agree, value=value, low=None if low is None else max(-1.0, low), high=high)


def _alpha(given: Any, units: Any, level: float) -> Estimate:
    """Return Krippendorff's alpha for interval data.

    K. Krippendorff, Computing Krippendorff's alpha-reliability (2011).
    """
    known = ~np.isnan(given)
    pairable = known.sum(axis=1) > 1
    counts, values = known.sum(axis=1)[pairable], np.where(known, given, 0)[pairable]
    if not len(counts):
        return Estimate(None, None, None, 0, "no run that two of them scored")
    sums, squares = values.sum(axis=1), (values**2).sum(axis=1)

    def apart(sums: Any) -> Any:
        """Return observed and expected disagreement."""
        apart, count, total, squares = sums.T
        return apart / count, 2 * (count * squares - total**2) / (count * (count - 1))

    parts = [2 * (counts * squares - sums**2) / (counts - 1), counts, sums, squares]
    return _chance_corrected(parts, apart, units[pairable], level)


def _chance_corrected(parts: Sequence[Any], apart: Any, units: Any, level: float) -> Estimate:
    """Return 1 minus the ratio of two disagreements, from the sums of `parts`. The interval is Student's t on the ratio's logarithm,
    with the error of leaving out each unit, which holds from 20 units on."""
    codes = np.unique(units, return_inverse=True)[1]
    sums = np.column_stack([np.bincount(codes, one) for one in parts])
    number, total = len(sums), sums.sum(axis=0)
    observed, expected = apart(total)
    if expected <= 1e-12:
        return Estimate(None, None, None, len(units), "not defined, all scores are the same")
    ratio = float(observed / expected)
    bare = Estimate(1 - ratio, None, None, len(units), None, number)
    if number < SMALL_SAMPLE:
        return replace(bare, why=f"{counted(number, 'independent unit')}, an interval needs {SMALL_SAMPLE}")
    with np.errstate(all="ignore"):
        logs = np.log(np.divide(*apart(total - sums)))
    if not np.isfinite(logs).all():
        return replace(bare, why="disagreement in at most one unit")
    half = student(level, number - 1) * math.sqrt((number - 1) / number * float(((logs - logs.mean()) ** 2).sum()))
    return replace(bare, low=max(-1.0, 1 - ratio * math.exp(half)), high=1 - ratio * math.exp(-half), method="jackknife of units")
