"""Why each run ends under a configuration, and which parts of the configuration fired."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agentlab.stop import StopCondition
from agentlab.types import StopReason
from agentlab.whatif.conditions import First, latches
from agentlab.whatif.judging import FINISHED, STOPPED, Judge, Verdict
from agentlab.whatif.prefixes import reading_name
from agentlab.whatif.records import Bools

Words = npt.NDArray[np.object_]


def why_ended(judge: Judge, verdict: Verdict) -> tuple[Words, Words]:
    """The stop reason of each run (None: not known), and what fired: parts of the condition, or a limit. As in a run, a condition comes
    before the budget."""
    records, row, found = judge.records, verdict.row, verdict.found
    broken, tree = found.broken, found.tree
    stopped, finished = verdict.outcome == STOPPED, verdict.outcome == FINISHED
    reason, fired = np.full(len(records), None, dtype=object), np.full(len(records), "", dtype=object)
    for place, limit in enumerate(found.limits):
        here = stopped & (limit.first == row) & (broken.by == place)
        reason[here], fired[here] = str(limit.reason), limit.name
    several = np.sum([limit.first == row for limit in found.limits], axis=0) > 1 if found.limits else np.zeros(len(records), bool)
    one_of_them = stopped & broken.unsure & ~broken.off & several  # a frame does not say which was met first
    reason[one_of_them], fired[one_of_them] = None, ""
    if tree is not None:
        met = stopped & (found.met == row)
        reason[met & ~broken.off] = str(StopReason.STOP_CONDITION)
        where = (met | (finished & (found.met == row))) & ~broken.off & (found.raised > row)
        if where.any():
            fired[where] = _names_of_parts(judge, tree, row, where)[where]
        unclear = stopped & (broken.off | broken.unsure) & (met | (not latches(tree)))
        reason[unclear], fired[unclear] = None, ""  # a frame does not say whether the rest of the step met it
        for run, readings in judge.read_broken(tree, found, row, stopped).items():
            limit = found.limits[int(broken.by[run])]
            reason[run] = str(StopReason.ERROR if readings is None else StopReason.STOP_CONDITION if readings else limit.reason)
            fired[run] = "" if readings is None else ", ".join(map(reading_name, readings)) or limit.name
    failed = stopped & (found.raised == row) & ~broken.off
    reason[failed], fired[failed] = str(StopReason.ERROR), ""
    reason[finished] = records.reason[finished]
    return reason, fired


def _names_of_parts(judge: Judge, tree: StopCondition, row: First, where: Bools) -> Words:
    """The names of the parts of a condition that made it met, as a run reports them."""
    names = np.full(len(where), "", dtype=object)
    for name, decides in judge.deciding(tree, row, where):
        names = np.where(decides, np.where(names == "", name, names + ", " + name), names)
    return names
