"""Azure: addresses and versions, content filters, and finish reasons of other vendors' models."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import Message, ModelRequest

from .bodies import CALL, chat, parse_stream, provider, sse

F, HIGH, LOW = FinishReason, Confidence.HIGH, Confidence.LOW
ENDPOINT = "https://mine.openai.azure.com"
SAFE = {"hate": {"filtered": False, "severity": "safe"}, "jailbreak": {"filtered": False, "detected": False}}
HIT = {"hate": {"filtered": True, "severity": "high"}, "jailbreak": {"filtered": True, "detected": True}}


def azure(name: str = "azure", **settings: Any) -> Any:
    return lab.Provider(name, model="my deployment", **{"base_url": ENDPOINT, **settings})


@pytest.mark.parametrize(
    ("name", "base_url", "address"),
    [
        ("azure", ENDPOINT, f"{ENDPOINT}/openai/v1/chat/completions"),
        ("azure", f"{ENDPOINT}/openai/v1/", f"{ENDPOINT}/openai/v1/chat/completions"),
        ("azure@v1", ENDPOINT, f"{ENDPOINT}/openai/v1/chat/completions"),
        ("azure@preview", ENDPOINT, f"{ENDPOINT}/openai/v1/chat/completions?api-version=preview"),
        (
            "azure@2024-10-21",
            ENDPOINT,
            f"{ENDPOINT}/openai/deployments/my%20deployment/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_the_address_of_a_deployment(name: str, base_url: str, address: str) -> None:
    sent = azure(name, base_url=base_url).build_request(ModelRequest([Message("user", "Hi")], max_output_tokens=9))
    assert sent.url == address
    assert json.loads(sent.body) == {
        "model": "my deployment",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_completion_tokens": 9,
    }


@pytest.mark.parametrize("version", ["2024-10-21", "2025-04-01-preview"])
def test_the_vendors_client_uses_the_same_address(version: str) -> None:
    import openai

    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, json=chat())

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        client = openai.AzureOpenAI(azure_endpoint=ENDPOINT, api_version=version, api_key="own", http_client=http, max_retries=0)
        client.chat.completions.create(model="my deployment", messages=[{"role": "user", "content": "Hi"}])
    ours = azure(f"azure@{version}").build_request(ModelRequest([Message("user", "Hi")]))
    assert httpx2.URL(ours.url) == asked[0].url
    assert json.loads(ours.body) == json.loads(asked[0].read())
    assert asked[0].headers["api-key"] == "own"


def test_the_endpoint_and_the_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="AZURE_OPENAI_ENDPOINT"):
        lab.Provider("azure", model="m")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", ENDPOINT)
    found = lab.Provider("azure", model="m")
    assert found.base_url == ENDPOINT
    with pytest.raises(MissingKeyError, match="AZURE_OPENAI_API_KEY"):
        found.auth_headers()
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "own")
    assert found.auth_headers() == {"api-key": "own"}
    token = {"authorization": "Bearer token"}
    assert azure(headers=token).auth_headers() == token


def test_a_recording_is_read_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    assert lab.detect("azure", chat("length")).finish_reason is F.MAX_TOKENS


def filtered(finish: str, answer: Any, prompt: Any) -> dict[str, Any]:
    body = chat(finish, {"content": "Hi"}, prompt_filter_results=[{"prompt_index": 0, "content_filter_results": prompt}])
    body["choices"][0]["content_filter_results"] = answer
    return body


@pytest.mark.parametrize(
    ("body", "metadata"),
    [
        pytest.param(filtered("stop", SAFE, SAFE), {}, id="nothing fired"),
        pytest.param(
            filtered("content_filter", HIT, SAFE), {"content_filter": {"hate": "high", "jailbreak": True}}, id="on the answer"
        ),
        pytest.param(filtered("stop", {}, HIT), {"prompt_filter": {"hate": "high", "jailbreak": True}}, id="on the prompt"),
        pytest.param(filtered("stop", [], None), {}, id="odd"),
        pytest.param(filtered("stop", {"hate": 3, "error": {"code": "content_filter_error"}}, {}), {}, id="the filter was down"),
    ],
)
def test_the_filters_that_fired_are_metadata(body: dict[str, Any], metadata: dict[str, Any]) -> None:
    found = provider("azure").parse(body).signal
    assert found.metadata == metadata
    assert found.finish_reason is (F.CONTENT_FILTERED if body["choices"][0]["finish_reason"] != "stop" else F.END_TURN)


def test_a_filtered_prompt_is_reported() -> None:
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": HIT}
    body = {"error": {"message": "Filtered.", "type": None, "code": "content_filter", "status": 400, "innererror": inner}}
    for found in (provider("azure").parse(body).signal, lab.detect("azure", body, status=400)):
        assert (found.finish_reason, found.confidence) == (F.CONTENT_FILTERED, HIGH)
        assert (found.raw_field, found.raw_value) == ("error.code", "content_filter")
        assert "Filtered." in found.message
        assert found.metadata["prompt_filter"] == {"hate": "high", "jailbreak": True}


def test_a_filtered_stream() -> None:
    def chunk(delta: Any, finish: str | None, results: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None, "content_filter_results": results}
        return {"id": "r1", "model": "gpt-5.4-mini-2026-03-17", "choices": [choice]}

    first = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"content_filter_results": SAFE}]}
    events = [first, chunk({"content": "Then"}, None, SAFE), chunk({}, "content_filter", HIT), chunk({}, None, SAFE), "[DONE]"]
    found, _ = parse_stream("azure", [sse(events)])
    assert (found.signal.finish_reason, found.signal.confidence) == (F.CONTENT_FILTERED, HIGH)
    assert found.signal.metadata == {"content_filter": {"hate": "high", "jailbreak": True}}
    assert (found.model, found.response_id, found.text) == ("gpt-5.4-mini-2026-03-17", "r1", "Then")


def test_an_undocumented_finish_reason_stays_unknown_and_its_calls_are_whole() -> None:
    found = provider("azure").parse(chat("tool_call", {"content": "I look.", "tool_calls": [CALL]}))
    assert (found.signal.finish_reason, found.signal.confidence, found.signal.raw_value) == (F.UNKNOWN, LOW, "tool_call")
    assert [call.closed for call in found.tool_calls] == [True]
