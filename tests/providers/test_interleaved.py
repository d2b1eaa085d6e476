"""One provider object, many concurrent streams: they do not mix. All state is in the parser, none in the provider."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import threading
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.messages import Message, ModelRequest
from agentlab.model.responses import ModelResponse, StreamEvent
from agentlab.providers.base import Provider as ProviderProtocol
from agentlab.providers.base import StreamParser
from agentlab.providers.registry import names
from agentlab.records.events import TextReceived

from . import bedrock_bodies, bodies, responses_bodies
from .bodies import Answer, Call, cut, provider

every_provider = pytest.mark.parametrize("name", names())

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
"""Each stream contains only its own word."""


def answer(word: str, *, calls: bool = True) -> Answer:
    return Answer(
        text=(f"{word} one ", f"{word} two ", f"{word} thrée"),
        reasoning=(f"{word}? ", f"{word}!"),
        calls=(Call(f"tool_{word}", {"say": f"{word} and {word}"}), Call("both", {word: [1, 2]})) if calls else (),
        finish=FinishReason.TOOL_CALLS if calls else FinishReason.END_TURN,
        output_tokens=len(word),
    )


def stream(name: str, spoken: Answer) -> bytes:
    if name == "bedrock":
        return bedrock_bodies.stream(spoken)
    return responses_bodies.stream(spoken) if name.endswith("-responses") else bodies.stream(name, spoken)


def read(parser: StreamParser, pieces: Sequence[bytes]) -> tuple[list[StreamEvent], ModelResponse]:
    emitted = [event for piece in pieces for event in parser.feed(piece)]
    parser.finish()
    return emitted, parser.response()


def pieces(data: bytes, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return cut(data, [chance.randrange(len(data)) for _ in range(40)])


@every_provider
def test_interleaved_streams_through_one_object(name: str):
    one = provider(name)
    alone = {word: read(one.stream_parser(), [stream(name, answer(word))]) for word in WORDS}
    chance = random.Random(17)
    for _ in range(10):
        parsers = {word: one.stream_parser() for word in WORDS}
        waiting = {word: pieces(stream(name, answer(word)), chance.randrange(10**6)) for word in WORDS}
        emitted: dict[str, list[StreamEvent]] = {word: [] for word in WORDS}
        while any(waiting.values()):
            word = chance.choice([word for word in WORDS if waiting[word]])
            emitted[word] += parsers[word].feed(waiting[word].pop(0))
        for word, parser in parsers.items():
            parser.finish()
            assert emitted[word] == alone[word][0]
            assert parser.response() == alone[word][1]
            assert_contains_only(word, parser.response())


def assert_contains_only(word: str, response: ModelResponse) -> None:
    assert response.text == f"{word} one {word} two {word} thrée"
    assert response.reasoning == f"{word}? {word}!"
    spoken = [(call.name, json.loads(call.arguments), call.closed) for call in response.tool_calls]
    assert spoken == [(f"tool_{word}", {"say": f"{word} and {word}"}, True), ("both", {word: [1, 2]}, True)]
    assert response.signal.finish_reason is FinishReason.TOOL_CALLS
    assert response.usage.output_tokens == len(word)


@every_provider
def test_a_broken_stream_leaves_no_state_behind(name: str):
    one = provider(name)
    whole = stream(name, answer("alpha"))
    broken, sound = one.stream_parser(), one.stream_parser()
    lost = pieces(whole, 1)[:25]
    for first, second in zip_longest(lost, pieces(stream(name, answer("beta")), 2), fillvalue=b""):
        broken.feed(first)
        sound.feed(second)
    broken.finish()
    sound.finish()
    assert_contains_only("beta", sound.response())
    broken.reset()
    assert_contains_only("alpha", read(broken, [whole])[1])


@every_provider
def test_streams_in_threads_through_one_object(name: str):
    one = provider(name)
    start = threading.Barrier(4)
    found: dict[int, list[ModelResponse]] = {}

    def work(number: int) -> None:
        word = WORDS[number]
        data = stream(name, answer(word))
        start.wait()
        found[number] = [read(one.stream_parser(), pieces(data, turn))[1] for turn in range(15)]

    threads = [threading.Thread(target=partial(work, number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert len(found[number]) == 15
        for response in found[number]:
            assert_contains_only(WORDS[number], response)


# Two runs of one agent ---------------------------------------------------------------------------------------------------------


@every_provider
def test_two_concurrent_runs_of_one_agent(name: str, tmp_path: Path):
    one = provider(name)
    file = tmp_path / "two.json"
    file.write_text(json.dumps({"version": 1, "interactions": [recorded(one, word) for word in WORDS[:2]]}))
    heard: list[tuple[str, str]] = []

    async def both() -> list[lab.RunResult]:
        agent = lab.Agent(one, stream=True)
        replay = lab.replay(file, pace=1.0)
        runs = [agent.run(f"Say {word}.", transport=replay, observers=[partial(listen, word)]) for word in WORDS[:2]]
        return [await one for one in [asyncio.ensure_future(_finished(run)) for run in runs]]

    def listen(word: str, event: object) -> None:
        if isinstance(event, TextReceived):
            heard.append((word, event.text))

    results = asyncio.run(both())
    for word, result in zip(WORDS, results, strict=False):
        assert (result.stop_reason, result.text) == (StopReason.COMPLETED, f"{word} one {word} two {word} thrée")
        assert "".join(text for who, text in heard if who == word) == result.text
    speakers = [who for who, _ in heard]
    assert speakers != sorted(speakers)  # they did stream concurrently


async def _finished(run: lab.Run) -> lab.RunResult:
    return await run


def recorded(one: ProviderProtocol, word: str) -> dict[str, Any]:
    """A recorded stream that arrives in ten pieces."""
    request = one.build_request(ModelRequest(messages=(Message("user", f"Say {word}."),), stream=True))
    data = stream(one.name, answer(word, calls=False))
    size = len(data) // 10
    sizes = [size] * 9 + [len(data) - 9 * size]
    kind = "application/vnd.amazon.eventstream" if one.name == "bedrock" else "text/event-stream"
    return {
        "request": {"method": request.method, "uri": request.url, "body": request.body.decode(), "headers": {}},
        "response": {
            "status": {"code": 200, "message": "OK"},
            "headers": {"content-type": [kind]},
            "body": {"base64_string": base64.b64encode(data).decode()},
            "chunks": sizes,
            "delays_s": [0.003] * 10,
        },
    }
