"""Why a whole body ended: truth tables for each wire."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.providers.wires import finish_rules

from .bodies import CALL, CUT_CALL, FUNCTION_CALL, TOOL_USE, chat, claude, google, provider

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW


def signal(name: str, payload: Any, cap: int | None = None) -> tuple[FinishReason, Confidence, Any]:
    found = provider(name).parse(payload, requested_cap=cap).signal
    assert found.provider == name
    assert found.message
    return found.finish_reason, found.confidence, found.raw_value


CHAT = [
    pytest.param(chat(), (F.END_TURN, HIGH, "stop"), id="stop"),
    pytest.param(chat("length"), (F.MAX_TOKENS, HIGH, "length"), id="length"),
    pytest.param(chat("content_filter"), (F.CONTENT_FILTERED, HIGH, "content_filter"), id="content_filter"),
    pytest.param(chat("error"), (F.ERROR, HIGH, "error"), id="error"),
    pytest.param(chat("tool_calls", {"tool_calls": [CALL]}), (F.TOOL_CALLS, HIGH, "tool_calls"), id="tool_calls"),
    pytest.param(
        chat("function_call", {"function_call": {"name": "f", "arguments": "{}"}}),
        (F.TOOL_CALLS, HIGH, "function_call"),
        id="function_call",
    ),
    pytest.param(chat("stop", {"tool_calls": [CALL]}), (F.TOOL_CALLS, MEDIUM, "stop"), id="calls under stop"),
    pytest.param(chat("tool_calls"), (F.TOOL_CALLS, LOW, "tool_calls"), id="tool_calls without calls"),
    pytest.param(
        chat("tool_calls", {"tool_calls": [CUT_CALL]}), (F.TOOL_CALLS, LOW, "tool_calls"), id="tool_calls, arguments cut"
    ),
    pytest.param(chat("length", {"tool_calls": [CUT_CALL]}), (F.MAX_TOKENS, HIGH, "length"), id="length, arguments cut"),
    pytest.param(chat("stop", {"content": None, "refusal": "No."}), (F.CONTENT_FILTERED, HIGH, "stop"), id="refusal under stop"),
    pytest.param(chat("length", {"content": None, "refusal": "No."}), (F.MAX_TOKENS, HIGH, "length"), id="refusal, cut"),
    pytest.param(chat("stop", {"content": "Hi", "refusal": ""}), (F.END_TURN, HIGH, "stop"), id="an empty refusal is none"),
    pytest.param(chat(None), (F.UNKNOWN, LOW, None), id="null"),
    pytest.param(chat(""), (F.UNKNOWN, LOW, ""), id="empty"),
    pytest.param(chat("eos"), (F.UNKNOWN, LOW, "eos"), id="eos"),
    pytest.param(chat("STOP"), (F.UNKNOWN, LOW, "STOP"), id="the case of a reason matters"),
    pytest.param(chat(7), (F.UNKNOWN, LOW, 7), id="a number"),
    pytest.param(chat(["stop"]), (F.UNKNOWN, LOW, '["stop"]'), id="a list"),
    pytest.param(chat(True), (F.UNKNOWN, LOW, "true"), id="true"),
    pytest.param({"error": {"message": "x", "type": "server_error"}}, (F.ERROR, HIGH, "server_error"), id="error in a 200"),
    pytest.param({"error": {"message": "x", "code": 502}}, (F.ERROR, HIGH, 502), id="error with a code"),
    pytest.param({"error": "words only"}, (F.ERROR, HIGH, "words only"), id="error as text"),
    pytest.param({"object": "error", "message": "x", "code": 4}, (F.ERROR, HIGH, 4), id="an error object"),
    pytest.param([{"error": {"message": "x", "code": 400}}], (F.ERROR, HIGH, 400), id="an error in a list"),
    pytest.param(chat(error={"code": 502}), (F.ERROR, MEDIUM, 502), id="error beside an answer"),
    pytest.param(chat(error=None), (F.END_TURN, HIGH, "stop"), id="error null"),
    pytest.param(chat(error={}), (F.END_TURN, HIGH, "stop"), id="error empty"),
    pytest.param(
        {"choices": [{"error": {"code": 502}, "finish_reason": "tool_calls", "message": {"tool_calls": [CUT_CALL]}}]},
        (F.ERROR, MEDIUM, 502),
        id="error in a choice that says tool_calls",
    ),
    pytest.param({"choices": []}, (F.UNKNOWN, LOW, None), id="no choices"),
    pytest.param(
        {"choices": [{"index": 1, "finish_reason": "length"}]}, (F.MAX_TOKENS, HIGH, "length"), id="only another choice"
    ),
    pytest.param(
        {
            "choices": [
                {"index": 1, "finish_reason": "length"},
                {"index": 0, "finish_reason": "stop", "message": {"content": "a"}},
            ]
        },
        (F.END_TURN, HIGH, "stop"),
        id="choices out of order",
    ),
]

ANTHROPIC = [
    pytest.param(claude(), (F.END_TURN, HIGH, "end_turn"), id="end_turn"),
    pytest.param(claude("stop_sequence", stop_sequence="###"), (F.STOP_SEQUENCE, HIGH, "stop_sequence"), id="stop_sequence"),
    pytest.param(claude("tool_use", [TOOL_USE]), (F.TOOL_CALLS, HIGH, "tool_use"), id="tool_use"),
    pytest.param(claude("max_tokens"), (F.MAX_TOKENS, HIGH, "max_tokens"), id="max_tokens"),
    pytest.param(
        claude("model_context_window_exceeded"),
        (F.CONTEXT_WINDOW_EXCEEDED, HIGH, "model_context_window_exceeded"),
        id="context window",
    ),
    pytest.param(claude("refusal", []), (F.CONTENT_FILTERED, HIGH, "refusal"), id="refusal"),
    pytest.param(claude("pause_turn"), (F.PAUSED, HIGH, "pause_turn"), id="pause_turn"),
    pytest.param(claude("end_turn", [TOOL_USE]), (F.TOOL_CALLS, MEDIUM, "end_turn"), id="calls under end_turn"),
    pytest.param(claude("tool_use"), (F.TOOL_CALLS, LOW, "tool_use"), id="tool_use without calls"),
    pytest.param(
        claude("end_turn", [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]),
        (F.END_TURN, HIGH, "end_turn"),
        id="the vendor's own tools are no calls",
    ),
    pytest.param(
        claude(
            "end_turn",
            [
                {"type": "server_tool_use", "id": "s", "name": "code_execution", "input": {}},
                {**TOOL_USE, "caller": {"type": "code_execution", "tool_id": "s"}},
                {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {}},
                {"type": "text", "text": "Done"},
            ],
        ),
        (F.END_TURN, HIGH, "end_turn"),
        id="calls of code that has finished are complete",
    ),
    pytest.param(
        claude("tool_use", [{**TOOL_USE, "caller": {"type": "code_execution", "tool_id": "s"}}]),
        (F.TOOL_CALLS, HIGH, "tool_use"),
        id="calls of code that runs are not",
    ),
    pytest.param(claude(None), (F.UNKNOWN, LOW, None), id="null"),
    pytest.param(claude("nap"), (F.UNKNOWN, LOW, "nap"), id="a new word"),
    pytest.param(
        {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
        (F.ERROR, HIGH, "overloaded_error"),
        id="error in a 200",
    ),
]

GEMINI = [
    pytest.param(google(), (F.END_TURN, HIGH, "STOP"), id="STOP"),
    pytest.param(google("STOP", [FUNCTION_CALL]), (F.TOOL_CALLS, HIGH, "STOP"), id="STOP with calls"),
    pytest.param(google("MAX_TOKENS"), (F.MAX_TOKENS, HIGH, "MAX_TOKENS"), id="MAX_TOKENS"),
    *[
        pytest.param(google(word), (F.CONTENT_FILTERED, HIGH, word), id=word)
        for word in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE")
    ],
    pytest.param(google("MALFORMED_FUNCTION_CALL", []), (F.ERROR, HIGH, "MALFORMED_FUNCTION_CALL"), id="MALFORMED_FUNCTION_CALL"),
    pytest.param(google("UNEXPECTED_TOOL_CALL", []), (F.ERROR, HIGH, "UNEXPECTED_TOOL_CALL"), id="UNEXPECTED_TOOL_CALL"),
    pytest.param(google("OTHER"), (F.UNKNOWN, LOW, "OTHER"), id="OTHER"),
    pytest.param(google("FINISH_REASON_UNSPECIFIED"), (F.UNKNOWN, LOW, "FINISH_REASON_UNSPECIFIED"), id="UNSPECIFIED"),
    pytest.param(google(1), (F.END_TURN, HIGH, 1), id="1"),
    pytest.param(google(1, [FUNCTION_CALL]), (F.TOOL_CALLS, HIGH, 1), id="1 with calls"),
    pytest.param(google(2), (F.MAX_TOKENS, HIGH, 2), id="2"),
    pytest.param(google(3), (F.CONTENT_FILTERED, HIGH, 3), id="3"),
    pytest.param(google(9), (F.UNKNOWN, LOW, 9), id="9 differs between the vendor's services"),
    pytest.param(google(True), (F.UNKNOWN, LOW, "true"), id="true is not 1"),
    pytest.param(google(1.0), (F.UNKNOWN, LOW, "1.0"), id="1.0 is not 1"),
    pytest.param(google(None), (F.UNKNOWN, LOW, None), id="missing"),
    pytest.param(google("stop"), (F.UNKNOWN, LOW, "stop"), id="another case"),
    pytest.param({"promptFeedback": {"blockReason": "SAFETY"}}, (F.CONTENT_FILTERED, HIGH, "SAFETY"), id="blocked"),
    pytest.param({"promptFeedback": {"blockReason": "MODEL_ARMOR"}}, (F.CONTENT_FILTERED, HIGH, "MODEL_ARMOR"), id="MODEL_ARMOR"),
    pytest.param({"promptFeedback": {"blockReason": 1}}, (F.CONTENT_FILTERED, HIGH, 1), id="blocked, a number"),
    pytest.param({"promptFeedback": {"blockReason": "NEW"}}, (F.CONTENT_FILTERED, MEDIUM, "NEW"), id="blocked, a new word"),
    pytest.param(
        google(None, promptFeedback={"blockReason": "SAFETY"}), (F.CONTENT_FILTERED, MEDIUM, "SAFETY"), id="blocked halfway"
    ),
    pytest.param(
        google(promptFeedback={"blockReason": "SAFETY"}), (F.END_TURN, HIGH, "STOP"), id="a finish reason outweighs feedback"
    ),
    pytest.param({"promptFeedback": {"safetyRatings": []}}, (F.UNKNOWN, LOW, None), id="feedback without a block"),
    pytest.param({"candidates": []}, (F.UNKNOWN, LOW, None), id="no candidates"),
    pytest.param({"error": {"code": 503, "status": "UNAVAILABLE"}}, (F.ERROR, HIGH, "UNAVAILABLE"), id="error in a 200"),
    pytest.param([{"error": {"code": 400}}], (F.ERROR, HIGH, 400), id="error in a list"),
]


@pytest.mark.parametrize(("payload", "expected"), CHAT)
def test_chat_signals(payload: Any, expected: tuple[FinishReason, Confidence, Any]):
    for name in ("openai", "openrouter", "xai", "azure", "compatible"):
        assert signal(name, payload) == expected, name


@pytest.mark.parametrize(("payload", "expected"), ANTHROPIC)
def test_anthropic_signals(payload: Any, expected: tuple[FinishReason, Confidence, Any]):
    assert signal("anthropic", payload) == expected


@pytest.mark.parametrize(("payload", "expected"), GEMINI)
def test_gemini_signals(payload: Any, expected: tuple[FinishReason, Confidence, Any]):
    assert signal("gemini", payload) == expected


CHAT_USAGE = {"usage": {"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}}


@pytest.mark.parametrize(
    ("name", "payload", "cap", "expected"),
    [
        pytest.param("openai", chat(**CHAT_USAGE), 21, (F.END_TURN, HIGH), id="chat, below"),
        pytest.param("openai", chat(**CHAT_USAGE), 20, (F.END_TURN, MEDIUM), id="chat, at the cap"),
        pytest.param("openai", chat(**CHAT_USAGE), None, (F.END_TURN, HIGH), id="chat, no cap"),
        pytest.param("openai", chat("length", **CHAT_USAGE), 20, (F.MAX_TOKENS, HIGH), id="chat, length at the cap"),
        pytest.param(
            "openai", chat("tool_calls", {"tool_calls": [CALL]}, **CHAT_USAGE), 20, (F.TOOL_CALLS, MEDIUM), id="calls at the cap"
        ),
        pytest.param(
            "anthropic", claude(usage={"input_tokens": 1, "output_tokens": 20}), 20, (F.END_TURN, MEDIUM), id="claude, at the cap"
        ),
        pytest.param(
            "anthropic", claude(usage={"input_tokens": 1, "output_tokens": 8192}), None, (F.END_TURN, MEDIUM), id="its default"
        ),
        pytest.param(
            "anthropic", claude(usage={"input_tokens": 1, "output_tokens": 8191}), None, (F.END_TURN, HIGH), id="below it"
        ),
        pytest.param(
            "gemini",
            google(usageMetadata={"candidatesTokenCount": 8, "thoughtsTokenCount": 12}),
            20,
            (F.END_TURN, MEDIUM),
            id="gemini",
        ),
    ],
)
def test_an_end_at_the_cap_is_less_certain(name: str, payload: Any, cap: int | None, expected: tuple[FinishReason, Confidence]):
    assert signal(name, payload, cap)[:2] == expected


# Unknown values are logged once ---------------------------------------------------------------------------------------------


def test_an_unknown_value_is_logged_once(caplog: pytest.LogCaptureFixture):
    finish_rules.log_unknown.cache_clear()
    with caplog.at_level(logging.WARNING, logger="agentlab.providers"):
        for _ in range(3):
            provider("openai").parse(chat("brand_new"))
        provider("compatible").parse(chat("brand_new"))
        provider("openai").parse(chat("newer"))
    assert [record.getMessage() for record in caplog.records] == [
        "openai (some-model) ended a response with 'brand_new', which is not a documented finish reason",
        "compatible (some-model) ended a response with 'brand_new', which is not a documented finish reason",
        "openai (some-model) ended a response with 'newer', which is not a documented finish reason",
    ]


def test_the_memory_of_unknown_values_is_bounded():
    finish_rules.log_unknown.cache_clear()
    for number in range(3_000):
        provider("openai").parse(chat(f"value {number} " + "x" * 10_000))
    assert finish_rules.log_unknown.cache_info().currsize <= 1_000
    assert len(str(provider("openai").parse(chat("x" * 10_000)).signal.raw_value)) <= 200


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"error": {"message": "Wrong key"}}, "Wrong key"),
        ({"error": "Wrong key"}, "Wrong key"),
        ({"type": "error", "error": {"type": "x", "message": "Wrong key"}}, "Wrong key"),
        ([{"error": {"message": "Wrong key"}}], "Wrong key"),
        ({"message": "Wrong key"}, "Wrong key"),
        ({"detail": "Wrong key"}, "Wrong key"),
        ({"object": "error", "message": "Wrong key"}, "Wrong key"),
        ({"error": {}}, ""),
        ({"error": [None]}, ""),
        ([], ""),
        (None, ""),
        ("text", ""),
        (7, ""),
    ],
)
@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
def test_the_vendors_own_finish_reasons(name: str, payload: Any, words: str):
    assert provider(name).error_message(payload) == words
