"""One answer in the format of each wire: as a whole body, and as the bytes of a stream. Written from the vendors' pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentlab.model.finish_reasons import FinishReason
from agentlab.model.responses import ModelResponse, StreamEvent
from agentlab.providers import base
from agentlab.providers.registry import Provider

WIRES = ("openai", "openrouter", "xai", "azure", "compatible", "anthropic", "gemini")
READERS = ("openai", "xai", "anthropic", "gemini")
"""One of them for each way in which a body is read: OpenRouter's, Azure's and those of other servers are read like OpenAI's."""


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """A model's answer, independent of any wire. Tokens: input without cache, output with reasoning."""

    text: Sequence[str] = ("Hello",)
    reasoning: Sequence[str] = ()
    calls: Sequence[Call] = ()
    finish: FinishReason = FinishReason.END_TURN
    input_tokens: int = 10
    cached: int = 0
    output_tokens: int = 5
    thinking: int = 0


WORDS = {
    "chat": {
        FinishReason.END_TURN: "stop",
        FinishReason.TOOL_CALLS: "tool_calls",
        FinishReason.MAX_TOKENS: "length",
        FinishReason.CONTENT_FILTERED: "content_filter",
    },
    "anthropic": {
        FinishReason.END_TURN: "end_turn",
        FinishReason.TOOL_CALLS: "tool_use",
        FinishReason.MAX_TOKENS: "max_tokens",
        FinishReason.CONTENT_FILTERED: "refusal",
    },
    "gemini": {
        FinishReason.END_TURN: "STOP",
        FinishReason.TOOL_CALLS: "STOP",
        FinishReason.MAX_TOKENS: "MAX_TOKENS",
        FinishReason.CONTENT_FILTERED: "SAFETY",
    },
}


def provider(name: str) -> base.Provider:
    place = {"project": "made-up"} if name.endswith("-vertex") else {}
    return Provider(name, model="some-model", base_url="http://127.0.0.1:1/v1", **place)


def parse_stream(name: str, pieces: Sequence[bytes], cap: int | None = None) -> tuple[ModelResponse, list[StreamEvent]]:
    parser = provider(name).stream_parser(requested_cap=cap)
    events = [event for piece in pieces for event in parser.feed(piece)]
    signal = parser.finish()
    response = parser.response()
    assert response.signal == signal
    return response, events


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """`data` cut at these positions, in any order and size."""
    at = sorted({place % (len(data) + 1) for place in places})
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


def sse(events: Sequence[dict[str, Any] | str], *, named: bool = False, newline: str = "\n") -> bytes:
    lines = []
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
        name = f"event: {event['type']}{newline}" if named and isinstance(event, dict) else ""
        lines.append(f"{name}data: {data}{newline}{newline}")
    return "".join(lines).encode("utf-8", "surrogatepass")


# Small bodies for tests to modify -------------------------------------------------------------------------------------------

CALL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CUT_CALL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}


TOOL_USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
FUNCTION_CALL = {"functionCall": {"name": "f", "args": {"a": 1}}}


def chat(finish: Any = "stop", message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hi"} if message is None else message
    return {"id": "r1", "model": "m-1", "choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}


def claude(stop_reason: Any = "end_turn", content: Any = None, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "Hi"}] if content is None else content
    return {
        "id": "r1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": content,
        "stop_reason": stop_reason,
        **more,
    }


def google(finish: Any = "STOP", parts: Any = None, **more: Any) -> dict[str, Any]:
    parts = [{"text": "Hi"}] if parts is None else parts
    candidate = {"content": {"role": "model", "parts": parts}} | ({} if finish is None else {"finishReason": finish})
    return {"candidates": [candidate], "modelVersion": "m-1", "responseId": "r1", **more}


# One answer on every wire --------------------------------------------------------------------------------------------------


def vendor(name: str) -> str:
    """The provider whose wire a provider in a cloud speaks: `anthropic` for `anthropic-vertex`."""
    return name.removesuffix("-vertex").removesuffix("-foundry")


def whole(name: str, answer: Answer) -> dict[str, Any]:
    return {"anthropic": _anthropic, "gemini": _gemini}.get(vendor(name), _chat)(answer)


def stream(name: str, answer: Answer, *, newline: str = "\n") -> bytes:
    if vendor(name) == "anthropic":
        return sse(_anthropic_events(answer), named=True, newline=newline)
    return sse(_gemini_events(answer) if vendor(name) == "gemini" else _chat_events(answer), newline=newline)


# Chat completions ----------------------------------------------------------------------------------------------------------


def _chat_usage(answer: Answer) -> dict[str, Any]:
    prompt = answer.input_tokens + answer.cached
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer.output_tokens,
        "total_tokens": prompt + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached},
        "completion_tokens_details": {"reasoning_tokens": answer.thinking},
    }


def _chat(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(answer.text) or None, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = "".join(answer.reasoning)
    if answer.calls:
        message["tool_calls"] = [
            {"id": f"c{n}", "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for n, call in enumerate(answer.calls)
        ]
    return {
        "id": "r1",
        "object": "chat.completion",
        "created": 1,
        "model": "some-model-1",
        "choices": [{"index": 0, "message": message, "finish_reason": WORDS["chat"][answer.finish]}],
        "usage": _chat_usage(answer),
    }


def _chat_events(answer: Answer) -> list[dict[str, Any] | str]:
    head = {"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": "some-model-1"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], "usage": None}

    events: list[dict[str, Any] | str] = [chunk({"role": "assistant", "content": "", "refusal": None})]
    events += [chunk({"reasoning_content": piece}) for piece in answer.reasoning]
    events += [chunk({"content": piece}) for piece in answer.text]
    for n, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        events.append(chunk({"tool_calls": [{"index": n, "id": f"c{n}", "type": "function", "function": function}]}))
        events += [
            chunk({"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
            for piece in _pieces(json.dumps(call.arguments))
        ]
    events.append(chunk({}, WORDS["chat"][answer.finish]))
    events.append({**head, "choices": [], "usage": _chat_usage(answer)})
    events.append("[DONE]")
    return events


# Anthropic -----------------------------------------------------------------------------------------------------------------


def _anthropic_usage(answer: Answer) -> dict[str, Any]:
    return {
        "input_tokens": answer.input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.cached,
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"thinking_tokens": answer.thinking},
    }


def _anthropic(answer: Answer) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if answer.reasoning:
        content.append({"type": "thinking", "thinking": "".join(answer.reasoning), "signature": "sig"})
    if answer.text:
        content.append({"type": "text", "text": "".join(answer.text)})
    content += [
        {"type": "tool_use", "id": f"c{n}", "name": call.name, "input": call.arguments} for n, call in enumerate(answer.calls)
    ]
    return {
        "id": "r1",
        "type": "message",
        "role": "assistant",
        "model": "some-model-1",
        "content": content,
        "stop_reason": WORDS["anthropic"][answer.finish],
        "stop_sequence": None,
        "usage": _anthropic_usage(answer),
    }


def _anthropic_events(answer: Answer) -> list[dict[str, Any]]:
    message = {
        **_anthropic(answer),
        "content": [],
        "stop_reason": None,
        "usage": {**_anthropic_usage(answer), "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    index = 0

    def block(start: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
        nonlocal index
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.extend({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        events.append({"type": "content_block_stop", "index": index})
        index += 1

    if answer.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in answer.reasoning]
        block({"type": "thinking", "thinking": "", "signature": ""}, [*deltas, {"type": "signature_delta", "signature": "sig"}])
    if answer.text:
        block({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in answer.text])
    for n, call in enumerate(answer.calls):
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(json.dumps(call.arguments)))]
        block({"type": "tool_use", "id": f"c{n}", "name": call.name, "input": {}}, pieces)
    delta = {"stop_reason": WORDS["anthropic"][answer.finish], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": answer.output_tokens}})
    events.append({"type": "message_stop"})
    return events


# Gemini --------------------------------------------------------------------------------------------------------------------


def _gemini_usage(answer: Answer) -> dict[str, Any]:
    prompt = answer.input_tokens + answer.cached
    return {
        "promptTokenCount": prompt,
        "candidatesTokenCount": answer.output_tokens - answer.thinking,
        "thoughtsTokenCount": answer.thinking,
        "cachedContentTokenCount": answer.cached,
        "totalTokenCount": prompt + answer.output_tokens,
    }


def _gemini_parts(answer: Answer, *, joined: bool) -> list[dict[str, Any]]:
    reasoning = ["".join(answer.reasoning)] if joined and answer.reasoning else answer.reasoning
    text = ["".join(answer.text)] if joined and answer.text else answer.text
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in reasoning]
    parts += [{"text": piece} for piece in text]
    parts += [
        {"functionCall": {"name": call.name, "args": call.arguments}, **({} if n else {"thoughtSignature": "c2ln"})}
        for n, call in enumerate(answer.calls)
    ]
    return parts


def _gemini(answer: Answer) -> dict[str, Any]:
    candidate = {
        "content": {"role": "model", "parts": _gemini_parts(answer, joined=True)},
        "finishReason": WORDS["gemini"][answer.finish],
        "index": 0,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": _gemini_usage(answer),
        "modelVersion": "some-model-1",
        "responseId": "r1",
    }


def _gemini_events(answer: Answer) -> list[dict[str, Any]]:
    head = {"modelVersion": "some-model-1", "responseId": "r1"}
    events = [
        {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": count},  # it accumulates with each chunk
            **head,
        }
        for count, part in enumerate(_gemini_parts(answer, joined=False), 1)
    ]
    end = {"content": {"role": "model", "parts": []}, "finishReason": WORDS["gemini"][answer.finish], "index": 0}
    events.append({"candidates": [end], "usageMetadata": _gemini_usage(answer), **head})
    return events


def _pieces(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]
