"""Every event carries the id of its run, wherever it is read."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import agentlab as lab
from agentlab.model.finish_reasons import FinishReason
from agentlab.records import events
from agentlab.testing import ScriptedProvider, call, say


@lab.tool
def look(q: str) -> str:
    """Look something up."""
    return f"saw {q}"


def agent(*script: object, **more: object) -> lab.Agent:
    return lab.Agent(ScriptedProvider(list(script)), **more)  # type: ignore[arg-type]


async def finished(run: lab.Run) -> lab.RunResult:
    return await run


def busy() -> lab.Agent:
    """An agent whose run has most kinds of events."""
    scout = agent(say("half", finish=FinishReason.MAX_TOKENS), "Graz.")
    calls = [call("look", {"q": "tea"}), call("scout", {"task": "go"}), say("cut", finish=FinishReason.MAX_TOKENS), " off."]
    return agent(*calls, tools=[look, scout.as_tool("scout")], approve=["look"])


def test_one_observer_tells_the_events_of_several_runs_apart() -> None:
    seen: list[events.Event] = []

    async def go() -> list[lab.Run]:
        runs = [busy().run(f"task {number}", observers=[seen.append], approver=lambda call: True) for number in range(3)]
        await asyncio.gather(*map(finished, runs))
        fork = runs[0].fork(at=1)
        await fork
        return [*runs, fork]

    runs = asyncio.run(go())
    every_run = [*runs, *(child for run in runs for child in run.children)]
    assert len({run.id for run in every_run}) == 8
    for run in every_run:
        own = [event for event in seen if event.run_id == run.id]
        kept = [event for event in own if not isinstance(event, events.TextReceived | events.ArgumentsReceived)]
        assert kept == run.events
        assert isinstance(own[-1], events.RunEnded) and own[-1].result is run.result
    assert {event.run_id for event in seen} == {run.id for run in every_run}
    started = [event for event in seen if isinstance(event, events.ChildStarted)]
    assert [(event.run_id, event.child_id) for event in started] == [
        (run.id, run.children[0].id) for run in run_order(started, runs)
    ]


def run_order(started: list[events.ChildStarted], runs: list[lab.Run]) -> list[lab.Run]:
    """The runs in the order in which their sub-agents were started."""
    by_id = {run.id: run for run in runs}
    return [by_id[event.run_id] for event in started]


def test_a_chosen_id_is_in_the_events() -> None:
    result = asyncio.run(finished(agent("Done.").run("?").with_id("monday")))
    assert {event.run_id for event in result.events} == {"monday"}
    changed = agent("Done.").run("?").with_id("tuesday")
    changed.limits.max_turns = 3
    assert [event.run_id for event in changed.events] == ["tuesday"]


def test_every_kind_of_event_has_the_field() -> None:
    for kind in events.Event.__subclasses__():
        assert "run_id" in {field.name for field in dataclasses.fields(kind)}, kind


def test_stored_events_have_the_id(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    run = store.keep(busy().run("task", approver=lambda call: True))
    result = asyncio.run(finished(run))
    loaded = store.load(run.id)
    assert loaded.events[:-1] == list(result.events[:-1])
    assert {event.run_id for event in loaded.events} == {run.id}


def test_events_of_spans_have_the_id() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    run = busy().run("task", approver=lambda call: True)
    lab.telemetry.instrument(run, provider)
    asyncio.run(finished(run))
    found = [event for span in exporter.get_finished_spans() for event in span.events]
    assert found
    assert {(event.attributes or {})["agentlab.run.id"] for event in found} == {run.id}
