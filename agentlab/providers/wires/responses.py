"""The Responses wire, which OpenAI and other servers speak: reads why a response ended, and its content.

A stream is assembled into the body that the same answer has without streaming, and that body is read, so both give the same response.

Vendor page: https://platform.openai.com/docs/api-reference/responses/object; the finish reasons were read on 2026-11-22 from the types
of the vendor's client (openai 3.54), which are generated from the same specification. OpenRouter reports the cost as `usage.cost`
(https://openrouter.ai/docs/api/api-reference/responses/create-responses), xAI reports it in ticks of 1e-10 dollars
(https://docs.x.ai/developers/cost-tracking), both read 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from agentlab._internal.values import dataclass
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON, NativeContent, ToolCall
from agentlab.model.parts import Part
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Usage, UsageSource
from agentlab.providers.wires import read
from agentlab.providers.wires.chat import cost_in_ticks, fired, reported_cost
from agentlab.providers.wires.finish_rules import Ended, Facts, Table, error_code, error_text, find_error, judge, raw_value
from agentlab.providers.wires.media import IMAGES, PDF, Takes, data_uri, file_name

STATUSES = Table(
    field="status",
    reasons={
        "completed": FinishReason.END_TURN,
        "incomplete": FinishReason.UNKNOWN,  # for a response without incomplete_details, which have the reason
        "failed": FinishReason.ERROR,
        "cancelled": FinishReason.CANCELLED,
        "queued": FinishReason.UNKNOWN,  # not ended
        "in_progress": FinishReason.UNKNOWN,  # not ended
    },
    stop_with_calls=True,
)

INCOMPLETE_REASONS = Table(
    field="incomplete_details.reason",
    reasons={
        "max_output_tokens": FinishReason.MAX_TOKENS,
        "content_filter": FinishReason.CONTENT_FILTERED,
        "steered": FinishReason.PAUSED,  # stopped at a safe place, to be continued by another response
        "max_messages": FinishReason.UNKNOWN,  # listed but not explained
    },
)

LAST_EVENTS = Table(
    field="type",
    reasons={
        "response.completed": FinishReason.END_TURN,
        "response.incomplete": FinishReason.UNKNOWN,
        "response.failed": FinishReason.ERROR,
    },
    stop_with_calls=True,
)
"""Events that end a stream, for servers whose last event has no status."""

Item = dict[str, Any]

_OPEN = ("in_progress", "queued")
_ORDINARY_ENDS = (FinishReason.END_TURN, FinishReason.TOOL_CALLS)


@dataclass(frozen=True, slots=True)
class Origin:
    """The request of a response: provider, requested model, message format and requested output cap in tokens. `trusted`: the server
    sends `incomplete` when it stops at the cap."""

    provider: str
    model: str
    wire: str
    requested_cap: int | None = None
    trusted: bool = True


_PART: read.Fields = {"type": read.TEXT, "text": read.TEXT, "refusal": read.TEXT}
_ITEM: read.Fields = {
    "type": str,
    "content": (*read.TEXT, [_PART]),
    "summary": (read.NULL, [_PART]),
    "arguments": (*read.TEXT, dict),
    **dict.fromkeys(("name", "call_id", "id", "input"), read.TEXT),
}
_BODY: read.Fields = {"output": [_ITEM]}


def read_body(payload: JSON, origin: Origin, *, ended: Ended = "whole", damaged: bool = False) -> ModelResponse:
    """Read a whole body, or one assembled from a stream. An event that carries a body is read as the body."""
    body = unwrapped(payload)
    items = items_of(body.get("output"))
    waiting = waiting_items(items)
    table, value = _status(body)
    usage = read_usage(body, items)
    cap = read.count(body.get("max_output_tokens")) if origin.requested_cap is None else origin.requested_cap
    at_cap = _is_at_cap(usage, cap)
    proper = _is_proper(table, value, ended) and (origin.trusted or not at_cap)
    calls = _tool_calls(waiting, proper=proper, damaged=damaged)
    text = "".join(map(text_of, items))
    refusals = [refusal for item in items for refusal in refusals_of(item)]
    facts = Facts(
        tool_calls=len(waiting),
        complete_calls=all(read.is_json(call.arguments) for call in calls),
        answered=bool(text or waiting),
        refused=bool(refusals),
        ended=ended,
        damaged=damaged,
        misfit=read.misfit(body, _BODY, "response"),
        output_tokens=cap if at_cap else None,
        requested_cap=cap,
        error=find_error(payload) or find_error(body),
        metadata=_metadata(body, table, waiting),
    )
    native = native_items(items, stored=body.get("store") is True)
    return ModelResponse(
        text=read.whole_text(text),
        signal=_signal(body, items, facts, origin),
        tool_calls=calls,
        usage=usage,
        reasoning=read.whole_text("\n\n".join(paragraph for item in items for paragraph in thoughts_of(item))),
        refusal="\n".join(refusals) if refusals else None,
        model=read.some_text(body.get("model")),
        response_id=read.some_text(body.get("id")),
        cost_usd=_cost(body.get("usage")),
        native=NativeContent(wire=origin.wire, content=native) if native else None,
        raw=payload,
    )


def unwrapped(payload: JSON) -> dict[str, Any]:
    """Return the body in a payload. In `{"type": "response.completed", "response": {…}}`, the event may replace a missing status."""
    body = read.as_dict(payload)
    kind, inner = body.get("type"), body.get("response")
    if isinstance(inner, dict) and isinstance(kind, str) and kind.startswith("response."):
        return {**inner, "type": kind}
    return body


# Why it ended --------------------------------------------------------------------------------------------------------------


def _status(body: Mapping[str, Any]) -> tuple[Table, JSON]:
    """Return the provider's value and its table."""
    status, kind = body.get("status"), body.get("type")
    reason = read.as_dict(body.get("incomplete_details")).get("reason")
    if reason is not None and status in (None, "incomplete"):
        return INCOMPLETE_REASONS, reason
    if isinstance(kind, str) and kind in LAST_EVENTS.reasons and (status is None or status in _OPEN):
        return LAST_EVENTS, kind
    return STATUSES, status


def _is_proper(table: Table, value: JSON, ended: Ended) -> bool:
    """True if the response says that it is complete, or is a whole body without a status."""
    return value in ("completed", "response.completed") or (value is None and table is STATUSES and ended == "whole")


def _is_at_cap(usage: Usage, cap: int | None) -> bool:
    """True if the output fills its cap. If it is larger, the server does not count reasoning against the cap (as at xAI)."""
    output = usage.output_tokens
    if cap is None or output is None or output <= cap:
        return cap is not None and output == cap
    return output - (usage.reasoning_tokens or 0) >= cap


def _metadata(body: Mapping[str, Any], table: Table, waiting: list[Item]) -> dict[str, JSON]:
    found: dict[str, Any] = {}
    if table is INCOMPLETE_REASONS and (status := read.some_text(body.get("status"))):
        found["status"] = status
    if kinds := sorted({kind for item in waiting if (kind := read.as_text(item.get("type"))) != "function_call"}):
        found["waiting_for"] = kinds
    for report in map(read.as_dict, read.as_list(body.get("content_filters"))):  # Azure
        name = "prompt_filter" if report.get("source_type") == "prompt" else "content_filter"
        if verdicts := fired([report.get("content_filter_results")]):
            found[name] = {**found.get(name, {}), **verdicts}
    return found


def _signal(body: Mapping[str, Any], items: list[Item], facts: Facts, origin: Origin) -> TerminationSignal:
    table, value = _status(body)
    at_cap = facts.output_tokens is not None
    facts = replace(facts, message=_message(value, facts))
    if value in ("failed", "response.failed") and facts.error is not None:  # the error explains the status
        where, code = error_code(facts.error)
        message = f"The provider reports an error: {error_text(facts.error) or code}"
        facts = replace(facts, error=None, message=message, metadata={**facts.metadata, where: code})
    signal = judge(table, value, facts, provider=origin.provider, model=origin.model)
    if facts.error is not None:
        return signal
    message_status = next((item.get("status") for item in reversed(items) if item.get("type") == "message"), None)
    if value is None:
        return signal if facts.ended != "whole" else _inferred(signal, facts, message_status, at_cap=at_cap)
    if at_cap and not origin.trusted and signal.finish_reason in _ORDINARY_ENDS:
        message = f"The provider says that the response is completed, but it fills its cap of {facts.requested_cap} tokens."
        return replace(signal, finish_reason=FinishReason.MAX_TOKENS, confidence=Confidence.MEDIUM, message=message)
    return _doubted(signal, body, facts, message_status, at_cap=at_cap)


def _message(value: JSON, facts: Facts) -> str:
    if isinstance(value, str) and value in _OPEN:
        return f"The response has not ended: its status is {value!r}."
    kinds = facts.metadata.get("waiting_for")
    return (
        f"The response waits for an answer to {', '.join(kinds)}." if kinds and not facts.refused and value == "completed" else ""
    )


def _inferred(signal: TerminationSignal, facts: Facts, message_status: JSON, *, at_cap: bool) -> TerminationSignal:
    """Infer the signal of a whole body without a status from its items (OpenRouter has sent such bodies)."""

    def inferred(reason: FinishReason, message: str) -> TerminationSignal:
        return replace(signal, finish_reason=reason, confidence=Confidence.MEDIUM, message=message)

    if facts.refused:
        return inferred(FinishReason.CONTENT_FILTERED, "The response has no status, but it has a refusal.")
    if facts.tool_calls and facts.complete_calls:
        return inferred(FinishReason.TOOL_CALLS, "The response has no status, but it has complete tool calls.")
    if message_status == "completed" and not facts.tool_calls and not facts.misfit:
        return inferred(FinishReason.END_TURN, "The response has no status, and its message is completed.")
    if message_status == "incomplete" and at_cap:
        return inferred(FinishReason.MAX_TOKENS, "The response has no status; its message is incomplete, and fills the cap.")
    return signal


def _doubted(
    signal: TerminationSignal, body: Mapping[str, Any], facts: Facts, message_status: JSON, *, at_cap: bool
) -> TerminationSignal:
    """Weigh the status against its details and the last message's status, which may contradict it."""
    if signal.finish_reason not in _ORDINARY_ENDS:
        return signal
    cut_message = message_status == "incomplete" and not facts.tool_calls
    if cut_message and at_cap:
        message = "The provider says that the response is completed, but its message is incomplete, and fills the cap."
        return replace(signal, finish_reason=FinishReason.MAX_TOKENS, confidence=Confidence.MEDIUM, message=message)
    if cut_message:
        message = "The provider says that the response is completed, but that its message is incomplete."
    elif body.get("status") in _OPEN:
        message = f"The stream says that the response is completed, but that its status is {body['status']!r}."
    elif (reason := read.as_dict(body.get("incomplete_details")).get("reason")) is not None:
        message = f"The provider says that the response is completed, but also that it is incomplete: {raw_value(reason)!r}."
    else:
        return signal
    return replace(signal, confidence=Confidence.LOW, message=message)


# Content -------------------------------------------------------------------------------------------------------------------


def _tool_calls(waiting: list[Item], *, proper: bool, damaged: bool) -> tuple[ToolCall, ...]:
    """Return the calls of the request's functions.

    In a cut response, a call is closed if its arguments are complete and its item does not contradict that. In any other response, an
    item may be `in_progress`, since it waits for its result. If a piece of the stream was lost, all calls are open.
    """
    calls: list[ToolCall] = []
    for item in waiting:
        if item.get("type") != "function_call":
            continue
        status, arguments = item.get("status"), arguments_of(item)
        complete = isinstance(arguments, dict) or (isinstance(arguments, str) and read.is_json_object(arguments))
        closed = complete or status != "incomplete" if proper else complete and status not in ("incomplete", "in_progress")
        closed = closed and not damaged
        number = len(calls) + 1
        calls.append(read.tool_call(call_id_of(item, number), number, item.get("name"), arguments, closed=closed))
    return tuple(calls)


def read_usage(body: Mapping[str, Any], items: list[Item]) -> Usage:
    """Return the usage in the form of `Usage`. `output_tokens` includes reasoning, unless the total shows that it does not.

    A tool that the vendor runs leaves an item in the output. Each search is charged, opening a page is not:
    https://developers.openai.com/api/docs/guides/tools-web-search, read 2026-11-23."""
    usage = read.as_dict(body.get("usage"))
    taken, given = read.count(usage.get("input_tokens")), read.count(usage.get("output_tokens"))
    if taken is None and given is None:
        return Usage()
    details = read.as_dict(usage.get("input_tokens_details"))
    reasoning = read.count(read.as_dict(usage.get("output_tokens_details")).get("reasoning_tokens"))
    if reasoning and read.count(usage.get("total_tokens")) == (taken or 0) + (given or 0) + reasoning and taken is not None:
        given = None if given is None else given + reasoning
    return Usage(
        input_tokens=taken,
        output_tokens=given,
        cache_read_tokens=read.count(details.get("cached_tokens")),
        cache_write_tokens=read.count(details.get("cache_write_tokens")),
        reasoning_tokens=reasoning,
        source=UsageSource.REPORTED,
        input_audio_tokens=read.count(details.get("audio_tokens")),
        input_image_tokens=read.count(details.get("image_tokens")),
        web_searches=web_searches(body, items),
        file_searches=sum(item.get("type") == "file_search_call" for item in items),
        service_tier=read.as_text(body.get("service_tier")).lower() or None,
        also_charged=tuple(dict.fromkeys(charged_beside_tokens(body, items))),
    )


def _cost(reported: JSON) -> Decimal | None:
    usage = read.as_dict(reported)
    in_ticks = cost_in_ticks(usage)
    return reported_cost(usage) if in_ticks is None else in_ticks


# Items ---------------------------------------------------------------------------------------------------------------------

_WAITING = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
        "tool_search_call",
    }
)
"""Items that wait for the caller. The vendor runs some of these tools itself; their results are then in the same output."""

_LED_BY_REASONING = ("message", "function_call")
_TEXT_TYPES = ("output_text", "text", None)


def items_of(output: JSON) -> list[Item]:
    """Return the items that are objects; a message without a type gets its type."""
    found = [item for item in read.as_list(output) if isinstance(item, dict)]
    return [{"type": "message", **item} if "type" not in item and "role" in item else item for item in found]


def waiting_items(items: list[Item]) -> list[Item]:
    """Return the items that wait for the caller: calls of the request's functions without a result, and other such items unless a
    message follows them (xAI lists calls of its own tools as `custom_tool_call`)."""
    answered = {read.as_text(item.get("call_id")) for item in items if read.as_text(item.get("type")).endswith("_output")} - {""}
    last_message = max((place for place, item in enumerate(items) if item.get("type") == "message"), default=-1)
    return [
        item
        for place, item in enumerate(items)
        if is_waiting_kind(item.get("type"))
        and read.as_text(item.get("call_id")) not in answered
        and item.get("execution") != "server"
        and (item.get("type") == "function_call" or place > last_message)
    ]


def is_waiting_kind(kind: JSON) -> bool:
    """True if items of this type may wait for the caller."""
    return isinstance(kind, str) and kind in _WAITING


def text_of(item: Item) -> str:
    """Return the text of a message."""
    content = item.get("content")
    if item.get("type") != "message":
        return ""
    return read.as_text(content) if isinstance(content, str) else "".join(_texts(content, _TEXT_TYPES))


def refusals_of(item: Item) -> list[str]:
    """Return the refusals in a message."""
    if item.get("type") != "message":
        return []
    parts = [part for part in read.as_list(item.get("content")) if isinstance(part, dict) and part.get("type") == "refusal"]
    return [read.as_text(part.get("refusal")) for part in parts]


def thoughts_of(item: Item) -> list[str]:
    """Return the paragraphs of a reasoning item: its summary and its text, or only one if both are the same."""
    if item.get("type") != "reasoning":
        return []
    content = item.get("content")
    texts = [content] if isinstance(content, str) else _texts(content, ("reasoning_text", "text"))
    summary = _texts(item.get("summary"), ("summary_text", None))
    return [paragraph for paragraph in (texts if summary == texts else [*summary, *texts]) if paragraph]


def _texts(parts: JSON, types: Iterable[str | None]) -> list[str]:
    return [
        read.as_text(part.get("text")) for part in read.as_list(parts) if isinstance(part, dict) and part.get("type") in types
    ]


def arguments_of(item: Item) -> JSON:
    """Return the arguments of a call as received."""
    return item.get("input") if item.get("type") == "custom_tool_call" else item.get("arguments")


def call_id_of(item: Item, number: int) -> str:
    """Return the id for the result of a call; it is made from `number` if the server sends none."""
    return read.as_text(item.get("call_id")) or read.as_text(item.get("id")) or f"call_{number}"


def weight(items: Iterable[Item]) -> int:
    """Return the number of characters of text, reasoning and arguments: the longer of two forms of one output is used."""
    total = 0
    for item in items:
        arguments = arguments_of(item)
        total += len(text_of(item)) + sum(map(len, refusals_of(item))) + sum(map(len, thoughts_of(item)))
        total += len(arguments) if isinstance(arguments, str) else 2 * (arguments is not None)
    return total


def native_items(items: list[Item], *, stored: bool) -> list[Item]:
    """Return the items to send back to a server that stores nothing, unless `stored`.

    Parts that some server refuses are left out: null fields, arguments that are not a JSON object, reasoning without content, reasoning
    at the end, messages without content. If reasoning is left out, the items that depend on it lose their ids, which would require it.
    """
    kept: list[Item] = []
    calls, left_out = 0, False
    for item in items:
        kind = item.get("type")
        if kind == "function_call":
            calls += 1
            kept.append(_call_to_send(item, calls))
        elif kind == "reasoning" and not stored and not item.get("encrypted_content") and not item.get("content"):
            left_out = True
        elif kind == "message" and not item.get("content"):
            continue
        else:
            kept.append(
                {key: value for key, value in item.items() if value is not None} if kind in ("message", "reasoning") else item
            )
    while kept and kept[-1].get("type") == "reasoning":
        kept.pop()
    if left_out:
        kept = [
            {key: value for key, value in item.items() if key != "id"} if item.get("type") in _LED_BY_REASONING else item
            for item in kept
        ]
    return kept


def _call_to_send(item: Item, number: int) -> Item:
    text = read.arguments_text(item.get("arguments"), closed=True)
    fit = {key: value for key, value in item.items() if value is not None}
    return {
        **fit,
        "call_id": call_id_of(item, number),
        "name": read.as_text(item.get("name")),
        "arguments": read.arguments_object(text).decode(),
    }


# Charges besides tokens --------------------------------------------------------------------------------------------------

_TOKENS_ONLY = frozenset(
    {"function_call", "custom_tool_call", "mcp_call", "computer_call", "tool_search_call", "apply_patch_call", "local_shell_call"}
)
"""Calls that cost only their tokens."""

_COUNTED = frozenset({"web_search_call", "file_search_call"})
_CHARGES = {"code_interpreter_call": "a code container", "shell_call": "a code container", "image_generation_call": "images"}


def web_searches(body: Mapping[str, Any], items: list[Item]) -> int:
    """Return the number of charged web searches: the vendor's count, else the searches in the output."""
    counted = read.count(read.as_dict(read.as_dict(body.get("tool_usage")).get("web_search")).get("num_requests"))
    return len(_searches(items)) if counted is None else counted


def charged_beside_tokens(body: Mapping[str, Any], items: list[Item]) -> Iterator[str]:
    """Yield the tools that the vendor ran and charges for, except for the searches that are counted."""
    usage, tool_usage = read.as_dict(body.get("usage")), read.as_dict(body.get("tool_usage"))
    answered = [item.get("call_id") for item in items if item.get("type") == "shell_call_output"]
    for item in items:
        kind = read.as_text(item.get("type"))
        if not kind.endswith("_call") or kind in _TOKENS_ONLY or kind in _COUNTED:
            continue
        if kind != "shell_call" or item.get("call_id") in answered:  # the vendor ran it
            yield _CHARGES.get(kind, kind.removesuffix("_call").replace("_", " "))
    if read.count(read.as_dict(tool_usage.get("image_gen")).get("total_tokens")):
        yield "images"
    searches = _searches(items)
    kinds = {read.as_text(read.as_dict(tool).get("type")) for tool in read.as_list(body.get("tools"))}
    if searches and any(kind.startswith("web_search_preview") for kind in kinds):
        yield "web searches by the preview tool"
    elif len(searches) > web_searches(body, items):
        yield "web searches at a discount"
    elif "tool_usage" not in body and any(len(read.as_list(_action(item).get("queries"))) > 1 for item in searches):
        yield "web searches of several queries"
    written = read.as_dict(read.as_dict(usage.get("input_tokens_details")).get("cache_write_tokens_details"))
    if read.count(written.get("ttl_12h_tokens")):
        yield "cache writes for 12 hours"
    if read.count(usage.get("num_sources_used")):
        yield "sources of a live search"
    ran = read.as_dict(usage.get("server_side_tool_usage_details"))
    yield from (
        name.removesuffix("_calls").replace("_", " ") for name, times in ran.items() if read.count(times) and "mcp" not in name
    )


def _searches(items: list[Item]) -> list[Item]:
    """Return the web searches in an output; an item without an action counts as one."""
    return [item for item in items if item.get("type") == "web_search_call" and _action(item).get("type") in (None, "search")]


def _action(item: Item) -> dict[str, Any]:
    return read.as_dict(item.get("action"))


# Images and documents in requests ------------------------------------------------------------------------------------------

TAKES = Takes(
    "the Responses wire",
    {"image": IMAGES, "document": PDF},
    urls=("image", "document"),
    results=("image", "document"),
    most_bytes={"document": 50 * 10**6},
)
"""The types of the vendor's client (openai 3.54); size of files:
https://developers.openai.com/api/docs/guides/file-inputs (2026-11-24). The size of images is left to the provider."""


def part_to_send(piece: str | Part, *, in_result: bool = False) -> dict[str, JSON]:
    """Return a text or a part as the content of a message or a result. Raises ConfigurationError if this wire does not take it."""
    if isinstance(piece, str):
        return {"type": "input_text", "text": piece}
    TAKES.check(piece, in_result=in_result)
    if piece.kind == "image":
        return {"type": "input_image", "image_url": data_uri(piece), "detail": "auto"}
    if piece.url:
        return {"type": "input_file", "file_url": piece.url}
    return {"type": "input_file", "filename": file_name(piece), "file_data": data_uri(piece)}
