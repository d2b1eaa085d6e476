"""PyYAML and Python's json read everything that we write; files that we read can do no harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_work import calls_in, takes_no_more

from agentlab.transport.cassette_text import UnreadableText, read_document, readable_body, write_document, write_interaction

ODD = [
    "",
    "yes",
    "null",
    "1.0",
    "1_000",
    "0x1f",
    "2024-01-01",
    "~",
    "<<",
    "=",
    "a: b",
    "- a",
    "a #b",
    "a\\n: b",
    "  lead\nx",
    "x\n  ",
    "\n",
    "x\n\n\n",
]
TEXT = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.text("ab \n\t:-#'\"|>&*!%@`{}[],?\r\x85\u2028é😀\ufeff\x00", max_size=20)
    | st.sampled_from([*ODD, 'data: {"x": "🌊"}\n\n', "a" * 200 + " b" * 200])
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.binary(max_size=80)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)
ENTRIES = st.dictionaries(TEXT.filter(lambda key: len(key) < 100), VALUES, min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ENTRIES, max_size=3),
    st.dictionaries(TEXT.filter(lambda key: key != "interactions" and len(key) < 100), VALUES, max_size=2),
)
def test_yaml_is_written_and_read_unchanged(entries: list[dict[str, Any]], head: dict[str, Any]) -> None:
    text = write_document(head, [write_interaction(entry, as_json=False) for entry in entries], as_json=False)
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        assert yaml.load(text, Loader=loader) == {**head, "interactions": entries}
    assert read_document(text.encode(), as_json=False) == {**head, "interactions": entries}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(max_size=10), JSON_VALUES, max_size=4), max_size=3))
def test_json_is_written_and_read_unchanged(entries: list[dict[str, Any]]) -> None:
    text = write_document({"version": 1}, [write_interaction(entry, as_json=True) for entry in entries], as_json=True)
    assert json.loads(text) == {"version": 1, "interactions": entries}
    assert read_document(text.encode(), as_json=True) == json.loads(text)


def test_lone_surrogates_are_kept() -> None:
    entry = {"a": "x\ud800y"}
    text = write_document({}, [write_interaction(entry, as_json=True)], as_json=True)
    assert text.isascii()
    assert read_document(text.encode(), as_json=True) == {"interactions": [entry]}
    text = write_document({}, [write_interaction(entry, as_json=False)], as_json=False)
    assert read_document(text.encode(), as_json=False) == {"interactions": [{"a": "x\ud800y".encode("utf-8", "surrogatepass")}]}


def test_bytes_in_json_are_base64() -> None:
    entry = {"request": {"body": b"\xff"}, "response": {"body": {"string": b"\x00\xff"}}}
    assert json.loads(write_interaction(entry, as_json=True)) == {
        "request": {"body": {"base64_string": "/w=="}},
        "response": {"body": {"base64_string": "AP8="}},
    }


@settings(deadline=None)
@given(
    JSON_VALUES.filter(lambda value: isinstance(value, dict | list)), st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")])
)
def test_a_json_body_is_formatted_over_lines_without_a_change(value: Any, ascii_only: bool, separators: tuple[str, str]) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode("utf-8", "surrogatepass")
    written = readable_body(body, as_json=False)
    if isinstance(written, str):
        assert json.loads(written) == value
        assert json.dumps(json.loads(written), ensure_ascii=ascii_only, separators=separators).encode() == body


@pytest.mark.parametrize(
    "body",
    [
        '{"a": 1.0, "a": 2}',
        '{"a": 1.10}',
        '{"a": 1E5}',
        '  {"a": 1}',
        '{"a": "\\u00e9é"}',
        "{not json}",
        "data: {}\n\n",
        "[" * 5000 + "]" * 5000,
    ],
)
def test_a_body_that_would_change_is_left_alone(body: str) -> None:
    assert readable_body(body.encode(), as_json=False) == body


def test_written_yaml_is_readable() -> None:
    entry = {
        "request": {
            "method": "POST",
            "uri": "https://llm.example/v1/chat?alt=sse",
            "body": readable_body(b'{"model":"m","n":[1]}', as_json=False),
        },
        "response": {
            "body": {"string": 'data: {"t": "hé 🌊"}\n\ndata: [DONE]\n\n'},
            "chunks": [23, 14],
            "status": {"code": 200, "message": "OK"},
        },
    }
    assert write_document({"version": 1, "origin": "synthetic"}, [write_interaction(entry, as_json=False)], as_json=False) == (
        "version: 1\n"
        "origin: synthetic\n"
        "interactions:\n"
        "- request:\n"
        "    method: POST\n"
        "    uri: https://llm.example/v1/chat?alt=sse\n"
        "    body: |-\n"
        "      {\n"
        '        "model": "m",\n'
        '        "n": [\n'
        "          1\n"
        "        ]\n"
        "      }\n"
        "  response:\n"
        "    body:\n"
        "      string: |+\n"
        '        data: {"t": "hé 🌊"}\n'
        "\n"
        "        data: [DONE]\n"
        "\n"
        "    chunks: [23, 14]\n"
        "    status:\n"
        "      code: 200\n"
        "      message: OK\n"
    )


BOMBS = {
    "python object": "!!python/object/apply:os.system ['true']",
    "python name": "a: !!python/name:os.system",
    "python module": "a: !!python/module:os",
    "unknown tag": "a: !mine x",
    "aliases": "a: &a ["
    + "lol, " * 10
    + "]\n"
    + "".join(
        f"b{n}: &b{n} [{('*a' if n == 0 else f'*b{n - 1}')}{(', *a' if n == 0 else f', *b{n - 1}') * 9}]\n" for n in range(9)
    ),
    "merges": "a: &a {x: 1}\n"
    + "".join(
        f"b{n}: &b{n}\n  <<: [{'*a' if n == 0 else f'*b{n - 1}'}, {'*a' if n == 0 else f'*b{n - 1}'}]\n" for n in range(40)
    ),
    "itself": "a: &a [*a]",
    "nowhere": "a: *b",
    "brackets": "[" * 100_000,
    "closed brackets": "a: " + "[" * 100_000 + "]" * 100_000,
    "braces": "{a: " * 100_000,
    "dashes": "- " * 100_000,
    "dashes later": "a: 1\nb:\n" + "- " * 100_000,
    "tagged dashes": "- !!seq " * 100_000,
    "anchored dashes": "".join(f"- &a{n} " for n in range(100_000)),
    "questions": "? " * 100_000,
    "a number that is too long": "a: " + "9" * 10_000,
    "two documents": "a: 1\n---\nb: 2",
    "control characters": "a: \x01",
    "tabs": "a:\n\t- b",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_hostile_yaml_is_refused_at_once(text: str) -> None:
    def refused() -> None:
        with pytest.raises(UnreadableText):
            read_document(text.encode(), as_json=False)

    assert calls_in(refused) < 25 * len(text) + 1_000
    assert takes_no_more(refused, than=lambda: sum(range(1_000_000)), times=200)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "{", "", "nonsense", '{"a": 1,}', "[1] 2"])
def test_broken_json_is_refused(text: str) -> None:
    with pytest.raises(UnreadableText):
        read_document(text.encode(), as_json=True)


def test_the_position_of_an_error_is_named() -> None:
    with pytest.raises(UnreadableText, match=r"line 2, column 8"):
        read_document(b'{\n  "a": }', as_json=True)
    with pytest.raises(UnreadableText, match=r"line 4"):
        read_document(b"a: 1\nb:\n  - [\n", as_json=False)


def test_values_that_json_does_not_have_are_texts() -> None:
    text = "[2024-06-12, 2024-99-99, 2024-06-12T10:00:00Z, 12:30, 190:20:30.5, =, <<, '12:30', 12, 0x1F, 1.5, 1.0e+16, yes, null]"
    assert read_document(text.encode(), as_json=False) == [
        "2024-06-12", "2024-99-99", "2024-06-12T10:00:00Z", "12:30", "190:20:30.5", "=", "<<", "12:30", 12, 31, 1.5, 1e16, True, None
    ]  # fmt: skip


def test_files_of_real_recorders_are_read() -> None:
    text = (
        "a: &id001 [x, y]\nb: *id001\nc: !!python/unicode 'ü'\nd: !!python/tuple [1, 2]\ne: !!binary |\n  AAE=\nf: [[[[[1]]]]]\n"
    )
    document = read_document(text.encode(), as_json=False)
    assert document == {"a": ["x", "y"], "b": ["x", "y"], "c": "ü", "d": [1, 2], "e": b"\x00\x01", "f": [[[[[1]]]]]}
