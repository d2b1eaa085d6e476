"""The status of an experiment's cells in its store, the jobs left to do, and progress bars."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tqdm.auto import tqdm

from agentlab._internal.asyncio_tools import can_start_threads
from agentlab._internal.kernel import has_page
from agentlab._internal.redaction import Redactor, text_of
from agentlab._internal.safe_text import one_line
from agentlab.errors import ConfigurationError
from agentlab.experiments.grid import Cell, Grid
from agentlab.experiments.identity import MADE_BY, differences, made_by, with_task
from agentlab.experiments.runner import FAILED, NOT_STARTED, Job
from agentlab.experiments.scorers.base import Scorer
from agentlab.experiments.scoring import MORE_SCORES, SCORE_NOTE, code_version, is_stale, version_of
from agentlab.experiments.shared_budget import Spent
from agentlab.limits.budget import DEFAULT_TURNS
from agentlab.storage import StoredRun, codec
from agentlab.storage.codec import equal_when_redacted
from agentlab.storage.store import ENDED, OPEN, Store
from agentlab.storage.writer import secrets_of


@dataclass(frozen=True, slots=True)
class CellStatus:
    """The newest attempt at a cell. `stored` is its stored run, `note` its stored score; None if there is none.

    `replayed` is True for a run from a recording, False for a live one, None if that is unknown. `changed` names the functions (tools,
    middleware, conditions) whose code has changed since the run; `score_changed` is True if the score function has changed.
    """

    cell: Cell
    run_id: str
    attempt: int = 1
    stored: StoredRun | None = None
    state: str = NOT_STARTED
    stop_reason: str | None = None
    note: Mapping[str, Any] | None = None
    more_scores: Mapping[str, Any] = field(default_factory=dict)
    replayed: bool | None = None
    changed: tuple[str, ...] = ()
    score_changed: bool = False

    @property
    def failed(self) -> bool:
        """True if the run ended in an error."""
        return self.state == ENDED and self.stop_reason in FAILED

    @property
    def parts(self) -> dict[str, Any] | None:
        """The scores by name; None if the score is not a dict."""
        score = None if self.note is None else self.note.get("score")
        return score if isinstance(score, dict) else None


def all_made_by(grid: Grid) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the identity of the cells' runs, by agent and settings."""
    pairs = grid.one_of_each_pair().items()
    return {pair: made_by(grid.agents[cell.agent], grid.run_of(cell).limits.snapshot()) for pair, cell in pairs}


def cell_statuses(grid: Grid, store: Store, scorer: Scorer | None = None) -> tuple[list[CellStatus], dict[str, StoredRun]]:
    """Return the status of all cells, in their order, and all their stored runs, earlier attempts included. The scores of another
    version of the scorer are marked as such.

    Raises ConfigurationError if the store has other runs under the same ids.
    """
    stored = {run.head.run_id: run for run in store.storage.runs()}
    scores, makers = store.storage.notes(SCORE_NOTE), store.storage.notes(MADE_BY)
    more, code = store.storage.notes(MORE_SCORES), code_version(scorer)
    now_by = all_made_by(grid) if makers else {}
    ours: dict[str, StoredRun] = {}
    found = []
    expected: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in grid.cells:
        status = CellStatus(cell, grid.run_id(cell))
        while status.run_id in stored:
            run = ours[status.run_id] = stored[status.run_id]
            task = grid.tasks[cell.prompt_id]
            now = with_task(now_by.get((cell.agent, cell.settings)), task) or {}
            sent, changed = differences(makers.get(status.run_id), now)
            _check(grid, cell, run, expected, sent)
            end = {} if run.end is None else json.loads(run.end)
            note = json.loads(scores[status.run_id]) if status.run_id in scores else None
            status = replace(
                status,
                stored=run,
                state=store.state_of(run),
                stop_reason=end.get("stop_reason"),
                replayed=end.get("row", {}).get("replayed"),
                note=note,
                more_scores=json.loads(more[status.run_id]) if status.run_id in more else {},
                changed=tuple(changed),
                score_changed=note is not None and is_stale(note, version_of(code, scorer, task)),
            )
            following = grid.run_id(cell, status.attempt + 1)
            if following not in stored:
                break
            status = CellStatus(cell, following, status.attempt + 1)
        found.append(status)
    return found, ours


def _check(
    grid: Grid, cell: Cell, run: StoredRun, expected: dict[tuple[str, str], dict[str, Any]], sent_changes: Sequence[str]
) -> None:
    """Raise ConfigurationError if the stored run is from another experiment with the same name."""
    pair = (cell.agent, cell.settings)
    if pair not in expected:
        agent, settings = grid.agents[cell.agent], grid.run_of(cell).limits.snapshot()
        expected[pair] = {
            "provider": agent.model.name,
            "model": agent.model.model,
            "instructions": agent.instructions,
            "tools": list(agent.tools),
            "options": dict(agent.options),
            "parameters": agent.parameters.given() or None,
            "settings": codec.to_jsonable(settings),
        }
    now = {**expected[pair], "prompt": cell.prompt}
    head: Mapping[str, Any] = json.loads(run.head.body)
    meant: Mapping[str, Any] = json.loads(json.dumps(now, default=text_of))
    for body in (head, meant):  # older stores leave out a max_turns of 20, even if a user set it, since it is the default
        if (budget := body.get("settings", {}).get("budget", {})).get("max_turns") == DEFAULT_TURNS:
            del budget["max_turns"]
            if not budget:
                del body["settings"]["budget"]
    other = [name for name, value in meant.items() if head.get(name) != value]
    if other:  # keys are redacted in stored values, which is not a difference
        hide = Redactor(secrets_of(grid.run_of(cell).agent)).text
        other = [name for name in other if not equal_when_redacted(head.get(name), meant[name], hide)]
    if other := [*other, *sent_changes]:
        raise ConfigurationError(
            f"The store already has the run {run.head.run_id!r}, with other {' and '.join(other)}: a name must belong to one "
            "experiment. Give this experiment another name=…, or rename the agents, prompts or settings that changed; or delete that "
            f"run: store.delete({run.head.run_id!r})."
        )


def jobs(grid: Grid, statuses: list[CellStatus], *, scoring: bool, retry: bool) -> list[tuple[CellStatus, Job]]:
    """Return the jobs to do in the order of the cells. Runs that another process is running come last."""
    now, later = [], []
    for one in statuses:
        cell = one.cell
        job = Job(one.run_id, cell.label, cell.agent, cell.settings, cell.prompt_id, grid.provider_of(cell))
        if one.failed:
            if retry:
                attempt = one.attempt + 1
                run_id = grid.run_id(one.cell, attempt)
                now.append((CellStatus(one.cell, run_id, attempt), replace(job, run_id=run_id)))
        elif one.state == ENDED:
            if scoring and (one.note is None or one.score_changed or (retry and "error" in one.note)):
                now.append((one, replace(job, again=retry)))
        elif one.state == OPEN:
            later.append((one, job))
        else:
            now.append((one, job))
    return now + later


# Progress -----------------------------------------------------------------------------------------------------------------------

REDRAW_INTERVAL_S = 0.5


class Progress:
    """The progress of an experiment by provider. `total` and `done` count runs; with `shown` there are bars."""

    def __init__(self, total: Mapping[str, int], done: Mapping[str, int], *, shown: bool) -> None:
        self.total, self.done, self.failed = dict(total), Counter(done), Counter[str]()
        self._spent: dict[str, Spent] = {}
        self._sums: dict[str, Spent] = {}
        self._bars = (
            {provider: _bar(provider, count, self.done[provider]) for provider, count in total.items()}
            if shown and _can_be_seen()
            else {}
        )

    def spent(self, provider: str, run_id: str, spent: Spent) -> None:
        """Record the usage of a run so far."""
        self._sums[provider] = self._sums.get(provider, Spent()).with_part(self._spent.get(run_id, Spent()), spent)
        self._spent[run_id] = spent
        self._draw(provider, 0)

    def ended(self, provider: str, *, failed: bool) -> None:
        """Record that a run has ended."""
        self.done[provider] += 1
        self.failed[provider] += failed
        self._draw(provider, 1)

    def _draw(self, provider: str, ended: int) -> None:
        if provider in self._bars:
            self._bars[provider].set_postfix_str(self.text(provider), refresh=False)
            self._bars[provider].update(ended)

    def text(self, provider: str) -> str:
        """Return the cost so far, unless none is known of, and the number of failures, as text."""
        cost = self._sums[provider].dollars if provider in self._sums else ""
        return ", ".join(filter(None, [cost, f"{self.failed[provider]} failed" if self.failed[provider] else ""]))

    def close(self) -> None:
        """Close the bars, which remain visible."""
        for provider, bar in self._bars.items():
            bar.set_postfix_str(self.text(provider), refresh=True)
            bar.close()


def _bar(provider: str, total: int, done: int) -> Any:
    if not can_start_threads():
        tqdm.monitor_interval = 0  # otherwise tqdm starts a thread that looks for bars that stand still
    return tqdm(desc=one_line(provider), total=total, initial=done, unit="run", mininterval=REDRAW_INTERVAL_S, miniters=0)


def _can_be_seen() -> bool:
    return has_page() or sys.stderr.isatty()
