"""Pause, stop and cancel: requests from any thread, kept until the run acts on them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request to end the run. `who` is its source: `tool`, `middleware` or `person`."""

    reason: str
    output: object
    who: str


class Control:
    """Requests to one run, or to several in lockstep. It has no reference to a run: the stepper reads it between steps.

    `stop_request` and `cancelled` are never reset. Pauses count only until `close()`, which is called when the run ends.
    """

    __slots__ = ("_closed", "_lock", "_paused_at", "_paused_s", "cancelled", "is_paused", "stop_request")

    def __init__(self) -> None:
        self.is_paused = False
        self.stop_request: StopRequest | None = None
        self.cancelled = False
        self._closed = False
        self._paused_at, self._paused_s = 0.0, 0.0
        self._lock = threading.Lock()

    @property
    def pausing(self) -> bool:
        """True if a pause was requested; it takes effect after the step under way.

        Example:
            >>> run.pause()
            >>> run.control.pausing
            True
        """
        return self.is_paused and not self._closed

    @property
    def paused_s(self) -> float:
        """Seconds for which a person has paused the run. They do not count against the timeout.

        Example:
            >>> run.control.paused_s
            0.0
        """
        return self._paused_s + (time.monotonic() - self._paused_at if self.pausing else 0.0)

    @property
    def must_end(self) -> bool:
        """True if the run has to end before its next step."""
        return self.cancelled or self.stop_request is not None

    def pause(self) -> bool:
        """Request a pause. Returns False if one was requested already."""
        with self._lock:
            if self.is_paused:
                return False
            self._paused_at, self.is_paused = time.monotonic(), True  # in this order: other threads read them without the lock
            return True

    def resume(self) -> float | None:
        """End the pause. Returns its seconds, or None if there was no pause."""
        with self._lock:
            if not self.is_paused:
                return None
            paused_s = time.monotonic() - self._paused_at
            self.is_paused, self._paused_s = False, self._paused_s + paused_s
            return paused_s

    def close(self) -> None:
        """End the effect of pauses: the run has ended."""
        self._closed = True
