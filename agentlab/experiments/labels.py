"""Labels that people give to answers: what is labelled, and the file with the labels.

A label belongs to an answer, not to a run: equal answers to one task are labelled once, and a label stays if the runs are repeated. The
file holds no agent and no model.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab._internal.safe_text import cut
from agentlab.errors import ConfigurationError
from agentlab.experiments.tasks import Task, hash_of

if TYPE_CHECKING:
    from agentlab.experiments.results import ExperimentResults
    from agentlab.experiments.status import CellStatus

TIE = "tie"


@dataclass(frozen=True, slots=True)
class Item:
    """An answer to a task, or two that are compared."""

    task: Task
    answers: tuple[str, ...]
    runs: int = 1
    """The number of runs, or of pairs of runs, with these answers."""

    @property
    def key(self) -> str:
        """Identifies the prompt, the target and the answers, in any order."""
        return key_of(self.task, *self.answers)


def key_of(task: Task, *answers: str) -> str:
    """Return what identifies a prompt, its target, and answers in any order."""
    return hash_of([task.text, task.target, *sorted(answers)])


def items_of(results: ExperimentResults, by: str | None, order: random.Random) -> list[Item]:
    """Return the different answers of the runs that ended without an error, or with `by` the pairs of different answers, shuffled."""
    found, counts = dict[str, Item](), Counter[str]()
    ended = {one.run_id: one for one in results.statuses if one.state == "ended" and not one.failed}
    runs = {run_id: results.store.load(run_id, results.grid.agents[one.cell.agent]).result for run_id, one in ended.items()}
    texts = {run_id: result.text for run_id, result in runs.items() if result is not None}
    groups = (
        [(run_id,) for run_id in texts] if by is None else [tuple(one.run_id for one in pair) for pair in pairs_of(results, by)]
    )
    for ids in groups:
        answers = [texts[run_id] for run_id in ids if run_id in texts]
        if len({*answers}) == (1 if by is None else 2):
            order.shuffle(answers)
            item = Item(results.grid.tasks[ended[ids[0]].cell.prompt_id], tuple(answers))
            found.setdefault(item.key, item)
            counts[item.key] += 1
    if not found:
        what = "no ended run" if by is None else "no two runs with different answers to one task"
        raise ConfigurationError(f"label: {results!r} has {what}.")
    items = [replace(item, runs=counts[key]) for key, item in found.items()]
    order.shuffle(items)
    return items


def pairs_of(results: ExperimentResults, by: str) -> list[tuple[CellStatus, CellStatus]]:
    """Return each two ended runs of the same task and repeat that differ in `by`. Raises ConfigurationError if there are none."""
    if by not in ("agent", "settings"):
        raise ConfigurationError(f"by={by!r}: choose agent or settings.")
    groups: dict[tuple[Any, ...], list[CellStatus]] = {}
    for one in results.statuses:
        if one.state == "ended":
            cell = one.cell
            groups.setdefault((cell.prompt_id, cell.settings if by == "agent" else cell.agent, cell.repeat), []).append(one)
    pairs = [pair for runs in groups.values() for pair in combinations(runs, 2)]
    if not pairs:
        raise ConfigurationError(f"No two runs have the same task and repeat and another {by}: run an experiment with several.")
    return pairs


class LabelFile:
    """A file of JSON lines, one per label or withdrawal; the last line of a rater and an item counts. Several processes may add lines:
    each is written at once, and one that was cut off by a crash is skipped.

    Raises ConfigurationError for a file with other content.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser()
        if self.path.is_dir() or not self.path.parent.is_dir():
            what = "that is a folder" if self.path.is_dir() else f"there is no folder {str(self.path.parent)!r}; make it first"
            raise ConfigurationError(f"label: {str(path)!r}: {what}. Name a file, such as 'labels.jsonl'.")

    def read(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Return the newest label of each rater and item."""
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for line in self._lines():
            place = (line["rater"], line["item"])
            found.pop(place, None)
            if line["grade"] is not None:
                found[place] = line
        return found

    def _lines(self) -> Iterator[Mapping[str, Any]]:
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        for number, text in enumerate(lines, 1):
            try:
                line = json.loads(text) if text.strip() else None
            except ValueError:
                if b'{"rater":'.startswith(text[:9]):  # cut off by a crash
                    continue
                line = text
            if isinstance(line, Mapping) and {"rater", "item", "grade", "score"} <= {*line}:
                yield line
            elif line is not None:
                raise ConfigurationError(
                    f"{str(self.path)!r}, line {number}, is no label: {cut(repr(line), 80)}. Name another file."
                )

    def add(self, rater: str, item: Item, grade: str | None, score: float | bool | None) -> None:
        """Write a label; None withdraws it. It is on the disk when this returns."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        line = {"rater": rater, "item": item.key, "prompt_id": item.task.id, "grade": grade, "score": score, "at": at}
        with self.path.open("ab+") as file:
            is_cut_off = bool(file.tell()) and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
            file.write(b"\n" * is_cut_off + json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
            file.flush()
            os.fsync(file.fileno())


def checked_rater(rater: object) -> str:
    """Return the name of a rater. Raises ConfigurationError for a name that cannot be that of a column."""
    if not isinstance(rater, str) or not rater.strip() or rater in ("score", "error", "why", "version"):
        raise ConfigurationError(f"label(rater={rater!r}): pass the name of the person who labels, such as rater='anna'.")
    return rater.strip()


def checked_grades(grades: object) -> dict[str, float | bool]:
    """Return the grades and their scores; of a number n, the grades 1 to n. Raises ConfigurationError."""
    if isinstance(grades, int) and not isinstance(grades, bool):
        grades = {str(one): one for one in range(1, grades + 1)}
    if (
        not isinstance(grades, Mapping)
        or not 2 <= len(grades) <= 9
        or not all(isinstance(one, str) and isinstance(score, int | float) for one, score in grades.items())
    ):
        raise ConfigurationError(
            f"label(grades={grades!r}): pass 2 to 9 grades with their scores, such as {{'good': 1, 'fair': 0.5, 'poor': 0}}, or a "
            "number: 5 for the grades 1 to 5."
        )
    return dict(grades)


def keys_of(grades: Sequence[str]) -> list[list[str]]:
    """Return the keys of each grade: its number, and its first letter if that is free."""
    letters = [one[:1].lower() for one in grades]
    return [
        [str(number), *([letter] if letter.isalpha() and letters.count(letter) == 1 and letter not in "ush" else [])]
        for number, letter in enumerate(letters, 1)
    ]
