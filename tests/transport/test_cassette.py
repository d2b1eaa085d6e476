"""The forms of cassettes that load, and the errors for others."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentlab.errors import FixtureError, FixtureNotFoundError, MalformedCassetteError
from agentlab.transport.cassette import RecordedResponse, load_cassette, load_cassettes

from .conftest import CORPUS, interaction

Write = Callable[..., Path]
PACKED = gzip.compress(b'{"a": 1}')


def response_of(file: Path) -> RecordedResponse:
    return load_cassette(file).interactions[0].response


BODIES: dict[str, tuple[Any, bytes]] = {
    "text": ({"body": {"string": '{"a": 1}'}}, b'{"a": 1}'),
    "text without string": ({"body": '{"a": 1}'}, b'{"a": 1}'),
    "bytes": ({"body": {"string": b"\x00\xff"}}, b"\x00\xff"),
    "base64": ({"body": {"base64_string": base64.b64encode(b"\x00\xff").decode()}}, b"\x00\xff"),
    "parsed": ({"parsed_body": {"a": [1, "é"]}}, '{"a":[1,"é"]}'.encode()),
    "parsed beside null": ({"body": None, "parsed_body": [1]}, b"[1]"),
    "null": ({"body": {"string": None}}, b""),
    "none": ({}, b""),
    "emoji": ({"body": {"string": "🌊"}}, "🌊".encode()),
    "ruby": ({"body": {"encoding": "UTF-8", "string": "é"}}, "é".encode()),
    "empty": ({"body": {}}, b""),
    "cassetter json": ({"body": {"type": "json", "content": {"a": [1, "é", None]}}}, '{"a":[1,"é",null]}'.encode()),
    "cassetter list": ({"body": {"type": "json", "content": [1.0, "12:30"]}}, b'[1.0,"12:30"]'),
    "cassetter null": ({"body": {"type": "json", "content": None}}, b"null"),
    "cassetter text": ({"body": {"type": "text", "content": "data: é\n\n"}}, "data: é\n\n".encode()),
    "cassetter binary": ({"body": {"type": "binary", "content": "00ff"}}, b"\x00\xff"),
    "cassetter none": ({"body": {"type": "none"}}, b""),
}


def _in_json(name: str) -> bool:
    """JSON has no bytes."""
    part, expected = BODIES[name]
    return b"\xff" not in expected or not isinstance(part["body"].get("string"), bytes)


@pytest.mark.parametrize(
    ("name", "suffix"), [(name, suffix) for name in BODIES for suffix in ("yaml", "json") if suffix == "yaml" or _in_json(name)]
)
def test_bodies_in_every_form(tmp_path: Path, name: str, suffix: str) -> None:
    part, expected = BODIES[name]
    entry = interaction()
    del entry["response"]["body"], entry["request"]["body"]
    file = tmp_path / f"one.{suffix}"
    document = {
        "version": 1,
        "interactions": [{"request": {**entry["request"], **part}, "response": {**entry["response"], **part}}],
    }
    file.write_text(json.dumps(document) if suffix == "json" else yaml.safe_dump(document, allow_unicode=True))
    one = load_cassette(file).interactions[0]
    assert one.response.body == expected
    assert one.body == expected


ENCODED: dict[str, tuple[str, Any, bytes, bool]] = {
    "gzip header, decoded body": ("gzip", '{"a": 1}', b'{"a": 1}', False),
    "gzip header, gzip body": ("gzip", PACKED, b'{"a": 1}', False),
    "deflate": ("deflate", zlib.compress(b"abc"), b"abc", False),
    "x-gzip in capitals": ("X-GZIP", PACKED, b'{"a": 1}', False),
    "brotli header, decoded body": ("br", '{"a": 1}', b'{"a": 1}', False),
    "brotli body": ("br", b"\x8b\x03\x80\xff\xfe", b"\x8b\x03\x80\xff\xfe", True),
    "identity": ("identity", "abc", b"abc", False),
    "gzip cut off": ("gzip", gzip.compress(bytes(range(256)) * 9)[:-30], None, False),
}


@pytest.mark.parametrize(("encoding", "body", "expected", "kept"), ENCODED.values(), ids=ENCODED)
def test_compression_is_undone_if_present(tmp_path: Path, encoding: str, body: Any, expected: bytes | None, kept: bool) -> None:
    entry = interaction(answer=body)
    entry["response"]["headers"] = {
        "Content-Encoding": [encoding],
        "content-length": ["9"],
        "Transfer-Encoding": "chunked",
        "X-A": ["1", "2"],
    }
    file = tmp_path / "one.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "interactions": [entry]}))
    response = response_of(file)
    assert expected is None or response.body == expected
    assert response.headers == {"x-a": "1, 2"} | ({"content-encoding": encoding} if kept else {})


def test_chunks_are_hints() -> None:
    def pieces(body: bytes, *chunks: int) -> list[bytes]:
        return RecordedResponse(200, "OK", {}, body, chunks).pieces()

    assert pieces(b"abcdef", 2, 4) == [b"ab", b"cdef"]
    assert pieces(b"abcdefgh", 2, 4) == [b"ab", b"cdef", b"gh"]
    assert b"".join(pieces(b"abc", 2, 4)) == b"abc"
    assert pieces(b"abc") == [b"abc"]
    assert pieces(b"") == []


def test_interactions_other_than_http_are_counted(cassette: Write) -> None:
    file = cassette(
        interaction(), {"request_sample": {"raw": ""}, "response_sample": {}}, {"request_stream": {}, "response_stream": {}}
    )
    loaded = load_cassette(file)
    assert len(loaded.interactions) == 1
    assert loaded.skipped == 2


def test_interactions_of_other_protocols_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    document = {"version": 1, "interactions": [interaction()], "grpc_interactions": [{}, {}], "ws_interactions": [{}]}
    file.write_text(json.dumps(document))
    assert load_cassette(file).skipped == 3


def test_samples_of_grpc_are_served_as_http(cassette: Write) -> None:
    asked, answered = {"model": "grok"}, {"outputs": [{"message": {"content": "ä"}}]}
    file = cassette(
        {"request_sample": {"json": asked, "raw": ""}, "response_sample": {"json": answered, "raw": ""}},
        {
            "request_stream": {"json": asked},
            "response_stream": {"chunks_json": [{"chunk": {"id": "1"}}, {"id": "2"}]},
            "lane": "a",
        },
    )
    whole, stream = load_cassette(file).interactions
    assert (whole.method, whole.uri, json.loads(whole.body)) == ("POST", "https://api.x.ai/v1/chat/completions", asked)
    assert json.loads(whole.response.body) == answered
    assert (whole.response.status, whole.response.headers) == (200, {"content-type": "application/json"})
    assert stream.response.body == b'data: {"id":"1"}\n\ndata: {"id":"2"}\n\ndata: [DONE]\n\n'
    assert stream.response.headers == {"content-type": "text/event-stream"}
    assert (whole.label, stream.label) == ("", "a")


@pytest.mark.parametrize("origin", ["synthetic", {"recorded": "2026-01-02", "from": "llm.example"}, None])
def test_origin_of_a_recording(cassette: Write, origin: Any) -> None:
    assert load_cassette(cassette(interaction(), **({} if origin is None else {"origin": origin}))).origin == origin


def test_a_folder_is_read_in_name_order_without_hidden_files(cassette: Write, tmp_path: Path) -> None:
    for name in (
        "host-10.json",
        "host-2.json",
        "host.json",
        "a/z.json",
        ".hidden.json",
        ".ipynb_checkpoints/host-checkpoint.json",
        "a/.tmp/x.json",
    ):
        cassette(interaction(), name=name)
    (tmp_path / "b.yml").write_text(yaml.safe_dump({"version": 1, "interactions": []}))
    (tmp_path / "notes.txt").write_text("not a cassette")
    assert [one.path.relative_to(tmp_path).as_posix() for one in load_cassettes(tmp_path)] == [
        "a/z.json",
        "b.yml",
        "host.json",
        "host-2.json",
        "host-10.json",
    ]
    assert [one.path.name for one in load_cassettes(str(tmp_path / "host.json"))] == ["host.json"]


def test_a_byte_order_mark_is_skipped(cassette: Write) -> None:
    file = cassette(interaction())
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert len(load_cassette(file).interactions) == 1


def broken(**changes: Any) -> dict[str, Any]:
    entry = interaction()
    for path, value in changes.items():
        part, _, key = path.partition("__")
        if value is ...:
            del entry[part][key]
        elif key:
            entry[part][key] = value
        else:
            entry[part] = value
    return entry


MALFORMED: dict[str, tuple[Any, str]] = {
    "a list": ([], "the top level: expected a mapping with a list `interactions`, found a list"),
    "a number": (3, "the top level"),
    "no interactions": (
        {"setting": 1},
        r"the top level: expected .* found a mapping without `interactions` \(its keys: setting\)",
    ),
    "interactions a mapping": ({"interactions": {}}, "the top level"),
    "another version": ({"version": 2, "interactions": []}, "version: only version 1 of the format is known, found 2"),
    "an interaction a text": ({"interactions": ["x"]}, "interaction 1: expected a mapping, found text"),
    "no request": ({"interactions": [{"response": {}}]}, "interaction 1, request: expected a mapping, found nothing"),
    "no response": (
        {"interactions": [interaction(), {"request": interaction()["request"]}]},
        "interaction 2, response: expected a mapping, found nothing",
    ),
    "no uri": ({"interactions": [broken(request__uri=...)]}, "interaction 1, request.uri: expected text, found nothing"),
    "no method": ({"interactions": [broken(request__method=7)]}, "interaction 1, request.method: expected text, found 7"),
    "request body": ({"interactions": [broken(request__body=[1])]}, "interaction 1, request.body"),
    "no status": ({"interactions": [broken(response__status=...)]}, r"interaction 1, response.status: expected \{code: 200"),
    "status 1000": ({"interactions": [broken(response__status={"code": 1000})]}, "interaction 1, response.status"),
    "status a word": ({"interactions": [broken(response__status="fine")]}, "interaction 1, response.status"),
    "headers a text": ({"interactions": [broken(response__headers="x")]}, "interaction 1, response.headers"),
    "body a number": ({"interactions": [broken(response__body={"string": 3})]}, "interaction 1, response.body: expected text"),
    "base64": (
        {"interactions": [broken(response__body={"base64_string": "!"})]},
        "interaction 1, response.body.base64_string: not base64",
    ),
    "keys of a response's body": (
        {"interactions": [interaction(), broken(response__body={"kind": "json", "value": {}})]},
        r"interaction 2, response\.body: no body that can be read, but unknown keys: kind, value",
    ),
    "keys of a request's body": (
        {"interactions": [broken(request__body={"json": {}})]},
        r"interaction 1, request\.body: no body that can be read, but unknown keys: json",
    ),
    "an empty text beside an unknown key": (
        {"interactions": [broken(response__body={"string": None, "file": "a.bin"})]},
        r"interaction 1, response\.body: no body that can be read, but unknown keys: file",
    ),
    "keys of a response": (
        {
            "interactions": [
                {**interaction(), "response": {"status": 200, "headers": {}, "body_type": "text", "body_content": "x"}}
            ]
        },
        "interaction 1, response: no body that can be read, but unknown keys: body_type, body_content",
    ),
    "keys of a request": (
        {"interactions": [{**interaction(), "request": {"method": "POST", "uri": "https://a.example", "text": "x"}}]},
        "interaction 1, request: no body that can be read, but unknown keys: text",
    ),
    "cassetter's type": (
        {"interactions": [broken(response__body={"type": "xml", "content": "<a/>"})]},
        r"interaction 1, response\.body\.type: expected json, text, binary or none, found 'xml'",
    ),
    "cassetter's type beside an unknown key": (
        {"interactions": [broken(response__body={"type": "json", "value": {}})]},
        r"interaction 1, response\.body: no body that can be read, but unknown keys: type, value",
    ),
    "cassetter's text": (
        {"interactions": [broken(response__body={"type": "text", "content": {"a": 1}})]},
        r"interaction 1, response\.body\.content: expected text, found a mapping",
    ),
    "cassetter's bytes": (
        {"interactions": [broken(response__body={"type": "binary", "content": "xyz"})]},
        r"interaction 1, response\.body\.content: not hexadecimal digits",
    ),
    "chunks": (
        {"interactions": [broken(response__chunks=[1, "x"])]},
        "interaction 1, response.chunks: expected a list of numbers",
    ),
    "chunks below zero": ({"interactions": [broken(response__chunks=[-1])]}, "interaction 1, response.chunks"),
    "delays": ({"interactions": [broken(response__delays_s="soon")]}, "interaction 1, response.delays_s"),
    "origin": ({"origin": 3, "interactions": []}, "origin: expected a word"),
}


@pytest.mark.parametrize(("document", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_cassette_is_an_error(tmp_path: Path, document: Any, message: str) -> None:
    file = tmp_path / "set" / "wrong.json"
    file.parent.mkdir()
    file.write_text(json.dumps(document))
    with pytest.raises(MalformedCassetteError, match=rf"^set/wrong\.json, {message}") as caught:
        load_cassettes(tmp_path)
    assert "Repair the file by hand" in str(caught.value)


def test_a_cassette_in_toml_is_an_error_that_says_how_to_convert_it(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text("version = 1\n")
    with pytest.raises(MalformedCassetteError, match=r"^one\.toml, the text: TOML is not read: `cassetter convert` makes YAML"):
        load_cassettes(file)


def test_text_in_an_invalid_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(MalformedCassetteError, match=r"a\.json, the text: byte 7: not UTF-8"):
        load_cassettes(tmp_path)
    (tmp_path / "a.json").write_text('{"interactions": [')
    with pytest.raises(MalformedCassetteError, match=r"a\.json, the text: line 1, column 19"):
        load_cassettes(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{}", gzip.compress(b'{"interactions": []}', mtime=0)[:-6]])
def test_a_compressed_cassette_that_is_damaged(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json.gz").write_bytes(data)
    with pytest.raises(MalformedCassetteError, match=r"a\.json\.gz, the text: "):
        load_cassettes(tmp_path)


def test_a_damaged_gzip_file(tmp_path: Path) -> None:
    entry = interaction(answer=b"\x1f\x8b" + b"no gzip at all")
    entry["response"]["headers"] = {"Content-encoding": ["gzip"]}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"interactions": [entry]}))
    with pytest.raises(
        MalformedCassetteError, match=r"one\.yaml, interaction 1, response\.body: the gzip data cannot be unpacked"
    ):
        load_cassettes(tmp_path)


def test_a_missing_folder_lists_the_existing_ones(tmp_path: Path) -> None:
    (tmp_path / "fixtures" / "other").mkdir(parents=True)
    (tmp_path / "fixtures" / "notes.txt").touch()
    missing = tmp_path / "fixtures" / "research" / "deep"
    with pytest.raises(FixtureNotFoundError) as caught:
        load_cassettes(missing)
    message = str(caught.value)
    assert message.startswith(f"{missing} does not exist: ")
    assert f"{tmp_path / 'fixtures'}, contains notes.txt, other/." in message
    assert f'with agentlab.record("{missing}")' in message
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, FixtureError)


@pytest.mark.parametrize(
    ("where", "given", "meant"),
    [
        pytest.param("notebooks", "fixtures/trip", "../fixtures/trip", id="from a notebook's folder"),
        pytest.param("notebooks/mine", "fixtures/trip", "../../fixtures/trip", id="from a deeper one"),
        pytest.param(".", "../fixtures/trip", "fixtures/trip", id="from the root"),
        pytest.param("notebooks", "../fixtures/trp", "../fixtures/trip", id="mistyped at the end"),
        pytest.param(".", "fixtrues/trip", "fixtures/trip", id="mistyped at the beginning"),
        pytest.param(".", "fixtures/nothing", None, id="nothing like it"),
        pytest.param(".", "fixtures/trip/one.yaml/deep", None, id="a file in the way"),
    ],
)
def test_a_folder_found_elsewhere_is_named(tmp_path, monkeypatch, where, given, meant) -> None:
    (tmp_path / "fixtures" / "trip").mkdir(parents=True)
    (tmp_path / "fixtures" / "trip" / "one.yaml").touch()
    (tmp_path / "notebooks" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / where)
    with pytest.raises(FixtureNotFoundError) as caught:
        load_cassettes(given)
    message = str(caught.value)
    assert (f"{given} does not exist. Did you mean {meant!r}? That path exists." in message) is (meant is not None)
    assert ("the nearest existing folder" in message) is (meant is None)


def test_a_folder_without_cassettes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        FixtureNotFoundError, match=r"has no cassette \(\*\.yaml, \*\.yml, \*\.json, \*\.json\.gz\): it contains notes\.txt"
    ):
        load_cassettes(tmp_path)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not beside the repository")
def test_the_corpus_loads() -> None:
    loaded = load_cassettes(CORPUS)
    assert len(loaded) == 75
    assert sum(len(one.interactions) for one in loaded) == 104
    assert sum(one.skipped for one in loaded) == 0
    assert {one.response.status for cassette in loaded for one in cassette.interactions} == {200, 400, 404, 429}
