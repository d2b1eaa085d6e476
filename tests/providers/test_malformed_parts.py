"""A part of an answer with the wrong type lowers the confidence, and is never taken for an empty answer."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from engine.call_builders import finished, result_of
from engine.server import JSON_TYPE, raw, serving

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason, StopReason
from agentlab.model.responses import ModelResponse
from agentlab.testing import ScriptedProvider

from . import bedrock_bodies, responses_bodies
from .bodies import Answer, Call, sse, stream, whole

F, HIGH = FinishReason, Confidence.HIGH

TEXT = Answer(text=("Hello",))
CALLS = Answer(text=("Hello",), calls=(Call("f", {"a": 1}),), finish=F.TOOL_CALLS)

BODIES: dict[str, list[Any]] = {
    "openai": [whole("openai", TEXT), whole("openai", CALLS)],
    "openrouter": [whole("openrouter", TEXT)],
    "anthropic": [whole("anthropic", TEXT), whole("anthropic", CALLS)],
    "gemini": [whole("gemini", TEXT), whole("gemini", CALLS)],
    "bedrock": [bedrock_bodies.whole(TEXT), bedrock_bodies.whole(CALLS)],
    "openai-responses": [
        responses_bodies.body(*responses_bodies.items(TEXT)),
        responses_bodies.body(*responses_bodies.items(CALLS)),
    ],
}
WRONG: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("message", "function", "toolUse"), (5, True, "x", [])),
    **dict.fromkeys(("choices[]", "output[]", "content[]", "tool_calls[]", "parts[]", "functionCall"), (5, True, "x", [])),
    **dict.fromkeys(("text", "name", "arguments"), (5, True, [])),
    "thought": (5, "x", [], {}),
    "args": (5, True, "x", []),
    "input": (5, True, []),
    "tool_calls": (5, True, "x", {}),
    "parts": (5, True, "x", {}),
    "type": (5, True, [], {}),
}
"""Values of the wrong type for each part of an answer, by its key; those of `content` and `output` differ between the wires."""
CONTENT: dict[str, tuple[Any, ...]] = {
    "openai": (5, True, {}),
    "openrouter": (5, True, {}),
    "anthropic": (5, True, "x", {}, None),
    "gemini": (5, True, "x", []),
    "bedrock": (5, True, "x", {}, None),
    "openai-responses": (5, True, {}),
}
OUTPUT = {"bedrock": (5, True, "x", [], None), "openai-responses": (5, True, "x", {}, None)}


def malformed(name: str) -> Iterator[tuple[str, Any]]:
    """Yield each body of a wire with one part of its answer replaced, and which part that is."""
    wrong = {**WRONG, "content": CONTENT[name], "output": OUTPUT.get(name, ())}
    for body in BODIES[name]:
        for path in places(body):
            key = path[-1] if isinstance(path[-1], str) else f"{path[-2]}[]"
            for value in () if path == ("type",) else wrong.get(key, ()):
                yield f"{'.'.join(map(str, path))} = {value!r}", replaced(body, path, value)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        if key not in ("args", "usage") and not (key == "input" and isinstance(item, dict)):
            yield from places(item, (*path, key))


def replaced(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    found = copy.deepcopy(body)
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return found


async def assert_no_empty_end(cases: list[tuple[str, ModelResponse]]) -> None:
    for case, response in cases:
        agent = lab.Agent(ScriptedProvider([response] * 9))
        result = await finished(agent.run("?", budget=lab.Budget(max_turns=1, max_calls=9)))
        assert result.text or result.stop_reason is not StopReason.COMPLETED, case


@pytest.mark.parametrize("name", BODIES)
def test_a_part_of_the_wrong_type_is_never_a_confident_or_an_empty_end(name: str) -> None:
    wire = provider(name)
    cases = [(case, wire.parse(body)) for case, body in malformed(name)]
    assert len(cases) > 10
    assert [case for case, response in cases if response.signal.confidence == HIGH] == []
    asyncio.run(assert_no_empty_end(cases))


@pytest.mark.parametrize("name", BODIES)
def test_the_same_bodies_unchanged_are_certain(name: str) -> None:
    assert {lab.detect(name, body).confidence for body in BODIES[name]} == {HIGH}


# Streams -------------------------------------------------------------------------------------------------------------------

STREAMS: dict[str, list[bytes]] = {
    **{name: [stream(name, TEXT), stream(name, CALLS)] for name in ("openai", "openrouter", "anthropic", "gemini")},
    "bedrock": [sse([{name: event} for name, event in bedrock_bodies.events(answer)]) for answer in (TEXT, CALLS)],
    "openai-responses": [
        responses_bodies.stream(answer, manner) for answer in (TEXT, CALLS) for manner in ("named", "empty end")
    ],
}
WRONG_PIECES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("delta", "content", "item", "content_block"), (5, True)),
    **dict.fromkeys(("parts", "tool_calls"), (5, True, "x")),
    **dict.fromkeys(("parts[]", "choices", "candidates", "tool_calls[]"), (5, True, "x")),
    **dict.fromkeys(("text", "partial_json", "arguments"), (5, True, [1])),
    **dict.fromkeys(("toolUse", "functionCall"), (5, True, "x", [1])),
    "input": (5, True, [1]),
    "thought": (5, "x"),
}


def malformed_streams(name: str) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield each stream with one part of an event replaced, which part that is, and the stream itself."""
    for given in STREAMS[name]:
        lines = given.split(b"\n")
        for number, line in enumerate(lines):
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            for path in places(event):
                key = path[-1] if isinstance(path[-1], str) else f"{path[-2]}[]"
                for value in WRONG_PIECES.get(key, ()):
                    if path[:1] != ("response",):  # what Responses repeat in the last event is never used if it is less
                        changed = b"data: " + json.dumps(replaced(event, path, value)).encode()
                        yield f"{line!r}: {path} = {value!r}", b"\n".join([*lines[:number], changed, *lines[number + 1 :]]), given


@pytest.mark.parametrize("name", STREAMS)
def test_a_piece_of_the_wrong_type_is_never_a_confident_or_an_empty_end(name: str) -> None:
    cases = []
    for case, changed, given in malformed_streams(name):
        response, unchanged = streamed(name, changed), streamed(name, given)
        assert unchanged.signal.confidence == HIGH
        whole_anyway = (response.text, response.tool_calls) == (unchanged.text, unchanged.tool_calls)
        assert whole_anyway or response.signal.confidence < HIGH, case
        cases.append((case, response))
    assert len(cases) > 20
    asyncio.run(assert_no_empty_end(cases))


def streamed(name: str, data: bytes) -> ModelResponse:
    parser = provider(name).stream_parser()
    parser.feed(data)
    parser.finish()
    return parser.response()


def provider(name: str) -> Any:
    return lab.Provider(name, model="some-model", base_url="http://127.0.0.1:1/v1")


# Whole runs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "where"),
    [
        pytest.param(replaced(BODIES["openai"][0], ("choices", 0, "message", "content"), 5), "content is a number", id="content"),
        pytest.param(replaced(BODIES["openai"][0], ("choices", 0, "message"), []), "message is a list", id="message"),
    ],
)
def test_a_run_says_what_is_malformed(body: Any, where: str) -> None:
    with serving(raw(json.dumps(body).encode(), JSON_TYPE)) as server:
        result = result_of(server, "openai", stream=False)
    assert result.stop_reason is StopReason.ERROR
    assert where in result.detail
    assert result.history[0].signal.finish_reason is F.UNKNOWN
    assert result.usage.total_tokens == 15  # nothing that was paid is lost


def test_text_beside_a_malformed_part_is_kept() -> None:
    body = whole("anthropic", TEXT)
    body["content"].append(5)
    response = provider("anthropic").parse(body)
    assert response.text == "Hello"
    assert (response.signal.finish_reason, response.signal.confidence) == (F.END_TURN, Confidence.MEDIUM)
    assert "content[] is a number" in response.signal.message
