"""Pause, resume, stop and cancel, from the same loop, other loops and other threads; start and wait."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from thread_tools import no_new_threads, nothing_in_the_background_yet

import agentlab as lab
from agentlab import Budget, Custom, RunState, StepCountIs, StopReason, errors
from agentlab.engine import worker
from agentlab.engine.timeline import Clock
from agentlab.errors import ConfigurationError
from agentlab.model.messages import ModelRequest
from agentlab.records import events
from agentlab.testing import call

from .builders import Slow, agent, assert_is_whole, go, look, looping, names, run_of, until

SCRIPT: list[Any] = [call("look"), call("look"), "end"]


async def _end(run: lab.Run) -> lab.RunResult:
    return await run


def slow(delay_s: float = 0.01, script: Any = None, **more: Any) -> lab.Agent:
    """An agent with a slow model, endless unless a script is given."""
    more.setdefault("tools", [look])
    return lab.Agent(Slow(script or (lambda request, index: call("look")), delay_s), **more)


# start and wait -----------------------------------------------------------------------------------------------------------------


def test_start_without_a_front_end_returns_after_the_run() -> None:
    run = run_of(SCRIPT)
    assert run.start() is run
    assert run.result is not None
    assert run.result.stop_reason is StopReason.COMPLETED
    assert run.wait() is run.result
    assert run.state is RunState.ENDED
    assert_is_whole(run)


def test_start_in_a_notebook_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    release = threading.Event()

    @lab.tool
    def blocks() -> str:
        release.wait(60)
        return "released"

    run = run_of([call("blocks"), "end"], tools=[blocks]).start()
    assert run.result is None
    assert run.wait(0.01) is None
    assert run.state is RunState.RUNNING
    release.set()
    result = run.wait(60)
    assert result is not None
    assert result.stop_reason is StopReason.COMPLETED
    assert_is_whole(run)


def test_a_started_run_belongs_to_its_thread_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Awaiting it right after start() does not take it over."""
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    seen: list[threading.Thread] = []

    @lab.tool(inline=True)
    def where() -> str:
        seen.append(threading.current_thread())
        return "here"

    async def cell() -> None:
        for _ in range(20):
            run = run_of([call("where"), "end"], tools=[where]).start()
            assert run.state in (RunState.RUNNING, RunState.ENDED)
            await run

    go(cell())
    assert {thread.name for thread in seen} == {"agentlab"}


def test_a_stop_at_any_moment_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the stop comes before, during or right after the step that the panel's button started, the run ends."""
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    for number in range(60):
        run = slow(0.0).run("go")
        run.worker.launch_step()
        for _ in range(number * 20):
            pass
        run.stop()
        assert run.wait(60) is not None
        assert len(run.history) <= 1


def test_start_uses_the_packages_daemon_thread() -> None:
    seen: list[threading.Thread] = []

    @lab.tool(inline=True)
    def where() -> str:
        seen.append(threading.current_thread())
        return "here"

    run_of([call("where"), "end"], tools=[where]).start()
    run_of([call("where"), "end"], tools=[where]).start()
    assert seen[0] is seen[1] is not threading.main_thread()
    assert seen[0].daemon


def test_start_inside_a_cell_with_a_running_loop() -> None:
    """A notebook's cell runs on the kernel's loop; start() is called there."""

    async def cell() -> lab.Run:
        return run_of(SCRIPT).start()

    assert go(cell()).result is not None


@pytest.mark.parametrize("frontend", ["none", "widgets"])
@pytest.mark.parametrize("error", [errors.ReplayMissError("nothing recorded"), RuntimeError("a bug")], ids=["fixture", "bug"])
def test_start_raises_the_errors_of_the_run(monkeypatch: pytest.MonkeyPatch, frontend: str, error: Exception) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", frontend)
    run = run_of([call("look"), error])
    if frontend == "none":
        with pytest.raises(type(error)):
            run.start()
    else:
        run.start()
    result = run.wait(60)
    assert result is not None
    assert (result.stop_reason, result.error) == (StopReason.ERROR, error)
    assert len(result.history) == 2
    assert_is_whole(run)


def test_start_on_the_kernels_loop() -> None:
    async def main() -> lab.Run:
        run = slow(0.01, SCRIPT).run("go").start(loop="kernel")
        assert run.result is None
        with pytest.raises(errors.ConfigurationError, match="await run"):
            run.wait()
        await until(lambda: run.result)
        return run

    assert_is_whole(go(main()))


def test_invalid_starts_are_refused() -> None:
    run = run_of(SCRIPT)
    with pytest.raises(errors.ConfigurationError, match="'background' or 'kernel'"):
        run.start(loop="thread")  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigurationError, match="needs a running event loop"):
        run.start(loop="kernel")
    with pytest.raises(errors.ConfigurationError, match=r"call run.start\(\) first"):
        run.wait()
    assert run.wait(0.001) is None


def test_a_tool_that_starts_another_run_on_the_same_loop_is_advised_to_await_it() -> None:
    @lab.tool(inline=True)
    async def delegate() -> str:
        run_of(SCRIPT).start()
        return "done"

    run = run_of([call("delegate"), "end"], tools=[delegate]).start()
    assert "`await run` instead" in run.history[0].tool_results[0].content


def test_a_tool_may_await_another_run() -> None:
    @lab.tool
    async def delegate() -> str:
        return (await run_of(SCRIPT)).text

    run = run_of([call("delegate"), "end"], tools=[delegate]).start()
    assert run.history[0].tool_results[0].content == "end"


# pause and resume ---------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fake_time")
def test_a_paused_run_waits_before_its_next_step() -> None:
    async def main() -> lab.Run:
        run = slow(0.0, SCRIPT).run("go")
        run.observe(lambda event: isinstance(event, events.StepStarted) and event.step == 2 and run.pause())
        ending = asyncio.ensure_future(_end(run))
        await until(lambda: run.state is RunState.PAUSED)
        await asyncio.sleep(0.02)
        assert len(run.history) == 2, "the current step is finished"
        assert run.control.pausing
        run.resume()
        assert not run.control.pausing
        assert (await ending).stop_reason is StopReason.COMPLETED
        return run

    run = go(main())
    paused = [name for name in names(run.events) if name in ("RunPaused", "RunResumed")]
    assert paused == ["RunPaused", "RunResumed"]
    assert_is_whole(run)


def test_repeated_pause_and_resume_have_no_further_effect() -> None:
    run = run_of(SCRIPT)
    run.resume()
    run.pause()
    run.pause()
    assert run.state is RunState.PAUSED
    run.resume()
    run.resume()
    assert names(run.events) == ["RunPaused", "RunResumed"]


@pytest.mark.usefixtures("fake_time")
def test_manual_steps_work_while_paused() -> None:
    async def main() -> lab.Run:
        run = slow(0.0, SCRIPT).run("go")
        run.pause()
        ending = asyncio.ensure_future(_end(run))
        await asyncio.sleep(0.01)
        for expected in (1, 2, 3):
            step = await run.step()
            assert step is not None
            assert step.index == expected
        assert (await ending) is run.result
        return run

    assert_is_whole(go(main()))


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize("method", ["resume", "stop", "cancel"])
@pytest.mark.parametrize("consumers", [1, 3])
def test_every_end_of_a_pause_wakes_all_waiters(method: str, consumers: int) -> None:
    async def looped(run: lab.Run) -> Any:
        async for _ in run:
            pass
        return run.result

    async def main() -> lab.Run:
        run = slow(0.0, SCRIPT).run("go")
        run.pause()
        waiting = [asyncio.ensure_future((_end, looped)[index % 2](run)) for index in range(consumers)]
        await asyncio.sleep(0.01)
        getattr(run, method)()
        async with asyncio.timeout(60):
            results = await asyncio.gather(*waiting)
        assert all(result is run.result for result in results)
        return run

    run = go(main())
    expected = {"resume": StopReason.COMPLETED, "stop": StopReason.EXPLICIT_STOP, "cancel": StopReason.CANCELLED}[method]
    assert run.result is not None
    assert run.result.stop_reason is expected
    assert_is_whole(run)


def test_repeated_pauses_from_a_thread_lose_no_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    run = slow(0.0, lambda request, index: call("look") if index < 60 else "end", budget=Budget(max_turns=100)).run("go").start()
    while run.result is None:
        try:
            run.pause()
            run.resume()
        except errors.RunEndedError:
            break
    assert run.wait(60) is not None
    assert len(run.history) == 60
    assert_is_whole(run)


def test_a_pause_during_the_end_of_a_run_emits_no_event_after_the_end() -> None:
    class EndsJustThen(Clock):
        """The run ends while the pausing thread reads the clock."""

        def elapsed_s(self) -> float:
            run.cancel()
            return super().elapsed_s()

    run = looping().run("go")
    go(_step(run))
    run.timeline.clock = EndsJustThen(1.0)
    run.pause()
    assert (run.control.pausing, run.state) == (False, RunState.ENDED)
    assert_is_whole(run)


# stop -------------------------------------------------------------------------------------------------------------------------


def test_a_stop_takes_effect_after_the_current_step() -> None:
    async def main() -> lab.Run:
        run = slow(0.02).run("go")
        run.observe(lambda event: isinstance(event, events.StepStarted) and event.step == 2 and run.stop("seen enough"))
        await run
        return run

    run = go(main())
    result = run.result
    assert result is not None
    assert (result.stop_reason, result.stopped_by, result.truncated) == (StopReason.EXPLICIT_STOP, "person", True)
    assert len(run.history) == 2
    assert run.history[-1].calls, "the current call returned and is recorded"
    assert_is_whole(run)
    with pytest.raises(errors.ExplicitlyStopped):
        result.raise_for_stop()


@pytest.mark.parametrize("taken", [0, 1])
@pytest.mark.parametrize("method", ["stop", "cancel"])
def test_a_stop_between_steps_ends_the_run_at_once(taken: int, method: str) -> None:
    async def main() -> lab.Run:
        run = looping().run("go")
        for _ in range(taken):
            await run.step()
        getattr(run, method)()
        assert run.result is not None
        assert run.state is RunState.ENDED
        assert await run is run.result
        return run

    run = go(main())
    assert run.result is not None
    assert run.result.stop_reason is (StopReason.EXPLICIT_STOP if method == "stop" else StopReason.CANCELLED)
    assert len(run.history) == taken
    if taken:
        assert_is_whole(run)


def test_a_stop_between_the_steps_of_a_loop() -> None:
    async def main() -> lab.Run:
        run = looping().run("go")
        async for step in run:
            if step.index == 2:
                run.stop("two are enough")
        return run

    run = go(main())
    assert run.result is not None
    assert run.result.detail == "Stopped by the person: two are enough"
    assert len(run.history) == 2
    assert_is_whole(run)


# From other threads and other loops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        pytest.param(lambda run: run.stop(), StopReason.EXPLICIT_STOP, id="stop"),
        pytest.param(lambda run: run.cancel(), StopReason.CANCELLED, id="cancel"),
        pytest.param(lambda run: setattr(run.limits, "max_turns", 1), StopReason.TURN_LIMIT, id="turns"),
        pytest.param(lambda run: setattr(run.limits, "max_tokens", 5), StopReason.TOKEN_BUDGET, id="tokens"),
        pytest.param(lambda run: setattr(run.limits, "timeout", 0.001), StopReason.TIMEOUT, id="timeout"),
        pytest.param(lambda run: run.limits.edit_condition("StepCountIs", steps=1), StopReason.STOP_CONDITION, id="leaf"),
        pytest.param(lambda run: setattr(run.limits, "stop", StepCountIs(1)), StopReason.STOP_CONDITION, id="condition"),
    ],
)
def test_a_background_run_is_controlled_from_this_thread(monkeypatch: pytest.MonkeyPatch, act: Any, reason: StopReason) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    run = slow(0.005, budget=Budget(max_turns=None, max_calls=2000)).run("go", stop=StepCountIs(1000)).start()
    while len(run.history) < 2:
        time.sleep(0.001)
    act(run)
    taken = len(run.history)
    result = run.wait(60)
    assert result is not None
    assert result.stop_reason is reason
    assert 2 <= len(result.history) <= taken + 2
    assert_is_whole(run)


def test_calls_from_another_loop_run_on_the_loop_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run belongs to one loop: steps requested here are taken on the loop that the run uses."""
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    loops: set[int] = set()

    class Noting(Slow):
        async def respond(self, request: ModelRequest, context: Any) -> Any:
            loops.add(id(asyncio.get_running_loop()))
            return await super().respond(request, context)

    enough = threading.Event()
    model = Noting(lambda request, index: "end" if enough.is_set() else call("look"), 0.002)
    run = lab.Agent(model, tools=[look]).run("go", budget=Budget(max_turns=1_000_000))
    run.start()

    async def here() -> None:
        await until(lambda: run.history)
        step = await run.step()
        assert step is not None
        assert step.index > 1
        enough.set()
        assert await run is run.result

    go(here())
    assert len(loops) == 1
    assert run.result is not None
    assert run.result.stop_reason is StopReason.COMPLETED
    assert_is_whole(run)


def test_a_run_may_move_between_loops_between_steps() -> None:
    run = slow(0.001, SCRIPT).run("go")
    for expected in (1, 2, 3):
        step = go(_step(run))
        assert step is not None
        assert step.index == expected
    assert_is_whole(run)


async def _step(run: lab.Run) -> lab.StepResult | None:
    return await run.step()


def test_a_closed_loop_does_not_keep_the_run() -> None:
    run = slow(30, SCRIPT).run("go")
    loop = asyncio.new_event_loop()
    task = loop.create_task(_step(run))
    loop.run_until_complete(asyncio.sleep(0.01))
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # the loop is thrown away on purpose
    loop.close()
    run.agent.model.delay_s = 0  # type: ignore[attr-defined]

    async def main() -> None:
        async with asyncio.timeout(60):
            await run

    go(main())
    assert run.result is not None
    task.get_coro().close()  # type: ignore[union-attr]


def test_concurrent_awaits_get_one_result_and_take_no_step_twice() -> None:
    async def main() -> lab.Run:
        model = Slow(SCRIPT, 0.002)
        run = lab.Agent(model, tools=[look]).run("go")
        results = await asyncio.gather(*[_end(run) for _ in range(4)])
        assert all(result is run.result for result in results)
        assert model.asked == 3
        return run

    assert_is_whole(go(main()))


def test_a_cancelled_wait_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run works in the background; awaiting it in a cell and interrupting that cell ends only the waiting."""
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    release = threading.Event()

    @lab.tool
    def blocks() -> str:
        release.wait(60)
        return "released"

    run = run_of([call("blocks"), "end"], tools=[blocks]).start()

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await run

    go(impatient())
    release.set()
    result = run.wait(60)
    assert result is not None
    assert result.stop_reason is StopReason.COMPLETED
    assert_is_whole(run)


# cancel: at every await ---------------------------------------------------------------------------------------------------------


@lab.tool
async def ponder() -> str:
    """Think for a few iterations of the loop."""
    for _ in range(3):
        await asyncio.sleep(0)
    return "thought"


@lab.tool
def work() -> str:
    """Work on a thread."""
    time.sleep(0.001)
    return "worked"


async def weigh(history: lab.RunHistory) -> bool:
    for _ in range(3):
        await asyncio.sleep(0)
    return False


async def passing(request: ModelRequest, ask: Any) -> Any:
    await asyncio.sleep(0)
    response = await ask(request)
    await asyncio.sleep(0)
    return response


def thoughtful() -> lab.Run:
    """A run with an await in every possible place."""
    first = call("ponder", id="a")
    both = lab.testing.say(finish=lab.FinishReason.TOOL_CALLS, calls=[*first.tool_calls, *call("work", id="b").tool_calls])
    made = lab.Agent(Slow([both, call("ponder"), "end"]), tools=[ponder, work], middleware=[passing])
    return made.run("go", stop=StepCountIs(9) | Custom(weigh), budget=Budget(timeout=60))


@pytest.mark.parametrize("outside", [True, False], ids=["the-task-is-cancelled", "run.cancel"])
@pytest.mark.parametrize("moment", range(30))
def test_a_cancel_at_any_moment_keeps_everything_that_was_received(moment: int, outside: bool) -> None:
    async def main() -> tuple[lab.Run, str]:
        run = thoughtful()
        task = asyncio.ensure_future(_end(run))
        for _ in range(moment):
            await asyncio.sleep(0)
        if outside:
            task.cancel()
        else:
            run.cancel()
        try:
            await task
            how = "returned"
        except asyncio.CancelledError:
            how = "cancelled"
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        return run, how

    run, how = go(main())
    if run.result is None:
        assert moment == 0, "cancelled before it started"
        return
    assert_is_whole(run)
    assert run.result.stop_reason in (StopReason.CANCELLED, StopReason.COMPLETED)
    if run.result.stop_reason is StopReason.CANCELLED:
        assert how == ("cancelled" if outside else "returned")
    observed = [event for event in run.events if isinstance(event, events.StopReasonObserved)]
    assert len(observed) == run.history.calls
    finished = [event.result for event in run.events if isinstance(event, events.ToolFinished)]
    assert [each for one in run.history for each in one.tool_results] == finished
    assert run.history.known_tokens == 15 * len(observed)


@pytest.mark.usefixtures("fake_time")
def test_a_cancelled_call_leaves_the_usage_unknown() -> None:
    async def main() -> lab.Run:
        run = slow(0.0, [call("look"), "end"]).run("go")
        await run.step()
        run.agent.model.delay_s = 30  # type: ignore[attr-defined]
        task = asyncio.ensure_future(_end(run))
        await asyncio.sleep(0.01)
        run.cancel()
        result = await task
        assert result.stop_reason is StopReason.CANCELLED
        assert result.detail == "Cancelled during step 2."
        return run

    run = go(main())
    assert [len(each.calls) for each in run.history] == [1, 0]
    assert (run.history.tokens, run.history.known_tokens) == (None, 15)
    assert_is_whole(run)
    with pytest.raises(errors.RunCancelled):
        run.result.raise_for_stop()  # type: ignore[union-attr]


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5])
def test_a_cancel_never_reaches_beyond_the_run(steps: int) -> None:
    """A cancel at the end of the step must not hit the caller's next await."""

    async def main() -> None:
        run = run_of(SCRIPT)
        run.observe(lambda event: isinstance(event, events.StepCompleted) and run.cancel())
        await run.step()
        for _ in range(steps):
            await asyncio.sleep(0)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    go(main())


@pytest.mark.usefixtures("fake_time")
def test_an_outer_cancel_is_not_swallowed_by_an_inner_one() -> None:
    async def main() -> None:
        run = slow(30).run("go")
        with pytest.raises(TimeoutError):
            await cut_off(run)
        assert run.result is not None
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    async def cut_off(run: lab.Run) -> None:
        async with asyncio.timeout(0.02):
            asyncio.get_running_loop().call_later(0.02, run.cancel)
            await run
            await asyncio.sleep(5)

    for _ in range(5):
        go(main())


@pytest.mark.usefixtures("fake_time")
def test_a_tool_that_swallows_the_cancel_cannot_keep_the_run_going() -> None:
    @lab.tool
    async def stubborn() -> str:
        """Swallow a cancel."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "not me"
        return ""

    async def main() -> lab.Run:
        run = run_of([call("stubborn"), "end"], tools=[stubborn])
        task = asyncio.ensure_future(_end(run))
        await asyncio.sleep(0.01)
        run.cancel()
        result = await task
        assert result.stop_reason is StopReason.CANCELLED
        assert result.history[-1].tool_results[0].content == "not me"
        return run

    assert_is_whole(go(main()))


def test_wait_for_around_a_step_records_it() -> None:
    async def main() -> lab.Run:
        run = slow(30).run("go")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.step(), 0.02)
        return run

    run = go(main())
    assert run.result is not None
    assert run.result.stop_reason is StopReason.CANCELLED
    assert_is_whole(run)


# Interrupts -------------------------------------------------------------------------------------------------------------------


def test_an_interrupt_inside_a_tool_records_the_step_and_propagates() -> None:
    @lab.tool(inline=True)
    def interrupted() -> str:
        """The effect of the kernel's interrupt button on a cell."""
        raise KeyboardInterrupt

    run = run_of([call("look"), call("interrupted"), "end"], tools=[look, interrupted])
    with pytest.raises(KeyboardInterrupt):
        go(_end(run))
    assert run.result is not None
    assert run.result.stop_reason is StopReason.CANCELLED
    assert isinstance(run.result.error, KeyboardInterrupt)
    assert (len(run.history), run.history.tokens) == (2, 30)
    assert run.history[-1].tool_results[0].error == "interrupted"
    assert_is_whole(run)


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """Ctrl-C raises also where the shell that started the tests in the background has turned it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
def test_a_real_interrupt_while_a_tool_blocks() -> None:
    @lab.tool
    def interrupted() -> str:
        """Work on a thread while the user presses Ctrl-C."""
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.05)
        return "too late"

    run = run_of([call("interrupted"), "end"], tools=[interrupted])
    with pytest.raises(KeyboardInterrupt):
        go(_end(run))
    assert run.result is not None
    assert run.result.stop_reason is StopReason.CANCELLED
    assert run.history.tokens == 15
    assert_is_whole(run)


@pytest.mark.usefixtures("_interrupts")
@pytest.mark.parametrize("way", ["start", "wait"])
def test_an_interrupt_while_the_program_waits_ends_the_run_with_the_step_recorded(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "wait":
        monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")  # then start() returns at once
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def press(event: events.Event) -> None:
        if isinstance(event, events.ToolStarted):
            threading.Timer(0.05, signal.pthread_kill, [main_thread, signal.SIGINT]).start()

    @lab.tool
    async def long() -> str:
        """Take long."""
        await asyncio.sleep(30)
        return ""

    run = agent([call("long"), "end"], tools=[long]).run("go", observers=[press])
    with pytest.raises(KeyboardInterrupt):
        run.start().wait()
    assert run.result is not None
    assert run.result.stop_reason is StopReason.CANCELLED
    assert run.history[-1].tool_results[0].error == "interrupted"
    assert_is_whole(run)


# If no thread can be started ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("front_end", ["none", "widgets"])
@pytest.mark.parametrize("make", [lambda: run_of(["end"]), lambda: lab.Lockstep([run_of(["end"]), run_of(["end"])])])
def test_a_start_without_threads_says_so_and_the_run_stays_usable(
    make: Callable[[], Any], front_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", front_end)
    one = make()
    with nothing_in_the_background_yet():
        with no_new_threads():
            for start in (one.start, one.start, one.worker.launch, one.worker.launch_step, one.worker.launch):
                with pytest.raises(ConfigurationError, match=r"can't start new thread.*`await run` needs no thread"):
                    start()
                assert one.state is RunState.READY
            with pytest.raises(ConfigurationError, match=r"(has|have) not been started"):
                one.wait()
        one.start()
        assert one.wait(60) is not None
    assert one.state is RunState.ENDED


def test_a_run_that_cannot_start_can_be_awaited() -> None:
    run = run_of([call("look"), "end"])
    with nothing_in_the_background_yet(), no_new_threads():
        with pytest.raises(ConfigurationError, match="can't start new thread"):
            run.start()
        result = go(_end(run))
    assert (result.stop_reason, len(result.history)) == (StopReason.COMPLETED, 2)


def test_a_coroutine_that_cannot_be_submitted_is_closed() -> None:
    async def work() -> None:
        raise AssertionError("it is not to be begun")

    with nothing_in_the_background_yet(), no_new_threads(), pytest.raises(ConfigurationError, match="can't start new thread"):
        worker.submit(work())
    gc.collect()


def test_without_threads_only_the_tool_fails() -> None:
    @lab.tool
    def slow(q: str = "") -> str:
        """Needs a thread, like every sync tool that is not inline."""
        return q

    run = run_of([call("slow"), "end"], tools=[slow])
    with no_new_threads():
        result = go(_end(run))
    assert "can't start new thread" in result.history[0].tool_results[0].content
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "end")
