"""HTTP requests and responses as plain values: providers build requests, transports send them. Imports no HTTP library."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime

from agentlab._internal.redaction import redacted_repr
from agentlab._internal.values import dataclass
from agentlab.model.messages import JSON
from agentlab.model.responses import RateLimit


@redacted_repr
@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as plain values, without authentication.

    `Provider.auth_headers()`, or a signature, is added to live calls only, so that no recording or display contains a key.

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
    """Source and time of a replayed answer: `place` is the file and the number in it; `at` is in UTC, None if unknown."""

    place: str
    at: datetime | None


@dataclass(frozen=True, slots=True, repr=False)
class HttpAnswer:
    """A response whose body may not be complete yet. Header names are in lower case.

    `chunks()` yields the body as it arrives, decoded (gzip and the like undone), in chunks of any size. `recorded` is None unless the
    response is from a recording.
    """

    status: int
    headers: Mapping[str, str]
    chunks: Callable[[], AsyncIterator[bytes]]
    recorded: Recorded | None = None

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([chunk async for chunk in self.chunks()])


# Rate limits ----------------------------------------------------------------------------------------------------------------

RATE_LIMIT_HEADERS: Mapping[str, tuple[str, ...]] = {
    "requests_left": (
        "x-ratelimit-remaining-requests",
        "anthropic-ratelimit-requests-remaining",
        "x-ratelimit-remaining",
        "x-ratelimit-remaining-req-minute",
    ),
    "requests_limit": (
        "x-ratelimit-limit-requests",
        "anthropic-ratelimit-requests-limit",
        "x-ratelimit-limit",
        "x-ratelimit-limit-req-minute",
    ),
    "requests_renew_s": ("x-ratelimit-reset-requests", "anthropic-ratelimit-requests-reset", "x-ratelimit-reset"),
    "tokens_left": (
        "x-ratelimit-remaining-tokens",
        "anthropic-ratelimit-tokens-remaining",
        "x-ratelimit-remaining-tokens-minute",
    ),
    "tokens_limit": ("x-ratelimit-limit-tokens", "anthropic-ratelimit-tokens-limit", "x-ratelimit-limit-tokens-minute"),
    "tokens_renew_s": ("x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"),
}
"""The headers of each field of a RateLimit; the first one present counts. As found on 2026-11-23:

OpenAI      durations such as "6m0s" and "12ms": https://community.openai.com/t/1268905, after
            https://platform.openai.com/docs/guides/rate-limits
Groq        the same, like other compatible servers: https://console.groq.com/docs/rate-limits
Azure       whole seconds, and -1 for unknown: https://learn.microsoft.com/en-us/answers/questions/5625878
Anthropic   times of RFC 3339: https://platform.claude.com/docs/en/api/rate-limits
OpenRouter  requests only, with milliseconds since 1970, and in the body of a status 429 (`headers_in_body`):
            https://github.com/Gitlawb/openclaude/issues/936
Mistral     of a minute: https://github.com/mistralai/client-ts/issues/169
"""

_PIECE = re.compile(r"([0-9.]+)(ms|us|µs|ns|d|h|m|s)")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_FIRST_DATE_S = 10**9
_FIRST_DATE_MS = 10**11
"""Numbers from these values on are times since 1970, in seconds or in milliseconds; smaller ones are durations."""


def read_rate_limit(headers: Mapping[str, str], now_s: Callable[[], float | None]) -> RateLimit | None:
    """Return the account's limits from the headers of an answer, None if there are none.

    `now_s` returns the time of the answer in seconds since 1970, None if unknown; it is called only if a header contains a time.
    """
    if not any("ratelimit" in name for name in headers):
        return None
    values = {
        field: next((headers[name].strip() for name in names if name in headers), "")
        for field, names in RATE_LIMIT_HEADERS.items()
    }
    found = RateLimit(
        _count(values["requests_left"]),
        _count(values["requests_limit"]),
        _wait_s(values["requests_renew_s"], now_s),
        _count(values["tokens_left"]),
        _count(values["tokens_limit"]),
        _wait_s(values["tokens_renew_s"], now_s),
    )
    return None if found == RateLimit() else found


def headers_in_body(payload: JSON) -> dict[str, str]:
    """Return the headers that OpenRouter puts into the body of an error, with names in lower case."""
    found = payload
    for name in ("error", "metadata", "headers"):
        found = found.get(name) if isinstance(found, dict) else None
    return {name.lower(): value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def wait_in_body(payload: JSON) -> float | None:
    """Return how many seconds Google asks to wait, in the details of an error; None if it does not ask."""
    error = payload.get("error") if isinstance(payload, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("retryDelay"), str):
            return _wait_s(detail["retryDelay"], lambda: None)
    return None


def _count(text: str) -> int | None:
    number = _number(text)
    return None if number is None or number >= 2**53 else int(number)


def _wait_s(text: str, now_s: Callable[[], float | None]) -> float | None:
    """Return a wait in seconds, from a number, a duration such as `6m0s`, or the time until which to wait (RFC 3339, or since 1970)."""
    number, pieces = _number(text), _PIECE.findall(text)
    if number is not None and number < _FIRST_DATE_S:
        return number
    if number is not None:
        until = number if number < _FIRST_DATE_MS else number / 1000
    elif pieces and "".join(map("".join, pieces)) == text:
        waits = [value * _SECONDS[unit] for amount, unit in pieces if (value := _number(amount)) is not None]
        return round(sum(waits), 9) if len(waits) == len(pieces) else None
    else:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            return None
        until = time.replace(tzinfo=time.tzinfo or UTC).timestamp()
    now = now_s()
    return None if now is None else max(0.0, round(until - now, 6))


def _number(text: str) -> float | None:
    """Return a number of at least 0, else None; servers write -1 for unknown."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None
