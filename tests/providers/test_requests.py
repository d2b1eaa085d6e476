"""Requests: truth tables for each wire."""

from __future__ import annotations

import asyncio
import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.model.conversation import Conversation
from agentlab.model.messages import Message, ModelRequest, NativeContent, ToolCall, ToolResult, ToolSpec
from agentlab.providers.anthropic import DEFAULT_MAX_TOKENS

from .bodies import WIRES, provider

SCHEMA = '{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}'
SEARCH = ToolSpec("search", "Look things up", json.loads(SCHEMA), SCHEMA)
USER = Message("user", "Hi")
NO_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="  # skip_thought_signature_validator


def body(name: str, *messages: Message, **more: Any) -> dict[str, Any]:
    request = provider(name).build_request(ModelRequest(messages, **more))
    assert request.method == "POST"
    return json.loads(request.body)


def sent(name: str, message: Message) -> list[dict[str, Any]]:
    return body(name, message)["contents" if name == "gemini" else "messages"]


def call(arguments: str = '{"q":"x"}', call_id: str = "t1") -> Message:
    return Message("assistant", "Let me see", tool_calls=(ToolCall(call_id, "search", arguments),))


@pytest.mark.parametrize(
    ("name", "stream", "url"),
    [
        ("openai", False, "http://127.0.0.1:1/v1/chat/completions"),
        ("openai", True, "http://127.0.0.1:1/v1/chat/completions"),
        ("compatible", True, "http://127.0.0.1:1/v1/chat/completions"),
        ("anthropic", False, "http://127.0.0.1:1/v1/messages"),
        ("anthropic", True, "http://127.0.0.1:1/v1/messages"),
        ("gemini", False, "http://127.0.0.1:1/v1/models/some-model:generateContent"),
        ("gemini", True, "http://127.0.0.1:1/v1/models/some-model:streamGenerateContent?alt=sse"),
    ],
)
def test_addresses_of_requests(name: str, stream: bool, url: str):
    request = provider(name).build_request(ModelRequest([USER], stream=stream))
    assert request.url == url
    assert request.headers["accept"] == ("text/event-stream" if stream else "application/json")
    assert request.headers["content-type"] == "application/json"
    assert not {"authorization", "x-api-key", "x-goog-api-key"} & set(request.headers)


@pytest.mark.parametrize("name", WIRES)
def test_the_same_request_is_the_same_bytes(name: str):
    one, other = (
        provider(name).build_request(
            ModelRequest([USER, call()], "Be brief", (SEARCH,), 9, {"temperature": 0, "x": {"b": 1, "a": 2}})
        )
        for _ in range(2)
    )
    assert one.body == other.body
    assert b'": ' not in one.body
    assert b'"b":1,"a":2' in one.body


@pytest.mark.parametrize("name", WIRES)
def test_a_conversation_is_encoded_once(name: str):
    conversation = Conversation([USER, call()])
    wire = provider(name)
    first = wire.build_request(ModelRequest(conversation.view())).body
    remembered = conversation.encoded(wire.wire, lambda message: pytest.fail("encoded again"), 2)
    assert all(part in first for part in remembered)
    conversation.append(Message("tool", tool_results=(ToolResult("t1", "search", "found"),)))
    later = wire.build_request(ModelRequest(conversation.view())).body
    assert json.loads(later) == json.loads(wire.build_request(ModelRequest(list(conversation))).body)


def test_openai_body():
    assert body("openai", USER, instructions="Be brief", tools=(SEARCH,), max_output_tokens=9, stream=True) == {
        "model": "some-model",
        "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "search", "description": "Look things up", "parameters": json.loads(SCHEMA)},
            }
        ],
        "max_completion_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_compatible_body():
    assert body("compatible", USER, max_output_tokens=9) == {
        "model": "some-model",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 9,
    }


def test_anthropic_body():
    assert body("anthropic", USER, instructions="Be brief", tools=(SEARCH,), max_output_tokens=9, stream=True) == {
        "model": "some-model",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "system": "Be brief",
        "tools": [{"name": "search", "description": "Look things up", "input_schema": json.loads(SCHEMA)}],
        "stream": True,
    }


def test_gemini_body():
    assert body("gemini", USER, instructions="Be brief", tools=(SEARCH,), max_output_tokens=9, stream=True) == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "systemInstruction": {"parts": [{"text": "Be brief"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "search", "description": "Look things up", "parametersJsonSchema": json.loads(SCHEMA)}
                ]
            }
        ],
        "generationConfig": {"maxOutputTokens": 9},
    }


FUNCTION = {"name": "search", "arguments": '{"q":"x"}'}


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        pytest.param(
            "openai",
            call(),
            [
                {
                    "role": "assistant",
                    "content": "Let me see",
                    "tool_calls": [{"id": "t1", "type": "function", "function": FUNCTION}],
                }
            ],
            id="chat: calls",
        ),
        pytest.param(
            "openai",
            Message("assistant", "", tool_calls=(ToolCall("t1", "search", '{"q":"x"}'),)),
            [{"role": "assistant", "content": None, "tool_calls": [{"id": "t1", "type": "function", "function": FUNCTION}]}],
            id="chat: calls without text",
        ),
        pytest.param(
            "compatible",
            Message("tool", tool_results=(ToolResult("t1", "search", "a"), ToolResult("t2", "search", "b", error="exception"))),
            [{"role": "tool", "tool_call_id": "t1", "content": "a"}, {"role": "tool", "tool_call_id": "t2", "content": "b"}],
            id="chat: results are separate messages",
        ),
        pytest.param(
            "anthropic",
            call(),
            [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Let me see"},
                        {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "x"}},
                    ],
                }
            ],
            id="anthropic: calls",
        ),
        pytest.param(
            "anthropic",
            Message("tool", tool_results=(ToolResult("t1", "search", "a"), ToolResult("t2", "search", "b", error="exception"))),
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": "a"},
                        {"type": "tool_result", "tool_use_id": "t2", "content": "b", "is_error": True},
                    ],
                }
            ],
            id="anthropic: results in one message",
        ),
        pytest.param(
            "gemini",
            call(),
            [
                {
                    "role": "model",
                    "parts": [
                        {"text": "Let me see"},
                        {"functionCall": {"id": "t1", "name": "search", "args": {"q": "x"}}, "thoughtSignature": NO_SIGNATURE},
                    ],
                }
            ],
            id="gemini: calls",
        ),
        pytest.param(
            "gemini",
            call(call_id="call_1"),
            [
                {
                    "role": "model",
                    "parts": [
                        {"text": "Let me see"},
                        {"functionCall": {"name": "search", "args": {"q": "x"}}, "thoughtSignature": NO_SIGNATURE},
                    ],
                }
            ],
            id="gemini: a made-up id is not sent",
        ),
        pytest.param(
            "gemini",
            Message(
                "tool", tool_results=(ToolResult("t1", "search", "a"), ToolResult("call_2", "search", "b", error="exception"))
            ),
            [
                {
                    "role": "user",
                    "parts": [
                        {"functionResponse": {"id": "t1", "name": "search", "response": {"output": "a"}}},
                        {"functionResponse": {"name": "search", "response": {"error": "b"}}},
                    ],
                }
            ],
            id="gemini: results in one message",
        ),
        pytest.param("anthropic", Message("assistant", " "), [], id="anthropic: an empty turn is left out"),
        pytest.param("anthropic", Message("tool"), [], id="anthropic: no results are left out"),
        pytest.param("gemini", Message("assistant"), [], id="gemini: an empty turn is left out"),
        pytest.param("gemini", Message("user"), [], id="gemini: an empty question is left out"),
        pytest.param("openai", Message("assistant"), [], id="chat: an empty turn is left out"),
        pytest.param("openai", Message("tool"), [], id="chat: no results are left out"),
    ],
)
def test_messages_on_each_wire(name: str, message: Message, expected: list[dict[str, Any]]):
    assert sent(name, message) == expected


def arguments_sent(name: str, arguments: str) -> Any:
    message = sent(name, call(arguments))[0]
    if name == "anthropic":
        return message["content"][-1]["input"]
    if name == "gemini":
        return message["parts"][-1]["functionCall"]["args"]
    return json.loads(message["tool_calls"][0]["function"]["arguments"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param('{"q": "é"}', {"q": "é"}, id="an object"),
        pytest.param("", {}, id="empty"),
        pytest.param(" \n", {}, id="blank"),
        pytest.param('{"q": "x', {"_unparsed": '{"q": "x'}, id="cut off"),
        pytest.param("[1]", {"_unparsed": "[1]"}, id="not an object"),
        pytest.param("null", {"_unparsed": "null"}, id="null"),
        pytest.param('{"q": 1} {"q": 2}', {"_unparsed": '{"q": 1} {"q": 2}'}, id="two objects"),
        pytest.param('{"q": NaN}', {"q": None}, id="not a number"),
    ],
)
def test_arguments_are_an_object_on_every_wire(arguments: str, expected: Any):
    for name in WIRES:
        assert arguments_sent(name, arguments) == expected, name


@pytest.mark.parametrize("name", WIRES)
@given(text=st.text(), arguments=st.text(), call_id=st.text())
@settings(max_examples=60, deadline=None)
def test_any_text_can_be_sent(name: str, text: str, arguments: str, call_id: str):
    messages = [
        Message("user", text + "\ud83d"),
        Message("assistant", text, tool_calls=(ToolCall(call_id, text, arguments),)),
        Message("tool", tool_results=(ToolResult(call_id, text, text),)),
    ]
    data = provider(name).build_request(ModelRequest(messages, text, (SEARCH,))).body
    json.loads(data.decode("utf-8"), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.mark.parametrize("name", WIRES)
def test_a_native_turn_is_sent_back_unchanged(name: str):
    wire = provider(name)
    content = [{"type": "x", "b": 1, "a": [None]}] if name == "anthropic" else {"role": "model", "x": [{"b": 1, "a": None}]}
    message = Message("assistant", "other text", native=NativeContent(wire.wire, content))
    (encoded,) = sent(name, message)
    assert (encoded["content"] if name == "anthropic" else encoded) == content


@pytest.mark.parametrize("name", WIRES)
def test_another_wires_turn_is_rebuilt(name: str):
    message = Message("assistant", "the text", native=NativeContent("another.wire", {"never": "sent"}))
    assert "the text" in json.dumps(sent(name, message))
    assert "never" not in json.dumps(sent(name, message))


def test_ids_of_other_wires_are_adapted_to_anthropic():
    encoded = body(
        "anthropic",
        call(call_id="functions.search:0"),
        Message("tool", tool_results=(ToolResult("functions.search:0", "search", "a"),)),
    )["messages"]
    assert encoded[0]["content"][1]["id"] == encoded[1]["content"][0]["tool_use_id"] == "functions_search_0"


# The output cap, and options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "options", "cap"),
    [
        pytest.param(None, {}, DEFAULT_MAX_TOKENS, id="nothing asked"),
        pytest.param(7, {}, 7, id="asked"),
        pytest.param(None, {"max_tokens": 8}, 8, id="option"),
        pytest.param(7, {"max_tokens": 8}, 7, id="the request wins"),
        pytest.param(None, {"max_tokens": "many"}, DEFAULT_MAX_TOKENS, id="nonsense"),
    ],
)
def test_anthropic_always_has_a_cap(asked: int | None, options: dict[str, Any], cap: int):
    assert body("anthropic", USER, max_output_tokens=asked, options=options)["max_tokens"] == cap


@pytest.mark.parametrize(
    ("options", "config"),
    [
        pytest.param({"temperature": 0.5}, {"temperature": 0.5, "maxOutputTokens": 9}, id="at the top"),
        pytest.param({"generationConfig": {"temperature": 0.5}}, {"temperature": 0.5, "maxOutputTokens": 9}, id="in its place"),
        pytest.param({"generationConfig": {"maxOutputTokens": 99}}, {"maxOutputTokens": 9}, id="the request's cap wins"),
        pytest.param({"maxOutputTokens": 99}, {"maxOutputTokens": 9}, id="the request's cap wins, at the top"),
        pytest.param(
            {"thinkingConfig": {"thinkingBudget": 1}, "generationConfig": {"topK": 1}},
            {"topK": 1, "thinkingConfig": {"thinkingBudget": 1}, "maxOutputTokens": 9},
            id="both places",
        ),
    ],
)
def test_gemini_generation_config(options: dict[str, Any], config: dict[str, Any]):
    assert body("gemini", USER, max_output_tokens=9, options=options)["generationConfig"] == config


def test_gemini_other_options_stay_at_the_top_level():
    encoded = body("gemini", USER, options={"safetySettings": [1], "toolConfig": {"a": 1}})
    assert encoded["safetySettings"] == [1]
    assert encoded["toolConfig"] == {"a": 1}
    assert "generationConfig" not in encoded


@pytest.mark.parametrize("name", WIRES)
def test_tools_in_options_are_added(name: str):
    encoded = body(name, USER, tools=(SEARCH,), options={"tools": [{"vendor": "tool"}]})
    assert len(encoded["tools"]) == 2
    assert encoded["tools"][1] == {"vendor": "tool"}
    assert body(name, USER, options={"tools": [{"vendor": "tool"}]})["tools"] == [{"vendor": "tool"}]
    assert len(body(name, USER, tools=(SEARCH,), options={"tools": []})["tools"]) == 1
    assert body(name, USER, tools=(SEARCH,), options={"tools": ({"vendor": "tool"},)}) == encoded
    with pytest.raises(ConfigurationError, match=r"options\['tools'\] is \{'vendor': 'tool'\}: pass a list"):
        body(name, USER, tools=(SEARCH,), options={"tools": {"vendor": "tool"}})


def test_stream_options_are_merged():
    encoded = body(
        "openai", USER, stream=True, options={"stream_options": {"include_obfuscation": False, "include_usage": False}}
    )
    assert encoded["stream_options"] == {"include_obfuscation": False, "include_usage": True}


@pytest.mark.parametrize(
    ("name", "field"),
    [("openai", "messages"), ("openai", "stream"), ("compatible", "model"), ("anthropic", "stream"), ("gemini", "contents")],
)
def test_fields_set_by_agentlab_are_refused_in_options(name: str, field: str):
    with pytest.raises(ConfigurationError, match=field):
        body(name, USER, options={field: 1})


def test_frozen_options_are_sent():
    options = MappingProxyType({"generationConfig": MappingProxyType({"topK": 1}), "x": MappingProxyType({"a": (1, 2)})})
    encoded = body("gemini", USER, options=options)
    assert (encoded["generationConfig"], encoded["x"]) == ({"topK": 1}, {"a": [1, 2]})


def test_options_that_are_no_json_are_reported():
    with pytest.raises(ConfigurationError, match=r"options\['x'\].*set"):
        body("openai", USER, options={"x": {1, 2}})


@pytest.mark.parametrize(
    ("model", "path"),
    [("gemini-x", "models/gemini-x"), ("models/gemini-x", "models/gemini-x"), ("tunedModels/mine", "tunedModels/mine")],
)
def test_gemini_model_names(model: str, path: str):
    from agentlab.providers.registry import Provider

    request = Provider("gemini", model=model).build_request(ModelRequest([USER]))
    assert request.url == f"https://generativelanguage.googleapis.com/v1beta/{path}:generateContent"


@pytest.mark.parametrize("name", WIRES)
def test_an_instruction_in_mid_conversation_has_the_wires_role(name: str):
    request_body = body(name, USER, Message("assistant", "I think so."), Message("system", "Call it."), instructions="Be brief.")
    newest = request_body["contents" if name == "gemini" else "messages"][-1]
    if name == "gemini":
        assert newest == {"role": "user", "parts": [{"text": "Call it."}]}
    else:
        assert newest == {"role": "system" if name in ("openai", "azure", "xai") else "user", "content": "Call it."}


# Ids of calls ------------------------------------------------------------------------------------------------------------------


def asking(name: str, ids: list[str]) -> dict[str, Any]:
    """A body of each wire that calls `note` once for each of these ids."""
    calls = [(one, {"x": number}) for number, one in enumerate(ids)]
    if name == "openai":
        entries = [{"id": one, "function": {"name": "note", "arguments": json.dumps(given)}} for one, given in calls]
        return {"choices": [{"message": {"tool_calls": entries}, "finish_reason": "tool_calls"}]}
    if name == "openai-responses":
        items = [
            {"type": "function_call", "call_id": one, "name": "note", "arguments": json.dumps(given)} for one, given in calls
        ]
        return {"status": "completed", "output": [{"type": "web_search_call", "id": "same"}, *items]}
    if name == "anthropic":
        blocks: list[dict[str, Any]] = [{"type": "tool_use", "id": one, "name": "note", "input": given} for one, given in calls]
        searched = {"type": "server_tool_use", "id": "same", "name": "web_search", "input": {}}
        thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
        return {"type": "message", "content": [thought, searched, *blocks], "stop_reason": "tool_use"}
    if name == "bedrock":
        uses = [{"toolUse": {"toolUseId": one, "name": "note", "input": given}} for one, given in calls]
        return {"output": {"message": {"role": "assistant", "content": uses}}, "stopReason": "tool_use"}
    parts = [{"functionCall": {**({"id": one} if one else {}), "name": "note", "args": given}} for one, given in calls]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


class Parsed:
    """A model that answers with the same body each time, parsed and requested by a real provider; `asked` are the requests."""

    def __init__(self, name: str, answer: dict[str, Any]) -> None:
        self.name, self.model, self.answer = name, "some-model", answer
        self.provider = provider(name)
        self.asked: list[Any] = []

    async def respond(self, request: ModelRequest, context: Any) -> Any:
        self.asked.append(json.loads(self.provider.build_request(request).body))
        return self.provider.parse(self.answer)


def fields_named(value: Any, *names: str) -> list[str]:
    """All texts in fields of these names, in order."""
    if isinstance(value, list):
        return [one for part in value for one in fields_named(part, *names)]
    if isinstance(value, dict):
        here = [one for name, one in value.items() if name in names and isinstance(one, str)]
        return [*here, *(one for part in value.values() for one in fields_named(part, *names))]
    return []


WIRES_WITH_IDS = {
    "openai": ("id", "tool_call_id"),
    "openai-responses": ("call_id", "call_id"),
    "anthropic": ("id", "tool_use_id"),
    "bedrock": ("toolUseId", "toolUseId"),
    "gemini": ("id", "id"),
}


@pytest.mark.parametrize(
    ("ids", "given"),
    [
        (["a", "b"], ["a", "b"]),
        (["same", "same", "same"], ["same", "same_2", "same_3"]),
        (["same", "same_2", "same"], ["same", "same_2", "same_3"]),
        (["", ""], ["call_1", "call_2"]),
        (["call_2", ""], ["call_2", "call_2_2"]),
    ],
    ids=["unique", "the-same", "taken", "none", "made-and-taken"],
)
@pytest.mark.parametrize("name", WIRES_WITH_IDS)
def test_each_call_has_a_unique_id_in_the_step_and_on_the_wire(name: str, ids: list[str], given: list[str]) -> None:
    seen: list[int] = []

    def note(x: int) -> int:
        """Note a number."""
        seen.append(x)
        return x

    model = Parsed(name, asking(name, ids))
    run = lab.Agent(model, tools=[lab.tool(inline=True)(note)]).run("go", budget=lab.Budget(max_turns=2))
    asyncio.run(to_the_end(run))
    step = run.history[0]
    assert seen[: len(ids)] == list(range(len(ids)))
    assert [call.id for call in step.tool_calls] == given
    assert [result.call_id for result in step.tool_results] == given
    asked, answered = WIRES_WITH_IDS[name]
    sent = model.asked[1]
    if name == "gemini":  # a call that came without an id is sent without one, as is its result
        given = [one for one in given if not one.startswith("call_")]
        found = fields_named(sent["contents"], "id")
        if ids != ["call_2", ""]:
            assert found == [*given, *given]
        return
    messages = sent.get("input") or sent["messages"]
    found = [one for one in fields_named(messages, asked) if one != "same" or name != "anthropic"]
    if asked == answered:
        assert found == [*given, *given]
    else:
        ours = [one for one in given if one != "same" or name != "anthropic"]
        assert (found, fields_named(messages, answered)) == (ours, given)


async def to_the_end(run: lab.Run) -> None:
    await run
