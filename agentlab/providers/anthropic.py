"""Anthropic, over the messages API.

Vendor pages: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons and
https://platform.claude.com/docs/en/build-with-claude/compaction, read 2026-11-22; the fields of messages and usage from the types of
the vendor's client (anthropic 2.12). What Bedrock adds on this wire:
https://docs.aws.amazon.com/bedrock/latest/userguide/guardrails-use.html, read 2026-11-22.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote

from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError
from agentlab.model.conversation import encode_messages
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON, Message, ModelRequest, NativeContent, OutputForm, ToolCall, ToolResult
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Usage, UsageSource
from agentlab.providers.base import (
    Capabilities,
    GoogleCloud,
    Server,
    StreamParser,
    check_date,
    clean_url,
    content_headers,
    find_key,
    merge_options,
    refuse_for_claude,
    refuse_lacking,
)
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, Facts, Table, find_error, judge
from agentlab.providers.wires.media import ANTHROPIC, ANTHROPIC_VERTEX, anthropic_block
from agentlab.providers.wires.read import RawCall, tool_calls
from agentlab.providers.wires.stream import GUARDRAIL, AnthropicStreamParser, answered_calls, end_details, is_call
from agentlab.transport.http import HttpRequest

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
REFUSED: Mapping[str, tuple[str, ...]] = {"2026-10-21": ("temperature", "top_k", "top_p")}
"""Fields that a version of the API refuses with status 400, even at their defaults:
https://platform.claude.com/docs/en/api/migration-2026-10-21, read 2026-11-23. It also refuses documents in an assistant's message and
citations in a user's message, which agentlab never sends."""
BEARER_VERSIONS = ("2026-10-21",)
"""Versions under which the vendor's client (anthropic 2.12) sends the key as `Authorization`:
https://platform.claude.com/docs/en/manage-claude/authentication, read 2026-11-23."""
KEY_VARIABLES = ("ANTHROPIC_API_KEY",)
WIRE = "anthropic.messages"

DEFAULT_MAX_TOKENS = 8192
"""The default output cap in tokens, since this wire requires a cap; every model since Claude 3.5 allows it."""

FINISH_REASONS = Table(
    field="stop_reason",
    reasons={
        "end_turn": FinishReason.END_TURN,
        "stop_sequence": FinishReason.STOP_SEQUENCE,
        "tool_use": FinishReason.TOOL_CALLS,
        "max_tokens": FinishReason.MAX_TOKENS,
        "model_context_window_exceeded": FinishReason.CONTEXT_WINDOW_EXCEEDED,
        "refusal": FinishReason.CONTENT_FILTERED,
        "pause_turn": FinishReason.PAUSED,
        "compaction": FinishReason.PAUSED,  # after a summary of the conversation, if the request asks for it
    },
)

PREFILLED = re.compile(r"claude-(?:[123]\b|(?:opus|sonnet|haiku)-4(?:-[015])?(?:[-@]\d{8})?$)")
"""Models that accept an assistant's message at the end (a prefill): https://platform.claude.com/docs/en/build-with-claude/prompt-engineering/prefill-claudes-response,
read 2026-11-22."""

STRUCTURED = re.compile(r"claude-(?![123]\b|instant|(?:opus|sonnet)-4(?:-0)?(?:[-@]\d{8})?$)")
"""Models with structured output, Claude Opus 4.1 and later ones: https://platform.claude.com/docs/en/build-with-claude/structured-outputs,
read 2026-11-23."""

_BETWEEN_TOOLS = re.compile(r"claude-sonnet-5-5")
"""Models that take this type instead of `disabled`: the profiles of pydantic-ai 2.68, read 2026-11-25."""

_CUT = ("max_tokens", "model_context_window_exceeded")
_REPLACED_BY_GUARDRAIL = (FinishReason.END_TURN, FinishReason.STOP_SEQUENCE, FinishReason.UNKNOWN)
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_NOT_CHARGED = ("web_search", "web_fetch", "tool_search_tool_bm25", "tool_search_tool_regex")
"""The vendor's tools that cost nothing beyond the reported usage."""


@dataclass(frozen=True, slots=True)
class Anthropic(Server):
    """Anthropic's server, or one that speaks its wire at `base_url` (up to and without `/v1/messages`).

    `api_version` is the date sent as `anthropic-version`: 2023-06-01, or 2026-10-21, which has no sampling parameters and expects the
    key as `Authorization`. `headers` are additional headers for live calls, such as `anthropic-beta`. Keys and headers are never shown.
    """

    name: ClassVar[str] = "anthropic"
    wire: ClassVar[str] = WIRE
    capabilities: ClassVar[Capabilities] = Capabilities(tables=(FINISH_REASONS,))

    base_url: str = BASE_URL
    api_version: str = VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", clean_url(self.base_url, self.name).removesuffix("/v1"))
        check_date(self.api_version, self.name)

    @property
    def prefills(self) -> bool:
        """True if the model continues a prefilled answer: models before Claude 4.6 do, later ones refuse it."""
        return PREFILLED.match(self.model) is not None

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return `strict`, or `tool` for a model without structured output."""
        return "strict" if STRUCTURED.match(self.model) else "tool"

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `/v1/messages`. `options` are additional top-level fields; its `tools` are added to the request's own.
        Raises ConfigurationError for a field that this version of the API refuses, and for too large a request."""
        refuse_lacking(request.parameters, ("seed", "reasoning_effort=minimal"), self.name)
        refuse_for_claude(request.parameters, self.model)
        asked = {**{f"options[{name!r}]": value for name, value in request.options.items()}, **request.parameters.given()}
        for name in REFUSED.get(self.api_version, ()):
            if (where := f"options[{name!r}]") in asked or (where := name) in asked:
                raise ConfigurationError(
                    f"{where}={asked[where]!r}: Anthropic's API version {self.api_version} refuses "
                    f"{', '.join(REFUSED[self.api_version])}. Leave it out, or write anthropic@{VERSION}:{self.model}."
                )
        fields = {
            "model": read.dumps(self.model),
            "max_tokens": read.dumps(_cap(request)),
            "messages": read.json_array(encode_messages(request.messages, WIRE, encode_message)),
        }
        if request.instructions:
            fields["system"] = read.dumps(request.instructions)
        if request.tools:
            fields["tools"] = read.json_array(
                b'{"name":%b,"description":%b,"input_schema":%b}'
                % (read.dumps(tool.name), read.dumps(tool.description), tool.parameters_json.encode())
                for tool in request.tools
            )
        if request.stream:
            fields["stream"] = b"true"
        fields.update({name: read.dumps(value) for name, value in _parameters(request, self.model).items()})
        merge_options(fields, request.options, reserved=("model", "messages", "stream"))
        return HttpRequest(
            method="POST",
            url=f"{self.base_url}/v1/messages",
            headers={**content_headers(stream=request.stream), "anthropic-version": self.api_version},
            body=ANTHROPIC.check_request(read.json_object(fields.items())),
        )

    def auth_headers(self) -> dict[str, str]:
        """Return the key as `x-api-key`, or as `authorization` in a later version. Raises MissingKeyError."""
        key = find_key(self.name, self.api_key, KEY_VARIABLES)
        header = {"authorization": f"Bearer {key}"} if self.api_version in BEARER_VERSIONS else {"x-api-key": key}
        return {**self.headers, **header}

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body. Without a `requested_cap`, DEFAULT_MAX_TOKENS was requested."""
        return read_body(payload, self.model, DEFAULT_MAX_TOKENS if requested_cap is None else requested_cap, provider=self.name)

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a new parser for one stream."""
        cap = DEFAULT_MAX_TOKENS if requested_cap is None else requested_cap
        return AnthropicStreamParser(
            lambda body, calls, ended, damaged: read_body(
                body, self.model, cap, provider=self.name, calls=calls, ended=ended, damaged=damaged
            ),
        )


# Requests ------------------------------------------------------------------------------------------------------------------


def _cap(request: ModelRequest) -> int:
    """Return the output cap to send: the request's own, else that in `options`, else the default."""
    if request.max_output_tokens is not None:
        return request.max_output_tokens
    return read.count(request.options.get("max_tokens")) or DEFAULT_MAX_TOKENS


_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def _parameters(request: ModelRequest, model: str) -> dict[str, JSON]:
    """Return the fields of the request's parameters and of a typed answer. Types of the vendor's client: anthropic 2.12,
    `MessageCreateParams`. Raises ConfigurationError for a value that the model refuses."""
    found: dict[str, JSON] = {}
    output: dict[str, JSON] = {}
    asked, choice = request.parameters, request.parameters.tool_choice
    if asked.temperature is not None:
        if asked.temperature > 1:
            raise ConfigurationError(f"temperature={asked.temperature!r}: Anthropic's models take a number from 0 to 1.")
        found["temperature"] = asked.temperature
    if asked.reasoning_effort == "none":
        found["thinking"] = {"type": "between_tools" if _BETWEEN_TOOLS.search(model) else "disabled"}
    elif asked.reasoning_effort is not None:
        if PREFILLED.match(model):  # models before Claude 4.6
            how = 'options={"thinking": {"type": "enabled", "budget_tokens": 4096}}'
            raise ConfigurationError(
                f"reasoning_effort={asked.reasoning_effort!r}: {model} takes a number of tokens. Pass {how}."
            )
        found["thinking"], output["effort"] = {"type": "adaptive"}, asked.reasoning_effort
    if request.output_schema is not None:
        output["format"] = {"type": "json_schema", "schema": request.output_schema}
    if output:
        found["output_config"] = output
    if request.tools and (choice is not None or asked.parallel_tool_calls is False):
        named = {} if choice is None or choice in _CHOICES else {"name": choice}
        single = {"disable_parallel_tool_use": True} if asked.parallel_tool_calls is False and choice != "none" else {}
        found["tool_choice"] = {"type": "tool" if named else _CHOICES[choice or "auto"], **named, **single}
    return found


def encode_message(message: Message) -> bytes:
    """Return one message as JSON; empty bytes for an empty message, which this wire refuses."""
    content: JSON
    if message.role == "tool":
        content = [_result(result) for result in message.tool_results]
    elif message.role in ("user", "system"):
        content = [anthropic_block(piece) for piece in message.pieces] if message.parts else message.text
    elif message.native is not None and message.native.wire == WIRE:
        content = message.native.content
    else:
        return _rebuilt(message)
    return read.dumps({"role": "assistant" if message.role == "assistant" else "user", "content": content}) if content else b""


def _result(result: ToolResult) -> dict[str, JSON]:
    content = [anthropic_block(piece) for piece in result.pieces] if result.parts else result.content
    block = {"type": "tool_result", "tool_use_id": read.plain_id(result.call_id), "content": content}
    return {**block, "is_error": True} if result.is_error else block


def _rebuilt(message: Message) -> bytes:
    """Return an assistant's message from another wire, rebuilt from its text and calls."""
    blocks = [read.dumps({"type": "text", "text": message.text})] if message.text.strip() else []
    blocks += [
        b'{"type":"tool_use","id":%b,"name":%b,"input":%b}'
        % (read.dumps(read.plain_id(call.id)), read.dumps(call.name), read.arguments_object(call.arguments))
        for call in message.tool_calls
    ]
    return b'{"role":"assistant","content":%b}' % read.json_array(blocks) if blocks else b""


# Responses -----------------------------------------------------------------------------------------------------------------


_BLOCK: read.Fields = {"type": str, "input": (*read.TEXT, dict), **dict.fromkeys(("text", "thinking", "id", "name"), read.TEXT)}
_BODY: read.Fields = {"content": [_BLOCK]}


def read_body(
    payload: JSON,
    model: str,
    cap: int,
    *,
    provider: str,
    calls: tuple[ToolCall, ...] | None = None,
    ended: Ended = "whole",
    damaged: bool = False,
) -> ModelResponse:
    """Read a whole message, or one assembled from a stream. A stream passes its own `calls`, which have the raw text of the arguments
    and record whether the block was closed."""
    body = read.as_dict(payload)
    blocks = [block for block in read.as_list(body.get("content")) if isinstance(block, dict)]
    stop_reason = body.get("stop_reason")
    text = "".join(read.as_text(block.get("text")) for block in blocks if block.get("type") == "text")
    if calls is None:
        calls = _tool_calls(blocks, cut=stop_reason is None or stop_reason in _CUT)
    usage = read_usage(body.get("usage"), blocks)
    if ended == "unmarked" and stop_reason is None:
        usage = read.so_far(usage)
    details = read.as_dict(body.get("stop_details"))
    facts = Facts(
        tool_calls=len(calls),
        complete_calls=all(read.is_json(call.arguments) for call in calls),
        answered=bool(text or calls),
        ended=ended,
        damaged=damaged,
        misfit=read.misfit(body, _BODY, "message"),
        output_tokens=usage.output_tokens,
        requested_cap=cap,
        error=find_error(payload),
        metadata=end_details(body),
    )
    return ModelResponse(
        text=read.whole_text(text),
        signal=_signal(stop_reason, facts, model, provider),
        tool_calls=calls,
        usage=usage,
        reasoning="".join(read.as_text(block.get("thinking")) for block in blocks if block.get("type") == "thinking"),
        refusal=read.some_text(details.get("explanation")) if stop_reason == "refusal" else None,
        model=read.some_text(body.get("model")),
        response_id=read.some_text(body.get("id")),
        native=_native(blocks),
        raw=payload,
    )


def _signal(stop_reason: JSON, facts: Facts, model: str, provider: str) -> TerminationSignal:
    signal = judge(FINISH_REASONS, stop_reason, facts, provider=provider, model=model)
    if facts.metadata.get("guardrail") != "INTERVENED" or signal.finish_reason not in _REPLACED_BY_GUARDRAIL:
        return signal
    # Bedrock's guardrail withheld or changed the answer, but the stop reason is ordinary or missing.
    return replace(
        signal,
        finish_reason=FinishReason.CONTENT_FILTERED,
        confidence=Confidence.MEDIUM if facts.damaged or facts.misfit or facts.ended == "unmarked" else Confidence.HIGH,
        raw_field=GUARDRAIL,
        raw_value="INTERVENED",
        message="A guardrail intervened.",
    )


def read_usage(reported: JSON, blocks: list[dict[str, Any]] | None = None) -> Usage:
    """Return the usage in the form of `Usage`. The vendor's `input_tokens` do not include tokens read from or written to a cache. The
    tokens of a conversation summary are charged, but listed only among the iterations.

    Other charges: https://platform.claude.com/docs/en/about-claude/pricing, read 2026-11-23. Searches are counted in `server_tool_use`,
    which is absent if none of the vendor's tools ran; code execution is charged by container time, which no response reports;
    `inference_geo` "us" and iterations of another model have their own prices. Fetching a page and searching for tools cost only their
    tokens."""
    usage = read.as_dict(reported)
    iterations = [iteration for iteration in read.as_list(usage.get("iterations")) if isinstance(iteration, dict)]
    parts = [usage, *(iteration for iteration in iterations if iteration.get("type") == "compaction")]
    fresh, output, cache_read, cache_write = (_summed(part.get(name) for part in parts) for name in _COUNTS)
    cache_write_1h = _summed(read.as_dict(part.get("cache_creation")).get("ephemeral_1h_input_tokens") for part in parts)
    if fresh is None and output is None:
        return Usage()
    tiers = [tier for name in ("service_tier", "speed") if (tier := read.some_text(usage.get(name))) not in (None, "standard")]
    return Usage(
        input_tokens=read.added(fresh, cache_read, cache_write),
        output_tokens=output,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reasoning_tokens=read.count(read.as_dict(usage.get("output_tokens_details")).get("thinking_tokens")),
        source=UsageSource.REPORTED,
        cache_write_1h_tokens=cache_write_1h,
        web_searches=read.count(read.as_dict(usage.get("server_tool_use")).get("web_search_requests")) or 0,
        service_tier=" ".join(tiers) or read.some_text(usage.get("service_tier")),
        also_charged=tuple(dict.fromkeys(_also_charged(usage, iterations, blocks or []))),
    )


def _also_charged(usage: dict[str, Any], iterations: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        name = read.as_text(block.get("name"))
        if block.get("type") == "server_tool_use" and name not in _NOT_CHARGED:
            yield "code execution" if name.endswith("code_execution") else f"the tool {name}"
    for iteration in iterations:
        if (kind := iteration.get("type")) not in ("message", "compaction"):
            yield f"tokens of {read.some_text(iteration.get('model')) or read.as_text(kind)}"
    if (place := read.some_text(usage.get("inference_geo"))) not in (None, "global", "not_available"):
        yield f"inference in the region {place}"
    if usage.get("fallback_credit"):
        yield "a fallback credit"


def _summed(values: Iterable[JSON]) -> int | None:
    known = [count for value in values if (count := read.count(value)) is not None]
    return sum(known) if known else None


def _tool_calls(blocks: list[dict[str, Any]], *, cut: bool) -> tuple[ToolCall, ...]:
    """Return the calls of the request's tools (`tool_use`); the vendor runs its own tools."""
    answered = answered_calls(blocks)

    def raw_call(block: dict[str, Any]) -> RawCall | None:
        return (block.get("id"), block.get("name"), block.get("input")) if is_call(block, answered) else None

    return tool_calls(blocks, raw_call, cut=cut)


def _native(blocks: list[dict[str, Any]]) -> NativeContent | None:
    """Return the content to send back: as received, but without content that the vendor refuses (empty text, unsigned thinking), with
    an id for each call, and with arguments that are an object."""
    kept: list[dict[str, Any]] = []
    answered, calls = answered_calls(blocks), 0
    for block in blocks:
        kind = block.get("type")
        if (kind == "text" and not block.get("text")) or (kind == "thinking" and not block.get("signature")):
            continue
        changed: dict[str, JSON] = {}
        if is_call(block, answered):
            calls += 1
            changed = {} if block.get("id") else {"id": f"call_{calls}"}
        if kind == "tool_use" and not isinstance(block.get("input"), dict):
            text = read.arguments_text(block.get("input"), closed=False)
            changed["input"] = read.loads(read.arguments_object(text))
        kept.append({**block, **changed} if changed else block)
    return NativeContent(wire=WIRE, content=kept) if kept else None


# Other servers ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnthropicFoundry(Anthropic):
    """Claude in Microsoft Foundry (Azure), whose `model` is the name of a deployment.

    `base_url` is the address up to and without `/v1/messages`, `https://….services.ai.azure.com/anthropic`, else that of the
    environment variable ANTHROPIC_FOUNDRY_BASE_URL, else that of the resource named by ANTHROPIC_FOUNDRY_RESOURCE. Pass a Microsoft
    Entra token as `headers={"authorization": "Bearer …"}`. Source: the vendor's client (anthropic 2.12), `AnthropicFoundry`.
    """

    name: ClassVar[str] = "anthropic-foundry"
    base_url: str = ""

    def __post_init__(self) -> None:
        given, named = (os.environ.get(f"ANTHROPIC_FOUNDRY_{what}", "").strip() for what in ("BASE_URL", "RESOURCE"))
        address = self.base_url or given or (f"https://{named}.services.ai.azure.com/anthropic" if named else "")
        if not address:
            raise ConfigurationError(
                f"{self.name} needs the address of your resource: set the environment variable ANTHROPIC_FOUNDRY_RESOURCE, or pass "
                f'lab.Provider("{self.name}", model="…", base_url="https://your-resource.services.ai.azure.com/anthropic").'
            )
        object.__setattr__(self, "base_url", address)
        Anthropic.__post_init__(self)

    def auth_headers(self) -> dict[str, str]:
        """Return the key as `x-api-key`, or only `headers` if they have a token. Raises MissingKeyError."""
        if self.api_key is None and any(name.lower() == "authorization" for name in self.headers):
            return dict(self.headers)
        return {**self.headers, "x-api-key": find_key(self.name, self.api_key, ("ANTHROPIC_FOUNDRY_API_KEY",))}


@dataclass(frozen=True, slots=True)
class AnthropicVertex(GoogleCloud, Anthropic):
    """Claude on Google Cloud's Vertex AI; project, location and credentials are as for `gemini-vertex`. Source: the vendor's client
    (anthropic 2.12), `AnthropicVertex`."""

    name: ClassVar[str] = "anthropic-vertex"
    base_url: str = ""
    project: str = ""
    location: str = ""

    def __post_init__(self) -> None:
        self.find_place()

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `:rawPredict` or `:streamRawPredict`; the body names the version of the wire instead of the model."""
        for part in (part for message in request.messages for part in message.all_parts()):
            ANTHROPIC_VERTEX.check(part)
        asked = Anthropic.build_request(self, request)
        body = {key: value for key, value in read.loads(asked.body).items() if key != "model"}
        place = self.place()
        method = "streamRawPredict" if request.stream else "rawPredict"
        headers = {key: value for key, value in asked.headers.items() if key != "anthropic-version"}
        return HttpRequest(
            method="POST",
            url=f"{self.base_url}/{place}/publishers/anthropic/models/{quote(self.model, safe='@')}:{method}",
            headers=headers,
            body=read.dumps({"anthropic_version": "vertex-2023-10-16", **body}),
        )


PROVIDERS = (Anthropic, AnthropicFoundry, AnthropicVertex)
