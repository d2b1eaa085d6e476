"""The usage and cost of a call."""

from __future__ import annotations

from decimal import Decimal

import genai_prices
import pytest

from agentlab.model.pricing import PRICE_BOOK_NAMES, cost_of
from agentlab.model.usage import Cost, CostSource, Usage

USED = Usage(1000, 500, 100, 0, 50)
COSTS: dict[str, tuple[str, str, Usage, Decimal | None, CostSource]] = {
    "reported-wins": ("openai", "gpt-4.1-mini", USED, Decimal("0.5"), CostSource.REPORTED),
    "reported-nothing": ("openai", "gpt-4.1-mini", USED, Decimal(0), CostSource.REPORTED),
    "reported-without-usage": ("openai", "gpt-4.1-mini", Usage(), Decimal("0.5"), CostSource.REPORTED),
    "priced-openai": ("openai", "gpt-4.1-mini", USED, None, CostSource.PRICED),
    "priced-anthropic": ("anthropic", "claude-sonnet-4-5", USED, None, CostSource.PRICED),
    "priced-gemini": ("gemini", "gemini-2.5-flash", USED, None, CostSource.PRICED),
    "unknown-model": ("openai", "no-such-model", USED, None, CostSource.UNKNOWN),
    "unknown-provider": ("compatible", "my-own-model", USED, None, CostSource.UNKNOWN),
    "unknown-usage": ("openai", "gpt-4.1-mini", Usage(), None, CostSource.UNKNOWN),
    "half-of-the-usage": ("openai", "gpt-4.1-mini", Usage(1000, None), None, CostSource.UNKNOWN),
    "impossible-usage": ("openai", "gpt-4.1-mini", Usage(10, 5, 1000, 0), None, CostSource.UNKNOWN),
}


@pytest.mark.parametrize(("provider", "model", "used", "reported", "source"), COSTS.values(), ids=COSTS.keys())
def test_a_cost_and_its_source(provider: str, model: str, used: Usage, reported: Decimal | None, source: CostSource) -> None:
    cost = cost_of(provider, model, used, reported)
    assert cost.source is source
    assert isinstance(cost.usd, Decimal) is (source is not CostSource.UNKNOWN)
    if source is CostSource.REPORTED:
        assert cost.usd == reported
    if source is CostSource.PRICED:
        assert Decimal(0) < (cost.usd or 0) < Decimal("0.1")
    if source is CostSource.UNKNOWN:
        assert cost == Cost(None, CostSource.UNKNOWN)


def test_cached_tokens_are_part_of_the_input_and_cheaper() -> None:
    plain = cost_of("anthropic", "claude-sonnet-4-5", Usage(1000, 0)).usd
    cached = cost_of("anthropic", "claude-sonnet-4-5", Usage(1000, 0, 900, 0)).usd
    assert plain is not None
    assert cached is not None
    assert cached < plain


def test_our_provider_names_are_in_the_price_list() -> None:
    known = {provider.id for provider in genai_prices.data_snapshot.get_snapshot().providers}
    assert set(PRICE_BOOK_NAMES.values()) | {"openai", "anthropic"} <= known


@pytest.mark.parametrize(
    ("used", "total", "known"),
    [(Usage(3, 4), 7, 7), (Usage(3, None), None, 3), (Usage(None, 4), None, 4), (Usage(), None, 0), (Usage(0, 0), 0, 0)],
    ids=str,
)
def test_total_and_known_tokens(used: Usage, total: int | None, known: int) -> None:
    assert (used.total_tokens, used.known_tokens) == (total, known)
