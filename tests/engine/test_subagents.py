"""Agents as tools of other agents: their limits, the answers to their callers, and that no usage is counted twice or lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.comparisons import assert_kept

import agentlab as lab
from agentlab import Budget, StepCountIs, StopReason, errors
from agentlab.model.messages import Message, ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.records.events import ChildEnded, ChildStarted
from agentlab.testing import ScriptedProvider, call, say

from .builders import Slow, agent, assert_is_whole, execute, go, look, looping, names, until


def worker(script: Any, **more: Any) -> lab.Agent:
    return agent(script, name="worker", **more)


def boss(tool: lab.Tool, *steps: Any, **more: Any) -> lab.Agent:
    """An agent that calls the tool with each of these arguments, one per step, then says `done`. A tuple is several calls in
    one step."""

    def script(request: ModelRequest, index: int) -> ModelResponse:
        if index > len(steps):
            return say("done", tokens=(20, 10), cost="0.02")
        asked = steps[index - 1] if isinstance(steps[index - 1], tuple) else (steps[index - 1],)
        calls = [ToolCall(f"c{index}.{place}", tool.name, json.dumps(one)) for place, one in enumerate(asked)]
        return say(finish=lab.FinishReason.TOOL_CALLS, tokens=(20, 10), cost="0.02", calls=calls)

    return lab.Agent(ScriptedProvider(script), tools=[tool], **more)


def done(run: lab.Run) -> lab.RunResult:
    async def main() -> lab.RunResult:
        return await run

    return go(main())


def tool_answers(run: lab.Run | lab.RunResult) -> list[str]:
    """The answers of the tools, in order."""
    return [result.content for step in run.history for result in step.tool_results]


ANSWER = [call("look", {"q": "x"}, tokens=(10, 5), cost="0.01"), say("It is blue.", tokens=(20, 5), cost="0.01")]


# The answer -------------------------------------------------------------------------------------------------------------------


def test_the_caller_gets_the_answer_and_the_remaining_budget() -> None:
    tool = worker(ANSWER).as_tool("research", "Looks things up.", budget=Budget(max_turns=5, max_tokens=100))
    run = boss(tool, {"task": "What colour?"}).run("go", budget=Budget(max_tokens=1000, max_cost=1))
    result = done(run)

    assert result.stop_reason is StopReason.COMPLETED
    assert tool_answers(run) == [
        "It is blue.\n\n[research-1 came to its end. Used: 2 steps, 40 tokens. Left of its budget: 3 turns, 60 tokens, $0.96. "
        'Left of yours: 930 tokens, $0.96. To ask it more: continue_run="research-1".]'
    ]
    child = run.children[0]
    assert child.prompt == "What colour?"
    assert (child.origin.caller, child.origin.parent, child.origin.parent_run_id) == (run, None, run.id)
    assert (child.origin.parent_step, child.origin.called_by, child.origin.forked_at) == (1, "c1.0", None)
    assert child.result is not None
    assert (child.result.parent_run_id, child.result.parent_step, child.result.called_by) == (run.id, 1, "c1.0")
    assert_is_whole(run)
    assert_is_whole(child)


def test_the_answer_keeps_its_white_space() -> None:
    run = done(boss(worker(["    return x\n"]).as_tool("worker"), {"task": "Write the line."}).run("go"))
    assert tool_answers(run)[0].startswith("    return x\n\n\n[worker-1")


def test_the_output_of_a_terminating_tool_is_the_answer() -> None:
    script = [call("finalize", {"answer": "42"})]
    run = boss(worker(script).as_tool("ask", terminating=["finalize"]), {"task": "?"}).run("go")
    done(run)
    assert tool_answers(run)[0].startswith("42\n\n[ask-1 came to its end.")
    assert run.children[0].result is not None
    assert run.children[0].result.stop_reason is StopReason.TERMINATING_TOOL


CUT: dict[str, tuple[dict[str, Any], str]] = {
    "turns": ({"budget": Budget(max_turns=2)}, "turn_limit"),
    "calls": ({"budget": Budget(max_calls=2)}, "call_limit"),
    "tokens": ({"budget": Budget(max_tokens=30)}, "token_budget"),
    "cost": ({"budget": Budget(max_cost=0.02)}, "cost_budget"),
    "stop": ({"stop": StepCountIs(2)}, "stop_condition"),
}


@pytest.mark.parametrize(("more", "reason"), CUT.values(), ids=CUT.keys())
def test_a_truncated_sub_agent_says_so_and_can_be_continued(more: dict[str, Any], reason: str) -> None:
    tool = looping(name="worker").as_tool("research", **more)
    run = boss(tool, {"task": "find it"}, {"continue_run": "research-1", "raise_budget": 1}).run("go")
    result = done(run)

    assert result.stop_reason is StopReason.COMPLETED
    first, second = tool_answers(run)
    assert first.startswith(f"(It gave no answer.)\n\n[research-1 was cut off ({reason}). Used: 2 steps, 30 tokens.")
    assert 'To let it go on: continue_run="research-1"' in first
    assert f"[research-2 was cut off ({reason}). Used: 2 steps, 30 tokens." in second
    one, two = run.children
    assert (len(one.history), len(two.history)) == (2, 4)
    assert (two.origin.parent, two.origin.caller, two.origin.forked_at, two.origin.parent_step) == (one, run, 2, 2)
    assert two.origin.parent_run_id == one.id
    assert result.history.tokens == 3 * 30 + 4 * 15


def test_the_caller_can_ask_about_the_answer() -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        return say(f"{request.messages[-1].text}!")

    tool = worker(script).as_tool("ask")
    run = boss(tool, {"task": "one"}, {"task": "two", "continue_run": "ask-1"}, {"continue_run": "ask-2"}).run("go")
    done(run)
    first, second, third = tool_answers(run)
    assert first.startswith("one!")
    assert second.startswith("two!")
    assert "It came to its end: say in task what to ask it more" in third
    assert [message.text for message in run.children[1].messages] == ["one", "one!", "two", "two!"]
    assert len(run.children) == 2


def test_the_answer_to_an_earlier_task_is_not_given_for_a_task_that_was_cut_off() -> None:
    script = ["Graz.", call("look", {"q": "x"})]
    run = boss(
        worker(script).as_tool("ask", budget=Budget(max_turns=1)), {"task": "a"}, {"task": "b", "continue_run": "ask-1"}
    ).run("go")
    done(run)
    first, second = tool_answers(run)
    assert first.startswith("Graz.\n\n[ask-1 came to its end.")
    assert second.startswith("(It gave no answer.)\n\n[ask-2 was cut off (turn_limit).")


def test_a_sub_agent_continues_with_a_fresh_context() -> None:
    asked: list[ModelRequest] = []

    def script(request: ModelRequest, index: int) -> ModelResponse:
        asked.append(request)
        if "Sum up" in request.instructions:
            return say("Searched x, saw nothing.", tokens=(50, 10))
        if "summed up" in request.messages[0].text:
            return say("Found.", tokens=(5, 5))
        return call("look", {"q": "x"}, tokens=(10, 5))

    tool = worker(script).as_tool("research", budget=Budget(max_turns=2, max_tokens=40))
    run = boss(tool, {"task": "find it"}, {"continue_run": "research-1", "fresh_context": True}).run("go")
    result = done(run)

    assert tool_answers(run)[1].startswith(
        "Found.\n\n[research-2 came to its end. Used: 1 step, 10 tokens. Left of its budget: 1 turn, 30"
    )
    one, summary, two = run.children
    assert "called look" in asked[2].messages[0].text
    assert asked[2].max_output_tokens == 500
    assert not asked[2].tools
    assert two.prompt == (
        "find it\n\nYou have worked on this before. What came of it, summed up:\nSearched x, saw nothing.\n\nGo on from there."
    )
    assert (two.origin.parent, two.origin.forked_at, summary.origin.parent, summary.origin.caller) == (one, 0, None, run)
    assert [use.handle for step in result.history for use in step.children] == ["research-1", "research-1-summary", "research-2"]
    assert result.history.tokens == 3 * 30 + 30 + 60 + 10


def test_a_failed_summary_is_reported() -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        return say("") if "Sum up" in request.instructions else call("look")

    tool = worker(script).as_tool("research", budget=Budget(max_turns=1))
    run = boss(tool, {"task": "x"}, {"continue_run": "research-1", "fresh_context": True}, {"continue_run": "research-1"}).run(
        "go"
    )
    done(run)
    assert "could not be summed up" in tool_answers(run)[1]
    assert "research-2 was cut off" in tool_answers(run)[2]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no-task": ({}, "There is no task"),
    "unknown-run": ({"continue_run": "research-7"}, "There is no run 'research-7' to go on from. There is: none."),
    "times": ({"task": "x", "raise_budget": 11}, "raise_budget: Input should be less than or equal to 10"),
    "other-name": ({"task": "x", "budget": 5}, "budget: Extra inputs are not permitted"),
}


@pytest.mark.parametrize(("arguments", "error_text"), WRONG.values(), ids=WRONG.keys())
def test_a_models_mistake_is_answered_with_advice(arguments: dict[str, Any], error_text: str) -> None:
    run = boss(worker(ANSWER).as_tool("research"), arguments).run("go")
    done(run)
    assert error_text in tool_answers(run)[0]
    assert run.history[0].tool_results[0].is_error
    assert run.children == ()


@pytest.mark.parametrize(
    ("make", "error", "error_text"),
    [
        (lambda: worker(ANSWER).as_tool("re search"), errors.ToolDefinitionError, "'re search' cannot be a tool's name"),
        (lambda: worker(ANSWER).as_tool("ask", budget=5), errors.LimitError, "budget=5: pass a Budget"),
        (lambda: worker(ANSWER).as_tool("ask", stop=5), errors.ConfigurationError, "5 is not a stop condition"),
        (lambda: worker(ANSWER).as_tool("ask", terminating=["end"]), errors.ToolDefinitionError, "not have the terminating tool 'end'"),
    ],
    ids=["name", "budget", "stop", "terminating"],
)  # fmt: skip
def test_a_users_mistake_is_an_error_at_once(make: Callable[[], Any], error: type[Exception], error_text: str) -> None:
    with pytest.raises(error, match=error_text):
        make()


def test_a_failing_sub_agent_is_a_tool_error_and_can_be_retried() -> None:
    def script(request: ModelRequest, index: int) -> Any:
        seen.append(index)
        return errors.ProviderConnectionError("the line is dead") if len(seen) == 2 else ANSWER[index - 1]

    seen: list[int] = []
    tool = worker(script).as_tool("research")
    run = boss(tool, {"task": "x"}, {"continue_run": "research-1"}).run("go")
    result = done(run)
    first, second = tool_answers(run)
    assert "the line is dead" in first
    assert "[research-1 was cut off (error). Used: 2 steps, unknown tokens." in first
    assert run.history[0].tool_results[0].is_error
    assert second.startswith("It is blue.")
    assert result.history.tokens is None  # the failed call may have incurred a cost
    assert result.history.known_tokens == 3 * 30 + 15 + 25


def test_outside_a_run_a_sub_agent_uses_its_own_budget() -> None:
    tool = worker(ANSWER).as_tool("research")
    content = go(execute(ToolCall("c", "research", '{"task": "x"}'), {"research": tool})).content
    assert content == "It is blue.\n\n[research-1 came to its end. Used: 2 steps, 40 tokens. Left of its budget: 18 turns.]"


# The budget -------------------------------------------------------------------------------------------------------------------


def test_usage_counts_in_the_caller_exactly_once() -> None:
    tool = worker(ANSWER).as_tool("research")
    run = boss(tool, ({"task": "a"}, {"task": "b"}), {"task": "c"}).run("go", budget=Budget(max_tokens=10_000, max_calls=50))
    result = done(run)

    assert result.history.tokens == result.usage.total_tokens == 3 * 30 + 3 * 40
    assert result.history.own_usage.total_tokens == 90
    assert (result.history.calls, result.history.own_calls) == (9, 3)
    assert result.cost.usd == Decimal("0.12")
    steps = run.to_frame()
    assert steps["child_tokens"].to_list() == [80, 40, 0]
    assert steps["child_calls"].to_list() == [4, 2, 0]
    assert steps["child_cost_usd"].to_list() == pytest.approx([0.04, 0.02, 0])
    assert steps["cumulative_tokens"].to_list() == [110, 180, 210]
    assert steps["remaining_tokens"].to_list() == [9890, 9820, 9790]
    assert steps["remaining_calls"].to_list() == [45, 42, 41]
    runs = lab.frame([run, *run.children], "runs")
    assert runs["total_tokens"].to_list() == [90, 40, 40, 40]
    assert runs["total_tokens"].sum() == result.history.tokens
    assert runs["calls"].sum() == result.history.calls
    assert runs["cost_usd"].sum() == pytest.approx(0.12)
    assert runs["child_tokens"].to_list() == [120, 0, 0, 0]
    assert runs["parent_run_id"].to_list()[1:] == [run.id] * 3
    assert runs["parent_step"].to_list()[1:] == [1, 1, 2]
    assert runs["called_by"].to_list()[1:] == ["c1.0", "c1.1", "c2.0"]
    started = [event for event in run.events if isinstance(event, ChildStarted)]
    ended = [event for event in run.events if isinstance(event, ChildEnded)]
    assert (
        [event.child_id for event in started] == [child.id for child in run.children] == [event.child.run_id for event in ended]
    )
    assert [event.child.handle for event in ended] == ["research-1", "research-2", "research-3"]
    assert run.to_frame("events")["event"].value_counts()["ChildEnded"] == 3


def test_a_sub_agent_is_limited_to_the_callers_remaining_budget() -> None:
    tool = looping(name="worker").as_tool("research", budget=Budget(max_turns=None, max_tokens=10_000))
    run = boss(tool, {"task": "x"}).run("go", budget=Budget(max_tokens=100, max_cost=5, max_calls=40))
    result = done(run)

    child = run.children[0]
    assert (child.limits.max_tokens, child.limits.max_cost, child.limits.max_calls) == (70, Decimal("4.98"), 39)
    assert child.result is not None
    assert child.result.stop_reason is StopReason.TOKEN_BUDGET
    assert child.history.tokens == 75
    assert result.stop_reason is StopReason.TOKEN_BUDGET
    assert result.history.tokens == 105
    assert "Left of yours: 38 calls" not in tool_answers(run)[0]
    assert "Left of yours: 34 calls, 0 tokens, $4.93" in tool_answers(run)[0]


def test_without_a_remaining_budget_no_sub_agent_starts() -> None:
    tool = looping(name="worker").as_tool("research", budget=Budget(max_turns=1))
    run = boss(tool, ({"task": "a"}, {"task": "b"})).run("go", budget=Budget(max_tokens=40))
    done(run)
    assert len(run.children) == 1
    assert "Not started: your own budget has nothing left." in tool_answers(run)[1]


def test_unknown_usage_of_a_sub_agent_stays_unknown() -> None:
    tool = worker([say("a", tokens=(None, None))]).as_tool("research")
    run = boss(tool, {"task": "a"}).run("go")
    result = done(run)
    assert result.history.tokens is None
    assert result.history.known_tokens == 60
    assert run.to_frame()["child_tokens"].isna().to_list() == [True, False]
    assert lab.frame(run, "runs")["total_tokens"].to_list() == [60]
    assert lab.frame(run, "runs")["child_tokens"].isna().all()


def test_limits_can_be_edited_on_both_sides_during_the_run() -> None:
    async def main() -> None:
        tool = lab.Agent(Slow(lambda request, index: call("look"), 0.005), tools=[look]).as_tool("research")
        run = boss(tool, {"task": "x"}).run("go", budget=Budget(max_tokens=10_000))
        task = asyncio.ensure_future(run.step())
        await until(lambda: run.children and len(run.children[0].history) >= 2)
        child = run.children[0]
        child.limits.max_turns = None
        child.limits.max_tokens = 1_000_000  # more than the caller has
        run.limits.max_tokens = 300
        await task
        assert child.result is not None
        assert child.result.stop_reason is StopReason.TOKEN_BUDGET
        assert child.history.tokens == 270
        assert child.to_frame()["max_tokens"].to_list()[-1] == 270
        assert run.history.tokens == 300

    go(main())


def test_a_stopped_sub_agent_lets_the_caller_continue() -> None:
    async def main() -> None:
        tool = lab.Agent(Slow(lambda request, index: call("look"), 0.01), tools=[look]).as_tool("research")
        run = boss(tool, {"task": "x"}, {"task": "y"}).run("go")
        task = asyncio.ensure_future(_ended(run))
        await until(lambda: run.children and run.children[0].history)
        run.children[0].stop("enough")
        await until(lambda: len(run.children) == 2 and run.children[1].history)
        run.children[1].cancel()
        result = await task
        assert result.stop_reason is StopReason.COMPLETED
        assert "research-1 was cut off (explicit_stop)" in tool_answers(run)[0]
        assert "research-2 was cut off (cancelled)" in tool_answers(run)[1]
        for one in (run, *run.children):
            assert_is_whole(one)

    go(main())


async def _ended(run: lab.Run) -> lab.RunResult:
    return await run


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize("how", ["cancel", "timeout", "paused"])
def test_a_sub_agent_cut_short_with_its_caller_loses_nothing(how: str) -> None:
    async def main() -> None:
        inner = lab.Agent(Slow(lambda request, index: call("look"), 0.01), tools=[look], name="inner").as_tool("dig")
        middle = lab.Agent(ScriptedProvider(lambda request, index: call("dig", {"task": "x"})), tools=[inner]).as_tool("ask")
        run = boss(middle, {"task": "x"}).run("go", budget=Budget(timeout=0.15) if how == "timeout" else None)
        task = asyncio.ensure_future(_ended(run))
        await until(lambda: run.children and run.children[0].children and len(run.children[0].children[0].history) >= 2)
        child = run.children[0]
        grandchild = child.children[0]
        if how == "paused":
            grandchild.pause()
            steps = len(grandchild.history)
            await asyncio.sleep(0.05)
            assert len(grandchild.history) <= steps + 1
        if how != "timeout":
            run.cancel()
        result = await task
        assert result.stop_reason is (StopReason.TIMEOUT if how == "timeout" else StopReason.CANCELLED)
        for one in (run, child, grandchild):
            assert_is_whole(one)
        spent = sum(len(step.calls) * 15 for step in grandchild.history) + 15 + 30
        assert result.history.known_tokens == spent
        assert (result.history.tokens is None) is (grandchild.history.tokens is None)
        assert result.history[0].children[0].run_id == child.id
        assert child.history[0].children[0].run_id == grandchild.id

    go(main())


@pytest.mark.usefixtures("fake_time")
def test_the_time_of_the_caller_stands_while_a_sub_agent_is_paused() -> None:
    async def main() -> None:
        inner = lab.Agent(Slow(lambda request, index: call("look") if index < 4 else say("Found."), 0.01), tools=[look])
        run = boss(inner.as_tool("dig"), {"task": "x"}).run("go", budget=Budget(timeout=1.0))
        task = asyncio.ensure_future(_ended(run))
        await until(lambda: run.children and len(run.children[0].history) >= 1)
        run.children[0].pause()
        await asyncio.sleep(3)
        run.children[0].resume()
        result = await task
        assert result.stop_reason is StopReason.COMPLETED
        assert result.history.elapsed_s < 1

    go(main())


budgets = st.builds(
    Budget,
    max_turns=st.integers(2, 6),
    max_calls=st.none() | st.integers(1, 40),
    max_tokens=st.none() | st.integers(1, 1500),
    max_cost=st.none() | st.integers(1, 200).map(lambda cents: Decimal(cents) / 100),
)
LARGEST_CALL_TOKENS, LARGEST_CALL_USD = 60, Decimal("0.09")


@st.composite
def scripts(draw: st.DrawFn, tool: str | None) -> Callable[[ModelRequest, int], ModelResponse]:
    """Endless answers, each with tokens and a price; with a `tool` some of them call it, also twice, or continue it."""
    random = Random(draw(st.integers(0, 2**32)))  # hypothesis draws 0 too often for a long script

    def answer(request: ModelRequest, index: int) -> ModelResponse:
        tokens, cost = (random.randint(0, 40), random.randint(0, 20)), f"0.0{random.randint(0, 9)}"
        kind = random.random()
        if "Sum up" in request.instructions or kind < 0.1:
            return say("end", tokens=tokens, cost=cost)
        if tool is None or kind < 0.2:
            return call("look", {"q": "x"}, tokens=tokens, cost=cost)
        asked: list[dict[str, Any]] = [
            {"task": "x"},
            {"task": "x", "continue_run": f"{tool}-{random.randint(1, 3)}", "raise_budget": random.randint(0, 3)},
            {"continue_run": f"{tool}-1", "fresh_context": True},
        ]
        some = [random.choice(asked) for _ in range(random.randint(1, 3))]
        calls = [ToolCall(f"{index}.{place}", tool, json.dumps(one)) for place, one in enumerate(some)]
        return say(finish=lab.FinishReason.TOOL_CALLS, tokens=tokens, cost=cost, calls=calls)

    return answer


@given(scripts("middle"), scripts("inner"), scripts(None), budgets, budgets, budgets)
@settings(max_examples=150, deadline=None)
def test_sub_agents_together_exceed_the_budget_by_at_most_one_call(
    outer: Any, middle: Any, inner: Any, one: Budget, two: Budget, three: Budget
) -> None:
    innermost = agent(inner, name="c").as_tool("inner", budget=three)
    between = agent(middle, tools=[look, innermost], name="b").as_tool("middle", budget=two)
    run = agent(outer, tools=[look, between], name="a").run("go", budget=one)
    result = done(run)

    family = _all_below(run)
    own_steps = [step for each in family for step in each.history[each.origin.forked_at or 0 :]]
    tokens = sum(call.usage.known_tokens for step in own_steps for call in step.calls)
    cost = sum((call.cost.usd or 0 for step in own_steps for call in step.calls), Decimal(0))
    assert result.history.tokens == tokens
    assert result.history.cost_usd == cost
    assert result.history.calls == sum(len(step.calls) for step in own_steps)
    if one.max_calls is not None:
        assert result.history.calls <= one.max_calls
    if one.max_tokens is not None:
        assert tokens < one.max_tokens + LARGEST_CALL_TOKENS
    if one.max_cost is not None:
        assert cost < one.max_cost + LARGEST_CALL_USD
    for each in family:
        assert each.result is not None
        assert_is_whole(each)
        assert len(each.history) - (each.origin.forked_at or 0) <= (one.max_turns or 0)


def _all_below(run: lab.Run) -> list[lab.Run]:
    found, waiting = [], [run]
    while waiting:
        found.append(waiting.pop())
        waiting += found[-1].children
    return found


def test_sub_agents_replay_from_a_recording() -> None:
    from tests.fixtures.refresh import perform
    from tests.fixtures.scenarios import ALL

    fixture = next(one for one in ALL if one.id == "scout/openai")
    heard: list[Any] = []
    agent = fixture.agent()
    agent.observers = (heard.append,)
    with lab.replay(fixture.recordings):
        run = agent.run(fixture.scenario.prompt, budget=fixture.scenario.takes[0].budget)
    result = done(run)
    assert "Take IC 41 at 07:30" in result.text
    assert [each.result and each.result.stop_reason for each in run.children] == ["completed", "turn_limit", "completed"]
    assert run.children[2].origin.parent is run.children[1]
    assert result.history.tokens == 3573 == go(perform(fixture, lab.replay(fixture.recordings)))[0].history.tokens
    runs = lab.frame([run, *run.children], "runs")
    assert runs["total_tokens"].sum() - 556 == result.history.tokens  # the branch has the two steps of the run it continues
    assert sum(isinstance(event, lab.events.RunEnded) for event in heard) == 4


# Branches, observers, the store -----------------------------------------------------------------------------------------------


def test_a_branch_of_the_caller_has_the_sub_agents_of_its_kept_steps() -> None:
    tool = looping(name="worker").as_tool("research", budget=Budget(max_turns=1))
    run = boss(tool, {"task": "x"}, {"continue_run": "research-1"}).run("go")
    done(run)
    branch = run.fork(1)
    assert branch.history.tokens == 45
    done(branch)
    assert "research-2 was cut off" in tool_answers(branch)[1]
    assert branch.children[0].origin.parent is run.children[0]
    assert run.children[0].branches == (run.children[1], branch.children[0])


def test_observers_are_inherited_once() -> None:
    heard: list[str] = []

    def observer(event: Any) -> None:
        heard.append(type(event).__name__)

    tool = worker(ANSWER, observers=[observer]).as_tool("research")
    run = boss(tool, {"task": "x"}, observers=[observer]).run("go")
    done(run)
    assert heard.count("RunStarted") == heard.count("RunEnded") == 2
    assert heard.count("StepCompleted") == 4


def test_the_store_keeps_sub_agents(tmp_path: Path) -> None:
    with lab.Store(tmp_path / "runs.db") as store:
        inner = worker(ANSWER).as_tool("dig", budget=Budget(max_turns=1))
        middle = boss(inner, {"task": "x"}, {"continue_run": "dig-1"}).as_tool("ask")
        run = boss(middle, {"task": "y"}, observers=[store]).run("go")
        done(run)
        family = _all_below(run)
        assert len(family) == 4
        assert set(store.run_ids()) == {each.id for each in family}
        for each in family:
            assert each.result is not None
            assert_kept(store, each.result)
        assert store.frame("runs")["total_tokens"].sum() - 15 == run.history.tokens  # 15 are in the branch as in its parent
        tree = lab.plots.tree_data([store.load(run_id) for run_id in store.run_ids()])
        assert tree.drop(columns="lane").equals(lab.plots.tree_data(run).drop(columns="lane"))
        loaded = store.load(run.id)
        assert loaded.history.tokens == run.history.tokens
        assert [type(event) for event in loaded.events] == [type(event) for event in run.events]


def ran(path: Path, how: str = "go on", deep: int = 0, budget: int = 10_000) -> list[str]:
    """Begin the run, or resume the one in the store: what is known of it then, if it is resumed, and at its end."""

    @lab.tool(inline=True)
    def look(q: str = "") -> str:
        if how == "die" and q == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        return q

    child = lab.Agent(
        ScriptedProvider([call("look", {"q": "1"}), call("look", {"q": "2"}), say("found")]), tools=[look], name="child"
    )
    tool = child.as_tool("research")
    for _ in range(deep):
        tool = lab.Agent(ScriptedProvider([call("research", {"task": "x"}), say("found")]), tools=[tool]).as_tool("research")
    script = [call("research", {"task": "x"}, cost="0.01"), say("done", cost="0.01")]
    with lab.Store(path) as store:
        agent = lab.Agent(ScriptedProvider(script), tools=[tool], observers=[store])
        ids, known = store.run_ids(), []
        run = store.resume(ids[0], agent) if ids else agent.run("go", budget=Budget(max_tokens=budget))
        if ids:
            known.append(f"{run.history.tokens} {run.history.calls} {run.history.own_usage.total_tokens}")
        if how == "tight":
            run.limits.max_tokens = 15
        result = done(run)
        used = f"{result.usage.total_tokens} {run.history.own_usage.total_tokens} {run.history.calls}"
        return [*known, f"{result.stop_reason} {used}"]


def killed(path: Path, *, deep: int = 0, budget: int = 10_000) -> None:
    """A process that is killed when the sub-agent `deep`, below the first one, looks for the second time."""
    process = os.fork()
    if not process:
        try:
            ran(path, "die", deep, budget)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def test_after_a_kill_the_step_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    killed(path)
    with lab.Store(path) as store:
        frame = store.frame("runs")
        assert frame["state"].to_list() == ["interrupted", "interrupted"]
        assert frame["steps"].to_list() == [0, 1]
        assert frame["parent_run_id"].to_list()[1] == frame["run_id"].to_list()[0]
        assert frame["parent_step"].to_list()[1] == 1
        assert frame["child_tokens"].to_list() == [15, 0]  # the step of the second look was not finished
        assert store.load(frame["run_id"][0]).history.tokens == 15
    assert ran(path) == ["15 1 0", "completed 90 30 6"]
    with lab.Store(path) as store:
        assert store.frame("runs")["state"].to_list() == ["ended", "interrupted", "ended"]


@pytest.mark.parametrize(("deep", "kills"), [(2, 1), (1, 3)])
def test_usage_of_sub_agents_before_a_kill_counts_once(deep: int, kills: int, tmp_path: Path) -> None:
    """In the budget, the run's sums, its frames, the reloaded run and the telemetry, and so does the usage of their own sub-agents."""
    path = tmp_path / "runs.db"
    for _ in range(kills):
        killed(path, deep=deep)
    lost, whole = 15 * kills, 30 + 30 * deep + 45
    first_output, last_output = ran(path, deep=deep)
    assert first_output == f"{lost} {kills} 0"
    assert last_output == f"completed {whole + lost} 30 {whole // 15 + kills}"
    with lab.Store(path) as store:
        runs = store.frame("runs")
        first = runs.iloc[0]
        assert (first["total_tokens"], first["child_tokens"], first["child_calls"]) == (
            30,
            whole + lost - 30,
            (whole + lost) // 15 - 2,
        )
        steps = store.frame("steps")
        assert steps[steps["run_id"] == first["run_id"]]["cumulative_tokens"].to_list() == [whole + lost - 15, whole + lost]
        loaded = store.load(first["run_id"])
        assert loaded.history.tokens == whole + lost
        assert [(use.cut_off, use.known_tokens) for use in loaded.history[0].children] == [(True, 15)] * kills + [
            (False, whole - 30)
        ]
        assert [use.handle for use in loaded.history[0].children] == ["research (cut off)"] * kills + ["research-1"]
        assert loaded.to_frame()["cumulative_tokens"].to_list() == [whole + lost - 15, whole + lost]
        assert lab.summary(runs)["tokens_mean"].to_list() == [whole + lost]
        assert runs["total_tokens"].sum() == whole + lost  # each run's own usage


def test_usage_before_a_kill_reduces_the_budget_of_later_sub_agents(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    killed(path, budget=50)
    killed(path, budget=50)
    with lab.Store(path) as store:
        store.export(tmp_path / "exported")
    elsewhere = tmp_path / "elsewhere.db"
    with lab.Store(elsewhere) as store:
        store.import_from(tmp_path / "exported")
    for one in (path, elsewhere):
        assert ran(one, budget=50) == ["30 2 0", "token_budget 60 15 4"]


def test_a_budget_exhausted_before_a_kill_allows_no_further_call(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    killed(path)
    assert ran(path, "tight") == ["15 1 0", "token_budget 15 0 1"]
    with lab.Store(path) as store:
        first = store.frame("runs").iloc[0]
        assert (first["total_tokens"], first["child_tokens"], first["child_calls"], first["steps"]) == (0, 15, 1, 0)
        loaded = store.load(first["run_id"])
        assert loaded.result is not None
        assert (loaded.history.tokens, loaded.result.usage.total_tokens) == (15, 15)
        assert loaded.to_frame().empty
        assert lab.frame(loaded.result, "runs")["child_tokens"].to_list() == [15]


@pytest.mark.parametrize("steps", [1, 2])
def test_after_a_resume_elsewhere_an_earlier_sub_agent_continues(steps: int, tmp_path: Path) -> None:
    """As in the process that was killed, with its branches; everything is stored, and at its place in the tree."""

    def by(store: lab.Store) -> lab.Agent:
        tool = looping(name="worker").as_tool("research", stop=lambda history: len(history) % 2 == 0)
        asked = ({"task": "x"}, {"continue_run": "research-1"}, {"continue_run": "research-2"}, {"task": "y"})
        return boss(tool, *asked, observers=[store])

    endless = by(lab.Store()).run("go", budget=Budget(max_tokens=5000))
    done(endless)
    with lab.Store(tmp_path / "runs.db") as store:
        run = by(store).run("go", budget=Budget(max_tokens=5000))
        for _ in range(steps):
            go(_step(run))
    with lab.Store(tmp_path / "runs.db") as store:
        resumed = store.resume(run.id, by(store))
        result = done(resumed)
        assert tool_answers(resumed) == tool_answers(endless)
        assert result.history.tokens == endless.history.tokens
        assert lab.plots.tree_data(resumed)["steps"].to_list() == lab.plots.tree_data(endless)["steps"].to_list()
        assert set(store.frame("runs")["state"]) == {"ended"}
        assert len(store.run_ids()) == 5
        for one in _all_below(resumed):
            assert one.result is not None
            assert_kept(store, one.result)


def test_after_a_resume_elsewhere_a_sub_agent_continues_with_a_fresh_context(tmp_path: Path) -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        if "Sum up" in request.instructions:
            return say("It looked twice.")
        return say("blue") if "It looked twice." in request.messages[0].text else call("look", {"q": "x"})

    def by(store: lab.Store) -> lab.Agent:
        tool = worker(script).as_tool("research", budget=Budget(max_turns=2))
        again = {"continue_run": "research-1", "fresh_context": True}
        return boss(tool, {"task": "What colour?"}, again, observers=[store])

    with lab.Store(tmp_path / "runs.db") as store:
        run = by(store).run("go")
        go(_step(run))
    with lab.Store(tmp_path / "runs.db") as store:
        resumed = store.resume(run.id, by(store))
        done(resumed)
        assert tool_answers(resumed)[1].startswith("blue")
        earlier, _, later = resumed.children
        assert (later.origin.parent, later.origin.forked_at) == (earlier, 0)
        assert later.prompt.startswith("What colour?")


def test_after_a_resume_without_the_stored_child_the_caller_gets_an_error() -> None:
    store = lab.Store()
    tool = looping(name="worker").as_tool("research", budget=Budget(max_turns=1))
    by = boss(tool, {"task": "x"}, {"continue_run": "research-1"}, {"task": "x"}, observers=[store])
    run = by.run("go")
    go(_step(run))
    store.delete(run.children[0].id)
    resumed = store.resume(run.id, by)
    done(resumed)
    assert "'research-1' was of an earlier process and cannot go on: start anew, with a task. (" in tool_answers(resumed)[1]
    assert "no run" in tool_answers(resumed)[1]
    assert "[research-2 " in tool_answers(resumed)[2]


def test_a_run_from_a_store_has_the_children_of_earlier_processes(tmp_path: Path) -> None:
    def by(store: lab.Store) -> lab.Agent:
        inner = worker(ANSWER).as_tool("dig", budget=Budget(max_turns=1))
        middle = boss(inner, {"task": "x"}, {"continue_run": "dig-1"}, name="middle").as_tool("ask")
        return boss(
            middle,
            {"task": "y"},
            ({"task": "z"}, {"task": "again"}),
            {"continue_run": "ask-2", "task": "more"},
            observers=[store],
        )

    with lab.Store(tmp_path / "runs.db") as store:
        run = by(store).run("go")
        go(_step(run))
        go(_step(run))
    with lab.Store(tmp_path / "runs.db") as store:
        loaded, resumed = store.load(run.id), store.resume(run.id, by(store))
        for one in (loaded, resumed):
            assert [child.id for child in one.children] == [child.id for child in run.children]
            assert [child.prompt for child in one.children] == ["y", "z", "again"]
            assert [(child.origin.caller, child.origin.parent_step, child.result is None) for child in one.children] == [
                (one, 1, False), (one, 2, False), (one, 2, False),
            ]  # fmt: skip
            assert [each.id for each in _all_below(one)] == [each.id for each in _all_below(run)]
            assert lab.plots.tree_data(one).equals(lab.plots.tree_data(run))
        assert loaded.children[0].agent.name == "middle"
        assert loaded.children is loaded.children
        result = done(resumed)
        assert result.stop_reason is StopReason.COMPLETED
        assert [child.prompt for child in resumed.children] == ["y", "z", "again", "z"]
        last = resumed.children[-1]
        assert (last.origin.parent, last.origin.forked_at, last.origin.caller) == (resumed.children[1], 3, resumed)
        assert not resumed.children[1].branches.was_loaded  # it was continued
        assert_kept(store, result)

        store.delete(run.children[0].children[0].id)
        store.delete(run.children[2].id)
        some = store.load(run.id)
        assert [child.prompt for child in some.children] == ["y", "z", "z"]
        assert [child.prompt for child in some.children[0].children] == ["x"]
        assert [child.origin.forked_at for child in some.children[0].children] == [1]


async def _step(run: lab.Run) -> None:
    await run.step()


# The tree ---------------------------------------------------------------------------------------------------------------------


def test_the_tree_distinguishes_sub_agents_from_branches() -> None:
    inner = worker(ANSWER).as_tool("dig", budget=Budget(max_turns=1))
    middle = boss(inner, {"task": "x"}, {"continue_run": "dig-1"}).as_tool("ask")
    run = boss(middle, {"task": "y"}, {"task": "z"}).run("go")
    done(run)
    done(run.fork(1))
    data = lab.plots.tree_data(run)
    rows = data.sort_values("label")[["label", "kind", "first_step", "last_step", "steps"]].to_records(index=False).tolist()
    assert rows == [
        ("1", "run", 0, 3, 3),
        ("1.1", "sub-agent", 1, 4, 3),
        ("1.1.1", "sub-agent", 2, 3, 1),
        ("1.1.1.1", "branch", 3, 4, 2),
        ("1.2", "sub-agent", 2, 5, 3),
        ("1.2.1", "sub-agent", 3, 4, 1),
        ("1.2.1.1", "branch", 4, 5, 2),
        ("1.3", "branch", 1, 3, 3),
        ("1.3.1", "sub-agent", 2, 5, 3),
        ("1.3.1.1", "sub-agent", 3, 4, 1),
        ("1.3.1.1.1", "branch", 4, 5, 2),
    ]
    results = [each.result for each in _all_below(run)]
    assert lab.plots.tree_data(results)["kind"].to_list().count("sub-agent") == 4
    ax = lab.plots.tree(run)
    assert "1.1  sub-agent scripted:script called by 1 at step 1" in ax.alt
    assert "1.1.1.1  max_turns 2 forked from 1.1.1 at step 1" in ax.alt
    assert {line.get_gid().split(":")[0] for line in ax.lines} >= {"call", "fork"}


def test_a_frame_of_related_runs_names_the_caller() -> None:
    from agentlab.engine.run_tree import family_of

    run = boss(worker(ANSWER).as_tool("research"), {"task": "x"}).run("go")
    done(run)
    members = family_of(run.children[0])
    assert [member.name for member in members] == ["1", "1.1"]
    assert names(run.events)[-1] == "RunEnded"
    assert Message("user", "x") == run.children[0].messages[0]


def test_a_run_stored_in_mid_run_stores_later_sub_agents() -> None:
    store = lab.Store()
    scout = lab.Agent(ScriptedProvider([say("found")]), name="scout")
    boss = lab.Agent(
        ScriptedProvider([call("scout", {"task": "look"})] * 2 + [say("end")]), tools=[scout.as_tool("scout", "Looks.")]
    )

    async def main() -> lab.Run:
        run = boss.run("go")
        await run.step()
        store.keep(run)
        await run
        return run

    run = go(main())
    assert [child.id for child in run.children][1:] == [run_id for run_id in store.frame("runs")["run_id"] if run_id != run.id]
    store.close()
