"""A step that was cut off with its process: what its sub-agents used, and its tools that may have run.

While a step is under way, the sub-agents that it has called are noted beside the run. Where the run goes on, or is looked at, and
that step is not among those that are kept, what they used until then counts in the run; once the step was taken again it is in its
`children`.

Before a tool starts that must not run twice (`idempotent=False`), its call is noted in the same way. Where the run goes on, such a call
may have run. The note keeps it with the step in which it came again, for branches that begin before that step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentlab.engine.snapshot import Hold
from agentlab.errors import StorageError
from agentlab.history import RunHistory
from agentlab.results import ChildUse, StepResult
from agentlab.storage import Storage, StoredRun, run_json
from agentlab.types import StopReason, ToolCall

CALLED = "sub-agents of the step under way"
"""The name under which they are noted."""

BEGUN = "tools that were begun"


def note_of(step: int, children: Iterable[tuple[str, str, str]]) -> str:
    """The note: for each its run's id, the tool call's id, the tool's name."""
    return json.dumps({"step": step, "children": list(children)}, separators=(",", ":"))


def begun_note(step: int, held: Iterable[Hold]) -> str:
    """The note of tools that were begun: for each its call, and the step in which it came again."""
    kept = [
        {"id": hold.call.id, "name": hold.call.name, "arguments": hold.call.arguments, "answered": hold.answered} for hold in held
    ]
    return json.dumps({"step": step, "calls": kept}, separators=(",", ":"))


def holds(storage: Storage, kept: StoredRun) -> tuple[Hold, ...]:
    """The calls that were begun in the step that the run was cut off in, and earlier ones that have come again since."""
    text = storage.notes(BEGUN, [kept.head.run_id]).get(kept.head.run_id)
    note: dict[str, Any] = {"step": 0, "calls": ()} if text is None else json.loads(text)
    noted = [
        Hold(ToolCall(call["id"], call["name"], call["arguments"]), call.get("answered")).at(kept.steps) for call in note["calls"]
    ]
    return tuple([hold for hold in noted if hold.answered is not None or note["step"] > kept.steps])


def cut_off(storage: Storage, kept: Iterable[StoredRun]) -> dict[str, tuple[ChildUse, ...]]:
    """What was used in the step that each of these runs was cut off in, by the runs' ids; of those for which there is something."""
    open_runs = {run.head.run_id: run for run in kept if run.end is None}
    notes = storage.notes(CALLED, list(open_runs)) if open_runs else {}
    found: dict[str, tuple[ChildUse, ...]] = {}
    for run_id, text in notes.items():
        note = json.loads(text)
        if note["step"] > open_runs[run_id].steps:
            uses = [use for child in note["children"] if (use := _use(storage, *child)) is not None]
            found |= {run_id: tuple(uses)} if uses else {}
    return found


def of_end(end: Mapping[str, Any] | None) -> tuple[ChildUse, ...]:
    """The same of a run that ended without taking that step again."""
    return () if end is None else tuple([run_json.made(ChildUse, one) for one in end.get("cut_off", ())])


def find(storage: Storage, run_id: str) -> StoredRun | None:
    """The run, if it is kept."""
    try:
        return storage.runs([run_id])[0]
    except StorageError as error:
        if f"no run {run_id!r}" in str(error):
            return None
        raise


def _use(storage: Storage, run_id: str, call_id: str, tool: str) -> ChildUse | None:
    """What a sub-agent's run used, its own sub-agents included; None where it had not begun, or was forgotten."""
    kept = find(storage, run_id)
    if kept is None:
        return None
    end = None if kept.end is None else json.loads(kept.end)
    forked_at = json.loads(kept.head.body)["forked_at"] or 0
    steps = (run_json.made(StepResult, json.loads(one.body)["step"]) for one in storage.steps(run_id)[forked_at:])
    used = RunHistory(steps, of_end(end) or cut_off(storage, [kept]).get(run_id, ()))
    reason = None if end is None else StopReason(end["stop_reason"])
    counted = (len(used), used.calls, used.usage, used.cost, used.known_tokens, used.known_cost_usd)
    return ChildUse(run_id, call_id, tool, f"{tool} (cut off)", reason, *counted, cut_off=True)
