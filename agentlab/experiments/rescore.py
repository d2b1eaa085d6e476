"""Scores stored runs with other scorers, without running them again (`results.rescore`)."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Mapping, Sequence

from agentlab._internal.asyncio_tools import together
from agentlab._internal.formatting import counted
from agentlab._internal.redaction import Redactor
from agentlab._internal.safe_text import one_line
from agentlab.errors import ConfigurationError
from agentlab.experiments.grid import Grid
from agentlab.experiments.scorers.base import Scorer
from agentlab.experiments.scoring import (
    MORE_SCORES,
    OtherRuns,
    as_scorer,
    check_targets,
    code_version,
    each_of,
    is_stale,
    score_of,
    version_of,
)
from agentlab.experiments.shared_budget import SCORE, SharedBudget, check_budget, spent_beside
from agentlab.experiments.status import CellStatus, Progress
from agentlab.limits.budget import Budget
from agentlab.storage.store import ENDED, Store
from agentlab.storage.writer import secrets_of, store_note


def named_scorers(statuses: Sequence[CellStatus], given: object, name: str | None) -> dict[str, Scorer]:
    """Return the scorers by name. Raises ConfigurationError for a name that the experiment's own scores have."""
    named = dict(each_of(as_scorer(given)))
    if name is not None:
        if len(named) != 1:
            raise ConfigurationError(
                f"name={name!r} is for one scorer, and there are {len(named)}: pass a dict of scorers instead."
            )
        named = {name: next(iter(named.values()))}
    own = {key for one in statuses for key in one.parts or ()} | {"score", "<lambda>", ""}
    taken = next((one for one in named if one in own), None)
    if taken is not None:
        raise ConfigurationError(f"{taken!r} cannot be the name of a further score: pass another one, such as name='second'.")
    return named


async def rescore(
    grid: Grid,
    store: Store,
    statuses: Sequence[CellStatus],
    named: Mapping[str, Scorer],
    *,
    concurrency: int,
    budget: Budget | None,
    progress: bool,
) -> str:
    """Score all ended runs with these scorers, and store the scores beside those that exist. Return a sentence about missing ones."""
    check_budget(budget)
    for scorer in named.values():
        check_targets(scorer, grid.tasks)
    storage = store.storage
    ended = [one for one in statuses if one.stored is not None and one.state == ENDED and not one.failed]
    before = {run_id: json.loads(text) for run_id, text in storage.notes(MORE_SCORES, [one.run_id for one in ended]).items()}
    spent = spent_beside(storage, [one.run_id for one in ended]) if ended else {}
    bars, free = Progress({"scores": len(ended)}, {}, shown=progress), asyncio.Semaphore(concurrency)
    shared_budget = SharedBudget(budget, None, {}, notify=functools.partial(bars.spent, "scores"))
    versions = {name: code_version(scorer) for name, scorer in named.items()}
    missing = dict[str, str]()  # by run and scorer, the reason

    async def score(one: CellStatus) -> None:
        noted, agent, task = dict(before.get(one.run_id, {})), grid.agents[one.cell.agent], grid.tasks[one.cell.prompt_id]
        by = {name: version_of(versions[name], scorer, task) for name, scorer in named.items()}
        old = {name: noted.get(name) for name in named}
        wanted = [name for name, note in old.items() if note is None or "error" in note or is_stale(note, by[name])]
        if wanted and (result := store.load(one.run_id, agent).result) is not None:
            for name in wanted:
                part = f"{SCORE} {name} {len(spent.get(one.run_id, {}))}"  # a new one, which replaces no earlier cost
                judges = OtherRuns(storage, one.run_id, shared_budget, part, refuse=True)
                found = await score_of(named[name], result, task, by[name], judges)
                noted |= {} if found is None else {name: found}
                if found is None or "error" in found:
                    missing[f"{one.run_id} {name}"] = judges.refused if found is None else found["error"]
            store_note(storage, one.run_id, MORE_SCORES, noted, Redactor(secrets_of(agent)).text)

    async def in_turn(one: CellStatus) -> None:
        async with free:
            await score(one)
            bars.ended("scores", failed=False)

    try:
        await together(map(in_turn, ended))
    finally:
        bars.close()
    if not missing:
        return ""
    first = one_line(next(iter(missing.values())), 300).rstrip(".")
    verb = "is" if len(missing) == 1 else "are"
    return f"{counted(len(missing), 'score')} {verb} missing: {first}. The runs are kept; rescore(…) tries again."
