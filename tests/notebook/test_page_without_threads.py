"""The panel and the explorer where no thread can be started, such as in a browser: clicks and redraws run on the event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from thread_tools import python_without_threads

import agentlab as lab
from agentlab import Budget, StepCountIs
from agentlab.agent import Run
from agentlab.engine.worker import RunState
from agentlab.notebook.explorer.explorer import Explorer
from agentlab.notebook.panel import Panel
from agentlab.notebook.panel.actions import live_data
from agentlab.notebook.redrawer import SHORTEST_PAUSE_S, LoopRedrawer
from agentlab.testing import ScriptedProvider, call, say

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    with python_without_threads():
        yield


@lab.tool
def search(query: str) -> str:
    """Search."""
    return "nothing"


def make_run(stop: object = None) -> Run:
    model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, cost="0.001"))
    return lab.Agent(model, tools=[search]).run("Find it.", stop=stop, budget=Budget(max_turns=500))


async def until(holds: Callable[[], object]) -> None:
    """Let the loop work until this holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0)


def go(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def test_buttons_run_pause_resume_step_and_stop() -> None:
    async def main() -> None:
        run = make_run()
        panel = Panel([run])
        _ = panel.widget

        def press(name: str) -> None:
            panel.carry_out({"do": name, "run": run.id})

        press("step")
        assert len(run.history) == 0, "a click returns before the step is taken"
        await until(lambda: run.state is RunState.READY and len(run.history) == 1)
        press("go")
        await until(lambda: len(run.history) >= 3)
        press("pause")
        await until(lambda: run.state is RunState.PAUSED)
        steps = len(run.history)
        await asyncio.sleep(0.05)
        assert (len(run.history), live_data(run)["buttons"]["go"]["label"]) == (steps, "Resume")
        panel.carry_out({"do": "limit", "run": run.id, "name": "max_turns", "value": 400})
        press("go")
        await until(lambda: len(run.history) >= steps + 2)
        press("stop")
        result = await run
        assert result.detail == "Stopped by the person: the Stop button"
        assert result.history[-1].settings.budget.max_turns == 400

    go(main)


def test_the_page_is_told_of_the_end() -> None:
    async def main() -> None:
        run = make_run(StepCountIs(60))
        panel = Panel([run])
        told: list[dict[str, Any]] = []
        panel.widget.tell = told.append  # type: ignore[method-assign]
        panel.carry_out({"do": "hello", "run": run.id, "page": "one"})
        told.clear()
        run.start()
        await run
        await until(lambda: "stop_condition" in str(told))

    go(main)


def test_redraws_on_the_loop_are_coalesced_and_tick_while_time_passes() -> None:
    drawn: list[float] = []
    ticking = [True]

    async def main() -> None:
        redraws = LoopRedrawer(lambda: drawn.append(time.monotonic()), lambda: ticking[0])
        for _ in range(300):
            redraws.mark()
            await asyncio.sleep(0.001)
        redraws.mark(soon=True)
        await until(lambda: len(drawn) >= 2)
        before = len(drawn)
        await until(lambda: len(drawn) > before)  # by itself, since time passes
        ticking[0] = False
        await until(lambda: len(drawn) > before + 1)
        last = len(drawn)
        await asyncio.sleep(0)
        assert len(drawn) == last
        assert all(later - earlier >= SHORTEST_PAUSE_S - 0.01 for earlier, later in itertools.pairwise(drawn))

    go(main)


def test_a_mark_without_a_loop_is_drawn_with_the_next_one() -> None:
    drawn: list[int] = []
    redraws = LoopRedrawer(lambda: drawn.append(1), lambda: False)
    redraws.mark()
    assert not drawn

    async def main() -> None:
        redraws.mark(soon=True)
        await until(lambda: drawn)

    go(main)


def test_the_explorer_tries_other_limits_on_the_loop() -> None:
    async def main() -> None:
        script = [call("search", {"query": "a"}, cost="0.001")] * 5 + [say("Done.", cost="0.001")]
        runs = [await lab.Agent(ScriptedProvider(script), tools=[search]).run("Find it.") for _ in range(3)]
        explorer: Explorer = lab.explore(runs, limits={"StepCountIs": [2, 4, 8]})
        _ = explorer.widget
        await until(lambda: explorer._others.over)
        explorer.limits["StepCountIs"] = 2
        await until(lambda: "StepCountIs(2)" in explorer.copy.text)
        assert explorer.frame["step_mean"].item() == 2

    go(main)


def test_the_panel_is_shown_with_pictures_and_without_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    run = make_run(StepCountIs(3))

    async def main() -> None:
        await run

    go(main)
    bundle = run.panel().bundle()
    assert bundle["image/png"] and "stop_condition" in bundle["text/plain"]
