"""The usage and cost of a call."""

from __future__ import annotations

from decimal import Decimal

import genai_prices
import pytest

from agentlab.errors import AgentlabError
from agentlab.model.finish_reasons import Confidence
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


# A cost as a number -----------------------------------------------------------------------------------------------------------


def dollars(text: str, source: CostSource = CostSource.REPORTED) -> Cost:
    return Cost(Decimal(text), source)


UNKNOWN = Cost(reason="the price of my-model is not listed", at_least_usd=Decimal("0.02"))


@pytest.mark.parametrize("other", [0.50, Decimal("0.50"), dollars("0.50", CostSource.PRICED)], ids=["float", "Decimal", "Cost"])
def test_a_known_cost_compares_as_its_number_of_dollars(other: float | Decimal | Cost) -> None:
    below, at, above = dollars("0.49"), dollars("0.50"), dollars("0.51")
    assert [one >= other for one in (below, at, above)] == [False, True, True]
    assert [one > other for one in (below, at, above)] == [False, False, True]
    assert [one <= other for one in (below, at, above)] == [True, True, False]
    assert [one < other for one in (below, at, above)] == [True, False, False]
    assert other <= above
    assert max(below, above, at) is above


def test_the_sum_of_costs_is_a_number_of_dollars() -> None:
    steps = [dollars("0.2"), dollars("0.3", CostSource.PRICED)]
    assert sum(steps) >= 0.50
    assert sum(steps) == 0.5
    assert {sum(steps): 1}[Decimal("0.5")] == 1  # type: ignore[index]  # equal values have equal hashes
    assert f"${sum(steps):.4f}" == "$0.5000"
    assert f"{dollars('0.014346')}" == "0.014346"
    assert float(dollars("0.25")) == 0.25
    assert dollars("0.25") + 0.5 == dollars("0.75")
    assert sum(steps, 0.0) == 0.5
    assert dollars("0.1") != "0.1"
    assert dollars("0.1") >= 0.1  # the float is a little more than a tenth
    assert dollars("0.1") == 0.1
    assert f"{dollars('0.1'):>10.2f}" == "      0.10"


@pytest.mark.parametrize("amount", [0.2, 0.05, 0.1, 0.014346, 1e-07, 3.3])
def test_a_cost_at_a_limit_that_is_a_float_has_reached_it(amount: float) -> None:
    cost = dollars(str(amount))
    assert cost >= amount >= cost
    assert cost == amount
    assert not cost > amount
    assert not cost < amount
    assert cost + amount == 2 * Decimal(str(amount))


def test_an_unknown_cost_is_no_number() -> None:
    assert sum([dollars("0.2"), UNKNOWN]).usd is None
    assert f"${UNKNOWN:.4f}" == "$unknown"
    assert f"{UNKNOWN:>10.4f}" == "   unknown"
    for use in (lambda: UNKNOWN >= 0.5, lambda: dollars("0.5") < UNKNOWN, lambda: float(UNKNOWN), lambda: max(UNKNOWN, UNKNOWN)):
        with pytest.raises(
            AgentlabError, match=r"unknown: the price of my-model is not listed\..* 0\.02 .*history\.known_cost_usd"
        ):
            use()
    assert UNKNOWN != 0
    for other in ("0.6", True, None):
        with pytest.raises(TypeError):
            dollars("0.5") < other  # type: ignore[operator]  # noqa: B015


def test_confidence_is_ordered() -> None:
    assert Confidence.LOW < Confidence.MEDIUM < Confidence.HIGH
    assert max(Confidence) is Confidence.HIGH
    assert sorted(Confidence) == [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]
    assert Confidence.MEDIUM >= "medium" > Confidence.LOW
    assert not Confidence.HIGH <= Confidence.LOW
