"""pass@k and pass^k: the chance that one of k attempts at a task succeeds, and that all k do.

lab.pass_at_k(results, k=(1, 3), by="agent")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import comb

from agentlab.analysis.groups import (
    By,
    checked,
    columns_of,
    each_once,
    failed_of,
    floats,
    has_ended,
    in_order,
    names_of,
    runs_of,
    scores_of,
    typed_frame,
    unit_of,
    units_of,
    whole_runs,
)
from agentlab.analysis.intervals import checked_level, of_mean, of_share
from agentlab.errors import ConfigurationError
from agentlab.records.frames import Recordings

_FIGURES = ("pass_at_k", "pass_at_low", "pass_at_high", "pass_hat_k", "pass_hat_low", "pass_hat_high")
_DTYPES: dict[str, Any] = {
    "k": "Int64",
    **dict.fromkeys(_FIGURES, "Float64"),
    **dict.fromkeys(("tasks", "runs", "too_few_runs", "unknown", "units"), "Int64"),
    **dict.fromkeys(("method", "no_interval"), "string"),
}


def pass_at_k(
    runs: Recordings | pd.DataFrame,
    k: int | Sequence[int] = 1,
    by: By = "agent",
    *,
    success_at: float = 1.0,
    level: float = 0.95,
    unit: By | None = None,
) -> pd.DataFrame:
    """Return one row per group and k: the chance that at least one of k runs of a task succeeds, and that all k do.

    `runs` is what `lab.summary` takes, with a column `score`; a score of `success_at` or more is a success, and a failed run is none.
    A task is a prompt (`prompt_id`, or `prompt`) with its settings. Of n runs of a task with c successes, the unbiased estimates are
    1 - C(n-c, k) / C(n, k) and C(c, k) / C(n, k) (M. Chen et al., Evaluating large language models trained on code, 2021; S. Yao et
    al., tau-bench, 2024). Columns, besides those of `by`:

    - `k`; `pass_at_k`, `pass_at_low`, `pass_at_high`; `pass_hat_k`, `pass_hat_low`, `pass_hat_high`: means over tasks
    - `tasks`, `runs`: those in the figures; `too_few_runs`: tasks with fewer than k runs, which are left out; `unknown`: runs whose
      score or task is unknown, which are left out
    - `units`: independent units; `method`, `no_interval`: how the interval is computed, or why there is none

    Errors: ConfigurationError if columns are missing, or k is below 1.

    Example:
        >>> import pandas as pd
        >>> runs = pd.DataFrame({"agent": "a", "prompt_id": [*"xxxyyy"], "score": [1, 0, 0, 1, 1, 0], "stop_reason": "completed"})
        >>> lab.pass_at_k(runs, k=(1, 2))[["agent", "k", "pass_at_k", "pass_hat_k", "tasks"]]
          agent  k  pass_at_k  pass_hat_k  tasks
        0     a  1        0.5         0.5      2
        1     a  2   0.833333    0.166667      2
    """
    columns, level, given = columns_of(by), checked_level(level), runs_of(runs, "lab.pass_at_k")
    counts = [*k] if isinstance(k, Sequence) else [k]
    if not counts or any(isinstance(one, bool) or not isinstance(one, int) or one < 1 for one in counts):
        raise ConfigurationError(f"k={k!r}: pass a whole number of at least 1, or several, such as k=(1, 5).")
    settings = [] if "settings" in columns or "settings" not in given.columns else ["settings"]
    task = [*(unit_of(given, None) or ["prompt_id"]), *settings]
    frame = whole_runs(each_once(checked(given, [*columns, *task, "score"], "lab.pass_at_k")))
    if {"terminated", "stop_reason"} & set(frame.columns):
        frame = frame[has_ended(frame)]
    scores, failed = floats(frame, "score"), failed_of(frame, "count")
    values = np.where(np.isnan(scores), np.where(failed, 0.0, scores_of(scores, failed)), (scores >= success_at).astype(float))
    marks: dict[str, Any] = {_TASK: names_of(frame, task, between="\x1f"), _GROUP: names_of(frame, columns), _VALUE: values}
    frame = frame.assign(**marks)
    rows, firsts = [], []
    for name in in_order(frame[_GROUP]):
        group = frame[frame[_GROUP] == name]
        known = group[group[_VALUE].notna() & group[task[0]].notna()]
        units = pd.Series(units_of(known, unit, _TASK), index=known[_TASK]).groupby(level=0).first()
        tasks = known.groupby(_TASK)[_VALUE].agg(["size", "sum"])
        for count in counts:
            enough = tasks[tasks["size"] >= count]
            size = [len(enough), int(enough["size"].sum()), len(tasks) - len(enough), len(group) - len(known)]
            rows.append([count, *_figures(enough, units, count, level, size)])
            firsts.append(group.iloc[:1][columns])
    table = typed_frame(rows, _DTYPES)
    front = pd.concat(firsts, ignore_index=True) if firsts else pd.DataFrame(columns=columns)
    return pd.concat([front, table], axis=1)


_TASK, _GROUP, _VALUE = "its task", "its group", "its success"


def _figures(tasks: pd.DataFrame, units: pd.Series[Any], k: int, level: float, size: list[int]) -> list[Any]:
    of, figures, both = units.reindex(tasks.index).to_numpy(), list[Any](), []
    for every in (False, True):
        each = chances(tasks["size"], tasks["sum"], k, every=every)
        sure = np.isin(each, (0, 1)).all()
        one = of_share(each, of, level=level) if sure else of_mean(each, of, level=level, least=0.0, most=1.0)
        figures += [one.value, one.low, one.high]
        both.append(one)
    method = next((one.method for one in both if one.method), None)
    why = "; ".join(dict.fromkeys(one.why for one in both if one.why)) or None
    return [*figures, *size, both[0].units, method, why]


def chances(runs: Any, successes: Any, k: int, *, every: bool) -> Any:
    """Return for each task the chance that k of its runs, drawn without replacement, have a success, or with `every` only successes."""
    runs, successes = np.asarray(runs, dtype=float), np.asarray(successes, dtype=float)
    return comb(successes, k) / comb(runs, k) if every else 1 - comb(runs - successes, k) / comb(runs, k)
