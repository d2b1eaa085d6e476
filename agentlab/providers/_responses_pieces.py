"""One output item of a stream of Responses events, as its pieces come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentlab.providers import _read as read
from agentlab.providers._responses_items import Item, call_id_of, weight

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
"""By event: what it is a piece of, under which key it holds it, and under which the number of the part."""

TYPES = {
    "text": "message",
    "refusal": "message",
    "arguments": "function_call",
    "summary": "reasoning",
    "thoughts": "reasoning",
}
"""The type of the item that such a piece belongs to."""

_PARTS = {
    "output_text": ("text", "text"),
    "text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("thoughts", "text"),
    "summary_text": ("summary", "text"),
}
"""By a part's type: what it is a piece of, and under which key it holds it."""


class ItemPieces:
    """One item. `number` counts the items, `index` is its place in the output, `call` its number among the function calls; `fields` are
    those that it began with, `final` those that it ended with; `closed` is whether its arguments came to their end, `done` which of
    its fields did; `headless` is whether its beginning has not come."""

    __slots__ = ("call", "closed", "done", "fields", "final", "headless", "index", "number", "parts", "pieces", "told")

    def __init__(self, fields: Item, number: int, index: int) -> None:
        self.fields = fields
        self.number = number
        self.index = index
        self.call: int | None = None
        self.closed = False
        self.told = False
        self.headless = False
        self.done: set[tuple[str, int]] = set()
        self.final: Item | None = None
        self.pieces: dict[tuple[str, int], list[str]] = {}
        self.parts: dict[int, dict[str, Any]] = {}

    def name(self) -> str:
        """The function that is called."""
        return read.as_text((self.final or self.fields).get("name"))

    def call_id(self) -> str:
        """The call's id."""
        return call_id_of(self.final or self.fields, (self.call or 0) + 1)

    def parts_of(self, item: Item) -> Iterator[tuple[str, int, str]]:
        """What a finished item holds, as pieces."""
        for key in ("summary", "content"):
            for number, part in enumerate(read.as_list(item.get(key))):
                kind = read.as_dict(part).get("type")
                field, name = _PARTS.get(kind, ("", "")) if isinstance(kind, str) else ("", "")
                if field and TYPES[field] == item.get("type") and (text := read.as_text(part.get(name))):
                    yield field, number, text

    def body(self) -> Item:
        """The item as a whole body holds it. One that was not finished says so."""
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
        """The parts of one sort by their number, with what the finished part said beside its text."""
        key = "refusal" if field == "refusal" else "text"
        found: dict[int, dict[str, Any]] = {}
        for (name, number), pieces in self.pieces.items():
            if name == field:
                known = self.parts.get(number, {}) if field != "summary" else {}
                annotations: Item = {"annotations": []} if field == "text" else {}
                found[number] = {"type": kind, **annotations, **known, key: read.whole_text("".join(pieces))}
        return found
