"""Time of a test's own: what waits for it alone comes at once, in its order, however fast or busy the machine is."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

TICK_S = 1e-6
"""What passes each time that somebody looks at the clock: nothing takes no time at all."""


class OwnTime:
    """The clock and the loops of one test. The time stands still while something is done, and where a loop has nothing to do but to
    wait for a timer it has come. For what the test's own loop does, and tools on threads: no other thread is waited for, nor another
    process."""

    def __init__(self) -> None:
        self.now_s = time.monotonic()

    def monotonic(self) -> float:
        """What `time.monotonic` gives meanwhile."""
        self.now_s += TICK_S
        return self.now_s

    def passes(self, seconds: float) -> None:
        """Let so much time go by at once: what `time.sleep` does meanwhile."""
        self.now_s += seconds

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """A loop that waits by this clock."""
        return asyncio.SelectorEventLoop(_Waiting(self))

    @contextlib.contextmanager
    def is_everybodys(self) -> Iterator[None]:
        """All that reads the time, or makes a loop, has this one."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", self.monotonic)
            patch.setattr(time, "perf_counter", self.monotonic)
            patch.setattr(time, "sleep", self.passes)
            patch.setattr(asyncio.events, "new_event_loop", self.new_loop)
            yield


class _Waiting(selectors.DefaultSelector):
    """Has what is there already, and lets the time pass in place of waiting."""

    def __init__(self, own: OwnTime) -> None:
        super().__init__()
        self._own = own

    def select(self, timeout: float | None = None) -> list[Any]:
        """What is ready now; without a timer to wait for, what is ready next."""
        found = super().select(timeout if timeout is None else 0)
        if found or not timeout:
            return found
        at_work = any(one.name.startswith("agentlab-tool-") for one in threading.enumerate())
        passes_s = min(timeout, 0.001) if at_work else timeout  # what a tool does may come first
        found = super().select(passes_s if at_work else 0)
        self._own.passes(passes_s)
        return found
