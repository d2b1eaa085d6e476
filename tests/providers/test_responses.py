"""The content of whole bodies beside the finish reason: usage, cost, text, calls, and the turn to send back."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Usage, UsageSource
from agentlab.providers import gemini
from agentlab.providers.compatible import GEMINI_REASONS

from .bodies import CALL, FUNCTION_CALL, TOOL_USE, Answer, Call, chat, claude, google, provider, whole

F, HIGH = FinishReason, Confidence.HIGH


def usage(name: str, reported: Any) -> Usage:
    key = "usageMetadata" if name == "gemini" else "usage"
    return provider(name).parse({key: reported}).usage


def known(*values: int | None) -> Usage:
    return Usage(*values, source=UsageSource.REPORTED)


@pytest.mark.parametrize(
    ("name", "reported", "expected"),
    [
        pytest.param("openai", {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}, known(3, 2), id="chat"),
        pytest.param(
            "openai",
            {
                "prompt_tokens": 30,
                "completion_tokens": 20,
                "total_tokens": 50,
                "prompt_tokens_details": {"cached_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 15},
            },
            known(30, 20, 10, None, 15),
            id="chat: cache and reasoning are parts",
        ),
        pytest.param(
            "compatible",
            {
                "prompt_tokens": 30,
                "completion_tokens": 20,
                "total_tokens": 65,
                "completion_tokens_details": {"reasoning_tokens": 15},
            },
            known(30, 35, None, None, 15),
            id="chat: reasoning on top, as the total shows",
        ),
        pytest.param(
            "compatible",
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5},
            known(9, 1, 4),
            id="chat: another name for the cache",
        ),
        pytest.param("openai", {"prompt_tokens": 3}, known(3, None), id="chat: half of it"),
        pytest.param("openai", {"prompt_tokens": 3.0, "completion_tokens": 2.5}, known(3, None), id="chat: fractions are none"),
        pytest.param("openai", {"prompt_tokens": -1, "completion_tokens": True}, Usage(), id="chat: nonsense"),
        pytest.param("openai", {"prompt_tokens": 10**30, "completion_tokens": "7"}, Usage(), id="chat: absurd"),
        pytest.param(
            "openai", {"prompt_tokens": 1, "prompt_tokens_details": [], "completion_tokens_details": 3}, known(1, None), id="odd"
        ),
        pytest.param("openai", None, Usage(), id="chat: missing"),
        pytest.param("openai", [], Usage(), id="chat: a list"),
        pytest.param("openai", {}, Usage(), id="chat: empty"),
        pytest.param("anthropic", {"input_tokens": 3, "output_tokens": 2}, known(3, 2), id="claude"),
        pytest.param(
            "anthropic",
            {"input_tokens": 3, "output_tokens": 9, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20},
            known(123, 9, 100, 20),
            id="claude: cache comes on top of input",
        ),
        pytest.param(
            "anthropic",
            {"input_tokens": 3, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
            known(3, 9, None, None, 4),
            id="claude: thinking is part of output",
        ),
        pytest.param(
            "anthropic", {"output_tokens": 9, "cache_read_input_tokens": 5}, known(None, 9, 5), id="claude: input unknown"
        ),
        pytest.param(
            "gemini", {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}, known(3, 2), id="gemini"
        ),
        pytest.param(
            "gemini",
            {
                "promptTokenCount": 25,
                "candidatesTokenCount": 8,
                "thoughtsTokenCount": 367,
                "totalTokenCount": 400,
                "cachedContentTokenCount": 5,
            },
            known(25, 375, 5, None, 367),
            id="gemini: thoughts come on top",
        ),
        pytest.param(
            "gemini",
            {"promptTokenCount": 25, "toolUsePromptTokenCount": 10, "candidatesTokenCount": 8},
            known(35, 8),
            id="gemini: what tools fed back is input",
        ),
        pytest.param("gemini", {"promptTokenCount": 50, "totalTokenCount": 50}, known(50, 0), id="gemini: a zero is left out"),
        pytest.param(
            "gemini", {"promptTokenCount": 50, "totalTokenCount": 60}, known(50, None), id="gemini: unknown is not zero"
        ),
        pytest.param("gemini", {"promptTokenCount": 50}, known(50, None), id="gemini: no total"),
        pytest.param(
            "gemini", {"promptTokenCount": 5, "thoughtsTokenCount": 7}, known(5, 7, None, None, 7), id="gemini: thoughts only"
        ),
        pytest.param("gemini", {"trafficType": "ON_DEMAND"}, Usage(), id="gemini: nothing in it"),
        pytest.param("gemini", {}, Usage(), id="gemini: empty"),
    ],
)
def test_usage_of_whole_bodies(name: str, reported: Any, expected: Usage):
    found = usage(name, reported)
    if name in ("anthropic", "gemini") and expected != Usage():  # these wires count their searches, so a missing count means none
        expected = replace(expected, web_searches=0)
    assert found == expected
    if None not in (found.input_tokens, found.output_tokens):
        assert found.total_tokens == found.input_tokens + found.output_tokens


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(chat(usage={"prompt_tokens": 1, "completion_tokens": 2}), id="at the top"),
        pytest.param(chat(x_groq={"usage": {"prompt_tokens": 1, "completion_tokens": 2}}), id="under a vendor's key"),
        pytest.param({"choices": [{"usage": {"prompt_tokens": 1, "completion_tokens": 2}}]}, id="in the choice"),
    ],
)
def test_places_of_usage(payload: Any):
    assert provider("compatible").parse(payload).usage == known(1, 2)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("0.0001", Decimal("0.0001")),
        ("1e-7", Decimal("1E-7")),
        ("0.1234567890123", Decimal("0.1234567890123")),
        ("0", Decimal(0)),
        ('"0.25"', Decimal("0.25")),
        ("-1", None),
        ("NaN", None),
        ("true", None),
        ("null", None),
        ('"much"', None),
        ("[1]", None),
    ],
)
def test_a_reported_cost_keeps_its_digits(text: str, cost: Decimal | None):
    payload = {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "cost": json.loads(text)}}
    found = provider("compatible").parse(payload).cost_usd
    assert found == cost
    assert str(found) == str(cost)


# Content of a response -----------------------------------------------------------------------------------------------------

FULL = Answer(
    text=("Hello ", "wörld"),
    reasoning=("think ", "hard"),
    calls=(Call("f", {"a": 1}), Call("g", {})),
    finish=F.TOOL_CALLS,
    thinking=2,
    cached=4,
)


@pytest.mark.parametrize("name", ["openai", "openrouter", "xai", "azure", "compatible", "anthropic", "gemini"])
def test_a_whole_response(name: str):
    payload = whole(name, FULL)
    found = provider(name).parse(payload)
    assert found.text == "Hello wörld"
    assert found.reasoning == "think hard"
    assert [(call.name, json.loads(call.arguments), call.closed) for call in found.tool_calls] == [
        ("f", {"a": 1}, True),
        ("g", {}, True),
    ]
    assert len({call.id for call in found.tool_calls}) == 2
    assert (found.usage.input_tokens, found.usage.output_tokens, found.usage.reasoning_tokens) == (14, 5, 2)
    assert (found.model, found.response_id) == ("some-model-1", "r1")
    assert found.raw is payload
    assert found.signal.finish_reason is F.TOOL_CALLS
    assert found.signal.confidence is HIGH
    assert found.cost_usd is None
    assert found.native is not None
    assert found.native.wire == provider(name).wire


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        pytest.param("Hi", "Hi", "", id="text"),
        pytest.param(None, "", "", id="null"),
        pytest.param([{"type": "text", "text": "a"}, "b", {"type": "text", "text": "c"}], "abc", "", id="parts"),
        pytest.param(
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}],
            "a",
            "hm",
            id="thinking",
        ),
        pytest.param([{"type": "image_url"}, {"text": 3}, None, 4], "", "", id="parts without text"),
        pytest.param({"a": 1}, "", "", id="an object"),
        pytest.param("\ud83d\ude00", "😀", "", id="both surrogates of a character"),
        pytest.param("a\ud83d", "a�", "", id="a lone surrogate"),
    ],
)
def test_chat_content(content: Any, text: str, reasoning: str):
    found = provider("compatible").parse(chat("stop", {"content": content}))
    assert (found.text, found.reasoning) == (text, reasoning)


def calls_of(finish: Any, *entries: Any) -> tuple[ToolCall, ...]:
    return provider("compatible").parse(chat(finish, {"tool_calls": list(entries)})).tool_calls


def entry(arguments: Any, **more: Any) -> dict[str, Any]:
    return {"id": "t1", "function": {"name": "f", "arguments": arguments}, **more}


@pytest.mark.parametrize(
    ("finish", "arguments", "expected"),
    [
        pytest.param("tool_calls", '{"a":1}', ("t1", '{"a":1}', True), id="text"),
        pytest.param("tool_calls", {"a": 1}, ("t1", '{"a":1}', True), id="an object"),
        pytest.param("tool_calls", "", ("t1", "{}", True), id="empty"),
        pytest.param("tool_calls", None, ("t1", "{}", True), id="null"),
        pytest.param("tool_calls", '{"a":', ("t1", '{"a":', True), id="wrong"),
        pytest.param("length", '{"a":1}', ("t1", '{"a":1}', True), id="cut after the arguments"),
        pytest.param("length", '{"a":', ("t1", '{"a":', False), id="cut in the arguments"),
        pytest.param("length", "", ("t1", "", False), id="cut before the arguments"),
        pytest.param(None, '{"a":', ("t1", '{"a":', False), id="no finish reason"),
        pytest.param("content_filter", '{"a":', ("t1", '{"a":', False), id="filtered in the arguments"),
    ],
)
def test_chat_calls(finish: Any, arguments: Any, expected: tuple[str, str, bool]):
    (call,) = calls_of(finish, entry(arguments))
    assert (call.id, call.arguments, call.closed) == expected


def test_a_call_followed_by_another_is_closed():
    assert [call.closed for call in calls_of("length", entry('{"a":1}'), entry('{"b":'))] == [True, False]


def test_missing_ids_are_made():
    first, second = calls_of("tool_calls", {"function": {"name": "f"}}, {"id": None, "function": None})
    assert (first.id, second.id) == ("call_1", "call_2")
    assert (second.name, second.arguments) == ("", "{}")


def test_legacy_function_call():
    found = provider("openai").parse(chat("function_call", {"function_call": {"name": "f", "arguments": "{}"}}))
    assert found.tool_calls == (ToolCall("call_1", "f", "{}"),)


@pytest.mark.parametrize(
    ("stop_reason", "last", "closed"),
    [
        pytest.param("tool_use", TOOL_USE, [True], id="tool_use"),
        pytest.param("max_tokens", TOOL_USE, [False], id="cut in the call, possibly complete"),
        pytest.param("model_context_window_exceeded", TOOL_USE, [False], id="window full"),
        pytest.param("max_tokens", {"type": "text", "text": "a"}, [], id="cut in text"),
    ],
)
def test_anthropic_calls_in_a_cut_response(stop_reason: str, last: dict[str, Any], closed: list[bool]):
    found = provider("anthropic").parse(claude(stop_reason, [TOOL_USE, last]))
    assert [call.closed for call in found.tool_calls] == [True, *closed]


def test_anthropic_refusal_explains_itself():
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
    found = provider("anthropic").parse(claude("refusal", [], stop_details=details))
    assert found.refusal == "Not this."
    assert found.signal.metadata["stop_details"] == details


def test_anthropic_stop_sequence_is_kept():
    assert provider("anthropic").parse(claude("stop_sequence", stop_sequence="###")).signal.metadata == {"stop_sequence": "###"}


@pytest.mark.parametrize("word", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_gemini_wrong_calls_are_repairable(word: str):
    payload = google(word, [])
    payload["candidates"][0]["finishMessage"] = "Malformed function call: f("
    found = provider("gemini").parse(payload).signal
    assert found.repairable
    assert found.message == "Malformed function call: f("
    assert not provider("gemini").parse({"error": {"code": 500}}).signal.repairable


def test_geminis_compatible_address_means_the_same_as_its_own_wire():
    filters = {FinishReason.ERROR: "function_call_filter", FinishReason.CONTENT_FILTERED: "content_filter"}
    own = {word: reason for word, reason in gemini.FINISH_REASONS.reasons.items() if isinstance(word, str) and reason in filters}
    for word, reason in own.items():
        for found in (
            provider("compatible").parse(chat(f"{filters[reason]}: {word}", {"role": "assistant"})).signal,
            lab.detect("some-gateway", chat(f"{filters[reason]}: {word}", {"role": "assistant"})),
        ):
            assert (found.finish_reason, found.repairable) == (reason, word in gemini.FINISH_REASONS.repairable), word
    assert len(own) == len(GEMINI_REASONS.reasons)


def test_a_new_fault_of_a_call_at_geminis_compatible_address_is_repairable():
    body = chat("function_call_filter: SOMETHING_NEW", {"role": "assistant"})
    found = provider("compatible").parse(body).signal
    assert (found.finish_reason, found.repairable) == (FinishReason.ERROR, True)
    assert found.raw_value == "function_call_filter: SOMETHING_NEW"
    other = provider("openai").parse(body).signal
    assert (other.finish_reason, other.repairable) == (FinishReason.UNKNOWN, False)


def test_gemini_ids():
    parts = [FUNCTION_CALL, {"functionCall": {"name": "g", "id": "own"}}, {"functionCall": {"name": "h", "args": None}}]
    with_id = provider("gemini").parse(google("STOP", parts))
    assert [call.id for call in with_id.tool_calls] == ["call_1_r1", "own", "call_3_r1"]
    assert [call.arguments for call in with_id.tool_calls] == ['{"a":1}', "{}", "{}"]
    without = google("STOP", parts)
    del without["responseId"]
    assert [call.id for call in provider("gemini").parse(without).tool_calls] == ["call_1", "own", "call_3"]


def test_native_finish_reason_is_metadata():
    payload = chat("tool_calls")
    payload["choices"][0]["native_finish_reason"] = "max_output_tokens"
    assert provider("compatible").parse(payload).signal.metadata == {"native_finish_reason": "max_output_tokens"}


def test_an_error_keeps_the_finish_reason_beside_it():
    found = provider("compatible").parse(chat("length", error={"code": 502, "message": "Provider returned error"})).signal
    assert found.metadata == {"finish_reason": "length"}
    assert "Provider returned error" in found.message


# Returned turns ------------------------------------------------------------------------------------------------------------


def native(name: str, payload: Any) -> Any:
    found: ModelResponse = provider(name).parse(payload)
    return None if found.native is None else found.native.content


def test_chat_native_omits_response_only_fields():
    message = {"role": "assistant", "content": "a", "refusal": None, "annotations": [], "audio": None, "reasoning_content": "hm"}
    assert native("openai", chat("stop", message)) == {"role": "assistant", "content": "a"}


def test_chat_native_keeps_reasoning_and_additions_with_calls():
    added = {**CALL, "index": 0, "extra_content": {"google": {"thought_signature": "x"}}}
    message = {
        "content": None,
        "reasoning_content": "hm",
        "reasoning_details": [{"a": 1}],
        "reasoning": "hm",
        "tool_calls": [added],
    }
    function = {"name": "f", "arguments": '{"a": 1}'}
    assert native("compatible", chat("tool_calls", message)) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "t1", "type": "function", "function": function, "extra_content": {"google": {"thought_signature": "x"}}}
        ],
        "reasoning_content": "hm",
        "reasoning_details": [{"a": 1}],
    }


def test_anthropic_native_omits_refused_fields():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    content = [thinking, {"type": "thinking", "thinking": "cut"}, {"type": "text", "text": ""}, {**TOOL_USE, "input": '{"a"'}]
    assert native("anthropic", claude("max_tokens", content)) == [thinking, {**TOOL_USE, "input": {"_unparsed": '{"a"'}}]
    assert native("anthropic", claude("end_turn", [])) is None


def test_gemini_native_is_unchanged():
    parts = [{"text": "hm", "thought": True}, {"text": "a", "thoughtSignature": "s"}, {**FUNCTION_CALL, "thoughtSignature": "t"}]
    assert native("gemini", google("STOP", parts)) == {"role": "model", "parts": parts}
    assert native("gemini", google("STOP", [])) is None
