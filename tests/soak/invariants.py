"""Invariants of a run that was cut short anywhere: history, events, conversation, store and panel agree, and it can continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from engine.builders import assert_conversation_is_whole, assert_is_whole
from storage.comparisons import assert_kept, spoken

import agentlab as lab
from agentlab.model.finish_reasons import StopReason
from agentlab.notebook.panel.actions import buttons
from agentlab.notebook.panel.feed import Feed
from agentlab.records import events
from agentlab.storage.store import Store
from agentlab.testing import ScriptedProvider

from .scenes import Ledger

WAITED_FOR = ("book", "pay")

_compared: set[tuple[str, str]] = set()
"""The slow checks that were made, each with the run as values: many runs differ in nothing but their times."""


def family(run: lab.Run) -> Iterator[lab.Run]:
    """The run and those of its sub-agents."""
    yield run
    for child in run.children:
        yield from family(child)


def assert_agreement(run: lab.Run, ledger: Ledger, store: Store, *, frames: bool = False) -> None:
    """Assert every agreement; with `frames` every frame of the store is compared too, which takes longer: once for each run that
    differs from the others in more than its times. The same holds for the panel's figure."""
    for one in family(run):
        assert_is_whole(one)
        assert_events_agree(one)
        assert_store_agrees(store, one, frames=frames)
        assert_static_panel_agrees(one)
    assert_tools_agree(run, ledger)


def assert_events_agree(run: lab.Run) -> None:
    """Assert that observers received the history's events, in order and once."""
    completed = [event.step for event in run.events if isinstance(event, events.StepCompleted)]
    assert [(one.index, one.usage, one.tool_results) for one in completed] == [
        (one.index, one.usage, one.tool_results) for one in run.history
    ]
    assert run.result is not None
    assert [event.result for event in run.events if isinstance(event, events.RunEnded)] == [run.result]
    assert run.result.history is run.history
    started = [event.tool_call.id for event in run.events if isinstance(event, events.ToolStarted)]
    finished = [event.result for event in run.events if isinstance(event, events.ToolFinished)]
    assert started == [result.call_id for result in finished]
    assert finished == [result for step in run.history for result in step.tool_results]
    observed = [event for event in run.events if isinstance(event, events.StopReasonObserved)]
    assert len(observed) == sum(len(step.calls) for step in run.history)
    begun = [event.child_id for event in run.events if isinstance(event, events.ChildStarted)]
    assert begun == [use.run_id for step in run.history for use in step.children]
    assert begun == [event.child.run_id for event in run.events if isinstance(event, events.ChildEnded)]


def step_as_values(step: lab.StepResult) -> tuple[Any, ...]:
    """Everything of a step that a store can keep, except times."""
    results = [(one.call_id, one.name, one.content, one.error, one.arguments) for one in step.tool_results]
    calls = [(call.index, call.response.text, call.response.tool_calls, call.usage, call.cost, call.used) for call in step.calls]
    decided = (step.decision.action, step.decision.reason, step.decision.stop_reason)
    return step.index, step.text, step.usage, step.cost, decided, step.stop_reason, results, calls, step.children, str(step.error)


def drawn_of(step: lab.StepResult) -> tuple[Any, ...]:
    """What the panel's figure has of a step: no texts."""
    return step.index, step.usage, step.cost, step.stop_reason, len(step.calls), len(step.children), type(step.error)


def is_first(check: str, run: lab.Run, values_of: Callable[[lab.StepResult], object], *more: object) -> bool:
    """True if no run with the same values of its steps, and with the same `more`, had this check yet."""
    values = repr((run.agent.model.name, list(map(values_of, run.history)), *more))
    if (check, values) in _compared:
        return False
    _compared.add((check, values))
    return True


def assert_store_agrees(store: Store, run: lab.Run, *, frames: bool = False) -> None:
    """Assert that the store returns what was recorded."""
    result = run.result
    assert result is not None
    assert not store.unsaved
    assert store.state(run.id) == "ended"
    loaded = store.load(run.id)
    assert list(map(step_as_values, loaded.history)) == list(map(step_as_values, run.history))
    assert (loaded.history.usage, loaded.history.known_tokens, loaded.history.cost) == (
        run.history.usage,
        run.history.known_tokens,
        run.history.cost,
    )
    assert spoken(loaded.messages) == spoken(run.messages)
    assert loaded.result is not None
    assert (loaded.result.stop_reason, loaded.result.detail, loaded.result.stopped_by) == (
        result.stop_reason,
        result.detail,
        result.stopped_by,
    )
    names = [type(event).__name__ for event in run.events]
    assert [type(event).__name__ for event in loaded.events] == names
    if frames and is_first("frames", run, step_as_values, names, result.stop_reason, result.detail):
        assert_kept(store, result)


def assert_static_panel_agrees(run: lab.Run) -> None:
    """Assert what a reader without a kernel sees."""
    result = run.result
    assert result is not None
    panel = run.panel()
    html = panel._static().html()
    if is_first("figure", run, drawn_of):
        assert panel.bundle()["text/html"] == html
    assert f"Why it ended: {result.stop_reason.replace('_', ' ')}" in html
    assert f"{len(run.history)} step{'s' * (len(run.history) != 1)} · " in html


def assert_live_panel_agrees(run: lab.Run) -> None:
    """Assert what the page shows: the end, the number of steps, and no enabled button."""
    result = run.result
    assert result is not None
    news = Feed((run,)).news()
    shown = news["runs"][run.id]
    assert (shown["state"], shown["end"]["stop_reason"]) == ("ended", str(result.stop_reason))
    rows = [row for row in news["steps"].get(run.id, ()) if {*row} != {"n", "same"}]
    assert shown["totals"]["steps"] == len(run.history) == len(rows)
    assert all(button["why_not"] for button in buttons(run).values()), "nothing to press"


def assert_tools_agree(run: lab.Run, ledger: Ledger) -> None:
    """Assert that each started tool has a result that says correctly whether it finished; an awaited one always did."""
    results = [result for one in family(run) for step in one.history for result in step.tool_results]
    for name in {tool for _, tool in ledger.entries}:
        mine = [result for result in results if result.name == name]
        began, ended = ledger.count("began", name), ledger.count("ended", name)
        with_result = sum(1 for result in mine if result.error is None)
        assert began <= len(mine), f"{name} began {began} times and has {len(mine)} results"
        assert {result.error for result in mine} <= ({None, "not_executed"} if name in WAITED_FOR else {None, "interrupted"})
        assert with_result <= ended <= began
        if name in WAITED_FOR:
            assert with_result == ended == began, (
                f"{name} is waited for, began {began} times and {with_result} results are emitted"
            )
        if name == "ponder":
            cut, cut_late = ledger.count("cut", name), ledger.count("cut in clean-up", name)
            assert cut + cut_late <= 1, "one cancel cuts once: a clean-up that has started is awaited"
            assert ledger.count("cleaned", name) == began - cut_late
            assert (ended, with_result) == (began - cut, began - cut - cut_late)


async def assert_it_continues(run: lab.Run) -> None:
    """Assert that a branch from its end takes another step: the conversation can be sent to a model."""
    for one in family(run):
        branch = one.fork(at=len(one.history), message="And now?", model=ScriptedProvider(lambda request, index: "more"))
        branch.limits.timeout = None  # which may be exhausted
        step = await branch.step()
        assert step is not None
        assert step.text == "more"
        assert_conversation_is_whole(branch.messages)
        assert isinstance(one.next_actions, tuple | list)


def ended_as(run: lab.Run) -> StopReason:
    """The reason why it ended."""
    assert run.result is not None
    return run.result.stop_reason
