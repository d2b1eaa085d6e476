"""Messages as JSON, and contexts in SQLite."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.errors import ConfigurationError, ContextChangedError, StorageError
from agentlab.model.messages import Message, NativeContent, Stop, ToolCall, ToolResult, decode, encode
from agentlab.serving.contexts import Contexts
from agentlab.storage.store import Store

ANY_TEXT = st.text(st.characters(), max_size=20)  # lone surrogates too
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "tool", "system"]),
    ANY_TEXT,
    st.lists(st.builds(ToolCall, ANY_TEXT, ANY_TEXT, ANY_TEXT, st.booleans()), max_size=3).map(tuple),
    st.lists(
        st.builds(
            ToolResult,
            ANY_TEXT,
            ANY_TEXT,
            ANY_TEXT,
            error=st.none() | ANY_TEXT,
            arguments=ANY_TEXT,
            duration_s=st.floats(0, 1e6),
            stop=st.none() | st.builds(Stop, ANY_TEXT),
        ),
        max_size=3,
    ).map(tuple),
    st.none() | st.builds(NativeContent, ANY_TEXT, ANY_JSON),
)


@given(MESSAGES)
def test_a_message_is_stored_and_loaded_unchanged(message: Message) -> None:
    assert decode(encode(message)) == message
    assert encode(message).isascii()


@given(st.lists(MESSAGES, max_size=4))
def test_a_context_is_stored_and_loaded_unchanged(messages: list[Message]) -> None:
    with Contexts() as contexts:
        contexts.append("a", messages, after=0)
        contexts.append("b", messages[:1], after=0)
        assert contexts.messages("a") == messages


def test_the_text_sent_to_the_model_is_stored_instead_of_the_tools_object() -> None:
    result = ToolResult("c1", "look", "told", value=object(), stop=Stop("enough", output=object()))
    back = decode(encode(Message("tool", tool_results=(result,)))).tool_results[0]
    assert (back.content, back.value, back.stop) == ("told", None, Stop("enough"))


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "{}", '{"role":"developer","text":""}', '{"role":"user"}',
                                  '{"role":"user","text":"","tool_calls":[{"no":1}]}',
                                  '{"role":"user","text":"","native":5}'])  # fmt: skip
def test_an_invalid_message_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)


def test_a_context_grows_by_all_messages_or_none(tmp_path: Path) -> None:
    with Contexts(tmp_path / "c.sqlite") as contexts, Contexts(tmp_path / "c.sqlite") as others:
        contexts.append("a", [Message("user", "1"), Message("assistant", "2")], after=0)
        with pytest.raises(ContextChangedError, match=r"'a' had 0 messages .* now has 2"):
            others.append("a", [Message("user", "x")], after=0)
        with pytest.raises(ContextChangedError):
            others.append("a", [Message("user", "x")], after=3)
        unfit = Message("assistant", native=NativeContent("w", {"a": object()}))
        with pytest.raises(TypeError):
            others.append("a", [Message("user", "x"), unfit], after=2)
        others.append("a", [Message("user", "3")], after=2)
        assert [message.text for message in contexts.messages("a")] == ["1", "2", "3"]
        assert contexts.ids() == ["a"]
        assert contexts.messages("never seen") == []


def test_the_file_is_in_wal_mode_and_every_write_is_synchronous(tmp_path: Path) -> None:
    with Contexts(tmp_path / "c.sqlite") as contexts:
        assert contexts._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert contexts._database.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_database_error_is_raised_as_a_storage_error(tmp_path: Path) -> None:
    contexts = Contexts(tmp_path / "c.sqlite")
    contexts.close()
    message = Message("user", "Hello.")
    for use in (contexts.ids, lambda: contexts.messages("a"), lambda: contexts.append("a", [message], after=0)):
        with pytest.raises(StorageError, match="closed"):
            use()


def test_an_unusable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be opened: .*Pass a file in a folder that exists"):
        Contexts(tmp_path / "none" / "c.sqlite")
    (tmp_path / "text").write_text("no database, but a text that is long enough to be read as one" * 20)
    with pytest.raises(ConfigurationError, match="not a database"):
        Contexts(tmp_path / "text")
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE birds (name)")
    other.close()
    with pytest.raises(ConfigurationError, match=r"database of another program \(tables birds\)"):
        Contexts(tmp_path / "other")
    Store(tmp_path / "runs.db").close()
    with pytest.raises(ConfigurationError, match=r"runs\.db' is a Store of runs: pass another file"):
        Contexts(tmp_path / "runs.db")
    newer = sqlite3.connect(tmp_path / "newer")
    newer.execute("PRAGMA user_version = 7")
    newer.close()
    with pytest.raises(ConfigurationError, match=r"newer agentlab \(format 7"):
        Contexts(tmp_path / "newer")


def test_a_damaged_row_is_reported(tmp_path: Path) -> None:
    with Contexts(tmp_path / "c.sqlite") as contexts:
        contexts._database.execute("INSERT INTO messages VALUES ('a', 0, 'nothing')")
        with pytest.raises(ConfigurationError, match=r"Message 0 of the context 'a' .* is damaged"):
            contexts.messages("a")
