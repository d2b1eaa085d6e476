"""Reading a stop condition after a step: synchronous parts first, then async predicates, if they still matter."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from agentlab.errors import AgentlabWarning
from agentlab.predicates import discard
from agentlab.results import Reading
from agentlab.shelter import GRACE_S, ends
from agentlab.stop import Custom, Off, StopCondition, read_off
from agentlab.totals import Totals


async def read_condition(condition: StopCondition, history: Totals, limit_s: float | None = None) -> Reading:
    """Return the reading of a whole tree.

    Every synchronous leaf is read. Async predicates are awaited together, and only where the others leave the answer open; the first
    that decides cancels the rest, whose readings then stay open (`met` None), like those without an answer after `limit_s` seconds.
    A predicate that is switched off is not called. Errors of predicates are raised.
    """
    if not condition.may_wait:
        return condition.read(history)
    leaves = list(condition.leaves())
    off = list(_are_off(condition))
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


async def _answer(leaf: StopCondition, history: Totals, begun: Awaitable[Any] | None) -> Reading:
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
            warnings.warn(
                f"A stop condition did not end within {GRACE_S:g} s of its cancel and was left behind: it may still be running.",
                AgentlabWarning,
                stacklevel=2,
            )
        if cut is not None:
            raise cut
    return reading


def _open_leaves(condition: StopCondition, reading: Reading, indexes: Iterator[int]) -> Iterator[int]:
    """Yield the positions of the leaves that can still change the answer: those below nodes that are all open and on."""
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
    """Yield for each leaf whether it is switched off, by itself or with its group."""
    if not condition.parts:
        yield off
    for part in condition.parts:
        yield from _are_off(part, off=off or isinstance(condition, Off))
