"""Bodies that are no answer are a clear error at once; odd ones that are an answer are read."""

from __future__ import annotations

import json

import pytest
from providers.bodies import WIRES, Answer

from agentlab.errors import ProviderPayloadError
from agentlab.types import StopReason

from .made import HELLO, result_of, retried, whole_body
from .server import JSON_TYPE, Reply, raw, serving, zipped

HTML = ("content-type", "text/html")
PAGE = b"<!DOCTYPE html>\n<html>\n  <title>Sign in</title>" + b"<p>words</p>" * 500

NO_ANSWER: dict[str, tuple[Reply, str]] = {
    "a page": (raw(PAGE, HTML), "something that is no answer: '<!DOCTYPE html> <html> <title>Sign in</title><p>words"),
    "a page that says it is JSON": (raw(PAGE, JSON_TYPE), "something that is no answer: '<!DOCTYPE html>"),
    "a page in gzip": (zipped(PAGE, HTML), "something that is no answer: '<!DOCTYPE html>"),
    "empty": (raw(b"", JSON_TYPE), "an empty body"),
    "no content": (raw(b"", code=204), "an empty body"),
    "white space": (raw(b" \n\n", JSON_TYPE), "an empty body"),
    "text": (raw(b"It works!", ("content-type", "text/plain")), "something that is no answer: 'It works!'"),
    "cut JSON": (raw(b'{"id": ', JSON_TYPE), "something that is no answer: '{\"id\":'"),
    "deep JSON": (raw(b"[" * 100_000, JSON_TYPE), "something that is no answer: '[[["),
    "an empty object": (raw(b"{}", JSON_TYPE), "something that is no answer: '{}'"),
    "an empty list": (raw(b"[]", JSON_TYPE), "something that is no answer: '[]'"),
    "null": (raw(b"null", JSON_TYPE), "something that is no answer: 'null'"),
    "a number": (raw(b"42", JSON_TYPE), "something that is no answer: '42'"),
    "another server's": (raw(b'{"detail": "Not Found"}', JSON_TYPE), 'something that is no answer: \'{"detail": "Not Found"}\''),
    "bytes": (raw(bytes(range(256)), ("content-type", "application/octet-stream")), "something that is no answer: "),
}


@pytest.mark.parametrize(("wire", "streaming"), [("compatible", False), ("anthropic", True)])
@pytest.mark.parametrize(("reply", "told"), NO_ANSWER.values(), ids=NO_ANSWER)
def test_what_is_no_answer(reply: Reply, told: str, streaming: bool, wire: str) -> None:
    with serving(reply, raw(b"asked again")) as server:
        result = result_of(server, wire, stream=streaming)
    assert (len(server.asked), retried(result)) == (1, [])
    assert result.stop_reason is StopReason.ERROR
    assert isinstance(result.error, ProviderPayloadError)
    message = str(result.error)
    assert message.startswith(f"{wire} (some-model) answered with {told}")
    assert message.endswith(" Check that base_url is the address of an API.")
    assert len(message) < 500
    assert len(result.history) == 1


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_page_is_no_answer_on_any_wire(wire: str, streaming: bool) -> None:
    with serving(raw(PAGE, HTML)) as server:
        result = result_of(server, wire, stream=streaming)
    assert "no answer: '<!DOCTYPE html>" in result.detail


@pytest.mark.parametrize("wire", WIRES)
def test_a_huge_body(wire: str) -> None:
    text = "wörd " * 1_000_000
    with serving(raw(json.dumps(whole_body(wire, Answer(text=(text,)))).encode(), JSON_TYPE)) as server:
        result = result_of(server, wire)
    assert result.stop_reason is StopReason.COMPLETED
    assert result.text == text
    assert len(repr(result)) < 500


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_in_gzip(wire: str) -> None:
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


def test_an_answer_without_any_text_is_one() -> None:
    """A provider that says nothing but that it has ended."""
    body = {"id": "r1", "model": "m", "choices": [{"index": 0, "message": {"content": None}, "finish_reason": "stop"}]}
    with serving(raw(json.dumps(body).encode(), JSON_TYPE)) as server:
        result = result_of(server)
    assert (result.stop_reason, result.text, result.error) == (StopReason.COMPLETED, "", None)
    with serving(raw(json.dumps({"id": "r1", "model": "m", "choices": []}).encode(), JSON_TYPE)) as server:
        result = result_of(server)
    assert (result.stop_reason, result.text, result.error) == (StopReason.ERROR, "", None)
    assert result.detail == "The provider does not say why the response ended."
