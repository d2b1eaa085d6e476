"""The panel without a browser: set what a user would set, read what the page would show."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from agentlab.notebook.panel.controls import why_not
from agentlab.notebook.panel.step_browser import StepTable
from thread_tools import drawn, wait_until

import agentlab as lab
from agentlab import (
    Budget,
    ContinuationPolicy,
    FinishReasonIs,
    HasToolCall,
    MaxCost,
    MaxTokensUsed,
    StepCountIs,
    TerminatingTools,
)
from agentlab.agent import Run
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError, LimitError
from agentlab.limits.combinators import StopCondition
from agentlab.limits.fields import limit_field
from agentlab.limits.reading import Reading
from agentlab.notebook import markup
from agentlab.records.history import RunHistory
from agentlab.testing import ScriptedProvider, call, say

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">'


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


async def search(query: str) -> str:
    """Search."""
    await asyncio.sleep(0.01)
    return "nothing"


async def finalize(answer: str) -> str:
    """Hand it in."""
    return answer


def make_run(stop: object = None, budget: Budget | None = None, **more: object) -> Run:
    model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, cost="0.001"))
    return lab.Agent(model, tools=[search, finalize]).run("Find it.", stop=stop, budget=budget or Budget(max_turns=500), **more)


def test_the_run_button_returns_at_once_and_the_run_continues_on_a_thread() -> None:
    run = make_run(StepCountIs(5))
    panel = run.panel()
    _ = panel.widget
    panel.run_view.controls.go.click()
    assert run.wait(60) is not None
    assert threading.current_thread() is threading.main_thread()
    wait_until(lambda: "Fired: StepCountIs 5 of 5" in panel.run_view.ending.text.value)
    assert "stop_condition" in panel.run_view.ending.text.value
    wait_until(lambda: panel.run_view.controls.go.disabled and panel.run_view.controls.go.tooltip == "The run has ended.")


@pytest.mark.parametrize(
    ("state", "pausing", "pressable"),
    [
        (RunState.READY, False, {"go", "step", "stop"}),
        (RunState.RUNNING, False, {"pause", "stop"}),
        (RunState.RUNNING, True, {"stop"}),
        (RunState.PAUSED, False, {"go", "step", "stop"}),
        (RunState.ENDED, False, set()),
    ],
)
def test_a_disabled_button_says_why(state: RunState, pausing: bool, pressable: set[str]) -> None:
    assert {name for name, why in why_not(state, pausing=pausing).items() if not why} == pressable


def test_an_edit_in_the_panel_is_an_event_and_applies_from_the_next_step() -> None:
    run = make_run()
    panel = run.panel()
    _ = panel.widget
    run.worker.launch()
    wait_until(lambda: len(run.history) >= 3)
    panel.run_view.editor.budget["max_turns"].number.value = 1
    assert run.wait(60) is not None
    assert run.result is not None and run.result.stop_reason == "turn_limit"
    changed = [event for event in run.events if type(event).__name__ == "LimitsChanged"]
    assert [(event.by, event.after.budget.max_turns) for event in changed] == [("panel", 1)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "value", "held"),
    [
        ("max_turns", 7, 7),
        ("max_calls", 9, 9),
        ("max_tokens", 1234, 1234),
        ("max_tokens_per_turn", 99, 99),
        ("max_cost", 0.25, Decimal("0.25")),
        ("timeout", 12.5, 12.5),
    ],
)
def test_every_budget_field_can_be_edited_and_removed(name: str, value: float, held: object) -> None:
    run = make_run(budget=Budget())
    panel = run.panel()
    _ = panel.widget
    field = panel.run_view.editor.budget[name]
    field.unlimited.value = False
    field.number.value = value
    assert getattr(run.limits, name) == held
    field.unlimited.value = True
    assert getattr(run.limits, name) is None
    assert field.number.disabled


def test_every_leaf_can_be_edited() -> None:
    run = make_run(StepCountIs(8) | HasToolCall("search") & MaxCost("0.5") | ~FinishReasonIs("length"))
    panel = run.panel()
    _ = panel.widget
    panel.run_view.editor.leaves["StepCountIs", "steps"].number.value = 6
    panel.run_view.editor.leaves["HasToolCall", "names"].text.value = "finalize, give_up"
    panel.run_view.editor.leaves["MaxCost", "usd"].number.value = 0.75
    panel.run_view.editor.leaves["FinishReasonIs", "reasons"].text.value = "max_tokens"
    assert repr(run.limits.stop) == repr(
        StepCountIs(6) | HasToolCall("finalize", "give_up") & MaxCost("0.75") | ~FinishReasonIs("max_tokens")
    )


@pytest.mark.parametrize(("field", "value"), [("max_turns", 0), ("max_tokens", -5)])
def test_an_invalid_value_says_why_and_changes_nothing(field: str, value: int) -> None:
    run = make_run(budget=Budget(max_turns=20, max_tokens=1000))
    before = run.limits.snapshot()
    panel = run.panel()
    _ = panel.widget
    panel.run_view.editor.budget[field].number.value = value
    assert run.limits.snapshot() is before
    assert f"{field}={value}" in panel.run_view.editor.budget[field].message.value
    assert f"Still in force: {getattr(before.budget, field)}" in panel.run_view.editor.budget[field].message.value


def test_emptied_names_say_why() -> None:
    run = make_run(HasToolCall("search"))
    panel = run.panel()
    _ = panel.widget
    panel.run_view.editor.leaves["HasToolCall", "names"].text.value = " , "
    assert "Still in force: search" in panel.run_view.editor.leaves["HasToolCall", "names"].message.value
    assert run.limits.stop == HasToolCall("search")


def test_a_change_in_code_reaches_the_fields() -> None:
    run = make_run(StepCountIs(9))
    panel = run.panel()
    _ = panel.widget
    run.limits.max_cost = 0.125
    run.limits.stop = StepCountIs(3) | HasToolCall("search")
    wait_until(lambda: panel.run_view.editor.budget["max_cost"].number.value == 0.125)
    wait_until(lambda: {("HasToolCall", "names"), ("StepCountIs", "steps")} <= panel.run_view.editor.leaves.keys())
    wait_until(lambda: panel.run_view.editor.leaves["StepCountIs", "steps"].number.value == 3)


def test_two_panels_of_one_run_show_the_same() -> None:
    run = make_run()
    one, two = run.panel(), run.panel()
    _ = one.widget, two.widget
    one.run_view.editor.budget["max_turns"].number.value = 77
    wait_until(lambda: two.run_view.editor.budget["max_turns"].number.value == 77)


@dataclass(frozen=True, slots=True)
class ErrorsReach(StopCondition):
    """A custom condition."""

    errors: int = limit_field(unit="errors", minimum=1, help="stop after this many failed calls")

    def read(self, history: RunHistory) -> Reading:
        failed = sum(result.is_error for step in history for result in step.tool_results)
        return Reading("ErrorsReach", failed, self.errors, failed >= self.errors)


def test_a_custom_condition_has_its_field() -> None:
    run = make_run(ErrorsReach(4))
    panel = run.panel()
    _ = panel.widget
    panel.run_view.editor.leaves["ErrorsReach", "errors"].number.value = 2
    assert run.limits.stop == ErrorsReach(2)
    assert "ErrorsReach" in panel.run_view.overview.meters.value


def test_custom_shows_its_name_and_is_never_called_by_the_panel() -> None:
    asked: list[int] = []

    def never_enough(history: RunHistory) -> bool:
        asked.append(len(history))
        return False

    run = make_run(never_enough, Budget(max_turns=3))
    panel = run.panel()
    _ = panel.widget
    assert "never_enough" in panel.run_view.overview.meters.value and "not read yet" in panel.run_view.overview.meters.value
    run.worker.launch()
    assert run.wait(60) is not None
    wait_until(lambda: "turn_limit" in panel.run_view.ending.text.value)
    assert asked == [1, 2, 3]


def test_model_output_is_text() -> None:
    model = ScriptedProvider([call(HOSTILE, HOSTILE), say(HOSTILE)], name=HOSTILE, model=HOSTILE)
    run = lab.Agent(model).run("go")
    asyncio.run(_to_the_end(run))
    panel = run.panel()
    _ = panel.widget
    shown = "".join(
        (
            panel.run_view.overview.status.value,
            panel.run_view.steps.table.value,
            panel.run_view.ending.text.value,
            panel.run_view.overview.meters.value,
            panel.bundle()["text/html"],
        )
    )
    assert "<script>" not in shown and "<img src=x" not in shown
    assert "&lt;script&gt;" in shown


async def _to_the_end(run: Run) -> None:
    await run


def test_an_error_of_a_control_is_shown_under_the_panel() -> None:
    run = make_run(budget=Budget(max_turns=1))
    panel = run.panel()
    _ = panel.widget
    run.worker.launch()
    assert run.wait(60) is not None
    panel.guard(run.pause)  # as if it had been pressed just before the end
    assert "RunEndedError: The run has ended (turn_limit" in panel.fault.value


def test_the_bundle_is_the_same_at_every_execution() -> None:
    bundles = []
    for _ in range(2):
        run = make_run(StepCountIs(3), Budget(max_turns=9, max_tokens=400, timeout=60.0))
        asyncio.run(_to_the_end(run))
        bundles.append(run.panel().bundle())
    assert bundles[0] == bundles[1]
    assert set(bundles[0]) == {"text/plain", "text/html", "image/png"}
    assert "StepCountIs 3 of 3" in bundles[0]["text/html"]


@pytest.mark.parametrize(
    ("used", "limit", "words"),
    [(7, 10, "7 of 10</span>"), (8, 10, "8 of 10 — <b>near</b>"), (10, 10, "10 of 10 — <b>reached</b>")],
)
def test_a_bar_states_in_words_what_its_colour_shows(used: int, limit: int, words: str) -> None:
    run = make_run(StepCountIs(limit))
    asyncio.run(_steps(run, used))
    assert words in markup.meters(run)


def test_the_newest_steps_have_the_sums_of_the_whole_run() -> None:
    run = make_run(StepCountIs(30))
    asyncio.run(_to_the_end(run))
    newest, whole = (StepTable(run).static_html(most) for most in (8, 30))
    rows = newest.partition("<tbody>")[2]
    assert "22 earlier steps" in newest
    assert rows.count("<tr>") == 8
    assert whole.endswith(rows)


async def _steps(run: Run, number: int) -> None:
    for _ in range(number):
        await run.step()


def test_unknown_usage_is_shown_as_unknown() -> None:
    model = ScriptedProvider([say("done", tokens=(None, None))])
    run = lab.Agent(model).run("go", budget=Budget(max_tokens=100))
    with pytest.warns(lab.AgentlabWarning, match="reports no usage"):
        asyncio.run(_to_the_end(run))
    assert "unknown of 100" in markup.meters(run)
    assert "tokens <b>unknown</b>" in markup.status(run)


def test_a_panel_of_another_object_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"panel\(3\): pass a run"):
        lab.panel(3)  # type: ignore[arg-type]


def test_redraws_are_coalesced() -> None:
    from agentlab.notebook.live_view import Redrawer

    drawn: list[float] = []
    over = threading.Event()
    redrawer = Redrawer(lambda: drawn.append(time.monotonic()), lambda: False, over.is_set)
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


def test_a_missing_key_is_shown_and_the_run_button_works_after_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    run = lab.Agent("openai:gpt-5.4-mini", retry=lab.RetryPolicy(attempts=1)).run("Find it.")
    panel = run.panel()
    _ = panel.widget
    controls = panel.run_view.controls
    for button in (controls.go, controls.step):
        button.click()
        assert "MissingKeyError: No API key for openai. Set the environment variable OPENAI_API_KEY" in panel.fault.value
        assert (run.state, len(run.history), button.disabled) == (RunState.READY, 0, False)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    controls.go.click()
    assert run.wait(60) is not None  # the network is off: the call is attempted and fails
    assert "MissingKeyError" not in panel.fault.value
    assert run.result is not None
    assert type(run.result.error).__name__ == "ProviderConnectionError"


CAPS = (
    "max_continuations_per_turn",
    "max_tool_repair_attempts",
    "max_total_completion_tokens_per_turn",
    "max_total_output_chars_per_turn",
)
NUMBERS: dict[str, tuple[Callable[[Any], Any], Callable[[Run], object], Callable[[Any], object]]] = {
    **{
        name: (lambda panel, name=name: panel.run_view.editor.budget[name],
               lambda run, name=name: getattr(run.limits, name),
               lambda value, name=name: Budget(**{name: value}))
        for name in ("max_turns", "max_calls", "max_tokens", "max_tokens_per_turn")
    },
    **{
        name: (lambda panel, name=name: panel.run_view.editor.continuation.fields[name],
               lambda run, name=name: getattr(run.limits, name),
               lambda value, name=name: ContinuationPolicy(**{name: value}))
        for name in CAPS
    },
    **{
        name: (lambda panel, name=name: panel.run_view.editor.terminating.fields[name],
               lambda run, name=name: getattr(run.limits, name),
               lambda value, name=name: TerminatingTools(["search"], **{name: value}))
        for name in ("consecutive_nudges", "max_invocations")
    },
    "StepCountIs": (lambda panel: panel.run_view.editor.leaves["StepCountIs", "steps"],
                    lambda run: run.limits.conditions["StepCountIs"].steps, StepCountIs),
    "MaxTokensUsed": (lambda panel: panel.run_view.editor.leaves["MaxTokensUsed", "tokens"],
                      lambda run: run.limits.conditions["MaxTokensUsed"].tokens, MaxTokensUsed),
}  # fmt: skip
"""All integer fields of a panel: the field, the value in force, and Python's refusal of a fraction."""


def every_number() -> tuple[Run, Any]:
    """A run with a value for each of them, and its panel."""
    run = make_run(
        StepCountIs(8) | MaxTokensUsed(900),
        Budget(max_turns=20, max_calls=30, max_tokens=4000, max_tokens_per_turn=500),
        continuation=ContinuationPolicy(**dict.fromkeys(CAPS, 7)),
        terminating=TerminatingTools(["search"]),
    )
    panel = run.panel()
    _ = panel.widget
    return run, panel


@pytest.mark.parametrize("name", NUMBERS)
def test_a_fraction_is_refused_as_in_python_and_stays_in_the_box(name: str) -> None:
    field_of, in_force, make = NUMBERS[name]
    run, panel = every_number()
    field, before = field_of(panel), in_force(run)
    with pytest.raises(LimitError) as refused:
        make(5.5)
    for _ in range(2):  # the redraw in between keeps it too
        field.number.value = 5.5
        assert markup.escape(str(refused.value)) in field.message.value
        assert f"Still in force: {before}." in field.message.value
        assert (in_force(run), type(before), field.number.value) == (before, int, 5.5)
        drawn(panel)
    field.number.value = 1e3
    assert (in_force(run), type(in_force(run)), field.message.value) == (1000, int, "")


def test_a_fraction_for_a_custom_condition_is_refused() -> None:
    run = make_run(ErrorsReach(4))
    panel = run.panel()
    _ = panel.widget
    field = panel.run_view.editor.leaves["ErrorsReach", "errors"]
    field.number.value = 2.5
    assert "ErrorsReach(errors=2.5): errors is a whole number, such as 8; got float." in field.message.value
    assert run.limits.stop == ErrorsReach(4)
    field.number.value = 3.0
    assert repr(run.limits.stop) == "ErrorsReach(errors=3)"


def test_reminders_edited_in_the_boxes_are_integers() -> None:
    run, panel = every_number()
    terminating = panel.run_view.editor.terminating
    for on in (False, True):
        terminating.tools["search"].value = on
        drawn(panel)
    assert run.limits.terminating == TerminatingTools(["search"])
    assert type(run.limits.max_invocations) is int
