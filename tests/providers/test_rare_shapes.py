"""Shapes that are in none of our recordings but occur elsewhere: each body is written by hand from the vendors' pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.responses import SignalSeen, ToolCallDelta
from agentlab.providers.finish_detection import detect

from .bedrock_bodies import converse
from .bodies import chat, claude, parse_stream, provider, sse

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW


# Anthropic: content beside text and calls -----------------------------------------------------------------------------------


def begun(**fields: Any) -> dict[str, Any]:
    message = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [],
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    return {"type": "message_start", "message": message | fields}


def block(number: int, kind: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    emitted = [{"type": "content_block_delta", "index": number, "delta": delta} for delta in deltas]
    start = {"type": "content_block_start", "index": number, "content_block": kind}
    return [start, *emitted, {"type": "content_block_stop", "index": number}]


def ended(reason: str, **usage: Any) -> list[dict[str, Any]]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5, **usage}},
        {"type": "message_stop"},
    ]


def text(number: int, words: str) -> list[dict[str, Any]]:
    return block(number, {"type": "text", "text": ""}, {"type": "text_delta", "text": words})


SUMMARY = block(
    0, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "In short.", "encrypted_content": "e"}
)
SPENT = {
    "type": "compaction",
    "input_tokens": 100,
    "output_tokens": 20,
    "cache_read_input_tokens": 7,
    "cache_creation_input_tokens": 0,
}


def test_a_pause_after_a_summary_is_a_pause():
    response, _ = parse_stream("anthropic", [sse([begun(), *SUMMARY, *ended("compaction")], named=True)])
    assert (response.signal.finish_reason, response.signal.confidence) == (F.PAUSED, HIGH)
    assert not response.signal.should_terminate
    assert response.native is not None  # without the summary the turn cannot be continued
    assert response.native.content == [{"type": "compaction", "content": "In short.", "encrypted_content": "e"}]


def test_the_usage_of_a_summary_is_counted():
    usage = {
        "input_tokens": 3,
        "output_tokens": 5,
        "iterations": [SPENT, {"type": "message", "input_tokens": 3, "output_tokens": 5}],
    }
    streamed, _ = parse_stream("anthropic", [sse([begun(), *SUMMARY, *text(1, "Hi"), *ended("end_turn", **usage)], named=True)])
    body = provider("anthropic").parse(claude("end_turn", [{"type": "text", "text": "Hi"}], usage=usage))
    for response in (streamed, body):
        assert (response.text, response.signal.finish_reason) == ("Hi", F.END_TURN)
        assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.cache_read_tokens) == (110, 25, 7)


def test_a_message_may_begin_with_its_content():
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
    response, emitted = parse_stream(
        "anthropic", [sse([begun(content=[call], stop_reason="tool_use"), {"type": "message_stop"}], named=True)]
    )
    assert [(found.id, found.arguments, found.closed) for found in response.tool_calls] == [("t1", '{"a":1}', True)]
    assert (response.signal.finish_reason, response.signal.confidence) == (F.TOOL_CALLS, HIGH)
    assert [event.name for event in emitted if isinstance(event, ToolCallDelta)] == ["f"]


def test_the_end_of_one_message_does_not_end_the_next():
    first = [begun(), *text(0, "One"), *ended("end_turn")]
    response, _ = parse_stream("anthropic", [sse([*first, begun(), *text(0, "Two")], named=True)])
    assert (response.text, response.signal.finish_reason, response.signal.confidence) == ("Two", F.UNKNOWN, LOW)


ACTION = "amazon-bedrock-guardrailAction"
GUARDED = [
    pytest.param("end_turn", "INTERVENED", (F.CONTENT_FILTERED, HIGH, "INTERVENED"), id="with an ordinary end"),
    pytest.param(None, "INTERVENED", (F.CONTENT_FILTERED, HIGH, "INTERVENED"), id="without a reason"),
    pytest.param("max_tokens", "INTERVENED", (F.MAX_TOKENS, HIGH, "max_tokens"), id="with a cut"),
    pytest.param("end_turn", "NONE", (F.END_TURN, HIGH, "end_turn"), id="none"),
]


@pytest.mark.parametrize(("reason", "action", "expected"), GUARDED)
def test_a_bedrock_guardrail_is_no_ordinary_end(reason: str | None, action: str, expected: tuple[F, Confidence, str]):
    stop = {"type": "message_stop", ACTION: action}
    streamed, emitted = parse_stream("anthropic", [sse([begun(stop_reason=reason), *text(0, "Hi"), stop], named=True)])
    body = provider("anthropic").parse(claude(reason, **{ACTION: action}))
    for response in (streamed, body):
        found = response.signal
        assert (found.finish_reason, found.confidence, found.raw_value) == expected
    assert [event.signal.finish_reason for event in emitted if isinstance(event, SignalSeen)] == [expected[0]]


# Chat completions --------------------------------------------------------------------------------------------------------------

DRAW = {"id": "c1", "type": "custom", "custom": {"name": "draw", "input": "line 0 0"}}


def test_a_custom_tool_accepts_plain_text():
    chunks: list[dict[str, Any] | str] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in (
            ({"tool_calls": [{"index": 0, **DRAW, "custom": {"name": "draw", "input": ""}}]}, None),
            ({"tool_calls": [{"index": 0, "custom": {"input": "line"}}]}, None),
            ({"tool_calls": [{"index": 0, "custom": {"input": " 0 0"}}]}, None),
            ({}, "tool_calls"),
        )
    ]
    streamed, _ = parse_stream("openai", [sse([*chunks, "[DONE]"])])
    body = provider("openai").parse(chat("tool_calls", {"content": None, "tool_calls": [DRAW]}))
    for response in (streamed, body):
        assert [(call.id, call.name, call.arguments, call.closed) for call in response.tool_calls] == [
            ("c1", "draw", "line 0 0", True)
        ]
        assert (response.signal.finish_reason, response.signal.confidence) == (F.TOOL_CALLS, HIGH)
        assert response.native is not None
        assert response.native.content["tool_calls"] == [DRAW]


def test_plain_text_that_was_cut_is_not_complete():
    response = provider("openai").parse(chat("length", {"tool_calls": [DRAW]}))
    assert [call.closed for call in response.tool_calls] == [False]


@pytest.mark.parametrize(("total", "taken"), [(150, 100), (190, 140)], ids=["part of the prompt", "on top"])
def test_the_total_shows_whether_cache_reads_are_part_of_the_input(total: int, taken: int):
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": total, "prompt_tokens_details": {"cached_tokens": 40}}
    found = provider("compatible").parse(chat(usage=usage)).usage
    assert (found.input_tokens, found.output_tokens, found.cache_read_tokens, found.total_tokens) == (taken, 50, 40, total)


def test_reasoning_may_be_a_part_with_a_summary():
    content = [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}, {"type": "text", "text": "Yes"}]
    response = provider("compatible").parse(chat(message={"content": content}))
    assert (response.text, response.reasoning) == ("Yes", "Hm")


# Lines of a batch's results ----------------------------------------------------------------------------------------------------

LINES = [
    pytest.param("openai", {"custom_id": "r1", "response": {"status_code": 200, "body": chat("length")}}, id="openai"),
    pytest.param("openai", {"custom_id": "r1", "response": {"status_code": 400, "body": {"error": {}}}}, id="openai, refused"),
    pytest.param("anthropic", {"custom_id": "r1", "result": {"type": "succeeded", "message": claude()}}, id="anthropic"),
    pytest.param("anthropic", {"custom_id": "r1", "result": {"type": "canceled"}}, id="anthropic, cancelled"),
    pytest.param("bedrock", {"recordId": "r1", "modelInput": {}, "modelOutput": converse()}, id="bedrock"),
    pytest.param("a-new-one", {"custom_id": "r1", "response": {"status_code": 200, "body": chat()}}, id="unknown provider"),
]


@pytest.mark.parametrize(("name", "line"), LINES)
def test_the_message_for_a_line_of_a_batch_says_what_to_pass(name: str, line: Any):
    for form in (line, json.dumps(line), json.dumps(line).encode()):
        found = detect(name, form)
        assert (found.finish_reason, found.confidence, found.raw_value) == (F.UNKNOWN, LOW, None)
        assert "line of a batch's results. Pass the response in it: line['response']['body'] (OpenAI)" in found.message
