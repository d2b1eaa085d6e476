"""A hanging call is abandoned in time, for every kind of cancel: the connection is closed, and the run returns with its steps."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import pytest
from providers.bodies import WIRES

import agentlab as lab
from agentlab.errors import ProviderConnectionError
from agentlab.model.finish_reasons import StopReason
from agentlab.records.events import StepStarted

from .call_builders import HELLO, LOOK, agent, before_the_end, finished, go, reply_to, result_of, retried, whole_body
from .server import PATIENCE_S, Reply, Server, cut, hang, serving, stream

HANGS: dict[str, tuple[bool, Reply]] = {
    "before an answer": (False, hang),
    "in a body": (False, cut(json.dumps(whole_body("compatible", HELLO)).encode(), "hang")),
    "before a stream": (True, hang),
    "at the start of a stream": (True, stream(end="hang")),
    "in a stream": (True, stream(before_the_end("compatible", HELLO)[0], end="hang")),
}


def assert_left(server: Server) -> None:
    """Assert that the client closed the connection and the server did not give up."""
    assert server.left.wait(PATIENCE_S)


async def until(event_is_set: Callable[[], bool]) -> None:
    while not event_is_set():
        await asyncio.sleep(0.005)


async def by_cancel(run: lab.Run, server: Server) -> lab.RunResult:
    task = asyncio.create_task(finished(run))
    await until(server.hanging.is_set)
    run.cancel()
    return await task


async def by_cancelling_the_task(run: lab.Run, server: Server) -> lab.RunResult:
    task = asyncio.create_task(finished(run))
    await until(server.hanging.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.result is not None
    return run.result


async def by_another_thread(run: lab.Run, server: Server) -> lab.RunResult:
    task = asyncio.create_task(finished(run))
    await until(server.hanging.is_set)
    await asyncio.to_thread(run.cancel)
    return await task


async def by_the_budget(run: lab.Run, server: Server) -> lab.RunResult:
    run.limits.timeout = 30
    task = asyncio.create_task(finished(run))
    await until(server.hanging.is_set)
    before = time.monotonic
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: before() + 30)
        return await task


async def by_the_background(run: lab.Run, server: Server) -> lab.RunResult:
    run.worker.launch()
    await until(server.hanging.is_set)
    run.cancel()
    result = await asyncio.to_thread(run.wait, PATIENCE_S)
    assert result is not None
    return result


WAYS: dict[str, tuple[Callable[[lab.Run, Server], Awaitable[lab.RunResult]], StopReason]] = {
    "run.cancel": (by_cancel, StopReason.CANCELLED),
    "run.cancel from a thread": (by_another_thread, StopReason.CANCELLED),
    "run.cancel in the background": (by_the_background, StopReason.CANCELLED),
    "task.cancel": (by_cancelling_the_task, StopReason.CANCELLED),
    "Budget(timeout=…)": (by_the_budget, StopReason.TIMEOUT),
}


@pytest.mark.parametrize(("streaming", "reply"), HANGS.values(), ids=HANGS)
@pytest.mark.parametrize(("way", "expected"), WAYS.values(), ids=WAYS)
def test_a_hanging_call_is_abandoned(
    way: Callable[[lab.Run, Server], Awaitable[lab.RunResult]], expected: StopReason, streaming: bool, reply: Reply
) -> None:
    async def main() -> lab.RunResult:
        result = await way(agent(server, stream=streaming).run("go"), server)
        await asyncio.to_thread(assert_left, server)  # now, before the loop is closed
        return result

    with serving(reply) as server:
        result = go(main())
    assert (result.stop_reason, len(result.history), retried(result)) == (expected, 1, [])
    (step,) = result.history
    assert step.stop_reason is expected
    assert step.calls == ()
    assert step.usage.total_tokens is None  # it may have incurred a cost
    assert [type(event).__name__ for event in result.events][-2:] == ["StepCompleted", "RunEnded"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_hanging_second_step_keeps_the_first(wire: str) -> None:
    async def main() -> lab.RunResult:
        return await by_cancel(agent(server, wire).run("go"), server)

    with serving(reply_to(wire, LOOK, streaming=False), hang) as server:
        result = go(main())
        assert_left(server)
    assert result.stop_reason is StopReason.CANCELLED
    assert [step.text for step in result.history] == ["Let me see", ""]
    assert result.text == "Let me see"


def test_runs_beside_a_cancelled_one_continue() -> None:
    async def main() -> list[lab.RunResult]:
        one = agent(server)
        hanging = one.run("hang")
        rest = [asyncio.create_task(finished(one.run(f"task {number}"))) for number in range(5)]
        return [await by_cancel(hanging, server), *await asyncio.gather(*rest), await one.run("after")]

    with serving(
        script=lambda asked: hang if b'"hang"' in asked.body else reply_to("compatible", HELLO, streaming=False)
    ) as server:
        cancelled, *others = go(main())
    assert cancelled.stop_reason is StopReason.CANCELLED
    assert [result.text for result in others] == ["Hello there"] * 6


def test_a_run_can_be_cancelled_before_the_request_is_sent() -> None:
    async def main() -> lab.RunResult:
        run = agent(server).run("go")
        run.observe(lambda event: run.cancel() if isinstance(event, StepStarted) else None)
        return await run

    with serving() as server:
        result = go(main())
    assert (result.stop_reason, server.asked) == (StopReason.CANCELLED, [])


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_silent_provider_times_out(streaming: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentlab.engine.client.LONGEST_SILENCE_S", 0.05)
    with serving(hang, hang) as server:
        result = result_of(server, stream=streaming, retry=lab.RetryPolicy(attempts=2, first_wait_s=0))
        assert_left(server)
    assert (result.stop_reason, len(retried(result))) == (StopReason.ERROR, 1)
    assert isinstance(result.error, ProviderConnectionError)
    assert "sent nothing within the time allowed" in str(result.error)


def test_a_stream_that_falls_silent_keeps_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentlab.engine.client.LONGEST_SILENCE_S", 0.2)
    with serving(stream(before_the_end("compatible", HELLO)[0], end="hang")) as server:
        result = result_of(server, stream=True)
        assert_left(server)
    assert (result.stop_reason, result.text, len(server.asked)) == (StopReason.ERROR, "Hello there", 1)
    assert "sent nothing within the time allowed" in result.detail
