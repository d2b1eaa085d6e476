"""Runs on the Responses wire: over recorded responses, and over a server on loopback."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from engine import server
from engine.server import Reply, serving

import agentlab as lab
from agentlab.model.finish_reasons import FinishReason, StopReason

from .bodies import Answer, Call
from .responses_bodies import MANNERS, RESPONSES, stream, whole

FIXTURES = Path(__file__).parents[2] / "fixtures" / "question"
KEY = "tok-" + "Zq81mN4pXw77-planted"
LOOK = Answer(
    text=("Let me ", "see"), reasoning=("Hm.",), calls=(Call("look", {"q": "tea"}),), finish=FinishReason.TOOL_CALLS, thinking=2
)
HELLO = Answer(text=("Hel", "lo"), input_tokens=20)


@lab.tool(inline=True)
def look(q: str) -> str:
    """Look something up."""
    return f"saw {q}"


def reply(answer: Answer, manner: str | None) -> Reply:
    if manner is None:
        return server.whole(whole(answer))
    return server.stream(*(event + b"\n\n" for event in stream(answer, manner).split(b"\n\n") if event.strip()))


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("manner", [None, *MANNERS])
def test_two_turns_over_a_server(name: str, manner: str | None):
    with serving(reply(LOOK, manner), reply(HELLO, manner)) as served:
        provider = lab.Provider(name, model="some-model", base_url=served.base, api_key=KEY)
        agent = lab.Agent(provider, tools=[look], instructions="Be brief", stream=manner is not None)
        result = asyncio.run(_finished(agent.run("go")))
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "Hello"), result.detail
    assert [step.usage.total_tokens for step in result.history] == [15, 25]
    first, second = (asked.json for asked in served.asked)
    assert served.asked[0].path.endswith("/responses")
    assert first["input"] == [{"role": "user", "content": "go"}]
    assert first["instructions"] == second["instructions"] == "Be brief"
    thought, answer_item, call, outcome = second["input"][1:]
    assert (thought["type"], thought["encrypted_content"]) == ("reasoning", "sealed")
    assert (answer_item["type"], answer_item["content"][0]["text"]) == ("message", "Let me see")
    assert (call["type"], call["call_id"], json.loads(call["arguments"])) == ("function_call", "c0", {"q": "tea"})
    assert outcome == {"type": "function_call_output", "call_id": "c0", "output": "saw tea"}
    assert "previous_response_id" not in second


async def _finished(run: lab.Run) -> lab.RunResult:
    return await run


def test_a_broken_stream_runs_no_tool():
    events = [event + b"\n\n" for event in stream(LOOK).split(b"\n\n") if event.strip()]
    with serving(server.stream(*events[:-1])) as served:
        provider = lab.Provider("compatible-responses", model="some-model", base_url=served.base)
        agent = lab.Agent(provider, tools=[look], stream=True, retry=lab.RetryPolicy(attempts=1))
        result = asyncio.run(_finished(agent.run("go")))
    assert result.stop_reason is StopReason.ERROR
    assert result.history[0].text == "Let me see"
    assert not result.history[0].tool_results
