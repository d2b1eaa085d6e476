"""A stream tells its text while it goes on; one that breaks off is an error that keeps what was paid for, and runs no tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from providers.bodies import WIRES, Answer, Call

import agentlab as lab
from agentlab.events import Event, TextReceived, ToolStarted
from agentlab.types import Confidence, FinishReason, StopReason

from .made import (
    HELLO,
    agent,
    before_the_end,
    finished,
    go,
    looked,
    pieces,
    reply_to,
    result_of,
    retried,
    stream_bytes,
    texts,
    whole_body,
)
from .server import JSON_TYPE, SSE_TYPE, Reply, cut, pausing, raw, serving, stream, whole, zipped

TALK_AND_LOOK = Answer(text=("Let me ", "see"), calls=(Call("look", {"q": "tea"}),), finish=FinishReason.TOOL_CALLS)


@pytest.fixture(autouse=True)
def _forget() -> None:
    looked.clear()


# While it goes on -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", [SSE_TYPE, JSON_TYPE, ("x-no-type", "1")], ids=["events", "mislabelled as JSON", "no type"])
def test_text_is_told_before_the_server_sends_the_last(wire: str, kind: tuple[str, str]) -> None:
    seen: list[Event] = []

    def observe(event: Event) -> None:
        seen.append(event)
        if isinstance(event, TextReceived):
            server.go.set()

    with serving(pausing(*before_the_end(wire, HELLO), kind)) as server:
        result = result_of(server, wire, stream=True, observers=[observe])
        assert not server.waited_in_vain
    assert texts(seen) == ["Hel", "lo ", "there"]
    assert {event.turn for event in seen if isinstance(event, TextReceived)} == {1}
    assert (result.text, result.usage.total_tokens) == ("Hello there", 15)
    assert texts(result.events) == []  # not kept


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_calls_a_tool(wire: str) -> None:
    seen: list[Event] = []
    with serving(reply_to(wire, TALK_AND_LOOK, streaming=True), reply_to(wire, HELLO, streaming=True)) as server:
        result = result_of(server, wire, stream=True, observers=[seen.append])
    assert (result.stop_reason, result.text, looked) == (StopReason.COMPLETED, "Hello there", ["tea"])
    assert texts(seen) == ["Let me ", "see", "Hel", "lo ", "there"]
    assert [step.usage.total_tokens for step in result.history] == [15, 15]


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_in_gzip(wire: str) -> None:
    with serving(zipped(stream_bytes(wire, HELLO), SSE_TYPE)) as server:
        assert result_of(server, wire, stream=True).text == "Hello there"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunks_of_any_size(wire: str, size: int) -> None:
    body = stream_bytes(wire, Answer(text=("Gr", "üße 🌊")))
    with serving(stream(*[body[at : at + size] for at in range(0, len(body), size)])) as server:
        seen: list[Event] = []
        assert result_of(server, wire, stream=True, observers=[seen.append]).text == "Grüße 🌊"
    assert texts(seen) == ["Gr", "üße 🌊"]


@pytest.mark.parametrize("wire", WIRES)
def test_an_event_over_a_megabyte(wire: str) -> None:
    long = "x" * 3_000_000
    with serving(reply_to(wire, Answer(text=("a", long)), streaming=True)) as server:
        assert result_of(server, wire, stream=True).text == f"a{long}"


# Broken off -----------------------------------------------------------------------------------------------------------------

ENDS = {"closed in order": "end", "closed in mid-body": "leave", "reset": "reset"}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_stream_that_breaks_off_keeps_its_text_and_is_not_tried_again(wire: str, end: str) -> None:
    before, _ = before_the_end(wire, HELLO)
    seen: list[Event] = []
    with serving(stream(before, end=end), reply_to(wire, HELLO, streaming=True)) as server:
        result = result_of(server, wire, stream=True, observers=[seen.append])
    assert (len(server.asked), retried(result)) == (1, [])
    assert (result.stop_reason, result.text) == (StopReason.ERROR, "Hello there")
    assert texts(seen) == ["Hel", "lo ", "there"]
    ((call,),) = [step.calls for step in result.history]
    signal = call.response.signal
    assert (signal.finish_reason, signal.confidence, call.retries) == (FinishReason.ERROR, Confidence.LOW, 0)
    assert result.detail == signal.message
    assert "broke off" in result.detail
    assert (result.usage.output_tokens, result.usage.total_tokens) == (None, None)  # what was counted on the way is no sum
    assert result.messages[-1].text == "Hello there"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "before", [(), (b": working\n\n", b"\n"), (b'data: {"id": "r1", "mo',)], ids=["no byte", "comments", "half an event"]
)
@pytest.mark.parametrize("end", ["leave", "reset"])
def test_a_stream_that_breaks_off_before_anything_of_the_answer_is_tried_again(
    wire: str, before: tuple[bytes, ...], end: str
) -> None:
    with serving(stream(*before, end=end), reply_to(wire, HELLO, streaming=True)) as server:
        result = result_of(server, wire, stream=True)
    assert (len(server.asked), result.stop_reason, result.text) == (2, StopReason.COMPLETED, "Hello there")
    (event,) = retried(result)
    assert "broke off" in event.reason


@pytest.mark.parametrize("wire", WIRES)
def test_an_empty_stream_is_asked_for_again(wire: str) -> None:
    """As one that breaks off before anything has come: an overloaded server ends it in good order."""
    with serving(stream(), reply_to(wire, HELLO, streaming=True)) as server:
        result = result_of(server, wire, stream=True)
    assert (len(server.asked), result.stop_reason, result.text) == (2, StopReason.COMPLETED, "Hello there")
    (event,) = retried(result)
    assert "ended before anything of it had come" in event.reason


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_no_tool_of_a_broken_stream_is_run(wire: str, end: str) -> None:
    """Wherever it breaks off before it says how it ends, even with all of the call there."""
    before, _ = before_the_end(wire, TALK_AND_LOOK)
    events = [event + b"\n\n" for event in before.split(b"\n\n") if event]
    for count in range(1, len(events) + 1):
        with serving(stream(b"".join(events[:count]), end=end)) as server:
            result = result_of(server, wire, stream=True)
        assert result.stop_reason is StopReason.ERROR
        assert result.text in ("", "Let me ", "Let me see")
        assert not any(isinstance(event, ToolStarted) for event in result.events)
        answered = [one for message in result.messages for one in message.tool_results]
        assert {one.error for one in answered} <= {"not_executed"}
        whole_calls = [one for message in result.messages for one in message.tool_calls]
        assert len(whole_calls) == len(answered)
    assert looked == []


@pytest.mark.parametrize("wire", ["openai", "compatible", "anthropic"])
@pytest.mark.parametrize("end", ["leave", "reset"])
def test_a_stream_that_breaks_off_after_its_last_word_is_whole(wire: str, end: str) -> None:
    replies = [stream(*pieces(wire, answer), end=end) for answer in (TALK_AND_LOOK, HELLO)]
    with serving(*replies) as server:
        result = result_of(server, wire, stream=True)
    assert (result.stop_reason, result.text, looked) == (StopReason.COMPLETED, "Hello there", ["tea"])
    assert result.usage.total_tokens == 30


FINISHED = {
    "closed in order": ("end", StopReason.COMPLETED, ["tea"]),
    "closed in mid-body": ("leave", StopReason.ERROR, []),
    "reset": ("reset", StopReason.ERROR, []),
}


@pytest.mark.parametrize("wire", ["openai", "compatible"])
@pytest.mark.parametrize(("end", "expected", "run"), FINISHED.values(), ids=FINISHED)
def test_a_stream_that_ends_between_its_finish_reason_and_its_last_word(
    wire: str, end: str, expected: StopReason, run: list[str]
) -> None:
    """Some servers leave the last word out; a connection that breaks is another matter."""
    with serving(stream(*pieces(wire, TALK_AND_LOOK)[:-1], end=end), stream(*pieces(wire, HELLO)[:-1])) as server:
        result = result_of(server, wire, stream=True)
    assert (result.stop_reason, looked) == (expected, run)
    assert result.history[0].usage.total_tokens == 15
    assert result.history[0].signal is not None
    assert result.history[0].signal.confidence is (Confidence.MEDIUM if run else Confidence.LOW)


def test_a_stream_that_lost_the_call_it_ends_for_is_an_error() -> None:
    events = [event for event in pieces("compatible", TALK_AND_LOOK) if b'tool_calls": [' not in event]
    lost = b'data: {"id": }\n\n'
    with serving(stream(*events[:3], lost, *events[3:])) as server:
        result = result_of(server, stream=True)
    assert (result.stop_reason, result.text, looked) == (StopReason.ERROR, "Let me see", [])
    assert "lost, and with them the tool call" in result.detail


@pytest.mark.parametrize("wire", WIRES)
def test_a_run_goes_on_from_before_a_broken_step(wire: str) -> None:
    before, _ = before_the_end(wire, TALK_AND_LOOK)
    replies = [reply_to(wire, TALK_AND_LOOK, streaming=True), stream(before, end="reset"), reply_to(wire, HELLO, streaming=True)]

    async def main() -> tuple[lab.RunResult, lab.RunResult]:
        run = agent(server, wire, stream=True).run("go")
        return await run, await run.fork(at=1)

    with serving(*replies) as server:
        broken, mended = go(main())
    assert (broken.stop_reason, mended.stop_reason) == (StopReason.ERROR, StopReason.COMPLETED)
    assert [step.text for step in mended.history] == ["Let me see", "Hello there"]


# Errors within ---------------------------------------------------------------------------------------------------------------

ERRORS = {
    "openai": b'data: {"error": {"message": "The server had an error", "type": "server_error"}}\n\n',
    "compatible": b'data: {"error": {"message": "The server had an error", "code": 502}, "choices": []}\n\n',
    "anthropic": b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "The server had an error"}}\n\n',
    "gemini": b'data: {"error": {"code": 503, "message": "The server had an error", "status": "UNAVAILABLE"}}\n\n',
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_error_within_a_stream(wire: str, end: str) -> None:
    before, _ = before_the_end(wire, TALK_AND_LOOK)
    with serving(stream(before, ERRORS.get(wire, ERRORS["openai"]), end=end)) as server:
        result = result_of(server, wire, stream=True)
    assert (len(server.asked), result.stop_reason, result.text) == (1, StopReason.ERROR, "Let me see")
    assert result.detail == "The provider reports an error: The server had an error"
    assert looked == []


BODIES: dict[str, Any] = {
    "object": {"error": {"message": "Out of capacity", "type": "overloaded"}},
    "text": {"error": "Out of capacity"},
    "typed": {"type": "error", "error": {"type": "overloaded_error", "message": "Out of capacity"}},
    "flat": {"object": "error", "message": "Out of capacity"},
    "list": [{"error": {"code": 503, "message": "Out of capacity"}}],
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_an_error_under_status_200(wire: str, streaming: bool, body: Any) -> None:
    with serving(whole(body)) as server:
        result = result_of(server, wire, stream=streaming)
    assert (len(server.asked), result.stop_reason, result.text) == (1, StopReason.ERROR, "")
    assert "Out of capacity" in result.detail


# JSON where a stream was asked for -------------------------------------------------------------------------------------------


def as_lines(wire: str, answer: Answer) -> bytes:
    """The stream's chunks as JSON, one a line."""
    events = [piece.split(b"data: ", 1)[1] for piece in pieces(wire, answer)]
    return b"".join(event.strip() + b"\n" for event in events if b"[DONE]" not in event)


def as_array(wire: str, answer: Answer) -> bytes:
    """The stream's chunks as one JSON array, as Gemini sends them without `alt=sse`."""
    return b"[" + b",\n".join(as_lines(wire, answer).splitlines()) + b"]"


def in_json(wire: str, answer: Answer, form: str) -> bytes:
    if form == "one body":
        return json.dumps(whole_body(wire, answer)).encode()
    return as_lines(wire, answer) if form == "lines" else as_array(wire, answer)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", ["one body", "lines", "array"])
@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "text/event-stream"])
def test_json_where_a_stream_was_asked_for(wire: str, form: str, kind: str) -> None:
    replies = [raw(in_json(wire, answer, form), ("content-type", kind)) for answer in (TALK_AND_LOOK, HELLO)]
    seen: list[Event] = []
    with serving(*replies) as server:
        result = result_of(server, wire, stream=True, observers=[seen.append])
    assert (result.stop_reason, result.text, looked) == (StopReason.COMPLETED, "Hello there", ["tea"])
    assert "".join(texts(seen)) == "Let me seeHello there"
    assert result.usage.total_tokens == 30


@pytest.mark.parametrize("wire", WIRES)
def test_the_last_event_may_lack_its_blank_line(wire: str) -> None:
    body = stream_bytes(wire, HELLO).removesuffix(b"data: [DONE]\n\n").rstrip()
    seen: list[Event] = []
    with serving(stream(body)) as server:
        result = result_of(server, wire, stream=True, observers=[seen.append])
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "Hello there")
    assert "".join(texts(seen)) == "Hello there"


def test_text_in_an_event_that_nothing_ended_is_told_once() -> None:
    body = b'data: {"choices": [{"index": 0, "delta": {"content": "Hi "}}]}\n\n'
    body += b'data: {"choices": [{"index": 0, "delta": {"content": "there"}, "finish_reason": "stop"}]}'
    seen: list[Event] = []
    with serving(stream(body)) as server:
        result = result_of(server, stream=True, observers=[seen.append])
    assert (texts(seen), result.text) == (["Hi ", "there"], "Hi there")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("reply", ["cut", "closed"])
def test_json_that_breaks_off_where_a_stream_was_asked_for(wire: str, reply: str) -> None:
    body = json.dumps(whole_body(wire, TALK_AND_LOOK)).encode()
    half: Reply = cut(body, "leave") if reply == "cut" else raw(body[: len(body) // 2], JSON_TYPE)
    with serving(half) as server:
        result = result_of(server, wire, stream=True)
    assert (result.stop_reason, looked) == (StopReason.ERROR, [])


def test_a_whole_answer_is_told_as_one_piece() -> None:
    seen: list[Event] = []
    with serving(reply_to("compatible", HELLO, streaming=False)) as server:
        go(finished(agent(server).run("go", observers=[seen.append])))
    assert texts(seen) == ["Hello there"]
