"""The active time of a run: monotonic, and standing still while a person has paused it or is between two manual steps."""

from __future__ import annotations

import time


class Clock:
    """Counts seconds while it runs. Starts and stops may nest."""

    __slots__ = ("_active", "_before", "_since")

    def __init__(self, elapsed_s: float = 0.0) -> None:
        self._before = elapsed_s
        self._since = 0.0
        self._active = 0

    def start(self) -> None:
        """Let the time run."""
        if self._active == 0:
            self._since = time.monotonic()
        self._active += 1

    def stop(self) -> None:
        """Let the time stand still, once every start has had its stop."""
        self._active -= 1
        if self._active == 0:
            self._before += time.monotonic() - self._since

    @property
    def is_running(self) -> bool:
        """Whether the time runs now."""
        return self._active > 0

    def elapsed_s(self) -> float:
        """Active seconds so far."""
        return self._before + (time.monotonic() - self._since if self._active else 0.0)
