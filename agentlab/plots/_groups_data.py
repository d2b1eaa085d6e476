"""What the plots of groups of runs show, as data. Nothing is drawn here."""

from __future__ import annotations

from typing import Any, cast

import pandas as pd

from agentlab.comparing.compare import Group, groups_of
from agentlab.comparing.groups import (
    RUNS_ADVICE,
    STEPS_ADVICE,
    By,
    checked,
    columns_of,
    each_once,
    in_order,
    names_of,
    numbers,
    runs_of,
    steps_of,
    unit_of,
    units_of,
)
from agentlab.comparing.intervals import Estimate, checked_level, kaplan_meier
from agentlab.errors import ConfigurationError
from agentlab.recorder import Recordings

USED = {"tokens": "cumulative_tokens", "cost": "cumulative_cost_usd"}
MIDDLE_HALF = (0.25, 0.75)
MEASURES = ("completion", "success", "score", "tokens", "cost")


def bands_data(
    steps: Recordings | pd.DataFrame, what: str = "tokens", by: By = "provider", quantiles: tuple[float, float] = MIDDLE_HALF
) -> pd.DataFrame:
    """What the runs of each group had used after each step: a row a group and step.

    Columns: `group`, `step`, `runs` that took this step (the others had ended), `known` of them, and over those the `median` and
    the two quantiles `low` and `high` (NA: none known). `what` is `tokens` or `cost`. The same run twice counts once.

    Example:
        >>> steps = lab.frame([result, *others])
        >>> lab.plots.bands_data(steps)[["group", "step", "runs", "median"]].head(3)
               group  step  runs  median
        0  anthropic     1     1   637.0
        1  anthropic     2     1  1384.0
        2  anthropic     3     1  2208.0
    """
    if what not in USED:
        raise ConfigurationError(f"lab.plots.bands(what={what!r}): choose tokens or cost.")
    low, high = _checked_quantiles(quantiles)
    columns, steps = columns_of(by), steps_of(steps, "lab.plots.bands")
    frame = checked(steps, ["run_id", "step", USED[what], *columns], "lab.plots.bands", STEPS_ADVICE)
    data = pd.DataFrame(
        {
            "group": names_of(frame, columns),
            "run_id": frame["run_id"],
            "step": numbers(frame, "step"),
            "value": numbers(frame, USED[what]),
        }
    )
    data = each_once(data[data["step"].notna()], ("group", "run_id", "step"), ["value"])
    order = {name: place for place, name in enumerate(in_order(data["group"]))}
    rows: list[tuple[Any, ...]] = []
    for key, values in data.groupby(["group", "step"], sort=True)["value"]:
        group, step = cast(tuple[str, float], key)
        known = values.dropna().astype(float)
        found = [None] * 3 if known.empty else [float(known.quantile(q)) for q in (0.5, low, high)]
        rows.append((group, round(step), len(values), len(known), *found))
    rows.sort(key=lambda row: (order[row[0]], row[1]))
    return _frame(rows, {"group": "string", "step": "Int64", "runs": "Int64", "known": "Int64"}, ("median", "low", "high"))


def survival_data(
    runs: Recordings | pd.DataFrame, by: By = "provider", *, level: float = 0.95, unit: By | None = None
) -> pd.DataFrame:
    """The share of the runs of each group that have not finished on their own after each step, by Kaplan and Meier.

    Columns: `group`, `step` (from 0), `at_risk` (runs that took this step; at 0 all of them), `ended` on their own with this step,
    `censored` after it (cut off by a limit or an error, or not ended: what they would have done is not known), `alive`, the
    share, and its interval `low`, `high` (log-log, Greenwood, from independent units as in `lab.summary`; NA where nobody or everybody
    has ended, and from fewer than 5 units). Runs whose number of steps is not known are left out.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.survival_data(runs)[["group", "step", "at_risk", "alive"]].head(3)
               group  step  at_risk  alive
        0  anthropic     0        1    1.0
        1  anthropic     1        1    1.0
        2  anthropic     2        1    1.0
    """
    columns, level, runs = columns_of(by), checked_level(level), runs_of(runs, "lab.plots.survival")
    needed = ["terminated", "steps", *columns, *([] if unit is None else unit_of(runs, unit))]
    frame = each_once(checked(runs, needed, "lab.plots.survival", RUNS_ADVICE))
    frame = frame[numbers(frame, "steps").notna()]
    names, steps, ended = names_of(frame, columns), numbers(frame, "steps"), numbers(frame, "terminated").fillna(0) == 1
    rows: list[tuple[Any, ...]] = []
    for group in in_order(names):
        times, ends = steps[names == group].astype(int), ended[names == group]
        curve = kaplan_meier(list(times), list(ends), units_of(frame[names == group], unit), level=level)
        at = {round(time): place for place, time in enumerate(curve.times)}
        now: tuple[float, float | None, float | None] = (1.0, None, None)
        for step in range(int(times.max()) + 1):
            if step in at:
                place = at[step]
                now = (curve.alive[place], curve.low[place], curve.high[place])
            here = times == step
            rows.append((group, step, int((times >= step).sum()), int((here & ends).sum()), int((here & ~ends).sum()), *now))
    whole = {"group": "string"} | dict.fromkeys(("step", "at_risk", "ended", "censored"), "Int64")
    return _frame(rows, whole, ("alive", "low", "high"))


def estimates_data(
    runs: Recordings | pd.DataFrame,
    what: str = "completion",
    by: By = "provider",
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
) -> pd.DataFrame:
    """One measure of each group with its interval: columns `group`, `runs` that ended, `known` of them, in how many independent
    `units`, how many `failed`, `value`, `low`, `high`, `note`.

    `what` is `completion`, `success`, `score`, `tokens` or `cost`; all as in `lab.summary`. `note` says why there is no interval.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.estimates_data(runs, "tokens")[["group", "runs", "value"]]
               group  runs   value
        0  anthropic     1  3146.0
        1     openai     1  1424.0
        2     gemini     1  2020.0
    """
    if what not in MEASURES:
        raise ConfigurationError(f"lab.plots.estimates(what={what!r}): choose one of {', '.join(MEASURES)}.")
    return estimates_of(measured(runs, by, "estimates", level=level, success_at=success_at, unit=unit), what)


def cost_success_data(
    runs: Recordings | pd.DataFrame,
    by: By = "provider",
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
) -> pd.DataFrame:
    """What the runs of each group cost and how often they succeeded, with both intervals: one row per group.

    Columns: `group`, `runs` that ended, in how many independent `units`, how many `failed`, `cost_known` of how many, `cost`,
    `cost_low`, `cost_high` (mean, in US dollars), `measure`, and its `rate`, `rate_low`, `rate_high`. The measure is `success` where
    there is a score, `score` (its mean) where that is graded, and `completion` where there is none.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.cost_success_data(runs)[["group", "cost", "measure", "rate"]]
               group      cost     measure  rate
        0  anthropic  0.014346  completion   1.0
        1     openai  0.001661  completion   1.0
        2     gemini  0.006862  completion   1.0
    """
    return cost_success_of(measured(runs, by, "cost_success", level=level, success_at=success_at, unit=unit))


def cost_success_of(groups: list[Group]) -> pd.DataFrame:
    """Cost and success of such groups."""
    scored = [group for group in groups if group.counts["scored"]]
    graded = any(group.measures["success"].value is None for group in scored)
    measure = "completion" if not scored else "score" if graded else "success"
    cost, rate = estimates_of(groups, "cost"), estimates_of(groups, measure)
    return pd.DataFrame(
        {
            **{name: rate[name] for name in ("group", "runs", "units", "failed")},
            "cost_known": cost["known"],
            **{f"cost{end}": cost[name] for end, name in _ENDS},
            "measure": pd.array([measure] * len(groups), dtype="string"),
            **{f"rate{end}": rate[name] for end, name in _ENDS},
        }
    )


_ENDS = (("", "value"), ("_low", "low"), ("_high", "high"))


def measured(runs: Recordings | pd.DataFrame, by: By, function: str, **options: Any) -> list[Group]:
    """What the plots of estimates are made of."""
    columns, runs = columns_of(by), runs_of(runs, f"lab.plots.{function}")
    frame = checked(runs, ["terminated", "total_tokens", "cost_usd", *columns], f"lab.plots.{function}", RUNS_ADVICE)
    return groups_of(frame, columns, function=f"lab.plots.{function}", **options)


def estimates_of(groups: list[Group], what: str) -> pd.DataFrame:
    """One measure of such groups."""
    none = Estimate(None, None, None, 0, "none known")
    rows = [
        (
            one.name,
            one.counts["ended"],
            found.known,
            one.counts["units"],
            one.counts["failed"],
            found.value,
            found.low,
            found.high,
            found.why,
        )
        for one in groups
        for found in [one.measures.get(what, none)]
    ]
    whole = {"group": "string"} | dict.fromkeys(("runs", "known", "units", "failed"), "Int64")
    return _frame([row[:-1] for row in rows], whole, ("value", "low", "high")).assign(
        note=pd.array([row[-1] for row in rows], dtype="string")
    )


def _frame(rows: list[tuple[Any, ...]], whole: dict[str, str], shares: tuple[str, ...]) -> pd.DataFrame:
    dtypes: dict[str, Any] = whole | dict.fromkeys(shares, "Float64")
    return pd.DataFrame(
        {name: pd.array([row[at] for row in rows], dtype=dtype) for at, (name, dtype) in enumerate(dtypes.items())}
    )


def _checked_quantiles(quantiles: object) -> tuple[float, float]:
    try:
        low, high = cast(tuple[float, float], quantiles)
        fine = 0 <= low <= 0.5 <= high <= 1
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise ConfigurationError(f"quantiles={quantiles!r}: pass two numbers with the median between them, such as (0.25, 0.75).")
    return low, high
