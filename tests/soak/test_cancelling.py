"""A run is cut off at every moment at which it gives way, in every manner; whatever was going on, nothing is lost and all agree.

`make test` takes some ways of every kind of run; `make soak` takes all. The table says what was tried and how it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from calls.server import serving

import agentlab as lab
from agentlab import background
from agentlab.store import Store
from agentlab.types import StopReason

from .agreeing import assert_agreement, assert_it_goes_on, assert_live_panel_agrees, family
from .moments import Act, Moments, cancel_the_task, cancel_the_task_late, from_a_thread, press_ctrl_c
from .scenes import SCENES, Ledger, Scene
from .table import show

MOST_MOMENTS = 500
EVERY = 10
"""So often a live panel and all frames are looked at too, which takes long."""

WAYS: dict[str, Callable[[lab.Run], Act]] = {
    "task.cancel()": lambda run: cancel_the_task,
    "task.cancel(), late": lambda run: cancel_the_task_late,
    "run.cancel()": lambda run: lambda _: run.cancel(),
    "run.cancel(), thread": lambda run: from_a_thread(run.cancel),
    "run.stop()": lambda run: lambda _: run.stop("enough"),
    "run.stop(), thread": lambda run: from_a_thread(lambda: run.stop("enough")),
    "Ctrl-C": lambda run: press_ctrl_c,
}


@dataclass
class Tally:
    """What came of the moments of one scene, cut off in one way."""

    moments: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0


TALLIES: dict[tuple[str, str], Tally] = {}


@pytest.fixture(autouse=True)
def _someone_to_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


@pytest.fixture(autouse=True)
def _own_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.db") as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def _table() -> Iterator[None]:
    yield
    rows = []
    for (scene, way), tally in TALLIES.items():
        ends = ", ".join(f"{count} {name}" for name, count in sorted(tally.ends.items()))
        tools = ", ".join(f"{count} {name}" for name, count in sorted(tally.tools.items()))
        rows.append((scene, way, tally.moments, ends, tools or "-", f"{tally.slowest_s * 1000:.0f} ms"))
    if rows:
        show("cancelling", ("what goes on", "cut off by", "moments", "ended", "tools", "slowest end"), rows)


def tools_now() -> set[threading.Thread]:
    """Threads of tools."""
    return {one for one in threading.enumerate() if one.name.startswith("agentlab-tool-")}


async def leftovers() -> list[str]:
    """Tasks that nobody ended."""
    mine = asyncio.current_task()
    return [repr(task) for task in asyncio.all_tasks() if task is not mine]


def cut_off(scene: Scene, way: str, at: int, store: Store) -> tuple[lab.Run, Ledger, Moments, str, float]:
    """Cut the run off at its moment number `at`: the run, and how awaiting it ended."""
    ledger = Ledger()
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(serving(*scene.replies)).base if scene.replies else ""
        run = scene.make(ledger, store, base)
        cut_at = [0.0]
        act = WAYS[way](run)

        def timed(moments: Moments) -> None:
            cut_at[0] = time.perf_counter()
            act(moments)

        moments = Moments(at, timed)
        how = "returned"
        with asyncio.Runner() as runner:
            moments.watch(runner.get_loop())
            try:
                runner.run(scene.drive(run))  # type: ignore[arg-type]
            except asyncio.CancelledError:
                how = "cancelled"
            except KeyboardInterrupt:
                how = "interrupted"
            took_s = time.perf_counter() - cut_at[0] if cut_at[0] else 0.0
            moments.leave()
            assert runner.run(leftovers()) == []
            if run.result is None:  # cut off between two steps: it stands there, and goes on
                moments.problems.append("") if run.state is not lab.RunState.READY and not run.pausing else None
                how = "resumable"
                if run.pausing:
                    run.resume()
                runner.run(finished(run))
            runner.run(assert_it_goes_on(run))
        return run, ledger, moments, how, took_s


async def finished(run: lab.Run) -> lab.RunResult:
    return await run


def try_every_moment(name: str, way: str, store: Store, *, step: int = 1) -> None:
    """Cut one kind of run off at each of its moments."""
    scene, tally = SCENES[name], TALLIES.setdefault((name, way), Tally())
    for at in range(1, MOST_MOMENTS, step):
        run, ledger, moments, how, took_s = cut_off(scene, way, at, store)
        where = f"{name}, {way}, moment {at} of {moments.count}: {how}, {run!r}"
        try:
            check(run, ledger, moments, how, way, store, thorough=at % EVERY == 1)
        except AssertionError as error:
            raise AssertionError(f"{where}\n{error}") from error
        if not moments.done:
            break
        tally.moments += 1
        assert run.result is not None
        tally.ends["resumable, then " + run.result.stop_reason if how == "resumable" else str(run.result.stop_reason)] += 1
        for one in family(run):
            for result in (result for each in one.history for result in each.tool_results):
                tally.tools["done" if result.error is None else result.error] += 1
        tally.slowest_s = max(tally.slowest_s, took_s)
    else:
        pytest.fail(f"{name} has more than {MOST_MOMENTS} moments")
    gc.collect()  # a coroutine that nobody awaited, or an error that nobody saw, is told now
    assert tally.moments >= 1


def check(run: lab.Run, ledger: Ledger, moments: Moments, how: str, way: str, store: Store, *, thorough: bool) -> None:
    """All that has to hold after one cut."""
    assert moments.problems == []
    assert run.result is not None
    until = time.monotonic() + 2
    while tools_now() and time.monotonic() < until:  # a thread cannot be ended; it comes to its end by itself
        time.sleep(0.001)
    assert tools_now() == set()
    assert_agreement(run, ledger, store, frames=thorough)
    if thorough:
        assert_live_panel_agrees(run)
    reason = run.result.stop_reason
    if how == "resumable" or not moments.done:
        return
    asked_for = StopReason.EXPLICIT_STOP if way.startswith("run.stop") else StopReason.CANCELLED
    assert reason in {asked_for, StopReason.COMPLETED, StopReason.TERMINATING_TOOL, StopReason.ERROR}
    if way.startswith("run."):
        assert how == "returned"
    elif reason is StopReason.CANCELLED:
        assert how == ("interrupted" if way == "Ctrl-C" else "cancelled"), "who was cancelled has to know"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCENES)
def test_a_run_is_cut_off_at_every_moment(name: str, way: str, store: Store) -> None:
    try_every_moment(name, way, store)
