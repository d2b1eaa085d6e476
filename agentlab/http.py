"""HTTP as plain values: what providers build and transports send. No HTTP library is imported here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from agentlab.redaction import shown_without_keys


@shown_without_keys
@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as plain values. Authentication is not in it: `Provider.auth_headers()`, or a signature, is added to live calls
    only, so that a key is never near what is recorded or shown.

    Example:
        >>> from agentlab.providers import HttpRequest
        >>> HttpRequest("POST", "https://kiosk.example/v1/chat", {"content-type": "application/json"}, b"{}")
        HttpRequest(method='POST', url='https://kiosk.example/v1/chat', headers={'content-type': 'application/json'}, body=b'{}')
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where and when a replayed answer was recorded: `place` is the file and the number in it, `at` in UTC, None where unknown."""

    place: str
    at: datetime | None


class HttpAnswer(Protocol):
    """A response whose body may still be on its way. Header names are in lower case.

    An answer from a recording has an attribute `recorded: Recorded` as well.
    """

    @property
    def status(self) -> int:
        """The HTTP status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The response headers."""
        ...

    async def read(self) -> bytes:
        """The whole body, decoded (gzip and the like undone)."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, decoded, in chunks of any size."""
        ...
