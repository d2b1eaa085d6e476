"""The vendors' own types as a second opinion: they read our requests and our test bodies, and list the vendors' values."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import Message, ModelRequest, ToolCall, ToolResult, ToolSpec
from agentlab.providers import anthropic, gemini
from agentlab.providers.wires import chat as chat_wire

from .bodies import Answer, Call, provider, whole

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
MESSAGES = [
    Message("user", "Hi"),
    Message("assistant", "Let me see", tool_calls=(ToolCall("t1", "f", '{"a": 1}'), ToolCall("t2", "f", '{"a'))),
    Message("tool", tool_results=(ToolResult("t1", "f", "one"), ToolResult("t2", "f", "wrong", error="invalid_arguments"))),
    Message("assistant", "Done"),
]
FULL = Answer(reasoning=("hm",), calls=(Call("f", {"a": 1}),), finish=FinishReason.TOOL_CALLS, thinking=2, cached=3)


def sent(name: str) -> dict[str, Any]:
    tool = ToolSpec("f", "Does f", SCHEMA, json.dumps(SCHEMA))
    native = provider(name).parse(whole(name, FULL)).native
    messages = [*MESSAGES, Message("assistant", "Hello", native=native)]
    return json.loads(provider(name).build_request(ModelRequest(messages, "Be brief", (tool,), 9)).body)


def test_openais_types_read_our_requests():
    openai_chat = pytest.importorskip("openai.types.chat", reason="the vendor's client is a development dependency")

    body = sent("openai")
    message = TypeAdapter(openai_chat.ChatCompletionMessageParam)
    for entry in body["messages"]:
        message.validate_python(entry)
    TypeAdapter(openai_chat.ChatCompletionToolParam).validate_python(body["tools"][0])


def test_anthropics_types_read_our_requests():
    anthropic_types = pytest.importorskip("anthropic.types", reason="the vendor's client is a development dependency")

    body = sent("anthropic")
    message = TypeAdapter(anthropic_types.MessageParam)
    for entry in body["messages"]:
        message.validate_python(entry)
    TypeAdapter(anthropic_types.ToolParam).validate_python(body["tools"][0])


def test_googles_types_read_our_requests():
    """Google's types refuse unknown fields."""
    google_types = pytest.importorskip("google.genai.types", reason="the vendor's client is a development dependency")

    body = sent("gemini")
    for content in body["contents"]:
        google_types.Content.model_validate(content)
    google_types.Content.model_validate(body["systemInstruction"])
    google_types.Tool.model_validate(body["tools"][0])
    google_types.GenerationConfig.model_validate(body["generationConfig"])


def test_openais_types_read_our_body():
    openai_chat = pytest.importorskip("openai.types.chat", reason="the vendor's client is a development dependency")

    theirs = openai_chat.ChatCompletion.model_validate(whole("openai", FULL))
    ours = provider("openai").parse(whole("openai", FULL))
    choice = theirs.choices[0]
    assert (ours.text, ours.signal.raw_value) == (choice.message.content, choice.finish_reason)
    assert [(call.id, call.arguments) for call in ours.tool_calls] == [
        (call.id, call.function.arguments) for call in choice.message.tool_calls
    ]
    assert (ours.usage.input_tokens, ours.usage.total_tokens) == (theirs.usage.prompt_tokens, theirs.usage.total_tokens)


def test_anthropics_types_read_our_body():
    anthropic_types = pytest.importorskip("anthropic.types", reason="the vendor's client is a development dependency")

    theirs = anthropic_types.Message.model_validate(whole("anthropic", FULL))
    ours = provider("anthropic").parse(whole("anthropic", FULL))
    assert ours.signal.raw_value == theirs.stop_reason
    assert [call.id for call in ours.tool_calls] == [block.id for block in theirs.content if block.type == "tool_use"]
    assert ours.usage.input_tokens == theirs.usage.input_tokens + theirs.usage.cache_read_input_tokens
    assert ours.usage.reasoning_tokens == theirs.usage.output_tokens_details.thinking_tokens


def test_googles_types_read_our_body():
    google_types = pytest.importorskip("google.genai.types", reason="the vendor's client is a development dependency")

    theirs = google_types.GenerateContentResponse.model_validate(whole("gemini", FULL))
    ours = provider("gemini").parse(whole("gemini", FULL))
    assert ours.text == theirs.candidates[0].content.parts[1].text
    assert [call.name for call in ours.tool_calls] == [call.name for call in theirs.function_calls]
    assert ours.usage.total_tokens == theirs.usage_metadata.total_token_count


def test_all_values_of_the_vendors_are_in_our_tables():
    anthropic_types = pytest.importorskip("anthropic.types", reason="the vendor's client is a development dependency")
    google_types = pytest.importorskip("google.genai.types", reason="the vendor's client is a development dependency")
    openai_chat = pytest.importorskip("openai.types.chat", reason="the vendor's client is a development dependency")

    chat = get_args(openai_chat.chat_completion.Choice.model_fields["finish_reason"].annotation)
    assert set(chat) <= set(chat_wire.FINISH_REASONS.reasons)
    assert set(get_args(anthropic_types.beta.BetaStopReason)) == set(anthropic.FINISH_REASONS.reasons)
    assert {word.value for word in google_types.FinishReason} <= set(gemini.FINISH_REASONS.reasons)
    blocked = {word.value for word in google_types.BlockedReason} - {"BLOCKED_REASON_UNSPECIFIED"}
    assert blocked <= gemini.BLOCK_REASONS.reasons.keys()
