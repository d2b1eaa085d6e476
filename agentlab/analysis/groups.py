"""Groups of a frame by one or several columns, in the order of their first row; and checks of the columns of a user's frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from agentlab._internal.names import did_you_mean
from agentlab._internal.safe_text import cut
from agentlab.errors import ConfigurationError
from agentlab.records.frames import Recordings, frame_of

RUNS_ADVICE = 'one row per run, lab.frame(results, "runs")'
STEPS_ADVICE = "one row per step, lab.frame(results)"
BETWEEN = " · "
"""Separates the values of several columns in one name."""

By: TypeAlias = str | Sequence[str]


def columns_of(by: object, option: str = "by") -> list[str]:
    """Return one or several names of columns as a list. Raises ConfigurationError for anything else."""
    names = [by] if isinstance(by, str) else list(by) if isinstance(by, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"{option}={by!r}: pass the name of a column, or a list of names.")
    return list(dict.fromkeys(cast(list[str], names)))


def runs_of(given: Recordings | pd.DataFrame, function: str) -> pd.DataFrame:
    """Return the argument as a frame with one row per run. Raises ConfigurationError if it has no runs."""
    return frame_of(given, "runs", function, RUNS_ADVICE)


def steps_of(given: Recordings | pd.DataFrame, function: str) -> pd.DataFrame:
    """Return the argument as a frame with one row per step. Raises ConfigurationError if it has no runs."""
    return frame_of(given, "steps", function, STEPS_ADVICE)


def checked(frame: object, needed: Sequence[str], function: str, advice: str = RUNS_ADVICE) -> pd.DataFrame:
    """Return the frame with a new index from 0. A frame without rows and columns gets the required columns.

    Raises ConfigurationError if a column is missing, and for anything but a frame.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ConfigurationError(f"{function}() takes a DataFrame, not {type(frame).__name__}: pass {advice}.")
    if not len(frame.columns) and not len(frame):
        return pd.DataFrame({name: pd.array([], dtype="string") for name in needed})
    no_column_twice(frame)
    missing = [name for name in dict.fromkeys(needed) if name not in frame.columns]
    if missing:
        names = [*map(str, frame.columns)]
        hint = did_you_mean(missing[0], names, 0.78)
        if advice == RUNS_ADVICE and "run_id" in names and "step" not in names:  # already one row per run
            advice = "the name of a column that the runs have"
            hint = hint or f" They have {cut(', '.join(names), 500)}."
        raise misses(function, missing, advice, hint)
    return frame.reset_index(drop=True)


def misses(function: str, missing: Sequence[str], advice: str, hint: str = "") -> ConfigurationError:
    """Return the error for missing columns; `hint` names a column that is like the first one."""
    plural, them = ("s", "them") if len(missing) > 1 else ("", "it")
    return ConfigurationError(
        f"{function}() needs the column{plural} {', '.join(missing)}: pass {advice}, or add {them}, with pd.NA for unknown values."
        f"{hint}"
    )


def names_of(frame: pd.DataFrame, by: Sequence[str], between: str = BETWEEN) -> pd.Series[str]:
    """Return the name of each row's group."""
    names, *others = (_as_text(frame[name]).astype("string").fillna(f"unknown {name}") for name in by)
    for part in others:
        names = names + between + part
    return names


def _as_text(values: pd.Series[Any]) -> pd.Series[Any]:
    if isinstance(values.dtype, pd.StringDtype):
        return values
    if values.dtype == object:  # may mix 1, 1.0 and True, which are equal but have different names
        return values.map(lambda value: None if _is_na(value) else str(value))
    codes, different = pd.factorize(values)  # the code of NA is -1
    return pd.Series(np.array([*map(str, different), None], dtype=object)[codes], index=values.index)


def _is_na(value: object) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)  # noqa: PLR0124  NaN is not itself


def in_order(names: pd.Series[str]) -> list[str]:
    """Return the distinct names, in the order of their first row."""
    return [str(name) for name in names.unique()]


def unit_of(frame: pd.DataFrame, unit: By | None) -> list[str]:
    """Return the columns that define a unit: the given ones, else the prompt if there is one."""
    if unit is not None:
        return columns_of(unit, "unit")
    return next(([name] for name in ("prompt_id", "prompt") if name in frame.columns and frame[name].notna().any()), [])


def units_of(
    frame: pd.DataFrame, unit: By | None, task: str | None = None, within: pd.Series[str] | None = None
) -> npt.NDArray[np.intp]:
    """Return the number of each row's independent unit.

    Two rows are in one unit if they have the same value of `unit`, replay the same recording (`recording_id`), or have the same `task`,
    directly or by way of other rows. With `within` a unit lies within one of these groups. Unknown values link nothing.
    """
    groups = 0 if within is None else pd.factorize(within)[0]
    links = []
    for codes in links_of(frame, unit, task):
        links.append(np.where(codes < 0, -1, codes + groups * (codes.max(initial=0) + 1)))
    return joined(links, len(frame))


def links_of(frame: pd.DataFrame, unit: By | None, task: str | None = None) -> list[npt.NDArray[np.intp]]:
    """Return what links rows to a unit, see `units_of`: for each kind of link the code of each row; -1 if unknown."""
    recording = ["recording_id"] if "recording_id" in frame.columns else []
    kinds = [columns for columns in (unit_of(frame, unit), recording, [task] if task else []) if columns]
    known = [np.all([frame[name].notna() for name in columns], axis=0) for columns in kinds]
    return [
        np.where(there, pd.factorize(names_of(frame, columns, between="\x1f"))[0], -1)
        for columns, there in zip(kinds, known, strict=True)
    ]


def joined(links: Sequence[Any], rows: int) -> npt.NDArray[np.intp]:
    """Return the number of each row's unit: the first row that is linked to it, directly or by way of others."""
    found = np.arange(rows)
    dense = [(codes >= 0, np.unique(codes[codes >= 0], return_inverse=True)[1]) for codes in links]
    before = None
    while before is None or (found != before).any():
        before = found.copy()
        for known, codes in dense:
            least = np.full(rows, rows)
            np.minimum.at(least, codes, found[known])
            found[known] = least[codes]
    return found


def no_column_twice(frame: pd.DataFrame) -> None:
    """Raise ConfigurationError for a frame with two columns of one name."""
    if frame.columns.has_duplicates:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise ConfigurationError(
            f"The frame has two columns {twice!r}: keep one, frame.loc[:, ~frame.columns.duplicated()], or rename the other."
        )


def each_once(frame: pd.DataFrame, of: Sequence[str] = ("run_id",), values: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the frame without rows that repeat the keys `of`; rows with an unknown key are all kept.

    Raises ConfigurationError if rows with the same keys differ. With `values` only those columns are compared, and the last row is
    kept.
    """
    keys = [name for name in of if name in frame.columns]
    if len(keys) < len(of):
        return frame
    frame = frame.reset_index(drop=True)
    twice = frame.duplicated(keys, keep=False)
    if not twice.any() or not (twice := twice & frame[keys].notna().all(axis=1)).any():
        return frame
    several = frame.loc[twice, [*dict.fromkeys([*keys, *(frame.columns if values is None else values)])]].astype(str)
    different = several[~several.duplicated()]
    different = different[different.duplicated(keys)]
    if len(different):
        name = ", ".join(f"{key}={frame[key].astype(object)[different.index[0]]!r}" for key in keys)
        if keys == ["run_id"] and "step" in frame.columns:
            raise ConfigurationError(
                f"{name} occurs twice: the frame has one row per step. Pass one row per run, `results.runs` or "
                'lab.frame(results, "runs").'
            )
        raise ConfigurationError(
            f"{name} occurs twice, with different values. If these are two states of one run, keep the last: "
            f"frame.drop_duplicates({keys!r}, keep='last'). If they are different runs with the same name, from two experiments or "
            "stores, rename those of one before you join the frames: frame.assign(run_id='second ' + frame['run_id'])."
        )
    again = frame.duplicated(keys, keep="first" if values is None else "last")
    return frame[~again | ~twice].reset_index(drop=True)


def numbers(frame: pd.DataFrame, column: str) -> pd.Series[float]:
    """Return a column as numbers, booleans as 1 and 0; NA if unknown or not finite, and for all rows if the column is missing.

    Raises ConfigurationError for text that is not a number.
    """
    if column not in frame.columns:
        return cast("pd.Series[float]", pd.Series(pd.NA, index=frame.index, dtype="Float64"))
    return as_numbers(frame[column])


def as_numbers(given: pd.Series[Any]) -> pd.Series[float]:
    """Return the values of a column as `numbers` does."""
    values = given
    if not pd.api.types.is_numeric_dtype(values.dtype):  # booleans from a file, or mixed with NA
        values = values.astype(object).map(lambda value: _TRUTH.get(str(value).strip(), value))
        read = pd.to_numeric(values, errors="coerce")
        lost = read.isna() & values.notna()
        if lost.any():
            wrong = cut(repr(given[lost].iloc[0]), 80)
            raise ConfigurationError(
                f"The column {given.name!r} has {wrong}, which is not a number: convert it, or use pd.NA if it is unknown. "
                "For a file with decimal commas: pd.read_csv(…, decimal=',')."
            )
        values = read
    found = values.astype("Float64")
    infinite = np.isinf(found.to_numpy(dtype=float, na_value=np.nan))
    return found.mask(infinite) if infinite.any() else found


def texts(frame: pd.DataFrame, column: str) -> pd.Series[str]:
    """Return a column as text; NA if unknown, and for all rows if the column is missing."""
    if column in frame.columns:
        return frame[column].astype("string")
    return pd.Series(pd.NA, index=frame.index, dtype="string")


def typed_frame(rows: Sequence[Sequence[Any]], dtypes: Mapping[str, Any]) -> pd.DataFrame:
    """Return a frame of these rows with these column names and dtypes."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in dtypes)
    return pd.DataFrame(
        {name: pd.array(list(values), dtype=dtype) for (name, dtype), values in zip(dtypes.items(), columns, strict=True)}
    )


_TRUTH = {"True": 1, "False": 0, "true": 1, "false": 0, "TRUE": 1, "FALSE": 0, "": None}
"""Booleans as Python, R and spreadsheets write them, and an empty cell."""


def whole_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the outermost runs with the tokens, cost and calls of their sub-agents added to their own."""
    if "child_calls" not in frame.columns:
        return frame
    called = numbers(frame, "child_calls").fillna(0) > 0
    if called.any():
        parts = (("total_tokens", "child_tokens"), ("cost_usd", "child_cost_usd"), ("calls", "child_calls"))
        there = [(own, child) for own, child in parts if own in frame.columns]
        frame = frame.assign(**{own: numbers(frame, own) + numbers(frame, child).where(called, 0) for own, child in there})
    return outermost(frame)


def outermost(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows, of runs or of their steps, without those of sub-agents whose caller is in the frame: they are a part of the
    caller's run."""
    if {"run_id", "parent_run_id", "called_by"} - set(frame.columns) or not frame["called_by"].notna().any():
        return frame
    parent_of = dict(zip(frame["run_id"], frame["parent_run_id"], strict=True))
    sub_agents = set(frame["run_id"][frame["called_by"].notna()])

    def is_in_its_caller(run_id: object) -> bool:
        passed = set()
        while run_id in sub_agents and run_id not in passed:  # a sub-agent's run may be a branch of an earlier one
            passed.add(run_id)
            run_id = parent_of[run_id]
        return run_id in parent_of and run_id not in passed

    return frame[~frame["run_id"].isin(list(filter(is_in_its_caller, sub_agents)))]


FAILURES = ("count", "leave_out")


def failed_of(runs: pd.DataFrame, failures: str) -> npt.NDArray[np.bool_]:
    """Return True for the runs that ended with an error. Raises ConfigurationError if `failures` is not in FAILURES."""
    if failures not in FAILURES:
        raise ConfigurationError(f"failures={failures!r}: choose one of {', '.join(FAILURES)}.")
    if "stop_reason" not in runs.columns:
        return np.zeros(len(runs), dtype=bool)
    return runs["stop_reason"].astype("string").str.lower().eq("error").to_numpy(dtype=bool, na_value=False)


def floats(frame: pd.DataFrame, column: str) -> npt.NDArray[np.float64]:
    """Return a column as an array of numbers, as `numbers` does; NaN if unknown."""
    return as_floats(frame[column]) if column in frame.columns else np.full(len(frame), np.nan)


def as_floats(values: pd.Series[Any]) -> npt.NDArray[np.float64]:
    """Return the values of a column as `floats` does."""
    dtype = values.dtype
    if isinstance(dtype, _MASKED) or (isinstance(dtype, np.dtype) and dtype.kind in "iuf"):  # without two copies as a Series
        found: npt.NDArray[np.float64] = values.array.to_numpy(dtype=float, na_value=np.nan, copy=True)
        found[np.isinf(found)] = np.nan
        return found
    return as_numbers(values).to_numpy(dtype=float, na_value=np.nan).astype(float, copy=False)


_MASKED = (pd.Int64Dtype, pd.Float64Dtype, pd.BooleanDtype)


def scores_of(scores: Any, failed: Any, like: Any = None) -> Any:
    """Return the scores. If all are 0 or 1, a failed run without a score gets 0; if none is known, the scores in `like` decide that."""
    unknown = np.isnan(scores)
    known = scores[~unknown] if like is None or not unknown.all() else like[~np.isnan(like)]
    return np.where(failed & unknown, 0.0, scores) if len(known) and np.isin(known, (0, 1)).all() else scores


def mixed(replayed: Any) -> str | None:
    """Return a sentence if some of the runs are replays and others are not."""
    known = replayed[~np.isnan(replayed)]
    if len(set(known)) < 2:
        return None
    return f"{int(known.sum())} of {len(known)} runs are replays of recordings, the others ran live"


def has_ended(runs: pd.DataFrame) -> pd.Series[bool]:
    """Return True for the runs that have ended."""
    ended = numbers(runs, "terminated").notna()
    if "stop_reason" in runs.columns:
        ended = ended | runs["stop_reason"].notna()
    return ended
