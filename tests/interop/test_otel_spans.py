"""The spans of a run: names, parents, times, attributes, errors; for many concurrent runs and every stop reason."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import pydantic
import pytest
from fake_time import OwnTime
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

import agentlab as lab
from agentlab import AgentlabWarning, Budget, errors
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.testing import ScriptedProvider, call, say

from .collected import Collected, attributes, children, seconds

BRIEF_S = 0.05


def look(q: str = "") -> str:
    """A tool that answers at once."""
    return f"seen {q}"


def broken() -> str:
    """A tool that fails."""
    raise ValueError("the secret of the house")


async def slow() -> str:
    """A slow tool."""
    await asyncio.sleep(BRIEF_S)
    return "slept"


class Slow:
    """A model that takes `wait_s` for each answer of its script, with a cap that is never reached."""

    name, model = "slow", "snail"

    def __init__(self, *script: Any, wait_s: float = BRIEF_S) -> None:
        self.script, self.wait_s = script, wait_s

    async def respond(self, request: ModelRequest, context: Any) -> ModelResponse:
        await asyncio.sleep(self.wait_s)
        answer = self.script[context.index - 1]
        if isinstance(answer, Exception):
            raise answer
        return say(answer) if isinstance(answer, str) else answer


def agent_of(*script: Any, to: Collected, **more: Any) -> lab.Agent:
    model = ScriptedProvider(script, name="one", model="m1")
    return lab.Agent(more.pop("model", model), tools=[look, broken, slow], observers=[to.telemetry], **more)


async def done(run: lab.Run) -> lab.RunResult:
    return await run


# Spans and attributes ------------------------------------------------------------------------------------------------------------


def test_a_run_is_a_span_with_its_calls_and_tools_below() -> None:
    to = Collected()
    agent = agent_of(call("look", {"q": "x"}, id="c1"), "done", to=to, name="finder")

    result = asyncio.run(done(agent.run("go")))

    run = to.one("invoke_agent")
    assert run.name == "invoke_agent finder"
    assert run.kind is SpanKind.INTERNAL
    assert run.parent is None
    assert [span.name for span in children(run, to.spans)] == ["chat m1", "execute_tool look", "chat m1"]
    assert len(to.spans) == 4
    assert attributes(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "finder",
        "gen_ai.provider.name": "one",
        "gen_ai.request.model": "m1",
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 10,
        "agentlab.run.id": result.run_id,
        "agentlab.stop_reason": "completed",
        "agentlab.steps": 2,
    }
    chat = to.named("chat")[0]
    assert chat.kind is SpanKind.CLIENT
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "one",
        "gen_ai.request.model": "m1",
        "gen_ai.response.model": "script",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "agentlab.step": 1,
        "agentlab.call": 1,
        "agentlab.finish_reason": "tool_calls",
        "agentlab.retries": 0,
        "agentlab.cost_note": "The price list does not have the provider 'one'.",
    }
    assert attributes(to.one("execute_tool")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "agentlab.step": 1,
    }
    assert all(span.status.status_code is StatusCode.UNSET for span in to.spans)


def test_spans_of_a_recorded_run_have_the_providers_values() -> None:
    to = Collected()
    with lab.replay("fixtures/essay", match="order"):  # its first answer was cut
        agent = lab.Agent("anthropic:claude-sonnet-4-6", observers=[to.telemetry])
        asyncio.run(done(agent.run("Why are night trains coming back?")))

    cut, rest = map(attributes, to.named("chat"))
    assert cut["gen_ai.provider.name"] == "anthropic"
    assert cut["gen_ai.request.model"] == cut["gen_ai.response.model"] == "claude-sonnet-4-6"
    assert cut["gen_ai.response.id"].startswith("msg_")
    assert (cut["gen_ai.response.finish_reasons"], cut["agentlab.finish_reason"]) == (("max_tokens",), "max_tokens")
    assert (cut["server.address"], cut["server.port"]) == ("api.anthropic.com", 443)
    assert cut["gen_ai.usage.cache_read.input_tokens"] == 0
    assert rest["agentlab.step"] == cut["agentlab.step"] == 1
    assert (rest["agentlab.call"], rest["agentlab.finish_reason"]) == (2, "end_turn")
    (count,) = to.points("agentlab.continuations")
    assert (count.value, count.attributes["gen_ai.provider.name"]) == (1, "anthropic")
    (attempts,) = to.points("agentlab.continuation.attempts")
    assert (attempts.sum, attempts.attributes["agentlab.continuation.outcome"]) == (1, "completed")
    assert to.points("agentlab.truncation_exits") == []


# Times ---------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def day(fake_time: OwnTime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day is controlled by the test."""
    midnight_ns = time.time_ns() - int(fake_time.now_s * 1e9)
    for place in ("time.time_ns", "opentelemetry.sdk.trace.time_ns"):
        monkeypatch.setattr(place, lambda: midnight_ns + int(fake_time.monotonic() * 1e9))


@pytest.mark.usefixtures("day")
def test_spans_have_the_times_of_their_events() -> None:
    to = Collected()
    naps: list[tuple[int, int]] = []

    async def nap() -> str:
        """A slow tool that records its times."""
        began = time.time_ns()
        await asyncio.sleep(BRIEF_S)
        naps.append((began, time.time_ns()))
        return "slept"

    class Sleepy(Slow):
        async def respond(self, request: ModelRequest, context: Any) -> ModelResponse:
            await nap()
            return await super().respond(request, context)

    agent = lab.Agent(Sleepy(call("nap"), "done", wait_s=0), tools=[nap], observers=[to.telemetry])
    before = time.time_ns()

    async def go() -> None:
        run = agent.run("go")
        await run.step()
        await asyncio.sleep(2 * BRIEF_S)  # the run's own clock is paused, the wall clock is not
        await run

    asyncio.run(go())
    after = time.time_ns()

    run = to.one("invoke_agent")
    first, tool, second = children(run, to.spans)
    assert [first.name, tool.name, second.name] == ["chat snail", "execute_tool nap", "chat snail"]
    assert before <= run.start_time <= first.start_time
    assert first.end_time <= tool.start_time + 1_000_000
    assert second.start_time - tool.end_time >= 1.9 * BRIEF_S * 1e9
    assert second.end_time <= run.end_time <= after
    for span, (began, ended) in zip((first, tool, second), naps, strict=True):
        assert span.start_time <= began < ended <= span.end_time
        assert seconds(span) == pytest.approx((ended - began) / 1e9, abs=0.001)


@pytest.mark.usefixtures("day")
def test_a_pause_is_part_of_the_run_and_of_no_call() -> None:
    to = Collected()
    agent = agent_of(call("look"), "done", to=to)

    async def go() -> None:
        run = agent.run("go")
        await run.step()
        run.pause()
        asyncio.get_running_loop().call_later(2 * BRIEF_S, run.resume)
        await run

    asyncio.run(go())
    run = to.one("invoke_agent")
    assert seconds(run) >= 1.9 * BRIEF_S
    assert all(seconds(span) < BRIEF_S for span in children(run, to.spans))
    assert [event.name for event in run.events] == ["agentlab.run_paused", "agentlab.run_resumed"]


# Parents and children ------------------------------------------------------------------------------------------------------------


def test_the_run_is_below_the_current_span_and_above_its_tools_spans() -> None:
    to = Collected()
    tracer = to.tracers.get_tracer("mine")

    def with_span() -> str:
        """A tool with its own span."""
        with tracer.start_as_current_span("inside"):
            return "ok"

    model = ScriptedProvider([call("with_span"), "done"])
    agent = lab.Agent(model, tools=[with_span], observers=[to.telemetry])

    async def go() -> None:
        with tracer.start_as_current_span("outside"):
            await agent.run("go")

    asyncio.run(go())
    assert [span.name for span in children(to.one("outside"), to.spans)] == ["invoke_agent scripted:script"]
    assert [span.name for span in children(to.one("execute_tool"), to.spans)] == ["inside"]
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_two_telemetries_restore_the_context() -> None:
    first, second = Collected(), Collected()
    model = ScriptedProvider([call("look"), call("broken"), "done"])
    agent = lab.Agent(model, tools=[look, broken], observers=[first.telemetry, second.telemetry])

    async def go() -> None:
        run = agent.run("go")
        while run.result is None:
            await run.step()
            assert trace.get_current_span() is trace.INVALID_SPAN

    asyncio.run(go())
    for to in (first, second):
        assert len(children(to.one("invoke_agent"), to.spans)) == len(to.spans) - 1 == 5


def test_an_agent_in_a_tool_is_below_that_tool() -> None:
    to = Collected()
    helper = agent_of("helped", to=to, name="helper")

    async def delegate() -> str:
        """Have another agent do it."""
        return (await helper.run("help")).text

    boss = lab.Agent(ScriptedProvider([call("delegate"), "done"]), tools=[delegate], observers=[to.telemetry], name="boss")
    asyncio.run(done(boss.run("go")))

    assert [span.name for span in children(to.one("execute_tool"), to.spans)] == ["invoke_agent helper"]
    assert len(children(to.one("invoke_agent helper"), to.spans)) == 1
    assert len(children(to.one("invoke_agent boss"), to.spans)) == 3


def test_a_sub_agent_is_below_its_tool_and_counts_only_its_own_tokens() -> None:
    to = Collected()
    helper = lab.Agent(ScriptedProvider([say("fine", tokens=(3, 2))]), name="helper").as_tool("ask")
    script = ScriptedProvider([call("ask", {"task": "x"}, tokens=(10, 5)), say("end", tokens=(20, 5))])
    run = lab.Agent(script, name="boss", tools=[helper], observers=[to.telemetry]).run("go")

    async def main() -> None:
        await run

    asyncio.run(main())
    tool, inner, outer = to.one("execute_tool"), to.one("invoke_agent helper"), to.one("invoke_agent boss")
    assert [span.name for span in children(tool, to.spans)] == ["invoke_agent helper"]
    assert [span.name for span in children(inner, to.spans)] == ["chat script"]
    assert attributes(inner)["agentlab.run.parent_id"] == run.id
    assert attributes(inner)["gen_ai.usage.input_tokens"] == 3
    assert attributes(outer)["gen_ai.usage.input_tokens"] == 30


def test_tools_at_the_same_time_have_their_own_spans_with_what_they_start_below() -> None:
    to = Collected()
    here, tracer = asyncio.Barrier(2), to.tracers.get_tracer("mine")

    async def work(mark: str) -> str:
        await here.wait()
        with tracer.start_as_current_span(f"inside {mark}"):
            await asyncio.sleep(0.01 if mark == "a" else 0)
        return mark

    calls = [ToolCall(mark, "work", json.dumps({"mark": mark})) for mark in "ab"]
    tool = lab.tool(work, parallel=True)
    script = ScriptedProvider([say(finish=lab.FinishReason.TOOL_CALLS, calls=calls), "end"])
    run = lab.Agent(script, tools=[tool], observers=[to.telemetry]).run("go")
    asyncio.run(done(run))
    spans = {attributes(span)["gen_ai.tool.call.id"]: span for span in to.spans if span.name == "execute_tool work"}
    assert [[below.name for below in children(spans[mark], to.spans)] for mark in "ab"] == [["inside a"], ["inside b"]]
    assert [attributes(spans[mark])["agentlab.step"] for mark in "ab"] == [1, 1]
    assert max(span.start_time for span in spans.values()) < min(span.end_time for span in spans.values())


def test_a_background_run_is_below_the_span_of_its_cell() -> None:
    to = Collected()
    agent = agent_of(call("look"), "done", to=to)
    with to.tracers.get_tracer("mine").start_as_current_span("cell"):
        run = agent.run("go")
        run.worker.launch()
        run.wait(60)

    assert [span.name for span in children(to.one("cell"), to.spans)] == ["invoke_agent one:m1"]
    assert len(children(to.one("invoke_agent"), to.spans)) == 3


def test_many_concurrent_runs_do_not_mix() -> None:
    to = Collected()
    agents = [
        lab.Agent(
            Slow(call("slow"), call("look"), "done", wait_s=0.002 * (number % 5)),
            tools=[look, slow],
            observers=[to.telemetry],
            name=f"agent {number}",
        )
        for number in range(20)
    ]

    async def go() -> list[lab.RunResult]:
        return await asyncio.gather(*[done(agent.run("go")) for agent in agents])

    results = asyncio.run(go())
    for number, result in enumerate(results):
        run = next(span for span in to.spans if span.name == f"invoke_agent agent {number}")
        assert attributes(run)["agentlab.run.id"] == result.run_id
        below = children(run, to.spans)
        assert [span.name for span in below] == [
            "chat snail",
            "execute_tool slow",
            "chat snail",
            "execute_tool look",
            "chat snail",
        ]
        assert all(run.start_time <= span.start_time <= span.end_time <= run.end_time for span in below)


def test_a_step_that_goes_on_in_a_branch_has_its_call_once() -> None:
    to = Collected()
    agent = agent_of(call("look", {"q": "x"}, tokens=(10, 5)), say("done", tokens=(7, 3)), to=to)

    async def go() -> None:
        run = agent.run("go", approve=True, budget=Budget(timeout=0.05))
        await run
        await asyncio.sleep(0.1)
        assert (await run).stop_reason is lab.StopReason.TIMEOUT
        run.limits.timeout = 60
        branch = run.apply()
        branch.approve()
        assert (await branch).text == "done"

    asyncio.run(go())
    calls = [span for span in to.spans if span.name == "chat m1"]
    assert [attributes(span)["gen_ai.usage.input_tokens"] for span in calls] == [10, 7]
    tools = [span for span in to.spans if span.name == "execute_tool look"]
    assert len(tools) == 1


def test_a_fork_is_linked_to_its_parent() -> None:
    to = Collected()
    agent = agent_of(call("look"), call("look"), "done", to=to)

    async def go() -> tuple[lab.RunResult, lab.RunResult]:
        run = agent.run("go")
        result = await run
        return result, await run.fork(at=1)

    first, fork = asyncio.run(go())
    whole, branch = to.named("invoke_agent")
    (link,) = branch.links
    assert link.context.span_id == whole.context.span_id
    assert attributes(branch)["agentlab.run.parent_id"] == first.run_id
    assert fork.parent_run_id == first.run_id
    assert attributes(branch)["gen_ai.usage.input_tokens"] == 20  # its own two calls, not the shared one
    assert len(children(branch, to.spans)) == 3


def test_the_memory_for_links_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentlab.interop.otel_spans.LINKS_KEPT", 3)
    to = Collected()
    agent = agent_of("done", to=to)
    for _ in range(5):
        asyncio.run(done(agent.run("go")))
    left = agent_of(call("look"), "done", to=to)
    for _ in range(5):
        asyncio.run(left.run("go").step())  # never ends

    assert len(to.telemetry._instruments._contexts) == 3


# Failures ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        pytest.param("broken", {}, "ValueError", id="an exception"),
        pytest.param("nowhere", {}, "unknown_tool", id="unknown tool"),
        pytest.param("look", {"q": []}, "invalid_arguments", id="bad arguments"),
    ],
)
def test_a_failing_tool_has_an_error_span(name: str, arguments: Any, expected: str) -> None:
    to = Collected()
    asyncio.run(done(agent_of(call(name, arguments), "done", to=to).run("go")))

    tool = to.one("execute_tool")
    assert tool.status.status_code is StatusCode.ERROR
    assert attributes(tool)["error.type"] == expected
    assert tool.status.description is None
    assert to.one("invoke_agent").status.status_code is StatusCode.UNSET


class Unspeakable(Exception):  # noqa: N818
    """An exception without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_without_a_text_has_a_span_too() -> None:
    to = Collected()
    with pytest.raises(Unspeakable):
        asyncio.run(done(agent_of(to=to, model=Slow(Unspeakable())).run("go")))
    (failed,) = children(to.one("invoke_agent"), to.spans)
    assert failed.status.status_code is StatusCode.ERROR


@pytest.mark.usefixtures("day")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(errors.ProviderStatusError("no", status=503), "503", id="a status"),
        pytest.param(errors.ProviderConnectionError("no"), "ProviderConnectionError", id="no connection"),
    ],
)
def test_a_failing_call_has_an_error_span(error: Exception, expected: str) -> None:
    to = Collected()
    agent = agent_of(to=to, model=Slow(call("slow"), error))
    asyncio.run(done(agent.run("go")))

    run = to.one("invoke_agent")
    first, tool, failed = children(run, to.spans)
    assert attributes(failed)["error.type"] == expected
    assert failed.status.status_code is StatusCode.ERROR
    assert run.end_time >= failed.end_time >= failed.start_time >= tool.end_time >= first.end_time
    assert seconds(failed) >= BRIEF_S * 0.9
    assert run.status.status_code is StatusCode.ERROR
    assert attributes(run)["error.type"] == expected
    assert attributes(run)["agentlab.stop_reason"] == "error"
    assert "gen_ai.usage.input_tokens" not in attributes(run)  # unknown is not 0


@pytest.mark.usefixtures("day")
@pytest.mark.parametrize(
    ("script", "below", "error_type"),
    [
        pytest.param(["never"], ["chat snail"], "cancelled", id="in a call"),
        pytest.param([call("forever")], ["chat snail", "execute_tool forever"], "interrupted", id="in a tool"),
    ],
)
def test_a_cancelled_run_ends_its_spans(script: list[Any], below: list[str], error_type: str) -> None:
    to = Collected()
    runs: list[lab.Run] = []

    async def forever() -> str:
        """A tool that never returns."""
        asyncio.get_running_loop().call_later(BRIEF_S, runs[0].cancel)  # counted from within the span, however late it started
        await asyncio.sleep(60)
        return ""

    class Endless(Slow):
        async def respond(self, request: ModelRequest, context: Any) -> ModelResponse:
            return say(await forever()) if script == ["never"] else await super().respond(request, context)

    agent = lab.Agent(Endless(*script, wait_s=0), tools=[forever], observers=[to.telemetry])

    async def go() -> None:
        runs.append(agent.run("go"))
        await runs[0]

    asyncio.run(go())
    run = to.one("invoke_agent")
    assert [span.name for span in children(run, to.spans)] == below
    last = children(run, to.spans)[-1]
    assert attributes(last)["error.type"] == error_type
    assert seconds(last) >= 0.9 * BRIEF_S
    assert attributes(run)["agentlab.stop_reason"] == "cancelled"
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.usefixtures("day")
def test_a_call_cut_by_the_timeout() -> None:
    to = Collected()
    asyncio.run(done(agent_of(to=to, model=Slow("late", wait_s=60)).run("go", budget=Budget(timeout=BRIEF_S))))

    assert attributes(to.one("chat"))["error.type"] == "timeout"
    assert seconds(to.one("chat")) == pytest.approx(BRIEF_S, abs=0.001)
    assert attributes(to.one("invoke_agent"))["agentlab.stop_reason"] == "timeout"


def test_a_run_that_never_started_has_no_span() -> None:
    to = Collected()
    run = agent_of("done", to=to).run("go")
    run.stop("changed my mind")

    assert run.result is not None
    assert to.spans == []


class Sulking(SpanProcessor):
    """A processor that always raises."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("no room")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("no network")


def test_a_raising_exporter_is_reported_once_and_never_ends_the_run() -> None:
    to = Collected()
    to.tracers.add_span_processor(Sulking())
    agent = agent_of(call("look"), call("look"), "done", to=to)

    with pytest.warns(AgentlabWarning, match="no room") as warned:
        result = asyncio.run(done(agent.run("go")))

    assert str(result.stop_reason) == "completed"
    assert len(warned) == 1
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert len(to.points("gen_ai.client.operation.duration")) == 1  # spans are lost, metrics continue


# Content -------------------------------------------------------------------------------------------------------------------------

KEY = "sk-" + "abcdefghijklmnop1234"  # built here, so that no scanner takes this file for a leak


def everything_exported(to: Collected) -> str:
    exported = [
        [span.name, attributes(span), span.status.description, [dict(e.attributes or {}) for e in span.events]]
        for span in to.spans
    ]
    return json.dumps(exported, default=str)


def secretive(to: Collected) -> lab.Agent:
    answers = [call("look", {"q": "my diary"}), call("broken"), f"The key is {KEY}."]
    return agent_of(*answers, to=to, instructions="Be discreet.")


def test_content_is_not_exported_unless_requested() -> None:
    to = Collected()
    asyncio.run(done(secretive(to).run("Tell me everything.")))

    exported = everything_exported(to)
    assert not any(word in exported for word in ("diary", "discreet", "everything", KEY, "secret of the house", "The key"))


def test_exported_content_is_redacted() -> None:
    to = Collected(content=True)
    asyncio.run(done(secretive(to).run("Tell me everything.")))

    exported = everything_exported(to)
    assert all(word in exported for word in ("diary", "discreet", "everything", "secret of the house", "The key is REDACTED."))
    assert KEY not in exported
    run = attributes(to.one("invoke_agent"))
    assert json.loads(run["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Tell me everything."}]}
    ]
    assert attributes(to.named("execute_tool")[0])["gen_ai.tool.call.arguments"] == '{"q": "my diary"}'
    assert attributes(to.named("execute_tool")[0])["gen_ai.tool.call.result"] == "seen my diary"


class Trip(pydantic.BaseModel):
    city: str

    @pydantic.field_validator("city")
    @classmethod
    def _known(cls, city: str) -> str:
        raise ValueError(f"{city} is no city")


@pytest.mark.parametrize("content", [False, True])
def test_the_problems_of_a_rejected_answer_are_content(content: bool) -> None:
    to = Collected(content=content)
    agent = agent_of(f'{{"city": "diary {KEY}"}}', to=to, output=Trip)
    result = asyncio.run(done(agent.run("go", budget=Budget(max_turns=1))))

    rejected = next(one for one in to.one("invoke_agent").events if one.name == "agentlab.output_rejected")
    values = dict(rejected.attributes or {})
    problems = values.pop("agentlab.problems", None)
    assert values == {"agentlab.run.id": result.run_id, "agentlab.step": 1, "agentlab.attempt": 1, "agentlab.allowed": 2}
    assert problems == ("city: Value error, diary REDACTED is no city" if content else None)


@pytest.mark.parametrize("content", [False, True])
def test_a_lone_surrogate_can_be_exported(content: bool) -> None:
    to = Collected(content=content)
    asyncio.run(done(agent_of(call("look\ud83d", id="c\ud83d"), "cut \ud83d", to=to).run("go")))

    everything_exported(to).encode()
    assert to.one("execute_tool").name == "execute_tool look?"


def test_a_long_tool_name_from_a_model_is_cut() -> None:
    to = Collected()
    asyncio.run(done(agent_of(call("x" * 10_000), "done", to=to).run("go")))

    assert len(to.one("execute_tool").name) < 120


def test_a_response_with_an_error_is_an_error_span() -> None:
    to = Collected()
    asyncio.run(done(agent_of(say("oh", finish=FinishReason.ERROR), to=to).run("go")))

    assert to.one("chat").status.status_code is StatusCode.ERROR
    assert attributes(to.one("chat"))["error.type"] == "error"


# Ways to instrument --------------------------------------------------------------------------------------------------------------


def instrumented(thing: Any, to: Collected) -> Any:
    return lab.telemetry.instrument(thing, to.tracers, to.meters)


WAYS: dict[str, Callable[[Collected], lab.Run]] = {
    "an agent": lambda to: instrumented(lab.Agent(ScriptedProvider(["done"])), to).run("go"),
    "a run": lambda to: instrumented(lab.Agent(ScriptedProvider(["done"])).run("go"), to),
    "both": lambda to: instrumented(instrumented(lab.Agent(ScriptedProvider(["done"])), to).run("go"), to),
    "for one run": lambda to: lab.Agent(ScriptedProvider(["done"])).run("go", observers=[to.telemetry]),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_instrument_gives_each_span_once(way: str) -> None:
    to = Collected()
    asyncio.run(done(WAYS[way](to)))

    assert [span.name for span in to.spans] == ["invoke_agent scripted:script", "chat script"]


def test_a_run_can_be_instrumented_in_mid_run() -> None:
    to = Collected()

    async def go() -> None:
        run = lab.Agent(ScriptedProvider([call("look"), call("look"), "done"]), tools=[look]).run("go")
        await run.step()
        await lab.telemetry.instrument(run, to.tracers, to.meters)

    asyncio.run(go())
    assert [span.name for span in to.spans] == ["invoke_agent scripted:script", "chat script", "execute_tool look", "chat script"]


def test_observing_in_mid_run_gives_advice() -> None:
    to = Collected()

    async def go() -> None:
        run = lab.Agent(ScriptedProvider([call("look"), "done"]), tools=[look]).run("go")
        await run.step()
        run.observe(to.telemetry)
        await run

    with pytest.warns(AgentlabWarning, match=r"lab\.telemetry\.instrument\(run\)"):
        asyncio.run(go())


def test_other_objects_cannot_be_instrumented() -> None:
    with pytest.raises(errors.ConfigurationError, match="pass an Agent, or a Run"):
        instrumented("openai:gpt", Collected())


def test_an_address_in_place_of_a_provider_is_refused_with_the_way_to_set_it() -> None:
    for wrong in ({"tracer_provider": "http://127.0.0.1:4318"}, {"meter_provider": 4318}):
        with pytest.raises(errors.ConfigurationError, match="OTEL_EXPORTER_OTLP_ENDPOINT"):
            lab.Telemetry(**wrong)  # type: ignore[arg-type]


def test_without_an_sdk_nothing_happens() -> None:
    agent = lab.Agent(ScriptedProvider([call("look"), "done"]), tools=[look], observers=[lab.Telemetry()])
    with contextlib.nullcontext():
        assert asyncio.run(done(agent.run("go"))).text == "done"
