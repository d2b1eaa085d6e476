"""Bedrock's whole bodies: why they ended, their usage, and the turn to send back."""

from __future__ import annotations

import json
from typing import Any

import botocore.session
import pytest
from botocore.parsers import create_parser

from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import ToolCall
from agentlab.model.usage import Usage, UsageSource
from agentlab.providers.bedrock import FINISH_REASONS, WIRE, Bedrock, read_usage
from agentlab.providers.finish_detection import detect

from .bedrock_bodies import TOOL_USE, converse, whole
from .bodies import Answer, Call
from .test_any_json import check_types

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW
PLAIN = Bedrock(model="some-model")

SIGNALS = {
    "end": (converse(), F.END_TURN, HIGH),
    "stop sequence": (converse("stop_sequence"), F.STOP_SEQUENCE, HIGH),
    "tools": (converse("tool_use", [{"text": "Hi"}, TOOL_USE]), F.TOOL_CALLS, HIGH),
    "cap": (converse("max_tokens"), F.MAX_TOKENS, HIGH),
    "window": (converse("model_context_window_exceeded"), F.CONTEXT_WINDOW_EXCEEDED, HIGH),
    "guardrail": (converse("guardrail_intervened", [{"text": "Sorry."}]), F.CONTENT_FILTERED, HIGH),
    "filtered": (converse("content_filtered", []), F.CONTENT_FILTERED, HIGH),
    "malformed call": (converse("malformed_tool_use", []), F.ERROR, HIGH),
    "malformed output": (converse("malformed_model_output", []), F.ERROR, HIGH),
    "tools without calls": (converse("tool_use"), F.TOOL_CALLS, LOW),
    "tools the vendor runs": (
        converse("end_turn", [{"toolUse": {**TOOL_USE["toolUse"], "type": "server_tool_use"}}, {"text": "Hi"}]),
        F.END_TURN,
        HIGH,
    ),
    "calls under an ordinary end": (converse("end_turn", [TOOL_USE]), F.TOOL_CALLS, MEDIUM),
    "arguments that are no JSON": (
        converse("tool_use", [{"toolUse": {"toolUseId": "t", "name": "f", "input": '{"a'}}]),
        F.TOOL_CALLS,
        LOW,
    ),
    "unknown": (converse("tired"), F.UNKNOWN, LOW),
    "missing": (converse(None), F.UNKNOWN, LOW),
    "empty": ({}, F.UNKNOWN, LOW),
    "nothing": (None, F.UNKNOWN, LOW),
    "output at the cap": (converse(usage={"inputTokens": 1, "outputTokens": 9, "totalTokens": 10}), F.END_TURN, MEDIUM),
    "message alone": ({"message": "Too many requests."}, F.ERROR, HIGH),
    "in capitals": ({"Message": "User is not authorized."}, F.ERROR, HIGH),
    "kind": ({"__type": "ThrottlingException", "message": "Rate exceeded"}, F.ERROR, HIGH),
    "front door": (
        {"Output": {"__type": "com.amazon.coral.service#UnknownOperationException"}, "Version": "1.0"},
        F.ERROR,
        HIGH,
    ),
    "of a gateway": ({"error": {"message": "No.", "type": "x"}}, F.ERROR, HIGH),
}


@pytest.mark.parametrize("case", SIGNALS)
def test_signals_of_whole_bodies(case: str):
    payload, reason, confidence = SIGNALS[case]
    response = PLAIN.parse(payload, requested_cap=9)
    check_types(response)
    assert (response.signal.finish_reason, response.signal.confidence) == (reason, confidence)
    assert response.signal.provider == "bedrock"
    if reason is not F.ERROR or "malformed" in case:
        assert response.signal.raw_field == "stopReason"
        assert response.signal.raw_value == (payload or {}).get("stopReason")
    assert response.signal.repairable is ("malformed" in case)
    assert detect("bedrock", json.dumps(payload), requested_cap=9).finish_reason is reason


def test_the_kind_of_each_error():
    kinds = {
        "message alone": ("error", "Too many requests."),
        "kind": ("error.type", "ThrottlingException"),
        "front door": ("error.type", "UnknownOperationException"),
    }
    for case, (where, value) in kinds.items():
        signal = PLAIN.parse(SIGNALS[case][0]).signal
        assert (signal.raw_field, signal.raw_value) == (where, value)
    assert PLAIN.error_message({"message": "Rate exceeded"}) == "Rate exceeded"
    assert PLAIN.error_message({"Message": "Not authorized"}) == "Not authorized"
    assert PLAIN.error_message({"__type": "a#B", "message": "No"}) == "No"
    assert PLAIN.error_message(converse()) == PLAIN.error_message(None) == ""


def test_the_finish_reasons_are_the_vendors():
    model = botocore.session.get_session().get_service_model("bedrock-runtime")
    assert set(model.shape_for("StopReason").enum) == set(FINISH_REASONS.reasons)


# Usage ---------------------------------------------------------------------------------------------------------------------

USAGES: dict[str, tuple[dict[str, Any], tuple[int | None, ...]]] = {
    "plain": ({"inputTokens": 10, "outputTokens": 4, "totalTokens": 14}, (10, 4, None, None)),
    "read from a cache": (
        {"inputTokens": 23, "outputTokens": 44, "totalTokens": 4492, "cacheReadInputTokens": 4425, "cacheWriteInputTokens": 0},
        (4448, 44, 4425, 0),
    ),
    "written to a cache": (
        {"inputTokens": 2, "outputTokens": 3, "totalTokens": 8115, "cacheReadInputTokens": 0, "cacheWriteInputTokens": 8110},
        (8112, 3, 0, 8110),
    ),
    "the total says that input includes the cache": (
        {"inputTokens": 100, "outputTokens": 4, "totalTokens": 104, "cacheReadInputTokens": 60},
        (100, 4, 60, None),
    ),
    "no total": ({"inputTokens": 10, "outputTokens": 4, "cacheReadInputTokens": 5}, (15, 4, 5, None)),
    "no output": ({"inputTokens": 10}, (10, None, None, None)),
    "zero is a count": ({"inputTokens": 1, "outputTokens": 0, "totalTokens": 1}, (1, 0, None, None)),
}


@pytest.mark.parametrize("case", USAGES)
def test_usage_of_whole_bodies(case: str):
    reported, expected = USAGES[case]
    usage = read_usage({"usage": reported})
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == expected
    assert usage.source is UsageSource.REPORTED
    if "totalTokens" in reported:
        assert usage.total_tokens == reported["totalTokens"]


@pytest.mark.parametrize("reported", [None, {}, [], "10", {"inputTokens": "10"}, {"totalTokens": 3}])
def test_missing_usage_is_unknown(reported: Any):
    assert read_usage({"usage": reported}) == Usage()


# Content -------------------------------------------------------------------------------------------------------------------


def test_a_body_with_every_kind_of_block():
    answer = Answer(text=("Hi", "!"), reasoning=("hm",), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS, cached=3)
    response = PLAIN.parse(whole(answer))
    assert (response.text, response.reasoning) == ("Hi!", "hm")
    assert response.tool_calls == (ToolCall("c0", "f", '{"a":1}'),)
    assert response.usage.input_tokens == 13
    assert response.native is not None
    assert (response.native.wire, response.native.content) == (WIRE, whole(answer)["output"]["message"]["content"])


def test_cited_text_is_text():
    cited = {"citationsContent": {"content": [{"text": "It is so."}], "citations": [{"title": "facts"}]}}
    assert PLAIN.parse(converse(content=[{"text": "Yes. "}, cited])).text == "Yes. It is so."


def test_the_model_behind_a_router():
    routed = converse(trace={"promptRouter": {"invokedModelId": "arn:aws:bedrock:::m"}})
    assert PLAIN.parse(routed).model == "arn:aws:bedrock:::m"
    assert PLAIN.parse(converse()).model is None


@pytest.mark.parametrize(
    ("stop_reason", "closed"),
    [("tool_use", True), ("end_turn", True), ("max_tokens", False), ("model_context_window_exceeded", False), (None, False)],
)
def test_the_last_call_of_a_cut_response_is_open(stop_reason: str | None, closed: bool):
    response = PLAIN.parse(converse(stop_reason, [TOOL_USE, {"toolUse": {"toolUseId": "t2", "name": "g", "input": {}}}]))
    assert [call.closed for call in response.tool_calls] == [True, closed]
    assert [call.closed for call in PLAIN.parse(converse(stop_reason, [TOOL_USE, {"text": "."}])).tool_calls] == [True]


def test_content_that_the_vendor_refuses_is_not_sent_back():
    signed = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    hidden = {"reasoningContent": {"redactedContent": "aGk="}}
    unsigned = {"reasoningContent": {"reasoningText": {"text": "hm"}}}
    odd = {"toolUse": {"toolUseId": "", "name": "f", "input": "nothing"}}
    response = PLAIN.parse(converse("tool_use", [signed, hidden, unsigned, {"text": " \n"}, TOOL_USE, odd]))
    assert response.native is not None
    mended = {"toolUse": {"toolUseId": "call_2", "name": "f", "input": {"_unparsed": "nothing"}}}
    assert response.native.content == [signed, hidden, TOOL_USE, mended]
    assert [call.id for call in response.tool_calls] == ["t1", "call_2"]
    assert PLAIN.parse(converse(content=[{"text": ""}])).native is None


def test_botocore_parses_our_body():
    answer = Answer(text=("Hi",), reasoning=("hm",), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS, cached=3)
    model = botocore.session.get_session().get_service_model("bedrock-runtime")
    sent = {"status_code": 200, "headers": {}, "body": json.dumps(whole(answer)).encode()}
    theirs = create_parser("rest-json").parse(sent, model.operation_model("Converse").output_shape)
    ours = PLAIN.parse(whole(answer))
    assert theirs["stopReason"] == ours.signal.raw_value
    reasoning, text, call = theirs["output"]["message"]["content"]
    assert (reasoning["reasoningContent"]["reasoningText"]["text"], text["text"]) == (ours.reasoning, ours.text)
    assert (call["toolUse"]["toolUseId"], call["toolUse"]["input"]) == (ours.tool_calls[0].id, {"a": 1})
    assert theirs["usage"]["totalTokens"] == ours.usage.total_tokens
