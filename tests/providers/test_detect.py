from __future__ import annotations

import json
import random
from typing import Any

import pytest
from measured_work import calls_in

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.providers.finish_detection import detect
from tests.tried import tried

from .bodies import WIRES, Answer, stream, whole
from .test_any_json import odd

F, HIGH, LOW = FinishReason, Confidence.HIGH, Confidence.LOW
CUT = Answer(finish=F.MAX_TOKENS)


def forms(name: str) -> dict[str, Any]:
    payload, events = whole(name, CUT), stream(name, CUT)
    return {
        "object": payload,
        "text": json.dumps(payload),
        "indented text": json.dumps(payload, indent=2),
        "bytes": json.dumps(payload).encode(),
        "padded bytes": b"\n   \n" + json.dumps(payload).encode() + b"\n",
        "bytearray": bytearray(json.dumps(payload).encode()),
        "stream bytes": events,
        "stream text": events.decode(),
        "stream with a byte order mark": b"\xef\xbb\xbf" + events,
        "stream with other line ends": events.replace(b"\n", b"\r\n"),
    }


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("streaming", [None, True, False])
def test_every_form_of_a_payload(name: str, streaming: bool | None):
    for form, payload in forms(name).items():
        found = detect(name, payload, streaming=streaming)
        assert (found.finish_reason, found.confidence, found.provider) == (F.MAX_TOKENS, HIGH, name), form


def test_a_list_of_chunks():
    chunks = [{"candidates": [{"content": {"parts": [{"text": "a"}]}}]}, {"candidates": [{"finishReason": "STOP"}]}]
    assert detect("gemini", chunks).finish_reason is F.END_TURN
    assert detect("gemini", json.dumps(chunks)).finish_reason is F.END_TURN


@pytest.mark.parametrize("name", WIRES)
def test_a_payload_that_is_no_answer(name: str):
    for payload in (b"", "", {}, [], None, 7, "words", b"<html>", b"\xff\xfe", b"null", b"[]", b"0", "[" * 99_999):
        for streaming in (None, True, False):
            found = detect(name, payload, streaming=streaming)
            assert (found.finish_reason, found.confidence) == (F.UNKNOWN, LOW)


@pytest.mark.parametrize(
    ("payload", "field", "value", "words"),
    [
        pytest.param(
            {"error": {"type": "rate_limit_error", "message": "Slow."}}, "error.type", "rate_limit_error", "Slow.", id="object"
        ),
        pytest.param(b'{"error": {"code": "x", "message": "Slow."}}', "error.code", "x", "Slow.", id="bytes"),
        pytest.param('data: {"error": {"code": "x", "message": "Slow."}}\n\n', "error.code", "x", "Slow.", id="event"),
        pytest.param("<html>Slow.</html>", "status", 429, "Slow.", id="html"),
        pytest.param({"detail": "Slow."}, "status", 429, "Slow.", id="detail"),
        pytest.param(b"", "status", 429, "HTTP 429", id="nothing"),
        pytest.param(b"\x00\xff\x80", "status", 429, "HTTP 429", id="binary"),
        pytest.param({"choices": [{"finish_reason": "stop"}]}, "status", 429, "HTTP 429", id="an answer with an error's status"),
    ],
)
def test_an_error_status_is_an_error(payload: Any, field: str, value: Any, words: str):
    for name in WIRES:
        found = detect(name, payload, status=429)
        assert (found.finish_reason, found.confidence, found.raw_field, found.raw_value) == (F.ERROR, HIGH, field, value), name
        assert words in found.message, name
        assert found.metadata == {"status": 429}, name


def test_a_status_below_400_is_no_error():
    assert detect("openai", whole("openai", CUT), status=399).finish_reason is F.MAX_TOKENS
    assert detect("openai", whole("openai", CUT), status=400).finish_reason is F.ERROR


def test_the_cap_is_taken_into_account():
    payload = whole("openai", Answer(output_tokens=5))
    assert detect("openai", payload, requested_cap=5).confidence is Confidence.MEDIUM
    assert detect("openai", payload, requested_cap=6).confidence is HIGH


def test_a_model_may_be_named_too():
    assert detect("openai:gpt-4.1-mini", whole("openai", CUT)).finish_reason is F.MAX_TOKENS


@pytest.mark.parametrize("name", WIRES)
@tried(60)
def test_no_payload_raises(name: str, chance: random.Random):
    value = odd(name, chance)
    for payload in (value, json.dumps(value), chance.randbytes(30), chance.randbytes(30).decode("latin-1")):
        detect(name, payload, streaming=chance.choice((None, True, False)), status=chance.choice((200, 404)))


# An unknown status, and refusals by a filter ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*WIRES, "bedrock", "openai-responses", "nobody-knows-it"])
def test_an_unknown_status_is_none(name: str):
    """As in every recording without a status."""
    for payload in (whole("openai", CUT), json.dumps(whole("openai", CUT)), stream("openai", CUT), {}, b"", None, "<html>"):
        for streaming in (None, True, False):
            found = detect(name, payload, streaming=streaming, status=None)
            assert found == detect(name, payload, streaming=streaming, status=200)


def test_a_custom_detector_accepts_an_unknown_status():
    for one in (lambda body: lab.TerminationSignal(F.PAUSED, LOW), "openai"):
        undo = lab.signals.register("my-gateway", one)
        try:
            expected = F.PAUSED if callable(one) else F.MAX_TOKENS
            assert lab.detect("my-gateway", whole("openai", CUT), status=None).finish_reason is expected
        finally:
            undo()


FILTERED = [
    pytest.param({"error": {"code": "content_filter", "status": 400}}, 400, "error.code", "content_filter", id="Azure"),
    pytest.param(
        {"error": {"code": "400", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
        400,
        "error.innererror.code",
        "ResponsibleAIPolicyViolation",
        id="Azure, the inner error alone",
    ),
    pytest.param(
        {"error": {"type": "invalid_request_error", "code": "content_policy_violation"}},
        400,
        "error.code",
        "content_policy_violation",
        id="OpenAI",
    ),
    pytest.param(
        {"error": {"code": 403, "message": "Flagged.", "metadata": {"reasons": ["violence"], "flagged_input": "a knife"}}},
        403,
        "error.code",
        403,
        id="OpenRouter",
    ),
    pytest.param({"code": "DataInspectionFailed", "message": "No."}, 400, "error.code", "DataInspectionFailed", id="Alibaba"),
]


@pytest.mark.parametrize(("body", "status", "field", "word"), FILTERED)
def test_a_refusal_by_a_filter_is_no_error(body: Any, status: int, field: str, word: Any):
    for name in (*WIRES, "bedrock", "openai-responses", "nobody-knows-it"):
        for payload in (body, json.dumps(body), json.dumps(body).encode()):
            found = detect(name, payload, status=status)
            assert (found.finish_reason, found.confidence) == (F.CONTENT_FILTERED, HIGH), name
            assert (found.raw_field, found.raw_value, found.metadata["status"]) == (field, word, status), name
        if "error" in body:  # in a body with status 200, as in a started stream
            assert detect(name, body).finish_reason is F.CONTENT_FILTERED, name


@pytest.mark.parametrize("code", ["invalid_prompt", "content_filter_error", "filter", None, 400, ["content_filter"]])
def test_other_refusals_stay_errors(code: Any):
    assert detect("openai", {"error": {"code": code, "message": "content_filter"}}, status=400).finish_reason is F.ERROR


# Size ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [whole, stream])
def test_a_body_of_any_size_is_read(form: Any):
    body = form("openai", Answer(text=("x" * 65 * 2**20,), finish=F.MAX_TOKENS))
    found = detect("openai", body if form is stream else json.dumps(body))
    assert (found.finish_reason, found.confidence) == (F.MAX_TOKENS, HIGH)


def test_a_refusal_of_any_size_is_an_error():
    body = b'{"error": {"message": "' + b"x" * 70 * 2**20
    assert (detect("openai", body, status=500).finish_reason, detect("openai", body, status=500).raw_value) == (F.ERROR, 500)


def test_the_work_for_the_largest_body_is_linear_in_its_size():
    """Each event is read once, for an unknown provider too and in any chunks."""

    def read(events: int) -> int:
        parser = lab.signals.stream("nobody-knows-it")
        chunks = [b'data: {"news": %d}\n\n' % number for number in range(events)]
        return calls_in(lambda: [*map(parser.feed, chunks), parser.finish()])

    read(10)
    assert read(2_000) < 12 * read(200)


DEEP = 200_000


@pytest.mark.parametrize(
    "body", [b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"choices":' + b"[" * DEEP], ids=range(4)
)
def test_deep_nesting_is_no_answer(body: bytes):
    for name in (*WIRES, "bedrock", "openai-responses", "nobody-knows-it"):
        found = detect(name, body)
        assert (found.finish_reason, found.confidence) == (F.UNKNOWN, LOW), name


def test_deeply_nested_objects_are_no_answer():
    nested: Any = []
    for _ in range(DEEP):
        nested = [nested]
    try:
        for payload in (nested, {"choices": nested}, {"choices": [{"message": {"content": nested}, "finish_reason": nested}]}):
            assert detect("openai", payload).finish_reason is not F.END_TURN
    finally:
        while nested:  # otherwise Python itself runs out of stack when it frees the object
            nested = nested.pop()


def test_an_unknown_wire_that_lost_a_piece_has_no_clean_end():
    lines = [b'data: {"text": "pay 100 "}', b'data: {"text": ', b'data: {"text": "to Bob", "finish_reason": "stop"}']
    assert detect("nobody-knows-it", b"\n\n".join([*lines, b""])).finish_reason is F.UNKNOWN
    assert detect("nobody-knows-it", b"\n\n".join([lines[0], lines[2], b""])).finish_reason is F.END_TURN
