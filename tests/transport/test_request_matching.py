"""Tool call ids do not matter in matching: servers make new ones for each response."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentlab.errors import ReplayMissError
from agentlab.transport import current, record
from agentlab.transport.replaying import ReplayIndex
from agentlab.transport.request_matching import canonical_body, same_question, with_numbered_calls

from .conftest import asked, interaction, interactions

Body = Callable[..., dict[str, Any]]
ARGUMENTS = {"id": "a1", "call_id": "a1", "tool_calls": [{"id": "a1"}]}
"""A tool's arguments; no value in them is an id, whatever its name."""


def chat(a: str, b: str, first: str, arguments: Any = ARGUMENTS) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}} for one in (a, b)]
    tool_messages = [{"role": "tool", "tool_call_id": one, "content": f"result {n}"} for n, one in enumerate(_order(a, b, first))]
    return {"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": calls}, *tool_messages]}


def responses(a: str, b: str, first: str, arguments: Any = ARGUMENTS) -> dict[str, Any]:
    calls = [
        {"type": "function_call", "id": f"fc_{one}", "call_id": one, "name": "f", "arguments": json.dumps(arguments)}
        for one in (a, b)
    ]
    message_item = {"type": "message", "role": "assistant", "id": f"msg_{a}", "content": [{"type": "output_text", "text": "so"}]}
    tool_messages = [
        {"type": "function_call_output", "call_id": one, "output": f"result {n}"} for n, one in enumerate(_order(a, b, first))
    ]
    return {"input": [{"role": "user", "content": "go"}, message_item, *calls, *tool_messages]}


def anthropic(a: str, b: str, first: str, arguments: Any = ARGUMENTS) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": one, "name": "f", "input": arguments} for one in (a, b)]
    tool_messages = [
        {"type": "tool_result", "tool_use_id": one, "content": f"result {n}"} for n, one in enumerate(_order(a, b, first))
    ]
    return {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": tool_messages},
        ]
    }


def bedrock(a: str, b: str, first: str, arguments: Any = ARGUMENTS) -> dict[str, Any]:
    calls = [{"toolUse": {"toolUseId": one, "name": "f", "input": arguments}} for one in (a, b)]
    tool_messages = [
        {"toolResult": {"toolUseId": one, "content": [{"text": f"result {n}"}]}} for n, one in enumerate(_order(a, b, first))
    ]
    return {"messages": [{"role": "assistant", "content": calls}, {"role": "user", "content": tool_messages}]}


def gemini(a: str, b: str, first: str, arguments: Any = ARGUMENTS) -> dict[str, Any]:
    calls = [{"functionCall": {"id": one, "name": "f", "args": arguments}} for one in (a, b)]
    tool_messages = [
        {"functionResponse": {"id": one, "name": "f", "response": {"n": n}}} for n, one in enumerate(_order(a, b, first))
    ]
    return {"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": tool_messages}]}


def _order(a: str, b: str, first: str) -> tuple[str, str]:
    return (a, b) if first == a else (b, a)


def form(body: Any) -> bytes:
    return same_question(json.dumps(body).encode())


WIRES = pytest.mark.parametrize("wire", [chat, responses, anthropic, bedrock, gemini])


@WIRES
def test_one_conversation_with_other_ids_is_the_same_question(wire: Body) -> None:
    assert form(wire("a1", "a2", "a1")) == form(wire("b7", "b3", "b7")) == form(wire("a2", "a1", "a2"))
    assert canonical_body(json.dumps(wire("a1", "a2", "a1")).encode()) != canonical_body(
        json.dumps(wire("b7", "b3", "b7")).encode()
    )


@WIRES
def test_another_conversation_is_another_question(wire: Body) -> None:
    this = form(wire("a1", "a2", "a1"))
    assert this != form(wire("a1", "a2", "a2")), "the results belong to the other calls"
    assert this != form(wire("a1", "a1", "a1")), "two calls under one id"
    assert this != form(wire("a1", "a2", "a1", {**ARGUMENTS, "id": "b7"})), "values in the arguments are no ids of calls"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "tool", "tool_call_id": "c1", "content": "x"}]},
        {"input": [{"type": "function_call_output", "call_id": "c1", "output": "x"}], "previous_response_id": "r1"},
        {"input": [{"type": "item_reference", "id": "c1"}]},
        {"input": [{"type": "reasoning", "id": "c1", "summary": []}]},
        {"messages": [{"role": "user", "content": "c1", "id": "c1"}]},
        {"messages": "c1", "input": {"id": "c1"}, "contents": [["c1"]]},
        ["c1"],
    ],
)
def test_an_id_that_the_body_does_not_declare_matches_literally(body: Any) -> None:
    text = json.dumps(body).encode()
    assert with_numbered_calls(text) is None
    assert same_question(text) == canonical_body(text) != same_question(text.replace(b"c1", b"c2"))


def test_a_body_that_is_no_json_has_no_calls() -> None:
    for body in (b"", b"\xff", b"{", b"[" * 100_000, b"1"):
        assert with_numbered_calls(body) is None


def test_equal_ids_are_preferred_and_other_ids_match_otherwise(cassette: Callable[..., Path]) -> None:
    ours, others = (interaction(chat(a, "x", a), n) for n, a in enumerate(("a1", "b1"), 1))
    index = ReplayIndex.load(cassette(ours, others))

    def served(replay_key: str, a: str, indent: int | None = None) -> Any:
        body = json.dumps(chat(a, "x", a), indent=indent).encode()
        return json.loads(index.find("POST", ours["request"]["uri"], body, replay_key).response.body)

    assert [served("1", "b1"), served("1", "a1")] == [2, 1]
    assert [served("2", "b1", 2), served("2", "a1", 2)] == [2, 1], "in another spelling too"
    assert [served("3", "new"), served("3", "newer")] == [1, 2], "in the order in which they were recorded"
    with pytest.raises(ReplayMissError, match="was recorded once, and this run sends it again"):
        served("1", "b1")
    with pytest.raises(ReplayMissError, match="recorded 2 times, and this run sends it again"):
        served("3", "newest")


def test_recording_again_leaves_no_recording_that_no_run_would_request(tmp_path: Path, base: str) -> None:
    def session(a: str) -> None:
        with record(tmp_path):
            asked(current(), f"{base}/chat", {"q": 1})
            asked(current(), f"{base}/chat", chat(a, "x", a))

    session("a1")
    session("b1")
    assert [json.loads(one.body) for one in interactions(tmp_path)] == [{"q": 1}, chat("b1", "x", "b1")]
