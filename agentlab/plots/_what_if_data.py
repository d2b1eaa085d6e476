"""Configurations as points: what each cost, how often it reached its goal, how much is unknown, and which of them are efficient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from agentlab.comparing.groups import checked, columns_of, names_of
from agentlab.errors import ConfigurationError
from agentlab.limits import no_such

FIGURES = ("cost_mean", "tokens_mean", "step_mean", "calls_mean", "time_mean", "success_rate")
MOST_UNKNOWN = 0.05
"""A configuration of which more is unknown has means over other runs than the rest, and is not compared with them."""
ADVICE = "what lab.backtest(…) gives, a row a configuration"
WHOLE = ""
"""The group of all, where there are no others."""

_FIRST = "runs"
"""The first column behind those that say which configuration a row is of."""


def what_if_data(
    frame: pd.DataFrame,
    x: str = "cost_mean",
    y: str = "success_rate",
    *,
    by: str | Sequence[str] | None = None,
    most_unknown: float = MOST_UNKNOWN,
) -> pd.DataFrame:
    """The points of `lab.plots.what_if`: a row a configuration, of each group where `by` makes several.

    Columns: `group`, `label` (what the configuration is), `x`, `x_low`, `x_high`, `y`, `y_low`, `y_high`, `unknown` (the greater share
    of the runs of which x or y is unknown), and `efficient`: it is on the frontier, so that no other of its group has more y for as
    little x. Only those of which at most `most_unknown` is unknown can be.
    Errors: ConfigurationError where columns are missing, and for what is no figure.

    Example:
        >>> tried = lab.backtest([result, *others], lab.HasToolCall("finalize") | lab.StepCountIs([2, 4, 8]))
        >>> lab.plots.what_if_data(tried).columns.tolist()
        ['group', 'label', 'x', 'x_low', 'x_high', 'y', 'y_low', 'y_high', 'unknown', 'efficient']
    """
    for name in (x, y):
        if name not in FIGURES:
            raise ConfigurationError(f"lab.plots.what_if(x=…, y=…): {no_such('figure', str(name), list(FIGURES))}")
    if isinstance(most_unknown, bool) or not isinstance(most_unknown, int | float) or not 0 <= most_unknown <= 1:
        raise ConfigurationError(f"most_unknown={most_unknown!r}: pass a share from 0 to 1, such as 0.05.")
    groups = [] if by is None else columns_of(by)
    needed = [part for name in (x, y) for part in (name, *ends_of(name), unknown_of(name))]
    table = checked(frame, [*groups, *dict.fromkeys(needed)], "lab.plots.what_if", ADVICE)
    data = pd.DataFrame(
        {
            "group": (names_of(table, groups) if groups else pd.Series([WHOLE] * len(table), index=table.index)).astype("string"),
            "label": pd.array(labels_of(table, groups), dtype="string"),
            **{
                part: table[column].astype("Float64").array
                for axis, name in (("x", x), ("y", y))
                for part, column in zip((axis, f"{axis}_low", f"{axis}_high"), (name, *ends_of(name)), strict=True)
            },
        }
    )
    unknown = np.fmax(_numbers(table[unknown_of(x)]), _numbers(table[unknown_of(y)]))
    data["unknown"] = pd.array(np.where(np.isnan(unknown), 1.0, unknown), dtype="Float64")
    efficient = np.zeros(len(data), bool)
    for _, places in data.groupby("group", sort=False).indices.items():
        able = places[_numbers(data["unknown"])[places] <= most_unknown]
        efficient[able] = on_the_frontier(_numbers(data["x"])[able], _numbers(data["y"])[able])
    data["efficient"] = efficient
    return data


def ends_of(figure: str) -> tuple[str, str]:
    """The columns with the ends of a figure's interval."""
    stem = figure.rpartition("_")[0]
    return f"{stem}_low", f"{stem}_high"


def unknown_of(figure: str) -> str:
    """The column with the share of runs of which a figure is unknown."""
    stem = figure.rpartition("_")[0]
    return "unknown_share" if stem == "step" else f"{stem}_unknown"


def on_the_frontier(x: Any, y: Any) -> Any:
    """Which points have more y than all that have as little x or less; of equal ones the first."""
    found = np.zeros(len(x), bool)
    best = -np.inf
    for place in np.lexsort((-y, x)):
        if not np.isnan(x[place]) and y[place] > best:
            best, found[place] = y[place], True
    return found


def labels_of(table: pd.DataFrame, groups: Sequence[str] = ()) -> list[str]:
    """What each configuration is: the values on its axes, or its name."""
    columns = [str(name) for name in table.columns]
    front = columns[: columns.index(_FIRST)] if _FIRST in columns else []
    axes = [name for name in front if name != "configuration" and name not in groups]
    cells = {name: table[name].tolist() for name in front}
    found = []
    for row in range(len(table)):
        said = [f"{name} {_value(cells[name][row])}" for name in axes if not pd.isna(cells[name][row])]
        name = cells["configuration"][row] if "configuration" in front else row
        named = [name] if isinstance(name, str) else []
        found.append(", ".join([*named, *said]) or ("no limit" if axes else f"configuration {name}"))
    return found


def _value(value: object) -> str:
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _numbers(values: Any) -> Any:
    return values.astype("Float64").to_numpy(dtype=float, na_value=np.nan)
