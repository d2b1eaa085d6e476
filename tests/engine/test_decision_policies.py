"""Decisions: replaceable policies, suggestions, and the termination report."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import agentlab as lab
from agentlab.engine.termination import DecisionContext, cautious, decide, lenient, standard
from agentlab.errors import ConfigurationError, ProviderStatusError
from agentlab.limits.reading import Action, Decision
from agentlab.model.finish_reasons import Confidence, FinishReason, StopReason, TerminationSignal
from agentlab.model.messages import ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.records.result import FOR_STOP_REASON, RunResult
from agentlab.testing import ScriptedProvider, call, say

F, HIGH, LOW = FinishReason, Confidence.HIGH, Confidence.LOW


def signal(reason: FinishReason, confidence: Confidence = HIGH, **more: Any) -> TerminationSignal:
    return TerminationSignal(reason, confidence, "scripted", **more)


def look(q: str) -> str:
    """Look something up."""
    return f"found {q}"


def run(script: list[Any], **settings: Any) -> RunResult:
    async def go() -> RunResult:
        retry = lab.RetryPolicy(attempts=1)
        return await lab.Agent(ScriptedProvider(script), tools=[look], retry=retry, continuation=None).run("task", **settings)

    return asyncio.run(go())


async def finished(going: lab.Run) -> RunResult:
    return await going


# An unknown end -----------------------------------------------------------------------------------------------------------------

UNEXPLAINED = [
    pytest.param(F.UNKNOWN, None, "The provider gave no finish reason", id="no reason"),
    pytest.param(F.UNKNOWN, "OTHER", "The provider's finish reason 'OTHER' is unknown", id="an unknown reason"),
    pytest.param(F.TOOL_CALLS, "tool_calls", "The finish reason announces tool calls, but the response has none", id="no call"),
]


@pytest.mark.parametrize(("reason", "word", "why"), UNEXPLAINED)
def test_text_with_an_unknown_end_completes_with_a_note(reason: F, word: str | None, why: str) -> None:
    answer = replace(say("Paris."), signal=signal(reason, LOW, raw_value=word))
    result = run([answer])
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "Paris.")
    assert result.detail == f"{why}; the text is accepted as the answer."
    assert result.history[0].decision.metadata == {"end": "unknown", "confidence": "low"}
    assert lab.termination_report(result)["reason"].to_list() == [result.detail]
    for shown in (repr(result), result._repr_mimebundle_()["text/html"]):
        assert "is accepted as the answer" in shown
        assert "ended its turn" not in shown
    assert run([answer], policy=cautious).stop_reason is StopReason.ERROR
    assert "ended its turn" not in decide(answer.signal, DecisionContext(response=answer)).reason


def test_an_unknown_end_is_not_reported_as_finished() -> None:
    answer = replace(say("Paris."), signal=signal(F.UNKNOWN, LOW))
    one = lab.Agent(ScriptedProvider([answer])).run("task")
    one.start()
    one.wait()
    assert "is accepted as the answer" in one.panel().bundle()["text/html"]
    with pytest.raises(ConfigurationError, match="the text is accepted as the answer: add a message"):
        asyncio.run(go_on(one))


async def go_on(one: lab.Run) -> RunResult:
    return await one.apply()


# A signal alone ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "action", "stop_reason", "suggestion"),
    [
        (F.END_TURN, Action.COMPLETE, StopReason.COMPLETED, "stop"),
        (F.STOP_SEQUENCE, Action.COMPLETE, StopReason.COMPLETED, "stop"),
        (F.TOOL_CALLS, Action.EXECUTE_TOOLS, None, None),
        (F.MAX_TOKENS, Action.ABORT, StopReason.TRUNCATED, "increase_budget"),
        (F.CONTEXT_WINDOW_EXCEEDED, Action.ABORT, StopReason.TRUNCATED, "modify_prompt"),
        (F.CONTENT_FILTERED, Action.ABORT, StopReason.CONTENT_FILTERED, "modify_prompt"),
        (F.PAUSED, Action.RESUME, None, None),
        (F.CANCELLED, Action.ABORT, StopReason.CANCELLED, "retry"),
        (F.ERROR, Action.ABORT, StopReason.ERROR, "retry"),
        (F.UNKNOWN, Action.ABORT, StopReason.ERROR, "retry"),
    ],
)
def test_decide_accepts_a_signal_alone(reason: F, action: Action, stop_reason: StopReason | None, suggestion: str | None) -> None:
    decision = decide(signal(reason))
    assert (decision.action, decision.stop_reason, decision.suggestion) == (action, stop_reason, suggestion)
    assert decision.reason


@pytest.mark.parametrize(
    ("more", "suggestion"),
    [
        ({"raw_value": "overloaded_error"}, "retry"),
        ({"raw_value": "rate_limit_error"}, "retry"),
        ({"raw_value": "RESOURCE_EXHAUSTED"}, "retry"),
        ({"raw_value": "ThrottlingException"}, "retry"),
        ({"raw_value": 502}, "retry"),
        ({"raw_value": "MALFORMED_FUNCTION_CALL", "repairable": True}, "retry"),
        ({"raw_value": "invalid_request_error"}, "modify_prompt"),
        ({"raw_value": "INVALID_ARGUMENT"}, "modify_prompt"),
        ({"raw_value": "context_length_exceeded"}, "modify_prompt"),
        ({"raw_value": "content_filter"}, "modify_prompt"),
        ({"raw_value": 400}, "modify_prompt"),
        ({"raw_value": "400"}, "modify_prompt"),
        ({"raw_value": None, "metadata": {"status": 413}}, "modify_prompt"),
        ({"raw_value": "insufficient_quota"}, "stop"),
        ({"raw_value": "PERMISSION_DENIED"}, "stop"),
        ({"raw_value": 401}, "stop"),
        ({"raw_value": "??", "metadata": {"status": 404}}, "stop"),
    ],
)
def test_the_suggestion_for_an_error_depends_on_its_kind(more: dict[str, Any], suggestion: str) -> None:
    assert decide(signal(F.ERROR, **more)).suggestion == suggestion


def test_a_larger_cap_is_suggested_in_tokens() -> None:
    cut = say("text", finish=F.MAX_TOKENS, tokens=(10, 80))
    assert decide(cut.signal, DecisionContext(cut, requested_cap=80)).metadata == {"max_tokens_per_turn": 160}
    assert decide(cut.signal, DecisionContext(cut)).metadata == {"max_tokens_per_turn": 160}
    assert decide(cut.signal).metadata == {}


def test_every_stop_reason_has_a_suggestion() -> None:
    assert set(FOR_STOP_REASON) == set(StopReason)
    assert set(FOR_STOP_REASON.values()) == {"retry", "modify_prompt", "increase_budget", "stop"}


# Policies ------------------------------------------------------------------------------------------------------------------------


def test_a_policy_is_a_function_and_can_be_set_per_run() -> None:
    def keep_what_is_there(signal: TerminationSignal, context: DecisionContext) -> Decision:
        decision = standard(signal, context)
        if decision.stop_reason is StopReason.TRUNCATED and context.response is not None and context.response.text:
            return Decision(Action.COMPLETE, "Good enough.", metadata={"characters": len(context.response.text)})
        return decision

    cut = say("half an ans", finish=F.MAX_TOKENS)
    assert run([cut]).stop_reason is StopReason.TRUNCATED
    result = run([cut], policy=keep_what_is_there)
    assert (result.stop_reason, result.detail, result.text) == (StopReason.COMPLETED, "Good enough.", "half an ans")
    assert result.history[0].decision.metadata == {"characters": 11}
    assert result.history[0].settings.policy is keep_what_is_there


def test_an_agent_has_a_default_policy_and_a_fork_keeps_or_changes_it() -> None:
    cut = say("half", finish=F.MAX_TOKENS)
    agent = lab.Agent(ScriptedProvider([call("look", {"q": "x"}), cut]), tools=[look], policy=lenient, continuation=None)

    async def go() -> list[RunResult]:
        first = agent.run("task")
        await first.step()
        return [
            await first,
            await first.fork(at=1),
            await first.fork(at=1, policy=standard),
            await agent.run("task", policy=standard),
        ]

    found = [result.stop_reason for result in asyncio.run(go())]
    assert found == [StopReason.COMPLETED, StopReason.COMPLETED, StopReason.TRUNCATED, StopReason.TRUNCATED]


def test_a_policy_can_be_changed_during_the_run() -> None:
    agent = lab.Agent(ScriptedProvider([call("look", {"q": "x"}), say("half", finish=F.MAX_TOKENS)]), tools=[look])

    async def go() -> RunResult:
        going = agent.run("task")
        await going.step()
        going.limits.policy = lenient
        assert going.limits.policy is lenient
        return await going

    result = asyncio.run(go())
    assert result.stop_reason is StopReason.COMPLETED
    assert any(type(event).__name__ == "LimitsChanged" for event in result.events)


def test_a_policy_sees_the_run() -> None:
    seen: list[DecisionContext] = []

    def watch(signal: TerminationSignal, context: DecisionContext) -> Decision:
        seen.append(context)
        return standard(signal, context)

    run([call("look", {"q": "x"}), "done"], policy=watch, budget=lab.Budget(max_tokens_per_turn=50))
    assert [(context.step, context.call, context.requested_cap) for context in seen] == [(1, 1, 50), (2, 1, 50)]
    assert seen[0].response is not None and seen[0].response.tool_calls
    assert seen[1].settings is not None and seen[1].settings.budget.max_tokens_per_turn == 50


def test_cautious_neither_completes_nor_executes_an_uncertain_response() -> None:
    unsure = replace(say("text"), signal=signal(F.END_TURN, LOW, message="Half a word."))
    assert run([unsure]).stop_reason is StopReason.COMPLETED
    result = run([unsure], policy=cautious)
    assert result.stop_reason is StopReason.ERROR
    assert "Half a word." in result.detail
    asked = replace(call("look", {"q": "x"}), signal=signal(F.TOOL_CALLS, LOW))
    assert run([asked, "done"], policy=cautious).history[0].tool_results == ()
    assert run(["sure"], policy=cautious).stop_reason is StopReason.COMPLETED


def test_lenient_accepts_the_existing_text_and_nothing_more() -> None:
    assert run([say("some", finish=F.CONTENT_FILTERED)], policy=lenient).stop_reason is StopReason.COMPLETED
    assert run([say("", finish=F.CONTENT_FILTERED)], policy=lenient).stop_reason is StopReason.CONTENT_FILTERED
    half = say("some", finish=F.MAX_TOKENS, calls=[ToolCall("1", "look", '{"q": ')])
    assert run([half], policy=lenient).stop_reason is StopReason.TRUNCATED


# What a policy may not do ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "half",
    [ToolCall("1", "look", '{"q": '), ToolCall("1", "look", '{"q": "x"}', closed=False)],
    ids=["cut-json", "open-block"],
)
def test_no_policy_can_execute_half_a_call(half: ToolCall) -> None:
    result = run(
        [say("", finish=F.TOOL_CALLS, calls=[half])],
        policy=lambda signal, context: Decision(Action.EXECUTE_TOOLS, "Go on."),
    )
    assert (result.stop_reason, result.history[0].tool_results) == (StopReason.TRUNCATED, ())
    assert "was not executed, although the policy" in result.detail


class WithoutRepr:
    def __repr__(self) -> str:
        raise ValueError("no repr")


WRONG = {
    "no-decision": (lambda signal, context: "complete", "returned 'complete'"),
    "nothing": (lambda signal, context: None, "returned None"),
    "a-class": (lambda signal, context: Decision, "returned <class"),
    "no-repr": (lambda signal, context: WithoutRepr(), "return a Decision"),
    "no-action": (lambda signal, context: Decision("finish", "…"), "a policy may return"),  # type: ignore[arg-type]
    "a-list": (lambda signal, context: Decision([], "…"), "a policy may return"),  # type: ignore[arg-type]
    "no-reason": (lambda signal, context: Decision(Action.ABORT, None), "pass text"),  # type: ignore[arg-type]
    "no-stop-reason": (lambda signal, context: Decision(Action.ABORT, "…", "weird"), "use one of"),  # type: ignore[arg-type]
    "no-suggestion": (lambda signal, context: Decision(Action.ABORT, "…", None, 5), "suggestion is"),  # type: ignore[arg-type]
    "no-metadata": (lambda signal, context: Decision(Action.ABORT, "…", metadata=5), "a mapping"),  # type: ignore[arg-type]
    "an-action-of-others": (lambda signal, context: Decision(Action.NUDGE, "…"), "a policy may return"),
    "goes-on-and-ends": (
        lambda signal, context: Decision(Action.RESUME, "…", StopReason.COMPLETED),
        "omit stop_reason",
    ),
    "executes-nothing": (lambda signal, context: Decision(Action.EXECUTE_TOOLS, "…"), "has no tool call"),
}


@pytest.mark.parametrize(("policy", "explanation"), WRONG.values(), ids=WRONG.keys())
def test_an_impossible_decision_is_reported_and_nothing_is_lost(policy: Any, explanation: str) -> None:
    agent = lab.Agent(ScriptedProvider(["paid for"]))

    result = asyncio.run(finished(agent.run("task", policy=policy)))
    assert isinstance(result.error, ConfigurationError)
    assert explanation in result.detail
    assert result.detail == str(result.error)
    assert (result.stop_reason, result.text, result.usage.total_tokens) == (StopReason.ERROR, "paid for", 15)
    assert result.messages[-1].text == "paid for"
    assert result.to_frame()["stop_reason"].to_list() == ["error"]


def test_a_policy_may_return_words() -> None:
    done = run(["paid for"], policy=lambda signal, context: Decision("complete", "Fine.", "completed"))  # type: ignore[arg-type]
    assert done.history[0].decision == Decision(Action.COMPLETE, "Fine.", StopReason.COMPLETED)


def broken(signal: TerminationSignal, context: DecisionContext) -> Decision:
    raise ZeroDivisionError("oh")


async def broken_later(signal: TerminationSignal, context: DecisionContext) -> Decision:
    await asyncio.sleep(0)
    raise ZeroDivisionError("oh")


@pytest.mark.parametrize("policy", [broken, broken_later])
def test_a_raising_policy_is_an_error_result_that_names_it(policy: Any) -> None:
    result = run(["paid for"], policy=policy)
    assert (result.stop_reason, result.detail) == (StopReason.ERROR, f"The policy {policy.__name__} raised ZeroDivisionError: oh")
    assert isinstance(result.error, ZeroDivisionError)
    assert isinstance(result.history[0].error, ZeroDivisionError)
    assert (result.text, result.usage.total_tokens) == ("paid for", 15)
    assert result.messages[-1].text == "paid for"


async def waits(signal: TerminationSignal, context: DecisionContext) -> Decision:
    await asyncio.sleep(0)
    return lenient(signal, context)


def hands_on(signal: TerminationSignal, context: DecisionContext) -> Any:
    return waits(signal, context)


@pytest.mark.parametrize("policy", [waits, hands_on])
def test_a_policy_may_be_async(policy: Any) -> None:
    result = run([call("look", {"q": "x"}), say("half", finish=F.MAX_TOKENS)], policy=policy)
    assert (result.stop_reason, len(result.history)) == (StopReason.COMPLETED, 2)


def test_the_answer_of_an_async_policy_is_checked() -> None:
    async def nothing(signal: TerminationSignal, context: DecisionContext) -> None: ...

    result = run(["x"], policy=nothing)
    assert result.stop_reason is StopReason.ERROR
    assert result.detail.startswith("The policy nothing returned None")


@pytest.mark.parametrize("policy", [waits, hands_on])
def test_decide_refuses_an_async_policy_with_a_message(policy: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"{policy.__name__} is async, .*: write `await {policy.__name__}\(signal, context\)`"
    ):
        decide(signal(F.END_TURN), policy=policy)


@pytest.mark.usefixtures("fake_time")
def test_the_runs_time_limit_bounds_an_async_policy() -> None:
    async def forever(signal: TerminationSignal, context: DecisionContext) -> Decision:
        await asyncio.sleep(3600)
        return standard(signal, context)

    result = run(["paid for"], policy=forever, budget=lab.Budget(timeout=5))
    assert (result.stop_reason, result.text) == (StopReason.TIMEOUT, "paid for")


@pytest.mark.parametrize("wrong", ["standard", 7, Decision(Action.COMPLETE, "…")])
def test_an_invalid_policy_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="pass a function"):
        lab.Agent(ScriptedProvider([]), policy=wrong)
    going = lab.Agent(ScriptedProvider([])).run("task")
    with pytest.raises(ConfigurationError, match="pass a function"):
        going.limits.policy = wrong
    assert going.limits.policy is None


# The report --------------------------------------------------------------------------------------------------------------------


def paused(text: str) -> ModelResponse:
    return say(text, finish=F.PAUSED)


def test_the_report_has_one_row_per_response() -> None:
    results = [
        run([call("look", {"q": "x"}), "done"]),
        run([paused("wait"), say("half", finish=F.MAX_TOKENS)]),
        run([call("look", {"q": "x"})] * 3, budget=lab.Budget(max_turns=2)),
        run([ProviderStatusError("no", status=401)]),
    ]
    report = lab.termination_report(results)
    shown = [
        tuple(None if pd.isna(value) else value for value in row)
        for row in report[["step", "call", "finish_reason", "action", "stop_reason", "suggestion"]].itertuples(index=False)
    ]
    assert shown == [
        (1, 1, "tool_calls", "execute_tools", None, None),
        (2, 2, "end_turn", "complete", "completed", "stop"),
        (1, 1, "paused", "resume", None, None),
        (1, 2, "max_tokens", "abort", "truncated", "increase_budget"),
        (1, 1, "tool_calls", "execute_tools", None, None),
        (2, 2, "tool_calls", "execute_tools", "turn_limit", "increase_budget"),
        (1, None, None, "abort", "error", "stop"),
    ]
    assert list(report["should_terminate"])[:3] == [False, True, False]
    assert report["reason"].notna().all()
    assert all(pd.api.types.is_extension_array_dtype(kind) for kind in report.dtypes)


def test_the_summary_counts_each_kind_of_end() -> None:
    results = [run([call("look", {"q": "x"}), "done"]) for _ in range(3)] + [run([say("half", finish=F.MAX_TOKENS)])]
    summary = lab.termination_report(results, summary=True)
    assert list(summary["responses"]) == [3, 3, 1]
    assert list(summary["finish_reason"]) == ["tool_calls", "end_turn", "max_tokens"]
    assert list(results[0].to_frame("termination")["action"]) == ["execute_tools", "complete"]
    assert lab.termination_report([]).empty and lab.termination_report([], summary=True).empty


# The signal itself ---------------------------------------------------------------------------------------------------------------


def test_a_signal_accepts_strings() -> None:
    taken = TerminationSignal("end_turn", "high", raw_value=7)  # type: ignore[arg-type]
    assert (taken.finish_reason, taken.confidence) == (F.END_TURN, HIGH)


@pytest.mark.parametrize(
    ("fields", "explanation"),
    [
        ({"finish_reason": "done", "confidence": HIGH}, "end_turn, stop_sequence"),
        ({"finish_reason": None, "confidence": HIGH}, "finish_reason=None"),
        ({"finish_reason": F.END_TURN, "confidence": 0.9}, "high, medium, low"),
    ],
)
def test_a_signal_with_an_unknown_string_is_refused(fields: dict[str, Any], explanation: str) -> None:
    with pytest.raises(ConfigurationError, match=explanation):
        TerminationSignal(**fields)


def test_metadata_is_short_json_without_keys() -> None:
    key = "sk-" + "proj-abcDEF0123456789"
    deep: Any = "x"
    for _ in range(50):
        deep = {"in": deep}
    found = TerminationSignal(
        F.ERROR,
        HIGH,
        raw_value=f"bad {key}",
        message=f"Incorrect API key provided: {key}.",
        metadata={
            "said": f"key {key}",
            key: 1,
            "api_key": "short",
            "nan": float("nan"),
            "when": object,
            "deep": deep,
            "long": "y" * 10_000,
            "many": list(range(10_000)),
            "fine": {"a": [1, 2.5, None, True]},
        },
    )
    assert key not in repr(found)
    assert "short" not in repr(found)
    assert len(repr(found)) < 4_000
    assert found.metadata["fine"] == {"a": [1, 2.5, None, True]}
    assert found.metadata["nan"] is None


def test_a_result_can_be_pickled() -> None:
    import pickle

    result = run([call("look", {"q": "x"}), "done"])
    assert pickle.loads(pickle.dumps(result.history[0].calls[0])).response.signal == result.history[0].signal


def test_an_error_is_pickled_with_its_message() -> None:
    import pickle

    refused = lab.errors.ProviderStatusError("no", status=429, retry_after_s=2, code="quota")
    result = run([refused])
    with pytest.raises(lab.errors.RunFailed) as stopped:
        result.raise_for_stop()
    for error in (refused, result.error, stopped.value.result.error, pickle.loads(pickle.dumps(stopped.value)).result.error):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is lab.errors.ProviderStatusError
        assert (str(copy), copy.status, copy.retry_after_s, copy.code) == ("no", 429, 2, "quota")
    kept = lab.errors.StoredError("KeyError", "gone")
    assert pickle.loads(pickle.dumps(kept)) == kept
    missing = pickle.loads(pickle.dumps(lab.errors.FixtureNotFoundError("there is none")))
    assert str(missing) == "there is none"
    assert isinstance(missing, FileNotFoundError)
