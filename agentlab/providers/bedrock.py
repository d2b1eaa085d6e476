"""Amazon Bedrock, over Converse and ConverseStream, which speak one wire for the models of many makers.

Vendor pages: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html and
https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html, read 2026-11-22; the words as the vendor's service model
(botocore 1.44) lists them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import quote

from agentlab import event_frames
from agentlab.errors import ConfigurationError
from agentlab.providers import _read as read
from agentlab.providers._base import Capabilities, StreamParser
from agentlab.providers._bedrock_auth import NO_BOTOCORE, bearer_key, missing_key, signed_headers
from agentlab.providers._bedrock_request import request_body, tool_use_id
from agentlab.providers._bedrock_stream import BedrockStreamParser, end_details, is_own_tool
from agentlab.providers._blocks import Asked, tool_calls
from agentlab.providers._event_stream import missing_decoder
from agentlab.providers._request import clean_url
from agentlab.providers._signals import Ended, Facts, Table, find_error, judge
from agentlab.shown import Shown
from agentlab.transport.http import HttpRequest
from agentlab.types import (
    JSON,
    FinishReason,
    ModelRequest,
    ModelResponse,
    NativeContent,
    TerminationSignal,
    ToolCall,
    Usage,
    UsageSource,
)

WIRE = "bedrock.converse"
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEFAULT_REGION = "us-east-1"

FINISH_REASONS = Table(
    field="stopReason",
    reasons={
        "end_turn": FinishReason.END_TURN,
        "stop_sequence": FinishReason.STOP_SEQUENCE,
        "tool_use": FinishReason.TOOL_CALLS,
        "max_tokens": FinishReason.MAX_TOKENS,
        "model_context_window_exceeded": FinishReason.CONTEXT_WINDOW_EXCEEDED,
        "guardrail_intervened": FinishReason.CONTENT_FILTERED,
        "content_filtered": FinishReason.CONTENT_FILTERED,
        "malformed_model_output": FinishReason.ERROR,
        "malformed_tool_use": FinishReason.ERROR,
    },
    repairable=frozenset({"malformed_model_output", "malformed_tool_use"}),
)

_CUT = ("max_tokens", "model_context_window_exceeded")
_REGION = re.compile(r"[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Bedrock(Shown):
    """Bedrock's own endpoint of a region, or a server that speaks its wire at `base_url` (up to and without `/model`).

    `model` is a model's id, an inference profile's, or an ARN. The region is `region`, else that of AWS_REGION or
    AWS_DEFAULT_REGION, else us-east-1. Live calls carry `api_key` or the key of AWS_BEARER_TOKEN_BEDROCK; without one they are
    signed, with the credentials of the environment, of `profile`, or of wherever else botocore finds them: that needs
    `pip install 'agentlab-jupyter[bedrock]'`, as do binary streams. `headers` are further ones, sent with live calls only. Keys and
    headers are never shown.
    """

    name: ClassVar[str] = "bedrock"
    wire: ClassVar[str] = WIRE
    capabilities: ClassVar[Capabilities] = Capabilities(tables=(FINISH_REASONS,))

    model: str
    base_url: str = ""
    region: str = ""
    profile: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        if self.base_url:
            object.__setattr__(self, "base_url", clean_url(self.base_url, self.name))
        if self.region and not _REGION.fullmatch(self.region):
            raise ConfigurationError(f"region={self.region!r} is no region of AWS: write something like {DEFAULT_REGION!r}.")

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """A POST to `/model/…/converse`, or to `…/converse-stream`; `request_body` tells about `options`."""
        operation = "converse-stream" if request.stream else "converse"
        base_url = self.base_url or f"https://bedrock-runtime.{self._region()}.amazonaws.com"
        return HttpRequest(
            method="POST",
            url=f"{base_url}/model/{quote(self.model, safe='')}/{operation}",
            headers={
                "content-type": "application/json",
                "accept": event_frames.CONTENT_TYPE if request.stream else "application/json",
            },
            body=request_body(request, self.wire),
        )

    def auth_headers(self) -> dict[str, str]:
        """The API key as a bearer token. Raises MissingKeyError: signatures are `sign`'s."""
        if key := bearer_key(self.name, self.api_key):
            return {**self.headers, "authorization": f"Bearer {key}"}
        raise missing_key(self.name)

    def check_key(self) -> None:
        """Raise MissingKeyError where there is no key and nothing to sign with. Whether there are credentials is not looked for here:
        that may ask the network."""
        if not bearer_key(self.name, self.api_key) and find_spec("botocore") is None:
            raise missing_key(self.name, NO_BOTOCORE)

    def sign(self, request: HttpRequest) -> dict[str, str]:
        """The API key as a bearer token, else the headers of a signature (SigV4). Blocking: looking for credentials may read
        files and ask the network. Raises MissingKeyError, or ConfigurationError where nobody could decode the answer."""
        if request.headers.get("accept") == event_frames.CONTENT_TYPE and find_spec("botocore") is None:
            raise missing_decoder()
        if bearer_key(self.name, self.api_key):
            return self.auth_headers()
        return signed_headers(request, self.headers, provider=self.name, region=self._region(), profile=self.profile)

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body."""
        return read_body(payload, self.model, requested_cap)

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """A new parser for one stream."""
        return BedrockStreamParser(
            lambda body, calls, ended, damaged: read_body(
                body, self.model, requested_cap, calls=calls, ended=ended, damaged=damaged
            ),
            lambda stop_reason, facts: _signal(stop_reason, facts, self.model),
        )

    def error_message(self, payload: JSON) -> str:
        """The vendor's own words in an error body, or an empty string."""
        error = read_error(payload)
        return error if isinstance(error, str) else read.as_text(read.as_dict(error).get("message"))

    def _region(self) -> str:
        found = self.region or next((value for name in REGION_VARIABLES if (value := os.environ.get(name, "").strip())), "")
        if found and not _REGION.fullmatch(found):
            raise ConfigurationError(f"{' or '.join(REGION_VARIABLES)} is {found!r}, which is no region of AWS.")
        return found or DEFAULT_REGION


# Responses -----------------------------------------------------------------------------------------------------------------


def read_body(
    payload: JSON,
    model: str,
    cap: int | None,
    *,
    calls: tuple[ToolCall, ...] | None = None,
    ended: Ended = "whole",
    damaged: bool = False,
) -> ModelResponse:
    """A whole body as a ModelResponse; or what was put together from a stream, with its `calls`: a stream tells more of them than the
    body does (the raw text of the arguments, and whether the block was closed)."""
    body = read.as_dict(payload)
    message = read.as_dict(read.as_dict(body.get("output")).get("message"))
    blocks = [block for block in read.as_list(message.get("content")) if isinstance(block, dict)]
    stop_reason = body.get("stopReason")
    text = read.whole_text("".join(map(_text, blocks)))
    if calls is None:
        calls = tool_calls(blocks, _asked, cut=stop_reason is None or stop_reason in _CUT)
    usage = read_usage(body)
    facts = Facts(
        tool_calls=len(calls),
        complete_calls=all(read.is_json(call.arguments) for call in calls),
        answered=bool(text or calls),
        ended=ended,
        damaged=damaged,
        output_tokens=usage.output_tokens,
        requested_cap=cap,
        error=read_error(payload),
        metadata=end_details(body),
    )
    router = read.as_dict(read.as_dict(body.get("trace")).get("promptRouter"))
    return ModelResponse(
        text=text,
        signal=_signal(stop_reason, facts, model),
        tool_calls=calls,
        usage=usage,
        reasoning=read.whole_text("".join(map(_reasoning, blocks))),
        model=read.some_text(router.get("invokedModelId")),  # other bodies do not say
        native=_native(blocks),
        raw=payload,
    )


def _signal(stop_reason: JSON, facts: Facts, model: str) -> TerminationSignal:
    return judge(FINISH_REASONS, stop_reason, facts, provider=Bedrock.name, model=model)


def _text(block: dict[str, Any]) -> str:
    """A block's part of the answer: text, or text with citations."""
    text = read.as_text(block.get("text"))
    if "citationsContent" not in block:
        return text
    cited = read.as_list(read.as_dict(block["citationsContent"]).get("content"))
    return text + "".join(read.as_text(read.as_dict(part).get("text")) for part in cited)


def _reasoning(block: dict[str, Any]) -> str:
    return read.as_text(_reasoning_text(block).get("text")) if "reasoningContent" in block else ""


def _reasoning_text(block: dict[str, Any]) -> dict[str, Any]:
    return read.as_dict(read.as_dict(block.get("reasoningContent")).get("reasoningText"))


def read_usage(body: dict[str, Any]) -> Usage:
    """Tokens by the one convention. Here `inputTokens` are those that were neither read from nor written to a cache; where the vendor's
    total is the sum without them, they are included already.

    What is charged beside the tokens: https://aws.amazon.com/bedrock/pricing/, read 2026-11-23. Guardrails by the text that they read,
    prompt routers by the request, and a tool that the vendor ran by its use; latency-optimised inference has prices of its own."""
    usage = read.as_dict(body.get("usage"))
    fresh, output = read.count(usage.get("inputTokens")), read.count(usage.get("outputTokens"))
    cache_read, cache_write = read.count(usage.get("cacheReadInputTokens")), read.count(usage.get("cacheWriteInputTokens"))
    if fresh is None and output is None:
        return Usage()
    total = read.count(usage.get("totalTokens"))
    included = total is not None and total == read.added(fresh, output)
    return Usage(
        input_tokens=fresh if included else read.added(fresh, cache_read, cache_write),
        output_tokens=output,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        source=UsageSource.REPORTED,
        cache_write_1h_tokens=_written_for_an_hour(usage),
        service_tier=_tier(body),
        also_charged=tuple(dict.fromkeys(_also_charged(body))),
    )


def _written_for_an_hour(usage: dict[str, Any]) -> int | None:
    details = [entry for entry in read.as_list(usage.get("cacheDetails")) if isinstance(entry, dict)]
    return sum(read.count(entry.get("inputTokens")) or 0 for entry in details if entry.get("ttl") == "1h") if details else None


def _tier(body: dict[str, Any]) -> str | None:
    tier = read.some_text(read.as_dict(body.get("serviceTier")).get("type"))
    latency = read.some_text(read.as_dict(body.get("performanceConfig")).get("latency"))
    faster = None if latency in (None, "standard") else f"{latency} latency"
    return tier if faster is None else faster if tier in (None, "default") else f"{tier}, {faster}"


def _also_charged(body: dict[str, Any]) -> Iterator[str]:
    trace = read.as_dict(body.get("trace"))
    if trace.get("guardrail") or body.get("stopReason") == "guardrail_intervened":
        yield "a guardrail"
    if trace.get("promptRouter"):
        yield "a prompt router"
    message = read.as_dict(read.as_dict(body.get("output")).get("message"))
    for block in read.as_list(message.get("content")):
        asked = read.as_dict(read.as_dict(block).get("toolUse"))
        if asked and not is_own_tool(asked):
            yield f"the tool {read.as_text(asked.get('name'))}"


def read_error(payload: JSON) -> JSON:
    """The error inside a body, or None. Bedrock's own say their kind in `__type` or in a header alone, and little else; an exception in
    mid-stream comes under its name."""
    if (error := find_error(payload)) is not None:
        return error
    body = read.as_dict(payload)
    if "output" in body or "stopReason" in body:
        return None
    body = read.as_dict(body.get("Output")) or body  # of AWS's front door: {"Output": {"__type": …}, "Version": …}
    kind = read.as_text(body.get("__type")).rpartition("#")[2]
    message = next((text for key in ("message", "Message") if (text := read.as_text(body.get(key)))), "")
    if not kind:
        return message or None
    return {"type": kind, "message": message}


def _asked(block: dict[str, Any]) -> Asked | None:
    """A call of a tool of the person's."""
    asked = block.get("toolUse")
    if not isinstance(asked, dict) or not is_own_tool(asked):
        return None
    return asked.get("toolUseId"), asked.get("name"), asked.get("input")


def _native(blocks: list[dict[str, Any]]) -> NativeContent | None:
    """The content to send back: as it came, without what the vendor refuses (blank text, reasoning without the signature that only some
    models give it), and with arguments that are an object."""
    kept: list[dict[str, Any]] = []
    calls = 0
    for block in blocks:
        tool_use, reasoning = block.get("toolUse"), block.get("reasoningContent")
        if isinstance(tool_use, dict):
            calls += is_own_tool(tool_use)
            kept.append({**block, "toolUse": _sendable(tool_use, calls)})
            continue
        blank = "text" in block and not read.as_text(block["text"]).strip()
        signed = read.as_dict(reasoning).get("redactedContent") or _reasoning_text(block).get("signature")
        if not blank and (reasoning is None or signed):
            kept.append(block)
    return NativeContent(wire=WIRE, content=kept) if kept else None


def _sendable(tool_use: dict[str, Any], number: int) -> dict[str, Any]:
    """A call with the id that its result is given, and with arguments that are an object."""
    given = tool_use.get("input")
    if not isinstance(given, dict):
        given = read.loads(read.arguments_object(read.arguments_text(given, closed=False)))
    call_id = tool_use_id(read.as_text(tool_use.get("toolUseId")) or f"call_{number}")
    return {**tool_use, "toolUseId": call_id, "input": given}


PROVIDER = Bedrock
