"""Terminating tools: an agent without a user ends by calling one, and is reminded if it does not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import LimitError, NudgesExhausted, ToolDefinitionError
from agentlab.limits.policies import NUDGE_MESSAGE, TerminatingTools
from agentlab.limits.reading import Action
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.messages import Message, ModelRequest, ToolCall
from agentlab.providers.registry import resolve
from agentlab.records import events
from agentlab.records.result import RunResult
from agentlab.testing import ScriptedProvider, call, say

S = StopReason
done: list[str] = []


@lab.tool(inline=True)
def look(q: str) -> str:
    """Look something up."""
    done.append(q)
    return f"found {q}"


@lab.tool(inline=True)
def finalize(answer: str) -> str:
    """Hand in the answer."""
    done.append(answer)
    return answer.upper()


END = TerminatingTools(["finalize"])  # type: ignore[arg-type]
FINISH = call("finalize", {"answer": "yes"})


def run(script: list[Any], **more: Any) -> RunResult:
    done.clear()
    more.setdefault("terminating", END)
    agent = lab.Agent(ScriptedProvider(script), tools=[look, finalize])

    async def go() -> RunResult:
        return await agent.run("task", **more)

    return asyncio.run(go())


def test_the_first_call_of_a_terminating_tool_ends_the_run_with_its_output() -> None:
    result = run([call("look", {"q": "x"}), FINISH])
    assert (result.stop_reason, result.output, result.terminated, len(result.history)) == (S.TERMINATING_TOOL, "YES", True, 2)
    assert result.raise_for_stop() is result
    assert "finalize" in result.detail


@pytest.mark.parametrize("recorded_as", ["system", "user"])
@pytest.mark.parametrize("model", ["openai:gpt-5.4-mini", "anthropic:claude-sonnet-4-6"])
def test_a_recorded_reminder_replays_with_any_role(model: str, recorded_as: str, tmp_path: Path) -> None:
    """Strictly: up to version 0.1, reminders had the role user on every wire."""
    agent = lab.Agent(model, tools=[finalize], terminating=END, instructions="Be brief.")
    asked = [Message("user", "task"), Message("assistant", "I think so."), Message(recorded_as, NUDGE_MESSAGE)]  # type: ignore[arg-type]
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "input_tokens": 10, "output_tokens": 5}
    tool = {"id": "c1", "type": "function", "function": {"name": "finalize", "arguments": '{"answer": "yes"}'}}
    chat = [({"content": "I think so."}, "stop"), ({"content": None, "tool_calls": [tool]}, "tool_calls")]
    blocks = [
        ({"type": "text", "text": "I think so."}, "end_turn"),
        ({"type": "tool_use", "id": "c1", "name": "finalize", "input": {"answer": "yes"}}, "tool_use"),
    ]
    kept = []
    for place in (0, 1):
        made = ModelRequest(asked[: 1 + 2 * place], agent.instructions, agent.tool_specs)
        request = resolve(model).build_request(made)
        if model.startswith("openai"):
            content, why = chat[place]
            answer: Any = {
                "choices": [{"index": 0, "message": {"role": "assistant", **content}, "finish_reason": why}],
                "usage": usage,
            }
        else:
            block, why = blocks[place]
            answer = {"type": "message", "role": "assistant", "content": [block], "stop_reason": why, "usage": usage}
        one = {"method": request.method, "uri": request.url, "body": request.body.decode(), "headers": {}}
        response = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": json.dumps(answer)}}
        kept.append({"request": one, "response": response})
    (tmp_path / "old.json").write_text(json.dumps({"version": 1, "interactions": kept}))

    async def main() -> RunResult:
        with lab.replay(tmp_path):
            return await agent.run("task")

    result = asyncio.run(main())
    assert (result.stop_reason, result.output) == (S.TERMINATING_TOOL, "YES")
    assert [message.role for message in result.messages] == ["user", "assistant", "system", "assistant", "tool"]


def test_an_answer_without_a_call_gets_the_reminder() -> None:
    result = run(["I think so.", FINISH])
    assert (result.stop_reason, len(result.history)) == (S.TERMINATING_TOOL, 2)
    assert result.history[0].decision.action is Action.NUDGE
    assert [(message.role, message.text) for message in result.messages][2] == ("system", NUDGE_MESSAGE)
    (nudged,) = [event for event in result.events if isinstance(event, events.Nudged)]
    assert (nudged.consecutive, nudged.allowed) == (1, 1)


@pytest.mark.parametrize(("allowed", "answers"), [(0, 1), (1, 2), (3, 4)])
def test_after_the_last_reminder_the_run_ends(allowed: int, answers: int) -> None:
    result = run(
        [f"answer {number}" for number in range(9)], terminating=TerminatingTools(("finalize",), consecutive_nudges=allowed)
    )
    assert (result.stop_reason, len(result.history), result.text) == (S.NUDGES_EXHAUSTED, answers, f"answer {answers - 1}")
    with pytest.raises(NudgesExhausted, match="Max consecutive nudges exceeded"):
        result.raise_for_stop()


def test_any_tool_call_resets_the_count() -> None:
    result = run(["a", call("look", {"q": "x"}), "b", call("look", {"q": "y"}), "c", FINISH])
    assert (result.stop_reason, len(result.history)) == (S.TERMINATING_TOOL, 6)
    assert [event.consecutive for event in result.events if isinstance(event, events.Nudged)] == [1, 1, 1]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_too_many_invocations_end_the_run_for_call_limit(most: int) -> None:
    result = run(
        [call("look", {"q": str(number)}) for number in range(9)],
        terminating=TerminatingTools(("finalize",), max_invocations=most),
    )
    assert (result.stop_reason, result.history.calls) == (S.CALL_LIMIT, most)
    assert result.detail == f"Max invocations exceeded: {most} of {most}, and no terminating tool was called."


def several(*names: tuple[str, dict[str, Any]]) -> Any:
    import json

    calls = [ToolCall(f"c{number}", name, json.dumps(arguments)) for number, (name, arguments) in enumerate(names)]
    return say("Now.", finish=FinishReason.TOOL_CALLS, calls=calls)


def test_calls_up_to_the_terminating_one_are_executed_and_kept() -> None:
    result = run(
        [several(("look", {"q": "1"}), ("finalize", {"answer": "a"}), ("look", {"q": "2"}), ("finalize", {"answer": "b"}))]
    )
    assert (result.stop_reason, result.output, done) == (S.TERMINATING_TOOL, "A", ["1", "a"])
    assistant, tool = result.messages[1:]
    assert [call.name for call in assistant.tool_calls] == ["look", "finalize"]
    assert [answered.call_id for answered in tool.tool_results] == ["c0", "c1"]
    assert assistant.native is None


def test_a_failing_terminating_tool_ends_nothing() -> None:
    result = run([call("finalize", {"wrong": 1}), FINISH])
    assert (result.stop_reason, len(result.history), result.output) == (S.TERMINATING_TOOL, 2, "YES")
    assert result.history[0].tool_results[0].is_error


def test_without_terminating_tools_an_answer_ends_the_run() -> None:
    assert run(["answer"], terminating=None).stop_reason is S.COMPLETED
    assert run([FINISH, "answer"], terminating=None).stop_reason is S.COMPLETED


def test_a_terminating_tool_wins_over_a_condition_which_is_still_read() -> None:
    result = run([FINISH], stop=lab.StepCountIs(1))
    assert (result.stop_reason, result.stopped_by_condition) == (S.TERMINATING_TOOL, True)


def test_a_budget_ends_a_run_that_is_being_reminded() -> None:
    result = run(["a", "b", "c"], budget=lab.Budget(max_turns=1))
    assert result.stop_reason is S.TURN_LIMIT


def test_terminating_tools_can_be_edited_during_the_run() -> None:
    agent = lab.Agent(ScriptedProvider(["a", "b", "c", FINISH]), tools=[look, finalize], terminating=["finalize"])

    async def go() -> RunResult:
        going = agent.run("task")
        await going.step()
        going.limits.consecutive_nudges = 5
        assert going.limits.terminating is not None and going.limits.terminating.consecutive_nudges == 5
        with pytest.raises(LimitError):
            going.limits.consecutive_nudges = -1
        return await going

    assert asyncio.run(go()).stop_reason is S.TERMINATING_TOOL


def test_a_fork_keeps_terminating_tools() -> None:
    agent = lab.Agent(ScriptedProvider(["a", FINISH]), tools=[finalize], terminating=["finalize"])

    async def go() -> RunResult:
        going = agent.run("task")
        await going.step()
        return await going.fork(at=1)

    assert asyncio.run(go()).stop_reason is S.TERMINATING_TOOL


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: TerminatingTools("finalize"), LimitError, "in a list"),  # type: ignore[arg-type]
        (lambda: TerminatingTools(()), LimitError, "at least one"),
        (lambda: TerminatingTools((7,)), LimitError, "7"),  # type: ignore[arg-type]
        (lambda: TerminatingTools(("finalize",), consecutive_nudges=-1), LimitError, "consecutive_nudges=-1"),
        (lambda: TerminatingTools(("finalize",), max_invocations=0), LimitError, "max_invocations=0"),
        (lambda: TerminatingTools(("finalize",), nudge_message=""), LimitError, "nudge_message"),
        (
            lambda: lab.Agent(ScriptedProvider([]), tools=[finalize], terminating=["finalise"]),
            ToolDefinitionError,
            "Did you mean 'finalize'",
        ),
        (lambda: setattr(lab.Agent(ScriptedProvider([])).run("x").limits, "consecutive_nudges", 3), LimitError, "does not have"),
    ],
)
def test_invalid_terminating_tools_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_tools_may_be_given_as_objects() -> None:
    assert TerminatingTools([finalize]).tools == ("finalize",)  # type: ignore[arg-type]


class Unwritten:
    """An object without a JSON form or a text form."""

    def __str__(self) -> str:
        raise ValueError("no text")


@dataclass
class Handed:
    """A tool output that JSON cannot represent."""

    city: str
    to: tuple[int, ...]


@lab.tool(inline=True)
def hand_in(kind: str) -> Any:
    """Hand in something."""
    done.append(kind)
    return {"text": "IC 41", "dict": {"train": 41}, "object": Handed("Wien", (1, 2)), "nothing": None}[kind]


@lab.tool(inline=True)
def stop_with(kind: str) -> Any:
    """Stop with something."""
    return lab.Stop(
        "found it", {"text": "IC 41", "object": Handed("Wien", (1,)), "unwritten": Unwritten(), "nothing": None}[kind]
    )


ANSWERS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "terminating-text": (call("hand_in", {"kind": "text"}), {"terminating": ["hand_in"]}, "IC 41"),
    "terminating-dict": (call("hand_in", {"kind": "dict"}), {"terminating": ["hand_in"]}, '{"train":41}'),
    "terminating-object": (call("hand_in", {"kind": "object"}), {"terminating": ["hand_in"]}, '{"city":"Wien","to":[1,2]}'),
    "terminating-nothing": (call("hand_in", {"kind": "nothing"}), {"terminating": ["hand_in"]}, "I look."),
    "condition-goal": (call("hand_in", {"kind": "object"}), {"stop": lab.HasToolCall("hand_in")}, '{"city":"Wien","to":[1,2]}'),
    "condition-limit": (call("hand_in", {"kind": "object"}), {"stop": lab.StepCountIs(2)}, "I look."),
    "stop-text": (call("stop_with", {"kind": "text"}), {}, "IC 41"),
    "stop-object": (call("stop_with", {"kind": "object"}), {}, '{"city":"Wien","to":[1]}'),
    "stop-unwritten": (call("stop_with", {"kind": "unwritten"}), {}, "found it"),
    "stop-nothing": (call("stop_with", {"kind": "nothing"}), {}, "I look."),
    "completed": (say("It is IC 41."), {}, "It is IC 41."),
    "cut-off": (call("hand_in", {"kind": "text"}), {"budget": lab.Budget(max_turns=2)}, "I look."),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_the_text_of_a_result_is_the_answer_for_every_stop_reason(case: str, tmp_path: Path) -> None:
    answer, more, text = ANSWERS[case]
    store = lab.Store(tmp_path / "runs.db")
    first = say("I look.", finish=FinishReason.TOOL_CALLS, calls=[ToolCall("c0", "look", '{"q": "x"}')])
    agent = lab.Agent(ScriptedProvider([first, answer]), tools=[look, hand_in, stop_with], observers=[store])

    async def go() -> RunResult:
        return await agent.run("task", **more)

    result = asyncio.run(go())
    assert result.text == text
    assert result.model_text == (text if case == "completed" else "I look.")
    kept = store.load(result.run_id).result
    assert kept is not None
    assert (kept.text, kept.model_text) == (result.text, result.model_text)
    assert [lab.frame(result, "runs")["text"].item(), store.frame("runs")["text"].item()] == [text, text]


@pytest.mark.parametrize(("output", "text"), [({"a": 1}, '{"a":1}'), (Unwritten(), "<Unwritten, whose text raised ValueError>")])
def test_the_output_of_a_middleware_is_the_answer(output: object, text: str) -> None:
    async def cached(request: Any, ask: Any) -> Any:
        raise lab.StopRequested("known already", output)

    agent = lab.Agent(ScriptedProvider([]), middleware=[cached])

    async def go() -> RunResult:
        return await agent.run("task")

    assert asyncio.run(go()).text == text
