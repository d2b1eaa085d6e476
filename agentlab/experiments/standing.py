"""How the cells of an experiment stand in its store: not begun, cut off, ended, failed, scored; and what is to be done about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentlab.budget import DEFAULT_TURNS
from agentlab.errors import ConfigurationError
from agentlab.experiments.execute import FAILED, NOT_STARTED, Job
from agentlab.experiments.grid import Cell, Grid
from agentlab.experiments.identity import MADE_BY, differences, made_by
from agentlab.experiments.scoring import SCORE_NOTE, is_stale
from agentlab.redaction import Redactor, text_of
from agentlab.storage import StoredRun, run_json
from agentlab.storage.but_for_keys import same_but_for_keys
from agentlab.storage.keeper import secrets_of
from agentlab.storage.store import ENDED, OPEN, Store


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest attempt at a cell. `kept` is its run as it is kept, None where there is none; `score` what is noted of it.

    `replayed` is True for a run from a recording, False for a live one, None where that is not known. `changed` names the functions
    (tools, middleware, conditions) whose code is not that by which the run was made; `score_changed` is True where another function
    than the experiment's made the score.
    """

    cell: Cell
    run_id: str
    attempt: int = 1
    kept: StoredRun | None = None
    state: str = NOT_STARTED
    stop_reason: str | None = None
    score: str | None = None
    replayed: bool | None = None
    changed: tuple[str, ...] = ()
    score_changed: bool = False

    @property
    def failed(self) -> bool:
        """Whether the run ended in an error."""
        return self.state == ENDED and self.stop_reason in FAILED

    @property
    def score_failed(self) -> bool:
        """Whether the score function raised, or gave what is no score."""
        return self.score is not None and "error" in json.loads(self.score)

    @property
    def parts(self) -> dict[str, Any] | None:
        """The single scores by their names; None where the score is no dict."""
        score = None if self.score is None else json.loads(self.score).get("score")
        return score if isinstance(score, dict) else None


def all_made_by(grid: Grid) -> dict[tuple[str, str], str]:
    """What the runs of the cells are made by, by agent and settings."""
    cells = {(cell.agent, cell.settings): cell for cell in grid.cells}
    return {pair: made_by(grid.agents[cell.agent], grid.run_of(cell).limits.snapshot()) for pair, cell in cells.items()}


def standings(grid: Grid, store: Store, scored_by: str = "") -> tuple[list[Standing], dict[str, StoredRun]]:
    """All cells as they stand, in their order, and all runs of theirs that are kept, earlier attempts included. `scored_by` says what
    the score function is known by.

    Raises ConfigurationError where the store has other runs than these under the same ids.
    """
    kept = {run.head.run_id: run for run in store.storage.runs()}
    scores, makers = store.storage.notes(SCORE_NOTE), store.storage.notes(MADE_BY)
    now_by = all_made_by(grid) if makers else {}
    ours: dict[str, StoredRun] = {}
    found = []
    as_told: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in grid.cells:
        standing = Standing(cell, grid.run_id(cell))
        while standing.run_id in kept:
            run = ours[standing.run_id] = kept[standing.run_id]
            now = now_by.get((cell.agent, cell.settings), "{}")
            sent, code = differences(makers.get(standing.run_id), now)
            _check(grid, cell, run, as_told, sent)
            end = {} if run.end is None else json.loads(run.end)
            score = scores.get(standing.run_id)
            standing = replace(
                standing,
                kept=run,
                state=store.state_of(run),
                stop_reason=end.get("stop_reason"),
                replayed=end.get("row", {}).get("replayed"),
                score=score,
                changed=tuple(code),
                score_changed=score is not None and is_stale(json.loads(score), scored_by),
            )
            following = grid.run_id(cell, standing.attempt + 1)
            if following not in kept:
                break
            standing = Standing(cell, following, standing.attempt + 1)
        found.append(standing)
    return found, ours


def _check(
    grid: Grid, cell: Cell, run: StoredRun, as_told: dict[tuple[str, str], dict[str, Any]], sent_otherwise: Sequence[str]
) -> None:
    """The run that is kept has to be one of this cell, and not of an earlier wording of it."""
    pair = (cell.agent, cell.settings)
    if pair not in as_told:
        agent, settings = grid.agents[cell.agent], grid.run_of(cell).limits.snapshot()
        as_told[pair] = {
            "provider": agent.model.name,
            "model": agent.model.model,
            "instructions": agent.instructions,
            "tools": list(agent.tools),
            "options": dict(agent.options),
            "settings": run_json.plain(settings),
        }
    now = {**as_told[pair], "prompt": cell.prompt}
    head: Mapping[str, Any] = json.loads(run.head.body)
    meant: Mapping[str, Any] = json.loads(json.dumps(now, default=text_of))
    for body in (head, meant):  # older stores do not keep a person's 20 turns, as they are the default
        if (budget := body.get("settings", {}).get("budget", {})).get("max_turns") == DEFAULT_TURNS:
            del budget["max_turns"]
            if not budget:
                del body["settings"]["budget"]
    other = [name for name, value in meant.items() if head.get(name) != value]
    if other:  # what is kept is without keys: they are no difference
        hide = Redactor(secrets_of(grid.run_of(cell).agent)).text
        other = [name for name in other if not same_but_for_keys(head.get(name), meant[name], hide)]
    if other := [*other, *sent_otherwise]:
        raise ConfigurationError(
            f"The store has the run {run.head.run_id!r} already, with other {' and '.join(other)}: what is under one name has to be "
            f"one experiment. Give this one another name=…, or a name of their own to the agents, prompts or settings that changed; or "
            f"forget that run: store.delete({run.head.run_id!r})."
        )


def jobs(grid: Grid, standing: list[Standing], *, scoring: bool, retry: bool) -> list[tuple[Standing, Job]]:
    """What is to be done, in the cells' order, those last that somebody else is at work on."""
    now, later = [], []
    for one in standing:
        job = Job(one.run_id, one.cell.label, one.cell.agent, one.cell.settings, one.cell.prompt)
        if one.failed:
            if retry:
                attempt = one.attempt + 1
                run_id = grid.run_id(one.cell, attempt)
                now.append((Standing(one.cell, run_id, attempt), replace(job, run_id=run_id)))
        elif one.state == ENDED:
            if scoring and (one.score is None or one.score_changed or (retry and one.score_failed)):
                now.append((one, replace(job, again=retry)))
        elif one.state == OPEN:
            later.append((one, job))
        else:
            now.append((one, job))
    return now + later
