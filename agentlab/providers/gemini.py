"""Google Gemini, over generateContent.

Vendor pages: https://ai.google.dev/api/generate-content and https://ai.google.dev/gemini-api/docs/thought-signatures; the words and the
fields of usage were read on 2026-11-22 from the types of the vendor's client (google-genai 3.4), which quote them. The numbers:
https://docs.cloud.google.com/ruby/docs/reference/google-cloud-ai_platform-v1/0.56.0/Google-Cloud-AIPlatform-V1-Candidate-FinishReason,
read 2026-11-22.

Gemini's requests: the body of generateContent out of a ModelRequest.

Vendor pages: https://ai.google.dev/api/generate-content and https://ai.google.dev/gemini-api/docs/function-calling; the fields as the
types of the vendor's client (google-genai 3.4) have them, which a test lets read what is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from agentlab.conversation import encode_messages
from agentlab.http import HttpRequest
from agentlab.providers.base import Capabilities, StreamParser, clean_url, content_headers, find_key, merge_options, place_version
from agentlab.providers.gemini_stream import GeminiStreamParser, is_open, unwrapped
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, Facts, Table, body_message, find_error, judge, log_unknown, raw_value
from agentlab.shown import Shown
from agentlab.types import (
    JSON,
    Confidence,
    FinishReason,
    Message,
    ModelRequest,
    ModelResponse,
    NativeContent,
    TerminationSignal,
    ToolCall,
    ToolResult,
    Usage,
    UsageSource,
)

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
KEY_VARIABLES = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
WIRE = "gemini.generate"

_WORDS: dict[str | int, FinishReason] = {
    "FINISH_REASON_UNSPECIFIED": FinishReason.UNKNOWN,
    "STOP": FinishReason.END_TURN,
    "MAX_TOKENS": FinishReason.MAX_TOKENS,
    "SAFETY": FinishReason.CONTENT_FILTERED,
    "RECITATION": FinishReason.CONTENT_FILTERED,
    "LANGUAGE": FinishReason.CONTENT_FILTERED,
    "OTHER": FinishReason.UNKNOWN,
    "BLOCKLIST": FinishReason.CONTENT_FILTERED,
    "PROHIBITED_CONTENT": FinishReason.CONTENT_FILTERED,
    "SPII": FinishReason.CONTENT_FILTERED,
    "MALFORMED_FUNCTION_CALL": FinishReason.ERROR,
    "IMAGE_SAFETY": FinishReason.CONTENT_FILTERED,
    "IMAGE_PROHIBITED_CONTENT": FinishReason.CONTENT_FILTERED,
    "IMAGE_RECITATION": FinishReason.CONTENT_FILTERED,
    "IMAGE_OTHER": FinishReason.UNKNOWN,
    "NO_IMAGE": FinishReason.UNKNOWN,
    "UNEXPECTED_TOOL_CALL": FinishReason.ERROR,
    "TOO_MANY_TOOL_CALLS": FinishReason.ERROR,
    "MISSING_THOUGHT_SIGNATURE": FinishReason.ERROR,
    "MALFORMED_RESPONSE": FinishReason.ERROR,
    # Of Vertex AI, or of some accounts only.
    "ESCALATION": FinishReason.CONTENT_FILTERED,
    "MODEL_ARMOR": FinishReason.CONTENT_FILTERED,
    "PUP_LIMITED_DISABLED": FinishReason.ERROR,
    "CONTINUATION": FinishReason.MAX_TOKENS,
}

_NUMBERS = {0: "FINISH_REASON_UNSPECIFIED", 1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}
"""Enumerations may come as their numbers. Those above 5 mean different words on Google's two services, so they stay unknown."""

FINISH_REASONS = Table(
    field="candidates[].finishReason",
    reasons={**_WORDS, **{number: _WORDS[word] for number, word in _NUMBERS.items()}},
    stop_with_calls=True,
    repairable=frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"}),
)

_BLOCKED = ("SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK", 1, 2, 3, 4, 5)
BLOCK_REASONS = Table(field="promptFeedback.blockReason", reasons=dict.fromkeys(_BLOCKED, FinishReason.CONTENT_FILTERED))
"""Why the prompt was blocked."""

_NOT_BLOCKED = ("BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED")


@dataclass(frozen=True, slots=True)
class Gemini(Shown):
    """The Gemini API, or a server that speaks its wire at `base_url` (up to and without `/models`).

    `api_version` is the version that `base_url` ends in; given, it takes that one's place. `headers` are further ones, sent with live
    calls only. Keys and headers are never shown.
    """

    name: ClassVar[str] = "gemini"
    wire: ClassVar[str] = WIRE
    capabilities: ClassVar[Capabilities] = Capabilities(tables=(FINISH_REASONS, BLOCK_REASONS))

    model: str
    base_url: str = BASE_URL
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    api_version: str | None = None

    def __post_init__(self) -> None:
        base_url, version = place_version(clean_url(self.base_url, self.name), self.api_version, self.name)
        object.__setattr__(self, "base_url", base_url)
        object.__setattr__(self, "api_version", version)

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """A POST to `:generateContent`, or to `:streamGenerateContent?alt=sse`; `request_body` tells about `options`."""
        model = self.model if "/" in self.model else f"models/{self.model}"
        method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        return HttpRequest(
            method="POST",
            url=f"{self.base_url}/{model}:{method}",
            headers=content_headers(stream=request.stream),
            body=request_body(request, WIRE),
        )

    def auth_headers(self) -> dict[str, str]:
        """The key as `x-goog-api-key`. Raises MissingKeyError."""
        return {**self.headers, "x-goog-api-key": find_key(self.name, self.api_key, KEY_VARIABLES)}

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body."""
        return read_body(payload, self.model, requested_cap)

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """A new parser for one stream."""
        return GeminiStreamParser(
            lambda body, ended, damaged: read_body(body, self.model, requested_cap, ended=ended, damaged=damaged)
        )

    def error_message(self, payload: JSON) -> str:
        """The vendor's own words in an error body, or an empty string."""
        return body_message(payload)


# Responses -----------------------------------------------------------------------------------------------------------------


def read_body(payload: JSON, model: str, cap: int | None, *, ended: Ended = "whole", damaged: bool = False) -> ModelResponse:
    """A whole body, or what was put together from a stream, as a ModelResponse."""
    body = unwrapped(read.as_dict(payload))
    candidate = first_candidate(body)
    content = read.as_dict(candidate.get("content"))
    parts = [part for part in read.as_list(content.get("parts")) if isinstance(part, dict)]
    response_id = read.some_text(body.get("responseId"))
    calls = _tool_calls(parts, response_id)
    usage = read_usage(body.get("usageMetadata"), read.as_dict(candidate.get("groundingMetadata")))
    if ended == "unmarked" and candidate.get("finishReason") is None:
        usage = read.so_far(usage)
    text = _joined(parts, thought=False)
    facts = Facts(
        tool_calls=len(calls),
        complete_calls=all(call.closed for call in calls),
        answered=bool(text or calls),
        ended=ended,
        damaged=damaged,
        output_tokens=usage.output_tokens,
        requested_cap=cap,
        error=find_error(payload),
        message=read.as_text(candidate.get("finishMessage")),
    )
    return ModelResponse(
        text=text,
        signal=_signal(body, candidate, facts, model),
        tool_calls=calls,
        usage=usage,
        reasoning=_joined(parts, thought=True),
        model=read.some_text(body.get("modelVersion")),
        response_id=response_id,
        native=NativeContent(wire=WIRE, content={"role": "model", "parts": parts}) if parts else None,
        raw=payload,
    )


def first_candidate(body: dict[str, Any]) -> dict[str, Any]:
    """The candidate that is the answer: the one with index 0, else the first. Further ones are left in `raw`."""
    candidates = [candidate for candidate in read.as_list(body.get("candidates")) if isinstance(candidate, dict)]
    return next((candidate for candidate in candidates if not candidate.get("index")), candidates[0] if candidates else {})


def _signal(body: dict[str, Any], candidate: dict[str, Any], facts: Facts, model: str) -> TerminationSignal:
    finish = candidate.get("finishReason")
    feedback = read.as_dict(body.get("promptFeedback"))
    blocked = feedback.get("blockReason")
    if finish is None and facts.error is None and blocked and blocked not in _NOT_BLOCKED:
        return _blocked(blocked, feedback, model, answered=bool(candidate))
    return judge(FINISH_REASONS, finish, facts, provider=Gemini.name, model=model)


def _blocked(reason: JSON, feedback: dict[str, Any], model: str, *, answered: bool) -> TerminationSignal:
    """The prompt was blocked, whatever word is given for it."""
    raw = raw_value(reason)
    documented = raw in BLOCK_REASONS.reasons
    if not documented and raw is not None:
        log_unknown(Gemini.name, model, raw)
    return TerminationSignal(
        finish_reason=FinishReason.CONTENT_FILTERED,
        confidence=Confidence.HIGH if documented and not answered else Confidence.MEDIUM,
        provider=Gemini.name,
        raw_field="promptFeedback.blockReason",
        raw_value=raw,
        message=read.as_text(feedback.get("blockReasonMessage")) or f"The prompt was blocked ({raw}).",
        model=model,
    )


def read_usage(reported: JSON, grounding: dict[str, Any] | None = None) -> Usage:
    """Tokens by the one convention.

    Thoughts come on top of the candidates' tokens, and what server-side tools fed back on top of the prompt's; the prompt's include
    cache reads. This API leaves out fields that are zero: the total tells a zero from an unknown, and a modality that is not listed
    was not used. `grounding` lists the searches: https://ai.google.dev/gemini-api/docs/google-search, read 2026-11-23. Documents count
    as images, as the price list has them.
    """
    usage = read.as_dict(reported)
    prompt = read.added(read.count(usage.get("promptTokenCount")), read.count(usage.get("toolUsePromptTokenCount")))
    candidates, thoughts = read.count(usage.get("candidatesTokenCount")), read.count(usage.get("thoughtsTokenCount"))
    total = read.count(usage.get("totalTokenCount"))
    if candidates is None and (thoughts is not None or (total is not None and total == prompt)):
        candidates = 0
    output = read.added(candidates, thoughts)
    if prompt is None and output is None:
        return Usage()
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        cache_read_tokens=read.count(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
        source=UsageSource.REPORTED,
        input_audio_tokens=_of_modality(usage, _PROMPT_DETAILS, "AUDIO"),
        output_audio_tokens=_of_modality(usage, _OUTPUT_DETAILS, "AUDIO"),
        cache_read_audio_tokens=_of_modality(usage, _CACHE_DETAILS, "AUDIO"),
        input_image_tokens=_of_modality(usage, _PROMPT_DETAILS, "IMAGE", "DOCUMENT"),
        output_image_tokens=_of_modality(usage, _OUTPUT_DETAILS, "IMAGE", "DOCUMENT"),
        cache_read_image_tokens=_of_modality(usage, _CACHE_DETAILS, "IMAGE", "DOCUMENT"),
        input_video_tokens=_of_modality(usage, _PROMPT_DETAILS, "VIDEO"),
        web_searches=len(read.as_list((grounding or {}).get("webSearchQueries"))),
        service_tier=_tier(usage),
        also_charged=("search in Google Maps",) if _asked_maps(grounding or {}) else (),
    )


_PROMPT_DETAILS = ("promptTokensDetails", "toolUsePromptTokensDetails")
_OUTPUT_DETAILS = ("candidatesTokensDetails",)
_CACHE_DETAILS = ("cacheTokensDetails",)


def _of_modality(usage: dict[str, Any], where: tuple[str, ...], *names: str) -> int | None:
    """Tokens of these modalities; None where the response does not break its tokens down."""
    listed = [entry for name in where for entry in read.as_list(usage.get(name)) if isinstance(entry, dict)]
    if not listed:
        return None
    wanted = (*names, *(number for number, name in _MODALITIES.items() if name in names))
    return sum(read.count(entry.get("tokenCount")) or 0 for entry in listed if entry.get("modality") in wanted)


_MODALITIES = {1: "TEXT", 2: "IMAGE", 3: "VIDEO", 4: "AUDIO", 5: "DOCUMENT"}
"""Enumerations may come as their numbers: https://ai.google.dev/api/generate-content#Modality."""


def _tier(usage: dict[str, Any]) -> str | None:
    """The Gemini API names a tier, Vertex AI a type of traffic, by its word or number."""
    if number := read.count(usage.get("trafficType")):
        return _TRAFFIC.get(number, f"traffic type {number}")
    return (read.as_text(usage.get("serviceTier")) or read.as_text(usage.get("trafficType"))).lower() or None


_TRAFFIC = {1: "on_demand", 2: "provisioned_throughput"}


def _asked_maps(grounding: dict[str, Any]) -> bool:
    chunks = [chunk for chunk in read.as_list(grounding.get("groundingChunks")) if isinstance(chunk, dict)]
    return "googleMapsWidgetContextToken" in grounding or any("maps" in chunk for chunk in chunks)


def _tool_calls(parts: list[dict[str, Any]], response_id: str | None) -> tuple[ToolCall, ...]:
    """The function calls. A part comes whole, so each is closed, unless it says that more of it was to come. Most come without an id:
    one is made of the response's id and the call's number, so that it is the same at each reading and another one in each turn."""
    calls: list[ToolCall] = []
    for part in parts:
        call = part.get("functionCall")
        if isinstance(call, dict):
            made = f"call_{len(calls) + 1}" + (f"_{read.plain_id(response_id)}" if response_id else "")
            calls.append(
                ToolCall(
                    id=read.as_text(call.get("id")) or made,
                    name=read.as_text(call.get("name")),
                    arguments=read.arguments_text(call.get("args"), closed=True),
                    closed=not is_open(call),
                )
            )
    return tuple(calls)


def _joined(parts: list[dict[str, Any]], *, thought: bool) -> str:
    return read.whole_text(
        "".join(part["text"] for part in parts if isinstance(part.get("text"), str) and bool(part.get("thought")) is thought)
    )


_CONFIG_KEYS = frozenset(
    {
        "candidateCount",
        "enableEnhancedCivicAnswers",
        "frequencyPenalty",
        "imageConfig",
        "logprobs",
        "maxOutputTokens",
        "mediaResolution",
        "presencePenalty",
        "responseJsonSchema",
        "responseLogprobs",
        "responseMimeType",
        "responseModalities",
        "responseSchema",
        "seed",
        "speechConfig",
        "stopSequences",
        "temperature",
        "thinkingConfig",
        "topK",
        "topP",
    }
)
"""Fields of `generationConfig`: in `options` they may also stand at the top, so that `temperature` is written alike everywhere."""


def request_body(request: ModelRequest, wire: str) -> bytes:
    """The JSON body. Each message is encoded once in a conversation's life; the fields stand in a fixed order.

    `options` are further fields at the top level. The fields of `generationConfig` may stand in an object of that name or directly
    in `options`; `max_output_tokens` of the request wins over both. Its `tools` are added to the request's own.
    """
    fields = {"contents": read.json_array(encode_messages(request.messages, wire, partial(encode_message, wire=wire)))}
    if request.instructions:
        fields["systemInstruction"] = read.dumps({"parts": [{"text": request.instructions}]})
    if request.tools:
        declarations = (
            b'{"name":%b,"description":%b,"parametersJsonSchema":%b}'
            % (read.dumps(tool.name), read.dumps(tool.description), tool.parameters_json.encode())
            for tool in request.tools
        )
        fields["tools"] = b'[{"functionDeclarations":%b}]' % read.json_array(declarations)
    config = dict(request.options.get("generationConfig") or {})
    config.update({key: value for key, value in request.options.items() if key in _CONFIG_KEYS})
    if request.max_output_tokens is not None:
        config["maxOutputTokens"] = request.max_output_tokens
    if config:
        fields["generationConfig"] = read.dumps(config)
    options = {key: value for key, value in request.options.items() if key not in _CONFIG_KEYS and key != "generationConfig"}
    merge_options(fields, options, reserved=("contents",))
    return read.json_object(fields.items())


def encode_message(message: Message, *, wire: str) -> bytes:
    """One message as JSON; nothing for one with nothing in it, which this wire refuses."""
    if message.role == "tool":
        parts = [_result(result) for result in message.tool_results]
        return read.dumps({"role": "user", "parts": parts}) if parts else b""
    if message.role in ("user", "system"):
        return read.dumps({"role": "user", "parts": [{"text": message.text}]}) if message.text else b""
    if message.native is not None and message.native.wire == wire:
        return read.dumps(message.native.content)
    encoded = [read.dumps({"text": message.text})] if message.text else []
    encoded += [
        b'{"functionCall":{%b"name":%b,"args":%b}}'
        % (
            b'"id":%b,' % read.dumps(call.id) if _sent_id(call.id) else b"",
            read.dumps(call.name),
            read.arguments_object(call.arguments),
        )
        for call in message.tool_calls
    ]
    return b'{"role":"model","parts":%b}' % read.json_array(encoded) if encoded else b""


def _result(result: ToolResult) -> dict[str, JSON]:
    """The vendor's page asks for the key `output`, or `error` where the call failed."""
    body = {"name": result.name, "response": {"error" if result.is_error else "output": result.content}}
    return {"functionResponse": {"id": result.call_id, **body} if _sent_id(result.call_id) else body}


def _sent_id(call_id: str) -> bool:
    """Whether an id goes on this wire: not one that was made here, since the call it belongs to went without (order and name say
    which result is whose), and so no other that looks the same."""
    return bool(call_id) and not call_id.startswith("call_")


PROVIDERS = (Gemini,)
