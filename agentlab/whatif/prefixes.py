"""The answers of custom conditions, which are called after every step of a record, as in a run."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agentlab.engine.worker import submit
from agentlab.errors import ConfigurationError
from agentlab.evaluate import read_condition
from agentlab.history import RunHistory
from agentlab.predicates import discard
from agentlab.results import Reading, StepResult
from agentlab.stop import Custom, StopCondition
from agentlab.usage import add_cost, add_usage
from agentlab.whatif.conditions import Answers, First
from agentlab.whatif.records import Records


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers of a condition row by row, the first row of each run at which it raised (the number of its rows: never), the name of
    its readings, and whether they mean that the task was done."""

    answers: Answers
    raised: First
    name: str
    goal: bool


def history_of(records: Records, run: int, condition: StopCondition) -> RunHistory:
    """A run's history. Raises ConfigurationError where there are only frames."""
    if records.histories is None:
        raise ConfigurationError(
            f"{condition!r} reads the history of each run, and a frame has only its columns: pass the results, the runs, or the store "
            "in place of the frame."
        )
    return records.histories(run)


def ask(records: Records, condition: StopCondition) -> Asked | None:
    """Call a custom condition after every step of every run; None where its answer has to be awaited."""
    met, open_ = np.zeros(len(records.run), bool), np.zeros(len(records.run), bool)
    raised, name, goal = records.lengths.copy(), condition.short_name, False
    for run, length in enumerate(records.lengths):
        steps, history = history_of(records, run, condition) if length else (), RunHistory()
        for place, step in enumerate(steps):
            history.append(step)
            try:
                reading = condition.ask(history) if isinstance(condition, Custom) else condition.read(history)
            except Exception:
                raised[run] = place
                break
            if not isinstance(reading, Reading):
                if inspect.isawaitable(reading):
                    discard(reading)
                return None
            row = int(records.start[run]) + place
            met[row], open_[row] = bool(reading.met), reading.met is None
            name, goal = reading.name, reading.goal
    return Asked(Answers(met, open_), raised, name, goal)


def ask_tree(records: Records, tree: StopCondition) -> tuple[First, First]:
    """Read a tree that has to be awaited after every step of every run: the first row at which it is met, and at which it raised."""

    async def over_all() -> tuple[First, First]:
        first, raised = records.lengths.copy(), records.lengths.copy()
        for run, length in enumerate(records.lengths):
            steps, history = history_of(records, run, tree) if length else (), RunHistory()
            for place, step in enumerate(steps):
                history.append(step)
                try:
                    reading = await read_condition(tree, history)
                except Exception:
                    raised[run] = place
                    break
                if reading.met:
                    first[run] = place
                    break
        return first, raised

    return submit(over_all()).result()


def broken_off(history: RunHistory, place: int, calls: int) -> RunHistory:
    """The history as if its step at `place` had been broken off after so many of its calls."""
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
    """The readings that made a tree met after this history; None where it raises."""
    try:
        reading = submit(read_condition(tree, history)).result() if tree.may_wait else tree.read(history)
    except Exception:
        return None
    return list(reading.deciding())


def reading_name(reading: Reading) -> str:
    """A reading's name, of a negated one with its not."""
    return f"not {reading_name(reading.children[0])}" if reading.name == "Not" and reading.children else reading.name
