"""Recorded usage at other prices: the recorded cost for the same model, and genai-prices' own arithmetic for others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import genai_prices
import pandas as pd
import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.model.usage import Usage, UsageSource
from agentlab.testing import ScriptedProvider, say
from tests.fixtures.scenarios import ALL, Fixture

AT = datetime(2026, 11, 1, tzinfo=UTC)


def runs_of(fixture: Fixture) -> list[Any]:
    async def replayed() -> list[Any]:
        with lab.replay(fixture.recordings):
            agent, question = fixture.agent(), fixture.scenario.question
            return [await agent.run(question, stop=take.stop, budget=take.budget) for take in fixture.scenario.takes]

    return asyncio.run(replayed())


@pytest.mark.parametrize("fixture", ALL, ids=lambda fixture: fixture.id)
def test_the_same_model_costs_what_was_recorded(fixture: Fixture) -> None:
    for run in runs_of(fixture):
        found = lab.reprice(run, f"{run.provider}:{run.model}", per="run")
        if len(found) and pd.notna(found["repriced_usd"][0]):
            assert found["repriced_usd"][0] == pytest.approx(run.history.cost_usd and float(found["cost_usd"][0]))
            assert pd.isna(found["assumptions"][0])


@pytest.mark.parametrize(("provider", "theirs", "model"), [
    ("openai", "openai", "gpt-5.4-mini"), ("anthropic", "anthropic", "claude-sonnet-4-6"), ("gemini", "google", "gemini-2.5-pro"),
])  # fmt: skip
def test_another_model_costs_what_genai_prices_computes(provider: str, theirs: str, model: str) -> None:
    runs = [run for fixture in ALL[:9] for run in runs_of(fixture)]
    found = lab.reprice(runs, f"{provider}:{model}", per="run", at=AT).set_index("run_id")
    for run in runs:
        costs = [
            genai_prices.calc_price(
                genai_prices.Usage(
                    input_tokens=call.usage.input_tokens,
                    output_tokens=call.usage.output_tokens,
                    cache_read_tokens=call.usage.cache_read_tokens,
                    cache_write_tokens=call.usage.cache_write_tokens,
                ),
                model,
                provider_id=theirs,
                genai_request_timestamp=AT,
            ).total_price
            for step in run.history
            for call in step.calls
        ]
        repriced = found["repriced_usd"][run.run_id]
        assert pd.isna(repriced) or repriced == pytest.approx(float(sum(costs)))
    assert found["repriced_usd"].notna().sum() >= len(runs) / 2


def steps(**more: Any) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "run_id": ["a", "a", "b"], "step": [1, 2, 1], "provider": "openai", "model": "gpt-5.4-mini", "calls": 1,
        "input_tokens": [1000, 2000, 300_000], "output_tokens": [10, 20, 30], "reasoning_tokens": 0, "cache_read_tokens": 0,
        "cache_write_tokens": 0, "cost_usd": [0.001, 0.002, None],
    }  # fmt: skip
    return pd.DataFrame({**columns, **more})


def test_prices_of_long_prompts_apply_call_by_call() -> None:
    """Gemini 2.5 Pro: $1.25 and $10 per million tokens up to 200,000 of input, $2.50 and $15 above."""
    found = lab.reprice(steps(), "gemini:gemini-2.5-pro", per="run", at=AT)
    assert found["repriced_usd"].to_list() == pytest.approx([(3000 * 1.25 + 30 * 10) / 1e6, (300_000 * 2.5 + 30 * 15) / 1e6])
    together = lab.reprice(steps(calls=2), "gemini:gemini-2.5-pro", per="run", at=AT)
    assert together["repriced_usd"].notna().to_list() == [True, False]
    assert "depends on the length of each prompt" in together["unknown"][1]


def test_the_calls_of_a_step_are_priced_one_by_one() -> None:
    """Each of the two calls is below Gemini's 200,000, their sum is above."""
    half = Usage(150_000, 10, source=UsageSource.REPORTED)
    cut_off = replace(say("The rest", finish=lab.FinishReason.MAX_TOKENS), usage=half)
    model = ScriptedProvider([cut_off, replace(say(" is here."), usage=half)])
    result = asyncio.run(ended(lab.Agent(model)))
    assert result.history[0].usage.input_tokens == 300_000
    found = lab.reprice(result, "gemini:gemini-2.5-pro", at=AT)
    assert found["repriced_usd"][0] == pytest.approx((300_000 * 1.25 + 20 * 10) / 1e6)
    assert lab.reprice(iter([result]), "gemini:gemini-2.5-pro", at=AT).equals(found)
    assert pd.isna(lab.reprice(result.to_frame(), "gemini:gemini-2.5-pro", at=AT)["repriced_usd"][0])


async def ended(agent: lab.Agent) -> lab.RunResult:
    return await agent.run("?")


FURTHER: dict[str, dict[str, Any]] = {
    "a cache for an hour": {"cache_write_tokens": 50_000, "cache_write_1h_tokens": 50_000},
    "searches": {"web_searches": 3},
    "a part of the cache for an hour": {"cache_read_tokens": 10, "cache_write_tokens": 900, "cache_write_1h_tokens": 400},
}


@pytest.mark.parametrize("more", FURTHER.values(), ids=FURTHER.keys())
def test_further_charges_are_priced(more: dict[str, Any]) -> None:
    usage = Usage(100_000, 1_000, source=UsageSource.REPORTED, **more)
    result = asyncio.run(ended(lab.Agent(ScriptedProvider([replace(say("x"), usage=usage)]))))
    theirs = genai_prices.Usage(input_tokens=100_000, output_tokens=1_000, **more)
    price = genai_prices.calc_price(theirs, "claude-sonnet-4-6", provider_id="anthropic", genai_request_timestamp=AT).total_price
    for given in (result, result.to_frame()):
        found = lab.reprice(given, "anthropic:claude-sonnet-4-6", at=AT)
        assert found["repriced_usd"][0] == pytest.approx(float(price))


def test_a_charge_without_a_price_is_unknown() -> None:
    usage = Usage(100, 10, source=UsageSource.REPORTED, also_charged=("code execution",))
    result = asyncio.run(ended(lab.Agent(ScriptedProvider([replace(say("x"), usage=usage)]))))
    found = lab.reprice(result, "anthropic:claude-sonnet-4-6", at=AT)
    assert pd.isna(found["repriced_usd"][0]) and "code execution" in found["unknown"][0]


def test_the_tier_is_that_of_the_vendor_or_named_as_an_assumption() -> None:
    """A batch costs half at Anthropic; another vendor's standard price is used, and says so."""
    usage = Usage(100_000, 1_000, source=UsageSource.REPORTED, service_tier="batch")
    model = ScriptedProvider([replace(say("x"), usage=usage)], name="anthropic", model="claude-sonnet-4-6")
    result = asyncio.run(ended(lab.Agent(model)))
    found = lab.reprice(result, ["anthropic:claude-sonnet-4-6", "openai:gpt-5.4-mini"], at=AT)
    price = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=100_000, output_tokens=1_000),
        "gpt-5.4-mini",
        provider_id="openai",
        genai_request_timestamp=AT,
    ).total_price
    assert found["repriced_usd"].to_list() == pytest.approx([(100_000 * 3 + 1_000 * 15) / 2e6, float(price)])
    assert pd.isna(found["assumptions"][0]) and found["assumptions"][1].endswith("; the standard tier")


def test_unknown_stays_unknown() -> None:
    whole = lab.reprice(steps(), ["gemini:gemini-2.5-pro", "openai:no-such-model"], at=AT)
    assert whole[["runs", "unknown_runs"]].to_numpy().tolist() == [[2, 0], [2, 2]]
    assert whole["cost_usd"].isna().all()
    assert whole["repriced_usd"].notna().to_list() == [True, False]
    assert whole["ratio"].isna().all()
    assert whole["unknown"].notna().to_list() == [False, True]
    no_usage = lab.reprice(steps(output_tokens=[10, None, 30]), "gemini:gemini-2.5-pro", per="run", at=AT)
    assert no_usage["repriced_usd"].notna().to_list() == [False, True]


def test_an_unknown_model_is_no_text_and_a_model_that_is_given_twice_is_one() -> None:
    unknown = steps(provider=pd.NA, model=pd.NA)
    for per, rows in (("group", 1), ("run", 2)):
        found = lab.reprice(unknown, ["openai:gpt-5.4-mini"] * 2, per=per)
        assert len(found) == rows and found[["provider", "model"]].isna().all(axis=None)
        assert found["assumptions"].str.contains("the tokenizer of the recorded model").all()


def test_assumptions_are_named() -> None:
    found = lab.reprice(steps(cache_read_tokens=[0, 500, 0]), "anthropic:claude-sonnet-4-6", at=AT)["assumptions"][0]
    assert found == "the same prompts, answers and steps; token counts by the tokenizer of gpt-5.4-mini; the same tokens cached"


def test_a_provider_of_ones_own_address_is_priced_by_it() -> None:
    local = lab.Provider("compatible", base_url="http://127.0.0.1:8080/v1", model="gpt-5.4-mini")
    assert lab.reprice(steps(), local, at=AT)["repriced_usd"].isna().all()


def test_the_day_of_the_prices_may_be_a_date_or_text() -> None:
    of = [
        lab.reprice(steps(), "openai:gpt-5.4-mini", at=at)["repriced_usd"].tolist()
        for at in (date(2026, 6, 1), "2026-06-01", datetime(2026, 6, 1))
    ]
    assert of[0] == of[1] == of[2]
    with pytest.raises(ConfigurationError, match="at='yesterday': pass a day, such as '2026-06-01'"):
        lab.reprice(steps(), "openai:gpt-5.4-mini", at="yesterday")


@pytest.mark.parametrize("models", ["gpt-5.4-mini", "openai:", [5], []])
def test_invalid_models_are_refused(models: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"provider:model|pass at least one"):
        lab.reprice(steps(), models)
