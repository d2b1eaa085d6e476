"""What is recorded, when, and what is left out."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import agentlab as lab
from agentlab.errors import ProviderConnectionError
from agentlab.testing import ScriptedProvider
from agentlab.transport import Record, RecordTransport, current, record, replay
from agentlab.transport.cassette import load_cassette
from agentlab.transport.http import HttpRequest
from agentlab.transport.recording import Recorder
from tests.internal.test_redaction import LOOK_LIKE_KEYS

from .conftest import KEY, asked, interaction, interactions
from .server import EVENTS, Server

AUTH = {"Authorization": f"Bearer {KEY}"}


def written(path: Path) -> str:
    return "".join(file.read_text("utf-8") for file in sorted(path.rglob("*")) if file.is_file())


def test_a_run_of_before_the_block_is_refused_in_it(tmp_path: Path) -> None:
    model = lab.Provider("openai", model="m", base_url="http://127.0.0.1:9", api_key="sk-fake")
    for block, name in ((lab.replay("sample:trip"), "replay"), (lab.record(tmp_path / "new"), "record")):
        run = lab.Agent(model).run("q")
        with block, pytest.raises(lab.errors.ConfigurationError, match=rf"created before `with lab.{name}"):
            run.start()
        assert len(run.history) == 0 and run.result is None


def test_a_scripted_model_in_a_recording_is_a_warning_once(base: str, tmp_path: Path) -> None:
    agent = lab.Agent(ScriptedProvider(["end"]))
    message = (
        r"lab\.record\('.*rec'\) has written nothing: the model scripted:script answers in Python, .* no HTTP request was made"
    )
    with lab.record(tmp_path / "rec"):
        with pytest.warns(lab.AgentlabWarning, match=message):
            agent.run("go").start().wait()
        agent.run("go").start().wait()  # no second warning
    assert not (tmp_path / "rec").exists()
    agent.run("go").start().wait()  # outside of the block
    with lab.replay("sample:trip"):
        agent.run("go").start().wait()
    with lab.record(tmp_path / "rec"):
        agent.run("go").cancel()  # it has asked nothing
    with lab.record(tmp_path / "rec") as recording:  # not empty
        asked(recording, f"{base}/chat", {"q": 1})
        agent.run("go").start().wait()


def test_a_recording_replays_the_same(base: str, tmp_path: Path, provider: Server) -> None:
    calls: list[tuple[str, Any]] = [
        ("chat", {"q": "é 🌊"}),
        ("sse", {"q": 1}),
        ("gzip", {}),
        ("gzip-sse", {}),
        ("busy", {}),
        ("binary", {}),
        ("chat", b"not json \xff"),
    ]
    with record(tmp_path / "rec") as recording:
        live = [asked(current(), f"{base}/{route}", body, auth=AUTH) for route, body in calls]
    assert repr(recording).endswith("rec'): 7 interactions written")
    assert recording.needs_key is True
    requests = len(provider.seen)
    with replay(tmp_path / "rec"):
        again = [asked(current(), f"{base}/{route}", body) for route, body in calls]
    assert len(provider.seen) == requests
    for (route, _), first, second in zip(calls, live, again, strict=True):
        assert second.status == first.status
        assert second.headers["content-type"] == first.headers["content-type"]
        if route in ("sse", "gzip-sse", "binary"):
            assert second.chunks == first.chunks, route
        else:
            assert second.json() == first.json()
    assert again[4].headers["retry-after"] == "2"


def test_a_compressed_recording_replays_the_same_and_is_the_same_json(base: str, tmp_path: Path) -> None:
    with record(tmp_path / "small.json.gz"):
        live = [asked(current(), f"{base}/{route}", {"q": 1}) for route in ("chat", "sse")]
    with record(tmp_path / "small.json.gz"):  # goes on with the file
        live.append(asked(current(), f"{base}/chat", {"q": 2}))
    document = json.loads(gzip.decompress((tmp_path / "small.json.gz").read_bytes()))
    assert len(document["interactions"]) == 3
    for path in (tmp_path, tmp_path / "small.json.gz"):
        with replay(path):
            again = [asked(current(), f"{base}/{route}", {"q": q}) for route, q in (("chat", 1), ("sse", 1), ("chat", 2))]
        assert [one.chunks for one in again] == [one.chunks for one in live]


def test_one_readable_file_per_host(base: str, tmp_path: Path, provider: Server) -> None:
    with record(tmp_path):
        asked(current(), f"{base}/sse", {"model": "m", "messages": [{"role": "user", "content": "hi\nthere"}]})
    (file,) = tmp_path.iterdir()
    assert file.name == f"127.0.0.1-{provider.server_port}.yaml"
    lines = file.read_text("utf-8").splitlines()
    assert lines[0] == "version: 1"
    assert '"content": "hi\\nthere"' in map(str.strip, lines)
    assert '        data: {"n": 4, "text": "héllo 🌊 4"}' in lines
    assert any(line == f"    chunks: {[len(event) for event in EVENTS]}" for line in lines)
    document = yaml.safe_load(file.read_text("utf-8"))
    assert document["origin"]["from"] == f"127.0.0.1:{provider.server_port}"
    assert len(document["origin"]["recorded"]) == 10
    delays = document["interactions"][0]["response"]["delays_s"]
    assert len(delays) == 5
    assert 0.05 < sum(delays) < 5


def test_it_is_on_disk_before_the_caller_has_the_end(base: str, tmp_path: Path) -> None:
    recording = record(tmp_path / "one.json")

    async def stepwise() -> None:
        async with recording.open(HttpRequest("POST", f"{base}/sse", {}, b"{}"), auth={}, replay_key="", timeout_s=60) as answer:
            async for _ in answer.chunks():
                assert not (tmp_path / "one.json").exists()
            assert interactions(tmp_path / "one.json")[0].response.incomplete is False

    asyncio.run(stepwise())


def test_recording_again_replaces_the_request_and_keeps_the_rest(base: str, tmp_path: Path) -> None:
    def counts() -> list[Any]:
        return [(json.loads(one.body)["q"], json.loads(one.response.body)["count"]) for one in interactions(tmp_path)]

    with record(tmp_path):
        for q in (1, 2, 1):
            asked(current(), f"{base}/chat", {"q": q})
    assert counts() == [(1, 1), (2, 2), (1, 3)]
    with record(tmp_path):
        asked(current(), f"{base}/chat", {"q": 1})
        assert counts() == [(2, 2), (1, 4)]
        asked(current(), f"{base}/chat", {"q": 1})
        asked(current(), f"{base}/chat", {"q": 3})
    assert counts() == [(2, 2), (1, 4), (1, 5), (3, 6)]


def test_older_recordings_in_other_files_are_removed(base: str, tmp_path: Path) -> None:
    foreign = {
        "version": 1,
        "note": "mine",
        "interactions": [
            interaction({"q": 1}, uri=f"{base}/chat"),
            {"request_sample": {"raw": b"\xff"}, "response_sample": 1},
            interaction({"q": 2}, uri=f"{base}/chat"),
        ],
    }
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(foreign))
    (tmp_path / "b.json").write_text(
        json.dumps({"version": 1, "interactions": [interaction({"q": 3}, uri=f"{base}/chat"), interaction({"q": 4})]})
    )
    untouched = (tmp_path / "b.json").read_bytes()
    with record(tmp_path):
        asked(current(), f"{base}/chat", {"q": 1})
    assert yaml.safe_load((tmp_path / "a.yaml").read_text()) == {**foreign, "interactions": foreign["interactions"][1:]}  # type: ignore[index]
    assert (tmp_path / "b.json").read_bytes() == untouched
    with record(tmp_path):
        asked(current(), f"{base}/chat", {"q": 2})
        asked(current(), f"{base}/chat", {"q": 3})
    assert yaml.safe_load((tmp_path / "a.yaml").read_text())["interactions"] == [foreign["interactions"][1]]  # type: ignore[index]
    assert [json.loads(one.body)["q"] for one in interactions(tmp_path / "b.json")] == [4]
    assert asked(replay(tmp_path), f"{base}/chat", {"q": 3}).json()["count"] == 3


def test_labels_keep_repeats_apart(base: str, tmp_path: Path) -> None:
    with record(tmp_path):
        for replay_key in ("a1#first", "a2#second", "a3"):
            asked(current(), f"{base}/chat", {"q": 1}, replay_key=replay_key)
    assert [one.label for one in interactions(tmp_path)] == ["first", "second", ""]
    assert "a1" not in written(tmp_path)
    with record(tmp_path):
        asked(current(), f"{base}/chat", {"q": 1}, replay_key="b1#second")
    assert [(one.label, json.loads(one.response.body)["count"]) for one in interactions(tmp_path)] == [
        ("first", 1),
        ("second", 4),
    ]
    assert asked(replay(tmp_path), f"{base}/chat", {"q": 1}, replay_key="c#second").json()["count"] == 4


@pytest.mark.parametrize("before", [None, "synthetic", {"recorded": "2020-01-01", "from": "old.example", "by": "me"}])
@pytest.mark.parametrize("origin", [None, "synthetic", {"recorded": "2026-01-02"}])
def test_origin_of_a_recording(base: str, tmp_path: Path, before: Any, origin: Any, provider: Server) -> None:
    file = tmp_path / "one.yaml"
    if before is not None:
        file.write_text(yaml.safe_dump({"version": 1, "origin": before, "interactions": []}))
    with record(file, origin=origin):
        asked(current(), f"{base}/chat", {})
    got = load_cassette(file).origin
    host = f"127.0.0.1:{provider.server_port}"
    if origin is not None:
        assert got == origin
    elif isinstance(before, dict):
        assert isinstance(got, dict)
        assert got["by"] == "me"
        assert got["from"] == f"{host}, old.example"
        assert got["recorded"] > "2026"
    else:
        assert isinstance(got, dict)
        assert got["from"] == host
        assert got.get("beside") == before


def test_a_full_file_is_followed_by_another(base: str, tmp_path: Path, provider: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentlab.transport.recording.FULL_FILE_BYTES", 2_000)
    with record(tmp_path):
        for q in range(60):
            asked(current(), f"{base}/chat", {"q": q // 2})
    stem = f"127.0.0.1-{provider.server_port}"
    assert len(list(tmp_path.iterdir())) > 10
    assert (tmp_path / f"{stem}-10.yaml").exists()
    assert all(file.stat().st_size < 3_000 for file in tmp_path.iterdir())
    assert [json.loads(one.response.body)["count"] for one in interactions(tmp_path)] == list(range(1, 61))


# left out ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".yaml", ".json"])
@pytest.mark.parametrize("kind", LOOK_LIKE_KEYS)
def test_keys_planted_everywhere_are_not_written(base: str, tmp_path: Path, kind: str, suffix: str) -> None:
    planted = LOOK_LIKE_KEYS[kind]
    body = {"key": planted, "text": f"mine is\n{planted}, and {KEY}", "list": [{planted: KEY}]}
    target = tmp_path / f"rec{suffix}"
    with record(target):
        answer = asked(current(), f"{base}/leaky?key={KEY}&x={planted}", body, auth=AUTH, replay_key=f"run#{planted}")
    assert KEY in json.dumps(answer.json())  # the caller gets the original
    text = written(tmp_path)
    for secret in (KEY, planted, "c00kie-v4lue", "acme-research-lab", "session=", "set-cookie", "authorization:"):
        assert secret not in text.replace("your header", ""), secret
    assert "REDACTED" in text
    assert "req_1" in text
    assert (
        asked(replay(target), f"{base}/leaky?key=other&x={planted}", json.loads(json.dumps(body).replace(KEY, "REDACTED"))).status
        == 200
    )


def test_keys_in_streams_are_not_written_and_the_chunks_still_fit(tmp_path: Path) -> None:
    planted = LOOK_LIKE_KEYS["openai"]
    pieces = [b"data: a\n\n", f"data: {planted}".encode()[:12], f"data: {planted}".encode()[12:], b"\n\ndata: b\n\n"]

    async def stream():  # type: ignore[no-untyped-def]
        for piece in pieces:
            yield piece

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream())

    async def post() -> bytes:
        async with httpx.AsyncClient(transport=RecordTransport(tmp_path, transport=httpx.MockTransport(handler))) as client:
            return (await client.post("https://llm.example/v1", json={})).content

    assert asyncio.run(post()) == b"".join(pieces)
    (one,) = interactions(tmp_path)
    assert one.response.body == b"data: a\n\ndata: REDACTED\n\ndata: b\n\n"
    assert one.response.pieces()[0] == b"data: a\n\n"
    assert one.response.pieces()[-1] == b"\n\ndata: b\n\n"


def test_headers_are_allow_listed_in_a_custom_client(tmp_path: Path) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, headers={"X-Secret-Thing": "hush", "x-request-id": "r1"}, json={"echo": request.headers["x-api-key"]}
        )

    async def post() -> None:
        headers = {"x-api-key": KEY, "x-custom": "custom", "cookie": "biscuit"}
        async with httpx.AsyncClient(
            transport=RecordTransport(tmp_path, transport=httpx.MockTransport(handler)), headers=headers
        ) as client:
            assert (await client.post("https://llm.example/v1", json={})).json() == {"echo": KEY}

    asyncio.run(post())
    text = written(tmp_path)
    for word in (KEY, "hush", "custom", "biscuit", "user-agent"):
        assert word not in text
    (one,) = interactions(tmp_path)
    assert one.response.headers == {"content-type": "application/json", "x-request-id": "r1"}


@pytest.mark.parametrize("host", ["..", "../../etc", "h:80", "H.Example", "[::1]:9", "a b", "x" * 300])
def test_file_names_stay_in_the_folder(tmp_path: Path, host: str) -> None:
    recorder = Recorder(tmp_path / "rec")
    tape = recorder.begin(HttpRequest("POST", "https://llm.example/", {}, b""))
    tape.headers(200, "OK", {})
    tape.complete()
    recorder.add(1, host, interaction({"q": host}))
    assert {file.parent for file in tmp_path.rglob("*.yaml")} == {tmp_path / "rec"}


# incomplete streams --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_client", [False, True])
def test_a_broken_stream_is_stored_as_far_as_it_arrived(base: str, tmp_path: Path, own_client: bool) -> None:
    if own_client:
        with pytest.raises(httpx.TransportError):
            post_with(RecordTransport(tmp_path), f"{base}/break")
    else:
        with pytest.raises(ProviderConnectionError):
            asked(record(tmp_path), f"{base}/break", {})
    (one,) = interactions(tmp_path)
    assert one.response.incomplete
    assert one.response.body == b"".join(EVENTS[:2])
    with pytest.raises(ProviderConnectionError, match="as it did when"):
        asked(replay(tmp_path), f"{base}/break", {})


def post_with(transport: httpx.AsyncBaseTransport, url: str) -> httpx.Response:
    async def post() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.post(url, json={})

    return asyncio.run(post())


@pytest.mark.parametrize("route", ["sse", "gzip-sse"])
def test_an_abandoned_stream_is_stored_as_far_as_it_arrived(base: str, tmp_path: Path, route: str) -> None:
    async def leave(transport: Record) -> None:
        async with transport.open(
            HttpRequest("POST", f"{base}/{route}", {}, b"{}"), auth={}, replay_key="", timeout_s=60
        ) as answer:
            async for _ in answer.chunks():
                break

    async def leave_own() -> None:
        async with (
            httpx.AsyncClient(transport=RecordTransport(tmp_path / "own")) as client,
            client.stream("POST", f"{base}/{route}") as response,
        ):
            async for _ in response.aiter_bytes():
                break

    asyncio.run(leave(record(tmp_path / "ours")))
    asyncio.run(leave_own())
    for folder in ("ours", "own"):
        (one,) = interactions(tmp_path / folder)
        assert one.response.incomplete
        assert b"".join(EVENTS).startswith(one.response.body)
        assert b"" != one.response.body != b"".join(EVENTS)


def test_a_cancelled_request_leaves_nothing_or_its_part(provider: Server, base: str, tmp_path: Path) -> None:
    came: list[bytes] = []

    async def read(route: str) -> None:
        request = HttpRequest("POST", f"{base}/{route}", {}, b"{}")
        async with record(tmp_path).open(request, auth={}, replay_key="", timeout_s=60) as answer:
            async for chunk in answer.chunks():
                came.append(chunk)

    async def cancelled(route: str, begun: Callable[[], object]) -> None:
        task = asyncio.create_task(read(route))
        while not begun():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled("silent", lambda: provider.seen))
    assert list(tmp_path.iterdir()) == []
    asyncio.run(cancelled("sse", lambda: came))
    assert interactions(tmp_path)[0].response.incomplete


def test_a_failed_request_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(ProviderConnectionError):
        asked(record(tmp_path), "http://127.0.0.1:9/", {})
    assert list(tmp_path.iterdir()) == []
