"""The parts that scorers share: `Score`, `PairJudgement`, and how a scorer is called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agentlab._internal.redaction import redacted_repr
from agentlab.experiments.tasks import Task
from agentlab.records.result import RunResult

YES_OR_NO: dict[str, float | bool] = {"correct": True, "wrong": False}
"""The grades of judges and people, unless others are given."""


@redacted_repr
@dataclass(frozen=True, slots=True)
class Score:
    """The score of one run. `value` is a number, or True or False; None is unknown. `why` is the reason, for a person to read; `parts`
    are further numbers by name, each a column of its own.

    Example:
        >>> lab.scorers.Score(True, why="the answer is 'Paris'")
        Score(value=True, why="the answer is 'Paris'", parts={})
    """

    value: float | bool | None
    why: str = ""
    parts: Mapping[str, float | bool | None] = field(default_factory=dict)


@redacted_repr
@dataclass(frozen=True, slots=True)
class PairJudgement:
    """The judgement of two answers: `winner` is `left`, `right` or `tie`, None if unknown.

    `consistent` is False if the judge preferred another answer when their order was exchanged; the winner is then `tie`.

    Example:
        >>> lab.scorers.PairJudgement("left", True, "It is shorter.").winner
        'left'
    """

    winner: str | None
    consistent: bool | None
    why: str


Value: TypeAlias = float | bool | Mapping[str, Any] | Score | Awaitable[Any] | None

Scorer: TypeAlias = Callable[[RunResult[Any]], Value] | Callable[[RunResult[Any], Task], Value]
"""A function of a result, or of a result and its task, sync or async."""


def takes_task(scorer: Scorer) -> bool:
    """True if the scorer has a second positional parameter without a default, or `*args`, or one named `task`."""
    try:
        parameters = [*inspect.signature(scorer).parameters.values()]
    except (TypeError, ValueError):  # a builtin
        return False
    if any(one.name == "task" for one in parameters):
        return True
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len([one for one in positional if one.default is one.empty]) > 1


def ask(scorer: Scorer, result: RunResult, task: Task) -> Any:
    """Call the scorer with what it takes; the answer may be awaitable."""
    call: Callable[..., Any] = scorer
    args, named = _arguments(scorer, result, task)
    return call(*args, **named)


def misfit(scorer: Scorer) -> str:
    """Return why the scorer cannot be called with a result, or with a result and its task; "" if it can, or if nobody knows."""
    try:
        signature = inspect.signature(scorer)
    except (TypeError, ValueError):  # a builtin
        return ""
    args, named = _arguments(scorer, None, None)
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        return str(error)
    return ""


def _arguments(scorer: Scorer, result: Any, task: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not takes_task(scorer):
        return (result,), {}
    by_name = inspect.signature(scorer).parameters.get("task")
    if by_name is not None and by_name.kind is by_name.KEYWORD_ONLY:
        return (result,), {"task": task}
    return (result, task), {}
