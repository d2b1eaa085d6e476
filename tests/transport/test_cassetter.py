"""cassetter as the oracle: its recordings replay here, and our cassettes replay in it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import cassetter
import cassetter.cli
import httpx
import pytest

import agentlab as lab
from agentlab.transport import record, replay
from agentlab.transport.cassette import load_cassette
from tests.fixtures import scenarios

from .conftest import asked
from .test_vcr import CALLS

TEXTS = [
    "12:30",
    "190:20:30",
    "2027-06-12",
    "2027-06-12T10:00:00Z",
    "=",
    "<<",
    "yes",
    "~",
    "",
    "1_000",
    "0777",
    "a: b",
    "# a",
    "\x00",
]
NUMBERS = [0, -1, 1.5, 1.0, 1e-5, 1e16, 1.5e-7, 2**53]
ODD = {
    "texts": TEXTS,
    "keys": dict.fromkeys(["2027-06-12", "12:30", "yes"], 1),
    "numbers": NUMBERS,
    "others": [[], {}, None, True],
}


def post(url: str, body: Any) -> httpx.Response:
    """With httpx, which cassetter patches."""
    return httpx.post(url, json=body, timeout=5)


@pytest.mark.parametrize("match", ["strict", "order"])
def test_a_cassette_of_cassetter_replays_here(base: str, tmp_path: Path, match: Any) -> None:
    file = tmp_path / "theirs.yaml"
    with cassetter.use_cassette(str(file)):
        live = [post(f"{base}/{route}", body) for route, body in CALLS]
    text = file.read_text("utf-8")
    assert all(f"type: {kind}\n" in text for kind in ("json", "text", "binary"))
    ours = replay(file, match=match)
    for (route, body), response in zip(CALLS, live, strict=True):
        answer = asked(ours, f"{base}/{route}", body)
        assert answer.status == response.status_code
        assert answer.body == response.content or answer.json() == response.json()


def test_every_json_value_of_cassetter_is_read_as_it_reads_it(base: str, tmp_path: Path) -> None:
    file = tmp_path / "theirs.yaml"
    with cassetter.use_cassette(str(file)):
        post(f"{base}/chat", ODD)
    (one,) = load_cassette(file).interactions
    assert json.loads(one.body) == ODD
    assert one.recorded.at is not None


@pytest.mark.parametrize(
    ("model", "fixture"),
    [
        ("openai:gpt-5.4-mini", "openai.yaml"),
        ("openai:gpt-5.4-mini", "openai-stream.yaml"),
        ("anthropic:claude-sonnet-4-6", "anthropic.yaml"),
        ("gemini:gemini-3.5-flash", "gemini.yaml"),
    ],
)
def test_a_run_replays_from_a_cassette_that_cassetter_converted(tmp_path: Path, model: str, fixture: str) -> None:
    ours, theirs = Path("fixtures/question") / fixture, tmp_path / "theirs.yaml"
    cassetter.cli.convert_file(ours, theirs)
    assert "type: json" in theirs.read_text("utf-8")
    results = []
    for file in (ours, theirs):
        with lab.replay(file, match="order"):
            agent = lab.Agent(model, tools=[scenarios.get_weather], stream="stream" in fixture)
            results.append(asyncio.run(to_the_end(agent.run("Do I need an umbrella in Graz on Saturday, 12 June 2027?"))))
    assert [result.stop_reason for result in results] == [lab.StopReason.COMPLETED] * 2
    assert results[0].text == results[1].text != ""


async def to_the_end(run: lab.Run) -> lab.RunResult:
    return await run


def test_our_cassette_replays_in_cassetter(base: str, tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    live = [asked(record(file), f"{base}/{route}", body) for route, body in CALLS]
    with cassetter.use_cassette(str(file), record_mode="none"):
        for (route, body), answer in zip(CALLS, live, strict=True):
            response = post(f"{base}/{route}", body)
            assert response.status_code == answer.status
            assert response.content == answer.body or response.json() == answer.json()
