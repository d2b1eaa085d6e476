"""The types of OpenAI's client as a second opinion: they read our requests and our test bodies, and list the vendor's values."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import Message, ModelRequest, ToolCall, ToolResult, ToolSpec
from agentlab.providers.wires.responses import INCOMPLETE_REASONS, LAST_EVENTS, STATUSES, is_waiting_kind

from .bodies import Answer, Call, provider
from .responses_bodies import RESPONSES, events, whole

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FULL = Answer(reasoning=("hm",), calls=(Call("f", {"a": 1}),), finish=FinishReason.TOOL_CALLS, thinking=2, cached=3)
MESSAGES = [
    Message("user", "Hi"),
    Message("assistant", "Let me see", tool_calls=(ToolCall("t1", "f", '{"a": 1}'), ToolCall("t2", "f", '{"a'))),
    Message("tool", tool_results=(ToolResult("t1", "f", "one"), ToolResult("t2", "f", "wrong", error="invalid_arguments"))),
    Message("assistant", "Done"),
]
COMPLETE = {
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
"""Other fields of a body, which no reader here uses."""


def whole_body(answer: Answer) -> dict[str, Any]:
    body = {**whole(answer), **COMPLETE}
    body["usage"] = {**body["usage"], "input_tokens_details": {"cached_tokens": answer.cached, "cache_write_tokens": 0}}
    return body


@pytest.mark.parametrize("name", RESPONSES)
def test_openais_types_read_our_requests(name: str):
    vendor = pytest.importorskip("openai.types.responses", reason="the vendor's client is a development dependency")

    tool = ToolSpec("f", "Does f", SCHEMA, json.dumps(SCHEMA))
    native = provider(name).parse(whole_body(FULL)).native
    request = ModelRequest([*MESSAGES, Message("assistant", "Hello", native=native)], "Be brief", (tool,), 9, stream=True)
    sent = json.loads(provider(name).build_request(request).body)
    item = TypeAdapter(vendor.ResponseInputItemParam)
    for entry in sent["input"]:
        item.validate_python(entry)
    TypeAdapter(vendor.FunctionToolParam).validate_python(sent["tools"][0])
    known = vendor.response_create_params.ResponseCreateParamsStreaming.__annotations__
    known |= vendor.response_create_params.ResponseCreateParamsBase.__annotations__
    assert set(sent) <= set(known)


def test_openais_types_read_our_body():
    vendor = pytest.importorskip("openai.types.responses", reason="the vendor's client is a development dependency")

    theirs = vendor.Response.model_validate(whole_body(FULL))
    ours = provider("openai-responses").parse(whole_body(FULL))
    assert (ours.text, ours.signal.raw_value) == (theirs.output_text, theirs.status)
    calls = [item for item in theirs.output if item.type == "function_call"]
    assert [(call.id, call.name, call.arguments) for call in ours.tool_calls] == [
        (call.call_id, call.name, call.arguments) for call in calls
    ]
    assert (ours.usage.input_tokens, ours.usage.total_tokens) == (theirs.usage.input_tokens, theirs.usage.total_tokens)
    assert ours.usage.reasoning_tokens == theirs.usage.output_tokens_details.reasoning_tokens


def test_openais_types_read_our_events():
    vendor = pytest.importorskip("openai.types.responses", reason="the vendor's client is a development dependency")

    event_type = TypeAdapter(vendor.ResponseStreamEvent)
    for event in events(FULL):
        if isinstance(event, dict) and "response" not in event:
            event_type.validate_python(event)


def test_all_values_of_the_vendor_are_in_our_tables():
    vendor = pytest.importorskip("openai.types.responses", reason="the vendor's client is a development dependency")

    assert set(get_args(vendor.ResponseStatus)) == set(STATUSES.reasons)
    reason = vendor.response.IncompleteDetails.model_fields["reason"].annotation
    assert set(get_args(get_args(reason)[0])) == set(INCOMPLETE_REASONS.reasons)
    events_union = get_args(vendor.ResponseStreamEvent)[0]
    kinds = {get_args(event.model_fields["type"].annotation)[0] for event in get_args(events_union)}
    assert set(LAST_EVENTS.reasons) <= kinds


def test_waiting_items_are_those_that_need_an_output():
    vendor = pytest.importorskip("openai.types.responses", reason="the vendor's client is a development dependency")

    kinds = {get_args(item.model_fields["type"].annotation)[0] for item in get_args(get_args(vendor.ResponseOutputItem)[0])}
    with_output = {kind for kind in kinds if f"{kind}_output" in kinds} - {"program"}  # whose output the vendor provides
    assert {kind for kind in kinds if is_waiting_kind(kind)} == with_output | {"mcp_approval_request", "tool_search_call"}
