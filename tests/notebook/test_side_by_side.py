"""Several runs side by side without a browser: press what a user would press, read what the page would show."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from measured_work import calls_in
from thread_tools import drawn, undisturbed, wait_until

import agentlab as lab
from agentlab import Budget
from agentlab.agent import Run
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.notebook.panel import Panel, SideBySide, panel
from agentlab.notebook.panel.side_by_side import MOST_RUNS, why_not
from agentlab.testing import ScriptedProvider, call, say

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">'


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


def make_run(name: str = "one", end: int = 0, pause_s: float = 0.0, answer_text: str = "Found.", turns: int = 500) -> Run:
    async def search(query: str) -> str:
        """Search."""
        await asyncio.sleep(pause_s)
        return "nothing"

    def script(request: ModelRequest, index: int) -> ModelResponse:
        return say(answer_text) if index == end else call("search", {"query": str(index)}, cost="0.001")

    agent = lab.Agent(ScriptedProvider(script, name=name, model="m"), tools=[search])
    return agent.run("Find it.", budget=Budget(max_turns=turns, max_tokens=100_000))


def beside(*runs: Run) -> SideBySide:
    made = panel(list(runs))
    assert isinstance(made, SideBySide)
    _ = made.widget
    return made


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_step_all_takes_one_step_of_each() -> None:
    runs = [make_run("one"), make_run("two"), make_run("three", end=2)]
    made = beside(*runs)
    for number in (1, 2):
        made.step.click()
        wait_until(lambda number=number: f"round {number} " in plain(made.round.value) and not made.step.disabled)  # type: ignore[misc]
    assert [len(run.history) for run in runs] == [2, 2, 2]
    wait_until(lambda: "1 of 3 ended" in plain(made.round.value))
    wait_until(lambda: "terminated · completed" in plain(made.columns[2].view.value))
    assert "Found." in made.columns[2].view.value
    made.step.click()
    wait_until(lambda: [len(run.history) for run in runs] == [3, 3, 2])


def test_run_pause_resume_and_stop_all() -> None:
    runs = [make_run("one", pause_s=0.02), make_run("two", pause_s=0.01)]
    made = beside(*runs)
    assert made.pause.disabled and made.pause.tooltip == "Nothing is running."
    made.go.click()
    wait_until(lambda: made.lockstep.round >= 3)
    made.pause.click()
    wait_until(lambda: made.lockstep.state is RunState.PAUSED)
    wait_until(lambda: made.go.description == "Resume all" and not made.go.disabled)
    held = [len(run.history) for run in runs]
    assert held[0] == held[1]
    time.sleep(0.1)
    assert [len(run.history) for run in runs] == held
    made.go.click()
    wait_until(lambda: made.lockstep.round > held[0])
    made.stop.click()
    assert made.lockstep.wait(60) is not None
    assert [str(run.result.stop_reason) for run in runs if run.result is not None] == ["explicit_stop"] * 2
    wait_until(lambda: made.go.disabled and made.go.tooltip == "All runs have ended.")
    wait_until(lambda: "2 of 2 ended" in plain(made.round.value))


def test_a_run_paused_individually_holds_the_others_and_the_panel_says_so() -> None:
    runs = [make_run("one", pause_s=0.02), make_run("two", pause_s=0.01)]
    made = beside(*runs)
    made.go.click()
    wait_until(lambda: made.lockstep.round >= 2)
    runs[1].pause()
    wait_until(lambda: "all wait for run 2, which is paused" in plain(made.round.value))
    wait_until(lambda: not made.go.disabled and made.go.description == "Resume all")
    before = made.lockstep.round
    made.go.click()
    wait_until(lambda: made.lockstep.round > before)
    made.stop.click()
    assert made.lockstep.wait(60) is not None


@pytest.mark.parametrize(
    ("state", "pausing", "waits", "pressable"),
    [
        (RunState.READY, False, False, {"go", "step", "stop"}),
        (RunState.RUNNING, False, False, {"pause", "stop"}),
        (RunState.RUNNING, True, False, {"stop"}),
        (RunState.RUNNING, False, True, {"go", "pause", "stop"}),
        (RunState.PAUSED, True, False, {"go", "step", "stop"}),
        (RunState.ENDED, False, False, set()),
    ],
)
def test_a_disabled_button_says_why(state: RunState, pausing: bool, waits: bool, pressable: set[str]) -> None:
    assert {name for name, why in why_not(state, pausing=pausing, waits=waits).items() if not why} == pressable


def test_the_chart_compares_all_runs() -> None:
    made = beside(make_run("one", end=3), make_run("two", turns=5))
    made.go.click()
    assert made.lockstep.wait(60) is not None
    wait_until(lambda: "two:m" in made.chart.value and "after 5 steps, turn_limit" in made.chart.value)
    assert "Cumulative tokens per step of 2 runs" in made.chart.value


def test_one_run_opens_below_with_all_its_controls() -> None:
    runs = [make_run("one", end=3), make_run("two", end=4)]
    made = beside(*runs)
    made.open.value = 1
    (opened,) = made.opened.children
    inner = made._panels[1]
    assert opened is inner.widget and inner.run is runs[1]
    assert set(inner._controls()) <= set(made._controls())
    inner.run_view.controls.step.click()
    wait_until(lambda: len(runs[1].history) == 1)
    assert len(runs[0].history) == 0
    made.open.value = -1
    assert made.opened.children == ()


def test_an_error_of_a_control_is_shown_below() -> None:
    made = beside(make_run("one", end=1), make_run("two", end=1))
    made.go.click()
    assert made.lockstep.wait(60) is not None
    made.guard(made.lockstep.worker.launch)
    assert "All runs of the lockstep have ended" in made.fault.value


@pytest.mark.parametrize(
    ("shown", "answer_text"),
    [
        ([], r"panel\(\[\]\): pass at least one run"),
        ("run", r"panel\('run'\): pass a run"),
        (3, r"panel\(3\): pass a run"),
        ([1], r"1 …\]\): this is not a run"),
        (None, r"panel\(None\)"),
    ],
)
def test_other_objects_are_refused(shown: Any, answer_text: str) -> None:
    with pytest.raises(ConfigurationError, match=answer_text):
        panel(shown)


def test_a_duplicated_run_and_too_many_runs_are_refused() -> None:
    run = make_run()
    with pytest.raises(ConfigurationError, match="is listed twice"):
        panel([run, run])
    with pytest.raises(ConfigurationError, match="at most 8 fit side by side"):
        panel([make_run() for _ in range(MOST_RUNS + 1)])


def test_a_lockstep_and_a_single_run() -> None:
    together = lab.Lockstep([make_run(), make_run()])
    made = panel(together)
    assert isinstance(made, SideBySide) and made.lockstep is together
    assert isinstance(panel(make_run()), Panel)
    with pytest.raises(ConfigurationError, match="pass agents"):
        panel(make_run(), agents=["openai:gpt-4.1-mini"])  # type: ignore[list-item]


def test_hostile_text_is_escaped() -> None:
    made = beside(make_run(HOSTILE, end=1, answer_text=HOSTILE * 50), make_run("two", end=1))
    made.go.click()
    assert made.lockstep.wait(60) is not None
    drawn(made)
    assert "completed" in made.columns[0].view.value and "<img" in made.chart.value
    page = made.columns[0].view.value + made.chart.value + made.bundle()["text/html"]
    assert "<script" not in page and "<img src=x" not in page


@pytest.fixture
def outputs() -> Iterator[list[dict[str, Any]]]:
    """The outputs that a cell would show."""
    shell = InteractiveShell.instance()
    before, shell.display_pub = shell.display_pub, CapturingDisplayPublisher(shell=shell)
    yield shell.display_pub.outputs
    shell.display_pub = before
    InteractiveShell.clear_instance()


def test_without_a_front_end_it_is_a_table_and_a_picture(monkeypatch: pytest.MonkeyPatch, outputs: list[dict[str, Any]]) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    runs = [make_run("one", end=3), make_run("two", turns=2)]
    lab.Lockstep(runs).start()
    made = panel(runs)
    made._ipython_display_()
    table, picture = (output["data"] for output in outputs)
    assert "<td>two:m</td>" in table["text/html"] and "turn_limit" in table["text/html"] and "Found." in table["text/html"]
    assert list(picture) == ["image/png"]
    assert made._widget is None, "no widget was made"
    assert panel(runs).bundle() == made.bundle()
    assert not any(run.id in table["text/html"] for run in runs)


def test_eight_runs_stay_usable() -> None:
    runs = [make_run(f"provider-{number}", pause_s=0.01, turns=30) for number in range(8)]
    made = beside(*runs)
    made.go.click()
    assert made.lockstep.wait(60) is not None
    drawn(made)
    assert "per step of 8 runs" in made.chart.value and "30 steps, turn_limit" in made.chart.value
    with undisturbed(made):
        assert 10 * calls_in(made._show) < calls_in(made._curves._draw)
