"""What a provider is: a translation between agentlab's values and one vendor's HTTP wire, without I/O and without state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentlab.http import HttpRequest
from agentlab.shown import Shown
from agentlab.types import JSON, ModelRequest, ModelResponse, StreamEvent, TerminationSignal


@dataclass(frozen=True, slots=True)
class Capabilities(Shown):
    """What can be expected of a provider's wire."""

    streaming: bool = True
    tools: bool = True
    reports_usage: bool = True
    reports_cost: bool = False


class StreamParser(Protocol):
    """The state of one stream. Bytes may be cut anywhere."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes and tell what they add. Never raises on what a provider sent."""
        ...

    def finish(self) -> TerminationSignal:
        """The stream has ended: why. A stream that broke off is MEDIUM or LOW, never a clean end."""
        ...

    def response(self) -> ModelResponse:
        """What was put together from the stream; to be called after `finish`."""
        ...

    @property
    def sound(self) -> bool:
        """Whether the stream came to its own end with nothing lost; known after `finish`."""
        ...

    @property
    def cut_short(self) -> bool:
        """Whether the body ended within a piece of it, or ahead of the first; known after `finish`."""
        ...

    def reset(self) -> None:
        """Forget everything, to be used for another stream."""
        ...


class Provider(Protocol):
    """One vendor's wire, bound to a model. Immutable; one object may serve any number of runs and streams at once."""

    @property
    def name(self) -> str:
        """The name in `provider:model` strings."""
        ...

    @property
    def wire(self) -> str:
        """The name of the message format: providers that share it accept each other's NativeContent."""
        ...

    @property
    def model(self) -> str:
        """The model asked for."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the wire can do."""
        ...

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """The HTTP request for this model request; `request.stream` says whether a stream is wanted."""
        ...

    def auth_headers(self) -> dict[str, str]:
        """The headers that carry the key. Raises MissingKeyError, naming the environment variable to set.

        A provider that signs each request has a method `sign` beside it (see `Signer`), which is then asked instead.
        """
        ...

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole response body, already parsed as JSON. Never raises on what a provider sent."""
        ...

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """A new parser for one stream."""
        ...

    def error_message(self, payload: JSON) -> str:
        """The vendor's own words in an error body, or an empty string."""
        ...


class Signer(Protocol):
    """What a provider is besides, where its authentication depends on the request."""

    def sign(self, request: HttpRequest) -> dict[str, str]:
        """The headers that authenticate this request, for live calls only. It may block, since it is called off the event loop.
        Raises MissingKeyError."""
        ...
