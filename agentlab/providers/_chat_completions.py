"""The chat completions wire, which OpenAI and many other servers speak: requests out of messages, and responses read back.

A stream is put together into the body that the same answer would have had without streaming, and that body is read: so both give
the same response.

Vendor page: https://platform.openai.com/docs/api-reference/chat/object; the words were read on 2026-11-22 from the types of the
vendor's client (openai 3.54), which are made from the same specification. OpenRouter's, "error" and native_finish_reason among them:
https://openrouter.ai/docs/client-sdks/python/components/finishreason and
https://openrouter.ai/announcements/standardized-finish-reasons, read 2026-11-22, and recorded responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from agentlab.conversation import encode_messages
from agentlab.providers import _read as read
from agentlab.providers._request import merge_options
from agentlab.providers._signals import Ended, Facts, Table, find_error, judge
from agentlab.types import (
    JSON,
    FinishReason,
    Message,
    ModelRequest,
    ModelResponse,
    NativeContent,
    TerminationSignal,
    ToolCall,
    Usage,
    UsageSource,
)

FINISH_REASONS = Table(
    field="choices[].finish_reason",
    reasons={
        "stop": FinishReason.END_TURN,
        "tool_calls": FinishReason.TOOL_CALLS,
        "function_call": FinishReason.TOOL_CALLS,
        "length": FinishReason.MAX_TOKENS,
        "content_filter": FinishReason.CONTENT_FILTERED,
        "error": FinishReason.ERROR,
    },
)

_PROPER_ENDS = ("stop", "tool_calls", "function_call")

REASONING_KEYS = ("reasoning_content", "reasoning")
"""Where servers put visible reasoning; the first that holds text is taken, since some send it under both names."""

_KEPT_REASONING_KEYS = ("reasoning_content", "reasoning_details")
"""What goes back with a turn that calls tools: servers with interleaved reasoning refuse, or lose the thread, without it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who reads: the provider's name, the model asked for, the name of its message format, the output cap asked for in tokens."""

    provider: str
    model: str
    wire: str
    requested_cap: int | None = None


# Requests ------------------------------------------------------------------------------------------------------------------


def request_body(request: ModelRequest, *, model: str, wire: str, cap_field: str) -> bytes:
    """The JSON body. Each message is encoded once in a conversation's life; the fields stand in a fixed order.

    `options` are further fields at the top level; its `tools` are added to the request's own, its `stream_options` merged.
    """
    messages = encode_messages(request.messages, wire, partial(encode_message, wire=wire))
    if request.instructions:
        messages = [read.dumps({"role": "system", "content": request.instructions}), *messages]
    fields = {"model": read.dumps(model), "messages": read.json_array(messages)}
    if request.tools:
        fields["tools"] = read.json_array(
            b'{"type":"function","function":{"name":%b,"description":%b,"parameters":%b}}'
            % (read.dumps(tool.name), read.dumps(tool.description), tool.parameters_json.encode())
            for tool in request.tools
        )
    if request.max_output_tokens is not None:
        fields[cap_field] = read.dumps(request.max_output_tokens)
    if request.stream:
        fields["stream"] = b"true"
        fields["stream_options"] = b'{"include_usage":true}'
    merge_options(fields, request.options, reserved=("model", "messages", "stream"))
    return read.json_object(fields.items())


def encode_message(message: Message, *, wire: str) -> bytes:
    """One message as JSON; several, with commas between, for the results of several calls; nothing for an empty assistant turn."""
    if message.role == "tool":
        return b",".join(
            read.dumps({"role": "tool", "tool_call_id": result.call_id, "content": result.content})
            for result in message.tool_results
        )
    if message.role == "user":
        return read.dumps({"role": "user", "content": message.text})
    if message.native is not None and message.native.wire == wire:
        return read.dumps(message.native.content)
    return b"" if not message.text and not message.tool_calls else read.dumps(_assistant(message.text, message.tool_calls))


def _assistant(text: str, calls: tuple[ToolCall, ...]) -> dict[str, Any]:
    body: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        body["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": read.arguments_object(call.arguments).decode()},
            }
            for call in calls
        ]
    return body


# Responses -----------------------------------------------------------------------------------------------------------------


def read_body(payload: JSON, origin: Origin, *, ended: Ended = "whole", damaged: bool = False) -> ModelResponse:
    """A whole body, or what was put together from a stream, as a ModelResponse."""
    body = read.as_dict(payload)
    choice = first_choice(body)
    message = read.as_dict(choice.get("message")) or read.as_dict(choice.get("delta"))
    text, thoughts = content_text(message.get("content"))
    refusal = read.some_text(message.get("refusal"))
    finish = choice.get("finish_reason")
    broken = ended == "unmarked" and finish is None
    calls = _tool_calls(message, cut=finish not in _PROPER_ENDS, broken=broken, damaged=damaged)
    usage = read_usage(usage_object(body))
    signal = read_signal(
        finish,
        Facts(
            tool_calls=len(calls),
            complete_calls=all(read.is_json(call.arguments) for call in calls),
            answered=bool(text or calls),
            refused=refusal is not None,
            ended=ended,
            damaged=damaged,
            output_tokens=usage.output_tokens,
            requested_cap=origin.requested_cap,
            error=_error_in(payload, choice),
            metadata=_metadata(choice),
        ),
        origin,
    )
    reasoning = next((words for key in REASONING_KEYS if (words := read.as_text(message.get(key)))), "") or thoughts
    return ModelResponse(
        text=text,
        signal=signal,
        tool_calls=calls,
        usage=usage,
        reasoning=reasoning,
        refusal=refusal,
        model=read.some_text(body.get("model")),
        response_id=read.some_text(body.get("id")),
        cost_usd=read.money(read.as_dict(usage_object(body)).get("cost")),
        native=_native(message, text, calls, refusal, origin.wire),
        raw=payload,
    )


def read_signal(finish: JSON, facts: Facts, origin: Origin) -> TerminationSignal:
    """Why the response ended."""
    return judge(FINISH_REASONS, finish, facts, provider=origin.provider, model=origin.model)


def first_choice(body: dict[str, Any]) -> dict[str, Any]:
    """The choice that is the answer: the one with index 0, else the first. Further ones (`n` above 1) are left in `raw`."""
    choices = [choice for choice in read.as_list(body.get("choices")) if isinstance(choice, dict)]
    return next((choice for choice in choices if choice.get("index") == 0), choices[0] if choices else {})


def usage_object(body: dict[str, Any]) -> JSON:
    """Where servers put the usage: at the top, under a vendor's own key, or in the choice."""
    for place in (body, read.as_dict(body.get("x_groq")), first_choice(body)):
        if isinstance(usage := place.get("usage"), dict):
            return usage
    return None


def read_usage(reported: JSON) -> Usage:
    """Tokens by the one convention.

    `prompt_tokens` includes cache reads. `completion_tokens` includes reasoning, except on servers whose total shows that it comes
    on top (xAI among them): there it is added.
    """
    usage = read.as_dict(reported)
    prompt, completion = read.count(usage.get("prompt_tokens")), read.count(usage.get("completion_tokens"))
    details = read.as_dict(usage.get("prompt_tokens_details"))
    cached = read.count(details.get("cached_tokens"))
    reasoning = read.count(read.as_dict(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    if prompt is None and completion is None:
        return Usage()
    total = read.count(usage.get("total_tokens"))
    if reasoning and prompt is not None and completion is not None and total == prompt + completion + reasoning:
        completion += reasoning
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cache_read_tokens=cached if cached is not None else read.count(usage.get("prompt_cache_hit_tokens")),
        cache_write_tokens=read.count(details.get("cache_write_tokens")),
        reasoning_tokens=reasoning,
        source=UsageSource.REPORTED,
    )


def _error_in(payload: JSON, choice: dict[str, Any]) -> JSON:
    error = find_error(payload)
    return error if error is not None else choice.get("error") or None


def _metadata(choice: dict[str, Any]) -> dict[str, JSON]:
    native = read.some_text(choice.get("native_finish_reason"))
    return {} if native is None else {"native_finish_reason": native}


def content_text(content: JSON) -> tuple[str, str]:
    """Text and reasoning of a message's content, which some servers send as a list of parts."""
    if isinstance(content, str):
        return read.whole_text(content), ""
    thoughts: list[str] = []
    for part in read.as_list(content):
        if isinstance(part, dict) and part.get("type") == "thinking":
            thoughts.append(_parts_text(part.get("thinking")))
    return read.whole_text(_parts_text(content)), read.whole_text("".join(thoughts))


def _parts_text(parts: JSON) -> str:
    if isinstance(parts, str):
        return parts
    texts = (part.get("text") if isinstance(part, dict) else part for part in read.as_list(parts))
    return "".join(text for text in texts if isinstance(text, str))


def _tool_calls(message: dict[str, Any], *, cut: bool, broken: bool, damaged: bool) -> tuple[ToolCall, ...]:
    """The calls of a message. This wire does not mark the end of a call: in a response that was cut, a call that another follows is
    closed, and the last one where its arguments are complete; after a stream broke off the last one is not. Where a piece of the
    stream was lost none is: what is left may be JSON, and not what the model said."""
    entries = [entry for entry in read.as_list(message.get("tool_calls")) if isinstance(entry, dict)]
    legacy = message.get("function_call")
    if not entries and isinstance(legacy, dict):
        entries = [{"function": legacy}]
    calls: list[ToolCall] = []
    for number, entry in enumerate(entries, 1):
        function = read.as_dict(entry.get("function"))
        last = number == len(entries)
        arguments = function.get("arguments")
        closed = not damaged and (not last or not cut or (not broken and _complete(arguments)))
        calls.append(
            ToolCall(
                id=read.as_text(entry.get("id")) or f"call_{number}",
                name=read.as_text(function.get("name")),
                arguments=read.arguments_text(arguments, closed=closed),
                closed=closed,
            )
        )
    return tuple(calls)


def _complete(arguments: JSON) -> bool:
    return isinstance(arguments, dict) or (isinstance(arguments, str) and read.is_json_object(arguments))


def _native(
    message: dict[str, Any], text: str, calls: tuple[ToolCall, ...], refusal: str | None, wire: str
) -> NativeContent | None:
    """The turn to send back: the documented fields, since servers refuse a message with fields that they only send."""
    if not text and not calls:
        return None
    content = _assistant(text, calls)
    if refusal is not None:
        content["refusal"] = refusal
    if calls:
        sent = [entry for entry in read.as_list(message.get("tool_calls")) if isinstance(entry, dict)]
        for rebuilt, entry in zip(content["tool_calls"], sent, strict=False):
            # Vendors' additions to a call (Google's thought signature among them) must come back with it.
            rebuilt.update({key: value for key, value in entry.items() if key not in ("id", "type", "function", "index")})
        content.update({key: message[key] for key in _KEPT_REASONING_KEYS if message.get(key)})
    return NativeContent(wire=wire, content=content)
