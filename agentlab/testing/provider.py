"""What a provider has to fulfil, as tests: subclass `ProviderContract` in a test file, and pytest does the rest.

class TestMyProvider(ProviderContract):
    @pytest.fixture
    def provider(self):
        return MyProvider(model="some-model", api_key="a key that is none")

    @pytest.fixture
    def bodies(self):  # what the vendor answers, and why each of them ended
        return [(json.loads(text), FinishReason.END_TURN), …]

    @pytest.fixture
    def stream(self):  # a whole stream that ends in good order; None where the wire has none
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
from agentlab.providers.base import Capabilities, Provider
from agentlab.transport.http import HttpRequest
from agentlab.types import JSON, Confidence, FinishReason, Message, ModelRequest, ModelResponse, ToolSpec

Bodies: TypeAlias = Sequence[tuple[JSON, FinishReason]]

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
_TOOL = ToolSpec("look_at_the_sky", "What the sky is like.", _SCHEMA, json.dumps(_SCHEMA))
_ASKED = ModelRequest((Message("user", "Is it Grüße, or ☂?"),), "Say it in short.", (_TOOL,), max_output_tokens=77)
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

    `provider` is what is tried, with a made-up key; `bodies` are answers with the reason for which each ended; `stream` is a whole
    stream, as bytes, or None where the wire has none.

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

    def test_it_says_who_it_is(self, provider: Provider) -> None:
        """A name for `provider:model` strings, a wire, a model, and what it can do."""
        assert provider.name
        assert not set(provider.name) & set(":@ ")
        assert provider.wire
        assert provider.model
        assert isinstance(provider.capabilities, Capabilities)

    def test_it_is_a_value(self, provider: Provider) -> None:
        """One object serves any number of runs, and goes to another process."""
        copied = pickle.loads(pickle.dumps(provider))  # noqa: S301  what was pickled in the same line
        assert copied == provider
        assert hash(copied) == hash(provider)

    def test_it_shows_no_key(self, provider: Provider) -> None:
        """Neither its repr nor its requests, which are recorded, have what authenticates it."""
        request = provider.build_request(_ASKED)
        said = f"{provider!r} {provider!s} {request.url} {dict(request.headers)!r} {request.body!r}"
        for value in _auth(provider, request).values():
            assert value not in said
            assert value.removeprefix("Bearer ") not in said

    def test_what_is_asked_is_in_the_request(self, provider: Provider) -> None:
        """The prompt, the instructions, the cap, and the tools where it can call some; as JSON, to an http address."""
        for stream in (False, True) if provider.capabilities.streaming else (False,):
            request = provider.build_request(replace(_ASKED, stream=stream))
            assert isinstance(request, HttpRequest)
            assert request.url.startswith(("http://", "https://"))
            body = json.dumps(json.loads(request.body), ensure_ascii=False)
            assert _ASKED.messages[0].text in body
            assert _ASKED.instructions in body
            assert str(_ASKED.max_output_tokens) in body
            assert _TOOL.name in body or not provider.capabilities.tools

    def test_the_same_question_is_the_same_request(self, provider: Provider) -> None:
        """Byte for byte, or no recording of it would ever be found again."""
        assert provider.build_request(_ASKED) == provider.build_request(_ASKED)

    def test_ends_are_read_as_they_are_documented(self, provider: Provider, bodies: Bodies) -> None:
        """The reason of each of the bodies, with the vendor's own word kept."""
        for body, reason in bodies:
            signal = provider.parse(body).signal
            assert signal.finish_reason is reason, f"{signal.raw_value!r} means {reason}, and is read as {signal.finish_reason}"
            assert signal.provider == provider.name
            assert signal.raw_field

    def test_a_call_is_whole_or_not_closed(self, provider: Provider, bodies: Bodies) -> None:
        """Arguments of a call that counts as closed are JSON."""
        for body, _ in bodies:
            for call in provider.parse(body).tool_calls:
                assert call.name
                assert not call.closed or isinstance(json.loads(call.arguments), dict)

    def test_nothing_that_a_server_sends_raises(self, provider: Provider, bodies: Bodies) -> None:
        """JSON of something else, and bodies with any one part of them missing or odd."""
        for body in (*_ODD, *(spoilt for whole, _ in bodies for spoilt in _spoilt(whole))):
            assert isinstance(provider.parse(body), ModelResponse)
            assert isinstance(provider.error_message(body), str)
        for body in _ODD:
            assert not _is_sure_end(provider.parse(body))

    def test_a_stream_says_the_same_however_it_is_cut(self, provider: Provider, stream: bytes | None) -> None:
        """In two pieces anywhere, byte by byte, or at once."""
        whole = _needed(stream)
        expected = _read(provider, whole)
        assert expected.text or expected.tool_calls
        assert _is_sure_end(expected), f"its end is read as {expected.signal.finish_reason} ({expected.signal.confidence})"
        assert _read(provider, *(bytes([byte]) for byte in whole)) == expected
        for at in range(len(whole)):
            assert _read(provider, whole[:at], whole[at:]) == expected

    def test_a_stream_that_breaks_off_is_no_sure_end(self, provider: Provider, stream: bytes | None) -> None:
        """Wherever it does before its last event."""
        whole = _needed(stream)
        for at in range(_last_event(whole) + 1):
            assert not _is_sure_end(_read(provider, whole[:at]))

    def test_streams_do_not_mix(self, provider: Provider, stream: bytes | None) -> None:
        """Two through one provider at a time, piece by piece; and one parser for two streams, one after the other."""
        whole = _needed(stream)
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
        raise AssertionError("give the provider a made-up key, so that it can be looked for") from error
    return found


def _needed(stream: bytes | None) -> bytes:
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


def _is_sure_end(response: ModelResponse) -> bool:
    return response.signal.confidence is Confidence.HIGH and response.signal.finish_reason in _CLEAN


def _last_event(stream: bytes) -> int:
    """Where the last event of a stream of text begins; of binary frames, its middle."""
    text = stream.replace(b"\r\n", b"\n\n").rstrip(b"\n")  # as long as it was
    found = text.rfind(b"\n\n")
    return len(stream) // 2 if found < 0 else found


def _spoilt(body: JSON) -> Iterator[JSON]:
    """The body with each of its parts in turn left out, or replaced by something odd."""
    if isinstance(body, dict):
        for key, value in body.items():
            yield {name: kept for name, kept in body.items() if name != key}
            for odd in (*_ODD[:8], *_spoilt(value)):
                yield {**body, key: odd}
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield body[:index] + body[index + 1 :]
            for odd in (*_ODD[:8], *_spoilt(value)):
                yield _with(body, index, odd)


def _with(items: list[Any], index: int, value: JSON) -> list[JSON]:
    return [*items[:index], value, *items[index + 1 :]]
