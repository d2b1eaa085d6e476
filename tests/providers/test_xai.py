"""xAI: ticks, reasoning on top, and recordings of its SDK over gRPC."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import Message, ModelRequest
from agentlab.model.responses import SignalSeen, TextDelta
from agentlab.providers.xai import SAMPLE_REASONS

from .bodies import chat, cut, parse_stream, provider, sse

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW


@pytest.mark.parametrize(
    ("ticks", "usd"),
    [
        (37756000, "0.0037756"),
        (200000000, "0.02"),
        (0, "0"),
        ("6300000", "0.00063"),
        (1, "1e-10"),
        (-1, None),
        (1.5, None),
        ("", None),
        (None, None),
        (True, None),
    ],
)
def test_ticks_are_converted_to_dollars(ticks: Any, usd: str | None) -> None:
    body = chat(usage={"prompt_tokens": 1, "completion_tokens": 1, "cost_in_usd_ticks": ticks})
    assert provider("xai").parse(body).cost_usd == (None if usd is None else Decimal(usd))
    assert provider("azure").parse(body).cost_usd is None
    assert provider("compatible").parse(body).cost_usd is None


@pytest.mark.parametrize(
    ("usage", "output"),
    [
        pytest.param({"total_tokens": 18}, 8, id="the total shows that it is on top"),
        pytest.param({"total_tokens": 15}, 5, id="the total shows that it is a part"),
        pytest.param({}, 8, id="no total"),
    ],
)
def test_reasoning_is_part_of_the_output(usage: dict[str, Any], output: int) -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 3}}
    found = provider("xai").parse(chat(usage={"prompt_tokens": 10, "completion_tokens": 5, **details, **usage})).usage
    assert (found.output_tokens, found.reasoning_tokens) == (output, 3)


def test_the_body_of_a_request() -> None:
    sent = lab.Provider("xai", model="grok-4.3").build_request(ModelRequest([Message("user", "Hi")], max_output_tokens=9))
    assert sent.url == "https://api.x.ai/v1/chat/completions"
    assert json.loads(sent.body)["max_completion_tokens"] == 9


def test_an_unfinished_turn_is_no_end() -> None:
    """Chunks before the last one contain `end_turn`."""
    on = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "end_turn"}]}
    end = {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "length"}]}
    found, emitted = parse_stream("xai", [sse([on, on, end, "[DONE]"])])
    assert (found.signal.finish_reason, found.signal.confidence) == (F.MAX_TOKENS, HIGH)
    assert [event.signal.finish_reason for event in emitted if isinstance(event, SignalSeen)] == [F.MAX_TOKENS]
    torn, emitted = parse_stream("xai", [sse([on, on])])
    assert (torn.signal.finish_reason, torn.signal.confidence, torn.signal.raw_value) == (F.UNKNOWN, LOW, None)
    assert not [event for event in emitted if isinstance(event, SignalSeen)]
    whole = provider("xai").parse(chat("end_turn")).signal
    assert (whole.finish_reason, whole.confidence, whole.raw_value) == (F.UNKNOWN, LOW, "end_turn")


# Samples -------------------------------------------------------------------------------------------------------------------

SERVER = {"id": "s1", "type": "TOOL_CALL_TYPE_WEB_SEARCH_TOOL", "function": {"name": "web_search", "arguments": '{"q":"a"}'}}
CLIENT = {"id": "c1", "type": "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL", "function": {"name": "f", "arguments": '{"a":1}'}}


def output(finish: str | None = None, role: str = "ROLE_ASSISTANT", **message: Any) -> dict[str, Any]:
    return {"message": {"role": role, **message}} | ({} if finish is None else {"finish_reason": finish})


def sample(*outputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "r1", "model": "grok-4.3", "outputs": list(outputs), **more}


TURNS = {
    "text": ([output("REASON_STOP", content="Hi")], (F.END_TURN, HIGH, "REASON_STOP"), "Hi", []),
    "cut": ([output("REASON_MAX_LEN", content="Hi")], (F.MAX_TOKENS, HIGH, "REASON_MAX_LEN"), "Hi", []),
    "window": ([output("REASON_MAX_CONTEXT")], (F.CONTEXT_WINDOW_EXCEEDED, HIGH, "REASON_MAX_CONTEXT"), "", []),
    "time": ([output("REASON_TIME_LIMIT")], (F.ERROR, HIGH, "REASON_TIME_LIMIT"), "", []),
    "invalid": ([output("REASON_INVALID", content="Hi")], (F.UNKNOWN, LOW, "REASON_INVALID"), "Hi", []),
    "new word": ([output("REASON_NEW", content="Hi")], (F.UNKNOWN, LOW, "REASON_NEW"), "Hi", []),
    "calls": ([output("REASON_TOOL_CALLS", tool_calls=[CLIENT])], (F.TOOL_CALLS, HIGH, "REASON_TOOL_CALLS"), "", ["c1"]),
    "calls without a type": (
        [output("REASON_TOOL_CALLS", tool_calls=[{"id": "c2", "function": {"name": "f"}}])],
        (F.TOOL_CALLS, HIGH, "REASON_TOOL_CALLS"),
        "",
        ["c2"],
    ),
    "the server's tools": (
        [
            output("REASON_TOOL_CALLS", content="I search. ", tool_calls=[SERVER]),
            output(role="ROLE_TOOL", content="found", tool_calls=[SERVER]),
            output("REASON_STOP", content="Here."),
        ],
        (F.END_TURN, HIGH, "REASON_STOP"),
        "I search. Here.",
        [],
    ),
    "both kinds of tools": (
        [
            output("REASON_TOOL_CALLS", tool_calls=[SERVER]),
            output(role="ROLE_TOOL", content="found", tool_calls=[SERVER]),
            output("REASON_TOOL_CALLS", tool_calls=[SERVER, CLIENT]),
        ],
        (F.TOOL_CALLS, HIGH, "REASON_TOOL_CALLS"),
        "",
        ["c1"],
    ),
}


@pytest.mark.parametrize(("outputs", "expected", "text", "calls"), TURNS.values(), ids=TURNS.keys())
def test_a_sample_is_read(outputs: list[Any], expected: tuple[Any, ...], text: str, calls: list[str]) -> None:
    payload = sample(*outputs)
    found = provider("xai").parse(payload)
    assert (found.signal.finish_reason, found.signal.confidence, found.signal.raw_value) == expected
    assert found.signal.raw_field == ("choices[].finish_reason" if expected[2] == "REASON_NEW" else SAMPLE_REASONS.field)
    assert (found.text, [call.id for call in found.tool_calls]) == (text, calls)
    assert all(call.closed for call in found.tool_calls)
    assert (found.model, found.response_id, found.raw) == ("grok-4.3", "r1", payload)


@pytest.mark.parametrize(("outputs", "expected", "text", "calls"), TURNS.values(), ids=TURNS.keys())
def test_a_streamed_sample_is_read_like_the_whole(
    outputs: list[Any], expected: tuple[Any, ...], text: str, calls: list[str]
) -> None:
    chunks: list[Any] = []
    for index, part in enumerate(outputs):
        message = part["message"]
        chunks += [sample({"index": index, "delta": {key: value}}) for key, value in message.items() if key == "role"]
        chunks.append(sample({"index": index, "delta": message, **{k: v for k, v in part.items() if k == "finish_reason"}}))
    body = sse([*chunks, "[DONE]"])
    found, emitted = parse_stream("xai", [body])
    assert (found.signal.finish_reason, found.signal.confidence, found.signal.raw_value) == expected
    assert (found.text, [call.id for call in found.tool_calls]) == (text, calls)
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == text
    assert {event.signal.finish_reason for event in emitted if isinstance(event, SignalSeen)} <= {expected[0]}
    assert parse_stream("xai", cut(body, range(0, len(body), 7)))[0] == found


@pytest.mark.parametrize(
    ("sampled", "expected"),
    [
        pytest.param(
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "reasoning_tokens": 3,
                "total_tokens": 18,
                "cached_prompt_text_tokens": 4,
            },
            (10, 8, 4, 3),
            id="all",
        ),
        pytest.param({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}, (10, 5, None, None), id="plain"),
        pytest.param({"prompt_tokens": 10, "total_tokens": 10}, (10, 0, None, None), id="a zero is left out"),
        pytest.param({"prompt_tokens": 10}, (10, None, None, None), id="unknown is not zero"),
        pytest.param({}, (None, None, None, None), id="empty"),
    ],
)
def test_usage_of_a_sample(sampled: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    found = provider("xai").parse(sample(output("REASON_STOP", content="a"), usage=sampled)).usage
    assert (found.input_tokens, found.output_tokens, found.cache_read_tokens, found.reasoning_tokens) == expected


def test_fragments_of_a_call_that_also_arrives_whole_are_dropped() -> None:
    part = {**CLIENT, "status": "TOOL_CALL_STATUS_IN_PROGRESS", "index": 0}
    whole = {**CLIENT, "status": "TOOL_CALL_STATUS_COMPLETED"}
    chunks = [sample({"delta": {"tool_calls": [entry]}}) for entry in (part, part, whole)]
    end = sample({"delta": {}, "finish_reason": "REASON_TOOL_CALLS"})
    found, _ = parse_stream("xai", [sse([*chunks, end, "[DONE]"])])
    assert [(call.id, call.arguments) for call in found.tool_calls] == [("c1", '{"a":1}')]
    assert found.signal.finish_reason is F.TOOL_CALLS
