"""Scorers for experiments: exact and numeric comparison, JSON, code, tool calls, and models as judges.

May import: `experiments.tasks`, `experiments.status`, and what is below `experiments`.

    answers    compare the answer with the target of the task: `lab.scorers.Exact()`, `lab.scorers.Numeric(0.01)`
    programs   run the program in the answer, in a process of its own
    calls      which tools a run called
    judges     a model as judge, of one answer or of a pair
    people     what people said, in the widget of `lab.label`
    base       `Score`, `PairJudgement`, and how a scorer is called
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab._internal.names import module_hooks
from agentlab.experiments.scorers.answers import F1, Choice, Exact, Includes, JsonEqual, Matches, Normalised, Numeric
from agentlab.experiments.scorers.base import PairJudgement, Score
from agentlab.experiments.scorers.calls import ToolUse
from agentlab.experiments.scorers.judges import Judge, Pairwise, judge_pairs, win_rates
from agentlab.experiments.scorers.people import Labels, PairLabels
from agentlab.experiments.scorers.programs import Code

__all__ = [
    "Choice",
    "Code",
    "Exact",
    "F1",
    "Includes",
    "JsonEqual",
    "Judge",
    "Labels",
    "Matches",
    "Normalised",
    "Numeric",
    "PairJudgement",
    "PairLabels",
    "Pairwise",
    "Score",
    "ToolUse",
    "judge_pairs",
    "win_rates",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks("agentlab.scorers", __all__)
