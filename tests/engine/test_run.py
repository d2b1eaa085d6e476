"""A run: by hand, step by step, to the end; forks; exceptions and outcomes; the order of events."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import Budget, HasToolCall, RunState, StepCountIs, StopReason, errors
from agentlab.limits.reading import Action
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import Message, ModelRequest, ToolCall
from agentlab.records import events
from agentlab.testing import Said, ScriptedProvider, call, say

from .builders import (
    Slow,
    agent,
    assert_conversation_is_whole,
    assert_is_whole,
    finalize,
    go,
    look,
    looping,
    names,
    result_of,
    run_of,
    until,
)

SCRIPT: list[Said] = [call("look", {"q": "a"}, text="First. "), call("look", {"q": "b"}), "The answer."]


# Three ways through the same run -------------------------------------------------------------------------------------------


async def by_hand(run: lab.Run) -> list[lab.StepResult]:
    taken = []
    while run.result is None:
        step = await run.step()
        if step is not None:
            taken.append(step)
    return taken


async def by_loop(run: lab.Run) -> list[lab.StepResult]:
    return [step async for step in run]


async def by_awaiting(run: lab.Run) -> list[lab.StepResult]:
    return list((await run).history)


async def by_hand_then_loop_then_awaiting(run: lab.Run) -> list[lab.StepResult]:
    first = await run.step()
    looped = []
    async for step in run:
        looped.append(step)
        break
    result = await run
    assert [first, *looped] == list(result.history[:2])
    return list(result.history)


@pytest.mark.parametrize("way", [by_hand, by_loop, by_awaiting, by_hand_then_loop_then_awaiting])
def test_every_way_through_a_run_gives_the_same_result(way: Callable[[lab.Run], Any]) -> None:
    run = run_of(SCRIPT)
    steps = go(way(run))
    assert run.result is not None
    assert steps == list(run.history)
    assert run.result.history is run.history
    assert [each.index for each in steps] == [1, 2, 3]
    assert [each.decision.action for each in steps] == [Action.EXECUTE_TOOLS, Action.EXECUTE_TOOLS, Action.COMPLETE]
    assert [each.text for each in steps] == ["First. ", "", "The answer."]
    assert run.result.text == "The answer."
    assert (run.result.stop_reason, run.result.terminated) == (StopReason.COMPLETED, True)
    assert run.state is RunState.ENDED
    assert run.history.tokens == 45
    assert_is_whole(run)


def test_the_result_contains_the_whole_run() -> None:
    run = run_of(SCRIPT)

    async def main() -> lab.RunResult:
        assert run.state is RunState.READY
        await run.step()
        assert run.state is RunState.READY
        assert run.result is None
        return await run

    result = go(main())
    assert (result.run_id, result.prompt, result.provider, result.model) == (run.id, "go", "scripted", "script")
    assert repr(result) == "RunResult(completed, terminated, 3 steps, 'The model ended its turn.', text='The answer.')"
    assert result.steps is result.history
    assert "ended, completed, 3 steps, Budget(max_turns=20)" in repr(run)
    assert result.usage == run.history.usage
    assert result.cost == run.history.cost
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert result.parent_run_id is None


def test_awaiting_an_ended_run_returns_the_same_result() -> None:
    async def main() -> None:
        run = run_of(["end"])
        first = await run
        assert await run is first is run.result
        assert [step async for step in run] == []

    go(main())


@pytest.mark.parametrize("method", ["step", "start", "pause", "resume"])
def test_an_ended_run_refuses_further_steps(method: str) -> None:
    async def main() -> None:
        run = run_of(["end"])
        await run
        getattr(run, method)()

    async def by_step() -> None:
        run = run_of(["end"])
        await run
        await run.step()

    with pytest.raises(errors.RunEndedError, match=r"completed.*run.fork\(at=1"):
        go(by_step() if method == "step" else main())


def test_a_failed_run_says_how_to_repeat_the_step() -> None:
    run = run_of([errors.MissingKeyError("gone meanwhile")])

    async def go() -> None:
        with pytest.raises(errors.MissingKeyError):
            await run.step()
        with pytest.raises(errors.RunEndedError, match=r"repeat the step with run\.fork\(at=0\), or start another"):
            await run.step()

    asyncio.run(go())


def test_stop_and_cancel_of_an_ended_run_do_nothing() -> None:
    run = run_of(["end"])

    async def main() -> None:
        result = await run
        run.stop("late")
        run.cancel()
        assert run.result is result

    go(main())
    assert_is_whole(run)


def test_step_returns_none_if_the_run_ended_without_a_step() -> None:
    async def main() -> lab.Run:
        run = looping().run("go", budget=Budget(max_turns=5))
        await run.step()
        run.limits.max_turns = 1
        assert await run.step() is None
        return run

    run = go(main())
    assert run.result is not None
    assert run.result.stop_reason is StopReason.TURN_LIMIT
    assert run.history[-1].stop_reason is StopReason.TURN_LIMIT, "the last step has the reason, at every time of the end"
    assert len(run.history) == 1


def test_the_request_sent_to_the_model() -> None:
    asked: list[tuple[list[Message], ModelRequest]] = []

    def respond(request: ModelRequest, index: int) -> Said:
        asked.append((list(request.messages), request))
        return SCRIPT[index - 1]

    run = agent(respond, instructions="Be brief.", options={"temperature": 0}, stream=True).run(
        "go", messages=[Message("user", "before"), Message("assistant", "yes?")]
    )

    async def main() -> None:
        await run

    go(main())
    assert [len(messages) for messages, _ in asked] == [3, 5, 7]
    messages, request = asked[-1]
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant", "tool", "assistant", "tool"]
    assert messages[4].tool_results[0].content == "saw a"
    assert (request.instructions, dict(request.options), request.stream) == ("Be brief.", {"temperature": 0}, True)
    assert [spec.name for spec in request.tools] == ["look", "finalize"]
    assert len(asked[0][1].messages) == 3, "a view: later events are not in it"


def test_two_runs_of_one_agent_share_nothing() -> None:
    shared = agent(SCRIPT)

    async def main() -> None:
        first, second = shared.run("one"), shared.run("two")
        await asyncio.gather(_end(first), _end(second))
        assert first.id != second.id
        assert [len(each.history) for each in (first, second)] == [3, 3]
        first.limits.max_turns = 3
        assert second.limits.max_turns == 20
        assert (first.messages[0].text, second.messages[0].text) == ("one", "two")

    go(main())


async def _end(run: lab.Run) -> lab.RunResult:
    return await run


def test_the_agents_budget_and_condition_are_defaults() -> None:
    limited = looping(budget=Budget(max_turns=2), stop=lab.MaxToolCalls(9))
    assert go(_end(limited.run("go"))).stop_reason is StopReason.TURN_LIMIT
    assert len(go(_end(limited.run("go", budget=Budget(max_turns=3)))).history) == 3
    result = go(_end(limited.run("go", stop=StepCountIs(1))))
    assert (result.stop_reason, len(result.history)) == (StopReason.STOP_CONDITION, 1)


# Exceptions and outcomes ---------------------------------------------------------------------------------------------------


RAISED = {
    "fixture": errors.ReplayMissError("no such request"),
    "configuration": errors.MissingKeyError("set OPENAI_API_KEY"),
    "bug": RuntimeError("a bug"),
}
OUTCOMES = {
    "connection": errors.ProviderConnectionError("refused"),
    "status": errors.ProviderStatusError("overloaded", status=529),
    "payload": errors.ProviderPayloadError("not JSON"),
}


@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED.keys())
def test_errors_that_the_user_has_to_fix_are_raised_after_recording(error: Exception) -> None:
    async def main() -> None:
        for way in (by_hand, by_loop, by_awaiting):
            run = run_of([call("look"), error])
            with pytest.raises(type(error)) as caught:
                await way(run)
            assert caught.value is error
            result = await run  # the result is still available
            assert (result.stop_reason, result.error) == (StopReason.ERROR, error)
            assert len(result.history) == 2
            assert result.history[-1].error is error
            assert result.history[-1].decision.reason == f"{type(error).__name__}: {error}"
            assert result.history.known_tokens == 15
            assert_is_whole(run)

    go(main())


@pytest.mark.parametrize("error", OUTCOMES.values(), ids=OUTCOMES.keys())
def test_a_providers_error_is_an_outcome(error: Exception) -> None:
    run = run_of([call("look"), error], stop=HasToolCall("look") & StepCountIs(9))
    result = go(_end(run))
    assert (result.stop_reason, result.error) == (StopReason.ERROR, error)
    assert str(error) in result.detail
    assert result.history[-1].readings is not None
    with pytest.raises(errors.RunFailed) as caught:
        result.raise_for_stop()
    assert caught.value.__cause__ is error
    assert_is_whole(run)


STOPPED: dict[str, tuple[list[Said], dict[str, Any], type[errors.RunStopped]]] = {
    "turns": ([call("look")], {"budget": Budget(max_turns=1)}, errors.TurnLimitReached),
    "calls": ([call("look")], {"budget": Budget(max_calls=1)}, errors.CallLimitReached),
    "tokens": ([call("look")], {"budget": Budget(max_tokens=1)}, errors.TokenBudgetReached),
    "cost": ([call("look", cost="1")], {"budget": Budget(max_cost=1)}, errors.CostBudgetReached),
    "condition": ([call("look")], {"stop": StepCountIs(1)}, errors.ConditionReached),
    "truncated": ([say("x", finish=FinishReason.MAX_TOKENS)], {}, errors.ResponseTruncated),
    "filtered": ([say("x", finish=FinishReason.CONTENT_FILTERED)], {}, errors.ResponseFiltered),
    "cancelled-by-the-provider": ([say("x", finish=FinishReason.CANCELLED)], {}, errors.RunCancelled),
    "failed": ([errors.ProviderError("x")], {}, errors.RunFailed),
}


@pytest.mark.parametrize(("script", "more", "error"), STOPPED.values(), ids=STOPPED.keys())
def test_raise_for_stop_raises_the_matching_error_with_the_result_on_it(
    script: list[Said], more: dict[str, Any], error: type[errors.RunStopped]
) -> None:
    result = result_of(script, **more)
    with pytest.raises(error) as caught:
        result.raise_for_stop()
    assert type(caught.value) is error
    assert caught.value.result is result
    assert str(caught.value) == result.detail


# Truncated tool calls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool_call", "executed"),
    [
        pytest.param(ToolCall("1", "look", '{"q": "x"}'), True, id="whole"),
        pytest.param(ToolCall("1", "look", '{"q": "x"}', closed=False), False, id="open-block"),
        pytest.param(ToolCall("1", "look", '{"q": "x'), False, id="half-json"),
        pytest.param(ToolCall("1", "look", '{"q": 3}'), False, id="not-the-schema"),
        pytest.param(ToolCall("1", "look", ""), False, id="nothing-yet"),
    ],
)
def test_a_truncated_call_is_executed_only_if_it_is_complete(tool_call: ToolCall, executed: bool) -> None:
    seen = []

    @lab.tool(name="look", inline=True)
    def tool(q: str = "default") -> str:
        seen.append(q)
        return q

    run = run_of([say(finish=FinishReason.MAX_TOKENS, calls=[tool_call]), "end"], tools=[tool])
    go(_end(run))
    assert bool(seen) is executed
    assert_is_whole(run)


# The conversation can always be sent again --------------------------------------------------------------------------------------

tool_calls = st.lists(
    st.builds(
        ToolCall,
        st.sampled_from("abc"),
        st.sampled_from(["look", "finalize", "quit_it", "broken", "nobody"]),
        st.sampled_from(["{}", '{"q": "x"}', '{"q": 3}', '{"q', "", "null"]),
        st.booleans(),
    ),
    max_size=3,
)
responses = st.builds(
    lambda text, finish, calls: say(text, finish=finish, calls=calls),
    st.sampled_from(["", "text"]),
    st.sampled_from(FinishReason),
    tool_calls,
)


@lab.tool(inline=True)
def quit_it() -> lab.Stop:
    """End the run."""
    return lab.Stop("enough")


@lab.tool(inline=True)
def broken(q: str = "") -> str:
    """Raise."""
    raise ValueError(q)


@settings(max_examples=100, deadline=None)
@given(st.lists(responses, max_size=4))
def test_every_tool_call_in_the_conversation_is_answered(script: list[Said]) -> None:
    run = run_of([*script, "end"], tools=[look, finalize, quit_it, broken], budget=Budget(max_turns=4))

    async def main() -> None:
        async for _ in run:
            assert_conversation_is_whole(run.messages)

    go(main())
    assert_is_whole(run)
    for message in run.messages:
        for each in message.tool_calls:
            json.loads(each.arguments or "{}")


# Forks ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_fork_shares_the_first_steps_and_continues_differently(at: int) -> None:
    async def main() -> None:
        run = looping().run("go", budget=Budget(max_turns=3), stop=lab.MaxToolCalls(9))
        await run
        branch = run.fork(at=at, budget=Budget(max_turns=5))
        assert (len(branch.history), branch.origin.parent_run_id, branch.result) == (at, run.id, None)
        assert [each.calls for each in branch.history] == [each.calls for each in run.history[:at]]
        assert branch.history.tokens == 15 * at
        assert branch.limits.stop == lab.MaxToolCalls(9)
        assert all(each.stop_reason is None for each in branch.history), "the other run's stop reason is not this one's"
        result = await branch
        assert (len(result.history), result.stop_reason) == (5, StopReason.TURN_LIMIT)
        assert [each.index for each in result.history] == [1, 2, 3, 4, 5]
        assert [each.index for one in result.history for each in one.calls] == [1, 2, 3, 4, 5]
        assert len(run.history) == 3
        assert run.history[-1].stop_reason is StopReason.TURN_LIMIT
        assert len(branch.messages) == 11
        assert_is_whole(branch)
        assert_is_whole(run)

    go(main())


def test_a_fork_of_a_fork_and_of_a_running_run() -> None:
    async def main() -> None:
        run = looping().run("go", messages=[Message("user", "hello"), Message("assistant", "hi")])
        await run.step()
        await run.step()
        branch = run.fork(at=1)
        await branch.step()
        twig = branch.fork(at=2, stop=StepCountIs(3), agent=agent(lambda request, index: "other agent"))
        result = await twig
        assert result.text == "other agent"
        assert len(result.messages) == 3 + 2 + 2 + 1
        assert [each.id for each in (run, branch, twig)] != [run.id] * 3
        assert (len(run.history), len(branch.history), len(twig.history)) == (2, 2, 3)
        assert (await run.step()) is not None

    go(main())


def test_a_fork_at_its_limit_takes_no_step() -> None:
    async def main() -> None:
        run = looping().run("go", budget=Budget(max_turns=2))
        await run
        branch = run.fork(at=2)
        result = await branch
        assert (len(result.history), result.stop_reason) == (2, StopReason.TURN_LIMIT)
        assert result.history[-1].stop_reason is StopReason.TURN_LIMIT
        assert names(branch.events) == ["RunStarted", "RunEnded"]

    go(main())


def test_a_fork_keeps_the_time_and_the_observers() -> None:
    seen: list[events.Event] = []

    async def main() -> None:
        run = looping().run("go", observers=[seen.append])
        await run.step()
        branch = run.fork(at=1)
        await branch.step()
        assert branch.history[1].started_s >= run.history[0].started_s + run.history[0].duration_s
        assert names(seen).count("StepCompleted") == 2

    go(main())


def test_a_stopped_or_cancelled_run_can_be_forked_and_continues() -> None:
    calls = [*call("quit_it", id="1").tool_calls, *call("look", id="2").tool_calls]

    async def main() -> None:
        run = run_of([say(finish=FinishReason.TOOL_CALLS, calls=calls), "end"], tools=[look, quit_it])
        await run
        branch = run.fork(at=1)
        assert_conversation_is_whole(branch.messages)
        assert (await branch).text == "end"

    go(main())


@pytest.mark.parametrize("at", [-1, 4, 1.0, True, None, "1"], ids=repr)
def test_a_fork_at_an_unknown_step_is_refused(at: Any) -> None:
    run = run_of(SCRIPT)
    go(_end(run))
    with pytest.raises(errors.ConfigurationError, match="0 to 3"):
        run.fork(at=at)


# Events -----------------------------------------------------------------------------------------------------------------------


def test_events_are_in_order() -> None:
    seen: list[events.Event] = []
    run = agent(SCRIPT).run("go", observers=[seen.append])
    go(_end(run))
    streamed = ["StepStarted", "TextReceived", "StopReasonObserved", "ToolStarted", "ToolFinished", "StepCompleted"]
    quiet = [name for name in streamed if name != "TextReceived"]
    last = ["StepStarted", "TextReceived", "StopReasonObserved", "StepCompleted"]
    assert names(seen) == ["RunStarted", *streamed, *quiet, *last, "RunEnded"]
    assert run.events == [event for event in seen if not isinstance(event, events.TextReceived)], "text is not kept"
    assert [event.at_s for event in seen] == sorted(event.at_s for event in seen)
    started, first, *_, ended = run.events
    assert isinstance(started, events.RunStarted)
    assert started.settings is run.history[0].settings
    assert isinstance(first, events.StepStarted)
    assert (first.step, first.budget_remaining.turns) == (1, 20)
    assert isinstance(ended, events.RunEnded)
    assert ended.result is run.result
    completed = [event for event in run.events if isinstance(event, events.StepCompleted)]
    assert [event.cumulative_usage.total_tokens for event in completed] == [15, 30, 45]
    assert [event.step for event in completed] == list(run.history)
    observed = [event for event in run.events if isinstance(event, events.StopReasonObserved)]
    assert [(event.step, event.call, event.finish_reason) for event in observed] == [
        (1, 1, FinishReason.TOOL_CALLS),
        (2, 2, FinishReason.TOOL_CALLS),
        (3, 3, FinishReason.END_TURN),
    ]


def test_a_change_of_limits_is_an_event_and_each_step_keeps_its_settings() -> None:
    async def main() -> lab.Run:
        run = looping().run("go", budget=Budget(max_turns=9), stop=StepCountIs(9))
        await run.step()
        run.limits.max_cost = 0.5
        await run.step()
        run.limits.edit_condition("StepCountIs", steps=3, by="panel")
        await run
        run.limits.max_turns = 50  # too late to be an event
        return run

    run = go(main())
    changes = [event for event in run.events if isinstance(event, events.LimitsChanged)]
    assert [(event.by, event.before.budget.max_cost, event.after.stop) for event in changes] == [
        ("code", None, StepCountIs(9)),
        ("panel", changes[0].after.budget.max_cost, StepCountIs(3)),
    ]
    held = [(each.settings.budget.max_cost, each.settings.stop) for each in run.history]
    assert held == [(None, StepCountIs(9)), (run.limits.max_cost, StepCountIs(9)), (run.limits.max_cost, StepCountIs(3))]
    assert run.result is not None
    assert run.result.stop_reason is StopReason.STOP_CONDITION


def test_a_change_during_a_step_applies_at_its_end() -> None:
    """The first reading after the change is at the end of the same step."""
    run = looping(tools=[]).run("go", budget=Budget(max_turns=9))
    run.observe(lambda event: isinstance(event, events.StopReasonObserved) and setattr(run.limits, "max_turns", 2))
    result = go(_end(run))
    assert (len(result.history), result.stop_reason) == (2, StopReason.TURN_LIMIT)
    assert result.history[0].settings.budget.max_turns == 2


def test_a_raising_observer_is_reported_once_and_ends_nothing() -> None:
    seen: list[events.Event] = []

    def faulty(event: events.Event) -> None:
        raise ZeroDivisionError("on purpose")

    run = agent(SCRIPT).run("go", observers=[faulty, seen.append])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = go(_end(run))
    assert [str(each.message) for each in caught if each.category is errors.AgentlabWarning] == [
        f"The observer {faulty!r} raised ZeroDivisionError: on purpose. The run continues."
    ]
    assert result.stop_reason is StopReason.COMPLETED
    assert names(seen)[-1] == "RunEnded"
    assert_is_whole(run)


def test_an_async_observer_is_refused_wherever_it_is_given() -> None:
    async def watch(event: events.Event) -> None: ...

    for give in (
        lambda: lab.Agent(ScriptedProvider(["x"]), observers=[watch]),
        lambda: looping().run("go", observers=[watch]),
        lambda: looping().run("go").observe(watch),
    ):
        with pytest.raises(errors.ConfigurationError, match=r"watch.* is async, and nothing would await it"):
            give()


@pytest.mark.parametrize(
    ("write", "advice"),
    [
        (lambda: ScriptedProvider("hello"), r"ScriptedProvider\('hello'\): pass a list of answers"),
        (lambda: say(5), r"say\(text=5\): pass text"),  # type: ignore[arg-type]
        (lambda: say(finish="length"), r"say\(finish='length'\): pass a lab.FinishReason"),  # type: ignore[arg-type]
        (lambda: say(tokens=5), r"say\(tokens=5\): pass those of input and output"),  # type: ignore[arg-type]
        (lambda: say(cost="free"), r"say\(cost='free'\): pass an amount in US dollars"),
        (lambda: say(calls=[call("look")]), r"say\(calls=.*: pass ToolCalls"),  # type: ignore[list-item]
        (lambda: call("look", words="a"), r"call\(\) takes no 'words'; .* are a dict: call\('look', \{'words': 'a'\}\)\."),
    ],
)
def test_a_script_that_is_written_wrongly_is_refused_with_advice(write: Callable[[], object], advice: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=advice):
        write()


def test_an_observer_can_be_removed() -> None:
    seen: list[events.Event] = []

    async def main() -> None:
        run = looping().run("go")
        end = run.observe(seen.append)
        await run.step()
        end()
        end()
        await run.step()

    go(main())
    assert names(seen).count("StepCompleted") == 1


@pytest.mark.parametrize("moment", [events.StepStarted, events.ToolStarted, events.StepCompleted], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("method", ["stop", "cancel"])
def test_an_observer_may_stop_the_run_at_any_moment(moment: type, method: str) -> None:
    """Even with a manual step, the run has ended when the step is done."""

    async def main() -> lab.Run:
        run = looping().run("go")
        run.observe(lambda event: isinstance(event, moment) and getattr(run, method)())
        step = await run.step()
        await asyncio.sleep(0)
        assert step is None or step == run.history[-1]
        return run

    run = go(main())
    assert run.result is not None
    assert run.result.stop_reason is (StopReason.EXPLICIT_STOP if method == "stop" else StopReason.CANCELLED)
    assert len(run.history) == 1
    assert_is_whole(run)


def test_a_custom_model_needs_respond() -> None:
    assert agent(SCRIPT).model.name == "scripted"
    with pytest.raises(errors.ConfigurationError, match="is not a model"):
        lab.Agent(object())  # type: ignore[arg-type]


def test_an_exhausted_script_says_so() -> None:
    run = lab.Agent(ScriptedProvider([call("look")]), tools=[look]).run("go")
    with pytest.raises(errors.FixtureError, match="has 1 answer, but the run requests answer 2"):
        go(_end(run))


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("x" * 80, f"text='{'x' * 80}')"),
        ("x" * 81, f"text='{'x' * 79}…')"),
        ("two\n\n lines\t'of it'", "text=\"two lines 'of it'\")"),
        ("\x1b[2J\u202egone", r"text='�[2J\u202egone')"),
        ("the key is sk-" + "a1" * 20, "text='the key is REDACTED')"),
        (f"{'x' * 70} sk-{'a1' * 20}", f"text='{'x' * 70} REDACTED')"),
        (" \n", "'The model ended its turn.')"),
    ],
)
def test_the_repr_of_a_result_shows_the_answer_on_one_line(answer: str, shown: str) -> None:
    result = result_of([answer])
    assert repr(result).endswith(shown)
    assert shown in result._repr_mimebundle_()["text/plain"]


def test_the_table_of_a_result_shows_the_answer_escaped() -> None:
    shown = result_of(["<script>it & sk-" + "a1" * 20])._repr_mimebundle_()["text/html"]
    assert "<p>&lt;script&gt;it &amp; REDACTED</p>" in shown


# A forgotten await ----------------------------------------------------------------------------------------------------------


def calls_to_await() -> dict[str, Any]:
    """Each public async method, called, with its correct form."""
    quick = agent(["fine"])
    both = lab.Lockstep([quick.run("go"), quick.run("on")])
    chat = lab.Chat(quick)
    return {
        "run.step()": quick.run("go").step(),
        "lockstep.step()": both.step(),
        "study.run()": lab.Experiment({"a": quick}, ["?"]).run(progress=False),
        "is_stop_condition_met(…)": lab.is_stop_condition_met([], []),
        "chat.chat(…)": chat.chat("a", "?"),
        "chat.invoke(…)": chat.invoke("a"),
        "chat.add_ai_message(…)": chat.add_ai_message("a", "?"),
        "chat.ask(…)": chat.ask("?"),
        "chat.add_message(…)": chat.add_message("a", "?"),
    }


CALLS = ["run.step()", "lockstep.step()", "study.run()", "is_stop_condition_met(…)"] + [
    f"chat.{name}(…)" for name in ("chat", "invoke", "add_ai_message", "ask", "add_message")
]


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_await_says_what_to_write(call: str) -> None:
    every = calls_to_await()
    pending = every[call]
    try:
        with pytest.raises(AttributeError, match=re.escape(f"{call} was not awaited: write `(await {call}).text`.")):
            _ = pending.text
        with pytest.raises(TypeError, match=re.escape(f"write `(await {call})[0]`.")):
            pending[0]
        with pytest.raises(TypeError, match=re.escape(f"neither true nor false: write `await {call}`.")):
            bool(pending)
        assert repr(pending) == f"<{call} was not awaited: write `await {call}`>"
        assert not hasattr(pending, "_repr_html_")
        assert pending.__qualname__.endswith(call.partition("(")[0].rpartition(".")[2])
    finally:
        for one in every.values():
            one.close()


async def in_a_task(pending: Any) -> Any:
    """By asyncio.create_task."""
    return await asyncio.create_task(pending)


async def in_a_group(pending: Any) -> Any:
    """In a task group."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pending)
    return task.result()


async def gathered(pending: Any) -> Any:
    """By asyncio.gather."""
    return (await asyncio.gather(pending))[0]


async def in_time(pending: Any) -> Any:
    """By asyncio.wait_for."""
    return await asyncio.wait_for(pending, 60)


async def shielded(pending: Any) -> Any:
    """By asyncio.shield."""
    return await asyncio.shield(pending)


async def elsewhere(pending: Any) -> Any:
    """By asyncio.run on another thread."""
    return await asyncio.to_thread(asyncio.run, pending)


async def from_a_thread(pending: Any) -> Any:
    """By asyncio.run_coroutine_threadsafe."""
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(pending, loop).result())


async def itself(pending: Any) -> Any:
    """By `await`."""
    return await pending


@pytest.mark.parametrize(
    "way", [itself, in_a_task, in_a_group, gathered, in_time, shielded, elsewhere, from_a_thread], ids=lambda way: way.__name__
)
def test_a_step_can_be_awaited_in_every_way_of_asyncio(way: Callable[[Any], Any]) -> None:
    async def main() -> None:
        step = await way(run_of(SCRIPT).step())
        assert (step.index, step.text) == (1, "First. ")
        with pytest.raises((errors.RunEndedError, ExceptionGroup)) as caught:
            await way((await ended()).step())
        assert "RunEndedError" in repr(caught.value)

    async def ended() -> lab.Run:
        run = run_of(["end"])
        await run
        return run

    go(main())


def test_a_step_in_a_task_can_be_cancelled() -> None:
    async def main() -> None:
        run = lab.Agent(Slow(["end"], delay_s=60)).run("go")
        task = asyncio.create_task(run.step())  # type: ignore[arg-type]
        await until(lambda: run.state is RunState.RUNNING)
        assert "step" in repr(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert run.result is not None
        assert run.result.stop_reason is StopReason.CANCELLED

    go(main())


def test_a_call_that_is_never_awaited_still_warns() -> None:
    def forget() -> None:
        run_of(["end"]).step()
        gc.collect()

    with pytest.warns(RuntimeWarning, match=r"coroutine 'Run\.step' was never awaited"):
        forget()


@pytest.mark.parametrize("name", ["text", "stop_reason", "detail", "terminated", "usage", "cost", "raise_for_stop"])
def test_an_attribute_of_the_result_only_says_where_it_is(name: str) -> None:
    run = run_of(["end"])
    with pytest.raises(AttributeError, match=rf"once the run has ended: write `result = await run`, then result\.{name}\."):
        getattr(run, name)
    go(_end(run))
    with pytest.raises(AttributeError, match=rf"has ended: write run\.result\.{name}\."):
        getattr(run, name)
    assert hasattr(run.result, name)


def test_an_unknown_attribute_is_a_plain_attribute_error() -> None:
    run = run_of(["end"])
    with pytest.raises(AttributeError, match=r"^'Run' object has no attribute 'txt'$"):
        _ = run.txt  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"write run\.history for the steps so far, or"):
        _ = run.steps  # type: ignore[attr-defined]
    assert not hasattr(run, "_usage")


# Its parts ------------------------------------------------------------------------------------------------------------------------


def test_a_run_offers_its_methods_and_values_but_not_its_engine() -> None:
    verbs = {"start", "step", "wait", "pause", "resume", "stop", "cancel", "fork", "next_actions", "apply", "observe", "with_id"}
    values = {
        "id",
        "agent",
        "prompt",
        "limits",
        "state",
        "history",
        "messages",
        "events",
        "result",
        "output",
        "children",
        "origin",
        "provenance",
    }
    asked = {"pending", "approve"}
    run = lab.Agent(ScriptedProvider(["hi"])).run("go")
    offered = {name for name in dir(run) if not name.startswith("_")}
    assert offered == verbs | values | asked | {"branches", "to_frame", "to_html", "panel"}
    assert len(offered) <= 31
    assert all(hasattr(run, part) for part in ("timeline", "control", "stepper", "worker"))


@pytest.mark.parametrize("name", ["parent", "forked_at", "caller", "parent_run_id"])
def test_origin_says_where_a_run_came_from(name: str) -> None:
    run = lab.Agent(ScriptedProvider(["hi"])).run("go")
    with pytest.raises(AttributeError, match=rf"write run\.origin\.{name}"):
        getattr(run, name)


def test_a_step_is_one_object_from_the_readings_to_the_history() -> None:
    seen = []
    run = lab.Agent(ScriptedProvider(["hi"])).run("go", stop=lambda history: seen.append(history[-1]))
    result = go(run.worker.to_the_end())
    assert seen[0] is result.history[0] is run.events[-2].step
    assert (seen[0].stop_reason, seen[0].readings is not None) == (StopReason.COMPLETED, True)


# Attributes that cannot be set ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stop", "budget", "limits", "max_cost"])
def test_a_limit_that_is_set_on_the_run_is_refused(name: str) -> None:
    run = run_of(["end"])
    before = getattr(run, name, None)
    with pytest.raises(AttributeError, match=rf"run\.{name} cannot be set.*run\.limits\.max_turns = 5"):
        setattr(run, name, Budget(max_turns=1))
    assert getattr(run, name, None) == before
    assert go(by_awaiting(run))[-1].stop_reason is StopReason.COMPLETED


@pytest.mark.parametrize("name", ["budget", "stop", "instruction", "temperature", "run"])
def test_an_attribute_that_an_agent_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"agent\.{name} cannot be set: pass it to lab\.Agent"):
        setattr(agent(["end"]), name, 1)


def test_a_subclass_of_agent_may_have_attributes_of_its_own() -> None:
    class Cook(lab.Agent[Any]):
        def __init__(self, dish: str) -> None:
            super().__init__(ScriptedProvider(["end"]))
            self.dish = dish

    assert Cook("soup").dish == "soup"
