"""The first step of each run in which a tool was called or a finish reason was given, for the conditions on such words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from agentlab.history import RunHistory
from agentlab.stop import FinishReasonIs, HasToolCall, StopCondition
from agentlab.whatif.records import Bools, Ints, Records, numbers


@dataclass(slots=True)
class WordRows:
    """Which words occur in which rows: a few different cells per column, and rows that were read one by one."""

    columns: list[tuple[Ints, dict[str, list[int]]]] = field(default_factory=list)
    """For each column the cell of each row, by number, and for each word the cells that contain it."""
    extra: dict[str, list[int]] = field(default_factory=dict)
    """For each word more rows with it."""

    def of(self, word: str) -> Ints:
        """The rows with a word."""
        found = [np.flatnonzero(np.isin(codes, cells_of[word])) for codes, cells_of in self.columns if word in cells_of]
        return np.concatenate([*found, np.array(self.extra.get(word, ()), dtype=np.int64)])

    def add(self, cells: pd.Series[str], words_in: Callable[[str], Sequence[str]], where: Bools | None = None) -> None:
        """Read a column, only in the rows of `where`."""
        codes, different = pd.factorize(cells.fillna("").astype(str))
        cells_of: dict[str, list[int]] = {}
        for code, cell in enumerate(different):
            for word in words_in(str(cell)):
                cells_of.setdefault(word, []).append(code)
        self.columns.append((codes if where is None else np.where(where, codes, -1), cells_of))


def _tools(records: Records) -> WordRows:
    cells = records.column("tools", "HasToolCall").fillna("").astype(str)
    names = {cell: cell.split(", ") if cell else [] for cell in cells.unique()}
    found = WordRows()
    if records.histories is None:
        found.add(cells, names.__getitem__)
        return found
    counts = numbers(records.steps, "tool_calls").to_numpy()
    odd = ~np.isnan(counts) & (cells.map({cell: len(several) for cell, several in names.items()}).to_numpy() != counts)
    found.add(cells, names.__getitem__, where=~odd)
    for row in map(int, np.flatnonzero(odd)):  # a name with a comma that a model made up
        history, place = _step_of(records, records.histories, row)
        for call in history[place].tool_calls:
            found.extra.setdefault(call.name, []).append(row)
    return found


def _finish_reasons(records: Records) -> WordRows:
    found = WordRows()
    found.add(records.column("finish_reason", "FinishReasonIs"), lambda cell: [cell] if cell else [])
    if "raw_finish_reason" in records.steps.columns:
        found.add(records.steps["raw_finish_reason"], lambda cell: [cell] if cell else [])
    if records.histories is not None:
        for row in map(int, np.flatnonzero(records.several_calls)):
            history, place = _step_of(records, records.histories, row)
            for signal in (call.response.signal for call in history[place].calls):
                for word in {signal.finish_reason.value, signal.raw_value} - {None}:
                    found.extra.setdefault(str(word), []).append(row)
    return found


def _step_of(records: Records, histories: Callable[[int], RunHistory], row: int) -> tuple[RunHistory, int]:
    run = int(records.run[row])
    return histories(run), int(row - records.start[run])


@dataclass(frozen=True, slots=True)
class _Kind:
    """A condition on words: its field with the words, and how their rows are read. With `last_call_only` a frame has only the word of
    the last call of a step."""

    field: str
    read: Callable[[Records], WordRows]
    last_call_only: bool = False


WORDS = {HasToolCall: _Kind("names", _tools), FinishReasonIs: _Kind("reasons", _finish_reasons, last_call_only=True)}


def first_row(records: Records, leaf: StopCondition) -> Ints:
    """The first row of each run with any of a condition's words; the number of its rows where there is none."""
    kind = WORDS[type(leaf)]
    if kind.field not in records.words:
        records.words[kind.field] = kind.read(records)
    found = [records.words[kind.field].of(str(word)) for word in getattr(leaf, kind.field)]
    return _first_of(records, np.concatenate(found))


def unsure_from(records: Records, tree: StopCondition | None) -> Ints:
    """For each run the row from which on a frame alone cannot say what the tree says, since of a step with several calls it has only
    the last one's word. The number of rows where all is known."""
    unsure = tree is not None and any(type(leaf) in WORDS and WORDS[type(leaf)].last_call_only for leaf in tree.leaves())
    if records.histories is not None or not unsure:
        return records.lengths
    return _first_of(records, np.flatnonzero(numbers(records.steps, "calls").to_numpy() > 1))


def _first_of(records: Records, rows: Ints) -> Ints:
    """The first of these rows in each run, from 0; the number of its rows where there is none."""
    first = records.lengths.copy()
    np.minimum.at(first, records.run[rows], rows - records.start[records.run[rows]])
    return first


def first_true(records: Records, met: Bools) -> Ints:
    """The first row of each run that is true."""
    return _first_of(records, np.flatnonzero(met))
