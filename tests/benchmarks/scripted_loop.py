"""A run whose model needs no network: the cost of the loop itself, with its history, readings and recorder.

`needed` shows which part of a step no faster loop could save: the values that the step keeps, and the task of its tool. `decided` adds
the limits, conditions and totals, read one after another: the rest of a step is the loop around them.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from typing import Any

from tests.benchmarks.measure import Prepare, Thunk, await_it, interleaved, traced_mb
from tests.benchmarks.peers.setup import ROOT, peers_python
from tests.benchmarks.table import Row, attempt, least

SIZES = (10, 100, 1_000, 5_000)
MEMORY_SIZES = (1_000, 4_000)
PEERS_TRACED_AT = 1_000
"""Megabytes at 1,000 steps are kilobytes per step."""
PEERS = {"autogen": "autogen_loop", "smolagents": "smolagents_loop", "pydantic-ai": "pydantic_ai_loop"}


@dataclass(frozen=True, slots=True)
class Report:
    """The output of a peer's file: CPU microseconds per step by size, and megabytes at 1,000 steps (None: too slow to trace)."""

    us_per_step: dict[int, float]
    traced_mb: float | None


def floor(steps: int) -> Prepare:
    """The minimal agent loop: await the model, await the tool, append to a list."""

    async def model(messages: list[dict[str, str]]) -> dict[str, str]:
        return {"tool": "lookup", "key": "a"} if len(messages) < 2 * steps else {"text": "done"}

    async def lookup(key: str) -> str:
        return "value of " + key

    async def loop() -> None:
        messages = [{"text": "go"}]
        while "text" not in (answer := await model(messages)):
            messages.append(answer)
            messages.append({"result": await lookup(answer["key"])})
        assert len(messages) == 2 * steps + 1

    def ready() -> Thunk:
        return lambda: await_it(loop())

    return ready


def peers() -> dict[str, Report]:
    """Each peer's own figures, from a process in the peers' environment."""
    reports = {}
    for name, module in PEERS.items():
        command = [str(peers_python()), "-m", f"tests.benchmarks.peers.{module}"]
        printed = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        us_per_step = {int(steps): us for steps, us in printed["us_per_step"].items()}
        reports[name] = Report(us_per_step, printed["traced_mb"])
        print(f"  {name}:", ", ".join(f"{us:,.0f} us at {steps:,}" for steps, us in us_per_step.items()), flush=True)
    return reports


def ours(steps: int) -> Prepare:
    """An agent over a scripted provider, with a condition of five leaves, a budget, and the events that the recorder reads."""
    from agentlab import Agent, Budget, FinishReason, FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, StepCountIs
    from agentlab.model.messages import ModelRequest, ToolCall
    from agentlab.model.responses import ModelResponse
    from agentlab.testing import ScriptedProvider, say

    async def lookup(key: str) -> str:
        """Look up a key."""
        return "value of " + key

    asks = say(finish=FinishReason.TOOL_CALLS, cost="0.0001")
    done = say("done", cost="0.0001")

    def answer(request: ModelRequest, number: int) -> ModelResponse:
        if number > steps:
            return done
        call = ToolCall(f"call_{number}", "lookup", '{"key": "a"}')
        return ModelResponse("", asks.signal, (call,), asks.usage, model="script", cost_usd=asks.cost_usd)

    budget = Budget(max_turns=steps + 1, max_tokens=10**9, max_cost=Decimal(10**6))
    agent = Agent(ScriptedProvider(answer), tools=[lookup], budget=budget)
    never = StepCountIs(10**6) | MaxTokensUsed(10**9) | MaxCost(10**6) | HasToolCall("finish") | FinishReasonIs("length")

    def ready() -> Thunk:
        run = agent.run("go", stop=never)

        def whole() -> None:
            result = await_it(run)
            assert result.text == "done", result
            assert len(result.history) == steps + 1, result

        return whole

    return ready


def kept_by_a_step() -> list[tuple[type, list[object]]]:
    """The class and the fields of each value that one step adds to a run: events, records, messages, readings."""
    from agentlab.engine.call_context import watched

    runs: list[Any] = []
    with watched(runs.append):
        ours(3)()()
    events, seen, found = runs[0].events, set[int](), list[tuple[type, list[object]]]()

    def collect(value: object) -> None:
        if isinstance(value, tuple | list):
            for part in value:
                collect(part)
        elif is_dataclass(value) and type(value).__module__.startswith("agentlab.") and id(value) not in seen:
            seen.add(id(value))  # it lives as long as the run; a list here would give its id to the next one
            parts = [getattr(value, field.name) for field in fields(value)]
            collect(parts)
            found.append((type(value), parts))

    starts = [place for place, event in enumerate(events) if type(event).__name__ == "StepStarted"]
    collect([*events[: starts[1]], *runs[0].messages[:3]])
    found.clear()
    collect([*events[starts[1] : starts[2]], *runs[0].messages[3:5]])
    assert {"StepResult", "ModelCall", "Reading"} <= {kind.__name__ for kind, _ in found}, found
    return found


def kept_bytes() -> int:
    """The size of these values and of the tuples, numbers and amounts in them, without the lists that hold them."""
    held = [(kind(*parts), parts) for kind, parts in kept_by_a_step()]
    inner = {id(part): part for _, parts in held for part in parts if part and isinstance(part, tuple | float | Decimal)}
    return sum(sys.getsizeof(value) for value, _ in held) + sum(map(sys.getsizeof, inner.values()))


def needed(steps: int) -> Prepare:
    """What no loop that records the same can leave out: make the values that a step keeps, check the arguments against the schema, and
    run the tool in a task, since a cancel or a timeout may have to leave it behind. Nothing is decided, no limit is checked."""
    from agentlab import tool

    async def lookup(key: str) -> str:
        return "value of " + key

    values, target = kept_by_a_step(), tool(lookup)

    async def loop() -> None:
        kept = []
        for _ in range(steps):
            arguments = target.validate('{"key": "a"}')
            await asyncio.create_task(lookup(**arguments))
            kept.append([kind(*parts) for kind, parts in values])
        assert len(kept) == steps

    def ready() -> Thunk:
        return lambda: await_it(loop())

    return ready


def decided(steps: int) -> Prepare:
    """The same, and what a step decides: if a limit is reached before and after it, what to do with the response, if a condition is
    met, and what is left. Nothing can be paused, edited, cancelled, retried, or fail."""
    from agentlab import (
        Budget,
        DecisionContext,
        FinishReasonIs,
        HasToolCall,
        MaxCost,
        MaxTokensUsed,
        StepCountIs,
        termination,
        tool,
    )
    from agentlab.limits.reading import Reading, Remaining
    from agentlab.model.conversation import Conversation
    from agentlab.model.messages import Message, ModelRequest
    from agentlab.records.history import RunHistory
    from agentlab.records.step import StepResult

    async def lookup(key: str) -> str:
        return "value of " + key

    made_below = (Reading, Remaining)
    values, target = [each for each in kept_by_a_step() if each[0] not in made_below], tool(lookup)
    places = {kind: place for place, (kind, _) in enumerate(values)}
    never = StepCountIs(10**6) | MaxTokensUsed(10**9) | MaxCost(10**6) | HasToolCall("finish") | FinishReasonIs("length")
    budget = Budget(max_turns=steps + 1, max_tokens=10**9, max_cost=Decimal(10**6))

    async def loop() -> None:
        kept, history, conversation = [], RunHistory(), Conversation([Message("user", "go")])
        while len(history) < steps and not budget.exhausted(history, 0.0):
            request = ModelRequest(conversation.view())
            made = [kind(*parts) for kind, parts in values]
            step: StepResult = made[places[StepResult]]
            context = DecisionContext(step.calls[0].response, len(history) + 1, 1, None, step.settings, history)
            decision = termination.standard(step.signal, context)
            arguments = target.validate('{"key": "a"}')
            await asyncio.create_task(lookup(**arguments))
            history.append(step)
            conversation.append(made[places[Message]])
            kept.append([made, request, decision, never.read(history), budget.remaining(history, 0.0)])
            assert not budget.exhausted(history, 0.0)
        assert len(kept) == steps

    def ready() -> Thunk:
        return lambda: await_it(loop())

    return ready


def growth() -> float:
    """Microseconds per step of one run of 5,000 steps, as a multiple of 50 runs of 100 steps: the same duration, so the same noise."""

    def many() -> Thunk:
        runs = [ours(100)() for _ in range(50)]
        return lambda: [run() for run in runs]

    taken = interleaved({"many": many, "one": ours(5_000)}, repeats=5)
    return taken["one"] / taken["many"]


def rows(with_peers: bool) -> Iterator[Row]:
    """Time per step at each size and its growth, memory per step at two sizes and its growth."""
    reports = peers() if with_peers else {}
    _, why_not = attempt(lambda: ours(10))
    candidates: dict[str, Callable[[int], Prepare]] = {"floor": floor}
    if not why_not:
        candidates |= {"ours": ours, "needed": needed, "decided": decided}
    for steps in SIZES:
        taken = interleaved({name: of(steps) for name, of in candidates.items()}, repeats=15, seconds=6.0)
        best = least({name: report.us_per_step.get(steps) for name, report in reports.items()})
        us, has_goal = {name: time / steps for name, time in taken.items()}, steps == 100
        row = Row(
            benchmark=f"scripted run, a step of {steps:,}",
            unit="us",
            goal="<= 1/10 of the fastest peer" if has_goal else "",
            at_most=1 / 10 if has_goal else None,
            floor=us["floor"],
            peer=best,
            ours=us.get("ours"),
            against=best.value if best else None,
            why_not=why_not,
        )
        yield row
        if has_goal and "needed" in us:
            least_us = ", with what it decides ".join(
                f"{us[name]:,.1f} us ({us[name] / us['floor']:,.0f} x the floor)" for name in ("needed", "decided")
            )
            print(f"  a step of {steps:,}: the values that it keeps and the task of its tool take {least_us}", flush=True)
            yield replace(
                row,
                benchmark="scripted run, a step of 100, and the bare loop",
                goal="<= 12 x the floor",
                at_most=12.0,
                against=us["floor"],
            )
    yield Row(
        benchmark="scripted run, a step of 5,000 to one of 100",
        unit="x",
        goal="<= 1.05",
        at_most=1.05,
        peer=least({name: r.us_per_step[5_000] / r.us_per_step[100] for name, r in reports.items() if 5_000 in r.us_per_step}),
        ours=None if why_not else growth(),
        against=1.0,
        why_not=why_not,
    )
    if not why_not:
        print(f"  the values that a step keeps: {kept_bytes():,} bytes", flush=True)
    kb = {steps: traced_mb(ours(steps)) * 1000 / steps for steps in MEMORY_SIZES if not why_not}
    for steps in MEMORY_SIZES:
        yield Row(
            benchmark=f"scripted run, memory of a step of {steps:,}",
            unit="kB",
            goal="<= 2 kB",
            at_most=1.0,
            floor=traced_mb(floor(steps)) * 1000 / steps,
            peer=least({name: report.traced_mb for name, report in reports.items()}) if steps == PEERS_TRACED_AT else None,
            ours=kb.get(steps),
            against=2.0,
            why_not=why_not,
        )
    small, large = MEMORY_SIZES
    yield Row(
        benchmark=f"scripted run, memory of a step of {large:,} to one of {small:,}",
        unit="x",
        goal="<= 1.05",
        at_most=1.05,
        ours=kb[large] / kb[small] if kb else None,
        against=1.0,
        why_not=why_not,
    )
