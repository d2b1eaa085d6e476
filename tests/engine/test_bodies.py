"""Bodies that are no answer are a clear error at once; odd but valid answers are read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from providers.bodies import READERS, WIRES, Answer, chat, google, sse

import agentlab as lab
from agentlab.errors import ProviderConnectionError, ProviderPayloadError
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.providers.wires.read import ends_early

from .call_builders import HELLO, KEY, LOOK, everything_shown, looked, reply_to, result_of, retried, whole_body
from .server import JSON_TYPE, SSE_TYPE, Handler, Reply, raw, serving, status, stream, zipped

HTML = ("content-type", "text/html")
PAGE = b"<!DOCTYPE html>\n<html>\n  <title>Sign in</title>" + b"<p>words</p>" * 500

NO_ANSWER: dict[str, tuple[Reply, str]] = {
    "a page": (raw(PAGE, HTML), "an unrecognised body: '<!DOCTYPE html> <html> <title>Sign in</title><p>words"),
    "a page that says it is JSON": (raw(PAGE, JSON_TYPE), "an unrecognised body: '<!DOCTYPE html>"),
    "a page in gzip": (zipped(PAGE, HTML), "an unrecognised body: '<!DOCTYPE html>"),
    "empty": (raw(b"", JSON_TYPE), "an empty body"),
    "no content": (raw(b"", code=204), "an empty body"),
    "white space": (raw(b" \n\n", JSON_TYPE), "an empty body"),
    "text": (raw(b"It works!", ("content-type", "text/plain")), "an unrecognised body: 'It works!'"),
    "JSON with a fault in it": (raw(b'{"id": "r1", "choices": oops}', JSON_TYPE), 'an unrecognised body: \'{"id": "r1",'),
    "two JSON objects": (raw(b'{"a": 1}{"a": 1}', JSON_TYPE), 'an unrecognised body: \'{"a": 1}{"a": 1}\''),
    "a page after incomplete JSON": (raw(b'{"id": <html>', JSON_TYPE), "an unrecognised body: '{\"id\": <html>'"),
    "a proxy's message": (
        raw(b"error: no upstream", ("content-type", "text/plain")),
        "an unrecognised body: 'error: no",
    ),
    "other events": (raw(b'data: {"news": 1}\n\n', SSE_TYPE), "an unrecognised body: 'data: {\"news\": 1}'"),
    "the last event lacks its blank line": (raw(b'data: {"news": 1}\n', SSE_TYPE), "an unrecognised body: 'data: {"),
    "deep JSON": (raw(b"[" * 100_000, JSON_TYPE), "an unrecognised body: '[[["),
    "an empty object": (raw(b"{}", JSON_TYPE), "an unrecognised body: '{}'"),
    "an empty list": (raw(b"[]", JSON_TYPE), "an unrecognised body: '[]'"),
    "null": (raw(b"null", JSON_TYPE), "an unrecognised body: 'null'"),
    "a number": (raw(b"42", JSON_TYPE), "an unrecognised body: '42'"),
    "another server's error": (raw(b'{"detail": "Not Found"}', JSON_TYPE), 'an unrecognised body: \'{"detail": "Not Found"}\''),
    "bytes": (raw(bytes(range(256)), ("content-type", "application/octet-stream")), "an unrecognised body: "),
}


@pytest.mark.parametrize(("wire", "streaming"), [("compatible", False), ("anthropic", True)])
@pytest.mark.parametrize(("reply", "expected"), NO_ANSWER.values(), ids=NO_ANSWER)
def test_a_body_that_is_no_answer_is_an_error(reply: Reply, expected: str, streaming: bool, wire: str) -> None:
    with serving(reply, raw(b"asked again")) as server:
        result = result_of(server, wire, stream=streaming)
    assert (len(server.asked), retried(result)) == (1, [])
    assert result.stop_reason is StopReason.ERROR
    assert isinstance(result.error, ProviderPayloadError)
    message = str(result.error)
    assert message.startswith(f"{wire} (some-model) answered with {expected}")
    assert message.endswith(" Check that base_url is the address of an API.")
    assert len(message) < 500
    assert len(result.history) == 1


def closing(body: bytes, *headers: tuple[str, str]) -> Reply:
    """A body that ends with the connection, so that its length is unknown."""

    def reply(to: Handler) -> None:
        to.begin(200, *headers)
        to.wfile.write(body)
        to.leave()

    return reply


ENDED_EARLY: dict[str, tuple[Reply, str]] = {
    "JSON cut to the length in its header": (
        raw(b'{"id": "r1", "choi', JSON_TYPE),
        'an incomplete body: \'{"id": "r1", "choi\'',
    ),
    "JSON that the connection's end cut off": (closing(b'{"id": ', JSON_TYPE), "an incomplete body: '{\"id\":'"),
    "JSON in a gzip that was cut off": (
        raw(gzip.compress(b'{"id": "r1", "model": "some-model"}')[:-14], JSON_TYPE, ("content-encoding", "gzip")),
        "an incomplete body: '{",
    ),
    "an array": (raw(b'[{"id": "r1", ', JSON_TYPE), 'an incomplete body: \'[{"id": "r1",\''),
    "within a character": (raw('{"id": "é'.encode()[:-1], JSON_TYPE), 'an incomplete body: \'{"id": "\ufffd\''),
    "within a word": (raw(b'{"id": tru', JSON_TYPE), "an incomplete body: '{\"id\": tru'"),
    "within an escape": (raw(b'{"id": "\\ud83d\\u', JSON_TYPE), "an incomplete body: "),
    "after invalid UTF-8": (raw(b'{"id": "\xff", "mod', JSON_TYPE), "an incomplete body: "),
    "nothing, and no content length": (closing(b"", JSON_TYPE), "the connection closed before any part of the answer arrived"),
    "keep-alive white space": (
        closing(b"\n\n\n", JSON_TYPE),
        "the connection closed before any part of the answer arrived",
    ),
}
STREAM_ENDED_EARLY: dict[str, tuple[Reply, str]] = {
    "within an event": (stream(b'data: {"id": "chatcm'), 'an incomplete body: \'data: {"id": "chatcm\''),
    "within an event's name": (stream(b"event: message_start\ndat"), "an incomplete body: 'event: message_start dat'"),
    "within the first word": (stream(b"da"), "an incomplete body: 'da'"),
    "after a comment": (stream(b": working on it\n\n"), "an incomplete body: ': working on it'"),
    "after events without content": (
        stream(b'event: ping\ndata: {"type": "ping"}\n\n', b"data: {"),
        "an incomplete body: 'event: ping",
    ),
    "nothing": (stream(), "the connection closed before any part of the answer arrived"),
}


@pytest.mark.parametrize("wire", READERS)
@pytest.mark.parametrize(
    ("streaming", "reply", "expected"),
    [
        *(pytest.param(False, *row, id=f"whole, {name}") for name, row in ENDED_EARLY.items()),
        *(pytest.param(True, *row, id=f"stream, {name}") for name, row in (ENDED_EARLY | STREAM_ENDED_EARLY).items()),
    ],
)
def test_a_truncated_body_is_retried(streaming: bool, reply: Reply, expected: str, wire: str) -> None:
    with serving(reply, reply, reply_to(wire, HELLO, streaming=streaming)) as server:
        result = result_of(server, wire, stream=streaming)
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "Hello there")
    assert [event.attempt for event in retried(result)] == [1, 2]
    for event in retried(result):
        assert event.reason.startswith(f"{wire} (some-model)")
        assert expected in event.reason
        assert " Try again; if the error persists, " in event.reason


def test_a_body_that_is_always_truncated_ends_the_run_with_advice() -> None:
    with serving(script=lambda asked: raw(b'{"id": "r1", ', JSON_TYPE)) as server:
        result = result_of(server)
    assert (len(server.asked), result.stop_reason) == (4, StopReason.ERROR)
    assert isinstance(result.error, ProviderConnectionError)
    assert result.history[-1].decision.suggestion == "retry"
    assert result.detail == (
        'ProviderConnectionError: compatible (some-model) answered with an incomplete body: \'{"id": "r1",\'. '
        "Try again; if the error persists, check for a proxy or a server limit that cuts responses off."
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_cut_at_any_byte_is_truncated(wire: str) -> None:
    body = json.dumps(whole_body(wire, LOOK)).encode()
    assert all(ends_early(body[:at]) for at in range(1, len(body)))
    assert not ends_early(body)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_an_html_page_is_no_answer_on_any_wire(wire: str, streaming: bool) -> None:
    with serving(raw(PAGE, HTML)) as server:
        result = result_of(server, wire, stream=streaming)
    assert "unrecognised body: '<!DOCTYPE html>" in result.detail


@pytest.mark.parametrize("wire", WIRES)
def test_a_huge_body_is_refused(wire: str) -> None:
    text = "wörd " * 1_000_000
    with serving(raw(json.dumps(whole_body(wire, Answer(text=(text,)))).encode(), JSON_TYPE)) as server:
        result = result_of(server, wire)
    assert result.stop_reason is StopReason.COMPLETED
    assert result.text == text
    assert len(repr(result)) < 500


@pytest.mark.parametrize("wire", WIRES)
def test_a_gzip_body_is_read(wire: str) -> None:
    with serving(zipped(json.dumps(whole_body(wire, HELLO)).encode())) as server:
        assert result_of(server, wire).text == "Hello there"
    assert "gzip" in server.asked[0].headers["accept-encoding"]


ODD = {
    "a byte order mark": lambda body: b"\xef\xbb\xbf" + body,
    "white space around it": lambda body: b"\n\n  " + body + b"\n",
    "half a surrogate pair": lambda body: body.replace(b"there", b"\\ud83dthere"),
    "bytes that are no UTF-8": lambda body: body.replace(b"there", b"\xe9there"),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_odd_json_is_read(wire: str, streaming: bool, change: object) -> None:
    assert callable(change)
    body = change(json.dumps(whole_body(wire, HELLO)).encode())
    with serving(raw(body, JSON_TYPE)) as server:
        result = result_of(server, wire, stream=streaming)
    assert result.stop_reason is StopReason.COMPLETED
    assert result.text.replace("\ufffd", "") == "Hello there"


def test_an_answer_without_text_is_an_answer() -> None:
    """A provider that sends only the end of an answer."""
    body = {"id": "r1", "model": "m", "choices": [{"index": 0, "message": {"content": None}, "finish_reason": "stop"}]}
    with serving(raw(json.dumps(body).encode(), JSON_TYPE)) as server:
        result = result_of(server)
    assert (result.stop_reason, result.text, result.error) == (StopReason.COMPLETED, "", None)
    with serving(raw(json.dumps({"id": "r1", "model": "m", "choices": []}).encode(), JSON_TYPE)) as server:
        result = result_of(server)
    assert (result.stop_reason, result.text, result.error) == (StopReason.ERROR, "", None)
    assert result.detail == "The provider does not say why the response ended."


# Refused by a filter ------------------------------------------------------------------------------------------------------------

INNER = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True, "severity": "high"}}}
FILTERED = {"error": {"message": f"The prompt was filtered. Key: {KEY}", "code": "content_filter", "innererror": INNER}}


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", ["azure", "openai", "compatible", "anthropic", "gemini"])
def test_a_filtered_request_is_filtered_and_not_an_error(wire: str, streaming: bool) -> None:
    with serving(reply_to(wire, LOOK, streaming=streaming), status(400, FILTERED)) as server:
        result = result_of(server, wire, stream=streaming)
    assert len(server.asked) == 2  # it is not retried
    assert (result.stop_reason, result.error) == (StopReason.CONTENT_FILTERED, None)
    assert "HTTP 400: The prompt was filtered." in result.detail
    first, second = result.history
    assert (first.text, second.text) == ("Let me see", "")
    assert (second.finish_reason, second.decision.suggestion) == (FinishReason.CONTENT_FILTERED, "modify_prompt")
    assert (first.usage.total_tokens, second.usage.total_tokens) == (15, None)  # the vendor may charge for the prompt
    assert KEY not in everything_shown(result)
    report = lab.termination_report(result)
    assert report["suggestion"].to_list()[-1] == "modify_prompt"
    assert report["raw_finish_reason"].to_list()[-1] == "content_filter"
    if wire == "azure":
        assert second.signal is not None
        assert second.signal.metadata["prompt_filter"] == {"hate": "high"}
    with pytest.raises(lab.errors.ResponseFiltered):
        result.raise_for_stop()


def test_a_filtered_request_replays_as_filtered(tmp_path: Path) -> None:
    with serving(status(400, FILTERED)) as server, lab.record(tmp_path / "filtered.yaml"):
        live = result_of(server, "azure")
    with lab.replay(tmp_path / "filtered.yaml"):
        again = result_of(server, "azure")
    assert live.stop_reason is again.stop_reason is StopReason.CONTENT_FILTERED
    source = [one.history[0].response.source for one in (live, again) if one.history[0].response is not None]
    assert [one.replayed for one in source if one is not None] == [False, True]


WORD = "MALFORMED_FUNCTION_CALL"
MALFORMED = {
    "gemini": (google(WORD, []), [{"candidates": [{"finishReason": WORD}]}]),
    "compatible": (
        chat(f"function_call_filter: {WORD}", {"role": "assistant"}),
        [{"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": f"function_call_filter: {WORD}"}]}, "[DONE]"],
    ),
}


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("wire", MALFORMED)
def test_a_malformed_call_is_repaired_on_geminis_wire_and_on_its_compatible_one(wire: str, streaming: bool) -> None:
    body, events = MALFORMED[wire]
    malformed = stream(sse(events)) if streaming else raw(json.dumps(body).encode(), JSON_TYPE)
    looked.clear()
    with serving(malformed, reply_to(wire, LOOK, streaming=streaming), reply_to(wire, HELLO, streaming=streaming)) as server:
        result = result_of(server, wire, stream=streaming)
    assert (result.stop_reason, looked, len(result.history[0].calls)) == (StopReason.COMPLETED, ["tea"], 2)
    assert result.history[0].calls[0].response.signal.finish_reason is FinishReason.ERROR
    with serving(malformed, malformed) as server:
        result = result_of(server, wire, stream=streaming)
    assert (result.stop_reason, len(server.asked)) == (StopReason.ERROR, 2)
