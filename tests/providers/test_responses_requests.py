"""Requests on the Responses wire: their body, address and key."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.model.conversation import Conversation
from agentlab.model.messages import Message, ModelRequest, NativeContent, ToolCall, ToolResult, ToolSpec
from agentlab.providers.registry import Provider, names, resolve

from .bodies import provider
from .responses_bodies import RESPONSES

SCHEMA = '{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}'
SEARCH = ToolSpec("search", "Look things up", json.loads(SCHEMA), SCHEMA)
USER = Message("user", "Hi")
CALL = Message("assistant", "Let me see", tool_calls=(ToolCall("t1", "search", '{"q":"x"}'),))
RESULTS = Message("tool", tool_results=(ToolResult("t1", "search", "a"), ToolResult("t2", "search", "b", error="exception")))
SECRET = "sk-" + "very-secret"
ENCRYPTED = ["reasoning.encrypted_content"]

each = pytest.mark.parametrize("name", RESPONSES)


def body(name: str, *messages: Message, **more: Any) -> dict[str, Any]:
    request = provider(name).build_request(ModelRequest(messages, **more))
    assert request.method == "POST"
    return json.loads(request.body)


def test_every_provider_is_found_by_its_name():
    assert set(RESPONSES) <= set(names())
    assert len({provider(name).wire for name in RESPONSES}) == len(RESPONSES)


@each
@pytest.mark.parametrize("stream", [False, True])
def test_addresses_of_requests(name: str, stream: bool):
    request = provider(name).build_request(ModelRequest([USER], stream=stream))
    azure = "/openai/v1" if name == "azure-responses" else ""
    assert request.url == f"http://127.0.0.1:1/v1{azure}/responses"
    assert request.headers == {
        "content-type": "application/json",
        "accept": "text/event-stream" if stream else "application/json",
    }


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("openai-responses:m", "https://api.openai.com/v1/responses"),
        ("openrouter-responses:a/b", "https://openrouter.ai/api/v1/responses"),
        ("xai-responses:m", "https://api.x.ai/v1/responses"),
    ],
)
def test_the_vendors_own_addresses(spec: str, url: str):
    assert resolve(spec).build_request(ModelRequest([USER])).url == url


FULL = {"instructions": "Be brief", "tools": (SEARCH,), "max_output_tokens": 9, "stream": True}
FULL_BODY = {
    "model": "some-model",
    "input": [{"role": "user", "content": "Hi"}],
    "instructions": "Be brief",
    "tools": [
        {"type": "function", "name": "search", "description": "Look things up", "parameters": json.loads(SCHEMA), "strict": False}
    ],
    "max_output_tokens": 9,
    "stream": True,
}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("openai-responses", {"store": False}),
        ("azure-responses", {"store": False}),
        ("xai-responses", {"store": False, "include": ENCRYPTED}),
        ("openrouter-responses", {}),
        ("compatible-responses", {}),
    ],
)
def test_bodies_of_requests(name: str, more: dict[str, Any]):
    assert body(name, USER, **FULL) == {**FULL_BODY, **more}
    assert body(name, USER) == {"model": "some-model", "input": [{"role": "user", "content": "Hi"}], **more}


@pytest.mark.parametrize(
    ("deployment", "asked"),
    [
        ("gpt-5.4-mini", True),
        ("team-o4-mini", True),
        ("gpt5", True),
        ("codex-mini", True),
        ("gpt-5-chat", False),
        ("gpt-4.1", False),
        ("gpt-4o", False),
        ("my-model", False),
    ],
)
def test_azure_requests_the_reasoning_of_reasoning_models(deployment: str, asked: bool):
    azure = Provider("azure-responses", model=deployment, base_url="https://h")
    sent = json.loads(azure.build_request(ModelRequest([USER])).body)
    assert sent.get("include") == (ENCRYPTED if asked else None)
    sent = json.loads(azure.build_request(ModelRequest([USER], options={"include": []})).body)
    assert sent["include"] == []


@each
def test_options_are_merged(name: str):
    assert body(name, USER, options={"store": True})["store"] is True
    assert body(name, USER, options={"include": ["x"]})["include"] == ["x"]
    assert body(name, USER, options={"reasoning": {"effort": "low"}})["reasoning"] == {"effort": "low"}
    tools = body(name, USER, tools=(SEARCH,), options={"tools": [{"type": "web_search"}]})["tools"]
    assert [tool["type"] for tool in tools] == ["function", "web_search"]
    assert body(name, USER, max_output_tokens=9, options={"max_output_tokens": 99})["max_output_tokens"] == 9
    for field in ("model", "input", "stream"):
        with pytest.raises(ConfigurationError, match=field):
            body(name, USER, options={field: 1})


# The conversation ----------------------------------------------------------------------------------------------------------

FUNCTION_CALL = {"type": "function_call", "call_id": "t1", "name": "search", "arguments": '{"q":"x"}'}


@each
def test_another_wires_turn_is_rebuilt(name: str):
    message_item, called = body(name, CALL)["input"]
    full = name in ("openrouter-responses", "compatible-responses")
    if full:
        assert message_item.pop("id").startswith("msg_")
        assert called.pop("id") == "fc_t1"
        assert (message_item.pop("status"), called.pop("status")) == ("completed", "completed")
    content = [{"type": "output_text", "text": "Let me see", "annotations": []}] if full else "Let me see"
    assert message_item == {"type": "message", "role": "assistant", "content": content}
    assert called == FUNCTION_CALL


@each
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(
            RESULTS,
            [
                {"type": "function_call_output", "call_id": "t1", "output": "a"},
                {"type": "function_call_output", "call_id": "t2", "output": "b"},
            ],
            id="results",
        ),
        pytest.param(Message("assistant"), [], id="an empty turn is left out"),
        pytest.param(Message("tool"), [], id="no results are left out"),
    ],
)
def test_messages_on_the_wire(name: str, message: Message, expected: list[Any]):
    assert body(name, message)["input"] == expected


@each
def test_a_native_turn_is_sent_back_item_by_item(name: str):
    items = [{"type": "reasoning", "id": "rs_1", "x": {"b": 1, "a": None}}, {"type": "message", "id": "m"}]
    own = Message("assistant", "other", native=NativeContent(provider(name).wire, items))
    assert body(name, USER, own, USER)["input"][1:3] == items
    foreign = Message("assistant", "the text", native=NativeContent("another.wire", items))
    assert "rs_1" not in json.dumps(body(name, foreign))
    assert "the text" in json.dumps(body(name, foreign))


@each
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"q": "é"}', {"q": "é"}), ("", {}), ('{"q": "x', {"_unparsed": '{"q": "x'}), ("[1]", {"_unparsed": "[1]"})],
)
def test_arguments_are_an_object(name: str, arguments: str, expected: Any):
    (call,) = body(name, Message("assistant", tool_calls=(ToolCall("t1", "search", arguments),)))["input"]
    assert json.loads(call["arguments"]) == expected


@each
def test_a_conversation_is_encoded_once(name: str):
    conversation = Conversation([USER, CALL])
    wire = provider(name)
    first = wire.build_request(ModelRequest(conversation.view())).body
    remembered = conversation.encoded(wire.wire, lambda message: pytest.fail("encoded again"), 2)
    assert all(part in first for part in remembered)
    conversation.append(RESULTS)
    later = wire.build_request(ModelRequest(conversation.view())).body
    assert later == wire.build_request(ModelRequest(list(conversation))).body


@each
@given(text=st.text(), arguments=st.text(), call_id=st.text())
@settings(max_examples=40, deadline=None)
def test_any_text_can_be_sent(name: str, text: str, arguments: str, call_id: str):
    messages = [
        Message("user", text + "\ud83d"),
        Message("assistant", text, tool_calls=(ToolCall(call_id, text, arguments),)),
        Message("tool", tool_results=(ToolResult(call_id, text, text),)),
    ]
    data = provider(name).build_request(ModelRequest(messages, text, (SEARCH,))).body
    json.loads(data.decode("utf-8"), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


# Keys and addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variable", "header", "prefix"),
    [
        ("openai-responses", "OPENAI_API_KEY", "authorization", "Bearer "),
        ("openrouter-responses", "OPENROUTER_API_KEY", "authorization", "Bearer "),
        ("xai-responses", "XAI_API_KEY", "authorization", "Bearer "),
        ("azure-responses", "AZURE_OPENAI_API_KEY", "api-key", ""),
    ],
)
def test_keys_of_each_provider(name: str, variable: str, header: str, prefix: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(MissingKeyError, match=variable):
        provider(name).auth_headers()
    monkeypatch.setenv(variable, " from-environment\n")
    assert provider(name).auth_headers() == {header: f"{prefix}from-environment"}
    given = Provider(name, model="m", base_url="http://h", api_key="given", headers={"x-team": "t"})
    assert given.auth_headers() == {"x-team": "t", header: f"{prefix}given"}


@each
def test_keys_and_headers_are_in_no_repr(name: str):
    keyed = Provider(name, model="m", base_url="http://h", api_key=SECRET, headers={"x-team": SECRET})
    assert SECRET not in repr(keyed)
    assert SECRET in str(keyed.auth_headers())
    assert isinstance(hash(keyed), int)
    assert pickle.loads(pickle.dumps(keyed)) == keyed


def test_compatible_sends_no_other_vendors_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert provider("compatible-responses").auth_headers() == {}
    keyed = Provider("compatible-responses", model="m", base_url="http://h", api_key="own")
    assert keyed.auth_headers() == {"authorization": "Bearer own"}
    with pytest.raises(ConfigurationError, match="base_url="):
        resolve("compatible-responses:m")


@each
def test_an_address_must_be_http_and_contain_no_secret(name: str):
    for address in ("ftp://x", f"https://user:{SECRET}@h/v1", f"https://h/v1?key={SECRET}"):
        with pytest.raises(ConfigurationError) as error:
            Provider(name, model="m", base_url=address)
        assert SECRET not in str(error.value)


# Azure ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "base_url", "url"),
    [
        pytest.param("azure-responses", "https://r.openai.azure.com", "https://r.openai.azure.com/openai/v1/responses", id="v1"),
        pytest.param(
            "azure-responses", "https://r.openai.azure.com/", "https://r.openai.azure.com/openai/v1/responses", id="slash"
        ),
        pytest.param(
            "azure-responses",
            "https://r.openai.azure.com/openai/v1/",
            "https://r.openai.azure.com/openai/v1/responses",
            id="with v1",
        ),
        pytest.param(
            "azure-responses",
            "https://r.openai.azure.com/openai/deployments/d/chat/completions",
            "https://r.openai.azure.com/openai/v1/responses",
            id="an address pasted from the portal",
        ),
        pytest.param("azure-responses", "https://gate/team/openai", "https://gate/team/openai/v1/responses", id="a gateway"),
        pytest.param("azure-responses@v1", "https://r", "https://r/openai/v1/responses", id="v1 by name"),
        pytest.param("azure-responses@preview", "https://r", "https://r/openai/v1/responses?api-version=preview", id="preview"),
        pytest.param(
            "azure-responses@2025-04-01-preview",
            "https://r",
            "https://r/openai/responses?api-version=2025-04-01-preview",
            id="dated",
        ),
    ],
)
def test_azure_addresses(spec: str, base_url: str, url: str):
    assert Provider(spec, model="d", base_url=base_url).build_request(ModelRequest([USER])).url == url


def test_the_azure_resource_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    with pytest.raises(ConfigurationError, match=r"AZURE_OPENAI_ENDPOINT.*base_url="):
        resolve("azure-responses:d")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com/")
    assert (
        resolve("azure-responses:d").build_request(ModelRequest([USER])).url == "https://r.openai.azure.com/openai/v1/responses"
    )


def test_azure_versions_are_checked():
    with pytest.raises(ConfigurationError, match="api_version="):
        Provider("azure-responses", model="d", base_url="https://r", api_version="x&y=1")
    with pytest.raises(ConfigurationError, match="api_version="):
        Provider("azure-responses", model="d", base_url="https://r/openai/responses?api-version=2025-04-01-preview")


def test_an_entra_token_replaces_a_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    headers = {"Authorization": "Bearer token"}
    azure = Provider("azure-responses", model="d", base_url="https://r", headers=headers)
    assert azure.auth_headers() == headers


@each
def test_an_instruction_in_mid_conversation_has_the_role_that_every_model_takes(name: str):
    message_item = body(name, USER, Message("assistant", "I think so."), Message("system", "Call it."), instructions="Be brief.")
    newest = {"role": "user" if name in ("openrouter-responses", "compatible-responses") else "system", "content": "Call it."}
    assert message_item["input"][-1] in (newest, {"type": "message", **newest})
