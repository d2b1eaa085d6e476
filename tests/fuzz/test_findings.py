"""Findings of the fuzzing, one case each: streams that were overrated, next to those that must stay clean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.providers.wires.read import dumps
from tests.fuzz.properties import read
from tests.providers import bedrock_bodies, bodies, responses_bodies
from tests.providers.bodies import Answer, Call, sse

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW

TEXT = Answer(text=("One", " two", " three"))
CALLS = Answer(text=(), calls=(Call("f", {"a": 1, "b": "some words"}),), finish=F.TOOL_CALLS)


def blocks(body: bytes) -> list[bytes]:
    return [block + b"\n\n" for block in body.split(b"\n\n")[:-1]]


CHAT = blocks(bodies.stream("openai", TEXT))  # the role, three pieces, the reason, the usage, [DONE]
CLAUDE = blocks(bodies.stream("anthropic", TEXT))  # start, ping, block, three pieces, end of block, reason, last word
GEMINI = blocks(bodies.stream("gemini", TEXT))  # three pieces, the reason
BEDROCK = bedrock_bodies.frames(bedrock_bodies.events(TEXT))  # start, three pieces, end of block, last word, usage
RESPONSES = blocks(responses_bodies.stream(TEXT))
EMPTY_END = blocks(responses_bodies.stream(TEXT, "empty end"))


def seen(provider: str, pieces: Sequence[bytes]) -> tuple[FinishReason, Confidence, bool]:
    response, _, sound = read(provider, [b"".join(pieces)])
    return response.signal.finish_reason, response.signal.confidence, sound


@pytest.mark.parametrize(
    ("provider", "pieces"),
    [("openai", CHAT), ("anthropic", CLAUDE), ("gemini", GEMINI), ("bedrock", BEDROCK), ("openai-responses", RESPONSES)],
)
def test_undamaged_streams_are_clean(provider: str, pieces: list[bytes]):
    assert seen(provider, pieces) == (F.END_TURN, HIGH, True)
    torn = [*pieces[:-1], pieces[-1][: len(pieces[-1]) // 2]]
    assert seen(provider, torn)[1:] != (HIGH, True)


@pytest.mark.parametrize(
    ("provider", "pieces"),
    [
        pytest.param("openai", [*CHAT[:3], CHAT[4], CHAT[3], *CHAT[5:]], id="chat: a piece after the reason"),
        pytest.param("openai", [*CHAT[:3], *CHAT[4:], CHAT[3]], id="chat: a piece after [DONE]"),
        pytest.param("openai", [CHAT[0], CHAT[-1], *CHAT[1:-1]], id="chat: [DONE] too early"),
        pytest.param("openai", [*CHAT, *CHAT[:3]], id="chat: another stream, broken off"),
        pytest.param("openai", [*CHAT, CHAT[0][:40]], id="chat: another stream, torn"),
        pytest.param("openai", [*CHAT, *CHAT], id="chat: twice"),
        pytest.param("anthropic", [*CLAUDE[:6], *CLAUDE[7:]], id="anthropic: the end of the block was lost"),
        pytest.param("anthropic", CLAUDE[1:], id="anthropic: the beginning was lost"),
        pytest.param("anthropic", [*CLAUDE[:5], CLAUDE[6], CLAUDE[5], *CLAUDE[7:]], id="anthropic: a piece after its block"),
        pytest.param("anthropic", [*CLAUDE[:5], *CLAUDE[6:], CLAUDE[5]], id="anthropic: a piece after the last event"),
        pytest.param("anthropic", [*CLAUDE, *CLAUDE], id="anthropic: twice"),
        pytest.param("gemini", [*GEMINI[:2], GEMINI[3], GEMINI[2]], id="gemini: a piece after the reason"),
        pytest.param("gemini", [*GEMINI, *GEMINI[:2]], id="gemini: another stream, broken off"),
        pytest.param("gemini", [*GEMINI, *(one.replace(b'"r1"', b'"r2"') for one in GEMINI)], id="gemini: two of them"),
        pytest.param("bedrock", [*BEDROCK[:4], *BEDROCK[5:]], id="bedrock: the end of the block was lost"),
        pytest.param("bedrock", [*BEDROCK[:2], *BEDROCK[3:], BEDROCK[2]], id="bedrock: a piece after the last event"),
        pytest.param("bedrock", [*BEDROCK, *BEDROCK], id="bedrock: twice"),
        pytest.param("openai-responses", [*RESPONSES[:5], *RESPONSES[6:], RESPONSES[5]], id="responses: a piece after the end"),
        pytest.param("openai-responses", [*RESPONSES, *RESPONSES], id="responses: twice"),
    ],
)
def test_an_end_contradicted_by_other_events_is_not_certain(provider: str, pieces: list[bytes]):
    assert seen(provider, pieces) == (F.END_TURN, MEDIUM, False)


@pytest.mark.parametrize(
    ("provider", "pieces"),
    [
        pytest.param("anthropic", [*CLAUDE[:2], *CLAUDE[6:]], id="anthropic: the end of a block without a start"),
        pytest.param("openai-responses", [*EMPTY_END[:4], *EMPTY_END[7:]], id="responses: numbers are missing, and the output"),
    ],
)
def test_the_end_of_an_answer_that_lost_a_piece_is_not_clean(provider: str, pieces: list[bytes]):
    assert seen(provider, pieces) == (F.UNKNOWN, LOW, False)


@pytest.mark.parametrize(
    ("provider", "pieces"),
    [
        pytest.param("anthropic", [*CLAUDE, *CLAUDE[:5]], id="anthropic"),
        pytest.param("bedrock", [*BEDROCK, *BEDROCK[:4]], id="bedrock"),
        pytest.param(
            "openai-responses",
            [*RESPONSES, *(one.replace(b"resp_1", b"resp_2") for one in RESPONSES[:6])],
            id="responses",
        ),
    ],
)
def test_the_end_of_an_earlier_response_does_not_end_a_broken_one(provider: str, pieces: list[bytes]):
    """If the wire announces another response, its end is required."""
    assert seen(provider, pieces) == (F.UNKNOWN, LOW, False)


def test_json_lines_without_the_last_event_are_not_sound():
    events = [block.partition(b"data: ")[2].strip() + b"\n" for block in CLAUDE]
    assert seen("anthropic", events)[2]
    assert not seen("anthropic", events[:-1])[2]


def test_done_does_not_replace_another_wires_last_event():
    pieces = blocks(responses_bodies.stream(TEXT, "unnamed"))
    assert seen("openai-responses", pieces) == (F.END_TURN, HIGH, True)
    assert seen("openai-responses", [*pieces[:-2], pieces[-1]]) == (F.END_TURN, MEDIUM, False)


@pytest.mark.parametrize("words", [["stop"] * 3, [None, "stop", "stop"]])
def test_a_repeated_finish_reason_is_clean(words: list[Any]):
    """Some servers send it with each call and again at the end."""
    chunks = [
        {"id": "r1", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": word}], "usage": None} for word in words
    ]
    assert seen("compatible", [sse([*chunks, "[DONE]"])]) == (F.END_TURN, HIGH, True)
    google = [{"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": word and "STOP"}]} for word in words]
    assert seen("gemini", [sse(google)]) == (F.END_TURN, HIGH, True)


def chat_call(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    call = {"index": index, **more, "function": {"arguments": arguments, **({"name": f"f{index}"} if more else {})}}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}


def test_interleaved_calls_are_closed_by_their_arguments():
    """A further call does not mean that the first one is complete."""
    chunks = [chat_call(0, '{"a":', id="c0"), chat_call(1, '{"b":', id="c1"), chat_call(0, " 1}"), chat_call(1, " 2}")]
    closed = [[call.closed for call in read("compatible", [sse(chunks[:many])])[0].tool_calls] for many in (2, 3, 4)]
    assert closed == [[False, False], [True, False], [True, False]]


def test_a_lone_surrogate_in_an_error_can_be_written():
    signal = lab.detect("bedrock", b'"so\\udeee"', status=503)
    assert signal.message == "HTTP 503: so\ufffd"


@pytest.mark.parametrize("levels", [100, 400, 490, 600, 1_200])
def test_a_deep_value_without_a_number_can_be_written(levels: int):
    deep: Any = float("nan")
    for _ in range(levels):
        deep = {"a": deep}
    assert dumps(deep) in (b"null", b'{"a":' * levels + b"null" + b"}" * levels)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "openai-responses"])
def test_bytes_allowed_before_the_first_event(provider: str):
    pieces = {"openai": CHAT, "anthropic": CLAUDE, "gemini": GEMINI, "openai-responses": RESPONSES}[provider]
    for before in (b"\xef\xbb\xbf\xef\xbb\xbf", b" \n\xef\xbb\xbf\r\n"):
        body = before + b"".join(pieces)
        for at in range(len(before) + 1):
            assert read(provider, [body[:at], body[at:]])[0] == read(provider, [b"".join(pieces)])[0]


def without(events: list[Any], *kinds: str) -> list[Any]:
    return [event for event in events if event["type"] not in kinds]


PIECE = "response.function_call_arguments.delta"


@pytest.mark.parametrize("manner", ["named", "empty end"])
def test_a_duplicated_piece_of_a_call_is_not_two_calls(manner: str):
    events = responses_bodies.events(CALLS, manner)
    at = next(number for number, event in enumerate(events) if event["type"] == PIECE and "1" in event["delta"])  # type: ignore[index]
    (call,) = read("openai-responses", [sse([*events[: at + 1], *events[at:]], named=True)])[0].tool_calls
    assert call.arguments == '{"a": 1, "b": "some words"}'


def test_a_lost_piece_of_a_call_leaves_it_open():
    events = responses_bodies.events(CALLS, "empty end")
    known = without(events, "response.function_call_arguments.done", "response.output_item.done")
    at = next(number for number, event in enumerate(known) if event["type"] == PIECE)
    (call,) = read("openai-responses", [sse(known[:at] + known[at + 1 :], named=True)])[0].tool_calls
    assert not call.closed


def test_a_call_whose_pieces_come_before_it_is_one_call():
    events: list[Any] = [{**event} for event in responses_bodies.events(CALLS)]  # type: ignore[dict-item]
    at = next(number for number, event in enumerate(events) if event["type"] == "response.output_item.added")
    events[at], events[at + 1] = events[at + 1], events[at]
    for event in events:
        event.pop("output_index", None)
        event.pop("sequence_number", None)
    response, _, sound = read("compatible-responses", [sse(events, named=True)])
    assert [call.arguments for call in response.tool_calls] == ['{"a": 1, "b": "some words"}']
    assert not sound
