"""The score of a run: a function's answer as JSON text, and what the agents cost that the function runs, such as a model as judge."""

from __future__ import annotations

import copy
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from agentlab import events
from agentlab.agent import Ask
from agentlab.engine import call_context
from agentlab.errors import ConfigurationError
from agentlab.experiments.spending import Purse, Spent, note_beside, spent_by
from agentlab.redaction import in_words, without_keys
from agentlab.results import RunResult
from agentlab.run import Run
from agentlab.settings import RunSettings
from agentlab.storage import Storage
from agentlab.storage.but_for_keys import hidden
from agentlab.types import ModelRequest, ModelResponse

Score: TypeAlias = Callable[[RunResult], float | bool | Mapping[str, Any] | Awaitable[Any] | None]

SCORE_NOTE = "score"
"""The name under which a score is noted of its run."""


def is_stale(noted: Mapping[str, Any], by: str) -> bool:
    """Whether a score was made by another function than the one known `by`. A note of an earlier version of agentlab does not say."""
    before = noted.get("by", by)
    return bool(by) and bool(before) and before != by and before.partition(" ")[0] == by.partition(" ")[0]


class OtherRuns:
    """The runs that a score function makes, such as those of a judge, or that a tool makes by itself; those of sub-agents are in the
    history of their caller. What they use is booked and kept after each of their steps, as `part` of what the cell's run has cost.

    With `refuse` they make no further call once the budget of the experiment is spent, and `refused` says why.
    """

    def __init__(self, storage: Storage, run_id: str, purse: Purse, part: str, *, refuse: bool) -> None:
        self._storage, self._run_id, self._purse, self._part, self._refuse = storage, run_id, purse, part, refuse
        self._before = purse.parts(run_id).get(part, Spent())
        self._known = self._before
        self._runs: list[tuple[Run, int]] = []
        self._lock = threading.Lock()
        self.refused = ""

    def __call__(self, run: Run) -> None:
        """A run was made."""
        self._runs.append((run, len(run.history)))
        run.observe(self._book)
        if self._refuse:
            agent = copy.copy(run.agent)
            agent.middleware = (self._asked, *agent.middleware)
            run.stepper.agent = agent
            run.stepper.parent_limit = charged_as(self._purse)

    async def _asked(self, request: ModelRequest, ask: Ask) -> ModelResponse:
        if why := self._purse.spent_up():
            self.refused = why
            raise ConfigurationError(f"{why[0].upper()}{why[1:]}. The run is scored once study.budget allows it.")
        return await ask(request)

    def _book(self, event: events.Event) -> None:
        if isinstance(event, events.TurnCompleted | events.RunEnded):
            self.book()

    def book(self) -> None:
        """Book and keep what was used."""
        with self._lock:  # they may be on several threads
            used = [spent_by(run.history.since(before)) for run, before in self._runs if run.origin.caller is None]
            spent = sum(used, self._before)
            if spent != self._known:
                self._known = spent
                self._purse.book(self._run_id, spent, self._part)
                note_beside(self._storage, self._run_id, self._part, spent)


def charged_as(purse: Purse) -> Callable[[RunSettings], RunSettings] | None:
    """What has usage that was not reported estimated as the experiment's budget says; None where it says nothing of that."""
    policy = "warn" if purse.budget is None else purse.budget.missing_usage
    if policy not in ("estimate", "charge_cap"):
        return None

    def charged(settings: RunSettings) -> RunSettings:
        if settings.budget.missing_usage != "warn":
            return settings
        return replace(settings, budget=replace(settings.budget, missing_usage=policy))

    return charged


async def scored(score: Score, result: RunResult, by: str, judges: OtherRuns) -> str | None:
    """The score as JSON text, with what the function is known `by`; the error in the place of one that raised, or gave what is no
    score. None where the budget of the experiment left no call for it: the run has no score yet."""
    noted: dict[str, Any]
    try:
        with call_context.watched(judges):
            value: Any = score(result)
            if inspect.isawaitable(value):
                value = await value
        noted = {"score": _plain(value)}
    except Exception as error:
        noted = {"error": in_words(error)}
    finally:
        judges.book()
    return None if judges.refused else hidden(json.dumps({**noted, "by": by}), without_keys)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise TypeError(f"the score has the key {wrong!r}: use texts.")
        return {key: _number(one, f"score[{key!r}]") for key, one in value.items()}
    return _number(value, "score")


def _number(value: Any, what: str) -> float | bool | None:
    """A number or a bool; those of numpy too. None is a score that is not known."""
    item = getattr(value, "item", None)
    value = item() if callable(item) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value) if value == value else None  # noqa: PLR0124  not a number: not known
    if hasattr(value, "__float__"):  # a Decimal, a Fraction
        return float(value)
    raise TypeError(f"{what} is {value!r}: return a number, a bool, a dict of them, or None.")
