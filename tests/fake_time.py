"""A clock of the test's own: waits on it alone pass at once, in order, at any speed of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import subprocess
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

TICK_S = 1e-6
"""Advance of the clock at each reading: nothing takes zero time."""


class OwnTime:
    """The clock and the loops of one test. The time is frozen while code runs, and advances when a loop only waits for a timer.
    Covers the test's own loop and tools on threads, not other threads or processes. Waits for processes do not advance it."""

    def __init__(self) -> None:
        self.now_s = time.monotonic()

    def monotonic(self) -> float:
        """The replacement of `time.monotonic`."""
        self.now_s += TICK_S
        return self.now_s

    def passes(self, seconds: float) -> None:
        """Advance the time by this much: the replacement of `time.sleep`."""
        self.now_s += seconds

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """A loop that waits by this clock."""
        return asyncio.SelectorEventLoop(_Waiting(self))

    @contextlib.contextmanager
    def is_everybodys(self) -> Iterator[None]:
        """Replace the clock and the loop factories."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", self.monotonic)
            patch.setattr(time, "perf_counter", self.monotonic)
            patch.setattr(subprocess, "time", types.SimpleNamespace(sleep=time.sleep))  # it polls a process, such as git
            patch.setattr(time, "sleep", self.passes)
            patch.setattr(asyncio.events, "new_event_loop", self.new_loop)
            yield


class _Waiting(selectors.DefaultSelector):
    """Returns ready events, and advances the time instead of waiting."""

    def __init__(self, own: OwnTime) -> None:
        super().__init__()
        self._own = own

    def select(self, timeout: float | None = None) -> list[Any]:
        """The events that are ready now; without a timer to wait for, the next ones."""
        found = super().select(timeout if timeout is None else 0)
        if found or not timeout:
            return found
        at_work = any(one.name.startswith("agentlab-tool-") for one in threading.enumerate())
        passes_s = min(timeout, 0.001) if at_work else timeout  # a tool's action may come first
        found = super().select(passes_s if at_work else 0)
        self._own.passes(passes_s)
        return found
