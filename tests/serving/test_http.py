"""HTTP only: errors and their status, access, sizes, concurrency, and the OpenAPI document."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

import agentlab as lab
from agentlab.errors import ChatInputError, MissingKeyError, ProviderStatusError, RunFailed
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import Message
from agentlab.serving.access import MAX_BODY_BYTES, is_loopback
from agentlab.testing import call, say

from .builders import FINISH, PATIENCE_S, Parrot, finalize, parrot, scripted, serving

OK = {"context_id": "a", "message": "go"}
CONFIG, NUDGES, CALLS = "terminating_config", "consecutive_nudges", "max_invocations"
WRONG: dict[str, tuple[str, Any, int, str, str]] = {
    "not-json": ("/chat", b"{", 400, "not_json", "The body is not JSON"),
    "not-utf-8": ("/chat", b'{"context_id": "\xff"}', 400, "not_json", "application/json"),
    "deep": ("/chat", b"[" * 100_000, 400, "not_json", "application/json"),
    "empty": ("/chat", b"", 422, "invalid_field", "body: "),
    "a-list": ("/chat", [], 422, "invalid_field", "body: "),
    "no-message": ("/chat", {"context_id": "a"}, 422, "invalid_field", "message: Field required"),
    "no-context": ("/chat", {"message": "go"}, 422, "invalid_field", "context_id: Field required"),
    "blank": ("/chat", {**OK, "message": " \n\x1c"}, 422, "invalid_field", "message: "),
    "number": ("/chat", {**OK, "message": 5}, 422, "invalid_field", "message: Input should be a valid string"),
    "long-id": ("/chat", {**OK, "context_id": "a" * 201}, 422, "invalid_field", "context_id: "),
    "odd-id": ("/chat", {**OK, "context_id": "a\0"}, 422, "invalid_field", "context_id: "),
    "half-a-pair": ("/chat", b'{"context_id": "a", "message": "\\ud83c"}', 422, "invalid_field", "message: "),
    "unknown-field": ("/chat", {**OK, "massage": 1}, 422, "invalid_field", "massage: Extra inputs are not permitted"),
    "no-tool-ids": ("/chat", {**OK, CONFIG: {}}, 422, "invalid_field", "terminating_config.tool_ids: "),
    "empty-tool-ids": ("/chat", {**OK, CONFIG: {"tool_ids": []}}, 422, "invalid_field", "terminating_config.tool_ids"),
    "negative": ("/chat", {**OK, CONFIG: {**FINISH, NUDGES: -1}}, 422, "invalid_field", NUDGES),
    "infinite": ("/chat", b'{"context_id":"a","message":"go","terminating_config":{"tool_ids":["finalize"],"max_invocations":1e999}}',
                 422, "invalid_field", CALLS),
    "true": ("/chat", {**OK, CONFIG: {**FINISH, CALLS: True}}, 422, "invalid_field", CALLS),
    "no-invocations": ("/chat", {**OK, CONFIG: {**FINISH, CALLS: 0}}, 422, "invalid_field", CALLS),
    "unknown-tool": ("/chat", {**OK, CONFIG: {"tool_ids": ["finalise"]}}, 400, "invalid_input", "Did you mean 'finalize'?"),
    "unknown-tool-asked": ("/chat/ask", {"prompt": "go", CONFIG: {"tool_ids": ["x"]}}, 400, "invalid_input", "'x'"),
    "invoke-without-context": ("/chat/invoke", {}, 422, "invalid_field", "context_id: Field required"),
    "invoke-with-message": ("/chat/invoke", OK, 422, "invalid_field", "message: Extra inputs are not permitted"),
    "invoke-nothing": ("/chat/invoke", {"context_id": "a"}, 404, "no_context", "The context 'a' has no message"),
    "no-prompt": ("/chat/add-ai-message", {"context_id": "a"}, 404, "no_context", "The context 'a' has no message"),
    "empty-prompt": ("/chat/add-ai-message", {"context_id": "a", "prompt": ""}, 422, "invalid_field", "prompt: "),
    "no-question": ("/chat/ask", {}, 422, "invalid_field", "prompt: Field required"),
    "nothing-to-add": ("/chat/add-message", {"context_id": "a", "message": ""}, 422, "invalid_field", "message: "),
    "whose-message": ("/chat/add-message", {**OK, "role": "tool"}, 422, "invalid_field", "role: "),
    "no-such-place": ("/chats", {}, 404, "not_found", "/chat/add-ai-message"),
}  # fmt: skip


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    assert answer.headers["content-type"] == "application/json"
    (body,) = answer.json().items()
    assert body[0] == "error"
    assert set(body[1]) == {"type", "message"}
    return answer.status_code, body[1]["type"], body[1]["message"]


def test_the_endpoints_have_the_documented_form() -> None:
    """Literal request and response bodies, as clients of other servers of this form use them."""
    config = b'{"tool_ids": ["t-1"], "consecutive_nudges": 1, "nudge_message": "Call it.", "max_invocations": 64}'
    headers = {"content-type": "application/json"}
    script = [call("look", {"q": "trains"}), call("finalize", {"answer": "IC 41"})]
    look = {"type": "tool_call", "tool_call_id": "call_look", "tool_name": "look", "tool_input": {"q": "trains"}}
    seen = {"type": "tool_response", "tool_call_id": "call_look", "tool_output": "saw trains"}
    ended = {"type": "tool_call", "tool_call_id": "call_finalize", "tool_name": "finalize", "tool_input": {"answer": "IC 41"}}
    gave = {"type": "tool_response", "tool_call_id": "call_finalize", "tool_output": '{"answer":"IC 41"}'}
    with serving(lab.Chat(scripted(script), tool_ids={"t-1": "finalize"})) as client:
        for path, body, first in [
            (
                "/chat",
                b'{"context_id": "c1", "message": "Go.", "terminating_config": %b}',
                [{"sender": "human", "message": "Go."}],
            ),
            ("/chat/invoke", b'{"context_id": "c1", "terminating_config": %b}', []),
            (
                "/chat/add-ai-message",
                b'{"context_id": "c1", "prompt": "Say it.", "terminating_config": %b}',
                [{"sender": "human", "message": "Say it."}],
            ),
        ]:
            answer = client.post(path, content=body % config, headers=headers)
            assert answer.status_code == 200, answer.text
            received = answer.json()
            assert {name: received[name] for name in ("response", "saved_ai_messages", "generated_messages")} == {
                "response": '{"answer":"IC 41"}',
                "saved_ai_messages": True,
                "generated_messages": [*first, look, seen, ended, gave],
            }


def test_an_invalid_request_is_answered_with_field_and_advice() -> None:
    chat = lab.Chat(parrot())
    with serving(chat) as client:
        for name, (path, body, status, kind, error_text) in WRONG.items():
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            received = error_of(client.post(path, content=raw, headers={"content-type": "application/json"}))
            assert received[:2] == (status, kind), (name, received)
            assert error_text in received[2], (name, received)
            assert len(received[2]) < 1000
        assert error_of(client.get("/chat")) == (405, "wrong_method", "/chat accepts POST.")
        assert chat.context_ids() == []
        whole = {**OK, "terminating_config": {**FINISH, "max_invocations": 2.0}}  # JSON has one kind of number
        answer = client.post("/chat", json=whole)
        assert (answer.status_code, answer.json()["error"]["type"]) == (424, "nudges_exhausted")


LIMITS: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "nudges": (
        lambda request, index: f"words {index}",
        {"consecutive_nudges": 2, "nudge_message": "Call it!"},
        "nudges_exhausted",
        "Max consecutive nudges exceeded: 2 of 2, and no terminating tool was called.",
    ),
    "no nudges": (
        lambda request, index: f"words {index}",
        {"consecutive_nudges": 0},
        "nudges_exhausted",
        "Max consecutive nudges exceeded: 0 of 0, and no terminating tool was called.",
    ),
    "invocations": (
        lambda request, index: call("look", {"q": str(index)}),
        {"max_invocations": 3},
        "call_limit",
        "Max invocations exceeded: 3 of 3, and no terminating tool was called.",
    ),
    "invocations within a step": (
        lambda request, index: say("half", finish=FinishReason.MAX_TOKENS),
        {"max_invocations": 1},
        "call_limit",
        "Max invocations exceeded: 1 of 1, and no terminating tool was called. The answer was cut off and is incomplete.",
    ),
}


@pytest.mark.parametrize(("script", "config", "kind", "error_text"), LIMITS.values(), ids=LIMITS.keys())
def test_a_limit_of_an_autonomous_request_is_an_error_that_loses_nothing(
    script: Any, config: dict[str, Any], kind: str, error_text: str
) -> None:
    config = {**FINISH, **config}
    with lab.Chat(scripted(script)) as twin:
        asyncio.run(twin.add_message("a", "Hello", "user"))
        replies = [
            asyncio.run(twin.chat("a", "go", config)),
            asyncio.run(twin.invoke("a", config)),
            asyncio.run(twin.add_ai_message("a", "go", config)),
            asyncio.run(twin.ask("go", config)),
        ]
    chat = lab.Chat(scripted(script))
    with serving(chat) as client:
        client.post("/chat/add-message", json={"context_id": "a", "message": "Hello", "role": "user"})
        for reply, path, body in [
            (replies[0], "/chat", {**OK}),
            (replies[1], "/chat/invoke", {"context_id": "a"}),
            (replies[2], "/chat/add-ai-message", {"context_id": "a", "prompt": "go"}),
            (replies[3], "/chat/ask", {"prompt": "go"}),
        ]:
            answer = client.post(path, json={**body, CONFIG: config})
            assert answer.status_code == 424
            received = answer.json()
            assert received == {
                "error": {"type": kind, "message": error_text},
                "generated_messages": [*reply.generated_messages],
                "messages": received["messages"],
            }
            assert [message["role"] for message in received["messages"]] == [message.role for message in reply.messages]
            assert reply.messages
            assert (str(reply.stop_reason), reply.detail, reply.notice) == (kind, error_text, f"[{error_text}]")
        kept = [(message.role, message.text) for reply in replies[:3] for message in reply.messages]
        assert [(message.role, message.text) for message in chat.messages("a")[1:]] == kept
        assert client.post("/chat", json=OK).status_code == 200  # without a terminating_config the conversation goes on


def test_the_agents_own_limits_are_outcomes_also_in_an_autonomous_request() -> None:
    agent = scripted(lambda request, index: call("look", {"q": str(index)}), budget=lab.Budget(max_calls=2))
    with serving(agent) as client:
        answer = client.post("/chat", json={**OK, CONFIG: {**FINISH, "max_invocations": 3}})
        assert (answer.status_code, answer.json()["stop_reason"]) == (200, "call_limit")
        assert answer.json()["notice"] == "[Budget reached: max_calls 2 of 2.]"
    with serving(scripted(lambda request, index: "no", terminating=["finalize"])) as client:
        answer = client.post("/chat", json=OK)
        assert (answer.status_code, answer.json()["stop_reason"]) == (200, "nudges_exhausted")


def test_an_internal_error_has_the_status_of_its_cause() -> None:
    def failing_with(error: Exception) -> lab.Agent:
        return scripted([error])

    refused = ProviderStatusError("openai (gpt) answered with status 401: no. Check the API key.", status=401)
    for agent, status, kind, error_text in [
        (failing_with(refused), 502, "provider", "Check the API key"),
        (scripted([say("half", finish=FinishReason.ERROR)]), 502, "provider", ""),
        (scripted([]), 502, "provider", "The script has 0 answers"),
        (failing_with(MissingKeyError("OPENAI_API_KEY is not set: set it.")), 500, "setup", "OPENAI_API_KEY is not set"),
        (scripted(["end"], stop=lambda history: 1 / 0), 500, "internal", "ZeroDivisionError: see the server's log"),
        (
            failing_with(KeyError("sk-proj-abcdefghijklmnopqrstuvwxyz0123456789")),
            500,
            "internal",
            "KeyError: see the server's log",
        ),
    ]:
        chat = lab.Chat(agent)
        with serving(chat) as client:
            received = error_of(client.post("/chat", json=OK))
            assert received[:2] == (status, kind), received
            assert error_text in received[2]
            assert "sk-proj" not in received[2]
            assert chat.context_ids() == []  # unchanged


def test_a_key_in_a_providers_message_is_redacted() -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ"
    with serving(scripted([ProviderStatusError(f"no such key {key}", status=401)])) as client:
        assert error_of(client.post("/chat", json=OK))[2] == "ProviderStatusError: no such key REDACTED"


def test_a_storage_failure_is_reported(tmp_path: Path) -> None:
    chat = lab.Chat(parrot(), tmp_path / "c.sqlite")
    with serving(chat) as client:
        assert client.post("/chat", json=OK).status_code == 200
        other = sqlite3.connect(tmp_path / "c.sqlite")
        other.execute("DROP TABLE messages")
        other.close()
        assert error_of(client.post("/chat", json=OK))[:2] == (503, "storage")


def test_a_concurrent_write_by_another_process_is_a_conflict(tmp_path: Path) -> None:
    class Meddler(Parrot):
        async def respond(self, request: Any, context: Any) -> Any:
            with lab.Chat(parrot(), tmp_path / "c.sqlite") as other:
                await other.add_message("a", "I was faster.")
            return await super().respond(request, context)

    chat = lab.Chat(lab.Agent(Meddler()), tmp_path / "c.sqlite")
    with serving(chat) as client:
        received = error_of(client.post("/chat", json=OK))
        assert received[:2] == (409, "context_changed")
        assert [message.text for message in chat.messages("a")] == ["I was faster."]


def test_a_concurrent_write_on_another_event_loop_is_a_conflict() -> None:
    class Meddler(Parrot):
        async def respond(self, request: Any, context: Any) -> Any:
            await asyncio.to_thread(lambda: asyncio.run(chat.add_message("a", "I was faster.")))
            return await super().respond(request, context)

    chat = lab.Chat(lab.Agent(Meddler()))
    with pytest.raises(lab.errors.ContextChangedError, match="another process or event loop wrote to it"):
        asyncio.run(chat.chat("a", "Hello."))
    assert [message.text for message in chat.messages("a")] == ["I was faster."]


def test_a_body_over_a_mebibyte_is_refused_in_any_encoding() -> None:
    def message(size: int) -> bytes:
        return json.dumps({**OK, "message": "x" * (size - len(json.dumps({**OK, "message": ""})))}).encode()

    headers = {"content-type": "application/json"}
    with serving(parrot()) as client:
        assert client.post("/chat", content=message(MAX_BODY_BYTES), headers=headers).status_code == 200
        assert error_of(client.post("/chat", content=message(MAX_BODY_BYTES + 1), headers=headers))[:2] == (413, "body_too_large")
        pieces = (message(MAX_BODY_BYTES + 1)[start : start + 65536] for start in range(0, MAX_BODY_BYTES + 1, 65536))
        assert error_of(client.post("/chat", content=pieces, headers=headers))[:2] == (413, "body_too_large")
        assert client.post("/chat", json=OK).status_code == 200


def test_a_body_that_never_arrives_blocks_nobody() -> None:
    body = json.dumps(OK).encode()
    head = b"POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with serving(parrot()) as client:
        place = (client.base_url.host, client.base_url.port)
        with contextlib.ExitStack() as held:
            slow = [held.enter_context(socket.create_connection(place, timeout=PATIENCE_S)) for _ in range(20)]
            for number, one in enumerate(slow):
                chunked = number % 2
                one.sendall(
                    head + (b"transfer-encoding: chunked\r\n\r\n" if chunked else b"content-length: %d\r\n\r\n" % len(body))
                )
                one.sendall(b"1\r\n{\r\n" if chunked else body[:1])
            assert client.post("/chat", json=OK).status_code == 200  # while all of them are open
        assert client.post("/chat", json=OK).status_code == 200


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, None),
        ({"host": "localhost:1"}, None),
        ({"host": "LOCALHOST"}, None),
        ({"host": "[::1]:80"}, None),
        ({"host": "localhost:1", "origin": "http://localhost:1"}, None),
        ({"host": "localhost", "origin": "http://localhost:80"}, None),
        ({"host": "localhost:1", "origin": "http://localhost:2"}, "wrong_origin"),
        ({"host": "localhost:1", "origin": "http://evil.example"}, "wrong_origin"),
        ({"host": "localhost:1", "origin": "null"}, "wrong_origin"),
        ({"host": "localhost:1", "origin": ""}, "wrong_origin"),
        ({"host": "evil.example", "origin": "http://evil.example"}, "wrong_host"),
        ({"host": "localhost.evil.example"}, "wrong_host"),
        ({"host": "localhost@evil.example"}, "wrong_host"),
        ({"host": "[::1"}, "wrong_host"),
        ({"host": ""}, "wrong_host"),
    ],
)
def test_only_pages_of_the_server_itself_are_allowed(headers: dict[str, str], kind: str | None) -> None:
    with serving(parrot()) as client:
        answer = client.post("/chat", json=OK, headers=headers)
        if kind is None:
            assert answer.status_code == 200
        else:
            assert error_of(answer)[:2] == (403, kind)


def test_a_token_is_required_everywhere() -> None:
    with serving(parrot(), token="open-sesame") as client:
        for given in (
            "",
            "Bearer",
            "Bearer open-sesam",
            "Bearer open-sesame2",
            "Basic open-sesame",
            "open-sesame",
            "Bearer \xe4".encode("latin-1"),
        ):
            for method, path in (("POST", "/chat"), ("GET", "/openapi.json"), ("GET", "/nowhere")):
                answer = client.request(method, path, headers={"authorization": given} if given else {})
                assert error_of(answer)[:2] == (401, "unauthorized")
                assert answer.headers["www-authenticate"] == "Bearer"
                assert "sesame" not in answer.text
        allowed = {"authorization": "Bearer open-sesame"}
        assert client.post("/chat", json=OK, headers=allowed).status_code == 200
        assert client.post("/chat", json=OK, headers={**allowed, "host": "lab.example"}).status_code == 200
        assert client.post("/chat", json=OK, headers={**allowed, "origin": "http://evil.example"}).status_code == 403
        document = client.get("/openapi.json", headers=allowed).json()
        assert document["security"] == [{"token": []}]
        assert "401" in document["paths"]["/chat"]["post"]["responses"]


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("lab.example", False), ("", False)],
)  # fmt: skip
def test_which_addresses_are_loopback(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


def test_a_hundred_concurrent_contexts_do_not_mix() -> None:
    model = Parrot(together=100)
    chat = lab.Chat(lab.Agent(model, tools=[finalize]))

    async def talk(client: httpx.AsyncClient, context_id: str) -> list[str]:
        error_text = []
        for turn in range(3):
            answer = await client.post("/chat", json={"context_id": context_id, "message": f"{context_id}-{turn}"})
            error_text.append(answer.json()["response"])
        return error_text

    async def main(url: Any) -> list[list[str]]:
        # the server closes connections that idle for 5 s
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60, trust_env=False) as client:
            return await asyncio.gather(*[talk(client, f"c{number}") for number in range(100)])

    with serving(chat) as client:
        received = asyncio.run(main(client.base_url))
        for number, answers in enumerate(received):
            assert answers == [" | ".join(f"c{number}-{turn}" for turn in range(upto + 1)) for upto in range(3)]
            assert [message.text for message in chat.messages(f"c{number}")][::2] == [f"c{number}-{turn}" for turn in range(3)]
    assert model.most_at_once == 100


def test_requests_of_one_context_wait_for_each_other() -> None:
    model = Parrot(0.01)
    chat = lab.Chat(lab.Agent(model, tools=[finalize]))

    async def main(url: Any) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
            return await asyncio.gather(
                *[client.post("/chat", json={"context_id": "a", "message": f"m{number}"}) for number in range(20)]
            )

    with serving(chat) as client:
        answers = asyncio.run(main(client.base_url))
        assert {answer.status_code for answer in answers} == {200}
        kept = [message.text for message in chat.messages("a")]
    assert model.most_at_once == 1
    assert sorted(kept[::2]) == sorted(f"m{number}" for number in range(20))
    assert kept[-1] == " | ".join(kept[::2])  # the last one saw all the others, in order
    assert not chat._locks  # a context that is not in use takes no memory


def test_the_openapi_document_matches_the_endpoints() -> None:
    with serving(parrot()) as client:
        document = client.get("/openapi.json").json()
        assert client.get("/docs").status_code == 404
    ran = {"/chat", "/chat/invoke", "/chat/add-ai-message"}
    assert set(document["paths"]) == {*ran, "/chat/ask", "/chat/add-message"}
    for name, path in document["paths"].items():
        responses = path["post"]["responses"]
        limit = set() if name == "/chat/add-message" else {"424"}
        assert set(responses) == {"200", "400", "403", "404", "409", "413", "422", "500", "502", "503"} | limit
        for status, response in responses.items():
            model = {"200": "ServedReply", "424": "LimitErrorBody"}.get(status, "ErrorBody")
            assert response["content"]["application/json"]["schema"] == {"$ref": f"#/components/schemas/{model}"}
    assert "nothing is saved" in document["paths"]["/chat/ask"]["post"]["description"]
    schemas = document["components"]["schemas"]
    assert schemas["ChatBody"]["required"] == ["context_id", "message"]
    assert schemas["InvokeBody"]["required"] == ["context_id"]
    assert schemas["AddAiMessageBody"]["required"] == ["context_id"]
    assert schemas["AskBody"]["required"] == ["prompt"]
    assert schemas["LimitErrorBody"]["required"] == ["error", "generated_messages", "messages"]
    assert schemas["SaidMessage"]["properties"]["sender"]["enum"] == ["human", "ai", "system"]
    reply = schemas["ServedReply"]["properties"]
    assert (reply["response"]["type"], reply["saved_ai_messages"]["type"]) == ("string", "boolean")
    forms = {form["$ref"].rpartition("/")[2] for form in reply["generated_messages"]["items"]["anyOf"]}
    assert {name: tuple(schemas[name]["properties"]) for name in forms} == {
        "SaidMessage": ("sender", "message"),
        "MadeToolCall": ("type", "tool_call_id", "tool_name", "tool_input"),
        "ToolResponse": ("type", "tool_call_id", "tool_output"),
    }
    config = document["components"]["schemas"]["TerminatingConfig"]
    assert config["required"] == ["tool_ids"]
    assert config["properties"]["tool_ids"]["items"]["enum"] == ["look", "finalize"]
    assert config["properties"]["max_invocations"]["default"] == 64
    assert config["properties"]["consecutive_nudges"]["default"] == 1
    assert config["properties"]["nudge_message"]["default"].startswith("You are currently in an autonomous execution mode")


# The methods' own errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "error_text"),
    [
        (lambda chat: chat.chat("", "go"), "context_id=''"),
        (lambda chat: chat.chat("ä", "go"), "context_id='\\xe4': pass 1 to 200 printable ASCII characters"),
        (lambda chat: chat.chat(5, "go"), "context_id=5"),
        (lambda chat: chat.chat("a", " "), "message=' ': pass a non-empty text"),
        (lambda chat: chat.chat("a", None), "message=None"),
        (lambda chat: chat.chat("a", "\ud83c"), "half a surrogate pair at character 0"),
        (lambda chat: chat.ask(""), "prompt=''"),
        (lambda chat: chat.invoke("a"), "The context 'a' has no message"),
        (lambda chat: chat.add_ai_message("a", ""), "prompt=''"),
        (lambda chat: chat.add_message("a", ""), "message=''"),
        (lambda chat: chat.add_message("a", "go", "tool"), "role='tool': pass 'assistant' or 'user'"),
        (lambda chat: chat.chat("a", "go", {"tool_id": ["finalize"]}), "Did you mean 'tool_ids'?"),
        (lambda chat: chat.chat("a", "go", {"max_invocations": 3}), "tool_ids is missing"),
        (lambda chat: chat.chat("a", "go", {"tool_ids": "finalize"}), "give the names in a list"),
        (lambda chat: chat.chat("a", "go", {**FINISH, "consecutive_nudges": 0.5}), "consecutive_nudges=0.5"),
        (lambda chat: chat.chat("a", "go", ["finalise"]), "Did you mean 'finalize'?"),
    ],
)
def test_the_methods_name_the_invalid_value(ask: Any, error_text: str) -> None:
    with lab.Chat(parrot()) as chat, pytest.raises(ChatInputError) as caught:
        asyncio.run(ask(chat))
    assert error_text in str(caught.value)


def test_the_methods_accept_the_arguments_of_a_run() -> None:
    with lab.Chat(parrot()) as chat:
        for config in (["finalize"], lab.TerminatingTools([finalize]), FINISH):
            assert asyncio.run(chat.ask("finish", config)).stop_reason is lab.StopReason.TERMINATING_TOOL


def test_a_failed_run_is_raised_with_its_partial_result() -> None:
    with lab.Chat(scripted([ProviderStatusError("no", status=500)])) as chat:
        with pytest.raises(RunFailed) as caught:
            asyncio.run(chat.chat("a", "go"))
        assert caught.value.result.stop_reason is lab.StopReason.ERROR
        assert isinstance(caught.value.__cause__, ProviderStatusError)
        assert chat.messages("a") == ()


def test_a_cancelled_request_leaves_the_context_unchanged_and_free() -> None:
    with lab.Chat(parrot(30)) as chat:

        async def main() -> None:
            task = asyncio.create_task(chat.chat("a", "go"))
            await asyncio.sleep(0.05)  # it may have reached the model by then, or not
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await chat.add_message("a", "free")

        asyncio.run(main())
        assert chat.messages("a") == (Message("assistant", "free"),)


def test_a_chat_needs_an_agent() -> None:
    with pytest.raises(lab.errors.ConfigurationError, match="pass an agent"):
        lab.Chat("openai:gpt-5.4-mini")  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [{"7f3a": "finalise"}, {"look": "finalize"}], ids=["no-such-tool", "name-of-another"])
def test_an_id_of_no_tool_is_refused(ids: dict[str, str]) -> None:
    with pytest.raises(lab.errors.ConfigurationError, match=r"Chat\(tool_ids=.*: look, finalize\."):
        lab.Chat(parrot(), tool_ids=ids)
