"""Binary event streams recorded and replayed: chunks, delays, and valid frames without their keys."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.eventstream import EventStreamBuffer
from fake_time import OwnTime
from hypothesis import given, settings
from hypothesis import strategies as st
from socket_reads import wait_until_read

import agentlab as lab
from agentlab._internal.redaction import REDACTED, Redactor
from agentlab.model.responses import TextDelta
from agentlab.providers.bedrock import Bedrock
from agentlab.records.result import RunResult
from agentlab.transport import current, record, replay
from agentlab.transport.aws_eventstream import CONTENT_TYPE, build_frame, encode_headers
from agentlab.transport.stream_redaction import redact_frames

from .conftest import KEY, asked, interactions

LEAKED = "AK" + "IA" + "7EXAMPLE" * 2  # looks like a key, wherever it is


def frame(name: str, payload: Any, **headers: str) -> bytes:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    named = [(":event-type", name), (":message-type", "event"), *((f":{key}", value) for key, value in headers.items())]
    return build_frame(encode_headers(named), data)


def delta(text: str) -> bytes:
    return frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}})


FRAMES = [
    frame("messageStart", {"role": "assistant"}),
    delta("The key is "),
    delta(f"{KEY} and {LEAKED}"),
    delta(", keep it. 🌊"),
    frame("contentBlockStop", {"contentBlockIndex": 0}),
    frame("messageStop", {"stopReason": "end_turn"}),
    frame("metadata", {"usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}}),
]
BODY = b"".join(FRAMES)
CUTS = [0, 40, len(FRAMES[0]), 300, 420, 430, 640, len(BODY)]
PIECES = [BODY[start:end] for start, end in itertools.pairwise(CUTS)]


def payloads(body: bytes) -> list[tuple[str, Any]]:
    """The payloads by the vendor's own decoder; it raises at a wrong checksum."""
    buffer = EventStreamBuffer()
    buffer.add_data(body)
    found = [(message.headers[":event-type"], message.payload) for message in buffer]
    assert sum(len(one) for one in split(body)) == len(body)
    return found


def split(body: bytes) -> list[bytes]:
    found = []
    while body:
        length = int.from_bytes(body[:4], "big")
        found.append(body[:length])
        body = body[length:]
    return found


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", CONTENT_TYPE)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in PIECES:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            wait_until_read(self.connection)  # so that each chunk arrives separately
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def base() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def run(base: str, api_key: str | None = KEY) -> RunResult:
    async def once() -> RunResult:
        provider = Bedrock(model="some.model-v1:0", base_url=base, api_key=api_key)
        return await lab.Agent(provider, stream=True).run("What is the key?")

    return asyncio.run(once())


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_recorded_and_replayed(base: str, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"frames.{suffix}"
    with record(file):
        live = run(base)
    assert live.text == f"The key is {KEY} and {LEAKED}, keep it. 🌊"
    written = file.read_text("utf-8")
    (entry,) = interactions(file)
    assert entry.response.chunks
    assert entry.response.headers["content-type"] == CONTENT_TYPE
    document = (yaml.safe_load if suffix == "yaml" else json.loads)(written)
    body = document["interactions"][0]["response"]["body"]
    if suffix == "yaml":
        assert "!!binary" in written
        assert body["string"] == entry.response.body
    else:
        assert base64.b64decode(body["base64_string"]) == entry.response.body

    # No key is left, and all frames are valid; those without a key are unchanged.
    for secret in (KEY, LEAKED):
        assert secret.encode() not in entry.response.body
        assert secret not in written
    sent, kept = payloads(BODY), payloads(entry.response.body)
    assert [name for name, _ in kept] == [name for name, _ in sent]
    assert split(entry.response.body)[:2] + split(entry.response.body)[3:] == FRAMES[:2] + FRAMES[3:]
    assert json.loads(kept[2][1])["delta"] == {"text": f"{REDACTED} and {REDACTED}"}

    # The chunks are the received ones without the removed bytes.
    assert sum(entry.response.chunks) == len(entry.response.body)
    assert len(entry.response.chunks) == len(entry.response.delays_s) == len(PIECES)
    assert entry.response.chunks[:2] == tuple(map(len, PIECES[:2]))
    assert entry.response.chunks[-1] == len(PIECES[-1])
    assert sum(entry.response.delays_s) > 0.08

    for pace in (0.0, 1.0):
        own = OwnTime()
        with replay(file, pace=pace), own.is_everybodys():
            begun = time.monotonic()
            again = run(base)
            assert time.monotonic() - begun == pytest.approx(pace * sum(entry.response.delays_s), abs=0.01)
        assert again.text == f"The key is {REDACTED} and {REDACTED}, keep it. 🌊"
        assert (again.stop_reason, again.usage) == (live.stop_reason, live.usage)
        assert again.history[-1].signal == live.history[-1].signal


def test_no_part_of_a_signature_is_written(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", LEAKED)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t" * 6)
    monkeypatch.setenv("AWS_SESSION_TOKEN", KEY)
    with record(tmp_path / "one.yaml"):
        live = run(base, api_key=None)
    assert live.stop_reason == "completed"
    (entry,) = interactions(tmp_path / "one.yaml")
    assert KEY.encode() not in entry.response.body
    written = (tmp_path / "one.yaml").read_text("utf-8")
    for word in (LEAKED, KEY, "AWS4-HMAC", "Signature", "x-amz", "s3cr3t"):
        assert word.lower() not in written.lower()


def test_recording_again_merges(base: str, tmp_path: Path) -> None:
    with record(tmp_path):
        asked(current(), f"{base}/a", {"q": 1})
        asked(current(), f"{base}/a", {"q": 2})
    (file,) = tmp_path.iterdir()
    first = file.read_bytes()
    assert len(interactions(tmp_path)) == 2
    with record(tmp_path):
        asked(current(), f"{base}/a", {"q": 2}, auth={"authorization": f"Bearer {KEY}"})
    assert [json.loads(one.body)["q"] for one in interactions(tmp_path)] == [1, 2]
    assert KEY.encode() not in interactions(tmp_path)[0].response.body  # it was not known to be a key then; now it is
    assert KEY.encode() not in interactions(tmp_path)[1].response.body
    assert file.read_bytes() != first
    assert payloads(interactions(tmp_path)[1].response.body)


@pytest.mark.parametrize("region", ["eu-west-1", ""])
def test_a_recording_of_one_region_replays_in_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str) -> None:
    """The region comes from the environment and is not part of the question."""
    uri = "https://bedrock-runtime.ap-south-1.amazonaws.com/model/m/converse-stream"
    asked_for = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
    response = {
        "status": {"code": 200},
        "headers": {"content-type": [CONTENT_TYPE]},
        "body": {"base64_string": base64.b64encode(BODY).decode()},
    }
    entry = {"request": {"method": "POST", "uri": uri, "body": json.dumps(asked_for), "headers": {}}, "response": response}
    (tmp_path / "one.json").write_text(json.dumps({"version": 1, "interactions": [entry]}))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, region)

    async def once() -> RunResult:
        return await lab.Agent("bedrock:m", stream=True).run("Hi")

    with replay(tmp_path):
        assert asyncio.run(once()).stop_reason == "completed"


# Frames with removed secrets -----------------------------------------------------------------------------------------------

REDACT = Redactor([KEY])


def cut(data: bytes, places: list[int]) -> tuple[int, ...]:
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return tuple(end - start for start, end in itertools.pairwise(at))


@given(
    places=st.lists(st.integers(0, 2_000), max_size=20), words=st.lists(st.sampled_from([KEY, LEAKED, "a", "é" * 40]), max_size=6)
)
@settings(max_examples=150, deadline=None)
def test_frames_stay_valid_and_chunks_add_up(places: list[int], words: list[str]) -> None:
    body = b"".join(map(delta, words))
    sizes = cut(body, places)
    redacted, moved = redact_frames(REDACT, body, sizes)
    assert (len(moved), sum(moved)) == (len(sizes), len(redacted))
    assert min(moved, default=0) >= 0
    texts = [json.loads(payload)["delta"]["text"] for _, payload in payloads(redacted)]
    assert texts == [REDACTED if word in (KEY, LEAKED) else word for word in words]
    if not {KEY, LEAKED} & set(words):
        assert (redacted, moved) == (body, sizes)
    parser = Bedrock(model="m").stream_parser()
    emitted, at = [], 0
    for size in moved:
        emitted += parser.feed(redacted[at : at + size])
        at += size
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == "".join(texts)


def test_a_boundary_between_frames_stays_between_them() -> None:
    sizes = tuple(map(len, FRAMES))
    redacted, moved = redact_frames(REDACT, BODY, sizes)
    assert moved == tuple(map(len, split(redacted)))


def test_a_key_in_a_header() -> None:
    body = frame("x", b"", **{"error-message": f"who is {KEY}?"}) + delta("on")
    redacted, _ = redact_frames(REDACT, body)
    assert redacted == frame("x", b"", **{"error-message": f"who is {REDACTED}?"}) + delta("on")


@pytest.mark.parametrize("end", [-1, -30, -60])
def test_a_torn_end_stays_torn(end: int) -> None:
    torn = (delta("on") + delta(f"it is {KEY}"))[:end]
    redacted, _ = redact_frames(REDACT, torn, (len(torn),))
    assert KEY.encode() not in redacted
    parser = Bedrock(model="m").stream_parser()
    parser.feed(redacted)
    parser.finish()
    assert (parser.sound, parser.response().text) == (False, "on")


@given(at=st.integers(0, len(BODY) - 1), bit=st.integers(0, 7))
@settings(max_examples=100, deadline=None)
def test_damage_stays_damage(at: int, bit: int) -> None:
    damaged = BODY[:at] + bytes([BODY[at] ^ 1 << bit]) + BODY[at + 1 :]
    redacted, moved = redact_frames(REDACT, damaged, (at, len(BODY) - at))
    assert sum(moved) == len(redacted)
    parser = Bedrock(model="m").stream_parser()
    parser.feed(redacted)
    parser.finish()
    assert not parser.sound
