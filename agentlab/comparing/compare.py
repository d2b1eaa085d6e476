"""Comparing groups of runs: what each completed, cost and achieved, with intervals, and how they differ on the same prompts.

    runs = lab.frame(results, "runs")                     a row a run; an experiment adds `prompt_id`, `repeat`, `score`
    lab.summary(runs, by="provider")                      a row a group
    lab.paired(runs, "cost_usd", on=["prompt_id"])        a row a pair of groups: the difference on the same prompts

Nothing here ranks: groups stand in the order of their first row, each value beside its interval. Intervals take runs as independent of
each other. Where each prompt is repeated they hold for these prompts, for which they are rather too wide; of other prompts only as many
prompts as there are can tell: take `paired(…, on=["prompt_id"])`, whose unit is the prompt. Unknown values are left out and counted.

What a run's sub-agents used counts as its own here, other than in the frame of runs; their rows, where they are there, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from agentlab.amounts import counted
from agentlab.comparing.groups import By, checked, columns_of, each_once, has_ended, in_order, names_of, numbers, whole_runs
from agentlab.comparing.intervals import FEW, Estimate, checked_level, of_mean, of_median, wilson
from agentlab.errors import ConfigurationError

TOO_FEW = f"fewer than {FEW}, intervals from so few tend to be too narrow"
SHARED = ("prompt_id", "settings", "repeat")
"""What runs of different groups have in common where an experiment gave them the same task."""


def summary(runs: pd.DataFrame, by: By = "provider", *, level: float = 0.95, success_at: float | None = None) -> pd.DataFrame:
    """A row a group: how many runs completed and succeeded, and what they used, each with its interval.

    `runs` is a row a run, `by` the column or columns that make the groups. The same run twice counts once. Runs that have not
    ended are counted as `running` and enter nothing else. Columns, beside those of `by`:

    - `runs`, `running`; `completed` of those that ended came to an end of their own; `completion_rate`, `completion_low`,
      `completion_high` (Wilson)
    - `scored` runs have a score; `success_rate`, `success_low`, `success_high` (Wilson) where scores are yes or no, or by `success_at`,
      the score from which on a run succeeded; `score_mean`, `score_low`, `score_high` (bootstrap)
    - `tokens_mean`, `tokens_low`, `tokens_high`, `tokens_median`, `tokens_median_low`, `tokens_median_high` (bootstrap), of the runs
      whose usage is known; `tokens_unknown`, the share of which it is not
    - `cost_mean`, …, `cost_unknown`: the same for cost, in US dollars
    - `small_sample`: in words, where there are few runs; `no_interval`: which intervals could not be made, and why

    `level` is that of all intervals. NA is unknown, never 0. Errors: ConfigurationError where columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.summary(runs)[["provider", "runs", "completed", "tokens_mean"]]
            provider  runs  completed  tokens_mean
        0  anthropic     1          1       3146.0
        1     openai     1          1       1424.0
        2     gemini     1          1       2020.0
    """
    columns, level = columns_of(by), checked_level(level)
    if success_at is not None and (isinstance(success_at, bool) or not isinstance(success_at, int | float)):
        raise ConfigurationError(f"success_at={success_at!r}: pass the score from which on a run succeeded, or leave it out.")
    frame = whole_runs(each_once(checked(runs, [*columns, "terminated", "total_tokens", "cost_usd"], "lab.summary")))
    names = names_of(frame, columns)
    rows = [_row(frame[names == name], level, success_at) for name in in_order(names)]
    firsts = frame[~names.duplicated()]
    table = {column: firsts[column].array for column in columns}
    return pd.DataFrame(table | {name: pd.array([row[name] for row in rows], dtype=dtype) for name, dtype in _DTYPES.items()})


_DTYPES: dict[str, Any] = {
    "runs": "Int64",
    "running": "Int64",
    "completed": "Int64",
    **dict.fromkeys(("completion_rate", "completion_low", "completion_high"), "Float64"),
    "scored": "Int64",
    **dict.fromkeys(("success_rate", "success_low", "success_high", "score_mean", "score_low", "score_high"), "Float64"),
    **{
        f"{what}_{name}": "Float64"
        for what in ("tokens", "cost")
        for name in ("mean", "low", "high", "median", "median_low", "median_high", "unknown")
    },
    "small_sample": "string",
    "no_interval": "string",
}


def _row(group: pd.DataFrame, level: float, success_at: float | None) -> dict[str, Any]:
    ended = group[has_ended(group)]
    terminated, scores = numbers(ended, "terminated").dropna(), numbers(ended, "score").dropna()
    row: dict[str, Any] = {"runs": len(group), "running": len(group) - len(ended), "completed": int(terminated.sum())}
    missing: dict[str, str] = {}

    def put(estimate: Estimate, value: str, prefix: str, what: str) -> None:
        row[value], row[f"{prefix}_low"], row[f"{prefix}_high"] = estimate.value, estimate.low, estimate.high
        if estimate.why is not None:
            missing[what] = estimate.why

    put(wilson(row["completed"], len(terminated), level=level), "completion_rate", "completion", "completion")
    row["scored"] = len(scores)
    row |= dict.fromkeys(("success_rate", "success_low", "success_high", "score_mean", "score_low", "score_high"))
    if "score" in group.columns:
        graded = success_at is None and not scores.isin([0, 1]).all()
        if graded:
            missing["success"] = "scores are graded, pass success_at=…"
        else:
            successes = int((scores >= (1 if success_at is None else success_at)).sum())
            put(wilson(successes, len(scores), level=level), "success_rate", "success", "success")
        put(of_mean(scores, level=level), "score_mean", "score", "score")
    for what, column in (("tokens", "total_tokens"), ("cost", "cost_usd")):
        known = numbers(ended, column).dropna()
        put(of_mean(known, level=level), f"{what}_mean", what, what)
        put(of_median(known, level=level), f"{what}_median", f"{what}_median", what)
        row[f"{what}_unknown"] = None if ended.empty else 1 - len(known) / len(ended)
    row["small_sample"] = _few(ended, scored=len(scores))
    row["no_interval"] = "; ".join(f"{what}: {why}" for what, why in missing.items()) or None
    return row


def _few(ended: pd.DataFrame, scored: int) -> str | None:
    """In words, what there is little of."""
    told = [] if len(ended) >= FEW else [f"{counted(len(ended), 'run')} ended"]
    if "score" in ended.columns and len(ended) >= FEW > scored:
        told.append(f"{scored} scored")
    for what, column in (("tokens", "total_tokens"), ("cost", "cost_usd")):
        known = int(numbers(ended, column).notna().sum())
        if 0 < known < min(FEW, len(ended)):
            told.append(f"{what} known of {known}")
    return f"{', '.join(told)}: {TOO_FEW}" if told else None


# Differences ---------------------------------------------------------------------------------------------------------------------


def paired(
    runs: pd.DataFrame, what: str, by: By = "provider", on: By | None = None, *, against: str | None = None, level: float = 0.95
) -> pd.DataFrame:
    """How groups differ on the same tasks: a row a pair of groups, the mean of the differences with its bootstrap interval.

    `what` is a column: `cost_usd`, `total_tokens`, `steps`, `terminated`, `score` (truth counts as 1 and 0). `on` is what both runs of
    a pair have in common; by default those of `prompt_id` (or `prompt`), `settings` and `repeat` that there are. With
    `on=["prompt_id"]` the mean over a group's repeats is taken, so that the interval speaks of other prompts, too. With
    `against`, the name of a group, only the differences from that one. Columns:

    - `group`, `against`, `what`: a positive difference means that `group` has more of it
    - `difference`, `low`, `high`: the mean over the pairs (bootstrap)
    - `pairs`: complete ones, on which alone all of this rests; `left_out`: tasks for which not both have a known value
    - `ties`: the share of pairs with no difference; `more`: the share in which `group` has more
    - `group_mean`, `against_mean`: over the same pairs
    - `small_sample`, `no_interval`: in words

    Of twenty such intervals at 95 %, one is expected to miss by chance. Errors: ConfigurationError where columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.paired(runs, "total_tokens")[["group", "against", "difference"]]
            group    against  difference
        0  openai  anthropic     -1722.0
        1  gemini  anthropic     -1126.0
        2  gemini     openai       596.0
    """
    columns, level = columns_of(by), checked_level(level)
    shared = columns_of(on, "on") if on is not None else default_shared(runs, columns)
    frame = whole_runs(each_once(checked(runs, [*columns, what, *shared], "lab.paired")))
    frame = frame[has_ended(frame)] if {"terminated", "stop_reason"} & set(frame.columns) else frame
    table = _cells(frame, what, columns, shared)
    groups = in_order(names_of(frame, columns))
    if against is not None and against not in groups:
        raise ConfigurationError(f"against={against!r}: there is no such group; there are {', '.join(groups) or 'none'}.")
    pairs = [(b, a) for a, b in combinations(groups, 2)] if against is None else [(g, against) for g in groups if g != against]
    rows = [_difference(table, group, other, what, level) for group, other in pairs]
    return pd.DataFrame({name: pd.array([row[name] for row in rows], dtype=dtype) for name, dtype in _PAIRED.items()})


_PAIRED: dict[str, Any] = {
    **dict.fromkeys(("group", "against", "what"), "string"),
    **dict.fromkeys(("difference", "low", "high"), "Float64"),
    **dict.fromkeys(("pairs", "left_out"), "Int64"),
    **dict.fromkeys(("ties", "more", "group_mean", "against_mean"), "Float64"),
    **dict.fromkeys(("small_sample", "no_interval"), "string"),
}


def default_shared(runs: object, by: Sequence[str]) -> list[str]:
    """The columns that say which runs of different groups had the same task."""
    there = runs if isinstance(runs, pd.DataFrame) else pd.DataFrame()
    prompt = "prompt" if "prompt" in there.columns and "prompt_id" not in there.columns else "prompt_id"
    return [prompt, *(name for name in SHARED[1:] if name in there.columns and name not in by and there[name].notna().any())]


def _cells(frame: pd.DataFrame, what: str, by: Sequence[str], on: Sequence[str]) -> pd.DataFrame:
    """A row a task, a column a group: the mean over the runs of that group whose value is known."""
    frame = frame[frame[list(on)].notna().all(axis=1)]
    values = pd.DataFrame(
        {"task": names_of(frame, on, between="\x1f"), "group": names_of(frame, by), "value": numbers(frame, what)}
    )
    values = values.sort_values("value", kind="stable")  # so that the order of the rows does not reach the last digit of a sum
    return values.pivot_table(index="task", columns="group", values="value", aggfunc="mean", dropna=False, observed=True)


def _difference(table: pd.DataFrame, group: str, against: str, what: str, level: float) -> dict[str, Any]:
    none = pd.Series(pd.NA, index=table.index, dtype="Float64")
    both = pd.DataFrame({"group": table.get(group, none), "against": table.get(against, none)})
    whole = both.dropna()
    differences = (whole["group"] - whole["against"]).astype(float)
    tiny = 1e-12 * whole.astype(float).abs().max(axis=1)  # what rounding leaves of two means that are the same
    differences = differences.mask(differences.abs() <= tiny, 0.0)
    estimate = of_mean(differences, level=level)
    known = len(whole)
    return {
        "group": group,
        "against": against,
        "what": what,
        "difference": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "pairs": known,
        "left_out": len(both) - known,
        "ties": float((differences == 0).mean()) if known else None,
        "more": float((differences > 0).mean()) if known else None,
        "group_mean": float(whole["group"].mean()) if known else None,
        "against_mean": float(whole["against"].mean()) if known else None,
        "small_sample": f"{counted(known, 'pair')}: {TOO_FEW}" if known < FEW else None,
        "no_interval": None if estimate.why is None else estimate.why.replace("none known", "no complete pair"),
    }
