"""Requests on the Responses wire: the whole conversation as input items, since nothing is expected to be kept by the server.

Vendor pages: https://platform.openai.com/docs/api-reference/responses/create and https://platform.openai.com/docs/guides/reasoning; the
fields were read on 2026-11-22 from the types of the vendor's client (openai 3.54). Of other servers: llama.cpp insists on
`"type": "message"` and on parts of text in the assistant's messages; OpenRouter wants an id and a status there
(https://openrouter.ai/docs/api/reference/responses/basic-usage).

What the providers on the Responses wire share; each of their files says only what differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from agentlab.conversation import encode_messages
from agentlab.http import HttpRequest
from agentlab.providers.base import Capabilities, StreamParser, clean_url, content_headers, merge_options
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import body_message
from agentlab.providers.wires.responses import INCOMPLETE_REASONS, LAST_EVENTS, STATUSES, Origin, read_body
from agentlab.providers.wires.responses_stream import ResponsesStreamParser
from agentlab.shown import Shown
from agentlab.types import JSON, Message, ModelRequest, ModelResponse, ToolCall


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


NOTHING: Mapping[str, JSON] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Responses(Shown):
    """A server on the Responses wire.

    `base_url` is the address up to and without `/responses`. `headers` are further ones, sent with live calls only. Keys and headers
    are never shown. `full_items` says whether the server wants an id and a status in the assistant's turns that it did not write.

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

    name: ClassVar[str]
    wire: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    full_items: ClassVar[bool] = False
    trusted: ClassVar[bool] = True

    model: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "capabilities"):
            cls.capabilities = replace(cls.capabilities, tables=(STATUSES, INCOMPLETE_REASONS, LAST_EVENTS))

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", clean_url(self.base_url, self.name))

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """A POST to `/responses`, with the whole conversation: no `previous_response_id`."""
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
        """A new parser for one stream."""
        return ResponsesStreamParser(self._origin(requested_cap))

    def error_message(self, payload: JSON) -> str:
        """The vendor's own words in an error body, or an empty string."""
        return body_message(payload)

    def _url(self) -> str:
        return f"{self.base_url}/responses"

    def _defaults(self) -> Mapping[str, JSON]:
        """Further fields of the body, which a person's options replace."""
        return NOTHING

    def _origin(self, requested_cap: int | None) -> Origin:
        return Origin(self.name, self.model, self.wire, requested_cap, self.trusted)
