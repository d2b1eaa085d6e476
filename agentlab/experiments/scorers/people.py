"""What people said in the widget of `lab.label`, as scores."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentlab.errors import ConfigurationError
from agentlab.experiments.labels import TIE, LabelFile, key_of
from agentlab.experiments.scorers.base import PairJudgement, Score
from agentlab.experiments.tasks import Task
from agentlab.records.result import RunResult


def _read(path: str | os.PathLike[str], rater: str | None) -> dict[str, dict[str, Any]]:
    """Return the labels by item and rater. Raises ConfigurationError if there is no such file."""
    if not Path(path).expanduser().exists():
        raise ConfigurationError(f"There is no file {str(path)!r}: lab.label(results, path) writes it.")
    found: dict[str, dict[str, Any]] = {}
    for (who, item), label in sorted(LabelFile(path).read().items()):
        if rater in (None, who):
            found.setdefault(item, {})[who] = label
    return found


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of people in a file of `lab.label`: the mean over the raters, and each rater's score as a part.

    An answer without a label has no score. The file is read when the scorer is made. `rater` chooses one person.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = mkdtemp() + "/labels.jsonl"
        >>> results = await lab.Experiment([brief], ["What is the capital of France?"]).run(progress=False)
        >>> labels = lab.label(results, path, rater="anna")
        >>> labels.grade("correct")
        >>> results = await results.rescore(lab.scorers.Labels(path), name="people", progress=False)
        >>> results.runs[["score.people", "score.people.anna"]]
           score.people  score.people.anna
        0          True               True
    """

    path: str | os.PathLike[str]
    rater: str | None = None
    known: Mapping[str, Mapping[str, Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", _read(self.path, self.rater))

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        scores = {who: label["score"] for who, label in self.known.get(key_of(task, result.text), {}).items()}
        if not scores:
            return Score(None, "no label")
        values = [*scores.values()]
        mean = values[0] if all(one == values[0] for one in values) else sum(values) / len(values)
        return Score(mean, "", {} if self.rater is not None else scores)


@dataclass(frozen=True, slots=True)
class PairLabels:
    """What people said of pairs of answers, in a file of `lab.label(…, by="agent")`, for `judge_pairs`: the answer that most of them
    prefer, else a tie. Unknown without a label. Equal answers are a tie.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = mkdtemp() + "/labels.jsonl"
        >>> results = await lab.Experiment({"brief": brief, "endless": endless}, ["?"]).run(progress=False)
        >>> labels = lab.label(results, path, rater="anna", by="agent")
        >>> labels.grade("equal")
        >>> people = lab.scorers.PairLabels(path)
        >>> (await lab.scorers.judge_pairs(results, people, progress=False))[["left", "right", "winner"]]
            left    right winner
        0  brief  endless    tie
    """

    path: str | os.PathLike[str]
    rater: str | None = None
    known: Mapping[str, Mapping[str, Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", _read(self.path, self.rater))

    async def __call__(self, task: Task, left: str, right: str) -> PairJudgement:
        """Return the judgement of two answers."""
        if left == right:
            return PairJudgement(TIE, None, "the answers are equal")
        labels = self.known.get(key_of(task, left, right), {})
        names = {key_of(task, left): "left", key_of(task, right): "right"}
        counts = Counter(names.get(label["grade"], TIE) for label in labels.values())
        if not counts:
            return PairJudgement(None, None, "no label")
        winner = "left" if counts["left"] > counts["right"] else "right" if counts["right"] > counts["left"] else TIE
        return PairJudgement(winner, None, ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
