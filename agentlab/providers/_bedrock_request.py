"""Bedrock's requests: the body of Converse out of a ModelRequest.

Vendor page: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html, read 2026-11-22; the fields as the
vendor's service model (botocore 1.44) has them, whose validation a test lets loose on what is sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import partial

from agentlab.conversation import encode_messages
from agentlab.providers import _read as read
from agentlab.providers._request import merge_options
from agentlab.types import JSON, Message, ModelRequest, ToolResult

_CONFIG_KEYS = frozenset({"maxTokens", "stopSequences", "temperature", "topP"})
"""Fields of `inferenceConfig`: in `options` they may also stand at the top, so that `temperature` is written alike everywhere."""

_LONGEST_NAME = 64
_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_.:-]")
_USER, _ASSISTANT = b'{"role":"user","content":[', b'{"role":"assistant","content":['
_END = b"]}"


def request_body(request: ModelRequest, wire: str) -> bytes:
    """The JSON body. Each message is encoded once in a conversation's life; the fields stand in a fixed order.

    `options` are further fields at the top level. The fields of `inferenceConfig` may stand in an object of that name or directly
    in `options`; `max_output_tokens` of the request wins over both. The tools of its `toolConfig` and the blocks of its
    `system` (cache points, the vendor's own tools) are added to the request's own.
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
    if config:
        fields["inferenceConfig"] = read.dumps(config)
    merge_options(fields, options, reserved=("messages", "modelId", "stream"))
    return read.json_object(fields.items())


def _tool_config(request: ModelRequest, options: Mapping[str, JSON]) -> bytes:
    """The request's own tools, then those of `options`; the rest of that `toolConfig` is merged with all the other options."""
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
    return b'{"tools":%b}' % read.json_array([*tools, *map(read.dumps, read.as_list(more))])


def _alternating(messages: Iterable[bytes]) -> list[bytes]:
    """The messages, those of one role that follow each other put into one: this wire wants the roles to take turns."""
    found: list[bytes] = []
    for message in messages:
        head = _USER if message.startswith(_USER) else _ASSISTANT
        if message and found and found[-1].startswith(head):
            found[-1] = found[-1][: -len(_END)] + b"," + message[len(head) :]
        elif message:
            found.append(message)
    return found


def encode_message(message: Message, *, wire: str) -> bytes:
    """One message as JSON; nothing for one with nothing in it, which this wire refuses."""
    if message.role == "tool":
        return _encoded(_USER, [read.dumps({"toolResult": _result(result)}) for result in message.tool_results])
    if message.role in ("user", "system"):
        return _encoded(_USER, [read.dumps({"text": message.text})] if message.text.strip() else [])
    if message.native is not None and message.native.wire == wire:
        return _encoded(_ASSISTANT, map(read.dumps, read.as_list(message.native.content)))
    blocks = [read.dumps({"text": message.text})] if message.text.strip() else []
    blocks += [
        b'{"toolUse":{"toolUseId":%b,"name":%b,"input":%b}}'
        % (read.dumps(tool_use_id(call.id)), read.dumps(_name(call.name)), read.arguments_object(call.arguments))
        for call in message.tool_calls
    ]
    return _encoded(_ASSISTANT, blocks)


def _encoded(head: bytes, blocks: Iterable[bytes]) -> bytes:
    content = b",".join(blocks)
    return head + content + _END if content else b""


def _result(result: ToolResult) -> dict[str, JSON]:
    block = {"toolUseId": tool_use_id(result.call_id), "content": [{"text": result.content}]}
    return {**block, "status": "error"} if result.is_error else block  # some models take no status at all


def tool_use_id(call_id: str) -> str:
    """A tool call's id in the letters and the length that this wire accepts; those of its own stay as they are."""
    plain = _NOT_IN_ID.sub("_", call_id)
    if len(plain) <= _LONGEST_NAME:
        return plain
    told_apart = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{plain[: _LONGEST_NAME - 17]}_{told_apart}"


def _name(name: str) -> str:
    """A tool's name that this wire accepts, also where a model made one up."""
    return read.plain_id(name)[:_LONGEST_NAME] or "unnamed"
