"""Costs by the price list: each provider's names, cached and reasoning tokens, and no network."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import genai_prices
import pytest

import agentlab as lab
from agentlab.errors import MissingKeyError
from agentlab.model.pricing import PRICE_BOOK_NAMES, cost_of, misspelling_hint, vendor_of
from agentlab.model.usage import Cost, CostSource, Usage
from agentlab.providers.compatible import PRESETS

M = Decimal(1_000_000)
THEN = datetime(2026, 11, 23, 3, tzinfo=UTC)

PRICES: dict[str, tuple[str, str, tuple[str, str | None, str | None, str]]] = {
    # Our provider, a model by its name in a response: dollars per million tokens of input, cache read, cache write, output.
    "openai": ("openai", "gpt-4.1-mini-2025-04-14", ("0.4", "0.1", None, "1.6")),
    "openai-responses": ("openai-responses", "gpt-5.4-mini-2026-03-17", ("0.75", "0.075", None, "4.5")),
    "anthropic": ("anthropic", "claude-sonnet-4-6", ("3", "0.3", "3.75", "15")),
    "anthropic, dated": ("anthropic", "claude-haiku-4-5-20251001", ("1", "0.1", "1.25", "5")),
    "gemini": ("gemini", "gemini-3.5-flash", ("1.5", "0.15", None, "9")),
    "gemini, with its path": ("gemini", "models/gemini-3.5-flash", ("1.5", "0.15", None, "9")),
    "azure": ("azure", "gpt-4o-2024-11-20", ("2.5", "1.25", None, "10")),
    "azure, another vendor": ("azure", "grok-4-1-fast-non-reasoning", ("0.2", "0.05", None, "0.5")),
    "azure-responses": ("azure-responses", "gpt-5-mini-2025-08-07", ("0.25", "0.025", None, "2")),
    "openrouter": ("openrouter", "openai/gpt-4o", ("2.5", "1.25", None, "10")),
    "openrouter, dated": ("openrouter", "anthropic/claude-4.5-haiku-20251001", ("1", "0.1", "1.25", "5")),
    "openrouter-responses": ("openrouter-responses", "openai/gpt-4.1-mini", ("0.4", "0.1", None, "1.6")),
    "xai": ("xai", "grok-4-fast-reasoning", ("0.2", "0.05", None, "0.5")),
    "xai-responses": ("xai-responses", "grok-code-fast-1", ("0.2", "0.02", None, "1.5")),
    "bedrock": ("bedrock", "amazon.nova-micro-v1:0", ("0.035", "0.00875", None, "0.14")),
    "bedrock, a region": ("bedrock", "us.amazon.nova-micro-v1:0", ("0.035", "0.00875", None, "0.14")),
    "bedrock, the EU": ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", ("3.3", "0.33", "4.125", "16.5")),
    "bedrock, global": ("bedrock", "global.anthropic.claude-sonnet-4-5-20250929-v1:0", ("3", "0.3", "3.75", "15")),
    "bedrock, a profile": (
        "bedrock",
        "arn:aws:bedrock:us-east-1:123456789012:inference-profile/global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ("3", "0.3", "3.75", "15"),
    ),
}
USAGES = {
    "plain": Usage(1000, 500),
    "cache read": Usage(1000, 500, 400, 0),
    "cache unused": Usage(1000, 500, 0, 0),
    "cache unknown": Usage(1000, 500, None, None),
    "cache written": Usage(1000, 500, 400, 100),
    "reasoning": Usage(1000, 500, 0, 0, 450),
    "nothing": Usage(0, 0),
}


@pytest.mark.parametrize(("provider", "model", "prices"), PRICES.values(), ids=PRICES.keys())
def test_prices_equal_those_of_the_list(provider: str, model: str, prices: tuple[str, str | None, str | None, str]) -> None:
    fresh, read, write, out = (None if price is None else Decimal(price) / M for price in prices)
    assert fresh is not None
    assert out is not None
    for what, used in USAGES.items():
        assert used.input_tokens is not None, what
        assert used.output_tokens is not None, what
        reads, writes = used.cache_read_tokens or 0, used.cache_write_tokens or 0
        expected = (
            (used.input_tokens - reads - writes) * fresh
            + reads * (fresh if read is None else read)
            + writes * (fresh if write is None else write)
            + used.output_tokens * out  # reasoning is part of it
        )
        assert cost_of(provider, model, used, at=THEN) == Cost(expected, CostSource.PRICED), what


@pytest.mark.parametrize(
    ("provider", "model", "used"),
    [
        pytest.param("openai", "gpt-4.1-mini", Usage(None, 5, 3), id="cache known, input unknown"),
        pytest.param("openai", "gpt-4.1-mini", Usage(None, None, 3, 3, 3), id="parts known, sums unknown"),
        pytest.param("openai", "gpt-4.1-mini", Usage(5, None, 3), id="output unknown"),
        pytest.param("openai", "gpt-4.1-mini", Usage(), id="nothing known"),
        pytest.param("openai", "gpt-4.1-mini", Usage(10, 5, 11), id="more from the cache than the input"),
        pytest.param("openai", "no-such-model", Usage(1, 1), id="unknown model"),
        pytest.param("openai", "", Usage(1, 1), id="no model"),
        pytest.param("azure", "my-deployment", Usage(1, 1), id="a deployment's name"),
        pytest.param(
            "bedrock", "arn:aws:bedrock:us-east-1:1:application-inference-profile/a1b2", Usage(1, 1), id="a custom profile"
        ),
        pytest.param("openrouter", "deepseek/deepseek-chat-v3.1:free", Usage(1, 1), id="a variant of a model"),
        pytest.param("compatible", "gpt-4.1-mini", Usage(1, 1), id="an unknown server"),
        pytest.param("compatible-responses", "gpt-4.1-mini", Usage(1, 1), id="an unknown server, Responses"),
        pytest.param("my-openai-proxy", "gpt-4.1-mini", Usage(1, 1), id="a name that contains another"),
    ],
)
def test_unknown_is_not_zero(provider: str, model: str, used: Usage) -> None:
    assert cost_of(provider, model, used) == Cost(None, CostSource.UNKNOWN)


def test_a_custom_provider_is_priced_by_its_name() -> None:
    assert cost_of("groq", "llama-3.3-70b-versatile", Usage(1000, 500)).source is CostSource.PRICED


def test_every_provider_is_in_the_list_or_known_to_be_missing() -> None:
    known = {provider.id for provider in genai_prices.data_snapshot.get_snapshot().providers}
    for name in sorted(lab.capabilities()):
        seller = next((preset.prices for preset in PRESETS if preset.name == name), PRICE_BOOK_NAMES.get(name, ""))
        assert name.startswith("compatible") or PRICE_BOOK_NAMES.get(name, name) == (seller or name), name
        assert not seller or any(name == seller or name.startswith(f"{seller}_") for name in known), name


# From a response to its cost -----------------------------------------------------------------------------------------------


def chat(**usage: Any) -> dict[str, Any]:
    return {"model": usage.pop("model"), "choices": [{"finish_reason": "stop", "message": {"content": "Hi"}}], "usage": usage}


REASONED = {"completion_tokens_details": {"reasoning_tokens": 100}}
ANSWERED: dict[str, tuple[str, dict[str, Any], str]] = {
    "openai: cached is part of the prompt, reasoning of the completion": (
        "openai",
        chat(
            model="gpt-4.1-mini",
            prompt_tokens=1000,
            completion_tokens=500,
            total_tokens=1500,
            prompt_tokens_details={"cached_tokens": 400},
            **REASONED,
        ),
        "0.00108",  # 600 × 0.4 + 400 × 0.1 + 500 × 1.6
    ),
    "xai: reasoning comes on top of the completion": (
        "xai",
        chat(
            model="grok-4-fast-reasoning",
            prompt_tokens=1000,
            completion_tokens=500,
            total_tokens=1600,
            prompt_tokens_details={"cached_tokens": 400},
            **REASONED,
        ),
        "0.00044",  # 600 × 0.2 + 400 × 0.05 + 600 × 0.5
    ),
    "azure: the response names the model, not the deployment": (
        "azure",
        chat(model="gpt-4o-2024-11-20", prompt_tokens=1000, completion_tokens=500, total_tokens=1500),
        "0.0075",
    ),
    "openrouter without a cost: a cache that was written": (
        "openrouter",
        chat(
            model="anthropic/claude-haiku-4.5",
            prompt_tokens=1000,
            completion_tokens=500,
            prompt_tokens_details={"cached_tokens": 400, "cache_write_tokens": 100},
        ),
        "0.003165",  # 500 × 1 + 400 × 0.1 + 100 × 1.25 + 500 × 5
    ),
    "anthropic: caches come on top of the input": (
        "anthropic",
        {
            "model": "claude-sonnet-4-6",
            "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Hi"}],
            "usage": {
                "input_tokens": 500,
                "cache_read_input_tokens": 400,
                "cache_creation_input_tokens": 100,
                "output_tokens": 500,
                "output_tokens_details": {"thinking_tokens": 100},
            },
        },
        "0.009495",  # 500 × 3 + 400 × 0.3 + 100 × 3.75 + 500 × 15
    ),
    "gemini: thoughts come on top of the candidates": (
        "gemini",
        {
            "modelVersion": "gemini-3.5-flash",
            "candidates": [{"finishReason": "STOP", "content": {"parts": [{"text": "Hi"}]}}],
            "usageMetadata": {
                "promptTokenCount": 1000,
                "cachedContentTokenCount": 400,
                "candidatesTokenCount": 400,
                "thoughtsTokenCount": 100,
                "totalTokenCount": 1500,
            },
        },
        "0.00546",  # 600 × 1.5 + 400 × 0.15 + 500 × 9
    ),
}


@pytest.mark.parametrize(("name", "body", "usd"), ANSWERED.values(), ids=ANSWERED.keys())
def test_from_a_response_to_its_cost(name: str, body: dict[str, Any], usd: str) -> None:
    found = lab.Provider(name, model="asked-for", base_url="http://h").parse(body)
    assert found.usage.reasoning_tokens == (
        100 if "100" in json.dumps(body) and name in ("openai", "xai", "anthropic", "gemini") else None
    )
    assert found.cost_usd is None
    assert cost_of(name, found.model or "asked-for", found.usage) == Cost(Decimal(usd), CostSource.PRICED)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param({"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}, (10, 5, 4, None, None), id="DeepSeek"),
        pytest.param({"cached_tokens": 4}, (10, 5, 4, None, None), id="cached at the top"),
        pytest.param({"num_cached_tokens": 4}, (10, 5, 4, None, None), id="Mistral"),
        pytest.param(
            {"cache_read_input_tokens": 4, "cache_creation_input_tokens": 2},
            (10, 5, 4, 2, None),
            id="Anthropic's names on this wire",
        ),
        pytest.param({"reasoning_tokens": 3, "total_tokens": 15}, (10, 5, None, None, 3), id="reasoning at the top"),
        pytest.param({"reasoning_tokens": 3, "total_tokens": 18}, (10, 8, None, None, 3), id="reasoning at the top, and on it"),
        pytest.param(
            {"prompt_tokens_details": {"cached_tokens": 0}, "cached_tokens": 4}, (10, 5, 0, None, None), id="details win"
        ),
    ],
)
def test_alternative_names_of_usage_fields(usage: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    body = chat(model="m", prompt_tokens=10, completion_tokens=5, **usage)
    found = lab.Provider("compatible", model="m", base_url="http://h").parse(body).usage
    assert (
        found.input_tokens,
        found.output_tokens,
        found.cache_read_tokens,
        found.cache_write_tokens,
        found.reasoning_tokens,
    ) == expected


@pytest.mark.parametrize(
    ("cost", "usd"),
    [
        (0.25, "0.25"),
        ({"usd": 0.25, "credits": 5}, "0.25"),
        ({"total_cost": 0.25}, "0.25"),
        ({"credits": 5}, None),
        ([0.25], None),
    ],
)
def test_a_server_may_report_its_cost(cost: Any, usd: str | None) -> None:
    body = chat(model="m", prompt_tokens=10, completion_tokens=5, cost=cost)
    found = lab.Provider("compatible", model="m", base_url="http://h").parse(body)
    assert found.cost_usd == (None if usd is None else Decimal(usd))


@pytest.mark.parametrize(
    ("name", "reports"),
    [("openrouter", True), ("xai", True), ("compatible", True), ("azure", False), ("openai", False), ("anthropic", False)],
)
def test_which_providers_report_a_cost(name: str, reports: bool) -> None:
    assert lab.capabilities(name).reports_cost is reports


# No network ----------------------------------------------------------------------------------------------------------------

OFFLINE = """
import socket, threading
def refuse(*args, **kwargs):
    raise AssertionError("a socket was asked for")
socket.socket.__init__ = refuse
socket.create_connection = socket.getaddrinfo = refuse
before = threading.enumerate()
from agentlab.model.pricing import cost_of
from agentlab.model.usage import Usage
for model in ("gpt-4.1-mini", "no-such-model"):
    print(cost_of("openai", model, Usage(1000, 500)).source)
assert threading.enumerate() == before, threading.enumerate()
from genai_prices import data_snapshot, update_prices
assert data_snapshot._custom_snapshot is None
"""


def test_pricing_opens_no_socket_and_starts_no_thread() -> None:
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["priced", "unknown"], "")


@pytest.mark.parametrize(
    ("provider", "model", "meant"),
    [
        ("openai", "gpt-5.4-minii", "gpt-5.4-mini"),
        ("openai-responses", "gpt5.4-mini", "gpt-5.4-mini"),
        ("anthropic", "claude-sonet-4-6", "claude-sonnet-4-6"),
        ("openai", "gpt-5.4-mini", None),
        ("anthropic", "claude-sonnet-4.6", None),  # another spelling in the price list
        ("gemini", "models/gemini-3.5-flash", None),
        ("mistral", "codestrl", None),  # the price list's "codestral" is the name of an entry, and of no model
        ("openai", "ft:my-own-model", None),  # similar to no name: not a typing error
        ("compatible", "gpt-5.4-minii", None),  # a custom server may use any model name
    ],
)
def test_a_mistyped_model_is_mentioned(provider: str, model: str, meant: str | None) -> None:
    hint = misspelling_hint(provider, model)
    assert hint == ("" if meant is None else f" And the price list has no {model!r} of {provider}: did you mean {meant!r}?")


async def shown_fields(model: str) -> str:
    """Return the answer of a model to a greeting."""
    return (await lab.Agent(model).run("Hello.")).text


def test_a_missing_key_mentions_a_mistyped_model(monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(MissingKeyError) as caught:
        asyncio.run(shown_fields("openai:gpt-5.4-minii"))
    assert "OPENAI_API_KEY" in str(caught.value)
    assert str(caught.value).endswith("did you mean 'gpt-5.4-mini'?")
    assert caught.value.__cause__ is None
    with pytest.raises(MissingKeyError) as caught:
        asyncio.run(shown_fields("openai:gpt-5.4-mini"))
    assert "price book" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "vendor"),
    [("gpt-5.4-mini", "openai"), ("claude-sonnet-4-6", "anthropic"), ("gemini-3.5-flash", "gemini"), ("llama3", None)],
)
def test_the_vendor_of_a_model(model: str, vendor: str | None) -> None:
    assert vendor_of(model) == vendor
    with pytest.raises(lab.errors.UnknownProviderError, match=f"e.g. '{vendor}:{model}'" if vendor else "e.g. 'openai:"):
        lab.Agent(model)
