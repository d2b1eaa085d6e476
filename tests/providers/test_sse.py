from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_work import takes_no_more

from agentlab.providers.wires.incoming import Incoming, SSEDecoder, read_json

from .bodies import cut


def decode(*pieces: bytes) -> list[tuple[bytes, bytes]]:
    decoder = SSEDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.finish()


TABLE = [
    pytest.param(b"data: a\n\n", [(b"", b"a")], id="plain"),
    pytest.param(b"data: a\r\n\r\n", [(b"", b"a")], id="crlf"),
    pytest.param(b"data: a\r\r", [(b"", b"a")], id="cr"),
    pytest.param(b"data: a\r\n\ndata: b\n\r\n", [(b"", b"a"), (b"", b"b")], id="mixed line ends"),
    pytest.param(b"data:a\n\n", [(b"", b"a")], id="no space"),
    pytest.param(b"data:  a\n\n", [(b"", b" a")], id="one space is stripped"),
    pytest.param(b"data: a\ndata: b\n\n", [(b"", b"a\nb")], id="several lines"),
    pytest.param(b"data\n\n", [(b"", b"")], id="field without a colon"),
    pytest.param(b"event: x\ndata: a\n\n", [(b"x", b"a")], id="name"),
    pytest.param(b"data: a\nevent: x\n\n", [(b"x", b"a")], id="name after data"),
    pytest.param(b"event: x\n\ndata: a\n\n", [(b"", b"a")], id="name without data"),
    pytest.param(b": comment\n\n: another\ndata: a\n\n", [(b"", b"a")], id="comments"),
    pytest.param(b"id: 1\nretry: 5\ndata: a\n\n", [(b"", b"a")], id="id and retry"),
    pytest.param(b"\n\n\n\ndata: a\n\n\n\n\n", [(b"", b"a")], id="blank lines"),
    pytest.param(b"data: a", [(b"", b"a")], id="no line end at the end"),
    pytest.param(b"data: a\n", [(b"", b"a")], id="no blank line at the end"),
    pytest.param(b"event: x\ndata: a\ndata: b\n\n", [(b"x", b"a\nb")], id="name and several lines"),
    pytest.param("data: é😀\n\n".encode(), [(b"", "é😀".encode())], id="utf-8"),
    pytest.param(b"", [], id="nothing"),
]


@pytest.mark.parametrize(("body", "events"), TABLE)
def test_events_of_a_body(body: bytes, events: list[tuple[bytes, bytes]]):
    assert decode(body) == events
    assert decode(*(bytes([byte]) for byte in body)) == events


@given(
    st.lists(
        st.sampled_from([b"data: a", b"data:b", b"event: e", b": c", b"", b"\xc3\xa9", b"data: \xf0\x9f\x98\x80"]), max_size=12
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 200), max_size=12),
)
@settings(max_examples=60, deadline=None)
def test_chunk_boundaries_change_nothing(lines: list[bytes], newline: bytes, places: list[int]):
    body = newline.join(lines)
    assert decode(*cut(body, places)) == decode(body)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_split_alike(body: bytes, places: list[int]):
    assert decode(*cut(body, places)) == decode(body)


@pytest.mark.parametrize(
    ("body", "damaged"),
    [
        pytest.param(b"data: a\nid: 1\nretry: 1\nevent: e\n: c\n\n", False, id="known fields"),
        pytest.param(b"dat`: a\n\n", True, id="a flipped bit in a field's name"),
        pytest.param(b"<html>\n\n", True, id="not events at all"),
    ],
)
def test_unknown_fields_are_damage(body: bytes, damaged: bool):
    decoder = SSEDecoder()
    decoder.feed(body)
    decoder.finish()
    assert decoder.damaged is damaged


def test_a_long_event_takes_linear_time():
    """2 MiB in pieces of 256 bytes; a search that restarts each time would read about 8 GB, 64 times as much as for an eighth."""

    def read(count: int) -> None:
        decoder = SSEDecoder()
        piece = b"x" * 256
        decoder.feed(b"data: ")
        for _ in range(count):
            assert decoder.feed(piece) == []
        assert decoder.feed(b"\n\n") == [(b"", piece * count)]

    assert takes_no_more(lambda: read(8_192), than=lambda: read(1_024), times=20)


@pytest.mark.parametrize(
    ("body", "events", "values"),
    [
        pytest.param(b"\xef\xbb\xbfdata: 1\n\n", [(b"", b"1")], [], id="byte order mark"),
        pytest.param(b"\n\n   \ndata: 1\n\n", [(b"", b"1")], [], id="white space before events"),
        pytest.param(b'{"a": 1}', [], [{"a": 1}], id="an object"),
        pytest.param(b'\n \n{"a": 1}\n', [], [{"a": 1}], id="white space before an object"),
        pytest.param(b'\xef\xbb\xbf{"a": 1}', [], [{"a": 1}], id="byte order mark before an object"),
        pytest.param(b'[{"a": 1},\r\n{"a": 2}]', [], [{"a": 1}, {"a": 2}], id="an array"),
        pytest.param(b'{"a": 1}\n{"a": 2}\n', [], [{"a": 1}, {"a": 2}], id="one object per line"),
        pytest.param(b"", [], [], id="nothing"),
        pytest.param(b"   ", [], [], id="white space"),
        pytest.param(b"\xef\xbb", [], [], id="half a byte order mark"),
    ],
)
def test_kinds_of_bodies(body: bytes, events: list[tuple[bytes, bytes]], values: list[object]):
    for pieces in ([body], [bytes([byte]) for byte in body]):
        incoming = Incoming()
        emitted = [event for piece in pieces for event in incoming.feed(piece)]
        last, read = incoming.finish()
        assert (emitted + last, read) == (events, values)
        assert not incoming.damaged


@pytest.mark.parametrize(
    ("text", "values", "complete"),
    [
        pytest.param('[{"a":1},{"a":2', [{"a": 1}], False, id="a broken array"),
        pytest.param('[{"a":1},', [{"a": 1}], False, id="an array broken between items"),
        pytest.param("[", [], False, id="an opened array"),
        pytest.param('{"a":1}\nPOST http', [{"a": 1}], False, id="garbage after the end"),
        pytest.param('{"a":1', [], False, id="a broken object"),
        pytest.param("[" * 100_000, [], False, id="too deep"),
        pytest.param("1" * 10_000, [], False, id="too long an integer"),
        pytest.param('"\\ud83d"', ["\ud83d"], True, id="a lone surrogate"),
        pytest.param("NaN", None, True, id="not a number"),
    ],
)
def test_json_of_any_kind(text: str, values: list[object] | None, complete: bool):
    read, whole = read_json(text)
    assert whole is complete
    assert values is None or read == values
