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

from agentlab._internal.lazy import module_hooks

if TYPE_CHECKING:
    from agentlab.experiments.scorers.answers import F1 as F1
    from agentlab.experiments.scorers.answers import Choice as Choice
    from agentlab.experiments.scorers.answers import Exact as Exact
    from agentlab.experiments.scorers.answers import Includes as Includes
    from agentlab.experiments.scorers.answers import JsonEqual as JsonEqual
    from agentlab.experiments.scorers.answers import Matches as Matches
    from agentlab.experiments.scorers.answers import Normalised as Normalised
    from agentlab.experiments.scorers.answers import Numeric as Numeric
    from agentlab.experiments.scorers.base import PairJudgement as PairJudgement
    from agentlab.experiments.scorers.base import Score as Score
    from agentlab.experiments.scorers.calls import ToolUse as ToolUse
    from agentlab.experiments.scorers.judges import Judge as Judge
    from agentlab.experiments.scorers.judges import Pairwise as Pairwise
    from agentlab.experiments.scorers.judges import judge_pairs as judge_pairs
    from agentlab.experiments.scorers.judges import win_rates as win_rates
    from agentlab.experiments.scorers.people import Labels as Labels
    from agentlab.experiments.scorers.people import PairLabels as PairLabels
    from agentlab.experiments.scorers.programs import Code as Code

_NAMES = {
    "answers": "Choice Exact Includes JsonEqual Matches Normalised Numeric F1",
    "base": "PairJudgement Score",
    "calls": "ToolUse",
    "judges": "Judge Pairwise judge_pairs win_rates",
    "people": "Labels PairLabels",
    "programs": "Code",
}
"""The public names by the module that defines them."""

_PLACES = {name: f"agentlab.experiments.scorers.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_PLACES)  # noqa: PLE0605  a sorted list is a list

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks("agentlab.scorers", __all__, _PLACES)
