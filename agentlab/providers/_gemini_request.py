"""Gemini's requests: the body of generateContent out of a ModelRequest.

Vendor pages: https://ai.google.dev/api/generate-content and https://ai.google.dev/gemini-api/docs/function-calling; the fields as the
types of the vendor's client (google-genai 3.4) have them, which a test lets read what is sent.
"""

from __future__ import annotations

from functools import partial

from agentlab.conversation import encode_messages
from agentlab.providers import _read as read
from agentlab.providers._request import merge_options
from agentlab.types import JSON, Message, ModelRequest, ToolResult

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
