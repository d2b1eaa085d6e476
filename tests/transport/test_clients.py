"""Recording and replaying in other people's clients: of both HTTP libraries and of vendors' SDKs, sync and async."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from agentlab.errors import ReplayMissError
from agentlab.transport import record, replay
from tests.engine.server import Asked, Reply, cut, serving, stream, whole, zipped

from .conftest import KEY, interaction

LIBRARIES = [pytest.param(httpx, id="httpx"), pytest.param(httpx2, id="httpx2")]

CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5.4-mini",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Graz."}, "finish_reason": "stop"}],
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-6",
    "content": [{"type": "text", "text": "Graz."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 2},
}


def lines(*events: dict[str, Any]) -> list[bytes]:
    named = (f"event: {event['type']}\n".encode() if "type" in event else b"" for event in events)
    return [name + b"data: " + json.dumps(event).encode() + b"\n\n" for name, event in zip(named, events, strict=True)]


CHUNKS = [
    {**CHAT, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
    for word in ("Gr", "az.")
]
EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Gr"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "az."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]


def provider(asked: Asked) -> Reply:
    streams = asked.json.get("stream", False)
    if asked.path.endswith("/chat/completions"):
        return stream(*lines(*CHUNKS), b"data: [DONE]\n\n") if streams else whole(CHAT)
    return stream(*lines(*EVENTS)) if streams else whole(MESSAGE)


# Vendors' SDKs ----------------------------------------------------------------------------------------------------------------


def of_openai(base: str, transport: Any) -> list[str]:
    import openai

    question: Any = {"model": "gpt-5.4-mini", "messages": [{"role": "user", "content": "Where?"}]}
    with openai.OpenAI(api_key=KEY, base_url=base, http_client=openai.DefaultHttpxClient(transport=transport)) as client:
        answer = client.chat.completions.create(**question).choices[0].message.content
        pieces = [chunk.choices[0].delta.content for chunk in client.chat.completions.create(**question, stream=True)]
    return [answer or "", *pieces]


def of_openai_async(base: str, transport: Any) -> list[str]:
    import openai

    question: Any = {"model": "gpt-5.4-mini", "messages": [{"role": "user", "content": "Where?"}]}

    async def ask() -> list[str]:
        http = openai.DefaultAsyncHttpxClient(transport=transport)
        async with openai.AsyncOpenAI(api_key=KEY, base_url=base, http_client=http) as client:
            answer = (await client.chat.completions.create(**question)).choices[0].message.content
            chunks = await client.chat.completions.create(**question, stream=True)
            return [answer or "", *[chunk.choices[0].delta.content async for chunk in chunks]]

    return asyncio.run(ask())


QUESTION: Any = {"model": "claude-sonnet-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "Where?"}]}


def of_anthropic(base: str, transport: Any) -> list[str]:
    import anthropic

    http = anthropic.DefaultHttpxClient(transport=transport)
    with anthropic.Anthropic(api_key=KEY, base_url=base.removesuffix("/v1"), http_client=http) as client:
        answer = client.messages.create(**QUESTION).content[0].text
        with client.messages.stream(**QUESTION) as streamed:
            return [answer, *streamed.text_stream]


def of_anthropic_async(base: str, transport: Any) -> list[str]:
    import anthropic

    async def ask() -> list[str]:
        http = anthropic.DefaultAsyncHttpxClient(transport=transport)
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=base.removesuffix("/v1"), http_client=http) as client:
            answer = (await client.messages.create(**QUESTION)).content[0].text
            async with client.messages.stream(**QUESTION) as streamed:
                return [answer, *[text async for text in streamed.text_stream]]

    return asyncio.run(ask())


@pytest.mark.parametrize("ask", [of_openai, of_openai_async, of_anthropic, of_anthropic_async])
def test_the_clients_of_vendors_record_and_replay(tmp_path: Path, ask: Callable[[str, Any], list[str]]) -> None:
    with serving(script=provider) as server:
        live = ask(server.base, record(tmp_path).transport())
        requests = len(server.asked)
    assert live == ["Graz.", "Gr", "az."]
    assert requests == 2
    assert ask(server.base, replay(tmp_path).transport()) == live, "the server is gone"
    assert KEY not in "".join(file.read_text() for file in tmp_path.iterdir())


# Both libraries ------------------------------------------------------------------------------------------------------------------


def posted(library: Any, transport: Any, url: str, *bodies: Any, sync: bool) -> list[Any]:
    async def post() -> list[Any]:
        async with library.AsyncClient(transport=transport) as client:
            return [await client.post(url, json=body) for body in bodies]

    if sync:
        with library.Client(transport=transport) as client:
            return [client.post(url, json=body) for body in bodies]
    return asyncio.run(post())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
def test_either_library_records_and_replays(tmp_path: Path, library: Any, sync: bool) -> None:
    with serving(whole({"a": 1}), zipped(b'{"a": 2}'), stream(b"data: a\n\n", b"data: b\n\n")) as server:
        live = posted(library, record(tmp_path).transport(), server.base, {"q": 1}, {"q": 2}, {"q": 3}, sync=sync)
    again = posted(library, replay(tmp_path).transport(), server.base, {"q": 1}, {"q": 2}, {"q": 3}, sync=sync)
    assert {type(one) for one in live + again} == {library.Response}
    for answers in (live, again):
        assert [one.json() for one in answers[:2]] == [{"a": 1}, {"a": 2}]
        assert answers[2].text == "data: a\n\ndata: b\n\n"
    with pytest.raises(ReplayMissError, match="differs in"):
        posted(library, replay(tmp_path).transport(), server.base, {"q": 4}, sync=sync)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
def test_a_connection_that_breaks_off_breaks_off_again(tmp_path: Path, library: Any, sync: bool) -> None:
    with serving(cut(b'{"a": "long"}', "reset")) as server, pytest.raises(library.TransportError):
        posted(library, record(tmp_path).transport(), server.base, {}, sync=sync)
    with pytest.raises(library.ReadError, match="as it did when"):
        posted(library, replay(tmp_path).transport(), server.base, {}, sync=sync)


def test_all_clients_of_one_replay_share_its_recordings(cassette: Callable[..., Path]) -> None:
    recording = replay(cassette(interaction({"q": 1}, {"a": 1}), interaction({"q": 1}, {"a": 2})))
    url = "https://llm.example/v1/chat"
    first = posted(httpx, recording.transport(), url, {"q": 1}, sync=True)
    second = posted(httpx2, recording.transport(), url, {"q": 1}, sync=False)
    assert [one.json() for one in first + second] == [{"a": 1}, {"a": 2}]
