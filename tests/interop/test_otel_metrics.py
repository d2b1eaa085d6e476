"""Metrics: counts and durations."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

import agentlab as lab
from agentlab.interop import otel_attributes as names
from agentlab.limits.reading import Remaining
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.records import events
from agentlab.testing import ScriptedProvider, call, say

from .collected import Collected


def look() -> str:
    """A tool."""
    return "seen"


def result_with(to: Collected, script: list[Any], happening: list[events.Event] | None = None, **more: Any) -> lab.RunResult:
    """The result of a run with additional events in its first step, as the loop emits them."""

    async def go() -> lab.RunResult:
        def insert(event: events.Event) -> None:
            if isinstance(event, events.StopReasonObserved) and event.call == 1:
                for one in happening or ():
                    run.timeline.emit(one)

        run = lab.Agent(ScriptedProvider(script, name="gemini", model="m1"), tools=[look], observers=[to.telemetry]).run(
            "go", **more
        )
        run.observe(insert)
        return await run

    return asyncio.run(go())


WHO = {"gen_ai.provider.name": "gcp.gemini", "gen_ai.request.model": "m1"}


@pytest.mark.usefixtures("fake_time")
def test_tokens_and_durations_of_calls() -> None:
    to = Collected()
    result_with(to, [call("look", tokens=(30, 7)), say("done", tokens=(40, 3))])

    usage = {point.attributes["gen_ai.token.type"]: point for point in to.points("gen_ai.client.token.usage")}
    assert {kind: (point.count, point.sum) for kind, point in usage.items()} == {"input": (2, 70), "output": (2, 10)}
    assert dict(usage["input"].attributes) == WHO | {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": "script",
        "gen_ai.token.type": "input",
    }
    assert list(usage["input"].explicit_bounds) == [4**power for power in range(14)]
    assert usage["input"].explicit_bounds[-1] == 67_108_864
    (duration,) = to.points("gen_ai.client.operation.duration")
    assert duration.count == 2
    assert 0 < duration.sum < 1
    assert list(duration.explicit_bounds) == pytest.approx([0.01 * 2**power for power in range(14)])


def test_unknown_usage_is_not_counted() -> None:
    to = Collected()
    result_with(to, [say("done", tokens=(None, None))])

    assert to.points("gen_ai.client.token.usage") == []
    assert to.points("gen_ai.client.operation.duration")[0].count == 1


def test_continuations_are_counted_by_provider_and_model() -> None:
    to = Collected()
    happening = [
        events.ContinuationAttempted(0.1, 1, 1, 30, 120, 2),
        events.ContinuationAttempted(0.2, 1, 2, 60, 240, 1, 40, 760, 1, 9, Remaining(4, 3, 200, Decimal("0.5"))),
        events.ContinuationEnded(0.3, 1, "completed", 2, 1.5),
    ]
    result_with(to, ["done"], happening)
    result_with(to, ["done"], happening)

    (count,) = to.points("agentlab.continuations")
    assert (count.value, dict(count.attributes)) == (4, WHO)
    (attempts,) = to.points("agentlab.continuation.attempts")
    assert (attempts.count, attempts.sum) == (2, 4)
    assert dict(attempts.attributes) == WHO | {"agentlab.continuation.outcome": "completed"}
    (duration,) = to.points("agentlab.continuation.duration")
    assert (duration.count, duration.sum) == (2, 3.0)
    assert to.points("agentlab.truncation_exits") == []
    assert [event.name for event in to.named("invoke_agent")[0].events] == [
        "agentlab.continuation_attempted",
        "agentlab.continuation_attempted",
        "agentlab.continuation_ended",
    ]
    event_attributes = to.named("invoke_agent")[0].events[1].attributes or {}
    left = {name.removeprefix("agentlab."): value for name, value in event_attributes.items() if "remaining" in name}
    assert left == {
        **{"remaining": 1, "tokens_remaining": 40, "chars_remaining": 760, "repairs_remaining": 1, "invocations_remaining": 9},
        **{
            "budget_remaining.turns": 4,
            "budget_remaining.calls": 3,
            "budget_remaining.tokens": 200,
            "budget_remaining.cost_usd": 0.5,
        },
    }


def test_a_cut_without_an_attempt_is_no_continued_step() -> None:
    to = Collected()
    result_with(to, ["done"], [events.ContinuationEnded(0.1, 1, "retry_limit", 0, 0.0)])

    assert (to.points("agentlab.continuation.attempts")[0].count, to.points("agentlab.continuation.attempts")[0].sum) == (
        1,
        0,
    )
    assert to.points("agentlab.continuation.duration") == []


NONE = lab.ContinuationPolicy(max_continuations_per_turn=0, max_tool_repair_attempts=0)
CUT = say("half an answ", finish=FinishReason.MAX_TOKENS)


def test_a_truncated_run_counts_if_no_continuation_was_attempted() -> None:
    to = Collected()
    result = result_with(to, [CUT], continuation=NONE)

    assert result.stop_reason is StopReason.TRUNCATED
    (count,) = to.points("agentlab.truncation_exits")
    assert (count.value, dict(count.attributes)) == (1, WHO | {"agentlab.stop_reason": "truncated"})


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (lab.Budget(max_turns=1), StopReason.TURN_LIMIT),
        (lab.Budget(max_calls=1), StopReason.CALL_LIMIT),
        (lab.Budget(max_tokens=1), StopReason.TOKEN_BUDGET),
        (lab.Budget(max_cost="0.01"), StopReason.COST_BUDGET),
        (lab.Budget(timeout=1e-6), StopReason.TIMEOUT),
    ],
    ids=str,
)
def test_a_budget_limit_is_a_truncation_exit_by_its_reason(budget: lab.Budget, reason: StopReason) -> None:
    to = Collected()
    assert result_with(to, [call("look", cost="0.02"), "done"], budget=budget).stop_reason is reason
    (count,) = to.points("agentlab.truncation_exits")
    assert (count.value, dict(count.attributes)) == (1, WHO | {"agentlab.stop_reason": reason.value})


def test_other_ends_are_no_truncation_exits() -> None:
    to = Collected()
    assert result_with(to, ["done"]).stop_reason is StopReason.COMPLETED
    assert result_with(to, [call("look"), "done"], stop=lab.StepCountIs(1)).stop_reason is StopReason.STOP_CONDITION
    assert to.points("agentlab.truncation_exits") == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_detection_has_a_duration_by_reason(stream: bool) -> None:
    to = Collected()
    agent = lab.Agent("anthropic@2026-10-21:claude-sonnet-4-6", observers=[to.telemetry], stream=stream)
    with lab.replay(f"fixtures/rare/anthropic-2026-10-21{'-stream' * stream}.yaml"):
        result = agent.run("Is the harbour open?").start().wait()
    assert result is not None and result.stop_reason is StopReason.COMPLETED
    (point,) = to.points("agentlab.detection.duration")
    (took,) = lab.frame(result, "calls")["detection_s"]
    assert (point.count, point.sum) == (1, took)
    assert point.attributes["agentlab.finish_reason"] == "end_turn"
    assert point.attributes["gen_ai.request.model"] == "claude-sonnet-4-6"
    assert 0 < took < lab.frame(result, "calls")["duration_s"][0]
    assert list(point.explicit_bounds) == pytest.approx([1e-5 * 4**power for power in range(10)])


def test_a_model_without_http_detects_nothing() -> None:
    to = Collected()
    assert lab.frame(result_with(to, ["done"]), "calls")["detection_s"].isna().all()
    assert to.points("agentlab.detection.duration") == []


@pytest.mark.parametrize(
    ("event", "counted"),
    [
        pytest.param(events.ContinuationAttempted(0.1, 1, 1, 30, 120, 0), 0, id="continued"),
        pytest.param(events.ToolPayloadRepair(0.1, 1, "incomplete", True, False), 0, id="repair tried"),
        pytest.param(events.ToolPayloadRepair(0.1, 1, "incomplete", False, False), 1, id="repair not tried"),
    ],
)
def test_a_truncated_run_counts_only_without_an_attempt(event: events.Event, counted: int) -> None:
    to = Collected()
    result = result_with(to, [CUT], [event], continuation=NONE)

    assert result.stop_reason is StopReason.TRUNCATED
    assert len(to.points("agentlab.truncation_exits")) == counted


def test_a_terminating_tool_after_a_nudge_and_a_repair() -> None:
    to = Collected()
    half = replace(call("look", '{"q": "'), signal=CUT.signal)
    result = result_with(to, ["I think so.", half, call("look")], terminating=["look"])

    assert result.stop_reason is StopReason.TERMINATING_TOOL
    assert [event.name for event in to.one("invoke_agent").events] == ["agentlab.nudged", "agentlab.tool_payload_repair"]
    assert [span.name for span in to.spans] == ["invoke_agent gemini:m1", *["chat m1"] * 3, "execute_tool look"]


def test_other_events_are_on_the_runs_span() -> None:
    to = Collected()
    happening = [
        events.ToolPayloadRepair(0.1, 1, "incomplete", True, False),
        events.Nudged(0.2, 1, 1, 2),
        events.CallRetried(0.3, 1, 1, 0.5, "a reason with words of the provider"),
    ]
    of_all = {"agentlab.run.id": result_with(to, ["done"], happening).run_id, "agentlab.step": 1}

    assert [(event.name, dict(event.attributes or {})) for event in to.one("invoke_agent").events] == [
        (
            "agentlab.tool_payload_repair",
            of_all | {"agentlab.issue": "incomplete", "agentlab.attempted": True, "agentlab.succeeded": False},
        ),
        ("agentlab.nudged", of_all | {"agentlab.consecutive": 1, "agentlab.allowed": 2}),
        ("agentlab.call_retried", of_all | {"agentlab.attempt": 1, "agentlab.wait_s": 0.5}),
    ]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("openai", "openai"),
        ("openai-responses", "openai"),
        ("anthropic", "anthropic"),
        ("gemini@v1", "gcp.gemini"),
        ("azure-responses", "azure.ai.openai"),
        ("bedrock", "aws.bedrock"),
        ("xai", "x_ai"),
        ("openrouter", "openrouter"),
        ("compatible", "compatible"),
    ],
)
def test_providers_have_the_names_of_the_conventions(ours: str, theirs: str) -> None:
    assert names.provider_name(ours) == theirs


# Without the package -------------------------------------------------------------------------------------------------------------

BLOCKED = """
import sys
sys.modules["opentelemetry"] = None
import agentlab as lab
assert lab.Telemetry.__name__ == "Telemetry"
try:
    lab.Telemetry()
except lab.errors.ConfigurationError as error:
    print(error)
"""
UNUSED = """
import sys, agentlab as lab, asyncio
from agentlab.testing import ScriptedProvider
run = lab.Agent(ScriptedProvider(["done"])).run("go")
run.start()
lab.telemetry
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(
            BLOCKED, "Telemetry needs the package opentelemetry-api: pip install 'agentlab-jupyter[telemetry]'.", id="missing"
        ),
        pytest.param(UNUSED, "[]", id="not loaded unless used"),
    ],
)
def test_opentelemetry_is_an_extra(code: str, expected: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == expected
    assert done.stderr == ""
