"""Small steps, histories and runs for the tests of this folder. The model is the package's ScriptedProvider."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import agentlab as lab
from agentlab.engine.client import CallContext
from agentlab.limits.combinators import StopCondition
from agentlab.limits.reading import Action, Decision, Reading, Remaining
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest, ToolCall, ToolResult
from agentlab.model.pricing import cost_of
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import add_cost, add_usage
from agentlab.records.events import Event
from agentlab.records.history import RunHistory
from agentlab.records.step import ModelCall, StepResult
from agentlab.testing import Said, ScriptedProvider, call, say, usage
from agentlab.tools import Tool, execute_call, tool

go = asyncio.run


@dataclass(frozen=True, slots=True)
class Fixed(StopCondition):
    """A custom condition with a fixed answer, as a user would write one."""

    name: str
    met: bool | None

    def read(self, history: RunHistory) -> Reading:
        """Return the fixed answer."""
        return Reading(self.name, None if self.met is None else int(self.met), 1, self.met)


def step(
    index: int = 1,
    *,
    tokens: tuple[int | None, int | None] = (10, 5),
    cost: str | None = None,
    tools: Iterable[str] = (),
    finish: FinishReason = FinishReason.END_TURN,
    raw: str | None = None,
    calls: int = 1,
    duration_s: float = 0.5,
) -> StepResult:
    """A step with `calls` equal calls; tokens, cost and tools are per call."""
    response = say(
        "text",
        finish=finish,
        tokens=tokens,
        cost=cost,
        calls=[ToolCall(f"c{number}", name, "{}") for number, name in enumerate(tools)],
    )
    if raw is not None:
        response = replace(response, signal=replace(response.signal, raw_value=raw))
    one = ModelCall(1, response, usage(*tokens), cost_of("scripted", "script", usage(*tokens), response.cost_usd), 0.0, 0.1)
    made = tuple(replace(one, index=number + 1) for number in range(calls))
    return StepResult(
        index,
        made,
        (),
        functools.reduce(add_usage, [each.usage for each in made]),
        functools.reduce(add_cost, [each.cost for each in made]),
        Decision(Action.COMPLETE, "made for a test"),
        RunSettings(),
        Remaining(),
        None,
        (index - 1) * duration_s,
        duration_s,
    )


def steps(number: int, **more: Any) -> RunHistory:
    """A history of this many equal steps."""
    return RunHistory(step(index + 1, **more) for index in range(number))


@lab.tool(inline=True)
def look(q: str = "") -> str:
    """Look something up."""
    return f"saw {q}"


@lab.tool(inline=True)
def finalize(answer: str = "") -> str:
    """Give the answer."""
    return answer


def agent(script: Sequence[Said] | Callable[[ModelRequest, int], Said], **more: Any) -> lab.Agent:
    """An agent on a script, by default with the tools `look` and `finalize`. Cut answers are not continued."""
    more.setdefault("tools", [look, finalize])
    more.setdefault("continuation", None)
    return lab.Agent(ScriptedProvider(script), **more)


def looping(**more: Any) -> lab.Agent:
    """An agent that always calls `look`, for 15 tokens and 0.01 dollars per call."""
    return agent(lambda request, index: call("look", {"q": str(index)}, cost="0.01"), **more)


def run_of(script: Any, *, stop: object = None, budget: lab.Budget | None = None, **more: Any) -> lab.Run:
    """A run on a script."""
    return agent(script, **more).run("go", stop=stop, budget=budget)


def result_of(script: Any, **more: Any) -> lab.RunResult:
    """The result of a run on a script."""

    async def main() -> lab.RunResult:
        return await run_of(script, **more)

    return go(main())


async def execute(tool_call: ToolCall, tools: Mapping[str, Tool]) -> ToolResult:
    """The result of one call; raises a cancellation during the call."""
    executed = await execute_call(tool_call, tools)
    if executed.cut is not None:
        raise executed.cut
    return executed.result


def call_tool(function: Any, arguments: str = "{}", **more: Any) -> ToolResult:
    """The result of one call of one tool."""
    made = function if isinstance(function, lab.Tool) else tool(**more)(function)
    return go(execute(ToolCall("c1", made.name, arguments), {made.name: made}))


def names(events: Iterable[Event]) -> list[str]:
    """The type names of the events."""
    return [type(event).__name__ for event in events]


def assert_is_whole(run: lab.Run) -> None:
    """Assert the invariants of every ended run, whatever its stop reason."""
    result = run.result
    assert result is not None
    happened = names(run.events)
    assert happened.count("RunEnded") == 1
    assert happened[-1] == "RunEnded"
    assert happened.count("StepStarted") == happened.count("StepCompleted") == len(run.history) - run_is_fork(run)
    assert happened.count("ToolStarted") == happened.count("ToolFinished")
    assert [each.index for each in run.history] == list(range(1, len(run.history) + 1))
    if run.history:
        assert run.history[-1].stop_reason is result.stop_reason
    assert all(each.stop_reason is None for each in run.history[:-1])
    assert_conversation_is_whole(run.messages)


def run_is_fork(run: lab.Run) -> int:
    """The number of steps that a run has from its parent."""
    started = [event for event in run.events if type(event).__name__ == "StepStarted"]
    return len(run.history) if not started else started[0].step - 1


def assert_conversation_is_whole(messages: Iterable[lab.Message]) -> None:
    """Assert that every tool call of the assistant is answered by the very next message, in order, as every provider requires."""
    listed = list(messages)
    for index, message in enumerate(listed):
        if message.role == "assistant" and message.tool_calls:
            assert index + 1 < len(listed), "tool calls remain unanswered at the end of the conversation"
            answer = listed[index + 1]
            assert answer.role == "tool"
            assert [each.call_id for each in answer.tool_results] == [each.id for each in message.tool_calls]


class Slow:
    """A model that waits `delay_s` and yields to the loop before each answer of a script."""

    name, model = "slow", "script"

    def __init__(self, script: Any, delay_s: float = 0.0) -> None:
        self.scripted = ScriptedProvider(script)
        self.delay_s = delay_s
        self.asked = 0

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Return the script's answer after the delay."""
        self.asked += 1
        await asyncio.sleep(self.delay_s)
        return await self.scripted.respond(request, context)


async def until(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    """Wait for an event on another thread."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.002)
