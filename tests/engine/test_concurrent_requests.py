"""More concurrent requests than connections: they queue, none is lost, and queued requests do not slow the others."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import psutil
import pytest
from measured_work import calls_in

import agentlab as lab
from agentlab import StopReason
from agentlab.engine import worker
from agentlab.testing import ScriptedProvider
from agentlab.transport import live as live_module
from agentlab.transport.live import LiveTransport

from .call_builders import HELLO, LOOK, agent, finished, go, reply_to, retried
from .server import PATIENCE_S, Asked, Handler, Reply, Server, hang, serving, status


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """This many connections to a host."""
    monkeypatch.setattr(live_module, "CONNECTIONS_PER_HOST", 4)
    return 4


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection to a host."""
    monkeypatch.setattr(live_module, "CONNECTIONS_PER_HOST", 1)


class AtOnce:
    """Two steps per run; answers once as many requests as connections have arrived; counts the concurrent answers."""

    def __init__(self, together: int) -> None:
        self.full = threading.Barrier(together, timeout=PATIENCE_S)
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Reply:
        reply = reply_to("compatible", HELLO if "saw tea" in asked.body.decode() else LOOK, streaming=True)

        def counted(to: Handler) -> None:
            with self._lock:
                self.now += 1
                self.most = max(self.most, self.now)
            self.full.wait()
            with self._lock:
                self.now -= 1
            reply(to)

        return counted


async def together(server: Server, runs: int, **more: object) -> list[lab.RunResult]:
    """The results of this many concurrent runs."""
    asker = agent(server, stream=True, **more)
    return await asyncio.gather(*[finished(asker.run(f"go {number}")) for number in range(runs)])


def test_hundreds_of_concurrent_runs_lose_no_request(few: int) -> None:
    script = AtOnce(few)
    with serving(script=script) as server:
        results = go(together(server, 300, retry=lab.RetryPolicy(attempts=1)))
    assert Counter(result.stop_reason for result in results) == {StopReason.COMPLETED: 300}
    assert {(result.text, len(result.history)) for result in results} == {("Hello there", 2)}
    assert len(server.asked) == 600
    assert script.most == few
    assert len({asked.connection for asked in server.asked}) == few  # each is reused


def test_the_cost_of_a_request_does_not_grow_with_the_queue(few: int) -> None:
    """When the pool scanned the whole queue at each request, hundreds of runs blocked the loop until connections timed out."""

    def each(runs: int) -> float:
        with serving(script=lambda asked: reply_to("compatible", HELLO, streaming=True)) as server:
            return calls_in(lambda: go(together(server, runs))) / runs

    each(few)  # imports
    assert each(200) < 1.5 * each(20)


def test_the_cost_of_a_request_does_not_grow_with_open_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "CONNECTIONS_PER_HOST", 40)

    def after(connections: int) -> int:
        """The cost of one run while this many connections are open."""
        hello, full = reply_to("compatible", HELLO, streaming=True), threading.Barrier(connections, timeout=PATIENCE_S)
        waits = [full.wait] * connections

        def reply(to: Handler) -> None:
            if waits:
                waits.pop()()
            hello(to)

        with serving(script=lambda asked: reply) as server, asyncio.Runner() as runner:
            runner.run(together(server, connections))
            return calls_in(lambda: runner.run(together(server, 1)))

    after(1)  # imports
    assert after(40) < 1.5 * after(1)


def test_queued_requests_are_served_in_order(one: None) -> None:
    with serving(script=lambda asked: reply_to("compatible", HELLO, streaming=True)) as server:
        go(together(server, 20))
    assert [asked.json["messages"][-1]["content"] for asked in server.asked] == [f"go {number}" for number in range(20)]


def test_one_host_does_not_block_another(one: None) -> None:
    async def main(slow: Server, quick: Server) -> None:
        held = agent(slow).run("go")
        task = asyncio.ensure_future(finished(held))
        while not slow.hanging.is_set():
            await asyncio.sleep(0.002)
        assert (await agent(quick).run("go")).text == "Hello there"
        held.cancel()
        await task

    with serving(hang) as slow, serving(reply_to("compatible", HELLO, streaming=False)) as quick:
        go(main(slow, quick))


def test_a_run_cancelled_in_the_queue_frees_its_place(one: None) -> None:
    async def main(server: Server) -> None:
        runs = [agent(server).run(f"go {number}") for number in range(3)]
        tasks = [asyncio.ensure_future(finished(run)) for run in runs]
        while not server.hanging.is_set():
            await asyncio.sleep(0.002)
        runs[1].cancel()
        assert (await tasks[1]).stop_reason is StopReason.CANCELLED
        assert runs[2].result is None
        runs[0].cancel()
        assert (await tasks[0]).stop_reason is StopReason.CANCELLED
        assert (await tasks[2]).text == "Hello there"
        assert [asked.json["messages"][-1]["content"] for asked in server.asked] == ["go 0", "go 2"]

    with serving(hang, reply_to("compatible", HELLO, streaming=False)) as server:
        go(main(server))


def test_a_timeout_says_that_the_run_waited_for_a_connection(one: None) -> None:
    async def main(server: Server) -> None:
        held = agent(server).run("go")
        task = asyncio.ensure_future(finished(held))
        while not server.hanging.is_set():
            await asyncio.sleep(0.002)
        result = await agent(server).run("go", budget=lab.Budget(timeout=0.05))
        assert result.stop_reason is StopReason.TIMEOUT
        waited = f"while the call waited for one of the 1 connections to 127.0.0.1:{server.server_port}"
        assert result.detail == f"Budget reached: timeout 0.05 s, {waited}."
        assert (result.history.calls, len(server.asked)) == (0, 1)
        held.cancel()
        await task

    with serving(hang) as server:
        go(main(server))


def test_unused_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "KEPT_IDLE_S", 1.0)
    full, hello = threading.Barrier(5, timeout=PATIENCE_S), reply_to("compatible", HELLO, streaming=False)

    def all_at_once(to: Handler) -> None:
        full.wait()
        hello(to)

    def is_connected(server: Server) -> bool:
        open_ones = psutil.Process().net_connections("tcp")
        return any(one.raddr and one.raddr.port == server.server_port for one in open_ones if one.status == "ESTABLISHED")

    async def main(server: Server) -> None:
        asker, live = agent(server), LiveTransport()
        await asyncio.gather(*[finished(asker.run("go", transport=live)) for _ in range(5)])
        assert is_connected(server)
        async with asyncio.timeout(PATIENCE_S):
            while is_connected(server):
                await asyncio.sleep(0.05)

    with serving(*[all_at_once] * 5) as server:
        go(main(server))


def test_retries_queue_too(one: None) -> None:
    with serving(status(503), *[reply_to("compatible", HELLO, streaming=True)] * 3) as server:
        results = go(together(server, 3))
    assert [result.text for result in results] == ["Hello there"] * 3
    assert sum(len(retried(result)) for result in results) == 1


def test_runs_that_start_together_yield_to_the_loop() -> None:
    began: Counter[int] = Counter()
    turn = 0

    def note(event: lab.events.Event) -> None:
        if isinstance(event, lab.events.RunStarted):
            began[turn] += 1

    async def main() -> None:
        nonlocal turn
        asker = lab.Agent(ScriptedProvider(["Hello there"]), observers=[note])
        work = asyncio.gather(*[finished(asker.run("go")) for _ in range(300)])
        while not work.done():
            await asyncio.sleep(0)
            turn += 1
        assert {result.text for result in work.result()} == {"Hello there"}

    go(main())
    assert sum(began.values()) == 300
    assert max(began.values()) == 1


def test_a_run_cancelled_before_it_starts_sends_nothing() -> None:
    async def main() -> None:
        asker = lab.Agent(ScriptedProvider(["Hello there"]))
        runs = [asker.run("go") for _ in range(3)]
        tasks = [asyncio.ensure_future(finished(run)) for run in runs]
        await asyncio.sleep(0)
        runs[1].cancel()
        tasks[2].cancel()
        assert (await tasks[0]).text == "Hello there"
        assert ((await tasks[1]).stop_reason, len(runs[1].history)) == (StopReason.CANCELLED, 0)
        with pytest.raises(asyncio.CancelledError):
            await tasks[2]
        assert (await asker.run("go")).text == "Hello there"

    go(main())


def test_closed_loops_are_forgotten() -> None:
    async def main() -> None:
        asker = lab.Agent(ScriptedProvider(["Hello there"]))
        await asyncio.gather(*[finished(asker.run("go")) for _ in range(3)])

    for _ in range(5):
        go(main())
    assert sum(loop.is_closed() for loop in worker._beginning) <= 1
