"""No clean end of a broken stream."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.responses import Hole, ModelResponse, marked

from . import bedrock_bodies, responses_bodies
from .bodies import READERS, WIRES, Answer, Call, cut, parse_stream, sse, stream

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW


def is_clean(signal: TerminationSignal) -> bool:
    return signal.finish_reason in (F.END_TURN, F.STOP_SEQUENCE) and signal.confidence is HIGH


LAST_WORD = {"anthropic": b'"type": "message_stop"}', "gemini": b"}}"}


def is_whole(name: str, body: bytes, at: int) -> bool:
    """True if a cut there removes only line ends."""
    last = LAST_WORD.get(name, b"data: [DONE]")
    if name == "gemini":
        return not body[at:].strip()
    return last in body[:at]


@pytest.mark.parametrize("name", WIRES)
def test_a_stream_cut_anywhere_has_no_clean_end(name: str):
    body = stream(name, Answer(text=("Hello", " wörld"), reasoning=("hm",)))
    for at in range(len(body) + 1):
        response, _ = parse_stream(name, [body[:at]])
        complete = is_whole(name, body, at) or (name == "gemini" and not body[at:].strip(b'}\n"r1: ,eponsId'))
        if not complete:
            assert not is_clean(response.signal), (at, body[:at])
            assert response.signal.confidence is not HIGH
    assert is_clean(parse_stream(name, [body])[0].signal)


@pytest.mark.parametrize("name", READERS)
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
        if name == "gemini":  # a call arrives in one piece or not at all
            assert all(closed)
        elif name == "anthropic":
            stops = body[:at].count(b'data: {"type": "content_block_stop", "index": ')
            assert closed.count(False) in (len(closed) - stops, len(closed) - stops + 1)
        else:
            assert closed == [True] * (len(closed) - 1) + [False]


@pytest.mark.parametrize("name", ["openai", "openrouter", "xai", "azure", "compatible", "anthropic"])
def test_a_call_that_lost_a_piece_is_not_closed(name: str):
    """The rest of the arguments may happen to be JSON."""
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
def test_a_flipped_bit_in_the_framing_is_noticed(name: str, data: st.DataObject):
    """Damage to the framing or the JSON is noticed. A flip inside a name or a text keeps both valid and cannot be noticed."""
    body = stream(name, Answer(text=("Hello", " there")))
    at = data.draw(st.integers(0, len(body) - 1))
    flipped = bytes([*body[:at], body[at] ^ 1 << data.draw(st.integers(0, 7)), *body[at + 1 :]])
    response, _ = parse_stream(name, [flipped])
    if is_clean(response.signal):
        assert len(payloads(flipped)) == len(payloads(body))


def payloads(body: bytes) -> list[Any]:
    """The events whose data is JSON, or the last event, read in the simplest way."""
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


# Invalid bytes, and repeated chunks -------------------------------------------------------------------------------------------

CALLS = Answer(text=("Let me see",), calls=(Call("f", {"path": "/tmp/only/this/one"}),), finish=F.TOOL_CALLS)


@pytest.mark.parametrize("name", [name for name in READERS if name != "gemini"])  # there a call arrives in one piece
def test_a_call_with_an_invalid_byte_is_not_executed(name: str):
    """A damaged byte in a name hides a piece of the arguments, and the rest of them may happen to be JSON."""
    body = stream(name, CALLS)
    whole = {"path": "/tmp/only/this/one"}
    for at in range(len(body)):
        response, _ = parse_stream(name, [body[:at], bytes([body[at] ^ 0x80]), body[at + 1 :]])
        for call in response.tool_calls:
            if call.closed and call.arguments.strip() and "\ufffd" not in call.arguments:
                assert json.loads(call.arguments) == whole, (at, body[at - 20 : at + 20])


@pytest.mark.parametrize("name", WIRES)
def test_an_invalid_byte_in_the_text_costs_a_character_and_the_certainty(name: str):
    body = stream(name, Answer(text=("Hello", " there")))
    at = body.index(b"Hello") + 1
    response, _ = parse_stream(name, [body[:at], b"\xff", body[at + 1 :]])
    assert response.text == "H\ufffdllo there"
    assert (response.signal.finish_reason, response.signal.confidence) == (F.UNKNOWN, LOW)
    assert [(hole.place, hole.reason) for hole in response.holes] == [(0, "bytes are not UTF-8")]


def test_a_call_that_gemini_repeats_is_one_and_another_call_is_a_second():
    events = stream("gemini", CALLS).split(b"\n\n")
    (at,) = [n for n, event in enumerate(events) if b"functionCall" in event]
    twice, _ = parse_stream("gemini", [b"\n\n".join([*events[: at + 1], *events[at:]])])
    assert (len(twice.tool_calls), twice.signal.confidence) == (1, MEDIUM)
    both = Answer(text=(), calls=CALLS.calls * 2, finish=F.TOOL_CALLS)
    other, _ = parse_stream("gemini", [stream("gemini", both)])
    assert (len(other.tool_calls), other.signal.confidence) == (2, HIGH)


# Gaps ------------------------------------------------------------------------------------------------------------------------

PAY = Answer(text=("pay 100 ", "NOT ", "to Bob"), reasoning=("He ", "said ", "no."))
BROKEN = b'data: {"id": '
FORMS = (*WIRES, "bedrock", "openai-responses")


def pieces(name: str, answer: Answer) -> list[bytes]:
    """The stream, one event each; Responses in the variant of servers whose last event is empty."""
    if name == "bedrock":
        return bedrock_bodies.frames(bedrock_bodies.events(answer))
    body = responses_bodies.stream(answer, "empty end") if name == "openai-responses" else stream(name, answer)
    body = re.sub(rb', "sequence_number": \d+', b"", body)  # some servers omit it
    return [event + b"\n\n" for event in body.split(b"\n\n") if event.strip()]


def without(name: str, answer: Answer, piece: bytes) -> list[bytes]:
    """The stream in which the first event with this piece is unreadable, as are events that repeat it."""
    events = pieces(name, answer)
    at = next(n for n, event in enumerate(events) if piece in event)
    broken = events[at][:-3] + bytes([events[at][-3] ^ 4]) + events[at][-2:] if name == "bedrock" else BROKEN + b"\n\n"
    again = (b"output_text.done", b"reasoning_summary_text.done", b"part.done", b"item.done")
    return [*events[:at], broken, *(event for event in events[at + 1 :] if not any(word in event for word in again))]


def lost(name: str, answer: Answer, piece: bytes) -> ModelResponse:
    return parse_stream(name, without(name, answer, piece))[0]


@pytest.mark.parametrize("name", FORMS)
def test_text_that_lost_a_piece_has_no_clean_end_and_marks_the_gap(name: str):
    response = lost(name, PAY, b"NOT ")
    assert response.text == "pay 100 to Bob"
    (hole,) = response.holes
    assert (hole.place, hole.in_reasoning, response.is_spoilt) == (8, False, True)
    (sent,) = [event for event in pieces(name, PAY) if b"NOT " in event and b"100" not in event]
    assert hole.lost_bytes == (len(sent) if name == "bedrock" else 7)
    assert (response.signal.finish_reason, response.signal.confidence) == (F.UNKNOWN, LOW)
    assert "A piece of the stream was lost" in response.signal.message
    assert response.native is None
    assert marked(response.text, response.holes) == "pay 100 [… part of the stream was lost here …] to Bob"
    whole, _ = parse_stream(name, pieces(name, PAY))
    assert (whole.text, whole.holes, whole.is_spoilt) == ("pay 100 NOT to Bob", (), False)


@pytest.mark.parametrize("name", FORMS)
def test_detect_of_a_payload_with_a_gap(name: str):
    body = b"".join(without(name, PAY, b"NOT "))
    signal = lab.detect(name, body)
    assert (signal.finish_reason, signal.confidence) == (F.UNKNOWN, LOW)
    assert lab.decide(signal).action is lab.Action.ABORT
    undo = lab.signals.register(name, lambda body: lab.TerminationSignal(F.END_TURN, HIGH))
    try:
        assert lab.detect(name, body, streaming=True).finish_reason is F.UNKNOWN
        assert lab.detect(name, b"".join(pieces(name, PAY)), streaming=True).finish_reason is F.END_TURN
    finally:
        undo()


@pytest.mark.parametrize("name", FORMS)
def test_a_gap_in_the_reasoning_alone_does_not_affect_the_answer(name: str):
    response = lost(name, PAY, b"said ")
    assert (response.text, response.reasoning) == ("pay 100 NOT to Bob", "He no.")
    assert [hole.in_reasoning for hole in response.holes] == [True]
    assert not response.is_spoilt
    assert (response.signal.finish_reason, response.signal.confidence) == (F.END_TURN, MEDIUM)
    assert response.native is None  # reasoning with a gap is not sent back
    assert marked(response.text, response.holes) == response.text


@pytest.mark.parametrize("name", [name for name in FORMS if name != "gemini"])  # there a call arrives in one piece
def test_a_call_that_lost_a_piece_affects_the_answer(name: str):
    answer = Answer(text=("Let me see",), calls=(Call("f", {"path": "/tmp/only/this/one"}),), finish=F.TOOL_CALLS)
    response = lost(name, answer, b"only/t" if name == "bedrock" else b"/only/t")
    assert response.is_spoilt
    assert response.signal.finish_reason is F.UNKNOWN
    assert not any(call.closed for call in response.tool_calls)


@pytest.mark.parametrize("name", ["openai", "compatible", "anthropic", "gemini"])
def test_a_loss_after_the_end_is_no_gap(name: str):
    events = pieces(name, PAY)
    end = {"anthropic": b"message_delta", "gemini": b'"finishReason"'}.get(name, b'"finish_reason": "stop"')
    at = next(n for n, event in enumerate(events) if end in event)
    response, _ = parse_stream(name, [*events[: at + 1], BROKEN + b"\n\n", *events[at + 2 :]])
    assert (response.text, response.holes) == ("pay 100 NOT to Bob", ())
    assert (response.signal.finish_reason, response.signal.confidence) == (F.END_TURN, MEDIUM)


def test_a_reason_in_each_chunk_is_no_end_before_the_last_text():
    chunks = [{"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]} for text in ("a", "b", "c")]
    events = sse(chunks).split(b"\n\n")
    response, _ = parse_stream("gemini", [b"\n\n".join([events[0], BROKEN, events[2], b""])])
    assert (response.text, [hole.place for hole in response.holes]) == ("ac", [1])
    assert response.signal.finish_reason is F.UNKNOWN


def test_a_stream_that_repeats_everything_at_its_end_has_no_gap():
    events = responses_bodies.stream(PAY).split(b"\n\n")
    at = next(n for n, event in enumerate(events) if b'"NOT ' in event)
    response, _ = parse_stream("openai-responses", [b"\n\n".join([*events[:at], BROKEN, *events[at + 1 :]])])
    assert (response.text, response.holes) == ("pay 100 NOT to Bob", ())
    assert (response.signal.finish_reason, response.signal.confidence) == (F.END_TURN, MEDIUM)


def test_numbered_events_show_which_one_is_missing():
    again = (b"output_text.done", b"part.done", b"item.done")
    events = [event for event in responses_bodies.stream(PAY, "empty end").split(b"\n\n") if not any(w in event for w in again)]
    events = [event for event in events if b'"NOT ' not in event]
    response, _ = parse_stream("openai-responses", [b"\n\n".join(events)])
    assert response.is_spoilt
    assert (response.text, response.signal.finish_reason) == ("pay 100 to Bob", F.UNKNOWN)


def test_numbered_blocks_show_which_one_is_missing():
    events = pieces("anthropic", Answer(text=("Let me see",), calls=(Call("f", {}), Call("g", {})), finish=F.TOOL_CALLS))
    rest = [event for event in events if b'"index": 1' not in event]
    response, _ = parse_stream("anthropic", rest)
    assert [(hole.place, hole.reason) for hole in response.holes] == [(10, "a block is missing")]
    assert response.is_spoilt


@pytest.mark.parametrize(
    ("junk", "holes"),
    [
        pytest.param(b"data:\n\n", 0, id="an empty event"),
        pytest.param(b": keep-alive\n\n", 0, id="a comment"),
        pytest.param(b"X-Proxy: 7\n\n", 0, id="a header"),
        pytest.param(b'dbta: {"id": "r1"}\n\n', 1, id="a damaged field name"),
        pytest.param(b'lo"}}]}\n\n', 1, id="the rest of a line"),
        pytest.param(b"data: null\n\n", 1, id="no object"),
        pytest.param(BROKEN + b"\n\n" + BROKEN + b"\n\n", 1, id="two in a row"),
    ],
)
def test_what_counts_as_a_lost_piece(junk: bytes, holes: int):
    for name in WIRES:
        events = pieces(name, Answer(text=("a", "b")))
        at = next(n for n, event in enumerate(events) if b'"b"' in event)
        response, _ = parse_stream(name, [*events[:at], junk, *events[at:]])
        assert (response.text, len(response.holes)) == ("ab", holes), name
        if holes:
            assert (response.holes[0].place, response.signal.finish_reason) == (1, F.UNKNOWN), name


@given(places=st.lists(st.integers(0, 5_000), max_size=30))
@settings(max_examples=40, deadline=None)
def test_gaps_do_not_depend_on_the_chunks(places: list[int]):
    for name in ("openai", "anthropic", "gemini", "bedrock", "openai-responses"):
        body = b"".join(without(name, PAY, b"NOT "))
        assert parse_stream(name, cut(body, places))[0] == parse_stream(name, [body])[0]


def test_a_gap_mark_is_separate_and_within_the_text():
    assert marked("ab", [Hole(1)]) == "a [… part of the stream was lost here …] b"
    assert marked("ab", [Hole(0), Hole(9), Hole(1, in_reasoning=True)]).count("lost here") == 2
    assert marked("", [Hole(0)]) == "[… part of the stream was lost here …]"
