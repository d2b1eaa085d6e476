"""What the providers on the Responses wire share; each of their files says only what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from agentlab.providers._base import Capabilities, StreamParser
from agentlab.providers._request import clean_url, content_headers
from agentlab.providers._responses import INCOMPLETE_REASONS, LAST_EVENTS, STATUSES, Origin, read_body
from agentlab.providers._responses_request import request_body
from agentlab.providers._responses_stream import ResponsesStreamParser
from agentlab.providers._signals import body_message
from agentlab.shown import Shown
from agentlab.transport.http import HttpRequest
from agentlab.types import JSON, ModelRequest, ModelResponse

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
