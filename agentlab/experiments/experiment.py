"""The same task over agents, prompts and settings, several times: in parallel, resumable, with one shared budget.

study = lab.Experiment(agents=[a, b], tasks=["…", "…"], settings={"short": dict(budget=Budget(max_turns=5))}, repeats=5)
study.dry_run()                                  # the number of runs, and the sums of their limits
results = await study.run(concurrency=8)         # interrupt it and run it again: it resumes
results.runs, results.steps, results.calls, results.tools
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab._internal.asyncio_tools import needs_await
from agentlab._internal.display import Displayable
from agentlab._internal.kernel import waiting
from agentlab._internal.names import helps_with_keywords
from agentlab.agent import Agent
from agentlab.engine.client import check_key
from agentlab.errors import AgentlabWarning, ConfigurationError, StorageError
from agentlab.experiments import runner, schedule
from agentlab.experiments.frames import plan
from agentlab.experiments.grid import Cell, Grid, Where, grid
from agentlab.experiments.results import ExperimentResults, remarks
from agentlab.experiments.runner import Common, Job, Outcome, RateLimiter, RunCopy, intervals
from agentlab.experiments.schedule import Executor, ExecutorRunner
from agentlab.experiments.scorers.base import Scorer
from agentlab.experiments.scoring import as_scorer, check_targets, code_version
from agentlab.experiments.shared_budget import (
    RUN,
    TOOLS,
    DryRun,
    SharedBudget,
    Spent,
    bound,
    check_budget,
    estimate,
    spent_before,
    with_expectation,
)
from agentlab.experiments.status import CellStatus, Progress, all_made_by, cell_statuses, jobs
from agentlab.experiments.tasks import Source, Tasks
from agentlab.limits.budget import Budget
from agentlab.limits.fields import whole_number
from agentlab.storage import StoredRun
from agentlab.storage.loader import find
from agentlab.storage.store import ENDED, Store
from agentlab.transport import Transport, current, is_chosen

if TYPE_CHECKING:
    import pandas as pd


class Experiment(Displayable):
    """Every agent on every task with all settings, `repeats` times each.

    agents       a list of agents, or {name: agent}
    tasks        `lab.Tasks`, or what it takes: a list of texts (named p1, p2, …), of dicts with prompt and target, {id: text}, a
                 DataFrame, a Series, the path of a file
    settings     a list (s1, s2, …) or {name: settings} of dicts with arguments of `agent.run`: budget, stop, policy, continuation,
                 terminating
    repeats      the number of runs of each cell
    cells        only these cells: (agent, prompt_id, settings, repeat) by name, or a DataFrame of these; settings and repeat may be
                 left out
    where        a function of a Cell: only the cells for which it returns True
    score        a scorer such as `lab.scorers.Exact()`, or a function of a RunResult or of (result, task), sync or async, that returns
                 a number, a bool, a `lab.scorers.Score`, or a dict of numbers, whose entry "score" counts for success rates. Of a list
                 or dict of scorers the first counts, and each has a column. Failed runs are not scored. The cost of agents that it
                 runs, such as a model as judge, counts and is bounded by the budget; if a scorer or a target changes, runs are scored
                 again
    store        a path, or a Store: every step is stored there as soon as it is complete, and another process can resume. None: in
                 memory
    name         the experiment's name in its store. A run id consists of this name, the names of agent, prompt and settings, and the
                 repeat, and does not change
    budget       for the whole experiment: its max_calls, max_tokens, max_cost and timeout (of one `run()`). The expected usage of
                 running runs is reserved; once a limit is met no run takes a further step, so each worker exceeds it by at most one
                 step. Stopped runs continue when `run()` is called with a larger budget. missing_usage: `fail` ends the experiment at
                 the first unknown usage or cost, the others are as in a run. Limits of single runs, such as max_turns, are in settings
    max_runs     the maximum number of runs, stored ones included
    rate_limits  requests per minute by provider, evenly spaced, over all runs; ignored in a replay

    The transport is that of the `lab.replay` or `lab.record` block around `run()`, or else around the creation of the Experiment;
    agents that tools and scores run have it too. In a replay each cell has its own sequence of responses, so its results do not depend
    on other running cells.

    Example:
        >>> study = lab.Experiment(
        ...     {"brief": brief, "endless": endless},
        ...     {"capital": "What is the capital of France?"},
        ...     {"short": dict(budget=lab.Budget(max_turns=2)), "long": dict(budget=lab.Budget(max_turns=4))},
        ...     score=lambda result: "Paris" in result.text,
        ... )
        >>> results = await study.run(progress=False)
        >>> results.runs[["agent", "settings", "stop_reason", "steps", "score"]]
             agent settings stop_reason  steps  score
        0    brief    short   completed      1   True
        1    brief     long   completed      1   True
        2  endless    short  turn_limit      2  False
        3  endless     long  turn_limit      4  False
    """

    @helps_with_keywords
    def __init__(
        self,
        agents: Sequence[Agent] | Mapping[str, Agent],
        tasks: Source,
        settings: Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]] | None = None,
        *,
        repeats: int = 1,
        cells: Iterable[object] | None = None,
        where: Where | None = None,
        score: Scorer | Sequence[Scorer] | Mapping[str, Scorer] | None = None,
        store: Store | str | Path | None = None,
        name: str = "experiment",
        budget: Budget | None = None,
        max_runs: int | None = None,
        rate_limits: Mapping[str, float] | None = None,
    ) -> None:
        self.grid: Grid = grid(name, agents, tasks, settings, repeats=repeats, where=where, cells=cells)
        self.score: Scorer | None = score  # type: ignore[assignment]  # __setattr__ makes it one scorer
        self.budget: Budget | None = budget
        self.max_runs: int | None = max_runs
        self.store: Store = store if isinstance(store, Store) else Store(store)
        self._providers = {cell: self.grid.provider_of(cell) for cell in self.grid.cells}
        self._interval_s = intervals(rate_limits, set(self._providers.values()))
        self._limiters = {provider: RateLimiter(interval_s) for provider, interval_s in self._interval_s.items()}
        self.transport: Transport | None = current() if is_chosen() else None
        self._waiting: list[RunCopy] = []
        self._problems: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self._running = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "score":
            value = as_scorer(value)
            check_targets(value, self.grid.tasks)
        if name == "budget":
            check_budget(value)
        if name == "max_runs" and value is not None:
            whole_number("Experiment", name, value)
        super().__setattr__(name, value)

    # Before -----------------------------------------------------------------------------------------------------------------

    def plan(self, *, retry: bool = False) -> pd.DataFrame:
        """Return one row per run to do, with its limits. With `retry` failed runs are included.

        Example:
            >>> lab.Experiment({"brief": brief}, ["?"], repeats=2).plan()[["agent", "prompt_id", "repeat"]]
               agent prompt_id  repeat
            0  brief        p1       1
            1  brief        p1       2
        """
        return plan(self.grid, self._to_do(retry=retry))

    def dry_run(self, *, retry: bool = False) -> DryRun:
        """Return the number of runs to do, the sums of their limits, and the cost to expect from the runs that have ended. No request
        is sent.

        Example:
            >>> study = lab.Experiment({"brief": brief}, ["?"], [dict(budget=lab.Budget(max_calls=6))], repeats=5)
            >>> study.dry_run().to_do, study.dry_run().call_limit
            (5, 30)
        """
        to_do = [one for one in self._to_do(retry=retry) if one.state != ENDED]
        statuses, stored = cell_statuses(self.grid, self.store)
        bounds = []
        for one in to_do:
            agent, limits = self.grid.agents[one.cell.agent], self.grid.run_of(one.cell).limits.snapshot()
            model = agent.model
            who, address = f"{one.cell.agent} with settings {one.cell.settings}", getattr(model, "address", "")
            bounds.append(bound(limits.budget, model.name, model.model, who, address))
        begun = spent_before(self.store.storage, stored.values()) if stored else {}
        shared_budget = SharedBudget(self.budget, None, begun)
        max_runs = (
            None if self.max_runs is None else max(0, self.max_runs - len(begun)) + sum(one.run_id in begun for one in to_do)
        )
        scored = self.score is not None
        spent_up = shared_budget.spent_up()
        bounded = estimate(
            bounds, runs=len(statuses), left=shared_budget.left, max_runs=max_runs, scored=scored, spent_up=spent_up
        )
        done: dict[tuple[str, str], list[Decimal | None]] = {}
        for one in statuses:
            if one.state == ENDED:
                spent = begun[one.run_id][RUN]
                known = None if spent.unknown_cost else spent.cost_usd
                done.setdefault((one.cell.agent, one.cell.settings), []).append(known)
        pairs = [(one.cell.agent, one.cell.settings) for one in to_do]
        return bounded if spent_up else with_expectation(bounded, pairs, done)

    def _to_do(self, *, retry: bool) -> list[CellStatus]:
        statuses, _ = self._statuses()
        return [one for one, _ in jobs(self.grid, statuses, scoring=self.score is not None, retry=retry)]

    def _statuses(self) -> tuple[list[CellStatus], dict[str, StoredRun]]:
        return cell_statuses(self.grid, self.store, self.score)

    # Running ---------------------------------------------------------------------------------------------------------------

    @needs_await("study.run()")
    @helps_with_keywords
    async def run(
        self, *, concurrency: int = 8, executor: Executor | None = None, progress: bool = True, retry: bool = False
    ) -> ExperimentResults:
        """Do the remaining runs, `concurrency` at a time, and return all results.

        Each finished step is stored, even if the call is interrupted, cancelled or killed. Call it again to resume: ended runs are not
        run again, interrupted ones continue after their last step. Failed runs are run again only with `retry`.

        executor    any concurrent.futures.Executor, such as client.get_executor(pure=False) of dask.distributed, or a function that
                    creates one, which is called again when the executor breaks. Agents, tools, scores and the recording are pickled
                    (with cloudpickle, if it is installed). On one machine the workers write into the same store. Workers on other
                    machines need a store in memory: then each run is returned when it has ended. If the call is interrupted, the
                    workers finish their running jobs.
        progress    one bar per provider, on a terminal or in a page: runs, cost so far, time left

        Raises MissingKeyError before any run begins if an agent has no key (without `executor`); StorageError if runs cannot be
        stored, after the running ones have ended: they stay in memory until the next call.

        Example:
            >>> study = lab.Experiment({"brief": brief}, ["?"], repeats=2, name="twice")
            >>> await study.run(concurrency=2, progress=False)
            ExperimentResults('twice', 2 runs: 2 ended)
            >>> await study.run(progress=False)  # ended runs are not run again
            ExperimentResults('twice', 2 runs: 2 ended)
        """
        whole_number("run", "concurrency", concurrency)
        schedule.check(executor)
        if self._running:
            raise ConfigurationError("The experiment is already running: wait for its end, or cancel it first.")
        self._running = True
        try:
            async with waiting():
                results, sentences = await self._run(concurrency, executor, progress, retry)
        finally:
            self._running = False
        if sentences:
            warnings.warn(" ".join(sentences), AgentlabWarning, stacklevel=2)
        return results

    async def _run(
        self, concurrency: int, executor: Executor | None, progress: bool, retry: bool
    ) -> tuple[ExperimentResults, list[str]]:
        """Return the results, and sentences on problems."""
        self._save()
        statuses, stored = self._statuses()
        to_do = jobs(self.grid, statuses, scoring=self.score is not None, retry=retry)
        if executor is None:  # a worker may have keys that this process lacks
            transport = self._transport_now()
            for name in dict.fromkeys(job.agent for one, job in to_do if one.state != ENDED):
                agent = self.grid.agents[name]
                check_key(agent.model, transport, agent.middleware)
        now = {one.cell: one for one in statuses} | {one.cell: one for one, _ in to_do}
        provider_of = {
            self.grid.run_id(cell, attempt): self._providers[cell]
            for cell, one in now.items()
            for attempt in range(1, one.attempt + 1)
        }
        total = Counter(self._providers.values())
        done_before = total - Counter(job.provider for _, job in to_do)
        bars = Progress(total, done_before, shown=progress)

        def show(run_id: str, spent: Spent) -> None:
            if run_id in provider_of:
                bars.spent(provider_of[run_id], run_id, spent)

        shared_budget = self._new_shared_budget(statuses, stored, show)
        own = {pair: self.grid.run_of(cell).limits.snapshot().budget for pair, cell in self.grid.one_of_each_pair().items()}
        scoring_only = {job.run_id for one, job in to_do if one.state == ENDED}
        self._problems, self._left_out = {}, {}

        def may_start(job: Job) -> bool | None:
            why_not = shared_budget.why_not(job.run_id)
            if why_not and job.run_id in scoring_only:  # a score may be free of cost; a judge is refused when it calls its model
                return True
            if why_not:
                self._left_out[job.run_id] = why_not
                return False
            pair = (job.agent, job.settings)
            return shared_budget.reserve(job.run_id, pair, own[pair], at_once=concurrency) or None

        def done(job: Job, outcome: Outcome) -> bool:
            if outcome.run_copy is not None:
                self._take_in(outcome.run_copy)
            spent = outcome.spent
            last = find(self.store.storage, job.run_id) if outcome.problem else None  # of a worker that died
            if last is not None:
                spent = {**spent_before(self.store.storage, [last])[job.run_id], **spent}
            for part, used in spent.items():
                shared_budget.book(job.run_id, used, part)
            pair = (job.agent, job.settings)
            shared_budget.release(job.run_id, pair, ended=outcome.state == ENDED)
            if outcome.held_back:
                if shared_budget.spent_up():
                    scoring_only.discard(job.run_id)
                else:  # a worker's lease was too small: reserve twice as much the next time
                    shared_budget.learn(pair, shared_budget.of(job.run_id) + shared_budget.of(job.run_id))
                return True
            if outcome.problem:
                self._problems[job.run_id] = outcome.problem
            bars.ended(job.provider, failed=outcome.failed)
            return False

        try:
            failures = await self._run_jobs(
                [job for _, job in to_do], executor, concurrency, shared_budget, may_start=may_start, done=done
            )
        finally:
            bars.close()
        self._check_stored(failures)
        self._left_out |= dict.fromkeys(self._left_out, shared_budget.spent_up()) if shared_budget.spent_up() else {}
        results = self.results()
        rescored = sum(one.score_changed for one in statuses) - sum(one.score_changed for one in results.statuses)
        return results, self._sentences(results, shared_budget, rescored=rescored)

    def _transport_now(self) -> Transport:
        """Return the transport of the surrounding `lab.replay` or `lab.record`, else that at the creation of the experiment."""
        now = current()
        return now if is_chosen() or self.transport is None else self.transport

    def _new_shared_budget(
        self, statuses: list[CellStatus], stored: dict[str, StoredRun], notify: Callable[[str, Spent], None]
    ) -> SharedBudget:
        """Return the shared budget with the usage so far, in total and by agent and settings."""
        before = spent_before(self.store.storage, stored.values()) if stored else {}
        groups = {(one.cell.agent, one.cell.settings) for one in statuses}
        shared_budget = SharedBudget(self.budget, self.max_runs, before, groups=len(groups), notify=notify)
        for one in statuses:
            if one.state == ENDED:
                shared_budget.learn((one.cell.agent, one.cell.settings), shared_budget.of(one.run_id))
        return shared_budget

    async def _run_jobs(
        self,
        to_do: list[Job],
        executor: Executor | None,
        concurrency: int,
        shared_budget: SharedBudget,
        *,
        may_start: Callable[[Job], bool | None],
        done: Callable[[Job, Outcome], bool],
    ) -> list[StorageError]:
        transport = self._transport_now()
        made_by = all_made_by(self.grid)
        grid_, scored_by = self.grid, code_version(self.score)
        common = Common(grid_.agents, grid_.tasks, grid_.settings, transport, self.store, self.score, made_by, scored_by)
        if executor is None:
            saver = runner.Saver(self.store)

            async def here(job: Job) -> Outcome:
                return await runner.run_cell(common, job, shared_budget, self._limiters.get(job.provider), saver)

            return await schedule.run_jobs(to_do, here, concurrency=concurrency, may_start=may_start, done=done)
        within_reach = runner.is_shared_by_processes(self.store)
        there = replace(
            common, agents=dict(common.agents), settings=dict(common.settings), store=self.store if within_reach else None
        )
        elsewhere = ExecutorRunner(executor, runner.packed(there))
        # Workers do not communicate: each run has its share of the rate, and the number of running runs is capped.
        counts = Counter(job.provider for job in to_do)
        share = max(1, -(-concurrency // max(1, len(counts))))
        at_most = {provider: min(share, counts[provider]) for provider in self._interval_s if provider in counts}
        wait_s = {name: at_most[name] * self._interval_s[name] for name in at_most} if transport.needs_key else {}
        paced = [
            replace(job, interval_s=at_most[job.provider] * self._interval_s[job.provider] if job.provider in at_most else None)
            for job in to_do
        ]

        async def leased(job: Job) -> Outcome:
            before = None if within_reach else runner.copy_run(self.store, job.run_id)
            lease, spent = shared_budget.lease(job.run_id), shared_budget.parts(job.run_id)
            outcome = await elsewhere(replace(job, lease=lease, leased_at=time.time(), spent=spent, before=before))
            await asyncio.sleep(wait_s.get(job.provider, 0.0))  # so that the next job's first request keeps the rate limit too
            return outcome

        try:
            return await schedule.run_jobs(
                paced, leased, concurrency=concurrency, may_start=may_start, done=done, at_most=at_most
            )
        finally:
            elsewhere.close()

    # Results ------------------------------------------------------------------------------------------------------------------

    def results(self) -> ExperimentResults:
        """Return the results so far, without running anything.

        Example:
            >>> study = lab.Experiment({"brief": brief}, ["?"], repeats=2)
            >>> study.results()
            ExperimentResults('experiment', 2 runs: 2 not started)
        """
        statuses, _ = self._statuses()
        return ExperimentResults(
            self.grid, self.store, tuple(statuses), dict(self._problems), dict(self._left_out), score=self.score
        )

    def variant(
        self, cells: Sequence[Cell], agents: Mapping[str, Agent], tasks: Tasks, settings: Mapping[str, Any], **more: Any
    ) -> Experiment:
        """Return an experiment with some of the cells, and other agents, tasks and settings under their names. Store, score, rate
        limits and transport are the same. For `lab.tune`; `more` are arguments of Experiment."""
        ids = {cell.prompt_id for cell in cells}
        tasks = tasks.where(lambda task: task.id in ids)
        repeats = max(cell.repeat for cell in cells)
        made = Experiment(agents, tasks, settings, repeats=repeats, cells=cells, score=self.score, store=self.store, **more)
        made.transport = self.transport if made.transport is None else made.transport
        for provider in self._interval_s.keys() & set(made._providers.values()):
            made._interval_s[provider], made._limiters[provider] = self._interval_s[provider], self._limiters[provider]
        return made

    def _take_in(self, sent: RunCopy) -> None:
        try:
            runner.import_run(self.store, sent)
        except StorageError:
            self._waiting.append(sent)

    def _save(self) -> None:
        """Store runs and notes that could not be stored before. Raises StorageError if this fails again."""
        self.store.save()
        waiting, self._waiting = self._waiting, []
        for sent in waiting:
            self._take_in(sent)
        self._check_stored([])

    def _check_stored(self, failures: list[StorageError]) -> None:
        unsaved = len(self.store.unsaved) + len(self._waiting)
        if failures or unsaved:
            problem = str(failures[0]) if failures else f"{self.store!r} cannot be written to."
            raise StorageError(
                f"{problem} {unsaved} run{'s are' if unsaved != 1 else ' is'} in the memory of this process only, and no further run "
                "was started. Fix the store and call run() again: nothing is lost."
            )

    def _sentences(self, results: ExperimentResults, shared_budget: SharedBudget, *, rescored: int) -> list[str]:
        sentences = list(remarks(results, scoring=self.score is not None, rescored=rescored))
        if (by_tools := shared_budget.spent_on(TOOLS)).calls:
            sentences.append(
                f"Tools ran agents by themselves ({by_tools.dollars}): this is in results.spent, but in no row. To count it in the "
                "run, pass such an agent as a tool: agent.as_tool(…)."
            )
        if shared_budget.blind:
            sentences.append(f"{shared_budget.blind} of the experiment cannot be checked completely: some usage is unknown.")
        return sentences

    def __repr__(self) -> str:
        grid_ = self.grid
        parts = [
            (len(grid_.agents), "agent"),
            (len(grid_.tasks), "task"),
            (len(grid_.settings), "setting"),
            (len(grid_.cells), "run"),
        ]
        counts = ", ".join(f"{count} {what}{'s' * (count != 1)}" for count, what in parts)
        return f"Experiment({grid_.name!r}, {counts}, {self.store!r})"
