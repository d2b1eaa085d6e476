"""The results of an experiment as tidy frames, and remarks on problems."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import counted
from agentlab._internal.safe_text import one_line
from agentlab.agent import Run
from agentlab.analysis.agreement import Agreement, agreement
from agentlab.analysis.compare import paired, summary
from agentlab.errors import AgentlabWarning
from agentlab.experiments.grid import Grid
from agentlab.experiments.rescore import named_scorers, rescore
from agentlab.experiments.runner import detail_of
from agentlab.experiments.scorers.base import Scorer
from agentlab.experiments.shared_budget import Spent, spent_before
from agentlab.experiments.status import CellStatus, cell_statuses
from agentlab.limits.budget import Budget
from agentlab.limits.fields import whole_number
from agentlab.storage.store import ENDED, Store

if TYPE_CHECKING:
    import pandas as pd

    from agentlab.plots import PlotFigure


class ExperimentResults(Displayable):
    """The frames of an experiment: `runs` with one row per cell, also if it was not run; `steps`, `calls` and `tools` of the cells that
    were run. They are sorted by cell, not by time.

    The first columns are `agent`, `prompt_id` (the id of the task), `settings`, `repeat`, `score` (NA: none, or unknown)
    and `score_error`. A score that is a dict has one column `score.<key>` per entry, and `score` is
    its entry of that name; a score that `rescore` added has the columns `score.<name>` and `score.<name>.version`. Of several attempts
    the newest counts.
    `runs` has these columns too:

    state         `ended`, `interrupted`, `open` or `not_started`
    attempt       counts from 1
    target, tags  of the task, as texts; `task_hash` is the hash of the whole task
    problem       a problem outside of the run, such as a worker that died, or a budget of the experiment that is spent
    changed       the tools, middleware and conditions whose code has changed since the run; NA: none
    score_why     the scorer's reason
    score_calls, score_tokens, score_cost_usd   usage of the agents that scores ran, such as a model as judge
    replayed      True: from a recording; False: live

    Example:
        >>> results = await lab.Experiment({"brief": brief, "endless": endless}, ["?"]).run(progress=False)
        >>> results
        ExperimentResults('experiment', 2 runs: 2 ended)
        >>> results.runs[["agent", "state", "stop_reason", "steps"]]
             agent  state stop_reason  steps
        0    brief  ended   completed      1
        1  endless  ended  turn_limit     20
    """

    def __init__(
        self,
        grid: Grid,
        store: Store,
        statuses: tuple[CellStatus, ...],
        problems: Mapping[str, str],
        left_out: Mapping[str, str] = MappingProxyType({}),
        *,
        score: Scorer | None = None,
    ) -> None:
        self.grid: Grid = grid
        self.store: Store = store
        self.statuses: tuple[CellStatus, ...] = statuses
        self.problems: Mapping[str, str] = problems
        self.left_out: Mapping[str, str] = left_out
        self.score: Scorer | None = score

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per run, in the order of the cells.

        Example:
            >>> results = await lab.Experiment({"brief": brief}, ["?"], repeats=2).run(progress=False)
            >>> results.runs[["agent", "prompt_id", "repeat", "stop_reason"]]
               agent prompt_id  repeat stop_reason
            0  brief        p1       1   completed
            1  brief        p1       2   completed
        """
        return self.frame("runs")

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per step.

        Example:
            >>> results = await lab.Experiment({"endless": endless}, ["?"], [dict(stop=lab.StepCountIs(2))]).run(progress=False)
            >>> results.steps[["agent", "step", "total_tokens"]]
                 agent  step  total_tokens
            0  endless     1            15
            1  endless     2            15
        """
        return self.frame("steps")

    @cached_property
    def calls(self) -> pd.DataFrame:
        """One row per round trip to a model.

        Example:
            >>> results = await lab.Experiment({"brief": brief}, ["?"], repeats=2).run(progress=False)
            >>> results.calls[["repeat", "call", "finish_reason"]]
               repeat  call finish_reason
            0       1     1      end_turn
            1       2     1      end_turn
        """
        return self.frame("calls")

    @cached_property
    def tools(self) -> pd.DataFrame:
        """One row per tool call.

        Example:
            >>> results = await lab.Experiment({"endless": endless}, ["?"], [dict(stop=lab.StepCountIs(1))]).run(progress=False)
            >>> results.tools[["step", "tool", "arguments"]]
               step    tool              arguments
            0     1  search  {"words": "umbrella"}
        """
        return self.frame("tools")

    @cached_property
    def loaded(self) -> list[Run]:
        """All stored runs as Run objects, in the order of the cells, to inspect and to fork.

        Example:
            >>> results = await lab.Experiment({"brief": brief}, ["?"]).run(progress=False)
            >>> results.loaded[0].messages[-1].text
            'Paris.'
        """
        return [self.store.load(one.run_id, self.grid.agents[one.cell.agent]) for one in self.statuses if one.stored is not None]

    @cached_property
    def spent(self) -> Spent:
        """Total usage of the experiment: runs, earlier attempts, sub-agents, the agents that scores ran, and interrupted steps that
        were taken again. A step whose process was killed is not included.

        Example:
            >>> results = await lab.Experiment({"brief": brief}, ["?"], repeats=2).run(progress=False)
            >>> results.spent.calls, results.spent.tokens
            (2, 30)
        """
        _, stored = cell_statuses(self.grid, self.store)
        parts = spent_before(self.store.storage, stored.values()) if stored else {}
        return sum([spent for one in parts.values() for spent in one.values()], Spent())

    def frame(self, what: str = "runs") -> pd.DataFrame:
        """Return any frame: `runs`, `steps`, `calls`, `tools`, `events`, `readings` or `termination`.

        Example:
            >>> results = await lab.Experiment({"brief": brief}, ["?"]).run(progress=False)
            >>> results.frame("termination")[["agent", "finish_reason", "action"]]
               agent finish_reason    action
            0  brief      end_turn  complete
        """
        from agentlab.experiments.frames import frame

        return frame(self, what)

    def export(self, folder: str | Path) -> None:
        """Write the runs as `store.export` does, with the experiment's columns (agent, task, settings, repeat, scores, …) in each file.

        `lab.importers.parquet` reads all columns back, and `store.import_from` the runs with their scores. Cells without a run are left
        out. Needs the extra `agentlab-jupyter[parquet]`.

        Example:
            >>> from tempfile import mkdtemp
            >>> folder = mkdtemp()
            >>> results = await lab.Experiment({"brief": brief}, ["?"], score=lambda result: 1).run(progress=False)
            >>> results.export(folder)
            >>> lab.importers.parquet(folder).calls[["agent", "prompt_id", "score", "call"]]
               agent prompt_id  score  call
            0  brief        p1    1.0     1
        """
        from agentlab.experiments.frames import export

        export(self, folder)

    async def rescore(
        self,
        scorers: Scorer | Sequence[Scorer] | Mapping[str, Scorer],
        *,
        name: str | None = None,
        concurrency: int = 8,
        budget: Budget | None = None,
        progress: bool = True,
    ) -> ExperimentResults:
        """Score the ended runs with other scorers, without running them again, and return the results with the new columns.

        Each scorer has the columns `score.<name>` and `score.<name>.version`, which changes with its code and the task's target. A run
        that has this version already is not scored again. `name` is that of a single scorer; `budget` bounds the cost of judges in
        this call, and runs that it leaves unscored are scored by the next one.

        A judge is a live model, also for recorded runs: call this within `lab.record(…)` to record its answers, and within
        `lab.replay(…)` to score with those that were recorded.

        Example:
            >>> study = lab.Experiment([brief], [{"prompt": "What is the capital of France?", "target": "Paris."}])
            >>> results = await study.run(progress=False)
            >>> results = await results.rescore(lambda result, task: result.text == task.target, name="same", progress=False)
            >>> results.runs[["prompt_id", "score.same"]]
              prompt_id  score.same
            0        p1        True
        """
        whole_number("rescore", "concurrency", concurrency)
        named = named_scorers(self.statuses, scorers, name)
        missing = await rescore(
            self.grid, self.store, self.statuses, named, concurrency=concurrency, budget=budget, progress=progress
        )
        if missing:
            warnings.warn(missing, AgentlabWarning, stacklevel=2)
        statuses, _ = cell_statuses(self.grid, self.store, self.score)
        return ExperimentResults(self.grid, self.store, tuple(statuses), self.problems, self.left_out, score=self.score)

    def summary(self, by: str | list[str] | None = None, **more: Any) -> pd.DataFrame:
        """Return completion, success, tokens and cost per agent (and settings, if there are several) with intervals; see
        `lab.summary`.

        Example:
            >>> results = await lab.Experiment({"brief": brief, "endless": endless}, ["?"], repeats=3).run(progress=False)
            >>> results.summary()[["agent", "runs", "completed", "tokens_mean"]]
                 agent  runs  completed  tokens_mean
            0    brief     3          3         15.0
            1  endless     3          0        300.0
        """
        return summary(self.runs, self._groups(by), **more)

    def paired(self, what: str = "cost_usd", by: str | list[str] | None = None, **more: Any) -> pd.DataFrame:
        """Return the differences between agents on the same prompts; see `lab.paired`.

        Example:
            >>> results = await lab.Experiment({"brief": brief, "endless": endless}, ["?", "??"]).run(progress=False)
            >>> results.paired("total_tokens")[["group", "against", "difference"]]
                 group against  difference
            0  endless   brief       285.0
        """
        return paired(self.runs, what, by or "agent", **more)

    def agreement(self, what: str | None = None, by: str | list[str] | None = None, **more: Any) -> Agreement:
        """Return how often agents end for the same reasons on the same prompts; see `lab.agreement`.

        Example:
            >>> results = await lab.Experiment({"brief": brief, "other": brief}, ["?", "??"]).run(progress=False)
            >>> results.agreement().overall[["groups", "scenarios", "same"]]
                     groups  scenarios  same
            0  brief, other          2     2
        """
        return agreement(self.runs, what, by or "agent", **more)

    def plot(self, by: str | list[str] | None = None, **more: Any) -> PlotFigure:
        """Draw the whole comparison; see `lab.plots.comparison`.

        Example:
            >>> results = await lab.Experiment({"brief": brief, "endless": endless}, ["?", "??"]).run(progress=False)
            >>> len(results.plot().axes)
            6
        """
        from agentlab.plots import comparison

        return comparison(self.runs, self.steps, self._groups(by), **more)

    @overload
    def report(self, path: None = None) -> str: ...
    @overload
    def report(self, path: str | os.PathLike[str]) -> Path: ...
    def report(self, path: str | os.PathLike[str] | None = None) -> str | Path:
        """Write the study as one HTML file, and return the path; without `path` return the HTML.

        The page has tables, figures, methods, tasks, scorers, provenance and the code to repeat it. It needs neither a kernel nor a
        network, has no script, and no known key is in it. Its data are embedded, so that `lab.verify` can repeat the analysis on the
        recordings. An existing file is replaced.

        Example:
            >>> results = await lab.Experiment({"brief": brief}, ["?"]).run(progress=False)
            >>> results.report()[:15]
            '<!DOCTYPE html>'
        """
        from agentlab.notebook.report import report

        return report(self, path)

    def _groups(self, by: str | list[str] | None) -> str | list[str]:
        if by is not None:
            return by
        return ["agent", "settings"] if self.runs["settings"].nunique() > 1 else "agent"

    @property
    def states(self) -> dict[str, int]:
        """The number of runs per state.

        Example:
            >>> results = await lab.Experiment({"brief": brief}, ["?"], repeats=2).run(progress=False)
            >>> results.states
            {'ended': 2}
        """
        words = {one.run_id: one.state.replace("_", " ") for one in self.statuses}
        words |= {one.run_id: "failed (counted as failures)" for one in self.statuses if one.failed}
        words |= {run_id: "ended but not scored" for run_id in self.left_out if words.get(run_id) == ENDED}
        return dict(Counter(words.values()))

    def __len__(self) -> int:
        return len(self.statuses)

    def __repr__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.states.items())
        return f"ExperimentResults({self.grid.name!r}, {len(self.statuses)} runs: {states})"


# Remarks ---------------------------------------------------------------------------------------------------------------------


def remarks(results: ExperimentResults, *, scoring: bool, rescored: int = 0) -> Iterator[str]:
    """Yield one or two sentences about each problem. `rescored` is the number of runs whose score function had changed."""
    yield from _failure_remarks(results)
    if scoring:
        yield from _score_remarks(results.statuses, rescored)
    yield from _budget_remarks(results)
    yield from _change_remarks(results.statuses)


def _failure_remarks(results: ExperimentResults) -> Iterator[str]:
    failed = [one for one in results.statuses if one.failed]
    not_run = [one for one in results.statuses if not one.failed and one.run_id in results.problems]
    for found, one_is, they_are in (
        (failed, "it counts as a failure", "they count as failures"),
        (not_run, "it is left out of the rates", "they are left out of the rates"),
    ):
        if found:
            first = found[0]
            why = (results.problems.get(first.run_id) or detail_of(first.stored)).partition("\n")[0].rstrip(".")
            again = "run()" if first.run_id in results.problems else "run(retry=True)"
            yield (
                f"{len(found)} of {counted(len(results.statuses), 'run')} failed; the first one was {first.run_id}: {why}. "
                f"Try again with {again}; until then {one_is if len(found) == 1 else they_are}."
            )


def _score_remarks(statuses: tuple[CellStatus, ...], rescored: int) -> Iterator[str]:
    notes = [one.note for one in statuses if one.note is not None]
    errors = [note["error"] for note in notes if "error" in note]
    if errors:
        some = any("score" in note for note in notes if "error" in note)
        verb = ("lacks" if some else "has") if len(errors) == 1 else ("lack" if some else "have")
        yield (
            f"{counted(len(errors), 'run')} {verb} {'some scores' if some else 'no score'}: {one_line(errors[0], 300).rstrip('.')} "
            "(see score_error); run(retry=True) tries again."
        )
    without = [one.parts for one in statuses if one.parts is not None and "score" not in one.parts]
    if without:
        keys = [repr(key) for key in dict.fromkeys(key for parts in without for key in parts)]
        more = f", {keys[0]}: …" if keys else ""
        yield (
            f"{counted(len(without), 'score')} {'is a dict' if len(without) == 1 else 'are dicts'} without 'score' "
            f"(it has {', '.join(keys) or 'no keys'}): the column `score` is NA there, and the success rate is unknown. "
            f'Let the function return {{"score": …{more}}}.'
        )
    whole = [value.get("score") if isinstance(value, dict) else value for value in (note.get("score") for note in notes)]
    unknown = len(notes) - len(errors) - len(without)
    if unknown and not any(value is not None for value in whole):  # if some are known, None may be intended
        yield (
            f"{counted(unknown, 'score')} {'is' if unknown == 1 else 'are'} None, or not a number: no score is known. Let the "
            "function return a number or a bool."
        )
    if rescored:
        yield f"{counted(rescored, 'score')} of another version of the score function {_were(rescored)} computed again."


def _budget_remarks(results: ExperimentResults) -> Iterator[str]:
    if not results.left_out:
        return
    not_begun = [one for one in results.statuses if one.run_id in results.left_out and one.stored is None]
    no_score = [one for one in results.statuses if one.run_id in results.left_out and one.state == "ended"]
    held = len(results.left_out) - len(not_begun) - len(no_score)
    parts = [
        f"{counted(len(not_begun), 'run')} {_were(len(not_begun))} left out" if not_begun else "",
        f"{counted(held, 'run')} {_were(held)} stopped after the last finished step" if held else "",
        f"{counted(len(no_score), 'run')} {'have' if len(no_score) != 1 else 'has'} no score yet" if no_score else "",
    ]
    why = next(iter(results.left_out.values()))
    yield (
        f"{' and '.join(part for part in parts if part)}, since {why}. To continue, raise study.budget or "
        "study.max_runs, and run it again."
    )


def _change_remarks(statuses: tuple[CellStatus, ...]) -> Iterator[str]:
    changed = [one for one in statuses if one.changed]
    if changed:
        names = list(dict.fromkeys(name for one in changed for name in one.changed))
        yield (
            f"{counted(len(changed), 'run')} of the store {_were(len(changed))} made with other code of {', '.join(names)} than now, "
            "see the column `changed`. To compare runs of the same code, give the experiment another name=…."
        )
    replayed = sum(one.replayed is True for one in statuses)
    live = sum(one.replayed is False for one in statuses)
    if replayed and live:
        yield f"{replayed} runs are replays of recordings and {live} are live: the column `replayed` says which."


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
