"""In which step of each run a tool was first called, a reason first given: what the conditions on words ask for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from agentlab.stop import FinishReasonIs, HasToolCall, StopCondition
from agentlab.whatif.records import Records, numbers

Places = dict[str, dict[int, int]]
"""For each word the first row in which it stands, by run."""


def first_row(records: Records, leaf: StopCondition) -> npt.NDArray[np.int64]:
    """The first row of each run in which any of a condition's words stands; the number of its rows where none does."""
    if isinstance(leaf, HasToolCall):
        wanted, places = leaf.names, _kept(records, "tools")
    else:
        assert isinstance(leaf, FinishReasonIs)  # noqa: S101  for the type checker
        wanted, places = leaf.reasons, _kept(records, "finishes")
    first = records.lengths.copy()
    for word in wanted:
        for run, place in places.get(str(word), {}).items():
            first[run] = min(int(first[run]), place)
    return first


def unsure_from(records: Records, tree: StopCondition | None) -> npt.NDArray[np.int64]:
    """For each run the row from which on a frame alone cannot tell what the tree says: in a step of several calls only the last one's
    reason stands in it. The number of rows where all can be told."""
    if records.histories is not None or tree is None or not any(isinstance(leaf, FinishReasonIs) for leaf in tree.leaves()):
        return records.lengths
    first = records.lengths.copy()
    rows = np.flatnonzero(numbers(records.steps, "calls").to_numpy() > 1)
    np.minimum.at(first, records.run[rows], rows - records.start[records.run[rows]])
    return first


def _kept(records: Records, kind: str) -> Places:
    """The words of all rows, made once: they are kept beside what else was made of these records."""
    made: dict[str, Places] = records.__dict__.setdefault("_words", {})
    if kind not in made:
        places = made[kind] = Places()
        for row, word in _tools(records) if kind == "tools" else _finishes(records):
            run = int(records.run[row])
            places.setdefault(word, {}).setdefault(run, row - int(records.start[run]))
    return made[kind]


def _tools(records: Records) -> Iterator[tuple[int, str]]:
    cells = records.column("tools", "HasToolCall").fillna("").tolist()
    counts = numbers(records.steps, "tool_calls").tolist()
    for row, (cell, count) in enumerate(zip(cells, counts, strict=True)):
        names = cell.split(", ") if cell else []
        if (
            not np.isnan(count) and len(names) != count and records.histories is not None
        ):  # a name with a comma that a model made up
            run = int(records.run[row])
            names = [call.name for call in records.histories(run)[row - int(records.start[run])].tool_calls]
        for name in names:
            yield row, name


def _finishes(records: Records) -> Iterator[tuple[int, str]]:
    reasons = records.column("finish_reason", "FinishReasonIs").fillna("").tolist()
    raw = records.steps["raw_finish_reason"].fillna("").tolist() if "raw_finish_reason" in records.steps.columns else reasons
    several = records.several_calls if records.histories is not None else np.zeros(len(reasons), bool)
    for row, said in enumerate(zip(reasons, raw, strict=True)):
        for word in said:
            if word:
                yield row, str(word)
        if several[row] and records.histories is not None:
            run = int(records.run[row])
            for call in records.histories(run)[row - int(records.start[run])].calls:
                for value in (call.response.signal.finish_reason.value, call.response.signal.raw_value):
                    if value is not None:
                        yield row, str(value)
