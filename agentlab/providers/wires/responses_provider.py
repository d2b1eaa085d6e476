"""The Responses wire: its requests, its stream parser, and the base class of the providers that speak it.

A request has the whole conversation as input items, since it asks the server to store nothing.

Vendor pages: https://platform.openai.com/docs/api-reference/responses/create and https://platform.openai.com/docs/guides/reasoning; the
fields were read on 2026-11-22 from the types of the vendor's client (openai 3.54). Among other servers, llama.cpp needs
`"type": "message"` and text parts in the assistant's messages, and OpenRouter needs an id and a status there
(https://openrouter.ai/docs/api/reference/responses/basic-usage).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from agentlab._internal.values import dataclass
from agentlab.model.conversation import encode_messages
from agentlab.model.messages import JSON, TOOL_CHOICES, Message, ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.providers.base import Server, StreamParser, content_headers, merge_options, refuse_lacking
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Ended
from agentlab.providers.wires.responses import (
    INCOMPLETE_REASONS,
    LAST_EVENTS,
    STATUSES,
    Item,
    Origin,
    call_id_of,
    items_of,
    part_to_send,
    read_body,
    weight,
)
from agentlab.providers.wires.stream import BROKEN, MISSING, BodyParser
from agentlab.transport.http import HttpRequest


def request_body(
    request: ModelRequest, *, model: str, wire: str, full_items: bool, system_anywhere: bool, defaults: Mapping[str, JSON]
) -> bytes:
    """Return the JSON body, its fields in a fixed order. Each message is encoded once per conversation.

    `options` are additional top-level fields, which replace `defaults` of the same name; its `tools` are added to the request's own.
    `full_items` gives the assistant's turns from other wires an id and a status.
    """
    encode = partial(encode_message, wire=wire, full_items=full_items, system_anywhere=system_anywhere)
    items = encode_messages(request.messages, wire, encode)
    fields = {"model": read.dumps(model), "input": read.json_array(items)}
    if request.instructions:
        fields["instructions"] = read.dumps(request.instructions)
    if request.tools:
        # Without `strict`, this wire treats a schema as strict, with every parameter required.
        fields["tools"] = read.json_array(
            b'{"type":"function","name":%b,"description":%b,"parameters":%b,"strict":false}'
            % (read.dumps(tool.name), read.dumps(tool.description), tool.parameters_json.encode())
            for tool in request.tools
        )
    if request.max_output_tokens is not None:
        fields["max_output_tokens"] = read.dumps(request.max_output_tokens)
    if request.output_schema is not None:
        schema = {"type": "json_schema", "name": "final_answer", "schema": request.output_schema, "strict": True}
        fields["text"] = read.dumps({"format": schema})
    fields.update({name: read.dumps(value) for name, value in defaults.items() if name not in request.options})
    fields.update({name: read.dumps(value) for name, value in _parameters(request).items()})
    if request.stream:
        fields["stream"] = b"true"
    merge_options(fields, request.options, reserved=("model", "input", "stream"))
    return read.json_object(fields.items())


def _parameters(request: ModelRequest) -> dict[str, JSON]:
    """Return the fields of the request's parameters. Types of the vendor's client: openai 3.54, `ResponseCreateParams`."""
    asked = request.parameters
    found: dict[str, JSON] = {"temperature": asked.temperature}
    if asked.reasoning_effort is not None:
        found["reasoning"] = {"effort": asked.reasoning_effort}
    if request.tools:
        choice = asked.tool_choice
        named = choice is not None and choice not in TOOL_CHOICES
        found["tool_choice"] = {"type": "function", "name": choice} if named else choice
        found["parallel_tool_calls"] = asked.parallel_tool_calls
    return {name: value for name, value in found.items() if value is not None}


def encode_message(message: Message, *, wire: str, full_items: bool, system_anywhere: bool) -> bytes:
    """Return one message as input items, separated by commas; empty bytes for an empty assistant turn."""
    if message.role == "tool":
        return b",".join(
            read.dumps(
                {
                    "type": "function_call_output",
                    "call_id": result.call_id,
                    "output": [part_to_send(piece, in_result=True) for piece in result.pieces]
                    if result.parts
                    else result.content,
                }
            )
            for result in message.tool_results
        )
    if message.role in ("user", "system"):
        content = [part_to_send(piece) for piece in message.pieces] if message.parts else message.text
        return read.dumps({"role": message.role if system_anywhere else "user", "content": content})
    if message.native is not None and message.native.wire == wire:
        return b",".join(read.dumps(item) for item in read.as_list(message.native.content))
    items = [_message_item(message.text, full=full_items)] if message.text else []
    items += [_call_item(call, full=full_items) for call in message.tool_calls]
    return b",".join(map(read.dumps, items))


def _message_item(text: str, *, full: bool) -> dict[str, JSON]:
    if not full:
        return {"type": "message", "role": "assistant", "content": text}
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]  # so that equal requests have equal bytes
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": f"msg_{digest}", "role": "assistant", "status": "completed", "content": [part]}


def _call_item(call: ToolCall, *, full: bool) -> dict[str, JSON]:
    more = {"id": f"fc_{read.plain_id(call.id)}", "status": "completed"} if full else {}
    arguments = read.arguments_object(call.arguments).decode()
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments, **more}


@dataclass(frozen=True, slots=True)
class Responses(Server):
    """A server on the Responses wire.

    `base_url` is the address up to and without `/responses`. `headers` are additional headers for live calls. Keys and headers are
    never shown. `full_items`: the server needs an id and a status in assistant turns that it did not write. `trusted`: it sends
    `incomplete` when it stops at the cap. `system_anywhere`: every model takes a system message after others. `defaults` are additional
    fields of the body, which `options` replace.

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
    system_anywhere: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, JSON]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "capabilities"):
            cls.capabilities = replace(cls.capabilities, tables=(STATUSES, INCOMPLETE_REASONS, LAST_EVENTS))

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `/responses` with the whole conversation, without `previous_response_id`. Raises ConfigurationError for a
        seed, which this wire does not have."""
        refuse_lacking(request.parameters, ("seed",), self.name)
        return HttpRequest(
            method="POST",
            url=self._url(),
            headers=content_headers(stream=request.stream),
            body=request_body(
                request,
                model=self.model,
                wire=self.wire,
                full_items=self.full_items,
                system_anywhere=self.system_anywhere,
                defaults=self._defaults(),
            ),
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


# Streams ------------------------------------------------------------------------------------------------------------------------
#
# Read 2026-11-22 from https://platform.openai.com/docs/api-reference/responses-streaming and the types of the vendor's client (openai
# 3.54); recorded responses show which parts of the events other servers leave out. The last event carries the whole response, whose
# output is used. But some servers leave that output empty, or shorter than they streamed it, and a stream may break off: the output is
# then assembled from the earlier events.

_SNAPSHOTS = ("response.created", "response.in_progress", "response.queued")
_LAST = (*LAST_EVENTS.reasons, "response.cancelled", "response.done")
_FINISHED = ("completed", "incomplete", "failed", "cancelled")


class ResponsesStreamParser(BodyParser):
    """Parses one stream of events."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        super().__init__()

    def _clear(self) -> None:
        self._body: dict[str, Any] = {}
        self._items: list[ItemPieces] = []
        self._at: dict[int, ItemPieces] = {}
        self._calls = 0
        self._last: dict[str, Any] | None = None
        self._whole: dict[str, Any] | None = None
        self._paragraph: tuple[int, str, int] | None = None
        self._next_number: int | None = None
        self._gaps = False

    def _take(self, name: bytes, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        kind = chunk.get("type") or name.decode("utf-8", "replace")
        if not isinstance(kind, str):
            return
        if self._last is not None and kind == "response.created":
            self._begin_another(chunk)
        number = chunk.get("sequence_number")
        if isinstance(number, int):  # some servers number only some events
            if self._next_number is not None and number != self._next_number:
                self._record_gap()
            self._next_number = number + 1
        if kind in PIECES:
            self._damaged = self._damaged or self._last is not None  # after the end
            self._piece(kind, chunk, events)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._damaged = self._damaged or self._last is not None
            self._item(kind, chunk, events)
        elif kind == "response.content_part.done":
            item = self._which(chunk, "message")
            item.parts[read.count(chunk.get("content_index")) or 0] = read.as_dict(chunk.get("part"))
        elif kind in _SNAPSHOTS:
            self._body.update(read.as_dict(chunk.get("response")))
        elif kind in _LAST:
            self._end(kind, read.as_dict(chunk.get("response")), events)
        elif chunk.get("object") == "error" or kind == "error":
            self._fail(chunk, events)
        elif chunk.get("object") == "response" or (not kind and "output" in chunk):  # the server did not stream
            self._whole = chunk

    def _begin_another(self, chunk: dict[str, Any]) -> None:
        """Begin another response in the same stream, since some recorders join the responses of a run: the items of all are collected,
        the last one has the finish reason, and the confidence is lower."""
        self._damaged = True
        if read.as_dict(chunk.get("response")).get("id") != read.as_dict(self._last).get("id"):
            self._last, self._next_number, self._done = None, None, False
            self._at.clear()

    def _record_gap(self) -> None:
        """Record that events are missing or misplaced, which does not matter if the last event carries the whole output."""
        self._gaps, damaged = True, self._damaged
        self._record_loss(MISSING)
        self._damaged = damaged

    def _end(self, kind: str, response: dict[str, Any], events: list[StreamEvent]) -> None:
        self._done = True
        status = response.get("status")
        if not isinstance(status, str) or status not in _FINISHED:
            response = {**response, "type": kind}  # the event's type replaces the status
        self._last = response
        events.append(SignalSeen(self._signal_now()))

    def _fail(self, error: JSON, events: list[StreamEvent]) -> None:
        if isinstance(error, dict) and error.get("type") == "error":  # the event itself, whose type is not the error's
            error = {key: value for key, value in error.items() if key not in ("type", "sequence_number")} or "error"
        super()._fail(error, events)

    def _item(self, kind: str, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        """Add an item that begins or is done, and emit item text that has not been streamed yet."""
        fields = read.as_dict(chunk.get("item"))
        if not isinstance(chunk.get("item"), dict | None):
            self._record_loss(BROKEN)
        index = chunk.get("output_index")
        if kind == "response.output_item.added":
            known = self._begun_before(index, fields)
            if known is not None:
                self._doubtful, known.headless = True, False  # pieces of the item arrived first, or the event is repeated
                known.fields.update(fields)
                return
            item = self._begin(index, fields)
        else:
            item = self._which(chunk, read.as_text(fields.get("type")) or "message", item_id=fields.get("id"))
            item.final = {**item.fields, **fields}
        if item.call is not None:
            arguments = fields.get("arguments") if not item.pieces else None
            text = arguments if isinstance(arguments, str) else "" if arguments is None else read.dumps(arguments).decode()
            if text or kind == "response.output_item.added" or not item.emitted:
                item.emitted = True
                if text:
                    item.pieces["arguments", 0] = [text]
                events.append(ToolCallDelta(item.call, item.call_id(), item.name(), text))
        elif item.final is not None and not item.pieces:
            for field, part, text in item.parts_of(item.final):
                self._emit(item, (field, part), text, events)

    def _piece(self, kind: str, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        """Add a piece of an item, or a whole field, which is emitted if none of its pieces was."""
        field, key, place = PIECES[kind]
        text = chunk.get(key)
        item = self._which(chunk, TYPES[field])
        part = chunk.get(place)
        spot = field, part if type(part) is int else 0
        if key != "delta":
            if field == "arguments":
                item.closed = True
            known = item.pieces.get(spot)
            item.done.add(spot)
            if known is None and not isinstance(text, str | None):
                self._record_loss(BROKEN)
            if not isinstance(text, str) or (known is not None and not _is_better(field, text, "".join(known))):
                return
            if known:
                item.pieces[spot] = [text]  # pieces were lost, repeated or out of order
                return
        elif spot in item.done:
            self._damaged = True  # a late piece
        if not isinstance(text, str):
            if text is not None:
                self._record_loss(BROKEN)
            return
        self._emit(item, spot, text, events)

    def _emit(self, item: ItemPieces, spot: tuple[str, int], text: str, events: list[StreamEvent]) -> None:
        """Record a piece and emit its event."""
        item.pieces.setdefault(spot, []).append(text)
        if not text:
            return
        field = spot[0]
        if field == "text":
            events.append(TextDelta(text))
        elif field == "arguments":
            if item.call is not None:
                item.emitted = True
                events.append(ToolCallDelta(item.call, item.call_id(), item.name(), text))
        elif field != "refusal":
            paragraph = (item.number, *spot)
            between = "\n\n" if self._paragraph not in (None, paragraph) else ""
            self._paragraph = paragraph
            events.append(ReasoningDelta(between + text))

    def _begin(self, index: JSON, fields: Item, *, headless: bool = False) -> ItemPieces:
        """Begin an item, at the next place if the event names none. `headless`: its first event is missing."""
        if not isinstance(index, int):
            index = max(self._at, default=-1) + 1
        item = ItemPieces(dict(fields), len(self._items), index, headless)
        if item.fields.get("type") == "function_call":
            item.call = self._calls
            self._calls += 1
        self._items.append(item)
        self._at[index] = item
        return item

    def _which(self, chunk: dict[str, Any], kind: str, item_id: JSON = None) -> ItemPieces:
        """Return the item of an event: by its place, else by its id, else the last item of that kind. An item whose first event is
        missing begins here."""
        index = chunk.get("output_index")
        if isinstance(index, int):
            found = self._at.get(index)
            return found if found is not None else self._begin(index, {"type": kind}, headless=True)
        wanted = chunk.get("item_id") or item_id
        for item in reversed(self._items):
            if (wanted and item.fields.get("id") == wanted) or (not wanted and item.fields.get("type") == kind):
                return item
        return self._begin(None, {"type": kind, "id": wanted} if wanted else {"type": kind}, headless=True)

    def _begun_before(self, index: JSON, fields: Item) -> ItemPieces | None:
        """Return the item of a first event that arrives after pieces of the item, or None."""
        own_id = fields.get("id")
        for item in self._items:
            same = bool(own_id) and item.fields.get("id") == own_id
            here = item.index == index if isinstance(index, int) else same
            if here and (same or item.headless) and item.fields.get("type") == fields.get("type"):
                return item
        return None

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        return read_body(body, self._origin, ended=ended, damaged=damaged)

    def _ended(self) -> Ended:
        if self._whole is not None:
            return "whole"
        return "marked" if self._done and not self._torn else "unmarked"

    @property
    def sound(self) -> bool:
        """True if the stream is complete and nothing was lost; known after `finish`."""
        return super().sound and (self._last is not None or self._whole is not None)

    def _check_order(self) -> None:
        # Missing events do not matter if the last event carries the whole output.
        if self._gaps and (self._last is None or not weight(items_of(self._last.get("output")))):
            self._damaged = True

    def _block_count(self) -> int:
        return len(self._items)

    def _record_loss(self, reason: str, lost_bytes: int | None = None) -> None:
        super()._record_loss(reason, lost_bytes)
        if reason == BROKEN:
            self._next_number = None  # the lost event had a number too

    def _is_repaired(self) -> bool:
        """True if the last event carries the whole output."""
        if self._last is None:
            return self._whole is not None
        given = items_of(self._last.get("output"))
        return bool(weight(given)) and items_of(self._assembled().get("output")) == given

    def _assembled(self) -> dict[str, Any]:
        """Return the body that the same answer has without streaming."""
        if self._whole is not None:
            return dict(self._whole)
        streamed = [item.body() for item in sorted(self._items, key=lambda item: item.index)]
        body = {key: value for key, value in self._body.items() if key != "status"}  # the status at the beginning
        if self._last is None:
            return {**body, "output": streamed}
        body.update(self._last)
        given = items_of(body.get("output"))
        lesser = len(given) < len(streamed) or weight(given) < weight(streamed)
        if lesser and not (self._gaps and weight(given)):  # with gaps, the pieces are incomplete
            body["output"] = streamed
        return body


def _is_better(field: str, text: str, known: str) -> bool:
    """True if a field's final text replaces its pieces: if it is longer (pieces were lost), or of equal length but different (pieces
    were out of order). For arguments, also if it is shorter and complete (a piece was repeated)."""
    if text == known:
        return False
    return len(text) >= len(known) or (field == "arguments" and read.is_json_object(text))


PIECES = {
    "response.output_text.delta": ("text", "delta", "content_index"),
    "response.output_text.done": ("text", "text", "content_index"),
    "response.function_call_arguments.delta": ("arguments", "delta", ""),
    "response.function_call_arguments.done": ("arguments", "arguments", ""),
    "response.reasoning_summary_text.delta": ("summary", "delta", "summary_index"),
    "response.reasoning_summary_text.done": ("summary", "text", "summary_index"),
    "response.reasoning_text.delta": ("thoughts", "delta", "content_index"),
    "response.reasoning_text.done": ("thoughts", "text", "content_index"),
    "response.refusal.delta": ("refusal", "delta", "content_index"),
    "response.refusal.done": ("refusal", "refusal", "content_index"),
}
"""For each event: the field that it carries, the key of the piece, and the key of the part's number."""

TYPES = {
    "text": "message",
    "refusal": "message",
    "arguments": "function_call",
    "summary": "reasoning",
    "thoughts": "reasoning",
}
"""The type of the item that a field belongs to."""

_PARTS = {
    "output_text": ("text", "text"),
    "text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("thoughts", "text"),
    "summary_text": ("summary", "text"),
}
"""For each type of part: its field, and the key of its text."""


@dataclass(slots=True, eq=False)
class ItemPieces:
    """One output item, assembled from its pieces.

    `number` counts the items, `index` is the item's place in the output, `call` its number among the function calls. `fields` are from
    its first event, `final` from its last. `closed`: its arguments are complete. `done`: its complete fields. `emitted`: its call was
    emitted. `headless`: its first event is missing.
    """

    fields: Item
    number: int
    index: int
    headless: bool = False
    call: int | None = None
    closed: bool = False
    emitted: bool = False
    done: set[tuple[str, int]] = field(default_factory=set)
    final: Item | None = None
    pieces: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    parts: dict[int, dict[str, Any]] = field(default_factory=dict)

    def name(self) -> str:
        """Return the name of the called function."""
        return read.as_text((self.final or self.fields).get("name"))

    def call_id(self) -> str:
        """Return the call's id."""
        return call_id_of(self.final or self.fields, (self.call or 0) + 1)

    def parts_of(self, item: Item) -> Iterator[tuple[str, int, str]]:
        """Yield the pieces of a finished item."""
        for key in ("summary", "content"):
            for number, part in enumerate(read.as_list(item.get(key))):
                kind = read.as_dict(part).get("type")
                field, name = _PARTS.get(kind, ("", "")) if isinstance(kind, str) else ("", "")
                if field and TYPES[field] == item.get("type") and (text := read.as_text(part.get(name))):
                    yield field, number, text

    def body(self) -> Item:
        """Return the item in the form of a whole body; the status of an unfinished item is `in_progress`."""
        streamed = self._streamed()
        if self.final is None:
            return {**streamed, "status": "completed" if self.closed else "in_progress"}
        arguments = self.final.get("arguments")
        whole = isinstance(arguments, str) and read.is_json_object(arguments)
        if whole or weight([self.final]) >= weight([streamed]):
            return self.final
        return {**self.final, **{key: streamed[key] for key in ("content", "summary", "arguments") if key in streamed}}

    def _streamed(self) -> Item:
        item = dict(self.fields)
        kind = item.get("type")
        if kind == "message":
            item.setdefault("role", "assistant")
        if kind in ("message", "reasoning"):
            content = {**{number: part for number, part in self.parts.items() if part}, **self._joined("text", "output_text")}
            content |= self._joined("thoughts", "reasoning_text") | self._joined("refusal", "refusal")
            if content:
                item["content"] = [part for _, part in sorted(content.items())]
        if summary := self._joined("summary", "summary_text"):
            item["summary"] = [part for _, part in sorted(summary.items())]
        if ("arguments", 0) in self.pieces:
            item["arguments"] = read.whole_text("".join(self.pieces["arguments", 0]))
        return item

    def _joined(self, field: str, kind: str) -> dict[int, dict[str, Any]]:
        """Return the parts of one kind by number, with the other fields of their finished parts."""
        key = "refusal" if field == "refusal" else "text"
        found: dict[int, dict[str, Any]] = {}
        for (name, number), pieces in self.pieces.items():
            if name == field:
                known = self.parts.get(number, {}) if field != "summary" else {}
                annotations: Item = {"annotations": []} if field == "text" else {}
                found[number] = {"type": kind, **annotations, **known, key: read.whole_text("".join(pieces))}
        return found
