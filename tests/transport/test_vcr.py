"""vcrpy as the oracle: our cassettes replay in plain vcrpy, and its recordings replay here."""

from __future__ import annotations

import asyncio
import gzip
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import vcr
from vcr.cassette import Cassette

from agentlab.transport import RecordTransport, record, replay
from agentlab.transport.cassette import load_cassettes

from .conftest import CORPUS, asked
from .server import EVENTS

CALLS: list[tuple[str, Any]] = [
    ("chat", {"model": "m", "q": ["é", "🌊", {"deep": None}]}),
    ("sse", {"q": 1}),
    ("busy", {"q": 2}),
    ("gzip", {"q": 3}),
    ("binary", {"q": 4}),
]


@dataclass
class Got:
    status: int
    content: bytes
    content_type: str


def post(url: str, body: Any) -> Got:
    """With Python's own client, which vcrpy patches."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        response = urllib.request.urlopen(request, timeout=5)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        content = response.read()
        packed = response.headers.get("content-encoding") == "gzip"
        return Got(response.status, gzip.decompress(content) if packed else content, response.headers["content-type"])


def vcr_for(path: Path) -> Any:
    return vcr.VCR(
        serializer="json" if path.suffix == ".json" else "yaml", record_mode="none", match_on=["method", "uri", "body"]
    ).use_cassette(str(path))


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_our_cassette_replays_in_plain_vcrpy(base: str, tmp_path: Path, suffix: str) -> None:
    calls = [call for call in CALLS if suffix == ".yaml" or call[0] != "binary"]  # vcrpy's JSON has no form for bytes
    file = tmp_path / f"ours{suffix}"
    live = [asked(record(file), f"{base}/{route}", body) for route, body in calls]
    with vcr_for(file) as playing:
        for (route, body), answer in zip(calls, live, strict=True):
            response = post(f"{base}/{route}", body)
            assert response.status == answer.status
            assert response.content == answer.body or json.loads(response.content) == answer.json()
            assert response.content_type == answer.headers["content-type"]
        assert playing.all_played
        assert playing.play_count == len(calls)


def test_our_cassette_replays_in_plain_vcrpy_through_httpx(base: str, tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    asked(record(file), f"{base}/sse", {"q": 1})

    async def stream() -> bytes:
        async with httpx.AsyncClient() as client:
            return (await client.post(f"{base}/sse", json={"q": 1})).content

    with vcr_for(file) as playing:
        assert asyncio.run(stream()) == b"".join(EVENTS)
        assert playing.all_played


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_vcrpy_cassette_replays_here(base: str, tmp_path: Path, suffix: str) -> None:
    calls = [call for call in CALLS if suffix == ".yaml" or call[0] not in ("binary", "gzip")]
    file = tmp_path / f"theirs{suffix}"
    recorder = vcr.VCR(serializer=suffix[1:], record_mode="all")
    with recorder.use_cassette(str(file)):
        live = [post(f"{base}/{route}", body) for route, body in calls]
    for match in ("strict", "order"):
        ours = replay(file, match=match)
        for (route, body), response in zip(calls, live, strict=True):
            answer = asked(ours, f"{base}/{route}", body)
            assert (answer.status, answer.body) == (response.status, response.content)


def test_a_vcrpy_cassette_through_httpx_replays_here(base: str, tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"

    async def post() -> list[httpx.Response]:
        async with httpx.AsyncClient() as client:
            return [await client.post(f"{base}/{route}", json=body) for route, body in CALLS]

    with vcr.use_cassette(str(file), record_mode="all"):
        live = asyncio.run(post())
    ours = replay(file)
    for (route, body), response in zip(CALLS, live, strict=True):
        answer = asked(ours, f"{base}/{route}", json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())
        assert (answer.status, answer.body) == (response.status_code, response.content)


def test_additions_to_a_vcrpy_cassette_replay_in_both(base: str, tmp_path: Path) -> None:
    file = tmp_path / "both.yaml"
    with vcr.use_cassette(str(file), record_mode="all"):
        post(f"{base}/chat", {"q": 1})
    asked(record(file), f"{base}/chat", {"q": 2})
    with vcr_for(file) as playing:
        assert [json.loads(post(f"{base}/chat", {"q": q}).content)["count"] for q in (1, 2)] == [1, 2]
        assert playing.all_played
    assert [asked(replay(file), f"{base}/chat", {"q": q}).json()["count"] for q in (1, 2)] == [1, 2]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not beside the repository")
def test_foreign_cassettes_read_by_vcrpy_have_the_same_content() -> None:
    compared = 0
    for file in sorted(CORPUS.rglob("*.yaml")):
        if "parsed_body" in file.read_text("utf-8") or "request_s" in file.read_text("utf-8"):
            continue  # forms that plain vcrpy does not know
        theirs = Cassette.load(path=str(file), serializer=vcr.VCR().serializers["yaml"])
        (ours,) = load_cassettes(file)
        for one, request, response in zip(ours.interactions, theirs.requests, theirs.responses, strict=True):
            assert (one.method, one.uri, one.body) == (request.method, request.uri, request.body or b"")
            assert (one.response.status, one.response.body) == (response["status"]["code"], response["body"]["string"])
            compared += 1
    assert compared > 0


def test_a_recording_by_a_custom_client_replays_in_vcrpy(base: str, tmp_path: Path) -> None:
    async def through_httpx() -> bytes:
        async with httpx.AsyncClient(transport=RecordTransport(tmp_path / "own.yaml")) as client:
            return (await client.post(f"{base}/gzip-sse", json={"q": 1})).content

    assert asyncio.run(through_httpx()) == b"".join(EVENTS)
    with vcr_for(tmp_path / "own.yaml"):
        assert post(f"{base}/gzip-sse", {"q": 1}).content == b"".join(EVENTS)
