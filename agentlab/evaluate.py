"""Reading a stop condition after a step: at once where nothing has to wait, else by awaiting what is still needed."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from agentlab.errors import AgentlabWarning
from agentlab.history import RunHistory
from agentlab.predicates import discard, needs_await
from agentlab.results import Reading, StepResult
from agentlab.shelter import GRACE_S, ends
from agentlab.stop import Custom, Off, StopCondition, as_condition, read_off


async def read_condition(condition: StopCondition, history: RunHistory, limit_s: float | None = None) -> Reading:
    """The reading of a whole tree.

    Every leaf that needs no waiting is read. Async predicates are awaited together, and only where the others leave the answer
    open; the first that decides cancels the rest, whose readings then stay open (`met` None), and so do those that have no answer
    after `limit_s` seconds. A predicate that is turned off is not called. What a predicate raises is raised.
    """
    if not condition.may_wait:
        return condition.read(history)
    leaves = list(condition.leaves())
    off = list(_whether_off(condition))
    answers: list[Reading] = []
    waiting: dict[int, Awaitable[Any]] = {}
    try:
        for index, leaf in enumerate(leaves):
            if off[index]:
                answers.append(read_off(leaf, history))
            elif isinstance(leaf, Custom):
                answer = leaf.open_reading() if leaf.is_async else leaf.ask(history)
                if not isinstance(answer, Reading):
                    waiting[index] = answer
                    answer = leaf.open_reading()
                answers.append(answer)
            else:
                answers.append(leaf.read(history))
        reading = condition.combine(iter(answers))
        open_leaves = _open_leaves(condition, reading, iter(range(len(leaves))))
        needed = [index for index in open_leaves if isinstance(leaves[index], Custom)]
        if reading.met is None and needed:
            tasks = {
                asyncio.ensure_future(_answer(leaves[index], history, waiting.pop(index, None))): index
                for index in needed
                if index in waiting or _is_async(leaves[index])
            }
            reading = await _first_to_decide(tasks, answers, lambda: condition.combine(iter(answers)), limit_s)
        return reading
    finally:
        for awaitable in waiting.values():
            discard(awaitable)


async def _answer(leaf: StopCondition, history: RunHistory, begun: Awaitable[Any] | None) -> Reading:
    assert isinstance(leaf, Custom)  # noqa: S101  for the type checker
    answer = leaf.ask(history) if begun is None else begun
    return answer if isinstance(answer, Reading) else leaf.reading_of(await answer)


def _is_async(leaf: StopCondition) -> bool:
    return isinstance(leaf, Custom) and leaf.is_async


async def _first_to_decide(
    tasks: Mapping[asyncio.Task[Reading], int],
    answers: list[Reading],
    combined: Callable[[], Reading],
    limit_s: float | None,
) -> Reading:
    pending = set(tasks)
    reading = combined()
    until = None if limit_s is None else time.monotonic() + limit_s
    try:
        while pending and reading.met is None:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            done, pending = await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in sorted(done, key=tasks.__getitem__):
                answers[tasks[task]] = task.result()
            reading = combined()
    finally:
        ended, cut = await ends(tasks)
        if not ended:
            told = (
                f"A stop condition did not end within {GRACE_S:g} s of its cancel and was left behind: it may still be running."
            )
            warnings.warn(told, AgentlabWarning, stacklevel=2)
        if cut is not None:
            raise cut
    return reading


def _open_leaves(condition: StopCondition, reading: Reading, indexes: Iterator[int]) -> Iterator[int]:
    """The places of the leaves whose answer can still change the whole: those below nodes that are all open, and not off."""
    if not condition.parts:
        index = next(indexes)
        if reading.met is None:
            yield index
        return
    for part, child in zip(condition.parts, reading.children, strict=True):
        if reading.met is None and not part.is_off:
            yield from _open_leaves(part, child, indexes)
        else:
            for _ in part.leaves():
                next(indexes)


def _whether_off(condition: StopCondition, *, off: bool = False) -> Iterator[bool]:
    """Of each leaf, whether it is turned off, alone or with what it is a part of."""
    if not condition.parts:
        yield off
    for part in condition.parts:
        yield from _whether_off(part, off=off or isinstance(condition, Off))


@needs_await("is_stop_condition_met(…)")
async def is_stop_condition_met(conditions: object, steps: Sequence[StepResult]) -> bool:
    """Whether any of the conditions is met after these steps.

    `conditions` is a StopCondition, a function of the history (sync or async), or a list of them; `steps` a history or any
    sequence of StepResult. An empty list is never met.

    Example:
        >>> await lab.is_stop_condition_met(lab.StepCountIs(4), result.history)
        True
        >>> await lab.is_stop_condition_met(lambda history: "Vienna" in history.last.text, result.history)
        False
    """
    if isinstance(conditions, list | tuple) and not conditions:
        return False
    history = steps if isinstance(steps, RunHistory) else RunHistory(steps)
    return bool((await read_condition(as_condition(conditions), history)).met)
