"""Google Gemini, over generateContent.

Vendor pages: https://ai.google.dev/api/generate-content, https://ai.google.dev/gemini-api/docs/thought-signatures and
https://ai.google.dev/gemini-api/docs/function-calling; finish reasons and the fields of requests and usage were read on 2026-11-22 from
the types of the vendor's client (google-genai 3.4). The numbers of the finish reasons:
https://docs.cloud.google.com/ruby/docs/reference/google-cloud-ai_platform-v1/0.56.0/Google-Cloud-AIPlatform-V1-Candidate-FinishReason,
read 2026-11-22.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError
from agentlab.model.conversation import encode_messages
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON, Message, ModelRequest, NativeContent, OutputForm, ToolCall, ToolResult
from agentlab.model.parts import Part
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Usage, UsageSource
from agentlab.providers.base import (
    Capabilities,
    GoogleCloud,
    Server,
    StreamParser,
    clean_url,
    content_headers,
    find_key,
    merge_options,
    place_version,
    refuse_lacking,
)
from agentlab.providers.gemini_stream import GeminiStreamParser, is_open, unwrapped
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended, Facts, Table, find_error, judge, log_unknown, raw_value
from agentlab.providers.wires.media import PDF, Takes
from agentlab.transport.http import HttpRequest

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
KEY_VARIABLES = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_NOT_WITH_TOOLS = re.compile(r"(?:models/)?gemini-[12]\b")
"""Models that refuse structured output in a request with tools:
https://ai.google.dev/gemini-api/docs/structured-output, read 2026-11-23."""

_NAMED_REASONS: dict[str | int, FinishReason] = {
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
    # An image was expected, but none was generated: google-genai 3.4, `FinishReason`, read 2026-11-29.
    "NO_IMAGE": FinishReason.UNKNOWN,
    "UNEXPECTED_TOOL_CALL": FinishReason.ERROR,
    "TOO_MANY_TOOL_CALLS": FinishReason.ERROR,
    "MISSING_THOUGHT_SIGNATURE": FinishReason.ERROR,
    "MALFORMED_RESPONSE": FinishReason.ERROR,
    # Only on Vertex AI, or for some accounts.
    "ESCALATION": FinishReason.CONTENT_FILTERED,
    "MODEL_ARMOR": FinishReason.CONTENT_FILTERED,
    "PUP_LIMITED_DISABLED": FinishReason.ERROR,
    "CONTINUATION": FinishReason.MAX_TOKENS,
}

_NUMBERS = {0: "FINISH_REASON_UNSPECIFIED", 1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}
"""Enumerations may be sent as numbers. Numbers above 5 differ between Google's two services, so they are unknown."""

FINISH_REASONS = Table(
    field="candidates[].finishReason",
    reasons={**_NAMED_REASONS, **{number: _NAMED_REASONS[name] for number, name in _NUMBERS.items()}},
    stop_with_calls=True,
    repairable=frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"}),
)

_BLOCKED = ("SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK", 1, 2, 3, 4, 5)
BLOCK_REASONS = Table(field="promptFeedback.blockReason", reasons=dict.fromkeys(_BLOCKED, FinishReason.CONTENT_FILTERED))
"""Why the prompt was blocked."""

_NOT_BLOCKED = ("BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED")


@dataclass(frozen=True, slots=True)
class Gemini(Server):
    """The Gemini API, or a server that speaks its wire at `base_url` (up to and without `/models`).

    `api_version` replaces the version at the end of `base_url`. `headers` are additional headers for live calls. Keys and headers are
    never shown.
    """

    name: ClassVar[str] = "gemini"
    wire: ClassVar[str] = "gemini.generate"
    capabilities: ClassVar[Capabilities] = Capabilities(tables=(FINISH_REASONS, BLOCK_REASONS))

    base_url: str = BASE_URL
    api_version: str | None = None

    def __post_init__(self) -> None:
        base_url, version = place_version(clean_url(self.base_url, self.name), self.api_version, self.name)
        object.__setattr__(self, "base_url", base_url)
        object.__setattr__(self, "api_version", version)

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return `schema`, or `tool` where tools and structured output exclude each other."""
        return "tool" if with_tools and _NOT_WITH_TOOLS.match(self.model) else "schema"

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `:generateContent` or `:streamGenerateContent?alt=sse`; see `request_body` for `options`. Raises
        ConfigurationError for a parameter that the wire or the model does not have."""
        refuse_lacking(request.parameters, ("parallel_tool_calls=False",), self.name)
        method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        return HttpRequest(
            method="POST",
            url=f"{self.base_url}/{self._path()}:{method}",
            headers=content_headers(stream=request.stream),
            body=TAKES.check_request(request_body(request, self.wire, self.model)),
        )

    def _path(self) -> str:
        return self.model if "/" in self.model else f"models/{self.model}"

    def auth_headers(self) -> dict[str, str]:
        """Return the key as `x-goog-api-key`. Raises MissingKeyError."""
        return {**self.headers, "x-goog-api-key": find_key(self.name, self.api_key, KEY_VARIABLES)}

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body."""
        return read_body(payload, self.model, requested_cap, provider=self.name, wire=self.wire)

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a new parser for one stream."""
        return GeminiStreamParser(
            lambda body, ended, damaged: read_body(
                body, self.model, requested_cap, provider=self.name, wire=self.wire, ended=ended, damaged=damaged
            )
        )


# Responses -----------------------------------------------------------------------------------------------------------------


_CALL: read.Fields = {"name": read.TEXT, "args": (*read.TEXT, dict), "id": read.TEXT}  # text is the beginning of an object
_PART: read.Fields = {"text": read.TEXT, "thought": (read.NULL, bool), "functionCall": (read.NULL, _CALL)}
_CANDIDATE: read.Fields = {"content": (read.NULL, {"parts": (read.NULL, [_PART])})}


def read_body(
    payload: JSON, model: str, cap: int | None, *, provider: str, wire: str, ended: Ended = "whole", damaged: bool = False
) -> ModelResponse:
    """Read a whole body, or one assembled from a stream."""
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
        complete_calls=all(call.closed and read.is_json_object(call.arguments) for call in calls),
        answered=bool(text or calls),
        ended=ended,
        damaged=damaged,
        misfit=read.misfit(candidate, _CANDIDATE, "candidates[]"),
        output_tokens=usage.output_tokens,
        requested_cap=cap,
        error=find_error(payload),
        message=read.as_text(candidate.get("finishMessage")),
        metadata=safety_ratings(body, candidate),
    )
    return ModelResponse(
        text=text,
        signal=_signal(body, candidate, facts, model, provider),
        tool_calls=calls,
        usage=usage,
        reasoning=_joined(parts, thought=True),
        model=read.some_text(body.get("modelVersion")),
        response_id=response_id,
        native=NativeContent(wire=wire, content={"role": "model", "parts": parts}) if parts else None,
        raw=payload,
    )


def first_candidate(body: dict[str, Any]) -> dict[str, Any]:
    """Return the candidate with index 0, else the first. Further ones are in `raw` only."""
    candidates = [candidate for candidate in read.as_list(body.get("candidates")) if isinstance(candidate, dict)]
    return next((candidate for candidate in candidates if not candidate.get("index")), candidates[0] if candidates else {})


def _signal(body: dict[str, Any], candidate: dict[str, Any], facts: Facts, model: str, provider: str) -> TerminationSignal:
    finish = candidate.get("finishReason")
    feedback = read.as_dict(body.get("promptFeedback"))
    blocked = feedback.get("blockReason")
    if finish is None and facts.error is None and blocked and blocked not in _NOT_BLOCKED:
        return _blocked(blocked, feedback, model, provider, answered=bool(candidate), metadata=facts.metadata)
    return judge(FINISH_REASONS, finish, facts, provider=provider, model=model)


_NEGLIGIBLE = (None, 0, 1, "HARM_PROBABILITY_UNSPECIFIED", "NEGLIGIBLE")
_PROBABILITIES: dict[str | int | None, JSON] = {2: "LOW", 3: "MEDIUM", 4: "HIGH"}


def safety_ratings(body: dict[str, Any], candidate: dict[str, Any]) -> dict[str, JSON]:
    """Return the probability of each category of harm that is not negligible, or that blocked, of the answer and of the prompt:
    https://ai.google.dev/api/generate-content#v1beta.SafetyRating, read 2026-11-29."""
    found: dict[str, JSON] = {}
    for name, rated in (("safety_ratings", candidate), ("prompt_safety_ratings", read.as_dict(body.get("promptFeedback")))):
        ratings = [rating for rating in read.as_list(rated.get("safetyRatings")) if isinstance(rating, dict)]
        harms = {
            str(raw_value(rating.get("category"))): _PROBABILITIES.get(probability, probability)
            for rating in ratings
            if (probability := raw_value(rating.get("probability"))) not in _NEGLIGIBLE or rating.get("blocked") is True
        }
        if harms:
            found[name] = harms
    return found


def _blocked(
    reason: JSON, feedback: dict[str, Any], model: str, provider: str, *, answered: bool, metadata: Mapping[str, JSON]
) -> TerminationSignal:
    """Return the signal of a blocked prompt, whatever the reason."""
    raw = raw_value(reason)
    documented = raw in BLOCK_REASONS.reasons
    if not documented and raw is not None:
        log_unknown(provider, model, raw)
    return TerminationSignal(
        finish_reason=FinishReason.CONTENT_FILTERED,
        confidence=Confidence.HIGH if documented and not answered else Confidence.MEDIUM,
        provider=provider,
        raw_field="promptFeedback.blockReason",
        raw_value=raw,
        message=read.as_text(feedback.get("blockReasonMessage")) or f"The prompt was blocked ({raw}).",
        metadata=metadata,
        model=model,
    )


def read_usage(reported: JSON, grounding: dict[str, Any] | None = None) -> Usage:
    """Return the usage in the form of `Usage`.

    Tokens of thoughts are added to those of the candidates, and the input of server-side tools to that of the prompt, which includes
    cache reads. This API leaves out fields that are zero: the total distinguishes a zero from an unknown count, and a modality that is
    not listed was not used. `grounding` lists the searches: https://ai.google.dev/gemini-api/docs/google-search, read 2026-11-23.
    Documents count as images, as in the price list.
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
        input_audio_tokens=_modality_tokens(usage, _PROMPT_DETAILS, "AUDIO"),
        output_audio_tokens=_modality_tokens(usage, _OUTPUT_DETAILS, "AUDIO"),
        cache_read_audio_tokens=_modality_tokens(usage, _CACHE_DETAILS, "AUDIO"),
        input_image_tokens=_modality_tokens(usage, _PROMPT_DETAILS, "IMAGE", "DOCUMENT"),
        output_image_tokens=_modality_tokens(usage, _OUTPUT_DETAILS, "IMAGE", "DOCUMENT"),
        cache_read_image_tokens=_modality_tokens(usage, _CACHE_DETAILS, "IMAGE", "DOCUMENT"),
        input_video_tokens=_modality_tokens(usage, _PROMPT_DETAILS, "VIDEO"),
        web_searches=len(read.as_list((grounding or {}).get("webSearchQueries"))),
        service_tier=_tier(usage),
        also_charged=("search in Google Maps",) if _used_maps(grounding or {}) else (),
    )


_PROMPT_DETAILS = ("promptTokensDetails", "toolUsePromptTokensDetails")
_OUTPUT_DETAILS = ("candidatesTokensDetails",)
_CACHE_DETAILS = ("cacheTokensDetails",)


def _modality_tokens(usage: dict[str, Any], where: tuple[str, ...], *names: str) -> int | None:
    """Return the tokens of these modalities; None if the response does not list tokens by modality."""
    listed = [entry for name in where for entry in read.as_list(usage.get(name)) if isinstance(entry, dict)]
    if not listed:
        return None
    wanted = (*names, *(number for number, name in _MODALITIES.items() if name in names))
    return sum(read.count(entry.get("tokenCount")) or 0 for entry in listed if entry.get("modality") in wanted)


_MODALITIES = {1: "TEXT", 2: "IMAGE", 3: "VIDEO", 4: "AUDIO", 5: "DOCUMENT"}
"""Enumerations may be sent as numbers: https://ai.google.dev/api/generate-content#Modality."""


def _tier(usage: dict[str, Any]) -> str | None:
    """Return the Gemini API's tier, or Vertex AI's type of traffic, which is a word or a number."""
    if number := read.count(usage.get("trafficType")):
        return _TRAFFIC.get(number, f"traffic type {number}")
    return (read.as_text(usage.get("serviceTier")) or read.as_text(usage.get("trafficType"))).lower() or None


_TRAFFIC = {1: "on_demand", 2: "provisioned_throughput"}


def _used_maps(grounding: dict[str, Any]) -> bool:
    chunks = [chunk for chunk in read.as_list(grounding.get("groundingChunks")) if isinstance(chunk, dict)]
    return "googleMapsWidgetContextToken" in grounding or any("maps" in chunk for chunk in chunks)


def _tool_calls(parts: list[dict[str, Any]], response_id: str | None) -> tuple[ToolCall, ...]:
    """Return the function calls. A part is sent whole, so each call is closed unless it announces more. Most calls have no id: it is
    then derived from the response's id and the call's number, so that it is always the same for this response, and unique in a run."""
    calls: list[ToolCall] = []
    for part in parts:
        call = part.get("functionCall")
        if isinstance(call, dict):
            derived_id = f"call_{len(calls) + 1}" + (f"_{read.plain_id(response_id)}" if response_id else "")
            closed = not is_open(call)
            calls.append(
                ToolCall(
                    id=read.as_text(call.get("id")) or derived_id,
                    name=read.as_text(call.get("name")),
                    arguments=read.arguments_text(call.get("args"), closed=closed),
                    closed=closed,
                )
            )
    return tuple(calls)


def _joined(parts: list[dict[str, Any]], *, thought: bool) -> str:
    return read.whole_text(
        "".join(part["text"] for part in parts if isinstance(part.get("text"), str) and bool(part.get("thought")) is thought)
    )


# Requests ------------------------------------------------------------------------------------------------------------------

_CONFIG_KEYS = frozenset(
    [
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
    ]
)
"""Fields of `generationConfig` that may also be at the top level of `options`, as with other providers."""


_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
"""The wire's names of tool choices, as the types of the vendor's client (google-genai 3.4) list them."""

_WITH_BUDGET = re.compile(r"(.*/)?gemini-[12]\b")
_LEVELS = ("minimal", "low", "medium", "high", "xhigh")


def _thinking(effort: str, model: str) -> dict[str, JSON]:
    """Return the fields for a reasoning effort. Models before Gemini 3 have a budget in tokens instead, of which 0 is the only one
    with a meaning of its own. Raises ConfigurationError for an effort that the model does not have."""
    if _WITH_BUDGET.match(model):
        if effort == "none":
            return {"thinkingBudget": 0}
        how = 'options={"thinkingConfig": {"thinkingBudget": 4096}}'
        raise ConfigurationError(f"reasoning_effort={effort!r}: {model} takes a number of tokens instead. Pass {how}.")
    if effort not in _LEVELS:
        raise ConfigurationError(f"reasoning_effort={effort!r}: {model} takes {', '.join(_LEVELS)}. Choose one of them.")
    return {"thinkingLevel": effort.upper()}


def request_body(request: ModelRequest, wire: str, model: str) -> bytes:
    """Return the JSON body, its fields in a fixed order. Each message is encoded once per conversation.

    `options` are additional top-level fields. Fields of `generationConfig` may be in an object of that name or directly in `options`;
    the request's `max_output_tokens` takes precedence over both. `tools` are added to the request's own, and so are the fields of
    `toolConfig.functionCallingConfig`, of which `tool_choice` takes precedence.
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
    asked = request.parameters
    config.update({name: value for name in ("temperature", "seed") if (value := getattr(asked, name)) is not None})
    if asked.reasoning_effort is not None:
        config["thinkingConfig"] = {**(config.get("thinkingConfig") or {}), **_thinking(asked.reasoning_effort, model)}
    if request.tools and asked.tool_choice is not None:
        named = {} if asked.tool_choice in _MODES else {"allowedFunctionNames": [asked.tool_choice]}
        calling = {**_calling_options(request.options), "mode": _MODES.get(asked.tool_choice, "ANY"), **named}
        fields["toolConfig"] = read.dumps({"functionCallingConfig": calling})
    if request.output_schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": request.output_schema}
    if config:
        fields["generationConfig"] = read.dumps(config)
    options = {key: value for key, value in request.options.items() if key not in _CONFIG_KEYS and key != "generationConfig"}
    merge_options(fields, options, reserved=("contents",))
    return read.json_object(fields.items())


def _calling_options(options: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the options for function calls, such as `streamFunctionCallArguments`, without those that `tool_choice` sets."""
    given = read.as_dict(read.as_dict(options.get("toolConfig")).get("functionCallingConfig"))
    return {name: value for name, value in given.items() if name not in ("mode", "allowedFunctionNames")}


def encode_message(message: Message, *, wire: str) -> bytes:
    """Return one message as JSON; empty bytes for an empty message, which this wire refuses."""
    if message.role == "tool":
        parts = [_result(result) for result in message.tool_results]
        return read.dumps({"role": "user", "parts": parts}) if parts else b""
    if message.role in ("user", "system"):
        parts = [_part(piece) for piece in message.pieces] if message.parts else [{"text": message.text}]
        return read.dumps({"role": "user", "parts": parts}) if message.text else b""
    if message.native is not None and message.native.wire == wire:
        return read.dumps(message.native.content)
    encoded = [read.dumps({"text": message.text})] if message.text else []
    encoded += [
        b'{"functionCall":{%b"name":%b,"args":%b}%b}'
        % (
            b'"id":%b,' % read.dumps(call.id) if _sent_id(call.id) else b"",
            read.dumps(call.name),
            read.arguments_object(call.arguments),
            _NO_SIGNATURE if number == 0 else b"",
        )
        for number, call in enumerate(message.tool_calls)
    ]
    return b'{"role":"model","parts":%b}' % read.json_array(encoded) if encoded else b""


_NO_SIGNATURE = b',"thoughtSignature":"%b"' % base64.b64encode(b"skip_thought_signature_validator")
"""For the first call of a turn that another model wrote; without it, Gemini 3 refuses the request:
https://ai.google.dev/gemini-api/docs/thought-signatures, read 2026-11-28; the same bytes as in pydantic-ai 2.68."""


def _result(result: ToolResult) -> dict[str, JSON]:
    """Return a result under the key `output`, or `error` for a failed call, as the vendor documents."""
    body: dict[str, JSON] = {"name": result.name, "response": {"error" if result.is_error else "output": result.content}}
    if parts := [_part(piece, in_result=True) for piece in result.pieces if isinstance(piece, Part)]:
        body["parts"] = parts
    return {"functionResponse": {"id": result.call_id, **body} if _sent_id(result.call_id) else body}


TAKES = Takes(
    "Gemini",
    {
        "image": ("image/png", "image/jpeg", "image/webp"),
        "document": PDF,
        "audio": ("audio/wav", "audio/mp3", "audio/flac", "audio/ogg", "audio/aac", "audio/aiff"),
    },
    urls=("image", "document", "audio"),
    results=("image", "document"),
    most_bytes={"document": 50 * 10**6},
    request_bytes=100 * 2**20,
)
"""https://ai.google.dev/gemini-api/docs/image-understanding, …/document-processing, …/audio and …/function-calling (parts of a result:
Gemini 3 and later); the shapes are those of the vendor's client (google-genai 3.4). Sizes: …/file-input-methods (2026-11-24)."""


def _part(piece: str | Part, *, in_result: bool = False) -> dict[str, JSON]:
    if isinstance(piece, str):
        return {"text": piece}
    TAKES.check(piece, in_result=in_result)
    mime = {"mimeType": piece.media_type} if piece.media_type else {}
    return {"fileData": {**mime, "fileUri": piece.url}} if piece.url else {"inlineData": {**mime, "data": piece.base64}}


def _sent_id(call_id: str) -> bool:
    """True if the id came from the server. Derived ids are not sent: order and name match results to calls."""
    return bool(call_id) and not call_id.startswith("call_")


@dataclass(frozen=True, slots=True)
class GeminiVertex(GoogleCloud, Gemini):
    """Gemini on Google Cloud's Vertex AI.

    `project` is that of GOOGLE_CLOUD_PROJECT if it is not given, and `location` that of GOOGLE_CLOUD_LOCATION, else `global`. Live
    calls send `api_key`, an access token, or one for the application default credentials, which needs
    `pip install 'agentlab-jupyter[vertex]'`. A `model` with a slash is the path of a tuned model or an endpoint.
    """

    name: ClassVar[str] = "gemini-vertex"
    wire: ClassVar[str] = "gemini-vertex.generate"  # neither service takes a signature of the other
    base_url: str = ""
    project: str = ""
    location: str = ""

    def __post_init__(self) -> None:
        self.find_place()
        Gemini.__post_init__(self)

    def _path(self) -> str:
        place = self.place()
        return f"{place}/{self.model}" if "/" in self.model else f"{place}/publishers/google/models/{self.model}"


PROVIDERS = (Gemini, GeminiVertex)
