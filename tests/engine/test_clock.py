"""The clock of a run."""

from __future__ import annotations

import time

from agentlab.engine.timeline import Clock


def test_the_clock_runs_only_when_started() -> None:
    clock = Clock(5.0)
    assert clock.elapsed_s() == 5.0
    clock.start()
    clock.start()
    time.sleep(0.01)
    clock.stop()
    assert clock.elapsed_s() >= 5.01
    clock.stop()
    stopped = clock.elapsed_s()
    time.sleep(0.01)
    assert clock.elapsed_s() == stopped
