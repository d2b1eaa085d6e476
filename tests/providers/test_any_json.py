"""For any input nothing raises, and the response satisfies the contract."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from agentlab.model.finish_reasons import FinishReason
from agentlab.model.responses import ModelResponse
from tests.tried import odd_json, tried

from .bodies import WIRES, Answer, Call, cut, parse_stream, provider, sse, whole

F = FinishReason


@pytest.mark.parametrize("name", WIRES)
@tried(60)
def test_any_bytes_are_read_without_an_exception(name: str, chance: random.Random):
    noise = chance.randbytes(chance.choice((0, 1, 2, 20, 300)))
    places = [chance.randrange(300) for _ in range(chance.randrange(25))]
    response, _ = parse_stream(name, cut(noise, places))
    assert response.signal.finish_reason in (F.UNKNOWN, F.ERROR)


KEYS = {
    "chat": """choices delta message content tool_calls function function_call arguments name id index finish_reason usage cost model
        native_finish_reason prompt_tokens completion_tokens prompt_tokens_details error refusal reasoning_content reasoning_details
        object x_groq code type text thinking outputs role status summary data content_filter_results prompt_filter_results
        innererror content_filter_result filtered severity cost_in_usd_ticks is_byok cost_details upstream_inference_cost
        completion_tokens_details reasoning_tokens cached_tokens total_tokens""",
    "anthropic": """type message content content_block delta index usage input_tokens stop_reason error text thinking signature
        partial_json input id name stop_details stop_sequence explanation caller tool_use_id tool_id citation output_tokens_details
        cache_read_input_tokens thinking_tokens model""",
    "gemini": """candidates content parts text thought functionCall args name id finishReason index promptFeedback blockReason error
        usageMetadata promptTokenCount candidatesTokenCount thoughtsTokenCount totalTokenCount responseId modelVersion finishMessage
        thoughtSignature toolUsePromptTokenCount""",
}
WORDS = """stop tool_calls length end_turn tool_use message text_delta content_block_start content_block_delta message_start
    message_delta message_stop error STOP MAX_TOKENS input_json_delta text {} [DONE] 1"""


def odd(name: str, chance: random.Random) -> Any:
    """JSON with the wire's own names in all the wrong places."""
    return odd_json(chance, KEYS.get(name, KEYS["chat"]).split(), WORDS.split())


@pytest.mark.parametrize("name", WIRES)
@tried(300)
def test_any_json_is_read_without_an_exception(name: str, chance: random.Random):
    payload = odd(name, chance)
    response = provider(name).parse(payload, requested_cap=chance.choice((None, 1, 5)))
    check_types(response)
    chunks = [odd(name, chance) for _ in range(chance.randrange(5))]
    streamed, _ = parse_stream(name, [sse([*chunks, "[DONE]"])])
    check_types(streamed)
    check_types(parse_stream(name, [json.dumps(payload).encode()])[0])


def deep(depth: int, leaf: Any, key: str | None) -> Any:
    for _ in range(depth):
        leaf = [leaf] if key is None else {key: leaf}
    return leaf


@pytest.mark.parametrize("name", WIRES)
def test_deep_and_endless_values_raise_nothing(name: str):
    monsters = [
        deep(900, 1, None),
        10**6_000,
        float("nan"),
        float("-inf"),
        "\ud800",
        *(deep(900, 1, key) for key in ("error", "thinking")),
    ]
    for monster in monsters:
        for payload in (monster, [monster], {"error": monster}, *(_everywhere(name, monster))):
            check_types(provider(name).parse(payload))


def _everywhere(name: str, monster: Any) -> list[Any]:
    """A whole body with each of its values in turn replaced."""
    answer = Answer(reasoning=("hm",), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS)
    found = []

    def walk(place: Any) -> None:
        for key in list(place) if isinstance(place, dict) else range(len(place)):
            value, place[key] = place[key], monster
            found.append(_shallow(body))
            place[key] = value
            if isinstance(value, dict | list):
                walk(value)

    body = whole(name, answer)
    walk(body)
    return found


def _shallow(value: Any, depth: int = 8) -> Any:
    """A copy of the outer part; the rest is shared, since an endless value cannot be copied."""
    if depth and isinstance(value, dict):
        return {key: _shallow(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list):
        return [_shallow(item, depth - 1) for item in value]
    return value


def check_types(response: ModelResponse) -> None:
    """Check the contract for any input: in particular that the response can be stored and sent back."""
    for text in (response.text, response.reasoning, response.refusal or "", response.model or "", response.response_id or ""):
        assert isinstance(text, str)
        text.encode()
    signal = response.signal
    assert isinstance(signal.finish_reason, FinishReason)
    assert signal.raw_value is None or (isinstance(signal.raw_value, str | int) and not isinstance(signal.raw_value, bool))
    json.dumps(dict(signal.metadata))
    signal.message.encode()
    for call in response.tool_calls:
        assert [type(call.id), type(call.name), type(call.arguments), type(call.closed)] == [str, str, str, bool]
        (call.id + call.name + call.arguments).encode()
        assert call.id
    for count in (response.usage.input_tokens, response.usage.output_tokens, response.usage.reasoning_tokens):
        assert count is None or (type(count) is int and count >= 0)
