"""The runs of a store at a glance: no steps and no conversations are read, so that thousands of runs are listed at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentlab.engine.worker import RunState
from agentlab.records.history import RunHistory
from agentlab.storage import SqliteStorage, Storage, StoredRun
from agentlab.storage.loader import WAITING_NOTE, interrupted_use, load_waiting
from agentlab.storage.store import Store
from agentlab.storage.writer import active_writers, is_writer_alive, is_writer_here

SCORE_NOTE = "score"
"""The name of the note with the score that an experiment gave a run."""

_OF_HEAD = ("agent", "provider", "model", "prompt", "parent_run_id", "forked_at", "called_by", "tools", "can_be_made_again")
_OF_END = (
    "stop_reason",
    *(f"row.{name}" for name in ("terminated", "total_tokens", "child_tokens", "cost_usd", "child_cost_usd")),
)
_OF_END += ("row.elapsed_s",)
_OF_ROW = ("cumulative_tokens", "cumulative_cost_usd", "started_s", "duration_s")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run of a store. Tokens, cost and time include its sub-agents; None is unknown.

    `state` is ended, idle, running, paused, waiting (for approval), interrupted, unknown (of another machine) or damaged.
    `waits_for` names the tools that wait for approval. `resumable` is True if no live process writes the run, None if that is unknown.
    `needs_agent` is True if only an agent made again can continue it. `score` is what an experiment noted.
    """

    run_id: str
    begun_at: float
    state: str
    steps: int
    agent: str = ""
    model: str = ""
    prompt: str = ""
    stop_reason: str | None = None
    terminated: bool | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    elapsed_s: float | None = None
    score: float | None = None
    origin: str = ""
    waits_for: tuple[str, ...] = ()
    resumable: bool | None = False
    needs_agent: bool = True


def summaries(store: Store) -> list[RunSummary]:
    """Return all runs of a store, the newest first. Runs whose data cannot be read are listed as damaged."""
    found = _excerpts(store.storage)
    unfinished = [run for run, _ in found if run.end is None]
    ids = [run.head.run_id for run in unfinished]
    notes = store.storage.notes(WAITING_NOTE, ids) if ids else {}
    waiting = {run.head.run_id: _waits_for(store.storage, run) for run in unfinished if run.head.run_id in notes}
    used = interrupted_use(store.storage, unfinished)
    scores = store.storage.notes(SCORE_NOTE)
    alive: dict[str, bool | None] = {}
    listed = []
    for run, last in reversed(found):
        run_id = run.head.run_id
        common: dict[str, Any] = {"run_id": run_id, "begun_at": run.head.begun_at, "steps": run.steps}
        try:
            more = _of_head(_parts(run.head.body, _OF_HEAD)) | {"score": _score(scores.get(run_id))}
            if run.end is not None:
                more |= {"state": "ended"} | _of_end(_parts(run.end, _OF_END))
            else:
                more |= _so_far(last, RunHistory((), used.get(run_id, ()))) | _state(run, waiting.get(run_id, ()), alive)
            listed.append(RunSummary(**common, **more))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            listed.append(RunSummary(**common, state="damaged"))
    return listed


def _excerpts(storage: Storage) -> list[tuple[StoredRun, str | None]]:
    """Return all runs, and the newest step's row of each that has not ended: of a SQLite file only the named parts."""
    if isinstance(storage, SqliteStorage):
        return storage.excerpts(_OF_HEAD, _OF_END, _OF_ROW)
    runs = storage.runs()
    last = dict(storage.rows([run.head.run_id for run in runs if run.end is None]))
    return [(run, last.get(run.head.run_id)) for run in runs]


def _parts(text: str, paths: Sequence[str]) -> list[Any]:
    """Return the values at these paths: `text` is a JSON array of them, or the whole object."""
    whole = json.loads(text)
    return whole if isinstance(whole, list) else [_at(whole, path.split(".")) for path in paths]


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _of_head(parts: Sequence[Any]) -> dict[str, Any]:
    agent, provider, model, prompt, parent, forked_at, called_by, tools, can_be_made_again = parts
    origin = "sub-agent" if called_by is not None else "branch" if parent is not None or forked_at is not None else ""
    return {
        "agent": str(agent),
        "model": f"{provider}:{model}",
        "prompt": str(prompt),
        "origin": origin,
        "needs_agent": bool(tools) or not can_be_made_again,
    }


def _of_end(parts: Sequence[Any]) -> dict[str, Any]:
    stop_reason, terminated, tokens, child_tokens, cost, child_cost, elapsed_s = parts
    return {
        "stop_reason": stop_reason,
        "terminated": bool(terminated),
        "tokens": _sum(tokens, child_tokens),
        "cost_usd": _sum(cost, child_cost),
        "elapsed_s": elapsed_s,
    }


def _so_far(last: str | None, interrupted: RunHistory) -> dict[str, Any]:
    """Return what the finished steps of a run used, and the sub-agents of the step after them."""
    tokens, cost, started_s, duration_s = (None,) * 4 if last is None else _parts(last, _OF_ROW)
    spent = None if interrupted.cost_usd is None else float(interrupted.cost_usd)
    return {
        "tokens": _sum(tokens, interrupted.tokens),
        "cost_usd": _sum(cost, spent),
        "elapsed_s": _sum(started_s, duration_s),
    }


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else round(one + other, 12)


def _score(note: str | None) -> float | None:
    score = None if note is None else json.loads(note).get("score")
    score = score.get("score") if isinstance(score, dict) else score
    return float(score) if isinstance(score, int | float) else None


def _state(run: StoredRun, waits_for: Sequence[str], alive: dict[str, bool | None]) -> dict[str, Any]:
    """Return the state of a run that has not ended. `alive` keeps which processes are alive."""
    here = active_writers.get(run.head.writer)
    if here is not None:
        now = here.run.state
        return {"state": "idle" if now is RunState.READY else str(now), "waits_for": tuple(waits_for)}
    process = run.head.writer.rpartition(",")[0]
    if process not in alive:
        alive[process] = not is_writer_here(run.head.writer) and is_writer_alive(run.head.writer)
    is_alive = alive[process]
    state = {True: "running", False: "interrupted", None: "unknown"}[is_alive]
    return {
        "state": "waiting" if waits_for else state,
        "waits_for": tuple(waits_for),
        "resumable": None if is_alive is None else not is_alive,
    }


def _waits_for(storage: Storage, run: StoredRun) -> tuple[str, ...]:
    """Return the tools of the calls that wait for approval. A call that was begun and has no result is asked about again."""
    try:
        note = load_waiting(storage, run)
        if note is None:
            return ()
        done = {result["call_id"] for result in note["body"]["step"]["tool_results"]}
        decided = done | set(note["given"]) - {note["begun"]}
        return tuple([str(one["tool"]) for one in note["asked"] if one["call_id"] not in decided])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
