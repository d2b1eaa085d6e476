"""Gemini's function calls whose arguments arrive in pieces; the bodies are written by hand from the types of the vendor's client."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.messages import Message, ModelRequest, Parameters, ToolSpec
from agentlab.model.responses import ModelResponse, StreamEvent, ToolCallDelta
from agentlab.providers.gemini_stream import read_path

from .bodies import cut, parse_stream, provider, sse

F = FinishReason
LOOK = ToolSpec("look", "Look", {"type": "object"}, '{"type":"object"}')


def piece(path: str, text: str, *, more: bool = False) -> dict[str, Any]:
    return {"jsonPath": path, "stringValue": text, **({"willContinue": True} if more else {})}


def value(path: str, **fields: Any) -> dict[str, Any]:
    return {"jsonPath": path, **fields}


def call(*pieces: Any, more: bool = True, **fields: Any) -> dict[str, Any]:
    given = {"partialArgs": list(pieces)} if pieces else {}
    return {"functionCall": {**fields, **given, **({"willContinue": True} if more else {})}}


BEGIN, END = call(name="book"), call(more=False)


def events_of(parts: list[dict[str, Any]], finish: str | None = "STOP") -> list[dict[str, Any]]:
    chunks = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    return [*chunks, {"candidates": [{"finishReason": finish}]}] if finish else chunks


def read(*parts: dict[str, Any], finish: str | None = "STOP") -> tuple[ModelResponse, list[StreamEvent]]:
    return parse_stream("gemini", [sse(events_of([*parts], finish))])


def pieces_of(emitted: list[StreamEvent], number: int) -> str:
    return "".join(event.arguments for event in emitted if isinstance(event, ToolCallDelta) and event.index == number)


# Paths -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$", ()),
        ("$.location", ("location",)),
        ("$.operations[0].price", ("operations", 0, "price")),
        ("$.a[0][12]", ("a", 0, 12)),
        ("$['a b']", ("a b",)),
        ('$["a.b"].c', ("a.b", "c")),
        ("$['it\\'s \"so\"']", ('it\'s "so"',)),
        ('$["it\'s \\"so\\" \\u263a"]', ('it\'s "so" \u263a',)),
        ("$['a]b'][0]", ("a]b", 0)),
        ("$['']", ("",)),
        ("$.größe", ("größe",)),
        ("$.first-name", ("first-name",)),
    ],
)
def test_a_path_is_read(text: str, path: tuple[str | int, ...]) -> None:
    assert read_path(text) == path


@pytest.mark.parametrize(
    "text",
    [
        *("", "location", ".location", "$location", "$..price", "$.", "$.a.", "$.*", "$[*]", "$.a[-1]", "$.a[1:2]", "$.a[0,1]"),
        *("$.a[01]", "$.a[1000000000]", f"$.a[{'9' * 5_000}]", "$['a'", "$[a]", "$.a[0", "$['\\x']", "$[?@.a]", None, 3, ["$.a"]),
    ],
)
def test_another_text_is_not_the_path_of_one_value(text: Any) -> None:
    with pytest.raises(ValueError, match=r"path|escape"):
        read_path(text)


# Calls -----------------------------------------------------------------------------------------------------------------------

SEA, GULL = call(piece("$.ship", "Sea", more=True)), call(piece("$.ship", "gull"))
WHOLE = ("book", '{"ship":"Seagull"}', True)
HALF = ("book", '{"ship":"Sea', False)
PAY = {"functionCall": {"name": "pay"}}
SHAPES = [
    pytest.param([BEGIN, SEA, GULL, END], "STOP", [WHOLE], id="an empty call"),
    pytest.param([BEGIN, SEA, call(piece("$.ship", "gull"), more=False)], "STOP", [WHOLE], id="the last value"),
    pytest.param(
        [BEGIN, SEA, call(piece("$.ship", "gull"), more=False), END], "STOP", [WHOLE], id="the last value and an empty call"
    ),
    pytest.param([BEGIN, SEA, GULL], "STOP", [WHOLE], id="the finish reason"),
    pytest.param([BEGIN, SEA, GULL, BEGIN, SEA, GULL], "STOP", [WHOLE, WHOLE], id="the next call"),
    pytest.param([BEGIN, SEA, GULL, PAY], "MAX_TOKENS", [WHOLE, ("pay", "{}", True)], id="the next call at the cap"),
    pytest.param([call(piece("$.ship", "Seagull"), name="book", more=False)], "STOP", [WHOLE], id="one piece"),
    pytest.param([BEGIN, SEA, call(), GULL, call(), END], "STOP", [WHOLE], id="pieces with willContinue alone"),
    pytest.param([BEGIN, SEA, {"text": "Hm"}, GULL, {"text": "Ah", "thought": True}, END], "STOP", [WHOLE], id="text between"),
    pytest.param(
        [BEGIN, SEA, call(value("$.ship", willContinue=True)), GULL, END], "STOP", [WHOLE], id="a value without content"
    ),
    pytest.param(
        [BEGIN, call(value("$.ship", willContinue=True)), GULL, END], "STOP", [("book", '{"ship":"gull"}', True)], id="at first"
    ),
    pytest.param([BEGIN, SEA, call(value("$.ship")), END], "STOP", [("book", '{"ship":"Sea"}', True)], id="an empty last value"),
    pytest.param([BEGIN, END], "STOP", [("book", "{}", True)], id="no arguments"),
    pytest.param(
        [PAY, BEGIN, SEA, GULL, END, PAY], "STOP", [("pay", "{}", True), WHOLE, ("pay", "{}", True)], id="between whole calls"
    ),
    pytest.param([BEGIN, SEA], "STOP", [HALF], id="within a text"),
    pytest.param([BEGIN, SEA, END], "STOP", [HALF], id="an empty call within a text"),
    pytest.param([BEGIN, SEA, PAY], "STOP", [HALF, ("pay", "{}", True)], id="the next call within a text"),
    pytest.param([BEGIN, SEA], "MAX_TOKENS", [HALF], id="the cap within a text"),
    pytest.param([BEGIN, SEA, GULL], "MAX_TOKENS", [("book", '{"ship":"Seagull"', False)], id="the cap between values"),
    pytest.param([BEGIN, SEA, GULL], "MALFORMED_FUNCTION_CALL", [("book", '{"ship":"Seagull"', False)], id="a malformed call"),
    pytest.param([BEGIN, SEA, GULL], None, [("book", '{"ship":"Seagull"', False)], id="broken off between values"),
    pytest.param([BEGIN], None, [("book", "", False)], id="broken off at the beginning"),
    pytest.param([SEA, GULL, END], "STOP", [("", '{"ship":"Seagull"}', False)], id="without a beginning"),
]


@pytest.mark.parametrize(("parts", "finish", "expected"), SHAPES)
def test_a_call_is_complete_when_the_wire_says_so(
    parts: list[dict[str, Any]], finish: str | None, expected: list[tuple[str, str, bool]]
) -> None:
    data = sse(events_of(parts, finish))
    response, emitted = parse_stream("gemini", [data])
    assert [(call.name, call.arguments, call.closed) for call in response.tool_calls] == expected
    assert [pieces_of(emitted, number) for number in range(len(expected))] == [arguments for _, arguments, _ in expected]
    if finish == "STOP":
        whole = all(closed for *_, closed in expected)
        assert response.signal.finish_reason is F.TOOL_CALLS
        assert response.signal.confidence is (Confidence.HIGH if whole else Confidence.LOW)
        action = lab.termination.standard(response.signal, lab.DecisionContext(response=response)).action
        assert action is (lab.Action.EXECUTE_TOOLS if whole else lab.Action.ABORT)
    for place in range(0, len(data), 7):
        assert parse_stream("gemini", cut(data, [place])) == (response, emitted)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([value("$.a[1000000000]", numberValue=1)], id="an index beyond the end"),
        pytest.param([value("$.a[1]", numberValue=1)], id="a list without a first item"),
        pytest.param([value("$.a[0]", numberValue=1), value("$.a[0]", numberValue=2)], id="an item twice"),
        pytest.param([value("$.a", numberValue=1), value("$.a", numberValue=2)], id="a key twice"),
        pytest.param([piece("$.a", "x"), piece("$.a", "y")], id="more of a whole text"),
        pytest.param([piece("$.a", "x", more=True), value("$.b", numberValue=2)], id="another value within a text"),
        pytest.param([piece("$.a", "x", more=True), value("$.a", numberValue=2)], id="a number within a text"),
        pytest.param([value("$.a", numberValue=1), value("$.a.b", numberValue=2)], id="a key of a number"),
        pytest.param([value("$.a.b", numberValue=1), value("$.a", numberValue=2)], id="a number for an object"),
        pytest.param([value("$.a.b", numberValue=1), value("$.a[0]", numberValue=2)], id="an index of an object"),
        pytest.param([value("$.a[0]", numberValue=1), value("$.a.b", numberValue=2)], id="a key of a list"),
        pytest.param(
            [value("$.a.b", numberValue=1), value("$.c", numberValue=2), value("$.a.d", numberValue=3)], id="back again"
        ),
        pytest.param([value("$", numberValue=1)], id="no key"),
        pytest.param([value("$[0]", numberValue=1)], id="the arguments as a list"),
        pytest.param([value("$" + "[0]" * 100_000, numberValue=1)], id="a deep list at the top"),
        pytest.param([value("$.a" + "[0]" * 100_000, numberValue=1)], id="a deep list"),
        pytest.param([value("$.a")], id="no value"),
        pytest.param([value("$.a", numberValue=1, willContinue=True)], id="a number in pieces"),
        pytest.param([value("$.a", numberValue="1")], id="a number as text"),
        pytest.param([value("$.a", numberValue=True)], id="a truth value as a number"),
        pytest.param([value("$.a", numberValue=float("inf"))], id="infinity"),
        pytest.param([value("$.a", numberValue=float("nan"))], id="no number"),
        pytest.param([{"stringValue": "x"}], id="no path"),
        pytest.param(["$.a"], id="no object"),
    ],
)
def test_pieces_that_do_not_fit_together_are_not_executed(pieces: list[Any]) -> None:
    response, _ = read(BEGIN, call(*pieces), END, PAY)
    assert [(call.name, call.closed) for call in response.tool_calls] == [("book", False), ("pay", True)]
    assert response.signal.finish_reason is F.TOOL_CALLS
    assert response.signal.confidence is Confidence.LOW


@pytest.mark.parametrize("more", [{"partialArgs": 3}, {"partialArgs": {"a": 1}}, {"args": {"ship": "Gull"}}])
def test_a_call_has_pieces_or_whole_arguments(more: dict[str, Any]) -> None:
    response, _ = read(call(name="book", **more), END)
    assert [(call.name, call.closed) for call in response.tool_calls] == [("book", False)]


@pytest.mark.parametrize("late", [GULL, call(piece("$.port", "Graz"), more=False)])
def test_a_value_after_the_end_of_its_call_is_not_dropped_silently(late: dict[str, Any]) -> None:
    response, _ = read(BEGIN, SEA, call(piece("$.ship", "gull"), more=False), late)
    assert [call.closed for call in response.tool_calls] == [False]


@pytest.mark.parametrize("late", [END, call(), GULL])
def test_a_piece_after_the_finish_reason_makes_the_end_doubtful(late: dict[str, Any]) -> None:
    events = [*events_of([BEGIN, SEA, GULL]), *events_of([late], None)]
    parser = provider("gemini").stream_parser()
    parser.feed(sse(events))
    assert parser.finish().confidence is not Confidence.HIGH
    assert not parser.sound


def test_a_call_of_a_stream_that_lost_a_piece_is_not_executed() -> None:
    begin, *rest = events_of([BEGIN, SEA, GULL, END])
    data = sse([begin]) + b'data: {"candidates": [{"con\n\n' + sse(rest)
    response, _ = parse_stream("gemini", [data])
    assert [call.closed for call in response.tool_calls] == [False]
    assert response.holes


def test_two_halves_of_a_character_are_joined() -> None:
    events = events_of([BEGIN, call(piece("$.ship", "\ud83d", more=True)), call(piece("$.ship", "\ude00")), END])
    response, _ = parse_stream("gemini", [b"data: %b\n\n" % json.dumps(event).encode() for event in events])
    assert [json.loads(call.arguments) for call in response.tool_calls] == [{"ship": "\U0001f600"}]


@pytest.mark.parametrize(
    ("number", "text"),
    [(5, "5"), (5.0, "5"), (-3.0, "-3"), (0.5, "0.5"), (2**60, str(2**60)), (1e300, "1e+300"), (1e16, "1e+16")],
)
def test_whole_numbers_stay_whole(number: float, text: str) -> None:
    response, _ = read(BEGIN, call(value("$.n", numberValue=number)), END)
    assert response.tool_calls[0].arguments == f'{{"n":{text}}}'


@pytest.mark.parametrize("null", [None, "NULL_VALUE", 0])
def test_null_and_truth_values(null: Any) -> None:
    response, _ = read(
        BEGIN, call(value("$.a", nullValue=null), value("$.b", boolValue=False), value("$.c", boolValue=True)), END
    )
    assert response.tool_calls[0].arguments == '{"a":null,"b":false,"c":true}'


def test_ids_and_signatures_are_kept_and_the_call_is_sent_back_whole() -> None:
    first = {**call(name="book", id="s1"), "thoughtSignature": "c2lnbg=="}
    response, emitted = read({"text": "Let me see."}, first, SEA, GULL, END, call(name="book", id="s2"), SEA, GULL, END)
    assert [call.id for call in response.tool_calls] == ["s1", "s2"]
    assert [(event.index, event.id) for event in emitted if isinstance(event, ToolCallDelta)] == [(0, "s1")] * 4 + [(1, "s2")] * 4
    history = [Message("user", "Hi"), Message("assistant", response.text, response.tool_calls, native=response.native)]
    sent = json.loads(provider("gemini").build_request(ModelRequest(history)).body)["contents"][1]
    assert sent == {
        "role": "model",
        "parts": [
            {"text": "Let me see."},
            {"functionCall": {"id": "s1", "name": "book", "args": {"ship": "Seagull"}}, "thoughtSignature": "c2lnbg=="},
            {"functionCall": {"id": "s2", "name": "book", "args": {"ship": "Seagull"}}},
        ],
    }


def test_a_piece_may_repeat_the_id_and_the_name_of_its_call() -> None:
    again = {"id": "s1", "name": "book"}
    response, _ = read(*(call(*one["functionCall"]["partialArgs"], **again) for one in (SEA, GULL)), call(more=False, **again))
    assert [(call.id, call.name, call.arguments, call.closed) for call in response.tool_calls] == [("s1", *WHOLE)]


@pytest.mark.parametrize(
    ("choice", "mode"), [(None, {}), ("auto", {"mode": "AUTO"}), ("look", {"mode": "ANY", "allowedFunctionNames": ["look"]})]
)
def test_options_ask_for_arguments_in_pieces_with_any_tool_choice(choice: str | None, mode: dict[str, Any]) -> None:
    options = {
        "toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}, "includeServerSideToolInvocations": True}
    }
    asked = ModelRequest(
        [Message("user", "Hi")], tools=(LOOK,), stream=True, options=options, parameters=Parameters(tool_choice=choice)
    )
    config = json.loads(provider("gemini-vertex").build_request(asked).body)["toolConfig"]
    assert config == {
        "functionCallingConfig": {"streamFunctionCallArguments": True, **mode},
        "includeServerSideToolInvocations": True,
    }


def test_the_tool_choice_takes_precedence_over_options() -> None:
    options = {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}}}
    asked = ModelRequest([Message("user", "Hi")], tools=(LOOK,), options=options, parameters=Parameters(tool_choice="none"))
    assert json.loads(provider("gemini").build_request(asked).body)["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}


# Properties ------------------------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
"""The wire has no way to send an empty object or list within the arguments."""
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, min_size=1, max_size=4) | st.dictionaries(st.text(), inner, min_size=1, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), values, max_size=5)


def leaves(value: Any, path: str, draw: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, path + step(key, draw), draw)]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in leaves(inner, f"{path}[{index}]", draw)]
    return [(path, value)]


def step(key: str, draw: Any) -> str:
    if re.fullmatch(r"[^\W\d]\w*", key) and draw(st.booleans()):
        return f".{key}"
    quoted = json.dumps(key, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        return f"[{quoted}]"
    return "['" + quoted[1:-1].replace('\\"', '"').replace("'", "\\'") + "']"


def split(path: str, value: Any, draw: Any) -> list[dict[str, Any]]:
    """The pieces of one value."""
    if isinstance(value, bool):
        return [{"jsonPath": path, "boolValue": value}]
    if value is None:
        return [{"jsonPath": path, "nullValue": draw(st.sampled_from(["NULL_VALUE", None]))}]
    if isinstance(value, int | float):
        return [{"jsonPath": path, "numberValue": draw(st.sampled_from([value, float(value)]))}]
    at = sorted(draw(st.lists(st.integers(0, len(value)), max_size=3)))
    texts = [value[start:end] for start, end in zip([0, *at], [*at, len(value)], strict=True)]
    return [*(piece(path, text, more=True) for text in texts[:-1]), piece(path, texts[-1])]


@st.composite
def streamed_calls(draw: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Arguments, and the parts of a call with them, of which the last one ends the call."""
    arguments = draw(objects)
    pieces = [one for path, leaf in leaves(arguments, "$", draw) for one in split(path, leaf, draw)]
    parts = [call(name="f")]
    while pieces:
        taken = draw(st.integers(0, 3))
        parts.append(call(*pieces[:taken]))
        pieces = pieces[taken:]
    if len(parts) > 1 and draw(st.booleans()):
        del parts[-1]["functionCall"]["willContinue"]
    else:
        parts.append(END)
    return arguments, parts


def as_sent(value: Any) -> Any:
    """Numbers are doubles on this wire: a whole one is an integer."""
    if isinstance(value, dict):
        return {key: as_sent(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_sent(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53 else value


@given(calls=st.lists(streamed_calls(), min_size=1, max_size=3), data=st.data())
@settings(max_examples=150, deadline=None)
def test_arguments_in_pieces_are_read_like_whole_ones(
    calls: list[tuple[dict[str, Any], list[dict[str, Any]]]], data: st.DataObject
) -> None:
    parts = [part for args, pieces in calls for part in pieces if part is not END or not args or data.draw(st.booleans())]
    whole = {
        "candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": as_sent(args)}} for args, _ in calls]}}]
    }
    whole["candidates"][0]["finishReason"] = "STOP"
    expected = provider("gemini").parse(json.loads(json.dumps(whole)))
    body = sse(events_of(parts))
    found, emitted = parse_stream("gemini", cut(body, data.draw(st.lists(st.integers(0, len(body)), max_size=5))))
    assert [json.loads(call.arguments) for call in found.tool_calls] == [args for args, _ in calls]
    assert found.tool_calls == expected.tool_calls
    assert found.native == expected.native
    assert found.signal == expected.signal
    assert [pieces_of(emitted, number) for number in range(len(calls))] == [call.arguments for call in found.tool_calls]


@pytest.mark.parametrize("next_call", [[], [{"functionCall": {"name": "g", "args": {}}}]], ids=["finish", "another call"])
def test_a_call_of_which_only_the_name_has_arrived_is_incomplete(next_call: list[dict[str, Any]]) -> None:
    body = sse(events_of([{"functionCall": {"name": "pay", "willContinue": True}}, *next_call]))
    found, _ = parse_stream("gemini", [body])
    assert not found.tool_calls[0].closed


@given(one=streamed_calls(), share=st.floats(0, 1), finish=st.sampled_from([None, "MAX_TOKENS", "SAFETY"]))
@settings(max_examples=150, deadline=None)
def test_a_call_is_never_complete_before_its_end_has_arrived(
    one: tuple[dict[str, Any], list[dict[str, Any]]], share: float, finish: str | None
) -> None:
    arguments, parts = one
    body = sse(events_of(parts, None))
    end = len(body.rstrip())
    at = round(share * len(body))
    rest = b"\n\n" + sse([{"candidates": [{"finishReason": finish}]}]) if finish else b""
    response, _ = parse_stream("gemini", [body[:at] + rest])
    if any(call.closed for call in response.tool_calls):
        assert at >= end
        assert json.loads(response.tool_calls[0].arguments) == arguments
    assert at < end or response.tool_calls[0].closed
