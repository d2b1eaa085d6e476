"""The runs of sub-agents that a run of a store has called in earlier processes, put back below it to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

from agentlab.engine.branches import set_caller, set_parent
from agentlab.errors import ConfigurationError, StorageError
from agentlab.run import Run
from agentlab.storage import Storage
from agentlab.storage.rebuild import rebuilt
from agentlab.subagent import SubAgent


def put_back(storage: Storage, ready: Callable[[Run], None], run: Run) -> None:
    """The children of `run` that its history tells of; one that is not kept any more, or is damaged, is left out."""
    known: dict[str, Run] = {}
    for use in chain(*(step.children for step in run.history), run.history.cut_off):
        child = _looked_at(storage, run, use.run_id, use.tool)
        if child is None:
            continue
        ready(child)
        origin = child.origin
        parent = None if origin.forked_at is None else known.get(origin.parent_run_id or "")
        if parent is not None:
            set_parent(child, parent)
        set_caller(child, run, origin.parent_step or 0, origin.called_by or use.call_id)
        child.stepper.origin = replace(child.origin, parent_run_id=origin.parent_run_id)
        known[child.id] = child


def _looked_at(storage: Storage, caller: Run, run_id: str, tool: str) -> Run | None:
    by = getattr(getattr(caller.agent.tools.get(tool), "function", None), "__self__", None)
    given = (by.agent, by.settings) if isinstance(by, SubAgent) else (None, None)
    for agent, settings in (given, (None, None)):  # by another agent than it had, it is at least seen
        try:
            child = rebuilt(storage, storage.runs([run_id])[0], agent, defaults=settings)
        except ConfigurationError:
            continue
        except StorageError:
            return None
        child.stepper.transport, child.branches.was_loaded = caller.stepper.transport, True
        return child
    return None
