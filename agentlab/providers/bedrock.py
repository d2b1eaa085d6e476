"""Amazon Bedrock, over Converse and ConverseStream: one wire for the models of many vendors.

Vendor pages, read 2026-11-22: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html and
https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html; finish reasons and request fields as the vendor's service
model (botocore 1.44) lists them. Keys and signatures: https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys-use.html and
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import quote

from agentlab._internal import secrets as known_keys
from agentlab._internal.display import Displayable
from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.model.conversation import encode_messages
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import JSON, Message, ModelRequest, NativeContent, OutputForm, ToolCall, ToolResult
from agentlab.model.parts import Part
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Usage, UsageSource
from agentlab.providers.base import (
    Capabilities,
    StreamParser,
    check_key,
    clean_url,
    merge_options,
    refuse_for_claude,
    refuse_lacking,
)
from agentlab.providers.bedrock_stream import BedrockStreamParser, end_details, is_own_tool
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, Facts, Table, find_error, judge
from agentlab.providers.wires.media import IMAGES, PDF, Takes
from agentlab.providers.wires.read import RawCall, tool_calls
from agentlab.transport.aws_eventstream import CONTENT_TYPE
from agentlab.transport.http import HttpRequest

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

STRUCTURED = re.compile(r"(?:.*[./])?anthropic\.claude-(?:opus|sonnet|haiku)-(?:4-[5-9]|[5-9])")
"""Models with structured output: https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html, read 2026-11-23. Those of
other vendors that have it are not listed here: they give a typed answer as a tool call."""

_CUT = ("max_tokens", "model_context_window_exceeded")
_REGION = re.compile(r"[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Bedrock(Displayable):
    """Bedrock's endpoint of a region, or a server that speaks its wire at `base_url` (up to and without `/model`).

    `model` is the id of a model or an inference profile, or an ARN. The region is `region`, else that of AWS_REGION or
    AWS_DEFAULT_REGION, else us-east-1. Live calls send `api_key` or the key of AWS_BEARER_TOKEN_BEDROCK; without a key they are signed
    with the credentials of the environment, of `profile`, or of any other place where botocore finds them, which needs
    `pip install 'agentlab-jupyter[bedrock]'`. `headers` are additional headers for live calls. Keys and headers are never shown.
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
    http_client: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.base_url:
            object.__setattr__(self, "base_url", clean_url(self.base_url, self.name))
        if self.region and not _REGION.fullmatch(self.region):
            raise ConfigurationError(f"region={self.region!r} is not an AWS region. Pass a region such as {DEFAULT_REGION!r}.")

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return `strict`, or `tool` for a model without structured output."""
        return "strict" if STRUCTURED.match(self.model) else "tool"

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `/model/…/converse` or `…/converse-stream`; see `request_body` for `options`. Raises ConfigurationError for
        a parameter that this wire does not have: models take them as `additionalModelRequestFields` in `options`."""
        refuse_lacking(
            request.parameters, ("seed", "reasoning_effort", "parallel_tool_calls=False", "tool_choice=none"), self.name
        )
        refuse_for_claude(request.parameters, self.model)
        operation = "converse-stream" if request.stream else "converse"
        base_url = self.base_url or f"https://bedrock-runtime.{self._region()}.amazonaws.com"
        return HttpRequest(
            method="POST",
            url=f"{base_url}/model/{quote(self.model, safe='')}/{operation}",
            headers={"content-type": "application/json", "accept": CONTENT_TYPE if request.stream else "application/json"},
            body=request_body(request, self.wire),
        )

    def auth_headers(self) -> dict[str, str]:
        """Return the API key as a bearer token. Raises MissingKeyError if there is none; `sign` creates signatures."""
        if key := bearer_key(self.name, self.api_key):
            return {**self.headers, "authorization": f"Bearer {key}"}
        raise missing_key(self.name)

    def check_key(self) -> None:
        """Raise MissingKeyError if there is no key and botocore is missing. Does not look up credentials, which may need the
        network."""
        if not bearer_key(self.name, self.api_key) and find_spec("botocore") is None:
            raise missing_key(self.name, NO_BOTOCORE)

    def sign(self, request: HttpRequest) -> dict[str, str]:
        """Return the API key as a bearer token, else the headers of a signature (SigV4). Blocks: finding credentials may read files and
        use the network. Raises MissingKeyError."""
        if bearer_key(self.name, self.api_key):
            return self.auth_headers()
        return signed_headers(request, self.headers, provider=self.name, region=self._region(), profile=self.profile)

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body."""
        return read_body(payload, self.model, requested_cap)

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a new parser for one stream."""
        return BedrockStreamParser(
            lambda body, calls, ended, damaged: read_body(
                body, self.model, requested_cap, calls=calls, ended=ended, damaged=damaged
            ),
        )

    def error_message(self, payload: JSON) -> str:
        """Return the vendor's message in an error body, or an empty string."""
        error = read_error(payload)
        return error if isinstance(error, str) else read.as_text(read.as_dict(error).get("message"))

    def _region(self) -> str:
        found = self.region or next((value for name in REGION_VARIABLES if (value := os.environ.get(name, "").strip())), "")
        if found and not _REGION.fullmatch(found):
            raise ConfigurationError(f"{' or '.join(REGION_VARIABLES)} is {found!r}, which is not an AWS region.")
        return found or DEFAULT_REGION


# Responses -----------------------------------------------------------------------------------------------------------------


_CITED: read.Fields = {"content": (read.NULL, [{"text": read.TEXT}])}
_REASONING: read.Fields = {"reasoningText": (read.NULL, {"text": read.TEXT})}
_CALL: read.Fields = {"toolUseId": read.TEXT, "name": read.TEXT, "input": (*read.TEXT, dict)}
_BLOCK: read.Fields = {"text": read.TEXT, "toolUse": (read.NULL, _CALL), "citationsContent": (read.NULL, _CITED)}
_BODY: read.Fields = {"output": {"message": {"content": [{**_BLOCK, "reasoningContent": (read.NULL, _REASONING)}]}}}


def read_body(
    payload: JSON,
    model: str,
    cap: int | None,
    *,
    calls: tuple[ToolCall, ...] | None = None,
    ended: Ended = "whole",
    damaged: bool = False,
) -> ModelResponse:
    """Read a whole body, or one assembled from a stream. A stream passes its own `calls`, which have the raw text of the arguments and
    record whether the block was closed."""
    body = read.as_dict(payload)
    message = read.as_dict(read.as_dict(body.get("output")).get("message"))
    blocks = [block for block in read.as_list(message.get("content")) if isinstance(block, dict)]
    stop_reason = body.get("stopReason")
    text = read.whole_text("".join(map(_text, blocks)))
    if calls is None:
        calls = tool_calls(blocks, _raw_call, cut=stop_reason is None or stop_reason in _CUT)
    usage = read_usage(body)
    facts = Facts(
        tool_calls=len(calls),
        complete_calls=all(read.is_json(call.arguments) for call in calls),
        answered=bool(text or calls),
        ended=ended,
        damaged=damaged,
        misfit=read.misfit(body, _BODY, "body"),
        output_tokens=usage.output_tokens,
        requested_cap=cap,
        error=read_error(payload),
        metadata=end_details(body),
    )
    router = read.as_dict(read.as_dict(body.get("trace")).get("promptRouter"))
    return ModelResponse(
        text=text,
        signal=judge(FINISH_REASONS, stop_reason, facts, provider=Bedrock.name, model=model),
        tool_calls=calls,
        usage=usage,
        reasoning=read.whole_text("".join(map(_reasoning, blocks))),
        model=read.some_text(router.get("invokedModelId")),  # other bodies do not name the model
        native=_native(blocks),
        raw=payload,
    )


def _text(block: dict[str, Any]) -> str:
    """Return a block's part of the answer: text, or text with citations."""
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
    """Return the usage in the form of `Usage`. `inputTokens` do not include tokens read from or written to a cache, unless the total
    shows that they do.

    Other charges: https://aws.amazon.com/bedrock/pricing/, read 2026-11-23. Guardrails are charged by text, prompt routers by request,
    and the vendor's tools by use; latency-optimised inference has its own prices."""
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
        tool_use = read.as_dict(read.as_dict(block).get("toolUse"))
        if tool_use and not is_own_tool(tool_use):
            yield f"the tool {read.as_text(tool_use.get('name'))}"


def read_error(payload: JSON) -> JSON:
    """Return the error in a body, or None. The kind of Bedrock's own errors is in `__type`, or only in a header."""
    if (error := find_error(payload)) is not None:
        return error
    body = read.as_dict(payload)
    if "output" in body or "stopReason" in body:
        return None
    body = read.as_dict(body.get("Output")) or body  # AWS's gateway: {"Output": {"__type": …}, "Version": …}
    kind = read.as_text(body.get("__type")).rpartition("#")[2]
    message = next((text for key in ("message", "Message") if (text := read.as_text(body.get(key)))), "")
    if not kind:
        return message or None
    return {"type": kind, "message": message}


def _raw_call(block: dict[str, Any]) -> RawCall | None:
    """Return the call in a block, if it calls one of the request's tools."""
    tool_use = block.get("toolUse")
    if not isinstance(tool_use, dict) or not is_own_tool(tool_use):
        return None
    return tool_use.get("toolUseId"), tool_use.get("name"), tool_use.get("input")


def _native(blocks: list[dict[str, Any]]) -> NativeContent | None:
    """Return the content to send back: as received, but without content that the vendor refuses (blank text, unsigned reasoning), and
    with arguments that are an object."""
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
    """Return a call with the id that its result will have, and with arguments that are an object."""
    given = tool_use.get("input")
    if not isinstance(given, dict):
        given = read.loads(read.arguments_object(read.arguments_text(given, closed=False)))
    call_id = tool_use_id(read.as_text(tool_use.get("toolUseId")) or f"call_{number}")
    return {**tool_use, "toolUseId": call_id, "input": given}


# Requests ------------------------------------------------------------------------------------------------------------------

_CONFIG_KEYS = frozenset({"maxTokens", "stopSequences", "temperature", "topP"})
"""Fields of `inferenceConfig` that may also be at the top level of `options`, as with other providers."""

_NAME_LENGTH = 64  # of tools and of call ids, at most
_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_.:-]")
_USER, _ASSISTANT = b'{"role":"user","content":[', b'{"role":"assistant","content":['
_END = b"]}"


def request_body(request: ModelRequest, wire: str) -> bytes:
    """Return the JSON body, its fields in a fixed order. Each message is encoded once per conversation.

    `options` are additional top-level fields. Fields of `inferenceConfig` may be in an object of that name or directly in `options`;
    the request's `max_output_tokens` takes precedence over both. The tools of `toolConfig` and the blocks of `system` are added.
    """
    fields = {
        "messages": read.json_array(_alternating(encode_messages(request.messages, wire, partial(encode_message, wire=wire))))
    }
    if request.instructions.strip():
        fields["system"] = read.dumps([{"text": request.instructions}])
    options = {key: value for key, value in request.options.items() if key not in _CONFIG_KEYS}
    if request.tools:
        fields["toolConfig"] = _tool_config(request, options)
    config = dict(options.pop("inferenceConfig", None) or {})
    config.update({key: value for key, value in request.options.items() if key in _CONFIG_KEYS})
    if request.max_output_tokens is not None:
        config["maxTokens"] = request.max_output_tokens
    if request.parameters.temperature is not None:
        config["temperature"] = request.parameters.temperature
    if config:
        fields["inferenceConfig"] = read.dumps(config)
    if request.output_schema is not None:
        schema = {"name": "final_answer", "schema": read.dumps(request.output_schema).decode()}
        fields["outputConfig"] = read.dumps({"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}})
    merge_options(fields, options, reserved=("messages", "modelId", "stream"))
    return read.json_object(fields.items())


def _tool_config(request: ModelRequest, options: Mapping[str, JSON]) -> bytes:
    """Return the request's own tools and those of `options`; the rest of the options' `toolConfig` is merged later."""
    tools = [
        b'{"toolSpec":{"name":%b%b,"inputSchema":{"json":%b}}}'
        % (
            read.dumps(tool.name),
            b',"description":%b' % read.dumps(tool.description) if tool.description else b"",
            tool.parameters_json.encode(),
        )
        for tool in request.tools
    ]
    given = options.get("toolConfig")
    more = given.get("tools") if isinstance(given, Mapping) else None
    choice = request.parameters.tool_choice
    kinds = {None: b"", "auto": b',"toolChoice":{"auto":{}}', "required": b',"toolChoice":{"any":{}}'}
    chosen = kinds[choice] if choice in kinds else b',"toolChoice":{"tool":{"name":%b}}' % read.dumps(choice)
    return b'{"tools":%b%b}' % (read.json_array([*tools, *map(read.dumps, read.as_list(more))]), chosen)


def _alternating(messages: Iterable[bytes]) -> list[bytes]:
    """Merge consecutive messages of one role, since this wire requires alternating roles."""
    found: list[bytes] = []
    for message in messages:
        head = _USER if message.startswith(_USER) else _ASSISTANT
        if message and found and found[-1].startswith(head):
            found[-1] = found[-1][: -len(_END)] + b"," + message[len(head) :]
        elif message:
            found.append(message)
    return found


def encode_message(message: Message, *, wire: str) -> bytes:
    """Return one message as JSON; empty bytes for an empty message, which this wire refuses."""
    if message.role == "tool":
        blocks = [
            one for result in message.tool_results for one in ({"toolResult": _result(result)}, *_cache_points(result.pieces))
        ]
        return _encoded(_USER, map(read.dumps, blocks))
    if message.parts:
        blocks = [one for piece in message.pieces for one in (_block(piece), *_cache_points([piece]))]
        if any("document" in one for one in blocks) and not any("text" in one for one in blocks):  # refused without a text
            blocks.append({"text": message.text})
        return _encoded(_USER, map(read.dumps, blocks))
    if message.role in ("user", "system"):
        return _encoded(_USER, [read.dumps({"text": message.text})] if message.text.strip() else [])
    if message.native is not None and message.native.wire == wire:
        return _encoded(_ASSISTANT, map(read.dumps, read.as_list(message.native.content)))
    encoded = [read.dumps({"text": message.text})] if message.text.strip() else []
    encoded += [
        b'{"toolUse":{"toolUseId":%b,"name":%b,"input":%b}}'
        % (read.dumps(tool_use_id(call.id)), read.dumps(_name(call.name)), read.arguments_object(call.arguments))
        for call in message.tool_calls
    ]
    return _encoded(_ASSISTANT, encoded)


def _encoded(head: bytes, blocks: Iterable[bytes]) -> bytes:
    content = b",".join(blocks)
    return head + content + _END if content else b""


def _result(result: ToolResult) -> dict[str, JSON]:
    content = [_block(piece, in_result=True) for piece in result.pieces] if result.parts else [{"text": result.content}]
    block = {"toolUseId": tool_use_id(result.call_id), "content": content}
    return {**block, "status": "error"} if result.is_error else block  # some models accept no status at all


TAKES = Takes(
    "Bedrock",
    {"image": IMAGES, "document": PDF, "audio": ("audio/wav", "audio/mp3", "audio/flac", "audio/ogg", "audio/aac")},
    results=("image", "document"),
)
"""The vendor's service model. Sizes are limited by the model: Bedrock itself takes images of any size, and documents up to 4.5 MB, but
larger PDFs for some models (https://docs.aws.amazon.com/bedrock/latest/userguide/inference-api-restrictions.html, 2026-11-24)."""

_NOT_IN_DOCUMENT_NAME = re.compile(r"[^a-zA-Z0-9 ()\[\]-]+")


def _block(piece: str | Part, *, in_result: bool = False) -> dict[str, JSON]:
    if isinstance(piece, str):
        return {"text": piece}
    TAKES.check(piece, in_result=in_result)
    block = {"format": piece.format, "source": {"bytes": piece.base64}}
    if piece.kind == "document":  # with a name that is different for each document
        name = " ".join(_NOT_IN_DOCUMENT_NAME.sub(" ", piece.name or piece.kind).split())
        block["name"] = f"{name[:100]} {piece.sha256[:8]}".strip()
    return {piece.kind: block}


def _cache_points(pieces: Iterable[str | Part]) -> list[dict[str, JSON]]:
    marks = [piece.cache_control for piece in pieces if isinstance(piece, Part) and piece.cache_control is not None]
    return [{"cachePoint": {"type": "default", "ttl": mark}} for mark in marks[-1:]]


def tool_use_id(call_id: str) -> str:
    """Return a call id with the characters and the length that this wire accepts."""
    plain = _NOT_IN_ID.sub("_", call_id)
    if len(plain) <= _NAME_LENGTH:
        return plain
    digest = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{plain[: _NAME_LENGTH - 17]}_{digest}"


def _name(name: str) -> str:
    """Return a tool name that this wire accepts, even for a name that a model invented."""
    return read.plain_id(name)[:_NAME_LENGTH] or "unnamed"


# Keys and signatures -------------------------------------------------------------------------------------------------------

KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
NO_BOTOCORE = "botocore, which signs requests, is not installed"
_SERVICE = "bedrock"  # the signed name differs from the host's

_credentials_of_profile: dict[str | None, Any] = {}  # credentials renew themselves, and some are slow to find
_lock = threading.Lock()


def bearer_key(provider: str, api_key: str | None) -> str:
    """Return the given API key, else the key in the environment, else an empty string."""
    key = api_key or os.environ.get(KEY_VARIABLE, "")
    return check_key(provider, key) if key.strip() else ""


def missing_key(provider: str, why: str = "") -> MissingKeyError:
    """Return the error for a missing key and missing credentials."""
    return MissingKeyError(
        f"No API key for {provider}, and no AWS credentials{f' ({why})' if why else ''}. Set the environment variable "
        f'{KEY_VARIABLE}, or pass lab.Provider("{provider}", model=…, api_key=…); or, with '
        "pip install 'agentlab-jupyter[bedrock]', set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile; "
        "or run on recorded responses, without a key, inside lab.replay(folder)."
    )


def signed_headers(
    request: HttpRequest, more: Mapping[str, str], *, provider: str, region: str, profile: str | None
) -> dict[str, str]:
    """Return `more` headers, with the signature, its time, and the token of temporary credentials.

    Credentials are those of the environment (unless a profile is given), else those that botocore finds: shared files, single sign-on,
    container and instance metadata, some over the network. Blocks. Raises MissingKeyError.
    """
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
    except ImportError:
        raise missing_key(provider, NO_BOTOCORE) from None
    credentials = _credentials(provider, profile)
    known_keys.remember(filter(None, (credentials.secret_key, credentials.token)))
    signed = AWSRequest(method=request.method, url=request.url, headers={**request.headers, **more}, data=request.body)
    SigV4Auth(credentials, _SERVICE, region).add_auth(signed)
    already_sent = {name.lower() for name in request.headers} - {name.lower() for name in more}
    return {name.lower(): value for name, value in signed.headers.items() if name.lower() not in already_sent}


def _credentials(provider: str, profile: str | None) -> Any:
    from botocore.credentials import Credentials
    from botocore.exceptions import BotoCoreError

    identity, secret = os.environ.get("AWS_ACCESS_KEY_ID", ""), os.environ.get("AWS_SECRET_ACCESS_KEY", "")
    if profile is None and identity and secret:  # read each time: a notebook may change them
        return Credentials(identity, secret, os.environ.get("AWS_SESSION_TOKEN") or None)
    profile = profile or os.environ.get("AWS_PROFILE") or None
    with _lock:
        if profile not in _credentials_of_profile:
            from botocore.session import Session

            try:
                credentials = Session(profile=profile).get_credentials()
            except BotoCoreError as error:
                raise missing_key(provider, str(error)) from None
            if credentials is None:
                raise missing_key(provider)
            _credentials_of_profile[profile] = credentials
        credentials = _credentials_of_profile[profile]
    try:
        return credentials.get_frozen_credentials()  # renewed if necessary
    except BotoCoreError as error:
        raise missing_key(provider, str(error)) from None


PROVIDERS = (Bedrock,)
