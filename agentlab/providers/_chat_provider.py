"""What the providers on the chat completions wire share; each of their files says only what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from agentlab.providers._base import Capabilities, StreamParser
from agentlab.providers._chat_completions import PLAIN, Dialect, Origin, read_body, request_body
from agentlab.providers._chat_stream import ChatStreamParser
from agentlab.providers._request import clean_url, content_headers
from agentlab.providers._signals import body_message
from agentlab.providers._versions import place_version
from agentlab.shown import Shown
from agentlab.transport.http import HttpRequest
from agentlab.types import JSON, ModelRequest, ModelResponse


@dataclass(frozen=True, slots=True)
class ChatCompletions(Shown):
    """A server on the chat completions wire.

    `base_url` is the address up to and without `/chat/completions`. `headers` are further ones, sent with live calls only. Keys and
    headers are never shown.

    A subclass gives its `name`, its `wire`, what the wire calls the cap on an answer (`cap_field`), its `capabilities`, an address,
    the headers that carry its key, and, where it has finish reasons of its own, its `dialect`.

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

    name: ClassVar[str]
    wire: ClassVar[str]
    cap_field: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    dialect: ClassVar[Dialect] = PLAIN

    model: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "capabilities"):
            native = () if cls.dialect.native is None else (cls.dialect.native,)
            cls.capabilities = replace(cls.capabilities, tables=(*cls.dialect.tables, *native))

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", clean_url(self.base_url, self.name))

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """A POST to `/chat/completions`."""
        return HttpRequest(
            method="POST",
            url=f"{self.base_url}/chat/completions",
            headers=content_headers(stream=request.stream),
            body=request_body(request, model=self.model, wire=self.wire, cap_field=self.cap_field),
        )

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body."""
        return read_body(payload, self._origin(requested_cap))

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """A new parser for one stream."""
        return ChatStreamParser(self._origin(requested_cap))

    def error_message(self, payload: JSON) -> str:
        """The vendor's own words in an error body, or an empty string."""
        return body_message(payload)

    def _origin(self, requested_cap: int | None) -> Origin:
        return Origin(self.name, self.model, self.wire, requested_cap, self.dialect)


@dataclass(frozen=True, slots=True)
class VersionedChat(ChatCompletions):
    """One whose address ends in a version: `api_version`, given, takes that one's place."""

    api_version: str | None = None

    def __post_init__(self) -> None:
        base_url, version = place_version(clean_url(self.base_url, self.name), self.api_version, self.name)
        object.__setattr__(self, "base_url", base_url)
        object.__setattr__(self, "api_version", version)
