"""Which recording answers a request, and the error if there is none."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_work import calls_in

from agentlab.errors import ConfigurationError, ReplayMissError
from agentlab.transport.replaying import ReplayIndex
from agentlab.transport.request_matching import VOLATILE_FIELDS, address, canonical_body
from tests.internal.test_redaction import LOOK_LIKE_KEYS

from .conftest import interaction

Write = Callable[..., Path]
URL = "https://llm.example/v1/chat"

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any, random: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: shuffled(value[key], random) for key in keys}
    return [shuffled(part, random) for part in value] if isinstance(value, list) else value


@given(JSON_VALUES, st.randoms(use_true_random=False), st.sampled_from([None, 1, 4]), st.booleans())
def test_the_spelling_of_json_does_not_matter(value: Any, random: Any, indent: int | None, ascii_only: bool) -> None:
    other = json.dumps(shuffled(value, random), indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert canonical_body(other) == canonical_body(json.dumps(value).encode())
    assert canonical_body(canonical_body(other)) == canonical_body(other)


@given(JSON_VALUES, JSON_VALUES)
def test_different_json_stays_different(one: Any, other: Any) -> None:
    same = canonical_body(json.dumps(one).encode()) == canonical_body(json.dumps(other).encode())
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = ({key: value for key, value in part.items() if key not in VOLATILE_FIELDS} for part in (one, other))
    if same:
        assert one == other


@pytest.mark.parametrize("field", ["messages", "input"])
def test_an_instruction_in_mid_conversation_matches_older_recordings(field: str) -> None:
    def asked(*roles: str) -> bytes:
        return canonical_body(json.dumps({field: [{"role": role, "content": "x"} for role in roles]}).encode())

    assert asked("system", "user", "assistant", "system") == asked("system", "user", "assistant", "user")
    assert asked("user", "assistant", "developer") == asked("user", "assistant", "user")
    assert asked("system", "user") != asked("user", "user")
    assert asked("system", "system", "user") != asked("system", "user", "user")


@given(st.binary(max_size=40))
def test_other_bodies_are_compared_literally(body: bytes) -> None:
    try:
        json.loads(body)
    except ValueError:
        assert canonical_body(body) == body


@pytest.mark.parametrize("field", sorted(VOLATILE_FIELDS))
def test_volatile_fields_are_ignored_at_the_top_level_only(field: str) -> None:
    assert canonical_body(json.dumps({"a": 1, field: "x"}).encode()) == canonical_body(b'{"a": 1}')
    assert canonical_body(json.dumps({"a": {field: "x"}}).encode()) != canonical_body(b'{"a": {}}')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://LLM.example/v1", "https://llm.example:443/v1"),
        ("https://llm.example/v1", "http://llm.example/v1"),
        ("https://llm.example", "https://llm.example/"),
        ("https://h/p?b=1&a=2", "https://h/p?a=2&b=1"),
        ("https://h/p?key=abc", "https://h/p?key=REDACTED"),
        ("https://h/p?key=abc", "https://h/p"),
        ("https://h/model/a%3A0/converse", "https://h/model/a:0/converse"),
        ("https://u:p@h/p", "https://h/p#part"),
    ],
)
def test_one_address_in_two_spellings(one: str, other: str) -> None:
    assert address("post", one) == address("POST", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://h/p", "https://h/q"),
        ("https://h/p", "https://i/p"),
        ("http://h:1/p", "http://h:2/p"),
        ("https://h/p?v=1", "https://h/p?v=2"),
        ("https://h/p?v=", "https://h/p"),
    ],
)
def test_two_addresses(one: str, other: str) -> None:
    assert address("POST", one) != address("POST", other)
    assert address("GET", one) != address("POST", one)


def index(*interactions: dict[str, Any], cassette: Write, match: Any = "strict") -> ReplayIndex:
    return ReplayIndex.load(cassette(*interactions), match)


def served(where: ReplayIndex, body: Any, replay_key: str = "", url: str = URL) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads(where.find("POST", url, content, replay_key).response.body)


def test_repeated_requests_get_their_recordings_in_order_for_each_replay_key(cassette: Write) -> None:
    where = index(*(interaction({"q": 1}, n) for n in (1, 2, 3)), interaction({"q": 2}, 9), cassette=cassette)
    assert [served(where, {"q": 1}, "a"), served(where, {"q": 1}, "b"), served(where, {"q": 1}, "a")] == [1, 1, 2]
    assert [served(where, {"q": 1}), served(where, {"q": 2}), served(where, {"q": 1}), served(where, {"q": 1})] == [1, 9, 2, 3]
    with pytest.raises(ReplayMissError, match="recorded 3 times, and this run sends it again"):
        served(where, {"q": 1})
    assert served(where, {"q": 1}, "c") == 1


def test_the_same_bytes_are_preferred_over_the_same_meaning(cassette: Write) -> None:
    one, other = interaction({"q": 1, "user": "a"}, "1"), interaction({"q": 1, "user": "b"}, "2")
    where = index(one, other, cassette=cassette)
    assert served(where, {"q": 1, "user": "b"}, "x") == 2
    assert served(where, {"user": "c", "q": 1.0}, "x") == 1
    with pytest.raises(ReplayMissError, match="recorded 2 times"):
        served(where, {"q": 1, "user": "b"}, "x")
    assert [served(where, {"q": 1}, "y"), served(where, {"q": 1}, "y")] == [1, 2]


def test_a_run_that_continues_skips_recordings_of_the_model_but_not_of_mcp_servers(cassette: Write) -> None:
    tool = "mcp://shop/tools/call"
    answers = [interaction({"q": n}, n) for n in (1, 2, 3)]
    where = index(*answers, interaction({"q": 4}, 4, uri=tool), cassette=cassette, match="order")
    where.skip("branch", [1, 1])
    assert [served(where, b"", "branch"), served(where, b"", "branch", url=tool), served(where, b"", "first")] == [3, 4, 1]


def test_recordings_of_an_address_in_order_for_any_request(cassette: Write) -> None:
    elsewhere = "https://llm.example/v1/models"
    where = index(
        interaction({"q": 1}, 1),
        interaction({"q": 2}, 7, uri=elsewhere),
        interaction({"q": 3}, 2),
        cassette=cassette,
        match="order",
    )
    assert [
        served(where, b"anything"),
        served(where, b"", url=elsewhere),
        served(where, {"q": 1}),
        served(where, b"", "other run"),
    ] == [1, 7, 2, 1]
    with pytest.raises(ReplayMissError, match="was recorded 2 times, and all recordings have been served to this run"):
        served(where, b"")
    with pytest.raises(
        ReplayMissError, match=r"Nothing recorded for POST llm\.example/v1/nowhere\. Recorded are:\n  POST llm\.example/v1/chat\n"
    ):
        served(where, b"", url="https://llm.example/v1/nowhere")


def test_in_order_a_request_gets_recordings_of_its_kind_stream_or_whole(cassette: Write) -> None:
    whole, stream = interaction({"stream": False}, 1), interaction({"stream": True}, 2)
    where = index(whole, stream, interaction({}, 3), cassette=cassette, match="order")
    assert [served(where, {"q": 1}), served(where, {"stream": True}), served(where, {"q": 2})] == [1, 2, 3]
    with pytest.raises(ReplayMissError, match="was recorded once, and all recordings have been served"):
        served(where, {"stream": True})
    only = index(stream, cassette=cassette, match="order")
    assert served(only, {"q": 1}) == 2


def test_another_match_is_not_recommended_for_an_address_that_was_not_recorded(cassette: Write) -> None:
    assert "order" not in missed(index(interaction({}, 1), cassette=cassette), {}, url="https://llm.example/v1/nowhere")


def test_labels_find_their_own_recordings(cassette: Write) -> None:
    one, two = interaction({"q": 1}, 1) | {"lane": "repeat 1"}, interaction({"q": 1}, 2) | {"lane": "repeat 2"}
    where = index(one, two, cassette=cassette)
    assert [
        served(where, {"q": 1}, "x#repeat 2"),
        served(where, {"q": 1}, "y#repeat 1"),
        served(where, {"q": 1}, "z#repeat 2"),
    ] == [2, 1, 2]
    assert [served(where, {"q": 1}, "w"), served(where, {"q": 1}, "w"), served(where, {"q": 1}, "v#repeat 3")] == [1, 2, 1]
    with pytest.raises(ReplayMissError, match="recorded once"):
        served(where, {"q": 1}, "x#repeat 2")


@pytest.mark.parametrize("where", ["in the text", "in a key of the query"])
def test_a_request_whose_key_was_redacted_is_found(cassette: Write, where: str) -> None:
    key = LOOK_LIKE_KEYS["openai"]
    entry = interaction({"q": "use REDACTED"}, 1, uri=URL + "?key=REDACTED")
    body = {"q": f"use {key if where == 'in the text' else 'REDACTED'}"}
    assert served(index(entry, cassette=cassette), body, url=f"{URL}?key={key}") == 1


def test_many_threads_share_an_index(cassette: Write) -> None:
    where = index(*(interaction({"q": 1}, str(n)) for n in range(200)), cassette=cassette)
    got: list[int] = []

    def work() -> None:
        got.extend(served(where, {"q": 1}, "shared") for _ in range(25))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(got) == Counter(range(200))


# misses ------------------------------------------------------------------------------------------------------------------------


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "messages": [{"role": "user", "content": text} for text in texts], **fields}


def missed(where: ReplayIndex, body: Any, url: str = URL) -> str:
    with pytest.raises(ReplayMissError) as caught:
        served(where, body, url=url)
    return str(caught.value)


def test_a_miss_shows_the_nearest_recording_and_the_differences(cassette: Write) -> None:
    recorded = [
        interaction(chat("Hello")),
        interaction(chat("Hello", "Compare the lighthouses", temperature=0)),
        interaction(chat("Bye")),
    ]
    message = missed(index(*recorded, cassette=cassette), chat("Hello", "Compare the lightships", max_tokens=5))
    assert message.splitlines()[:4] == [
        "No recording matches this request to POST llm.example/v1/chat. The nearest is turns.json, interaction 2, and differs in",
        '  messages[1].content: recorded "Compare the lighthouses", requested "Compare the lightships"',
        "  temperature: recorded 0, requested nothing",
        "  max_tokens: recorded nothing, requested 5",
    ]
    assert "agentlab.record(" in message and message.count("with the provider's key if it needs one") == 1
    assert 'match="order"' in message


def test_long_values_are_cut_to_their_difference(cassette: Write) -> None:
    text = "The same words again and again. " * 30
    message = missed(index(interaction(chat(text + "left")), cassette=cassette), chat(text + "right"))
    line = message.splitlines()[1]
    assert "left" in line
    assert "right" in line
    assert len(line) < 250


def test_many_differences_are_counted(cassette: Write) -> None:
    message = missed(index(interaction({f"f{n}": 0 for n in range(50)}), cassette=cassette), {f"f{n}": 1 for n in range(50)})
    assert "  and 42 more fields" in message
    assert len(message) < 1500


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"\xff\xfe",
        b"",
        b"[1, 2]",
        b'{"a": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"a": ' + b"[" * 800 + b"]" * 800 + b"}",
    ],
)
def test_any_body_can_be_missed(cassette: Write, body: bytes) -> None:
    assert "nearest is turns.json, interaction 1" in missed(index(interaction(chat("a")), cassette=cassette), body)


def test_a_miss_at_another_address_lists_the_recordings(cassette: Write) -> None:
    where = index(*(interaction(uri=f"https://llm.example/v1/{n}") for n in range(20)), cassette=cassette)
    message = missed(where, {}, "https://llm.example/v2?key=" + "a" * 20)
    assert message.startswith("Nothing recorded for POST llm.example/v2. Recorded are:\n  POST llm.example/v1/0\n")
    assert "and 12 more" in message


@pytest.mark.parametrize("key", LOOK_LIKE_KEYS.values(), ids=LOOK_LIKE_KEYS)
def test_a_miss_never_shows_a_key(cassette: Write, key: str) -> None:
    where = index(interaction(chat(f"the key {key} is old", note=key)), cassette=cassette)
    padding = "x " * 60
    for body, url in (
        (chat(f"the key {key}! is new"), URL),
        (chat("x", note=f"{padding}{key}"), URL),
        ({"text": key + "1"}, URL),
        (f"plain {key}".encode(), URL),
        (chat("x"), f"https://llm.example/{key}/x"),
        ({key: 1}, URL),
    ):
        message = missed(where, body, url)
        assert key not in message
        assert key[:16] not in message


def test_interactions_other_than_http_are_mentioned(cassette: Write) -> None:
    where = index(interaction({"q": 1}), {"request_sample": {}, "response_sample": {}}, cassette=cassette)
    assert "1 of its interactions are not HTTP" in missed(where, {"q": 2})
    assert "1 interaction in 1 file (1 more are not HTTP)" in repr(where)


@pytest.mark.parametrize("match", ["Strict", "", None, "any"])
def test_unknown_match_modes_are_refused(cassette: Write, match: Any) -> None:
    with pytest.raises(ConfigurationError, match='use "strict"'):
        ReplayIndex.load(cassette(interaction()), match)


def test_a_miss_among_many_is_found_quickly(cassette: Write) -> None:
    def calls(many: int) -> int:
        where = index(*(interaction(chat("Hello " * 50, f"question {n}")) for n in range(many)), cassette=cassette)
        return calls_in(lambda: missed(where, chat("Hello " * 50, "question x")))

    assert calls(1000) <= 10 * calls(100)
