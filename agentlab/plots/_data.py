"""What the plots show, as data. Nothing is drawn here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import pandas as pd

from agentlab.comparing.groups import (
    RUNS_ADVICE,
    STEPS_ADVICE,
    By,
    columns_of,
    each_once,
    misses,
    names_of,
    no_column_twice,
    numbers,
    runs_of,
    steps_of,
)
from agentlab.recorder import Recordings
from agentlab.types import StopReason

TERMINATED, TRUNCATED, NOT_ENDED = "terminated", "truncated", "not_ended"


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a curve adds up: its name, its column in the steps frame, and the two kinds of limits on it."""

    name: str
    function: str
    column: str
    budget: str
    condition: str
    dtype: str


TOKENS = Quantity("tokens", "tokens", "cumulative_tokens", "max_tokens", "MaxTokensUsed", "Int64")
COST = Quantity("cost_usd", "cost", "cumulative_cost_usd", "max_cost_usd", "MaxCost", "Float64")
_FIXED = ("run_id", "provider", "model", "step", "stop_reason")


def tokens_data(steps: Recordings | pd.DataFrame) -> pd.DataFrame:
    """Cumulative tokens at each step, with the limits that held.

    Columns: `run_id`, `provider`, `model`, `step`, `stop_reason` (on the last step of a run that has ended), `tokens` (NA: unknown),
    and for each limit that held at any step a column with the tokens it allowed (NA: no such limit at this step): `max_tokens` of
    the budget, `MaxTokensUsed` (`MaxTokensUsed_2`, …) of the stop condition.

    Example:
        >>> lab.plots.tokens_data(result.to_frame())[["provider", "step", "stop_reason", "tokens"]]
            provider  step     stop_reason  tokens
        0  anthropic     1            <NA>     637
        1  anthropic     2            <NA>    1384
        2  anthropic     3            <NA>    2208
        3  anthropic     4  stop_condition    3146
    """
    return curve_data(steps_of(steps, "lab.plots.tokens"), TOKENS)


def cost_data(steps: Recordings | pd.DataFrame) -> pd.DataFrame:
    """Cumulative cost in US dollars at each step, with the limits that held.

    Columns as those of `tokens_data`, with `cost_usd` for the value and `max_cost_usd` and `MaxCost` (`MaxCost_2`, …) for the limits.

    Example:
        >>> lab.plots.cost_data(result.to_frame())[["step", "cost_usd"]]
           step  cost_usd
        0     1  0.003207
        1     2  0.007008
        2     3  0.010332
        3     4  0.014346
    """
    return curve_data(steps_of(steps, "lab.plots.cost"), COST)


def curve_data(steps: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """The data of one curve plot; runs in the order of their first row, each by step."""
    if not _has_columns(steps, ("run_id", "provider", "step", quantity.column), quantity.function, STEPS_ADVICE):
        steps = pd.DataFrame(columns=["run_id", "provider", "step", quantity.column])
    data = pd.DataFrame(
        {
            "run_id": steps["run_id"].astype("string").fillna("unnamed run"),
            "provider": steps["provider"].astype("string").fillna("unknown provider"),
            "model": _text(steps, "model"),
            "step": _numbers(steps, "step", "Int64"),
            "stop_reason": _text(steps, "stop_reason"),
            quantity.name: _numbers(steps, quantity.column, quantity.dtype),
        }
    )
    for name, column in limit_columns(list(steps.columns), quantity).items():
        limit = _numbers(steps, column, quantity.dtype)
        if limit.notna().any():
            data[name] = limit
    data = each_once(data[data["step"].notna()], ("run_id", "step"), [quantity.name])
    order = data["run_id"].map({run_id: place for place, run_id in enumerate(data["run_id"].unique())})
    return data.assign(order=order).sort_values(["order", "step"], kind="stable").drop(columns="order").reset_index(drop=True)


def limit_columns(columns: Sequence[str], quantity: Quantity) -> dict[str, str]:
    """The frame's columns that hold limits of this quantity, by the limit's name."""
    leaf = re.compile(rf"({quantity.condition}(?:_\d+)?)\.limit")
    budget = {quantity.budget: quantity.budget} if quantity.budget in columns else {}
    return budget | {found[1]: column for column in columns if (found := leaf.fullmatch(str(column)))}


@dataclass(frozen=True, slots=True)
class Course:
    """How one limit went over the steps, and the runs for which it went so. A value None: no limit at that step."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    run_ids: tuple[str, ...]

    @property
    def changes(self) -> tuple[float | None, ...]:
        """The values with repetitions left out: one value for a limit that stayed."""
        pairs = zip((object(), *self.values), self.values, strict=False)
        return tuple(value for before, value in pairs if value != before)


def limit_names(data: pd.DataFrame, quantity: Quantity) -> list[str]:
    """The limits that held at any step, in the order of their columns."""
    return [name for name in data.columns if name not in (*_FIXED, quantity.name)]


def limit_courses(data: pd.DataFrame, name: str) -> list[Course]:
    """The different courses of a limit: runs share one where they agree for as long as both went on."""
    of_runs = []
    for run_id, run in data.groupby("run_id", sort=False):
        values = tuple(None if pd.isna(value) else float(value) for value in run[name])
        if any(value is not None for value in values):
            of_runs.append((str(run_id), tuple(int(step) for step in run["step"]), values))
    courses: list[Course] = []
    for run_id, steps, values in sorted(of_runs, key=lambda of_run: -len(of_run[1])):
        for place, course in enumerate(courses):
            if course.steps[: len(steps)] == steps and course.values[: len(steps)] == values:
                courses[place] = Course(name, course.steps, course.values, (*course.run_ids, run_id))
                break
        else:
            courses.append(Course(name, steps, values, (run_id,)))
    return courses


def stop_reasons_data(runs: Recordings | pd.DataFrame, by: By = "provider") -> pd.DataFrame:
    """How many runs of each provider, or of each group by other columns, ended for which reason.

    Columns: `provider`, `outcome` (`terminated`, `truncated`, `not_ended`), `stop_reason` (NA where it has not ended)
    and `runs`, a count of at least 1. Providers are in the order of their first run. Where `by` is given, the first column is called
    `group`.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.stop_reasons_data(runs)
            provider     outcome     stop_reason  runs
        0  anthropic  terminated  stop_condition     1
        1     openai  terminated  stop_condition     1
        2     gemini  terminated  stop_condition     1
    """
    columns, runs = columns_of(by), runs_of(runs, "lab.plots.stop_reasons")
    called = "provider" if columns == ["provider"] else "group"
    if not _has_columns(runs, (*columns, "stop_reason", "terminated", "truncated"), "stop_reasons", RUNS_ADVICE):
        return _counts([], called)
    runs = each_once(runs)
    provider = names_of(runs, columns)
    reason = _text(runs, "stop_reason")
    terminated, truncated = (numbers(runs, name).fillna(0) == 1 for name in ("terminated", "truncated"))
    counts: dict[tuple[str, str, str], int] = {}
    for one in zip(provider, terminated, truncated, reason.fillna(""), strict=True):
        key = (one[0], TERMINATED if one[1] else TRUNCATED if one[2] else NOT_ENDED, one[3])
        counts[key] = counts.get(key, 0) + 1
    providers, outcomes, reasons = list(dict.fromkeys(provider)), [TERMINATED, TRUNCATED, NOT_ENDED], list(StopReason)

    def place(key: tuple[str, str, str]) -> tuple[int, int, int, str]:
        known = reasons.index(StopReason(key[2])) if key[2] in reasons else len(reasons)
        return providers.index(key[0]), outcomes.index(key[1]), known, key[2]

    return _counts([(*key, counts[key]) for key in sorted(counts, key=place)], called)


def _counts(rows: list[tuple[str, str, str, int]], called: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            called: pd.array([row[0] for row in rows], dtype="string"),
            "outcome": pd.array([row[1] for row in rows], dtype="string"),
            "stop_reason": pd.array([row[2] or None for row in rows], dtype="string"),
            "runs": pd.array([row[3] for row in rows], dtype="Int64"),
        }
    )


def _has_columns(frame: pd.DataFrame, needed: Sequence[str], function: str, advice: str) -> bool:
    """Whether there is anything to read; False for a frame with neither rows nor columns, an error for any other without them."""
    if not len(frame.columns) and not len(frame):
        return False
    no_column_twice(frame)
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise misses(f"lab.plots.{function}", missing, advice)
    return True


def _text(frame: pd.DataFrame, name: str) -> pd.Series[str]:
    if name in frame.columns:
        return frame[name].astype("string")
    return pd.Series(pd.NA, index=frame.index, dtype="string")


def _numbers(frame: pd.DataFrame, name: str, dtype: str) -> pd.Series[float]:
    """A column as numbers, also where it went through a file and lost its dtype."""
    found = numbers(frame, name)
    return cast("pd.Series[float]", found.round().astype("Int64") if dtype == "Int64" else found)
