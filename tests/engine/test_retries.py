"""Transient failures are retried, visibly and a limited number of times; permanent ones are not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from email.utils import formatdate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers import responses_bodies
from providers.bodies import WIRES

import agentlab as lab
from agentlab.engine.client import _retry_after_s
from agentlab.errors import ProviderConnectionError, ProviderStatusError, RunFailed
from agentlab.model.finish_reasons import StopReason
from agentlab.records.events import CallRetried, Event

from .call_builders import HELLO, LOOK, agent, finished, go, is_streamed, reply_to, result_of, retried, whole_body
from .server import JSON_TYPE, Asked, Reply, cut, leave, raw, reset, serving, status, stream, whole

HELLO_BYTES = b'{"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}'
RATE_LIMIT = {"error": {"message": "Slow down.", "type": "rate_limit"}}

MAY_PASS: dict[str, tuple[Reply, str]] = {
    "408": (status(408), "status 408"),
    "409": (status(409), "status 409"),
    "425": (status(425), "status 425"),
    "429": (status(429, RATE_LIMIT), "status 429: Slow down. The rate limit was reached"),
    "429 after seconds": (status(429, None, ("retry-after", "0.05")), "status 429"),
    "429 after milliseconds": (status(429, None, ("retry-after-ms", "50")), "status 429"),
    "429 after a date": (status(429, None, ("retry-after", formatdate(usegmt=True))), "status 429"),
    "500": (status(500), "status 500"),
    "502, a page": (
        raw(b"<html>\n<h1>Bad\n gateway</h1></html>", ("content-type", "text/html"), code=502),
        "status 502: <html> <h1>Bad gateway</h1></html>. This may be temporary",
    ),
    "503, empty": (raw(b"", code=503), "status 503: no explanation. This may be temporary"),
    "503, broken off": (cut(b'{"error": "down"}', "leave", code=503), "status 503: no explanation"),
    "504": (status(504), "status 504"),
    "529": (status(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), "529: Overloaded."),
    "closed before an answer": (leave, "the connection broke off"),
    "reset before an answer": (reset, "the connection broke off"),
}


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("failure", "failure_text"), MAY_PASS.values(), ids=MAY_PASS)
def test_a_transient_failure_is_retried(failure: Reply, failure_text: str, streaming: bool) -> None:
    with serving(failure, reply_to("compatible", HELLO, streaming=streaming)) as server:
        result = result_of(server, stream=streaming)
    assert (result.stop_reason, result.text, result.error) == (StopReason.COMPLETED, "Hello there", None)
    (event,) = retried(result)
    assert (event.step, event.attempt) == (1, 1)
    assert failure_text in event.reason
    assert "\n" not in event.reason
    ((call,),) = [step.calls for step in result.history]
    assert call.retries == 1
    first, second = server.asked
    assert (first.path, first.body) == (second.path, second.body)


def test_an_exhausted_quota_is_not_retried() -> None:
    used_up = {"error": {"message": "You exceeded your quota.", "type": "insufficient_quota", "code": "insufficient_quota"}}
    with serving(status(429, used_up)) as server:
        result = result_of(server)
    assert (result.stop_reason, len(server.asked), retried(result)) == (StopReason.ERROR, 1, [])
    assert result.detail.endswith("You exceeded your quota. Check the account's credit.")
    assert result.error is not None and result.error.code == "insufficient_quota"  # type: ignore[attr-defined]
    assert result.history[-1].decision.suggestion == "stop"


@pytest.mark.parametrize("end", ["leave", "reset"])
@pytest.mark.parametrize("at", [0, 40])
def test_a_truncated_body_is_retried(end: str, at: int) -> None:
    with serving(cut(HELLO_BYTES, end, at), whole(whole_body("compatible", HELLO))) as server:
        result = result_of(server)
    assert result.text == "Hello there"
    assert [event.attempt for event in retried(result)] == [1]
    assert "broke off" in retried(result)[0].reason


def test_a_body_in_an_unknown_encoding_is_retried() -> None:
    broken = raw(b"no gzip at all", JSON_TYPE, ("content-encoding", "gzip"))
    with serving(broken, whole(whole_body("compatible", HELLO))) as server:
        result = result_of(server)
    assert result.text == "Hello there"
    assert "not in the encoding" in retried(result)[0].reason


@pytest.mark.parametrize("wire", WIRES)
def test_each_failure_of_a_call_is_an_event(wire: str) -> None:
    replies = [status(500), reset, status(429), reply_to(wire, LOOK, streaming=False)]
    replies += [status(503), reply_to(wire, HELLO, streaming=False)]
    with serving(*replies) as server:
        result = result_of(server, wire)
    assert result.stop_reason is StopReason.COMPLETED
    assert [(event.step, event.attempt) for event in retried(result)] == [(1, 1), (1, 2), (1, 3), (2, 1)]
    assert [step.calls[0].retries for step in result.history] == [3, 1]
    assert result.history.calls == 2
    frame = result.to_frame("calls")
    assert list(frame["retries"]) == [3, 1]
    assert list(result.to_frame("events")["event"]).count("CallRetried") == 4


# Errors with status 200 -----------------------------------------------------------------------------------------------------

TEMPORARY: dict[str, tuple[str, bytes]] = {
    "anthropic, event": (
        "anthropic",
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
    ),
    "openrouter, body": ("openrouter", b'{"error": {"code": 429, "message": "Overloaded"}}'),
    "openrouter, chunk": (
        "openrouter",
        b'data: {"id":"x","model":"m","error":{"code":"server_error","message":"Overloaded"},'
        b'"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}\n\n',
    ),
    "responses, event": (
        "openai-responses",
        b'event: error\ndata: {"type":"error","code":"rate_limit_exceeded","message":"Overloaded","param":null}\n\n',
    ),
    "responses, failed": (
        "openai-responses",
        b'data: {"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}\n\n'
        b'data: {"type":"response.failed","response":{"id":"r","status":"failed","output":[],"usage":null,'
        b'"error":{"code":"server_error","message":"Overloaded"}}}\n\n',
    ),
    "gemini, list": ("gemini", b'[{"error": {"code": 503, "status": "UNAVAILABLE", "message": "Overloaded"}}]'),
    "a server of one's own": (
        "compatible",
        b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
        b'data: {"error":{"message":"Overloaded","type":"InternalServerError","code":"500"}}\n\ndata: [DONE]\n\n',
    ),
}


def hello_on(wire: str) -> Reply:
    return stream(responses_bodies.stream(HELLO)) if wire == "openai-responses" else reply_to(wire, HELLO, streaming=True)


@pytest.mark.parametrize(("wire", "body"), TEMPORARY.values(), ids=TEMPORARY)
def test_a_temporary_error_with_status_200_is_retried(wire: str, body: bytes) -> None:
    with serving(stream(body), hello_on(wire)) as server:
        result = result_of(server, wire, stream=True)
    assert (result.text, result.error, result.history.calls) == ("Hello there", None, 1)
    ((call,),) = [step.calls for step in result.history]
    assert (call.retries, [event.reason for event in retried(result)]) == (1, ["The provider reports an error: Overloaded"])


@pytest.mark.parametrize(("wire", "body"), TEMPORARY.values(), ids=TEMPORARY)
def test_a_temporary_error_that_stays_is_the_response(wire: str, body: bytes) -> None:
    with serving(*[stream(body)] * 3) as server:
        result = result_of(server, wire, stream=True, retry=lab.RetryPolicy(attempts=3, first_wait_s=0))
    assert (len(server.asked), [event.attempt for event in retried(result)]) == (3, [1, 2])
    assert (result.stop_reason, result.detail) == (StopReason.ERROR, "The provider reports an error: Overloaded")
    assert (result.usage.total_tokens, len(result.history), result.history.calls) == (None, 1, 1)


CHARGED = b'data: {"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":5,"output_tokens":1}}}\n\n'
THINKING = b"""data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}

"""


@pytest.mark.parametrize("before", [CHARGED, THINKING], ids=["tokens were counted", "reasoning had begun"])
def test_an_error_after_the_answer_has_begun_is_not_retried(before: bytes) -> None:
    wire, body = TEMPORARY["anthropic, event"]
    with serving(stream(before + body)) as server:
        result = result_of(server, wire, stream=True)
    assert (len(server.asked), result.stop_reason, retried(result)) == (1, StopReason.ERROR, [])


def test_a_recorded_error_without_a_retry_is_replayed(tmp_path: Path) -> None:
    wire, body = TEMPORARY["anthropic, event"]
    with serving(stream(body)) as server:
        with lab.record(tmp_path):
            once = result_of(server, wire, stream=True, retry=lab.RetryPolicy(attempts=1))
        with lab.replay(tmp_path):
            again = result_of(server, wire, stream=True)
    assert once.detail == again.detail == "The provider reports an error: Overloaded"


# Waiting times --------------------------------------------------------------------------------------------------------------

NOW = 1_800_000_000.0
AFTER = {
    "no answer": ({}, None),
    "seconds": ({"retry-after": "7"}, 7),
    "a fraction": ({"retry-after": "0.25"}, 0.25),
    "zero": ({"retry-after": "0"}, 0),
    "negative": ({"retry-after": "-3"}, 0),
    "milliseconds": ({"retry-after-ms": "1500"}, 1.5),
    "milliseconds first": ({"retry-after-ms": "20", "retry-after": "1"}, 0.02),
    "milliseconds unreadable": ({"retry-after-ms": "soon", "retry-after": "1"}, 1),
    "a date": ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30),
    "a date by the provider's clock": (
        {"retry-after": formatdate(NOW + 5_000, usegmt=True), "date": formatdate(NOW + 4_990, usegmt=True)},
        10,
    ),
    "a date in the past": ({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0),
    "a date without a zone": ({"retry-after": formatdate(NOW + 30, usegmt=True).removesuffix(" GMT")}, 30),
    "a date, and an invalid date header": ({"retry-after": formatdate(NOW + 30, usegmt=True), "date": "today"}, 30),
    "words": ({"retry-after": "in a while"}, None),
    "empty": ({"retry-after": ""}, None),
    "for ever": ({"retry-after": "inf"}, None),
    "not a number": ({"retry-after": "nan"}, None),
    "no year": ({"retry-after": f"Wed, 21 Oct {10**20} 07:28:00 GMT"}, None),
    "no zone": ({"retry-after": f"Wed, 21 Oct 2026 07:28:00 +{10**20}"}, None),
    "no day": ({"retry-after": "Wed, 99 Oct 2026 07:28:00 GMT"}, None),
}


@pytest.mark.parametrize(("headers", "expected"), AFTER.values(), ids=AFTER)
def test_retry_after_is_obeyed(headers: dict[str, str], expected: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentlab.engine.client.time.time", lambda: NOW)
    assert _retry_after_s(headers.get) == (None if expected is None else pytest.approx(expected))


ASKED = {
    "in the body": ({"error": {"details": [{"@type": "Help"}, {"@type": "RetryInfo", "retryDelay": "0.15s"}]}}, (), 0.15),
    "in a header too": ({"error": {"details": [{"retryDelay": "50s"}]}}, (("retry-after", "0.16"),), 0.16),
    "words": ({"error": {"details": [{"retryDelay": "soon"}, None]}}, (), None),
    "another shape": ({"error": {"details": {"retryDelay": "1s"}}}, (), None),
}


@pytest.mark.parametrize(("body", "headers", "wait_s"), ASKED.values(), ids=ASKED)
def test_the_wait_that_google_asks_for(body: object, headers: tuple[tuple[str, str], ...], wait_s: float | None) -> None:
    with serving(status(429, body, *headers), whole(whole_body("gemini", HELLO))) as server:
        result = result_of(server, "gemini")
    (event,) = retried(result)
    assert event.wait_s < 0.15 if wait_s is None else event.wait_s >= wait_s
    assert (result.text, len(server.asked)) == ("Hello there", 2)


@given(st.text(), st.text(), st.text())
def test_any_retry_after_is_read_or_ignored(value: str, milliseconds: str, date: str) -> None:
    waited = _retry_after_s({"retry-after": value, "retry-after-ms": milliseconds, "date": date}.get)
    assert waited is None or 0 <= waited < float("inf")


def dates(after_s: int) -> tuple[tuple[str, str], ...]:
    return ("date", formatdate(NOW, usegmt=True)), ("retry-after", formatdate(NOW + after_s, usegmt=True))


WAITS = {
    "seconds, at the limit": ((("retry-after", "0.2"),), True),
    "seconds, over it": ((("retry-after", "0.21"),), False),
    "milliseconds, at the limit": ((("retry-after-ms", "200"),), True),
    "milliseconds, over it": ((("retry-after-ms", "201"),), False),
    "a date, now": (dates(0), True),
    "a date, over it": (dates(1), False),
}


@pytest.mark.parametrize(("headers", "waited"), WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("code", [429, 503])
def test_a_too_long_retry_after_is_not_waited_for(headers: tuple[tuple[str, str], ...], waited: bool, code: int) -> None:
    with serving(status(code, RATE_LIMIT, *headers), whole(whole_body("compatible", HELLO))) as server:
        started = time.monotonic()
        result = result_of(server)
        took_s = time.monotonic() - started
    if waited:
        assert result.text == "Hello there"
        (event,) = retried(result)
        assert event.wait_s >= (0.0 if len(headers) == 2 else 0.2)
        assert took_s >= event.wait_s
        return
    assert (len(server.asked), retried(result)) == (1, [])
    assert isinstance(result.error, ProviderStatusError)
    assert result.error.retry_after_s == pytest.approx(1 if len(headers) == 2 else 0.205, abs=0.006)
    assert "RetryPolicy(longest_wait_s=0.2) allows less" in str(result.error)
    assert "Slow down" in str(result.error)


def test_the_longest_wait_limits_the_backoff_too() -> None:
    policy = lab.RetryPolicy(attempts=7, first_wait_s=0.01, longest_wait_s=0.02)
    with serving(*[status(500)] * 7) as server:
        result = result_of(server, retry=policy)
    waits = [event.wait_s for event in retried(result)]
    assert len(waits) == 6
    assert all(0 <= wait_s <= min(0.01 * 2**index, 0.02) for index, wait_s in enumerate(waits))


# Number of attempts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [1, 2, 3])
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_retries_give_up_after_the_allowed_attempts(attempts: int, streaming: bool) -> None:
    policy = lab.RetryPolicy(attempts=attempts, first_wait_s=0.001)
    with serving(*[status(429, RATE_LIMIT)] * 5) as server:
        result = result_of(server, retry=policy, stream=streaming)
    assert len(server.asked) == attempts
    assert [event.attempt for event in retried(result)] == list(range(1, attempts))
    assert result.stop_reason is StopReason.ERROR
    assert isinstance(result.error, ProviderStatusError)
    assert (result.error.status, result.error.retry_after_s) == (429, None)
    (step,) = result.history
    assert step.error is result.error
    assert (step.calls, step.stop_reason) == ((), StopReason.ERROR)
    assert result.usage.total_tokens == 0  # refused: nothing was generated
    assert str(result.error) in result.detail
    with pytest.raises(RunFailed) as caught:
        result.raise_for_stop()
    assert caught.value.__cause__ is result.error


def test_the_last_allowed_attempt_can_succeed() -> None:
    for attempts, expected in ((2, StopReason.ERROR), (3, StopReason.COMPLETED)):
        with serving(status(500), status(500), whole(whole_body("compatible", HELLO))) as server:
            policy = lab.RetryPolicy(attempts=attempts, first_wait_s=0.001)
            assert result_of(server, retry=policy).stop_reason is expected


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_refused_connection_is_retried_and_reported() -> None:
    result = result_of(f"http://127.0.0.1:{closed_port()}/v1")
    assert result.stop_reason is StopReason.ERROR
    assert isinstance(result.error, ProviderConnectionError)
    assert "Check the address and that the server runs" in str(result.error)
    assert [event.attempt for event in retried(result)] == [1, 2, 3]
    assert result.usage.total_tokens is None  # it is unknown whether the request was processed


def test_a_server_that_starts_late_is_reached() -> None:
    port = closed_port()
    with contextlib.ExitStack() as stack:

        def start(event: Event) -> None:
            if isinstance(event, CallRetried) and event.attempt == 1:
                stack.enter_context(serving(whole(whole_body("compatible", HELLO)), port=port))

        result = result_of(f"http://127.0.0.1:{port}/v1", observers=[start])
    assert (result.text, len(retried(result))) == ("Hello there", 1)


def test_retries_do_not_count_as_calls() -> None:
    with serving(status(500), status(500), whole(whole_body("compatible", HELLO))) as server:
        result = result_of(server, budget=lab.Budget(max_calls=1))
    assert (result.stop_reason, result.history.calls) == (StopReason.COMPLETED, 1)


def test_the_budgets_timeout_applies_during_the_wait_for_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = lab.RetryPolicy(first_wait_s=0, longest_wait_s=3600)
    before, ahead_s = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: before() + ahead_s[0])

    def let_time_pass(event: Event) -> None:
        if isinstance(event, CallRetried):
            ahead_s[0] = 60

    with serving(status(429, None, ("retry-after", "3000"))) as server:
        result = result_of(server, retry=policy, budget=lab.Budget(timeout=60), observers=[let_time_pass])
    assert result.stop_reason is StopReason.TIMEOUT
    assert [event.wait_s for event in retried(result)] == [3000]
    assert len(result.history) == 1


def test_a_run_can_be_cancelled_during_the_wait_for_a_retry() -> None:
    async def main() -> lab.RunResult:
        policy = lab.RetryPolicy(first_wait_s=0, longest_wait_s=3600)
        run = agent(server, retry=policy).run("go")
        run.observe(lambda event: run.cancel() if isinstance(event, CallRetried) else None)
        return await run

    with serving(status(429, None, ("retry-after", "3000"))) as server:
        assert go(main()).stop_reason is StopReason.CANCELLED


def test_concurrent_failing_runs_wait_independently() -> None:
    failed: set[bytes] = set()

    def script(asked: Asked) -> Reply:
        if asked.body not in failed:
            failed.add(asked.body)
            return status(429)
        return whole(whole_body("compatible", HELLO))

    async def main() -> list[lab.RunResult]:
        one = agent(server)
        return await asyncio.gather(*(finished(one.run(f"task {number}")) for number in range(20)))

    with serving(script=script) as server:
        results = go(main())
    assert [result.text for result in results] == ["Hello there"] * 20
    assert [len(retried(result)) for result in results] == [1] * 20
    assert len(server.asked) == 40


# Permanent failures ---------------------------------------------------------------------------------------------------------

REFUSED = {
    "301": (status(301, {}, ("location", "https://elsewhere.example/v1?key=abc")), "set base_url"),
    "307": (
        raw(b"", ("location", "https://elsewhere.example/v1"), code=307),
        "redirects to https://elsewhere.example/v1. Redirects",
    ),
    "400": (status(400), "words for 400. Check the request against this message."),
    "401": (status(401), "words for 401. Check the API key."),
    "401, broken off": (cut(b'{"error": "who are you"}', "leave", code=401), "no explanation. Check the API key."),
    "401, reset": (cut(b'{"error": "who are you"}', "reset", code=401), "no explanation. Check the API key."),
    "402": (status(402), "words for 402. Check the account's credit."),
    "403": (status(403), "words for 403. Check that the key may use this model."),
    "404": (status(404), "words for 404. Check the model's name and the address."),
    "404, text": (raw(b"404 page not found\n", ("content-type", "text/plain"), code=404), "404 page not found. Check the model"),
    "404, other words": (status(404, {"fault": {"why": "gone"}}), '{"fault": {"why": "gone"}}. Check the model'),
    "404, a list": (status(404, [{"error": {"message": "no such model"}}]), "no such model. Check the model"),
    "404, nested deeply": (raw(b"[" * 100_000, JSON_TYPE, code=404), "status 404: [[["),
    "405": (status(405), "words for 405. Check the address."),
    "413": (status(413), "shorten the conversation"),
    "422": (status(422), "words for 422. Check the request against this message."),
    "400, endless": (status(400, {"error": {"message": "word " * 100_000}}), "word word"),
}


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("refusal", "failure_text"), REFUSED.values(), ids=REFUSED)
def test_a_permanent_failure_is_not_retried(refusal: Reply, failure_text: str, streaming: bool) -> None:
    with serving(refusal, whole(whole_body("compatible", HELLO))) as server:
        result = result_of(server, stream=streaming)
    assert (len(server.asked), retried(result)) == (1, [])
    assert (result.stop_reason, result.text) == (StopReason.ERROR, "")
    assert isinstance(result.error, ProviderStatusError)
    message = str(result.error)
    assert f"compatible (some-model) answered with status {result.error.status}: " in message
    assert failure_text in message
    assert "abc" not in message
    assert len(message) < 600
    assert ".." not in message


WORDS = {
    "openai": {"error": {"message": "The model `x` does not exist", "type": "invalid_request_error", "code": "model_not_found"}},
    "compatible": {"object": "error", "message": "The model `x` does not exist", "code": 404},
    "anthropic": {"type": "error", "error": {"type": "not_found_error", "message": "The model `x` does not exist"}},
    "gemini": {"error": {"code": 404, "message": "The model `x` does not exist", "status": "NOT_FOUND"}},
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_refusal_names_provider_model_status_message_and_next_step(wire: str) -> None:
    with serving(status(404, WORDS.get(wire, WORDS["openai"]))) as server:
        error = result_of(server, wire).error
    assert str(error) == (
        f"{wire} (some-model) answered with status 404: The model `x` does not exist. Check the model's name and the address."
    )


def test_a_refusal_in_a_later_step_keeps_the_earlier_ones() -> None:
    with serving(reply_to("compatible", LOOK, streaming=False), status(400)) as server:
        result = result_of(server)
    assert result.stop_reason is StopReason.ERROR
    assert [len(step.calls) for step in result.history] == [1, 0]
    assert result.usage.total_tokens == 15
    assert result.text == "Let me see"
    assert not any(map(is_streamed, server.asked))


def test_each_http_status_is_retried_or_not() -> None:
    codes = [*range(300, 309), *range(400, 432), *range(500, 531)]

    async def main() -> None:
        one = agent(server, retry=lab.RetryPolicy(attempts=2, first_wait_s=0))
        for code in codes:  # in batches: a busy machine may not open that many connections in time
            await finished(one.run(f"status {code}"))

    def answer(asked: Asked) -> Reply:
        code = code_in(asked)
        return raw(b"", code=code) if code == 304 else status(code)  # which has no body

    with serving(script=answer) as server:
        go(main())
    times = Counter(map(code_in, server.asked))
    assert sorted(times) == codes
    assert [code for code in codes if times[code] == 2] == [408, 409, 425, 429, 500, 502, 503, 504, 529]


def code_in(asked: Asked) -> int:
    return int(asked.json["messages"][0]["content"].split()[1])
