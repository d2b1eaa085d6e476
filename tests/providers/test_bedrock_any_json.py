"""For any input from Bedrock nothing raises, and the response satisfies the contract."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.model.responses import ModelResponse
from agentlab.providers.bedrock import Bedrock

from .bedrock_bodies import converse, frame, lines
from .bodies import parse_stream
from .test_any_json import check_types, deep, values
from .test_bedrock_streams import EXCEPTIONS

PLAIN = Bedrock(model="some-model")


def stream_of(body: bytes) -> ModelResponse:
    return parse_stream("bedrock", [body])[0]


KEYS = """contentBlockIndex delta start text toolUse toolResult reasoningContent signature redactedContent citation image input name
    toolUseId type stopReason usage inputTokens outputTokens totalTokens role output message content metadata messageStop messageStart
    contentBlockDelta contentBlockStart contentBlockStop additionalModelResponseFields stop_sequence trace guardrail actionReason error
    reasoningText citationsContent citations status __type Output promptRouter invokedModelId cacheReadInputTokens"""
NAMES = ["messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata", "chunk", "odd"]
odd = st.recursive(
    values | st.sampled_from(["end_turn", "tool_use", "max_tokens", "{}", "server_tool_use"]) | st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5),
    max_leaves=25,
)


@given(payload=odd, cap=st.none() | st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_any_json_is_read_without_an_exception(payload: Any, cap: int | None):
    check_types(PLAIN.parse(payload, requested_cap=cap))
    check_types(stream_of(json.dumps(payload).encode()))
    assert isinstance(PLAIN.error_message(payload), str)


@given(
    these=st.lists(st.tuples(st.sampled_from([*NAMES, *EXCEPTIONS]), odd), max_size=6),
    kind=st.sampled_from(["event", "exception"]),
)
@settings(max_examples=200, deadline=None)
def test_any_frames_are_read_without_an_exception(these: list[tuple[str, Any]], kind: str):
    check_types(stream_of(b"".join(frame(name, payload, kind) for name, payload in these)))
    check_types(stream_of(lines(these)))


def test_deep_and_endless_values_raise_nothing():
    for monster in (deep(900, 1, None), deep(900, 1, "error"), deep(900, 1, "message"), 10**6_000, float("nan"), "\ud800"):
        for payload in (
            monster,
            [monster],
            {"message": monster},
            {"output": monster, "usage": monster, "stopReason": monster},
            converse(monster, [{"text": monster}, {"toolUse": monster}, {"toolUse": {"input": monster, "toolUseId": monster}}]),
            converse(
                "tool_use",
                [{"reasoningContent": {"reasoningText": monster}}, monster],
                trace=monster,
                usage={"inputTokens": monster},
            ),
        ):
            check_types(PLAIN.parse(payload))
