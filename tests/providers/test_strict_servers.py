"""Servers that refuse what OpenAI's takes: roles in another order, and ids of tool calls that they did not choose."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from engine.server import Asked, Reply, serving, status, whole

import agentlab as lab
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import Message, ModelRequest, ToolCall, ToolResult
from agentlab.providers.registry import Provider

Messages = list[dict[str, Any]]


def system_first(messages: Messages) -> str | None:
    """Qwen 3.5 to 3.8: https://github.com/vllm-project/vllm/issues/41114."""
    return "System message must be at the beginning." if "system" in [one["role"] for one in messages[1:]] else None


def alternating(messages: Messages) -> str | None:
    """Templates of Gemma and Mistral: users and assistants take turns, tool calls and results aside."""
    rest = [one for one in messages if one["role"] not in ("system", "tool") and not one.get("tool_calls")]
    roles = [one["role"] for one in rest]
    fits = system_first(messages) is None and roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    return None if fits else "Conversation roles must alternate."


def mistral(messages: Messages) -> str | None:
    """Mistral's API, codes 3230 and 3280: https://github.com/BerriAI/litellm/issues/17761, langchain-ai/langchain#24668."""
    for before, after in pairwise(messages):
        if before["role"] == "tool" and after["role"] in ("user", "system"):
            return f"Unexpected role {after['role']!r} after role 'tool'"
    ids = [call["id"] for one in messages for call in one.get("tool_calls", ())]
    answered = [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    bad = [one for one in ids + answered if not re.fullmatch("[a-zA-Z0-9]{9}", one)]
    if bad:
        return f"Tool call id was {bad[0]} but must be a-z, A-Z, 0-9, with a length of 9."
    return None if ids == answered else "Not the same number of function calls and responses"


def guarded(refuses: Callable[[Messages], str | None], answers: list[dict[str, Any]]) -> Callable[[Asked], Reply]:
    """Answer in this order, unless the messages are refused."""
    waiting: Iterator[dict[str, Any]] = iter(answers)

    def choose(asked: Asked) -> Reply:
        if (problem := refuses(asked.json["messages"])) is not None:
            return status(400, {"error": {"message": problem}})
        message = {"role": "assistant", "content": None, **next(waiting)}
        finish = message.pop("finish", "tool_calls" if "tool_calls" in message else "stop")
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return whole({"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage})

    return choose


def called(name: str, arguments: str, call_id: str = "abcDEF123") -> dict[str, Any]:
    return {"tool_calls": [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}]}


def weather(city: str) -> str:
    """Return the weather."""
    return f"Sunny in {city}."


def finish(city: str) -> str:
    """Finish."""
    return city


def agent(url: str, model: str, name: str = "llama-cpp", **more: Any) -> lab.Agent:
    provider = lab.Provider(name, model=model, base_url=url, api_key="k")
    return lab.Agent(provider, instructions="Plan.", tools=[weather, finish], **more)


def ended(run: lab.Run) -> lab.RunResult:
    async def result() -> lab.RunResult:
        return await run

    return asyncio.run(result())


GUARDS = pytest.mark.parametrize(
    ("refuses", "model"),
    [(system_first, "qwen3.8"), (alternating, "Ministral-3-8B"), (mistral, "devstral-2")],
    ids=["qwen", "ministral", "mistral"],
)


@GUARDS
@pytest.mark.parametrize("name", ["llama-cpp", "compatible", "openrouter"])
def test_a_reminder_is_taken(refuses: Callable[[Messages], str | None], model: str, name: str) -> None:
    answers = [{"content": "Graz, I think."}, called("finish", '{"city":"Graz"}')]
    with serving(script=guarded(refuses, answers)) as server:
        result = ended(agent(server.base, model, name).run("Plan a trip.", terminating=["finish"]))
    assert (result.stop_reason, result.text, len(server.asked)) == (StopReason.TERMINATING_TOOL, "Graz", 2), result.detail


@GUARDS
def test_a_request_to_continue_is_taken(refuses: Callable[[Messages], str | None], model: str) -> None:
    answers = [{"content": "Go to Gr", "finish": "length"}, {"content": "az."}]
    with serving(script=guarded(refuses, answers)) as server:
        result = ended(agent(server.base, model).run("Plan a trip."))
    assert (result.text, result.error, len(server.asked)) == ("Go to Graz.", None, 2)


@GUARDS
def test_a_last_answer_is_given_after_results_of_tools(refuses: Callable[[Messages], str | None], model: str) -> None:
    answers = [called("weather", '{"city":"Graz"}'), {"content": "Go to Graz."}]
    with serving(script=guarded(refuses, answers)) as server:
        budget = lab.Budget(max_turns=2, last_answer=0.5)
        result = ended(agent(server.base, model, budget=budget).run("Plan a trip."))
    assert (result.text, result.error, len(server.asked)) == ("Go to Graz.", None, 2)


def test_mistral_takes_over_a_run_of_another_vendor() -> None:
    other = lab.Agent(lab.testing.ScriptedProvider([lab.testing.call("weather", {"city": "Graz"})]), tools=[weather])

    run = other.run("Plan a trip.", budget=lab.Budget(max_turns=1))
    ended(run)
    with serving(script=guarded(mistral, [{"content": "Go to Graz."}])) as server:
        heir = agent(server.base, "mistral-large", "mistral")
        result = ended(run.fork(1, agent=heir, message="Where to?", budget=lab.Budget(max_turns=2)))
    assert result.text == "Go to Graz.", result.detail


@pytest.mark.parametrize("call_id", ["call_1", "toolu_01A", "abcDEF12", "abcDEF1234", "abc-EF123", "half \ud800"])
def test_mistral_gets_ids_of_nine_characters(call_id: str) -> None:
    calls = (ToolCall(call_id, "weather", "{}"), ToolCall("abcDEF123", "weather", "{}"))
    results = tuple(ToolResult(call.id, call.name, "Sunny") for call in calls)
    request = ModelRequest(
        [Message("user", "Hi"), Message("assistant", "", tool_calls=calls), Message("tool", tool_results=results)]
    )
    messages = json.loads(Provider("mistral", model="mistral-large").build_request(request).body)["messages"]
    assert mistral(messages) is None
    assert messages[-1]["tool_call_id"] == "abcDEF123"
    assert messages[-2]["tool_call_id"] != "abcDEF123"
