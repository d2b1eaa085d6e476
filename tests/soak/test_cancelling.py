"""A run is cut short at every moment at which it yields, in every way; whatever it was doing, nothing is lost and all parts agree.

`make test` takes some ways with every kind of run, each at every second moment: the even or the odd ones,
drawn once at random. `-m "soak or not soak"` takes all ways and all moments. The table lists the attempts, their totals and
their outcomes.
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
from pathlib import Path
from typing import Any

import pytest
from engine.builders import Slow
from engine.server import serving

import agentlab as lab
from agentlab.engine import worker
from agentlab.model.finish_reasons import StopReason
from agentlab.storage.store import Store

from .invariants import assert_agreement, assert_it_continues, assert_live_panel_agrees
from .moments import Act, ManualClock, Moments, TimeRunsOut, cancel_the_task, cancel_the_task_late, from_a_thread, press_ctrl_c
from .scenes import SCENES, Ledger, Scene, calls, tools
from .table import show
from .tallies import EVERY_SECOND, MOST_MOMENTS, TALLIES, THE_OTHERS, Tally, moments_of, rows_of_the_table

EVERY = 25
"""How often a live panel and all frames are checked too, which is slow: at the fourth or fifth moment, and at every n-th after it."""

WAYS: dict[str, Callable[[lab.Run], Act]] = {
    "task.cancel()": lambda run: cancel_the_task,
    "task.cancel(), late": lambda run: cancel_the_task_late,
    "run.cancel()": lambda run: lambda _: run.cancel(),
    "run.cancel(), thread": lambda run: from_a_thread(run.cancel),
    "run.stop()": lambda run: lambda _: run.stop("enough"),
    "run.stop(), thread": lambda run: from_a_thread(lambda: run.stop("enough")),
    "Ctrl-C": lambda run: press_ctrl_c,
    "Budget(timeout)": TimeRunsOut,
    "Budget(timeout), late": lambda run: TimeRunsOut(run, late=True),
}


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
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
    rows = rows_of_the_table()
    if rows:
        show("cancelling", ("activity", "cut off by", "moments", "ended", "tools", "slowest end"), rows)


def tools_now() -> set[threading.Thread]:
    """Threads of tools."""
    return {one for one in threading.enumerate() if one.name.startswith("agentlab-tool-")}


def wait_for_threads() -> None:
    """A thread cannot be ended; wait until it finishes."""
    until = time.monotonic() + 60
    while tools_now() and time.monotonic() < until:
        time.sleep(0.001)
    assert tools_now() == set()


async def leftovers() -> list[str]:
    """Tasks that are still running."""
    mine = asyncio.current_task()
    return [repr(task) for task in asyncio.all_tasks() if task is not mine]


def cut_off(scene: Scene, way: str, at: int, store: Store) -> tuple[lab.Run, Ledger, Moments, str, float]:
    """Cut the run short at its moment number `at`; return the run and the outcome of awaiting it."""
    ledger = Ledger()
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(serving(*scene.replies)).base if scene.replies else ""
        run = scene.make(ledger, store, base)
        cut_at = [0.0]
        clock = ManualClock()
        stack.enter_context(clock.for_runs())
        act = WAYS[way](run)

        def timed(moments: Moments) -> None:
            cut_at[0] = time.perf_counter()
            act(moments)

        moments = Moments(at, timed, clock=clock)
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
            if run.result is None:  # cut between two steps: the run is paused there and continues
                how = "resumable"
                if run.control.pausing:
                    run.resume()
                assert run.state is lab.RunState.READY
                runner.run(finished(run))
            if isinstance(act, TimeRunsOut):
                act.check()
            runner.run(assert_it_continues(run))
        return run, ledger, moments, how, took_s


async def finished(run: lab.Run) -> lab.RunResult:
    return await run


def try_the_moments(name: str, way: str, part: str, store: Store) -> None:
    """Cut one kind of run short at each of these moments."""
    scene, tally = SCENES[name], TALLIES.setdefault((name, way), Tally())
    for at in moments_of(part, name, way):
        run, ledger, moments, how, took_s = cut_off(scene, way, at, store)
        where = f"{name}, {way}, moment {at} of {moments.count}: {how}, {run!r}"
        try:
            check(run, ledger, moments, how, way, store, thorough=at % EVERY in (4, 5))
        except AssertionError as error:
            raise AssertionError(f"{where}\n{error}") from error
        if not moments.done:
            tally.of = max(tally.of, moments.count)
            break
        tally.moments += 1
        tally.note(run, resumable=how == "resumable")
        tally.slowest_s = max(tally.slowest_s, took_s)
    else:
        pytest.fail(f"{name} has more than {MOST_MOMENTS} moments")
    gc.collect()  # coroutines that were never awaited and unseen errors are reported now
    assert tally.moments >= 1 or part == THE_OTHERS


def check(run: lab.Run, ledger: Ledger, moments: Moments, how: str, way: str, store: Store, *, thorough: bool) -> None:
    """Check the invariants after one cut."""
    assert moments.problems == []
    assert run.result is not None
    wait_for_threads()
    assert_agreement(run, ledger, store, frames=thorough)
    if thorough:
        assert_live_panel_agrees(run)
    reason = run.result.stop_reason
    if how == "resumable" or not moments.done:
        return
    if way.startswith("Budget"):
        assert how == "returned"
        return
    asked_for = StopReason.EXPLICIT_STOP if way.startswith("run.stop") else StopReason.CANCELLED
    assert reason in {asked_for, StopReason.COMPLETED, StopReason.TERMINATING_TOOL, StopReason.ERROR}
    if way.startswith("run."):
        assert how == "returned"
    elif reason is StopReason.CANCELLED:
        assert how == ("interrupted" if way == "Ctrl-C" else "cancelled"), "a cancelled caller must get the cancellation"


QUICK = ("task.cancel()", "run.cancel(), thread", "Budget(timeout)")


@pytest.mark.parametrize("part", [EVERY_SECOND, pytest.param(THE_OTHERS, marks=pytest.mark.soak)])
@pytest.mark.parametrize("way", [way if way in QUICK else pytest.param(way, marks=pytest.mark.soak) for way in WAYS])
@pytest.mark.parametrize("name", SCENES)
def test_a_run_is_cut_short_at_every_moment(name: str, way: str, part: str, store: Store) -> None:
    try_the_moments(name, way, part, store)


@pytest.mark.parametrize("way", WAYS)
def test_the_two_parts_together_are_all_moments(way: str) -> None:
    parts = [set(moments_of(part, "a pause", way)) for part in (EVERY_SECOND, THE_OTHERS)]
    assert parts[0] | parts[1] == set(range(1, MOST_MOMENTS))
    assert not parts[0] & parts[1]


# In the background -------------------------------------------------------------------------------------------------------------

BEHIND_CLOCK = ManualClock()
"""One clock for all tests, since the background loop is shared: a loop's time never goes back."""

BEHIND = [
    name
    for name in SCENES
    if name.startswith(("a streamed", "an async tool", "a tool on a", "one on a", "a sub-agent", "async stop"))
]


@pytest.mark.parametrize(
    "way",
    [
        "run.stop(), thread",
        pytest.param("run.cancel(), thread", marks=pytest.mark.soak),
        pytest.param("Ctrl-C in start()", marks=pytest.mark.soak),
        pytest.param("Budget(timeout)", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("name", BEHIND)
def test_a_background_run_is_cut_short_at_every_moment(
    name: str, way: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another thread after the cell has returned; by Ctrl-C without a front end, where `start()` waits for the end."""
    scene, tally = SCENES[name], TALLIES.setdefault((name + ", start()", way), Tally())
    waits = way == "Ctrl-C in start()"
    if waits:
        monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    loop, clock = worker.background_loop(), BEHIND_CLOCK
    for at in range(1, MOST_MOMENTS):
        ledger = Ledger()
        with contextlib.ExitStack() as stack:
            stack.enter_context(clock.for_runs())
            base = stack.enter_context(serving(*scene.replies)).base if scene.replies else ""
            run = scene.make(ledger, store, base)
            act = press_ctrl_c if waits else WAYS[way](run)
            moments = Moments(at, act, clock=clock)
            on_loop(loop, lambda moments=moments: moments.watch(loop))  # type: ignore[misc]
            how = "returned"
            try:
                run.start()
            except KeyboardInterrupt:
                how = "interrupted"
            assert run.wait(60) is not None
            on_loop(loop, moments.leave)
            on_loop(loop, lambda: loop.set_exception_handler(None))
            until = time.monotonic() + 60
            while (left := worker.submit(leftovers()).result()) and time.monotonic() < until:
                time.sleep(0.002)
            assert left == []
            if isinstance(act, TimeRunsOut):
                act.check()
            worker.submit(assert_it_continues(run)).result()
        assert moments.problems == []
        wait_for_threads()
        assert_agreement(run, ledger, store, frames=at % EVERY == 4)
        if not moments.done:
            break
        assert run.result is not None
        reason = run.result.stop_reason
        expected = StopReason.EXPLICIT_STOP if "stop" in way else StopReason.TIMEOUT if "timeout" in way else StopReason.CANCELLED
        assert reason in {expected, StopReason.COMPLETED}
        if reason is StopReason.CANCELLED and waits:
            assert how == "interrupted"
        tally.moments += 1
        tally.note(run)
    assert tally.moments >= 1


def on_loop(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    """Run it on that loop and wait for it."""
    done = threading.Event()
    loop.call_soon_threadsafe(lambda: (what(), done.set()))
    assert done.wait(60)


# Several runs ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way",
    [
        "cancel(), thread",
        *(
            pytest.param(way, marks=pytest.mark.soak)
            for way in ("task.cancel()", "task.cancel(), late", "stop(), thread", "Budget(timeout)")
        ),
    ],
)
def test_runs_in_lockstep_are_cut_short_at_every_moment(way: str, store: Store) -> None:
    tally = TALLIES.setdefault(("runs in lockstep", way), Tally())
    for at in range(1, MOST_MOMENTS):
        ledgers = (Ledger(), Ledger())
        names = ("a tool on a thread", "an async tool with clean-up")
        runs = [SCENES[name].make(ledger, store, "") for name, ledger in zip(names, ledgers, strict=True)]
        both = lab.Lockstep(runs)
        clock = ManualClock()
        acts: dict[str, Act] = {
            "task.cancel()": cancel_the_task,
            "task.cancel(), late": cancel_the_task_late,
            "cancel(), thread": from_a_thread(both.cancel),
            "stop(), thread": from_a_thread(lambda both=both: both.stop("enough")),  # type: ignore[misc]
        }
        if way == "Budget(timeout)":
            acts[way] = TimeRunsOut(*runs)
        moments = Moments(at, acts[way], clock=clock)
        resumable = False
        with clock.for_runs(), asyncio.Runner() as runner:
            moments.watch(runner.get_loop())
            with contextlib.suppress(asyncio.CancelledError):
                runner.run(all_of(both))
            moments.leave()
            assert runner.run(leftovers()) == []
            if not both.ended:
                resumable = True
                runner.run(all_of(both))
        assert moments.problems == []
        if isinstance(out := acts[way], TimeRunsOut):
            out.check()
        wait_for_threads()
        for run, ledger in zip(runs, ledgers, strict=True):
            assert_agreement(run, ledger, store, frames=at % EVERY == 4)
        if not moments.done:
            break
        tally.moments += 1
        tally.note(*runs, resumable=resumable)
    assert tally.moments >= 1


async def all_of(both: lab.Lockstep) -> object:
    return await both


@pytest.mark.parametrize("part", [EVERY_SECOND, pytest.param(THE_OTHERS, marks=pytest.mark.soak)])
@pytest.mark.parametrize("way", ["task.cancel()", pytest.param("task.cancel(), late", marks=pytest.mark.soak)])
def test_an_experiment_is_cut_short_at_every_moment_and_resumes(way: str, part: str, tmp_path: Path) -> None:
    """Stored steps are not requested again, and the results equal those of an uninterrupted experiment."""
    tally = TALLIES.setdefault(("an experiment", way), Tally())
    asked: list[int] = []

    def answer(request: Any, index: int) -> Any:
        number = len(request.messages) // 2 + 1
        asked.append(number)
        return "end" if number == 3 else calls("ponder")

    ponder = tools(Ledger(), "ponder")
    for at in moments_of(part, "an experiment", way):
        asked.clear()
        agent = lab.Agent(Slow(answer), tools=ponder, name="a", continuation=None)
        with Store(tmp_path / f"{at}.db") as store:
            study = lab.Experiment([agent], ["x", "y"], repeats=2, store=store, score=lambda result: result.terminated)
            moments = Moments(at, cancel_the_task if way == "task.cancel()" else cancel_the_task_late)
            with asyncio.Runner() as runner:
                moments.watch(runner.get_loop())
                with contextlib.suppress(asyncio.CancelledError):
                    runner.run(study.run(concurrency=2, progress=False))
                moments.leave()
                assert runner.run(leftovers()) == []
                begun = study.results()
                states = Counter(begun.runs["state"])
                kept, before = len(begun.steps), len(asked)
                assert "open" not in states
                results = runner.run(study.run(concurrency=2, progress=False))
            assert moments.problems == []
            assert Counter(results.runs["state"]) == {"ended": 4}
            assert results.runs[["steps", "score"]].drop_duplicates().to_numpy().tolist() == [[3, True]]
            assert len(asked) - before == 12 - kept
            assert store.unsaved == {}
        if not moments.done:
            tally.of = max(tally.of, moments.count)
            break
        tally.moments += 1
        tally.ends.update({f"{state} runs": count for state, count in states.items()})
    assert tally.moments >= 1
