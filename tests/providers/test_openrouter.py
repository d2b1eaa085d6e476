"""OpenRouter: the upstream vendor's finish reason, the price, and the turn to send back."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import Message, ModelRequest
from agentlab.providers.openrouter import NATIVE_REASONS

from .bodies import CALL, CUT_CALL, chat, parse_stream, provider, sse

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW
EMPTY: dict[str, Any] = {"content": ""}


def answer(finish: Any, native: Any, message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    body = chat(finish, message, **more)
    body["choices"][0]["native_finish_reason"] = native
    return body


NATIVE = [
    # The gateway's reason, the native one, the message: the reason, its confidence, and whether the last call is closed.
    pytest.param("stop", "stop", None, (F.END_TURN, HIGH), id="agree"),
    pytest.param("stop", "STOP", None, (F.END_TURN, HIGH), id="agree, another word"),
    pytest.param("stop", "completed", None, (F.END_TURN, HIGH), id="agree, a status"),
    pytest.param("stop", "stop_sequence", None, (F.END_TURN, HIGH), id="agree, a finer word"),
    pytest.param("tool_calls", "STOP", {"tool_calls": [CALL]}, (F.TOOL_CALLS, HIGH), id="calls, vendor has no word for them"),
    pytest.param("tool_calls", "completed", {"tool_calls": [CALL]}, (F.TOOL_CALLS, HIGH), id="calls, a status"),
    pytest.param("length", "MAX_TOKENS", None, (F.MAX_TOKENS, HIGH), id="cut"),
    pytest.param("length", "model_context_window_exceeded", None, (F.MAX_TOKENS, HIGH), id="cut, a finer word"),
    pytest.param("content_filter", "SAFETY", None, (F.CONTENT_FILTERED, HIGH), id="filtered"),
    pytest.param("stop", "stop", {"content": None, "refusal": "No."}, (F.CONTENT_FILTERED, HIGH), id="refusal"),
    pytest.param("stop", "refusal", {"content": None, "refusal": "No."}, (F.CONTENT_FILTERED, HIGH), id="refusal, as native"),
    pytest.param("tool_calls", "length", {"tool_calls": [CUT_CALL]}, (F.TOOL_CALLS, LOW), id="half a call over length"),
    pytest.param("tool_calls", "max_output_tokens", {"tool_calls": [CALL]}, (F.TOOL_CALLS, LOW), id="a whole call over length"),
    pytest.param("stop", "max_tokens", None, (F.END_TURN, LOW), id="end over length"),
    pytest.param("stop", "SAFETY", None, (F.END_TURN, LOW), id="end over filter"),
    pytest.param("length", "stop", None, (F.MAX_TOKENS, LOW), id="length over end"),
    pytest.param("stop", "network_error", None, (F.END_TURN, LOW), id="end over error, answered"),
    pytest.param("stop", "network_error", EMPTY, (F.ERROR, MEDIUM), id="end over error, empty"),
    pytest.param(None, "stop", None, (F.END_TURN, MEDIUM), id="null over end"),
    pytest.param(None, "end_turn", {"tool_calls": [CALL]}, (F.TOOL_CALLS, MEDIUM), id="null over end, calls"),
    pytest.param(None, "length", None, (F.MAX_TOKENS, MEDIUM), id="null over length"),
    pytest.param(None, "refusal", EMPTY, (F.CONTENT_FILTERED, MEDIUM), id="null over refusal"),
    pytest.param(None, "tool_use", None, (F.UNKNOWN, LOW), id="null over calls that are not there"),
    pytest.param(None, "tool_use", {"tool_calls": [CUT_CALL]}, (F.UNKNOWN, LOW), id="null over half a call"),
    pytest.param(None, "brand_new", None, (F.UNKNOWN, LOW), id="null over a new word"),
    pytest.param(None, None, None, (F.UNKNOWN, LOW), id="null over null"),
    pytest.param("", "stop", None, (F.END_TURN, MEDIUM), id="empty over end"),
    pytest.param("end_turn", None, None, (F.UNKNOWN, LOW), id="undocumented alone"),
    pytest.param("end_turn", "end_turn", None, (F.END_TURN, MEDIUM), id="undocumented over end"),
    pytest.param("other", "max_tokens", None, (F.MAX_TOKENS, MEDIUM), id="undocumented over length"),
    pytest.param("stop", "brand_new", None, (F.END_TURN, HIGH), id="end over a new word"),
    pytest.param("stop", 7, None, (F.END_TURN, HIGH), id="a native number"),
]


@pytest.mark.parametrize(("finish", "native", "message", "expected"), NATIVE)
def test_the_native_reason(
    finish: Any, native: Any, message: dict[str, Any] | None, expected: tuple[FinishReason, Confidence]
) -> None:
    found = provider("openrouter").parse(answer(finish, native, message)).signal
    assert (found.finish_reason, found.confidence) == expected
    assert found.message
    if isinstance(native, str):
        assert found.metadata["native_finish_reason"] == native
    if expected[1] is MEDIUM and native != finish:
        assert (found.raw_field, found.raw_value) == ("choices[].native_finish_reason", native)
        assert found.metadata.get("finish_reason") == (finish or None)


@pytest.mark.parametrize(("finish", "native", "message", "expected"), NATIVE)
def test_the_native_reason_in_a_stream(
    finish: Any, native: Any, message: dict[str, Any] | None, expected: tuple[FinishReason, Confidence]
) -> None:
    delta = {"content": "Hi"} if message is None else message
    end = {"index": 0, "delta": {}, "finish_reason": finish, "native_finish_reason": native}
    body = sse([{"id": "r1", "model": "m", "choices": [{"index": 0, "delta": delta}]}, {"choices": [end]}, "[DONE]"])
    whole = provider("openrouter").parse(answer(finish, native, message)).signal
    found, _ = parse_stream("openrouter", [body])
    if whole.finish_reason is F.UNKNOWN and found.signal.finish_reason is not F.UNKNOWN:
        assert (found.signal.confidence, found.signal.raw_value) == (MEDIUM, None)  # closed properly: inferred
    else:
        assert (found.signal.finish_reason, found.signal.confidence) == expected
    torn, _ = parse_stream("openrouter", [body.removesuffix(b"data: [DONE]\n\n")])
    assert torn.signal.finish_reason is F.ERROR or torn.signal.confidence is not HIGH


@pytest.mark.parametrize(
    ("native", "arguments", "closed"),
    [("length", '{"a": ', False), ("max_output_tokens", '{"a": ', False), ("length", '{"a": 1}', True), ("stop", '{"a": ', True)],
)
def test_a_call_with_a_native_cut_is_closed_only_if_it_is_complete(native: str, arguments: str, closed: bool) -> None:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    (found,) = provider("openrouter").parse(answer("tool_calls", native, {"tool_calls": [call]})).tool_calls
    assert (found.closed, found.arguments) == (closed, arguments)


def test_malformed_calls_are_repairable() -> None:
    assert provider("openrouter").parse(answer(None, "MALFORMED_FUNCTION_CALL", EMPTY)).signal.repairable
    assert provider("openrouter").parse(answer("error", "MALFORMED_FUNCTION_CALL", EMPTY)).signal.repairable
    assert not provider("openrouter").parse(answer("error", "error", EMPTY)).signal.repairable
    assert set(NATIVE_REASONS.repairable) <= set(NATIVE_REASONS.reasons)


def test_a_refusal_says_why() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "Flagged.", "more": None}
    body = answer("content_filter", "refusal", {"content": None, "refusal": "Declined."})
    body["choices"][0]["stop_details"] = details
    end = {"index": 0, "delta": {}, "finish_reason": "content_filter", "native_finish_reason": "refusal", "stop_details": details}
    streamed, _ = parse_stream(
        "openrouter", [sse([{"choices": [{"index": 0, "delta": {"refusal": "Declined."}}]}, {"choices": [end]}, "[DONE]"])]
    )
    for found in (provider("openrouter").parse(body), streamed):
        assert (found.signal.finish_reason, found.signal.confidence) == (F.CONTENT_FILTERED, HIGH)
        kept = {key: value for key, value in details.items() if value}
        assert found.signal.metadata == {"native_finish_reason": "refusal", "stop_details": kept}
        assert found.refusal == "Declined."


@pytest.mark.parametrize("where", ["body", "choice"])
@pytest.mark.parametrize("finish", ["error", "tool_calls", None])
def test_errors_inside_a_200(where: str, finish: str | None) -> None:
    body = answer(finish, None)
    (body if where == "body" else body["choices"][0])["error"] = {"code": 502, "message": "Provider returned error"}
    found = provider("openrouter").parse(body).signal
    assert (found.finish_reason, found.raw_field, found.raw_value) == (F.ERROR, "error.code", 502)
    assert found.confidence is (MEDIUM if finish == "tool_calls" else HIGH)


# Cost ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        pytest.param({"cost": 0.00014}, "0.00014", id="credits"),
        pytest.param({"cost": 0, "is_byok": False, "cost_details": {"upstream_inference_cost": None}}, "0", id="free"),
        pytest.param(
            {"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.5}}, "0.5", id="upstream is included"
        ),
        pytest.param(
            {"cost": 0.05, "is_byok": True, "cost_details": {"upstream_inference_cost": 1}}, "1.05", id="own key: the sum"
        ),
        pytest.param(
            {"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.000296}}, "0.000296", id="own key, no fee"
        ),
        pytest.param(
            {"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, None, id="own key, half unknown"
        ),
        pytest.param({"cost": 0, "is_byok": True}, None, id="own key, no details"),
        pytest.param({"cost": -1}, None, id="nonsense"),
        pytest.param({}, None, id="none"),
    ],
)
def test_the_price_paid(usage: dict[str, Any], cost: str | None) -> None:
    found = provider("openrouter").parse(chat(usage={"prompt_tokens": 1, "completion_tokens": 1, **usage})).cost_usd
    assert found == (None if cost is None else Decimal(cost))


def test_cache_reads_and_writes() -> None:
    details = {"cached_tokens": 7, "cache_write_tokens": 2}
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11, "prompt_tokens_details": details}
    found = provider("openrouter").parse(chat(usage=usage)).usage
    assert (found.input_tokens, found.cache_read_tokens, found.cache_write_tokens) == (10, 7, 2)


# Requests and returned turns -------------------------------------------------------------------------------------------------


def test_the_body_of_a_request() -> None:
    model = lab.Provider("openrouter", model="x-ai/grok-4.3", api_key="own", headers={"X-Title": "Trip"})
    sent = model.build_request(
        ModelRequest([Message("user", "Hi")], max_output_tokens=9, options={"provider": {"only": ["xai"]}})
    )
    assert sent.url == "https://openrouter.ai/api/v1/chat/completions"
    assert json.loads(sent.body) == {
        "model": "x-ai/grok-4.3",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "provider": {"only": ["xai"]},
    }
    assert model.auth_headers() == {"X-Title": "Trip", "authorization": "Bearer own"}


def detail(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "text": text, **more}


def test_streamed_reasoning_is_sent_back_in_its_blocks() -> None:
    pieces: list[Any] = [
        [detail("I look")],
        [detail(" it up.")],
        [{"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "signature": "sig"}],
        [detail("Then", index=1)],
        [{"type": "reasoning.encrypted", "index": 1, "format": "openai-responses-v1", "data": "aa", "id": "rs_1"}],
        [{"type": "reasoning.encrypted", "index": 1, "format": "openai-responses-v1", "data": "bb", "id": "rs_2"}],
        ["odd"],
    ]
    blocks = [
        {**detail("I look it up."), "signature": "sig"},
        detail("Then", index=1),
        *(piece[0] for piece in pieces[4:]),
    ]
    chunks = [{"choices": [{"index": 0, "delta": {"content": "", "reasoning_details": piece}}]} for piece in pieces]
    call = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **CALL}]}, "finish_reason": "tool_calls"}]}
    found, _ = parse_stream("openrouter", [sse([*chunks, call, "[DONE]"])])
    assert found.native is not None
    assert found.native.content["reasoning_details"] == blocks
    message = {"content": None, "tool_calls": [CALL], "reasoning_details": blocks}
    whole = provider("openrouter").parse(answer("tool_calls", None, message)).native
    assert whole is not None
    assert whole.content == found.native.content
