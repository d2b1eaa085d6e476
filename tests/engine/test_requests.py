"""Requests on the wire: each extends the one before, every message is encoded once, and one connection is reused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from providers.bodies import WIRES, Answer

import agentlab as lab
from agentlab.limits.policies import RECOVERY_HINT
from agentlab.model.messages import Message

from .call_builders import KEY, agent, finished, go, looking_for, reply_to, result_of
from .server import serving

MESSAGES = {"gemini": b'"contents":['}
WIRE = {"anthropic": "anthropic.messages", "gemini": "gemini.generate"}
STEPS = 5


def messages_in(body: bytes, wire: str) -> bytes:
    """The bytes of the messages, without the brackets."""
    start = body.index(MESSAGES.get(wire, b'"messages":[')) + len(MESSAGES.get(wire, b'"messages":['))
    depth, in_text, at = 1, False, start
    while depth:
        byte = body[at : at + 1]
        if in_text:
            at += byte == b"\\"
            in_text = byte != b'"'
        else:
            in_text = byte == b'"'
            depth += (byte in (b"[", b"{")) - (byte in (b"]", b"}"))
        at += 1
    return body[start : at - 1]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_each_request_begins_with_the_messages_of_the_previous_one(wire: str, streaming: bool) -> None:
    def encode_again(message: Message) -> bytes:
        raise AssertionError(f"{message} was encoded already")

    topics = [f'tëa "{number}" [{{' for number in range(STEPS - 1)]
    with serving(script=looking_for(lambda asked: topics, wire)) as server:
        one = agent(server, wire, stream=streaming, instructions="Be brief.")
        run = one.run("go")
        result = go(finished(run))
    assert [step.index for step in result.history] == list(range(1, STEPS + 1))
    sent = [messages_in(asked.body, wire) for asked in server.asked]
    assert len(sent) == STEPS
    for before, after in itertools.pairwise(sent):
        assert after.startswith(before + b",")
    first, *rest = (asked.body.replace(messages, b"") for asked, messages in zip(server.asked, sent, strict=True))
    assert rest == [first] * (STEPS - 1)  # the fields beside the messages are unchanged
    assert (
        len(run.timeline.conversation.encoded(WIRE.get(wire, f"{wire}.chat"), encode_again, len(run.messages) - 1))
        == len(run.messages) - 1
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_cut_answer_is_continued_by_a_system_message_where_the_wire_takes_one(wire: str) -> None:
    half = reply_to(wire, Answer(text=("It is ha",), finish=lab.FinishReason.MAX_TOKENS), streaming=False)
    with serving(half, reply_to(wire, Answer(text=("lf.",)), streaming=False)) as server:
        assert result_of(server, wire).text == "It is half."
    newest = server.asked[1].json["contents" if wire == "gemini" else "messages"][-1]
    assert RECOVERY_HINT in str(newest["parts"][0]["text"] if wire == "gemini" else newest["content"])
    assert newest["role"] == ("system" if wire in ("openai", "azure", "xai") else "user")


def test_a_fork_sends_the_bytes_of_its_parent() -> None:
    async def main() -> None:
        run = agent(server).run("go")
        await run
        await run.fork(at=2)

    with serving(script=looking_for(lambda asked: ["tea", "milk", "sugar"], "compatible")) as server:
        go(main())
    assert [asked.body for asked in server.asked[4:]] == [asked.body for asked in server.asked[2:4]]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_run_reuses_its_connection(streaming: bool) -> None:
    with serving(script=looking_for(lambda asked: ["tea"] * 9, "compatible")) as server:
        result_of(server, stream=streaming)
    assert len(server.asked) == 10
    assert len({asked.connection for asked in server.asked}) == 1


PLACES: dict[str, tuple[str, str, str, str]] = {
    "openai": ("/v1/chat/completions", "/v1/chat/completions", "authorization", f"Bearer {KEY}"),
    "compatible": ("/v1/chat/completions", "/v1/chat/completions", "authorization", f"Bearer {KEY}"),
    "anthropic": ("/v1/messages", "/v1/messages", "x-api-key", KEY),
    "gemini": (
        "/v1/models/some-model:generateContent",
        "/v1/models/some-model:streamGenerateContent?alt=sse",
        "x-goog-api-key",
        KEY,
    ),
}


@pytest.mark.parametrize(("wire", "place"), PLACES.items(), ids=PLACES)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_the_address_of_a_request(wire: str, place: tuple[str, str, str, str], streaming: bool) -> None:
    with serving(script=looking_for(lambda asked: [], wire)) as server:
        result_of(server, wire, stream=streaming)
    (asked,) = server.asked
    assert asked.path == place[streaming]
    assert asked.headers[place[2]] == place[3]
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["accept"] == ("text/event-stream" if streaming else "application/json")


CAPS: dict[str, Any] = {
    "openai": lambda body: body.get("max_completion_tokens"),
    "compatible": lambda body: body.get("max_tokens"),
    "anthropic": lambda body: body.get("max_tokens"),
    "gemini": lambda body: body.get("generationConfig", {}).get("maxOutputTokens"),
}


@pytest.mark.parametrize(("wire", "cap_of"), CAPS.items(), ids=CAPS)
def test_the_remaining_tokens_are_sent_as_the_cap(wire: str, cap_of: Any) -> None:
    with serving(script=looking_for(lambda asked: ["tea", "milk"], wire)) as server:
        result_of(server, wire, budget=lab.Budget(max_tokens=100, max_tokens_per_turn=80))
    assert [cap_of(asked.json) for asked in server.asked] == [80, 80, 69]
