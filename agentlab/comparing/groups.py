"""The groups of a frame: by one column or several, in the order of their first row, under names that never are NA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import pandas as pd

from agentlab.errors import ConfigurationError

RUNS_ADVICE = 'pass a row a run, lab.frame(results, "runs")'
STEPS_ADVICE = "pass a row a step, lab.frame(results)"
BETWEEN = " · "
"""Between the values of several columns in one name."""

By: TypeAlias = str | Sequence[str]


def columns_of(by: object, option: str = "by") -> list[str]:
    """A column's name, or several of them, as a list. Raises ConfigurationError for what is neither."""
    names = [by] if isinstance(by, str) else list(by) if isinstance(by, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"{option}={by!r}: pass the name of a column, or a list of names.")
    return list(dict.fromkeys(cast(list[str], names)))


def checked(frame: object, needed: Sequence[str], function: str, advice: str = RUNS_ADVICE) -> pd.DataFrame:
    """The frame, with its rows counted from 0; one that has neither rows nor columns gets the columns that are needed.

    Raises ConfigurationError where a column is missing, and for what is no frame.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ConfigurationError(f"{function}() takes a DataFrame, not {type(frame).__name__}: {advice}.")
    if not len(frame.columns) and not len(frame):
        return pd.DataFrame({name: pd.array([], dtype="string") for name in needed})
    missing = [name for name in dict.fromkeys(needed) if name not in frame.columns]
    if missing:
        plural = "s" * (len(missing) > 1)
        raise ConfigurationError(f"{function}() misses the column{plural} {', '.join(missing)}: {advice}.")
    return frame.reset_index(drop=True)


def names_of(frame: pd.DataFrame, by: Sequence[str], between: str = BETWEEN) -> pd.Series[str]:
    """The name of each row's group."""
    parts = [
        frame[name].map(lambda value: None if _is_na(value) else str(value)).astype("string").fillna(f"unknown {name}")
        for name in by
    ]
    name = parts[0]
    for part in parts[1:]:
        name = name + between + part
    return name


def _is_na(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)  # noqa: PLR0124  NaN is not itself


def in_order(names: pd.Series[str]) -> list[str]:
    """The different names, in the order of their first row."""
    return [str(name) for name in names.unique()]


def numbers(frame: pd.DataFrame, column: str) -> pd.Series[float]:
    """A column as numbers, truth as 1 and 0; NA where it is unknown, no number, not finite, or there is no such column."""
    if column not in frame.columns:
        return cast("pd.Series[float]", pd.Series(pd.NA, index=frame.index, dtype="Float64"))
    values = frame[column]
    if values.dtype == "object" or isinstance(
        values.dtype, pd.StringDtype
    ):  # truth that went through a file, or is mixed with NA
        values = values.map(lambda value: _TRUTH.get(str(value), value))
    found = pd.to_numeric(values, errors="coerce").astype("Float64")
    return found.mask(found.abs() == float("inf"))


_TRUTH = {"True": 1, "False": 0}


def whole_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs with what their sub-agents used on top of their own tokens, cost and calls.

    A sub-agent's run whose caller is in the frame has no row of its own then, since it is in its caller's.
    """
    if "child_calls" not in frame.columns:
        return frame
    called = numbers(frame, "child_calls").fillna(0) > 0
    if called.any():
        parts = (("total_tokens", "child_tokens"), ("cost_usd", "child_cost_usd"), ("calls", "child_calls"))
        there = [(own, child) for own, child in parts if own in frame.columns]
        frame = frame.assign(**{own: numbers(frame, own) + numbers(frame, child).where(called, 0) for own, child in there})
    if {"run_id", "parent_run_id", "called_by"} - set(frame.columns) or not frame["called_by"].notna().any():
        return frame
    parent_of = dict(zip(frame["run_id"], frame["parent_run_id"], strict=True))
    sub_agents = set(frame["run_id"][frame["called_by"].notna()])

    def is_in_its_caller(run_id: object) -> bool:
        passed = set()
        while run_id in sub_agents and run_id not in passed:  # one that goes on with an earlier one is a branch of that
            passed.add(run_id)
            run_id = parent_of[run_id]
        return run_id in parent_of and run_id not in passed

    return frame[~frame["run_id"].map(lambda run_id: run_id in sub_agents and is_in_its_caller(run_id)).astype(bool)]


def has_ended(runs: pd.DataFrame) -> pd.Series[bool]:
    """Which runs have come to their end; what a run that still goes on has used says nothing about what it will have used."""
    ended = numbers(runs, "terminated").notna()
    if "stop_reason" in runs.columns:
        ended = ended | runs["stop_reason"].notna()
    return ended
