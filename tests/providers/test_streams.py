"""Streams: the same response as from a whole body, for any chunks and any form of the body."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON
from agentlab.model.responses import ModelResponse, ReasoningDelta, SignalSeen, TextDelta, ToolCallDelta

from . import bedrock_bodies, responses_bodies
from .bodies import WIRES, Answer, Call, cut, parse_stream, provider, sse, stream, whole

F, HIGH = FinishReason, Confidence.HIGH

texts = st.text(st.characters(codec="utf-8"), max_size=12)
tame_values = st.dictionaries(texts, st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts, max_size=3)
places = st.lists(st.integers(0, 5_000), max_size=25)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    calls = draw(st.lists(st.builds(Call, name=st.text("abc_", min_size=1, max_size=5), arguments=tame_values), max_size=3))
    ends = [F.TOOL_CALLS] if calls else [F.END_TURN, F.MAX_TOKENS, F.CONTENT_FILTERED]
    output = draw(st.integers(0, 5_000))  # below every default cap
    return Answer(
        text=draw(st.lists(texts.filter(bool), max_size=4)),
        reasoning=draw(st.lists(texts.filter(bool), max_size=3)),
        calls=calls,
        finish=draw(st.sampled_from(ends)),
        input_tokens=draw(st.integers(0, 10**6)),
        cached=draw(st.integers(0, 10**6)),
        output_tokens=output,
        thinking=draw(st.integers(0, output)),
    )


def comparable(response: ModelResponse) -> ModelResponse:
    """Without `raw`, and without white space in arguments, which a wire with objects cannot keep."""
    calls = tuple(replace(call, arguments=json.dumps(json.loads(call.arguments))) for call in response.tool_calls)
    return replace(response, raw=None, tool_calls=calls, native=None)


@pytest.mark.parametrize("name", WIRES)
@given(answer=answers(), places=places, newline=st.sampled_from(["\n", "\r\n", "\r"]))
@settings(max_examples=60, deadline=None)
def test_a_stream_is_read_like_a_whole_body(name: str, answer: Answer, places: list[int], newline: str):
    expected = provider(name).parse(whole(name, answer))
    found, events = parse_stream(name, cut(stream(name, answer, newline=newline), places))
    assert comparable(found) == comparable(expected)
    if expected.native is not None and found.native is not None:
        assert json.loads(json.dumps(found.native.content)) == json.loads(json.dumps(expected.native.content))
    assert (found.native is None) == (expected.native is None)
    assert found.signal.confidence is HIGH
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == found.text
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == found.reasoning
    for number, call in enumerate(found.tool_calls):
        pieces = [event for event in events if isinstance(event, ToolCallDelta) and event.index == number]
        assert json.loads("".join(piece.arguments for piece in pieces) or "{}") == json.loads(call.arguments)
        assert {piece.name for piece in pieces} == {call.name}
    seen = [event.signal.finish_reason for event in events if isinstance(event, SignalSeen)]
    assert seen == [found.signal.finish_reason]


@pytest.mark.parametrize("name", WIRES)
def test_the_signal_is_emitted_before_the_usage(name: str):
    parser = provider(name).stream_parser()
    body = stream(name, Answer())
    for at in range(0, len(body), 50):
        if any(isinstance(event, SignalSeen) for event in parser.feed(body[at : at + 50])):
            assert name == "gemini" or at + 50 < len(body)
            return
    pytest.fail("no signal was told")


@pytest.mark.parametrize("name", WIRES)
def test_two_streams_through_one_provider(name: str):
    one, other = Answer(text=("one", "!")), Answer(text=("other", "?"), finish=F.MAX_TOKENS)
    shared = provider(name)
    parsers = shared.stream_parser(), shared.stream_parser()
    bodies = stream(name, one), stream(name, other)
    for at in range(0, max(map(len, bodies)), 13):
        for parser, body in zip(parsers, bodies, strict=True):
            parser.feed(body[at : at + 13])
    assert [parser.response().text for parser in parsers] == ["one!", "other?"]
    assert [parser.finish().finish_reason for parser in parsers] == [F.END_TURN, F.MAX_TOKENS]


@pytest.mark.parametrize("name", WIRES)
def test_a_parser_can_be_used_again(name: str):
    parser = provider(name).stream_parser()
    parser.feed(stream(name, Answer(text=("first",), calls=(Call("f", {}),), finish=F.TOOL_CALLS))[:400])
    parser.finish()
    parser.reset()
    parser.feed(stream(name, Answer(text=("second",))))
    assert parser.finish() == provider(name).parse(whole(name, Answer(text=("second",)))).signal
    assert (parser.response().text, parser.response().tool_calls) == ("second", ())


LONG = Answer(text=("one ", "two ", "three"), reasoning=("hm", "so"), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS)
ALL_STREAMS = {
    **{name: stream(name, LONG) for name in WIRES},
    **{name: responses_bodies.stream(LONG) for name in responses_bodies.RESPONSES},
    "bedrock": sse([{name: event} for name, event in bedrock_bodies.events(LONG)]),
    "unknown-gateway": stream("openai", LONG),
}


@pytest.mark.parametrize("name", ALL_STREAMS)
def test_the_response_between_two_chunks_is_what_is_there_and_the_stream_goes_on(name: str):
    data = ALL_STREAMS[name]
    undisturbed, parser = lab.signals.stream(name), lab.signals.stream(name)
    undisturbed.feed(data)
    undisturbed.finish()
    whole_text, seen = undisturbed.response().text, ""
    for at in range(0, len(data), 40):
        seen += "".join(event.text for event in parser.feed(data[at : at + 40]) if isinstance(event, TextDelta))
        assert parser.response().text == seen
    assert parser.finish() == undisturbed.finish()
    assert parser.response() == undisturbed.response()
    assert parser.response().text == seen == whole_text == "one two three"


def test_a_registered_function_gets_the_whole_body_after_a_look_at_the_pieces():
    bodies = []

    def read(body: JSON) -> TerminationSignal:
        bodies.append(body)
        return TerminationSignal(F.STOP_SEQUENCE, HIGH)

    own = lab.signals.SignalRegistry()
    own.register("openai", read)
    parser, data = own.stream("openai"), stream("openai", LONG)
    parser.feed(data[:-200])
    assert (parser.response().text, bodies) == ("one two three", [])
    parser.feed(data[-200:])
    assert parser.finish().finish_reason is F.STOP_SEQUENCE
    assert (parser.response().signal.finish_reason, len(bodies)) == (F.STOP_SEQUENCE, 1)


# Bodies without events -----------------------------------------------------------------------------------------------------

SPOKEN = Answer(text=("Hello", " you"), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS)


@pytest.mark.parametrize("name", WIRES)
@given(places=places)
@settings(max_examples=20, deadline=None)
def test_a_whole_body_in_place_of_a_stream(name: str, places: list[int]):
    payload = whole(name, SPOKEN)
    for indent in (None, 2):
        body = b"\n \n" + json.dumps(payload, indent=indent).encode() + b"\n"
        assert comparable(parse_stream(name, cut(body, places))[0]) == comparable(provider(name).parse(payload))


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("form", ["lines", "array"])
def test_chunks_as_plain_json(name: str, form: str):
    events = [line[6:] for line in stream(name, SPOKEN).split(b"\n") if line.startswith(b"data: {")]
    body = b"\n".join(events) if form == "lines" else b"[" + b",\r\n".join(events) + b"]"
    response, _ = parse_stream(name, [body])
    assert comparable(response) == comparable(provider(name).parse(whole(name, SPOKEN)))
    broken, _ = parse_stream(name, [body[: len(body) // 2]])
    assert broken.signal.finish_reason is F.UNKNOWN


@pytest.mark.parametrize("name", WIRES)
def test_an_error_body_in_place_of_a_stream(name: str):
    response, _ = parse_stream(name, [b'{"error": {"type": "x", "message": "No."}}'])
    assert (response.signal.finish_reason, response.signal.confidence) == (F.ERROR, HIGH)
    assert "No." in response.signal.message
