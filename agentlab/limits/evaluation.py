"""Evaluates a stop condition after a step: synchronous parts first, then async predicates if these did not decide."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from agentlab._internal.asyncio_tools import GRACE_S, cancel_and_wait, discard
from agentlab._internal.errors import AgentlabWarning
from agentlab.limits.combinators import Custom, Off, StopCondition, read_off
from agentlab.limits.reading import Reading, Totals


async def read_condition(condition: StopCondition, history: Totals, limit_s: float | None = None) -> Reading:
    """Return the reading of a whole tree.

    Every synchronous leaf is read. Async predicates are awaited concurrently, and only if the others did not decide. The first one
    that decides cancels the rest; their readings stay undecided (`met` None), like those that take more than `limit_s` seconds.
    Predicates that are turned off are not called. Errors of predicates are raised.
    """
    if not condition.may_wait:
        return condition.read(history)
    leaves = list(condition.leaves())
    readings: list[Reading] = []
    waiting: dict[int, tuple[Custom, Awaitable[Any]]] = {}
    try:
        for index, (leaf, off) in enumerate(zip(leaves, _are_off(condition), strict=True)):
            if off or not isinstance(leaf, Custom):
                readings.append(read_off(leaf, history) if off else leaf.read(history))
                continue
            answer = leaf.ask(history)
            if not isinstance(answer, Reading):
                waiting[index] = leaf, answer
                answer = leaf.open_reading()
            readings.append(answer)
        reading = condition.combine(iter(readings))
        if reading.met is None:
            needed = [index for index in _open_leaves(condition, reading, iter(range(len(leaves)))) if index in waiting]
            tasks = {asyncio.ensure_future(_await(*waiting.pop(index))): index for index in needed}
            reading = await _first_to_decide(tasks, readings, lambda: condition.combine(iter(readings)), limit_s)
        return reading
    finally:
        for _, awaitable in waiting.values():
            discard(awaitable)


async def _await(leaf: Custom, answer: Awaitable[Any]) -> Reading:
    return leaf.reading_of(await answer)


async def _first_to_decide(
    tasks: Mapping[asyncio.Task[Reading], int],
    readings: list[Reading],
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
                readings[tasks[task]] = task.result()
            reading = combined()
    finally:
        ended, cut = await cancel_and_wait(tasks)
        if not ended:
            warnings.warn(
                f"A stop condition did not end within {GRACE_S:g} s of its cancellation and was abandoned: it may still be running.",
                AgentlabWarning,
                stacklevel=2,
            )
        if cut is not None:
            raise cut
    return reading


def _open_leaves(condition: StopCondition, reading: Reading, indexes: Iterator[int]) -> Iterator[int]:
    """Yield the positions of the leaves that can still change the answer: all nodes above them are undecided and turned on."""
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


def _are_off(condition: StopCondition, *, off: bool = False) -> Iterator[bool]:
    """Yield for each leaf whether it is turned off, alone or with its group."""
    if not condition.parts:
        yield off
    for part in condition.parts:
        yield from _are_off(part, off=off or isinstance(condition, Off))
