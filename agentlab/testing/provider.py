"""The contract of a provider, as tests for pytest: subclass `ProviderContract` in a test file.

class TestMyProvider(ProviderContract):
    @pytest.fixture
    def provider(self):
        return MyProvider(model="some-model", api_key="a made-up key")

    @pytest.fixture
    def bodies(self):  # the vendor's answers, with their finish reasons
        return [(json.loads(text), FinishReason.END_TURN), …]

    @pytest.fixture
    def stream(self):  # a complete stream; None if the wire has none
        return b'data: {"choices": …'

In a notebook, without pytest: `verify(ProviderContract, provider=…, bodies=…, stream=…)`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias
from unittest import SkipTest

from agentlab.errors import MissingKeyError
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import JSON, Message, ModelRequest, ToolSpec
from agentlab.model.responses import ModelResponse
from agentlab.providers.base import Capabilities, Provider
from agentlab.transport.http import HttpRequest

Bodies: TypeAlias = Sequence[tuple[JSON, FinishReason]]

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
_TOOL = ToolSpec("look_at_the_sky", "What the sky is like.", _SCHEMA, json.dumps(_SCHEMA))
_REQUEST = ModelRequest((Message("user", "Is it Grüße, or ☂?"),), "Say it in short.", (_TOOL,), max_output_tokens=77)
_ODD: tuple[JSON, ...] = (
    None,
    True,
    0,
    -1.5,
    "",
    "nonsense",
    [],
    [[]],
    {},
    {"": None},
    {"error": None},
    {"error": {"message": 5}},
)
_CLEAN = (FinishReason.END_TURN, FinishReason.STOP_SEQUENCE, FinishReason.TOOL_CALLS)


class ProviderContract:
    """Subclass it with the fixtures `provider`, `bodies` and `stream`.

    `provider` is the provider to test, with a made-up key; `bodies` are answers with their finish reasons; `stream` is a complete
    stream as bytes, or None if the wire has none.

    Example:
        >>> from agentlab.testing import ProviderContract, verify
        >>> body = {"choices": [{"message": {"content": "In Paris."}, "finish_reason": "stop"}]}
        >>> tried = verify(
        ...     ProviderContract,
        ...     provider=lambda: lab.Provider("openai", model="gpt-5.4-mini", api_key="a made-up key"),
        ...     bodies=lambda: [(body, lab.FinishReason.END_TURN)],
        ...     stream=lambda: None,
        ... )
        >>> len(tried.kept), tried.broken, len(tried.left_out)
        (8, {}, 3)
    """

    def test_it_names_itself(self, provider: Provider) -> None:
        """It has a name for `provider:model` strings, a wire, a model and its capabilities."""
        assert provider.name
        assert not set(provider.name) & set(":@ ")
        assert provider.wire
        assert provider.model
        assert isinstance(provider.capabilities, Capabilities)

    def test_it_is_a_value(self, provider: Provider) -> None:
        """It can be copied to another process, and compared."""
        copied = pickle.loads(pickle.dumps(provider))  # noqa: S301  pickled in the same line
        assert copied == provider
        assert hash(copied) == hash(provider)

    def test_it_shows_no_key(self, provider: Provider) -> None:
        """Neither its repr nor its requests, which are recorded, contain a key."""
        request = provider.build_request(_REQUEST)
        shown = f"{provider!r} {provider!s} {request.url} {dict(request.headers)!r} {request.body!r}"
        for value in _auth(provider, request).values():
            assert value not in shown
            assert value.removeprefix("Bearer ") not in shown

    def test_a_request_has_what_was_asked(self, provider: Provider) -> None:
        """Requests are JSON with the prompt, the instructions, the cap and, if supported, the tools."""
        for stream in (False, True) if provider.capabilities.streaming else (False,):
            request = provider.build_request(replace(_REQUEST, stream=stream))
            assert isinstance(request, HttpRequest)
            assert request.url.startswith(("http://", "https://"))
            body = json.dumps(json.loads(request.body), ensure_ascii=False)
            assert _REQUEST.messages[0].text in body
            assert _REQUEST.instructions in body
            assert str(_REQUEST.max_output_tokens) in body
            assert _TOOL.name in body or not provider.capabilities.tools

    def test_the_same_question_is_the_same_request(self, provider: Provider) -> None:
        """Requests are equal byte for byte; otherwise no recording would match."""
        assert provider.build_request(_REQUEST) == provider.build_request(_REQUEST)

    def test_finish_reasons_are_as_documented(self, provider: Provider, bodies: Bodies) -> None:
        """Each body has its finish reason, and the vendor's own word."""
        for body, reason in bodies:
            signal = provider.parse(body).signal
            assert signal.finish_reason is reason, f"{signal.raw_value!r} means {reason}, and is read as {signal.finish_reason}"
            assert signal.provider == provider.name
            assert signal.raw_field

    def test_closed_tool_calls_are_complete(self, provider: Provider, bodies: Bodies) -> None:
        """The arguments of a closed tool call are JSON."""
        for body, _ in bodies:
            for call in provider.parse(body).tool_calls:
                assert call.name
                assert not call.closed or isinstance(json.loads(call.arguments), dict)

    def test_no_response_raises(self, provider: Provider, bodies: Bodies) -> None:
        """Neither other JSON nor a body with a missing or odd part raises."""
        for body in (*_ODD, *(damaged for whole, _ in bodies for damaged in _damaged(whole))):
            assert isinstance(provider.parse(body), ModelResponse)
            assert isinstance(provider.error_message(body), str)
        for body in _ODD:
            assert not _is_clean_end(provider.parse(body))

    def test_a_stream_reads_the_same_in_any_pieces(self, provider: Provider, stream: bytes | None) -> None:
        """A stream gives the same response in two pieces anywhere, byte by byte, or at once."""
        whole = _require(stream)
        expected = _read(provider, whole)
        assert expected.text or expected.tool_calls
        assert _is_clean_end(expected), f"its end is read as {expected.signal.finish_reason} ({expected.signal.confidence})"
        assert _read(provider, *(bytes([byte]) for byte in whole)) == expected
        for at in range(len(whole)):
            assert _read(provider, whole[:at], whole[at:]) == expected

    def test_a_broken_stream_is_not_a_clean_end(self, provider: Provider, stream: bytes | None) -> None:
        """A stream that breaks off before its last event does not end with high confidence."""
        whole = _require(stream)
        for at in range(_last_event(whole) + 1):
            assert not _is_clean_end(_read(provider, whole[:at]))

    def test_streams_do_not_mix(self, provider: Provider, stream: bytes | None) -> None:
        """Two streams at once through one provider, and two through one parser, give their own responses."""
        whole = _require(stream)
        expected = _read(provider, whole)
        first, second = provider.stream_parser(), provider.stream_parser()
        for at in range(0, len(whole), 7):
            first.feed(whole[at : at + 7])
            second.feed(whole[at : at + 7])
        for parser in (first, second):
            parser.finish()
            assert parser.response() == expected
        first.reset()
        first.feed(whole)
        first.finish()
        assert first.response() == expected
        assert first.sound


def _auth(provider: Provider, request: HttpRequest) -> dict[str, str]:
    sign = getattr(provider, "sign", None)
    try:
        found: dict[str, str] = provider.auth_headers() if sign is None else sign(request)
    except MissingKeyError as error:
        raise AssertionError("give the provider a made-up key for the test to look for") from error
    return found


def _require(stream: bytes | None) -> bytes:
    if stream is None:
        raise SkipTest("no stream was given")
    return stream


def _read(provider: Provider, *pieces: bytes) -> ModelResponse:
    parser = provider.stream_parser()
    for piece in pieces:
        parser.feed(piece)
    signal = parser.finish()
    response = parser.response()
    assert response.signal == signal
    return response


def _is_clean_end(response: ModelResponse) -> bool:
    return response.signal.confidence is Confidence.HIGH and response.signal.finish_reason in _CLEAN


def _last_event(stream: bytes) -> int:
    """Return the start of the last event of a text stream, or the middle of a binary one."""
    text = stream.replace(b"\r\n", b"\n\n").rstrip(b"\n")  # as long as it was
    found = text.rfind(b"\n\n")
    return len(stream) // 2 if found < 0 else found


def _damaged(body: JSON) -> Iterator[JSON]:
    """Yield the body with each of its parts missing, or replaced by an odd value."""
    if isinstance(body, dict):
        for key, value in body.items():
            yield {name: kept for name, kept in body.items() if name != key}
            for odd in (*_ODD[:8], *_damaged(value)):
                yield {**body, key: odd}
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield body[:index] + body[index + 1 :]
            for odd in (*_ODD[:8], *_damaged(value)):
                yield _with(body, index, odd)


def _with(items: list[Any], index: int, value: JSON) -> list[JSON]:
    return [*items[:index], value, *items[index + 1 :]]
