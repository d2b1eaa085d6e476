"""One call to a model: build the request, send it, retry if that may help, read the answer."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, cast

import tenacity

from agentlab._internal import secrets as known_keys
from agentlab._internal.asyncio_tools import off_the_loop
from agentlab._internal.display import Displayable
from agentlab._internal.names import helps_with_keywords
from agentlab._internal.redaction import Redactor, known_secrets, redact_url, secrets_in_headers
from agentlab._internal.values import dataclass
from agentlab.errors import (
    ConfigurationError,
    LimitError,
    MissingKeyError,
    ProviderConnectionError,
    ProviderError,
    ProviderPayloadError,
    ProviderStatusError,
    ReplayMissError,
)
from agentlab.limits.fields import in_seconds
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import Message, ModelRequest, OutputForm, ToolResult
from agentlab.model.parts import Part
from agentlab.model.pricing import misspelling_hint
from agentlab.model.responses import ModelResponse, RateLimit, ResponseSource, TextDelta, ToolCallDelta
from agentlab.model.usage import UsageSource
from agentlab.providers import finish_detection as signals
from agentlab.providers.base import Provider, Server
from agentlab.providers.detectors import MAX_ERROR_BODY_BYTES
from agentlab.providers.wires.finish_rules import find_error
from agentlab.providers.wires.incoming import MAX_ANSWER_BYTES
from agentlab.providers.wires.read import as_dict, dumps, ends_early, loads
from agentlab.records.result import FOR_ERROR, STOP, advice_for
from agentlab.transport import Transport
from agentlab.transport.clients import check_client
from agentlab.transport.http import HttpAnswer, HttpRequest, Recorded, headers_in_body, read_rate_limit, wait_in_body
from agentlab.transport.selection import check_used

_TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_TEMPORARY_CODES = frozenset(map(str, _TEMPORARY)).union(
    ("rate_limit_error", "api_error", "timeout_error", "overloaded_error"),  # Anthropic
    ("rate_limit_exceeded", "server_error"),  # OpenAI and OpenRouter
    ("resource_exhausted", "internal", "unavailable", "deadline_exceeded"),  # Gemini
    ("throttlingexception", "internalserverexception", "serviceunavailableexception"),  # Bedrock
    ("modelstreamerrorexception", "modeltimeoutexception", "modelnotreadyexception"),
)
"""Error codes, in lower case, of errors with status 200 that mean such a status. Sources: those of FOR_ERROR."""
_ADVICE = {
    400: "Check the request against this message.",
    401: "Check the API key.",
    402: "Check the account's credit.",
    403: "Check that the key may use this model.",
    404: "Check the model's name and the address.",
    413: "The request is too large: shorten the conversation.",
    405: "Check the address.",
    429: "The rate limit was reached: wait, or run fewer at once.",
}
_ACCOUNT_CODES = frozenset({"insufficient_quota", "billing_error"})
_SHOWN_BYTES = 300  # of an unrecognised body, in an error message
_REDACTED_BYTES = 4096  # of the body: keys are redacted in these before the excerpt is taken
_NO_CONTENT = 204
_BOM = b"\xef\xbb\xbf"


LONGEST_SILENCE_S = 300.0
"""The call fails if the provider sends nothing for this long; `Budget(timeout=…)` bounds the whole run."""

KEPT_ALIVE = 2
"""A provider may send keep-alive data only (comments, `ping` and `keepalive` events, white space) for this many times
LONGEST_SILENCE_S. Models that hide their reasoning send nothing else for minutes."""


@helps_with_keywords
@dataclass(frozen=True, slots=True)
class RetryPolicy(Displayable):
    """How often and how long a call that may succeed later is retried: after connection errors, a body whose JSON ends early, and
    statuses such as 429 and 5xx, also if the provider reports them in a body with status 200. A stream that breaks off is retried only
    if no part of the answer has arrived. If a stream loses a piece in transit, the model is asked again at once, at most twice.

    `attempts` includes the first one. The wait doubles from `first_wait_s` up to `longest_wait_s`; if the provider asks for a longer
    one (Retry-After), that is used. If it asks for more than `longest_wait_s`, the call fails without a retry.

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
    """Called before a further attempt with its number, the wait, the reason of the last failure, and the rate limit it reported."""

    def __call__(self, attempt: int, wait_s: float, reason: str, rate_limit: RateLimit | None = None, /) -> None:
        """Announce a retry before its wait."""
        ...


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a call needs from its run. `replay_key` separates concurrent runs on replay; `index` counts the run's calls from 1.

    `on_arguments` gets a tool's name, a piece of its arguments, and the place of the tool call in the answer.
    """

    transport: Transport
    replay_key: str
    index: int
    on_text: Callable[[str], None]
    on_retry: OnRetry
    on_arguments: Callable[[str, str, int], None] = lambda tool, text, place: None


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
    """Raise MissingKeyError if the agent has no key, ConfigurationError if the run is not of the recording around the caller. With
    middleware there is no check: it may answer in place of the provider."""
    if isinstance(model, HttpModel) and transport.needs_key and not middleware:
        check_used(transport)
        model.check_key()


class _HiddenHeaders(dict[str, str]):
    """Headers whose repr hides the values, for example in a traceback that shows variables."""

    def __repr__(self) -> str:
        return f"{{{', '.join(self)}}}"


@dataclass(frozen=True, slots=True)
class HttpModel:
    """A model behind a provider's HTTP wire."""

    provider: Provider
    retry: RetryPolicy = RetryPolicy()

    def __post_init__(self) -> None:
        given: dict[str, object] = {}
        if self.http_client is not None:
            check_client(self.http_client)
            given |= self.http_client.headers
        if isinstance(self.provider, Server):
            given |= {**self.provider.headers, "api-key": self.provider.api_key}
        text = {name: value for name, value in given.items() if isinstance(value, str)}
        known_keys.remember(known_secrets(secrets_in_headers(text)))  # a prompt with its key is shown before the key is sent

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
        """The address of the server; empty if the provider chooses it."""
        return str(getattr(self.provider, "base_url", ""))

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        if self.http_client is not None:
            raise ConfigurationError(
                f"The http_client of {self.name}:{self.model} cannot be sent to another process: leave it out, or the executor."
            )
        return object.__reduce_ex__(self, protocol)

    @property
    def http_client(self) -> Any:
        """The user's own client of httpx or httpx2; None without one."""
        return getattr(self.provider, "http_client", None)

    @property
    def prefills(self) -> bool:
        """True if the model continues an answer whose beginning is sent as the last message."""
        return bool(getattr(self.provider, "prefills", False))

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return the form in which the wire takes the schema of a typed answer."""
        ask = getattr(self.provider, "output_form", None)
        return "tool" if ask is None else cast("OutputForm", ask(with_tools=with_tools))

    def refuses_in_result(self, part: Part) -> str:
        """Return why the result of a tool cannot have this part; empty if it can."""
        result = ToolResult("call_1", "tool", [part])
        try:
            self.provider.build_request(ModelRequest((Message("tool", tool_results=(result,)),)))
        except ConfigurationError as error:
            return str(error)
        return ""

    def check_key(self) -> None:
        """Raise MissingKeyError if a key is missing, as far as that shows without a request."""
        check = getattr(self.provider, "check_key", None)
        if check is None and hasattr(self.provider, "sign"):  # a signer finds its credentials itself
            return
        try:
            (check or self.provider.auth_headers)()
        except MissingKeyError as error:
            raise self._with_spelling_hint(error) from None
        except ConfigurationError:
            raise
        except Exception:  # for example from a token server: the call will fail the same way, and may be retried
            return

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Send the request and read the answer. A temporary failure is retried, with an event."""
        http_request = self.provider.build_request(request)
        try:
            response = await self._attempt(http_request, request, context)
        except (ProviderConnectionError, ProviderStatusError) as error:
            if self.retry.attempts == 1 or not _is_temporary(error, self.retry):
                raise
            return await self._retry(error, http_request, request, context)
        if self.retry.attempts == 1 or not _is_temporary_error(response):
            return response
        try:
            return await self._retry(response, http_request, request, context)
        except ReplayMissError:  # recorded by a client that did not retry
            return response

    async def _retry(
        self, failure: Exception | ModelResponse, http_request: HttpRequest, request: ModelRequest, context: CallContext
    ) -> ModelResponse:
        failures = iter([failure])
        backoff = tenacity.wait_random_exponential(multiplier=self.retry.first_wait_s, max=self.retry.longest_wait_s)

        def wait(state: tenacity.RetryCallState) -> float:
            if not context.transport.needs_key:  # a replay needs no wait
                return 0.0
            asked_for = getattr(state.outcome.exception(), "retry_after_s", None) if state.outcome else None
            return max(backoff(state), asked_for or 0.0)

        def announce(state: tenacity.RetryCallState) -> None:
            failed = state.outcome and (state.outcome.exception() or state.outcome.result())
            slept = state.next_action.sleep if state.next_action else 0.0
            reason = failed.signal.message if isinstance(failed, ModelResponse) else str(failed)
            context.on_retry(state.attempt_number, slept, reason, getattr(failed, "rate_limit", None))

        async def attempt() -> ModelResponse:
            first = next(failures, None)  # the attempt before the retries
            if isinstance(first, Exception):
                raise first
            return first or await self._attempt(http_request, request, context)

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.retry.attempts),
            wait=wait,
            retry=tenacity.retry_if_exception(lambda failure: _is_temporary(failure, self.retry))
            | tenacity.retry_if_result(_is_temporary_error),
            before_sleep=announce,
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),  # raises the last exception
        )
        return await retrying(attempt)

    async def _attempt(self, http_request: HttpRequest, request: ModelRequest, context: CallContext) -> ModelResponse:
        auth = await self._auth(http_request) if context.transport.needs_key else {}
        began, digest = datetime.now(UTC), hashlib.blake2b(digest_size=8)
        async with context.transport.open(
            http_request, auth=auth, replay_key=context.replay_key, timeout_s=LONGEST_SILENCE_S, client=self.http_client
        ) as answer:
            recorded = answer.recorded or Recorded("", began if context.transport.needs_key else None)
            now_s = partial(_time_of, answer, recorded)
            if not 200 <= answer.status < 300:
                refusal = await self._refusal(answer, digest, auth, now_s)
                if isinstance(refusal, ProviderStatusError):
                    raise refusal
                read = refusal, b"", False, 0.0
            elif request.stream:
                read = await self._read_stream(answer, digest, request.max_output_tokens, context)
            else:
                body = b"".join([chunk async for chunk in _bounded(answer, MAX_ANSWER_BYTES, _is_blank)])
                read = self._read_whole(body, digest, request.max_output_tokens, context)
            response, begins_with, cut_short, detection_s = read
            is_complete = answer.status == _NO_CONTENT or "content-length" in answer.headers
        if _is_unrecognised(response):
            raise self._unrecognised(_excerpt(begins_with, auth), cut_short=cut_short, is_complete=is_complete)
        source = ResponseSource(recorded.at, not context.transport.needs_key, recorded.place, digest.hexdigest())
        response = replace(response, source=source, rate_limit=read_rate_limit(answer.headers, now_s), detection_s=detection_s)
        has_message = response.signal.finish_reason in (FinishReason.ERROR, FinishReason.CONTENT_FILTERED)
        return _redacted(response, auth) if has_message else response

    def _unrecognised(self, excerpt: str, *, cut_short: bool, is_complete: bool) -> ProviderError:
        """Return the error for a body in which nothing was recognised. One that ended early is a connection error, to be retried."""
        if cut_short:
            return ProviderConnectionError(
                f"{self._label} answered with an incomplete body: {excerpt!r}. "
                "Try again; if the error persists, check for a proxy or a server limit that cuts responses off."
            )
        if not excerpt and not is_complete:
            return ProviderConnectionError(
                f"{self._label}: the connection closed before any part of the answer arrived. "
                "Try again; if the error persists, check that base_url is the address of an API."
            )
        body = f"an unrecognised body: {excerpt!r}" if excerpt else "an empty body"
        return ProviderPayloadError(f"{self._label} answered with {body}. Check that base_url is the address of an API.")

    async def _auth(self, http_request: HttpRequest) -> dict[str, str]:
        """Return the headers that authenticate this attempt: a signature is valid for a few minutes only."""
        sign: Callable[[HttpRequest], dict[str, str]] | None = getattr(self.provider, "sign", None)
        try:
            auth = self.provider.auth_headers() if sign is None else await off_the_loop(partial(sign, http_request))
        except MissingKeyError as error:
            raise self._with_spelling_hint(error) from None
        known_keys.remember(known_secrets(secrets_in_headers(auth)))
        return _HiddenHeaders(auth)

    def _with_spelling_hint(self, error: MissingKeyError) -> MissingKeyError:
        """Return the error with a hint if the model's name looks mistyped: a user with two mistakes sees both at once."""
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
        digest.update(body if payload is None else dumps(payload))  # a recording reformats the JSON
        if response.text:
            context.on_text(response.text)
        return response, body[:_REDACTED_BYTES], cut_short, detection_s

    async def _read_stream(
        self, answer: HttpAnswer, digest: hashlib.blake2b, cap: int | None, context: CallContext
    ) -> tuple[ModelResponse, bytes, bool, float]:
        """Read a stream and emit its text as it arrives. The parser also reads plain JSON, which some servers send instead."""
        parser = self.provider.stream_parser(requested_cap=cap)
        begins_with, reported, detection_s = b"", list[str](), 0.0
        failure: ProviderError | None = None
        try:
            async for chunk in _bounded(answer, MAX_ANSWER_BYTES, lambda chunk: getattr(parser, "is_quiet", False)):
                digest.update(chunk)
                if len(begins_with) < _SHOWN_BYTES:
                    begins_with += chunk[:_REDACTED_BYTES]
                began = time.perf_counter()
                parsed = parser.feed(chunk)
                detection_s += time.perf_counter() - began
                for event in parsed:
                    if type(event) is TextDelta:
                        reported.append(event.text)
                        context.on_text(event.text)
                    elif type(event) is ToolCallDelta:
                        context.on_arguments(event.name, event.arguments, event.index)
        except (ProviderConnectionError, ProviderPayloadError) as error:
            failure = error
        began = time.perf_counter()
        parser.finish()
        response = signals.registry.reread(self.name, parser.response(), sound=parser.sound)
        detection_s += time.perf_counter() - began
        signal = response.signal
        if failure is not None and _is_unrecognised(response):  # no part of the answer has arrived: the call may be retried
            raise failure
        before = "".join(reported)
        if len(response.text) > len(before) and response.text.startswith(before):  # plain JSON, or an unterminated last event
            context.on_text(response.text[len(before) :])
        if failure is not None and signal.finish_reason is not FinishReason.ERROR and signal.confidence is not Confidence.HIGH:
            response = _as_error(response, f"The stream broke off: {failure}")
        elif response.is_spoilt:
            pass  # the model is asked again
        elif signal.finish_reason is FinishReason.UNKNOWN and signal.raw_value is None and not _is_unrecognised(response):
            response = _as_error(response, signal.message)
        elif signal.finish_reason is FinishReason.TOOL_CALLS and not (response.tool_calls or parser.sound):
            response = _as_error(response, "Pieces of the stream were lost, including the tool call that it announces.")
        return response, begins_with, getattr(parser, "cut_short", False), detection_s  # a custom parser may lack it

    async def _refusal(
        self, answer: HttpAnswer, digest: hashlib.blake2b, auth: Mapping[str, str], now_s: Callable[[], float | None]
    ) -> ProviderStatusError | ModelResponse:
        """Return the error for a status outside 200 to 299, or a response if a content filter refused the request."""
        status, header = answer.status, answer.headers.get
        try:
            body = b"".join([chunk async for chunk in _bounded(answer, MAX_ERROR_BODY_BYTES, _is_blank)])
        except (ProviderConnectionError, ProviderPayloadError):  # the status alone is reported
            body = b""
        message = code = ""
        rate_limit, retry_after_s = read_rate_limit(answer.headers, now_s), _retry_after_s(header)
        with suppress(ValueError):
            payload = loads(body.removeprefix(_BOM))
            message = self.provider.error_message(payload)
            rate_limit = rate_limit or read_rate_limit(headers_in_body(payload), now_s)
            retry_after_s = wait_in_body(payload) if retry_after_s is None else retry_after_s
            signal = signals.registry.detect(self.name, payload, status=status)
            if signal.finish_reason is FinishReason.CONTENT_FILTERED:
                digest.update(dumps(payload))
                return ModelResponse("", signal, raw=payload)
            raw_value = signal.raw_value
            code = _excerpt(raw_value.encode("utf-8", "replace"), auth) if isinstance(raw_value, str) else ""
        message = _excerpt(message.encode("utf-8", "replace") or body, auth)
        is_temporary = status >= 500 or status in _TEMPORARY
        advice = _ADVICE.get(status, "This may be temporary: try again later." if is_temporary else _ADVICE[400])
        if code in _ACCOUNT_CODES:
            advice = _ADVICE[402]
        if status < 400:
            message = message or f"it redirects to {redact_url(header('location') or 'no address')}"
            advice = "Redirects are not followed: set base_url to the server's own address."
        longest_s = self.retry.longest_wait_s
        if retry_after_s is not None and retry_after_s > longest_s:
            advice = f"It asks to wait for {retry_after_s:g} s; RetryPolicy(longest_wait_s={longest_s:g}) allows less. {advice}"
        message = f"{self._label} answered with status {status}: {message.rstrip('.') or 'no explanation'}. {advice}"
        return ProviderStatusError(message, status=status, retry_after_s=retry_after_s, code=code, rate_limit=rate_limit)

    @property
    def _label(self) -> str:
        return f"{self.name} ({self.model})"


def _is_blank(chunk: bytes) -> bool:
    return not chunk.strip()


async def _bounded(answer: HttpAnswer, most_bytes: int, is_quiet: Callable[[bytes], bool]) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. Raises if it is too large, or if every chunk is a keep-alive (`is_quiet`) for too long."""
    size, last_content_s = 0, time.monotonic()
    async for chunk in answer.chunks():
        size += len(chunk)
        if size > most_bytes:
            raise ProviderPayloadError(
                f"the answer is larger than {most_bytes:,} bytes and was discarded. Check that base_url is the address of an API."
            )
        yield chunk
        if not is_quiet(chunk):
            last_content_s = time.monotonic()
        elif time.monotonic() - last_content_s > KEPT_ALIVE * LONGEST_SILENCE_S:
            raise ProviderConnectionError(
                f"the provider sent only comments, pings or white space for {KEPT_ALIVE * LONGEST_SILENCE_S:g} s. Try again, "
                "or ask for a shorter answer."
            )


def _as_error(response: ModelResponse, message: str) -> ModelResponse:
    """Return the received part of a broken stream as an error response: it was paid for. Output tokens counted so far are no total."""
    signal = replace(
        response.signal, finish_reason=FinishReason.ERROR, confidence=Confidence.LOW, message=message, repairable=False
    )
    usage = response.usage
    if signal.raw_value is None:
        usage = replace(usage, output_tokens=None, reasoning_tokens=None)
    return replace(response, signal=signal, usage=usage)


def _is_unrecognised(response: ModelResponse) -> bool:
    """True if nothing in the body was recognised: it is not JSON, or JSON of some other API."""
    signal = response.signal
    return (
        signal.finish_reason is FinishReason.UNKNOWN
        and signal.raw_value is None
        and not (response.text or response.reasoning or response.tool_calls or response.response_id or response.model)
        and response.usage.source is UsageSource.UNKNOWN
    )


def _redacted(response: ModelResponse, auth: Mapping[str, str]) -> ModelResponse:
    """Redact a response: the error of a server may repeat the key."""
    hide = Redactor(secrets_in_headers(auth, sure=True)).text
    signal = response.signal
    raw_value = hide(signal.raw_value) if isinstance(signal.raw_value, str) else signal.raw_value
    body = dumps(response.raw).decode()
    raw = response.raw if hide(body) == body else loads(hide(body))
    return replace(response, signal=replace(signal, message=hide(signal.message), raw_value=raw_value), raw=raw)


def _excerpt(text: bytes, auth: Mapping[str, str]) -> str:
    """Return the beginning of a body in one line, with the key redacted."""
    hidden, _ = Redactor(secrets_in_headers(auth, sure=True)).body(text[:_REDACTED_BYTES])
    return " ".join(hidden[:_SHOWN_BYTES].decode(errors="replace").split())


def _is_temporary(error: BaseException, retry: RetryPolicy) -> bool:
    if isinstance(error, ProviderStatusError):
        is_permanent = advice_for(error) == STOP  # for example an exhausted quota, which also comes as a 429
        return error.status in _TEMPORARY and not is_permanent and (error.retry_after_s or 0.0) <= retry.longest_wait_s
    return isinstance(error, ProviderConnectionError)


def _is_temporary_error(response: ModelResponse) -> bool:
    """True for an error with status 200 that may pass, if no part of an answer came before it and nothing was charged."""
    signal, usage = response.signal, response.usage
    has_begun = (
        response.text or response.reasoning or response.refusal or response.tool_calls or response.native or response.holes
    )
    if signal.finish_reason is not FinishReason.ERROR or has_begun:
        return False
    if usage.input_tokens or usage.output_tokens or response.cost_usd:  # they belong to the run
        return False
    error = as_dict(find_error(response.raw))
    codes = {str(code).lower() for code in (signal.raw_value, *map(error.get, ("type", "status", "code")))}
    return not codes.isdisjoint(_TEMPORARY_CODES) and codes.isdisjoint(map(str, FOR_ERROR))


def _retry_after_s(header: Callable[[str], str | None]) -> float | None:
    """Return how long a provider asks to wait: from milliseconds, seconds, or a date by the provider's clock."""
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            asked_for = float(header(name) or "") / per_second
            if math.isfinite(asked_for):
                return max(0.0, asked_for)
    until, now = _seconds(header("retry-after")), _seconds(header("date"))
    return None if until is None else max(0.0, until - (time.time() if now is None else now))


def _time_of(answer: HttpAnswer, recorded: Recorded) -> float | None:
    """Return when an answer arrived, in seconds since 1970: by the provider's clock if its headers have the date."""
    by_provider = _seconds(answer.headers.get("date"))
    return by_provider if by_provider is not None or recorded.at is None else recorded.at.timestamp()


def _seconds(date: str | None) -> float | None:
    """Return an HTTP date as seconds since 1970."""
    try:
        then = parsedate_to_datetime(date or "")
    except (ValueError, OverflowError):
        return None
    return then.replace(tzinfo=then.tzinfo or UTC).timestamp()
