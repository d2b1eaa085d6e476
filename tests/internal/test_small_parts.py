"""Prices, the conversation, the clock, errors: small parts of a run."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import genai_prices
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab import errors
from agentlab.engine.timeline import Clock
from agentlab.model.conversation import Conversation, ConversationView, encode_messages
from agentlab.model.messages import Message, ToolCall, ToolResult
from agentlab.model.pricing import PRICE_BOOK_NAMES, cost_of
from agentlab.model.usage import Cost, CostSource, Usage

# Prices ---------------------------------------------------------------------------------------------------------------------

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


# The conversation -------------------------------------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    return message.text.encode()


@given(st.lists(st.one_of(st.text(max_size=3), st.none()), max_size=12))
def test_views_do_not_change_and_every_message_is_encoded_once(actions: list[str | None]) -> None:
    """A text is appended; None encodes all messages."""
    conversation, views, encoded = Conversation(), [], []

    def counting(message: Message) -> bytes:
        encoded.append(message)
        return encode(message)

    for action in actions:
        if action is None:
            view = conversation.view()
            views.append((view, list(conversation)))
            assert view.encoded("wire", counting) == [encode(message) for message in conversation]
        else:
            conversation.append(Message("user", action))
    for view, before in reversed(views):
        assert list(view) == before == view[:]
        assert len(view) == len(before)
        assert encode_messages(view, "wire", counting) == [encode(message) for message in before]
    assert len(encoded) == max((len(before) for _, before in views), default=0)


def test_a_view_is_a_read_only_sequence() -> None:
    conversation = Conversation([Message("user", text) for text in "abc"])
    view = conversation.view()
    conversation.append(Message("user", "d"))
    assert isinstance(view, Sequence)
    assert not hasattr(view, "append")
    assert [view[0].text, view[-1].text, view[2].text] == ["a", "c", "c"]
    assert [message.text for message in view[1:]] == ["b", "c"]
    for index in (3, -4):
        with pytest.raises(IndexError):
            view[index]
    assert isinstance(conversation[-1], Message)
    assert encode_messages([Message("user", "x")], "wire", encode) == [b"x"]
    assert type(view) is ConversationView


def test_each_wire_has_its_own_encoding() -> None:
    conversation = Conversation([Message("user", "a")])
    assert conversation.view().encoded("one", encode) == [b"a"]
    assert conversation.view().encoded("two", lambda message: b"other") == [b"other"]


@pytest.mark.parametrize("done", range(4))
def test_open_calls_are_answered_in_order(done: int) -> None:
    calls = tuple(ToolCall(f"c{index}", "look", "{}") for index in range(3))
    conversation = Conversation([Message("user", "go"), Message("assistant", tool_calls=calls)])
    results: Any = [ToolResult(call.id, "look", "seen") for call in calls][:done]
    conversation.answer_open_calls(results)
    conversation.answer_open_calls(results)
    assert len(conversation) == 3
    assert [each.call_id for each in conversation[-1].tool_results] == ["c0", "c1", "c2"]
    assert [each.error for each in conversation[-1].tool_results] == [None] * done + ["not_executed"] * (3 - done)


def test_characters_are_counted() -> None:
    conversation = Conversation([Message("user", "four")])
    conversation.append(Message("assistant", "ab", (ToolCall("1", "look", "{}"),)))
    conversation.append(Message("tool", tool_results=(ToolResult("1", "look", "xyz"),)))
    assert conversation.characters == 4 + 2 + 6 + 3


# The clock --------------------------------------------------------------------------------------------------------------------


def test_the_clock_runs_only_when_started() -> None:
    clock = Clock(5.0)
    assert clock.elapsed_s() == 5.0
    clock.start()
    clock.start()
    time.sleep(0.01)
    clock.stop()
    assert clock.elapsed_s() >= 5.01
    clock.stop()
    stopped = clock.elapsed_s()
    time.sleep(0.01)
    assert clock.elapsed_s() == stopped


# Errors ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [errors.AgentlabError, errors.FixtureNotFoundError, errors.MalformedCassetteError, errors.AgentlabWarning]
)
def test_errors_and_warnings_redact_their_message(kind: type[Exception]) -> None:
    error = kind(f"sent sk-{'a1' * 12}\x1b[31m")
    assert str(error) == "sent REDACTED\N{REPLACEMENT CHARACTER}[31m"
    assert pickle.loads(pickle.dumps(error)).args == error.args


def test_an_error_is_pickled_with_its_attributes() -> None:
    error = pickle.loads(pickle.dumps(errors.ProviderStatusError("no", status=429, retry_after_s=2.0)))
    assert (str(error), error.status, error.retry_after_s) == ("no", 429, 2.0)
