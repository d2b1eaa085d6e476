"""Agents against a real model on a real server, over three wires, streaming and not: `make test-live`.

The model is tiny and deterministic (temperature 0, one thread), so each scenario has its intended ends. The wires differ in
what the server reports: its Responses say `completed` even if the answer was cut at its cap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason, StopReason
from agentlab.records.result import RunResult
from agentlab.transport import current

from .llama_server import llama_server
from .record import PORT, cases, environment, run
from .scenarios import SCENARIOS, Place, Scenario

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

CASES = {name: (scenario, agent) for name, scenario, agent in cases()}
WORDS = {"stop": FinishReason.END_TURN, "tool_calls": FinishReason.TOOL_CALLS, "length": FinishReason.MAX_TOKENS}
MODES = ("chat", "chat-stream", "messages", "messages-stream", "responses", "responses-stream")


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[str]:
    """The local model's server, stopped after the tests."""
    with llama_server(environment(), port=PORT) as address:
        yield address


def live(name: str, budget: lab.Budget | None = None) -> RunResult:
    scenario, agent = CASES[name]

    async def go() -> RunResult:
        if budget is None:
            return await run(scenario, agent, current())
        return await agent.run(scenario.prompt, budget=budget)

    return asyncio.run(go())


def test_every_scenario_runs_over_the_three_wires_streaming_and_not() -> None:
    assert {name.partition("/")[2] for name in CASES} == set(MODES)
    assert len(CASES) == 2 * sum(len(scenario.wires) for scenario in SCENARIOS)


@pytest.mark.parametrize("name", CASES)
def test_each_response_ends_as_the_scenario_says(name: str) -> None:
    scenario, _ = CASES[name]
    result = live(name)
    signals = [call.response.signal for step in result.history for call in step.calls]
    assert [signal.finish_reason for signal in signals] == [WORDS[word] for word in scenario.finish_reasons], result
    calls = [call for step in result.history for call in step.calls]
    for call, signal, word in zip(calls, signals, scenario.finish_reasons, strict=True):
        quirk = "/responses" in name and word == "length"
        fills_its_cap = word != "length" and call.usage.output_tokens == call.requested_cap
        assert (signal.raw_value == "completed") is ("/responses" in name)
        assert signal.confidence is (Confidence.MEDIUM if quirk or fills_its_cap else Confidence.HIGH)
    for call in calls:
        assert call.usage.input_tokens and call.usage.output_tokens
        assert call.usage.output_tokens <= (call.requested_cap or 0)
        assert call.cost.source == "unknown"


@pytest.mark.parametrize("mode", MODES)
def test_a_task_is_done_with_tools_and_submitted(mode: str) -> None:
    result = live(f"terminating-tool/{mode}")
    assert result.terminated
    assert result.output == "It is 53.6 F in Paris."
    assert [call.name for step in result.history for call in step.tool_calls] == ["get_weather", "convert", "finalize"]


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("typed-answer")])
def test_an_answer_is_an_object(name: str) -> None:
    assert live(name).output == Place("Paris", "France", is_capital="by-tool" not in name)


@pytest.mark.parametrize("mode", MODES)
def test_half_a_call_is_never_executed(mode: str) -> None:
    for name in ("truncated-tool-call", "truncated-terminating-tool"):
        result = live(f"{name}/{mode}")
        assert result.stop_reason is StopReason.TRUNCATED
        assert all(not step.tool_results or step.tool_results[0].error == "not_executed" for step in result.history[-1:])
        assert result.history[-1].decision.suggestion == "increase_budget"


@pytest.mark.parametrize("mode", MODES)
def test_a_cut_answer_is_not_taken_for_a_whole_one(mode: str) -> None:
    result = live(f"truncated-text/{mode}")
    assert (result.stop_reason, bool(result.text)) == (StopReason.TRUNCATED, True)


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_ends_an_endless_run(mode: str) -> None:
    result = live(f"endless-tools/{mode}", lab.Budget(max_turns=3, max_tokens_per_turn=64))
    assert (result.stop_reason, len(result.history)) == (StopReason.TURN_LIMIT, 3)


@pytest.mark.parametrize("wire", ["chat", "messages", "responses"])
def test_the_text_arrives_in_pieces_and_equals_the_whole_answer(wire: str) -> None:
    scenario, agent = CASES[f"plain-answer/{wire}-stream"]
    pieces: list[str] = []

    def hear(event: lab.events.Event) -> None:  # type: ignore[name-defined]
        if isinstance(event, lab.events.TextReceived):
            pieces.append(event.text)

    async def go() -> RunResult:
        return await agent.run(scenario.prompt, budget=lab.Budget(max_turns=1, max_tokens_per_turn=64), observers=[hear])

    result = asyncio.run(go())
    assert len(pieces) > 3
    assert "".join(pieces) == result.text == live(f"plain-answer/{wire}").text


def test_an_error_of_the_server_is_reported() -> None:
    scenario, agent = CASES["plain-answer/chat"]
    too_long: Scenario = replace(scenario, prompt="word " * 6_000)
    result = asyncio.run(_run(too_long, agent))
    assert result.stop_reason is StopReason.ERROR
    assert "400" in result.detail
    assert result.history[-1].decision.suggestion == "modify_prompt"


async def _run(scenario: Scenario, agent: lab.Agent) -> RunResult:
    return await run(scenario, agent, current())
