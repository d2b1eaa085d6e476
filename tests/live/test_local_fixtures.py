"""The recordings of the local model, replayed: a real model's behaviour at each kind of end, without the model."""

from __future__ import annotations

import asyncio

import pytest

import agentlab as lab
from agentlab.model.finish_reasons import FinishReason
from agentlab.records.result import RunResult
from agentlab.transport.cassette import load_cassette

from .record import FOLDER, cases, run
from .scenarios import Place, Scenario

WORDS = {"stop": FinishReason.END_TURN, "tool_calls": FinishReason.TOOL_CALLS, "length": FinishReason.MAX_TOKENS}
CASES = {name: (scenario, agent) for name, scenario, agent in cases()}
IN_WORDS_OF = {
    "messages": {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"},
    "responses": {"stop": "completed", "tool_calls": "completed", "length": "completed"},  # llama.cpp has no other reasons
}


def replayed(name: str) -> RunResult:
    scenario, agent = CASES[name]
    return asyncio.run(_run(scenario, agent, name))


async def _run(scenario: Scenario, agent: lab.Agent, name: str) -> RunResult:
    return await run(scenario, agent, lab.replay(FOLDER / f"{name}.yaml"))


@pytest.mark.parametrize("name", CASES)
def test_each_case_replays_with_the_finish_reasons_of_its_scenario(name: str) -> None:
    scenario, _ = CASES[name]
    result = replayed(name)
    signals = [call.response.signal for step in result.history for call in step.calls]
    raw_values = [signal.raw_value for signal in signals]
    words = IN_WORDS_OF.get(name.partition("/")[2].removesuffix("-stream"), {})
    assert raw_values == [words.get(word, word) for word in scenario.finish_reasons]
    judged = [signal.finish_reason for signal in signals]
    assert judged == [WORDS[word] for word in scenario.finish_reasons]
    assert result.usage.total_tokens is not None
    assert result.usage.total_tokens > 0


@pytest.mark.parametrize("name", CASES)
def test_each_recording_names_its_origin(name: str) -> None:
    origin = load_cassette(FOLDER / f"{name}.yaml").origin
    assert isinstance(origin, dict)
    assert origin["recorded"]
    assert "llama.cpp" in origin["from"]
    assert "Gemma 3 270M" in origin["from"]


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("-stream")])
def test_a_stream_equals_the_whole_answer(name: str) -> None:
    stream, whole = replayed(name), replayed(name.removesuffix("-stream"))
    assert [step.text for step in stream.history] == [step.text for step in whole.history]
    assert [step.usage.output_tokens for step in stream.history] == [step.usage.output_tokens for step in whole.history]


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("truncated-tool-call/")])
def test_a_real_half_tool_call_is_never_executed(name: str) -> None:
    result = replayed(name)
    assert result.stop_reason == "truncated"
    assert all(not step.tool_results or step.tool_results[0].error == "not_executed" for step in result.history)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("typed-answer")])
def test_an_answer_of_a_real_model_is_an_object(name: str) -> None:
    result = replayed(name)
    assert result.terminated
    called = "by-tool" in name  # this model then takes Paris for no capital
    assert result.output == Place("Paris", "France", is_capital=not called)
    assert [call.name for call in result.history[0].tool_calls] == ["final_answer"] * called


@pytest.mark.parametrize("wire", ["chat", "chat-stream", "messages", "messages-stream", "responses", "responses-stream"])
def test_the_task_is_done_and_the_answer_submitted(wire: str) -> None:
    result = replayed(f"terminating-tool/{wire}")
    assert result.terminated
    assert result.output == "It is 53.6 F in Paris."
