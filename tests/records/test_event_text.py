"""The events frame describes each event in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentlab import Budget, ContinuationPolicy, MaxCost, RunSettings, TerminatingTools
from agentlab.limits.reading import Remaining
from agentlab.model.messages import ToolCall
from agentlab.model.responses import Hole
from agentlab.records import events
from agentlab.records.columns import EVENT_COLUMNS, Source
from agentlab.records.step import Seam

BEFORE = RunSettings()


def detail(event: events.Event) -> Any:
    (column,) = [column for column in EVENT_COLUMNS if column.name == "detail"]
    source: Any = Source
    return column.read(source, event)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(
            events.ContinuationAttempted(1.0, 2, 1, 1234, 5678, 2),
            "attempt 1, 2 left: 1,234 output tokens and 5,678 characters so far",
            id="a continuation",
        ),
        pytest.param(
            events.ContinuationAttempted(1.0, 2, 3, None, 9, 0),
            "attempt 3, 0 left: unknown output tokens and 9 characters so far",
            id="with unknown usage",
        ),
        pytest.param(
            events.ContinuationAttempted(1.0, 2, 1, 1234, 5678, 2, 1766, 4322, 1, None, Remaining()),
            "attempt 1, 2 left: 1,234 output tokens and 5,678 characters so far, 1,766 tokens and 4,322 characters left",
            id="with the remaining caps",
        ),
        pytest.param(
            events.ContinuationEnded(1.0, 2, "retry_limit", 3, 2.25), "retry_limit after 3 attempts and 2.2 s", id="its end"
        ),
        pytest.param(
            events.ContinuationEnded(1.0, 2, "completed", 1, 0.5), "completed after 1 attempt and 0.5 s", id="after one attempt"
        ),
        pytest.param(
            events.ContinuationEnded(1.0, 2, "completed", 1, 0.5, (Seam(2, 9), Seam(3, 30, "once more"))),
            "completed after 1 attempt and 0.5 s, 9 characters dropped where the pieces meet",
            id="with dropped text",
        ),
        pytest.param(
            events.ToolPayloadRepair(1.0, 2, "incomplete", True, True), "incomplete tool call: asked again, whole", id="repaired"
        ),
        pytest.param(
            events.ToolPayloadRepair(1.0, 2, "malformed", True, False), "malformed tool call: asked again, in vain", id="failed"
        ),
        pytest.param(
            events.ToolPayloadRepair(1.0, 2, "incomplete", False, False),
            "incomplete tool call: not asked again",
            id="not attempted",
        ),
        pytest.param(
            events.AskedAgain(1.0, 2, 3, 1, 1, (Hole(8, 17, "an event could not be read"), Hole(9))),
            "call 3 lost a piece of its answer, attempt 1, 1 left: at character 8: an event could not be read (17 bytes); "
            "at character 9: a piece was lost",
            id="asked again",
        ),
        pytest.param(
            events.ToolProgress(1.0, 2, "c1", "load", 52_428_800.0, 104_857_600.0, "page 1"),
            "load: 52428800 of 104857600, page 1",
            id="progress in bytes",
        ),
        pytest.param(events.ToolProgress(1.0, 2, "c1", "load", 0.5, None, ""), "load: 0.5", id="progress without a total"),
        pytest.param(events.Nudged(1.0, 2, 1, 2), "reminder 1 of 2 in a row", id="a nudge"),
    ],
)
def test_details_of_events(event: events.Event, expected: str) -> None:
    assert detail(event) == expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            events.ApprovalRequested(1.0, 2, ToolCall("c1", "pay", '{"amount": 5}'), "approve has 'pay'"),
            "pay({\"amount\": 5}): approve has 'pay'",
        ),
        (events.ApprovalGiven(1.0, 2, "c1", "pay", "approved", 2.04), "pay approved after 2.0 s"),
        (events.ApprovalGiven(1.0, 2, "c1", "pay", "edited", 2.0, '{"amount": 3}'), 'pay edited after 2.0 s: {"amount": 3}'),
        (events.ApprovalGiven(1.0, 2, "c1", "pay", "refused", 2.0, None, "Too much."), "pay refused after 2.0 s: Too much."),
    ],
)
def test_details_of_approvals(event: events.Event, expected: str) -> None:
    assert detail(event) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"budget": Budget(max_turns=20, max_tokens=9)}, "max_tokens None -> 9", id="the budget"),
        pytest.param({"stop": MaxCost(1)}, "stop None -> MaxCost(1)", id="the condition"),
        pytest.param(
            {"continuation": ContinuationPolicy(max_continuations_per_turn=5)},
            "max_continuations_per_turn 3 -> 5",
            id="continuation",
        ),
        pytest.param(
            {"terminating": TerminatingTools(["end"])},
            "max_turns 20 -> 64, terminating None -> TerminatingTools(",
            id="terminating tools",
        ),
        pytest.param({"approve": ("pay",)}, "approve () -> ('pay',)", id="approvals"),
        pytest.param({}, " (by panel)", id="nothing"),
    ],
)
def test_every_changed_setting_is_named(change: dict[str, Any], expected: str) -> None:
    text = detail(events.LimitsChanged(1.0, BEFORE, replace(BEFORE, **change), "panel"))

    assert text.startswith(expected)
    assert text.endswith(" (by panel)")


def test_a_changed_field_of_the_terminating_tools_is_named_alone() -> None:
    one, two = (replace(BEFORE, terminating=TerminatingTools(["end"], consecutive_nudges=n)) for n in (1, 2))

    assert detail(events.LimitsChanged(1.0, one, two, "code")) == "consecutive_nudges 1 -> 2 (by code)"


def test_a_changed_limit_has_its_unit() -> None:
    old, new = (replace(BEFORE, budget=Budget(max_cost=cost, timeout=time)) for cost, time in (("0.05", 3.0), ("0.1", 120.5)))

    assert detail(events.LimitsChanged(1.0, old, new, "code")) == "max_cost $0.05 -> $0.10, timeout 3 s -> 120 s (by code)"
