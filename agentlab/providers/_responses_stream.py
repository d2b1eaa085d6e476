"""A stream of Responses events, put together into the body that the whole answer would have been.

Vendor page: https://platform.openai.com/docs/api-reference/responses-streaming, read 2026-11-22 from the types of the vendor's client
(openai 3.54); what other servers leave out of the events as recorded responses have it.

The last event carries the whole response. Where its output is there it is the truth; but some servers leave it empty, or send less than
they streamed, and a stream may break off: then the output is what the events before added up to.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from agentlab.providers import _read as read
from agentlab.providers._responses import LAST_EVENTS, Origin, read_body
from agentlab.providers._responses_items import Item, items_of, weight
from agentlab.providers._responses_pieces import PIECES, TYPES, ItemPieces
from agentlab.providers._signals import Ended
from agentlab.providers._stream import BodyParser
from agentlab.types import (
    JSON,
    ModelResponse,
    ReasoningDelta,
    SignalSeen,
    StreamEvent,
    TerminationSignal,
    TextDelta,
    ToolCallDelta,
)

_TEXT_DELTA = "response.output_text.delta"
_SNAPSHOTS = ("response.created", "response.in_progress", "response.queued")
_LAST = (*LAST_EVENTS.reasons, "response.cancelled", "response.done")
_FINISHED = ("completed", "incomplete", "failed", "cancelled")


class ResponsesStreamParser(BodyParser):
    """The state of one stream of events."""

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
        self._open: list[str] = []  # where the text goes that is coming in, with the place that the events name
        self._open_at: tuple[JSON, JSON] = (None, None)

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes and tell what they add. Text, which is nearly all there is, goes a short way."""
        told: list[StreamEvent] = []
        for name, event in self._incoming.feed(data):
            try:
                chunk = from_json(event)
            except ValueError:
                self._event(name, event, told)
                continue
            if type(chunk) is dict and chunk.get("type") == _TEXT_DELTA:
                text = chunk.get("delta")
                index, part = self._open_at
                if (
                    type(text) is str
                    and index is not None
                    and chunk.get("output_index") == index
                    and chunk.get("content_index") == part
                ):
                    self._open.append(text)
                    if text:
                        told.append(TextDelta(text))
                    continue
            self._chunk(name, chunk, told)
        return told

    def _take(self, name: bytes, chunk: dict[str, Any], told: list[StreamEvent]) -> None:
        kind = chunk.get("type") or name.decode("utf-8", "replace")
        if not isinstance(kind, str):
            return
        if kind in PIECES:
            self._piece(kind, chunk, told)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._item(kind, chunk, told)
        elif kind == "response.content_part.done":
            item = self._which(chunk, "message")
            item.parts[read.count(chunk.get("content_index")) or 0] = read.as_dict(chunk.get("part"))
        elif kind in _SNAPSHOTS:
            self._body.update(read.as_dict(chunk.get("response")))
        elif kind in _LAST:
            self._end(kind, read.as_dict(chunk.get("response")), told)
        elif chunk.get("object") == "error" or kind == "error":
            self._fail(chunk, told)
        elif chunk.get("object") == "response" or (not kind and "output" in chunk):  # not streamed after all
            self._whole = chunk

    def _end(self, kind: str, response: dict[str, Any], told: list[StreamEvent]) -> None:
        self._done = True
        status = response.get("status")
        if not isinstance(status, str) or status not in _FINISHED:
            response = {**response, "type": kind}  # the event says it
        self._last = response
        told.append(SignalSeen(self._signal_now()))

    def _fail(self, error: JSON, told: list[StreamEvent]) -> None:
        if isinstance(error, dict) and error.get("type") == "error":  # the event itself, whose type says nothing of the error
            error = {key: value for key, value in error.items() if key not in ("type", "sequence_number")} or "error"
        super()._fail(error, told)

    def _item(self, kind: str, chunk: dict[str, Any], told: list[StreamEvent]) -> None:
        """An item that begins, or one that is done. What it holds and no piece has told yet is told."""
        fields = read.as_dict(chunk.get("item"))
        index = chunk.get("output_index")
        if kind == "response.output_item.added":
            item = self._begin(index, fields)
        else:
            item = self._which(chunk, read.as_text(fields.get("type")) or "message", item_id=fields.get("id"))
            item.final = {**item.fields, **fields}
        if item.call is not None:
            arguments = fields.get("arguments") if not item.pieces else None
            text = arguments if isinstance(arguments, str) else "" if arguments is None else read.dumps(arguments).decode()
            if text or kind == "response.output_item.added" or not item.told:
                item.told = True
                if text:
                    item.pieces["arguments", 0] = [text]
                told.append(ToolCallDelta(item.call, item.call_id(), item.name(), text))
        elif item.final is not None and not item.pieces:
            for field, part, text in item.parts_of(item.final):
                self._tell(item, field, part, text, told)

    def _piece(self, kind: str, chunk: dict[str, Any], told: list[StreamEvent]) -> None:
        """A piece of an item, or the whole of one of its fields, which is told where no piece of it was."""
        field, key, place = PIECES[kind]
        text = chunk.get(key)
        item = self._which(chunk, TYPES[field])
        part = read.count(chunk.get(place)) or 0
        if kind.endswith(".done"):
            if field == "arguments":
                item.closed = True
            known = item.pieces.get((field, part))
            if not isinstance(text, str) or (known is not None and len(text) <= sum(map(len, known))):
                return
            if known:
                item.pieces[field, part] = [text]  # pieces were lost
                self._open_at = (None, None)
                return
        if not isinstance(text, str):
            self._damaged = self._damaged or text is not None
            return
        self._tell(item, field, part, text, told)
        if field == "text":
            self._open, self._open_at = item.pieces[field, part], (chunk.get("output_index"), chunk.get(place))

    def _tell(self, item: ItemPieces, field: str, part: int, text: str, told: list[StreamEvent]) -> None:
        """Keep a piece, and tell of it."""
        item.pieces.setdefault((field, part), []).append(text)
        if not text:
            return
        if field == "text":
            told.append(TextDelta(text))
        elif field == "arguments":
            if item.call is not None:
                item.told = True
                told.append(ToolCallDelta(item.call, item.call_id(), item.name(), text))
        elif field != "refusal":
            paragraph = (item.number, field, part)
            between = "\n\n" if self._paragraph not in (None, paragraph) else ""
            self._paragraph = paragraph
            told.append(ReasoningDelta(between + text))

    def _begin(self, index: JSON, fields: Item) -> ItemPieces:
        """A new item; its place is the next one where the event names none."""
        if not isinstance(index, int):
            index = max(self._at, default=-1) + 1
        item = ItemPieces(dict(fields), len(self._items), index)
        if item.fields.get("type") == "function_call":
            item.call = self._calls
            self._calls += 1
        self._items.append(item)
        self._at[index] = item
        self._open_at = (None, None)
        return item

    def _which(self, chunk: dict[str, Any], kind: str, item_id: JSON = None) -> ItemPieces:
        """The item that an event is about: by its place, else by its id, else the last one of that kind. Where its beginning was not
        sent it begins here."""
        index = chunk.get("output_index")
        if isinstance(index, int):
            found = self._at.get(index)
            return found if found is not None else self._begin(index, {"type": kind})
        wanted = chunk.get("item_id") or item_id
        for item in reversed(self._items):
            if (wanted and item.fields.get("id") == wanted) or (not wanted and item.fields.get("type") == kind):
                return item
        return self._begin(None, {"type": kind, "id": wanted} if wanted else {"type": kind})

    def _signal_now(self) -> TerminationSignal:
        body = self._assembled()
        if self._error is not None:
            body["error"] = self._error
        return self._read(body, self._ended(), self._damaged).signal

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        return read_body(body, self._origin, ended=ended, damaged=damaged)

    def _ended(self) -> Ended:
        return "whole" if self._whole is not None else "marked" if self._done else "unmarked"

    def _assembled(self) -> dict[str, Any]:
        """The body of the same answer, not streamed."""
        if self._whole is not None:
            return dict(self._whole)
        streamed = [item.body() for item in sorted(self._items, key=lambda item: item.index)]
        body = {key: value for key, value in self._body.items() if key != "status"}  # that it runs is not how it ended
        if self._last is None:
            return {**body, "output": streamed}
        body.update(self._last)
        given = items_of(body.get("output"))
        if len(given) < len(streamed) or weight(given) < weight(streamed):
            body["output"] = streamed
        return body
