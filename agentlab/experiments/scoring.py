"""Scores ended runs. The usage of the agents that a score runs is booked."""

from __future__ import annotations

import copy
import inspect
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentlab._internal.formatting import counted
from agentlab._internal.redaction import in_words
from agentlab.agent import Ask, Run
from agentlab.engine import call_context
from agentlab.errors import ConfigurationError
from agentlab.experiments.identity import PYTHON, code_of
from agentlab.experiments.scorers import base
from agentlab.experiments.scorers.base import Score, Scorer
from agentlab.experiments.shared_budget import SharedBudget, Spent, note_beside, spent_by
from agentlab.experiments.tasks import Task, Tasks
from agentlab.limits.settings import RunSettings
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.records import events
from agentlab.records.result import RunResult
from agentlab.storage import Storage

SCORE_NOTE = "score"
"""The name of the stored note with a run's score."""

MORE_SCORES = "more scores"
"""The name of the stored note with the scores that were added later, by name."""


@dataclass(frozen=True, slots=True)
class Several:
    """Several scorers by name. The score of a run is that of the first, or of the one named `score`."""

    scorers: tuple[tuple[str, Scorer], ...]

    def __call__(self, result: RunResult, task: Task) -> None:
        """Do nothing: `score_of` calls each scorer by itself, so that an error in one keeps the others' scores."""


def as_scorer(given: object) -> Scorer | None:
    """Return the `score` of an experiment as one scorer. Raises ConfigurationError."""
    if given is None:
        return None
    if callable(given) and not isinstance(given, type):
        _check_arguments(name_of(given), given)
        return given
    named = dict(given) if isinstance(given, Mapping) else None
    if named is None and isinstance(given, Sequence) and not isinstance(given, str):
        listed = [(name_of(one), one) for one in given]
        named = dict(listed)
        if len(named) < len(listed):
            names = ", ".join(name for name, _ in listed)
            raise ConfigurationError(
                f"score: two scorers have one name ({names}): pass a dict, such as {{'first': …, 'second': …}}."
            )
    if not named or not all(isinstance(name, str) and callable(one) and not isinstance(one, type) for name, one in named.items()):
        raise ConfigurationError(
            f"score={given!r}: pass a function of a result, such as lambda result: 'Paris' in result.text, a scorer such as "
            "lab.scorers.Exact(), or a list or dict of these."
        )
    for name, scorer in named.items():
        _check_arguments(name, scorer)
    return Several(tuple(named.items()))


def _check_arguments(name: str, scorer: Scorer) -> None:
    if why := base.misfit(scorer):  # before the runs are paid for
        raise ConfigurationError(f"score: {name} is called with the result, or with the result and its task: {why}.")


def name_of(scorer: object) -> str:
    """Return a scorer's name: that of its function or its class."""
    return getattr(scorer, "__name__", type(scorer).__name__)


def check_targets(scorer: Scorer | None, tasks: Tasks) -> None:
    """Raise ConfigurationError if a scorer needs targets that tasks lack."""
    needing = [one for _, one in each_of(scorer) if getattr(one, "needs_target", False)]
    without = [task.id for task in tasks if task.target is None]
    if needing and without:
        more = f" and {len(without) - 3} more" if len(without) > 3 else ""
        raise ConfigurationError(
            f"{needing[0]!r} compares with a target, but {len(without)} of {counted(len(tasks), 'task')} "
            f"{'has' if len(without) == 1 else 'have'} none: {', '.join(map(repr, without[:3]))}{more}. Pass tasks with targets, such "
            "as lab.Tasks([{'prompt': …, 'target': …}]), or name their column: lab.Tasks(…, target='answer')."
        )


def each_of(scorer: Scorer | None) -> tuple[tuple[str, Scorer], ...]:
    """Return each scorer with its name."""
    if scorer is None:
        return ()
    return scorer.scorers if isinstance(scorer, Several) else ((name_of(scorer), scorer),)


# Versions -------------------------------------------------------------------------------------------------------------------------


def version_of(code: str, scorer: Scorer | None, task: Task) -> str:
    """Return the version of a task's score: that of the scorers' `code`, and of the target if one reads it."""
    reads = any(base.takes_task(one) for _, one in each_of(scorer))
    return f"{code} {task.target_hash}" if reads and code else code


def code_version(scorer: Scorer | None) -> str:
    """Return the version of a scorer's code: Python's, and a hash. "" for none."""
    return "" if scorer is None else f"{PYTHON} {code_of(scorer)}"


def is_stale(score: Mapping[str, Any], by: str) -> bool:
    """True if a score is from another version of the function than that with the hash `by`. Old notes have no hash."""
    before = score.get("by", by)
    return bool(by) and bool(before) and before != by and before.partition(" ")[0] == by.partition(" ")[0]


# The agents that scores run -------------------------------------------------------------------------------------------------


class OtherRuns:
    """Runs that a score function starts, such as those of a judge, or that a tool starts by itself (runs of sub-agents are in the
    history of their caller). Their usage is booked and stored after each of their steps, as `part` of the usage of the cell's run.

    With `refuse` they make no further call once the budget of the experiment is spent, and `refused` has the reason.
    """

    def __init__(self, storage: Storage, run_id: str, shared_budget: SharedBudget, part: str, *, refuse: bool) -> None:
        self._storage, self._run_id, self._shared_budget, self._part, self._refuse = storage, run_id, shared_budget, part, refuse
        self._before = shared_budget.parts(run_id).get(part, Spent())
        self._known = self._before
        self._runs: list[tuple[Run, int]] = []
        self._lock = threading.Lock()
        self.refused = ""

    def __call__(self, run: Run) -> None:
        """Follow a run that was created."""
        self._runs.append((run, len(run.history)))
        run.observe(self._book)
        if run.origin.caller is None and not run.history:  # each repeat of the cell replays its own recordings
            run.stepper.context.replay_key = f"{run.id}#{self._run_id.partition('#')[2]} {self._part}"
        if self._refuse:
            agent = copy.copy(run.agent)
            agent.middleware = (self._asked, *agent.middleware)
            run.stepper.context.agent = agent
            run.stepper.context.parent_limit = missing_usage_setting(self._shared_budget)

    async def _asked(self, request: ModelRequest, ask: Ask) -> ModelResponse:
        if why := self._shared_budget.spent_up():
            self.refused = why
            raise ConfigurationError(f"{why[0].upper()}{why[1:]}. The run is scored once study.budget allows it.")
        return await ask(request)

    def _book(self, event: events.Event) -> None:
        if isinstance(event, events.StepCompleted | events.RunEnded):
            self.book()

    def book(self) -> None:
        """Book and store the usage."""
        with self._lock:  # they may be on several threads
            used = [spent_by(run.history.since(before)) for run, before in self._runs if run.origin.caller is None]
            spent = sum(used, self._before)
            if spent != self._known:
                self._known = spent
                self._shared_budget.book(self._run_id, spent, self._part)
                note_beside(self._storage, self._run_id, self._part, spent)


def missing_usage_setting(shared_budget: SharedBudget) -> Callable[[RunSettings], RunSettings] | None:
    """Return a function that sets a run's missing_usage to that of the experiment's budget; None if the budget keeps the default."""
    policy = "warn" if shared_budget.budget is None else shared_budget.budget.missing_usage
    if policy not in ("estimate", "charge_cap"):
        return None

    def changed(settings: RunSettings) -> RunSettings:
        if settings.budget.missing_usage != "warn":
            return settings
        return replace(settings, budget=replace(settings.budget, missing_usage=policy))

    return changed


# Scoring --------------------------------------------------------------------------------------------------------------------------


async def score_of(scorer: Scorer, result: RunResult, task: Task, by: str, judges: OtherRuns) -> dict[str, Any] | None:
    """Return the score with its version `by` and its reason, or the errors of scorers that raised or returned no score. None if the
    budget of the experiment refused a call: the run has no score yet."""
    several = isinstance(scorer, Several)
    score: Any = {} if several else None
    whys, errors = dict[str, str](), list[str]()
    with call_context.watched(judges):
        for name, one in each_of(scorer):
            try:
                value: Any = base.ask(one, result, task)
                if inspect.isawaitable(value):
                    value = await value
                plain, why = _plain(value)
            except Exception as error:
                errors.append(f"{name}: {in_words(error)}" if several else in_words(error))
                continue
            if why:
                whys[name] = why
            if several:
                parts = plain if isinstance(plain, dict) else {"score": plain}
                score |= {name if part == "score" else f"{name}.{part}": number for part, number in parts.items()}
            else:
                score = plain
    judges.book()
    if judges.refused:
        return None
    if isinstance(scorer, Several):
        first = scorer.scorers[0][0]
        score = {"score": score.get("score", score.get(first)), **score} if score else None
    noted: dict[str, Any] = {} if errors and score is None else {"score": score}
    if errors:
        noted["error"] = "; ".join(errors)
    if whys:
        noted["why"] = "; ".join(f"{name}: {why}" for name, why in whys.items()) if several else next(iter(whys.values()))
    return {**noted, "by": by}


def _plain(value: Any) -> tuple[Any, str]:
    """Return a score as JSON, and its reason."""
    why = ""
    if isinstance(value, Score):
        value, why = ({"score": value.value, **value.parts} if value.parts else value.value), str(value.why)
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise TypeError(f"the score has the key {wrong!r}: use texts as keys.")
        return {key: _number(one, f"score[{key!r}]") for key, one in value.items()}, why
    return _number(value, "score"), why


def _number(value: Any, what: str) -> float | bool | None:
    """Return a number or a bool, also from a numpy value. None is an unknown score."""
    item = getattr(value, "item", None)
    value = item() if callable(item) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None  # not a number: not known
    if hasattr(value, "__float__"):  # a Decimal, a Fraction
        return _number(float(value), what)
    raise TypeError(f"{what} is {value!r}: return a number, a bool, a dict of them, or None.")
