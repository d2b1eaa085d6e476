"""Requests on the Responses wire: the whole conversation as input items, since nothing is expected to be kept by the server.

Vendor pages: https://platform.openai.com/docs/api-reference/responses/create and https://platform.openai.com/docs/guides/reasoning; the
fields were read on 2026-11-22 from the types of the vendor's client (openai 3.54). Of other servers: llama.cpp insists on
`"type": "message"` and on parts of text in the assistant's messages; OpenRouter wants an id and a status there
(https://openrouter.ai/docs/api/reference/responses/basic-usage).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial

from agentlab.conversation import encode_messages
from agentlab.providers import _read as read
from agentlab.providers._request import merge_options
from agentlab.types import JSON, Message, ModelRequest, ToolCall


def request_body(request: ModelRequest, *, model: str, wire: str, full_items: bool, defaults: Mapping[str, JSON]) -> bytes:
    """The JSON body. Each message is encoded once in a conversation's life; the fields stand in a fixed order.

    `defaults` are further fields, each of which one of the same name in `options` replaces; `options` are further fields at the top
    level, its `tools` are added to the request's own. `full_items` gives the assistant's turns of other wires an id and a status.
    """
    fields = {
        "model": read.dumps(model),
        "input": read.json_array(
            encode_messages(request.messages, wire, partial(encode_message, wire=wire, full_items=full_items))
        ),
    }
    if request.instructions:
        fields["instructions"] = read.dumps(request.instructions)
    if request.tools:
        # Without the word `strict` this wire makes a schema strict: every parameter would be required.
        fields["tools"] = read.json_array(
            b'{"type":"function","name":%b,"description":%b,"parameters":%b,"strict":false}'
            % (read.dumps(tool.name), read.dumps(tool.description), tool.parameters_json.encode())
            for tool in request.tools
        )
    if request.max_output_tokens is not None:
        fields["max_output_tokens"] = read.dumps(request.max_output_tokens)
    fields.update({name: read.dumps(value) for name, value in defaults.items() if name not in request.options})
    if request.stream:
        fields["stream"] = b"true"
    merge_options(fields, request.options, reserved=("model", "input", "stream"))
    return read.json_object(fields.items())


def encode_message(message: Message, *, wire: str, full_items: bool) -> bytes:
    """One message as input items, with commas between; nothing for an empty assistant turn."""
    if message.role == "tool":
        return b",".join(
            read.dumps({"type": "function_call_output", "call_id": result.call_id, "output": result.content})
            for result in message.tool_results
        )
    if message.role in ("user", "system"):
        return read.dumps({"role": message.role, "content": message.text})
    if message.native is not None and message.native.wire == wire:
        return b",".join(read.dumps(item) for item in read.as_list(message.native.content))
    items = [_said(message.text, full=full_items)] if message.text else []
    items += [_called(call, full=full_items) for call in message.tool_calls]
    return b",".join(map(read.dumps, items))


def _said(text: str, *, full: bool) -> dict[str, JSON]:
    if not full:
        return {"type": "message", "role": "assistant", "content": text}
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]  # the same request is the same bytes
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": f"msg_{digest}", "role": "assistant", "status": "completed", "content": [part]}


def _called(call: ToolCall, *, full: bool) -> dict[str, JSON]:
    more = {"id": f"fc_{read.plain_id(call.id)}", "status": "completed"} if full else {}
    arguments = read.arguments_object(call.arguments).decode()
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments, **more}
