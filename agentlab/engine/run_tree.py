"""A run, its branches and its child runs as one tree, with readable names.

The first run is `1`, its branches and children are `1.1` and `1.2` in the order they were made, those of `1.2` are `1.2.1`, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from agentlab._internal.safe_text import one_line
from agentlab._internal.values import dataclass
from agentlab.engine.branches import RunLike
from agentlab.engine.plan import Origin
from agentlab.limits.settings import RunSettings
from agentlab.records.result import RunResult

L = TypeVar("L", bound=RunLike)
R = TypeVar("R", bound=RunLike | RunResult)


@dataclass(frozen=True, slots=True)
class RunNode(Generic[R]):
    """A run in its tree.

    `name` is its position in the tree in digits, `depth` the number of runs above it. `parent` is the node that it was forked from, or
    that called it; None if that node is not in the tree. `forked_at` is the number of steps that it took over, `called_in` the step of
    its parent that called it, None for a fork.
    """

    run: R
    name: str
    depth: int = 0
    parent: RunNode[R] | None = None
    forked_at: int = 0
    called_in: int | None = None

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return id_of(self.run)


def id_of(run: RunLike | RunResult) -> str:
    """Return the id of a run or of its result."""
    return run.run_id if isinstance(run, RunResult) else run.id


def first_of(run: L) -> L:
    """Return the first run of the tree that contains this run."""
    while (before := run.origin.parent or run.origin.caller) is not None:
        run = before
    return run


def family_of(run: L) -> tuple[RunNode[L], ...]:
    """Return the whole tree of a run, depth first: each run is followed by its branches and children."""
    return tuple(_with_branches(RunNode(first_of(run), "1")))


def _with_branches(node: RunNode[L]) -> Iterator[RunNode[L]]:
    waiting = [node]  # no recursion: a chain of branches may be long
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [_below(node, run, place) for place, run in reversed(tuple(enumerate(node.run.branches.descendants, start=1)))]


def members_of(runs: Iterable[R]) -> tuple[RunNode[R], ...]:
    """Return runs or results as trees, by the ids of their parents; a run whose parent is not among them is a root."""
    by_id = {id_of(run): run for run in runs}
    children: dict[str | None, list[R]] = {}
    for run in by_id.values():
        parent_run_id = origin_of(run).parent_run_id
        children.setdefault(parent_run_id if parent_run_id in by_id else None, []).append(run)
    nodes: list[RunNode[R]] = []
    waiting = [RunNode(run, str(place)) for place, run in enumerate(children.get(None, ()), start=1)][::-1]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += [_below(node, run, place) for place, run in reversed(tuple(enumerate(children.get(node.run_id, ()), start=1)))]
    return tuple(nodes)


def _below(parent: RunNode[R], run: R, place: int) -> RunNode[R]:
    origin = origin_of(run)
    called_in = origin.parent_step if origin.forked_at is None else None
    return RunNode(run, f"{parent.name}.{place}", parent.depth + 1, parent, origin.forked_at or 0, called_in)


def origin_of(run: RunLike | RunResult) -> Origin[Any] | RunResult:
    """Return the origin of a run. A result has the same fields itself."""
    return run if isinstance(run, RunResult) else run.origin


# Differences ---------------------------------------------------------------------------------------------------------------


def differences(branch: RunLike) -> tuple[str, ...]:
    """Return in words how a branch differs from the run that it was forked from; empty if the run is no branch."""
    parent = branch.origin.parent
    if parent is None:
        return ()
    found = []
    ours, theirs = branch.agent.model, parent.agent.model
    if (ours.name, ours.model) != (theirs.name, theirs.model):
        found.append(f"model {ours.name}:{ours.model}")
    elif branch.agent is not parent.agent:
        found.append(f"agent {branch.agent.name}")
    if branch.prompt != parent.prompt:
        found.append("another prompt")
    found += _in_messages(branch, parent)
    return (*found, *_in_settings(branch.limits.snapshot(), parent.limits.snapshot()))


def message_of(branch: RunLike) -> str | None:
    """Return the message that a person added after the kept steps of a branch; None if there is none."""
    parent, at = branch.origin.parent, branch.origin.forked_at or 0
    if parent is None:
        return None
    ours, theirs = branch.timeline.messages_of(at), parent.timeline.messages_of(at)
    added = ours[-1].text if len(ours) > len(theirs) else None
    return None if added == branch.limits.continuation.hint else added  # the hint is added to an answer that was cut off


def _in_messages(branch: RunLike, parent: RunLike) -> Iterator[str]:
    at = branch.origin.forked_at or 0
    if at:
        ours, theirs = branch.history[at - 1].tool_results, parent.history[at - 1].tool_results
        before = {result.call_id: result.content for result in theirs}
        changed = [result.name for result in ours if before.get(result.call_id) != result.content]
        if changed:
            yield f"tool result of {', '.join(dict.fromkeys(changed))}"
    if (added := message_of(branch)) is not None:
        yield f'message "{one_line(added, 40)}"'


def _in_settings(ours: RunSettings, theirs: RunSettings) -> Iterator[str]:
    for part in ("budget", "continuation"):
        mine, other = getattr(ours, part), getattr(theirs, part)
        if mine != other:
            for name, field in type(mine).__dataclass_fields__.items():
                value = getattr(mine, name)
                if value != getattr(other, name):
                    yield f"{name} {field.metadata.get('none', 'no limit') if value is None else value}"
    if ours.stop != theirs.stop:
        yield f"stop {'no condition' if ours.stop is None else ours.stop}"
    if ours.terminating != theirs.terminating:
        tools = "none" if ours.terminating is None else ", ".join(ours.terminating.tools)
        yield f"terminating tools {tools}"
    if ours.approve != theirs.approve:
        yield f"approve {', '.join(map(str, ours.approve)) or 'nothing'}"
    if ours.policy is not theirs.policy:
        yield "another policy"
