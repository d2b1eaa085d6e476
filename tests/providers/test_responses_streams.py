"""Streams on the Responses wire: the same response as from a whole body, for any chunks and server variants; no clean end of a
broken stream.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.responses import ReasoningDelta, SignalSeen, TextDelta, ToolCallDelta
from tests.tried import odd_json, tried

from .bodies import Answer, Call, cut, parse_stream, provider, sse
from .responses_bodies import MANNERS, RESPONSES, body, events, function_call, message, refusal, stream, whole
from .test_any_json import check_types
from .test_broken_streams import is_clean, payloads
from .test_streams import answers, comparable, places

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW
NAME = "openai-responses"
SPOKEN = Answer(
    text=("Hello", " wörld"), reasoning=("hm", " hm"), calls=(Call("f", {"a": 1}), Call("g", {"b": "some longer text"}))
)
SPOKEN = Answer(text=SPOKEN.text, reasoning=SPOKEN.reasoning, calls=SPOKEN.calls, finish=F.TOOL_CALLS)
TALK = Answer(text=("Hello", " wörld"), reasoning=("hm",))
BRIEF = Answer(text=("wörld",), reasoning=("hm",), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS)
"""Every type of event, once or twice: a test of every byte takes the square of their length."""


@pytest.mark.parametrize("manner", MANNERS)
@given(answer=answers(), places=places, newline=st.sampled_from(["\n", "\r\n", "\r"]))
@settings(max_examples=60, deadline=None)
def test_a_stream_is_read_like_a_whole_body(manner: str, answer: Answer, places: list[int], newline: str):
    expected = provider(NAME).parse(whole(answer))
    found, emitted = parse_stream(NAME, cut(stream(answer, manner, newline=newline), places))
    assert comparable(found) == comparable(expected)
    assert (found.native and found.native.content) == (expected.native and expected.native.content)
    assert found.signal.confidence is HIGH
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == found.text
    assert "".join(event.text for event in emitted if isinstance(event, ReasoningDelta)) == found.reasoning
    for number, call in enumerate(found.tool_calls):
        pieces = [event for event in emitted if isinstance(event, ToolCallDelta) and event.index == number]
        assert "".join(piece.arguments for piece in pieces) == call.arguments
        assert {(piece.id, piece.name) for piece in pieces} == {(call.id, call.name)}
    assert [event.signal for event in emitted if isinstance(event, SignalSeen)] == [found.signal]


@pytest.mark.parametrize(("manner", "answer"), [("named", BRIEF), ("unnamed", Answer(text=("wörld",)))], ids=["named", "unnamed"])
def test_every_cut_into_two_chunks(manner: str, answer: Answer):
    """Of events with and without a line for their name: the other manners differ in what whole events say. Without one, the line ends
    and the [DONE] are what differs, so a short answer has them all."""
    data = stream(answer, manner)
    expected, emitted = parse_stream(NAME, [data])
    for at in range(len(data) + 1):
        found, emitted_in_two = parse_stream(NAME, [data[:at], data[at:]])
        assert (found, emitted_in_two) == (expected, emitted)


@pytest.mark.parametrize("name", RESPONSES)
def test_every_provider_reads_it(name: str):
    found, _ = parse_stream(name, [stream(SPOKEN)])
    assert comparable(found) == comparable(provider(name).parse(whole(SPOKEN)))
    assert found.signal.provider == name
    assert found.native is not None
    assert found.native.wire == provider(name).wire


@pytest.mark.parametrize("name", RESPONSES)
def test_two_streams_through_one_provider(name: str):
    shared = provider(name)
    parsers = shared.stream_parser(), shared.stream_parser()
    bodies = stream(Answer(text=("one", "!"))), stream(Answer(text=("other", "?"), finish=F.MAX_TOKENS))
    for at in range(0, max(map(len, bodies)), 13):
        for parser, data in zip(parsers, bodies, strict=True):
            parser.feed(data[at : at + 13])
    assert [parser.response().text for parser in parsers] == ["one!", "other?"]
    assert [parser.finish().finish_reason for parser in parsers] == [F.END_TURN, F.MAX_TOKENS]


def test_a_parser_can_be_used_again():
    parser = provider(NAME).stream_parser()
    parser.feed(stream(SPOKEN)[:1500])
    parser.finish()
    parser.reset()
    parser.feed(stream(Answer(text=("second",))))
    assert parser.finish() == provider(NAME).parse(whole(Answer(text=("second",)))).signal
    assert (parser.response().text, parser.response().tool_calls) == ("second", ())


# Broken streams ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manner", ["named", "unnamed"])
def test_a_stream_cut_anywhere_has_no_clean_end(manner: str):
    """The other manners differ in whole events, after which the next test cuts them."""
    data = stream(TALK, manner)
    last = data.rindex(b"}")
    if manner == "unnamed":
        last = data.index(b"\n\ndata: [DONE]") - 1
    for at in range(last):
        response, _ = parse_stream(NAME, [data[:at]])
        assert (response.signal.finish_reason, response.signal.confidence, response.signal.raw_value) == (F.UNKNOWN, LOW, None), (
            at
        )
    assert is_clean(parse_stream(NAME, [data[: last + 1]])[0].signal)


@pytest.mark.parametrize("manner", MANNERS)
def test_a_stream_that_ends_after_any_event_keeps_its_text(manner: str):
    emitted = events(SPOKEN, manner)
    last = next(n for n, event in enumerate(emitted) if isinstance(event, dict) and event["type"] == "response.completed")
    for number in range(last):
        data = sse(emitted[:number], named=manner != "unnamed")
        response, pieces = parse_stream(NAME, [data])
        assert (response.signal.finish_reason, response.signal.confidence) == (F.UNKNOWN, LOW)
        assert response.text == "".join(event.text for event in pieces if isinstance(event, TextDelta))
        done = {event["item"]["call_id"] for event in emitted[:number] if "item" in event and event["item"].get("arguments")}
        for event in emitted[:number]:
            if event["type"] == "response.function_call_arguments.done":
                done.add({"fc_0": "c0", "fc_1": "c1"}[event["item_id"]])
        assert {call.id for call in response.tool_calls if call.closed} == done


def test_done_without_a_last_event_is_inferred():
    emitted = [event for event in events(TALK, "unnamed") if event == "[DONE]" or event["type"] != "response.completed"]
    signal = parse_stream(NAME, [sse(emitted)])[0].signal
    assert (signal.finish_reason, signal.confidence, signal.raw_value) == (F.END_TURN, MEDIUM, None)


def test_a_call_that_lost_a_piece_is_not_closed():
    data = stream(SPOKEN, "empty end").split(b"\n\n")
    lost = next(n for n, event in enumerate(data) if b'"delta": "some lo' in event or b"some l" in event)
    data[lost] = b'data: {"id": }'
    response, _ = parse_stream(NAME, [b"\n\n".join(data)])
    assert (response.signal.finish_reason, response.is_spoilt) == (F.UNKNOWN, True)
    assert [call.closed for call in response.tool_calls] == [False, False]


def test_a_lost_event_is_noticed():
    data = stream(TALK).split(b"\n\n")[:-1]
    for number in range(len(data)):
        damaged = [event if n != number else b'data: {"id": }' for n, event in enumerate(data)]
        response, _ = parse_stream(NAME, [b"\n\n".join([*damaged, b""])])
        assert not is_clean(response.signal)


@pytest.mark.parametrize("manner", ["named", "empty end"])
def test_a_repeated_piece_of_text_is_noticed(manner: str):
    data = stream(TALK, manner).split(b"\n\n")
    places = [number for number, event in enumerate(data) if b"output_text.delta" in event]
    for at in places:
        response, _ = parse_stream(NAME, [b"\n\n".join([*data[: at + 1], *data[at:]])])
        assert response.text == "".join(TALK.text) or not is_clean(response.signal)
    assert len(places) > 1


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_flipped_bit_is_noticed(data: st.DataObject):
    sound = stream(TALK, "empty end")
    at = data.draw(st.integers(0, len(sound) - 1))
    flipped = bytes([*sound[:at], sound[at] ^ 1 << data.draw(st.integers(0, 7)), *sound[at + 1 :]])
    response, _ = parse_stream(NAME, [flipped])
    if is_clean(response.signal):
        assert len(payloads(flipped)) == len(payloads(sound))


# Errors --------------------------------------------------------------------------------------------------------------------

ERROR = {"type": "error", "code": "server_error", "message": "No.", "param": None, "sequence_number": 3}
FAILED = {"type": "response.failed", "response": body(status="failed", error={"code": "server_error", "message": "No."})}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("last", "where", "value", "confidence"),
    [
        pytest.param([ERROR], "error.code", "server_error", HIGH, id="an error event"),
        pytest.param(
            [{"type": "error", "error": {"type": "t", "message": "No."}}], "error.type", "t", HIGH, id="a nested error event"
        ),
        pytest.param([FAILED], "status", "failed", HIGH, id="failed"),
        pytest.param([ERROR, FAILED], "status", "failed", HIGH, id="both"),
        pytest.param(
            [ERROR, {"type": "response.completed", "response": body()}],
            "error.code",
            "server_error",
            MEDIUM,
            id="completed anyhow",
        ),
    ],
)
def test_errors_in_mid_stream(named: bool, last: list[dict[str, Any]], where: str, value: str, confidence: Confidence):
    emitted = [*events(Answer(text=("some", " text")))[:6], *last]
    response, pieces = parse_stream(NAME, [sse(emitted, named=named)])
    signal = response.signal
    assert (signal.finish_reason, signal.raw_field, signal.raw_value, signal.confidence) == (F.ERROR, where, value, confidence)
    assert "No." in signal.message
    assert {event.signal.finish_reason for event in pieces if isinstance(event, SignalSeen)} == {F.ERROR}
    if last[-1] is not FAILED and last == [ERROR]:
        assert response.text == "some text"


def test_an_error_body_in_place_of_a_stream():
    signal = parse_stream(NAME, [b'{"error": {"type": "x", "message": "No."}}'])[0].signal
    assert (signal.finish_reason, signal.confidence) == (F.ERROR, HIGH)
    assert "No." in signal.message


# Bodies without events, and servers that omit fields -------------------------------------------------------------------------


@given(places=places)
@settings(max_examples=20, deadline=None)
def test_a_whole_body_in_place_of_a_stream(places: list[int]):
    for indent in (None, 2):
        data = b"\n \n" + json.dumps(whole(SPOKEN), indent=indent).encode() + b"\n"
        assert comparable(parse_stream(NAME, cut(data, places))[0]) == comparable(provider(NAME).parse(whole(SPOKEN)))


@pytest.mark.parametrize("form", ["lines", "array"])
def test_events_as_plain_json(form: str):
    lines = [json.dumps(event).encode() for event in events(SPOKEN)]
    data = b"\n".join(lines) if form == "lines" else b"[" + b",\r\n".join(lines) + b"]"
    assert comparable(parse_stream(NAME, [data])[0]) == comparable(provider(NAME).parse(whole(SPOKEN)))
    broken = parse_stream(NAME, [data[: len(data) // 2]])[0].signal
    assert (broken.finish_reason, broken.confidence) == (F.UNKNOWN, LOW)


def text_delta(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "delta": text, **more}


COMPLETED = {"type": "response.completed", "response": {"status": "completed"}}


@pytest.mark.parametrize(
    ("emitted", "text", "calls"),
    [
        pytest.param([text_delta("a"), text_delta("b"), COMPLETED], "ab", [], id="text only"),
        pytest.param(
            [text_delta("a", item_id="m1"), text_delta("b", item_id="m2"), text_delta("c", item_id="m1"), COMPLETED],
            "acb",
            [],
            id="ids without indexes",
        ),
        pytest.param(
            [text_delta("a", output_index=0, item_id="x"), text_delta("b", output_index=0, item_id="y"), COMPLETED],
            "ab",
            [],
            id="an id that changes",
        ),
        pytest.param(
            [text_delta("b", output_index=1), text_delta("a", output_index=0), COMPLETED], "ab", [], id="indexes out of order"
        ),
        pytest.param(
            [text_delta("a", output_index=0, content_index=0), text_delta("b", output_index=0, content_index=1), COMPLETED],
            "ab",
            [],
            id="two parts",
        ),
        pytest.param(
            [
                {"type": "response.output_item.done", "output_index": 0, "item": function_call()},
                {
                    "type": "response.output_item.done",
                    "output_index": 1,
                    "item": function_call('{"a": 2}', call_id="t2", id="fc_2"),
                },
                COMPLETED,
            ],
            "",
            [("t1", '{"a": 1}'), ("t2", '{"a": 2}')],
            id="calls in one piece",
        ),
        pytest.param(
            [
                {"type": "response.output_item.added", "output_index": 0, "item": function_call("")},
                {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a":'},
                {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "1}"},
                COMPLETED,
            ],
            "",
            [("t1", '{"a":1}')],
            id="a call without a done event",
        ),
        pytest.param(
            [
                {"type": "response.output_item.added", "output_index": 0, "item": function_call("")},
                {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": ""},
                {"type": "response.output_item.done", "output_index": 0, "item": function_call("")},
                {"type": "response.completed", "response": body(function_call())},
            ],
            "",
            [("t1", '{"a": 1}')],
            id="arguments in the last event only",
        ),
        pytest.param(
            [text_delta("a", output_index=0), {"type": "response.completed", "response": body(message("a longer one"))}],
            "a longer one",
            [],
            id="the last event has more",
        ),
        pytest.param(
            [text_delta("all of it", output_index=0), {"type": "response.completed", "response": body(message("all"))}],
            "all of it",
            [],
            id="the last event has less",
        ),
        pytest.param(
            [
                {"type": "response.output_item.added", "output_index": 0, "item": {"id": "m1", "type": "message"}},
                text_delta("Hi", item_id="m1"),
                {"type": "response.output_item.done", "output_index": 0, "item": {"id": "m1", "type": "message"}},
                {"type": "response.completed", "response": {"incomplete_details": None}},
            ],
            "Hi",
            [],
            id="no status, and items without content",
        ),
        pytest.param([{"type": "response.completed", "response": body()}], "Hi", [], id="the last event only"),
        pytest.param(
            [{"type": "response.new_thing", "x": 1}, {"x": 1}, {"type": ["odd"]}, text_delta("Hi"), COMPLETED],
            "Hi",
            [],
            id="unknown",
        ),
    ],
)
def test_fields_that_servers_omit(emitted: list[dict[str, Any]], text: str, calls: list[tuple[str, str]]):
    for name in ("compatible-responses", NAME):
        response, pieces = parse_stream(name, [sse(emitted)])
        assert (response.text, [(call.id, call.arguments) for call in response.tool_calls]) == (text, calls)
        assert all(call.closed for call in response.tool_calls)
        assert response.signal.finish_reason is (F.TOOL_CALLS if calls else F.END_TURN)
        assert response.signal.confidence is HIGH
        assert [event.signal for event in pieces if isinstance(event, SignalSeen)] == [response.signal]


def test_the_last_event_may_add_what_the_status_lacks():
    response, _ = parse_stream(NAME, [sse([text_delta("Hi"), {"type": "response.completed", "response": {}}])])
    signal = response.signal
    assert (signal.raw_field, signal.raw_value) == ("type", "response.completed")
    assert (signal.finish_reason, signal.confidence) == (F.END_TURN, HIGH)


def test_the_last_event_may_contradict_the_status():
    emitted = [text_delta("Hi"), {"type": "response.completed", "response": {"status": "in_progress"}}]
    signal = parse_stream(NAME, [sse(emitted)])[0].signal
    assert (signal.raw_value, signal.finish_reason, signal.confidence) == ("response.completed", F.END_TURN, LOW)


def test_a_refusal_in_pieces():
    emitted = [
        {"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": piece} for piece in ("I ", "can't.")
    ]
    response, pieces = parse_stream(NAME, [sse([*emitted, COMPLETED])])
    assert (response.refusal, response.text, response.signal.finish_reason) == ("I can't.", "", F.CONTENT_FILTERED)
    assert not any(isinstance(event, TextDelta) for event in pieces)
    assert parse_stream(NAME, [sse([{"type": "response.completed", "response": body(refusal())}])])[0].refusal


def test_paragraphs_of_reasoning_are_kept_apart():
    def thought(text: str, part: int) -> dict[str, Any]:
        return {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": part, "delta": text}

    emitted = [thought("One", 0), thought(".", 0), thought("Two.", 1), COMPLETED]
    emitted.insert(3, {"type": "response.reasoning_text.delta", "output_index": 1, "content_index": 0, "delta": "Three."})
    response, pieces = parse_stream(NAME, [sse(emitted)])
    assert response.reasoning == "One.\n\nTwo.\n\nThree."
    assert "".join(event.text for event in pieces if isinstance(event, ReasoningDelta)) == response.reasoning


EVENT_TYPES = [event["type"] for event in events(SPOKEN)] + ["error", "response.failed", "response.incomplete", "response.queued"]
KEYS = """type response item part delta text arguments output output_index content_index summary_index item_id id status
    incomplete_details reason error code message content summary refusal usage input_tokens output_tokens role name call_id
    encrypted_content execution cost cost_in_usd_ticks max_output_tokens store object"""
FIELDS = ("response", "item", "part", "delta", "text", "arguments", "output_index", "content_index", "item_id")


@tried(100)
def test_odd_events_raise_nothing(chance: random.Random):
    emitted = [
        {
            "type": chance.choice(EVENT_TYPES),
            **{field: odd_json(chance, KEYS.split(), EVENT_TYPES) for field in FIELDS if chance.random() < 0.4},
        }
        for _ in range(chance.randrange(7))
    ]
    check_types(parse_stream(NAME, [sse(emitted)])[0])
    check_types(parse_stream(NAME, [sse([odd_json(chance, KEYS.split(), EVENT_TYPES), *emitted, "[DONE]"])])[0])


STRANGE = (None, True, 7, "x", [1], {"x": 1})


@pytest.mark.parametrize("strange", STRANGE, ids=repr)
def test_any_value_of_any_event_may_be_of_another_type(strange: Any):
    emitted = [*events(BRIEF)[:-1], {**events(BRIEF)[-1], "response": {**whole(BRIEF), "incomplete_details": {"reason": None}}}]
    for number, event in enumerate(emitted):
        for odd_event in with_each_value_replaced(event, strange):
            check_types(parse_stream(NAME, [sse([*emitted[:number], odd_event, *emitted[number + 1 :]])])[0])


def with_each_value_replaced(value: Any, strange: Any) -> Iterator[Any]:
    """Copies, in each of which another value, at any depth, is replaced."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for inner in (strange, *with_each_value_replaced(value[key], strange)):
            changed = value.copy()
            changed[key] = inner
            yield changed
