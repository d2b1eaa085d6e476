"""Bedrock's streams: read like the whole body in every framing; no clean end of a broken stream."""

from __future__ import annotations

import base64
import json
from typing import Any

import botocore.session
import pytest
from botocore.eventstream import EventStream, EventStreamError
from botocore.parsers import EventStreamJSONParser
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import ToolCall
from agentlab.model.responses import ReasoningDelta, SignalSeen, TextDelta, ToolCallDelta
from agentlab.providers.bedrock import Bedrock
from agentlab.providers.finish_detection import detect

from .bedrock_bodies import Events, array, events, frame, frames, lines, named_text_events, stream, text_events, whole
from .bodies import Answer, Call, cut, parse_stream
from .test_any_json import check_types
from .test_broken_streams import is_clean
from .test_streams import answers, comparable

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW
PLAIN = Bedrock(model="some-model")
SPOKEN = Answer(text=("Hello", " wörld"), reasoning=("hm",), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS, cached=3)
FORMS = {"lines": lines, "array": array, "sse": text_events, "named sse": named_text_events}


def read(body: bytes, *places: int, cap: int | None = None) -> Any:
    return parse_stream("bedrock", cut(body, places), cap)[0]


def of(*these: tuple[str, Any]) -> bytes:
    return b"".join(frame(name, payload) for name, payload in these)


START = ("messageStart", {"role": "assistant"})
END = ("messageStop", {"stopReason": "end_turn"})


def delta(index: int = 0, **kind: Any) -> tuple[str, Any]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": kind}


def stop(index: int = 0) -> tuple[str, Any]:
    return "contentBlockStop", {"contentBlockIndex": index}


def start(index: int = 0, **kind: Any) -> tuple[str, Any]:
    return "contentBlockStart", {"contentBlockIndex": index, "start": kind}


# Equal readings ------------------------------------------------------------------------------------------------------------


@given(answer=answers(), places=st.lists(st.integers(0, 5_000), max_size=25))
@settings(max_examples=80, deadline=None)
def test_a_stream_is_read_like_a_whole_body(answer: Answer, places: list[int]):
    expected = PLAIN.parse(whole(answer))
    found, emitted = parse_stream("bedrock", cut(stream(answer), places))
    assert comparable(found) == comparable(expected)
    assert found.native == expected.native
    assert found.signal.confidence is HIGH
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == found.text
    assert "".join(event.text for event in emitted if isinstance(event, ReasoningDelta)) == found.reasoning
    for number, call in enumerate(found.tool_calls):
        pieces = [event for event in emitted if isinstance(event, ToolCallDelta) and event.index == number]
        assert json.loads("".join(piece.arguments for piece in pieces) or "{}") == json.loads(call.arguments)
        assert {(piece.name, piece.id) for piece in pieces} == {(call.name, call.id)}
    assert [event.signal.finish_reason for event in emitted if isinstance(event, SignalSeen)] == [found.signal.finish_reason]


def test_every_cut_into_two_chunks():
    expected, emitted = parse_stream("bedrock", [stream(SPOKEN)])
    body = stream(SPOKEN)
    for at in range(len(body) + 1):
        assert parse_stream("bedrock", [body[:at], body[at:]]) == (expected, emitted)


@pytest.mark.parametrize("form", FORMS)
@given(answer=answers(), places=st.lists(st.integers(0, 5_000), max_size=10))
@settings(max_examples=30, deadline=None)
def test_other_framings_are_read_alike(form: str, answer: Answer, places: list[int]):
    found = read(FORMS[form](events(answer)), *places)
    assert comparable(found) == comparable(read(stream(answer)))
    assert found.signal.confidence is HIGH


@given(places=st.lists(st.integers(0, 400), max_size=10))
@settings(max_examples=20, deadline=None)
def test_a_whole_body_in_place_of_a_stream(places: list[int]):
    assert comparable(read(json.dumps(whole(SPOKEN)).encode(), *places)) == comparable(PLAIN.parse(whole(SPOKEN)))


def test_the_signal_is_emitted_before_the_usage():
    parser = PLAIN.stream_parser()
    *before, last, usage = frames(events(Answer()))
    assert not any(isinstance(event, SignalSeen) for one in before for event in parser.feed(one))
    (seen,) = parser.feed(last)
    assert isinstance(seen, SignalSeen)
    assert seen.signal.finish_reason is F.END_TURN
    assert parser.feed(usage) == []
    assert parser.finish().confidence is HIGH


def test_two_streams_through_one_provider():
    bodies = stream(Answer(text=("one", "!"))), stream(Answer(text=("other", "?"), finish=F.MAX_TOKENS))
    parsers = PLAIN.stream_parser(), PLAIN.stream_parser()
    for at in range(0, max(map(len, bodies)), 13):
        for parser, body in zip(parsers, bodies, strict=True):
            parser.feed(body[at : at + 13])
    assert [parser.finish().finish_reason for parser in parsers] == [F.END_TURN, F.MAX_TOKENS]
    assert [parser.response().text for parser in parsers] == ["one!", "other?"]


def test_a_parser_can_be_used_again():
    parser = PLAIN.stream_parser()
    parser.feed(stream(SPOKEN)[:700])
    parser.finish()
    parser.reset()
    parser.feed(stream(Answer(text=("second",))))
    assert parser.finish() == PLAIN.parse(whole(Answer(text=("second",)))).signal
    assert (parser.response().text, parser.response().tool_calls) == ("second", ())


# Blocks --------------------------------------------------------------------------------------------------------------------


def test_blocks_of_every_kind():
    redacted = [base64.b64encode(piece).decode() for piece in (b"abcd", b"ef")]
    citation = {"title": "facts", "location": {"web": {"url": "https://example.org"}}}
    used = {"toolUseId": "s1", "name": "web", "type": "server_tool_use"}
    found = read(
        of(
            START,
            delta(0, reasoningContent={"redactedContent": redacted[0]}),
            delta(0, reasoningContent={"redactedContent": redacted[1]}),
            stop(0),
            start(1, toolUse=used),
            delta(1, toolUse={"input": '{"q":"x"}'}),
            stop(1),
            start(2, toolResult={"toolUseId": "s1", "type": "web_result", "status": "success"}),
            delta(2, toolResult=[{"text": "found"}, {"json": {"a": 1}}]),
            stop(2),
            delta(3, citation=citation),
            delta(3, text="Cited"),
            delta(3, text="."),
            stop(3),
            start(4, image={"format": "png"}),
            delta(4, image={"source": {"bytes": "aGk="}}),
            stop(4),
            END,
        )
    )
    content = [
        {"reasoningContent": {"redactedContent": base64.b64encode(b"abcdef").decode()}},
        {"toolUse": {**used, "input": {"q": "x"}}},
        {
            "toolResult": {
                "toolUseId": "s1",
                "type": "web_result",
                "status": "success",
                "content": [{"text": "found"}, {"json": {"a": 1}}],
            }
        },
        {"citationsContent": {"content": [{"text": "Cited."}], "citations": [citation]}},
        {"image": {"format": "png", "source": {"bytes": "aGk="}}},
    ]
    assert found.raw["output"] == {"message": {"role": "assistant", "content": content}}
    assert found.native is not None
    assert found.native.content == content
    assert (found.text, found.tool_calls, found.signal.finish_reason) == ("Cited.", (), F.END_TURN)
    assert comparable(PLAIN.parse({"stopReason": "end_turn", **found.raw})) == comparable(found)


def test_the_last_block_is_closed_only_by_its_stop():
    call = [START, start(toolUse={"toolUseId": "t1", "name": "f"}), delta(toolUse={"input": '{"a": 1}'})]
    for stop_reason in ("tool_use", "max_tokens"):
        last = ("messageStop", {"stopReason": stop_reason})
        assert [one.closed for one in read(of(*call, last)).tool_calls] == [False]
        assert [one.closed for one in read(of(*call, stop(), last)).tool_calls] == [True]


def test_usage_is_unknown_without_metadata():
    found = read(of(START, delta(text="Hi"), stop(), END))
    assert found.usage.total_tokens is None
    assert is_clean(found.signal)


def test_metadata_about_the_end_is_kept():
    found = read(
        of(
            START,
            delta(text="No."),
            stop(),
            ("messageStop", {"stopReason": "stop_sequence", "additionalModelResponseFields": {"stop_sequence": "###"}}),
            (
                "metadata",
                {"usage": {"inputTokens": 1, "outputTokens": 2}, "trace": {"guardrail": {"actionReason": "No action."}}},
            ),
        )
    )
    assert found.signal.finish_reason is F.STOP_SEQUENCE
    assert dict(found.signal.metadata) == {"stop_sequence": "###", "guardrail": "No action."}
    assert (found.usage.input_tokens, found.usage.output_tokens) == (1, 2)


def test_a_second_start_begins_a_new_response():
    found = read(of(START, delta(text="Hel"), START, delta(text="Hello"), stop(), END))
    assert found.text == "Hello"


def test_a_call_keeps_its_raw_arguments():
    found = read(
        of(
            START,
            start(toolUse={"toolUseId": "t1", "name": "f"}),
            delta(toolUse={"input": '{"a": 1.50'}),
            delta(toolUse={"input": "}"}),
            stop(),
            ("messageStop", {"stopReason": "tool_use"}),
        )
    )
    assert found.tool_calls == (ToolCall("t1", "f", '{"a": 1.50}'),)
    empty = read(of(START, start(toolUse={"toolUseId": "t1", "name": "f"}), stop(), ("messageStop", {"stopReason": "tool_use"})))
    assert [call.arguments for call in empty.tool_calls] == ["{}"]
    cut_off = read(
        of(
            START,
            start(toolUse={"toolUseId": "t1", "name": "f"}),
            delta(toolUse={"input": '{"a'}),
            stop(),
            ("messageStop", {"stopReason": "max_tokens"}),
        )
    )
    assert [call.arguments for call in cut_off.tool_calls] == ['{"a']
    assert cut_off.native is not None
    assert cut_off.native.content == [{"toolUse": {"toolUseId": "t1", "name": "f", "input": {"_unparsed": '{"a'}}}]


# Broken --------------------------------------------------------------------------------------------------------------------


def test_a_stream_cut_anywhere_has_no_clean_end():
    these = events(Answer(text=("Hello", " wörld"), reasoning=("hm",)))
    body, complete = stream(Answer(text=("Hello", " wörld"), reasoning=("hm",))), len(b"".join(frames(these[:-1])))
    for at in range(len(body)):
        response = read(body[:at])
        if at != complete:  # the message is complete, its usage unknown
            assert not is_clean(response.signal), at
            assert response.signal.confidence is not HIGH
        assert response.usage.total_tokens is None
        if at < complete:
            assert (response.signal.finish_reason, response.signal.raw_value) == (F.UNKNOWN, None)


@pytest.mark.parametrize("form", FORMS)
def test_other_framings_cut_anywhere_have_no_clean_end(form: str):
    body = FORMS[form](events(Answer(text=("Hello", " wörld"))))
    for at in range(len(body)):
        response = read(body[:at])
        if b"end_turn" not in body[:at]:
            assert not is_clean(response.signal)
            assert response.signal.confidence is not HIGH


def test_a_call_in_a_broken_stream_is_not_closed():
    body = stream(Answer(text=(), calls=(Call("f", {"a": 1}), Call("g", {"b": "some longer text"})), finish=F.TOOL_CALLS))
    for at in range(len(body)):
        for call in read(body[:at]).tool_calls:
            if call.closed:
                assert json.loads(call.arguments) in ({"a": 1}, {"b": "some longer text"})


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_flipped_bit_gives_no_clean_end(data: st.DataObject):
    body = stream(data.draw(st.sampled_from([SPOKEN, Answer(text=("Hello", " there"))])))
    at = data.draw(st.integers(0, len(body) - 1))
    response = read(bytes([*body[:at], body[at] ^ 1 << data.draw(st.integers(0, 7)), *body[at + 1 :]]))
    check_types(response)
    assert response.signal.confidence is not HIGH
    assert not any(call.closed for call in response.tool_calls)


def test_a_lost_frame_gives_no_clean_end():
    for number in range(len(events(SPOKEN))):
        damaged = frames(events(SPOKEN))
        damaged[number] = damaged[number][:-1] + bytes([damaged[number][-1] ^ 1])
        response = read(b"".join(damaged))
        assert response.signal.confidence is not HIGH
        assert not any(call.closed for call in response.tool_calls)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_events_in_any_order_raise_nothing(data: st.DataObject):
    check_types(read(of(*data.draw(st.permutations(events(SPOKEN))))))


def test_a_piece_of_a_call_whose_start_was_lost():
    response = read(of(START, delta(toolUse={"input": '{"a": 1}'}), stop(), ("messageStop", {"stopReason": "tool_use"})))
    assert (response.tool_calls, response.signal.confidence) == ((), LOW)


# Exceptions ----------------------------------------------------------------------------------------------------------------

EXCEPTIONS = (
    "internalServerException",
    "modelStreamErrorException",
    "serviceUnavailableException",
    "throttlingException",
    "validationException",
)


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_an_exception_in_mid_stream(kind: str):
    before: Events = [START, delta(text="Hel")]
    broken = (kind, {"message": "It broke."})
    for form in ("frames", "named", *FORMS):
        if form == "frames":
            body = of(*before) + frame(*broken, "exception")
        else:
            body = of(*before, broken) if form == "named" else FORMS[form]([*before, broken])
        response = read(body)
        assert (response.signal.finish_reason, response.signal.confidence) == (F.ERROR, HIGH), form
        assert (response.signal.raw_field, response.signal.raw_value) == ("error.type", kind), form
        assert "It broke." in response.signal.message, form
        assert response.text == "Hel", form
        assert detect("bedrock", body) == response.signal, form


def test_botocore_has_these_exceptions(model: Any):
    shape = model.shape_for("ConverseStreamOutput")
    assert {name for name, member in shape.members.items() if member.metadata.get("exception")} == set(EXCEPTIONS)


# The vendor's own parser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Any:
    return botocore.session.get_session().get_service_model("bedrock-runtime")


class Raw:
    """A body as botocore's HTTP library passes it on."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def stream(self) -> Any:
        yield self.body


def theirs(model: Any, body: bytes) -> list[dict[str, Any]]:
    shape = model.operation_model("ConverseStream").output_shape.members["stream"]
    return list(EventStream(Raw(body), shape, EventStreamJSONParser(), "ConverseStream"))


@given(answer=answers())
@settings(max_examples=30, deadline=None)
def test_botocore_reads_the_same(model: Any, answer: Answer):
    found = read(stream(answer))
    read_by_them = theirs(model, stream(answer))
    deltas = [event["contentBlockDelta"]["delta"] for event in read_by_them if "contentBlockDelta" in event]
    assert "".join(one.get("text", "") for one in deltas) == found.text
    assert "".join(one.get("reasoningContent", {}).get("text", "") for one in deltas) == found.reasoning
    starts = [event["contentBlockStart"]["start"]["toolUse"] for event in read_by_them if "contentBlockStart" in event]
    assert [(one["toolUseId"], one["name"]) for one in starts] == [(call.id, call.name) for call in found.tool_calls]
    (last,) = [event["messageStop"] for event in read_by_them if "messageStop" in event]
    (usage,) = [event["metadata"]["usage"] for event in read_by_them if "metadata" in event]
    assert last["stopReason"] == found.signal.raw_value
    assert usage["totalTokens"] == found.usage.total_tokens


def test_botocore_raises_what_we_report(model: Any):
    body = of(START) + frame("throttlingException", {"message": "Too many."}, "exception")
    with pytest.raises(EventStreamError, match=r"throttlingException.*Too many"):
        theirs(model, body)
