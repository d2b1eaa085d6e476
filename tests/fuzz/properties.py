"""Properties of every reading, for any input: no exception, the same reading for any chunks, no clean end of a broken stream.

Which losses a wire can show, and which it cannot:

- Chat completions are not numbered. A lost piece of text leaves no trace, nor does a lost piece of a call's arguments if the
  rest is JSON, nor a lost usage. Visible: a missing finish reason or `[DONE]`, an unreadable event, content after the end.
- Gemini numbers nothing either and has no last event: after its finish reason a stream may end at any event.
- Anthropic's blocks have a start, an end and a number, so the loss of either is visible, as is the loss of the message's start;
  a lost piece in the middle of a block is not.
- Bedrock's blocks are similar, but text has no start event, and the end of the message may come without the usage. Each
  frame has a checksum.
- Responses repeat everything several times and number their events: a lost piece is recovered or noticed, except the first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import ToolCall
from agentlab.model.responses import ModelResponse, StreamEvent, TextDelta
from agentlab.providers.base import StreamParser
from agentlab.providers.registry import Provider
from tests.fuzz.wires import UNKNOWN_NAME, Event, family, form, has_content, has_reason, is_last, split
from tests.providers.test_any_json import check_types

F, HIGH = FinishReason, Confidence.HIGH
CLEAN = (F.END_TURN, F.STOP_SEQUENCE, F.TOOL_CALLS)


def read(provider: str, pieces: Sequence[bytes], cap: int | None = None) -> tuple[ModelResponse, list[StreamEvent], bool]:
    """A stream in these pieces: the response, its stream events, and whether it is sound."""
    return read_with(lab.signals.stream(provider, requested_cap=cap), pieces)


def read_with(parser: StreamParser, pieces: Sequence[bytes]) -> tuple[ModelResponse, list[StreamEvent], bool]:
    emitted = [event for piece in pieces for event in parser.feed(piece)]
    signal = parser.finish()
    response = parser.response()
    assert response.signal == signal
    assert type(parser.sound) is bool
    return response, emitted, parser.sound


def pieces_of(body: bytes, places: Sequence[int]) -> list[bytes]:
    at = sorted({place % (len(body) + 1) for place in places})
    return [body[start:end] for start, end in zip([0, *at], [*at, len(body)], strict=True)]


def is_surely_clean(signal: TerminationSignal) -> bool:
    return signal.finish_reason in CLEAN and signal.confidence is HIGH


def check_anything(provider: str, body: bytes, places: Sequence[int] = (), cap: int | None = None) -> ModelResponse:
    """For any bytes: nothing raises, the types are right, chunk boundaries do not matter, and a reset parser equals a new one."""
    response, emitted, sound = read(provider, [body], cap)
    check_types(response)
    parser = lab.signals.stream(provider, requested_cap=cap)
    parser.feed(body[: len(body) // 2])
    parser.reset()
    again, emitted_again, sound_again = read_with(parser, pieces_of(body, places))
    assert again == response or repr(again) == repr(response)  # a NaN in `raw` is equal to nothing
    assert spoken(emitted_again) == spoken(emitted)
    assert sound_again is sound
    assert sound or not is_surely_clean(response.signal)
    for streaming in (None, True, False):
        _check_signal(lab.detect(provider, body, streaming=streaming, requested_cap=cap))
    streamed = lab.detect(provider, body, streaming=True, requested_cap=cap)
    assert (streamed.finish_reason, streamed.confidence) == (response.signal.finish_reason, response.signal.confidence)
    _check_signal(lab.detect(provider, body, status=503))
    text = body.decode("utf-8", "surrogateescape")
    _check_signal(lab.detect(provider, text))
    _check_unmarked(provider, body, response, sound=sound)
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        return response
    check_payload(provider, payload, cap)
    return response


def check_payload(provider: str, payload: Any, cap: int | None = None) -> None:
    """For any JSON value as a whole body."""
    _check_signal(lab.detect(provider, payload, requested_cap=cap))
    if provider != UNKNOWN_NAME:
        wire = Provider(provider, model="some-model", base_url="http://127.0.0.1:1/v1")
        check_types(wire.parse(payload, requested_cap=cap))
        assert type(wire.error_message(payload)) is str


def _check_signal(signal: TerminationSignal) -> None:
    check_types(ModelResponse(text="", signal=signal))
    assert signal.message


def spoken(emitted: list[StreamEvent]) -> list[object]:
    """The stream events with neighbouring text joined."""
    found: list[object] = []
    for event in emitted:
        if isinstance(event, TextDelta) and found and isinstance(found[-1], str):
            found[-1] += event.text
        else:
            found.append(event.text if isinstance(event, TextDelta) else repr(event))
    return found


_LAST_WORDS = {
    "chat": (b"[DONE]",),
    "anthropic": (b"message_stop",),
    "gemini": (b"finishReason", b"blockReason"),
    "bedrock": (b"messageStop",),
    "responses": (b"response.completed", b"response.incomplete", b"response.failed", b"response.cancelled", b"response.done"),
}


def _check_unmarked(provider: str, body: bytes, response: ModelResponse, *, sound: bool) -> None:
    """A stream that never has the wire's last event is broken."""
    words = _LAST_WORDS.get(family(provider))
    if words is None or form(body) == "json" or b"\\u" in body or any(word in body for word in (*words, b"[DONE]")):
        return
    assert not sound or response.signal.finish_reason is F.ERROR
    assert response.signal.confidence is not HIGH or response.signal.finish_reason is F.ERROR


# Damage to a sound stream ------------------------------------------------------------------------------------------------------


def check_truncated(provider: str, body: bytes, at: int, original: ModelResponse) -> None:
    """A stream cut before its last event is not certain; cut before its finish reason, it is UNKNOWN."""
    response, _, sound = read(provider, [body[:at]])
    wire = _wire(provider, body)
    events = _whole_events(wire, body, at)
    assert_no_invention(response, original)
    if any(is_last(wire, event) for event in events):
        return
    assert not sound, "a broken stream is taken for sound"
    assert response.signal.confidence is not HIGH
    if not any(has_reason(wire, event) for event in events):
        assert response.signal.finish_reason is F.UNKNOWN


def _whole_events(wire: str, body: bytes, at: int) -> list[Event]:
    """The events before the cut, including one that lacks only its blank line."""
    found, end = [], 0
    for event in split(body):
        end += len(event.raw)
        if end - (len(event.raw) - len(event.raw.rstrip(b"\r\n")) if form(body) == "events" else 0) <= at:
            found.append(event)
    return found


def assert_no_invention(response: ModelResponse, original: ModelResponse) -> None:
    """Assert that closed calls are those of the original."""
    known = {(call.name, _value(call)) for call in original.tool_calls}
    for call in response.tool_calls:
        if call.closed:
            assert (call.name, _value(call)) in known, f"a call that the model never made: {call}"


def _value(call: ToolCall) -> str:
    try:
        return json.dumps(json.loads(call.arguments), sort_keys=True)
    except ValueError:
        return call.arguments


def check_corrupted(provider: str, body: bytes, damaged: bytes, original: ModelResponse) -> None:
    """An event that is no JSON, or a frame with a wrong checksum: the loss is visible."""
    response, _, sound = read(provider, [damaged])
    assert not sound
    assert response.signal.confidence is not HIGH or response.signal.finish_reason is F.ERROR
    assert_no_invention(response, original)


def check_dropped(provider: str, body: bytes, lost: int, original: ModelResponse) -> None:
    """One event is missing. Only losses that the wire can show are checked: see above."""
    wire, events = _wire(provider, body), split(body)
    rest = b"".join(event.raw for number, event in enumerate(events) if number != lost)
    response, _, sound = read(provider, [rest])
    gone = events[lost]
    if is_last(wire, gone):
        assert not sound
    others = events[:lost] + events[lost + 1 :]
    if shows(wire, gone) and not (has_reason(wire, gone) and any(has_reason(wire, event) for event in others)):
        assert not is_surely_clean(response.signal), f"nobody notices that {gone} is missing"
    if wire == "responses":
        assert_no_invention(response, original)
        numbered = lost > 0 and all("sequence_number" in event.data for event in events if isinstance(event.data, dict))
        assert response.text == original.text or not is_surely_clean(response.signal) or not numbered


def shows(wire: str, gone: Event) -> bool:
    """True if the wire can show that this event is missing."""
    if is_last(wire, gone) or has_reason(wire, gone):
        return True
    data = gone.data if isinstance(gone.data, dict) else {}
    if wire == "anthropic":
        return gone.kind in ("message_start", "content_block_start", "content_block_stop", "message_delta")
    return wire == "bedrock" and (
        gone.kind == "contentBlockStop" or (gone.kind == "contentBlockStart" and "toolUse" in str(data))
    )


def check_reordered(provider: str, events: list[Event], original: ModelResponse) -> None:
    """Events in another order. If content comes after the end, the end is not clean. Swapped pieces of text are not visible."""
    body = b"".join(event.raw for event in events)
    response, _, sound = read(provider, [body])
    wire = _wire(provider, body)
    content = [number for number, event in enumerate(events) if has_content(wire, event)]
    reasons = [number for number, event in enumerate(events) if has_reason(wire, event)]
    if wire == "responses":
        assert_no_invention(response, original)
        return  # the last event contains the whole answer in any order
    last = next(number for number, event in enumerate(events) if is_last(wire, event))
    if content and content[-1] > (reasons[-1] if wire == "gemini" else min(reasons[-1], last)):
        assert not is_surely_clean(response.signal), "content after the end"
        assert not sound


def check_joined(provider: str, first: bytes, second: bytes, at: int) -> None:
    """One whole response followed by the start of another: not the clean end of the first."""
    wire = _wire(provider, first)
    body = first + second[:at]
    added = _whole_events(wire, second, at)
    response, _, sound = read(provider, [body])
    if not any(has_content(wire, event) for event in added):
        return
    if not any(is_last(wire, event) for event in added):
        assert not sound
    assert not is_surely_clean(response.signal)


def _wire(provider: str, body: bytes) -> str:
    if provider != UNKNOWN_NAME:
        return family(provider)
    from tests.fuzz.seeds import seeds

    return next((seed.wire for seed in seeds(provider) if seed.body == body), provider)
