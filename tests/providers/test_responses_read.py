"""Whole bodies on the Responses wire: why they ended, usage, cost, content, calls, and the turn to send back."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Usage, UsageSource
from tests.tried import odd_json, tried

from .bodies import Answer, Call, provider
from .responses_bodies import RESPONSES, body, function_call, message, reasoning, refusal, whole
from .test_any_json import _shallow, check_types, deep
from .test_responses_streams import EVENT_TYPES, KEYS

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW
NAME = "openai-responses"


def parse(payload: Any, cap: int | None = None, name: str = NAME) -> ModelResponse:
    response = provider(name).parse(payload, requested_cap=cap)
    check_types(response)
    return response


def cut_message(text: str = "Hi") -> dict[str, Any]:
    return message(text, status="incomplete")


def used(tokens: int, thinking: int = 0) -> dict[str, Any]:
    return {"usage": {"input_tokens": 1, "output_tokens": tokens, "output_tokens_details": {"reasoning_tokens": thinking}}}


def waits(kind: str, **more: Any) -> dict[str, Any]:
    return {"id": "x_1", "type": kind, "status": "completed", "call_id": "x1", **more}


STATUS, REASON = "status", "incomplete_details.reason"


@pytest.mark.parametrize(
    ("payload", "reason", "confidence", "field", "value"),
    [
        pytest.param(body(), F.END_TURN, HIGH, STATUS, "completed", id="completed"),
        pytest.param(body(function_call()), F.TOOL_CALLS, HIGH, STATUS, "completed", id="a call"),
        pytest.param(body(function_call('{"a"')), F.TOOL_CALLS, LOW, STATUS, "completed", id="half a call"),
        pytest.param(body(function_call(status="in_progress")), F.TOOL_CALLS, HIGH, STATUS, "completed", id="a waiting call"),
        pytest.param(
            body(function_call(), {"type": "function_call_output", "call_id": "t1", "output": "x"}, message()),
            F.END_TURN,
            HIGH,
            STATUS,
            "completed",
            id="a call that has its result",
        ),
        pytest.param(
            body(status="incomplete", reason="max_output_tokens"), F.MAX_TOKENS, HIGH, REASON, "max_output_tokens", id="cap"
        ),
        pytest.param(
            body(function_call(), status="incomplete", reason="max_output_tokens"),
            F.MAX_TOKENS,
            HIGH,
            REASON,
            "max_output_tokens",
            id="cap after a call",
        ),
        pytest.param(
            body(status="incomplete", reason="content_filter"), F.CONTENT_FILTERED, HIGH, REASON, "content_filter", id="filter"
        ),
        pytest.param(body(status="incomplete", reason="steered"), F.PAUSED, HIGH, REASON, "steered", id="steered"),
        pytest.param(body(status="incomplete", reason="max_messages"), F.UNKNOWN, LOW, REASON, "max_messages", id="unclear"),
        pytest.param(body(status="incomplete", reason="FAKE"), F.UNKNOWN, LOW, REASON, "FAKE", id="an unknown reason"),
        pytest.param(body(status="incomplete"), F.UNKNOWN, LOW, STATUS, "incomplete", id="incomplete without a reason"),
        pytest.param(
            body(status=None, reason="max_output_tokens"), F.MAX_TOKENS, HIGH, REASON, "max_output_tokens", id="reason only"
        ),
        pytest.param(body(status="failed"), F.ERROR, HIGH, STATUS, "failed", id="failed"),
        pytest.param(body(status="cancelled"), F.CANCELLED, HIGH, STATUS, "cancelled", id="cancelled"),
        pytest.param(body(status="queued"), F.UNKNOWN, LOW, STATUS, "queued", id="queued"),
        pytest.param(body(status="in_progress"), F.UNKNOWN, LOW, STATUS, "in_progress", id="in progress"),
        pytest.param(body(status="complete"), F.UNKNOWN, LOW, STATUS, "complete", id="an unknown status"),
        pytest.param(body(status=7), F.UNKNOWN, LOW, STATUS, 7, id="a number"),
        pytest.param(body(refusal()), F.CONTENT_FILTERED, HIGH, STATUS, "completed", id="a refusal"),
        pytest.param(body(error={"code": "c", "message": "No."}), F.ERROR, MEDIUM, "error.code", "c", id="an error, completed"),
        pytest.param({"error": {"type": "t", "message": "No."}}, F.ERROR, HIGH, "error.type", "t", id="an error body"),
        pytest.param({"code": "c", "error": "No."}, F.ERROR, HIGH, "error", "No.", id="an error in words"),
        pytest.param(body(reason="max_output_tokens"), F.END_TURN, LOW, STATUS, "completed", id="completed and incomplete"),
        pytest.param(body(cut_message()), F.END_TURN, LOW, STATUS, "completed", id="completed, the message is not"),
        pytest.param(
            body(cut_message(), function_call()),
            F.TOOL_CALLS,
            HIGH,
            STATUS,
            "completed",
            id="completed, a message before a call is not",
        ),
        pytest.param(body(waits("custom_tool_call", input="x")), F.TOOL_CALLS, HIGH, STATUS, "completed", id="a custom tool"),
        pytest.param(
            body(waits("computer_call", status="in_progress")), F.TOOL_CALLS, HIGH, STATUS, "completed", id="a computer"
        ),
        pytest.param(body(waits("local_shell_call")), F.TOOL_CALLS, HIGH, STATUS, "completed", id="a local shell"),
        pytest.param(body(waits("mcp_approval_request")), F.TOOL_CALLS, HIGH, STATUS, "completed", id="an approval"),
        pytest.param(body(waits("apply_patch_call")), F.TOOL_CALLS, HIGH, STATUS, "completed", id="a patch"),
        pytest.param(
            body(waits("shell_call"), waits("shell_call_output"), message()),
            F.END_TURN,
            HIGH,
            STATUS,
            "completed",
            id="the vendor's shell",
        ),
        pytest.param(
            body(waits("custom_tool_call", name="x_search"), message()),
            F.END_TURN,
            HIGH,
            STATUS,
            "completed",
            id="the vendor's search",
        ),
        pytest.param(
            body(waits("tool_search_call", execution="server")),
            F.END_TURN,
            HIGH,
            STATUS,
            "completed",
            id="the vendor's tool search",
        ),
        pytest.param(body(waits("web_search_call"), message()), F.END_TURN, HIGH, STATUS, "completed", id="a web search"),
        pytest.param(body(status=None), F.END_TURN, MEDIUM, STATUS, None, id="no status: a completed message"),
        pytest.param(body(function_call(), status=None), F.TOOL_CALLS, MEDIUM, STATUS, None, id="no status: a call"),
        pytest.param(body(function_call('{"a"'), status=None), F.UNKNOWN, LOW, STATUS, None, id="no status: half a call"),
        pytest.param(body(refusal(), status=None), F.CONTENT_FILTERED, MEDIUM, STATUS, None, id="no status: a refusal"),
        pytest.param(body(cut_message(), status=None), F.UNKNOWN, LOW, STATUS, None, id="no status: half a message"),
        pytest.param(
            body(cut_message(), status=None, max_output_tokens=5, **used(5)),
            F.MAX_TOKENS,
            MEDIUM,
            STATUS,
            None,
            id="no status: at the cap",
        ),
        pytest.param(body(message(status=None), status=None), F.UNKNOWN, LOW, STATUS, None, id="no status anywhere"),
        pytest.param(
            {"type": "response.completed", "response": body(status=None)},
            F.END_TURN,
            HIGH,
            "type",
            "response.completed",
            id="an event",
        ),
        pytest.param({}, F.UNKNOWN, LOW, STATUS, None, id="empty"),
        pytest.param(None, F.UNKNOWN, LOW, STATUS, None, id="null"),
        pytest.param([], F.UNKNOWN, LOW, STATUS, None, id="a list"),
    ],
)
def test_why_a_response_ended(payload: Any, reason: FinishReason, confidence: Confidence, field: str, value: Any):
    for name in RESPONSES:
        signal = parse(payload, name=name).signal
        assert (signal.finish_reason, signal.confidence, signal.raw_field, signal.raw_value) == (reason, confidence, field, value)
        assert signal.provider == name
        assert signal.message


@pytest.mark.parametrize(
    ("payload", "cap", "reason", "confidence"),
    [
        pytest.param(body(**used(8)), 8, F.END_TURN, MEDIUM, id="at the requested cap"),
        pytest.param(body(max_output_tokens=8, **used(8)), None, F.END_TURN, MEDIUM, id="at the reported cap"),
        pytest.param(body(max_output_tokens=9, **used(8)), 8, F.END_TURN, MEDIUM, id="the requested cap counts"),
        pytest.param(body(function_call(), **used(8)), 8, F.TOOL_CALLS, MEDIUM, id="a call at the cap"),
        pytest.param(body(**used(9)), 8, F.END_TURN, MEDIUM, id="above it"),
        pytest.param(body(**used(90, 85)), 8, F.END_TURN, HIGH, id="above it by reasoning that does not count"),
        pytest.param(body(**used(90, 82)), 8, F.END_TURN, MEDIUM, id="the counted tokens are at the cap"),
        pytest.param(body(**used(7)), 8, F.END_TURN, HIGH, id="below it"),
        pytest.param(body(**used(8)), None, F.END_TURN, HIGH, id="no cap"),
        pytest.param(body(cut_message(), **used(8)), 8, F.MAX_TOKENS, MEDIUM, id="the message is incomplete, too"),
        pytest.param(body(status="incomplete", reason="max_output_tokens", **used(8)), 8, F.MAX_TOKENS, HIGH, id="incomplete"),
    ],
)
def test_completed_at_the_cap_is_uncertain(payload: Any, cap: int | None, reason: FinishReason, confidence: Confidence):
    signal = parse(payload, cap).signal
    assert (signal.finish_reason, signal.confidence) == (reason, confidence)


def test_items_that_wait_for_the_caller_are_named():
    signal = parse(body(waits("mcp_approval_request"), waits("computer_call"))).signal
    assert signal.metadata["waiting_for"] == ["computer_call", "mcp_approval_request"]
    assert "mcp_approval_request" in signal.message
    assert signal.should_terminate is False


def test_the_status_and_the_error_are_kept():
    assert parse(body(status="incomplete", reason="content_filter")).signal.metadata == {"status": "incomplete"}
    failed = parse(body(status="failed", error={"code": "server_error", "message": "Try later."})).signal
    assert failed.metadata == {"error.code": "server_error"}
    assert failed.message == "The provider reports an error: Try later."


# Calls ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "item", "arguments", "expected", "closed"),
    [
        pytest.param("completed", "completed", '{"a": 1}', '{"a": 1}', True, id="completed"),
        pytest.param("completed", None, '{"a": 1}', '{"a": 1}', True, id="without a status"),
        pytest.param("completed", "in_progress", '{"a": 1}', '{"a": 1}', True, id="waiting"),
        pytest.param("completed", "completed", "", "{}", True, id="no arguments"),
        pytest.param("completed", "completed", None, "{}", True, id="null arguments"),
        pytest.param("completed", "completed", {"a": 1}, '{"a":1}', True, id="an object"),
        pytest.param("completed", "completed", '{"a', '{"a', True, id="wrong arguments"),
        pytest.param("completed", "incomplete", '{"a', '{"a', False, id="an incomplete item"),
        pytest.param("incomplete", "incomplete", '{"a', '{"a', False, id="cut"),
        pytest.param("incomplete", "incomplete", '{"a": 1}', '{"a": 1}', False, id="cut after the arguments"),
        pytest.param("incomplete", "completed", '{"a": 1}', '{"a": 1}', True, id="cut after the call"),
        pytest.param("incomplete", "completed", "", "", False, id="cut before the arguments"),
        pytest.param("incomplete", None, '{"a": 1}', '{"a": 1}', True, id="cut, without a status"),
        pytest.param("incomplete", "in_progress", "", "", False, id="cut at the beginning"),
        pytest.param("failed", "completed", '{"a', '{"a', False, id="failed"),
    ],
)
def test_calls_in_a_response(status: str, item: str | None, arguments: Any, expected: str, closed: bool):
    reason = "max_output_tokens" if status == "incomplete" else None
    (call,) = parse(body(function_call(arguments, status=item), status=status, reason=reason)).tool_calls
    assert call == ToolCall("t1", "f", expected, closed)


def test_calls_without_ids_are_numbered():
    bare = {"type": "function_call", "name": "f", "arguments": "{}"}
    response = parse(body(bare, {**bare, "id": "fc_9"}))
    assert [call.id for call in response.tool_calls] == ["call_1", "fc_9"]
    assert response.native is not None
    assert [item["call_id"] for item in response.native.content] == ["call_1", "fc_9"]


# Content -------------------------------------------------------------------------------------------------------------------


def test_text_reasoning_and_refusals():
    thought = {"id": "r", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "In full."}]}
    both = {**thought, "summary": [{"type": "summary_text", "text": "In full."}]}
    response = parse(body(reasoning("In short."), thought, both, message("One "), message("two.")))
    assert (response.text, response.reasoning) == ("One two.", "In short.\n\nIn full.\n\nIn full.")
    assert (response.model, response.response_id) == ("some-model-1", "resp_1")
    assert parse(body(refusal("No."))).refusal == "No."
    assert parse(body({"role": "assistant", "content": "plain"})).text == "plain"


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param({"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}, (3, 2, None, None, None), id="plain"),
        pytest.param(
            {
                "input_tokens": 30,
                "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 4},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 15},
                "total_tokens": 50,
            },
            (30, 20, 10, 4, 15),
            id="cache and reasoning are parts",
        ),
        pytest.param(
            {"input_tokens": 30, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 15}, "total_tokens": 50},
            (30, 20, None, None, 15),
            id="reasoning on top, as the total shows",
        ),
        pytest.param({"input_tokens": 3}, (3, None, None, None, None), id="half of it"),
    ],
)
def test_usage_of_a_response(reported: Any, expected: tuple[int | None, ...]):
    assert parse(body(usage=reported)).usage == Usage(*expected, source=UsageSource.REPORTED, web_searches=0, file_searches=0)


@pytest.mark.parametrize("reported", [None, [], {}, {"input_tokens": "7"}, {"input_tokens": -1, "output_tokens": True}])
def test_missing_or_invalid_usage_is_unknown(reported: Any):
    assert parse(body(usage=reported)).usage == Usage()


@pytest.mark.parametrize(
    ("reported", "cost"),
    [
        pytest.param({"cost": 3.195e-05}, "0.00003195", id="OpenRouter: dollars"),
        pytest.param({"cost_in_usd_ticks": 37756000}, "0.0037756", id="xAI: ticks of 1e-10 dollars"),
        pytest.param({"cost_in_usd_ticks": 0}, "0", id="nothing"),
        pytest.param({"cost_in_usd_ticks": "37756000"}, "0.0037756", id="xAI: a large integer as text"),
        pytest.param({"cost_in_usd_ticks": "many"}, None, id="not a number"),
        pytest.param(
            {"cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.02}},
            "0.021",
            id="OpenRouter, with a vendor's key: its fee and the vendor's price",
        ),
        pytest.param({"cost": 0.001, "is_byok": True}, None, id="OpenRouter, with a vendor's key, unknown vendor's price"),
        pytest.param(
            {"cost": 0.001, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.001}},
            "0.001",
            id="OpenRouter's own key",
        ),
        pytest.param({"cost": -1}, None, id="nonsense"),
        pytest.param({}, None, id="not reported"),
    ],
)
def test_cost_of_a_response(reported: dict[str, Any], cost: str | None):
    found = parse(body(usage={"input_tokens": 1, "output_tokens": 1, **reported})).cost_usd
    assert found == (None if cost is None else Decimal(cost))


# The turn to send back -----------------------------------------------------------------------------------------------------


def native(*output: dict[str, Any], **more: Any) -> Any:
    found = parse(body(*output, **more)).native
    return None if found is None else found.content


SEALED = reasoning(encrypted_content="sealed")


def test_items_are_sent_back_unchanged():
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"query": None}}
    output = [SEALED, search, message(phase="commentary"), function_call()]
    assert native(*output) == output


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param([{**SEALED, "status": None, "content": None}, message()], [SEALED, message()], id="null fields"),
        pytest.param(
            [reasoning(), message()], [{k: v for k, v in message().items() if k != "id"}], id="reasoning without its content"
        ),
        pytest.param(
            [reasoning(), function_call()], [{k: v for k, v in function_call().items() if k != "id"}], id="a call that it led to"
        ),
        pytest.param(
            [reasoning(content=[{"type": "reasoning_text", "text": "Hm."}]), message()],
            [reasoning(content=[{"type": "reasoning_text", "text": "Hm."}]), message()],
            id="reasoning as text",
        ),
        pytest.param([message(), SEALED], [message()], id="reasoning without a following item"),
        pytest.param([SEALED], None, id="only reasoning"),
        pytest.param([SEALED, message(content=[])], None, id="a message without content"),
        pytest.param([function_call("")], [function_call("{}")], id="no arguments"),
        pytest.param([function_call("[1]")], [function_call('{"_unparsed":"[1]"}')], id="arguments that are no object"),
        pytest.param([function_call({"a": 1})], [function_call('{"a":1}')], id="arguments that are no text"),
    ],
)
def test_content_that_no_server_accepts_is_dropped(output: list[dict[str, Any]], expected: Any):
    assert native(*output) == expected


def test_a_storing_server_finds_reasoning_by_its_id():
    assert native(reasoning(), message(), store=True) == [reasoning(), message()]


# Odd input -----------------------------------------------------------------------------------------------------------------


@tried(200)
def test_odd_bodies_raise_nothing(chance: random.Random):
    payload, cap = odd_json(chance, KEYS.split(), EVENT_TYPES), chance.choice((None, 1, 5))
    parse(payload, cap)
    parse({"status": "completed", "output": payload}, cap)
    parse({"status": "completed", "output": [payload, payload]}, cap)


def test_deep_and_endless_values_raise_nothing():
    answer = Answer(reasoning=("hm",), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS)
    for monster in (
        deep(900, 1, None),
        10**6_000,
        float("nan"),
        float("-inf"),
        "\ud800",
        *(deep(900, 1, k) for k in ("error", "content")),
    ):
        sound = whole(answer)
        stack: list[Any] = [sound]
        while stack:
            inner = stack.pop()
            for key in list(inner) if isinstance(inner, dict) else range(len(inner)):
                value, inner[key] = inner[key], monster
                parse(_shallow(sound))
                inner[key] = value
                if isinstance(value, dict | list):
                    stack.append(value)
