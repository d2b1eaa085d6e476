"""Binary frames: split for any chunks, and missing or damaged frames are always reported."""

from __future__ import annotations

import json
import random
import struct
import zlib

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.responses import ReasoningDelta, TextDelta
from agentlab.providers.finish_detection import detect
from agentlab.providers.registry import Provider
from agentlab.providers.wires.incoming import UNREADABLE, FrameDecoder, Incoming
from agentlab.transport.aws_eventstream import build_frame, encode_headers, is_whole, join_headers, read_prelude, text_headers
from tests.providers.bedrock_bodies import chunk_frames, events, frame, frames
from tests.providers.bodies import Answer, Call, cut, parse_stream
from tests.providers.bodies import stream as text_stream

F, HIGH = FinishReason, Confidence.HIGH
ANSWER = Answer(text=("Hello", " wörld 🌊"), reasoning=("hm",), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS)
FRAMES = frames(events(ANSWER))
BODY = b"".join(FRAMES)


def read(*pieces: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
    decoder = FrameDecoder()
    found = [event for piece in pieces for event in decoder.feed(piece)]
    found = [event for event in [*found, *decoder.finish()] if not event[1].startswith(UNREADABLE)]
    return found, decoder.damaged


def test_each_frame_is_an_event():
    assert read(BODY) == (
        [(name.encode(), json.dumps(payload, ensure_ascii=False).encode()) for name, payload in events(ANSWER)],
        False,
    )


def test_botocore_reads_our_frames():
    theirs = EventStreamBuffer()
    theirs.add_data(BODY)
    assert [(m.headers[":event-type"].encode(), m.payload) for m in theirs] == read(BODY)[0]


def test_every_cut_into_two_chunks():
    expected = read(BODY)
    for at in range(len(BODY) + 1):
        assert read(BODY[:at], BODY[at:]) == expected


@given(places=st.lists(st.integers(0, 5_000), max_size=60))
@settings(max_examples=80, deadline=None)
def test_any_chunks(places: list[int]):
    assert read(*cut(BODY, places)) == read(BODY)


def test_an_end_inside_a_frame_is_noticed():
    """botocore does not report it."""
    ends = {0} | {len(b"".join(FRAMES[:n])) for n in range(1, len(FRAMES) + 1)}
    for at in range(len(BODY) + 1):
        found, damaged = read(BODY[:at])
        assert damaged is (at not in ends)
        assert found == read(BODY)[0][: len(found)]


@pytest.mark.parametrize("place", ["prelude", "prelude crc", "headers", "payload", "crc"])
def test_damage_is_noticed_and_later_frames_are_read_if_they_can_be_found(place: str):
    at = len(FRAMES[0]) + {"prelude": 1, "prelude crc": 9, "headers": 30, "payload": 110, "crc": len(FRAMES[1]) - 2}[place]
    damaged_body = BODY[:at] + bytes([BODY[at] ^ 4]) + BODY[at + 1 :]
    found, damaged = read(damaged_body)
    assert damaged
    everything = read(BODY)[0]
    assert found == (everything[:1] if place.startswith("prelude") else everything[:1] + everything[2:])
    (lost,) = [data for _, data in FrameDecoder().feed(damaged_body) if data.startswith(UNREADABLE)]
    assert len(lost) == (1 if place.startswith("prelude") else 1 + len(FRAMES[1]))


@given(at=st.integers(0, len(BODY) - 1), bit=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_every_flipped_bit_is_noticed(at: int, bit: int):
    incoming = Incoming()
    flipped = BODY[:at] + bytes([BODY[at] ^ 1 << bit]) + BODY[at + 1 :]
    found = incoming.feed(flipped)
    found += incoming.finish()[0]
    assert incoming.damaged
    assert sum(not data.startswith(UNREADABLE) for _, data in found) < len(FRAMES)


@given(noise=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_noise_raises_nothing(noise: bytes):
    found, damaged = read(b"\x00" + noise)
    assert (found, damaged) == ([], True)
    sound = build_frame(noise, b"{}")
    found, damaged = read(sound)
    assert len(found) + damaged == 1


def test_a_frame_with_an_impossible_length():
    for lengths in ((2**31, 10), (40, 100), (12, 0), (2**20, 2**19)):
        start = struct.pack(">II", *lengths)
        assert read(start + zlib.crc32(start).to_bytes(4, "big") + bytes(100)) == ([], True)


def test_long_streams_take_linear_time():
    """Also in one piece: data that were read are not copied again."""
    one = frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "word " * 200}})
    found, damaged = read(one * 3_000)
    assert (len(found), damaged) == (3_000, False)
    big = frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "word " * 400_000}})
    assert len(read(*(big[at : at + 997] for at in range(0, len(big), 997)))[0]) == 1


# Exceptions and errors -----------------------------------------------------------------------------------------------------


def test_an_exception_is_an_error_event():
    sent = frame("modelStreamErrorException", {"message": "It broke.", "originalStatusCode": 500}, "exception")
    ((name, data),), damaged = read(sent)
    assert (name, damaged) == (b"error", False)
    assert json.loads(data) == {"type": "modelStreamErrorException", "message": "It broke.", "originalStatusCode": 500}


@pytest.mark.parametrize("payload", [b"", b"no json", b"[1]", b'{"Message": "It broke."}'])
def test_an_exception_with_another_payload(payload: bytes):
    ((name, data),), _ = read(frame("throttlingException", payload, "exception"))
    error = json.loads(data)
    assert (name, error["type"]) == (b"error", "throttlingException")
    assert error["message"] == ("It broke." if b"Message" in payload else payload.decode())


def test_a_stream_error_has_no_payload():
    headers = encode_headers([(":message-type", "error"), (":error-code", "InternalError"), (":error-message", "It broke.")])
    ((name, data),), _ = read(build_frame(headers, b""))
    assert (name, json.loads(data)) == (b"error", {"type": "InternalError", "message": "It broke."})


@pytest.mark.parametrize("provider", ["bedrock", "anthropic", "openai", "gemini"])
def test_every_provider_is_notified_of_an_exception(provider: str):
    wire = Provider(provider, model="m")
    parser = wire.stream_parser()
    parser.feed(frame("throttlingException", {"message": "Too many requests."}, "exception"))
    signal = parser.finish()
    assert (signal.finish_reason, signal.confidence, signal.raw_value) == (F.ERROR, HIGH, "throttlingException")
    assert "Too many requests." in signal.message


# Another wire inside -------------------------------------------------------------------------------------------------------


def test_anthropic_wrapped_in_frames_is_the_same_stream():
    plain = text_stream("anthropic", ANSWER)
    wrapped = chunk_frames(plain)
    expected, emitted = parse_stream("anthropic", [plain])
    chance = random.Random(3)
    for _ in range(30):
        pieces = cut(wrapped, [chance.randrange(len(wrapped)) for _ in range(9)])
        found, emitted_in_pieces = parse_stream("anthropic", pieces)
        assert (found, emitted_in_pieces) == (expected, emitted)
    assert any(isinstance(event, TextDelta) for event in emitted)
    assert any(isinstance(event, ReasoningDelta) for event in emitted)
    assert detect("anthropic", wrapped) == expected.signal
    assert detect("anthropic", wrapped[: len(wrapped) // 2]).finish_reason is F.UNKNOWN


@pytest.mark.parametrize("payload", [b"{}", b'{"bytes": 1}', b'{"bytes": "?"}', b"nothing", b'["bytes"]'])
def test_a_chunk_that_wraps_nothing_is_emitted_unchanged(payload: bytes):
    assert read(frame("chunk", payload)) == ([(b"chunk", payload)], False)


# Headers -------------------------------------------------------------------------------------------------------------------


def test_headers_of_every_type_are_encoded_and_decoded():
    headers = b"".join(
        bytes([1]) + name + bytes([kind]) + value
        for name, kind, value in [
            (b"a", 0, b""),
            (b"b", 1, b""),
            (b"c", 2, b"\x01"),
            (b"d", 3, b"\x01\x02"),
            (b"e", 4, bytes(4)),
            (b"f", 5, bytes(8)),
            (b"g", 6, b"\x00\x03abc"),
            (b"h", 7, b"\x00\x04text"),
            (b"i", 8, bytes(8)),
            (b"j", 9, bytes(16)),
        ]
    )
    found = text_headers(headers)
    assert [name for name, _, _ in found] == [bytes([letter]) for letter in b"abcdefghij"]
    assert found[7] == (b"h", b"\x07", b"text")
    assert join_headers(found) == headers
    assert [event for event, _ in read(build_frame(headers, b"{}"))[0]] == [b""]
    for end in range(1, len(headers)):
        try:
            assert join_headers(text_headers(headers[:end])) == headers[:end]
        except (ValueError, IndexError):
            continue


@given(name=st.text(max_size=20), value=st.text(max_size=50), payload=st.binary(max_size=100))
def test_a_frame_is_encoded_and_decoded(name: str, value: str, payload: bytes):
    built = build_frame(encode_headers([(name, value)]), payload)
    prelude = read_prelude(built)
    assert prelude is not None
    assert (prelude.total, is_whole(built)) == (len(built), True)
    buffer = EventStreamBuffer()
    buffer.add_data(built)
    message = buffer.next()
    assert (message.headers, message.payload) == ({name: value}, payload)
