"""A run with its panel open: how much the panel slows the run. Real widgets without a connected page."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.measure import Prepare, Thunk, await_it, interleaved
from tests.benchmarks.table import Row, attempt

STEPS = 5_000
HTTP_S = 0.0005
"""The minimum time of a step that asks a server, even on loopback: see the floor of the loopback row."""


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


def alone(busy_s: float) -> Prepare:
    """A run without a panel."""
    return lambda: started(made(busy_s))


def shown(busy_s: float) -> Prepare:
    """A run with an open panel that draws while the run is running."""
    before: list[Any] = []

    def ready() -> Thunk:
        for panel in before:
            _let_finish(panel)
        run = made(busy_s)
        before[:] = [run.panel()]
        assert before[0].widget is not None
        _wait_for_threads()
        return started(run)

    return ready


def _let_finish(panel: Any) -> None:
    """Wait for the last drawing, so that it does not overlap the next run."""
    _wait_for_threads()
    assert "stop_condition" in panel.run_view.ending.text.value


def _wait_for_threads() -> None:
    while any(thread.name == "agentlab-panel" for thread in threading.enumerate()):
        time.sleep(0.005)


def drawn() -> Prepare:
    """One drawing of all parts after one more step."""
    from agentlab.notebook.panel.run_view import RunView

    from agentlab.notebook.live_view import PanelServices, PanelState

    run = made()
    run_view = RunView(PanelState(run, PanelServices(lambda action: None, lambda: None, lambda other: None, {})))

    def ready() -> Thunk:
        await_it(run.step())
        return run_view.show

    return ready


def rows(with_peers: bool) -> Iterator[Row]:
    """The pace of 5,000 steps with and without the panel, and the time of one drawing."""
    _, why_not = attempt(made)
    for workload, busy_s, repeats, goal in (("of half a millisecond", HTTP_S, 2, 1.25), ("that take no time", 0.0, 5, None)):
        both = {"alone": alone(busy_s), "shown": shown(busy_s)}
        taken = {} if why_not else interleaved(both, repeats=repeats, seconds=60.0)
        yield Row(
            benchmark=f"5,000 steps {workload} with the panel open, to those without",
            unit="us a step",
            goal="<= 1.25" if goal else "",
            at_most=goal,
            floor=taken["alone"] / STEPS if taken else None,
            ours=taken["shown"] / STEPS if taken else None,
            against=taken["alone"] / STEPS if taken else None,
            why_not=why_not,
        )
    yield Row(
        benchmark="one drawing of the panel",
        unit="ms",
        ours=None if why_not else interleaved({"drawn": drawn()}, repeats=40)["drawn"] / 1000,
        why_not=why_not,
    )
