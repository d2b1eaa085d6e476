"""Comparison of groups of runs: completion, cost and success with intervals, and differences on the same prompts.

    runs = lab.frame(results, "runs")                     one row per run; an experiment adds `prompt_id`, `repeat`, `score`
    lab.summary(runs, by="provider")                      one row per group
    lab.paired(runs, "cost_usd")                          one row per pair of groups: the difference on the same prompts

Nothing is ranked: groups keep the order of their first row, and each value has its interval. Runs of one prompt and replays of one
recording are not independent: they are one unit. Each interval is computed from the units, so it is valid for other prompts like
these. Runs that are left out are counted and named.

The usage of sub-agents counts as that of their caller, unlike in the frame of runs; their own rows are left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from agentlab._internal.formatting import counted
from agentlab.analysis.groups import (
    BETWEEN,
    By,
    checked,
    columns_of,
    each_once,
    failed_of,
    floats,
    has_ended,
    in_order,
    joined,
    links_of,
    mixed,
    names_of,
    runs_of,
    scores_of,
    typed_frame,
    unit_of,
    units_of,
    whole_runs,
)
from agentlab.analysis.intervals import (
    MEAN_UNITS,
    MIN_UNITS,
    SMALL_SAMPLE,
    Estimate,
    checked_level,
    mcnemar,
    of_change,
    of_mean,
    of_median,
    of_share,
    p_value_of_mean,
)
from agentlab.errors import AgentlabWarning, ConfigurationError
from agentlab.records.frames import Recordings

TOO_FEW = f"fewer than {SMALL_SAMPLE}, too few to show rare failures and rare expensive runs"
SHARED = ("prompt_id", "settings", "repeat")
"""The columns that are the same for runs of different groups with the same task in an experiment."""


def summary(
    runs: Recordings | pd.DataFrame,
    by: By = "provider",
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
    failures: str = "count",
) -> pd.DataFrame:
    """Return one row per group: how many runs completed and succeeded, and their tokens and cost, each with its interval.

    `runs` is what `lab.frame` takes, or a frame with one row per run; `by` is the column or columns that define the groups. A run that
    occurs twice counts once. Runs that have not ended, or never began, count as `not_ended` and nowhere else. Columns, besides those of
    `by`:

    - `runs`, `not_ended`; `failed`: how many ended with an error; `replayed`: how many are replays (NA: unknown)
    - `units`: the number of independent units of the ended runs
    - `completed`: the number of runs that finished on their own; `completion_rate`, `completion_low`, `completion_high`
    - `scored`: the number of runs with a score; `success_rate`, `success_low`, `success_high` if all scores are yes or no, or with
      `success_at`, the lowest score that counts as success; `score_mean`, `score_low`, `score_high`
    - `tokens_mean`, `tokens_low`, `tokens_high`, `tokens_median`, `tokens_median_low`, `tokens_median_high`, of the runs whose usage
      is known; `tokens_unknown`, the unknown share
    - `cost_mean`, …, `cost_unknown`: the same for cost, in US dollars
    - `completion_se`, `success_se`, `score_se`, `tokens_se`, `cost_se`: the standard error of the rate or mean, clustered by unit
    - in words: `methods`, how each interval is computed; `left_out`, which runs are left out of which figure; `small_sample`, which
      intervals are from few units; `no_interval`, which intervals could not be computed, and why; `mixed`, where some runs are replays
      and others are not

    A unit is all runs of one prompt (`prompt_id`, or `prompt`), or of one recording (`recording_id`). The intervals are valid for other
    prompts like these. There is none of a share for fewer than 5 units, of a median for fewer than 6, and of a mean for fewer than 10,
    because it would contain the true value too rarely. For intervals that are valid for repeats of these prompts only, pass
    `unit="run_id"`, or other columns whose values are independent; replays of one recording are always one unit. Shares have the exact
    interval by Clopper and Pearson, means the wider of Student's t and Hall's correction for skewness, medians that between two ranks.

    A failed run counts as a failure if scores are yes or no, and enters every mean for which it has a value; with
    `failures="leave_out"` it is only counted. `level` is the confidence level of all intervals. NA means unknown, never 0.
    Errors: ConfigurationError if columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.summary(runs)[["provider", "runs", "completed", "tokens_mean"]]
            provider  runs  completed  tokens_mean
        0  anthropic     1          1       3146.0
        1     openai     1          1       1424.0
        2     gemini     1          1       2020.0
    """
    columns = columns_of(by)
    groups = groups_of(runs_of(runs, "lab.summary"), columns, level=level, success_at=success_at, unit=unit, failures=failures)
    firsts = pd.concat([group.first for group in groups]) if groups else pd.DataFrame(columns=columns)
    rows = [_row(group) for group in groups]
    figures = typed_frame([[row[name] for name in _DTYPES] for row in rows], _DTYPES)
    return pd.concat([firsts[columns].reset_index(drop=True), figures], axis=1)


MEASURES = {
    "completion": "completion_rate",
    "success": "success_rate",
    "score": "score_mean",
    "tokens": "tokens_mean",
    "tokens_median": "tokens_median",
    "cost": "cost_mean",
    "cost_median": "cost_median",
}
"""The measures of a group, each with its column. The columns of its interval are the measure's name with `_low` and `_high`."""


def _columns(*measures: str) -> dict[str, str]:
    return {name: "Float64" for one in measures for name in (MEASURES[one], f"{one}_low", f"{one}_high")}


_DTYPES: dict[str, Any] = {
    **dict.fromkeys(("runs", "not_ended", "failed", "replayed", "units", "completed"), "Int64"),
    **_columns("completion"),
    "scored": "Int64",
    **_columns("success", "score", "tokens", "tokens_median"),
    "tokens_unknown": "Float64",
    **_columns("cost", "cost_median"),
    "cost_unknown": "Float64",
    **dict.fromkeys(("completion_se", "success_se", "score_se", "tokens_se", "cost_se"), "Float64"),
    **dict.fromkeys(("left_out", "small_sample", "no_interval", "mixed", "methods"), "string"),
}


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of one group of runs."""

    name: str
    first: pd.DataFrame
    """Its first row."""
    counts: dict[str, int | None]
    """`runs`, `not_ended`, `failed`, `replayed`, `units`, `completed`, `scored`, and `ended`: the runs in the figures."""
    measures: dict[str, Estimate]
    """The estimates that exist, by the names of MEASURES."""
    left_out: dict[str, str]
    """The runs left out of each measure, in words."""
    advice: str | None
    """Advice on how to get an interval if there are too few units."""
    mixed: str | None


def groups_of(
    runs: pd.DataFrame,
    columns: list[str],
    *,
    level: float = 0.95,
    success_at: float | None = None,
    unit: By | None = None,
    failures: str = "count",
    function: str = "lab.summary",
) -> list[Group]:
    """Return the groups with the figures of `summary`."""
    checked_level(level)
    if success_at is not None and (isinstance(success_at, bool) or not isinstance(success_at, int | float)):
        raise ConfigurationError(f"success_at={success_at!r}: pass the lowest score that counts as success, or leave it out.")
    needed = [*columns, "terminated", "total_tokens", "cost_usd", *([] if unit is None else unit_of(runs, unit))]
    frame = whole_runs(each_once(checked(runs, needed, function))).reset_index(drop=True)
    names, failed = names_of(frame, columns), failed_of(frame, failures)
    ended = has_ended(frame).to_numpy(dtype=bool)
    included = ended & ~failed if failures == "leave_out" else ended
    units = np.full(len(frame), -1)
    units[included] = units_of(frame[included], unit, within=names[included])
    used = {*columns, *unit_of(frame, unit), "prompt_id", "prompt", "run_id", "recording_id", "stop_reason", "score"}
    about = frame[[name for name in frame.columns if name in used]]
    values = {name: floats(frame, name) for name in _READ}
    given = values["score"]
    scores = success = scores_of(given, failed)
    known = scores[~np.isnan(scores)]
    if success_at is not None and len(known):
        success = np.where(np.isnan(given), np.where(failed, 0.0, np.nan), given >= success_at)
    yes_or_no, within = np.isin(known, (0, 1)).all(), ((known >= 0) & (known <= 1)).all()
    whole = _Runs(about, failed, ended, included, units, values, scores, success, bool(yes_or_no), bool(within))
    places = names.groupby(names, sort=False).indices
    return [_group(name, places[name], whole, level=level, success_at=success_at, unit=unit) for name in in_order(names)]


_READ = ("terminated", "score", "total_tokens", "cost_usd", "replayed")


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of all groups, in arrays, and the columns of which each group takes its rows."""

    frame: pd.DataFrame
    failed: Any
    ended: Any
    included: Any
    """The runs in the figures."""
    units: Any
    values: dict[str, Any]
    scores: Any
    """As given; 0 for a failed run without a score if all are yes or no."""
    success: Any
    yes_or_no: bool
    """True if all scores of the frame are 0 or 1."""
    within_1: bool
    """True if all are from 0 to 1."""


def _group(name: str, places: Any, whole: _Runs, *, level: float, success_at: float | None, unit: By | None) -> Group:
    there = places[whole.included[places]]
    number, units, failed = len(there), whole.units[there], whole.failed[there]
    number_failed, open_ = int((whole.failed & whole.ended)[places].sum()), int((~whole.ended[places]).sum())
    terminated, given, tokens, cost = (whole.values[column][there] for column in _READ[:-1])
    scores, success, replayed = whole.scores[there], whole.success[there], whole.values["replayed"][places]
    counts: dict[str, int | None] = {
        "runs": len(places),
        "not_ended": open_,
        "failed": number_failed if "stop_reason" in whole.frame.columns else None,
        "replayed": None if np.isnan(replayed).all() else int(np.nansum(replayed)),
        "units": len(np.unique(units)),
        "ended": number,
        "completed": None if number and np.isnan(terminated).all() else int(np.nansum(terminated)),
        "scored": int((~np.isnan(given)).sum()),
    }
    measures: dict[str, Estimate] = {}
    missing = [f"{open_} of {len(places)} not ended"] if open_ else []
    if number_failed > failed.sum():
        missing.append(f"{number_failed} failed")
    left_out = {"all": ", ".join(missing)} if missing else {}

    def measure(what: str, values: Any, of: Any, unknown: str = "unknown", **options: float) -> None:
        known = ~np.isnan(values)
        measures[what] = of(values[known], units[known], level=level, **options)
        if 0 < known.sum() < number:
            left_out[what] = f"{number - int(known.sum())} of {number} {unknown}"

    measure("completion", terminated, of_share)
    if "score" in whole.frame.columns:
        if success_at is None and not whole.yes_or_no:
            measures["success"] = Estimate(None, None, None, 0, "scores are graded, pass success_at=…")
        else:
            measure("success", success, of_share, "without a score")
        if whole.yes_or_no:
            measure("score", scores, of_share, "without a score")
        else:
            measure("score", scores, of_mean, "without a score", **({"least": 0.0, "most": 1.0} if whole.within_1 else {}))
    for what, values in (("tokens", tokens), ("cost", cost)):
        measure(what, values, of_mean, least=0.0)
        measure(f"{what}_median", values, of_median)
    advice = (
        unit_hint(whole.frame.iloc[there], unit)
        if number >= MIN_UNITS and len(np.unique(units)) < min(MEAN_UNITS, number)
        else None
    )
    return Group(name, whole.frame.iloc[places[:1]], counts, measures, left_out, advice, mixed(replayed))


def unit_hint(runs: pd.DataFrame, unit: By | None) -> str:
    """Return the definition of a unit, and how to get an interval if there are enough runs but too few units."""
    of = [f"one {name}" for name in [*unit_of(runs, unit), "recording_id"] if name in runs.columns]
    alone = "run_id" in runs.columns and len(np.unique(units_of(runs, "run_id"))) >= MIN_UNITS
    also = "; unit='run_id' gives intervals that are valid for these prompts only" if alone and unit is None else ""
    return f"a unit is all runs of {' or '.join(of)}{also}"


def reasons_in_words(reasons: Mapping[str, str], advice: str | None = None) -> str | None:
    """Return each reason after the figures that it concerns, `tokens, cost: why`; None if there is none."""
    of: dict[str, list[str]] = {}
    for what, why in reasons.items():
        of.setdefault(why, []).append(what)
    return "; ".join([*(f"{', '.join(names)}: {why}" for why, names in of.items()), *([advice] if of and advice else [])]) or None


def _row(group: Group) -> dict[str, Any]:
    """Return a row of the summary."""
    none = Estimate(None, None, None, 0)
    row: dict[str, Any] = dict(group.counts)
    for what, column in MEASURES.items():
        row |= group.measures.get(what, none).columns(column, what)
    ended = row["ended"]
    for what in ("tokens", "cost"):
        row[f"{what}_unknown"] = 1 - group.measures[what].known / ended if ended else None
    for what in ("completion", "success", "score", "tokens", "cost"):
        row[f"{what}_se"] = group.measures.get(what, none).error
    row["methods"] = reasons_in_words({what: one.method for what, one in group.measures.items() if one.method})
    reasons = {what: one.why for what, one in group.measures.items() if one.why and not what.endswith("_median")}
    row["no_interval"] = reasons_in_words(reasons, group.advice)
    row["left_out"] = reasons_in_words({what: why for what, why in group.left_out.items() if not what.endswith("_median")})
    row["small_sample"], row["mixed"] = _small_samples(group), group.mixed
    return row


def _small_samples(group: Group) -> str | None:
    """Return a sentence about the intervals that are from few units; None if there are none."""
    units = group.counts["units"] or 0
    few = units < SMALL_SAMPLE and any(one.low is not None for one in group.measures.values())
    parts = [counted(units, "independent unit")] if few else []
    graded = "score" in group.measures and group.measures["success"].low is None
    for what in ("score" if graded else "success", "tokens", "cost"):
        one = group.measures.get(what)
        if one is not None and one.low is not None and one.units < min(SMALL_SAMPLE, units):
            parts.append(f"{what} known of {one.units}")
    return f"{', '.join(parts)}: {TOO_FEW}" if parts else None


def small_sample(one: Estimate) -> str | None:
    """Return a sentence if an interval is from few units."""
    return f"{counted(one.units, 'independent unit')}: {TOO_FEW}" if one.low is not None and one.units < SMALL_SAMPLE else None


# Differences ---------------------------------------------------------------------------------------------------------------------


def paired(
    runs: Recordings | pd.DataFrame,
    what: str,
    by: By = "provider",
    on: By | None = None,
    *,
    against: object = None,
    level: float = 0.95,
    unit: By | None = None,
    failures: str = "count",
    per: Literal["pair", "task"] = "pair",
) -> pd.DataFrame:
    """Return how groups differ on the same tasks: one row per pair of groups, with the mean difference and its interval.

    `runs` is what `lab.frame` takes, or a frame with one row per run; `what` is a column: `cost_usd`, `total_tokens`, `steps`,
    `terminated`, `score` (booleans count as 1 and 0). `on` names the columns that both runs of a pair share, their task; by default
    `prompt_id` (or `prompt`), `settings` and `repeat`, as far as they exist. Several runs of one group on one task count as their mean
    over the known values. With `against`, the name of a group, only the differences from that group are returned. Columns:

    - `group`, `against`, `what`: a positive difference means that `group` has the higher value
    - `difference`, `low`, `high`: the mean over the pairs, and its interval
    - `pairs`: the number of complete pairs, from which all figures are computed; `units`: of their independent units; `left_out`: of
      tasks without a known value of both groups; `failed`: of runs of the two groups that ended with an error
    - `ties`: the share of pairs with no difference; `more`: the share in which `group` has the higher value
    - `group_mean`, `against_mean`: over the same pairs
    - `p_value`: of no difference, by McNemar's exact test if each unit is one pair of yes-or-no values, else by the test that the
      interval inverts, the paired t test over units with a correction for skewness; `p_holm`: adjusted by Holm's method for all rows
      of the frame; `different`: True if `p_holm` is below 1 - `level`
    - `method`, `small_sample`, `no_interval`, `mixed`: in words

    Pairs of one prompt or one recording are one unit, and the interval is computed from the units; see `lab.summary` for `unit` and
    `failures`. If each unit is one pair of yes-or-no values the interval is Tango's, and excludes 0 only if McNemar's exact test does.

    Each interval is for one pair. Of six equal groups, in four of ten experiments some interval of the 15 pairs excludes 0 by chance:
    `different` is True for any of them in at most one of twenty (S. Holm, A simple sequentially rejective multiple test procedure,
    1979).

    With `per="task"` there is one row per pair of groups and task, with the differences themselves: `group`, `against`, `what`, the
    columns of `on`, `difference`, `group_value`, `against_value`, and the number of its `unit`.
    Errors: ConfigurationError if columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.paired(runs, "total_tokens")[["group", "against", "difference"]]
            group    against  difference
        0  openai  anthropic     -1722.0
        1  gemini  anthropic     -1126.0
        2  gemini     openai       596.0
    """
    if per not in ("pair", "task"):
        raise ConfigurationError(f"per={per!r}: choose 'pair' or 'task'.")
    if not isinstance(what, str):
        raise ConfigurationError(f"what={what!r}: pass the name of one column, such as 'score'.")
    columns, level, runs = columns_of(by), checked_level(level), runs_of(runs, "lab.paired")
    shared = columns_of(on, "on") if on is not None else default_shared(runs, columns)
    needed = [*columns, what, *shared, *([] if unit is None else unit_of(runs, unit))]
    frame = whole_runs(each_once(checked(runs, needed, "lab.paired")))
    frame = frame[has_ended(frame)] if {"terminated", "stop_reason"} & set(frame.columns) else frame
    failed, values = failed_of(frame, failures), floats(frame, what)
    if what == "score" or what.startswith("score."):
        values = scores_of(values, failed)
    if failures == "leave_out":
        values = np.where(failed, np.nan, values)
    names = names_of(frame, columns)
    groups = in_order(names)
    if against is not None:
        against = BETWEEN.join(map(str, against if isinstance(against, tuple) else [against]))
    if against is not None and against not in groups:
        raise ConfigurationError(f"against={against!r} is not a group. Groups: {', '.join(groups) or 'none'}.")
    _warn_of_lost(frame, columns, shared, groups)
    pairs = [(b, a) for a, b in combinations(groups, 2)] if against is None else [(g, against) for g in groups if g != against]
    frame = frame.assign(**{_TASK: names_of(frame, shared, between="\x1f").where(frame[shared].notna().all(axis=1))})
    tasks = pd.factorize(frame[_TASK], sort=True)[0]  # sorted, so that the order of the rows changes no digit
    whole = _Values(frame, what, tasks, values, failed, floats(frame, "replayed"), links_of(frame, unit, _TASK), unit)
    places = names.reset_index(drop=True).groupby(names.to_numpy(), sort=False).indices
    found = [(group, other, whole.pairs_of(places[group], places[other])) for group, other in pairs]
    if per == "task":
        return _per_task(whole, found, shared)
    rows = [{"group": group, "against": other, "what": what, **_difference(whole, its, level)} for group, other, its in found]
    for row, adjusted in zip(rows, holm([row["p_value"] for row in rows]), strict=True):
        row |= {"p_holm": adjusted, "different": None if adjusted is None else adjusted < 1 - level}
    return typed_frame([[row[name] for name in _PAIRED] for row in rows], _PAIRED)


def _warn_of_lost(frame: pd.DataFrame, by: Sequence[str], shared: Sequence[str], groups: Sequence[str]) -> None:
    """Warn of what would make the frame empty or smaller without a word."""
    alone = frame[list(shared)].isna().any(axis=1).sum()
    if alone:
        warnings.warn(
            f"lab.paired(): {counted(int(alone), 'run')} of {len(frame)} without {' or '.join(shared)} cannot be paired, and are "
            "left out.",
            AgentlabWarning,
            stacklevel=3,
        )
    if len(groups) == 1:
        several = [f"{name!r}" for name in ("agent", "model", "provider") if name in frame.columns and frame[name].nunique() > 1]
        hint = f": pass by={several[0]}" if several else ""
        warnings.warn(
            f"lab.paired(): there is one group of {', '.join(by)}, {groups[0]!r}, so there are no pairs{hint}.",
            AgentlabWarning,
            stacklevel=3,
        )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p-values adjusted for all known ones, by Holm's method; None stays None.

    statsmodels has it too, and collects all garbage of the process at each call, which takes longer than a comparison.
    """
    known = np.array([one for one in p_values if one is not None])
    order = np.argsort(known, kind="stable")
    adjusted = np.empty(len(known))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1)))
    found = iter(adjusted.tolist())
    return [None if one is None else next(found) for one in p_values]


_TASK = "its task"
_PAIRED: dict[str, Any] = {
    **dict.fromkeys(("group", "against", "what"), "string"),
    **dict.fromkeys(("difference", "low", "high"), "Float64"),
    **dict.fromkeys(("pairs", "units", "left_out", "failed"), "Int64"),
    **dict.fromkeys(("ties", "more", "group_mean", "against_mean", "p_value", "p_holm"), "Float64"),
    "different": "boolean",
    **dict.fromkeys(("method", "small_sample", "no_interval", "mixed"), "string"),
}


def default_shared(runs: pd.DataFrame, by: Sequence[str]) -> list[str]:
    """Return the columns that runs of different groups on the same task share."""
    prompt = "prompt" if "prompt" in runs.columns and "prompt_id" not in runs.columns else "prompt_id"
    return [prompt, *(name for name in SHARED[1:] if name in runs.columns and name not in by and runs[name].notna().any())]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The tasks of two groups: the mean value of each group on each task that both have, and the unit of the task."""

    rows: Any
    """The places of all runs of both groups."""
    used: Any
    """Of these, the runs in the figures."""
    tasks: Any
    values: Any
    others: Any
    units: Any
    left_out: int

    @property
    def differences(self) -> Any:
        found = self.values - self.others
        rounding = np.abs(found) <= 1e-12 * np.maximum(np.abs(self.values), np.abs(self.others))  # of equal means
        return np.where(rounding, 0.0, found)


@dataclass(frozen=True, slots=True)
class _Values:
    """The compared values of all runs, in arrays."""

    frame: pd.DataFrame
    what: str
    tasks: Any
    """The number of each run's task; -1 if unknown."""
    values: Any
    failed: Any
    replayed: Any
    links: list[Any]
    unit: By | None

    def pairs_of(self, group: Any, against: Any) -> _Pairs:
        """Return the pairs of two groups, given the places of their runs."""
        rows, size = np.concatenate([group, against]), int(self.tasks.max(initial=0)) + 1
        (number, mean), (other_number, other_mean) = (self._means(side, size) for side in (group, against))
        both = (number > 0) & (other_number > 0)
        tasks = self.tasks[rows]
        used = rows[(tasks >= 0) & both[tasks] & ~np.isnan(self.values[rows])]
        units = np.full(size, -1)
        units[self.tasks[used]] = joined([codes[used] for codes in self.links], len(used))
        left_out = len(np.unique(tasks[tasks >= 0])) - int(both.sum())
        return _Pairs(rows, used, np.flatnonzero(both), mean[both], other_mean[both], units[both], left_out)

    def _means(self, rows: Any, size: int) -> tuple[Any, Any]:
        """Return the number of known values of each task, and their mean."""
        rows = rows[(self.tasks[rows] >= 0) & ~np.isnan(self.values[rows])]
        rows = rows[np.argsort(self.values[rows], kind="stable")]  # so that the order of the rows changes no digit
        number = np.bincount(self.tasks[rows], minlength=size)
        return number, np.bincount(self.tasks[rows], self.values[rows], size) / np.maximum(number, 1)


def _per_task(whole: _Values, found: list[tuple[str, str, _Pairs]], shared: list[str]) -> pd.DataFrame:
    """Return one row per pair of groups and task, in the order of the tasks' first runs."""
    firsts = {task: place for place, task in reversed([*enumerate(whole.tasks.tolist())])}
    parts = []
    for group, other, its in found:
        order = np.argsort([firsts[task] for task in its.tasks.tolist()], kind="stable")
        columns = {"difference": its.differences, "group_value": its.values, "against_value": its.others}
        part = pd.DataFrame({name: pd.array(values[order], dtype="Float64") for name, values in columns.items()})
        part["unit"] = pd.array(np.unique(its.units, return_inverse=True)[1][order], dtype="Int64")
        about = whole.frame.iloc[[firsts[task] for task in its.tasks[order].tolist()]][shared].reset_index(drop=True)
        names = {"group": group, "against": other, "what": whole.what}
        front = pd.DataFrame({name: pd.array([value] * len(part), dtype="string") for name, value in names.items()})
        parts.append(pd.concat([front, about, part], axis=1))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _difference(whole: _Values, its: _Pairs, level: float) -> dict[str, Any]:
    """Return the difference between two groups, a row of `paired`."""
    differences, known, used = its.differences, len(its.tasks), whole.values[its.used]
    yes_or_no = bool(np.isin(used, (0, 1)).all())
    single = yes_or_no and len(used) == 2 * known == 2 * len(np.unique(its.units))
    if single:
        estimate = of_change(differences.tolist(), level=level)
        p_value = mcnemar(int((differences > 0).sum()), int((differences < 0).sum())) if estimate.why is None else None
    else:
        is_score = whole.what == "score" or whole.what.startswith("score.")
        bounded = yes_or_no or (is_score and bool(((used >= 0) & (used <= 1)).all()))
        bounds = {"least": -1.0, "most": 1.0} if bounded else {}
        estimate, p_value = (
            of_mean(differences, its.units, level=level, **bounds),
            p_value_of_mean(differences, its.units, **bounds),
        )
    needed = MIN_UNITS if single else MEAN_UNITS
    few = f"{counted(known, 'pair')} in {counted(estimate.units, 'independent unit')}, an interval needs {needed} units"
    reason = "no complete pair" if not known else few if estimate.units < needed else estimate.why
    advice = None
    if known >= MIN_UNITS and estimate.units < min(needed, known):
        first_runs = np.unique(whole.tasks[its.used], return_index=True)[1]
        advice = unit_hint(whole.frame.iloc[its.used[first_runs]], whole.unit)
    return {
        "difference": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "pairs": known,
        "units": estimate.units,
        "left_out": its.left_out,
        "failed": int(whole.failed[its.rows].sum()) if "stop_reason" in whole.frame.columns else None,
        "ties": float((differences == 0).mean()) if known else None,
        "more": float((differences > 0).mean()) if known else None,
        "group_mean": float(its.values.mean()) if known else None,
        "against_mean": float(its.others.mean()) if known else None,
        "p_value": p_value,
        "method": estimate.method or None,
        "small_sample": small_sample(estimate),
        "no_interval": "; ".join(words for words in (reason, advice) if words) or None,
        "mixed": mixed(whole.replayed[its.rows]),
    }
