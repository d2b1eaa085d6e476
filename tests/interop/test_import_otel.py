"""Spans from other tools: OpenTelemetry's own instrumentation of the OpenAI client, and hand-written ones (synthetic) that follow
the current and earlier conventions."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import agentlab as lab
from agentlab._internal.formatting import counted
from agentlab.errors import ConfigurationError, StorageError

otel = lab.importers.otel


# Another library -----------------------------------------------------------------------------------------------------------------


class Answers(BaseHTTPRequestHandler):
    """A chat completions server: a tool call, an answer, and then only errors."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        answer = self.server.script.pop(0) if self.server.script else None  # type: ignore[attr-defined]
        body = json.dumps(answer or {"error": {"message": "overloaded"}}).encode()
        self.send_response(200 if answer else 500)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def completion(message: dict[str, Any], why: str, tokens: tuple[int, int, int]) -> dict[str, Any]:
    tokens_in, cached, out = tokens
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5.4-mini",
        "choices": [{"index": 0, "finish_reason": why, "message": {"role": "assistant", "content": None, **message}}],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": out,
            "total_tokens": tokens_in + out,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


ASKS = {"tool_calls": [{"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"q": "x"}'}}]}


@pytest.fixture
def client() -> Iterator[Any]:
    from openai import OpenAI

    script = [completion(ASKS, "tool_calls", (100, 64, 10)), completion({"content": "It is Paris."}, "stop", (130, 0, 20))]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.script = script  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with OpenAI(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}/v1", max_retries=0) as made:
        yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("content", [True, False])
def test_spans_of_the_openai_client(client: Any, tmp_path: Path, content: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from openai import OpenAIError
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "span_only" if content else "no_content")
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(FileSpanExporter(str(tmp_path / "spans.jsonl"))))
    instrumentor = OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=tracers)
    tracer = trace.get_tracer("mine", tracer_provider=tracers)
    messages: list[Any] = [{"role": "user", "content": "What is the capital?"}]
    try:
        with tracer.start_as_current_span("handle request"):
            for _ in range(2):
                client.chat.completions.create(model="gpt-5.4-mini", messages=messages)
                given_attributes = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "look",
                    "gen_ai.tool.call.id": "t1",
                }
                with tracer.start_as_current_span("execute_tool look", attributes=given_attributes):
                    pass
                break
            client.chat.completions.create(model="gpt-5.4-mini", messages=messages)
            with pytest.raises(OpenAIError):
                client.chat.completions.create(model="gpt-5.4-mini", messages=messages)
    finally:
        instrumentor.uninstrument()
        tracers.shutdown()

    found = otel(tmp_path)

    steps, (_, run) = found.steps, next(found.runs.iterrows())
    assert len(found.runs) == 1
    assert steps["finish_reason"].to_list() == ["tool_calls", "end_turn", pd.NA]
    assert steps["raw_finish_reason"].to_list() == ["tool_calls", "stop", pd.NA]
    assert steps["input_tokens"].to_list() == [100, 130, pd.NA]
    assert steps["cache_read_tokens"].to_list()[:1] == [64]
    assert steps["cumulative_tokens"].to_list() == [110, 260, pd.NA]
    assert steps["known_tokens"].to_list() == [110, 260, 260]
    assert steps["tools"].to_list() == ["look", "", ""]
    assert steps["calls"].to_list() == [1, 1, 0]
    assert set(steps["cost_source"]) == {"unknown"}  # a loopback server without known prices
    assert all("127.0.0.1" in note for note in steps["cost_note"][:2])
    assert steps["error"].notna().to_list() == [False, False, True]
    assert steps["text"].to_list() == (["", "It is Paris.", pd.NA] if content else [pd.NA] * 3)
    assert pd.isna(run["stop_reason"])
    assert (run["provider"], run["model"]) == ("openai", "gpt-5.4-mini")
    assert run["prompt"] == "What is the capital?" if content else pd.isna(run["prompt"])


# Written by hand -----------------------------------------------------------------------------------------------------------------

TRACE = "0af7651916cd43dd8448eb211c80319c"
FLAVOURS = ("otlp", "base64", "sdk")


def span(
    number: int,
    name: str,
    parent: int = 0,
    at: float = 0,
    until: float | None = None,
    failed: bool = False,
    **given_attributes: Any,
) -> dict:
    """A span as plain values; attributes given as keywords have `_` for `.`."""
    return {
        "n": number,
        "name": name,
        "parent": parent,
        "at": at,
        "until": at + 1 if until is None else until,
        "failed": failed,
        "told": given_attributes,
    }


def chat(
    number: int, parent: int = 0, at: float = 0, why: str = "stop", tokens: tuple[int, int] = (10, 5), **given_attributes: Any
) -> dict:
    more = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-6",
        "gen_ai.response.finish_reasons": [why],
        "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.output_tokens": tokens[1],
    }
    return span(number, "chat", parent, at, **{**more, **given_attributes})


def tool(number: int, parent: int = 0, at: float = 0, name: str = "look", **given_attributes: Any) -> dict:
    return span(
        number, name, parent, at, **{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, **given_attributes}
    )


def agent(number: int, parent: int = 0, at: float = 0, until: float = 10, **given_attributes: Any) -> dict:
    return span(number, "invoke_agent", parent, at, until, **{"gen_ai.operation.name": "invoke_agent", **given_attributes})


def typed(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [typed(one) for one in value]}}
        case _:
            return {"stringValue": value}


def formed(one: dict[str, Any], flavour: str, of: str = TRACE) -> dict[str, Any]:
    at, until = (int(time * 1e9) + 1_700_000_000_000_000_000 for time in (one["at"], one["until"]))
    if flavour == "sdk":
        return {
            "name": one["name"],
            "context": {"trace_id": f"0x{of}", "span_id": f"0x{one['n']:016x}", "trace_state": "[]"},
            "parent_id": f"0x{one['parent']:016x}" if one["parent"] else None,
            "start_time": pd.Timestamp(at, tz="UTC").isoformat().replace("+00:00", "Z"),
            "end_time": pd.Timestamp(until, tz="UTC").isoformat().replace("+00:00", "Z"),
            "status": {"status_code": "ERROR" if one["failed"] else "UNSET"},
            "attributes": one["told"],
        }

    def number(value: str) -> str:
        return base64.b64encode(bytes.fromhex(value)).decode() if flavour == "base64" else value

    return {
        "traceId": number(of),
        "spanId": number(f"{one['n']:016x}"),
        "parentSpanId": number(f"{one['parent']:016x}") if one["parent"] else "",
        "name": one["name"],
        "startTimeUnixNano": str(at),
        "endTimeUnixNano": str(until),
        "status": {"code": 2} if one["failed"] else {},
        "attributes": [{"key": name, "value": typed(value)} for name, value in one["told"].items()],
    }


def written(spans: list[dict], flavour: str = "otlp", of: str = TRACE) -> list[dict]:
    return [formed(one, flavour, of) for one in spans]


def row(found: Any, name: str) -> list[Any]:
    return found.steps[name].to_list()


LOOP = [
    agent(1),
    chat(2, 1, 1, "tool_use"),
    tool(3, 1, 2),
    tool(4, 1, 3, "find"),
    chat(5, 1, 4),
    tool(6, 1, 5, failed=True),
    chat(7, 1, 6),
]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_step_is_a_call_with_the_tools_until_the_next_call(flavour: str, tmp_path: Path) -> None:
    if flavour == "sdk":
        text = "".join(json.dumps(one, indent=4) + "\n" for one in written(LOOP, flavour))
    else:
        text = "".join(
            json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}) + "\n" for one in written(LOOP, flavour)
        )
    (tmp_path / "spans.jsonl").write_text(text, encoding="utf-8")
    found = otel(tmp_path / "spans.jsonl")
    assert row(found, "tools") == ["look, find", "look", ""]
    assert row(found, "tool_errors") == [0, 1, 0]
    assert row(found, "finish_reason") == ["tool_calls", "tool_calls", "end_turn"]
    assert row(found, "started_s") == [1.0, 4.0, 6.0]
    assert row(found, "duration_s") == [3.0, 2.0, 1.0]
    assert row(found, "cumulative_tokens") == [15, 30, 45]
    assert row(found, "cost_source") == ["priced"] * 3
    assert found.runs["run_id"].to_list() == [f"{TRACE}-{1:016x}"]
    assert found.runs["stop_reason"].isna().all()
    assert found.runs["elapsed_s"].to_list() == [10.0]


def test_runs_of_other_tools_count_once_they_are_marked_as_finished() -> None:
    found = otel(written(LOOP))
    assert any(note.endswith("stop_reason is NA, which comparisons count as not ended.") for note in found.notes)
    runs = found.runs.assign(terminated=True)
    for frame, counts in ((found.runs, [1, 0]), (runs, [0, 1])):
        assert lab.summary(frame, by="model")[["not_ended", "completed"]].to_numpy().tolist() == [counts]
    tried = lab.backtest(found.steps, lab.StepCountIs([2, 3]), runs=runs)
    assert tried["success_rate"].to_list() == [0, 1]


def test_a_runs_own_totals_are_not_added_to_those_of_its_calls() -> None:
    own = {"gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 10}
    assert otel(written([agent(1, **own), chat(2, 1), chat(3, 1, 2)])).runs["total_tokens"].to_list() == [30]
    found = otel(written([agent(1, **own)]))
    assert found.runs["total_tokens"].to_list() == [30]
    assert len(found.steps) == 0
    assert found.runs["steps"].isna().all()
    assert any("in the runs frame only" in note for note in found.notes)


def test_what_json_load_returns_is_read() -> None:
    spans = written([agent(1), chat(2, 1)])
    for read in ({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, spans[1]):
        assert len(otel(read).steps) == 1


def test_calls_without_an_agent_are_grouped_by_conversation_or_trace() -> None:
    spans = [
        *written([chat(1, at=1, **{"gen_ai.conversation.id": "c"}), chat(2, at=2)]),
        *written([chat(1, at=3, **{"gen_ai.conversation.id": "c"}), chat(2, 99, at=4)], of="f" * 32),
    ]
    found = otel(spans)
    assert found.runs.set_index("run_id")["steps"].to_dict() == {"c": 2, TRACE: 1, "f" * 32: 1}


def test_a_call_made_by_a_tool_is_a_run_below_the_step() -> None:
    spans = [
        *(agent(1), chat(2, 1, 1, "tool_use"), tool(3, 1, 2, **{"gen_ai.tool.call.id": "t1"})),
        *(agent(4, 3, 2.1, 2.9), chat(5, 4, 2.2, tokens=(100, 1))),
        *(chat(6, 1, 4, "tool_use"), tool(7, 1, 5, **{"gen_ai.tool.call.id": "t2"}), chat(8, 7, 5.1, tokens=(200, 2))),
        chat(9, 1, 7),
    ]
    found = otel(written(spans))
    runs = found.runs.set_index("run_id")
    top, by_agent, by_tool = (f"{TRACE}-{number:016x}" for number in (1, 4, 7))
    assert runs.loc[[by_agent, by_tool], "parent_run_id"].to_list() == [top, top]
    assert runs.loc[[by_agent, by_tool], "parent_step"].to_list() == [1, 2]
    assert runs.loc[[by_agent, by_tool], "called_by"].to_list() == ["t1", "t2"]
    assert runs["total_tokens"].to_dict() == {top: 45, by_agent: 101, by_tool: 202}
    assert runs.loc[top, "child_tokens"] == 303
    steps = found.steps[found.steps["run_id"] == top]
    assert steps["child_tokens"].to_list() == [101, 202, 0]
    assert steps["cumulative_tokens"].to_list() == [116, 333, 348]


def test_one_call_from_two_instrumentations_counts_once() -> None:
    outer = span(2, "chat", 1, 1, **{"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["stop"]})
    found = otel(written([agent(1), outer, chat(3, 2, 1.1), chat(4, 1, 3), chat(5, 4, 3.1)]))
    assert row(found, "total_tokens") == [15, 15]
    assert any("the same call was recorded twice" in note for note in found.notes)


@pytest.mark.parametrize(
    ("given_attributes", "expected"),
    [
        ({"gen_ai.usage.cache_read.input_tokens": 60}, (100, 60, None)),
        ({"gen_ai.usage.cache_read.input_tokens": 500}, (600, 500, None)),
        ({"gen_ai.usage.cache_read_input_tokens": 90, "gen_ai.usage.cache_creation_input_tokens": 20}, (210, 90, 20)),
        ({"gen_ai.usage.cache_read.input_tokens": 0, "gen_ai.usage.cache_creation.input_tokens": 0}, (100, 0, 0)),
    ],
)
def test_the_input_includes_cached_tokens(given_attributes: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = otel(written([chat(1, tokens=(100, 5), **given_attributes)])).steps.iloc[0]
    read = tuple(
        None if pd.isna(found[name]) else found[name] for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens")
    )
    assert read == expected
    assert found["total_tokens"] == expected[0] + 5


OLDER = {
    "before 1.37": {
        "gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "gpt-5.4-mini",
        "gen_ai.response.finish_reasons": ["stop"], "gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 5,
    },
    "with no operation": {
        "gen_ai.system": "openai", "gen_ai.request.model": "gpt-5.4-mini", "gen_ai.response.finish_reasons": "[\"stop\"]",
        "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5,
    },
    "OpenLLMetry": {
        "llm.request.type": "chat", "gen_ai.system": "OpenAI", "gen_ai.request.model": "gpt-5.4-mini",
        "gen_ai.completion.0.finish_reason": "stop", "gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 5,
    },
    "OpenInference": {
        "openinference.span.kind": "LLM", "llm.provider": "openai", "llm.model_name": "gpt-5.4-mini", "llm.finish_reason": "stop",
        "llm.token_count.prompt": 10, "llm.token_count.completion": 5,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OLDER)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_older_and_alternative_names_are_read(name: str, flavour: str) -> None:
    found = otel(written([span(1, "x", **OLDER[name])], flavour)).steps.iloc[0]
    assert (found["finish_reason"], found["input_tokens"], found["output_tokens"]) == ("end_turn", 10, 5)
    assert found["model"] == "gpt-5.4-mini"
    assert found["provider"].lower() == "openai"
    assert found["cost_source"] == "priced"


def test_a_failed_span_ends_in_an_error() -> None:
    broken = span(2, "chat", 1, 1, failed=True, **{"gen_ai.operation.name": "chat", "error.type": "500"})
    found = otel(written([agent(1, **{"error.type": "Timeout"}), broken]))
    assert row(found, "error") == ["500"]
    assert row(found, "stop_reason") == ["error"]
    assert found.runs["truncated"].to_list() == [True]
    assert row(found, "total_tokens") == [pd.NA]
    assert row(found, "usage_source") == ["unknown"]


# Unreadable input ----------------------------------------------------------------------------------------------------------------


SAID = {"type": "text", "content": "hello"}
ANSWERS: dict[str, tuple[Any, str | None]] = {
    "parts": ([{"role": "assistant", "parts": [SAID]}], "hello"),
    "as text": ('[{"role": "assistant", "parts": [{"type": "text", "content": "hello"}]}]', "hello"),
    "other parts": ([{"role": "assistant", "parts": [{"type": "reasoning", "content": "?"}, SAID, {"type": "blob"}]}], "hello"),
    "no parts": ([{"role": "assistant", "parts": []}], ""),
    "content of OpenAI": ([{"role": "assistant", "content": "hello"}], None),
    "text for content": ([{"role": "assistant", "parts": [{"type": "text", "text": "hello"}]}], None),
    "a call without a name": ([{"role": "assistant", "parts": [SAID, {"type": "tool_call", "id": "1"}]}], None),
    "a part without a type": ([{"role": "assistant", "parts": [{"content": "hello"}]}], None),
    "parts that are texts": ([{"role": "assistant", "parts": ["hello"]}], None),
    "texts": (["hello"], None),
    "a text": ("hello", None),
    "cut off": ('[{"role": "assistant", "parts": [{"type": "te', None),
    "one of two": ([{"role": "assistant", "parts": [SAID]}, {"role": "assistant", "text": "hello"}], None),
}


@pytest.mark.parametrize(("messages", "text"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_in_an_unknown_form_is_unknown_and_noted(messages: Any, text: str | None) -> None:
    spans = written([chat(1)], "sdk")
    spans[0]["attributes"]["gen_ai.output.messages"] = messages
    found = otel(spans)
    assert found.steps["text"].to_list() == [pd.NA if text is None else text]
    note = "1 call with an answer in an unknown form: its text and its tool calls are unknown."
    assert (note in found.notes) is (text is None)


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lambda spans: {"resourceSpans": [{"scopeSpans": [{"spans": [*spans, "x", 5]}]}]}, 2),
        (lambda spans: {"resourceSpans": [{"scopeSpans": [{"spans": spans}, "x"]}, None]}, 2),
        (lambda spans: {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}, {"scope": [{"spans": spans}]}]}, 1),
        (lambda spans: {"resourceSpans": [{"scopeSpans": [{"spans": spans}, {"spans": {"a": 1}}]}]}, 1),
        (lambda spans: {"resourceSpans": [{"scopeSpans": [{"spans": spans}, {}]}, {"scopeSpans": []}]}, 0),
    ],
    ids=["spans", "scopes", "another key", "no list", "empty"],
)
def test_pieces_of_an_unknown_form_are_counted(change: Any, broken: int) -> None:
    found = otel(change(written([chat(1)])))
    assert len(found.steps) == 1
    notes = [note for note in found.notes if "broken" in note]
    assert notes == ([f"{counted(broken, 'broken piece')} left out, the first at item 1."] if broken else [])


def test_broken_lines_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    good = [json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}) for one in written(LOOP)]
    pretty = json.dumps(written([chat(8, 1, 9)], "sdk")[0], indent=4)
    lines = [
        *good[:2],
        good[2][:-20],
        "",
        "not json",
        "[" * 100_000,
        '{"resourceLogs": []}',
        pretty[: len(pretty) // 2],
        pretty,
        *good[3:],
    ]
    (tmp_path / "spans.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = otel(tmp_path / "spans.jsonl")
    assert row(found, "tools") == ["find", "look", "", ""]
    notes = " ".join(found.notes)
    assert "4 broken pieces left out, the first at spans.jsonl, line 3" in notes
    assert "1 other object left out" in notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has nothing"),
        ("hello\nthere\n", "2 broken pieces, the first at spans.jsonl, line 1"),
        ('{"a": 1}\n', r"1 other object \(keys: a\)"),
        (json.dumps(written([span(1, "GET /", secret="sk-1")])[0]), "1 span without a model call"),
    ],
)
def test_a_file_without_spans_says_what_is_expected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "spans.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(StorageError, match=message) as caught:
        otel(tmp_path / "spans.jsonl")
    assert "resourceSpans" in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_missing_paths_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="found no file at"):
        otel(tmp_path / "gone.jsonl")
    with pytest.raises(StorageError, match="it has nothing"):
        otel([])


@pytest.mark.parametrize("value", [-1, 10**30, 1.5, float("nan"), float("inf"), True, "many", [1], {"a": 1}, None, "9" * 5000])
def test_impossible_numbers_are_unknown(value: Any) -> None:
    names = (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.cost",
        "gen_ai.usage.cache_read.input_tokens",
    )
    found = otel(written([chat(1), chat(2, at=2, **dict.fromkeys(names, value))], "sdk"))
    assert pd.isna(row(found, "total_tokens")[1])
    assert row(found, "known_tokens") == [15, 15]


def test_cyclic_and_duplicated_spans_are_read() -> None:
    spans = written([chat(1, 2), agent(2, 3), agent(3, 2), chat(1, 2), tool(4, 4), chat(5, 4)])
    found = otel(spans)
    assert int(found.steps["total_tokens"].sum()) == 30
    assert any("1 span duplicated" in note for note in found.notes)


def test_a_long_chain_is_read_in_linear_time() -> None:
    chain = [span(number + 1, "step", number) for number in range(1, 20_000)]
    found = otel(written([agent(1), *chain, chat(90_000, 20_000), chat(90_001, 20_000)]))
    assert found.runs["steps"].to_list() == [2]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["key", "value", "values", "stringValue", "intValue", "arrayValue", "kvlistValue", "parts", "type"]),
            inner,
        )
    ),
    max_leaves=8,
)
NAMES = [
    *OLDER["OpenLLMetry"],
    *OLDER["before 1.37"],
    "gen_ai.output.messages",
    "gen_ai.input.messages",
    "agentlab.step",
    "agentlab.run.id",
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), json_values), max_size=4),
    st.lists(st.integers(0, 6), min_size=4, max_size=4),
    st.dictionaries(
        st.sampled_from(["parentSpanId", "status", "attributes", "startTimeUnixNano", "name", "traceId"]), json_values
    ),
)
def test_any_attributes_leave_the_rest_readable(given_attributes: list[dict], parents: list[int], over: dict[str, Any]) -> None:
    odd = written([span(number + 2, "x", parents[number], **one) for number, one in enumerate(given_attributes)], "sdk")
    strange = {**formed(chat(80), "otlp"), **over}
    found = otel([*written([chat(1, tokens=(1_000, 1))], of="e" * 32), *odd, strange])
    assert 1_001 in found.steps["total_tokens"].dropna().to_list()
    assert found._repr_html_()
