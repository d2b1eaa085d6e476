"""Every charge is counted, or the cost is unknown with a reason: caches, searches, tiers, modalities, servers and times."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import genai_prices
import pytest
from genai_prices import data_snapshot

import agentlab as lab
from agentlab.errors import AgentlabWarning
from agentlab.model.pricing import cost_of
from agentlab.model.usage import NOTHING_USED, CostSource, Usage, UsageSource, add_usage

MORNING, EVENING = datetime(2026, 11, 23, 3, tzinfo=UTC), datetime(2026, 11, 23, 20, tzinfo=UTC)
WRITTEN_AND_SEARCHED = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-5-5",
    "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "Hi"}],
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 1000,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1000},
        "output_tokens": 100,
        "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 0},
        "service_tier": "standard",
    },
}
"""A thousand tokens kept for an hour, and three searches."""


def anthropic(**usage: Any) -> Any:
    body = {**WRITTEN_AND_SEARCHED, "usage": {**WRITTEN_AND_SEARCHED["usage"], **usage}}  # type: ignore[dict-item]
    return lab.Provider("anthropic", model="claude-opus-5-5").parse(body)


def cost_at(response: Any, name: str = "anthropic", at: datetime | None = EVENING) -> Any:
    return cost_of(name, response.model, response.usage, response.cost_usd, at=at)


def test_an_hour_of_cache_and_searches_are_charged() -> None:
    response = anthropic()
    assert (response.usage.cache_write_1h_tokens, response.usage.web_searches) == (1000, 3)
    assert response.usage.service_tier == "standard"
    theirs = genai_prices.extract_usage(WRITTEN_AND_SEARCHED, provider_id="anthropic").calc_price().total_price
    cost = cost_at(response)
    assert (cost.usd, cost.source) == (theirs, CostSource.PRICED)
    assert cost.usd == Decimal("0.04004")  # 10 × 4 + 1000 × 8 + 100 × 20 per million, and 3 × 10 per thousand
    assert cost.price_list == f"genai-prices {genai_prices.__version__} (prices of 2026-11-23)"


@pytest.mark.parametrize(
    ("usage", "reason", "at_least"),
    [
        pytest.param({"service_tier": "priority"}, "in the service tier priority", "0", id="priority"),
        pytest.param({"inference_geo": "us"}, "inference in the region us", "0.01004", id="a region"),
        pytest.param(
            {"iterations": [{"type": "advisor_message", "model": "claude-opus-4-8", "input_tokens": 9, "output_tokens": 9}]},
            "tokens of claude-opus-4-8",
            "0.01004",
            id="another model",
        ),
    ],
)
def test_without_a_price_the_cost_is_unknown_with_a_reason(usage: dict[str, Any], reason: str, at_least: str) -> None:
    cost = cost_at(anthropic(**usage))
    assert (cost.usd, cost.source) == (None, CostSource.UNKNOWN)
    assert reason in cost.reason
    assert cost.reason.endswith(".")
    assert cost.known_usd == Decimal(at_least)  # the tokens, at standard prices; nothing is certain for another tier


def test_code_in_the_vendors_container_is_charged_by_its_time() -> None:
    used = {"type": "server_tool_use", "id": "srv_1", "name": "bash_code_execution", "input": {}}
    body = {**WRITTEN_AND_SEARCHED, "content": [used, {"type": "text", "text": "Hi"}]}
    response = lab.Provider("anthropic", model="claude-opus-5-5").parse(body)
    assert response.usage.also_charged == ("code execution",)
    assert "code execution" in cost_at(response).reason


@pytest.mark.parametrize(
    ("model", "usage", "usd"),
    [
        pytest.param("claude-opus-5", Usage(1000, 100, service_tier="batch"), "0.00375", id="batch costs half"),
        pytest.param("claude-opus-5", Usage(1000, 100, service_tier="fast"), "0.015", id="fast costs twice as much"),
        pytest.param("claude-opus-4-5", Usage(1000, 100, service_tier="fast"), None, id="fast, without a price"),
        pytest.param("claude-haiku-5-5", Usage(100_000, 1000), "0.0105", id="a long prompt, just below"),
        pytest.param("claude-haiku-5-5", Usage(100_001, 1000), "0.0525005", id="a long prompt, all of it at the higher price"),
        pytest.param("claude-sonnet-4-6", Usage(10, 1, output_image_tokens=1), None, id="images in the output"),
    ],
)
def test_tiers_and_long_prompts(model: str, usage: Usage, usd: str | None) -> None:
    assert cost_of("anthropic", model, usage, at=EVENING).usd == (None if usd is None else Decimal(usd))


OPENAI: list[Any] = [
    pytest.param("gpt-5.4-mini", Usage(1000, 100, service_tier="default"), "0.0012", id="default"),
    pytest.param("gpt-5.4-mini", Usage(1000, 100, service_tier="priority"), "0.0024", id="priority"),
    pytest.param("gpt-5.4-mini", Usage(1000, 100, service_tier="flex"), "0.0006", id="flex"),
    pytest.param("gpt-5.4-mini", Usage(1000, 100, service_tier="scale"), None, id="scale"),
    pytest.param("gpt-5.4", Usage(272_000, 100, service_tier="priority"), "1.363", id="priority, a prompt that is not long"),
    pytest.param("gpt-5.4", Usage(272_001, 100, service_tier="priority"), None, id="priority, a long prompt"),
    pytest.param("whisper-1", Usage(10, 1), None, id="no price for tokens"),
    pytest.param("gpt-5.4-mini", Usage(1000, 100, service_tier="auto"), None, id="auto is ambiguous"),
    pytest.param("gpt-5.4-mini", Usage(1000, 100, web_searches=1, file_searches=2), "0.0162", id="searches"),
    pytest.param("gpt-4.1-mini", Usage(1000, 100, web_searches=1), None, id="searches charged as tokens"),
    pytest.param("gpt-audio", Usage(1000, 100, input_audio_tokens=500, output_audio_tokens=0), "0.01825", id="audio"),
    pytest.param("gpt-audio", Usage(1000, 100, input_audio_tokens=500), None, id="unreported audio in the output"),
    pytest.param("gpt-realtime", Usage(1000, 100, 500, input_audio_tokens=5, output_audio_tokens=0), None, id="which is cached"),
    pytest.param("gpt-4o-audio-preview", Usage(1000, 100, input_audio_tokens=1), None, id="audio without a price"),
    pytest.param("gpt-4o-search-preview", Usage(1000, 100), None, id="searches in each call"),
]


@pytest.mark.parametrize(("model", "usage", "usd"), OPENAI)
def test_charges_of_openai(model: str, usage: Usage, usd: str | None) -> None:
    cost = cost_of("openai", model, usage, at=EVENING)
    assert cost.usd == (None if usd is None else Decimal(usd))
    assert bool(cost.reason) is (usd is None)


def test_a_tier_of_another_vendors_list_has_no_price() -> None:
    """Azure's models are priced by OpenAI's list if its own has none, and OpenAI's tiers are not Azure's."""
    assert cost_of("azure", "gpt-5.4-mini", Usage(1000, 100), at=EVENING).usd == Decimal("0.0012")
    assert (
        "service tier priority" in cost_of("azure", "gpt-5.4-mini", Usage(1000, 100, service_tier="priority"), at=EVENING).reason
    )


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("gemini", {"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "trafficType": 10**5000}}),
        ("gemini", {"usageMetadata": {"promptTokenCount": 1, "promptTokensDetails": [{"modality": [1]}, 7]}}),
        ("gemini", {"candidates": [{"groundingMetadata": {"webSearchQueries": 7, "groundingChunks": [7]}}]}),
        ("openai-responses", {"output": [{"type": kind, "call_id": [1]} for kind in ("shell_call", "shell_call_output")]}),
        ("openai-responses", {"usage": {"input_tokens": 1}, "output": [{"type": "web_search_call", "action": 7}], "tools": [7]}),
        ("anthropic", {"usage": {"input_tokens": 1, "iterations": [{"type": [7]}, 7], "speed": 7, "server_tool_use": [7]}}),
        ("anthropic", {"usage": {"input_tokens": 1, "cache_creation": 7}, "content": [{"type": "server_tool_use", "name": [7]}]}),
        (
            "bedrock",
            {"usage": {"inputTokens": 1, "cacheDetails": [{"ttl": [7]}, 7]}, "serviceTier": 7, "trace": {"guardrail": 7}},
        ),
        ("xai", {"usage": {"prompt_tokens": 1, "server_side_tools_used": [7], "trafficType": [7]}, "service_tier": [7]}),
    ],
)
def test_odd_usage_raises_nothing(name: str, body: dict[str, Any]) -> None:
    used = lab.Provider(name, model="m").parse(body).usage
    hash(used)
    assert cost_of(name, "m", used).usd is None


STREAMS = {
    "anthropic": (
        b'{"type":"message_start","message":{"model":"claude-sonnet-4-6","usage":{"input_tokens":10,"output_tokens":1}}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"A long answer"}}',
    ),
    "gemini": (
        b'{"candidates":[{"content":{"parts":[{"text":"A long"}]}}],"modelVersion":"gemini-3.5-flash",'
        b'"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2,"totalTokenCount":12}}',
    ),
    "openai": (
        b'{"choices":[{"delta":{"content":"A"}}],"model":"gpt-5.4-mini",'
        b'"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}',
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_the_usage_of_a_broken_stream_is_partial(name: str) -> None:
    parser = lab.Provider(name, model="m").stream_parser()
    for event in STREAMS[name]:
        parser.feed(b"data: " + event + b"\n\n")
    parser.finish()
    used = parser.response().usage
    assert (used.input_tokens, used.output_tokens) == (10, None)
    assert cost_at(parser.response(), name).usd is None


# Servers -------------------------------------------------------------------------------------------------------------------

ANSWER = {
    "choices": [{"finish_reason": "stop", "message": {"content": "Hi"}}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500},
}


@pytest.mark.parametrize(
    ("address", "model"),
    [
        ("https://api.groq.com/openai/v1", "llama-3.3-70b-versatile"),
        ("https://api.mistral.ai/v1", "mistral-large-latest"),
        ("https://api.deepseek.com", "deepseek-reasoner"),
        ("https://api.together.xyz/v1", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        ("https://api.fireworks.ai/inference/v1", "accounts/fireworks/models/gpt-oss-120b"),
        ("https://api.cerebras.ai/v1", "gpt-oss-120b"),
        ("https://api.moonshot.ai/v1", "kimi-k2.5"),
        ("https://router.huggingface.co/groq/openai/v1", "openai/gpt-oss-120b"),
        ("https://api.openai.com/v1", "gpt-5.4-mini"),
    ],
)
def test_a_compatible_server_is_priced_by_its_address(address: str, model: str) -> None:
    response = lab.Provider("compatible", model=model, base_url=address).parse(ANSWER)
    cost = cost_of("compatible", model, response.usage, at=EVENING, address=address)
    theirs = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=1000, output_tokens=500),
        model,
        provider_api_url=address,
        genai_request_timestamp=EVENING,
    )
    assert (cost.usd, cost.source) == (theirs.total_price, CostSource.PRICED)


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:8080/v1",
        "https://llm.example/v1",
        "https://api.openai.com.llm.example/v1",
        "https://llm.example/https://api.openai.com/v1",
        "https://llm.example/v1.googleapis.com",
        "https://api.moonshot.ai.llm.example/v1",
        "https://me--serve.modal.run/v1",
    ],
)
def test_another_server_is_not_the_vendor(address: str) -> None:
    for name in ("compatible", "openai", "anthropic", "gemini", "azure", "openrouter", "bedrock", "xai"):
        cost = cost_of(name, "gpt-5.4-mini", Usage(1000, 500), at=EVENING, address=address)
        assert cost.usd is None, name
        assert "The price list " in cost.reason, name


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("openai", "gpt-5.4-mini"),
        ("openai-responses", "gpt-5.4-mini"),
        ("anthropic", "claude-sonnet-4-6"),
        ("gemini", "gemini-3.5-flash"),
        ("bedrock", "amazon.nova-micro-v1:0"),
        ("openrouter", "openai/gpt-4.1-mini"),
        ("xai", "grok-4-fast-reasoning"),
    ],
)
def test_the_vendors_own_address_is_the_vendor(name: str, model: str) -> None:
    address = lab.Agent(lab.Provider(name, model=model)).model.address  # type: ignore[attr-defined]
    found = cost_of(name, model, Usage(1000, 500), at=EVENING, address=address)
    assert found.usd is not None
    assert found == cost_of(name, model, Usage(1000, 500), at=EVENING)


# Times ---------------------------------------------------------------------------------------------------------------------


def test_prices_are_those_at_the_time_of_the_call() -> None:
    costs = {at: cost_of("deepseek", "deepseek-flash", Usage(1_000_000, 500_000), at=at).usd for at in (MORNING, EVENING)}
    assert costs == {MORNING: Decimal("0.9"), EVENING: Decimal("0.45")}
    unknown = cost_of("deepseek", "deepseek-flash", Usage(1_000_000, 500_000))
    assert (unknown.usd, "depends on the time of the call" in unknown.reason) == (None, True)


def test_a_recording_without_a_time_has_a_cost_if_the_price_never_changed() -> None:
    cost = cost_of("anthropic", "claude-sonnet-4-6", Usage(1000, 100))
    assert (cost.usd, cost.price_list) == (Decimal("0.0045"), f"genai-prices {genai_prices.__version__}")


def test_hourly_prices_apply_from_the_day_of_their_prices() -> None:
    """The list gives no day for hourly prices; they belong to its newest prices."""
    before, since = (
        cost_of("deepseek", "deepseek-v4-flash", Usage(10, 5), at=at) for at in (datetime(2026, 7, 1, 3, tzinfo=UTC), MORNING)
    )
    assert (before.usd, "at that hour before 2026-09-10" in before.reason) == (None, True)
    assert since.usd is not None
    assert cost_of("deepseek", "deepseek-v4-flash", Usage(10, 5), at=datetime(2026, 7, 1, 20, tzinfo=UTC)).usd is not None


def test_an_updated_price_list_is_used() -> None:
    bundled = data_snapshot.get_snapshot()
    before = cost_of("anthropic", "claude-sonnet-4-6", Usage(1000, 100), at=EVENING)
    only_openai = [one for one in bundled.providers if one.id == "openai"]
    data_snapshot.set_custom_snapshot(data_snapshot.DataSnapshot(only_openai, from_auto_update=True, timestamp=MORNING))
    try:
        assert cost_of("anthropic", "claude-sonnet-4-6", Usage(1000, 100), at=EVENING).usd is None
        found = cost_of("openai", "gpt-5.4-mini", Usage(1000, 100), at=EVENING)
        assert found.price_list == f"genai-prices {genai_prices.__version__} updated 2026-11-23 (prices of 2026-11-23)"
    finally:
        data_snapshot.set_custom_snapshot(None)
    assert cost_of("anthropic", "claude-sonnet-4-6", Usage(1000, 100), at=EVENING) == before


class Clock(datetime):
    """A clock with a fixed time."""

    shows = MORNING

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return cls.shows if tz is not None else cls.shows.replace(tzinfo=None)


def cassette(folder: Path, uri: str, bodies: list[dict[str, Any]], recorded_at: str | None = None) -> Path:
    """Recordings of these answers in one file."""
    interactions = [
        {
            "request": {"method": "POST", "uri": uri, "headers": {}, "body": ""},
            "response": {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": json.dumps(body)}},
            **({"recorded_at": recorded_at} if recorded_at else {}),
        }
        for body in bodies
    ]
    path = folder / "answers.json"
    path.write_text(json.dumps({"version": 1, "interactions": interactions}))
    return path


@pytest.mark.parametrize(
    ("recorded_at", "usd"),
    [("2026-11-23T03:00:00Z", Decimal("0.0009")), ("2026-11-23T20:00:00Z", Decimal("0.00045")), (None, None)],
)
def test_a_replay_costs_the_same_at_any_hour(
    recorded_at: str | None, usd: Decimal | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cassette(tmp_path, "https://api.deepseek.com/chat/completions", [{**ANSWER, "model": "deepseek-flash"}], recorded_at)
    for place in ("genai_prices.types.datetime", "genai_prices.data_snapshot.datetime", "agentlab.engine.ask.datetime"):
        monkeypatch.setattr(place, Clock)
    model = lab.Provider("compatible", model="deepseek-flash", base_url="https://api.deepseek.com")
    costs = []
    for hour in (MORNING, EVENING):
        monkeypatch.setattr(Clock, "shows", hour)
        with lab.replay(path, match="order"):
            result = asyncio.run(finished(lab.Agent(model).run("?")))
        costs.append(result.cost.usd)
        steps = lab.frame(result)
        assert steps["price_list"].notna().all() == (usd is not None)
        assert steps["cost_note"].isna().all() == (usd is not None)
    assert costs == [usd, usd]


async def finished(run: lab.Run) -> lab.RunResult:
    """`await run`, as a coroutine."""
    return await run


# Limits --------------------------------------------------------------------------------------------------------------------


def searching(number: int, **usage: Any) -> dict[str, Any]:
    """An answer that searched, used a one-hour cache, and calls a tool."""
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": {"q": str(number)}}
    return {
        **WRITTEN_AND_SEARCHED,
        "id": f"msg_{number}",
        "content": [call],
        "stop_reason": "tool_use",
        "usage": {**WRITTEN_AND_SEARCHED["usage"], **usage},  # type: ignore[dict-item]
    }


def run_of(folder: Path, bodies: list[dict[str, Any]], **limits: Any) -> lab.RunResult:
    def look(q: str) -> str:
        """Look something up."""
        return q

    path = cassette(folder, "https://api.anthropic.com/v1/messages", bodies)
    agent = lab.Agent("anthropic:claude-opus-5-5", tools=[look])
    with lab.replay(path, match="order"):
        return asyncio.run(finished(agent.run("?", **limits)))


def test_a_budget_stops_a_run_that_searches(tmp_path: Path) -> None:
    result = run_of(tmp_path, [searching(number) for number in range(5)], budget=lab.Budget(max_cost="0.05"))
    assert result.stop_reason is lab.StopReason.COST_BUDGET
    assert (len(result.history), result.cost.usd) == (2, Decimal("0.08008"))
    assert list(lab.frame(result)["web_searches"]) == [3, 3]
    assert list(lab.frame(result)["cache_write_1h_tokens"]) == [1000, 1000]


def test_the_known_part_of_an_unknown_cost_counts_against_the_budget(tmp_path: Path) -> None:
    bodies = [searching(number, inference_geo="us") for number in range(4)]
    with pytest.warns(
        AgentlabWarning,
        match=r"The price of anthropic .* is not known, so only what is known counts toward max_cost\. .*region us\.",
    ):
        result = run_of(tmp_path, bodies, budget=lab.Budget(max_cost="0.02"))
    assert result.stop_reason is lab.StopReason.COST_BUDGET
    assert (result.cost.usd, result.history.known_cost_usd) == (None, Decimal("0.02008"))
    assert len(result.history) == 2
    steps, runs = lab.frame(result), lab.frame(result, "runs")
    assert steps["known_cost_usd"].iloc[-1] == pytest.approx(0.02008)
    assert all("region us" in note for note in [*steps["cost_note"], *runs["cost_note"]])


# Sums and stores -----------------------------------------------------------------------------------------------------------


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    one = Usage(10, 5, web_searches=2, service_tier="flex", also_charged=("images",), source=UsageSource.REPORTED)
    total = add_usage(add_usage(NOTHING_USED, one), replace(one, service_tier="default", also_charged=("images", "code")))
    assert (total.web_searches, total.service_tier, total.also_charged) == (4, "flex, default", ("images", "code"))
    assert total.cache_write_1h_tokens is None
    assert add_usage(total, Usage(1, 1)).web_searches is None
    assert add_usage(NOTHING_USED, NOTHING_USED) == NOTHING_USED


@pytest.mark.parametrize("name", ["runs.sqlite", "runs.jsonl"])
def test_a_store_keeps_all_counts(name: str, tmp_path: Path) -> None:
    store = lab.Store(tmp_path / name)
    bodies = [searching(1, inference_geo="us"), {**searching(2), "stop_reason": "end_turn"}]
    result = run_of(tmp_path, bodies, observers=[store], budget=lab.Budget(max_turns=2))
    again = store.load(result.run_id)
    for kept, made in zip(again.history, result.history, strict=True):
        assert (kept.usage, kept.cost) == (made.usage, made.cost)
        costs = kept.cost, made.cost
        assert len({(cost.reason, cost.price_list, cost.at_least_usd) for cost in costs}) == 1
    assert again.history.known_cost_usd == result.history.known_cost_usd
