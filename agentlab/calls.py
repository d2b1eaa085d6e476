"""One call of a model: build the request, send it, try again where that may help, read the answer."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from agentlab.errors import LimitError, ProviderConnectionError, ProviderPayloadError, ProviderStatusError
from agentlab.http import HttpAnswer, HttpRequest
from agentlab.providers._base import Provider
from agentlab.transport import Transport
from agentlab.types import Confidence, FinishReason, ModelRequest, ModelResponse, TextDelta

_MAY_PASS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_NEXT_STEP = {
    400: "Look at what it says of the request.",
    401: "Check the API key.",
    402: "Check the account's credit.",
    403: "Check that the key may use this model.",
    404: "Check the model's name and the address.",
    413: "The request is too large: shorten the conversation.",
    429: "The rate limit held: wait, or run fewer at once.",
}


LONGEST_SILENCE_S = 300.0
"""A provider that sends nothing for this long is given up; `Budget(timeout=…)` bounds the whole run."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long a call that may pass later is tried again: connection errors, 429, 5xx and the like, never in mid-stream.

    `attempts` counts the first one too; the wait doubles from `first_wait_s` up to `longest_wait_s`, and is what the provider asks for
    (Retry-After) where that is longer. A provider that asks for more than `longest_wait_s` is not waited for.
    """

    attempts: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 60.0

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or isinstance(self.attempts, bool) or self.attempts < 1:
            raise LimitError(f"RetryPolicy(attempts={self.attempts!r}): give a whole number of at least 1 (1 means no retry).")
        for name in ("first_wait_s", "longest_wait_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise LimitError(f"RetryPolicy({name}={value!r}): give seconds, 0 or more.")


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a call needs of its run. `lane` keeps the replay of concurrent runs apart; `index` counts the run's calls from 1."""

    transport: Transport
    lane: str
    index: int
    on_text: Callable[[str], None]
    on_retry: Callable[[int, float, str], None]


class Model(Protocol):
    """Anything that answers a ModelRequest."""

    @property
    def name(self) -> str:
        """The provider's name."""
        ...

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """The model's answer. Raises ProviderError where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class HttpModel:
    """A model behind a provider's HTTP wire."""

    provider: Provider
    retry: RetryPolicy = RetryPolicy()

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.provider.name

    @property
    def model(self) -> str:
        """The model's name."""
        return self.provider.model

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Send the request and read the answer; what may pass later is tried again, visibly."""
        http_request = self.provider.build_request(request)
        try:
            return await self._attempt(http_request, request, context)
        except (ProviderConnectionError, ProviderStatusError) as error:
            if self.retry.attempts == 1 or not _may_pass(error, self.retry):
                raise
            return await self._try_again(error, http_request, request, context)

    async def _try_again(
        self, error: Exception, http_request: HttpRequest, request: ModelRequest, context: CallContext
    ) -> ModelResponse:
        import tenacity  # only a call that failed pays for it

        failures = iter([error])
        backoff = tenacity.wait_random_exponential(multiplier=self.retry.first_wait_s, max=self.retry.longest_wait_s)

        def wait(state: tenacity.RetryCallState) -> float:
            if not context.transport.needs_key:  # a recording: nobody is there to wait for
                return 0.0
            asked_for = getattr(state.outcome.exception(), "retry_after_s", None) if state.outcome else None
            return max(backoff(state), asked_for or 0.0)

        def announce(state: tenacity.RetryCallState) -> None:
            failure = state.outcome.exception() if state.outcome else None
            slept = state.next_action.sleep if state.next_action else 0.0
            context.on_retry(state.attempt_number, slept, str(failure))

        async def attempt() -> ModelResponse:
            first = next(failures, None)  # the attempt that has been made already
            if first is not None:
                raise first
            return await self._attempt(http_request, request, context)

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.retry.attempts),
            wait=wait,
            retry=tenacity.retry_if_exception(lambda failure: _may_pass(failure, self.retry)),
            before_sleep=announce,
            reraise=True,
        )
        return await retrying(attempt)

    async def _attempt(self, http_request: HttpRequest, request: ModelRequest, context: CallContext) -> ModelResponse:
        auth = self.provider.auth_headers() if context.transport.needs_key else {}
        async with context.transport.open(http_request, auth=auth, lane=context.lane, timeout_s=LONGEST_SILENCE_S) as answer:
            if answer.status >= 400:
                raise self._status_error(answer.status, answer.headers.get, await answer.read())
            if request.stream and "json" not in answer.headers.get("content-type", ""):
                return await self._read_stream(answer, request.max_output_tokens, context)
            return self._read_whole(await answer.read(), request.max_output_tokens, context)

    def _read_whole(self, body: bytes, cap: int | None, context: CallContext) -> ModelResponse:
        try:
            payload = json.loads(body)
        except ValueError as error:
            shown = body[:200].decode(errors="replace")
            raise ProviderPayloadError(f"{self.name} answered with something that is not JSON: {shown!r}") from error
        response = self.provider.parse(payload, requested_cap=cap)
        if response.text:
            context.on_text(response.text)
        return response

    async def _read_stream(self, answer: HttpAnswer, cap: int | None, context: CallContext) -> ModelResponse:
        parser = self.provider.stream_parser(requested_cap=cap)
        try:
            async for chunk in answer.chunks():
                for event in parser.feed(chunk):
                    if type(event) is TextDelta:
                        context.on_text(event.text)
        except ProviderConnectionError as error:
            parser.finish()
            return _broken_off(parser.response(), f"The stream broke off: {error}")
        signal = parser.finish()
        if signal.finish_reason is FinishReason.UNKNOWN and signal.raw_value is None:
            return _broken_off(parser.response(), signal.message)
        return parser.response()

    def _status_error(self, status: int, header: Callable[[str], str | None], body: bytes) -> ProviderStatusError:
        try:
            said = self.provider.error_message(json.loads(body))
        except ValueError:
            said = body[:300].decode(errors="replace").strip()
        then = _NEXT_STEP.get(status, "It may pass: try again later." if status >= 500 else "")
        message = f"{self.name} ({self.model}) answered with status {status}: {said or 'no explanation'}. {then}".strip()
        return ProviderStatusError(message, status=status, retry_after_s=_retry_after_s(header))


def _broken_off(response: ModelResponse, told: str) -> ModelResponse:
    """What has come of a stream was paid for: it is kept, with the truth about its end."""
    signal = replace(response.signal, finish_reason=FinishReason.ERROR, confidence=Confidence.LOW, message=told, repairable=False)
    return replace(response, signal=signal)


def _may_pass(error: BaseException, retry: RetryPolicy) -> bool:
    if isinstance(error, ProviderStatusError):
        return error.status in _MAY_PASS and (error.retry_after_s or 0.0) <= retry.longest_wait_s
    return isinstance(error, ProviderConnectionError)


def _retry_after_s(header: Callable[[str], Any]) -> float | None:
    """How long a provider asks to wait: in milliseconds, in seconds, or as a date."""
    milliseconds, value = header("retry-after-ms"), header("retry-after")
    try:
        if milliseconds:
            return max(0.0, float(milliseconds) / 1000)
        return None if not value else max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(str(value)).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
