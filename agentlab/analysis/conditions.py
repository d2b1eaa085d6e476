"""Evaluates a stop condition over all recorded runs: the first step of each run at which it is met."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from agentlab._internal.asyncio_tools import discard
from agentlab._internal.formatting import counted
from agentlab._internal.names import did_you_mean
from agentlab._internal.redaction import in_words
from agentlab._internal.safe_text import one_line
from agentlab.analysis.groups import floats
from agentlab.analysis.records import Bools, Ints, Records, Rows, first_met, smallest
from agentlab.engine.worker import result_of
from agentlab.errors import AgentlabWarning, ConfigurationError
from agentlab.limits.combinators import AllOf, AnyOf, Custom, Not, Off, StopCondition
from agentlab.limits.conditions import FinishReasonIs, HasToolCall
from agentlab.limits.evaluation import read_condition
from agentlab.limits.fields import limit_fields
from agentlab.limits.reading import Reading
from agentlab.model.usage import add_cost, add_usage
from agentlab.records.history import RunHistory
from agentlab.records.step import StepResult


@dataclass(slots=True)
class WordRows:
    """The rows in which each word occurs, such as the name of a tool. A column has few distinct cells, so each is read once."""

    columns: list[tuple[Ints, dict[str, list[int]]]] = field(default_factory=list)
    """For each column, the number of the distinct cell in each row, and for each word the cells that contain it."""
    extra: dict[str, list[int]] = field(default_factory=dict)
    """Further rows of each word, which were read one by one."""

    def of(self, word: str) -> Ints:
        """Return the rows that contain a word."""
        found = [np.flatnonzero(np.isin(codes, cells_of[word])) for codes, cells_of in self.columns if word in cells_of]
        return np.concatenate([*found, np.array(self.extra.get(word, ()), dtype=np.int64)])

    @property
    def known(self) -> set[str]:
        """All words that occur."""
        return set(self.extra).union(*(cells_of for _, cells_of in self.columns))

    def add(self, cells: pd.Series[str], words_in: Callable[[str], Sequence[str]], where: Bools | None = None) -> None:
        """Read a column; with `where` only those rows."""
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
    counts = floats(records.steps, "tool_calls")
    odd = ~np.isnan(counts) & (cells.map({cell: len(several) for cell, several in names.items()}).to_numpy() != counts)
    found.add(cells, names.__getitem__, where=~odd)
    for row in map(int, np.flatnonzero(odd)):  # the model made up a name with a comma
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
    """A condition on words: its field with the words, and the function that finds their rows. With `last_call_only` a frame has the
    word of a step's last call only."""

    field: str
    read: Callable[[Records], WordRows]
    last_call_only: bool = False


WORDS = {HasToolCall: _Kind("names", _tools), FinishReasonIs: _Kind("reasons", _finish_reasons, last_call_only=True)}


def first_row(records: Records, leaf: StopCondition) -> Ints:
    """Return the first row of each run that contains one of a condition's words; the run's length if there is none."""
    kind = WORDS[type(leaf)]
    if kind.field not in records.words:
        records.words[kind.field] = kind.read(records)
    rows, words = records.words[kind.field], [str(word) for word in getattr(leaf, kind.field)]
    known = rows.known
    for word in [word for word in words if word not in known]:
        if hint := did_you_mean(word, known, 0.78):
            warnings.warn(f"{leaf!r}: no step of these runs has {word!r}.{hint}", AgentlabWarning, stacklevel=2)
    return _first_of(records, np.concatenate([rows.of(word) for word in words]))


def unsure_from(records: Records, tree: StopCondition | None) -> Ints:
    """Return the row of each run from which on a frame cannot decide the tree, since it has only the last word of a step with several
    calls; the run's length if the frame is enough."""
    unsure = tree is not None and any(type(leaf) in WORDS and WORDS[type(leaf)].last_call_only for leaf in tree.leaves())
    if records.histories is not None or not unsure:
        return records.lengths
    return _first_of(records, np.flatnonzero(floats(records.steps, "calls") > 1))


def _first_of(records: Records, rows: Ints) -> Ints:
    """Return the first of these rows in each run, counted from 0; the run's length if there is none."""
    first = records.lengths.copy()
    np.minimum.at(first, records.run[rows], rows - records.start[records.run[rows]])
    return first


def first_true(records: Records, met: Bools) -> Ints:
    """Return the first row of each run that is true."""
    return _first_of(records, np.flatnonzero(met))


STEPS = "steps"

MEASURES = {"tokens": "tokens", "cost": "cost_usd"}
"""The running total in the records for each total that a condition may declare; STEPS need none, they are counted."""

First: TypeAlias = npt.NDArray[Any]
"""For each run, the first row at which a condition or limit is met; the run's length if it never is."""


@functools.cache
def limit_field_of(kind: type[StopCondition]) -> str | None:
    """Return the field that holds the limit of a condition on a total; None for all other conditions."""
    fields = limit_fields(kind) if kind.total == STEPS or kind.total in MEASURES else ()
    return fields[0].name if len(fields) == 1 else None


def is_in_arrays(leaf: StopCondition) -> bool:
    """True if a single condition can be read from the arrays. All others are called step by step."""
    return limit_field_of(type(leaf)) is not None or type(leaf) in WORDS  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a condition, row by row: met, not met, or open (unknown)."""

    met: Bools
    open: Bools

    @property
    def not_met(self) -> Bools:
        """True for rows in which the condition is known not to be met."""
        found: Bools = ~(self.met | self.open)
        return found


def without_off(tree: StopCondition) -> StopCondition | None:
    """Return the tree without the parts that are turned off; None if nothing is left."""
    if tree.is_off:
        return None
    parts = tuple(kept for part in tree.parts if (kept := without_off(part)) is not None)
    same = len(parts) == len(tree.parts) and all(kept is part for kept, part in zip(parts, tree.parts, strict=True))
    return tree if same else tree.with_parts(parts)


def latches(tree: StopCondition) -> bool:
    """True if the first rows of the leaves decide where the tree is met: it has no Not, and no custom condition within an AllOf."""
    if isinstance(tree, Not):
        return False
    return all(latches(part) and (not isinstance(tree, AllOf) or all_in_arrays(part)) for part in tree.parts)


def all_in_arrays(tree: StopCondition) -> bool:
    """True if every leaf can be read from the arrays."""
    return all(map(is_in_arrays, tree.leaves()))


def alternatives(tree: StopCondition) -> Iterator[StopCondition]:
    """Yield the leaves each of which meets the tree alone."""
    if not tree.parts:
        yield tree
    elif isinstance(tree, AnyOf):
        for part in tree.parts:
            yield from alternatives(part)


# By first rows -------------------------------------------------------------------------------------------------------------------


def first_rows(records: Records, leaves: Sequence[StopCondition]) -> Rows:
    """Return for each of these conditions, all of one class, the first row of each run at which it is met."""
    kind = type(leaves[0])
    field = limit_field_of(kind)  # type: ignore[arg-type]
    if field is None:
        return np.stack([first_row(records, leaf) for leaf in leaves])
    limits = [getattr(leaf, field) for leaf in leaves]
    if kind.total == STEPS:
        steps = np.array([max(0, min(math.ceil(limit) - 1, records.longest)) for limit in limits])
        dtype = smallest(records.longest)
        met: Rows = np.minimum(steps.astype(dtype)[:, None], records.lengths.astype(dtype)[None, :])
        return met
    return first_met(records.used[MEASURES[str(kind.total)]], records.start, np.array([float(limit) for limit in limits]))


def combined(tree: StopCondition, first: Callable[[StopCondition], First]) -> First:
    """Return the first row of each run at which a tree that latches is met."""
    if not tree.parts:
        return first(tree)
    return functools.reduce(_joining(tree), [combined(part, first) for part in tree.parts])


def _joining(tree: StopCondition) -> Callable[[Any, Any], Any]:
    return np.minimum if isinstance(tree, AnyOf) else np.maximum


def combined_on_axes(tree: StopCondition, axis_of: Mapping[int, int], axes: int, firsts: Callable[[StopCondition], Rows]) -> Rows:
    """Return `combined` for all configurations of a grid: one dimension per axis, of its length or 1, and the runs as the last one.

    `axis_of` maps the id of a leaf to its axis; `firsts` returns the first rows of a leaf for each value on its axis.
    """
    if not tree.parts:
        rows = firsts(tree)
        shape = [1] * axes
        if id(tree) in axis_of:
            shape[axis_of[id(tree)]] = len(rows)
        return rows.reshape(*shape, -1)
    parts = [combined_on_axes(part, axis_of, axes, firsts) for part in tree.parts]
    parts.sort(key=lambda part: part.size)  # small parts first: only the last step then works on the full array
    found: Rows = functools.reduce(_joining(tree), parts)
    return found


# Row by row ----------------------------------------------------------------------------------------------------------------------


def answers_of(tree: StopCondition, leaf_answers: Callable[[StopCondition], Answers]) -> Answers:
    """Return the answers of a tree in each row, by the same logic as `agentlab.limits.combinators`."""
    if not tree.parts:
        return leaf_answers(tree)
    parts = [answers_of(part, leaf_answers) for part in tree.parts]
    if isinstance(tree, Not):
        return Answers(parts[0].not_met, parts[0].open)
    some_open = np.logical_or.reduce([part.open for part in parts])
    if isinstance(tree, AnyOf):
        met = np.logical_or.reduce([part.met for part in parts])
        return Answers(met, ~met & some_open)
    not_met = np.logical_or.reduce([part.not_met for part in parts])
    return Answers(~not_met & ~some_open, ~not_met & some_open)


def latched(records: Records, leaf: StopCondition, first: First) -> Answers:
    """Return the answers of a condition in the arrays: met from its first row on; before that row, open if usage is unknown."""
    row = np.arange(len(records.run)) - records.start[records.run]
    met: Bools = row >= first[records.run]
    total = MEASURES.get(leaf.total or "")
    unknown = np.isnan(records.totals[total]) if total is not None else np.zeros(len(met), bool)
    return Answers(met, ~met & unknown)


def deciding(tree: StopCondition, is_met: Callable[[StopCondition], Bools]) -> list[tuple[StopCondition, Bools]]:
    """Return the parts that caused the tree to be met, each with the runs in which it did. A Not is not divided further."""

    def look(node: StopCondition, within: Bools) -> Iterable[tuple[StopCondition, Bools]]:
        here = within & is_met(node)
        if not node.parts or isinstance(node, Not | Off):
            yield node, here
        else:
            for part in node.parts:
                yield from look(part, here)

    some = next(iter(tree.leaves()))
    return list(look(tree, np.ones_like(is_met(some))))


@dataclass(frozen=True, slots=True)
class CustomAnswers:
    """The answers of a custom condition row by row, the first row of each run at which it raised (the run's length: never), the name
    of its readings, and True if meeting it means that the task is done."""

    answers: Answers
    raised: First
    name: str
    goal: bool


def history_of(records: Records, run: int, condition: StopCondition) -> RunHistory:
    """Return a run's history, which this condition needs. Raises ConfigurationError if there are only frames."""
    if records.histories is None:
        raise ConfigurationError(
            f"{condition!r} reads the history of each run, which a frame does not have: pass the results, the runs, or the store "
            "instead of the frame."
        )
    return records.histories(run)


def ask_custom(records: Records, condition: StopCondition) -> CustomAnswers | None:
    """Call a custom condition after every step of every run. Returns None if its answer has to be awaited."""
    met, open_ = np.zeros(len(records.run), bool), np.zeros(len(records.run), bool)
    raised, name, goal = records.lengths.copy(), condition.short_name, False
    first_error: Exception | None = None
    for run, length in enumerate(records.lengths):
        steps, history = history_of(records, run, condition) if length else (), RunHistory()
        for place, step in enumerate(steps):
            history.append(step)
            try:
                reading = condition.ask(history) if isinstance(condition, Custom) else condition.read(history)
            except Exception as error:
                raised[run] = place
                first_error = first_error or error
                break
            if not isinstance(reading, Reading):
                if inspect.isawaitable(reading):
                    discard(reading)
                return None
            row = int(records.start[run]) + place
            met[row], open_[row] = bool(reading.met), reading.met is None
            name, goal = reading.name, reading.goal
    _warn_of(first_error, condition, records, raised)
    return CustomAnswers(Answers(met, open_), raised, name, goal)


def await_tree(records: Records, tree: StopCondition) -> tuple[First, First]:
    """Await a tree after every step of every run. Returns the first row at which it is met, and the first at which it raised."""

    async def over_all() -> tuple[First, First]:
        first, raised = records.lengths.copy(), records.lengths.copy()
        first_error: Exception | None = None
        for run, length in enumerate(records.lengths):
            steps, history = history_of(records, run, tree) if length else (), RunHistory()
            for place, step in enumerate(steps):
                history.append(step)
                try:
                    reading = await read_condition(tree, history)
                except Exception as error:
                    raised[run] = place
                    first_error = first_error or error
                    break
                if reading.met:
                    first[run] = place
                    break
        _warn_of(first_error, tree, records, raised)
        return first, raised

    return result_of(over_all())


def _warn_of(first_error: Exception | None, condition: StopCondition, records: Records, raised: First) -> None:
    """Warn once of a condition that raised."""
    if first_error is not None:
        where = f"{(raised < records.lengths).sum():,} of {counted(len(records), 'run')}"
        warnings.warn(
            f"{one_line(repr(condition))} raised in {where}, first {in_words(first_error)}. Such a run "
            "ends there with an error; as a goal, it is unknown from there on. A function is called with the history so far: "
            "`history[-1].text` is the last answer.",
            AgentlabWarning,
            stacklevel=2,
        )


def cut_off_history(history: RunHistory, place: int, calls: int) -> RunHistory:
    """Return the history as if its step at `place` had been cut off after `calls` calls."""
    kept, step, made = history.prefix(place), history[place], history[place].calls[:calls]
    usage, cost = RunHistory().usage, RunHistory().cost
    for call in made:
        usage, cost = add_usage(usage, call.usage), add_cost(cost, call.cost)
    shortened: StepResult = replace(
        step, calls=made, usage=usage, cost=cost, answer=None, tool_results=(), children=(), readings=None, error=None
    )
    kept.append(shortened)
    return kept


def deciding_readings(history: RunHistory, tree: StopCondition) -> Sequence[Reading] | None:
    """Return the readings that caused a tree to be met after this history; None if it raises."""
    try:
        reading = result_of(read_condition(tree, history)) if tree.may_wait else tree.read(history)
    except Exception:
        return None
    return list(reading.deciding())


def reading_name(reading: Reading) -> str:
    """Return a reading's name, with `not` before it if it is negated."""
    return f"not {reading_name(reading.children[0])}" if reading.name == "Not" and reading.children else reading.name
