"""What xAI's SDK gets over gRPC, in protobuf's JSON, as other people's cassettes hold it: put into the shape of chat completions.

Vendor page: https://github.com/xai-org/xai-proto (proto/xai/api/v1/chat.proto, sample.proto, usage.proto), read 2026-11-22. Fields that
are zero or empty are left out there. An answer may take several `outputs`: the model's turn with calls of the server's own tools, what
those gave (ROLE_TOOL), and the model's next turn. All turns of the model are one answer here; the last one tells why it ended.
"""

from __future__ import annotations

from typing import Any

from agentlab.providers import _read as read
from agentlab.providers._chat_stream import ChatStreamParser
from agentlab.providers._signals import Table
from agentlab.types import JSON, FinishReason, StreamEvent

SAMPLE_REASONS = Table(
    field="outputs[].finish_reason",
    reasons={
        "REASON_INVALID": FinishReason.UNKNOWN,
        "REASON_MAX_LEN": FinishReason.MAX_TOKENS,
        "REASON_MAX_CONTEXT": FinishReason.CONTEXT_WINDOW_EXCEEDED,
        "REASON_STOP": FinishReason.END_TURN,
        "REASON_TOOL_CALLS": FinishReason.TOOL_CALLS,
        "REASON_TIME_LIMIT": FinishReason.ERROR,
    },
)

_CLIENT_SIDE = (None, "TOOL_CALL_TYPE_INVALID", "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL")
"""Calls of the person's tools; every other type is of a tool that the server runs itself."""

_KEPT = ("total_tokens", "num_sources_used", "cost_in_usd_ticks", "server_side_tools_used")

_ANSWERING = (None, "INVALID_ROLE", "ROLE_ASSISTANT")


def is_sample(body: JSON) -> bool:
    """Whether a body, or a chunk of a stream, is of this shape."""
    return isinstance(body, dict) and "outputs" in body and "choices" not in body


def to_chat(body: dict[str, Any], *, calls_before: bool = False) -> dict[str, Any]:
    """A sample as the body of a chat completion; a chunk of a sampled stream as its chunk.

    A turn that ends for the server's own tools is not the answer's end. `calls_before`: an earlier chunk had calls of the person's.
    """
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
    calls: list[dict[str, Any]] = []
    finish: JSON = None
    for output in read.as_list(body.get("outputs")):
        part = read.as_dict(read.as_dict(output).get("message")) or read.as_dict(read.as_dict(output).get("delta"))
        if not isinstance(output, dict) or part.get("role") not in _ANSWERING:
            continue
        for key, pieces in texts.items():
            if isinstance(text := part.get(key), str):
                pieces.append(text)
        calls += [_call(entry) for entry in read.as_list(part.get("tool_calls")) if _is_for_the_person(entry)]
        said = output.get("finish_reason")
        if said == "REASON_TOOL_CALLS" and not calls and not calls_before:
            said = None
        finish = said if said is not None else finish
    message: dict[str, Any] = {"role": "assistant", **{key: text for key in texts if (text := "".join(texts[key]))}}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish}
    kept: dict[str, Any] = {key: body[key] for key in ("id", "model", "system_fingerprint", "error") if key in body}
    usage = _usage(read.as_dict(body.get("usage")))
    return {**kept, "object": "chat.completion", "choices": [choice], **({"usage": usage} if usage else {})}


def _is_for_the_person(entry: JSON) -> bool:
    """Not a call that the server runs; nor a fragment of one that comes whole when it is complete."""
    call = read.as_dict(entry)
    return bool(call) and call.get("type") in _CLIENT_SIDE and call.get("status") != "TOOL_CALL_STATUS_IN_PROGRESS"


def _call(entry: dict[str, Any]) -> dict[str, Any]:
    return {"id": entry.get("id"), "type": "function", "function": read.as_dict(entry.get("function"))}


def _usage(sampled: dict[str, Any]) -> dict[str, Any]:
    """The usage in the wire's shape. A count that is left out is zero where the total says so."""
    prompt, total = sampled.get("prompt_tokens"), sampled.get("total_tokens")
    if prompt is None:
        return {}
    completion = sampled.get("completion_tokens")
    if completion is None and total == prompt:
        completion = 0
    return {
        **{key: sampled[key] for key in _KEPT if key in sampled},
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": sampled.get("cached_prompt_text_tokens")},
        "completion_tokens_details": {"reasoning_tokens": sampled.get("reasoning_tokens")},
    }


class SampleStreamParser(ChatStreamParser):
    """A stream of chunks of either shape."""

    def _take(self, name: bytes, chunk: dict[str, Any], told: list[StreamEvent]) -> None:
        if "outputs" in chunk and is_sample(chunk):
            chunk = to_chat(chunk, calls_before=bool(self._calls))
        super()._take(name, chunk, told)
