"""In which step of each run a tool was first called, a reason first given: what the conditions on words ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from agentlab.stop import FinishReasonIs, HasToolCall, StopCondition
from agentlab.whatif.records import Bools, Ints, Records, numbers


@dataclass(slots=True)
class Said:
    """Which words stand in which rows: a few different cells a column, and rows that were read one by one."""

    columns: list[tuple[Ints, dict[str, list[int]]]] = field(default_factory=list)
    """For each column the cell of each row, by number, and for each word the cells that it stands in."""
    besides: dict[str, list[int]] = field(default_factory=dict)
    """For each word the rows that it stands in besides."""

    def rows(self, word: str) -> Ints:
        """The rows that a word stands in."""
        found = [np.flatnonzero(np.isin(codes, cells_of[word])) for codes, cells_of in self.columns if word in cells_of]
        return np.concatenate([*found, np.array(self.besides.get(word, ()), dtype=np.int64)])

    def add(self, cells: pd.Series[str], words_in: Callable[[str], Sequence[str]], where: Bools | None = None) -> None:
        """Read a column, in the rows of `where` alone."""
        codes, different = pd.factorize(cells)
        cells_of: dict[str, list[int]] = {}
        for code, cell in enumerate(different):
            for word in words_in(str(cell)):
                cells_of.setdefault(word, []).append(code)
        self.columns.append((codes if where is None else np.where(where, codes, -1), cells_of))


def first_row(records: Records, leaf: StopCondition) -> npt.NDArray[np.int64]:
    """The first row of each run in which any of a condition's words stands; the number of its rows where none does."""
    if isinstance(leaf, HasToolCall):
        wanted, said = leaf.names, _kept(records, "tools", _tools)
    else:
        assert isinstance(leaf, FinishReasonIs)  # noqa: S101  for the type checker
        wanted, said = leaf.reasons, _kept(records, "finishes", _finishes)
    first = records.lengths.copy()
    for word in wanted:
        rows = said.rows(str(word))
        np.minimum.at(first, records.run[rows], rows - records.start[records.run[rows]])
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


def _kept(records: Records, kind: str, read: Callable[[Records], Said]) -> Said:
    """The words of all rows, read once: they are kept beside what else was made of these records."""
    made: dict[str, Said] = records.__dict__.setdefault("_words", {})
    if kind not in made:
        made[kind] = read(records)
    return made[kind]


def _tools(records: Records) -> Said:
    cells = records.column("tools", "HasToolCall").fillna("").astype(str)
    counts = numbers(records.steps, "tool_calls").to_numpy()
    names = {cell: cell.split(", ") if cell else [] for cell in cells.unique()}
    found = Said()
    if records.histories is None:
        found.add(cells, names.__getitem__)
        return found
    odd = ~np.isnan(counts) & (cells.map({cell: len(several) for cell, several in names.items()}).to_numpy() != counts)
    found.add(cells, names.__getitem__, where=~odd)
    for row in np.flatnonzero(odd):  # a name with a comma that a model made up
        run = int(records.run[row])
        for call in records.histories(run)[int(row - records.start[run])].tool_calls:
            found.besides.setdefault(call.name, []).append(int(row))
    return found


def _finishes(records: Records) -> Said:
    found = Said()
    reasons = records.column("finish_reason", "FinishReasonIs").fillna("").astype(str)
    found.add(reasons, lambda cell: [cell] if cell else [])
    if "raw_finish_reason" in records.steps.columns:
        found.add(records.steps["raw_finish_reason"].fillna("").astype(str), lambda cell: [cell] if cell else [])
    for row in np.flatnonzero(records.several_calls) if records.histories is not None else ():
        assert records.histories is not None  # noqa: S101  for the type checker
        run = int(records.run[row])
        for call in records.histories(run)[int(row - records.start[run])].calls:
            for value in (call.response.signal.finish_reason.value, call.response.signal.raw_value):
                if value is not None:
                    found.besides.setdefault(str(value), []).append(int(row))
    return found
