"""Why each run ends under a configuration, and which parts of it fired."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agentlab.stop import Custom, Not, StopCondition
from agentlab.types import StopReason
from agentlab.whatif import conditions, prefixes
from agentlab.whatif.conditions import BUILT_IN
from agentlab.whatif.judging import FINISHED, STOPPED, Judge, Verdict
from agentlab.whatif.records import Bools

Words = npt.NDArray[np.object_]


def of(judge: Judge, verdict: Verdict) -> tuple[Words, Words]:
    """The reason by which each run ends (None: not known), and what fired: parts of the condition, or a limit; in the order of
    precedence of a run, where a condition comes before the budget."""
    records, row, found = judge.records, verdict.row, verdict.found
    broken, tree = found.broken, found.tree
    stopped, finished = verdict.outcome == STOPPED, verdict.outcome == FINISHED
    reason, fired = np.full(len(records), None, dtype=object), np.full(len(records), "", dtype=object)
    for place, limit in enumerate(found.limits):
        here = stopped & (limit.first == row) & (broken.by == place)
        reason[here], fired[here] = str(limit.reason), limit.name
    if tree is not None:
        met = stopped & (found.met == row)
        reason[met & broken.off] = None  # a frame cannot tell whether it was met by what was left of the step
        reason[met & ~broken.off] = str(StopReason.STOP_CONDITION)
        _name(judge, fired, tree, row, (met | (finished & (found.met == row))) & ~broken.off)
        if records.histories is not None:
            for run in np.flatnonzero(stopped & broken.off):
                history = prefixes.broken_off(records.histories(int(run)), int(row[run]), int(broken.behind[run]))
                names = prefixes.deciding_at(history, tree)
                limit = found.limits[int(broken.by[run])]
                reason[run] = str(StopReason.STOP_CONDITION if names else limit.reason)
                fired[run] = ", ".join(names) or limit.name
    failed = stopped & (found.raised == row) & ~broken.off
    reason[failed], fired[failed] = str(StopReason.ERROR), ""
    reason[finished] = records.reason[finished]
    return reason, fired


def _name(judge: Judge, fired: Words, tree: StopCondition, row: conditions.First, where: Bools) -> None:
    """The parts of the condition that decided, as a run tells of them."""
    if not where.any():
        return
    records = judge.records
    if not judge.was_asked(tree):
        for run in np.flatnonzero(where):
            history = prefixes.history_of(records, int(run), tree).prefix(int(row[run]) + 1)
            fired[run] = ", ".join(prefixes.deciding_at(history, tree))
        return
    rows = np.where(where, records.start[:-1] + row, 0)

    def is_met(node: StopCondition) -> Bools:
        if isinstance(node, BUILT_IN):
            found: Bools = judge.first_of(node) <= row
            return found
        return conditions.answers_of(node, judge.answers).met[rows]

    names = np.full(len(fired), "", dtype=object)
    for node, decides in conditions.deciding(tree, is_met):
        name = _name_of(node)
        names = np.where(decides & where, np.where(names == "", name, names + ", " + name), names)
    fired[where] = names[where]


def _name_of(node: StopCondition) -> str:
    if isinstance(node, Not):
        return f"not {_name_of(node.parts[0])}"
    return node.name if isinstance(node, Custom) else type(node).__name__
