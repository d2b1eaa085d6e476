"""The buttons of the panel without a browser: send what the page sends, read what it would show."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import Any

import pytest
from thread_tools import wait_until

import agentlab as lab
from agentlab import Budget, StepCountIs
from agentlab.agent import Run
from agentlab.engine.lockstep import Lockstep
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.notebook.panel import Panel
from agentlab.notebook.panel.actions import live_data, together, why_not
from agentlab.notebook.redrawer import Redrawer
from agentlab.testing import ScriptedProvider, call


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


def make_run(stop: object = None, *, pause_s: float = 0.01) -> Run:
    async def search(query: str) -> str:
        """Search."""
        await asyncio.sleep(pause_s)
        return "nothing"

    model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, cost="0.001"))
    return lab.Agent(model, tools=[search]).run("Find it.", stop=stop, budget=Budget(max_turns=500))


class Person:
    """A person at a panel: `do` sends a command of the page, `button` reads one of its buttons."""

    def __init__(self, *runs: Run) -> None:
        self.panel = Panel(runs)
        _ = self.panel.widget
        self.run = runs[0]

    def do(self, name: str, **more: Any) -> Any:
        return self.panel.carry_out({"do": name, "run": self.panel.run.id, **more})

    def every(self, what: str) -> None:
        self.do("every", what=what)

    def button(self, name: str) -> dict[str, str]:
        return dict(live_data(self.run)["buttons"][name])

    def all(self) -> dict[str, Any]:
        return together(self.panel.lockstep) or {}


def test_run_returns_at_once_and_the_run_continues_on_a_thread() -> None:
    person = Person(make_run(StepCountIs(5)))
    person.do("go")
    assert person.run.wait(60) is not None
    assert threading.current_thread() is threading.main_thread()
    assert person.button("go")["why_not"] == "The run has ended."


def test_step_run_pause_resume_and_stop() -> None:
    person = Person(make_run())
    run = person.run
    assert person.button("pause")["why_not"] == "Nothing is running."
    person.do("step")
    wait_until(lambda: run.state is RunState.READY and len(run.history) == 1)
    person.do("go")
    wait_until(lambda: len(run.history) >= 3)
    assert person.button("go")["why_not"] == "The run is under way."
    person.do("pause")
    wait_until(lambda: run.state is RunState.PAUSED)
    steps = len(run.history)
    time.sleep(0.1)
    assert len(run.history) == steps
    assert person.button("go") == {"label": "Resume", "why_not": "", "tip": "Run to the end"}
    assert live_data(run)["paused"]["for_s"] >= 0.1, "the page counts on from here"
    person.do("go")
    wait_until(lambda: len(run.history) >= steps + 2)
    person.do("stop")
    result = run.wait(60)
    assert result is not None and result.detail == "Stopped by the person: the Stop button"


def test_run_pressed_while_a_step_is_under_way_is_not_lost() -> None:
    person = Person(make_run(StepCountIs(4), pause_s=0.1))
    person.do("step")
    person.do("go")
    person.do("go")
    assert person.run.wait(60) is not None and len(person.run.history) == 4


def test_a_pause_can_be_taken_back_and_a_second_stop_cuts_the_step_off() -> None:
    person = Person(make_run(pause_s=30))
    person.do("go")
    wait_until(lambda: person.run.stepper.is_stepping)
    person.do("pause")
    assert (person.button("go")["label"], person.button("go")["why_not"]) == ("Resume", "")
    assert person.button("step")["why_not"] == "It pauses after this step."
    assert live_data(person.run)["soon"] == "pauses after this step"
    person.do("go")
    assert live_data(person.run)["soon"] == ""
    person.do("stop")
    assert live_data(person.run)["soon"] == "stops after this step"
    assert person.button("stop")["label"] == "Stop now"
    person.do("stop")
    result = person.run.wait(60)
    assert result is not None and result.stop_reason is lab.StopReason.CANCELLED


@pytest.mark.parametrize(
    ("state", "pausing", "waits", "pressable"),
    [
        (RunState.READY, False, False, {"go", "step", "stop"}),
        (RunState.RUNNING, False, False, {"pause", "stop"}),
        (RunState.RUNNING, True, False, {"go", "stop"}),
        (RunState.RUNNING, False, True, {"go", "pause", "stop"}),
        (RunState.PAUSED, True, False, {"go", "step", "stop"}),
        (RunState.WAITING, False, False, {"pause", "stop"}),
        (RunState.WAITING, True, False, {"go", "stop"}),
        (RunState.ENDED, False, False, set()),
    ],
)
def test_a_disabled_button_says_why(state: RunState, pausing: bool, waits: bool, pressable: set[str]) -> None:
    assert {name for name, why in why_not(state, pausing=pausing, waits=waits).items() if not why} == pressable


def test_a_missing_key_is_said_and_run_works_after_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    run = lab.Agent("openai:gpt-5.4-mini", retry=lab.RetryPolicy(attempts=1)).run("Find it.")
    person = Person(run)
    for name in ("go", "step"):
        with pytest.raises(MissingKeyError, match=r"No API key for openai. Set the environment variable OPENAI_API_KEY"):
            person.do(name)
        assert (run.state, len(run.history), person.button(name)["why_not"]) == (RunState.READY, 0, "")
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    person.do("go")
    assert run.wait(60) is not None  # the network is off: the call is attempted and fails
    assert run.result is not None
    assert type(run.result.error).__name__ == "ProviderConnectionError"


def test_the_page_as_a_file_is_made_without_writing_one() -> None:
    person = Person(lab.Agent(ScriptedProvider(["Paris."]), name="a/b guide").run("Where?"))
    asyncio.run(to_the_end(person.run))
    answer = person.do("save")
    assert answer["name"] == "a-b-guide.html"
    assert answer["html"] == person.panel.to_html() and "Paris." in answer["html"]


async def to_the_end(run: Run) -> None:
    await run


# Several runs -----------------------------------------------------------------------------------------------------------------


def test_step_all_takes_one_step_of_each() -> None:
    runs = [make_run(), make_run()]
    person = Person(*runs)
    assert person.all()["words"] == ["round 0", "0 of 2 ended"]
    person.every("step")
    wait_until(lambda: person.panel.lockstep is not None and person.panel.lockstep.state is RunState.READY)
    assert [len(run.history) for run in runs] == [1, 1]
    assert person.all()["words"][0] == "round 1"


def test_run_pause_resume_and_stop_all() -> None:
    both = Lockstep([make_run(), make_run(pause_s=0.02)])
    person = Person(*both.runs)
    person.panel.lockstep = both
    person.every("go")
    wait_until(lambda: both.round >= 2)
    assert person.all()["why_not"]["go"] == "A round is under way."
    person.every("pause")
    wait_until(lambda: both.state is RunState.PAUSED)
    assert person.all()["buttons"]["go"]["label"] == "Resume all" and person.all()["words"][-1] == "paused"
    held = [len(run.history) for run in both.runs]
    assert held[0] == held[1]
    time.sleep(0.1)
    assert [len(run.history) for run in both.runs] == held
    person.every("go")
    wait_until(lambda: both.round > held[0])
    person.every("stop")
    assert both.wait(60) is not None
    assert [run.result and run.result.detail for run in both.runs] == ["Stopped by the person: the Stop all button"] * 2
    assert person.all()["why_not"]["go"] == "All runs have ended." and person.all()["words"][1] == "2 of 2 ended"


def test_a_run_paused_individually_holds_the_others_and_the_panel_says_so() -> None:
    runs = [make_run(), make_run()]
    person = Person(*runs)
    person.every("go")
    wait_until(lambda: len(runs[0].history) >= 2)
    person.panel.carry_out({"do": "pause", "run": runs[1].id})
    wait_until(lambda: person.all()["words"][-1] == "all wait for run 2, which is paused")
    assert (person.all()["buttons"]["go"]["label"], person.all()["why_not"]["go"]) == ("Resume all", "")
    steps = len(runs[0].history)
    person.every("go")
    wait_until(lambda: len(runs[0].history) > steps)
    person.every("stop")
    wait_until(lambda: all(run.result is not None for run in runs))


def test_a_single_run_has_no_buttons_for_all() -> None:
    person = Person(make_run())
    assert together(person.panel.lockstep) is None
    with pytest.raises(ConfigurationError, match="one run"):
        person.every("go")


# The page ---------------------------------------------------------------------------------------------------------------------


def test_a_panel_of_another_object_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"panel\(3\): pass a run"):
        lab.panel(3)  # type: ignore[arg-type]


def test_an_unknown_command_and_an_unknown_run_are_refused() -> None:
    person = Person(make_run())
    with pytest.raises(ConfigurationError, match="no such command"):
        person.do("dance")
    with pytest.raises(ConfigurationError, match="not one of this panel's runs"):
        person.panel.carry_out({"do": "go", "run": make_run().id})


def test_redraws_are_coalesced() -> None:
    drawn: list[float] = []
    over = threading.Event()
    redrawer = Redrawer(lambda: drawn.append(time.monotonic()), lambda: not over.is_set())
    redrawer.start()
    began = time.monotonic()
    for _ in range(300):
        redrawer.mark()
        time.sleep(0.002)  # longer on a busy machine
    over.set()
    redrawer.mark()
    took_s = time.monotonic() - began
    wait_until(lambda: len(drawn) >= 2)
    assert len(drawn) <= 2 + took_s / 0.19
    assert all(later - earlier >= 0.19 for earlier, later in itertools.pairwise(drawn))
