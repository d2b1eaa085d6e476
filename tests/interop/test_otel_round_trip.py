"""agentlab's own spans: run -> spans -> file -> importer gives the run's frame, in the columns that spans hold."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import agentlab as lab
from agentlab import Budget, HasToolCall, StepCountIs, errors
from agentlab.model.messages import ToolCall
from agentlab.model.usage import Usage, UsageSource
from agentlab.testing import ScriptedProvider, call, say
from tests.fixtures.scenarios import ALL, Fixture

OF_STEPS = [
    "run_id", "step", "calls", "finish_reason", "raw_finish_reason", "stop_reason", "input_tokens", "output_tokens",
    "reasoning_tokens", "cache_read_tokens", "cache_write_tokens", "total_tokens", "usage_source", "cost_usd", "cost_source",
    "child_calls", "child_tokens", "child_cost_usd", "cumulative_tokens", "cumulative_cost_usd", "known_tokens",
    "known_cost_usd", "tool_calls", "tools", "tool_errors",
]  # fmt: skip
WITH_CONTENT = ["text"]
OF_RUNS = [
    "run_id", "parent_run_id", "forked_at", "parent_step", "called_by", "stop_reason", "steps", "calls", "total_tokens",
    "cost_usd", "cost_source", "child_calls", "child_tokens", "child_cost_usd",
]  # fmt: skip
ROUGHLY = ["started_s", "duration_s"]  # a span has its own clock, read later by as much as a loaded machine takes
CLOCKS_APART_S = 2.0


class Written:
    """The same spans, written in every format of the OpenTelemetry packages."""

    def __init__(self, folder: Path, *, content: bool = True) -> None:
        folder.mkdir(exist_ok=True)
        self.printed = io.StringIO()
        self.memory = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.folder = folder
        self.compact = io.StringIO()
        compact = ConsoleSpanExporter(out=self.compact, formatter=lambda span: span.to_json(indent=None) + "\n")
        for exporter in (
            FileSpanExporter(str(folder / "otlp.jsonl")),
            ConsoleSpanExporter(out=self.printed),
            compact,
            self.memory,
        ):
            self.tracers.add_span_processor(SimpleSpanProcessor(exporter))
        self.telemetry = lab.Telemetry(self.tracers, content=content)

    def close(self) -> None:
        self.tracers.shutdown()

    def read(self, how: str) -> lab.importers.Imported:
        self.tracers.force_flush()
        match how:
            case "otlp":
                return lab.importers.otel(self.folder / "otlp.jsonl")
            case "console":
                (self.folder / "console.json").write_text(self.printed.getvalue(), encoding="utf-8")
                return lab.importers.otel(self.folder / "console.json")
            case "lines":
                (self.folder / "lines.jsonl").write_text(self.compact.getvalue(), encoding="utf-8")
                return lab.importers.otel(str(self.folder / "l*.jsonl"))
            case "dicts":
                return lab.importers.otel([json.loads(span.to_json()) for span in self.spans])
            case _:
                return lab.importers.otel(self.spans)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.memory.get_finished_spans()


@pytest.fixture
def to(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path / "spans")
    yield made
    made.close()


def look(q: str = "") -> str:
    """A tool."""
    return f"seen {q}"


def broken() -> str:
    """A tool that fails."""
    raise ValueError("no")


def of(model: Any, to: Written, **more: Any) -> lab.Agent:
    return lab.Agent(model, tools=[look, broken, *more.pop("tools", [])], observers=[to.telemetry], **more)


def scripted(*script: Any, **more: Any) -> ScriptedProvider:
    return ScriptedProvider(script, name="one", model="m1", **more)


async def done(run: lab.Run) -> lab.RunResult:
    return await run


def same(imported: lab.importers.Imported, runs: list[Any], columns: list[str] | None = None) -> None:
    """Assert that the imported frames are those of these runs."""
    for what, names in (("steps", columns or OF_STEPS + WITH_CONTENT), ("runs", OF_RUNS)):
        theirs, ours = getattr(imported, what), lab.frame(runs, what)
        order = ["run_id", "step"] if what == "steps" else ["run_id"]
        theirs, ours = (frame.sort_values(order, ignore_index=True)[names] for frame in (theirs, ours))
        pd.testing.assert_frame_equal(theirs, ours, obj=what)
    both = imported.steps.merge(lab.frame(runs), on=["run_id", "step"], suffixes=("", "_ours"))
    for name in ROUGHLY:
        assert (both[name] - both[f"{name}_ours"]).abs().max() < CLOCKS_APART_S


def replayed(fixture: Fixture, to: Written) -> list[Any]:
    """The runs of a recording, each with the runs of its sub-agents."""

    async def main() -> list[Any]:
        agent = fixture.agent()
        agent.observers = (to.telemetry,)
        found: list[Any] = []
        with lab.replay(fixture.recordings):
            for take in fixture.scenario.takes:
                run = agent.run(fixture.scenario.question, stop=take.stop, budget=take.budget)
                await run
                found += [run, *run.children]
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("fixture", ALL, ids=lambda fixture: fixture.id)
def test_replayed_runs_are_read_from_the_collectors_lines(to: Written, fixture: Fixture) -> None:
    runs = replayed(fixture, to)
    same(to.read("otlp"), runs)


HOW = ("otlp", "console", "lines", "dicts", "memory")


@pytest.mark.parametrize("how", HOW)
def test_every_format_of_the_same_spans_gives_the_same_frames(to: Written, how: str) -> None:
    runs = [run for fixture in ALL if fixture.id in ("trip/openai", "scout/openai") for run in replayed(fixture, to)]
    found = to.read(how)
    same(found, runs)
    assert found.notes == ()
    expected = to.read("memory")
    for theirs, ours in ((found.steps, expected.steps), (found.runs, expected.runs)):
        pd.testing.assert_frame_equal(theirs, ours, check_exact=False, rtol=0, atol=3e-6)  # the SDK prints microseconds


def test_without_content_the_tools_are_those_that_ran(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    to = Written(tmp_path / "spans", content=False)
    request.addfinalizer(to.close)
    runs = [run for fixture in ALL if fixture.id in ("trip/gemini", "scout/openai") for run in replayed(fixture, to)]
    found = to.read("otlp")
    same(found, runs, OF_STEPS)
    assert found.steps["text"].isna().all()
    assert any("the spans do not say which calls the model requested" in note for note in found.notes)


ENDS = {
    "completed": ([call("look"), "done"], {}),
    "a tool that fails": ([call("broken"), call("nothing_like_it"), "done"], {}),
    "turns": ([call("look")] * 5, {"budget": Budget(max_turns=2)}),
    "tokens": ([call("look", tokens=(50, 50))] * 5, {"budget": Budget(max_tokens=150)}),
    "money": ([call("look", cost=0.1)] * 5, {"budget": Budget(max_cost=0.15)}),
    "a condition": ([call("look")] * 5, {"stop": StepCountIs(3)}),
    "a goal": ([call("look")] * 5, {"stop": HasToolCall("look")}),
    "unknown usage": ([call("look", tokens=(None, None)), call("look"), "done"], {"budget": Budget(max_turns=9)}),
    "half of the usage": ([replace(call("look"), usage=Usage(7, None, source=UsageSource.REPORTED)), "done"], {}),
    "some of the cost": ([call("look", cost=0.1), call("look"), say("done", cost=0.2)], {}),
    "continued": ([say("one two", finish=lab.FinishReason.MAX_TOKENS), "three", "four"], {}),
    "an error": ([call("look"), errors.ProviderConnectionError("gone")], {}),
    "several tools": (
        [say(finish=lab.FinishReason.TOOL_CALLS, calls=[ToolCall(str(n), "look", "{}") for n in range(3)]), "done"],
        {},
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_stop_reason_is_read_from_spans(to: Written, name: str) -> None:
    script, more = ENDS[name]
    run = of(scripted(*script), to).run("go", **more)
    asyncio.run(done(run))
    columns = [column for column in OF_STEPS if column != "tool_errors" or name != "a tool that fails"]
    same(to.read("otlp"), [run], columns)


def test_a_fork_has_the_steps_of_its_parent_if_they_are_in_the_file(to: Written) -> None:
    run = of(scripted(*[call("look")] * 3, "done"), to).run("go")

    async def main() -> lab.Run:
        await run
        branch = run.fork(at=2)
        await branch
        return branch

    branch = asyncio.run(main())
    same(to.read("otlp"), [run, branch])
    found = lab.importers.otel([span for span in to.spans if (span.attributes or {}).get("agentlab.run.id") != run.id])
    steps = found.steps[found.steps["run_id"] == branch.id]
    assert steps["step"].to_list() == [3, 4]
    assert steps["cumulative_tokens"].isna().all()
    assert steps["known_tokens"].to_list() == [15, 30]
    row = found.runs[found.runs["run_id"] == branch.id].iloc[0]
    assert (row["parent_run_id"], row["steps"]) == (run.id, 4)
    assert pd.isna(row["total_tokens"])
    assert any("1 run without their first steps" in note for note in found.notes)


def test_a_run_cut_short_before_its_own_span_was_written(to: Written) -> None:
    runs = [of(scripted(call("look"), "done"), to).run("go") for _ in range(2)]
    for run in runs:
        asyncio.run(done(run))
    found = lab.importers.otel([span for span in to.spans if not span.name.startswith("invoke_agent")])
    assert len(found.runs) == 2
    assert found.steps["step"].to_list() == [1, 2, 1, 2]
    assert found.runs["stop_reason"].isna().all()
    assert found.runs["total_tokens"].to_list() == [30, 30]
    assert any("without an invoke_agent span" in note for note in found.notes)


def test_the_dtypes_equal_those_of_our_own_frames(to: Written) -> None:
    run = of(scripted("done"), to).run("go")
    asyncio.run(done(run))
    found = to.read("otlp")
    for what, frame in (("steps", found.steps), ("runs", found.runs)):
        ours = lab.frame(run, what)
        assert frame.dtypes.to_dict() == ours.dtypes.to_dict()
