"""What conditions of somebody's own say: they are asked after every step of a record, as in a run."""

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
    """The answers of a condition row by row, for each run the first row at which it raised (the number of its rows: never), the name
    that its readings have, and whether they tell of what the agent itself did."""

    answers: Answers
    raised: First
    name: str
    goal: bool


def history_of(records: Records, run: int, condition: StopCondition) -> RunHistory:
    """A run's history. Raises ConfigurationError where there are only frames."""
    if records.histories is None:
        raise ConfigurationError(
            f"{condition!r} asks the runs themselves, and a frame has only what its columns say: pass the results, the runs, or "
            "the store in place of the frame."
        )
    return records.histories(run)


def ask(records: Records, condition: StopCondition) -> Asked | None:
    """Ask a condition of somebody's own after every step of every run; None where its answer has to be awaited."""
    met, open_ = np.zeros(len(records.run), bool), np.zeros(len(records.run), bool)
    raised, name, goal = records.lengths.copy(), name_of(condition), False
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


def name_of(condition: StopCondition) -> str:
    """What readings of a single condition are called, unless it says otherwise."""
    return condition.name if isinstance(condition, Custom) else type(condition).__name__


@dataclass(frozen=True, slots=True)
class Read:
    """A whole tree, read prefix by prefix: the first row at which it is met in each run, and at which it raised."""

    first: First
    raised: First


def read(records: Records, tree: StopCondition) -> Read:
    """Read a tree after every step of every run, as a run does: for what has to be awaited."""

    async def over_all() -> Read:
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
        return Read(first, raised)

    return submit(over_all()).result()


def broken_off(history: RunHistory, place: int, calls: int) -> RunHistory:
    """A history as it would have been, had its step at `place` been broken off behind so many of its calls."""
    kept = history.prefix(place)
    kept.append(_shortened(history[place], calls))
    return kept


def _shortened(step: StepResult, calls: int) -> StepResult:
    made = step.calls[:calls]
    nothing = RunHistory()
    usage, cost = nothing.usage, nothing.cost
    for call in made:
        usage, cost = add_usage(usage, call.usage), add_cost(cost, call.cost)
    return replace(step, calls=made, usage=usage, cost=cost, answer=None, tool_results=(), children=(), readings=None, error=None)


def deciding_at(history: RunHistory, tree: StopCondition) -> Sequence[Reading] | None:
    """What made a tree met after this history; None where it raises."""
    try:
        reading = submit(read_condition(tree, history)).result() if tree.may_wait else tree.read(history)
    except Exception:
        return None
    return list(reading.deciding())


def told(reading: Reading) -> str:
    """A reading's name, of a negated one with its not."""
    return f"not {told(reading.children[0])}" if reading.name == "Not" and reading.children else reading.name
