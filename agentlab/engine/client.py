"""One call of a model: build the request, send it, retry if that may help, read the answer."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from agentlab._internal import secrets as known_keys
from agentlab._internal.display import Displayable
from agentlab._internal.lazy import helps_with_keywords
from agentlab._internal.redaction import Redactor, known_secrets, redact_url, secrets_in_headers
from agentlab.errors import (
    ConfigurationError,
    LimitError,
    MissingKeyError,
    ProviderConnectionError,
    ProviderError,
    ProviderPayloadError,
    ProviderStatusError,
)
from agentlab.limits.fields import in_seconds
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import ModelRequest
from agentlab.model.pricing import misspelling_hint
from agentlab.model.responses import ModelResponse, RateLimit, ResponseSource, TextDelta
from agentlab.model.usage import UsageSource
from agentlab.providers import finish_detection as signals
from agentlab.providers.base import Provider
from agentlab.providers.detectors import LARGEST_REFUSAL_BYTES
from agentlab.providers.wires.incoming import LARGEST_ANSWER_BYTES
from agentlab.providers.wires.read import dumps, ends_early, loads
from agentlab.records.result import STOP, advice_for
from agentlab.transport import Transport
from agentlab.transport.http import HttpAnswer, HttpRequest, Recorded, headers_in_body, read_rate_limit

_MAY_PASS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_NEXT_STEP = {
    400: "Look at what it says of the request.",
    401: "Check the API key.",
    402: "Check the account's credit.",
    403: "Check that the key may use this model.",
    404: "Check the model's name and the address.",
    413: "The request is too large: shorten the conversation.",
    405: "Check the address.",
    429: "The rate limit held: wait, or run fewer at once.",
}
_OF_THE_ACCOUNT = frozenset({"insufficient_quota", "billing_error"})
_SHOWN_BYTES = 300  # of a body that was not understood
_READ_BYTES = 4096  # of it, in which keys are redacted
_NO_CONTENT = 204
_BOM = b"\xef\xbb\xbf"


LONGEST_SILENCE_S = 300.0
"""The call fails if the provider sends nothing for this long; `Budget(timeout=…)` bounds the whole run."""

KEPT_ALIVE = 2
"""So many times LONGEST_SILENCE_S may a provider send only what keeps the connection open: comments, `ping` and `keepalive` events,
white space. Models that think unseen send nothing else for minutes."""


@helps_with_keywords
@dataclass(frozen=True, slots=True)
class RetryPolicy(Displayable):
    """How often and how long a call that may succeed later is retried: connection errors, an answer whose JSON ends early, 429, 5xx and
    the like. A stream that breaks off is retried only if nothing of the answer has come. One that loses a piece on its way is asked
    for again at once, at most twice.

    `attempts` counts the first one too; the wait doubles from `first_wait_s` up to `longest_wait_s`, and is what the provider asks for
    (Retry-After) where that is longer. A provider that asks for more than `longest_wait_s` is not waited for.

    Example:
        >>> patient = lab.RetryPolicy(attempts=6, longest_wait_s=60)
        >>> lab.Agent("openai:gpt-5.4-mini", retry=patient).model.retry.attempts
        6
        >>> lab.RetryPolicy(attempts=0)
        Traceback (most recent call last):
            ...
        agentlab.errors.LimitError: RetryPolicy(attempts=0): give a whole number of at least 1 (1 means no retry).
    """

    attempts: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 60.0

    if TYPE_CHECKING:  # as users write it

        def __init__(
            self, attempts: int = 4, first_wait_s: float | timedelta = 0.5, longest_wait_s: float | timedelta = 60.0
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or isinstance(self.attempts, bool) or self.attempts < 1:
            raise LimitError(f"RetryPolicy(attempts={self.attempts!r}): give a whole number of at least 1 (1 means no retry).")
        for name in ("first_wait_s", "longest_wait_s"):
            value = in_seconds(getattr(self, name))
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise LimitError(f"RetryPolicy({name}={value!r}): give seconds, 0 or more.")
            object.__setattr__(self, name, value)


class OnRetry(Protocol):
    """Notified before a further attempt: its number, the wait, why the last one failed, and what that said of the account's limits."""

    def __call__(self, attempt: int, wait_s: float, reason: str, rate_limit: RateLimit | None = None, /) -> None:
        """Announce a retry before its wait."""
        ...


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a call needs of its run. `replay_key` keeps the replay of concurrent runs apart; `index` counts the run's calls from 1."""

    transport: Transport
    replay_key: str
    index: int
    on_text: Callable[[str], None]
    on_retry: OnRetry


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
        """Return the model's answer. Raises ProviderError if there is none."""
        ...


def check_key(model: Model, transport: Transport, middleware: Sequence[object]) -> None:
    """Raise MissingKeyError if an agent's calls are known to have no key. A middleware may answer in place of the provider."""
    if isinstance(model, HttpModel) and transport.needs_key and not middleware:
        model.check_key()


class _HiddenHeaders(dict[str, str]):
    """Headers whose values are not shown, for example in a traceback with the values of variables."""

    def __repr__(self) -> str:
        return f"{{{', '.join(self)}}}"


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

    @property
    def address(self) -> str:
        """The address of the server; empty if the provider finds it itself."""
        return str(getattr(self.provider, "base_url", ""))

    @property
    def prefills(self) -> bool:
        """True if the model, given the beginning of its answer as the last message, continues right behind it."""
        return bool(getattr(self.provider, "prefills", False))

    def check_key(self) -> None:
        """Raise MissingKeyError if it is known without a request that there is no key."""
        known = getattr(self.provider, "check_key", None)
        if known is None and hasattr(self.provider, "sign"):  # it looks for credentials by itself
            return
        try:
            (known or self.provider.auth_headers)()
        except MissingKeyError as error:
            raise self._also_mistyped(error) from None
        except ConfigurationError:
            raise
        except Exception:  # such as from a server of tokens: the call meets it, too, and may retry
            return

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Send the request and read the answer; a failure that may pass is retried, with an event."""
        http_request = self.provider.build_request(request)
        try:
            return await self._attempt(http_request, request, context)
        except (ProviderConnectionError, ProviderStatusError) as error:
            if self.retry.attempts == 1 or not _may_pass(error, self.retry):
                raise
            return await self._retry(error, http_request, request, context)

    async def _retry(
        self, error: Exception, http_request: HttpRequest, request: ModelRequest, context: CallContext
    ) -> ModelResponse:
        import tenacity  # slow to load; only a call that failed needs it

        failures = iter([error])
        backoff = tenacity.wait_random_exponential(multiplier=self.retry.first_wait_s, max=self.retry.longest_wait_s)

        def wait(state: tenacity.RetryCallState) -> float:
            if not context.transport.needs_key:  # a recording has nothing to wait for
                return 0.0
            asked_for = getattr(state.outcome.exception(), "retry_after_s", None) if state.outcome else None
            return max(backoff(state), asked_for or 0.0)

        def announce(state: tenacity.RetryCallState) -> None:
            failure = state.outcome.exception() if state.outcome else None
            slept = state.next_action.sleep if state.next_action else 0.0
            context.on_retry(state.attempt_number, slept, str(failure), getattr(failure, "rate_limit", None))

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
        auth = await self._auth(http_request) if context.transport.needs_key else {}
        began, digest = datetime.now(UTC), hashlib.blake2b(digest_size=8)
        async with context.transport.open(
            http_request, auth=auth, lane=context.replay_key, timeout_s=LONGEST_SILENCE_S
        ) as answer:
            recorded: Recorded = getattr(answer, "recorded", None) or Recorded("", began if context.transport.needs_key else None)
            now_s = partial(_time_of, answer, recorded)
            if not 200 <= answer.status < 300:
                refusal = await self._refusal(answer, digest, auth, now_s)
                if isinstance(refusal, ProviderStatusError):
                    raise refusal
                read = refusal, b"", False, 0.0
            elif request.stream:
                read = await self._read_stream(answer, digest, request.max_output_tokens, context)
            else:
                body = b"".join([chunk async for chunk in _bounded(answer, LARGEST_ANSWER_BYTES, _is_blank)])
                read = self._read_whole(body, digest, request.max_output_tokens, context)
            response, begins_with, cut_short, detection_s = read
            meant_empty = answer.status == _NO_CONTENT or "content-length" in answer.headers
        if _says_nothing(response):
            raise self._no_answer(_in_one_line(begins_with, auth), cut_short=cut_short, meant_empty=meant_empty)
        source = ResponseSource(recorded.at, not context.transport.needs_key, recorded.place, digest.hexdigest())
        response = replace(response, source=source, rate_limit=read_rate_limit(answer.headers, now_s), detection_s=detection_s)
        with_words = response.signal.finish_reason in (FinishReason.ERROR, FinishReason.CONTENT_FILTERED)
        return _without_keys(response, auth) if with_words else response

    def _no_answer(self, shown: str, *, cut_short: bool, meant_empty: bool) -> ProviderError:
        """Return the error of a body in which nothing was recognised. One that ended early is a broken connection, which may pass."""
        if cut_short:
            return ProviderConnectionError(
                f"{self._who} answered with a body that ended early: {shown!r} and no more. "
                "Try again; if it stays, look for what cuts it off: a proxy, or a limit of the server's."
            )
        if not shown and not meant_empty:
            return ProviderConnectionError(
                f"{self._who}: the answer ended before anything of it had come. "
                "Try again; if it stays, check that base_url is the address of an API."
            )
        what = f"something that is no answer: {shown!r}" if shown else "an empty body"
        return ProviderPayloadError(f"{self._who} answered with {what}. Check that base_url is the address of an API.")

    async def _auth(self, http_request: HttpRequest) -> dict[str, str]:
        """Return the headers that authenticate this request now: a signature is valid for minutes only."""
        sign: Callable[[HttpRequest], dict[str, str]] | None = getattr(self.provider, "sign", None)
        try:
            auth = self.provider.auth_headers() if sign is None else await asyncio.to_thread(sign, http_request)
        except MissingKeyError as error:
            raise self._also_mistyped(error) from None
        known_keys.remember(known_secrets(secrets_in_headers(auth)))
        return _HiddenHeaders(auth)

    def _also_mistyped(self, error: MissingKeyError) -> MissingKeyError:
        """Return the error with a hint at a mistyped model, which else only the provider would report afterwards."""
        hint = misspelling_hint(self.provider.name, self.provider.model)
        return MissingKeyError(f"{error}{hint}") if hint else error

    def _read_whole(
        self, body: bytes, digest: hashlib.blake2b, cap: int | None, context: CallContext
    ) -> tuple[ModelResponse, bytes, bool, float]:
        cut_short, began = False, time.perf_counter()
        try:
            payload = loads(body.removeprefix(_BOM))
        except ValueError:
            payload, cut_short = None, ends_early(body.removeprefix(_BOM))
        response = signals.registry.reread(self.name, self.provider.parse(payload, requested_cap=cap))
        detection_s = time.perf_counter() - began
        digest.update(body if payload is None else dumps(payload))  # a recording keeps the JSON and lays it out anew
        if response.text:
            context.on_text(response.text)
        return response, body[:_READ_BYTES], cut_short, detection_s

    async def _read_stream(
        self, answer: HttpAnswer, digest: hashlib.blake2b, cap: int | None, context: CallContext
    ) -> tuple[ModelResponse, bytes, bool, float]:
        """Read a stream and report its text as it comes. The parser reads JSON too, with which some servers answer instead."""
        parser = self.provider.stream_parser(requested_cap=cap)
        begins_with, reported, detection_s = b"", list[str](), 0.0
        broke: ProviderError | None = None
        try:
            async for chunk in _bounded(answer, LARGEST_ANSWER_BYTES, lambda chunk: getattr(parser, "is_quiet", False)):
                digest.update(chunk)
                if len(begins_with) < _SHOWN_BYTES:
                    begins_with += chunk[:_READ_BYTES]
                began = time.perf_counter()
                read = parser.feed(chunk)
                detection_s += time.perf_counter() - began
                for event in read:
                    if type(event) is TextDelta:
                        reported.append(event.text)
                        context.on_text(event.text)
        except (ProviderConnectionError, ProviderPayloadError) as error:
            broke = error
        began = time.perf_counter()
        parser.finish()
        response = signals.registry.reread(self.name, parser.response(), sound=parser.sound)
        detection_s += time.perf_counter() - began
        signal = response.signal
        if broke is not None and _says_nothing(response):  # nothing of the answer had come: it may be retried
            raise broke
        before = "".join(reported)
        if len(response.text) > len(before) and response.text.startswith(before):  # from JSON, or an event that nothing ended
            context.on_text(response.text[len(before) :])
        if broke is not None and signal.finish_reason is not FinishReason.ERROR and signal.confidence is not Confidence.HIGH:
            response = _broken_off(response, f"The stream broke off: {broke}")
        elif response.is_spoilt:
            pass  # it is asked for again
        elif signal.finish_reason is FinishReason.UNKNOWN and signal.raw_value is None and not _says_nothing(response):
            response = _broken_off(response, signal.message)
        elif signal.finish_reason is FinishReason.TOOL_CALLS and not (response.tool_calls or parser.sound):
            response = _broken_off(response, "Pieces of the stream were lost, and with them the tool call that it ends for.")
        return response, begins_with, getattr(parser, "cut_short", False), detection_s  # a custom parser may not know

    async def _refusal(
        self, answer: HttpAnswer, digest: hashlib.blake2b, auth: Mapping[str, str], now_s: Callable[[], float | None]
    ) -> ProviderStatusError | ModelResponse:
        """Return the error of a status outside 200 to 299, or a response if a content filter refused the request."""
        status, header = answer.status, answer.headers.get
        try:
            body = b"".join([chunk async for chunk in _bounded(answer, LARGEST_REFUSAL_BYTES, _is_blank)])
        except (ProviderConnectionError, ProviderPayloadError):  # the status says enough
            body = b""
        said = code = ""
        rate_limit = read_rate_limit(answer.headers, now_s)
        with suppress(ValueError):
            payload = loads(body.removeprefix(_BOM))
            said = self.provider.error_message(payload)
            rate_limit = rate_limit or read_rate_limit(headers_in_body(payload), now_s)
            signal = signals.registry.detect(self.name, payload, status=status)
            if signal.finish_reason is FinishReason.CONTENT_FILTERED:
                digest.update(dumps(payload))
                return ModelResponse("", signal, raw=payload)
            word = signal.raw_value
            code = _in_one_line(word.encode("utf-8", "replace"), auth) if isinstance(word, str) else ""
        said = _in_one_line(said.encode("utf-8", "replace") or body, auth)
        asked_for = _retry_after_s(header)
        then = _NEXT_STEP.get(
            status, "It may pass: try again later." if status >= 500 or status in _MAY_PASS else _NEXT_STEP[400]
        )
        if code in _OF_THE_ACCOUNT:
            then = _NEXT_STEP[402]
        if status < 400:
            place = redact_url(header("location") or "nowhere")
            said, then = said or f"it points to {place}", "Requests are not sent on: set base_url to the server's own address."
        longest_s = self.retry.longest_wait_s
        if asked_for is not None and asked_for > longest_s:
            then = f"It asks to wait for {asked_for:g} s, which RetryPolicy(longest_wait_s={longest_s:g}) rules out. {then}"
        message = f"{self._who} answered with status {status}: {said.rstrip('.') or 'no explanation'}. {then}"
        return ProviderStatusError(message, status=status, retry_after_s=asked_for, code=code, rate_limit=rate_limit)

    @property
    def _who(self) -> str:
        return f"{self.name} ({self.model})"


def _is_blank(chunk: bytes) -> bool:
    return not chunk.strip()


async def _bounded(answer: HttpAnswer, most_bytes: int, is_quiet: Callable[[bytes], bool]) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. Raises if it is too large, or if for too long it holds nothing: `is_quiet` of each chunk."""
    size, heard_s = 0, time.monotonic()
    async for chunk in answer.chunks():
        size += len(chunk)
        if size > most_bytes:
            raise ProviderPayloadError(
                f"the answer is larger than {most_bytes:,} bytes and was left. Check that base_url is the address of an API."
            )
        yield chunk
        if not is_quiet(chunk):
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > KEPT_ALIVE * LONGEST_SILENCE_S:
            raise ProviderConnectionError(
                f"the provider sent nothing but comments, pings or white space for {KEPT_ALIVE * LONGEST_SILENCE_S:g} s. Try again, "
                "or ask for less at once."
            )


def _broken_off(response: ModelResponse, message: str) -> ModelResponse:
    """Return the received part of a broken stream, as an error: it was paid for. Usage counted on the way is not a total."""
    signal = replace(
        response.signal, finish_reason=FinishReason.ERROR, confidence=Confidence.LOW, message=message, repairable=False
    )
    usage = response.usage
    if signal.raw_value is None:
        usage = replace(usage, output_tokens=None, reasoning_tokens=None)
    return replace(response, signal=signal, usage=usage)


def _says_nothing(response: ModelResponse) -> bool:
    """True if nothing in a body was recognised: not JSON, or JSON of something else."""
    signal = response.signal
    return (
        signal.finish_reason is FinishReason.UNKNOWN
        and signal.raw_value is None
        and not (response.text or response.reasoning or response.tool_calls or response.response_id or response.model)
        and response.usage.source is UsageSource.UNKNOWN
    )


def _without_keys(response: ModelResponse, auth: Mapping[str, str]) -> ModelResponse:
    """Redact a response: a server may repeat in its error the key that it was sent."""
    hide = Redactor(secrets_in_headers(auth, sure=True)).text
    signal = response.signal
    raw_value = hide(signal.raw_value) if isinstance(signal.raw_value, str) else signal.raw_value
    body = dumps(response.raw).decode()
    raw = response.raw if hide(body) == body else loads(hide(body))
    return replace(response, signal=replace(signal, message=hide(signal.message), raw_value=raw_value), raw=raw)


def _in_one_line(text: bytes, auth: Mapping[str, str]) -> str:
    """Return the beginning of a body for display: without line breaks, and without the key that was sent."""
    hidden, _ = Redactor(secrets_in_headers(auth, sure=True)).body(text[:_READ_BYTES])
    return " ".join(hidden[:_SHOWN_BYTES].decode(errors="replace").split())


def _may_pass(error: BaseException, retry: RetryPolicy) -> bool:
    if isinstance(error, ProviderStatusError):
        lasts = advice_for(error) == STOP  # such as a quota that is used up, which comes as a 429 too
        return error.status in _MAY_PASS and not lasts and (error.retry_after_s or 0.0) <= retry.longest_wait_s
    return isinstance(error, ProviderConnectionError)


def _retry_after_s(header: Callable[[str], str | None]) -> float | None:
    """Return how long a provider asks to wait: given in milliseconds, seconds, or as a date by its own clock."""
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            asked_for = float(header(name) or "") / per_second
            if math.isfinite(asked_for):
                return max(0.0, asked_for)
    until, now = _seconds(header("retry-after")), _seconds(header("date"))
    return None if until is None else max(0.0, until - (time.time() if now is None else now))


def _time_of(answer: HttpAnswer, recorded: Recorded) -> float | None:
    """Return when an answer came, in seconds since 1970: by the provider's own clock if its headers have the date."""
    by_provider = _seconds(answer.headers.get("date"))
    return by_provider if by_provider is not None or recorded.at is None else recorded.at.timestamp()


def _seconds(date: str | None) -> float | None:
    """Return an HTTP date as seconds since 1970."""
    from email.utils import parsedate_to_datetime  # slow to load, and rarely needed

    try:
        then = parsedate_to_datetime(date or "")
    except (ValueError, OverflowError):
        return None
    return then.replace(tzinfo=then.tzinfo or UTC).timestamp()
