"""The result of `lab.tune`: all trials, the Pareto front on held-out tasks, and the best agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import counted
from agentlab._internal.safe_text import cut, one_line, printable
from agentlab.agent import Agent
from agentlab.analysis.groups import failed_of, floats, scores_of, units_of
from agentlab.analysis.intervals import Estimate, of_mean, of_share
from agentlab.errors import ConfigurationError
from agentlab.experiments.frames import usage_columns
from agentlab.experiments.search_space import Space
from agentlab.experiments.shared_budget import Spent
from agentlab.experiments.tasks import Tasks
from agentlab.limits.fields import unknown_name
from agentlab.records.columns import RUN_COLUMNS
from agentlab.records.frames import array

if TYPE_CHECKING:
    import optuna
    from matplotlib.axes import Axes

WHAT_IF, LIVE = "what-if", "live"
COLUMNS = {column.name: column.dtype for column in RUN_COLUMNS if column.dtype in ("Int64", "Float64", "boolean")}
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "interrupted", "WAITING": "waiting"}


class UnknownValueError(Exception):
    """A trial has no value, with the reason."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A numeric column of the runs, and whether less of it is better."""

    column: str
    minimized: bool = False

    @property
    def written(self) -> str:
        """The objective as users write it."""
        return "-" * self.minimized + self.column

    @property
    def is_score(self) -> bool:
        """True for the score, or a part of it."""
        return self.column == "score" or self.column.startswith("score.")


def objectives_of(given: object, *, scored: bool) -> tuple[Objective, ...]:
    """Return the objectives. Raises ConfigurationError."""
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, Sequence) or not listed or not all(isinstance(one, str) for one in listed):
        raise ConfigurationError(f"objectives={given!r}: pass columns of results.runs, such as ['score', '-cost_usd'].")
    found = tuple([Objective(one.removeprefix("-"), one.startswith("-")) for one in listed])
    for one in found:
        if one.is_score and not scored:
            raise ConfigurationError(
                f"objectives: {one.column!r} needs an experiment with score=…; 'terminated' is the share of runs that finish on "
                "their own."
            )
        if not one.is_score and one.column not in COLUMNS:
            raise ConfigurationError(f"objectives: {unknown_name('numeric column', one.column, ['score', *COLUMNS])}")
    if len({one.column for one in found}) < len(found):
        raise ConfigurationError(f"objectives={given!r}: a column occurs twice.")
    return found


def values_so_far(runs: pd.DataFrame, goal: Objective) -> Any:
    """Return the value of each run, with sub-agents in its usage; NaN: unknown. Raises UnknownValueError without such a column."""
    if goal.column not in runs.columns:
        raise UnknownValueError(f"the runs have no column {goal.column!r}: the scorer returned no such score")
    values = floats(runs, goal.column)
    if not goal.is_score:
        return values
    return scores_of(values, failed_of(runs, "count"), like=np.zeros(1))  # if all have failed so far: as with scores of 0 and 1


def values_of(runs: pd.DataFrame, goal: Objective) -> Any:
    """Return the values of all runs. Raises UnknownValueError if one is unknown, or if all runs failed."""
    values = values_so_far(runs, goal)
    if failed_of(runs, "count").all():
        raise UnknownValueError(f"all {counted(len(runs), 'run')} failed: {runs['detail'].iloc[0]}")
    if unknown := int(np.isnan(values).sum()):
        errors = runs["score_error"].dropna().tolist() if goal.is_score else []
        reason = f": {errors[0]}" if errors else ""
        raise UnknownValueError(f"{goal.column} is unknown in {unknown} of {counted(len(values), 'run')}{reason}")
    return values


def estimated(runs: pd.DataFrame, goal: Objective) -> Estimate:
    """Return the mean with the interval of `lab.summary`; a unit is a task. Raises UnknownValueError as `values_of`."""
    values, units = values_of(runs, goal), units_of(runs, None)
    if COLUMNS.get(goal.column) == "boolean" or (goal.is_score and np.isin(values, (0, 1)).all()):
        return of_share(values, units)
    if goal.is_score:
        return of_mean(values, units, **({"least": 0.0, "most": 1.0} if values.min() >= 0 and values.max() <= 1 else {}))
    return of_mean(values, units, least=0.0)


# Frames ---------------------------------------------------------------------------------------------------------------------------


def trials_frame(study: optuna.Study, space: Space, goals: Sequence[Objective], front: Sequence[int]) -> pd.DataFrame:
    """Return one row per trial, with the means on the tuning tasks."""
    trials = study.get_trials(deepcopy=False)
    continued = [one.state.name == "FAIL" and bool(one.user_attrs.get("interrupted")) for one in trials]
    columns: dict[str, Any] = {
        "number": array([one.number for one in trials], "Int64"),
        "state": array(
            ["interrupted" if other else STATES[one.state.name] for one, other in zip(trials, continued, strict=True)], "string"
        ),
        "how": array([one.user_attrs.get("how") for one in trials], "string"),
        **_parameters(space, [one.params for one in trials]),
    }
    for place, goal in enumerate(goals):  # a pruned trial has its last running mean as value
        values = [one.values[place] if one.values and one.state.name == "COMPLETE" else None for one in trials]
        columns[goal.column] = array(values, "Float64")
    columns["on_front"] = array([one.number in front for one in trials], "boolean")
    for name in ("runs", "tasks"):
        columns[name] = array([one.user_attrs.get(name) for one in trials], "Int64")
    paid = [None if other else one.user_attrs.get("paid") for one, other in zip(trials, continued, strict=True)]
    spent = [None if one is None else Spent(one[0], one[1], Decimal(one[2]), *one[3:]) for one in paid]
    columns |= zip(("paid_calls", "paid_tokens", "paid_usd"), usage_columns(spent), strict=True)
    whys = [one.user_attrs.get("why") for one in trials]
    columns["why"] = array(
        [
            "its process ended; another trial continues it" if other else why or None
            for why, other in zip(whys, continued, strict=True)
        ],
        "string",
    )
    return pd.DataFrame(columns)


Measured = tuple["optuna.trial.FrozenTrial", pd.DataFrame | None, str, str]
"""A trial on the front, its held-out runs (None: not run), how they came about, and why."""


def front_frame(front: Sequence[Measured], space: Space, goals: Sequence[Objective]) -> pd.DataFrame:
    """Return one row per trial on the front, with the figures on the held-out tasks."""
    columns: dict[str, Any] = {
        "number": array([one.number for one, *_ in front], "Int64"),
        **_parameters(space, [one.params for one, *_ in front]),
    }
    whys = [why for *_, why in front]
    notes: list[dict[str, list[str]]] = [{"methods": [], "no_interval": []} for _ in front]
    for place, goal in enumerate(goals):
        found = []
        for row, (_, runs, _, _) in enumerate(front):
            estimate = Estimate(None, None, None, 0)
            try:
                estimate = estimate if runs is None else estimated(runs, goal)
            except UnknownValueError as error:
                whys[row] = str(error)
            found.append(estimate)
            for name, text in (("methods", estimate.method), ("no_interval", estimate.why)):
                notes[row][name] += [f"{goal.column}: {text}"] if text else []
        columns[goal.column] = array([one.value for one in found], "Float64")
        columns[f"{goal.column}_low"] = array([one.low for one in found], "Float64")
        columns[f"{goal.column}_high"] = array([one.high for one in found], "Float64")
        columns[f"{goal.column}_tuning"] = array([one.values[place] for one, *_ in front], "Float64")
    frames = [runs for _, runs, _, _ in front]
    columns["runs"] = array([None if runs is None else len(runs) for runs in frames], "Int64")
    columns["units"] = array([None if runs is None else len(np.unique(units_of(runs, None))) for runs in frames], "Int64")
    columns["how"] = array([how or None for _, _, how, _ in front], "string")
    for name in ("methods", "no_interval"):
        columns[name] = array(["; ".join(note[name]) or None for note in notes], "string")
    columns["why"] = array([why or None for why in whys], "string")
    return pd.DataFrame(columns)


def _parameters(space: Space, chosen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a column for each parameter: whole numbers, numbers, truth values, or texts."""
    return {name: _column([one.get(name) for one in chosen], parameter.choices) for name, parameter in space.parameters.items()}


def _column(values: list[Any], choices: Iterable[Any]) -> Any:
    kinds = {type(one) for one in (*values, *choices) if one is not None}
    for dtype, fitting in (("boolean", {bool}), ("Int64", {int}), ("Float64", {int, float})):
        if kinds and kinds <= fitting:
            return array(values, dtype)
    return array([None if one is None else str(one) for one in values], "string")


# The result -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Tuning(Displayable):
    """The result of `lab.tune`. What is reported is in `front`: figures from tasks that the search has not seen.

    Example:
        >>> tasks = [f"Is umbrella {number} here?" for number in range(10)]
        >>> study = lab.Experiment({"endless": endless}, tasks, [dict(budget=lab.Budget(max_turns=4))])
        >>> results = await study.run(progress=False)
        >>> tuned = await lab.tune(study, {"max_turns": [1, 2, 4]}, objectives="-cost_usd", trials=8, progress=False)
        >>> tuned.trials[["number", "state", "how", "max_turns", "cost_usd", "paid_calls"]].head(2)
           number     state      how  max_turns  cost_usd  paid_calls
        0       0  complete  what-if          2      0.02           0
        1       1  complete  what-if          4      0.04           0
    """

    name: str
    study: optuna.Study = field(repr=False)
    """The study of Optuna, for its importances and plots."""
    objectives: tuple[Objective, ...]
    trials: pd.DataFrame = field(repr=False)
    """One row per trial: `state`, `how` (what-if or live), the parameters, the means of the objectives on the tuning tasks, `on_front`,
    the number of `runs` and `tasks`, the usage of its live runs (`paid_calls`, `paid_tokens`, `paid_usd`), and `why`."""
    front: pd.DataFrame = field(repr=False)
    """The Pareto-optimal trials, the best by the first objective first. Each objective has its mean on the held-out tasks with a 95 %
    interval, and `<objective>_tuning`, the mean by which the trial was chosen, which is optimistic. `units` is the number of
    independent tasks; `methods` names the intervals, and `no_interval` has the reason for a missing one."""
    tuning_tasks: Tasks = field(repr=False)
    held_out_tasks: Tasks = field(repr=False)
    spent: Spent
    """The usage of all live runs, held-out ones included."""
    ended: str
    """Why there are fewer trials than requested; empty if there are not."""
    in_words: str
    """The search and its best trial."""
    space: Space = field(repr=False)

    @property
    def best(self) -> dict[str, Any] | None:
        """The row of `front`, as a dict, that is best by the first objective on the tuning tasks; None if no trial has a value. The
        held-out tasks have no part in the choice, so its figures are not optimistic.

        Example:
            >>> tasks = [f"Is umbrella {number} here?" for number in range(10)]
            >>> study = lab.Experiment({"endless": endless}, tasks, [dict(budget=lab.Budget(max_turns=4))])
            >>> results = await study.run(progress=False)
            >>> tuned = await lab.tune(study, {"max_turns": [1, 2, 4]}, objectives="-cost_usd", trials=8, progress=False)
            >>> tuned.best["max_turns"], tuned.best["cost_usd"]
            (1, 0.01)
        """
        return next((dict(zip(map(str, row), row.values(), strict=True)) for row in self.front.to_dict("records")), None)

    def agent(self, number: int | None = None) -> Agent:
        """Return the agent of a trial, whose limits are the defaults of its runs. None: of the best one. A template of prompts is no
        part of it: see `Tasks.with_prompt`.

        Example:
            >>> tasks = [f"Is umbrella {number} here?" for number in range(10)]
            >>> study = lab.Experiment({"endless": endless}, tasks, [dict(budget=lab.Budget(max_turns=4))])
            >>> results = await study.run(progress=False)
            >>> tuned = await lab.tune(study, {"max_turns": [1, 2, 4]}, objectives="-cost_usd", trials=8, progress=False)
            >>> tuned.agent()
            Agent(scripted:script, tools=[search], budget=Budget(max_turns=1))
        """
        if number is None and self.best is None:
            raise ConfigurationError(f"No trial has a value, see the column why of trials. {self.ended}".strip())
        chosen = int(self.best["number"]) if number is None and self.best is not None else number
        trials = {one.number: one for one in self.study.get_trials(deepcopy=False)}
        if chosen is None or chosen not in trials:
            raise ConfigurationError(f"There is no trial {number!r}: choose one of 0 to {len(trials) - 1}.")
        return self.space.agent(trials[chosen].params)

    def plot(self, **options: Any) -> Axes:
        """Draw the trials and the front; see `lab.plots.tuning`.

        Example:
            >>> tasks = [f"Is umbrella {number} here?" for number in range(10)]
            >>> study = lab.Experiment({"endless": endless}, tasks, [dict(budget=lab.Budget(max_turns=4))])
            >>> results = await study.run(progress=False)
            >>> tuned = await lab.tune(study, {"max_turns": [1, 2, 4]}, objectives="-cost_usd", trials=8, progress=False)
            >>> tuned.plot().alt
            'Cost_usd on the tuning tasks of 8 trials. On the front, on 3 held-out tasks: trial 7 (0.01).'
        """
        from agentlab.plots import tuning

        return tuning(self, **options)

    def __repr__(self) -> str:
        return printable(cut(f"Tuning({self.name!r}, {self.in_words})", 2_000))


def in_words(
    trials: pd.DataFrame, front: pd.DataFrame, *, space: Space, goals: Sequence[Objective], spent: Spent, held_out: int
) -> str:
    """Return a search and its best trial in words."""
    counts = trials["how"].fillna("without runs").value_counts(sort=False)
    found = ", ".join(f"{number} {how}" for how, number in counts.items())
    how = "all what-if, no request" if [*counts.index] == [WHAT_IF] and not spent.calls else f"{found}; {spent!r}"
    parts = [f"{counted(len(trials), 'trial')}, {how}"]
    for best in front[:1].to_dict("records"):
        values = ", ".join(f"{name}={one_line(str(best[name]), 80)}" for name in space.parameters)
        figures = ", ".join(_figure(best, goal.column) for goal in goals)
        parts.append(f"best of {len(front)} on the front: {values}: {figures} on {counted(held_out, 'held-out task')}")
    return "; ".join(parts if len(front) else [*parts, "no trial has a value"])


def _figure(row: Mapping[Any, Any], column: str) -> str:
    value, low, high = (row[f"{column}{end}"] for end in ("", "_low", "_high"))
    if pd.isna(value):
        return f"{column} unknown"
    return f"{column} {value:.4g}" + ("" if pd.isna(low) else f" [{low:.4g}, {high:.4g}]")
