"""Search over settings with Optuna: what-if on recorded runs where that is exact, live runs elsewhere, one budget, held-out tasks.

tuned = await lab.tune(study, {"max_turns": [2, 4, 8], "temperature": (0.0, 1.0)}, trials=30, budget=Budget(max_cost=1))
tuned.front                        # the Pareto-optimal trials, measured on tasks that the search has not seen
await tuned.agent().run("…")       # the best one
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from agentlab._internal import redaction
from agentlab._internal.asyncio_tools import needs_await
from agentlab._internal.formatting import counted
from agentlab._internal.kernel import waiting
from agentlab._internal.names import helps_with_keywords
from agentlab.agent import Agent
from agentlab.analysis.groups import failed_of, whole_runs
from agentlab.engine.call_context import LEAST_USD
from agentlab.errors import ConfigurationError, StorageError
from agentlab.experiments.experiment import Experiment
from agentlab.experiments.grid import Cell
from agentlab.experiments.recorded import answered_by, under_limits
from agentlab.experiments.results import ExperimentResults
from agentlab.experiments.runner import is_shared_by_processes
from agentlab.experiments.scoring import code_version
from agentlab.experiments.search_space import Plain, Space
from agentlab.experiments.shared_budget import PART_OF, SharedBudget, Spent, check_budget, spent_before
from agentlab.experiments.status import Progress
from agentlab.experiments.tasks import Tasks
from agentlab.experiments.tuning import (
    LIVE,
    WHAT_IF,
    Objective,
    Tuning,
    UnknownValueError,
    front_frame,
    in_words,
    objectives_of,
    trials_frame,
    values_of,
    values_so_far,
)
from agentlab.limits.budget import Budget
from agentlab.limits.fields import whole_number
from agentlab.storage.store import ENDED

if TYPE_CHECKING:
    import optuna

SEARCH = "search"
TUNE = ".tune-"
"""Between the name of the experiment and the hash of the chosen values, in the run ids of live trials."""
RESERVED = "the rest of the budget is reserved for the held-out runs"


@needs_await("lab.tune(…)")
@helps_with_keywords
async def tune(
    experiment: Experiment,
    space: Mapping[str, Any],
    *,
    objectives: str | Sequence[str] = ("score", "-cost_usd"),
    trials: int = 30,
    held_out: float = 0.3,
    budget: Budget | None = None,
    sampler: optuna.samplers.BaseSampler | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
    storage: str | Path | optuna.storages.BaseStorage | None = None,
    seed: int = 0,
    concurrency: int = 8,
    progress: bool = True,
) -> Tuning:
    """Search for the best settings of an experiment with Optuna, and measure those it finds on tasks that it has not seen.

    experiment   its agent, tasks, repeats and score. Runs that its store has already are the record for what-if
    space        the values of each parameter: a list, a range `(2, 16)` or `(0.001, 0.1, "log")`, or a distribution of Optuna.
                 Parameters: the limits of a Budget, `stop`, `model`, `instructions`, `prompt` (a template such as
                 "{prompt} Be brief."), `temperature` and the other parameters of a request; `agent` and `settings`, by name, if the
                 experiment has several. A stop condition may have lists
    objectives   one or several numeric columns of `results.runs`, such as `score` or `terminated`, with a minus to minimize
    trials       the number of trials in the study, those of earlier calls with the same `storage` included
    held_out     the share of tasks that only the trials on the Pareto front are run on, after the search
    budget       for all live runs of the search together: max_calls, max_tokens, max_cost, and the timeout of this call. None: that of
                 the experiment. The search leaves the share that the held-out runs are expected to need
    sampler      any sampler of Optuna; None: TPESampler with this seed
    pruner       any pruner of Optuna, for one objective: it reads the mean over the first 1, 2, … runs, see below, and a pruned trial
                 starts no further run
    storage      a path or URL of a database, or a storage of Optuna, which resumes; the experiment then needs a store on disk. None: in
                 memory. One process at a time
    seed         of the split into tuning and held-out tasks, and of the default sampler

    A trial is a what-if if all its runs are exactly known from recorded runs that differ in limits only, of the experiment or of an
    earlier trial: it sends no request. Otherwise all its runs are live, in the store of the experiment. The column `how` says which.
    If a run has an unknown value of an objective, if all runs fail, or if the trial raises, its state is `failed`, and `why` has the
    reason. Single runs that fail count as in `lab.summary`, and `why` counts them.

    A pruner is asked after each run, task by task. The order is the same in each trial, whichever run ends first: the runs that end
    first tend to be short ones, and a mean over them is not comparable between trials. A run has no value before its end, since its
    score is unknown until then. With a pruner, `concurrency` runs start together, and the next ones when all of them have ended.

    Needs the extra agentlab-jupyter[tune]. Errors: ConfigurationError, LimitError for an invalid limit.

    Example:
        >>> tasks = [f"Is umbrella {number} here?" for number in range(10)]
        >>> study = lab.Experiment({"endless": endless}, tasks, [dict(budget=lab.Budget(max_turns=4))])
        >>> results = await study.run(progress=False)
        >>> tuned = await lab.tune(study, {"max_turns": [1, 2, 4]}, objectives="-cost_usd", trials=8, progress=False)
        >>> tuned
        Tuning('experiment', 8 trials, all what-if, no request; best of 1 on the front: max_turns=1: cost_usd 0.01 on 3 held-out tasks)
        >>> tuned.front[["max_turns", "cost_usd", "cost_usd_tuning", "units", "how"]]
           max_turns  cost_usd  cost_usd_tuning  units      how
        0          1      0.01             0.01      3  what-if
    """
    try:
        import optuna as _  # noqa: F401
    except ImportError as error:
        raise ConfigurationError("lab.tune needs Optuna: pip install 'agentlab-jupyter[tune]'.") from error
    if not isinstance(experiment, Experiment):
        raise ConfigurationError(f"experiment={experiment!r}: pass a lab.Experiment; it knows the runs that its store has.")
    check_budget(budget)
    for name, value in (("trials", trials), ("concurrency", concurrency)):
        whole_number("lab.tune", name, value)
    goals = objectives_of(objectives, scored=experiment.score is not None)
    if pruner is not None and len(goals) > 1:
        raise ConfigurationError("pruner: Optuna prunes for one objective only. Pass one objective, or no pruner.")
    parts = _split(experiment.grid.tasks, held_out, seed)
    search = _Search(experiment, Space(space, experiment.grid), goals, parts, budget=budget, concurrency=concurrency)
    search.open(storage, sampler, pruner, seed)
    async with waiting():
        await search.run(trials, progress=progress)
        return await search.reported(trials)


def _split(tasks: Tasks, held_out: object, seed: int) -> tuple[Tasks, Tasks]:
    """Return the tuning tasks and the held-out tasks. Tasks with the same text are in the same part."""
    if isinstance(held_out, bool) or not isinstance(held_out, int | float) or not 0 < held_out < 1:
        raise ConfigurationError(f"held_out={held_out!r}: pass a share between 0 and 1, such as 0.3.")
    texts = sorted({task.text for task in tasks}, key=lambda text: hashlib.sha256(f"{seed} {text}".encode()).digest())
    number = round(len(texts) * held_out)
    if not 0 < number < len(texts):
        raise ConfigurationError(
            f"held_out={held_out!r} of {len(texts)} different tasks leaves no {'tuning' if number else 'held-out'} task: pass more "
            "tasks, or another share."
        )
    kept = set(texts[:number])
    return tasks.where(lambda task: task.text not in kept), tasks.where(lambda task: task.text in kept)


class _OutOfBudgetError(Exception):
    """The budget of the search is spent; the trial stays open and is resumed."""


@dataclass(frozen=True, slots=True)
class _Configuration:
    """The chosen values, the agent that has them, and the name of its experiment in the store."""

    chosen: Mapping[str, Plain]
    agent: Agent
    name: str
    answered_by: str


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of a trial. `is_own`: a what-if on runs of the experiment itself."""

    frame: pd.DataFrame
    how: str
    why: str = ""
    pruned: bool = False
    is_own: bool = False


class _Search:
    def __init__(
        self,
        experiment: Experiment,
        space: Space,
        goals: tuple[Objective, ...],
        parts: tuple[Tasks, Tasks],
        *,
        budget: Budget | None,
        concurrency: int,
    ) -> None:
        self.experiment, self.space, self.goals, self.concurrency = experiment, space, goals, concurrency
        self.tuning, self.held_out = parts
        self.ratio = Decimal(len(self.held_out)) / len(self.tuning)
        self.budget = SharedBudget(budget or experiment.budget, None, {})
        self.ended = ""
        self.prunes = False
        self._recorded: dict[tuple[str, str], ExperimentResults] = {}

    # The study of Optuna ------------------------------------------------------------------------------------------------

    def open(self, storage: Any, sampler: Any, pruner: Any, seed: int) -> None:
        """Create or load the study. Raises ConfigurationError if it was made with other parts."""
        import optuna

        self.experiment.results()  # raises if the store has other runs under the same ids
        in_memory = storage is None or isinstance(storage, optuna.storages.InMemoryStorage)
        if not in_memory and not is_shared_by_processes(self.experiment.store):
            raise ConfigurationError(
                "storage keeps the trials, but the runs are in memory only: give the experiment a store, such as store='study.db'."
            )
        if isinstance(storage, Path) or (isinstance(storage, str) and "://" not in storage):
            storage = f"sqlite:///{storage}"
        if isinstance(storage, str) and storage.startswith("sqlite:///") and ":memory:" not in storage:
            from sqlalchemy.pool import NullPool  # Optuna requires it; kept connections to a file would stay open for good

            storage = optuna.storages.RDBStorage(storage, engine_kwargs={"poolclass": NullPool})
        self.prunes = pruner is not None
        level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would print that a study was created
        try:
            self.study = optuna.create_study(
                storage=storage,
                study_name=self.experiment.grid.name,
                load_if_exists=True,
                pruner=pruner or optuna.pruners.NopPruner(),
                directions=["minimize" if goal.minimized else "maximize" for goal in self.goals],
            )
        finally:
            optuna.logging.set_verbosity(level)
        # the same seed would draw the first trials again
        self.study.sampler = sampler or optuna.samplers.TPESampler(seed=seed + len(self.study.get_trials(deepcopy=False)))
        parts = {
            "space": repr(self.space.distributions),
            "objectives": repr([goal.written for goal in self.goals]),
            "tasks": f"{self.tuning.version} {self.held_out.version}",
            "agents and settings": _hash(*(answered_by(self._configuration(one).agent) for one in self._bases())),
            "score": code_version(self.experiment.score),
        }
        before = self.study.user_attrs.get("agentlab", parts)
        other = [name for name, value in parts.items() if before.get(name) != value]
        if other:
            raise ConfigurationError(
                f"The storage has a study {self.experiment.grid.name!r} with other {' and other '.join(other)}: give the experiment "
                "another name=…, or use another storage."
            )
        self.study.set_user_attr("agentlab", parts)

    def _bases(self) -> list[dict[str, Plain]]:
        """Return the choices of agent and settings alone."""
        named = [name for name in ("agent", "settings") if name in self.space.parameters]
        lists = [list(self.space.parameters[name].choices) for name in named]
        return [dict(zip(named, values, strict=True)) for values in itertools.product(*lists)]

    def _finished(self) -> list[optuna.trial.FrozenTrial]:
        """Return the trials that have ended, without those that a kill interrupted: others have taken their place."""
        trials = self.study.get_trials(deepcopy=False)
        return [one for one in trials if one.state.is_finished() and not one.user_attrs.get("interrupted")]

    def _tell(self, number: int, state: Any, values: Sequence[float] | None = None) -> None:
        try:
            self.study.tell(number, values, state=state)
        except RuntimeError:  # a sampler that has tried everything calls study.stop(), which is for study.optimize only
            if not self.study.get_trials(deepcopy=False)[number].state.is_finished():
                raise
            self.ended = "the sampler has tried all combinations"

    # The search -----------------------------------------------------------------------------------------------------------

    async def run(self, trials: int, *, progress: bool) -> None:
        """Do the trials that are missing, as far as the budget allows."""
        from optuna.trial import TrialState

        for left in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._tell(left.number, TrialState.FAIL)
            self.study.enqueue_trial(left.params)
        is_exhausted = getattr(self.study.sampler, "is_exhausted", lambda study: False)
        self.ended = "the sampler has tried all combinations" if is_exhausted(self.study) else ""
        bars = Progress({"trials": trials}, {"trials": min(trials, len(self._finished()))}, shown=progress)
        try:
            while not self.ended and len(self._finished()) < trials:
                trial = self.study.ask(self.space.distributions)
                trial.set_user_attr("interrupted", True)
                await self._try(trial)
                bars.spent("trials", SEARCH, self._spent())
                if not self.ended:
                    bars.ended("trials", failed=False)
        finally:
            bars.close()

    async def _try(self, trial: optuna.Trial) -> None:
        from optuna.trial import TrialState

        configuration = self._configuration(trial.params)
        notes: dict[str, Any] = {"configuration": configuration.name}
        state, values = TrialState.FAIL, cast("list[float] | None", None)
        try:
            runs = await self._runs(configuration, self.tuning, trial)
            failed = int(failed_of(runs.frame, "count").sum())
            why = "; ".join(filter(None, [f"{counted(failed, 'run')} failed" if failed else "", runs.why]))
            notes |= {"how": runs.how, "why": why, "runs": len(runs.frame), "tasks": runs.frame["prompt_id"].nunique()}
            notes |= {"usage": _usage(runs.frame), "is_own": runs.is_own}
            if runs.pruned:
                state = TrialState.PRUNED
            else:
                values = [float(values_of(runs.frame, goal).mean()) for goal in self.goals]
                state = TrialState.COMPLETE
        except _OutOfBudgetError as error:
            self.ended = str(error)
            for name, value in {"why": self.ended, "paid": _written(self._paid(configuration))}.items():
                trial.set_user_attr(name, value)
            return
        except StorageError:
            raise
        except Exception as error:
            notes["why"] = redaction.redact(str(error)) if isinstance(error, UnknownValueError) else redaction.in_words(error)
        notes["paid"] = _written(self._paid(configuration))
        for name, value in {**notes, "interrupted": False}.items():
            trial.set_user_attr(name, value)
        self._tell(trial.number, state, values)

    async def _runs(self, configuration: _Configuration, tasks: Tasks, trial: optuna.Trial | None = None) -> _Runs:
        """Return the runs of a configuration on these tasks: recorded ones under its limits if they are exactly known, else live."""
        reasons = []
        for record, is_own in self._records(configuration, tasks):
            found = await under_limits(record, configuration.agent)
            if not isinstance(found, str):
                found = whole_runs(found)
                self._report(trial, found)
                return _Runs(found, WHAT_IF, "" if is_own else "from the runs of an earlier trial", is_own=is_own)
            reasons += [found] if is_own else []
        why = f"live since {reasons[0]}" if reasons else "live since no recorded run differs in limits only"
        number = len(self._cells(configuration, tasks))
        ends = range(self.concurrency, number, self.concurrency) if trial is not None and self.prunes else ()
        for begin, end in itertools.pairwise([0, *ends, number]):
            live = self._study_of(configuration, tasks, end)
            live.budget = self._allowance(live, reserve=trial is not None)
            results, _ = await live._run(self.concurrency, None, False, False)
            if results.left_out:
                raise _OutOfBudgetError(self._over() or RESERVED)
            if results.problems:
                raise UnknownValueError(next(iter(results.problems.values())))
            runs = whole_runs(results.runs)
            if pruned_after := self._report(trial, runs, begin, of=number):
                return _Runs(runs, LIVE, f"pruned after {pruned_after} of {number} runs", pruned=True)
        return _Runs(runs, LIVE, why)

    def _report(self, trial: optuna.Trial | None, runs: pd.DataFrame, after: int = 0, *, of: int = 0) -> int:
        """Report the mean over the first runs to the pruner: of `after` + 1, and so on. Return the number at which it prunes, below
        `of`; 0: it does not. The runs are in the same order in each trial, whichever ends first, and the pruner is asked after each of
        them, so that it decides the same at any concurrency."""
        if trial is not None and self.prunes:
            means = values_so_far(runs, self.goals[0]).cumsum() / range(1, len(runs) + 1)
            for number in range(after + 1, len(runs) + 1):
                if math.isnan(means[number - 1]):
                    values_of(runs, self.goals[0])  # raises, with the reason
                trial.report(float(means[number - 1]), number)
                if number < of and trial.should_prune():
                    return number
        return 0

    # Experiments of the store ---------------------------------------------------------------------------------------------

    def _configuration(self, chosen: Mapping[str, Plain], name: str = "") -> _Configuration:
        agent, values = self.space.agent(chosen), [f"{name}={chosen[name]!r}" for name in sorted(chosen)]
        made_of = _hash(answered_by(agent), self.space.template(chosen))
        return _Configuration(chosen, agent, name or f"{self.experiment.grid.name}{TUNE}{_hash(*values)}", made_of)

    def _cells(self, configuration: _Configuration, tasks: Tasks) -> list[Cell]:
        """Return the cells of a configuration, task by task."""
        names, place = self.space.cell_names(configuration.chosen), {task: number for number, task in enumerate(tasks.ids)}
        cells = [cell for cell in self.experiment.grid.cells if (cell.agent, cell.settings) == names and cell.prompt_id in place]
        return sorted(cells, key=lambda cell: (place[cell.prompt_id], cell.repeat))

    def _study_of(self, configuration: _Configuration, tasks: Tasks, first: int | None = None) -> Experiment:
        """Return the experiment with the runs of a configuration, or its first ones, whose limits are those of the agent."""
        agent_name, settings_name = self.space.cell_names(configuration.chosen)
        grid, is_own = self.experiment.grid, configuration.name == self.experiment.grid.name
        agents = {agent_name: grid.agents[agent_name] if is_own else configuration.agent}
        settings = {settings_name: grid.settings[settings_name] if is_own else {}}
        cells, asked = self._cells(configuration, tasks)[:first], self.space.tasks(tasks, configuration.chosen)
        return self.experiment.variant(cells, agents, asked, settings, name=configuration.name)

    def _records(self, configuration: _Configuration, tasks: Tasks) -> Iterator[tuple[ExperimentResults, bool]]:
        """Yield recorded runs that differ from those of the configuration in limits only: the experiment's, then earlier trials'."""
        named = {name: value for name, value in configuration.chosen.items() if name in ("agent", "settings")}
        own = self._configuration(named, self.experiment.grid.name)
        live = {one.user_attrs["configuration"]: one.params for one in self._finished() if one.user_attrs.get("how") == LIVE}
        for known in (own, *(self._configuration(params) for params in live.values())):
            if known.answered_by == configuration.answered_by:
                key = (known.name + str(self.space.cell_names(known.chosen)), tasks.version)
                results = self._recorded.get(key) or self._study_of(known, tasks).results()
                if all(one.state == ENDED for one in results.statuses):
                    self._recorded[key] = results
                yield results, known is own

    # The budget -----------------------------------------------------------------------------------------------------------

    def _spent(self, ids: Set[str] | None = None) -> Spent:
        """Return the usage of these runs in the store; None: of all live runs of the search."""
        storage, prefix = self.experiment.store.storage, f"{self.experiment.grid.name}{TUNE}"
        stored = [
            one for one in storage.runs() if (one.head.run_id.startswith(prefix) if ids is None else one.head.run_id in ids)
        ]
        return sum([spent for parts in spent_before(storage, stored).values() for spent in parts.values()], Spent())

    def _paid(self, configuration: _Configuration) -> Spent:
        """Return what the runs of this configuration have used, without what an earlier trial with the same values paid."""
        earlier = [one.user_attrs["paid"] for one in self._finished() if one.user_attrs["configuration"] == configuration.name]
        before = sum([Spent(calls, tokens, Decimal(usd)) for calls, tokens, usd, *_ in earlier], Spent())
        ids = {f"{configuration.name}#{cell.label}" for cell in self._cells(configuration, self.tuning)}
        return Spent().with_part(before, self._spent(ids))

    def _over(self) -> str:
        self.budget.book(SEARCH, self._spent())
        return self.budget.spent_up()

    def _allowance(self, live: Experiment, *, reserve: bool) -> Budget | None:
        """Return the budget for these runs, with `reserve` without what held-out runs are expected to need, their own included."""
        if self.budget.budget is None:
            return None
        if why := self._over():
            raise _OutOfBudgetError(why)
        front = [one.user_attrs["usage"] for one in self._front() if not one.user_attrs["is_own"]] if reserve else []
        used, given = live.results().spent, dict[str, Any]()
        for place, (limit, part) in enumerate(PART_OF.items()):
            if limit in self.budget.left:
                kept = self.ratio * sum([Decimal(str(usage[place])) for usage in front], Decimal(0))
                free = (Decimal(self.budget.left[limit]) - kept) / ((1 + self.ratio) if reserve else 1)
                if free <= 0:
                    raise _OutOfBudgetError(RESERVED)
                most = free + getattr(used, part)
                given[limit] = max(LEAST_USD, most) if limit == "max_cost" else max(1, math.floor(most))
        return Budget(max_turns=None, timeout=self.budget.time_left_s, missing_usage=self.budget.budget.missing_usage, **given)

    # The report -----------------------------------------------------------------------------------------------------------

    def _front(self) -> list[optuna.trial.FrozenTrial]:
        """Return the Pareto-optimal trials on the tuning tasks, the best by the first objective first; of equal settings the first."""
        sign = [1 if goal.minimized else -1 for goal in self.goals]
        firsts: dict[str, optuna.trial.FrozenTrial] = {}
        for one in sorted(self.study.best_trials, key=lambda one: [a * b for a, b in zip(sign, one.values, strict=True)]):
            firsts.setdefault(one.user_attrs["configuration"], one)
        return list(firsts.values())

    async def reported(self, wanted: int) -> Tuning:
        """Run the trials on the front on the held-out tasks, and return the whole search."""
        rows: list[tuple[optuna.trial.FrozenTrial, _Runs | None, str]] = []
        for one in self._front():
            try:
                runs = await self._runs(self._configuration(one.params), self.held_out)
                rows.append((one, runs, runs.why))
            except StorageError:
                raise
            except Exception as error:
                why = str(error) if isinstance(error, _OutOfBudgetError) else redaction.in_words(error)
                rows.append((one, None, f"not measured on the held-out tasks: {why}"))
        known = [(one, None if runs is None else runs.frame, "" if runs is None else runs.how, why) for one, runs, why in rows]
        trials = trials_frame(self.study, self.space, self.goals, [one.number for one, *_ in rows])
        front, spent, done = front_frame(known, self.space, self.goals), self._spent(), len(self._finished())
        return Tuning(
            self.experiment.grid.name,
            self.study,
            self.goals,
            trials,
            front,
            self.tuning,
            self.held_out,
            spent,
            f"Ended after {done} of {counted(wanted, 'trial')}, since {self.ended}." if self.ended and done < wanted else "",
            in_words(trials, front, space=self.space, goals=self.goals, spent=spent, held_out=len(self.held_out)),
            self.space,
        )


def _usage(runs: pd.DataFrame) -> list[float]:
    """Return calls, tokens and cost of these runs; an unknown part counts as 0."""
    return [float(runs[name].astype("Float64").fillna(0).sum()) for name in ("calls", "total_tokens", "cost_usd")]


def _written(spent: Spent) -> list[Any]:
    return [spent.calls, spent.tokens, str(spent.cost_usd), spent.unknown_tokens, spent.unknown_cost]


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:10]
