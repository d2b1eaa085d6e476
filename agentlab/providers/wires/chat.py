"""The chat completions wire, which OpenAI and many other servers speak: requests, responses, usage and cost.

A stream is assembled into the body that the same answer has without streaming, and that body is read, so both give the same response.

Vendor page: https://platform.openai.com/docs/api-reference/chat/object; the finish reasons were read on 2026-11-22 from the types of
the vendor's client (openai 3.54), which are generated from the same specification. Those of OpenRouter, including "error" and
native_finish_reason: https://openrouter.ai/docs/client-sdks/python/components/finishreason and
https://openrouter.ai/announcements/standardized-finish-reasons, read 2026-11-22, and recorded responses.

Values that no page lists ("eos", "STOP", "tool_call", "end_turn", "abort", …) are recorded as UNKNOWN. Their meaning is not guessed,
but complete calls in such a response are executed. An empty string counts as missing.

Usage and cost, which servers put in different places; vendor pages, read 2026-11-22: https://platform.openai.com/docs/api-reference/chat/object,
https://openrouter.ai/docs/use-cases/usage-accounting, https://docs.x.ai/developers/cost-tracking,
https://api-docs.deepseek.com/guides/kv_cache, https://console.groq.com/docs/api-reference and recorded responses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

from agentlab._internal.values import dataclass
from agentlab.model.conversation import encode_messages
from agentlab.model.finish_reasons import FinishReason, TerminationSignal
from agentlab.model.messages import JSON, TOOL_CHOICES, Message, ModelRequest, NativeContent, ToolCall
from agentlab.model.parts import Part
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Usage, UsageSource
from agentlab.providers.base import merge_options
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, Facts, Table, find_error, is_cut, judge, weigh_native
from agentlab.providers.wires.media import IMAGES, PDF, Takes, data_uri, file_name

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

_PROPER_ENDS = (FinishReason.END_TURN, FinishReason.TOOL_CALLS)

REASONING_KEYS = ("reasoning_content", "reasoning")
"""Fields of visible reasoning. The first one with text is read, since some servers send the reasoning under both names."""

_KEPT_REASONING_KEYS = ("reasoning_content", "reasoning_details")
"""Fields that are sent back with a turn that calls tools: servers with interleaved reasoning need them."""

_COST_PARTS = ("usd", "total_cost")
"""Names of the total, in US dollars, if the cost is an object."""


def reported_cost(usage: dict[str, Any]) -> Decimal | None:
    """Return the `cost` that a server reports in US dollars: a number, or an object with the total.

    With your own key at the vendor (`is_byok`), OpenRouter's `cost` is only its fee, and the vendor charges the upstream inference cost
    in `cost_details`: the sum is returned, or None if a part is unknown. Without such a key, `cost` includes everything.
    """
    cost = usage.get("cost")
    if isinstance(cost, dict):
        cost = next((cost[part] for part in _COST_PARTS if cost.get(part) is not None), None)
    paid = read.money(cost)
    if paid is None or usage.get("is_byok") is not True:
        return paid
    upstream = read.money(read.as_dict(usage.get("cost_details")).get("upstream_inference_cost"))
    return None if upstream is None else paid + upstream


def native_details(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, JSON]:
    """Return the native_finish_reason of a choice, if it has one."""
    native = read.some_text(choice.get("native_finish_reason"))
    return {} if native is None else {"native_finish_reason": native}


FILTER_RESULTS = ("content_filter_results", "prompt_filter_results")
"""Azure's fields for the results of its content filters, which other servers pass on."""

_VERDICTS = ("filtered", "detected")


def filters_that_fired(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, JSON]:
    """Return the content filters that took effect on the answer, and on the prompt (which may have been refused), by category."""
    refused = read.as_dict(read.as_dict(find_error(body)).get("innererror"))
    prompts = [read.as_dict(entry).get("content_filter_results") for entry in read.as_list(body.get("prompt_filter_results"))]
    found = {
        "content_filter": fired([choice.get("content_filter_results")]),
        "prompt_filter": fired([*prompts, refused.get("content_filter_result")]),
    }
    return {name: verdicts for name, verdicts in found.items() if verdicts}


def fired(results: list[JSON]) -> dict[str, JSON]:
    """Return the severity of each category that filtered or detected something (True if the category has no severities)."""
    return {
        category: read.some_text(verdict.get("severity")) or True
        for result in results
        for category, verdict in read.as_dict(result).items()
        if isinstance(verdict, dict) and any(verdict.get(name) is True for name in _VERDICTS)
    }


def plain_effort(effort: str) -> dict[str, JSON]:
    """Return the field of OpenAI's wire for a reasoning effort."""
    return {"reasoning_effort": effort}


@dataclass(frozen=True, slots=True)
class Dialect:
    """A vendor's differences on this wire.

    `tables` are its finish reasons, those of the wire (`FINISH_REASONS`) first; `not_yet` are values of chunks before the last.
    `native` is the table of `native_finish_reason`, for gateways. `cost` reads US dollars from a usage; `details` reads more metadata
    of the signal from a body and its choice, and `kept` are the keys of chunks that the metadata needs. `reasoning_on_top`: the
    completion's tokens do not include reasoning tokens.

    In requests, `seed_field` is the name of the seed, `effort` returns the fields for a reasoning effort, and `lacks` are parameters
    that the server does not take, as `seed` or, for one value, `tool_choice=required`. `unforced` is a regular expression for models
    that, while they reason, take no `tool_choice` that forces a tool. `system_anywhere`: every model takes a system message after
    others; where one may refuse it, such an instruction is sent as the user's. `call_id` converts an id of a tool call that another
    server chose.

    Example:
        >>> from agentlab.providers import FINISH_REASONS, Dialect, Table
        >>> words = Table("choices[].finish_reason", {"done": lab.FinishReason.END_TURN, "cut": lab.FinishReason.MAX_TOKENS})
        >>> dialect = Dialect(tables=(FINISH_REASONS, words))
        >>> dialect.meaning("done"), dialect.meaning("length")
        (<FinishReason.END_TURN: 'end_turn'>, <FinishReason.MAX_TOKENS: 'max_tokens'>)
    """

    tables: tuple[Table, ...] = (FINISH_REASONS,)
    not_yet: frozenset[str] = frozenset({""})
    native: Table | None = None
    cost: Callable[[dict[str, Any]], Decimal | None] = reported_cost
    details: Callable[[dict[str, Any], dict[str, Any]], dict[str, JSON]] = native_details
    kept: tuple[str, ...] = FILTER_RESULTS
    reasoning_on_top: bool = False
    seed_field: str = "seed"
    effort: Callable[[str], dict[str, JSON]] = plain_effort
    lacks: tuple[str, ...] = ()
    unforced: str = ""
    system_anywhere: bool = False
    call_id: Callable[[str], str] = str

    def says_nothing(self, finish: JSON) -> bool:
        """True if the finish reason counts as missing."""
        return finish is None or (isinstance(finish, str) and finish in self.not_yet)

    def table_of(self, finish: JSON) -> Table:
        """Return the table that lists a value, else that of the wire."""
        known = (table for table in self.tables if isinstance(finish, str) and table.meaning(finish) is not None)
        return next(known, self.tables[0])

    def meaning(self, finish: JSON) -> FinishReason | None:
        """Return the documented meaning of a value; None for an undocumented or missing one.

        Example:
            >>> from agentlab.providers import Dialect
            >>> Dialect().meaning("length"), Dialect().meaning("cut")
            (<FinishReason.MAX_TOKENS: 'max_tokens'>, None)
        """
        return self.table_of(finish).meaning(finish) if isinstance(finish, str) else None


PLAIN = Dialect()


@dataclass(frozen=True, slots=True)
class Origin:
    """The request of a response: provider, requested model, message format, requested output cap in tokens, and the vendor's
    dialect."""

    provider: str
    model: str
    wire: str
    requested_cap: int | None = None
    dialect: Dialect = PLAIN


# Requests ------------------------------------------------------------------------------------------------------------------


def request_body(request: ModelRequest, *, model: str, wire: str, cap_field: str, dialect: Dialect = PLAIN) -> bytes:
    """Return the JSON body, its fields in a fixed order. Each message is encoded once per conversation.

    `options` are additional top-level fields; its `tools` are added to the request's own, its `stream_options` are merged.
    """
    bridged = _BRIDGED.search(model) is not None
    encode = partial(encode_message, wire=wire, dialect=dialect, bridged=bridged)
    messages = encode_messages(request.messages, wire, encode)
    if bridged:
        messages = _with_bridges(request.messages, messages)
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
    fields.update({name: read.dumps(value) for name, value in _parameters(request, dialect).items()})
    if request.output_schema is not None:
        schema = {"name": "final_answer", "schema": request.output_schema, "strict": True}
        fields["response_format"] = read.dumps({"type": "json_schema", "json_schema": schema})
    merge_options(fields, request.options, reserved=("model", "messages", "stream"))
    return read.json_object(fields.items())


def _parameters(request: ModelRequest, dialect: Dialect) -> dict[str, JSON]:
    """Return the fields of the request's parameters. Types of the vendor's client: openai 3.54, `CompletionCreateParams`."""
    asked = request.parameters
    found: dict[str, JSON] = {"temperature": asked.temperature, dialect.seed_field: asked.seed}
    if asked.reasoning_effort is not None:
        found |= dialect.effort(asked.reasoning_effort)
    if request.tools:
        choice = asked.tool_choice
        named = choice is not None and choice not in TOOL_CHOICES
        found["tool_choice"] = {"type": "function", "function": {"name": choice}} if named else choice
        found["parallel_tool_calls"] = asked.parallel_tool_calls
    return {name: value for name, value in found.items() if value is not None}


def encode_message(message: Message, *, wire: str, dialect: Dialect, bridged: bool) -> bytes:
    """Return a message as JSON, with commas between the results of several calls; empty bytes for an empty assistant turn."""
    if message.role == "tool":
        messages: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": dialect.call_id(result.call_id), "content": result.content}
            for result in message.tool_results
        ]
        if parts := [piece for result in message.tool_results for piece in result.pieces if isinstance(piece, Part)]:
            messages += [_BRIDGE] if bridged else []
            messages.append({"role": "user", "content": [_part(piece) for part in parts for piece in (part.text, part)]})
        return b",".join(map(read.dumps, messages))
    if message.role in ("user", "system"):
        content = [_part(piece) for piece in message.pieces] if message.parts else message.text
        return read.dumps({"role": message.role if dialect.system_anywhere else "user", "content": content})
    if message.native is not None and message.native.wire == wire:
        return read.dumps(message.native.content)
    return (
        b"" if not message.text and not message.tool_calls else read.dumps(_assistant(message.text, message.tool_calls, dialect))
    )


_BRIDGED = re.compile("(?i)(?:mi|mini|magi|dev|code)stral|(?:mix|pix|vox)tral")
_BRIDGE: dict[str, Any] = {"role": "assistant", "content": "I have the results."}
"""Mistral's models take no message of the user right after results of tools: "Unexpected role 'user' after role 'tool'" (code 3230),
https://github.com/BerriAI/litellm/issues/17761, read 2026-11-28. Their templates on other servers refuse it too."""


def _with_bridges(messages: Iterable[Message], encoded: list[bytes]) -> list[bytes]:
    """Return the messages with a turn of the assistant between results and a message of the user."""
    found: list[bytes] = []
    previous = ""
    for role, data in ((message.role, data) for message, data in zip(messages, encoded, strict=True) if data):
        found += [read.dumps(_BRIDGE), data] if previous == "tool" and role in ("user", "system") else [data]
        previous = role
    return found


TAKES = Takes(
    "the chat completions wire",
    {"image": IMAGES, "document": PDF, "audio": ("audio/wav", "audio/mp3")},
    urls=("image",),
    results=("image", "document", "audio"),
    most_bytes={"document": 50 * 10**6},
)
"""The parts of a user's message, from the types of the vendor's client (openai 3.54). Results of tools are text there: their parts are
sent in a user's message after them. Size of files: https://developers.openai.com/api/docs/guides/file-inputs (2026-11-24). The size of
images is left to the provider."""


def _part(piece: str | Part) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    TAKES.check(piece)
    if piece.kind == "image":
        return {"type": "image_url", "image_url": {"url": data_uri(piece)}}
    if piece.kind == "document":
        return {"type": "file", "file": {"filename": file_name(piece), "file_data": data_uri(piece)}}
    return {"type": "input_audio", "input_audio": {"data": piece.base64, "format": piece.format}}


def _assistant(text: str, calls: tuple[ToolCall, ...], dialect: Dialect = PLAIN) -> dict[str, Any]:
    body: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        body["tool_calls"] = [
            {
                "id": dialect.call_id(call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": read.arguments_object(call.arguments).decode()},
            }
            for call in calls
        ]
    return body


# Responses -----------------------------------------------------------------------------------------------------------------

_PART: read.Fields = {"type": read.TEXT, "text": read.TEXT}
_PARTS: tuple[read.Shape, ...] = (*read.TEXT, [(str, _PART)])
_FUNCTION: read.Fields = {"name": read.TEXT, "arguments": (*read.TEXT, dict), "input": read.TEXT}
_CALL: read.Fields = {"id": read.TEXT, "type": read.TEXT, "function": (read.NULL, _FUNCTION), "custom": (read.NULL, _FUNCTION)}
SAID: read.Fields = {
    "content": (*read.TEXT, [(str, {**_PART, "thinking": _PARTS, "summary": _PARTS})]),
    "refusal": read.TEXT,
    "tool_calls": (read.NULL, [_CALL]),
    "function_call": (read.NULL, _FUNCTION),
}
"""The form of a message's text and calls."""

_MESSAGE: read.Fields = {**SAID, **dict.fromkeys(REASONING_KEYS, read.TEXT)}
_CHOICE: read.Fields = {"message": _MESSAGE, "delta": _MESSAGE}


def read_body(payload: JSON, origin: Origin, *, ended: Ended = "whole", damaged: bool = False) -> ModelResponse:
    """Read a whole body, or one assembled from a stream."""
    body = read.as_dict(payload)
    choice = first_choice(body)
    message = read.as_dict(choice.get("message")) or read.as_dict(choice.get("delta"))
    text, thoughts = content_text(message.get("content"))
    refusal = read.some_text(message.get("refusal"))
    finish, dialect = choice.get("finish_reason"), origin.dialect
    metadata = {**filters_that_fired(body, choice), **dialect.details(body, choice)}
    broken = ended == "unmarked" and dialect.says_nothing(finish)
    calls = _tool_calls(message, cut=_cut(finish, metadata, dialect), broken=broken, damaged=damaged)
    reported = usage_object(body, choice)
    usage = read_usage(reported, reasoning_on_top=dialect.reasoning_on_top, tier=body.get("service_tier"), message=message)
    if broken:
        usage = read.so_far(usage)
    signal = read_signal(
        finish,
        Facts(
            tool_calls=len(calls),
            complete_calls=_complete_calls(message, calls),
            answered=bool(text or calls),
            refused=refusal is not None,
            ended=ended,
            damaged=damaged,
            misfit=read.misfit(choice, _CHOICE, "choices[]"),
            output_tokens=usage.output_tokens,
            requested_cap=origin.requested_cap,
            error=_error_in(payload, choice),
            metadata=metadata,
        ),
        origin,
    )
    reasoning = next((shown for key in REASONING_KEYS if (shown := read.as_text(message.get(key)))), "") or thoughts
    return ModelResponse(
        text=text,
        signal=signal,
        tool_calls=calls,
        usage=usage,
        reasoning=reasoning,
        refusal=refusal,
        model=read.some_text(body.get("model")),
        response_id=read.some_text(body.get("id")),
        cost_usd=dialect.cost(reported),
        native=_native(message, text, calls, refusal, origin.wire),
        raw=payload,
    )


def read_signal(finish: JSON, facts: Facts, origin: Origin) -> TerminationSignal:
    """Return why the response ended, from the finish reason and, if the vendor passes it on, the native one."""
    dialect = origin.dialect
    value = None if dialect.says_nothing(finish) else finish
    signal = judge(dialect.table_of(value), value, facts, provider=origin.provider, model=origin.model)
    if value is None and finish is not None and signal.raw_value is None:
        signal = replace(signal, raw_value=finish)
    return signal if dialect.native is None else weigh_native(signal, dialect.meaning(value), dialect.native, facts)


def _cut(finish: JSON, metadata: dict[str, JSON], dialect: Dialect) -> bool:
    """True if the response was cut, so that its last tool call may be incomplete."""
    return dialect.meaning(finish) not in _PROPER_ENDS or (dialect.native is not None and is_cut(dialect.native, metadata))


def first_choice(body: dict[str, Any]) -> dict[str, Any]:
    """Return the choice with index 0, else the first. Further ones (`n` above 1) are in `raw` only."""
    choices = [choice for choice in read.as_list(body.get("choices")) if isinstance(choice, dict)]
    return next((choice for choice in choices if choice.get("index") == 0), choices[0] if choices else {})


def _error_in(payload: JSON, choice: dict[str, Any]) -> JSON:
    error = find_error(payload)
    return error if error is not None else choice.get("error") or None


def content_text(content: JSON) -> tuple[str, str]:
    """Return the text and the reasoning of a message's content, which some servers send as a list of parts."""
    if isinstance(content, str):
        return read.whole_text(content), ""
    thoughts: list[str] = []
    for part in read.as_list(content):
        if isinstance(part, dict) and part.get("type") == "thinking":  # Mistral
            thoughts.append(_parts_text(part.get("thinking")))
        elif isinstance(part, dict) and part.get("type") == "reasoning":  # Databricks
            thoughts.append(_parts_text(part.get("summary")))
    return read.whole_text(_parts_text(content)), read.whole_text("".join(thoughts))


def _parts_text(parts: JSON) -> str:
    if isinstance(parts, str):
        return parts
    texts = (part.get("text") if isinstance(part, dict) else part for part in read.as_list(parts))
    return "".join(text for text in texts if isinstance(text, str))


def _tool_calls(message: dict[str, Any], *, cut: bool, broken: bool, damaged: bool) -> tuple[ToolCall, ...]:
    """Return the calls of a message. This wire does not mark the end of a call. In a cut response, a call is closed if its arguments
    are complete, even if another call follows, since some servers interleave the pieces of several calls; the last call of a broken
    stream is open. If a piece of the stream was lost, all calls are open: the rest may be valid JSON, but not what the model wrote."""
    entries = [entry for entry in read.as_list(message.get("tool_calls")) if isinstance(entry, dict)]
    legacy = message.get("function_call")
    if not entries and isinstance(legacy, dict):
        entries = [{"function": legacy}]
    calls: list[ToolCall] = []
    for number, entry in enumerate(entries, 1):
        function, arguments = called(entry)
        last = number == len(entries)
        closed = not damaged and (not cut or (_complete(arguments) and not (last and broken)))
        calls.append(read.tool_call(entry.get("id"), number, function.get("name"), arguments, closed=closed))
    return tuple(calls)


def is_custom(entry: dict[str, Any]) -> bool:
    """True for a call of one of OpenAI's custom tools, which take plain text."""
    return entry.get("type") == "custom" or isinstance(entry.get("custom"), dict)


def called(entry: dict[str, Any]) -> tuple[dict[str, Any], JSON]:
    """Return the function of a call, and its arguments."""
    custom = is_custom(entry)
    function = read.as_dict(entry.get("custom" if custom else "function"))
    return function, function.get("input" if custom else "arguments")


def _complete_calls(message: dict[str, Any], calls: tuple[ToolCall, ...]) -> bool:
    entries = [entry for entry in read.as_list(message.get("tool_calls")) if isinstance(entry, dict)] or [{}] * len(calls)
    return all(is_custom(entry) or read.is_json(call.arguments) for entry, call in zip(entries, calls, strict=True))


def _complete(arguments: JSON) -> bool:
    return isinstance(arguments, dict) or (isinstance(arguments, str) and read.is_json_object(arguments))


def _native(
    message: dict[str, Any], text: str, calls: tuple[ToolCall, ...], refusal: str | None, wire: str
) -> NativeContent | None:
    """Return the turn to send back, with documented fields only, since servers refuse others."""
    if not text and not calls:
        return None
    content = _assistant(text, calls)
    if refusal is not None:
        content["refusal"] = refusal
    if calls:
        sent = [entry for entry in read.as_list(message.get("tool_calls")) if isinstance(entry, dict)]
        for rebuilt, entry in zip(content["tool_calls"], sent, strict=False):
            if is_custom(entry):
                rebuilt.update(type="custom", custom=entry.get("custom"))
                del rebuilt["function"]
            # Vendors' additions to a call, such as Google's thought signature, must come back with it.
            rebuilt.update({key: value for key, value in entry.items() if key not in ("id", "type", "function", "index")})
        content.update({key: message[key] for key in _KEPT_REASONING_KEYS if message.get(key)})
    return NativeContent(wire=wire, content=content)


# Usage and cost ------------------------------------------------------------------------------------------------------------

_CACHE_READS = ("cached_tokens", "prompt_cache_hit_tokens", "num_cached_tokens", "cache_read_input_tokens")
"""Names of cache reads at the top level of the usage, if `prompt_tokens_details` has none. They are part of `prompt_tokens`."""

_TICK_USD = Decimal("1e-10")


def usage_object(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    """Return the usage from the top level, from a vendor's key, or from the choice; empty if there is none."""
    for place in (body, read.as_dict(body.get("x_groq")), choice):
        if isinstance(usage := place.get("usage"), dict):
            return usage
    return {}


def read_usage(
    usage: dict[str, Any], *, reasoning_on_top: bool = False, tier: JSON = None, message: dict[str, Any] | None = None
) -> Usage:
    """Return the usage in the form of `Usage`.

    `prompt_tokens` includes cache reads and writes, unless the total shows that it does not include the reads. `completion_tokens`
    includes reasoning, unless the total shows that it does not (as at xAI); without a total, `reasoning_on_top` decides. `tier` is the
    body's `service_tier`. Pages that the `message` cites, and tools that it lists as run by the server, were charged too, but this wire
    has no count of them that the price list knows.
    """
    prompt, completion = read.count(usage.get("prompt_tokens")), read.count(usage.get("completion_tokens"))
    if prompt is None and completion is None:
        return Usage()
    details, given = read.as_dict(usage.get("prompt_tokens_details")), read.as_dict(usage.get("completion_tokens_details"))
    cached = read.count(details.get("cached_tokens"))
    if cached is None:
        cached = _first_count(usage, _CACHE_READS)
    written = read.count(details.get("cache_write_tokens"))
    reasoning = read.count(given.get("reasoning_tokens"))
    if reasoning is None:
        reasoning = read.count(usage.get("reasoning_tokens"))
    total = read.count(usage.get("total_tokens"))
    if reasoning and completion is not None:
        if total is None or prompt is None:
            completion += reasoning if reasoning_on_top else 0
        elif total == prompt + completion + reasoning:
            completion += reasoning
    if cached and prompt is not None and total == prompt + cached + (completion or 0):
        prompt += cached
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cache_read_tokens=cached,
        cache_write_tokens=written if written is not None else read.count(usage.get("cache_creation_input_tokens")),
        reasoning_tokens=reasoning,
        source=UsageSource.REPORTED,
        cache_write_1h_tokens=read.count(read.as_dict(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")),
        input_audio_tokens=read.count(details.get("audio_tokens")),
        output_audio_tokens=read.count(given.get("audio_tokens")),
        input_image_tokens=read.count(details.get("image_tokens")),
        output_image_tokens=read.count(given.get("image_tokens")),
        service_tier=_tier(usage, tier),
        also_charged=tuple(dict.fromkeys(_also_charged(usage, message or {}))),
    )


def _tier(usage: dict[str, Any], tier: JSON) -> str | None:
    """Return the tier from the top level of the body, or from the usage, which has it if Anthropic or Google is behind this wire."""
    places = (tier, usage.get("service_tier"), usage.get("trafficType"))
    return next((text.lower() for place in places if (text := read.some_text(place))), None)


def _also_charged(usage: dict[str, Any], message: dict[str, Any]) -> Iterator[str]:
    cited = [read.as_dict(annotation).get("type") for annotation in read.as_list(message.get("annotations"))]
    if "url_citation" in cited or read.count(usage.get("num_search_queries")):
        yield "web searches"
    if read.count(usage.get("num_sources_used")):
        yield "sources of a live search"
    # xAI's SDK: https://docs.x.ai/developers/models, read 2026-11-23
    for tool in read.as_list(usage.get("server_side_tools_used")):
        name = read.as_text(tool).removeprefix("SERVER_SIDE_TOOL_").lower().replace("_", " ")
        if name != "mcp" and not name.startswith("view"):  # these cost only their tokens
            yield name
    if message.get("executed_tools"):  # Groq's compound systems
        yield "tools that the server ran"


def _first_count(usage: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((found for name in names if (found := read.count(usage.get(name))) is not None), None)


def cost_in_ticks(usage: dict[str, Any]) -> Decimal | None:
    """Return the cost in US dollars that xAI reports in ticks, of which 10^10 are one dollar."""
    ticks = usage.get("cost_in_usd_ticks")
    digits = isinstance(ticks, str) and ticks.isascii() and ticks.isdecimal()  # protobuf's JSON writes large integers as text
    amount = read.money(ticks) if digits else read.count(ticks)
    return None if amount is None else amount * _TICK_USD
