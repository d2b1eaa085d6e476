"""API versions in provider names."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.model.messages import Message, ModelRequest
from agentlab.providers.registry import resolve

REQUEST = ModelRequest([Message("user", "Hi")])
RARE = Path(__file__).parents[2] / "fixtures" / "rare"
GOOGLE = "https://generativelanguage.googleapis.com"


@pytest.mark.parametrize(
    ("spec", "version", "address"),
    [
        ("gemini:m", "v1beta", f"{GOOGLE}/v1beta/models/m:generateContent"),
        ("gemini@v1:m", "v1", f"{GOOGLE}/v1/models/m:generateContent"),
        ("gemini@v1alpha:m", "v1alpha", f"{GOOGLE}/v1alpha/models/m:generateContent"),
        ("gemini@v1p1beta1:m", "v1p1beta1", f"{GOOGLE}/v1p1beta1/models/m:generateContent"),
        ("openai:m", "v1", "https://api.openai.com/v1/chat/completions"),
        ("openai@v1:m", "v1", "https://api.openai.com/v1/chat/completions"),
        ("openai@v2:m", "v2", "https://api.openai.com/v2/chat/completions"),
        ("openrouter@v2:a/b", "v2", "https://openrouter.ai/api/v2/chat/completions"),
        ("xai@v2:m", "v2", "https://api.x.ai/v2/chat/completions"),
        ("anthropic:m", "2023-06-01", "https://api.anthropic.com/v1/messages"),
        ("anthropic@2023-01-01:m", "2023-01-01", "https://api.anthropic.com/v1/messages"),
        ("anthropic@2026-10-21:m", "2026-10-21", "https://api.anthropic.com/v1/messages"),
    ],
)
def test_a_version_in_the_name(spec: str, version: str, address: str) -> None:
    found = resolve(spec)
    sent = found.build_request(REQUEST)
    assert sent.url == address
    assert f"api_version={version!r}" in repr(found)
    assert sent.headers.get("anthropic-version") == (version if spec.startswith("anthropic") else None)
    assert found.name == spec.partition(":")[0].partition("@")[0]
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("name", "base_url", "address", "version"),
    [
        ("gemini", "http://h/proxy", "http://h/proxy/models/m:generateContent", None),
        ("gemini", "http://h/proxy/v1/", "http://h/proxy/v1/models/m:generateContent", "v1"),
        ("gemini@v1", "http://h/proxy", "http://h/proxy/v1/models/m:generateContent", "v1"),
        ("gemini@v1", "http://h/v1beta", "http://h/v1/models/m:generateContent", "v1"),
        ("openai", "http://h", "http://h/chat/completions", None),
        ("openai@v1", "http://h", "http://h/v1/chat/completions", "v1"),
    ],
)
def test_a_version_at_another_address(name: str, base_url: str, address: str, version: str | None) -> None:
    found = lab.Provider(name, model="m", base_url=base_url)
    assert found.build_request(REQUEST).url == address
    assert f"api_version={version!r}" in repr(found)


KEYLIKE = "sk-" + "proj-" + "a1b2c3d4" * 4


NO_VERSIONS = ["1", "v1/beta", "v1 beta", "v", "latest", "v1?key=x", "../v1", "Ⅴ1", "v٣", KEYLIKE]


@pytest.mark.parametrize("name", ["gemini", "openai", "openrouter", "xai", "anthropic"])
def test_an_invalid_version_is_reported(name: str) -> None:
    for version in NO_VERSIONS:
        for named, given in ((f"{name}@{version}", {}), (name, {"api_version": version})):
            with pytest.raises(ConfigurationError, match="is not an API version of") as caught:
                lab.Provider(named, model="m", **given)
            assert KEYLIKE not in str(caught.value)
            assert f"{name}@" in str(caught.value)


@pytest.mark.parametrize("version", ["v1\n", 1, ("v1",)])
def test_a_version_is_one_line_of_text(version: object) -> None:
    with pytest.raises(ConfigurationError, match="is not an API version of gemini"):
        lab.Provider("gemini", model="m", api_version=version)


@pytest.mark.parametrize("version", ["v1", "2023-6-1", "2023-06-01/x", "20230601", ""])
def test_anthropics_versions_are_dates(version: str) -> None:
    with pytest.raises(ConfigurationError, match="anthropic@2023-06-01:model"):
        lab.Provider("anthropic", model="m", api_version=version)


@pytest.mark.parametrize("version", ["v1 x", "a/b", "x?y=z", "ä"])
def test_azures_versions_are_plain(version: str) -> None:
    with pytest.raises(ConfigurationError, match="api_version="):
        lab.Provider("azure", model="m", base_url="https://h", api_version=version)


@pytest.mark.parametrize("option", [{"temperature": 0.2}, {"temperature": 1.0}, {"top_p": 0.9}, {"top_k": 5}], ids=str)
def test_sampling_parameters_are_refused_before_the_request_is_sent(option: dict[str, float]) -> None:
    (name, value), sent = next(iter(option.items())), replace(REQUEST, options=option)
    with pytest.raises(ConfigurationError) as caught:
        resolve("anthropic@2026-10-21:claude-sonnet-4-6").build_request(sent)
    text = f"options['{name}']={value}: Anthropic's API version 2026-10-21 refuses temperature, top_k, top_p. Leave it out, or write "
    assert str(caught.value) == text + "anthropic@2023-06-01:claude-sonnet-4-6."
    assert json.loads(resolve("anthropic:claude-sonnet-4-6").build_request(sent).body)[name] == value
    assert json.loads(resolve("anthropic@2023-01-01:claude-sonnet-4-6").build_request(sent).body)[name] == value


def test_a_run_with_a_refused_parameter_sends_no_request() -> None:
    agent = lab.Agent("anthropic@2026-10-21:claude-sonnet-4-6", options={"temperature": 0.2})
    with lab.replay(RARE / "anthropic-2026-10-21.yaml"):
        run = agent.run("Is the harbour open?")
    with pytest.raises(ConfigurationError, match="refuses temperature"):
        asyncio.run(run.step())


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_with_the_version_of_2026(stream: bool) -> None:
    agent = lab.Agent("anthropic@2026-10-21:claude-sonnet-4-6", stream=stream)
    with lab.replay(RARE / f"anthropic-2026-10-21{'-stream' * stream}.yaml"):
        result = agent.run("Is the harbour open?").start().wait()
    assert result is not None
    assert (result.text, result.stop_reason) == ("It is open until six.", lab.StopReason.COMPLETED)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (13, 8)


@pytest.mark.parametrize(
    ("version", "key"),
    [("2023-06-01", {"x-api-key": "k"}), ("2023-01-01", {"x-api-key": "k"}), ("2026-10-21", {"authorization": "Bearer k"})],
)
def test_the_key_is_sent_where_the_version_expects_it(version: str, key: dict[str, str]) -> None:
    found = lab.Provider("anthropic", model="m", api_version=version, api_key="k", headers={"anthropic-beta": "b"})
    assert found.auth_headers() == {"anthropic-beta": "b", **key}


def test_compatible_has_no_versions() -> None:
    with pytest.raises(ConfigurationError, match=r"compatible has no API versions\. Write compatible:m"):
        lab.Provider("compatible@v1", model="m", base_url="http://h/v1")


def test_a_recorded_response_may_be_read_by_a_version() -> None:
    found = lab.detect("gemini@v1", {"candidates": [{"finishReason": "STOP", "content": {"parts": [{"text": "Hi"}]}}]})
    assert (found.provider, found.finish_reason) == ("gemini", lab.FinishReason.END_TURN)
