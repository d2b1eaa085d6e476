"""For any input from Bedrock nothing raises, and the response satisfies the contract."""

from __future__ import annotations

import json
import random

from agentlab.model.responses import ModelResponse
from agentlab.providers.bedrock import Bedrock
from tests.tried import odd_json, tried

from .bedrock_bodies import converse, frame, lines
from .bodies import parse_stream
from .test_any_json import check_types, deep
from .test_bedrock_streams import EXCEPTIONS

PLAIN = Bedrock(model="some-model")


def stream_of(body: bytes) -> ModelResponse:
    return parse_stream("bedrock", [body])[0]


KEYS = """contentBlockIndex delta start text toolUse toolResult reasoningContent signature redactedContent citation image input name
    toolUseId type stopReason usage inputTokens outputTokens totalTokens role output message content metadata messageStop messageStart
    contentBlockDelta contentBlockStart contentBlockStop additionalModelResponseFields stop_sequence trace guardrail actionReason error
    reasoningText citationsContent citations status __type Output promptRouter invokedModelId cacheReadInputTokens"""
WORDS = ("end_turn", "tool_use", "max_tokens", "{}", "server_tool_use")
NAMES = ["messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata", "chunk", "odd"]


@tried(300)
def test_any_json_is_read_without_an_exception(chance: random.Random):
    payload = odd_json(chance, KEYS.split(), WORDS)
    check_types(PLAIN.parse(payload, requested_cap=chance.choice((None, 1, 5))))
    check_types(stream_of(json.dumps(payload).encode()))
    assert isinstance(PLAIN.error_message(payload), str)


@tried(300)
def test_any_frames_are_read_without_an_exception(chance: random.Random):
    these = [(chance.choice((*NAMES, *EXCEPTIONS)), odd_json(chance, KEYS.split(), WORDS)) for _ in range(chance.randrange(7))]
    kind = chance.choice(("event", "exception"))
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
