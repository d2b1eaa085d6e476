"""Why each run ends under a configuration, and which parts of it fired."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agentlab.stop import StopCondition
from agentlab.types import StopReason
from agentlab.whatif import conditions, prefixes
from agentlab.whatif.conditions import First
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
    several = np.sum([limit.first == row for limit in found.limits], axis=0) > 1 if found.limits else np.zeros(len(records), bool)
    one_of_them = stopped & broken.unsure & ~broken.off & several  # which was met first inside the step, a frame cannot tell
    reason[one_of_them], fired[one_of_them] = None, ""
    if tree is not None:
        met = stopped & (found.met == row)
        reason[met & ~broken.off] = str(StopReason.STOP_CONDITION)
        where = (met | (finished & (found.met == row))) & ~broken.off & (found.raised > row)
        if where.any():
            fired[where] = _names(judge, tree, row, where)[where]
        unclear = stopped & (broken.off | broken.unsure) & (met | (not conditions.latches(tree)))
        reason[unclear], fired[unclear] = None, ""  # whether it was met by what was left of the step, a frame cannot tell
        for run, readings in judge.read_broken(tree, found, row, stopped).items():
            limit = found.limits[int(broken.by[run])]
            reason[run] = str(StopReason.ERROR if readings is None else StopReason.STOP_CONDITION if readings else limit.reason)
            fired[run] = "" if readings is None else ", ".join(map(prefixes.told, readings)) or limit.name
    failed = stopped & (found.raised == row) & ~broken.off
    reason[failed], fired[failed] = str(StopReason.ERROR), ""
    reason[finished] = records.reason[finished]
    return reason, fired


def _names(judge: Judge, tree: StopCondition, row: First, where: Bools) -> Words:
    """The names of the parts of a condition that decided, as a run tells of them."""
    names = np.full(len(where), "", dtype=object)
    for told, decides in judge.deciding(tree, row, where):
        names = np.where(decides, np.where(names == "", told, names + ", " + told), names)
    return names
