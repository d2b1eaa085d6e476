"""The chat completions wire: its stream parser, and the base class of the providers that speak it."""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import Any, ClassVar

from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError
from agentlab.model.messages import JSON, ModelRequest
from agentlab.model.responses import ModelResponse, ReasoningDelta, SignalSeen, StreamEvent, TextDelta, ToolCallDelta
from agentlab.providers.base import Server, StreamParser, clean_url, content_headers, place_version, refuse_lacking
from agentlab.providers.wires import read
from agentlab.providers.wires.chat import (
    PLAIN,
    REASONING_KEYS,
    SAID,
    Dialect,
    Origin,
    called,
    content_text,
    is_custom,
    read_body,
    request_body,
)
from agentlab.providers.wires.finish_rules import Ended
from agentlab.providers.wires.stream import BROKEN, BodyParser
from agentlab.transport.http import HttpRequest

_TOP = ("id", "object", "created", "model", "provider", "system_fingerprint", "service_tier")
_CALL_KEYS = ("index", "id", "type", "function", "custom")


def _block(detail: dict[str, Any]) -> tuple[JSON, JSON, JSON]:
    return detail.get("type"), detail.get("index"), detail.get("format")


@dataclass(slots=True, eq=False)
class _Call:
    """One tool call, assembled from its pieces. `more` are a vendor's additional fields."""

    number: int
    index: JSON
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    custom: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the call in the form of a whole body."""
        text = "".join(self.arguments)
        if self.custom:
            return {"type": "custom", "custom": {"name": self.name, "input": text}}
        return {"type": "function", "function": {"name": self.name, "arguments": text}}


class ChatStreamParser(BodyParser):
    """Parses one stream of chunks."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        super().__init__()

    def _clear(self) -> None:
        self._body: dict[str, Any] = {}
        self._text: list[str] = []
        self._reasoning: dict[str, list[str]] = {}
        self._details: list[tuple[JSON, dict[str, list[str]]]] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._finish: JSON = None
        self._native_finish: JSON = None
        self._size_at_finish: tuple[int, int] | None = None
        self._kept: dict[str, Any] = {}

    def _take(self, name: bytes, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        choices = chunk.get("choices")
        if choices and type(choices) is list:
            choice = choices[0]
            if len(choices) > 1 or type(choice) is not dict or choice.get("index"):
                choice = next((item for item in choices if isinstance(item, dict) and not item.get("index")), None)
            if choice is not None:
                self._choice(choice, events)
        elif chunk.get("object") == "error":
            self._fail(chunk, events)
        elif choices:
            self._record_loss(BROKEN)
        body = self._body
        if "model" not in body:  # usually the first chunk has all of them
            for key in _TOP:
                if key not in body and chunk.get(key) not in (None, ""):  # Azure's first chunk leaves them empty
                    body[key] = chunk[key]
        for key in self._origin.dialect.kept:
            if chunk.get(key):
                body[key] = chunk[key]
        if chunk.get("usage"):
            body["usage"] = chunk["usage"]
        elif "x_groq" in chunk and read.as_dict(chunk["x_groq"]).get("usage"):
            body["x_groq"] = chunk["x_groq"]

    def _choice(self, choice: dict[str, Any], events: list[StreamEvent]) -> None:
        delta = choice.get("delta") or choice.get("message")
        if type(delta) is dict:
            content = delta.get("content")
            if content:
                if type(content) is str:
                    self._text.append(content)
                    events.append(TextDelta(content))
                else:
                    self._parts(content, events)
            if len(delta) > 1 or type(content) is not str:
                if read.misfit(delta, SAID, "delta"):
                    self._record_loss(BROKEN)
                self._rest_of_delta(delta, events)
        elif delta:
            self._record_loss(BROKEN)
        finish = choice.get("finish_reason")
        if finish is None and (len(choice) <= 3 or (len(choice) == 4 and "logprobs" in choice)):  # index, delta, finish_reason
            return
        for key in self._origin.dialect.kept:
            self._keep(key, choice.get(key))
        if choice.get("native_finish_reason") is not None:
            self._native_finish = choice["native_finish_reason"]
        if choice.get("error"):
            self._fail(choice["error"], events)
        if isinstance(choice.get("usage"), dict):
            self._body["usage"] = choice["usage"]
        if self._origin.dialect.says_nothing(finish):  # some servers send "" in each chunk before the last
            return
        self._size_at_finish = self._size()
        if finish != self._finish:
            self._finish = finish
            events.append(SignalSeen(self._signal_now()))

    def _size(self) -> tuple[int, int]:
        return len(self._text) + len(self._refusal), sum(1 + len(call.arguments) for call in self._calls)

    def _is_over(self) -> bool:
        return self._done or self._finish is not None

    def _check_order(self) -> None:
        # Some servers send the reason with each call and at the end: only pieces after the last one are out of order.
        super()._check_order()
        self._check_size(self._size_at_finish)

    def _keep(self, key: str, value: JSON) -> None:
        """Merge reports of several chunks by name: the first entry of each name is kept, unless a later one took effect."""
        if isinstance(value, dict):
            kept = self._kept.setdefault(key, {})
            kept.update({name: entry for name, entry in value.items() if name not in kept or read.as_dict(entry).get("filtered")})

    def _parts(self, content: JSON, events: list[StreamEvent]) -> None:
        """Add content that is a list of parts."""
        text, thoughts = content_text(content)
        if thoughts:
            self._reasoning.setdefault("reasoning_content", []).append(thoughts)
            events.append(ReasoningDelta(thoughts))
        if text:
            self._text.append(text)
            events.append(TextDelta(text))

    def _rest_of_delta(self, delta: dict[str, Any], events: list[StreamEvent]) -> None:
        thought = ""
        for key, value in delta.items():
            if not value or key in ("content", "role"):
                continue
            if key == "tool_calls":
                for entry in read.as_list(value):
                    if isinstance(entry, dict):
                        self._call(entry, events)
            elif key in REASONING_KEYS:
                if isinstance(value, str):
                    self._reasoning.setdefault(key, []).append(value)
                    thought = thought or value
            elif key == "reasoning_details":
                for piece in read.as_list(value):
                    self._detail(piece)
            elif key == "refusal":
                if isinstance(value, str):
                    self._refusal.append(value)
            elif key == "function_call" and isinstance(value, dict):
                self._call({"index": 0, "function": value}, events)
        if thought:
            events.append(ReasoningDelta(thought))

    def _detail(self, piece: JSON) -> None:
        """Add a piece of OpenRouter's reasoning details. Consecutive pieces of one type and index are joined into one block: the blocks
        sent back must be those of a whole answer."""
        if not isinstance(piece, dict):
            self._details.append((piece, {}))
            return
        last, texts = self._details[-1] if self._details else (None, {})
        if not isinstance(last, dict) or _block(last) != _block(piece) or piece.get("data"):
            last, texts = {}, {}
            self._details.append((last, texts))
        for key, value in piece.items():
            if key in ("text", "summary") and isinstance(value, str):
                texts.setdefault(key, []).append(value)
            elif value is not None or key not in last:
                last[key] = value

    def _call(self, entry: dict[str, Any], events: list[StreamEvent]) -> None:
        function, piece = called(entry)
        index, call_id, name = entry.get("index"), entry.get("id"), function.get("name")
        calls = self._calls
        if calls and calls[-1].index == index and not call_id and not name:
            call = calls[-1]
        else:
            call = self._which(index, call_id, name)
            if isinstance(call_id, str) and call_id:
                call.id = call_id
            if isinstance(name, str) and name and name != call.name:
                call.name += name
        arguments = piece if isinstance(piece, str) else "" if piece is None else read.dumps(piece).decode()
        if arguments:
            call.arguments.append(arguments)
        if len(entry) > 3:
            call.more.update({key: value for key, value in entry.items() if key not in _CALL_KEYS})
        call.custom = call.custom or is_custom(entry)
        events.append(ToolCallDelta(call.number, call.id or f"call_{call.number + 1}", call.name, arguments))

    def _which(self, index: JSON, call_id: JSON, name: JSON) -> _Call:
        """Return the call that a piece belongs to. Most servers number the calls; some give all calls the same number, or none."""
        for call in reversed(self._calls):
            if index is not None and call.index != index:
                continue
            if call_id and call.id:
                begins = call_id != call.id
            else:  # a name after arguments begins another call, unless it repeats the name of a numbered call
                begins = bool(name) and bool(call.arguments) and (index is None or name != call.name)
            if not begins:
                return call
            break
        call = _Call(len(self._calls), index)
        self._calls.append(call)
        return call

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        return read_body(body, self._origin, ended=ended, damaged=damaged)

    def _assembled(self) -> dict[str, Any]:
        """Return the body that the same answer has without streaming."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        for key, pieces in self._reasoning.items():
            message[key] = "".join(pieces)
        if self._details:
            message["reasoning_details"] = [
                {**detail, **{key: "".join(pieces) for key, pieces in texts.items()}} if texts else detail
                for detail, texts in self._details
            ]
        if self._calls:
            message["tool_calls"] = [{"id": call.id, **call.body(), **call.more} for call in self._calls]
        native = {} if self._native_finish is None else {"native_finish_reason": self._native_finish}
        choice = {"index": 0, "message": message, "finish_reason": self._finish, **native, **self._kept}
        return {**self._body, "choices": [choice]}


@dataclass(frozen=True, slots=True)
class ChatCompletions(Server):
    """A server on the chat completions wire.

    `base_url` is the address up to and without `/chat/completions`. `headers` are additional headers for live calls. Keys and headers
    are never shown.

    A subclass has a `name`, a `wire`, the wire's name for the output cap (`cap_field`), `capabilities`, an address, `key_variables` or
    `auth_headers` for its key, and a `dialect` if its finish reasons differ.

    Example:
        >>> from dataclasses import dataclass
        >>> from agentlab.providers import Capabilities, ChatCompletions, find_key
        >>> @dataclass(frozen=True, slots=True)
        ... class Kiosk(ChatCompletions):
        ...     name = "kiosk"
        ...     wire = "kiosk.chat"
        ...     cap_field = "max_tokens"
        ...     capabilities = Capabilities(reports_cost=True)
        ...     base_url: str = "https://kiosk.example/v1"
        ...     def auth_headers(self):
        ...         return {"authorization": "Bearer " + find_key(self.name, self.api_key, ["KIOSK_API_KEY"])}
        >>> lab.Agent(Kiosk(model="small"))
        Agent(kiosk:small, budget=Budget(max_turns=20))
    """

    cap_field: ClassVar[str]
    dialect: ClassVar[Dialect] = PLAIN

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "capabilities"):
            native = () if cls.dialect.native is None else (cls.dialect.native,)
            cls.capabilities = replace(cls.capabilities, tables=(*cls.dialect.tables, *native))

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `/chat/completions`. Raises ConfigurationError for a parameter that the server does not take."""
        refuse_lacking(request.parameters, self.dialect.lacks, self.name)
        self._refuse_forced(request)
        return HttpRequest(
            method="POST",
            url=self._url(),
            headers=content_headers(stream=request.stream),
            body=request_body(request, model=self.model, wire=self.wire, cap_field=self.cap_field, dialect=self.dialect),
        )

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body."""
        return read_body(payload, self._origin(requested_cap))

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a new parser for one stream."""
        return ChatStreamParser(self._origin(requested_cap))

    def _refuse_forced(self, request: ModelRequest) -> None:
        """Raise ConfigurationError if the request forces a tool call and the model reasons, of models that take only one of them."""
        asked, unforced = request.parameters, self.dialect.unforced
        if not unforced or asked.tool_choice in (None, "auto", "none") or not re.match(unforced, self.model):
            return
        if asked.reasoning_effort != "none" and "thinking" not in request.options:
            raise ConfigurationError(
                f"tool_choice={asked.tool_choice!r}: {self.model} takes no forced tool choice while it reasons. Leave it out, or use "
                'reasoning_effort="none".'
            )

    def _url(self) -> str:
        return f"{self.base_url}/chat/completions"

    def _origin(self, requested_cap: int | None) -> Origin:
        return Origin(self.name, self.model, self.wire, requested_cap, self.dialect)


@dataclass(frozen=True, slots=True)
class VersionedChat(ChatCompletions):
    """A server whose address ends in a version, which a given `api_version` replaces."""

    api_version: str | None = None

    def __post_init__(self) -> None:
        base_url, version = place_version(clean_url(self.base_url, self.name), self.api_version, self.name)
        object.__setattr__(self, "base_url", base_url)
        object.__setattr__(self, "api_version", version)
