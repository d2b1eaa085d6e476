"""The answers of every provider are recorded and replayed: whole, as a stream, at the recorded pace, and without a key."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fake_time import OwnTime
from socket_reads import wait_until_read

import agentlab as lab
from agentlab.providers.registry import names
from agentlab.transport.cassette import load_cassette, load_cassettes

from .call_builders import KEY, essence, finished, go
from .server import Handler, Reply, serving

QUESTION = Path(__file__).parents[2] / "fixtures" / "question"
TYPES = {"bedrock": "application/vnd.amazon.eventstream"}
PAUSE_S, PIECES = 0.04, 4


def answers_of(name: str, *, streaming: bool) -> list[bytes]:
    """The two turns of the question fixture on this provider's wire: a tool call, and the answer."""
    bare = name.removesuffix("-vertex").removesuffix("-foundry")
    wire = "openai-responses" if name.endswith("-responses") else bare if bare in ("anthropic", "gemini", "bedrock") else "openai"
    file = QUESTION / f"{wire}{'-stream' if streaming else ''}.yaml"
    return [interaction.response.body for interaction in load_cassette(file).interactions]


def in_pieces(body: bytes, content_type: str, pause_s: float) -> Reply:
    """The body in chunks, with a pause after each; a header and a cookie contain the key."""

    def reply(handler: Handler) -> None:
        handler.begin(
            200, ("content-type", content_type), ("transfer-encoding", "chunked"), ("set-cookie", f"s={KEY}"), ("x-auth", KEY)
        )
        size = -(-len(body) // PIECES)
        for start in range(0, len(body), size):
            handler.chunk(body[start : start + size])
            wait_until_read(handler.connection)
            time.sleep(pause_s)
        handler.wfile.write(b"0\r\n\r\n")

    return reply


def get_weather(city: str, day: str = "") -> str:
    """The weather in a city."""
    return f"rain in {city}"


def run(base: str, name: str, transport: object, *, streaming: bool, key: str | None) -> lab.RunResult:
    place = {"project": "made-up"} if name.endswith("-vertex") else {}
    provider = lab.Provider(name, model="some-model", base_url=base, api_key=key, **place)
    agent = lab.Agent(provider, tools=[lab.tool(inline=True)(get_weather)], stream=streaming, options={"user": key or "nobody"})
    return go(finished(agent.run("Do I need an umbrella?", transport=transport)))  # type: ignore[arg-type]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", names())
def test_a_recording_replays_the_same(name: str, streaming: bool, tmp_path: Path) -> None:
    kind = TYPES.get(name, "text/event-stream") if streaming else "application/json"
    bodies = answers_of(name, streaming=streaming)
    script = [in_pieces(body, kind, pause_s) for pause_s in (0.0, PAUSE_S) for body in bodies]
    with serving(script=script) as server:
        base = server.base.removesuffix("/v1") if name in ("bedrock", "anthropic", "anthropic-foundry") else server.base
        first = run(base, name, lab.record(tmp_path), streaming=streaming, key=KEY)
        again = run(base, name, lab.record(tmp_path), streaming=streaming, key=KEY)  # recorded again: replaced, not added
        assert len(server.asked) == 2 * len(bodies)
    assert first.stop_reason == "completed", first
    assert len(first.history) == 2
    assert first.usage.total_tokens is not None
    assert essence(again) == essence(first)

    interactions = [one for cassette in load_cassettes(tmp_path) for one in cassette.interactions]
    assert [one.response.body for one in interactions] == bodies
    if streaming:
        assert all(sum(one.response.chunks) == len(one.response.body) for one in interactions)
        assert all(len(one.response.chunks) >= PIECES for one in interactions)
        assert all(sum(one.response.delays_s) > PAUSE_S * (PIECES - 2) for one in interactions)
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or KEY.encode() not in file.read_bytes()

    own, took_s = OwnTime(), sum(sum(one.response.delays_s) for one in interactions)
    with own.is_everybodys():
        for pace in (0.0, 1.0):
            began = time.monotonic()
            again = run(base, name, lab.replay(tmp_path, pace=pace), streaming=streaming, key=None)
            assert essence(again) == essence(first)
            assert time.monotonic() - began == pytest.approx(pace * took_s, abs=0.05)
    assert took_s > len(bodies) * PAUSE_S * (PIECES - 2) * 0.5
