"""Backtests: stop conditions and budgets replayed over recorded runs, at no token cost.

    lab.backtest(results, StepCountIs([2, 4, 8]) | MaxCost([0.01, 0.05]))        one row per configuration: six
    lab.backtest(steps, budget={"max_tokens": range(1_000, 20_000, 1_000)})      a steps frame is enough
    lab.backtest(store, {"short": StepCountIs(2), "long": None}, per="run")      one row per run and configuration

A stop before the end of the record is exact, since the run is the same up to that step. A run that would have continued after the end
of its record is `unknown`, never guessed; a run that finished on its own is `finished`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from agentlab.analysis.grids import Conditions, Limits, grids
from agentlab.analysis.groups import columns_of
from agentlab.analysis.intervals import checked_level
from agentlab.analysis.outcomes import Goal, Task, goal_reached, of_configurations, of_runs
from agentlab.analysis.records import reordered, units_of
from agentlab.analysis.sources import Recorded, records_of
from agentlab.errors import ConfigurationError


def backtest(
    recorded: Recorded,
    conditions: Conditions = None,
    *,
    budget: Limits = None,
    goal: Goal = None,
    per: Literal["configuration", "run"] = "configuration",
    by: str | Sequence[str] | None = None,
    runs: pd.DataFrame | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Return where each recorded run would have stopped under other conditions and budgets, its cost and its success.

    recorded    a steps frame, a Store, results of an experiment, a result, a run, or a list of these. A frame is not enough for your
                own conditions (unless they declare a `total`) and for steps of several calls
    conditions  a stop condition as for a run, in which a list in a parameter is an axis of a grid; a list of conditions, or a dict by
                name, for several grids
    budget      a Budget, or a dict of its limits in which a list is an axis: max_turns, max_calls, max_tokens, max_cost, timeout.
                The limits of the recorded runs are ignored
    goal        the definition of success, see below. None: the agent finished on its own
    per         `configuration`: one row per configuration; `run`: one row per configuration and run
    by          column or columns that group the runs, such as `provider`
    runs        with a steps frame, its runs frame: more columns for `goal` and `by`, and runs that took no step
    level       the confidence level of the intervals

    With `per="run"`, each row has the configuration (`configuration`, and a column for each axis), the ids of the run, and

    - `outcome`: `stopped` at `step`; `finished`, on its own before the limits; `unknown`, the record ends before they are met
    - `stop_reason` as a run would give it, and what `fired`: the conditions that were met, or the limit
    - `goal_reached`, `tokens`, `cost_usd`, `calls`, `time_s` up to there; and `tokens_saved` etc., compared with the record

    With `per="configuration"`, each row counts `runs`, independent `units`, and the runs that are `stopped`, `finished` and `unknown`,
    with `unknown_share`. `success_rate` is over the runs whose success is known, with its interval; `success_at_least` and
    `success_at_most` are over all runs, as if the others had failed or succeeded. `step`, `tokens`, `cost`, `calls` and `time` have
    the mean of the known values with its interval, the unknown share, and the amount `saved` per run.

    The means are over the runs whose end is known, which are mostly the short ones: if `unknown_share` is above 0, do not compare the
    means with those of other rows. `saved` compares the same runs: their mean in the record is `cost_mean` + `cost_saved`.

    Repeats of a prompt and replays of a recording are not independent. A unit is a prompt (`prompt_id`, else `prompt`) with all runs
    that share a `recording_id` with it. If all runs are of one prompt, units are recordings, or the runs themselves, and the intervals
    hold for that prompt only. They are computed as in `lab.summary`; NA for fewer than 5 units, and if all values are the same.

    `goal` is a condition or a function of the history (reached when it is first met), the name of a column of the runs such as
    `score`, or a dict or Series by run id (reached at the run's end if the value is at least 1). A run that ended in an error before
    these limits is `finished`, and has not reached its goal unless a condition says so; without a score it counts as failed.

    NA means unknown, never 0. Money is in US dollars. Errors: ConfigurationError for conditions and limits that cannot be tried,
    LimitError for an invalid limit.

    Example:
        >>> tried = lab.backtest([result, *others], lab.HasToolCall("finalize") | lab.StepCountIs([2, 4, 8]))
        >>> tried[["StepCountIs", "success_rate", "tokens_mean", "tokens_saved"]]
           StepCountIs  success_rate  tokens_mean  tokens_saved
        0            2           0.0   852.333333   1344.333333
        1            4      0.666667  2010.666667         186.0
        2            8           1.0  2196.666667           0.0
    """
    if per not in ("configuration", "run"):
        raise ConfigurationError(f"per={per!r}: choose 'configuration' or 'run'.")
    groups, level = ([] if by is None else columns_of(by)), checked_level(level)
    tried = grids(conditions, budget)
    records = records_of(recorded, runs)
    units = None
    if per == "configuration" and (units := units_of(records.about).codes) is not None:
        order = np.argsort(units, kind="stable")
        records, units = reordered(records, order), units[order]
    reached, is_open = goal_reached(records, goal)
    task = Task(records, tried, reached, is_open, units)
    return of_runs(task, groups) if per == "run" else of_configurations(task, groups, level=level)
