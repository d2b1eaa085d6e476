"""Runs and their branches, as data. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pandas as pd

from agentlab.engine.lockstep import Lockstep
from agentlab.engine.run_tree import RunNode, family_of, members_of, origin_of
from agentlab.errors import ConfigurationError
from agentlab.experiments.results import ExperimentResults
from agentlab.recorder import array
from agentlab.results import RunResult
from agentlab.run import Run
from agentlab.storage.store import Store

Shown: TypeAlias = Run | RunResult | Iterable[Run | RunResult] | Lockstep | Store | ExperimentResults

ADVICE = "pass a run, whose whole family is drawn, several runs or results in a list, a store, or the results of an experiment"
_COLUMNS: dict[str, Any] = {
    "run_id": "string",
    "parent_run_id": "string",
    "forked_at": "Int64",
    "called_in": "Int64",
    "kind": "string",
    "first_step": "Int64",
    "last_step": "Int64",
    "steps": "Int64",
    "lane": "Int64",
    "provider": "string",
    "model": "string",
    "label": "string",
    "stop_reason": "string",
    "terminated": "boolean",
    "tokens": "Int64",
    "cost_usd": "Float64",
}


def tree_data(runs: Shown) -> pd.DataFrame:
    """Runs, their branches and their sub-agents' runs, a row a run, from the top lane down.

    Columns: `run_id`, `parent_run_id`, `forked_at` (steps it has from there; NA: no branch), `called_in` (the
    step of its caller; NA: no sub-agent's); `kind`, which is `run`, `branch` or
    `sub-agent`; `first_step` and `last_step`, where its own line begins and ends on the axis of the first run's steps (a sub-agent's
    begins at the step that called it; 0 where the run that it came from is not shown); `steps`, `lane`, `provider`, `model`; `label`,
    its place in the tree in digits (`1`, `1.2`: the second run that came from `1`); `stop_reason` and `terminated` (NA: it goes on),
    `tokens` and `cost_usd` of the whole run, sub-agents included (NA: unknown).

    `runs` is a run, whose whole family is shown, several runs or results in a list, a Lockstep, a Store, or the results of an
    experiment. Later forks stand nearer to the line that they
    leave, so that no two lines cross.

    Example:
        >>> branch = ended.fork(at=2)
        >>> lab.plots.tree_data(ended).columns.tolist()
        ['run_id', 'parent_run_id', 'forked_at', 'called_in', 'kind', 'first_step', 'last_step', 'steps', 'lane'...
    """
    rows = [_row(member, lane, origin) for lane, (member, origin) in enumerate(_in_lanes(_members(runs)))]
    return pd.DataFrame(
        {name: array([row[place] for row in rows], dtype) for place, (name, dtype) in enumerate(_COLUMNS.items())}
    )


def _members(runs: object) -> Sequence[RunNode[Any]]:
    if isinstance(runs, Run):
        return family_of(runs)
    if isinstance(runs, Store):
        runs = [runs.load(run_id) for run_id in runs.run_ids()]
    elif isinstance(runs, ExperimentResults):
        runs = runs.loaded
    elif isinstance(runs, Lockstep):
        runs = runs.runs
    several: list[Any] | None = [runs] if isinstance(runs, RunResult) else None
    if several is None and isinstance(runs, Iterable) and not isinstance(runs, str | bytes):
        several = list(runs)
    if several is None:
        raise ConfigurationError(f"lab.plots.tree() cannot show {type(runs).__name__}: {ADVICE}.")
    for one in several:
        if not isinstance(one, Run | RunResult):
            raise ConfigurationError(f"lab.plots.tree() cannot show {type(one).__name__}: {ADVICE}.")
    return members_of(several)


def _in_lanes(members: Sequence[RunNode[Any]]) -> list[tuple[RunNode[Any], RunNode[Any] | None]]:
    """The members from the top lane down, each with the one whose line it leaves."""
    leaving: dict[str | None, list[RunNode[Any]]] = {}
    origins = {member.run_id: origin(member) for member in members}
    for member in members:
        left = origins[member.run_id]
        leaving.setdefault(None if left is None else left.run_id, []).append(member)
    ordered: list[tuple[RunNode[Any], RunNode[Any] | None]] = []
    waiting = leaving.get(None, [])[::-1]
    while waiting:
        member = waiting.pop()
        ordered.append((member, origins[member.run_id]))
        waiting += sorted(leaving.get(member.run_id, ()), key=_leaves_at)  # the last is taken first
    return ordered


def origin(member: RunNode[Any]) -> RunNode[Any] | None:
    """The run whose line a branch leaves: of a fork within the steps that its parent has from another run, that other run."""
    left = member.parent
    while left is not None and left.parent is not None and member.forked_at < left.forked_at:
        left = left.parent
    return left


def _leaves_at(member: RunNode[Any]) -> int:
    """After how many steps of the run that it came from its line begins."""
    return member.forked_at if member.called_in is None else member.called_in


def _offset(member: RunNode[Any]) -> int:
    """Where on the axis its own steps, and those it has from a fork, begin to count."""
    offset, one = 0, member
    while one.parent is not None:
        offset += one.called_in or 0
        one = one.parent
    return offset


def _row(member: RunNode[Any], lane: int, left: RunNode[Any] | None) -> tuple[Any, ...]:
    run, offset = member.run, _offset(member)
    came = origin_of(run)
    kind = "branch" if came.forked_at is not None else "run" if came.parent_step is None else "sub-agent"
    result = run if isinstance(run, RunResult) else run.result
    model = (run.provider, run.model) if isinstance(run, RunResult) else (run.agent.model.name, run.agent.model.model)
    history = run.history
    return (
        member.run_id,
        came.parent_run_id,
        came.forked_at,
        came.parent_step if came.forked_at is None else None,
        kind,
        0 if left is None else offset + member.forked_at,
        offset + len(history),
        len(history),
        lane,
        *model,
        member.name,
        None if result is None else str(result.stop_reason),
        None if result is None else result.terminated,
        history.tokens,
        None if history.cost_usd is None else float(history.cost_usd),
    )
