"""What a filter or a guardrail found is in the signal's metadata, on every wire that reports it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import agentlab as lab
from agentlab.model.finish_reasons import FinishReason

from .bedrock_bodies import converse
from .bodies import chat, claude, google, sse
from .responses_bodies import body as response_body

F = FinishReason
HIT = {"hate": {"filtered": True, "severity": "high"}, "jailbreak": {"filtered": False, "detected": True}}
SAFE = {"hate": {"filtered": False, "severity": "safe"}}
RATINGS = [
    {"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE"},
    {"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": True},
    {"category": "HARM_CATEGORY_HATE_SPEECH", "probability": "LOW"},
]
HARMS = {"HARM_CATEGORY_DANGEROUS_CONTENT": "HIGH", "HARM_CATEGORY_HATE_SPEECH": "LOW"}
TOPIC = {"name": "Restricted topic", "type": "DENY", "action": "BLOCKED"}
NAME = {"match": "Ada Lovelace", "type": "NAME", "action": "ANONYMIZED"}
QUIET = {"type": "VIOLENCE", "confidence": "LOW", "action": "NONE"}
INPUT = {"g1": {"topicPolicy": {"topics": [TOPIC]}, "contentPolicy": {"filters": [QUIET]}}}
OUTPUT = {"g1": [{"sensitiveInformationPolicy": {"piiEntities": [NAME]}}]}
FOUND = {
    "inputAssessment": [{"policy": "topicPolicy", **TOPIC}],
    "outputAssessments": [{"policy": "sensitiveInformationPolicy", "type": "NAME", "action": "ANONYMIZED"}],
}


def filtered_chat(finish: str, results: Any) -> dict[str, Any]:
    body = chat(finish)
    body["choices"][0]["content_filter_results"] = results
    return body


@pytest.mark.parametrize("name", ["openai", "compatible", "openrouter", "azure", "unknown-gateway"])
def test_results_of_content_filters(name: str) -> None:
    found = lab.detect(name, filtered_chat("content_filter", HIT))
    assert found.finish_reason is F.CONTENT_FILTERED
    assert found.metadata["content_filter"] == {"hate": "high", "jailbreak": True}
    prompt = lab.detect(name, chat(prompt_filter_results=[{"prompt_index": 0, "content_filter_results": HIT}]))
    assert prompt.metadata["prompt_filter"] == {"hate": "high", "jailbreak": True}
    assert "content_filter" not in lab.detect(name, filtered_chat("stop", SAFE)).metadata
    chunk = {"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter", "content_filter_results": HIT}]}
    assert lab.detect(name, sse([chunk, "[DONE]"])).metadata["content_filter"] == {"hate": "high", "jailbreak": True}


def test_results_of_content_filters_on_the_responses_wire() -> None:
    filters = [
        {"blocked": True, "source_type": "prompt", "content_filter_results": {"hate": HIT["hate"]}},
        {"blocked": False, "source_type": "completion", "content_filter_results": SAFE},
        {"blocked": False, "source_type": "completion", "content_filter_results": {"jailbreak": HIT["jailbreak"]}},
    ]
    found = lab.detect("azure-responses", response_body(content_filters=filters))
    assert found.metadata == {"prompt_filter": {"hate": "high"}, "content_filter": {"jailbreak": True}}


def test_safety_ratings_of_an_answer() -> None:
    body = google("SAFETY")
    body["candidates"][0]["safetyRatings"] = RATINGS
    for payload in (body, sse([body])):
        found = lab.detect("gemini", payload)
        assert (found.finish_reason, found.metadata) == (F.CONTENT_FILTERED, {"safety_ratings": HARMS})
    body["candidates"][0]["safetyRatings"] = [{"category": 8, "probability": 1}, {"category": 10, "probability": 4}]
    assert lab.detect("gemini", body).metadata == {"safety_ratings": {"10": "HIGH"}}


def test_safety_ratings_of_a_blocked_prompt() -> None:
    found = lab.detect("gemini", {"promptFeedback": {"blockReason": "SAFETY", "safetyRatings": RATINGS}})
    assert (found.finish_reason, found.metadata) == (F.CONTENT_FILTERED, {"prompt_safety_ratings": HARMS})


def test_the_trace_of_a_guardrail() -> None:
    guardrail = {"inputAssessment": INPUT, "outputAssessments": OUTPUT, "actionReason": "Guardrail blocked."}
    found = lab.detect("bedrock", converse("guardrail_intervened", trace={"guardrail": guardrail}))
    assert found.finish_reason is F.CONTENT_FILTERED
    assert found.metadata == {"guardrail": "Guardrail blocked.", "trace": FOUND}
    assert "Ada" not in json.dumps(dict(found.metadata))
    events = [{"messageStart": {"role": "assistant"}}, {"messageStop": {"stopReason": "guardrail_intervened"}}]
    stream = sse([*events, {"metadata": {"trace": {"guardrail": guardrail}}}])
    assert lab.detect("bedrock", stream).metadata == found.metadata


def test_the_trace_of_a_guardrail_on_the_wire_of_anthropic() -> None:
    trace = {"amazon-bedrock-trace": {"guardrail": {"input": INPUT, "outputs": [OUTPUT]}}}
    found = lab.detect("anthropic", claude(**{"amazon-bedrock-guardrailAction": "INTERVENED"}, **trace))
    assert found.metadata["trace"] == {"input": FOUND["inputAssessment"], "outputs": FOUND["outputAssessments"]}


@pytest.mark.parametrize("odd", [5, "x", [], [[]], {"g": 5}, {"g": {"topicPolicy": {"topics": 5}}}, {"action": 5}])
def test_odd_reports_are_left_out(odd: Any) -> None:
    body = google("SAFETY", promptFeedback={"safetyRatings": odd})
    body["candidates"][0]["safetyRatings"] = odd
    assert lab.detect("gemini", body).metadata == {}
    assert lab.detect("bedrock", converse(trace={"guardrail": {"inputAssessment": odd}})).metadata == {}
    assert lab.detect("openai", filtered_chat("content_filter", odd)).metadata == {}
