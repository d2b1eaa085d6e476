from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.signals import detect
from agentlab.types import Confidence, FinishReason

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
@pytest.mark.parametrize(
    "payload", [b"", "", {}, [], None, 7, "words", b"<html>", b"\xff\xfe", b"null", b"[]", b"0", "[" * 99_999]
)
def test_what_is_no_answer(name: str, payload: Any):
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
        pytest.param({"choices": [{"finish_reason": "stop"}]}, "status", 429, "HTTP 429", id="an answer under an error's status"),
    ],
)
@pytest.mark.parametrize("name", WIRES)
def test_an_error_status_is_an_error(name: str, payload: Any, field: str, value: Any, words: str):
    found = detect(name, payload, status=429)
    assert (found.finish_reason, found.confidence, found.raw_field, found.raw_value) == (F.ERROR, HIGH, field, value)
    assert words in found.message
    assert found.metadata == {"status": 429}


def test_the_last_good_status():
    assert detect("openai", whole("openai", CUT), status=399).finish_reason is F.MAX_TOKENS
    assert detect("openai", whole("openai", CUT), status=400).finish_reason is F.ERROR


def test_the_cap_is_taken_into_account():
    payload = whole("openai", Answer(output_tokens=5))
    assert detect("openai", payload, requested_cap=5).confidence is Confidence.MEDIUM
    assert detect("openai", payload, requested_cap=6).confidence is HIGH


def test_a_model_may_be_named_too():
    assert detect("openai:gpt-4.1-mini", whole("openai", CUT)).finish_reason is F.MAX_TOKENS


@pytest.mark.parametrize("name", WIRES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_nothing_that_is_sent_raises(name: str, data: st.DataObject):
    payload = data.draw(st.binary(max_size=60) | st.text(max_size=60) | odd(name) | odd(name).map(json.dumps))
    status = data.draw(st.sampled_from([200, 404]))
    detect(name, payload, streaming=data.draw(st.sampled_from([None, True, False])), status=status)
