"""A cut turn is continued, half a tool call is repeated or left alone, and every transition of the table is taken."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model.merge_texts import TEXTS, borders

import agentlab as lab
from agentlab.engine.continuation import FEWEST_TOKENS, ContinuationRequest, FurtherCalls
from agentlab.engine.turn import FINAL, TRANSITIONS, TurnState
from agentlab.errors import LimitError, ProviderConnectionError
from agentlab.limits.policies import FIRST_CAPS, RECOVERY_HINT
from agentlab.limits.reading import Action, Remaining
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Cost
from agentlab.records import events
from agentlab.records.history import RunHistory
from agentlab.records.result import RunResult
from agentlab.records.step import ModelCall, Seam
from agentlab.testing import ScriptedProvider, call, say, usage

F, S = FinishReason, StopReason
FIXTURES = Path(__file__).parents[2] / "fixtures"
TEXT = "The harbour was quiet that morning, and all the small boats were asleep. Nobody came."

looked: list[str] = []


@lab.tool(inline=True)
def look(q: str) -> str:
    """Look something up."""
    looked.append(q)
    return f"found {q}"


@lab.tool(inline=True)
def look_no_more(q: str) -> str:
    """Come to an end."""
    return q


def cut(text: str = "", *calls: ToolCall, tokens: int = 5) -> ModelResponse:
    return say(text, finish=F.MAX_TOKENS, tokens=(10, tokens), calls=calls)


HALF = ToolCall("c1", "look", '{"q": "x')
WHOLE = ToolCall("c2", "look", '{"q": "xyz"}')


def run(script: Any, **more: Any) -> RunResult:
    looked.clear()
    model = more.pop("model", None) or ScriptedProvider(script)
    agent = lab.Agent(
        model, tools=[look, *more.pop("tools", ())], retry=lab.RetryPolicy(attempts=1), observers=more.pop("observers", ())
    )

    async def go() -> RunResult:
        return await agent.run("task", **more)

    return asyncio.run(go())


def events_of(result: RunResult, kind: type[events.Event]) -> list[Any]:
    return [event for event in result.events if isinstance(event, kind)]


def asked_of(script: list[Any], **more: Any) -> tuple[RunResult, list[ModelRequest]]:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest, index: int) -> Any:
        asked.append(request)
        return script[index - 1]

    return run(answer, **more), asked


class Prefilling(ScriptedProvider):
    """A model that continues its own text."""

    prefills = True


# The table -----------------------------------------------------------------------------------------------------------------------


def test_every_state_is_reached_and_every_non_final_state_has_a_successor() -> None:
    assert {state for state, _ in TRANSITIONS} == set(TurnState) - FINAL
    assert set(TRANSITIONS.values()) == set(TurnState)


PATHS: dict[str, tuple[list[Any], dict[str, Any], StopReason, int]] = {
    "complete": (["done"], {}, S.COMPLETED, 1),
    "tools": ([call("look", {"q": "x"}), "done"], {}, S.COMPLETED, 1),
    "abort": ([say("", finish=F.CONTENT_FILTERED)], {}, S.CONTENT_FILTERED, 1),
    "resume": ([say("a", finish=F.PAUSED), "b"], {}, S.COMPLETED, 2),
    "continue-complete": ([cut("a b "), "c"], {}, S.COMPLETED, 2),
    "continue-continue-complete": ([cut("a b "), cut("c d "), "e"], {}, S.COMPLETED, 3),
    "continue-tools": ([cut("a "), say("", finish=F.TOOL_CALLS, calls=[WHOLE]), "done"], {}, S.COMPLETED, 2),
    "continue-at-cap": ([cut("a ")] * 4, {}, S.TRUNCATED, 4),
    "continue-filtered": ([cut("a "), say("b", finish=F.CONTENT_FILTERED)], {}, S.CONTENT_FILTERED, 2),
    "continue-context-window": ([cut("a "), say("b", finish=F.CONTEXT_WINDOW_EXCEEDED)], {}, S.TRUNCATED, 2),
    "continue-no-budget": ([cut("a ")], {"budget": lab.Budget(max_calls=1)}, S.CALL_LIMIT, 1),
    "repair-tools": ([cut("", HALF), say("", finish=F.TOOL_CALLS, calls=[WHOLE]), "done"], {}, S.COMPLETED, 2),
    "repair-at-cap": ([cut("", HALF)] * 2, {}, S.TRUNCATED, 2),
    "repair-then-continue": ([cut("a ", HALF), cut("b "), "c"], {}, S.COMPLETED, 3),
    "repair-no-budget": ([cut("", HALF)], {"budget": lab.Budget(max_calls=1)}, S.CALL_LIMIT, 1),
}


@pytest.mark.parametrize(("script", "more", "stop_reason", "calls"), PATHS.values(), ids=PATHS.keys())
def test_every_path_through_the_table(script: list[Any], more: dict[str, Any], stop_reason: StopReason, calls: int) -> None:
    result = run(script, **more)
    assert (result.stop_reason, len(result.history[0].calls)) == (stop_reason, calls), result


# Continuation --------------------------------------------------------------------------------------------------------------------


def test_a_cut_answer_becomes_one_text_in_one_step() -> None:
    result, asked = asked_of([cut(TEXT[:30]), cut(TEXT[30:60]), TEXT[60:]])
    assert result.history[0].seams == (Seam(2, 30), Seam(3, 60))
    assert (result.stop_reason, result.text, len(result.history)) == (S.COMPLETED, TEXT, 1)
    assert [message.role for message in result.messages] == ["user", "assistant"]
    assert result.messages[-1].text == TEXT
    assert result.usage.output_tokens == 15
    for request in asked[1:]:
        *_, partial, hint = request.messages
        assert (partial.role, hint.role, hint.text) == ("assistant", "system", RECOVERY_HINT)
        assert partial.text in (TEXT[:30], TEXT[:60])
        assert len(request.messages) == 3
    assert [step.text for step in result.history] == [TEXT]
    assert list(result.to_frame()["text"]) == [TEXT]
    assert list(result.to_frame("termination")["action"]) == ["continue_output", "continue_output", "complete"]


@given(position=st.integers(1, len(TEXT) - 1))
@settings(max_examples=40, deadline=None)
def test_the_rest_is_appended_unchanged_at_any_cut(position: int) -> None:
    for model in (None, Prefilling([cut(TEXT[:position]), TEXT[len(TEXT[:position].rstrip()) :]])):
        result = run([cut(TEXT[:position]), TEXT[position:]], model=model)
        assert result.text == TEXT


@pytest.mark.parametrize(
    ("pieces", "text"),
    [(("It costs 5", "50 EUR"), "It costs 550 EUR"), (("1000", "000 EUR"), "1000000 EUR"), (("a,", "b"), "a,b")],
)
def test_no_digit_is_lost_and_no_space_is_added(pieces: tuple[str, str], text: str) -> None:
    result = run([cut(pieces[0]), pieces[1]])
    assert (result.text, result.history[0].seams) == (text, (Seam(2, len(pieces[0])),))


def test_dropped_text_is_in_the_step_the_event_the_frame_and_the_store() -> None:
    store = lab.Store()
    result = run([cut("Yes. " + TEXT[:63]), cut(TEXT[:80]), TEXT[80:]], observers=[store])
    (step,) = result.history
    assert (step.text, step.seams) == ("Yes. " + TEXT, (Seam(2, 68, TEXT[:63]), Seam(3, 85)))
    assert all(step.text[: seam.place].endswith(seam.dropped) for seam in step.seams)
    (end,) = events_of(result, events.ContinuationEnded)
    assert end.seams == step.seams
    assert result.to_frame()[["seams", "dropped_characters"]].to_numpy().tolist() == [[2, 63]]
    assert str(step.seams[0]) == f"Call 2 continues at character 68: dropped 63 repeated characters: {TEXT[:63]!r}"
    stored = store.load(result.run_id)
    assert stored.history[0].seams == step.seams
    before_seams = replace(result, history=RunHistory([replace(step, seams=())]))
    assert before_seams.to_frame()["dropped_characters"].isna().all()
    assert "63 characters dropped" in " ".join(stored.to_frame("events")["detail"].dropna())


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ([say("one ", finish=F.PAUSED), cut("two "), "three"], "one two three"),
        ([cut("one "), say("two ", finish=F.PAUSED), "three"], "one two three"),
        ([cut("one "), say("two ", finish=F.PAUSED), cut("three "), "four"], "one two three four"),
    ],
)
def test_a_turn_may_be_paused_and_cut(script: list[Any], text: str) -> None:
    result = run(script)
    assert (result.stop_reason, result.text, len(result.history)) == (S.COMPLETED, text, 1)
    pieces = text.replace(" ", " |").split("|")
    assert result.history[0].seams == tuple(
        Seam(number + 2, len("".join(pieces[: number + 1]))) for number in range(len(script) - 1)
    )
    assert "".join(message.text for message in result.messages if message.role == "assistant") == text


def test_the_events_of_a_continuation() -> None:
    result = run([cut("a b "), cut("c d "), "e"])
    attempts = events_of(result, events.ContinuationAttempted)
    assert [(one.attempt, one.output_tokens, one.output_chars, one.remaining) for one in attempts] == [
        (1, 5, 4, 2),
        (2, 10, 8, 1),
    ]
    (end,) = events_of(result, events.ContinuationEnded)
    assert (end.outcome, end.attempts, end.duration_s >= 0) == ("completed", 2, True)
    assert events_of(run(["whole"]), events.ContinuationEnded) == []


@pytest.mark.parametrize(
    ("script", "policy", "outcome", "calls", "note"),
    [
        ([cut("a ")] * 9, {}, "retry_limit", 4, "continued 3 times (max_continuations_per_turn)"),
        ([cut("a ")] * 9, {"max_continuations_per_turn": 1}, "retry_limit", 2, "continued 1 time "),
        ([cut("a ")] * 9, {"max_total_completion_tokens_per_turn": 10}, "budget_exhausted", 2, "10 output tokens are used"),
        ([cut("a ")] * 9, {"max_total_completion_tokens_per_turn": 11}, "budget_exhausted", 3, "11 output tokens are used"),
        ([cut("abc ")] * 9, {"max_total_output_chars_per_turn": 8}, "budget_exhausted", 2, "9 characters"),
        ([cut("a "), say("b", finish=F.CONTENT_FILTERED)], {}, "safety_blocked", 2, ""),
    ],
)
def test_at_a_cap_the_partial_text_is_returned_with_a_notice(
    script: list[Any], policy: dict[str, int], outcome: str, calls: int, note: str
) -> None:
    pieces = [
        response if index < 1 else say(f"{index}{response.text}", finish=response.signal.finish_reason)
        for index, response in enumerate(script)
    ]
    result = run(pieces, continuation=lab.ContinuationPolicy(**policy))
    assert result.stop_reason in (S.TRUNCATED, S.CONTENT_FILTERED)
    assert len(result.history[0].calls) == calls
    assert result.text.startswith(script[0].text)
    assert note in result.detail
    (end,) = events_of(result, events.ContinuationEnded)
    assert end.outcome == outcome
    if note:
        assert result.history[0].decision.suggestion == "increase_budget"


@pytest.mark.parametrize(("cap", "left", "calls"), [(100, 15, 1), (100, 16, 2), (8, 7, 1), (8, 8, 2)])
@pytest.mark.parametrize("half", [(), (HALF,)], ids=["text", "tool call"])
def test_with_too_few_tokens_left_no_further_call_is_made(cap: int, left: int, calls: int, half: tuple[ToolCall, ...]) -> None:
    budget = lab.Budget(max_tokens_per_turn=cap, max_tokens=10 + cap + left)
    result, asked = asked_of([cut("a b ", *half, tokens=cap), say("c", tokens=(0, 1))], budget=budget)
    assert [request.max_output_tokens for request in asked] == [cap, left][:calls]
    if calls == 2:
        assert result.stop_reason is S.COMPLETED
        return
    assert result.stop_reason is S.TOKEN_BUDGET
    assert f"max_tokens {10 + cap} of {10 + cap + left}, too few are left" in result.detail
    assert result.detail.count("cut off") == 1
    outcomes = [end.outcome for end in events_of(result, events.ContinuationEnded)]
    assert outcomes == ([] if half else ["budget_exhausted"])


def test_a_condition_that_is_met_takes_precedence_over_too_few_tokens() -> None:
    budget = lab.Budget(max_tokens_per_turn=100, max_tokens=111)
    result = run([cut("a b ", tokens=100)], budget=budget, stop=lab.StepCountIs(1))
    assert result.stop_reason is S.STOP_CONDITION


def test_without_an_output_cap_a_cut_answer_is_continued_while_tokens_are_left() -> None:
    result, asked = asked_of([cut("a b ", tokens=100), "c"], budget=lab.Budget(max_tokens=111))
    assert (result.text, [request.max_output_tokens for request in asked]) == ("a b c", [None, None])


def test_a_share_held_back_for_a_last_answer_lets_a_cut_answer_be_continued() -> None:
    budget = lab.Budget(max_tokens_per_turn=100, max_tokens=200, last_answer=0.44)  # 112 are for work
    result, asked = asked_of([cut("a b ", tokens=100), cut("c ", tokens=16), "The end."], budget=budget)
    assert [request.max_output_tokens for request in asked] == [100, 16, 64]
    assert (result.history[1].last_answer, result.text) == (True, "The end.")


def test_few_tokens_of_the_step_are_not_used_for_a_further_call() -> None:
    budget = lab.Budget(max_tokens_per_turn=333)
    policy = lab.ContinuationPolicy(max_total_completion_tokens_per_turn=1000)
    result = run([cut(f"{number} ", tokens=333) for number in range(4)], budget=budget, continuation=policy)
    assert len(result.history[0].calls) == 3
    assert "the step's 1000 output tokens are used but for 1 (max_total_completion_tokens_per_turn)" in result.detail


@pytest.mark.parametrize(("left", "calls"), [(7, 1), (8, 2)])
def test_a_recorded_answer_that_was_cut_is_continued_if_its_cap_is_left(left: int, calls: int) -> None:
    """The recording has a cap of 8; its first call used 155 tokens."""
    agent = lab.Agent(lab.Provider("compatible", model="gemma-3-270m", base_url="http://127.0.0.1:8091/v1"), stream=False)
    budget = lab.Budget(max_tokens_per_turn=8, max_tokens=155 + left)

    async def go() -> RunResult:
        with lab.replay(FIXTURES / "local" / "continued-text" / "chat.yaml", match="order"):
            return await agent.run("Name the months of the year.", budget=budget)

    result = asyncio.run(go())
    assert (result.stop_reason, len(result.history[0].calls)) == (S.TOKEN_BUDGET, calls)


def test_the_default_maximum_is_four_times_the_first_cap() -> None:
    budget = lab.Budget(max_tokens_per_turn=5)
    result, asked = asked_of([cut(f"{number} ") for number in range(9)], budget=budget, continuation=lab.ContinuationPolicy(9))
    assert result.history[0].usage.output_tokens == FIRST_CAPS * 5
    assert [request.max_output_tokens for request in asked] == [5] * 4
    assert "20 output tokens" in result.detail


def test_continuations_can_be_disabled() -> None:
    for nothing in (lab.ContinuationPolicy(max_continuations_per_turn=0), 0, False):
        result = run([cut("a b")], continuation=nothing)
        assert (result.stop_reason, result.text) == (S.TRUNCATED, "a b")
        assert result.history[0].decision.action is Action.ABORT
        (end,) = events_of(result, events.ContinuationEnded)
        assert (end.outcome, end.attempts, end.duration_s, end.seams) == ("retry_limit", 0, 0.0, ())


def test_an_attempt_reports_what_remains_of_every_cap() -> None:
    policy = lab.ContinuationPolicy(2, max_total_completion_tokens_per_turn=100, max_total_output_chars_per_turn=50)
    budget = lab.Budget(max_turns=4, max_calls=7, max_tokens=1000, max_cost=1, timeout=60)
    pieces = [say(text, finish=F.MAX_TOKENS, tokens=(10, 5), cost="0.1") for text in ("abcd", "efgh")]
    ending = lab.TerminatingTools(["look_no_more"], max_invocations=9)
    script = [call("look", {"q": "x"}, cost="0.1"), *pieces, say("ij", cost="0.1"), call("look_no_more", {"q": "x"}, cost="0.1")]
    result = run(script, continuation=policy, budget=budget, terminating=ending, tools=[look_no_more])
    first, second = events_of(result, events.ContinuationAttempted)
    for one, attempts, tokens, chars, calls in ((first, 1, 95, 46, 4), (second, 0, 90, 42, 3)):
        assert (one.remaining, one.tokens_remaining, one.chars_remaining, one.repairs_remaining) == (attempts, tokens, chars, 1)
        assert one.invocations_remaining == calls + 2
        left = one.budget_remaining
        assert (left.turns, left.calls) == (2, calls)
        assert 0 < left.time_s < 60
    assert (first.budget_remaining.tokens, first.budget_remaining.cost_usd) == (1000 - 30, Decimal("0.8"))
    nothing = events_of(run([cut("a"), "b"], budget=lab.Budget(max_turns=5)), events.ContinuationAttempted)[0]
    assert (nothing.budget_remaining, nothing.invocations_remaining) == (Remaining(turns=4), None)


REFUSED = ProviderConnectionError("the provider is away")
ENDS: dict[str, tuple[list[Any], dict[str, Any], S, str, list[tuple[str, int]], list[tuple[bool, bool]]]] = {
    "no-continuation": ([cut("a")], {"continuation": lab.ContinuationPolicy(0)}, S.TRUNCATED, "", [("retry_limit", 0)], []),
    "tokens": ([cut("a")], {"continuation": lab.ContinuationPolicy(max_total_completion_tokens_per_turn=5)}, S.TRUNCATED, "",
               [("budget_exhausted", 0)], []),
    "characters": ([cut("a")], {"continuation": lab.ContinuationPolicy(max_total_output_chars_per_turn=1)}, S.TRUNCATED, "",
                   [("budget_exhausted", 0)], []),
    "calls": ([cut("a")], {"budget": lab.Budget(max_calls=1)}, S.CALL_LIMIT, "max_calls 1 of 1.", [("budget_exhausted", 0)], []),
    "calls-later": ([cut("a")] * 2, {"budget": lab.Budget(max_calls=2)}, S.CALL_LIMIT, "", [("budget_exhausted", 1)], []),
    "all-tokens": ([cut("a")], {"budget": lab.Budget(max_tokens=15)}, S.TOKEN_BUDGET, "", [("budget_exhausted", 0)], []),
    "condition": ([cut("a")], {"budget": lab.Budget(max_calls=1), "stop": lab.StepCountIs(1)}, S.STOP_CONDITION, "StepCountIs",
                  [("budget_exhausted", 0)], []),
    "policy": ([cut("a")], {"policy": lambda *_: lab.Decision(Action.ABORT, "No")}, S.ERROR, "No. The", [("retry_limit", 0)], []),
    "policy-accepts-it": ([cut("a")], {"policy": lambda *_: lab.Decision(Action.COMPLETE, "Taken")}, S.COMPLETED, "Taken", [], []),
    "error": ([cut("a"), REFUSED], {}, S.ERROR, "the provider is away. The answer", [("error", 1)], []),
    "error-in-the-body": ([cut("a"), say("b", finish=F.ERROR)], {}, S.ERROR, "", [("error", 1)], []),
    "cancelled-by-the-provider": ([cut("a"), say("b", finish=F.CANCELLED)], {}, S.CANCELLED, "", [("cancelled", 1)], []),
    "paused-without-budget": ([cut("a"), say("b", finish=F.PAUSED)], {"budget": lab.Budget(max_calls=2)}, S.CALL_LIMIT, "",
                              [("budget_exhausted", 1)], []),
    "filtered": ([cut("a"), say("", finish=F.CONTENT_FILTERED)], {}, S.CONTENT_FILTERED, "", [("safety_blocked", 1)], []),
    "window": ([say("a", finish=F.CONTEXT_WINDOW_EXCEEDED)], {}, S.TRUNCATED, "", [("context_window_exceeded", 0)], []),
    "window-later": ([cut("a"), say("b", finish=F.CONTEXT_WINDOW_EXCEEDED)], {}, S.TRUNCATED, "",
                     [("context_window_exceeded", 1)], []),
    "no-repair": ([cut("", HALF)], {"continuation": lab.ContinuationPolicy(max_tool_repair_attempts=0)}, S.TRUNCATED, "", [],
                  [(False, False)]),
    "no-call-to-repair": ([cut("", HALF)], {"budget": lab.Budget(max_calls=1)}, S.CALL_LIMIT, "", [], [(False, False)]),
    "policy-refuses-repair": ([cut("", HALF)], {"policy": lambda *_: lab.Decision(Action.ABORT, "No.")}, S.ERROR, "No. A tool call", [],
                           [(False, False)]),
    "repair-fails": ([cut("", HALF), REFUSED], {}, S.ERROR, "is away. A tool call", [], [(True, False)]),
    "repair-cut-again": ([cut("", HALF)] * 2, {}, S.TRUNCATED, "", [], [(True, False)]),
}  # fmt: skip


@pytest.mark.parametrize(("script", "more", "reason", "detail", "ends", "repairs"), ENDS.values(), ids=ENDS.keys())
def test_every_end_of_a_cut_answer_is_an_event_and_in_the_detail(
    script: list[Any], more: dict[str, Any], reason: S, detail: str, ends: list[tuple[str, int]], repairs: list[tuple[bool, bool]]
) -> None:
    result = run(script, **more)
    assert result.stop_reason is reason
    assert detail in result.detail
    assert result.detail.count("cut off") == (result.stop_reason is not S.COMPLETED)  # a policy may accept it as it is
    assert [(end.outcome, end.attempts) for end in events_of(result, events.ContinuationEnded)] == ends
    assert [(one.attempted, one.succeeded) for one in events_of(result, events.ToolPayloadRepair)] == repairs
    assert looked == []


class Hanging:
    """A model whose second call never returns."""

    name, model = "hanging", "1"

    def __init__(self) -> None:
        self.asked, self.hangs = 0, asyncio.Event()

    async def respond(self, request: ModelRequest, context: Any) -> ModelResponse:
        self.asked += 1
        if self.asked > 1:
            self.hangs.set()
            await asyncio.Event().wait()
        return cut("a")


@pytest.mark.parametrize("budget", [lab.Budget(max_turns=5), lab.Budget(timeout=60)], ids=["no timeout", "timeout"])
def test_a_cancel_during_a_continuation_is_no_budget(budget: lab.Budget) -> None:
    async def go() -> RunResult:
        model = Hanging()
        going = lab.Agent(model).run("task", budget=budget)
        task = asyncio.ensure_future(going.step())
        await model.hangs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await going

    result = asyncio.run(go())
    assert result.stop_reason is S.CANCELLED
    assert [(end.outcome, end.attempts) for end in events_of(result, events.ContinuationEnded)] == [("cancelled", 1)]


def test_a_stop_by_a_middleware_cancels_the_continuation() -> None:
    async def once(request: ModelRequest, call_next: Any) -> ModelResponse:
        if any(message.role == "assistant" for message in request.messages):
            raise lab.StopRequested("enough")
        return await call_next(request)

    async def go() -> RunResult:
        return await lab.Agent(ScriptedProvider([cut("a")]), middleware=[once]).run("task")

    result = asyncio.run(go())
    assert (result.stop_reason, result.text) == (S.EXPLICIT_STOP, "a")
    assert [(end.outcome, end.attempts) for end in events_of(result, events.ContinuationEnded)] == [("cancelled", 1)]


def test_the_runs_timeout_ends_a_continuation_for_budget() -> None:
    result = run([], model=Hanging(), budget=lab.Budget(timeout=0.3))
    assert (result.stop_reason, result.detail) == (
        S.TIMEOUT,
        "Budget reached: timeout 0.3 s. The answer was cut off and is incomplete.",
    )
    (end,) = events_of(result, events.ContinuationEnded)
    assert (end.outcome, end.attempts) == ("budget_exhausted", 1)


def test_a_whole_answer_has_neither_notice_nor_event() -> None:
    for script in (["whole"], [call("look", {"q": "x"}), "whole"], [cut("", WHOLE), "whole"], [call("look", "5"), "whole"]):
        result = run(script)
        assert (result.stop_reason, result.detail) == (S.COMPLETED, "The model ended its turn.")
        assert [*events_of(result, events.ContinuationEnded), *events_of(result, events.ToolPayloadRepair)] == []


def test_the_caps_can_be_changed_during_the_turn() -> None:
    def answer(request: ModelRequest, index: int) -> ModelResponse:
        if index == 2:
            going.limits.max_continuations_per_turn = 5
        return cut(f"{index} ", tokens=50 if index == 1 else 5) if index < 6 else say("end")

    agent = lab.Agent(ScriptedProvider(answer))
    going = agent.run("task")

    async def go() -> RunResult:
        return await going

    result = asyncio.run(go())
    assert (result.stop_reason, len(result.history[0].calls)) == (S.COMPLETED, 6)
    with pytest.raises(LimitError, match="at least 0"):
        going.limits.max_continuations_per_turn = -1
    assert going.limits.continuation.max_continuations_per_turn == 5


def test_a_failed_continuation_call_loses_nothing() -> None:
    result = run([cut("paid for "), ProviderConnectionError("gone")])
    assert (result.stop_reason, result.text, result.history[0].usage.output_tokens) == (S.ERROR, "paid for ", None)
    assert result.messages[-1].text == "paid for "
    assert events_of(result, events.ContinuationEnded)[0].outcome == "error"


def test_later_steps_see_a_continued_turn_as_one_message() -> None:
    script = [cut("Let me "), say("look.", finish=F.TOOL_CALLS, calls=[WHOLE]), "done"]
    result, asked = asked_of(script)
    assert [message.role for message in asked[2].messages] == ["user", "assistant", "tool"]
    assert asked[2].messages[1].text == "Let me look."
    assert looked == ["xyz"]
    assert result.history.tool_count("look") == 1


def test_a_provider_with_prefill_continues_its_own_text() -> None:
    asked: list[ModelRequest] = []
    pieces = [cut("The ball "), "ball is round."]

    def answer(request: ModelRequest, index: int) -> Any:
        asked.append(request)
        return pieces[index - 1]

    result = run(None, model=Prefilling(answer))
    assert result.text == "The ballball is round."  # exactly what was received: nothing is treated as a repetition
    assert result.history[0].seams == (Seam(2, 8, " "),)  # the space was not sent, so the model continued without it
    assert [(message.role, message.text) for message in asked[1].messages][1:] == [("assistant", "The ball")]


def test_a_prefill_is_dropped_if_the_server_certainly_repeats_it() -> None:
    start = "The ball of the small boy is "
    result = run(None, model=Prefilling([cut(start), f"{start}round."]))
    assert (result.text, result.history[0].seams) == (f"{start}round.", (Seam(2, 28, f" {start.rstrip()}"),))
    assert run(None, model=Prefilling([cut("The ball "), "The ball is round."])).text == "The ballThe ball is round."
    part = run(None, model=Prefilling([cut(f"Yes. {start}"), f"{start}round."]))
    assert part.text == f"Yes. {start.rstrip()}{start}round."


PERIODIC = {
    "ha": "ha " * 60,
    "matrix": "0,1," * 60,
    "zeros": "0" * 200,
    "line": "one two three four\n" * 20,
    "tight": "one two three four" * 20,
}


@pytest.mark.parametrize("text", (TEXTS | PERIODIC).values(), ids=(TEXTS | PERIODIC).keys())
def test_an_echoed_prefill_is_recognized_by_its_tokens(text: str) -> None:
    """llama.cpp's server puts the prefill before the model's text and counts only the tokens of the latter."""
    text *= 2
    ends = [0, *borders(text), len(text)]
    for number, cut_at in enumerate(ends[1:-1], 1):
        if not (given := text[:cut_at].rstrip()):
            continue
        going_on = ContinuationRequest(cut(text[:cut_at]), (), exact=True, tokens=number)
        for more in {1, number // 2, number} & set(range(1, len(ends) - number)):
            rest = text[len(given) : ends[number + more]]
            whole = given + rest
            assert going_on.merge(say(rest, tokens=(1, more)), 2)[0].text == whole
            if number >= FEWEST_TOKENS and rest:
                merged, seam = going_on.merge(say(whole, tokens=(1, more)), 2)
                assert (merged.text, seam) == (whole, Seam(2, len(given), text[len(given) : cut_at] + given))


@pytest.mark.parametrize(
    "aside", [{"tool_calls": (HALF,)}, {"usage": replace(usage(5, 30), reasoning_tokens=9)}, {"usage": usage(5, None)}]
)
def test_tokens_other_than_text_show_no_echo(aside: dict[str, Any]) -> None:
    first = replace(cut("ha ha", tokens=30), **aside)
    calls = [ModelCall(1, first, first.usage, Cost(), 0.0, 0.1)]
    going_on = FurtherCalls(lab.ContinuationPolicy()).request(first, Action.CONTINUE_OUTPUT, calls, prefills=True)
    assert (going_on.exact, going_on.tokens) == (True, None)
    assert going_on.merge(say("ha ha ha", tokens=(10, 8)), 2)[0].text == "ha haha ha ha"


def test_an_echo_with_no_further_text_adds_nothing() -> None:
    going_on = ContinuationRequest(cut("January, February, March, April,"), (), exact=True, tokens=8)
    merged, _ = going_on.merge(say("January, February, March, April,", tokens=(10, 1)), 2)
    assert merged.text == "January, February, March, April,"


def test_a_reasoning_model_is_not_prefilled() -> None:
    asked: list[ModelRequest] = []
    pieces = [replace(cut("The ball "), reasoning="A ball, then."), "is round."]

    def answer(request: ModelRequest, index: int) -> Any:
        asked.append(request)
        return pieces[index - 1]

    assert run(None, model=Prefilling(answer)).text == "The ball is round."
    assert [message.role for message in asked[1].messages] == ["user", "assistant", "system"]


@pytest.mark.parametrize(
    ("model", "prefills"),
    [
        ("claude-3-5-haiku-20241022", True),
        ("claude-sonnet-4-20250514", True),
        ("claude-sonnet-4-5", True),
        ("claude-opus-4-1-20250805", True),
        ("claude-sonnet-4-6", False),
        ("claude-opus-5", False),
        ("other", False),
    ],
)
def test_which_anthropic_models_can_be_prefilled(model: str, prefills: bool) -> None:
    assert lab.Agent(f"anthropic:{model}").model.prefills is prefills  # type: ignore[attr-defined]


# Half tool calls -----------------------------------------------------------------------------------------------------------------

ARGUMENTS = json.dumps({"q": 'a "quoted" thing, and ünïcode'})


@pytest.mark.parametrize("finish", [F.MAX_TOKENS, F.TOOL_CALLS, F.UNKNOWN])
def test_arguments_cut_at_any_character_are_never_executed(finish: FinishReason) -> None:
    for end in range(1, len(ARGUMENTS)):
        half = say("", finish=finish, calls=[ToolCall("c", "look", ARGUMENTS[:end])])
        result = run([half, half])
        assert (end, result.stop_reason, looked) == (end, S.TRUNCATED, [])
        assert "was not executed" in result.detail
        assert [(one.issue, one.attempted, one.succeeded) for one in events_of(result, events.ToolPayloadRepair)] == [
            ("incomplete", True, False)
        ]
        assert all(not message.tool_calls for message in result.messages)


def test_a_call_repeated_in_full_is_executed_once() -> None:
    result, asked = asked_of([cut("I look. ", HALF), say("", finish=F.TOOL_CALLS, calls=[WHOLE]), "done"])
    assert (result.stop_reason, looked) == (S.COMPLETED, ["xyz"])
    assert [(one.attempted, one.succeeded) for one in events_of(result, events.ToolPayloadRepair)] == [(True, True)]
    assert [message.role for message in asked[1].messages] == ["user", "assistant", "system"]
    assert result.messages[1].text == "I look. "


def test_the_suggested_cap_is_that_of_the_first_call_doubled() -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        return say(f"piece {index} ", finish=FinishReason.MAX_TOKENS, tokens=(10, int(request.max_output_tokens * 0.95)))

    async def ended(run: lab.Run) -> RunResult:
        return await run

    run = lab.Agent(ScriptedProvider(script)).run("?", budget=lab.Budget(max_tokens_per_turn=100))
    for cap in (200, 400, 800):
        asyncio.run(ended(run))
        assert f"the output cap to {cap}" in run.next_actions[0].label
        run = run.apply()


def test_the_repair_has_a_larger_cap_than_the_first_call() -> None:
    _, asked = asked_of(
        [cut("", HALF), say("", finish=F.TOOL_CALLS, calls=[WHOLE]), "done"], budget=lab.Budget(max_tokens_per_turn=5)
    )
    assert [request.max_output_tokens for request in asked] == [5, 15, 5]


def test_whole_calls_beside_a_half_one_are_kept_and_executed_once() -> None:
    first = ToolCall("c1", "look", '{"q": "one"}')
    again = say("", finish=F.TOOL_CALLS, calls=[ToolCall("c1", "look", '{"q": "one"}'), ToolCall("c1", "look", '{"q": "two"}')])
    result = run([cut("", first, ToolCall("c2", "look", '{"q": "tw')), again, "done"])
    assert (result.stop_reason, looked) == (S.COMPLETED, ["one", "two"])
    ids = [call.id for call in result.history[0].tool_calls]
    assert len(set(ids)) == 2


def test_a_call_requested_several_times_is_executed_as_often() -> None:
    one = ToolCall("c1", "look", '{"q": "one"}')
    half = ToolCall("c3", "look", '{"q": "on')
    result = run([cut("", one, replace(one, id="c2"), half), say("", finish=F.TOOL_CALLS, calls=[one] * 3), "done"])
    assert (result.stop_reason, looked) == (S.COMPLETED, ["one"] * 3)


def test_repairs_can_be_disabled() -> None:
    result = run([cut("", HALF)], continuation=lab.ContinuationPolicy(max_tool_repair_attempts=0))
    assert (result.stop_reason, len(result.history[0].calls), looked) == (S.TRUNCATED, 1, [])


def test_a_malformed_call_is_requested_again() -> None:
    bad = say("", finish=F.ERROR)
    bad = replace(bad, signal=replace(bad.signal, repairable=True, raw_value="MALFORMED_FUNCTION_CALL"))
    result = run([bad, say("", finish=F.TOOL_CALLS, calls=[WHOLE]), "done"])
    assert (result.stop_reason, looked) == (S.COMPLETED, ["xyz"])
    twice = run([bad, bad])
    assert (twice.stop_reason, len(twice.history[0].calls)) == (S.ERROR, 2)
    assert [one.issue for one in events_of(twice, events.ToolPayloadRepair)] == ["malformed"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_continuations_per_turn": -1},
        {"max_total_output_chars_per_turn": 0},
        {"max_tool_repair_attempts": 1.5},
        {"hint": " "},
    ],
)
def test_invalid_caps_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(LimitError, match=next(iter(wrong))):
        lab.ContinuationPolicy(**wrong)


def test_a_recording_that_was_cut_and_never_continued_replays_unchanged() -> None:
    async def go() -> RunResult:
        with lab.replay("fixtures/essay"):
            run = lab.Agent("anthropic:claude-sonnet-4-6").run(
                "Why are night trains coming back? Write a short essay.", budget=lab.Budget(max_tokens_per_turn=80)
            )
        return await run

    result = asyncio.run(go())
    assert (result.stop_reason, len(result.history), len(result.history[0].calls)) == (S.TRUNCATED, 1, 1)
    assert result.text
    assert result.usage.output_tokens == 80
    assert "the recording has no continuation" in result.detail
    assert events_of(result, events.ContinuationEnded)[0].outcome == "retry_limit"
