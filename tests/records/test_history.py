"""Running totals against naive sums."""

from __future__ import annotations

from decimal import Decimal

import pytest
from engine.builders import step, steps
from hypothesis import given
from hypothesis import strategies as st

from agentlab.model.finish_reasons import FinishReason
from agentlab.model.usage import NOTHING_USED, Cost, CostSource, Usage, UsageSource
from agentlab.records.history import RunHistory

counts = st.one_of(st.none(), st.integers(0, 10**9))
amounts = st.one_of(st.none(), st.decimals(0, 100, places=9).map(str))
tool_lists = st.lists(st.sampled_from(["look", "finalize"]), max_size=2)
made_steps = st.lists(
    st.tuples(st.tuples(counts, counts), amounts, tool_lists, st.integers(1, 3), st.sampled_from(FinishReason)), max_size=8
).map(
    lambda rows: [
        step(index, tokens=tokens, cost=cost, tools=tools, calls=calls, finish=finish)
        for index, (tokens, cost, tools, calls, finish) in enumerate(rows, 1)
    ]
)


def naive(values: list[int | None]) -> int | None:
    return None if any(value is None for value in values) else sum(value for value in values if value is not None)


@given(made_steps)
def test_totals_equal_naive_sums(made: list) -> None:
    history = RunHistory(made)
    calls = [call for each in made for call in each.calls]
    assert len(history) == len(made)
    assert history.calls == len(calls)
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"):
        assert getattr(history.usage, name) == naive([getattr(call.usage, name) for call in calls])
    assert history.tokens == naive([call.usage.total_tokens for call in calls])
    assert history.known_tokens == sum((call.usage.input_tokens or 0) + (call.usage.output_tokens or 0) for call in calls)
    costs = [call.cost.usd for call in calls]
    assert history.known_cost_usd == sum((cost for cost in costs if cost is not None), Decimal(0))
    assert history.cost_usd == (None if None in costs else history.known_cost_usd)
    assert (history.cost.source is CostSource.UNKNOWN) is (None in costs)
    for name in ("look", "finalize", "none"):
        assert history.tool_count(name) == sum(tool.name == name for call in calls for tool in call.response.tool_calls)
    for reason in FinishReason:
        assert history.has_finish(reason) is any(call.response.signal.finish_reason is reason for call in calls)


@given(made_steps, st.integers(0, 8))
def test_a_prefix_equals_the_history_at_that_time(made: list, length: int) -> None:
    history, begun = RunHistory(made), RunHistory(made[:length])
    prefix = history.prefix(length)
    assert list(prefix) == list(begun) == list(history[:length])
    for name in ("usage", "cost", "calls", "known_tokens", "known_cost_usd", "elapsed_s"):
        assert getattr(prefix, name) == getattr(begun, name)
    prefix.append(step(length + 1))
    assert list(history) == made


def test_money_is_exact() -> None:
    assert steps(10, cost="0.1").cost_usd == Decimal(1)
    assert steps(3, cost="0.000000001").cost_usd == Decimal("0.000000003")


def test_no_calls_use_zero_tokens() -> None:
    empty = RunHistory()
    assert (empty.tokens, empty.cost_usd, empty.calls, empty.elapsed_s) == (0, 0, 0, 0)
    assert empty.last is None
    assert empty.cost.source is CostSource.REPORTED


def test_unknown_stays_unknown() -> None:
    history = RunHistory([step(1), step(2, tokens=(10, None)), step(3)])
    assert history.tokens is None
    assert (history.usage.input_tokens, history.usage.output_tokens) == (30, None)
    assert history.known_tokens == 40
    assert history.usage.source is UsageSource.UNKNOWN
    assert "unknown tokens" in repr(history)


SOURCES = list(UsageSource)


@pytest.mark.parametrize("left", SOURCES)
@pytest.mark.parametrize("right", SOURCES)
def test_the_source_of_a_sum_is_its_weakest(left: UsageSource, right: UsageSource) -> None:
    from agentlab.model.usage import add_usage

    total = add_usage(Usage(1, 1, source=left), Usage(1, 1, source=right))
    assert total.source is SOURCES[max(SOURCES.index(left), SOURCES.index(right))]


@given(made_steps)
def test_the_usage_of_steps_adds_up_to_that_of_the_history(made: list) -> None:
    history = RunHistory(made)
    assert sum((each.cost for each in made), Cost(Decimal(0), CostSource.REPORTED)) == history.cost
    assert sum((each.usage for each in made), NOTHING_USED) == history.usage
    if made:
        total = sum(each.cost for each in made)
        assert (total, total.known_usd) == (history.cost, history.known_cost_usd)
        assert sum(each.usage for each in made).total_tokens == history.tokens == naive([each.total_tokens for each in made])


@pytest.mark.parametrize("other", [None, Usage(1, 1)])
def test_only_costs_and_dollars_add_to_a_cost(other: object) -> None:
    cost = Cost(Decimal(1), CostSource.REPORTED)
    assert 0 + cost == cost + 0 == cost
    assert 1 + cost == cost + 1.0 == cost + Decimal(1) == Decimal(2)
    with pytest.raises(TypeError, match="unsupported operand"):
        cost + other  # type: ignore[operator]
    with pytest.raises(TypeError, match="unsupported operand"):
        other + cost  # type: ignore[operator]


def test_a_history_is_a_sequence() -> None:
    history = steps(3)
    assert [each.index for each in history] == [1, 2, 3]
    assert history[-1] is history.last
    assert [each.index for each in history[1:]] == [2, 3]
    assert history[0] in history
    assert [each.index for each in reversed(history)] == [3, 2, 1]
    with pytest.raises(IndexError):
        history[3]


def test_totals_do_not_depend_on_the_length_of_the_history() -> None:
    """Totals are not computed from the steps: a history whose steps are removed still has them."""
    history = steps(100, cost="0.01", tools=["look"])
    history._steps.clear()
    assert (history.tokens, history.cost_usd, history.calls) == (1500, 1, 100)
    assert history.tool_count("look") == 100
    assert history.has_finish(FinishReason.END_TURN)
