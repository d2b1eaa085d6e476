"""Counts work: the same on every machine under any load."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType

from agentlab._internal import secrets

ROUNDS = 20


def calls_in(work: Callable[[], object]) -> int:
    """The number of calls of functions, Python's and built-in, on this thread during a call."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # random deallocations are no part of it
    interval_s = secrets._ENVIRONMENT_INTERVAL_S
    secrets._ENVIRONMENT_INTERVAL_S = float("inf")  # reading the environment once a second is not either
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        secrets._ENVIRONMENT_INTERVAL_S = interval_s
        gc.enable()
    return count


def takes_no_more(work: Callable[[], object], than: Callable[[], object], times: float) -> bool:
    """True if this takes at most the given multiple of that one's CPU time.

    For single calls of C code, which cannot be counted. Both are measured in turn, and the least of each counts: other load on
    the machine only adds to a time, at random; code that is too slow is slow in every round.
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
