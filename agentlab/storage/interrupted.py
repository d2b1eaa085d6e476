"""A step that was interrupted with its process: the usage of its sub-agents, and its tools that may have run.

While a step runs, the sub-agents that it has called are noted beside the run. If the run is resumed or loaded and that step is not
stored, their usage counts in the run; once the step was taken again they are in its `children`.

Before a tool with `idempotent=False` starts, its call is noted in the same way: it may have run when the run is resumed. The note
then has the call with the step in which it was repeated, for branches that begin before that step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentlab.engine.snapshot import Hold
from agentlab.errors import StorageError
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import ToolCall
from agentlab.records.history import RunHistory
from agentlab.records.step import ChildUse, StepResult
from agentlab.storage import Storage, StoredRun, codec

CALLED = "sub-agents of the step under way"
"""The name of the note of sub-agents."""

BEGUN = "tools that were begun"
"""The name of the note of tools that may have run."""


def children_note(step: int, children: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Return the note of sub-agents: for each its run's id, the tool call's id, the tool's name."""
    return {"step": step, "children": list(children)}


def holds_note(step: int, holds: Iterable[Hold]) -> dict[str, Any]:
    """Return the note of tools that may have run: for each its call, and the step in which it was repeated."""
    calls = [
        {"id": one.call.id, "name": one.call.name, "arguments": one.call.arguments, "answered": one.answered} for one in holds
    ]
    return {"step": step, "calls": calls}


def load_holds(storage: Storage, run: StoredRun) -> tuple[Hold, ...]:
    """Return the calls that were started in the interrupted step, and earlier ones that were repeated since."""
    text = storage.notes(BEGUN, [run.head.run_id]).get(run.head.run_id)
    note: dict[str, Any] = {"step": 0, "calls": ()} if text is None else json.loads(text)
    holds = [
        Hold(ToolCall(call["id"], call["name"], call["arguments"]), call.get("answered")).at(run.steps) for call in note["calls"]
    ]
    return tuple([hold for hold in holds if hold.answered is not None or note["step"] > run.steps])


def interrupted_use(storage: Storage, runs: Iterable[StoredRun]) -> dict[str, tuple[ChildUse, ...]]:
    """Return the usage of sub-agents in the interrupted step of each run, by run id; runs without such usage are left out."""
    open_runs = {run.head.run_id: run for run in runs if run.end is None}
    notes = storage.notes(CALLED, list(open_runs)) if open_runs else {}
    found: dict[str, tuple[ChildUse, ...]] = {}
    for run_id, text in notes.items():
        note = json.loads(text)
        if note["step"] > open_runs[run_id].steps:
            uses = [use for child in note["children"] if (use := _use(storage, *child)) is not None]
            found |= {run_id: tuple(uses)} if uses else {}
    return found


def interrupted_use_at_end(end: Mapping[str, Any] | None) -> tuple[ChildUse, ...]:
    """Return the same for a run that ended without taking that step again."""
    return () if end is None else tuple([codec.from_jsonable(ChildUse, one) for one in end.get("cut_off", ())])


def find(storage: Storage, run_id: str) -> StoredRun | None:
    """Return the run, or None if it is not stored."""
    try:
        return storage.runs([run_id])[0]
    except StorageError as error:
        if f"no run {run_id!r}" in str(error):
            return None
        raise


def _use(storage: Storage, run_id: str, call_id: str, tool: str) -> ChildUse | None:
    """Return the usage of a sub-agent's run, its own sub-agents included; None if it had not started, or was deleted."""
    run = find(storage, run_id)
    if run is None:
        return None
    end = None if run.end is None else json.loads(run.end)
    forked_at = json.loads(run.head.body)["forked_at"] or 0
    steps = (codec.from_jsonable(StepResult, json.loads(one.body)["step"]) for one in storage.steps(run_id)[forked_at:])
    used = RunHistory(steps, interrupted_use_at_end(end) or interrupted_use(storage, [run]).get(run_id, ()))
    reason = None if end is None else StopReason(end["stop_reason"])
    totals = (len(used), used.calls, used.usage, used.cost, used.known_tokens, used.known_cost_usd)
    return ChildUse(run_id, call_id, tool, f"{tool} (cut off)", reason, *totals, cut_off=True)
