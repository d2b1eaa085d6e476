"""Whole, parsed answers on each wire, with the fields that the vendors send: a short text, and a text with two tool calls."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.benchmarks.streams import responses_body

Body = dict[str, Any]
ARGUMENTS = ({"city": "Vienna", "day": "2026-05-01"}, {"city": "Graz", "day": "2026-05-02"})
SHORT = "The lighthouse was lit in 1822 and is 47 metres high."
BEFORE_CALLS = "Let me look at the weather in both cities."


def _chat(calls: bool, **more: Any) -> Body:
    message: Body = {"role": "assistant", "content": BEFORE_CALLS if calls else SHORT, "refusal": None, "annotations": []}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_CpWAJ52Q8e2N5d4keIV3xBn{number}",
                "type": "function",
                "function": {"name": "get_weather", "arguments": json.dumps(arguments)},
            }
            for number, arguments in enumerate(ARGUMENTS)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 41,
        "total_tokens": 161,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    return {
        "id": "chatcmpl-CpWAJ52Q8e2N5d4keIV3xBneGumMd",
        "object": "chat.completion",
        "created": 1_766_394_407,
        "model": "gpt-5.4-mini-2026-03-05",
        "choices": [{**choice, **more}],
        "usage": usage,
        "service_tier": "default",
        "system_fingerprint": "fp_f97eff32c6",
    }


def openrouter(calls: bool) -> Body:
    """The chat wire, with the vendor behind it and the cost."""
    body = _chat(calls, native_finish_reason="tool_use" if calls else "end_turn")
    usage = {**body["usage"], "cost": 0.0071, "is_byok": False, "cost_details": {"upstream_inference_cost": None}}
    return {**body, "provider": "Anthropic", "usage": usage}


def responses(calls: bool) -> Body:
    """OpenAI's Responses."""
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": BEFORE_CALLS if calls else SHORT}
    output: list[Body] = [
        {"id": "msg_039be8aa35", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
    ]
    if calls:
        output += [
            {
                "id": f"fc_039be8aa3{number}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"call_CpWAJ52Q8e2N5d4keIV3xBn{number}",
                "name": "get_weather",
                "arguments": json.dumps(arguments),
            }
            for number, arguments in enumerate(ARGUMENTS)
        ]
    return responses_body(output, "completed")


def anthropic(calls: bool) -> Body:
    """A message."""
    content: list[Body] = [{"type": "text", "text": BEFORE_CALLS if calls else SHORT}]
    if calls:
        content += [
            {"type": "tool_use", "id": f"toolu_0142t8HGuvq5zEXaMPLe{number}", "name": "get_weather", "input": arguments}
            for number, arguments in enumerate(ARGUMENTS)
        ]
    usage = {
        "input_tokens": 56,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 64,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 41,
        "service_tier": "standard",
    }
    return {
        "model": "claude-sonnet-4-6",
        "id": "msg_0142t8HGuvq5zEXaMPLe1234",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def gemini(calls: bool) -> Body:
    """A response of generateContent."""
    parts: list[Body] = [{"text": BEFORE_CALLS if calls else SHORT}]
    if calls:
        parts += [{"functionCall": {"name": "get_weather", "args": arguments}} for arguments in ARGUMENTS]
    usage = {
        "promptTokenCount": 120,
        "candidatesTokenCount": 41,
        "totalTokenCount": 161,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 120}],
        "candidatesTokensDetails": [{"modality": "TEXT", "tokenCount": 41}],
    }
    return {
        "candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0, "avgLogprobs": -0.12}],
        "usageMetadata": usage,
        "modelVersion": "gemini-3.5-flash",
        "responseId": "pFvgaKXiK7zj_uMPvf_OqQp",
    }


def bedrock(calls: bool) -> Body:
    """A response of Converse."""
    content: list[Body] = [{"text": BEFORE_CALLS if calls else SHORT}]
    if calls:
        content += [
            {"toolUse": {"toolUseId": f"tooluse_5zEXaMPLe{number}", "name": "get_weather", "input": arguments}}
            for number, arguments in enumerate(ARGUMENTS)
        ]
    return {
        "metrics": {"latencyMs": 512},
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use" if calls else "end_turn",
        "usage": {
            "inputTokens": 56,
            "outputTokens": 41,
            "totalTokens": 161,
            "cacheReadInputTokens": 64,
            "cacheWriteInputTokens": 0,
        },
    }


BODIES: Mapping[str, Callable[[bool], Body]] = {
    "openai": _chat,
    "openrouter": openrouter,
    "openai-responses": responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "bedrock": bedrock,
}
"""By provider: an answer, with tool calls or without."""
