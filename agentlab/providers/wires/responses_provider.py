"""The Responses wire: its requests, and the base of the providers that speak it.

A request has the whole conversation as input items, since servers are asked to store nothing.

Vendor pages: https://platform.openai.com/docs/api-reference/responses/create and https://platform.openai.com/docs/guides/reasoning; the
fields were read on 2026-11-22 from the types of the vendor's client (openai 3.54). Of other servers: llama.cpp needs
`"type": "message"` and text parts in the assistant's messages; OpenRouter needs an id and a status there
(https://openrouter.ai/docs/api/reference/responses/basic-usage).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from agentlab.model.conversation import encode_messages
from agentlab.model.messages import JSON, Message, ToolCall
from agentlab.model.requests import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.providers.base import Server, StreamParser, content_headers, merge_options
from agentlab.providers.wires import read
from agentlab.providers.wires.responses import INCOMPLETE_REASONS, LAST_EVENTS, STATUSES, Origin, read_body
from agentlab.providers.wires.responses_stream import ResponsesStreamParser
from agentlab.transport.http import HttpRequest


def request_body(request: ModelRequest, *, model: str, wire: str, full_items: bool, defaults: Mapping[str, JSON]) -> bytes:
    """Return the JSON body, its fields in a fixed order. Each message is encoded once per conversation.

    `options` are further fields at the top level, and its `tools` are added to the request's own; they replace `defaults` of the same
    name. `full_items` gives the assistant's turns of other wires an id and a status.
    """
    items = encode_messages(request.messages, wire, partial(encode_message, wire=wire, full_items=full_items))
    fields = {"model": read.dumps(model), "input": read.json_array(items)}
    if request.instructions:
        fields["instructions"] = read.dumps(request.instructions)
    if request.tools:
        # Without `strict` this wire makes a schema strict, with every parameter required.
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
    """Return one message as input items, separated by commas; nothing for an empty assistant turn."""
    if message.role == "tool":
        return b",".join(
            read.dumps({"type": "function_call_output", "call_id": result.call_id, "output": result.content})
            for result in message.tool_results
        )
    if message.role in ("user", "system"):
        return read.dumps({"role": message.role, "content": message.text})
    if message.native is not None and message.native.wire == wire:
        return b",".join(read.dumps(item) for item in read.as_list(message.native.content))
    items = [_message_item(message.text, full=full_items)] if message.text else []
    items += [_call_item(call, full=full_items) for call in message.tool_calls]
    return b",".join(map(read.dumps, items))


def _message_item(text: str, *, full: bool) -> dict[str, JSON]:
    if not full:
        return {"type": "message", "role": "assistant", "content": text}
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]  # the same request is the same bytes
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": f"msg_{digest}", "role": "assistant", "status": "completed", "content": [part]}


def _call_item(call: ToolCall, *, full: bool) -> dict[str, JSON]:
    more = {"id": f"fc_{read.plain_id(call.id)}", "status": "completed"} if full else {}
    arguments = read.arguments_object(call.arguments).decode()
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments, **more}


@dataclass(frozen=True, slots=True)
class Responses(Server):
    """A server on the Responses wire.

    `base_url` is the address up to and without `/responses`. `headers` are further headers of live calls. Keys and headers are never
    shown. `full_items`: the server needs an id and a status in assistant turns that it did not write. `trusted`: it says `incomplete`
    when it stopped at the cap. `defaults` are further fields of the body, which `options` replace.

    Example:
        >>> from dataclasses import dataclass
        >>> from agentlab.providers import Capabilities, Responses, find_key
        >>> @dataclass(frozen=True, slots=True)
        ... class Kiosk(Responses):
        ...     name = "kiosk-responses"
        ...     wire = "kiosk.responses"
        ...     capabilities = Capabilities()
        ...     base_url: str = "https://kiosk.example/v1"
        ...     def auth_headers(self):
        ...         return {"authorization": "Bearer " + find_key(self.name, self.api_key, ["KIOSK_API_KEY"])}
        >>> lab.Agent(Kiosk(model="small"))
        Agent(kiosk-responses:small, budget=Budget(max_turns=20))
    """

    full_items: ClassVar[bool] = False
    trusted: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, JSON]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "capabilities"):
            cls.capabilities = replace(cls.capabilities, tables=(STATUSES, INCOMPLETE_REASONS, LAST_EVENTS))

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `/responses` with the whole conversation, without `previous_response_id`."""
        return HttpRequest(
            method="POST",
            url=self._url(),
            headers=content_headers(stream=request.stream),
            body=request_body(request, model=self.model, wire=self.wire, full_items=self.full_items, defaults=self._defaults()),
        )

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body."""
        return read_body(payload, self._origin(requested_cap))

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a new parser for one stream."""
        return ResponsesStreamParser(self._origin(requested_cap))

    def _url(self) -> str:
        return f"{self.base_url}/responses"

    def _defaults(self) -> Mapping[str, JSON]:
        return self.defaults

    def _origin(self, requested_cap: int | None) -> Origin:
        return Origin(self.name, self.model, self.wire, requested_cap, self.trusted)
