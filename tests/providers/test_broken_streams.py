"""Nothing clean comes out of a broken stream."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.types import (
    Confidence,
    FinishReason,
    TerminationSignal,
)

from .bodies import WIRES, Answer, Call, parse_stream, stream

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW


def is_clean(signal: TerminationSignal) -> bool:
    return signal.finish_reason in (F.END_TURN, F.STOP_SEQUENCE) and signal.confidence is HIGH


LAST_WORD = {"anthropic": b'"type": "message_stop"}', "gemini": b"}}"}


def is_whole(name: str, body: bytes, at: int) -> bool:
    """Whether a cut there only takes line ends."""
    last = LAST_WORD.get(name, b"data: [DONE]")
    if name == "gemini":
        return not body[at:].strip()
    return last in body[:at]


@pytest.mark.parametrize("name", WIRES)
def test_a_stream_cut_anywhere_is_no_clean_end(name: str):
    body = stream(name, Answer(text=("Hello", " wörld"), reasoning=("hm",)))
    for at in range(len(body) + 1):
        response, _ = parse_stream(name, [body[:at]])
        complete = is_whole(name, body, at) or (name == "gemini" and not body[at:].strip(b'}\n"r1: ,eponsId'))
        if not complete:
            assert not is_clean(response.signal), (at, body[:at])
            assert response.signal.confidence is not HIGH
    assert is_clean(parse_stream(name, [body])[0].signal)


@pytest.mark.parametrize("name", WIRES)
def test_a_call_in_a_broken_stream_is_not_closed(name: str):
    answer = Answer(text=(), calls=(Call("f", {"a": 1}), Call("g", {"b": "some longer text"})), finish=F.TOOL_CALLS)
    body = stream(name, answer)
    for at in range(len(body)):
        response, _ = parse_stream(name, [body[:at]])
        for call in response.tool_calls:
            if call.closed:
                assert json.loads(call.arguments) in ({"a": 1}, {"b": "some longer text"})
        if not response.tool_calls or response.signal.raw_value is not None:
            continue
        assert response.signal.finish_reason is F.UNKNOWN
        closed = [call.closed for call in response.tool_calls]
        if name == "gemini":  # a call comes in one piece, or not at all
            assert all(closed)
        elif name == "anthropic":
            stops = body[:at].count(b'data: {"type": "content_block_stop", "index": ')
            assert closed.count(False) in (len(closed) - stops, len(closed) - stops + 1)
        else:
            assert closed == [True] * (len(closed) - 1) + [False]


@pytest.mark.parametrize("name", ["openai", "openrouter", "xai", "azure", "compatible", "anthropic"])
def test_a_call_that_lost_a_piece_is_not_closed(name: str):
    """What is left of the arguments may well be JSON."""
    body = stream(name, Answer(text=(), calls=(Call("f", {"path": "/tmp/only/this/one"}),), finish=F.TOOL_CALLS))
    events = body.split(b"\n\n")
    (lost,) = [n for n, event in enumerate(events) if b"/only/t" in event]
    events[lost] = b'data: {"id": }'
    (call,) = parse_stream(name, [b"\n\n".join(events)])[0].tool_calls
    assert json.loads(call.arguments) == {"path": "/tmphis/one"}
    assert not call.closed


@pytest.mark.parametrize("name", WIRES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_one_flipped_bit(name: str, data: st.DataObject):
    """What breaks the framing or the JSON is noticed. A flip inside of a name or a text leaves both sound: nobody can notice it."""
    body = stream(name, Answer(text=("Hello", " there")))
    at = data.draw(st.integers(0, len(body) - 1))
    flipped = bytes([*body[:at], body[at] ^ 1 << data.draw(st.integers(0, 7)), *body[at + 1 :]])
    response, _ = parse_stream(name, [flipped])
    if is_clean(response.signal):
        assert len(payloads(flipped)) == len(payloads(body))


def payloads(body: bytes) -> list[Any]:
    """The events whose data is JSON, or the last word, read in the simplest way."""
    found = []
    for block in body.split(b"\n\n"):
        for line in block.split(b"\n"):
            if line.startswith(b"data:"):
                with contextlib.suppress(ValueError):
                    found.append("end" if b"[DONE]" in line else json.loads(line[5:].decode("utf-8", "replace")))
    return found


@pytest.mark.parametrize("name", WIRES)
def test_a_lost_event_is_noticed(name: str):
    """Each event in turn arrives as garbage."""
    events = stream(name, Answer(text=("a", "b", "c"))).split(b"\n\n")[:-1]
    for number in range(len(events)):
        damaged = [event if n != number else b'data: {"id": }' for n, event in enumerate(events)]
        response, _ = parse_stream(name, [b"\n\n".join([*damaged, b""])])
        assert not is_clean(response.signal)


# Bytes that are no text, and chunks that come twice ---------------------------------------------------------------------------

CALLS = Answer(text=("Let me see",), calls=(Call("f", {"path": "/tmp/only/this/one"}),), finish=F.TOOL_CALLS)


@pytest.mark.parametrize("name", [name for name in WIRES if name != "gemini"])  # there a call comes in one piece
def test_a_call_of_which_a_byte_is_no_text_is_not_executed_with_what_is_left(name: str):
    """A spoilt byte in a name hides a piece of the arguments, and what is left of them may well be JSON."""
    body = stream(name, CALLS)
    whole = {"path": "/tmp/only/this/one"}
    for at in range(len(body)):
        response, _ = parse_stream(name, [body[:at], bytes([body[at] ^ 0x80]), body[at + 1 :]])
        for call in response.tool_calls:
            if call.closed and call.arguments.strip() and "\ufffd" not in call.arguments:
                assert json.loads(call.arguments) == whole, (at, body[at - 20 : at + 20])


@pytest.mark.parametrize("name", WIRES)
def test_a_byte_that_is_no_text_in_the_text_spoils_a_character_and_the_confidence(name: str):
    body = stream(name, Answer(text=("Hello", " there")))
    at = body.index(b"Hello") + 1
    response, _ = parse_stream(name, [body[:at], b"\xff", body[at + 1 :]])
    assert response.text == "H\ufffdllo there"
    assert (response.signal.finish_reason, response.signal.confidence) == (F.END_TURN, MEDIUM)


def test_a_call_that_gemini_sends_twice_is_one_and_a_second_one_is_another():
    events = stream("gemini", CALLS).split(b"\n\n")
    (at,) = [n for n, event in enumerate(events) if b"functionCall" in event]
    twice, _ = parse_stream("gemini", [b"\n\n".join([*events[: at + 1], *events[at:]])])
    assert (len(twice.tool_calls), twice.signal.confidence) == (1, MEDIUM)
    both = Answer(text=(), calls=CALLS.calls * 2, finish=F.TOOL_CALLS)
    other, _ = parse_stream("gemini", [stream("gemini", both)])
    assert (len(other.tool_calls), other.signal.confidence) == (2, HIGH)
