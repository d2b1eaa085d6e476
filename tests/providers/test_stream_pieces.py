"""Differences between streams and whole bodies: pieces, ends, and orders of events."""

from __future__ import annotations

from typing import Any

import pytest

from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.responses import ModelResponse, SignalSeen

from .bodies import WIRES, Answer, parse_stream, sse, stream

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW


def chunk(delta: dict[str, Any] | None = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": "r1", "model": "m", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def read(name: str, *events: Any, named: bool = False) -> ModelResponse:
    return parse_stream(name, [sse(list(events), named=named)])[0]


CHAT_ENDS = [
    pytest.param([chunk({"content": "a"}, "stop"), "[DONE]"], (F.END_TURN, HIGH), id="stop"),
    pytest.param([chunk({"content": "a"}, "stop")], (F.END_TURN, MEDIUM), id="stop, no last event"),
    pytest.param([chunk({"content": "a"}), "[DONE]"], (F.END_TURN, MEDIUM), id="closed properly, no finish reason"),
    pytest.param([chunk({"content": "a"})], (F.UNKNOWN, LOW), id="broken off"),
    pytest.param(["[DONE]"], (F.UNKNOWN, LOW), id="only the last event"),
    pytest.param([], (F.UNKNOWN, LOW), id="nothing"),
    pytest.param([chunk({"content": "a"}, "length"), chunk(error={"code": 502})], (F.ERROR, MEDIUM), id="error after length"),
    pytest.param([chunk({"content": "a"}), {"error": {"code": 502}}], (F.ERROR, HIGH), id="error in mid-stream"),
    pytest.param([chunk({"content": "a"}, "error", error={"code": 502}), "[DONE]"], (F.ERROR, HIGH), id="finish_reason error"),
    pytest.param(
        [chunk({"content": "a"}, "stop"), chunk({}, None), "[DONE]"], (F.END_TURN, HIGH), id="a later null changes nothing"
    ),
    pytest.param(
        [chunk({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{}"}}]}), "[DONE]"],
        (F.TOOL_CALLS, MEDIUM),
        id="closed properly with calls",
    ),
    pytest.param(
        [chunk({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{"}}]}), "[DONE]"],
        (F.UNKNOWN, LOW),
        id="closed properly with half a call",
    ),
    pytest.param([{"object": "error", "message": "x"}], (F.ERROR, HIGH), id="an error object"),
    pytest.param([chunk({"content": "a"}, ""), chunk({}, "stop"), "[DONE]"], (F.END_TURN, HIGH), id="empty before stop"),
    pytest.param([chunk({"content": "a"}, "stop"), chunk({}, ""), "[DONE]"], (F.END_TURN, HIGH), id="empty after stop"),
    pytest.param([chunk({"content": "a"}, ""), "[DONE]"], (F.END_TURN, MEDIUM), id="empty to the end is missing"),
]


@pytest.mark.parametrize(("events", "expected"), CHAT_ENDS)
def test_ends_of_chat_streams(events: list[Any], expected: tuple[FinishReason, Confidence]):
    signal = read("compatible", *events).signal
    assert (signal.finish_reason, signal.confidence) == expected


@pytest.mark.parametrize("data", [b'{"message": "x"}', b"plain words", b'{"error": {"message": "x"}}', b"{}"])
def test_an_error_event(data: bytes):
    for name in WIRES:
        start = stream(name, Answer()).split(b"\n\n")[0]
        response, events = parse_stream(name, [start + b"\n\nevent: error\ndata: " + data + b"\n\n"])
        assert response.signal.finish_reason is F.ERROR, name
        assert [event.signal.finish_reason for event in events if isinstance(event, SignalSeen)] == [F.ERROR], name


def tool(arguments: str | None = None, **more: Any) -> dict[str, Any]:
    function = {key: more.pop(key) for key in ("name",) if key in more}
    return chunk({"tool_calls": [{**more, "function": {**function, **({} if arguments is None else {"arguments": arguments})}}]})


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        pytest.param(
            [tool("", index=0, id="a", name="f"), tool("{}", index=0), tool("", index=1, id="b", name="g"), tool("{}", index=1)],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="numbered",
        ),
        pytest.param(
            [
                tool('{"x":', index=0, id="a", name="f"),
                tool('{"y":', index=1, id="b", name="g"),
                tool("1}", index=0),
                tool("2}", index=1),
            ],
            [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
            id="interleaved",
        ),
        pytest.param(
            [tool("{}", index=0, id="a", name="f"), tool("{}", index=0, id="b", name="f")],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="all numbered 0, with ids",
        ),
        pytest.param(
            [tool("{}", id="a", name="f"), tool("{}", id="b", name="g")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="not numbered, with ids",
        ),
        pytest.param(
            [tool("{}", name="f"), tool("{}", name="f")],
            [("call_1", "f", "{}"), ("call_2", "f", "{}")],
            id="not numbered, no ids",
        ),
        pytest.param([tool('{"x"', name="f"), tool(":1}")], [("call_1", "f", '{"x":1}')], id="not numbered, in pieces"),
        pytest.param(
            [tool('{"x"', index=0, id="a", name="f"), tool(":1}", index=0, id="a", name="f")],
            [("a", "f", '{"x":1}')],
            id="name and id in each piece",
        ),
        pytest.param(
            [tool('{"x"', index=0, name="f"), tool(":1}", index=0, name="f")],
            [("call_1", "f", '{"x":1}')],
            id="numbered, name in each piece",
        ),
        pytest.param(
            [tool("{}", index=0, name="f"), tool("{}", index=0, name="g")],
            [("call_1", "f", "{}"), ("call_2", "g", "{}")],
            id="numbered 0, another name",
        ),
        pytest.param([tool(None, index=0, id="a", name="f")], [("a", "f", "{}")], id="no arguments at all"),
        pytest.param([tool("{}", index=5, id="a", name="f")], [("a", "f", "{}")], id="numbered from 5"),
    ],
)
def test_pieces_of_chat_calls(events: list[Any], calls: list[tuple[str, str, str]]):
    response = read("compatible", *events, chunk({}, "tool_calls"), "[DONE]")
    assert [(call.id, call.name, call.arguments) for call in response.tool_calls] == calls
    assert response.signal.confidence is HIGH


def test_usage_after_the_finish_reason_is_read():
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "cost": 0.00125}
    response = read("compatible", chunk({"content": "a"}, "stop"), {"choices": [], "usage": usage}, "[DONE]")
    assert response.usage.total_tokens == 7
    assert str(response.cost_usd) == "0.00125"


def test_cumulative_usage_is_not_added_up():
    events = [chunk({"content": "a"}, usage={"prompt_tokens": 3, "completion_tokens": n}) for n in (1, 2, 3)]
    assert read("compatible", *events, chunk({}, "stop"), "[DONE]").usage.output_tokens == 3


def test_only_the_first_choice_is_read():
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    response = read("openai", other, chunk({"content": "yes"}), other, chunk({}, "stop"), "[DONE]")
    assert (response.text, response.signal.finish_reason) == ("yes", F.END_TURN)


def test_a_surrogate_pair_cut_between_its_escapes_is_one_character():
    body = b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
    body += b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    assert parse_stream("compatible", [body])[0].text == "😀"


def test_anthropic_usage_comes_in_two_parts():
    message = {"id": "r1", "usage": {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1}}
    events = [
        {"type": "message_start", "message": message},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 9, "cache_read_input_tokens": None},
        },
        {"type": "message_stop"},
    ]
    usage = read("anthropic", *events, named=True).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (10, 9, 7)


def anthropic_tool(*pieces: str, stop: bool, reason: str | None) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "r1"}}]
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    events.append({"type": "content_block_start", "index": 0, "content_block": block})
    events += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
        for piece in pieces
    ]
    if stop:
        events.append({"type": "content_block_stop", "index": 0})
    if reason:
        events += [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]
    return events


@pytest.mark.parametrize(
    ("events", "arguments", "closed", "native"),
    [
        pytest.param(anthropic_tool('{"a":', " 1}", stop=True, reason="tool_use"), '{"a": 1}', True, {"a": 1}, id="whole"),
        pytest.param(anthropic_tool(stop=True, reason="tool_use"), "{}", True, {}, id="no arguments"),
        pytest.param(anthropic_tool("", stop=True, reason="tool_use"), "{}", True, {}, id="an empty piece"),
        pytest.param(anthropic_tool('{"a":', stop=False, reason="max_tokens"), '{"a":', False, {"_unparsed": '{"a":'}, id="cut"),
        pytest.param(
            anthropic_tool('{"a": 1}', stop=False, reason=None), '{"a": 1}', False, {"a": 1}, id="broken off at the end"
        ),
        pytest.param(anthropic_tool(stop=False, reason=None), "", False, {}, id="broken off at the start"),
    ],
)
def test_anthropic_calls_in_streams(events: list[Any], arguments: str, closed: bool, native: dict[str, Any]):
    response = read("anthropic", *events, named=True)
    (call,) = response.tool_calls
    assert (call.arguments, call.closed) == (arguments, closed)
    assert response.native is not None
    assert response.native.content[0]["input"] == native


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([], (F.UNKNOWN, LOW), id="broken off"),
        pytest.param([{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}], (F.END_TURN, MEDIUM), id="no last event"),
        pytest.param([{"type": "message_stop"}], (F.END_TURN, MEDIUM), id="closed properly, no stop reason"),
        pytest.param([{"type": "error", "error": {"type": "overloaded_error"}}], (F.ERROR, HIGH), id="error in mid-stream"),
    ],
)
def test_ends_of_anthropic_streams(events: list[Any], expected: tuple[FinishReason, Confidence]):
    start = [
        {"type": "message_start", "message": {"id": "r1"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
    ]
    signal = read("anthropic", *start, *events, named=True).signal
    assert (signal.finish_reason, signal.confidence) == expected


def test_anthropic_event_names_are_sufficient():
    body = b'event: message_delta\ndata: {"delta":{"stop_reason":"end_turn"}}\n\nevent: message_stop\ndata: {}\n\n'
    assert parse_stream("anthropic", [body])[0].signal.finish_reason is F.END_TURN


def test_gemini_signatures_stay_with_their_parts():
    parts = [{"text": "a"}, {"text": "b"}, {"text": "", "thoughtSignature": "s"}, {"text": "c"}]
    events = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    response = read("gemini", *events, {"candidates": [{"finishReason": "STOP"}]})
    assert response.native is not None
    assert response.native.content["parts"] == [{"text": "ab"}, {"text": "", "thoughtSignature": "s"}, {"text": "c"}]


def test_gemini_usage_of_the_last_chunk_counts():
    events = [
        {
            "candidates": [{"content": {"parts": [{"text": "a"}]}}],
            "usageMetadata": {"promptTokenCount": 78, "totalTokenCount": 78},
        },
        {
            "candidates": [{"finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 33, "candidatesTokenCount": 2, "totalTokenCount": 35},
        },
    ]
    usage = read("gemini", *events).usage
    assert (usage.input_tokens, usage.output_tokens) == (33, 2)


def test_gemini_reports_its_reason_once():
    event = {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]}
    _, events = parse_stream("gemini", [sse([event, event, event])])
    assert sum(isinstance(event, SignalSeen) for event in events) == 1


def test_gemini_blocked_prompt_in_a_stream():
    signal = read("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}).signal
    assert (signal.finish_reason, signal.confidence) == (F.CONTENT_FILTERED, HIGH)
