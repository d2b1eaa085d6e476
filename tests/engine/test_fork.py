"""Forks: another prompt, an additional message, other tool results, another model; and links between a run and its branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab import Budget, StopReason, errors
from agentlab.limits.policies import RECOVERY_HINT
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import Message, ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.testing import ScriptedProvider, call, say

from .builders import agent, assert_conversation_is_whole, assert_is_whole, go, look, looping, run_of


async def ended(run: lab.Run) -> lab.RunResult:
    return await run


def input_of(request: ModelRequest) -> list[str]:
    """The input of a model, message by message."""
    return [f"{one.role}: {one.text}{''.join(result.content for result in one.tool_results)}" for one in request.messages]


class Listening:
    """A script that looks once, then answers, and keeps its input."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []

    def __call__(self, request: ModelRequest, index: int) -> ModelResponse:
        self.requests.append(input_of(request))
        return call("look", {"q": "x"}) if index == 1 else say("end")


@pytest.fixture
def script() -> Listening:
    return Listening()


@pytest.fixture
def run(script: Listening) -> lab.Run:
    made = agent(script).run("go", messages=[Message("user", "hello"), Message("assistant", "hi")])
    go(ended(made))
    script.requests.clear()
    return made


# Replacements ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1])
def test_another_prompt_replaces_the_first(run: lab.Run, script: Listening, at: int) -> None:
    branch = run.fork(at, prompt="another task")
    result = go(ended(branch))
    assert all(one[:3] == ["user: hello", "assistant: hi", "user: another task"] for one in script.requests)
    assert (branch.prompt, result.prompt, run.prompt, run.messages[2].text) == ("another task", "another task", "go", "go")
    assert result.text == "end"
    assert_is_whole(branch)


def test_the_kept_steps_remain_under_another_prompt(run: lab.Run, script: Listening) -> None:
    go(ended(run.fork(1, prompt="another task")))
    assert script.requests == [["user: hello", "assistant: hi", "user: another task", "assistant: ", "tool: saw x"]]


def test_a_branch_of_a_branch_keeps_the_prompt_or_replaces_it(run: lab.Run) -> None:
    branch = run.fork(0, prompt="second")
    assert [one.text for one in branch.fork(0).messages] == ["hello", "hi", "second"]
    assert [one.text for one in branch.fork(0, prompt="third").messages] == ["hello", "hi", "third"]
    assert [one.text for one in run.fork(0).messages] == ["hello", "hi", "go"]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_message_follows_the_kept_steps(run: lab.Run, script: Listening, at: int) -> None:
    branch = run.fork(at, message="and in French")
    assert branch.messages[-1] == Message("user", "and in French")
    go(ended(branch))
    assert script.requests[0][-1] == "user: and in French"
    assert len(script.requests[0]) == [4, 6, 7][at]
    again = branch.fork(at, budget=Budget(max_turns=7))
    assert [one.text for one in again.messages] == [one.text for one in branch.messages][: len(again.messages)]
    assert again.messages[-1].text == "and in French", "it belongs to the kept steps of the branch"
    assert_is_whole(branch)


@pytest.mark.parametrize("field", ["prompt", "message"])
@pytest.mark.parametrize("text", ["", "  ", 5], ids=repr)
def test_an_empty_text_is_refused(run: lab.Run, field: str, text: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match=rf"{field}={text!r}.*omit it"):
        run.fork(0, **{field: text})


def test_replaced_tool_results_are_in_the_request_and_the_history(run: lab.Run, script: Listening) -> None:
    branch = run.fork(1, tool_results={"call_look": "nothing was found"})
    go(ended(branch))
    assert script.requests[0][-1] == "tool: nothing was found"
    (result,) = branch.history[0].tool_results
    assert (result.content, result.value, result.error) == ("nothing was found", "nothing was found", None)
    assert run.history[0].tool_results[0].content == "saw x"
    assert any(one.tool_results and one.tool_results[0].content == "saw x" for one in run.messages)
    assert branch.history.tool_count("look") == 1
    assert lab.frame(branch, "tools")["content"].tolist() == ["nothing was found"]


def test_a_failed_or_missing_tool_result_can_be_replaced() -> None:
    calls = [ToolCall("a", "look", "[1]"), ToolCall("b", "quit_it", "{}"), ToolCall("c", "look", "{}")]

    def quit_it() -> lab.Stop:
        return lab.Stop("enough")

    run = run_of([say(finish=FinishReason.TOOL_CALLS, calls=calls), "end"], tools=[look, quit_it])
    go(ended(run))
    assert [one.error for one in run.history[0].tool_results] == ["invalid_arguments", None]
    branch = run.fork(1, tool_results={"a": "A", "c": "C"})
    assert [(one.call_id, one.content, one.error) for one in branch.history[0].tool_results if one.call_id != "b"] == [
        ("a", "A", None),
        ("c", "C", None),
    ]
    assert [one.call_id for one in branch.history[0].tool_results] == ["a", "b", "c"]
    assert_conversation_is_whole(branch.messages)
    stopped = run.fork(1, tool_results={"b": "no stop"})
    assert stopped.history[0].tool_results[1].stop is None
    assert len(stopped.history[0].tool_results) == 2, "an unexecuted call has no result"
    assert go(ended(branch)).text == "end"


@pytest.mark.parametrize(
    ("at", "given", "reason"),
    [
        pytest.param(1, {"nope": "x"}, r"'nope'.*Step 1 has 'call_look'", id="unknown"),
        pytest.param(2, {"call_look": "x"}, "no tool call: none", id="of another step"),
        pytest.param(0, {"call_look": "x"}, "no tool call: none", id="no step"),
        pytest.param(1, {"call_look": 5}, "call_look': 5.*as text", id="no text"),
    ],
)
def test_an_invalid_tool_result_is_refused(run: lab.Run, at: int, given: Any, reason: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=reason):
        run.fork(at, tool_results=given, message="go on")


def test_another_model_uses_the_same_agent() -> None:
    first = looping(instructions="be brief", stop=lab.MaxToolCalls(9))
    run = first.run("go", budget=Budget(max_turns=1))
    go(ended(run))
    other = ScriptedProvider(["end"] * 3, name="other", model="one")
    branch = run.fork(1, model=other, budget=Budget(max_turns=5))
    assert (branch.agent.model, branch.agent.name, branch.agent.instructions) == (other, "other:one", "be brief")
    assert branch.agent.tools == first.tools
    result = go(ended(branch))
    assert (result.provider, result.model, result.text) == ("other", "one", "end")
    assert first.name == "scripted:script"
    named = looping(name="mine").with_model("openai:gpt-4.1-mini")
    assert (named.name, named.model.name, named.model.model) == ("mine", "openai", "gpt-4.1-mini")


def test_agent_with_model_or_an_unknown_terminating_tool_is_refused(run: lab.Run) -> None:
    with pytest.raises(errors.ConfigurationError, match="pass one of them"):
        run.fork(0, agent=looping(), model=ScriptedProvider([]))
    with pytest.raises(errors.ToolDefinitionError, match=r"finalise.*Did you mean 'finalize'"):
        run.fork(0, terminating=["finalise"])
    assert run.fork(0, terminating=["finalize"]).limits.tools == ("finalize",)


# What the model can be asked --------------------------------------------------------------------------------------------------


def test_a_completed_run_is_kept_whole_only_with_a_new_message(run: lab.Run) -> None:
    with pytest.raises(
        errors.ConfigurationError, match=r"the model finished with step 2.*message=…, or keep fewer steps \(at=1\)"
    ):
        run.fork(2)
    assert go(ended(run.fork(1))).text == "end"
    assert run.branches and len(run.branches) == 1, "a refused fork makes no branch"


def test_the_answer_to_an_earlier_message_is_not_the_answer_to_a_new_one() -> None:
    run = run_of(["Graz.", call("look", {"q": "x"}), call("look", {"q": "y"}), "Linz.", call("look", {"q": "z"})])
    assert go(ended(run)).text == "Graz."
    unanswered = run.fork(1, message="And in winter?", budget=Budget(max_turns=2))
    result = go(ended(unanswered))
    assert (result.stop_reason, result.text, result.model_text, result.asked_at) == (StopReason.TURN_LIMIT, "", "", 1)
    assert "text=" not in repr(result)
    further = unanswered.fork(2, budget=Budget(max_turns=3))
    assert go(ended(further)).text == ""
    answered = further.fork(3, budget=Budget(max_turns=4))
    assert go(ended(answered)).text == "Linz."
    assert go(ended(answered.fork(4, message="And in May?", budget=Budget(max_turns=5)))).text == ""
    assert go(ended(answered.fork(0, budget=Budget(max_turns=1)))).text == "Graz."
    earlier = answered.fork(1, message="Where?")
    earlier.stop("enough")
    assert go(ended(earlier)).text == ""


def test_a_cut_answer_is_followed_by_the_hint() -> None:
    run = run_of([say("half of", finish=FinishReason.MAX_TOKENS), "the rest"])
    go(ended(run))
    branch = run.fork(1)
    assert [(one.role, one.text) for one in branch.messages][1:] == [("assistant", "half of"), ("system", RECOVERY_HINT)]
    assert go(ended(branch)).text == "the rest"
    own = run.fork(1, message="go on, please")
    assert own.messages[-1].text == "go on, please"
    assert len(own.messages) == 3


def test_a_paused_turn_is_sent_back_unchanged() -> None:
    paused = say("searching", finish=FinishReason.PAUSED)
    run = run_of([paused, "found"], budget=Budget(max_calls=1))
    assert go(ended(run)).stop_reason is StopReason.CALL_LIMIT
    branch = run.fork(1, budget=Budget())
    assert [one.text for one in branch.messages] == ["go", "searching"]
    assert go(ended(branch)).text == "found"


# Parents and branches ----------------------------------------------------------------------------------------------------------


def test_branches_know_their_origin() -> None:
    run = looping().run("go", budget=Budget(max_turns=2))
    go(ended(run))
    assert (run.origin.parent, run.origin.forked_at, run.branches, run.origin.parent_run_id) == (None, None, (), None)
    first, second = run.fork(1), run.fork(0)
    twig = first.fork(1)
    assert run.branches == (first, second)
    assert (first.origin.parent, first.origin.forked_at, first.origin.parent_run_id) == (run, 1, run.id)
    assert (twig.origin.parent, first.branches, second.branches) == (first, (twig,), ())
    assert second.origin.forked_at == 0
    assert (go(ended(second)).forked_at, run.result and run.result.forked_at) == (0, None)
    assert lab.frame([run, first, second], "runs")["forked_at"].tolist()[1:] == [1, 0]


def test_observers_are_notified_of_each_fork() -> None:
    run, seen = looping().run("go"), []
    end = run.branches.watch(seen.append)
    first = run.fork(0)
    assert seen == [first]
    first.fork(0)
    assert seen == [first], "a branch has separate listeners"
    end()
    end()
    run.fork(0)
    assert seen == [first]


def test_a_raising_listener_is_a_warning_and_the_fork_succeeds() -> None:
    run, seen = looping().run("go"), []

    def broken(branch: lab.Run) -> None:
        raise ValueError("no")

    run.branches.watch(broken)
    run.branches.watch(seen.append)
    with pytest.warns(lab.AgentlabWarning, match="A listener for forks raised ValueError: no"):
        branch = run.fork(0)
    assert run.branches == (branch,)
    assert seen == [branch]


def test_a_running_run_can_be_forked_at_each_of_its_steps() -> None:
    async def main() -> None:
        run = looping().run("go")
        async for step in run:
            branch = run.fork(step.index, message="and?")
            assert (await branch.step()) is not None
            if step.index == 3:
                break
        assert [one.origin.forked_at for one in run.branches] == [1, 2, 3]
        assert [len(one.history) for one in run.branches] == [2, 3, 4]

    go(main())


# Recordings in their order --------------------------------------------------------------------------------------------------------


@pytest.fixture
def short_trip() -> lab.Run:
    """The sample trip, ended by a limit after three of its four steps."""
    tools = [lab.tool(lambda: "rain", name=name) for name in ("get_weather", "find_trains", "finalize")]
    with lab.replay("sample:trip", match="order"):
        return lab.Agent("anthropic:claude-sonnet-4-6", tools=tools, stop=lab.HasToolCall("finalize")).run(
            "?", budget=Budget(max_turns=3)
        )


def called(run: lab.Run) -> list[list[str]]:
    return [[one.name for one in step.tool_calls] for step in run.history]


TRIP = [["get_weather"] * 2, ["find_trains"] * 2, ["find_trains"], ["finalize"]]


@pytest.mark.parametrize("at", range(4))
def test_a_branch_continues_an_ordered_recording_after_its_kept_steps(short_trip: lab.Run, at: int) -> None:
    async def main() -> None:
        await short_trip
        branch = short_trip.fork(at, budget=Budget(max_turns=9))
        await branch
        assert called(short_trip) == TRIP[:3]
        assert called(branch) == TRIP
        assert called(short_trip.apply()) == TRIP[:3]

    go(main())


def test_a_branch_on_another_model_continues_the_recording_of_that_model(short_trip: lab.Run) -> None:
    async def main() -> None:
        await short_trip
        branch = short_trip.fork(1, model="openai:gpt-5.4-mini", budget=Budget(max_turns=9))
        assert (await branch).stop_reason is StopReason.STOP_CONDITION
        assert called(branch) == [["get_weather"] * 2, ["find_trains"], ["find_trains"] * 2, ["finalize"]]

    go(main())


def test_a_branch_after_the_end_of_an_ordered_recording_has_nothing_left(short_trip: lab.Run) -> None:
    async def main() -> None:
        short_trip.limits.max_turns = 9
        await short_trip
        with pytest.raises(errors.ReplayMissError, match="recorded 4 times, and all recordings have been served"):
            await short_trip.fork(4, message="Go on.")

    go(main())


def test_a_stored_run_continues_an_ordered_recording_where_it_was(short_trip: lab.Run, tmp_path: Path) -> None:
    async def main() -> None:
        with lab.Store(tmp_path / "runs.db") as store:
            store.keep(short_trip)
            await short_trip.step()
            await short_trip.step()
        with lab.Store(tmp_path / "runs.db") as store, lab.replay("sample:trip", match="order"):
            again = store.resume(short_trip.id, short_trip.agent)
            await again
            assert called(again) == TRIP[:3]

    go(main())
