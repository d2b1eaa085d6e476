"""The goal of a run, and the step at which it was reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from agentlab.stop import as_condition
from agentlab.types import StopReason
from agentlab.whatif.conditions import First
from agentlab.whatif.grids import Grid
from agentlab.whatif.judging import Judge
from agentlab.whatif.records import Bools, Records, numbers

Goal: TypeAlias = Any
"""None: the agent finished on its own. A stop condition or a function of the history: reached where it is first met. The name of
a column of the runs, such as `score`, or a dict or Series of values by run id: reached at the run's end where it is at least 1."""


def goal_reached(records: Records, goal: Goal) -> tuple[First, Bools]:
    """The row at which each run reached its goal (the number of its rows: it did not), and whether that is not known."""
    known = np.zeros(len(records), bool)
    if goal is None:
        return records.goal, known
    if isinstance(goal, str):
        return _by_scores(records, records.with_columns([goal], "goal")[goal])
    if isinstance(goal, Mapping | pd.Series):
        return _by_scores(records, records.about["run_id"].map(dict(goal)))
    tree = as_condition(goal)
    whole = Grid("", tree, {}, ())
    return Judge(records, [whole]).first(whole, ()).astype(np.int64), known


def _by_scores(records: Records, values: pd.Series[Any]) -> tuple[First, Bools]:
    name = str(values.name)
    scores = numbers(values.to_frame(name), name).to_numpy()
    done = np.where(np.isnan(scores), False, scores >= 1)
    failed = records.reason.astype(str) == str(StopReason.ERROR)  # it has nothing to score
    return np.where(done, np.maximum(records.lengths - 1, 0), records.lengths), np.isnan(scores) & ~failed
