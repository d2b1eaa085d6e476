"""A run with its panel open: how much the panel slows the run, and what it sends. Real widgets, whose messages are made as ipykernel
makes them, without a connected page."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.measure import Prepare, Thunk, await_it, interleaved
from tests.benchmarks.table import Row, attempt

STEPS = 5_000
HTTP_S = 0.0005
"""The minimum time of a step that asks a server, even on loopback: see the floor of the loopback row."""
ORDINARY = 200
SAID = "I look for it in the **archive** first, then in the other rooms, and report what I have found there."


def started(run: Any) -> Thunk:
    """Start the run in the background, as the panel's button does, and wait for it."""

    def whole() -> None:
        run.worker.launch()
        result = run.wait(600)
        assert result is not None and len(result.history) == STEPS, result

    return whole


def made(busy_s: float = 0.0) -> Any:
    """A run of STEPS steps that call a tool, which keeps the CPU busy for the given time: the hardest run to keep up with."""
    from agentlab import Agent, Budget, StepCountIs
    from agentlab.testing import ScriptedProvider, call

    async def lookup(key: str) -> str:
        """Look up a key."""
        until = time.thread_time() + busy_s
        while time.thread_time() < until:
            pass
        return "value of " + key

    model = ScriptedProvider(lambda request, number: call("lookup", {"key": f"{number}"}, tokens=(200, 20), cost="0.001"))
    budget = Budget(max_turns=2 * STEPS, max_tokens=10**9)
    return Agent(model, tools=[lookup], budget=budget).run("go", stop=StepCountIs(STEPS))


def wire() -> Any:
    """A comm that makes each message as ipykernel sends it, and counts the bytes in `sent`."""
    from comm.base_comm import BaseComm
    from jupyter_client.session import Session

    session = Session(key=b"a key")
    parent = session.msg("comm_msg", {})["header"]

    class Wire(BaseComm):
        sent = 0

        def publish_msg(self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **more: Any) -> None:
            content = {"data": data, "comm_id": self.comm_id, **more}
            message = session.msg(msg_type, content=content, parent=parent, metadata=metadata)
            self.sent += sum(map(len, session.serialize(message, ident=b"comm-" + self.comm_id.encode())))

    return Wire()


def opened(run: Any) -> tuple[Any, Any]:
    """The panel of a run with a page that shows it, and its connection."""
    panel = run.panel()
    connection = panel.widget.comm = wire()
    panel.carry_out({"do": "hello", "page": "one"})
    return panel, connection


def alone(busy_s: float) -> Prepare:
    """A run without a panel."""
    return lambda: started(made(busy_s))


def shown(busy_s: float) -> Prepare:
    """A run with an open panel that draws while the run is running."""

    last: list[tuple[Any, int]] = []

    def ready() -> Thunk:
        _wait_for_threads()
        for connection, before in last:  # a quick run may end before its first drawing
            assert connection.sent > before
        run = made(busy_s)
        _, connection = opened(run)
        _wait_for_threads()
        last[:] = [(connection, connection.sent)]
        return started(run)

    return ready


def _wait_for_threads() -> None:
    """Wait for the last drawing, so that it does not overlap the next run."""
    while any(thread.name == "agentlab-panel" for thread in threading.enumerate()):
        time.sleep(0.005)


def drawn() -> Prepare:
    """One drawing after one more step."""
    run = made()
    panel, connection = opened(run)

    def ready() -> Thunk:
        _wait_for_threads()
        panel._drawing.acquire()  # the panel's thread waits until the drawing was measured
        await_it(run.step())
        before = connection.sent

        def draw() -> None:
            panel._draw_safely()
            panel._drawing.release()
            assert connection.sent > before

        return draw

    return ready


def first_message() -> tuple[Prepare, list[int]]:
    """What a page gets that opens a run of 5,000 steps, and the number of its bytes."""
    run, sent = made(), []
    await_it(run)
    panel, connection = opened(run)

    def ready() -> Thunk:
        before = connection.sent

        def hello() -> None:
            panel.carry_out({"do": "hello", "page": "one"})
            sent.append(connection.sent - before)

        return hello

    return ready, sent


def bytes_a_step() -> float:
    """The bytes of all messages of a run of ORDINARY steps, divided by the steps: each is drawn while its tool runs, and afterwards."""
    from agentlab import Agent, StepCountIs
    from agentlab.records.events import StepCompleted
    from agentlab.testing import ScriptedProvider, call, say

    async def search(words: str, room: int) -> str:
        """Search the archive."""
        panel._draw_safely()
        return "Two titles: Travels in the north (shelf 12), and A winter in Graz (shelf 3)."

    def script(request: Any, number: int) -> Any:
        asked = call("search", {"words": f"winter journey {number}", "room": number}, tokens=(200, 20), cost="0.001")
        return say(SAID, calls=asked.tool_calls, finish=asked.signal.finish_reason, tokens=(200, 20), cost="0.001")

    run = Agent(ScriptedProvider(script), tools=[search]).run("go", stop=StepCountIs(ORDINARY))
    panel, connection = opened(run)
    run.observe(lambda event: panel._draw_safely() if isinstance(event, StepCompleted) else None)
    before = connection.sent
    await_it(run)
    _wait_for_threads()
    return (connection.sent - before) / ORDINARY


def rows(with_peers: bool) -> Iterator[Row]:
    """The pace of 5,000 steps with and without the panel, the time of one drawing and of the first, and the bytes of a step."""
    _, why_not = attempt(made)
    for workload, busy_s, repeats in (("of half a millisecond", HTTP_S, 2), ("that take no time", 0.0, 5)):
        both = {"alone": alone(busy_s), "shown": shown(busy_s)}
        taken = {} if why_not else interleaved(both, repeats=repeats, seconds=60.0)
        yield Row(
            benchmark=f"5,000 steps {workload} with the panel open, to those without",
            unit="us a step",
            goal="<= 1.1",
            at_most=1.1,
            floor=taken["alone"] / STEPS if taken else None,
            ours=taken["shown"] / STEPS if taken else None,
            against=taken["alone"] / STEPS if taken else None,
            why_not=why_not,
        )
    yield Row(
        benchmark="one drawing of the panel after one more step",
        unit="ms",
        goal="<= 5 ms",
        at_most=1.0,
        ours=None if why_not else interleaved({"drawn": drawn()}, repeats=40)["drawn"] / 1000,
        against=5.0,
        why_not=why_not,
    )
    yield Row(
        benchmark="bytes that the panel sends for a step",
        unit="kB",
        goal="<= 3 kB",
        at_most=1.0,
        ours=None if why_not else bytes_a_step() / 1000,
        against=3.0,
        why_not=why_not,
    )
    prepare, sent = (None, [0]) if why_not else first_message()
    yield Row(
        benchmark="opening the panel of 5,000 steps: the first message",
        unit="ms",
        goal="<= 150 ms",
        at_most=1.0,
        ours=None if prepare is None else interleaved({"first": prepare}, repeats=5)["first"] / 1000,
        against=150.0,
        why_not=why_not,
    )
    yield Row(
        benchmark="bytes of that message",
        unit="kB",
        goal="<= 1,500 kB",
        at_most=1.0,
        ours=None if why_not else sent[-1] / 1000,
        against=1_500.0,
        why_not=why_not,
    )
