"""The conversation: views, encoding, open calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.model.conversation import Conversation, ConversationView, encode_messages
from agentlab.model.messages import Message, ToolCall, ToolResult


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
    conversation.replace_last(Message("user", "more"))
    conversation.append(Message("assistant", "a"))
    assert conversation.characters == 4 + 2 + 6 + 4 + 1
