"""Anthropic, over the messages API.

Vendor pages: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons and
https://platform.claude.com/docs/en/build-with-claude/compaction, read 2026-11-22; the fields of messages and usage from the types of
the vendor's client (anthropic 2.12). What Bedrock adds on this wire:
https://docs.aws.amazon.com/bedrock/latest/userguide/guardrails-use.html, read 2026-11-22.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from agentlab.errors import ConfigurationError
from agentlab.model.conversation import encode_messages
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON, Message, ModelRequest, NativeContent, ToolCall, ToolResult
from agentlab.model.responses import ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.model.usage import Usage, UsageSource
from agentlab.providers.base import (
    Capabilities,
    Server,
    StreamParser,
    check_date,
    clean_url,
    content_headers,
    find_key,
    merge_options,
)
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, Facts, Table, find_error, judge
from agentlab.providers.wires.read import RawCall, tool_calls
from agentlab.providers.wires.stream import BROKEN, NO_START, PROPER_ENDS, BlockParser, block_number
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

PREFILLED = re.compile(r"claude-(?:[123]\b|(?:opus|sonnet|haiku)-4(?:-[015])?(?:-\d{8})?$)")
"""Models that accept an assistant's message at the end (a prefill): https://platform.claude.com/docs/en/build-with-claude/prompt-engineering/prefill-claudes-response,
read 2026-11-22."""

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

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `/v1/messages`. `options` are additional top-level fields; its `tools` are added to the request's own.
        Raises ConfigurationError for a field that this version of the API refuses."""
        for name in REFUSED.get(self.api_version, ()):
            if name in request.options:
                raise ConfigurationError(
                    f"options[{name!r}]={request.options[name]!r}: Anthropic's API version {self.api_version} refuses "
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
        merge_options(fields, request.options, reserved=("model", "messages", "stream"))
        return HttpRequest(
            method="POST",
            url=f"{self.base_url}/v1/messages",
            headers={**content_headers(stream=request.stream), "anthropic-version": self.api_version},
            body=read.json_object(fields.items()),
        )

    def auth_headers(self) -> dict[str, str]:
        """Return the key as `x-api-key`, or as `authorization` in a later version. Raises MissingKeyError."""
        key = find_key(self.name, self.api_key, KEY_VARIABLES)
        header = {"authorization": f"Bearer {key}"} if self.api_version in BEARER_VERSIONS else {"x-api-key": key}
        return {**self.headers, **header}

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body. Without a `requested_cap`, DEFAULT_MAX_TOKENS was requested."""
        return read_body(payload, self.model, DEFAULT_MAX_TOKENS if requested_cap is None else requested_cap)

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a new parser for one stream."""
        cap = DEFAULT_MAX_TOKENS if requested_cap is None else requested_cap
        return AnthropicStreamParser(
            lambda body, calls, ended, damaged: read_body(body, self.model, cap, calls=calls, ended=ended, damaged=damaged),
            lambda stop_reason, facts: _signal(stop_reason, facts, self.model),
        )


# Requests ------------------------------------------------------------------------------------------------------------------


def _cap(request: ModelRequest) -> int:
    """Return the output cap to send: the request's own, else that in `options`, else the default."""
    if request.max_output_tokens is not None:
        return request.max_output_tokens
    return read.count(request.options.get("max_tokens")) or DEFAULT_MAX_TOKENS


def encode_message(message: Message) -> bytes:
    """Return one message as JSON; empty bytes for an empty message, which this wire refuses."""
    content: JSON
    if message.role == "tool":
        content = [_result(result) for result in message.tool_results]
    elif message.role in ("user", "system"):
        content = message.text
    elif message.native is not None and message.native.wire == WIRE:
        content = message.native.content
    else:
        return _rebuilt(message)
    return read.dumps({"role": "assistant" if message.role == "assistant" else "user", "content": content}) if content else b""


def _result(result: ToolResult) -> dict[str, JSON]:
    block = {"type": "tool_result", "tool_use_id": read.plain_id(result.call_id), "content": result.content}
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


def read_body(
    payload: JSON,
    model: str,
    cap: int,
    *,
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
        output_tokens=usage.output_tokens,
        requested_cap=cap,
        error=find_error(payload),
        metadata=end_details(body),
    )
    return ModelResponse(
        text=read.whole_text(text),
        signal=_signal(stop_reason, facts, model),
        tool_calls=calls,
        usage=usage,
        reasoning="".join(read.as_text(block.get("thinking")) for block in blocks if block.get("type") == "thinking"),
        refusal=read.some_text(details.get("explanation")) if stop_reason == "refusal" else None,
        model=read.some_text(body.get("model")),
        response_id=read.some_text(body.get("id")),
        native=_native(blocks),
        raw=payload,
    )


def _signal(stop_reason: JSON, facts: Facts, model: str) -> TerminationSignal:
    signal = judge(FINISH_REASONS, stop_reason, facts, provider=Anthropic.name, model=model)
    if facts.metadata.get("guardrail") != "INTERVENED" or signal.finish_reason not in _REPLACED_BY_GUARDRAIL:
        return signal
    # Bedrock's guardrail withheld or changed the answer, but the stop reason is ordinary or missing.
    return replace(
        signal,
        finish_reason=FinishReason.CONTENT_FILTERED,
        confidence=Confidence.MEDIUM if facts.damaged or facts.ended == "unmarked" else Confidence.HIGH,
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


# Streams ------------------------------------------------------------------------------------------------------------------------
#
# https://platform.claude.com/docs/en/build-with-claude/streaming, and the events of recorded responses.

GUARDRAIL = "amazon-bedrock-guardrailAction"
"""Bedrock's field for a guardrail's action on this wire, in the message or in the last event of a stream."""

_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}


def answered_calls(blocks: list[dict[str, Any]]) -> frozenset[str]:
    """Return the ids of calls to the vendor's tools whose results are in the message."""
    return frozenset(read.as_text(block.get("tool_use_id")) for block in blocks if "tool_use_id" in block)


def is_call(block: dict[str, Any], answered: frozenset[str]) -> bool:
    """True if a block is a call that waits for a result. The vendor does not run it, and it does not come from code in the vendor's
    sandbox that has ended (the results of such calls were sent in an earlier turn)."""
    return block.get("type") == "tool_use" and read.as_text(read.as_dict(block.get("caller")).get("tool_id")) not in (
        answered - {""}
    )


def end_details(message: dict[str, Any]) -> dict[str, JSON]:
    """Return the details of a message's end: the stop sequence, the explanation of a refusal, and a guardrail's action."""
    found: dict[str, JSON] = {}
    if sequence := read.some_text(message.get("stop_sequence")):
        found["stop_sequence"] = sequence
    if details := {
        key: text for key, value in read.as_dict(message.get("stop_details")).items() if (text := read.some_text(value))
    }:
        found["stop_details"] = details
    if (action := read.some_text(message.get(GUARDRAIL))) not in (None, "NONE"):
        found["guardrail"] = action
    return found


@dataclass(slots=True, eq=False)
class _Block:
    """One content block, assembled from its pieces. `call` is its number among the tool calls."""

    fields: dict[str, Any]
    call: int
    closed: bool = False
    pieces: dict[str, list[str]] = field(default_factory=dict)

    def joined(self, key: str) -> str:
        return read.whole_text("".join(self.pieces.get(key, ())))

    def arguments(self) -> str:
        """Return the raw text of a tool's arguments: the pieces, or the value at the block's start."""
        return self.joined("partial_json") or read.arguments_text(self.fields.get("input") or None, closed=self.closed)

    def id(self) -> str:
        return read.as_text(self.fields.get("id")) or f"call_{self.call + 1}"

    def name(self) -> str:
        return read.as_text(self.fields.get("name"))

    def content(self) -> dict[str, Any]:
        """Return the block as in a whole message. Arguments that are not JSON stay text."""
        block = dict(self.fields)
        for kind, key in (("text", "text"), ("thinking", "thinking"), ("thinking", "signature")):
            if key in self.pieces and block.get("type") == kind:
                block[key] = read.as_text(block.get(key)) + self.joined(key)
        if text := self.joined("partial_json"):
            try:
                block["input"] = read.loads(text)
            except ValueError:
                block["input"] = text
        if citations := block.pop("_citations", None):
            block["citations"] = [*read.as_list(block.get("citations")), *citations]
        return block


class AnthropicStreamParser(BlockParser):
    """Parses one stream of events."""

    def _clear(self) -> None:
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
        self._tools = 0
        self._begun = False
        self._over = False
        self._whole: dict[str, Any] | None = None

    def _take(self, name: bytes, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        kind = chunk.get("type") or name.decode("utf-8", "replace")
        if kind == "content_block_delta":
            self._delta(chunk.get("index"), chunk.get("delta"), events)
        elif kind == "content_block_start":
            self._start_block(chunk.get("index"), chunk.get("content_block"), events)
        elif kind == "content_block_stop":
            block = self._blocks.get(block_number(chunk.get("index")))
            if block is None:
                self._record_loss(NO_START)
            else:
                block.closed = True
        elif kind == "message_delta":
            self._message_delta(chunk, events)
        elif kind == "message_start":
            self._doubtful = self._doubtful or self._done or self._over  # an end before the beginning, or a second message
            self._blocks.clear()  # a second message_start replaces the message
            self._tools = 0
            self._begun, self._over, self._done = True, False, False
            self._message = dict(read.as_dict(chunk.get("message")))
            self._usage = dict(read.as_dict(self._message.get("usage")))
            for index, block in enumerate(read.as_list(self._message.get("content"))):  # content in message_start
                self._start_block(index, block, events)
                self._blocks[index].closed = True
        elif kind == "message_stop":
            self._done = self._over = True
            if GUARDRAIL in chunk:
                self._message[GUARDRAIL] = chunk[GUARDRAIL]
                events.append(SignalSeen(self._signal_now()))
        elif kind == "message":  # the server did not stream
            self._whole = chunk

    def _start_block(self, index: JSON, fields: JSON, events: list[StreamEvent]) -> None:
        self._doubtful = self._doubtful or self._over
        if self._blocks and block_number(index) > max(self._blocks) + 1:
            self._record_loss("a block is missing")
        calls = self._tools
        block = self._blocks[block_number(index)] = _Block(dict(read.as_dict(fields)), calls)
        kind = block.fields.get("type")
        if kind == "text" and (text := read.as_text(block.fields.get("text"))):
            events.append(TextDelta(text))
        elif kind == "tool_use":
            self._tools += 1
            events.append(ToolCallDelta(calls, block.id(), block.name(), ""))

    def _delta(self, index: JSON, delta: JSON, events: list[StreamEvent]) -> None:
        block = self._blocks.get(block_number(index))
        if block is None or not isinstance(delta, dict):
            self._record_loss(NO_START if block is None else BROKEN)
            return
        if self._over or block.closed:
            self._damaged = True  # a late piece
        kind = delta.get("type")
        key = _PIECES.get(kind) if isinstance(kind, str) else None
        if key is None:
            if kind == "citations_delta":
                block.fields.setdefault("_citations", []).append(delta.get("citation"))
            elif kind == "compaction_delta":  # arrives whole, and is sent back unchanged
                block.fields.update({key: value for key, value in delta.items() if key != "type"})
            return
        piece = delta.get(key)
        if not isinstance(piece, str) or not piece:
            return
        block.pieces.setdefault(key, []).append(piece)
        if key == "text":
            events.append(TextDelta(piece))
        elif key == "thinking":
            events.append(ReasoningDelta(piece))
        elif key == "partial_json" and block.fields.get("type") == "tool_use":
            events.append(ToolCallDelta(block.call, block.id(), block.name(), piece))

    def _message_delta(self, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        # The usage is cumulative; fields that it leaves out were in message_start.
        self._usage.update({key: value for key, value in read.as_dict(chunk.get("usage")).items() if value is not None})
        for key, value in read.as_dict(chunk.get("delta")).items():
            if value is not None:
                self._message[key] = value
                if key == "stop_reason":
                    self._over = True
                    events.append(SignalSeen(self._signal_now()))

    def _waiting(self, blocks: list[_Block]) -> list[_Block]:
        answered = answered_calls([block.fields for block in blocks])
        return [block for block in blocks if is_call(block.fields, answered)]

    def _end_so_far(self) -> tuple[JSON, dict[str, JSON]]:
        return self._message.get("stop_reason"), end_details(self._message)

    def _check_order(self) -> None:
        if not self._done or self._whole is not None or self._error is not None:
            return
        blocks = self._blocks.values()
        # The last block of a cut message may be open. In any other message, the event that closes an open block was lost.
        left_open = self._message.get("stop_reason") in PROPER_ENDS and not all(block.closed for block in blocks)
        self._doubtful = self._doubtful or not self._begun or left_open

    def _is_over(self) -> bool:
        return self._over

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        if self._whole is not None:
            error = {"error": self._error} if self._error is not None else {}
            return self._reader({**self._whole, **error}, None, "whole", damaged)
        return self._reader(body, self._calls(), ended, damaged)

    def _ended(self) -> Ended:
        ended = super()._ended()
        return "unmarked" if ended == "whole" and self._whole is None else ended  # JSON lines whose last event is missing

    def _assembled(self) -> dict[str, Any]:
        body = dict(self._message)
        body["content"] = [block.content() for _, block in sorted(self._blocks.items())]
        if self._usage:
            body["usage"] = self._usage
        return body


PROVIDERS = (Anthropic,)
