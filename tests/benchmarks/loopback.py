"""One call over loopback HTTP with 60 messages of history: JSON, and streams of a thousand chunks; and the growth with more of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pydantic_core

from tests.benchmarks.measure import Prepare, Thunk, await_it, interleaved
from tests.benchmarks.server import LONG, running
from tests.benchmarks.streams import CHUNKS
from tests.benchmarks.table import Figure, Row, attempt

HISTORY = 60
MOST_GROWTH = 1.15
"""The goal for the cost per request with four times the history (whose new messages are as many), and per chunk of a longer stream."""

REQUESTS = 15
"""Number of calls timed together: JSON answers, or one stream with its many chunks."""


def history(length: int = HISTORY) -> list[dict[str, object]]:
    """That many messages on the wire: a task, then tool calls and their results."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "Compare the lighthouses of the northern coast."}]
    for number in range(1, length, 2):
        function = {"name": "search", "arguments": f'{{"query": "lighthouse {number}", "limit": 5}}'}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "Next I look for more.", "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"call_{number}", "content": f"Result {number}: " + "a tall tower. " * 20}
        )
    return messages[:length]


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire as the server speaks it: agentlab's provider, the path after `/v1`, and the vendor's client."""

    provider: str
    path: str
    client: str


CHAT = Wire("compatible", "/chat/completions", "openai")
OTHERS = (Wire("openai-responses", "/responses", "openai"), Wire("anthropic", "/messages", "anthropic"))


def floor(wire: Wire, base: str, stream: bool) -> Prepare:
    """httpx alone: the response is read, and each of its JSON texts is parsed."""
    body = {"model": "scripted", "messages": history(), "stream": stream}
    client = httpx.AsyncClient()

    async def whole() -> None:
        for _ in range(REQUESTS):
            answer = pydantic_core.from_json((await client.post(base + wire.path, json=body)).content)
            assert answer["choices"][0]["finish_reason"] == "stop"

    async def streamed() -> None:
        seen, rest = 0, b""
        async with client.stream("POST", base + wire.path, json=body) as response:
            async for chunk in response.aiter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.startswith(b"data: {"):
                        pydantic_core.from_json(line[6:])
                        seen += 1
        assert seen >= CHUNKS, seen

    return lambda: lambda: await_it(streamed() if stream else whole())


async def _count(stream: Any) -> None:
    seen = 0
    async for _ in stream:
        seen += 1
    assert seen >= CHUNKS, seen


def peers(wire: Wire, base: str, stream: bool) -> Prepare:
    """The vendor's own client."""
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=base, api_key="none")
    messages: Any = history()

    async def whole() -> None:
        for _ in range(REQUESTS):
            answer = await client.chat.completions.create(model="scripted", messages=messages)
            assert answer.choices[0].finish_reason == "stop"

    async def chat() -> None:
        await _count(await client.chat.completions.create(model="scripted", messages=messages, stream=True))

    async def responses() -> None:
        await _count(await client.responses.create(model="scripted", input=messages, stream=True))

    claude = AsyncAnthropic(base_url=base.removesuffix("/v1"), api_key="none")

    async def anthropic() -> None:
        await _count(await claude.messages.create(model="scripted", messages=messages, max_tokens=2_000, stream=True))

    streamed = {"/chat/completions": chat, "/responses": responses, "/messages": anthropic}[wire.path]
    return lambda: lambda: await_it(streamed() if stream else whole())


def ours(wire: Wire, base: str, stream: bool, length: int = HISTORY) -> Prepare:
    """A provider's request over the live transport with a parsed answer; only the last two messages of the history are new."""
    from agentlab import FinishReason, Provider
    from agentlab.engine.client import CallContext, HttpModel
    from agentlab.model.conversation import Conversation
    from agentlab.model.messages import Message, ModelRequest, ToolCall, ToolResult
    from agentlab.transport import current

    def message(sent: dict[str, Any]) -> Message:
        if sent["role"] == "tool":
            return Message("tool", tool_results=(ToolResult(sent["tool_call_id"], "search", sent["content"]),))
        calls = [ToolCall(call["id"], **call["function"]) for call in sent.get("tool_calls", ())]
        return Message(sent["role"], sent["content"], tuple(calls))

    provider = Provider(wire.provider, model="scripted", base_url=base, api_key="none")
    model = HttpModel(provider)
    context = CallContext(current(), "", 1, on_text=lambda text: None, on_retry=lambda *failure: None)
    messages = [message(sent) for sent in history(length)]

    def request() -> ModelRequest:
        conversation = Conversation(messages[:-2])
        provider.build_request(ModelRequest(conversation.view()))  # as in the previous step
        for new in messages[-2:]:
            conversation.append(new)
        return ModelRequest(conversation.view(), stream=stream)

    async def ask(requests: list[ModelRequest]) -> None:
        for one in requests:
            response = await model.respond(one, context)
            assert response.signal.finish_reason is FinishReason.END_TURN, response.signal

    def ready() -> Thunk:
        requests = [request() for _ in range(1 if stream else REQUESTS)]
        return lambda: await_it(ask(requests))

    return ready


def rows(with_peers: bool) -> Iterator[Row]:
    """A JSON request, and a chunk of a stream on each wire: of a stream that arrives at once, and of one whose chunks arrive alone."""
    asked = [(CHAT, False, "", "a JSON request", REQUESTS, 1.3), (CHAT, True, "", "a streamed chunk", CHUNKS, 1.6)]
    asked += [(wire, True, "", f"a streamed chunk, {wire.provider}", CHUNKS, 1.6) for wire in OTHERS]
    asked += [(CHAT, True, "/alone", "a streamed chunk that arrives alone", CHUNKS, 1.6)]
    with running() as server:
        for wire, stream, place, benchmark, units, at_most in asked:
            base = server.replace("/v1", f"{place}/v1")
            candidate, why_not = attempt(partial(ours, wire, base, stream))
            candidates: dict[str, Prepare] = {"floor": floor(wire, base, stream)}
            if with_peers:
                candidates[wire.client] = peers(wire, base, stream)
            if candidate:
                candidates["ours"] = candidate
            taken = {name: us / units for name, us in interleaved(candidates, repeats=4 if place else 12).items()}
            yield Row(
                benchmark=f"loopback, {benchmark}",
                unit="us",
                goal=f"<= {at_most} x httpx",
                at_most=at_most,
                floor=taken["floor"],
                peer=Figure(wire.client, taken[wire.client]) if with_peers else None,
                ours=taken.get("ours"),
                against=taken["floor"],
                why_not=why_not,
            )
        yield from growth(server)


def growth(server: str) -> Iterator[Row]:
    """The cost per request and per chunk at four times the size, against that at the usual size."""
    long = server.replace("/v1", "/long/v1")
    pairs = {
        f"a JSON request, {HISTORY * 4} messages of history": (
            ours(CHAT, server, False),
            ours(CHAT, server, False, HISTORY * 4),
            1,
        ),
        f"a streamed chunk, {CHUNKS * LONG:,} in the stream": (ours(CHAT, server, True), ours(CHAT, long, True), LONG),
    }
    for benchmark, (small, large, times) in pairs.items():
        taken = interleaved({"small": small, "large": large}, repeats=12)
        units = CHUNKS if times > 1 else REQUESTS
        yield Row(
            benchmark=f"loopback, {benchmark}",
            unit="us",
            goal=f"<= {MOST_GROWTH} x the small one" if times > 1 else "growth",
            at_most=MOST_GROWTH if times > 1 else None,
            ours=taken["large"] / units / times,
            against=taken["small"] / units,
        )
