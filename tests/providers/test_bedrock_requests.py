"""Requests to Bedrock and their credentials. botocore's own validation and signatures are the second opinion."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.validate import ParamValidator

import agentlab as lab
from agentlab._internal.redaction import Redactor, secrets_in_headers
from agentlab.engine.client import HttpModel
from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.model.messages import Message, ModelRequest, NativeContent, ToolCall, ToolResult, ToolSpec
from agentlab.providers.bedrock import WIRE, Bedrock, tool_use_id
from agentlab.providers.registry import resolve
from agentlab.transport.http import HttpRequest

from .bedrock_bodies import whole
from .bodies import Answer, Call

CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"
SCHEMA = '{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}'
SEARCH = ToolSpec("search", "Look things up", json.loads(SCHEMA), SCHEMA)
USER = Message("user", "Hi")
PLAIN = Bedrock(model="some-model")
KEY, SECRET, TOKEN = "AK" + "IA" + "Q" * 16, "s3cr3t" + "x" * 34, "t0ken" + "y" * 40


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No keys, files or metadata services except those that a test sets."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("agentlab.providers.bedrock._credentials_of_profile", {})


def body(*messages: Message, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PLAIN.build_request(ModelRequest(messages, **more)).body)
    return found


def call(arguments: str = '{"q":"x"}', call_id: str = "t1", text: str = "Let me see") -> Message:
    return Message("assistant", text, tool_calls=(ToolCall(call_id, "search", arguments),))


# Addresses -----------------------------------------------------------------------------------------------------------------


def test_a_model_id_may_contain_colons():
    provider = resolve(f"bedrock:{CLAUDE}")
    assert (provider.name, provider.model) == ("bedrock", CLAUDE)
    request = provider.build_request(ModelRequest([USER]))
    assert request.url == f"https://bedrock-runtime.us-east-1.amazonaws.com/model/{CLAUDE.replace(':', '%3A')}/converse"
    assert dict(request.headers) == {"content-type": "application/json", "accept": "application/json"}
    streamed = provider.build_request(ModelRequest([USER], stream=True))
    assert streamed.url == f"{request.url}-stream"
    assert streamed.headers["accept"] == "application/vnd.amazon.eventstream"
    assert streamed.body == request.body


def test_an_arn_is_one_part_of_the_path():
    arn = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.some-model"
    url = Bedrock(model=arn).build_request(ModelRequest([USER])).url
    assert url.endswith("/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.some-model/converse")


def test_the_region_of_a_request(monkeypatch: pytest.MonkeyPatch):
    def host(**settings: str) -> str:
        return Bedrock(model="m", **settings).build_request(ModelRequest([USER])).url.split("/")[2]

    assert host() == "bedrock-runtime.us-east-1.amazonaws.com"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert host() == "bedrock-runtime.eu-west-1.amazonaws.com"
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert host() == "bedrock-runtime.eu-central-1.amazonaws.com"
    assert host(region="us-west-2") == "bedrock-runtime.us-west-2.amazonaws.com"
    assert host(base_url="http://127.0.0.1:1/x/") == "127.0.0.1:1"
    monkeypatch.setenv("AWS_REGION", "example.org/")
    with pytest.raises(ConfigurationError, match=r"example\.org"):
        host()
    with pytest.raises(ConfigurationError, match="is not an AWS region"):
        host(region="example.org/")


# Bodies --------------------------------------------------------------------------------------------------------------------


def test_the_body_of_a_request():
    assert body(USER, instructions="Be brief", tools=(SEARCH,), max_output_tokens=9, stream=True) == {
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "system": [{"text": "Be brief"}],
        "toolConfig": {
            "tools": [
                {"toolSpec": {"name": "search", "description": "Look things up", "inputSchema": {"json": json.loads(SCHEMA)}}}
            ]
        },
        "inferenceConfig": {"maxTokens": 9},
    }
    assert body(USER) == {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
    bare = ToolSpec("f", "", {"type": "object"}, '{"type":"object"}')
    assert body(USER, tools=(bare,))["toolConfig"]["tools"][0]["toolSpec"].keys() == {"name", "inputSchema"}


def test_a_turn_with_tools():
    failed = ToolResult("t2", "search", "wrong", error="exception")
    sent = body(USER, call(), Message("tool", tool_results=(ToolResult("t1", "search", "found"), failed)))["messages"]
    assert sent[1]["content"] == [
        {"text": "Let me see"},
        {"toolUse": {"toolUseId": "t1", "name": "search", "input": {"q": "x"}}},
    ]
    assert sent[2] == {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "t1", "content": [{"text": "found"}]}},
            {"toolResult": {"toolUseId": "t2", "content": [{"text": "wrong"}], "status": "error"}},
        ],
    }


def test_nothing_empty_is_sent_and_the_roles_alternate():
    results = Message("tool", tool_results=(ToolResult("t1", "search", ""),))
    sent = body(
        Message("user", " "),
        USER,
        Message("assistant"),
        Message("user", "there"),
        call(text="\n"),
        results,
        Message("user", "Go on"),
    )
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["messages"][0]["content"] == [{"text": "Hi"}, {"text": "there"}]
    assert [next(iter(block)) for block in sent["messages"][1]["content"]] == ["toolUse"]
    assert sent["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": ""}]  # an empty result is accepted
    assert sent["messages"][2]["content"][1] == {"text": "Go on"}
    assert "system" not in body(USER, instructions="  ")


def test_ids_and_names_are_adapted_to_the_wire():
    assert tool_use_id("tooluse_LTbe.F0:61-x_Q") == "tooluse_LTbe.F0:61-x_Q"
    assert tool_use_id("a b/ü") == "a_b__"
    long = [tool_use_id("x" * 70 + end) for end in "ab"]
    assert [len(one) for one in long] == [64, 64]
    assert long[0] != long[1]
    made_up = Message("assistant", tool_calls=(ToolCall("t 1", "find.it now", '{"q'),))
    assert body(USER, made_up)["messages"][1]["content"] == [
        {"toolUse": {"toolUseId": "t_1", "name": "find_it_now", "input": {"_unparsed": '{"q'}}}
    ]


def test_native_content_goes_back_unchanged_to_its_own_wire_only():
    content = [{"reasoningContent": {"redactedContent": "aGk="}}, {"text": "native"}]
    message = Message("assistant", "text", native=NativeContent(WIRE, content))
    assert body(USER, message)["messages"][1]["content"] == content
    other = Message("assistant", "text", native=NativeContent("anthropic.messages", content))
    assert body(USER, other)["messages"][1]["content"] == [{"text": "text"}]


def test_options_are_merged_into_the_body():
    point = {"cachePoint": {"type": "default"}}
    sent = body(
        USER,
        instructions="Be brief",
        tools=(SEARCH,),
        max_output_tokens=9,
        options={
            "temperature": 0,
            "inferenceConfig": {"topP": 0.5, "maxTokens": 700},
            "maxTokens": 800,
            "toolConfig": {"tools": [point], "toolChoice": {"any": {}}},
            "system": [point],
            "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
            "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        },
    )
    assert sent["inferenceConfig"] == {"topP": 0.5, "maxTokens": 9, "temperature": 0}
    assert [next(iter(tool)) for tool in sent["toolConfig"]["tools"]] == ["toolSpec", "cachePoint"]
    assert sent["toolConfig"]["toolChoice"] == {"any": {}}
    assert sent["system"] == [{"text": "Be brief"}, point]
    assert sent["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 1024
    assert body(USER, options={"toolConfig": {"tools": [point]}})["toolConfig"] == {"tools": [point]}
    assert body(USER, options={"maxTokens": 800})["inferenceConfig"] == {"maxTokens": 800}
    for name in ("messages", "modelId", "stream"):
        with pytest.raises(ConfigurationError, match=name):
            body(USER, options={name: 1})


def test_botocore_validates_the_body():
    native = PLAIN.parse(whole(Answer(reasoning=("hm",), calls=(Call("f", {"a": 1}),)))).native
    messages = [
        USER,
        call(),
        Message("tool", tool_results=(ToolResult("t1", "search", "found"), ToolResult("x" * 99, "f", "no", error="timeout"))),
        Message("assistant", "Hello", native=native),
        Message("tool", tool_results=(ToolResult("c0", "f", ""),)),
        Message("user", "Go on"),
    ]
    sent = body(*messages, instructions="Be brief", tools=(SEARCH,), max_output_tokens=9, options={"temperature": 0.5})
    shape = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape
    report = ParamValidator().validate({"modelId": CLAUDE, **sent}, shape)
    assert not report.has_errors(), report.generate_report()
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user", "assistant", "user"]


# Credentials ---------------------------------------------------------------------------------------------------------------

REQUEST = Bedrock(model=CLAUDE, region="eu-west-1").build_request(ModelRequest([USER], stream=True))


def test_an_api_key_is_a_bearer_token(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    given = Bedrock(model="m", api_key=" own ", headers={"x-more": "1"})
    assert given.sign(REQUEST) == given.auth_headers() == {"x-more": "1", "authorization": "Bearer own"}
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "found")
    assert PLAIN.sign(REQUEST) == {"authorization": "Bearer found"}
    assert given.sign(REQUEST)["authorization"] == "Bearer own"
    assert "own" not in repr(given)


def signed(bedrock: Bedrock, request: HttpRequest = REQUEST) -> dict[str, str]:
    headers = bedrock.sign(request)
    assert not {"content-type", "accept", "host"} & headers.keys()
    return headers


def as_botocore_signs(headers: dict[str, str], credentials: Credentials, **more: str) -> str:
    """The signature by botocore for the same moment."""
    again = AWSRequest("POST", REQUEST.url, {**REQUEST.headers, **more, "X-Amz-Date": headers["x-amz-date"]}, REQUEST.body)
    again.context["timestamp"] = headers["x-amz-date"]
    if credentials.token:
        again.headers["X-Amz-Security-Token"] = credentials.token
    auth = SigV4Auth(credentials, "bedrock", "eu-west-1")
    return str(auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again))


def test_a_signature_with_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    bedrock = Bedrock(model=CLAUDE, region="eu-west-1")
    headers = signed(bedrock)
    assert headers.keys() == {"authorization", "x-amz-date"}
    day = headers["x-amz-date"][:8]
    assert headers["authorization"].startswith(f"AWS4-HMAC-SHA256 Credential={KEY}/{day}/eu-west-1/bedrock/aws4_request, ")
    assert headers["authorization"].endswith(as_botocore_signs(headers, Credentials(KEY, SECRET)))
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    headers = signed(bedrock)
    assert headers["x-amz-security-token"] == TOKEN
    assert headers["authorization"].endswith(as_botocore_signs(headers, Credentials(KEY, SECRET, TOKEN)))
    headers = signed(Bedrock(model=CLAUDE, region="eu-west-1", headers={"x-amzn-bedrock-trace": "ENABLED"}))
    assert "x-amzn-bedrock-trace" in headers["authorization"]
    assert headers["x-amzn-bedrock-trace"] == "ENABLED"


def test_a_signature_with_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
        f"[work]\naws_access_key_id = {KEY[:-1]}W\naws_secret_access_key = {SECRET}\n"
    )
    assert f"={KEY}/" in signed(PLAIN)["authorization"]
    assert f"={KEY[:-1]}W/" in signed(Bedrock(model="m", profile="work"))["authorization"]
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert f"={KEY[:-1]}W/" in signed(PLAIN)["authorization"]
    with pytest.raises(MissingKeyError, match="nobody"):
        signed(Bedrock(model="m", profile="nobody"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert f"={KEY}/" in signed(PLAIN)["authorization"]
    assert f"={KEY[:-1]}W/" in signed(Bedrock(model="m", profile="work"))["authorization"]


def test_neither_key_nor_credentials():
    for attempt in (lambda: PLAIN.sign(REQUEST), PLAIN.auth_headers):
        with pytest.raises(MissingKeyError) as caught:
            attempt()
        for word in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "agentlab-jupyter[bedrock]", "lab.replay"):
            assert word in str(caught.value)


def test_with_a_key_no_credentials_are_needed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("agentlab.providers.bedrock.find_spec", lambda name: None)
    keyed = Bedrock(model="m", api_key="own")
    for stream in (True, False):
        assert keyed.sign(keyed.build_request(ModelRequest([USER], stream=stream))) == {"authorization": "Bearer own"}


def test_every_part_of_the_credentials_is_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    headers = signed(PLAIN)
    headers_text = json.dumps(headers)
    hidden = Redactor(secrets_in_headers(headers, sure=True)).text(headers_text)
    for secret in (KEY, TOKEN, headers["authorization"], headers["authorization"].rpartition("=")[2]):
        assert secret not in hidden


def test_a_call_is_signed_off_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    """Each attempt is signed again, and none if no key is needed."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    threads: list[threading.Thread] = []

    def sign(self: Bedrock, request: HttpRequest) -> dict[str, str]:
        threads.append(threading.current_thread())
        return {"authorization": "Bearer x"}

    monkeypatch.setattr(Bedrock, "sign", sign)
    model = HttpModel(Bedrock(model="m", base_url="http://127.0.0.1:9"), lab.RetryPolicy(attempts=2, first_wait_s=0))
    result = asyncio.run(_asked(model))
    assert result.stop_reason == "error"
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def _asked(model: HttpModel) -> Any:
    return await lab.Agent(model.provider, retry=model.retry).run("Hi", budget=lab.Budget(max_turns=1))


def test_an_instruction_in_mid_conversation_has_the_role_user() -> None:
    request_body = body(USER, Message("assistant", "I think so."), Message("system", "Call it."))
    assert request_body["messages"][-1] == {"role": "user", "content": [{"text": "Call it."}]}


def test_the_key_is_checked_as_far_as_possible_before_the_first_step(monkeypatch: pytest.MonkeyPatch):
    """Without botocore there are no signatures; with it, a search for credentials may use the network, so it is left to the call."""
    run = lab.Agent(PLAIN).run("go")
    run.stepper.refuse_without_key()
    monkeypatch.setattr("agentlab.providers.bedrock.find_spec", lambda name: None)
    with pytest.raises(MissingKeyError, match="botocore, which signs requests, is not installed"):
        run.start()
    assert (run.state, len(run.history)) == ("ready", 0)
    lab.Agent(Bedrock(model="m", api_key="own")).run("go").stepper.refuse_without_key()
