"""A streamed answer of a thousand pieces of text on each wire, with the fields and the framing that the vendor sends.

Standard library only at import: the loopback server takes its answers from here too.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

CHUNKS = 1_000
"""Pieces of text in one streamed answer, one event each."""

WORDS = tuple(f" word{number}" for number in range(CHUNKS))
TEXT = "".join(WORDS)
Fields = dict[str, Any]

_SAFE = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def sse(data: Fields | str, name: str = "", newline: str = "\n", padding: str = "") -> bytes:
    """One server-sent event; `padding` goes before the last brace."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    text = text[:-1] + padding + text[-1]
    return f"{f'event: {name}{newline}' if name else ''}data: {text}{newline}{newline}".encode()


def _padding(word: str, longest: int = 16) -> str:
    """Padding letters that hide the length of a piece, as vendors add them; here they fill each piece to one length."""
    return _ALPHABET[: max(0, longest - len(word))]


# Chat completions ----------------------------------------------------------------------------------------------------------

_CHAT_USAGE = {
    "prompt_tokens": 2_000,
    "completion_tokens": CHUNKS,
    "total_tokens": 2_000 + CHUNKS,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
}


def _chat(
    head: Fields, choice: Callable[[Fields, str | None], Fields], delta: Callable[[str], Fields], end: Fields
) -> list[bytes]:
    def chunk(choices: list[Fields], word: str, **more: Any) -> bytes:
        hidden = {"obfuscation": _padding(word)} if "service_tier" in head else {}
        return sse({**head, "choices": choices, **more, **hidden})

    first = chunk([choice({"role": "assistant", "content": ""}, None)], "")
    pieces = [chunk([choice(delta(word), None)], word) for word in WORDS]
    return [first, *pieces, chunk([choice({}, "stop")], ""), chunk([], "", usage={**_CHAT_USAGE, **end}), sse("[DONE]")]


def compatible() -> list[bytes]:
    """The minimum that servers of this wire send."""
    head = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": "scripted", "object": "chat.completion.chunk"}
    return _chat(
        head,
        lambda delta, finish: {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish},
        lambda word: {"content": word},
        {},
    )


def openai() -> list[bytes]:
    """With the tier, the fingerprint, and letters that hide the length."""
    head = {
        "id": "chatcmpl-CpWAJ52Q8e2N5d4keIV3xBneGumMd",
        "object": "chat.completion.chunk",
        "created": 1_766_394_407,
        "model": "gpt-5.4-mini-2026-03-05",
        "service_tier": "default",
        "system_fingerprint": "fp_f97eff32c6",
    }
    return _chat(
        {**head, "usage": None},
        lambda delta, finish: {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish},
        lambda word: {"content": word},
        {},
    )


def openrouter() -> list[bytes]:
    """With the upstream vendor, the role in every delta, and the vendor's own finish reason."""
    head = {
        "id": "gen-1766394407-tlPfexa2nYCsKovTZzQ2",
        "provider": "Anthropic",
        "model": "anthropic/claude-haiku-4.5",
        "object": "chat.completion.chunk",
        "created": 1_766_394_407,
    }
    return _chat(
        head,
        lambda delta, finish: {
            "index": 0,
            "delta": delta,
            "finish_reason": finish,
            "native_finish_reason": finish and "end_turn",
            "logprobs": None,
        },
        lambda word: {"role": "assistant", "content": word},
        {"cost": 0.0071, "is_byok": False, "cost_details": {"upstream_inference_cost": None}},
    )


def xai() -> list[bytes]:
    """Without null fields."""
    head = {
        "id": "2f0b5336-7c38-e891-816c-b51eefdf5d1f_us-east-1",
        "object": "chat.completion.chunk",
        "created": 1_766_394_407,
        "model": "grok-4.3",
        "system_fingerprint": "fp_9362061f31",
    }
    return _chat(
        head,
        lambda delta, finish: {"index": 0, "delta": delta} | ({"finish_reason": finish} if finish else {}),
        lambda word: {"content": word},
        {"cost_in_usd_ticks": 71_000_000},
    )


def azure() -> list[bytes]:
    """With the results of the content filters in every chunk."""
    head = {
        "created": 1_766_394_407,
        "id": "chatcmpl-CYEwjWWnNzVFsijUIEsAayDMAX5WQ",
        "model": "gpt-5.4-mini-2026-03-05",
        "obfuscation": "vDHx3",
        "object": "chat.completion.chunk",
        "system_fingerprint": "fp_efad92c60c",
        "usage": None,
    }
    return _chat(
        head,
        lambda delta, finish: {
            "content_filter_results": _SAFE if delta.get("content") else {},
            "delta": delta,
            "finish_reason": finish,
            "index": 0,
            "logprobs": None,
        },
        lambda word: {"content": word},
        {},
    )


# Responses -----------------------------------------------------------------------------------------------------------------


def responses_body(output: list[Fields], status: str) -> Fields:
    """A response with the settings that the vendor repeats."""
    usage = {
        "input_tokens": 2_000,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": CHUNKS,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2_000 + CHUNKS,
    }
    return {
        "id": "resp_039be8aa35b2d1f30069922bd133",
        "object": "response",
        "created_at": 1_766_394_407,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": "Answer in plain words.",
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": "gpt-5.4-mini-2026-03-05",
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage if status == "completed" else None,
        "user": None,
        "metadata": {},
    }


def openai_responses() -> list[bytes]:
    """Named events, numbered, with the whole text three times at the end."""
    item_id = "msg_039be8aa35b2d1f30069922bd19998819d801caf28bd4ac921"
    place = {"item_id": item_id, "output_index": 0, "content_index": 0}
    item = {"id": item_id, "type": "message", "role": "assistant"}
    empty, full = ({"type": "output_text", "annotations": [], "logprobs": [], "text": text} for text in ("", TEXT))
    done = {**item, "status": "completed", "content": [full]}
    begun = responses_body([], "in_progress")
    events: list[Fields] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **place, "part": empty},
        *(
            {"type": "response.output_text.delta", **place, "delta": word, "logprobs": [], "obfuscation": _padding(word)}
            for word in WORDS
        ),
        {"type": "response.output_text.done", **place, "text": TEXT, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": full},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": responses_body([done], "completed")},
    ]
    return [sse({**event, "sequence_number": number}, event["type"]) for number, event in enumerate(events)]


# The others ----------------------------------------------------------------------------------------------------------------


def anthropic() -> list[bytes]:
    """Named events, padded with spaces."""
    usage = {
        "input_tokens": 2_000,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 1,
        "service_tier": "standard",
    }
    message = {
        "model": "claude-sonnet-4-6",
        "id": "msg_0142t8HGuvq5zEXaMPLe1234",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    before: list[Fields] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
    ]
    after: list[Fields] = [
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"input_tokens": 2_000, "output_tokens": CHUNKS},
        },
        {"type": "message_stop"},
    ]
    deltas = [
        sse(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}},
            "content_block_delta",
            padding=" " * len(_padding(word)),
        )
        for word in WORDS
    ]
    return [*(sse(event, event["type"]) for event in before), *deltas, *(sse(event, event["type"]) for event in after)]


def gemini() -> list[bytes]:
    """Whole small responses with the usage so far, in lines that end in CRLF and have spaces after their colons."""

    def chunk(number: int, word: str) -> bytes:
        last = number == CHUNKS - 1
        candidate = {"content": {"parts": [{"text": word}], "role": "model"}} | ({"finishReason": "STOP"} if last else {})
        usage = {
            "promptTokenCount": 2_000,
            "candidatesTokenCount": number + 1,
            "totalTokenCount": 2_001 + number,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 2_000}],
        }
        body = {
            "candidates": [{**candidate, "index": 0}],
            "usageMetadata": usage,
            "modelVersion": "gemini-3.5-flash",
            "responseId": "pFvgaKXiK7zj_uMPvf_OqQp",
        }
        return sse(json.dumps(body, separators=(",", ": ")), newline="\r\n")

    return [chunk(number, word) for number, word in enumerate(WORDS)]


def bedrock() -> list[bytes]:
    """Binary frames, padded with letters."""
    from agentlab.transport.aws_eventstream import build_frame, encode_headers

    def frame(name: str, payload: Fields) -> bytes:
        headers = [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")]
        return build_frame(encode_headers(headers), json.dumps(payload, separators=(",", ":")).encode())

    usage = {"inputTokens": 2_000, "outputTokens": CHUNKS, "totalTokens": 2_000 + CHUNKS}
    deltas = (
        frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": word}, "p": _padding(word, 40)}) for word in WORDS
    )
    return [
        frame("messageStart", {"p": _padding("", 30), "role": "assistant"}),
        *deltas,
        frame("contentBlockStop", {"contentBlockIndex": 0, "p": _padding("", 12)}),
        frame("messageStop", {"p": _padding("", 20), "stopReason": "end_turn"}),
        frame("metadata", {"metrics": {"latencyMs": 5_120}, "p": _padding("", 30), "usage": usage}),
    ]


STREAMS: Mapping[str, Callable[[], list[bytes]]] = {
    "compatible": compatible,
    "openai": openai,
    "openrouter": openrouter,
    "xai": xai,
    "azure": azure,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "bedrock": bedrock,
}
"""By provider: the events of one answer, as bytes."""


def joined(pieces: Iterable[bytes]) -> list[bytes]:
    """The same stream in one piece, like a recorded body."""
    return [b"".join(pieces)]
