"""How much is done, counted: the same on every machine, whatever else runs there."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType

ROUNDS = 20


def calls_in(work: Callable[[], object]) -> int:
    """How many functions, of Python and built in, are called on this thread while this is done."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # what is let go of by chance is no part of it
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def takes_no_more(work: Callable[[], object], than: Callable[[], object], times: float) -> bool:
    """Whether this takes at most so many times the CPU time of that.

    For what one call of C does, which cannot be counted. Both are measured in turn, and the least of each counts: what else the machine
    does only ever adds to a time, by chance, and what is too slow is so in every round.
    """
    least_s = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for place, one in enumerate((work, than)):
            began_s = time.thread_time()
            one()
            least_s[place] = min(least_s[place], time.thread_time() - began_s)
        if least_s[0] <= times * least_s[1]:
            return True
    return False
