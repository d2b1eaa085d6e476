"""Recorded responses in place of a provider."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agentlab.errors import ConfigurationError, FixtureNotFoundError, ProviderConnectionError, ReplayMissError
from agentlab.transport import ReplayTransport, replay
from agentlab.transport.cassette import Cassette, load_cassettes

from .conftest import CORPUS, ask, asked, interaction

Write = Callable[..., Path]
URL = "https://llm.example/v1/chat"
STREAM = interaction(
    {"q": 1}, "data: one\n\ndata: two\n\n", headers={"content-type": ["text/event-stream"]}, chunks=[11, 11], delays_s=[0.05, 0.1]
)


def test_no_key_is_needed_and_the_repr_shows_the_recordings(cassette: Write) -> None:
    one = replay(cassette(interaction(), interaction({"q": 2})))
    assert one.needs_key is False
    assert repr(one).startswith("replay('")
    assert repr(one).endswith("turns.json', match='strict': 2 interactions in 1 file, pace=0)")


def test_status_headers_and_body(cassette: Write) -> None:
    entry = interaction(
        {"q": 1},
        {"error": "é"},
        status={"code": 429, "message": "Too Many Requests"},
        headers={"Retry-After": ["2"], "Content-Length": ["1"]},
    )
    answer = asked(replay(cassette(entry)), URL, {"q": 1})
    assert (answer.status, answer.headers, answer.json()) == (429, {"retry-after": "2"}, {"error": "é"})
    assert asked(replay(cassette(entry)), URL, {"q": 1}, whole=True).json() == {"error": "é"}


def test_a_miss_and_a_missing_folder(cassette: Write, tmp_path: Path) -> None:
    with pytest.raises(ReplayMissError, match="recorded 1, requested 2"):
        asked(replay(cassette(interaction({"q": 1}))), URL, {"q": 2})
    with pytest.raises(FixtureNotFoundError):
        replay(tmp_path / "nowhere")


@pytest.mark.parametrize("pace", [-1, float("inf"), float("nan")])
def test_invalid_paces_are_refused(cassette: Write, pace: float) -> None:
    with pytest.raises(ConfigurationError, match="pace="):
        replay(cassette(interaction()), pace=pace)


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize(("pace", "takes_s"), [(0.0, 0.0), (0.5, 0.075), (1.0, 0.15)])
@pytest.mark.parametrize("whole", [True, False])
def test_pace_of_a_replay(cassette: Write, pace: float, takes_s: float, whole: bool) -> None:
    one = replay(cassette(STREAM), pace=pace)
    started = time.monotonic()
    answer = asked(one, URL, {"q": 1}, whole=whole)
    assert time.monotonic() - started == pytest.approx(takes_s, abs=0.001)
    assert answer.body == b"data: one\n\ndata: two\n\n"
    assert whole or answer.chunks == [b"data: one\n\n", b"data: two\n\n"]


@pytest.mark.parametrize("whole", [True, False])
def test_an_incomplete_recording_breaks_off_at_the_same_place(cassette: Write, whole: bool) -> None:
    file = cassette(interaction({"q": 1}, "data: one\n\n", incomplete=True), interaction({"q": 1}, "data: all\n\n"))
    one = replay(file)
    with pytest.raises(ProviderConnectionError, match=r"broke off, as it did when turns\.json, interaction 1 was recorded"):
        asked(one, URL, {"q": 1}, whole=whole)
    assert asked(one, URL, {"q": 1}, whole=whole).body == b"data: all\n\n"


def test_a_replay_yields_to_other_tasks(cassette: Write) -> None:
    one = replay(cassette(*(interaction({"q": n}) for n in range(20))))
    order: list[str] = []

    async def run(name: str) -> None:
        for n in range(20):
            await ask(one, URL, {"q": n}, replay_key=name)
            order.append(name)

    async def both() -> None:
        await asyncio.gather(run("a"), run("b"))

    asyncio.run(both())
    assert order == ["a", "b"] * 20


# in a custom httpx client --------------------------------------------------------------------------------------------------------


def posted(transport: httpx.AsyncBaseTransport, *bodies: dict[str, object], replay_key: str = "") -> list[httpx.Response]:
    async def post() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=transport) as client:
            extensions = {"agentlab.lane": replay_key} if replay_key else None
            return [await client.post(URL, json=body, extensions=extensions) for body in bodies]

    return asyncio.run(post())


def test_replay_in_a_custom_client(cassette: Write) -> None:
    transport = ReplayTransport(cassette(interaction({"q": 1}, {"a": 1}), interaction({"q": 1}, {"a": 2})))
    assert [one.json() for one in posted(transport, {"q": 1}, {"q": 1})] == [{"a": 1}, {"a": 2}]
    assert [one.json() for one in posted(transport, {"q": 1}, replay_key="other")] == [{"a": 1}]
    with pytest.raises(ReplayMissError):
        posted(transport, {"q": 1})
    assert "2 interactions" in repr(transport)


def test_a_stream_in_a_custom_client(cassette: Write) -> None:
    async def stream(path: Path) -> list[str]:
        async with (
            httpx.AsyncClient(transport=ReplayTransport(path, pace=0.1)) as client,
            client.stream("POST", URL, json={"q": 1}) as response,
        ):
            return [chunk async for chunk in response.aiter_text()]

    assert asyncio.run(stream(cassette(STREAM))) == ["data: one\n\n", "data: two\n\n"]
    with pytest.raises(httpx.ReadError, match="broke off"):
        asyncio.run(stream(cassette(interaction({"q": 1}, "x", incomplete=True))))


def test_a_streamed_request_body(cassette: Write) -> None:
    async def content():  # type: ignore[no-untyped-def]
        yield b'{"q":'
        yield b" 1}"

    async def post() -> int:
        async with httpx.AsyncClient(transport=ReplayTransport(cassette(interaction({"q": 1})))) as client:
            return (await client.post(URL, content=content())).status_code

    assert asyncio.run(post()) == 200


# foreign recordings --------------------------------------------------------------------------------------------------------------

OTHERS = sorted(CORPUS.rglob("*.yaml")) if CORPUS.is_dir() else []


@pytest.mark.skipif(not OTHERS, reason="the shared corpus is not beside the repository")
@pytest.mark.parametrize("file", OTHERS, ids=lambda file: f"{file.parent.name}/{file.stem}"[:70])
def test_foreign_cassettes_replay_in_order(file: Path) -> None:
    (recorded,) = load_cassettes(file)
    assert len(recorded.interactions) + recorded.skipped > 0
    one = replay(file, match="order")
    transport = ReplayTransport(file, match="order")
    asyncio.run(_replay_all(recorded, one, transport))
    strict = replay(file)
    for interaction_ in recorded.interactions:
        assert asked(strict, interaction_.uri, interaction_.body, method=interaction_.method).body == interaction_.response.body
    if not recorded.interactions:
        with pytest.raises(ReplayMissError, match="not HTTP and cannot be replayed"):
            asked(one, URL, {})


async def _replay_all(recorded: Cassette, one: object, transport: ReplayTransport) -> None:
    async with httpx.AsyncClient(transport=transport) as client:
        for entry in recorded.interactions:
            answer = await ask(one, entry.uri, b"whatever is asked", method=entry.method)  # type: ignore[arg-type]
            assert (answer.status, answer.body) == (entry.response.status, entry.response.body)
            response = await client.request(entry.method, entry.uri, content=b"whatever is asked")
            assert (response.status_code, response.content) == (entry.response.status, entry.response.body)
